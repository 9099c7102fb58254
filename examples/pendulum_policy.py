"""A policy that swings up a pendulum, trained by the gradient through rollouts of the simulation.

The motor is weaker than gravity, so from below the pendulum has to be rocked up. A small network maps (sine, cosine,
speed) to a torque; the cost of a rollout (how far from upright, how fast, how much torque) over 300 steps is averaged
over many starts and differentiated with respect to the network. The rollout is one scan, mapped over the starts.

    python examples/pendulum_policy.py [--tiny] [--output FOLDER]
"""

import argparse
import pathlib
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax

import quabla_jax as qb
from quabla_jax.compat import lax

DT, STEPS, GRAVITY, DAMPING, STRONGEST, UNITS = 0.02, 300, 9.81, 0.05, 5.0, 32


def parameters(key):
    first, second, last = jax.random.split(key, 3)
    return {
        "first": jax.random.normal(first, (3, UNITS)) * 0.7,
        "b1": jnp.zeros(UNITS),
        "second": jax.random.normal(second, (UNITS, UNITS)) / UNITS**0.5,
        "b2": jnp.zeros(UNITS),
        "last": jax.random.normal(last, (UNITS,)) / UNITS**0.5 * 0.1,
    }


def torque(p, state):
    """Of state [angle from upright, speed]."""
    angle, speed = state
    h = jnp.tanh(jnp.stack([jnp.sin(angle), jnp.cos(angle), speed / 4]) @ p["first"] + p["b1"])
    return STRONGEST * jnp.tanh(jnp.tanh(h @ p["second"] + p["b2"]) @ p["last"])


def rollout(p, start):
    """(total cost, states [STEPS, 2], torques [STEPS]) from one start."""

    def step(carry, _):
        state, cost = carry
        u = torque(p, state)
        # Semi-implicit Euler: the swing's energy does not drift
        speed = state[1] + DT * (GRAVITY * jnp.sin(state[0]) - DAMPING * state[1] + u)
        state = jnp.stack([state[0] + DT * speed, speed])
        cost = cost + DT * ((1 - jnp.cos(state[0])) + 0.02 * speed**2 + 0.002 * u**2)
        return (state, cost), (state, u)

    (_, cost), (states, torques) = lax.scan(step, (start, jnp.zeros((), start.dtype)), None, length=STEPS)
    return cost, states, torques


def starts(key, count):
    angle, speed = jax.random.uniform(key, (2, count), minval=-1.0)
    return jnp.stack([np.pi * angle, 2 * speed], 1)


def loss(p, batch):
    return jnp.mean(jax.vmap(lambda s: rollout(p, s)[0])(batch))


def upright(p, batch):
    """The share of rollouts whose last second is spent within 15 degrees of upright."""
    states = jax.vmap(lambda s: rollout(p, s)[1])(batch)
    return jnp.mean(jnp.all(jnp.cos(states[:, -50:, 0]) > np.cos(np.pi / 12), 1))


def train(p, iterations, count, report=print):
    method = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(optax.cosine_decay_schedule(1e-2, iterations)))

    @jax.jit
    def step(p, state, key):
        with qb.checkpointing("sqrt"):
            value, slope = jax.value_and_grad(loss)(p, starts(key, count))
        update, state = method.update(slope, state)
        return optax.apply_updates(p, update), state, value

    state, history = method.init(p), []
    for i in range(iterations):
        p, state, value = step(p, state, jax.random.key(i))
        history.append(float(value))
        if i % 50 == 0:
            report(f"{i:4d}  cost {history[-1]:.3f}")
    return p, np.asarray(history)


def picture(path, untrained, p, history):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    batch = starts(jax.random.key(999), 24)
    figure, axes = pyplot.subplots(1, 4, figsize=(16, 4), layout="constrained")
    for axis, policy, name in ((axes[0], untrained, "before"), (axes[1], p, "after training")):
        angles, speeds = np.meshgrid(np.linspace(-2 * np.pi, 2 * np.pi, 80), np.linspace(-9, 9, 60))
        field = jax.vmap(jax.vmap(lambda a, s, q=policy: torque(q, jnp.stack([a, s]))))(angles, speeds)
        axis.imshow(
            field, origin="lower", aspect="auto", extent=(-2 * np.pi, 2 * np.pi, -9, 9),
            cmap="PuOr", vmin=-STRONGEST, vmax=STRONGEST, alpha=0.6,
        )  # fmt: skip
        for states in np.asarray(jax.vmap(lambda s, q=policy: rollout(q, s)[1])(batch)):
            axis.plot(states[:, 0], states[:, 1], linewidth=0.7, color="black")
            axis.plot(*states[-1], "o", color="red", markersize=4)
        axis.set(xlim=(-2 * np.pi, 2 * np.pi), ylim=(-9, 9), xlabel="angle from upright", ylabel="speed", title=name)
    _, states, torques = rollout(p, jnp.asarray([np.pi, 0.1]))
    seconds = DT * np.arange(STEPS)
    axes[2].plot(seconds, np.cos(states[:, 0]), label="height")
    axes[2].plot(seconds, torques / STRONGEST, label="torque, of the strongest")
    axes[2].set(title="from hanging", xlabel="seconds", ylim=(-1.1, 1.6))
    axes[2].legend(loc="upper center")
    axes[3].plot(history)
    axes[3].set(title="cost of a rollout", xlabel="iteration")
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def main(argv=None):
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--tiny", action="store_true", help="few iterations, few starts")
    options.add_argument("--output", type=pathlib.Path, default=pathlib.Path("."))
    args = options.parse_args(argv)
    began = time.perf_counter()
    untrained = parameters(jax.random.key(0))
    p, history = train(untrained, *((20, 8) if args.tiny else (500, 64)))
    unseen = starts(jax.random.key(12345), 200)
    before, after = (float(jax.jit(upright)(q, unseen)) for q in (untrained, p))
    print(
        f"cost {history[0]:.2f} -> {history[-1]:.2f}; of 200 unseen starts {100 * after:.0f} % end upright "
        f"(untrained {100 * before:.0f} %), {time.perf_counter() - began:.0f} s"
    )
    args.output.mkdir(parents=True, exist_ok=True)
    picture(args.output / "pendulum_policy.png", untrained, p, history)
    return history, after


if __name__ == "__main__":
    main()
