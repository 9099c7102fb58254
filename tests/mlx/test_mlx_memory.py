"""Reverse passes keep the engine's checkpoints: MLX's own peak memory follows the plan."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("mlx.core", reason="MLX is not installed")

import mlx.core as mx

from quabla_jax import mlx_backend
from quabla_jax.compat import lax


def peak_in_carries(length, width):
    """Peak memory of the gradient of a scan over a carry of `width` floats, over what was there before, in carries."""

    def loss(p, x):
        step = lambda c, _: (c - 0.001 * jnp.tanh(p * c), None)
        return jnp.sum(lax.scan(step, x, None, length=length, checkpoint="sqrt")[0] ** 2)

    grad = jax.grad(loss, (0, 1))
    p, x = jnp.float32(1.3), jnp.linspace(0, 1, width, dtype=jnp.float32)
    run = mlx_backend.lower(grad, p, x).compile()
    p_mx, x_mx = mx.array(1.3), mx.array(np.asarray(x))
    mx.eval(p_mx, x_mx)
    mx.clear_cache()
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    out = run(p_mx, x_mx)
    mx.eval(out)
    peak = (mx.get_peak_memory() - before) / (4 * width)
    for ours, theirs in zip(out, jax.jit(grad)(p, x)):
        np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), rtol=1e-4, atol=1e-5 * width)
    return peak


def test_gradient_of_a_scan_keeps_about_two_roots():
    assert peak_in_carries(900, 8000) <= 3 * 900**0.5


@pytest.mark.slow
def test_gradient_of_ten_thousand_steps():
    assert peak_in_carries(10_000, 4000) <= 300


def test_a_loop_holds_its_state_twice_at_most():
    """A large carry that is read and updated: the old one and the new, however long the chunk."""
    rows = 200
    fill = mlx_backend.jit(lambda x: jax.lax.fori_loop(0, rows, lambda i, c: c.at[i].set(c[i] + i), x))
    x = mx.zeros((rows, 2000)) + 0
    mx.eval(x)
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    out = fill(x)
    mx.eval(out)
    assert mx.get_peak_memory() - before < 2.5 * x.nbytes
    assert np.asarray(out, np.float64).sum() == 2000 * rows * (rows - 1) / 2
