"""Shape functions. Every integer (axis, shift, width, count) is a static Python int; results are never empty.

Derivatives of every order pass through as through any linear map; nothing here costs more than one copy of the result.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .arrays import (
    any_tracer,
    asarray,
    broadcast,
    concrete,
    fitting,
    is_number,
    kind_name,
    new_shape,
    refuse_tracer,
    shape_of,
)
from .arrays import cast as _cast
from .promotion import align, as_operand, keeps_weak, refuse_bool
from .reductions import axes_of
from .reductions import sum as _sum

__all__ = [
    "broadcast_to", "concat", "diag", "diagonal", "expand_dims", "flip", "meshgrid", "moveaxis", "pad", "ravel", "repeat",
    "reshape", "roll", "split", "squeeze", "stack", "swapaxes", "tile", "trace", "transpose", "tril", "triu",
]  # fmt: skip


def static_int(value: Any, name: str) -> int:
    """`value` as an int. Raises TypeError for arrays and floats, which cannot decide a shape (tracers: TracerError)."""
    refuse_tracer("an integer index", name, value)
    if isinstance(value, jax.Array):
        raise TypeError(f"{name} must be a Python int: it decides the shape of the result, so it cannot be an array")
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an int, got {type(value).__name__}") from None


def static_ints(value: Any, name: str) -> tuple[int, ...]:
    """An int or a sequence of ints as a tuple."""
    if isinstance(value, (list, tuple)):
        return tuple(static_int(item, name) for item in value)
    return (static_int(value, name),)


def one_axis(axis: Any, rank: int) -> int:
    """A single axis counted from the front."""
    return axes_of(static_int(axis, "axis"), rank)[0]


def _distinct(axes: Any, rank: int, name: str) -> tuple[int, ...]:
    try:
        return axes_of(static_ints(axes, name), rank)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


@concrete
def reshape(x: Any, shape: Any) -> jax.Array:
    """`x` in a new shape of the same size; one extent may be -1. Raises ValueError where it does not fit."""
    x, extents = as_operand(x), shape_of(shape)
    if extents.count(-1) > 1:
        raise ValueError("reshape can only infer one dimension (-1)")
    try:
        return jnp.reshape(x, extents)
    except (TypeError, ValueError, ZeroDivisionError):
        raise ValueError(f"cannot reshape tensor with {x.size} elements to shape {list(extents)}") from None


@concrete
def ravel(a: Any) -> jax.Array:
    """`a` as one axis, in row-major order; a 0-d array gives shape [1]."""
    return jnp.reshape(as_operand(a), (-1,))


@concrete
def transpose(x: Any, axes: Any = None) -> jax.Array:
    """`x` with its axes permuted, reversed for None. Raises ValueError unless `axes` is a permutation."""
    x = as_operand(x)
    if axes is None:
        return jnp.transpose(x)
    order = _distinct(tuple(axes), x.ndim, "transpose axes")
    if len(order) != x.ndim:
        raise ValueError(f"transpose axes must have length {x.ndim}, got {len(order)}")
    return jnp.transpose(x, order)


@concrete
def moveaxis(a: Any, source: Any, destination: Any) -> jax.Array:
    """`a` with the axes `source` at the positions `destination`; the others keep their order."""
    x = as_operand(a)
    origin, goal = _distinct(source, x.ndim, "source"), _distinct(destination, x.ndim, "destination")
    if len(origin) != len(goal):
        raise ValueError("source and destination must have the same number of axes")
    return jnp.moveaxis(x, origin, goal)


@concrete
def swapaxes(a: Any, axis1: int, axis2: int) -> jax.Array:
    """`a` with two axes exchanged."""
    x = as_operand(a)
    return jnp.swapaxes(x, one_axis(axis1, x.ndim), one_axis(axis2, x.ndim))


@concrete
def squeeze(x: Any, axis: Any = None) -> jax.Array:
    """`x` without its unit axes, or without those named; ValueError where one of them is not 1."""
    x = as_operand(x)
    if axis is None:
        return jnp.squeeze(x)
    axes = axes_of(axis, x.ndim)
    if any(x.shape[a] != 1 for a in axes):
        raise ValueError(f"cannot squeeze axis {axis!r} of shape {list(x.shape)}: its extent is not 1")
    return jnp.squeeze(x, axes)


@concrete
def expand_dims(x: Any, axis: Any) -> jax.Array:
    """`x` with unit axes at the positions `axis` of the result."""
    x = as_operand(x)
    entries = static_ints(axis, "axis")
    return jnp.expand_dims(x, axes_of(entries, x.ndim + len(entries)))


@concrete
def broadcast_to(x: Any, shape: Any) -> jax.Array:
    """`x` broadcast to `shape`. Raises ValueError where it does not fit."""
    x, extents = as_operand(x), shape_of(shape)
    if x.size:
        new_shape(extents)
    return broadcast(x, extents)


def _sequence_of_arrays(op: str, values: Any) -> list[jax.Array]:
    if not isinstance(values, Sequence):
        raise TypeError(f"{op} takes a list or tuple of tensors, got {kind_name(values)}")
    items = list(values)
    for item in items:
        if not isinstance(item, jax.Array):
            raise TypeError(f"{op} expects only Tensor or TraceTensor operands, got {kind_name(item)}")
    if not items:
        raise ValueError(f"{op} requires at least one tensor")
    return align("concat", *items)


def _join(arrays: list[jax.Array], axis: int) -> jax.Array:
    first = arrays[0].shape
    for other in arrays[1:]:
        if len(other.shape) != len(first) or any(
            n != m for k, (n, m) in enumerate(zip(first, other.shape)) if k != axis
        ):
            raise ValueError(
                f"concat shapes must match except along axis {axis}, got {list(first)} and {list(other.shape)}"
            )
    return jnp.concatenate(arrays, axis)


@concrete
def concat(matrices: Any, axis: int) -> jax.Array:
    """The arrays joined along `axis`, which counts from the front.

    Raises:
        TypeError: an entry is no array. ValueError: shapes or dtypes differ. OverflowError: a negative axis.
    """
    arrays, along = _sequence_of_arrays("concat", matrices), operator.index(axis)
    if along < 0:
        raise OverflowError(f"concat takes no negative axis, got {along}; count from the front")
    if along >= arrays[0].ndim:
        raise ValueError(f"axis {along} is out of bounds for rank {arrays[0].ndim}")
    return _join(arrays, along)


@concrete
def stack(tensors: Any, axis: int = 0) -> jax.Array:
    """Arrays of one shape joined along a new axis, which may be negative. Raises as `concat` does."""
    arrays = _sequence_of_arrays("stack", tensors)
    (along,) = axes_of(operator.index(axis), arrays[0].ndim + 1)
    for other in arrays[1:]:
        if other.shape != arrays[0].shape:
            raise ValueError(f"stack requires equal shapes, got {list(arrays[0].shape)} and {list(other.shape)}")
    return jnp.stack(arrays, along)


@concrete
def split(x: Any, indices_or_sections: Any, axis: int = 0) -> list[jax.Array]:
    """A list of the pieces of `x` along `axis`: so many equal ones for an int, or those between the given indices.
    Raises ValueError where the pieces are unequal or one is empty."""
    x = as_operand(x)
    along = one_axis(axis, x.ndim)
    extent = x.shape[along]
    if isinstance(indices_or_sections, (list, tuple, range, np.ndarray)):
        bounds = [0, *(static_int(i, "indices_or_sections") for i in indices_or_sections), extent]
    else:
        count = static_int(indices_or_sections, "indices_or_sections")
        if count <= 0 or extent % count:
            raise ValueError(f"cannot split axis {along} of extent {extent} into {count} equal pieces")
        bounds = [k * (extent // count) for k in range(count + 1)]
    pieces = []
    for low, high in zip(bounds, bounds[1:]):
        start, stop, _ = slice(low, high).indices(extent)
        if stop <= start:
            raise ValueError(
                f"split indices {indices_or_sections!r} give an empty piece [{low}:{high}] of axis {along}"
            )
        pieces.append(jax.lax.slice_in_dim(x, start, stop, axis=along))
    return pieces


@concrete
def tile(A: Any, reps: Any) -> jax.Array:
    """`A` repeated `reps[i]` times along axis i. Raises ValueError for a count below 1."""
    counts = static_ints(reps, "reps")
    if any(n < 1 for n in counts):
        raise ValueError(f"reps must be positive (empty arrays are not supported), got {reps!r}")
    x = as_operand(A)
    fitting((x.size, *counts))
    return jnp.tile(x, counts)


@concrete
def repeat(a: Any, repeats: Any, axis: int | None = None) -> jax.Array:
    """Each entry along `axis` (of the flattened array for None) repeated: an int, or one count an entry.
    Raises ValueError for a negative count and where nothing would be left."""
    x = as_operand(a)
    if axis is None:
        x, axis = x.reshape(-1), 0
    along, counts = one_axis(axis, x.ndim), static_ints(repeats, "repeats")
    extent = x.shape[along]
    if len(counts) == 1 and (not isinstance(repeats, (list, tuple)) or extent != 1):
        if counts[0] < 1:
            raise ValueError(f"repeats must be positive (empty arrays are not supported), got {counts[0]}")
        fitting((x.size, counts[0]))
        return jnp.repeat(x, counts[0], axis=along)
    if len(counts) != extent:
        raise ValueError(f"repeats has {len(counts)} entries for axis {along} with extent {extent}")
    if any(n < 0 for n in counts) or not any(counts):
        raise ValueError(f"repeats must be non-negative with a positive sum, got {repeats!r}")
    return jnp.take(x, np.repeat(np.arange(extent), counts), axis=along)


@concrete
def flip(m: Any, axis: Any = None) -> jax.Array:
    """`m` reversed along `axis` (None: every axis)."""
    x = as_operand(m)
    return jnp.flip(x, axes_of(axis, x.ndim))


@concrete
def roll(a: Any, shift: Any, axis: Any = None) -> jax.Array:
    """`a` shifted cyclically along `axis` (the flattened array for None); shifts of one axis add up."""
    x, shifts = as_operand(a), static_ints(shift, "shift")
    if axis is None:
        return jnp.roll(x.reshape(-1), sum(shifts)).reshape(x.shape)
    axes = static_ints(axis, "axis")
    if len(shifts) != len(axes):
        if len(shifts) != 1 and len(axes) != 1:
            raise ValueError(f"shift {shift!r} and axis {axis!r} have different lengths")
        shifts, axes = (
            v * (len(axes) if len(v) == 1 and v is shifts else len(shifts) if len(v) == 1 else 1)
            for v in (shifts, axes)
        )
    return jnp.roll(x, shifts, tuple(one_axis(a, x.ndim) for a in axes))


def _pairs(value: Any, rank: int, name: str) -> list[tuple[Any, Any]]:
    """`value` broadcast to a (before, after) pair an axis, as NumPy does."""
    if isinstance(value, jax.Array) or any_tracer(value):
        raise TypeError(f"{name} must be Python numbers or sequences of them, not an array")
    if value is None:
        raise TypeError(f"{name} must be a number or a sequence of pairs, got None")
    try:
        table = np.broadcast_to(np.asarray(value), (rank, 2)) if rank else np.zeros((0, 2), int)
    except ValueError:
        raise ValueError(f"{name} {value!r} cannot be broadcast to shape ({rank}, 2)") from None
    return [(_python(before), _python(after)) for before, after in table]


def _python(entry: Any) -> Any:
    return entry.item() if isinstance(entry, np.generic) else entry


PAD_MODES = ("constant", "edge", "reflect", "symmetric", "wrap")


def _source(position: int, extent: int, mode: str) -> int:
    """Which entry of an axis stands at `position`, counted from the start of the unpadded axis."""
    if mode == "edge":
        return min(max(position, 0), extent - 1)
    if mode == "wrap":
        return position % extent
    # Mirrors have the period of one walk there and back; "symmetric" meets each end twice.
    period = 2 * extent if mode == "symmetric" else max(2 * extent - 2, 1)
    step = position % period
    return step if step < extent else period - step - (mode == "symmetric")


@concrete
def pad(array: Any, pad_width: Any, mode: str = "constant", constant_values: Any = 0) -> jax.Array:
    """`array` widened along each axis.

    Arguments:
        pad_width: an int, (before, after), or such a pair an axis; never negative.
        mode: "constant" (with `constant_values`, broadcast like pad_width), "edge", "reflect", "symmetric" or "wrap",
            the last three periodic where the width exceeds the extent.
    Raises:
        ValueError: an unknown mode, a negative width. TypeError: an array or a float as a width.
    """
    if mode not in PAD_MODES:
        raise ValueError(f"mode must be one of {PAD_MODES}, got {mode!r}")
    x = as_operand(array)
    widths = [
        (static_int(b, "pad_width"), static_int(a, "pad_width")) for b, a in _pairs(pad_width, x.ndim, "pad_width")
    ]
    if any(width < 0 for pair in widths for width in pair):
        raise ValueError(f"pad_width must be non-negative, got {pad_width!r}")
    fitting(tuple(n + sum(pair) for n, pair in zip(x.shape, widths)))
    if mode == "constant":
        fills = _pairs(constant_values, x.ndim, "constant_values")
        for axis, (width, fill) in enumerate(zip(widths, fills)):
            x = _pad_constant(x, axis, width, fill)
        return x
    for axis, (before, after) in enumerate(widths):
        if before or after:
            extent = x.shape[axis]
            x = jnp.take(x, np.array([_source(i, extent, mode) for i in range(-before, extent + after)]), axis=axis)
    return x


def _pad_constant(x: jax.Array, axis: int, width: tuple[int, int], fill: tuple[Any, Any]) -> jax.Array:
    pieces = [x]
    for side, (count, value) in enumerate(zip(width, fill)):
        if count:
            shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
            block = _cast(jnp.broadcast_to(asarray(value), shape), np.dtype(x.dtype))
            pieces.insert(0 if side == 0 else len(pieces), block)
    return jnp.concatenate(pieces, axis) if len(pieces) > 1 else x


@concrete
@keeps_weak
def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> jax.Array:
    """The diagonal `offset` of the matrices on two axes, as a new last axis. Raises ValueError for an empty one."""
    x = as_operand(a)
    if x.ndim < 2:
        raise ValueError(f"diagonal requires an array of rank 2 or more, got shape {list(x.shape)}")
    first, second, offset = one_axis(axis1, x.ndim), one_axis(axis2, x.ndim), static_int(offset, "offset")
    if first == second:
        raise ValueError("axis1 and axis2 cannot be the same")
    rows, columns = x.shape[first], x.shape[second]
    if offset >= columns or -offset >= rows:
        raise ValueError(f"offset {offset} gives an empty diagonal of a {rows} x {columns} matrix")
    return jnp.diagonal(x, offset, first, second)


def trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> jax.Array:
    """The sum of a diagonal."""
    return _sum(diagonal(a, offset, axis1, axis2), axis=-1)


@concrete
def diag(v: Any, k: int = 0) -> jax.Array:
    """The square matrix with the vector `v` on diagonal `k`, or that diagonal of a matrix. NaN stays on the diagonal.
    A mask vector becomes a float matrix."""
    x, k = as_operand(v), static_int(k, "k")
    if x.ndim == 2:
        return diagonal(x, k)
    if x.ndim != 1:
        raise ValueError(f"diag requires a 1-D or 2-D input, got shape {list(x.shape)}")
    fitting((x.shape[0] + abs(k),) * 2)
    return jnp.diag(_cast(x, np.dtype(jnp.result_type(float))) if x.dtype == np.bool_ else x, k)


def _triangle(fun, x: Any) -> jax.Array:
    x = as_operand(x)
    if x.ndim < 2:
        raise ValueError(f"triangular projection requires at least rank two, got {list(x.shape)}")
    refuse_bool("triangular", x)
    return fun(x)


@concrete
def tril(x: Any) -> jax.Array:
    """The lower triangle of the matrices on the last two axes, zero above."""
    return _triangle(jnp.tril, x)


@concrete
def triu(x: Any) -> jax.Array:
    """The upper triangle of the matrices on the last two axes, zero below."""
    return _triangle(jnp.triu, x)


@concrete
def meshgrid(*xs: Any, indexing: str = "xy") -> list[jax.Array]:
    """A list of coordinate arrays from vectors (others are flattened), "xy" or "ij" indexing."""
    if indexing not in ("xy", "ij"):
        raise ValueError(f'indexing must be "xy" or "ij", got {indexing!r}')
    return list(jnp.meshgrid(*(as_operand(x).reshape(-1) for x in xs), indexing=indexing))


def along_axis(x: jax.Array, axis: int, low: int | None, high: int | None) -> jax.Array:
    """x[low:high] along one axis."""
    start, stop, _ = slice(low, high).indices(x.shape[axis])
    return jax.lax.slice_in_dim(x, start, stop, axis=axis)


def is_scalar_like(value: Any) -> bool:
    """Whether `value` is a number or a 0-d array."""
    return is_number(value) or (isinstance(value, jax.Array) and value.ndim == 0)
