"""Primitives that JAX itself defines in Python (mlir.lower_fun): the definition is traced again."""

from __future__ import annotations

from ..emitter import Emitter
from ..program import Value
from . import Inline, register


def _by_jax(e: Emitter, eqn, *inputs: Value) -> Inline:
    from ..interpreter import expand

    return expand(e, eqn, list(inputs))


register(
    "random_gamma_p igamma_p igammac_p igamma_grad_a_p regularized_incomplete_beta_p tridiagonal_solve_p "
    "ragged_dot_general_p cholesky_update_p symmetric_product_p lu_pivots_to_permutation_p ormqr_p linear_call_p "
    "threefry4x32 philox2x32 philox4x32 scaled_dot_p run_state_p custom_vmap_call call_hi_primitive_p",
    "expanded",
    _by_jax,
    keys=True,
)
