"""Each example runs from start to picture in its tiny form, and what it reports is what it should be."""

import importlib.util
import pathlib

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


def example(name):
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(name, folder):
    """(module, what its main returned); checks the picture."""
    module = example(name)
    result = module.main(["--tiny", "--output", str(folder)])
    picture = (folder / f"{name}.png").read_bytes()
    assert picture.startswith(b"\x89PNG") and len(picture) > 20_000
    return module, result


def test_lorenz96(tmp_path):
    module, (forcing, error) = run("lorenz96", tmp_path)
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


def test_digits(tmp_path):
    pytest.importorskip("sklearn", reason="the digits are scikit-learn's")
    _, (right, off) = run("digits_gru", tmp_path)
    assert right > 0.7  # ten classes
    assert off is None or off < 1e-4


def test_burgers(tmp_path):
    module, error = run("burgers_pinn", tmp_path)
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


def test_the_exact_solution_of_burgers_satisfies_the_equation():
    module = example("burgers_pinn")
    t, x, h = np.array([0.2, 0.5, 0.9]), np.array([-0.7, 0.3, 0.05]), 1e-4
    u = module.exact
    left = (u(t + h, x) - u(t - h, x)) / (2 * h) + u(t, x) * (u(t, x + h) - u(t, x - h)) / (2 * h)
    np.testing.assert_allclose(left, module.NU * (u(t, x + h) - 2 * u(t, x) + u(t, x - h)) / h**2, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(u(np.full(3, 1e-7), x), -np.sin(np.pi * x), atol=1e-5)


def test_deep_equilibrium(tmp_path):
    module, (right, off) = run("deq", tmp_path)
    assert right > 0.6
    assert off < 1e-3
    # and by finite differences
    with jax.enable_x64(True):
        x, label = (jnp.asarray(a, jnp.float64) for a in module.spirals(10))
        p = jax.tree.map(lambda a: jnp.asarray(a, jnp.float64), module.parameters(jax.random.key(0)))
        slope = jax.grad(module.loss)(p, x, label)
        shift = lambda s: module.loss({**p, "b": p["b"].at[0].add(s)}, x, label)
        np.testing.assert_allclose(slope["b"][0], (shift(1e-3) - shift(-1e-3)) / 2e-3, rtol=1e-2, atol=1e-6)


def test_pendulum(tmp_path):
    module, (history, _) = run("pendulum_policy", tmp_path)
    assert np.mean(history[-5:]) < np.mean(history[:5])
    # A rollout step by step in NumPy.
    p, state, cost = module.parameters(jax.random.key(0)), np.array([2.0, 0.1]), 0.0
    for _ in range(module.STEPS):
        u = float(module.torque(p, jnp.asarray(state)))
        speed = state[1] + module.DT * (module.GRAVITY * np.sin(state[0]) - module.DAMPING * state[1] + u)
        state = np.array([state[0] + module.DT * speed, speed])
        cost += module.DT * (1 - np.cos(state[0]) + 0.02 * speed**2 + 0.002 * u**2)
    np.testing.assert_allclose(module.rollout(p, jnp.asarray([2.0, 0.1]))[0], cost, rtol=1e-3)
