"""Reshapes, broadcasts, slices, pads, joins; dynamic slices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..emitter import Emitter
from ..program import Value
from . import register


def stack(e: Emitter, xs: Sequence[Value], axis: int) -> Value:
    shape = xs[0].shape[:axis] + (1,) + xs[0].shape[axis:]
    return e.concat([e.reshape(x, shape) for x in xs], axis)


def _broadcast_in_dim(e: Emitter, eqn, x: Value):
    return e.broadcast(x, eqn.params["shape"], eqn.params["broadcast_dimensions"])


def _to_out_shape(e: Emitter, eqn, x: Value):
    return e.reshape(x, eqn.outvars[0].aval.shape)


def _reshape(e: Emitter, eqn, x: Value):
    if eqn.params.get("dimensions") is not None:
        x = e.transpose(x, eqn.params["dimensions"])
    return e.reshape(x, eqn.params["new_sizes"])


def _broadcast_to(e: Emitter, eqn, x: Value):
    return e.broadcast_to(x, eqn.outvars[0].aval.shape)


def _transpose(e: Emitter, eqn, x: Value):
    return e.transpose(x, eqn.params["permutation"])


def _slice(e: Emitter, eqn, x: Value):
    p = eqn.params
    return e.slice(x, p["start_indices"], p["limit_indices"], p["strides"])


def _pad(e: Emitter, eqn, x: Value, value: Value):
    low, high, interior = zip(*eqn.params["padding_config"]) if x.ndim else ((), (), ())
    return e.pad(x, value, low, high, interior)


def _concatenate(e: Emitter, eqn, *xs: Value):
    return e.concat(xs, eqn.params["dimension"])


def _stack(e: Emitter, eqn, *xs: Value):
    return stack(e, xs, eqn.params["axis"])


def _unstack(e: Emitter, eqn, x: Value):
    axis = eqn.params["axis"]
    shape = x.shape[:axis] + x.shape[axis + 1 :]
    return [e.reshape(e.slice_axis(x, axis, i, i + 1), shape) for i in range(x.shape[axis])]


def _split(e: Emitter, eqn, x: Value):
    axis, start, parts = eqn.params["axis"], 0, []
    for size in eqn.params["sizes"]:
        parts.append(e.slice_axis(x, axis, start, start + size))
        start += size
    return parts


def _rev(e: Emitter, eqn, x: Value):
    return e.op("rev", x, axes=tuple(eqn.params["dimensions"]))


def _tile(e: Emitter, eqn, x: Value):
    reps = eqn.params["reps"]
    spread = e.broadcast(x, [n for pair in zip(reps, x.shape) for n in pair], range(1, 2 * x.ndim, 2))
    return e.reshape(spread, [r * n for r, n in zip(reps, x.shape)])


def _iota(e: Emitter, eqn):
    p = eqn.params
    return e.iota(p["dtype"], p["shape"], p["dimension"])


def _empty(e: Emitter, eqn, *_: Value):
    aval = eqn.outvars[0].aval
    return e.full(aval.shape, 0, aval.dtype)


def start_index(e: Emitter, start: Value) -> Value:
    """An index as int32 or int64, whatever integer type it came in; uint64 saturates."""
    if start.dtype in (np.dtype(np.int32), np.dtype(np.int64)):
        return start
    if start.dtype == np.uint64:
        return e.cast(e.min(start, np.iinfo(np.int64).max), np.int64)
    return e.cast(start, np.int64 if start.dtype == np.uint32 else np.int32)


def _dynamic_slice(e: Emitter, eqn, x: Value, *starts: Value):
    return e.op(
        "dynamic_slice",
        x,
        *(start_index(e, s) for s in starts[: x.ndim]),
        sizes=tuple(eqn.params["slice_sizes"]),
    )


def _dynamic_update_slice(e: Emitter, eqn, x: Value, update: Value, *starts: Value):
    return e.op("dynamic_update_slice", x, update, *(start_index(e, s) for s in starts))


register("broadcast_in_dim_p", "direct", _broadcast_in_dim)
register("broadcast_to", "direct", _broadcast_to)
register("reshape_p", "direct", _reshape)
register("squeeze_p", "direct", _to_out_shape)
register("transpose_p", "direct", _transpose)
register("slice_p", "direct", _slice)
register("pad_p", "direct", _pad)
register("concatenate_p", "direct", _concatenate)
register("stack_p", "composed", _stack)
register("unstack_p", "composed", _unstack)
register("split_p", "composed", _split)
register("rev_p", "direct", _rev)
register("tile_p", "composed", _tile)
register("iota_p", "direct", _iota)
register("empty_p empty2_p zeros_like_p", "direct", _empty)
register("dynamic_slice_p", "direct", _dynamic_slice)
register("dynamic_update_slice_p", "direct", _dynamic_update_slice)
