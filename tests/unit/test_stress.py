"""Numerical stress: gradients at extreme scales, chaotic loops, overflow in lanes that have ended, cancellation.

Oracles: mpmath for trajectories and their derivatives, plain jax.lax for what ours may at most be worse than.
"""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from quabla_jax.compat import lax

STEPS = 60
LOOPS = {
    "counted sqrt": lambda step, x, n=STEPS: lax.fori_loop(0, n, lambda i, c: step(c), x, checkpoint="sqrt"),
    "counted 3 slots": lambda step, x, n=STEPS: lax.fori_loop(0, n, lambda i, c: step(c), x, checkpoint=3),
    "while": lambda step, x, n=STEPS: lax.while_loop(
        lambda s: s[0] < n, lambda s: (s[0] + 1, step(s[1])), (0, x), checkpoint="auto"
    )[1],
}
PLAIN = lambda step, x, n=STEPS: jax.lax.fori_loop(0, n, lambda i, c: step(c), x)
over_loops = pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS)


@over_loops
@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_gradients_at_extreme_scales(loop, scale):
    """A loop that is homogeneous of degree one: its derivative does not see the scale, nor does ours."""
    step = lambda c: 0.9 * c + 0.05 * jnp.sqrt(c**2 + jnp.roll(c, 1) ** 2)
    x = np.linspace(0.5, 2.0, 5)
    got = jax.grad(lambda x: loop(step, x).sum())(jnp.asarray(x * scale))
    np.testing.assert_allclose(got, jax.grad(lambda x: PLAIN(step, x).sum())(jnp.asarray(x)), rtol=1e-12)


@over_loops
@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_derivatives_that_are_themselves_extreme(loop, scale):
    """d/dx of (a x) n times is a^n: 1e±270 in float64, and exactly what plain JAX gives."""
    a = scale ** (9 / STEPS)
    got = jax.grad(lambda x: loop(lambda c: a * c, x))(1.5)
    np.testing.assert_allclose(got, float(mpmath.mpf(a) ** STEPS), rtol=1e-13)


@over_loops
def test_subnormal_values_and_cotangents(loop):
    """XLA on the CPU flushes nothing here that plain JAX keeps."""
    tiny = 5e-324
    x = jnp.asarray([tiny, 7 * tiny, 1e-310, 2.5e-308])
    for step in (lambda c: c * 1.0, lambda c: c * 0.75, lambda c: c + tiny):
        value, slope = jax.value_and_grad(lambda x: (loop(step, x) * 3.0).sum())(x)
        want, want_slope = jax.value_and_grad(lambda x: (PLAIN(step, x) * 3.0).sum())(x)
        np.testing.assert_array_equal([value, *slope], [want, *want_slope])
        cotangent = jax.vjp(lambda x: loop(step, x), x)[1](jnp.full(4, 1e-305))[0]
        np.testing.assert_array_equal(cotangent, jax.vjp(lambda x: PLAIN(step, x), x)[1](jnp.full(4, 1e-305))[0])


def exact_logistic(x, r, n):
    """(trajectory's end, its derivative in x) in 400 digits."""
    with mpmath.workdps(400):
        x, slope, r = mpmath.mpf(x), mpmath.mpf(1), mpmath.mpf(r)
        for _ in range(n):
            x, slope = r * x * (1 - x), slope * r * (1 - 2 * x)
        return x, slope


@over_loops
@pytest.mark.parametrize("n", [20, 40])
def test_a_chaotic_loop_against_a_wide_trajectory(loop, n):
    """The logistic map loses a bit a step: as near to 400 digits as its condition allows, and no farther than plain JAX."""
    r, x = 3.99, 0.3
    step = lambda c: r * c * (1 - c)
    want, want_slope = exact_logistic(x, r, n)
    value, slope = jax.value_and_grad(lambda x: loop(step, x, n))(x)
    plain, plain_slope = jax.value_and_grad(lambda x: PLAIN(step, x, n))(x)
    condition = float(abs(want_slope)) * 2.0**-52 * n
    assert abs(float(value) - float(want)) <= 4 * condition
    np.testing.assert_array_equal(value, plain)
    ours, theirs = (abs(float((mpmath.mpf(float(s)) - want_slope) / want_slope)) for s in (slope, plain_slope))
    assert ours <= max(2 * theirs, 1e-13), (ours, theirs)


@over_loops
def test_the_gradient_of_a_chaotic_loop_is_that_of_the_trajectory_it_computed(loop):
    """Far beyond predictability: the product of the slopes along the float64 trajectory, taken in 60 digits."""
    r, x, n = 3.99, 0.3, 300
    with mpmath.workdps(60):
        c, product = np.float64(x), mpmath.mpf(1)
        for _ in range(n):
            product *= mpmath.mpf(r) * (1 - 2 * mpmath.mpf(float(c)))
            c = r * c * (1 - c)
    value, slope = jax.value_and_grad(lambda x: loop(lambda c: r * c * (1 - c), x, n))(x)
    assert float(value) == float(PLAIN(lambda c: r * c * (1 - c), x, n))
    if float(value) == float(c):  # XLA may round r * c * (1 - c) otherwise; then the trajectories part
        np.testing.assert_allclose(float(slope), float(product), rtol=1e-10)
    np.testing.assert_allclose(slope, jax.grad(lambda x: PLAIN(lambda c: r * c * (1 - c), x, n))(x), rtol=1e-10)


def test_lanes_that_have_ended_may_overflow():
    """A lane that ends early would square itself to inf if it went on; its cotangent stays what it is alone."""
    count = jnp.asarray([2, 3, 12, 5])
    x = jnp.asarray([1e3, 50.0, 1.0001, 3.0])

    def one(n, x):
        return lax.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, s[1] ** 2), (0, x), checkpoint="auto")[1]

    value, slope = jax.vmap(jax.value_and_grad(one, argnums=1))(count, x)
    np.testing.assert_allclose(value, [float(v) ** 2 ** int(n) for n, v in zip(count, x)], rtol=1e-11)
    np.testing.assert_allclose(
        slope, [2.0 ** int(n) * float(v) ** (2 ** int(n) - 1) for n, v in zip(count, x)], rtol=1e-11
    )
    assert np.isinf(jax.lax.fori_loop(0, 12, lambda i, c: c**2, x)[0])


def test_lanes_of_a_counted_loop_may_overflow():
    """Trip counts that differ by lane, and a lane that is inf itself: the others' cotangents do not see it."""
    count = jnp.asarray([2, 12, 5])
    x = jnp.asarray([1e3, 1e3, 3.0])
    f = lambda n, x: lax.fori_loop(0, n, lambda i, c: c**2, x, checkpoint=8)
    value, slope = jax.vmap(jax.value_and_grad(f, argnums=1))(count, x)
    np.testing.assert_allclose(value, [1e12, np.inf, 3.0**32], rtol=1e-11)
    np.testing.assert_allclose(slope[jnp.asarray([0, 2])], [4 * 1e9, 32 * 3.0**31], rtol=1e-11)
    assert not np.isfinite(slope[1])


def exact_sum(xs):
    """The sum, in 60 digits: the derivative in w of the loop that adds w * x."""
    with mpmath.workdps(60):
        return sum((mpmath.mpf(float(x)) for x in xs), mpmath.mpf(0))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", ["counted", "while"])
def test_cancellation_in_the_accumulation_of_cotangents(kind, seed):
    """A weight's cotangent is a sum of terms 1e12 times its value: ours errs at most twice as much as plain JAX's."""
    rng = np.random.default_rng(seed)
    half = rng.normal(size=150) * 10.0 ** rng.integers(0, 13, 150)
    xs = np.concatenate([half, -half + rng.normal(size=150)])
    xs = jnp.asarray(xs[rng.permutation(300)])
    body = lambda i, c, w: c + w * xs[i]
    if kind == "counted":
        ours = lambda w: lax.fori_loop(0, 300, lambda i, c: body(i, c, w), 0.0, checkpoint="sqrt")
    else:
        ours = lambda w: lax.while_loop(
            lambda s: s[0] < 300, lambda s: (s[0] + 1, body(s[0], s[1], w)), (0, 0.0), checkpoint="auto"
        )[1]
    plain = lambda w: jax.lax.fori_loop(0, 300, lambda i, c: body(i, c, w), 0.0)
    exact = exact_sum(xs)
    error, allowed = (abs(float(mpmath.mpf(float(jax.grad(f)(1.0))) - exact)) for f in (ours, plain))
    assert error <= 2 * allowed + 1e-12 * float(abs(exact)), (error, allowed)
