"""core op -> mlx.core, and what MLX cannot run."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np

from ..lowering.narrow import CARRIERS
from ..lowering.program import Op, Value
from . import convert, narrow, ops_elementwise, ops_float, ops_linalg, ops_matmul, ops_reduce, ops_shape
from .target import Context, OpRow, OpTable, Target

__all__ = ["OPS", "no_dtype", "run_op", "supports"]


def _merged(*tables: OpTable) -> dict[str, OpRow]:
    out: dict[str, OpRow] = {}
    for table in tables:
        twice = out.keys() & table.keys()
        if twice:
            raise ValueError(f"core ops {sorted(twice)} have two MLX rows")
        out.update(table)
    return out


OPS = _merged(
    ops_elementwise.TABLE,
    ops_float.TABLE,
    ops_shape.TABLE,
    ops_reduce.TABLE,
    ops_matmul.TABLE,
    ops_linalg.TABLE,
)


def no_dtype(value: Value) -> str | None:
    """Why MLX cannot hold a value, or None."""
    if value.dtype in convert.MX_DTYPES or value.dtype in CARRIERS:
        return None
    cure = "; cast to complex64" if value.dtype == np.complex128 else "; cast to a dtype of docs/mlx.md"
    return f"MLX has no dtype {value.dtype}{cure}"


def supports(node: Op, target: Target) -> str | None:
    """None, or why this op cannot run on the device."""
    row = OPS.get(node.name)
    if node.name == "host_call":  # run by the runtime, between two kernels
        row = OpRow(lambda *_: None)
    if row is None:
        return f"MLX has no counterpart of {node.name}"
    for value in (*node.inputs, *node.outputs):
        reason = no_dtype(value)
        if reason is not None:
            return reason
    reason = narrow.refused(node)
    if reason is not None:
        return reason
    return None if row.refuse is None else row.refuse(node, target)


def run_op(context: Context, node: Op, inputs: list[mx.array]) -> tuple[mx.array, ...]:
    """The node's outputs. Lazy, like all of MLX."""
    out: Any = OPS[node.name].run(context.at(node), *inputs, **node.params)
    out = out if isinstance(out, tuple) else (out,)
    return narrow.settled(node, out) if node.outputs and node.outputs[0].dtype.itemsize == 1 else out
