"""Primitives that no target can run, and why."""

from __future__ import annotations

from . import collectives, refuse
from .host import REASON

refuse("inspect_sharding_p check_p", REASON)
refuse("ffi_call_p custom_partitioning_p cudnn_fusion_p", "it calls a compiled function made for XLA")
refuse("call_exported_p", "it holds StableHLO, not a jaxpr")
refuse("schur_p hessenberg_p tridiagonal_p geqp3_p", "no target has this factorisation")
refuse(
    "rng_bit_generator_p rng_uniform_p",
    "its bits are XLA's own and differ from device to device; use threefry keys, whose bits are the same everywhere",
)
refuse(
    "psend_p precv_p pbroadcast_p all_gather_reduced_p ragged_all_to_all_p unreduced_psum_p unreduced_pmax_p unreduced_pmin_p pbroadcast_dynamic_p "
    "unreduced_reduce_scatter_p all_gather_start_p all_gather_reduced_start_p psum_start_p psum_invariant_start_p "
    "unreduced_psum_start_p reduce_scatter_start_p unreduced_reduce_scatter_start_p all_to_all_start_p "
    "pbroadcast_start_p ppermute_start_p all_gather_done_p psum_done_p reduce_scatter_done_p all_to_all_done_p "
    "pbroadcast_done_p ppermute_done_p",
    collectives.REASON,
)
refuse("dim_as_value_p dimension_size_p shape_assertion_p", "a lowered program has static shapes")
refuse(
    "_dot_product_attention_fwd_p _dot_product_attention_bwd_p dot_product_attention_fwd_wrapper "
    "dot_product_attention_bwd_wrapper _dot_product_attention_fp8_fwd_p _dot_product_attention_fp8_bwd_p "
    "dot_product_attention_fp8_fwd_wrapper dot_product_attention_fp8_bwd_wrapper _scaled_matmul_p scaled_matmul_wrapper",
    "it is a kernel of cuDNN",
)
refuse("core_map", "it is a kernel of Pallas")
refuse("select_and_scatter_p", "JAX makes it only while it lowers select_and_scatter_add, which has a rule")
refuse("create_linear unreachable_p", "it marks a place that no program reaches")
refuse(
    "ref_p empty_ref_p free_ref_p freeze_p get_p swap_p addupdate_p accum_grad_in_ref_p",
    "it writes to a mutable reference, and values of a lowered program are assigned once",
)
