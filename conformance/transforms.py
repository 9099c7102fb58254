"""The transforms that every case runs under, written once against a namespace of grad, jvp, vmap, jit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["TRANSFORMS", "Space", "Transform"]


@dataclass(frozen=True)
class Space:
    """What a program is run with: `ns` for its body; the transforms of the library that owns `ns`; array conversion."""

    ns: Any
    grad: Callable
    jvp: Callable
    vmap: Callable
    jit: Callable
    hessian: Callable
    array: Callable
    sum: Callable


@dataclass(frozen=True)
class Transform:
    """build(space, fun, floats, mapped) -> function of all arrays. `order` counts derivatives, `reverse` says whether one is
    reverse mode, `batched` whether the inputs get a leading axis. `slack` widens the ulp bar: each derivative pass and each
    sum over a batch rounds again."""

    name: str
    build: Callable[[Space, Callable, tuple[int, ...], tuple[bool, ...]], Callable]
    order: int = 0
    reverse: bool = False
    batched: bool = False
    slack: float = 1.0


def _tuple(value: Any) -> tuple:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def _weights(shape: Any) -> np.ndarray:
    """Weights that tell every output element from every other, so that a swap or a slip cannot cancel."""
    n = int(np.prod(tuple(shape), dtype=np.int64))
    return (0.75 + 0.5 * np.cos(1.0 + np.arange(n))).reshape(tuple(shape))


def _is_float(x: Any) -> bool:
    return "float" in str(getattr(x.dtype, "name", x.dtype))


def _scalar(space: Space, fun: Callable) -> Callable:
    def total(*args):
        out = None
        for y in _tuple(fun(*args)):
            if _is_float(y):
                term = space.sum(y * space.array(_weights(y.shape), y.dtype))
                out = term if out is None else out + term.astype(out.dtype)
        return out

    return total


def _axes(mapped: tuple[bool, ...]) -> tuple:
    return tuple(0 if m else None for m in mapped)


def _tangent(space: Space, x: Any, shift: float = 0.0) -> Any:
    return space.array(_weights(x.shape) - 0.25 + shift, x.dtype)


def _directional(space: Space, fun: Callable, floats: tuple[int, ...], shift: float = 0.0) -> Callable:
    def run(*args):
        def inner(*xs):
            full = list(args)
            for position, x in zip(floats, xs, strict=True):
                full[position] = x
            return fun(*full)

        primals = tuple(args[i] for i in floats)
        return space.jvp(inner, primals, tuple(_tangent(space, x, shift) for x in primals))

    return run


def _pair(space: Space, fun: Callable, floats: tuple[int, ...]) -> Callable:
    """Value and tangent, flat."""
    run = _directional(space, fun, floats)

    def flat(*args):
        value, tangent = run(*args)
        return (
            *_tuple(value),
            *(t for v, t in zip(_tuple(value), _tuple(tangent), strict=True) if _is_float(v)),
        )

    return flat


def _tangents(space: Space, fun: Callable, floats: tuple[int, ...], shift: float = 0.0) -> Callable:
    run = _directional(space, fun, floats, shift)

    def only(*args):
        value, tangent = run(*args)
        return tuple(t for v, t in zip(_tuple(value), _tuple(tangent), strict=True) if _is_float(v))

    return only


def _gradient(space: Space, fun: Callable, floats: tuple[int, ...]) -> Callable:
    return space.grad(_scalar(space, fun), floats)


def _mapped(space: Space, fun: Callable, mapped: tuple[bool, ...]) -> Callable:
    return space.vmap(fun, _axes(mapped))


def _plain(space, fun, floats, mapped):
    return fun


def _jit(space, fun, floats, mapped):
    return space.jit(fun)


def _vmap(space, fun, floats, mapped):
    return _mapped(space, fun, mapped)


def _jvp(space, fun, floats, mapped):
    return _pair(space, fun, floats)


def _vmap_jvp(space, fun, floats, mapped):
    return _mapped(space, _pair(space, fun, floats), mapped)


def _jvp_jvp(space, fun, floats, mapped):
    return _tangents(space, _tangents(space, fun, floats), floats, 0.5)


def _grad(space, fun, floats, mapped):
    return _gradient(space, fun, floats)


def _jit_grad(space, fun, floats, mapped):
    return space.jit(_gradient(space, fun, floats))


def _grad_vmap(space, fun, floats, mapped):
    return _gradient(space, _mapped(space, fun, mapped), floats)


def _vmap_grad(space, fun, floats, mapped):
    return _mapped(space, _gradient(space, fun, floats), mapped)


def _grad_jvp(space, fun, floats, mapped):
    return _gradient(space, _tangents(space, fun, floats), floats)


def _hvp(space, fun, floats, mapped):
    return _tangents(space, _gradient(space, fun, floats), floats)


def _hessian(space, fun, floats, mapped):
    return space.hessian(_scalar(space, fun), floats)


def _grad_grad(space, fun, floats, mapped):
    return _gradient(space, _gradient(space, fun, floats), floats)


def _vmap_hvp(space, fun, floats, mapped):
    return _mapped(space, _hvp(space, fun, floats, mapped), mapped)


def _third(space, fun, floats, mapped):
    return _gradient(space, _hvp(space, fun, floats, mapped), floats)


TRANSFORMS: dict[str, Transform] = {
    t.name: t
    for t in (
        Transform("eager", _plain),
        Transform("jit", _jit),
        Transform("vmap", _vmap, batched=True),
        Transform("jvp", _jvp, order=1, slack=4),
        Transform("vmap_jvp", _vmap_jvp, order=1, batched=True, slack=4),
        Transform("jvp_jvp", _jvp_jvp, order=2, slack=16),
        Transform("grad", _grad, order=1, reverse=True, slack=8),
        Transform("jit_grad", _jit_grad, order=1, reverse=True, slack=8),
        Transform("grad_vmap", _grad_vmap, order=1, reverse=True, batched=True, slack=8),
        Transform("vmap_grad", _vmap_grad, order=1, reverse=True, batched=True, slack=8),
        Transform("grad_jvp", _grad_jvp, order=2, reverse=True, slack=32),
        Transform("hvp", _hvp, order=2, reverse=True, slack=32),
        Transform("vmap_hvp", _vmap_hvp, order=2, reverse=True, batched=True, slack=32),
        Transform("hessian", _hessian, order=2, reverse=True, slack=32),
        Transform("grad_grad", _grad_grad, order=2, reverse=True, slack=64),
        Transform("third", _third, order=3, reverse=True, slack=256),
    )
}
