"""Programs with one loop, written against any scan: the bodies that the loop tests run under every transform.

Each takes a scan-like function and T, and returns f(p): scalar -> scalar. `forced` turns a schedule into such a function.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from quabla_jax import loops
from quabla_jax.loops.plan import Forced

W = jnp.sin(jnp.arange(9, dtype="float64").reshape(3, 3))


def ours(checkpoint) -> Callable:
    """jax.lax.scan's signature over the engine, at one checkpoint."""

    def scan(f, init, xs=None, length=None, reverse=False):
        return loops.scan(f, init, xs, length, reverse=reverse, checkpoint=checkpoint)

    return scan


def forced(*blocks: int, inner: str = "carry") -> Callable:
    return ours(Forced(blocks, inner))


def slices_and_outputs(scan, T, reverse=False):
    """xs and ys, an integer carry, integer ys, a constant y."""

    def f(p):
        A = W * p
        xs = (jnp.linspace(0, 1, T * 3).reshape(T, 3) * p, jnp.arange(T))

        def body(c, s):
            x, k = c
            u, j = s
            x2 = x + 0.1 * jnp.tanh(A @ x + u) * (k % 3) + 0.01 * j
            return (x2, k + 1), (jnp.sin(x2) * u, k, jnp.float64(2.0))

        (x, _), (y, ks, _) = scan(body, (jnp.ones(3) * p, jnp.int32(0)), xs, reverse=reverse)
        weights = jnp.cos(jnp.arange(T * 3.0).reshape(T, 3))
        return jnp.sum(x**2) + jnp.sum(y * weights) + jnp.sum(ks) * p

    return f


def control_flow_inside(scan, T, reverse=False):
    """A nested loop and a cond in the body, where, a function with a custom derivative."""

    def f(p):
        def inner(x):
            return scan(lambda x, _: (x + 0.05 * jnp.sin(p * x), None), x, None, 5)[0]

        def body(x, u):
            x = lax.cond(jnp.sum(x) > 2.9, inner, lambda x: x * 0.9, x)
            x = jnp.where(x > 0, jax.nn.relu(x), 0.1 * x) + jax.nn.softmax(x * u) * 0.1
            return x, jnp.max(x)

        x, y = scan(body, jnp.ones(3) * p, jnp.linspace(0.0, 1.0, T) * p, reverse=reverse)
        return jnp.sum(x) + jnp.sum(y**2)

    return f


def keys_and_dead_carries(scan, T, reverse=False):
    """A key in the carry, a carry that no derivative touches, one that only later gets a tangent."""

    def f(p):
        def body(c, _):
            key, x, z, w = c
            key, k2 = jax.random.split(key)
            x = x + 0.1 * jax.random.normal(k2, (3,), "float64") * jnp.cos(x)
            return (key, x, z * 1.01, w + jnp.sum(x) * z), w

        init = (jax.random.key(0), jnp.ones(3) * p, jnp.float64(0.5), jnp.float64(0.0))
        (_, x, _, w), y = scan(body, init, None, T)
        return jnp.sum(x**2) + w * 0.1 + jnp.mean(y)

    return f


def weak_scalars(scan, T, reverse=False):
    """No carry at all; weakly typed captures and carries; zero times a capture."""

    def f(p):
        _, y = scan(lambda c, u: (c, jnp.sin(u * p) + 0.0 * p), (), jnp.linspace(0.0, 1.0, T) * p)
        x, _ = scan(lambda c, _: (c * p + 0.0 * p, None), p * 1.0, None, T)
        return jnp.sum(y**2) + x

    return f


def rows_written(scan, T, reverse=False):
    """One row a step into a big carry, read back through the loop's index."""

    def f(p):
        data = jnp.sin(jnp.arange(T * 2.0).reshape(T, 2)) * p

        def body(c, _):
            i, x, out = c
            x = x * 0.9 + jnp.tanh(data[i] * x)
            return (i + 1, x, out.at[i].set(x * p)), None

        init = (jnp.int32(0), jnp.ones(2) * p, jnp.zeros((T, 2)))
        (_, x, out), _ = scan(body, init, None, T)
        return jnp.sum(jnp.cos(out)) + jnp.sum(x)

    return f


PROGRAMS = {
    "slices": slices_and_outputs,
    "inside": control_flow_inside,
    "keys": keys_and_dead_carries,
    "weak": weak_scalars,
    "rows": rows_written,
}

at = 1.3
pair = lambda: jnp.array([1.3, 0.7])
g = jax.grad

TRANSFORMS: dict[str, Callable] = {
    "value": lambda f: f(at),
    "jit": lambda f: jax.jit(f)(at),
    "jvp": lambda f: jax.jvp(f, (at,), (1.0,))[1],
    "linearize": lambda f: jax.linearize(f, at)[1](1.0),
    "grad": lambda f: g(f)(at),
    "jit grad": lambda f: jax.jit(g(f))(at),
    "hessian": lambda f: jax.hessian(f)(at),
    "jvp of grad": lambda f: jax.jit(lambda p: jax.jvp(g(f), (p,), (1.0,))[1])(at),
    "grad of jvp": lambda f: g(lambda p: jax.jvp(f, (p,), (1.0,))[1])(at),
    "grad of grad": lambda f: g(g(f))(at),
    "jvp of grad of grad": lambda f: jax.jvp(g(g(f)), (at,), (1.0,))[1],
    "third": lambda f: jax.jit(g(g(g(f))))(at),
    "vmap": lambda f: jax.vmap(f)(pair()),
    "vmap grad": lambda f: jax.vmap(g(f))(pair()),
    "grad vmap": lambda f: g(lambda q: jax.vmap(f)(q).sum())(pair()),
    "vmap grad of grad": lambda f: jax.vmap(g(g(f)))(pair()),
    "vmap hessian": lambda f: jax.vmap(jax.hessian(f))(pair()),
    "checkpoint": lambda f: g(jax.checkpoint(f))(at),
    "grad of grad of checkpoint": lambda f: g(g(jax.checkpoint(f)))(at),
    "checkpoint of grad of checkpoint": lambda f: g(jax.checkpoint(g(jax.checkpoint(f))))(at),
    "policy": lambda f: g(jax.checkpoint(f, policy=jax.checkpoint_policies.everything_saveable))(at),
    "checkpoint of jvp": lambda f: g(jax.checkpoint(lambda p: jax.jvp(f, (p,), (1.0,))[1]))(at),
    "in scan": lambda f: g(lambda p: lax.scan(lambda c, _: (c + 0.1 * f(c), None), p, None, length=2)[0])(at),
    "hessian in scan": lambda f: jax.hessian(
        lambda p: lax.scan(lambda c, _: (c + 0.01 * f(c), None), p, None, length=2)[0]
    )(at),
    "jvp of grad in scan": lambda f: g(
        lambda p: lax.scan(lambda c, _: (c + 0.01 * jax.jvp(g(f), (c,), (1.0,))[1], None), p, None, length=2)[0]
    )(at),
    "in cond": lambda f: g(lambda p: lax.cond(p > 0, f, lambda p: p, p))(at),
    "vmap in cond": lambda f: jax.vmap(g(lambda p: lax.cond(p > 1, f, lambda p: p, p)))(pair()),
    "transpose": lambda f: jax.linear_transpose(
        lambda t: jax.jvp(lambda x: jax.jvp(f, (x,), (t,))[1], (at,), (1.0,))[1], at
    )(1.0)[0],
    "fourth": lambda f: jax.jit(jax.jacfwd(g(jax.jacfwd(g(f)))))(at),
}
