"""Core ops that a target may lack, written over jax.numpy with ops that it has, and traced.

Half precisions are computed in float32 and rounded once.
"""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .. import jax_api
from ..emitter import COMPOSITIONS, Emitter
from ..program import Value
from . import series
from .definitions import geqrf, householder_product

_HALVES = ("float16", "bfloat16")


def _compose(name: str, fun, *, widen: bool = False) -> None:
    def emit(e: Emitter, *inputs: Value, **params):
        from ..interpreter import run_jaxpr

        half = widen and inputs[0].dtype.name in _HALVES
        values = [e.cast(v, np.float32) for v in inputs] if half else list(inputs)
        closed = _trace(
            jax_api.expansion_settings(), fun, tuple((v.shape, v.dtype) for v in values), tuple(params.items())
        )
        out = run_jaxpr(e, *jax_api.open_jaxpr(closed), values)
        return tuple(e.cast(v, inputs[0].dtype) if half else v for v in out)

    assert name not in COMPOSITIONS, name
    COMPOSITIONS[name] = emit


@functools.lru_cache(maxsize=4096)
def _trace(settings, fun, specs, params):
    from ..trace import retrace

    return retrace(lambda *xs: fun(*xs, **dict(params)), [jax.ShapeDtypeStruct(s, d) for s, d in specs])


def _unsigned(x):
    return lax.bitcast_convert_type(x, jnp.dtype(f"u{x.dtype.itemsize}"))


def population_count(x):
    """Bits summed in pairs, nibbles, bytes, and the bytes by a multiplication."""
    u = _unsigned(x)
    width = 8 * u.dtype.itemsize
    kind, ones = u.dtype.type, (1 << width) - 1
    u = u - ((u >> kind(1)) & kind(0x5555555555555555 & ones))
    u = (u & kind(0x3333333333333333 & ones)) + ((u >> kind(2)) & kind(0x3333333333333333 & ones))
    u = (u + (u >> kind(4))) & kind(0x0F0F0F0F0F0F0F0F & ones)
    if width > 8:
        u = (u * kind(0x0101010101010101 & ones)) >> kind(width - 8)
    return u.astype(x.dtype)


def clz(x):
    """The leading one smeared to the right; what is not covered are the leading zeros."""
    u = _unsigned(x)
    width, step = 8 * u.dtype.itemsize, 1
    while step < width:
        u = u | (u >> u.dtype.type(step))
        step *= 2
    return (width - population_count(u).astype(jnp.int32)).astype(x.dtype)


def nextafter(x, y):
    """One step of the bits taken as a sign and a magnitude."""
    bits = lax.bitcast_convert_type(x, jnp.dtype(f"i{x.dtype.itemsize}"))
    toward = lax.bitcast_convert_type(y, bits.dtype)
    sign = np.iinfo(bits.dtype).min
    one = bits.dtype.type(1)
    grow = (x < y) == (bits >= 0)
    stepped = jnp.where(grow, bits + one, bits - one)
    stepped = jnp.where(x == 0, (toward & bits.dtype.type(sign)) | one, stepped)
    stepped = jnp.where(x == y, toward, stepped)
    out = lax.bitcast_convert_type(stepped, x.dtype)
    return jnp.where(jnp.isnan(x) | jnp.isnan(y), jnp.asarray(np.nan, x.dtype), out)


def cbrt(x):
    """exp(log|x| / 3) and two Newton steps."""
    size = jnp.abs(x)
    usual = (size > 0) & (size < jnp.inf)
    safe = jnp.where(usual, size, 1)
    root = jnp.exp(jnp.log(safe) / 3)
    for _ in range(2):
        root = root - (root - safe / (root * root)) / 3
    return jnp.where(usual, jnp.where(x < 0, -root, root), x)


def logistic(x):
    if jnp.iscomplexobj(x):
        return 1 / (1 + jnp.exp(-x))
    decay = jnp.exp(-jnp.abs(x))
    return jnp.where(x < 0, decay, 1) / (1 + decay)


def expm1(x):
    """(u - 1) x / log(u) with u = exp(x): the errors of u cancel (Kahan)."""
    u = jnp.exp(x)
    inner = jnp.where((u == 1) | (u - 1 == -1) | jnp.isinf(u), 2, u)
    return jnp.where(u == 1, x, jnp.where((u - 1 == -1) | jnp.isinf(u), u - 1, (inner - 1) * (x / jnp.log(inner))))


def log1p(x):
    """x log(u) / (u - 1) with u = 1 + x, as expm1."""
    u = 1 + x
    inner = jnp.where((u == 1) | jnp.isinf(u), 2, u)
    return jnp.where(u == 1, x, jnp.where(jnp.isinf(u), jnp.log(u), jnp.log(inner) * (x / (inner - 1))))


def _near(x):
    square = x * x
    return x * series.chebyshev(2 * square - 1, series.ERF_NEAR, x.dtype)


def _far(x):
    """erfc for x >= 1/2; x**2 in two parts, so that exp sees no rounded square."""
    low = -5 / 7
    t = ((x - 3) / (x + 3) - low) * (2 / (1 - low)) - 1
    factor = series.chebyshev(t, series.ERFC_FAR, x.dtype) / (1 + 2 * x)
    splitter = x * (2.0 ** (math.ceil((np.finfo(x.dtype).nmant + 1) / 2)) + 1)
    short = splitter - (splitter - x)
    return jnp.exp(-short * short) * jnp.exp((short - x) * (short + x)) * factor


def erf(x):
    size = jnp.minimum(jnp.abs(x), 7)
    near = size <= 1
    far = 1 - _far(jnp.where(near, 1, size))
    value = jnp.where(near, _near(jnp.where(near, x, 0)), jnp.where(x < 0, -far, far))
    return jnp.where(jnp.isnan(x), x, value)


def erfc(x):
    size = jnp.minimum(jnp.abs(x), 28)
    near = size < 0.5
    far = _far(jnp.where(near, 0.5, size))
    value = jnp.where(near, 1 - _near(jnp.where(near, x, 0)), jnp.where(x < 0, 2 - far, far))
    return jnp.where(jnp.isnan(x), x, value)


def erf_inv(x):
    """Winitzki's closed form, then Halley steps on erf, or on erfc towards the ends where erf saturates."""
    size = jnp.abs(x)
    inside = size < 1
    safe = jnp.where(inside, size, 0.5)
    log = jnp.log1p(-safe * safe)
    a = 0.147
    half = 2 / (math.pi * a) + log / 2
    y = jnp.sqrt(-log / a / (jnp.sqrt(half * half - log / a) + half))
    for _ in range(2 if x.dtype == jnp.float32 else 3):
        error = jnp.where(safe < 0.5, lax.erf(y) - safe, (1 - safe) - lax.erfc(y))
        step = error * jnp.exp(y * y) * (math.sqrt(math.pi) / 2)
        y = y - step / (1 + y * step)
    tiny = size < float(np.finfo(x.dtype).eps)
    y = jnp.where(tiny, size * (math.sqrt(math.pi) / 2), y)
    edge = jnp.where(size == 1, jnp.inf, jnp.nan)
    value = jnp.where(inside, y, edge).astype(x.dtype)
    return jnp.where(x < 0, -value, jnp.where(x == 0, x, value))


def _sin_pi(r):
    """sin(pi r) for |r| <= 1/2"""
    return jnp.sin(math.pi * r)


def lgamma(x):
    """Around the zeros 1 and 2 a series with the zeros factored out; Stirling from 10 on; reflection below 0."""
    negative = x < 0
    z = jnp.where(negative, 1 - x, x)
    value = _lgamma_positive(z)
    r = x - jnp.round(x)
    reflected = math.log(math.pi) - jnp.log(jnp.abs(_sin_pi(r))) - value
    reflected = jnp.where(jnp.abs(x) < float(np.finfo(x.dtype).eps), -jnp.log(jnp.abs(x)), reflected)
    value = jnp.where(negative, reflected, value)
    pole = (x <= 0) & (x == jnp.floor(x))
    return jnp.where(pole | jnp.isinf(x), jnp.inf, value).astype(x.dtype)


def _lgamma_positive(z):
    low = z < 1
    w = jnp.where(low, z + 1, z)
    product = jnp.ones_like(z)
    for _ in range(7):
        shift = (w >= 3) & (w < 10)
        w = jnp.where(shift, w - 1, w)
        product = jnp.where(shift, product * w, product)
    mid = jnp.minimum(w, 3)
    middle = (mid - 1) * (mid - 2) * series.chebyshev(mid - 2, series.LGAMMA_MIDDLE, z.dtype)
    middle = middle + jnp.log(product)
    small = jnp.where(low, middle - jnp.log(jnp.where(low, jnp.maximum(z, np.finfo(z.dtype).tiny), 1)), middle)
    big = jnp.maximum(z, 10)
    inverse = 1 / big
    tail = jnp.zeros_like(z)
    for c in reversed(series.STIRLING):
        tail = tail * inverse * inverse + c
    log = jnp.log(big)
    large = (big - 0.5) * (log - 1) + (0.5 * math.log(2 * math.pi) - 0.5 + tail * inverse)
    return jnp.where(z >= 10, large, small)


def digamma(x):
    """Around the positive root a series with the root factored out; the asymptotic series from 10 on; reflection."""
    negative = x < 0
    z = jnp.where(negative, 1 - x, x)
    low = z < 1
    w = jnp.where(low, z + 1, z)
    total = jnp.where(low, -1 / jnp.where(low, jnp.where(z == 0, 1, z), 1), 0)
    for _ in range(7):
        shift = (w >= 3) & (w < 10)
        w = jnp.where(shift, w - 1, w)
        total = jnp.where(shift, total + 1 / w, total)
    root, rest = series.DIGAMMA_ROOT_64 if x.dtype == jnp.float64 else series.DIGAMMA_ROOT_32
    mid = jnp.minimum(w, 3)
    middle = ((mid - root) - rest) * series.chebyshev(mid - 2, series.DIGAMMA_MIDDLE, x.dtype) + total
    big = jnp.maximum(z, 10)
    square = 1 / (big * big)
    tail = jnp.zeros_like(z)
    for c in reversed(series.DIGAMMA_TAIL):
        tail = (tail + c) * square
    value = jnp.where(z >= 10, jnp.log(big) - 0.5 / big - tail, middle)
    r = x - jnp.round(x)
    tangent = jnp.tan(math.pi * jnp.where(r == 0, 0.25, r))
    value = jnp.where(negative, value - math.pi / tangent, value)
    pole = (x <= 0) & (x == jnp.floor(x))
    return jnp.where(pole, jnp.nan, value).astype(x.dtype)


def conv(x, w, *, strides, padding, lhs_dilation, rhs_dilation, groups):
    """Windows times kernel, summed: for dtypes and ranks that a target's own convolution lacks."""
    n, c, *space = x.shape
    out, per_group, *sizes = w.shape
    zero = jnp.zeros((), x.dtype)
    x = lax.pad(x, zero, [(0, 0, 0)] * 2 + [(lo, hi, d - 1) for (lo, hi), d in zip(padding, lhs_dilation)])
    reach = [(k - 1) * d + 1 for k, d in zip(sizes, rhs_dilation)]
    counts = [(m - r) // s + 1 for m, r, s in zip(x.shape[2:], reach, strides)]
    total = jnp.zeros((n, groups, out // groups, *counts), x.dtype)
    kernel = w.reshape(groups, out // groups, per_group, *sizes)
    ones = (1,) * len(sizes)
    for place in np.ndindex(*sizes):
        start = [p * d for p, d in zip(place, rhs_dilation)]
        stop = [a + (k - 1) * s + 1 for a, k, s in zip(start, counts, strides)]
        part = lax.slice(x, (0, 0, *start), (n, c, *stop), (1, 1, *strides)).reshape(n, groups, 1, per_group, *counts)
        weight = kernel[(..., *place)].reshape(1, groups, out // groups, per_group, *ones)
        total = total + jnp.sum(part * weight, axis=3, dtype=x.dtype)
    return total.reshape(n, out, *counts)


def cholesky(x):
    """Column by column; a pivot that is not positive makes everything NaN."""
    n = x.shape[-1]
    rows = jnp.arange(n)
    low = jnp.tril(x)

    def column(j, state):
        low, good = state
        done = jnp.where(rows < j, low, 0)
        row = lax.dynamic_index_in_dim(done, j, axis=-2, keepdims=False)
        rest = lax.dynamic_index_in_dim(low, j, axis=-1, keepdims=False) - jnp.einsum(
            "...ik,...k->...i", done, jnp.conj(row)
        )
        pivot = jnp.real(lax.dynamic_index_in_dim(rest, j, axis=-1, keepdims=True))
        good = good & (pivot > 0)
        scaled = rest / jnp.sqrt(jnp.where(pivot > 0, pivot, 1)).astype(x.dtype)
        return jnp.where(rows == j, jnp.where(rows >= j, scaled, 0)[..., None], low), good

    low, good = lax.fori_loop(0, n, column, (low, jnp.ones((*x.shape[:-2], 1), bool)))
    return jnp.where(rows[:, None] >= rows, jnp.where(good[..., None], low, jnp.asarray(np.nan, x.dtype)), 0)


def qr(x, *, full_matrices):
    *_, m, n = x.shape
    packed, taus = geqrf(x)
    r = jnp.triu(packed)
    if m < n:
        return householder_product(packed[..., :m], taus), r
    if full_matrices:
        wide = jnp.concatenate([packed, jnp.zeros((*packed.shape[:-1], m - n), x.dtype)], -1)
        return householder_product(wide, taus), r
    return householder_product(packed, taus), r[..., :n, :]


def _size(x):
    """How large LAPACK takes a pivot to be: |re| + |im| for complex numbers."""
    return jnp.abs(jnp.real(x)) + jnp.abs(jnp.imag(x)) if jnp.iscomplexobj(x) else jnp.abs(x)


def lu(x):
    """Gaussian elimination with the row of the largest pivot brought up, one column a trip."""
    *batch, m, n = x.shape
    k = min(m, n)
    rows, columns = jnp.arange(m), jnp.arange(n)

    def eliminate(j, state):
        a, pivots, order = state
        column = lax.dynamic_index_in_dim(a, j, axis=-1, keepdims=False)
        size = jnp.where(rows >= j, _size(column), -1)
        p = jnp.argmax(size, -1).astype(jnp.int32)[..., None]
        swap = jnp.where(rows == j, p, jnp.where(rows == p, j, rows))
        a = jnp.take_along_axis(a, swap[..., None], -2)
        order = jnp.take_along_axis(order, swap, -1)
        column = lax.dynamic_index_in_dim(a, j, axis=-1, keepdims=False)
        pivot = lax.dynamic_index_in_dim(column, j, axis=-1, keepdims=True)
        factor = jnp.where(rows > j, column / jnp.where(pivot == 0, 1, pivot), 0)
        top = lax.dynamic_index_in_dim(a, j, axis=-2, keepdims=True)
        change = factor[..., None] * jnp.where(columns > j, top, 0)
        a = jnp.where((columns == j) & (rows > j)[:, None], factor[..., None], a - change)
        return a, jnp.where(jnp.arange(k) == j, p, pivots), order

    pivots = jnp.zeros((*batch, k), jnp.int32)
    order = jnp.broadcast_to(rows.astype(jnp.int32), (*batch, m))
    return lax.fori_loop(0, k, eliminate, (x, pivots, order))


def scatter_rows(operand, indices, updates, *, kind, unique):
    """scatter_flat on the elements of the rows."""
    width = operand.shape[1]
    flat = (indices[:, None] * width + jnp.arange(width, dtype=indices.dtype)).reshape(-1)
    at = operand.reshape(-1).at[flat]
    options = {"mode": "promise_in_bounds", "unique_indices": unique}
    if operand.dtype == bool:
        kind = "max" if kind == "add" else "min" if kind == "mul" else kind
    ways = {"set": at.set, "add": at.add, "mul": at.multiply, "min": at.min, "max": at.max}
    return ways[kind](updates.reshape(-1), **options).reshape(operand.shape)


def sinh(x):
    """(t + t / (t + 1)) / 2 with t = expm1(|x|), halved in the argument where exp would overflow first."""
    if jnp.iscomplexobj(x):
        a, b = jnp.real(x), jnp.imag(x)
        return lax.complex(jnp.sinh(a) * jnp.cos(b), jnp.cosh(a) * jnp.sin(b))
    size = jnp.abs(x)
    big = size > 30
    t = jnp.expm1(jnp.where(big, 1, size))
    half = jnp.exp(size / 2)
    return jnp.sign(x) * jnp.where(big, 0.5 * half * half, (t + t / (t + 1)) / 2)


def cosh(x):
    if jnp.iscomplexobj(x):
        a, b = jnp.real(x), jnp.imag(x)
        return lax.complex(jnp.cosh(a) * jnp.cos(b), jnp.sinh(a) * jnp.sin(b))
    size = jnp.abs(x)
    half = jnp.exp(size / 2)
    decay = jnp.exp(-size)
    return jnp.where(size > 30, 0.5 * half * half, (1 / decay + decay) / 2)


def rsqrt(x):
    return 1 / jnp.sqrt(x)


def tan(x):
    return jnp.sin(x) / jnp.cos(x)


def tanh(x):
    """-t / (t + 2) with t = expm1(-2 |x|), and the sign; the addition theorem for complex numbers."""
    if jnp.iscomplexobj(x):
        t, u = jnp.tanh(jnp.real(x)), jnp.tan(jnp.imag(x))
        below = 1 + (t * u) ** 2
        return lax.complex(t * (1 + u * u) / below, u * (1 - t * t) / below)
    t = jnp.expm1(-2 * jnp.abs(x))
    return jnp.sign(x) * (-t / (t + 2))


for _fun in (population_count, clz, nextafter, conv, cholesky, qr, lu, scatter_rows):
    _compose(_fun.__name__, _fun)
for _fun in (cbrt, logistic, expm1, log1p, erf, erfc, erf_inv, lgamma, digamma, rsqrt, tan, sinh, cosh, tanh):
    _compose(_fun.__name__, _fun, widen=True)
