"""Progress of loops on MLX: counted by the host between two chunks, instead of called from inside them.

A loop traced under qb.progress has a counter among its carries, and a branch that calls the host where a call is due. On
MLX that branch would end a chunk at every trip. Here it is taken out, and the loop remembers where its counter and its
run number are; the runtime reads them between chunks, where the host is anyway.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from ..loops.progress import Meter
from ..lowering.program import Branch, Loop, Node, Op, Region, Value

__all__ = ["Watch", "watched"]


@dataclasses.dataclass(frozen=True)
class Report:
    """Who is told how far a loop is. `run`: the position among its constants of the number of the run; `count`: that
    of the counter among its carries; `outer`: it is in no other loop, so that its end is worth a call of its own."""

    meter: Meter
    run: int
    count: int
    outer: bool


class Watch:
    """Follows one run of a loop, where it has a report."""

    def __init__(self, report: Report | None, consts: Sequence[mx.array]):
        self._report = report
        self._run = None if report is None else consts[report.run].item()

    def chunk(self, carry: Sequence[mx.array]) -> None:
        """A chunk is over."""
        if self._report is not None and self._report.meter.due():
            self._report.meter.tick(self._run, carry[self._report.count].item())

    def end(self, carry: Sequence[mx.array]) -> None:
        """The loop is over."""
        if self._report is not None and self._report.outer:
            self._report.meter.tick(self._run, carry[self._report.count].item(), last=True)


def watched(region: Region, inside: bool = False) -> Region:
    """The same region with the host calls of its loops' counters taken out, where the loop can be followed instead.
    `inside`: it is the body of a loop."""
    return dataclasses.replace(region, nodes=tuple(_followed(node, inside) for node in region.nodes))


def _followed(node: Node, inside: bool) -> Node:
    if isinstance(node, Branch):
        return dataclasses.replace(node, branches=tuple(watched(branch, inside) for branch in node.branches))
    if not isinstance(node, Loop):
        return node
    body = watched(node.body, True)
    for k, inner in enumerate(body.nodes):
        if isinstance(inner, Branch) and (found := _meter_and_places(inner)):
            report = _report(node, body, *found[:2], inner.outputs[0], inside)
            if report:
                return dataclasses.replace(node, body=_without(body, k, found[2]), report=report)
        if isinstance(inner, Loop) and (told := inner.report):
            report = _report(node, body, told.meter, inner.inputs[told.run], inner.outputs[told.count], inside)
            if report:
                return dataclasses.replace(node, body=body, report=report)
    return dataclasses.replace(node, body=body)


def _meter_and_places(branch: Branch) -> tuple[Meter, Value, Value] | None:
    """(meter, run number, counter) of a branch that calls a meter or does nothing; else None."""
    if branch.predicate is None or len(branch.outputs) != 1:
        return None
    idle, calling = branch.branches
    calls = [n for n in calling.nodes if isinstance(n, Op) and n.name == "host_call"]
    if len(calls) != 1 or idle.nodes or idle.outputs[0] not in idle.inputs:
        return None
    function = getattr(calls[0].params["callback"], "callback_func", None)
    meter = getattr(function, "__self__", None)
    if not isinstance(meter, Meter) or getattr(function, "__name__", "") != "tick":
        return None
    run, done = (branch.inputs[calling.inputs.index(v)] for v in calls[0].inputs)
    return (meter, run, done) if branch.inputs[idle.inputs.index(idle.outputs[0])] is done else None


def _report(loop: Loop, body: Region, meter: Meter, run: Value, count: Value, inside: bool) -> Report | None:
    """The report of a loop whose body names the run number `run` and ends with the counter `count`, if it does."""
    consts, carried = body.inputs[: loop.n_consts], body.outputs[: loop.n_carry]
    if run not in consts or count not in carried:
        return None
    return Report(meter, consts.index(run), carried.index(count), not inside)


def _without(body: Region, position: int, done: Value) -> Region:
    """`body` without a branch, whose result is the counter `done` that went in."""
    gone = body.nodes[position]
    swap = lambda values: tuple(done if v is gone.outputs[0] else v for v in values)

    def renamed(node: Node) -> Node:
        fields: dict[str, Any] = {"inputs": swap(node.inputs)}
        for name in ("trip", "index", "predicate"):
            if getattr(node, name, None) is gone.outputs[0]:
                fields[name] = done
        return dataclasses.replace(node, **fields)

    after = tuple(map(renamed, body.nodes[position + 1 :]))
    return dataclasses.replace(body, nodes=(*body.nodes[:position], *after), outputs=swap(body.outputs))
