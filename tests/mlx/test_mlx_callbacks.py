"""Callbacks with an effect: called as often as in JAX, in the program's order, read or not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import io_callback

from quabla_jax import lowering

pytest.importorskip("mlx.core", reason="MLX is not installed")

from quabla_jax import mlx_backend

F32 = jnp.float32
X = jnp.linspace(0.1, 1.0, 4, dtype=F32)


def noting(log):
    """A function that notes where it was called and with what."""
    return lambda name, x: io_callback(lambda a: log.append((name, np.asarray(a).tolist())), None, x, ordered=True)


def straight(note, x):
    note("in", x[0])
    y = jnp.sin(x)
    note("out", y[1])
    note("out", y[1])
    return y


def counted(note, x):
    return lax.fori_loop(0, 5, lambda i, c: (note("trip", i), c * 2)[1], x)


def scanned(note, x):
    return lax.scan(lambda c, t: (note("slice", t), (c + t, c))[1], 0.0, x, reverse=True)


def unread(note, x):
    lax.fori_loop(0, 3, lambda i, c: (note("unread", i), c)[1], 0)
    lax.cond(x[0] > 0, lambda: note("true", x[0]), lambda: note("false", x[1]))
    return x


def branched(note, x):
    step = lambda i, c: lax.cond(i % 2 == 0, lambda v: (note("even", i), v + 1)[1], lambda v: v * 2, c)
    return lax.fori_loop(0, 4, step, x)


def searched(note, x):
    return lax.while_loop(lambda c: c < 5, lambda c: (note("while", c), c * 2)[1], x[0])


@pytest.mark.parametrize("program", [straight, counted, scanned, unread, branched, searched])
def test_calls_are_those_of_jax(program):
    ours, theirs = [], []
    expected = jax.jit(lambda x: program(noting(theirs), x))(X)
    jax.effects_barrier()
    fun = lambda x: program(noting(ours), x)
    run = mlx_backend.jit(fun)
    for _ in range(3):
        ours.clear()
        got = run(X)
        for g, e in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(np.asarray(g), np.asarray(e), rtol=1e-6)
        assert [n for n, _ in ours] == [n for n, _ in theirs]
        np.testing.assert_allclose([v for _, v in ours], [v for _, v in theirs], rtol=1e-6)
    ours.clear()
    lowering.run_on_numpy(lowering.lower(fun, X), np.asarray(X))
    assert [n for n, _ in ours] == [n for n, _ in theirs]


def test_results_of_io_callbacks():
    fun = lambda x: io_callback(lambda a: np.cumsum(a), jax.ShapeDtypeStruct(x.shape, x.dtype), x * 2) + 1
    np.testing.assert_allclose(mlx_backend.jit(fun)(X), np.cumsum(2 * np.asarray(X)) + 1, rtol=1e-6)


def test_debug_prints(capfd):
    def fun(x):
        jax.debug.print("first {} and {y}", x[0] * 2, y=x.sum(), ordered=True)
        lax.fori_loop(0, 3, lambda i, c: (jax.debug.print("trip {}", i, ordered=True), c)[1], 0)
        jax.debug.callback(lambda a, name: print(name, a.shape), x, "callback", ordered=True)
        return jax.vmap(lambda t: (jax.debug.print("lane {}", t > 0.5), t)[1])(x)

    jax.jit(fun)(X)
    jax.effects_barrier()
    lines = lambda: (lambda out: ([s for s in out if "lane" not in s], sorted(s for s in out if "lane" in s)))(
        capfd.readouterr().out.splitlines()
    )
    expected = lines()
    assert len(expected[1]) == 4
    run = mlx_backend.jit(fun)
    for _ in range(2):
        run(X)
        assert lines() == expected


def test_an_error_in_a_callback_reaches_the_caller():
    def fail(_):
        raise RuntimeError("no sensor")

    with pytest.raises(RuntimeError, match="no sensor"):
        mlx_backend.jit(lambda x: (io_callback(fail, None, x), x)[1])(X)


@pytest.mark.parametrize(
    "result, said",
    [
        (np.ones(2, np.complex64), "promised float32 and returned complex64"),
        (np.ones(2, np.int32), "promised float32 and returned int32"),
        (np.ones(3, np.float32), "promised shape"),
        ((np.ones(2, np.float32),) * 2, "promised 1 arrays and returned 2"),
    ],
)
def test_what_a_callback_may_not_return(result, said):
    fun = lambda x: jax.pure_callback(lambda a: result, jax.ShapeDtypeStruct((2,), np.float32), x)
    with pytest.raises(ValueError, match=said):
        mlx_backend.jit(fun)(np.ones(2, np.float32))
