"""Counted loops, scans, while loops and branches at their plainest, in both dialects."""

import jax
import jax.numpy as jnp

from ..case import FORWARD, VALUES, Exact, Rand, case


@case(
    "fori/decay", Rand((3,), 0.5, 1.5), Rand((), 0.1, 0.9), dialect="quabla", covers=("quabla-4.1-operands",)
)
def _(qb, x, a):
    """The chapter's decay: a scalar operand, a vector carry."""
    return qb.fori_loop(0, 20, lambda i, x, a: x - 0.01 * a * x, x, operands=(a,))


@case("fori/index-ordered", Rand((2,), 0.2, 0.8), dialect="quabla")
def _(qb, x):
    """Each trip sees its own index."""
    return qb.fori_loop(2, 7, lambda i, x: qb.sin(x * (i + 1.0) * 0.3) + 0.1 * i, x)


@case("scan/rollout", Rand((2,), 0.3, 1.0), Rand((), 0.5, 0.9), dialect="quabla")
def _(qb, x, w):
    def step(c, i, w):
        c = qb.tanh(c * w + 0.1)
        return c, c * 2.0

    return qb.scan(step, x, length=4, operands=(w,))


@case("while/newton-sqrt", Rand((), 1.5, 9.0), dialect="quabla", transforms=(*FORWARD, "vmap_jvp"))
def _(qb, a):
    return qb.while_loop(
        lambda x, a: qb.abs(x * x - a) > 1e-4, lambda x, a: 0.5 * (x + a / x), qb.ones_like(a), operands=(a,)
    )


@case("cond/safe-log", Exact(2.0, batch=[2.0, -1.0, 0.5]), dialect="quabla")
def _(qb, x):
    """The branch not taken never shows, though log(-1) is NaN."""
    return qb.cond(x > 0.0, lambda x: qb.log(x), lambda x: qb.zeros_like(x), x)


@case("scan/pytree-reverse", Rand((4,), -1, 1), Rand((5, 4)), dialect="jax")
def _(lax, x, xs):
    def step(carry, x):
        a, n = carry
        a = jnp.sin(a) * x + a
        return (a, n + 1), (a * 2, n)

    (a, n), (ys, ns) = lax.scan(step, (x, jnp.int32(0)), xs, reverse=True)
    return a, n, ys, ns


@case("cond/int-switch", Exact(1, dtype="int32", batch=[-3, 1, 9]), Rand((3,), 0.2, 0.9), dialect="jax")
def _(lax, index, x):
    """Clamped at both ends, as XLA's conditional does."""
    return lax.switch(index, [jnp.sin, jnp.cos, jnp.tan], x)


@case("while/int-collatz", Exact(27, dtype="int32", batch=[6, 7, 27]), transforms=VALUES, dtypes=("int32",))
def _(lax, n):
    def body(state):
        n, count = state
        return jnp.where(n % 2 == 0, n // 2, 3 * n + 1), count + 1

    return lax.while_loop(lambda s: s[0] != 1, body, (n, jnp.int32(0)))[1]


@case("nested/fori-in-cond", Rand((), 0.3, 0.9), dialect="jax")
def _(lax, x):
    def loop(x):
        return lax.fori_loop(0, 3, lambda i, x: jnp.sin(x) * (1 + i), x)

    return lax.cond(x > 0, loop, jax.nn.softplus, x)
