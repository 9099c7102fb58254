"""Holds one program against the oracle on every backend, for the price of two traces.

The reference is traced once and run op by op (oracle.py); the engine's program is traced once and handed to every target;
both are run on several draws of the inputs. What must be compiled whole takes its turn, one program in so many (EVERY).
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from quabla_jax.errors import UnsupportedOperationError

from .. import backends, runner
from ..case import Case
from ..transforms import TRANSFORMS
from . import oracle
from .programs import case_of

__all__ = ["BACKENDS", "EVERY", "Finding", "check", "due"]

DRAWS = 3  # of the inputs, for each program
# One program in so many (primes, so that every setting comes up); the rest run every program. "lax": the reference itself, compiled whole by XLA, against the oracle;
# "xla" and "compat": the engine's program, compiled whole; "mlx-fused": MLX with kernels built by the C++ compiler.
EVERY = {"numpy": 1, "mlx": 1, "torchscript": 1, "export": 31, "xla": 61, "compat": 61, "lax": 61, "mlx-fused": 61}
BACKENDS = tuple(EVERY)
CHEAP = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
SECONDS_A_PROGRAM = 120


@dataclass(frozen=True)
class Finding:
    """Where a program went wrong: outcome is fail, crash or unsupported."""

    backend: str
    transform: str
    outcome: str
    message: str


def due(seed: int, names: tuple[str, ...], every: dict[str, int]) -> list[str]:
    """The backends whose turn it is; the costly ones fall on different programs."""
    return [n for k, n in enumerate(BACKENDS) if n in names and (seed + k) % every[n] == 0]


def check(steps: tuple, transform: str, names: list[str], mapped: int = 0, source: str = "compat") -> list[Finding]:
    """Every way that the program fails on the named backends; none where all agree with the oracle.

    source: the front door that the targets' program is traced through, "compat" or "xla".
    """
    case, chosen = case_of(steps, "fuzz/current", mapped), TRANSFORMS[transform]
    draws = [_inputs(case, chosen, k) for k in range(DRAWS)]
    traces: dict[str, Any] = {}
    with _guarded("lax", transform) as reference:
        traces["lax"] = _traced(_built(case, "lax", chosen, draws[0], case.reference), draws[0])
        wanted = [oracle.evaluate(traces["lax"], *d) for d in draws]
    if reference:
        return reference
    judge = lambda got, k: runner.difference(got, wanted[k], [w.dtype for w in wanted[k]], case.ulp * chosen.slack)[1]
    findings = []
    with _guarded(source, transform) as broken:
        traces[source] = _traced(_built(case, source, chosen, draws[0]), draws[0])
    if broken:
        return broken
    for name in names:
        with _guarded(name, transform) as failed:
            if name in ("xla", "compat") and name not in traces:
                traces[name] = _traced(_built(case, name, chosen, draws[0]), draws[0])
            run = _runner(name, traces.get(name, traces[source]), draws[0])
            for k, inputs in enumerate(draws):
                message = judge([np.asarray(y) for y in run(*inputs)], k)
                if message:
                    failed.append(Finding(name, transform, "fail", f"draw {k}: {message}"))
                    break
        findings += failed
    return findings


@contextlib.contextmanager
def _guarded(name: str, transform: str) -> Iterator[list[Finding]]:
    """A list that an error inside becomes an entry of."""
    found: list[Finding] = []
    try:
        with runner.deadline(SECONDS_A_PROGRAM, clock=30):  # at a low priority, the clock says nothing
            yield found
    except Exception as error:
        outcome = "unsupported" if isinstance(error, UnsupportedOperationError) else "crash"
        found.append(Finding(name, transform, outcome, f"{type(error).__name__}: {str(error).strip()[:300]}"))


def _inputs(case: Case, transform: Any, draw: int) -> list[np.ndarray]:
    return runner.arrays_of(dataclasses.replace(case, name=f"{case.name}-{draw}"), transform, "float64")


def _built(case: Case, name: str, transform: Any, inputs: list, program: Any = None) -> Callable:
    return runner.built(case, backends.load(name).space("jax"), transform, inputs, program)


def _traced(fun: Callable, inputs: list[np.ndarray]) -> Any:
    """The closed jaxpr: one call of the whole, so that whoever evaluates it again traces one equation and not hundreds."""
    return jax.make_jaxpr(jax.jit(lambda *xs: jax.tree.leaves(fun(*xs))))(*inputs)


def _runner(name: str, closed: Any, inputs: list) -> Callable[..., Any]:
    if name in ("lax", "xla", "compat"):
        whole = jax.jit(lambda *xs: jax.core.eval_jaxpr(closed.jaxpr, closed.consts, *xs))
        return whole.lower(*inputs).compile(compiler_options=CHEAP)
    if name in ("mlx", "mlx-fused"):
        return _on_mlx(closed, fused=name == "mlx-fused")
    return backends.load(name).prepare(closed)


def _on_mlx(closed: Any, fused: bool) -> Callable[..., Any]:
    import mlx.core as mx

    run = backends.load("mlx").prepare(closed)

    def call(*xs: np.ndarray) -> Any:
        if not fused:
            mx.disable_compile()
        try:
            if fused:
                run(*xs)  # a kernel is built when it is run a second time
            return run(*xs)
        finally:
            mx.enable_compile()

    return call
