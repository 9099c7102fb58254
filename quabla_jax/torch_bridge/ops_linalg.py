"""Core ops on matrices: products, convolution, Fourier transforms, factorisations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..lowering.program import Op
from .aten import Array, Aten
from .ops_pointwise import cast
from .ops_shape import pad

__all__ = ["ROWS"]

ROWS: dict[str, Any] = {}


def row(name: str):
    def register(function):
        ROWS[name] = function
        return function

    return register


HALF = ("float16", "bfloat16")


@row("matmul")
def _matmul(t: Aten, node: Op, x: Array, y: Array) -> Array:
    dtype = np.dtype(node.params["dtype"])
    shape = node.outputs[0].shape
    if x.kind == "b":  # and, then or: a count that is not zero
        wide = np.dtype(np.int64 if dtype == np.bool_ else dtype)
    elif x.dtype.name in HALF and dtype.name in HALF:
        wide = np.dtype(np.float32)
    else:
        wide = dtype
    a, b = cast(t, x, wide), cast(t, y, wide)
    _, m, n = shape
    if shape[0] != 1:
        out = t.wrap(x, t.call("aten::bmm", t.full(a), t.full(b)), shape, wide)
    elif n == 1 and m != 1:  # a matrix and a vector, as most products of one batch are
        vector = t.call("aten::mv", t.full(t.reshape(a, a.shape[1:])), t.full(t.reshape(b, b.shape[1:2])))
        out = t.reshape(t.wrap(x, vector, (m,), wide), shape)
    else:
        flat = t.call("aten::mm", t.full(t.reshape(a, a.shape[1:])), t.full(t.reshape(b, b.shape[1:])))
        out = t.reshape(t.wrap(x, flat, (m, n), wide), shape)
    return cast(t, out, dtype)


@row("conv")
def _conv(t: Aten, node: Op, x: Array, w: Array) -> Array:
    p = node.params
    shape, dtype = node.outputs[0].shape, x.dtype
    if 0 in shape or 0 in x.shape or 0 in w.shape:
        return Array(shape, dtype, scalar=0 if dtype.kind in "iu" else 0.0)
    wide = dtype
    if dtype.kind in "iu":
        wide = np.dtype(np.float64)  # exact: supports() lets through only types whose sums of products fit
    elif dtype.name in HALF:
        wide = np.dtype(np.float32)
    low, high = ([0, 0, *(pair[k] for pair in p["padding"])] for k in (0, 1))
    interior = [0, 0, *(d - 1 for d in p["lhs_dilation"])]
    zero = Array((), x.dtype, scalar=0j if x.kind == "c" else 0.0 if x.kind == "f" else 0)
    symmetric = low == high and min(low) >= 0 and not any(interior)
    padding = low[2:] if symmetric else [0] * (x.ndim - 2)
    source = x if symmetric else pad(t, x, zero, low, high, interior)
    out_shape, flat = shape, x.ndim == 2
    if flat:  # no spatial axis: make one
        source, w = t.reshape(source, (*source.shape, 1)), t.reshape(w, (*w.shape, 1))
        out_shape, padding = (*shape, 1), [0]
    strides, dilation = (list(p[k]) if not flat else [1] for k in ("strides", "rhs_dilation"))
    args = [t.full(cast(t, source, wide)), t.full(cast(t, w, wide)), None, strides, padding, dilation]
    ref = t.call(f"aten::conv{len(padding)}d", *args, p["groups"])
    return t.reshape(cast(t, t.wrap(x, ref, out_shape, wide), dtype), shape)


@row("fft")
def _fft(t: Aten, node: Op, x: Array) -> Array:
    kind, lengths = node.params["kind"].lower(), [int(n) for n in node.params["lengths"]]
    op = {"fft": "fft_fftn", "ifft": "fft_ifftn", "rfft": "fft_rfftn", "irfft": "fft_irfftn"}[kind]
    out = node.outputs[0]
    if 0 in out.shape or 0 in x.shape:
        return Array(out.shape, out.dtype, scalar=0j if out.dtype.kind == "c" else 0.0)
    dims = list(range(x.ndim - len(lengths), x.ndim))
    return t.wrap(x, t.call(f"aten::{op}", t.full(x), lengths, dims), out.shape, out.dtype)


# factorisations: what LAPACK gives, and NaN where XLA gives NaN


def _outputs(t: Aten, node: Op, refs: Sequence[Any]) -> list[Array]:
    return [Array(v.shape, v.dtype, ref) for v, ref in zip(node.outputs, refs)]


def _nothing(node: Op) -> list[Array]:
    """The results where a matrix has no elements."""
    return [
        Array(v.shape, v.dtype, scalar=0j if v.dtype.kind == "c" else 0.0 if v.dtype.kind == "f" else 0)
        for v in node.outputs
    ]


def _finite(t: Aten, x: Array) -> tuple[Array, Array]:
    """(a mask of the matrices that are finite, x with the others zero): LAPACK may fail or hang on NaN."""
    finite = t.call("aten::isfinite", t.full(x))
    every = t.call("aten::all", t.call("aten::all", finite, -1, True), -2, True)
    mask = Array((*x.shape[:-2], 1, 1), np.dtype(bool), every)
    return mask, t.wrap(x, t.full(t.where(_spread(t, mask, x), x, _zero(t, x))))


def _zero(t: Aten, x: Array) -> Array:
    return t.number(x, 0j if x.kind == "c" else 0.0)


def _spread(t: Aten, mask: Array, like: Array) -> Array:
    return Array(like.shape, mask.dtype, t.loose(mask), mask.stored)


def _nan_outside(t: Aten, mask: Array, out: Array, vector: bool) -> Array:
    """NaN in the results of matrices that were not finite."""
    if vector:
        mask = t.reshape(mask, (*mask.shape[:-2], 1))
    nan = complex(np.nan, 0) if out.kind == "c" else np.nan
    return t.where(_spread(t, mask, out), out, t.number(out, nan))


@row("cholesky")
def _cholesky(t: Aten, node: Op, x: Array) -> Array:
    if 0 in x.shape:
        return x
    mask, safe = _finite(t, x)
    factor, info = t.call("aten::linalg_cholesky_ex", t.full(safe))
    good = t.is_number(Array(x.shape[:-2], np.dtype(np.int32), info), 0)
    good = t.reshape(good, (*x.shape[:-2], 1, 1))
    mask = t.pointwise("aten::bitwise_and", mask, good)
    whole = _nan_outside(t, Array(good.shape, mask.dtype, t.full(mask)), t.wrap(x, factor), False)
    return t.wrap(x, t.call("aten::tril", t.full(whole)))


@row("triangular_solve")
def _triangular_solve(t: Aten, node: Op, a: Array, b: Array) -> Array:
    if 0 in b.shape:
        return b
    p = node.params
    matrix, upper = t.full(a), not p["lower"]
    if p["conjugate"] and a.kind == "c":
        matrix = t.call("aten::conj_physical", matrix)
    if p["transpose"]:
        matrix, upper = t.call("aten::transpose", matrix, -2, -1), not upper
    kwargs = {"upper": upper, "left": True, "unitriangular": bool(p["unit_diagonal"])}
    return t.wrap(b, t.call("aten::linalg_solve_triangular", matrix, t.full(b), **kwargs))


@row("lu")
def _lu(t: Aten, node: Op, x: Array) -> list[Array]:
    m = x.shape[-2]
    if 0 in x.shape:
        packed, pivots, _ = _nothing(node)
        rows = t.constant(np.arange(m, dtype=np.int32))
        return [packed, pivots, Array(node.outputs[2].shape, np.dtype(np.int32), rows, (m,))]
    packed, pivots, _ = t.call("aten::linalg_lu_factor_ex", t.full(x))
    swaps = t.call("aten::lu_unpack", packed, pivots, False, True)[0]  # P of A = P L U
    order = t.call("aten::argmax", t.call("aten::real", swaps) if x.kind == "c" else swaps, -2, False)
    zero_based = t.call("aten::sub", pivots, 1)
    return _outputs(t, node, [packed, zero_based, t.call("aten::to", order, 3, False, False, None)])


@row("qr")
def _qr(t: Aten, node: Op, x: Array) -> list[Array]:
    if 0 in x.shape:
        q, r = node.outputs
        eye = np.broadcast_to(np.eye(*q.shape[-2:], dtype=q.dtype), q.shape).copy()
        return [Array(q.shape, q.dtype, t.constant(eye)), *_nothing(node)[1:]]
    mode = "complete" if node.params["full_matrices"] else "reduced"
    return _outputs(t, node, t.call("aten::linalg_qr", t.full(x), mode))


@row("eigh")
def _eigh(t: Aten, node: Op, x: Array) -> list[Array]:
    if 0 in x.shape:
        return _nothing(node)
    mask, safe = _finite(t, x)
    values, vectors = t.call("aten::linalg_eigh", t.full(safe), "L")
    v, w = _outputs(t, node, [vectors, values])
    return [_nan_outside(t, mask, v, False), _nan_outside(t, mask, w, True)]


@row("svd")
def _svd(t: Aten, node: Op, x: Array) -> list[Array]:
    if 0 in x.shape:
        s, *uv = _nothing(node)
        for k, side in enumerate(node.outputs[1:]):
            square = np.broadcast_to(np.eye(*side.shape[-2:], dtype=side.dtype), side.shape).copy()
            uv[k] = Array(side.shape, side.dtype, t.constant(square))
        return [s, *uv]
    mask, safe = _finite(t, x)
    if not node.params["compute_uv"]:
        (s,) = _outputs(t, node, [t.call("aten::linalg_svdvals", t.full(safe))])
        return [_nan_outside(t, mask, s, True)]
    u, s, vh = t.call("aten::linalg_svd", t.full(safe), bool(node.params["full_matrices"]))
    values, left, right = _outputs(t, node, [s, u, vh])
    return [_nan_outside(t, mask, values, True), *(_nan_outside(t, mask, v, False) for v in (left, right))]


@row("eig")
def _eig(t: Aten, node: Op, x: Array) -> list[Array]:
    if 0 in x.shape:
        return _nothing(node)
    mask, safe = _finite(t, x)
    values, vectors = t.call("aten::linalg_eig", t.full(safe))
    refs = [values]
    if node.params["left"]:  # rows of the inverse, to length one
        inverse = t.call("aten::conj_physical", t.call("aten::transpose", t.call("aten::linalg_inv", vectors), -2, -1))
        norm = t.call("aten::linalg_vector_norm", inverse, 2, [-2], True)
        refs.append(t.call("aten::div", inverse, norm))
    if node.params["right"]:
        refs.append(vectors)
    outs = _outputs(t, node, refs)
    return [_nan_outside(t, mask, out, vector=k == 0) for k, out in enumerate(outs)]
