"""Compiled pieces: a run of ops as one function of mx arrays, compiled by mx.compile once it is hot.

On Linux and macOS CPUs mx.compile builds every fused kernel with the system's C++ compiler at its first use, about a
third of a second each. A piece is therefore run op by op (lazily, in one graph) while it is cold, and compiled when it
has been run often enough; both give the same bits on one device, since fused kernels call the same scalar functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import mlx.core as mx
import numpy as np

from ..lowering.program import Branch, Const, Loop, Node, Op, Region, Value
from . import convert
from .ops import run_op
from .target import Context, Target, known_values

__all__ = ["Emitter", "Kernel", "HOT_OPS", "straight_cost", "work"]

HOT_OPS = 16
"""A piece of n ops is compiled after 1 + (n // HOT_OPS)**2 runs: a long piece takes many builds, and gains less by each."""

INLINE_LIMIT = 256
"""Ops to which a loop inside a piece may unroll and still belong to the piece."""

INLINE_BYTES = 1 << 15
"""Bytes of ys above which a loop stays one: unrolled, its ys exist one by one and stacked."""

BRANCH_LIMIT = 96
BRANCH_WORK = 1 << 16
"""Ops, and elements computed, up to which all branches of a cond inside a loop are run and one is selected: less than
the readback of a predicate costs."""


def straight_cost(region: Region, memo: dict[Region, float] | None = None, branches: bool = True) -> float:
    """Ops that a region takes when unrolled into one piece; inf where it holds control flow that has to be run."""
    memo = {} if memo is None else memo
    if region not in memo:
        memo[region] = math.fsum(node_cost(n, memo, branches) for n in region.nodes)
    return memo[region]


def node_cost(node: Node, memo: dict[Region, float], branches: bool = True) -> float:
    """As straight_cost, for one node."""
    if isinstance(node, Op):
        return math.inf if node.name == "host_call" else 1.0
    if isinstance(node, Loop):
        if node.kind != "counted" or node.length is None:
            return math.inf
        if sum(v.size * v.dtype.itemsize for v in node.outputs[node.n_carry :]) > INLINE_BYTES:
            return math.inf
        cost = node.length * (straight_cost(node.body, memo, branches) + len(node.xs))
        return cost if cost <= INLINE_LIMIT else math.inf
    if not branches:
        return math.inf
    cost = math.fsum(straight_cost(b, memo, branches) for b in node.branches) + len(node.outputs)
    small = cost <= BRANCH_LIMIT and sum(work(b) for b in node.branches) <= BRANCH_WORK
    return cost if small else math.inf


def work(region: Region) -> float:
    """Elements that a run of the region computes, products counted by their multiplications; loops by their length."""
    total = 0.0
    for node in region.nodes:
        if isinstance(node, Op):
            total += sum(v.size for v in node.outputs)
            if node.name in ("matmul", "conv"):
                total += node.outputs[0].size * max(1, node.inputs[1].size // max(node.inputs[1].shape[-1], 1))
            elif node.name in _CUBIC:
                total += node.inputs[0].size * node.inputs[0].shape[-1]
        elif isinstance(node, Loop):
            total += work(node.body) * (node.length or node.bound or 16)
        else:
            total += max(work(b) for b in node.branches)
    return total


_CUBIC = ("cholesky", "triangular_solve", "lu", "qr", "eigh", "svd", "eig")


def is_literal(value: Const) -> bool:
    """Whether mx.compile may write a constant into a kernel's source. It prints -0.0 as the integer -0, and complex
    parts with seven digits; larger arrays are inputs, so that no compile cache keeps them alive."""
    if value.size != 1 or value.dtype.kind == "c":
        return False
    number = value.array.reshape(())
    return not (value.dtype.kind not in "biu" and float(number) == 0 and np.signbit(float(number)))


class Emitter:
    """Runs regions op by op on mx arrays, whether these are tracers of mx.compile or not."""

    def __init__(self, target: Target):
        self.target = target
        self.pool: dict[Const, mx.array] = {}
        self._literals: dict[Const, mx.array] = {}
        self._contexts: dict[Region, Context] = {}

    def context(self, region: Region) -> Context:
        if region not in self._contexts:
            self._contexts[region] = Context(self.target, known_values(region))
        return self._contexts[region]

    def constant(self, value: Const) -> mx.array:
        """A constant as an evaluated array to be passed about, made once a program."""
        found = self.pool.get(value)
        if found is None:
            found = self.pool[value] = self._made(value)
        return found

    def _literal(self, value: Const) -> mx.array:
        """A constant to be captured. mx.compile refuses an array that is captured and passed as well: these never are."""
        found = self._literals.get(value)
        if found is None:
            found = self._literals[value] = self._made(value)
        return found

    def _made(self, value: Const) -> mx.array:
        made = convert.to_mx(value.array, value.dtype, self.target.double)
        mx.eval(made)
        return made

    def region(self, region: Region, inputs: Sequence[mx.array], base: dict[Value, mx.array]) -> list[mx.array]:
        """The region's outputs; `base` holds arrays for the constants that are not literals."""
        env = dict(base)
        env.update(zip(region.inputs, inputs))
        self.nodes(region.nodes, env, self.context(region), base)
        return [self._made(v) if isinstance(v, Const) and v not in env else env[v] for v in region.outputs]

    def read(self, value: Value, env: dict[Value, mx.array]) -> mx.array:
        found = env.get(value)
        return self._literal(value) if found is None else found  # type: ignore[arg-type]

    def nodes(
        self, nodes: Iterable[Node], env: dict[Value, mx.array], context: Context, base: dict[Value, mx.array]
    ) -> None:
        for node in nodes:
            inputs = [self.read(v, env) for v in node.inputs]
            if isinstance(node, Op):
                out: Sequence[mx.array] = run_op(context, node, inputs)
            elif isinstance(node, Loop):
                out = self.unrolled(node, inputs, base)
            else:
                out = self.selected(node, env, inputs, base)
            env.update(zip(node.outputs, out))

    def unrolled(self, node: Loop, inputs: list[mx.array], base: dict[Value, mx.array]) -> list[mx.array]:
        """A counted loop of static length, every iteration in line."""
        n = node.n_consts
        consts, carry, xs = inputs[:n], inputs[n : n + node.n_carry], inputs[n + node.n_carry :]
        assert node.length is not None
        carry, ys = self.iterations(node, consts, carry, xs, node.length, base)
        return [*carry, *ys]

    def iterations(
        self,
        node: Loop,
        consts: list[mx.array],
        carry: list[mx.array],
        xs: Sequence[mx.array],
        length: int,
        base: dict[Value, mx.array],
    ) -> tuple[list[mx.array], list[mx.array]]:
        """`length` iterations over xs of that length: (carry, stacked ys)."""
        slices = [_unstacked(x, length) for x in xs]
        ys: list[list[mx.array]] = [[] for _ in node.outputs[node.n_carry :]]
        for k in reversed(range(length)) if node.reverse else range(length):
            out = self.region(node.body, [*consts, *carry, *(s[k] for s in slices)], base)
            carry = out[: node.n_carry]
            for column, y in zip(ys, out[node.n_carry :]):
                column.append(y)
        if node.reverse:
            for column in ys:
                column.reverse()
        return carry, [mx.expand_dims(c[0], 0) if length == 1 else mx.stack(c) for c in ys]

    def selected(
        self, node: Branch, env: dict[Value, mx.array], inputs: list[mx.array], base: dict[Value, mx.array]
    ) -> list[mx.array]:
        """Every branch run, one chosen; only for branches that cost less than asking which."""
        results = [self.region(b, inputs, base) for b in node.branches]
        if node.predicate is not None:
            predicate = self.read(node.predicate, env)
            return [t if t is f else mx.where(predicate, t, f) for f, t in zip(*results)]
        index = self.read(node.index, env)
        chosen = results[0]
        for i, result in enumerate(results[1:], 1):
            hit = index == mx.array(i, dtype=index.dtype)
            chosen = [mx.where(hit, new, old) for new, old in zip(result, chosen)]
        return chosen


def _unstacked(x: mx.array, length: int) -> list[mx.array]:
    if length == 1:
        return [mx.squeeze(x, 0)]
    return [mx.squeeze(part, 0) for part in mx.split(x, length, axis=0)]


def captured(regions: Iterable[Region], nodes: Iterable[Node] = ()) -> list[Const]:
    """The constants that the nodes and regions read and that have to be inputs, each once."""
    found: dict[Const, None] = {}
    stack: list[tuple[Sequence[Node], Sequence[Value]]] = [(tuple(nodes), ())]
    stack += [(r.nodes, r.outputs) for r in regions]
    while stack:
        group, outputs = stack.pop()
        for value in outputs:
            if isinstance(value, Const) and not is_literal(value):
                found[value] = None
        for node in group:
            for value in node.inputs:
                if isinstance(value, Const) and not is_literal(value):
                    found[value] = None
            if isinstance(node, Loop):
                stack += [(r.nodes, r.outputs) for r in (node.body, node.cond) if r is not None]
            elif isinstance(node, Branch):
                stack += [(r.nodes, r.outputs) for r in node.branches]
    return list(found)


class Kernel:
    """A function of mx arrays, held by the program that made it, compiled when it is hot.

    `function(base, *arrays)` gets the captured constants as a dict. `ops` is its length; `calls` counts runs.
    """

    def __init__(
        self,
        emitter: Emitter,
        function: Callable[..., list[mx.array]],
        consts: list[Const],
        ops: float,
        hot: int | None = None,
    ):
        self.consts = consts
        self.arrays = [emitter.constant(c) for c in consts]
        self.ops = ops
        self.calls = 0
        self.hot = 1 + (int(ops) // HOT_OPS) ** 2 if hot is None else hot
        n = len(consts)
        self._function = function
        self._plain = lambda *arrays: function(dict(zip(consts, arrays[:n])), *arrays[n:])
        self._compiled: Callable[..., list[mx.array]] | None = None

    def quickest(self) -> Callable[..., list[mx.array]] | None:
        """What to call from now on: the compiled function, or None while this kernel is about to be compiled."""
        if self._compiled is not None and not self.arrays:
            return self._compiled
        return self if self._compiled is not None or self.hot > 8 else None

    def quickest_of_one(self) -> Callable[..., mx.array] | None:
        """As quickest, for a kernel of one result: the array itself. A list of one costs as much as a small kernel."""
        run = self.quickest()
        if run is None or run is not self._compiled:
            return run if run is None else lambda *arrays: run(*arrays)[0][...]  # a handle of its own
        plain = self._plain
        return mx.compile(lambda *arrays: plain(*arrays)[0])

    def __call__(self, *arrays: mx.array) -> list[mx.array]:
        if self._compiled is not None:
            return self._compiled(*self.arrays, *arrays)
        self.calls += 1
        if self.calls <= self.hot:
            return self._plain(*self.arrays, *arrays)
        compiled = self._compiled = mx.compile(self._plain)
        return compiled(*self.arrays, *arrays)
