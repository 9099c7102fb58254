"""Learning-rate schedules: host functions of the number of completed updates, with optax's formulas."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence

__all__ = ["constant", "cosine_decay", "exponential_decay", "piecewise_constant", "warmup_cosine_decay"]

Schedule = Callable[[int], float]


def _number(value: float, name: str) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{name} must be finite, got {number}")
    return number


def _count(value: int, name: str, least: int, rule: str) -> int:
    number = operator.index(value)
    if number < least:
        raise ValueError(f"{name} must be {rule}")
    return number


def constant(value: float) -> Schedule:
    """`value` at every step."""
    rate = _number(value, "value")
    return lambda step: rate


def exponential_decay(
    init_value: float,
    transition_steps: int,
    decay_rate: float,
    transition_begin: int = 0,
    staircase: bool = False,
    end_value: float | None = None,
) -> Schedule:
    """init_value * decay_rate ** ((step - transition_begin) / transition_steps), init_value up to the beginning.

    `staircase` rounds the exponent down; `end_value` is a floor for decay_rate < 1 and a cap otherwise. Raises
    ValueError for counts and rates that are not positive.
    """
    first, rate = _number(init_value, "init_value"), _number(decay_rate, "decay_rate")
    period = _count(transition_steps, "transition_steps", 1, "a positive integer")
    if rate <= 0:
        raise ValueError("decay_rate must be positive")
    begin = _count(transition_begin, "transition_begin", 0, "nonnegative")
    limit = None if end_value is None else _number(end_value, "end_value")

    def schedule(step: int) -> float:
        exponent = max(step - begin, 0) / period
        value = first * rate ** (math.floor(exponent) if staircase else exponent)
        if limit is None:
            return value
        return max(value, limit) if rate < 1 else min(value, limit)

    return schedule


def cosine_decay(init_value: float, decay_steps: int, alpha: float = 0.0) -> Schedule:
    """Half a cosine from init_value down to alpha * init_value at decay_steps, constant after."""
    first, floor = _number(init_value, "init_value"), _number(alpha, "alpha")
    steps = _count(decay_steps, "decay_steps", 1, "a positive integer")

    def schedule(step: int) -> float:
        cosine = 0.5 * (1 + math.cos(math.pi * min(step, steps) / steps))
        return first * ((1 - floor) * cosine + floor)

    return schedule


def warmup_cosine_decay(
    init_value: float, peak_value: float, warmup_steps: int, decay_steps: int, end_value: float = 0.0
) -> Schedule:
    """Linear from init_value to peak_value at warmup_steps, then a cosine to end_value at decay_steps, which counts
    the warmup. Raises ValueError unless decay_steps > warmup_steps >= 0."""
    first, peak, last = (
        _number(v, n) for v, n in ((init_value, "init_value"), (peak_value, "peak_value"), (end_value, "end_value"))
    )
    warmup = _count(warmup_steps, "warmup_steps", 0, "nonnegative")
    if operator.index(decay_steps) <= warmup:
        raise ValueError("decay_steps must exceed warmup_steps")
    decay = cosine_decay(peak, operator.index(decay_steps) - warmup, last / peak if peak else 0.0)

    def schedule(step: int) -> float:
        if step >= warmup:
            return decay(step - warmup)
        return (first - peak) * (1 - step / warmup) + peak

    return schedule


def piecewise_constant(boundaries: Sequence[int], values: Sequence[float]) -> Schedule:
    """values[i] from boundaries[i - 1] on; one more value than boundaries, which rise from 0 or more."""
    steps = [operator.index(b) for b in boundaries]
    rates = [_number(v, "values") for v in values]
    if len(rates) != len(steps) + 1:
        raise ValueError("values must have one more entry than boundaries")
    if any(b < 0 for b in steps) or any(b <= a for a, b in zip(steps, steps[1:])):
        raise ValueError("boundaries must be nonnegative and strictly increasing")
    return lambda step: rates[sum(step >= b for b in steps)]
