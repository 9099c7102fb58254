"""Loops and branches on MLX against jax.lax: every form, cold and compiled, and under JAX's transforms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

pytest.importorskip("mlx.core", reason="MLX is not installed")

from quabla_jax import mlx_backend
from quabla_jax.mlx_backend import runtime

F32 = jnp.float32
X = jnp.linspace(0.1, 1.0, 4, dtype=F32)
XS = jnp.asarray(np.random.default_rng(0).normal(size=(7, 4)), F32)


def agree(fun, *args, calls=1, rtol=2e-5):
    """fun on MLX gives what jax.jit gives, on every call."""
    expected = jax.tree.leaves(jax.jit(fun)(*args))
    ours = mlx_backend.jit(fun)
    for _ in range(calls):
        got = jax.tree.leaves(ours(*args))
        assert len(got) == len(expected)
        for g, e in zip(got, expected):
            assert g.dtype == e.dtype and g.shape == e.shape
            np.testing.assert_allclose(np.asarray(g), np.asarray(e), rtol=rtol, atol=1e-6)


def body(i, c):
    return c * jnp.sin(c) + i * F32(0.1)


def dynamic(x):
    return lax.fori_loop(0, (x[0] * 100).astype(int), lambda i, c: c * F32(1.01), x)


def scan_forward(x, xs):
    return lax.scan(lambda c, t: (c * jnp.cos(c) + t, (c, t[0])), x, xs)


def scan_backward(x, xs):
    return lax.scan(lambda c, t: (c * jnp.cos(c) + t, c + t), x, xs, reverse=True)


def nested(x, xs):
    def outer(c, t):
        return lax.fori_loop(0, 3, lambda i, d: jnp.sin(d) + t, c), jnp.sum(c)

    return lax.scan(outer, x, xs)


def long_nested(x):
    step = lambda i, d: d - F32(0.01) * jnp.tanh(d)
    return lax.fori_loop(0, 3, lambda i, c: lax.fori_loop(0, 150, step, c) + i, x)


def doubling(x):
    return lax.while_loop(lambda c: jnp.sum(c[0]) < 50, lambda c: (c[0] * F32(1.3), c[1] + 1), (x, 0))


def nothing(x):
    return lax.while_loop(lambda c: c[0] > 100, lambda c: c * 2, x)


def while_in_while(x):
    inner = lambda c: lax.while_loop(lambda d: jnp.sum(d) < 5, lambda d: d * F32(1.5), c * F32(0.3))
    return lax.while_loop(lambda c: c[1] < 4, lambda c: (inner(c[0]), c[1] + 1), (x, 0))


def cond_in_loop(x):
    step = lambda i, c: lax.cond(i % 2 == 0, lambda d: jnp.sin(d), lambda d: d * F32(1.1), c)
    return lax.fori_loop(0, 9, step, x)


def while_in_cond_in_loop(x):
    grow = lambda d: lax.while_loop(lambda e: jnp.sum(e) < 9, lambda e: e * F32(1.7), d)
    return lax.fori_loop(0, 6, lambda i, c: lax.cond(i % 2 == 0, grow, lambda d: d * F32(0.3), c), x)


@pytest.mark.parametrize(
    "fun, args",
    [
        (lambda x: lax.fori_loop(0, 5, body, x), (X,)),
        (lambda x: lax.fori_loop(0, 0, body, x), (X,)),
        (dynamic, (X,)),
        (scan_forward, (X, XS)),
        (scan_backward, (X, XS)),
        (lambda x: lax.scan(lambda c, _: (c * 2, c), x, None, length=3), (X,)),
        (lambda xs: lax.scan(lambda c, t: (c, t * 2), 0, xs)[1], (XS,)),
        (lambda xs: lax.map(jnp.sum, xs), (XS,)),
        (nested, (X, XS)),
        (long_nested, (X,)),
        (doubling, (X,)),
        (nothing, (X,)),
        (while_in_while, (X,)),
        (cond_in_loop, (X,)),
        (while_in_cond_in_loop, (X,)),
        (lambda x: lax.scan(lambda c, t: ((c[1], c[0] + t), c[0]), (x[0], x[1]), XS[:, 0]), (X,)),
    ],
)
def test_forms(fun, args):
    agree(fun, *args)


@pytest.mark.parametrize("fun", [scan_forward, scan_backward, nested])
@pytest.mark.parametrize("transform", ["grad", "jvp", "vmap", "hessian-vector"])
def test_transforms(fun, transform):
    loss = lambda x, xs: sum(jnp.sum(v**2) for v in jax.tree.leaves(fun(x, xs)))
    turned = {
        "grad": jax.grad(loss, (0, 1)),
        "jvp": lambda x, xs: jax.jvp(loss, (x, xs), (x, xs)),
        "vmap": lambda x, xs: jax.vmap(fun, (0, None))(jnp.stack([x, 2 * x]), xs),
        "hessian-vector": lambda x, xs: jax.jvp(jax.grad(loss), (x, xs), (x, xs)),
    }[transform]
    agree(turned, X, XS, rtol=2e-4)


@pytest.mark.parametrize("length", [1, 2, 63, 64, 65, 127, 130, 200])
def test_chunks_of_every_size(length):
    xs = jnp.arange(length * 4, dtype=F32).reshape(length, 4) / (4 * length)
    agree(lambda x, xs: lax.scan(lambda c, t: (c * F32(0.99) + t, c * t), x, xs), X, xs, rtol=1e-4)
    agree(lambda x, xs: lax.scan(lambda c, t: (c * F32(0.99) + t, c * t), x, xs, reverse=True), X, xs, rtol=1e-4)


@pytest.mark.parametrize("trips", [0, 1, 7, 64, 100, 1000])
def test_dynamic_trip_counts(trips):
    ours = mlx_backend.jit(lambda n, x: lax.fori_loop(0, n, lambda i, c: (c + i) * F32(0.5), x))
    c = np.asarray(X)
    for i in range(trips):
        c = (c + np.float32(i)) * np.float32(0.5)
    np.testing.assert_allclose(np.asarray(ours(trips, X)), c, rtol=1e-5)


@pytest.mark.parametrize("start", [0.5, 3.0, 100.0])
def test_speculation_stops_where_the_loop_does(start):
    """Trips run past the end are dropped to the last bit, whatever the body makes of them."""
    fun = lambda x: lax.while_loop(lambda c: c[0] < 90, lambda c: (c[0] * 2, 1 / (c[0] - 128), c[2] + 1), (x, x, 0))
    agree(fun, F32(start), calls=3)


def test_large_ys_are_put_in_place():
    xs = jnp.ones((300, 600), F32)
    assert 300 * 600 * 4 > runtime.SMALL
    agree(lambda x, xs: lax.scan(lambda c, t: (c + t, c * t), x, xs), xs[0], xs)
    agree(lambda x, xs: lax.scan(lambda c, t: (c + t, c * t), x, xs, reverse=True), xs[0], xs)


def test_results_stay_the_same_bits_when_a_program_gets_compiled():
    """The same call cold, while its kernels are built, and compiled."""

    def fun(x, xs):
        c, ys = lax.scan(lambda c, t: (jnp.exp(-c) * jnp.sin(t) + c * F32(0.3), c), x, xs)
        return lax.while_loop(lambda c: jnp.sum(c) < 60, lambda c: c * F32(1.01) + F32(0.01), c), ys

    xs = jnp.asarray(np.random.default_rng(1).normal(size=(80, 4)), F32)
    ours = mlx_backend.jit(fun)
    first = jax.tree.map(np.asarray, ours(X, xs))
    for _ in range(4):
        again = jax.tree.map(np.asarray, ours(X, xs))
        jax.tree.map(np.testing.assert_array_equal, first, again)


@pytest.mark.parametrize("index", [-3, 0, 1, 2, 9])
def test_switch_clamps(index):
    fun = lambda i, x: lax.switch(i, [jnp.sin, jnp.cos, lambda v: v * 2], x)
    ours = mlx_backend.jit(fun)
    np.testing.assert_allclose(np.asarray(ours(index, X)), np.asarray(fun(index, X)), rtol=1e-6)


def test_the_branch_not_taken_does_not_run():
    ran = []

    def note(x):
        ran.append(1)
        return np.asarray(x)

    def loud(x):
        return jax.pure_callback(note, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    ours = mlx_backend.jit(lambda p, x: lax.cond(p, loud, lambda x: x * 2, x))
    np.testing.assert_allclose(np.asarray(ours(False, X)), 2 * np.asarray(X))
    assert not ran
    np.testing.assert_allclose(np.asarray(ours(True, X)), np.asarray(X))
    assert ran == [1]


def test_a_host_call_between_kernels():
    fun = lambda x: jax.pure_callback(np.cumsum, jax.ShapeDtypeStruct(x.shape, x.dtype), x * 2) + 1
    np.testing.assert_allclose(np.asarray(mlx_backend.jit(fun)(X)), np.cumsum(2 * np.asarray(X)) + 1, rtol=1e-6)


def test_nan_of_a_selected_branch_does_not_leak():
    safe = lambda i, c: lax.cond(c[0] > 0, jnp.sqrt, lambda v: -v, c)
    agree(lambda x: lax.fori_loop(0, 4, safe, x), -X)
    agree(jax.grad(lambda x: jnp.sum(lax.scan(lambda c, i: (safe(i, c), None), x, jnp.arange(4))[0])), -X)


def test_integers_and_keys_are_carried():
    def fun(key, n):
        def step(c, _):
            key, total = c
            key, sub = jax.random.split(key)
            return (key, total + jax.random.randint(sub, (), 0, 1000)), total

        return lax.scan(step, (key, n), None, length=5)

    key = jax.random.key(3)
    (last, total), ys = mlx_backend.jit(fun)(key, 7)
    (last2, total2), ys2 = fun(key, 7)
    assert (jax.random.key_data(last) == jax.random.key_data(last2)).all() and total == total2
    np.testing.assert_array_equal(np.asarray(ys), np.asarray(ys2))
