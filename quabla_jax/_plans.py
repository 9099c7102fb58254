"""The table and the picture behind `quabla-jax plan`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from ._arguments import size_of
from ._boxes import bytes_text
from ._files import atomic_path, picture_kind
from .loops.plan import Budget, LoopPlan, plan_loop

__all__ = ["Row", "plot_plans", "table"]


@dataclass(frozen=True)
class Row:
    """One request and the plan it leads to, or why there is none."""

    name: str
    plan: LoopPlan | None
    why: str = ""

    def cells(self) -> tuple[str, ...]:
        if self.plan is None:
            return (self.name, "-", "-", "-", self.why)
        p = self.plan
        slots = " + ".join(map(str, p.slots)) if p.levels else "every step"
        return (self.name, str(p.levels), slots, bytes_text(p.stored_bytes), f"{p.extra_forward:,}")


def table(length: int, carry: str, residual: str | None, budget: str | None) -> list[Row]:
    """Rows for auto, full, sqrt, deeper budgets, and the budget asked for."""
    size = size_of(carry)
    rest = size_of(residual) if residual is not None else None
    requests: list[tuple[str, Any]] = [("auto", "auto"), ("full", "full"), ("sqrt", "sqrt")]
    root = plan_loop(length, size, rest, "sqrt").stored_bytes
    requests += [(f"Budget({bytes_text(root // k)})", Budget(max(root // k, 1))) for k in (4, 16)]
    if budget is not None:
        requests.append((f"Budget({budget})", Budget(budget)))
    rows = []
    for name, request in requests:
        try:
            rows.append(Row(name, plan_loop(length, size, rest, request)))
        except ValueError as error:
            rows.append(Row(name, None, str(error)))
    return rows


def plot_plans(rows: list[Row], path: str | os.PathLike) -> None:
    """Stored bytes against extra forward steps, one point a plan."""
    kind = picture_kind("plot_plans", path)
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    found: dict[tuple[float, float], list[str]] = {}  # several requests may lead to one plan
    plans = [row.plan for row in rows if row.plan is not None]
    for row in rows:
        if row.plan is not None:
            place = row.plan.stored_bytes, row.plan.extra_forward / max(row.plan.length, 1)
            found.setdefault(place, []).append(row.name)
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for number, ((stored, ratio), names) in enumerate(sorted(found.items())):
        axes.plot(stored, ratio, "o", color="#1f6f8b")
        above = number % 2 == 0  # neighbours do not write over each other
        axes.annotate(
            ", ".join(names),
            (stored, ratio),
            xytext=(0, 7 if above else -7),
            textcoords="offset points",
            ha="center",
            va="bottom" if above else "top",
            fontsize=8,
        )
    axes.margins(x=0.15, y=0.15)
    axes.set(xscale="symlog" if any(stored == 0 for stored, _ in found) else "log")
    axes.xaxis.set_major_formatter(lambda value, _: bytes_text(int(value)))
    axes.set(xlabel="stored", ylabel="extra forward runs of each step")
    axes.set(title=f"plans of a loop of {plans[0].length:,} steps" if plans else "no plan fits")
    axes.grid(alpha=0.3)
    with atomic_path(path, "plot_plans") as temporary:
        figure.savefig(temporary, dpi=130, format=kind)
    plt.close(figure)
