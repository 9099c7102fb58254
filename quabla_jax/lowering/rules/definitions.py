"""Primitives that JAX hands to a library or to XLA, defined over jax.numpy and traced."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from ..emitter import Emitter
from ..program import Value
from . import Inline, register
from .series import (
    BESSEL_I0E_LARGE,
    BESSEL_I0E_SMALL,
    BESSEL_I1E_LARGE,
    BESSEL_I1E_SMALL,
    EULER_MACLAURIN,
    chebyshev,
)


def geqrf(a):
    """Householder QR in LAPACK's packing: R above the diagonal, the reflectors' tails below it, and their factors."""
    *batch, m, n = a.shape
    k = min(m, n)
    rows, columns = jnp.arange(m), jnp.arange(n)

    def reflect(i, state):
        a, taus = state
        column = lax.dynamic_index_in_dim(a, i, axis=-1, keepdims=False)
        alpha = jnp.sum(jnp.where(rows == i, column, 0), -1)
        tail = jnp.where(rows > i, column, 0)
        scale = jnp.max(jnp.abs(column * (rows >= i)), -1)
        safe = jnp.where(scale == 0, 1, scale)
        norm = safe * jnp.sqrt(jnp.sum(jnp.square(jnp.abs(jnp.where(rows >= i, column, 0) / safe[..., None])), -1))
        trivial = jnp.all(tail == 0, -1) & (jnp.imag(alpha) == 0)
        beta = jnp.where(jnp.real(alpha) >= 0, -norm, norm)
        divisor = jnp.where(trivial, 1, alpha - beta)
        tau = jnp.where(trivial, 0, (beta - alpha) / jnp.where(trivial, 1, beta)).astype(a.dtype)
        v = jnp.where(rows == i, 1, tail / divisor[..., None]).astype(a.dtype)
        projected = jnp.einsum("...m,...mn->...n", jnp.conj(v), a)
        change = jnp.conj(tau)[..., None, None] * v[..., :, None] * projected[..., None, :]
        a = jnp.where(columns > i, a - change, a)
        pivot = jnp.where(trivial, alpha, beta.astype(a.dtype))[..., None]
        packed = jnp.where(rows < i, column, jnp.where(rows == i, pivot, v))
        a = jnp.where(columns == i, packed[..., None], a)
        taus = jnp.where(jnp.arange(k) == i, tau[..., None], taus)
        return a, taus

    return lax.fori_loop(0, k, reflect, (a, jnp.zeros((*batch, k), a.dtype)))


def householder_product(a, taus):
    """The first columns of H_1 H_2 ... H_k, each H = I - tau v v^H with v below a's diagonal."""
    *_, m, n = a.shape
    k = taus.shape[-1]
    rows = jnp.arange(m)
    start = jnp.broadcast_to(jnp.eye(m, n, dtype=a.dtype), a.shape)

    def apply(step, q):
        i = k - 1 - step
        column = lax.dynamic_index_in_dim(a, i, axis=-1, keepdims=False)
        v = jnp.where(rows == i, 1, jnp.where(rows > i, column, 0)).astype(a.dtype)
        tau = lax.dynamic_index_in_dim(taus, i, axis=-1, keepdims=False)
        projected = jnp.einsum("...m,...mn->...n", jnp.conj(v), q)
        return q - tau[..., None, None] * v[..., :, None] * projected[..., None, :]

    return lax.fori_loop(0, k, apply, start)


def _bessel(x, small, large, power):
    """(value near 0 but for its factor, value far out, where): series on [0, 8] and [8, inf] of flat multiples."""
    size = jnp.abs(x)
    far = size > 8
    inner = jnp.where(far, 8, size)
    scale = 1 + 0.6 * inner
    near_value = chebyshev(inner / 4 - 1, small, x.dtype) / (scale * scale if power == 2 else scale)
    outer = jnp.where(far, size, 8)
    far_value = chebyshev(16 / outer - 1, large, x.dtype) / jnp.sqrt(outer)
    return near_value, far_value, far


def _bessel_i0e(x):
    """exp(-|x|) I0(x)"""
    near, far_value, far = _bessel(x, BESSEL_I0E_SMALL, BESSEL_I0E_LARGE, 1)
    return jnp.where(jnp.isnan(x), x, jnp.where(far, far_value, near))


def _bessel_i1e(x):
    """exp(-|x|) I1(x), odd"""
    near, far_value, far = _bessel(x, BESSEL_I1E_SMALL, BESSEL_I1E_LARGE, 2)
    return jnp.where(
        jnp.isnan(x), x, jnp.where(far, jnp.where(x < 0, -far_value, far_value), jnp.where(far, 0, x) * near)
    )


def _zeta(x, q):
    """Hurwitz zeta for x > 1 by Euler-Maclaurin summation after ten terms (DLMF 25.11.28).

    As XLA has it: at q < 0 the terms are real where x is an integer, and summed in the same way; at q = 0, -1, ... the sum is inf
    for even x, those below 1 too, and NaN for others; it is NaN at x = inf.
    """
    terms = 10
    pole = (q <= 0) & (q == jnp.floor(q))
    defined = (q > 0) | ((x == jnp.floor(x)) & ~pole)
    safe = jnp.where(defined, q, 1)
    total = jnp.zeros_like(x)
    for n in range(terms):
        total += (safe + n) ** -x
    a = safe + terms
    power = a**-x
    total += power * a / (x - 1) + power / 2
    factor = x / a
    for n, coefficient in enumerate(EULER_MACLAURIN):
        total += coefficient * power * factor
        k = 2 * n + 1
        factor = factor * (x + k) / a * (x + k + 1) / a
    total = jnp.where(defined & (x >= 1), total, jnp.nan)
    total = jnp.where(pole & (jnp.abs(x) < jnp.inf) & (x == 2 * jnp.floor(x / 2)), jnp.inf, total)
    total = jnp.where(jnp.isnan(x) | jnp.isnan(q), jnp.nan, total)
    return jnp.where(x == 1, jnp.inf, total).astype(x.dtype)


def _polygamma(m, x):
    """(-1)^(m+1) m! zeta(m+1, x); order 0 is digamma."""
    sign = jnp.where(jnp.floor(m / 2) * 2 == m, -1.0, 1.0)
    value = sign * jnp.exp(lax.lgamma(m + 1)) * lax.zeta(m + 1, x)
    value = jnp.where(m == 0, lax.digamma(x), value)
    return jnp.where((m < 0) | (m != jnp.floor(m)), jnp.nan, value).astype(x.dtype)


def _defined(fun):
    def rule(e: Emitter, eqn, *inputs: Value):
        from ..interpreter import expansion

        return Inline(expansion(eqn, lambda_of(fun)), inputs)

    return rule


_wrapped: dict = {}


def lambda_of(fun):
    """fun without the equation's parameters, one object a function so that expansions are kept."""
    return _wrapped.setdefault(fun, lambda *xs, **_: fun(*xs))


def _in_single(fun):
    """fun on float16 and bfloat16 by way of float32, as XLA evaluates special functions."""

    def widened(*xs):
        if xs[0].dtype.itemsize > 2:
            return fun(*xs)
        return fun(*(x.astype(jnp.float32) for x in xs)).astype(xs[0].dtype)

    return widened


register("geqrf_p", "expanded", _defined(geqrf))
register("householder_product_p", "expanded", _defined(householder_product))
register("bessel_i0e_p", "expanded", _defined(_in_single(_bessel_i0e)))
register("bessel_i1e_p", "expanded", _defined(_in_single(_bessel_i1e)))
register("zeta_p", "expanded", _defined(_in_single(_zeta)))
register("polygamma_p", "expanded", _defined(_in_single(_polygamma)))
