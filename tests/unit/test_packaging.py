"""What is shipped: the wheel and the sdist have every file, and the wheel works in a clean environment (slow: it downloads)."""

import importlib.util
import os
import pathlib
import subprocess
import sys
import tarfile
import zipfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = {"quabla_jax/py.typed", "quabla_jax/__init__.pyi", "quabla_jax/data/lynx_hare.csv"}


def shipped():
    """Every source and data file of the two packages."""
    found = [f for top in ("quabla_jax", "conformance") for f in (ROOT / top).rglob("*") if f.is_file()]
    return {f.relative_to(ROOT).as_posix() for f in found if "__pycache__" not in f.parts and f.suffix != ".pyc"}


def clean_environment():
    return {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "XLA_FLAGS")} | {
        "JAX_PLATFORMS": "cpu",
        "JAX_ENABLE_X64": "1",
    }


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """(wheel, sdist)"""
    if importlib.util.find_spec("hatchling") is None:
        pytest.skip("hatchling, the build backend, is not installed")
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=200, capture_output=True)
    return next(folder.glob("*.whl")), next(folder.glob("*.tar.gz"))


def test_the_wheel_holds_the_packages_and_nothing_else(built):
    with zipfile.ZipFile(built[0]) as archive:
        names = set(archive.namelist())
        metadata = archive.read(next(n for n in names if n.endswith("METADATA"))).decode()
        assert any(n.endswith("licenses/LICENSE") for n in names)
    code = {n for n in names if ".dist-info/" not in n}
    assert code == shipped()
    assert code >= DATA
    needed = [line for line in metadata.splitlines() if line.startswith("Requires-Dist") and "extra ==" not in line]
    assert sorted(line.split()[1].split(">")[0].split("<")[0] for line in needed) == ["jax", "jaxlib", "numpy"]


def test_the_sdist_can_be_built_from(built):
    with tarfile.open(built[1]) as archive:
        names = {n.partition("/")[2] for n in archive.getnames()}
    assert names >= shipped() | {"pyproject.toml", "README.md", "LICENSE"}
    assert not [n for n in names if n.startswith((".venv", "dist/", "site/", "demo-output"))]


SMOKE = """
import sys
import quabla_jax as qb
import jax, numpy
optional = {"torch", "mlx", "optax", "typer", "rich", "matplotlib", "quabla"} & set(sys.modules)
assert not optional, optional
f = qb.jit(lambda x: qb.sum(qb.fori_loop(0, 1000, lambda i, c: c * 0.999, x, checkpoint="sqrt")))
slope = qb.grad(f)(qb.ones(3))
numpy.testing.assert_allclose(slope, 0.999 ** 1000, rtol=1e-12)
import importlib.resources as resources
assert (resources.files("quabla_jax") / "data" / "lynx_hare.csv").read_text().strip()
for name in dir(qb):
    getattr(qb, name)
print(qb.__file__, qb.__version__)
"""


@pytest.mark.slow
def test_the_wheel_works_with_its_dependencies_alone_and_with_the_command_line(built, tmp_path):
    place, environment = tmp_path / "venv", clean_environment()
    subprocess.run([sys.executable, "-m", "venv", str(place)], check=True, timeout=120)
    python = place / "bin" / "python"

    def install(what):
        command = [python, "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt", what]
        done = subprocess.run([str(c) for c in command], capture_output=True, text=True, env=environment, timeout=500)
        assert done.returncode == 0, done.stderr

    def run(*command, fails=False):
        done = subprocess.run(
            [str(c) for c in command], capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=300
        )
        assert (done.returncode != 0) is fails, done.stdout + done.stderr
        return done.stdout + done.stderr

    install(str(built[0]))
    assert str(place) in run(python, "-c", SMOKE)
    assert "pip install 'quabla-jax[cli]'" in run(place / "bin" / "quabla-jax", "--help", fails=True)
    assert "fori" in run(python, "-m", "conformance", "--list")
    install(f"{built[0]}[cli]")
    assert "conformance" in run(place / "bin" / "quabla-jax", "--help")
    run(place / "bin" / "quabla-jax", "demo", "--steps", "2", "-o", tmp_path / "demo")
    assert list((tmp_path / "demo").iterdir())
