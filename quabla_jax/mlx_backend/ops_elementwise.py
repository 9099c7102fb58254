"""Elementwise core ops with XLA's exact meaning for integers, bits, casts and NaN."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np

from ..lowering.narrow import CARRIERS
from . import convert, narrow
from .target import Context, OpTable, scalar
from .target import scalar_like as lit

__all__ = ["TABLE"]

TABLE = OpTable()

_FLOATS = (mx.float16, mx.bfloat16, mx.float32, mx.float64)
_UNSIGNED_OF = {1: mx.uint8, 2: mx.uint16, 4: mx.uint32, 8: mx.uint64}
_SIGNED_OF = {1: mx.int8, 2: mx.int16, 4: mx.int32, 8: mx.int64}


def is_float(x: mx.array) -> bool:
    return x.dtype in _FLOATS


def _info(dtype: mx.Dtype) -> np.iinfo:
    return np.iinfo(convert.np_dtype(dtype))


def _signed(dtype: mx.Dtype) -> bool:
    return convert.np_dtype(dtype).kind == "i"


def _plain(name: str, function: Callable[..., mx.array]) -> None:
    TABLE.row(name)(lambda c, *xs: function(*xs))


for _name, _function in {
    "neg": mx.negative,
    "abs": mx.abs,
    "floor": mx.floor,
    "ceil": mx.ceil,
    "round_even": mx.round,
    "is_finite": mx.isfinite,
    "real": mx.real,
    "imag": mx.imag,
    "conj": mx.conjugate,
    "eq": mx.equal,
    "ne": mx.not_equal,
    "lt": mx.less,
    "le": mx.less_equal,
    "gt": mx.greater,
    "ge": mx.greater_equal,
    "sub": mx.subtract,
    "xor": mx.bitwise_xor,
}.items():
    _plain(_name, _function)


@TABLE.row("sign")
def _sign(c: Context, x: mx.array) -> mx.array:
    if is_float(x):  # MLX gives 0 for NaN and for -0.0
        return mx.where(mx.isnan(x) | (x == lit(x, 0)), x, mx.sign(x))
    return mx.sign(x)


@TABLE.row("not")
def _not(c: Context, x: mx.array) -> mx.array:
    return mx.logical_not(x) if x.dtype == mx.bool_ else mx.bitwise_invert(x)


def _bool_aware(name: str, on_bool: Callable[..., mx.array], otherwise: Callable[..., mx.array]) -> None:
    TABLE.row(name)(lambda c, x, y: on_bool(x, y) if x.dtype == mx.bool_ else otherwise(x, y))


def multiply(x: mx.array, y: mx.array) -> mx.array:
    """x * y. C recovers an infinity where both parts of a complex product come out as NaN; XLA leaves the NaN."""
    out = mx.multiply(x, y)
    if x.dtype != mx.complex64:
        return out
    a, b, c, d = mx.real(x), mx.imag(x), mx.real(y), mx.imag(y)
    lost = mx.isnan(a * c - b * d) & mx.isnan(a * d + b * c)
    return mx.where(lost, complex_nan(), out)


def complex_nan() -> mx.array:
    """NaN in both parts."""
    return scalar(complex(float("nan"), float("nan")), mx.complex64)


_bool_aware("add", mx.logical_or, mx.add)
_bool_aware("mul", mx.logical_and, multiply)
_bool_aware("and", mx.logical_and, mx.bitwise_and)
_bool_aware("or", mx.logical_or, mx.bitwise_or)


# division


def _guarded(c: Context, x: mx.array, y: mx.array) -> tuple[mx.array, mx.array | None]:
    """(divisor that cannot fault, where it was zero). x86 traps on INT_MIN / -1, MLX gives 0 for x / 0."""
    constant = c.value(1)
    if constant is not None and constant != 0 and constant != -1:
        return y, None
    zero = y == lit(y, 0)
    bad = zero
    if _signed(x.dtype):
        bad = zero | ((y == lit(y, -1)) & (x == lit(x, int(_info(x.dtype).min))))
    return mx.where(bad, lit(y, 1), y), zero


def _truncated(x: mx.array, y: mx.array) -> mx.array:
    """Quotient toward zero; y may not be zero and x / y may not overflow."""
    quotient = mx.floor_divide(x, y)
    if not _signed(x.dtype):
        return quotient
    left = x - quotient * y
    up = (left != lit(x, 0)) & ((x < lit(x, 0)) != (y < lit(y, 0)))
    return quotient + up.astype(x.dtype)


@TABLE.row("div")
def _div(c: Context, x: mx.array, y: mx.array) -> mx.array:
    if is_float(x):
        return mx.divide(x, y)
    if x.dtype == mx.complex64:
        return _complex_divide(x, y)
    safe, zero = _guarded(c, x, y)
    quotient = _truncated(x, safe)
    if zero is None:
        return quotient
    nothing = -1 if _signed(x.dtype) else int(_info(x.dtype).max)
    return mx.where(zero, lit(x, nothing), quotient)


def _complex_divide(x: mx.array, y: mx.array) -> mx.array:
    """Finite quotients as MLX has them; x / 0 is inf or NaN part by part, as XLA gives it."""
    a, b = mx.real(x), mx.imag(x)
    zero = (mx.real(y) == lit(a, 0)) & (mx.imag(y) == lit(a, 0))
    infinite = mx.divide(a, mx.zeros_like(a)), mx.divide(b, mx.zeros_like(b))
    return mx.where(zero, join(*infinite), mx.divide(x, mx.where(zero, lit(y, 1), y)))


@TABLE.row("rem")
def _rem(c: Context, x: mx.array, y: mx.array) -> mx.array:
    if is_float(x):
        # MLX's remainder takes the divisor's sign; of magnitudes it is exact, and the dividend's sign comes back on.
        size = mx.remainder(mx.abs(x), mx.abs(y))
        infinite = mx.isinf(y) & mx.isfinite(x)
        size = mx.where(infinite, mx.abs(x), size)
        return mx.where(_negative(x), -size, size)
    safe, zero = _guarded(c, x, y)
    left = x - _truncated(x, safe) * safe
    return left if zero is None else mx.where(zero, x, left)


def _bits(x: mx.array) -> mx.array:
    return x.view(_SIGNED_OF[x.dtype.size])


def _negative(x: mx.array) -> mx.array:
    """Sign bit of a float."""
    bits = _bits(x)
    return bits < lit(bits, 0)


# extremes


def _extreme(
    name: str,
    choose: Callable[..., mx.array],
    on_bool: Callable[..., mx.array],
    zero_by: Callable[..., mx.array],
) -> None:
    def run(c: Context, x: mx.array, y: mx.array) -> mx.array:
        if x.dtype == mx.bool_:
            return on_bool(x, y)
        out = choose(x, y)
        if not is_float(x):
            return out
        for constant in (c.value(0), c.value(1)):
            if constant is not None and constant != 0:
                return out  # no two zeros can meet
        for constant, other, zero in ((c.value(1), x, y), (c.value(0), y, x)):
            if constant is not None and np.signbit(constant) == (name == "min"):
                # The zero that wins is known. MLX's CPU kernels give the second of two equals.
                return choose(other, zero) if c.target.cpu else mx.where(other == lit(x, 0), zero, out)
        return mx.where((x == lit(x, 0)) & (y == lit(y, 0)), zero_by(x, y), out)

    TABLE.row(name)(run)


_extreme("max", mx.maximum, mx.logical_or, lambda x, y: x + y)
_extreme("min", mx.minimum, mx.logical_and, lambda x, y: -((-x) + (-y)))


# shifts: MLX's wrap at the width


def _shift_amount(c: Context, x: mx.array, y: mx.array) -> tuple[mx.array, mx.array | None, bool]:
    """(amount in x's dtype and in range, where it was too far, whether it is too far everywhere)."""
    width = 8 * x.dtype.size
    constant = c.value(1)
    if constant is not None:
        far = not 0 <= int(constant) < width
        return (lit(x, 0) if far else y), None, far
    unsigned = y.view(_UNSIGNED_OF[y.dtype.size]) if _signed(y.dtype) else y
    far = unsigned >= lit(unsigned, width)
    return mx.where(far, lit(y, 0), y), far, False


def _dropped(c: Context, x: mx.array, y: mx.array, shift: Callable[..., mx.array]) -> mx.array:
    amount, far, everywhere = _shift_amount(c, x, y)
    if everywhere:
        return mx.zeros_like(x)
    out = shift(x, amount)
    return out if far is None else mx.where(far, lit(out, 0), out)


@TABLE.row("shift_left")
def _shift_left(c: Context, x: mx.array, y: mx.array) -> mx.array:
    return _dropped(c, x, y, mx.left_shift)


@TABLE.row("shift_right_logical")
def _shift_right_logical(c: Context, x: mx.array, y: mx.array) -> mx.array:
    if not _signed(x.dtype):
        return _dropped(c, x, y, mx.right_shift)
    unsigned = _UNSIGNED_OF[x.dtype.size]
    return _dropped(c, x, y, lambda a, s: mx.right_shift(a.view(unsigned), s.astype(unsigned)).view(a.dtype))


@TABLE.row("shift_right_arithmetic")
def _shift_right_arithmetic(c: Context, x: mx.array, y: mx.array) -> mx.array:
    amount, far, everywhere = _shift_amount(c, x, y)
    signed = x if _signed(x.dtype) else x.view(_SIGNED_OF[x.dtype.size])
    fill = lit(signed, 8 * x.dtype.size - 1)
    if everywhere:
        out = mx.right_shift(signed, fill)
    else:
        amount = amount.astype(signed.dtype)
        out = mx.right_shift(signed, amount if far is None else mx.where(far, fill, amount))
    return out if out.dtype == x.dtype else out.view(x.dtype)


# bits counted by halves


def _unsigned(x: mx.array) -> mx.array:
    return x.view(_UNSIGNED_OF[x.dtype.size]) if _signed(x.dtype) else x


@TABLE.row("population_count")
def _population_count(c: Context, x: mx.array) -> mx.array:
    v = _unsigned(x)
    width = 8 * v.dtype.size
    step = 1
    while step < width:
        mask = sum(((1 << step) - 1) << k for k in range(0, width, 2 * step))
        v = (v & lit(v, mask)) + ((v >> lit(v, step)) & lit(v, mask))
        step *= 2
    return v if v.dtype == x.dtype else v.view(x.dtype)


@TABLE.row("clz")
def _clz(c: Context, x: mx.array) -> mx.array:
    v = _unsigned(x)
    step = 1
    while step < 8 * v.dtype.size:
        v = v | (v >> lit(v, step))
        step *= 2
    return _population_count(c, mx.bitwise_invert(v).view(x.dtype))


@TABLE.row("nextafter")
def _nextafter(c: Context, x: mx.array, y: mx.array) -> mx.array:
    bits = _bits(x)
    one = lit(bits, 1)
    least = int(_info(bits.dtype).min)
    away = (x < y) == (bits >= lit(bits, 0))
    stepped = mx.where(away, bits + one, bits - one)
    tiny = mx.where(_negative(y), lit(bits, least + 1), one)
    out = mx.where(x == lit(x, 0), tiny, stepped).view(x.dtype)
    out = mx.where(x == y, y, out)
    return mx.where(mx.isnan(x) | mx.isnan(y), lit(x, float("nan")), out)


# complex


def join(real: mx.array, imag: mx.array) -> mx.array:
    """real + i imag, with no arithmetic that could mix inf or NaN of one part into the other."""
    pair = mx.stack([real, imag], axis=-1)
    return mx.reshape(mx.contiguous(pair).view(mx.complex64), real.shape)


@TABLE.row("complex")
def _complex(c: Context, x: mx.array, y: mx.array) -> mx.array:
    return join(x, y)


# select and casts


@TABLE.row("select")
def _select(c: Context, mask: mx.array, on_true: mx.array, on_false: mx.array) -> mx.array:
    return mx.where(mask, on_true, on_false)


def _saturated(x: mx.array, dtype: mx.Dtype) -> mx.array:
    """Float to integer: truncated, clipped to the range, NaN -> 0. C leaves the rest undefined."""
    if x.dtype in (mx.float16, mx.bfloat16):
        x = x.astype(mx.float32)
    info = _info(dtype)
    top, bottom = 2.0 ** (info.bits - (info.min < 0)), float(info.min)
    # A float that is not below `top` is at or above the greatest integer's successor: no rounding is involved.
    high = x >= lit(x, top)
    low = x <= lit(x, bottom)
    inside = mx.where(high | low | mx.isnan(x), lit(x, 0), x).astype(dtype)
    out = mx.where(high, scalar(int(info.max), dtype), inside)
    return mx.where(low, scalar(int(info.min), dtype), out)


@TABLE.row("cast")
def _cast(c: Context, x: mx.array, dtype: Any) -> mx.array:
    wanted = c.dtype(dtype)
    if np.dtype(dtype) in CARRIERS:
        x = narrow.prepared(x, np.dtype(dtype))
    if x.dtype == wanted:
        return x
    if wanted == mx.bool_:
        return x != lit(x, 0)
    if x.dtype == mx.complex64:
        x = mx.real(x)
    if is_float(x) and CARRIERS.get(np.dtype(dtype), np.dtype(dtype)).kind in "iu":
        return _saturated(x, wanted)
    return x.astype(wanted)


@TABLE.row("bitcast")
def _bitcast(c: Context, x: mx.array, dtype: Any) -> mx.array:
    return x.view(c.dtype(dtype))
