"""Reductions over axes, cumulative ones, argmax, and reductions by a given function."""

from __future__ import annotations

import numpy as np

from .. import jax_api
from ..emitter import Emitter
from ..program import Value
from . import register
from .elementwise import extreme, is_complex


def _reduce(kind: str):
    return lambda e, eqn, x: e.reduce(kind, x, eqn.params["axes"])


def _extreme(kind: str):
    def rule(e: Emitter, eqn, x: Value):
        if not is_complex(x.dtype):
            return e.reduce(kind, x, eqn.params["axes"])
        nothing = e.const(-np.inf if kind == "max" else np.inf, x.dtype)
        combine = lambda left, right: [extreme(e, kind, left[0], right[0])]
        for axis in sorted(eqn.params["axes"], reverse=True):
            (x,) = fold(e, combine, [x], [nothing], axis)
        return x

    return rule


def _arg(name: str):
    def rule(e: Emitter, eqn, x: Value):
        (axis,) = eqn.params["axes"]
        return e.op(name, x, axis=axis, dtype=np.dtype(eqn.params["index_dtype"]))

    return rule


def _cumulative(name: str):
    return lambda e, eqn, x: e.op(name, x, axis=eqn.params["axis"], reverse=eqn.params["reverse"])


def log_add_exp(e: Emitter, x: Value, y: Value) -> Value:
    """log(exp(x) + exp(y)) without overflow; infinities of one sign stay."""
    high = e.max(x, y)
    apart = e.abs(e.sub(x, y))
    sum_ = e.add(high, e.log1p(e.exp(e.neg(apart))))
    return e.select(e.and_(e.eq(x, y), e.not_(e.is_finite(x))), high, sum_)


def _cumlogsumexp(e: Emitter, eqn, x: Value):
    axis, n = eqn.params["axis"], eqn.params and x.shape[eqn.params["axis"]]
    low, high = [0] * x.ndim, [0] * x.ndim
    step = 1
    while step < n:  # doubling: after k rounds every element holds the sum of its last 2**k
        if eqn.params["reverse"]:
            low[axis], high[axis] = -step, step
        else:
            low[axis], high[axis] = step, -step
        x = log_add_exp(e, x, e.pad(x, -np.inf, low, high))
        step *= 2
    return x


def fold(e: Emitter, combine, operands: list[Value], inits: list[Value], axis: int) -> list[Value]:
    """Reduce one axis by an associative `combine(left operands, right operands)`, halving it each round."""
    n = operands[0].shape[axis]
    if n == 0:
        shape = operands[0].shape[:axis] + operands[0].shape[axis + 1 :]
        return [e.broadcast_to(i, shape) for i in inits]
    while n > 1:
        half = n // 2
        left = [e.slice_axis(x, axis, 0, 2 * half, 2) for x in operands]
        right = [e.slice_axis(x, axis, 1, 2 * half, 2) for x in operands]
        joined = combine(left, right)
        if n % 2:
            joined = [e.concat([j, e.slice_axis(x, axis, n - 1, n)], axis) for j, x in zip(joined, operands)]
        operands, n = joined, half + n % 2
    shape = operands[0].shape[:axis] + operands[0].shape[axis + 1 :]
    return [e.reshape(x, shape) for x in operands]


def jaxpr_combiner(e: Emitter, jaxpr, consts=()):
    """combine(left, right) that maps a scalar jaxpr over whole arrays."""
    import jax

    from ..interpreter import run_jaxpr
    from ..trace import retrace

    opened, own = jax_api.open_jaxpr(jaxpr)
    closed = jax_api.close(opened, list(consts) or own)

    def combine(left, right):
        values = [*left, *right]
        structs = [jax.ShapeDtypeStruct(v.shape, v.dtype) for v in values]
        fun = jax_api.jaxpr_as_fun(closed)
        for _ in range(values[0].ndim):
            fun = jax.vmap(fun)
        return run_jaxpr(e, *jax_api.open_jaxpr(retrace(fun, structs)), values)

    return combine


def _generic_reduce(e: Emitter, eqn, *args: Value):
    half = len(args) // 2
    operands, inits = list(args[:half]), list(args[half:])
    combine = jaxpr_combiner(e, eqn.params["jaxpr"], eqn.params.get("consts", ()))
    for axis in sorted(eqn.params["dimensions"], reverse=True):
        operands = fold(e, combine, operands, inits, axis)
    full = [e.broadcast_to(i, x.shape) for i, x in zip(inits, operands)]
    return combine(full, operands)


for _kind in "sum prod and or xor".split():
    register(f"reduce_{_kind}_p", "direct", _reduce(_kind))
for _kind in ("max", "min"):
    register(f"reduce_{_kind}_p", "direct", _extreme(_kind))
for _kind in "sum prod max min".split():
    register(f"cum{_kind}_p", "direct", _cumulative("cum" + _kind))
register("cumlogsumexp_p", "composed", _cumlogsumexp)
register("argmax_p", "direct", _arg("argmax"))
register("argmin_p", "direct", _arg("argmin"))
register("reduce_p", "composed", _generic_reduce)
