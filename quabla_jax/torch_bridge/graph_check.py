"""The layout rules, checked on any torch._C.Graph: one built here, by hand in C++, or read from a file."""

from __future__ import annotations

from collections.abc import Iterable

from .jit_types import BOOL, INT, text
from .overloads import GraphError

__all__ = ["check_graph"]

# Nodes that the IR gives a meaning without a registered schema.
STRUCTURAL = {
    "prim::Constant", "prim::TupleConstruct", "prim::TupleUnpack", "prim::TupleIndex", "prim::ListConstruct",
    "prim::ListUnpack", "prim::DictConstruct", "prim::GetAttr", "prim::SetAttr", "prim::CallFunction",
    "prim::CallMethod", "prim::CreateObject", "prim::unchecked_cast", "prim::Uninitialized", "prim::isinstance",
}  # fmt: skip


def check_graph(graph) -> None:
    """Raise GraphError at the first node that breaks a layout rule: schemas, types, counts, visibility."""
    _check_block(graph, frozenset(), "the graph")


def _check_block(block, visible: frozenset[int], where: str) -> None:
    own = {value.unique() for value in block.inputs()}
    for node in block.nodes():
        kind = node.kind()
        for position, value in enumerate(node.inputs()):
            if value.unique() not in own and value.unique() not in visible:
                raise GraphError(f"{kind} in {where}, input {position}: %{value.debugName()} is not visible here")
        if kind == "prim::If":
            _check_if(node, visible | own)
        elif kind == "prim::Loop":
            _check_loop(node, visible | own)
        elif kind not in STRUCTURAL:
            _check_schema(node, where)
        own.update(value.unique() for value in node.outputs())
    for position, value in enumerate(block.outputs()):
        if value.unique() not in own and value.unique() not in visible:
            raise GraphError(f"{where}, output {position}: %{value.debugName()} is not visible here")


def _check_schema(node, where: str) -> None:
    try:
        schema = node.schema()
    except RuntimeError as error:
        raise GraphError(f"{node.kind()} in {where}: {str(error).strip()}") from None
    if schema == "(no schema)":
        given = ", ".join(text(v.type()) for v in node.inputs())
        raise GraphError(f"{node.kind()} in {where}: no overload takes ({given})")


def _types(values: Iterable) -> list:
    return [value.type() for value in values]


def _same(where: str, expected: list, given: list, what: str, rule: str) -> None:
    if len(expected) != len(given):
        raise GraphError(f"{where}: expected {len(expected)} {what} ({rule}), got {len(given)}")
    for position, (want, got) in enumerate(zip(expected, given)):
        if not got.isSubtypeOf(want):
            raise GraphError(f"{where}, {what} {position}: expected {text(want)} ({rule}), got {text(got)}")


def _check_if(node, visible: frozenset[int]) -> None:
    _same("prim::If", [BOOL], _types(node.inputs()), "input", "the condition")
    blocks = list(node.blocks())
    if len(blocks) != 2:
        raise GraphError(f"prim::If: expected 2 blocks, got {len(blocks)}")
    outputs = _types(node.outputs())
    for label, block in zip(("true", "false"), blocks):
        _check_block(block, visible, f"the {label} branch of prim::If")
        _same(f"prim::If, {label} branch", [], _types(block.inputs()), "input", "a branch takes none")
        _same(f"prim::If, {label} branch", outputs, _types(block.outputs()), "output", "as the node's outputs")


def _check_loop(node, visible: frozenset[int]) -> None:
    inputs = _types(node.inputs())
    _same("prim::Loop", [INT, BOOL], inputs[:2], "input", "trip count, then condition")
    blocks = list(node.blocks())
    if len(blocks) != 1:
        raise GraphError(f"prim::Loop: expected 1 block, got {len(blocks)}")
    (block,) = blocks
    carried = _types(node.outputs())
    _same("prim::Loop", carried, inputs[2:], "carried input", "as the node's outputs")
    _same(
        "prim::Loop",
        [INT, *carried],
        _types(block.inputs()),
        "block input",
        "the index, then the carried values",
    )
    _same(
        "prim::Loop",
        [BOOL, *carried],
        _types(block.outputs()),
        "block output",
        "the condition, then the carried values",
    )
    _check_block(block, visible, "the body of prim::Loop")
