"""Scans in the JAX dialect."""

import jax
import jax.numpy as jnp

from ..case import FORWARD, SMOOTH, VALUES, Exact, Rand, case

MOST = tuple(t for t in SMOOTH if t not in ("hessian", "third"))

for length in (0, 1, 2, 5, 9, 33):
    for reverse in (False, True):

        @case(
            f"scan/length-{length}{'-reverse' if reverse else ''}",
            Rand((2,), 0.2, 0.8),
            Rand((length, 2), -1, 1),
            transforms=MOST if length in (2, 5) else FORWARD + ("grad", "vmap_grad", "hvp"),
            ulp=256 if length < 20 else 1024,  # each of the steps rounds, and sin(c) + 0.3 * x cancels
        )
        def _(lax, c, xs, reverse=reverse):
            def step(c, x):
                c = jnp.sin(c) + 0.3 * x
                return c, c * x

            return lax.scan(step, c, xs, reverse=reverse)


@case("scan/no-xs", Rand((2,), 0.2, 0.8))
def _(lax, c):
    return lax.scan(lambda c, _: (jnp.sin(c), c), c, None, length=5)


@case("scan/no-ys", Rand((2,), 0.2, 0.8), Rand((5, 2)))
def _(lax, c, xs):
    return lax.scan(lambda c, x: (jnp.tanh(c + x), None), c, xs)[0]


@case("scan/no-carry", Rand((5, 2)))
def _(lax, xs):
    return lax.scan(lambda _, x: (None, jnp.sin(x)), None, xs)[1]


@case("scan/counts-only", Exact(0, dtype="int32", batch=[0, 5, -2]), transforms=VALUES, dtypes=("int32",))
def _(lax, n):
    return lax.scan(lambda n, _: (n + 2, n), n, None, length=6)


@case("scan/pytrees", Rand((2,), 0.2, 0.8), Rand((4, 2)), Rand((4,)))
def _(lax, c, xs, zs):
    def step(carry, x):
        a = jnp.sin(carry["a"]) + x["p"] * x["q"]
        return {"a": a, "n": carry["n"] + 1}, (a * 2, {"m": carry["n"], "z": x["q"]})

    carry, (ys, rest) = lax.scan(step, {"a": c, "n": jnp.int32(0)}, {"p": xs, "q": zs})
    return carry["a"], carry["n"], ys, rest["m"], rest["z"]


@case("scan/reverse-order-of-ys", Rand((5,)))
def _(lax, xs):
    """The y of the last slice is stored last, though it is computed first."""
    return lax.scan(lambda c, x: (c * 0.5 + x, c), jnp.zeros((), xs.dtype), xs, reverse=True)


@case("scan/y-is-the-slice", Rand((4, 2)))
def _(lax, xs):
    return lax.scan(lambda c, x: (c + x.sum(), x), jnp.zeros((), xs.dtype), xs)


@case("scan/y-is-the-capture", Rand((3,)), Rand((4,)))
def _(lax, w, xs):
    return lax.scan(lambda c, x: (c + x, w * x), jnp.zeros((), xs.dtype), xs)


@case("scan/y-twice", Rand((4,)))
def _(lax, xs):
    """One value returned as two outputs."""
    return jax.tree.leaves(lax.scan(lambda c, x: (c + x, (c, c)), jnp.zeros((), xs.dtype), xs))


@case("scan/integer-ys", Rand((4,), -2, 2))
def _(lax, xs):
    c, (a, b) = lax.scan(lambda c, x: (c + x, (x > 0, jnp.int32(3))), jnp.zeros((), xs.dtype), xs)
    return c, a, b


@case("scan/integer-xs", Rand((2,), 0.2, 0.8), Exact([2, 0, 1, 1], dtype="int32"))
def _(lax, c, indices):
    return lax.scan(lambda c, i: (jnp.sin(c) * (1.0 + i), c[i % 2]), c, indices)


@case(
    "scan/rnn",
    Rand((3, 3), -0.6, 0.6, mapped=False),
    Rand((3, 2), -0.6, 0.6, mapped=False),
    Rand((6, 2)),
    transforms=MOST,
)
def _(lax, w, u, xs):
    h, hs = lax.scan(lambda h, x: (jnp.tanh(w @ h + u @ x),) * 2, jnp.zeros(3, w.dtype), xs)
    return h, hs


@case(
    "scan/gru",
    Rand((3, 6, 4), -0.5, 0.5, mapped=False),
    Rand((5, 2)),
    transforms=FORWARD + ("grad", "vmap_grad", "hvp"),
)
def _(lax, w, xs):
    def step(h, x):
        v = jnp.concatenate([h, x, x])
        z, r = jax.nn.sigmoid(w[0, :4].T @ v[:4] + v[:4]), jax.nn.sigmoid(w[1, :4].T @ v[:4])
        h = (1 - z) * h + z * jnp.tanh(w[2, :4].T @ (r * v[:4]))
        return h, h.sum()

    return lax.scan(step, jnp.zeros(4, w.dtype), xs)


@case("scan/cumulative-products", Rand((6,), 0.5, 1.5))
def _(lax, xs):
    return lax.scan(lambda c, x: (c * x, c * x), jnp.ones((), xs.dtype), xs)[1]


@case("scan/in-scan", Rand((2,), 0.2, 0.8), Rand((3, 4, 2)), transforms=MOST)
def _(lax, c, xs):
    def outer(c, rows):
        c, ys = lax.scan(lambda c, x: (jnp.sin(c + x), c * x), c, rows)
        return c, ys.sum(0)

    return lax.scan(outer, c, xs)


@case(
    "scan/in-scan-reverse",
    Rand((2,), 0.2, 0.8),
    Rand((3, 4, 2)),
    transforms=FORWARD + ("grad", "hvp", "vmap_grad"),
)
def _(lax, c, xs):
    def outer(c, rows):
        return lax.scan(lambda c, x: (jnp.sin(c + x), c * x), c, rows, reverse=True)

    return lax.scan(outer, c, xs, reverse=True)


def _deep(lax, depth, x):
    if depth == 0:
        return jnp.sin(x) * 1.01
    return lax.scan(lambda x, _: (_deep(lax, depth - 1, x), None), x, None, length=2)[0]


for depth in (4, 8):

    @case(f"scan/nested-{depth}-deep", Rand((), 0.2, 0.8), transforms=("jit", "jvp", "grad"), slow=depth > 4)
    def _(lax, x, depth=depth):
        return _deep(lax, depth, x)


@case("scan/unroll-2", Rand((2,), 0.2, 0.8), Rand((5, 2)))
def _(lax, c, xs):
    """An unroll that does not divide the length."""
    return lax.scan(lambda c, x: (jnp.sin(c) + x, c), c, xs, unroll=2)


@case("scan/unroll-all", Rand((2,), 0.2, 0.8), Rand((4, 2)))
def _(lax, c, xs):
    return lax.scan(lambda c, x: (jnp.sin(c) + x, c), c, xs, unroll=True)


@case("scan/captured-gradient", Rand((2,), 0.3, 0.9), Rand((4, 2)))
def _(lax, p, xs):
    """The captured parameter's gradient is the sum over all trips."""
    return lax.scan(lambda c, x: (c * p + x, p * x), jnp.zeros(2, p.dtype), xs)


@case(
    "scan/mixed-precision",
    Rand((3,), 0.2, 0.8),
    Rand((4, 3), dtype="float32"),
    transforms=FORWARD + ("grad",),
    dtypes=("float64",),
)
def _(lax, c, xs):
    """float32 slices into a float64 carry."""
    return lax.scan(lambda c, x: (jnp.sin(c) + x.astype(c.dtype), x * 2), c, xs)


@case(
    "scan/half-precision-carry",
    Rand((3,), 0.2, 0.8),
    transforms=VALUES,
    dtypes=("float16", "bfloat16"),
    ulp=64,
)
def _(lax, c):
    return lax.scan(lambda c, _: (c * 0.5 + 0.25, c), c, None, length=4)


@case(
    "scan/rounds-in-its-own-dtype",
    Rand((3,), 0.2, 0.8),
    transforms=VALUES,
    dtypes=("float32", "float64"),
    ulp=2,
)
def _(lax, c):
    """The carry is not rounded through anything narrower on its way round."""
    return lax.scan(lambda c, _: (c * 1.0, None), c, None, length=8)[0]


@case("scan/dead-output", Rand((2,), 0.2, 0.8), Rand((4, 2)))
def _(lax, c, xs):
    c, ys = lax.scan(lambda c, x: (jnp.sin(c) + x, jnp.exp(c * 100)), c, xs)
    return c


@case("scan/dead-carry", Rand((2,), 0.2, 0.8), Rand((4, 2)))
def _(lax, c, xs):
    """A carry that nothing reads."""
    (c, _), ys = lax.scan(lambda s, x: ((jnp.sin(s[0]) + x, s[1] * 2), s[0]), (c, c), xs)
    return ys


@case("scan/associative-sum", Rand((7, 2)), transforms=FORWARD + ("grad", "hvp"))
def _(lax, xs):
    return lax.associative_scan(jnp.add, xs)


@case(
    "scan/associative-affine",
    Rand((6,), 0.5, 1.0),
    Rand((6,)),
    ulp=64,
    transforms=FORWARD + ("grad", "vmap_grad"),
)
def _(lax, a, b):
    """Composition of affine maps: associative, not commutative."""
    return lax.associative_scan(lambda f, g: (g[0] * f[0], g[0] * f[1] + g[1]), (a, b))


@case("scan/associative-reverse", Rand((5,), 0.5, 1.0), transforms=FORWARD + ("grad",))
def _(lax, a):
    return lax.associative_scan(jnp.multiply, a, reverse=True)


@case("scan/map", Rand((5, 2)), transforms=FORWARD + ("grad", "vmap_grad", "hvp"))
def _(lax, xs):
    return lax.map(lambda x: jnp.sin(x) * x.sum(), xs)


@case("scan/map-batched", Rand((7, 2)), transforms=FORWARD + ("grad",))
def _(lax, xs):
    """A batch size that leaves a remainder."""
    return lax.map(lambda x: jnp.sin(x) * x.sum(), xs, batch_size=3)


@case("scan/kalman", Rand((6,)), Rand((), 0.2, 0.9), transforms=FORWARD + ("grad", "hvp", "vmap_grad"))
def _(lax, ys, q):
    def step(s, y):
        m, p = s
        p = p + q
        k = p / (p + 0.5)
        m = m + k * (y - m)
        return (m, (1 - k) * p), (m, jnp.log(p + 0.5))

    (m, p), (ms, logs) = lax.scan(step, (jnp.zeros((), ys.dtype), jnp.ones((), ys.dtype)), ys)
    return m, p, ms, logs


@case("scan/viterbi", Rand((4, 3)), Rand((3, 3), mapped=False), transforms=VALUES)
def _(lax, scores, moves):
    """Maxima and argmaxima forward, a gather chain backward."""

    def step(best, row):
        total = best[:, None] + moves
        return total.max(0) + row, total.argmax(0)

    best, back = lax.scan(step, scores[0], scores[1:])
    last = best.argmax()
    _, path = lax.scan(lambda s, b: (b[s], s), last, back, reverse=True)
    return best.max(), path


@case(
    "scan/bitonic-bits",
    Exact([5, 3, 9, 1], dtype="uint32", batch=[[5, 3, 9, 1], [0, 4294967295, 2, 8], [7, 7, 7, 7]]),
    transforms=VALUES,
    dtypes=("uint32",),
)
def _(lax, xs):
    return lax.scan(lambda c, x: ((c << 3) ^ x ^ (c >> 5), c), jnp.uint32(7), xs)
