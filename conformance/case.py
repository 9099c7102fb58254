"""What a case is: data only. The runner knows how to run it; the report knows how to draw it."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

__all__ = ["CASES", "BATCH", "Case", "Exact", "Rand", "Static", "case", "register"]

BATCH = 3  # examples a mapped input has under the vmap transforms

FORWARD = ("eager", "jit", "vmap", "jvp")
VALUES = ("eager", "jit", "vmap")
SMOOTH = (
    *FORWARD, "vmap_jvp", "jvp_jvp", "grad", "grad_vmap", "vmap_grad", "grad_jvp", "hvp", "hessian", "grad_grad", "third",
)  # fmt: skip


@dataclass(frozen=True)
class Rand:
    """Uniform draws in [low, high) of the cell's dtype (`dtype` None) or of a fixed one; seeded from the case's name.

    mapped=False keeps the input unmapped under the vmap transforms.
    """

    shape: tuple[int, ...] = ()
    low: float = -1.0
    high: float = 1.0
    dtype: str | None = None
    mapped: bool = True

    def draw(self, generator: np.random.Generator, dtype: np.dtype, batch: int | None) -> np.ndarray:
        shape = self.shape if batch is None or not self.mapped else (batch, *self.shape)
        kind = np.dtype(self.dtype) if self.dtype else dtype
        if kind.kind in "iub":
            return generator.integers(int(self.low), int(self.high), shape).astype(kind)
        return generator.uniform(self.low, self.high, shape).astype(kind)


@dataclass(frozen=True)
class Exact:
    """Given values. `batch`: the BATCH values used when mapped; without it the input stays unmapped."""

    value: Any
    dtype: str | None = None
    batch: Any = None

    @property
    def mapped(self) -> bool:
        return self.batch is not None

    def draw(self, generator: np.random.Generator, dtype: np.dtype, batch: int | None) -> np.ndarray:
        kind = np.dtype(self.dtype) if self.dtype else dtype
        values = self.batch if batch is not None and self.batch is not None else self.value
        return np.asarray(values).astype(kind)


@dataclass(frozen=True)
class Static:
    """A Python value handed to the program as it is."""

    value: Any


Input = Rand | Exact | Static


@dataclass(frozen=True)
class Case:
    """One behaviour.

    program(ns, *inputs) -> array or flat tuple of arrays. In the "quabla" dialect `ns` has Quabla's names; in the "jax"
    dialect it has jax.lax's control flow, and the program uses jax.numpy for the rest.
    ulp: bar on the distance from the reference, in units in the last place at the output's scale, before the
        transform's own factor (Transform.slack).
    raises: (class name, fragment of the text): the program must raise instead, under each of its transforms.
    reference: the program that the reference runs instead, where plain jax.lax cannot (reverse mode through while).
    covers: the rules that this case shows, as in rules.py.
    """

    name: str
    program: Callable[..., Any]
    inputs: tuple[Input, ...]
    dialect: str = "jax"
    transforms: tuple[str, ...] = SMOOTH
    dtypes: tuple[str, ...] = ("float64", "float32")
    ulp: float = 64.0
    covers: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    raises: tuple[str, str] | None = None
    reference: Callable[..., Any] | None = None
    same_dtype: bool = False  # the reference too runs in the cell's dtype (bit tricks, casts, integers)
    signed_zeros: bool = False  # the sign of a zero counts
    slow: bool = False
    doc: str = field(default="", compare=False)

    @property
    def family(self) -> str:
        return self.name.split("/")[0]

    def draw(self, dtype: str, batch: int | None = None) -> list[Any]:
        """The inputs of a cell; the same numbers on every machine and for every backend."""
        generator = np.random.default_rng(zlib.crc32(self.name.encode()))
        kind = np_dtype(dtype)
        return [i.value if isinstance(i, Static) else i.draw(generator, kind, batch) for i in self.inputs]


def np_dtype(name: str) -> np.dtype:
    if name == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


CASES: dict[str, Case] = {}


def register(new: Case) -> Case:
    if new.name in CASES:
        raise ValueError(f"two cases are called {new.name!r}")
    CASES[new.name] = new
    return new


def case(name: str, *inputs: Input, **fields: Any) -> Callable[[Callable], Callable]:
    """Decorator: register the program as a case; its docstring becomes the case's."""

    def wrap(program: Callable) -> Callable:
        register(Case(name, program, inputs, doc=(program.__doc__ or "").strip(), **fields))
        return program

    return wrap
