"""Runs a lowered program: straight pieces as kernels, loops in chunks, branches lazily.

A Plan is a region cut at its control flow. Between two cuts lies one kernel. Values live in slots; a slot is cleared
after its last use, so that MLX may reuse its memory in place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import jax
import mlx.core as mx
import numpy as np

from ..lowering.program import Branch, Const, Loop, Node, Op, Region, Value, has_effect
from . import convert
from .kernels import INLINE_LIMIT, Emitter, Kernel, captured, node_cost, straight_cost, work
from .progress import Watch

__all__ = ["Plan", "SMALL"]

CHUNK_OPS = 512
CHUNK_TRIPS = 64
"""Ops, and iterations, that one chunk of a counted loop unrolls to at most."""

CHUNK_WORK = 1 << 18
"""Elements that one chunk computes at most. Beyond that an evaluation costs nothing against the work, and memory would
follow the chunk: MLX allocates what it has scheduled before it frees what it has run."""

CHUNK_BYTES = 1 << 20
"""Bytes of stacked results that one chunk makes at most, where they are too many to be kept in pieces."""

HOT_TRIPS = 64
"""Iterations that a loop body runs op by op before it is compiled; long bodies run more of them."""

SMALL = 1 << 18
"""Bytes of state, xs and ys below which a chunk on the GPU is evaluated in the background. Larger state is waited for:
MLX reuses a buffer in place only when nothing that is still running holds it. On the CPU waiting is faster (1.2x)."""

SPECULATION = 32
SPECULATION_WORK = 1 << 18
"""Iterations, and elements, that a while loop may run past its end, masked."""


class Step(Protocol):
    def run(self, inputs: list[mx.array]) -> Sequence[mx.array]: ...


@dataclass
class _Placed:
    """A step with the slots that it reads, writes and lets go."""

    step: Step
    reads: list[int]
    writes: list[int]
    drops: list[int]


class Plan:
    """A region made ready: `run(inputs) -> outputs`.

    `inner`: the region is a loop's body, where small branches are selected inside a kernel instead of read back.
    """

    def __init__(self, region: Region, emitter: Emitter, inner: bool = False):
        self.region = region
        self.emitter = emitter
        self.inner = inner
        self._slots: dict[Value, int] = {v: i for i, v in enumerate(region.inputs)}
        memo: dict[Region, float] = {}
        groups: list[tuple[bool, list[Node]]] = []
        for node in region.nodes:
            told = isinstance(node, Loop) and node.report is not None and node.report.outer
            straight = not told and math.isfinite(node_cost(node, memo, branches=inner))
            if straight and groups and groups[-1][0]:
                groups[-1][1].append(node)
            else:
                groups.append((straight, [node]))
        self.placed: list[_Placed] = []
        needed = [_reads(nodes) for _, nodes in groups]
        later: list[set[Value]] = []
        after = set(region.outputs)
        for reads in reversed(needed):
            later.append(set(after))
            after |= set(reads)
        later.reverse()
        for (straight, nodes), reads, live in zip(groups, needed, later):
            self._place(straight, nodes, reads, live, memo)
        self.outputs = [v if isinstance(v, Const) else self._slots[v] for v in region.outputs]

    def _place(
        self,
        straight: bool,
        nodes: list[Node],
        reads: list[Value],
        live: set[Value],
        memo: dict[Region, float],
    ) -> None:
        if straight:
            made = [v for n in nodes for v in n.outputs if v in live]
            step: Step = _Segment(self.region, nodes, reads, made, self.emitter, memo)
        else:
            made = list(nodes[0].outputs)
            step = _control(nodes[0], self.emitter)
        if not made and not (nodes and has_effect(nodes[0])):
            return
        reads = [v for v in reads if not isinstance(v, Const)] if straight else reads
        for v in made:
            self._slots.setdefault(v, len(self._slots))
        slots = [self._slot(v) for v in reads]
        drops = [self._slots[v] for v in {*reads, *made} if v not in live and not isinstance(v, Const)]
        self.placed.append(_Placed(step, slots, [self._slots[v] for v in made], drops))

    def _slot(self, value: Value) -> int:
        if value not in self._slots:
            assert isinstance(value, Const), "a region reads only its own inputs, its own nodes and constants"
            self._slots[value] = len(self._slots)
        return self._slots[value]

    def run(self, inputs: Sequence[mx.array]) -> list[mx.array]:
        slots: list[mx.array | None] = [None] * len(self._slots)
        slots[: len(inputs)] = inputs
        del inputs
        for value, slot in self._constants():
            slots[slot] = value
        for placed in self.placed:
            reads = [slots[i] for i in placed.reads]
            for i in placed.drops:
                slots[i] = None
            out = placed.step.run(reads)  # type: ignore[arg-type]
            del reads
            for i, value in zip(placed.writes, out):
                slots[i] = value
            del out
            for i in placed.drops:
                if i in placed.writes:
                    slots[i] = None
        return [self.emitter.constant(o) if isinstance(o, Const) else slots[o] for o in self.outputs]  # type: ignore[misc]

    def kernel(self) -> Kernel | None:
        """The one kernel that the plan is, where it takes the inputs and gives the outputs in their own order."""
        if len(self.placed) != 1:
            return None
        placed, step = self.placed[0], self.placed[0].step
        straight = placed.reads == list(range(len(self.region.inputs))) and placed.writes == self.outputs
        return step.kernel if straight and isinstance(step, _Segment) else None

    def _constants(self) -> list[tuple[mx.array, int]]:
        found = getattr(self, "_constant_slots", None)
        if found is None:
            found = [(self.emitter.constant(v), i) for v, i in self._slots.items() if isinstance(v, Const)]
            self._constant_slots = found
        return found


def _reads(nodes: Sequence[Node]) -> list[Value]:
    """What a run of nodes reads from outside, each once, in order."""
    made = {v for n in nodes for v in n.outputs}
    found: dict[Value, None] = {}
    for node in nodes:
        extra: list[Value] = []
        if isinstance(node, Branch):
            extra = [node.index] if node.predicate is None else [node.predicate]
        elif isinstance(node, Loop) and node.trip is not None:
            extra = [node.trip]
        for value in (*extra, *node.inputs):
            if value not in made:
                found[value] = None
    return list(found)


class _Segment:
    """A run of ops (and of small loops and branches unrolled among them) as one kernel."""

    def __init__(
        self,
        region: Region,
        nodes: list[Node],
        reads: list[Value],
        made: list[Value],
        emitter: Emitter,
        memo: dict[Region, float],
    ):
        inputs = [v for v in reads if not isinstance(v, Const)]
        context = emitter.context(region)

        def function(base: dict[Value, mx.array], *arrays: mx.array) -> list[mx.array]:
            env = {**base, **dict(zip(inputs, arrays))}
            emitter.nodes(nodes, env, context, base)
            return [env[v] for v in made]

        ops = math.fsum(node_cost(n, memo) for n in nodes)
        self.nodes = nodes
        self.kernel = Kernel(emitter, function, captured((), nodes), ops)

    def run(self, inputs: list[mx.array]) -> Sequence[mx.array]:
        return self.kernel(*inputs)


def _control(node: Node, emitter: Emitter) -> Step:
    if isinstance(node, Op):
        return _HostCall(node, emitter)
    if isinstance(node, Branch):
        return _Branch(node, emitter)
    assert isinstance(node, Loop)
    if node.kind == "while":
        return _While(node, emitter)
    return _Counted(node, emitter)


def _number(array: mx.array) -> int:
    value: Any = array.item()
    return int(value)


class _HostCall:
    """The user's own Python function (jax.pure_callback), called between two kernels on jax arrays."""

    def __init__(self, node: Op, emitter: Emitter):
        self.node = node
        reads = _reads([node])
        self.positions = [reads.index(v) for v in node.inputs]
        self.double = emitter.target.double

    def run(self, inputs: list[mx.array]) -> Sequence[mx.array]:
        mx.eval(inputs)
        operands = [convert.from_mx(inputs[i], v.dtype) for i, v in zip(self.positions, self.node.inputs)]
        results = self.node.params["callback"](*operands)
        out = []
        if len(results) != len(self.node.outputs):
            raise ValueError(f"a callback promised {len(self.node.outputs)} arrays and returned {len(results)}")
        for result, value in zip(results, self.node.outputs):
            array = np.asarray(result)
            if array.shape != value.shape:
                raise ValueError(f"a callback promised shape {value.shape} and returned {array.shape}")
            if value.dtype not in (array.dtype, jax.dtypes.canonicalize_dtype(array.dtype)):
                raise ValueError(f"a callback promised {value.dtype} and returned {array.dtype}: cast it there")
            out.append(convert.to_mx(array, value.dtype, self.double))
        return out


class _Branch:
    """Reads the predicate once and runs one branch."""

    def __init__(self, node: Branch, emitter: Emitter):
        self.node = node
        self.plans = [Plan(b, emitter) for b in node.branches]
        reads = _reads([node])
        chooser = node.index if node.predicate is None else node.predicate
        self.at = reads.index(chooser)
        self.positions = [reads.index(v) for v in node.inputs]

    def run(self, inputs: list[mx.array]) -> Sequence[mx.array]:
        chosen = _number(inputs[self.at])
        operands = [inputs[i] for i in self.positions]
        inputs.clear()
        return self.plans[chosen].run(operands)


def _bytes(values: Sequence[Value]) -> int:
    return sum(v.size * v.dtype.itemsize for v in values)


def _settle(arrays: Sequence[mx.array], background: bool) -> None:
    if background:
        mx.async_eval(arrays)
    else:
        mx.eval(arrays)


class _Counted:
    """A counted loop: chunks of unrolled iterations, one evaluation a chunk."""

    def __init__(self, node: Loop, emitter: Emitter):
        self.node = node
        self.emitter = emitter
        reads = _reads([node])
        self.positions = [reads.index(v) for v in node.inputs]
        self.trip_at = None if node.trip is None else reads.index(node.trip)
        body = node.body
        cost = straight_cost(body) + len(node.xs) + 2 * (len(node.outputs) - node.n_carry)
        self.flat = math.isfinite(cost) and cost <= 16 * CHUNK_OPS
        self.background = not emitter.target.cpu and _bytes(node.outputs) + _bytes(node.xs) < SMALL
        self.plan = None if self.flat else Plan(body, emitter, inner=True)
        self.cost = max(cost, 1.0)
        limit = min(CHUNK_TRIPS, CHUNK_OPS / self.cost, CHUNK_WORK / max(work(body), 1.0)) if self.flat else 1
        row = max(_bytes(node.outputs[node.n_carry :]) // max(node.length or 1, 1), 1)
        if (
            node.length is not None and row * node.length >= SMALL // 4
        ):  # a chunk's ys exist twice until they are in place
            limit = min(limit, max(CHUNK_BYTES / row, 1))
        self.chunk = _chunk(max(1, int(limit)), node.length)
        self.trips = 0
        self.hot = _hot_trips(self.cost)
        self._kernels: dict[int, Kernel] = {}

    def run(self, inputs: list[mx.array]) -> Sequence[mx.array]:
        node = self.node
        length = node.length if self.trip_at is None else _number(inputs[self.trip_at])
        operands = [inputs[i] for i in self.positions]
        inputs.clear()
        n = node.n_consts
        consts, carry, xs = operands[:n], operands[n : n + node.n_carry], operands[n + node.n_carry :]
        del operands
        assert length is not None
        stacks = [_Stack(v, length) for v in node.outputs[node.n_carry :]]
        # The xs' own buffers are never written: slices of them are views.
        watch = Watch(node.report, consts)
        done = 0
        while done < length:
            size = self.chunk if length - done >= self.chunk else self._rest(length - done)
            low = length - done - size if node.reverse else done
            parts = [x if size == length else x[low : low + size] for x in xs]
            carry, ys = self._advance(consts, carry, parts, size)
            for stack, part in zip(stacks, ys):
                stack.put(part, low, size)
            del parts, ys
            _settle([*carry, *(s.pending() for s in stacks)], self.background and done % (8 * size) != 0)
            done += size
            self.trips += size
            watch.chunk(carry)
        watch.end(carry)
        return [*carry, *(s.whole() for s in stacks)]

    def _rest(self, left: int) -> int:
        """Size of a short last chunk: few different sizes, so that few kernels are built."""
        if self.node.length is not None:
            return left
        return 8 if left >= 8 and self.chunk > 8 else 1

    def _advance(
        self, consts: list[mx.array], carry: list[mx.array], xs: list[mx.array], size: int
    ) -> tuple[list[mx.array], list[mx.array]]:
        n = self.node.n_carry
        if self.plan is not None:
            out = self.plan.run([*consts, *carry, *(mx.squeeze(x, 0) for x in xs)])
            return out[:n], [mx.expand_dims(y, 0) for y in out[n:]]
        kernel = self._kernels.get(size)
        if kernel is None:
            kernel = self._kernels[size] = self._kernel(size)
        if kernel.calls <= kernel.hot and self.trips >= self.hot:
            kernel.calls = kernel.hot
        out = kernel(*consts, *carry, *xs)
        return out[:n], out[n:]

    def _kernel(self, size: int) -> Kernel:
        node, emitter = self.node, self.emitter
        n, m = node.n_consts, node.n_consts + node.n_carry

        def function(base: dict[Value, mx.array], *arrays: mx.array) -> list[mx.array]:
            carry, ys = emitter.iterations(node, list(arrays[:n]), list(arrays[n:m]), arrays[m:], size, base)
            return [*carry, *ys]

        return Kernel(emitter, function, captured([node.body]), size * self.cost, hot=self.hot)


def _hot_trips(cost: float) -> int:
    return int(max(HOT_TRIPS, min(2 * cost**1.5, 1e9)))


def _chunk(limit: int, length: int | None) -> int:
    """Iterations a chunk: a divisor of the length where one is not much below the limit."""
    if length is None:
        return limit
    if length <= limit:
        return max(length, 1)
    for size in range(limit, max(limit // 2, 1), -1):
        if length % size == 0:
            return size
    return limit


class _Stack:
    """The ys of a loop, put together chunk by chunk into one buffer that MLX updates in place."""

    def __init__(self, value: Value, length: int):
        self.shape = (length, *value.shape[1:])
        self.small = _bytes([value]) < SMALL // 4
        self.parts: list[tuple[int, mx.array]] = []
        self.buffer: mx.array | None = None
        self.length = length

    def put(self, part: mx.array, low: int, size: int) -> None:
        if self.small or size == self.length:
            self.parts.append((low, part))
            return
        if self.buffer is None:
            self.buffer = mx.contiguous(mx.zeros(self.shape, dtype=part.dtype))
        buffer = self.buffer
        buffer[low : low + size] = part

    def pending(self) -> mx.array:
        return self.parts[-1][1] if self.buffer is None else self.buffer

    def whole(self) -> mx.array:
        if self.buffer is not None:
            return self.buffer
        parts = [part for _, part in sorted(self.parts, key=lambda p: p[0])]
        return parts[0] if len(parts) == 1 else mx.concatenate(parts, axis=0)


class _While:
    """A while loop. A cheap body runs ahead in masked chunks of growing size, one predicate read back a chunk; any
    other runs trip by trip, its next predicate computed along with it."""

    def __init__(self, node: Loop, emitter: Emitter):
        assert node.cond is not None
        self.node = node
        self.emitter = emitter
        reads = _reads([node])
        self.positions = [reads.index(v) for v in node.inputs]
        body_cost, cond_cost = straight_cost(node.body), straight_cost(node.cond)
        self.cost = max(body_cost + cond_cost + node.n_carry, 1.0)
        self.flat = math.isfinite(self.cost) and self.cost <= 16 * CHUNK_OPS
        ahead = min(SPECULATION, INLINE_LIMIT / self.cost, SPECULATION_WORK / max(work(node.body), 1.0))
        self.ahead = int(ahead) if self.flat and node.total else 0
        self.body = None if self.flat else Plan(node.body, emitter, inner=True)
        self.cond = None if self.flat else Plan(node.cond, emitter, inner=True)
        self.trips = 0
        self.hot = _hot_trips(self.cost)
        self._kernels: dict[int, Kernel] = {}

    def run(self, inputs: list[mx.array]) -> Sequence[mx.array]:
        operands = [inputs[i] for i in self.positions]
        inputs.clear()
        n = self.node.n_consts
        consts, carry = operands[:n], operands[n:]
        del operands
        watch = Watch(self.node.report, consts)
        if self.ahead >= 2:
            carry = self._speculate(consts, carry, watch)
        elif self.flat:
            carry = self._step_by_step(consts, carry, watch)
        else:
            assert self.cond is not None and self.body is not None
            while self.cond.run([*consts, *carry])[0].item():
                carry = self.body.run([*consts, *carry])
                mx.eval(carry)
                watch.chunk(carry)
        watch.end(carry)
        return carry

    def _hot(self, size: int) -> Kernel:
        kernel = self._kernels.get(size)
        if kernel is None:
            kernel = self._kernels[size] = self._kernel(size)
        if kernel.calls <= kernel.hot and self.trips >= self.hot:
            kernel.calls = kernel.hot
        return kernel

    def _speculate(self, consts: list[mx.array], carry: list[mx.array], watch: Watch) -> list[mx.array]:
        size, going = 1, True
        while going:
            out = self._hot(size)(*consts, *carry)
            del carry
            mx.eval(out)
            carry, going = out[:-1], bool(out[-1].item())
            del out
            self.trips += size
            watch.chunk(carry)
            size = min(4 * size, self.ahead)  # few sizes, so that few kernels are built
        return carry

    def _step_by_step(self, consts: list[mx.array], carry: list[mx.array], watch: Watch) -> list[mx.array]:
        going = bool(self._hot(0)(*consts, *carry)[0].item())
        while going:
            out = self._hot(-1)(*consts, *carry)
            del carry
            mx.eval(out)
            carry, going = out[:-1], bool(out[-1].item())
            del out
            self.trips += 1
            watch.chunk(carry)
        return carry

    def _kernel(self, size: int) -> Kernel:
        """size >= 1: that many masked trips and the next predicate; 0: the predicate; -1: a trip and the predicate."""
        node, emitter = self.node, self.emitter
        cond, n = node.cond, node.n_consts
        assert cond is not None

        def function(base: dict[Value, mx.array], *arrays: mx.array) -> list[mx.array]:
            consts, carry = arrays[:n], list(arrays[n:])
            if size == -1:
                carry = emitter.region(node.body, [*consts, *carry], base)
                return [*carry, emitter.region(cond, [*consts, *carry], base)[0]]
            going = emitter.region(cond, [*consts, *carry], base)[0]
            if size == 0:
                return [going]
            for _ in range(size):
                new = emitter.region(node.body, [*consts, *carry], base)
                carry = [c if c is v else mx.where(going, v, c) for v, c in zip(new, carry)]
                going = emitter.region(cond, [*consts, *carry], base)[0]
            return [*carry, going]

        regions = [cond] if size == 0 else [cond, node.body]
        return Kernel(emitter, function, captured(regions), max(size, 1) * self.cost, hot=self.hot)
