"""custom_vjp and custom_jvp functions in loop bodies: their rules are used, at every reverse order and under vmap."""

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


@pytest.mark.parametrize("loop", [in_while, in_scan])
@pytest.mark.parametrize("mode", SECOND)
def test_second_order(loop, mode):
    np.testing.assert_allclose(SECOND[mode](loop(SINE)), SECOND[mode](in_jax(SINE)), **TOLERANCE)


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
