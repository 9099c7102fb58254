"""Runs cells: one case under one transform on one backend in one dtype, held against plain jax.lax in float64."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from typing import Any

import jax
import numpy as np

from quabla_jax.errors import UnsupportedOperationError

from . import backends, limitations
from .case import BATCH, CASES, Case, Static, np_dtype
from .transforms import TRANSFORMS, Space, Transform
from .ulp import distance

__all__ = ["Cell", "Record", "applies", "cells", "run_case", "run_cell"]

SECONDS_A_CELL = 120
# The reference runs once: what counts is how soon the answer is there, and code without fusion rounds the least.
QUICK_TO_COMPILE = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
# Transforms of a case that the full tier runs on each backend; which ones rotates from case to case. Fewer where a cell costs
# most (torch.export traces, writes and reads a file) or says least (the reference's own package, without jit).
FULL_TRANSFORMS = {"export": 2, "lax": 1}
FULL_TRANSFORMS_ELSE = 3


@dataclass(frozen=True)
class Cell:
    case: str
    backend: str
    transform: str
    dtype: str

    @property
    def key(self) -> str:
        return f"{self.case}|{self.backend}|{self.transform}|{self.dtype}"


@dataclass
class Record:
    """The outcome of one cell: pass, fail, unsupported, crash, xfail, xpass or unavailable. Only "pass" counts as one."""

    case: str
    backend: str
    transform: str
    dtype: str
    outcome: str
    ulp: float | None = None
    bar: float | None = None
    input: str = ""
    message: str = ""
    seconds: float = 0.0

    @property
    def key(self) -> str:
        return Cell(self.case, self.backend, self.transform, self.dtype).key


# ---- which cells there are


def applies(case: Case, backend: Any, transform: str) -> bool:
    """Whether this case makes a cell on this backend under this transform."""
    if backend is backends.REFERENCE and case.reference is not None:
        return False
    if hasattr(backend, "space"):
        if backend.space(case.dialect) is None:
            return False
    elif transform in ("eager", "jit_grad") or case.raises is not None or case.dialect == "graph":
        return False  # a compiled target has no eager mode, and errors are raised while tracing, before it is asked
    only = [tag for tag in case.tags if tag.startswith("only:")]
    return not only or f"only:{backend.name}" in only


def _chosen(tier: str, cell: Cell, case: Case, names: list[str]) -> bool:
    """Whether a tier runs this cell. The choice hangs on the names alone, so it is the same on every machine, and over
    the cases every transform and dtype comes up on every backend."""
    if tier == "exhaustive":
        return True
    if case.raises is not None:
        return True  # these are cheap: nothing is compiled
    turn = zlib.crc32(case.name.encode())
    usual = [t for t in case.transforms if t not in ("eager", "jit_grad")] or list(case.transforms)
    if tier == "quick":
        others = [n for n in names if n != backends.REFERENCE.name]
        mine = {others[(turn + k) % len(others)] for k in range(2)} if others else set(names)
        return (
            cell.backend in mine
            and cell.dtype == case.dtypes[turn % len(case.dtypes)]
            and cell.transform == usual[turn % len(usual)]
        )
    count = FULL_TRANSFORMS.get(cell.backend, FULL_TRANSFORMS_ELSE)
    step = max(1, len(usual) // count)
    picked = {usual[(turn + zlib.crc32(cell.backend.encode()) + k * step) % len(usual)] for k in range(count)}
    if hasattr(backends.load(cell.backend), "space") and cell.backend != backends.REFERENCE.name:
        picked |= {case.transforms[turn % len(case.transforms)]}
    return cell.transform in picked and cell.dtype == case.dtypes[(turn + len(cell.transform)) % len(case.dtypes)]


def cells(
    names: list[str], globs: list[str], transforms: list[str] | None = None, tier: str = "exhaustive"
) -> list[Cell]:
    """All cells of the named backends for cases that match any glob, thinned to a tier: quick, full or exhaustive."""
    loaded = {name: backends.load(name) for name in names}
    found = []
    for case in CASES.values():
        if not any(fnmatch(case.name, g) for g in globs) or (case.slow and tier == "quick"):
            continue
        for name, backend in loaded.items():
            if backend.available() is not None:
                continue
            for transform in case.transforms:
                if transforms and transform not in transforms or not applies(case, backend, transform):
                    continue
                made = (Cell(case.name, name, transform, dtype) for dtype in case.dtypes)
                found += [c for c in made if transforms or _chosen(tier, c, case, names)]
    return found


# ---- running one


def _program(case: Case, space: Space, program: Callable | None = None) -> Callable:
    """The case's program on its array inputs alone."""
    run = program or case.program

    def fun(*arrays: Any) -> Any:
        given = iter(arrays)
        return run(space.ns, *(i.value if isinstance(i, Static) else next(given) for i in case.inputs))

    return fun


def arrays_of(case: Case, transform: Transform, dtype: str) -> list[np.ndarray]:
    drawn = case.draw(dtype, BATCH if transform.batched else None)
    return [a for a, i in zip(drawn, case.inputs, strict=True) if not isinstance(i, Static)]


def built(case: Case, space: Space, transform: Transform, arrays: list[np.ndarray], program: Callable | None = None):
    inputs = [i for i in case.inputs if not isinstance(i, Static)]
    floats = tuple(n for n, a in enumerate(arrays) if a.dtype.kind == "f" or a.dtype.name == "bfloat16")
    mapped = tuple(i.mapped for i in inputs)
    return transform.build(space, _program(case, space, program), floats, mapped)


def _leaves(result: Any) -> list[np.ndarray]:
    """Flat NumPy arrays of nested tuples and lists (a Quabla array is not a JAX pytree leaf type, hence by hand)."""
    if isinstance(result, (tuple, list)):
        return [leaf for part in result for leaf in _leaves(part)]
    return [backends.base.to_numpy(result)]


class _References:
    """The reference's answer and its dtypes, once a (case, transform, dtype)."""

    def __init__(self) -> None:
        self._memo: dict[tuple[str, str, str], tuple[list[np.ndarray], list[np.dtype]]] = {}

    def get(self, case: Case, transform: Transform, dtype: str) -> tuple[list[np.ndarray], list[np.dtype]]:
        key = (case.name, transform.name, dtype)
        if key not in self._memo:
            self._memo[key] = self._run(case, transform, dtype)
        return self._memo[key]

    def _run(self, case: Case, transform: Transform, dtype: str) -> tuple[list[np.ndarray], list[np.dtype]]:
        space = backends.REFERENCE.space(case.dialect)
        arrays = arrays_of(case, transform, dtype)
        fun = jax.jit(built(case, space, transform, arrays, case.reference))
        traced = fun.trace(*arrays)
        dtypes = [np.dtype(leaf.dtype) for leaf in jax.tree.leaves(traced.out_info)]
        if not case.same_dtype:
            wide = [
                a.astype(np.float64) if a.dtype == np_dtype(dtype) and a.dtype.kind not in "iub" else a for a in arrays
            ]
            traced = fun.trace(*wide) if any(w.dtype != a.dtype for w, a in zip(wide, arrays, strict=True)) else traced
            arrays = wide
        compiled = traced.lower().compile(compiler_options=QUICK_TO_COMPILE)
        return _leaves(jax.device_get(compiled(*arrays))), dtypes


_REFERENCES = _References()


@contextlib.contextmanager
def deadline(seconds: float, clock: float = 5) -> Iterator[None]:
    """TimeoutError after so long, where signals can be had: in the main thread, on Unix. Processor time is what counts, so that
    a machine that others use fails nothing; what waits without working has `clock` times as long."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def late(*_: Any) -> None:
        raise TimeoutError(f"over {seconds:g} s")

    timers = ((signal.SIGPROF, signal.ITIMER_PROF, seconds), (signal.SIGALRM, signal.ITIMER_REAL, clock * seconds))
    old = [signal.signal(number, late) for number, _, _ in timers]
    for _, timer, limit in timers:
        signal.setitimer(timer, limit)
    try:
        yield
    finally:
        for (number, timer, _), handler in zip(timers, old, strict=True):
            signal.setitimer(timer, 0)
            signal.signal(number, handler)


def _execute(case: Case, backend: Any, transform: Transform, dtype: str) -> list[np.ndarray]:
    arrays = arrays_of(case, transform, dtype)
    if hasattr(backend, "space"):
        space = backend.space(case.dialect)
        return _leaves(built(case, space, transform, arrays)(*(space.array(a, a.dtype) for a in arrays)))
    source = backends.load("xla" if case.dialect == "quabla" else getattr(backend, "traced_with", "compat"))
    fun = built(case, source.space(case.dialect), transform, arrays)
    closed = jax.make_jaxpr(lambda *xs: jax.tree.leaves(fun(*xs)))(*arrays)
    run = backend.prepare(closed)
    run(*(_nudged(a) for a in arrays))  # a program that answers from its first call is caught by the second
    return [backends.base.to_numpy(y) for y in run(*arrays)]


def _nudged(x: np.ndarray) -> np.ndarray:
    """Nearby values of the same kind, so that loops end about where they do."""
    return x * np.asarray(1 - 2**-7, x.dtype) if x.dtype.kind in "fc" else x


def difference(
    got: list[np.ndarray], want: list[np.ndarray], dtypes: list[np.dtype], bar: float, signed_zeros: bool = False
) -> tuple[float | None, str]:
    """Worst distance in ulps (None where number, dtype or shape differ) and what is wrong, "" where nothing is."""
    if len(got) != len(want):
        return None, f"{len(got)} outputs, expected {len(want)}"
    worst, message = 0.0, ""
    for position, (g, w, kind) in enumerate(zip(got, want, dtypes, strict=True)):
        if g.dtype != kind:
            return None, f"output {position}: dtype {g.dtype}, expected {kind}"
        if g.shape != w.shape:
            return None, f"output {position}: shape {g.shape}, expected {w.shape}"
        worst = max(worst, distance(g, w, kind, signed_zeros=signed_zeros))
        if not worst <= bar and not message:
            message = f"output {position}: {worst:.3g} ulp (bar {bar:g}); got {g!s:.60} expected {w!s:.60}"
    return worst, message


def _judge(case: Case, transform: Transform, dtype: str, got: list[np.ndarray], record: Record) -> None:
    want, dtypes = _REFERENCES.get(case, transform, dtype)
    record.bar = case.ulp * transform.slack
    record.ulp, record.message = difference(got, want, dtypes, record.bar, case.signed_zeros)
    record.outcome = "fail" if record.message else "pass"


def _judge_error(case: Case, error: BaseException | None, record: Record) -> None:
    name, fragment = case.raises  # type: ignore[misc]
    if error is None:
        record.outcome, record.message = "fail", f"no error, expected {name}"
    elif name not in {c.__name__ for c in type(error).__mro__}:
        record.outcome, record.message = (
            "fail",
            f"raised {type(error).__name__}: {error!s:.120}; expected {name}",
        )
    elif fragment not in str(error):
        record.outcome, record.message = "fail", f"the text {str(error)[:120]!r} lacks {fragment!r}"
    else:
        record.outcome = "pass"


def _excuse(record: Record, known: limitations.Limitation) -> None:
    """xfail where the cell failed in the way that its limitation says, xpass where it passed; else it stays a failure."""
    if record.outcome == "pass":
        record.outcome, record.message = "xpass", f"passes, so the limitation is stale: {known.reason}"
    elif known.explains(record.outcome, record.message):
        record.outcome, record.message = "xfail", f"{known.reason} [{record.message[:160]}]"
    else:
        record.message = f"not in the way of its limitation ({known.kind}: {known.reason}): {record.message}"


def _shown(arrays: list[np.ndarray]) -> str:
    """The inputs in a line: the values of small ones, the shapes of the rest."""

    def one(x: np.ndarray) -> str:
        kind = f"{x.dtype}{list(x.shape)}"
        return f"{kind} {np.array2string(x, precision=6, separator=',')}".replace("\n", "") if x.size <= 12 else kind

    return "; ".join(map(one, arrays))[:200]


def run_cell(cell: Cell) -> Record:
    """Run one cell; never raises but for KeyboardInterrupt."""
    case, backend, transform = CASES[cell.case], backends.load(cell.backend), TRANSFORMS[cell.transform]
    record = Record(cell.case, cell.backend, cell.transform, cell.dtype, "crash")
    record.input = _shown(arrays_of(case, transform, cell.dtype))
    began = time.perf_counter()
    try:
        with deadline(SECONDS_A_CELL):
            got = _execute(case, backend, transform, cell.dtype)
            if case.raises is not None:
                _judge_error(case, None, record)
            else:
                _judge(case, transform, cell.dtype, got, record)
    except KeyboardInterrupt:
        raise
    except Exception as error:
        if case.raises is not None:
            _judge_error(case, error, record)
        else:
            refused = isinstance(error, UnsupportedOperationError)
            record.outcome = "unsupported" if refused else "crash"
            record.message = f"{type(error).__name__}: {str(error).strip()[:300]}"
    known = limitations.find(cell.case, cell.backend, cell.transform, cell.dtype)
    if known is not None:
        _excuse(record, known)
    record.seconds = round(time.perf_counter() - began, 3)
    return record


CELLS_TO_KEEP = 500  # after so many a process forgets what JAX compiled, which is otherwise a gigabyte every 750 cells
_since_forgetting = 0


def run_case(batch: list[Cell]) -> list[dict]:
    """All cells of one case, in one process, so that its reference runs once."""
    global _since_forgetting
    records = [asdict(run_cell(cell)) for cell in batch]
    _REFERENCES._memo.clear()
    _since_forgetting += len(batch)
    if _since_forgetting > CELLS_TO_KEEP:
        _since_forgetting = 0
        jax.clear_caches()
    return records
