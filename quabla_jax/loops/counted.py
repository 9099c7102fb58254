"""The counted loop and its derivatives: four primitives closed under jvp, vjp, vmap and partial evaluation.

With a body g(c, x, s) -> (x', y), its jvp `dual(g)`, and a mask `lin` of inputs in which a body is linear:

  Loop[g](c, x0, s; keep)               -> x_T, ys, kept     kept: the carry at every block's start
  Lin[g, lin](p, kept; d)               -> the outputs that depend on d
  Vjp[g, lin](p, kept; u, uy)           -> cotangents of d: the transpose of Lin
  VTan[g, lin, m](p, kept, u, uy; dp, du, duy) -> the derivative of Vjp (with `both`, also Vjp's own value, for one sweep)

p are the inputs that `lin` leaves out, d those it names; u and uy are cotangents of the linear carries and outputs.
The identities that close the family, in one line each (docs/engine.md derives them):

  jvp Loop[g] = Loop[dual g]                      vjp Loop[g] = Vjp[dual g] at the carries that Loop kept
  jvp Vjp[g](p; u) along (p', u') = Vjp[dual g](p, p'; u' on the outputs, u on their tangents)
  vjp Vjp[g] = Vjp[dual g](p, v; 0, u) together with Lin[g](p; v)

`kept` repeats values that (c, x0, s) determine: all derivatives flow through the other inputs. Its tangent, where Loop's jvp
gives one, is kept for the same reason as the carry: the sweep over the dual body starts from both.
A schedule is never differentiated; the higher derivatives are loops of their own, with a schedule of their own.

This file holds the primitives and what they compute; `counted_rules`, `counted_vjp_rules` and `counted_batching` hold their rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..lowering import jax_api as api
from ._lists import fill, merge, omit, pick, split
from .body import Batched, Body
from .cost import step_cost
from .counted_forward import (
    input_avals,
    keep_for,
    loop_avals,
    loop_impl,
    num_kept,
    primal_part,
    run,
    y_stacks,
)
from .counted_sweep import Sweep
from .schedule import Schedule

# ---- Lin


def lin_impl(*args, g: Body, lin, y_lin, plan: Schedule, keep, linear: bool) -> list[Any]:
    p, _, d = split(args, len(lin) - sum(lin), num_kept(plan, keep), sum(lin))
    x, y = split(run(g, merge(lin, d, p), plan.trips), g.sizes[1], g.num_ys)
    return [*pick(g.carry(lin), x), *pick(y_lin, y)]


def lin_avals(*_, g: Body, lin, y_lin, plan: Schedule, keep, linear: bool) -> list[Any]:
    return [*pick(g.carry(lin), g.x_avals), *pick(y_lin, y_stacks(g, plan.length))]


# ---- Vjp


def vjp_impl(*args, g: Body, lin, y_lin, plan: Schedule, keep) -> list[Any]:
    if isinstance(g, Batched) and g.linear:
        return _mapped_vjp(args, g, lin, y_lin, plan, keep)
    p, kept, u, uy = split(args, *vjp_sizes(g, lin, y_lin, plan, keep))
    sweep = Sweep(g, lin, y_lin, plan, p)
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
    ]

    def f(*a):
        return vjp_impl(*a, g=g.below, lin=lin, y_lin=y_lin, plan=plan, keep=keep)

    return g.map_transpose(f, axes, lin, y_lin, lead)(*args)


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


def vtan_sizes(g: Body, lin, y_lin, plan, m, both, keep) -> tuple[int, ...]:
    """Of p, kept, u, uy, dp, du, duy. What is kept, if anything, is every nonlinear carry and its tangent, where it has one."""
    nu, ny = sum(g.carry(lin)), sum(y_lin)
    started = num_kept(plan, [*[not b for b in g.carry(lin)], *g.carry(m)]) if keep else 0
    return len(lin) - sum(lin), started, nu, ny, sum(m), nu, ny


def vtan_dual(g: Body, lin, y_lin, m):
    """dual(g) in the perturbed primals m and the linear inputs: (M, body, its linear inputs, its linear y)."""
    big, y_big = g.perturbed([a or b for a, b in zip(m, lin, strict=True)])
    y_big = tuple(a or b for a, b in zip(y_big, y_lin, strict=True))
    h = g.dual(big, y_big)
    return big, h, tuple(g.weave(lin, pick(big, lin), big)), (*y_lin, *pick(y_big, y_lin))


def vtan_impl(*args, g: Body, lin, y_lin, plan: Schedule, m, both: bool, keep: bool) -> list[Any]:
    p, kept, u, uy, dp, du, duy = split(args, *vtan_sizes(g, lin, y_lin, plan, m, both, keep))
    big, h, lin2, y_lin2 = vtan_dual(g, lin, y_lin, m)
    if plan.store_pairs:
        cost = step_cost(h, lin2, y_lin2)
        plan = plan.for_pairs(cost.stored_bytes, cost.carry_bytes)
    tangents = pick(big, fill(m, dp))
    q = omit(lin2, g.weave(fill([not b for b in lin], p), tangents, big))
    # every linear carry and output is in `big`: u' stands on it, u on its tangent
    ct = vjp_call(h, lin2, y_lin2, plan, q, [*du, *u], [*duy, *uy], kept if keep else None)
    on_primal, on_tangent = g.unweave(big, fill(lin2, ct))
    derivative = pick(lin, on_primal)
    return [*pick(pick(big, lin), on_tangent), *derivative] if both else derivative


def vtan_avals(*_, g: Body, lin, y_lin, plan: Schedule, m, both: bool, keep: bool) -> list[Any]:
    return pick(lin, input_avals(g, plan.length)) * (2 if both else 1)


# ---- the primitives, and how rules bind them


def _compiled(p, *args, g: Body, **params):
    """Evaluation outside every trace: one compiled program for a body and its parameters, dropped with the body."""
    key = (p, tuple(params.items()))
    return g.once(key, lambda: api.compiled(p, "scan", g=g, **params))(*args)


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
