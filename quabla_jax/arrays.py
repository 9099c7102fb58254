"""Arrays and Python scalars under Quabla's rules: conversion and creation.

Numbers and nested lists become float64 (all-bool lists become bool), a tracer passes through, and no array has an
extent of zero. A call that touches no tracer is evaluated at once, also while a transform is tracing: Quabla's eager
values stay eager inside a trace, where jax.jit would have made a tracer of every one of them.
"""

from __future__ import annotations

import functools
import math
import numbers
import operator
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.core
import jax.numpy as jnp
import numpy as np

from . import dtypes
from .errors import TracerError
from .lowering.jax_api import concrete_array, no_trace_active

__all__ = [
    "Array",
    "Tensor",
    "TensorView",
    "TraceTensor",
    "arange",
    "array",
    "asarray",
    "astype",
    "eye",
    "full",
    "full_like",
    "linspace",
    "ones",
    "ones_like",
    "zeros",
    "zeros_like",
]

Array = Tensor = TensorView = jax.Array
TraceTensor = jax.core.Tracer


def is_tracer(x: Any) -> bool:
    """Whether `x` is a symbolic value of a transform that is tracing now."""
    return isinstance(x, TraceTensor)


def is_number(x: Any) -> bool:
    """Whether `x` is a Python or NumPy number, which stays weak next to an array."""
    return isinstance(x, numbers.Number)


def any_tracer(*values: Any) -> bool:
    """Whether a value, or an element of a list, tuple or dict among the values, is a tracer."""
    for value in values:
        if isinstance(value, TraceTensor):
            return True
        if isinstance(value, (list, tuple)) and any_tracer(*value):
            return True
        if isinstance(value, dict) and any_tracer(*value.values()):
            return True
    return False


Function = TypeVar("Function", bound=Callable[..., Any])


def concrete(fun: Function) -> Function:
    """Makes `fun` evaluate at once whenever none of its arguments is a tracer, even inside a trace."""

    @functools.wraps(fun)
    def call(*args, **kwargs):
        if no_trace_active() or any_tracer(*args) or (kwargs and any_tracer(*kwargs.values())):
            return fun(*args, **kwargs)
        with jax.ensure_compile_time_eval():
            return fun(*args, **kwargs)

    return call  # type: ignore[return-value]  # wraps keeps the signature


def refuse_tracer(reader: str, name: str, *values: Any) -> None:
    """TracerError where a value that `reader` has to know while tracing is a tracer."""
    if any_tracer(*values):
        raise TracerError(
            f"{reader} needs a concrete value, but a TraceTensor is symbolic inside a traced function; give {name} a "
            "Python number, which is part of the trace"
        )


def kind_name(x: Any) -> str:
    """The name Quabla's messages give to the type of `x`."""
    if isinstance(x, TraceTensor):
        return "TraceTensor"
    return "Tensor" if isinstance(x, jax.Array) else type(x).__name__


def _element(value: Any) -> Any:
    """One entry of a nested sequence as a Python value."""
    if isinstance(value, (list, tuple)):
        return [_element(v) for v in value]
    if isinstance(value, (bool, int, float)):
        return value
    single = (isinstance(value, (jax.Array, np.ndarray)) and value.ndim == 0) or isinstance(value, np.generic)
    if single and not is_tracer(value) and np.dtype(value.dtype).kind in "fiub":
        return float(value)
    hint = (
        "; join traced values with quabla_jax.stack"
        if is_tracer(value)
        else "; nested sequences must hold Python numbers"
    )
    raise TypeError(f"cannot convert an element of type {kind_name(value)} to a tensor value{hint}")


def _all_bools(nested: Any) -> bool:
    return all(map(_all_bools, nested)) if isinstance(nested, list) else isinstance(nested, bool)


def _extents(nested: Any) -> tuple[int, ...]:
    """The shape of a nested list; ragged and empty ones are refused."""
    if not isinstance(nested, list):
        return ()
    if not nested:
        raise ValueError("cannot build a tensor from an empty sequence: tensor extents must be greater than zero")
    inner = {_extents(item) for item in nested}
    if len(inner) > 1:
        raise ValueError("nested sequence is ragged: every sub-sequence of one level must have the same length")
    return (len(nested), *inner.pop())


def _from_nested(obj: Any) -> np.ndarray:
    nested = _element(obj)
    _extents(nested)
    return np.asarray(nested, np.bool_ if _all_bools(nested) else dtypes.default_float())


def _from_buffer(obj: Any) -> np.ndarray:
    """NumPy arrays and scalars, buffers and `__array__` objects: float64, float32 and bool stay, integers and bytes
    become the default float."""
    data: np.ndarray | None = None
    if isinstance(obj, (np.ndarray, np.generic)):
        data = np.asarray(obj)
    elif isinstance(obj, (bytes, bytearray, memoryview)):
        data = np.frombuffer(obj, np.uint8) if not isinstance(obj, memoryview) else np.asarray(obj)
    elif hasattr(type(obj), "__array__"):
        data = np.asarray(obj)
    if data is None or data.dtype.kind not in "fiub":
        what = kind_name(obj) if data is None else f"{kind_name(obj)} of dtype {data.dtype}"
        raise TypeError(
            f"cannot convert {what} to a quabla Tensor; expected a number, nested lists or tuples of numbers, a NumPy "
            "array, or an object with the buffer protocol or __array__"
        )
    if data.size == 0:
        raise ValueError(f"tensor extents must be greater than zero, got {list(data.shape)}")
    if data.dtype.kind == "f" and data.dtype.itemsize not in (4, 8):
        raise TypeError(f"{data.dtype} data is not supported; convert it to float32 or float64 first")
    if data.dtype.kind == "b" or data.dtype == np.float32:
        return data
    return data.astype(dtypes.default_float())


def _convert(obj: Any, dtype: np.dtype | None) -> jax.Array:
    if isinstance(obj, jax.Array):
        return weak_float(obj) if dtype is None else obj if obj.dtype == dtype else cast(obj, dtype)
    nested = isinstance(obj, (list, tuple, bool, int, float))
    data = _from_nested(obj) if nested else _from_buffer(obj)
    if dtype is not None and data.dtype != dtype:
        with np.errstate(over="ignore"):
            data = data.astype(dtype)
    # JAX takes a buffer over as it is, and the caller may go on writing to this one.
    return concrete_array(data if nested else data.copy())


def cast(x: jax.Array, dtype: np.dtype) -> jax.Array:
    """`x` in `dtype`, strongly typed; to bool: nonzero or NaN is True."""
    return x != 0 if dtype == np.bool_ and x.dtype != np.bool_ else jax.lax.convert_element_type(x, dtype)


def weak_float(x: jax.Array) -> jax.Array:
    """`x`; a weakly typed integer array, what JAX makes of mask * 2, as the weak float that it is in Quabla."""
    return x * 1.0 if getattr(x, "weak_type", False) and jnp.issubdtype(x.dtype, jnp.integer) else x


@concrete
def asarray(obj: Any, dtype: Any = None) -> jax.Array:
    """`obj` as an array; an array that already has `dtype` is returned unchanged.

    Arguments:
        obj: a number, nested lists or tuples of numbers, a NumPy array, a buffer, an array or a tracer.
        dtype: `float32`, `float64` or `bool_`; None infers it (numbers: float64, all-bool lists: bool).
    Raises:
        TypeError: `obj` is no such thing. ValueError: it is ragged or empty.
    """
    return _convert(obj, dtypes.resolve(dtype) if dtype is not None else None)


@concrete
def array(obj: Any, dtype: Any = None) -> jax.Array:
    """As `asarray`, always a new array object (a tracer passes through)."""
    result = _convert(obj, dtypes.resolve(dtype) if dtype is not None else None)
    return jnp.array(result, copy=True) if result is obj and not is_tracer(obj) else result


@concrete
def astype(x: Any, dtype: Any) -> jax.Array:
    """`x` converted to `dtype`; to `bool_`, nonzero and NaN entries are True."""
    return cast(asarray(x), dtypes.resolve(dtype))


def shape_of(shape: Any) -> tuple[int, ...]:
    """A shape argument, an int or a list or tuple of ints, as a tuple."""
    try:
        return tuple(map(operator.index, shape)) if isinstance(shape, (list, tuple)) else (operator.index(shape),)
    except TypeError as error:
        raise TypeError(f"a shape is an int or a list or tuple of ints, got {shape!r}: {error}") from None


def fitting(extents: tuple[int, ...]) -> tuple[int, ...]:
    """The extents of an array to be made. OverflowError where its bytes cannot be counted: XLA would end the process."""
    if math.prod(extents) >= 2**60:
        raise OverflowError(
            f"an array of shape {list(extents)} has more elements than any memory holds (2**60 or more)"
        )
    return extents


def new_shape(shape: Any) -> tuple[int, ...]:
    """The shape of an array to be made, with Quabla's errors for extents below 1."""
    extents = shape_of(shape)
    if any(n < 0 for n in extents):
        raise OverflowError(f"tensor extents must be positive, got {list(extents)}")
    if 0 in extents:
        raise ValueError(f"tensor extents must be greater than zero, got {list(extents)}")
    return fitting(extents)


def _float_or(dtype: Any) -> np.dtype:
    return dtypes.default_float() if dtype is None else dtypes.resolve(dtype)


@concrete
def zeros(shape: Any, dtype: Any = None) -> jax.Array:
    """Zeros of `shape` (an int or a sequence of ints), float64 by default. Raises ValueError for a zero extent."""
    return jnp.zeros(new_shape(shape), _float_or(dtype))


@concrete
def ones(shape: Any, dtype: Any = None) -> jax.Array:
    """Ones of `shape` (an int or a sequence of ints), float64 by default. Raises ValueError for a zero extent."""
    return jnp.ones(new_shape(shape), _float_or(dtype))


@concrete
def full(shape: Any, fill_value: Any, dtype: Any = None) -> jax.Array:
    """`fill_value`, a number or an array that broadcasts, over `shape`; its dtype is inferred as in `asarray`."""
    value, extents = asarray(fill_value, dtype), new_shape(shape)
    return broadcast(value, extents)


def broadcast(x: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """`x` broadcast to `shape`, with Quabla's error where it does not fit."""
    if common_shape(x.shape, shape) != tuple(shape):
        raise ValueError(f"cannot broadcast tensor shapes {list(x.shape)} and {list(shape)}")
    return jnp.broadcast_to(x, fitting(tuple(shape)))


def common_shape(*shapes: Any) -> tuple[int, ...]:
    """The NumPy broadcast of `shapes`; ValueError names both where they do not agree."""
    try:
        return jnp.broadcast_shapes(*map(tuple, shapes))
    except (ValueError, TypeError):
        text = " and ".join(str(list(s)) for s in shapes)
        raise ValueError(f"cannot broadcast tensor shapes {text}") from None


@concrete
def _filled(x: Any, value: Any, dtype: Any) -> jax.Array:
    like = asarray(x)
    with jax.ensure_compile_time_eval():
        return jnp.full(like.shape, value, like.dtype if dtype is None else dtypes.resolve(dtype))


def full_like(x: Any, fill_value: Any, dtype: Any = None) -> jax.Array:
    """A constant of the shape and dtype of `x` filled with `fill_value`; for a traced `x` too it is no tracer."""
    if not isinstance(fill_value, numbers.Real):
        like = asarray(x)
        return full(like.shape or (), fill_value, like.dtype if dtype is None else dtype)
    return _filled(x, fill_value, dtype)


def zeros_like(x: Any, dtype: Any = None) -> jax.Array:
    """`full_like(x, 0, dtype)`."""
    return _filled(x, 0, dtype)


def ones_like(x: Any, dtype: Any = None) -> jax.Array:
    """`full_like(x, 1, dtype)`."""
    return _filled(x, 1, dtype)


def _real(op: str, value: Any) -> float:
    """A number, or an array of one entry, as a float. TypeError for anything else, TracerError for a tracer."""
    refuse_tracer("float()", op, value)
    if isinstance(value, (str, bytes)):
        raise TypeError(f"{op} must be given real numbers, not {type(value).__name__}")
    if isinstance(value, (jax.Array, np.ndarray)):
        if value.size != 1:
            raise TypeError(f"{op} must be given real numbers, got an array of shape {list(value.shape)}")
        return float(value.item())
    return float(value)


@concrete
def arange(start: Any, stop: Any = None, step: Any = 1.0, dtype: Any = None) -> jax.Array:
    """Values from `start` up to `stop` (left out) by `step`, summed up one step at a time as Quabla does, so
    `arange(0.0, 1.0, 0.1)` has 11 entries. Raises ValueError where that leaves none."""
    if stop is None:
        start, stop = 0.0, start
    first, last, by = (_real("arange", value) for value in (start, stop, step))
    if not np.isfinite([first, last, by]).all() or by == 0.0 or not (last - first) * by > 0.0:
        raise ValueError("arange start, stop, and step do not define a non-empty range")
    values = _accumulate(first, last, by)
    return jnp.asarray(values, _float_or(dtype))


def _accumulate(first: float, last: float, by: float) -> np.ndarray:
    # One entry more than the quotient asks for: rounding in the running sum decides whether it belongs.
    count = int(np.ceil((last - first) / by)) + 2
    sums = np.add.accumulate(np.concatenate([[first], np.full(count, by)]))
    inside = sums < last if by > 0 else sums > last
    return sums[: int(np.argmin(inside))] if not inside.all() else sums


@concrete
def linspace(start: Any, stop: Any, num: int, dtype: Any = None) -> jax.Array:
    """`num` evenly spaced values from `start` to `stop`, both kept. Raises ValueError for `num` < 1."""
    (count,) = new_shape(operator.index(num))
    first, last = _real("linspace", start), _real("linspace", stop)
    if not np.isfinite([first, last]).all():
        raise ValueError(f"linspace start and stop must be finite, got {start!r} and {stop!r}")
    fitting((count,))
    return jnp.linspace(first, last, count, dtype=dtypes.default_float()).astype(_float_or(dtype))


@concrete
def eye(n: int, m: int | None = None, dtype: Any = None) -> jax.Array:
    """The `n` x `m` identity (`m` defaults to `n`). Raises ValueError for an extent below 1."""
    rows, columns = operator.index(n), operator.index(n if m is None else m)
    new_shape((rows, columns))
    return jnp.eye(rows, columns, dtype=_float_or(dtype))
