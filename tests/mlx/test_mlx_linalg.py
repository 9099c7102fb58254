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
    rtol = (2e-4 if args[0].dtype in (np.float32, np.complex64) else 1e-10) if rtol is None else rtol
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


def phases(m, values, left, right):
    """What both sides must satisfy: |A v - w v|, |u^H A - w u^H|, and unit columns."""
    scale = values[..., None, :]
    duals = left.conj().swapaxes(-1, -2)
    residuals = [np.abs(m @ right - right * scale), np.abs(duals @ m - values[..., None] * duals)]
    return max(r.max() for r in residuals), [np.linalg.norm(x, axis=-2) for x in (left, right)]


def general(kind, *shape):
    rng = np.random.default_rng(5)
    real = rng.normal(size=shape)
    return (real + 1j * rng.normal(size=shape)).astype(np.complex64) if kind == "complex" else real.astype(np.float32)


@pytest.mark.parametrize("kind", ["real", "complex"])
def test_eigenvectors_of_both_sides_in_lapacks_order(kind):
    m = general(kind, 3, 5, 5)
    got = [np.asarray(x) for x in mlx_backend.jit(lax.linalg.eig)(m)]
    expected = [np.asarray(x) for x in lax.linalg.eig(m)]
    np.testing.assert_allclose(got[0], expected[0], atol=1e-4)
    worst, norms = phases(m, *got)
    assert worst < 1e-4
    np.testing.assert_allclose(norms, 1, atol=1e-5)
    fixed = np.ones(got[0].shape, bool) if kind == "complex" else expected[0].imag == 0  # pairs keep a free sign
    for g, e in zip(got[1:], expected[1:]):
        np.testing.assert_allclose(np.where(fixed[:, None], g, 0), np.where(fixed[:, None], e, 0), atol=2e-3)
    for left, right in ((True, False), (False, True), (False, False)):
        some = mlx_backend.jit(
            lambda m: lax.linalg.eig(m, compute_left_eigenvectors=left, compute_right_eigenvectors=right)
        )(m)
        kept = [got[0], *([got[1]] if left else []), *([got[2]] if right else [])]
        for g, e in zip(some, kept, strict=True):
            np.testing.assert_allclose(np.asarray(g), e, atol=1e-5)


def test_eigenvectors_of_matrices_without_a_basis():
    for m in (np.eye(4), np.array([[1, 1], [0, 1]]), np.zeros((3, 3)), np.diag([2.0, 2, 5])):
        m = m.astype(np.float32)
        worst, norms = phases(m, *(np.asarray(x) for x in mlx_backend.jit(lax.linalg.eig)(m)))
        assert worst < 1e-6
        np.testing.assert_allclose(norms, 1, atol=1e-6)
    mixed = np.stack([np.eye(3), np.full((3, 3), np.nan)]).astype(np.complex64)
    for x in mlx_backend.jit(lax.linalg.eig)(mixed):
        assert np.isfinite(np.asarray(x)[0]).all() and np.isnan(np.asarray(x)[1]).all()


def test_complex_factorisations():
    z = general("complex", 2, 4, 4)
    hermitian = z @ z.conj().swapaxes(-1, -2) + 2 * np.eye(4, dtype=np.complex64)
    for m in (z, z[:, :2], z[:, :, :3], 0 * z, np.full((3, 3), np.nan, np.complex64)):
        agree(lax.linalg.lu, m)
        for mode in ("reduced", "complete"):
            agree(lambda m: tuple(jnp.linalg.qr(m, mode=mode)), m)
        agree(lambda m: jnp.linalg.svd(m, compute_uv=False), m)
    agree(jnp.linalg.cholesky, hermitian)
    agree(jnp.linalg.cholesky, -hermitian)
    agree(jnp.linalg.inv, z, rtol=1e-3)
    agree(jnp.linalg.slogdet, z)
    agree(jnp.linalg.eigvalsh, hermitian)
    agree(lambda m: jax.grad(lambda t: jnp.sum(jnp.abs(jnp.linalg.inv(t)) ** 2))(m), hermitian, rtol=1e-3)


def test_the_pivot_of_complex_elimination_is_lapacks():
    """2 + 2i goes before 3: LAPACK compares |re| + |im|."""
    agree(lax.linalg.lu, np.array([[3, 1], [2 + 2j, 5]], np.complex64))
