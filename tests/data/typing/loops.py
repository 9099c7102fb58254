"""Loops, branches and transforms as a user writes them; pyright reads this, nothing runs it."""

from typing import assert_type

import jax

import quabla_jax as qb


def step(i: int | jax.Array, state: jax.Array, rate: jax.Array) -> jax.Array:
    return state - rate * qb.sin(state)


def settle(state: jax.Array, rate: jax.Array) -> jax.Array:
    return qb.sum(qb.fori_loop(0, 1000, step, state, operands=(rate,), checkpoint="sqrt"))


last, outputs = qb.scan(lambda c, i: (c * 0.5, c), 1.0, length=4)
assert_type(last, jax.Array)
assert_type(outputs, jax.Array)
assert_type(qb.fori_loop(0, 3, step, 1.0, operands=(0.1,)), jax.Array)
assert_type(qb.while_loop(lambda c: c < 3.0, lambda c: c + 1.0, 0.0, checkpoint="auto"), jax.Array)
assert_type(qb.sin(1.0), jax.Array)
assert_type(qb.zeros((2, 3), dtype=qb.float32), jax.Array)

quick = qb.jit(settle)
assert_type(quick(qb.ones(3), qb.ones(3)), jax.Array)
quick.lower(qb.ones(3), qb.ones(3))


@qb.jit
def doubled(x: jax.Array) -> jax.Array:
    return 2.0 * x


assert_type(doubled(qb.ones(3)), jax.Array)
qb.grad(settle, argnums=1)(qb.ones(3), qb.ones(3))
value, gradient = qb.value_and_grad(settle)(qb.ones(3), qb.ones(3))
assert_type(qb.vmap(settle, in_axes=(0, None))(qb.ones((4, 3)), qb.ones(3)), jax.Array)
qb.hessian(settle)(qb.ones(3), qb.ones(3))

plan = qb.plan_loop(10_000, 40_000, checkpoint="sqrt")
with qb.progress("fit"), qb.checkpointing("sqrt"):
    quick(qb.ones(3), qb.ones(3))
print(qb.memory_report(settle, qb.ones(3), qb.ones(3)), qb.draw(settle, qb.ones(3), qb.ones(3)))
print(qb.random.split, qb.tree.flatten, qb.linalg.solve)
