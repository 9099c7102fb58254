"""The table core op -> aten, and what it does not cover.

Rows are functions (target, node, *arrays) -> Array or a list of them. A core op without a row is composed by the
lowering from others where it knows how, and refused where not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..lowering.core_ops import CORE_OPS
from ..lowering.program import Const, Op, Value
from . import ops_linalg, ops_pointwise, ops_reduce, ops_shape
from .aten import CARRIER, Array, Aten, carrier, signed_view, torch_dtype

__all__ = ["ROWS", "CoreOps", "supports"]

ROWS: dict[str, Callable[..., Any]] = {}
for _module in (ops_pointwise, ops_shape, ops_reduce, ops_linalg):
    for _name, _function in _module.ROWS.items():
        assert _name not in ROWS, f"two rows for {_name}"
        assert _name in CORE_OPS, f"{_name} is no core op"
        ROWS[_name] = _function

FACTORISATIONS = frozenset(name for name, row in CORE_OPS.items() if row.family == "linalg")


def supports(node: Op) -> str | None:
    """None, or why torch cannot run this op on these types."""
    for value in (*node.inputs, *node.outputs):
        if torch_dtype(value.dtype) is None:
            return f"PyTorch has no dtype {value.dtype.name}"
    if node.name in INACCURATE:
        return f"PyTorch's {node.name} loses thousands of ulp near its zeros and poles"
    if node.name not in ROWS:
        return f"PyTorch has no operator for {node.name}"
    if node.name == "conv":
        return _supports_conv(node)
    if node.name not in SELECTIVE:
        return None
    first = node.inputs[0].dtype
    if (node.name in FACTORISATIONS or node.name == "fft") and first.name in ("float16", "bfloat16"):
        return f"PyTorch has no {node.name} in {first.name} on the CPU"
    if node.name in COMPLEX_GAPS and first.kind == "c":
        return f"PyTorch has no complex {node.name}"
    if node.name == "nextafter" and first.name == "float16":
        return "PyTorch has no float16 nextafter"
    return None


INACCURATE = frozenset({"lgamma", "digamma"})
COMPLEX_GAPS = frozenset(
    "erf erfc lt le gt ge max min reduce_max reduce_min argmax argmin cummax cummin argsort".split()
)
SELECTIVE = FACTORISATIONS | COMPLEX_GAPS | {"fft", "nextafter"}


def _supports_conv(node: Op) -> str | None:
    space, dtype = node.inputs[0].ndim - 2, node.inputs[0].dtype
    if space > 3:
        return f"PyTorch convolves over at most 3 axes, not {space}"
    if dtype.kind in "biu" and dtype.itemsize > 2:
        return f"PyTorch has no exact convolution of {dtype.name}"
    return None


class CoreOps(Aten):
    """The part of a Builder that both torch targets share: constants, core ops, and tensors as they come in."""

    def supports(self, node: Op) -> str | None:
        return supports(node)

    def const(self, value: Const) -> Array:
        array = value.array
        if value.ndim == 0:
            if array.dtype.kind == "V":
                return Array((), value.dtype, scalar=float(array))
            if array.dtype.kind == "u":
                array = array.view(signed_view(array.dtype))
            return Array((), value.dtype, scalar=array.item())
        return Array(value.shape, value.dtype, self.constant(array))

    def op(self, node: Op, inputs: Sequence[Array]) -> Sequence[Array]:
        out = ROWS[node.name](self, node, *inputs)
        return out if isinstance(out, list) else [out]

    def received(self, ref: Any, value: Value) -> Array:
        if value.dtype.name in CARRIER:
            ref = self.call("aten::view_copy", ref, carrier(value.dtype))
        return Array(value.shape, value.dtype, ref)
