"""The check of a TorchScript file before torch's reader sees it: a sound zip archive of torch's own shape, or a ValueError."""

from __future__ import annotations

import os
import re
import warnings
import zipfile
from collections.abc import Callable
from typing import BinaryIO

from .pickled import DEEPEST, check_pickle

__all__ = ["check_archive"]

UNFOLDED, UNFOLDED_FREE = 16, 64 * 2**20  # times the file's size, and bytes, that an archive may unfold to
FIRST = b"PK\x03\x04"
CHUNK = 2**20
# Tensors lie in these folders, as they are. torch checks their sums itself while it reads them, and they may be large.
TENSORS = ("data", "constants", "tensors")
# What opens, closes, ends and joins expressions in TorchScript's source; strings and comments are passed over.
TOKEN = re.compile(
    rb"""(?P<text>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|\#[^\n]*)|(?P<open>[(\[{])|(?P<close>[)\]}])|(?P<end>[,;:])"""
    rb"""|(?P<line>\n[ \t]*)|(?P<join>[-+*/%.~@<>=!&|^]+|\b(?:if|else|not|and|or|is|in)\b)""",
)


def check_archive(path: str) -> None:
    """Refuses what torch's reader is not to see.

    That is: no archive, or one behind other bytes or with a comment (two readers could find two archives in it); an entry that is
    named twice, leads out of the archive, or is stored in a way that torch does not write; entries that would unfold to much
    more than the file holds (torch stores tensors as they are and deflates source text alone); a damaged entry; values that torch
    does not write, or tensors beyond their storages; source nested so deeply that torch's parser would end the process.

    Raises:
        ValueError: any of these. OSError: the file cannot be read.
    """
    with open(path, "rb") as file:
        try:
            _check(file)
        except Exception as error:  # whatever a damaged file does to a reader: zipfile alone raises eight kinds
            raise ValueError(
                f"from_torchscript: {path!r} is not a TorchScript file: {error}; save it anew with torch.jit.save"
            ) from error


def _check(file: BinaryIO) -> None:
    if file.read(len(FIRST)) != FIRST:
        raise ValueError("File is not a zip file as torch writes it")
    with zipfile.ZipFile(file) as archive:
        if archive.comment:
            raise ValueError("it ends in a comment")
        entries, size = archive.infolist(), os.fstat(file.fileno()).st_size
        limit = UNFOLDED * size + UNFOLDED_FREE
        _check_sizes(entries, limit)
        _check_names(entries)
        sizes = {e.filename: e.file_size for e in entries}
        for entry in entries:
            _check_entry(archive, entry, sizes, limit)


def _check_sizes(entries: list[zipfile.ZipInfo], limit: int) -> None:
    unfolded = sum(e.file_size for e in entries)
    if unfolded > limit:
        raise ValueError(f"its entries unfold to {unfolded} bytes, over the limit of {limit} for a file of this size")


def _check_names(entries: list[zipfile.ZipInfo]) -> None:
    seen = set()
    for entry in entries:
        parts = entry.filename.replace("\\", "/").split("/")
        if parts[0] == "" or ".." in parts:
            raise ValueError(f"the entry name {entry.filename!r} leads out of the archive")
        if entry.filename in seen:
            raise ValueError(f"it holds two entries of the name {entry.filename!r}")
        seen.add(entry.filename)


def _check_entry(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, sizes: dict[str, int], limit: int) -> None:
    """Reads an entry through, which compares its sum; zipfile reads no more of it than the archive's directory claims."""
    name = entry.filename
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or entry.flag_bits & 0x1:
        raise ValueError(f"the entry {name!r} is packed in a way that torch does not write")
    parts = name.split("/")
    if len(parts) == 3 and parts[1] in TENSORS and parts[2].isdigit():
        return
    if parts[1:] in (["data.pkl"], ["constants.pkl"]) or name.endswith(".debug_pkl"):  # torch.jit.load reads no other
        check_pickle(archive.read(entry), _records(sizes, name), limit)
    elif name.endswith(".py"):
        _check_source(name, archive.read(entry))
    else:
        with archive.open(entry) as stream:
            while stream.read(CHUNK):
                pass


def _records(sizes: dict[str, int], name: str) -> Callable[[str], int | None]:
    """The sizes of the records of one pickle: torch keeps those of x/data.pkl in x/data, and of x/constants.pkl in x/constants."""
    return lambda key: sizes.get(f"{name.removesuffix('.pkl')}/{key}")


def _check_source(name: str, source: bytes) -> None:
    """Refuses source that torch's parser does not survive.

    Depth is bounded: of blocks, and of expressions (open brackets, and operators that no comma or line's end has closed). What torch
    writes is Python's grammar, and what is not (`x[]`, for one) ends the process in torch: so Python's parser sees it first. Nothing is run.
    """
    levels, total = [0], 0
    for token in TOKEN.finditer(source):
        kind = token.lastgroup
        if kind in ("open", "join"):
            levels[-1] += 1
            total += 1
            if kind == "open":
                levels.append(0)
        elif kind == "close" and len(levels) > 1:
            total -= levels.pop()
        elif kind == "end" or (kind == "line" and len(levels) == 1):
            total -= levels[-1]
            levels[-1] = 0
            if kind == "line" and token.end() - token.start() > 2 * DEEPEST:
                raise ValueError(f"its source is indented over {DEEPEST} levels")
        if total > DEEPEST:
            raise ValueError(f"an expression of its source is nested over {DEEPEST} deep")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of escapes in its strings
        try:
            compile(source, name, "exec", dont_inherit=True)
        except (SyntaxError, RecursionError, MemoryError) as error:
            raise ValueError(f"the source in {name!r} is damaged: {error}") from None
