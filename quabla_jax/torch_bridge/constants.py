"""The constants of one graph: one node each, at the graph's start, exact to the sign of zero.

TorchScript pools constants that compare equal, so 0.0 and -0.0 of one type (floats, lists, tensors alike) become one:
whichever comes first. It does so after constant folding, too. A negative zero is therefore computed when the graph
runs, from a sum over no random numbers, which nothing can fold.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from .jit_types import FLOAT, INT, TENSOR, literal_type
from .overloads import GraphError
from .regions import Region, Value

__all__ = ["ConstantPool"]

_C = torch._C

# Enumerations that the Python binding of constants does not know by name.
ENUM = {
    torch.contiguous_format: 0, torch.preserve_format: 1, torch.channels_last: 2, torch.channels_last_3d: 3, torch.strided: 0,
}  # fmt: skip


def _is_negative_zero(value: Any) -> bool:
    return isinstance(value, float) and value == 0.0 and math.copysign(1.0, value) < 0


class ConstantPool:
    """Makes each constant once and keeps all of them before the graph's first other node."""

    def __init__(self, graph, region: Region):
        self._graph, self._region = graph, region
        self._made: dict[Any, Value] = {}
        self._keep: list[torch.Tensor] = []  # tensors whose id() is a key
        self._last: Any = None  # of what is made from other constants; before it, from the front, those without inputs

    def get(self, value: Any) -> Value:
        if isinstance(value, torch.Tensor):
            key: Any = (torch.Tensor, id(value))
        else:
            key = (type(value), value if isinstance(value, (int, bool, str)) else repr(value))
        found = self._made.get(key)
        if found is None:
            if isinstance(value, torch.Tensor):
                self._keep.append(value)
            found = self._made[key] = self._make(value)
        return found

    def _make(self, value: Any) -> Value:
        try:
            jit_type = literal_type(value)
        except (TypeError, OverflowError) as error:
            raise GraphError(f"prim::Constant: {error}") from None
        if jit_type is None:
            raise GraphError("prim::Constant: the element type of an empty list is unknown: use list_(element=)")
        if isinstance(value, complex):  # printed complex constants lose the sign of a zero part; two floats keep it
            return self._node("aten::Complex", (self.get(value.real), self.get(value.imag)), jit_type)
        if isinstance(value, tuple):
            return self._node("prim::TupleConstruct", [self.get(v) for v in value], jit_type)
        if isinstance(value, list) and any(_is_negative_zero(v) or isinstance(v, complex) for v in value):
            return self._node("prim::ListConstruct", [self.get(v) for v in value], jit_type)
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if _is_negative_zero(value):
            return self._negative_zero()
        return self._leaf(value, jit_type)

    def _leaf(self, value: Any, jit_type) -> Value:
        if isinstance(value, (torch.memory_format, torch.layout)):
            value = ENUM[value]
        raw = self._graph.insertConstant(value)
        node = raw.node()
        node.moveAfter(self._graph.param_node())  # to the front: anywhere else PyTorch renumbers nodes again and again
        if self._last is None:
            self._last = node
        return Value(raw, jit_type, self._region)

    def _node(self, kind: str, inputs: Sequence[Value], jit_type) -> Value:
        node = self._graph.create(kind, [v.raw for v in inputs], 1)
        node.insertAfter(self._last)
        self._last = node
        return Value(node.output(), jit_type, self._region)

    def _negative_zero(self) -> Value:
        sizes = self._node("prim::ListConstruct", [self.get(0)], _C.ListType(INT))
        none = self.get(None)
        nothing = self._node("aten::rand", [sizes, none, none, none, none], TENSOR)
        total = self._node("aten::sum", [nothing, none], TENSOR)
        return self._node("aten::neg", [self._node("aten::Float", [total], FLOAT)], FLOAT)

    def _tensor(self, value: torch.Tensor) -> Value:
        if value.is_complex():
            parts = [part.resolve_conj().clone() for part in (value.real, value.imag)]
            if any(_negative_zeros(part).any() for part in parts):
                return self._node("aten::complex", [self.get(part) for part in parts], TENSOR)
        elif value.is_floating_point():
            mask = _negative_zeros(value)
            if mask.any():
                rest = torch.where(mask, torch.zeros((), dtype=value.dtype), value)
                inputs = [self._leaf(mask, TENSOR), self.get(-0.0), self._leaf(rest, TENSOR)]
                return self._node("aten::where", inputs, TENSOR)
        return self._leaf(value, TENSOR)


def _negative_zeros(value: torch.Tensor) -> torch.Tensor:
    return (value == 0) & torch.signbit(value)
