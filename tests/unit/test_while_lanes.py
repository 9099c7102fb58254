"""while_loop with checkpoint= under vmap: lanes stop on their own, and nothing non-finite passes between them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from while_references import masked as masked_loop
from while_references import ours

from quabla_jax.loops.whiles import while_loop

TOLERANCE = dict(rtol=1e-12, atol=1e-13)
W = jnp.sin(jnp.arange(9.0).reshape(3, 3))
X = jnp.linspace(0.1, 1.2, 12).reshape(4, 3)
masked = masked_loop(13)
LIMITS = jnp.array([0.0, 3.0, 11.0, 7.0])  # trip counts; one lane never runs


def one(loop):
    def f(w, x, limit):
        body = lambda s: (s[0] + 0.1 * jnp.tanh(w @ s[0]), s[1] + 1.0)
        return loop(lambda s: s[1] < limit, body, (x, 0.0 * limit))[0]

    return f


def every(loop):
    return jax.vmap(one(loop), (None, 0, 0))


def total(loop):
    """A function of the matrix that the lanes share."""
    return lambda w: jnp.sum(every(loop)(w, X * (1 + w[0, 0]), LIMITS) ** 2)


def single(loop):
    return lambda w, x, limit: jnp.sum(one(loop)(w, x, limit) ** 2)


TWICE = jnp.stack([LIMITS, LIMITS[::-1]])
MODES = {
    "value": lambda l: every(l)(W, X, LIMITS),
    "jvp": lambda l: jax.jvp(total(l), (W,), (W * 0.3,))[1],
    "grad of vmap": lambda l: jax.grad(total(l))(W),
    "vmap of grad": lambda l: jax.vmap(jax.grad(single(l), (0, 1)), (None, 0, 0))(W, X, LIMITS),
    "grad of grad of vmap": lambda l: jax.grad(lambda w: jnp.sum(jax.grad(total(l))(w) ** 2))(W),
    "grad of vmap of vmap": lambda l: jax.grad(lambda w: jnp.sum(jax.vmap(lambda n: every(l)(w, X, n))(TWICE) ** 2))(W),
    "vmap of grad of vmap": lambda l: jax.vmap(jax.grad(lambda w, n: jnp.sum(every(l)(w, X, n) ** 2)), (None, 0))(
        W, TWICE
    ),
}
SLOW_MODES = {
    "vmap of hessian": lambda l: jax.vmap(jax.hessian(lambda x, n: single(l)(W, x, n)))(X, LIMITS),
    "hessian of vmap": lambda l: jax.hessian(total(l))(W),
    "grad of vmap of grad": lambda l: jax.grad(
        lambda w: jnp.sum(jax.vmap(jax.grad(single(l)), (None, 0, 0))(w, X, LIMITS) ** 2)
    )(W),
    "grad of vmap of grad of vmap": lambda l: jax.grad(
        lambda w: jnp.sum(jax.vmap(jax.grad(lambda w, n: jnp.sum(every(l)(w, X, n) ** 2)), (None, 0))(w, TWICE) ** 2)
    )(W),
    "vmap over the matrix": lambda l: jax.vmap(jax.grad(total(l)))(jnp.stack([W, W * 0.5])),
    "jacrev of vmap": lambda l: jax.jacrev(lambda w: every(l)(w, X, LIMITS))(W),
    "checkpoint": lambda l: jax.grad(jax.checkpoint(total(l)))(W),
    "third order": lambda l: jax.jit(jax.grad(jax.grad(jax.grad(lambda t: total(l)(W * t)))))(1.1),
    "pullbacks made one by one": lambda l: jax.vmap(lambda pull, u: pull(u)[0])(
        lax.map(lambda a: jax.vjp(lambda w: one(l)(w, *a), W)[1], (X, LIMITS)), jnp.ones((4, 3))
    ),
}


def compare(mode):
    run = (MODES | SLOW_MODES)[mode]
    for got, want in zip(jax.tree.leaves(run(ours)), jax.tree.leaves(run(masked)), strict=True):
        np.testing.assert_allclose(got, want, **TOLERANCE)


@pytest.mark.parametrize("mode", MODES)
def test_lanes_agree_with_a_masked_loop(mode):
    compare(mode)


@pytest.mark.slow
@pytest.mark.parametrize("mode", SLOW_MODES)
def test_lanes_agree_with_a_masked_loop_in_longer_chains(mode):
    compare(mode)


def test_stopped_lanes_keep_carry_and_derivatives_bit_for_bit():
    """A lane's results do not change when a neighbour runs longer."""
    run = lambda limits: jax.vmap(lambda x, n: jax.value_and_grad(lambda x: single(ours)(W, x, n))(x))(X, limits)
    short, long = jax.jit(run)(LIMITS), jax.jit(run)(LIMITS.at[2].set(40.0))
    for a, b in zip(short, long):
        np.testing.assert_array_equal(np.delete(np.asarray(a), 2, 0), np.delete(np.asarray(b), 2, 0))


def root(loop, a, x, limit):
    """x <- x - a, down to exactly 0, where the square root in the body has no finite derivative."""
    body = lambda s: (s[0] - a * jnp.sqrt(s[0]) / jnp.sqrt(lax.stop_gradient(s[0])), s[1] + 0.0 + 1.0)
    return loop(lambda s: s[1] < limit, body, (x, 0.0))[0]


def test_no_derivative_of_a_stopped_lane_leaks():
    """Lane 0 stops at the singularity, lane 1 starts there and never runs, lane 2 goes on."""
    x, limits = jnp.array([3.0, 0.0, 9.0]), jnp.array([3.0, 0.0, 6.0])
    f = lambda loop: lambda a, x: jnp.sum(jax.vmap(lambda x, n: root(loop, a, x, n))(x, limits))
    g = lambda loop: jax.grad(f(loop), (0, 1))(1.0, x)

    def alone(a, x):  # each lane for as long as it runs
        out = 0.0
        for i, n in enumerate((3, 0, 6)):
            y = x[i]
            for _ in range(n):
                y = y - a * jnp.sqrt(y) / jnp.sqrt(lax.stop_gradient(y))
            out = out + y
        return out

    got, want = g(ours), jax.grad(alone, (0, 1))(1.0, x)
    assert all(np.isfinite(np.asarray(v)).all() for v in got)
    for a, b in zip(got, want):
        np.testing.assert_allclose(a, b, **TOLERANCE)
    second = lambda f: jax.grad(lambda a: jax.grad(f)(a, x))(1.0)
    np.testing.assert_allclose(second(f(ours)), second(alone), **TOLERANCE)
    hess = jax.vmap(jax.hessian(lambda x, n: root(ours, 1.0, x, n)))(x, limits)
    assert np.isfinite(np.asarray(hess)).all()


def test_equinox_leaks_there():
    """The same program through equinox's checkpointed loop gives NaN; if this fails, say so in the docs."""
    eqxi = pytest.importorskip("equinox.internal", reason="compares with equinox's checkpointed while loop")
    x, limits = jnp.array([3.0, 0.0, 9.0]), jnp.array([3.0, 0.0, 6.0])
    loop = lambda c, b, i: eqxi.while_loop(c, b, i, kind="checkpointed", checkpoints=5, max_steps=None)
    f = lambda a, x: jnp.sum(jax.vmap(lambda x, n: root(loop, a, x, n))(x, limits))
    assert not all(np.isfinite(np.asarray(v)).all() for v in jax.grad(f, (0, 1))(1.0, x))


def test_a_genuinely_infinite_lane_stays_alone():
    """Lane 0's own derivative is infinite (the first step starts at 0); the others' are not touched."""
    x, limits = jnp.array([0.0, 4.0, 9.0]), jnp.array([2.0, 1.0, 3.0])
    step = lambda loop: lambda x, n: loop(lambda s: s[1] < n, lambda s: (jnp.sqrt(s[0]) + 1.0, s[1] + 1.0), (x, 0.0))[0]
    got = jax.vmap(jax.grad(step(ours)))(x, limits)
    assert np.isinf(got[0])
    np.testing.assert_allclose(
        got[1:], [0.25, jax.grad(lambda x: jnp.sqrt(jnp.sqrt(jnp.sqrt(x) + 1) + 1))(9.0)], rtol=1e-12
    )


def test_inner_loops_end_where_a_lane_has_stopped():
    """The inner loop would never end from the carry at which lane 0 stops, nor from lane 2's first carry."""

    def f(x, n):
        halve = lambda y: while_loop(lambda y: (y > 1.0) | (y < 0.0), lambda y: y / 2, y, checkpoint=4)
        body = lambda s: (halve(s[0]) - s[2], s[1] + 1.0, s[2] * 1.5)
        return while_loop(lambda s: s[1] < n, body, (x, 0.0, jnp.float64(0.4)), checkpoint=4)[0]

    x, limits = jnp.array([1.2, 7.0, -1.0]), jnp.array([2.0, 1.0, 0.0])
    value, grad = jax.jit(jax.vmap(jax.value_and_grad(f)))(x, limits)
    np.testing.assert_allclose(value, [0.6 - 0.4 - 0.6, 7 / 8 - 0.4, -1.0], rtol=1e-12)
    np.testing.assert_allclose(grad, [0.5, 1 / 8, 1.0], rtol=1e-12)


def test_what_is_not_mapped_stays_unmapped():
    """A shared matrix, and a carry that no mapped value reaches, have no example axis in the mapped loop."""

    def f(x, w):
        body = lambda s: (s[0] + jnp.tanh(w @ s[0]), w @ s[1], s[2] + 1)
        return while_loop(lambda s: s[2] < 4, body, (x, jnp.ones(3), 0), checkpoint=4)[:2]

    shared = jax.make_jaxpr(jax.vmap(f, (0, None), (0, None)))(X, W)
    (eqn,) = [e for e in shared.eqns if e.primitive.name == "qb_while"]
    shapes = [v.aval.shape for v in eqn.outvars]
    assert (4, 3) in shapes and (3,) in shapes and (4, 3, 3) not in [v.aval.shape for v in eqn.invars]
    lanes = jax.make_jaxpr(jax.vmap(one(ours), (None, 0, 0)))(W, X, LIMITS)
    (eqn,) = [e for e in lanes.eqns if e.primitive.name == "qb_while"]
    assert (3, 3) in [v.aval.shape for v in eqn.invars] and (4, 3, 3) not in [v.aval.shape for v in eqn.invars]
