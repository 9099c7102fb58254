"""While loops in the JAX dialect, and reverse mode through them where checkpoint= asks for it."""

import jax
import jax.numpy as jnp
from jax import lax as plain

from ..case import FORWARD, SMOOTH, VALUES, Exact, Rand, case

AHEAD = (*FORWARD, "vmap_jvp", "jvp_jvp")
REVERSE = tuple(t for t in SMOOTH if t not in ("hessian",))


@case("while/newton-root", Rand((), 1.5, 9.0), transforms=AHEAD, ulp=64)
def _(lax, a):
    return lax.while_loop(lambda x: jnp.abs(x * x - a) > 1e-4, lambda x: 0.5 * (x + a / x), jnp.ones_like(a))


@case("while/no-trip", Rand((2,), 2.0, 3.0), transforms=AHEAD)
def _(lax, x):
    return lax.while_loop(lambda x: x.sum() < 1.0, lambda x: x * jnp.nan, x)


@case("while/one-trip", Rand((2,), 0.2, 0.4), transforms=AHEAD)
def _(lax, x):
    return lax.while_loop(lambda x: x.sum() < 1.0, lambda x: x + 5.0, x)


@case("while/collatz", Exact(27, dtype="int32", batch=[6, 1, 27]), transforms=VALUES, dtypes=("int32",))
def _(lax, n):
    def body(s):
        n, count = s
        return jnp.where(n % 2 == 0, n // 2, 3 * n + 1), count + 1

    return lax.while_loop(lambda s: s[0] != 1, body, (n, jnp.int32(0)))


@case(
    "while/gcd",
    Exact(1071, dtype="int32", batch=[48, 1071, 17]),
    Exact(462, dtype="int32", batch=[18, 462, 5]),
    transforms=VALUES,
    dtypes=("int32",),
)
def _(lax, a, b):
    return lax.while_loop(lambda s: s[1] > 0, lambda s: (s[1], s[0] % s[1]), (a, b))[0]


@case("while/break-flag", Rand((3,), 0.4, 0.9), transforms=AHEAD, covers=("torchscript-break",))
def _(lax, x):
    """A loop that stops for one of two reasons: the trip count, or a flag set inside."""

    def body(s):
        i, go, x = s
        scaled = x * (i + 1) * 0.3
        fine = jnp.all(scaled > 0.2)
        return i + 1, fine, jnp.where(fine, scaled + 0.1, scaled)

    i, go, x = lax.while_loop(lambda s: (s[0] < 20) & s[1], body, (jnp.int32(0), jnp.bool_(True), x))
    return i, go, x


@case(
    "while/own-trip-counts",
    Rand((2,)),
    Exact(5, dtype="int32", batch=[0, 3, 7]),
    transforms=("eager", "jit", "vmap", "vmap_jvp"),
)
def _(lax, x, n):
    return lax.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, jnp.sin(s[1]) + 0.2), (jnp.int32(0), x))[1]


@case(
    "while/finished-lane-would-blow-up",
    Exact(1.0, batch=[1.0, 0.25, 2.0]),
    transforms=("eager", "jit", "vmap", "vmap_jvp"),
)
def _(lax, x):
    """The body takes log of a number that is negative in finished lanes only."""
    return lax.while_loop(lambda x: x > 0.1, lambda x: jnp.log(x + 1.0) * 0.5, x)


@case("while/captures", Rand((2, 2), -0.4, 0.4, mapped=False), Rand((2,)), transforms=AHEAD)
def _(lax, w, x):
    return lax.while_loop(lambda s: s[0] < 4, lambda s: (s[0] + 1, jnp.tanh(w @ s[1]) + w[0]), (jnp.int32(0), x))[1]


@case("while/in-scan", Rand((4,), 1.5, 6.0), transforms=AHEAD, ulp=64)
def _(lax, xs):
    def root(c, a):
        r = lax.while_loop(lambda x: jnp.abs(x * x - a) > 1e-3, lambda x: 0.5 * (x + a / x), jnp.ones_like(a))
        return c + r, r

    return lax.scan(root, jnp.zeros((), xs.dtype), xs)


@case("while/in-while", Rand((), 0.5, 0.9), transforms=AHEAD)
def _(lax, x):
    def outer(s):
        n, x = s
        return n + 1, lax.while_loop(lambda y: y > 0.4, lambda y: y * 0.7, x + 0.3)

    return lax.while_loop(lambda s: s[0] < 3, outer, (jnp.int32(0), x))[1]


@case("while/nan-ends-the-loop", Exact(float("nan"), batch=[float("nan"), 3.0, 1.5]), transforms=VALUES)
def _(lax, x):
    return lax.while_loop(lambda x: x > 1.0, lambda x: x * 0.5, x)


@case("while/counts-down", Exact(9, dtype="int64", batch=[9, 0, 4]), transforms=VALUES, dtypes=("int64",))
def _(lax, n):
    return lax.while_loop(lambda s: s[0] > 0, lambda s: (s[0] - 1, s[1] + s[0]), (n, jnp.int64(0)))


@case("while/pytree-and-key", Exact(3, dtype="int32"), transforms=("eager", "jit"), dtypes=("float64",))
def _(lax, n):
    """A PRNG key in the carry."""

    def body(s):
        i, key, total = s
        key, sub = jax.random.split(key)
        return i + 1, key, total + jax.random.uniform(sub, dtype=jnp.float64)

    i, key, total = lax.while_loop(lambda s: s[0] < n, body, (jnp.int32(0), jax.random.key(3), jnp.float64(0)))
    return total, jax.random.key_data(key)


@case("while/bisection", Rand((), 0.5, 3.0), transforms=("eager", "jit", "vmap"))
def _(lax, a):
    def body(s):
        lo, hi = s
        mid = 0.5 * (lo + hi)
        return jnp.where(mid**3 < a, mid, lo), jnp.where(mid**3 < a, hi, mid)

    lo, hi = lax.while_loop(lambda s: s[1] - s[0] > 1e-3, body, (jnp.zeros_like(a), a + 1))
    return lo, hi


def _masked(trips, cond, body, x):
    """The same loop as a scan of `trips` masked steps: what reverse mode must agree with."""

    def step(x, _):
        go = cond(x)
        # The guard is where jax.lax.cond puts it: the body sees the carry only where it runs.
        return jax.tree.map(lambda a, b: jnp.where(go, a, b), plain.cond(go, body, lambda x: x, x), x), None

    return plain.scan(step, x, None, length=trips)[0]


def _reverse_case(name, inputs, trips, cond, body, transforms=REVERSE, **fields):
    """Register one while loop whose gradient goes through the engine."""

    @case(
        f"while-reverse/{name}",
        *inputs,
        transforms=transforms,
        tags=("only:xla", "only:compat", "only:numpy", "only:mlx", "only:torchscript", "only:export"),
        reference=lambda lax, *xs: _masked(trips, lambda s: cond(s, *xs[1:]), lambda s: body(s, *xs[1:]), xs[0]),
        **fields,
    )
    def _(lax, *xs):
        return lax.while_loop(lambda s: cond(s, *xs[1:]), lambda s: body(s, *xs[1:]), xs[0], checkpoint=4)


_reverse_case("decay-to-a-bound", (Rand((2,), 0.8, 1.6),), 12, lambda x: x.sum() > 0.9, lambda x: jnp.sin(x) * 0.9)
_reverse_case(
    "captured",
    (Rand((2,), 0.8, 1.6), Rand((2,), 0.6, 0.9)),
    14,
    lambda x, a: x.sum() > 0.7,
    lambda x, a: jnp.sin(x) * a,
)
_reverse_case("no-trip", (Rand((2,), -1.0, -0.5),), 2, lambda x: x.sum() > 0.9, lambda x: jnp.log(x))
_reverse_case(
    "own-trip-counts", (Exact(1.4, batch=[1.4, 0.2, 3.0]),), 16, lambda x: x > 0.5, lambda x: jnp.sin(x) * 0.95,
    transforms=("vmap", "grad", "vmap_grad", "grad_vmap", "vmap_hvp", "third"),
)  # fmt: skip
_reverse_case(
    "finished-lane-would-be-nan", (Exact(2.0, batch=[2.0, 0.3, 0.9]),), 16,
    lambda x: x > 0.4, lambda x: jnp.sqrt(x - 0.4) * 0.8 + 0.1,
    transforms=("grad", "vmap_grad", "grad_vmap", "vmap_hvp"),
)  # fmt: skip
_reverse_case(
    "matrix", (Rand((3,), 0.5, 1.0), Rand((3, 3), -0.3, 0.3, mapped=False)), 20,
    lambda x, w: jnp.sum(x * x) > 0.05, lambda x, w: jnp.tanh(w @ x) + 0.3 * x,
    transforms=("jit", "grad", "hvp", "grad_grad", "vmap_grad"),
)  # fmt: skip
