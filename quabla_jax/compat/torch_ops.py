"""torch's higher-order operators on JAX arrays: the same signatures, the same restrictions, as errors.

    from quabla_jax.compat import torch_ops
    final, ys = torch_ops.scan(combine_fn, init, xs, dim=1, reverse=True)

Values are jax.Array (or tracers) in, the same out; torch is not imported. What torch.cond, torch.switch,
torch.while_loop and torch.scan refuse is refused here by a RuntimeError too (torch's own errors of these operators are
RuntimeErrors), so a program that runs here can be written down for torch unchanged. Two of torch's restrictions have
no meaning on immutable arrays and are not checked: in-place mutation, and outputs that alias inputs.

Unlike torch's prototypes all four differentiate: cond, switch and scan in both modes to any order, while_loop in
forward mode, and in reverse mode with checkpoint=.

Reference: the documentation of torch 2.13 (cond, while_loop, scan) and 2.14 (switch).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, TypeGuard

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import keystr, tree_flatten, tree_flatten_with_path, tree_leaves, tree_map, tree_structure

from .. import loops as _loops
from .._cycles import refusing_cycles as _refusing_cycles
from ..lowering import jax_api as _jax_api

__all__ = ["cond", "scan", "switch", "while_loop"]

_jax_api.hide_frames(__file__)


def _is_tensor(x: Any) -> TypeGuard[Any]:
    return isinstance(x, (jax.Array, np.ndarray, np.generic))


def _is_int(x) -> bool:
    return isinstance(x, int) and not isinstance(x, bool)


def _none_is_leaf(x) -> bool:
    return x is None


def _say(x) -> str:
    """A value as an error message names it: dtype and shape where it is an array, its repr where it is not."""
    if hasattr(x, "dtype") and hasattr(x, "shape"):
        return f"{x.dtype}{list(x.shape)}"
    return repr(x)


def _at(path) -> str:
    return f" at {keystr(path)}" if path else ""


def _operands(name: str, operands) -> tuple:
    if not isinstance(operands, (tuple, list)):
        raise RuntimeError(
            f"{name}: operands must be a tuple or list of (possibly nested) arrays, got {_say(operands)}; "
            "write (x,) for a single operand"
        )
    for path, leaf in tree_flatten_with_path(operands, is_leaf=_none_is_leaf)[0]:
        if not _is_tensor(leaf):
            raise RuntimeError(
                f"{name}: every operand leaf must be an array, got {_say(leaf)} of type {type(leaf).__name__}"
                f"{_at(path)}; wrap it in jnp.asarray, or let the function close over it"
            )
    return tuple(operands)


def _callables(name: str, **functions) -> None:
    for argument, function in functions.items():
        if not callable(function):
            raise RuntimeError(f"{name}: {argument} must be callable, got {_say(function)}")


def _same_metadata(name: str, want, got, want_name: str, got_name: str) -> None:
    """Refuse two lists of arrays (equal in structure) unless shapes and dtypes agree leaf by leaf."""
    for (path, a), (_, b) in zip(tree_flatten_with_path(want)[0], tree_flatten_with_path(got)[0]):
        if a.shape != b.shape or a.dtype != b.dtype:
            raise RuntimeError(
                f"{name}: {got_name} must have the shapes and dtypes of {want_name}, but{_at(path)} {want_name} is "
                f"{_say(a)} and {got_name} is {_say(b)}; cast or reshape one of them"
            )


def _same_structure(name: str, want, got, want_name: str, got_name: str) -> None:
    if want != got:
        raise RuntimeError(f"{name}: {got_name} has the structure {got}, {want_name} has {want}; they must be alike")


class _Branches:
    """Branches as lax runs them, traced once each: flat lists of arrays, compared as they are traced.

    int and None leaves, which torch allows, do not pass through lax: an int does so as an array, and gives way to the
    Python int afterwards where every branch returned the same one.
    """

    def __init__(self, name: str, branches: dict[str, Callable]):
        self.name = name
        self.seen: dict[str, tuple[Any, list]] = {}
        self.functions = [self._wrap(label, branch) for label, branch in branches.items()]

    def _wrap(self, label: str, branch: Callable) -> Callable:
        def run(*operands):
            leaves, tree = tree_flatten(branch(*operands), is_leaf=_none_is_leaf)
            for leaf in leaves:
                if not (_is_tensor(leaf) or leaf is None or _is_int(leaf)):
                    raise RuntimeError(
                        f"{self.name}: {label} must return arrays, ints or None (in tuples, lists or dicts), got "
                        f"{_say(leaf)} of type {type(leaf).__name__}"
                    )
            # Static facts alone are kept: a kept tracer would leak.
            marks = [jax.typeof(leaf) if _is_tensor(leaf) else leaf for leaf in leaves]
            self._compare(label, tree, marks)
            self.seen[label] = tree, marks
            return [jnp.asarray(leaf) for leaf in leaves if leaf is not None]

        return run

    def _compare(self, label: str, tree, marks: list) -> None:
        for other, (other_tree, other_marks) in self.seen.items():
            names = f"the output of {other}", f"the output of {label}"
            _same_structure(self.name, other_tree, tree, *names)
            for i, (a, b) in enumerate(zip(other_marks, marks)):
                if hasattr(a, "shape") and hasattr(b, "shape"):
                    if a.shape != b.shape or a.dtype != b.dtype:
                        raise RuntimeError(
                            f"{self.name}: the branches must return the same shapes and dtypes, but leaf {i} of "
                            f"{names[0]} is {_say(a)} and of {names[1]} is {_say(b)}; cast or reshape one of them"
                        )
                elif hasattr(a, "shape") or hasattr(b, "shape") or (a is None) != (b is None):
                    raise RuntimeError(
                        f"{self.name}: leaf {i} is {_say(a)} in {names[0]} and {_say(b)} in {names[1]}; arrays, ints "
                        "and None must stand at the same places in every branch"
                    )

    def merge(self, arrays: list):
        """The branch's own structure around lax's flat results."""
        (tree, _), *_ = self.seen.values()
        columns = zip(*(marks for _, marks in self.seen.values()))
        rest = iter(arrays)
        leaves = []
        for column in columns:
            array = None if column[0] is None else next(rest)
            alike = _is_int(column[0]) and all(mark == column[0] for mark in column)
            leaves.append(column[0] if alike else array)
        return tree.unflatten(leaves)


@_refusing_cycles
def cond(pred: Any, true_fn: Callable, false_fn: Callable, operands: Sequence[Any] = ()):
    """torch.cond: true_fn(*operands) where pred holds, false_fn(*operands) where not.

    Arguments:
        pred: a Python bool, int or float (one branch runs, the other is not looked at), or an array of one element
            and dtype bool.
        true_fn, false_fn: functions of the operands that return arrays, or nested tuples, lists or dicts of them, of
            one structure and the same shapes and dtypes. Ints are allowed too; where the branches differ they become
            an integer array.
        operands: a tuple or list of (possibly nested) arrays.

    Returns:
        What the branch returned.

    Raises:
        RuntimeError: pred is neither, a branch is not callable, an operand leaf is not an array, or the branches
            differ in structure, shape or dtype.

    Differentiation: both modes, any order. Under vmap with a mapped predicate the branch not taken can put no NaN into
    values or derivatives.
    """
    if isinstance(pred, (bool, int, float)):
        _callables("cond", **({"true_fn": true_fn} if pred else {"false_fn": false_fn}))
        return true_fn(*operands) if pred else false_fn(*operands)
    if not _is_tensor(pred):
        raise RuntimeError(f"cond: pred must be a bool or an array of one element, got {_say(pred)}")
    if pred.size != 1:
        raise RuntimeError(f"cond: pred must be a bool or an array of one element, got one of shape {pred.shape}")
    if pred.dtype != np.bool_:
        raise RuntimeError(f"cond: an array pred must have dtype bool, got {_say(pred)}; compare it, as in pred != 0")
    _callables("cond", true_fn=true_fn, false_fn=false_fn)
    operands = _operands("cond", operands)
    branches = _Branches("cond", {"true_fn": true_fn, "false_fn": false_fn})
    return branches.merge(_loops.cond(jnp.reshape(pred, ()), *branches.functions, *operands))


@_refusing_cycles
def switch(index: Any, branches: Sequence[Callable], operands: Sequence[Any] = ()):
    """torch.switch: branches[index](*operands), the index clamped into [0, len(branches)).

    Arguments:
        index: a Python int (one branch runs, the others are not looked at) or an integer array of one element.
        branches: a tuple or list of functions of the operands, at least one. They return arrays, ints or None in one
            structure; arrays alike in shape and dtype, None at the same places, ints that differ become an array.
        operands: a tuple or list of (possibly nested) arrays.

    Returns:
        What the branch returned.

    Raises:
        RuntimeError: the index is neither, branches is empty, not a tuple or list, or holds something that is not
            callable, an operand leaf is not an array, or the branches' outputs differ.

    Differentiation: both modes, any order, also with a mapped index.
    """
    if not (_is_int(index) or isinstance(index, bool) or _is_tensor(index)):
        raise RuntimeError(f"switch: index must be an int or an integer array of one element, got {_say(index)}")
    if _is_tensor(index) and index.size != 1:
        raise RuntimeError(f"switch: index must hold one element, got an array of shape {index.shape}")
    if _is_tensor(index) and not np.issubdtype(index.dtype, np.integer):
        raise RuntimeError(f"switch: index must be of an integer dtype, got {_say(index)}; cast it with .astype(int)")
    if not isinstance(branches, (tuple, list)) or not branches:
        raise RuntimeError("switch: branches must be a tuple or list of at least one callable")
    names = [f"branch {i}" for i in range(len(branches))]
    _callables("switch", **dict(zip(names, branches)))
    operands = _operands("switch", operands)
    if len(branches) == 1:
        return branches[0](*operands)
    if not _is_tensor(index):
        return branches[min(max(operator.index(index), 0), len(branches) - 1)](*operands)
    # Clamped in the index's own dtype: a cast to int32 first would wrap 2**32 to 0.
    inside = jnp.clip(jnp.reshape(index, ()), 0, min(len(branches) - 1, np.iinfo(index.dtype).max))
    checked = _Branches("switch", dict(zip(names, branches)))
    return checked.merge(_loops.switch(inside.astype(np.int32), checked.functions, *operands))


@_refusing_cycles
def while_loop(cond_fn: Callable, body_fn: Callable, carried_inputs: Sequence[Any], *, checkpoint: Any = None):
    """torch.while_loop: carried = body_fn(*carried) as long as cond_fn(*carried) holds.

    Arguments:
        cond_fn: function of the carried values that gives a boolean scalar array or a Python bool.
        body_fn: function of the carried values that returns a tuple of as many, with their structure, shapes and
            dtypes.
        carried_inputs: a tuple or list of (possibly nested) arrays or ints. An int is carried as an integer array,
            and comes out as one.
        checkpoint: not torch's. None: forward mode only. "auto" or a number of slots: reverse mode as well, in memory
            fixed beforehand.

    Returns:
        A tuple with the last carried values.

    Raises:
        RuntimeError: a function is not callable, carried_inputs is not a tuple or list or holds another kind of leaf,
            cond_fn's result is not a boolean scalar, or body_fn's is not a tuple like carried_inputs.
    """
    _callables("while_loop", cond_fn=cond_fn, body_fn=body_fn)
    if not isinstance(carried_inputs, (tuple, list)):
        raise RuntimeError(f"while_loop: carried_inputs must be a tuple or list, got {type(carried_inputs).__name__}")
    for path, leaf in tree_flatten_with_path(carried_inputs, is_leaf=_none_is_leaf)[0]:
        if not (_is_tensor(leaf) or _is_int(leaf)):
            raise RuntimeError(
                f"while_loop: every leaf of carried_inputs must be an array or an int, got {_say(leaf)} of type "
                f"{type(leaf).__name__}{_at(path)}"
            )
    # An int gets the dtype of an index, strongly: left weak, `i + 1` could not drift, but `i * 0.5` would.
    init = tuple(
        tree_map(
            lambda x: jnp.asarray(x, jax.dtypes.canonicalize_dtype(int)) if _is_int(x) else jnp.asarray(x),
            tuple(carried_inputs),
        )
    )

    def test(carried):
        verdict = cond_fn(*carried)
        boolean = isinstance(verdict, bool) or (
            _is_tensor(verdict) and verdict.shape == () and verdict.dtype == np.bool_
        )
        if not boolean:
            raise RuntimeError(f"while_loop: cond_fn must return a boolean scalar array or a bool, got {_say(verdict)}")
        return verdict

    def step(carried):
        out = body_fn(*carried)
        if not isinstance(out, tuple):
            raise RuntimeError(f"while_loop: body_fn must return a tuple, got {type(out).__name__}; write (x,) for one")
        _same_structure(
            "while_loop", tree_structure(carried), tree_structure(out), "carried_inputs", "body_fn's result"
        )
        out = tree_map(jnp.asarray, out)
        _same_metadata("while_loop", carried, out, "carried_inputs", "body_fn's result")
        return out

    return _loops.while_loop(test, step, init, checkpoint=checkpoint)


@_refusing_cycles
def scan(combine_fn: Callable, init, xs, *, dim: int = 0, reverse: bool = False):
    """torch.scan: carry, y = combine_fn(carry, x) for every slice x of xs along `dim`.

    Arguments:
        combine_fn: (carry, x) -> (next carry, y); the next carry like init in structure, shapes and dtypes, y any
            pytree of arrays.
        init: an array or a pytree of arrays, at least one.
        xs: an array or a pytree of arrays whose axis `dim` is the loop; its length is positive and common to all.
            Without any leaf the result is (init, []), as in torch.
        dim: the axis of xs to scan along; negative counts from the last axis of xs' first leaf.
        reverse: begin with the last slice. Each y stays at the place of its x.

    Returns:
        (final carry, ys), the slices of ys stacked along axis `dim` (along axis 0 where a y has too few axes for it).

    Raises:
        RuntimeError: an argument is of the wrong kind, a leaf is not an array or too small, lengths differ, or the
            next carry is not like init.
        IndexError: dim is out of range for xs' first leaf.

    Differentiation and memory: those of quabla_jax.compat.lax.scan.
    """
    leaves = tree_leaves(xs, is_leaf=_none_is_leaf)
    if not leaves:
        return init, []
    _callables("scan", combine_fn=combine_fn)
    if not _is_int(dim):
        raise RuntimeError(f"scan: dim must be an int, got {type(dim).__name__}")
    if not isinstance(reverse, bool):
        raise RuntimeError(f"scan: reverse must be a bool, got {type(reverse).__name__}")
    init_leaves = tree_leaves(init, is_leaf=_none_is_leaf)
    if not init_leaves:
        raise RuntimeError("scan: init must hold at least one array; a loop without a carry is jax.vmap")
    for what, values in (("init", init), ("xs", xs)):
        for path, leaf in tree_flatten_with_path(values, is_leaf=_none_is_leaf)[0]:
            if not _is_tensor(leaf):
                raise RuntimeError(f"scan: every leaf of {what} must be an array, got {_say(leaf)}{_at(path)}")
    rank = leaves[0].ndim
    if not -max(rank, 1) <= dim < max(rank, 1):
        raise IndexError(
            f"scan: dim must lie in [{-max(rank, 1)}, {max(rank, 1) - 1}] for xs of rank {rank}, got {dim}"
        )
    axis = dim + rank if dim < 0 else dim
    if any(x.ndim <= axis or x.shape[axis] == 0 for x in leaves):
        raise RuntimeError(
            f"scan: every leaf of xs must have an axis {axis} of positive length, got {list(map(_say, leaves))}"
        )
    if len({x.shape[axis] for x in leaves}) > 1:
        raise RuntimeError(f"scan: the leaves of xs differ in length along axis {axis}: {list(map(_say, leaves))}")

    def step(carry, x):
        out = combine_fn(carry, x)
        if not (isinstance(out, (tuple, list)) and len(out) == 2):
            raise RuntimeError(f"scan: combine_fn must return a pair (next carry, y), got {type(out).__name__}")
        next_carry, y = out
        _same_structure("scan", tree_structure(carry), tree_structure(next_carry), "init", "the next carry")
        for value in tree_leaves((next_carry, y), is_leaf=_none_is_leaf):
            if not _is_tensor(value):
                raise RuntimeError(
                    f"scan: combine_fn must return arrays, got {_say(value)} of type {type(value).__name__}"
                )
        _same_metadata("scan", carry, next_carry, "init", "the next carry")
        return next_carry, y

    rolled = tree_map(lambda x: jnp.moveaxis(x, axis, 0), xs)
    carry, ys = _loops.scan(step, tree_map(jnp.asarray, init), rolled, reverse=reverse)
    return carry, tree_map(lambda y: jnp.moveaxis(y, 0, axis) if axis < y.ndim else y, ys)
