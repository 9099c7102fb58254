"""What one step of a loop costs, read off its jaxpr: the numbers behind checkpoint="auto".

The model is coarse on purpose. It ranks three ways to run a reverse sweep, which differ in how often the body runs and in
where its intermediate values wait: in memory that is written once and read much later (the full tape), or in a block's
worth of memory that is used again and again and stays near the processor.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import os
from collections.abc import Sequence
from typing import Any

import jax

from ..lowering import jax_api as api
from ._lists import omit, pick
from .body import Body
from .inplace import overwritten


@dataclasses.dataclass(frozen=True)
class Machine:
    """Rates of a kind of machine, in operations or bytes a second; orders of magnitude, not measurements of this one."""

    dot: float
    simple: float
    transcendental: float
    near: float  # values that wait in a buffer of at most near_bytes
    far: float  # values that wait in a larger buffer, used again and again
    fresh: float  # values that wait in memory touched for the first time, which the system must map and clear
    near_bytes: int
    launch: float
    memory: int


CPU: dict[str, Any] = dict(
    dot=4e10, simple=4e9, transcendental=6e8, near=2e10, far=8e9, fresh=1e9, near_bytes=2 << 20, launch=3e-7
)
ACCELERATOR: dict[str, Any] = dict(
    dot=2e13, simple=4e11, transcendental=2e11, near=2e12, far=1e12, fresh=1e12, near_bytes=32 << 20, launch=5e-6
)


@functools.cache
def _machine(platform: str) -> Machine:
    if platform == "cpu":
        return Machine(**CPU, memory=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    stats = jax.local_devices(backend=platform)[0].memory_stats() or {}
    return Machine(**ACCELERATOR, memory=stats.get("bytes_limit", 16 << 30))


def machine() -> Machine:
    """The rates for JAX's default backend."""
    return _machine(jax.default_backend())


TRANSCENDENTAL = frozenset(
    "exp exp2 expm1 log log1p sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh atanh logistic erf erfc "
    "erf_inv lgamma digamma pow cbrt rsqrt sqrt igamma bessel_i0e bessel_i1e".split()
)
FREE = frozenset(
    "broadcast_in_dim reshape squeeze expand_dims convert_element_type copy stop_gradient pjit jit".split()
)


@dataclasses.dataclass(frozen=True)
class StepCost:
    """Costs of one step.

    Attributes:
        carry_bytes: the carries that the derivative depends on.
        residual_bytes: what the derivative needs of a forward step (what a scan's full tape stores).
        forward: seconds of the forward step, of its needed part alone.
        backward: seconds of its transpose, residuals at hand.
        overwritten_bytes: carries that a step updates in part; XLA copies their cotangents at every step of a transposed
            scan, and does not in the engine's own sweep over carries (inplace.py).
    """

    carry_bytes: int
    residual_bytes: int
    forward: float
    backward: float
    overwritten_bytes: int = 0

    @classmethod
    def from_sizes(cls, carry_bytes: int, residual_bytes: int) -> StepCost:
        """A step of which only sizes are known: one pass of simple arithmetic over the carry."""
        m = machine()
        forward = carry_bytes / 4 / m.simple + m.launch
        return cls(carry_bytes, residual_bytes, forward, 2 * forward)

    def full_tape(self, length: int) -> float:
        """Seconds of forward and reverse pass with every step's residuals stored."""
        seconds = length * (self.forward + self.backward + _near(self.overwritten_bytes, 1))
        return seconds + _traffic(self.residual_bytes, length)

    def in_blocks(self, length: int, levels: int, piece: int, inner: str) -> float:
        """The same with `levels` levels of blocks and an innermost piece of `piece` steps."""
        runs = 1 + levels
        seconds = length * (runs * self.forward + self.backward)
        if inner == "carry":
            # the sweep linearizes each step again
            return seconds + length * self.forward + length * _near(self.carry_bytes, piece)
        return seconds + length * (_near(self.residual_bytes, piece) + _near(self.overwritten_bytes, 1))


def _near(nbytes: int, piece: int) -> float:
    """Seconds a step to write and read values that live in a buffer of `piece` steps."""
    m = machine()
    return 2 * nbytes / (m.near if nbytes * piece <= m.near_bytes else m.far)


def _traffic(nbytes: int, length: int) -> float:
    m = machine()
    total = nbytes * length
    return 2 * total / m.near if total <= m.near_bytes else total / m.far + total / m.fresh


def nbytes(aval: Any) -> int:
    shape, dtype = api.physical_aval(aval)
    return math.prod(shape) * dtype.itemsize


def step_cost(g: Body, lin: Sequence[bool], y_lin: Sequence[bool]) -> StepCost:
    """The costs of a loop whose tangent part is g, linear in `lin`."""
    carry = sum(map(nbytes, omit(g.carry(lin), g.x_avals)))
    lead = len(g.consts)
    nc, nx, ns = g.sizes
    invariant = [True] * (lead + nc) + [False] * nx + [False] * ns
    residuals = api.residual_avals(g.jaxpr, [*[False] * lead, *lin], invariant)
    primal = g.known(lin, [False] * g.num_ys)
    whole = seconds(g.jaxpr)
    linear = {id(v) for v in pick(g.carry(lin), g.carry(g.jaxpr.invars[lead:]))}
    copied = sum(nbytes(v.aval) for v in overwritten(g.jaxpr) if id(v) in linear)
    return StepCost(carry, sum(map(nbytes, residuals)), seconds(primal.jaxpr) + machine().launch, whole, copied)


def seconds(jaxpr: Any) -> float:
    """Expected time of one evaluation of a jaxpr."""
    inner = jaxpr.jaxpr if hasattr(jaxpr, "jaxpr") else jaxpr
    return sum(_equation_seconds(e) for e in inner.eqns)


def _equation_seconds(eqn: Any) -> float:
    name = eqn.primitive.name
    m = machine()
    subs = [j for p in eqn.params.values() for j in _jaxprs(p)]
    if name == "scan" or name == "checkpointed_loop":
        length = eqn.params.get("length") or getattr(eqn.params.get("plan"), "length", 1)
        return length * sum(map(seconds, subs)) + m.launch
    if name == "cond":
        return max(map(seconds, subs), default=0.0)
    if name == "while":
        return 10 * sum(map(seconds, subs))
    if subs:
        return sum(map(seconds, subs))
    size = sum(math.prod(getattr(v.aval, "shape", ())) for v in eqn.outvars)
    if name == "dot_general":
        (contract, _), _ = eqn.params["dimension_numbers"]
        shape = eqn.invars[0].aval.shape
        return 2 * size * math.prod(shape[i] for i in contract) / m.dot
    if name in FREE:
        return 0.0
    if name in TRANSCENDENTAL:
        return size / m.transcendental
    if name in ("dynamic_update_slice", "scatter", "scatter-add"):
        # in place inside a loop: what is written, not what it is written into
        size = math.prod(eqn.invars[-2 if name != "dynamic_update_slice" else 1].aval.shape)
    return size / m.simple


def _jaxprs(value: Any):
    if isinstance(value, Body):
        yield value.jaxpr
    elif hasattr(value, "eqns") or hasattr(value, "jaxpr"):
        yield value
    elif isinstance(value, (list, tuple)):
        for v in value:
            yield from _jaxprs(v)


__all__ = ["Machine", "StepCost", "machine", "nbytes", "seconds", "step_cost"]
