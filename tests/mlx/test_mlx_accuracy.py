"""Elementwise functions against mpmath: 4 ulp, or JAX's own error where that is larger."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

pytest.importorskip("mlx.core", reason="MLX is not installed")

from mlx_helpers import BF16, FLOATS, run_op

from quabla_jax import mlx_backend

mp = mpmath.mp
FUNCTIONS = {
    "exp": (-87, 88, mpmath.exp),
    "expm1": (-20, 80, mpmath.expm1),
    "log": (1e-30, 100, mpmath.log),
    "log1p": (-0.99, 100, mpmath.log1p),
    "sqrt": (0, 100, mpmath.sqrt),
    "rsqrt": (1e-10, 100, lambda x: 1 / mpmath.sqrt(x)),
    "cbrt": (-100, 100, lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x))),
    "sin": (-1e5, 1e5, mpmath.sin),
    "cos": (-1e5, 1e5, mpmath.cos),
    "tan": (-1e4, 1e4, mpmath.tan),
    "asin": (-1, 1, mpmath.asin),
    "acos": (-1, 1, mpmath.acos),
    "atan": (-50, 50, mpmath.atan),
    "sinh": (-80, 80, mpmath.sinh),
    "cosh": (-80, 80, mpmath.cosh),
    "tanh": (-10, 10, mpmath.tanh),
    "asinh": (-100, 100, mpmath.asinh),
    "acosh": (1, 100, mpmath.acosh),
    "atanh": (-0.999, 0.999, mpmath.atanh),
    "logistic": (-80, 80, lambda x: 1 / (1 + mpmath.exp(-x))),
    "erf": (-4, 4, mpmath.erf),
    "erfc": (-5, 9, mpmath.erfc),
    "erf_inv": (-1, 1, mpmath.erfinv),
    "lgamma": (-5, 50, lambda x: mpmath.log(abs(mpmath.gamma(x)))),
    "digamma": (-5, 50, mpmath.digamma),
}


def ulps(got, points, exact, dtype):
    """The largest error in units of the last place, away from results that the dtype cannot hold."""
    worst = 0.0
    for x, g in zip(points, got):
        r = exact(mpmath.mpf(float(x)))
        if r == 0 or not mpmath.isfinite(r) or abs(r) < np.finfo(dtype).tiny:
            continue
        worst = max(worst, float(abs(mpmath.mpf(float(g)) - r) / mpmath.mpf(float(np.spacing(dtype(abs(float(r))))))))
    return worst


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_within_four_ulp(name, dtype):
    low, high, exact = FUNCTIONS[name]
    rng = np.random.default_rng(3)
    points = rng.uniform(low, high, 150)
    if low <= 0 <= high:
        points = np.concatenate([points, rng.uniform(max(low, -1e-2), min(high, 1e-2), 40)])
    if name in ("sin", "cos", "tan"):  # next to the zeros and the poles
        points = np.concatenate([points, rng.integers(-6000, 6000, 80) * (np.pi / 2)])
    if name == "erf_inv":
        points = np.concatenate([points, 1 - 10.0 ** -rng.uniform(1, 7, 40)])
    points = points.astype(dtype)
    with mpmath.workdps(40):
        ours = ulps(run_op(name, points)[0], points, exact, dtype)
        theirs = ulps(np.asarray(getattr(jax.lax, name)(points)), points, exact, dtype) if ours > 4 else 0.0
    assert ours <= max(4.0, theirs), f"{name} {ours:.1f} ulp, JAX {theirs:.1f}"


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_huge_angles(name):
    points = np.array([1e7, 3.3e7, 1e10, 1e30, 3e38, -8e6, 8388607.5], np.float32)
    exact = getattr(mpmath, name)
    with mpmath.workdps(80):
        assert ulps(run_op(name, points)[0], points, exact, np.float32) <= 1


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_special_values(name, dtype):
    """Zeros of both signs, infinities, NaN and arguments out of the domain give what JAX gives."""
    with np.errstate(over="ignore"):
        x = np.array(
            [0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 0.5, -0.5, 2, -2, 100, -100, 1000, -1000, 1e30]
        ).astype(dtype)
    got = run_op(name, x)[0].astype(np.float64)
    expected = np.asarray(getattr(jax.lax, name)(x)).astype(np.float64)
    coarse = 3e-2 if dtype in (BF16, np.float16) else 1e-5
    np.testing.assert_allclose(got, expected, rtol=coarse, atol=1e-6, equal_nan=True)
    settled = ~np.isnan(expected) & (np.abs(expected) != 0) | (x == 0) & (expected == 0)
    np.testing.assert_array_equal(np.signbit(got[settled]), np.signbit(expected[settled]))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_cube_roots_of_extremes(dtype):
    x = np.array([np.finfo(dtype).max, -np.finfo(dtype).max, np.finfo(dtype).tiny], dtype)
    np.testing.assert_allclose(run_op("cbrt", x)[0], np.cbrt(x), rtol=4 * np.finfo(dtype).eps)


def test_power_and_angle_corners():
    x = np.array([0.0, -1.0, np.nan, 2.0, -8.0, np.inf, -np.inf, 0.0, 5.0], np.float64)
    y = np.array([0.0, np.inf, 0.0, np.nan, 1 / 3, -1.0, 3.0, -2.0, 0.5], np.float64)
    np.testing.assert_allclose(run_op("pow", x, y)[0], np.asarray(jax.lax.pow(x, y)), rtol=1e-15)
    np.testing.assert_allclose(run_op("atan2", x, y)[0], np.asarray(jax.lax.atan2(x, y)), rtol=1e-15)


PARTS = [0.0, -0.0, 1.0, -2.0, np.inf, -np.inf, np.nan]
COMPLEX = np.array([complex(a, b) for a in PARTS for b in PARTS], np.complex64)
COMPLEX_FUNCTIONS = {
    **{n: getattr(jnp, n) for n in "abs exp exp2 log log2 log10 sqrt square sin cos sinh cosh expm1".split()},
    **{n: getattr(jnp, n) for n in "arcsin arccos arcsinh arccosh".split()},
    "logistic": jax.nn.sigmoid,
    "cube": lambda z: z**3,
    "product": lambda z: z[:, None] * z,
    "to the power 0": lambda z: z ** (0 * COMPLEX[8]),
    "of 1": lambda z: (0 * COMPLEX[8] + 1) ** z,
    "of 0": lambda z: jnp.zeros(2, z.dtype) ** jnp.array([1 + 2.5j, 2.0]),
}


@pytest.mark.parametrize("name", COMPLEX_FUNCTIONS)
def test_complex_special_values(name):
    """XLA's products and functions of infinities and NaN are not those of C's Annex G; nor is a negative zero at a cut."""
    with jax.enable_x64(False):
        z, function = COMPLEX, COMPLEX_FUNCTIONS[name]
        if name.startswith("arc"):
            z = z[np.isfinite(z)]
        expected, got = (np.asarray(j(function)(z)) for j in (jax.jit, mlx_backend.jit))
    np.testing.assert_allclose(got.real, expected.real, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(got.imag, expected.imag, rtol=1e-5, atol=1e-6)


def test_a_fractal_that_overflows():
    """Points that leave end as NaN, not as infinities; so many steps are counted inside."""

    def escape(c):
        step = lambda i, s: (s[0] * s[0] + c, s[1] + (jnp.abs(s[0]) <= 2))
        z, inside = jax.lax.fori_loop(0, 60, step, (0 * c, jnp.zeros(c.shape, jnp.int32)))
        return inside, jnp.isnan(z), jnp.abs(z) > 2

    with jax.enable_x64(False):
        c = (np.linspace(-2, 1, 9)[:, None] + 1j * np.linspace(-1.5, 1.5, 7)).astype(np.complex64)
        for got, expected in zip(mlx_backend.jit(escape)(c), jax.jit(escape)(c)):
            assert np.array_equal(got, expected)


@pytest.mark.parametrize("name", ["power", "product", "eigvals"])
def test_complex_numbers_in_a_compiled_kernel(name):
    """mx.compile writes a NaN that is part of a complex constant as a word which no compiler knows."""
    function = {
        "power": lambda x: (x + 1j) ** (0.5 + x),
        "product": lambda x: (x + 1j) * (x - 2j) + x,
        "eigvals": lambda x: jnp.linalg.eigvals(x) * 2,
    }[name]
    with jax.enable_x64(False):
        x = np.array([[1.0, 2], [3, 4]], np.float32)
        ours = mlx_backend.jit(function)
        for _ in range(4):
            got = ours(x)
        np.testing.assert_allclose(got, jax.jit(function)(x), rtol=1e-5)
