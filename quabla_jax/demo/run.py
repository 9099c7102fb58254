"""The demo from end to end."""

from __future__ import annotations

import base64
import html
import pathlib
import time

import jax
import jax.numpy as jnp
import numpy as np

from .._files import atomic_path, write_text
from .model import NAMES, START, STEPS_A_YEAR, gradient_memory, load_record, loss, trajectory
from .targets import Comparison, compare_targets

__all__ = ["run"]


def fit(pelts: np.ndarray, steps: int, report) -> tuple[np.ndarray, list[float]]:
    """Gradient descent (Adam with a cosine schedule) on the logarithms of the parameters; `report(step, loss)` each step."""
    import optax

    optimiser = optax.adam(optax.cosine_decay_schedule(0.05, steps))
    theta = jnp.asarray(START)
    state = optimiser.init(theta)

    @jax.jit
    def update(theta, state):
        value, slope = jax.value_and_grad(loss)(theta, jnp.asarray(pelts))
        change, state = optimiser.update(slope, state)
        return optax.apply_updates(theta, change), state, value

    losses = []
    for step in range(steps):
        theta, state, value = update(theta, state)
        losses.append(float(value))
        report(step, losses[-1])
    return np.asarray(theta), losses


def _picture(path: pathlib.Path, years, pelts, theta, losses) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    # The fine curve comes from the same model, read out 40 times a year by shortening its unit of time.
    points, fine = 40, np.array(theta)
    fine[:4] -= np.log(points)
    curve = np.asarray(jax.jit(trajectory, static_argnums=(1, 2))(fine, 20 * points + 1, STEPS_A_YEAR // points))
    time_axis = years[0] + np.arange(len(curve)) / points
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), width_ratios=(2.2, 1), layout="constrained")
    for column, (name, colour) in enumerate((("hare", "#1f6f8b"), ("lynx", "#d1603d"))):
        left.plot(time_axis, curve[:, column], color=colour, label=f"{name}, fitted")
        left.plot(years, pelts[:, column], "o", color=colour, label=f"{name}, pelts")
    left.set(xlabel="year", ylabel="thousands", title="Lotka-Volterra fitted through 20,000 Runge-Kutta steps")
    left.set_xticks(years[::5].astype(int))
    left.legend(frameon=False, ncols=2)
    right.semilogy(losses, color="#444444")
    right.set(xlabel="step of Adam", title="mean squared log difference")
    with atomic_path(path) as temporary:
        figure.savefig(temporary, dpi=130, format="png")
    plt.close(figure)


def _page(path: pathlib.Path, png: pathlib.Path, tables: list[tuple[str, list[tuple[str, ...]]]]) -> None:
    image = base64.b64encode(png.read_bytes()).decode("ascii")
    body = []
    for title, rows in tables:
        head, *rest = rows
        cells = "".join(f"<th>{html.escape(c)}</th>" for c in head)
        lines = "".join("<tr>" + "".join(f"<td>{html.escape(c)}</td>" for c in row) + "</tr>" for row in rest)
        body.append(f"<h2>{html.escape(title)}</h2><table><tr>{cells}</tr>{lines}</table>")
    style = (
        "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color-scheme:light dark}"
        "img{max-width:100%;background:#fff}table{border-collapse:collapse}td,th{padding:.2rem .8rem;text-align:left;"
        "border-bottom:1px solid #8884}"
    )
    write_text(
        path,
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>quabla-jax demo</title><style>{style}</style><h1>Lynx and hare, 1900-1920</h1>"
        f'<img alt="The record and the fitted curves" src="data:image/png;base64,{image}">{"".join(body)}</html>',
    )


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.1e}"


def _target_rows(rows: list[Comparison]) -> list[tuple[str, ...]]:
    """The table, with a column for what could not run only where something could not."""
    table = [("target", "float64", "float32", "")]
    table += [(row.target, _figure(row.float64), _figure(row.float32), row.reason) for row in rows]
    return table if any(row.reason for row in rows) else [line[:3] for line in table]


def run(folder: str | pathlib.Path = "demo-output", steps: int = 150, console=None) -> list[Comparison]:
    """Fit, compare and write fit.png, model.pt and index.html into `folder`; returns one row a target.

    Needs the cli and optax extras; mlx and torch are used where installed. Turns on float64 for the process.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
    from rich.table import Table

    jax.config.update("jax_enable_x64", True)
    console = console or Console()
    folder = pathlib.Path(folder)
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"--output: {str(folder)!r} is a file; give a folder for what the demo writes")
    folder.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    years, pelts = load_record()
    console.print(
        f"Lynx and hare, {int(years[0])}-{int(years[-1])}: 20 x {STEPS_A_YEAR} Runge-Kutta steps, fitted by Adam"
    )

    memory = [("gradient keeps", "temporary memory")]
    for checkpoint in ("full", "sqrt"):
        size = gradient_memory(jnp.asarray(START), jnp.asarray(pelts), checkpoint)
        memory.append((f'checkpoint="{checkpoint}"', f"{size / 1e6:.3f} MB"))

    columns = (
        TextColumn("fit"),
        BarColumn(),
        TextColumn("loss {task.fields[loss]:.5f}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("fit", total=steps, loss=float("nan"))
        theta, losses = fit(pelts, steps, lambda step, value: progress.update(task, completed=step + 1, loss=value))
    if not console.is_terminal:
        console.print(f"loss {losses[0]:.5f} -> {losses[-1]:.5f} in {steps} steps")

    fitted = [("parameter", "fitted", "unit")]
    for name, value in zip(NAMES, np.exp(theta), strict=True):
        unit = (
            "thousands" if "1900" in name else "1/year" if name in ("hare birth", "lynx death") else "1/(year thousand)"
        )
        fitted.append((name, f"{value:.4f}", unit))

    png = folder / "fit.png"
    _picture(png, years, pelts, theta, losses)
    rows = compare_targets(theta, folder / "model.pt")
    tables = [
        ("Memory of the gradient", memory),
        ("Fitted parameters", fitted),
        ("Worst relative difference from XLA in float64", _target_rows(rows)),
    ]
    _page(folder / "index.html", png, tables)
    for title, (head, *lines) in tables:
        table = Table(*head, title=title, title_justify="left")
        for line in lines:
            table.add_row(*line)
        console.print(table)
    written = [p.name for p in (png, folder / "model.pt", folder / "index.html") if p.exists()]
    console.print(f"wrote {', '.join(written)} in {folder}/ ({time.perf_counter() - began:.0f} s)")
    return rows
