"""Reductions, cumulative sums and the softmax family.

`axis` is None (all axes), an int, or a sequence of ints; `()` reduces nothing. A bad axis raises ValueError, a float
one TypeError, a mask ValueError. sum and mean of float32 accumulate in float64, where JAX's x64 mode is on, and round
once. All of it is linear in the size of its operand and works in both derivative modes and under vmap.
"""

from __future__ import annotations

import builtins
import math
import operator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from . import _kinks
from .arrays import concrete, refuse_tracer
from .dtypes import short
from .promotion import as_operand, keeps_weak, numeric

__all__ = [
    "all", "any", "cumsum", "log_softmax", "logsumexp", "max", "mean", "min", "norm", "prod", "softmax", "std", "sum",
    "var",
]  # fmt: skip


def axes_of(axis: Any, rank: int) -> tuple[int, ...]:
    """`axis` as distinct axes counted from the front. Raises ValueError out of range or twice, TypeError for floats."""
    if axis is None:
        return tuple(range(rank))
    refuse_tracer("an integer index", "axis", axis)
    try:
        entries = (operator.index(axis),) if not isinstance(axis, (list, tuple)) else tuple(map(operator.index, axis))
    except TypeError:
        raise TypeError(f"axis must be None, an integer, or a sequence of integers, got {axis!r}") from None
    for entry in entries:
        if not -rank <= entry < rank:
            raise ValueError(f"axis {entry} is out of bounds for rank {rank}")
    axes = tuple(entry % rank for entry in entries)
    if len(set(axes)) != len(axes):
        raise ValueError(f"reduction axes must be unique, got {axis!r}")
    return axes


def _flag(name: str, value: Any) -> bool:
    """A bool argument; TypeError for what only counts as one, so that `sum(x, 0, 1)` is not read as keepdims."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be a bool, got {value!r}")
    return bool(value)


def accumulator(dtype: Any) -> Any:
    """The dtype in which a sum runs: float64 for float32 where JAX has it."""
    return np.dtype(np.float64) if dtype == np.float32 and jax.config.jax_enable_x64 else dtype  # type: ignore[attr-defined]


def _total(x: jax.Array, axes: tuple[int, ...], keepdims: bool) -> jax.Array:
    wide = accumulator(x.dtype)
    return jnp.sum(x if wide == x.dtype else x.astype(wide), axis=axes, keepdims=keepdims)


def _narrow(total: jax.Array, x: jax.Array) -> jax.Array:
    return total if total.dtype == x.dtype else total.astype(x.dtype)


@concrete
@keeps_weak
def sum(x: Any, axis: Any = None, keepdims: bool = False) -> jax.Array:
    """The sum over `axis`; float32 accumulates in float64."""
    keepdims = _flag("keepdims", keepdims)
    x = numeric("sum", x)
    return _narrow(_total(x, axes_of(axis, x.ndim), keepdims), x)


@concrete
@keeps_weak
def mean(x: Any, axis: Any = None, keepdims: bool = False) -> jax.Array:
    """The mean over `axis`; float32 accumulates in float64."""
    keepdims = _flag("keepdims", keepdims)
    x = numeric("mean", x)
    axes = axes_of(axis, x.ndim)
    return _narrow(_total(x, axes, keepdims) / math.prod(x.shape[a] for a in axes), x)


@concrete
@keeps_weak
def prod(x: Any, axis: Any = None, keepdims: bool = False) -> jax.Array:
    """The product over `axis`. Derivatives are exact where entries are zero."""
    keepdims = _flag("keepdims", keepdims)
    x = numeric("prod", x)
    return jnp.prod(x, axis=axes_of(axis, x.ndim), keepdims=keepdims)


def _extreme(x: jax.Array, axes: tuple[int, ...], keepdims: bool, largest: bool) -> jax.Array:
    peak = _kinks.extreme(x, axes, largest)
    return peak if keepdims else jnp.squeeze(peak, axes)


@concrete
@keeps_weak
def max(x: Any, axis: Any = None, keepdims: bool = False) -> jax.Array:
    """The largest entry over `axis`; ties share the slope equally, NaN spreads."""
    keepdims = _flag("keepdims", keepdims)
    x = numeric("max", x)
    return _extreme(x, axes_of(axis, x.ndim), keepdims, True)


@concrete
@keeps_weak
def min(x: Any, axis: Any = None, keepdims: bool = False) -> jax.Array:
    """The smallest entry over `axis`; ties share the slope equally, NaN spreads."""
    keepdims = _flag("keepdims", keepdims)
    x = numeric("min", x)
    return _extreme(x, axes_of(axis, x.ndim), keepdims, False)


@concrete
@keeps_weak
def norm(x: Any, axis: Any = None, keepdims: bool = False) -> jax.Array:
    """The 2-norm over `axis` (several axes count as one vector), scaled so that no square overflows; gradient and
    Hessian are zero at the origin."""
    keepdims = _flag("keepdims", keepdims)
    x = numeric("norm", x)
    axes = axes_of(axis, x.ndim)
    scale = _kinks.divisor(lax.stop_gradient(jnp.max(jnp.abs(x), axis=axes, keepdims=True)))
    u = x / scale
    length = _narrow(_kinks.root(_total(u * u, axes, True)), x) * scale
    return length if keepdims else jnp.squeeze(length, axes)


def _require_bool(op: str, x: Any) -> jax.Array:
    x = as_operand(x)
    if x.dtype != np.bool_:
        raise ValueError(
            f"{op} requires bool operands, got dtype {short(x.dtype)}; build a mask with a comparison or convert "
            "explicitly with astype"
        )
    return x


@concrete
def any(x: Any, axis: Any = None, keepdims: bool = False) -> jax.Array:
    """Whether any entry of a mask holds, over `axis`. Raises ValueError for floats."""
    keepdims = _flag("keepdims", keepdims)
    x = _require_bool("any", x)
    return jnp.any(x, axis=axes_of(axis, x.ndim), keepdims=keepdims)


@concrete
def all(x: Any, axis: Any = None, keepdims: bool = False) -> jax.Array:
    """Whether every entry of a mask holds, over `axis`. Raises ValueError for floats."""
    keepdims = _flag("keepdims", keepdims)
    x = _require_bool("all", x)
    return jnp.all(x, axis=axes_of(axis, x.ndim), keepdims=keepdims)


@concrete
@keeps_weak
def cumsum(x: Any, axis: int | None = None, reverse: bool = False) -> jax.Array:
    """Running sums along `axis` (of the flattened array for None), from the end with `reverse`."""
    x = numeric("cumsum", x)
    reverse = _flag("cumsum reverse", reverse)
    if axis is None:
        return lax.cumsum(x.reshape(-1), 0, reverse=reverse)
    (along,) = axes_of(operator.index(axis), x.ndim)
    return lax.cumsum(x, along, reverse=reverse)


@concrete
@keeps_weak
def var(x: Any, axis: Any = None, keepdims: bool = False, ddof: int = 0) -> jax.Array:
    """The variance over `axis` in two passes; the divisor is max(n - ddof, 0)."""
    keepdims = _flag("keepdims", keepdims)
    x = numeric("mean", x)
    if not isinstance(ddof, (int, float)):
        raise TypeError(f"ddof must be a number, got {ddof!r}")
    axes = axes_of(axis, x.ndim)
    deviation = x - mean(x, axes, True)
    count = float(builtins.max(math.prod(x.shape[a] for a in axes) - ddof, 0))
    return _narrow(_total(deviation * deviation, axes, keepdims), x) / jnp.asarray(count, x.dtype)


def std(x: Any, axis: Any = None, keepdims: bool = False, ddof: int = 0) -> jax.Array:
    """sqrt(var(...)); its gradient at zero variance is zero."""
    return _root(var(x, axis, keepdims, ddof))


@concrete
@keeps_weak
def _root(x: jax.Array) -> jax.Array:
    return _kinks.root(x)


def _shifted(x: jax.Array, axes: tuple[int, ...]) -> jax.Array:
    # The maximum cancels from the result, so no derivative need pass through it.
    return x - lax.stop_gradient(jnp.max(x, axis=axes, keepdims=True))


@concrete
@keeps_weak
def softmax(x: Any, axis: Any = -1) -> jax.Array:
    """exp(x) / sum(exp(x)) along `axis`, without overflow; NaN where a slice holds +inf or only -inf."""
    x = numeric("max", x)
    axes = axes_of(axis, x.ndim)
    weights = jnp.exp(_shifted(x, axes))
    return weights / _narrow(_total(weights, axes, True), x)


@concrete
@keeps_weak
def log_softmax(x: Any, axis: Any = -1) -> jax.Array:
    """log(softmax(x)) along `axis`, without overflow or underflow."""
    x = numeric("max", x)
    axes = axes_of(axis, x.ndim)
    shifted = _shifted(x, axes)
    return shifted - jnp.log(_narrow(_total(jnp.exp(shifted), axes, True), x))


@concrete
@keeps_weak
def logsumexp(x: Any, axis: Any = None, keepdims: bool = False) -> jax.Array:
    """log(sum(exp(x))) over `axis`, without overflow: -inf for a slice of only -inf, inf for one that holds inf."""
    x = numeric("max", x)
    axes = axes_of(axis, x.ndim)
    peak = lax.stop_gradient(jnp.max(x, axis=axes, keepdims=True))
    shift = jnp.where(jnp.isfinite(peak), peak, 0)
    total = jnp.log(_narrow(_total(jnp.exp(x - shift), axes, True), x)) + shift
    return total if keepdims else jnp.squeeze(total, axes)
