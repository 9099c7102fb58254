"""Reverse mode through loops: time, compile time and memory against plain jax.lax.scan and other checkpointing loops.

    python benchmarks/loops.py                      # every row; prints the table, saves docs/loops_benchmark.json
    python benchmarks/loops.py --rows 'matmul*' --modes grad --repeats 5   # these rows anew, the others as they were saved
    python benchmarks/loops.py --memory             # growth of temporary memory with T at orders 1, 2 and 3
    python benchmarks/loops.py --million            # a million steps under Budget("200MB"), in fresh processes
    python benchmarks/loops.py --plot               # draws docs/loops_benchmark.png from the saved table
    python benchmarks/loops.py --summary            # the saved table, one line a row, and the bars that it is held to

Within a row all programs are compiled first and then timed in turn, so that what slows the machine slows them alike;
a cell is the ratio of medians to plain scan in the same row. Compile times, tracing and lowering included, are medians of
three rounds without caches, in turn as well. Temporary bytes are XLA's own (memory_analysis).
"""

from __future__ import annotations

import argparse
import dataclasses
import fnmatch
import json
import math
import pathlib
import platform
import random
import re
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from quabla_jax import loops
from quabla_jax.loops import region
from quabla_jax.loops.plan import Budget, Forced

DOCS = pathlib.Path(__file__).resolve().parent.parent / "docs"
FILE = DOCS / "loops_benchmark.json"


# ---- the loops compared: f(carry) -> carry, T times


def plain(f, x, T):
    return lax.scan(lambda x, _: (f(x), None), x, None, length=T)[0]


def checkpointed_body(f, x, T):
    return plain(jax.checkpoint(f), x, T)


def nested_checkpoint(f, x, T):
    """Two levels of jax.checkpoint(scan), the usual recipe by hand."""
    block = math.isqrt(T)
    x = plain(jax.checkpoint(lambda x: plain(f, x, block)), x, T // block)
    return plain(f, x, T % block) if T % block else x


def engine(checkpoint):
    return lambda f, x, T: loops.scan(lambda x, _: (f(x), None), x, None, T, checkpoint=checkpoint)[0]


def sqrt_by(inner):
    return lambda f, x, T: engine(Forced((math.isqrt(T),), inner))(f, x, T)


def equinox_scan(f, x, T):
    import equinox.internal as eqxi

    # as many carries as the engine's "sqrt" holds
    return eqxi.scan(lambda x, _: (f(x), None), x, None, length=T, kind="checkpointed", checkpoints=2 * math.isqrt(T))[
        0
    ]


LOOPS: dict[str, Callable] = {
    "scan": plain,
    "auto": engine("auto"),
    "sqrt": engine("sqrt"),
    "sqrt, recompute": sqrt_by("carry"),
    "sqrt, residuals": sqrt_by("residuals"),
    "scan of checkpoint": checkpointed_body,
    "nested checkpoint": nested_checkpoint,
    "equinox": equinox_scan,
}


# ---- bodies: (step(params, carry), params, carry)


def normal(seed, *shape):
    return jax.random.normal(jax.random.key(seed), shape, "float32")


def matmul(columns):
    W = normal(0, 100, 100) / 10
    return lambda W, X: X - 1e-3 * jnp.tanh(W @ X), W, normal(1, 100, columns)


def dense():
    W = normal(0, 512, 512) / 22
    return lambda W, X: jnp.tanh(W @ X), W, normal(1, 512, 64)


def elementwise(n):
    return lambda p, x: x - 1e-3 * jnp.tanh(p * x), jnp.float32(1.3), jnp.linspace(0.1, 1, n, dtype="float32")


def lstm():
    n, batch = 64, 8
    W = normal(0, 4 * n, n) / 8

    def step(W, c):
        h, s = c
        i, f, g, o = jnp.split(W @ h, 4)
        s = jax.nn.sigmoid(f) * s + jax.nn.sigmoid(i) * jnp.tanh(g)
        return jax.nn.sigmoid(o) * jnp.tanh(s), s

    return step, W, (normal(1, n, batch), normal(2, n, batch))


def lorenz96():
    def rate(F, x):
        return (jnp.roll(x, -1) - jnp.roll(x, 2)) * jnp.roll(x, 1) - x + F

    def step(F, x, h=0.01):
        a = rate(F, x)
        b = rate(F, x + h / 2 * a)
        c = rate(F, x + h / 2 * b)
        d = rate(F, x + h * c)
        return x + h / 6 * (a + 2 * b + 2 * c + d)

    return step, jnp.float32(8.0), 8 + 0.01 * normal(0, 400)


ROWS: dict[str, tuple[Callable, int]] = {
    "matmul 1e3": (lambda: matmul(10), 4096),
    "matmul 1e3, T=256": (lambda: matmul(10), 256),
    "matmul 1e3, T=65536": (lambda: matmul(10), 65536),
    "matmul 1e5, T=256": (lambda: matmul(1000), 256),
    "matmul 1e5": (lambda: matmul(1000), 4096),
    "dense": (dense, 512),
    "elementwise 1e4": (lambda: elementwise(10_000), 4096),
    "lstm": (lstm, 4096),
    "lorenz96": (lorenz96, 4096),
}


def loss(loop, step, T):
    def f(params, x):
        x = loop(lambda x: step(params, x), x, T)
        return sum(jnp.mean(v**2) for v in jax.tree.leaves(x))

    return f


def forward_over_reverse(f):
    return lambda p, x: jax.jvp(jax.grad(f, (0, 1)), (p, x), (p, x))[1]


MODES: dict[str, Callable] = {
    "grad": lambda f: jax.grad(f, (0, 1)),
    "jvp": lambda f: lambda p, x: jax.jvp(f, (p, x), (p, x))[1],
    "hvp": forward_over_reverse,
}
CELLS = {  # which loops run in which mode; equinox has no forward mode
    "grad": list(LOOPS),
    "jvp": ["scan", "auto", "sqrt"],
    "hvp": ["scan", "auto", "sqrt", "nested checkpoint"],
}


@dataclasses.dataclass
class Cell:
    row: str
    mode: str
    loop: str
    seconds: float = math.nan
    compile_seconds: float = math.nan
    temp_bytes: int = 0
    error: float = math.nan
    failure: str = ""


def relative_error(got, want):
    pairs = zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True)
    return max(float(jnp.max(jnp.abs(a - b)) / (1e-30 + jnp.max(jnp.abs(b)))) for a, b in pairs)


def compiled(loop: str, mode: str, step, T: int, args) -> Any:
    """The program of a row from nothing: no cache of JAX's or the engine's holds any part of it."""
    jax.clear_caches()
    region.forget_bodies()
    return jax.jit(MODES[mode](loss(LOOPS[loop], lambda p, x: step(p, x), T))).lower(*args).compile()


def run_row(name: str, mode: str, repeats: int, rounds: int) -> list[Cell]:
    make, T = ROWS[name]
    step, *args = make()
    cells = {loop: Cell(name, mode, loop) for loop in CELLS[mode]}
    programs: dict[str, Any] = {}
    compile_times: dict[str, list[float]] = {k: [] for k in cells}
    for _ in range(rounds):
        for loop in cells:
            if cells[loop].failure:
                continue
            try:
                start = time.perf_counter()
                programs[loop] = compiled(loop, mode, step, T, args)
                compile_times[loop].append(time.perf_counter() - start)
            except Exception as e:  # a loop that cannot do the mode is a cell of the table, with its reason
                cells[loop].failure = f"{type(e).__name__}: {str(e).splitlines()[0][:80]}"
    wanted = None
    for loop, program in programs.items():
        got = jax.block_until_ready(program(*args))
        wanted = got if wanted is None else wanted
        cells[loop].error = relative_error(got, wanted)
    times = interleaved(programs, args, repeats)
    for loop, program in programs.items():
        cell = cells[loop]
        cell.compile_seconds = statistics.median(compile_times[loop])
        cell.temp_bytes = program.memory_analysis().temp_size_in_bytes
        cell.seconds = statistics.median(times[loop])
    return list(cells.values())


def interleaved(programs: dict[str, Callable], args, repeats: int) -> dict[str, list[float]]:
    """Times of `repeats` rounds, each in an order of its own: what runs behind a program of gigabytes finds cold memory."""
    times: dict[str, list[float]] = {k: [] for k in programs}
    for turn in range(repeats):
        for k in random.Random(turn).sample(list(programs), len(programs)):
            start = time.perf_counter()
            jax.block_until_ready(programs[k](*args))
            times[k].append(time.perf_counter() - start)
    return times


def run_eager(repeats: int) -> list[Cell]:
    """grad called again and again outside jit, the body a new function object at every call."""
    step, params, x = matmul(10)
    names = ["scan", "auto", "sqrt"]
    fs = {k: jax.grad(loss(LOOPS[k], step, 4096), (0, 1)) for k in names}
    times: dict[str, list[float]] = {k: [] for k in names}
    for _ in range(repeats + 1):
        for k, f in fs.items():
            start = time.perf_counter()
            jax.block_until_ready(f(params, x))
            times[k].append(time.perf_counter() - start)
    return [Cell("matmul 1e3", "eager grad", k, statistics.median(times[k][1:])) for k in names]


def run_while(repeats: int) -> list[Cell]:
    """A relaxation that stops on its residual; the trip count is known only at the end."""
    A = normal(0, 64, 64) / 8
    b = normal(1, 64)

    def solve(loop):
        def f(p):
            cond = lambda s: jnp.max(jnp.abs(s[0] - s[1])) > 1e-6
            body = lambda s: (s[0] - 0.02 * (s[0] + 0.3 * jnp.tanh(A @ s[0]) - p * b), s[0])
            return jnp.sum(loop(cond, body, (jnp.zeros(64), jnp.ones(64)))[0] ** 2)

        return f

    def equinox(cond, body, init):
        import equinox.internal as eqxi

        return eqxi.while_loop(cond, body, init, kind="checkpointed", checkpoints=256)

    kinds = {
        "equinox, 256 slots": equinox,
        "auto (64 slots, 4 levels)": lambda *a: loops.while_loop(*a, checkpoint="auto"),
    }
    cells, programs = [], {}
    for k, loop in kinds.items():
        start = time.perf_counter()
        program = jax.jit(jax.grad(solve(loop))).lower(jnp.float32(1.0)).compile()
        cells.append(Cell("while", "grad", k, compile_seconds=time.perf_counter() - start))
        cells[-1].temp_bytes = program.memory_analysis().temp_size_in_bytes
        programs[k] = program
    wanted = next(iter(programs.values()))(jnp.float32(1.0))
    times: dict[str, list[float]] = {k: [] for k in programs}
    for _ in range(repeats):
        for k, program in programs.items():
            start = time.perf_counter()
            jax.block_until_ready(program(jnp.float32(1.0)))
            times[k].append(time.perf_counter() - start)
    for cell in cells:
        cell.seconds = statistics.median(times[cell.loop])
        cell.error = relative_error(programs[cell.loop](jnp.float32(1.0)), wanted)
    return cells


# ---- tables


def table(cells: list[Cell]) -> str:
    lines = [
        "row | mode | loop | time | of scan | compile | of scan | temporary | error",
        "---|---|---|--:|--:|--:|--:|--:|--:",
    ]
    for c in cells:
        same = [d for d in cells if (d.row, d.mode) == (c.row, c.mode)]
        base = next((d for d in same if d.loop == "scan"), same[0])
        if c.failure:
            lines.append(f"{c.row} | {c.mode} | {c.loop} | {c.failure} | | | | |")
            continue
        lines.append(
            f"{c.row} | {c.mode} | {c.loop} | {c.seconds * 1e3:.1f} ms | {c.seconds / base.seconds:.2f} | "
            f"{c.compile_seconds:.2f} s | {c.compile_seconds / base.compile_seconds:.2f} | {c.temp_bytes / 1e6:.2f} MB | "
            f"{c.error:.0e}"
        )
    return "\n".join(lines)


def machine_text() -> str:
    return (
        f"{platform.processor() or platform.machine()}, {platform.system()}, jax {jax.__version__}, {jax.devices()[0]}"
    )


def memory_table(lengths=(256, 4096, 65536), n=1000) -> str:
    """Temporary carries of "sqrt" and of plain scan at orders 1 to 3, and the growth exponent between the ends."""
    lines = [
        "loop | order | " + " | ".join(f"T={T}" for T in lengths) + " | exponent",
        "---|--:|" + "--:|" * (len(lengths) + 1),
    ]
    for name in ("sqrt", "nested checkpoint", "scan"):
        for order in (1, 2, 3):
            sizes = []
            for T in lengths:
                step = lambda p, x: x - 0.01 * jnp.tanh(p * x)
                f = lambda p: loss(LOOPS[name], step, T)(p, jnp.linspace(0.0, 1.0, n, dtype="float32") * p)
                for _ in range(order):
                    f = jax.grad(f)
                compiled = jax.jit(f).lower(jnp.float32(1.3)).compile()
                sizes.append(compiled.memory_analysis().temp_size_in_bytes / (4 * n))
            exponent = math.log(sizes[-1] / sizes[0]) / math.log(lengths[-1] / lengths[0])
            cells = " | ".join(f"{s:.0f}" for s in sizes)
            lines.append(f"{name} | {order} | {cells} | {exponent:.3f}")
    return "\n".join(lines)


def peak_bytes() -> int:
    """The most memory this program held. Linux's ru_maxrss also counts the process that started it."""
    if sys.platform.startswith("linux"):
        found = re.search(r"VmHWM:\s+(\d+)", pathlib.Path("/proc/self/status").read_text())
        return int(found[1]) * 1024 if found else 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # bytes on macOS


def million_child(T: int) -> None:
    step, p, x = elementwise(10_000)
    f = jax.jit(jax.grad(loss(engine(Budget("200MB")), step, T)))
    compiled = f.lower(p, x).compile()
    before = peak_bytes()
    start = time.perf_counter()
    jax.block_until_ready(compiled(p, x))
    seconds = time.perf_counter() - start
    grown = peak_bytes() - before
    print(json.dumps(dict(T=T, microseconds_a_step=seconds / T * 1e6, peak_rss_growth_MB=grown / 1e6)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default="*")
    parser.add_argument("--modes", default="grad,jvp,hvp,eager,while")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--rounds", type=int, default=3, help="compilations of every program")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--million", action="store_true")
    parser.add_argument("--plot", action="store_true")
    parser.add_argument("--summary", action="store_true")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    parser.add_argument("-o", "--output", type=pathlib.Path, default=FILE)
    args = parser.parse_args()
    if args.child:
        million_child(args.child)
    elif args.million:
        for T in (10_000, 1_000_000):
            subprocess.run([sys.executable, __file__, "--child", str(T)], check=True)
    elif args.memory:
        print(memory_table())
    elif args.plot:
        plot(args.output)
    elif args.summary:
        print(summary(args.output))
    else:
        measure(args)


def measure(args: Any) -> None:
    print(machine_text(), flush=True)
    modes, cells = args.modes.split(","), []
    for mode in [m for m in MODES if m in modes]:
        for row in fnmatch.filter(ROWS, args.rows):
            if mode == "hvp" and row in ("matmul 1e3, T=65536", "matmul 1e5"):
                continue  # the full tape of plain scan's second order does not fit
            cells += run_row(row, mode, args.repeats, args.rounds)
            print(table([c for c in cells if (c.row, c.mode) == (row, mode)]), flush=True)
    if "eager" in modes:
        cells += run_eager(args.repeats)
    if "while" in modes:
        cells += run_while(args.repeats)
    print(table(cells))
    anew = {(c.row, c.mode) for c in cells}
    before = json.loads(args.output.read_text())["cells"] if args.output.exists() else []
    kept = [c for c in before if (c["row"], c["mode"]) not in anew]
    saved = dict(machine=machine_text(), cells=kept + [dataclasses.asdict(c) for c in cells])
    args.output.write_text(json.dumps(saved, indent=1))


def summary(source: pathlib.Path) -> str:
    """Ratios to plain scan, a row of a benchmark a line: time and memory of every loop, and what they compiled in."""
    cells = [Cell(**c) for c in json.loads(source.read_text())["cells"]]
    lines = []
    for mode, loops_of_mode in CELLS.items():
        at = {(c.row, c.loop): c for c in cells if c.mode == mode and not c.failure}
        rows = [r for r in ROWS if (r, "scan") in at]
        lines += [f"| body ({mode}) | " + " | ".join(loops_of_mode) + " |", "|---|" + "--:|" * len(loops_of_mode)]
        for row in rows:
            base = at[row, "scan"]
            texts = [
                f"{c.seconds / base.seconds:.2f}, {c.temp_bytes / 1e6:.1f} MB" if c else ""
                for c in (at.get((row, loop)) for loop in loops_of_mode)
            ]
            lines.append(f"| {row} | " + " | ".join(texts) + " |")
        ratios = lambda loop, at=at, rows=rows: [
            f"{at[r, loop].compile_seconds / at[r, 'scan'].compile_seconds:.2f}" for r in rows if (r, loop) in at
        ]
        lines += [f"compiled in: {loop} {', '.join(ratios(loop))}" for loop in loops_of_mode[1:]] + [""]
    return "\n".join([*lines, *bars(cells)])


def bars(cells: list[Cell]) -> list[str]:
    """How near "auto" comes to the best plan, and the engine to equinox's loop at no more memory, row by row."""
    at = {(c.row, c.loop): c for c in cells if c.mode == "grad" and not c.failure}
    rows = [r for r in ROWS if (r, "scan") in at]
    plans = ("scan", "sqrt, recompute", "sqrt, residuals")
    of_best = {r: at[r, "auto"].seconds / min(at[r, k].seconds for k in plans) for r in rows}
    lines = ["auto of the best plan: " + ", ".join(f"{r} {v:.2f}" for r, v in of_best.items())]
    against = {}
    for r in [r for r in rows if (r, "equinox") in at]:
        ours = [at[r, k] for k in LOOPS if k != "scan" and k.startswith(("auto", "sqrt"))]
        fitting = [c.seconds for c in ours if c.temp_bytes <= at[r, "equinox"].temp_bytes]
        against[r] = min(fitting) / at[r, "equinox"].seconds if fitting else math.nan
    lines.append("of equinox, at no more memory: " + ", ".join(f"{r} {v:.2f}" for r, v in against.items()))
    mean = statistics.geometric_mean([v for v in against.values() if v == v]) if against else math.nan
    return [*lines, f"geometric mean {mean:.2f}"]


def plot(source: pathlib.Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    cells = [Cell(**c) for c in json.loads(source.read_text())["cells"]]
    grads = [c for c in cells if c.mode == "grad" and not c.failure and c.row in ROWS]
    base = {c.row: c for c in grads if c.loop == "scan"}
    figure, axes = plt.subplots(figsize=(7, 5))
    for k, loop in enumerate(LOOPS):
        points = [c for c in grads if c.loop == loop and c.row in base]
        axes.loglog(
            [c.temp_bytes / base[c.row].temp_bytes for c in points],
            [c.seconds / base[c.row].seconds for c in points],
            "osD^v<>P"[k % 8],
            label=loop,
            alpha=0.8,
        )
    axes.set_xlabel("temporary memory, of plain scan's")
    axes.set_ylabel("time, of plain scan's")
    axes.set_title("grad through loops: every point a row of the table")
    axes.legend(fontsize=8)
    axes.grid(True, which="both", alpha=0.3)
    figure.tight_layout()
    figure.savefig(source.with_suffix(".png"), dpi=140)


if __name__ == "__main__":
    main()
