"""The MLX backend against hand-written MLX: loops, straight programs, lowering, memory.

    python benchmarks/mlx.py                    # every row; exit status 1 where a bar is missed
    python benchmarks/mlx.py --rows 'counted*' --repeats 31

Within a row the programs are warmed up first and then timed in turn, so that what slows the machine slows them alike;
a ratio is the median over the repeats of (theirs / ours) in one turn. Rows on functions that are cured on MLX's CPU
(exp, sin, cos, sums: see docs/mlx.md) state what the cure costs and have no bar.
"""

from __future__ import annotations

import argparse
import fnmatch
import statistics
import sys
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import mlx.core as mx
import numpy as np
from jax import lax

from quabla_jax import mlx_backend

TRIPS = 1000
ROWS: dict[str, tuple[Callable[[], tuple[Callable, Callable]], float | None]] = {}
"""name -> (makes (ours, theirs), least ratio theirs / ours)"""


def row(name: str, bar: float | None):
    return lambda make: ROWS.setdefault(name, (make, bar)) and make


def floats(*shape: int, seed: int = 0) -> mx.array:
    return mx.array(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


def evaluated(fun: Callable, *args) -> Callable[[], None]:
    return lambda: mx.eval(fun(*args))


def step(c):
    return c - 0.01 * (mx.tanh if isinstance(c, mx.array) else jnp.tanh)(c * 1.3)


def counted():
    return evaluated(mlx_backend.jit(lambda x: lax.fori_loop(0, TRIPS, lambda i, c: step(c), x)), floats(16))


@row("counted loop, 16 floats, 1000 trips: an eval a trip", 6.0)
def _():
    x = floats(16)

    def naive():
        c = x
        for _ in range(TRIPS):
            c = step(c)
            mx.eval(c)

    return counted(), naive


@row("counted loop, 16 floats, 1000 trips: compiled body, an eval every 64", 1.0)
def _():
    x, body = floats(16), mx.compile(step)

    def hand():
        c = x
        for i in range(TRIPS):
            c = body(c)
            if i % 64 == 63:
                mx.eval(c)
        mx.eval(c)

    return counted(), hand


@row("while, .item() a trip", 3.0)
def _():
    x = mx.abs(floats(16)) + 0.1
    grow = lambda c: c * 1.01 + 0.001
    ours = mlx_backend.jit(lambda x: lax.while_loop(lambda c: jnp.sum(c) < 1000.0, grow, x))

    def naive():
        c = x
        while mx.sum(c).item() < 1000.0:
            c = grow(c)
        mx.eval(c)

    return evaluated(ours, x), naive


def straight(name: str, fun: Callable, shapes: tuple[tuple[int, ...], ...], bar: float | None) -> None:
    """fun(namespace, *arrays), the same ops in jax.numpy on our side and compiled MLX on the other."""

    def make():
        args = [floats(*s, seed=i) for i, s in enumerate(shapes)]
        ours = mlx_backend.jit(lambda *xs: fun(jnp, *xs))
        return evaluated(ours, *args), evaluated(mx.compile(lambda *xs: fun(mx, *xs)), *args)

    ROWS[name] = (make, bar)


def elementwise(n, a, b):
    return n.tanh(a * b + a) * b - n.sqrt(n.abs(a)) * 0.5


def network(n, x, w, v):
    return n.matmul(n.maximum(n.matmul(x, w), 0.0), v) + x


straight("elementwise, 512 x 512", elementwise, ((512, 512), (512, 512)), 0.95)
straight("elementwise, 64 x 64", elementwise, ((64, 64), (64, 64)), 0.95)
straight("matmul, 256 x 256", network, ((256, 256),) * 3, 0.95)
straight("matmul, 64 x 64", network, ((64, 64),) * 3, 0.95)
straight("cured: exp, 512 x 512", lambda n, a: n.exp(a) * a, ((512, 512),), None)
straight("cured: sin + cos, 512 x 512", lambda n, a: n.sin(a) + n.cos(a), ((512, 512),), None)
straight("cured: sum of 512 x 512", lambda n, a: n.sum(a * a), ((512, 512),), None)


def deep():
    """A new function of 5,000 equations, so that no trace of it is kept."""

    def fun(x):
        for i in range(1250):
            x = jnp.tanh(x * (1 + i)) + (x - i)
        return x

    return fun


@row("lowering 5,000 equations: XLA's trace and compile time / ours", None)
def _():
    x = jnp.ones(8, jnp.float32)
    return lambda: mlx_backend.lower(deep(), x), lambda: jax.jit(deep()).lower(x).compile()


def race(ours: Callable, theirs: Callable, repeats: int, warm: int) -> tuple[float, float, float]:
    """(our median, their median, median ratio), seconds. Short programs take more turns: a second of them, 1001 at most."""
    for _ in range(warm):
        ours()
        theirs()
    pairs, began = [], time.perf_counter()
    for turn in range(max(repeats, 1001)):
        if turn >= repeats and time.perf_counter() - began > 1:
            break
        times = [0.0, 0.0]
        for which in (0, 1) if turn % 2 else (1, 0):
            start = time.perf_counter()
            (ours, theirs)[which]()
            times[which] = time.perf_counter() - start
        pairs.append(times)
    a, b = (statistics.median(column) for column in zip(*pairs))
    return a, b, statistics.median(t / o for o, t in pairs)


def peak_carries(length: int = 10_000, width: int = 4000) -> float:
    """MLX's peak memory for the gradient of a scan under checkpoint="sqrt", in carries."""
    from quabla_jax.compat import lax as checkpointed

    def loss(p, x):
        return jnp.sum(
            checkpointed.scan(
                lambda c, _: (c - 0.001 * jnp.tanh(p * c), None), x, None, length=length, checkpoint="sqrt"
            )[0]
        )

    x = floats(width)
    run = mlx_backend.lower(jax.grad(loss), jnp.float32(1.3), x).compile()
    mx.eval(x)
    mx.clear_cache()
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    mx.eval(run(mx.array(1.3), x))
    return (mx.get_peak_memory() - before) / (4 * width)


def lowering_seconds() -> tuple[float, float]:
    """(seconds to trace and lower 5,000 equations to MLX, seconds of them that JAX's trace takes), of processor time."""
    x = jnp.ones(8, jnp.float32)
    times = []
    for _ in range(5):
        start = time.process_time()
        jax.make_jaxpr(deep())(x)
        middle = time.process_time()
        mlx_backend.lower(deep(), x)
        times.append((time.process_time() - middle, middle - start))
    return min(times)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="*", help="only rows whose name matches this glob")
    parser.add_argument("--repeats", type=int, default=21)
    options = parser.parse_args()
    missed = 0
    print(f"mlx {mx.__version__}, {mx.default_device()}, jax {jax.__version__}\n")
    print(f"{'row':70s}{'ours':>11s}{'theirs':>11s}{'ratio':>8s}{'bar':>7s}")
    for name, (make, bar) in ROWS.items():
        if not fnmatch.fnmatch(name, options.rows):
            continue
        slow = name.startswith("lowering 5")
        ours, theirs, ratio = race(*make(), 3 if slow else options.repeats, 0 if slow else 8)
        short = bar is not None and ratio < bar
        missed += short
        print(
            f"{name:70s}{ours * 1e6:9.0f}us{theirs * 1e6:9.0f}us{ratio:8.2f}{bar or '':>7}{'  missed' if short else ''}",
            flush=True,
        )
    if fnmatch.fnmatch("lowering seconds", options.rows):
        whole, traced = lowering_seconds()
        missed += whole > 1
        print(
            f"{'lowering 5,000 equations to MLX, seconds of processor time (bar 1)':70s}{whole:11.2f}"
            f"   JAX's trace {traced:.2f}{'  missed' if whole > 1 else ''}"
        )
    if fnmatch.fnmatch("memory", options.rows):
        peak = peak_carries()
        missed += peak > 300
        print(
            f"{'memory: gradient of a 10,000-step scan, peak carries (bar 300)':70s}{peak:11.0f}{'  missed' if peak > 300 else ''}"
        )
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
