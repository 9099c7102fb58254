"""What a target implements, and the driver that feeds it a lowered program.

A target is one folder with a Builder. The driver `emit` walks a Program and calls the Builder in order; it holds no
knowledge of any target. A target that wants whole regions (to compile a run of ops as one segment) may read the
Program itself instead: both see the same core ops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from .program import Branch, Const, Loop, Op, Region, Value

__all__ = ["Builder", "emit"]

V = TypeVar("V")


class Builder(Protocol[V]):
    """Builds target values of type V. `emit_body(inputs) -> outputs` arguments emit a nested region where they are called."""

    target: str

    def supports(self, node: Op) -> str | None:
        """None, or the reason why this op (with these dtypes and params) cannot run on the target. Asked before emit."""
        ...

    def const(self, value: Const) -> V: ...

    def op(self, node: Op, inputs: Sequence[V]) -> Sequence[V]: ...

    def loop(
        self,
        node: Loop,
        inputs: Sequence[V],
        trip: V | None,
        emit_body: Callable[[Sequence[V]], list[V]],
        emit_cond: Callable[[Sequence[V]], V] | None,
    ) -> Sequence[V]: ...

    def branch(
        self,
        node: Branch,
        index: V,
        inputs: Sequence[V],
        emit_branches: Sequence[Callable[[Sequence[V]], list[V]]],
    ) -> Sequence[V]: ...

    def tuple(self, values: Sequence[V]) -> Any:
        """The program's result from its flat outputs."""
        ...


def emit(region: Region, builder: Builder[V], inputs: Sequence[V]) -> list[V]:
    """Emit a region's nodes through the builder; returns the target values of its outputs."""
    env: dict[Value, V] = dict(zip(region.inputs, inputs, strict=True))

    def read(value: Value) -> V:
        if value not in env:
            assert isinstance(value, Const), "a region reads only its own inputs, its own nodes and constants"
            env[value] = builder.const(value)
        return env[value]

    def nested(inner: Region) -> Callable[[Sequence[V]], list[V]]:
        return lambda args: emit(inner, builder, args)

    for node in region.nodes:
        args = [read(v) for v in node.inputs]
        if isinstance(node, Op):
            out = builder.op(node, args)
        elif isinstance(node, Loop):
            cond = node.cond
            emit_cond = None if cond is None else (lambda a, cond=cond: emit(cond, builder, a)[0])
            trip = None if node.trip is None else read(node.trip)
            out = builder.loop(node, args, trip, nested(node.body), emit_cond)
        else:
            out = builder.branch(node, read(node.index), args, [nested(b) for b in node.branches])
        env.update(zip(node.outputs, out, strict=True))
    return [read(v) for v in region.outputs]
