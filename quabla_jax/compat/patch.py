"""patched(), install(), uninstall(): unedited code runs its jax.lax control flow through the engine.

jax.lax.scan and its like are thin wrappers around a closure cell that holds the function which does the work. The
first context to be entered puts a dispatcher into each cell and the last one to be left puts JAX's function back, so
every reference anybody holds is served: `from jax.lax import scan` of long ago, functools.partial objects, defaults,
attributes. The objects themselves stay what they were (`jax.lax.scan is jax.lax.scan`).

Whether a call goes to the engine is decided by a jax.make_user_context value: local to the thread, and part of the
key of every jit cache, so that a function compiled inside is not the one that runs outside, nor the reverse.

Not served, on purpose: calls that come from JAX's own library code (jax.numpy, jax.random, jax.scipy, jax.nn,
Pallas) or from this package. jax.experimental and jax.example_libraries are served.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import sys
import threading
from typing import Any

import jax
import jax.core

from ..loops.plan import check_request
from ..loops.whiles import pool_for
from ..lowering import jax_api as _jax_api
from . import lax as _engine_lax

__all__ = ["active", "install", "patched", "uninstall"]

_jax_api.hide_frames(__file__)

# Callers whose jax.lax calls stay plain JAX, beside this package.
_OWN_PACKAGE = __name__.partition(".")[0]


@dataclasses.dataclass(frozen=True)
class Settings:
    """What patched() and install() were asked for; hashable, because it is part of jit's cache keys."""

    checkpoint: Any = "auto"
    while_checkpoint: Any = None

    def keywords(self, name: str, args, kwargs) -> dict[str, Any]:
        """The checkpoint= that a call of jax.lax's `name` gets."""
        if name in ("cond", "switch"):
            return {}
        if name == "while_loop":
            return {} if self.while_checkpoint is None else {"checkpoint": self.while_checkpoint}
        if name == "fori_loop" and _traced_bounds(*args[:2], **kwargs):
            # jax.lax makes a while loop of it. "auto" would leave it without reverse mode; "sqrt" is what gives it the
            # pool that while_loop gets by "auto".
            plan = "sqrt" if self.while_checkpoint == "auto" else self.while_checkpoint
            return {} if plan is None else {"checkpoint": plan}
        return {} if self.checkpoint == "auto" else {"checkpoint": self.checkpoint}


def _checked(checkpoint: Any, while_checkpoint: Any) -> Settings:
    """The settings, refused here and not at some call of jax.lax where a value is none of checkpoint=."""
    check_request(checkpoint)
    if while_checkpoint is not None:
        pool_for(while_checkpoint, 0)
    settings = Settings(checkpoint, while_checkpoint)
    hash(settings)
    return settings


def _traced_bounds(lower=None, upper=None, *_, **__) -> bool:
    return isinstance(lower, jax.core.Tracer) or isinstance(upper, jax.core.Tracer)


_SETTINGS = jax.make_user_context(default_value=None)


def active() -> Settings | None:
    """The settings that calls of jax.lax's control flow in this thread are subject to now, or None: plain JAX."""
    return _SETTINGS.value


@functools.cache
def _keeps_jax(module: str) -> bool:
    return any(module == p or module.startswith(p + ".") for p in (*_jax_api.LIBRARY_OVER_LAX, _OWN_PACKAGE))


def _dispatcher(name: str, original):
    replacement = getattr(_engine_lax, name)

    @functools.wraps(original)
    def dispatch(*args, **kwargs):
        __tracebackhide__ = True
        settings = _SETTINGS.value
        # Frame 1 is jax.lax's wrapper, frame 2 whoever called it.
        if settings is None or _keeps_jax(sys._getframe(2).f_globals.get("__name__") or ""):
            return original(*args, **kwargs)
        return replacement(*args, **{**settings.keywords(name, args, kwargs), **kwargs})

    return dispatch


class _Cells:
    """The closure cells of jax.lax's functions, and how many contexts want the dispatchers in them."""

    def __init__(self):
        self.lock = threading.Lock()
        self.users = 0
        self.cells = {}
        for name in _engine_lax.CONTROL_FLOW:
            cell = _jax_api.inner_function_cell(getattr(jax.lax, name))
            if cell is None:
                raise ImportError(
                    f"jax.lax.{name} of jax {jax.__version__} is not built as in jax {_jax_api.SUPPORTED}; "
                    "patched() cannot stand in for it. quabla_jax.compat.lax works nevertheless: import it by name."
                )
            self.cells[name] = cell
        self.originals = {name: cell.cell_contents for name, cell in self.cells.items()}
        self.dispatchers = {name: _dispatcher(name, original) for name, original in self.originals.items()}

    def acquire(self) -> None:
        with self.lock:
            self.users += 1
            if self.users == 1:
                self._fill(self.dispatchers)

    def release(self) -> None:
        with self.lock:
            self.users -= 1
            if self.users == 0:
                self._fill(self.originals)

    def _fill(self, contents) -> None:
        for name, cell in self.cells.items():
            cell.cell_contents = contents[name]


@functools.cache
def _cells() -> _Cells:
    return _Cells()


class patched(contextlib.ContextDecorator):
    """Within `with patched():`, jax.lax's control flow in this thread is the engine's.

    Arguments:
        checkpoint: the plan for scan, fori_loop and map: "auto", "full", "sqrt", a number of carries, or a
            quabla_jax.Budget. A call that names its own checkpoint= keeps it.
        while_checkpoint: the same for while_loop and for fori_loop with traced bounds, None (the default) being what
            jax.lax does: no reverse mode.

    May be nested (the innermost counts), used as a decorator, entered again, and entered in several threads at once;
    leaving it, by an exception too, restores exactly what was there before. A function that is jitted is traced anew
    inside, and its outside program is untouched. Reverse mode is planned where a loop is traced, so it is the context
    around the call of jax.grad's result, not around jax.grad, that counts.

    Raises:
        TypeError, ValueError: a value that checkpoint= does not take.
        ImportError: this JAX builds jax.lax's functions in a way that cannot be stood in for.

    Not covered: threads started inside (they begin with what install() set), and calls made by JAX's own library
    (docs/dropin.md lists both).
    """

    def __init__(self, checkpoint: Any = "auto", *, while_checkpoint: Any = None):
        self.settings = _checked(checkpoint, while_checkpoint)
        self._entered = threading.local()

    def __enter__(self) -> patched:
        cells = _cells()
        context = _SETTINGS(self.settings)
        cells.acquire()
        try:
            context.__enter__()
        except BaseException:
            cells.release()
            raise
        self._stack().append(context)
        return self

    def __exit__(self, *exception) -> None:
        try:
            self._stack().pop().__exit__(*exception)
        finally:
            _cells().release()

    def _stack(self) -> list:
        if not hasattr(self._entered, "stack"):
            self._entered.stack = []
        return self._entered.stack


_INSTALLED: list[Settings | None] = []
_INSTALL_LOCK = threading.Lock()


def install(checkpoint: Any = "auto", *, while_checkpoint: Any = None) -> None:
    """What patched() does, for every thread and until uninstall(). Calls nest: each uninstall() undoes one install().

    A patched() context that is active in a thread goes before it there. Arguments and errors as for patched().
    """
    settings = _checked(checkpoint, while_checkpoint)
    with _INSTALL_LOCK:
        _cells().acquire()
        _INSTALLED.append(_SETTINGS.get_global())
        _SETTINGS.set_global(settings)


def uninstall() -> None:
    """Undo the last install(). Raises RuntimeError where there is none."""
    with _INSTALL_LOCK:
        if not _INSTALLED:
            raise RuntimeError("quabla_jax.compat.uninstall(): nothing is installed; call install() first")
        _SETTINGS.set_global(_INSTALLED.pop())
        _cells().release()
