"""Operators on shapes, indices, lists and tuples."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from ..errors import UnsupportedOperationError
from .import_pointwise import OPERATORS as POINTWISE
from .import_pointwise import numeric, scaled, shape_of
from .import_values import (
    Items,
    Num,
    as_array,
    axes_of,
    dtype_number,
    listed,
    promote,
    static_int,
    table,
)

__all__ = ["OPERATORS"]

op, OPERATORS = table()

# ---- shapes


OPERATORS.update(
    {
        f"aten::{n}": (lambda x, *_: x)
        for n in ("clone", "contiguous", "dropout", "feature_dropout", "lift_fresh", "lift", "cpu")
    }
)
OPERATORS["aten::dim"] = lambda x: x.ndim
OPERATORS["aten::numel"] = lambda x: x.size
OPERATORS["aten::size"] = lambda x, dim=None: list(x.shape) if dim is None else x.shape[dim]
OPERATORS["aten::len"] = lambda x: x.shape[0] if hasattr(x, "shape") else len(x)
OPERATORS["aten::is_floating_point"] = lambda x: bool(jnp.issubdtype(x.dtype, jnp.floating))


@op("reshape", "view", "_unsafe_view", "reshape_as", "view_as")
def _reshape(x, shape):
    return jnp.reshape(x, shape.shape if hasattr(shape, "shape") else shape_of(shape))


@op("flatten")
def _flatten(x, start=0, end=-1):
    start, end = start % max(x.ndim, 1), end % max(x.ndim, 1)
    return jnp.reshape(x, (*x.shape[:start], -1, *x.shape[end + 1 :]))


OPERATORS["aten::permute"] = lambda x, dims: jnp.transpose(x, dims)
OPERATORS["aten::transpose"] = lambda x, a, b: jnp.swapaxes(x, a, b)
OPERATORS["aten::t"] = lambda x: x.T
OPERATORS["aten::numpy_T"] = lambda x: x.T
OPERATORS["aten::unsqueeze"] = lambda x, dim: jnp.expand_dims(x, dim)
OPERATORS["aten::flip"] = lambda x, dims: jnp.flip(x, tuple(dims))
OPERATORS["aten::roll"] = lambda x, shifts, dims: jnp.roll(x, shifts, tuple(dims) if dims else None)
OPERATORS["aten::tril"] = lambda x, k=0: jnp.tril(x, k)
OPERATORS["aten::triu"] = lambda x, k=0: jnp.triu(x, k)
OPERATORS["aten::diag"] = lambda x, k=0: jnp.diag(x, k)
OPERATORS["aten::diagonal"] = lambda x, k=0, a=0, b=1: jnp.diagonal(x, k, a, b)


@op("squeeze")
def _squeeze(x, dims=None):
    axes = [d for d in (axes_of(dims, x.ndim) or range(x.ndim)) if x.shape[d] == 1]
    return jnp.squeeze(x, tuple(axes))


@op("expand", "expand_as")
def _expand(x, size, *_):
    if hasattr(size, "shape"):
        return jnp.broadcast_to(x, size.shape)
    size = shape_of(size)
    padded = (1,) * (len(size) - x.ndim) + x.shape
    return jnp.broadcast_to(x, tuple(p if n == -1 else n for n, p in zip(size, padded, strict=True)))


@op("repeat")
def _repeat(x, times):
    return jnp.tile(x, shape_of(times))


@op("cat", "concat")
def _cat(values, dim=0):
    parts = listed(values)
    common = promote(*parts)
    return jnp.concatenate([p.astype(common) for p in parts], dim)


@op("stack")
def _stack(values, dim=0):
    if isinstance(values, Items):
        return jnp.moveaxis(values.stacked(), 0, dim)
    return jnp.stack(values, dim)


@op("unbind")
def _unbind(x, dim=0):
    return Items([("many", jnp.moveaxis(x, dim, 0))])


@op("split", "split_with_sizes")
def _split(x, sizes, dim=0):
    if not isinstance(sizes, (list, tuple)):
        sizes = [min(sizes, x.shape[dim] - k) for k in range(0, x.shape[dim], sizes)]
    bounds = [sum(sizes[:k]) for k in range(1, len(sizes))]
    return Items.of(jnp.split(x, bounds, dim))


@op("chunk")
def _chunk(x, chunks, dim=0):
    return _split(x, -(-x.shape[dim] // chunks), dim)


@op("select")
def _select(x, dim, index):
    if isinstance(index, Num):
        return lax.dynamic_index_in_dim(
            x, jnp.where(index.array < 0, index.array + x.shape[dim], index.array), dim, keepdims=False
        )
    return lax.index_in_dim(x, index, dim, keepdims=False)


def _slice_bounds(x, dim, start, stop) -> tuple[int, int]:
    size = x.shape[dim]
    begin = 0 if start is None else static_int(start, "a slice's start")
    end = size if stop is None else static_int(stop, "a slice's end")
    begin, end = (min(max(b + size if b < 0 else b, 0), size) for b in (begin, end))
    return begin, max(begin, end)


@op("slice")
def _slice(x, *rest):
    if isinstance(x, (list, tuple, str)):
        start, stop, step = (*rest, *[None] * 3)[:3]
        return x[slice(start, stop, step)]
    dim, start, stop, step = (*rest, *(0, None, None, 1)[len(rest) :])
    dim = static_int(dim, "a slice's axis")
    begin, end = _slice_bounds(x, dim, start, stop)
    return lax.slice_in_dim(x, begin, end, static_int(step, "a step"), dim)


@op("narrow")
def _narrow(x, dim, start, length):
    if isinstance(start, Num) or hasattr(start, "dtype"):
        return lax.dynamic_slice_in_dim(x, as_array(start), length, dim)
    start = start + x.shape[dim] if start < 0 else start
    return lax.slice_in_dim(x, start, start + length, axis=dim)


@op("slice_scatter")
def _slice_scatter(x, update, dim=0, start=None, stop=None, step=1):
    if isinstance(start, Num):
        return lax.dynamic_update_slice_in_dim(x, update.astype(x.dtype), start.array, dim)
    begin, end = _slice_bounds(x, dim, start, stop)
    index = [slice(None)] * x.ndim
    index[dim] = slice(begin, end, step)
    return x.at[tuple(index)].set(update)


@op("select_scatter")
def _select_scatter(x, update, dim, index):
    where = [slice(None)] * x.ndim
    where[dim] = as_array(index)
    return x.at[tuple(where)].set(update)


@op("index")
def _index(x, indices):
    return x[tuple(slice(None) if i is None else i for i in listed(indices))]


@op("index_put")
def _index_put(x, indices, values, accumulate=False):
    at = x.at[tuple(slice(None) if i is None else i for i in listed(indices))]
    return at.add(values) if accumulate else at.set(values)


OPERATORS["aten::index_select"] = lambda x, dim, index: jnp.take(x, index, dim, mode="clip")
OPERATORS["aten::gather"] = lambda x, dim, index, *_: _gather(x, dim, index)
OPERATORS["aten::take_along_dim"] = lambda x, index, dim: jnp.take_along_axis(x, index, dim)


def _gather(x, dim, index):
    grid = list(jnp.indices(index.shape, sparse=True))
    grid[dim] = index
    return x[tuple(grid)]


def _at_rows(x, dim, index):
    where = [slice(None)] * x.ndim
    where[dim] = index
    return x.at[tuple(where)]


OPERATORS["aten::index_copy"] = lambda x, dim, index, source: _at_rows(x, dim, index).set(source)
OPERATORS["aten::index_add"] = lambda x, dim, index, source, alpha=1: _at_rows(x, dim, index).add(scaled(source, alpha))
OPERATORS["aten::index_fill"] = lambda x, dim, index, value: _at_rows(x, dim, index).set(
    as_array(value).astype(x.dtype)
)


def _at_grid(x, dim, index):
    grid = list(jnp.indices(index.shape, sparse=True))
    grid[dim] = index
    return x.at[tuple(grid)]


def _front(source, index):
    return source[tuple(slice(n) for n in index.shape)] if hasattr(source, "shape") and source.ndim else source


OPERATORS["aten::scatter"] = lambda x, dim, index, source, *_: _at_grid(x, dim, index).set(
    _front(as_array(source), index)
)
OPERATORS["aten::scatter_add"] = lambda x, dim, index, source: _at_grid(x, dim, index).add(_front(source, index))


@op("scatter_reduce")
def _scatter_reduce(x, dim, index, source, how, include_self=True):
    if not include_self:
        raise UnsupportedOperationError("scatter_reduce without include_self", op="aten::scatter_reduce")
    at, rows = _at_grid(x, dim, index), _front(source, index)
    return {"sum": at.add, "prod": at.multiply, "amax": at.max, "amin": at.min}[how](rows)


@op("constant_pad_nd")
def _pad(x, pads, value=0):
    pairs = [(pads[k], pads[k + 1], 0) for k in range(0, len(pads), 2)]
    config = [(0, 0, 0)] * (x.ndim - len(pairs)) + pairs[::-1]
    return lax.pad(x, as_array(value).astype(x.dtype), config)


@op("pad")
def _pad_named(x, pads, mode="constant", value=None):
    if mode == "constant":
        return _pad(x, pads, value or 0)
    pairs = [(pads[k], pads[k + 1]) for k in range(0, len(pads), 2)]
    return jnp.pad(
        x,
        [(0, 0)] * (x.ndim - len(pairs)) + pairs[::-1],
        {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}[mode],
    )


@op("unfold")
def _unfold(x, dim, size, step):
    starts = jnp.arange(0, x.shape[dim] - size + 1, step)
    windows = jnp.moveaxis(x, dim, 0)[starts[:, None] + jnp.arange(size)]
    return jnp.moveaxis(jnp.moveaxis(windows, 1, -1), 0, dim)


@op("meshgrid")
def _meshgrid(values, indexing="ij"):
    return Items.of(jnp.meshgrid(*listed(values), indexing=indexing))


# ---- lists and tuples


OPERATORS["prim::TupleConstruct"] = lambda *values: tuple(values)
OPERATORS["prim::TupleIndex"] = lambda values, index: values[index]
OPERATORS["prim::unchecked_cast"] = lambda x: x
OPERATORS["prim::unchecked_unwrap_optional"] = lambda x: x
OPERATORS["aten::_unwrap_optional"] = lambda x: x
OPERATORS["prim::dtype"] = lambda x: dtype_number(x.dtype)
OPERATORS["prim::device"] = lambda x: "cpu"
OPERATORS["prim::layout"] = lambda x: 0
OPERATORS["prim::is_cuda"] = lambda x: False
OPERATORS["prim::Print"] = lambda *xs: None
OPERATORS["aten::warn"] = lambda *xs: None
OPERATORS["aten::format"] = lambda text, *xs: text.format(*xs)
OPERATORS["aten::list"] = lambda x: list(x) if isinstance(x, (list, tuple)) else Items(x.parts)
OPERATORS["aten::__range_length"] = lambda low, high, step: numeric(
    lambda a, b, c: len(range(a, b, c)) if isinstance(a, int) else jnp.maximum(0, -((a - b) // c))
)(low, high, step)
OPERATORS["aten::__derive_index"] = lambda index, start, step: POINTWISE["aten::add"](
    start, POINTWISE["aten::mul"](index, step)
)


@op("prim::RaiseException")
def _raise(message, *_):
    raise ValueError(f"the TorchScript program raises: {message}")


@op("append")
def _append(values, item):
    values.append(item)
    return values


@op("reverse")
def _reverse(values):
    values.reverse()
    return []


@op("__getitem__")
def _getitem(values, index):
    if isinstance(values, Items):
        return values.item(index)
    return values[index if isinstance(values, dict) else static_int(index, "a list's index")]
