"""docs/conformance.md from a JSON report: python -m conformance.matrix report.json docs/conformance.md"""

from __future__ import annotations

import sys
from collections import Counter

from . import report

__all__ = ["page"]


def page(data: dict) -> str:
    """The documentation page of a report as report.load gives it."""
    cells = data["cells"]
    outcomes = Counter(c["outcome"] for c in cells)
    environment = ", ".join(f"{name} {version}" for name, version in data["environment"].items())
    said = ", ".join(f"{outcomes[o]} {o}" for o in report.OUTCOMES if outcomes[o])
    lines = [
        "# Conformance",
        "",
        "One suite holds every backend against plain `jax.lax` in float64. A number is how many cells (a case under a transform in a",
        "dtype) a backend ran, all passing; where some do not, passed/all and what the rest are.",
        "",
        f"{len(cells)} cells: {said}. {environment}.",
        "",
        report.to_text(cells, markdown=True),
        "",
    ]
    if data.get("unavailable"):
        lines += [f"Not run: {name} ({reason})." for name, reason in data["unavailable"].items()] + [""]
    lines += [
        "Made by",
        "",
        "```sh",
        "python -m conformance --tier quick -o report.json",
        "python -m conformance.matrix report.json docs/conformance.md",
        "```",
        "",
        "`--tier full` and `--tier exhaustive` run more transforms and dtypes of the same cases; `-o report.html` writes a page with",
        "every cell. [Hold your own backend against it](outside_backend.md).",
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    from quabla_jax._files import write_text

    write_text(sys.argv[2], page(report.load(sys.argv[1])))
