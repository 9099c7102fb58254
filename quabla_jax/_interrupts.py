"""Ctrl-C that arrives where Python cannot raise it.

The signal's handler runs in whatever the main thread does just then. In a finaliser, or in the callback by which jaxlib follows the
garbage collector, its KeyboardInterrupt goes to sys.unraisablehook: the traceback is printed and the program goes on.
"""

from __future__ import annotations

import _thread
import contextlib
import sys
import time
from collections.abc import Iterator
from typing import Any

__all__ = ["interruptible"]


def _once_more() -> None:
    time.sleep(0.01)  # until the finaliser is over; where it is not, the hook sends a third
    _thread.interrupt_main()


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Within, an interrupt that got lost is sent again until it is raised; other unraisable exceptions are reported as before.

    For programs: the hook is the interpreter's, so that a library may not set it around its user's code.
    """
    before = sys.unraisablehook

    def hook(unraisable: Any) -> None:
        if issubclass(unraisable.exc_type, KeyboardInterrupt):
            _thread.start_new_thread(_once_more, ())  # threading's locks may be held where a finaliser runs
        else:
            before(unraisable)

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = before
