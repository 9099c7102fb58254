"""Products of arrays and the calculus functions: NumPy's rules for every rank, Quabla's dtype rules."""

from __future__ import annotations

import operator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from . import linalg
from .arrays import asarray, broadcast, common_shape, concrete, is_number, is_tracer
from .math import not_equal
from .promotion import align, as_operand, beside, keeps_weak, numeric, operands, refuse_bool
from .reductions import sum as _sum
from .shapes import along_axis, concat, one_axis, static_int, static_ints

__all__ = [
    "cholesky", "cross", "diff", "dot", "einsum", "interp", "kron", "matmul", "outer", "polyval", "tensordot", "trapezoid",
]  # fmt: skip


def _factors(op: str, x1: Any, x2: Any) -> tuple[jax.Array, jax.Array]:
    a, b = as_operand(x1), as_operand(x2)
    if a.dtype == np.bool_ and b.dtype == np.bool_:
        refuse_bool(op, a)
    a, b = align(op, a, b)
    return a, b


@concrete
def matmul(x1: Any, x2: Any) -> jax.Array:
    """The matrix product with NumPy's rules, vectors and stacks of matrices included.
    Raises ValueError for 0-d operands and inner extents or batches that do not agree."""
    a, b = _factors("matmul", x1, x2)
    return _matmul(a, b)


def _matmul(a: jax.Array, b: jax.Array) -> jax.Array:
    if a.ndim == 0 or b.ndim == 0:
        raise ValueError(
            f"matmul requires operands of rank one or more, got shapes {list(a.shape)} and {list(b.shape)}"
        )
    if a.shape[-1] != b.shape[max(b.ndim - 2, 0)]:
        raise ValueError(f"matmul inner extents must agree, got shapes {list(a.shape)} and {list(b.shape)}")
    common_shape(a.shape[:-2], b.shape[:-2])
    return jnp.matmul(a, b)


@concrete
def dot(a: Any, b: Any) -> jax.Array:
    """NumPy's dot: the product with a 0-d operand, `matmul` up to rank 2, else the sum over the last axis of `a` and
    the second to last of `b`."""
    x, y = as_operand(a), as_operand(b)
    if x.ndim == 0 or y.ndim == 0:
        p, q = operands("mul", x, y)
        return p * q
    if x.ndim == 1 or y.ndim == 1 or x.ndim == y.ndim == 2:
        return _matmul(*_factors("matmul", x, y))
    return tensordot(x, y, ((x.ndim - 1,), (y.ndim - 2,)))


@concrete
def outer(a: Any, b: Any) -> jax.Array:
    """result[i, j] = a[i] * b[j] of the flattened operands."""
    x, y = _factors("mul", a, b)
    return x.reshape(-1, 1) * y.reshape(1, -1)


@concrete
def tensordot(a: Any, b: Any, axes: Any = 2) -> jax.Array:
    """The sum of products over paired axes: the last n of `a` with the first n of `b`, or a pair of axis lists."""
    x, y = _factors("matmul", a, b)
    if isinstance(axes, np.ndarray):
        axes = axes.tolist()
    if isinstance(axes, (list, tuple)):
        if len(axes) != 2:
            raise ValueError(f"axes must be an int or a pair of axis sequences, got {axes!r}")
        left, right = (static_ints(part, "axes") for part in axes)
        left, right = (tuple(one_axis(k, z.ndim) for k in part) for part, z in ((left, x), (right, y)))
        if repeated := next((part for part in (left, right) if len(set(part)) < len(part)), None):
            raise ValueError(f"axes {axes!r} name an axis twice: {repeated}")
    else:
        try:
            count = operator.index(axes)
        except TypeError:
            raise ValueError(f"axes must be an int or a pair of axis sequences, got {axes!r}") from None
        if not 0 <= count <= min(x.ndim, y.ndim):
            raise ValueError(f"axes={count} is out of range for operands of rank {x.ndim} and {y.ndim}")
        left, right = tuple(range(x.ndim - count, x.ndim)), tuple(range(count))
    if len(left) != len(right):
        raise ValueError(f"axes {axes!r} pair {len(left)} axes of a with {len(right)} of b")
    for i, j in zip(left, right):
        if x.shape[i] != y.shape[j]:
            raise ValueError(
                f"shape mismatch for sum: axis {i} of a has extent {x.shape[i]}, axis {j} of b has extent {y.shape[j]}"
            )
    return jnp.tensordot(x, y, (left, right))


@concrete
def kron(a: Any, b: Any) -> jax.Array:
    """The Kronecker product; the operand of smaller rank gets leading unit axes."""
    x, y = _factors("mul", a, b)
    return jnp.kron(x, y)


def cholesky(x: Any) -> jax.Array:
    """The lower Cholesky factor: `linalg.cholesky`."""
    return linalg.cholesky(x)


_EINSUM = ("ij,jk->ik", "...ij,...jk->...ik")


def einsum(equation: str, operands: Any) -> jax.Array:
    """The matrix product by its equation, "ij,jk->ik" or "...ij,...jk->...ik"; `operands` is one sequence.
    Raises ValueError for any other equation and TypeError for another number of operands, as Quabla does;
    jax.numpy.einsum has them all."""
    if not isinstance(equation, str):
        raise TypeError(f"equation must be a str, got {type(equation).__name__}")
    if not isinstance(operands, (list, tuple)):
        raise TypeError(f"operands must be one list or tuple of two arrays, got {type(operands).__name__}")
    text = equation.replace(" ", "")
    if text not in _EINSUM:
        raise ValueError(f"einsum currently supports only {' and '.join(_EINSUM)}, got {equation!r}")
    if len(operands) != 2:
        raise TypeError(f"einsum {text!r} takes exactly two operands, got {len(operands)}")
    x, y = map(as_operand, operands)
    if text == _EINSUM[0] and not x.ndim == y.ndim == 2 or min(x.ndim, y.ndim) < 2:
        raise ValueError(f"einsum {text!r} does not fit operands of shapes {list(x.shape)} and {list(y.shape)}")
    return matmul(x, y)


@concrete
def cross(a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None) -> jax.Array:
    """The cross product of 2- and 3-vectors along an axis of each operand; two 2-vectors give the z component."""
    x, y = _factors("mul", a, b)
    if axis is not None:
        axisa = axisb = axisc = axis
    x, y = jnp.moveaxis(x, one_axis(axisa, x.ndim), -1), jnp.moveaxis(y, one_axis(axisb, y.ndim), -1)
    sizes = x.shape[-1], y.shape[-1]
    if not set(sizes) <= {2, 3}:
        raise ValueError(
            f"incompatible dimensions for cross product (dimension must be 2 or 3), got {sizes[0]} and {sizes[1]}"
        )
    common_shape(x.shape[:-1], y.shape[:-1])
    if sizes == (2, 2):
        return x[..., 0] * y[..., 1] - x[..., 1] * y[..., 0]
    x, y = (jnp.concatenate([z, jnp.zeros((*z.shape[:-1], 3 - z.shape[-1]), z.dtype)], -1) for z in (x, y))
    return jnp.cross(x, y, axisc=axisc)


def _edge(value: Any, x: jax.Array, axis: int, name: str) -> jax.Array:
    """A `prepend` or `append` of `diff` with the extent it has along `axis`."""
    shape = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
    edge = jnp.asarray(value, x.dtype) if is_number(value) else as_operand(value)
    if edge.ndim == 0:
        return broadcast(edge, shape)
    if edge.ndim != x.ndim:
        raise ValueError(f"{name} must be a scalar or have the rank of the input")
    return edge


@concrete
def diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> jax.Array:
    """The n-th difference of neighbours along `axis` (of a mask: whether they differ), after joining `prepend` and
    `append`. Raises ValueError for a negative order and where nothing would be left."""
    x, order = as_operand(a), static_int(n, "n")
    if order < 0:
        raise ValueError(f"order must be non-negative, got {order}")
    if x.ndim == 0:
        raise ValueError("diff requires an input of rank 1 or more")
    along = one_axis(axis, x.ndim)
    edges = [_edge(v, x, along, name) for v, name in ((prepend, "prepend"), (append, "append")) if v is not None]
    if edges:
        x = concat(
            ([edges[0]] if prepend is not None else []) + [x] + ([edges[-1]] if append is not None else []), along
        )
    if order and order >= x.shape[along]:
        raise ValueError(f"diff of order {order} along an axis of extent {x.shape[along]} would be empty")
    for _ in range(order):
        later, earlier = along_axis(x, along, 1, None), along_axis(x, along, None, -1)
        x = not_equal(later, earlier) if x.dtype == np.bool_ else later - earlier
    return x


@concrete
@keeps_weak
def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> jax.Array:
    """The integral of `y` along `axis` by the trapezoidal rule, at points `x` (a vector, or of y's shape) or with
    spacing `dx`; one sample integrates to 0."""
    y = numeric("add", y)
    if y.ndim == 0:
        raise ValueError("trapezoid requires an input of rank 1 or more")
    along = one_axis(axis, y.ndim)
    if y.shape[along] < 2:
        return jnp.sum(y * 0.0, axis=along) * 0.0 if not is_tracer(y) else jnp.where(True, 0.0, jnp.sum(y, axis=along))
    means = (along_axis(y, along, 1, None) + along_axis(y, along, None, -1)) / 2.0
    if x is None:
        return _sum(means * dx, axis=along)
    points = as_operand(x)
    steps = diff(points) if points.ndim == 1 else diff(points, axis=along)
    if points.ndim == 1:
        steps = steps.reshape([-1 if k == along else 1 for k in range(y.ndim)])
    steps, means = operands("mul", steps, means)
    return _sum(steps * means, axis=along)


@concrete
@keeps_weak
def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None) -> jax.Array:
    """The piecewise linear interpolant through (xp, fp) at `x`.

    Arguments:
        xp, fp: vectors of one length, xp strictly increasing (checked where it is concrete).
        left, right: values outside, fp's ends by default.
    Raises:
        ValueError: other shapes, a grid that does not increase, dtypes that differ.
    Differentiation: in x, xp and fp; at a knot the slope is that of the interval on the right (at the last knot, on
        the left), outside it is 0. NaN in x gives NaN.
    """
    q, grid, values = align("interp", *map(as_operand, (x, xp, fp)))
    if grid.ndim != 1 or grid.shape != values.shape:
        raise ValueError(f"xp and fp must be 1-D of the same length, got {list(grid.shape)} and {list(values.shape)}")
    count = grid.shape[0]
    if not is_tracer(grid) and count > 1 and not bool(jnp.all(grid[1:] > grid[:-1])):
        raise ValueError("interp requires a strictly increasing xp")
    first = values[0] if left is None else beside("where", values, left)
    last = values[-1] if right is None else beside("where", values, right)
    inner = values[0] + jnp.zeros_like(q) if count == 1 else _between(q, grid, values)
    inner = jnp.where(q > grid[-1], last, inner)
    inner = jnp.where(q < grid[0], first, inner)
    return jnp.where(jnp.isnan(q), q, inner).astype(q.dtype)


def _between(q: jax.Array, grid: jax.Array, values: jax.Array) -> jax.Array:
    """The interpolant at points inside the grid; a point outside is moved to an end, so no infinity is formed."""
    inside = (q >= grid[0]) & (q <= grid[-1])
    safe = jnp.where(inside, q, grid[0])
    k = jnp.clip(
        jnp.searchsorted(lax.stop_gradient(grid), lax.stop_gradient(safe), side="right") - 1, 0, grid.shape[0] - 2
    )
    low, high = grid[k], grid[k + 1]
    t = (safe - low) / (high - low)
    return values[k] * (1.0 - t) + values[k + 1] * t


@concrete
def polyval(p: Any, x: Any) -> jax.Array:
    """The polynomial with coefficients `p`, highest degree first, by Horner's rule begun at p[0], so that an infinite
    `x` gives the limit. A list of Python numbers stays weak. Raises ValueError for no coefficient."""
    x = as_operand(x)
    if isinstance(p, (list, tuple)) and all(map(is_number, p)):
        coefficients: list[Any] = [float(c) for c in p]
    else:
        table = asarray(p)
        if table.ndim != 1:
            raise ValueError(f"p must be 1-D, got shape {list(table.shape)}")
        table, x = align("mul", table, x)
        coefficients = [table[i] for i in range(operator.index(table.shape[0]))]
    if not coefficients:
        raise ValueError("p must hold at least one coefficient")
    x = numeric("mul", x)
    if len(coefficients) == 1:
        return x * 0.0 + coefficients[0]
    result = x * coefficients[0] + coefficients[1]
    for coefficient in coefficients[2:]:
        result = result * x + coefficient
    return result
