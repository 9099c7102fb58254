"""Paths and files: what is no path is refused in the caller's name; files appear whole or not at all.

A file is written beside its place, flushed to the disk, then renamed.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from typing import Any

__all__ = ["atomic_path", "checked_path", "picture_kind", "saying_where", "target_of", "write_bytes", "write_text"]

PICTURES = ("png", "svg", "pdf", "jpg")


def checked_path(where: str, path: Any, argument: str = "path", also: str = "") -> str:
    """`path` as a str that a file system takes.

    Arguments:
        where: the function that was called, and `argument` its argument's name, for the error.
        also: what else the function takes in a path's place.

    Raises:
        TypeError: neither str, bytes nor os.PathLike. ValueError: an empty path, a null byte, a character without bytes.
    """
    try:
        text = os.fsdecode(path)
    except TypeError:
        shown = type(path).__name__ if path is None or isinstance(path, type) else f"a {type(path).__name__}"
        raise TypeError(
            f"{where}: {argument} must be a path (str, bytes or os.PathLike){also}, got {shown}; give a file's name, "
            'for instance "model.bin"'
        ) from None
    if not text:
        raise ValueError(f"{where}: {argument} must name a file, got an empty path; give a file's name")
    if "\0" in text:
        raise ValueError(
            f"{where}: {argument} must be a path without null bytes, got {text!r:.100}; remove the null byte"
        )
    try:
        os.fsencode(text)
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{where}: {argument} must be a path in the file system's encoding ({error.encoding}), got {text!r:.100}; "
            f"replace {text[error.start]!r}"
        ) from None
    return text


def picture_kind(where: str, path: Any) -> str:
    """The format of a picture, by the ending of its path: "png" where it has none. ValueError for an ending of no picture."""
    kind = pathlib.Path(checked_path(where, path)).suffix[1:].lower() or "png"
    if kind not in PICTURES:
        raise ValueError(f"{where}: path must end in {', '.join(f'.{k}' for k in PICTURES)}, got {os.fsdecode(path)!r}")
    return kind


@contextlib.contextmanager
def saying_where(where: str) -> Iterator[None]:
    """Puts the function's name into the OSErrors of opening a file; class, errno and file name stay."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename is None:
            raise
        raise OSError(error.errno, f"{where}: {error.strerror}", error.filename) from None


def target_of(where: str, path: Any) -> pathlib.Path:
    """Where the file is to lie: links are followed, so that the file behind a link is replaced and the link stays.

    Raises OSError where there can be no such file.
    """
    target = pathlib.Path(checked_path(where, path))
    with saying_where(where), contextlib.suppress(FileNotFoundError, NotADirectoryError):  # said below
        target.stat()
    if target.is_symlink():
        target = pathlib.Path(os.path.realpath(target))
    if target.is_dir():
        raise IsADirectoryError(f"{where}: cannot write a file to {str(target)!r}: it is a folder; add a file's name")
    if not target.parent.is_dir():
        raise FileNotFoundError(
            f"{where}: cannot write {str(target)!r}: there is no folder {str(target.parent)!r}; make it first"
        )
    return target


@contextlib.contextmanager
def atomic_path(path: str | os.PathLike, where: str = "writing a file") -> Iterator[pathlib.Path]:
    """Yield a temporary path in the target's folder; on a clean exit it replaces `path`, on any exception it is removed.

    A device or a pipe is not replaced: what was written is copied into it. Raises OSError where the folder is missing or not
    writable, before the body runs; the old file stays as it was. What is no path is refused as in `checked_path`.
    """
    target = target_of(where, path)
    mode = target.stat().st_mode if target.exists() else None
    special = mode is not None and not stat.S_ISREG(mode)
    folder = pathlib.Path(tempfile.gettempdir()) if special else target.parent
    suffix = target.suffix if len(target.suffix) <= 20 else ""
    temporary = folder / f".{target.name[:60]}.{secrets.token_hex(6)}{suffix}"
    with saying_where(where):
        # Created with the rights that the file is to have (less the umask), so that nobody reads it in between.
        os.close(
            os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666 if mode is None or special else mode & 0o777)
        )
    try:
        yield temporary
        if special:
            with open(temporary, "rb") as source, open(target, "wb") as sink:
                shutil.copyfileobj(source, sink)
            temporary.unlink()
            return
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        if mode is not None:
            os.chmod(temporary, mode & 0o7777)
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_bytes(path: str | os.PathLike, data: bytes, where: str = "writing a file") -> None:
    with atomic_path(path, where) as temporary:
        temporary.write_bytes(data)


def write_text(path: str | os.PathLike, text: str, where: str = "writing a file") -> None:
    write_bytes(path, text.encode("utf-8"), where)
