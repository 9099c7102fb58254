"""JAX functions on Apple's MLX, control flow and derivatives included.

    from quabla_jax import mlx_backend
    step = mlx_backend.jit(step)                # jax, NumPy or mx arrays in; mx out where mx came in
    program = mlx_backend.lower(step, *args)    # program.as_text(), program.compile()

MLX is imported at the first use, not with this package.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .program import MlxProgram, jit, lower

__all__ = ["MlxProgram", "is_available", "jit", "lower"]


def is_available() -> bool:
    """Whether MLX is installed and loads here."""
    if importlib.util.find_spec("mlx") is None:
        return False
    try:
        import mlx.core  # noqa: F401
    except ImportError:
        return False
    return True


def __getattr__(name: str) -> Any:
    if name not in ("MlxProgram", "jit", "lower"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if not is_available():
        raise ImportError("MLX is not installed; `pip install quabla-jax[mlx]` brings it (Apple silicon, or Linux)")
    from . import program

    value = globals()[name] = getattr(program, name)
    return value
