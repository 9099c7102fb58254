"""Elementwise functions whose derivatives at kinks, ties and zero are Quabla's and not JAX's.

Each rule is written in terms of functions of this file, so that it holds at every order and in both modes.
"""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

__all__ = [
    "absolute",
    "arccosh",
    "arctan2",
    "extreme",
    "hypotenuse",
    "larger",
    "power_of",
    "power_to",
    "power",
    "root",
    "smaller",
]


@jax.custom_jvp
def absolute(x):
    """|x| with slope -1 at both zeros and at NaN."""
    return jnp.abs(x)


@absolute.defjvp
def _absolute_jvp(primals, tangents):
    (x,), (t,) = primals, tangents
    return absolute(x), jnp.where(x > 0, t, -t)


@jax.custom_jvp
def root(x):
    """sqrt with slope 0, of every order, at zero."""
    return jnp.sqrt(x)


@root.defjvp
def _root_jvp(primals, tangents):
    (x,), (t,) = primals, tangents
    zero = x == 0
    slope = jnp.where(zero, 0, 0.5 / root(jnp.where(zero, 1, x)))
    return root(x), t * slope


@jax.custom_jvp
def larger(a, b):
    """The larger of two; NaN spreads; the tangent is that of the second operand unless a > b or a is NaN."""
    return jnp.maximum(a, b)


@larger.defjvp
def _larger_jvp(primals, tangents):
    (a, b), (ta, tb) = primals, tangents
    return larger(a, b), jnp.where((a > b) | jnp.isnan(a), ta, tb)


@jax.custom_jvp
def smaller(a, b):
    """The smaller of two; NaN spreads; the tangent is that of the second operand unless a < b or a is NaN."""
    return jnp.minimum(a, b)


@smaller.defjvp
def _smaller_jvp(primals, tangents):
    (a, b), (ta, tb) = primals, tangents
    return smaller(a, b), jnp.where((a < b) | jnp.isnan(a), ta, tb)


@functools.partial(jax.custom_jvp, nondiff_argnums=(1, 2))
def extreme(x, axes: tuple[int, ...], largest: bool):
    """The largest or smallest entry over `axes`, kept with extent 1; ties share the slope, NaN has slope NaN."""
    return (jnp.max if largest else jnp.min)(x, axis=axes, keepdims=True)


@extreme.defjvp
def _extreme_jvp(axes, largest, primals, tangents):
    (x,), (t,) = primals, tangents
    peak = extreme(x, axes, largest)
    # Piecewise constant, so that second derivatives are zero.
    fixed = lax.stop_gradient(peak)
    share = (lax.stop_gradient(x) == fixed).astype(x.dtype)
    share = share / jnp.sum(share, axis=axes, keepdims=True)
    return peak, jnp.sum(t * jnp.where(jnp.isnan(fixed), jnp.nan, share), axis=axes, keepdims=True)


def _base_slope(x, y):
    """d(x**y)/dx: y x**(y-1), and zero at x = 0 for y < 1, where that is infinite."""
    vanishes = (x == 0) & (y < 1)
    return jnp.where(vanishes, 0, y * power(jnp.where(vanishes, 1, x), jnp.where(vanishes, 1, y) - 1))


def _exponent_slope(x, y):
    """d(x**y)/dy: x**y log x, and zero where x <= 0."""
    positive = x > 0
    safe = jnp.where(positive, x, 1)
    slope = jnp.where(positive, power(safe, y) * jnp.log(safe), 0)
    return jnp.where(jnp.isnan(x), x, slope)


@jax.custom_jvp
def power(x, y):
    """x**y of two arrays."""
    return lax.pow(*jnp.broadcast_arrays(x, y))


@power.defjvp
def _power_jvp(primals, tangents):
    (x, y), (tx, ty) = primals, tangents
    return power(x, y), tx * _base_slope(x, y) + ty * _exponent_slope(x, y)


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def power_to(x, exponent: float):
    """x**exponent for a Python number: no derivative in the exponent is formed."""
    return lax.pow(x, jnp.asarray(exponent, x.dtype))


@power_to.defjvp
def _power_to_jvp(exponent, primals, tangents):
    (x,), (t,) = primals, tangents
    if exponent >= 1:
        slope = exponent * power_to(x, exponent - 1)
    else:
        zero = x == 0
        slope = jnp.where(
            zero, exponent if math.isnan(exponent) else 0, exponent * power_to(jnp.where(zero, 1, x), exponent - 1)
        )
    return power_to(x, exponent), t * slope


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def power_of(base: float, y):
    """base**y for a Python number."""
    return lax.pow(jnp.asarray(base, y.dtype) + jnp.zeros_like(y), y)


@power_of.defjvp
def _power_of_jvp(base, primals, tangents):
    (y,), (t,) = primals, tangents
    value = power_of(base, y)
    return value, t * (jnp.zeros_like(y) if base <= 0 else value * math.log(base))


@jax.custom_jvp
def arctan2(y, x):
    """The angle of (x, y), with gradient zero at the origin and at infinity."""
    return jnp.arctan2(y, x)


@arctan2.defjvp
def _arctan2_jvp(primals, tangents):
    (y, x), (ty, tx) = primals, tangents
    # Scaled by the larger magnitude, so that the squares neither overflow nor vanish.
    scale = lax.stop_gradient(jnp.maximum(jnp.abs(x), jnp.abs(y)))
    degenerate = (scale == 0) | jnp.isinf(scale)
    scale = jnp.where(degenerate, 1, scale)
    u, v = jnp.where(degenerate, 1, x / scale), jnp.where(degenerate, 0, y / scale)
    tangent = (u * ty - v * tx) / (scale * (u * u + v * v))
    return arctan2(y, x), jnp.where(degenerate, 0, tangent)


@jax.custom_jvp
def arccosh(x):
    """The inverse of cosh; the slope is NaN wherever the value is."""
    return jnp.arccosh(x)


@arccosh.defjvp
def _arccosh_jvp(primals, tangents):
    (x,), (t,) = primals, tangents
    return arccosh(x), t / (jnp.sqrt(x - 1) * jnp.sqrt(x + 1))


def divisor(peak):
    """What to divide numbers of magnitude up to `peak` by, so that their squares neither overflow nor vanish; 1 for an
    infinite or zero peak. The compiler multiplies by the reciprocal, which must not be subnormal: XLA makes it zero."""
    bound = 1.0 / float(np.finfo(peak.dtype).tiny) / 8
    return jnp.where((peak > 0) & jnp.isfinite(peak), jnp.clip(peak, 1.0 / bound, bound), 1)


def hypotenuse(a, b):
    """sqrt(a**2 + b**2) without overflow; gradient zero at the origin; an infinite operand wins over NaN."""
    size_a, size_b = absolute(a), absolute(b)
    peak = lax.stop_gradient(larger(size_a, size_b))
    scale = jnp.where(jnp.isinf(peak), peak, divisor(peak))  # a gradient at infinity is NaN where Quabla's is
    u, v = a / scale, b / scale
    finite = scale * root(u * u + v * v)
    infinite_a = jnp.isinf(a)
    return jnp.where(infinite_a | jnp.isinf(b), jnp.where(infinite_a, size_a, size_b), finite)
