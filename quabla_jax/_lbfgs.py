"""L-BFGS with a strong Wolfe line search (Nocedal & Wright, Numerical Optimization, algorithms 3.5, 3.6 and 7.4).

The vectors live on the host in float64; the loss and its gradient are one compiled program.
"""

from __future__ import annotations

import collections
import dataclasses
import math
import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from . import tree as _tree
from .arrays import is_tracer

__all__ = ["LBFGS"]

DECREASE, CURVATURE = 1e-4, 0.9
EVALUATIONS_A_SEARCH = 25
# Pairs with less curvature than this fraction of |s| |y| would spoil the inverse Hessian.
LEAST_CURVATURE = 1e-10
# Zooming keeps this fraction of the bracket away from its ends.
MARGIN = 0.1


class _Packing:
    """A pytree of floating arrays as one float64 vector, and back."""

    def __init__(self, params: Any):
        leaves, self.definition = _tree.flatten(params)
        if not leaves:
            raise ValueError("L-BFGS requires at least one parameter")
        for leaf in leaves:
            if not isinstance(leaf, jax.Array) or is_tracer(leaf) or leaf.dtype not in (np.float32, np.float64):
                raise TypeError("L-BFGS parameters must be floating-point Tensors")
        self.shapes, self.dtypes = [leaf.shape for leaf in leaves], [leaf.dtype for leaf in leaves]
        self.ends = np.cumsum([leaf.size for leaf in leaves])
        if self.ends[-1] == 0:
            raise ValueError("L-BFGS requires at least one parameter element")

    def vector(self, tree: Any) -> np.ndarray:
        return np.concatenate([np.asarray(leaf, np.float64).reshape(-1) for leaf in _tree.leaves(tree)])

    def tree(self, vector: np.ndarray) -> Any:
        pieces = np.split(vector, self.ends[:-1])
        leaves = [jnp.asarray(p.reshape(s).astype(d)) for p, s, d in zip(pieces, self.shapes, self.dtypes)]
        return _tree.unflatten(self.definition, leaves)


@dataclasses.dataclass(frozen=True)
class _Point:
    """A trial of the line search: step, loss, slope along the direction, where it is and the gradient there."""

    step: float
    value: float
    slope: float
    x: Any = None
    gradient: Any = None

    @property
    def finite(self) -> bool:
        return math.isfinite(self.value) and math.isfinite(self.slope)


def _cubic(p: _Point, q: _Point, low: float, high: float) -> float:
    """The minimizer of the cubic through two points (equation 3.59) within [low, high], else the middle."""
    middle = 0.5 * (low + high)
    if not (p.finite and q.finite) or p.step == q.step:
        return middle
    d1 = p.slope + q.slope - 3 * (p.value - q.value) / (p.step - q.step)
    square = d1 * d1 - p.slope * q.slope
    if not (math.isfinite(square) and square >= 0):
        return middle
    d2 = math.copysign(math.sqrt(square), q.step - p.step)
    denominator = q.slope - p.slope + 2 * d2
    if denominator == 0:
        return middle
    step = q.step - (q.step - p.step) * ((q.slope + d2 - d1) / denominator)
    return min(max(step, low), high) if math.isfinite(step) else middle


class _Search:
    """One line search: finds a strong Wolfe point of `trial`, which evaluates a step, within a budget."""

    def __init__(self, trial: Callable[[float], _Point], start: _Point, budget: int):
        self.trial, self.start, self.budget = trial, start, budget

    def evaluate(self, step: float) -> _Point:
        self.budget -= 1
        return self.trial(step)

    def too_high(self, p: _Point) -> bool:
        """No sufficient decrease; a loss that is not finite counts as none."""
        return not p.finite or p.value > self.start.value + DECREASE * p.step * self.start.slope

    def flat(self, p: _Point) -> bool:
        return abs(p.slope) <= -CURVATURE * self.start.slope

    def run(self, step: float) -> _Point:
        """The accepted point; the start itself where there is none."""
        before = self.start
        while self.budget > 0:
            here = self.evaluate(step)
            if self.too_high(here) or (before is not self.start and here.value >= before.value):
                return self.zoom(before, here)
            if self.flat(here):
                return here
            if here.slope >= 0:
                return self.zoom(here, before)
            before, step = here, _cubic(before, here, 1.1 * step, 10 * step)
        return before

    def zoom(self, low: _Point, high: _Point) -> _Point:
        """Shrinks a bracket; `low` has the least loss seen and decreases enough."""
        while self.budget > 0:
            width = abs(high.step - low.step)
            if width <= 1e-12 * max(abs(high.step), abs(low.step)):
                break
            left, right = sorted((low.step, high.step))
            here = self.evaluate(_cubic(low, high, left + MARGIN * width, right - MARGIN * width))
            if self.too_high(here) or here.value >= low.value:
                high = here
                continue
            if self.flat(here):
                return here
            if here.slope * (high.step - low.step) >= 0:
                high = low
            low = here
        return low


def _direction(gradient: np.ndarray, pairs: Any) -> np.ndarray:
    """The two-loop recursion: minus the inverse Hessian times the gradient."""
    q, weights = gradient, []
    for s, y, rho in reversed(pairs):
        weights.append(rho * float(s @ q))
        q = q - weights[-1] * y
    if pairs:
        _, y, rho = pairs[-1]
        q = q * (1 / (rho * float(y @ y)))
    for (s, y, rho), weight in zip(pairs, reversed(weights)):
        q = q + s * (weight - rho * float(y @ q))
    return -q


class LBFGS:
    """Full-batch L-BFGS for a scalar loss over a pytree.

    Arguments:
        history: curvature pairs kept. max_iterations, max_evaluations: bounds (None: no bound).
        tolerance_grad: on the largest gradient entry. tolerance_change: on |f - f'| / max(|f|, |f'|).
        line_search: "strong_wolfe".
    Raises:
        ValueError: a number out of its range.
    """

    def __init__(
        self,
        history: int = 10,
        max_iterations: int = 500,
        max_evaluations: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        line_search: str = "strong_wolfe",
    ):
        self.history, self.max_iterations = operator.index(history), operator.index(max_iterations)
        if self.history <= 0 or self.max_iterations <= 0:
            raise ValueError(f"history and max_iterations must be positive, got {history} and {max_iterations}")
        self.max_evaluations = None if max_evaluations is None else operator.index(max_evaluations)
        if self.max_evaluations is not None and self.max_evaluations <= 0:
            raise ValueError("max_evaluations must be positive")
        self.tolerance_grad, self.tolerance_change = float(tolerance_grad), float(tolerance_change)
        if not all(math.isfinite(t) and t >= 0 for t in (self.tolerance_grad, self.tolerance_change)):
            raise ValueError("tolerances must be finite and nonnegative")
        if line_search != "strong_wolfe":
            raise ValueError(f'line_search must be "strong_wolfe", got {line_search!r}')
        self.line_search = line_search

    def minimize(self, fun: Callable[..., Any], params: Any, *args: Any) -> tuple[Any, dict[str, Any]]:
        """Minimizes fun(params, *args) over `params`.

        Returns:
            (params, info) with info's "iterations", "evaluations", "loss", "grad_norm", "reason" ("gradient_tolerance",
            "change_tolerance", "max_iterations", "max_evaluations" or "line_search_failed") and "converged".
        Raises:
            ValueError: a loss or gradient that is not finite at the start, or no scalar. TypeError: other parameters.
        """
        if not callable(fun):
            raise TypeError("fun must be callable")
        return _Minimization(self, fun, params, args).run()


class _Minimization:
    """One run: the iterate, its loss and gradient, the curvature pairs and the counts."""

    def __init__(self, options: LBFGS, fun: Callable[..., Any], params: Any, args: tuple):
        from .transforms import jit, value_and_grad

        self.options, self.args = options, args
        self.packing = _Packing(params)
        self.program = jit(value_and_grad(fun), device="cpu")
        self.pairs: collections.deque = collections.deque(maxlen=options.history)
        self.iterations = self.evaluations = 0
        self.x, self.f, self.g = self.evaluate(self.packing.vector(params))
        if not (math.isfinite(self.f) and np.isfinite(self.g).all()):
            raise ValueError("L-BFGS initial loss and gradient must be finite")

    def evaluate(self, x: np.ndarray) -> tuple[np.ndarray, float, np.ndarray]:
        """Where the loss was evaluated (rounded to the leaves' dtypes), the loss and the gradient."""
        self.evaluations += 1
        point = self.packing.tree(x)
        loss, gradients = self.program(point, *self.args)
        if np.size(loss) != 1:
            raise ValueError("L-BFGS loss must be a scalar")
        return self.packing.vector(point), float(loss), self.packing.vector(gradients)

    def budget(self) -> int:
        most = self.options.max_evaluations
        return EVALUATIONS_A_SEARCH if most is None else min(EVALUATIONS_A_SEARCH, most - self.evaluations)

    def grad_norm(self) -> float:
        return float(np.max(np.abs(self.g)))

    def stop_reason(self) -> str | None:
        if self.grad_norm() <= self.options.tolerance_grad:
            return "gradient_tolerance"
        if self.iterations >= self.options.max_iterations:
            return "max_iterations"
        return "max_evaluations" if self.budget() <= 0 else None

    def search(self) -> _Point:
        direction = _direction(self.g, self.pairs)
        slope = float(self.g @ direction)
        if not (slope < 0 and math.isfinite(slope)):
            # Rounding turned the direction uphill: begin again from steepest descent.
            self.pairs.clear()
            direction, slope = -self.g, -float(self.g @ self.g)
        step = 1.0 if self.pairs else min(1.0, 1 / math.sqrt(-slope))
        origin = self.x

        def trial(step: float) -> _Point:
            x, value, gradient = self.evaluate(origin + step * direction)
            return _Point(step, value, float(gradient @ direction), x, gradient)

        return _Search(trial, _Point(0.0, self.f, slope), self.budget()).run(step)

    def advance(self) -> str | None:
        """One iteration; the reason to stop after it, if any."""
        point = self.search()
        if point.x is None:
            if self.pairs:
                # The curvature misled the search: once more along steepest descent.
                self.pairs.clear()
                return None
            most = self.options.max_evaluations
            return "max_evaluations" if most is not None and self.evaluations >= most else "line_search_failed"
        s, y = point.x - self.x, point.gradient - self.g
        curvature = float(s @ y)
        if curvature > LEAST_CURVATURE * math.sqrt(float(s @ s) * float(y @ y)):
            self.pairs.append((s, y, 1 / curvature))
        before = self.f
        self.x, self.f, self.g = point.x, point.value, point.gradient
        self.iterations += 1
        settled = abs(before - self.f) <= self.options.tolerance_change * max(abs(before), abs(self.f))
        return "change_tolerance" if settled else None

    def run(self) -> tuple[Any, dict[str, Any]]:
        reason = self.stop_reason()
        while reason is None:
            reason = self.advance() or self.stop_reason()
        return self.packing.tree(self.x), {
            "iterations": self.iterations,
            "evaluations": self.evaluations,
            "loss": self.f,
            "grad_norm": self.grad_norm(),
            "reason": reason,
            "converged": reason in ("gradient_tolerance", "change_tolerance"),
        }
