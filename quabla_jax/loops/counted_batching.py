"""vmap rules of the counted loop's primitives: a fixed point finds the mapped carries; the rest stays unmapped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

from ..lowering import jax_api as api
from ._lists import fill, merge, omit, pick, split
from .body import Body
from .counted import kept_axes, lin_call, lin_p, loop_p, scan_axes, vjp_call, vjp_p, vtan_p
from .counted_rules import kept_parts, lin_parts
from .counted_vjp_rules import vjp_parts, vtan_parts


def mapped(dims: Sequence[Any]) -> list[bool]:
    return [d is not None for d in dims]


def axis_to(args, dims, want: Sequence[bool], axis: Any, place: Sequence[int]) -> list[Any]:
    """`args` with their batch axis at `place`; those of `want` that have none are broadcast, sharded as the others are."""
    out = []
    for a, d, w, k in zip(args, dims, want, place, strict=True):
        if d is not None:
            a = jnp.moveaxis(a, d, k) if d != k else a
        elif w:
            a = api.broadcast_mapped(axis, a, k)
        out.append(a)
    return out


def out_dims(mask: Sequence[bool], place: Sequence[int] | int) -> list[int | None]:
    places = [place] * len(mask) if isinstance(place, int) else place
    return [k if m else None for m, k in zip(mask, places, strict=True)]


def kept_to(kept, dims, mask: Sequence[bool], plan, axis: Any) -> list[Any]:
    """The kept carries, of which `mask` must be mapped, with their batch axis behind the block axis."""
    want = [*mask, *(mask if plan.rest else [])]
    place = [1] * len(mask) + ([0] * len(mask) if plan.rest else [])
    return axis_to(kept, dims, want, axis, place)


def with_linear(g: Body, lin, nonzero_p: Sequence[bool], extra: Sequence[bool] | None = None, kept=()):
    """Inputs mapped in a cotangent sweep: the primals that must be, and every linear input; and the mapped y.

    `kept` says which kept carries are mapped: JAX may map them where the carry they came from is not.
    """
    mask = merge(lin, [False] * sum(lin), nonzero_p)
    n = len(omit(g.carry(lin), g.carry(lin)))
    if any(kept):
        x_kept = iter([any(kept[k::n]) for k in range(n)])
        nc, nx = g.sizes[:2]
        mask[nc : nc + nx] = [m if l else m or next(x_kept) for m, l in zip(g.carry(mask), g.carry(lin), strict=True)]
    mask, _ = g.depends(mask)
    mask = [a or b for a, b in zip(mask, lin, strict=True)]
    if extra is not None:
        mask = [a or b for a, b in zip(mask, extra, strict=True)]
    return g.depends(mask)


def loop_batch(axis, args, dims, *, g: Body, plan, keep):
    mask, y_mask = g.mapped(mapped(dims), axis)
    x_mask = g.carry(mask)
    args = axis_to(args, dims, mask, axis, scan_axes(g))
    out = loop_p.bind(*args, g=g.batched(mask, y_mask, axis), plan=plan, keep=keep)
    kept = kept_axes(plan, pick(keep, x_mask)) if keep is not None else []
    return out, [*out_dims(x_mask, 0), *out_dims(y_mask, 1), *kept]


def lin_batch(axis, args, dims, *, g: Body, lin, y_lin, plan, keep, linear):
    p, kept, d = lin_parts(args, lin, plan, keep)
    p_dims, kept_dims, d_dims = lin_parts(dims, lin, plan, keep)
    mask, y_mask = with_linear(g, lin, mapped(p_dims), kept=mapped(kept_dims))
    x_lin, x_mask = g.carry(lin), g.carry(mask)
    inputs = axis_to(merge(lin, d, p), merge(lin, d_dims, p_dims), mask, axis, scan_axes(g))
    if keep is not None:
        kept = kept_to(kept, kept_dims, omit(x_lin, x_mask), plan, axis)
    body = g.batched(mask, y_mask, axis, True)
    out = lin_call(
        body, lin, y_lin, plan, omit(lin, inputs), pick(lin, inputs), kept if keep is not None else None, linear
    )
    return out, [*out_dims(pick(x_lin, x_mask), 0), *out_dims(pick(y_lin, y_mask), 1)]


def vjp_batch(axis, args, dims, **params):
    g, lin, y_lin, plan = (params[k] for k in ("g", "lin", "y_lin", "plan"))
    p, kept, u, uy = vjp_parts(args, **params)
    p_dims, kept_dims, u_dims, uy_dims = vjp_parts(dims, **params)
    mask, y_mask = with_linear(g, lin, mapped(p_dims), kept=mapped(kept_dims))
    places = scan_axes(g)
    p = axis_to(p, p_dims, omit(lin, mask), axis, omit(lin, places))
    kept = kept_to(kept, kept_dims, omit(g.carry(lin), g.carry(mask)), plan, axis)
    u = axis_to(u, u_dims, [True] * len(u), axis, [0] * len(u))
    uy = axis_to(uy, uy_dims, [True] * len(uy), axis, [1] * len(uy))
    out = vjp_call(g.batched(mask, y_mask, axis, True), lin, y_lin, plan, p, u, uy, kept)
    return out, pick(lin, places)


def _kept_mapped(dims, *, g: Body, lin, m, plan, **_) -> list[bool]:
    """Which nonlinear carries VTan is given mapped, themselves or their tangents."""
    moving = omit(g.carry(lin), g.carry(m))
    found = [False] * len(moving)
    for part in kept_parts(plan, dims):
        k, dk = split(part, len(moving), sum(moving))
        found = [f or a is not None or b is not None for f, a, b in zip(found, k, fill(moving, dk), strict=True)]
    return found


def vtan_batch(axis, args, dims, **params):
    g, lin, m = (params[k] for k in ("g", "lin", "m"))
    parts = vtan_parts(args, **params)
    part_dims = vtan_parts(dims, **params)
    p_dims, kept_dims, dp_dims = part_dims[0], part_dims[1], part_dims[4]
    if params["both"] and not any(mapped([d for k in (0, 2, 3) for d in part_dims[k]])):
        # forward over reverse along many tangents: the value stays unmapped, as jacfwd expects
        n = sum(not b for b in g.carry(lin))
        primal = lambda kept: [v for part in kept_parts(params["plan"], kept) for v in part[:n]]
        start = primal(parts[1]) if params["keep"] and not any(mapped(primal(kept_dims))) else None
        value = vjp_call(g, lin, params["y_lin"], params["plan"], parts[0], parts[2], parts[3], start)
        out, out_axes = vtan_batch(axis, args, dims, **{**params, "both": False})
        return [*value, *out], [*[None] * len(value), *out_axes]
    kept = _kept_mapped(kept_dims, **params) if params["keep"] else ()
    # a primal whose tangent is mapped is mapped with it: the dual body has one axis for both
    mask, y_mask = with_linear(g, lin, mapped(p_dims), fill(m, [True] * len(dp_dims), False), kept)
    places = scan_axes(g)
    moved = axis_to(parts[0], p_dims, omit(lin, mask), axis, omit(lin, places))
    if params["keep"]:
        carries = [*omit(g.carry(lin), g.carry(mask)), *pick(g.carry(m), g.carry(mask))]
        moved += kept_to(parts[1], kept_dims, carries, params["plan"], axis)
    _, _, u, uy, _, du, duy = map(len, parts)
    at = [[0] * u, [1] * uy, pick(m, places), [0] * du, [1] * duy]
    for a, d, k in zip(parts[2:], part_dims[2:], at, strict=True):
        moved += axis_to(a, d, [True] * len(a), axis, k)
    out = vtan_p.bind(*moved, **{**params, "g": g.batched(mask, y_mask, axis, True)})
    return out, pick(lin, places) * (2 if params["both"] else 1)


api.define_batching(loop_p, loop_batch)
api.define_batching(lin_p, lin_batch)
api.define_batching(vjp_p, vjp_batch)
api.define_batching(vtan_p, vtan_batch)
