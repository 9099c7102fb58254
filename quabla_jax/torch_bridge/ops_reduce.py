"""Core ops along axes: reductions, running totals, order."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..lowering.program import Op
from .aten import Array, Aten, carrier, signed_view
from .ops_pointwise import cast

__all__ = ["ROWS"]

ROWS: dict[str, Any] = {}


def row(name: str):
    def register(function):
        ROWS[name] = function
        return function

    return register


def _axes(node: Op) -> list[int]:
    return [int(a) for a in node.params["axes"]]


def _bool_all(t: Aten, node: Op, x: Array) -> Array:
    return _over_bools(t, node, x, "aten::all")


def _bool_any(t: Aten, node: Op, x: Array) -> Array:
    return _over_bools(t, node, x, "aten::any")


def _over_bools(t: Aten, node: Op, x: Array, op: str) -> Array:
    return t.wrap(x, t.call(op, t.full(x), _axes(node), False), node.outputs[0].shape)


@row("reduce_sum")
def _reduce_sum(t: Aten, node: Op, x: Array) -> Array:
    if x.kind == "b":
        return _bool_any(t, node, x)
    return t.wrap(x, t.call("aten::sum", t.full(x), _axes(node), False, carrier(x.dtype)), node.outputs[0].shape)


@row("reduce_prod")
def _reduce_prod(t: Aten, node: Op, x: Array) -> Array:
    if x.kind == "b":
        return _bool_all(t, node, x)
    ref = t.full(x)
    for axis in sorted(_axes(node), reverse=True):
        ref = t.call("aten::prod", ref, axis, False, carrier(x.dtype))
    return t.wrap(x, ref, node.outputs[0].shape)


def identity(dtype: np.dtype, greatest: bool) -> Any:
    """What the reduction of nothing gives, in the carrier's range after ordering."""
    if dtype == np.bool_:
        return not greatest
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return int(np.array(info.min if greatest else info.max, dtype).view(signed_view(dtype)))
    return -np.inf if greatest else np.inf


def _extreme(name: str, greatest: bool) -> None:
    def run(t: Aten, node: Op, x: Array) -> Array:
        if x.kind == "b":
            return (_bool_any if greatest else _bool_all)(t, node, x)
        shape = node.outputs[0].shape
        if x.size == 0:
            return Array(shape, x.dtype, scalar=identity(x.dtype, greatest))
        op = "aten::amax" if greatest else "aten::amin"
        return t.ordered(t.wrap(x, t.call(op, t.full(t.ordered(x)), _axes(node), False), shape))

    ROWS[name] = run


_extreme("reduce_max", True)
_extreme("reduce_min", False)


def _bits(name: str, op: str, ones: bool, bools: Any) -> None:
    """A bitwise reduction: halves are combined until one is left."""

    def run(t: Aten, node: Op, x: Array) -> Array:
        if x.kind == "b" and bools is not None:
            return bools(t, node, x)
        shape = node.outputs[0].shape
        if x.size == 0:
            full = True if x.kind == "b" else 255 if x.dtype == np.uint8 else -1
            return Array(shape, x.dtype, scalar=full if ones else type(full)(0))
        ref = t.full(x)
        for axis in _axes(node):
            n = x.shape[axis]
            while n > 1:
                half = n // 2
                pair = t.call(op, t.axis_slice(ref, axis, 0, half), t.axis_slice(ref, axis, half, 2 * half))
                ref = pair if n % 2 == 0 else t.call("aten::cat", [pair, t.axis_slice(ref, axis, 2 * half, n)], axis)
                n = half + n % 2
        return t.reshape(Array(tuple(1 if i in _axes(node) else n for i, n in enumerate(x.shape)), x.dtype, ref), shape)

    ROWS[name] = run


_bits("reduce_and", "aten::bitwise_and", True, _bool_all)
_bits("reduce_or", "aten::bitwise_or", False, _bool_any)
_bits("reduce_xor", "aten::bitwise_xor", False, None)


def _arg(name: str) -> None:
    def run(t: Aten, node: Op, x: Array) -> Array:
        dtype = np.dtype(node.params["dtype"])
        shape = node.outputs[0].shape
        if x.shape[node.params["axis"]] == 0:
            return Array(shape, dtype, scalar=0)
        x = t.to(x, np.uint8) if x.kind == "b" else t.ordered(x)
        ref = t.call(f"aten::{name}", t.full(x), node.params["axis"], False)
        return cast(t, Array(shape, np.dtype(np.int64), ref), dtype)

    ROWS[name] = run


_arg("argmax")
_arg("argmin")


def _running(name: str, op: str, ordered: bool, bool_as: str) -> None:
    def run(t: Aten, node: Op, x: Array) -> Array:
        axis, reverse = node.params["axis"], node.params["reverse"]
        if x.size == 0:
            return x
        if x.kind == "b":
            # or is the greatest so far, and is the least
            ints = t.to(x, np.uint8)
            return cast(t, _along(t, ints, f"aten::{bool_as}", axis, reverse, True), np.bool_)
        if ordered:
            return t.ordered(_along(t, t.ordered(x), op, axis, reverse, True))
        return _along(t, x, op, axis, reverse, False)

    ROWS[name] = run


def _along(t: Aten, x: Array, op: str, axis: int, reverse: bool, with_indices: bool) -> Array:
    ref = t.full(x)
    if reverse:
        ref = t.call("aten::flip", ref, [axis])
    ref = t.call(op, ref, axis)[0] if with_indices else t.call(op, ref, axis, carrier(x.dtype))
    if reverse:
        ref = t.call("aten::flip", ref, [axis])
    return t.wrap(x, ref)


_running("cumsum", "aten::cumsum", False, "cummax")
_running("cumprod", "aten::cumprod", False, "cummin")
_running("cummax", "aten::cummax", True, "cummax")
_running("cummin", "aten::cummin", True, "cummin")


@row("argsort")
def _argsort(t: Aten, node: Op, x: Array) -> Array:
    x = t.to(x, np.uint8) if x.kind == "b" else t.ordered(x)
    ref = t.call("aten::argsort.stable", t.full(x), stable=True, dim=node.params["axis"], descending=False)
    return cast(t, Array(x.shape, np.dtype(np.int64), ref), np.dtype(node.params["dtype"]))
