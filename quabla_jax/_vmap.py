"""vmap in Quabla's contract: axes as pytree prefixes, checked leaf by leaf, over jax.vmap."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
from jax import tree_util

from ._programs import Arguments, Program, Transform, no_keywords, parameter_names
from ._staging import Output, is_array, shape_text, stage
from .arrays import asarray
from .tree import structure_text

__all__ = ["vmap"]


class _Mismatch(Exception):
    """An axes prefix and a tree part ways; carries both nodes."""


def _is_axis(axes: Any) -> bool:
    return axes is None or (isinstance(axes, int) and not isinstance(axes, bool))


def expand_axes(axes: Any, node: Any, what: str) -> list:
    """One axis (an int or None) for every leaf of `node`, from the prefix `axes`.

    Lists and tuples match each other; dicts need the same keys; registered classes match their own kind.

    Raises:
        TypeError: an entry that is neither an int, None nor a container.
        ValueError: a prefix that does not fit the tree.
    """
    try:
        return _expand(axes, node, what)
    except _Mismatch as mismatch:
        where = "arguments" if what == "in_axes" else "result"
        part, tree = mismatch.args
        raise ValueError(
            f"vmap {what} {part!r} does not match the structure {structure_text(tree_util.tree_structure(tree))} of the "
            f"{where}: give an int or None, or a tuple/dict with one entry per element"
        ) from None


def _expand(axes: Any, node: Any, what: str) -> list:
    if _is_axis(axes):
        return [axes] * tree_util.tree_structure(node).num_leaves
    children = _children(axes)
    if children is None:
        raise TypeError(f"vmap {what} must be an int, None, or a pytree of them, got {axes!r}")
    below = _children(node)
    if below is None or below[0] != children[0] or len(below[1]) != len(children[1]):
        raise _Mismatch(axes, node)
    return [axis for a, n in zip(children[1], below[1]) for axis in _expand(a, n, what)]


def _check_kinds(axes: Any, what: str) -> None:
    """TypeError for an entry that is neither an int, None nor a container, whatever it is matched with."""
    if not _is_axis(axes):
        children = _children(axes)
        if children is None:
            raise TypeError(f"vmap {what} must be an int, None, or a pytree of them, got {axes!r}")
        for child in children[1]:
            _check_kinds(child, what)


def _children(node: Any) -> tuple[Any, list] | None:
    """(what has to agree, children) of a container, or None for a leaf."""
    if isinstance(node, dict):
        keys = sorted(node)
        return ("dict", tuple(keys)), [node[k] for k in keys]
    if type(node) in (list, tuple):
        return "sequence", list(node)
    if isinstance(node, tuple):
        return (type(node) if hasattr(node, "_fields") else "sequence"), list(node)
    if tree_util.all_leaves([node]) or node is None:
        return None
    children = tree_util.default_registry.flatten_one_level(node)
    return None if children is None else (type(node), list(children[0]))


def _leaf_names(fun: Any, args: Sequence[Any]) -> list[str]:
    """How errors call every argument leaf: the parameter's name and the path inside it."""
    names = parameter_names(fun, len(args))
    return [
        name + tree_util.keystr(path)
        for name, arg in zip(names, args)
        for path, _ in tree_util.tree_flatten_with_path(arg)[0]
    ]


class _Vmap(Transform):
    name = "vmap"

    def __init__(self, fun: Callable[..., Any], in_axes: Any = 0, out_axes: Any = 0):
        super().__init__(fun)
        self.in_axes, self.out_axes = in_axes, out_axes
        self.options = (repr(in_axes), repr(out_axes))

    def call(self, *args: Any, **keywords: Any) -> Any:
        no_keywords(self, keywords)
        _check_kinds(self.out_axes, "out_axes")
        arguments = Arguments(args)
        axes = expand_axes(self.in_axes, args, "in_axes")
        size = self._checked_size(arguments, axes, args)
        return self.execute(arguments, lambda: self._build(arguments.layout(), axes, size))

    def _checked_size(self, arguments: Arguments, axes: list, args: Sequence[Any]) -> int:
        """The batch size; normalises `axes` to non-negative ones in place."""
        size = None
        names: list[str] = []
        for k, axis in enumerate(axes):
            if axis is None:
                continue
            names = names or _leaf_names(self.root, args)
            leaf = arguments.leaves[k]
            if not is_array(leaf):
                raise ValueError(
                    f"vmap cannot map the static argument leaf {names[k]!r} ({leaf!r}) along axis {axis}: Python scalars are "
                    "constants; pass an array to map it, or give it in_axes None"
                )
            if not -leaf.ndim <= axis < leaf.ndim:
                raise ValueError(
                    f"vmap in_axes {axis} is out of range for the argument leaf {names[k]!r} of shape {shape_text(leaf)}"
                )
            axes[k] = axis % leaf.ndim
            here = leaf.shape[axes[k]]
            if size is not None and here != size:
                raise ValueError(
                    f"vmap got inconsistent sizes for the mapped axes: {names[k]!r} has {here} along axis {axis}, the "
                    f"earlier mapped leaves {size}"
                )
            size = here
        if size is None:
            raise ValueError("vmap needs at least one mapped array argument, but in_axes maps none")
        return size

    def _build(self, arguments: Arguments, axes: list, size: int) -> Program:
        in_axes = [axes[k] for k in arguments.dynamic]
        avals = [_without_axis(aval, axis) for aval, axis in zip(arguments.avals, in_axes)]
        staged = stage(lambda *arrays: self.fun(*arguments.rebuild(arrays)), avals)
        marked = tree_util.tree_unflatten(staged.tree, staged.leaves)
        leaf_axes = expand_axes(self.out_axes, marked, "out_axes")
        out_axes: list = [0] * len(staged.out_avals)
        constants = {}
        for position, (leaf, axis) in enumerate(zip(staged.leaves, leaf_axes)):
            if isinstance(leaf, Output):
                out_axes[leaf.index] = _checked_axis(axis, len(staged.out_avals[leaf.index].shape) + 1)
            elif axis is not None:
                array = asarray(leaf)
                _checked_axis(axis, array.ndim + 1)
                with jax.ensure_compile_time_eval():
                    constants[position] = jnp.stack([array] * size, axis) if size else array
        batched = jax.vmap(staged, in_axes=tuple(in_axes), out_axes=out_axes, axis_size=size)

        def apply(*arrays):
            if not out_axes:
                return []
            try:
                return batched(*arrays)
            except ValueError as error:
                if "axis spec None" not in str(error):
                    raise
                raise ValueError(
                    "vmap out_axes=None requires an output that does not depend on the mapped arguments, but this output "
                    "does; give it an integer out_axes"
                ) from error

        def finish(outputs):
            leaves = list(staged.leaves)
            for position, leaf in enumerate(leaves):
                if isinstance(leaf, Output):
                    leaves[position] = outputs[leaf.index]
                elif position in constants:
                    leaves[position] = constants[position]
            return tree_util.tree_unflatten(staged.tree, leaves)

        return Program(apply, finish, staged.captured)


def _without_axis(aval: Any, axis: int | None) -> Any:
    if axis is None:
        return aval
    return jax.ShapeDtypeStruct(aval.shape[:axis] + aval.shape[axis + 1 :], aval.dtype, weak_type=aval.weak_type)


def _checked_axis(axis: int | None, rank: int) -> int | None:
    if axis is not None and not -rank <= axis < rank:
        raise ValueError(f"vmap out_axes {axis} is out of range for an output of rank {rank} (batch axis included)")
    return axis


P = ParamSpec("P")
R = TypeVar("R")


def vmap(fun: Callable[P, R], in_axes: Any = 0, out_axes: Any = 0) -> Callable[P, R]:
    """Maps `fun` over an axis of its array arguments.

    Arguments:
        fun: a function of one example.
        in_axes: the axis to map, None for arguments that all examples share, or a pytree prefix of both (lists and
            tuples match each other). Python scalars are constants and need None.
        out_axes: where the batch axis goes in the results; None for a result that depends on no mapped argument.

    Returns:
        A function of the same positional arguments. Results that depend on no mapped argument are broadcast.

    Raises (when called):
        ValueError: nothing mapped; sizes that differ; axes out of range; prefixes that do not fit; a mapped Python scalar.
        TypeError: an axis that is neither an int nor None.

    Composes with every transform, solver and control-flow function; see `cond` and `while_loop` for what they do here.
    """
    return _Vmap(fun, in_axes, out_axes)
