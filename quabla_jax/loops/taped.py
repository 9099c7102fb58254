"""Higher orders of a counted loop whose body's transpose is not linear in the cotangents (see custom_rules.py).

The reverse sweep is then an ordinary program that runs forward with every carry kept and back through the bodies' backward
rules. JAX differentiates it: exact at every order, in memory that grows with the trip count from the second order on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

from ..lowering import jax_api as api
from ._lists import merge, omit, pick
from .body import Batched, Body
from .counted_sweep import Sweep
from .schedule import Schedule

__all__ = ["taped_jvp", "taped_linearize"]


def _sweep(g: Body, lin, y_lin, plan, p, u, uy) -> list[Any]:
    """Vjp[g, lin](p; u, uy) with the whole tape: cotangents of constants, carries and slices in `lin`."""
    one = Schedule(plan.length, (plan.length,), "carry", plan.reverse, plan.unroll)
    sweep = Sweep(g, lin, y_lin, one, p)
    # the carries as a scan's outputs: JAX's derivative of a loop that writes them into an array copies the array
    step = lambda x, s: (sweep.primal([*sweep.c, *x, *s])[0], list(x))
    xs = sweep.forward(one.trips, step, sweep.x0, sweep.s)
    state = ([api.zeros_like_aval(a) for a in sweep.dc_avals], u)
    (gc, u), us = sweep.back(one.trips, sweep.linear_at, xs, sweep.s, state, uy)
    return [*gc, *u, *us]


def _program(parts: Callable, scan_axes: Callable, g: Body, lin, y_lin, plan, keep) -> Callable:
    """The sweep over the arguments of Vjp, of which the kept carries are not needed."""
    if not (isinstance(g, Batched) and g.linear):

        def run(*args):
            p, _, u, uy = parts(args, g, lin, y_lin, plan, keep)
            return _sweep(g, lin, y_lin, plan, p, u, uy)

        return run
    below = _program(parts, scan_axes, g.below, lin, y_lin, plan, None)
    lead = scan_axes(g)
    axes = [k if m else None for m, k in zip(omit(lin, g.mask), omit(lin, lead), strict=True)]

    def mapped(*args):
        p, _, u, uy = parts(args, g, lin, y_lin, plan, keep)
        return g.map_transpose(below, axes, lin, y_lin, lead)(*p, *u, *uy)

    return mapped


def _moving(program: Callable, nonzero: Sequence[bool], primals: Sequence[Any]) -> Callable:
    return lambda *moving: program(*merge(nonzero, moving, omit(nonzero, primals)))


def taped_jvp(primals, tangents, parts, scan_axes, **params):
    """The jvp of Vjp as that of the program; arguments as for a jvp rule, and how the arguments are laid out."""
    nonzero = [not api.is_zero(t) for t in tangents]
    run = _moving(_program(parts, scan_axes, **params), nonzero, primals)
    return jax.jvp(run, tuple(pick(nonzero, primals)), tuple(pick(nonzero, tangents)))


def taped_linearize(nonzero, primals, parts, scan_axes, **params):
    """The linearization of the same: what a linearization rule returns."""
    run = _moving(_program(parts, scan_axes, **params), nonzero, primals)
    out, along = jax.linearize(run, *pick(nonzero, primals))
    linearized = lambda _, *tangents: along(*map(api.instantiate, pick(nonzero, tangents)))
    return out, [True] * len(out), (), linearized
