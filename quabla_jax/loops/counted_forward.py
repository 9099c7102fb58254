"""The forward pass of a counted loop: argument lists, the loop as one jax.lax.scan, and the loop that keeps carries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax import lax

from ..lowering import jax_api as api
from ._lists import pick, split
from .body import Body
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
