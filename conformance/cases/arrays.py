"""Indexing, reductions, products, sorting, linear algebra and random numbers inside loops."""

import jax
import jax.numpy as jnp

from ..case import VALUES, Exact, Rand, case

CHECKED = ("jit", "jvp", "grad", "vmap_grad")
BAD = Exact([-7, -1, 0, 2, 3, 4, 99], dtype="int32")

for mode in ("clip", "fill"):

    @case(f"index/gather-{mode}", Rand((4,)), BAD, transforms=CHECKED)
    def _(lax, table, indices, mode=mode):
        """Out-of-range indices, each mode of jax.numpy."""
        return lax.scan(
            lambda c, i: (c + 1.0, table.at[i].get(mode=mode, fill_value=-3.0)),
            jnp.zeros((), table.dtype),
            indices,
        )

    @case(
        f"index/scatter-add-{mode if mode == 'clip' else 'drop'}",
        Rand((4,)),
        BAD,
        Rand((7,)),
        transforms=CHECKED,
    )
    def _(lax, table, indices, values, mode=mode if mode == "clip" else "drop"):
        def step(t, iv):
            return t.at[iv[0]].add(jnp.sin(iv[1]), mode=mode), None

        return lax.scan(step, table, (indices, values))[0]


@case("index/scatter-duplicates", Rand((4,)), Exact([1, 1, 3, 1], dtype="int32"), Rand((4,)), transforms=CHECKED)
def _(lax, table, indices, values):
    return lax.fori_loop(0, 3, lambda i, t: t.at[indices].add(values * t[i]), table)


@case("index/scatter-max", Rand((4,)), Exact([1, 1, 3, 1], dtype="int32"), Rand((4,)), transforms=VALUES)
def _(lax, table, indices, values):
    return lax.fori_loop(0, 2, lambda i, t: t.at[indices].max(values + i * 0.1), table)


@case("index/dynamic-slice-clamps", Rand((6,)), Exact([-9, 0, 3, 5, 77], dtype="int32"), transforms=CHECKED)
def _(lax, x, starts):
    return lax.scan(lambda c, s: (c * 0.5, jax.lax.dynamic_slice(x, (s,), (3,)) * c), jnp.ones((), x.dtype), starts)


@case("index/dynamic-update-clamps", Rand((6,)), Exact([-9, 2, 77], dtype="int32"), transforms=CHECKED)
def _(lax, x, starts):
    return lax.scan(lambda c, s: (jax.lax.dynamic_update_slice(c, c[:2] * 0.5, (s,)), None), x, starts)[0]


@case("index/rows-of-a-matrix", Rand((5, 3)), Exact([4, 0, 2], dtype="int32"), transforms=CHECKED)
def _(lax, m, rows):
    return lax.scan(lambda c, r: (c + m[r].sum(), m[r] * c), jnp.ones((), m.dtype), rows)


@case("index/take-along-axis", Rand((3, 4)), Exact([[0, 3], [1, 1], [2, 0]], dtype="int32"), transforms=CHECKED)
def _(lax, m, where):
    return lax.fori_loop(0, 2, lambda i, s: s + jnp.take_along_axis(m, where, 1).sum() * s, jnp.ones((), m.dtype))


REDUCTIONS = {
    "sum": jnp.sum,
    "prod": jnp.prod,
    "max": jnp.max,
    "min": jnp.min,
    "mean": jnp.mean,
    "std": jnp.std,
    "logsumexp": jax.nn.logsumexp,
    "norm": jnp.linalg.norm,
    "cumsum": lambda x: jnp.cumsum(x).sum(),
    "cumprod": lambda x: jnp.cumprod(x).sum(),
    "sorted-middle": lambda x: jnp.sort(x)[1:3].sum(),
}

for name, fun in REDUCTIONS.items():

    @case(f"reduce/{name}", Rand((5,), 0.3, 1.4), transforms=(*CHECKED, "hvp"), ulp=64)
    def _(lax, x, fun=fun):
        return lax.fori_loop(0, 3, lambda i, x: x * 0.9 + 0.1 * fun(x), x)


for name, fun, value in (
    ("sum", jnp.sum, None), ("prod", jnp.prod, None), ("any", jnp.any, None), ("all", jnp.all, None),
    ("max", jnp.max, -2.5), ("min", jnp.min, 2.5),
):  # fmt: skip

    @case(f"reduce/empty-{name}", Rand((0, 3)), transforms=("jit",))
    def _(lax, x, fun=fun, value=value):
        extra = {} if value is None else {"initial": value}
        return lax.fori_loop(0, 2, lambda i, s: fun(x, axis=0, **extra) * s, jnp.ones(3, x.dtype))


@case("reduce/nan-wins", Exact([1.0, float("nan"), 3.0]), transforms=("jit",))
def _(lax, x):
    return lax.scan(lambda c, v: (jnp.maximum(c, v), (x.max(), x.min(), jnp.argmax(x), jnp.argmin(x))), x[0], x)


@case("reduce/argmax-ties", Exact([2, 5, 5, 1], dtype="int32"), transforms=("jit",), dtypes=("int32",))
def _(lax, x):
    return lax.fori_loop(0, 3, lambda i, s: (s[0] + jnp.argmax(x), s[1] + jnp.argmin(x[::-1])), (0, 0))


@case("sort/stable-two-keys", Exact([2, 1, 2, 1, 0], dtype="int32"), Rand((5,)), transforms=VALUES)
def _(lax, keys, x):
    def step(c, _):
        k, v = jax.lax.sort((keys, c), num_keys=1)
        return v, k

    return lax.scan(step, x, None, length=2)


@case(
    "sort/special-values",
    Exact([float("nan"), 1.0, -0.0, 0.0, float("-inf"), float("inf"), -1.0]),
    transforms=("jit",),
)
def _(lax, x):
    return lax.fori_loop(0, 1, lambda i, s: jnp.sort(s), x), jnp.argsort(x)


@case("sort/top-k", Rand((6,)), transforms=("jit", "grad"))
def _(lax, x):
    return lax.fori_loop(0, 2, lambda i, s: s * 0.5 + jax.lax.top_k(s, 2)[0].sum(), x)


@case("matmul/vector-matrix-chain", Rand((3, 3), -0.6, 0.6), Rand((3,)), transforms=(*CHECKED, "hvp"))
def _(lax, w, x):
    return lax.fori_loop(0, 4, lambda i, x: jnp.tanh(x @ w) + x, x)


@case("matmul/batched", Rand((2, 3, 3), -0.6, 0.6), Rand((2, 3, 2)), transforms=CHECKED)
def _(lax, w, x):
    return lax.fori_loop(0, 3, lambda i, x: jnp.tanh(w @ x), x)


@case("matmul/integers", Exact([[1, 2], [3, 4]], dtype="int32"), transforms=("jit",), dtypes=("int32",))
def _(lax, m):
    return lax.fori_loop(0, 12, lambda i, s: s @ m, m)


@case("matmul/einsum", Rand((2, 3)), Rand((3, 4)), transforms=CHECKED)
def _(lax, a, b):
    return lax.fori_loop(0, 2, lambda i, s: jnp.einsum("ij,jk,lk->il", s, b, b) * 0.3, a)


@case("matmul/convolution", Rand((1, 1, 8)), Rand((1, 1, 3), -0.5, 0.5), transforms=CHECKED)
def _(lax, x, k):
    return lax.fori_loop(0, 3, lambda i, x: jnp.tanh(jax.lax.conv_general_dilated(x, k, (1,), "SAME")), x)


SPD = Rand((3, 3), -0.5, 0.5)


def _spd(m):
    return m @ m.T + 2.0 * jnp.eye(3, dtype=m.dtype)


LINALG = {
    "cholesky": lambda m: jnp.linalg.cholesky(_spd(m)).sum(),
    "solve": lambda m: jnp.linalg.solve(_spd(m), m[0]).sum(),
    "triangular": lambda m: jax.scipy.linalg.solve_triangular(_spd(m), m[0], lower=True).sum(),
    "eigh": lambda m: jnp.linalg.eigh(_spd(m) + jnp.diag(jnp.arange(3.0).astype(m.dtype)))[0].sum(),
    "qr": lambda m: jnp.abs(jnp.linalg.qr(_spd(m))[1]).sum(),
    "svd": lambda m: jnp.linalg.svd(_spd(m), compute_uv=False).sum(),
    "det": lambda m: jnp.linalg.det(_spd(m)),
    "slogdet": lambda m: jnp.linalg.slogdet(_spd(m))[1],
    "inv": lambda m: jnp.linalg.inv(_spd(m)).sum(),
}

for name, fun in LINALG.items():

    @case(f"linalg/{name}", SPD, transforms=("jit", "grad", "vmap"), ulp=1024)
    def _(lax, m, fun=fun):
        return lax.fori_loop(0, 2, lambda i, m: m * 0.9 + 0.02 * fun(m), m)


DRAWS = {
    "bits": lambda k: jax.random.bits(k, (3,)),
    "uniform": lambda k: jax.random.uniform(k, (3,), jnp.float32),
    "normal": lambda k: jax.random.normal(k, (3,), jnp.float32),
    "randint": lambda k: jax.random.randint(k, (3,), -5, 9, jnp.int32),
    "bernoulli": lambda k: jax.random.bernoulli(k, 0.3, (3,)),
    "permutation": lambda k: jax.random.permutation(k, 5),
    "categorical": lambda k: jax.random.categorical(k, jnp.arange(4, dtype=jnp.float32), shape=(3,)),
    "exponential": lambda k: jax.random.exponential(k, (3,), jnp.float32),
}

for name, fun in DRAWS.items():

    @case(
        f"random/{name}",
        Exact(7, dtype="uint32"),
        transforms=("jit",),
        dtypes=("float32",),
        same_dtype=True,
        ulp=16,
    )
    def _(lax, seed, fun=fun):
        """A fresh key each trip; bits are equal on every backend."""

        def step(key, _):
            key, sub = jax.random.split(key)
            return key, fun(sub)

        key, draws = lax.scan(step, jax.random.key(seed), None, length=3)
        return draws, jax.random.key_data(key)


@case(
    "random/fold-in-the-index",
    Exact(7, dtype="uint32"),
    transforms=("jit",),
    dtypes=("float32",),
    same_dtype=True,
)
def _(lax, seed):
    key = jax.random.key(seed)
    return lax.fori_loop(
        0,
        4,
        lambda i, s: s + jax.random.randint(jax.random.fold_in(key, i), (), 0, 1000, jnp.int32),
        jnp.int32(0),
    )


@case(
    "random/metropolis",
    Exact(3, dtype="uint32"),
    Rand((), -0.5, 0.5, dtype="float64"),
    transforms=("jit",),
    dtypes=("float64",),
    ulp=64,
)
def _(lax, seed, x):
    """A Markov chain: every accept decision must fall the same way."""

    def step(s, key):
        x, n = s
        a, b = jax.random.split(key)
        y = x + jax.random.normal(a, (), x.dtype)
        take = jnp.log(jax.random.uniform(b, (), x.dtype)) < 0.5 * (x * x - y * y)
        return (jnp.where(take, y, x), n + take), x

    (x, n), xs = lax.scan(step, (x, 0), jax.random.split(jax.random.key(seed), 20))
    return x, n, xs
