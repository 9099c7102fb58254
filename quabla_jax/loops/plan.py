"""Which carries a loop keeps for its reverse sweep: requests, the cost model, and the plans they lead to.

A request (the value of checkpoint=) becomes a decision when the loop is first differentiated in reverse: the full tape,
which is jax.lax.scan's own reverse mode, or a `Schedule` of blocks. Decisions are made from shapes, the body's jaxpr and
the trip count alone, so that one program gets one plan on one kind of machine.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import re
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from .body import Body
from .contractions import worth
from .cost import StepCost, machine, step_cost
from .schedule import Schedule, Trips

SHORT_LOOP = 32
"""Loops of at most this many steps keep the full tape under "auto": blocks could not pay for themselves."""

MAX_LEVELS = 24


@dataclasses.dataclass(frozen=True)
class Budget:
    """An upper limit on the bytes of carries and residuals that a loop's reverse mode stores.

    Args:
        size: bytes, or a text such as "512MB" or "2GiB" (units B, kB, MB, GB, TB and KiB, MiB, GiB, TiB).

    Raises:
        ValueError: the text is not a size, or the size is not positive.
    """

    bytes: int

    def __init__(self, size: int | float | str):
        object.__setattr__(self, "bytes", _bytes(size))


_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_UNITS |= {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}


def _bytes(size: int | float | str) -> int:
    if isinstance(size, str):
        match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([A-Za-z]*)\s*", size)
        unit = _UNITS.get(match.group(2).lower()) if match else None
        if match is None or unit is None:
            raise ValueError(f'Budget({size!r}): expected a number of bytes or a text such as "512MB" or "2GiB"')
        size = float(match.group(1)) * unit
    if isinstance(size, bool) or not isinstance(size, (int, float)) or not 1 <= size < math.inf:
        raise ValueError(f"Budget({size!r}): expected a positive number of bytes")
    return int(size)


@dataclasses.dataclass(frozen=True)
class Forced:
    """A request for one exact schedule; for benchmarks and tests."""

    blocks: tuple[int, ...]
    inner: str = "carry"


@dataclasses.dataclass(frozen=True)
class LoopPlan:
    """What a loop of known size would store for its reverse mode.

    Attributes:
        levels: how many levels of blocks; 0 is the full tape.
        slots: carries kept on each level, the innermost piece last; for the full tape, the steps whose residuals stay.
        stored_bytes: carries and residuals held at one time, at most.
        extra_forward: steps run again, beyond the one forward pass that any reverse mode needs.
    """

    levels: int
    slots: tuple[int, ...]
    stored_bytes: int
    extra_forward: int
    inner: str = dataclasses.field(default="carry", compare=False)
    length: int = dataclasses.field(default=0, compare=False)

    def __str__(self) -> str:
        kind = "full tape" if self.levels == 0 else f"{self.levels} level{'s' * (self.levels > 1)}, {self.inner}"
        rows = [
            ("plan", kind),
            ("steps", f"{self.length}"),
            ("slots", " + ".join(map(str, self.slots)) or "0"),
            ("stored", _size_text(self.stored_bytes)),
            ("extra forward steps", f"{self.extra_forward} ({self.extra_forward / max(self.length, 1):.2f} a step)"),
        ]
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)


def _size_text(n: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if n >= size:
            return f"{n / size:.3g} {unit}"
    return f"{n} B"


# ---- block sizes


def block_size(length: int, target: float, cost: Any, rest_weight: float = 1.05) -> int:
    """The block size near `target` with the least cost(count, block, rest); one that divides the length is preferred.

    A rest is a second copy of the sweep in the compiled program, so blocks that leave none may store more, by default 5 %.
    """
    low, high = max(1, math.floor(target / 1.5)), min(length, math.ceil(target * 1.5) + 1)
    if high - low > 4096:
        low, high = max(1, int(target) - 2048), min(length, int(target) + 2048)

    def key(b: int) -> float:
        k, r = divmod(length, b)
        return cost(k, b, r) * (1.0 if r == 0 else rest_weight)

    return min(range(low, max(high, low) + 1), key=key)


def blocks_for(length: int, levels: int, piece_weight: float = 1.0) -> tuple[int, ...]:
    """Block sizes of `levels` levels that store the least: with weight w of a step of the innermost piece against a kept
    carry, sizes in geometric progression, T^(1/(levels+1)) carries on each level."""
    out: list[int] = []
    n = length
    for left in range(levels, 0, -1):
        count = (n * piece_weight) ** (1 / (left + 1))
        n = block_size(n, n / count, lambda k, b, r, left=left: _stored(k, b, r, left, piece_weight))
        out.append(n)
        if n == 1:
            break
    return tuple(out)


def _stored(k: int, b: int, r: int, left: int, weight: float) -> float:
    return k + (r > 0) + left * (b * weight) ** (1 / left)


def slots_of(length: int, blocks: Sequence[int]) -> tuple[int, ...]:
    """Carries kept on every level of a schedule, the innermost piece last, in the largest case."""
    out, n = [], length
    for b in blocks:
        b = min(b, n)
        k, r = divmod(n, b)
        out.append(k + (r > 0))
        n = b
    return (*out, n)


def least_slots(length: int) -> tuple[int, ...]:
    """The block sizes that keep the fewest carries of all."""
    best = blocks_for(length, 1)
    for levels in range(2, MAX_LEVELS):
        b = blocks_for(length, levels)
        if sum(slots_of(length, b)) >= sum(slots_of(length, best)):
            break
        best = b
    return best


# ---- decisions


@dataclasses.dataclass(frozen=True)
class Choice:
    """A candidate with what it stores and how long it is expected to take."""

    schedule: Schedule | None
    stored: int
    seconds: float


def full_choice(trips: Trips, cost: StepCost) -> Choice:
    return Choice(None, trips.length * cost.residual_bytes, cost.full_tape(trips.length))


REST = 1.15
"""Blocks that leave a rest are taken for slower by this much: the rest is the sweep's code once more."""


def block_choice(
    trips: Trips, cost: StepCost, blocks: Sequence[int], inner: str, limit: float = math.inf, store_pairs: bool = False
) -> Choice:
    """A schedule's choice. To gather products (contractions.py) a sweep may use as much again as it stores; `limit` bytes
    hold both."""
    slots = slots_of(trips.length, blocks)
    if inner == "residuals":
        stored = sum(slots[:-1]) * cost.carry_bytes + slots[-1] * cost.stored_bytes
    else:
        stored = held(slots, inner) * cost.carry_bytes
    spare = int(max(0, min(stored, limit - stored))) if worth(trips.length, cost.gathered_bytes) else 0
    schedule = Schedule(trips.length, tuple(blocks), inner, trips.reverse, trips.unroll, spare, store_pairs)
    seconds = cost.in_blocks(trips.length, len(blocks), slots[-1], inner)
    return Choice(schedule, stored, seconds * (REST if schedule.rest else 1.0))


def choices(trips: Trips, cost: StepCost, levels: int, limit: float = math.inf) -> Iterator[Choice]:
    """The full tape, and schedules of `levels` levels over carries and over residuals: those that store the least, those
    that store a little more and leave no rest, and, on one level, longer blocks, which are fewer."""
    if levels == 1:
        yield full_choice(trips, cost)
    weight = min(max(max(cost.stored_bytes, 1) / max(cost.carry_bytes, 1), 1 / 64), 64.0)
    for inner, w in (("carry", 1.0), ("residuals", weight)):
        least = blocks_for(trips.length, levels, w)
        seen = {least}
        yield block_choice(trips, cost, least, inner, limit)
        for longer in (1, 2, 4) if levels == 1 else ():
            stored = lambda k, b, r, w=w: _stored(k, b, r, 1, w)
            blocks = (block_size(trips.length, longer * least[0], stored, rest_weight=2.0),)
            if blocks not in seen:
                seen.add(blocks)
                yield block_choice(trips, cost, blocks, inner, limit)


def fastest(candidates: Sequence[Choice]) -> Choice:
    """The fastest; of two within 5 % of each other, the one that stores less."""
    best = min(candidates, key=lambda c: c.seconds)
    near = [c for c in candidates if c.seconds <= 1.05 * best.seconds]
    return min(near, key=lambda c: (c.stored, c.seconds))


def choose(trips: Trips, cost: StepCost, request: Any) -> Choice:
    """The decision for a request, given what one step costs.

    Raises:
        ValueError: nothing fits the request; the text states the least that would.
    """
    length = trips.length
    if request == "full":
        return full_choice(trips, cost)
    if isinstance(request, Forced):
        return block_choice(trips, cost, request.blocks, request.inner)
    if request == "sqrt":
        inner = "residuals" if cost.stored_bytes <= cost.carry_bytes else "carry"
        most = 2.3 * math.sqrt(length)
        slots = lambda k, b, r: n if (n := k + (r > 0) + b) <= most else math.inf
        blocks = (block_size(length, math.sqrt(length), slots, rest_weight=1.12),)
        return block_choice(trips, cost, blocks, inner, int(most * cost.carry_bytes), store_pairs=True)
    if isinstance(request, Budget):
        for levels in range(1, MAX_LEVELS):
            fitting = [c for c in choices(trips, cost, levels, request.bytes) if c.stored <= request.bytes]
            if fitting:
                return min(fitting, key=lambda c: c.seconds)
        slots = request.bytes // max(cost.carry_bytes, 1)
        if slots >= 1:
            return _counted_slots(trips, cost, slots)
        raise ValueError(
            f"checkpoint=Budget({request.bytes} bytes): no plan for this loop of {length} steps fits; the least that "
            f"would do is Budget({cost.carry_bytes} bytes), one carry"
        )
    if isinstance(request, int):
        return _counted_slots(trips, cost, request)
    if length <= SHORT_LOOP:
        return full_choice(trips, cost)
    limit = machine().memory // 8
    for levels in (1, 2, 3):
        fitting = [c for c in choices(trips, cost, levels) if c.stored <= limit]
        if fitting:
            return fastest(fitting)
    return block_choice(trips, cost, least_slots(length), "carry")


def _counted_slots(trips: Trips, cost: StepCost, slots: int) -> Choice:
    """The plan that keeps at most `slots` carries and runs the fewest steps again."""
    length = trips.length
    if slots >= length:  # every carry; nothing is run again
        return block_choice(trips, cost, (1,), "rerun", 0)
    best: tuple[int, tuple[int, ...], str] | None = None
    for levels in range(1, MAX_LEVELS):
        for blocks, inner in ((blocks_for(length, levels), "carry"), (_rerun_blocks(length, levels, slots), "rerun")):
            if held(slots_of(length, blocks), inner) <= slots:
                extra = extra_forward(length, blocks, inner)
                best = min(best or (extra, blocks, inner), (extra, blocks, inner))
    assert best is not None, "one carry always does"
    return block_choice(trips, cost, best[1], best[2], 0)


def held(slots: Sequence[int], inner: str) -> int:
    """Carries held at one time: those of every level, and those of the innermost piece."""
    if inner != "rerun":
        return sum(slots)
    return sum(slots[:-1]) if slots[:-1] != (1,) else 1


def _rerun_blocks(length: int, levels: int, slots: int) -> tuple[int, ...]:
    """Block sizes for `levels` levels that share `slots` carries evenly; the innermost piece keeps none."""
    out, n = [], length
    for level in range(levels):
        count = max(1, slots // levels + (level < slots % levels))
        n = -(-n // count)
        out.append(n)
    return tuple(out)


def extra_forward(length: int, blocks: Sequence[int], inner: str) -> int:
    """Steps of the body's primal part that the reverse sweep of a schedule runs, beyond the first forward pass."""
    known: dict[tuple[int, tuple[int, ...]], int] = {}  # whole blocks and remainders meet again at every level below

    def sweep(n: int, blocks: tuple[int, ...]) -> int:
        if not blocks:
            return n * (n - 1) // 2 if inner == "rerun" else n
        if (n, blocks) not in known:
            b = min(blocks[0], n)
            k, r = divmod(n, b)
            below = tuple(c for c in blocks[1:] if c < b)
            known[n, blocks] = k * piece(b, below) + (piece(r, below) if r else 0)
        return known[n, blocks]

    def piece(n: int, below: tuple[int, ...]) -> int:
        deeper = tuple(c for c in below if c < n)
        return n + sweep(n, deeper) if deeper else sweep(n, ())

    return sweep(length, tuple(blocks))


def decide(trips: Trips, g: Body, lin: Sequence[bool], y_lin: Sequence[bool], must: bool = False) -> Schedule | None:
    """The schedule of a loop whose tangent (or unknown) part is g, linear in `lin`; None is the full tape.

    With `must`, a schedule in any case.
    """
    cost = step_cost(g, lin, y_lin)
    request = trips.request
    choice = g.once(("choice", tuple(lin), trips, machine()), lambda: choose(trips, cost, request))
    if choice.schedule is None and must:
        return block_choice(trips, cost, (trips.length,), "residuals").schedule
    return choice.schedule


# ---- what users ask for

_default = threading.local()


def check_request(value: Any) -> Any:
    """`value`, if it is a value of checkpoint=.

    Raises:
        TypeError, ValueError: it is not; the text lists what is.
    """
    if isinstance(value, (Budget, Forced)) or (isinstance(value, str) and value in ("auto", "full", "sqrt")):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        if value < 1:
            raise ValueError(f"checkpoint={value}: a number of stored carries must be at least 1")
        return value
    wanted = 'checkpoint= takes "auto", "full", "sqrt", a number of stored carries, or a Budget'
    raise (ValueError if isinstance(value, str) else TypeError)(f"{wanted}; got {value!r}")


@contextlib.contextmanager
def checkpointing(value: Any) -> Iterator[None]:
    """Sets what checkpoint="auto" means for loops traced inside the context, in this thread.

    Args:
        value: any value of checkpoint=; a Budget is also the limit of "auto".
    """
    before = current_default()
    _default.value = check_request(value)
    try:
        yield
    finally:
        _default.value = before


def current_default() -> Any:
    return getattr(_default, "value", "auto")


def request_of(checkpoint: Any) -> Any:
    """The request in force for a loop's checkpoint= value."""
    value = check_request(checkpoint)
    return current_default() if isinstance(value, str) and value == "auto" else value


def plan_loop(length: int, carry_bytes: int, residual_bytes: int | None = None, checkpoint: Any = "auto") -> LoopPlan:
    """The plan of a loop of `length` steps, from sizes alone.

    Args:
        length: trip count, at least 1.
        carry_bytes: bytes of the carries that the body's derivative depends on.
        residual_bytes: bytes that one step's derivative needs of its forward run; `carry_bytes` when None.
        checkpoint: any value of checkpoint=.

    Returns:
        A LoopPlan, which prints as a table.

    Raises:
        TypeError: a length or size that is no int.
        ValueError: the length or a size is out of range, or nothing fits; the text states the least that would.
    """
    for name, size in (("length", length), ("carry_bytes", carry_bytes), ("residual_bytes", residual_bytes)):
        if not isinstance(size, int) and size is not None:
            raise TypeError(f"plan_loop: {name} must be an int, got {size!r}")
    if length < 1 or carry_bytes < 0 or (residual_bytes is not None and residual_bytes < 0):
        wanted = "expected a length of at least 1 and sizes of at least 0"
        raise ValueError(
            f"plan_loop: {wanted}; got length={length}, carry_bytes={carry_bytes}, residual_bytes={residual_bytes}"
        )
    cost = StepCost.from_sizes(carry_bytes, carry_bytes if residual_bytes is None else residual_bytes)
    choice = choose(Trips(length), cost, request_of(checkpoint))
    if choice.schedule is None:
        return LoopPlan(0, (length,), choice.stored, 0, "residuals", length)
    blocks, inner = choice.schedule.blocks, choice.schedule.inner
    slots = slots_of(length, blocks)
    if inner == "rerun":
        slots = slots[:-1]
    return LoopPlan(len(blocks), slots, choice.stored, extra_forward(length, blocks, inner), inner, length)
