"""Multi-way branching: torch.switch's rules on JAX arrays, and differentiable in both modes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, tree_util

from . import loops
from ._cycles import refusing_cycles
from ._regions import region
from ._staging import Output, Staged, abstract, is_array, is_tracer, quabla_errors, shape_text, strong
from .arrays import asarray
from .dtypes import short

__all__ = ["switch"]


@refusing_cycles
def switch(index: Any, branches: Sequence[Callable[..., Any]], operands: Any = ()) -> Any:
    """Runs one of n branches: `branches[index](*operands)`, the index clamped to [0, n - 1].

    Arguments:
        index: a Python int (picks its branch at once; the others are never called) or an integer array of one element.
            A concrete array picks its branch at once as well.
        branches: a non-empty list or tuple of functions of the operands. With a traced index every branch is traced
            once, and none may close over traced values.
        operands: a tuple (or list) of pytrees of arrays.

    Returns:
        The chosen branch's result: a pytree of arrays, ints and None. With a traced index all branches must agree in
        structure, in None position by position, and in the shape and dtype of every array; ints that are equal in all
        branches stay Python ints, ints that differ become an integer array.

    Raises:
        TypeError: an index that is no integer; leaves that are neither arrays, ints nor None.
        ValueError: an index of more than one element; no branches; branches that disagree.
        TracerError: a branch that closes over a traced value.

    Differentiation: both modes, any order; only the chosen branch is differentiated. Under vmap with a mapped index all
    branches run and those not chosen can put no NaN or inf into values, tangents or cotangents.
    Cost: one branch; all of them under vmap with a mapped index.
    """
    branches = _checked_branches(branches)
    if not isinstance(operands, (tuple, list)):
        raise TypeError(f"switch operands must be a tuple or list, got {type(operands).__name__}")
    position = _checked_index(index)
    if isinstance(position, int):
        with quabla_errors(), jax.ensure_compile_time_eval():
            return branches[min(max(position, 0), len(branches) - 1)](*operands)
    leaves, treedef = tree_util.tree_flatten(tuple(operands))
    flat = [strong(_operand(leaf)) for leaf in leaves]
    avals = [abstract(x) for x in flat]
    staged = [
        region(_on_flat(branch, treedef), avals, f"branch {k} of switch", _branch_leaves)
        for k, branch in enumerate(branches)
    ]
    merged, tree = _merge(staged)
    clamped = lax.clamp(np.asarray(0, position.dtype), position, np.asarray(_top(position, branches), position.dtype))
    arrays = loops.switch(clamped, [_arrays_of(s, merged) for s in staged], *flat)
    remaining = iter(arrays)
    return tree_util.tree_unflatten(tree, [next(remaining) if leaf is None else leaf for leaf in merged])


def _top(position: jax.Array, branches: Sequence[Any]) -> int:
    return min(len(branches) - 1, int(jnp.iinfo(position.dtype).max))


def _checked_branches(branches: Any) -> list:
    if not isinstance(branches, (tuple, list)):
        raise TypeError(f"switch branches must be a tuple or list of functions, got {type(branches).__name__}")
    if not branches:
        raise ValueError("switch needs at least one branch, got none")
    for k, branch in enumerate(branches):
        if not callable(branch):
            raise TypeError(f"switch branch {k} must be callable, got {type(branch).__name__}")
    return list(branches)


def _checked_index(index: Any) -> Any:
    """A Python int where the branch is known now, else a traced integer scalar."""
    if isinstance(index, (bool, np.bool_)):
        raise TypeError(f"switch index must be an integer, got the bool {index!r}; use cond for two branches")
    if isinstance(index, (int, np.integer)):
        return int(index)
    if not isinstance(index, (jax.Array, np.ndarray)):
        raise TypeError(f"switch index must be an int or a single-element integer array, got {type(index).__name__}")
    if not jnp.issubdtype(index.dtype, jnp.integer):
        raise TypeError(
            f"switch index must have an integer dtype, got {short(index.dtype)}; convert it with astype(jnp.int32)"
        )
    if index.size != 1:
        raise ValueError(f"switch index must have a single element, got shape {shape_text(index)}")
    if is_tracer(index):
        return lax.reshape(index, ())
    return int(np.asarray(index).reshape(()))


def _operand(leaf: Any) -> jax.Array:
    return leaf if is_array(leaf) else asarray(leaf)


def _on_flat(branch: Callable[..., Any], treedef: Any) -> Callable[..., Any]:
    def call(*leaves):
        return branch(*tree_util.tree_unflatten(treedef, leaves))

    call.__wrapped__ = branch
    return call


def _branch_leaves(result: Any) -> Any:
    """Arrays made strong; anything but arrays, ints and None refused."""

    def check(leaf):
        if is_array(leaf):
            return strong(leaf)
        if isinstance(leaf, np.ndarray):
            with jax.ensure_compile_time_eval():
                return jnp.asarray(leaf)
        if isinstance(leaf, int) and not isinstance(leaf, bool):
            return leaf
        raise TypeError(
            f"switch branches return arrays, ints and None, got a leaf of type {type(leaf).__name__}; make an array of it"
        )

    return tree_util.tree_map(check, result)


def _leaf_path(tree: Any, k: int) -> str:
    paths = [p for p, _ in tree_util.tree_flatten_with_path(tree_util.tree_unflatten(tree, range(tree.num_leaves)))[0]]
    return tree_util.keystr(paths[k]) or "the result"


def _aval(staged: Staged, k: int) -> Any:
    leaf = staged.leaves[k]
    return staged.out_avals[leaf.index] if isinstance(leaf, Output) else leaf


def _merge(staged: Sequence[Staged]) -> tuple[list, Any]:
    """(one entry a leaf: a Python int that all branches share, or None for an array; the common structure)."""
    tree = staged[0].tree
    for k, other in enumerate(staged[1:], 1):
        if other.tree != tree:
            raise ValueError(
                f"switch branches must return one structure: branch 0 returns {tree}, branch {k} returns {other.tree} "
                "(None must stand at the same positions)"
            )
    merged: list = []
    for position in range(tree.num_leaves):
        first = _aval(staged[0], position)
        for k, other in enumerate(staged[1:], 1):
            here = _aval(other, position)
            if isinstance(first, int) != isinstance(here, int):
                raise ValueError(
                    f"switch branches disagree at {_leaf_path(tree, position)}: an int in one of branch 0 and branch {k}, "
                    "an array in the other"
                )
            if not isinstance(first, int) and (first.shape != here.shape or first.dtype != here.dtype):
                raise ValueError(
                    f"switch branches disagree at {_leaf_path(tree, position)}: branch 0 returns {short(first.dtype)}"
                    f"{shape_text(first)}, branch {k} returns {short(here.dtype)}{shape_text(here)}"
                )
        same = isinstance(first, int) and all(_aval(s, position) == first for s in staged)
        merged.append(first if same else None)
    return merged, tree


def _arrays_of(staged: Staged, merged: Sequence[Any]) -> Callable[..., list]:
    """A branch as a function to the list of leaves that are arrays in the merged result."""

    def run(*arrays):
        outputs = tree_util.tree_leaves(staged.result(staged(*arrays)))
        return [strong(jnp.asarray(leaf)) for leaf, shared in zip(outputs, merged) if shared is None]

    return run
