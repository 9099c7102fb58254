"""Elementwise arithmetic, comparison, bits and casts."""

from __future__ import annotations

import numpy as np

from .. import jax_api
from ..emitter import Emitter
from ..program import Const, Op, Value
from . import register

_DIRECT = (
    "neg sign floor ceil exp expm1 log log1p sqrt rsqrt cbrt sin cos tan asin acos atan sinh cosh tanh asinh acosh "
    "atanh logistic is_finite not population_count clz abs real imag "
    "add sub mul div rem atan2 and or xor shift_left shift_right_logical shift_right_arithmetic nextafter complex "
    "ge gt le lt"
).split()


def _direct(name: str):
    return lambda e, eqn, *xs: e.op(name, *spread(e, eqn, *xs))


def spread(e: Emitter, eqn, *xs: Value) -> list[Value]:
    """Operands at the result's shape: JAX lets axes of size 1 and scalars stand for more."""
    shape = eqn.outvars[0].aval.shape
    return [x if x.shape == shape else e.broadcast_to(x, shape) for x in xs]


def is_float(dtype) -> bool:
    return np.dtype(dtype).kind in "fV"


def is_complex(dtype) -> bool:
    return np.dtype(dtype).kind == "c"


def is_integer(dtype) -> bool:
    return np.dtype(dtype).kind in "iu"


def extreme(e: Emitter, name: str, x: Value, y: Value) -> Value:
    """max or min. Complex numbers go by their real parts, and by their imaginary parts where those are equal."""
    if not is_complex(x.dtype):
        return e.op(name, x, y)
    pick = e.gt if name == "max" else e.lt
    real, other = e.real(x), e.real(y)
    return e.select(e.select(e.eq(real, other), pick(e.imag(x), e.imag(y)), pick(real, other)), x, y)


def total_order(e: Emitter, x: Value) -> Value:
    """A signed integer that orders as the float x: -NaN < -inf < ... < -0 < 0 < ... < inf < NaN."""
    width = x.dtype.itemsize
    bits = e.bitcast(x, f"i{width}")
    mask = np.iinfo(bits.dtype).max
    return e.select(e.lt(bits, 0), e.xor(bits, mask), bits)


def _ordered(name: str):
    def rule(e: Emitter, eqn, x: Value, y: Value):
        x, y = spread(e, eqn, x, y)
        if is_float(x.dtype):
            x, y = total_order(e, x), total_order(e, y)
        return e.op(name, x, y)

    return rule


def integer_power(e: Emitter, x: Value, n: int) -> Value:
    """x**n by repeated squaring."""
    if n == 0:
        return e.like(x, 1)
    if n < 0:
        return e.div(1, integer_power(e, x, -n))
    result, square = None, x
    while n:
        if n & 1:
            result = square if result is None else e.mul(result, square)
        n >>= 1
        if n:
            square = e.mul(square, square)
    assert result is not None
    return result


def _integer_pow(e, eqn, x):
    return integer_power(e, x, eqn.params["y"])


def _pow(e: Emitter, eqn, x: Value, y: Value):
    if is_integer(y.dtype) and not is_integer(x.dtype):
        if isinstance(y, Const) and y.size == 1 and abs(int(y.array.reshape(()))) <= 64:
            return integer_power(e, x, int(y.array.reshape(())))
        y = e.cast(y, x.dtype)
    x, y = spread(e, eqn, x, y)
    if is_integer(x.dtype):
        return _integer_to_integer(e, x, y)
    out = e.op("pow", x, y)
    return e.select(e.or_(e.eq(y, 0), e.eq(x, 1)), e.like(x, 1), out) if is_complex(x.dtype) else out


def _integer_to_integer(e: Emitter, x: Value, y: Value) -> Value:
    """Square and multiply over the exponent's bits; a negative exponent gives 0 but for bases 1 and -1."""
    width = 8 * y.dtype.itemsize
    result, base = e.like(x, 1), x
    for bit in range(width - (y.dtype.kind == "i")):
        taken = e.ne(e.and_(e.shift_right_logical(y, bit), 1), 0)
        result = e.select(taken, e.mul(result, base), result)
        base = e.mul(base, base)
    if y.dtype.kind == "i":
        odd = e.ne(e.and_(y, 1), 0)
        inverse = e.select(e.eq(x, 1), e.like(x, 1), 0)
        if x.dtype.kind == "i":
            inverse = e.select(e.eq(x, -1), e.select(odd, e.like(x, -1), 1), inverse)
        result = e.select(e.lt(y, 0), inverse, result)
    return result


def _round(e: Emitter, eqn, x):
    if int(eqn.params["rounding_method"]) == 1:
        return e.op("round_even", x)
    whole = e.floor(e.abs(x))
    up = e.ge(e.sub(e.abs(x), whole), 0.5)
    away = e.add(whole, e.select(up, e.like(x, 1), 0))
    rounded = copy_sign(e, away, x)
    return e.select(e.is_finite(x), rounded, x)


def copy_sign(e: Emitter, magnitude: Value, sign: Value) -> Value:
    """|magnitude| with the sign bit of `sign`."""
    bits = f"i{sign.dtype.itemsize}"
    negative = e.lt(e.bitcast(sign, bits), 0)
    positive = e.abs(magnitude)
    return e.select(negative, e.neg(positive), positive)


def _square(e, eqn, x):
    return e.mul(x, x)


def _exp2(e: Emitter, eqn, x):
    if is_complex(x.dtype):
        return _on_complex(e, "exp", e.mul(x, float(np.log(2))))
    return e.pow(e.like(x, 2), x)


def _log2(e: Emitter, eqn, x):
    out = _on_complex(e, "log", x)
    if is_complex(x.dtype) and jax_api.LOG2_BY_PARTS:
        return e.complex(*[e.mul(e.op(half, out), float(1 / np.log(2))) for half in ("real", "imag")])
    return e.div(out, float(np.log(2)))


def _conj(e: Emitter, eqn, x):
    return e.conj(x) if is_complex(x.dtype) else e.complex(x, e.like(x, 0))


def _clamp(e: Emitter, eqn, *operands: Value):
    low, x, high = spread(e, eqn, *operands)
    return e.min(e.max(x, low), high)


def _select_n(e: Emitter, eqn, which: Value, *cases: Value):
    if len(cases) == 1:
        return cases[0]
    cases = tuple(spread(e, eqn, *cases))
    if which.dtype == bool:
        return e.select(which, cases[1], cases[0])
    result = cases[-1]
    for i in range(len(cases) - 2, -1, -1):
        result = e.select(e.le(which, i), cases[i], result)
    return result


def _convert(e: Emitter, eqn, x: Value):
    dtype = np.dtype(eqn.params["new_dtype"])
    if is_complex(x.dtype) and not is_complex(dtype) and dtype.kind != "b":
        x = e.real(x)
    if x.dtype.itemsize == 2 and is_float(x.dtype) and dtype == np.float32:
        wide = _unrounded_product(e, x)
        if wide is not None:
            return wide
    return e.cast(x, dtype)


def _unrounded_product(e: Emitter, x: Value) -> Value | None:
    """A half-precision matmul that is widened at once keeps its float32 sum, as XLA keeps it."""
    moves, node = [], e.producer.get(x)
    while isinstance(node, Op) and node.name == "reshape":  # XLA rounds what is transposed first
        moves.append(node)
        node = e.producer.get(node.inputs[0])
    if not isinstance(node, Op) or node.name != "matmul":
        return None
    wide = e.op("matmul", *node.inputs, dtype=np.dtype(np.float32))
    for move in reversed(moves):
        wide = e.op(move.name, wide, **move.params)
    return wide


def _bitcast(e: Emitter, eqn, x: Value):
    dtype = np.dtype(eqn.params["new_dtype"])
    shape = eqn.outvars[0].aval.shape
    if "b" in (x.dtype.kind, dtype.kind):
        return e.cast(x, dtype)
    old, new = x.dtype.itemsize, dtype.itemsize
    if is_complex(x.dtype) or is_complex(dtype):
        return _complex_bitcast(e, x, dtype)
    if old == new:
        return e.bitcast(x, dtype)
    wide, narrow = np.dtype(f"u{max(old, new)}"), np.dtype(f"u{min(old, new)}")
    count, width = wide.itemsize // narrow.itemsize, 8 * narrow.itemsize
    if new < old:
        bits = e.bitcast(x, wide)
        parts = [e.cast(e.shift_right_logical(bits, i * width), narrow) for i in range(count)]
        return e.bitcast(e.concat([e.reshape(p, (*x.shape, 1)) for p in parts], x.ndim), dtype)
    bits, total = e.bitcast(x, narrow), None
    for i in range(count):
        part = e.cast(e.reshape(e.slice_axis(bits, x.ndim - 1, i, i + 1), shape), wide)
        part = e.shift_left(part, i * width) if i else part
        total = part if total is None else e.or_(total, part)
    assert total is not None
    return e.bitcast(total, dtype)


def _complex_bitcast(e: Emitter, x: Value, dtype) -> Value:
    from .shape import stack

    if is_complex(x.dtype) and is_complex(dtype):
        return x
    if is_complex(x.dtype):
        return stack(e, [e.real(x), e.imag(x)], x.ndim)
    halves = [e.reshape(e.slice_axis(x, x.ndim - 1, i, i + 1), x.shape[:-1]) for i in range(2)]
    return e.complex(*halves)


def _reduce_precision(e: Emitter, eqn, x: Value):
    exponent, mantissa = eqn.params["exponent_bits"], eqn.params["mantissa_bits"]
    info = _layout(x.dtype)
    if exponent >= info[0] and mantissa >= info[1]:
        return x
    width = 8 * x.dtype.itemsize
    bits = e.bitcast(x, f"u{x.dtype.itemsize}")
    kind = bits.dtype.type
    if mantissa < info[1]:
        drop = info[1] - mantissa
        last = e.and_(e.shift_right_logical(bits, drop), 1)
        bias = e.add(last, kind((1 << (drop - 1)) - 1))
        keep = ((1 << width) - 1) ^ ((1 << drop) - 1)
        bits = e.and_(e.add(bits, bias), kind(keep))
    if exponent < info[0]:
        bits = _narrow_exponent(e, bits, info, exponent, mantissa)
    rounded = e.bitcast(bits, x.dtype)
    finite = e.is_finite(x)
    return e.select(finite, rounded, x)


def _narrow_exponent(e: Emitter, bits: Value, info, exponent: int, mantissa: int) -> Value:
    """Values above the narrow type's range become infinite, those below its normal range a signed zero."""
    width = 8 * bits.dtype.itemsize
    kind = bits.dtype.type
    sign_mask = 1 << (width - 1)
    exponent_mask = ((1 << info[0]) - 1) << info[1]
    bias, narrow_bias = (1 << (info[0] - 1)) - 1, (1 << (exponent - 1)) - 1
    top, bottom = (bias + narrow_bias) << info[1], (bias - narrow_bias) << info[1]
    sign, own = e.and_(bits, kind(sign_mask)), e.and_(bits, kind(exponent_mask))
    bits = e.select(e.gt(own, kind(top)), e.or_(sign, kind(exponent_mask)), bits)
    return e.select(e.le(own, kind(bottom)), sign, bits)


def _layout(dtype) -> tuple[int, int]:
    """(exponent bits, mantissa bits)"""
    import ml_dtypes

    info = ml_dtypes.finfo(dtype)
    return info.bits - 1 - info.nmant, info.nmant


def _mulhi(e: Emitter, eqn, x: Value, y: Value):
    x, y = spread(e, eqn, x, y)
    width = 8 * x.dtype.itemsize
    if width < 64:
        wide = np.dtype(f"{x.dtype.kind}8")
        product = e.mul(e.cast(x, wide), e.cast(y, wide))
        return e.cast(
            e.shift_right_arithmetic(product, width) if x.dtype.kind == "i" else e.shift_right_logical(product, width),
            x.dtype,
        )
    u, v = e.bitcast(x, np.uint64), e.bitcast(y, np.uint64)
    mask = np.uint64(0xFFFFFFFF)
    ul, uh = e.and_(u, mask), e.shift_right_logical(u, 32)
    vl, vh = e.and_(v, mask), e.shift_right_logical(v, 32)
    middle = e.add(e.mul(uh, vl), e.shift_right_logical(e.mul(ul, vl), 32))
    other = e.add(e.mul(ul, vh), e.and_(middle, mask))
    high = e.add(e.add(e.mul(uh, vh), e.shift_right_logical(middle, 32)), e.shift_right_logical(other, 32))
    if x.dtype.kind == "i":  # signed: take off the operand where the other is negative
        high = e.sub(high, e.select(e.lt(x, 0), v, 0))
        high = e.sub(high, e.select(e.lt(y, 0), u, 0))
    return e.bitcast(high, x.dtype)


_CUT = ("sqrt", "asin", "acos", "asinh", "acosh")
_NAN_OF = {
    "exp": "imag", "sinh": "imag", "cosh": "imag", "sin": "real", "cos": "real", "abs": "any", "log": "any", "sqrt": "any",
}  # fmt: skip


def _on_complex(e: Emitter, name: str, x: Value) -> Value:
    """A function of a complex x with XLA's answers where they are not those of C's Annex G.

    Beside a branch cut along an axis a negative zero counts as a positive one. NaN in both parts comes of a NaN in either part,
    or of a real or imaginary part that is not finite.
    """
    if not is_complex(x.dtype):
        return e.op(name, x)
    if name in _CUT:
        x = e.add(x, 0)
    out = e.op(name, x)
    if name not in _NAN_OF:
        return out
    part = None if _NAN_OF[name] == "any" else e.op(_NAN_OF[name], x)
    bad = e.ne(x, x) if part is None else e.not_(e.is_finite(part))
    if name == "abs" and jax_api.ABS_OF_INFINITY_IS_INFINITE:
        infinite = e.or_(*[e.eq(e.abs(e.op(half, x)), np.inf) for half in ("real", "imag")])
        return e.select(infinite, np.inf, e.select(bad, np.nan, out))
    return e.select(bad, complex(np.nan, np.nan) if is_complex(out.dtype) else np.nan, out)


def _logistic(e: Emitter, eqn, x: Value):
    if not is_complex(x.dtype):
        return e.op("logistic", x)
    return e.div(1, e.add(1, _on_complex(e, "exp", e.neg(x))))


for _name in _DIRECT:
    if _name in (*_CUT, *_NAN_OF):
        register(_name + "_p", "direct", lambda e, eqn, x, name=_name: _on_complex(e, name, x))
    else:
        register(_name + "_p", "direct", _logistic if _name == "logistic" else _direct(_name))
for _name in ("max", "min"):
    register(f"{_name}_p", "direct", lambda e, eqn, *xs, name=_name: extreme(e, name, *spread(e, eqn, *xs)))
register("add_any_p", "direct", _direct("add"))
register("eq_p", "direct", _direct("eq"))
register("ne_p", "direct", _direct("ne"))
register("square_p", "direct", _square)
for _name in ("eq", "le", "lt"):
    register(_name + "_to_p", "composed", _ordered(_name))
register("integer_pow_p", "composed", _integer_pow)
register("pow_p", "direct", _pow)
register("round_p", "direct", _round)
register("exp2_p", "composed", _exp2)
register("log2_p", "composed", _log2)
register("conj_p", "direct", _conj)
register("clamp_p", "composed", _clamp)
register("select_n_p", "direct", _select_n)
register("convert_element_type_p", "direct", _convert)
register("bitcast_convert_type_p", "direct", _bitcast)
register("reduce_precision_p", "composed", _reduce_precision)
register("mulhi_p", "composed", _mulhi)
