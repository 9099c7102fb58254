"""What the command line reads: MODULE:FUNCTION, shapes such as f32[8,3], and parameter files."""

from __future__ import annotations

import contextlib
import difflib
import importlib
import inspect
import math
import os
import re
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from ._files import checked_path

__all__ = ["check_call", "count_of", "function_at", "parameters_in", "refusing_exit", "shape_of", "size_of"]

_DTYPES = {
    "f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64", "i8": "int8", "i16": "int16", "i32": "int32",
    "i64": "int64", "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64", "c64": "complex64", "c128": "complex128",
    "bool": "bool",
}  # fmt: skip


def function_at(place: str) -> Callable[..., Any]:
    """The function at "module:name" or "module:object.name"; the current folder is searched too."""
    module, colon, name = place.partition(":")
    if not colon or not name or "/" in module or not all(module.split(".")):
        raise ValueError(
            f"{place!r} is no MODULE:FUNCTION; write for instance mypackage.model:forward (a module is named as import names "
            "it, from the current folder on)"
        )
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        with refusing_exit(f"importing {module!r}"):
            found: Any = importlib.import_module(module)
    except ImportError as error:
        cure = f"; a module is named without its ending: {module[:-3]}:{name}" if module.endswith(".py") else ""
        raise ValueError(f"cannot import {module!r}: {error}{cure}") from error
    for part in name.split("."):
        if not hasattr(found, part):
            near = difflib.get_close_matches(part, [n for n in dir(found) if not n.startswith("_")], 1, 0.5)
            raise ValueError(f"{module!r} has no {name!r}{f'; is it {near[0]!r}?' if near else ''}")
        found = getattr(found, part)
    if not callable(found):
        raise ValueError(f"{place!r} is a {type(found).__name__}, not a function")
    return found


@contextlib.contextmanager
def refusing_exit(doing: str) -> Iterator[None]:
    """Makes sys.exit of the user's code an error, so that a command that did not do its work does not end with status 0."""
    try:
        yield
    except SystemExit as error:
        raise ValueError(
            f"{doing} ended the program (SystemExit: {error}); guard what a script does with if __name__ == '__main__'"
        ) from error


def check_call(fun: Callable[..., Any], args: Sequence[Any]) -> None:
    """ValueError, which says what to add, where `fun` does not take just these arguments."""
    try:
        signature = inspect.signature(fun)
        signature.bind(*args)
    except TypeError as error:
        name = getattr(fun, "__name__", "the function")
        raise ValueError(
            f"{name}{inspect.signature(fun)}: {error}; give one --arg for each argument, in order"
        ) from None
    except ValueError:  # a function without a signature
        return


def shape_of(text: str) -> jax.ShapeDtypeStruct:
    """f32[8,3] -> shapes for tracing; f64[] or f64 is a scalar."""
    match = re.fullmatch(r"([a-z]+[0-9]*)(?:\[\s*((?:[0-9]+\s*(?:,\s*[0-9]+\s*)*,?)?)\s*\])?", text.strip())
    if match is None or match[1] not in _DTYPES:
        raise ValueError(
            f"{text!r} is no array type; write for instance f32[8,3], f64[] or i32[5]; dtypes: {', '.join(_DTYPES)}"
        )
    dtype = np.dtype(_DTYPES[match[1]]) if match[1] != "bf16" else jax.numpy.bfloat16
    if match[1] in ("f64", "i64", "u64", "c128"):
        jax.config.update("jax_enable_x64", True)
    sizes = tuple(int(n) for n in (match[2] or "").split(",") if n.strip())
    if math.prod(sizes) >= 2**60:
        raise ValueError(f"{text!r} has more elements than any memory holds (2**60 or more)")
    return jax.ShapeDtypeStruct(sizes, dtype)


def count_of(text: str) -> int:
    """A positive count, also as people write long ones: 1000000, 1_000_000, 1e6."""
    try:
        value = float(text)
    except ValueError:
        value = 0.5
    if not (1 <= value < math.inf and value == int(value)):
        raise ValueError(f"{text!r} is no trip count; write for instance 10000 or 1e4")
    return int(value) if "e" in text.lower() else int(text)


def size_of(text: str) -> int:
    """Bytes from a number or a text such as 512MB."""
    from .loops.plan import Budget

    return Budget(text).bytes if not text.isdigit() else int(text)


def parameters_in(path: str | os.PathLike) -> dict[str, Any]:
    """A nested dict of arrays from an .npz file whose names are dotted paths ("layers.w"); nothing is unpickled."""
    path = checked_path("--params", path)
    try:
        with open(path, "rb") as file:
            if file.read(2) not in (b"PK", b"\x93N"):
                raise ValueError("it is neither a zip archive nor a .npy file")
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            raise ValueError("it holds one array without a name; write it with numpy.savez(path, name=array)")
        with loaded as archive:
            flat = {name: archive[name] for name in archive.files}
        for name, array in flat.items():
            if array.dtype.kind not in "fiubcV":
                raise ValueError(f"{name!r} holds {array.dtype}, no numbers")
    except (ValueError, OSError, KeyError, EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError) as error:
        raise ValueError(f"{path!r} is no .npz file of arrays: {error}") from error
    tree: dict[str, Any] = {}
    for name, array in flat.items():
        *parents, leaf = name.split(".")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
            if not isinstance(node, dict):
                raise ValueError(f"{os.fspath(path)!r}: {name!r} lies under another array")
        node[leaf] = array
    return tree
