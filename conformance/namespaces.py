"""The Quabla dialect written straight over jax.lax and jax.numpy: the reference's view of a Quabla program.

Values and derivatives only; it holds none of Quabla's checks (cases that expect an error never reach it).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

__all__ = ["LaxQuabla"]

_RENAMED = {
    "concat": "concatenate", "atan2": "arctan2", "erf": None, "sigmoid": None, "relu": None, "softplus": None,
}  # fmt: skip


def _index(i: Any, carry: Any) -> Any:
    return i.astype(carry.dtype)


class LaxQuabla:
    """Quabla's control flow and array functions by their plainest definition in JAX."""

    def __getattr__(self, name: str) -> Any:
        if name in ("erf", "erfc"):
            return getattr(jax.scipy.special, name)
        if name in ("sigmoid", "relu", "softplus", "silu", "softmax", "logsumexp"):
            return getattr(jax.nn, name)
        return getattr(jnp, _RENAMED.get(name) or name)

    @staticmethod
    def array(value, dtype=None):
        return jnp.asarray(value, dtype)

    @staticmethod
    def astype(x, dtype):
        return x.astype(dtype)

    @staticmethod
    def stop_gradient(x):
        return lax.stop_gradient(x)

    @staticmethod
    def cond(pred, true_fun, false_fun, *operands):
        pred = jnp.asarray(pred)
        pred = pred if pred.dtype == bool else pred != 0
        return lax.cond(pred, true_fun, false_fun, *operands)

    @staticmethod
    def switch(index, branches, operands=()):
        return lax.switch(jnp.asarray(index).reshape(()), branches, *operands)

    @staticmethod
    def fori_loop(lower, upper, body_fun, init_val, *, operands=(), unroll=False, checkpoint="auto"):
        if unroll:
            carry = jnp.asarray(init_val)
            for i in range(lower, upper):
                carry = body_fun(i, carry, *operands)
            return carry

        def body(i, carry):
            return body_fun(_index(i, carry), carry, *operands)

        return lax.fori_loop(lower, upper, body, jnp.asarray(init_val))

    @staticmethod
    def scan(f, init, *, length, operands=(), unroll=False, checkpoint="auto"):
        if unroll:
            carry, outputs = jnp.asarray(init), []
            for i in range(length):
                carry, y = f(carry, i, *operands)
                outputs.append(y)
            return carry, jnp.stack(outputs)

        def body(carry, i):
            return f(carry, _index(i, carry), *operands)

        return lax.scan(body, jnp.asarray(init), jnp.arange(length), length)

    @staticmethod
    def while_loop(cond_fun, body_fun, init_val, *, operands=(), checkpoint=None):
        return lax.while_loop(lambda c: cond_fun(c, *operands), lambda c: body_fun(c, *operands), jnp.asarray(init_val))

    custom_vjp = staticmethod(jax.custom_vjp)
    custom_jvp = staticmethod(jax.custom_jvp)
    checkpoint = staticmethod(jax.checkpoint)
    grad = staticmethod(jax.grad)
    jvp = staticmethod(jax.jvp)
    vmap = staticmethod(jax.vmap)
