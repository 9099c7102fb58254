"""Random nests of loops and branches: compiled, differentiated and mapped results against two oracles.

The oracles are the same program with every loop unrolled (plain straight-line JAX), and the real quabla package where it
is installed. Programs are source text, so that both packages run exactly the same thing.
"""

import random

import numpy as np
import pytest

import quabla_jax

LEAVES = ["{c}", "{a}", "0.3", "{c} * {a}", "0.1 * {i}"]
UNARY = ["qb.sin({})", "qb.tanh({})", "qb.cos({}) * 0.5", "qb.square({}) * 0.1", "qb.exp(-qb.square({}))"]


class Writer:
    """Writes one random function of (x, a). Every region takes its values as operands."""

    def __init__(self, seed, flags):
        self.pick = random.Random(seed)
        self.flags = flags
        self.count = 0

    def name(self, stem):
        self.count += 1
        return f"{stem}{self.count}"

    def expression(self, c, a, i, depth):
        if depth == 0:
            return "(" + self.pick.choice(LEAVES).format(c=c, a=a, i=i) + ")"
        kind = self.pick.random()
        if kind < 0.25:
            return self.pick.choice(UNARY).format(self.expression(c, a, i, depth - 1))
        if kind < 0.5:
            operator = self.pick.choice(["+", "*", "-"])
            return f"({self.expression(c, a, i, depth - 1)} {operator} {self.expression(c, a, i, depth - 1)})"
        if kind < 0.6:
            return f"qb.where({c} > 0.4, {self.expression(c, a, i, depth - 1)}, {self.expression(c, a, i, depth - 1)})"
        return self.region(c, a, i, depth)

    def region(self, c, a, i, depth):
        """A loop or branch as an expression; its carry starts at an expression of the values around it."""
        d, b, j = self.name("d"), self.name("b"), self.name("j")
        start = self.expression(c, a, i, 0)
        inside = lambda index: f"(0.2 * {d} + qb.sin({self.expression(d, b, index, depth - 1)}))"
        kind = self.pick.choice(["fori", "scan", "cond"])
        trips = self.pick.randint(1, 3)
        start = f"({start} + 0.0 * {c})"
        if kind == "fori":
            lower = self.pick.randint(0, 2)
            return f"qb.fori_loop({lower}, {lower + trips}, lambda {j}, {d}, {b}: {inside(j)}, {start}, operands=({a},){self.flags})"
        if kind == "scan":
            return (
                f"qb.sum(qb.scan(lambda {d}, {j}, {b}: ({inside(j)}, {self.expression(d, b, j, 0)} + 0.0 * {d}), {start}, "
                f"length={trips}, operands=({a},){self.flags})[1])"
            )
        level = self.pick.choice([-0.2, 0.3, 0.9])
        return f"qb.cond({c} > {level}, lambda {d}, {b}: {inside('1.0')}, lambda {d}, {b}: {d} * {b}, {start}, {a})"

    def function(self):
        return f"lambda x, a: {self.region('x', 'a', '2.0', 3)} + x * a"


MODES = {
    "value": lambda qb, f: f(qb.array(0.7), qb.array(0.6)),
    "jit": lambda qb, f: qb.jit(f)(qb.array(-0.4), qb.array(0.6)),
    "grad": lambda qb, f: qb.grad(f, argnums=(0, 1))(qb.array(0.7), qb.array(0.6)),
    "jvp": lambda qb, f: qb.jvp(f, (qb.array(0.7), qb.array(0.6)), (1.0, -0.5)),
    "hessian": lambda qb, f: qb.hessian(f, argnums=(0, 1))(qb.array(0.7), qb.array(0.6)),
    "vmap(grad)": lambda qb, f: qb.vmap(qb.grad(f, argnums=1), in_axes=(0, None))(
        qb.array([0.7, -0.4, 1.1]), qb.array(0.6)
    ),
    "grad(vmap)": lambda qb, f: qb.grad(lambda a: qb.sum(qb.vmap(f, in_axes=(0, None))(qb.array([0.7, -0.4, 1.1]), a)))(
        qb.array(0.6)
    ),
}


def flat(tree):
    if isinstance(tree, (tuple, list)):
        return [number for part in tree for number in flat(part)]
    return np.ravel(np.asarray(tree.tolist())).tolist()


def program(seed, unroll=False):
    return Writer(seed, ", unroll=True" if unroll else "").function()


@pytest.mark.parametrize(
    "seed", [5, 13, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(40) if seed not in (5, 13))]
)
def test_a_random_program(seed):
    compiled = eval(program(seed), {"qb": quabla_jax})
    unrolled = eval(program(seed, unroll=True), {"qb": quabla_jax})
    try:
        import quabla
    except ImportError:
        quabla = None
    for name, run in MODES.items():
        got = flat(run(quabla_jax, compiled))
        np.testing.assert_allclose(
            got, flat(run(quabla_jax, unrolled)), rtol=1e-10, atol=1e-12, err_msg=f"{name}, unrolled"
        )
        if quabla is not None:
            reference = eval(program(seed), {"qb": quabla})
            np.testing.assert_allclose(
                got, flat(run(quabla, reference)), rtol=1e-10, atol=1e-12, err_msg=f"{name}, quabla"
            )


def test_the_programs_hold_every_kind_of_region():
    text = "".join(program(seed) for seed in range(40))
    assert all(text.count(kind) > 8 for kind in ("qb.fori_loop", "qb.scan", "qb.cond", "qb.where"))
