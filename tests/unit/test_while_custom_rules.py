"""custom_vjp and custom_jvp functions in loop bodies: their rules are used as JAX uses them, at every order and under vmap.

JAX differentiates the program that first order left: the forward and the backward rule, not the function. So a rule that is
not its function's derivative (one that clips, scales, passes straight through) counts at the order that calls it alone.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from quabla_jax import loops

TOLERANCE = dict(rtol=1e-12, atol=1e-14)


def soft(forward, backward):
    f = jax.custom_vjp(forward)
    f.defvjp(lambda x, k: (forward(x, k), (x, k)), backward)
    return f


SINE = soft(lambda x, k: jnp.sin(x) * k, lambda r, u: (u * jnp.cos(r[0]) * r[1], u * jnp.sin(r[0])))
CLIPPED = soft(lambda x, k: jnp.sin(x) * k, lambda r, u: (jnp.clip(3 * u * jnp.cos(r[0]), -0.1, 0.1), 0.0 * r[1]))


SCALED = soft(lambda x, k: jnp.sin(x) * k, lambda r, u: (3 * u * jnp.cos(r[0]) * r[0], 0.2 * u * r[1]))
CUBED = soft(lambda x, k: jnp.sin(x) * k, lambda r, u: (3 * jnp.sin(u) * r[0], 0.2 * u * u * r[1]))
AFFINE = soft(lambda x, k: jnp.sin(x) * k, lambda r, u: (u * r[1] + jnp.sin(r[0]), u * jnp.sin(r[0])))
STRAIGHT = soft(lambda x, k: jnp.round(4 * x) / 4 * k, lambda r, u: (u * r[1], u * jnp.round(4 * r[0]) / 4))


def halved(r, u):
    """A backward rule that runs a while loop, as implicit differentiation does: it has a jvp, but no transpose."""
    go_on = lambda s: jnp.abs(s[1]) > 0.3
    return lax.while_loop(go_on, lambda s: (s[0] + s[1] * jnp.cos(r[0]), s[1] / 2), (u * r[1], u))[0], u * jnp.sin(r[0])


SOLVED = soft(lambda x, k: jnp.sin(x) * k, halved)


@jax.custom_jvp
def scaled(x, k):
    return jnp.sin(x) * k


scaled.defjvp(lambda p, t: (jnp.sin(p[0]) * p[1], 3 * t[0] * jnp.cos(p[0]) * p[1]))


def in_while(h, steps=4):
    return lambda p: loops.while_loop(
        lambda s: s[1] < steps, lambda s: (s[0] + 0.1 * h(s[0] * p, p), s[1] + 1), (p, 0), checkpoint=4
    )[0]


def in_scan(h, steps=4):
    return lambda p: loops.scan(lambda s, _: (s + 0.1 * h(s * p, p), None), p, None, length=steps, checkpoint="sqrt")[0]


def in_jax(h, steps=4):
    return lambda p: lax.scan(lambda s, _: (s + 0.1 * h(s * p, p), None), p, None, length=steps)[0]


Q = jnp.array([1.1, 0.4])
FIRST = {
    "grad": lambda f: jax.grad(f)(1.1),
    "vmap of grad": lambda f: jax.vmap(jax.grad(f))(Q),
    "grad of vmap": lambda f: jax.grad(lambda q: jax.vmap(f)(q).sum())(Q),
}
SECOND = {
    "grad of grad": lambda f: jax.jit(jax.grad(jax.grad(f)))(1.1),
    "vmap of grad of grad": lambda f: jax.jit(jax.vmap(jax.grad(jax.grad(f))))(Q),
}


def nested(h):
    """The function two regions deep: inside jit inside cond."""
    return lambda x, k: lax.cond(x > -9.0, jax.jit(lambda x: h(x, k)), lambda x: x, x)


@pytest.mark.parametrize("loop", [in_while, in_scan])
@pytest.mark.parametrize("h", [SINE, CLIPPED, scaled, nested(CLIPPED)], ids=["sine", "clipped", "custom_jvp", "nested"])
def test_first_order_uses_the_rule(loop, h):
    for run in FIRST.values():
        np.testing.assert_allclose(run(loop(h)), run(in_jax(h)), **TOLERANCE)


RULES = dict(
    sine=SINE, scaled=SCALED, clipped=CLIPPED, cubed=CUBED, affine=AFFINE, straight=STRAIGHT, custom_jvp=scaled
)
along = lambda f: lambda p: jax.jvp(f, (p,), (1.0,))[1]
g = jax.grad
HIGHER = {
    "grad of grad": lambda f: jax.jit(g(g(f)))(1.1),
    "jvp of grad": lambda f: jax.jit(along(g(f)))(1.1),
    "grad of value and grad": lambda f: g(lambda p: sum(jax.value_and_grad(f)(p)))(1.1),
}
SLOW_HIGHER = SECOND | {
    "jvp of value and grad": lambda f: jax.jvp(jax.value_and_grad(f), (1.1,), (1.0,))[1][0],
    "hessian": lambda f: jax.hessian(f)(1.1),
    "vmap of hessian": lambda f: jax.jit(jax.vmap(jax.hessian(f)))(Q),
    "grad of grad of checkpoint": lambda f: g(g(jax.checkpoint(f)))(1.1),
    "grad of vmap of grad": lambda f: g(lambda q: jnp.sum(jax.vmap(g(f))(q)))(Q),
    "jvp of grad of vmap": lambda f: along(lambda t: g(lambda q: jnp.sum(jax.vmap(f)(q)))(Q * t))(1.0),
    "third": lambda f: jax.jit(g(g(g(f))))(1.1),
    "jvp of grad of grad": lambda f: along(g(g(f)))(1.1),
    "grad of jvp of grad": lambda f: g(along(g(f)))(1.1),
}


@pytest.mark.parametrize("loop", [in_while, in_scan])
@pytest.mark.parametrize("mode", HIGHER)
@pytest.mark.parametrize("rule", ["sine", "scaled", "clipped", "affine", "custom_jvp"])
def test_higher_orders_use_the_rule_as_jax_does(loop, mode, rule):
    h = RULES[rule]
    np.testing.assert_allclose(HIGHER[mode](loop(h)), HIGHER[mode](in_jax(h)), **TOLERANCE)


@pytest.mark.slow
@pytest.mark.parametrize("loop", [in_while, in_scan])
@pytest.mark.parametrize("mode", HIGHER | SLOW_HIGHER)
@pytest.mark.parametrize("rule", RULES)
def test_every_rule_at_every_order(loop, mode, rule):
    run, h = (HIGHER | SLOW_HIGHER)[mode], nested(RULES[rule])
    np.testing.assert_allclose(run(loop(h)), run(in_jax(h)), **TOLERANCE)


@pytest.mark.parametrize("loop", [in_while, in_scan])
def test_a_rule_that_runs_a_while_loop(loop):
    """JAX has its first order and forward over it; its reverse over reverse meets the while loop and is refused."""
    for mode in (lambda f: g(f)(1.1), lambda f: along(g(f))(1.1)):
        np.testing.assert_allclose(mode(loop(SOLVED)), mode(in_jax(SOLVED)), **TOLERANCE)


def test_rules_that_are_not_linear_under_lanes():
    """Each example stops on its own: reverse over reverse and forward over reverse, against each example alone."""

    def until(p, w):
        body = lambda s: (s[0] + 0.3 + 0.1 * jnp.sum(CLIPPED(s[0] * w, p)), s[1] * 1.0)
        return loops.while_loop(lambda s: s[0] < 2.0 + s[1], body, (p, 0.3 * p), checkpoint=4)[0]

    q, w = jnp.array([1.1, 0.4, 9.0]), jnp.array([0.7, 1.3])
    for mode in (lambda p, w: g(g(until))(p, w), lambda p, w: along(lambda w0: g(until, 1)(p, w * w0))(1.0)):
        got = jax.jit(jax.vmap(mode, (0, None)))(q, w)
        np.testing.assert_allclose(got, np.stack([mode(v, w) for v in q]), **TOLERANCE)
    shared = g(lambda w: jnp.sum(jax.vmap(g(until), (0, None))(q, w)))(w)
    alone = sum(g(lambda w: g(until)(v, w))(w) for v in q)
    np.testing.assert_allclose(shared, alone, **TOLERANCE)


def test_memory_of_a_loop_with_a_clipped_rule_does_not_grow():
    """Forward over reverse through a while loop keeps to its pool."""

    def f(x, n):
        return loops.while_loop(
            lambda s: s[1] < n, lambda s: (s[0] + 0.1 * CLIPPED(s[0], 1.0), s[1] + 1), (x, 0), checkpoint=8
        )[0].sum()

    x = jnp.ones(1000)
    run = jax.jit(lambda x, n: jax.jvp(lambda x: g(f)(x, n), (x,), (x,))[1])
    assert run.lower(x, 9).compile().memory_analysis().temp_size_in_bytes < 50 * x.nbytes
    np.testing.assert_allclose(run(x, 5), run(x, 5)[0] * np.ones(1000), rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("loop", [in_while, in_scan])
def test_third_order_and_lanes(loop):
    third = lambda f: jax.jit(jax.grad(jax.grad(jax.grad(f))))(1.1)
    np.testing.assert_allclose(third(loop(nested(SINE))), third(in_jax(nested(SINE))), **TOLERANCE)
    until = lambda p: loops.while_loop(
        lambda s: s[0] < 2.0, lambda s: (s[0] + 0.3 + 0.1 * SINE(s[0] * p, p),), (p,), checkpoint=4
    )[0]
    alone = np.stack([jax.grad(jax.grad(until))(q) for q in Q])
    np.testing.assert_allclose(jax.vmap(jax.grad(jax.grad(until)))(Q), alone, **TOLERANCE)


def test_forward_mode_is_refused_as_in_jax():
    for f in (in_while(SINE), in_jax(SINE)):
        with pytest.raises(TypeError, match="can't apply forward-mode"):
            jax.jvp(f, (1.1,), (1.0,))
