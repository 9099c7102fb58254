"""grad, value_and_grad, vjp, jvp, jacobian, hessian in Quabla's contract, over JAX's transforms.

Each traces the user's function once, with every array argument as a tracer, and lets JAX differentiate the jaxpr.
`jit` and `vmap` have files of their own and are given on here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, overload

import jax
from jax import tree_util

from . import dtypes
from ._cycles import refusing_cycles
from ._forward import refuse_custom_vjp, uses_custom_vjp
from ._jit import jit
from ._programs import (
    Arguments,
    Program,
    Transform,
    decorator,
    no_keywords,
    normalize_argnums,
    split,
    staged_results,
)
from ._staging import (
    Output,
    as_leaf,
    copy_value,
    dtype_text,
    flatten,
    is_array,
    is_floating,
    is_tracer,
    linear_rules,
    shape_text,
    stage,
    zeros_of,
)
from ._vmap import vmap
from .arrays import Array, Tensor, TensorView, TraceTensor
from .lowering import jax_api

__all__ = [
    "Array", "Tensor", "TensorView", "TraceTensor", "grad", "hessian", "jacobian", "jit", "jvp", "value_and_grad", "vjp", "vmap",
]  # fmt: skip


P = ParamSpec("P")  # arguments of a function that a transform takes and returns

# ---- reverse mode: grad, value_and_grad --------------------------------------------------------------------


def _scalar_value(value: Any, name: str) -> None:
    """Refuses what the transform `name` cannot differentiate as a scalar."""
    if is_tracer(value):
        if value.shape != ():
            raise ValueError(
                f"{name} requires a scalar output, got shape {shape_text(value)}; use jacobian or vjp for non-scalar outputs"
            )
        if not is_floating(value):
            raise ValueError(
                f"cannot differentiate a {dtypes.short(value.dtype)} output; convert it explicitly with astype"
            )
    elif value is not None and tree_util.all_leaves([value]):
        kind = "Tensor" if is_array(value) else type(value).__name__
        raise ValueError(f"{name} requires the value to be computed from the arguments, got a constant {kind}")
    else:
        raise TypeError(f"{name} requires fun to return a single scalar array as its value, got {type(value).__name__}")


class _Grad(Transform):
    """`masks` is what stands at the leaves that have no gradient: None, or 0.0 inside a hessian."""

    def __init__(
        self,
        fun: Callable[..., Any],
        argnums: Any = 0,
        has_aux: bool = False,
        with_value: bool = False,
        masks: float | None = None,
    ):
        super().__init__(fun)
        self.masks = masks
        self.name = "value_and_grad" if with_value else "grad"
        self.argnums, self.has_aux, self.with_value = argnums, has_aux, with_value
        if isinstance(argnums, list):
            argnums = tuple(argnums)
        self.options = (repr(argnums), bool(has_aux), masks)

    def call(self, *args: Any, **keywords: Any) -> Any:
        no_keywords(self, keywords)
        positions, single = normalize_argnums(self.argnums, len(args))
        arguments = Arguments(args, to_array=positions)
        return self.execute(arguments, lambda: self._build(arguments.layout(), positions, single))

    def _build(self, arguments: Arguments, positions: Sequence[int], single: bool) -> Program:
        fun, has_aux, with_value, masks, name = self.fun, self.has_aux, self.with_value, self.masks, self.name

        def value_and_aux(*arrays):
            result = fun(*arguments.rebuild(arrays))
            value, aux = result, None
            if has_aux:
                if not isinstance(result, tuple) or len(result) != 2:
                    raise TypeError(f"{name} with has_aux=True requires fun to return a (value, aux) pair")
                value, aux = result
            _scalar_value(value, name)
            return value, aux

        staged = stage(value_and_aux, arguments.avals)
        chosen = arguments.selected(positions)
        count = len(staged.out_avals)

        def apply(*arrays):
            def of_chosen(*selected):
                outputs = staged(*split(arrays, chosen, selected))
                return outputs[0], outputs

            if not chosen:
                return of_chosen()[1]
            (_, outputs), grads = jax.value_and_grad(of_chosen, tuple(range(len(chosen))), has_aux=True)(
                *(arrays[n] for n in chosen)
            )
            return [*outputs, *grads]

        def finish(outputs):
            value, aux = staged.result(outputs[:count])
            by_array = dict(zip(chosen, outputs[count:]))
            trees = tuple(arguments.tree_of(p, by_array, masks) for p in positions)
            grads = trees[0] if single else trees
            if with_value:
                return ((value, aux) if has_aux else value), grads
            return (grads, aux) if has_aux else grads

        return Program(apply, finish, staged.captured)


@overload
def grad(fun: Callable[P, Any], argnums: Any = 0, has_aux: bool = False) -> Callable[P, Any]: ...
@overload
def grad(
    fun: None = None, argnums: Any = 0, has_aux: bool = False
) -> Callable[[Callable[P, Any]], Callable[P, Any]]: ...
def grad(fun: Any = None, argnums: Any = 0, has_aux: bool = False) -> Any:
    """The gradient of a scalar function, in reverse mode.

    Arguments:
        fun: returns one floating scalar, or with `has_aux` a (value, aux) pair. Left out: a decorator is returned.
        argnums: an int (one tree is returned) or a tuple or list of ints (a tuple of trees); negatives count from the end.
        has_aux: return (gradients, aux); aux may hold anything.

    Returns:
        A function of the same positional arguments. Its result has the structure of the selected arguments, every leaf
        in its own dtype; bool and integer leaves become None. Python numbers in selected positions count as float64
        arrays, Python bools as masks; elsewhere they are static.

    Raises (when called):
        ValueError: an output that is not a scalar, not floating, or constant; argnums out of range or repeated.
        TypeError: an output that is no array; argnums that are no ints; leaves that are neither arrays nor numbers.
    """
    return decorator(_Grad, fun, argnums=argnums, has_aux=has_aux)


@overload
def value_and_grad(fun: Callable[P, Any], argnums: Any = 0, has_aux: bool = False) -> Callable[P, tuple[Any, Any]]: ...
@overload
def value_and_grad(
    fun: None = None, argnums: Any = 0, has_aux: bool = False
) -> Callable[[Callable[P, Any]], Callable[P, tuple[Any, Any]]]: ...
def value_and_grad(fun: Any = None, argnums: Any = 0, has_aux: bool = False) -> Any:
    """Like `grad`, but returns (value, gradients), or ((value, aux), gradients) with `has_aux`."""
    return decorator(_Grad, fun, argnums=argnums, has_aux=has_aux, with_value=True)


# ---- vjp ---------------------------------------------------------------------------------------------------


class _Direct(Transform):
    """A transform that is applied and called in one go (vjp, jvp): it shares the cache, not the object."""

    shortcut = False

    def __init__(self, fun: Callable[..., Any], name: str, options: tuple = ()):
        super().__init__(fun)
        self.name, self.options = name, options


@refusing_cycles
def vjp(fun: Callable[..., Any], *primals: Any, has_aux: bool = False) -> tuple:
    """The value of `fun` at `primals` and the function that pulls cotangents back.

    Arguments:
        fun: returns a pytree with at least one floating array; with `has_aux` an (out, aux) pair.
        *primals: pytrees of arrays; Python scalars become float64 arrays.

    Returns:
        (out, pullback), or (out, pullback, aux). `pullback(ct)` takes a tree of exactly the structure of `out` and
        returns a tuple with one tree a primal, None for bool leaves; a Python number may stand for a scalar cotangent.

    Raises:
        ValueError: no floating output; reverse mode through a while_loop that keeps nothing; a cotangent of another structure.
        TypeError: a cotangent of another shape or dtype.
    """
    transform = _Direct(fun, "vjp", (bool(has_aux),))
    positions = tuple(range(len(primals)))
    arguments = Arguments(primals, to_array=positions)
    return transform.execute(arguments, lambda: _build_vjp(fun, arguments.layout(), positions, has_aux))


def _build_vjp(fun: Callable[..., Any], arguments: Arguments, positions: Sequence[int], has_aux: bool) -> Program:
    trees: dict[str, Any] = {}

    def out_and_aux(*arrays):
        result = fun(*arguments.rebuild(arrays))
        out, aux = result, None
        if has_aux:
            if not isinstance(result, tuple) or len(result) != 2:
                raise TypeError("vjp with has_aux=True requires fun to return an (out, aux) pair")
            out, aux = result
        trees["out"] = tree_util.tree_structure(out)
        return out, aux

    staged = stage(out_and_aux, arguments.avals)
    tree = trees["out"]
    seeds = [
        leaf.index
        for leaf in staged.leaves[: tree.num_leaves]
        if isinstance(leaf, Output) and is_floating(staged.out_avals[leaf.index])
    ]
    if not seeds:
        raise ValueError("vjp requires a floating-point output computed from the primals")
    chosen = arguments.selected(positions)

    def apply(*arrays):
        def of_chosen(*selected):
            outputs = staged(*split(arrays, chosen, selected))
            return [outputs[k] for k in seeds], outputs

        _, pull, outputs = jax.vjp(of_chosen, *(arrays[n] for n in chosen), has_aux=True)
        return [outputs, pull]

    if chosen and "forward_only" in jax_api.primitive_names(staged.jaxpr):
        # Reverse mode through a while_loop has to raise here, not when the cotangent comes.
        cotangents = [jax.ShapeDtypeStruct(staged.out_avals[k].shape, staged.out_avals[k].dtype) for k in seeds]
        jax.eval_shape(lambda arrays, ct: apply(*arrays)[1](ct), arguments.avals, cotangents)

    def finish(outputs):
        arrays, pull = outputs
        out, aux = staged.result(arrays)

        def pullback(ct):
            if not chosen:
                _cotangents(ct, tree, staged, seeds)
                return tuple(arguments.tree_of(p, {}) for p in positions)
            grads = _run_pullback(pull, _cotangents(ct, tree, staged, seeds), any(map(is_tracer, arrays)))
            return tuple(arguments.tree_of(p, dict(zip(chosen, grads))) for p in positions)

        return (out, pullback, aux) if has_aux else (out, pullback)

    return Program(apply, finish, staged.captured)


@jax.jit
def _pull_back(pull: Any, cotangents: list) -> Any:
    with linear_rules():
        return pull(cotangents)


def _run_pullback(pull: Any, cotangents: list, traced: bool) -> Any:
    if traced or any(map(is_tracer, [*cotangents, *tree_util.tree_leaves(pull)])):
        with linear_rules():
            return staged_results(pull(cotangents))
    with jax.ensure_compile_time_eval():
        return _pull_back(pull, cotangents)


def _cotangents(ct: Any, tree: Any, staged: Any, seeds: Sequence[int]) -> list:
    """The cotangents of the seeded outputs, checked against the output tree."""
    leaves, structure = flatten(ct)
    if structure != tree:
        raise ValueError(f"the cotangent must have the pytree structure of the primal output: {tree}, got {structure}")
    found = []
    for leaf, place in zip(leaves, staged.leaves):
        if isinstance(place, Output) and place.index in seeds:
            found.append(_matching(leaf, staged.out_avals[place.index], "a vjp cotangent"))
    return found


def _matching(leaf: Any, like: Any, what: str) -> jax.Array:
    """A tangent or cotangent leaf for a primal of the aval `like`; a Python number adopts a scalar's dtype."""
    if not is_array(leaf):
        if like.shape == ():
            return copy_value(leaf, like.dtype)
        leaf = copy_value(leaf, dtypes.default_float())
    if leaf.shape != like.shape or leaf.dtype != like.dtype:
        raise TypeError(
            f"{what} must have shape {shape_text(like)} and dtype {dtype_text(like.dtype)} to match its primal, got shape "
            f"{shape_text(leaf)} and dtype {dtype_text(leaf.dtype)}"
        )
    return leaf


# ---- forward mode: jvp -------------------------------------------------------------------------------------


@refusing_cycles
def jvp(fun: Callable[..., Any], primals: Any, tangents: Any) -> tuple:
    """The value of `fun` at `primals` and its directional derivative along `tangents`, in forward mode.

    Arguments:
        fun: returns a pytree.
        primals, tangents: tuples or lists of equal length and structure; every tangent has its primal's shape and
            dtype. A Python number may stand for a scalar tangent; a bool primal takes a placeholder, which is ignored.

    Returns:
        (out, tangent): tangents of bool outputs are float64 zeros, of constants zeros, of None and strings None.

    Raises:
        TypeError: primals or tangents that are no tuple or list; a tangent of another shape or dtype.
        ValueError: other lengths or structures; no floating primal; a custom_vjp function on the way.
    """
    if not isinstance(primals, (tuple, list)) or not isinstance(tangents, (tuple, list)):
        raise TypeError("jvp takes primals and tangents as tuples or lists")
    if len(primals) != len(tangents):
        raise ValueError(f"jvp got {len(primals)} primals and {len(tangents)} tangents; they must match")
    positions = tuple(range(len(primals)))
    arguments = Arguments(primals, to_array=positions)
    seeds = Arguments(tangents)
    if seeds.trees != arguments.trees:
        raise ValueError("jvp tangents must have the pytree structure of the primals")
    chosen = arguments.selected(positions)
    if not chosen:
        raise ValueError("jvp requires at least one floating-point primal")
    arrays = arguments.arrays
    directions = [_matching(as_leaf(seeds.leaves[n]), arrays[n], "a jvp tangent") for n in chosen]
    transform = _Direct(fun, "jvp")
    both = Arguments((tuple(primals), directions), to_array=(0, 1))
    return transform.execute(both, lambda: _build_jvp(fun, arguments.layout(), chosen))


def _build_jvp(fun: Callable[..., Any], arguments: Arguments, chosen: Sequence[int]) -> Program:
    avals = arguments.avals
    staged = stage(lambda *arrays: fun(*arguments.rebuild(arrays)), avals)
    count = len(avals)
    floating = [k for k, aval in enumerate(staged.out_avals) if is_floating(aval)]

    def apply(*inputs):
        arrays, directions = inputs[:count], inputs[count:]

        def of_chosen(*selected):
            outputs = staged(*split(arrays, chosen, selected))
            return [outputs[k] for k in floating], outputs

        _, tangents, outputs = jax.jvp(of_chosen, [arrays[n] for n in chosen], list(directions), has_aux=True)
        return [*outputs, *tangents]

    if uses_custom_vjp(staged):
        refuse_custom_vjp(staged, apply, [*avals, *(avals[n] for n in chosen)])

    def finish(outputs):
        arrays, tangents = outputs[: len(staged.out_avals)], dict(zip(floating, outputs[len(staged.out_avals) :]))
        leaves = [_output_tangent(leaf, arrays, tangents) for leaf in staged.leaves]
        return staged.result(arrays), tree_util.tree_unflatten(staged.tree, leaves)

    return Program(apply, finish, staged.captured)


def _output_tangent(leaf: Any, arrays: Sequence[Any], tangents: dict[int, Any]) -> Any:
    if isinstance(leaf, Output):
        found = tangents.get(leaf.index)
        return found if found is not None else _float_zeros(arrays[leaf.index])
    if is_array(leaf):
        return zeros_of(leaf) if is_floating(leaf) else _float_zeros(leaf)
    return 0.0 if isinstance(leaf, (bool, int, float)) else None


def _float_zeros(x: Any) -> jax.Array:
    return zeros_of(jax.ShapeDtypeStruct(x.shape, dtypes.default_float()))


# ---- jacobian, hessian -------------------------------------------------------------------------------------


class _Jacobian(Transform):
    name = "jacobian"

    def __init__(self, fun: Callable[..., Any], argnums: Any = 0, name: str = "jacobian"):
        super().__init__(fun)
        self.argnums, self.name = argnums, name
        self.options = (repr(tuple(argnums) if isinstance(argnums, list) else argnums),)

    def call(self, *args: Any, **keywords: Any) -> Any:
        no_keywords(self, keywords)
        positions, single = normalize_argnums(self.argnums, len(args))
        arguments = Arguments(args, to_array=positions)
        return self.execute(arguments, lambda: self._build(arguments.layout(), positions, single))

    def _build(self, arguments: Arguments, positions: Sequence[int], single: bool) -> Program:
        chosen = arguments.selected(positions)
        if not chosen:
            raise ValueError(f"{self.name} requires a floating-point argument in argnums")
        avals = arguments.avals
        staged = stage(lambda *arrays: self.fun(*arguments.rebuild(arrays)), avals)
        floating = [k for k, aval in enumerate(staged.out_avals) if is_floating(aval)]
        reverse = uses_custom_vjp(staged) or _size(staged.out_avals[k] for k in floating) < _size(
            avals[n] for n in chosen
        )

        def apply(*arrays):
            def of_chosen(*selected):
                outputs = staged(*split(arrays, chosen, selected))
                return [outputs[k] for k in floating]

            differentiate = jax.jacrev if reverse else jax.jacfwd
            rows = differentiate(of_chosen, tuple(range(len(chosen))))(*(arrays[n] for n in chosen)) if floating else []
            dtypes_out = [staged.out_avals[k].dtype for k in floating]
            return [jax.lax.convert_element_type(b, d) for row, d in zip(rows, dtypes_out) for b in row]

        def finish(blocks):
            def trees_for(shape, dtype, row):
                by_array = dict(zip(chosen, row)) if row else {}
                for n in chosen:
                    block = jax.ShapeDtypeStruct((*shape, *avals[n].shape), avals[n].dtype if dtype is None else dtype)
                    by_array.setdefault(n, zeros_of(block))
                trees = tuple(arguments.tree_of(p, by_array) for p in positions)
                return trees[0] if single else trees

            rows = {k: blocks[r * len(chosen) : (r + 1) * len(chosen)] for r, k in enumerate(floating)}
            leaves = []
            for leaf in staged.leaves:
                if isinstance(leaf, Output):
                    aval, row = staged.out_avals[leaf.index], rows.get(leaf.index)
                    leaves.append(trees_for(aval.shape, aval.dtype if row else dtypes.default_float(), row))
                elif is_array(leaf) and is_floating(leaf):
                    leaves.append(trees_for(leaf.shape, leaf.dtype, None))
                elif is_array(leaf):
                    leaves.append(trees_for(leaf.shape, dtypes.default_float(), None))
                else:  # a number has no dtype of its own
                    leaves.append(trees_for((), None, None))
            return tree_util.tree_unflatten(staged.tree, leaves)

        return Program(apply, finish, staged.captured)


def _size(avals: Any) -> int:
    return sum(math.prod(aval.shape) for aval in avals)


def jacobian(fun: Callable[P, Any], argnums: Any = 0) -> Callable[P, Any]:
    """All partial derivatives of `fun`: one block [*out.shape, *in.shape] a pair of output and input leaf.

    Arguments:
        fun: returns a pytree of arrays.
        argnums: as in `grad`.

    Returns:
        A function of the same positional arguments. In the output tree every leaf is replaced by the tree (or tuple of
        trees) of the selected arguments; blocks have the output's dtype; constants and bool outputs give zeros.

    Differentiation: reverse mode where the function calls a custom_vjp function or has fewer outputs than inputs, else
    forward mode.

    Raises (when called):
        ValueError: no floating argument among the selected; argnums out of range or repeated.
    """
    return _Jacobian(fun, argnums)


def hessian(fun: Callable[P, Any], argnums: Any = 0) -> Callable[P, Any]:
    """The second derivatives of a scalar function: `jacobian(grad(fun, argnums), argnums)`, forward over reverse."""
    return _Jacobian(_Grad(fun, argnums, masks=0.0), argnums, "hessian")
