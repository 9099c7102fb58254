"""Initial value problems: `odeint`, by fixed steps or with error control, differentiated through its own steps."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, tree_util

from . import _ode_steps, control, dtypes, loops
from ._cycles import refusing_cycles
from ._solver import check_capture, split_arrays
from ._staging import strong
from .arrays import any_tracer, asarray, concrete, is_tracer
from .promotion import align, floating, refuse_bool

__all__ = ["odeint"]

ADAPTIVE = ("dopri5", "rosenbrock23")


def _positive_int(value: Any, name: str) -> int:
    if isinstance(value, bool):
        raise TypeError(f"{name} must be a positive integer")
    number = operator.index(value)
    if number < 1:
        raise ValueError(f"{name} must be a positive integer")
    return number


@dataclasses.dataclass(frozen=True)
class _Problem:
    """A checked call of odeint."""

    f: Callable[..., Any]
    method: str
    y0: jax.Array
    t0: jax.Array
    t1: jax.Array
    args: tuple
    saveat: jax.Array | None

    @property
    def direction(self) -> jax.Array:
        """+1, or -1 where the time runs backwards."""
        return jnp.where(self.t1 >= self.t0, 1, -1).astype(self.y0.dtype)

    @property
    def traced(self) -> bool:
        return any_tracer(self.y0, self.t0, self.t1, self.saveat, *tree_util.tree_leaves(self.args))


def _slope(f: Callable[..., Any], args: tuple, spread: bool = False) -> _ode_steps.Slope:
    """f(y, t) as an array of the state's dtype and shape; a number, and with `spread` whatever broadcasts, is one too.

    Raises ValueError for another shape, or another float dtype than the state's.
    """

    def call(y: jax.Array, t: jax.Array) -> jax.Array:
        out = asarray(f(y, t, *args))
        if not spread:
            refuse_bool("sub", out)
        if out.shape != y.shape and not (spread and _broadcasts(out.shape, y.shape)):
            raise ValueError(
                f"odeint requires f(y, t, *args) to return the state's shape {list(y.shape)}, got {list(out.shape)}"
            )
        return jnp.broadcast_to(align("mul", out, y)[0], y.shape)

    return call


def _broadcasts(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    return len(shape) <= len(target) and all(n in (1, m) for n, m in zip(shape[::-1], target[::-1]))


# ---- fixed steps -----------------------------------------------------------------------------------------


def _fixed(problem: _Problem, steps: int, save: bool) -> jax.Array:
    """`steps` equal steps; the last state, or with `save` all of them."""
    method, f = problem.method, problem.f
    dt = (problem.t1 - problem.t0) / steps
    operands = (problem.t0, dt, *problem.args)

    def advance(i, y, t0, dt, *args):
        return _ode_steps.explicit_step(method, _slope(f, args, True), y, t0 + i * dt, dt)

    if not save:
        return control.fori_loop(0, steps, advance, problem.y0, operands=operands)

    def record(y, i, *operands):
        new = advance(i, y, *operands)
        return new, new

    _, states = control.scan(record, problem.y0, length=steps, operands=operands)
    return jnp.concatenate([problem.y0[None], states])


def _unsaved(problem: _Problem) -> jax.Array:
    """States at the save times: y0 where they equal t0, else NaN until a step reaches them."""
    times = problem.saveat
    assert times is not None
    at_start = (times == problem.t0).reshape((-1,) + (1,) * problem.y0.ndim)
    return jnp.where(at_start, problem.y0, jnp.nan).astype(problem.y0.dtype)


def _write(dense, times, saved, t, t_new, dt, direction, take) -> jax.Array:
    """The save times in (t, t_new] from a step's dense output; the others stay."""
    inside = ((times - t) * direction > 0) & ((times - t_new) * direction <= 0) & take
    theta = jnp.clip((times - t) / jnp.where(dt == 0, 1, dt), 0, 1)
    # Outside the step theta is a constant, so that no slope of it is formed.
    states = dense(jnp.where(inside, theta, 0.0))
    return jnp.where(inside.reshape((-1,) + (1,) * (saved.ndim - 1)), states, saved)


def _fixed_saveat(problem: _Problem, steps: int) -> jax.Array:
    """Fixed steps with the states at the save times by cubic Hermite interpolation."""
    method, f, shape = problem.method, problem.f, problem.y0.shape
    assert problem.saveat is not None
    count, size = problem.saveat.shape[0], problem.y0.size
    dt = (problem.t1 - problem.t0) / steps
    first = _slope(f, problem.args)(problem.y0, problem.t0)
    parts = [x.reshape(-1) for x in (problem.y0, first, _unsaved(problem))]
    operands = (problem.t0, problem.t1, dt, problem.direction, problem.saveat, *problem.args)

    def advance(i, carry, t0, t1, dt, direction, times, *args):
        y, k1 = carry[:size].reshape(shape), carry[size : 2 * size].reshape(shape)
        saved = carry[2 * size :].reshape(count, *shape)
        slope = _slope(f, args)
        t, t_new = t0 + i * dt, t0 + (i + 1) * dt
        y_new = _ode_steps.explicit_step(method, slope, y, t, dt, first=k1)
        k2 = slope(y_new, t_new)
        # t0 + steps * dt can miss t1 by rounding; the last window ends at t1 itself.
        end = jnp.where(jnp.asarray(i, t1.dtype) >= steps - 1, t1, t_new)
        dense = _ode_steps.hermite(y, y_new, dt * k1, dt * k2)
        saved = _write(dense, times, saved, t, end, dt, direction, True)
        return jnp.concatenate([y_new.reshape(-1), k2.reshape(-1), saved.reshape(-1)])

    carry = control.fori_loop(0, steps, advance, jnp.concatenate(parts), operands=operands)
    return carry[2 * size :].reshape(count, *shape)


# ---- adaptive steps --------------------------------------------------------------------------------------


class _State(NamedTuple):
    """Where an adaptive solve stands; counts are floats, as Quabla reports them."""

    t: jax.Array
    h: jax.Array
    error: jax.Array
    accepted: jax.Array
    rejected: jax.Array
    y: jax.Array
    slope: jax.Array | None
    saved: jax.Array | None


def _attempt(f, method: str, state: _State, t1, direction, times, rtol: float, atol: float) -> _State:
    """One step, taken or rejected by its error."""
    remaining = (t1 - state.t) * direction
    # A step that would leave a sliver of 1 % is stretched to end at t1; it alone depends on t1.
    last = 1.01 * state.h >= remaining
    dt = jnp.where(last, remaining, state.h) * direction
    if state.slope is not None:
        step = _ode_steps.dopri5_step(f, state.y, state.t, dt, state.slope)
    else:
        step = _ode_steps.rosenbrock23_step(f, state.y, state.t, dt)
    y, y_new, error = (lax.stop_gradient(v) for v in (state.y, step.y, step.error))
    norm = _ode_steps.rms(error / (atol + rtol * jnp.maximum(jnp.abs(y), jnp.abs(y_new))))
    take = norm <= 1.0
    # NaN compares false: it counts as the largest error and is rejected.
    bounded = jnp.where(norm < 1e10, jnp.maximum(norm, 1e-10), 1e10).astype(y.dtype)
    factor = _ode_steps.next_size(bounded, state.error, take, _ode_steps.ERROR_ORDER[method])
    t_new = jnp.where(last, t1, state.t + dt)
    passed = take.astype(y.dtype)
    return _State(
        jnp.where(take, t_new, state.t),
        lax.stop_gradient(jnp.abs(dt) * factor).astype(y.dtype),
        jnp.where(take, jnp.maximum(bounded, 1e-4), state.error).astype(y.dtype),
        state.accepted + passed,
        state.rejected + (1 - passed),
        jnp.where(take, step.y, state.y),
        None if state.slope is None or step.slope is None else jnp.where(take, step.slope, state.slope),
        None if state.saved is None else _write(step.dense, times, state.saved, state.t, t_new, dt, direction, take),
    )


def _start(problem: _Problem, rtol: float, atol: float) -> _State:
    f, y0 = _slope(problem.f, problem.args), problem.y0
    slope = f(y0, problem.t0)
    order = _ode_steps.ERROR_ORDER[problem.method]
    h = _ode_steps.first_step(f, y0, slope, problem.t0, problem.direction, rtol, atol, order)
    zero, one = jnp.zeros((), y0.dtype), jnp.ones((), y0.dtype)
    saved = None if problem.saveat is None else _unsaved(problem)
    return _State(problem.t0, h, one, zero, zero, y0, slope if problem.method == "dopri5" else None, saved)


def _unfinished(state: _State, t1, direction) -> jax.Array:
    return (t1 - state.t) * direction > 0


def _run(problem: _Problem, state: _State, rtol: float, atol: float, max_steps: int) -> _State:
    """At most `max_steps` attempts: in Python where everything is concrete, else one bounded loop that does nothing
    once t1 is reached."""
    if not problem.traced and not any_tracer(state):
        f = _slope(problem.f, problem.args)
        for _ in range(max_steps):
            if not bool(_unfinished(state, problem.t1, problem.direction)):
                break
            state = _attempt(f, problem.method, state, problem.t1, problem.direction, problem.saveat, rtol, atol)
        return state
    arrays, rebuild = split_arrays(problem.args)

    def body(_, state):
        def attempt(state):
            f = _slope(problem.f, rebuild(*arrays))
            return _attempt(f, problem.method, state, problem.t1, problem.direction, problem.saveat, rtol, atol)

        return loops.cond(_unfinished(state, problem.t1, problem.direction), attempt, lambda s: s, state)

    return loops.fori_loop(0, max_steps, body, tree_util.tree_map(strong, state))


def _adaptive(problem: _Problem, rtol: float, atol: float, max_steps: int) -> tuple[jax.Array, dict[str, jax.Array]]:
    state = _start(problem, rtol, atol)
    if problem.traced or any_tracer(state):
        check_capture(lambda y, t, *args: _slope(problem.f, args)(y, t), problem.y0, problem.t0, *problem.args)
    state = _run(problem, state, rtol, atol, max_steps)
    result = state.y if state.saved is None else state.saved
    return result, {
        "t": state.t,
        "accepted_steps": state.accepted,
        "rejected_steps": state.rejected,
        # A time that is NaN is not behind t1, and has not come to it either.
        "success": (problem.t1 - state.t) * problem.direction <= 0,
    }


# ---- the call --------------------------------------------------------------------------------------------


def _save_times(saveat: Any, t0: jax.Array, t1: jax.Array, dtype: np.dtype) -> jax.Array:
    """The save times, checked against the span where both are concrete."""
    times = asarray(saveat, dtype)
    if times.ndim != 1 or times.shape[0] < 1:
        raise ValueError(f"saveat must be a non-empty 1-D array of times, got shape {list(times.shape)}")
    if any_tracer(times, t0, t1):
        return times
    points, start, end = np.asarray(times), float(t0), float(t1)
    sign = 1.0 if end >= start else -1.0
    if (sign * np.diff(points) < 0).any():
        raise ValueError("saveat must be ordered in the direction of integration from t0 to t1")
    if not ((sign * (points - start) >= 0) & (sign * (end - points) >= 0)).all():
        raise ValueError(f"saveat times must lie inside the span [{start}, {end}]")
    return times


def _check_call(f: Any, method: Any, args: Any, t_span: Any) -> None:
    known = sorted([*_ode_steps.EXPLICIT, *ADAPTIVE])
    if not callable(f):
        raise TypeError("odeint requires a callable f(y, t, *args)")
    if method not in known:
        raise ValueError(f"method must be one of {known}, got {method!r}")
    if not isinstance(args, tuple):
        raise TypeError("args must be a tuple")
    if not isinstance(t_span, (tuple, list)) or len(t_span) != 2:
        raise TypeError("t_span must be a pair (t0, t1)")


@concrete
@refusing_cycles
def odeint(
    f: Callable[..., Any],
    y0: Any,
    t_span: Any,
    *,
    steps: int | None = None,
    method: str = "rk4",
    args: tuple = (),
    save: bool = False,
    saveat: Any = None,
    rtol: float = 1e-6,
    atol: float = 1e-9,
    max_steps: int = 512,
    info: bool = False,
) -> Any:
    """The solution of dy/dt = f(y, t, *args) from t_span[0] to t_span[1].

    Arguments:
        f: f(y, t, *args) gives an array of y's shape and dtype (with fixed steps and without saveat also a number, or what
            broadcasts); t is a 0-d array of y's dtype.
        y0: one array. t_span: (t0, t1), numbers or arrays; backward and empty spans work.
        steps: the number of equal steps, for "rk4", "heun" and "euler". method: one of these, "dopri5" (explicit,
            error control) or "rosenbrock23" (for stiff problems).
        args: a tuple; everything traced that f reads. save: return all steps + 1 states (fixed steps).
        saveat: times within the span, in its direction; the states there instead of the last one.
        rtol, atol, max_steps: for the adaptive methods. info: also return {"t", "accepted_steps", "rejected_steps",
            "success"} (adaptive methods).
    Returns:
        the last state, or states on a leading axis; (states, info) with `info`.
    Raises:
        RuntimeError: an eager adaptive solve that does not reach t1; under a transform only `info` says so, and save
            times it did not reach are NaN. TracerError: f closes over a traced value. TypeError, ValueError: the rest.
    Differentiation: both modes, any order, in y0, args, t0, t1 and saveat, through the steps taken; step sizes carry
        no gradient.
    Cost: a traced adaptive solve is one loop of max_steps trips, those after t1 empty (under vmap until the last
        example has arrived); reverse mode keeps the loop's checkpoints.
    """
    _check_call(f, method, args, t_span)
    y0 = strong(floating(asarray(y0)))
    dtype = np.dtype(y0.dtype)
    t0, t1 = (strong(asarray(t, dtype)) for t in t_span)
    if saveat is not None:
        if save:
            raise ValueError("save=True and saveat cannot be combined")
        saveat = strong(_save_times(saveat, t0, t1, dtype))
    problem = _Problem(f, method, y0, t0, t1, args, saveat)
    if method in ADAPTIVE:
        return _adaptive_call(problem, steps, save, rtol, atol, max_steps, info)
    if steps is None:
        raise TypeError(f"method {method!r} requires steps")
    steps = _positive_int(steps, "steps")
    if info:
        raise ValueError("info=True is only available for the adaptive methods")
    return _fixed(problem, steps, save) if saveat is None else _fixed_saveat(problem, steps)


def _adaptive_call(problem: _Problem, steps: Any, save: bool, rtol: Any, atol: Any, max_steps: Any, info: bool) -> Any:
    method = problem.method
    if steps is not None:
        raise TypeError(f"{method} chooses its own steps; use max_steps instead of steps")
    if save:
        raise ValueError("save=True requires a fixed-step method; use saveat")
    rtol, atol = float(rtol), float(atol)
    if not (rtol >= 0 and atol >= 0 and rtol + atol > 0):
        raise ValueError("rtol and atol must be non-negative and not both zero")
    if problem.y0.dtype not in (np.float32, np.float64):
        raise TypeError(f"{method} requires a floating state, got {dtypes.short(problem.y0.dtype)}")
    limit = _positive_int(max_steps, "max_steps")
    result, report = _adaptive(problem, rtol, atol, limit)
    if not is_tracer(report["success"]) and not bool(report["success"]):
        raise RuntimeError(
            f"{method} stopped at t={float(report['t'])} before t1 after max_steps={limit} step attempts; increase "
            "max_steps or loosen rtol/atol"
        )
    return (result, report) if info else result
