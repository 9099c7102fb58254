"""One step of each integrator: the new state, the error estimate, the slope at the end and the dense output.

Sources: Hairer, Norsett & Wanner, Solving Ordinary Differential Equations I (explicit methods, Dormand-Prince 5(4),
its continuous extension and the choice of steps); Shampine & Reichelt, The MATLAB ODE Suite (Rosenbrock 2(3)).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

Slope = Callable[[jax.Array, jax.Array], jax.Array]

# nodes c, rows of a, weights b
EXPLICIT = {
    "euler": ((0.0,), ((),), (1.0,)),
    "heun": ((0.0, 1.0), ((), (1.0,)), (1 / 2, 1 / 2)),
    "rk4": ((0.0, 0.5, 0.5, 1.0), ((), (0.5,), (0.0, 0.5), (0.0, 0.0, 1.0)), (1 / 6, 1 / 3, 1 / 3, 1 / 6)),
}

DOPRI5_NODES = (0.0, 1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0, 1.0)
DOPRI5_ROWS = (
    (),
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)
DOPRI5_ERROR = (71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40)
DOPRI5_DENSE = (
    -12715105075 / 11282082432,
    0.0,
    87487479700 / 32700410799,
    -10690763975 / 1880347072,
    701980252875 / 199316789632,
    -1453857185 / 822651844,
    69997945 / 29380423,
)

ROSENBROCK_D = 1 / (2 + math.sqrt(2))
ROSENBROCK_E = 6 + math.sqrt(2)

# The order of the error estimate, which the step-size controller divides by.
ERROR_ORDER = {"dopri5": 5.0, "rosenbrock23": 3.0}


class Step(NamedTuple):
    """A step from t to t + dt.

    Attributes:
        y: the new state. error: its estimated error. slope: f at the new state, or None where the method does not
        need it. dense: theta [m] -> states [m, *shape] inside the step, theta from 0 to 1.
    """

    y: jax.Array
    error: jax.Array
    slope: jax.Array | None
    dense: Callable[[jax.Array], jax.Array]


def weighted(weights: Sequence[float], slopes: Sequence[jax.Array]) -> Any:
    """The sum of weight * slope over the weights that are not zero."""
    terms = [w * k for w, k in zip(weights, slopes) if w]
    return sum(terms[1:], terms[0]) if terms else 0.0


def explicit_step(method: str, f: Slope, y: jax.Array, t: Any, dt: Any, first: jax.Array | None = None) -> jax.Array:
    """The new state by a fixed-step method; `first` is f(y, t) where it is known."""
    nodes, rows, weights = EXPLICIT[method]
    slopes: list[jax.Array] = []
    for node, row in zip(nodes, rows):
        if not slopes and first is not None:
            slopes.append(first)
            continue
        stage = y + dt * weighted(row, slopes) if any(row) else y
        slopes.append(f(stage, t + node * dt))
    return y + dt * weighted(weights, slopes)


def _column(theta: jax.Array, y: jax.Array) -> jax.Array:
    """`theta` shaped to broadcast against states."""
    return theta.reshape((-1,) + (1,) * y.ndim)


def hermite(y: jax.Array, y_new: jax.Array, start: jax.Array, end: jax.Array) -> Callable[[jax.Array], jax.Array]:
    """The cubic through both states with end slopes `start` and `end`, each times dt."""
    rise = y_new - y

    def dense(theta: jax.Array) -> jax.Array:
        s = _column(theta, y)
        return y + s * (start + s * ((3.0 * rise - 2.0 * start - end) + s * (start + end - 2.0 * rise)))

    return dense


def dopri5_step(f: Slope, y: jax.Array, t: jax.Array, dt: jax.Array, first: jax.Array) -> Step:
    """Dormand-Prince 5(4) from the slope `first` at (y, t); the last stage is the new state."""
    slopes, stage = [first], y
    for node, row in zip(DOPRI5_NODES[1:], DOPRI5_ROWS[1:]):
        stage = y + dt * weighted(row, slopes)
        slopes.append(f(stage, t + node * dt))
    y_new, last = stage, slopes[-1]

    def dense(theta: jax.Array) -> jax.Array:
        s = _column(theta, y)
        rise = y_new - y
        bend = dt * first - rise
        back = rise - dt * last - bend
        return y + s * (rise + (1 - s) * (bend + s * (back + (1 - s) * (dt * weighted(DOPRI5_DENSE, slopes)))))

    return Step(y_new, dt * weighted(DOPRI5_ERROR, slopes), last, dense)


def _linearized(f: Slope, y: jax.Array, t: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """f, df/dy [n, n] and df/dt [n] over the flattened state, from n + 1 tangents of one evaluation."""

    def flat(vector: jax.Array, time: jax.Array) -> jax.Array:
        return f(vector.reshape(y.shape), time).reshape(-1)

    value, push = jax.linearize(flat, y.reshape(-1), t)
    n = y.size
    states = jnp.concatenate([jnp.eye(n, dtype=y.dtype), jnp.zeros((1, n), y.dtype)])
    times = jnp.zeros(n + 1, t.dtype).at[n].set(1)
    columns = jax.vmap(push, out_axes=1)(states, times)
    return value, columns[:, :n], columns[:, n]


def rosenbrock23_step(f: Slope, y: jax.Array, t: jax.Array, dt: jax.Array) -> Step:
    """The L-stable Rosenbrock 2(3) pair of ode23s."""
    shape, v = y.shape, y.reshape(-1)
    f0, jacobian, in_time = _linearized(f, y, t)
    shift = dt * ROSENBROCK_D
    matrix = jnp.eye(v.size, dtype=v.dtype) - shift * jacobian

    def slope(vector: jax.Array, time: jax.Array) -> jax.Array:
        return f(vector.reshape(shape), time).reshape(-1)

    k1 = jnp.linalg.solve(matrix, f0 + shift * in_time)
    f1 = slope(v + 0.5 * dt * k1, t + 0.5 * dt)
    k2 = jnp.linalg.solve(matrix, f1 - k1) + k1
    v_new = v + dt * k2
    f2 = slope(v_new, t + dt)
    k3 = jnp.linalg.solve(matrix, f2 - ROSENBROCK_E * (k2 - f1) - 2.0 * (k1 - f0) + shift * in_time)
    d = ROSENBROCK_D

    def dense(theta: jax.Array) -> jax.Array:
        s = theta.reshape(-1, 1)
        states = v + dt * (s * (1 - s) * k1 + s * (s - 2 * d) * k2) / (1 - 2 * d)
        return states.reshape(-1, *shape)

    error = (dt / 6.0) * (k1 - 2.0 * k2 + k3)
    return Step(v_new.reshape(shape), error.reshape(shape), None, dense)


def rms(x: jax.Array) -> jax.Array:
    """The root of the mean square."""
    return jnp.sqrt(jnp.mean(x * x))


def first_step(f: Slope, y0, f0, t0, direction, rtol: float, atol: float, order: float) -> jax.Array:
    """The size of the first step (Hairer, Norsett & Wanner, section II.4); it has no gradient."""
    y0, f0, t0 = (lax.stop_gradient(v) for v in (y0, f0, t0))
    scale = atol + rtol * jnp.abs(y0)
    d0, d1 = rms(y0 / scale), rms(f0 / scale)
    tiny = jnp.minimum(d0, d1) < 1e-5
    h0 = jnp.where(tiny, 1e-6, 0.01 * d0 / jnp.where(tiny, 1.0, d1))
    f1 = lax.stop_gradient(f(y0 + direction * h0 * f0, t0 + direction * h0))
    largest = jnp.maximum(d1, rms((f1 - f0) / scale) / h0)
    flat = largest <= 1e-15
    h1 = jnp.where(flat, jnp.maximum(h0 * 1e-3, 1e-6), (0.01 / jnp.where(flat, 1.0, largest)) ** (1.0 / order))
    return lax.stop_gradient(jnp.minimum(100.0 * h0, h1)).astype(y0.dtype)


def next_size(norm, before, accepted, order: float) -> jax.Array:
    """The factor for the next step: PI after an accepted one, I and at most 1 after a rejected one, in [0.2, 10]."""
    grow = 0.9 * before ** (0.4 / order) * norm ** (-0.7 / order)
    shrink = 0.9 * norm ** (-1.0 / order)
    return jnp.where(accepted, jnp.clip(grow, 0.2, 10.0), jnp.clip(shrink, 0.2, 1.0))
