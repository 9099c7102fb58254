"""Core ops on elements: arithmetic, comparison, bits, selection, conversion. XLA's meaning, spelled in aten."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..lowering.program import Op
from .aten import CARRIER, Array, Aten, signed_view

__all__ = ["ROWS"]

ROWS: dict[str, Any] = {}


def row(name: str):
    def register(function):
        assert name not in ROWS, name
        ROWS[name] = function
        return function

    return register


def _direct(name: str, op: str, *tail: Any) -> None:
    ROWS[name] = lambda t, node, x: t.pointwise(op, x, *tail)


for _name in (
    "floor ceil exp expm1 log log1p sqrt rsqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc"
).split():
    _direct(_name, f"aten::{_name}")
_direct("neg", "aten::neg")
_direct("round_even", "aten::round")
_direct("logistic", "aten::sigmoid")
_direct("erf_inv", "aten::erfinv")
_direct("not", "aten::bitwise_not")
_direct("conj", "aten::conj_physical")


def _real_of(x: Array) -> np.dtype:
    return np.dtype(f"float{4 * x.dtype.itemsize}") if x.kind == "c" else x.dtype


@row("abs")
def _abs(t: Aten, node: Op, x: Array) -> Array:
    return x if x.kind in "ub" else t.pointwise("aten::abs", x, dtype=_real_of(x) if x.kind == "c" else None)


@row("sign")
def _sign(t: Aten, node: Op, x: Array) -> Array:
    if x.kind == "c":
        return t.pointwise("aten::sgn", x)
    if x.dtype.name in CARRIER:
        return t.to(t.pointwise("aten::ne", x, t.number(x, 0), dtype=bool, numbers=1), x.dtype)
    out = t.pointwise("aten::sign", x)  # NaN and -0.0 give 0
    return t.where(t.is_number(out, 0), x, out) if x.kind == "f" else out


@row("is_finite")
def _is_finite(t: Aten, node: Op, x: Array) -> Array:
    return t.pointwise("aten::isfinite", x, dtype=bool)


@row("real")
def _real(t: Aten, node: Op, x: Array) -> Array:
    return t.pointwise("aten::real", x, dtype=_real_of(x))


@row("imag")
def _imag(t: Aten, node: Op, x: Array) -> Array:
    return t.pointwise("aten::imag", x, dtype=_real_of(x))


@row("complex")
def _complex(t: Aten, node: Op, x: Array, y: Array) -> Array:
    return t.pointwise("aten::complex", x, y, dtype=node.outputs[0].dtype)


def _on_index(t: Aten, op: str, x: Array, y: Array) -> Array | None:
    """Arithmetic on a loop's index stays out of tensors where it cannot leave its type's range."""
    a, b = x.bounds, y.bounds
    if a is None or b is None or (x.number is not None and y.number is not None):
        return None
    if op == "add":
        low, high = a[0] + b[0], a[1] + b[1]
    elif op == "sub":
        low, high = a[0] - b[1], a[1] - b[0]
    else:
        corners = [p * q for p in a for q in b]
        low, high = min(corners), max(corners)
    info = np.iinfo(x.dtype)
    if low < info.min or high > info.max:
        return None
    out = Array(x.shape, x.dtype, scalar=t.call(f"aten::{op}", x.scalar, y.scalar))
    out.span = (low, high)
    return out


def _scaled_index(x: Array, y: Array) -> tuple[Array, Array] | None:
    """(an index as a float, a constant) where torch's double arithmetic rounds their product once, as the type's does."""
    if x.span is None and y.span is None or x.dtype not in (np.float32, np.float64):
        return None
    for index, factor in ((x, y), (y, x)):
        if index.span is not None and index.number is None and factor.number is not None:
            exact = 2**24 if x.dtype == np.float32 else 2**53
            return (index, factor) if max(map(abs, index.span)) <= exact else None
    return None


def _decided(name: str, x: Array, y: Array) -> bool | None:
    """A comparison of numbers whose ranges settle it."""
    a, b = x.bounds, y.bounds
    if a is None or b is None:
        return None
    if name in ("gt", "ge"):
        name, a, b = ("lt" if name == "gt" else "le"), b, a
    if name == "lt":
        return True if a[1] < b[0] else False if a[0] >= b[1] else None
    if name == "le":
        return True if a[1] <= b[0] else False if a[0] > b[1] else None
    apart = a[1] < b[0] or b[1] < a[0]
    return None if not apart else name == "ne"


@row("add")
def _add(t: Aten, node: Op, x: Array, y: Array) -> Array:
    on_index = _on_index(t, "add", x, y)
    if on_index is not None:
        return on_index
    return t.commuting("aten::bitwise_or" if x.kind == "b" else "aten::add", x, y)


@row("mul")
def _mul(t: Aten, node: Op, x: Array, y: Array) -> Array:
    on_index = _on_index(t, "mul", x, y)
    if on_index is not None:
        return on_index
    scaled = _scaled_index(x, y)
    if scaled is not None:  # no span: further arithmetic would miss the rounding
        return Array(x.shape, x.dtype, scalar=t.call("aten::mul", scaled[0].scalar, scaled[1].scalar))
    return t.commuting("aten::bitwise_and" if x.kind == "b" else "aten::mul", x, y)


@row("sub")
def _sub(t: Aten, node: Op, x: Array, y: Array) -> Array:
    on_index = _on_index(t, "sub", x, y)
    if on_index is not None:
        return on_index
    if x.scalar is not None and y.scalar is None:
        return t.pointwise("aten::rsub", y, x, numbers=1)
    return t.pointwise("aten::sub", x, y, numbers=1)


def _unsigned_divide(t: Aten, x: Array, y: Array) -> Array:
    """Quotient of uint64 bits by a divisor that is not 0, from signed operations.

    A divisor of 2**63 or more goes in at most once. Otherwise halve, divide, double, and mend by one.
    """
    zero, one = t.number(x, 0), t.number(x, 1)
    large = t.pointwise("aten::lt", y, zero, dtype=bool, numbers=1)
    divisor = t.where(large, one, y)
    half = shift_right_logical(t, x, one)
    twice = t.pointwise("aten::mul", t.pointwise("aten::div", half, divisor, "trunc"), t.number(x, 2), numbers=1)
    left = t.pointwise("aten::sub", x, t.pointwise("aten::mul", twice, divisor))
    more = t.to(_compare(t, "aten::ge", left, divisor), x.dtype)
    once = t.to(_compare(t, "aten::ge", x, y), x.dtype)
    return t.where(large, once, t.pointwise("aten::add", twice, more))


def _divide(t: Aten, x: Array, y: Array, special: int) -> Array:
    """Truncated quotient; `special` is the divisor's stand-in where dividing would fault."""
    known = y.number
    if x.dtype.name in ("uint16", "uint32"):
        wide = [_zero_extended(t, v) for v in (x, y)]
        guarded = wide[1] if known else _guard(t, wide[1], special, minus_one=False)
        return t.to(t.pointwise("aten::div", wide[0], guarded, "trunc"), x.dtype)
    if x.dtype.name == "uint64":
        return _unsigned_divide(t, x, y if known else _guard(t, y, special, minus_one=False))
    signed = x.kind == "i"
    guarded = y if known is not None and known not in (0, -1) else _guard(t, y, special, minus_one=signed)
    return t.pointwise("aten::div", x, guarded, "trunc")


def _guard(t: Aten, y: Array, stand_in: int, minus_one: bool) -> Array:
    bad = t.is_number(y, 0)
    if minus_one:  # the least integer by -1 stops the process
        bad = t.pointwise("aten::bitwise_or", bad, t.is_number(y, -1))
    return t.where(bad, t.number(y, stand_in), y)


@row("div")
def _div(t: Aten, node: Op, x: Array, y: Array) -> Array:
    if x.kind in "fc":
        if x.number == 1 and x.kind == "f":
            return t.pointwise("aten::reciprocal", y)
        return t.pointwise("aten::div", x, y, numbers=1)
    out = _divide(t, x, y, 1)
    if y.number is None or y.number in (0, -1):
        if x.kind == "i":
            out = t.where(t.is_number(y, -1), t.pointwise("aten::neg", x), out)
        out = t.where(t.is_number(y, 0), t.number(x, 255 if x.dtype == np.uint8 else -1), out)
    return out


@row("rem")
def _rem(t: Aten, node: Op, x: Array, y: Array) -> Array:
    if x.kind == "f":
        return _float_rem(t, x, y)
    quotient = _divide(t, x, y, 1)
    # With the stand-in 1 for a divisor of -1 the remainder is 0, as it has to be; x % 0 is x.
    by = y if y.number not in (None, 0, -1) else _guard(t, y, 1, minus_one=x.kind == "i")
    out = t.pointwise("aten::sub", x, t.commuting("aten::mul", quotient, by))
    return out if y.number not in (None, 0) else t.where(t.is_number(y, 0), x, out)


def _float_rem(t: Aten, x: Array, y: Array) -> Array:
    """Torch's vectorised fmod is NaN where the quotient is not finite."""
    if y.number is not None and abs(y.number) >= 1:
        return t.pointwise("aten::fmod", x, y, numbers=1)
    if x.dtype != np.float64:  # no quotient of two shorter floats leaves float64's range
        return cast(t, t.pointwise("aten::fmod", cast(t, x, np.float64), cast(t, y, np.float64)), x.dtype)
    steps = [y]  # divisors, each a multiple of the one before: the last has a finite quotient
    for scale in (2.0**1000, 2.0**74):
        quotient = t.pointwise("aten::abs", t.pointwise("aten::div", x, steps[-1]))
        scaled = t.pointwise("aten::mul", steps[-1], t.number(y, scale), numbers=1)
        usable = t.pointwise("aten::isfinite", scaled, dtype=bool)
        usable = t.pointwise("aten::bitwise_and", usable, t.is_number(quotient, np.inf))
        steps.append(t.where(usable, scaled, steps[-1]))
    for divisor in reversed(steps):
        x = t.pointwise("aten::fmod", x, divisor)
    return x


@row("pow")
def _pow(t: Aten, node: Op, x: Array, y: Array) -> Array:
    # The Scalar overload takes short cuts (x**0.5 as a root) that differ at infinities and zeros.
    return t.pointwise("aten::pow", x, y)


@row("atan2")
def _atan2(t: Aten, node: Op, x: Array, y: Array) -> Array:
    return t.pointwise("aten::atan2", x, y)


@row("nextafter")
def _nextafter(t: Aten, node: Op, x: Array, y: Array) -> Array:
    return t.pointwise("aten::nextafter", x, y)


def extreme(t: Aten, x: Array, y: Array, greatest: bool) -> Array:
    """max or min, NaN if either is, the zeros ordered: -0.0 < 0.0."""
    if x.kind == "b":
        return t.commuting("aten::bitwise_or" if greatest else "aten::bitwise_and", x, y)
    op = "aten::maximum" if greatest else "aten::minimum"
    larger = _decided("ge", x, y)
    if larger is not None:
        return x if larger == greatest else y
    if x.kind != "f":
        return t.ordered(t.pointwise(op, t.ordered(x), t.ordered(y)))
    out = t.pointwise(op, x, y)
    if any(v.number is not None and v.number != 0 for v in (x, y)):
        return out  # one side is never zero: no tie of zeros
    if x.number is not None:
        x, y = y, x
    zeros = t.is_number(x, 0)
    if y.number is None:
        zeros = t.pointwise("aten::bitwise_and", zeros, t.is_number(y, 0))
    if greatest:  # half the sum of two zeros is the greater of them, with the derivative that a tie has
        tie = t.pointwise("aten::add", x, y)
    else:
        tie = t.pointwise(
            "aten::neg", t.pointwise("aten::add", t.pointwise("aten::neg", x), t.pointwise("aten::neg", y))
        )
    return t.where(zeros, t.pointwise("aten::mul", tie, t.number(tie, 0.5), numbers=1), out)


ROWS["max"] = lambda t, node, x, y: extreme(t, x, y, True)
ROWS["min"] = lambda t, node, x, y: extreme(t, x, y, False)


for _name in ("and", "or", "xor"):
    ROWS[_name] = lambda t, node, x, y, op=f"aten::bitwise_{_name}": t.commuting(op, x, y)


# shifts: an amount counts as unsigned; one of the width or more shifts everything out


def _width(x: Array) -> int:
    return 8 * x.dtype.itemsize


def _known_amount(x: Array, y: Array) -> int | None:
    """The shift amount where it is a number: at least the width where everything goes."""
    if y.number is None:
        return None
    return _width(x) if y.number < 0 else min(int(y.number), _width(x))


def _amount(t: Aten, x: Array, y: Array) -> tuple[Array, Array]:
    """(whether the shift is too far, the amount with 0 there)."""
    width = t.number(y, _width(x))
    far = t.pointwise("aten::bitwise_or", *(
        t.pointwise("aten::ge", y, width, dtype=bool, numbers=1),
        t.pointwise("aten::lt", y, t.number(y, 0), dtype=bool, numbers=1),
    ))  # fmt: skip
    return far, t.where(far, t.number(y, 0), y)


@row("shift_left")
def _shift_left(t: Aten, node: Op, x: Array, y: Array) -> Array:
    known = _known_amount(x, y)
    if known is not None:
        return (
            t.number(x, 0)
            if known == _width(x)
            else t.pointwise("aten::bitwise_left_shift", x, t.number(y, known), numbers=1)
        )
    far, amount = _amount(t, x, y)
    return t.where(far, t.number(x, 0), t.pointwise("aten::bitwise_left_shift", x, amount))


@row("shift_right_arithmetic")
def _shift_right_arithmetic(t: Aten, node: Op, x: Array, y: Array) -> Array:
    if x.dtype == np.uint8:  # the one unsigned type that torch computes in itself
        signed = t.wrap_bits(x, np.dtype(np.int8))
        return t.wrap_bits(_shift_right_arithmetic(t, node, signed, t.wrap_bits(y, np.dtype(np.int8))), x.dtype)
    known = _known_amount(x, y)
    if known is not None:
        amount = t.number(y, min(known, _width(x) - 1))
        return t.pointwise("aten::bitwise_right_shift", x, amount, numbers=1)
    far, amount = _amount(t, x, y)
    amount = t.where(far, t.number(y, _width(x) - 1), amount)
    return t.pointwise("aten::bitwise_right_shift", x, amount)


def shift_right_logical(t: Aten, x: Array, y: Array) -> Array:
    known = _known_amount(x, y)
    width = _width(x)
    if known is not None:
        if known == width:
            return t.number(x, 0)
        out = t.pointwise("aten::bitwise_right_shift", x, t.number(y, known), numbers=1)
        if x.dtype == np.uint8 or known == 0:
            return out
        return t.pointwise("aten::bitwise_and", out, t.number(x, (1 << (width - known)) - 1), numbers=1)
    far, amount = _amount(t, x, y)
    out = t.pointwise("aten::bitwise_right_shift", x, amount)
    if x.dtype != np.uint8:
        # The kept bits: two shifts, since one by the whole width is not defined.
        rest = t.pointwise("aten::rsub", amount, t.number(amount, width - 1), numbers=1)
        ones = t.pointwise("aten::bitwise_left_shift", t.number(x, -2), rest)
        out = t.pointwise("aten::bitwise_and", out, t.pointwise("aten::bitwise_not", ones))
    return t.where(far, t.number(x, 0), out)


ROWS["shift_right_logical"] = lambda t, node, x, y: shift_right_logical(t, x, y)


# comparison and selection


def _compare(t: Aten, op: str, x: Array, y: Array) -> Array:
    return t.pointwise(op, t.ordered(x), t.ordered(y), dtype=bool, numbers=1)


MIRROR = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}


def _comparison(name: str) -> None:
    def run(t: Aten, node: Op, x: Array, y: Array) -> Array:
        op = name
        known = _decided(name, x, y)
        if known is not None:
            return Array(x.shape, np.dtype(bool), scalar=known)
        if x.scalar is not None and y.scalar is None:
            x, y, op = y, x, MIRROR[name]
        if op in ("eq", "ne"):
            return t.pointwise(f"aten::{op}", x, y, dtype=bool, numbers=1)
        return _compare(t, f"aten::{op}", x, y)

    ROWS[name] = run


for _name in MIRROR:
    _comparison(_name)


@row("select")
def _select(t: Aten, node: Op, mask: Array, on_true: Array, on_false: Array) -> Array:
    if mask.number is not None:
        return on_true if mask.number else on_false
    return t.where(mask, on_true, on_false)


# conversion


def _zero_extended(t: Aten, x: Array) -> Array:
    """A uint16 or uint32 as int64."""
    mask = (1 << _width(x)) - 1
    if x.number is not None:
        return Array(x.shape, np.dtype(np.int64), scalar=x.number & mask)
    wide = t.to(x, np.int64)
    return t.pointwise("aten::bitwise_and", wide, t.number(wide, mask), numbers=1)


def _float_to_int(t: Aten, x: Array, dtype: np.dtype) -> Array:
    """Truncated, saturated, NaN as 0. Torch's own conversion is undefined outside the range."""
    info = np.iinfo(dtype)
    low, beyond = (
        float(info.min),
        float(int(info.max) + 1),
    )  # both are exact in every float type that reaches them
    if x.dtype.itemsize == 2:
        x = t.to(x, np.float32)
    inside = t.pointwise("aten::lt", x, t.number(x, beyond), dtype=bool, numbers=1)  # false for NaN
    safe = t.where(inside, x, t.number(x, 0.0))
    safe = t.pointwise("aten::clamp_min", safe, t.number(x, low), numbers=1)
    if dtype.name == "uint64":
        small = t.pointwise("aten::lt", safe, t.number(x, 2.0**63), dtype=bool, numbers=1)
        shifted = t.where(small, safe, t.pointwise("aten::sub", safe, t.number(x, 2.0**63), numbers=1))
        bits = t.to(shifted, np.int64)
        bits = t.where(small, bits, t.pointwise("aten::bitwise_xor", bits, t.number(bits, -(2**63)), numbers=1))
        out = Array(bits.shape, dtype, bits.ref, bits.stored)
    else:
        out = t.to(t.to(safe, np.int64) if dtype.name in CARRIER else safe, dtype)
    over = t.pointwise("aten::ge", x, t.number(x, beyond), dtype=bool, numbers=1)
    greatest = int(np.array(info.max, dtype).view(signed_view(dtype)))
    return t.where(over, t.number(out, greatest), out)


def _uint64_to_float(t: Aten, x: Array, dtype: np.dtype) -> Array:
    """Where the top bit is set: half of it, the last bit kept sticky, converted once and doubled."""
    one = t.number(x, 1)
    half = shift_right_logical(t, x, one)
    half = t.pointwise("aten::bitwise_or", half, t.pointwise("aten::bitwise_and", x, one, numbers=1))
    large = t.pointwise("aten::lt", x, t.number(x, 0), dtype=bool, numbers=1)
    doubled = t.to(half, dtype)
    doubled = t.pointwise("aten::add", doubled, doubled)
    return t.where(large, doubled, t.to(x, dtype))


def cast(t: Aten, x: Array, dtype: Any) -> Array:
    dtype = np.dtype(dtype)
    to_kind = "f" if dtype.kind == "V" else dtype.kind
    if x.dtype == dtype:
        return x
    if dtype == np.bool_:
        return t.pointwise("aten::ne", x, t.number(x, 0), dtype=bool, numbers=1)
    if x.kind == "c" and to_kind != "c":
        x = _real(t, None, x)  # type: ignore[arg-type]
        if x.dtype == dtype:
            return x
    if x.kind == "b" and to_kind in "iu":  # a branch's index is such a cast, and wants the bool back
        out = Array(x.shape, dtype, stored=x.stored)
        out.make, out.truth = lambda: t.loose(t.to(x, dtype)), x
        return out
    if x.kind in "iub" and x.scalar is not None and x.number is None:
        return _cast_index(t, x, dtype)
    if x.kind == "f" and to_kind in "iu":
        return _float_to_int(t, x, dtype)
    if x.dtype.name in CARRIER:
        if x.dtype.name == "uint64":
            return t.to(x, dtype) if to_kind in "iu" else _uint64_to_float(t, x, dtype)
        if to_kind in "iu" and dtype.itemsize <= x.dtype.itemsize:
            return t.to(x, dtype)
        x = _zero_extended(t, x)
    return t.to(x, dtype)


def _cast_index(t: Aten, x: Array, dtype: np.dtype) -> Array:
    """A loop's index (a number of the target) stays one where the conversion is exact."""
    if dtype.kind == "f" and dtype.itemsize >= 4 or dtype.kind in "i" and dtype.itemsize >= x.dtype.itemsize:
        scalar = t.call("aten::Float", x.scalar) if dtype.kind == "f" else x.scalar
        out = Array(x.shape, dtype, scalar=scalar)
        out.span = x.span
        return out
    return t.to(x, dtype)


@row("cast")
def _cast(t: Aten, node: Op, x: Array) -> Array:
    return cast(t, x, node.params["dtype"])


@row("bitcast")
def _bitcast(t: Aten, node: Op, x: Array) -> Array:
    return t.wrap_bits(x, np.dtype(node.params["dtype"]))
