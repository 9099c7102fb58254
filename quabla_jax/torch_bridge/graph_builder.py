"""A typed builder for TorchScript graphs that makes the layout rules of prim::If and prim::Loop hard to break.

    %y_1, ..., %y_r = prim::Loop(%max_trip_count, %initial_condition, %x_1, ..., %x_r)
      block0(%i, %a_1, ..., %a_r): ... -> (%condition, %b_1, ..., %b_r)
    %y_1, ..., %y_r = prim::If(%condition)
      block0(): ... -> (%t_1, ..., %t_r)
      block1(): ... -> (%f_1, ..., %f_r)

Every rule is checked where the node is built: number and types of carried values at all four places, the index first
among a loop block's inputs, the condition first among its outputs, both branches alike, every operator's schema, and
that a value is visible where it is used. to_torchscript builds through this class alone.
"""

from __future__ import annotations

import keyword
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch

from ._torch_api import create_function
from .constants import ConstantPool
from .graph_check import check_graph
from .jit_types import BOOL, INT, TENSOR, as_type, match, text
from .overloads import GraphError, Plan, describe, resolve
from .regions import If, Loop, Region, Value

__all__ = ["GraphBuilder", "GraphError", "If", "Loop", "Value"]

_C = torch._C


class GraphBuilder:
    """Builds one TorchScript function or module method, node by node.

        gb = GraphBuilder("Scale")
        x = gb.input("x")
        with gb.loop(20, True, x) as loop:
            loop.end(True, gb.call("aten::mul", loop.carried[0], 0.5))
        gb.output(loop.outputs[0])
        module = gb.module()

    Constants may be given as Python values wherever a value is expected; TorchScript's types are told apart strictly
    (1 is an int, 1.0 a float, True a bool; a tensor is none of them). Raises GraphError at the offending call.
    """

    def __init__(self, name: str = "Module"):
        if not _is_name(name):
            raise GraphError(f"graph name {name!r}: expected a Python identifier")
        self.name = name
        self.graph = _C.Graph()
        self.inputs: list[Value] = []
        self.signature: list[tuple[str, bool]] = []  # the graph's inputs in order: name or path, is an attribute
        self.attributes: dict[str, tuple[Value, torch.Tensor, bool]] = {}  # path -> (value, tensor, is a parameter)
        self._output: Value | None = None
        self._region = self._top = Region(self.graph.block(), None, "the graph", self.graph)
        self._constants = ConstantPool(self.graph, self._top)

    # inputs, attributes, constants

    def input(self, name: str, type: Any = torch.Tensor) -> Value:
        """Declare the next argument of the function."""
        if not _is_name(name) or name == "self":
            raise GraphError(f"input name {name!r}: expected a Python identifier other than self")
        if (name, False) in self.signature:
            raise GraphError(f"input name {name!r}: there is an input of this name already")
        jit_type = _type(type, f"input {name!r}")
        value = Value(self.graph.addInput(name), jit_type, self._top)
        self.inputs.append(value)
        self.signature.append((name, False))
        return value

    def parameter(self, path: str, tensor: torch.Tensor) -> Value:
        """A trainable parameter of the module, at a dotted path such as "layers.0.w"."""
        return self._attribute(path, tensor, True)

    def buffer(self, path: str, tensor: torch.Tensor) -> Value:
        """A tensor saved with the module and not trained."""
        return self._attribute(path, tensor, False)

    def _attribute(self, path: str, tensor: torch.Tensor, trainable: bool) -> Value:
        found = self.attributes.get(path)
        if found is not None and (found[1] is not tensor or found[2] != trainable):
            raise GraphError(
                f"attribute {path!r}: there is another {'parameter' if found[2] else 'buffer'} at this path"
            )
        if found is None:
            self._check_path(path)
            if not isinstance(tensor, torch.Tensor):
                raise GraphError(f"attribute {path!r}: expected a torch.Tensor, got {type(tensor).__name__}")
            raw = self.graph.addInput("self_" + "".join(c if c.isalnum() else "_" for c in path))
            self.attributes[path] = (Value(raw, TENSOR, self._top), tensor, trainable)
            self.signature.append((path, True))
        return self.attributes[path][0]

    def _check_path(self, path: Any) -> None:
        if not isinstance(path, str) or not path or not all(path.split(".")):
            raise GraphError(f"attribute path {path!r}: expected names joined by dots")
        for name in path.split("."):
            if hasattr(_PLAIN_MODULE, name):
                raise GraphError(f"attribute path {path!r}: torch.nn.Module uses the name {name!r} itself")
        for other in self.attributes:
            if path.startswith(other + ".") or other.startswith(path + "."):
                raise GraphError(f"attribute path {path!r}: one of {path!r} and {other!r} would lie inside a tensor")

    def const(self, value: Any) -> Value:
        """A constant: int, float, bool, complex, str, None, list, device, dtype or tensor. Equal constants are one node.

        Constants stand at the start of the graph, so that every block sees them.
        """
        return value if isinstance(value, Value) else self._constants.get(value)

    # straight-line nodes

    def call(self, op: str, *args: Any, **kwargs: Any) -> Any:
        """Insert an operator, its overload chosen by the exact types ("aten::add") or pinned ("aten::add.Tensor").

        Arguments are positional in the order of the node's inputs, keyword-only ones included; missing ones take the
        schema's defaults. Returns one Value, a tuple of them, or None. Raises GraphError where no overload fits.
        """
        if not isinstance(op, str):
            raise GraphError(f"call: expected an operator's name such as 'aten::add', got {op!r}")
        args = tuple([_plain(a) for a in args])
        plan = resolve(op, args, kwargs)
        inputs: list[Value] = []
        for source, formal, argument in zip(plan.sources, plan.formals, plan.schema.arguments):
            if source is None:
                given = argument.default_value
            else:
                given = args[source] if isinstance(source, int) else kwargs[source]
            inputs.append(self._argument(given, formal, op))
        kind = op.partition(".")[0]
        values = self._insert(kind, inputs, plan.returns, plan)
        return values[0] if len(values) == 1 else (values or None)

    def _argument(self, given: Any, formal, op: str) -> Value:
        if isinstance(given, Value):
            return self._visible(given, op)
        while formal.kind() == "OptionalType" and given is not None:
            formal = formal.getElementType()
        if formal.kind() == "ListType" and isinstance(given, (list, tuple)):
            element = formal.getElementType()
            if not given or any(isinstance(g, Value) for g in given):
                elements = [self._argument(g, element, op) for g in given]
                if element.kind() == "VarType":
                    element = elements[0].type
                return self._insert("prim::ListConstruct", elements, (_C.ListType(element),))[0]
            given = [float(g) if element.kind() == "FloatType" and type(g) is int else g for g in given]
        if formal.kind() == "FloatType" and type(given) is int:
            given = float(given)
        return self.const(given)

    def _insert(self, kind: str, inputs: Sequence[Value], returns: Sequence[Any], plan: Plan | None = None):
        if self._output is not None:
            raise GraphError(f"{kind}: the graph has its output already")
        node = self.graph.create(kind, [v.raw for v in inputs], len(returns))
        self.graph.insertNode(node)
        if plan is not None and plan not in _CONFIRMED:
            found = node.schema()
            if found != plan.schema_text:
                node.destroy()
                raise GraphError(f"{kind}: PyTorch resolves the node to {found}, expected {plan.schema_text}")
            _CONFIRMED.add(plan)
        if len(returns) == 1:
            return (Value(node.output(), returns[0], self._region, fresh=True),)
        return tuple([Value(raw, t, self._region, fresh=True) for raw, t in zip(node.outputs(), returns)])

    def tuple_(self, *values: Any, type: Any = None) -> Value:
        """A tuple of values; `type` may name a registered NamedTuple class."""
        elements = self._as_values(values)
        jit_type = _C.TupleType([v.type for v in elements]) if type is None else as_type(type)
        if jit_type.kind() != "TupleType":
            raise GraphError(f"prim::TupleConstruct: expected a tuple type, got {text(jit_type)}")
        wanted: Sequence[Any] = cast(Any, jit_type).elements()
        if len(wanted) != len(elements):
            raise GraphError(f"prim::TupleConstruct: {text(jit_type)} has {len(wanted)} fields, got {len(elements)}")
        for position, (value, want) in enumerate(zip(elements, wanted)):
            if not match(want, value.type, {}):
                raise GraphError(
                    f"prim::TupleConstruct, field {position}: expected {text(want)}, got {describe(value)}"
                )
        return self._insert("prim::TupleConstruct", elements, (jit_type,))[0]

    def unpack(self, value: Value) -> tuple[Value, ...]:
        """The fields of a tuple."""
        value = self._visible(value, "prim::TupleUnpack")
        if value.type.kind() != "TupleType":
            raise GraphError(f"prim::TupleUnpack: expected a tuple, got {describe(value)}")
        return self._insert("prim::TupleUnpack", [value], value.type.elements())

    def list_(self, *values: Any, element: Any = None) -> Value:
        """A new list; `element` gives the type where there are no values."""
        elements = self._as_values(values)
        if element is None and not elements:
            raise GraphError("prim::ListConstruct: an empty list needs element=")
        want = elements[0].type if element is None else as_type(element)
        for position, value in enumerate(elements):
            if not match(want, value.type, {}):
                raise GraphError(
                    f"prim::ListConstruct, element {position}: expected {text(want)}, got {describe(value)}"
                )
        return self._insert("prim::ListConstruct", elements, (_C.ListType(want),))[0]

    def cast(self, value: Any, type: Any) -> Value:
        """Widen a value: T to T | None, where both branches or all places of a loop need one type."""
        (given,) = self._as_values((value,))
        want = as_type(type)
        if not match(want, given.type, {}):
            raise GraphError(f"prim::unchecked_cast: {describe(given)} is no {text(want)}")
        return self._insert("prim::unchecked_cast", [given], (want,))[0]

    # control flow

    def if_(self, condition: Any, *, outputs: Sequence[Any] | None = None) -> If:
        """Start a prim::If on a bool. `outputs` may state the types of its outputs, to be checked."""
        (value,) = self._as_values((condition,))
        if value.type != BOOL:
            cure = "; aten::Bool turns a tensor into a bool" if value.type == TENSOR else ""
            raise GraphError(f"prim::If, input 0 (condition): expected bool, got {describe(value)}{cure}")
        branch = If(self, self._structural("prim::If", (value,)), outputs)
        self._region.pending.append(branch)
        return branch

    def loop(
        self,
        max_trip_count: Any,
        condition: Any,
        *init: Any,
        block_inputs: Sequence[Any] | None = None,
        outputs: Sequence[Any] | None = None,
    ) -> Loop:
        """Start a prim::Loop: at most `max_trip_count` (int) trips, none where `condition` (bool) is false at the start.

        `init` are the carried values. `block_inputs` and `outputs` may state the types at the other places, to be
        checked (the index is the first block input; index and condition are no outputs).
        """
        values = self._as_values((max_trip_count, condition, *init))
        for position, (value, want, role) in enumerate(
            zip(values, (INT, BOOL), ("max trip count", "initial condition"))
        ):
            if value.type != want:
                raise GraphError(
                    f"prim::Loop, input {position} ({role}): expected {text(want)}, got {describe(value)}; the trip count "
                    "and the condition come first, then the carried values"
                )
        return Loop(self, self._structural("prim::Loop", values), values[2:], block_inputs, outputs)

    def _structural(self, kind: str, inputs: Sequence[Value]):
        if self._output is not None:
            raise GraphError(f"{kind}: the graph has its output already")
        node = self.graph.create(kind, [v.raw for v in inputs], 1)
        self.graph.insertNode(node)
        while node.outputsSize():  # create() always adds one output of its own: a ghost variable when printed
            node.eraseOutput(0)
        return node

    # regions

    def _enter(self, block, label: str) -> Region:
        self._region = Region(block, self._region, label, self.graph)
        self.graph.setInsertPoint(block)
        return self._region

    def _leave(self, check: bool) -> None:
        region = self._region
        region.open = False
        assert region.parent is not None
        self._region = region.parent
        self.graph.setInsertPoint(self._region.block)
        if check and region.pending:
            raise GraphError(f"prim::If inside {region.label}: branch never built: {region.pending[0].missing}")

    def _register(self, values: Sequence[Any], before: tuple[Value, ...] | None) -> tuple[Value, ...]:
        if before is not None:
            raise GraphError(f"{self._region.label}: end() was called already")
        outputs = self._as_values(values)
        for value in outputs:
            self._region.block.registerOutput(value.raw)
        return outputs

    def _as_values(self, values: Sequence[Any]) -> tuple[Value, ...]:
        return tuple(self._visible(v, self._region.label) if isinstance(v, Value) else self.const(v) for v in values)

    def _visible(self, value: Value, where: str) -> Value:
        region: Region | None = value.region
        if not region.open:
            raise GraphError(
                f"{where}: %{value.name} was made in {value.region.label}, which is closed; end() hands it out"
            )
        while region.parent is not None:
            region = region.parent
        if region is not self._top:
            raise GraphError(f"{where}: %{value.name} belongs to another graph")
        return value

    # results

    def output(self, value: Any) -> None:
        """State the function's result: one value; several go through tuple_."""
        if self._region is not self._top:
            raise GraphError(f"output: {self._region.label} is still open")
        (out,) = self._as_values((value,))
        if self._top.pending:
            raise GraphError(f"prim::If: branch never built: {self._top.pending[0].missing}")
        if self._output is not None:
            raise GraphError("output: the graph has its output already; several values go through tuple_")
        self.graph.registerOutput(out.raw)
        self._output = out

    def function(self, qualified_name: str | None = None, *, check: bool = True) -> torch.jit.ScriptFunction:
        """The finished function: callable, savable; attributes are arguments of it.

        check: go over the whole graph again, which may have been changed through `graph`.
        """
        if self._output is None:
            raise GraphError("function: the graph has no output")
        if check:
            check_graph(self.graph)
        return create_function(qualified_name or f"__torch__.quabla_jax.{self.name}", self.graph)

    def module(self) -> torch.jit.ScriptModule:
        """A ScriptModule of class `name` whose forward is the graph, with the parameters and buffers declared."""
        from .modules import assemble

        return assemble(self.name, {"forward": self}, check=True)


_PLAIN_MODULE = torch.nn.Module()


def _is_name(name: Any) -> bool:
    return isinstance(name, str) and name.isidentifier() and not keyword.iskeyword(name)


def _type(spec: Any, where: str) -> Any:
    try:
        return as_type(spec)
    except TypeError as error:
        raise GraphError(f"{where}: {error}") from None


_CONFIRMED: set[Plan] = set()  # plans that PyTorch resolves alike: it looks at types alone, and they are the plan's


def _plain(given: Any) -> Any:
    """NumPy's numbers as Python's, inside lists too."""
    if isinstance(given, Value):
        return given
    if isinstance(given, np.generic):
        return given.item()
    if isinstance(given, (list, tuple)):
        return type(given)([_plain(g) for g in given])
    return given
