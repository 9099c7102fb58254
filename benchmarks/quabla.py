"""How fast are programs written for Quabla here, against quabla's own CPU backend, in one run?

The claim: forward value, gradient and Hessian of twelve and more programs, after compilation, are at least ten times
faster in the geometric mean. The first call, which compiles, is stated beside it. Both libraries run in this process,
on one thread (quabla's backend has no more), in turns, so that load on the machine meets both alike; a cell is the
fastest call of all turns.

    python benchmarks/quabla.py [--rounds 5] [--only NAME] [--seconds 0.2]
"""

import argparse
import math
import os
import pathlib
import statistics
import sys
import time

os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
os.environ["OPENBLAS_NUM_THREADS"] = "1"

import jax  # noqa: E402

jax.config.update("jax_enable_x64", True)
# A call runs in the calling thread, as quabla's does; otherwise a busy machine adds its time slices to ours.
jax.config.update("jax_cpu_enable_async_dispatch", False)
# This file has the name of the package that it measures: its own folder must not be searched.
sys.path[:] = [
    entry for entry in sys.path if pathlib.Path(entry or ".").resolve() != pathlib.Path(__file__).parent.resolve()
]
sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "tests"))

import quabla_programs  # noqa: E402

# Sizes that a user would meet: hundreds of collocation points, a thousand steps, thousands of samples.
SCALES = {
    "barrier": 400,
    "convection": 8,
    "equilibrium": 8,
    "gaussian_process": 16,
    "heat_pinn": 6,
    "implicit_heat": 8,
    "logistic": 300,
    "lotka_volterra": 10,
    "poisson_pinn": 8,
    "recurrent": 20,
    "rosenbrock_lbfgs": 100,
    "smooth_rule": 1000,
    "softplus_rule": 1000,
}
KINDS = ("forward", "gradient", "hessian")


def ready(result):
    """Waits for a result: JAX returns before it is there."""
    jax.block_until_ready(result)


def prepared(name, package):
    """{kind: a call that runs one program on its starting point} for one library."""
    module = quabla_programs.load(name, package, SCALES.get(name, 1))
    qb, x = module.qb, module.start()
    transforms = {"forward": qb.jit, "gradient": qb.grad, "hessian": qb.hessian}
    return {kind: (lambda f=transforms[kind](module.loss): f(x)) for kind in KINDS}


def one_call(call):
    begin = time.perf_counter()
    ready(call())
    return time.perf_counter() - begin


def fastest(call, seconds):
    """The fastest of the calls that fit into about `seconds`, of three at least."""
    least, end, count = math.inf, time.perf_counter() + seconds, 0
    while count < 3 or time.perf_counter() < end:
        least, count = min(least, one_call(call)), count + 1
    return least


def measure(name, rounds, seconds):
    """{kind: (ours, theirs, our first call, their first call)} in seconds."""
    ours, theirs = prepared(name, "quabla_jax"), prepared(name, "quabla")
    table = {}
    for kind in KINDS:
        pair = (ours[kind], theirs[kind])
        first = [one_call(call) for call in pair]
        turns = [[fastest(call, seconds) for call in pair] for _ in range(rounds)]
        table[kind] = (*map(min, zip(*turns)), *first)
    return table


def mean(ratios):
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.2, help="about how long one turn of one library runs")
    parser.add_argument("--only", default="", help="programs whose name contains this")
    options = parser.parse_args()
    names = [name for name in quabla_programs.NAMES if options.only in name]
    import quabla

    print(
        f"jax {jax.__version__} against quabla {quabla.__version__}; times in microseconds, fastest call of {options.rounds} turns"
    )
    print(f"{'program':18s}{'kind':10s}{'quabla':>11s}{'quabla_jax':>12s}{'faster':>9s}{'first call, s':>22s}")
    ratios = {kind: [] for kind in KINDS}
    firsts = []
    for name in names:
        for kind, (ours, theirs, our_first, their_first) in measure(name, options.rounds, options.seconds).items():
            ratios[kind].append(theirs / ours)
            firsts.append((our_first, their_first))
            print(
                f"{name:18s}{kind:10s}{theirs * 1e6:11.1f}{ours * 1e6:12.1f}{theirs / ours:8.1f}x"
                f"{their_first:11.3f}{our_first:11.3f}",
                flush=True,
            )
    for kind in KINDS:
        print(f"geometric mean, {kind}: {mean(ratios[kind]):.1f}x over {len(names)} programs")
    every = [ratio for kind in KINDS for ratio in ratios[kind]]
    ours, theirs = (statistics.median(column) for column in zip(*firsts))
    print(f"geometric mean of all: {mean(every):.1f}x; median first call {ours:.2f} s here, {theirs:.3f} s in quabla")


if __name__ == "__main__":
    main()
