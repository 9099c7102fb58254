"""vmap of the while family: what is not mapped stays so, and a mapped trip count becomes a lane axis.

Two cases. Where the predicate (or the known count) is not mapped, the body is mapped over the inputs that depend on
mapped ones. Where it is, the loop runs while any lane does: every carry is mapped, and so is every constant that has a
lane axis already; other constants stay shared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

from ..lowering import jax_api as api
from ._lists import merge, omit, pick, split
from .body import Body, Mask
from .lanes import Lanes
from .unbounded import (
    _lin_args,
    _loop_args,
    _vjp_args,
    _vtan_args,
    bind_lin,
    bind_loop,
    bind_vjp,
    lin_p,
    loop_p,
    mapped,
    vjp_p,
    vtan_p,
)


def to_front(args: Sequence[Any], dims: Sequence[Any], want: Mask, axis: Any, place: int = 0) -> list[Any]:
    """Batch axes moved to `place`; what is wanted mapped and is not yet is broadcast along vmap's `axis`."""
    out = []
    for a, d, w in zip(args, dims, want, strict=True):
        if d is not None:
            a = jnp.moveaxis(a, d, place)
        elif w:
            a = api.broadcast_mapped(axis, a, place)
        out.append(a)
    return out


def _dims(mask: Mask, axis: int = 0) -> list[int | None]:
    return [axis if m else None for m in mask]


def _all_lanes(g: Body, lanes: Lanes, args_mapped: Mask) -> list[bool]:
    """The inputs mapped with the count: mapped ones, those with lane axes, and every carry."""
    has_lanes = [any(q is not None for q in places) for places in lanes.at]
    c, x = split([a or b for a, b in zip(args_mapped, has_lanes, strict=True)], *g.sizes[:2])
    return [*c, *[True] * len(x)]


def _mixes(g: Body, axis: Any) -> bool:
    """Whether a step of the body has a collective over the axis that is being mapped."""
    return axis.name in api.collective_axes(g.jaxpr)


def _loop_batch(axis, args, dims, *, g, cond, lanes, pool, keep, count):
    head, args = _loop_args(args, g, cond)
    head_dims, dims = _loop_args(dims, g, cond)
    mask, _ = g.depends(mapped(dims))
    reads = cond is not None and any(pick(cond.reads, g.carry(mask)))
    grows = reads or any(mapped(head_dims))
    if grows:
        mask = _all_lanes(g, lanes, mapped(dims))
        head = to_front(head, head_dims, mapped(head_dims), axis)
        cond = None if cond is None else cond.batched(mapped(head_dims), axis)
    lanes = lanes.grown(mask, _mixes(g, axis)) if grows else lanes.shifted(mask)
    args = to_front(args, dims, mask, axis)
    x, n, kept = bind_loop(head, args, g.batched(mask, (), axis), cond, lanes, pool, keep, count)
    x_mask = g.carry(mask)
    out_dims = _dims(x_mask) + [0 if grows else None] * len(n)
    if keep is not None:
        out_dims += [None, *_dims(pick(keep, x_mask), 1)]
    return [*x, *n, *kept], out_dims


def _cotangent_mask(g: Body, lin: Mask, lanes: Lanes, p_mapped: Mask, grows: bool) -> list[bool]:
    """The inputs mapped in a derivative: the primal ones that must be, and every linear one."""
    primal = merge(lin, [False] * sum(lin), p_mapped)
    if grows:
        return [a or b for a, b in zip(_all_lanes(g, lanes, primal), lin, strict=True)]
    mask, _ = g.depends(primal)
    mask, _ = g.depends([a or b for a, b in zip(mask, lin, strict=True)])
    return list(mask)


class _Mapped:
    """A derivative's body, lanes and common inputs under one more vmap."""

    def __init__(self, axis, g: Body, lin, lanes: Lanes, n, n_dim, p, p_dims, extra: Mask | None = None):
        grows = n_dim is not None
        self.mask = _cotangent_mask(g, lin, lanes, mapped(p_dims), grows)
        if extra is not None:  # a tangent's primal is mapped with it
            self.mask = [a or b for a, b in zip(self.mask, extra, strict=True)]
            self.mask = list(g.depends(self.mask)[0])
        self.axis = axis
        self.lanes = lanes.grown(self.mask, _mixes(g, axis)) if grows else lanes.shifted(self.mask)
        self.g = g.batched(self.mask, (), axis, linear=True)
        self.n = jnp.moveaxis(n, n_dim, 0) if grows else n
        self.p = to_front(p, p_dims, omit(lin, self.mask), axis)
        self.x_primal = omit(g.carry(lin), g.carry(self.mask))

    def all(self, values, dims) -> list[Any]:
        return to_front(values, dims, [True] * len(values), self.axis)

    def kept(self, kept, dims) -> list[Any] | None:
        """The kept carries, or None where they were kept lane by lane, each at a stride of its own."""
        if not kept or dims[0] is not None:
            return None
        return [kept[0], *to_front(kept[1:], dims[1:], self.x_primal, self.axis, 1)]


def _lin_batch(axis, args, dims, *, g, lin, lanes, pool, keep, linear):
    n, p, kept, d = _lin_args(args, lin, keep)
    n_dim, p_dims, kept_dims, d_dims = _lin_args(dims, lin, keep)
    b = _Mapped(axis, g, lin, lanes, n, n_dim, p, p_dims)
    out = bind_lin(b.n, b.p, b.all(d, d_dims), b.kept(kept, kept_dims), b.g, lin, b.lanes, pool, linear)
    return out, _dims(pick(g.carry(lin), g.carry(b.mask)))


def _vjp_batch(axis, args, dims, *, g, lin, lanes, pool, keep):
    n, p, kept, u = _vjp_args(args, g, lin, keep)
    n_dim, p_dims, kept_dims, u_dims = _vjp_args(dims, g, lin, keep)
    b = _Mapped(axis, g, lin, lanes, n, n_dim, p, p_dims)
    out = bind_vjp(b.n, b.p, b.all(u, u_dims), b.kept(kept, kept_dims), b.g, lin, b.lanes, pool)
    return out, [0] * len(out)


def _vtan_batch(axis, args, dims, *, g, lin, lanes, pool, m):
    n, p, u, dp, du = _vtan_args(args, g, lin, m)
    n_dim, p_dims, u_dims, dp_dims, du_dims = _vtan_args(dims, g, lin, m)
    b = _Mapped(axis, g, lin, lanes, n, n_dim, p, p_dims, extra=m)
    out = vtan_p.bind(
        b.n, *b.p, *b.all(u, u_dims), *b.all(dp, dp_dims), *b.all(du, du_dims),
        g=b.g, lin=lin, lanes=b.lanes, pool=pool, m=m,
    )  # fmt: skip
    return out, [0] * len(out)


for primitive, rule in ((loop_p, _loop_batch), (lin_p, _lin_batch), (vjp_p, _vjp_batch), (vtan_p, _vtan_batch)):
    api.define_batching(primitive, rule)
