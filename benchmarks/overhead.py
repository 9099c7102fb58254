"""What a program pays for going through quabla_jax.compat.lax: tracing and compiling, and the compiled forward pass.

For cond, fori_loop, scan and while_loop, each with a tiny and a large body, both namespaces take turns (the compiled
programs call by call); medians, and their ratio to jax.lax. `trace+compile` is jax.jit(f).lower(x).compile() of a
fresh function, `gradient` the same of its gradient (while_loop: of its jvp), `run` the compiled forward pass.

    python benchmarks/overhead.py [--rounds N] [--json FILE]

Claims: trace+compile of the forward pass at most 1.3, run 1.0. The gradient's row is information: it compiles another
program than jax.lax's.
"""

import argparse
import json
import statistics
import time

import jax
import jax.numpy as jnp

from quabla_jax.compat import lax

SIZES = {"tiny": 1, "large": 40}
LENGTH = 512


def body(depth):
    def apply(c, x):
        for k in range(depth):
            c = jnp.tanh(c * 0.99 + x * (k + 1) / depth) + 0.01 * jnp.sin(c)
        return c

    return apply


def programs(depth):
    """Name -> function of a namespace, giving a fresh function of one array."""
    g = body(depth)
    return {
        "cond": lambda L: lambda x: L.cond(x[0] > 0, lambda x: g(x, 0.5), lambda x: g(x, 0.25), x),
        "fori_loop": lambda L: lambda x: L.fori_loop(0, LENGTH, lambda i, c: g(c, x), x),
        "scan": lambda L: lambda x: L.scan(lambda c, t: (g(c, t), c[0]), x, jnp.linspace(0.0, 1.0, LENGTH))[0],
        "while_loop": lambda L: lambda x: L.while_loop(lambda s: s[0] < LENGTH, lambda s: (s[0] + 1, g(s[1], x)), (0, x))[1],
    }  # fmt: skip


def compile_once(f, x):
    jax.clear_caches()
    start = time.perf_counter()
    compiled = jax.jit(f).lower(x).compile()
    return time.perf_counter() - start, compiled


def run_once(compiled, x):
    start = time.perf_counter()
    jax.block_until_ready(compiled(x))
    return time.perf_counter() - start


def derivative(name, f):
    if name == "while_loop":
        return lambda x: jax.jvp(f, (x,), (x,))
    return jax.grad(lambda x: jnp.sum(f(x)))


def measure(name, make, rounds):
    x = jnp.linspace(0.1, 0.9, 64)
    sides = {"jax.lax": jax.lax, "engine": lax}
    times = {(kind, side): [] for kind in ("trace+compile", "gradient", "run") for side in sides}
    for round_ in range(rounds + 1):
        compiled = {}
        for side, namespace in sides.items():
            seconds, compiled[side] = compile_once(make(namespace), x)
            derived, _ = compile_once(derivative(name, make(namespace)), x)
            if round_:  # the first round warms up the process
                times["trace+compile", side].append(seconds)
                times["gradient", side].append(derived)
        for _ in range(20):
            for side, program in compiled.items():
                times["run", side].append(run_once(program, x))
    return {
        kind: {side: statistics.median(times[kind, side]) for side in sides}
        for kind in ("trace+compile", "gradient", "run")
    }


def main(argv=None):
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rounds", type=int, default=8)
    options.add_argument("--json", metavar="FILE", help="also write the figures to FILE")
    args = options.parse_args(argv)
    records = []
    print(f"{'program':<22}{'what':<16}{'jax.lax ms':>12}{'engine ms':>12}{'ratio':>8}")
    for size, depth in SIZES.items():
        for name, make in programs(depth).items():
            for kind, sides in measure(name, make, args.rounds).items():
                ratio = sides["engine"] / sides["jax.lax"]
                records.append({"program": name, "body": size, "what": kind, "ratio": ratio, **sides})
                print(
                    f"{name + ' ' + size:<22}{kind:<16}{sides['jax.lax'] * 1e3:>12.3f}"
                    f"{sides['engine'] * 1e3:>12.3f}{ratio:>8.2f}"
                )
    if args.json:
        with open(args.json, "w") as file:
            json.dump({"jax": jax.__version__, "rounds": args.rounds, "records": records}, file, indent=1)
    return records


if __name__ == "__main__":
    main()
