"""Running a while loop and its derivatives as jax.lax loops: what the primitives of unbounded.py lower to.

Every function here takes and returns flat lists of arrays, and is never differentiated or mapped itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ..lowering import jax_api as api
from . import inplace
from ._lists import merge, omit, pick, split
from .body import Batched, Body, Mask
from .lanes import Lanes, borrow, choose
from .multilevel import Pool
from .predicate import Predicate

I32 = jnp.int32


def at(pools: Sequence[Any], i: Any) -> list[Any]:
    """Slot i of every pool."""
    return [lax.dynamic_index_in_dim(a, i, keepdims=False) for a in pools]


def put(pools: Sequence[Any], x: Sequence[Any], i: Any) -> list[Any]:
    """The pools with x in slot i."""
    return [lax.dynamic_update_index_in_dim(a, b, i, 0) for a, b in zip(pools, x, strict=True)]


def filled(x: Sequence[Any], size: int) -> list[Any]:
    """Pools of `size` slots whose first holds x."""
    blank = lambda a: a if jnp.issubdtype(a.dtype, jax.dtypes.extended) else jnp.zeros_like(a)
    return put([jnp.broadcast_to(blank(a), (size, *jnp.shape(a))) for a in x], x, 0)


def runs_while(g: Body) -> bool:
    """Whether a step of the body holds a loop that runs until a condition fails, and so might never end."""
    return g.once("runs_while", lambda: api.contains_while(g.jaxpr))


class Forward:
    """The loop forward: from a condition, or from a known trip count.

    State (steps, x, alive, trips, e): `steps` taken; carry x; which lanes still run; how many steps each lane has run;
    and, only where a lane that has stopped could hang an inner while loop, the point e at which each lane's body is
    evaluated, its last while it ran.
    """

    def __init__(self, g: Body, cond: Predicate | None, lanes: Lanes, head: Sequence[Any], c: Sequence[Any]):
        self.g, self.cond, self.lanes, self.head, self.c = g, cond, lanes, list(head), list(c)
        self.x_at = lanes.carry(g)
        self.split_points = lanes.ndim > 0 and not lanes.mixed and runs_while(g)

    def start(self, x: Sequence[Any]) -> tuple:
        zero = I32(0)
        alive = self.head[0] > 0 if self.cond is None else self.cond(self.head, x)
        e = ()
        if self.split_points:
            self.c = borrow(alive, self.lanes.at[: len(self.c)], self.c)
            e = tuple(borrow(alive, self.x_at, x))
        trips = alive.astype(I32) & 0 if self.lanes.ndim and self.cond is not None else ()
        return (zero, tuple(x), alive, trips, e)

    def running(self, state: tuple) -> Any:
        return self.lanes.any(state[2]) if self.lanes.ndim else state[2]

    def step(self, state: tuple) -> tuple:
        steps, x, alive, trips, e = state
        if self.split_points:
            e = tuple(choose(alive, self.x_at, x, e))
        y, _ = self.g([*self.c, *(e if self.split_points else x)])
        steps = steps + 1
        if self.lanes.ndim:
            y = choose(alive, self.x_at, y, x)
        if self.cond is None:
            after = steps < self.head[0]
        else:
            after = self.cond(self.head, y)
            if self.lanes.ndim:
                trips, after = trips + alive.astype(I32), alive & after
        return (steps, tuple(y), after, trips, e)

    def trips(self, state: tuple) -> Any:
        return state[3] if self.lanes.ndim else state[0]


def loop_impl(*args, g: Body, cond: Predicate | None, lanes: Lanes, pool: Pool, keep: Any, count: bool):
    """The loop: final carry, then the trip counts if `count`, then the stride exponent and the kept carries if `keep`."""
    nh = 1 if cond is None else cond.num_consts
    head, c, x = split(args, nh, *g.sizes[:2])
    if cond is not None and not lanes.ndim and not count and keep is None:
        return list(lax.while_loop(lambda x: cond(head, x), lambda x: tuple(g([*c, *x])[0]), tuple(x)))
    if cond is None and not lanes.ndim and keep is None:
        return list(lax.fori_loop(0, head[0], lambda _, x: tuple(g([*c, *x])[0]), tuple(x)))
    forward = Forward(g, cond, lanes, head, c)
    if keep is None:
        state = lax.while_loop(forward.running, forward.step, forward.start(x))
        return [*state[1], *([forward.trips(state)] if count else [])]
    state, k, kept = _run_and_keep(forward, pool, keep, x)
    return [*state[1], *([forward.trips(state)] if count else []), k, *kept]


def _run_and_keep(forward: Forward, pool: Pool, keep: Mask, x: Sequence[Any]):
    """Run the loop and store carries at multilevel.py's strides; stretches of 2^k steps are inner loops."""
    lanes = forward.lanes
    kept_at = pick(keep, forward.x_at)
    start = forward.start(x)
    buffers = tuple(filled(pick(keep, x), pool.size))
    if not pool.kept_online:
        return lax.while_loop(forward.running, forward.step, start), I32(0), buffers
    capacities = jnp.asarray(pool.capacities, I32)

    def stretch(s: tuple) -> tuple:
        state, buffers, k, stored = s
        full = stored == capacities[k]
        half = jnp.where(full, stored // 2, 1)
        buffers = lax.fori_loop(1, half, lambda i, b: tuple(put(b, at(b, 2 * i), i)), buffers)
        stored, k = jnp.where(full, half, stored), k + full.astype(I32)
        now = pick(keep, state[1])
        if lanes.ndim and not lanes.mixed:  # a lane that has stopped repeats a carry at which its body did run
            now = choose(state[2] | (stored == 0), kept_at, now, at(buffers, jnp.maximum(stored - 1, 0)))
        buffers = tuple(put(buffers, now, stored))
        end = state[0] + lax.shift_left(I32(1), k)
        state = lax.while_loop(lambda s: forward.running(s) & (s[0] < end), forward.step, state)
        return state, buffers, k, stored + 1

    state, buffers, k, _ = lax.while_loop(lambda s: forward.running(s[0]), stretch, (start, buffers, I32(0), I32(0)))
    return state, k, buffers


def lin_impl(*args, g: Body, lin: tuple, lanes: Lanes, pool: Pool, keep: Any, linear: bool):
    """The outputs that depend on the inputs in `lin`, over a known number of steps."""
    (n,), p, _, d = split(args, 1, len(lin) - sum(lin), num_kept(keep), sum(lin))
    out = loop_impl(n, *merge(lin, d, p), g=g, cond=None, lanes=lanes, pool=pool, keep=None, count=False)
    return pick(g.carry(lin), out)


def num_kept(keep: Any) -> int:
    """How many arrays stand for the kept carries: the stride exponent and one pool a carry."""
    return 0 if keep is None else 1 + sum(keep)


def transposed_step(g: Body, lin: Mask, p: Sequence[Any], u: Sequence[Any]) -> list[Any]:
    """Cotangents of the inputs in `lin` for one step, from cotangents u of the carries in `lin`; p: the other inputs."""
    if isinstance(g, Batched) and g.linear:
        return _transposed_below(g, lin, p, u)
    avals = pick(lin, g.avals)
    x_lin = g.carry(lin)
    step = lambda *d: pick(x_lin, g(merge(lin, d, p))[0])
    transposed = lambda *u: list(jax.linear_transpose(step, *avals)(list(u)))
    if jax.default_backend() == "cpu" and inplace.overwritten(g.jaxpr):
        jaxpr, consts = api.trace_flat(transposed, list(map(jax.typeof, u)))
        if inplace.has_hazard(jaxpr):
            return inplace.reads_first(jaxpr, [*consts, *u])
        return api.eval_jaxpr(jaxpr, (), *consts, *u)
    return transposed(*u)


def _transposed_below(g: Batched, lin: Mask, p: Sequence[Any], u: Sequence[Any]) -> list[Any]:
    """Transpose the body below, then map. What is linear and not mapped enters at one example, and is summed over all."""
    mapped = pick(lin, g.mask)
    u_mapped = pick(g.carry(lin), g.carry(g.mask))
    first = lax.broadcasted_iota(I32, (g.axis.size,), 0) == 0

    def at_first(a):
        a = api.broadcast_mapped(g.axis, a, 0)
        return lax.select(lax.broadcast_in_dim(first, a.shape, (0,)), a, jnp.zeros_like(a))

    u = [a if m else at_first(a) for a, m in zip(u, u_mapped, strict=True)]
    num_p = len(p)
    below = lambda *a: transposed_step(g.below, lin, a[:num_p], a[num_p:])
    axes = [0 if m else None for m in omit(lin, g.mask)] + [0] * len(u)
    ct = g.vmap(below, axes, [0] * len(mapped))(*p, *u)
    return [a if m else jnp.sum(a, 0) for a, m in zip(ct, mapped, strict=True)]


class Reverse:
    """The loop backward: cotangents of the inputs in `lin`, at primal inputs p, over n steps (per lane).

    Lanes that have stopped take their body at the last carry where it ran, a lane that never ran at another lane's
    inputs; their cotangents enter as zeros and are put back after the body's vjp. So a derivative that is not finite where a
    lane stopped reaches nothing, neither the lane nor a constant that the lanes share. Where lanes mix, a stopped lane's
    last carry is part of what the others compute: the body is taken there, and its cotangents are added.
    """

    def __init__(
        self, base: Body, lanes: Lanes, transposed: Callable, d_at: Sequence[Any], num_dc: int, n: Any, p: Any
    ):
        """`base` steps forward, `transposed` (p, u) -> cotangents steps back.

        Arguments:
            lanes: those of `base`.
            d_at: lane axes of the cotangents: `num_dc` of constants, then those of carries.
            p: constants and first carry.
        """
        self.base, self.lanes, self.n, self.d_at, self.num_dc = base, lanes, n, d_at, num_dc
        self.transposed = transposed
        self.c, self.x0 = split(p, *base.sizes[:2])
        self.parted = lanes.ndim > 0 and not lanes.mixed
        if lanes.ndim:
            self.ran = n > 0
            c_at, self.x_at = split(lanes.at, *base.sizes[:2])
        if self.parted:
            self.c, self.x0 = borrow(self.ran, c_at, self.c), borrow(self.ran, self.x_at, self.x0)
        self.steps = lanes.longest(n) if lanes.ndim else n

    @classmethod
    def of(cls, g: Body, lin: tuple, lanes: Lanes, n: Any, p: Sequence[Any]) -> Reverse:
        """The reverse of the body g in the inputs `lin`."""
        inside = [not m for m in lin]
        step = lambda p, u: transposed_step(g, lin, p, u)
        return cls(g.only(inside, ()), lanes.pick(inside), step, pick(lin, lanes.at), sum(lin[: g.sizes[0]]), n, p)

    def load(self, pools: Sequence[Any], i: Any) -> tuple:
        x = at(pools, i)
        return tuple(choose(self.ran, self.x_at, x, self.x0) if self.parted else x)

    def walk(self, x: tuple, step: Any) -> tuple:
        """The carry after step `step`, where the body will next be evaluated: a lane stays at its last evaluation."""
        y, _ = self.base([*self.c, *x])
        last = self.n - 1 if self.parted else self.n
        return tuple(choose(step < last, self.x_at, y, x) if self.lanes.ndim else y)

    def back(self, x: Sequence[Any], step: Any, ct: tuple) -> tuple:
        """One step's vjp: (cotangents of constants so far, of the carry)."""
        dc, u = ct
        u_in = u
        p = [*self.c, *x]
        if self.lanes.ndim:
            active = step < self.n
            u_at = self.d_at[self.num_dc :]
            u_in = choose(active, u_at, u, list(map(jnp.zeros_like, u)))
        new = self.transposed(p, u_in)
        new_c, new_u = new[: self.num_dc], new[self.num_dc :]
        if self.lanes.mixed:
            new_u = choose(active, u_at, new_u, list(map(jnp.add, u, new_u)))
        elif self.lanes.ndim:
            new_u = choose(active, u_at, new_u, u)
            new_c = choose(active, self.d_at[: self.num_dc], new_c, list(map(jnp.zeros_like, new_c)))
        return tuple(map(jnp.add, dc, new_c)), tuple(new_u)


def vjp_impl(*args, g: Body, lin: tuple, lanes: Lanes, pool: Pool, keep: Any):
    """Cotangents of the inputs in `lin`. Arguments: n, the other inputs, the kept carries, u."""
    num_p, num_u = len(lin) - sum(lin), sum(g.carry(lin))
    (n,), p, kept, u = split(args, 1, num_p, num_kept(keep), num_u)
    r = Reverse.of(g, lin, lanes, n, p)
    return sweep(r, pool, kept if keep is not None else None, pick(lin, g.avals)[: r.num_dc], u)


def sweep(r: Reverse, pool: Pool, kept: Sequence[Any] | None, dc_avals: Sequence[Any], u: Sequence[Any]) -> list[Any]:
    """The cotangents of constants (of the types `dc_avals`) and carries that come of the cotangents u of the last carry."""
    ct = (tuple(map(api.zeros_like_aval, dc_avals)), tuple(u))
    if not r.x0:
        ct = lax.fori_loop(0, r.steps, lambda j, ct: r.back([], r.steps - 1 - j, ct), ct)
        return [*ct[0], *ct[1]]
    if kept is None:
        k, pools = I32(0), tuple(filled(r.x0, pool.size))
        stored = jnp.minimum(r.steps, 1)
    else:
        k, pools = kept[0], tuple(kept[1:])
        stored = -lax.shift_right_arithmetic(-r.steps, k) if pool.kept_online else jnp.minimum(r.steps, 1)
    position = lax.shift_left(lax.broadcasted_iota(I32, (pool.size,), 0), jnp.broadcast_to(k, (pool.size,)))
    ct = lax.while_loop(
        lambda s: s[2] > 0, lambda s: _reverse_stretch(r, pool, *s), (pools, position, stored, r.steps, ct)
    )[-1]
    return [*ct[0], *ct[1]]


def _reverse_stretch(r: Reverse, pool: Pool, pools: tuple, position: Any, stored: Any, end: Any, ct: tuple):
    """Push one carry, or reverse the stretch between the top of the stack and `end`, which is already reversed."""
    top = stored - 1
    begin = position[top]
    length = end - begin
    ahead = pool.advance(length, pool.size - stored)
    x = r.load(pools, top)
    dense = ahead == 0

    pushed = lax.fori_loop(0, ahead, lambda j, x: r.walk(x, begin + j), x)
    # A dense stretch pushes nothing: what is written here is overwritten, or with no slot free is the top slot's own.
    pools = tuple(put(pools, pushed, stored))
    position = lax.dynamic_update_index_in_dim(position, begin + ahead, stored, 0)

    def fill(j, s):
        x, pools = s
        x = r.walk(x, begin + j)
        return x, tuple(put(pools, x, top + 1 + j))

    _, pools = lax.fori_loop(0, jnp.where(dense, length - 1, 0), fill, (x, pools))

    def undo(j, ct):
        back = length - 1 - j
        return r.back(r.load(pools, top + back), begin + back, ct)

    ct = lax.fori_loop(0, jnp.where(dense, length, 0), undo, ct)
    return pools, position, jnp.where(dense, top, stored + 1), jnp.where(dense, begin, end), ct


def vtan_bodies(g: Body, lin: tuple, lanes: Lanes, m: tuple):
    """For the derivative of Vjp: the inputs with a tangent, the dual body in them, its lanes, which of its inputs are linear."""
    mask, _ = g.perturbed([a or b for a, b in zip(m, lin, strict=True)])
    lin2 = tuple(g.weave(lin, pick(mask, lin), mask))
    return mask, g.dual(mask, ()), lanes.dual(g, mask), lin2


def vtan_impl(*args, g: Body, lin: tuple, lanes: Lanes, pool: Pool, m: tuple):
    """Derivative of Vjp in directions dp (for the inputs in `m`) and du: a Vjp of the dual body, u on the tangents' place."""
    num_p, num_u = len(lin) - sum(lin), sum(g.carry(lin))
    (n,), p, u, dp, du = split(args, 1, num_p, num_u, sum(m), num_u)
    mask, h, lanes2, lin2 = vtan_bodies(g, lin, lanes, m)
    tangents = pick(mask, merge(m, dp, [None] * (len(m) - sum(m))))
    q = omit(lin2, g.weave(merge(lin, [None] * sum(lin), p), tangents, mask))
    ct = vjp_impl(n, *q, *du, *u, g=h, lin=lin2, lanes=lanes2, pool=pool, keep=None)
    a, _ = g.unweave(mask, merge(lin2, ct, [None] * (len(lin2) - sum(lin2))))
    return pick(lin, a)
