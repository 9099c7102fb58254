"""Values and structured nodes of a graph under construction: prim::If and prim::Loop, and the regions they open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .jit_types import BOOL, INT, TENSOR, as_type, text
from .overloads import GraphError, describe

if TYPE_CHECKING:
    from .graph_builder import GraphBuilder

__all__ = ["Branch", "If", "Loop", "Region", "Value"]


class Region:
    """A block that nodes can be added to: the graph itself, a loop's body or a branch."""

    __slots__ = ("block", "graph", "label", "open", "parent", "pending")

    def __init__(self, block, parent: Region | None, label: str, graph):
        self.block, self.parent, self.label = block, parent, label
        self.graph = graph  # keeps the graph alive as long as any of its values
        self.open = True
        self.pending: list[If] = []  # ifs whose branches are not both built


def compare(where: str, whose: str, expected: Sequence[Any], given: Sequence[Value]) -> None:
    """Raise where the types of given values are not the expected ones, in number or at a position."""
    if len(given) != len(expected):
        raise GraphError(f"{where}: {whose} has {len(expected)} outputs, this has {len(given)}")
    for position, (want, value) in enumerate(zip(expected, given)):
        if want != value.type:
            raise GraphError(
                f"{where}, output {position}: expected {text(want)} as in {whose}, got {describe(value)}; cast(value, "
                "T | None) widens a value to an optional type"
            )


def _at_home(kind: str, home: Region, here: Region) -> None:
    if here is not home:
        raise GraphError(f"{kind}: started in {home.label}, entered in {here.label}; its blocks belong where it starts")


class Value:
    """A typed value of the graph being built. Made by the builder only."""

    __slots__ = ("raw", "region", "type", "type_text")

    def __init__(self, raw, jit_type, region: Region, fresh: bool = False):
        if not fresh or jit_type is not TENSOR:  # a new node's outputs are tensors unless told otherwise
            raw.setType(jit_type)
        self.raw, self.type, self.region, self.type_text = raw, jit_type, region, text(jit_type)

    @property
    def name(self) -> str:
        return self.raw.debugName()

    def named(self, name: str) -> Value:
        """Give the value a readable name in printed code; made unique where it is taken. Returns the value."""
        self.raw.setDebugName(name)
        return self

    def __repr__(self) -> str:
        return f"%{self.name} : {self.type_text}"


class If:
    """A prim::If under construction: build `true()` and `false()`, then read `outputs`."""

    def __init__(self, builder: GraphBuilder, node, outputs: Sequence[Any] | None):
        self._builder, self._node, self._home = builder, node, builder._region
        self._declared = None if outputs is None else tuple(as_type(t) for t in outputs)
        self._branches: dict[str, tuple[Value, ...]] = {}
        self._outputs: tuple[Value, ...] | None = None
        self._blocks = {"true": node.addBlock(), "false": node.addBlock()}

    def true(self) -> Branch:
        """Context manager: nodes built inside go into the branch taken where the condition holds."""
        return Branch(self, "true")

    def false(self) -> Branch:
        """Context manager: nodes built inside go into the other branch."""
        return Branch(self, "false")

    @property
    def outputs(self) -> tuple[Value, ...]:
        """The values after the If, one for every output of the branches."""
        if self._outputs is None:
            raise GraphError(f"prim::If: read outputs after both branches are built; missing: {self.missing}")
        return self._outputs

    def _finish(self, label: str, values: tuple[Value, ...]) -> None:
        if self._declared is not None:
            compare(f"prim::If, {label} branch", "the declared outputs", self._declared, values)
        other = self._branches.get("false" if label == "true" else "true")
        if other is not None:
            compare(f"prim::If, {label} branch", "the other branch", tuple(v.type for v in other), values)
        self._branches[label] = values
        if other is not None:
            region = self._builder._region
            region.pending.remove(self)
            self._outputs = tuple(Value(self._node.addOutput(), v.type, region) for v in values)

    @property
    def missing(self) -> str:
        """The branches not built yet, for messages."""
        return " and ".join(b for b in ("true", "false") if b not in self._branches)


class Branch:
    """One branch of an If: a context in which nodes are built, ended by `end(...)`."""

    def __init__(self, owner: If, label: str):
        self._owner, self._label = owner, label
        self._region: Region | None = None
        self._values: tuple[Value, ...] | None = None

    def __enter__(self) -> Branch:
        if self._label in self._owner._branches:
            raise GraphError(f"prim::If: the {self._label} branch is built already")
        builder = self._owner._builder
        _at_home("prim::If", self._owner._home, builder._region)
        self._region = builder._enter(self._owner._blocks[self._label], f"the {self._label} branch of prim::If")
        return self

    def end(self, *values: Any) -> None:
        """State the branch's outputs. Constants are allowed."""
        if self._region is None or self._region is not self._owner._builder._region:
            raise GraphError(f"prim::If, {self._label} branch: end() is called inside the branch's with block")
        self._values = self._owner._builder._register(values, self._values)

    def __exit__(self, kind, error, trace) -> None:
        builder = self._owner._builder
        builder._leave(kind is None)
        if kind is None:
            if self._values is None:
                raise GraphError(
                    f"prim::If: the {self._label} branch has no end(...); call end() where it gives nothing"
                )
            self._owner._finish(self._label, self._values)


class Loop:
    """A prim::Loop under construction: a context for its body, ended by `end(condition, *carried)`.

    `index` is the trip number (block input 0), `carried` the loop's state at the start of a trip, `outputs` the state
    after the loop, readable once the body is closed.
    """

    def __init__(self, builder: GraphBuilder, node, init: tuple[Value, ...], block_inputs, outputs):
        self._builder, self._node, self._init, self._home = builder, node, init, builder._region
        self._region: Region | None = None
        self._types = tuple(v.type for v in init)
        self._check_declared(
            "block inputs", block_inputs, (INT, *self._types), "the index first, then the carried values"
        )
        self._check_declared("node outputs", outputs, self._types, "the carried values, without index and condition")
        self._values: tuple[Value, ...] | None = None
        self._outputs: tuple[Value, ...] | None = None

    @staticmethod
    def _check_declared(place: str, declared, expected, rule: str) -> None:
        if declared is None:
            return
        given = tuple(as_type(t) for t in declared)
        if len(given) != len(expected):
            raise GraphError(f"prim::Loop, {place}: expected {len(expected)} ({rule}), got {len(given)}")
        for position, (want, got) in enumerate(zip(expected, given)):
            if want != got:
                raise GraphError(
                    f"prim::Loop, {place}, position {position}: expected {text(want)} ({rule}), got {text(got)}"
                )

    def __enter__(self) -> Loop:
        if list(self._node.blocks()):
            raise GraphError("prim::Loop: the body is built already")
        _at_home("prim::Loop", self._home, self._builder._region)
        self._region = region = self._builder._enter(self._node.addBlock(), "the body of prim::Loop")
        self._index = Value(region.block.addInputToBlock(), INT, region)
        self._carried = tuple(Value(region.block.addInputToBlock(), t, region) for t in self._types)
        return self

    def end(self, condition: Any, *carried: Any) -> None:
        """State the block's outputs: whether to go on (a bool, first), then the next carried values."""
        if self._region is None or self._region is not self._builder._region:
            raise GraphError("prim::Loop: end() is called inside the loop's with block")
        values = self._builder._as_values((condition, *carried))
        if values[0].type != BOOL:
            raise GraphError(f"prim::Loop, block output 0 (condition): expected bool, got {describe(values[0])}")
        if len(carried) != len(self._types):
            raise GraphError(
                f"prim::Loop, block outputs: expected the condition and {len(self._types)} carried values, got the "
                f"condition and {len(carried)}"
            )
        for position, (value, want) in enumerate(zip(values[1:], self._types), start=1):
            if value.type != want:
                raise GraphError(
                    f"prim::Loop, block output {position} (carried value {position - 1}): expected {text(want)}, the type "
                    f"of its initial value, got {describe(value)}"
                )
        self._values = self._builder._register(values, self._values)

    def __exit__(self, kind, error, trace) -> None:
        self._builder._leave(kind is None)
        if kind is None:
            if self._values is None:
                raise GraphError("prim::Loop: the body has no end(condition, *carried)")
            region = self._builder._region
            self._outputs = tuple(Value(self._node.addOutput(), t, region) for t in self._types)

    @property
    def index(self) -> Value:
        """The trip number, an int, inside the body."""
        self._check_entered("index")
        return self._index

    @property
    def carried(self) -> tuple[Value, ...]:
        """The carried values at the start of a trip, inside the body."""
        self._check_entered("carried")
        return self._carried

    def _check_entered(self, name: str) -> None:
        if self._region is None:
            raise GraphError(f"prim::Loop: read {name} inside the loop's with block")

    @property
    def outputs(self) -> tuple[Value, ...]:
        """The carried values after the loop."""
        if self._outputs is None:
            raise GraphError("prim::Loop: read outputs after the body is closed")
        return self._outputs
