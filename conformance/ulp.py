"""Distances between floating-point arrays in units in the last place."""

from __future__ import annotations

import numpy as np

__all__ = ["distance"]


def _spacing(scale: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Distance between neighbouring numbers of `dtype` at each magnitude, as float64 (never below the least subnormal)."""
    if dtype.kind == "f":
        info_bits, least, tiny = (
            np.finfo(dtype).nmant,
            np.finfo(dtype).smallest_subnormal,
            np.finfo(dtype).tiny,
        )
    else:  # ml_dtypes
        import ml_dtypes

        info = ml_dtypes.finfo(dtype)
        info_bits, least, tiny = info.nmant, info.smallest_subnormal, info.tiny
    exponent = np.floor(np.log2(np.maximum(np.abs(scale).astype(np.float64), float(tiny))))
    return np.maximum(np.exp2(exponent - info_bits), float(least))


def distance(
    got: np.ndarray, want: np.ndarray, dtype: np.dtype, relative_to: str = "array", signed_zeros: bool = False
) -> float:
    """Worst distance of `got` from `want` in ulps of `dtype`.

    relative_to "array": an element's ulp is taken at no less than 1/1024 of the largest finite magnitude in `want`, so
    that cancellation near zero is judged at the scale of its neighbours; "element": at the element alone.
    signed_zeros: a zero must have the sign of the zero that is wanted.
    NaNs must stand in the same places and infinities must be equal; else the distance is inf. Complex: worst of the parts.
    """
    got, want = np.asarray(got), np.asarray(want)
    if got.shape != want.shape:
        return float("inf")
    if want.size == 0:
        return 0.0
    if want.dtype.kind == "c":
        part = np.dtype(f"f{dtype.itemsize // 2}")
        return max(distance(got.real, want.real, part, relative_to), distance(got.imag, want.imag, part, relative_to))
    if want.dtype.kind in "iub" and dtype.kind in "iub":
        return 0.0 if np.array_equal(got, want) else float("inf")
    # The reference is rounded once, so that a value which overflows the cell's dtype counts as its infinity.
    with np.errstate(over="ignore", invalid="ignore"):
        want = want.astype(dtype).astype(np.float64)
        got = got.astype(np.float64)
    if not np.array_equal(np.isnan(got), np.isnan(want)):
        return float("inf")
    finite = np.isfinite(want)
    special = ~finite & ~np.isnan(want)
    if not np.array_equal(got[special], want[special]) or not np.all(np.isfinite(got[finite])):
        return float("inf")
    zero = finite & (want == 0)
    if signed_zeros and not np.array_equal(np.signbit(got[zero]), np.signbit(want[zero])):
        return float("inf")
    if not finite.any():
        return 0.0
    reference = np.abs(want[finite])
    floor = reference.max() / 1024 if relative_to == "array" else 0.0
    return float(np.max(np.abs(got[finite] - want[finite]) / _spacing(np.maximum(reference, floor), dtype)))
