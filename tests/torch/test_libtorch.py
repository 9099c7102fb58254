"""examples/libtorch: configured, built and run against the installed PyTorch's headers and libraries."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

pytest.importorskip("torch.jit", reason="needs PyTorch")

import torch

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples" / "libtorch"


def call(*command, **kwargs):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=900, **kwargs)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.mark.slow
def test_cpp_program_loads_and_checks_the_models(tmp_path):
    for tool in ("cmake", "g++"):
        if shutil.which(tool) is None:
            pytest.skip(f"needs {tool}")
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(EXAMPLE.parents[1]), os.environ.get("PYTHONPATH", "")])}
    call(
        sys.executable,
        "-W",
        "ignore",
        EXAMPLE / "make_models.py",
        tmp_path / "models",
        "--steps",
        200,
        env=env,
    )
    prefix = torch.utils.cmake_prefix_path
    call("cmake", "-S", EXAMPLE, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={prefix}")
    call("cmake", "--build", tmp_path / "build")
    out = call(tmp_path / "build" / "check", tmp_path / "models")
    assert out.count(" ok ") == 4 and "WRONG" not in out, out

    # the check itself can fail
    expected = tmp_path / "models" / "expected.txt"
    numbers = expected.read_text().split()
    expected.write_text(" ".join(["1.5", *numbers[1:]]))
    spoiled = subprocess.run(
        [str(tmp_path / "build" / "check"), str(tmp_path / "models")], capture_output=True, text=True
    )
    assert spoiled.returncode == 1 and "WRONG" in spoiled.stdout
