"""Which results share memory with something that outlives the call, or with each other.

A caller may write into what a module returns. Were that the module's own constant or parameter, the next call would
compute with what was written; were it an argument or a second result, a JAX function's values would not be its own.
"""

from __future__ import annotations

from typing import Any

from ..lowering.program import Branch, Loop, Region

__all__ = ["VIEWS", "fixed_outputs", "is_constant", "is_input", "sources"]

# Operators whose result may lie in the memory of their first argument, of those that the bridge emits.
VIEWS = frozenset({
    "reshape", "expand", "permute", "transpose", "slice", "narrow", "unfold", "unbind", "real", "imag", "__getitem__",
    "getitem", "unchecked_cast",
})  # fmt: skip


def sources(value: Any) -> dict[int, Any]:
    """All values of a TorchScript graph, by their unique(), whose memory `value` may be; itself included."""
    seen: dict[int, Any] = {}
    stack = [value]
    while stack:
        value = stack.pop()
        if value.unique() not in seen:
            seen[value.unique()] = value
            stack += _kin(value)
    return seen


def is_constant(value: Any) -> bool:
    return value.node().kind() == "prim::Constant"


def is_input(value: Any) -> bool:
    """Whether a value is an argument or an attribute."""
    return value.node().kind() == "prim::Param" and value.node().owningBlock().owningNode() is None


def _kin(value: Any) -> list[Any]:
    """The values whose memory `value` may be, one step back."""
    node = value.node()
    kind = node.kind()
    if kind == "prim::Param":
        owner = node.owningBlock().owningNode()
        return [] if owner is None else _carried(owner, _place(value, node) - 1)
    if kind == "prim::If":
        return [list(block.outputs())[_place(value, node)] for block in node.blocks()]
    if kind == "prim::Loop":
        return _carried(node, _place(value, node))
    return [next(node.inputs())] if kind.partition("::")[2] in VIEWS else []


def _place(value: Any, node: Any) -> int:
    return [v.unique() for v in node.outputs()].index(value.unique())


def _carried(loop: Any, k: int) -> list[Any]:
    """What a loop's carried value k comes from: its initial value and what the body gives. None for the index."""
    if k < 0:
        return []
    (body,) = loop.blocks()
    return [list(loop.inputs())[2 + k], list(body.outputs())[1 + k]]


def fixed_outputs(program: Region) -> list[bool]:
    """Which outputs of a program no input enters."""
    reached = set(program.inputs)
    for node in program.nodes:
        read = list(node.inputs)
        if isinstance(node, Loop) and node.trip is not None:
            read.append(node.trip)
        elif isinstance(node, Branch):
            read.append(node.index)
        if not reached.isdisjoint(read):
            reached.update(node.outputs)
    return [out not in reached for out in program.outputs]
