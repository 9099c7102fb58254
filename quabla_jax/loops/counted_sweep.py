"""The reverse sweep of a counted loop: what Vjp[g, lin] of `counted` runs."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ..lowering import jax_api as api
from . import inplace
from ._lists import merge, omit, pick, split
from .body import Body
from .contractions import Gathered, rows_at_once
from .counted_forward import loop_impl, primal_part
from .schedule import Schedule, Trips
from .steps import ResidualStep


class Sweep:
    """The reverse sweep of Vjp[g, lin] over the loop's pieces, from the last step to the first.

    State between pieces: cotangents of the linear constants so far, and of the linear carries. Every sweep returns the
    cotangents of its piece's linear slices, in the order of the scanned arrays.
    """

    def __init__(self, g: Body, lin, y_lin, plan: Schedule, p):
        self.g, self.y_lin = g, y_lin
        self.c_lin, self.x_lin, self.s_lin = map(list, g.groups(lin))
        avals = g.groups(g.avals)
        self.dc_avals, self.dx_avals, self.ds_avals = (
            pick(m, a) for m, a in zip((self.c_lin, self.x_lin, self.s_lin), avals, strict=True)
        )
        self.c, self.x0, self.s = split(p, *[len(m) - sum(m) for m in (self.c_lin, self.x_lin, self.s_lin)])
        self.primal = primal_part(g, lin)
        # made here, outside the loops: it computes what does not change in them
        self.residual_step = ResidualStep(g, lin, y_lin, self.c) if plan.inner == "residuals" else None

    def over(self, plan: Schedule, kept, s, u, uy, gc):
        """Sweep all pieces of `plan`, whose start carries are `kept`. Returns ((gc, u), cotangents of slices)."""
        n = len(self.x0)
        at_blocks, at_rest = (kept[:n], kept[n:]) if plan.rest else (kept, [])
        (s_blocks, s_tail), (uy_blocks, uy_tail) = plan.cut(s), plan.cut(uy)
        state, us_tail = (gc, u), []
        if plan.rest:
            state, us_tail = self.piece(plan, plan.rest, at_rest, s_tail, state, uy_tail)

        def block(state, inputs):
            x, s, uy = inputs
            return self.piece(plan, plan.block, x, s, state, uy)

        state, us = lax.scan(
            block, state, (at_blocks, s_blocks, uy_blocks), length=plan.count, reverse=not plan.reverse
        )
        return state, plan.paste(us, us_tail)

    def piece(self, plan: Schedule, length: int, x, s, state, uy):
        """Sweep `length` steps that start at the primal carry x."""
        below = plan.below(length)
        gc, u = state
        if below is not None:
            keep = (True,) * len(x)
            out = loop_impl(*self.c, *x, *s, g=self.primal, plan=below, keep=keep)
            return self.over(below, out[len(x) :], s, u, uy, gc)
        trips = Trips(length, plan.reverse, plan.unroll)
        if plan.inner == "rerun":
            return self.over_nothing(trips, x, s, state, uy)
        if self.residual_step is not None:
            step = self.residual_step
            stored = self.forward(trips, step.forward, x, s) if step.parts.stored else []
            return self.back(trips, step.linear, stored, s, state, uy, plan.spare)
        stored = self.forward(trips, lambda x, s: (self.primal([*self.c, *x, *s])[0], x), x, s) if x else []
        return self.back(trips, self.linear_at, stored, s, state, uy, plan.spare)

    def linear_at(self, x, s, d):
        """The linear outputs of one step at the primal carry x and slices s, as a function of its linear inputs."""
        dc, dx, ds = split(d, len(self.dc_avals), len(self.dx_avals), len(self.ds_avals))
        args = [*merge(self.c_lin, dc, self.c), *merge(self.x_lin, dx, x), *merge(self.s_lin, ds, s)]
        x_out, y = self.g(args)
        return [*pick(self.x_lin, x_out), *pick(self.y_lin, y)]

    def forward(self, trips: Trips, step, x, s):
        """Run a piece from the primal carry x; what step(x, s) -> (next x, stored) stores, stacked."""
        f = lambda x, s: step(x, s)
        return lax.scan(f, list(x), list(s), reverse=trips.reverse, **_order(trips))[1]

    def back(self, trips: Trips, linear, stored, s, state, uy, spare: int):
        """Transpose a piece step by step, from the last to the first: linear(stored, s, d) -> linear outputs."""
        gc, u = list(state[0]), list(state[1])
        rows = [*stored, *s, *uy]
        sizes = (len(stored), len(s), len(uy))

        def transposed(*args):
            u, rows = split(args, len(gc_u[1]), len(avals))
            stored, s, uy = split(rows, *sizes)
            return self.transposed(lambda d: linear(stored, s, d), u, uy)

        gc_u = (gc, u)
        avals = [api.row_aval(trips.length, jax.typeof(a)) for a in rows]
        jaxpr, consts = api.trace_flat(transposed, [*map(jax.typeof, u), *avals])
        if inplace.applies(self.g.jaxpr) and inplace.has_hazard(jaxpr):
            run_step = lambda u, rows: inplace.reads_first(jaxpr, [*consts, *u, *rows])
            return self._each(trips, run_step, gc, u, rows)
        gathered = self._gathered(jaxpr, len(consts), len(u), len(stored) + len(s))
        at_once = rows_at_once(trips.length, gathered.step_bytes, spare) if any(gathered.waits) else 1
        if at_once == 1:
            run_step = lambda u, rows: api.eval_jaxpr(jaxpr, (), *consts, *u, *rows)
            return self._each(trips, run_step, gc, u, rows)
        return self._gathering(trips, gathered, consts, at_once, gc, u, rows)

    def _gathered(self, jaxpr, num_consts: int, num_u: int, num_stacks: int) -> Gathered:
        start = num_consts + num_u
        return Gathered(jaxpr, num_consts, len(self.dc_avals), jaxpr.invars[start : start + num_stacks])

    def _each(self, trips: Trips, run_step, gc, u, rows):
        """Add up the cotangents of the constants at every step."""

        def step(state, rows):
            gc, u = state
            gc2, u, us = split(run_step(u, rows), len(gc), len(u), len(self.ds_avals))
            return (_add(gc, gc2), u), us

        return lax.scan(step, (gc, u), rows, reverse=not trips.reverse, **_order(trips))

    def _gathering(self, trips: Trips, gathered: Gathered, consts, at_once: int, gc, u, rows):
        """The same with the sums that wait multiplied once in `at_once` steps."""
        jaxpr, num_fixed = gathered.jaxpr, len(consts)
        fixed = dict(zip(jaxpr.invars[:num_fixed], consts, strict=True))
        invars = jaxpr.invars[num_fixed:]
        few = dataclasses.replace(trips, length=at_once)
        now = [not w for w in gathered.waits]

        def step(state, rows):
            gc, u = state
            env = {**fixed, **dict(zip(invars, [*u, *rows], strict=True))}
            out = api.eval_for(jaxpr, env, gathered.outputs())
            gc2, kept, u, us = split(out, len(gc), len(gathered.kept), len(u), len(self.ds_avals))
            return (_add(gc, gc2), u), (kept, us)

        def some(state, rows):
            gc, u = state
            summed = (pick(now, gc), u)
            (partial, u), (kept, us) = lax.scan(step, summed, rows, reverse=not trips.reverse, **_order(few))
            stacks = dict(zip([*invars[len(u) :], *gathered.kept], [*rows, *kept], strict=True))
            later = _add(omit(now, gc), gathered.multiply(fixed, stacks))
            return (merge(now, partial, later), u), us

        if at_once == trips.length:
            return some((gc, u), rows)
        cut = [a.reshape(trips.length // at_once, at_once, *a.shape[1:]) for a in rows]
        state, us = lax.scan(some, (gc, u), cut, reverse=not trips.reverse)
        return state, [a.reshape(trips.length, *a.shape[2:]) for a in us]

    def over_nothing(self, trips: Trips, x, s, state, uy):
        """Keep only the carry at the piece's start, and run from it again for every step."""
        place = lambda k: trips.length - 1 - k if trips.reverse else k

        def carry_at(n):
            def step(k, x):
                at = [lax.dynamic_index_in_dim(a, place(k), keepdims=False) for a in s]
                return self.primal([*self.c, *x, *at])[0]

            return lax.fori_loop(0, n, step, list(x))

        def back(state, inputs):
            gc, u = state
            k, s, uy = inputs
            gc2, u, us = self.step(carry_at(k), s, u, uy)
            return (_add(gc, gc2), u), us

        order = jnp.arange(trips.length, dtype=jnp.int32)
        order = order[::-1] if trips.reverse else order
        return lax.scan(back, state, (order, list(s), list(uy)), length=trips.length, reverse=not trips.reverse)

    def step(self, x, s, u, uy):
        """The transpose of one step at the primal carry x and slices s: cotangents of constants, carries and slices."""
        transposed = lambda *cts: self.transposed(lambda d: self.linear_at(x, s, d), *split(cts, len(u), len(uy)))
        out = transposed(*u, *uy)
        if inplace.applies(self.g.jaxpr):
            jaxpr, consts = api.trace_flat(transposed, [jax.typeof(t) for t in (*u, *uy)])
            if inplace.has_hazard(jaxpr):
                out = inplace.reads_first(jaxpr, [*consts, *u, *uy])
        return split(out, len(self.dc_avals), len(self.dx_avals), len(self.ds_avals))

    def transposed(self, linear, u, uy) -> list[Any]:
        """Cotangents of the linear inputs of `linear`, a function of all of them."""
        avals = [*self.dc_avals, *self.dx_avals, *self.ds_avals]
        return list(jax.linear_transpose(lambda *d: linear(d), *avals)([*u, *uy]))


def _order(trips: Trips) -> dict[str, Any]:
    return dict(length=trips.length, unroll=max(1, min(trips.unroll, trips.length)))


def _add(a, b):
    return [jnp.add(x, y) for x, y in zip(a, b, strict=True)]
