"""docs/conformance.md is what the command makes of the suite as it is now: its families, its cells, its limitations."""

import pathlib
import re
from collections import Counter

import pytest

import conformance.cases  # noqa: F401 - registers the cases
from conformance import backends, limitations, matrix, report, runner

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "conformance.md"


def _table(text):
    rows = [[c.strip() for c in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    rows = rows[: 2 + next(k for k, row in enumerate(rows[2:]) if row[0] == "all")]
    return rows[0], {row[0]: row[1:] for row in rows[2:]}


def test_the_page_is_current():
    head, shown = _table(PAGE.read_text("utf-8"))
    assert set(head[1:]) == set(backends.BUILT_IN), "backends have come or gone: make the page again"
    missing = [n for n in head[1:] if backends.load(n).available() is not None]
    if missing:
        pytest.skip(f"the page was made with {', '.join(missing)}, which cannot run here")
    counts = Counter(
        (c.case.split("/")[0], c.backend) for c in runner.cells(list(backends.BUILT_IN), ["*"], tier="full")
    )
    assert {f for f, _ in counts} == shown.keys(), "families have come or gone: make the page again"
    for family, cells in shown.items():
        for backend, cell in zip(head[1:], cells, strict=True):
            total = 0 if cell == "-" else int(re.split(r"[/ ]", cell)[1 if "/" in cell else 0])
            assert counts[family, backend] == total, f"{family} on {backend}: make the page again"
            assert not re.search("fail|crash|unsupported|xpass", cell.replace("xfail", "")), f"{family} on {backend}"


def test_the_page_has_every_limitation_and_no_other():
    text = PAGE.read_text("utf-8")
    ran = runner.cells(list(backends.BUILT_IN), ["*"], tier="full")
    for row in limitations.LIMITATIONS:
        if not any(row.matches(c.case, c.backend, c.transform, c.dtype) for c in ran):
            continue  # the exhaustive tier meets it
        assert row.reason in text, f"{row.case} on {row.backend}: make the page again"
    section = text.partition("## Known limitations")[2].partition("\nMade by")[0]
    reasons = {row.reason for row in limitations.LIMITATIONS}
    for line in section.splitlines()[4:]:
        if line.startswith("|"):
            assert line.split("|")[2].strip() in reasons, line


def test_the_page_is_made_by_the_command():
    """Everything but the figures is the generator's text."""
    text = PAGE.read_text("utf-8")
    for part in (matrix.INTRODUCTION, matrix.COMMANDS, matrix.FUZZ):
        assert part in text


def _record(**fields):
    return {
        "case": "fori/a",
        "backend": "mlx",
        "transform": "jit",
        "dtype": "float32",
        "outcome": "pass",
        "message": "",
        **fields,
    }


def test_page_from_records_alone():
    cells = [
        _record(),
        _record(case="fori/b", outcome="xfail", message="no such dtype [UnsupportedOperationError: ...]"),
    ]
    run = {"tier": "full", "jobs": 2, "seconds": 754, "resumed": 0}
    fuzz = [
        {"transform": "jit", "backends": ["numpy", "mlx"], "finds": []},
        {"transform": "grad", "backends": ["numpy"], "finds": [{"outcome": "fail", "backend": "numpy"}]},
    ]
    text = matrix.page(report.data_of(cells, {"torchscript": "not installed"}, [], run), fuzz)
    assert "2 cells: 1 pass, 1 xfail. The full tier, in 12 min 34 s with `--jobs 2`." in text
    assert "| fori | 1/2 (1 xfail) |" in text and "| mlx | no such dtype | `fori/b` | 1 |" in text
    assert "Not run: torchscript (not installed)." in text
    assert (
        "2 of the nightly 10,000 programs under 2 orders of transforms: 2 on numpy, 1 on mlx." in text
        and "1 fail on numpy" in text
    )
    resumed = matrix.page(report.data_of(cells, {}, [], {**run, "resumed": 3}))
    assert "in 12 min 34 s with `--jobs 2`, 3 of them noted by earlier runs." in resumed
