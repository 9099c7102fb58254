"""What one step of a loop costs, read off its jaxpr: the numbers behind checkpoint="auto".

The model is coarse on purpose. It ranks three ways to run a reverse sweep, which differ in how often the body runs and in
where its intermediate values wait: in memory that is written once and read much later (the full tape), or in a block's
worth of memory that is used again and again and stays near the processor.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ..lowering import jax_api as api
from ._lists import omit, pick
from .body import Body
from .contractions import gatherable, worth
from .inplace import overwritten
from .rates import machine, nbytes, seconds, sum_seconds
from .steps import Parts


@dataclasses.dataclass(frozen=True)
class StepCost:
    """Costs of one step.

    Attributes:
        carry_bytes: the carries that the derivative depends on.
        residual_bytes: what the derivative needs of a forward step (what a scan's full tape stores).
        stored_bytes: what a sweep over residuals stores of it, the rest computed again (steps.py).
        forward: seconds of the forward step, of its needed part alone.
        backward: seconds of its transpose, residuals at hand.
        again: seconds of computing the residuals that are not stored.
        summed_bytes: constants whose cotangents are added up at every step; gathered_bytes: those among them of which a
            sweep in blocks can add up a whole piece at once (contractions.py).
        overwritten_bytes: carries that a step updates in part; XLA copies their cotangents at every step of a transposed
            scan, and does not in the engine's own sweeps (inplace.py).
    """

    carry_bytes: int
    residual_bytes: int
    stored_bytes: int
    forward: float
    backward: float
    again: float = 0.0
    summed_bytes: int = 0
    gathered_bytes: int = 0
    overwritten_bytes: int = 0

    @classmethod
    def from_sizes(cls, carry_bytes: int, residual_bytes: int) -> StepCost:
        """A step of which only sizes are known: one pass of simple arithmetic over the carry."""
        m = machine()
        forward = carry_bytes / 4 / m.simple + m.launch
        return cls(carry_bytes, residual_bytes, residual_bytes, forward, 2 * forward)

    def full_tape(self, length: int) -> float:
        """Seconds of forward and reverse pass with every step's residuals stored."""
        added = sum_seconds(self.summed_bytes) + _near(self.overwritten_bytes, 1)
        seconds = length * (self.forward + self.backward + added)
        return seconds + _traffic(self.residual_bytes, length)

    def in_blocks(self, length: int, levels: int, piece: int, inner: str) -> float:
        """The same with `levels` levels of blocks and an innermost piece of `piece` steps."""
        runs = 1 + levels
        gathered = self.gathered_bytes if worth(length, self.gathered_bytes) else 0
        added = sum_seconds(self.summed_bytes - gathered)
        seconds = length * (runs * self.forward + self.backward + added) + 2 * length / piece * machine().block
        if inner == "carry":
            # the sweep linearizes each step again
            return seconds + length * (self.forward + _near(self.carry_bytes, piece))
        return seconds + length * (self.again + _near(self.stored_bytes, piece))


def _near(nbytes: int, piece: int) -> float:
    """Seconds a step to write and read values that live in a buffer of `piece` steps."""
    m = machine()
    return 2 * nbytes / (m.near if nbytes * piece <= m.near_bytes else m.far)


def _traffic(nbytes: int, length: int) -> float:
    """Seconds to write a whole tape and read it once."""
    m = machine()
    total = nbytes * length
    if total <= m.reused:
        return 2 * total / (m.near if total <= m.near_bytes else m.far)
    return total / m.far + total / m.fresh


def step_cost(g: Body, lin: Sequence[bool], y_lin: Sequence[bool]) -> StepCost:
    """The costs of a loop whose tangent part is g, linear in `lin`; reckoned once a body."""
    return g.once(("cost", tuple(lin), tuple(y_lin)), lambda: _step_cost(g, lin, y_lin))


def _step_cost(g: Body, lin: Sequence[bool], y_lin: Sequence[bool]) -> StepCost:
    carry = sum(map(nbytes, omit(g.carry(lin), g.x_avals)))
    lead = len(g.consts)
    nc, nx, ns = g.sizes
    invariant = [True] * (lead + nc) + [False] * nx + [False] * ns
    residuals = api.residual_avals(g.jaxpr, [*[False] * lead, *lin], invariant)
    parts = Parts.of(g, lin, y_lin)
    primal = g.known(lin, [False] * g.num_ys)
    forward = seconds(primal.jaxpr) + machine().launch
    linear = {id(v) for v in pick(g.carry(lin), g.carry(g.jaxpr.invars[lead:]))}
    copied = sum(nbytes(v.aval) for v in overwritten(g.jaxpr) if id(v) in linear)
    constants = parts.linear_constants()
    return StepCost(
        carry_bytes=carry,
        residual_bytes=sum(map(nbytes, residuals)),
        stored_bytes=parts.stored_bytes(),
        forward=forward,
        backward=seconds(parts.linear),
        again=parts.again_seconds(),
        summed_bytes=sum(nbytes(v.aval) for v in constants),
        gathered_bytes=sum(nbytes(v.aval) for v in constants if gatherable(parts.linear, v)),
        overwritten_bytes=copied,
    )


__all__ = ["StepCost", "step_cost"]
