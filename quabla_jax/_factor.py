"""Factorizations with Quabla's sign conventions, and the check for singular matrices.

The signs are constants of the factorization, so no derivative passes through them. Where Quabla has no derivative (the
extra columns of a complete basis) the rule here raises its error.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ._staging import runtime_check

__all__ = ["cholesky_lower", "eigh_signed", "lu_checked", "qr_signed", "svd_signed"]


def lu_checked(a: jax.Array, b: jax.Array, name: str = "solve") -> jax.Array:
    """a^-1 b by LU with partial pivoting, both with full batches; one factorization serves all derivatives.

    An exactly singular matrix raises ValueError: at once where it is concrete, after the run where a compiled program of
    this library holds it (see `runtime_check`).
    """
    lu, _, permutation = lax.linalg.lu(lax.stop_gradient(a))
    singular = jnp.any(jnp.diagonal(lu, axis1=-2, axis2=-1) == 0)
    runtime_check(singular, lambda: ValueError(f"{name} requires a non-singular coefficient matrix"))

    def forward(_, rhs):
        y = jnp.take_along_axis(rhs, permutation[..., None], axis=-2)
        y = lax.linalg.triangular_solve(lu, y, left_side=True, lower=True, unit_diagonal=True)
        return lax.linalg.triangular_solve(lu, y, left_side=True, lower=False)

    def backward(_, rhs):
        y = lax.linalg.triangular_solve(lu, rhs, left_side=True, lower=False, transpose_a=True)
        y = lax.linalg.triangular_solve(lu, y, left_side=True, lower=True, transpose_a=True, unit_diagonal=True)
        return jnp.take_along_axis(y, jnp.argsort(permutation, axis=-1)[..., None], axis=-2)

    return lax.custom_linear_solve(lambda x: a @ x, b, forward, backward)


def cholesky_lower(a: jax.Array) -> jax.Array:
    """The Cholesky factor read from the lower triangle alone, so that its gradient is lower triangular."""
    lower = jnp.tril(a)
    mirrored = lower + jnp.swapaxes(jnp.tril(a, -1), -1, -2)
    return lax.linalg.cholesky(mirrored, symmetrize_input=False)


def _peak_signs(vectors: jax.Array) -> jax.Array:
    """+1 or -1 for each column, the sign of its largest entry (the first of several within rounding)."""
    v = lax.stop_gradient(vectors)
    size = jnp.abs(v)
    near = size >= jnp.max(size, axis=-2, keepdims=True) * (1 - 64 * jnp.finfo(v.dtype).eps)
    first = jnp.argmax(near, axis=-2, keepdims=True)
    return jnp.where(jnp.take_along_axis(v, first, axis=-2) < 0, -1, 1).astype(v.dtype)


def eigh_signed(a: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Ascending eigenvalues and eigenvectors of (a + a^T) / 2, the largest entry of each vector positive."""
    values_vectors = jnp.linalg.eigh((a + jnp.swapaxes(a, -1, -2)) / 2, symmetrize_input=False)
    values, vectors = values_vectors[0], values_vectors[1]
    return values, vectors * _peak_signs(vectors)


def _signed_reduced_qr(a: jax.Array) -> tuple[jax.Array, jax.Array]:
    q, r = jnp.linalg.qr(a, mode="reduced")
    pivots = jnp.diagonal(lax.stop_gradient(r), axis1=-2, axis2=-1)
    signs = jnp.where(pivots < 0, -1, 1).astype(r.dtype)
    return q * signs[..., None, :], r * signs[..., :, None]


def qr_signed(a: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The reduced factorization with a non-negative diagonal of R. A wide matrix is factored by its leading block, so
    that it has derivatives as well."""
    m, n = a.shape[-2], a.shape[-1]
    if m >= n:
        return _signed_reduced_qr(a)
    q, r = _signed_reduced_qr(a[..., :m])
    return q, jnp.concatenate([r, jnp.swapaxes(q, -1, -2) @ a[..., m:]], axis=-1)


def _no_derivative(name: str, fun):
    """`fun` of one array, for which every derivative raises Quabla's ValueError."""

    @jax.custom_jvp
    @functools.wraps(fun)
    def function(a):
        return fun(a)

    @function.defjvp
    def rule(primals: Any, tangents: Any):
        raise ValueError(
            f"{name} is not differentiable: the columns that complete the basis are not unique; use the reduced factorization"
        )

    return function


def _complete_q(a: jax.Array) -> jax.Array:
    q, r = jnp.linalg.qr(a, mode="complete")
    pivots = jnp.diagonal(r, axis1=-2, axis2=-1)
    signs = jnp.where(pivots < 0, -1, 1).astype(q.dtype)
    extra = jnp.ones((*signs.shape[:-1], q.shape[-1] - signs.shape[-1]), q.dtype)
    return q * jnp.concatenate([signs, extra], -1)[..., None, :]


complete_q = _no_derivative("qr_q_complete", _complete_q)


def svd_signed(a: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The economical decomposition, the largest entry of each column of U positive."""
    u, s, vh = jnp.linalg.svd(a, full_matrices=False)
    signs = _peak_signs(u)
    return u * signs, s, vh * jnp.swapaxes(signs, -1, -2)


def _full_basis(columns: jax.Array) -> jax.Array:
    """Orthonormal columns extended to a square orthogonal matrix, each added column with its largest entry positive."""
    q, r = jnp.linalg.qr(columns, mode="complete")
    k = columns.shape[-1]
    added = q[..., k:]
    return jnp.concatenate([columns, added * _peak_signs(added)], axis=-1)


def _full_u(a: jax.Array) -> jax.Array:
    return _full_basis(svd_signed(a)[0])


def _full_vh(a: jax.Array) -> jax.Array:
    return jnp.swapaxes(_full_basis(jnp.swapaxes(svd_signed(a)[2], -1, -2)), -1, -2)


svd_full_u = _no_derivative("svd_u_full", _full_u)
svd_full_vh = _no_derivative("svd_vh_full", _full_vh)
