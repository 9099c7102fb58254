"""python -m conformance: run the suite, print a table, write JSON, JUnit XML or one HTML page."""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import multiprocessing
import os
import pathlib
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import NoReturn

__all__ = ["main"]

TIERS = {
    "quick": "one cell a case on two backends, no slow cases",
    "full": "a few transforms of every case on every backend, which ones rotates",
    "exhaustive": "every case, backend, transform and dtype",
}


class _Parser(argparse.ArgumentParser):
    """Errors are one line, as everywhere in the command line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"conformance: {message} (--help lists the options)\n")


def _parser() -> argparse.ArgumentParser:
    p = _Parser(prog="python -m conformance", description=__doc__)
    p.add_argument(
        "--backend",
        action="append",
        metavar="NAME|module:object",
        help="repeatable; default: all that are installed",
    )
    p.add_argument("--case", action="append", metavar="GLOB", help="repeatable; default: all cases")
    p.add_argument("--transforms", metavar="A,B", help="only these transforms")
    p.add_argument("--tier", choices=TIERS, default="full", help="; ".join(f"{k}: {v}" for k, v in TIERS.items()))
    p.add_argument(
        "--jobs",
        type=int,
        default=os.cpu_count() or 1,
        metavar="N",
        help="worker processes (default: one a core)",
    )
    p.add_argument(
        "--format",
        choices=("table", "json", "html", "markdown"),
        help="default: table, or by the ending of -o",
    )
    p.add_argument("-o", "--output", metavar="FILE", help="write the report here; the table is printed all the same")
    p.add_argument("--junit", metavar="FILE", help="also write JUnit XML")
    p.add_argument("--diff", metavar="FILE.json", help="show what changed since a previous JSON report")
    p.add_argument(
        "--state",
        metavar="FILE.jsonl",
        help="note each finished case here, and skip the ones noted: resumable",
    )
    p.add_argument("--from", dest="source", metavar="FILE.json", help="run nothing: draw an earlier JSON report again")
    p.add_argument("--list", action="store_true", help="list the cells and run none")
    return p


def _batches(cells: list) -> list[list]:
    """Cells of one case together, so that its reference runs once; the slow, the fuzz's whole programs and the many first, so
    that no worker ends alone."""
    from .case import CASES

    by_case: dict[str, list] = {}
    for cell in cells:
        by_case.setdefault(cell.case, []).append(cell)
    weight = lambda case, batch: (case.slow, case.family == "fuzz", len(batch))
    return sorted(by_case.values(), key=lambda batch: weight(CASES[batch[0].case], batch), reverse=True)


def _start_worker(folder: str | None = None) -> None:
    """folder: where a process of the pool keeps what it compiles while the run lasts. A quarter of what XLA is given it has
    had before: the same loop from another case, and all of it again once the process has forgotten its programs."""
    if folder is not None:  # Ctrl-C is for the parent, which ends its workers
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    import jax

    if folder is not None:
        jax.config.update("jax_compilation_cache_dir", os.path.join(folder, str(os.getpid())))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
        gc.set_threshold(100_000, 20, 100)  # a trace is many small objects that live as long as it does
    jax.config.update("jax_enable_x64", True)
    import warnings

    warnings.simplefilter("ignore")
    from . import cases  # noqa: F401 - registers them

    if folder is not None:
        gc.freeze()


@contextlib.contextmanager
def _interrupts_wait() -> Iterator[None]:
    """Ctrl-C within waits until the end. Processes started within never see it, which they inherit: one that still imports has
    had no time to say so itself, and would print a traceback."""
    if not hasattr(signal, "pthread_sigmask"):  # not on Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _run(batches: list[list], jobs: int) -> Iterator[list[dict]]:
    from .runner import run_case

    if jobs <= 1:
        _start_worker()
        yield from map(run_case, batches)
        return
    context = multiprocessing.get_context("spawn")
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        ProcessPoolExecutor(jobs, mp_context=context, initializer=_start_worker, initargs=(folder,)) as pool,
    ):
        try:
            with _interrupts_wait():
                futures = [pool.submit(run_case, batch) for batch in batches]
            for future in as_completed(futures):
                yield future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in multiprocessing.active_children():
                worker.terminate()
            raise


@contextlib.contextmanager
def _progress(total: int) -> Iterator:
    """advance(cells): a bar on a terminal, where rich is installed; silent elsewhere."""
    try:
        from rich.console import Console
        from rich.progress import Progress
    except ImportError:
        yield lambda n: None
        return
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda n: None
        return
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task("conformance", total=total)
        yield lambda n: bar.advance(task, n)


def _noted(path: str | None) -> tuple[list[dict], float]:
    """Records of earlier runs, and the seconds that these took; a last line that was cut off is dropped."""
    records, seconds = [], 0.0
    if path is not None and pathlib.Path(path).exists():
        for line in pathlib.Path(path).read_text("utf-8").splitlines():
            with contextlib.suppress(json.JSONDecodeError):
                noted = json.loads(line)
                if "ran" in noted:
                    seconds += noted["ran"]
                else:
                    records.append(noted)
    return records, seconds


@contextlib.contextmanager
def _appending(path: str | None) -> Iterator:
    """The state file, open for more lines; a line that an interrupt cut off is ended first."""
    with open(path or os.devnull, "a+", encoding="utf-8") as file:
        if path and file.tell():
            file.seek(0)
            if not file.read().endswith("\n"):
                file.write("\n")
        yield file


def _stale(names: list[str]) -> list[str]:
    """Limitation rows on these backends that no cell of any tier can match. (Rows whose cells pass say so cell by cell.)"""
    from . import runner
    from .limitations import LIMITATIONS

    possible = runner.cells(names, ["*"])
    ran = {c.backend for c in possible}
    return [
        f"{row.case} on {row.backend}: {row.reason}"
        for row in LIMITATIONS
        if row.backend in ran and not any(row.matches(c.case, c.backend, c.transform, c.dtype) for c in possible)
    ]


def _write(args: argparse.Namespace, data: dict, previous: dict | None) -> None:
    """Files and formats, from the report's data and nothing else."""
    from quabla_jax._files import write_text

    from . import report

    kind = args.format
    if kind is None and args.output:
        kind = {".json": "json", ".html": "html", ".md": "markdown"}.get(pathlib.Path(args.output).suffix, "table")
    if kind == "html":
        from .html import page

        body = page(data, previous)
    elif kind == "json":
        body = report.dump(data)
    else:
        body = report.to_text(data["cells"], markdown=kind == "markdown") + "\n"
    if args.output:
        write_text(args.output, body, "--output")
    elif kind in ("json", "html", "markdown"):
        print(body)
    if args.junit:
        write_text(args.junit, report.junit(data["cells"]), "--junit")


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 all pass, 1 a cell fails or a limitation is stale, 2 unusable arguments, 130 interrupted."""
    args = _parser().parse_args(argv)
    from quabla_jax._files import target_of
    from quabla_jax._interrupts import interruptible

    from . import report

    try:
        for option, path in (("--output", args.output), ("--junit", args.junit), ("--state", args.state)):
            if path is not None:  # said before the run, not after it
                target_of(option, path)
        previous = report.load(args.diff) if args.diff is not None else None
        data = report.load(args.source) if args.source is not None else None
    except (ValueError, OSError) as error:
        print(f"conformance: {error}", file=sys.stderr)
        return 2
    if data is None:
        try:
            with interruptible():
                data = _collect(args)
        except KeyboardInterrupt:
            hint = f"; the same command goes on from {args.state}" if args.state else " (--state would have kept them)"
            print(f"\nconformance: interrupted{hint}", file=sys.stderr)
            return 130
        if isinstance(data, int):
            return data
    _write(args, data, previous)
    return _print(data, previous)


def _key(record: dict) -> str:
    return f"{record['case']}|{record['backend']}|{record['transform']}|{record['dtype']}"


def _collect(args: argparse.Namespace) -> dict | int:
    """The report's data from running what the arguments ask for; an exit status where nothing is to be run."""
    import jax

    jax.config.update("jax_enable_x64", True)
    from . import backends, cases, report, runner  # noqa: F401

    names = args.backend or list(backends.BUILT_IN)
    transforms = args.transforms.split(",") if args.transforms else None
    try:
        loaded = {name: backends.load(name) for name in names}
        unknown = set(transforms or ()) - set(runner.TRANSFORMS)
        if unknown:
            raise ValueError(f"no transform {', '.join(sorted(unknown))}: there are {', '.join(runner.TRANSFORMS)}")
    except ValueError as error:
        print(f"conformance: {error}", file=sys.stderr)
        return 2
    unavailable = {n: r for n, b in loaded.items() if (r := b.available()) is not None}
    cells = runner.cells(names, args.case or ["*"], transforms, args.tier)
    if not cells:
        print("conformance: no cell matches", file=sys.stderr)
        return 2
    if args.list:
        print("\n".join(c.key for c in cells))
        return 0
    wanted = {c.key for c in cells}
    earlier, seconds = _noted(args.state)
    records = [r for r in earlier if _key(r) in wanted]
    done = {_key(r) for r in records}
    todo = [c for c in cells if c.key not in done]
    began = time.monotonic()
    with _progress(len(todo)) as advance, _appending(args.state) as state:
        try:
            for finished in _run(_batches(todo), args.jobs):
                records += finished
                state.writelines(json.dumps(r) + "\n" for r in finished)
                state.flush()
                advance(len(finished))
        finally:
            seconds += time.monotonic() - began
            state.write(json.dumps({"ran": round(time.monotonic() - began, 1)}) + "\n")
    run = {"tier": args.tier, "jobs": args.jobs, "seconds": round(seconds), "resumed": len(done)}
    return report.data_of(records, unavailable, _stale(names), run)


def _print(data: dict, previous: dict | None) -> int:
    from . import report

    records, stale = data["cells"], data.get("stale_limitations", [])
    print(report.to_text(records))
    for name, reason in data.get("unavailable", {}).items():
        print(f"unavailable: {name}: {reason}")
    failing = [r for r in records if r["outcome"] in report.FAILING]
    for r in failing[:60]:
        print(f"{r['outcome']:11s} {r['case']} {r['backend']} {r['transform']} {r['dtype']}: {r['message'][:200]}")
    if len(failing) > 60:
        print(f"(+{len(failing) - 60} more)")
    for line in stale:
        print(f"stale limitation: {line}")
    if previous is not None:
        print("\n".join(report.compare(previous["cells"], records)) or "no change since the previous report")
    passed = sum(r["outcome"] == "pass" for r in records)
    known = sum(r["outcome"] == "xfail" for r in records)
    print(f"{passed} passed, {len(failing) + len(stale)} failed, {known} known")
    return 1 if failing or stale else 0
