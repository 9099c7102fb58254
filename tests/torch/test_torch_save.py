"""torch_bridge.save: the file is there whole or not at all."""

import os
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("torch.jit", reason="needs PyTorch")

import torch
from torch_helpers import load

from quabla_jax import torch_bridge
from quabla_jax.torch_bridge import saving


@pytest.fixture
def module():
    return torch_bridge.to_torchscript(lambda x: x * 2, np.ones(3))


def test_a_saved_file_loads(module, tmp_path):
    for path in (tmp_path / "m.pt", str(tmp_path / "s.pt")):
        torch_bridge.save(module, path)
        assert load(path)(torch.ones(3)).tolist() == [2, 2, 2]
    assert sorted(os.listdir(tmp_path)) == ["m.pt", "s.pt"]


def test_a_function_of_the_builder_is_saved_too(tmp_path):
    gb = torch_bridge.GraphBuilder("Double")
    gb.output(gb.call("aten::mul", gb.input("x"), 2))
    torch_bridge.save(gb.function(), tmp_path / "f.pt")
    assert load(tmp_path / "f.pt")(torch.ones(1)).item() == 2


def test_an_interrupted_save_leaves_the_old_file(module, tmp_path, monkeypatch):
    path = tmp_path / "m.pt"
    torch_bridge.save(module, path)
    old = path.read_bytes()
    for error in (KeyboardInterrupt, OSError(28, "No space left on device")):

        def fail(*args, error=error):
            raise error

        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", fail)
            with pytest.raises((KeyboardInterrupt, OSError)):
                torch_bridge.save(torch_bridge.to_torchscript(lambda x: x * 3, np.ones(3)), path)
        assert path.read_bytes() == old and os.listdir(tmp_path) == ["m.pt"]


def test_paths_that_cannot_be_written(module, tmp_path):
    for path in (tmp_path / "missing" / "m.pt", tmp_path, "/proc/m.pt"):
        with pytest.raises(OSError):
            torch_bridge.save(module, path)
    assert os.listdir(tmp_path) == []


def test_a_killed_save_leaves_the_old_file(module, tmp_path):
    path = tmp_path / "m.pt"
    torch_bridge.save(module, path)
    old = path.read_bytes()
    script = (
        "import os, signal, sys, numpy as np\nfrom quabla_jax import torch_bridge\n"
        "m = torch_bridge.to_torchscript(lambda x: x * 3, np.ones(3))\n"
        "os.fsync = lambda fd: os.kill(os.getpid(), signal.SIGKILL)\n"
        "torch_bridge.save(m, sys.argv[1])\n"
    )
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(saving.__file__))))
    env = os.environ | {"PYTHONPATH": root}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, str(path)], env=env, timeout=120, capture_output=True
    )
    assert done.returncode == -9, done.stderr
    assert path.read_bytes() == old and load(path)(torch.ones(3)).tolist() == [2, 2, 2]


def test_a_full_disk_leaves_the_old_file(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting a small tmpfs needs privileges that this user lacks")
    try:
        path = disk / "m.pt"
        torch_bridge.save(torch_bridge.to_torchscript(lambda x: x * 2, np.ones(3)), path)
        old = path.read_bytes()
        table = np.random.default_rng(0).normal(size=80_000)
        large = torch_bridge.to_torchscript(lambda w, x: w * x, np.ones(()), params=table)
        with pytest.raises(OSError, match="No space left"):
            torch_bridge.save(large, path)
        assert path.read_bytes() == old and os.listdir(disk) == ["m.pt"]
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_other_things_are_refused(tmp_path):
    with pytest.raises(TypeError, match="expected a ScriptModule, a ScriptFunction or an ExportedProgram, got int"):
        torch_bridge.save(3, tmp_path / "m.pt")
    assert os.listdir(tmp_path) == []
