"""Floats of 8 bits and integers of 2 and 4, for targets without them: carried in a wider dtype that holds every value.

A carried value is always one that the narrow dtype has. Moving it about keeps that; arithmetic is done in the carrier and
settled afterwards: rounded to the narrow format, or wrapped to its width.
"""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np

__all__ = ["CARRIERS", "FORMATS", "WIDTHS", "Format"]


@dataclass(frozen=True)
class Format:
    """A small float: mantissa bits, least exponent, greatest value, whether it has inf, whether it has -0."""

    mantissa: int
    exponent: int
    greatest: float
    infinite: bool
    signed_zero: bool


def _format(dtype: np.dtype) -> Format:
    info = ml_dtypes.finfo(dtype)
    infinite = bool(np.isinf(np.float32(np.inf).astype(dtype).astype(np.float32)))
    zero = np.float32(-0.0).astype(dtype).astype(np.float32)
    return Format(int(info.nmant), int(info.minexp), float(info.max), infinite, bool(np.signbit(zero)))


_FLOATS = "float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e4m3b11fnuz float8_e3m4 float8_e4m3".split()

FORMATS: dict[np.dtype, Format] = {d: _format(d) for n in _FLOATS if (d := np.dtype(getattr(ml_dtypes, n)))}

WIDTHS: dict[np.dtype, tuple[int, bool]] = {
    np.dtype(ml_dtypes.int4): (4, True), np.dtype(ml_dtypes.uint4): (4, False),
    np.dtype(ml_dtypes.int2): (2, True), np.dtype(ml_dtypes.uint2): (2, False),
}  # fmt: skip
"""dtype -> (bits, signed)"""

CARRIERS: dict[np.dtype, np.dtype] = {
    **{d: np.dtype(np.float32) for d in FORMATS},
    **{d: np.dtype(np.int8 if signed else np.uint8) for d, (_, signed) in WIDTHS.items()},
}
