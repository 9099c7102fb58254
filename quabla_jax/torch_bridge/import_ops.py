"""The table aten and prim operator -> JAX, for from_torchscript.

Each row takes a node's inputs in order, keyword-only ones included, as the graph has them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import import_layers, import_pointwise, import_shapes

__all__ = ["OPERATORS"]

OPERATORS: dict[str, Callable[..., Any]] = {}
for _module in (import_pointwise, import_shapes, import_layers):
    assert not OPERATORS.keys() & _module.OPERATORS.keys(), OPERATORS.keys() & _module.OPERATORS.keys()
    OPERATORS.update(_module.OPERATORS)
