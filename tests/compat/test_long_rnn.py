"""examples/long_rnn.py under a memory limit: dies as plain JAX runs it, fits through the engine."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIMIT_KIB = 6_000_000


def run(*arguments, limit=None):
    command = shlex.join([sys.executable, *arguments])
    if limit:
        command = f"ulimit -v {limit}; {command}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""}
    return subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, cwd=ROOT, env=environment, timeout=900
    )


def test_small_run_is_the_same_program():
    size = ["examples/long_rnn.py", "--steps", "96", "--units", "8", "--batch", "2"]
    plain, engine = run(*size), run("-m", "quabla_jax.compat", "-c", "sqrt", *size)
    assert plain.returncode == engine.returncode == 0, plain.stderr + engine.stderr
    assert plain.stdout.splitlines()[0] == engine.stdout.splitlines()[0]


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="ulimit -v limits address space on Linux only")
def test_gradient_dies_unpatched_and_fits_patched():
    plain = run("examples/long_rnn.py", limit=LIMIT_KIB)
    assert plain.returncode != 0 and "RESOURCE_EXHAUSTED" in plain.stderr
    engine = run("-m", "quabla_jax.compat", "-c", "sqrt", "examples/long_rnn.py", limit=LIMIT_KIB)
    assert engine.returncode == 0, engine.stderr
    assert "gradient norm" in engine.stdout
    # Two square roots of 32,768 steps are 362 carries of 64 KiB: 23 MiB over what JAX itself takes.
    peak = float(engine.stdout.rsplit("peak memory", 1)[1].replace(",", "").split()[0])
    assert peak < 1000
