"""Mistakes that pyright must find, one a line that ends in `# wrong`; nothing runs this."""

import jax

import quabla_jax as qb


def step(i: int | jax.Array, state: jax.Array) -> jax.Array:
    return state


def f(x: jax.Array) -> jax.Array:
    return x


qb.fori_loop(0, 10, step, 1.0, checkpoints="sqrt")  # wrong
qb.fori_loop(0, "10", step, 1.0)  # wrong
qb.fori_loop(0, 10, step)  # wrong
qb.scan(step, 1.0)  # wrong
qb.while_loop(lambda c: c < 1.0, 3, 0.0)  # wrong
qb.forloop(0, 10, step, 1.0)  # wrong
qb.jit(f)(1, 2)  # wrong
qb.grad(f)()  # wrong
print(qb.jit(f).trace)  # wrong
print(qb.vmap(f)(qb.ones(3)).shapes)  # wrong
qb.sin()  # wrong
