"""Files appear whole or not at all: write beside the target, flush to the disk, then rename."""

from __future__ import annotations

import contextlib
import os
import pathlib
import tempfile
from collections.abc import Iterator

__all__ = ["atomic_path", "write_bytes", "write_text"]


@contextlib.contextmanager
def atomic_path(path: str | os.PathLike) -> Iterator[pathlib.Path]:
    """Yield a temporary path in the target's folder; on a clean exit it replaces `path`, on any exception it is removed.

    Raises OSError where the folder is missing or not writable, before the body runs; the old file stays as it was.
    """
    target = pathlib.Path(path)
    if target.is_dir():
        raise IsADirectoryError(f"cannot write a file to {str(target)!r}: it is a folder")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"cannot write {str(target)!r}: there is no folder {str(target.parent)!r}")
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=target.suffix, dir=target.parent)
    os.close(handle)
    temporary = pathlib.Path(name)
    try:
        yield temporary
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        mode = target.stat().st_mode & 0o7777 if target.exists() else 0o666 & ~_umask()
        os.chmod(temporary, mode)
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_bytes(path: str | os.PathLike, data: bytes) -> None:
    with atomic_path(path) as temporary:
        temporary.write_bytes(data)


def write_text(path: str | os.PathLike, text: str) -> None:
    write_bytes(path, text.encode("utf-8"))
