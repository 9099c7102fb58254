"""Elementwise functions of floats, cured where MLX's CPU kernels are inaccurate.

MLX's CPU kernels of exp, sin, cos, erf, sigmoid (and in float64 also erfinv) evaluate single-precision polynomials:
61 ulp off in float32, and float64 results with float32's accuracy and range. Its pow, tan, expm1, log, log1p, sqrt and
inverse functions call the C library and are good to about 1 ulp in both; the cures are built from those. On the GPU the
native functions stand. Coefficients: least-error polynomials at Chebyshev points, computed with mpmath at 60 digits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import mlx.core as mx

from ..lowering.jax_api import JAX_VERSION
from ..lowering.program import Op
from .ops_elementwise import complex_nan, is_float, join
from .target import Context, OpTable, Target
from .target import scalar_like as lit

__all__ = ["TABLE"]

TABLE = OpTable()

_HALVES = (mx.float16, mx.bfloat16)

Function = Callable[[mx.array], mx.array]


def horner(x: mx.array, coefficients: Sequence[float]) -> mx.array:
    """coefficients[0] + coefficients[1] x + ..."""
    total = lit(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        total = total * x + lit(x, coefficient)
    return total


# e = base + base * rest: pow(base, x) is e**x but for the factor (1 + rest)**x = 1 + rest x to first order.
_E_BASE = {mx.float32: 2.7182817459106445, mx.float64: math.e}
_E_REST = {mx.float32: 3.036785952062439e-08, mx.float64: 5.318237706605891e-17}


def exp(x: mx.array) -> mx.array:
    """e**x to 1.3 ulp through the C library's pow, at the speed of MLX's own exp."""
    power = mx.power(lit(x, _E_BASE[x.dtype]), x)
    # The floor keeps 0 * -inf out at x = -inf; what is below it underflows anyway.
    return power + power * (mx.maximum(x, lit(x, -1000.0)) * lit(x, _E_REST[x.dtype]))


def _single_in_double(function: Function) -> Function:
    """float32 computed in float64 and rounded once; float64 as it is."""

    def run(x: mx.array) -> mx.array:
        if x.dtype == mx.float64:
            return function(x)
        return function(x.astype(mx.float64)).astype(x.dtype)

    run.__doc__ = function.__doc__
    return run


@_single_in_double
def sin(x: mx.array) -> mx.array:
    """2 t / (1 + t**2), t = tan(x/2): 2 ulp over the whole range, zeros included."""
    t = mx.tan(x * lit(x, 0.5))
    return (t + t) / (lit(x, 1) + t * t)


def _cos_double(x: mx.array) -> mx.array:
    """1 / sqrt(1 + tan(x)**2), with the sign of tan(x) tan(x/2): that of tan(x) sin(x)."""
    t = mx.tan(x)
    size = lit(x, 1) / mx.sqrt(lit(x, 1) + t * t)
    return mx.where(t * mx.tan(x * lit(x, 0.5)) < lit(x, 0), -size, size)


def cos(x: mx.array) -> mx.array:
    """Cosine over the whole range; of float32 as (1 - t**2) / (1 + t**2) in float64, t = tan(x/2): no float32 is so near
    a zero that the difference would show."""
    if x.dtype == mx.float64:
        return _cos_double(x)
    t = mx.tan(x.astype(mx.float64) * mx.array(0.5, dtype=mx.float64))
    square = t * t
    return ((lit(t, 1) - square) / (lit(t, 1) + square)).astype(x.dtype)


def logistic(x: mx.array) -> mx.array:
    return lit(x, 1) / (lit(x, 1) + exp(-x))


def cbrt(x: mx.array) -> mx.array:
    """The root of |x| by pow, one Newton step, and the sign again."""
    size = mx.abs(x)
    usual = (size > lit(x, 0)) & mx.isfinite(size)
    safe = mx.where(usual, size, lit(x, 1))
    root = mx.power(safe, lit(x, 1 / 3))
    root = root - (root - safe / (root * root)) * lit(x, 1 / 3)
    root = mx.where(usual, root, size)
    return mx.where(x < lit(x, 0), -root, mx.where(x == lit(x, 0), x, root))


# erf(x) / x on [0, 1] as a polynomial in x**2
_ERF_64 = (
    1.1283791670955126,
    -0.3761263890318375,
    0.11283791670954879,
    -0.026866170645076792,
    0.0052239776248180145,
    -0.000854832698083379,
    0.0001205533111164271,
    -1.4925595266831182e-05,
    1.6461000484121368e-06,
    -1.6350312701054695e-07,
    1.4659775274047436e-08,
    -1.1372848856791674e-09,
    5.957176147748911e-11,
)
_ERF_32 = (
    1.1283791670615435,
    -0.3761263846802871,
    0.11283782495236845,
    -0.026865430727670243,
    0.005221031807858023,
    -0.0008484080405535107,
    0.00011265959025606609,
    -9.667044571486996e-06,
)
# (1 + 2 x) exp(x**2) erfc(x) for x >= 1/2, as a polynomial in a straight image of (x - 3) / (x + 3)
_ERFC_64 = (
    1.2466693962002773,
    -0.10586152790091506,
    -0.01797704118429333,
    0.04794607053092674,
    -0.034858448572188144,
    0.01572239144867065,
    -0.0044157877165536446,
    0.00046509896944318073,
    0.0001739993018080459,
    -6.912737645267454e-05,
    -2.6883839379178072e-06,
    6.115671762826169e-06,
    -2.6440664344668814e-07,
    -5.618956638825009e-07,
    3.7232647588027785e-08,
    5.822906471464921e-08,
    -2.211828320911032e-09,
    -6.5324834885793585e-09,
    -1.1968581568210375e-10,
    6.917300078734445e-10,
    3.343053960872186e-11,
    -4.8902001990217845e-11,
)
_ERFC_32 = (
    1.2640333191603756,
    -0.0784280293628619,
    -0.03408892990278653,
    0.04375041117634755,
    -0.023718906564536676,
    0.007996529308908016,
    -0.001551659895910427,
    4.176965111622826e-05,
    6.004696705691377e-05,
    -9.919323334238125e-06,
    -1.8546523127434233e-06,
    5.653293073469167e-07,
)


def _erf_near(x: mx.array, single: bool) -> mx.array:
    """erf for |x| <= 1."""
    return x * horner(x * x, _ERF_32 if single else _ERF_64)


def _erfc_far(x: mx.array, single: bool) -> mx.array:
    """erfc for x >= 1/2."""
    t = (x - lit(x, 3)) / (x + lit(x, 3))
    scale, shift = (1.5876288659793814, 0.13402061855670103) if single else (1.3151515151515152, -0.06060606060606061)
    factor = horner(t * lit(x, scale) + lit(x, shift), _ERFC_32 if single else _ERFC_64)
    if single:
        decay = exp(-(x * x))
    else:  # x = s + d with s short: x**2 = s**2 + d (x + s), and s**2 is exact
        spread = x * lit(x, 134217729.0)
        s = spread - (spread - x)
        decay = exp(-(s * s)) * exp((s - x) * (s + x))
    return decay * factor / (lit(x, 1) + (x + x))


def _erf(x: mx.array, single: bool) -> mx.array:
    size = mx.minimum(mx.abs(x), lit(x, 7.0))
    far = lit(x, 1) - _erfc_far(mx.maximum(size, lit(x, 0.5)), single)
    far = mx.where(x < lit(x, 0), -far, far)
    return mx.where(
        size <= lit(x, 1),
        _erf_near(mx.where(size <= lit(x, 1), x, lit(x, 0)), single),
        mx.where(mx.isnan(x), x, far),
    )


def _erfc(x: mx.array, single: bool) -> mx.array:
    size = mx.minimum(mx.abs(x), lit(x, 28.0))
    far = _erfc_far(mx.maximum(size, lit(x, 0.5)), single)
    far = mx.where(x < lit(x, 0), lit(x, 2) - far, far)
    near = lit(x, 1) - _erf_near(mx.where(size < lit(x, 0.5), x, lit(x, 0)), single)
    return mx.where(size < lit(x, 0.5), near, mx.where(mx.isnan(x), x, far))


def _erf_inv_double(x: mx.array) -> mx.array:
    """Winitzki's closed form (2e-3), then two Halley steps on erfc, which has full relative accuracy in the tails."""
    size = mx.abs(x)
    inside = size < lit(x, 1)
    safe = mx.where(inside, size, lit(x, 0.5))
    log = mx.log1p(-(safe * safe))
    a = 0.147
    half = lit(x, 2 / (math.pi * a)) + log * lit(x, 0.5)
    ratio = -log / lit(x, a)
    y = mx.sqrt(ratio / (mx.sqrt(half * half + ratio) + half))
    near = safe < lit(x, 0.5)
    for _ in range(2):
        left = mx.where(near, _erf(mx.minimum(y, lit(x, 1.0)), False) - safe, (lit(x, 1) - safe) - _erfc(y, False))
        step = left * lit(x, math.sqrt(math.pi) / 2) * exp(y * y)
        y = y - step / (lit(x, 1) + y * step)
    y = mx.where(x < lit(x, 0), -y, y)
    edge = mx.where(size == lit(x, 1), x * lit(x, math.inf), lit(x, math.nan))
    return mx.where(x == lit(x, 0), x, mx.where(inside, y, edge))


def _in_double(function: Callable[[mx.array, bool], mx.array]) -> Function:
    """float32 through float64 arithmetic and short polynomials: less than one ulp."""

    def run(x: mx.array) -> mx.array:
        if x.dtype == mx.float64:
            return function(x, False)
        return function(x.astype(mx.float64), True).astype(x.dtype)

    return run


# log gamma and digamma: Lanczos' approximation, g = 7, nine terms (Godfrey's coefficients), reflected below 1/2

_LANCZOS = (
    676.520368121885098567009190444019, -1259.13921672240287047156078755283, 771.3234287776530788486528258894,
    -176.61502916214059906584551354, 12.507343278686904814458936853, -0.13857109526572011689554707,
    9.984369578019570859563e-6, 1.50563273514931155834e-7,
)  # fmt: skip
_BASE = 0.99999999999980993227684700473478
# Where log gamma and digamma have their zeros: log gamma(x) / ((x - 1) (x - 2)) for |x - 3/2| <= 3/4, and
# digamma(x) / (x - root) for 1 <= x <= 2, as polynomials in x - 3/2 over its range.
_LGAMMA_NEAR = (
    0.4831289505409809,
    -0.10946992193572956,
    0.035387663104443884,
    -0.013208268164489553,
    0.00531470698870234,
    -0.0022367443895923225,
    0.000969352484410798,
    -0.00042876013313814405,
    0.0001925087160275418,
    -8.74296837559824e-05,
    4.006851011253995e-05,
    -1.849887626610331e-05,
    8.592094885571338e-06,
    -4.011994011652236e-06,
    1.8853502443473198e-06,
    -8.878073028774609e-07,
    4.1072526490481494e-07,
    -1.9456567262455974e-07,
    1.0757320428189458e-07,
    -5.137125986295283e-08,
    6.244339326768499e-09,
    -2.8793813341682627e-09,
    1.6574338372855114e-08,
    -8.020717326231855e-09,
    -4.398658414361228e-09,
    2.139468423779617e-09,
    1.6096107606990072e-09,
    -7.803891233365677e-10,
)
_DIGAMMA_NEAR = (
    0.951055876031833,
    -0.21181371064073026,
    0.06013562106019355,
    -0.018550615381738605,
    0.005936795278433826,
    -0.0019350666647832667,
    0.000636888028319074,
    -0.00021074841215733007,
    6.995020484160625e-05,
    -2.325823828431376e-05,
    7.741156881253708e-06,
    -2.578107848270217e-06,
    8.591324222417666e-07,
    -2.8628755280038686e-07,
    9.500926192924096e-08,
    -3.166618072027162e-08,
    1.10370884388543e-08,
    -3.6788868183645545e-09,
    8.668257373761658e-10,
    -2.889363639216111e-10,
    2.4765474440031764e-10,
    -8.25512972008104e-11,
)
_DIGAMMA_AT_ZERO = -math.inf if JAX_VERSION >= (0, 11) else math.nan  # as the JAX that is installed has it
_DIGAMMA_ROOT = (1.4616321449683622, 9.549995429965697e-17)


def _lgamma(x: mx.array) -> mx.array:
    one = lit(x, 1)
    low = x < lit(x, 0.5)
    z = mx.where(low, -x, x - one)
    total = lit(x, _BASE)
    for k, coefficient in enumerate(_LANCZOS):
        total = total + lit(x, coefficient) / (z + lit(x, k + 1))
    t = z + lit(x, 7.5)
    log_t = lit(x, math.log(7.5)) + mx.log1p(z * lit(x, 1 / 7.5))
    body = (z + lit(x, 0.5) - t / log_t) * log_t + lit(x, 0.5 * math.log(2 * math.pi)) + mx.log(total)
    size = mx.abs(x)
    part = size - mx.floor(size)
    part = mx.where(part > lit(x, 0.5), one - part, part)
    reflected = lit(x, math.log(math.pi)) - mx.log(sin(part * lit(x, math.pi))) - body
    out = mx.where(low, mx.where(part == lit(x, 0), lit(x, math.inf), reflected), body)
    shifted = x - lit(x, 1.5)
    near = mx.abs(shifted) <= lit(x, 0.75)
    u = mx.where(near, shifted, lit(x, 0)) * lit(x, 1 / 0.75)
    out = mx.where(near, (x - one) * (x - lit(x, 2)) * horner(u, _LGAMMA_NEAR) + lit(x, 0), out)
    return mx.where(mx.isinf(x), lit(x, math.inf), out)


def _digamma(x: mx.array) -> mx.array:
    one = lit(x, 1)
    low = x < lit(x, 0.5)
    z = mx.where(low, -x, x - one)
    top, bottom = lit(x, 0), lit(x, _BASE)
    for k, coefficient in enumerate(_LANCZOS):
        inverse = one / (z + lit(x, k + 1))
        top = top - lit(x, coefficient) * inverse * inverse
        bottom = bottom + lit(x, coefficient) * inverse
    t = z + lit(x, 7.5)
    body = lit(x, math.log(7.5)) + mx.log1p(z * lit(x, 1 / 7.5)) + top / bottom - lit(x, 7.0) / t
    part = x - mx.round(x)  # in [-1/2, 1/2]: tan of it times pi is tan of x times pi
    reflected = body - lit(x, math.pi) / mx.tan(part * lit(x, math.pi))
    out = mx.where(low, reflected, body)
    shifted = x - lit(x, 1.5)
    near = mx.abs(shifted) <= lit(x, 0.5)
    u = mx.where(near, shifted, lit(x, 0)) * lit(x, 2.0)
    from_root = (x - lit(x, _DIGAMMA_ROOT[0])) - lit(x, _DIGAMMA_ROOT[1])
    out = mx.where(near, from_root * horner(u, _DIGAMMA_NEAR), out)
    out = mx.where((x <= lit(x, 0)) & (part == lit(x, 0)), lit(x, math.nan), out)
    out = mx.where(x == lit(x, 0), lit(x, _DIGAMMA_AT_ZERO), out)
    return mx.where(x == lit(x, math.inf), x, out)


# complex


def _complex_logistic(x: mx.array) -> mx.array:
    return mx.array(1, dtype=mx.complex64) / (mx.array(1, dtype=mx.complex64) + mx.exp(-x))


def _complex_expm1(x: mx.array) -> mx.array:
    """(expm1(a) cos b - 2 sin(b/2)**2) + i exp(a) sin b, which keeps small arguments."""
    a, b = mx.real(x), mx.imag(x)
    half = sin(b * lit(b, 0.5))
    turn = exp(a) * sin(b)
    return join(mx.expm1(a) * cos(b) - (half * half + half * half), mx.where(b == lit(b, 0), b, turn))


_NATIVE = {
    "exp": mx.exp, "expm1": mx.expm1, "log": mx.log, "log1p": mx.log1p, "sqrt": mx.sqrt, "rsqrt": mx.rsqrt,
    "sin": mx.sin, "cos": mx.cos, "tan": mx.tan, "asin": mx.arcsin, "acos": mx.arccos, "atan": mx.arctan,
    "sinh": mx.sinh, "cosh": mx.cosh, "tanh": mx.tanh, "asinh": mx.arcsinh, "acosh": mx.arccosh, "atanh": mx.arctanh,
    "logistic": mx.sigmoid, "erf": mx.erf, "erf_inv": mx.erfinv,
}  # fmt: skip

_CURED_CPU: dict[str, Function] = {
    "exp": exp, "sin": sin, "cos": cos, "logistic": logistic, "erf": _in_double(_erf), "erfc": _in_double(_erfc),
    "lgamma": _single_in_double(_lgamma), "digamma": _single_in_double(_digamma), "cbrt": cbrt,
}  # fmt: skip

_CURED_COMPLEX: dict[str, Function] = {
    "logistic": _complex_logistic,
    "expm1": _complex_expm1,
    "rsqrt": lambda x: mx.array(1, dtype=mx.complex64) / mx.sqrt(x),
}

_GPU: dict[str, Function] = {
    "erfc": lambda x: _erfc(x, True), "lgamma": _lgamma, "digamma": _digamma, "cbrt": cbrt,
}  # fmt: skip

_REAL_ONLY = ("erf", "erfc", "erf_inv", "lgamma", "digamma", "cbrt")


def _refuse_complex(node: Op, target: Target) -> str | None:
    return "it is defined for real numbers only" if node.inputs[0].dtype.kind == "c" else None


def _unary(name: str) -> None:
    def run(c: Context, x: mx.array) -> mx.array:
        if x.dtype == mx.complex64:
            return (_CURED_COMPLEX.get(name) or _NATIVE[name])(x)
        if x.dtype in _HALVES:
            return run(c, x.astype(mx.float32)).astype(x.dtype)
        if not c.target.cpu:
            return (_NATIVE.get(name) or _GPU[name])(x)
        if name == "erf_inv" and x.dtype == mx.float64:
            return _erf_inv_double(x)
        return (_CURED_CPU.get(name) or _NATIVE[name])(x)

    TABLE.row(name, refuse=_refuse_complex if name in _REAL_ONLY else None)(run)


for _name in {**_NATIVE, **_CURED_CPU}:
    _unary(_name)


def _binary(name: str, function: Callable[[mx.array, mx.array], mx.array]) -> None:
    def run(c: Context, x: mx.array, y: mx.array) -> mx.array:
        if x.dtype in _HALVES:
            return function(x.astype(mx.float32), y.astype(mx.float32)).astype(x.dtype)
        return function(x, y)

    TABLE.row(name)(run)


def _pow(x: mx.array, y: mx.array) -> mx.array:
    if x.dtype == mx.complex64:  # 0**0 = 1, 0**y = 0 for a positive real y; MLX takes log 0 and gives NaN
        zero = x == lit(x, 0)
        positive = (mx.real(y) > mx.array(0.0)) & (mx.imag(y) == mx.array(0.0))
        at_zero = mx.where(y == lit(y, 0), lit(x, 1), mx.where(positive, lit(x, 0), complex_nan()))
        return mx.where(zero, at_zero, mx.power(mx.where(zero, lit(x, 1), x), y))
    assert is_float(x)
    return mx.power(x, y)


_binary("pow", _pow)
_binary("atan2", mx.arctan2)
