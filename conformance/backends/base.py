"""The two kinds of backend.

A namespace backend runs the program itself: it brings a Space for each dialect that it speaks. A jaxpr backend is
given the closed jaxpr of the transformed program and returns a function of NumPy arrays: that is all an outsider has
to write. Derivatives and batching of the latter are taken by JAX, through the `traced_with` namespace backend.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import numpy as np

from ..transforms import Space

__all__ = ["JaxprBackend", "NamespaceBackend", "to_numpy"]


@runtime_checkable
class NamespaceBackend(Protocol):
    name: str

    def available(self) -> str | None:
        """None, or why the backend cannot run on this machine."""
        ...

    def space(self, dialect: str) -> Space | None:
        """None: the backend does not speak this dialect; its cells are then not made."""
        ...


@runtime_checkable
class JaxprBackend(Protocol):
    name: str

    def available(self) -> str | None: ...

    def prepare(self, closed_jaxpr: Any) -> Callable[..., list[np.ndarray]]:
        """run(*numpy arrays) -> list of NumPy arrays. Raise quabla_jax.errors.UnsupportedOperationError for what cannot run."""
        ...


def to_numpy(value: Any) -> np.ndarray:
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "numpy") and not hasattr(value, "__array__"):
        return np.asarray(value.numpy())
    return np.asarray(value)
