"""Saving and loading pytrees of arrays in Quabla's file format: JSON and raw bytes, no pickle.

A file is the magic bytes, the length of the header (u64, little-endian), the header in JSON, and the data of the
arrays, little-endian and in C order. Only float64, float32, bool, numbers, strings, None, dict, list and tuple occur,
so loading a file runs no code of it. Saved files appear whole or not at all.
"""

from __future__ import annotations

import io as _io
import json
import math
import os
import struct
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ._files import atomic_path, checked_path, saying_where
from .arrays import is_tracer

__all__ = ["load", "save"]

MAGIC = b"\x93QUABLA\n"
VERSION = 1
# A header describes structure alone; a longer one than this is damage or an attack, not a model.
HEADER_LIMIT = 256 * 2**20
DEPTH_LIMIT = 200
RANK_LIMIT = 64  # NumPy's
CHUNK = 16 * 2**20
_LENGTH = struct.Struct("<Q")
_CODES = {"float64": "<f8", "float32": "<f4", "bool": "|b1"}


def save(file: Any, tree: Any) -> None:
    """Writes a pytree to a path or a binary file object.

    Arguments:
        tree: arrays (float64, float32, bool), None, bool, int, float and str in dicts (str or int keys), lists and
            tuples.
    Raises:
        TypeError: any other leaf, container or key, and traced values; a file that is neither a path nor a binary file object.
        ValueError: a tree nested over 200 deep; a path with a null byte. OSError: the path cannot be written; a file that was
            there stays as it was.
    """
    stream = _is_stream(file, "write")
    blocks: list[bytes] = []
    node = _encode(tree, blocks, [0], 0)
    header = json.dumps({"format": "quabla", "version": VERSION, "tree": node}, allow_nan=False, separators=(",", ":"))
    encoded = header.encode()
    parts = [MAGIC, _LENGTH.pack(len(encoded)), encoded, *blocks]
    if stream:
        for part in parts:
            file.write(part)
        return
    with atomic_path(file, "quabla.save") as temporary, open(temporary, "wb") as handle:
        handle.writelines(parts)


def _is_stream(file: Any, method: str) -> bool:
    """Whether `file` is a binary file object with that method; where it is no path either, the error says so.

    Raises:
        TypeError: neither, or a stream of text. ValueError: no possible path.
    """
    function = {"read": "load", "write": "save"}[method]
    if isinstance(file, _io.TextIOBase):
        mode = {"read": "rb", "write": "wb"}[method]
        raise TypeError(
            f"quabla.{function}: file must be a binary file object, got a {type(file).__name__} of text; open it with {mode!r}"
        )
    if callable(getattr(file, method, None)) and not isinstance(file, type):
        return True
    order = " (the file comes first: save(file, tree))" if method == "write" else ""
    checked_path(f"quabla.{function}", file, "file", f" or a binary file object with a {method} method{order}")
    return False


def _encode(value: Any, blocks: list[bytes], offset: list[int], depth: int) -> dict[str, Any]:
    kind = type(value)
    if depth > DEPTH_LIMIT:
        raise ValueError(
            f"quabla.save cannot save a tree nested more than {DEPTH_LIMIT} deep (load reads none); is a container in itself?"
        )
    if value is None:
        return {"type": "none"}
    if kind in (bool, int, str):
        return {"type": kind.__name__, "value": value}
    if kind is float:
        return {"type": "float", "value": value.hex()}
    if kind in (list, tuple):
        return {"type": kind.__name__, "items": [_encode(item, blocks, offset, depth + 1) for item in value]}
    if kind is dict:
        for name in value:
            if type(name) not in (str, int):
                raise TypeError(f"quabla.save supports dict keys of type str or int, got {name!r}")
        values = [_encode(v, blocks, offset, depth + 1) for v in value.values()]
        return {"type": "dict", "keys": list(value), "values": values}
    if is_tracer(value):
        raise TypeError("quabla.save cannot save a traced value; call it outside a transform")
    if isinstance(value, (jax.Array, np.ndarray)) and str(value.dtype) in _CODES:
        data = np.ascontiguousarray(np.asarray(value), _CODES[str(value.dtype)]).tobytes()
        start = offset[0]
        blocks.append(data)
        offset[0] += len(data)
        shape = [int(n) for n in value.shape]
        return {"type": "array", "dtype": str(value.dtype), "shape": shape, "offset": start, "nbytes": len(data)}
    what = f"{kind.__qualname__} of dtype {value.dtype}" if hasattr(value, "dtype") else kind.__qualname__
    raise TypeError(
        f"quabla.save cannot save a {what}: leaves must be float64, float32 or bool arrays, None, bool, int, float, or str, "
        "and containers dict, list, or tuple (save the fields of named tuples and registered classes instead)"
    )


def load(file: Any) -> Any:
    """Reads what `save` wrote, from a path or a binary file object; dicts keep their order.

    Raises:
        ValueError: no such file format, another version, a truncated file, a damaged header; a path with a null byte.
        TypeError: neither a path nor a binary file object. OSError: the file is missing or cannot be opened.
    """
    if _is_stream(file, "read"):
        return _read(file)
    with saying_where("quabla.load"):
        handle = open(os.fsdecode(file), "rb")
    with handle:
        return _read(handle)


def _read(stream: Any) -> Any:
    magic = stream.read(len(MAGIC))
    if magic != MAGIC:
        raise ValueError("not a quabla save file (bad magic bytes)")
    length = stream.read(_LENGTH.size)
    if len(length) < _LENGTH.size:
        raise ValueError("truncated quabla save file (incomplete header size)")
    (size,) = _LENGTH.unpack(length)
    if size > HEADER_LIMIT and (_remaining(stream) is None or size <= (_remaining(stream) or 0)):
        raise ValueError(f"malformed quabla save file: a header of {size} bytes is over the limit of {HEADER_LIMIT}")
    encoded = stream.read(min(size, HEADER_LIMIT))
    if len(encoded) < size:
        raise ValueError("truncated quabla save file (incomplete header)")
    tree = _header(encoded)
    return _Decoder(_data(stream, _extent(tree))).node(tree, 0)


def _extent(tree: Any) -> int:
    """How many bytes of data the arrays of a header reach over; what is no sound node counts as none."""
    reach, nodes, depth = 0, [tree], 0
    while nodes and depth <= DEPTH_LIMIT + 1:
        below: list[Any] = []
        for node in nodes:
            if not isinstance(node, dict):
                continue
            if node.get("type") == "array" and type(node.get("offset")) is int and type(node.get("nbytes")) is int:
                reach = max(reach, node["offset"] + node["nbytes"])
            below += [x for field in ("items", "values") if type(node.get(field)) is list for x in node[field]]
        nodes, depth = below, depth + 1
    return reach


def _data(stream: Any, extent: int) -> bytes:
    """The first `extent` bytes of what is left, or as many as there are: neither an endless stream nor a header's claim is
    taken at its word."""
    left = _remaining(stream)
    if left is not None:
        return stream.read(min(left, extent))
    parts, missing = [], extent
    while missing > 0 and (part := stream.read(min(missing, CHUNK))):
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)


def _remaining(stream: Any) -> int | None:
    """How many bytes are left in a seekable stream."""
    try:
        here = stream.tell()
        end = stream.seek(0, _io.SEEK_END)
        stream.seek(here)
    except (AttributeError, OSError):
        return None
    return end - here


def _malformed(what: str) -> ValueError:
    return ValueError(f"malformed quabla save file header: {what}")


def _refuse_constant(name: str) -> Any:
    raise _malformed(f"{name} is not valid JSON")


def _header(encoded: bytes) -> Any:
    try:
        header = json.loads(encoded, parse_constant=_refuse_constant)
    except ValueError as error:  # no UTF-8, no JSON, or an integer of more digits than Python reads
        raise _malformed(str(error)) from None
    except RecursionError:
        raise _malformed("it is nested too deeply") from None
    if not isinstance(header, dict) or header.get("format") != "quabla":
        raise _malformed("not a quabla header")
    if header.get("version") != VERSION:
        raise ValueError(
            f"unsupported quabla save file version {header.get('version')!r}; this library reads version {VERSION}"
        )
    return header.get("tree")


class _Decoder:
    """Turns header nodes into values over the array data of one file."""

    def __init__(self, data: bytes):
        self.data = data

    def node(self, node: Any, depth: int) -> Any:
        kind = node.get("type") if isinstance(node, dict) else None
        if depth > DEPTH_LIMIT:
            raise _malformed("it is nested too deeply")
        if kind == "none":
            return None
        if kind in ("bool", "int", "str"):
            value = node.get("value")
            if type(value).__name__ != kind:
                raise _malformed(f"bad {kind} node {node!r}")
            return value
        if kind == "float":
            try:
                return float.fromhex(node["value"])
            except (KeyError, TypeError, ValueError, OverflowError):
                raise _malformed(f"bad float node {node!r}") from None
        if kind in ("list", "tuple"):
            items = [self.node(item, depth + 1) for item in self._list(node, "items")]
            return items if kind == "list" else tuple(items)
        if kind == "dict":
            keys, values = self._list(node, "keys"), self._list(node, "values")
            if len(keys) != len(values) or any(type(name) not in (str, int) for name in keys):
                raise _malformed("bad dict node")
            return {name: self.node(value, depth + 1) for name, value in zip(keys, values)}
        if kind == "array":
            return self._array(node)
        raise _malformed(f"unknown tree node {str(node)[:80]}")

    def _list(self, node: dict, field: str) -> list:
        found = node.get(field)
        if type(found) is not list:
            raise _malformed(f"bad {node.get('type')} node")
        return found

    def _array(self, node: dict) -> jax.Array:
        dtype, shape, offset, nbytes = (node.get(field) for field in ("dtype", "shape", "offset", "nbytes"))
        extents = (
            type(shape) is list and len(shape) <= RANK_LIMIT and all(type(n) is int and 0 <= n < 2**63 for n in shape)
        )
        sound = extents and type(dtype) is str and dtype in _CODES
        if not sound or type(offset) is not int or type(nbytes) is not int or offset < 0:
            raise _malformed(f"bad array node {str(node)[:120]}")
        code = np.dtype(_CODES[str(dtype)])
        count = math.prod(shape)  # type: ignore[arg-type]
        if nbytes != count * code.itemsize:
            raise _malformed(f"{nbytes} bytes do not hold a {dtype} array of shape {shape}")
        if offset + nbytes > len(self.data):
            raise ValueError("truncated quabla save file (array data past the end of the file)")
        values = np.frombuffer(self.data, code, count, offset).reshape(shape)
        if dtype == "bool":
            values = values.view(np.uint8) != 0
        elif dtype == "float64":
            from .dtypes import float64, resolve

            resolve(float64)
        with jax.ensure_compile_time_eval():
            return jnp.asarray(values.astype(code.newbyteorder("=")))
