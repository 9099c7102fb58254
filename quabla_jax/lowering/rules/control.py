"""scan, while, cond: Loop and Branch nodes."""

from __future__ import annotations

import numpy as np

from .. import equations, jax_api
from ..emitter import Emitter
from ..program import Const, Op, Region, Value
from . import Inline, register


def _lower_region(e, jaxpr, inputs):
    from ..interpreter import lower_region

    return lower_region(e, jaxpr, inputs)


def _run(e, jaxpr, inputs):
    from ..interpreter import run_jaxpr

    return run_jaxpr(e, *jax_api.open_jaxpr(jaxpr), inputs)


def _scan(e: Emitter, eqn, *inputs: Value):
    scan = equations.decode_scan(eqn)
    consts = inputs[: scan.n_consts]
    init = inputs[scan.n_consts : scan.n_consts + scan.n_carry]
    xs = inputs[scan.n_consts + scan.n_carry :]
    slices = [Value(x.shape[1:], x.dtype) for x in xs]
    body = _lower_region(e, scan.jaxpr, (*consts, *init, *slices))
    if scan.length == 0:
        ys = [e.full((0, *v.shape), 0, v.dtype) for v in body.outputs[scan.n_carry :]]
        return [*init, *ys]
    return e.loop("counted", consts, init, body, xs=xs, length=scan.length, reverse=scan.reverse)


def _while(e: Emitter, eqn, *inputs: Value):
    loop = equations.decode_while(eqn)
    n_cond, n_body = loop.n_cond_consts, loop.n_body_consts
    consts, init = inputs[: n_cond + n_body], inputs[n_cond + n_body :]
    predicate = jax_api.open_jaxpr(loop.cond)[0].outvars[0].aval
    batched = len(predicate.shape)

    def cond_on(inner, args):
        return _run(inner, loop.cond, [*args[:n_cond], *args[n_cond + n_body :]])[0]

    def body_on(inner, args):
        carries = args[n_cond + n_body :]
        new = _run(inner, loop.body, [*args[n_cond : n_cond + n_body], *carries])
        if not batched:
            return new
        going = cond_on(inner, args)
        return [inner.select(inner.broadcast(going, n.shape, range(batched)), n, o) for n, o in zip(new, carries)]

    cond = e.region(inputs, lambda inner, args: [inner.reduce("or", cond_on(inner, args), range(batched))])
    body = e.region(inputs, body_on)
    counter = None if batched else equations.counter_of(cond, body, len(consts))
    if counter is None:
        return e.loop("while", consts, init, body, cond=cond)
    return _counted_while(e, counter, cond, body, consts, init, inputs)


def _counted_while(e: Emitter, counter: equations.Counter, cond: Region, body: Region, consts, init, inputs):
    start = init[counter.index]
    limit = counter.limit if isinstance(counter.limit, Const) else inputs[counter.limit]
    static = isinstance(start, Const) and isinstance(limit, Const)
    trips = max(int(limit.array) - int(start.array), 0) if static else None
    if not counter.exact:
        return e.loop("while", consts, init, body, cond=cond, bound=trips)
    if static:
        return list(init) if trips == 0 else e.loop("counted", consts, init, body, length=trips)
    if start.dtype == np.uint64:
        return e.loop("while", consts, init, body, cond=cond)
    difference = e.sub(e.cast(limit, np.int64), e.cast(start, np.int64))
    if start.dtype == np.int64:  # the difference may wrap where limit < start
        difference = e.select(e.lt(start, limit), difference, 0)
    trip = e.max(difference, 0)
    return e.loop("counted", consts, init, body, trip=trip)


def _cond(e: Emitter, eqn, index: Value, *operands: Value):
    branches = equations.decode_cond(eqn).branches
    last = len(branches) - 1
    if isinstance(index, Const):
        return Inline(branches[min(max(int(index.array), 0), last)], operands)
    if last == 0:
        return Inline(branches[0], operands)
    predicate = None
    maker = e.producer.get(index)
    if index.dtype == bool:
        predicate, index = index, e.cast(index, np.int32)
    elif last == 1 and isinstance(maker, Op) and maker.name == "cast" and maker.inputs[0].dtype == bool:
        predicate = maker.inputs[0]
    else:
        index = e.cast(e.min(e.max(index, 0), last), np.int32)
        if last == 1:
            predicate = e.ne(index, 0)
    regions = [_lower_region(e, b, operands) for b in branches]
    return e.branch(index, operands, regions, predicate)


register("scan_p", "control", _scan, keys=True)
register("while_p", "control", _while, keys=True)
register("cond_p", "control", _cond, keys=True)
