"""Differentiation, partial evaluation and dead-code rules of Vjp and VTan, the counted loop's sweeps (see counted.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from ..lowering import jax_api as api
from ._lists import fill, merge, omit, pick, split
from .body import Body
from .counted import (
    lin_call,
    scan_axes,
    vjp_call,
    vjp_p,
    vjp_sizes,
    vtan_impl,
    vtan_p,
    vtan_sizes,
)
from .counted_forward import y_stacks
from .counted_rules import instantiate, is_undefined, kept_parts
from .schedule import Schedule
from .taped import taped_jvp, taped_linearize

# ---- Vjp


def vjp_parts(args, g, lin, y_lin, plan, keep):
    return split(args, *vjp_sizes(g, lin, y_lin, plan, keep))


def perturbed_primals(g: Body, lin, nonzero) -> tuple[bool, ...]:
    """The nonlinear inputs of g that have a tangent, closed over the carry."""
    mask, _ = g.perturbed(merge(lin, [False] * sum(lin), nonzero))
    return tuple(a and not b for a, b in zip(mask, lin, strict=True))


def vjp_tangent(p, u, uy, dp, du, duy, nonzero, both, kept=None, dkept=None, *, g, lin, y_lin, plan, keep):
    m = perturbed_primals(g, lin, nonzero)
    dp = pick(m, fill([not b for b in lin], dp))
    tangents = instantiate([*dp, *du, *duy])
    start = None if kept is None else dual_kept(plan, omit(g.carry(lin), g.carry(m)), kept, dkept)
    params = dict(g=g, lin=lin, y_lin=y_lin, plan=plan, m=m, both=both, keep=start is not None)
    return vtan_p.bind(*p, *(start or []), *u, *uy, *tangents, **params)


def dual_kept(plan: Schedule, moving: Sequence[bool], kept, dkept) -> list[Any] | None:
    """What a sweep over the dual body starts from: the kept carries, and the tangents of those in `moving`.

    None where one of these tangents is missing, as in a linearization: the carries are then run for again. A kept carry is a
    function of the loop's other inputs, through which its derivative flows: its tangent is a value to start from, and no
    more.
    """
    start = []
    for k, dk in zip(kept_parts(plan, kept), kept_parts(plan, dkept), strict=True):
        dk = pick(moving, dk)
        if any(map(api.is_zero, dk)):
            return None
        start += [*k, *dk]
    return start


def vjp_jvp(primals, tangents, **params):
    if params["g"].rough:
        return taped_jvp(primals, tangents, vjp_parts, scan_axes, **params)
    p, kept, u, uy = vjp_parts(primals, **params)
    dp, dkept, du, duy = vjp_parts(tangents, **params)
    nonzero = [not api.is_zero(t) for t in dp]
    if not any(perturbed_primals(params["g"], params["lin"], nonzero)):
        out = vjp_p.bind(*primals, **params)
        return out, vjp_p.bind(*p, *kept, *instantiate([*du, *duy]), **params)
    out = vjp_tangent(p, u, uy, dp, du, duy, nonzero, True, kept, dkept, **params)
    return tuple(split(out, len(out) // 2, len(out) // 2))


def vjp_linearize(is_vjp, nonzeros, *primals, **params):
    if params["g"].rough:
        return taped_linearize(nonzeros, primals, vjp_parts, scan_axes, **params)
    p, kept, u, uy = vjp_parts(primals, **params)
    np_, *_ = vjp_parts(nonzeros, **params)
    out = vjp_p.bind(*primals, **params)
    linear = not any(perturbed_primals(params["g"], params["lin"], np_))

    def linearized(residuals, *tangents):
        p, kept, u, uy = residuals
        dp, _, du, duy = vjp_parts(tangents, **params)
        if linear:
            return vjp_p.bind(*p, *kept, *instantiate([*du, *duy]), **params)
        return vjp_tangent(p, u, uy, dp, du, duy, np_, False, **params)

    residuals = (p, kept, [], []) if linear else (p, [], u, uy)
    return out, [True] * len(out), residuals, linearized


def vjp_transpose(cts, *args, g, lin, y_lin, plan, keep):
    p, kept, u, uy = vjp_parts(args, g, lin, y_lin, plan, keep)
    out = lin_call(g, lin, y_lin, plan, p, instantiate(cts), kept)
    linear = [c if is_undefined(a) else None for c, a in zip(out, [*u, *uy], strict=True)]
    return [None] * (len(p) + len(kept)) + linear


# ---- VTan


def vtan_parts(args, g, lin, y_lin, plan, m, both, keep):
    return split(args, *vtan_sizes(g, lin, y_lin, plan, m, both, keep))


def vtan_jvp(primals, tangents, **params):
    """The definition, which is a Vjp of the dual body, differentiated."""
    nonzero = [not api.is_zero(t) for t in tangents]

    def f(*moving):
        return vtan_impl(*merge(nonzero, moving, omit(nonzero, primals)), **params)

    return jax.jvp(f, pick(nonzero, primals), pick(nonzero, tangents))


def vtan_partial_eval(trace, *tracers, **params):
    """With only tangents unknown, the value is known now and the derivative is staged."""
    tracers = [trace.to_jaxpr_tracer(t) for t in tracers]
    p, kept, u, uy, dp, du, duy = vtan_parts(tracers, **params)
    keep = params["keep"] and all(map(api.is_known, kept))
    inputs = [*p, *(kept if keep else []), *u, *uy, *dp, *du, *duy]
    stage = lambda both: trace.default_process_primitive(
        vtan_p, [trace.instantiate_const(t) for t in inputs], {**params, "both": both, "keep": keep}
    )
    if not params["both"] or not all(map(api.is_known, [*p, *u, *uy])):
        return stage(params["both"])
    values = lambda part: [t.pval.get_known() for t in part]
    g, lin, plan = params["g"], params["lin"], params["plan"]
    n = len(g.x_avals) - sum(g.carry(lin))
    start = [k for part in kept_parts(plan, kept) for k in part[:n]]  # the carries; their tangents follow
    have = params["keep"] and all(map(api.is_known, start))
    known_kept = values(start) if have else None
    value = vjp_call(g, lin, params["y_lin"], plan, values(p), values(u), values(uy), known_kept)
    return [*value, *stage(False)]


def vtan_partial_eval_custom(saveable, unknowns, instantiated, eqn):
    """jax.checkpoint's split of the same: the value from what is known, everything again in the staged part."""
    params = eqn.params
    p, _, u, uy, *_ = vtan_parts(unknowns, **params)
    new = [v for v, i in zip(eqn.invars, instantiated, strict=True) if api.is_var(v) and not i]
    every = [True] * len(eqn.outvars)
    if not params["both"] or any([*p, *u, *uy]):
        return None, eqn, every, every, new
    # the value alone: a derivative along nothing
    n = len(eqn.outvars) // 2
    values, _, *cotangents = vtan_parts(eqn.invars, **params)[:4]
    known = eqn.replace(
        invars=[*values, *[v for part in (*cotangents, *cotangents) for v in part]],
        outvars=eqn.outvars[:n],
        params={**params, "m": (False,) * len(params["m"]), "both": False, "keep": False},
    )
    return known, eqn, [False] * n + [True] * n, every, new


def vtan_transpose(cts, *args, g, lin, y_lin, plan, m, both, keep):
    assert not both, "the value of a Vjp is not linear in its primals"
    p, kept, u, uy, dp, du, duy = vtan_parts(args, g, lin, y_lin, plan, m, both, keep)
    v = instantiate(cts)
    ct_dp: Sequence[Any] = [None] * len(dp)
    ct_du: Sequence[Any] = [None] * (len(du) + len(duy))
    if any(map(is_undefined, [*du, *duy])):
        ct_du = lin_call(g, lin, y_lin, plan, p, v)
    if any(map(is_undefined, dp)):
        big, y_big = g.perturbed(m)
        h = g.dual(big, y_big)
        lin2 = tuple(g.weave([False] * len(big), [True] * sum(big), big))
        y_lin2 = (*[False] * g.num_ys, *[True] * sum(y_big))
        on_x = fill(g.carry(lin), u)
        on_y = fill(y_lin, uy)
        zero = lambda value, aval: api.zeros_like_aval(aval) if value is None else value
        us = pick(g.carry(big), map(zero, on_x, g.x_avals))
        uys = pick(y_big, map(zero, on_y, y_stacks(g, plan.length)))
        ct = vjp_call(h, lin2, y_lin2, plan, merge(lin, v, p), us, uys)
        ct_dp = pick(m, fill(big, ct))
    linear = [c if is_undefined(a) else None for c, a in zip([*ct_dp, *ct_du], [*dp, *du, *duy], strict=True)]
    return [None] * (len(p) + len(kept) + len(u) + len(uy)) + linear


def vtan_dce(used, eqn):
    params = eqn.params
    n = len(eqn.outvars) // 2
    if not any(used):
        return [False] * len(eqn.invars), None
    if not params["both"] or any(used[:n]):
        return [True] * len(eqn.invars), eqn
    return [True] * len(eqn.invars), eqn.replace(outvars=eqn.outvars[n:], params={**params, "both": False})


# ---- registrations

api.define_jvp(vjp_p, vjp_jvp)
api.define_linearize(vjp_p, vjp_linearize)
api.define_transpose(vjp_p, vjp_transpose)

api.define_jvp(vtan_p, vtan_jvp)
api.define_partial_eval(vtan_p, vtan_partial_eval)
api.define_partial_eval_custom(vtan_p, vtan_partial_eval_custom)
api.define_transpose(vtan_p, vtan_transpose)
api.define_dce(vtan_p, vtan_dce)
