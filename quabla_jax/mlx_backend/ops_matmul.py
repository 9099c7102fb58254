"""Matrix products, convolutions and FFTs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import numpy as np

from ..lowering.program import Op
from .ops_reduce import blocked_sum
from .ops_shape import pad_array
from .target import Context, OpTable, Target
from .target import scalar_like as lit

__all__ = ["TABLE"]

TABLE = OpTable()

_HALVES = (mx.float16, mx.bfloat16)
_FLOATS = (*_HALVES, mx.float32, mx.float64)
RUN = 1024
"""Terms that one product of floats adds up on the CPU, where its result is small."""

RUN_RESULTS = 1 << 18
"""Elements of the partial results of such a product: beyond that it is not small."""

PRODUCT_LIMIT = 1 << 22
"""Elements of the intermediate of an integer product; larger ones go in slices of the contracted axis."""


def _integer_matmul(a: mx.array, b: mx.array, dtype: mx.Dtype) -> mx.array:
    """MLX multiplies float matrices only: integers as broadcast products summed up, wrapping as XLA's do."""
    a, b = a.astype(dtype), b.astype(dtype)
    inner = a.shape[-1]
    size = math.prod(a.shape[:-2]) * a.shape[-2] * b.shape[-1]
    step = max(1, min(inner, PRODUCT_LIMIT // max(size, 1)))
    total = mx.zeros((*a.shape[:-1], b.shape[-1]), dtype=dtype)
    for at in range(0, inner, step):
        left = mx.expand_dims(a[..., at : at + step], -1)
        right = mx.expand_dims(b[..., at : at + step, :], -3)
        total = total + mx.sum(left * right, axis=-2).astype(dtype)
    return total


def product(c: Context, a: mx.array, b: mx.array, dtype: mx.Dtype) -> mx.array:
    """a @ b in `dtype`, batch axes equal."""
    if dtype == mx.bool_:
        return _integer_matmul(a, b, mx.int32) > mx.array(0)
    if dtype not in (*_FLOATS, mx.complex64):
        return _integer_matmul(a, b, dtype)
    if 0 in a.shape or 0 in b.shape:
        return mx.zeros((*a.shape[:-1], b.shape[-1]), dtype=dtype)
    if a.dtype == b.dtype == dtype and not (c.target.cpu and dtype in _HALVES):
        return _float_product(c, a, b)
    work = mx.float32 if dtype in _HALVES else dtype
    return _float_product(c, a.astype(work), b.astype(work)).astype(dtype)


def _float_product(c: Context, a: mx.array, b: mx.array) -> mx.array:
    """a @ b. Long thin ones go block by block on the CPU, whose routine adds one after the other: 4e-4 off at a million."""
    inner, size = a.shape[-1], math.prod(a.shape[:-1]) * b.shape[-1]
    blocks = inner // RUN
    if not c.target.cpu or blocks < 2 or size * blocks > RUN_RESULTS:
        return mx.matmul(a, b)
    whole = blocks * RUN
    left = mx.moveaxis(mx.unflatten(a[..., :whole], -1, (blocks, RUN)), -2, 0)
    right = mx.moveaxis(mx.unflatten(b[..., :whole, :], -2, (blocks, RUN)), -3, 0)
    total = blocked_sum(mx.matmul(left, right), (0,))
    return total if whole == inner else total + mx.matmul(a[..., whole:], b[..., whole:, :])


@TABLE.row("matmul")
def _matmul(c: Context, a: mx.array, b: mx.array, dtype: Any) -> mx.array:
    wanted = c.dtype(dtype)
    if a.ndim == 3 and a.shape[0] == 1:
        return mx.expand_dims(product(c, mx.squeeze(a, 0), mx.squeeze(b, 0), wanted), 0)
    return product(c, a, b, wanted)


@TABLE.row("conv")
def _conv(
    c: Context, x: mx.array, w: mx.array, strides: Sequence[int], padding: Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int], rhs_dilation: Sequence[int], groups: int,
) -> mx.array:  # fmt: skip
    space = len(strides)
    direct = 1 <= space <= 3 and x.dtype in (*_HALVES, mx.float32)  # MLX's kernels have no float64
    negative = any(lo < 0 or hi < 0 for lo, hi in padding)
    if negative or (not direct and (any(map(any, padding)) or any(d > 1 for d in lhs_dilation))):
        x = pad_array(
            x,
            lit(x, 0),
            [0, 0] + [lo for lo, _ in padding],
            [0, 0] + [hi for _, hi in padding],
            [0, 0] + [d - 1 for d in lhs_dilation],
        )
        padding, lhs_dilation = [(0, 0)] * space, [1] * space
    out_size = [
        (n + (n - 1) * (ld - 1) * (n > 0) + lo + hi - ((k - 1) * rd + 1)) // s + 1
        for n, k, s, (lo, hi), ld, rd in zip(x.shape[2:], w.shape[2:], strides, padding, lhs_dilation, rhs_dilation)
    ]
    if any(n <= 0 for n in out_size) or 0 in x.shape or 0 in w.shape:
        return mx.zeros((x.shape[0], w.shape[0], *[max(n, 0) for n in out_size]), dtype=x.dtype)
    if not direct:
        return _conv_by_windows(c, x, w, strides, rhs_dilation, groups)
    last = [0, *range(2, space + 2), 1]
    out = mx.conv_general(
        mx.transpose(x.astype(mx.float32) if x.dtype in _HALVES else x, last),
        mx.transpose(w.astype(mx.float32) if w.dtype in _HALVES else w, last),
        stride=list(strides),
        padding=([lo for lo, _ in padding], [hi for _, hi in padding]),
        kernel_dilation=list(rhs_dilation),
        input_dilation=list(lhs_dilation),
        groups=groups,
    )
    return mx.transpose(out, [0, space + 1, *range(1, space + 1)]).astype(x.dtype)


def _conv_by_windows(
    c: Context, x: mx.array, w: mx.array, strides: Sequence[int], rhs_dilation: Sequence[int], groups: int
) -> mx.array:
    """Any dtype and any number of spatial axes: windows against the kernel as one product a group."""
    from .ops_reduce import TABLE as REDUCE

    space = len(strides)
    batch, channels = x.shape[:2]
    features, per_group = w.shape[:2]
    kernel = list(w.shape[2:])
    views = REDUCE["windows"].run(c, x, (1, 1, *kernel), (1, 1, *strides), (1, 1, *rhs_dilation))
    place = list(views.shape[2 : 2 + space])
    views = mx.reshape(views, [batch, groups, per_group, *place, *kernel])
    perm = [1, 0, *range(3, 3 + space), 2, *range(3 + space, 3 + 2 * space)]
    left = mx.reshape(mx.transpose(views, perm), [groups, batch * math.prod(place), per_group * math.prod(kernel)])
    right = mx.transpose(mx.reshape(w, [groups, features // groups, -1]), [0, 2, 1])
    out = mx.reshape(product(c, left, right, x.dtype), [groups, batch, *place, features // groups])
    perm = [1, 0, space + 2, *range(2, space + 2)]
    return mx.reshape(mx.transpose(out, perm), [batch, features, *place])


def _refuse_double(node: Op, target: Target) -> str | None:
    if any(v.dtype == np.float64 for v in (*node.inputs, *node.outputs)):
        return "MLX's FFT computes in complex64 only; cast to float32 or complex64"
    return None


@TABLE.row("fft", refuse=_refuse_double)
def _fft(c: Context, x: mx.array, kind: str, lengths: Sequence[int]) -> mx.array:
    axes = list(range(x.ndim - len(lengths), x.ndim))
    function = {"fft": mx.fft.fftn, "ifft": mx.fft.ifftn, "rfft": mx.fft.rfftn, "irfft": mx.fft.irfftn}[kind]
    wanted = c.dtype(c.node.outputs[0].dtype)
    if 0 in x.shape or 0 in lengths:
        return mx.zeros(c.node.outputs[0].shape, dtype=wanted)
    return function(x, s=tuple(lengths), axes=tuple(axes)).astype(wanted)
