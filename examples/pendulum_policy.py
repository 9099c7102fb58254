"""A policy that swings up a pendulum, trained by the gradient through rollouts of the simulation.

The motor is weaker than gravity, so from below the pendulum has to be rocked up. A small network maps (sine, cosine,
speed) to a torque; the cost of a rollout (how far from upright, how fast, how much torque) over 300 steps is averaged
over many starts and differentiated with respect to the network. The rollout is one scan, mapped over the starts.

    python examples/pendulum_policy.py [--tiny] [--output FOLDER]
"""

import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
from common import figure, options

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


def rollout(p, start, steps=STEPS):
    """(total cost, states [steps, 2], torques [steps]) from one start."""

    def step(carry, _):
        state, cost = carry
        u = torque(p, state)
        # Semi-implicit Euler: the swing's energy does not drift
        speed = state[1] + DT * (GRAVITY * jnp.sin(state[0]) - DAMPING * state[1] + u)
        state = jnp.stack([state[0] + DT * speed, speed])
        cost = cost + DT * ((1 - jnp.cos(state[0])) + 0.02 * speed**2 + 0.002 * u**2)
        return (state, cost), (state, u)

    (_, cost), (states, torques) = lax.scan(step, (start, jnp.zeros((), start.dtype)), None, length=steps)
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
    method = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(optax.cosine_decay_schedule(4e-3, iterations)))

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
    batch, reach, longer = starts(jax.random.key(999), 24), 2.5 * np.pi, 2 * STEPS
    angles, speeds = np.meshgrid(np.linspace(-reach, reach, 100), np.linspace(-9, 9, 60))
    with figure(path, 17, 4) as drawn:
        *phases, swing, training = drawn.subplots(1, 4)
        for axis, policy, name in zip(phases, (untrained, p), ("before training", "after training")):
            field = jax.vmap(jax.vmap(lambda a, s, q=policy: torque(q, jnp.stack([a, s]))))(angles, speeds)
            torques = axis.imshow(
                field, origin="lower", aspect="auto", extent=(-reach, reach, -9, 9), cmap="PuOr", alpha=0.6,
                vmin=-STRONGEST, vmax=STRONGEST,
            )  # fmt: skip
            for states in np.asarray(jax.vmap(lambda s, q=policy: rollout(q, s)[1])(batch)):
                axis.plot(states[:, 0], states[:, 1], linewidth=0.7, color="black")
                axis.plot(*states[-1], "o", color="red", markersize=4)
            axis.set(xlim=(-reach, reach), ylim=(-9, 9), xlabel="angle from upright, rad", ylabel="speed, rad/s")
            axis.set(title=f"{name} (red: the end)", xticks=np.pi * np.arange(-2, 3))
            axis.set_xticklabels(["$-2\\pi$", "$-\\pi$", "0", "$\\pi$", "$2\\pi$"])
        drawn.colorbar(torques, ax=phases[1], label="torque")
        _, states, torques = rollout(p, jnp.asarray([np.pi, 0.1]), longer)
        seconds = DT * np.arange(longer)
        swing.plot(seconds, np.cos(states[:, 0]), label="height: cosine of the angle")
        swing.plot(seconds, torques / STRONGEST, label="torque, share of the strongest", linewidth=1)
        swing.axvline(DT * STEPS, color="grey", linestyle=":", label="end of the rollouts in training")
        swing.set(title="from hanging", xlabel="seconds", ylim=(-1.1, 1.9), yticks=(-1, -0.5, 0, 0.5, 1))
        swing.legend(loc="upper center", fontsize=8)
        training.plot(history)
        training.set(title="training", xlabel="iteration", ylabel="mean cost of 64 rollouts", ylim=(0, None))


def main(argv=None):
    args = options(__doc__, "few iterations, few starts", argv)
    began = time.perf_counter()
    untrained = parameters(jax.random.key(0))
    p, history = train(untrained, *((20, 8) if args.tiny else (500, 64)))
    unseen = starts(jax.random.key(12345), 200)
    before, after = (float(jax.jit(upright)(q, unseen)) for q in (untrained, p))
    print(
        f"cost {history[0]:.2f} -> {history[-1]:.2f}; of 200 unseen starts {100 * after:.0f} % end upright "
        f"(untrained {100 * before:.0f} %), {time.perf_counter() - began:.0f} s"
    )
    picture(args.output / "pendulum_policy.png", untrained, p, history)
    return history, after


if __name__ == "__main__":
    main()
