"""Counted loops in the JAX dialect."""

import jax
import jax.numpy as jnp

from ..case import FORWARD, SMOOTH, VALUES, Exact, Rand, Static, case

MOST = tuple(t for t in SMOOTH if t not in ("hessian", "third"))

for trips in (0, 1, 2, 3, 5, 16, 17, 64):

    @case(
        f"fori/trips-{trips}",
        Rand((2,), 0.2, 0.8),
        Rand((), 0.4, 0.9),
        transforms=MOST if trips < 6 else FORWARD + ("grad", "hvp", "vmap_grad"),
    )
    def _(lax, x, a, trips=trips):
        """A nonlinear body with a captured scalar, at each interesting trip count."""
        return lax.fori_loop(0, trips, lambda i, x: x + 0.1 * jnp.sin(a * x) * (1.0 + 0.1 * i), x)


for lower, upper in ((3, 9), (-4, 2), (5, 5), (7, 2), (-3, -1)):

    @case(
        f"fori/bounds-{lower}-to-{upper}",
        Rand((3,), 0.3, 0.9),
        Static(lower),
        Static(upper),
        transforms=FORWARD + ("grad", "vmap_grad", "hvp"),
    )
    def _(lax, x, lower, upper):
        """Bounds may start anywhere; upper below lower is no trip."""
        return lax.fori_loop(lower, upper, lambda i, x: jnp.cos(x) * (0.5 + 0.05 * i), x)


@case("fori/traced-upper", Rand((3,), 0.3, 0.9), Exact(4, dtype="int32"), transforms=("eager", "jit", "jvp"))
def _(lax, x, n):
    return lax.fori_loop(0, n, lambda i, x: jnp.sin(x) + 0.1, x)


@case(
    "fori/traced-upper-mapped",
    Rand((3,), 0.3, 0.9),
    Exact(4, dtype="int32", batch=[0, 3, 5]),
    transforms=("eager", "jit", "vmap", "vmap_jvp"),
)
def _(lax, x, n):
    """Every example has its own trip count; finished ones keep their carry."""
    return lax.fori_loop(0, n, lambda i, x: jnp.sin(x) + 0.1, x)


@case(
    "fori/traced-lower-and-upper",
    Exact(2, dtype="int32"),
    Exact(6, dtype="int32"),
    Rand((2,)),
    transforms=("eager", "jit", "jvp"),
)
def _(lax, lower, upper, x):
    return lax.fori_loop(lower, upper, lambda i, x: x * 0.5 + i, x)


@case("fori/pytree-carry", Rand((2, 2), 0.1, 0.9), Rand((), 0.2, 0.7))
def _(lax, w, b):
    def body(i, state):
        p, (q, count) = state
        return {"w": jnp.tanh(p["w"] @ w), "b": p["b"] * b}, (q + p["b"], count + 1)

    p, (q, count) = lax.fori_loop(0, 4, body, ({"w": w, "b": b}, (b, jnp.int32(0))))
    return p["w"], p["b"], q, count


@case("fori/swapped-carries", Rand((2,)), Rand((2,)))
def _(lax, a, b):
    """Carries that trade places each trip (in-place rotation goes wrong here)."""
    return lax.fori_loop(0, 5, lambda i, s: (s[1] * 0.9, jnp.sin(s[0])), (a, b))


@case("fori/three-rotating-carries", Rand((2,)), Rand((2,)), Rand((2,)))
def _(lax, a, b, c):
    return lax.fori_loop(0, 4, lambda i, s: (s[1], s[2] * s[0], jnp.cos(s[0])), (a, b, c))


@case("fori/carry-untouched", Rand((2,)), Rand((3,)))
def _(lax, a, b):
    """A carry that the body hands on as it is."""
    return lax.fori_loop(0, 3, lambda i, s: (jnp.sin(s[0]), s[1]), (a, b))


@case("fori/carry-constant", Rand((2,)))
def _(lax, x):
    """The body forgets the carry: the gradient is zero."""
    return lax.fori_loop(0, 3, lambda i, s: jnp.ones_like(s) * 0.5, x) + 0.0 * x


@case("fori/captured-matrix", Rand((3, 3), -0.5, 0.5, mapped=False), Rand((3,)))
def _(lax, w, x):
    """The capture is not mapped under vmap; its gradient sums over the batch."""
    return lax.fori_loop(0, 6, lambda i, x: jnp.tanh(w @ x), x)


@case("fori/captured-and-mapped", Rand((3, 3), -0.5, 0.5), Rand((3,), mapped=False))
def _(lax, w, x):
    """Only the capture is mapped, so the carry becomes mapped on the first trip."""
    return lax.fori_loop(0, 6, lambda i, x: jnp.tanh(w @ x), x)


@case("fori/index-gathers", Rand((6,)), Rand((), 0.2, 0.8))
def _(lax, xs, a):
    return lax.fori_loop(0, 6, lambda i, s: jnp.sin(s + xs[i]), a)


@case("fori/index-gathers-rows", Rand((4, 3)), Rand((3,)))
def _(lax, w, x):
    return lax.fori_loop(0, 4, lambda i, x: jnp.tanh(x * w[i]) + w[3 - i], x)


@case("fori/writes-a-row", Rand((3,)), Rand((5, 3)))
def _(lax, x, table):
    """One row a step into a big carry."""
    return lax.fori_loop(0, 5, lambda i, s: (jnp.sin(s[0]), s[1].at[i].set(s[0] * s[1][i])), (x, table))


@case("fori/row-from-previous-row", Rand((6, 3)))
def _(lax, table):
    return lax.fori_loop(1, 6, lambda i, t: t.at[i].set(jnp.tanh(t[i - 1]) + 0.5 * t[i]), table)


@case("fori/adds-at-an-index", Rand((4,)), Rand((6,)))
def _(lax, acc, xs):
    return lax.fori_loop(0, 6, lambda i, a: a.at[i % 4].add(xs[i] * a[(i + 1) % 4]), acc)


@case("fori/integer-carry", Exact(3, dtype="int32", batch=[1, 3, 5]), transforms=VALUES, dtypes=("int32",))
def _(lax, n):
    return lax.fori_loop(0, 10, lambda i, n: n * 3 + i, n)


@case(
    "fori/integer-wraps",
    Exact(123456789, dtype="int32", batch=[1, -7, 123456789]),
    transforms=VALUES,
    dtypes=("int32",),
)
def _(lax, n):
    """32-bit arithmetic wraps: a linear congruential generator."""
    return lax.fori_loop(0, 20, lambda i, n: n * 1103515245 + 12345, n)


@case(
    "fori/unsigned-wraps",
    Exact(1, dtype="uint32", batch=[1, 77, 4294967295]),
    transforms=VALUES,
    dtypes=("uint32",),
)
def _(lax, n):
    return lax.fori_loop(0, 20, lambda i, n: n * jnp.uint32(1664525) + jnp.uint32(1013904223), n)


@case("fori/bool-carry", Exact(True, dtype="bool", batch=[True, False, True]), Rand(()), transforms=VALUES)
def _(lax, flag, x):
    return lax.fori_loop(0, 5, lambda i, s: (~s[0], jnp.where(s[0], s[1] + 1, s[1] * 2)), (flag, x))


@case("fori/int-beside-float", Rand((2,), 0.2, 0.8))
def _(lax, x):
    """An integer carry rides along undifferentiated and steers the float one."""

    def body(i, s):
        x, n = s
        return jnp.sin(x) * (1 + 0.1 * n), (n * 5 + 1) % 7

    return lax.fori_loop(0, 6, body, (x, jnp.int32(2)))


@case("fori/in-fori", Rand((2,), 0.2, 0.8))
def _(lax, x):
    def outer(i, x):
        return lax.fori_loop(0, 3, lambda j, x: jnp.sin(x) + 0.1 * i * j, x)

    return lax.fori_loop(0, 3, outer, x)


@case("fori/triangular-nest", Rand((2,), 0.2, 0.8), transforms=("eager", "jit", "vmap", "jvp", "vmap_jvp"))
def _(lax, x):
    """The inner trip count is the outer index."""
    return lax.fori_loop(0, 4, lambda i, x: lax.fori_loop(0, i, lambda j, x: jnp.cos(x) * 0.9, x), x)


@case("fori/unrolled", Rand((2,), 0.2, 0.8), Static(4))
def _(lax, x, unroll):
    return lax.fori_loop(0, 10, lambda i, x: jnp.sin(x) + 0.01 * i, x, unroll=unroll)


@case("fori/fully-unrolled", Rand((2,), 0.2, 0.8))
def _(lax, x):
    return lax.fori_loop(0, 4, lambda i, x: jnp.sin(x) + 0.01 * i, x, unroll=True)


@case("fori/linear-body", Rand((3, 3), -0.5, 0.5), Rand((3,)))
def _(lax, w, x):
    return lax.fori_loop(0, 5, lambda i, x: w @ x, x)


@case("fori/power-by-squaring", Rand((), 0.6, 1.2))
def _(lax, x):
    return lax.fori_loop(0, 4, lambda i, x: x * x, x)


@case("fori/weakly-typed-capture", Rand((2,)), transforms=FORWARD + ("grad", "hvp"))
def _(lax, x):
    """0.0 * capture keeps the capture's dtype, also under jax.checkpoint."""

    @jax.checkpoint
    def run(x, p):
        return lax.fori_loop(0, 3, lambda i, x: jnp.sin(x) + 0.0 * p, x)

    return run(x, 2.0)


@case("fori/under-checkpoint", Rand((2,), 0.2, 0.8))
def _(lax, x):
    return jax.checkpoint(lambda x: lax.fori_loop(0, 5, lambda i, x: jnp.sin(x) * 1.1, x))(x)


@case("fori/checkpointed-body", Rand((2,), 0.2, 0.8))
def _(lax, x):
    return lax.fori_loop(0, 5, lambda i, x: jax.checkpoint(lambda x: jnp.sin(jnp.sin(x)) * 1.1)(x), x)


@case("fori/stop-gradient-inside", Rand((2,), 0.2, 0.8))
def _(lax, x):
    return lax.fori_loop(0, 4, lambda i, x: jnp.sin(x) + jax.lax.stop_gradient(x * x), x)


@case("fori/result-of-grad-inside", Rand((2,), 0.2, 0.8), transforms=FORWARD + ("grad", "vmap_grad"))
def _(lax, x):
    """A gradient step in the body: derivative of a loop of derivatives."""
    return lax.fori_loop(0, 4, lambda i, x: x - 0.1 * jax.grad(lambda x: jnp.sum(jnp.cos(x) * x))(x), x)


@case("fori/vmap-inside", Rand((3, 2), 0.2, 0.8))
def _(lax, x):
    return lax.fori_loop(0, 4, lambda i, x: jax.vmap(lambda r: jnp.sin(r) * jnp.sum(r))(x) * 0.5, x)


@case("fori/large-trip-count", Rand((), 0.2, 0.8), transforms=("jit", "jvp"), ulp=4096, slow=True)
def _(lax, x):
    """A hundred thousand trips."""
    return lax.fori_loop(0, 100_000, lambda i, x: x + 1e-5 * (0.5 - x), x)


@case("fori/huge-integer-count", Exact(0, dtype="int32"), transforms=("jit",), dtypes=("int32",), slow=True)
def _(lax, n):
    return lax.fori_loop(0, 200_000, lambda i, n: n ^ i, n)


@case("fori/empty-carry-array", Rand((0, 3)), transforms=FORWARD + ("grad",))
def _(lax, x):
    """A carry without elements."""
    return lax.fori_loop(0, 3, lambda i, x: jnp.sin(x) + 1, x)


@case("fori/scalar-and-matrix", Rand((), 0.5, 0.9), Rand((2, 3)))
def _(lax, a, m):
    return lax.fori_loop(0, 4, lambda i, s: (s[0] * 0.9, jnp.sin(s[1]) * s[0]), (a, m))


@case("fori/complex-carry", Rand((2,), 0.2, 0.8), transforms=FORWARD + ("grad", "vmap_grad"))
def _(lax, x):
    z = lax.fori_loop(0, 4, lambda i, z: z * (0.8 + 0.3j) + 0.1j, x + 0j * x)
    return jnp.real(z), jnp.imag(z)
