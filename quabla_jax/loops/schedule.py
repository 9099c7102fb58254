"""Where a counted loop of T steps keeps its carry, as integers only.

A schedule with block sizes (B_1, B_2, ...) runs K_1 = T // B_1 blocks of B_1 steps, then r_1 = T - K_1 B_1 more. The
forward pass keeps the carry at every block's start. The reverse sweep takes the blocks from the last to the first; it
runs each one forward again from its kept carry, cut in the same way by B_2, and so on. The innermost pieces are swept
over their carries, each step's linearization computed again ("carry"), over their residuals ("residuals"), or, where not
even that fits, with nothing kept but the piece's first carry, from which every step is run again ("rerun").

Invariants: every step is run forward once by the first pass and once more by every level; never more than
K_1 + K_2 + ... carries and one innermost piece are held at a time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp


@dataclasses.dataclass(frozen=True)
class Trips:
    """How a loop runs: T steps, in which order, unrolled by how much; and what was asked for its reverse mode."""

    length: int
    reverse: bool = False
    unroll: int = 1
    request: Any = "auto"


@dataclasses.dataclass(frozen=True)
class Schedule:
    """One level of a schedule and those below it."""

    length: int
    blocks: tuple[int, ...]
    inner: str = "carry"
    reverse: bool = False
    unroll: int = 1
    spare: int = 0
    """Bytes that the sweep may use on top of what it stores, to gather products over whole pieces (contractions.py)."""
    store_pairs: bool = False
    """Whether a sweep over pairs of value and tangent may store twice the carries of its innermost piece (`for_pairs`)."""

    def __post_init__(self):
        assert self.length >= 1 and self.blocks and self.inner in ("carry", "residuals", "rerun"), self

    @property
    def block(self) -> int:
        return max(1, min(self.blocks[0], self.length))

    @property
    def count(self) -> int:
        return self.length // self.block

    @property
    def rest(self) -> int:
        return self.length - self.count * self.block

    @property
    def trips(self) -> Trips:
        return Trips(self.length, self.reverse, self.unroll)

    def below(self, length: int) -> Schedule | None:
        """The schedule of a piece of `length` steps, or None where the piece is swept whole."""
        rest = tuple(b for b in self.blocks[1:] if b < length)
        return dataclasses.replace(self, length=length, blocks=rest) if rest else None

    def for_pairs(self, stored_bytes: int, carry_bytes: int) -> Schedule:
        """The schedule of a sweep over pairs, given what a step of it would store and its carries.

        Linearizing every step again from its carry costs pairs of forward operations there: with √T blocks, storing what the
        steps compute saves them for at most half as much memory again.
        """
        if self.store_pairs and self.inner == "carry" and stored_bytes <= 2 * carry_bytes:
            return dataclasses.replace(self, inner="residuals")
        return self

    def cut(self, arrays: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Scanned arrays as ([count, block, ...], [rest, ...]); the rest are the steps that run last."""
        done = self.count * self.block
        if self.rest == 0:
            head, tail = list(arrays), []
        elif self.reverse:
            head, tail = [a[self.rest :] for a in arrays], [a[: self.rest] for a in arrays]
        else:
            head, tail = [a[:done] for a in arrays], [a[done:] for a in arrays]
        return [a.reshape(self.count, self.block, *a.shape[1:]) for a in head], tail

    def paste(self, head: Sequence[Any], tail: Sequence[Any]) -> list[Any]:
        """The inverse of `cut`."""
        flat = [a.reshape(self.count * self.block, *a.shape[2:]) for a in head]
        if self.rest == 0:
            return flat
        return [jnp.concatenate([b, a] if self.reverse else [a, b]) for a, b in zip(flat, tail, strict=True)]
