"""JAX programs as core ops: lower() makes a Program that every target reads.

program = lower(fun, *example_args)     # jaxpr -> core ops, loops and branches
check(program, builder)                 # raises before anything runs if the target lacks an op
outputs = emit(program, builder, inputs)
"""

from typing import TYPE_CHECKING

try:
    from . import jax_api  # noqa: F401  (first, whoever comes: what a new JAX moved is said here in a sentence)
except (ImportError, AttributeError, TypeError, KeyError) as error:
    from .._versions import unsupported

    raise ImportError(unsupported(error)) from error

from .builder import Builder, emit
from .core_ops import CORE_OPS, CoreOp
from .program import Branch, Const, Loop, Op, Program, Region, Value, walk

if TYPE_CHECKING:
    from .interpreter import check, lower
    from .numpy_builder import run as run_on_numpy
    from .text import as_text

__all__ = [
    "CORE_OPS", "Branch", "Builder", "Const", "CoreOp", "Loop", "Op", "Program", "Region", "Value", "as_text", "check",
    "emit", "lower", "run_on_numpy", "walk",
]  # fmt: skip

_LATE = {
    "lower": ("interpreter", "lower"),
    "check": ("interpreter", "check"),
    "as_text": ("text", "as_text"),
    "run_on_numpy": ("numpy_builder", "run"),
}


def __getattr__(name: str):
    """The rules load when a program is first lowered, not when the package is imported."""
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    module, attribute = _LATE[name]
    value = globals()[name] = getattr(importlib.import_module("." + module, __name__), attribute)
    return value
