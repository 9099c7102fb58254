"""What is shipped: the wheel and the sdist have every file, and the wheel works in a clean environment (slow: it downloads)."""

import importlib.util
import os
import pathlib
import subprocess
import sys
import tarfile
import tomllib
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


# What each extra is for, in a few lines.
EXTRAS = {
    "mlx": "from quabla_jax import mlx_backend as m; assert float(m.jit(lambda x: x * 2)(qb.array(3.0))) == 6.0",
    "torch": """
import numpy as np, torch
from quabla_jax import torch_bridge
torch_bridge.save(torch_bridge.to_torchscript(lambda x: qb.fori_loop(0, 5, lambda i, c: c * 2.0, x), np.ones(3)), "m.pt")
assert torch.jit.load("m.pt")(torch.ones(3, dtype=torch.float64)).tolist() == [32.0] * 3""",
    "quabla": """
import quabla
slope = lambda q: q.grad(lambda x: q.sum(q.sin(x)))(q.array([1.0, 2.0])).tolist()
assert numpy.allclose(slope(quabla), slope(qb))""",
    "optim": """
import optax
theta, method = qb.array([3.0]), optax.sgd(0.1)
update, _ = method.update(qb.grad(lambda x: qb.sum(x * x))(theta), method.init(theta))
assert abs(float(optax.apply_updates(theta, update)[0]) - 2.4) < 1e-12""",
    "ode": """
import diffrax
ours = qb.ode.odeint(lambda y, t: -y, qb.array(1.0), (0.0, 1.0), steps=100)
term = diffrax.ODETerm(lambda t, y, args: -y)
theirs = diffrax.diffeqsolve(term, diffrax.Tsit5(), 0.0, 1.0, 0.01, qb.array(1.0)).ys[0]
assert abs(float(ours) - float(theirs)) < 1e-9""",
    "cli": "",
    "docs": "import mkdocs, material, mkdocstrings, matplotlib",
}


class Place:
    """A new virtual environment with the wheel."""

    def __init__(self, folder, wheel):
        self.folder, self.wheel, self.environment = folder, wheel, clean_environment()
        subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True, timeout=400)
        self.bin = folder / "venv" / "bin"

    def install(self, extra=""):
        what = f"{self.wheel}[{extra}]" if extra else str(self.wheel)
        command = [self.bin / "python", "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt", what]
        done = subprocess.run(
            [str(c) for c in command], capture_output=True, text=True, env=self.environment, timeout=2400
        )
        assert done.returncode == 0, done.stderr

    def run(self, *command, fails=False):
        done = subprocess.run(
            [str(c) for c in command],
            capture_output=True,
            text=True,
            env=self.environment,
            cwd=self.folder,
            timeout=600,
        )
        assert (done.returncode != 0) is fails, done.stdout + done.stderr
        return done.stdout + done.stderr


@pytest.fixture
def place(built, tmp_path):
    return Place(tmp_path, built[0])


@pytest.mark.slow
def test_the_wheel_works_with_its_dependencies_alone(place):
    place.install()
    assert str(place.folder) in place.run(place.bin / "python", "-c", SMOKE)
    assert "pip install 'quabla-jax[cli]'" in place.run(place.bin / "quabla-jax", "--help", fails=True)
    assert "fori" in place.run(place.bin / "python", "-m", "conformance", "--list")


@pytest.mark.slow
def test_the_sdist_installs(built, tmp_path):
    place = Place(tmp_path, built[1])
    place.install()
    assert str(place.folder) in place.run(place.bin / "python", "-c", SMOKE)


@pytest.mark.slow
@pytest.mark.parametrize("extra", EXTRAS)
def test_the_wheel_works_with_each_extra_alone(place, extra):
    place.install(extra)
    place.run(place.bin / "python", "-c", SMOKE + EXTRAS[extra])
    if extra == "cli":
        assert "conformance" in place.run(place.bin / "quabla-jax", "--help")
        place.run(place.bin / "quabla-jax", "demo", "--steps", "2", "-o", place.folder / "demo")
        assert list((place.folder / "demo").iterdir())


def test_each_extra_is_tried():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    assert set(declared) - {"dev"} == set(EXTRAS)
