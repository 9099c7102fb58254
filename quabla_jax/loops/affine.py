"""Whether a program is linear in some of its inputs, or affine: with a part that does not vanish where they do.

JAX transposes both alike, and drops the part. `marks` tells them apart by data flow: an output is ZERO, FREE of the inputs,
LINEAR in them, or MIXED, the sum of a linear part and one that is free. It is asked of programs that JAX can transpose.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from ..lowering import jax_api as api
from ._lists import split

ZERO, FREE, LINEAR, MIXED = range(4)
_PRODUCTS = ("mul", "dot_general", "conv_general_dilated", "div", "and")
_KEEP_ZERO = (
    "broadcast_in_dim convert_element_type reshape neg copy copy_p squeeze expand_dims transpose reduce_sum cumsum rev slice "
    "dynamic_slice gather pvary real imag concatenate pad select_n add sub add_any dynamic_update_slice scatter-add "
    "sharding_constraint reduce_precision"
).split()
_CALLS = (api.jit_p, api.remat_p)


def _of_value(value: Any) -> int:
    if isinstance(value, api.Tracer) or jax.numpy.issubdtype(jax.typeof(value).dtype, jax.dtypes.extended):
        return FREE
    return FREE if np.size(value) > 4096 or np.any(np.asarray(value)) else ZERO


def marks(jaxpr: Any, consts: Sequence[Any], inputs: Sequence[int]) -> list[int]:
    """The marks of a constant-free jaxpr's outputs.

    Arguments:
        jaxpr: its first inputs are `consts` (values or tracers).
        inputs: the marks of all inputs; those of the constants are replaced where they are known to be zero.
    """
    env = dict(zip(jaxpr.invars, [*map(_of_value, consts), *inputs[len(consts) :]], strict=True))
    read = lambda v: env[v] if api.is_var(v) else _of_value(v.val)
    for eqn in jaxpr.eqns:
        env.update(zip(eqn.outvars, _equation(eqn, [read(v) for v in eqn.invars]), strict=True))
    return [read(v) for v in jaxpr.outvars]


def _equation(eqn: Any, ins: list[int]) -> list[int]:
    name, every = eqn.primitive.name, lambda mark: [mark] * len(eqn.outvars)
    if eqn.primitive in _CALLS:
        flat, consts = api.detach_consts(api.as_closed(eqn.params["jaxpr"]))
        return marks(flat, consts, [*[FREE] * len(consts), *ins])
    if eqn.primitive is api.scan_p:
        return _scan(eqn, ins)
    if eqn.primitive is api.cond_p:
        return _cond(eqn, ins)
    if name in _PRODUCTS and ZERO in ins:
        return every(ZERO)
    if all(m == ZERO for m in ins) and ins and name in _KEEP_ZERO:
        return every(ZERO)
    if MIXED in ins:
        return every(MIXED)
    if LINEAR not in ins:
        return every(FREE)
    if not _floats(eqn):  # truncated to integers on the way
        return every(MIXED)
    return every(MIXED if FREE in _summands(name, eqn, ins) else LINEAR)


def _floats(eqn: Any) -> bool:
    return all(jax.numpy.issubdtype(v.aval.dtype, jax.numpy.inexact) for v in eqn.outvars)


def _summands(name: str, eqn: Any, ins: list[int]) -> list[int]:
    """The marks of the operands that an equation adds up or puts side by side."""
    if name in ("add", "sub", "add_any", "concatenate", "pad"):
        return ins
    if name == "select_n":
        return ins[1:]
    if name == "dynamic_update_slice":
        return ins[:2]
    return [ins[0], ins[2]] if name.startswith("scatter") else []


def _join(a: int, b: int) -> int:
    """The mark of a value that has one mark or the other."""
    return b if a == ZERO else a if b in (ZERO, a) else MIXED


def _scan(eqn: Any, ins: list[int]) -> list[int]:
    p = api.scan_equation(eqn)
    flat, consts = api.detach_consts(api.as_closed(p["jaxpr"]))
    c, x, s = split(ins, *p["sizes"])
    while True:
        out = marks(flat, consts, [*[FREE] * len(consts), *c, *x, *s])
        grown = list(map(_join, x, out))
        if grown == x:
            return [*x, *out[len(x) :]]
        x = grown


def _cond(eqn: Any, ins: list[int]) -> list[int]:
    every = []
    for branch in eqn.params["branches"]:
        flat, consts = api.detach_consts(branch)
        every.append(marks(flat, consts, [*[FREE] * len(consts), *ins[1:]]))
    return [functools.reduce(_join, ms) for ms in zip(*every)]
