"""docs/conformance.md from a JSON report, and a fuzz's state files where there are some:

python -m conformance.matrix report.json docs/conformance.md [fuzz.jsonl ...]
"""

from __future__ import annotations

import json
import pathlib
import sys
from collections import Counter, defaultdict
from typing import Any

from . import report

__all__ = ["page"]

INTRODUCTION = """# Conformance

One suite holds every backend against plain `jax.lax` in float64. A cell is a case under a transform in a dtype on a backend; a
number is how many cells of a family a backend ran, all passing; where some do not, passed/all and what the rest are: `xfail` is
a known limitation, listed below with its reason. A limitation that matches no cell any more, whose cell passes, or whose cell
fails in another way than it says, fails the run."""

COMMANDS = """Made by

```sh
python -m conformance --tier full --jobs 2 -o report.json
python -m conformance.matrix report.json docs/conformance.md fuzz.jsonl
```

`--tier quick` runs one cell a case on two backends, `--tier full` a few transforms of every case on every backend,
`--tier exhaustive` all of them. With `--jobs 2` in a 2-core x86-64 container with nothing else running, the quick tier took
1 min 21 s and the full one 9 min 16 s in one go. `-o report.html`
writes one page with every cell, its input and its distance; `--from report.json` draws tables, page and JUnit XML again from the
JSON alone; `--diff old.json` says what changed; `--state cells.jsonl` notes each finished case, so that an interrupted run goes on
where it was. [Hold your own backend against it](outside_backend.md)."""

FUZZ = """## Random programs

`python -m conformance.fuzz --programs N` draws nested programs of up to ten steps (counted loops, scans, while loops, branches,
switches, `vmap` and `jax.checkpoint` inside, over carries of float64, float32, int32, uint32 and bool), each under one of twelve
orders of transforms and one of four ways to map its inputs, traced through the engine once. NumPy, MLX (its ops one by one) and
TorchScript run every program on three draws of the inputs; torch.export every 31st, the engine compiled whole by XLA, MLX's
fused kernels and the reference compiled whole every 61st (`--all`: every one). The reference is plain `jax.lax` run op by op in
NumPy, with nothing to compile but gathers and scatters. What fails is shrunk and printed as a case for
`conformance/cases/fuzz_finds.py`. A nightly run is `--programs 10000 --state fuzz.jsonl`, at 0.5 s of processor time a program
(0.9 s beside other work), the compilers that it starts included; `--seed` gives each process its own range.
`tests/meta/test_program_fuzz.py` plants faults in the engine and has them found. Every find is mended
and stands as a case."""


NIGHTLY = 10_000  # programs


def _times(run: dict[str, Any]) -> str:
    if not run:
        return ""
    minutes, seconds = divmod(run["seconds"], 60)
    again = f", {run['resumed']} of them noted by earlier runs" if run["resumed"] else ""
    return f" The {run['tier']} tier, in {minutes} min {seconds} s with `--jobs {run['jobs']}`{again}."


def _known(cells: list[dict]) -> list[str]:
    """The limitations met, one row a reason and backend, from the messages of the xfail cells."""
    rows: dict[tuple[str, str], list[dict]] = defaultdict(list)
    for cell in cells:
        if cell["outcome"] == "xfail":
            rows[cell["backend"], cell["message"].partition(" [")[0]].append(cell)
    if not rows:
        return []
    lines = ["## Known limitations", "", "| backend | reason | cases | cells |", "| --- | --- | --- | --- |"]
    for (backend, reason), mine in sorted(rows.items()):
        names = sorted({c["case"] for c in mine})
        said = ", ".join(f"`{n}`" for n in names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
        lines.append(f"| {backend} | {reason} | {said} | {len(mine)} |")
    return [*lines, ""]


def fuzzed(records: list[dict]) -> list[str]:
    """What a fuzz's state files say: how many programs, where, and what they found."""
    where = Counter(b for r in records for b in r["backends"])
    finds = [f for r in records for f in r["finds"]]
    said = ", ".join(f"{n:,} on {b}" for b, n in where.most_common())
    orders = len({r["transform"] for r in records})
    short = f" of the nightly {NIGHTLY:,}" if len(records) < NIGHTLY else ""
    lines = [f"The last run: {len(records):,}{short} programs under {orders} orders of transforms: {said}.", ""]
    if not finds:
        return [*lines, "It found nothing.", ""]
    kinds = Counter(f"{f['outcome']} on {f['backend']}" for f in finds)
    return [*lines, "It found: " + ", ".join(f"{n} {kind}" for kind, n in kinds.most_common()) + ".", ""]


def page(data: dict, fuzz: list[dict] | None = None) -> str:
    """The documentation page of a report as report.load gives it; `fuzz`: the records of a fuzz's state file."""
    cells = data["cells"]
    outcomes = Counter(c["outcome"] for c in cells)
    environment = ", ".join(f"{name} {version}" for name, version in data["environment"].items())
    said = ", ".join(f"{outcomes[o]} {o}" for o in report.OUTCOMES if outcomes[o])
    lines = [
        INTRODUCTION,
        "",
        f"{len(cells)} cells: {said}.{_times(data.get('run', {}))} {environment}.",
        "",
        report.to_text(cells, markdown=True),
        "",
        *[f"Not run: {name} ({reason})." for name, reason in data.get("unavailable", {}).items()],
        *([""] if data.get("unavailable") else []),
        *_known(cells),
        COMMANDS,
        "",
        FUZZ,
        "",
        *(fuzzed(fuzz) if fuzz else []),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    from quabla_jax._files import write_text

    state = [line for path in sys.argv[3:] for line in pathlib.Path(path).read_text("utf-8").splitlines()]
    write_text(sys.argv[2], page(report.load(sys.argv[1]), [json.loads(line) for line in state]))
