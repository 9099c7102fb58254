"""cond and switch in the JAX dialect; what the branch not taken may never do."""

import jax
import jax.numpy as jnp

from ..case import FORWARD, SMOOTH, VALUES, Exact, Rand, case

MOST = tuple(t for t in SMOOTH if t not in ("hessian", "third"))
TRUE, FALSE = Exact(True, dtype="bool"), Exact(False, dtype="bool")
MIXED = Exact(True, dtype="bool", batch=[True, False, True])

for label, predicate in (("true", TRUE), ("false", FALSE), ("mapped", MIXED)):

    @case(f"cond/{label}", predicate, Rand((3,), 0.2, 0.9))
    def _(lax, p, x):
        return lax.cond(p, jnp.sin, jnp.exp, x)

    @case(
        f"cond/{label}-several-outputs",
        predicate,
        Rand((3,), 0.2, 0.9),
        Rand((), 0.5, 1.0),
        covers=("torchscript-if-phi",),
    )
    def _(lax, p, x, a):
        """Both branches hand out the same number of values, in another order."""
        return lax.cond(p, lambda x, a: (x * a, a, jnp.int32(1)), lambda x, a: (jnp.sin(x), a * a, jnp.int32(7)), x, a)

    @case(f"cond/{label}-captures", predicate, Rand((3,), 0.2, 0.9), Rand((3,), 0.2, 0.9), transforms=MOST)
    def _(lax, p, x, y):
        return lax.cond(p, lambda: x * y, lambda: jnp.cos(y))

    @case(f"cond/{label}-constant-branch", predicate, Rand((2,), 0.2, 0.9), transforms=MOST)
    def _(lax, p, x):
        return lax.cond(p, lambda x: x * x, lambda x: jnp.ones_like(x), x)


@case("cond/predicate-from-data", Exact(0.7, batch=[0.7, -0.4, 0.0]))
def _(lax, x):
    return lax.cond(x > 0, lambda x: jnp.log(x), lambda x: x * x, x)


@case("cond/no-operands", MIXED, transforms=VALUES)
def _(lax, p):
    return lax.cond(p, lambda: 1.5, lambda: -2.5)


@case("cond/pytree-operand", MIXED, Rand((2,), 0.2, 0.9), Rand((2,), 0.2, 0.9), transforms=MOST)
def _(lax, p, a, b):
    return lax.cond(p, lambda d: {"s": d["a"] + d["b"]}, lambda d: {"s": d["a"] * d["b"]}, {"a": a, "b": b})["s"]


@case("cond/in-loop", Rand((3,), -0.9, 0.9), transforms=MOST)
def _(lax, x):
    """A branch on the index in a counted loop."""
    return lax.fori_loop(0, 5, lambda i, x: lax.cond(i % 2 == 0, jnp.sin, lambda x: x * 1.1, x), x)


@case("cond/in-loop-on-data", Exact(0.9, batch=[0.9, -0.4, 0.1]), transforms=MOST)
def _(lax, x):
    return lax.fori_loop(0, 5, lambda i, x: lax.cond(x > 0.2, lambda x: x * x, lambda x: jnp.cos(x), x), x)


@case("cond/loop-inside", MIXED, Rand((2,), 0.2, 0.9), transforms=MOST)
def _(lax, p, x):
    def loop(x):
        return lax.fori_loop(0, 4, lambda i, x: jnp.sin(x) * 1.1, x)

    return lax.cond(p, loop, lambda x: x * 2, x)


@case(
    "cond/scan-in-each-branch",
    MIXED,
    Rand((4,), 0.2, 0.9),
    transforms=FORWARD + ("grad", "vmap_grad", "grad_vmap"),
)
def _(lax, p, xs):
    def cumulative(combine):
        return lambda xs: lax.scan(lambda c, x: (combine(c, x), c), xs[0], xs)[1]

    return lax.cond(p, cumulative(jnp.add), cumulative(jnp.multiply), xs)


@case(
    "cond/integer-result",
    MIXED,
    Exact(5, dtype="int32", batch=[5, -3, 0]),
    transforms=VALUES,
    dtypes=("int32",),
)
def _(lax, p, n):
    return lax.cond(p, lambda n: n * 2, lambda n: n - 7, n)


@case("cond/bool-result", MIXED, Rand((3,)), transforms=VALUES)
def _(lax, p, x):
    return lax.cond(p, lambda x: x > 0, lambda x: x < 0.5, x)


def _nest(lax, depth, x):
    if depth == 0:
        return jnp.sin(x)
    return lax.cond(x > 0.1 * depth, lambda x: _nest(lax, depth - 1, x * 0.9), lambda x: x * depth, x)


@case("cond/nested-eight-deep", Exact(0.95, batch=[0.95, 0.3, -0.2]), transforms=FORWARD + ("grad", "vmap_grad"))
def _(lax, x):
    return _nest(lax, 8, x)


@case("cond/chain-of-eight", Exact(0.5, batch=[0.5, -0.3, 0.1]), transforms=FORWARD + ("grad", "vmap_grad"))
def _(lax, x):
    for k in range(8):
        x = lax.cond(x > 0.05 * k, lambda x: jnp.sin(x) + 0.1, lambda x: x * x - 0.2, x)
    return x


for index in range(-5, 10):

    @case(
        f"switch/index-{index}",
        Exact(index, dtype="int32"),
        Rand((3,), 0.2, 0.9),
        transforms=("jit", "jvp", "grad"),
        covers=("switch-clamped",),
    )
    def _(lax, i, x):
        """Out of range is clamped to the first or the last branch."""
        return lax.switch(i, [jnp.sin, jnp.cos, jnp.exp, lambda x: x * x], x)


for count in (1, 2, 3, 5, 9):

    @case(
        f"switch/{count}-branches",
        Exact(1, dtype="int32", batch=[0, 1, 8]),
        Rand((2,), 0.2, 0.9),
        transforms=MOST,
    )
    def _(lax, i, x, count=count):
        return lax.switch(i, [lambda x, k=k: jnp.sin(x * (k + 1)) + k for k in range(count)], x)


@case(
    "switch/nested",
    Exact(1, dtype="int32", batch=[0, 1, 2]),
    Exact(0, dtype="int32", batch=[2, 0, 1]),
    Rand((2,), 0.2, 0.9),
    transforms=MOST,
    covers=("switch-nested",),
)
def _(lax, i, j, x):
    inner = [lambda j, x, k=k: lax.switch(j, [jnp.sin, jnp.cos, lambda x: x * k], x) * (k + 1) for k in range(3)]
    return lax.switch(i, inner, j, x)


@case("switch/in-scan", Exact([0, 2, 1, 1, 2], dtype="int32"), Rand((2,), 0.2, 0.9), transforms=MOST)
def _(lax, order, x):
    return lax.scan(lambda x, i: (lax.switch(i, [jnp.sin, jnp.cos, lambda x: x * 1.1], x), x), x, order)


@case(
    "switch/wide-index-dtypes",
    Exact(2, dtype="int8"),
    Exact(1, dtype="uint32"),
    Exact(-1, dtype="int64"),
    Rand((2,), 0.2, 0.9),
    transforms=("jit", "grad"),
)
def _(lax, a, b, c, x):
    branches = [jnp.sin, jnp.cos, jnp.exp]
    return tuple(lax.switch(i.astype(jnp.int32), branches, x) for i in (a, b, c))


# ---- guards: what is not taken puts nothing non-finite anywhere, in any order of transforms

GUARDED = ("jit", "vmap", "vmap_jvp", "grad", "vmap_grad", "grad_vmap", "vmap_hvp")
POLES = {
    "log-of-zero": (lambda x: jnp.log(x), [0.0, 2.0, 0.5]),
    "sqrt-of-zero": (lambda x: jnp.sqrt(x), [0.0, 2.0, 0.5]),
    "one-over-zero": (lambda x: 1.0 / x, [0.0, 2.0, 0.5]),
    "log-of-negative": (lambda x: jnp.log(x), [-1.0, 2.0, 0.5]),
    "power-of-zero": (lambda x: x**-1.5, [0.0, 2.0, 0.5]),
    "arctanh-of-one": (lambda x: jnp.arctanh(1.0 - x), [0.0, 0.7, 0.5]),
    "exp-overflow": (lambda x: jnp.exp(1.0 / (x * x)), [0.0, 2.0, 0.8]),
}

for pole, (bad, points) in POLES.items():

    @case(f"guard/cond-{pole}", Exact(points[1], batch=points), transforms=GUARDED)
    def _(lax, x, bad=bad):
        return lax.cond(x > 0.1, bad, lambda x: x * 3.0, x)

    @case(f"guard/switch-{pole}", Exact(points[1], batch=points), transforms=GUARDED)
    def _(lax, x, bad=bad):
        return lax.switch((x > 0.1).astype(jnp.int32), [lambda x: x * 3.0, bad, jnp.sin], x)

    @case(f"guard/cond-in-loop-{pole}", Exact(points[1], batch=points), transforms=GUARDED)
    def _(lax, x, bad=bad):
        def step(i, s):
            x, total = s
            return x, total + lax.cond(x > 0.1, bad, lambda x: x * 3.0, x)

        return lax.fori_loop(0, 3, step, (x, jnp.zeros_like(x)))[1]


@case(
    "guard/unmapped-operand",
    MIXED,
    Rand((), 0.0, 1e-300, mapped=False),
    transforms=("vmap", "vmap_jvp", "vmap_grad", "grad_vmap"),
    dtypes=("float64",),
)
def _(lax, p, x):
    return lax.cond(p, lambda x: x * 2.0, lambda x: jnp.cos(x), x)


@jax.custom_jvp
def _clipped(x):
    return jnp.clip(x, -0.5, 0.5)


@_clipped.defjvp
def _(primals, tangents):
    return _clipped(primals[0]), tangents[0] * 2.0


@jax.custom_vjp
def _scaled(x):
    return jnp.sin(x)


_scaled.defvjp(lambda x: (jnp.sin(x), x), lambda x, ct: (ct * jnp.cos(x) * 3.0,))

for where in ("loop", "branch", "scan"):
    for rule, fun, transforms in (
        ("custom-jvp", _clipped, FORWARD + ("grad", "vmap_grad", "hvp", "grad_vmap")),
        ("custom-vjp", _scaled, VALUES + ("grad", "vmap_grad", "grad_vmap", "grad_grad")),
    ):

        @case(f"rules/{rule}-in-{where}", Rand((2,), -0.9, 0.9), transforms=transforms)
        def _(lax, x, fun=fun, where=where):
            """A rule that is not the true derivative, so that its use shows."""
            if where == "loop":
                return lax.fori_loop(0, 3, lambda i, x: fun(x) * 1.2 + 0.1, x)
            if where == "scan":
                return lax.scan(lambda c, _: (fun(c) * 1.2, fun(c)), x, None, length=3)
            return lax.cond(x[0] < 2, lambda x: fun(x) * 2, lambda x: x, x)
