"""Reductions, cumulative ops, sorting and windows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx
import numpy as np

from . import convert
from .target import Context, OpTable
from .target import scalar_like as lit

__all__ = ["TABLE", "blocked_sum"]

TABLE = OpTable()

BLOCK = 64
"""Longest run of floats that MLX's CPU kernel may add up in one go: it adds one after the other, so the error of a
long sum grows with its length (1 % at a million float32s). Longer sums go block by block, as XLA's do in effect."""

_HALVES = (mx.float16, mx.bfloat16)


def _least(dtype: mx.Dtype) -> Any:
    np_dtype = convert.np_dtype(dtype)
    return False if dtype == mx.bool_ else int(np.iinfo(np_dtype).min) if np_dtype.kind in "iu" else -math.inf


def _greatest(dtype: mx.Dtype) -> Any:
    np_dtype = convert.np_dtype(dtype)
    return True if dtype == mx.bool_ else int(np.iinfo(np_dtype).max) if np_dtype.kind in "iu" else math.inf


def _empty(x: mx.array, axes: Sequence[int], identity: Any) -> mx.array:
    return mx.broadcast_to(lit(x, identity), [n for i, n in enumerate(x.shape) if i not in axes])


def _fold(function: Callable[..., mx.array], x: mx.array, axes: Sequence[int]) -> mx.array:
    out = function(x, axis=tuple(axes))
    return out if out.dtype == x.dtype else out.astype(x.dtype)


def blocked_sum(x: mx.array, axes: Sequence[int]) -> mx.array:
    """Sum of floats over axes, no run longer than BLOCK."""
    count = math.prod(x.shape[i] for i in axes)
    if count <= BLOCK:
        return mx.sum(x, axis=tuple(axes))
    kept = [i for i in range(x.ndim) if i not in axes]
    rows = [x.shape[i] for i in kept]
    if kept and kept[-1] > min(axes):
        x = mx.transpose(x, [*kept, *axes])
    x = mx.reshape(x, [*rows, count])
    while count > BLOCK:
        blocks = -(-count // BLOCK)
        if blocks * BLOCK != count:
            x = mx.pad(x, [(0, 0)] * len(rows) + [(0, blocks * BLOCK - count)])
        x = mx.sum(mx.reshape(x, [*rows, blocks, BLOCK]), axis=-1)
        count = blocks
    return mx.sum(x, axis=-1)


@TABLE.row("reduce_sum")
def _reduce_sum(c: Context, x: mx.array, axes: Sequence[int]) -> mx.array:
    if x.size == 0:
        return _empty(x, axes, 0)
    if x.dtype == mx.bool_:
        return mx.any(x, axis=tuple(axes))
    if c.target.cpu and x.dtype in (mx.float32, mx.float64, mx.complex64):
        return blocked_sum(x, axes)
    if x.dtype in _HALVES:
        wide = x.astype(mx.float32)
        return (blocked_sum(wide, axes) if c.target.cpu else mx.sum(wide, axis=tuple(axes))).astype(x.dtype)
    return _fold(mx.sum, x, axes)


@TABLE.row("reduce_prod")
def _reduce_prod(c: Context, x: mx.array, axes: Sequence[int]) -> mx.array:
    if x.size == 0:
        return _empty(x, axes, 1)
    if x.dtype == mx.bool_:
        return mx.all(x, axis=tuple(axes))
    if x.dtype in _HALVES:
        return mx.prod(x.astype(mx.float32), axis=tuple(axes)).astype(x.dtype)
    return _fold(mx.prod, x, axes)


@TABLE.row("reduce_max")
def _reduce_max(c: Context, x: mx.array, axes: Sequence[int]) -> mx.array:
    if x.size == 0:
        return _empty(x, axes, _least(x.dtype))
    return mx.any(x, axis=tuple(axes)) if x.dtype == mx.bool_ else _fold(mx.max, x, axes)


@TABLE.row("reduce_min")
def _reduce_min(c: Context, x: mx.array, axes: Sequence[int]) -> mx.array:
    if x.size == 0:
        return _empty(x, axes, _greatest(x.dtype))
    return mx.all(x, axis=tuple(axes)) if x.dtype == mx.bool_ else _fold(mx.min, x, axes)


def _halving(function: Callable[..., mx.array], x: mx.array, axes: Sequence[int], identity: Any) -> mx.array:
    """A reduction that MLX does not have, by folding one half onto the other."""
    for axis in sorted(axes, reverse=True):
        while x.shape[axis] > 1:
            half, odd = divmod(x.shape[axis], 2)
            low, high, *rest = mx.split(x, [half, 2 * half] if odd else [half], axis=axis)
            x = mx.concatenate([function(low, high), *rest], axis=axis) if odd else function(low, high)
        x = mx.squeeze(x, axis)
    return x


def _bitwise(
    name: str, function: Callable[..., mx.array], on_bool: Callable[..., mx.array] | None, identity: int
) -> None:
    def run(c: Context, x: mx.array, axes: Sequence[int]) -> mx.array:
        if x.size == 0:
            return _empty(x, axes, bool(identity) if x.dtype == mx.bool_ else identity)
        if x.dtype == mx.bool_:
            if on_bool is not None:
                return on_bool(x, axis=tuple(axes))
            return (mx.sum(x.astype(mx.int32), axis=tuple(axes)) & mx.array(1)).astype(mx.bool_)
        return _halving(function, x, axes, identity)

    TABLE.row(name)(run)


def _all_ones(x: mx.array) -> int:
    kind = convert.np_dtype(x.dtype)
    return -1 if kind.kind == "i" else int(np.iinfo(kind).max)


@TABLE.row("reduce_and")
def _reduce_and(c: Context, x: mx.array, axes: Sequence[int]) -> mx.array:
    if x.dtype == mx.bool_:
        return mx.all(x, axis=tuple(axes)) if x.size else _empty(x, axes, True)
    return _halving(mx.bitwise_and, x, axes, -1) if x.size else _empty(x, axes, _all_ones(x))


_bitwise("reduce_or", mx.bitwise_or, mx.any, 0)
_bitwise("reduce_xor", mx.bitwise_xor, None, 0)


def _arg(name: str, function: Callable[..., mx.array]) -> None:
    def run(c: Context, x: mx.array, axis: int, dtype: Any) -> mx.array:
        if x.dtype == mx.bool_:
            x = x.astype(mx.uint8)
        return function(x, axis=axis).astype(c.dtype(dtype))

    TABLE.row(name)(run)


_arg("argmax", mx.argmax)
_arg("argmin", mx.argmin)


def _cumulative(name: str, function: Callable[..., mx.array]) -> None:
    def run(c: Context, x: mx.array, axis: int, reverse: bool) -> mx.array:
        if x.size == 0:
            return x
        wide = x.astype(mx.float32) if x.dtype in _HALVES else x  # MLX's half kernels lose NaN in cummax
        if x.dtype == mx.bool_:
            wide = x.astype(mx.int32)
        if name == "cumsum" and c.target.cpu and wide.dtype in (mx.float32, mx.float64, mx.complex64):
            return _blocked_cumsum(wide, axis, reverse).astype(x.dtype)
        return function(wide, axis=axis, reverse=reverse).astype(x.dtype)

    TABLE.row(name)(run)


def _blocked_cumsum(x: mx.array, axis: int, reverse: bool) -> mx.array:
    """Running sums of floats, no run longer than 16 BLOCKs: within blocks, then what the blocks before them add up to."""
    count, run = x.shape[axis], 16 * BLOCK
    if count <= run:
        return mx.cumsum(x, axis=axis, reverse=reverse)
    x = mx.moveaxis(x, axis, -1)
    blocks = -(-count // run)
    padded = mx.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, blocks * run - count)])
    inner = mx.cumsum(mx.unflatten(padded, -1, (blocks, run)), axis=-1, reverse=reverse)
    outer = _blocked_cumsum(inner[..., 0 if reverse else -1], x.ndim - 1, reverse)
    nothing = mx.zeros((*x.shape[:-1], 1), dtype=x.dtype)
    before = [outer[..., 1:], nothing] if reverse else [nothing, outer[..., :-1]]
    total = mx.flatten(inner + mx.expand_dims(mx.concatenate(before, axis=-1), -1), -2, -1)[..., :count]
    return mx.moveaxis(total, -1, axis)


for _name in ("cumsum", "cumprod", "cummax", "cummin"):
    _cumulative(_name, getattr(mx, _name))


@TABLE.row("argsort")
def _argsort(c: Context, x: mx.array, axis: int, dtype: Any) -> mx.array:
    if x.dtype == mx.bool_:
        x = x.astype(mx.uint8)
    if x.size == 0:
        return mx.zeros(x.shape, dtype=c.dtype(dtype))
    return mx.argsort(x, axis=axis).astype(c.dtype(dtype))


@TABLE.row("windows")
def _windows(
    c: Context, x: mx.array, sizes: Sequence[int], strides: Sequence[int], dilation: Sequence[int]
) -> mx.array:
    counts = [
        max(0, (n - ((size - 1) * d + 1)) // s + 1) if size else n
        for n, size, s, d in zip(x.shape, sizes, strides, dilation)
    ]
    if 0 in counts or 0 in sizes:
        return mx.zeros((*counts, *sizes), dtype=x.dtype)
    steps = [math.prod(x.shape[i + 1 :]) for i in range(x.ndim)]
    outer = [step * s for step, s in zip(steps, strides)]
    inner = [step * d for step, d in zip(steps, dilation)]
    return mx.as_strided(mx.contiguous(x), (*counts, *sizes), (*outer, *inner))
