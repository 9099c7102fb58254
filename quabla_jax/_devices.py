"""What `quabla-jax devices` prints."""

from __future__ import annotations

import importlib.util
from importlib import metadata

__all__ = ["report", "rows"]


def _optional(package: str, describe) -> tuple[str, str, str]:
    if importlib.util.find_spec(package) is None:
        return package, "not installed", f"pip install 'quabla-jax[{package}]'"
    return package, metadata.version(package), describe()


def _mlx() -> str:
    import mlx.core as mx

    found = ["mlx:cpu", *(["mlx:gpu"] if mx.is_available(mx.gpu) else [])]
    return f"{', '.join(found)}; default device {mx.default_device()}"


def _torch() -> str:
    return "TorchScript and torch.export"


def rows() -> list[tuple[str, str, str]]:
    """(target, version, what it offers or how to get it), one row a target."""
    import jax

    found = [("XLA", jax.__version__, ", ".join(str(d) for d in jax.devices()))]
    return [*found, _optional("mlx", _mlx), _optional("torch", _torch)]


def report() -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("target", "version", "")
    for row in rows():
        table.add_row(*row)
    Console().print(table)
