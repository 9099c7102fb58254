"""The lowered program: what every target reads.

A Program is a Region: inputs, nodes in order, outputs. A node is an Op (one core op), a Loop or a Branch. Values are
single-assignment; a region sees only its own inputs and what its own nodes define (regions are closed: everything
captured is an explicit input), so a target may compile a region on its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

__all__ = ["Branch", "Const", "Loop", "Node", "Op", "Operand", "Program", "Region", "Value", "walk"]


@dataclass(frozen=True, eq=False)
class Value:
    """A single-assignment value: shape and NumPy dtype (ml_dtypes.bfloat16 for bfloat16). Compared by identity."""

    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True, eq=False)
class Const(Value):
    """A constant; `array` is never written to. Identity is shared: one array is one Const in a Program."""

    array: np.ndarray = field(repr=False)


Operand = Value


@dataclass(frozen=True, eq=False)
class Op:
    """One core op (a row of core_ops.CORE_OPS): `inputs` by position, static `params` by name."""

    name: str
    inputs: tuple[Value, ...]
    params: Mapping[str, Any]
    outputs: tuple[Value, ...]
    source: str = ""  # the user's file:line, for errors and for as_text()


@dataclass(frozen=True, eq=False)
class Loop:
    """A loop. `inputs` = consts, then initial carries, then xs (leading axis = length).

    kind "counted": runs `length` times (static int), or `trip` times (a 0-d int64 or int32 Value, already >= 0) where
        the count is known only when the loop starts; then there are no xs and no ys.
        body: (consts, carries, one slice of each xs) -> (carries, one slice of each ys)
    kind "while": body: (consts, carries) -> carries; cond: (consts, carries) -> a 0-d bool, evaluated before every trip.
        No xs, no ys. `bound` is a trip count that is never exceeded, where one is known.

    `reverse`: the slices are taken and the ys stored from the end; the carry still goes from first executed to last.
    `total`: the body cannot fault and has no effect, so it may be run past the end and its result dropped.
    outputs = final carries, then stacked ys.
    """

    kind: str
    inputs: tuple[Value, ...]
    n_consts: int
    n_carry: int
    body: Region
    outputs: tuple[Value, ...]
    length: int | None = None
    trip: Value | None = None
    cond: Region | None = None
    bound: int | None = None
    reverse: bool = False
    total: bool = True
    source: str = ""
    report: Any = None  # set by a target that follows its loops

    @property
    def consts(self) -> tuple[Value, ...]:
        return self.inputs[: self.n_consts]

    @property
    def init(self) -> tuple[Value, ...]:
        return self.inputs[self.n_consts : self.n_consts + self.n_carry]

    @property
    def xs(self) -> tuple[Value, ...]:
        return self.inputs[self.n_consts + self.n_carry :]


@dataclass(frozen=True, eq=False)
class Branch:
    """Runs branches[index] on `inputs`; index is a 0-d int32 Value, already clamped to [0, len(branches) - 1].

    A two-way cond has branches (false, true) and its index came from a bool: `predicate` is that 0-d bool Value.
    """

    index: Value
    inputs: tuple[Value, ...]
    branches: tuple[Region, ...]
    outputs: tuple[Value, ...]
    predicate: Value | None = None
    source: str = ""


Node = Op | Loop | Branch


def has_effect(node: Node) -> bool:
    """Whether a node calls the host for what the call does, so that it stays although nothing reads its results."""
    if isinstance(node, Op):
        return node.name == "host_call" and node.params["effect"]
    if isinstance(node, Branch):
        return any(has_effect(n) for branch in node.branches for n in branch.nodes)
    return any(has_effect(n) for region in (node.body, node.cond) if region is not None for n in region.nodes)


@dataclass(frozen=True, eq=False)
class Region:
    """A closed straight list of nodes. `outputs` may repeat, may be inputs, and may be Consts."""

    inputs: tuple[Value, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Value, ...]


@dataclass(frozen=True, eq=False)
class Program(Region):
    """A whole lowered function on flat arrays, with the trees of its arguments and result."""

    in_tree: Any = None
    out_tree: Any = None
    name: str = "main"


def walk(region: Region) -> Iterator[Node]:
    """Every node of a region and of the regions inside it, outermost first. Iterative: depth has no limit."""
    stack: list[Region] = [region]
    while stack:
        for node in stack.pop().nodes:
            yield node
            if isinstance(node, Loop):
                stack += [node.body] if node.cond is None else [node.body, node.cond]
            elif isinstance(node, Branch):
                stack += node.branches
