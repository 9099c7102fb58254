"""Runs a jaxpr op by op: the fuzz's reference, with nothing to compile.

Loops, branches and calls are plain Python here; the operations are NumPy's, but for the few (gathers and scatters) that JAX
binds alone, so that XLA compiles them once for each shape. A program thus costs microseconds an operation, where compiling it
whole costs a second.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

__all__ = ["evaluate"]


def _select(which: np.ndarray, *cases: np.ndarray) -> np.ndarray:
    if which.dtype == bool:
        return np.where(which, cases[1], cases[0])
    return np.choose(which, cases)


def _divide(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    if x.dtype.kind == "f":
        return x / y
    quotient = x // y  # truncated, as XLA's is; the programs never divide by zero
    return quotient + ((quotient < 0) & (quotient * y != x)).astype(x.dtype)


def _integer_power(x: np.ndarray, y: int) -> np.ndarray:
    return x**y if y >= 0 else 1 / x**-y


def _broadcast(x: np.ndarray, shape: tuple, broadcast_dimensions: tuple, **_: Any) -> np.ndarray:
    if x.ndim == 0:
        return np.full(shape, x, x.dtype)
    lifted = [1] * len(shape)
    for size, at in zip(x.shape, broadcast_dimensions, strict=True):
        lifted[at] = size
    return np.broadcast_to(x.reshape(lifted), shape)


def _sum(x: np.ndarray, axes: tuple, **_: Any) -> np.ndarray:
    return np.asarray(x.sum(axis=axes, dtype=x.dtype))


def _shift_right(x: np.ndarray, bits: np.ndarray) -> np.ndarray:
    unsigned = np.dtype(f"u{x.dtype.itemsize}")
    held = bits.view(unsigned) < 8 * x.dtype.itemsize
    return np.where(held, np.right_shift(x.view(unsigned), np.where(held, bits.view(unsigned), 0)), 0).astype(x.dtype)


def _corner(x: np.ndarray, starts: Sequence[np.ndarray], sizes: Sequence[int]) -> tuple[slice, ...]:
    """Where a block lies, moved inside the array."""
    firsts = [max(0, min(int(i), n - k)) for i, n, k in zip(starts, x.shape, sizes, strict=True)]
    return tuple(slice(i, i + k) for i, k in zip(firsts, sizes, strict=True))


def _update_slice(x: np.ndarray, update: np.ndarray, *starts: np.ndarray) -> np.ndarray:
    new = x.copy()
    new[_corner(x, starts, update.shape)] = update
    return new


def _slice(x: np.ndarray, start_indices: tuple, limit_indices: tuple, strides: tuple | None, **_: Any) -> np.ndarray:
    return x[tuple(map(slice, start_indices, limit_indices, strides or (1,) * x.ndim))]


def _pad(x: np.ndarray, value: np.ndarray, padding_config: tuple, **_: Any) -> np.ndarray:
    """Spread out, put into the middle of enough room, and cut: an amount below zero takes away."""
    spread = [n + max(n - 1, 0) * gap for n, (_, _, gap) in zip(x.shape, padding_config, strict=True)]
    room = [max(low, 0) + n + max(high, 0) for n, (low, high, _) in zip(spread, padding_config, strict=True)]
    out = np.full(room, value, x.dtype)
    at = zip(spread, padding_config, strict=True)
    out[tuple(slice(max(low, 0), max(low, 0) + n, gap + 1) for n, (low, _, gap) in at)] = x
    kept = zip(room, padding_config, strict=True)
    return out[tuple(slice(max(-low, 0), n - max(-high, 0)) for n, (low, high, _) in kept)]


def _iota(dtype: Any, shape: tuple, dimension: int, **_: Any) -> np.ndarray:
    return _broadcast(np.arange(shape[dimension], dtype=dtype), shape, (dimension,))


def _logical(function: Callable, bitwise: Callable) -> Callable:
    return lambda *xs: (function if xs[0].dtype == bool else bitwise)(*xs)


PLAIN: dict[str, Callable] = {
    "add": np.add, "add_any": np.add, "sub": np.subtract, "mul": np.multiply, "neg": np.negative, "max": np.maximum,
    "min": np.minimum, "sin": np.sin, "cos": np.cos, "tanh": np.tanh, "exp": np.exp, "sqrt": np.sqrt, "abs": np.abs,
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal,
    "and": _logical(np.logical_and, np.bitwise_and), "or": _logical(np.logical_or, np.bitwise_or),
    "not": _logical(np.logical_not, np.invert), "xor": _logical(np.logical_xor, np.bitwise_xor),
    "copy": lambda x: x, "copy_p": lambda x: x, "stop_gradient": lambda x: x, "select_n": _select, "div": _divide,
    "rem": np.fmod, "sign": np.sign, "clamp": lambda low, x, high: np.minimum(np.maximum(x, low), high),
    "shift_right_logical": _shift_right, "dynamic_update_slice": _update_slice,
}  # fmt: skip
WITH_PARAMETERS: dict[str, Callable] = {
    "broadcast_in_dim": _broadcast,
    "integer_pow": lambda x, y, **_: _integer_power(x, y),
    "reshape": lambda x, new_sizes, **_: x.reshape(new_sizes),
    "squeeze": lambda x, dimensions, **_: x.squeeze(tuple(dimensions)),
    "expand_dims": lambda x, dimensions, **_: np.expand_dims(x, tuple(dimensions)),
    "transpose": lambda x, permutation, **_: x.transpose(permutation),
    "reduce_sum": _sum,
    "square": lambda x, **_: x * x,
    "convert_element_type": lambda x, new_dtype, **_: x.astype(new_dtype),
    "slice": _slice,
    "dynamic_slice": lambda x, *starts, slice_sizes: x[_corner(x, starts, slice_sizes)],
    "concatenate": lambda *xs, dimension: np.concatenate(xs, dimension),
    "pad": _pad,
    "iota": _iota,
    "empty2": lambda dtype, **_: np.zeros((), dtype),
}
CALLS = frozenset(
    ("jit", "pjit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call", "remat", "remat2", "checkpoint")
)


def evaluate(closed: Any, *arrays: Any) -> list[np.ndarray]:
    """The flat outputs of a closed jaxpr of plain jax.lax operations on NumPy inputs."""
    return _region(closed.jaxpr, closed.consts, [np.asarray(a) for a in arrays])


def _region(jaxpr: Any, consts: Sequence[Any], inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    values: dict[Any, Any] = dict(zip(jaxpr.constvars, map(np.asarray, consts), strict=True))
    values.update(zip(jaxpr.invars, inputs, strict=True))

    def read(atom: Any) -> Any:
        return np.asarray(atom.val, atom.aval.dtype) if hasattr(atom, "val") else values[atom]

    for equation in jaxpr.eqns:
        results = _equation(equation, [read(a) for a in equation.invars])
        for variable, result in zip(equation.outvars, results, strict=True):
            values[variable] = result
    return [read(a) for a in jaxpr.outvars]


def _equation(equation: Any, inputs: list[np.ndarray]) -> Sequence[np.ndarray]:
    name, params = equation.primitive.name, equation.params
    if name in PLAIN:
        return [np.asarray(PLAIN[name](*inputs))]
    if name in WITH_PARAMETERS:
        return [np.asarray(WITH_PARAMETERS[name](*inputs, **params))]
    if name in CONTROL:
        return CONTROL[name](params, inputs)
    if name in CALLS:
        inner = params.get("jaxpr") or params.get("call_jaxpr") or params["fun_jaxpr"]
        return _region(getattr(inner, "jaxpr", inner), getattr(inner, "consts", ()), inputs)
    results = equation.primitive.bind(*inputs, **params)
    return [np.asarray(r) for r in (results if equation.primitive.multiple_results else [results])]


def _scan(params: dict, inputs: list[np.ndarray]) -> list[np.ndarray]:
    inner, length, n, m = params["jaxpr"], params["length"], params["num_consts"], params["num_carry"]
    consts, carry, xs = inputs[:n], list(inputs[n : n + m]), inputs[n + m :]
    ys = [np.empty((length, *v.aval.shape), v.aval.dtype) for v in inner.jaxpr.outvars[m:]]
    for i in reversed(range(length)) if params["reverse"] else range(length):
        results = _region(inner.jaxpr, inner.consts, [*consts, *carry, *(x[i] for x in xs)])
        carry = results[:m]
        for stacked, y in zip(ys, results[m:], strict=True):
            stacked[i] = y
    return [*carry, *ys]


def _while(params: dict, inputs: list[np.ndarray]) -> list[np.ndarray]:
    test, body = params["cond_jaxpr"], params["body_jaxpr"]
    n, m = params["cond_nconsts"], params["body_nconsts"]
    for_test, for_body, carry = inputs[:n], inputs[n : n + m], inputs[n + m :]
    while True:
        (going,) = _region(test.jaxpr, test.consts, [*for_test, *carry])
        if not going.any():
            return carry
        new = _region(body.jaxpr, body.consts, [*for_body, *carry])
        carry = [_lanes(going, n, c) for n, c in zip(new, carry, strict=True)] if going.ndim else new


def _lanes(going: np.ndarray, new: np.ndarray, old: np.ndarray) -> np.ndarray:
    """Under a batched predicate the lanes that are done keep what they have."""
    return np.where(going.reshape(going.shape + (1,) * (new.ndim - going.ndim)), new, old)


def _cond(params: dict, inputs: list[np.ndarray]) -> list[np.ndarray]:
    branches = params["branches"]
    taken = branches[int(np.clip(inputs[0], 0, len(branches) - 1))]
    return _region(taken.jaxpr, taken.consts, inputs[1:])


CONTROL: dict[str, Callable] = {"scan": _scan, "while": _while, "cond": _cond}
