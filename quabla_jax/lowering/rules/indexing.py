"""gather and scatter: any dimension numbers, every mode, as `take` and `scatter_rows` on flat indices."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..emitter import Emitter
from ..program import Value
from . import register
from .elementwise import is_complex, is_float


@dataclass(frozen=True, eq=False)
class _Windows:
    """Where the windows of a gather or scatter lie.

    The operand is seen as [rows, row]: `perm` brings the axes that every window covers whole to the end, they are one
    row. `flat` [batch..., offsets...] are row numbers, all in range; `inside` [batch...] says which windows lie within
    the operand, None where they were clamped.
    """

    perm: tuple[int, ...]
    lead: tuple[int, ...]
    row: tuple[int, ...]
    flat: Value
    inside: Value | None
    batch: tuple[int, ...]
    offsets: tuple[int, ...]


def _locate(e: Emitter, shape, indices: Value, start_map, operand_batch, index_batch, sizes, clamp: bool) -> _Windows:
    """Row numbers of every element of every window. `sizes`: the window's extent along every operand axis."""
    batch = indices.shape[:-1]
    whole = [d for d, n in enumerate(shape) if sizes[d] == n and d not in operand_batch]
    lead = [d for d in range(len(shape)) if d not in whole]
    strides, stride = {}, 1
    for d in reversed(lead):
        strides[d] = stride
        stride *= shape[d]
    dtype = np.dtype(np.int32 if stride < 2**31 else np.int64)
    wide = _wide_index(e, indices)
    total, inside = e.full(batch, 0, dtype), None
    for k, d in enumerate(start_map):
        start = e.reshape(e.slice_axis(wide, wide.ndim - 1, k, k + 1), batch)
        room = shape[d] - sizes[d]
        if not clamp:
            within = e.and_(e.ge(start, 0), e.le(start, room))
            inside = within if inside is None else e.and_(inside, within)
        if d in strides:
            start = e.cast(e.max(e.min(start, room), 0), dtype)
            total = e.add(total, e.mul(start, strides[d]))
    for d, axis in zip(operand_batch, index_batch):
        total = e.add(total, e.mul(e.iota(dtype, batch, axis), strides[d]))
    window_axes = [d for d in lead if d not in operand_batch]
    offsets = tuple(sizes[d] for d in window_axes)
    flat = e.broadcast(total, (*batch, *offsets), range(len(batch)))
    for i, d in enumerate(window_axes):
        if sizes[d] > 1:
            step = e.mul(e.iota(dtype, (sizes[d],), 0), strides[d])
            flat = e.add(flat, e.broadcast(step, flat.shape, (len(batch) + i,)))
    return _Windows(
        (*lead, *whole),
        tuple(shape[d] for d in lead),
        tuple(shape[d] for d in whole),
        flat,
        inside,
        batch,
        offsets,
    )


def _wide_index(e: Emitter, indices: Value) -> Value:
    """Indices in a signed type that holds them all; uint64 saturates (such an index is out of range anyway)."""
    if indices.dtype == np.uint64:
        return e.cast(e.min(indices, np.iinfo(np.int64).max), np.int64)
    if indices.dtype == np.uint32:
        return e.cast(indices, np.int64)
    return indices if indices.dtype.itemsize >= 4 else e.cast(indices, np.int32)


def _count(shape) -> int:
    return int(np.prod(shape, dtype=np.int64))


def fill_of(dtype, given) -> object:
    """What an out-of-range gather reads where the caller names no value."""
    if given is not None:
        return given
    if is_float(dtype) or is_complex(dtype):
        return np.nan
    if dtype.kind == "b":
        return True
    return np.iinfo(dtype).min if dtype.kind == "i" else np.iinfo(dtype).max


def _gather(e: Emitter, eqn, operand: Value, indices: Value):
    p = eqn.params
    numbers, sizes = p["dimension_numbers"], tuple(p["slice_sizes"])
    out_shape = eqn.outvars[0].aval.shape
    fills = _mode_name(p["mode"]) == "FILL_OR_DROP"
    if 0 in out_shape:
        return e.full(out_shape, 0, operand.dtype)
    collapsed = set(numbers.collapsed_slice_dims) | set(numbers.operand_batching_dims)
    if 0 in operand.shape:  # only windows of no extent fit, and those gave an empty result
        return e.full(out_shape, fill_of(operand.dtype, p["fill_value"]), operand.dtype)
    w = _locate(
        e, operand.shape, indices, numbers.start_index_map, numbers.operand_batching_dims,
        numbers.start_indices_batching_dims, sizes, clamp=not fills,
    )  # fmt: skip
    lead_axes, whole_axes = w.perm[: len(w.lead)], w.perm[len(w.lead) :]
    if len(lead_axes) == 1 and not numbers.operand_batching_dims and w.offsets == (1,):
        taken = _take_axis(e, operand, lead_axes[0], w, numbers, sizes)
    else:
        rows = e.reshape(e.transpose(operand, w.perm), (_count(w.lead), _count(w.row)))
        flat = e.reshape(w.flat, (w.flat.size,))
        if rows.shape[1] == 1:
            taken = e.op("gather_flat", e.reshape(rows, (rows.shape[0],)), flat)
        else:
            taken = e.op("take", rows, flat, axis=0)
        window_axes = [d for d in lead_axes if d not in numbers.operand_batching_dims]
        taken = e.reshape(taken, (*w.batch, *w.offsets, *w.row))
        order = [d for d in range(operand.ndim) if d not in collapsed]
        place = {d: len(w.batch) + i for i, d in enumerate((*window_axes, *whole_axes))}
        dropped = [place[d] for d in place if d in collapsed]
        keep = [place[d] for d in order]
        taken = e.transpose(taken, [*range(len(w.batch)), *keep, *dropped])
        taken = e.reshape(taken, (*w.batch, *(sizes[d] for d in order)))
    offset_dims = tuple(numbers.offset_dims)
    batch_places = [i for i in range(len(out_shape)) if i not in offset_dims]
    perm = [0] * len(out_shape)
    for source, place_ in enumerate((*batch_places, *offset_dims)):
        perm[place_] = source
    out = e.transpose(taken, perm)
    if fills and w.inside is not None:
        mask = e.broadcast(w.inside, out_shape, batch_places)
        out = e.select(mask, out, e.full(out_shape, fill_of(operand.dtype, p["fill_value"]), operand.dtype))
    return out


def _take_axis(e: Emitter, operand: Value, axis: int, w: _Windows, numbers, sizes) -> Value:
    """Windows of one element along one axis, whole along the others: [batch..., remaining operand axes...]."""
    flat = e.reshape(w.flat, (w.flat.size,))
    taken = e.op("take", operand, flat, axis=axis)
    n_before, n_after = axis, operand.ndim - axis - 1
    taken = e.transpose(taken, [n_before, *range(n_before), *range(n_before + 1, n_before + 1 + n_after)])
    order = [d for d in range(operand.ndim) if d not in numbers.collapsed_slice_dims]
    return e.reshape(taken, (*w.batch, *(sizes[d] for d in order)))


def _mode_name(mode) -> str:
    return getattr(mode, "name", str(mode)).rsplit(".", 1)[-1].upper()


def _scatter(kind: str):
    def rule(e: Emitter, eqn, operand: Value, indices: Value, updates: Value):
        p = eqn.params
        if kind == "set" and _applies_function(p):
            return _scatter_apply(e, eqn, operand, indices, updates)
        return scatter(e, p, operand, indices, updates, kind)

    return rule


def _applies_function(params) -> bool:
    """Whether a `scatter` equation carries a function other than "take the update" (scatter_apply)."""
    jaxpr = params.get("update_jaxpr")
    return jaxpr is not None and not (not jaxpr.eqns and jaxpr.outvars[0] is jaxpr.invars[1])


def _update_windows(e: Emitter, p, operand: Value, indices: Value, updates: Value):
    """(windows, updates as [n, row]) of a scatter."""
    numbers = p["dimension_numbers"]
    window_dims = tuple(numbers.update_window_dims)
    inserted = set(numbers.inserted_window_dims) | set(numbers.operand_batching_dims)
    window_axes = [d for d in range(operand.ndim) if d not in inserted]
    sizes = [1] * operand.ndim
    for d, u in zip(window_axes, window_dims):
        sizes[d] = updates.shape[u]
    w = _locate(
        e, operand.shape, indices, numbers.scatter_dims_to_operand_dims, numbers.operand_batching_dims,
        numbers.scatter_indices_batching_dims, sizes, clamp=_mode_name(p["mode"]) == "CLIP",
    )  # fmt: skip
    scatter_dims = [i for i in range(updates.ndim) if i not in window_dims]
    lead = [d for d in w.perm[: len(w.lead)] if d not in numbers.operand_batching_dims]
    whole = w.perm[len(w.lead) :]
    place = dict(zip(window_axes, window_dims))
    perm = [*scatter_dims, *(place[d] for d in (*lead, *whole) if d in place)]
    rows = e.reshape(e.transpose(updates, perm), (w.flat.size, _count(w.row)))
    return w, rows


def scatter(e: Emitter, p, operand: Value, indices: Value, updates: Value, kind: str) -> Value:
    """XLA's scatter with a combiner: windows not wholly inside are dropped (mode CLIP: moved inside)."""
    if 0 in updates.shape or 0 in operand.shape:
        return operand
    w, rows = _update_windows(e, p, operand, indices, updates)
    target = e.reshape(e.transpose(operand, w.perm), (_count(w.lead), _count(w.row)))
    flat = e.reshape(w.flat, (w.flat.size,))
    n = target.shape[0]
    if w.inside is not None:  # dropped windows go to an extra row
        inside = e.reshape(e.broadcast(w.inside, w.flat.shape, range(len(w.batch))), (w.flat.size,))
        flat = e.select(inside, flat, n)
        target = e.pad(target, 0, (0, 0), (1, 0))
    unique = bool(p["unique_indices"]) and w.inside is None
    if rows.shape[1] == 1:
        line = e.reshape(target, (target.shape[0],))
        out = e.op("scatter_flat", line, flat, e.reshape(rows, (rows.shape[0],)), kind=kind, unique=unique)
        out = e.reshape(out, target.shape)
    else:
        out = e.op("scatter_rows", target, flat, rows, kind=kind, unique=unique)
    out = e.slice_axis(out, 0, 0, n)
    inverse = np.argsort(w.perm).tolist()
    return e.transpose(e.reshape(out, (*w.lead, *w.row)), inverse)


def _scatter_sub(e: Emitter, eqn, operand: Value, indices: Value, updates: Value):
    return scatter(e, eqn.params, operand, indices, e.neg(updates), "add")


def _scatter_apply(e: Emitter, eqn, operand: Value, indices: Value, updates: Value):
    """x.at[i].apply(f): f runs once an index, so an index met k times has f applied k times: rounds of gather and set."""
    from .reductions import jaxpr_combiner

    p = eqn.params
    if 0 in updates.shape or 0 in operand.shape:
        return operand
    combine = jaxpr_combiner(e, p["update_jaxpr"], p.get("update_consts", ()))
    w, rows = _update_windows(e, p, operand, indices, updates)
    n, row = _count(w.lead), _count(w.row)
    target = e.pad(e.reshape(e.transpose(operand, w.perm), (n, row)), 0, (0, 0), (1, 0))
    flat = e.reshape(w.flat, (w.flat.size,))
    if w.inside is not None:
        inside = e.reshape(e.broadcast(w.inside, w.flat.shape, range(len(w.batch))), (w.flat.size,))
        flat = e.select(inside, flat, n)
    if p["unique_indices"]:
        out = _apply_once(e, combine, target, flat, rows)
    else:
        out = _apply_in_order(e, p, target, flat, rows)
    out = e.slice_axis(out, 0, 0, n)
    return e.transpose(e.reshape(out, (*w.lead, *w.row)), np.argsort(w.perm).tolist())


def _apply_once(e: Emitter, combine, target: Value, flat: Value, rows: Value) -> Value:
    (new,) = combine([e.op("take", target, flat, axis=0)], [rows])
    return e.op("scatter_rows", target, flat, new, kind="set", unique=False)


def _apply_in_order(e: Emitter, p, target: Value, flat: Value, rows: Value) -> Value:
    """One update a trip."""
    from .reductions import jaxpr_combiner

    count = flat.shape[0]
    one, slice_ = Value((), flat.dtype), Value(rows.shape[1:], rows.dtype)

    def step(inner: Emitter, args):
        line, where, update = args
        combine = jaxpr_combiner(inner, p["update_jaxpr"], p.get("update_consts", ()))
        where = inner.reshape(where, (1,))
        return [_apply_once(inner, combine, line, where, inner.reshape(update, (1, *update.shape)))]

    body = e.region([target, one, slice_], step)
    return e.loop("counted", (), [target], body, xs=[flat, rows], length=count)[0]


register("gather_p", "composed", _gather)
register("scatter_p", "composed", _scatter("set"))
register("scatter_add_p", "composed", _scatter("add"))
register("scatter_mul_p", "composed", _scatter("mul"))
register("scatter_min_p", "composed", _scatter("min"))
register("scatter_max_p", "composed", _scatter("max"))
register("scatter_sub_p", "composed", _scatter_sub)
