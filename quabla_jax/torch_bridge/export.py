"""to_exported_program: a lowered program as an fx graph with higher-order operators, through torch.export."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
import torch

from .._cycles import refusing_cycles
from ..lowering import lower
from ..lowering.builder import emit
from ..lowering.program import Branch, Loop, Program
from . import ops
from .aliases import VIEWS
from .aten import CARRIER, TORCH, Array, carrier, signed_view
from .fx_graph import Ref, Scope
from .script import leaf_tensor, tensor_of, zero_of

__all__ = ["FxTarget", "to_exported_program"]

_HIGHER = torch.ops.higher_order


class FxTarget(ops.CoreOps):
    """The Builder for torch.export: straight-line ATen operators, cond, while_loop and scan."""

    name = target = "export"

    def __init__(self) -> None:
        self.scope = self.top = Scope()
        self._constants: dict[Any, Ref] = {}
        self._regions = 0

    # Aten

    def call(self, op: str, *args: Any, **kwargs: Any) -> Any:
        return self.scope.call(op, args, kwargs)

    def constant(self, array: np.ndarray) -> Ref:
        """A buffer of the whole program: inside a region it is an operand, since a tensor made there cannot be saved."""
        array = np.asarray(array)
        array = array.view(signed_view(array.dtype))
        if array.size == 0:  # torch.export.save fails on a buffer without elements
            return self.call("aten::zeros", list(array.shape), TORCH[array.dtype.name], None, None, None)
        key = (array.shape, array.dtype.name, array.tobytes())
        if key not in self._constants:
            self._constants[key] = self.top.attribute(
                self.top.free_path("constant", len(self._constants)), tensor_of(array)
            )
        return self._constants[key]

    def visible(self, ref: Ref) -> bool:
        return ref.region.open and ref.region.encloses(self.scope)

    def tensor_of(self, scalar: Any, dtype: np.dtype) -> Any:
        if isinstance(scalar, (bool, complex)):
            return self.constant(np.asarray(scalar, signed_view(dtype)))
        if isinstance(scalar, (int, float)):
            return self.call("aten::scalar_tensor", scalar, carrier(dtype), None, None, None)
        return super().tensor_of(scalar, dtype)

    def operand(self, x: Array, op: str, stored: tuple[int, ...]) -> Any:
        """Complex numbers as tensors: a graph's code cannot write nan+nanj, nor a part's negative zero."""
        return self.loose(x) if isinstance(x.scalar, complex) else x.scalar

    def _positions(self, start: Array, size: int, last: int) -> Ref:
        if start.number is not None:
            first: Any = max(0, min(int(start.number), last))
            line = self.call("aten::arange", size, torch.int64, None, None, None)
            return self.call("aten::add", line, first) if first else line
        wide = self.call("aten::to", self.full(start), torch.int64, False, False, None)
        clamped = self.call("aten::clamp", wide, 0, last)
        line = self.call("aten::arange", size, torch.int64, None, None, None)
        return self.call("aten::add", line, clamped)

    def narrow(self, x: Any, axis: int, start: Array, size: int, extent: int) -> Any:
        return self.call("aten::index_select", x, axis, self._positions(start, size, extent - size))

    def replace(self, x: Any, update: Any, axis: int, start: Array, size: int, extent: int) -> Any:
        return self.call("aten::index_copy", x, axis, self._positions(start, size, extent - size), update)

    # Builder

    def _region(self, inputs: Sequence[Array], body: Callable[[list[Array]], Sequence[Array]], fresh: bool) -> _Part:
        """Emit a region in a scope of its own. fresh: the inputs are new placeholders; else the region captures them."""
        scope = Scope(self.scope)
        outer, self.scope = self.scope, scope
        try:
            given = [Array(x.shape, x.dtype, scope.placeholder()) for x in inputs] if fresh else list(inputs)
            nodes = [scope.use(self._owned(out)) for out in body(given)]
        finally:
            self.scope = outer
        return _Part(scope, nodes)

    def _attach(
        self, parts: Sequence[_Part], names: Sequence[str], single: Sequence[bool]
    ) -> tuple[list[Any], list[Any]]:
        """Give the parts one list of captured operands; returns get_attr nodes of their modules and the operands' nodes."""
        shared = list(dict.fromkeys(ref for part in parts for ref in part.scope.captured))
        self._regions += 1
        modules = []
        for part, name, one in zip(parts, names, single, strict=True):
            part.order(shared)
            module = part.scope.finish(part.outputs, one)
            modules.append(self.scope.attribute(self.scope.free_path(name, self._regions), module).node)
        return modules, [self.scope.use(ref) for ref in shared]

    def branch(
        self,
        node: Branch,
        index: Array,
        inputs: Sequence[Array],
        emit_branches: Sequence[Callable[[Sequence[Array]], list[Array]]],
    ) -> Sequence[Array]:
        def choose(low: int, high: int) -> list[Array]:
            """Branches low to high - 1 as a balanced tree of cond: .pt2 files cannot hold torch's switch (2.14.1)."""
            if high - low == 1:
                return list(emit_branches[low](inputs))
            middle = (low + high) // 2
            condition = self.call("aten::ge", self.full(index), middle)
            return two_way(condition, lambda: choose(middle, high), lambda: choose(low, middle))

        def two_way(condition: Ref, on_true: Callable, on_false: Callable) -> list[Array]:
            parts = [self._region([], lambda _, side=side: side(), fresh=False) for side in (on_true, on_false)]
            modules, operands = self._attach(parts, ("true", "false"), (False, False))
            made = self.scope.apply(_HIGHER.cond, self.scope.use(condition), *modules, tuple(operands))
            refs = self.scope.items(made, len(node.outputs))
            return [Array(v.shape, v.dtype, ref) for v, ref in zip(node.outputs, refs, strict=True)]

        if index.truth is not None and len(emit_branches) == 2:
            return two_way(self.full(index.truth), lambda: choose(1, 2), lambda: choose(0, 1))
        return choose(0, len(emit_branches))

    def loop(
        self,
        node: Loop,
        inputs: Sequence[Array],
        trip: Array | None,
        emit_body: Callable[[Sequence[Array]], list[Array]],
        emit_cond: Callable[[Sequence[Array]], Array] | None,
    ) -> Sequence[Array]:
        consts = list(inputs[: node.n_consts])
        init = list(inputs[node.n_consts : node.n_consts + node.n_carry])
        xs = list(inputs[node.n_consts + node.n_carry :])
        stacked = node.outputs[node.n_carry :]
        if emit_cond is not None:
            return self._while(init, lambda s: emit_cond([*consts, *s]), lambda s: emit_body([*consts, *s]))
        if node.length == 0:
            return init + [Array(v.shape, v.dtype, scalar=zero_of(v.dtype)) for v in stacked]
        if not xs and not stacked:
            return self._counted(node, init, trip, lambda s: emit_body([*consts, *s]))
        return self._scan(node, consts, init, xs, emit_body)

    def _counted(self, node: Loop, init: list[Array], trip: Array | None, body: Callable) -> list[Array]:
        long = np.dtype(np.int64)
        count = Array((), long, self.call("aten::scalar_tensor", 0, torch.int64, None, None, None))
        limit = Array((), long, scalar=node.length) if trip is None else self.to(trip, long)

        def more(state: Sequence[Array]) -> Array:
            return self.pointwise("aten::lt", state[0], limit, dtype=bool, numbers=1)

        def step(state: Sequence[Array]) -> list[Array]:
            following = self.pointwise("aten::add", state[0], self.number(state[0], 1), numbers=1)
            return [following, *body(state[1:])]

        return self._while([count, *init], more, step)[1:]

    def _while(self, init: list[Array], more: Callable, step: Callable) -> list[Array]:
        cond = self._region(init, lambda state: [more(state)], fresh=True)
        body = self._region(init, step, fresh=True)
        modules, operands = self._attach((cond, body), ("while_cond", "while_body"), (True, False))
        carried = tuple(self.scope.use(self._copy(x)) for x in init)
        made = self.scope.apply(_HIGHER.while_loop, *modules, carried, tuple(operands))
        return [Array(x.shape, x.dtype, r) for x, r in zip(init, self.scope.items(made, len(init)), strict=True)]

    def _owned(self, x: Array) -> Ref:
        """A contiguous tensor: loops want carries of one layout all along, branches want results of one layout."""
        return self._copy(x) if x.ndim else self.full(x)

    def _copy(self, x: Array) -> Ref:
        """A tensor of its own. torch.export tells the operands of an operator apart by identity: a carry that is also
        captured would otherwise be taken for the captured tensor inside the region."""
        return self.call("aten::clone", self.full(x), torch.contiguous_format)

    def _scan(
        self, node: Loop, consts: list[Array], init: list[Array], xs: list[Array], emit_body: Callable
    ) -> list[Array]:
        length = node.length or 0
        stacked = node.outputs[node.n_carry :]
        rows = [self._copy(x) for x in xs]
        if node.reverse:
            rows = [self.call("aten::flip", row, [0]) for row in rows]
        slices = [Array(x.shape[1:], x.dtype) for x in xs]
        if not rows:  # the operator needs something to scan over
            rows = [self.call("aten::arange", length, torch.int64, None, None, None)]
            slices = [Array((), np.dtype(np.int64))]
        n, m = len(init), len(xs)
        body = self._region([*init, *slices], lambda s: emit_body([*consts, *s[: n + m]]), fresh=True)
        modules, operands = self._attach((body,), ("scan_body",), (False,))
        carried = [self.scope.use(self._copy(x)) for x in init]
        made = self.scope.apply(_HIGHER.scan, modules[0], carried, [self.scope.use(r) for r in rows], tuple(operands))
        refs = self.scope.items(made, n + len(stacked))
        out = [Array(x.shape, x.dtype, ref) for x, ref in zip(init, refs)]
        for v, ref in zip(stacked, refs[n:], strict=True):
            out.append(Array(v.shape, v.dtype, self.call("aten::flip", ref, [0]) if node.reverse else ref))
        return out

    def tuple(self, values: Sequence[Array]) -> Any:
        return [self._returned(v) for v in values]

    def _returned(self, x: Array) -> Ref:
        ref = self.full(x)
        if x.dtype.name in CARRIER:
            return self.call("aten::view_copy", ref, getattr(torch, x.dtype.name))
        shared = x.stored != x.shape or _views_more(ref.node)
        return self.call("aten::clone", ref, torch.contiguous_format) if shared else ref


def _views_more(node: torch.fx.Node) -> bool:
    """Whether a node is a view of another: of a buffer that the next call reads, or of an argument."""
    name = getattr(node.target, "__name__", "").partition(".")[0]
    return node.op == "call_function" and name in VIEWS and not _is_item(node)


def _is_item(node: torch.fx.Node) -> bool:
    """One result of an operator that gives several, and of its own: not a row of unbind."""
    return node.target is operator.getitem and getattr(node.args[0].target, "__name__", "") != "unbind.int"  # type: ignore[union-attr]


class _Part:
    """A region that is emitted and waits for its final list of operands."""

    def __init__(self, scope: Scope, outputs: list[Any]):
        self.scope, self.outputs = scope, outputs

    def order(self, shared: Sequence[Ref]) -> None:
        """Make the placeholders of captured tensors stand in the order of `shared`, one for each."""
        scope = self.scope
        own = [
            n for n in scope.graph.nodes if n.op == "placeholder" and n not in {r.node for r in scope.captured.values()}
        ]
        for ref in shared:
            scope.use(ref)
        last = own[-1] if own else None
        for ref in shared:
            node = scope.captured[ref].node
            if last is not None:
                last.append(node)
            elif (first := next(iter(scope.graph.nodes))) is not node:
                first.prepend(node)
            last = node
        scope._last = last


def build(program: Program, names: Sequence[str], tensors: Sequence[torch.Tensor]) -> torch.fx.GraphModule:
    """The program as a GraphModule: parameters by path, one input for every other array, one tensor or a flat tuple out."""
    target = FxTarget()
    top = target.top
    inputs = [top.placeholder(f"x{k}") for k in range(len(program.inputs) - len(names))]

    def attribute(path: str, tensor: torch.Tensor) -> Ref:
        if tensor.numel() == 0:  # torch.export.save fails on it
            return target.call("aten::zeros", list(tensor.shape), tensor.dtype, None, None, None)
        trains = tensor.is_floating_point() or tensor.is_complex()
        return top.attribute(path, torch.nn.Parameter(tensor) if trains else tensor)

    given = [attribute(path, t) for path, t in zip(names, tensors, strict=True)]
    arrays = [target.received(ref, v) for ref, v in zip([*given, *inputs], program.inputs, strict=True)]
    results = target.tuple(emit(program, target, arrays))
    return top.finish([top.use(ref) for ref in results], single=True)


@refusing_cycles
def to_exported_program(
    fun: Callable[..., Any], *args: Any, params: Any = None, dynamic_shapes: Any = None
) -> torch.export.ExportedProgram:
    """Translate a JAX function into an ExportedProgram whose loops and branches are higher-order operators.

    Args:
        fun: any function that JAX can trace, called as fun(*args), or fun(params, *args) where params are given.
        args: example arguments: pytrees of arrays (or jax.ShapeDtypeStruct).
        params: a pytree of arrays; its leaves become parameters of the program, named by their path ("layers.0.w").
        dynamic_shapes: as torch.export takes it for a tuple of arguments: for every argument None, or {axis: Dim}, or a
            pytree of these. Sizes may enter shapes as whole multiples and offsets (n, 2 * n, n - 1).

    Returns: the program: one tensor in for every array leaf of args in tree order; a tensor or a flat tuple out.

    Raises:
        UnsupportedOperationError: torch lacks an operation; names it and the user's line.
        ValueError: the program is not the same for every size of a dynamic axis.

    Differentiation: by JAX before translation; torch's operators have no double backward.
    Cost: linear in the number of equations; with dynamic shapes the function is traced three times for every dimension.
    """
    from .modules import parameter_paths

    called = args if params is None else (params, *args)
    names = [] if params is None else parameter_paths(params)
    tensors = [leaf_tensor(leaf) for leaf in jax.tree.leaves(params)]
    leaves = jax.tree.leaves(args)

    def made(arguments: Sequence[Any]) -> torch.fx.GraphModule:
        return build(lower(fun, *arguments, builder=FxTarget()), names, tensors)

    if dynamic_shapes is None:
        module, spec = made(called), None
    else:
        from .dynamic import unified

        module, spec = unified(made, called, args, dynamic_shapes)
    examples = tuple(leaf_tensor(leaf) for leaf in leaves)
    with torch.no_grad():
        return torch.export.export(module, examples, dynamic_shapes=spec, strict=False)
