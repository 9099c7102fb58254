"""Elementwise functions, activations, comparisons and mask logic, with Quabla's dtype rules and gradient conventions.

Every function takes arrays, tracers, Python numbers and nested lists, is elementwise with NumPy's broadcasting, keeps
float32 in float32, works in both derivative modes at every order and under vmap, and costs what its jax.numpy
counterpart costs. A domain error gives NaN or inf, never an exception; a mask as an arithmetic operand raises
ValueError, and so do a float64 and a float32 operand together.
"""

from __future__ import annotations

import math as _math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from . import _kinks
from .arrays import asarray, common_shape, concrete, is_number, kind_name
from .dtypes import short
from .promotion import align, as_operand, beside, keeps_weak, numeric, operands, weak_scalar

__all__ = [
    "abs", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctanh", "atan2", "cbrt", "ceil", "clip", "cos", "cosh",
    "equal", "erf", "erfc", "exp", "exp2", "expm1", "floor", "fmod", "gelu", "greater", "greater_equal", "hypot",
    "isfinite", "isinf", "isnan", "less", "less_equal", "log", "log10", "log1p", "log2", "logaddexp", "logical_and",
    "logical_not", "logical_or", "maximum", "minimum", "mod", "nan_to_num", "not_equal", "power", "reciprocal", "relu",
    "remainder", "round", "sigmoid", "sign", "silu", "sin", "sinh", "softplus", "sqrt", "square", "tan", "tanh", "where",
]  # fmt: skip


def _call(function: Any, name: str) -> None:
    """Names a function and those that it wraps, so that Python's own errors about its arguments name it as well."""
    while function is not None:
        function.__name__ = function.__qualname__ = name
        function = getattr(function, "__wrapped__", None)


def _unary(name: str, fun, note: str = ""):
    @concrete
    @keeps_weak
    def function(x: Any) -> jax.Array:
        return fun(numeric(name, x))

    _call(function, name)
    function.__doc__ = f"Elementwise `{name}` of `x` (any shape; the result has its shape and dtype).{note}"
    return function


def _relu(x):
    return jnp.where(x <= 0, 0, x)


def _softplus(x):
    return jnp.logaddexp(x, jnp.zeros_like(x))


def _log2(x):
    return jnp.log2(x)


abs = _unary("abs", _kinks.absolute, " The slope is -1 at zero and at NaN; the second derivative is 0.")
arccos = _unary("arccos", jnp.arccos)
arccosh = _unary("arccosh", _kinks.arccosh)
arcsin = _unary("arcsin", jnp.arcsin)
arcsinh = _unary("arcsinh", jnp.arcsinh)
arctan = _unary("arctan", jnp.arctan)
arctanh = _unary("arctanh", jnp.arctanh)
cbrt = _unary("cbrt", jnp.cbrt, " The slope at zero is infinite.")
ceil = _unary("ceil", jnp.ceil)
cos = _unary("cos", jnp.cos)
cosh = _unary("cosh", jnp.cosh)
erf = _unary("erf", lax.erf)
erfc = _unary("erfc", lax.erfc)
exp = _unary("exp", jnp.exp)
expm1 = _unary("expm1", jnp.expm1)
floor = _unary("floor", jnp.floor)
log = _unary("log", jnp.log, " The slope is 1/x for negative x too, where the value is NaN.")
log10 = _unary("log10", jnp.log10)
log1p = _unary("log1p", jnp.log1p)
log2 = _unary("log2", _log2)
relu = _unary("relu", _relu, " The slope is 0 at zero and 1 at NaN.")
round = _unary("round", jnp.round, " Half to even.")
sigmoid = _unary("sigmoid", lax.logistic)
sin = _unary("sin", jnp.sin)
sinh = _unary("sinh", jnp.sinh)
softplus = _unary("softplus", _softplus, " log(1 + exp(x)) without overflow.")
sqrt = _unary("sqrt", _kinks.root, " The slope at zero is 0, of every order.")
square = _unary("square", jnp.square)
sign = _unary("sign", jnp.sign, " NaN at NaN; the derivative is 0.")
tan = _unary("tan", jnp.tan)
tanh = _unary("tanh", jnp.tanh)


@concrete
def reciprocal(x: Any) -> jax.Array:
    """Elementwise 1 / x; a mask counts as 0 and 1."""
    x = as_operand(x)
    return 1.0 / (weak_scalar(1.0) * x if x.dtype == np.bool_ else numeric("reciprocal", x))


@concrete
def silu(x: Any) -> jax.Array:
    """SiLU, x * sigmoid(x)."""
    x = numeric("sigmoid", x)
    return x * lax.logistic(x)


@concrete
def gelu(x: Any, approximate: bool = True) -> jax.Array:
    """GELU: the tanh form, evaluated as x * sigmoid(2u) so that the far negative tail keeps its relative accuracy;
    with `approximate=False` the exact 0.5 x erfc(-x / sqrt 2)."""
    x = numeric("mul", x)
    if not approximate:
        return 0.5 * x * lax.erfc(-x * _math.sqrt(0.5))
    return x * lax.logistic(2.0 * _math.sqrt(2.0 / _math.pi) * (x + 0.044715 * (x * x * x)))


def _number_second(x1: Any, x2: Any) -> tuple[Any, Any]:
    """For a symmetric function: a Python number is always the second operand, which gets the slope of a tie. Of two
    numbers both are floats, True too."""
    if is_number(x1) and is_number(x2):
        return asarray(float(x1)), x2
    return (x2, x1) if is_number(x1) else (x1, x2)


@concrete
def maximum(x1: Any, x2: Any) -> jax.Array:
    """The larger of `x1` and `x2`. NaN spreads. At a tie the second operand has the whole slope; a Python number
    counts as the second operand wherever it stands."""
    return _kinks.larger(*operands("greater", *_number_second(x1, x2)))


@concrete
def minimum(x1: Any, x2: Any) -> jax.Array:
    """The smaller of `x1` and `x2`; NaN and ties as in `maximum`."""
    first, second = _number_second(x1, x2)
    b, a = operands("greater", second, first)
    return _kinks.smaller(a, b)


def clip(x: Any, lo: Any = None, hi: Any = None) -> jax.Array:
    """min(max(x, lo), hi); at a bound x has slope 0, and hi wins where lo > hi. Either bound may be None."""
    if lo is None and hi is None:
        return asarray(x)
    if lo is not None:
        x = maximum(asarray(x), lo)
    return x if hi is None else minimum(asarray(x), hi)


@concrete
@keeps_weak
def power(x1: Any, x2: Any) -> jax.Array:
    """x1 ** x2. Differentiation: at x1 = 0 the slope in x1 is 0 for x2 < 1, 1 for x2 = 1, 0 above; for x1 <= 0 the
    slope in x2 is 0; a Python int exponent >= 0 is exact repeated multiplication."""
    if is_number(x2) and not is_number(x1):
        x = numeric("pow", x1)
        if isinstance(x2, (int, np.integer)) and not isinstance(x2, bool) and 0 <= x2 < 2**31:
            # A zeroth power is computed from x all the same: it has a gradient, of zero.
            return lax.integer_pow(x, int(x2)) if x2 else jnp.where(jnp.ones(x.shape, bool), jnp.ones_like(x), x)
        return _kinks.power_to(x, float(x2))
    if is_number(x1) and not is_number(x2):
        return _kinks.power_of(float(x1), numeric("pow", x2))
    return _kinks.power(*operands("pow", x1, x2, bools=False))


def exp2(x: Any) -> jax.Array:
    """2 ** x, exact at integers."""
    return power(2.0, float(x) if isinstance(x, bool) else asarray(x))


@concrete
def atan2(x1: Any, x2: Any) -> jax.Array:
    """The angle of the point (x2, x1), with gradient (0, 0) at the origin."""
    return _kinks.arctan2(*operands("atan2", x1, x2, bools=False))


@concrete
def hypot(x1: Any, x2: Any) -> jax.Array:
    """sqrt(x1**2 + x2**2) without overflow or underflow; gradient (0, 0) at the origin; inf beside NaN is inf."""
    x1, x2 = operands("abs", x1, x2, bools=False, compared="greater")
    return _kinks.hypotenuse(x1, x2)


@concrete
def logaddexp(x1: Any, x2: Any) -> jax.Array:
    """log(exp(x1) + exp(x2)) without overflow; ties share the slope equally."""
    a, b = operands("greater_equal", x1, x2)
    first = a >= b
    high, low = jnp.where(first, a, b), jnp.where(first, b, a)
    delta = low - high
    # Equal infinities, and NaN, make the difference NaN; their sum is the result.
    return jnp.where(jnp.isnan(delta), a + b, high + jnp.log1p(jnp.exp(delta)))


@concrete
def fmod(x1: Any, x2: Any) -> jax.Array:
    """C's remainder, with the sign of x1. Slopes 1 and -trunc(x1 / x2)."""
    a, b = operands("fmod", x1, x2, bools=False)
    return _fmod(*jnp.broadcast_arrays(a, b))


@jax.custom_jvp
def _fmod(a, b):
    return lax.rem(a, b)


@_fmod.defjvp
def _fmod_jvp(primals, tangents):
    (a, b), (ta, tb) = primals, tangents
    r = _fmod(a, b)
    return r, ta - tb * jnp.where(jnp.isnan(r), jnp.nan, jnp.trunc(a / b))


@concrete
@keeps_weak
def mod(x1: Any, x2: Any) -> jax.Array:
    """The remainder with the sign of x2 (Python's % on floats), formed from the exact `fmod`; a zero result carries
    the sign of x2. Slopes 1 and -floor(x1 / x2), and 0 and 0 where the result is exactly zero."""
    a, b = operands("fmod", x1, x2, bools=False)
    r = _fmod(*jnp.broadcast_arrays(a, b))
    wrong_sign = ((r < 0) & (b > 0)) | ((r > 0) & (b < 0))
    zero = lax.stop_gradient(jnp.where(b < 0, -0.0, 0.0).astype(r.dtype))
    return jnp.where(r == 0, zero, jnp.where(wrong_sign, r + b, r))


remainder = mod


@concrete
@keeps_weak
def nan_to_num(x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> jax.Array:
    """`x` with NaN and the infinities replaced, the latter by the limits of the dtype unless given. Replaced entries
    have slope 0. `copy` is there for NumPy's sake: arrays are immutable."""
    del copy
    x = as_operand(x)
    if x.dtype == np.bool_:
        return x
    x = numeric("nan_to_num", x)
    limit = jnp.finfo(x.dtype).max
    high, low = (
        end if given is None else beside("where", x, given) for end, given in ((limit, posinf), (-limit, neginf))
    )
    common_shape(x.shape, *(v.shape for v in (high, low, nan) if isinstance(v, jax.Array)))
    value = jnp.where(x == -jnp.inf, low, jnp.where(x == jnp.inf, high, x))
    return jnp.where(jnp.isnan(x), beside("where", x, nan), value).astype(x.dtype)


def _comparison(name: str, fun):
    @concrete
    def function(lhs: Any, rhs: Any) -> jax.Array:
        if is_number(lhs) and is_number(rhs):
            raise TypeError(f"{name} expects a Tensor or TraceTensor operand, got two numbers")
        for side in (lhs, rhs):
            if not isinstance(side, jax.Array) and not is_number(side):
                raise TypeError(f"expected Tensor or numeric scalar operand, got {kind_name(side)}")
        a, b = (x if isinstance(x, jax.Array) else weak_scalar(x) for x in (lhs, rhs))
        common_shape(a.shape, b.shape)
        a, b = align(name, a, b)
        return fun(a, b)

    _call(function, name)
    function.__doc__ = f"Elementwise `{name}` of two arrays, or of an array and a number, as a mask."
    return function


equal = _comparison("equal", jnp.equal)
not_equal = _comparison("not_equal", jnp.not_equal)
greater = _comparison("greater", jnp.greater)
greater_equal = _comparison("greater_equal", jnp.greater_equal)
less = _comparison("less", jnp.less)
less_equal = _comparison("less_equal", jnp.less_equal)


def _masks(op: str, *xs: Any) -> None:
    for x in xs:
        if not isinstance(x, jax.Array):
            raise TypeError(f"{op} expects a Tensor operand, got {kind_name(x)}")
    for x in xs:
        if x.dtype != np.bool_:
            raise ValueError(
                f"{op} requires bool operands, got dtype {short(x.dtype)}; build a mask with a comparison or convert "
                "explicitly with astype"
            )


@concrete
def logical_and(lhs: Any, rhs: Any) -> jax.Array:
    """Elementwise and of two masks. Raises ValueError for floats, TypeError for anything but arrays."""
    _masks("logical_and", lhs, rhs)
    common_shape(lhs.shape, rhs.shape)
    return jnp.logical_and(lhs, rhs)


@concrete
def logical_or(lhs: Any, rhs: Any) -> jax.Array:
    """Elementwise or of two masks. Raises ValueError for floats, TypeError for anything but arrays."""
    _masks("logical_or", lhs, rhs)
    common_shape(lhs.shape, rhs.shape)
    return jnp.logical_or(lhs, rhs)


@concrete
def logical_not(value: Any) -> jax.Array:
    """Elementwise not of a mask. Raises ValueError for floats, TypeError for anything but arrays."""
    _masks("logical_not", value)
    return jnp.logical_not(value)


def _classify(name: str, fun):
    @concrete
    def function(value: Any) -> jax.Array:
        if not isinstance(value, jax.Array):
            if name != "isinf":
                raise TypeError(f"{name} expects a Tensor or TraceTensor operand, got {kind_name(value)}")
            value = asarray(value)
        if value.dtype == np.bool_:
            raise ValueError(f"{name} requires a floating operand, got dtype bool")
        return fun(value)

    _call(function, name)
    function.__doc__ = f"Elementwise `{name}` of a float array, as a mask."
    return function


isnan = _classify("isnan", jnp.isnan)
isfinite = _classify("isfinite", jnp.isfinite)
_isinf = _classify("isinf", jnp.isinf)


def isinf(x: Any) -> jax.Array:
    """Elementwise test for an infinity, as a mask."""
    return _isinf(x)


@concrete
def where(mask: Any, on_true: Any, on_false: Any) -> jax.Array:
    """`on_true` where `mask` holds, else `on_false`, broadcast together.

    Arguments:
        mask: an array, bool or float (nonzero and NaN are true). on_true, on_false: arrays or numbers; a mask beside
            floats counts as 0 and 1, two numbers give a weak float64.
    Raises:
        TypeError: the mask is no array, or a branch neither array nor number. ValueError: float64 with float32.
    Differentiation: reverse mode multiplies the zero cotangent of the side not taken by its slope, so an infinite
        slope there gives NaN; `cond` does not.
    """
    valid = isinstance(mask, jax.Array) and all(isinstance(x, jax.Array) or is_number(x) for x in (on_true, on_false))
    if not valid:
        raise TypeError(
            "where expects a Tensor or TraceTensor mask with Tensor, TraceTensor, or numeric scalar branches, got "
            f"{kind_name(mask)}, {kind_name(on_true)} and {kind_name(on_false)}"
        )
    on_true, on_false = (x if isinstance(x, jax.Array) else weak_scalar(x) for x in (on_true, on_false))
    common_shape(mask.shape, on_true.shape, on_false.shape)
    on_true, on_false = align("where", on_true, on_false)
    return jnp.where(mask if mask.dtype == np.bool_ else mask != 0, on_true, on_false)
