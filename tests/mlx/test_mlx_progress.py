"""Progress bars of loops on MLX: counted by the host between chunks, never from inside a loop."""

import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from progress_log import Log

pytest.importorskip("mlx.core")

import quabla_jax as qb
from quabla_jax import loops, lowering, mlx_backend
from quabla_jax.loops.progress import CALLS_A_SECOND
from quabla_jax.mlx_backend.progress import watched

STEP = lambda c: jnp.sin(c) + 0.1
PROGRAMS = {
    "fori": (lambda x: loops.fori_loop(0, 300, lambda i, c: STEP(c), x), 300),
    "sqrt": (lambda x: loops.fori_loop(0, 300, lambda i, c: STEP(c), x, checkpoint="sqrt"), 300),
    "scan": (lambda x: loops.scan(lambda c, _: (STEP(c), c.sum()), x, None, 300)[0], 300),
    "short": (lambda x: loops.fori_loop(0, 3, lambda i, c: STEP(c), x), 3),
    "nested": (lambda x: loops.fori_loop(0, 40, lambda i, c: loops.fori_loop(0, 9, lambda j, c: STEP(c), c), x), 40),
    "branch": (lambda x: loops.fori_loop(0, 60, lambda i, c: loops.cond(c[0] > 0, STEP, jnp.cos, c), x), 60),
    "while": (lambda x: loops.while_loop(lambda c: c.sum() < 1e3, lambda c: c * 1.1, x, checkpoint=8), None),
}
TRANSFORMS = {
    "value": lambda fun: fun,
    "grad": lambda fun: jax.grad(lambda x: fun(x).sum()),
    "vmap": lambda fun: lambda x: jax.vmap(fun)(jnp.stack([x, x * 1.01])),
}


def host_calls_in_loops(program):
    """How many host calls are left inside loop bodies."""
    loops_of = [n for n in lowering.walk(watched(program)) if isinstance(n, lowering.Loop)]
    return sum(getattr(node, "name", "") == "host_call" for loop in loops_of for node in lowering.walk(loop.body))


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_host_counts_to_the_end_and_the_values_stay(name, transform):
    if (name, transform) == ("while", "vmap"):
        pytest.skip("lanes have counts of their own, and ask the host")
    fun, trips = PROGRAMS[name][0], PROGRAMS[name][1]
    x, traced = jnp.linspace(0.1, 0.9, 3), TRANSFORMS[transform](fun)
    log, began = Log(), time.monotonic()
    with qb.progress("fit", display=log) as meter:
        run = mlx_backend.jit(traced)
        shown = run(x)
    seconds = time.monotonic() - began
    np.testing.assert_allclose(shown, jax.jit(traced)(x), rtol=1e-10)
    assert host_calls_in_loops(run.lower(x).program) == 0
    assert [trip for _, _, trip in log.runs] == [trips] and (trips is None or log.seen[-1] == trips)
    assert name != "while" or log.seen[-1] == meter._runs[-1][1]  # the end is shown though nobody knew it before
    assert log.seen == sorted(set(log.seen)), "replays of a reverse sweep are silent"
    assert meter.calls <= CALLS_A_SECOND * seconds + 2


def test_qb_jit_on_mlx_counts_too():
    log = Log()
    with qb.progress("fit", display=log):
        run = qb.jit(lambda x: qb.fori_loop(0, 250, lambda i, c: qb.sin(c) + 0.1, x), device="mlx")
        run(qb.ones(3))
        run(qb.ones(3))
    assert len(log.runs) == 2 and log.seen.count(250) == 2


def test_off_is_the_same_program():
    fun = lambda x: loops.fori_loop(0, 30, lambda i, c: STEP(c), x)
    text = lambda: mlx_backend.lower(fun, jnp.ones(3)).as_text()
    before = text()
    with qb.progress("fit", display=Log()):
        during = text()
    assert text() == before != during and "host_call" not in before


def test_a_callback_of_the_users_own_stays_inside():
    def body(i, c):
        seen = jax.pure_callback(lambda v: np.asarray(v), jax.ShapeDtypeStruct((3,), c.dtype), c)
        return STEP(seen)

    log, x = Log(), jnp.ones(3)
    with qb.progress("fit", display=log):
        run = mlx_backend.jit(lambda x: loops.fori_loop(0, 20, body, x))
        np.testing.assert_allclose(run(x), loops.fori_loop(0, 20, lambda i, c: STEP(c), x), rtol=1e-12)
    assert host_calls_in_loops(run.lower(x).program) == 1 and log.seen[-1] == 20
