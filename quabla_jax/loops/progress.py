"""Progress of running loops: a counter beside the carry, and a host callback that is called now and then.

The callback is a pure one whose result feeds the counter, so a loop keeps the engine's reverse mode (an effect would send
it to jax.lax's own loop). Each execution of a loop gets a run number from the host before its first trip; a replay in a
reverse sweep carries the number of the run it repeats, so the host knows what it has counted already and stays silent.
How many trips lie between two calls is also decided there, from how fast the loop's earlier runs were.

Outside `metered` nothing of this exists: the front doors ask `current()` while tracing, and trace the plain loop.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_batching import custom_vmap

__all__ = ["Display", "Meter", "count_fori", "count_scan", "count_while", "current", "metered"]

CALLS_A_SECOND = 50
FIRST_CALLS = 100  # calls in a loop's first run, whose speed is not known yet


class Display(Protocol):
    """What shows the progress of loops; called from the host callback's thread."""

    def started(self, loop: int, label: str, trips: int | None) -> None: ...

    def advanced(self, loop: int, done: int) -> None: ...


class Meter:
    """Counts the runs of the loops traced under it and passes their progress to a display."""

    def __init__(self, display: Display):
        self._display = display
        self._lock = threading.Lock()
        self._labels: list[tuple[str, int | None]] = []  # by loop
        self._runs: list[tuple[int, int, float]] = []  # by run: loop, most trips seen, when it began
        self._stride: dict[int, int] = {}
        self._shown = self._asked = 0.0
        self._told = (-1, 0)  # the run and the trips that were shown last
        self.calls = 0

    def add(self, label: str, trips: int | None) -> int:
        """A number for a loop that is being traced."""
        with self._lock:
            self._labels.append((label, trips))
            return len(self._labels) - 1

    # called on the host while the program runs

    def start(self, loop: Any, *_: Any) -> np.ndarray:
        """(run number, trips between two calls) of a run that begins now."""
        loop = int(loop)
        with self._lock:
            label, trips = self._labels[loop]
            self._runs.append((loop, 0, time.monotonic()))
            stride = self._stride.get(loop) or max(1, (trips or FIRST_CALLS) // FIRST_CALLS)
            self._display.started(loop, label, trips)
            return np.asarray([len(self._runs) - 1, stride], np.int32)

    def tick(self, run: Any, done: Any, last: bool = False) -> np.ndarray:
        """`done` trips of a run are over, `last`: and so is the loop; gives 0."""
        run, done = int(run), int(done)
        with self._lock:
            self.calls += 1
            loop, most, began = self._runs[run]
            if done < most or (done == most and not last) or (run, done) == self._told:  # a replay
                return np.zeros((), np.int32)
            self._runs[run] = (loop, done, began)
            now = time.monotonic()
            seconds = max(now - began, 1e-9)
            self._stride[loop] = max(1, int(done / seconds / CALLS_A_SECOND))
            trips = self._labels[loop][1]
            if now - self._shown >= 1 / CALLS_A_SECOND or done == trips or last:
                self._shown, self._told = now, (run, done)
                self._display.advanced(loop, done)
        return np.zeros((), np.int32)

    def due(self) -> bool:
        """Whether a target that counts on the host itself should tick now: true at most 50 times a second."""
        now = time.monotonic()
        if now - self._asked < 1 / CALLS_A_SECOND:
            return False
        self._asked = now
        return True


_active = threading.local()


def current() -> Meter | None:
    """The meter of this thread, or None."""
    stack = getattr(_active, "stack", None)
    return stack[-1] if stack else None


@contextlib.contextmanager
def metered(meter: Meter) -> Iterator[Meter]:
    """Loops traced inside, in this thread, report to `meter`."""
    stack = _active.__dict__.setdefault("stack", [])
    stack.append(meter)
    try:
        yield meter
    finally:
        stack.pop()


@contextlib.contextmanager
def _unmetered() -> Iterator[None]:
    stack = _active.__dict__.setdefault("stack", [])
    stack.append(None)
    try:
        yield
    finally:
        stack.pop()


_PAIR = jax.ShapeDtypeStruct((2,), jnp.int32)
_ZERO = jax.ShapeDtypeStruct((), jnp.int32)


def _started(meter: Meter, loop: int, init: Any) -> jax.Array:
    """The run number and stride. An entry of `init` makes the call wait for the loop's input, and run once a run.

    Once for all lanes of a vmap, too: they share their trips.
    """

    @custom_vmap
    def start(anchor: jax.Array) -> jax.Array:
        return jax.pure_callback(meter.start, _PAIR, jnp.int32(loop), anchor, vmap_method="sequential")

    @start.def_vmap
    def _once(size: int, batched: Any, anchor: jax.Array) -> tuple[jax.Array, bool]:
        return start(anchor[0] if batched[0] else anchor), False

    return start(_anchor(init))


def _anchor(init: Any) -> jax.Array:
    """One entry of the first array of numbers in `init`, or a constant."""
    for leaf in jax.tree.leaves(init):
        if jnp.issubdtype(getattr(leaf, "dtype", object), jnp.number) and leaf.size:
            return lax.stop_gradient(lax.slice(jnp.asarray(leaf), [0] * leaf.ndim, [1] * leaf.ndim))
    return jnp.int32(0)


def _ticked(meter: Meter, run: jax.Array, stride: jax.Array, done: jax.Array, trips: int | None) -> jax.Array:
    """`done`, after telling the host about it where a call is due. (mlx_backend/progress.py knows this shape.)"""
    due = done % stride == 0
    if trips is not None:
        due |= done == trips

    def call(done: jax.Array) -> jax.Array:
        return done + jax.pure_callback(meter.tick, _ZERO, run, done, vmap_method="sequential")

    return lax.cond(due, call, lambda done: done, done)


def _tied(out: Any, count: jax.Array) -> Any:
    """`out`, one leaf of it selected by the counter, which is never negative: or nothing would need the counter.

    (The compiler sees through an optimization barrier that has an unused output.)
    """
    leaves, tree = jax.tree.flatten(out)
    usable = [n for n, leaf in enumerate(leaves) if jnp.issubdtype(getattr(leaf, "dtype", object), np.generic)]
    if not usable:
        return out
    least = min(usable, key=lambda n: leaves[n].size)
    leaves[least] = jnp.where(count < 0, jnp.zeros_like(leaves[least]), leaves[least])
    return jax.tree.unflatten(tree, leaves)


def _counting(meter: Meter, init: Any, trips: int | None, label: str) -> Callable[[jax.Array], jax.Array]:
    """A function count -> count + 1 that reports to a new run of a new loop."""
    run, stride = _started(meter, meter.add(label, trips), init)
    return lambda count: _ticked(meter, run, stride, count + 1, trips)


def count_scan(meter: Meter, loop: Callable, f: Callable, init: Any, trips: int | None) -> tuple[Any, Any]:
    """loop(f', init') with a counter beside the carry of scan's f(carry, x) -> (carry, y); gives (carry, ys)."""
    following = _counting(meter, init, trips, "scan")

    def counted(carry: Any, x: Any) -> tuple[Any, Any]:
        count, inner = carry
        inner, y = f(inner, x)
        return (following(count), inner), y

    with _unmetered():
        (count, carry), ys = loop(counted, (jnp.int32(0), init))
    return _tied((carry, ys), count)


def count_fori(meter: Meter, loop: Callable, body: Callable, init: Any, trips: int | None) -> Any:
    """loop(body', init') with a counter beside the carry of body(i, carry) -> carry."""
    following = _counting(meter, init, trips, "fori_loop")
    with _unmetered():
        count, carry = loop(lambda i, c: (following(c[0]), body(i, c[1])), (jnp.int32(0), init))
    return _tied(carry, count)


def count_while(meter: Meter, loop: Callable, cond: Callable, body: Callable, init: Any) -> Any:
    """loop(cond', body', init') with a counter beside the carry of a while loop."""
    following = _counting(meter, init, None, "while_loop")
    with _unmetered():
        count, carry = loop(lambda c: cond(c[1]), lambda c: (following(c[0]), body(c[1])), (jnp.int32(0), init))
    return _tied(carry, count)
