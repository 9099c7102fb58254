"""Dense linear algebra over the leading axes, and the matrix-free solvers `cg` and `gmres`.

Matrices are `[..., m, n]`; a right-hand side is `[..., n, k]`, or a vector `[n]` shared by every matrix. float32 and
float64 do not mix. Everything is differentiable in both modes and at every order unless it says otherwise, runs under
vmap, and costs one LAPACK-class factorization.
"""

from __future__ import annotations

import math
import numbers
import operator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from . import _factor, _kinks
from ._krylov import cg, gmres
from ._staging import runtime_check
from .arrays import broadcast, common_shape, concrete, is_tracer
from .promotion import align, as_operand, beside, keeps_weak, numeric, refuse_bool
from .reductions import axes_of
from .reductions import max as _max
from .reductions import min as _min
from .reductions import norm as _norm2
from .reductions import sum as _sum

__all__ = [
    "EighResult", "LstsqResult", "QRResult", "SVDResult", "SlogdetResult", "cg", "cho_solve", "cholesky", "det", "eigh",
    "gmres", "inv", "lstsq", "matrix_power", "norm", "pinv", "qr", "slogdet", "solve", "solve_triangular", "svd",
]  # fmt: skip


class SlogdetResult(NamedTuple):
    """Sign and logarithm of the absolute determinant."""

    sign: jax.Array
    logabsdet: jax.Array


class EighResult(NamedTuple):
    """Ascending eigenvalues `[..., n]` and eigenvectors, the columns of `[..., n, n]`."""

    eigenvalues: jax.Array
    eigenvectors: jax.Array


class QRResult(NamedTuple):
    """Orthonormal columns Q and upper triangular R."""

    Q: jax.Array
    R: jax.Array


class SVDResult(NamedTuple):
    """a = U @ diag(S) @ Vh, S descending."""

    U: jax.Array
    S: jax.Array
    Vh: jax.Array


class LstsqResult(NamedTuple):
    """The least-squares solution and the squared norms of its residuals."""

    solution: jax.Array
    residuals: jax.Array


def _square(name: str, a: Any) -> jax.Array:
    a = as_operand(a)
    if a.ndim < 2 or a.shape[-1] != a.shape[-2]:
        raise ValueError(f"{name} requires a stack of square matrices [..., n, n], got {list(a.shape)}")
    return a


def _matrix(name: str, a: Any) -> jax.Array:
    a = as_operand(a)
    if a.ndim < 2:
        raise ValueError(f"{name} requires a stack of matrices [..., m, n], got {list(a.shape)}")
    return numeric(name, a)


def _t(x: jax.Array) -> jax.Array:
    return jnp.swapaxes(x, -1, -2)


def _system(name: str, a: jax.Array, b: Any) -> tuple[jax.Array, jax.Array, bool]:
    """Matrix and columns with one batch and one dtype, and whether `b` was a vector."""
    b = as_operand(b)
    vector = b.ndim == 1
    if b.ndim == 0:
        raise ValueError(f"{name} requires a right-hand side of rank one or more, got {list(b.shape)}")
    columns = b[:, None] if vector else b
    if columns.shape[-2] != a.shape[-2]:
        raise ValueError(
            f"{name} requires matrix shape {list(a.shape)} and right-hand side shape {list(columns.shape)} to agree on rows"
        )
    if a.dtype == b.dtype == np.bool_:
        refuse_bool(name, a)
    a, columns = align(name, a, columns)
    batch = common_shape(a.shape[:-2], columns.shape[:-2])
    return broadcast(a, (*batch, *a.shape[-2:])), broadcast(columns, (*batch, *columns.shape[-2:])), vector


def _restore(x: jax.Array, vector: bool) -> jax.Array:
    return x[..., 0] if vector else x


@concrete
def solve(a: Any, b: Any) -> jax.Array:
    """The solution x of a @ x == b, by LU with partial pivoting.

    Raises:
        ValueError: shapes that do not fit, and an exactly singular matrix, under this library's jit after the run;
            inside a loop, a mapped vmap or plain jax.jit it gives inf or NaN instead.
    """
    matrix, columns, vector = _system("solve", _square("solve", a), b)
    return _restore(_factor.lu_checked(matrix, columns), vector)


def _transposes(trans: Any) -> bool:
    if isinstance(trans, (int, str)):
        if trans in (0, "N"):
            return False
        if trans in (1, "T", "C"):
            return True
    raise ValueError(f"trans must be 0, 1, 'N', 'T', or 'C', got {trans!r}")


@concrete
def solve_triangular(a: Any, b: Any, trans: Any = 0, lower: bool = False) -> jax.Array:
    """The solution of t @ x == b (`trans` 0 or "N") or t^T @ x == b (1, "T", "C"), t the upper or lower triangle of
    `a`; the other triangle is never read and has no gradient. A concrete zero pivot raises ValueError."""
    transposed = _transposes(trans)
    matrix, columns, vector = _system("solve_triangular", _square("solve_triangular", a), b)
    singular = jnp.any(jnp.diagonal(matrix, axis1=-2, axis2=-1) == 0)
    runtime_check(singular, lambda: ValueError("solve_triangular requires a non-singular coefficient matrix"))
    x = lax.linalg.triangular_solve(matrix, columns, left_side=True, lower=bool(lower), transpose_a=transposed)
    return _restore(x, vector)


@concrete
def cholesky(a: Any) -> jax.Array:
    """The lower Cholesky factor. A concrete matrix must be exactly symmetric and positive definite (ValueError);
    of a traced one only the lower triangle is read, and failure gives NaN. The gradient is lower triangular, not
    symmetrized."""
    a = numeric("cholesky", _square("cholesky", a))
    if is_tracer(a):
        return _factor.cholesky_lower(a)
    if not bool(jnp.all((a == _t(a)) | (jnp.isnan(a) & jnp.isnan(_t(a))))):
        raise ValueError("cholesky requires a symmetric coefficient matrix")
    factor = _factor.cholesky_lower(a)
    if bool(jnp.any(jnp.isnan(factor))) or not bool(jnp.all(jnp.diagonal(factor, axis1=-2, axis2=-1) > 0)):
        raise ValueError("cholesky requires a positive-definite coefficient matrix")
    return factor


def cho_solve(c: Any, b: Any, lower: bool = True) -> jax.Array:
    """The solution of a @ x == b from the Cholesky factor `c` of `a`, lower or upper."""
    first = solve_triangular(c, b, trans=0 if lower else 1, lower=lower)
    return solve_triangular(c, first, trans=1 if lower else 0, lower=lower)


@concrete
def slogdet(a: Any) -> SlogdetResult:
    """(sign, log|det|): (0, -inf) for a singular matrix, NaN for a non-finite one. `sign` has no gradient."""
    a = numeric("slogdet", _square("slogdet", a))
    sign, logabsdet = jnp.linalg.slogdet(a)
    bad = lax.stop_gradient(~jnp.all(jnp.isfinite(a), axis=(-2, -1)))
    return SlogdetResult(jnp.where(bad, jnp.nan, lax.stop_gradient(sign)), jnp.where(bad, jnp.nan, logabsdet))


@concrete
def _signed_exp(sign: jax.Array, logabsdet: jax.Array) -> jax.Array:
    return sign * jnp.exp(logabsdet)


def det(a: Any) -> jax.Array:
    """sign * exp(log|det|); exactly 0 for an exactly singular matrix, where it has no finite gradient."""
    return _signed_exp(*slogdet(a))


@concrete
def inv(a: Any) -> jax.Array:
    """The inverse. Raises ValueError for an exactly singular concrete matrix."""
    a = numeric("inv", _square("inv", a))
    return _factor.lu_checked(a, jnp.broadcast_to(jnp.eye(a.shape[-1], dtype=a.dtype), a.shape))


@concrete
@keeps_weak
def eigh(a: Any) -> EighResult:
    """Eigenvalues, ascending, and eigenvectors of the symmetric part (a + a^T) / 2; the largest entry of every vector
    is positive. The gradient of vectors is NaN where eigenvalues repeat."""
    return EighResult(*_factor.eigh_signed(numeric("eigh", _square("eigh", a))))


@concrete
@keeps_weak
def qr(a: Any, mode: str = "reduced") -> Any:
    """The QR factorization with a non-negative diagonal of R.

    Arguments:
        mode: "reduced" gives QRResult(Q [..., m, k], R [..., k, n]) with k = min(m, n); "complete" Q [..., m, m] and
            R [..., m, n]; "r" gives R alone.
    Differentiation: needs full column rank (a wide matrix: a leading block of full rank); the complete Q of a tall
        matrix has no derivative (ValueError).
    """
    if mode not in ("reduced", "complete", "r"):
        raise ValueError(f'mode must be "reduced", "complete", or "r", got {mode!r}')
    a = _matrix("qr", a)
    m, n = a.shape[-2], a.shape[-1]
    q, r = _factor.qr_signed(a)
    if mode == "r":
        return r
    if mode == "complete" and m > n:
        padding = jnp.zeros((*a.shape[:-2], m - n, n), a.dtype)
        return QRResult(_factor.complete_q(a), jnp.concatenate([r, padding], axis=-2))
    return QRResult(q, r)


@concrete
@keeps_weak
def svd(a: Any, full_matrices: bool = False, compute_uv: bool = True) -> Any:
    """The singular value decomposition SVDResult(U, S, Vh), economical by default; S alone without `compute_uv`.
    The largest entry of each column of U is positive. Extra columns of full matrices have no derivative
    (ValueError); repeated singular values give a finite one for the vectors that is not a derivative."""
    a = _matrix("svd", a)
    if not compute_uv:
        return jnp.linalg.svd(a, full_matrices=False, compute_uv=False)
    m, n = a.shape[-2], a.shape[-1]
    u, s, vh = _factor.svd_signed(a)
    if full_matrices and m > n:
        u = _factor.svd_full_u(a)
    if full_matrices and m < n:
        vh = _factor.svd_full_vh(a)
    return SVDResult(u, s, vh)


@concrete
@keeps_weak
def lstsq(a: Any, b: Any, return_residuals: bool = False) -> Any:
    """The least-squares solution of a @ x ~ b through QR: of a tall matrix the minimizer, of a wide one the solution
    of least norm. A rank deficiency that leaves an exact zero in R raises ValueError; another is not detected. With `return_residuals` an LstsqResult."""
    matrix, columns, vector = _system("lstsq", _matrix("lstsq", a), b)
    m, n = matrix.shape[-2], matrix.shape[-1]
    q, r = _factor.qr_signed(matrix if m >= n else _t(matrix))
    singular = jnp.any(jnp.diagonal(r, axis1=-2, axis2=-1) == 0)
    runtime_check(
        singular, lambda: ValueError("lstsq requires full rank: solve requires a non-singular coefficient matrix")
    )
    if m >= n:
        x = lax.linalg.triangular_solve(r, _t(q) @ columns, left_side=True, lower=False)
    else:
        x = q @ lax.linalg.triangular_solve(r, columns, left_side=True, lower=False, transpose_a=True)
    solution = _restore(x, vector)
    if not return_residuals:
        return solution
    residual = columns - matrix @ x
    squares = _sum(residual * residual, axis=-2)
    return LstsqResult(solution, squares[..., 0] if vector else squares)


def _p_norm(x: jax.Array, p: float, axis: int, keepdims: bool) -> jax.Array:
    """(sum |x|^p)^(1/p), scaled by the entry that dominates, so that no power overflows."""
    size = _kinks.absolute(x)
    peak = lax.stop_gradient((jnp.max if p > 0 else jnp.min)(size, axis=axis, keepdims=True))
    inverse = 1.0 / _kinks.divisor(peak)
    rest = jnp.where(peak > 0, peak * inverse, 1)
    total = _sum(_kinks.power_to(size * inverse / rest, p), axis=axis, keepdims=True)
    result = jnp.where(jnp.isinf(peak), peak, _kinks.power_to(total, 1.0 / p) * rest * (1.0 / inverse))
    return result if keepdims else jnp.squeeze(result, axis)


def _vector_norm(x: jax.Array, order: Any, axis: int, keepdims: bool) -> jax.Array:
    if order is None or order == 2:
        return _norm2(x, axis, keepdims)
    if order in (math.inf, -math.inf):
        return (_max if order > 0 else _min)(_kinks.absolute(x), axis, keepdims)
    if order == 0:
        return _sum((x != 0).astype(x.dtype), axis, keepdims)
    if order == 1:
        return _sum(_kinks.absolute(x), axis, keepdims)
    return _p_norm(x, float(order), axis, keepdims)


def _matrix_norm(x: jax.Array, order: Any, axes: tuple[int, ...], keepdims: bool) -> jax.Array:
    if order is None or order == "fro":
        return _norm2(x, axes, keepdims)
    row, column = axes
    if order in (1, -1, math.inf, -math.inf):
        summed, reduced = (row, column) if order in (1, -1) else (column, row)
        sums = _sum(_kinks.absolute(x), summed, True)
        result = (_max if order > 0 else _min)(sums, reduced, True)
    elif order in (2, -2, "nuc"):
        values = svd(jnp.moveaxis(x, axes, (-2, -1)), compute_uv=False)
        picked = _sum(values, -1) if order == "nuc" else values[..., 0 if order == 2 else -1]
        result = jnp.expand_dims(picked, tuple(sorted(axes)))
    else:
        raise ValueError(f"invalid norm order {order!r} for matrices")
    return result if keepdims else jnp.squeeze(result, axes)


@concrete
@keeps_weak
def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> jax.Array:
    """A vector norm over one axis or a matrix norm over two, with NumPy's orders.

    Arguments:
        ord: None; for vectors any real number, inf, -inf, 0 (the count of nonzeros, no gradient); for matrices
            "fro", "nuc", 1, -1, 2, -2, inf, -inf.
        axis: an int, a pair, or None: all axes for `ord=None`, else the whole vector or matrix.
    Raises:
        ValueError: an order that does not fit, or a rank other than 1 or 2 with `axis=None` and an order.
    """
    x, keepdims = numeric("norm", x), bool(keepdims)
    if axis is None and ord is None:
        return _norm2(x, None, keepdims)
    if axis is None and x.ndim not in (1, 2):
        raise ValueError(f"improper number of dimensions to norm: ord={ord!r} with rank {x.ndim}")
    axes = axes_of(axis, x.ndim)
    if len(axes) not in (1, 2):
        raise ValueError(f"norm takes one axis (vector) or two (matrix), got {axis!r}")
    if isinstance(ord, str) and len(axes) == 1:
        raise ValueError(f"invalid norm order {ord!r} for vectors")
    if not (ord is None or isinstance(ord, str) or isinstance(ord, numbers.Real) and not math.isnan(ord)):
        raise ValueError(f"invalid norm order {ord!r}")
    if len(axes) == 1:
        return _vector_norm(x, ord, axes[0], keepdims)
    return _matrix_norm(x, ord, axes, keepdims)


@concrete
def matrix_power(a: Any, n: int) -> jax.Array:
    """`a` to an integer power by repeated squaring; a negative one powers the inverse. TypeError for a float."""
    a = numeric("matrix_power", _square("matrix_power", a))
    try:
        exponent = operator.index(n)
    except TypeError:
        raise TypeError(f"exponent must be an integer, got {type(n).__name__}") from None
    base = inv(a) if exponent < 0 else a
    return jnp.linalg.matrix_power(base, abs(exponent))


@concrete
@keeps_weak
def pinv(a: Any, rtol: Any = None) -> jax.Array:
    """The pseudo-inverse through `svd`; singular values at or below `rtol` times the largest count as zero, by
    default max(m, n) * eps (NumPy's rule; JAX takes ten times that)."""
    a = _matrix("pinv", a)
    if rtol is None:
        rtol = max(a.shape[-2:]) * float(jnp.finfo(a.dtype).eps)
    u, s, vh = _factor.svd_signed(a)
    limit = beside("mul", s, rtol)
    common_shape(s.shape, limit.shape)
    kept = s > s[..., :1] * limit
    inverse = jnp.where(kept, 1.0 / jnp.where(kept, s, 1), 0)
    return _t(vh) @ (inverse[..., None] * _t(u))
