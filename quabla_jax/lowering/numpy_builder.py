"""The NumPy target: runs a Program op by op, slow and exact. The oracle of every other target."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from . import numpy_linalg, numpy_ops, numpy_special
from .builder import emit
from .program import Branch, Const, Loop, Op, Program

__all__ = ["NumpyBuilder", "run"]

assert numpy_linalg and numpy_special  # imported for the rows that they add to the table


class NumpyBuilder:
    """A Builder whose values are NumPy arrays: building is running."""

    target = "numpy"

    def supports(self, node: Op) -> str | None:
        return None if node.name in numpy_ops.TABLE else "the oracle has no such row"

    def const(self, value: Const) -> np.ndarray:
        return value.array

    def op(self, node: Op, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        results = numpy_ops.evaluate(node.name, inputs, node.params)
        for result, value in zip(results, node.outputs, strict=True):
            if result.shape != value.shape or result.dtype != value.dtype:
                raise AssertionError(
                    f"{node.name}{dict(node.params)} gave {result.dtype}{result.shape}, "
                    f"expected {value.dtype}{value.shape}"
                )
        return results

    def loop(
        self,
        node: Loop,
        inputs: Sequence[np.ndarray],
        trip: np.ndarray | None,
        emit_body: Callable[[Sequence[np.ndarray]], list[np.ndarray]],
        emit_cond: Callable[[Sequence[np.ndarray]], np.ndarray] | None,
    ) -> list[np.ndarray]:
        consts = list(inputs[: node.n_consts])
        carry = list(inputs[node.n_consts : node.n_consts + node.n_carry])
        xs = inputs[node.n_consts + node.n_carry :]
        if emit_cond is not None:
            while emit_cond([*consts, *carry]):
                carry = emit_body([*consts, *carry])
            return carry
        length = node.length if node.length is not None else int(trip) if trip is not None else 0
        ys = [np.empty(v.shape, v.dtype) for v in node.outputs[node.n_carry :]]
        for i in range(length):
            at = length - 1 - i if node.reverse else i
            out = emit_body([*consts, *carry, *(x[at] for x in xs)])
            carry = out[: node.n_carry]
            for stacked, y in zip(ys, out[node.n_carry :]):
                stacked[at] = y
        return [*carry, *ys]

    def branch(
        self,
        node: Branch,
        index: np.ndarray,
        inputs: Sequence[np.ndarray],
        emit_branches: Sequence[Callable[[Sequence[np.ndarray]], list[np.ndarray]]],
    ) -> list[np.ndarray]:
        return emit_branches[int(index)](inputs)

    def tuple(self, values: Sequence[np.ndarray]) -> Any:
        return tuple(values)


def run(program: Program, *arrays: Any) -> list[np.ndarray]:
    """The program's flat outputs on flat inputs (arrays or scalars, taken at the program's dtypes)."""
    values = [np.asarray(a, dtype=v.dtype).reshape(v.shape) for a, v in zip(arrays, program.inputs, strict=True)]
    return emit(program, NumpyBuilder(), values)
