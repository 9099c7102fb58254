"""What the iterative solvers share: argument checks, the operand rule, the report of an eager failure."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import tree_util

from . import _staging, dtypes
from .arrays import asarray, is_tracer
from .errors import TracerError

__all__ = ["check_args", "check_capture", "checked", "finish", "floating_operand", "positive_int", "tolerance"]

CAPTURE_RULE = (
    "control-flow regions cannot close over an outer tracer; pass it explicitly using operands= (cond takes positional "
    "operands)"
)


def positive_int(value: Any, name: str) -> int:
    """`value` as an int >= 1. Raises TypeError for a bool or a float, ValueError below 1."""
    if isinstance(value, bool):
        raise TypeError(f"{name} must be a positive integer")
    number = operator.index(value)
    if number < 1:
        raise ValueError(f"{name} must be a positive integer, got {number}")
    return number


def tolerance(value: Any, name: str) -> float:
    """`value` as a float >= 0. Raises ValueError below 0 and for NaN."""
    number = float(value)
    if not number >= 0.0:
        raise ValueError(f"{name} must be a non-negative number, got {number}")
    return number


def check_args(args: Any) -> None:
    """TypeError unless `args` is a tuple."""
    if not isinstance(args, tuple):
        raise TypeError(f"args must be a tuple, got {type(args).__name__}")


def floating_operand(x: Any, solver: str, role: str) -> jax.Array:
    """`x` as a strongly typed float32 or float64 array. Raises TypeError for any other dtype."""
    x = asarray(x)
    if not jnp.issubdtype(x.dtype, jnp.floating):
        raise TypeError(f"{solver} requires a float32 or float64 {role}, got {dtypes.short(x.dtype)}")
    return _staging.strong(x)


def checked(fun: Callable[..., Any], like: jax.Array, shape_text: str, dtype_text: str) -> Callable[..., jax.Array]:
    """`fun`, whose result must have the shape and dtype of `like`; Python numbers take that dtype."""

    def call(x: jax.Array, *args: Any) -> jax.Array:
        out = fun(x, *args)
        if not isinstance(out, jax.Array):
            out = asarray(out, like.dtype)
        if out.shape != like.shape:
            raise ValueError(f"{shape_text} {list(like.shape)}, got {list(out.shape)}")
        if out.dtype != like.dtype and not getattr(out, "weak_type", False):
            raise TypeError(
                f"{dtype_text} {dtypes.short(like.dtype)}, got {dtypes.short(out.dtype)}; pass args of that dtype or cast "
                "the result"
            )
        return jax.lax.convert_element_type(out, like.dtype)

    return call


def split_arrays(args: Any) -> tuple[list[jax.Array], Callable[..., Any]]:
    """The array leaves of `args`, and the function that puts others in their place; the rest stays as it is."""
    leaves, structure = tree_util.tree_flatten(args)
    places = [k for k, leaf in enumerate(leaves) if isinstance(leaf, (jax.Array, np.ndarray))]

    def rebuild(*arrays: Any) -> Any:
        filled = list(leaves)
        for k, value in zip(places, arrays):
            filled[k] = value
        return tree_util.tree_unflatten(structure, filled)

    return [jnp.asarray(leaves[k]) for k in places], rebuild


def check_capture(fun: Callable[..., Any], *operands: Any) -> None:
    """Traces `fun(*operands)` on abstract arrays once.

    Raises:
        TracerError: `fun` closes over a tracer of an enclosing transform. Errors of `fun` itself pass unchanged.
    """
    arrays, rebuild = split_arrays(operands)
    staged = _staging.stage(lambda *xs: fun(*rebuild(*xs)), [_staging.abstract(x) for x in arrays])
    if staged.captured:
        raise TracerError(f"{CAPTURE_RULE}; solvers take it through args=")


def finish(solver: str, x: jax.Array, report: dict[str, jax.Array], want_report: bool, advice: str) -> Any:
    """`x`, or (x, report). Raises RuntimeError for an eager solve that did not converge and was not to report it."""
    if want_report:
        return x, report
    success = report["success"]
    if not is_tracer(success) and not bool(success):
        raise RuntimeError(
            f"{solver} did not converge after {int(report['iterations'])} iterations (residual norm "
            f"{float(report['residual_norm']):.3e}); {advice}, or pass info=True to inspect the result"
        )
    return x
