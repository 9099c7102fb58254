"""Runs one core op on MLX's CPU device, and draws awkward inputs for it."""

import ml_dtypes
import mlx.core as mx
import numpy as np

from quabla_jax.lowering import Op, Value
from quabla_jax.lowering.infer import infer
from quabla_jax.mlx_backend import convert, ops
from quabla_jax.mlx_backend.target import Context, Target

CPU = Target(mx.cpu)
BF16 = np.dtype(ml_dtypes.bfloat16)
BOOL, C64 = np.dtype(bool), np.dtype(np.complex64)
INTS = [np.dtype(f"{k}{w}") for k in ("int", "uint") for w in (8, 16, 32, 64)]
FLOATS = [np.dtype(np.float16), BF16, np.dtype(np.float32), np.dtype(np.float64)]
ALL = [*INTS, *FLOATS, BOOL, C64]
IDS = [d.name for d in ALL]


def run_op(name, *arrays, **params):
    """The op's results as NumPy arrays, on MLX."""
    values = tuple(Value(a.shape, a.dtype) for a in arrays)
    specs = infer(name, [v.shape for v in values], [v.dtype for v in values], params)
    outputs = tuple(Value(tuple(shape), np.dtype(dtype)) for shape, dtype in specs)
    node = Op(name, values, params, outputs)
    assert ops.supports(node, CPU) is None
    found = ops.run_op(Context(CPU), node, [convert.to_mx(a, a.dtype) for a in arrays])
    mx.eval(*found)
    results = [np.asarray(convert.from_mx(x, v.dtype)) for x, v in zip(found, outputs, strict=True)]
    for result, value in zip(results, outputs):
        assert result.shape == value.shape and result.dtype == value.dtype
    return results


def draw(rng, dtype, shape):
    """Values of a dtype with its corners among them: extremes, zeros of both signs, inf and NaN, small numbers."""
    if dtype == BOOL:
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        anywhere = rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)
        small = rng.integers(max(info.min, -4), 5, shape).astype(dtype)
        corner = rng.choice(np.array([info.min, info.max, 0, 1, info.min + 1], dtype=dtype), shape)
        pick = rng.integers(0, 3, shape)
        return np.where(pick == 0, anywhere, np.where(pick == 1, small, corner)).astype(dtype)
    if dtype == C64:
        return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(C64)
    usual = rng.normal(size=shape) * 10.0 ** rng.integers(-2, 3, shape)
    corner = rng.choice(
        np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 2.5, -2.5, 300, -300, 3e9, -3e9, 1e20]), shape
    )
    with np.errstate(over="ignore"):
        return np.where(rng.random(shape) < 0.3, corner, usual).astype(dtype)


def tame(values):
    """The same draw without what makes sums and products ill-conditioned."""
    if values.dtype in FLOATS:
        finite = np.nan_to_num(values.astype(np.float64), nan=1.0, posinf=2.0, neginf=-2.0)
        return np.clip(finite, -3, 3).astype(values.dtype)
    return values


def assert_same(got, expected, tolerance=0.0, what=""):
    """Equal, NaN for NaN; with a tolerance, close. Zeros need the same sign where the tolerance is 0."""
    expected = np.asarray(expected).astype(got.dtype)
    assert got.shape == expected.shape, what
    if got.dtype.kind in "biu":
        np.testing.assert_array_equal(got, expected, err_msg=what)
        return
    wide = np.complex128 if got.dtype.kind == "c" else np.float64
    got, expected = got.astype(wide), expected.astype(wide)
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=10 * tolerance, equal_nan=True, err_msg=what)
    if tolerance == 0 and wide is np.float64:
        real = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(got[real]), np.signbit(expected[real]), err_msg=what)
