"""The engine under other libraries' names: jax.lax (`lax`), PyTorch's operators (`torch_ops`), unedited programs (`patched`)."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import lax, torch_ops
    from .patch import active, install, patched, uninstall

__all__ = ["active", "install", "lax", "patched", "torch_ops", "uninstall"]

_PATCH = frozenset({"active", "install", "patched", "uninstall"})


def __getattr__(name: str) -> Any:
    # Late, because patch.py adds a key to JAX's jit caches: who only imports `lax` is not to be traced anew for it.
    import importlib

    if name in _PATCH:
        return getattr(importlib.import_module(".patch", __name__), name)
    if name in ("lax", "torch_ops"):
        return importlib.import_module("." + name, __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
