"""A branch that is run although its example has not taken it: its while loops must end all the same.

vmap turns a conditional with a mapped predicate into a selection: every example runs every branch. A while loop in a branch
that an example did not take starts from operands that it was never meant for, and may not terminate for them
(jax-ml/jax#2947). `guarded` gives the branch one more input, `active`, and makes every while loop in it stop at once where
that is false. It is used only where the predicate is mapped, so an unmapped predicate pays nothing.

Under shard_map a loop may end at the same step on all devices while `active` differs between them. It then runs on all if
on any: where one device's example takes the branch it ends, so it ends on all (`level`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ..lowering import jax_api as api
from . import counted
from ._lists import split
from .body import Body
from .lanes import choose, level
from .unbounded import loop_p as while_loop_p

__all__ = ["guarded"]


def guarded(closed: Any) -> Callable[..., list[Any]]:
    """The branch as a function (active, *inputs) -> list of outputs, with `active` a scalar bool.

    Arguments:
        closed: the branch as a closed jaxpr.

    Where `active` is true the outputs are the branch's own. Where it is false they are of the right types and otherwise
    unspecified. While loops are reached through jit, scan, fori_loop, cond, switch, jax.checkpoint and one another; a
    loop inside a custom_jvp or custom_vjp function is not, because its rule takes no further input.
    """
    jaxpr, consts = api.detach_consts(closed)
    if not api.contains_while(jaxpr):
        return lambda active, *args: api.eval_jaxpr(jaxpr, (), *consts, *args)
    return lambda active, *args: _evaluate(jaxpr, active, [*consts, *args])


def _evaluate(jaxpr: Any, active: Any, args: Sequence[Any]) -> list[Any]:
    def handle(eqn, inputs):
        rule = _RULES.get(eqn.primitive)
        inside = eqn.primitive in (api.while_p, while_loop_p) or any(map(api.contains_while, _bodies(eqn)))
        return rule(eqn, active, inputs) if rule is not None and inside else None

    return api.eval_with(jaxpr, args, handle)


def _bodies(eqn: Any) -> list[Any]:
    g = eqn.params.get("g")
    return [g.jaxpr] if isinstance(g, Body) else api.inner_jaxprs(eqn)


def _while(eqn: Any, active: Any, inputs: Sequence[Any]) -> list[Any]:
    """jax.lax's while loop; a loop inside its body is guarded by this loop's own condition as well.

    A loop that vmap has been over may have a condition for each lane, along the leading axes of every carry: it runs while
    any holds, and the lanes that are done keep what they have.
    """
    cond, num_cc, body, num_c = api.while_equation(eqn)
    cc, c, x = split(inputs, num_cc, num_c, len(inputs) - num_cc - num_c)
    step, test = guarded(body), guarded(cond)
    nested = api.contains_while(body)
    active = level(active, cond.out_avals[0])
    lanes = tuple(range(cond.out_avals[0].ndim))
    each = lambda x: active & test(active, *cc, *x)[0]
    holds = lambda x: jnp.any(each(x)) if lanes else each(x)

    def run(x):
        going = each(x) if nested or lanes else active
        new = step(jnp.any(going) if lanes else going, *c, *x)
        return tuple(choose(going, [lanes] * len(new), new, x) if lanes else new)

    return list(lax.while_loop(holds, run, tuple(x)))


def _engine_while(eqn: Any, active: Any, inputs: Sequence[Any]) -> list[Any]:
    """The engine's own: it stops lanes itself, and never runs a body where its lane does not run."""
    params = dict(eqn.params)
    cond = params["cond"]
    if cond is None:
        steps = jnp.where(level(active, inputs[0]), inputs[0], 0)
        return while_loop_p.bind(steps, *inputs[1:], **params)
    active = api.as_varying(level(active, cond.test.aval), api.varying_axes(cond.test.aval))
    return while_loop_p.bind(active, *inputs, **params | dict(cond=cond.guarded()))


def _scan(eqn: Any, active: Any, inputs: Sequence[Any]) -> list[Any]:
    p = api.scan_equation(eqn)
    c, x, s = split(inputs, *p["sizes"])
    step = guarded(api.as_closed(p["jaxpr"]))

    def body(x, s):
        out = step(active, *c, *x, *s)
        return tuple(out[: len(x)]), tuple(out[len(x) :])

    x, y = lax.scan(body, tuple(x), tuple(s), p["length"], p["reverse"], p["unroll"])
    return [*x, *y]


def _counted(eqn: Any, active: Any, inputs: Sequence[Any]) -> list[Any]:
    """The engine's counted loop: the same loop of a body with one more constant."""
    g, flag = eqn.params["g"], api.strong_aval(jax.typeof(active))

    def make():
        step = lambda active, *a: _evaluate(g.jaxpr, active, [*g.consts, *a])
        return Body.trace(step, [flag, *g.avals], (g.sizes[0] + 1, *g.sizes[1:]))

    return counted.loop_p.bind(active, *inputs, **eqn.params | dict(g=g.once(("guarded", flag), make)))


def _cond(eqn: Any, active: Any, inputs: Sequence[Any]) -> list[Any]:
    """A conditional of either kind; its branches get `active` as their first operand."""
    index, *operands = inputs

    def with_active(branch):
        jaxpr, consts = api.trace_flat(guarded(branch), [api.strong_aval(jax.typeof(active)), *branch.in_avals])
        assert not consts
        return api.as_closed(jaxpr)

    branches = tuple(map(with_active, eqn.params["branches"]))
    return eqn.primitive.bind(index, active, *operands, **eqn.params | dict(branches=branches))


def _call(eqn: Any, active: Any, inputs: Sequence[Any]) -> list[Any]:
    return guarded(api.as_closed(eqn.params["jaxpr"]))(active, *inputs)


def _checkpoint(eqn: Any, active: Any, inputs: Sequence[Any]) -> list[Any]:
    p = eqn.params
    run = guarded(api.as_closed(p["jaxpr"]))
    return list(jax.checkpoint(run, prevent_cse=p["prevent_cse"], policy=p["policy"])(active, *inputs))


_RULES: dict[Any, Callable] = {
    api.while_p: _while,
    while_loop_p: _engine_while,
    api.scan_p: _scan,
    counted.loop_p: _counted,
    api.cond_p: _cond,
    api.jit_p: _call,
    api.remat_p: _checkpoint,
}


def register_conditional(primitive: Any) -> None:
    """Guard the branches of one more primitive with the parameters of JAX's cond."""
    _RULES[primitive] = _cond
