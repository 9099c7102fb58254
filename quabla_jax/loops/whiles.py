"""The front door to while loops with reverse mode: pytrees, closures and jax.lax.while_loop's own checks.

jax.lax.while_loop itself traces the functions, checks the carry, promotes weak types and moves carries that never change
into constants; the equation it leaves is then bound as the engine's loop. So every error is JAX's own.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import lax

from .._cycles import refusing_cycles
from ..lowering import jax_api as api
from . import progress
from . import while_batching as while_batching  # registers the vmap rules of the primitives used here
from ._lists import merge, omit, pick, split
from .body import Body
from .lanes import Lanes
from .multilevel import Pool
from .predicate import Predicate, Test
from .unbounded import bind_loop

__all__ = ["dynamic_fori", "pool_for", "while_loop"]

AUTO_SLOTS, AUTO_LEVELS, AUTO_BYTES = 64, 4, 2**28
"""checkpoint="auto": 64 slots on each of 4 levels, fewer where they would take more than 256 MiB, but 16 at least."""

_TRACES: OrderedDict[Any, tuple] = OrderedDict()
_MAX_TRACES = 256


def pool_for(checkpoint: Any, carry_bytes: int) -> Pool:
    """The pool that `checkpoint` asks for.

    Arguments:
        checkpoint: "auto"; how many carries to store; or a budget, an object with an int attribute `bytes`.
        carry_bytes: bytes of one carry.

    Raises:
        TypeError: anything else.
        ValueError: less than one carry.
    """
    if checkpoint == "auto":
        fit = AUTO_BYTES // max(1, carry_bytes)
        return Pool(max(16, min(AUTO_SLOTS * AUTO_LEVELS, fit)))
    if isinstance(checkpoint, int) and not isinstance(checkpoint, bool):
        return Pool(checkpoint)
    limit = getattr(checkpoint, "bytes", None)
    if isinstance(limit, int):
        slots = limit // max(1, carry_bytes)
        if slots < 2:
            raise ValueError(
                f"checkpoint: the budget of {limit} bytes is too small for this while_loop, whose carry takes {carry_bytes} "
                f"bytes; the least that would do is {2 * carry_bytes} bytes"
            )
        return Pool(min(slots, 4096))
    raise TypeError(
        f'checkpoint of while_loop: expected None, "auto", a number of carries to store or a budget, got {checkpoint!r}; '
        "the trip count is not known beforehand, so plans that depend on it are not available"
    )


@refusing_cycles
def while_loop(cond_fun: Callable, body_fun: Callable, init_val: Any, *, checkpoint: Any = None) -> Any:
    """jax.lax.while_loop with reverse mode of any order, in memory fixed beforehand.

    Arguments:
        cond_fun: carry -> scalar bool. body_fun: carry -> carry of the same structure, shapes and dtypes. Both may close
            over arrays and tracers.
        init_val: pytree of arrays: the first carry.
        checkpoint: None: jax.lax.while_loop itself (forward mode only). "auto": up to 256 carries. int n: at most n
            carries. A budget: as many carries as its bytes hold.

    Returns:
        The first carry for which cond_fun is false.

    Raises:
        What jax.lax.while_loop raises; TypeError or ValueError for a checkpoint that is neither of the above.

    Differentiation: jvp, vjp and their compositions to any order. The trip count has no derivative. Functions with side
    effects run in jax.lax's own loop, where JAX refuses reverse mode.
    Cost: n steps keep at most that many carries. Up to n + 1 carries: the forward pass and one vjp a step. Longer: one
    more run of the body for each level that n carries need to cover the trip count (docs/while_gradients.md). At most
    2^31 - 1 steps.
    """
    meter = progress.current()
    if meter is not None:
        again = lambda cond, body, init: while_loop(cond, body, init, checkpoint=checkpoint)
        return progress.count_while(meter, again, cond_fun, body_fun, init_val)
    if checkpoint is None or api.jit_disabled() and all(map(api.is_concrete, jax.tree.leaves(init_val))):
        return lax.while_loop(cond_fun, body_fun, init_val)  # without jit a loop of Python's
    return _through_lax(lambda init: lax.while_loop(cond_fun, body_fun, init), init_val, checkpoint)


def dynamic_fori(lower: Any, upper: Any, body_fun: Callable, init_val: Any, *, checkpoint: Any = "auto") -> Any:
    """jax.lax.fori_loop between bounds that may be traced, with reverse mode as in `while_loop`."""
    loop = lambda args: lax.fori_loop(args[0], args[1], body_fun, args[2])
    return _through_lax(loop, (lower, upper, init_val), checkpoint)


def _through_lax(loop: Callable, args: Any, checkpoint: Any) -> Any:
    """Trace jax.lax's loop, then evaluate what it traced to with the engine's loop in the while equation's place."""
    leaves, tree = jax.tree.flatten(args)
    trees = []

    def flat(*leaves):
        out, out_tree = jax.tree.flatten(loop(tree.unflatten(leaves)))
        trees.append(out_tree)
        return out

    try:
        avals = list(map(jax.typeof, leaves))
    except TypeError:  # not arrays: JAX refuses them in its own words
        return loop(args)
    jaxpr, consts = api.trace_flat(flat, avals)
    axes = _own_ends(jaxpr)
    if axes:  # whatever a device carries out of such a loop is its own
        leaves = [api.as_varying(v, axes) for v in leaves]
        jaxpr, consts = api.trace_flat(flat, list(map(jax.typeof, leaves)))

    def handle(eqn, inputs):
        return _bind(eqn, inputs, checkpoint) if eqn.primitive is api.while_p else None

    return trees[0].unflatten(api.eval_with(jaxpr, [*consts, *leaves], handle))


def _own_ends(jaxpr: Any) -> frozenset[Any]:
    """The manual axes of a shard_map whose devices end the loop in a jaxpr on their own."""
    conds = [api.while_equation(eqn)[0] for eqn in jaxpr.eqns if eqn.primitive is api.while_p]
    return frozenset().union(*(api.varying_axes(cond.out_avals[0]) for cond in conds))


def _bind(eqn: Any, inputs: Sequence[Any], checkpoint: Any) -> list[Any] | None:
    """The engine's loop for a while equation; None where it has effects and stays jax.lax's."""
    cond, num_cc, body, num_c = api.while_equation(eqn)
    if api.has_effects(cond) or api.has_effects(body):
        return None
    cc, c, x = split(inputs, num_cc, num_c, len(inputs) - num_cc - num_c)
    g, predicate, used_cc, fixed = _traced(cond, num_cc, body, num_c)
    settle = lambda values, avals: list(map(api.settle, values, avals))
    tested = predicate.test
    head = settle([*pick(fixed, x), *pick(used_cc, cc)], tested.avals[: tested.num_consts])
    pool = pool_for(checkpoint, sum(api.aval_bytes(a) for a in g.x_avals))
    args = settle([*c, *pick(fixed, x), *omit(fixed, x)], g.avals)
    out = iter(_run(head, args, g, predicate, pool))
    out = [api.as_array(a) if f else next(out) for a, f in zip(x, fixed, strict=True)]
    return [api.with_weak_type(v, getattr(w.aval, "weak_type", False)) for v, w in zip(out, eqn.outvars, strict=True)]


def _run(head: Sequence[Any], args: Sequence[Any], g: Body, predicate: Predicate, pool: Pool) -> list[Any]:
    """The loop's final carry. Devices that end on their own become lanes, along an axis of one example a device."""
    axes = api.varying_axes(predicate.test.aval)
    mixed = bool(axes & api.collective_axes(g.jaxpr))
    lanes = Lanes.none(len(args), axes, mixed)
    if not axes:
        return bind_loop(head, args, g, predicate, lanes, pool)[0]
    consts, x = split(args, len(args) - g.sizes[1], g.sizes[1])
    run = lambda *x: bind_loop(head, [*consts, *x], g, predicate, lanes, pool)[0]
    out = jax.vmap(run, axis_size=1)(*(jax.numpy.expand_dims(v, 0) for v in x))
    return [jax.numpy.squeeze(v, 0) for v in out]


def _traced(cond: Any, num_cc: int, body: Any, num_c: int) -> tuple:
    """(body, predicate, which of the predicate's constants it uses, which carries never change); remembered."""
    try:
        key = (api.jaxpr_key(cond), num_cc, api.jaxpr_key(body), num_c)
    except TypeError:  # a parameter without equality: traced afresh every time
        return _split(cond, num_cc, body, num_c)
    if key not in _TRACES:
        _TRACES[key] = (*_split(cond, num_cc, body, num_c), cond, body)  # the jaxprs keep the ids in the key alive
        while len(_TRACES) > _MAX_TRACES:
            _TRACES.popitem(last=False)
    _TRACES.move_to_end(key)
    return _TRACES[key][:4]


def _split(cond: Any, num_cc: int, body: Any, num_c: int) -> tuple:
    """Carries that the body hands on unchanged become constants of the body and of the predicate."""
    body_jaxpr, body_consts = api.detach_consts(body)
    cond_jaxpr, cond_consts = api.detach_consts(cond)
    lead = len(body_consts)
    carry = body_jaxpr.invars[lead + num_c :]
    fixed = [a is b for a, b in zip(carry, body_jaxpr.outvars, strict=True)]
    if any(fixed):
        step = lambda *a: _step(body_jaxpr, body_consts, a, num_c, fixed)
        avals = [v.aval for v in body_jaxpr.invars[lead:]]
        c_avals, x_avals = split(avals, num_c, len(carry))
        g = Body.trace(
            step,
            [*c_avals, *pick(fixed, x_avals), *omit(fixed, x_avals)],
            (num_c + sum(fixed), len(carry) - sum(fixed), 0),
        )
    else:
        g = Body(body_jaxpr, body_consts, (num_c, len(carry), 0))
    _, used = api.prune_jaxpr(cond_jaxpr, [True], [False] * len(cond_jaxpr.invars))
    used_cc, reads = split(used[len(cond_consts) :], num_cc, len(carry))
    reads = omit(fixed, reads)
    cond_avals = [v.aval for v in cond_jaxpr.invars[len(cond_consts) :]]
    cc_avals, x_avals = split(cond_avals, num_cc, len(carry))

    def test(*a):
        k, cc, x = split(a, sum(fixed), sum(used_cc), sum(reads))
        rest = merge(fixed, k, merge(reads, x, [None] * (len(reads) - sum(reads))))
        zeros = lambda values, avals: [api.zeros_like_aval(t) if v is None else v for v, t in zip(values, avals)]
        cc = merge(used_cc, cc, [None] * (num_cc - sum(used_cc)))
        return api.eval_jaxpr(cond_jaxpr, (), *cond_consts, *zeros(cc, cc_avals), *zeros(rest, x_avals))

    avals = [*pick(fixed, x_avals), *pick(used_cc, cc_avals), *pick(reads, omit(fixed, x_avals))]
    jaxpr, consts = api.trace_flat(test, list(map(api.strong_aval, avals)))
    tested = Test(jaxpr, consts, sum(fixed) + sum(used_cc))
    return g, Predicate(tested, tuple(reads)), used_cc, fixed


def _step(jaxpr: Any, consts: Sequence[Any], args: Sequence[Any], num_c: int, fixed: Sequence[bool]) -> list[Any]:
    c, k, x = split(args, num_c, sum(fixed), len(fixed) - sum(fixed))
    return omit(fixed, api.eval_jaxpr(jaxpr, (), *consts, *c, *merge(fixed, k, x)))
