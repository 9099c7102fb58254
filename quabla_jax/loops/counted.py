"""The counted loop and its derivatives: four primitives closed under jvp, vjp, vmap and partial evaluation.

With a body g(c, x, s) -> (x', y), its jvp `dual(g)`, and a mask `lin` of inputs in which a body is linear:

  Loop[g](c, x0, s; keep)               -> x_T, ys, kept     kept: the carry at every block's start
  Lin[g, lin](p, kept; d)               -> the outputs that depend on d
  Vjp[g, lin](p, kept; u, uy)           -> cotangents of d: the transpose of Lin
  VTan[g, lin, m](p, u, uy; dp, du, duy) -> the derivative of Vjp (with `both`, also Vjp's own value, for one sweep)

p are the inputs that `lin` leaves out, d those it names; u and uy are cotangents of the linear carries and outputs.
The identities that close the family, in one line each (docs/engine.md derives them):

  jvp Loop[g] = Loop[dual g]                      vjp Loop[g] = Vjp[dual g] at the carries that Loop kept
  jvp Vjp[g](p; u) along (p', u') = Vjp[dual g](p, p'; u' on the outputs, u on their tangents)
  vjp Vjp[g] = Vjp[dual g](p, v; 0, u) together with Lin[g](p; v)

`kept` repeats values that (c, x0, s) determine, so it has no tangent: all derivatives flow through the other inputs.
A schedule is never differentiated; the higher derivatives are loops of their own, with a schedule of their own.

This file holds the primitives and what they compute; `counted_rules` and `counted_batching` hold their rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ..lowering import jax_api as api
from . import inplace
from ._lists import fill, merge, omit, pick, split
from .body import Batched, Body
from .custom_rules import refuse_forward_mode
from .schedule import Schedule, Trips

# ---- types and argument lists


def y_stacks(g: Body, length: int) -> list[Any]:
    return [api.stacked_aval(length, a) for a in g.y_avals]


def input_avals(g: Body, length: int) -> list[Any]:
    """Types of the whole loop's inputs: constants, carry, scanned arrays."""
    c, x, s = g.groups(g.avals)
    return [*c, *x, *[api.stacked_aval(length, a) for a in s]]


def num_kept(plan: Any, keep: Sequence[bool] | None) -> int:
    return 0 if keep is None else sum(keep) * (2 if plan.rest else 1)


def kept_avals(g: Body, plan: Schedule, keep: Sequence[bool]) -> list[Any]:
    """One [count, ...] stack for each kept carry, then, where the blocks leave a rest, the carries at its start."""
    k = pick(keep, g.x_avals)
    return [api.stacked_aval(plan.count, a) for a in k] + (k if plan.rest else [])


def keep_for(g: Body, lin: Sequence[bool]) -> tuple[bool, ...]:
    """The carries that a reverse sweep over `lin` starts from: all that are not linear."""
    return tuple(not m for m in g.carry(lin))


def primal_part(g: Body, lin: Sequence[bool], y_mask: Sequence[bool] | None = None) -> Body:
    """The body of the inputs that `lin` leaves out, with the y in `y_mask` (none by default)."""
    return g.known(lin, [False] * g.num_ys if y_mask is None else y_mask)


# ---- Loop


def run(g: Body, args: Sequence[Any], trips: Trips) -> list[Any]:
    """The loop as one jax.lax.scan: [*x_T, *ys]."""
    if trips.length == 0:
        c, x, s = g.groups(args)
        return [*x, *map(api.zeros_like_aval, y_stacks(g, 0))]
    return api.scan_p.bind(*args, **scan_params(g, trips))


def scan_params(g: Body, trips: Trips) -> dict[str, Any]:
    """The parameters of jax.lax.scan's primitive for the whole loop."""
    unroll = min(trips.unroll, trips.length)
    return api.scan_params(g.closed, g.sizes, g.num_ys, trips.length, trips.reverse, unroll)


def loop_impl(*args, g: Body, plan: Any, keep: Sequence[bool] | None) -> list[Any]:
    if keep is None:
        refuse_forward_mode(g.jaxpr)
        return run(g, args, plan if isinstance(plan, Trips) else plan.trips)
    c, x, s = g.groups(args)
    blocks, tail = plan.cut(s)

    def block(x, s):
        out = run(g, [*c, *x, *s], Trips(plan.block, plan.reverse, plan.unroll))
        x2, y = split(out, g.sizes[1], g.num_ys)
        return x2, (pick(keep, x), y)

    x, (kept, y) = lax.scan(block, list(x), blocks, length=plan.count, reverse=plan.reverse)
    if not plan.rest:
        return [*x, *plan.paste(y, []), *kept]
    at_rest = pick(keep, x)
    out = run(g, [*c, *x, *tail], Trips(plan.rest, plan.reverse, plan.unroll))
    x, y_tail = split(out, g.sizes[1], g.num_ys)
    return [*x, *plan.paste(y, y_tail), *kept, *at_rest]


def loop_avals(*_, g: Body, plan: Any, keep: Sequence[bool] | None) -> list[Any]:
    kept = [] if keep is None else kept_avals(g, plan, keep)
    return [*g.x_avals, *y_stacks(g, plan.length), *kept]


# ---- Lin


def lin_impl(*args, g: Body, lin, y_lin, plan: Schedule, keep, linear: bool) -> list[Any]:
    p, _, d = split(args, len(lin) - sum(lin), num_kept(plan, keep), sum(lin))
    x, y = split(run(g, merge(lin, d, p), plan.trips), g.sizes[1], g.num_ys)
    return [*pick(g.carry(lin), x), *pick(y_lin, y)]


def lin_avals(*_, g: Body, lin, y_lin, plan: Schedule, keep, linear: bool) -> list[Any]:
    return [*pick(g.carry(lin), g.x_avals), *pick(y_lin, y_stacks(g, plan.length))]


# ---- Vjp


class _Sweep:
    """The reverse sweep of Vjp[g, lin] over the loop's pieces, from the last step to the first.

    State between pieces: cotangents of the linear constants so far, and of the linear carries. Every sweep returns the
    cotangents of its piece's linear slices, in the order of the scanned arrays.
    """

    def __init__(self, g: Body, lin, y_lin, p):
        self.g, self.y_lin = g, y_lin
        self.c_lin, self.x_lin, self.s_lin = map(list, g.groups(lin))
        avals = g.groups(g.avals)
        self.dc_avals, self.dx_avals, self.ds_avals = (
            pick(m, a) for m, a in zip((self.c_lin, self.x_lin, self.s_lin), avals, strict=True)
        )
        self.c, self.x0, self.s = split(p, *[len(m) - sum(m) for m in (self.c_lin, self.x_lin, self.s_lin)])
        self.primal = primal_part(g, lin)

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
        if plan.inner == "residuals":
            return self.over_residuals(trips, x, s, state, uy)
        if plan.inner == "rerun":
            return self.over_nothing(trips, x, s, state, uy)
        return self.over_carries(trips, x, s, state, uy)

    def over_residuals(self, trips: Trips, x, s, state, uy):
        """Let JAX transpose the piece as one scan, which stores its residuals."""
        gc, u = state

        def f(dc, dx, ds):
            args = [*merge(self.c_lin, dc, self.c), *merge(self.x_lin, dx, x), *merge(self.s_lin, ds, s)]
            x_out, y = split(run(self.g, args, trips), self.g.sizes[1], self.g.num_ys)
            return pick(self.x_lin, x_out), pick(self.y_lin, y)

        ds_avals = [api.stacked_aval(trips.length, a) for a in self.ds_avals]
        gc2, u, us = jax.linear_transpose(f, self.dc_avals, self.dx_avals, ds_avals)((list(u), list(uy)))
        return (_add(gc, gc2), u), us

    def over_carries(self, trips: Trips, x, s, state, uy):
        """Keep every step's carry, then transpose step by step."""
        order: dict[str, Any] = dict(length=trips.length, unroll=max(1, min(trips.unroll, trips.length)))

        def forward(x, s):
            return self.primal([*self.c, *x, *s])[0], x

        _, xs = lax.scan(forward, list(x), list(s), reverse=trips.reverse, **order) if x else ([], [])

        def back(state, inputs):
            gc, u = state
            x, s, uy = inputs
            gc2, u, us = self.step(x, s, u, uy)
            return (_add(gc, gc2), u), us

        return lax.scan(back, state, (xs, list(s), list(uy)), reverse=not trips.reverse, **order)

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
        """The transpose of one step in its linear inputs, at the primal carry x and slices s."""

        def f(dc, dx, ds):
            args = [*merge(self.c_lin, dc, self.c), *merge(self.x_lin, dx, x), *merge(self.s_lin, ds, s)]
            x_out, y = self.g(args)
            return pick(self.x_lin, x_out), pick(self.y_lin, y)

        def transposed(*cts):
            ct = split(cts, len(u), len(uy))
            gc, gx, gs = jax.linear_transpose(f, self.dc_avals, self.dx_avals, self.ds_avals)(tuple(ct))
            return [*gc, *gx, *gs]

        if jax.default_backend() != "cpu" or not inplace.overwritten(self.g.jaxpr):
            out = transposed(*u, *uy)
        else:
            jaxpr, consts = api.trace_flat(transposed, [jax.typeof(t) for t in (*u, *uy)])
            run_step = inplace.reads_first if inplace.has_hazard(jaxpr) else lambda j, a: api.eval_jaxpr(j, (), *a)
            out = run_step(jaxpr, [*consts, *u, *uy])
        return split(out, len(self.dc_avals), len(self.dx_avals), len(self.ds_avals))


def _add(a, b):
    return [jnp.add(x, y) for x, y in zip(a, b, strict=True)]


def vjp_impl(*args, g: Body, lin, y_lin, plan: Schedule, keep) -> list[Any]:
    if isinstance(g, Batched) and g.linear:
        return _mapped_vjp(args, g, lin, y_lin, plan, keep)
    p, kept, u, uy = split(args, *vjp_sizes(g, lin, y_lin, plan, keep))
    sweep = _Sweep(g, lin, y_lin, p)
    gc = [api.zeros_like_aval(a) for a in sweep.dc_avals]
    (gc, u), us = sweep.over(plan, kept, sweep.s, u, uy, gc)
    return [*gc, *u, *us]


def _mapped_vjp(args, g: Batched, lin, y_lin, plan: Schedule, keep) -> list[Any]:
    """Transpose the body below, then map: see `Batched`."""
    xs_kept = omit(g.carry(lin), g.carry(g.mask))
    lead = scan_axes(g)
    axes = [
        *[k if m else None for m, k in zip(omit(lin, g.mask), omit(lin, lead), strict=True)],
        *kept_axes(plan, xs_kept),
        *[0] * sum(g.carry(lin)),
        *[1] * sum(y_lin),
    ]

    def f(*a):
        return vjp_impl(*a, g=g.below, lin=lin, y_lin=y_lin, plan=plan, keep=keep)

    return g.vmap(f, axes, pick(lin, lead))(*args)


def scan_axes(g: Body) -> list[int]:
    """Where a batch axis stands in each input: in front, or behind the scanned axis."""
    return [0] * (g.sizes[0] + g.sizes[1]) + [1] * g.sizes[2]


def kept_axes(plan: Any, mask: Sequence[bool]) -> list[int | None]:
    """The same for the kept carries whose `mask` is true."""
    return [1 if m else None for m in mask] + ([0 if m else None for m in mask] if plan.rest else [])


def vjp_sizes(g: Body, lin, y_lin, plan, keep) -> tuple[int, int, int, int]:
    return len(lin) - sum(lin), num_kept(plan, keep), sum(g.carry(lin)), sum(y_lin)


def vjp_avals(*_, g: Body, lin, y_lin, plan: Schedule, keep) -> list[Any]:
    return pick(lin, input_avals(g, plan.length))


# ---- VTan


def vtan_sizes(g: Body, lin, y_lin, plan, m, both) -> tuple[int, ...]:
    nu, ny = sum(g.carry(lin)), sum(y_lin)
    return len(lin) - sum(lin), nu, ny, sum(m), nu, ny


def vtan_dual(g: Body, lin, y_lin, m):
    """dual(g) in the perturbed primals m and the linear inputs: (M, body, its linear inputs, its linear y)."""
    big, y_big = g.perturbed([a or b for a, b in zip(m, lin, strict=True)])
    y_big = tuple(a or b for a, b in zip(y_big, y_lin, strict=True))
    h = g.dual(big, y_big)
    return big, h, tuple(g.weave(lin, pick(big, lin), big)), (*y_lin, *pick(y_big, y_lin))


def vtan_impl(*args, g: Body, lin, y_lin, plan: Schedule, m, both: bool) -> list[Any]:
    p, u, uy, dp, du, duy = split(args, *vtan_sizes(g, lin, y_lin, plan, m, both))
    big, h, lin2, y_lin2 = vtan_dual(g, lin, y_lin, m)
    tangents = pick(big, fill(m, dp))
    q = omit(lin2, g.weave(fill([not b for b in lin], p), tangents, big))
    # every linear carry and output is in `big`: u' stands on it, u on its tangent
    ct = vjp_call(h, lin2, y_lin2, plan, q, [*du, *u], [*duy, *uy])
    on_primal, on_tangent = g.unweave(big, fill(lin2, ct))
    derivative = pick(lin, on_primal)
    return [*pick(pick(big, lin), on_tangent), *derivative] if both else derivative


def vtan_avals(*_, g: Body, lin, y_lin, plan: Schedule, m, both: bool) -> list[Any]:
    return pick(lin, input_avals(g, plan.length)) * (2 if both else 1)


# ---- the primitives, and how rules bind them


def _compiled(p, *args, g: Body, **params):
    """Evaluation outside every trace: one compiled program for a body and its parameters, dropped with the body."""
    key = (p, tuple(params.items()))
    return g.once(key, lambda: jax.jit(lambda *a: p.bind(*a, g=g, **params)))(*args)


loop_p = api.define_primitive("checkpointed_loop", loop_impl, loop_avals, _compiled)
lin_p = api.define_primitive("checkpointed_loop_lin", lin_impl, lin_avals, _compiled)
vjp_p = api.define_primitive("checkpointed_loop_vjp", vjp_impl, vjp_avals, _compiled)
vtan_p = api.define_primitive("checkpointed_loop_vtan", vtan_impl, vtan_avals, _compiled)


def run_known(g: Body, lin, y_mask, plan: Schedule, p):
    """Loop over the part that `lin` leaves out: (carries, ys in `y_mask`, kept)."""
    part = primal_part(g, lin, y_mask)
    keep = (True,) * part.sizes[1]
    out = loop_p.bind(*p, g=part, plan=plan, keep=keep)
    return split(out, part.sizes[1], part.num_ys, num_kept(plan, keep))


def lin_call(g: Body, lin, y_lin, plan: Schedule, p, d, kept=None, linear=True) -> list[Any]:
    keep = None if kept is None else keep_for(g, lin)
    return lin_p.bind(
        *p, *(kept or []), *d, g=g, lin=tuple(lin), y_lin=tuple(y_lin), plan=plan, keep=keep, linear=linear
    )


def vjp_call(g: Body, lin, y_lin, plan: Schedule, p, u, uy, kept=None) -> list[Any]:
    if kept is None:
        kept = run_known(g, lin, None, plan, p)[2]
    return vjp_p.bind(*p, *kept, *u, *uy, g=g, lin=tuple(lin), y_lin=tuple(y_lin), plan=plan, keep=keep_for(g, lin))
