"""Programs on which the real Quabla 1.0 answers otherwise than JAX and quabla_jax do, each held as a row in limitations.py.

The reference is JAX; quabla_jax must agree with it. docs/differences.md says the same in words.
"""

import jax.numpy as jnp
from jax import lax as plain

from ..case import Exact, Rand, case

Q = {"dialect": "quabla"}
X, A = Rand((2,), 0.5, 0.9), Rand((), 0.3, 0.9)
INF = float("inf")


def _bounded(ns, x):
    step = lambda x: plain.cond(x.sum() > 0.9, lambda x: jnp.sin(x) * 0.9, lambda x: x, x)
    return plain.fori_loop(0, 12, lambda i, x: step(x), x)


@case("difference/while-in-reverse", X, transforms=("grad", "vmap_grad", "hessian"), reference=_bounded, **Q)
def _(qb, x):
    """checkpoint= gives while_loop a reverse mode; Quabla has none."""
    return qb.while_loop(lambda x: qb.sum(x) > 0.9, lambda x: qb.sin(x) * 0.9, x, checkpoint=4)


@case("difference/while-beside-the-gradient", X, A, transforms=("jit", "vmap"), **Q)
def _(qb, x, a):
    """A while loop that only undifferentiated values reach."""

    def loss(x):
        steady = qb.while_loop(lambda a: a > 0.2, lambda a: a * 0.5, qb.stop_gradient(x[0]))
        return qb.sum(x * x) * steady

    return qb.grad(loss)(x * a)


@case("difference/outer-operand", X, A, transforms=("jit", "vmap", "grad"), **Q)
def _(qb, x, a):
    """An operand that belongs to a transform further out than the innermost."""

    def loss(y):
        return qb.sum(qb.fori_loop(0, 3, lambda i, c, a: qb.sin(c) * a, y, operands=(a,)))

    return qb.grad(loss)(x)


@case("difference/inner-transform-closes", X, A, transforms=("jit", "vmap"), **Q)
def _(qb, x, a):
    """grad inside a body, of a function that closes over the body's own values."""

    def body(i, c, a):
        return c - 0.1 * qb.grad(lambda y: qb.sum(qb.cos(y) * a + y * qb.sum(c)))(c)

    return qb.fori_loop(0, 3, body, x, operands=(a,))


@case(
    "difference/integer-operand", X, Exact(2, dtype="int32", batch=[2, 0, 5]), transforms=("jit", "vmap", "grad"), **Q
)
def _(qb, x, n):
    """An integer array rides along as an operand."""
    return qb.fori_loop(0, 3, lambda i, x, n: qb.sin(x) * (n + 1), x, operands=(n,))


@case("difference/hessian-of-a-custom-rule", X, transforms=("hessian",), dtypes=("float64",), **Q)
def _(qb, x):
    """The second derivative of a loop whose body has its own reverse rule."""

    @qb.custom_vjp
    def wave(x):
        return qb.sin(x)

    wave.defvjp(lambda x: (qb.sin(x), x), lambda x, ct: (ct * qb.cos(x),))
    return qb.fori_loop(0, 2, lambda i, x: wave(x) * 1.2, x)


@case("difference/sigmoid-at-infinity", Exact([INF, -INF]), transforms=("jvp",), dtypes=("float64",), **Q)
def _(qb, x):
    """The tangent is the limit, 0."""
    return qb.fori_loop(0, 1, lambda i, x: qb.sigmoid(x), x)


@case("difference/empty-carry", Rand((2, 3)), transforms=("jit",), dtypes=("float64",), **Q)
def _(qb, x):
    return qb.fori_loop(0, 2, lambda i, x: qb.sin(x) + 1.0, x[:0])
