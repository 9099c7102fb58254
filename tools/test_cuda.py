"""`make test-cuda`: the engine, the drop-in, the conformance suite and the benchmarks with JAX on a CUDA device.

Where JAX sees no such device (or has no CUDA plugin) it says so and ends with 0. Each step is a process of its own, and all run
even where one fails. CUDA_STEPS=engine,compat picks some.
"""

import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
PYTEST = ["-m", "pytest", "-m", "not slow", "-p", "no:cacheprovider"]
STEPS = {
    "engine": [*PYTEST, "tests/unit"],
    "compat": [*PYTEST, "tests/compat"],
    "conformance": ["-m", "conformance", "--tier", "full", "--jobs", "2"],
    "benchmarks": ["benchmarks/loops.py", "--memory"],
    "overhead": ["benchmarks/overhead.py"],
}
PROBE = "import jax; d = jax.devices('cuda'); print(len(d), d[0].device_kind)"


def environment() -> dict[str, str]:
    """CUDA first, the CPU beside it; memory is taken as it is needed, since several processes share the device."""
    own = {"JAX_PLATFORMS": "cuda,cpu", "XLA_PYTHON_CLIENT_PREALLOCATE": "false", "PYTHONPATH": str(ROOT)}
    return {**os.environ, **own}


def device() -> tuple[str, str]:
    """(what JAX sees, why it sees none): one of the two is empty."""
    found = subprocess.run(
        [sys.executable, "-c", PROBE], cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=300
    )
    if found.returncode == 0:
        return found.stdout.strip(), ""
    lines = [line for line in found.stderr.splitlines() if line and not line.startswith((" ", "For simplicity", "---"))]
    return "", lines[-1] if lines else f"the probe ended with {found.returncode}"


def chosen() -> list[str]:
    """The steps that CUDA_STEPS names, all by default."""
    names = [name for name in os.environ.get("CUDA_STEPS", ",".join(STEPS)).split(",") if name]
    unknown = sorted(set(names) - set(STEPS))
    if unknown:
        raise SystemExit(f"CUDA_STEPS: no step {unknown[0]!r}; there are {', '.join(STEPS)}")
    return names


def main() -> None:
    """Runs the steps; exit status 1 where one failed."""
    names = chosen()
    seen, reason = device()
    if not seen:
        print(f"skipped: JAX sees no CUDA device here ({reason}); install 'jax[cuda13]' on a machine with a GPU")
        return
    print(f"CUDA: {seen}", flush=True)
    failed = []
    for name in names:
        print(f"== {name}", flush=True)
        start = time.monotonic()
        code = subprocess.run([sys.executable, *STEPS[name]], cwd=ROOT, env=environment()).returncode
        print(
            f"== {name}: {'passed' if code == 0 else f'failed with {code}'}, {time.monotonic() - start:.0f} s",
            flush=True,
        )
        failed += [name] * (code != 0)
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")
    print(f"all steps passed: {', '.join(names)}")


if __name__ == "__main__":
    main()
