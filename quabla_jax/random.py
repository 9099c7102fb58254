"""Random numbers from explicit keys, bit for bit those of Quabla for the same key.

A key is a host value of 64 bits and sampling runs on the host, never inside a trace: a key in a traced function is a
constant. The generator is SplitMix64 (Steele, Lea & Flood, 2014); normals are Box-Muller cosines.
"""

from __future__ import annotations

import math
import operator
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from . import dtypes
from .arrays import fitting, is_tracer

__all__ = [
    "Key", "bernoulli", "fold_in", "glorot_normal", "glorot_uniform", "he_normal", "key", "normal", "split", "uniform",
]  # fmt: skip

MASK = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15


class Key:
    """An immutable, hashable random key.

    Attributes:
        value: the 64-bit seed as an int.
    """

    __slots__ = ("_value",)
    _value: int

    def __init__(self, value: int):
        object.__setattr__(self, "_value", operator.index(value) & MASK)

    @property
    def value(self) -> int:
        """The 64-bit seed as an int."""
        return self._value

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError("Key is immutable")

    def __eq__(self, other: Any) -> bool:
        return type(other) is Key and other._value == self._value

    def __hash__(self) -> int:
        return hash((Key, self._value))

    def __repr__(self) -> str:
        return f"Key({self._value:#018x})"

    def __reduce__(self):
        return (Key, (self._value,))


def _no_tracer(value: Any, what: str) -> None:
    if is_tracer(value):
        raise TypeError(
            f"{what} is a tracer: random numbers are drawn on the host and keys are not traced, so draw them outside the "
            "transformed function and pass the arrays in"
        )


def _seed(key: Any) -> int:
    _no_tracer(key, "key")
    if type(key) is not Key:
        raise TypeError(f"key must be a quabla.random.Key (from quabla.random.key(seed)), got {type(key).__name__}")
    return key.value


def _outputs(seed: int, count: int) -> np.ndarray:
    """The first `count` outputs of the stream of `seed`."""
    z = np.uint64(seed) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(GOLDEN)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def _first(seed: int) -> int:
    return int(_outputs(seed, 1)[0])


def key(seed: int) -> Key:
    """The key of an integer, taken modulo 2**64."""
    _no_tracer(seed, "seed")
    return Key(seed)


def split(key: Key, num: int = 2) -> tuple[Key, ...]:
    """`num` new keys. Raises ValueError below 1."""
    count = operator.index(num)
    if count < 1:
        raise ValueError(f"split requires num >= 1, got {count}")
    return tuple(Key(int(value)) for value in _outputs(_seed(key), count))


def fold_in(key: Key, data: int) -> Key:
    """A new key from `key` and an integer such as a step or a device number."""
    _no_tracer(data, "data")
    return Key(_first(_seed(key) ^ _first(operator.index(data) & MASK)))


def _extents(shape: Any) -> tuple[int, ...]:
    _no_tracer(shape, "shape")
    extents = tuple(map(operator.index, (shape,) if not isinstance(shape, (list, tuple)) else shape))
    if any(n < 0 for n in extents):
        raise OverflowError(f"tensor extents must be positive, got {list(extents)}")
    if 0 in extents:
        raise ValueError(f"tensor extents must be greater than zero, got {list(extents)}")
    return fitting(extents)


def _float_dtype(dtype: Any, what: str) -> np.dtype:
    if dtype is None:
        return dtypes.default_float()
    found = dtype.dtype if isinstance(dtype, dtypes.dtype) else dtype
    if not isinstance(found, np.dtype) or found not in (np.float32, np.float64):
        raise TypeError(f"{what} requires dtype float32 or float64, got {dtype!r}")
    return dtypes.resolve(dtype)


def _constant(values: np.ndarray) -> jax.Array:
    with jax.ensure_compile_time_eval():
        return jnp.asarray(values)


def _unit(outputs: np.ndarray) -> np.ndarray:
    """53 bits of every output as a number in [0, 1)."""
    return (outputs >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _uniform(seed: int, extents: tuple[int, ...], low: float, high: float) -> np.ndarray:
    return low + _unit(_outputs(seed, math.prod(extents))).reshape(extents) * (high - low)


def uniform(key: Key, shape: Any = (), dtype: Any = None, minval: float = 0.0, maxval: float = 1.0) -> jax.Array:
    """Uniform numbers in [minval, maxval) of `shape`, float64 by default.

    Raises:
        TypeError: no key, a traced bound, a dtype that is no float. ValueError: bounds that are not finite and rising.
    """
    _no_tracer(minval, "minval")
    _no_tracer(maxval, "maxval")
    seed, extents, found = _seed(key), _extents(shape), _float_dtype(dtype, "uniform")
    low, high = float(minval), float(maxval)
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(f"random_uniform requires finite minval < maxval, got [{low:g}, {high:g})")
    if not math.isfinite(high - low):
        raise ValueError(f"random_uniform requires a finite maxval - minval, got [{low:g}, {high:g})")
    values = _uniform(seed, extents, low, high)
    if found == np.float32:
        values = values.astype(np.float32)
        # Rounding may reach the bound that is left out.
        values = np.where(values >= high, np.nextafter(np.float32(high), np.float32(-np.inf)), values)
    return _constant(values)


_LOG = np.frompyfunc(math.log, 1, 1)
_COS = np.frompyfunc(math.cos, 1, 1)


def _scaled_normal(key: Key, shape: Any, dtype: Any, deviation: float, what: str) -> jax.Array:
    seed, extents, found = _seed(key), _extents(shape), _float_dtype(dtype, what)
    outputs = _outputs(seed, 2 * math.prod(extents)).reshape(-1, 2)
    units = ((outputs >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    # The C library's log and cos: NumPy's vectorized ones differ in the last bit.
    radius = np.sqrt(-2.0 * np.asarray(_LOG(units[:, 0]), np.float64))
    values = radius * np.asarray(_COS(2.0 * math.pi * units[:, 1]), np.float64)
    return _constant((deviation * values).reshape(extents).astype(found))


def normal(key: Key, shape: Any = (), dtype: Any = None) -> jax.Array:
    """Standard normal numbers of `shape`, float64 by default; float32 ones are those rounded."""
    return _scaled_normal(key, shape, dtype, 1.0, "normal")


def bernoulli(key: Key, p: float = 0.5, shape: Any = ()) -> jax.Array:
    """A mask that holds with probability `p`, uniform(key, shape) < p. Raises ValueError outside [0, 1]."""
    _no_tracer(p, "p")
    probability = float(p)
    if not 0.0 <= probability <= 1.0:
        raise ValueError(f"bernoulli requires 0 <= p <= 1, got {probability}")
    return _constant(_uniform(_seed(key), _extents(shape), 0.0, 1.0) < probability)


def _fans(shape: Any, what: str) -> tuple[int, int]:
    extents = _extents(shape)
    if len(extents) < 2:
        raise ValueError(f"{what} requires a weight shape of rank >= 2, got {list(extents)}")
    field = math.prod(extents[:-2])
    return extents[-2] * field, extents[-1] * field


def glorot_normal(key: Key, shape: Any, dtype: Any = None) -> jax.Array:
    """Normal weights of deviation sqrt(2 / (fan_in + fan_out)), not truncated. ValueError below rank 2."""
    return _scaled_normal(key, shape, dtype, math.sqrt(2.0 / sum(_fans(shape, "glorot_normal"))), "glorot_normal")


def glorot_uniform(key: Key, shape: Any, dtype: Any = None) -> jax.Array:
    """Uniform weights within sqrt(6 / (fan_in + fan_out)). ValueError below rank 2."""
    limit = math.sqrt(6.0 / sum(_fans(shape, "glorot_uniform")))
    return uniform(key, shape, dtype, -limit, limit)


def he_normal(key: Key, shape: Any, dtype: Any = None) -> jax.Array:
    """Normal weights of deviation sqrt(2 / fan_in), not truncated. ValueError below rank 2."""
    return _scaled_normal(key, shape, dtype, math.sqrt(2.0 / _fans(shape, "he_normal")[0]), "he_normal")
