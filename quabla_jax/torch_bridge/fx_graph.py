"""Nested fx graphs for torch.export: scopes that lift what they capture into operands of their higher-order operator."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.fx

from .jit_types import TENSOR, text
from .overloads import GraphError, resolve

__all__ = ["Ref", "Scope"]


class Ref:
    """A tensor of one scope's graph. It stands where an overload is looked up, as GraphBuilder's values do."""

    __slots__ = ("node", "region")
    type = TENSOR
    type_text = text(TENSOR)

    def __init__(self, node: torch.fx.Node, region: Scope):
        self.node, self.region = node, region

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def raw(self) -> Ref:
        return self

    def kind(self) -> str:
        return self.node.op


class Scope:
    """One graph: the program's, or a region's. Regions are closed: a tensor of an outer scope becomes an operand."""

    def __init__(self, parent: Scope | None = None):
        self.parent = parent
        self.graph = torch.fx.Graph()
        self.root = torch.nn.Module()
        self.captured: dict[Ref, Ref] = {}
        self.open = True
        self._placeholders = 0
        self._last: torch.fx.Node | None = None

    def encloses(self, other: Scope) -> bool:
        """Whether this scope is `other` or one around it."""
        scope: Scope | None = other
        while scope is not None:
            if scope is self:
                return True
            scope = scope.parent
        return False

    def placeholder(self, name: str | None = None) -> Ref:
        """A new input, after those there are."""
        name = name or f"arg{self._placeholders}"
        self._placeholders += 1
        # after None: at the very beginning
        with self.graph.inserting_after(self._last):
            self._last = self.graph.placeholder(name)
        return Ref(self._last, self)

    def use(self, ref: Ref) -> torch.fx.Node:
        """The node that stands for `ref` here."""
        if ref.region is self:
            return ref.node
        assert ref.region.open and ref.region.encloses(self), "a tensor of a finished region is used outside it"
        if ref not in self.captured:
            self.captured[ref] = self.placeholder()
        return self.captured[ref].node

    def call(self, op: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Insert an ATen operator by its TorchScript name; one Ref, or a tuple of them."""
        args, kwargs = [_plain(a) for a in args], {k: _plain(v) for k, v in kwargs.items()}
        plan = resolve(op, args, kwargs)
        target = _overload(plan.schema)
        positional: list[Any] = []
        named: dict[str, Any] = {}
        for source, formal in zip(plan.sources, plan.schema.arguments, strict=True):
            if source is None:
                continue
            given = args[source] if isinstance(source, int) else kwargs[source]
            value = self._argument(given, formal)
            if formal.kwarg_only or len(positional) < plan.schema.arguments.index(formal) - len(named):
                named[formal.name] = value
            else:
                positional.append(value)
        node = self.graph.call_function(target, tuple(positional), named)
        if len(plan.returns) == 1:
            return Ref(node, self)
        return tuple(Ref(self.graph.call_function(operator.getitem, (node, k)), self) for k in range(len(plan.returns)))

    def _argument(self, given: Any, formal: Any) -> Any:
        if isinstance(given, Ref):
            return self.use(given)
        if isinstance(given, (list, tuple)):
            return [self._argument(g, None) for g in given]
        if formal is not None and formal.name == "dtype" and type(given) is int:
            return _SCALAR_TYPES[given]
        return given

    def apply(self, target: Callable[..., Any], *args: Any) -> torch.fx.Node:
        """Insert a higher-order operator whose arguments are nodes already."""
        return self.graph.call_function(target, args)

    def items(self, node: torch.fx.Node, count: int) -> list[Ref]:
        return [Ref(self.graph.call_function(operator.getitem, (node, k)), self) for k in range(count)]

    def attribute(self, path: str, value: Any) -> Ref:
        """A get_attr node of a parameter, buffer or submodule of the root at a dotted path."""
        owner = self.root
        *parents, name = path.split(".")
        for parent in parents:
            if not hasattr(owner, parent):
                owner.add_module(parent, torch.nn.Module())
            owner = getattr(owner, parent)
        if isinstance(value, torch.nn.Parameter):
            owner.register_parameter(name, value)
        elif isinstance(value, torch.Tensor):
            owner.register_buffer(name, value)
        else:
            owner.add_module(name, value)
        return Ref(self.graph.get_attr(path), self)

    def free_path(self, stem: str, number: int) -> str:
        """A name for an attribute that is none yet; parameters may have any."""
        return next(name for k in itertools.count(number) if not hasattr(self.root, name := f"{stem}_{k}"))

    def finish(self, outputs: Sequence[torch.fx.Node], single: bool = False) -> torch.fx.GraphModule:
        """Close the scope into a module. An output that is an input, or comes twice, is cloned: operators forbid aliases."""
        seen: set[torch.fx.Node] = set()
        results = []
        for node in outputs:
            if node.op in ("placeholder", "get_attr") or node in seen:
                node = self.graph.call_function(torch.ops.aten.clone.default, (node,))
            seen.add(node)
            results.append(node)
        self.graph.output(results[0] if single and len(results) == 1 else tuple(results))
        self.open = False
        return torch.fx.GraphModule(self.root, self.graph)


def _plain(given: Any) -> Any:
    """NumPy's scalars as Python's."""
    if isinstance(given, (list, tuple)):
        return type(given)(map(_plain, given))
    return given.item() if isinstance(given, np.generic) else given


def _overload(schema: Any) -> Any:
    namespace, _, name = schema.name.partition("::")
    packet = getattr(getattr(torch.ops, namespace), name, None)
    overload = getattr(packet, schema.overload_name or "default", None) if packet is not None else None
    if overload is None:
        raise GraphError(f"{schema.name}.{schema.overload_name}: TorchScript's own, torch.export has no such operator")
    return overload


# c10::ScalarType, as TorchScript's int-typed dtypes count
_SCALAR_TYPES = {
    0: torch.uint8, 1: torch.int8, 2: torch.int16, 3: torch.int32, 4: torch.int64, 5: torch.float16, 6: torch.float32,
    7: torch.float64, 9: torch.complex64, 10: torch.complex128, 11: torch.bool, 15: torch.bfloat16,
}  # fmt: skip
