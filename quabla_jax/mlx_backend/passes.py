"""Rewrites of a lowered program before it is cut into kernels: what MLX would otherwise do at every run.

Lowering writes every product as a batched one and every view as a reshape; MLX's compiler keeps both. Here a product of
one batch becomes a product of matrices, and reshapes of reshapes become one or none.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ..lowering.program import Branch, Const, Loop, Node, Op, Region, Value, has_effect

__all__ = ["simplified"]


def simplified(region: Region) -> Region:
    """The same region with fewer nodes; its inputs are the same Values, its outputs may be new ones."""
    return _Pass(region).run()


class _Pass:
    def __init__(self, region: Region):
        self.region = region
        self.renamed: dict[Value, Value] = {}
        self.sources: dict[Value, Value] = {}  # a reshape's result -> what it is a reshape of
        self.nodes: list[Node] = []

    def run(self) -> Region:
        for node in self.region.nodes:
            self.add(node)
        outputs = tuple(self.read(v) for v in self.region.outputs)
        fields = {"nodes": tuple(_used(self.nodes, outputs)), "outputs": outputs}
        return dataclasses.replace(self.region, **fields)

    def read(self, value: Value) -> Value:
        return self.renamed.get(value, value)

    def add(self, node: Node) -> None:
        inputs = tuple(self.read(v) for v in node.inputs)
        if isinstance(node, Op):
            self.add_op(node, inputs)
        elif isinstance(node, Loop):
            trip = None if node.trip is None else self.read(node.trip)
            cond = None if node.cond is None else simplified(node.cond)
            self.nodes.append(
                dataclasses.replace(node, inputs=inputs, trip=trip, cond=cond, body=simplified(node.body))
            )
        else:
            predicate = None if node.predicate is None else self.read(node.predicate)
            branches = tuple(map(simplified, node.branches))
            self.nodes.append(
                dataclasses.replace(
                    node, inputs=inputs, index=self.read(node.index), predicate=predicate, branches=branches
                )
            )

    def add_op(self, node: Op, inputs: tuple[Value, ...]) -> None:
        if node.name == "reshape":
            self.renamed[node.outputs[0]] = self.reshaped(inputs[0], node.outputs[0].shape, node.source)
        elif node.name == "matmul" and inputs[0].shape[0] == 1:
            left, right = (self.reshaped(v, v.shape[1:], node.source) for v in inputs)
            whole = node.outputs[0]
            flat = Value(whole.shape[1:], whole.dtype)
            self.nodes.append(Op("matmul", (left, right), node.params, (flat,), node.source))
            self.renamed[whole] = self.reshaped(flat, whole.shape, node.source)
        else:
            self.nodes.append(node if inputs == node.inputs else dataclasses.replace(node, inputs=inputs))

    def reshaped(self, value: Value, shape: tuple[int, ...], line: str) -> Value:
        source = self.sources.get(value, value)
        if source.shape == shape:
            return source
        out = Value(shape, value.dtype)
        self.sources[out] = source
        self.nodes.append(Op("reshape", (source,), {"shape": shape}, (out,), line))
        return out


def _used(nodes: Sequence[Node], outputs: Sequence[Value]) -> list[Node]:
    """The nodes that the outputs need, in order."""
    needed = {v for v in outputs if not isinstance(v, Const)}
    kept: list[Node] = []
    for node in reversed(nodes):
        if needed.isdisjoint(node.outputs) and not has_effect(node):
            continue
        needed.update(node.inputs)
        if isinstance(node, Loop) and node.trip is not None:
            needed.add(node.trip)
        elif isinstance(node, Branch):
            needed.add(node.index)
            if node.predicate is not None:
                needed.add(node.predicate)
        kept.append(node)
    kept.reverse()
    return kept
