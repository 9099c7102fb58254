"""reduce_window and its relatives: pad, take windows, reduce."""

from __future__ import annotations

import math

import numpy as np

from ..emitter import Emitter
from ..numpy_ops import greatest, least
from ..program import Value
from . import register


def _windows(e: Emitter, x: Value, fill, p) -> Value:
    """[number of windows..., window size] of the padded, dilated operand."""
    sizes = tuple(p["window_dimensions"])
    low, high = zip(*p["padding"]) if x.ndim else ((), ())
    base = p.get("base_dilation") or (1,) * x.ndim
    inner = p.get("window_dilation") or (1,) * x.ndim
    padded = e.pad(x, fill, low, high, [d - 1 for d in base])
    strides = tuple(p["window_strides"])
    found = e.op("windows", padded, sizes=sizes, strides=strides, dilation=tuple(inner))
    return e.reshape(found, (*found.shape[: x.ndim], math.prod(sizes)))


def _identity(kind: str, dtype):
    if kind == "sum":
        return 0
    return least(dtype) if kind == "max" else greatest(dtype)


def _monoid(kind: str):
    def rule(e: Emitter, eqn, x: Value):
        return e.reduce(kind, _windows(e, x, _identity(kind, x.dtype), eqn.params), (x.ndim,))

    return rule


def _generic(e: Emitter, eqn, *args: Value):
    """Any function of windows. Padding and the holes of a dilated operand are passed over, as XLA does: the initial value, which
    need not be neutral, enters a window once."""
    from .reductions import fold, jaxpr_combiner

    p, half = eqn.params, len(args) // 2
    operands, inits = args[:half], list(args[half:])
    combine = jaxpr_combiner(e, p["jaxpr"], p.get("consts", ()))
    parts = [_windows(e, x, i, p) for x, i in zip(operands, inits)]
    axis = operands[0].ndim
    full = lambda like: [e.broadcast_to(i, like.shape) for i in inits]
    if not any(n > 0 for pair in p["padding"] for n in pair) and all(d == 1 for d in p.get("base_dilation") or ()):
        reduced = fold(e, combine, parts, inits, axis)
        return combine(full(reduced[0]), reduced)

    def passing_over(left, right):
        (*xs, here), (*ys, there) = left, right
        return [
            *(e.select(here, e.select(there, both, x), y) for both, x, y in zip(combine(xs, ys), xs, ys)),
            e.or_(here, there),
        ]

    inside = _windows(e, e.full(operands[0].shape, True, np.bool_), False, p)
    *reduced, found = fold(e, passing_over, [*parts, inside], [*inits, e.const(False)], axis)
    start = full(found)
    return [e.select(found, total, i) for total, i in zip(combine(start, reduced), start)]


def _picked(e: Emitter, keys: Value, select: str) -> Value:
    """Position in its window of the element that ge (greatest) or le (least) selects, the first of equals."""
    return e.op("argmax" if select == "ge" else "argmin", keys, axis=keys.ndim - 1, dtype=np.dtype(np.int32))


def _select_name(p) -> str:
    name = p["select_prim"].name
    assert name in ("ge", "le"), name
    return name


def _select_and_gather_add(e: Emitter, eqn, tangents: Value, operand: Value):
    p, select = eqn.params, _select_name(eqn.params)
    fill = _identity("max" if select == "ge" else "min", operand.dtype)
    keys = _windows(e, operand, fill, p)
    values = _windows(e, tangents, 0, p)
    where = _picked(e, keys, select)
    taken = e.op("take_along_axis", values, e.reshape(where, (*where.shape, 1)), axis=where.ndim)
    return e.reshape(taken, where.shape)


def _select_and_scatter_add(e: Emitter, eqn, source: Value, operand: Value):
    """Max pooling's transpose. Padding competes as the identity, as on XLA's CPU; a window with a NaN selects its

    first NaN, where XLA's result depends on the order of its comparisons.
    """
    p, select = eqn.params, _select_name(eqn.params)
    fill = _identity("max" if select == "ge" else "min", operand.dtype)
    if operand.size == 0 or source.size == 0:
        return e.full(operand.shape, 0, operand.dtype)
    keys = _windows(e, operand, fill, p)
    total = operand.size
    places = e.reshape(e.iota(np.int32, (total,), 0), operand.shape)
    places = _windows(e, places, total, p)  # padding points at an extra slot
    where = _picked(e, keys, select)
    target = e.op("take_along_axis", places, e.reshape(where, (*where.shape, 1)), axis=where.ndim)
    flat = e.op(
        "scatter_flat",
        e.full((total + 1,), 0, operand.dtype),
        e.reshape(target, (source.size,)),
        e.reshape(source, (source.size,)),
        kind="add",
        unique=False,
    )
    return e.reshape(e.slice_axis(flat, 0, 0, total), operand.shape)


register("reduce_window_sum_p", "composed", _monoid("sum"))
register("reduce_window_max_p", "composed", _monoid("max"))
register("reduce_window_min_p", "composed", _monoid("min"))
register("reduce_window_p", "composed", _generic)
register("select_and_gather_add_p", "composed", _select_and_gather_add)
register("select_and_scatter_add_p", "composed", _select_and_scatter_add)
