"""The reverse sweep of a counted loop: what Vjp[g, lin] of `counted` runs."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ..lowering import jax_api as api
from . import inplace
from ._lists import merge, omit, pick, split
from .body import Body
from .contractions import Gathered
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
        return self.back(trips, self.linear_at, self.carries(trips, x, s), s, state, uy, plan.spare)

    def linear_at(self, x, s, d):
        """The linear outputs of one step at the primal carry x and slices s, as a function of its linear inputs."""
        dc, dx, ds = split(d, len(self.dc_avals), len(self.dx_avals), len(self.ds_avals))
        args = [*merge(self.c_lin, dc, self.c), *merge(self.x_lin, dx, x), *merge(self.s_lin, ds, s)]
        x_out, y = self.g(args)
        return [*pick(self.x_lin, x_out), *pick(self.y_lin, y)]

    def carries(self, trips: Trips, x, s):
        """Every step's primal carry, stacked.

        Each is written when it has been computed. Written before its step, as a scan's output is, XLA copies it first and
        compiles a kernel for the step that is not the one of the first pass.
        """
        place = lambda k: trips.length - 1 - k if trips.reverse else k

        def step(k, state):
            x, stacks = state
            at = [lax.dynamic_index_in_dim(a, place(k), keepdims=False) for a in s]
            x = self.primal([*self.c, *x, *at])[0]
            return x, [lax.dynamic_update_index_in_dim(a, v, place(k + 1), 0) for a, v in zip(stacks, x, strict=True)]

        stacks = [lax.broadcast(v, (trips.length,)) for v in x]
        unroll = _order(trips)["unroll"]
        return lax.fori_loop(0, trips.length - 1, step, (list(x), stacks), unroll=unroll)[1] if x else []

    def forward(self, trips: Trips, step, x, s):
        """Run a piece from the primal carry x; what step(x, s) -> (next x, stored) stores, stacked."""
        return lax.scan(lambda x, s: step(x, s), list(x), list(s), reverse=trips.reverse, **_order(trips))[1]

    def back(self, trips: Trips, linear, stored, s, state, uy, spare: int = 0):
        """Transpose a piece step by step, from the last to the first: linear(stored, s, d) -> linear outputs."""
        gc, u = list(state[0]), list(state[1])
        rows = [*stored, *s, *uy]
        one = lambda arrays: [api.row_aval(trips.length, jax.typeof(a)) for a in arrays]
        jaxpr, consts, run = self.transposed(linear, u, one(stored), one(s), one(uy))
        if spare and not self.hazard(jaxpr):
            first = len(consts) + len(u)
            gathered = Gathered(jaxpr, len(consts), len(gc), jaxpr.invars[first : first + len(stored) + len(s)])
            if any(gathered.waits) and trips.length * gathered.step_bytes <= spare:
                return self._gathering(trips, gathered, consts, gc, u, rows)

        def step(state, rows):
            gc, u = state
            gc2, u, us = run([*u, *rows])
            return (_add(gc, gc2), u), us

        return lax.scan(step, (gc, u), rows, reverse=not trips.reverse, **_order(trips))

    def _gathering(self, trips: Trips, gathered: Gathered, consts, gc, u, rows):
        """The same with the sums that wait multiplied once, at the piece's end."""
        jaxpr, num_fixed = gathered.jaxpr, len(consts)
        fixed = dict(zip(jaxpr.invars[:num_fixed], consts, strict=True))
        invars = jaxpr.invars[num_fixed:]
        now = [not w for w in gathered.waits]

        def step(state, rows):
            gc, u = state
            env = {**fixed, **dict(zip(invars, [*u, *rows], strict=True))}
            out = api.eval_for(jaxpr, env, gathered.outputs())
            gc2, kept, u, us = split(out, len(gc), len(gathered.kept), len(u), len(self.ds_avals))
            return (_add(gc, gc2), u), (kept, us)

        state = (pick(now, gc), u)
        (partial, u), (kept, us) = lax.scan(step, state, rows, reverse=not trips.reverse, **_order(trips))
        stacks = dict(zip([*invars[len(u) :], *gathered.kept], [*rows, *kept], strict=True))
        later = _add(omit(now, gc), gathered.multiply(fixed, stacks))
        return (merge(now, partial, later), u), us

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
            gc2, u, us = run([*u, *carry_at(k), *s, *uy])
            return (_add(gc, gc2), u), us

        gc, u = list(state[0]), list(state[1])
        one = lambda arrays: [api.row_aval(trips.length, jax.typeof(a)) for a in arrays]
        *_, run = self.transposed(self.linear_at, u, list(map(jax.typeof, x)), one(s), one(uy))
        order = jnp.arange(trips.length, dtype=jnp.int32)
        order = order[::-1] if trips.reverse else order
        return lax.scan(back, (gc, u), (order, list(s), list(uy)), length=trips.length, reverse=not trips.reverse)

    def hazard(self, jaxpr) -> bool:
        return inplace.applies(self.g.jaxpr) and inplace.has_hazard(jaxpr)

    def transposed(self, linear, u, stored, s, uy):
        """The transpose of one step, linear(stored, s, d) -> linear outputs, for inputs of these types.

        Returns a jaxpr, the constants that lead its inputs, and the function (u, stored, s, uy), flat, to the cotangents of
        constants, carries and slices.
        """
        avals = [*self.dc_avals, *self.dx_avals, *self.ds_avals]

        def transpose(*args):
            u_, stored_, s_, uy_ = split(args, len(u), len(stored), len(s), len(uy))
            return list(jax.linear_transpose(lambda *d: linear(stored_, s_, d), *avals)([*u_, *uy_]))

        jaxpr, consts = api.trace_flat(transpose, [*map(jax.typeof, u), *stored, *s, *uy])
        evaluate = inplace.reads_first if self.hazard(jaxpr) else lambda jaxpr, args: api.eval_jaxpr(jaxpr, (), *args)
        groups = len(self.dc_avals), len(self.dx_avals), len(self.ds_avals)
        return jaxpr, consts, lambda args: split(evaluate(jaxpr, [*consts, *args]), *groups)


def _order(trips: Trips) -> dict[str, Any]:
    return dict(length=trips.length, unroll=max(1, min(trips.unroll, trips.length)))


def _add(a, b):
    return [jnp.add(x, y) for x, y in zip(a, b, strict=True)]
