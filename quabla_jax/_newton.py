"""Root finding by Newton's method, differentiated by the implicit function theorem."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from . import _factor
from ._cycles import refusing_cycles
from ._solver import check_args, check_capture, checked, finish, floating_operand, positive_int, tolerance
from .arrays import concrete

__all__ = ["newton"]

# Sufficient decrease of |f|^2 / 2 (Nocedal & Wright, Numerical Optimization, section 3.1), and the least step tried.
ARMIJO = 1e-4
LEAST_STEP = 2.0**-30
RUNNING, CONVERGED, STALLED = 0, 1, 2


def _length(v: jax.Array) -> jax.Array:
    return jnp.sqrt(jnp.sum(v * v))


def _newton_step(jacobian: jax.Array, fx: jax.Array) -> tuple[jax.Array, jax.Array]:
    """-J^-1 f through QR, and whether a pivot is exactly zero (it then counts as one, so that the step is finite)."""
    q, r = _factor.qr_signed(jacobian)
    pivots = jnp.diagonal(r)
    singular = jnp.any(pivots == 0)
    safe = r + jnp.diag(jnp.where(pivots == 0, 1, 0).astype(r.dtype))
    step = lax.linalg.triangular_solve(safe, (q.T @ fx)[:, None], left_side=True, lower=False)[:, 0]
    return -step, singular


def _search(apply, x, dx, half_square, skip):
    """The largest step 2^-i that decreases |f|^2 / 2 enough, down to the least; `skip` tries the full one alone."""

    def merit(t):
        trial = apply(x + t * dx)
        return 0.5 * jnp.sum(trial * trial)

    def insufficient(state):
        t, phi = state
        # Written so that NaN goes on halving.
        return ~skip & ~(phi <= (1.0 - 2.0 * ARMIJO * t) * half_square) & (t > LEAST_STEP)

    one = jnp.ones((), x.dtype)
    t, phi = lax.while_loop(insufficient, lambda s: (0.5 * s[0], merit(0.5 * s[0])), (one, merit(one)))
    return t, phi <= (1.0 - 2.0 * ARMIJO * t) * half_square


def _iterate(apply, x0: jax.Array, tol: float, maxiter: int):
    """Newton steps on flat vectors until the full step is small, at most `maxiter`; the small step is still taken.

    Stops with failure where no step decreases |f| and where the Jacobian is exactly singular.
    Returns the root and (iterations, converged).
    """

    def running(state):
        _, k, status = state
        return (status == RUNNING) & (k < maxiter)

    def step(state):
        x, k, _ = state
        fx = apply(x)
        dx, singular = _newton_step(jax.jacfwd(apply)(x), fx)
        small = (_length(dx) <= tol * (1.0 + _length(x))) & ~singular
        t, decreased = _search(apply, x, dx, 0.5 * jnp.sum(fx * fx), small | singular)
        accepted = (small | decreased) & ~singular
        status = jnp.where(small, CONVERGED, jnp.where(accepted, RUNNING, STALLED))
        return jnp.where(accepted, x + t * dx, x), k + 1, status

    zero = jnp.zeros((), x0.dtype)
    x, k, status = lax.while_loop(running, step, (x0, zero, jnp.full((), RUNNING)))
    return x, (k, (status == CONVERGED).astype(x0.dtype))


def _dense_solve(linear, y: jax.Array) -> jax.Array:
    """linear(x) = y through the dense matrix of `linear`."""
    matrix = jax.vmap(linear, out_axes=1)(jnp.eye(y.size, dtype=y.dtype))
    return jnp.linalg.solve(matrix, y)


@refusing_cycles
@concrete
def newton(
    f: Callable[..., Any],
    x0: Any,
    *,
    args: tuple = (),
    tol: float | None = None,
    maxiter: int = 50,
    info: bool = False,
) -> Any:
    """A root x of f(x, *args) = 0 by Newton's method with a dense Jacobian and a backtracking line search.

    Arguments:
        f: maps an array of x0's shape (any; n entries) to one of the same shape and dtype.
        x0: float32 or float64; it has no gradient. args: a tuple of arrays, numbers and pytrees.
        tol: the step at which it has converged, |dx| <= tol (1 + |x|); sqrt(eps) of the dtype by default.
        maxiter: iterations. info: also return {"iterations", "residual_norm", "success"}.
    Returns:
        x, or (x, info).
    Raises:
        RuntimeError: an eager solve without `info` that did not converge; under a transform only `info` says so.
        TracerError: f closes over a traced value. TypeError, ValueError: shapes, dtypes, tolerances.
    Differentiation: both modes, any order, in the arrays of args: one dense Jacobian and solve a pass.
    Cost: n tangents of f and one QR factorization an iteration.
    """
    if not callable(f):
        raise TypeError("newton requires a callable f(x, *args)")
    check_args(args)
    x0 = floating_operand(x0, "newton", "x0")
    tol = math.sqrt(float(jnp.finfo(x0.dtype).eps)) if tol is None else tolerance(tol, "tol")
    maxiter = positive_int(maxiter, "maxiter")
    function = checked(
        f,
        x0,
        "newton requires f(x, *args) to return an array of x's shape",
        "newton requires f(x, *args) to return x's dtype",
    )
    check_capture(function, x0, *args)

    def apply(flat):
        return function(flat.reshape(x0.shape), *args).reshape(-1)

    x, (iterations, converged) = lax.custom_root(
        apply,
        lax.stop_gradient(x0).reshape(-1),
        lambda g, begin: _iterate(g, begin, tol, maxiter),
        _dense_solve,
        has_aux=True,
    )
    report = {
        "iterations": lax.stop_gradient(iterations),
        "residual_norm": lax.stop_gradient(_length(apply(lax.stop_gradient(x)))),
        "success": lax.stop_gradient(converged) > 0.5,
    }
    advice = "start closer to a root, increase maxiter, or check that f has a root with a nonsingular Jacobian"
    return finish("newton", x.reshape(x0.shape), report, info, advice)
