"""The matrix of versions: one virtual environment a leg, the quick tier in each, the outcome in docs/versions.md.

python tools/matrix.py ROOT [--only LEG ...]: environments are made under ROOT once; a leg that is run replaces its row,
the other rows stay. A leg whose Python this machine lacks says so in its row.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree

HERE = pathlib.Path(__file__).resolve().parent
DOCS = HERE.parent / "docs" / "versions.md"
PACKAGES = ("jax", "numpy", "torch", "mlx")
SECONDS = int(os.environ.get("LEG_SECONDS", "3600"))
"""No leg may take longer; give LEG_SECONDS where other work runs on the machine."""


@dataclasses.dataclass(frozen=True)
class Leg:
    """One environment: a Python, a constraints file, extras, pins in the constraints' place, and what runs in it."""

    name: str
    python: str
    constraints: str
    extras: str
    pins: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()


def oldest_mlx() -> str:
    """The lower end of the range that pyproject.toml states."""
    found = re.search(r'"mlx>=([\d.]+)', (HERE.parent / "pyproject.toml").read_text("utf-8"))
    assert found is not None, "pyproject.toml states no mlx range"
    return found[1]


def version_files() -> tuple[str, ...]:
    lines = (HERE / "version_files.txt").read_text("utf-8").splitlines()
    return tuple(line for line in lines if line and not line.startswith("#"))


TORCH = ("tests/torch/test_to_torchscript.py", "tests/torch/test_export.py", "tests/torch/test_core_ops.py")
MLX = ("tests/mlx/test_mlx_control_flow.py", "tests/mlx/test_mlx_ops.py", "tests/mlx/test_mlx_jit.py")
OLD = oldest_mlx()
LEGS = (
    Leg("oldest JAX, Python 3.11", "3.11", "constraints.txt", ".[mlx,torch,cli,dev]", tests=(*version_files(), *TORCH)),
    Leg("oldest JAX, Python 3.12", "3.12", "constraints.txt", ".[mlx,cli,dev]", tests=version_files()),
    Leg("newest JAX, Python 3.13", "3.13", "constraints-py313.txt", ".[mlx,cli,dev]", tests=version_files()),
    Leg("newest torch", "3.11", "constraints-torch214.txt", ".[torch,dev]", tests=(*TORCH, "tests/torch/test_torch214.py")),
    Leg("oldest MLX", "3.11", "constraints.txt", ".[mlx,dev]", (f"mlx=={OLD}", f"mlx-cpu=={OLD}"), MLX),
)  # fmt: skip


def interpreter(version: str) -> str | None:
    """A Python of that version: this one, one on the path, or pyenv's newest."""
    if version == f"{sys.version_info.major}.{sys.version_info.minor}":
        return sys.executable
    candidates = [
        shutil.which(f"python{version}"),
        *pathlib.Path.home().glob(f".pyenv/versions/{version}.*/bin/python"),
    ]
    return next((str(c) for c in candidates if c and runs(c)), None)


def runs(python: str | pathlib.Path) -> bool:
    """pyenv puts names on the path that only say how to choose a version."""
    return subprocess.run([python, "-c", ""], capture_output=True).returncode == 0


def constraints(leg: Leg, folder: pathlib.Path) -> pathlib.Path:
    """The leg's constraints file, its pins in the place of the file's own."""
    names = {pin.partition("==")[0] for pin in leg.pins}
    lines = (HERE.parent / leg.constraints).read_text("utf-8").splitlines()
    path = folder / "constraints.txt"
    path.write_text("\n".join([l for l in lines if l.partition("==")[0] not in names] + list(leg.pins)) + "\n", "utf-8")
    return path


def outcome(report: pathlib.Path) -> dict[str, int]:
    """Counts of a JUnit report."""
    suites = list(ElementTree.parse(report).getroot().iter("testsuite"))
    count = {key: sum(int(s.get(key, 0)) for s in suites) for key in ("tests", "failures", "errors", "skipped")}
    failed = count["failures"] + count["errors"]
    return {"passed": count["tests"] - failed - count["skipped"], "failed": failed, "skipped": count["skipped"]}


def run(leg: Leg, root: pathlib.Path) -> dict:
    """Makes the leg's environment, runs its tests, and gives its row."""
    python = interpreter(leg.python)
    if python is None:
        return {"leg": leg.name, "python": leg.python, "note": f"not run: this machine has no Python {leg.python}"}
    folder = root / re.sub(r"\W+", "-", leg.name.lower())
    folder.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "PYTHON": python, "PYTHONPATH": str(HERE.parent)}
    setup = [str(HERE / "venv.sh"), str(folder / "venv"), str(constraints(leg, folder)), leg.extras]
    subprocess.run(setup, cwd=HERE.parent, env=environment, check=True)
    own, report = str(folder / "venv" / "bin" / "python"), folder / "report.xml"
    report.unlink(missing_ok=True)
    show = f"import importlib.metadata as m, platform; print(platform.python_version(), *[next(iter([d.version for d in m.distributions(name=p)]), '-') for p in {PACKAGES!r}])"
    versions = subprocess.run([own, "-c", show], capture_output=True, text=True, check=True).stdout.split()
    command = [own, "-m", "pytest", "-n", os.environ.get("JOBS", "0"), "-m", "not slow", "-p", "no:cacheprovider"]
    start = time.monotonic()
    note = "pytest ended without a report"
    try:
        subprocess.run(
            [*command, f"--junitxml={report}", *leg.tests], cwd=HERE.parent, env=environment, timeout=SECONDS
        )
    except subprocess.TimeoutExpired:
        note = f"no report: stopped after {SECONDS} s"
    row = {"leg": leg.name, **dict(zip(("python", *PACKAGES), versions)), "seconds": round(time.monotonic() - start)}
    return row | (outcome(report) if report.exists() else {"note": note})


def page(rows: dict[str, dict]) -> str:
    """docs/versions.md of the rows; they ride along in a comment, so that a leg can be run by itself."""
    columns = ("leg", "python", *PACKAGES, "passed", "failed", "skipped", "seconds")
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    for leg in LEGS:
        row = rows.get(leg.name, {"leg": leg.name, "python": leg.python, "note": "not run yet"})
        cells = [str(row.get(column, "")) for column in columns]
        cells[6] = row.get("note", cells[6])
        lines.append("| " + " | ".join(cells) + " |")
    files = "\n".join(f"- {leg.name}: {', '.join(f'`{test}`' for test in leg.tests)}" for leg in LEGS)
    return f"""# Versions

Made by `make matrix` (`tools/matrix.py`), which makes one virtual environment a row and runs in it the quick tests that depend
on versions. Each number counts tests; what is skipped needs a library that the row does not hold. "-": not installed.

{chr(10).join(lines)}

The ranges that `pyproject.toml` states: JAX 0.10.2 to 0.12, torch from 2.13, MLX from {OLD}. With 0.32.3 one of the MLX row's 205
tests fails (`xor` of booleans); before it a program's results differ in the last bit between its first and its later calls as well
(`tests/mlx/test_mlx_control_flow.py -k same_bits`); on 0.29.0 some float64 functions are accurate to float32 only.

What each row runs:

{files}

<!-- rows: {json.dumps(rows, sort_keys=True)} -->
"""


def main() -> None:
    """Runs the legs that are asked for, and writes the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("--only", action="append", choices=[leg.name for leg in LEGS])
    given = parser.parse_args()
    old = re.search(r"<!-- rows: (.*) -->", DOCS.read_text("utf-8")) if DOCS.exists() else None
    rows = json.loads(old[1]) if old else {}
    for leg in LEGS:
        if not given.only or leg.name in given.only:
            print(f"== {leg.name}", flush=True)
            rows[leg.name] = run(leg, given.root.resolve())
            DOCS.write_text(page(rows), "utf-8")
    failed = [row["leg"] for row in rows.values() if row.get("failed") or "report" in row.get("note", "")]
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
