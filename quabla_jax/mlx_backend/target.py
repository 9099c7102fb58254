"""What an op needs to know about the place it runs at: device, dtypes, constant operands, and why it may be refused."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx
import numpy as np

from ..lowering.narrow import CARRIERS
from ..lowering.program import Const, Op, Region, Value
from . import convert

__all__ = ["Context", "OpRow", "OpTable", "Target", "known_values", "scalar", "scalar_like"]


@dataclass(frozen=True)
class Target:
    """One MLX device. `cpu`: cures for its CPU kernels are wanted. `double`: it has float64."""

    device: Any
    name: str = "mlx"

    @property
    def cpu(self) -> bool:
        return self.device == mx.cpu or self.device.type == mx.DeviceType.cpu

    @property
    def double(self) -> bool:
        return self.cpu

    def dtype(self, dtype: Any) -> mx.Dtype:
        """The MLX dtype for a NumPy dtype here; float64 becomes float32 where the device lacks it."""
        dtype = np.dtype(dtype)
        if dtype == np.float64 and not self.double:
            return mx.float32
        carrier: Any = CARRIERS.get(dtype, dtype)
        return convert.MX_DTYPES[carrier]


@dataclass(frozen=True)
class Context:
    """Passed to every op: the target, the node being run, and which of its operands are one known number.

    One of a region is shared by the threads that run it; `at` makes the one that an op gets.
    """

    target: Target
    known: Mapping[Value, Any] = field(default_factory=dict)
    node: Op = None  # type: ignore[assignment]

    def at(self, node: Op) -> Context:
        return Context(self.target, self.known, node)

    def dtype(self, dtype: Any) -> mx.Dtype:
        return self.target.dtype(dtype)

    def value(self, position: int) -> Any:
        """The NumPy scalar that operand `position` holds everywhere, or None."""
        return self.known.get(self.node.inputs[position])


Run = Callable[..., Any]
Refuse = Callable[[Op, Target], "str | None"]


@dataclass(frozen=True)
class OpRow:
    """How a core op runs: run(context, *arrays, **params) -> array or tuple; refuse(node, target) -> reason or None."""

    run: Run
    refuse: Refuse | None = None


class OpTable(dict[str, OpRow]):
    """Rows by core-op name. A second row for one name raises."""

    def row(self, *names: str, refuse: Refuse | None = None) -> Callable[[Run], Run]:
        def add(run: Run) -> Run:
            for name in names:
                if name in self:
                    raise ValueError(f"core op {name} has two MLX rows")
                self[name] = OpRow(run, refuse)
            return run

        return add


def known_values(region: Region) -> dict[Value, Any]:
    """Values that are one number everywhere: 0-d and uniform constants, and what only spreads them."""
    known: dict[Value, Any] = {}

    def scalar(value: Value) -> Any:
        if value not in known:
            if not isinstance(value, Const) or value.size == 0 or value.size > 64:
                return None
            first = value.array.reshape(-1)[0]
            if value.size > 1 and value.array.tobytes() != np.full_like(value.array, first).tobytes():
                return None
            known[value] = first
        return known[value]

    for node in region.nodes:
        for operand in (*node.inputs, *(() if not isinstance(node, Op) else ())):
            scalar(operand)
        if isinstance(node, Op) and node.name in ("broadcast", "reshape", "transpose"):
            value = scalar(node.inputs[0])
            if value is not None:
                known[node.outputs[0]] = value
    return known


def scalar_like(x: mx.array, value: Any) -> mx.array:
    """A 0-d array of x's dtype."""
    return scalar(value, x.dtype)


def scalar(value: Any, dtype: mx.Dtype) -> mx.array:
    """A 0-d array; MLX takes no Python int of 64 unsigned bits."""
    if (
        dtype == mx.complex64 and value != value
    ):  # mx.compile writes "nan" into a kernel's source, which is no number there
        nan = mx.array(math.nan, dtype=mx.float32).astype(dtype)
        return nan * nan
    made: Any = np.uint64(value) if dtype == mx.uint64 else value
    return mx.array(made, dtype=dtype)
