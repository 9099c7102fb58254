"""8-bit floats and integers of 2 and 4 bits on MLX: rounding and wrapping of their carriers, and what is refused."""

from __future__ import annotations

import math

import mlx.core as mx
import numpy as np

from ..lowering.core_ops import CORE_OPS
from ..lowering.narrow import CARRIERS, FORMATS, WIDTHS, Format
from ..lowering.program import Op
from .target import scalar_like as lit

__all__ = ["prepared", "refused", "settled"]


def _moves(node: Op) -> bool:
    """Whether the op only moves values about."""
    if node.name.startswith("scatter"):
        return node.params["kind"] == "set"
    return node.name == "select" or (CORE_OPS[node.name].family == "shape" and node.name != "iota")


def refused(node: Op) -> str | None:
    """Why an op cannot run on carried values; None where it can, or where there are none."""
    dtypes = {v.dtype for v in (*node.inputs, *node.outputs) if v.dtype in CARRIERS}
    if dtypes and node.name in ("bitcast", "nextafter"):
        return f"MLX has no dtype {dtypes.pop()}: its values are carried in a wider one, whose bits are others"
    small = [v.dtype for v in node.outputs if v.dtype in WIDTHS]
    if small and not _moves(node) and node.name != "cast":
        return f"MLX has no arithmetic of {small[0]}; cast to int8 first"
    return None


def prepared(x: mx.array, dtype: np.dtype) -> mx.array:
    """What a cast to a carried dtype is made of: floats within an integer's range; float64 as a float32 that rounds alike."""
    if dtype in WIDTHS:
        if x.dtype not in (mx.float16, mx.bfloat16, mx.float32, mx.float64):
            return x
        bits, signed = WIDTHS[dtype]
        low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
        return mx.where(mx.isnan(x), lit(x, 0), mx.clip(x, lit(x, low), lit(x, high)))
    return _to_odd(x) if x.dtype == mx.float64 else x


def _to_odd(x: mx.array) -> mx.array:
    """float32 toward zero, its last bit set where that loses something: rounding it further is rounding x once."""
    size = mx.abs(x)
    near = size.astype(mx.float32)
    back = near.astype(mx.float64)
    bits = near.view(mx.uint32) - (back > size).astype(mx.uint32)
    bits = bits | ((back != size) & (mx.isfinite(size))).astype(mx.uint32)
    return mx.where(mx.isnan(x), near, _signed(bits.view(mx.float32), _negative(x.astype(mx.float32))))


def _negative(x: mx.array) -> mx.array:
    """The sign bit of a float32, that of -0 too."""
    return mx.right_shift(x.view(mx.uint32), mx.array(31, dtype=mx.uint32)) != mx.array(0, dtype=mx.uint32)


def _signed(size: mx.array, negative: mx.array) -> mx.array:
    return mx.where(negative, -size, size)


def settled(node: Op, arrays: tuple[mx.array, ...]) -> tuple[mx.array, ...]:
    """The results of an op, those of carried dtypes rounded or wrapped to values that the narrow dtype has."""
    if _moves(node):
        return arrays
    return tuple(_settle(x, v.dtype) if v.dtype in CARRIERS else x for x, v in zip(arrays, node.outputs))


def _settle(x: mx.array, dtype: np.dtype) -> mx.array:
    if dtype in FORMATS:
        return _rounded(x, FORMATS[dtype])
    bits, signed = WIDTHS[dtype]
    if not signed:
        return x & lit(x, 2**bits - 1)
    up = lit(x, 8 - bits)
    return mx.right_shift(mx.left_shift(x, up), up)


def _rounded(x: mx.array, form: Format) -> mx.array:
    """float32 to the nearest value of a format, ties to even; beyond the greatest inf, or NaN where there is no inf."""
    size = mx.abs(x)
    exponent = mx.right_shift(size.view(mx.uint32), mx.array(23, dtype=mx.uint32)).astype(mx.int32) - 127
    exponent = mx.maximum(exponent, mx.array(form.exponent, dtype=mx.int32))
    step = mx.left_shift(exponent + (127 - form.mantissa), mx.array(23, dtype=mx.int32)).view(mx.float32)
    near = mx.round(size / step) * step
    beyond = math.inf if form.infinite else math.nan
    near = mx.where(near > lit(near, form.greatest), lit(near, beyond), near)
    negative = _negative(x)
    if not form.signed_zero:
        negative = negative & (near != lit(near, 0))
    return _signed(near, negative)
