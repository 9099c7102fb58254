"""The rows of products, transforms and factorisations: NumPy where it has them, textbook loops where it does not."""

from __future__ import annotations

import numpy as np

from .numpy_ops import TABLE, pad, wide, windows

__all__: list[str] = []


def _double(x):
    return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)


def _cholesky(x):
    out = np.empty(x.shape, x.dtype)
    low = np.tril(_double(x))
    full = low + np.conj(np.swapaxes(np.tril(low, -1), -1, -2))
    for index in np.ndindex(x.shape[:-2]):
        try:
            out[index] = np.linalg.cholesky(full[index])
        except np.linalg.LinAlgError:
            out[index] = np.tril(np.full(x.shape[-2:], np.nan))
    return out


def _triangular_solve(a, b, lower, transpose, unit_diagonal, conjugate):
    a = np.tril(a) if lower else np.triu(a)
    a = _double(a)
    n = a.shape[-1]
    if unit_diagonal:
        a = np.where(np.eye(n, dtype=bool), 1, a)
    if conjugate:
        a = np.conj(a)
    if transpose:
        a, lower = np.swapaxes(a, -1, -2), not lower
    x = _double(b).astype(np.result_type(_double(b), a))
    for step in range(n):
        i = step if lower else n - 1 - step
        x[..., i, :] = x[..., i, :] / a[..., i, i, None]
        rest = slice(i + 1, None) if lower else slice(0, i)
        x[..., rest, :] -= a[..., rest, i, None] * x[..., None, i, :]
    return x.astype(b.dtype)


def _lu(x):
    *batch, m, n = x.shape
    packed = _double(x).copy()
    pivots = np.zeros((*batch, min(m, n)), np.int32)
    order = np.broadcast_to(np.arange(m, dtype=np.int32), (*batch, m)).copy()
    for index in np.ndindex(*batch):
        a, perm = packed[index], order[index]
        for k in range(min(m, n)):
            p = k + int(np.argmax(np.abs(a[k:, k].real) + np.abs(a[k:, k].imag)))  # LAPACK's measure
            pivots[index][k] = p
            a[[k, p]], perm[[k, p]] = a[[p, k]], perm[[p, k]]
            if a[k, k] != 0:
                a[k + 1 :, k] /= a[k, k]
                a[k + 1 :, k + 1 :] -= np.outer(a[k + 1 :, k], a[k, k + 1 :])
    return packed.astype(x.dtype), pivots, order


def _qr(x, full_matrices):
    *batch, m, n = x.shape
    k = m if full_matrices else min(m, n)
    if 0 in x.shape:
        q = np.broadcast_to(np.eye(m, k, dtype=x.dtype), (*batch, m, k)).copy()
        return q, np.zeros((*batch, k, n), x.dtype)
    q, r = np.linalg.qr(_double(x), "complete" if full_matrices else "reduced")
    return q.astype(x.dtype), r.astype(x.dtype)


def _nan_where_not_finite(x, outs):
    bad = ~np.isfinite(x).all((-2, -1))
    for out in outs:
        out[bad] = np.nan
    return outs


def _eigh(x):
    safe = np.where(np.isfinite(x).all((-2, -1), keepdims=True), x, 0)
    w, v = np.linalg.eigh(_double(safe), "L")
    v, w = _nan_where_not_finite(x, [v.astype(x.dtype), w.astype(x.real.dtype)])
    return v, w


def _svd(x, full_matrices, compute_uv):
    safe = np.where(np.isfinite(x).all((-2, -1), keepdims=True), x, 0)
    if not compute_uv:
        return _nan_where_not_finite(x, [np.linalg.svd(_double(safe), compute_uv=False).astype(x.real.dtype)])[0]
    u, s, vh = np.linalg.svd(_double(safe), full_matrices)
    return tuple(_nan_where_not_finite(x, [s.astype(x.real.dtype), u.astype(x.dtype), vh.astype(x.dtype)]))


def _left_vectors(x, values, vectors):
    """Eigenvectors of the adjoint in the order of `values`; a real one's product with its partner is positive."""
    others, found = np.linalg.eig(np.conj(np.swapaxes(x, -1, -2)))
    found = found.astype(np.result_type(found, values))
    for index in np.ndindex(x.shape[:-2]):
        left = np.ones(x.shape[-1], bool)
        order = []
        for value in np.conj(values[index]):
            order.append(int(np.argmin(np.where(left, np.abs(others[index] - value), np.inf))))
            left[order[-1]] = False
        found[index] = found[index][:, order]
    if x.dtype.kind != "c":
        product = np.sum(np.conj(found) * vectors, -2, keepdims=True).real
        found = np.where((np.imag(values)[..., None, :] == 0) & (product < 0), -found, found)
    return found


def _eig(x, left, right):
    dtype = np.result_type(x.dtype, np.complex64)
    safe = np.where(np.isfinite(x).all((-2, -1), keepdims=True), x, 0)
    w, v = np.linalg.eig(_double(safe))
    outs = [w.astype(dtype)]
    if left:
        outs.append(_left_vectors(_double(safe), w, v).astype(dtype))
    if right:
        outs.append(v.astype(dtype))
    return tuple(_nan_where_not_finite(x, outs))


def _matmul(a, b, dtype):
    dtype = np.dtype(dtype)
    if dtype.kind in "iub":
        return np.matmul(a.astype(np.int64), b.astype(np.int64)).astype(dtype) if dtype.kind != "b" else np.matmul(a, b)
    return np.matmul(wide(a), wide(b)).astype(dtype)


def _conv(x, w, strides, padding, lhs_dilation, rhs_dilation, groups):
    low, high = [0, 0] + [lo for lo, _ in padding], [0, 0] + [hi for _, hi in padding]
    x = pad(x, x.dtype.type(0), low, high, [0, 0] + [d - 1 for d in lhs_dilation])
    widen = (lambda a: a.astype(np.int64)) if x.dtype.kind in "iu" else wide
    out_channels, per_group = w.shape[:2]
    found = windows(x, (1, 1, *w.shape[2:]), (1, 1, *strides), (1, 1, *rhs_dilation))
    space = len(strides)
    found = found.reshape(found.shape[: 2 + space] + w.shape[2:])
    parts = []
    for g in range(groups):
        left = widen(found[:, g * per_group : (g + 1) * per_group])
        right = widen(w[g * (out_channels // groups) : (g + 1) * (out_channels // groups)])
        axes = [1] + list(range(2 + space, 2 + 2 * space))
        parts.append(np.tensordot(left, right, (axes, [1] + list(range(2, 2 + space)))))
    return np.moveaxis(np.concatenate(parts, -1), -1, 1).astype(x.dtype)


def _fft(x, kind, lengths):
    axes = tuple(range(x.ndim - len(lengths), x.ndim))
    function = {"fft": np.fft.fftn, "ifft": np.fft.ifftn, "rfft": np.fft.rfftn, "irfft": np.fft.irfftn}[kind]
    wide = x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)
    out = function(wide, s=tuple(lengths), axes=axes)
    return out.astype(x.dtype if kind in ("fft", "ifft") else infer_fft(x.dtype, kind))


def infer_fft(dtype, kind):
    """dtype of an rfft or irfft."""
    double = dtype in (np.dtype(np.float64), np.dtype(np.complex128))
    return (np.complex128 if double else np.complex64) if kind == "rfft" else (np.float64 if double else np.float32)


TABLE.update(
    cholesky=_cholesky, triangular_solve=_triangular_solve, lu=_lu, qr=_qr, eigh=_eigh, svd=_svd, eig=_eig, matmul=_matmul, conv=_conv, fft=_fft
)  # fmt: skip
