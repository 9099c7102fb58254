"""The special-function rows of the oracle, in double precision or better, without SciPy."""

from __future__ import annotations

import math

import numpy as np

from .numpy_ops import TABLE

__all__: list[str] = []

_PI = np.longdouble("3.14159265358979323846264338327950288")


def _erf_inv(y: float) -> float:
    """Winitzki's start, then Halley steps on erf or, near +-1, on erfc."""
    if math.isnan(y) or abs(y) > 1:
        return math.nan
    if abs(y) == 1:
        return math.copysign(math.inf, y)
    if y == 0:
        return y
    size = abs(y)
    tail = 1 - size  # exact in floating point for size >= 1/2
    logarithm = math.log1p(-size * size)
    term = 2 / (math.pi * 0.147) + logarithm / 2
    x = math.sqrt(math.sqrt(term * term - logarithm / 0.147) - term)
    for _ in range(6):
        error = math.erf(x) - size if size < 0.5 else tail - math.erfc(x)
        slope = 2 / math.sqrt(math.pi) * math.exp(-x * x)
        if slope == 0 or error == 0:
            break
        step = error / slope
        x -= step / (1 + x * step)
    return math.copysign(x, y)


def _lgamma(x: float) -> float:
    if x == math.inf or x == -math.inf:
        return math.inf
    if x <= 0 and x == math.floor(x):
        return math.inf
    try:
        return math.lgamma(x)
    except OverflowError:
        return math.inf


def _digamma(x: float) -> float:
    """Reflection for x < 0, recurrence up to 10, then the asymptotic series (Abramowitz and Stegun 6.3.18)."""
    if math.isnan(x) or x == -math.inf:
        return math.nan
    if x == math.inf:
        return x
    if x <= 0 and x == math.floor(x):
        return math.nan
    wide = np.longdouble(x)
    total = np.longdouble(0)
    if x < 0:
        part = wide - np.rint(wide)  # in [-1/2, 1/2]: the tangent of pi x, without loss near the poles
        if abs(part) != 0.5:
            total -= _PI / np.tan(_PI * part)
        wide = 1 - wide
    while wide < 20:
        total -= 1 / wide
        wide += 1
    z = 1 / (wide * wide)
    series = np.longdouble(0)
    for numerator, denominator in reversed(
        [(1, 12), (-1, 120), (1, 252), (-1, 240), (1, 132), (-691, 32760), (1, 12), (-3617, 8160)]
    ):
        series = (series + np.longdouble(numerator) / denominator) * z
    return float(total + np.log(wide) - 1 / (2 * wide) - series)


def _row(function):
    return lambda x: np.array([function(float(v)) for v in x.reshape(-1)], np.float64).reshape(x.shape).astype(x.dtype)


TABLE.update(
    erf=_row(math.erf), erfc=_row(math.erfc), erf_inv=_row(_erf_inv), lgamma=_row(_lgamma), digamma=_row(_digamma)
)  # fmt: skip
