"""Lotka and Volterra's equations fitted to a century-old record of lynx and hare, through 20,000 integration steps.

Between 1900 and 1920 the Hudson's Bay Company counted pelts; the two populations chase each other through two cycles. The
four rates and the two first populations are found by the gradient through a Runge-Kutta integration: a scan over years
whose body is a loop over the steps of a year. The same gradient says how well the record determines each number: the
Hessian at the fit, forward over reverse through the same loops, gives the standard errors.

    python examples/lynx_hare.py [--tiny] [--output FOLDER]
"""

import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
from common import figure, options

import quabla_jax as qb
from quabla_jax.demo.model import NAMES, START, load_record


def rates(state, p):
    hare, lynx = state[0], state[1]
    return qb.stack([(p[0] - p[1] * lynx) * hare, (p[2] * hare - p[3]) * lynx])


def trajectory(theta, years=21, steps=1000):
    """Populations [years, 2] at each new year; theta [6]: logarithms of the rates and the first populations."""
    p, h = qb.exp(theta), 1.0 / steps

    def step(i, state, p):
        k1 = rates(state, p)
        k2 = rates(state + 0.5 * h * k1, p)
        k3 = rates(state + 0.5 * h * k2, p)
        k4 = rates(state + h * k3, p)
        return state + (h / 6.0) * (k1 + 2.0 * k2 + 2.0 * k3 + k4)

    def year(state, i, p):
        state = qb.fori_loop(0, steps, step, state, operands=(p,), checkpoint="sqrt")
        return state, state

    first = p[4:6]
    _, later = qb.scan(year, first, length=years - 1, operands=(p,))
    return qb.concat([qb.expand_dims(first, 0), later], 0)


def misfit(theta, pelts, steps):
    """Squared differences of logarithms, summed."""
    return qb.sum(qb.square(qb.log(trajectory(theta, len(pelts), steps)) - qb.log(pelts)))


def fit(pelts, iterations, steps, report=print):
    method = optax.adam(optax.cosine_decay_schedule(0.05, iterations))

    @jax.jit
    def update(theta, state):
        value, slope = jax.value_and_grad(misfit)(theta, pelts, steps)
        change, state = method.update(slope, state)
        return optax.apply_updates(theta, change), state, value

    theta = jnp.asarray(START, pelts.dtype)
    state, history = method.init(theta), []
    for i in range(iterations):
        theta, state, value = update(theta, state)
        history.append(float(value))
        if i % 50 == 0:
            report(f"{i:4d}  squared misfit {history[-1]:.3f}")
    return theta, np.asarray(history)


def errors(theta, pelts, steps):
    """Standard errors of theta, from the curvature of the misfit and its size at the fit."""
    # Outside a transform Quabla's loops run in Python, step by step: both are compiled.
    value = jax.jit(misfit, static_argnums=2)(theta, pelts, steps)
    curvature = jax.jit(jax.hessian(misfit), static_argnums=2)(theta, pelts, steps)
    variance = value / (pelts.size - theta.size)
    return jnp.sqrt(jnp.diag(jnp.linalg.inv(curvature / 2)) * variance)


def picture(path, years, pelts, theta, spread, history):
    # The fine curve is the same model, read out 25 times a year by shortening its unit of time.
    points = 25
    fine = theta - jnp.log(points) * jnp.asarray([1.0, 1, 1, 1, 0, 0], theta.dtype)
    curve = np.asarray(jax.jit(lambda t: trajectory(t, 20 * points + 1, 40))(fine))
    units = ["/ year", "/ 1000 / year", "/ 1000 / year", "/ year", "thousand", "thousand"]
    with figure(path, 14.5, 4) as drawn:
        record, numbers, training = drawn.subplots(1, 3, width_ratios=(2, 1.3, 1))
        for column, (name, colour) in enumerate((("hare", "tab:blue"), ("lynx", "tab:orange"))):
            record.plot(
                years[0] + np.arange(len(curve)) / points, curve[:, column], color=colour, label=f"{name}, model"
            )
            record.plot(years, pelts[:, column], "o", color=colour, label=f"{name}, record")
        record.set(xlabel="year", ylabel="pelts, thousands", xticks=np.arange(1900, 1921, 5), ylim=(0, 95))
        record.set(title="the record and the fitted model")
        record.legend(ncols=2, loc="upper center")
        bars = numbers.barh(range(6), 100 * np.asarray(spread), color="tab:green", alpha=0.6)
        values = [f"{value:.3g} {unit}" for value, unit in zip(np.exp(np.asarray(theta)), units)]
        numbers.bar_label(bars, values, padding=3)
        numbers.set(yticks=range(6), yticklabels=NAMES, xlim=(0, 190 * float(np.max(spread))))
        numbers.set(title="fitted numbers; bars: how uncertain", xlabel="standard error, %")
        training.semilogy(history)
        training.set(title="fit", xlabel="iteration", ylabel="squared misfit")


def main(argv=None):
    args = options(__doc__, "few iterations, few steps a year", argv)
    began = time.perf_counter()
    iterations, steps = (60, 50) if args.tiny else (120, 1000)
    years, table = load_record()
    pelts = jnp.asarray(table, jnp.float32)
    theta, history = fit(pelts, iterations, steps)
    spread = errors(theta, pelts, steps)
    for name, value, error in zip(NAMES, np.exp(np.asarray(theta)), np.asarray(spread)):
        print(f"{name:>12}  {value:8.4f}  +- {100 * error:.0f} %")
    print(f"squared misfit {history[0]:.2f} -> {history[-1]:.3f}, {time.perf_counter() - began:.0f} s")
    picture(args.output / "lynx_hare.png", years, table, theta, spread, history)
    return theta, history, spread


if __name__ == "__main__":
    main()
