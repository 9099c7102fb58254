"""Data assimilation: the forcing of Lorenz's 1996 model, found by differentiating through 50,000 steps of a chaotic model.

Thirty-six variables on a ring, dx_i/dt = (x_{i+1} - x_{i-2}) x_{i-1} - x_i + F. Every fifth step of 0.01 two of three are
observed with noise. The assimilation runs the model over all observations and pulls it towards each: the gain is large
enough for the model to follow the truth, so that the sensitivities stay bounded although the model alone is chaotic
(it forgets its start in about three time units; the record is 500 long). What is learnt, by the gradient of the mean
squared innovation (observation minus forecast) over the whole record: the forcing F, how much of an innovation an
observed variable takes over, and how much its neighbours do.

    python examples/lorenz96.py [--tiny] [--output FOLDER]

The loop keeps about two square roots of its carries (qb.checkpointing("sqrt")) instead of what each step computed.
"""

import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
from common import figure, options

import quabla_jax as qb
from quabla_jax.compat import lax

N, DT, BETWEEN, NOISE, TRUE_FORCING = 36, 0.01, 5, 0.5, 8.0
OBSERVED = np.flatnonzero(np.arange(N) % 3 < 2)


def rates(x, forcing):
    return (jnp.roll(x, -1) - jnp.roll(x, 2)) * jnp.roll(x, 1) - x + forcing


def model(x, forcing):
    """The forecast from one observation to the next: five steps of the classical Runge-Kutta method."""

    def step(_, x):
        k1 = rates(x, forcing)
        k2 = rates(x + 0.5 * DT * k1, forcing)
        k3 = rates(x + 0.5 * DT * k2, forcing)
        k4 = rates(x + DT * k3, forcing)
        return x + (DT / 6) * (k1 + 2 * k2 + 2 * k3 + k4)

    return lax.fori_loop(0, BETWEEN, step, x)


def record(windows, seed=0):
    """(truth at each observation, noisy observations of two variables of three)."""
    rng = np.random.default_rng(seed)
    start = jnp.asarray(TRUE_FORCING + rng.standard_normal(N))
    advance = lambda x, _: (model(x, TRUE_FORCING),) * 2
    start, _ = lax.scan(advance, start, None, length=200)  # onto the attractor
    _, truth = jax.jit(lambda x: lax.scan(advance, x, None, length=windows))(start)
    return truth, truth[:, OBSERVED] + NOISE * rng.standard_normal((windows, len(OBSERVED)))


def assimilate(theta, observations):
    """(analyses, innovations) over the whole record, from a start that knows nothing."""
    forcing, gains = theta[0], jax.nn.sigmoid(theta[1:])

    def window(x, seen):
        x = model(x, forcing)
        innovation = jnp.zeros(N, x.dtype).at[OBSERVED].set(seen - x[OBSERVED])
        beside = 0.5 * (jnp.roll(innovation, 1) + jnp.roll(innovation, -1))
        x = x + gains[0] * innovation + gains[1] * beside
        return x, (x, innovation[OBSERVED])

    return lax.scan(window, jnp.zeros(N, observations.dtype), observations)[1]


def loss(theta, observations):
    return jnp.mean(assimilate(theta, observations)[1] ** 2)


def fit(observations, iterations, report=print):
    with qb.checkpointing("sqrt"):
        gradient = jax.jit(jax.value_and_grad(loss)).lower(jnp.zeros(3), observations).compile()
    theta = jnp.asarray([6.0, 0.0, 0.0])
    method = optax.adam(optax.cosine_decay_schedule(0.4, iterations))
    state, history = method.init(theta), []
    for i in range(iterations):
        value, slope = gradient(theta, observations)
        history.append((float(value), *map(float, theta)))
        report(f"{i:3d}  innovation {float(value):.4f}  forcing {float(theta[0]):.3f}")
        update, state = method.update(slope, state)
        theta = optax.apply_updates(theta, update)
    return theta, np.asarray(history)


def picture(path, truth, before, after, history):
    shown = slice(-min(200, len(truth)), None)
    times = np.arange(len(truth))[shown] * DT * BETWEEN
    extent = (times[0], times[-1], 0, N)
    with figure(path, 11, 7) as drawn:
        ((true, found), (error, fitted)) = drawn.subplots(2, 2)
        for axis, field, name in ((true, truth, "truth"), (found, after, "analysis, two of three observed")):
            values = axis.imshow(
                np.asarray(field[shown]).T, aspect="auto", origin="lower", extent=extent, vmin=-10, vmax=12
            )
            axis.set(title=f"{name}: the end", xlabel="model time", ylabel="variable")
        drawn.colorbar(values, ax=[true, found], label="value")
        for field, name in ((before, "first guess"), (after, "fitted")):
            off = np.sqrt(np.mean((np.asarray(field) - np.asarray(truth)) ** 2, 1))
            width = max(1, len(off) // 200)
            off = off[: len(off) // width * width].reshape(-1, width).mean(1)
            error.plot(np.arange(len(off)) * width * DT * BETWEEN, off, label=name)
        error.axhline(NOISE, color="grey", linestyle=":", label="noise of the observations")
        error.set(title="error of the analysis", xlabel="model time", ylabel="root mean square error", ylim=(0, None))
        error.legend()
        fitted.plot(history[:, 1], marker=".", label="fitted")
        fitted.axhline(TRUE_FORCING, color="grey", linestyle=":", label="truth")
        fitted.set(title="forcing", xlabel="iteration", ylabel="F")
        fitted.legend(loc="lower right")


def main(argv=None):
    args = options(__doc__, "1,500 steps, few iterations", argv)
    windows, iterations = (300, 12) if args.tiny else (10_000, 40)
    began = time.perf_counter()
    truth, observations = record(windows)
    theta, history = fit(observations, iterations)
    analyse = jax.jit(lambda theta: assimilate(theta, observations)[0])
    before, after = analyse(jnp.asarray([6.0, 0.0, 0.0])), analyse(theta)
    error = float(jnp.sqrt(jnp.mean((after - truth)[windows // 4 :] ** 2)))
    print(
        f"{windows * BETWEEN} steps a gradient; forcing {float(theta[0]):.3f} (true {TRUE_FORCING}), gains "
        f"{np.round(np.asarray(jax.nn.sigmoid(theta[1:])), 3)}, error {error:.3f}, {time.perf_counter() - began:.0f} s"
    )
    picture(args.output / "lorenz96.png", truth, before, after, history)
    return float(theta[0]), error


if __name__ == "__main__":
    main()
