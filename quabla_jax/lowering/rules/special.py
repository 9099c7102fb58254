"""Special functions."""

from __future__ import annotations

from .. import jax_api
from ..emitter import Emitter
from ..program import Value
from . import register


def _digamma(e: Emitter, eqn, x: Value):
    value = e.op("digamma", x)
    return e.select(e.eq(x, 0), jax_api.DIGAMMA_AT_ZERO, value)


register("digamma_p", "direct", _digamma)
for _name in "erf erfc erf_inv lgamma".split():
    register(_name + "_p", "direct", lambda e, eqn, x, name=_name: e.op(name, x))
