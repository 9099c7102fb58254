"""Saving programs: the file appears whole or not at all."""

from __future__ import annotations

import io
import os
from typing import Any

import torch

from .._files import checked_path, write_bytes
from ._torch_api import quiet

__all__ = ["save"]


def save(program: Any, path: str | os.PathLike) -> None:
    """Write a ScriptModule (.pt) or an ExportedProgram (.pt2).

    The file is serialised in memory, written beside its place, flushed to the disk and renamed: whatever fails, an old
    file at `path` stays whole and nothing is left behind.

    Args:
        program: what to_torchscript, GraphBuilder or to_exported_program gave.
        path: ends in .pt2 for an ExportedProgram.

    Raises:
        TypeError: neither kind of program, or no path.
        ValueError: a path with a null byte; an ExportedProgram without results, or with a name that torch.export.load would not know.
        OSError: the folder is missing, the path cannot be written, the disk is full.
    """
    checked_path("torch_bridge.save", path, also=" (the program comes first: save(program, path))")
    buffer = io.BytesIO()
    if isinstance(program, (torch.jit.ScriptModule, torch.jit.ScriptFunction)):
        with quiet():
            torch.jit.save(program, buffer)
    elif isinstance(program, torch.export.ExportedProgram):
        if not os.fsdecode(path).endswith(".pt2"):
            raise ValueError(f"an ExportedProgram is saved as .pt2, got {os.fsdecode(path)!r}")
        if not program.graph_signature.user_outputs:
            raise ValueError("save: torch writes no .pt2 of a program without results; return an array")
        torch.export.save(program, buffer)
    else:
        raise TypeError(
            f"save: expected a ScriptModule, a ScriptFunction or an ExportedProgram, got {type(program).__name__}"
        )
    write_bytes(path, buffer.getvalue(), "torch_bridge.save")
