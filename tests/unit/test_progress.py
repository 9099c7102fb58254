"""Progress of loops: counted to the end, silent under replays, absent when off."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from progress_log import Log

import quabla_jax as qb
from quabla_jax import loops


def programs():
    x = jnp.linspace(0.1, 0.9, 3)
    step = lambda c, _: (jnp.sin(c) + 0.1, c.sum())
    return {
        "scan": (lambda x: loops.scan(step, x, None, 200, checkpoint="sqrt")[0].sum(), x, 200),
        "fori": (
            lambda x: loops.fori_loop(0, 200, lambda i, c: jnp.sin(c) + 0.1, x, checkpoint=9).sum(),
            x,
            200,
        ),
        "full": (lambda x: loops.scan(step, x, None, 50, checkpoint="full")[0].sum(), x, 50),
        "while": (
            lambda x: loops.while_loop(
                lambda c: c.sum() < 1e3, lambda c: c * 1.1 + jnp.cos(c) ** 2, x, checkpoint=8
            ).sum(),
            x,
            None,
        ),
    }


@pytest.mark.parametrize("name", ["scan", "fori", "full", "while"])
@pytest.mark.parametrize("transform", ["value", "grad", "hessian", "vmap"])
def test_counts_to_the_end_and_changes_nothing(name, transform):
    fun, x, trips = programs()[name]
    if transform == "vmap" and name == "while":
        pytest.skip("lanes have counts of their own")
    made = {
        "value": lambda f: lambda x: f(x),
        "grad": jax.grad,
        "hessian": jax.hessian,
        "vmap": lambda f: lambda x: jax.vmap(f)(jnp.stack([x, 2 * x])),
    }
    plain = jax.jit(made[transform](fun))(x)
    log = Log()
    with qb.progress("fit", display=log):
        shown = jax.jit(made[transform](fun))(x)
    jax.block_until_ready(shown)
    np.testing.assert_allclose(shown, plain, rtol=1e-13)
    jax.effects_barrier()
    assert log.seen, "nothing was shown"
    # One run a forward pass: a reverse sweep's replays add none of their own.
    one = np.diff([0, *log.seen])
    assert np.sum(one <= 0) <= len(log.runs) - 1, log.seen
    if trips is not None:
        assert log.seen[-1] == trips


def test_nothing_is_shown_where_nothing_runs():
    """The second derivative of a linear loop is zero, and the compiled program has no loop."""
    log, x = Log(), jnp.ones(3)
    linear = lambda x: loops.while_loop(lambda c: c.sum() < 1e3, lambda c: 1.1 * c, x, checkpoint=8).sum()
    with qb.progress(display=log):
        compiled = jax.jit(jax.hessian(linear)).lower(x).compile()
    np.testing.assert_array_equal(compiled(x), np.zeros((3, 3)))
    assert "while(" not in compiled.as_text() and not log.runs


def test_the_terminal_is_left_as_it_was():
    """The cursor comes back, also after an error inside the loop, and the next bar works."""
    pytest.importorskip("rich")
    out = subprocess.run(
        [sys.executable, "-c", FAILING],
        capture_output=True,
        text=True,
        env={**os.environ, "FORCE_COLOR": "1"},
        timeout=200,
    )
    assert "an error in the loop" in out.stdout and out.stdout.endswith("after\n"), out
    assert out.stderr.count("\x1b[?25l") == out.stderr.count("\x1b[?25h") == 2
    assert "again fori_loop" in out.stderr and "300/300" in out.stderr


FAILING = """
import jax, jax.numpy as jnp, numpy as np
import quabla_jax as qb
from quabla_jax import loops

def stops(i, c):
    def check(v):
        if v > 40:
            raise RuntimeError("stop")
        return np.asarray(v)
    return jax.pure_callback(check, jax.ShapeDtypeStruct((), c.dtype), c + 1)

try:
    with qb.progress("fit"):
        jax.jit(lambda x: loops.fori_loop(0, 99, stops, x))(0.0).block_until_ready()
except Exception:
    print("an error in the loop")
with qb.progress("again"):
    jax.jit(lambda x: loops.fori_loop(0, 300, lambda i, c: jnp.sin(c), x))(0.5).block_until_ready()
print("after")
"""


def test_off_means_the_same_program():
    x = jnp.ones(3)
    shown = lambda: str(jax.make_jaxpr(lambda x: loops.scan(lambda c, _: (jnp.sin(c), None), x, None, 99)[0])(x))
    before = shown()
    with qb.progress("fit", display=Log()):
        during = shown()
    assert shown() == before != during and "callback" in during


def test_few_calls_once_the_speed_is_known():
    log = Log()
    with qb.progress(display=log) as meter:
        fun = jax.jit(lambda x: loops.fori_loop(0, 20_000, lambda i, c: jnp.sin(c), x))
        fun(0.5).block_until_ready()
    first = meter.calls
    fun(0.6).block_until_ready()
    assert first <= 120 and meter.calls - first <= 120


def test_lanes_share_one_run():
    log = Log()
    with qb.progress(display=log) as meter:
        fun = jax.jit(jax.vmap(lambda x: loops.fori_loop(0, 100, lambda i, c: jnp.sin(c), x, checkpoint="sqrt")))
        fun(jnp.ones((50, 2))).block_until_ready()
        jax.effects_barrier()
    assert len(log.runs) == 1 and log.seen[-1] == 100 and meter.calls <= 101


def test_the_host_is_sent_one_entry_of_the_carry():
    with qb.progress(display=Log()):
        text = str(jax.make_jaxpr(lambda x: loops.fori_loop(0, 9, lambda i, c: jnp.sin(c), x))(jnp.ones((40, 50))))
    assert "f64[1,1]" in text
