"""Calls whose body takes their place, and primitives that change nothing."""

from __future__ import annotations

from ..emitter import Emitter
from ..program import Value
from . import Inline, register

_BODY_PARAMS = ("call_jaxpr", "jaxpr")


def _inline(e: Emitter, eqn, *inputs: Value):
    for name in _BODY_PARAMS:
        body = eqn.params.get(name)
        if body is not None:
            return Inline(body, inputs)
    from ..interpreter import unsupported

    raise unsupported(e, eqn, f"it has no body among its parameters {sorted(eqn.params)}")


def _identity(e: Emitter, eqn, *inputs: Value):
    return inputs[: len(eqn.outvars)]


def _custom_linear_solve(e: Emitter, eqn, *inputs: Value):
    lengths, jaxprs = eqn.params["const_lengths"], eqn.params["jaxprs"]
    start = lengths.matvec + lengths.vecmat
    solve_consts = inputs[start : start + lengths.solve]
    total = start + lengths.solve + lengths.transpose_solve
    return Inline(jaxprs.solve, (*solve_consts, *inputs[total:]))


def _platform_index(e: Emitter, eqn, *_: Value):
    default = 0
    for i, platforms in enumerate(eqn.params["platforms"]):
        if platforms is None:
            default = i
        elif "cpu" in platforms:
            return e.const(i, eqn.outvars[0].aval.dtype)
    return e.const(default, eqn.outvars[0].aval.dtype)


register(
    "jit_p call_p closed_call_p remat_p custom_jvp_call_p custom_vjp_call_p custom_lin_p "
    "composite_p remat_opt_p eval_jaxpr_p custom_jvp_call_jaxpr_p",
    "inlined",
    _inline,
    keys=True,
)
register(
    "stop_gradient_p copy_p optimization_barrier_p name_p device_put_p sharding_constraint_p reshard_p "
    "layout_constraint_p relayout_p shard_alike_p pvary_p reduced_vary_cast_p preduced_p vary_unreduced_cast_p stage_p unpin pin "
    "with_memory_space_constraint dce_sink_p forward_only",
    "inlined",
    _identity,
    keys=True,
)
register("tie_p", "inlined", lambda e, eqn, x, y: y, keys=True)
register("create_token_p after_all_p", "inlined", lambda e, eqn, *tokens: e.const(False))
register("linear_solve_p", "inlined", _custom_linear_solve)
register("platform_index_p", "inlined", _platform_index)
