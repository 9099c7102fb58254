"""Shape, indexing and scatter core ops. MLX checks no index: every start is clamped before it gets there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import numpy as np

from . import convert
from .ops_elementwise import is_float
from .target import Context, OpTable
from .target import scalar_like as lit

__all__ = ["TABLE", "pad_array"]

TABLE = OpTable()


@TABLE.row("reshape")
def _reshape(c: Context, x: mx.array, shape: Sequence[int]) -> mx.array:
    return mx.reshape(x, shape)


@TABLE.row("transpose")
def _transpose(c: Context, x: mx.array, perm: Sequence[int]) -> mx.array:
    return mx.transpose(x, perm)


@TABLE.row("broadcast")
def _broadcast(c: Context, x: mx.array, shape: Sequence[int], dims: Sequence[int]) -> mx.array:
    offset = len(shape) - x.ndim
    if any(d != i + offset for i, d in enumerate(dims)):
        view = [1] * len(shape)
        for size, dim in zip(x.shape, dims):
            view[dim] = size
        x = mx.reshape(x, view)
    return mx.broadcast_to(x, shape)


@TABLE.row("slice")
def _slice(c: Context, x: mx.array, start: Sequence[int], limit: Sequence[int], stride: Sequence[int]) -> mx.array:
    return x[tuple(slice(*triple) for triple in zip(start, limit, stride))]


def pad_array(
    x: mx.array, value: mx.array, low: Sequence[int], high: Sequence[int], interior: Sequence[int]
) -> mx.array:
    """XLA's pad: interior padding first, then edges, where negative edges crop."""
    if any(interior):
        spread = [n + max(n - 1, 0) * i for n, i in zip(x.shape, interior)]
        out = mx.broadcast_to(value, spread)
        if x.size:
            where = tuple(slice(None, None, i + 1) for i in interior)
            out[where] = x
        x = out
    widths = [(max(lo, 0), max(hi, 0)) for lo, hi in zip(low, high)]
    if any(map(any, widths)):
        grown = [n + lo + hi for n, (lo, hi) in zip(x.shape, widths)]
        x = mx.pad(x, widths, constant_values=value) if x.size else mx.broadcast_to(value, grown)
    if any(lo < 0 or hi < 0 for lo, hi in zip(low, high)):
        x = x[tuple(slice(max(-lo, 0), max(n - max(-hi, 0), 0)) for n, lo, hi in zip(x.shape, low, high))]
    return x


@TABLE.row("pad")
def _pad(c: Context, x: mx.array, value: mx.array, low: Any, high: Any, interior: Any) -> mx.array:
    return pad_array(x, value, low, high, interior)


@TABLE.row("concat")
def _concat(c: Context, *xs: mx.array, axis: int) -> mx.array:
    return mx.concatenate(list(xs), axis=axis)


@TABLE.row("rev")
def _rev(c: Context, x: mx.array, axes: Sequence[int]) -> mx.array:
    return x[tuple(slice(None, None, -1) if i in axes else slice(None) for i in range(x.ndim))] if x.size else x


@TABLE.row("iota")
def _iota(c: Context, dtype: Any, shape: Sequence[int], axis: int) -> mx.array:
    wanted = c.dtype(dtype)
    n = shape[axis]
    if wanted == mx.complex64 or convert.np_dtype(wanted).itemsize <= 2:
        line = mx.arange(n, dtype=mx.int32).astype(wanted)
    else:
        line = mx.arange(n, dtype=wanted)
    return mx.broadcast_to(mx.reshape(line, [n if i == axis else 1 for i in range(len(shape))]), shape)


# dynamic starts


def _corner(
    c: Context, x: mx.array, starts: Sequence[mx.array], sizes: Sequence[int], first: int
) -> tuple[list[int], list[int], list[mx.array]]:
    """(static starts by axis, axes that stay dynamic, their clamped starts)."""
    fixed = [0] * x.ndim
    axes: list[int] = []
    moving: list[mx.array] = []
    for axis, (start, size) in enumerate(zip(starts, sizes)):
        room = x.shape[axis] - size
        known = c.value(first + axis)
        if room == 0:
            continue
        if known is not None:
            fixed[axis] = min(max(int(known), 0), room)
            continue
        room = min(room, int(np.iinfo(convert.np_dtype(start.dtype)).max))
        if convert.np_dtype(start.dtype).kind == "i":
            start = mx.maximum(start, lit(start, 0))
        axes.append(axis)
        moving.append(mx.minimum(start, lit(start, room)).astype(mx.int32))
    return fixed, axes, moving


def _stacked(moving: Sequence[mx.array]) -> mx.array:
    return mx.reshape(moving[0], (1,)) if len(moving) == 1 else mx.stack(list(moving))


@TABLE.row("dynamic_slice")
def _dynamic_slice(c: Context, x: mx.array, *starts: mx.array, sizes: Sequence[int]) -> mx.array:
    if 0 in sizes:
        return mx.zeros(sizes, dtype=x.dtype)
    fixed, axes, moving = _corner(c, x, starts, sizes, 1)
    still = tuple(slice(None) if i in axes else slice(at, at + size) for i, (at, size) in enumerate(zip(fixed, sizes)))
    if any(s != slice(None) and size != n for s, size, n in zip(still, sizes, x.shape)):
        x = x[still]
    if not axes:
        return x
    return mx.slice(x, _stacked(moving), axes, list(sizes))


@TABLE.row("dynamic_update_slice")
def _dynamic_update_slice(c: Context, x: mx.array, update: mx.array, *starts: mx.array) -> mx.array:
    if update.size == 0:
        return x
    if update.shape == x.shape:
        return update
    fixed, axes, moving = _corner(c, x, starts, update.shape, 2)
    for axis, at in enumerate(fixed):
        if axis not in axes and (at or not axes):
            axes.append(axis)
            moving.append(mx.array(at, dtype=mx.int32))
    return mx.slice_update(x, update, _stacked(moving), axes)


# gathers and scatters


@TABLE.row("take")
def _take(c: Context, x: mx.array, indices: mx.array, axis: int) -> mx.array:
    if x.size == 0 or indices.size == 0:
        return mx.zeros((*x.shape[:axis], indices.size, *x.shape[axis + 1 :]), dtype=x.dtype)
    return mx.take(x, indices, axis=axis)


@TABLE.row("gather_flat")
def _gather_flat(c: Context, x: mx.array, indices: mx.array) -> mx.array:
    return mx.take(x, indices, axis=0) if indices.size else mx.zeros(indices.shape, dtype=x.dtype)


@TABLE.row("take_along_axis")
def _take_along_axis(c: Context, x: mx.array, indices: mx.array, axis: int) -> mx.array:
    if indices.size == 0:
        return mx.zeros(indices.shape, dtype=x.dtype)
    return mx.take_along_axis(x, indices, axis=axis)


@TABLE.row("scatter_flat", "scatter_rows")
def _scatter(c: Context, x: mx.array, indices: mx.array, updates: mx.array, kind: str, unique: bool) -> mx.array:
    if updates.size == 0 or x.size == 0:
        return x
    if kind == "set":
        if not (unique or c.target.cpu):
            return _set_in_order(x, indices, updates)
        out = mx.array(x)  # a new handle: assignment rebinds it and leaves x alone
        out[indices] = updates
        return out
    if x.dtype == mx.bool_:
        wide = _scatter(
            c,
            x.astype(mx.int32),
            indices,
            updates.astype(mx.int32),
            {"add": "max", "mul": "min"}.get(kind, kind),
            unique,
        )
        return wide.astype(mx.bool_)
    at = x.at[indices]
    out = {"add": at.add, "mul": at.multiply, "max": at.maximum, "min": at.minimum}[kind](updates)
    if kind in ("max", "min") and is_float(x):  # MLX drops a NaN that meets a number
        bad = mx.isnan(x).astype(mx.int32).at[indices].maximum(mx.isnan(updates).astype(mx.int32))
        out = mx.where(bad > 0, lit(x, math.nan), out)
    return out


def _set_in_order(x: mx.array, indices: mx.array, updates: mx.array) -> mx.array:
    """Last update of a row wins, on a device that scatters in no order: the winners alone are written."""
    order = mx.arange(indices.size, dtype=mx.int32)
    last = mx.full((x.shape[0],), -1, dtype=mx.int32).at[indices].maximum(order)
    hit = last >= 0
    rows = mx.take(updates, mx.maximum(last, 0), axis=0)
    return mx.where(mx.reshape(hit, (-1,) + (1,) * (x.ndim - 1)), rows, x)
