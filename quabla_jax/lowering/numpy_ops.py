"""The core ops in plain NumPy: the meaning that every target is held to, slow and exact.

Floats are computed in float64 and rounded once (float64 itself in extended precision where NumPy has it), so results
are within 1 ulp; integers, bits and casts are XLA's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from .narrow import FORMATS, WIDTHS

__all__ = ["evaluate"]

TABLE: dict[str, Callable[..., Any]] = {}


def _row(*names: str):
    def register(function):
        for name in names:
            assert name not in TABLE, name
            TABLE[name] = function
        return function

    return register


def evaluate(name: str, inputs: Sequence[np.ndarray], params: Mapping[str, Any]) -> list[np.ndarray]:
    """Results of one core op on NumPy arrays."""
    with np.errstate(all="ignore"):
        out = TABLE[name](*inputs, **params)
    return list(out) if isinstance(out, tuple) else [np.asarray(out)]


def _kind(dtype) -> str:
    """'b' bool, 'i' signed, 'u' unsigned, 'f' float (bfloat16 and the 8-bit floats too), 'c' complex."""
    dtype = np.dtype(dtype)
    return "f" if dtype.kind == "V" else dtype.kind


def wide(x: np.ndarray) -> np.ndarray:
    """x in the type that float functions are computed in."""
    if x.dtype == np.float64:
        return x.astype(np.longdouble)
    if x.dtype == np.complex128:
        return x.astype(np.clongdouble)
    if x.dtype == np.complex64:
        return x.astype(np.complex128)
    return x.astype(np.float64)


def _float_row(name: str, function: Callable[[np.ndarray], np.ndarray]) -> None:
    TABLE[name] = lambda x: function(wide(x)).astype(x.dtype)


def _logistic(x):
    e = np.exp(-np.abs(x)) if x.dtype.kind == "f" else np.exp(-x)
    return np.where(x >= 0, 1 / (1 + e), e / (1 + e)) if x.dtype.kind == "f" else 1 / (1 + e)


for _name, _function in {
    "floor": np.floor, "ceil": np.ceil, "round_even": np.rint, "exp": np.exp, "expm1": np.expm1, "log": np.log,
    "log1p": np.log1p, "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x), "cbrt": np.cbrt, "sin": np.sin, "cos": np.cos,
    "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh,
    "tanh": np.tanh, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh, "logistic": _logistic,
}.items():  # fmt: skip
    _float_row(_name, _function)


@_row("neg")
def _neg(x):
    return np.negative(x)


@_row("abs")
def _abs(x):
    if x.dtype.kind == "c":
        return np.abs(wide(x)).astype(x.real.dtype)
    return np.abs(x)


@_row("sign")
def _sign(x):
    if x.dtype.kind == "c":
        r = np.abs(x)
        return np.where(r == 0, 0, x / np.where(r == 0, 1, r)).astype(x.dtype)
    if _kind(x.dtype) == "f":
        return np.where(np.isnan(x) | (x == 0), x, np.copysign(np.ones_like(x), x)).astype(x.dtype)
    return np.sign(x)


@_row("is_finite")
def _is_finite(x):
    return np.isfinite(x)


@_row("not")
def _not(x):
    return ~x


@_row("population_count")
def _population_count(x):
    return np.bitwise_count(x.view(f"u{x.itemsize}") if x.dtype.kind == "i" else x).astype(x.dtype)


@_row("clz")
def _clz(x):
    width = 8 * x.itemsize
    u = x.astype(f"u{x.itemsize}")
    count = np.full(x.shape, width, x.dtype)
    for bit in range(width):
        count = np.where((u >> u.dtype.type(bit)) & u.dtype.type(1), width - 1 - bit, count).astype(x.dtype)
    return count


TABLE["real"] = lambda x: np.real(x).copy()
TABLE["imag"] = lambda x: np.imag(x).copy()
TABLE["conj"] = np.conj


def _wrapping(name: str, function, boolean=None) -> None:
    def run(x, y):
        return boolean(x, y) if x.dtype == bool and boolean is not None else function(x, y).astype(x.dtype)

    TABLE[name] = run


_wrapping("add", np.add, np.logical_or)
_wrapping("sub", np.subtract)
_wrapping("mul", np.multiply, np.logical_and)
for _name, _function in {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}.items():
    TABLE[_name] = _function
for _name, _function in {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}.items():  # fmt: skip
    TABLE[_name] = _function


@_row("div")
def _div(x, y):
    if x.dtype.kind in "iu":
        safe = np.where(y == 0, 1, y).astype(x.dtype)
        if x.dtype.kind == "u":
            return np.where(y == 0, np.iinfo(x.dtype).max, x // safe).astype(x.dtype)
        least = np.iinfo(x.dtype).min
        overflow = (x == least) & (y == -1)
        safe = np.where(overflow, 1, safe).astype(x.dtype)
        floor, left = x // safe, x % safe
        quotient = np.where((left != 0) & ((x < 0) != (safe < 0)), floor + 1, floor)
        return np.where(y == 0, -1, np.where(overflow, least, quotient)).astype(x.dtype)
    return np.divide(x, y).astype(x.dtype)


@_row("rem")
def _rem(x, y):
    if x.dtype.kind in "iu":
        special = (y == 0) if x.dtype.kind == "u" else (y == 0) | (y == -1)
        safe = np.where(special, 1, y).astype(x.dtype)
        return np.where(y == 0, x, np.where(special, 0, np.fmod(x, safe))).astype(x.dtype)
    return np.fmod(x, y).astype(x.dtype)


@_row("pow")
def _pow(x, y):
    return np.power(wide(x), wide(y)).astype(x.dtype)


@_row("atan2")
def _atan2(x, y):
    return np.arctan2(wide(x), wide(y)).astype(x.dtype)


def _extreme(name: str, choose, prefer_negative_zero: bool) -> None:
    def run(x, y):
        if x.dtype == bool:
            return choose(x, y)
        out = choose(x, y)
        if _kind(x.dtype) == "f":
            either = np.signbit(x) | np.signbit(y) if prefer_negative_zero else np.signbit(x) & np.signbit(y)
            zero = np.where(either, -0.0, 0.0).astype(x.dtype)
            out = np.where((x == 0) & (y == 0), zero, out).astype(x.dtype)
        return out

    TABLE[name] = run


_extreme("max", np.maximum, False)
_extreme("min", np.minimum, True)


def _shift(x, y, fill):
    width = 8 * x.itemsize
    unsigned = y.astype(f"u{y.itemsize}") if y.dtype.kind == "i" else y
    far = unsigned >= width
    amount = np.where(far, 0, unsigned)
    return far, amount, fill


@_row("shift_left")
def _shift_left(x, y):
    far, amount, _ = _shift(x, y, 0)
    return np.where(far, 0, np.left_shift(x, amount.astype(x.dtype))).astype(x.dtype)


@_row("shift_right_logical")
def _shift_right_logical(x, y):
    far, amount, _ = _shift(x, y, 0)
    bits = x.view(f"u{x.itemsize}")
    return np.where(far, 0, bits >> amount.astype(bits.dtype)).astype(bits.dtype).view(x.dtype)


@_row("shift_right_arithmetic")
def _shift_right_arithmetic(x, y):
    far, amount, _ = _shift(x, y, 0)
    signed = x.view(f"i{x.itemsize}")
    amount = np.where(far, 8 * x.itemsize - 1, amount)
    return (signed >> amount.astype(signed.dtype)).astype(signed.dtype).view(x.dtype)


@_row("nextafter")
def _nextafter(x, y):
    if x.dtype.kind == "f" and x.itemsize > 1:
        return np.nextafter(x, y)
    bits = x.view(f"i{x.itemsize}")
    least = bits.dtype.type(np.iinfo(bits.dtype).min)
    away = (x < y) == ~np.signbit(x)
    stepped = np.where(x == 0, np.where(np.signbit(y), least | 1, 1), np.where(away, bits + 1, bits - 1))
    out = np.where(x == y, y.view(bits.dtype), stepped).astype(bits.dtype).view(x.dtype)
    return np.where(np.isnan(x) | np.isnan(y), np.nan, out).astype(x.dtype)


@_row("complex")
def _complex(x, y):
    out = np.empty(x.shape, np.result_type(x.dtype, np.complex64))
    out.real, out.imag = x, y
    return out


@_row("select")
def _select(mask, on_true, on_false):
    return np.where(mask, on_true, on_false).astype(on_true.dtype)


@_row("cast")
def _cast(x, dtype):
    dtype = np.dtype(dtype)
    if x.dtype.kind == "c" and dtype.kind != "c" and dtype.kind != "b":
        x = x.real
    if dtype.kind == "b":
        return x != 0
    if dtype in WIDTHS and _kind(x.dtype) == "f" and x.dtype not in WIDTHS:
        info = ml_dtypes.iinfo(dtype)
        return np.clip(np.nan_to_num(x.astype(np.float64)), int(info.min), int(info.max)).astype(np.int8).astype(dtype)
    if _kind(x.dtype) == "f" and dtype.kind in "iu":
        info = np.iinfo(dtype)
        whole = np.trunc(x.astype(np.longdouble))  # int64.max is no float64
        inside = (whole >= info.min) & (whole <= info.max)
        out = np.where(inside, whole, 0).astype(dtype)
        out[~inside & (whole > 0)] = info.max
        out[~inside & (whole < 0)] = info.min
        return out
    if dtype in FORMATS and x.dtype == np.float64:
        x = _to_odd(x)
    return x.astype(dtype)


def _to_odd(x):
    """float32 toward zero, its last bit set where that loses something: rounding it further is rounding x once, where

    ml_dtypes rounds to the nearest float32 and again."""
    size = np.abs(x)
    near = size.astype(np.float32)
    back = near.astype(np.float64)
    bits = (near.view(np.uint32) - (back > size)) | ((back != size) & np.isfinite(size))
    return np.where(np.isnan(x), near, np.copysign(bits.astype(np.uint32).view(np.float32), x).astype(np.float32))


@_row("bitcast")
def _bitcast(x, dtype):
    return np.ascontiguousarray(x).view(dtype).reshape(x.shape)


TABLE["reshape"] = lambda x, shape: np.reshape(x, shape)
TABLE["transpose"] = lambda x, perm: np.transpose(x, perm)
TABLE["rev"] = lambda x, axes: np.flip(x, axes)
TABLE["concat"] = lambda *xs, axis: np.concatenate(xs, axis)


@_row("broadcast")
def _broadcast(x, shape, dims):
    view = [1] * len(shape)
    for size, dim in zip(x.shape, dims):
        view[dim] = size
    return np.broadcast_to(x.reshape(view), shape)


@_row("slice")
def _slice(x, start, limit, stride):
    return x[tuple(slice(*triple) for triple in zip(start, limit, stride))]


@_row("pad")
def pad(x, value, low, high, interior):
    inner = [n + max(n - 1, 0) * i for n, i in zip(x.shape, interior)]
    out = np.full([max(0, n + max(lo, 0) + max(hi, 0)) for n, lo, hi in zip(inner, low, high)], value, x.dtype)
    out[tuple(slice(max(lo, 0), max(lo, 0) + n, i + 1) for n, lo, i in zip(inner, low, interior))] = x
    return out[tuple(slice(max(-lo, 0), max(n - max(-hi, 0), 0)) for n, lo, hi in zip(out.shape, low, high))]


@_row("iota")
def _iota(dtype, shape, axis):
    line = np.arange(shape[axis]).astype(dtype)
    return np.broadcast_to(line.reshape([-1 if i == axis else 1 for i in range(len(shape))]), shape)


def _corner(x, starts, sizes):
    clamped = [min(max(int(s), 0), n - size) for s, n, size in zip(starts, x.shape, sizes)]
    return tuple(slice(s, s + size) for s, size in zip(clamped, sizes))


@_row("dynamic_slice")
def _dynamic_slice(x, *starts, sizes):
    return x[_corner(x, starts, sizes)]


@_row("dynamic_update_slice")
def _dynamic_update_slice(x, update, *starts):
    out = x.copy()
    out[_corner(x, starts, update.shape)] = update
    return out


def _in_range(indices, size):
    if indices.size and (indices.min() < 0 or indices.max() >= size):
        raise IndexError("a core op was given an index out of range: its rule has to clamp or drop it")
    return indices


TABLE["take"] = lambda x, indices, axis: np.take(x, _in_range(indices, x.shape[axis]), axis)
TABLE["gather_flat"] = lambda x, indices: x[_in_range(indices, x.shape[0])]
TABLE["take_along_axis"] = lambda x, indices, axis: np.take_along_axis(x, _in_range(indices, x.shape[axis]), axis)


@_row("scatter_flat", "scatter_rows")
def _scatter(x, indices, updates, kind, unique):
    out = x.copy()
    _in_range(indices, x.shape[0])
    if kind == "set":
        for i, u in zip(indices, updates):
            out[i] = u
        return out
    combine = {"add": TABLE["add"], "mul": TABLE["mul"], "max": TABLE["max"], "min": TABLE["min"]}[kind]
    for i, u in zip(indices, updates):
        out[i] = combine(np.asarray(out[i]), np.asarray(u))
    return out


@_row("reduce_sum")
def _reduce_sum(x, axes):
    if x.dtype == bool:
        return np.any(x, axes)
    return np.sum(wide(x) if _kind(x.dtype) in "fc" else x, axes).astype(x.dtype)


@_row("reduce_prod")
def _reduce_prod(x, axes):
    if x.dtype == bool:
        return np.all(x, axes)
    return np.prod(wide(x) if _kind(x.dtype) in "fc" else x, axes).astype(x.dtype)


def least(dtype) -> Any:
    """The identity of max."""
    return False if np.dtype(dtype).kind == "b" else np.iinfo(dtype).min if np.dtype(dtype).kind in "iu" else -np.inf


def greatest(dtype) -> Any:
    """The identity of min."""
    return True if np.dtype(dtype).kind == "b" else np.iinfo(dtype).max if np.dtype(dtype).kind in "iu" else np.inf


def _fold_axes(x, axes, combine, identity):
    for axis in sorted(axes, reverse=True):
        total = np.full(x.shape[:axis] + x.shape[axis + 1 :], identity, x.dtype)
        for i in range(x.shape[axis]):
            total = combine(total, np.take(x, i, axis))
        x = total
    return x


TABLE["reduce_max"] = lambda x, axes: _fold_axes(x, axes, TABLE["max"], least(x.dtype))
TABLE["reduce_min"] = lambda x, axes: _fold_axes(x, axes, TABLE["min"], greatest(x.dtype))
TABLE["reduce_and"] = lambda x, axes: np.bitwise_and.reduce(x, axes)
TABLE["reduce_or"] = lambda x, axes: np.bitwise_or.reduce(x, axes)
TABLE["reduce_xor"] = lambda x, axes: np.bitwise_xor.reduce(x, axes)


def _arg(name: str, order):
    def run(x, axis, dtype):
        x = x.astype(np.float64) if x.dtype.kind == "V" or x.dtype == np.float16 else x
        if x.shape[axis] == 0:
            return np.zeros(x.shape[:axis] + x.shape[axis + 1 :], dtype)
        return order(x, axis=axis).astype(dtype)

    TABLE[name] = run


_arg("argmax", np.argmax)
_arg("argmin", np.argmin)


def _cumulative(name: str, step, precise: bool):
    def run(x, axis, reverse):
        work = np.flip(x, axis) if reverse else x
        work = wide(work) if precise and _kind(x.dtype) in "fc" else work
        parts = []
        for i in range(work.shape[axis]):
            part = np.take(work, i, axis)
            parts.append(part if not parts else step(parts[-1], part))
        out = np.stack(parts, axis).astype(x.dtype) if parts else x.copy()
        return np.flip(out, axis) if reverse else out

    TABLE[name] = run


_cumulative("cumsum", TABLE["add"], True)
_cumulative("cumprod", TABLE["mul"], True)
_cumulative("cummax", TABLE["max"], False)
_cumulative("cummin", TABLE["min"], False)


@_row("argsort")
def _argsort(x, axis, dtype):
    keys = x.astype(np.float64) if x.dtype.kind == "V" else x
    return np.argsort(keys, axis=axis, kind="stable").astype(dtype)


@_row("windows")
def windows(x, sizes, strides, dilation):
    reach = [(size - 1) * d + 1 for size, d in zip(sizes, dilation)]
    if any(n < r for n, r in zip(x.shape, reach)):
        counts = [0 if n < r else (n - r) // s + 1 for n, r, s in zip(x.shape, reach, strides)]
        return np.zeros((*counts, *sizes), x.dtype)
    view = np.lib.stride_tricks.sliding_window_view(x, reach) if x.ndim else x
    picks = tuple(slice(None, None, s) for s in strides) + tuple(slice(None, None, d) for d in dilation)
    return view[picks].copy()


@_row("host_call")
def _host_call(*arrays, callback, results, effect):
    found = callback(*arrays)
    return tuple(np.asarray(a, dtype=dtype).reshape(shape) for a, (shape, dtype) in zip(found, results, strict=True))
