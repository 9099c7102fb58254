"""Backends that get a closed jaxpr: the NumPy oracle, MLX, TorchScript (saved and reloaded) and torch.export."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import tempfile
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from ..transforms import Space

__all__ = ["Mlx", "NumpyOracle", "TorchExport", "TorchGraphs", "TorchScript"]


def _function(closed: Any) -> Callable:
    """The closed jaxpr as a function of flat arrays that gives a tuple."""
    return lambda *xs: tuple(jax.core.eval_jaxpr(closed.jaxpr, closed.consts, *xs))


def _scratch() -> tempfile.TemporaryDirectory:
    """A folder for a moment: in memory where there is such a place, since saving waits for the disk."""
    memory = "/dev/shm"
    return tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK | os.X_OK) else None)


def _examples(closed: Any) -> list[jax.ShapeDtypeStruct]:
    return [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in closed.in_avals]


class NumpyOracle:
    """The lowering core's own slow interpreter."""

    name = "numpy"

    def available(self) -> str | None:
        return None

    def prepare(self, closed: Any) -> Callable[..., list[np.ndarray]]:
        from quabla_jax import lowering

        program = lowering.lower(_function(closed), *_examples(closed))
        return lambda *xs: lowering.run_on_numpy(program, *xs)


class Mlx:
    name = "mlx"

    def available(self) -> str | None:
        return None if importlib.util.find_spec("mlx") else "mlx is not installed (pip install 'quabla-jax[mlx]')"

    def prepare(self, closed: Any) -> Callable[..., list[np.ndarray]]:
        from quabla_jax import mlx_backend

        fun = mlx_backend.lower(_function(closed), *_examples(closed)).compile()
        return lambda *xs: [np.asarray(y) for y in fun(*xs)]


def _to_torch(x: np.ndarray) -> Any:
    import torch

    if x.dtype.name == "bfloat16":
        return torch.from_numpy(x.astype(np.float32)).to(torch.bfloat16)
    return torch.from_numpy(np.array(x))


def _from_torch(out: Any) -> list[np.ndarray]:
    import ml_dtypes
    import torch

    def one(y: Any) -> np.ndarray:
        if y.dtype == torch.bfloat16:
            return y.float().detach().numpy().astype(ml_dtypes.bfloat16)
        return y.detach().numpy()

    return [one(y) for y in (out if isinstance(out, (tuple, list)) else (out,))]


def _same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


class _Torch:
    def available(self) -> str | None:
        return None if importlib.util.find_spec("torch") else "torch is not installed (pip install 'quabla-jax[torch]')"


class TorchScript(_Torch):
    name = "torchscript"

    def prepare(self, closed: Any) -> Callable[..., list[np.ndarray]]:
        import torch

        from quabla_jax import torch_bridge

        with _scratch() as folder:
            path = pathlib.Path(folder, "cell.pt")
            torch_bridge.save(torch_bridge.to_torchscript(_function(closed), *_examples(closed)), path)
            module = torch.jit.load(os.fspath(path))

        specialised = False

        def run(*xs: np.ndarray) -> list[np.ndarray]:
            nonlocal specialised
            tensors = [_to_torch(x) for x in xs]
            first = again = _from_torch(module(*tensors))
            if not specialised:  # the profiling executor specialises the graph after two calls
                for _ in range(2):
                    again = _from_torch(module(*tensors))
                specialised = True
            if not all(_same_bits(a, b) for a, b in zip(first, again, strict=True)):
                raise AssertionError("the third call gives another result than the first")
            return again

        return run


class TorchExport(_Torch):
    name = "export"

    def prepare(self, closed: Any) -> Callable[..., list[np.ndarray]]:
        import torch

        from quabla_jax import torch_bridge

        with _scratch() as folder:
            path = pathlib.Path(folder, "cell.pt2")
            torch_bridge.save(torch_bridge.to_exported_program(_function(closed), *_examples(closed)), path)
            module = torch.export.load(path).module()
        return lambda *xs: _from_torch(module(*map(_to_torch, xs)))


class TorchGraphs(_Torch):
    """GraphBuilder itself: programs in the "graph" dialect build their TorchScript by hand."""

    name = "graph"

    def space(self, dialect: str) -> Space | None:
        if dialect != "graph":
            return None
        from quabla_jax import torch_bridge

        def never(*_: Any) -> Any:
            raise TypeError("a hand-built graph has no transforms")

        return Space(
            torch_bridge,
            never,
            never,
            never,
            never,
            never,
            lambda a, dtype=None: _to_torch(np.asarray(a)),
            never,
        )
