"""Programs that are dropped release their memory: constants, kernels, arrays."""

import gc
import os
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from quabla_jax.compat import lax

mx = pytest.importorskip("mlx.core", reason="runs on MLX")

from quabla_jax import mlx_backend  # noqa: E402

CONSTANT = 2**17
"""Entries of the array that each program closes over: 1 MB of float64."""


def resident():
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def compiled(k):
    """A loop, or its gradient, over a constant of 1 MB, that no other k has."""
    table = jnp.asarray(np.full(CONSTANT, 1.0 + k / 1000))

    def f(x):
        return lax.fori_loop(0, 3 + k % 5, lambda i, c: jnp.sin(c) * (1 + k / 7) + table[: c.size] + i, x).sum()

    return mlx_backend.jit(jax.value_and_grad(f) if k % 2 else f)


def compiled_and_dropped(first, last):
    for k in range(first, last):
        compiled(k)(jnp.ones(1 + k % 40))


def test_a_dropped_program_is_freed():
    """Also one that has run and was lowered by hand: nothing but its owner holds it."""
    x = jnp.ones(3)
    held = [compiled(3), mlx_backend.lower(lambda x: jnp.sin(x) * jnp.full(1000, 2.0)[:3], x)]
    np.testing.assert_allclose(held[1].compile()(x), 2 * np.sin(np.ones(3)), rtol=1e-6)
    held[0](x)
    watched = [weakref.ref(held[0]), weakref.ref(held[1]), weakref.ref(held[1].plan)]
    del held
    gc.collect()
    assert [w() for w in watched] == [None] * 3


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="reads /proc/self/statm")
def test_a_thousand_programs_release_their_memory():
    """1 GB of constants goes by; what stays is less than 100 kB a program, JAX's own traces of new shapes."""
    compiled_and_dropped(0, 100)
    before = resident()
    compiled_and_dropped(100, 1100)
    grown = resident() - before
    print(f"\n1,000 programs on MLX: {grown / 1e6:.0f} MB more, MLX holds {mx.get_active_memory()} bytes")
    assert grown < 100e6
    assert mx.get_active_memory() < 4e6
