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

from ..lowering.program import Branch, Loop, Node, Op, Region, Value
from ..loops.progress import Meter

__all__ = ["Watch", "watched"]


@dataclasses.dataclass(frozen=True)
class Report:
    """Who is told how far a loop is. `run`: the position among its constants of the number of the run; `count`: that
    of the counter among its carries; `outer`: no loop around it reports the same."""

    meter: Meter
    run: int
    count: int
    outer: bool = True


class Watch:
    """Follows one run of a loop."""

    def __init__(self, report: Report, consts: Sequence[mx.array]):
        self._report = report
        self._run = consts[report.run].item()

    def chunk(self, carry: Sequence[mx.array]) -> None:
        """A chunk is over."""
        if self._report.meter.due():
            self._tick(carry)

    def end(self, carry: Sequence[mx.array]) -> None:
        """The loop is over."""
        if self._report.outer:
            self._tick(carry)

    def _tick(self, carry: Sequence[mx.array]) -> None:
        self._report.meter.tick(self._run, carry[self._report.count].item())


def watched(region: Region) -> Region:
    """The same region with the host calls of its loops' counters taken out, where the loop can be followed instead."""
    return dataclasses.replace(region, nodes=tuple(map(_inside, region.nodes)))


def _inside(node: Node) -> Node:
    if isinstance(node, Branch):
        return dataclasses.replace(node, branches=tuple(map(watched, node.branches)))
    if not isinstance(node, Loop):
        return node
    body = watched(node.body)
    for k, inner in enumerate(body.nodes):
        report = _of_branch(node, body, inner) if isinstance(inner, Branch) else _of_loop(node, body, inner)
        if report is None:
            continue
        if isinstance(inner, Branch):
            body = _without(body, k, _meter_and_places(inner))
        else:
            silent = dataclasses.replace(inner, report=dataclasses.replace(inner.report, outer=False))
            body = dataclasses.replace(body, nodes=(*body.nodes[:k], silent, *body.nodes[k + 1 :]))
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


def _report(loop: Loop, body: Region, meter: Meter, run: Value, count: Value, outer: bool = True) -> Report | None:
    """The report of a loop whose body names the run number `run` and ends with the counter `count`, if it does."""
    consts, carried = body.inputs[: loop.n_consts], body.outputs[: loop.n_carry]
    if run not in consts or count not in carried:
        return None
    return Report(meter, consts.index(run), carried.index(count), outer)


def _of_branch(loop: Loop, body: Region, branch: Branch) -> Report | None:
    found = _meter_and_places(branch)
    return found and _report(loop, body, found[0], found[1], branch.outputs[0])


def _of_loop(loop: Loop, body: Region, inner: Any) -> Report | None:
    report = getattr(inner, "report", None)
    if report is None:
        return None
    return _report(loop, body, report.meter, inner.inputs[report.run], inner.outputs[report.count])


def _without(body: Region, position: int, found: Any) -> Region:
    """`body` without a branch, whose result is the counter that went in."""
    gone, done = body.nodes[position], found[2]
    swap = lambda values: tuple(done if v is gone.outputs[0] else v for v in values)

    def renamed(node: Node) -> Node:
        fields: dict[str, Any] = {"inputs": swap(node.inputs)}
        for name in ("trip", "index", "predicate"):
            if getattr(node, name, None) is gone.outputs[0]:
                fields[name] = done
        return dataclasses.replace(node, **fields)

    after = tuple(map(renamed, body.nodes[position + 1 :]))
    return dataclasses.replace(body, nodes=(*body.nodes[:position], *after), outputs=swap(body.outputs))
