"""Reverse mode through while loops of unknown length: time and memory beside equinox's checkpointed loop.

    python benchmarks/while_loops.py [--slots 64] [--levels 4] [--repeats 5] [--quick] [-o docs/while_loops_table.md]

Both sides take the same loop and the same number of carries (slots · levels) and are compiled once; the trip count is an
argument, so one executable serves every row of a loop, and its temporary memory cannot depend on the trip count. The
two run in turn, `repeats` times, short rows more often (until they have run for two seconds, 60 times at most); times are
medians, of the wall clock and, for machines that others use too, of the process's CPU seconds. `temp` is XLA's own account
of temporary memory.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import time
from pathlib import Path

import jax
import jax.numpy as jnp

from quabla_jax.loops import while_loop


def matmul():
    """x - h tanh(W x), 10^3 floats: a loop that counts."""
    w = jax.random.normal(jax.random.key(0), (100, 100)) / 10
    x = jax.random.normal(jax.random.key(1), (100, 10))

    def body(w):
        return lambda s: (s[0] - 1e-3 * jnp.tanh(w @ s[0]), s[1] + 1)

    return body, (lambda s, n: s[1] < n), w, x


def elementwise():
    """x - h tanh(p x), 10^4 floats."""

    def body(p):
        return lambda s: (s[0] - 1e-2 * jnp.tanh(p * s[0]), s[1] + 1)

    return body, (lambda s, n: s[1] < n), jnp.float32(1.1), jnp.linspace(0, 1, 10_000, dtype=jnp.float32)


def residual():
    """Jacobi's iteration on 100 unknowns, stopped by the residual norm (the bound on steps only sets the row)."""
    a = jnp.eye(100) * 2.0 + jax.random.normal(jax.random.key(2), (100, 100)) / 40
    b = jax.random.normal(jax.random.key(3), (100,))

    def body(a):
        return lambda s: (s[0] + (b - a @ s[0]) * 1e-3, s[1] + 1)

    def cond(s, n):
        return (jnp.linalg.norm(b - a @ s[0]) > 1e-12) & (s[1] < n)

    return body, cond, a, jnp.zeros(100)


ROWS = {"matmul": matmul, "elementwise": elementwise, "residual": residual}


def gradient(make, loop):
    """Compiled (parameters, first carry, trip count) -> gradient; seconds to compile."""
    body, cond, parameters, x = make()

    def loss(parameters, x, n):
        out = loop(lambda s: cond(s, n), body(parameters), (x, jnp.int32(0)))
        return jnp.mean(out[0] ** 2)

    begin = time.perf_counter()
    run = jax.jit(jax.grad(loss, (0, 1))).lower(parameters, x, jnp.int32(1)).compile()
    return run, (parameters, x), time.perf_counter() - begin


def equinox_loop(carries):
    import equinox.internal as eqxi

    return lambda cond, body, init: eqxi.while_loop(
        cond, body, init, kind="checkpointed", checkpoints=carries, max_steps=None
    )


def measure(name, trips, carries, repeats):
    """Rows of the table for one loop."""
    sides = {
        "ours": gradient(ROWS[name], lambda c, b, i: while_loop(c, b, i, checkpoint=carries)),
        "equinox": gradient(ROWS[name], equinox_loop(carries)),
    }
    carry_bytes = sides["ours"][1][1].nbytes
    temp = {k: s[0].memory_analysis().temp_size_in_bytes for k, s in sides.items()}
    for n in trips:
        seconds = {k: [] for k in sides}
        cpu = {k: [] for k in sides}
        result = {}
        begun, runs = time.perf_counter(), 0
        while runs < repeats or (runs < 60 and time.perf_counter() - begun < 2):
            runs += 1
            for k, (run, args, _) in sides.items():
                begin, begin_cpu = time.perf_counter(), time.process_time()
                result[k] = jax.block_until_ready(run(*args, jnp.int32(n)))
                seconds[k].append(time.perf_counter() - begin)
                cpu[k].append(time.process_time() - begin_cpu)
        apart = max(
            float(jnp.max(jnp.abs(a - b)) / (jnp.max(jnp.abs(b)) + 1e-30))
            for a, b in zip(jax.tree.leaves(result["ours"]), jax.tree.leaves(result["equinox"]))
        )
        m = {k: statistics.median(v) for k, v in seconds.items()}
        yield dict(
            loop=name,
            steps=n,
            ours_ms=m["ours"] * 1e3,
            equinox_ms=m["equinox"] * 1e3,
            time=m["ours"] / m["equinox"],
            cpu=statistics.median(cpu["ours"]) / statistics.median(cpu["equinox"]),
            temp_carries=temp["ours"] / carry_bytes,
            temp=temp["ours"] / temp["equinox"],
            compile=sides["ours"][2] / sides["equinox"][2],
            apart=apart,
            runs=runs,
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--slots", type=int, default=64)
    parser.add_argument("--levels", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--trips", type=int, nargs="*", help="trip counts instead of the usual ones")
    parser.add_argument("--quick", action="store_true", help="two trip counts a loop")
    parser.add_argument("-o", "--output", type=Path)
    args = parser.parse_args()
    trips = [64, 1024] if args.quick else [64, 256, 1024, 4096, 16384, 65536]
    trips = args.trips or trips
    carries = args.slots * args.levels
    lines = [
        f"# while_loop: {args.slots} slots on {args.levels} levels against equinox with {carries} checkpoints",
        "",
        f"{platform.processor() or platform.machine()}, {jax.devices()[0].platform}, jax {jax.__version__}; gradient, float32, "
        "medians of interleaved runs. Ratios are ours over equinox's.",
        "",
        "| loop | steps | runs | ours, ms | equinox, ms | time | CPU time | temp, carries | temp | compile | relative difference |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    print("\n".join(lines), flush=True)
    ratios, cpu_ratios = [], []
    for name in ROWS:
        for row in measure(name, trips, carries, args.repeats):
            ratios.append(row["time"])
            cpu_ratios.append(row["cpu"])
            lines.append(
                "| {loop} | {steps} | {runs} | {ours_ms:.2f} | {equinox_ms:.2f} | {time:.2f} | {cpu:.2f} | {temp_carries:.0f} | {temp:.2f} | "
                "{compile:.2f} | {apart:.0e} |".format(**row)
            )
            print(lines[-1], flush=True)
    lines += [
        "",
        f"Wall time ratio: geometric mean {statistics.geometric_mean(ratios):.2f}, worst {max(ratios):.2f}. "
        f"CPU time: {statistics.geometric_mean(cpu_ratios):.2f}, worst {max(cpu_ratios):.2f}.",
        "",
        f"Machine: {os.cpu_count()} cores; load average {os.getloadavg()[0]:.0f} when this ended. Where others use the machine, "
        "wall times of short rows are noise and CPU times are not.",
    ]
    print("\n".join(lines[-4:]))
    if args.output:
        args.output.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
