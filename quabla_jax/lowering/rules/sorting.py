"""sort with many operands and keys, top_k."""

from __future__ import annotations

import numpy as np

from ..emitter import Emitter
from ..program import Value
from . import register
from .elementwise import is_complex, is_float, total_order


def _keys(e: Emitter, x: Value) -> list[Value]:
    """What orders x: complex numbers by real, then imaginary part."""
    return [e.real(x), e.imag(x)] if is_complex(x.dtype) else [x]


def index_dtype(n: int):
    return np.int32 if n < 2**31 else np.int64


def order_of(e: Emitter, keys: list[Value], axis: int) -> Value:
    """The stable permutation that sorts by keys[0], then keys[1] ...: one argsort a key, from the last."""
    dtype = np.dtype(index_dtype(keys[0].shape[axis]))
    order = e.op("argsort", keys[-1], axis=axis, dtype=dtype)
    for key in reversed(keys[:-1]):
        here = e.op("argsort", e.op("take_along_axis", key, order, axis=axis), axis=axis, dtype=dtype)
        order = e.op("take_along_axis", order, here, axis=axis)
    return order


def _sort(e: Emitter, eqn, *operands: Value):
    axis = eqn.params["dimension"]
    if operands[0].shape[axis] < 2 or operands[0].size == 0:
        return operands
    keys = [k for x in operands[: eqn.params["num_keys"]] for k in _keys(e, x)]
    order = order_of(e, keys, axis)
    return [e.op("take_along_axis", x, order, axis=axis) for x in operands]


def descending(e: Emitter, x: Value) -> Value:
    """A key whose ascending order is x's descending one: floats in XLA's total order, NaN > inf > 0 > -0 > -inf > -NaN."""
    return e.not_(total_order(e, x) if is_float(x.dtype) else x)


def top_k(e: Emitter, x: Value, k: int, axis: int) -> list[Value]:
    """The k greatest along an axis, greatest first, ties by position; and their int32 positions."""
    dtype = np.dtype(index_dtype(x.shape[axis]))
    order = e.op("argsort", descending(e, x), axis=axis, dtype=dtype)
    order = e.slice_axis(order, axis, 0, k)
    return [e.op("take_along_axis", x, order, axis=axis), e.cast(order, np.int32)]


def _top_k(e: Emitter, eqn, x: Value):
    return top_k(e, x, eqn.params["k"], eqn.params.get("axis", x.ndim - 1) % x.ndim)


def _approx_top_k(e: Emitter, eqn, x: Value):
    """The exact answer: recall 1 meets every recall target. Without aggregation XLA's CPU result has k entries too."""
    p = eqn.params
    axis = p["reduction_dimension"] % x.ndim
    k = eqn.outvars[0].aval.shape[axis]
    if p["is_max_k"]:
        return top_k(e, x, k, axis)
    order = e.slice_axis(e.op("argsort", x, axis=axis, dtype=np.dtype(np.int32)), axis, 0, k)
    return [e.op("take_along_axis", x, order, axis=axis), order]


register("sort_p", "composed", _sort)
register("top_k_p", "composed", _top_k)
register("approx_top_k_p", "composed", _approx_top_k)
