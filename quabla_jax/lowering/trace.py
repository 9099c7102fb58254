"""A function and example arguments -> one closed jaxpr without dead equations."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from .._cycles import refuse_cycles
from . import jax_api

__all__ = ["Traced", "retrace", "trace"]


@dataclass(frozen=True, eq=False)
class Traced:
    """A traced function: `jaxpr` on flat arrays, its constants, and the trees of its arguments and result."""

    jaxpr: Any
    consts: list[Any]
    in_tree: Any
    out_tree: Any


def trace(fun: Callable[..., Any], args: Sequence[Any], static_argnums: int | Sequence[int] = ()) -> Traced:
    """Trace `fun` on arguments that may be pytrees, arrays, Python scalars or jax.ShapeDtypeStruct.

    `static_argnums` are passed to `fun` as they are and do not become inputs.
    """
    if not callable(fun):
        raise TypeError(f"expected a callable of arrays, got {type(fun).__name__}")
    numbers = (static_argnums,) if isinstance(static_argnums, int) else static_argnums
    static = {i % len(args) for i in numbers} if args else set()
    dynamic = tuple(a for i, a in enumerate(args) if i not in static)
    out_tree: Any = None

    @functools.wraps(fun, updated=())  # JAX's errors name the user's function and its line
    def flat_fun(*leaves):
        nonlocal out_tree
        rest = iter(jax.tree.unflatten(in_tree, leaves))
        out = fun(*(a if i in static else next(rest) for i, a in enumerate(args)))
        refuse_cycles(f"the result of {getattr(fun, '__name__', fun)!s}", out)
        flat, out_tree = jax.tree.flatten(out)
        _check_leaves(out, f"{getattr(fun, '__name__', fun)!s} must return")
        return flat

    flat_fun.__signature__ = _LEAVES  # type: ignore[attr-defined]
    refuse_cycles("an argument", dynamic)
    leaves, in_tree = jax.tree.flatten(dynamic)
    _check_leaves(dynamic, "an argument must hold")
    closed = jax.make_jaxpr(flat_fun)(*leaves)
    jaxpr, consts = jax_api.dce(closed)
    return Traced(jaxpr, consts, in_tree, out_tree)


_LEAVES = inspect.Signature([inspect.Parameter("leaves", inspect.Parameter.VAR_POSITIONAL)])


def _check_leaves(tree: Any, what: str) -> None:
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        place = jax.tree_util.keystr(path)
        if not (hasattr(leaf, "shape") and hasattr(leaf, "dtype")) and not isinstance(
            leaf, (bool, int, float, complex)
        ):
            raise TypeError(
                f"{what} arrays (or numbers) in pytrees, got a {type(leaf).__name__}{place and ' at ' + place}"
            )
        reason = no_array_of_jax(leaf)
        if reason is not None:
            raise TypeError(f"{what} arrays that JAX has, got {reason}{place and ' at ' + place}")


def no_array_of_jax(leaf: Any) -> str | None:
    """Why a leaf with a dtype is no array for JAX, with what to do about it, or None."""
    dtype = getattr(leaf, "dtype", None)
    if dtype is None or isinstance(leaf, jax.Array):
        return None
    if not isinstance(dtype, (np.dtype, type)):
        if type(dtype).__module__.startswith("jax"):  # of keys
            return None
        return f"a {type(leaf).__module__.partition('.')[0]} {type(leaf).__name__}; give NumPy's view of it (numpy.asarray)"
    kind = np.dtype(dtype)
    if kind == jax.dtypes.float0 or kind.isbuiltin == 2 or (kind.kind in "biufc" and kind.char not in "gG"):
        if kind.isnative:
            return None
        return f"an array of {kind} in the other byte order; give x.astype({kind.newbyteorder('=').name!r})"
    return f"an array of dtype {kind}; give numbers or bools of a fixed width"


def retrace(fun: Callable[..., Any], avals: Sequence[Any]) -> Any:
    """The closed jaxpr of a Python definition on abstract values, dead equations dropped."""
    return jax_api.close(*jax_api.dce(jax.make_jaxpr(fun)(*avals)))
