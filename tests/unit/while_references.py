"""Two ways to run one while loop: the engine's, and jax.lax's scan of a fixed length with a mask, whose reverse mode is
JAX's own."""

import jax
import jax.numpy as jnp
from jax import lax

from quabla_jax import loops


def ours(cond, body, init):
    return loops.while_loop(cond, body, init, checkpoint=5)


def masked(most):
    """A while loop of at most `most` steps, which keeps the carry once the condition has failed."""

    def loop(cond, body, init):
        def step(carry, _):
            run = cond(carry)
            return jax.tree.map(lambda a, b: jnp.where(run, a, b), body(carry), carry), None

        return lax.scan(step, init, None, length=most)[0]

    return loop
