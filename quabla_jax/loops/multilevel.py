"""Where the carries of a loop of unknown length are kept: a pool of fixed size, filled online, reversed by levels.

Forward, while the trip count is still unknown, the carry is stored at every 2^k-th step. When the pool has no room left
at stride 2^k, every other stored carry is dropped and k grows by one; room is always left for reversing one stretch
of 2^k steps. So a loop of N steps has stored ceil(N / 2^k) carries at 0, 2^k, 2·2^k, ..., and k follows from N alone.

Backward, the stored carries are a stack and the free slots are its room. A stretch of `length` steps that starts at the
top of the stack, with `free` slots above it, is
- reversed at once where length <= free + 1: every carry of it is stored, then the body's vjp runs from the last to the first;
- otherwise advanced to a split point, whose carry is pushed, and the stretch behind it is reversed first.
With β(f, r) = C(f + r, r), the longest stretch that f free slots reverse with no step run more than r times (Griewank
1992, "Achieving logarithmic growth of temporal and spatial complexity in reverse automatic differentiation"), the
split leaves β(f - 1, r) steps behind it for the smallest r with β(f, r) >= length: the optimum of Griewank and Walther 2000
("Algorithm 799: revolve"). Each factor of about free/r in length costs one more run of the body: the levels.

Slots are given as S a level on L levels; the pool has S·L, which reverse S^L steps with no step run more than L times.
Longer loops are reversed in the same memory, with the least recomputation that this memory admits as r grows past L.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import comb

import jax.numpy as jnp

__all__ = ["MAX_STEPS", "Pool", "longest"]

MAX_STEPS = 2**31 - 1
"""Steps are counted in int32."""
_MAX_LEVELS = 24


def longest(free: int, runs: int) -> int:
    """β(free, runs): the longest stretch that `free` slots reverse with every step run at most `runs` times before its vjp."""
    return comb(free + runs, runs)


@dataclass(frozen=True)
class Pool:
    """A pool of `slots` carries, and the schedule that fills and reverses it.

    Arguments:
        slots: how many carries are stored at most, the first one included. Below two, one step's carry is stored beside
            the loop's initial value.

    With fewer than four slots nothing is kept on the way forward: the reversal starts from the initial value.
    """

    slots: int

    def __post_init__(self):
        if self.slots < 1:
            raise ValueError(f"checkpoint: expected at least one slot, got {self.slots}")

    @classmethod
    def of_levels(cls, slots: int, levels: int) -> Pool:
        """`slots` on each of `levels` levels: slots · levels carries for slots^levels steps."""
        return cls(slots * levels)

    @property
    def size(self) -> int:
        """Carries that the arrays hold."""
        return max(2, self.slots)

    @property
    def kept_online(self) -> bool:
        """Whether carries are kept while the loop first runs."""
        return self.slots >= 4

    @cached_property
    def capacities(self) -> tuple[int, ...]:
        """How many carries may be stored at stride 2^k: even, and what is left free reverses 2^k steps in few runs.

        Halving a full pool must leave a slot at the next stride, so none is below half its predecessor plus one.
        """
        out = []
        for k in range(1, 31):
            cap = self.slots - self._room(2**k)
            out.append(max(cap - cap % 2, 2 * (out[-1] // 4) + 2 if out else 2))
        return (min(self.slots - self.slots % 2, 2 * out[0] - 2), *out)

    def _room(self, stride: int) -> int:
        """Free slots for one stretch: the fewest with which no step runs more often than half the pool would need."""
        runs = 1
        while longest(self.slots // 2, runs) < stride and runs < _MAX_LEVELS:
            runs += 1
        free = 1
        while longest(free, runs) < stride and free < self.slots // 2:
            free += 1
        return free

    @cached_property
    def limits(self) -> tuple[int, ...]:
        """The most steps that end with stride 2^k."""
        return tuple(min(c << k, MAX_STEPS) for k, c in enumerate(self.capacities))

    def stride_exponent(self, steps):
        """k for a loop of `steps` steps (an int32 array)."""
        return jnp.sum(steps > jnp.asarray(self.limits, jnp.int32)[:-1], dtype=jnp.int32)

    def advance(self, length, free):
        """How far to advance from the top of the stack before the next carry is pushed; 0: reverse the stretch at once.

        Arguments: int32 arrays, the length of the stretch and the number of free slots (at least 1 where length > 1).
        """
        f, n = free.astype(jnp.float32), length.astype(jnp.float32)
        before, last, beta = jnp.float32(1), f * 0 + 1, f + 1
        left, behind = before, f
        for r in range(2, _MAX_LEVELS + 1):
            short = beta < n
            before, last, beta = last, beta, beta * (f + r) / r
            left = jnp.where(short, before, left)
            behind = jnp.where(short, beta * f / (f + r), behind)
        behind = jnp.clip(jnp.minimum(behind, n - left).astype(jnp.int32), 1, length - 1)
        return jnp.where(length <= free + 1, 0, length - behind)
