"""Special functions."""

from __future__ import annotations

from . import register

for _name in "erf erfc erf_inv lgamma digamma".split():
    register(_name + "_p", "direct", lambda e, eqn, x, name=_name: e.op(name, x))
