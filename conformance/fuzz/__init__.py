"""Random control-flow programs on every backend, and what is wrong made small.

A program is data: nested tuples of steps over a state of several arrays of different dtypes. The same data is run by plain
jax.lax (the oracle) and by every backend under a few transforms; a program that fails is shrunk by taking parts away while
it still fails, and printed as a case that can be pasted into conformance/cases/.

    python -m conformance.fuzz --programs 200 --seed 7 --backend xla --backend mlx
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import time
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp

from . import runner
from .case import CASES, Case, Rand

__all__ = ["generate", "main", "program_of", "shrink", "smaller"]

# Values stay bounded under every one of these, so that long random programs neither overflow nor lose all digits.
UNARY = {
    "sin": jnp.sin,
    "tanh": jnp.tanh,
    "half": lambda x: 0.5 * x,
    "square": lambda x: 0.3 * x * x,
    "shift": lambda x: x + 0.125,
}
BINARY = {
    "add": lambda x, y: 0.5 * (x + y),
    "mul": lambda x, y: 0.7 * x * y,
    "max": lambda x, y: jnp.where(x > y, x, 0.9 * y),
}
FLOATS = ("a", "b", "m")  # scalar, vector [3], matrix [2, 3]
TRANSFORMS = ("jit", "vmap", "grad", "vmap_grad", "hvp", "grad_grad")


def generate(seed: int, size: int = 6) -> tuple:
    """A random program: a tuple of steps. The same seed gives the same program on every machine."""
    return tuple(_steps(random.Random(seed), size, depth=0))


def _steps(r: random.Random, size: int, depth: int) -> Iterator[tuple]:
    for _ in range(r.randint(1, size)):
        yield _step(r, size, depth)


def _step(r: random.Random, size: int, depth: int) -> tuple:
    simple = ("unary", "binary", "reduce", "count", "row")
    nested = ("fori", "scan", "while", "cond", "switch")
    kind = r.choice(simple + (nested * 2 if depth < 3 else ()))
    inner = lambda: tuple(_steps(r, max(1, size // 2), depth + 1))
    if kind == "unary":
        return ("unary", r.choice(sorted(UNARY)), r.choice(FLOATS))
    if kind == "binary":
        return ("binary", r.choice(sorted(BINARY)), r.choice(FLOATS))
    if kind in ("reduce", "count", "row"):
        return (kind, r.randint(0, 5))
    if kind == "fori":
        return ("fori", r.choice([0, 1, 2, 3, 5]), r.choice(["auto", "sqrt", 2]), inner())
    if kind == "scan":
        return ("scan", r.choice([1, 2, 4]), r.random() < 0.5, inner())
    if kind == "while":
        return ("while", r.randint(0, 4), inner())
    if kind == "cond":
        return ("cond", r.choice(FLOATS), r.choice([-0.2, 0.0, 0.3]), inner(), inner())
    return ("switch", r.randint(-1, 4), tuple(inner() for _ in range(r.randint(1, 3))))


# ---- meaning. State: a (), b [3], m [2, 3] floats; n an int32 counter that steers and is never differentiated.


def _run(lax: Any, steps: tuple, state: dict, own: bool) -> dict:
    for step in steps:
        state = _MEANING[step[0]](lax, step, state, own)
    return state


def _unary(lax, step, s, own):
    return {**s, step[2]: UNARY[step[1]](s[step[2]])}


def _binary(lax, step, s, own):
    other = {"a": s["b"].mean(), "b": s["m"][0] + s["a"], "m": s["b"] * s["a"] + s["m"]}[step[2]]
    return {**s, step[2]: BINARY[step[1]](s[step[2]], other)}


def _reduce(lax, step, s, own):
    return {**s, "a": (s["a"] + s["m"].mean() + jnp.tanh(s["b"].sum())) / 3}


def _count(lax, step, s, own):
    return {**s, "n": s["n"] * 5 + step[1]}


def _row(lax, step, s, own):
    i = jnp.mod(s["n"] + step[1], 2)
    return {**s, "m": s["m"].at[i].set(jnp.sin(s["m"][1 - i]) + 0.1 * s["b"])}


def _fori(lax, step, s, own):
    keep = {"checkpoint": step[2]} if own else {}
    return lax.fori_loop(0, step[1], lambda i, s: _run(lax, step[3], {**s, "n": s["n"] + i}, own), s, **keep)


def _scan(lax, step, s, own):
    def body(s, x):
        s = _run(lax, step[3], {**s, "a": 0.8 * s["a"] + 0.1 * x}, own)
        return s, s["b"] * x

    xs = jnp.linspace(-1.0, 1.0, step[1]).astype(s["a"].dtype) * s["a"]
    s, ys = lax.scan(body, s, xs, reverse=step[2])
    return {**s, "b": 0.5 * s["b"] + 0.5 * jnp.tanh(ys.sum(0))}


def _while(lax, step, s, own):
    """A trip count that the data decides (the sign of a), at most 8."""
    goal = jnp.where(s["a"] > 0, step[1], step[1] // 2)

    def body(c):
        return c[0] + 1, _run(lax, step[2], c[1], own)

    if own:
        return lax.while_loop(lambda c: c[0] < goal, body, (jnp.int32(0), s), checkpoint=3)[1]
    # Reverse mode needs a bounded form in plain jax.lax: the same trips, guarded.
    masked = lambda i, c: lax.cond(c[0] < goal, body, lambda c: c, c)
    return lax.fori_loop(0, step[1], masked, (jnp.int32(0), s))[1]


def _cond(lax, step, s, own):
    predicate = s[step[1]].mean() > step[2]
    return lax.cond(predicate, lambda s: _run(lax, step[3], s, own), lambda s: _run(lax, step[4], s, own), s)


def _switch(lax, step, s, own):
    index = jnp.mod(s["n"], 5) - 1 + step[1] // 4
    return lax.switch(index, [lambda s, b=b: _run(lax, b, s, own) for b in step[2]], s)


_MEANING = {
    "unary": _unary, "binary": _binary, "reduce": _reduce, "count": _count, "row": _row, "fori": _fori, "scan": _scan,
    "while": _while, "cond": _cond, "switch": _switch,
}  # fmt: skip

INPUTS = (Rand((), -0.9, 0.9), Rand((3,), -0.9, 0.9), Rand((2, 3), -0.9, 0.9))


def program_of(steps: tuple, own: bool = True) -> Any:
    """The function (lax, a, b, m) -> (a, b, m, n). own: use the engine's keywords (checkpoint=)."""

    def program(lax: Any, a: Any, b: Any, m: Any) -> tuple:
        out = _run(lax, steps, {"a": a, "b": b, "m": m, "n": jnp.int32(2)}, own)
        return out["a"], out["b"], out["m"], out["n"]

    return program


def case_of(steps: tuple, name: str) -> Case:
    return Case(
        name, program_of(steps), INPUTS, reference=program_of(steps, own=False), transforms=TRANSFORMS,
        dtypes=("float64",), ulp=1e5,
    )  # fmt: skip


# ---- shrinking


def smaller(steps: tuple) -> Iterator[tuple]:
    """Programs with something taken away, the largest cuts first."""
    for k in range(len(steps)):
        if len(steps) > 1:
            yield steps[:k] + steps[k + 1 :]
    for k, step in enumerate(steps):
        before, after = steps[:k], steps[k + 1 :]
        for inner in _bodies(step):
            yield (*before, *inner, *after)
        for less in _reduced(step):
            yield (*before, less, *after)


def _bodies(step: tuple) -> list[tuple]:
    return {
        "fori": lambda: [step[3]], "scan": lambda: [step[3]], "while": lambda: [step[2]], "cond": lambda: [step[3], step[4]],
        "switch": lambda: list(step[2]),
    }.get(step[0], lambda: [])()  # fmt: skip


def _reduced(step: tuple) -> Iterator[tuple]:
    kind = step[0]
    if kind in ("fori", "scan", "while") and step[1] > 1:
        yield (kind, step[1] - 1, *step[2:])
    where = {"fori": (3,), "scan": (3,), "while": (2,), "cond": (3, 4)}.get(kind, ())
    for position in where:
        for body in smaller(step[position]):
            yield (*step[:position], body, *step[position + 1 :])
    if kind == "switch":
        for k, branch in enumerate(step[2]):
            if len(step[2]) > 1:
                yield ("switch", step[1], step[2][:k] + step[2][k + 1 :])
            for body in smaller(branch):
                yield ("switch", step[1], (*step[2][:k], body, *step[2][k + 1 :]))


def shrink(steps: tuple, fails: Any, tries: int = 200) -> tuple:
    """The smallest program found that still fails."""
    left = tries
    again = True
    while again and left > 0:
        again = False
        for candidate in itertools.islice(smaller(steps), left):
            left -= 1
            if fails(candidate):
                steps, again = candidate, True
                break
    return steps


# ---- running


def check(steps: tuple, backend: str, transform: str) -> runner.Record:
    """One program on one backend under one transform."""
    name = "fuzz/current"
    CASES[name] = case_of(steps, name)
    try:
        return runner.run_cell(runner.Cell(name, backend, transform, "float64"))
    finally:
        del CASES[name]
        runner._REFERENCES._memo.clear()


def as_case(steps: tuple, backend: str, transform: str, seed: int) -> str:
    """A case to paste into conformance/cases/fuzz_finds.py."""
    return f'register(case_of({steps!r}, "fuzz/seed-{seed}"))  # failed on {backend} under {transform}'


def main(argv: list[str] | None = None) -> int:
    """Exit status 1 where a program fails."""
    p = argparse.ArgumentParser(prog="python -m conformance.fuzz", description=__doc__.splitlines()[0])
    p.add_argument("--programs", type=int, default=100)
    p.add_argument("--seed", type=int, default=0, help="number of the first program")
    p.add_argument("--backend", action="append", help="repeatable; default: xla, compat, numpy")
    p.add_argument("--transforms", default=",".join(TRANSFORMS))
    p.add_argument("--seconds", type=float, default=0, help="stop after this long (0: never)")
    args = p.parse_args(argv)
    jax.config.update("jax_enable_x64", True)
    names, transforms = args.backend or ["xla", "compat", "numpy"], args.transforms.split(",")
    began, ran, cells, finds = time.monotonic(), 0, 0, []
    for seed in range(args.seed, args.seed + args.programs):
        if args.seconds and time.monotonic() - began > args.seconds:
            break
        steps, ran = generate(seed), ran + 1
        for backend in names:
            # One transform a program and backend: over the programs every pair comes up.
            transform = transforms[(seed + names.index(backend)) % len(transforms)]
            cells += 1
            record = check(steps, backend, transform)
            if record.outcome == "pass":
                continue
            fails = lambda s, b=backend, t=transform: check(s, b, t).outcome != "pass"
            small = shrink(steps, fails, tries=60)
            print(
                f"{record.outcome}: {record.message[:200]}\n  {as_case(small, backend, transform, seed)}",
                flush=True,
            )
            finds.append(seed)
    print(
        f"{ran} programs, {cells} cells on {', '.join(names)}: {len(finds)} finds in {time.monotonic() - began:.0f} s"
    )
    return 1 if finds else 0


if __name__ == "__main__":
    sys.exit(main())
