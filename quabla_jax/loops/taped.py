"""Higher orders of a counted loop whose body's transpose is not linear in the cotangents (see custom_rules.py).

The reverse sweep is then an ordinary program that runs forward with every carry kept and back through the bodies' backward
rules. JAX differentiates it: exact at every order, in memory that grows with the trip count from the second order on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import lax

from ..lowering import jax_api as api
from ._lists import merge, omit, pick, split
from .body import Batched, Body

__all__ = ["taped_jvp", "taped_linearize"]


def _sweep(g: Body, lin, y_lin, plan, p, u, uy) -> list[Any]:
    """Vjp[g, lin](p; u, uy) with the whole tape: cotangents of constants, carries and slices in `lin`."""
    c_lin, x_lin, s_lin = map(list, g.groups(lin))
    c, x, s = split(p, *[len(m) - sum(m) for m in (c_lin, x_lin, s_lin)])
    avals: list[Any] = [pick(m, a) for m, a in zip((c_lin, x_lin, s_lin), g.groups(g.avals), strict=True)]
    primal = g.known(lin, [False] * g.num_ys)
    order: dict[str, Any] = dict(length=plan.length)

    def forward(x, s):
        return primal([*c, *x, *s])[0], x

    def transposed(x, s, u, uy):
        def f(dc, dx, ds):
            x_out, y = g([*merge(c_lin, dc, c), *merge(x_lin, dx, x), *merge(s_lin, ds, s)])
            return pick(x_lin, x_out), pick(y_lin, y)

        return jax.linear_transpose(f, *avals)((list(u), list(uy)))

    def back(state, inputs):
        gc, u = state
        x, s, uy = inputs
        gc2, u, us = transposed(x, s, u, uy)
        return (list(map(jax.numpy.add, gc, gc2)), list(u)), list(us)

    _, xs = lax.scan(forward, list(x), list(s), reverse=plan.reverse, **order)
    state = ([api.zeros_like_aval(a) for a in avals[0]], list(u))
    (gc, u), us = lax.scan(back, state, (xs, list(s), list(uy)), reverse=not plan.reverse, **order)
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
        return g.vmap(below, [*axes, *[0] * len(u), *[1] * len(uy)], pick(lin, lead))(*p, *u, *uy)

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
