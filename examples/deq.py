"""A deep equilibrium layer: reverse mode through the while loop that finds its fixed point.

The layer's output is the z with z = tanh(W z + U x + b): one layer of unlimited depth. A while loop iterates until
nothing moves by more than a tolerance, so how often depends on the data. jax.lax refuses reverse mode through it; with
checkpoint="auto" it is differentiated as it ran, in memory fixed beforehand. The gradient is compared with the one from
the implicit function theorem, which knows only the fixed point.

    python examples/deq.py [--tiny] [--output FOLDER]
"""

import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
from common import figure, options

from quabla_jax import loops

UNITS, TOLERANCE = 24, 1e-6


def spirals(count, seed=0):
    """Points of two interleaved spirals and which of them each lies on."""
    rng = np.random.default_rng(seed)
    label = np.arange(count) % 2
    turn = 0.5 + 2.6 * np.sqrt(rng.uniform(size=count)) * np.pi / 2
    angle = turn * 1.4 + np.pi * label
    points = turn[:, None] * np.stack([np.cos(angle), np.sin(angle)], 1) / 4.5
    return jnp.asarray(points + 0.02 * rng.standard_normal((count, 2)), jnp.float32), jnp.asarray(label, jnp.float32)


def parameters(key):
    w, u, read = jax.random.split(key, 3)
    return {
        "w": jax.random.normal(w, (UNITS, UNITS)) / UNITS**0.5,
        "u": jax.random.normal(u, (2, UNITS)) * 2,
        "b": jnp.zeros(UNITS),
        "read": jax.random.normal(read, (UNITS,)) / UNITS**0.5,
    }


def layer(p, z, x):
    # The Frobenius norm bounds the spectral one: below 1 the map contracts, so the fixed point exists and is unique.
    w = p["w"] * (0.9 / jnp.maximum(0.9, jnp.linalg.norm(p["w"])))
    return jnp.tanh(z @ w + x @ p["u"] + p["b"])


def equilibrium(p, x, checkpoint="auto"):
    """(fixed points [n, units], passes through the layer)."""

    def moving(carry):
        z, before, _ = carry
        return jnp.max(jnp.abs(z - before)) > TOLERANCE

    def again(carry):
        z, _, passes = carry
        return layer(p, z, x), z, passes + 1

    start = jnp.zeros((x.shape[0], UNITS), x.dtype)
    z, _, passes = loops.while_loop(moving, again, (start, start + 1, jnp.int32(0)), checkpoint=checkpoint)
    return z, passes


def score(p, x):
    return equilibrium(p, x)[0] @ p["read"]


def loss(p, x, label):
    return jnp.mean(optax.sigmoid_binary_cross_entropy(score(p, x), label))


def implicit_gradient(p, x, label):
    """The same gradient from z = f(z) alone: dL/dp = (dL/dz (1 - df/dz)^-1) df/dp."""
    z, _ = equilibrium(p, x, checkpoint=None)
    outer, dz = jax.grad(
        lambda p, z: jnp.mean(optax.sigmoid_binary_cross_entropy(z @ p["read"], label)), argnums=(0, 1)
    )(p, z)
    jacobians = jax.vmap(lambda z, x: jax.jacobian(lambda z: layer(p, z, x))(z))(z, x)
    adjoint = jnp.linalg.solve(jnp.swapaxes(jnp.eye(UNITS) - jacobians, 1, 2), dz[..., None])[..., 0]
    inner = jax.vjp(lambda p: layer(p, z, x), p)[1](adjoint)[0]
    return jax.tree.map(jnp.add, outer, inner)


def train(p, x, label, steps, report=print):
    method = optax.adam(optax.cosine_decay_schedule(2e-2, steps))

    @jax.jit
    def step(p, state):
        value, slope = jax.value_and_grad(loss)(p, x, label)
        update, state = method.update(slope, state)
        return optax.apply_updates(p, update), state, value

    state, history = method.init(p), []
    for i in range(steps):
        p, state, value = step(p, state)
        history.append(float(value))
        if i % 100 == 0:
            report(f"{i:4d}  loss {history[-1]:.4f}")
    return p, np.asarray(history)


def picture(path, p, x, label, history, size=80):
    side = np.linspace(-1.15, 1.15, size, dtype=np.float32)
    plane = jnp.asarray(np.stack(np.meshgrid(side, side), -1).reshape(-1, 1, 2))
    passes = jax.jit(lambda q: jax.lax.map(lambda x: equilibrium(p, x)[1], q))(plane)  # each point by itself
    belief = jax.nn.sigmoid(jax.jit(score)(p, plane[:, 0]))
    shape = {"origin": "lower", "extent": (-1.15, 1.15, -1.15, 1.15)}
    with figure(path, 14, 4) as drawn:
        classes, depth, training = drawn.subplots(1, 3)
        values = classes.imshow(np.asarray(belief).reshape(size, size), cmap="RdBu", vmin=0, vmax=1, **shape)
        for spiral, colour in enumerate(("salmon", "lightskyblue")):
            points = np.asarray(x)[np.asarray(label) == spiral]
            classes.scatter(*points.T, c=colour, edgecolor="black", linewidth=0.6, s=16, label=f"spiral {spiral}")
        classes.set(title="points, and what the layer says of the plane", xlabel="$x_1$", ylabel="$x_2$")
        classes.legend(loc="lower left")
        drawn.colorbar(values, ax=classes, label="probability of spiral 1")
        counts = depth.imshow(np.asarray(passes).reshape(size, size), **shape)
        depth.set(title="passes of the while loop", xlabel="$x_1$", ylabel="$x_2$")
        drawn.colorbar(counts, ax=depth, label=f"passes until nothing moves by {TOLERANCE:g}")
        training.semilogy(history)
        training.set(title="training", xlabel="step", ylabel="loss")


def main(argv=None):
    args = options(__doc__, "few steps on few points", argv)
    began = time.perf_counter()
    x, label = spirals(60 if args.tiny else 300)
    p, history = train(parameters(jax.random.key(0)), x, label, 30 if args.tiny else 1000)
    ours, theirs = (jax.tree.leaves(f(p, x, label)) for f in (jax.jit(jax.grad(loss)), jax.jit(implicit_gradient)))
    scale = max(float(jnp.max(jnp.abs(t))) for t in theirs)
    off = max(float(jnp.max(jnp.abs(o - t))) for o, t in zip(ours, theirs)) / scale
    right = float(jnp.mean((jax.jit(score)(p, x) > 0) == (label > 0.5)))
    print(
        f"{100 * right:.1f} % told apart in {int(equilibrium(p, x)[1])} passes; against the implicit function theorem the "
        f"gradient is off by {off:.1e} of its largest part; {time.perf_counter() - began:.0f} s"
    )
    picture(args.output / "deq.png", p, x, label, history, size=20 if args.tiny else 80)
    return right, off


if __name__ == "__main__":
    main()
