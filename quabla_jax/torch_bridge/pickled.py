"""The pickles in a TorchScript file, read without running any of it, to see that its tensors lie inside their storages.

torch's own reader, in C++, does not compare a tensor's extents with the bytes in the file: a record that is too short makes it read
beyond its memory. Only the opcodes, globals and calls that torch.jit.save writes are known here; anything else is refused.
"""

from __future__ import annotations

import dataclasses
import math
import pickletools
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["check_pickle"]

DEEPEST = 200
"""How deeply containers and expressions may be nested: torch destroys and parses them by recursion."""
BYTES = {
    "Double": 8, "Float": 4, "Half": 2, "BFloat16": 2, "Long": 8, "Int": 4, "Short": 2, "Char": 1, "Byte": 1, "Bool": 1,
    "ComplexFloat": 8, "ComplexDouble": 16,
}  # fmt: skip
REBUILD = "torch._utils _rebuild_tensor_v2"
CALLED = frozenset((
    REBUILD, "collections OrderedDict", "torch device", "torch.jit._pickle restore_type_tag", "torch.jit._pickle build_intlist",
    "torch.jit._pickle build_doublelist", "torch.jit._pickle build_boollist", "torch.jit._pickle build_tensorlist",
))  # fmt: skip
PLAIN = frozenset("BININT BININT1 BININT2 LONG1 LONG4 BINFLOAT BINUNICODE SHORT_BINUNICODE BINUNICODE8".split())
CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}


@dataclasses.dataclass(frozen=True)
class _Global:
    name: str


@dataclasses.dataclass
class _Items:
    """A tuple, a list or an object: what it holds, and how deeply it is nested."""

    items: list[Any]
    depth: int = 1

    def add(self, new: Sequence[Any]) -> None:
        self.items += new
        self.depth = max([self.depth, *(1 + x.depth for x in new if isinstance(x, _Items))])
        if self.depth > DEEPEST:
            raise ValueError(f"its values are nested over {DEEPEST} deep")


@dataclasses.dataclass(frozen=True)
class _Storage:
    itemsize: int
    elements: int


_MARK = object()


def check_pickle(data: bytes, record_size: Callable[[str], int | None], limit: int) -> None:
    """Reads one pickle through.

    Arguments:
        record_size: gives the bytes of a storage's record by its key, None where there is none.
        limit: bytes that a tensor may have when its elements are written out.

    Raises:
        ValueError: what torch does not write, or a tensor beyond its storage.
    """
    try:
        _Reader(record_size, limit).read(data)
    except (IndexError, KeyError, TypeError, AttributeError, UnicodeDecodeError) as error:
        raise ValueError(f"its description of values is damaged ({type(error).__name__})") from error


class _Reader:
    def __init__(self, record_size: Callable[[str], int | None], limit: int):
        self.record_size, self.limit = record_size, limit
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def read(self, data: bytes) -> None:
        ended = False
        for opcode, arg, place in pickletools.genops(data):
            if place == 0 and (opcode.name, arg) != ("PROTO", 2):
                raise ValueError("its description of values does not begin as torch's do")
            self._step(opcode.name, arg)
            ended = opcode.name == "STOP"
        if not ended:
            raise ValueError("its description of values is cut off")

    def _step(self, name: str, arg: Any) -> None:
        stack = self.stack
        if name in PLAIN:
            stack.append(arg)
        elif name in CONSTANTS:
            stack.append(CONSTANTS[name])
        elif name in ("BINPUT", "LONG_BINPUT"):
            self.memo[arg] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(self.memo[arg])
        elif name == "GLOBAL":
            stack.append(self._global(arg))
        elif name == "MARK":
            stack.append(_MARK)
        elif name in ("EMPTY_TUPLE", "EMPTY_LIST", "EMPTY_DICT"):
            stack.append(_Items([]))
        elif name == "TUPLE":
            self._collect(self._above_mark())
        elif name in ("TUPLE1", "TUPLE2", "TUPLE3"):
            self._collect([stack.pop() for _ in range(int(name[-1]))][::-1])
        elif name in ("APPENDS", "SETITEMS"):
            new = self._above_mark()
            stack[-1].add(new)
        elif name == "APPEND":
            new = [stack.pop()]
            stack[-1].add(new)
        elif name == "SETITEM":
            value, key = stack.pop(), stack.pop()
            stack[-1].add([key, value])
        elif name == "BINPERSID":
            stack.append(self._storage(stack.pop()))
        elif name in ("REDUCE", "NEWOBJ"):
            args = stack.pop()
            stack.append(self._called(name, stack.pop(), args))
        elif name == "BUILD":
            state = stack.pop()
            stack[-1].add([state])
        elif name not in ("PROTO", "STOP"):
            raise ValueError(f"its description of values holds {name}, which torch does not write")

    def _above_mark(self) -> list[Any]:
        found = []
        while (value := self.stack.pop()) is not _MARK:
            found.append(value)
        return found[::-1]

    def _collect(self, values: list[Any]) -> None:
        made = _Items([])
        made.add(values)
        self.stack.append(made)

    def _global(self, arg: str) -> _Global:
        module, _, name = arg.partition(" ")
        kind = name.removesuffix("Storage")
        known = arg in CALLED or module.split(".")[0] == "__torch__" or (module == "torch" and kind in BYTES)
        if not known:
            raise ValueError(f"its description of values names {arg!r:.100}, which torch does not write there")
        return _Global(arg)

    def _storage(self, args: _Items) -> _Storage:
        label, kind, key, _, elements = args.items
        itemsize = BYTES[kind.name.removeprefix("torch ").removesuffix("Storage")]
        if label != "storage" or type(key) is not str or type(elements) is not int or elements < 0:
            raise ValueError("it holds a damaged storage")
        held = self.record_size(key)
        if held is None or held < elements * itemsize:
            raise ValueError(
                f"the storage {key!r:.40} has {elements} elements of {itemsize} bytes, its record {held or 0} bytes"
            )
        return _Storage(itemsize, elements)

    def _called(self, how: str, function: _Global, args: _Items) -> Any:
        own = function.name.startswith("__torch__")
        if (how == "NEWOBJ") != own or not (own or function.name in CALLED):
            raise ValueError(f"its description of values calls {function.name!r:.100}, which torch does not write")
        if function.name == REBUILD:
            self._check_tensor(*args.items)
        made = _Items([])
        made.add(args.items)
        return made

    def _check_tensor(self, storage: _Storage, offset: int, size: _Items, stride: _Items, *_: Any) -> None:
        sizes, strides = size.items, stride.items
        numbers = [offset, *sizes, *strides]
        if len(sizes) != len(strides) or any(type(n) is not int or not 0 <= n < 2**62 for n in numbers):
            raise ValueError("it holds a tensor of damaged extents")
        if math.prod(sizes) * storage.itemsize > self.limit:
            raise ValueError(
                f"it holds a tensor of shape {sizes}, over the limit of {self.limit} bytes for a file of this size"
            )
        last = offset + sum((n - 1) * step for n, step in zip(sizes, strides)) if 0 not in sizes else offset - 1
        if last >= storage.elements:
            raise ValueError(f"a tensor of shape {sizes} reaches beyond its storage of {storage.elements} elements")
