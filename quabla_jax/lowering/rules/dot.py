"""dot_general as one batched matmul."""

from __future__ import annotations

import math

import numpy as np

from ..emitter import Emitter
from ..program import Value
from . import register
from .elementwise import is_complex


def dot_general(e: Emitter, a: Value, b: Value, dimension_numbers, dtype) -> Value:
    """XLA's dot_general: batch axes first, then a's free axes, then b's."""
    (a_contract, b_contract), (a_batch, b_batch) = dimension_numbers
    a_free = [i for i in range(a.ndim) if i not in (*a_contract, *a_batch)]
    b_free = [i for i in range(b.ndim) if i not in (*b_contract, *b_batch)]
    batch = [a.shape[i] for i in a_batch]
    rows, columns = [a.shape[i] for i in a_free], [b.shape[i] for i in b_free]
    inner = math.prod(a.shape[i] for i in a_contract)
    left = e.reshape(e.transpose(a, [*a_batch, *a_free, *a_contract]), (math.prod(batch), math.prod(rows), inner))
    right = e.reshape(e.transpose(b, [*b_batch, *b_contract, *b_free]), (math.prod(batch), inner, math.prod(columns)))
    return e.reshape(matmul(e, left, right, dtype), [*batch, *rows, *columns])


def matmul(e: Emitter, left: Value, right: Value, dtype) -> Value:
    """[B, m, k] @ [B, k, n] in `dtype`; operands of unlike types are widened first."""
    dtype = np.dtype(dtype)
    if left.dtype != right.dtype:
        common = np.promote_types(left.dtype, right.dtype) if "V" not in (left.dtype.kind, right.dtype.kind) else dtype
        left, right = e.cast(left, common), e.cast(right, common)
    if 0 in (*left.shape, *right.shape):
        return e.full((left.shape[0], left.shape[1], right.shape[2]), 0, dtype)
    if is_complex(left.dtype) != is_complex(dtype):
        return e.cast(e.op("matmul", left, right, dtype=left.dtype), dtype)
    return e.op("matmul", left, right, dtype=dtype)


def _rule(e: Emitter, eqn, a: Value, b: Value):
    return dot_general(e, a, b, eqn.params["dimension_numbers"], eqn.outvars[0].aval.dtype)


register("dot_general_p", "direct", _rule)
