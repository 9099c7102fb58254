"""Carries of counted loops that need no carrying: counters (start + step * index) and values that never change.

A loop written with an index has one in its carry, added to on every trip. As a number of the target it costs nothing,
indexes without a tensor, and enters arithmetic through the operators' Scalar overloads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..lowering.program import Branch, Const, Loop, Op, Region, Value
from .aten import Array

__all__ = ["Counter", "Simplified", "simplify", "uses"]


@dataclass(frozen=True)
class Counter:
    """An integer carry that is start + step * index."""

    start: int
    step: int


@dataclass(frozen=True)
class Simplified:
    """A loop's body without the outputs of the carries that are known otherwise."""

    body: Region
    counters: dict[int, Counter]
    constant: frozenset[int]

    def carried(self, n_carry: int) -> list[int]:
        return [k for k in range(n_carry) if k not in self.counters and k not in self.constant]


def _step(out: Value, carry: Value, makers: dict[Value, Op]) -> int | None:
    """The constant that is added to a carry on every trip."""
    op = makers.get(out)
    if op is None or op.name not in ("add", "sub") or carry not in op.inputs:
        return None
    first, second = op.inputs
    other = second if first is carry else first
    if not isinstance(other, Const) or other.ndim or (op.name == "sub" and first is not carry):
        return None
    return int(other.array) if op.name == "add" else -int(other.array)


def _counter(step: int, start: int, node: Loop, dtype: np.dtype) -> Counter | None:
    """The counter, unless it could leave its type's range (where a tensor would wrap)."""
    info = np.iinfo(dtype)
    if node.length is not None:
        last = start + step * node.length
        return Counter(start, step) if info.min <= last <= info.max else None
    within = node.trip is not None and node.trip.dtype.itemsize <= dtype.itemsize and start in (0, -1) and step == 1
    return Counter(start, step) if within else None


def simplify(node: Loop, init: Sequence[Array]) -> Simplified:
    """Find the counters and constants among a counted loop's carries."""
    body, counters, constant = node.body, {}, set()
    makers = {out: op for op in body.nodes if isinstance(op, Op) for out in op.outputs}
    for k, start in enumerate(init):
        carry, out = body.inputs[node.n_consts + k], body.outputs[k]
        if out is carry:
            constant.add(k)
        elif start.ndim == 0 and start.kind == "i" and start.dtype.itemsize >= 4 and start.number is not None:
            step = _step(out, carry, makers)
            counter = None if step is None else _counter(step, int(start.number), node, start.dtype)
            if counter is not None:
                counters[k] = counter
    kept = [out for k, out in enumerate(body.outputs) if k not in counters and k not in constant]
    return Simplified(Region(body.inputs, _needed(body, kept), tuple(kept)), counters, frozenset(constant))


def _needed(body: Region, outputs: Sequence[Value]) -> tuple:
    needed, kept = set(outputs), []
    for node in reversed(body.nodes):
        if any(out in needed for out in node.outputs):
            kept.append(node)
            needed.update(node.inputs)
            if isinstance(node, Loop) and node.trip is not None:
                needed.add(node.trip)
            elif isinstance(node, Branch):
                needed.update((node.index, *([] if node.predicate is None else [node.predicate])))
    return tuple(reversed(kept))


def uses(body: Region, value: Value) -> bool:
    """Whether a region's nodes or outputs read a value."""
    if value in body.outputs:
        return True
    for node in body.nodes:
        extra = node.trip if isinstance(node, Loop) else node.index if isinstance(node, Branch) else None
        if value in node.inputs or value is extra:
            return True
    return False
