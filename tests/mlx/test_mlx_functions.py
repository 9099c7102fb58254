"""JAX's public functions on MLX, one by one, against jax.jit: values in both precisions, and gradients."""

import jax
import jax_functions
import pytest

pytest.importorskip("mlx.core", reason="MLX is not installed")

from quabla_jax import mlx_backend

FAMILIES = list(jax_functions.FAMILIES)


def on_mlx(function, args):
    return jax_functions.leaves_of(mlx_backend.jit(function)(*args))


def refused_for_its_dtype(line):
    return "cannot run on mlx: MLX has no dtype complex128" in line


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_values(family):
    with jax.enable_x64(False):
        compared, lines = jax_functions.disagreements(on_mlx, [family])
    assert compared > 10 and not lines, lines


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_values_with_float64_on(family):
    """Right, or refused because complex128 is in the way."""
    with jax.enable_x64(True):
        compared, lines = jax_functions.disagreements(on_mlx, [family])
    wrong = [line for line in lines if not refused_for_its_dtype(line)]
    assert not wrong and len(lines) < compared / 3, wrong


@pytest.mark.slow
@pytest.mark.parametrize("family", [f for f in FAMILIES if f != "random"])
def test_gradients(family):
    with jax.enable_x64(False):
        compared, lines = jax_functions.disagreements(
            on_mlx, [family], gradients=True, loose=("jnp.m??[[]nan]", "*[[]half]")
        )
    assert compared > 5 and not lines, lines


@pytest.mark.parametrize("family", ["sorting", "products"])
def test_some_values_in_every_run(family):
    with jax.enable_x64(False):
        compared, lines = jax_functions.disagreements(on_mlx, [family])
    assert compared > 10 and not lines, lines
