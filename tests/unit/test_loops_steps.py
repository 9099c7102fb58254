"""What a reverse sweep stores of a step, what it computes again, and which products it gathers over several steps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from quabla_jax import loops
from quabla_jax.loops import contractions
from quabla_jax.loops.cost import step_cost
from quabla_jax.loops.plan import Budget, Forced, choose
from quabla_jax.loops.region import body_of
from quabla_jax.loops.schedule import Trips
from quabla_jax.loops.steps import Parts

N, COLUMNS, T = 6, 2, 24


def parts_of(step, c, x):
    """The parts of the tangent of a loop with one constant and one carry, both differentiated."""
    from quabla_jax.lowering import jax_api as api

    jaxpr = jax.make_jaxpr(lambda c, x: [step(c, x)])(c, x)
    g = body_of(api.as_closed(jaxpr), (1, 1, 0))
    h = g.dual([True, True], [])
    return Parts.of(h, [False, True, False, True], [])


def stored_shapes(parts):
    return sorted(v.aval.shape for v in parts.stored)


def test_what_follows_cheaply_from_a_residual_is_not_stored():
    x = jnp.ones(7)
    # tanh(p x) reads x and tanh; 1 - tanh, p broadcast and the masks are computed again
    assert (
        stored_shapes(parts_of(lambda p, x: jnp.where(x > 0, x - jnp.tanh(p * x), x), jnp.float64(2.0), x))
        == [(7,)] * 2
    )


def test_what_depends_on_constants_alone_is_not_stored():
    A, x = jnp.ones((N, N)), jnp.ones((N, COLUMNS))
    parts = parts_of(lambda A, x: jnp.sin(A @ A) @ x, A, x)
    assert stored_shapes(parts) == [(N, COLUMNS)]
    assert parts.invariant


def test_an_expensive_residual_is_stored():
    x = jnp.ones(7)
    assert stored_shapes(parts_of(lambda p, x: jnp.exp(jnp.sin(x) * p), jnp.float64(2.0), x)) == [(7,)] * 3


@pytest.mark.parametrize("inner", ["carry", "residuals"])
def test_jit_calls_in_a_body_are_looked_into(inner):
    f = jax.jit(lambda p, x: jax.nn.softplus(p * x))
    loss = lambda scan: lambda p: jnp.sum(scan(lambda x, _: (f(p, x), None), jnp.ones(3) * p, None, T)[0])
    ours = lambda *a: loops.scan(*a, checkpoint=Forced((5,), inner))
    np.testing.assert_allclose(jax.jit(jax.grad(loss(ours)))(0.3), jax.grad(loss(lax.scan))(0.3), rtol=1e-12)


# ---- products gathered


def weights_used(scan, W):
    """A weight used twice in a step, once transposed; another in a product too long to gather; a bias."""
    V, b = jnp.sin(jnp.arange(N * 40.0)).reshape(N, 40), W[0, :COLUMNS]

    def body(x, s):
        y = jnp.tanh(W @ x + W.T @ (x * s) + b)
        return x * 0.5 + 0.1 * y + 0.01 * (W @ V) @ V.T @ x, jnp.sum(y)

    x, y = scan(body, jnp.cos(jnp.arange(N * COLUMNS * 1.0)).reshape(N, COLUMNS), jnp.linspace(0, 1, T), T)
    return jnp.sum(x**2) + jnp.sum(y)


def weight():
    return 0.3 * jnp.sin(jnp.arange(N * N * 1.0)).reshape(N, N)


def dots(f):
    """Products of a compiled program that contract over more than a step holds."""
    text = jax.jit(f).lower(weight()).as_text()
    return [line for line in text.splitlines() if "dot_general" in line and "contracting_dims = [0, " in line]


@pytest.fixture
def always_worth(monkeypatch):
    monkeypatch.setattr(contractions, "COMPILATION", 0.0)


# 24 = one block; 5 leaves a rest of 4
@pytest.mark.usefixtures("always_worth")
@pytest.mark.parametrize(("block", "order"), [(24, 1), (12, 1), (5, 1), (12, 2)])
@pytest.mark.parametrize("inner", ["carry", "residuals"])
def test_gathered_products_match_lax(block, inner, order):
    def derivative(scan):
        f = lambda W: weights_used(scan, W)
        for _ in range(order):
            f = (lambda f: lambda W: jnp.vdot(jax.grad(f)(W), jnp.cos(W)))(f)
        return jax.jit(jax.grad(f))

    ours = lambda f, x, xs, n: loops.scan(f, x, xs, n, checkpoint=Forced((block,), inner))
    plain = lambda f, x, xs, n: lax.scan(f, x, xs, n)
    np.testing.assert_allclose(derivative(ours)(weight()), derivative(plain)(weight()), rtol=1e-11, atol=1e-11)


def test_products_are_gathered_where_there_is_room_and_it_pays(always_worth, monkeypatch):
    def thin(checkpoint, length=4096):
        step = lambda W: lambda x, _: (x - 0.1 * jnp.tanh(W @ x), None)
        x = jnp.ones((N, COLUMNS))
        return jax.grad(lambda W: jnp.sum(loops.scan(step(W), x, None, length, checkpoint=checkpoint)[0]))

    blocks = Forced((64,), "residuals")
    assert dots(thin(blocks))
    assert not dots(thin("sqrt"))  # no room for the operands of a whole block
    assert not dots(thin(64))  # a number of carries is a number of carries
    monkeypatch.setattr(contractions, "COMPILATION", 0.1)
    assert not dots(thin(blocks, 2048))  # a run saves less than a millisecond


def test_a_budget_bounds_what_is_gathered_too(always_worth):
    step = lambda W, x: x - 0.1 * jnp.tanh(W @ x)
    from quabla_jax.lowering import jax_api as api

    x = jnp.ones((N, COLUMNS))
    g = body_of(api.as_closed(jax.make_jaxpr(lambda W, x: [step(W, x)])(weight(), x)), (1, 1, 0))
    h = g.dual([True, True], [])
    cost = step_cost(h, (False, True, False, True), ())
    choices = [choose(Trips(1024), cost, Budget(budget)) for budget in (8_000, 9_000, 20_000, 100_000)]
    assert any(c.schedule and c.schedule.spare for c in choices)
    for budget, choice in zip((8_000, 9_000, 20_000, 100_000), choices, strict=True):
        assert choice.schedule is None or choice.stored + choice.schedule.spare <= budget
