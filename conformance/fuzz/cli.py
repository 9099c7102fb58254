"""Random control-flow programs on every backend, and what is wrong made small.

python -m conformance.fuzz --programs 200 --seed 7 --state fuzz.jsonl
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import time
import warnings
from collections import Counter
from collections.abc import Iterator

import jax

from quabla_jax._interrupts import interruptible

from .check import BACKENDS, EVERY, Finding, check, due
from .programs import MAPPED, TRANSFORMS, generate
from .shrink import shrink

__all__ = ["main", "run_one"]

FORGET = 250  # programs, after which what JAX keeps of them is dropped
SHRUNK = 5  # findings of one kind that are made small: a backend that is broken altogether says so at once


def _parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(prog="python -m conformance.fuzz", description=__doc__.splitlines()[0])
    p.add_argument("--programs", type=int, default=100, metavar="N")
    p.add_argument("--seed", type=int, default=0, help="number of the first program")
    p.add_argument("--backend", action="append", choices=BACKENDS, help="repeatable; default: all that are installed")
    p.add_argument("--transforms", default=",".join(TRANSFORMS), metavar="A,B")
    p.add_argument("--all", action="store_true", help="every backend on every program, the costly ones too")
    p.add_argument("--state", metavar="FILE.jsonl", help="note each program here, and skip the ones noted: resumable")
    p.add_argument("--seconds", type=float, default=0, help="stop after this long (0: never)")
    return p


def _installed(names: list[str] | None) -> tuple[str, ...]:
    from .. import backends

    wanted = names or list(BACKENDS)
    return tuple(n for n in wanted if backends.load(n.removesuffix("-fused")).available() is None)


def setting(seed: int, transforms: list[str]) -> tuple[str, int, str]:
    """The transform, the row of MAPPED and the front door of a program: every combination comes up in turn."""
    turn = seed // len(transforms)
    return transforms[seed % len(transforms)], turn % len(MAPPED), ("compat", "xla")[turn // len(MAPPED) % 2]


def run_one(
    seed: int, transforms: list[str], names: tuple[str, ...], every: dict[str, int], seen: Counter | None = None
) -> dict:
    """One program on the backends whose turn it is; what fails is shrunk, the first few times that it fails so (`seen`)."""
    seen = Counter() if seen is None else seen
    transform, mapped, source = setting(seed, transforms)
    steps, chosen = generate(seed), due(seed, names, every)
    findings = check(steps, transform, chosen, mapped, source)
    record = {"seed": seed, "transform": transform, "mapped": mapped, "source": source, "backends": chosen, "finds": []}
    for finding in findings:
        kind = (finding.backend, finding.outcome, finding.message[:40] if finding.outcome != "fail" else "")
        seen[kind] += 1
        fails = lambda s, f=finding: any(
            g.outcome == f.outcome and g.backend == f.backend for g in check(s, transform, [f.backend], mapped, source)
        )
        small = shrink(steps, fails, tries=80 if seen[kind] <= SHRUNK else 0)
        record["finds"].append({**vars(finding), "case": as_case(small, finding, mapped, seed)})
    return record


def as_case(steps: tuple, finding: Finding, mapped: int, seed: int) -> str:
    """A line to paste into conformance/cases/fuzz_finds.py."""
    said = f"{finding.outcome} on {finding.backend} under {finding.transform}"
    return f'register(case_of({steps!r}, "fuzz/seed-{seed}", mapped={mapped}))  # {said}'


def _noted(path: str | None) -> dict[int, dict]:
    if path is None or not pathlib.Path(path).exists():
        return {}
    records = {}
    for line in pathlib.Path(path).read_text("utf-8").splitlines():
        try:
            record = json.loads(line)
        except json.JSONDecodeError:  # the last line of an interrupted run
            continue
        records[record["seed"]] = record
    return records


def _records(args: argparse.Namespace, names: tuple[str, ...]) -> Iterator[dict]:
    """Records of the programs asked for, old ones from the state file, in order of their seeds."""
    done, began, seen, ran = _noted(args.state), time.monotonic(), Counter(), 0
    every = dict.fromkeys(BACKENDS, 1) if args.all else EVERY
    with open(args.state or os.devnull, "a", encoding="utf-8") as state:
        for seed in range(args.seed, args.seed + args.programs):
            if seed not in done:
                if args.seconds and time.monotonic() - began > args.seconds:
                    return
                done[seed] = run_one(seed, args.transforms.split(","), names, every, seen)
                ran += 1
                if ran % FORGET == 0:
                    jax.clear_caches()
                state.write(json.dumps(done[seed]) + "\n")
                state.flush()
            yield done[seed]


def summary(records: list[dict]) -> str:
    """How many programs ran where, and what they found."""
    where = Counter(b for r in records for b in r["backends"])
    finds = sum(bool(r["finds"]) for r in records)
    said = ", ".join(f"{n} on {b}" for b, n in where.most_common())
    return f"{len(records)} programs under {len({r['transform'] for r in records})} orders of transforms: {said}; {finds} finds"


def main(argv: list[str] | None = None) -> int:
    """Exit status 1 where a program fails, 2 for unusable arguments, 130 interrupted."""
    args = _parser().parse_args(argv)
    unknown = set(args.transforms.split(",")) - set(TRANSFORMS)
    if unknown:
        _parser().error(f"no transform {', '.join(sorted(unknown))}: there are {', '.join(TRANSFORMS)}")
    jax.config.update("jax_enable_x64", True)
    # Thousands of small programs are compiled once each and run a few times: cheap code is the quicker code.
    jax.config.update("jax_disable_most_optimizations", True)
    warnings.simplefilter("ignore")
    began, records, interrupted = time.monotonic(), [], False
    try:
        with interruptible():
            for record in _records(args, _installed(args.backend)):
                records.append(record)
                for find in record["finds"]:
                    print(
                        f"{find['outcome']} on {find['backend']}: {find['message'][:200]}\n  {find['case']}", flush=True
                    )
    except KeyboardInterrupt:
        interrupted = True
    print(f"{summary(records)}, in {time.monotonic() - began:.0f} s{', interrupted' if interrupted else ''}")
    return 130 if interrupted else 1 if any(r["finds"] for r in records) else 0
