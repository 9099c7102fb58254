"""8-bit floats and integers of 2 and 4 bits on MLX: every rounding, what moves, and what is refused."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import lax

pytest.importorskip("mlx.core", reason="MLX is not installed")

from quabla_jax import lowering, mlx_backend
from quabla_jax.errors import UnsupportedOperationError
from quabla_jax.lowering.narrow import FORMATS, WIDTHS

FLOATS = pytest.mark.parametrize("dtype", list(FORMATS), ids=str)
INTS = pytest.mark.parametrize("dtype", list(WIDTHS), ids=str)


def same(got, expected):
    got, expected = np.asarray(got), np.asarray(expected)
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
    got, expected = got.astype(np.float64), expected.astype(np.float64)
    np.testing.assert_array_equal(got, expected)
    real = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(got[real]), np.signbit(expected[real]))


def everything(dtype):
    """All values of a 16-bit float dtype."""
    return np.arange(1 << 16, dtype=np.uint16).view(dtype)


@FLOATS
@pytest.mark.parametrize("source", [np.float16, ml_dtypes.bfloat16], ids=["float16", "bfloat16"])
def test_every_half_rounds_as_in_numpy(dtype, source):
    x = everything(source)
    with np.errstate(all="ignore"):
        expected = x.astype(dtype)
    narrowed = mlx_backend.jit(lambda x: (x.astype(dtype), x.astype(dtype).astype(jnp.float32)))
    for _ in range(3):  # op by op, and compiled
        got, back = narrowed(x)
        same(got, expected)
        same(back, expected.astype(np.float32))


@FLOATS
def test_float64_is_rounded_once(dtype):
    """Just above and below the middle of two neighbours, nearer than a float32 can tell."""
    values = np.unique(np.abs(np.arange(256, dtype=np.uint8).view(dtype).astype(np.float64)))
    values = values[np.isfinite(values)]
    low, high = values[:-1], values[1:]
    middle = (low + high) / 2
    x = np.concatenate([middle * (1 + 2.0**-45), middle * (1 - 2.0**-45), -middle * (1 + 2.0**-45), values])
    expected = np.concatenate([high, low, -high, values]).astype(dtype)
    fun = lambda x: x.astype(dtype)
    same(mlx_backend.jit(fun)(x), expected)
    same(lowering.run_on_numpy(lowering.lower(fun, x), x)[0], expected)


@FLOATS
def test_arithmetic_rounds_each_result(dtype):
    x = np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32)
    a, b = jnp.asarray(x).astype(dtype), jnp.asarray(x.T * 2).astype(dtype)
    fun = lambda a, b: (a + b, a * b, -a, jnp.maximum(a, b), a > b, jnp.where(a > b, a, b), a.astype(jnp.int32))
    for got, expected in zip(mlx_backend.jit(fun)(a, b), jax.jit(fun)(a, b), strict=True):
        same(got, expected)


@FLOATS
def test_quantised_product_and_its_loop(dtype):
    """Small numbers, whose products every format holds: the loop keeps what JAX keeps, bit for bit."""
    x = jnp.asarray(np.random.default_rng(1).integers(-3, 4, (4, 6)), jnp.float32)
    weights = jnp.stack([jnp.eye(6, dtype=jnp.float32) * k for k in (1, 2)])

    def layer(x, w):
        scale = jnp.max(jnp.abs(w)) / 2
        return lax.dot((x / 4).astype(dtype), (w / scale).astype(dtype), preferred_element_type=jnp.float32) * scale

    def fun(x):
        return lax.scan(lambda c, w: (layer(c, w), c.astype(dtype)), x, weights)

    for got, expected in zip(mlx_backend.jit(fun)(x), jax.jit(fun)(x), strict=True):
        same(got, expected)


@INTS
def test_small_integers_are_stored(dtype):
    """Casts wrap integers and saturate floats, as XLA's do; values are moved, compared and widened."""
    i = np.arange(-40, 40, dtype=np.int32)
    x = np.array([-100, -8.5, -8, -1.5, -0.5, 0.5, 1.5, 7.5, 8.5, 100, np.inf, -np.inf, np.nan], np.float32)
    fun = lambda i, x: (i.astype(dtype), x.astype(dtype), i.astype(dtype).astype(jnp.int32), (i > 0).astype(dtype))
    for run in (mlx_backend.jit(fun), lambda *a: lowering.run_on_numpy(lowering.lower(fun, *a), *a)):
        for got, expected in zip(run(i, x), jax.jit(fun)(i, x), strict=True):
            same(got, expected)
    q = jnp.asarray(i).astype(dtype)
    move = lambda a: (a.reshape(8, 10).T, a[::-1], a[2:9:3], a > a[::-1], jnp.where(a > a[::-1], a, a[::-1]))
    for got, expected in zip(mlx_backend.jit(move)(q), jax.jit(move)(q), strict=True):
        same(got, expected)


def test_what_is_refused_names_the_dtype():
    q = jnp.arange(4).astype(jnp.int4)
    with pytest.raises(UnsupportedOperationError, match="no arithmetic of int4; cast to int8 first"):
        mlx_backend.jit(lambda a: a + a)(q)
    with pytest.raises(UnsupportedOperationError, match="whose bits are others"):
        mlx_backend.jit(lambda a: lax.bitcast_convert_type(a, jnp.uint8))(jnp.ones(3, jnp.float8_e5m2))
    with pytest.raises(UnsupportedOperationError, match="no dtype float8_e8m0fnu"):
        mlx_backend.jit(lambda a: a.astype(jnp.float8_e8m0fnu))(jnp.ones(3))
