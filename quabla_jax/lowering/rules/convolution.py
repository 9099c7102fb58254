"""conv_general_dilated as the core conv: axes in order, batch groups as feature groups, complex in real parts."""

from __future__ import annotations

import numpy as np

from ..emitter import Emitter
from ..program import Value
from . import register
from .elementwise import is_complex


def _batch_groups(e: Emitter, x: Value, w: Value, groups: int) -> tuple[Value, Value]:
    """A convolution whose group g sees batch part g and output channels part g is one with feature groups."""
    n, c, *space = x.shape
    parts = e.reshape(x, (groups, n // groups, c, *space))
    joined = e.transpose(parts, (1, 0, 2, *range(3, 3 + len(space))))
    return e.reshape(joined, (n // groups, groups * c, *space)), w


def _conv(e: Emitter, x: Value, w: Value, dtype, **params) -> Value:
    if is_complex(x.dtype) or is_complex(w.dtype):
        xr, xi, wr, wi = e.real(x), e.imag(x), e.real(w), e.imag(w)
        part = lambda a, b: e.op("conv", a, b, **params)
        return e.complex(e.sub(part(xr, wr), part(xi, wi)), e.add(part(xr, wi), part(xi, wr)))
    if np.dtype(dtype) != x.dtype:
        x, w = e.cast(x, dtype), e.cast(w, dtype)
    return e.op("conv", x, w, **params)


def _rule(e: Emitter, eqn, x: Value, w: Value):
    p = eqn.params
    numbers = p["dimension_numbers"]
    out_aval = eqn.outvars[0].aval
    x = e.transpose(x, numbers.lhs_spec)
    w = e.transpose(w, numbers.rhs_spec)
    if w.dtype != x.dtype:
        common = np.promote_types(x.dtype, w.dtype)
        x, w = e.cast(x, common), e.cast(w, common)
    groups = p["feature_group_count"]
    if p["batch_group_count"] > 1:
        groups = p["batch_group_count"]
        x, w = _batch_groups(e, x, w, groups)
    shape = tuple(out_aval.shape[i] for i in numbers.out_spec)
    if 0 in shape or 0 in x.shape or 0 in w.shape:
        out = e.full(shape, 0, out_aval.dtype)
    else:
        out = _conv(
            e, x, w, out_aval.dtype, strides=tuple(p["window_strides"]), padding=tuple((int(a), int(b)) for a, b in p["padding"]),
            lhs_dilation=tuple(p["lhs_dilation"]), rhs_dilation=tuple(p["rhs_dilation"]), groups=groups,
        )  # fmt: skip
    return e.transpose(out, np.argsort(numbers.out_spec).tolist())


register("conv_general_dilated_p", "direct", _rule)
