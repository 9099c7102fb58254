"""Every elementwise operation inside a loop body, on ordinary and on special values."""

import jax
import jax.numpy as jnp
from jax import lax as xla

from ..case import VALUES, Exact, Rand, case

NAN, INF = float("nan"), float("inf")
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.5, INF, -INF, NAN, 1e-30, -1e30]
LIMITS32 = [0, 1, -1, 7, -7, 2147483647, -2147483648, 65536]
COMPILED = ("jit", "vmap")

# name: (function, low, high) on which it is smooth
SMOOTH_OPS = {
    "neg": (lambda x: -x, -2, 2),
    "abs": (jnp.abs, 0.2, 2),
    "sign": (jnp.sign, -2, 2),
    "exp": (jnp.exp, -3, 3),
    "exp2": (jnp.exp2, -3, 3),
    "expm1": (jnp.expm1, -1, 1),
    "log": (jnp.log, 0.1, 5),
    "log1p": (jnp.log1p, -0.5, 2),
    "sqrt": (jnp.sqrt, 0.1, 5),
    "rsqrt": (xla.rsqrt, 0.1, 5),
    "cbrt": (jnp.cbrt, 0.1, 5),
    "sin": (jnp.sin, -6, 6),
    "cos": (jnp.cos, -6, 6),
    "tan": (jnp.tan, -1.2, 1.2),
    "asin": (jnp.arcsin, -0.9, 0.9),
    "acos": (jnp.arccos, -0.9, 0.9),
    "atan": (jnp.arctan, -3, 3),
    "sinh": (jnp.sinh, -2, 2),
    "cosh": (jnp.cosh, -2, 2),
    "tanh": (jnp.tanh, -2, 2),
    "asinh": (jnp.arcsinh, -2, 2),
    "acosh": (jnp.arccosh, 1.2, 4),
    "atanh": (jnp.arctanh, -0.9, 0.9),
    "logistic": (jax.nn.sigmoid, -4, 4),
    "erf": (jax.scipy.special.erf, -2, 2),
    "erfc": (jax.scipy.special.erfc, -2, 2),
    "erf-inv": (jax.scipy.special.erfinv, -0.9, 0.9),
    "lgamma": (jax.scipy.special.gammaln, 0.5, 4),
    "digamma": (jax.scipy.special.digamma, 0.5, 4),
    "square": (jnp.square, -2, 2),
    "cube": (lambda x: x**3, -2, 2),
    "reciprocal": (lambda x: 1 / x, 0.2, 2),
    "softplus": (jax.nn.softplus, -4, 4),
    "gelu": (jax.nn.gelu, -3, 3),
}
LOOSE = {
    "gelu": 512,
    "erf-inv": 512,
    "digamma": 512,
    "lgamma": 256,
    "erfc": 512,
    "exp2": 512,
    "log1p": 1024,
    "tan": 64,
}

for name, (fun, low, high) in SMOOTH_OPS.items():

    @case(
        f"elementwise/{name}",
        Rand((6,), low, high),
        transforms=("jit", "jvp", "vmap_grad"),
        ulp=LOOSE.get(name, 32),
    )
    def _(lax, x, fun=fun):
        """Once a trip, on the input, so that no error feeds back."""
        return lax.scan(lambda c, v: (c + 0.5, fun(v)), jnp.zeros((), x.dtype), x)

    if name not in ("lgamma", "digamma"):

        @case(
            f"special/{name}",
            Exact(SPECIAL),
            transforms=("jit",),
            ulp=LOOSE.get(name, 32),
            same_dtype=True,
            signed_zeros=True,
        )
        def _(lax, x, fun=fun):
            """NaN, infinities, signed zeros and extremes."""
            return lax.fori_loop(0, 1, lambda i, s: fun(s), x)


STEPS = {
    "floor": jnp.floor,
    "ceil": jnp.ceil,
    "round": jnp.round,
    "is-finite": jnp.isfinite,
    "is-nan": jnp.isnan,
}

for name, fun in STEPS.items():

    @case(
        f"special/{name}",
        Exact([*SPECIAL, 1.5, 2.5, -0.5, -1.5, 1e15 + 0.5]),
        transforms=("jit",),
        same_dtype=True,
        signed_zeros=True,
    )
    def _(lax, x, fun=fun):
        return lax.scan(lambda c, v: (c, fun(v)), 0, x)[1]


PAIRS_A = [1.0, -1.0, 0.0, -0.0, INF, -INF, NAN, 5.5, -5.5, 2.0, 0.0, NAN]
PAIRS_B = [0.0, -0.0, 0.0, 1.0, INF, 2.0, 1.0, 2.0, 2.0, -3.0, -0.0, NAN]
BINARY = {
    "add": jnp.add,
    "sub": jnp.subtract,
    "mul": jnp.multiply,
    "div": jnp.divide,
    "rem": xla.rem,
    "mod": jnp.mod,
    "pow": jnp.power,
    "atan2": jnp.arctan2,
    "max": jnp.maximum,
    "min": jnp.minimum,
    "eq": jnp.equal,
    "ne": jnp.not_equal,
    "lt": jnp.less,
    "le": jnp.less_equal,
    "gt": jnp.greater,
    "ge": jnp.greater_equal,
    "nextafter": jnp.nextafter,
    "hypot": jnp.hypot,
    "logaddexp": jnp.logaddexp,
}

for name, fun in BINARY.items():

    @case(
        f"special/{name}",
        Exact(PAIRS_A),
        Exact(PAIRS_B),
        transforms=("jit",),
        same_dtype=True,
        signed_zeros=True,
        ulp=64,
    )
    def _(lax, a, b, fun=fun):
        return lax.scan(lambda c, ab: (c, fun(*ab)), 0, (a, b))[1]


INTEGER = {
    "add": jnp.add,
    "sub": jnp.subtract,
    "mul": jnp.multiply,
    "div": xla.div,
    "rem": xla.rem,
    "floor-div": jnp.floor_divide,
    "mod": jnp.mod,
    "and": jnp.bitwise_and,
    "or": jnp.bitwise_or,
    "xor": jnp.bitwise_xor,
    "max": jnp.maximum,
    "min": jnp.minimum,
    "lt": jnp.less,
    "shift-left": xla.shift_left,
    "shift-right-logical": xla.shift_right_logical,
    "shift-right-arithmetic": xla.shift_right_arithmetic,
}
LIMITS = {
    "int32": ([*LIMITS32, 5, -5], [3, -3, -1, 0, 31, 32, -1, 40, 0, 2]),
    "int64": ([0, 1, -1, 7, -7, 2**63 - 1, -(2**63), 2**40], [3, -3, -1, 0, 63, 64, -1, 70]),
    "uint32": ([0, 1, 7, 2**31, 2**32 - 1, 123456789], [3, 0, 31, 32, 2, 40]),
    "int8": ([0, 1, -1, 7, -7, 127, -128, 100], [3, -3, -1, 0, 7, 8, -1, 100]),
    "uint8": ([0, 1, 7, 128, 255, 200], [3, 0, 7, 8, 2, 100]),
}

for dtype, (left, right) in LIMITS.items():
    for name, fun in INTEGER.items():

        @case(
            f"integer/{name}-{dtype}",
            Exact(left, dtype=dtype),
            Exact(right, dtype=dtype),
            transforms=("jit",),
            dtypes=(dtype,),
        )
        def _(lax, a, b, fun=fun):
            """Wrap-around, division by zero, INT_MIN / -1, shifts by the width and beyond: XLA's answers."""
            return lax.scan(lambda c, ab: (c, fun(*ab)), 0, (a, b))[1]

    @case(f"integer/bits-{dtype}", Exact(left, dtype=dtype), transforms=("jit",), dtypes=(dtype,))
    def _(lax, a):
        return lax.scan(lambda c, v: (c, (xla.population_count(v), xla.clz(v), ~v, -v)), 0, a)[1]


CASTS = [0.0, -0.0, 1.5, -1.5, 2.5, 300.7, -300.7, 3e9, -3e9, 1e20, -1e20, INF, -INF, NAN]

for target in ("int8", "int32", "int64", "uint8", "uint32", "bool", "float16", "bfloat16", "float32"):

    @case(f"cast/float-to-{target}", Exact(CASTS), transforms=("jit",), same_dtype=True)
    def _(lax, x, target=target):
        """Truncates, saturates, NaN becomes 0."""
        return lax.scan(lambda c, v: (c, v.astype(target)), 0, x)[1]

    @case(
        f"cast/int32-to-{target}",
        Exact([0, 1, -1, 127, 128, 255, 256, -129, 2147483647, -2147483648], dtype="int32"),
        transforms=("jit",),
        dtypes=("int32",),
    )
    def _(lax, x, target=target):
        """Integers wrap."""
        return lax.scan(lambda c, v: (c, v.astype(target)), 0, x)[1]


for dtype in ("float16", "bfloat16", "float32", "float64"):

    @case(
        f"dtype/arithmetic-{dtype}",
        Rand((4,), 0.2, 0.9),
        Rand((4,), 0.2, 0.9),
        transforms=VALUES,
        dtypes=(dtype,),
        same_dtype=True,
        ulp=8,
    )
    def _(lax, a, b):
        return lax.fori_loop(0, 3, lambda i, s: (s * a + b) / (a + s), b)

    @case(
        f"dtype/gradient-{dtype}",
        Rand((4,), 0.2, 0.9),
        transforms=("grad", "vmap_grad"),
        dtypes=(dtype,),
        same_dtype=True,
        ulp=32,
    )
    def _(lax, a):
        return lax.scan(lambda c, v: (c * v + v, c), a[0], a)


for dtype in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"):

    @case(f"dtype/carried-{dtype}", Exact([1, 0, 1, 5, 9], dtype=dtype), transforms=("jit",), dtypes=(dtype,))
    def _(lax, xs):
        """Every dtype rides in a carry, in xs and in ys, through a branch."""

        def step(c, x):
            c = lax.cond(x > 0, lambda c: jnp.where(x > c, x, c), lambda c: c, c)
            return c, (c, x == c)

        c, (a, b) = lax.scan(step, xs[0], xs)
        return c, a, b


@case(
    "dtype/complex64",
    Rand((3,), 0.2, 0.9, dtype="float32"),
    transforms=("jit",),
    dtypes=("float32",),
    same_dtype=True,
    ulp=64,
)
def _(lax, x):
    z = lax.fori_loop(0, 4, lambda i, z: jnp.exp(z * 0.3j) + z * jnp.conj(z), x + 0.5j * x)
    return z, jnp.abs(z), jnp.angle(z)


@case("dtype/subnormals", Exact([5e-324, 1e-310, -1e-310, 2.3e-308]), transforms=("jit",), dtypes=("float64",))
def _(lax, x):
    """Subnormal float64 values come through a loop; what arithmetic does with them is the processor's setting, so only
    the values themselves are carried."""
    return lax.fori_loop(0, 3, lambda i, s: jnp.where(i > 5, s * 2, s), x)
