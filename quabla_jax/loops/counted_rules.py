"""Differentiation, partial evaluation and dead-code rules of Loop and Lin (see counted.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from ..lowering import jax_api as api
from ._lists import fill, merge, omit, pick, split
from .body import Body
from .counted import lin_call, lin_p, loop_p, vjp_call
from .counted_forward import keep_for, num_kept, primal_part, scan_params, y_stacks
from .plan import decide
from .schedule import Schedule, Trips


def is_undefined(x: Any) -> bool:
    return api.is_undefined_primal(x)


def instantiate(tangents: Sequence[Any]) -> list[Any]:
    return [api.instantiate(t) for t in tangents]


def no_tangent(aval: Any) -> Any:
    return api.Zero(aval.to_tangent_aval())


def no_tangents(values: Sequence[Any]) -> list[Any]:
    return [no_tangent(jax.typeof(v)) for v in values]


class Tangent:
    """The tangent half of dual(g): its part that the tangents of the outputs need.

    Attributes:
        inputs, ys: which of g's inputs and outputs have a tangent.
        body: dual(g) cut down to what the tangents need, its primals first in every group.
        lin: the linear (tangent) inputs of `body`; every y of `body` is a tangent.
        primals: which of g's inputs `body` still reads; needed_x: the carries among them.
    """

    def __init__(self, g: Body, nonzero: Sequence[bool]):
        self.g = g
        self.inputs, self.ys = g.perturbed(nonzero)
        nx, dx = g.sizes[1], sum(g.carry(self.inputs))
        self.any = dx + sum(self.ys) > 0
        h = g.dual(self.inputs, self.ys)
        ys = [False] * g.num_ys + [True] * sum(self.ys)
        live = h.live([False] * nx + [True] * dx, ys)
        self.body = h.only(live, ys)
        all_lin = g.weave([False] * len(self.inputs), [True] * sum(self.inputs), self.inputs)
        self.lin = tuple(pick(live, all_lin))
        self.y_lin = (True,) * sum(self.ys)
        self.primals, self._tangents = g.unweave(self.inputs, live)
        self.needed_x = g.carry(self.primals)

    @classmethod
    def of(cls, g: Body, nonzero: Sequence[bool]) -> Tangent:
        nonzero = tuple(map(bool, nonzero))
        return g.once(("tangent", nonzero), lambda: cls(g, nonzero))

    def apply(self, plan: Schedule, primals, tangents, kept=None, linear=True) -> list[Any]:
        """Tangents of the whole loop's outputs, zeros where there is none, from those of its inputs."""
        p = pick(self.primals, primals)
        d = pick(self._tangents, instantiate(pick(self.inputs, tangents)))
        out = lin_call(self.body, self.lin, self.y_lin, plan, p, d, kept, linear)
        dx, dy = split(out, sum(self.g.carry(self.inputs)), sum(self.ys))
        return self.spread(plan.length, dx, dy)

    def along(self, plan: Schedule, primals, tangents, keep: Sequence[bool]) -> list[Any]:
        """Tangents of those carries in `keep` that have one, at the blocks' starts; a loop of its own, which is dead if unread."""
        at_start = (*[False] * sum(self.needed_x), *pick(self.g.carry(self.inputs), keep))
        d = pick(self._tangents, instantiate(pick(self.inputs, tangents)))
        inputs = merge(self.lin, d, pick(self.primals, primals))
        return loop_p.bind(*inputs, g=self.body, plan=plan, keep=at_start)[len(at_start) + sum(self.ys) :]

    def spread(self, length: int, dx, dy) -> list[Any]:
        """Tangents of the outputs that have one, with symbolic zeros between."""
        x_mask = self.g.carry(self.inputs)
        zx = map(no_tangent, omit(x_mask, self.g.x_avals))
        zy = map(no_tangent, omit(self.ys, y_stacks(self.g, length)))
        return merge(x_mask, dx, zx) + merge(self.ys, dy, zy)


def select_kept(plan: Schedule, have: Sequence[bool], want: Sequence[bool], kept: Sequence[Any]) -> list[Any]:
    """The kept carries of mask `want` from those of the larger mask `have`."""
    return [v for part in kept_parts(plan, kept) for v in pick(pick(have, want), part)]


def kept_parts(plan: Any, kept: Sequence[Any]) -> list[Sequence[Any]]:
    """The kept carries at the blocks' starts, and at the start of the rest, if there is one."""
    n = len(kept) // 2
    return [kept[:n], kept[n:]] if n and plan.rest else [kept]


# ---- Loop


def loop_jvp(primals, tangents, *, g: Body, plan, keep):
    nonzero = [not api.is_zero(t) for t in tangents]
    inputs, ys = g.perturbed(nonzero)
    if not any(inputs):
        out = loop_p.bind(*primals, g=g, plan=plan, keep=keep)
        return out, no_tangents(out)
    x_mask = g.carry(inputs)
    woven = g.weave(primals, instantiate(pick(inputs, tangents)), inputs)
    # the tangents of the kept carries are those that a sweep over the dual body starts from
    moving = [] if keep is None else pick(keep, x_mask)
    keep2 = None if keep is None else (*keep, *pick(x_mask, keep))
    out = loop_p.bind(*woven, g=g.dual(inputs, ys), plan=plan, keep=keep2)
    x, dx, y, dy, both = split(out, g.sizes[1], sum(x_mask), g.num_ys, sum(ys), num_kept(plan, keep2))
    kept, along = [], []
    for part in kept_parts(plan, both):
        k, dk = split(part, len(moving), sum(moving))
        kept += k
        along += merge(moving, dk, no_tangents(omit(moving, k)))
    spread = Tangent.spread.__get__(_Marks(g, inputs, ys))
    return [*x, *y, *kept], [*spread(plan.length, dx, dy), *along]


class _Marks:
    """What Tangent.spread reads, without the tangent's body."""

    def __init__(self, g, inputs, ys):
        self.g, self.inputs, self.ys = g, inputs, ys


def loop_linearize(is_vjp, nonzeros, *primals, g: Body, plan, keep):
    tangent = Tangent.of(g, nonzeros)
    schedule = plan
    if isinstance(plan, Trips):
        schedule = decide(plan, tangent.body, tangent.lin, tangent.y_lin)
        if schedule is None:
            return api.scan_linearize(is_vjp, nonzeros, *primals, **scan_params(g, plan))
    nx, ny = g.sizes[1], g.num_ys
    if not tangent.any:
        out = loop_p.bind(*primals, g=g, plan=plan, keep=keep)
        return out, [False] * len(out), (), lambda res, *ts: no_tangents(out)
    asked = keep or (False,) * nx
    moving = pick(asked, g.carry(tangent.inputs))
    both = tuple(a or (b and is_vjp) for a, b in zip(asked, tangent.needed_x, strict=True))
    store = both if any(both) or keep is not None else None
    run = g.under_rules(tangent.inputs, tangent.ys)
    out = loop_p.bind(*primals, g=run, plan=schedule if store else plan, keep=store)
    x, y, kept = split(out, nx, ny, num_kept(schedule, store))
    extra = [] if keep is None else select_kept(schedule, both, keep, kept)
    mine = select_kept(schedule, both, tangent.needed_x, kept) if is_vjp else None
    along_mask = [m for _ in kept_parts(schedule, extra) for m in moving]
    still = no_tangents(omit(along_mask, extra))

    def linearized(residuals, *tangents):
        primals, kept = residuals
        out = tangent.apply(schedule, primals, tangents, kept)
        # Also the tangents of kept carries are the true ones: JAX may join a kept carry with other values, after which a
        # symbolic zero is one that vjp_jvp cannot tell from a tangent.
        along = tangent.along(schedule, primals, tangents, asked) if any(moving) else []
        return out + merge(along_mask, along, still)

    used = fill(tangent.primals, pick(tangent.primals, primals))
    nonzero_out = [*g.carry(tangent.inputs), *tangent.ys, *along_mask]
    return [*x, *y, *extra], nonzero_out, (used, mine), linearized


def loop_partial_eval(trace, *tracers, g: Body, plan, keep):
    """Split by data dependence: Loop over the known part now, Lin over the rest later."""
    tracers = [trace.to_jaxpr_tracer(t) for t in tracers]
    lin, y_lin = g.depends([not api.is_known(t) for t in tracers])
    x_lin = g.carry(lin)
    whole = lambda keep: trace.default_process_primitive(
        loop_p, [trace.instantiate_const(t) for t in tracers], dict(g=g, plan=plan, keep=keep)
    )
    late_kept = keep is not None and any(pick(keep, x_lin))
    if all(lin) or (late_kept and not all(pick(lin, g.tangents))):
        return whole(keep)
    if keep is not None and late_kept:
        # tangents of kept carries come later, from the whole loop (mostly unread, then it is dead); the rest as without them
        early, late = [
            tuple(k and m for k, m in zip(keep, side, strict=True)) for side in ([not v for v in x_lin], x_lin)
        ]
        out = loop_partial_eval(trace, *tracers, g=g, plan=plan, keep=early if any(early) else None)
        n = g.sizes[1] + g.num_ys
        later = kept_parts(plan, whole(late)[n:])
        parts = zip(later, kept_parts(plan, out[n:]) if any(early) else [[] for _ in later], strict=True)
        return [*out[:n], *[v for b, a in parts for v in merge(pick(keep, x_lin), b, a)]]
    live = g.live(x_lin, y_lin)
    mask = [a or b for a, b in zip(lin, live, strict=True)]
    rest = g.only(mask, y_lin)  # what is left for later reads these inputs alone
    rest_lin, rest_y = tuple(pick(mask, lin)), (True,) * sum(y_lin)
    schedule = plan
    if isinstance(plan, Trips):
        schedule = decide(plan, rest, rest_lin, rest_y)
        if schedule is None:
            return api.scan_partial_eval(trace, *tracers, **scan_params(g, plan))
    x, y, kept, extra = _known_part(g, lin, y_lin, mask, plan, schedule, keep, tracers)
    p = [
        trace.instantiate_const(t) for t in pick(mask, fill([not m for m in lin], omit(lin, tracers))) if t is not None
    ]
    d = [trace.instantiate_const(t) for t in pick(lin, tracers)]
    residuals = [*p, *[trace.new_instantiated_const(v) for v in kept]]
    params = dict(g=rest, lin=rest_lin, y_lin=rest_y, plan=schedule, keep=keep_for(rest, rest_lin), linear=False)
    out = trace.default_process_primitive(lin_p, [*residuals, *d], params) if sum(x_lin) + sum(y_lin) else []
    dx, dy = split(out, sum(x_lin), sum(y_lin))
    return merge(x_lin, dx, x) + merge(y_lin, dy, y) + extra


def _known_part(g, lin, y_lin, mask, plan, schedule, keep, tracers):
    """Run Loop over the known inputs: (known carries, known ys, what Lin needs kept, what the caller asked to keep)."""
    known = [t.pval.get_known() for t in omit(lin, tracers)]
    x_known = [not m for m in g.carry(lin)]
    y_known = [not m for m in y_lin]
    part = primal_part(g, lin, y_known)
    needed = pick(x_known, g.carry(mask))
    asked = [False] * sum(x_known) if keep is None else pick(x_known, keep)
    both = tuple(a or b for a, b in zip(needed, asked, strict=True))
    if part.sizes[1] == 0 and part.num_ys == 0:
        return [], [], [], []
    store = both if any(both) or keep is not None else None
    out = loop_p.bind(*known, g=part, plan=plan if store is None else schedule, keep=store)
    x, y, kept = split(out, part.sizes[1], part.num_ys, num_kept(schedule, store))
    extra = [] if keep is None else select_kept(schedule, both, asked, kept)
    return x, y, select_kept(schedule, both, needed, kept) if store else [], extra


def loop_partial_eval_custom(saveable, unknowns, instantiated, eqn):
    """jax.checkpoint's split: known outputs from the known part; the staged part runs everything again."""
    g, plan, keep = (eqn.params[k] for k in ("g", "plan", "keep"))
    lin, y_lin = g.depends(unknowns)
    x_lin = g.carry(lin)
    if isinstance(plan, Trips) and keep is None and not all(lin) and any(lin):
        live = g.live(x_lin, y_lin)
        mask = [a or b for a, b in zip(lin, live, strict=True)]
        if decide(plan, g.only(mask, y_lin), tuple(pick(mask, lin)), (True,) * sum(y_lin)) is None:
            return api.scan_partial_eval_custom(saveable, unknowns, instantiated, eqn, scan_params(g, plan))
    new = [v for v, i in zip(eqn.invars, instantiated, strict=True) if api.is_var(v) and not i]
    every = [True] * len(eqn.outvars)
    if all(lin):
        return None, eqn, every, every, new
    y_known = [not m for m in y_lin]
    part = primal_part(g, lin, y_known)
    unknown_kept = [] if keep is None or isinstance(plan, Trips) else pick(keep, x_lin) * (2 if plan.rest else 1)
    unknown_out = [*x_lin, *y_lin, *unknown_kept]
    known = eqn.replace(
        invars=omit(lin, eqn.invars),
        outvars=omit(unknown_out, eqn.outvars),
        params=dict(g=part, plan=plan, keep=None if keep is None else tuple(omit(x_lin, keep))),
    )
    return known, eqn, unknown_out, every, new


def loop_transpose(cts, *args, g: Body, plan, keep):
    """Reached where a loop that is linear in some inputs was staged whole."""
    lin, y_lin = g.depends([is_undefined(a) for a in args])
    x_lin = g.carry(lin)
    x, y, _ = split(cts, g.sizes[1], g.num_ys, num_kept(plan, keep))
    live_y = [m and not api.is_zero(t) for m, t in zip(y_lin, y, strict=True)]
    if not any(live_y) and all(map(api.is_zero, pick(x_lin, x))):
        return [None] * len(args)  # read for its kept carries alone, through which no derivative flows
    live = g.live(x_lin, live_y)
    mask = [a or b for a, b in zip(lin, live, strict=True)]
    part, part_lin = g.only(mask, live_y), tuple(pick(mask, lin))
    schedule = plan
    if isinstance(plan, Trips):
        schedule = decide(plan, part, part_lin, (True,) * sum(live_y), must=True)
    assert schedule is not None
    p = omit(part_lin, pick(mask, args))
    ct = vjp_call(part, part_lin, (True,) * sum(live_y), schedule, p, instantiate(pick(x_lin, x)), pick(live_y, y))
    return [c if is_undefined(a) else None for a, c in zip(args, fill(lin, ct), strict=True)]


def loop_dce(used, eqn):
    g, plan, keep = (eqn.params[k] for k in ("g", "plan", "keep"))
    if not any(used):
        return [False] * len(eqn.invars), None
    x, y, k = split(used, g.sizes[1], g.num_ys, num_kept(plan, keep))
    n = sum(keep or ())
    kept_used = (
        fill(keep or (), [a or b for a, b in zip(k[:n], k[n:] or k[:n], strict=True)], False) if n else [False] * len(x)
    )
    mask = g.live([a or b for a, b in zip(x, kept_used, strict=True)], y)
    x_left = g.carry(mask)
    keep2 = tuple(pick(x_left, kept_used)) if any(kept_used) else None
    if all(mask) and all(y) and keep2 == keep:
        return [True] * len(eqn.invars), eqn
    kept_left = pick(keep or (), kept_used) * (2 if n and plan.rest else 1) if n else []
    outvars = pick([*x_left, *y, *kept_left], eqn.outvars)
    params = dict(g=g.only(mask, y), plan=plan, keep=keep2)
    return list(mask), eqn.replace(invars=pick(mask, eqn.invars), outvars=outvars, params=params)


# ---- Lin


def lin_parts(args, lin, plan, keep):
    return split(args, len(lin) - sum(lin), num_kept(plan, keep), sum(lin))


def lin_jvp(primals, tangents, *, g: Body, lin, y_lin, plan, keep, linear):
    p, kept, d = lin_parts(primals, lin, plan, keep)
    dp, _, dd = lin_parts(tangents, lin, plan, keep)
    if linear and all(map(api.is_zero, dp)):
        params = dict(g=g, lin=lin, y_lin=y_lin, plan=plan, keep=keep, linear=True)
        return lin_p.bind(*primals, **params), lin_p.bind(*p, *kept, *instantiate(dd), **params)
    out, t = loop_jvp(merge(lin, d, p), merge(lin, dd, dp), g=g, plan=plan, keep=None)
    linear_out = [*g.carry(lin), *y_lin]
    return pick(linear_out, out), pick(linear_out, t)


def lin_linearize(is_vjp, nonzeros, *primals, g: Body, lin, y_lin, plan, keep, linear):
    p, kept, d = lin_parts(primals, lin, plan, keep)
    np_, _, nd = lin_parts(nonzeros, lin, plan, keep)
    params = dict(g=g, lin=lin, y_lin=y_lin, plan=plan, keep=keep, linear=linear)
    out = lin_p.bind(*primals, **params)
    if linear and not any(np_):

        def again(residuals, *tangents):
            return lin_p.bind(*residuals, *instantiate(tangents[len(residuals) :]), **params)

        return out, [True] * len(out), [*p, *kept], again
    tangent = Tangent.of(g, merge(lin, nd, np_))
    linear_out = [*g.carry(lin), *y_lin]

    def linearized(residuals, *tangents):
        dp, _, dd = lin_parts(tangents, lin, plan, keep)
        if not tangent.any:
            return no_tangents(out)
        return pick(linear_out, tangent.apply(plan, residuals, merge(lin, dd, dp)))

    nonzero_out = pick(linear_out, [*g.carry(tangent.inputs), *tangent.ys])
    return out, nonzero_out, merge(lin, d, p), linearized


def lin_transpose(cts, *args, g: Body, lin, y_lin, plan, keep, linear):
    p, kept, d = lin_parts(args, lin, plan, keep)
    u, uy = split(cts, sum(g.carry(lin)), sum(y_lin))
    # a y without a cotangent costs nothing: no [T, ...] zeros
    live = [not api.is_zero(t) for t in uy]
    y_live = fill(y_lin, live, False)
    ct = vjp_call(g, lin, y_live, plan, p, instantiate(u), pick(live, uy), kept if keep is not None else None)
    return [None] * (len(p) + len(kept)) + [c if is_undefined(a) else None for c, a in zip(ct, d, strict=True)]


# ---- registrations

api.define_jvp(loop_p, loop_jvp)
api.define_linearize(loop_p, loop_linearize)
api.define_partial_eval(loop_p, loop_partial_eval)
api.define_partial_eval_custom(loop_p, loop_partial_eval_custom)
api.define_transpose(loop_p, loop_transpose)
api.define_dce(loop_p, loop_dce)

api.define_jvp(lin_p, lin_jvp)
api.define_linearize(lin_p, lin_linearize)
api.define_transpose(lin_p, lin_transpose)
