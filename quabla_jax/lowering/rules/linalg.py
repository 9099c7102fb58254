"""Factorisations and solves."""

from __future__ import annotations

import numpy as np

from ..emitter import Emitter
from ..program import Value
from . import register
from .elementwise import is_complex


def swap(e: Emitter, x: Value) -> Value:
    """The last two axes exchanged."""
    n = x.ndim
    return e.transpose(x, [*range(n - 2), n - 1, n - 2])


def adjoint(e: Emitter, x: Value) -> Value:
    x = swap(e, x)
    return e.conj(x) if is_complex(x.dtype) else x


def triangle_mask(e: Emitter, rows: int, columns: int, shift: int = 0) -> Value:
    """bool [rows, columns], True at and below the diagonal moved right by `shift`."""
    i, j = e.iota(np.int32, (rows, columns), 0), e.iota(np.int32, (rows, columns), 1)
    return e.ge(e.add(i, shift), j)


def _cholesky(e: Emitter, eqn, x: Value):
    return e.op("cholesky", x)


def _triangular_solve(e: Emitter, eqn, a: Value, b: Value):
    p = eqn.params
    lower, transpose = p["lower"], p["transpose_a"]
    if p["left_side"]:
        return _solve(e, a, b, lower, transpose, p["unit_diagonal"], p["conjugate_a"])
    # x op(a) = b is op(a)^T x^T = b^T
    return swap(e, _solve(e, a, swap(e, b), lower, not transpose, p["unit_diagonal"], p["conjugate_a"]))


def _solve(e: Emitter, a, b, lower, transpose, unit_diagonal, conjugate) -> Value:
    if b.size == 0:
        return b
    return e.op(
        "triangular_solve", a, b, lower=bool(lower), transpose=bool(transpose), unit_diagonal=bool(unit_diagonal),
        conjugate=bool(conjugate and is_complex(a.dtype)),
    )  # fmt: skip


def _lu(e: Emitter, eqn, x: Value):
    if x.size == 0:
        *batch, m, n = x.shape
        rows = e.iota(np.int32, (*batch, m), len(batch))
        return [x, e.full((*batch, min(m, n)), 0, np.int32), rows]
    return e.ops("lu", x)


def _qr(e: Emitter, eqn, x: Value):
    from ..interpreter import unsupported

    if eqn.params.get("pivoting"):
        raise unsupported(e, eqn, "no target has a QR factorisation with column pivoting")
    return e.ops("qr", x, full_matrices=bool(eqn.params["full_matrices"]))


def _eigh(e: Emitter, eqn, x: Value):
    if not eqn.params["lower"]:
        x = adjoint(e, x)
    vectors, values = e.ops("eigh", x)
    subset = eqn.params.get("subset_by_index")
    if subset is not None:
        low, high = subset
        vectors = e.slice_axis(vectors, vectors.ndim - 1, low, high)
        values = e.slice_axis(values, values.ndim - 1, low, high)
    return [vectors, values]


def _svd(e: Emitter, eqn, x: Value):
    p = eqn.params
    out = e.ops("svd", x, full_matrices=bool(p["full_matrices"]), compute_uv=bool(p["compute_uv"]))
    subset = p.get("subset_by_index")
    if subset is None:
        return out
    low, high = subset
    parts = [e.slice_axis(out[0], out[0].ndim - 1, low, high)]
    if len(out) == 3:
        parts.append(e.slice_axis(out[1], out[1].ndim - 1, low, high))
        parts.append(e.slice_axis(out[2], out[2].ndim - 2, low, high))
    return parts


def _eig(e: Emitter, eqn, x: Value):
    p = eqn.params
    return e.ops("eig", x, left=bool(p["compute_left_eigenvectors"]), right=bool(p["compute_right_eigenvectors"]))


register("cholesky_p", "direct", _cholesky)
register("triangular_solve_p", "direct", _triangular_solve)
register("lu_p", "direct", _lu)
register("qr_p", "direct", _qr)
register("eigh_p", "direct", _eigh)
register("svd_p", "direct", _svd)
register("eig_p", "direct", _eig)
