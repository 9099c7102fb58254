"""memory_report against the compiler's own figures, on the three kinds of program that run out of memory."""

import jax
import jax.numpy as jnp
import pytest

import quabla_jax as qb
from quabla_jax.compat import lax

X = jnp.linspace(0.1, 1.0, 100)


def long_loop(x):
    return jnp.sum(lax.fori_loop(0, 20_000, lambda i, c: 1.01 * jnp.sin(c), x))


def stacking(x):
    def step(c, _):
        c = jnp.sin(c) + 0.1
        return c, jnp.exp(c)

    return jnp.sum(lax.scan(step, x, None, 2000)[1] ** 2)


def nested(x):
    def step(c, _):
        c = lax.fori_loop(0, 100, lambda i, c: 1.1 * jnp.tanh(c), c)
        return c, jnp.sum(c)

    return jnp.sum(lax.scan(step, x, None, 200)[1])


@pytest.mark.parametrize("fun", [long_loop, stacking, nested])
def test_the_figures_are_the_compilers(fun):
    full = qb.memory_report(fun, X).compiled['checkpoint="full"']
    for request in ("full", "sqrt"):
        with qb.checkpointing(request):
            report = qb.memory_report(fun, X)
        # What the plans store, and the stacked outputs with their cotangents; a loop inside stores its share once a run,
        # and is part of a full tape around it.
        outer = report.loops[0]
        assert outer.stored_bytes is not None
        inner = [] if request == "full" else [m.stored_bytes for m in report.loops[1:]]
        expected = outer.stored_bytes + 2 * outer.stacked_bytes + sum(inner)
        assert report.compiled["as written"] == pytest.approx(expected, rel=0.05, abs=8 * X.nbytes)
        if request == "full":
            assert outer.stored_bytes == outer.full_bytes and report.compiled["as written"] == full


def test_requests_in_force_count_though_the_function_was_looked_at_before():
    before = qb.memory_report(long_loop, X, compiled=False).loops[0]
    with qb.checkpointing("sqrt"):
        during = qb.memory_report(long_loop, X, compiled=False).loops[0]
        drawn = str(qb.draw(jax.grad(long_loop), X))
    assert before.plan == "full tape" and during.plan.startswith("blocks of")
    assert drawn != str(qb.draw(jax.grad(long_loop), X))


def test_the_table_names_what_it_counts():
    text = str(qb.memory_report(stacking, X, compiled=False))
    assert "stacks" in text and "1.6 MB" in text
