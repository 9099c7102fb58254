"""Whole models on MLX: forward passes, gradients and training follow JAX's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

pytest.importorskip("mlx.core", reason="MLX is not installed")

from quabla_jax import mlx_backend


@pytest.fixture(autouse=True)
def single_precision():
    with jax.enable_x64(False):
        yield


def draw(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def close(got, expected, rtol=2e-4):
    for g, e in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        scale = float(np.max(np.abs(np.asarray(e)), initial=1e-3))
        np.testing.assert_allclose(np.asarray(g), np.asarray(e), rtol=rtol, atol=rtol * scale)


def follow(loss, params, batches, rate=1e-2):
    """50 steps of Adam on MLX, state kept there, beside 50 on JAX: the losses are the same."""
    optax = pytest.importorskip("optax", reason="optax is not installed")
    optimiser = optax.adam(rate)

    def step(params, state, batch):
        value, grads = jax.value_and_grad(loss)(params, batch)
        updates, state = optimiser.update(grads, state, params)
        return optax.apply_updates(params, updates), state, value

    on_mlx, on_jax = mlx_backend.jit(step), jax.jit(step)
    ours = theirs = (params, optimiser.init(params))
    losses = []
    for k in range(50):
        batch = jax.tree.map(lambda b, k=k: b[k % len(b)], batches)
        *ours, a = on_mlx(*ours, batch)
        *theirs, b = on_jax(*theirs, batch)
        losses.append((float(a), float(b)))
    losses = np.asarray(losses)
    assert losses[-len(batches) :, 1].mean() < losses[: len(batches), 1].mean()
    np.testing.assert_allclose(losses[:, 0], losses[:, 1], rtol=5e-3, atol=1e-5)


def cnn():
    """(loss of parameters and images, parameters, images)"""
    eqx = pytest.importorskip("equinox", reason="equinox is not installed")
    keys = jax.random.split(jax.random.key(0), 3)
    model = eqx.nn.Sequential(
        [
            eqx.nn.Conv2d(1, 3, 3, key=keys[0]),
            eqx.nn.MaxPool2d(2, 2),
            eqx.nn.Lambda(jax.nn.gelu),
            eqx.nn.GroupNorm(3, 3),
            eqx.nn.Conv2d(3, 4, 3, stride=2, groups=1, key=keys[1]),
            eqx.nn.Lambda(jnp.ravel),
            eqx.nn.Linear(4 * 2 * 2, 5, key=keys[2]),
            eqx.nn.Lambda(jax.nn.log_softmax),
        ]
    )
    params, static = eqx.partition(model, eqx.is_inexact_array)
    images, labels = draw(6, 1, 12, 12), jnp.arange(6) % 5

    def loss(params, images):
        scores = jax.vmap(eqx.combine(params, static))(images)
        return -jnp.mean(jnp.take_along_axis(scores, labels[:, None], 1))

    return loss, params, images


def test_equinox_cnn_and_its_gradient():
    loss, params, images = cnn()
    close(mlx_backend.jit(loss)(params, images), loss(params, images))
    close(mlx_backend.jit(jax.value_and_grad(loss))(params, images), jax.value_and_grad(loss)(params, images))


@pytest.mark.slow
def test_equinox_cnn_trains():
    loss, params, images = cnn()
    follow(loss, params, jnp.stack([images, images[::-1] * 0.5]), 3e-3)


def test_flax_lstm_trains():
    nn = pytest.importorskip("flax.linen", reason="flax is not installed")
    model = nn.RNN(nn.OptimizedLSTMCell(6))
    batches = draw(4, 3, 9, 2)
    params = model.init(jax.random.key(0), batches[0])
    close(mlx_backend.jit(model.apply)(params, batches[0]), model.apply(params, batches[0]))
    follow(lambda p, x: jnp.mean((model.apply(p, x)[..., :2] - jnp.tanh(x)) ** 2), params, batches)


def linen_block(nn, x, mask):
    """Attention and a perceptron, each after a norm and with a way around it; inside flax.linen's compact call."""
    y = nn.MultiHeadDotProductAttention(num_heads=2)(nn.LayerNorm()(x), mask=mask)
    x = x + y
    return x + nn.Dense(x.shape[-1])(nn.gelu(nn.Dense(2 * x.shape[-1])(nn.LayerNorm()(x))))


def test_flax_transformer_block_trains():
    nn = pytest.importorskip("flax.linen", reason="flax is not installed")

    class Block(nn.Module):
        @nn.compact
        def __call__(self, x):
            return linen_block(nn, x, nn.make_causal_mask(x[..., 0]))

    model, batches = Block(), draw(3, 2, 5, 8)
    params = model.init(jax.random.key(0), batches[0])
    loss = lambda p, x: jnp.mean((model.apply(p, x)[:, :-1] - x[:, 1:]) ** 2)
    close(mlx_backend.jit(model.apply)(params, batches[0]), model.apply(params, batches[0]))
    close(mlx_backend.jit(jax.grad(loss))(params, batches[0]), jax.grad(loss)(params, batches[0]))
    follow(loss, params, batches, 3e-3)


def test_nnx_transformer_block_and_its_gradient():
    nnx = pytest.importorskip("flax.nnx", reason="flax is not installed")

    class Block(nnx.Module):
        def __init__(self, rngs):
            self.before, self.after = nnx.LayerNorm(8, rngs=rngs), nnx.LayerNorm(8, rngs=rngs)
            self.attention = nnx.MultiHeadAttention(num_heads=2, in_features=8, decode=False, rngs=rngs)
            self.up, self.down = nnx.Linear(8, 16, rngs=rngs), nnx.Linear(16, 8, rngs=rngs)

        def __call__(self, x):
            x = x + self.attention(self.before(x), mask=nnx.make_causal_mask(x[..., 0]))
            return x + self.down(nnx.gelu(self.up(self.after(x))))

    graph, params = nnx.split(Block(nnx.Rngs(0)))
    x = draw(2, 5, 8)
    forward = lambda p, x: nnx.merge(graph, p)(x)
    loss = lambda p, x: jnp.mean((forward(p, x)[:, :-1] - x[:, 1:]) ** 2)
    close(mlx_backend.jit(forward)(params, x), forward(params, x))
    close(mlx_backend.jit(jax.value_and_grad(loss))(params, x), jax.jit(jax.value_and_grad(loss))(params, x))


@pytest.mark.slow
def test_diffrax_solve_and_its_gradient():
    diffrax = pytest.importorskip("diffrax", reason="diffrax is not installed")

    def solve(y0, damping):
        term = diffrax.ODETerm(lambda t, y, a: jnp.stack([y[1], -a * y[1] - jnp.sin(y[0])]))
        control = diffrax.PIDController(1e-4, 1e-6)
        at = diffrax.SaveAt(ts=jnp.linspace(0, 2, 5))
        return diffrax.diffeqsolve(
            term,
            diffrax.Tsit5(),
            0.0,
            2.0,
            0.1,
            y0,
            args=damping,
            stepsize_controller=control,
            max_steps=64,
            saveat=at,
        ).ys

    args = (draw(2), jnp.float32(0.3))
    close(mlx_backend.jit(solve)(*args), jax.jit(solve)(*args), 1e-3)
    grad = jax.grad(lambda y, a: jnp.sum(solve(y, a)), (0, 1))
    close(mlx_backend.jit(grad)(*args), jax.jit(grad)(*args), 5e-3)


def test_hmc_chain():
    """Draws, proposals and rejections are JAX's, bit for bit in the keys: the chains stay together."""
    potential = lambda q: 0.5 * jnp.sum(q**2) + 0.1 * jnp.sum(q**4)

    def leapfrog(state, _):
        q, p = state
        p = p - 0.1 * jax.grad(potential)(q)
        q = q + 0.2 * p
        return (q, p - 0.1 * jax.grad(potential)(q)), None

    def step(q, key):
        momentum, accept = jax.random.split(key)
        p = jax.random.normal(momentum, q.shape, jnp.float32)
        (new, end), _ = lax.scan(leapfrog, (q, p), None, length=4)
        energy = lambda q, p: potential(q) + 0.5 * jnp.sum(p**2)
        taken = jnp.log(jax.random.uniform(accept, dtype=jnp.float32)) < energy(q, p) - energy(new, end)
        q = lax.cond(taken, lambda: new, lambda: q)
        return q, (q, taken)

    chain = lambda q, key: lax.scan(step, q, jax.random.split(key, 20))[1]
    (ours, took), (theirs, took2) = (run(chain)(draw(3), jax.random.key(1)) for run in (mlx_backend.jit, jax.jit))
    assert (took == took2).all()
    close(ours, theirs, 1e-3)


def test_pinn_laplacian_gradient():
    params = [
        (draw(2, 8, seed=1), draw(8, seed=2)),
        (draw(8, 8, seed=3) / 3, draw(8, seed=4)),
        (draw(8, 1, seed=5), draw(1, seed=6)),
    ]

    def u(params, x):
        for w, b in params[:-1]:
            x = jnp.tanh(x @ w + b)
        return (x @ params[-1][0] + params[-1][1])[0]

    laplacian = lambda p, x: jnp.trace(jax.hessian(u, argnums=1)(p, x))
    loss = lambda p, xs: jnp.mean((jax.vmap(laplacian, (None, 0))(p, xs) - 1) ** 2)
    xs = draw(5, 2, seed=9)
    close(mlx_backend.jit(jax.grad(loss))(params, xs), jax.jit(jax.grad(loss))(params, xs), 1e-3)


def test_fft_filter():
    def low_pass(signal, cut):
        spectrum = jnp.fft.rfft(signal)
        keep = jnp.arange(spectrum.shape[-1]) < cut
        return jnp.fft.irfft(jnp.where(keep, spectrum, 0), signal.shape[-1])

    signal = draw(3, 64)
    close(mlx_backend.jit(low_pass)(signal, 9), low_pass(signal, 9))
    grad = jax.grad(lambda s: jnp.sum(low_pass(s, 9) ** 3))
    close(mlx_backend.jit(grad)(signal), grad(signal))
