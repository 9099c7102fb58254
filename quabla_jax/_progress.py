"""qb.progress: a bar for the loops traced inside."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

from .loops.progress import Display, Meter, metered

__all__ = ["progress"]


class _Bar:
    """One line a loop, by rich where it is installed and the stream is a terminal; else nothing is shown."""

    def __init__(self, label: str, console: Any):
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self.bar = Progress(*columns, console=console)
        self._label = label
        self._tasks: dict[int, Any] = {}

    def started(self, loop: int, label: str, trips: int | None) -> None:
        if loop not in self._tasks:
            self._tasks[loop] = self.bar.add_task(f"{self._label} {label}".strip(), total=trips)
        else:
            self.bar.reset(self._tasks[loop])

    def advanced(self, loop: int, done: int) -> None:
        self.bar.update(self._tasks[loop], completed=done)


class _Silent:
    def started(self, loop: int, label: str, trips: int | None) -> None:
        pass

    def advanced(self, loop: int, done: int) -> None:
        pass


@contextlib.contextmanager
def progress(label: str = "", *, display: Display | None = None) -> Iterator[Meter]:
    """Show a bar for every loop that is traced inside the context, while it runs.

    Arguments:
        label: what stands before the bar.
        display: where progress goes instead of a bar: an object with started(loop, label, trips) and
            advanced(loop, done), called from another thread.

    Bars need rich and a terminal: in a notebook, and where output goes to a file, nothing is shown unless `display` is
    given. Loops of qb and of compat.lax alike; a loop inside another is part of its outer one. The reverse pass of a gradient
    is silent, and the lanes of a vmap are counted once. Compiled functions remember what they were traced under: one
    traced outside shows nothing, and one traced inside goes on counting. A loop that the compiled program does not need
    (the Hessian of a linear one is zero) does not run and shows no bar. Transforms: every one; the counter is an
    integer beside the carry. Targets: XLA, and MLX, where the host counts between two chunks of a loop.

    Cost: a counter and a branch a trip, and at most about 50 calls of the host a second; outside the context none. On
    MLX a counter alone; the lanes of a mapped while loop, which end one by one, ask the host trip by trip.
    """
    if not isinstance(label, str):
        raise TypeError(f"progress: label must be a str, got {label!r}")
    if display is not None and not (hasattr(display, "started") and hasattr(display, "advanced")):
        raise TypeError(f"progress: display must have the methods started and advanced, got {type(display).__name__}")
    if display is not None:
        with metered(Meter(display)) as meter:
            yield meter
        return
    try:
        from rich.console import Console
    except ImportError:
        console = None
    else:
        console = Console(file=sys.stderr)
    if console is None or not console.is_terminal:
        with metered(Meter(_Silent())) as meter:
            yield meter
        return
    bar = _Bar(label, console)
    with bar.bar, metered(Meter(bar)) as meter:
        yield meter
