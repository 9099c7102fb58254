"""With JAX's x64 mode off: float32 by default, an explicit float64 refused, never a silent narrowing."""

import io
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import quabla_jax as qb


@pytest.fixture
def x32():
    with jax.enable_x64(False), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the one warning a process has a test of its own
        yield


def test_everything_becomes_float32(x32):
    key = qb.random.key(0)
    made = [
        qb.zeros(2),
        qb.array(1.5),
        qb.arange(3),
        qb.linspace(0, 1, 3),
        qb.sin(2),
        qb.random.normal(key, (2,)),
        qb.eye(2),
    ]
    made += [
        qb.sum(qb.ones(4)),
        qb.where(qb.array([True]), 1.0, 2.0),
        qb.logsumexp(qb.ones(3)),
        qb.diag(qb.array([True, False])),
    ]
    assert {x.dtype for x in made} == {np.dtype(np.float32)}


def test_solvers_and_optimizers_run_in_float32(x32):
    x = qb.newton(lambda x, a: x * x - a, qb.array(1.0), args=(qb.array(2.0),))
    y = qb.ode.odeint(lambda y, t: -y, qb.array([1.0]), (0.0, 1.0), steps=8)
    state = qb.optim.Adam(0.1).init({"w": y})
    _, state = qb.optim.Adam(0.1).update({"w": y}, {"w": y}, state)
    assert x.dtype == y.dtype == state["m"]["w"].dtype == np.float32
    np.testing.assert_allclose(x, np.sqrt(2), rtol=1e-6)


def test_explicit_float64_is_refused(x32):
    with pytest.raises(ValueError, match="x64"):
        qb.zeros(2, dtype=qb.float64)
    with pytest.raises(ValueError, match="x64"):
        qb.random.normal(qb.random.key(0), (2,), qb.float64)


def test_a_float64_file_is_not_narrowed():
    stream = io.BytesIO()
    qb.save(stream, jnp.ones(2))
    stream.seek(0)
    with jax.enable_x64(False), pytest.raises(ValueError, match="x64"):
        qb.load(stream)
