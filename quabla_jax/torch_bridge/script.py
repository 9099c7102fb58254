"""to_torchscript: a lowered program through GraphBuilder into a ScriptModule."""

from __future__ import annotations

import contextlib
import gc
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
import torch

from .._cycles import refusing_cycles
from ..lowering import lower
from ..lowering.builder import emit
from ..lowering.jax_api import is_key_dtype
from ..lowering.program import Branch, Loop, Program
from . import ops
from .aliases import fixed_outputs, is_constant, is_input, sources
from .aten import CARRIER, Array, signed_view
from .counters import Counter, simplify, uses
from .graph_builder import GraphBuilder
from .modules import assemble, parameter_paths
from .regions import Value as Ref

__all__ = ["ScriptTarget", "leaf_tensor", "tensor_of", "to_torchscript"]

BUFFER_BYTES = 4096  # larger constants become buffers of the module
FOREVER = 2**63 - 1
# How many numbers may become tensors, outside loops and inside: each is an entry of the saved file, and PyTorch compares
# every one with all others when it loads.
SCALAR_TENSORS = (128, 512)
CHEAP_NUMBERS = frozenset({"aten::clamp_min", "aten::clamp_max"})


def tensor_of(array: np.ndarray) -> torch.Tensor:
    """A torch tensor with a copy of the array's elements, in the array's own dtype."""
    array = np.array(array, order="C")  # a writable copy
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def leaf_tensor(leaf: Any) -> torch.Tensor:
    """A leaf of a function's arguments as the traced program has it: keys as their words, wide numbers as JAX's mode has
    them, zeros for shapes alone."""
    if is_key_dtype(getattr(leaf, "dtype", np.dtype(bool))):
        shape_only = isinstance(leaf, jax.ShapeDtypeStruct)
        leaf = jax.eval_shape(jax.random.key_data, leaf) if shape_only else jax.random.key_data(leaf)
    array = np.zeros(leaf.shape, leaf.dtype) if isinstance(leaf, jax.ShapeDtypeStruct) else np.asarray(leaf)
    return tensor_of(array.astype(jax.dtypes.canonicalize_dtype(array.dtype)))


class ScriptTarget(ops.CoreOps):
    """The Builder that the lowering's driver feeds, and the operators that the rows call."""

    name = target = "torchscript"

    def __init__(self, gb: GraphBuilder, constants: dict[Any, tuple[str, torch.Tensor]] | None = None):
        self.gb = gb
        self._buffers = {} if constants is None else constants  # bytes of a large constant -> its attribute
        self._tensors: dict[Any, Ref] = {}
        self._loops = 0  # how many loops are open

    # Aten: operators and constants

    def call(self, op: str, *args: Any, **kwargs: Any) -> Any:
        return self.gb.call(op, *args, **kwargs)

    def constant(self, array: np.ndarray) -> Ref:
        array = np.asarray(array)
        array = array.view(signed_view(array.dtype))
        key = (array.shape, array.dtype.name, array.tobytes())
        found = self._tensors.get(key)
        if found is None:
            tensor = tensor_of(array)
            if array.nbytes > BUFFER_BYTES:
                if key not in self._buffers:
                    self._buffers[key] = (self._free_path(), tensor)
                found = self.gb.buffer(*self._buffers[key])
            else:
                found = self.gb.const(tensor)
            self._tensors[key] = found
        return found

    def _free_path(self) -> str:
        """A name for one more buffer; parameters may have any."""
        taken = {path.partition(".")[0] for path in self.gb.attributes} | {path for path, _ in self._buffers.values()}
        return next(name for k in itertools.count(len(self._buffers)) if (name := f"constant_{k}") not in taken)

    def visible(self, ref: Ref) -> bool:
        return ref.region.open

    def operand(self, x: Array, op: str, stored: tuple[int, ...]) -> Any:
        """A tensor of one element where that pays: a small tensor times a number takes torch 2.4 us, times this 0.9.
        It has an axis, since TorchScript's peephole pass turns a 0-d constant back into a number."""
        if x.number is None:  # a loop's index
            return self.loose(x) if stored else x.scalar
        if not stored or op in CHEAP_NUMBERS or len(self._tensors) >= SCALAR_TENSORS[self._loops > 0]:
            return x.scalar
        return self.constant(np.full(1, x.scalar, signed_view(x.dtype)))

    def _clamped(self, start: Array, last: int) -> Any:
        if start.bounds is not None and 0 <= start.bounds[0] and start.bounds[1] <= last:
            return start.scalar
        number = start.scalar if start.scalar is not None else self.call("aten::Int", self.loose(start))
        return self.call("prim::min", self.call("prim::max", number, 0), last)

    def narrow(self, x: Any, axis: int, start: Array, size: int, extent: int) -> Any:
        return self.call("aten::narrow", x, axis, self._clamped(start, extent - size), size)

    def replace(self, x: Any, update: Any, axis: int, start: Array, size: int, extent: int) -> Any:
        begin = self._clamped(start, extent - size)
        return self.call("aten::slice_scatter", x, update, axis, begin, self.call("aten::add", begin, size), 1)

    # Builder: what the driver calls

    def branch(
        self,
        node: Branch,
        index: Array,
        inputs: Sequence[Array],
        emit_branches: Sequence[Callable[[Sequence[Array]], list[Array]]],
    ) -> Sequence[Array]:
        number = None

        def choose(low: int, high: int) -> Sequence[Ref]:
            """The results of branches low to high - 1: a balanced tree of two-way choices."""
            nonlocal number
            if high - low == 1:
                return [self.full(out) for out in emit_branches[low](inputs)]
            middle = (low + high) // 2
            if number is None:
                number = self.call("aten::Int", self.full(index))
            return two_way(
                self.call("aten::ge", number, middle),
                lambda: choose(middle, high),
                lambda: choose(low, middle),
            )

        def two_way(condition: Ref, on_true: Callable, on_false: Callable) -> Sequence[Ref]:
            branch = self.gb.if_(condition)
            for side, build in ((branch.true(), on_true), (branch.false(), on_false)):
                with side as block:
                    block.end(*build())
            return branch.outputs

        if index.truth is not None and len(emit_branches) == 2:
            condition = self.call("aten::Bool", self.full(index.truth))
            refs = two_way(condition, lambda: choose(1, 2), lambda: choose(0, 1))
        else:
            refs = choose(0, len(emit_branches))
        return [Array(v.shape, v.dtype, ref) for v, ref in zip(node.outputs, refs)]

    def loop(
        self,
        node: Loop,
        inputs: Sequence[Array],
        trip: Array | None,
        emit_body: Callable[[Sequence[Array]], list[Array]],
        emit_cond: Callable[[Sequence[Array]], Array] | None,
    ) -> Sequence[Array]:
        consts = list(inputs[: node.n_consts])
        for x in consts:
            if x.ref is None and x.scalar is None:
                self.loose(x)  # made once, not on every trip
        init = list(inputs[node.n_consts : node.n_consts + node.n_carry])
        xs = inputs[node.n_consts + node.n_carry :]
        if emit_cond is not None:
            return self._while(node, consts, init, emit_body, emit_cond)
        stacked = node.outputs[node.n_carry :]
        if node.length == 0:
            return init + [Array(v.shape, v.dtype, scalar=zero_of(v.dtype)) for v in stacked]
        plan = simplify(node, init)
        moving = plan.carried(node.n_carry)
        slices = [self.call("aten::unbind", self.full(x), 0) for x in xs]
        lists = [self.gb.list_(element=torch.Tensor) for _ in stacked]
        count: Any = node.length
        if trip is not None:
            count = trip.scalar if trip.scalar is not None else self.call("aten::Int", self.full(trip))
        with self._open_loop(count, True, *(self.full(init[k]) for k in moving)) as loop:
            carried = list(init)
            for k, ref in zip(moving, loop.carried):
                carried[k] = Array(init[k].shape, init[k].dtype, ref)
            for k, counter in plan.counters.items():
                if uses(plan.body, plan.body.inputs[node.n_consts + k]):
                    carried[k] = self._counted(loop.index, counter, init[k].dtype, node.length)
            position: Any = loop.index
            if node.reverse and (slices or lists):
                position = self.call("aten::sub", (node.length or 0) - 1, loop.index)
            taken = [
                Array(x.shape[1:], x.dtype, self.call("aten::__getitem__", part, position))
                for x, part in zip(xs, slices)
            ]
            outs = emit(plan.body, self, [*consts, *carried, *taken])
            for values, out in zip(lists, outs[len(moving) :]):
                self.call("aten::append", values, self.full(out))
            loop.end(True, *(self.full(out) for out in outs[: len(moving)]))
        results = list(init)
        for k, ref in zip(moving, loop.outputs):
            results[k] = Array(init[k].shape, init[k].dtype, ref)
        for k, counter in plan.counters.items():
            results[k] = self._count_after(count, counter, init[k].dtype)
        for values, v in zip(lists, stacked):
            if node.reverse:
                self.call("aten::reverse", values)
            results.append(Array(v.shape, v.dtype, self.call("aten::stack", values, 0)))
        return results

    @contextlib.contextmanager
    def _open_loop(self, *inputs: Any) -> Iterator[Any]:
        with self.gb.loop(*inputs) as loop:
            self._loops += 1
            yield loop
            self._loops -= 1

    def _counted(self, index: Ref, counter: Counter, dtype: np.dtype, length: int | None) -> Array:
        """A counter inside its loop, as a number."""
        scalar: Any = index
        if counter.step != 1:
            scalar = self.call("aten::mul", scalar, counter.step)
        if counter.start != 0:
            scalar = self.call("aten::add", scalar, counter.start)
        out = Array((), dtype, scalar=scalar)
        last = np.iinfo(dtype).max if length is None else counter.start + counter.step * (length - 1)
        out.span = (min(counter.start, last), max(counter.start, last))
        return out

    def _count_after(self, count: Any, counter: Counter, dtype: np.dtype) -> Array:
        if isinstance(count, int):
            return Array((), dtype, scalar=counter.start + counter.step * count)
        out = Array((), dtype)  # made where something reads it
        out.make = lambda: self.tensor_of(self.call("aten::add", count, counter.start), dtype)
        return out

    @staticmethod
    def _carried(refs: Sequence[Ref], like: Sequence[Array]) -> list[Array]:
        return [Array(x.shape, x.dtype, ref) for x, ref in zip(like, refs)]

    def _while(self, node: Loop, consts: list[Array], init: list[Array], emit_body: Callable, emit_cond: Callable):
        holds = lambda state: self.call("aten::Bool", self.full(emit_cond([*consts, *state])))
        with self._open_loop(FOREVER, holds(init), *(self.full(x) for x in init)) as loop:
            outs = emit_body([*consts, *self._carried(loop.carried, init)])
            loop.end(holds(outs), *(self.full(out) for out in outs))
        return self._carried(loop.outputs, init)

    def tuple(self, values: Sequence[Array], fixed: Sequence[bool] | None = None) -> Any:
        """The results, each a tensor of its own. fixed: which of them no input enters."""
        refs, taken = [], set()
        for x, constant in zip(values, [False] * len(values) if fixed is None else fixed, strict=True):
            ref = self.returned(x)
            kin = sources(ref.raw)
            if constant or any(map(is_constant, kin.values())):
                ref = self._unfolded(ref)
            elif not taken.isdisjoint(kin) or any(map(is_input, kin.values())):
                ref = self.call("aten::clone", ref, torch.contiguous_format)
            taken.update(kin)
            refs.append(ref)
        return refs[0] if len(refs) == 1 else self.gb.tuple_(*refs)

    def _unfolded(self, ref: Ref) -> Ref:
        """A constant result, made anew on every call: PyTorch folds whatever depends on no input into one tensor, clones
        too, and hands that out. Nothing is folded that random numbers enter, were they none at all."""
        kind = self.call("prim::dtype", ref)
        nothing = self.call("aten::to", self.call("aten::rand", [0]), kind, False, False, None)
        whole = self.call("aten::cat", [self.call("aten::reshape", ref, [-1]), nothing], 0)
        return self.call("aten::reshape", whole, self.call("aten::size", ref))

    # the module's boundary: unsigned tensors come in and go out as themselves

    def returned(self, x: Array) -> Ref:
        ref = self.full(x)
        if x.dtype.name in CARRIER:
            return self.call("aten::view_copy", ref, getattr(torch, x.dtype.name))
        if x.stored != x.shape:
            ref = self.call("aten::clone", ref, torch.contiguous_format)
        return ref


def zero_of(dtype: np.dtype) -> Any:
    kind = "f" if dtype.kind == "V" else dtype.kind
    return {"b": False, "c": 0j, "f": 0.0}.get(kind, 0)


def build(
    program: Program, gb: GraphBuilder, inputs: Sequence[Ref], constants: dict[Any, tuple[str, torch.Tensor]]
) -> None:
    """Emit a program into a builder whose inputs are declared."""
    target = ScriptTarget(gb, constants)
    arrays = [target.received(ref, value) for ref, value in zip(inputs, program.inputs, strict=True)]
    gb.output(target.tuple(emit(program, target, arrays), fixed_outputs(program)))


@refusing_cycles
def to_torchscript(
    fun: Callable[..., Any],
    *args: Any,
    params: Any = None,
    methods: dict[str, Callable[..., Any]] | None = None,
) -> torch.jit.ScriptModule:
    """Translate a JAX function into a TorchScript module whose loops and branches are prim::Loop and prim::If.

    Args:
        fun: any function that JAX can trace, called as fun(*args), or fun(params, *args) where params are given.
        args: example arguments: pytrees of arrays (or jax.ShapeDtypeStruct); shapes and dtypes are fixed by them.
        params: a pytree of arrays; its leaves become parameters of the module, named by their path ("layers.0.w").
        methods: further methods by name, each a function of the same arguments, such as {"grad": jax.grad(fun)}.

    Returns: a ScriptModule. forward takes one tensor for every array leaf of args in tree order and returns a tensor,
        or a flat tuple of them in tree order; `module.in_tree` and `module.out_tree` hold the structures, and
        `module.out_trees` those of every method. Nothing of JAX is needed to load and run it.

    Raises:
        UnsupportedOperationError: torch lacks an operation; names it and the user's line.
        ValueError: a method's name is taken or no identifier.

    Differentiation: by JAX before translation (pass jax.grad(fun)), or by torch's autograd through the module.
    Cost: linear in the number of equations; the function is traced once for each method.
    """
    with _no_collection():
        return _translate(fun, args, params, {} if methods is None else methods)


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """No garbage collection for a while: a program is many small objects that all live, and scanning them is half the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _translate(
    fun: Callable[..., Any], args: tuple, params: Any, given: dict[str, Callable[..., Any]]
) -> torch.jit.ScriptModule:
    if not isinstance(given, dict) or not all(isinstance(m, str) and callable(f) for m, f in given.items()):
        raise TypeError(f"methods must be a dict of names to functions, got {given!r}")
    for method in given:
        if not method.isidentifier() or hasattr(torch.nn.Module, method):
            raise ValueError(f"method name {method!r}: expected an identifier that torch.nn.Module does not use itself")
    called = args if params is None else (params, *args)
    paths = [] if params is None else parameter_paths(params)
    tensors = [leaf_tensor(leaf) for leaf in jax.tree.leaves(params)]
    constants: dict[Any, Any] = {}
    builders: dict[str, GraphBuilder] = {}
    programs: dict[str, Program] = {}
    for method, function in {"forward": fun, **given}.items():
        gb = GraphBuilder(_class_name(fun))
        program = lower(function, *called, builder=ScriptTarget(gb), name=method)
        inputs = [gb.parameter(path, tensor) for path, tensor in zip(paths, tensors, strict=True)]
        inputs += [gb.input(f"x{k}") for k in range(len(program.inputs) - len(paths))]
        build(program, gb, inputs, constants)
        builders[method], programs[method] = gb, program
    module = assemble(_class_name(fun), builders)
    module.in_tree = jax.tree.structure(args)
    module.out_tree = programs["forward"].out_tree
    module.out_trees = {method: program.out_tree for method, program in programs.items()}
    return module


def _class_name(fun: Callable[..., Any]) -> str:
    name = "".join(c if c.isalnum() else "_" for c in getattr(fun, "__name__", "") or "")
    name = "".join(part.capitalize() for part in name.split("_"))
    return name if name.isidentifier() else "Function"
