"""Random programs as data, and what the data means.

A program is nested tuples of steps over a state of arrays: a (), b [3], m [2, 3] in the cell's dtype, f [2] in float32, n an
int32 counter, u a uint32 hash and k a bool. The integers and the bool steer and are never differentiated; f takes from the
others and nothing takes from it, so that single precision never decides a branch. The same data is run by plain jax.lax and
by the engine.
"""

from __future__ import annotations

import random
from typing import Any

import jax
import jax.numpy as jnp

from ..case import Case, Exact, Rand

__all__ = ["TRANSFORMS", "bodies", "case_of", "generate", "program_of", "size_of", "uses_float32"]

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
FLOATS = ("a", "b", "m")
SIMPLE = ("unary", "binary", "reduce", "count", "row", "hash", "flag", "single")
NESTED = ("fori", "scan", "while", "cond", "switch", "rows", "remat", "if", "index")
TRANSFORMS = (
    "jit", "vmap", "jvp", "vmap_jvp", "jvp_jvp", "grad", "vmap_grad", "grad_vmap", "grad_jvp", "hvp", "vmap_hvp", "grad_grad",
)  # fmt: skip


def generate(seed: int, steps: int = 10, depth: int = 4) -> tuple:
    """A random program of at most `steps` steps, nested at most `depth` deep. The same seed gives the same program on every
    machine; a quarter of them have no single precision in them, and are held to the tighter bar."""
    r = random.Random(seed)
    return _body(r, _Budget(r.randint(2, steps)), depth)


class _Budget:
    def __init__(self, left: int):
        self.left = left


def _body(r: random.Random, budget: _Budget, depth: int) -> tuple:
    """At least one step; a region deep inside gets what is left."""
    made = [_step(r, budget, depth)]
    while budget.left > 0 and r.random() < 0.6:
        made.append(_step(r, budget, depth))
    return tuple(made)


def _step(r: random.Random, budget: _Budget, depth: int) -> tuple:
    budget.left -= 1
    nested = budget.left > 0 and depth > 0 and r.random() < 0.65
    kind = r.choice(NESTED if nested else SIMPLE)
    inner = lambda: _body(r, budget, depth - 1)
    if kind in ("unary", "binary"):
        return (kind, r.choice(sorted(UNARY if kind == "unary" else BINARY)), r.choice(FLOATS))
    if kind in SIMPLE:
        return (kind, r.randint(0, 5))
    if kind == "fori":
        return ("fori", r.choice([0, 1, 2, 3, 5]), r.choice(["auto", "sqrt", "full", 2]), inner())
    if kind == "scan":
        return ("scan", r.choice([1, 2, 4]), r.random() < 0.5, inner())
    if kind == "while":
        return ("while", r.randint(0, 4), inner())
    if kind == "cond":
        return ("cond", r.choice(FLOATS), r.choice([-0.2, 0.0, 0.3]), inner(), inner())
    if kind == "switch":
        return ("switch", r.randint(-1, 4), tuple(inner() for _ in range(r.randint(1, 3))))
    if kind == "if":
        return ("if", inner())
    return (kind, inner())


# ---- meaning


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


def _hash(lax, step, s, own):
    """Bits that wrap, and that choose an element."""
    u = s["u"] * jnp.uint32(1664525) + jnp.uint32(1013904223 + step[1])
    picked = s["b"][(u >> 16) % jnp.uint32(3)]
    return {**s, "u": u, "a": 0.9 * s["a"] + 0.1 * picked}


def _flag(lax, step, s, own):
    return {
        **s,
        "k": jnp.logical_xor(s["k"], s["a"] > 0.1 * step[1] - 0.3),
        "a": jnp.where(s["k"], s["a"], 0.8 * s["a"]),
    }


def _single(lax, step, s, own):
    return {
        **s,
        "f": 0.5 * s["f"] + 0.25 * jnp.sin(s["a"].astype(jnp.float32) + s["b"][:2].astype(jnp.float32) * s["f"]),
    }


def _fori(lax, step, s, own):
    keep = {"checkpoint": step[2]} if own else {}
    return lax.fori_loop(0, step[1], lambda i, s: _run(lax, step[3], {**s, "n": s["n"] + i}, own), s, **keep)


def _scan(lax, step, s, own):
    """A slice of floats and one of integers in, a row and an integer out, either way round."""

    def body(s, x):
        v, j = x
        s = _run(lax, step[3], {**s, "a": 0.8 * s["a"] + 0.1 * v, "n": s["n"] + j}, own)
        return s, (s["b"] * v, s["n"] % 7)

    xs = jnp.linspace(-1.0, 1.0, step[1]).astype(s["a"].dtype) * s["a"]
    s, (ys, ns) = lax.scan(body, s, (xs, jnp.arange(step[1], dtype=jnp.int32)), reverse=step[2])
    return {**s, "b": 0.5 * s["b"] + 0.5 * jnp.tanh(ys.sum(0) + 0.01 * ys[0]), "n": s["n"] + ns[-1]}


def _while(lax, step, s, own):
    """A trip count that the data decides (the sign of a), at most 4."""
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


def _if(lax, step, s, own):
    """One side only, on the carried flag, with everything captured and nothing handed over."""
    return lax.cond(s["k"], lambda: _run(lax, step[1], s, own), lambda: s)


def _switch(lax, step, s, own):
    index = jnp.mod(s["n"], 5) - 1 + step[1] // 4
    return lax.switch(index, [lambda s, b=b: _run(lax, b, s, own) for b in step[2]], s)


def _rows(lax, step, s, own):
    """The steps on each row of m by itself: vmap inside the program, whatever is outside."""
    rows = jax.vmap(lambda b: _run(lax, step[1], {**s, "b": b}, own)["b"])(s["m"])
    return {**s, "m": rows}


def _remat(lax, step, s, own):
    return jax.checkpoint(lambda s: _run(lax, step[1], s, own))(s)


def _index(lax, step, s, own):
    """A while loop on the integers alone decides how many times a counted loop's body is worth anything."""

    def halve(c):
        return c[0] // 2, c[1] + 1

    _, bits = lax.while_loop(lambda c: c[0] > 0, halve, (jnp.mod(s["n"], 8), jnp.int32(0)))

    def body(i, s):
        return lax.cond(i < bits, lambda s: _run(lax, step[1], s, own), lambda s: s, s)

    return lax.fori_loop(0, 3, body, s)


_MEANING = {
    "unary": _unary, "binary": _binary, "reduce": _reduce, "count": _count, "row": _row, "hash": _hash, "flag": _flag,
    "single": _single, "fori": _fori, "scan": _scan, "while": _while, "cond": _cond, "if": _if, "switch": _switch,
    "rows": _rows, "remat": _remat, "index": _index,
}  # fmt: skip

# Which inputs are mapped under vmap: a predicate may be mapped where the carry is not, and the other way round.
MAPPED = ((True, True, True, True), (True, False, False, False), (False, True, True, False), (False, False, True, True))


def program_of(steps: tuple, own: bool = True) -> Any:
    """The function (lax, a, b, m, n) -> (a, b, m, n, u, k), and f at the end where a step works on it. own: use the
    engine's keywords (checkpoint=)."""

    def program(lax: Any, a: Any, b: Any, m: Any, n: Any) -> tuple:
        state = {"a": a, "b": b, "m": m, "n": n, "u": jnp.uint32(77), "k": a > 0.0}
        if uses_float32(steps):
            state["f"] = jnp.asarray([0.25, -0.5], jnp.float32) * a.astype(jnp.float32)
        return tuple(_run(lax, steps, state, own).values())

    return program


def bodies(step: tuple) -> list[tuple]:
    """The programs inside a step."""
    if step[0] == "switch":
        return list(step[2])
    return [part for part in step[1:] if isinstance(part, tuple)]


def uses_float32(steps: tuple) -> bool:
    return any(step[0] == "single" or any(map(uses_float32, bodies(step))) for step in steps)


def size_of(steps: tuple) -> int:
    """How many steps there are, at every depth."""
    return sum(1 + sum(map(size_of, bodies(step))) for step in steps)


def case_of(steps: tuple, name: str, mapped: int = 0, transforms: tuple[str, ...] = TRANSFORMS) -> Case:
    """The program as a case. mapped: which row of MAPPED the inputs follow under vmap. The bar is that of float64 after a
    chain of steps that each lose a little; where single precision flows into the gradient, that of float32."""
    a, b, m, n = MAPPED[mapped]
    inputs = (
        Rand((), -0.9, 0.9, mapped=a),
        Rand((3,), -0.9, 0.9, mapped=b),
        Rand((2, 3), -0.9, 0.9, mapped=m),
        Exact(2, dtype="int32", batch=[2, 5, 0] if n else None),
    )
    return Case(
        name, program_of(steps), inputs, reference=program_of(steps, own=False), transforms=transforms, dtypes=("float64",),
        ulp=2.0**36 if uses_float32(steps) else 1e5,
    )  # fmt: skip
