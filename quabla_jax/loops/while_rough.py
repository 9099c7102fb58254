"""Higher orders of a while loop whose body's transpose is not linear in the cotangents (see custom_rules.py).

The reverse pass is then a loop forward, of a body f, and one back, of a body b that need not be transposes of one another:

  Sweep[f, b](n, c, x0, u)              -> cotangents of constants, then of the first carry
      x_(t+1) = f(c, x_t),   (dc_t, u_t) = b(c, x_t, u_(t+1)),   dc = sum of the dc_t
  Tan[f, b](n, c, x0, u; dc, dx0, du)   -> its derivative, linear in the dotted

The derivative of Sweep is a Sweep of the dual bodies, on pairs of carries and pairs of cotangents, in the memory of the same
pool, at every order. Tan's transpose has no such form: where b is not linear in u, it would need the u_t in rising order as
well. It is found row by row instead, one Tan for each scalar of the inputs: exact, and in the same memory, but that much
slower. Only reverse over reverse asks for it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ..lowering import jax_api as api
from ._lists import fill, merge, omit, pick, split
from .body import Body
from .lanes import Lanes
from .multilevel import Pool
from .while_sweep import Reverse, sweep, transposed_step

__all__ = ["bind_sweep", "sweep_p", "tan_p"]


class Bodies:
    """f, b and how they fit together; hashed by identity, derived ones remembered.

    Attributes:
        f: (c, x) -> x'. b: (c and x in the order `order` of f's inputs, u) -> (u', dc).
        lanes: those of f. d_at: lane axes of dc, then of u.
    """

    def __init__(self, f: Body, b: Body, order: Sequence[int], lanes: Lanes, d_at: Sequence[Any]):
        self.f, self.b, self.order, self.lanes, self.d_at = f, b, tuple(order), lanes, tuple(d_at)
        self.num_dc, self.num_u = b.num_ys, b.sizes[1]
        self._memo: dict[Any, Any] = {}

    def once(self, key: Any, make: Any) -> Any:
        if key not in self._memo:
            self._memo[key] = make()
        return self._memo[key]

    @classmethod
    def of(cls, g: Body, lin: tuple, lanes: Lanes) -> Bodies:
        """The sweep of the vjp of the body g in the inputs `lin`."""
        inside = [not m for m in lin]
        f = g.only(inside, ())
        num_p, num_dc = len(f.avals), sum(lin[: g.sizes[0]])

        def back(*args):
            out = transposed_step(g, lin, args[:num_p], args[num_p:])
            return [*out[num_dc:], *out[:num_dc]]

        u_avals = pick(g.carry(lin), g.x_avals)
        b = Body.trace(back, [*f.avals, *u_avals], (num_p, len(u_avals), 0))
        return cls(f, b, range(num_p), lanes.pick(inside), pick(lin, lanes.at))

    def args(self, args: Sequence[Any]) -> list[Any]:
        """(n, c and x, u)."""
        (n,), p, u = split(args, 1, len(self.f.avals), self.num_u)
        return [n, p, u]

    def masks(self, nonzero: Sequence[bool]) -> tuple[Any, Any, Any]:
        """Which inputs of f and of b have a tangent, and which dc, where those of Sweep marked `nonzero` have."""
        _, p, u = self.args(nonzero)
        mask, _ = self.f.perturbed(p)
        b_mask, dc = self.b.perturbed([*[mask[i] for i in self.order], *u])
        return mask, b_mask, dc

    def dual(self, mask: Any, b_mask: Any, dc: Any) -> Bodies:
        def make():
            labels = self.f.weave([(0, i) for i in range(len(mask))], [(1, i) for i, m in enumerate(mask) if m], mask)
            wanted = [*((0, i) for i in self.order), *((1, i) for i in self.order if mask[i])]
            dc_at, u_at = split(self.d_at, self.num_dc, self.num_u)
            u_mask = self.b.carry(b_mask)
            return Bodies(
                self.f.dual(mask, ()),
                self.b.dual(b_mask, dc),
                [labels.index(w) for w in wanted],
                self.lanes.dual(self.f, mask),
                [*dc_at, *pick(dc, dc_at), *u_at, *pick(u_mask, u_at)],
            )

        return self.once(("dual", mask, b_mask, dc), make)

    def batched(self, axis: Any, grows: bool) -> Bodies:
        """Under one more vmap, with everything mapped; `grows`: the trip count too."""

        def make():
            every = lambda n: (True,) * n
            f = self.f.batched(every(len(self.f.avals)), (), axis)
            b = self.b.batched(every(len(self.b.avals)), every(self.num_dc), axis)
            mixed = axis.name in api.collective_axes(self.f.jaxpr)
            grown = lambda lanes: (
                lanes.grown(every(len(lanes.at)), mixed) if grows else lanes.shifted(every(len(lanes.at)))
            )
            d_lanes = Lanes(self.lanes.ndim, self.d_at)
            return Bodies(f, b, self.order, grown(self.lanes), grown(d_lanes).at)

        return self.once(("batched", *api.axis_key(axis), grows), make)

    def run(self, pool: Pool, n: Any, p: Sequence[Any], u: Sequence[Any]) -> list[Any]:
        def step(p, u):
            new_u, dc = self.b([*[p[i] for i in self.order], *u])
            return [*dc, *new_u]

        r = Reverse(self.f, self.lanes, step, self.d_at, self.num_dc, n, p)
        return sweep(r, pool, None, self.b.y_avals, u)


def bind_sweep(n: Any, p: Sequence[Any], u: Sequence[Any], g: Body, lin: tuple, lanes: Lanes, pool: Pool) -> list[Any]:
    """Vjp of unbounded.py as a Sweep."""
    bodies = g.once(("sweep", tuple(lin), lanes), lambda: Bodies.of(g, tuple(lin), lanes))
    return sweep_p.bind(n, *p, *u, bodies=bodies, pool=pool)


# ---- Sweep


def _sweep_impl(*args, bodies: Bodies, pool: Pool):
    return bodies.run(pool, *bodies.args(args))


def _sweep_avals(*_, bodies: Bodies, pool: Pool):
    return [*bodies.b.y_avals, *bodies.b.x_avals]


def _sweep_jvp(primals, tangents, *, bodies: Bodies, pool: Pool):
    out = sweep_p.bind(*primals, bodies=bodies, pool=pool)
    masks = bodies.masks([not api.is_zero(t) for t in tangents])
    mask, b_mask, dc = masks
    _, dp, du = bodies.args(tangents)
    marks = [*dc, *bodies.b.carry(b_mask)]
    zeros = [api.Zero(jax.typeof(v).to_tangent_aval()) for v in out]
    if not any(marks):
        return out, zeros
    dots = map(api.instantiate, [*pick(mask, dp), *pick(bodies.b.carry(b_mask), du)])
    return out, merge(marks, tan_p.bind(*primals, *dots, bodies=bodies, pool=pool, masks=masks), omit(marks, zeros))


def _sweep_batch(axis, args, dims, *, bodies: Bodies, pool: Pool):
    args, grows = _mapped(axis, args, dims)
    out = sweep_p.bind(*args, bodies=bodies.batched(axis, grows), pool=pool)
    return out, [0] * len(out)


def _mapped(axis, args, dims):
    (n, *rest), (n_dim, *rest_dims) = args, dims
    n = n if n_dim is None else jnp.moveaxis(n, n_dim, 0)
    front = lambda a, d: api.broadcast_mapped(axis, a, 0) if d is None else jnp.moveaxis(a, d, 0)
    return [n, *map(front, rest, rest_dims)], n_dim is not None


# ---- Tan


def _tan_args(args, bodies: Bodies, masks):
    """(n, p, u, dp, du)."""
    size = 1 + len(bodies.f.avals) + bodies.num_u
    dp, du = split(args[size:], sum(masks[0]), sum(bodies.b.carry(masks[1])))
    return [*bodies.args(args[:size]), dp, du]


def _as_sweep(*args, bodies: Bodies, pool: Pool, masks):
    """Tan written out as the Sweep of the dual bodies that it is."""
    n, p, u, dp, du = _tan_args(args, bodies, masks)
    dual = bodies.dual(*masks)
    out = sweep_p.bind(n, *bodies.f.weave(p, dp, masks[0]), *u, *du, bodies=dual, pool=pool)
    dc, new_u = split(out, dual.num_dc, dual.num_u)
    return [*dc[bodies.num_dc :], *new_u[bodies.num_u :]]


def _tan_avals(*_, bodies: Bodies, pool: Pool, masks):
    return [
        a.to_tangent_aval()
        for a in [*pick(masks[2], bodies.b.y_avals), *pick(bodies.b.carry(masks[1]), bodies.b.x_avals)]
    ]


def _tan_jvp(primals, tangents, **params):
    nonzero = [not api.is_zero(t) for t in tangents]
    f = lambda *moving: _as_sweep(*merge(nonzero, moving, omit(nonzero, primals)), **params)
    return jax.jvp(f, tuple(pick(nonzero, primals)), tuple(pick(nonzero, tangents)))


def _tan_transpose(cts, *args, bodies: Bodies, pool: Pool, masks):
    unknown = list(map(api.is_undefined_primal, args))
    avals = [a.aval for a in pick(unknown, args)]
    if any(jnp.issubdtype(a.dtype, jnp.complexfloating) for a in avals):
        raise NotImplementedError(
            "reverse over reverse through a while loop of complex values whose body calls a custom_vjp function with a rule "
            "that is not linear; take the outer derivative in forward mode"
        )
    n, p, u, dp, du = _tan_args(args, bodies, masks)
    known = [n, *p, *u, *(d if api.is_undefined_primal(d) else jnp.zeros_like(d) for d in (*dp, *du))]
    live = [not api.is_zero(t) for t in cts]

    def row(k: int, i: Any) -> Any:
        """The derivative of <cts, Tan> in scalar i of the k-th unknown."""
        units = [api.zeros_like_aval(a) for a in avals]
        units[k] = jnp.zeros(math.prod(avals[k].shape), avals[k].dtype).at[i].set(1).reshape(avals[k].shape)
        out = tan_p.bind(*merge(unknown, units, omit(unknown, known)), bodies=bodies, pool=pool, masks=masks)
        return sum(jnp.sum(c * t) for c, t in zip(pick(live, cts), pick(live, out), strict=True))

    def rows(k: int, aval: Any) -> Any:
        flat = lax.map(lambda i: row(k, i), jnp.arange(math.prod(aval.shape)))
        return flat.astype(aval.dtype).reshape(aval.shape)

    return fill(unknown, [rows(k, a) for k, a in enumerate(avals)])


def _tan_batch(axis, args, dims, *, bodies: Bodies, pool: Pool, masks):
    args, grows = _mapped(axis, args, dims)
    out = tan_p.bind(*args, bodies=bodies.batched(axis, grows), pool=pool, masks=masks)
    return out, [0] * len(out)


sweep_p = api.define_primitive("qb_while_sweep", _sweep_impl, _sweep_avals)
tan_p = api.define_primitive("qb_while_sweep_tan", _as_sweep, _tan_avals)
api.define_jvp(sweep_p, _sweep_jvp)
api.define_batching(sweep_p, _sweep_batch)
api.define_jvp(tan_p, _tan_jvp)
api.define_transpose(tan_p, _tan_transpose)
api.define_batching(tan_p, _tan_batch)
