"""Arrays in and out: jax, NumPy and mx arrays, with at most one copy each way."""

from __future__ import annotations

from typing import Any

import jax
import ml_dtypes
import mlx.core as mx
import numpy as np

from ..lowering.narrow import CARRIERS

__all__ = ["BFLOAT16", "MX_DTYPES", "from_mx", "mx_dtype", "np_dtype", "to_mx"]

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)

MX_DTYPES: dict[np.dtype, mx.Dtype] = {
    np.dtype(np.bool_): mx.bool_,
    np.dtype(np.int8): mx.int8,
    np.dtype(np.int16): mx.int16,
    np.dtype(np.int32): mx.int32,
    np.dtype(np.int64): mx.int64,
    np.dtype(np.uint8): mx.uint8,
    np.dtype(np.uint16): mx.uint16,
    np.dtype(np.uint32): mx.uint32,
    np.dtype(np.uint64): mx.uint64,
    np.dtype(np.float16): mx.float16,
    BFLOAT16: mx.bfloat16,
    np.dtype(np.float32): mx.float32,
    np.dtype(np.float64): mx.float64,
    np.dtype(np.complex64): mx.complex64,
}
"""Every NumPy dtype that MLX has. 8-bit floats and integers of 2 and 4 bits are carried in wider ones (CARRIERS); the
rest, complex128 above all, is refused."""

_NP_DTYPES = {m: n for n, m in MX_DTYPES.items()}


def mx_dtype(dtype: Any) -> mx.Dtype:
    """The MLX dtype of a NumPy dtype; KeyError where MLX has none."""
    return MX_DTYPES[np.dtype(dtype)]


def np_dtype(dtype: mx.Dtype) -> np.dtype:
    """The NumPy dtype of an MLX dtype."""
    return _NP_DTYPES[dtype]


def to_mx(value: Any, dtype: np.dtype, double: bool = True) -> mx.array:
    """`value` (mx, jax or NumPy array, or a Python scalar) as an mx array of `dtype`.

    An mx array of that dtype already is returned as it is. A jax array on the CPU is viewed by NumPy without a copy
    and copied once, by MLX. `double=False` (MLX's GPU) turns float64 into float32.
    """
    if not double and dtype == np.float64:
        dtype = np.dtype(np.float32)
    wanted = MX_DTYPES[CARRIERS.get(dtype, dtype)]
    if isinstance(value, mx.array):
        return value if value.dtype == wanted else value.astype(wanted)
    array = np.asarray(value)
    if type(value) is int and dtype.kind in "iu" and not np.iinfo(dtype).min <= value <= np.iinfo(dtype).max:
        raise OverflowError(
            f"the Python int {value} does not fit into {dtype}; pass a float, or turn on jax_enable_x64"
        )
    if array.dtype != dtype:
        array = array.astype(dtype)
    if dtype in CARRIERS:
        array = _recast(array, CARRIERS[dtype])
    if any(stride < 0 for stride in array.strides):
        array = array.copy()  # not ascontiguousarray, which leaves the strides of one element alone
    if dtype == BFLOAT16:
        return mx.array(array.view(np.uint16)).view(mx.bfloat16)
    return mx.array(array, dtype=wanted)


def _recast(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """array.astype(dtype); of NaN ml_dtypes would warn."""
    with np.errstate(invalid="ignore"):
        return array.astype(dtype)


def from_mx(value: mx.array, dtype: np.dtype) -> jax.Array:
    """An evaluated mx array as a jax array of `dtype`, copied once by JAX."""
    if value.dtype == mx.bfloat16:
        array = np.asarray(value.view(mx.uint16)).view(BFLOAT16)
    else:
        array = np.asarray(value)
    if dtype in CARRIERS:
        array = _recast(array, dtype)
    # jax.numpy may alias a NumPy buffer; MLX may hand that buffer to its next computation: copy.
    return jax.numpy.array(array, dtype=dtype, copy=True)
