"""Tables from records, and nothing but records: whatever is drawn can be drawn again from the JSON alone."""

from __future__ import annotations

import json
import pathlib
import platform
from collections import Counter
from typing import Any
from xml.etree import ElementTree

from quabla_jax._files import checked_path

__all__ = ["FAILING", "OUTCOMES", "compare", "data_of", "dump", "environment", "junit", "load", "summary", "to_text"]

OUTCOMES = ("pass", "fail", "crash", "unsupported", "xfail", "xpass", "unavailable")
FAILING = frozenset({"fail", "crash", "unsupported", "xpass"})


def environment() -> dict[str, str]:
    """Versions and machine, as the report states them."""
    from importlib import metadata

    found = {"python": platform.python_version(), "machine": platform.machine(), "system": platform.system()}
    for package in ("quabla-jax", "jax", "jaxlib", "numpy", "mlx", "torch", "quabla"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def data_of(
    records: list[dict], unavailable: dict[str, str], stale: list[str], run: dict[str, Any] | None = None
) -> dict[str, Any]:
    """A report: what is written as JSON, and all that tables and pages are drawn from. run: how the cells were run."""
    return {
        "environment": environment(),
        "run": run or {},
        "unavailable": unavailable,
        "stale_limitations": stale,
        "cells": sorted(records, key=lambda r: (r["case"], r["backend"], r["transform"], r["dtype"])),
    }


def dump(data: dict[str, Any]) -> str:
    """The report as JSON text, one cell a line."""
    cells = ",\n".join(json.dumps(c) for c in data["cells"])
    head = json.dumps({k: v for k, v in data.items() if k != "cells"}, indent=1)
    return f'{head.removesuffix(chr(10) + "}")},\n "cells": [\n{cells}\n ]\n}}\n'


def load(path: str | pathlib.Path) -> dict[str, Any]:
    """A JSON report; ValueError where the file is not one."""
    path = checked_path("a conformance report", path)
    try:
        report = json.loads(pathlib.Path(path).read_text("utf-8"))
        report["cells"], report["environment"]
    except (json.JSONDecodeError, KeyError, TypeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{path} is not a conformance report: {error}") from error
    return report


def summary(records: list[dict]) -> dict[str, dict[str, Counter]]:
    """{backend: {family: Counter of outcomes}}"""
    table: dict[str, dict[str, Counter]] = {}
    for r in records:
        family = r["case"].split("/")[0]
        table.setdefault(r["backend"], {}).setdefault(family, Counter())[r["outcome"]] += 1
    return table


def _cell(counts: Counter) -> str:
    passed, total = counts["pass"], sum(counts.values())
    if passed == total:
        return str(total)
    rest = ", ".join(f"{counts[o]} {o}" for o in OUTCOMES[1:] if counts[o])
    return f"{passed}/{total} ({rest})"


def to_text(records: list[dict], markdown: bool = False) -> str:
    """Families by backends; a bare number: so many cells and all pass."""
    table = summary(records)
    names = list(table)
    families = sorted({f for row in table.values() for f in row})
    rows = [["family", *names]]
    rows += [[f, *(_cell(table[b][f]) if f in table[b] else "-" for b in names)] for f in families]
    rows.append(["all", *(_cell(sum(table[b].values(), Counter())) for b in names)])
    widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in rows]
    if markdown:
        lines = ["| " + " | ".join(r) + " |" for r in rows]
        lines.insert(1, "|" + " --- |" * len(names) + " --- |")
    return "\n".join(lines)


def junit(records: list[dict]) -> str:
    """The cells as a JUnit XML file, one suite a backend."""
    root = ElementTree.Element("testsuites")
    for backend in dict.fromkeys(r["backend"] for r in records):
        mine = [r for r in records if r["backend"] == backend]
        failures = sum(r["outcome"] in FAILING for r in mine)
        suite = ElementTree.SubElement(root, "testsuite", name=backend, tests=str(len(mine)), failures=str(failures))
        for r in mine:
            name = f"{r['case']}[{r['transform']}-{r['dtype']}]"
            test = ElementTree.SubElement(suite, "testcase", name=name, classname=backend, time=str(r["seconds"]))
            if r["outcome"] in FAILING:
                ElementTree.SubElement(test, "failure", message=f"{r['outcome']}: {r['message']}")
            elif r["outcome"] != "pass":
                ElementTree.SubElement(test, "skipped", message=f"{r['outcome']}: {r['message']}")
    return ElementTree.tostring(root, encoding="unicode")


def compare(old: list[dict], new: list[dict]) -> list[str]:
    """What changed between two reports, worst first."""

    def index(records: list[dict]) -> dict[tuple, dict]:
        return {(r["case"], r["backend"], r["transform"], r["dtype"]): r for r in records}

    before, after = index(old), index(new)
    lines = []
    for key in sorted(before.keys() | after.keys()):
        was = before.get(key, {}).get("outcome", "absent")
        now = after.get(key, {}).get("outcome", "absent")
        if was != now:
            lines.append(f"{'worse ' if now in FAILING else ''}{'|'.join(key)}: {was} -> {now}")
    return sorted(lines, key=lambda line: not line.startswith("worse"))
