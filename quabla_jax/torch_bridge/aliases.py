"""Which results share memory with something that outlives the call, or with each other.

A caller may write into what a module returns. Were that the module's own constant or parameter, the next call would
compute with what was written; were it an argument or a second result, a JAX function's values would not be its own.
"""

from __future__ import annotations

from typing import Any

__all__ = ["VIEWS", "Inputs", "lasting", "sources"]

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


def lasting(value: Any) -> bool:
    """Whether a value is a constant, an attribute or an argument."""
    kind = value.node().kind()
    return kind == "prim::Constant" or kind == "prim::Param" and value.node().owningBlock().owningNode() is None


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


class Inputs:
    """Tells which values of a graph depend on an argument or attribute. PyTorch folds the others into constants."""

    def __init__(self) -> None:
        self._reach: dict[int, bool] = {}

    def reach(self, value: Any) -> bool:
        """Whether the inputs enter a value. The cost of many questions is that of one pass over the graph."""
        path = [(value, iter(_read(value)))]
        while path:
            value, rest = path[-1]
            known = lasting(value) and value.node().kind() == "prim::Param" or self._reach.get(value.unique())
            if known:
                self._reach.update((v.unique(), True) for v, _ in path)
                return True
            self._reach.setdefault(value.unique(), False)
            following = next((v for v in rest if self._reach.get(v.unique()) is not False), None)
            if following is None:
                path.pop()
            else:
                path.append((following, iter(_read(following))))
        return False


def _read(value: Any) -> list[Any]:
    """The values that a value is computed from: its node's inputs, and what the node's blocks give."""
    node = value.node()
    if node.kind() == "prim::Param":
        owner = node.owningBlock().owningNode()
        return [] if owner is None else list(owner.inputs())
    return [*node.inputs(), *(out for block in node.blocks() for out in block.outputs())]
