"""custom_vjp, custom_jvp, checkpoint and stop_gradient in Quabla's contract.

Each call takes its arguments apart, traces the user's functions on flat arrays, and hands them to jax.custom_vjp,
jax.custom_jvp or jax.checkpoint. Constants (Python scalars among arguments, residuals and results) never become
arrays.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import numpy as np
from jax import lax, tree_util

from . import dtypes
from ._cycles import refuse_cycles
from ._programs import Arguments, function_name, split
from ._staging import (
    Output,
    Staged,
    copy_value,
    dtype_text,
    is_array,
    is_floating,
    is_tracer,
    shape_text,
    stage,
)
from .arrays import asarray
from .lowering import jax_api
from .tree import structure_text

__all__ = ["checkpoint", "custom_jvp", "custom_vjp", "remat", "stop_gradient"]


def _refuse_captured(staged: Staged, what: str) -> None:
    if staged.captured:
        raise TypeError(
            f"{what} closes over a traced value of an enclosing transform; a custom rule only differentiates with respect to "
            "explicit arguments, so pass the value as an argument (or through nondiff_argnums when it is not differentiated)"
        )


def _refuse_masks(staged: Staged, kind: str, name: str) -> None:
    for leaf in staged.leaves:
        aval = staged.out_avals[leaf.index] if isinstance(leaf, Output) else leaf
        if is_array(leaf) or isinstance(leaf, Output):
            if not is_floating(aval):
                raise TypeError(
                    f"{kind} function {name} returns a {dtypes.short(aval.dtype)} array; functions with a custom differentiation "
                    "rule must return floating-point arrays (or constants)"
                )


class _Custom:
    """What custom_vjp and custom_jvp share: nondiff positions, naming, and when `fun` simply runs."""

    kind = "custom"

    def __init__(self, fun: Callable[..., Any], nondiff_argnums: Iterable[int] = ()):
        if not callable(fun):
            raise TypeError(f"{self.kind} expects a callable, got {type(fun).__name__}")
        self.fun = fun
        self.nondiff_argnums = tuple(nondiff_argnums)
        self._inside = threading.local()
        functools.update_wrapper(self, fun, updated=())  # pyright: ignore[reportArgumentType]

    def __repr__(self) -> str:
        return f"{self.kind}({function_name(self.fun)})"

    def _take_apart(self, args: Sequence[Any]) -> tuple[Arguments, tuple[int, ...]]:
        count = len(args)
        for n in self.nondiff_argnums:
            if not -count <= n < count:
                raise ValueError(
                    f"nondiff_argnums={self.nondiff_argnums} is out of range for a call with {count} arguments"
                )
        nondiff = tuple(n % count for n in self.nondiff_argnums)
        for n in nondiff:
            if any(map(is_tracer, tree_util.tree_leaves(args[n]))):
                raise TypeError(
                    f"nondiff argument {n} of {self!r} is traced, so the function of {self!r} closes over a traced value of an "
                    "enclosing transform; pass it as a differentiable argument"
                )
        keep = [None if n in nondiff else arg for n, arg in enumerate(args)]
        return Arguments(keep), nondiff

    def _stage_fun(self, arguments: Arguments, args: Sequence[Any], nondiff: Sequence[int]) -> Staged:
        staged = stage(
            lambda *arrays: self.fun(*_with_nondiff(arguments.rebuild(arrays), args, nondiff)), arguments.avals
        )
        _refuse_captured(staged, f"the function of {self!r}")
        _refuse_masks(staged, self.kind, function_name(self.fun))
        return staged

    def _runs_plainly(self, arguments: Arguments) -> bool:
        """Eager calls outside every transform, and calls from inside the own rule, run the function itself."""
        if getattr(self._inside, "rule", False):
            return True
        return jax_api.no_trace_active() and not any(map(is_tracer, arguments.arrays))


def _with_nondiff(rebuilt: Sequence[Any], args: Sequence[Any], nondiff: Sequence[int]) -> list:
    return split(rebuilt, nondiff, [args[n] for n in nondiff])


def _like(aval: Any) -> str:
    return f"shape {shape_text(aval)} and dtype {dtype_text(aval.dtype)}"


def _zero_or_array(leaf: Any, aval: Any, what: str) -> jax.Array:
    """A rule's tangent or cotangent: an array of the right kind; None and Python zeros are zeros."""
    if leaf is None or (isinstance(leaf, (bool, int, float)) and not isinstance(leaf, np.generic) and leaf == 0):
        return copy_value(np.zeros(aval.shape, aval.dtype))
    if not is_array(leaf):
        raise TypeError(f"{what} must be an array or None, got {leaf!r}")
    if leaf.shape != aval.shape or leaf.dtype != aval.dtype:
        raise TypeError(f"{what} must have {_like(aval)}, got {_like(leaf)}")
    return leaf


class custom_vjp(_Custom):
    """A function with a reverse-mode rule of its own.

    Arguments:
        fun: returns a pytree of floating arrays and constants; closes over no traced value.
        nondiff_argnums: positions that are passed to the rule first, as they are.

    `defvjp(fwd, bwd)` gives the rule: `fwd(*args) -> (out, residuals)`, out as `fun` returns it and residuals any pytree;
    `bwd(*nondiff, residuals, ct) -> tuple`, one cotangent tree a differentiable argument, None or a Python 0 for zero.

    Raises (when called under a transform):
        AttributeError: no rule was given. TypeError: results of other structure, shape or dtype than asked for, masks,
        closures over traced values. ValueError: forward mode.

    Differentiation: reverse mode by the rule; higher orders differentiate `fwd` and `bwd`. Under reverse mode the value
    is that of `fwd`.
    """

    kind = "custom_vjp"

    def __init__(self, fun: Callable[..., Any], nondiff_argnums: Iterable[int] = ()):
        super().__init__(fun, nondiff_argnums)
        self.fwd: Callable[..., Any] | None = None
        self.bwd: Callable[..., Any] | None = None

    def defvjp(self, fwd: Callable[..., Any], bwd: Callable[..., Any]) -> None:
        """Gives the rule: see the class."""
        if not callable(fwd) or not callable(bwd):
            raise TypeError(f"defvjp expects callable fwd and bwd, got {type(fwd).__name__} and {type(bwd).__name__}")
        self.fwd, self.bwd = fwd, bwd

    def __call__(self, *args: Any) -> Any:
        if self.fwd is None or self.bwd is None:
            raise AttributeError(
                f"no VJP is defined for custom_vjp function {function_name(self.fun)}; call defvjp first"
            )
        refuse_cycles(self, args)
        arguments, nondiff = self._take_apart(args)
        if self._runs_plainly(arguments):
            return self.fun(*args)
        staged = self._stage_fun(arguments, args, nondiff)
        if not any(map(is_tracer, arguments.arrays)) or not staged.out_avals:
            with jax.ensure_compile_time_eval():
                return staged.result(staged(*arguments.arrays))
        call = jax.custom_vjp(_named(staged, self.fun))
        call.defvjp(*self._rule(staged, arguments, args, nondiff, self._checked_now(staged, arguments, args, nondiff)))
        return staged.result(call(*arguments.arrays))

    def _checked_now(self, staged: Staged, arguments: Arguments, args: Sequence[Any], nondiff: Sequence[int]) -> dict:
        """The staged fwd and bwd: a rule that does not fit is refused wherever it is traced, differentiated or not.
        Empty inside the rule itself, which may call the function."""
        if getattr(self._inside, "checking", False):
            return {}
        self._inside.checking = True
        try:
            forward = self._staged_fwd(staged, arguments, args, nondiff)
            residuals = [
                forward.out_avals[x.index] for x in forward.leaves[staged.tree.num_leaves :] if isinstance(x, Output)
            ]
            flat = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in (*residuals, *staged.out_avals)]
            backward = self._staged_bwd(flat, len(residuals), forward, staged, arguments, args, nondiff)
            return {"fwd": forward, "bwd": (flat, backward)}
        finally:
            self._inside.checking = False

    def _staged_fwd(self, staged: Staged, arguments: Arguments, args: Sequence[Any], nondiff: Sequence[int]) -> Staged:
        forward = stage(
            lambda *xs: self._run_fwd(_with_nondiff(arguments.rebuild(xs), args, nondiff), staged), arguments.avals
        )
        _refuse_captured(forward, f"the fwd of {self!r}")
        return forward

    def _staged_bwd(
        self, flat: Sequence[Any], count: int, forward: Staged, staged: Staged, arguments, args, nondiff
    ) -> Staged:
        """bwd on `count` residuals and the cotangents, of the avals `flat`."""
        backward = stage(
            lambda *xs: self._run_bwd(xs[:count], xs[count:], forward, staged, arguments, args, nondiff), flat
        )
        _refuse_captured(backward, f"the bwd of {self!r}")
        return backward

    def _rule(
        self, staged: Staged, arguments: Arguments, args: Sequence[Any], nondiff: Sequence[int], ready: dict[str, Any]
    ):
        """fwd and bwd on flat arrays. The residual tree, with its constants, passes beside JAX in `kept`."""
        kept: dict[str, Any] = dict(ready)

        def fwd(*arrays):
            if "fwd" not in kept:
                kept["fwd"] = self._staged_fwd(staged, arguments, args, nondiff)
            forward = kept["fwd"]
            outputs, residuals = forward(*arrays), None
            out_count = staged.tree.num_leaves
            leaves = [outputs[x.index] if isinstance(x, Output) else x for x in forward.leaves]
            placed = {x.index: leaf for x, leaf in zip(staged.leaves, leaves[:out_count]) if isinstance(x, Output)}
            out = [asarray(placed[k]) for k in range(len(staged.out_avals))]
            residuals = [
                leaf for x, leaf in zip(forward.leaves[out_count:], leaves[out_count:]) if isinstance(x, Output)
            ]
            return out, residuals

        def bwd(residuals, cotangents):
            forward = kept["fwd"]
            seeds = list(residuals), list(cotangents)
            flat = [*seeds[0], *seeds[1]]
            avals, backward = kept.get("bwd", (None, None))
            now = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in flat]
            if backward is None or avals != now:
                backward = self._staged_bwd(now, len(residuals), forward, staged, arguments, args, nondiff)
            return tuple(backward.result(backward(*flat)))

        return fwd, bwd

    def _run_fwd(self, args: Sequence[Any], staged: Staged) -> Any:
        assert self.fwd is not None
        pair = self.fwd(*args)
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise TypeError(f"the fwd of {self!r} must return a pair (output, residuals)")
        leaves, tree = tree_util.tree_flatten(pair[0])
        if tree != staged.tree:
            raise TypeError(
                f"the fwd of {self!r} returns an output with structure {structure_text(tree)}, but the function returns "
                f"{structure_text(staged.tree)}"
            )
        for leaf, expected in zip(leaves, staged.leaves):
            aval = staged.out_avals[expected.index] if isinstance(expected, Output) else expected
            if is_array(expected) or isinstance(expected, Output):
                if not is_array(leaf) or leaf.shape != aval.shape or leaf.dtype != aval.dtype:
                    raise TypeError(
                        f"the fwd of {self!r} returns an output leaf that does not match the function's: expected {_like(aval)}"
                    )
        return pair

    def _run_bwd(self, residuals, cotangents, forward, staged, arguments, args, nondiff) -> list:
        assert self.bwd is not None
        remaining = iter(residuals)
        leaves = list(forward.leaves)
        for k in range(staged.tree.num_leaves, len(leaves)):
            if isinstance(leaves[k], Output):
                leaves[k] = next(remaining)
        _, tree = tree_util.tree_unflatten(forward.tree, leaves)
        ct = staged.result([lax.convert_element_type(c, a.dtype) for c, a in zip(cotangents, staged.out_avals)])
        ct = tree_util.tree_map(lambda x: x if is_array(x) else 0.0, ct)
        result = self.bwd(*(args[n] for n in nondiff), tree, ct)
        wanted = [n for n in range(len(args)) if n not in nondiff]
        if not isinstance(result, (tuple, list)) or len(result) != len(wanted):
            got = structure_text(tree_util.tree_structure(result))
            raise TypeError(
                f"the bwd of {self!r} must return a tuple with one cotangent per differentiable argument ({len(wanted)}), got "
                f"structure {got}"
            )
        found: list = []
        for position, part in zip(wanted, result):
            found += self._cotangents(part, position, arguments)
        return found

    def _cotangents(self, part: Any, position: int, arguments: Arguments) -> list:
        """The cotangents of one argument's arrays."""
        owned = [k for k, owner in enumerate(arguments.owner) if owner == position]
        tree = arguments.trees[position]
        if part is None or (tree.num_leaves != 1 and isinstance(part, (int, float)) and part == 0):
            leaves = [None] * len(owned)
        else:
            refuse_cycles(f"the cotangent bwd of {self!r} returns for argument {position}", part)
            leaves, structure = tree_util.tree_flatten(part, is_leaf=lambda x: x is None)
            if structure != tree_util.tree_structure(tree_util.tree_unflatten(tree, [0] * tree.num_leaves)):
                wanted = "an array" if tree_util.treedef_is_leaf(tree) else structure_text(tree)
                raise TypeError(
                    f"the cotangent bwd of {self!r} returns for argument {position} has structure {structure_text(structure)}, "
                    f"expected {wanted}"
                )
        dynamic = set(arguments.dynamic)
        found: list = []
        for k, leaf in zip(owned, leaves):
            if k not in dynamic:
                continue
            aval = arguments.leaves[k]
            if not is_floating(aval):
                found.append(np.zeros(aval.shape, jax.dtypes.float0))
                continue
            found.append(_zero_or_array(leaf, aval, f"the cotangent bwd of {self!r} returns for arg{position}"))
        return found


def _named(staged: Staged, fun: Any) -> Callable[..., list]:
    def call(*arrays):
        return staged(*arrays)

    call.__name__ = call.__qualname__ = function_name(fun)
    return call


class custom_jvp(_Custom):
    """A function with a forward-mode rule of its own; reverse mode transposes the rule.

    Arguments:
        fun: returns a pytree of floating arrays and constants; closes over no traced value.
        nondiff_argnums: positions that are passed to the rule first, as they are.

    `defjvp(rule)` gives the rule, `rule(*nondiff, primals, tangents) -> (primal_out, tangent_out)`, and returns it. The
    value is always that of `fun`; `tangent_out` may be None (zero). The rule must be linear in the tangents.

    Raises (when called under a transform):
        AttributeError: no rule was given. TypeError: a rule that returns no pair, tangents of another shape or dtype,
        masks, closures over traced values.
    """

    kind = "custom_jvp"

    def __init__(self, fun: Callable[..., Any], nondiff_argnums: Iterable[int] = ()):
        super().__init__(fun, nondiff_argnums)
        self.rule: Callable[..., Any] | None = None

    def defjvp(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Gives the rule: see the class. Usable as a decorator."""
        if not callable(rule):
            raise TypeError(f"defjvp expects a callable rule, got {type(rule).__name__}")
        self.rule = rule
        return rule

    def __call__(self, *args: Any) -> Any:
        if self.rule is None:
            raise AttributeError(
                f"no JVP is defined for custom_jvp function {function_name(self.fun)}; call defjvp first"
            )
        refuse_cycles(self, args)
        arguments, nondiff = self._take_apart(args)
        if self._runs_plainly(arguments):
            return self.fun(*args)
        staged = self._stage_fun(arguments, args, nondiff)
        if not any(map(is_tracer, arguments.arrays)) or not staged.out_avals:
            with jax.ensure_compile_time_eval():
                return staged.result(staged(*arguments.arrays))
        rule, check = self._rule(staged, arguments, args, nondiff)
        check()  # a rule that does not fit is refused wherever it is traced, differentiated or not
        call = jax.custom_jvp(_named(staged, self.fun))
        call.defjvp(rule)
        return staged.result(call(*arguments.arrays))

    def _rule(self, staged: Staged, arguments: Arguments, args: Sequence[Any], nondiff: Sequence[int]):
        avals = arguments.avals
        floating = [k for k, aval in enumerate(avals) if is_floating(aval)]

        @functools.cache
        def traced() -> Staged:
            found = stage(
                lambda *xs: self._run_rule(
                    xs[: len(avals)], dict(zip(floating, xs[len(avals) :])), staged, arguments, args, nondiff
                ),
                [*avals, *(jax.ShapeDtypeStruct(avals[k].shape, avals[k].dtype) for k in floating)],
            )
            _refuse_captured(found, f"the JVP rule of {self!r}")
            return found

        def rule(primals, tangents):
            return staged(*primals), traced().result(traced()(*primals, *(tangents[k] for k in floating)))

        return rule, traced

    def _run_rule(self, primals, tangents, staged: Staged, arguments: Arguments, args, nondiff) -> list:
        assert self.rule is not None
        wanted = [n for n in range(len(args)) if n not in nondiff]
        points = arguments.rebuild(primals)
        directions = _tangent_trees(arguments, tangents)
        self._inside.rule = True
        try:
            pair = self.rule(
                *(args[n] for n in nondiff), tuple(points[n] for n in wanted), tuple(directions[n] for n in wanted)
            )
        finally:
            self._inside.rule = False
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise TypeError(f"the JVP rule of {self!r} must return a pair (primal_out, tangent_out)")
        refuse_cycles(f"the primal output of the JVP rule of {self!r}", pair[0])
        primal = tree_util.tree_structure(pair[0])
        if primal != staged.tree:
            raise TypeError(
                f"the JVP rule of {self!r} returns a primal output with structure {structure_text(primal)}, but the function "
                f"returns {structure_text(staged.tree)}"
            )
        what = f"the tangent output of {self!r}"
        if pair[1] is None:
            leaves = [None] * staged.tree.num_leaves
        else:
            refuse_cycles(what, pair[1])
            leaves, tree = tree_util.tree_flatten(pair[1], is_leaf=lambda x: x is None)
            if len(leaves) != staged.tree.num_leaves:
                raise TypeError(f"{what} has structure {structure_text(tree)}, expected {structure_text(staged.tree)}")
        found = {
            place.index: _zero_or_array(leaf, staged.out_avals[place.index], what)
            for place, leaf in zip(staged.leaves, leaves)
            if isinstance(place, Output)
        }
        return [found[k] for k in range(len(staged.out_avals))]


def _tangent_trees(arguments: Arguments, tangents: dict[int, Any]) -> list:
    """The tangents, given by array, in the arguments' structures; masks and constants get a zero."""
    by_leaf = {k: tangents[n] for n, k in enumerate(arguments.dynamic) if n in tangents}
    out, start = [], 0
    for tree in arguments.trees:
        span = range(start, start + tree.num_leaves)
        out.append(tree_util.tree_unflatten(tree, [by_leaf.get(k, 0.0) for k in span]))
        start += tree.num_leaves
    return out


# ---- checkpoint, stop_gradient -----------------------------------------------------------------------------


class _Checkpoint:
    """`checkpoint(fun)`: see `checkpoint`."""

    def __init__(self, fun: Callable[..., Any], static_argnums: tuple[int, ...]):
        self.fun, self.static_argnums = fun, static_argnums
        functools.update_wrapper(self, fun, updated=())

    def __repr__(self) -> str:
        return f"checkpoint({function_name(self.fun)})"

    def __call__(self, *args: Any) -> Any:
        refuse_cycles(self, args)
        count = len(args)
        arguments = Arguments(args, static=tuple(n % count for n in self.static_argnums if -count <= n < count))
        if jax_api.no_trace_active() and not any(map(is_tracer, arguments.arrays)):
            return self.fun(*args)
        staged = stage(lambda *arrays: self.fun(*arguments.rebuild(arrays)), arguments.avals)
        _refuse_masks(staged, "checkpoint", function_name(self.fun))
        if not any(map(is_tracer, [*arguments.arrays, *staged.captured])):
            with jax.ensure_compile_time_eval():
                return staged.result(staged(*arguments.arrays))
        return staged.result(jax.checkpoint(_named(staged, self.fun))(*arguments.arrays))


def checkpoint(fun: Callable[..., Any], *, static_argnums: Any = ()) -> Any:
    """`fun`, recomputed in the reverse pass instead of keeping its intermediate values.

    Arguments:
        fun: returns floating arrays and constants; may close over traced values.
        static_argnums: positions that are passed on as they are.

    Returns:
        A function of the same values and derivatives, of every order. Cost: one more evaluation in the reverse pass.

    Raises (under a transform):
        TypeError: `fun` returns a mask.
    """
    if not callable(fun):
        raise TypeError(f"checkpoint expects a callable, got {type(fun).__name__}")
    numbers = (static_argnums,) if isinstance(static_argnums, int) else static_argnums
    if not isinstance(numbers, (tuple, list)) or not all(isinstance(n, int) for n in numbers):
        raise TypeError(f"static_argnums must be an int or a tuple of ints, got {static_argnums!r}")
    numbers = tuple(numbers)
    return _Checkpoint(fun, numbers)


remat = checkpoint


def stop_gradient(x: Any) -> jax.Array:
    """`x` as an array with zero derivatives, in both modes."""
    array = asarray(x)
    return lax.stop_gradient(array) if is_tracer(array) else array
