"""Matrix-free linear solvers, cg and gmres.

The iteration runs in one while loop that stops at the tolerance. Its derivatives are those of the solution, by the
implicit function theorem: jax.lax.custom_linear_solve solves one tangent or adjoint system with the same method, in
both modes, at every order and under vmap, where every example stops at its own tolerance.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ._solver import check_args, check_capture, checked, finish, floating_operand, positive_int, tolerance
from ._staging import runtime_check
from .arrays import concrete

__all__ = ["cg", "gmres"]

Operator = Callable[[jax.Array], jax.Array]


def _dot(u: jax.Array, v: jax.Array) -> jax.Array:
    return jnp.sum(u * v)


def _length(v: jax.Array) -> jax.Array:
    return jnp.sqrt(_dot(v, v))


def _threshold(b: jax.Array, tol: float, atol: float) -> jax.Array:
    return jnp.maximum(_length(b) * tol, atol)


def _cg_loop(apply: Operator, precondition: Operator, x0, b, tol: float, atol: float, maxiter: int):
    """Preconditioned conjugate gradients (Saad, Iterative Methods for Sparse Linear Systems, algorithm 9.1).

    Stops where the recursive residual falls to the threshold; a NaN compares false and stops the loop as well.
    Returns the solution and (iterations, converged).
    """
    threshold = _threshold(b, tol, atol)
    r = b - apply(x0)
    z = precondition(r)
    zero = jnp.zeros((), b.dtype)

    def running(state):
        _, r, _, _, k = state
        return (_length(r) > threshold) & (k < maxiter)

    def step(state):
        x, r, p, rz, k = state
        ap = apply(p)
        alpha = rz / _dot(p, ap)
        x, r = x + alpha * p, r - alpha * ap
        z = precondition(r)
        rz_next = _dot(r, z)
        return x, r, z + (rz_next / rz) * p, rz_next, k + 1

    x, r, _, _, k = lax.while_loop(running, step, (x0, r, z, _dot(r, z), zero))
    return x, (k, (_length(r) <= threshold).astype(b.dtype))


def _rotate(column, cosines, sines, j, m: int):
    """The earlier Givens rotations on a new Hessenberg column, and the one that zeroes its entry j + 1."""

    def apply(i, h):
        upper, lower = h[i], h[i + 1]
        return h.at[i].set(cosines[i] * upper + sines[i] * lower).at[i + 1].set(cosines[i] * lower - sines[i] * upper)

    column = lax.fori_loop(0, m, lambda i, h: jnp.where(i < j, apply(i, h), h), column)
    a, c = column[j], column[j + 1]
    scale = jnp.maximum(jnp.abs(a), jnp.abs(c))
    safe = jnp.where(scale > 0, scale, 1)
    rho = scale * jnp.sqrt((a / safe) ** 2 + (c / safe) ** 2)
    cosine = jnp.where(scale > 0, a / jnp.where(scale > 0, rho, 1), 1)
    sine = jnp.where(scale > 0, c / jnp.where(scale > 0, rho, 1), 0)
    return column.at[j].set(rho).at[j + 1].set(0), cosine, sine


def _arnoldi_cycle(apply: Operator, precondition: Operator, r, threshold, m: int):
    """One cycle of at most m Arnoldi steps from the residual `r`: the update, the steps taken, and whether A has shown itself
    singular.

    Orthogonalization is classical Gram-Schmidt done twice; rows of the basis that are not yet filled are zero, so the
    products need no mask. The loop ends early once the residual estimate is below the threshold.
    """
    dtype, n = r.dtype, r.size
    beta = _length(r)
    safe_beta = jnp.where(beta > 0, beta, 1)
    basis = jnp.zeros((m + 1, n), dtype).at[0].set(r.reshape(-1) / safe_beta)
    state = (
        basis,
        jnp.zeros((m, m), dtype),
        jnp.zeros(m + 1, dtype).at[0].set(beta),
        jnp.ones(m, dtype),
        jnp.zeros(m, dtype),
        jnp.zeros((), jnp.int32),
        beta,
    )

    def running(state):
        *_, j, estimate = state
        return (j < m) & (estimate > threshold)

    def step(state):
        basis, triangle, g, cosines, sines, j, _ = state
        w = apply(precondition(basis[j].reshape(r.shape))).reshape(-1)
        h = jnp.zeros(m + 1, dtype)
        for _ in range(2):
            projection = basis @ w
            w, h = w - projection @ basis, h + projection
        size = _length(w)
        # A zero w is a lucky breakdown: the solution lies in the space, and the next vector is never used.
        basis = basis.at[j + 1].set(jnp.where(size > 0, w / jnp.where(size > 0, size, 1), 0))
        column, cosine, sine = _rotate(h.at[j + 1].set(size), cosines, sines, j, m)
        g = g.at[j + 1].set(-sine * g[j]).at[j].set(cosine * g[j])
        triangle = triangle.at[:, j].set(column[:m])
        return basis, triangle, g, cosines.at[j].set(cosine), sines.at[j].set(sine), j + 1, jnp.abs(g[j + 1])

    basis, triangle, g, _, _, steps, _ = lax.while_loop(running, step, state)
    # Columns not reached are zero: a unit diagonal there makes their coefficients zero.
    used = jnp.arange(m) < steps
    triangle = triangle + jnp.diag(jnp.where(used, 0, 1).astype(dtype))
    y = lax.linalg.triangular_solve(triangle, jnp.where(used, g[:m], 0)[:, None], left_side=True, lower=False)[:, 0]
    return precondition((y @ basis[:m]).reshape(r.shape)), steps, jnp.any(jnp.diagonal(triangle) == 0)


def _gmres_loop(apply: Operator, precondition: Operator, x0, b, tol: float, atol: float, restart: int, maxiter: int):
    """Restarted GMRES with right preconditioning (Saad, algorithm 9.5), so that the residual it minimizes is the true
    one. Returns the solution and (Arnoldi steps, converged, singular)."""
    threshold = _threshold(b, tol, atol)
    m = min(restart, b.size)
    zero = jnp.zeros((), b.dtype)

    def running(state):
        _, r, cycles, _, singular = state
        return (_length(r) > threshold) & (cycles < maxiter) & (singular == 0)

    def cycle(state):
        x, r, cycles, steps, _ = state
        update, taken, singular = _arnoldi_cycle(apply, precondition, r, threshold, m)
        x = x + update
        return x, b - apply(x), cycles + 1, steps + taken, singular.astype(b.dtype)

    x, r, _, steps, singular = lax.while_loop(running, cycle, (x0, b - apply(x0), zero, zero, zero))
    return x, (steps, (_length(r) <= threshold).astype(b.dtype), singular)


def _prepare(name: str, matvec: Any, b: Any, x0: Any, args: Any, M: Any):
    if not callable(matvec):
        raise TypeError(f"{name} requires a callable matvec(x, *args)")
    if M is not None and not callable(M):
        raise TypeError(f"{name} requires M to be a callable M(x, *args) or None")
    check_args(args)
    b = floating_operand(b, name, "right-hand side")
    start = jnp.zeros_like(b) if x0 is None else floating_operand(x0, name, "x0")
    if start.shape != b.shape:
        raise ValueError(f"{name} requires x0 of the right-hand side's shape {list(b.shape)}, got {list(start.shape)}")
    if start.dtype != b.dtype:
        raise TypeError(f"{name} requires x0 of the right-hand side's dtype {b.dtype}, got {start.dtype}")
    operator = checked(
        matvec,
        b,
        "matvec must return an array of the right-hand side's shape",
        "matvec must return the right-hand side's dtype",
    )
    check_capture(operator, b, *args)
    if M is None:
        return operator, None, b, lax.stop_gradient(start)
    preconditioner = checked(
        M, b, "M must return an array of the right-hand side's shape", "M must return the right-hand side's dtype"
    )
    check_capture(preconditioner, b, *args)
    return operator, preconditioner, b, lax.stop_gradient(start)


def _report(apply: Operator, b, x, stats) -> dict[str, jax.Array]:
    iterations, converged = stats
    residual = _length(b - apply(x))
    return {
        "iterations": lax.stop_gradient(iterations),
        "residual_norm": lax.stop_gradient(residual),
        "success": lax.stop_gradient(converged) > 0.5,
    }


@concrete
def cg(
    matvec: Callable[..., Any],
    b: Any,
    *,
    args: tuple = (),
    x0: Any = None,
    tol: float = 1e-5,
    atol: float = 0.0,
    maxiter: int | None = None,
    M: Callable[..., Any] | None = None,
    info: bool = False,
) -> Any:
    """The solution of A x = b for a symmetric positive-definite operator, by preconditioned conjugate gradients.

    Arguments:
        matvec: matvec(x, *args) = A x for x of b's shape (any shape), of b's dtype.
        b: float32 or float64. args: a tuple of arrays, numbers and pytrees; all that A depends on.
        x0: the start, zeros by default; it has no gradient.
        tol, atol: stops where |b - A x| <= max(tol |b|, atol).
        maxiter: iterations, 10 * b.size by default. M: M(x, *args), an approximate inverse.
        info: also return {"iterations", "residual_norm", "success"}, one value an example under vmap.
    Returns:
        x, or (x, info).
    Raises:
        RuntimeError: an eager solve without `info` that did not converge; under a transform only `info` says so.
        TracerError: matvec or M closes over a traced value. TypeError, ValueError: shapes, dtypes, tolerances.
    Differentiation: both modes, any order, in b and the arrays of args: one more solve with A a pass.
    Cost: one matvec an iteration; four vectors.
    """
    operator, preconditioner, b, start = _prepare("cg", matvec, b, x0, args, M)
    tol, atol = tolerance(tol, "tol"), tolerance(atol, "atol")
    limit = 10 * b.size if maxiter is None else positive_int(maxiter, "maxiter")

    def apply(x):
        return operator(x, *args)

    def precondition(x):
        return x if preconditioner is None else preconditioner(x, *args)

    def iterate(mv, begin, rhs):
        return _cg_loop(mv, precondition, begin, rhs, tol, atol, limit)

    def tangent_solve(mv, rhs):
        def solve(mv, rhs):
            return iterate(mv, jnp.zeros_like(rhs), rhs)[0]

        return lax.custom_linear_solve(mv, rhs, solve, symmetric=True)

    x, stats = _implicit(apply, b, start, iterate, tangent_solve)
    advice = "increase maxiter, add a preconditioner M, or check that A is positive definite"
    return finish("cg", x, _report(apply, b, x, stats), info, advice)


def _implicit(apply: Operator, b, start, iterate, tangent_solve):
    """The iteration from `start`, with the derivatives of the solution of A x = b."""
    return lax.custom_root(
        lambda x: apply(x) - b,
        start,
        lambda _, begin: iterate(apply, begin, b),
        tangent_solve,
        has_aux=True,
    )


@concrete
def gmres(
    matvec: Callable[..., Any],
    b: Any,
    *,
    args: tuple = (),
    x0: Any = None,
    tol: float = 1e-5,
    atol: float = 0.0,
    restart: int = 20,
    maxiter: int | None = None,
    M: Callable[..., Any] | None = None,
    info: bool = False,
) -> Any:
    """The solution of A x = b for a nonsingular operator, by restarted GMRES, preconditioned from the right.

    Arguments:
        restart: Arnoldi vectors a cycle (at most b.size of them). maxiter: cycles, 10 * b.size by default.
        The others, results, errors and derivatives: as `cg`; "iterations" counts Arnoldi steps over all cycles, and
        the adjoint solve applies the transposes of matvec and M.
    Cost: one matvec and two passes over the basis a step; restart + 1 vectors.
    """
    operator, preconditioner, b, start = _prepare("gmres", matvec, b, x0, args, M)
    tol, atol = tolerance(tol, "tol"), tolerance(atol, "atol")
    size = positive_int(restart, "restart")
    limit = 10 * b.size if maxiter is None else positive_int(maxiter, "maxiter")

    def apply(x):
        return operator(x, *args)

    def precondition(x):
        return x if preconditioner is None else preconditioner(x, *args)

    def transposed_precondition(x):
        return x if preconditioner is None else jax.linear_transpose(precondition, x)(x)[0]

    def iterate(mv, begin, rhs, prepared=precondition):
        return _gmres_loop(mv, prepared, begin, rhs, tol, atol, size, limit)

    def tangent_solve(mv, rhs):
        def solve(mv, rhs):
            return iterate(mv, jnp.zeros_like(rhs), rhs)[0]

        def transpose_solve(vecmat, rhs):
            return iterate(vecmat, jnp.zeros_like(rhs), rhs, transposed_precondition)[0]

        return lax.custom_linear_solve(mv, rhs, solve, transpose_solve)

    x, (*stats, singular) = _implicit(apply, b, start, iterate, tangent_solve)
    runtime_check(
        lax.stop_gradient(singular) > 0.5, lambda: ValueError("gmres: solve requires a non-singular coefficient matrix")
    )
    advice = "increase maxiter or restart, or add a preconditioner M"
    return finish("gmres", x, _report(apply, b, x, stats), info, advice)
