"""Primitives that no target can run, and why."""

from __future__ import annotations

from . import refuse

refuse(
    "pure_callback_p io_callback_p debug_callback_p debug_print_p inspect_sharding_p",
    "it calls Python on the host while the program runs, and a lowered program holds no Python",
)
refuse("ffi_call_p custom_partitioning_p", "it calls a compiled function made for XLA")
refuse("call_exported_p", "it holds StableHLO, not a jaxpr")
refuse("schur_p hessenberg_p tridiagonal_p geqp3_p", "no target has this factorisation")
