"""PyTorch: JAX functions with loops and branches as TorchScript modules, and graphs built by hand."""

from __future__ import annotations

from .export import to_exported_program
from .graph_builder import GraphBuilder
from .importer import from_torchscript
from .overloads import GraphError
from .saving import save
from .script import to_torchscript

__all__ = ["GraphBuilder", "GraphError", "from_torchscript", "save", "to_exported_program", "to_torchscript"]
