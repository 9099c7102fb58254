"""Dense linear algebra on MLX's CPU stream, with JAX's answers where a matrix is singular, indefinite or not finite.

MLX hands matrices to LAPACK unchecked: some routines then raise, and eig and svd may end the process on NaN. So a
matrix with a non-finite entry is replaced before the call and its results are NaN afterwards, as in JAX.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import numpy as np

from ..lowering.program import Op
from .target import Context, OpTable, Target
from .target import scalar_like as lit

__all__ = ["TABLE"]

TABLE = OpTable()

LEAF = 16
"""Rows that forward substitution solves one by one; larger triangles are halved into products."""


def _real_only(node: Op, target: Target) -> str | None:
    dtype = node.inputs[0].dtype
    if dtype not in (np.float32, np.float64):
        return f"MLX has this decomposition for float32 and float64, not for {dtype}"
    return None


def _finite(a: mx.array) -> mx.array:
    """[*, 1, 1] bool: every entry of the matrix is finite."""
    return mx.all(mx.isfinite(a), axis=(-2, -1), keepdims=True)


def _guard(a: mx.array) -> tuple[mx.array, mx.array]:
    """(a with non-finite matrices replaced by eye, where it was finite)."""
    fine = _finite(a)
    eye = mx.eye(a.shape[-2], a.shape[-1], dtype=mx.float32).astype(a.dtype)
    return mx.where(fine, a, eye), fine


def _nan_unless(fine: mx.array, x: mx.array) -> mx.array:
    nan = lit(x, complex(math.nan, math.nan) if x.dtype == mx.complex64 else math.nan)
    return mx.where(fine, x, nan)


def _lower(a: mx.array, keep: int = 0) -> mx.array:
    rows = mx.reshape(mx.arange(a.shape[-2]), (-1, 1))
    return mx.where(rows + keep >= mx.arange(a.shape[-1]), a, lit(a, 0))


def _upper(a: mx.array) -> mx.array:
    rows = mx.reshape(mx.arange(a.shape[-2]), (-1, 1))
    return mx.where(rows <= mx.arange(a.shape[-1]), a, lit(a, 0))


def _outputs_empty(c: Context) -> bool:
    return any(0 in v.shape for v in c.node.inputs)


def _empty_outputs(c: Context) -> tuple[mx.array, ...]:
    out = []
    for v in c.node.outputs:
        *_, rows, columns = (0, 0, *v.shape)
        square = len(v.shape) >= 2 and rows == columns and v.dtype.kind in "fc"
        x = mx.eye(columns) if square else mx.arange(columns) if v.dtype.kind == "i" else mx.zeros(v.shape)
        out.append(mx.broadcast_to(x, v.shape).astype(c.dtype(v.dtype)))
    return tuple(out)


def _stream(c: Context) -> mx.Device:
    return mx.cpu  # type: ignore[return-value]


@TABLE.row("cholesky", refuse=_real_only)
def _cholesky(c: Context, a: mx.array) -> mx.array:
    if _outputs_empty(c):
        return a
    low = _lower(a)
    safe, fine = _guard(low + mx.swapaxes(_lower(a, -1), -1, -2))
    factor = mx.linalg.cholesky(safe, stream=_stream(c))
    pivots = mx.diagonal(factor, axis1=-2, axis2=-1)
    # LAPACK stops at the first pivot that is not positive and leaves it on the diagonal.
    fine = fine & mx.reshape(mx.all(pivots > lit(pivots, 0), axis=-1), (*a.shape[:-2], 1, 1))
    return _lower(_nan_unless(fine, factor))


@TABLE.row("triangular_solve")
def _triangular_solve(
    c: Context, a: mx.array, b: mx.array, lower: bool, transpose: bool, unit_diagonal: bool, conjugate: bool
) -> mx.array:
    """Substitution, so that a zero on the diagonal gives inf and NaN as in LAPACK; MLX's own inverts and raises."""
    if b.size == 0:
        return b
    if conjugate and a.dtype == mx.complex64:
        a = mx.conjugate(a)
    if transpose:
        a, lower = mx.swapaxes(a, -1, -2), not lower
    if not lower:  # reversed rows and columns of an upper triangle are a lower one
        a, b = a[..., ::-1, ::-1], b[..., ::-1, :]
    x = _forward(a, b, unit_diagonal)
    return x if lower else x[..., ::-1, :]


def _forward(a: mx.array, b: mx.array, unit: bool) -> mx.array:
    n = a.shape[-1]
    if n > LEAF:
        half = n // 2
        top = _forward(a[..., :half, :half], b[..., :half, :], unit)
        rest = b[..., half:, :] - mx.matmul(a[..., half:, :half], top)
        return mx.concatenate([top, _forward(a[..., half:, half:], rest, unit)], axis=-2)
    rows = []
    for i in range(n):
        row = b[..., :1, :] if unit else b[..., :1, :] / a[..., i : i + 1, i : i + 1]
        rows.append(row)
        if i + 1 < n:
            b = b[..., 1:, :] - a[..., i + 1 :, i : i + 1] * row
    return rows[0] if n == 1 else mx.concatenate(rows, axis=-2)


@TABLE.row("lu", refuse=_real_only)
def _lu(c: Context, a: mx.array) -> tuple[mx.array, ...]:
    if _outputs_empty(c):
        return _empty_outputs(c)
    safe, fine = _guard(a)
    packed, pivots = mx.linalg.lu_factor(safe, stream=_stream(c))
    rows = mx.broadcast_to(mx.arange(a.shape[-2], dtype=mx.int32), a.shape[:-1])
    pivots = pivots.astype(mx.int32)
    return _nan_unless(fine, packed), pivots, _permutation(rows, pivots)


def _permutation(rows: mx.array, pivots: mx.array) -> mx.array:
    """The swaps row i <-> row pivots[i], done in order on the row numbers."""
    line = mx.arange(rows.shape[-1], dtype=mx.int32)
    for i in range(pivots.shape[-1]):
        at = pivots[..., i : i + 1]
        other = mx.take_along_axis(rows, at, axis=-1)
        here = rows[..., i : i + 1]
        rows = mx.where(line == mx.array(i, dtype=mx.int32), other, mx.where(line == at, here, rows))
    return rows


@TABLE.row("qr", refuse=_real_only)
def _qr(c: Context, a: mx.array, full_matrices: bool) -> tuple[mx.array, ...]:
    if _outputs_empty(c):
        return _empty_outputs(c)
    m, n = a.shape[-2:]
    safe, fine = _guard(a)
    if full_matrices and m > n:
        # Columns of zeros add reflectors that are the identity: the first n columns and R stay what they are.
        wide = mx.concatenate([safe, mx.zeros((*a.shape[:-1], m - n), dtype=a.dtype)], axis=-1)
        q, r = mx.linalg.qr(wide, stream=_stream(c))
        r = r[..., :n]
    else:
        q, r = mx.linalg.qr(safe, stream=_stream(c))
    return _nan_unless(fine, q), _upper(_nan_unless(fine, r))


@TABLE.row("eigh")
def _eigh(c: Context, a: mx.array) -> tuple[mx.array, ...]:
    if _outputs_empty(c):
        return _empty_outputs(c)
    safe, fine = _guard(_lower(a))
    values, vectors = mx.linalg.eigh(safe, UPLO="L", stream=_stream(c))
    return _nan_unless(fine, vectors), _nan_unless(fine[..., 0], values)


@TABLE.row("svd")
def _svd(c: Context, a: mx.array, full_matrices: bool, compute_uv: bool) -> mx.array | tuple[mx.array, ...]:
    if _outputs_empty(c):
        return _empty_outputs(c)
    safe, fine = _guard(a)
    if not compute_uv:
        values: Any = mx.linalg.svd(safe, compute_uv=False, stream=_stream(c))
        return _nan_unless(fine[..., 0], values)
    u, s, vt = mx.linalg.svd(safe, stream=_stream(c))
    if not full_matrices:
        k = min(a.shape[-2:])
        u, vt = u[..., :, :k], vt[..., :k, :]
    return _nan_unless(fine[..., 0], s), _nan_unless(fine, u), _nan_unless(fine, vt)


@TABLE.row("eig")
def _eig(c: Context, a: mx.array, left: bool, right: bool) -> mx.array | Sequence[mx.array]:
    """In LAPACK's order. MLX hands it the transpose, so the values and left vectors are those of our transpose, and the

    right vectors are put beside the values that they belong to.
    """
    if _outputs_empty(c):
        return _empty_outputs(c)
    safe, fine = _guard(a)
    turned = mx.swapaxes(safe, -1, -2)
    if not left and not right:
        return _nan_unless(fine[..., 0], mx.linalg.eigvals(turned, stream=_stream(c)))
    values, conjugates = _eigenpairs(c, turned)
    duals = mx.conjugate(conjugates)
    out = [_nan_unless(fine[..., 0], values)]
    if left:
        out.append(_nan_unless(fine, duals))
    if right:
        others, vectors = _eigenpairs(c, safe)
        vectors = mx.take_along_axis(vectors, mx.expand_dims(_matched(values, others), -2), axis=-1)
        if a.dtype != mx.complex64:  # LAPACK's back substitution makes the product of a real pair positive
            product = mx.real(mx.sum(conjugates * vectors, axis=-2, keepdims=True))
            real = mx.expand_dims(mx.imag(values), -2) == mx.array(0.0)
            vectors = mx.where(real & (product < mx.array(0.0)), -vectors, vectors)
        out.append(_nan_unless(fine, vectors))
    return out[0] if len(out) == 1 else tuple(out)


def _eigenpairs(c: Context, a: mx.array) -> tuple[mx.array, mx.array]:
    """mx.linalg.eig, which gives the conjugates of a complex matrix's eigenvectors: of both, what fits better is taken."""
    values, vectors = mx.linalg.eig(a, stream=_stream(c))
    if a.dtype != mx.complex64:
        return values, vectors

    def misfit(v: mx.array) -> mx.array:
        return mx.sum(mx.square(mx.abs(a @ v - v * mx.expand_dims(values, -2))), axis=(-2, -1), keepdims=True)

    other = mx.conjugate(vectors)
    return values, mx.where(misfit(vectors) <= misfit(other), vectors, other)


def _matched(values: mx.array, others: mx.array) -> mx.array:
    """For every value the position of the nearest of the others that no earlier value took."""
    n = values.shape[-1]
    distance = mx.abs(mx.expand_dims(values, -1) - mx.expand_dims(others, -2))
    line = mx.arange(n, dtype=mx.int32)
    taken = mx.zeros(others.shape, dtype=mx.bool_)
    order = []
    for i in range(n):
        row = mx.where(taken, mx.array(math.inf), distance[..., i, :])
        order.append(mx.argmin(row, axis=-1, keepdims=True).astype(mx.int32))
        taken = taken | (line == order[-1])
    return mx.concatenate(order, axis=-1)
