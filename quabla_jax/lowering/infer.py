"""Shapes and dtypes of the core ops' results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .core_ops import CORE_OPS

__all__ = ["infer"]

Spec = tuple[tuple[int, ...], np.dtype]

_REAL_OF = {np.dtype(np.complex64): np.dtype(np.float32), np.dtype(np.complex128): np.dtype(np.float64)}
_COMPLEX_OF = {real: complex_ for complex_, real in _REAL_OF.items()}
_BOOL = np.dtype(bool)
_INT32 = np.dtype(np.int32)


def _same(shapes, dtypes, params) -> list[Spec]:
    return [(shapes[0], dtypes[0])]


def _to_real(shapes, dtypes, params) -> list[Spec]:
    return [(shapes[0], _REAL_OF.get(dtypes[0], dtypes[0]))]


def _to_complex(shapes, dtypes, params) -> list[Spec]:
    return [(shapes[0], _COMPLEX_OF[dtypes[0]])]


def _to_bool(shapes, dtypes, params) -> list[Spec]:
    return [(shapes[0], _BOOL)]


def _cast(shapes, dtypes, params) -> list[Spec]:
    return [(shapes[0], np.dtype(params["dtype"]))]


def _shape_param(shapes, dtypes, params) -> list[Spec]:
    return [(tuple(params["shape"]), dtypes[0])]


def _transpose(shapes, dtypes, params) -> list[Spec]:
    return [(tuple(shapes[0][p] for p in params["perm"]), dtypes[0])]


def _slice(shapes, dtypes, params) -> list[Spec]:
    shape = tuple(max(0, -(-(hi - lo) // st)) for lo, hi, st in zip(params["start"], params["limit"], params["stride"]))
    return [(shape, dtypes[0])]


def _pad(shapes, dtypes, params) -> list[Spec]:
    shape = tuple(
        max(0, lo + hi + n + max(n - 1, 0) * inner)
        for n, lo, hi, inner in zip(shapes[0], params["low"], params["high"], params["interior"])
    )
    return [(shape, dtypes[0])]


def _concat(shapes, dtypes, params) -> list[Spec]:
    shape = list(shapes[0])
    shape[params["axis"]] = sum(s[params["axis"]] for s in shapes)
    return [(tuple(shape), dtypes[0])]


def _iota(shapes, dtypes, params) -> list[Spec]:
    return [(tuple(params["shape"]), np.dtype(params["dtype"]))]


def _dynamic_slice(shapes, dtypes, params) -> list[Spec]:
    return [(tuple(params["sizes"]), dtypes[0])]


def _take(shapes, dtypes, params) -> list[Spec]:
    axis = params["axis"]
    return [(shapes[0][:axis] + shapes[1] + shapes[0][axis + 1 :], dtypes[0])]


def _of_indices(shapes, dtypes, params) -> list[Spec]:
    return [(shapes[1], dtypes[0])]


def _reduce(shapes, dtypes, params) -> list[Spec]:
    axes = set(params["axes"])
    return [(tuple(n for i, n in enumerate(shapes[0]) if i not in axes), dtypes[0])]


def _arg_reduce(shapes, dtypes, params) -> list[Spec]:
    axis = params["axis"]
    return [(shapes[0][:axis] + shapes[0][axis + 1 :], np.dtype(params["dtype"]))]


def _windows(shapes, dtypes, params) -> list[Spec]:
    counts = []
    for n, size, stride, dilation in zip(shapes[0], params["sizes"], params["strides"], params["dilation"]):
        reach = (size - 1) * dilation + 1
        counts.append(0 if n < reach else (n - reach) // stride + 1)
    return [(tuple(counts) + tuple(params["sizes"]), dtypes[0])]


def _matmul(shapes, dtypes, params) -> list[Spec]:
    return [((shapes[0][0], shapes[0][1], shapes[1][2]), np.dtype(params["dtype"]))]


def _conv(shapes, dtypes, params) -> list[Spec]:
    space = []
    for n, k, stride, (lo, hi), inner, dilation in zip(
        shapes[0][2:],
        shapes[1][2:],
        params["strides"],
        params["padding"],
        params["lhs_dilation"],
        params["rhs_dilation"],
    ):
        padded = lo + hi + (0 if n == 0 else (n - 1) * inner + 1)
        reach = 0 if k == 0 else (k - 1) * dilation + 1
        space.append(0 if padded < reach else (padded - reach) // stride + 1)
    return [((shapes[0][0], shapes[1][0], *space), dtypes[0])]


def _fft(shapes, dtypes, params) -> list[Spec]:
    kind, lengths = params["kind"], tuple(params["lengths"])
    shape = shapes[0][: len(shapes[0]) - len(lengths)]
    if kind == "rfft":
        return [(shape + lengths[:-1] + (lengths[-1] // 2 + 1,), _COMPLEX_OF[dtypes[0]])]
    return [(shape + lengths, _REAL_OF[dtypes[0]] if kind == "irfft" else dtypes[0])]


def _second(shapes, dtypes, params) -> list[Spec]:
    return [(shapes[1], dtypes[1])]


def _lu(shapes, dtypes, params) -> list[Spec]:
    *batch, m, n = shapes[0]
    return [(shapes[0], dtypes[0]), ((*batch, min(m, n)), _INT32), ((*batch, m), _INT32)]


def _qr(shapes, dtypes, params) -> list[Spec]:
    *batch, m, n = shapes[0]
    k = m if params["full_matrices"] else min(m, n)
    return [((*batch, m, k), dtypes[0]), ((*batch, k, n), dtypes[0])]


def _eigh(shapes, dtypes, params) -> list[Spec]:
    return [(shapes[0], dtypes[0]), (shapes[0][:-1], _REAL_OF.get(dtypes[0], dtypes[0]))]


def _svd(shapes, dtypes, params) -> list[Spec]:
    *batch, m, n = shapes[0]
    k = min(m, n)
    specs: list[Spec] = [((*batch, k), _REAL_OF.get(dtypes[0], dtypes[0]))]
    if params["compute_uv"]:
        full = params["full_matrices"]
        specs += [((*batch, m, m if full else k), dtypes[0]), ((*batch, n if full else k, n), dtypes[0])]
    return specs


def _eig(shapes, dtypes, params) -> list[Spec]:
    dtype = _COMPLEX_OF.get(dtypes[0], dtypes[0])
    return [(shapes[0][:-1], dtype)] + [(shapes[0], dtype)] * (params["left"] + params["right"])


def _host_call(shapes, dtypes, params) -> list[Spec]:
    return [(tuple(shape), np.dtype(dtype)) for shape, dtype in params["results"]]


_BY_NAME = {
    "host_call": _host_call,
    "abs": _to_real, "real": _to_real, "imag": _to_real, "complex": _to_complex, "is_finite": _to_bool,
    "eq": _to_bool, "ne": _to_bool, "lt": _to_bool, "le": _to_bool, "gt": _to_bool, "ge": _to_bool,
    "select": lambda shapes, dtypes, params: [(shapes[1], dtypes[1])], "cast": _cast, "bitcast": _cast,
    "reshape": _shape_param, "broadcast": _shape_param, "transpose": _transpose, "slice": _slice, "pad": _pad,
    "concat": _concat, "iota": _iota, "dynamic_slice": _dynamic_slice, "take": _take, "gather_flat": _of_indices,
    "take_along_axis": _of_indices, "argmax": _arg_reduce, "argmin": _arg_reduce, "windows": _windows,
    "argsort": _cast, "matmul": _matmul, "conv": _conv, "fft": _fft, "triangular_solve": _second, "lu": _lu,
    "qr": _qr, "eigh": _eigh, "svd": _svd, "eig": _eig,
}  # fmt: skip


def infer(
    name: str, shapes: Sequence[tuple[int, ...]], dtypes: Sequence[np.dtype], params: Mapping[str, Any]
) -> list[Spec]:
    """(shape, dtype) of every result of a core op, from its inputs' shapes and dtypes and its params."""
    rule = _BY_NAME.get(name)
    if rule is None:
        rule = _reduce if name.startswith("reduce_") and CORE_OPS[name].family == "reduce" else _same
    return rule(shapes, dtypes, params)
