"""Dense linear algebra on MLX against JAX: batches, both precisions, and matrices that are singular, indefinite or NaN."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

pytest.importorskip("mlx.core", reason="MLX is not installed")

from quabla_jax import mlx_backend

precisions = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def square(dtype, *batch, n=4, seed=0):
    return np.random.default_rng(seed).normal(size=(*batch, n, n)).astype(dtype)


def definite(dtype, *batch, n=4):
    a = square(dtype, *batch, n=n)
    return (a @ np.swapaxes(a, -1, -2) + n * np.eye(n)).astype(dtype)


def agree(fun, *args, rtol=None):
    rtol = (2e-4 if args[0].dtype == np.float32 else 1e-10) if rtol is None else rtol
    got, expected = mlx_backend.jit(fun)(*args), fun(*args)
    for g, e in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        assert g.dtype == e.dtype
        np.testing.assert_allclose(np.asarray(g), np.asarray(e), rtol=rtol, atol=rtol, equal_nan=True)


@precisions
def test_cholesky(dtype):
    a = definite(dtype, 2)
    agree(jnp.linalg.cholesky, a)
    agree(
        lambda m: jnp.linalg.cholesky(m, symmetrize_input=False),
        np.tril(a) + 7 * np.triu(np.ones((4, 4), dtype), 1),
    )
    mixed = np.stack([a[0], square(dtype), np.full((4, 4), np.nan, dtype), np.zeros((4, 4), dtype)])
    agree(jnp.linalg.cholesky, mixed)
    agree(jax.grad(lambda m: jnp.sum(jnp.linalg.cholesky(m) ** 2)), a)


@precisions
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("transpose_a", [True, False])
@pytest.mark.parametrize("n", [3, 40])
def test_triangular_solve(dtype, lower, transpose_a, n):
    a = square(dtype, 2, n=n) * dtype(0.1) + 2 * np.eye(n, dtype=dtype)
    b = np.random.default_rng(1).normal(size=(2, n, 3)).astype(dtype)
    for unit in (True, False):
        solve = lambda a, b: lax.linalg.triangular_solve(
            a, b, left_side=True, lower=lower, transpose_a=transpose_a, unit_diagonal=unit
        )
        agree(solve, a, b)


@precisions
def test_singular_systems_answer_as_lapack_does(dtype):
    zero, b = np.zeros((3, 3), dtype), np.ones((3, 1), dtype)
    agree(lambda a, b: lax.linalg.triangular_solve(a, b, left_side=True, lower=True), zero, b)
    agree(lambda a, b: jnp.linalg.solve(a, b), zero, b)
    agree(lambda a, b: jnp.linalg.solve(a, b), np.full((3, 3), np.nan, dtype), b)
    agree(jnp.linalg.inv, zero)
    agree(jnp.linalg.det, zero)


@precisions
def test_lu_and_what_rests_on_it(dtype):
    a = square(dtype, 3)
    for m in (a, a[:, :3], a[:, :, :3], np.zeros((2, 2), dtype), np.full((3, 3), np.nan, dtype)):
        agree(lambda m: lax.linalg.lu(m), m)
    b = np.random.default_rng(1).normal(size=(3, 4, 2)).astype(dtype)
    agree(lambda a, b: jnp.linalg.solve(a, b), a, b, rtol=1e-3 if dtype == np.float32 else 1e-9)
    agree(jnp.linalg.slogdet, a)
    agree(jax.grad(lambda m: jnp.sum(jnp.linalg.inv(m))), definite(dtype, 2))


@precisions
def test_qr(dtype):
    a = square(dtype, 2)
    for m in (a, a[:, :, :2], a[:, :2], np.full((3, 2), np.nan, dtype)):
        for mode in ("reduced", "complete"):
            agree(lambda m: tuple(jnp.linalg.qr(m, mode=mode)), m)


@precisions
def test_eigh_and_svd(dtype):
    a, s = square(dtype, 2), definite(dtype, 2)
    agree(lambda m: jnp.linalg.eigh(m)[0], s)
    agree(lambda m: (lambda w, v: v * w[..., None, :] @ jnp.swapaxes(v, -1, -2))(*jnp.linalg.eigh(m)), s)
    agree(jax.grad(lambda m: jnp.sum(jnp.linalg.eigh(m)[0] ** 3)), s, rtol=2e-3 if dtype == np.float32 else 1e-9)
    for m in (a, a[:, :, :3], a[:, :3]):
        agree(lambda m: jnp.linalg.svd(m, compute_uv=False), m)
        for full in (True, False):
            shapes = [x.shape for x in jnp.linalg.svd(m, full_matrices=full)]
            u, values, v = mlx_backend.jit(lambda m: tuple(jnp.linalg.svd(m, full_matrices=full)))(m)
            assert [u.shape, values.shape, v.shape] == shapes
            k = values.shape[-1]
            again = np.asarray(u)[..., :k] * np.asarray(values)[..., None, :] @ np.asarray(v)[..., :k, :]
            np.testing.assert_allclose(again, m, atol=1e-4 if dtype == np.float32 else 1e-12)
    bad = np.stack([s[0], np.full((4, 4), np.nan, dtype)])
    agree(lambda m: jnp.linalg.svd(m, compute_uv=False), bad)
    agree(lambda m: jnp.linalg.eigh(m)[0], bad)
    agree(jnp.linalg.pinv, a[:, :, :3], rtol=1e-3 if dtype == np.float32 else 1e-9)


def test_eig_of_nan_does_not_end_the_process():
    order = lambda m: jnp.sort(jnp.real(jnp.linalg.eigvals(m)))
    agree(order, square(np.float32), rtol=1e-3)
    agree(order, np.full((3, 3), np.nan, np.float32))


@precisions
def test_empty_matrices(dtype):
    for shape in ((0, 0), (2, 0, 0)):
        agree(jnp.linalg.cholesky, np.zeros(shape, dtype))
        agree(lambda m: jnp.linalg.eigh(m)[0], np.zeros(shape, dtype))
