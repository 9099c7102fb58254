"""Each example runs from start to picture in its tiny form, as the cells of its notebook, and what it reports is what it
should be."""

import importlib.util
import json
import pathlib
import shutil
import subprocess
import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("optax", reason="the examples train with optax")
pytest.importorskip("matplotlib", reason="the examples end with a picture")

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
# Examples run in JAX's default precision; matplotlib's own deprecations are not theirs.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::PendingDeprecationWarning")


@pytest.fixture(autouse=True)
def default_precision():
    with jax.enable_x64(False):
        yield


def example(name, monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))  # it imports common.py from beside itself
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def cells(name):
    """The code of a notebook's cells, in its tiny form."""
    notebook = json.loads((EXAMPLES / "notebooks" / f"{name}.ipynb").read_text("utf-8"))
    code = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert sum(text.startswith("quick = False") for text in code) == 1
    return [text.replace("quick = False", "quick = True", 1) if text.startswith("quick") else text for text in code]


class Image:
    """What IPython shows; it is not installed with the tests."""

    def __init__(self, filename):
        self.data = pathlib.Path(filename).read_bytes()


def run(name, folder, monkeypatch):
    """(the names that a notebook's cells define, what its main returned); checks the picture."""
    (folder / "here").mkdir()
    monkeypatch.chdir(folder / "here")
    for file in EXAMPLES.iterdir():  # a notebook lies one folder below the programs
        if not (folder / file.name).exists():
            (folder / file.name).symlink_to(file)
    monkeypatch.syspath_prepend(str(folder))
    space = {"__name__": "__main__", "__doc__": "a notebook"}
    for number, text in enumerate(cells(name)):
        if text.startswith("from IPython"):  # matplotlib asks for it when it begins
            monkeypatch.setitem(sys.modules, "IPython", types.ModuleType("IPython"))
            monkeypatch.setitem(sys.modules, "IPython.display", types.SimpleNamespace(Image=Image))
        exec(compile(text, f"{name}.ipynb, cell {number}", "exec"), space)
    picture = (folder / "here" / "pictures" / f"{name}.png").read_bytes()
    assert picture.startswith(b"\x89PNG") and len(picture) > 20_000
    return types.SimpleNamespace(**space), space["result"]


def test_notebooks_are_current():
    check = [sys.executable, str(EXAMPLES.parent / "tools" / "notebooks.py"), "--check"]
    done = subprocess.run(check, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(f.stem for f in (EXAMPLES / "notebooks").glob("*.ipynb")))
def test_notebooks_run_in_a_kernel_of_their_own(name, tmp_path):
    nbformat = pytest.importorskip("nbformat", reason="needs nbclient and ipykernel")
    nbclient = pytest.importorskip("nbclient", reason="needs nbclient and ipykernel")
    pytest.importorskip("ipykernel", reason="needs nbclient and ipykernel")
    notebook = nbformat.read(EXAMPLES / "notebooks" / f"{name}.ipynb", as_version=4)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        if cell.source.startswith("quick"):
            cell.source = "quick = True"
        cell.source = cell.source.replace('"pictures', f'"{tmp_path}/pictures')
    place = {"metadata": {"path": str(EXAMPLES / "notebooks")}}
    nbclient.NotebookClient(notebook, timeout=900, kernel_name="python3", resources=place).execute()
    shown = [out for out in notebook.cells[-1].outputs if "image/png" in out.get("data", {})]
    assert len(shown) == 1


def test_lorenz96(tmp_path, monkeypatch):
    module, (forcing, error) = run("lorenz96", tmp_path, monkeypatch)
    assert 6.5 < forcing < 8.5  # from 6; 8 is the truth
    assert error < 1.0  # the climate's own spread is 3.6; the observations' 0.5
    # The long gradient is the plain one: jax.lax's loops, without the engine.
    _, observations = module.record(8)
    theta = jnp.asarray([6.0, 0.0, 0.0])
    with module.qb.checkpointing("sqrt"):
        ours = jax.jit(jax.grad(module.loss))(theta, observations)
    with module.qb.checkpointing("full"):
        plain = jax.jit(jax.grad(lambda theta: module.loss(theta, observations)))(theta)
    np.testing.assert_allclose(ours, plain, rtol=1e-4)


def test_digits(tmp_path, monkeypatch):
    pytest.importorskip("sklearn", reason="the digits are scikit-learn's")
    _, (right, off) = run("digits_gru", tmp_path, monkeypatch)
    assert right > 0.7  # ten classes
    assert off is None or off < 1e-4


def test_burgers(tmp_path, monkeypatch):
    module, error = run("burgers_pinn", tmp_path, monkeypatch)
    assert error < 0.8
    # The residual's derivatives against finite differences of the network, in double precision.
    with jax.enable_x64(True):
        p = jax.tree.map(lambda a: jnp.asarray(a, jnp.float64), module.parameters(jax.random.key(0)))
        t, x, h = np.array([0.3, 0.7]), np.array([-0.4, 0.25]), 1e-4
        u = lambda t, x: np.asarray(module.solution(p, jnp.asarray(t), jnp.asarray(x)))

        def r(x):
            u_t, u_x = (u(t + h, x) - u(t - h, x)) / (2 * h), (u(t, x + h) - u(t, x - h)) / (2 * h)
            return u_t + u(t, x) * u_x - module.NU * (u(t, x + h) - 2 * u(t, x) + u(t, x - h)) / h**2

        with module.qb.checkpointing("sqrt"):
            ours = module.residual(p, jnp.asarray(t), jnp.asarray(x))
        np.testing.assert_allclose(ours[0], r(x), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(ours[1], (r(x + 1e-3) - r(x - 1e-3)) / 2e-3, rtol=1e-3, atol=1e-3)


def test_the_exact_solution_of_burgers_satisfies_the_equation(monkeypatch):
    module = example("burgers_pinn", monkeypatch)
    t, x, h = np.array([0.2, 0.5, 0.9]), np.array([-0.7, 0.3, 0.05]), 1e-4
    u = module.exact
    left = (u(t + h, x) - u(t - h, x)) / (2 * h) + u(t, x) * (u(t, x + h) - u(t, x - h)) / (2 * h)
    np.testing.assert_allclose(left, module.NU * (u(t, x + h) - 2 * u(t, x) + u(t, x - h)) / h**2, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(u(np.full(3, 1e-7), x), -np.sin(np.pi * x), atol=1e-5)


def test_deep_equilibrium(tmp_path, monkeypatch):
    module, (right, off) = run("deq", tmp_path, monkeypatch)
    assert right > 0.6
    assert off < 1e-3
    # and by finite differences
    with jax.enable_x64(True):
        x, label = (jnp.asarray(a, jnp.float64) for a in module.spirals(10))
        p = jax.tree.map(lambda a: jnp.asarray(a, jnp.float64), module.parameters(jax.random.key(0)))
        slope = jax.grad(module.loss)(p, x, label)
        shift = lambda s: module.loss({**p, "b": p["b"].at[0].add(s)}, x, label)
        np.testing.assert_allclose(slope["b"][0], (shift(1e-3) - shift(-1e-3)) / 2e-3, rtol=1e-2, atol=1e-6)


def test_pendulum(tmp_path, monkeypatch):
    module, (history, _) = run("pendulum_policy", tmp_path, monkeypatch)
    assert np.mean(history[-5:]) < np.mean(history[:5])
    # A rollout step by step in NumPy.
    p, state, cost = module.parameters(jax.random.key(0)), np.array([2.0, 0.1]), 0.0
    for _ in range(module.STEPS):
        u = float(module.torque(p, jnp.asarray(state)))
        speed = state[1] + module.DT * (module.GRAVITY * np.sin(state[0]) - module.DAMPING * state[1] + u)
        state = np.array([state[0] + module.DT * speed, speed])
        cost += module.DT * (1 - np.cos(state[0]) + 0.02 * speed**2 + 0.002 * u**2)
    np.testing.assert_allclose(module.rollout(p, jnp.asarray([2.0, 0.1]))[0], cost, rtol=1e-3)


def test_lynx_and_hare(tmp_path, monkeypatch):
    module, (theta, history, spread) = run("lynx_hare", tmp_path, monkeypatch)
    assert history[-1] < history[0] / 5
    np.testing.assert_allclose(np.exp(theta[:4]), [0.53, 0.026, 0.024, 0.81], rtol=0.1)
    # The trajectory step by step in NumPy.
    years, pelts = module.load_record()
    p, h = np.exp(np.asarray(theta, np.float64)), 1 / 50
    rates = lambda s: np.array([(p[0] - p[1] * s[1]) * s[0], (p[2] * s[0] - p[3]) * s[1]])
    state, seen = p[4:], [p[4:]]
    for _ in range(len(years) - 1):
        for _ in range(50):
            k1 = rates(state)
            k2 = rates(state + h / 2 * k1)
            k3 = rates(state + h / 2 * k2)
            state = state + h / 6 * (k1 + 2 * k2 + 2 * k3 + rates(state + h * k3))
        seen.append(state)
    np.testing.assert_allclose(module.trajectory(theta, 21, 50), seen, rtol=1e-3)

    # A standard error from the slopes of the residuals (Gauss and Newton's curvature is near the whole one at a fit).
    def residuals(t):
        return np.log(np.asarray(module.trajectory(jnp.asarray(t, jnp.float32), 21, 50), np.float64)) - np.log(pelts)

    t, e = np.asarray(theta, np.float64), 2e-2 * np.eye(6)
    slopes = np.stack([(residuals(t + d) - residuals(t - d)).ravel() / 4e-2 for d in e], 1)
    size = np.sum(residuals(t) ** 2) / (pelts.size - 6)
    np.testing.assert_allclose(spread, np.sqrt(np.diag(np.linalg.inv(slopes.T @ slopes)) * size), rtol=0.3)


@pytest.mark.slow
def test_a_trained_network_in_cpp(tmp_path, monkeypatch):
    pytest.importorskip("torch.jit", reason="exports to TorchScript")
    pytest.importorskip("sklearn", reason="the digits are scikit-learn's")
    for tool in ("cmake", "c++"):
        if shutil.which(tool) is None:
            pytest.skip(f"needs {tool}")
    _, (right, off, same) = run("digits_cpp", tmp_path, monkeypatch)
    assert right > 0.6 and off < 1e-3 and same >= 295
