"""Functions over one primitive each, with inputs that sit on the primitive's edges. Shared by the lowering tests."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax

INTS = [np.dtype(f"{kind}{size}") for kind, size in itertools.product("iu", (1, 2, 4, 8))]
FLOATS = [np.dtype(t) for t in (np.float16, ml_dtypes.bfloat16, np.float32, np.float64)]
COMPLEX = [np.dtype(np.complex64), np.dtype(np.complex128)]
BOOL = np.dtype(bool)


def floats(dtype) -> np.ndarray:
    """Zeros, infinities, NaN, the extremes of the type, and ordinary numbers of every size."""
    info = ml_dtypes.finfo(dtype)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, float(info.max), float(info.tiny), -float(info.eps)]
    usual = [1.0, -1.0, 0.5, -0.5, 1.5, -2.5, 2.0, 3.7, -7.3, 0.1, 10.0, 30.0, -30.0, 0.99, 1.01, 100.5]
    return np.array(special + usual).astype(dtype)


def integers(dtype) -> np.ndarray:
    info = np.iinfo(dtype)
    picks = {
        info.min,
        info.min + 1,
        info.max,
        info.max - 1,
        0,
        1,
        2,
        3,
        5,
        7,
        8,
        9,
        31,
        32,
        33,
        63,
        64,
        65,
        100,
    }
    picks |= {-1, -2, -3, -7, -8, -100} if info.min else set()
    return np.array([p for p in sorted(picks) if info.min <= p <= info.max], dtype)


def values(dtype) -> np.ndarray:
    dtype = np.dtype(dtype)
    if dtype == BOOL:
        return np.array([False, True, True, False])
    if dtype.kind in "iu":
        return integers(dtype)
    if dtype.kind == "c":
        real = np.array([0.3, -1.2, 2.5, 0.0, -0.7, 1.0])
        return (real + 1j * real[::-1]).astype(dtype)
    return floats(dtype)


def pairs(dtype) -> tuple[np.ndarray, np.ndarray]:
    """Every value against every other."""
    one = values(dtype)
    return np.repeat(one, len(one)), np.tile(one, len(one))


_NUMBERS = INTS + FLOATS + COMPLEX
_SIGNED = [d for d in INTS if d.kind == "i"]
_UNARY: list[tuple[Callable[..., Any], list]] = [
    (lax.neg, _NUMBERS), (lax.abs, _SIGNED + FLOATS + COMPLEX), (lax.sign, _NUMBERS),
    (lax.floor, FLOATS), (lax.ceil, FLOATS), (lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN), FLOATS),
    (lambda x: lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO), FLOATS), (lax.is_finite, FLOATS),
    (lax.bitwise_not, INTS + [BOOL]), (lax.population_count, INTS), (lax.clz, INTS), (lax.square, _NUMBERS),
    (lax.real, COMPLEX), (lax.imag, COMPLEX), (lax.conj, COMPLEX),
    (lambda x: lax.integer_pow(x, 5), _NUMBERS), (lambda x: lax.integer_pow(x, -3), FLOATS),
    (lambda x: lax.reduce_precision(x, 5, 10), FLOATS[2:]), (lambda x: lax.reduce_precision(x, 8, 7), FLOATS[2:]),
    (lambda x: lax.reduce_precision(x, 4, 3), FLOATS),
    (lambda x: lax.clamp(x.dtype.type(1), x, x.dtype.type(3)), INTS + FLOATS[2:]),
]  # fmt: skip
_MATH = [
    lax.exp, lax.exp2, lax.expm1, lax.log, lax.log1p, lax.sqrt, lax.rsqrt, lax.cbrt, lax.sin, lax.cos, lax.tan, lax.asin,
    lax.acos, lax.atan, lax.sinh, lax.cosh, lax.tanh, lax.asinh, lax.acosh, lax.atanh, lax.logistic, lax.erf, lax.erfc,
    lax.erf_inv, lax.lgamma, lax.digamma, lax.bessel_i0e, lax.bessel_i1e,
]  # fmt: skip
_BINARY = [
    (lax.add, _NUMBERS), (lax.sub, _NUMBERS), (lax.mul, _NUMBERS), (lax.div, INTS + FLOATS + COMPLEX),
    (lax.rem, INTS + FLOATS[2:]), (lax.max, INTS + FLOATS + [BOOL]), (lax.min, INTS + FLOATS + [BOOL]),
    (lax.bitwise_and, INTS + [BOOL]), (lax.bitwise_or, INTS + [BOOL]), (lax.bitwise_xor, INTS + [BOOL]),
    (lax.shift_left, INTS), (lax.shift_right_logical, INTS), (lax.shift_right_arithmetic, INTS),
    (lax.eq, _NUMBERS + [BOOL]), (lax.ne, _NUMBERS + [BOOL]), (lax.lt, INTS + FLOATS), (lax.le, INTS + FLOATS),
    (lax.gt, INTS + FLOATS), (lax.ge, INTS + FLOATS), (lax.nextafter, FLOATS[1:]), (lax.atan2, FLOATS[2:]),
    (lax.complex, FLOATS[2:]), (lax.pow, FLOATS[2:]),
]  # fmt: skip

EXACT: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = {}
"""name -> (function, inputs): results equal JAX's bit for bit (NaN for NaN)."""
CLOSE: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = {}
"""The same for rounded functions: within a few ulp of JAX's."""


def _label(fun) -> str:
    return getattr(fun, "__name__", "fun").strip("<>")


for _i, (_fun, _dtypes) in enumerate(_UNARY):
    for _d in _dtypes:
        _table = CLOSE if _d.kind == "c" or (_i in (15, 16) and _d.kind in "fV") else EXACT
        _table[f"{_label(_fun)}{_i}/{_d}"] = (_fun, (values(_d),))
for _fun, _dtypes in _BINARY:
    for _d in _dtypes:
        _rounded = _d.kind == "c" or _fun in (lax.atan2, lax.pow)
        (CLOSE if _rounded else EXACT)[f"{_label(_fun)}/{_d}"] = (_fun, pairs(_d))
for _fun in _MATH:
    for _d in FLOATS[2:]:
        CLOSE[f"{_label(_fun)}/{_d}"] = (_fun, (values(_d),))
for _fun in _MATH[:21]:
    if _fun not in (lax.cbrt,):
        CLOSE[f"{_label(_fun)}/complex128"] = (_fun, (values(np.complex128),))
for _from in INTS + FLOATS + [BOOL]:
    EXACT[f"convert/{_from}"] = (
        lambda x: [lax.convert_element_type(x, t) for t in INTS + FLOATS + [BOOL]], (values(_from),),
    )  # fmt: skip
for _from, _to in [
    ("f4", "i4"),
    ("f8", "u8"),
    ("f4", "u1"),
    ("i8", "i2"),
    ("u2", "f2"),
    ("i4", "f4"),
    ("f8", "f4"),
]:
    EXACT[f"bitcast/{_from}-{_to}"] = (
        lambda x, t=_to: lax.bitcast_convert_type(x, np.dtype(t)),
        (values(_from),),
    )
EXACT["bitcast/u1-u4"] = (
    lambda x: lax.bitcast_convert_type(x, np.uint32),
    (np.arange(12, dtype=np.uint8).reshape(3, 4),),
)
for _d in ("i4", "u8", "i8", "u1"):
    EXACT[f"integer_power/{_d}"] = (lambda x, y: jnp.power(x, y), pairs(_d))
for _d in ("i4", "u4", "i8", "u8", "i1"):
    EXACT[f"mulhi/{_d}"] = (lax.mulhi, pairs(_d))

_X = np.arange(24.0, dtype=np.float32).reshape(2, 3, 4)
_I = np.array([[0, 2], [1, -1], [5, 0]], np.int32)


def _gather(mode, **kw):
    numbers = lax.GatherDimensionNumbers(offset_dims=(1,), collapsed_slice_dims=(0, 2), start_index_map=(0, 2))
    return lambda x, i: lax.gather(x, i, numbers, (1, 3, 1), mode=mode, **kw)


def _scatter(fun, mode, **kw):
    numbers = lax.ScatterDimensionNumbers(
        update_window_dims=(1,), inserted_window_dims=(0, 2), scatter_dims_to_operand_dims=(0, 2)
    )
    return lambda x, i, u: fun(x, i, u, numbers, mode=mode, **kw)


_U = np.arange(9.0, dtype=np.float32).reshape(3, 3)
for _mode in ("clip", "fill", "promise_in_bounds"):
    EXACT[f"gather/{_mode}"] = (_gather(_mode), (_X, _I))
    EXACT[f"gather/{_mode}-int"] = (_gather(_mode), (_X.astype(np.int16), _I))
    EXACT[f"gather/{_mode}-uint8-index"] = (_gather(_mode), (_X, _I.astype(np.uint8)))
    EXACT[f"gather/{_mode}-window"] = (
        lambda x, i, m=_mode: lax.gather(x, i, lax.GatherDimensionNumbers((0, 1, 2), (), (0, 1, 2)), (1, 2, 2), mode=m),
        (_X, np.array([[0, 1, 1], [1, 9, 0], [-3, 0, 3]], np.int64)),
    )
    for _fun in (
        lax.scatter,
        lax.scatter_add,
        lax.scatter_mul,
        lax.scatter_min,
        lax.scatter_max,
        lax.scatter_sub,
    ):
        if _mode != "promise_in_bounds":
            EXACT[f"{_label(_fun)}/{_mode}"] = (_scatter(_fun, _mode), (_X, _I, _U))
            EXACT[f"{_label(_fun)}/{_mode}-int"] = (
                _scatter(_fun, _mode), (_X.astype(np.int32), np.array([[0, 1], [0, 1], [1, 3]]), _U.astype(np.int32)),
            )  # fmt: skip
EXACT["gather/fill-value"] = (_gather("fill", fill_value=-7), (_X, _I))
EXACT["gather/batched"] = (
    jax.vmap(lambda x, i: x[i], (0, 0)), (_X, np.array([[0, 9, 1], [2, -1, 0]], np.int32)),
)  # fmt: skip
EXACT["gather/take_along"] = (lambda x, i: jnp.take_along_axis(x, i, 2), (_X, np.array([[[3, 1]] * 3] * 2)))
EXACT["scatter/batched"] = (
    jax.vmap(lambda x, i, u: x.at[i].add(u)), (_X, np.array([[0, 2], [5, 1]], np.int32), np.ones((2, 2, 4), np.float32)),
)  # fmt: skip
EXACT["scatter_apply"] = (lambda x: x.at[jnp.array([0, 1, 1])].apply(lambda v: 2 * v + 1), (_X,))
EXACT["scatter/empty"] = (lambda x, i: x.at[i].set(1.0), (_X, np.zeros((0,), np.int32)))
for _d in ("i1", "i4", "u4", "i8", "u8"):
    _starts = [np.array(v).astype(_d) for v in (-2, 1, 100)] if _d[0] == "i" else [np.array(v, _d) for v in (200, 1, 2)]
    EXACT[f"dynamic_slice/{_d}"] = (
        lambda x, a, b, c: lax.dynamic_slice(x, (a, b, c), (1, 2, 3)),
        (_X, *_starts),
    )
    EXACT[f"dynamic_update_slice/{_d}"] = (
        lambda x, a, b, c: lax.dynamic_update_slice(x, jnp.full((1, 2, 3), 9, x.dtype), (a, b, c)), (_X, *_starts),
    )  # fmt: skip

_R = np.random.RandomState(0)
_N = _R.randn(3, 5).astype(np.float32)
_N[0, 2], _N[1, 1], _N[2, 0] = np.nan, 0.0, -0.0
for _name in ("sum", "prod", "max", "min"):
    CLOSE[f"reduce_{_name}"] = (lambda x, n=_name: getattr(jnp, n)(x, axis=1), (_N,))
    for _d in ("i1", "u4"):
        EXACT[f"reduce_{_name}/{_d}"] = (
            lambda x, n=_name: getattr(lax, f"reduce_{n}")(x, (0,)), (values(_d),),
        )  # fmt: skip
for _name in ("and", "or", "xor"):
    for _d in ("i4", "u8", "bool"):
        _f = getattr(lax, f"reduce_{_name}")
        EXACT[f"reduce_{_name}/{_d}"] = (lambda x, f=_f: f(x, (0,)), (values(_d),))
for _name in ("max", "min", "sum", "prod"):
    for _d in (np.float32, np.int8, np.uint16, bool):
        if _d is not bool or _name in ("max", "min"):
            EXACT[f"reduce_{_name}/empty-{np.dtype(_d)}"] = (
                lambda x, n=_name: getattr(lax, f"reduce_{n}")(x, (1,)), (np.zeros((2, 0, 3), _d),),
            )  # fmt: skip
EXACT["reduce_or/empty"] = (lambda x: lax.reduce_or(x, (0,)), (np.zeros((0, 2), bool),))
EXACT["reduce_and/empty"] = (lambda x: lax.reduce_and(x, (0,)), (np.zeros((0, 2), bool),))
for _f in (lax.argmax, lax.argmin):
    EXACT[f"{_label(_f)}/nan"] = (lambda x, f=_f: f(x, 1, np.int32), (_N,))
    EXACT[f"{_label(_f)}/ties"] = (lambda x, f=_f: f(x, 0, np.uint8), (np.array([3, 1, 3, 1], np.int64),))
for _f in (lax.cumsum, lax.cumprod, lax.cummax, lax.cummin, lax.cumlogsumexp):
    for _reverse in (False, True):
        CLOSE[f"{_label(_f)}/{_reverse}"] = (lambda x, f=_f, r=_reverse: f(x, axis=1, reverse=r), (_N,))
EXACT["cumsum/int8"] = (lambda x: lax.cumsum(x), (values("i1"),))
EXACT["cummax/empty"] = (lambda x: lax.cummax(x), (np.zeros((0,), np.float32),))
EXACT["reduce/argmin pair"] = (
    lambda x: lax.reduce(
        (x, lax.iota(np.int32, 7)), (np.float32(np.inf), np.int32(0)),
        lambda a, b: (jnp.minimum(a[0], b[0]), jnp.where(a[0] <= b[0], a[1], b[1])), (0,),
    ),
    (np.array([3, 1, 4, 1, 5, 9, 2], np.float32),),
)  # fmt: skip

EXACT["sort/float"] = (lambda x: lax.sort(x, dimension=1), (_N,))
EXACT["sort/complex"] = (lambda x: lax.sort(x), (values(np.complex64),))
EXACT["sort/two keys"] = (
    lambda a, b, c: lax.sort((a, b, c), num_keys=2), (np.array([1, 0, 1, 0, 1]), np.array([2.0, np.nan, -0.0, 5, 0.0]), np.arange(5)),
)  # fmt: skip
EXACT["sort/one key of two"] = (
    lambda a, b: lax.sort((a, b), num_keys=1),
    (np.array([1, 0, 1, 0, 1]), np.arange(5)),
)
for _d in ("f4", "i1", "u4"):
    EXACT[f"top_k/{_d}"] = (
        lambda x: lax.top_k(x, 3),
        (values(_d)[:12] if _d != "f4" else np.nan_to_num(_N, nan=np.inf),),
    )
_ZEROS = np.array([-0.0, 0, 1, -0.0, 0, -1], np.float32)  # XLA has 0 before -0, and -NaN last
EXACT["top_k/signs"] = (lambda x: lax.top_k(x, 7), (np.append(_ZEROS, [-np.nan, np.nan]).astype(np.float32),))
EXACT["approx_max_k/zeros"] = (lambda x: lax.approx_max_k(x, 4), (_ZEROS,))
EXACT["approx_max_k"] = (lambda x: lax.approx_max_k(x, 2), (np.array([3.0, 9, 1, 7], np.float32),))
EXACT["approx_min_k"] = (lambda x: lax.approx_min_k(x, 2), (np.array([3.0, 9, 1, 7], np.float32),))
EXACT["pad/mixed"] = (lambda x: lax.pad(x, np.float32(9), ((1, -1, 0), (0, 2, 1), (-1, 0, 2))), (_X,))
EXACT["pad/crop all"] = (lambda x: lax.pad(x, np.float32(9), ((-1, -1, 0), (0, 0, 0), (0, 0, 0))), (_X,))
EXACT["tile"] = (lambda x: jnp.tile(x, (2, 1, 2)), (_X,))
EXACT["split"] = (lambda x: lax.split(x, (1, 3), axis=2), (_X,))
EXACT["stack"] = (lambda x: jnp.stack([x, x + 1], axis=1), (_X,))
EXACT["unstack"] = (lambda x: jnp.unstack(x, axis=1), (_X,))
EXACT["rev"] = (lambda x: lax.rev(x, (0, 2)), (_X,))
EXACT["select_n/int"] = (
    lambda w, a: lax.select_n(w, a, a + 1, a + 2), (np.array([0, 2, 1, 2], np.int32), np.arange(4.0)),
)  # fmt: skip
EXACT["concatenate/empty"] = (lambda x: lax.concatenate([x, x[:, :0], x], 1), (_X,))

_A, _B = _R.randn(2, 3, 4), _R.randn(4, 2, 5)
CLOSE["dot_general/batch"] = (lambda a, b: lax.dot_general(a, b, (((2,), (0,)), ((0,), (1,)))), (_A, _B))
CLOSE["dot_general/half"] = (
    lambda a, b: lax.dot_general(a, b, (((2,), (0,)), ((), ())), preferred_element_type=np.float32),
    (_A.astype(ml_dtypes.bfloat16), _B.astype(ml_dtypes.bfloat16)),
)  # fmt: skip
EXACT["dot_general/int8"] = (
    lambda a, b: lax.dot(a, b, preferred_element_type=np.int32), (np.full((2, 3), 100, np.int8), np.full((3, 2), 100, np.int8)),
)  # fmt: skip
EXACT["dot_general/wrap"] = (lax.dot, (np.full((2, 3), 100, np.int8), np.full((3, 2), 100, np.int8)))
EXACT["dot_general/bool"] = (lax.dot, (np.array([[True, False]]), np.array([[False], [True]])))
CLOSE["dot_general/complex"] = (lambda a: jnp.einsum("ij,kj->ik", a, a.conj()), (_A[0] + 1j * _A[1],))
EXACT["dot_general/empty"] = (lax.dot, (np.zeros((2, 0)), np.zeros((0, 3))))
_IMG, _KER = _R.randn(4, 6, 7, 4), _R.randn(3, 2, 2, 6)
for _name, _kw in {
    "groups": dict(feature_group_count=2), "strides": dict(window_strides=(2, 3), padding=((1, -1), (2, 0)), feature_group_count=2),
    "dilated": dict(lhs_dilation=(2, 1), rhs_dilation=(1, 3), feature_group_count=2),
}.items():  # fmt: skip
    _kw = {"window_strides": (1, 1), "padding": ((0, 1), (1, 0)), **_kw}
    CLOSE[f"conv/{_name}"] = (
        lambda x, w, kw=_kw: lax.conv_general_dilated(x, w, dimension_numbers=("NHWC", "HWIO", "NHWC"), **kw), (_IMG, _KER),
    )  # fmt: skip
CLOSE["conv/batch groups"] = (
    lambda x, w: lax.conv_general_dilated(x, w, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"), batch_group_count=2),
    (_IMG[..., :2], _KER),
)  # fmt: skip
CLOSE["conv/complex"] = (
    lambda x, w: lax.conv_general_dilated(x, w, (1,), "SAME"),
    (_R.randn(2, 3, 5) + 1j, _R.randn(4, 3, 2) + 2j),
)
_P = _R.randn(2, 5, 6)
for _name, _op, _init in (
    ("add", lax.add, 0.0),
    ("max", lax.max, -np.inf),
    ("min", lax.min, np.inf),
    ("mul", lax.mul, 1.0),
):
    CLOSE[f"reduce_window/{_name}"] = (
        lambda x, o=_op, i=_init: lax.reduce_window(
            x,
            i,
            o,
            (1, 2, 3),
            (1, 2, 1),
            ((0, 0), (1, 1), (0, 2)),
            base_dilation=(1, 2, 1),
            window_dilation=(1, 1, 2),
        ),
        (_P,),
    )
EXACT["reduce_window/int"] = (
    lambda x: lax.reduce_window(x, np.int8(-128), lax.max, (2,), (1,), "SAME"),
    (values("i1"),),
)
_POOL = lambda x: lax.reduce_window(x, -np.inf, lax.max, (1, 2, 2), (1, 2, 2), ((0, 0), (1, 0), (0, 0)))
CLOSE["select_and_scatter_add"] = (jax.grad(lambda x: jnp.sum(_POOL(x) ** 2)), (_P,))
CLOSE["select_and_scatter_add/ties"] = (jax.grad(lambda x: jnp.sum(_POOL(x) ** 2)), (np.round(_P),))
CLOSE["select_and_gather_add"] = (lambda x: jax.jvp(_POOL, (x,), (jnp.sin(x),)), (_P,))
