"""Optimizers as pure host updates on pytrees of concrete floating arrays, schedules, a trainer, and L-BFGS.

Moments are float64 (float32 where JAX's x64 mode is off) for any parameter dtype, parameters keep theirs. Inside a jitted step use optax:
results go straight into it.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from . import dtypes
from . import tree as _tree
from ._lbfgs import LBFGS
from ._schedules import constant, cosine_decay, exponential_decay, piecewise_constant, warmup_cosine_decay
from .arrays import asarray, is_tracer

__all__ = [
    "Adam", "AdamW", "LBFGS", "SGD", "Trainer", "clip_by_global_norm", "constant", "cosine_decay", "exponential_decay",
    "piecewise_constant", "warmup_cosine_decay",
]  # fmt: skip

Rate = float | Callable[[int], float]


def _positive(value: Any, name: str) -> float:
    try:
        number = float(value)
    except ValueError as error:
        raise ValueError(f"{name} must be a number: {error}") from None
    if not math.isfinite(number) or number <= 0:
        raise ValueError(f"{name} must be positive and finite, got {number}")
    return number


def _rate_of(learning_rate: Rate) -> Rate:
    return learning_rate if callable(learning_rate) else _positive(learning_rate, "learning_rate")


def _rate_at(learning_rate: Rate, step: int) -> float:
    """The rate of an update: the constant, or the schedule at the count of completed updates."""
    if not callable(learning_rate):
        return learning_rate
    rate = float(learning_rate(step))
    if not math.isfinite(rate) or rate < 0:
        raise ValueError(
            f"learning-rate schedule returned {rate!r} at step {step}; rates must be finite and nonnegative"
        )
    return rate


def _is_floating(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and not is_tracer(leaf) and leaf.dtype in (np.float32, np.float64)


def _parameters(params: Any) -> tuple[list[jax.Array], _tree.TreeDef]:
    leaves, definition = _tree.flatten(params)
    if not leaves:
        raise ValueError("optimizer requires at least one parameter")
    if not all(map(_is_floating, leaves)):
        raise TypeError("optimizer parameters must be floating-point Tensors")
    return leaves, definition


def _matching(leaves: list[jax.Array], definition: _tree.TreeDef, other: Any, name: str) -> list[jax.Array]:
    """The leaves of `other`, which has the structure and shapes of the parameters."""
    values, found = _tree.flatten(other)
    if found != definition:
        raise ValueError(f"{name} pytree structure must match parameters: {definition!r}, got {found!r}")
    for parameter, value in zip(leaves, values):
        if not isinstance(value, jax.Array):
            raise TypeError(f"{name} leaves must be Tensors")
        if parameter.shape != value.shape:
            raise ValueError(f"{name} shape must match parameter shape {parameter.shape}, got {value.shape}")
        if not _is_floating(value):
            raise TypeError(f"{name} leaves must be floating-point Tensors")
    return values


def clip_by_global_norm(grads: Any, max_norm: float) -> tuple[Any, float]:
    """`grads` scaled down to a global 2-norm of at most `max_norm`, and the norm it had, a float.

    The norm runs in float64, scaled by the largest entry. Below the bound the same leaves come back; a norm that is
    not finite makes every leaf NaN. Raises ValueError for a bound that is not positive, TypeError for other leaves.
    """
    bound = _positive(max_norm, "max_norm")
    leaves, definition = _tree.flatten(grads)
    if not all(map(_is_floating, leaves)):
        raise TypeError("gradient leaves must be floating-point Tensors")
    wide = [np.asarray(leaf, np.float64) for leaf in leaves]
    peak = max(
        (float(np.max(np.abs(w))) if not np.isnan(w).any() else math.nan for w in wide), default=0.0, key=_nan_last
    )
    scale = peak if math.isfinite(peak) and peak > 0 else 1.0
    with np.errstate(invalid="ignore", over="ignore"):
        norm = scale * math.sqrt(sum(float(np.sum((w / scale) ** 2)) for w in wide))
    if norm <= bound:
        return grads, norm
    factor = bound / norm if math.isfinite(norm) else math.nan
    with np.errstate(invalid="ignore"):
        clipped = [jnp.asarray((w * factor).astype(leaf.dtype)) for w, leaf in zip(wide, leaves)]
    return _tree.unflatten(definition, clipped), norm


def _nan_last(value: float) -> float:
    return math.inf if math.isnan(value) else value


def _wide() -> Any:
    return dtypes.default_float()


@jax.jit
def _adam_update(parameters, gradients, first, second, numbers):
    """One Adam step of all leaves; `numbers` holds rate, b1, b2, eps, both bias corrections and the weight decay."""
    rate, b1, b2, eps, fix1, fix2, decay = (numbers[k] for k in range(7))
    new = []
    for p, g, m, v in zip(parameters, gradients, first, second):
        wide, g = p.astype(m.dtype), g.astype(m.dtype)
        m = b1 * m + (1 - b1) * g
        v = b2 * v + (1 - b2) * (g * g)
        step = (m / fix1) / (jnp.sqrt(v / fix2) + eps) + decay * wide
        new.append(((wide - rate * step).astype(p.dtype), m, v))
    return tuple(map(list, zip(*new)))


@jax.jit
def _sgd_update(parameters, gradients, rate):
    wide = [p.astype(rate.dtype) - rate * g.astype(rate.dtype) for p, g in zip(parameters, gradients)]
    return [w.astype(p.dtype) for w, p in zip(wide, parameters)]


class _AdamRule:
    """State and update that Adam and AdamW share."""

    weight_decay = 0.0

    def _configure(self, learning_rate: Rate, b1: Any, b2: Any, eps: Any, clip_norm: Any) -> None:
        self.learning_rate = _rate_of(learning_rate)
        self.b1, self.b2, self.eps = float(b1), float(b2), _positive(eps, "epsilon")
        if not (0 <= self.b1 < 1 and 0 <= self.b2 < 1):
            raise ValueError(f"Adam betas must be in [0, 1), got {self.b1} and {self.b2}")
        self.clip_norm = None if clip_norm is None else _positive(clip_norm, "clip_norm")

    def init(self, params: Any) -> dict[str, Any]:
        """The state of no update yet: {"step": 0, "m": zeros, "v": zeros}."""
        leaves, definition = _parameters(params)
        zeros = [[jnp.zeros(p.shape, _wide()) for p in leaves] for _ in range(2)]
        return {"step": 0, "m": _tree.unflatten(definition, zeros[0]), "v": _tree.unflatten(definition, zeros[1])}

    def update(self, params: Any, grads: Any, state: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """(new parameters, new state); nothing is changed in place.

        Raises:
            ValueError: structures, shapes or a state that do not match. TypeError: leaves that are no floating arrays.
        """
        leaves, definition = _parameters(params)
        gradients = _matching(leaves, definition, grads, "gradient")
        if type(state) is not dict or set(state) != {"step", "m", "v"}:
            raise ValueError("Adam state must contain step, m, and v")
        if type(state["step"]) is not int or state["step"] < 0:
            raise ValueError("Adam state step must be a nonnegative integer")
        first = _matching(leaves, definition, state["m"], "first moment")
        second = _matching(leaves, definition, state["v"], "second moment")
        if self.clip_norm is not None:
            gradients = clip_by_global_norm(gradients, self.clip_norm)[0]
        step = state["step"] + 1
        rate = _rate_at(self.learning_rate, state["step"])
        numbers = np.array(
            [rate, self.b1, self.b2, self.eps, 1 - self.b1**step, 1 - self.b2**step, self.weight_decay], _wide()
        )
        new, first, second = _adam_update(leaves, gradients, first, second, numbers)
        put = functools.partial(_tree.unflatten, definition)
        return put(new), {"step": step, "m": put(first), "v": put(second)}


class Adam(_AdamRule):
    """Adam (Kingma & Ba, 2015): p - rate * mhat / (sqrt(vhat) + eps).

    Arguments:
        learning_rate: positive, or a schedule step -> rate. b1, b2: in [0, 1). eps: positive.
        beta1, beta2, epsilon: other names of the three. clip_norm: a bound for the global norm of the gradients.
    Raises:
        ValueError: a number out of its range.
    """

    def __init__(
        self,
        learning_rate: Rate = 1e-3,
        b1: float = 0.9,
        b2: float = 0.999,
        eps: float = 1e-8,
        *,
        beta1: float | None = None,
        beta2: float | None = None,
        epsilon: float | None = None,
        clip_norm: float | None = None,
    ):
        b1, b2, eps = (alias if alias is not None else own for own, alias in ((b1, beta1), (b2, beta2), (eps, epsilon)))
        self._configure(learning_rate, b1, b2, eps, clip_norm)
        self._state: Any = None

    def step(self, parameters: Any, gradients: Any) -> Any:
        """`update` with the state kept here; for dicts, gradients of other names are ignored and a missing one raises
        ValueError."""
        if isinstance(parameters, dict) and isinstance(gradients, dict):
            for name in parameters:
                if name not in gradients:
                    raise ValueError(f"missing gradient for {name!r}")
            gradients = {name: gradients[name] for name in parameters}
        if self._state is None:
            self._state = self.init(parameters)
        new, self._state = self.update(parameters, gradients, self._state)
        return new


class AdamW(_AdamRule):
    """Adam with decoupled weight decay (Loshchilov & Hutter, 2019): weight_decay * p joins the step inside the rate."""

    def __init__(
        self,
        learning_rate: Rate = 1e-3,
        b1: float = 0.9,
        b2: float = 0.999,
        eps: float = 1e-8,
        weight_decay: float = 1e-4,
        *,
        clip_norm: float | None = None,
    ):
        self._configure(learning_rate, b1, b2, eps, clip_norm)
        self.weight_decay = float(weight_decay)
        if not math.isfinite(self.weight_decay) or self.weight_decay < 0:
            raise ValueError(f"weight_decay must be finite and nonnegative, got {self.weight_decay}")


class SGD:
    """p - rate * gradient. The state is None, or {"step": n} with a schedule."""

    def __init__(self, learning_rate: Rate = 1e-2, *, clip_norm: float | None = None):
        self.learning_rate = _rate_of(learning_rate)
        self.clip_norm = None if clip_norm is None else _positive(clip_norm, "clip_norm")

    def init(self, params: Any) -> Any:
        """The state of no update yet."""
        _parameters(params)
        return {"step": 0} if callable(self.learning_rate) else None

    def update(self, params: Any, grads: Any, state: Any) -> tuple[Any, Any]:
        """(new parameters, new state). Raises ValueError and TypeError as `Adam.update`."""
        leaves, definition = _parameters(params)
        gradients = _matching(leaves, definition, grads, "gradient")
        step = 0
        if callable(self.learning_rate):
            sound = type(state) is dict and set(state) == {"step"} and type(state["step"]) is int and state["step"] >= 0
            if not sound:
                raise ValueError("scheduled SGD state must be {'step': int >= 0}")
            step = state["step"]
            state = {"step": step + 1}
        elif state is not None:
            raise ValueError("SGD state must be None")
        if self.clip_norm is not None:
            gradients = clip_by_global_norm(gradients, self.clip_norm)[0]
        rate = np.asarray(_rate_at(self.learning_rate, step), _wide())
        return _tree.unflatten(definition, _sgd_update(leaves, gradients, rate)), state


def _signature(value: Any) -> tuple[Any, list[tuple[Any, Any]]]:
    leaves, definition = _tree.flatten(value)
    return definition, [(leaf.shape, leaf.dtype) for leaf in leaves]


class Trainer:
    """Optimizer steps on loss(params, *data), compiled once.

    Arguments:
        loss: returns a scalar. params: a pytree of floating arrays. optimizer: Adam, AdamW or SGD.
        data: pytrees of arrays. device, precision: as `jit`.
        batch_argnums: the data arguments, counted without params, that `step` replaces, in that order.
    Raises:
        TypeError: a loss that cannot be called, another optimizer. ValueError: batch_argnums out of range or twice.
    """

    def __init__(
        self,
        loss: Callable[..., Any],
        params: Any,
        optimizer: Any,
        *data: Any,
        device: str = "cpu",
        batch_argnums: int | Sequence[int] = (),
        precision: str | None = None,
    ):
        from .transforms import jit, value_and_grad

        if not callable(loss):
            raise TypeError(f"loss must be callable, got {type(loss).__name__}")
        if not isinstance(optimizer, (Adam, AdamW, SGD)):
            raise TypeError(f"optimizer must be Adam, AdamW, or SGD, got {type(optimizer).__name__}")
        numbers = (batch_argnums,) if isinstance(batch_argnums, int) else batch_argnums
        self._places = tuple(map(operator.index, numbers))
        if len(set(self._places)) != len(self._places):
            raise ValueError("batch_argnums must be distinct")
        if any(not 0 <= k < len(data) for k in self._places):
            raise ValueError("batch_argnums indexes data arguments, excluding params")
        self._optimizer, self._params, self._state = optimizer, params, optimizer.init(params)
        self._data = tuple(_tree.map(asarray, item) for item in data)
        self._specs = [_signature(self._data[k]) for k in self._places]
        self._gradients = jit(value_and_grad(loss), device=device, precision=precision)
        self._loss = jit(loss, device=device, precision=precision)

    @property
    def params(self) -> Any:
        """The current parameters."""
        return self._params

    def step(self, *batch: Any) -> None:
        """One update; a batch replaces the data of `batch_argnums` and stays current.

        Raises:
            ValueError: a batch of another number, structure, shape or dtype than the data it replaces.
        """
        data = self._replaced(batch) if batch else self._data
        _, gradients = self._gradients(self._params, *data)
        self._params, self._state = self._optimizer.update(self._params, gradients, self._state)
        self._data = data

    def _replaced(self, batch: tuple) -> tuple:
        if len(batch) != len(self._places):
            raise ValueError("batch argument count must match batch_argnums")
        data = list(self._data)
        for place, value, (definition, specs) in zip(self._places, batch, self._specs):
            data[place] = _tree.map(asarray, value)
            found, shapes = _signature(data[place])
            if found != definition:
                raise ValueError("batch pytree structure must match initial data")
            if shapes != specs:
                raise ValueError("batch shapes and dtypes must match initial data")
        return tuple(data)

    def loss(self) -> jax.Array:
        """The loss of the current parameters on the current data, a 0-d array."""
        return self._loss(self._params, *self._data)
