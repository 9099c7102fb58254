"""Values of a TorchScript program under JAX: tensors as arrays, numbers, lists; torch's type promotion."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax.core import Tracer

__all__ = [
    "Items", "Num", "as_array", "axes_of", "concretization_error", "dtype_number", "is_number", "is_traced", "jax_dtype", "number", "promote",
    "listed", "static_int", "summable", "table", "together",
]  # fmt: skip

_BY_TORCH = {
    getattr(torch, name): jnp.dtype(name)
    for name in (
        "bool uint8 int8 int16 int32 int64 uint16 uint32 uint64 float16 bfloat16 float32 float64 complex64 complex128"
    ).split()
}
_BY_NAME = {dtype: of for of, dtype in _BY_TORCH.items()}
# c10::ScalarType, as TorchScript counts dtypes
_BY_NUMBER = {
    0: torch.uint8, 1: torch.int8, 2: torch.int16, 3: torch.int32, 4: torch.int64, 5: torch.float16, 6: torch.float32,
    7: torch.float64, 9: torch.complex64, 10: torch.complex128, 11: torch.bool, 15: torch.bfloat16, 27: torch.uint16,
    28: torch.uint32, 29: torch.uint64,
}  # fmt: skip


@dataclass(frozen=True)
class Num:
    """A TorchScript int, float or bool that is known at run time only: a 0-d array that promotes as a number does."""

    array: jax.Array

    @property
    def kind(self) -> str:
        return self.array.dtype.kind


class Items:
    """A list of tensors. Appending inside a traced loop leaves one stacked part for all trips; `parts` holds both kinds."""

    def __init__(self, parts: Sequence[tuple[str, Any]] = ()):
        self.parts: list[tuple[str, Any]] = list(parts)  # ("one", value) or ("many", array [n, ...])

    @classmethod
    def of(cls, values: Sequence[Any]) -> Items:
        return cls([("one", v) for v in values])

    def append(self, value: Any) -> None:
        self.parts.append(("one", value))

    def reverse(self) -> None:
        self.parts = [(kind, v if kind == "one" else jnp.flip(v, 0)) for kind, v in reversed(self.parts)]

    def __len__(self) -> int:
        return sum(1 if kind == "one" else v.shape[0] for kind, v in self.parts)

    def values(self) -> list[Any]:
        """Every element."""
        out: list[Any] = []
        for kind, v in self.parts:
            out += [v] if kind == "one" else [v[k] for k in range(v.shape[0])]
        return out

    def stacked(self) -> jax.Array:
        """All elements on a new leading axis."""
        rows = [as_array(v)[None] if kind == "one" else v for kind, v in self.parts]
        return rows[0] if len(rows) == 1 else jnp.concatenate(rows)

    def item(self, index: Any) -> Any:
        if isinstance(index, Num):
            return jax.lax.dynamic_index_in_dim(self.stacked(), index.array, keepdims=False)
        if len(self.parts) == 1 and self.parts[0][0] == "many":
            return self.parts[0][1][index]
        return self.values()[index]


def jax_dtype(given: Any) -> Any:
    """The dtype of a torch dtype or of its number in TorchScript."""
    return _BY_TORCH[_BY_NUMBER[given] if isinstance(given, int) else given]


def dtype_number(dtype: Any) -> int:
    """c10::ScalarType of an array's dtype."""
    of = _BY_NAME[jnp.dtype(dtype)]
    return next(n for n, t in _BY_NUMBER.items() if t == of)


def is_number(x: Any) -> bool:
    return isinstance(x, (bool, int, float, complex, Num))


def is_traced(x: Any) -> bool:
    return isinstance(x, (Num, Tracer))


def number(array: Any, kind: Any) -> Any:
    """A TorchScript number from a 0-d array: a Python one where the array is known, else a Num."""
    array = jnp.asarray(array).reshape(())
    if not isinstance(array, Tracer):
        return kind(np.asarray(array).item())
    wide = {int: jnp.int64, float: jnp.float64, bool: jnp.bool_}[kind]
    return Num(array.astype(jax.dtypes.canonicalize_dtype(wide)))


def as_array(x: Any, dtype: Any = None) -> jax.Array:
    """A tensor or a number as an array."""
    raw = x.array if isinstance(x, Num) else x
    return jnp.asarray(raw if isinstance(raw, Tracer) else whole(raw), dtype)


def whole(x: Any) -> Any:
    """A known number or array, whose integers JAX must not cut down to 32 bits: they may be the mask of an unsigned 32."""
    if isinstance(x, jax.Array) or jax.config.jax_enable_x64:  # type: ignore[attr-defined]
        return x
    values = np.asarray(x)
    if values.size and values.dtype in (np.int64, np.uint64):
        worst = max(values.max(), values.min(), key=lambda v: abs(int(v)))
        if not -(2**31) <= int(worst) < 2**32 - (values.dtype == np.int64) * 2**31:
            raise ValueError(
                f"from_torchscript: the module computes with the {values.dtype} {int(worst)}, for which JAX has 32 bits; unsigned "
                'integers need such numbers: call jax.config.update("jax_enable_x64", True) first'
            )
    return x


def concretization_error(array: Any, what: str) -> Exception:
    """JAX's own error for a value that a trace does not know."""
    return jax.errors.ConcretizationTypeError(array, f"from_torchscript: {what}")


def static_int(x: Any, what: str) -> int:
    """A Python int, where TorchScript gave one that JAX must know while tracing."""
    if isinstance(x, Num):
        raise concretization_error(x.array, f"{what} must be known before the program runs")
    return int(x)


def axes_of(given: Any, ndim: int) -> tuple[int, ...] | None:
    """torch's dim argument (None, an int, a list; empty means all) as axes."""
    if given is None or (isinstance(given, (list, tuple)) and not given):
        return None
    listed = given if isinstance(given, (list, tuple)) else [given]
    return tuple(static_int(d, "an axis") % max(ndim, 1) for d in listed)


_KINDS = {"b": 0, "i": 1, "u": 1, "f": 2, "V": 2, "c": 3}


def _kind(dtype: Any) -> int:
    dtype = jnp.dtype(dtype)
    return 2 if dtype == jnp.bfloat16 else _KINDS[dtype.kind]


def _join(a: Any, b: Any) -> Any:
    if a is None or b is None:
        return b if a is None else a
    return _BY_TORCH[torch.promote_types(_BY_NAME[jnp.dtype(a)], _BY_NAME[jnp.dtype(b)])]


def _over(strong: Any, weak: Any) -> Any:
    """The dtype of a stronger category met by a weaker one, which counts only where it is of a higher kind."""
    if strong is None or weak is None:
        return weak if strong is None else strong
    return _join(strong, weak) if _kind(weak) > _kind(strong) else strong


def _number_dtype(x: Any) -> Any:
    kind = x.kind if isinstance(x, Num) else {bool: "b", int: "i", float: "f", complex: "c"}[type(x)]
    default = _BY_TORCH[torch.get_default_dtype()]
    return {
        "b": jnp.dtype(bool),
        "i": jnp.dtype("int64"),
        "f": default,
        "c": _join(default, jnp.dtype("complex64")),
    }[kind]


def promote(*operands: Any) -> Any:
    """torch.result_type: tensors with axes over 0-d tensors over numbers."""
    tensors: Any = None
    scalars: Any = None
    numbers: Any = None
    for x in operands:
        if is_number(x):
            numbers = _join(numbers, _number_dtype(x))
        elif x.ndim:
            tensors = _join(tensors, x.dtype)
        else:
            scalars = _join(scalars, x.dtype)
    return _over(tensors, _over(scalars, numbers))


def together(fun: Callable, *operands: Any, floating: bool = False, dtype: Any = None) -> jax.Array:
    """fun on the operands at their common dtype; `floating`: integers count as torch's default float."""
    common = promote(*operands)
    if floating and _kind(common) < 2:
        common = _BY_TORCH[torch.get_default_dtype()]
    common = jax.dtypes.canonicalize_dtype(common)
    out = fun(*[as_array(x).astype(common) for x in operands])
    return out if dtype is None else out.astype(dtype)


def table() -> tuple[Callable[..., Callable], dict[str, Callable[..., Any]]]:
    """A decorator that registers rows, and the table they go to. Names without a namespace are aten's."""
    rows: dict[str, Callable[..., Any]] = {}

    def op(*names: str) -> Callable[[Callable], Callable]:
        def register(function: Callable) -> Callable:
            for name in names:
                full = name if "::" in name else f"aten::{name}"
                assert full not in rows, full
                rows[full] = function
            return function

        return register

    return op, rows


def listed(values: Any) -> list[Any]:
    """A list of tensors, or of anything, as a Python list."""
    return values.values() if isinstance(values, Items) else list(values)


def summable(x: Any, dtype: Any) -> Any:
    """What torch sums integers and bools as, where no dtype is asked for."""
    return x.astype(jnp.int64) if dtype is None and (x.dtype == bool or jnp.issubdtype(x.dtype, jnp.integer)) else x
