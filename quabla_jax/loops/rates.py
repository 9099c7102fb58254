"""What arithmetic and memory cost on a kind of machine: expected seconds of a jaxpr."""

from __future__ import annotations

import dataclasses
import functools
import math
import os
from typing import Any

import jax

from ..lowering import jax_api as api
from .body import Body


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
    block: float  # what starts and ends with a block: its loops, and the clearing of their buffers
    reused: int  # the largest buffer that is memory of an earlier call, not fresh
    memory: int


CPU: dict[str, Any] = dict(
    dot=4e10,
    simple=4e9,
    transcendental=1.2e9,
    near=2e10,
    far=8e9,
    fresh=2e9,
    near_bytes=1 << 19,  # a core's own cache
    launch=3e-7,
    block=3e-5,
    reused=32 << 20,
)
ACCELERATOR: dict[str, Any] = dict(
    dot=2e13,
    simple=4e11,
    transcendental=2e11,
    near=2e12,
    far=1e12,
    fresh=1e12,
    near_bytes=32 << 20,
    launch=5e-6,
    block=5e-5,
    reused=0,
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


def nbytes(aval: Any) -> int:
    shape, dtype = api.physical_aval(aval)
    return math.prod(shape) * dtype.itemsize


def sum_seconds(nbytes: int) -> float:
    """Expected time of adding one array to another in place."""
    return 3 * nbytes / machine().near


def seconds(jaxpr: Any) -> float:
    """Expected time of one evaluation of a jaxpr."""
    inner = jaxpr.jaxpr if hasattr(jaxpr, "jaxpr") else jaxpr
    return sum(equation_seconds(e) for e in inner.eqns)


def equation_seconds(eqn: Any) -> float:
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


__all__ = ["Machine", "equation_seconds", "machine", "nbytes", "seconds", "sum_seconds"]
