"""JAX's public functions on the NumPy oracle, one by one, against jax.jit; and that none of them is left out."""

import importlib
import inspect
import pathlib
import re

import jax
import jax_functions
import numpy as np
import pytest

from quabla_jax import lowering

LEAST = {
    "elementwise": 400, "reductions": 120, "windows": 20, "fourier": 20, "shapes": 35, "indexing": 30, "sorting": 12, "products": 12,
    "linalg": 50, "control": 18, "random": 40, "distributions": 100,
}  # fmt: skip
"""Comparisons that a family has at least, whatever the release of JAX."""

NAN_OF_XLA = ("jnp.max[[]nan]", "jnp.min[[]nan]")
"""Compiled, XLA takes 0 * inf for 0 in the gradient of a maximum that is NaN; eagerly JAX gives NaN, and so does lowering."""

HALVES = ("*[[]half]",)
"""XLA rounds sums of halves where it likes."""


def on_numpy(function, args):
    program = lowering.lower(function, *args)
    return [np.asarray(x) for x in lowering.run_on_numpy(program, *jax_functions.leaves_of(args))]


@pytest.mark.slow
@pytest.mark.parametrize("double", [False, True], ids=["float32", "float64"])
@pytest.mark.parametrize("family", LEAST)
def test_values(family, double):
    with jax.enable_x64(double):
        compared, lines = jax_functions.disagreements(on_numpy, [family])
    assert compared >= LEAST[family] and not lines, lines


@pytest.mark.slow
@pytest.mark.parametrize("family", [f for f in LEAST if f != "random"])
def test_gradients(family):
    with jax.enable_x64(False):
        compared, lines = jax_functions.disagreements(on_numpy, [family], gradients=True, loose=NAN_OF_XLA + HALVES)
    assert compared >= LEAST[family] // 2 and not lines, lines


@pytest.mark.parametrize("family", ["windows", "sorting", "products"])
def test_some_values_in_every_run(family):
    with jax.enable_x64(False):
        compared, lines = jax_functions.disagreements(on_numpy, [family])
    assert compared >= LEAST[family] and not lines, lines


NAMESPACES = (
    "jax.numpy jax.numpy.linalg jax.numpy.fft jax.lax jax.lax.linalg jax.nn jax.nn.initializers jax.random jax.scipy.special "
    "jax.scipy.linalg jax.scipy.signal jax.scipy.fft jax.scipy.ndimage jax.scipy.integrate jax.scipy.optimize jax.scipy.cluster.vq "
    "jax.scipy.sparse.linalg jax.image jax.ops jax.scipy.stats"
).split()

NOT_ARRAY_FUNCTIONS = (
    "array_repr array_str mask_indices broadcast_shapes can_cast einsum_path from_dlpack frombuffer fromfile fromiter fromstring get_printoptions "
    "isdtype isrealobj isscalar iterable load ndim printoptions promote_types result_type save savez set_printoptions "
    "ConvGeneralDilatedDimensionNumbers DotDimensionNumbers PrecisionLike axis_size broadcast_to_rank conv_dimension_numbers "
    "conv_general_permutations conv_general_shape_tuple conv_shape_tuple conv_transpose_shape_tuple padtype_to_pads "
    "reduce_window_shape_tuple shape_as_value get_scaled_dot_general_config variance_scaling key_dtype key_impl dce_sink stage"
).split()

ELSEWHERE = {
    "the collectives of test_lowering_collectives.py": "pbroadcast pcast pmin precv psend pshuffle pswapaxes ragged_all_to_all",
    "refused: see test_lowering_programs.py": "hessenberg schur tridiagonal funm rsf2csf solve_sylvester sqrtm rng_bit_generator rng_uniform",
    "tokens and shardings, which mean nothing here": "after_all create_token with_sharding_constraint",
    "made for accelerators' low-precision units": "scaled_dot scaled_dot_general scaled_matmul",
    "lax.ragged_dot is this with fixed numbers": "ragged_dot_general",
}


def test_no_public_function_is_left_out():
    if not jax.__version__.startswith("0.10."):
        pytest.skip("the list was made for JAX 0.10")
    sources = pathlib.Path(jax_functions.__file__).parent.glob("jax_functions*.py")
    known = set(NOT_ARRAY_FUNCTIONS) | {name for names in ELSEWHERE.values() for name in names.split()}
    for source in sources:
        known |= set(re.findall(r"\w+", source.read_text("utf-8")))
    for space in NAMESPACES:
        module = importlib.import_module(space)
        public = {
            n
            for n in dir(module)
            if n[0] != "_" and callable(getattr(module, n)) and not inspect.isclass(getattr(module, n))
        }
        assert not public - known, space
