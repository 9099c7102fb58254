"""cond and switch: jax.lax's, with while loops that end under a mapped predicate even in the branch not taken.

A conditional whose branches hold no while loop stays jax.lax's own equation: under a mapped predicate JAX itself hides the
operands of the branch not taken from differentiation, so that nothing non-finite comes back from it. With a while loop
inside, that is not enough (jax-ml/jax#2947): the loop would run for examples that never took its branch, perhaps for
ever. Such a conditional is bound as `qb_cond`, whose rules are JAX's own but for one: under a mapped predicate each
branch is `guarded` by the examples that take it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from .._cycles import refusing_cycles
from ..lowering import jax_api as api
from .guard import guarded, register_conditional
from .while_batching import to_front

__all__ = ["cond", "cond_p", "switch"]

cond_p, _jax_batch = api.conditional_like_jax("qb_cond")


@refusing_cycles
def cond(pred: Any, true_fun: Callable, false_fun: Callable, *operands: Any) -> Any:
    """jax.lax.cond; see there for arguments, results and errors.

    Differentiation: as jax.lax.cond, in both modes and to any order. Under vmap with a mapped predicate the branch not
    taken puts nothing non-finite into values, tangents or cotangents, and a while loop inside it ends.
    """
    return _through_lax(lambda: lax.cond(pred, true_fun, false_fun, *operands))


@refusing_cycles
def switch(index: Any, branches: Sequence[Callable], *operands: Any) -> Any:
    """jax.lax.switch; see there for arguments, results and errors. Differentiation: as `cond`."""
    plain = lambda: lax.switch(index, branches, *operands)
    # With one branch there is nothing to choose: jax.lax calls it, on what it was given, and hands on what it returns.
    return plain() if hasattr(branches, "__len__") and len(branches) == 1 else _through_lax(plain)


def _through_lax(plain: Callable[[], Any]) -> Any:
    """Trace jax.lax's conditional, then evaluate what it traced to with `cond_p` where a branch holds a while loop."""
    if api.jit_disabled():
        return plain()
    trees = []

    def flat() -> list[Any]:
        out, tree = jax.tree.flatten(plain())
        trees.append(tree)
        return out

    jaxpr, consts = api.trace_flat(flat, ())

    def handle(eqn: Any, inputs: list[Any]) -> list[Any] | None:
        if eqn.primitive is not api.cond_p or "branches_platforms" in eqn.params:
            return None
        branches = eqn.params["branches"]
        if any(map(api.has_effects, branches)) or not any(map(api.contains_while, branches)):
            return None
        return cond_p.bind(*inputs, **eqn.params)

    # An operand that every branch hands on comes out of the jaxpr as its literal; jax.lax makes an array of it.
    return trees[0].unflatten(map(api.as_array, api.eval_with(jaxpr, consts, handle)))


def _batch(axis, args, dims, *, branches, **params):
    if dims[0] is None:
        return _jax_batch(axis, args, dims, branches=branches, **params)
    index, *operands = to_front(args, dims, [True] * len(args), axis)
    outs = []
    for i, branch in enumerate(branches):
        active = index == i
        hidden = [lax.select(_along(active, x), x, lax.stop_gradient(x)) for x in operands]
        run = jax.vmap(guarded(branch), axis_size=axis.size, axis_name=axis.name, spmd_axis_name=axis.spmd_name)
        outs.append(run(active, *hidden))
    out = [lax.select_n(_along(index, vs[0]), *vs) for vs in zip(*outs, strict=True)]
    return out, [0] * len(out)


def _along(x: Any, like: Any) -> Any:
    """One value an example, at the shape of `like`."""
    return lax.broadcast_in_dim(x, jnp.shape(like), (0,))


api.define_batching(cond_p, _batch)
register_conditional(cond_p)
