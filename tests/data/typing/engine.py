"""The engine under JAX's own names and pytrees; pyright reads this, nothing runs it."""

import jax
import jax.numpy as jnp

import quabla_jax as qb
from quabla_jax.compat import lax, patched


def loss(p: dict[str, jax.Array], xs: jax.Array) -> jax.Array:
    def step(carry: jax.Array, x: jax.Array) -> tuple[jax.Array, None]:
        return jnp.tanh(carry @ p["w"] + x), None

    last, _ = lax.scan(step, jnp.zeros(3), xs)
    last = lax.while_loop(lambda c: jnp.max(c) > 0.1, lambda c: 0.5 * c, last)
    return jnp.sum(lax.fori_loop(0, 10, lambda i, c: c + i, last))


with patched():
    gradients = jax.grad(loss)({"w": jnp.eye(3)}, jnp.ones((5, 3)))
budget = qb.Budget(200_000_000)
with qb.checkpointing(budget):
    jax.jit(jax.grad(loss))({"w": jnp.eye(3)}, jnp.ones((5, 3)))
