"""The backends by name, and outsiders' by `module:object`."""

from __future__ import annotations

import importlib
from typing import Any

from . import namespace, targets
from .base import JaxprBackend, NamespaceBackend

__all__ = ["BUILT_IN", "JaxprBackend", "NamespaceBackend", "REFERENCE", "load"]

REFERENCE = namespace.PlainLax()
BUILT_IN: dict[str, Any] = {
    b.name: b
    for b in (
        REFERENCE,
        namespace.QuablaJax(),
        namespace.Compat(),
        targets.NumpyOracle(),
        targets.Mlx(),
        targets.TorchScript(),
        targets.TorchExport(),
        targets.TorchGraphs(),
        namespace.RealQuabla(),
    )
}


def load(name: str) -> Any:
    """A built-in backend, or the object (or class, which is then called) at `module:object`."""
    if name in BUILT_IN:
        return BUILT_IN[name]
    module, colon, attribute = name.partition(":")
    if not colon:
        raise ValueError(f"no backend {name!r}: give one of {', '.join(BUILT_IN)}, or module:object")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"cannot load the backend {name!r}: {error}") from error
    backend = found() if isinstance(found, type) else found
    if not hasattr(backend, "available") or not (hasattr(backend, "space") or hasattr(backend, "prepare")):
        raise ValueError(
            f"{name!r} is no backend: it needs name, available() and prepare(closed_jaxpr) or space(dialect)"
        )
    return backend
