"""Operators on numbers and on elements, dtypes and creation."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ..errors import UnsupportedOperationError
from .import_values import (
    Items,
    Num,
    as_array,
    is_number,
    jax_dtype,
    number,
    promote,
    static_int,
    table,
    together,
)

__all__ = ["OPERATORS"]

op, OPERATORS = table()

# ---- numbers


def numeric(fun: Callable, kind: Any = None) -> Callable:
    """An operator on TorchScript numbers: Python's where they are known."""

    def run(*xs: Any) -> Any:
        if not any(isinstance(x, Num) for x in xs):
            return fun(*xs)
        out = fun(*[as_array(x) for x in xs])
        return Num(out) if kind is None else number(out, kind)

    return run


_ARITHMETIC = {"add": operator.add, "sub": operator.sub, "mul": operator.mul}
_COMPARE = {
    "eq": jnp.equal,
    "ne": jnp.not_equal,
    "lt": jnp.less,
    "le": jnp.less_equal,
    "gt": jnp.greater,
    "ge": jnp.greater_equal,
}
_PYTHON = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}


def _numbers(*xs: Any) -> bool:
    return all(is_number(x) for x in xs)


def scaled(y: Any, alpha: Any) -> Any:
    return y if not isinstance(alpha, Num) and alpha == 1 else OPERATORS["aten::mul"](y, alpha)


def _sum_or_or(x, y):
    return jnp.logical_or(x, y) if x.dtype == bool else x + y


@op("add")
def _add(x, y, alpha=1):
    if isinstance(x, (list, Items)):
        return [*x, *y] if isinstance(x, list) else Items([*x.parts, *y.parts])
    if isinstance(x, str):
        return x + y
    return numeric(operator.add)(x, y) if _numbers(x, y) else together(_sum_or_or, x, scaled(y, alpha))


@op("sub")
def _sub(x, y, alpha=1):
    return numeric(operator.sub)(x, y) if _numbers(x, y) else together(operator.sub, x, scaled(y, alpha))


@op("rsub")
def _rsub(x, y, alpha=1):
    return together(operator.sub, y, scaled(x, alpha))


@op("mul")
def _mul(x, y):
    if isinstance(x, list):
        return x * static_int(y, "a list's length")
    return (
        numeric(operator.mul)(x, y)
        if _numbers(x, y)
        else together(lambda a, b: a & b if a.dtype == bool else a * b, x, y)
    )


def _rounded_quotient(rounding: Any) -> Callable:
    if rounding == "floor":
        return jnp.floor_divide
    return lambda a, b: lax.div(a, b) if jnp.issubdtype(a.dtype, jnp.integer) else jnp.trunc(a / b)


@op("div", "true_divide", "divide")
def _div(x, y, rounding=None):
    if _numbers(x, y):
        return numeric(operator.truediv)(x, y)
    if rounding is not None:
        return together(_rounded_quotient(rounding), x, y)
    return together(operator.truediv, x, y, floating=True)


@op("floordiv", "floor_divide")
def _floor_divide(x, y):
    return numeric(operator.floordiv)(x, y) if _numbers(x, y) else together(jnp.floor_divide, x, y)


@op("remainder")
def _remainder(x, y):
    return numeric(operator.mod)(x, y) if _numbers(x, y) else together(jnp.mod, x, y)


@op("fmod")
def _fmod(x, y):
    return (
        numeric(math.fmod if not isinstance(x, Num) else jnp.fmod)(x, y) if _numbers(x, y) else together(lax.rem, x, y)
    )


@op("pow")
def _pow(x, y):
    if _numbers(x, y):
        return numeric(operator.pow)(x, y)
    if isinstance(y, int) and not isinstance(y, bool) and not is_number(x):
        return x**y
    return together(jnp.power, x, y)


for _name in _COMPARE:

    @op(_name)
    def _compare(x, y, name=_name):
        if _numbers(x, y):
            return numeric(_PYTHON[name], bool)(x, y)
        if not all(is_number(v) or hasattr(v, "dtype") for v in (x, y)):
            return _PYTHON[name](x, y)  # strings, lists of ints, None
        return together(_COMPARE[name], x, y)


for _names, _fun in (
    (("__and__", "bitwise_and"), operator.and_),
    (("__or__", "bitwise_or"), operator.or_),
    (("__xor__", "bitwise_xor"), operator.xor),
):
    for _name in _names:
        OPERATORS[f"aten::{_name}"] = lambda x, y, fun=_fun: (
            numeric(fun)(x, y) if _numbers(x, y) else together(fun, x, y)
        )


@op("__not__")
def _not(x):
    return numeric(operator.not_ if not isinstance(x, Num) else jnp.logical_not, bool)(x)


@op("__is__")
def _is(x, y):
    return x is y


@op("__isnot__")
def _is_not(x, y):
    return x is not y


@op("__contains__")
def _contains(container, item):
    return item in container


@op("bitwise_left_shift", "__lshift__")
def _left(x, y):
    return numeric(operator.lshift)(x, y) if _numbers(x, y) else together(lax.shift_left, x, y)


@op("bitwise_right_shift", "__rshift__")
def _right(x, y):
    return numeric(operator.rshift)(x, y) if _numbers(x, y) else together(jnp.right_shift, x, y)


@op("prim::min")
def _min_number(x, y=None):
    return min(x) if y is None else numeric(min if not any(isinstance(v, Num) for v in (x, y)) else jnp.minimum)(x, y)


@op("prim::max")
def _max_number(x, y=None):
    return max(x) if y is None else numeric(max if not any(isinstance(v, Num) for v in (x, y)) else jnp.maximum)(x, y)


@op("Int", "IntImplicit")
def _int(x):
    return (
        number(lax.convert_element_type(as_array(x), jnp.int64), int)
        if not isinstance(x, (bool, int, float))
        else int(x)
    )


@op("Float", "FloatImplicit")
def _float(x):
    return number(as_array(x).astype(jnp.float64), float) if not isinstance(x, (bool, int, float)) else float(x)


@op("Bool")
def _bool(x):
    return number(as_array(x) != 0, bool) if not isinstance(x, (bool, int, float)) else bool(x)


@op("item", "ScalarImplicit")
def _item(x):
    kind = {"b": bool, "i": int, "u": int}.get(x.dtype.kind, float)
    return number(x, kind)


OPERATORS["prim::NumToTensor"] = lambda x: as_array(x)
OPERATORS["aten::floor"] = lambda x: (
    numeric(math.floor if not isinstance(x, Num) else jnp.floor)(x) if is_number(x) else jnp.floor(x)
)
OPERATORS["aten::ceil"] = lambda x: (
    numeric(math.ceil if not isinstance(x, Num) else jnp.ceil)(x) if is_number(x) else jnp.ceil(x)
)


# ---- elementwise


_UNARY = {
    "exp": jnp.exp, "expm1": jnp.expm1, "exp2": jnp.exp2, "log": jnp.log, "log1p": jnp.log1p, "log2": jnp.log2,
    "log10": jnp.log10, "sqrt": jnp.sqrt, "rsqrt": lax.rsqrt, "sin": jnp.sin, "cos": jnp.cos, "tan": jnp.tan,
    "asin": jnp.arcsin, "acos": jnp.arccos, "atan": jnp.arctan, "sinh": jnp.sinh, "cosh": jnp.cosh, "tanh": jnp.tanh,
    "asinh": jnp.arcsinh, "acosh": jnp.arccosh, "atanh": jnp.arctanh, "erf": jax.scipy.special.erf,
    "erfc": jax.scipy.special.erfc, "erfinv": jax.scipy.special.erfinv, "lgamma": jax.scipy.special.gammaln,
    "digamma": jax.scipy.special.digamma, "sigmoid": jax.nn.sigmoid, "reciprocal": lambda x: 1 / x,
}  # fmt: skip


def _unary(name: str) -> Callable:
    fun = _UNARY[name]

    def run(x):
        if is_number(x) and not isinstance(x, Num) and hasattr(math, name):
            return getattr(math, name)(x)
        return Num(fun(x.array)) if isinstance(x, Num) else together(fun, x, floating=True)

    return run


for _name in _UNARY:
    OPERATORS[f"aten::{_name}"] = _unary(_name)


def _sign(x):
    return (
        jnp.where(jnp.isnan(x), 0, jnp.sign(x)).astype(x.dtype)
        if jnp.issubdtype(x.dtype, jnp.floating)
        else jnp.sign(x)
    )


_PLAIN = {
    "neg": operator.neg, "abs": jnp.abs, "sign": _sign, "sgn": jnp.sign, "round": jnp.round, "trunc": jnp.trunc,
    "frac": lambda x: x - jnp.trunc(x), "square": jnp.square, "relu": lambda x: jnp.maximum(x, 0), "isfinite": jnp.isfinite,
    "isnan": jnp.isnan, "isinf": jnp.isinf, "logical_not": jnp.logical_not, "bitwise_not": jnp.invert, "real": jnp.real,
    "imag": jnp.imag, "conj_physical": jnp.conj, "conj": jnp.conj, "angle": jnp.angle, "detach": lax.stop_gradient,
    "softsign": jax.nn.soft_sign, "log_sigmoid": jax.nn.log_sigmoid, "selu": jax.nn.selu, "mish": jax.nn.mish,
    "resolve_conj": lambda x: x, "resolve_neg": lambda x: x, "alias": lambda x: x, "hardsigmoid": jax.nn.hard_sigmoid,
    "silu": jax.nn.silu,
}  # fmt: skip


def _plain(fun: Callable) -> Callable:
    return lambda x: numeric(fun)(x) if is_number(x) else fun(x)


for _name, _fun in _PLAIN.items():
    OPERATORS[f"aten::{_name}"] = _plain(_fun)

for _name, _fun in {
    "atan2": jnp.arctan2, "maximum": jnp.maximum, "minimum": jnp.minimum, "nextafter": jnp.nextafter, "hypot": jnp.hypot,
    "logaddexp": jnp.logaddexp, "fmax": jnp.fmax, "fmin": jnp.fmin,
}.items():  # fmt: skip
    OPERATORS[f"aten::{_name}"] = lambda x, y, fun=_fun: together(fun, x, y)
for _name, _fun in {
    "logical_and": jnp.logical_and,
    "logical_or": jnp.logical_or,
    "logical_xor": jnp.logical_xor,
}.items():
    OPERATORS[f"aten::{_name}"] = lambda x, y, fun=_fun: fun(x, y)
OPERATORS["aten::complex"] = lambda x, y: lax.complex(x, y)


@op("gelu")
def _gelu(x, approximate="none"):
    return jax.nn.gelu(x, approximate=approximate == "tanh")


@op("softplus")
def _softplus(x, beta=1, threshold=20):
    return jnp.where(x * beta > threshold, x, jnp.logaddexp(x * beta, 0.0) / beta)


@op("leaky_relu")
def _leaky_relu(x, slope=0.01):
    return jnp.where(x > 0, x, x * slope)


@op("elu")
def _elu(x, alpha=1, scale=1, input_scale=1):
    return jnp.where(x > 0, scale * x, scale * alpha * jnp.expm1(x * input_scale))


@op("hardtanh", "clamp", "clip")
def _clamp(x, low=None, high=None):
    if low is not None:
        x = together(jnp.maximum, x, low)
    return x if high is None else together(jnp.minimum, x, high)


OPERATORS["aten::clamp_min"] = lambda x, low: _clamp(x, low)
OPERATORS["aten::clamp_max"] = lambda x, high: _clamp(x, None, high)


@op("where")
def _where(mask, x, y):
    common = jax.dtypes.canonicalize_dtype(promote(x, y))
    return jnp.where(mask, as_array(x).astype(common), as_array(y).astype(common))


@op("masked_fill")
def _masked_fill(x, mask, value):
    return jnp.where(mask, as_array(value).astype(x.dtype), x)


@op("lerp")
def _lerp(x, y, weight):
    return x + as_array(weight).astype(x.dtype) * (y - x)


@op("addcmul")
def _addcmul(x, a, b, value=1):
    return x + value * a * b


# ---- dtypes, creation


@op("to")
def _to(x, *rest):
    """Every overload: the dtype is an int or a torch dtype among the arguments, or another tensor."""
    for r in rest:
        if hasattr(r, "dtype") and hasattr(r, "shape"):
            return lax.convert_element_type(x, r.dtype)
    wanted = [r for r in rest if type(r) is int]
    return x if not wanted else _converted(as_array(x), jax_dtype(wanted[0]))


def _converted(x, dtype):
    return (
        x.real.astype(dtype)
        if jnp.iscomplexobj(x) and not jnp.issubdtype(dtype, jnp.complexfloating)
        else x.astype(dtype)
    )


OPERATORS["aten::type_as"] = lambda x, y: _converted(x, y.dtype)
for _name, _number in {
    "float": 6,
    "double": 7,
    "int": 3,
    "long": 4,
    "half": 5,
    "bool": 11,
    "bfloat16": 15,
}.items():
    OPERATORS[f"aten::{_name}"] = lambda x, n=_number: _converted(x, jax_dtype(n))


@op("view_copy")
def _view_copy(x, to):
    if isinstance(to, (list, tuple)):
        return jnp.reshape(x, shape_of(to))
    dtype = jax.dtypes.canonicalize_dtype(jax_dtype(to))
    return lax.bitcast_convert_type(x, dtype)


def shape_of(given) -> tuple[int, ...]:
    return tuple(static_int(n, "a shape") for n in (given if isinstance(given, (list, tuple)) else [given]))


def _made(dtype, default=None):
    return jax.dtypes.canonicalize_dtype(
        jax_dtype(dtype if dtype is not None else 6) if dtype is not None or default is None else default
    )


@op("zeros")
def _zeros(size, dtype=None, *_):
    return jnp.zeros(shape_of(size), _made(dtype))


@op("ones")
def _ones(size, dtype=None, *_):
    return jnp.ones(shape_of(size), _made(dtype))


@op("rand")
def _rand(size, dtype=None, *_):
    if 0 not in shape_of(size):
        raise UnsupportedOperationError("aten::rand draws random numbers, which a JAX function cannot")
    return jnp.zeros(shape_of(size), _made(dtype))


@op("full")
def _full(size, value, *rest):
    if dtype_of(rest) is None:
        kind = {bool: 11, int: 4}.get(type(value), 6)
        return jnp.full(shape_of(size), as_array(value), _made(kind))
    return jnp.full(shape_of(size), as_array(value), _made(dtype_of(rest)))


def dtype_of(rest) -> Any:
    """The dtype among names, dtype, layout, device, pin_memory: the first int."""
    return next((r for r in rest if type(r) is int), None)


for _name, _value in (("zeros_like", 0), ("ones_like", 1)):
    OPERATORS[f"aten::{_name}"] = lambda x, dtype=None, *_, value=_value: jnp.full(
        x.shape, value, _made(dtype, x.dtype)
    )
OPERATORS["aten::full_like"] = lambda x, value, dtype=None, *_: jnp.full(
    x.shape, as_array(value), _made(dtype, x.dtype)
)
OPERATORS["aten::new_zeros"] = lambda x, size, dtype=None, *_: jnp.zeros(shape_of(size), _made(dtype, x.dtype))
OPERATORS["aten::new_full"] = lambda x, size, value, dtype=None, *_: jnp.full(
    shape_of(size), as_array(value), _made(dtype, x.dtype)
)
OPERATORS["aten::new_ones"] = lambda x, size, dtype=None, *_: jnp.ones(shape_of(size), _made(dtype, x.dtype))


@op("scalar_tensor", "tensor")
def _scalar_tensor(value, dtype=None, *_):
    if dtype is not None:
        return jnp.asarray(as_array(value), _made(dtype))
    flat = as_array(value)
    return flat.astype(jnp.float32) if jnp.issubdtype(flat.dtype, jnp.floating) else flat


@op("arange")
def _arange(*args):
    """start and step are optional; the dtype follows the numbers, then come dtype, layout, device, pin_memory."""
    split = next(k for k in range(len(args), -1, -1) if len(args) - k == 4)
    numbers, dtype = args[:split], args[split]
    values = [static_int(n, "a range") if not isinstance(n, float) else n for n in numbers]
    kind = dtype if dtype is not None else (6 if any(isinstance(v, float) for v in values) else 4)
    return jnp.arange(*values, dtype=_made(kind))


@op("linspace")
def _linspace(start, stop, steps, dtype=None, *_):
    return jnp.linspace(start, stop, static_int(steps, "steps"), dtype=_made(dtype))


@op("eye")
def _eye(n, *rest):
    columns = rest[0] if len(rest) == 5 else None
    return jnp.eye(n, columns, dtype=_made(dtype_of(rest[1:] if columns is not None else rest)))
