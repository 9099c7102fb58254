"""Quabla's old compiler facade, and the list of targets.

New programs use `jit`; the facade is here so that old ones run: trace with named inputs, compile for a target, call
with a dict.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from . import dtypes
from ._staging import stage
from .arrays import asarray, is_tracer, new_shape

__all__ = ["Compiler", "Executable", "Program", "TensorCudaAdamOptimizer", "TensorMlxAdamOptimizer", "devices"]

TARGETS = ("cpu", "cuda", "mlx")


def _available(target: str) -> bool:
    """Whether programs for `target` can be built here; asks no hardware beyond what JAX has found."""
    if target == "mlx":
        return importlib.util.find_spec("mlx") is not None
    try:
        return bool(jax.devices(target))
    except RuntimeError:
        return False


def devices() -> list[str]:
    """The targets that `jit(device=...)` takes here, "cpu" first, and "tpu" where JAX sees one."""
    return [name for name in (*TARGETS, "tpu") if _available(name)]


def _known(target: str) -> str:
    if target not in TARGETS:
        raise ValueError("target must be one of 'cpu', 'cuda', or 'mlx'")
    return target


class Compiler:
    """Traces functions of named arrays."""

    def capability(self, target: str) -> bool:
        """Whether a target is available. Raises ValueError for an unknown one."""
        return _available(_known(target))

    def capabilities(self) -> dict[str, bool]:
        """Whether each target is available."""
        return {name: _available(name) for name in TARGETS}

    def trace(self, fun: Callable[..., Any], inputs: Sequence[tuple]) -> Program:
        """`fun` of one array an input as a Program.

        Arguments:
            fun: returns one traced array. inputs: (name, shape) or (name, shape, dtype), float64 by default.
        Raises:
            TypeError: an input that is no such tuple, a result that is no traced array. ValueError: a name given twice, an
                extent of zero.
        """
        specs = {}
        for entry in inputs:
            sound = isinstance(entry, tuple) and len(entry) in (2, 3) and isinstance(entry[1], (list, tuple))
            if not sound:
                raise TypeError("tensor input spec must be (name, shape) or (name, shape, dtype) with a quabla dtype")
            if entry[0] in specs:
                raise ValueError(f'input "{entry[0]}" already exists')
            dtype = dtypes.resolve(entry[2]) if len(entry) == 3 else dtypes.default_float()
            specs[entry[0]] = jax.ShapeDtypeStruct(new_shape(entry[1]), dtype)
        return Program(fun, specs)


class Program:
    """A function of named arrays with one array as its result.

    Attributes:
        output_shape: the extents of the result, a list. output_shapes: a list of that list.
    """

    def __init__(self, fun: Callable[..., Any], inputs: dict[str, Any]):
        if not callable(fun):
            raise TypeError(f"a Program is made of a callable: '{type(fun).__name__}' object is not callable")
        self._fun, self._inputs = fun, inputs
        seen = []

        def checked(*arrays):
            result = fun(*arrays)
            seen.append(is_tracer(result))
            return result

        staged = stage(checked, list(inputs.values()))
        if not seen[-1]:
            raise TypeError("trace_tensor function must return a TraceTensor")
        self._jaxpr, self._output = staged.jaxpr, staged.out_avals[0]

    @property
    def output_shape(self) -> list[int]:
        """The extents of the result."""
        return list(self._output.shape)

    @property
    def output_shapes(self) -> list[list[int]]:
        """The extents of every result; there is one."""
        return [self.output_shape]

    def __repr__(self) -> str:
        return f"Program(output_shape={self.output_shape})"

    def lower_text(self) -> str:
        """The traced program as text (a jaxpr)."""
        return str(self._jaxpr)

    def stablehlo_text(self) -> str:
        """The program in StableHLO."""
        return jax.jit(self._fun).lower(*self._inputs.values()).as_text()

    def compile(self, target: str = "cpu") -> Executable:
        """The program for a target. Raises ValueError for an unknown one, UnsupportedOperationError for one that this
        machine lacks."""
        from .transforms import jit

        return Executable(jit(self._fun, device=_known(target)), self._inputs, target, len(self._jaxpr.eqns))

    def jvp(self, input_name: str) -> Program:
        """The derivative along ones in one input. Raises ValueError for an unknown name."""
        if input_name not in self._inputs:
            raise ValueError(f'input "{input_name}" does not exist')
        names = list(self._inputs)

        def tangent(*arrays):
            ones = [jnp.full_like(x, float(name == input_name)) for name, x in zip(names, arrays)]
            return jax.jvp(self._fun, arrays, tuple(ones))[1]

        return Program(tangent, self._inputs)

    def vjp(self, cotangent_name: str) -> dict[str, Program]:
        """One program an input, its gradient for a cotangent of that name, which is one more input."""
        inputs = {**self._inputs, cotangent_name: jax.ShapeDtypeStruct(self._output.shape, self._output.dtype)}

        def gradient(position: int) -> Callable[..., Any]:
            return lambda *arrays: jax.vjp(self._fun, *arrays[:-1])[1](arrays[-1])[position]

        return {name: Program(gradient(k), inputs) for k, name in enumerate(self._inputs)}


class Executable:
    """A compiled program; call it with a dict of its inputs.

    Attributes:
        target: where it runs. node_count: operations of the traced program.
    """

    def __init__(self, run: Callable[..., Any], inputs: dict[str, Any], target: str, node_count: int):
        self._run, self._inputs = run, inputs
        self.target, self.node_count = target, node_count

    def __repr__(self) -> str:
        return f"Executable(target={self.target}, node_count={self.node_count})"

    def __call__(self, inputs: dict[str, Any]) -> Any:
        """The result for a dict of arrays. Raises ValueError for a missing input or another shape."""
        if not isinstance(inputs, dict):
            raise TypeError(f"{type(inputs).__name__!r} object is not an instance of 'dict'")
        arrays = []
        for name, spec in self._inputs.items():
            if name not in inputs:
                raise ValueError(f'missing input "{name}"')
            value = asarray(inputs[name], np.dtype(spec.dtype))
            if value.shape != spec.shape:
                raise ValueError(f'input "{name}" has shape {list(value.shape)}, expected {list(spec.shape)}')
            arrays.append(value)
        return self._run(*arrays)

    evaluate = __call__


class _Retired:
    """An optimizer that Quabla itself creates and users never could; `optim.Trainer` takes its place."""

    device = ""

    def __init__(self, *args: Any, **kwargs: Any):
        name = type(self).__name__
        warnings.warn(
            f'{name} is deprecated; use quabla_jax.optim.Trainer(..., device="{self.device}")',
            DeprecationWarning,
            stacklevel=2,
        )
        raise TypeError(f"cannot create {name!r} instances; use quabla_jax.optim.Trainer(..., device={self.device!r})")


class TensorCudaAdamOptimizer(_Retired):
    """Deprecated, as in Quabla 1.0; use `optim.Trainer(..., device="cuda")`."""

    device = "cuda"


class TensorMlxAdamOptimizer(_Retired):
    """Deprecated, as in Quabla 1.0; use `optim.Trainer(..., device="mlx")`."""

    device = "mlx"
