"""docs/conformance.md names the families and counts the cells that the suite has now."""

import pathlib
import re
from collections import Counter

import pytest

import conformance.cases  # noqa: F401 - registers the cases
from conformance import backends, runner

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "conformance.md"


def test_the_page_is_current():
    text = PAGE.read_text("utf-8")
    rows = [[c.strip() for c in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    head, shown = rows[0], {row[0]: row[1:] for row in rows[2:]}
    missing = [n for n in head[1:] if backends.load(n).available() is not None]
    if missing:
        pytest.skip(f"the page was made with {', '.join(missing)}, which cannot run here")
    counts = Counter(
        (c.case.split("/")[0], c.backend) for c in runner.cells(list(backends.BUILT_IN), ["*"], tier="quick")
    )
    assert {f for f, _ in counts} == shown.keys() - {"all"}, "families have come or gone: make the page again"
    for family, cells in shown.items():
        if family == "all":
            continue
        for backend, cell in zip(head[1:], cells, strict=True):
            total = 0 if cell == "-" else int(re.split(r"[/ ]", cell)[1 if "/" in cell else 0])
            assert counts[family, backend] == total, f"{family} on {backend}: make the page again"
