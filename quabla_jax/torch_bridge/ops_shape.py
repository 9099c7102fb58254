"""Core ops that move elements: views, padding, slices at runtime positions, gathers and scatters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..lowering.program import Op
from .aten import CARRIER, Array, Aten, signed_view
from .ops_pointwise import cast

__all__ = ["ROWS"]

ROWS: dict[str, Any] = {}

CONSTANT_IOTA = 4096  # longer lines are computed when the graph runs


def row(*names: str):
    def register(function):
        for name in names:
            assert name not in ROWS, name
            ROWS[name] = function
        return function

    return register


@row("reshape")
def _reshape(t: Aten, node: Op, x: Array) -> Array:
    return t.reshape(x, node.params["shape"])


@row("transpose")
def _transpose(t: Aten, node: Op, x: Array) -> Array:
    perm = [int(p) for p in node.params["perm"]]
    return t.wrap(x, t.call("aten::permute", t.full(x), perm), [x.shape[p] for p in perm])


@row("broadcast")
def _broadcast(t: Aten, node: Op, x: Array) -> Array:
    shape, dims = tuple(node.params["shape"]), node.params["dims"]
    if x.scalar is not None and x.ref is None:
        return t.spread(x, shape)
    aligned = [1] * len(shape)
    source = (1,) * (x.ndim - len(x.stored)) + x.stored
    for size, dim in zip(source, dims):
        aligned[dim] = size
    while aligned and aligned[0] == 1:  # leading axes of one broadcast by themselves
        aligned.pop(0)
    ref = t.loose(x)
    if tuple(aligned) != x.stored:
        ref = t.call("aten::reshape", ref, aligned)
    out = Array(shape, x.dtype, ref, tuple(aligned))
    out.scalar, out.span = x.scalar, x.span
    return out


@row("slice")
def _slice(t: Aten, node: Op, x: Array) -> Array:
    ref = t.full(x)
    for axis, (start, limit, stride) in enumerate(
        zip(node.params["start"], node.params["limit"], node.params["stride"])
    ):
        if (start, limit, stride) != (0, x.shape[axis], 1):
            ref = t.axis_slice(ref, axis, start, max(limit, start), stride)
    return t.wrap(x, ref, node.outputs[0].shape)


@row("rev")
def _rev(t: Aten, node: Op, x: Array) -> Array:
    return t.wrap(x, t.call("aten::flip", t.full(x), [int(a) for a in node.params["axes"]]))


@row("concat")
def _concat(t: Aten, node: Op, *xs: Array) -> Array:
    return t.wrap(xs[0], t.call("aten::cat", [t.full(x) for x in xs], node.params["axis"]), node.outputs[0].shape)


@row("iota")
def _iota(t: Aten, node: Op) -> Array:
    shape, axis, dtype = node.params["shape"], node.params["axis"], np.dtype(node.params["dtype"])
    length = shape[axis]
    stored = (length,) + (1,) * (len(shape) - axis - 1)
    if length <= CONSTANT_IOTA:
        line = np.arange(length).astype(dtype).view(signed_view(dtype))
        return Array(tuple(shape), dtype, t.constant(line.reshape(stored)), stored)
    wide = Array((length,), np.dtype(np.int64), t.call("aten::arange", length, 4, None, None, None))
    return Array(tuple(shape), dtype, t.full(t.reshape(cast(t, wide, dtype), stored)), stored)


# padding


def _pads(low: Sequence[int], high: Sequence[int]) -> list[int]:
    """constant_pad_nd's order: last axis first, (low, high) each."""
    return [n for pair in zip(reversed(low), reversed(high)) for n in pair]


def _filled(t: Aten, ref: Any, low: Sequence[int], high: Sequence[int], value: Array, old: Sequence[int]) -> Any:
    """`ref` (of shape `old`) with low and high (not negative) elements of `value` around."""
    if not any(low) and not any(high):
        return ref
    if value.scalar is not None:
        number = int(value.scalar) if isinstance(value.scalar, bool) else value.scalar
        return t.call("aten::constant_pad_nd", ref, _pads(low, high), number)
    inside = np.pad(np.ones(old, bool), list(zip(low, high)))
    padded = t.call("aten::constant_pad_nd", ref, _pads(low, high), 0)
    return t.call("aten::where", t.constant(inside), padded, t.loose(value))


def pad(t: Aten, x: Array, value: Array, low: Sequence[int], high: Sequence[int], interior: Sequence[int]) -> Array:
    """XLA's padding: between elements, then around; negative amounts crop afterwards."""
    ref, sizes = t.full(x), list(x.shape)
    for axis, between in enumerate(interior):
        if between and sizes[axis] > 1:
            # a new axis after this one, filled up to 1 + between, and merged into it: the last filling is cut off
            grown = [*sizes[: axis + 1], 1, *sizes[axis + 1 :]]
            ref = t.call("aten::reshape", ref, grown)
            highs = [between if i == axis + 1 else 0 for i in range(len(grown))]
            ref = _filled(t, ref, [0] * len(grown), highs, value, grown)
            sizes[axis] *= 1 + between
            ref = t.axis_slice(t.call("aten::reshape", ref, sizes), axis, 0, sizes[axis] - between)
            sizes[axis] -= between
    grow_low, grow_high = [max(n, 0) for n in low], [max(n, 0) for n in high]
    ref = _filled(t, ref, grow_low, grow_high, value, sizes)
    shape = []
    for axis, (lo, hi, n) in enumerate(zip(low, high, sizes)):
        length = n + max(lo, 0) + max(hi, 0)
        start, stop = max(-lo, 0), max(length - max(-hi, 0), 0)
        if (start, stop) != (0, length):
            ref = t.axis_slice(ref, axis, min(start, length), max(stop, min(start, length)))
        shape.append(max(stop - start, 0))
    return t.wrap(x, ref, shape)


@row("pad")
def _pad(t: Aten, node: Op, x: Array, value: Array) -> Array:
    return pad(t, x, value, node.params["low"], node.params["high"], node.params["interior"])


# slices at runtime positions


@row("dynamic_slice")
def _dynamic_slice(t: Aten, node: Op, x: Array, *starts: Array) -> Array:
    ref = t.full(x)
    for axis, (start, size) in enumerate(zip(starts, node.params["sizes"])):
        if size == x.shape[axis]:
            continue
        if start.number is not None:
            begin = min(max(_true_number(start), 0), x.shape[axis] - size)
            ref = t.axis_slice(ref, axis, begin, begin + size)
        else:
            ref = t.narrow(ref, axis, as_index(t, start), size, x.shape[axis])
    return t.wrap(x, ref, node.params["sizes"])


def _true_number(start: Array) -> int:
    """An integer constant's value, not its carrier's."""
    return int(np.asarray(start.number, signed_view(start.dtype)).view(start.dtype))


def as_index(t: Aten, start: Array) -> Array:
    """A start whose order torch knows: unsigned ones as int64, beyond its range as the greatest."""
    if start.dtype.name == "uint64":
        bits = Array(start.shape, np.dtype(np.int64), t.loose(start), start.stored)
        negative = t.pointwise("aten::lt", bits, t.number(bits, 0), dtype=bool, numbers=1)
        return t.where(negative, t.number(bits, 2**63 - 1), bits)
    return cast(t, start, np.int64) if start.dtype.name in CARRIER else start


@row("dynamic_update_slice")
def _dynamic_update_slice(t: Aten, node: Op, x: Array, update: Array, *starts: Array) -> Array:
    axes = [i for i in range(x.ndim) if update.shape[i] != x.shape[i]]
    if not axes or 0 in update.shape:
        return x if 0 in update.shape else update
    starts = tuple(as_index(t, s) if s.number is None else s for s in starts)

    def put(ref: Any, axes: list[int]) -> Any:
        """The update put into `ref` along axes[0], the inner part made first along the rest."""
        axis = axes[0]
        size, extent, start = update.shape[axis], x.shape[axis], starts[axis]
        known = None if start.number is None else min(max(_true_number(start), 0), extent - size)
        if len(axes) == 1:
            inner = t.full(update)
        elif known is not None:
            inner = put(t.axis_slice(ref, axis, known, known + size), axes[1:])
        else:
            inner = put(t.narrow(ref, axis, start, size, extent), axes[1:])
        if known is not None:
            return t.call("aten::slice_scatter", ref, inner, axis, known, known + size, 1)
        return t.replace(ref, inner, axis, start, size, extent)

    return t.wrap(x, put(t.full(x), axes))


# gathers


@row("take")
def _take(t: Aten, node: Op, x: Array, indices: Array) -> Array:
    ref = t.call("aten::index_select", t.full(x), node.params["axis"], t.full(indices))
    return t.wrap(x, ref, node.outputs[0].shape)


@row("gather_flat")
def _gather_flat(t: Aten, node: Op, x: Array, indices: Array) -> Array:
    line = t.reshape(indices, (indices.size,))
    picked = t.wrap(x, t.call("aten::index_select", t.full(x), 0, t.full(line)), line.shape)
    return t.reshape(picked, indices.shape)


@row("take_along_axis")
def _take_along_axis(t: Aten, node: Op, x: Array, indices: Array) -> Array:
    axis = node.params["axis"]
    shape = [x.shape[axis] if i == axis else n for i, n in enumerate(indices.shape)]
    operand = t.full(x)
    if tuple(shape) != x.shape:
        operand = t.call("aten::expand", operand, shape)
    ref = t.call("aten::gather", operand, axis, t.full(cast(t, indices, np.int64)), False)
    return t.wrap(x, ref, node.outputs[0].shape)


# scatters


def _last_writer(t: Aten, x: Array, indices: Array, updates: Array) -> Array:
    """Set with repeated indices: every row finds the last update meant for it, then takes that."""
    n, rows = indices.size, x.shape[0]
    order = t.constant(np.arange(n, dtype=np.int64))
    none = t.call("aten::full", [rows], -1, 4, None, None, None)
    long = np.dtype(np.int64)
    winner = Array((rows,), long, t.call("aten::scatter_reduce", none, 0, t.full(indices), order, "amax", True))
    written = t.pointwise("aten::ge", winner, t.number(winner, 0), dtype=bool, numbers=1)
    safe = t.pointwise("aten::clamp_min", winner, t.number(winner, 0), numbers=1)
    picked = t.wrap(x, t.call("aten::index_select", t.full(updates), 0, t.full(safe)))
    mask = t.reshape(written, (rows,) + (1,) * (x.ndim - 1))
    mask = Array(x.shape, mask.dtype, t.loose(mask), mask.shape)
    return t.where(mask, picked, x)


REDUCE = {"mul": "prod", "min": "amin", "max": "amax"}


@row("scatter_flat", "scatter_rows")
def _scatter(t: Aten, node: Op, x: Array, indices: Array, updates: Array) -> Array:
    kind = node.params["kind"]
    if 0 in updates.shape:
        return x
    if x.kind == "b" and kind != "set":
        # or is the greatest, and is the least
        as_ints = [t.to(v, np.uint8) for v in (x, updates)]
        how = "amax" if kind in ("add", "max") else "amin"
        return cast(t, _combine(t, as_ints[0], indices, as_ints[1], how), np.bool_)
    indices = cast(t, indices, np.int64)
    if kind == "set":
        if not node.params["unique"] and indices.size > 1:
            return _last_writer(t, x, indices, updates)
        return t.wrap(x, t.call("aten::index_copy", t.full(x), 0, t.full(indices), t.full(updates)))
    if kind == "add":
        return t.wrap(x, t.call("aten::index_add", t.full(x), 0, t.full(indices), t.full(updates), 1))
    if kind == "mul":
        return _combine(t, x, indices, updates, "prod")
    return t.ordered(_combine(t, t.ordered(x), indices, t.ordered(updates), REDUCE[kind]))


def _combine(t: Aten, x: Array, indices: Array, updates: Array, how: str) -> Array:
    indices = cast(t, indices, np.int64)
    if x.ndim > 1:
        column = t.reshape(indices, (indices.size,) + (1,) * (x.ndim - 1))
        indices = Array(updates.shape, indices.dtype, t.loose(column), column.shape)
    ref = t.call("aten::scatter_reduce", t.full(x), 0, t.full(indices), t.full(updates), how, True)
    return t.wrap(x, ref)


@row("windows")
def _windows(t: Aten, node: Op, x: Array) -> Array:
    shape = node.outputs[0].shape
    sizes, strides, dilation = (node.params[k] for k in ("sizes", "strides", "dilation"))
    if 0 in shape:
        return t.number(Array(shape, x.dtype), False if x.kind == "b" else 0)
    ref = t.full(x)
    for axis, (size, stride, spread) in enumerate(zip(sizes, strides, dilation)):
        ref = t.call("aten::unfold", ref, axis, (size - 1) * spread + 1, stride)
        if spread > 1:
            ref = t.axis_slice(ref, -1, 0, 2**63 - 1, spread)
    return t.wrap(x, ref, shape)
