"""The three dtypes of Quabla, usable wherever NumPy or JAX take a dtype.

Quabla's default is float64. JAX has float64 only where its x64 mode is on, so `default_float` answers float32 where
it is off and says so once a process; `resolve` refuses an explicit float64 there instead of narrowing it silently.
"""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import jax
import numpy as np

__all__ = ["ShapeDtype", "bool_", "default_float", "dtype", "float32", "float64", "resolve", "short"]


class dtype:
    """A Quabla dtype: `qb.float64`, `qb.float32` or `qb.bool_`.

    `np.dtype(qb.float64)` and `jnp.zeros(3, qb.float32)` work through the `dtype` attribute, and
    `x.dtype == qb.float64` compares as NumPy compares dtypes.

    Attributes:
        name: NumPy's name ("float64", "float32", "bool").
        dtype: the numpy.dtype.
    """

    __slots__ = ("dtype", "name")

    def __init__(self, name: str):
        self.name = name
        self.dtype = np.dtype(name)

    def __repr__(self) -> str:
        return f"quabla_jax.{'bool_' if self.name == 'bool' else self.name}"

    def __str__(self) -> str:
        return short(self.dtype)

    def __eq__(self, other: Any) -> bool:
        if isinstance(other, dtype):
            return self.dtype == other.dtype
        if isinstance(other, np.dtype):
            return self.dtype == other
        return NotImplemented

    def __hash__(self) -> int:
        return hash(self.dtype)

    def __reduce__(self):
        return (_named, (self.name,))


float32 = dtype("float32")
float64 = dtype("float64")
bool_ = dtype("bool")

_BY_NAME = {"float32": float32, "float64": float64, "bool": bool_}
_SHORT = {"float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16", "bool": "bool"}

_warned_narrow = False


def _named(name: str) -> dtype:
    return _BY_NAME[name]


def short(dt: Any) -> str:
    """Quabla's short name of a dtype, as its error texts print it: "f64", "f32", "bool"; else NumPy's name."""
    name = str(getattr(dt, "name", dt))
    return _SHORT.get(name, name)


def x64_enabled() -> bool:
    """Whether JAX holds float64 arrays at this moment (the x64 mode, or an enable_x64 scope)."""
    return bool(jax.config.jax_enable_x64)  # type: ignore[attr-defined]


def default_float() -> np.dtype:
    """The dtype of numbers that carry none: float64, or float32 where JAX's x64 mode is off.

    Warns:
        UserWarning: once a process, the first time that x64 is found off.
    """
    global _warned_narrow
    if x64_enabled():
        return float64.dtype
    if not _warned_narrow:
        _warned_narrow = True
        warnings.warn(
            "quabla_jax: JAX's x64 mode is off, so numbers become float32 where Quabla uses float64; call "
            'jax.config.update("jax_enable_x64", True) at the start of the program (or set JAX_ENABLE_X64=1) '
            "for float64",
            UserWarning,
            stacklevel=2,
        )
    return float32.dtype


def resolve(dt: Any) -> np.dtype:
    """The numpy.dtype of a dtype argument.

    Arguments:
        dt: `qb.float64`, `qb.float32`, `qb.bool_`, a numpy.dtype, or one of jax.numpy's scalar types (`jnp.int32`;
            integers are an extension of Quabla).

    Raises:
        TypeError: for anything else (`float`, a string), as Quabla does.
        ValueError: for a 64-bit dtype while JAX's x64 mode is off.
    """
    if isinstance(dt, dtype):
        found = dt.dtype
    elif isinstance(dt, np.dtype):
        found = dt
    elif isinstance(getattr(dt, "dtype", None), np.dtype) and callable(dt):
        found = dt.dtype
    elif isinstance(dt, type) and issubclass(dt, np.generic):
        found = np.dtype(dt)
    else:
        raise TypeError(
            f"'{type(dt).__name__}' object is not an instance of 'dtype'; pass quabla_jax.float64, float32 or bool_"
        )
    if found.itemsize == 8 and found.kind in "fiu" and not x64_enabled():
        raise ValueError(
            f"dtype {found.name} needs JAX's x64 mode, which is off; call "
            'jax.config.update("jax_enable_x64", True) at the start of the program, or ask for a 32-bit dtype'
        )
    return found


class ShapeDtype:
    """An abstract argument of `jit(f).lower`: a shape and a dtype, no data.

    Arguments:
        shape: non-negative extents, in any iterable; kept as a tuple.
        dtype: `qb.float64` (the default), `qb.float32` or `qb.bool_`; other NumPy dtypes are an extension.

    Raises:
        ValueError: a negative extent, or float64 while x64 is off (at the time it is used).
        TypeError: a shape that is no iterable of integers, or a dtype that is none.
    """

    __slots__ = ("_dtype", "_shape")

    def __init__(self, shape: Any, dtype: Any = float64):
        extents = tuple(shape)
        if any(isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 0 for n in extents):
            raise ValueError(f"shape extents must be non-negative integers, got {extents!r}")
        if not isinstance(dtype, (globals()["dtype"], np.dtype)):
            raise TypeError(f"dtype must be quabla_jax.float32, float64, or bool_, got {dtype!r}")
        self._shape = tuple(int(n) for n in extents)
        self._dtype = dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents."""
        return self._shape

    @property
    def dtype(self) -> Any:
        """The dtype as it was given."""
        return self._dtype

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("shape", "dtype"):
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        object.__setattr__(self, name, value)

    def __eq__(self, other: Any) -> bool:
        if not isinstance(other, ShapeDtype):
            return NotImplemented
        return self._shape == other._shape and np.dtype(self._dtype) == np.dtype(other._dtype)

    def __hash__(self) -> int:
        return hash((self._shape, np.dtype(self._dtype)))

    def __repr__(self) -> str:
        return f"ShapeDtype(shape={self._shape}, dtype={self._dtype!r})"
