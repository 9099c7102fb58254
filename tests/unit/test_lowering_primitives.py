"""One primitive at a time: the lowered program on the NumPy oracle against jax.jit."""

import jax
import ml_dtypes
import numpy as np
import pytest
from lowering_cases import CLOSE, EXACT

from quabla_jax import lowering


def run_both(fun, arrays):
    expected = jax.tree.leaves(jax.jit(fun)(*arrays))
    got = lowering.run_on_numpy(lowering.lower(fun, *arrays), *arrays)
    for g, e in zip(got, expected, strict=True):
        e = np.asarray(e)
        assert (g.shape, g.dtype) == (e.shape, e.dtype)
        yield g, e


def flushed(x, tiny):
    """Subnormal numbers as zeros of their sign: XLA's CPU code may flush them, from one fusion to the next."""
    wide = x.astype(np.float64)
    return np.where(np.abs(wide) < tiny, np.copysign(0.0, wide), wide)


@pytest.mark.parametrize("name", EXACT)
def test_exact(name):
    for got, expected in run_both(*EXACT[name]):
        if got.dtype.kind in "fV":
            tiny = float(ml_dtypes.finfo(got.dtype).tiny)
            got, expected = flushed(got, tiny), flushed(expected, tiny)
            np.testing.assert_array_equal(np.signbit(got) & ~np.isnan(got), np.signbit(expected) & ~np.isnan(expected))
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("name", CLOSE)
def test_close(name):
    for got, expected in run_both(*CLOSE[name]):
        eps = np.finfo(got.dtype).eps if got.dtype.kind in "fc" else 2**-7
        kind = np.complex128 if got.dtype.kind == "c" else np.float64
        got, expected = got.astype(kind), expected.astype(kind)
        np.testing.assert_allclose(got, expected, rtol=200 * eps, atol=20 * eps)
