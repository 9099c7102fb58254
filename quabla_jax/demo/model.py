"""The Lotka-Volterra model of the lynx-hare record, written with Quabla's loops."""

from __future__ import annotations

import importlib.resources

import jax
import jax.numpy as jnp
import numpy as np

import quabla_jax as qb

__all__ = ["NAMES", "START", "STEPS_A_YEAR", "gradient_memory", "load_record", "loss", "trajectory"]

STEPS_A_YEAR = 1000
NAMES = ("hare birth", "predation", "lynx birth", "lynx death", "hare 1900", "lynx 1900")
START = np.log([0.5, 0.02, 0.02, 0.8, 33.0, 5.0])  # a rough guess, in logarithms so that every rate stays positive


def load_record() -> tuple[np.ndarray, np.ndarray]:
    """Years [21] and pelts [21, 2] (hare, lynx; thousands) of the Hudson's Bay record, 1900-1920."""
    text = importlib.resources.files("quabla_jax").joinpath("data/lynx_hare.csv").read_text("utf-8")
    rows = [line for line in text.splitlines() if line[:1].isdigit()]
    table = np.array([[float(cell) for cell in row.split(",")] for row in rows])
    return table[:, 0], table[:, 1:]


def _rates(state: jax.Array, p: jax.Array) -> jax.Array:
    hare, lynx = state[0], state[1]
    return jnp.stack([(p[0] - p[1] * lynx) * hare, (p[2] * hare - p[3]) * lynx])


def trajectory(theta: jax.Array, years: int = 21, steps: int = STEPS_A_YEAR, checkpoint="auto") -> jax.Array:
    """Populations [years, 2] at each new year, by classical Runge-Kutta with `steps` steps a year.

    theta [6]: logarithms of the four rates (a year) and the two populations of 1900.
    """
    p = jnp.exp(theta)
    h = 1.0 / steps

    def step(i, state, p):
        k1 = _rates(state, p)
        k2 = _rates(state + 0.5 * h * k1, p)
        k3 = _rates(state + 0.5 * h * k2, p)
        k4 = _rates(state + h * k3, p)
        return state + (h / 6.0) * (k1 + 2.0 * k2 + 2.0 * k3 + k4)

    def year(state, i, p):
        state = qb.fori_loop(0, steps, step, state, operands=(p,), checkpoint=checkpoint)
        return state, state

    first = p[4:6]
    _, later = qb.scan(year, first, length=years - 1, operands=(p,), checkpoint=checkpoint)
    return jnp.concatenate([first[None], later])


def loss(theta: jax.Array, pelts: jax.Array, checkpoint="auto") -> jax.Array:
    """Mean squared difference of logarithms between the model and the record."""
    return jnp.mean((jnp.log(trajectory(theta, checkpoint=checkpoint)) - jnp.log(pelts)) ** 2)


def gradient_memory(theta, pelts, checkpoint) -> int:
    """Temporary bytes of the compiled gradient, from the compiler's own memory analysis."""
    compiled = jax.jit(jax.grad(loss), static_argnums=2).lower(theta, pelts, checkpoint).compile()
    analysis = compiled.memory_analysis()
    assert analysis is not None, "XLA's CPU and GPU compilers have one"
    return analysis.temp_size_in_bytes
