"""How a program is cut: one kernel between control flow, chunks, readbacks, and the rewrites before that."""

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

pytest.importorskip("mlx.core", reason="MLX is not installed")

import mlx.core as mx

from quabla_jax import mlx_backend
from quabla_jax.lowering import Op, walk
from quabla_jax.mlx_backend import convert, kernels, passes, runtime

F32 = jnp.float32
X = jnp.linspace(0.1, 1, 4, dtype=F32)


def steps(fun, *args):
    return [type(p.step).__name__.strip("_") for p in mlx_backend.lower(fun, *args).plan.placed]


def count_kernel_calls(monkeypatch):
    calls = []
    original = kernels.Kernel.__call__
    monkeypatch.setattr(kernels.Kernel, "__call__", lambda self, *a: calls.append(self) or original(self, *a))
    return calls


def test_one_kernel_between_two_points_of_control_flow():
    def fun(x):
        x = jnp.sin(x) * 2 + 1
        x = lax.fori_loop(0, 500, lambda i, c: c * F32(0.9) + i, x)
        x = jnp.tanh(x) @ jnp.ones((4, 4), F32)
        x = lax.cond(x[0] > 0, jnp.cos, jnp.exp, x)
        return jnp.sqrt(x * x) + 1

    assert steps(fun, X) == ["Segment", "Counted", "Segment", "Branch", "Segment"]


def test_small_loops_belong_to_the_kernel_around_them():
    assert steps(lambda x: lax.fori_loop(0, 5, lambda i, c: c * 2 + i, jnp.sin(x)) + 1, X) == ["Segment"]
    assert steps(lambda x, xs: lax.scan(lambda c, t: (c + t, c), x, xs), X, jnp.ones((300, 4), F32)) == ["Counted"]


def test_a_loop_is_read_back_once_a_chunk(monkeypatch):
    calls = count_kernel_calls(monkeypatch)
    ours = mlx_backend.jit(lambda x: lax.fori_loop(0, 1000, lambda i, c: c - F32(0.01) * jnp.tanh(c), x))
    ours(X)
    assert 1000 / runtime.CHUNK_TRIPS <= len(calls) <= 1000 / (runtime.CHUNK_TRIPS // 2)


def test_a_cheap_while_is_read_back_once_a_chunk(monkeypatch):
    calls = count_kernel_calls(monkeypatch)
    ours = mlx_backend.jit(lambda n: lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + c[1], c[1]), (0, 1)))
    assert int(ours(600)[0]) == 600
    assert len(calls) <= 600 / runtime.SPECULATION + 5


def test_a_costly_while_does_not_run_ahead(monkeypatch):
    a = 2 * np.eye(80, dtype=np.float32)
    calls = count_kernel_calls(monkeypatch)
    loop = lambda x: lax.while_loop(lambda c: c[0, 0] < 100, lambda c: c @ a, x)
    assert float(mlx_backend.jit(loop)(jnp.ones((80, 80), F32))[0, 0]) == 128
    assert len(calls) == 8  # the first predicate, then seven trips


def test_branches_in_a_loop_are_selected_only_when_they_are_cheap():
    def loop(n):
        heavy = lambda c: jnp.tanh(c) @ jnp.ones((n, n), F32)
        step = lambda i, c: lax.cond(i % 2 == 0, heavy, lambda c: c * 2, c)
        return mlx_backend.lower(lambda x: lax.fori_loop(0, 200, step, x), jnp.ones((n, n), F32)).plan.placed[0].step

    assert loop(3).flat
    assert not loop(300).flat


@pytest.mark.parametrize(
    "limit, length, size",
    [(64, 1000, 50), (64, 64, 64), (64, 65, 64), (64, 10, 10), (1, 9, 1), (64, None, 64), (64, 127, 64)],
)
def test_chunks_divide_the_length_where_they_can(limit, length, size):
    assert runtime._chunk(limit, length) == size


def test_products_lose_their_batch_axis_and_reshapes_collapse():
    fun = lambda x, w: jnp.maximum(x @ w, 0) @ w + x.reshape(2, 8).reshape(4, 4)
    program = mlx_backend.lower(fun, jnp.ones((4, 4), F32), jnp.ones((4, 4), F32)).program
    before = [n.name for n in walk(program) if isinstance(n, Op)]
    after = [n.name for n in walk(passes.simplified(program)) if isinstance(n, Op)]
    assert before.count("reshape") > 0 and after.count("reshape") == 0
    assert after.count("matmul") == before.count("matmul") == 2


def test_rewrites_reach_into_loops_and_branches():
    def fun(x, w):
        step = lambda c, _: (lax.cond(c[0, 0] > 0, lambda c: c @ w, lambda c: w @ c, c), c @ w)
        return lax.scan(step, x, None, length=300)

    args = (jnp.eye(2, dtype=F32), jnp.eye(2, dtype=F32) * F32(0.99))
    program = mlx_backend.lower(fun, *args).program
    assert not [v for n in walk(passes.simplified(program)) for v in n.outputs if isinstance(n, Op) and v.ndim == 3]
    for got, expected in zip(mlx_backend.jit(fun)(*args), fun(*args)):
        np.testing.assert_allclose(np.asarray(got), np.asarray(expected), rtol=1e-4)


def test_constants_that_mlx_would_print_wrongly_are_inputs():
    """-0.0 and complex scalars reach the result with every bit, compiled or not."""
    third = np.complex64(1 / 3 + 2j / 7)
    fun = lambda x: (jnp.where(x > 5, x, F32(-0.0)) * 1, x * third + third)
    ours = mlx_backend.jit(fun)
    for _ in range(4):
        zeros, product = ours(X)
        assert np.signbit(np.asarray(zeros)).all()
        np.testing.assert_allclose(np.asarray(product), np.asarray(fun(X)[1]), rtol=2e-7)


def test_a_constant_may_be_captured_and_passed():
    """mx.compile refuses an array that is both; a carry that starts as a constant of the body is."""
    fun = lambda x: lax.fori_loop(0, 200, lambda i, c: (c[0] + c[1], F32(1.5)), (x, F32(1.5)))
    for _ in range(3):
        assert float(mlx_backend.jit(fun)(F32(0))[0]) == 300


def test_numpy_views_of_any_strides_are_taken():
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    for view in (x[::-1], x[:1, :1][::-1], x.T, x[:, ::2], np.broadcast_to(x[:1], (3, 4))):
        np.testing.assert_array_equal(np.array(convert.to_mx(view, view.dtype)), view)
    assert convert.to_mx(mx.zeros(3), np.dtype(np.float32)).shape == (3,)
