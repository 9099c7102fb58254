"""Reverse mode of any order through loops whose trip count is known only when they end.

With a body g(c, x) -> x' (constants c, carry x), a predicate, and n the trip count, four primitives, closed under jvp,
partial evaluation, transposition and vmap:

  While[g, cond](cc, c, x0) -> x_n, (n), (kept)      kept: carries at a power-of-two stride, never differentiated
  While[g](n, c, x0)        -> x_n, (kept)           the same loop where the count is known
  Lin[g, lin](n, p, kept; d) -> the carries that depend on d      lin: which inputs g is linear in; p: the others
  Vjp[g, lin](n, p, kept; u) -> cotangents of d                   the transpose of Lin
  VTan[g, lin, m](n, p, u; dp, du) -> derivative of Vjp           linear in dp (for the inputs in m) and du

The derivatives. n is an integer: it has no tangent, and once it is known every derivative is a counted loop.
- jvp(While[g]) is one While[dual g] whose predicate reads the primals alone; partial evaluation splits it into a While of
  what is known, which yields n and `kept`, and a Lin.
- The vjp of While is Vjp[dual g](n, ...; u) with the tangents linear, over the carries that the first run kept.
- Vjp is linear in u: its transpose is Lin. Its derivative in p along dp is a component of Vjp[dual g] at p and dp with u on
  the tangents' place: if V(p, u) = (Df(p))^T u then <V(p, u), d> = <u, Df(p) d>, so the derivative of the left side in p
  along dp is the vjp, with respect to the tangent d, of (Df(p) d)' along dp, that is of the dual's dual output.
- VTan is linear in (dp, du); transposed it is Lin for du and a Vjp[dual g] with the cotangents as tangents for dp, because
  second derivatives are symmetric.
The schedule that keeps and recomputes carries (multilevel.py) is never differentiated, so its loops, its counters and its
pool are ordinary jax.lax loops, and the pool's size holds at every order.

vmap with a mapped predicate gives the predicate and n a lane axis: see lanes.py, and Reverse for what keeps lanes apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from ..lowering import jax_api as api
from ._lists import fill, merge, omit, pick, split
from .body import Body, Mask
from .custom_rules import refuse_forward_mode
from .lanes import Lanes
from .multilevel import Pool
from .predicate import Predicate
from .while_rough import bind_sweep
from .while_sweep import lin_impl, loop_impl, num_kept, vjp_impl, vtan_bodies, vtan_impl

__all__ = ["bind_loop", "loop_p"]

COUNT = api.ShapedArray((), jax.numpy.dtype("int32"))
is_zero, is_undefined = api.is_zero, api.is_undefined_primal
instantiate = lambda ts: [api.instantiate(t) for t in ts]
mapped = lambda dims: [d is not None for d in dims]
no_tangent = lambda x: api.Zero(jax.typeof(x).to_tangent_aval())


# ---- types ------------------------------------------------------------------------------------------------


def _trips_aval(head: Sequence[Any], cond: Predicate | None) -> Any:
    return head[0] if cond is None else cond.test.aval.update(dtype=COUNT.dtype)


def kept_avals(g: Body, pool: Pool, keep: Any, head: Any) -> list[Any]:
    return (
        []
        if keep is None
        else [api.scalar_aval(COUNT.dtype, head), *(api.stacked_aval(pool.size, a) for a in pick(keep, g.x_avals))]
    )


def _loop_avals(*avals, g, cond, lanes, pool, keep, count):
    trips = _trips_aval(avals, cond)
    return [*g.x_avals, *([trips] if count else []), *kept_avals(g, pool, keep, trips)]


def _lin_avals(*_, g, lin, **__):
    return pick(g.carry(lin), g.x_avals)


def _ct_avals(*_, g, lin, **__):
    return pick(lin, g.avals)


def _eager(primitive, *args, g, **params):
    """Evaluation outside every trace: compiled once for a body and its parameters, and dropped with the body."""
    key = (primitive.name, *sorted(params.items(), key=lambda kv: kv[0]))
    return g.once(key, lambda: api.compiled(primitive, "while", g=g, **params))(*args)


def _run(*args, g, **params):
    refuse_forward_mode(g.jaxpr)
    return loop_impl(*args, g=g, **params)


loop_p = api.define_primitive("qb_while", _run, _loop_avals, _eager)
lin_p = api.define_primitive("qb_while_lin", lin_impl, _lin_avals, _eager)
vjp_p = api.define_primitive("qb_while_vjp", vjp_impl, _ct_avals, _eager)
vtan_p = api.define_primitive("qb_while_vtan", vtan_impl, _ct_avals, _eager)


# ---- binding ----------------------------------------------------------------------------------------------


def bind_loop(
    head, args, g: Body, cond: Predicate | None, lanes: Lanes, pool: Pool, keep: Any = None, count: bool = False
):
    """(final carry, [trip counts] if `count`, [stride exponent, *pools] if `keep`)."""
    keep = None if keep is None else tuple(keep)
    out = loop_p.bind(*head, *args, g=g, cond=cond, lanes=lanes, pool=pool, keep=keep, count=count)
    return split(out, g.sizes[1], int(count), num_kept(keep))


def bind_known(head, known, g: Body, cond, lanes: Lanes, pool: Pool, lin: Mask):
    """Run the part of a loop outside `lin` and keep its carries: (carry, trip counts, kept)."""
    base = g.only([not m for m in lin], ())
    cond = None if cond is None else cond.omit(g.carry(lin))
    keep = (True,) * base.sizes[1]
    x, n, kept = bind_loop(head, known, base, cond, lanes.omit(lin), pool, keep, count=cond is not None)
    return x, (n[0] if cond is not None else head[0]), kept


def bind_lin(n, p, d, kept, g: Body, lin, lanes: Lanes, pool: Pool, linear: bool = True):
    """Lin; `kept` is None where no carries are at hand for the transpose."""
    keep = None if kept is None else tuple(not m for m in g.carry(lin))
    return lin_p.bind(n, *p, *(kept or []), *d, g=g, lin=tuple(lin), lanes=lanes, pool=pool, keep=keep, linear=linear)


def bind_vjp(n, p, u, kept, g: Body, lin, lanes: Lanes, pool: Pool):
    keep = None if kept is None else tuple(not m for m in g.carry(lin))
    return vjp_p.bind(n, *p, *(kept or []), *u, g=g, lin=tuple(lin), lanes=lanes, pool=pool, keep=keep)


def tangents_linear(g: Body, mask: Mask) -> tuple[bool, ...]:
    """The inputs of g.dual(mask) that it is linear in: the tangents."""
    return tuple(g.weave([False] * len(mask), [True] * sum(mask), mask))


def _zeros_around(g: Body, x_mask: Mask, dx: Sequence[Any]) -> list[Any]:
    """Tangents of the carry, symbolic zeros where it has none."""
    return [api.Zero(a.to_tangent_aval()) if t is None else t for a, t in zip(g.x_avals, fill(x_mask, dx), strict=True)]


# ---- While ------------------------------------------------------------------------------------------------


def _loop_args(args, g: Body, cond):
    num_head = 1 if cond is None else cond.num_consts
    return split(args, num_head, len(g.avals))


def _loop_jvp(primals, tangents, *, g, cond, lanes, pool, keep, count):
    head, args = _loop_args(primals, g, cond)
    _, dots = _loop_args(tangents, g, cond)
    mask, _ = g.perturbed([not is_zero(t) for t in dots])
    x_mask = g.carry(mask)
    h, cond2 = g.dual(mask, ()), None if cond is None else cond.dual(g, mask)
    woven = g.weave(args, instantiate(pick(mask, dots)), mask)
    keep2 = None if keep is None else (*keep, *[False] * sum(x_mask))
    x, *rest = bind_loop(head, woven, h, cond2, lanes.dual(g, mask), pool, keep2, count)
    x, dx = split(x, g.sizes[1], sum(x_mask))
    rest = sum(rest, [])
    return [*x, *rest], _zeros_around(g, x_mask, dx) + list(map(no_tangent, rest))


class Tangent:
    """dual(g) in the inputs `mask`, cut down to what the tangents of the carry need.

    Attributes:
        body, lin, lanes: the cut body, its linear (tangent) inputs, its lanes.
        primals, tangents: which primals, and which of the tangents of `mask`, it reads; needed_x: the carries among the primals.
    """

    def __init__(self, g: Body, mask: Mask, lanes: Lanes):
        h, x_mask = g.dual(mask, ()), g.carry(mask)
        live = h.live([*[False] * g.sizes[1], *[True] * sum(x_mask)], ())
        self.body, self.lin = h.only(live, ()), tuple(pick(live, tangents_linear(g, mask)))
        self.lanes = lanes.dual(g, mask).pick(live)
        self.primals, self.tangents = g.unweave(mask, live)
        self.needed_x = tuple(g.carry(self.primals))


def _select(have: Any, want: Mask, kept: Sequence[Any]) -> list[Any]:
    """The kept carries in `want` from those in `have`."""
    return [kept[0], *pick(pick(have, want), kept[1:])]


def _loop_linearize(is_vjp, nonzeros, *primals, g, cond, lanes, pool, keep, count):
    head, args = _loop_args(primals, g, cond)
    _, nonzeros = _loop_args(nonzeros, g, cond)
    mask, _ = g.perturbed(nonzeros)
    x_mask = g.carry(mask)
    tangent = g.once(("tangent", mask, lanes), lambda: Tangent(g, mask, lanes)) if any(x_mask) else None
    have = keep
    if is_vjp and tangent is not None:
        have = tuple(a or b for a, b in zip(tangent.needed_x, keep or (False,) * g.sizes[1], strict=True))
    run = g.under_rules(mask, ())
    x, n, kept = bind_loop(head, args, run, cond, lanes, pool, have, count=count or cond is not None)
    steps = head[0] if cond is None else n[0]
    rest = [*(n if count else []), *([] if keep is None else _select(have, keep, kept))]

    def linearized(residuals, *dots):
        n, p, kept = residuals
        _, dots = _loop_args(dots, g, cond)
        dx = []
        if tangent is not None:
            d = pick(tangent.tangents, instantiate(pick(mask, dots)))
            dx = bind_lin(n, p, d, kept, tangent.body, tangent.lin, tangent.lanes, pool)
        return _zeros_around(g, x_mask, dx) + [api.Zero(t) for t in rest_types]

    rest_types = [jax.typeof(r).to_tangent_aval() for r in rest]
    mine = _select(have, tangent.needed_x, kept) if is_vjp and tangent is not None else None
    residuals = (steps, [] if tangent is None else pick(tangent.primals, args), mine)
    return [*x, *rest], [*x_mask, *[False] * len(rest)], residuals, linearized


def _splits(g: Body, cond, keep, lin: Mask, head_unknown: bool) -> bool:
    """Whether the loop without the inputs in `lin` can be run by itself."""
    x_lin = g.carry(lin)
    reads = cond is not None and any(pick(cond.reads, x_lin))
    kept = keep is not None and any(pick(keep, x_lin))
    return not (head_unknown or reads or kept or all(lin))


def _loop_partial_eval(trace, *tracers, **params):
    """Split by data dependence: While over the known part now, Lin over the rest later."""
    g, cond, lanes, pool, keep, count = (params[k] for k in ("g", "cond", "lanes", "pool", "keep", "count"))
    tracers = [trace.to_jaxpr_tracer(t) for t in tracers]
    head, args = _loop_args(tracers, g, cond)
    lin, _ = g.depends([not t.is_known() for t in args])
    if not _splits(g, cond, keep, lin, not all(t.is_known() for t in head)):
        return trace.default_process_primitive(loop_p, list(map(trace.instantiate_const, tracers)), params)
    value = lambda ts: [t.pval.get_known() for t in ts]
    x_lin = g.carry(lin)
    x, n, kept = bind_known(value(head), value(omit(lin, args)), g, cond, lanes, pool, lin)
    if any(x_lin):
        staged = [trace.instantiate_const(t) for t in omit(lin, args)]
        staged += [trace.new_instantiated_const(v) for v in kept]
        staged += [trace.instantiate_const(t) for t in pick(lin, args)]
        lin_params = dict(g=g, lin=lin, lanes=lanes, pool=pool, keep=tuple(not m for m in x_lin), linear=False)
        steps = trace.new_instantiated_const(n)
        dx = trace.default_process_primitive(lin_p, [steps, *staged], lin_params)
    else:
        dx = []
    handed = [] if keep is None else [kept[0], *pick(omit(x_lin, keep), kept[1:])]
    return [*merge(x_lin, dx, x), *([n] if count else []), *handed]


def _loop_partial_eval_custom(saveable, unknowns, instantiated, eqn):
    """jax.checkpoint: the known part alone first, and all of it again in what is staged."""
    g, cond, lanes, keep, count = (eqn.params[k] for k in ("g", "cond", "lanes", "keep", "count"))
    head_unknown, args_unknown = _loop_args(unknowns, g, cond)
    lin, _ = g.depends(args_unknown)
    residuals = [v for v, i in zip(eqn.invars, instantiated, strict=True) if api.is_var(v) and not i]
    everything = [True] * len(eqn.outvars)
    if not _splits(g, cond, keep, lin, any(head_unknown)):
        return None, eqn, everything, everything, residuals
    x_lin = g.carry(lin)
    unknown_out = [*x_lin, *[False] * (len(eqn.outvars) - len(x_lin))]
    head, args = _loop_args(eqn.invars, g, cond)
    known_params = eqn.params | dict(
        g=g.only([not m for m in lin], ()),
        cond=None if cond is None else cond.omit(x_lin),
        lanes=lanes.omit(lin),
        keep=None if keep is None else tuple(omit(x_lin, keep)),
    )
    known = eqn.replace(invars=[*head, *omit(lin, args)], outvars=omit(unknown_out, eqn.outvars), params=known_params)
    return known, eqn, unknown_out, everything, residuals


def _loop_transpose(cts, *args, g, cond, lanes, pool, keep, count):
    """Reached where a loop that is linear in its unknown inputs was staged whole."""
    head, rest = _loop_args(args, g, cond)
    lin, _ = g.depends(list(map(is_undefined, rest)))
    assert _splits(g, cond, keep, lin, any(map(is_undefined, head))) or (all(lin) and cond is None), "not a linear loop"
    p, kept = omit(lin, rest), None
    n = head[0]
    if cond is not None:
        _, n, kept = bind_known(head, p, g, cond, lanes, pool, lin)
    u = instantiate(pick(g.carry(lin), cts[: g.sizes[1]]))
    ct = fill(lin, bind_vjp(n, p, u, kept, g, lin, lanes, pool))
    return [None] * len(head) + [c if is_undefined(a) else None for a, c in zip(rest, ct, strict=True)]


def _loop_dce(used, eqn):
    g, cond, lanes, keep, count = (eqn.params[k] for k in ("g", "cond", "lanes", "keep", "count"))
    if not any(used):
        return [False] * len(eqn.invars), None
    x_used, n_used, kept_used = split(used, g.sizes[1], int(count), num_kept(keep))
    keep = keep if any(kept_used) else None
    need = [
        a or (cond is not None and r) or (keep is not None and keep[i])
        for i, (a, r) in enumerate(zip(x_used, cond.reads if cond is not None else x_used, strict=True))
    ]
    live = g.live(need, ())
    x_live = g.carry(live)
    num_head = 1 if cond is None else cond.num_consts
    count = bool(count and any(n_used))
    params = eqn.params | dict(
        g=g.only(live, ()),
        cond=None if cond is None else Predicate(cond.test, tuple(pick(x_live, cond.reads))),
        lanes=lanes.pick(live),
        keep=None if keep is None else tuple(pick(x_live, keep)),
        count=count,
    )
    left = [*x_live, *[count] * len(n_used), *[keep is not None] * len(kept_used)]
    if all(left) and all(live):
        return [True] * len(eqn.invars), eqn
    used_inputs = [*[True] * num_head, *live]
    return used_inputs, eqn.replace(
        invars=pick(used_inputs, eqn.invars), outvars=pick(left, eqn.outvars), params=params
    )


# ---- Lin --------------------------------------------------------------------------------------------------


def _lin_args(args, lin, keep):
    """(n, p, kept, d)."""
    (n,), *rest = split(args, 1, len(lin) - sum(lin), num_kept(keep), sum(lin))
    return n, *rest


def _lin_jvp(primals, tangents, *, g, lin, lanes, pool, keep, linear):
    n, p, kept, d = _lin_args(primals, lin, keep)
    _, dp, _, dd = _lin_args(tangents, lin, keep)
    if linear and all(map(is_zero, dp)):
        params = dict(g=g, lin=lin, lanes=lanes, pool=pool, keep=keep, linear=True)
        return lin_p.bind(*primals, **params), lin_p.bind(n, *p, *kept, *instantiate(dd), **params)
    out, dots = _loop_jvp(
        [n, *merge(lin, d, p)],
        [api.Zero(COUNT), *merge(lin, dd, dp)],
        g=g, cond=None, lanes=lanes, pool=pool, keep=None, count=False,
    )  # fmt: skip
    x_lin = g.carry(lin)
    return pick(x_lin, out), pick(x_lin, dots)


def _lin_linearize(is_vjp, nonzeros, *primals, g, lin, lanes, pool, keep, linear):
    n, p, kept, d = _lin_args(primals, lin, keep)
    _, nz_p, _, nz_d = _lin_args(nonzeros, lin, keep)
    params = dict(g=g, lin=lin, lanes=lanes, pool=pool, keep=keep, linear=linear)
    out = lin_p.bind(*primals, **params)
    if linear and not any(nz_p):

        def again(residuals, *dots):
            n, p, kept = residuals
            return lin_p.bind(n, *p, *kept, *instantiate(_lin_args(dots, lin, keep)[3]), **params)

        return out, [True] * len(out), (n, p, kept), again
    mask, _ = g.perturbed(merge(lin, nz_d, nz_p))
    x_lin, x_mask = g.carry(lin), g.carry(mask)
    h, lin2, lanes2 = g.dual(mask, ()), tangents_linear(g, mask), lanes.dual(g, mask)

    def linearized(residuals, *dots):
        n, args = residuals
        _, dp, _, dd = _lin_args(dots, lin, keep)
        t = instantiate(pick(mask, merge(lin, dd, dp)))
        dx = bind_lin(n, args, t, None, h, lin2, lanes2, pool) if any(x_mask) else []
        return pick(x_lin, _zeros_around(g, x_mask, dx))

    return out, pick(x_lin, x_mask), (n, merge(lin, d, p)), linearized


def _lin_transpose(cts, *args, g, lin, lanes, pool, keep, linear):
    n, p, kept, d = _lin_args(args, lin, keep)
    ct = bind_vjp(n, p, instantiate(cts), kept if keep is not None else None, g, lin, lanes, pool)
    return [None] * (1 + len(p) + len(kept)) + [c if is_undefined(a) else None for c, a in zip(ct, d, strict=True)]


# ---- Vjp --------------------------------------------------------------------------------------------------


def _vjp_args(args, g, lin, keep):
    """(n, p, kept, u)."""
    (n,), *rest = split(args, 1, len(lin) - sum(lin), num_kept(keep), sum(g.carry(lin)))
    return n, *rest


def _vjp_tangent(n, p, u, nonzeros, dp, du, g, lin, lanes, pool):
    """The derivative of Vjp along dp and du."""
    mask, _ = g.perturbed(merge(lin, [False] * sum(lin), nonzeros))
    m = tuple(a and not b for a, b in zip(mask, lin, strict=True))
    dp = instantiate(pick(m, merge(lin, [None] * sum(lin), dp)))
    return vtan_p.bind(n, *p, *u, *dp, *instantiate(du), g=g, lin=lin, lanes=lanes, pool=pool, m=m)


def _vjp_jvp(primals, tangents, *, g, lin, lanes, pool, keep):
    if g.rough:
        nonzero, run = _rough(primals, [not is_zero(t) for t in tangents], g, lin, lanes, pool, keep)
        return jax.jvp(run, tuple(pick(nonzero, primals)), tuple(pick(nonzero, tangents)))
    n, p, kept, u = _vjp_args(primals, g, lin, keep)
    _, dp, _, du = _vjp_args(tangents, g, lin, keep)
    params = dict(g=g, lin=lin, lanes=lanes, pool=pool, keep=keep)
    out = vjp_p.bind(*primals, **params)
    if all(map(is_zero, dp)):
        return out, vjp_p.bind(n, *p, *kept, *instantiate(du), **params)
    return out, _vjp_tangent(n, p, u, [not is_zero(t) for t in dp], dp, du, g, lin, lanes, pool)


def _rough(primals, nonzero, g, lin, lanes, pool, keep):
    """Vjp as a sweep that can be differentiated although it is not linear in u: a function of its moving arguments."""

    def run(*moving):
        n, p, _, u = _vjp_args(merge(nonzero, moving, omit(nonzero, primals)), g, lin, keep)
        return bind_sweep(n, p, u, g, lin, lanes, pool)

    return nonzero, run


def _vjp_linearize(is_vjp, nonzeros, *primals, g, lin, lanes, pool, keep):
    if g.rough:
        nonzero, run = _rough(primals, list(nonzeros), g, lin, lanes, pool, keep)
        out, along = jax.linearize(run, *pick(nonzero, primals))
        return out, [True] * len(out), (), lambda _, *dots: along(*instantiate(pick(nonzero, dots)))
    n, p, kept, u = _vjp_args(primals, g, lin, keep)
    _, nz_p, _, _ = _vjp_args(nonzeros, g, lin, keep)
    params = dict(g=g, lin=lin, lanes=lanes, pool=pool, keep=keep)
    out = vjp_p.bind(*primals, **params)

    def linearized(residuals, *dots):
        n, p, kept, u = residuals
        _, dp, _, du = _vjp_args(dots, g, lin, keep)
        if not any(nz_p):
            return vjp_p.bind(n, *p, *kept, *instantiate(du), **params)
        return _vjp_tangent(n, p, u, nz_p, dp, du, g, lin, lanes, pool)

    return out, [True] * len(out), (n, p, [] if any(nz_p) else kept, u), linearized


def _vjp_transpose(cts, *args, g, lin, lanes, pool, keep):
    n, p, kept, u = _vjp_args(args, g, lin, keep)
    out = bind_lin(n, p, instantiate(cts), None, g, lin, lanes, pool)
    return [None] * (1 + len(p) + len(kept)) + [c if is_undefined(a) else None for c, a in zip(out, u, strict=True)]


# ---- VTan -------------------------------------------------------------------------------------------------


def _vtan_args(args, g, lin, m):
    """(n, p, u, dp, du)."""
    num_u = sum(g.carry(lin))
    (n,), *rest = split(args, 1, len(lin) - sum(lin), num_u, sum(m), num_u)
    return n, *rest


def _vtan_as_vjp(n, p, u, dp, du, g, lin, lanes, pool, m):
    """VTan written out as the Vjp of the dual body that it is, where it is differentiated itself."""
    mask, h, lanes2, lin2 = vtan_bodies(g, lin, lanes, m)
    tangents = pick(mask, fill(m, dp))
    q = omit(lin2, g.weave(fill([not a for a in lin], p), tangents, mask))
    ct = bind_vjp(n, q, [*du, *u], None, h, lin2, lanes2, pool)
    a, _ = g.unweave(mask, fill(lin2, ct))
    return pick(lin, a)


def _vtan_jvp(primals, tangents, *, g, lin, lanes, pool, m):
    nonzero = [not is_zero(t) for t in tangents]

    def f(*moving):
        n, p, u, dp, du = _vtan_args(merge(nonzero, moving, omit(nonzero, primals)), g, lin, m)
        return _vtan_as_vjp(n, p, u, dp, du, g, lin, lanes, pool, m)

    return jax.jvp(f, pick(nonzero, primals), pick(nonzero, tangents))


def _vtan_transpose(cts, *args, g, lin, lanes, pool, m):
    n, p, u, dp, du = _vtan_args(args, g, lin, m)
    v = instantiate(cts)
    ct_p, ct_u = [None] * len(dp), [None] * len(du)
    if any(map(is_undefined, du)):
        ct_u = bind_lin(n, p, v, None, g, lin, lanes, pool)
    if any(map(is_undefined, dp)):
        mask, _ = g.perturbed(m)
        h, lin3 = g.dual(mask, ()), tangents_linear(g, mask)
        full = fill(g.carry(lin), u)
        on = [
            api.zeros_like_aval(a.to_tangent_aval()) if t is None else t for a, t in zip(g.x_avals, full, strict=True)
        ]
        ct = bind_vjp(n, merge(lin, v, p), pick(g.carry(mask), on), None, h, lin3, lanes.dual(g, mask), pool)
        ct_p = pick(m, fill(mask, ct))
    keep = lambda c, a: c if is_undefined(a) else None
    return [None] * (1 + len(p) + len(u)) + list(map(keep, [*ct_p, *ct_u], [*dp, *du]))


# ---- registration -----------------------------------------------------------------------------------------

for primitive, jvp, linearize, transpose in (
    (loop_p, _loop_jvp, _loop_linearize, _loop_transpose),
    (lin_p, _lin_jvp, _lin_linearize, _lin_transpose),
    (vjp_p, _vjp_jvp, _vjp_linearize, _vjp_transpose),
    (vtan_p, _vtan_jvp, None, _vtan_transpose),
):
    api.define_jvp(primitive, jvp)
    api.define_transpose(primitive, transpose)
    if linearize is not None:
        api.define_linearize(primitive, linearize)
api.define_partial_eval(loop_p, _loop_partial_eval)
api.define_partial_eval_custom(loop_p, _loop_partial_eval_custom)
api.define_dce(loop_p, _loop_dce)
