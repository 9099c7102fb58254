"""The fitted trajectory on every target that is installed, compared with XLA."""

from __future__ import annotations

import importlib.util
import pathlib
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass

import jax
import numpy as np

from .model import trajectory

__all__ = ["Comparison", "compare_targets"]

# Another process loads the file with nothing but torch, as a user would who has never heard of this library.
_RELOAD = """
import sys, warnings
warnings.simplefilter("ignore")
import numpy, torch
module = torch.jit.load(sys.argv[1])
theta = torch.tensor([float(v) for v in sys.argv[3:]], dtype=getattr(torch, sys.argv[2]))
numpy.save(sys.argv[1] + ".npy", module(theta).detach().numpy())
"""


@dataclass(frozen=True)
class Comparison:
    """One target: the worst relative difference from XLA in float64 and in float32, or why it was left out."""

    target: str
    float64: float | None = None
    float32: float | None = None
    reason: str = ""


def _installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def _worst(got, reference) -> float:
    return float(np.max(np.abs(np.asarray(got, np.float64) - reference) / np.abs(reference)))


def _on_mlx(theta: np.ndarray) -> np.ndarray:
    from quabla_jax import mlx_backend

    return np.asarray(mlx_backend.jit(trajectory)(theta))


def _on_torch(theta: np.ndarray, path: pathlib.Path) -> np.ndarray:
    from quabla_jax import torch_bridge

    torch_bridge.save(torch_bridge.to_torchscript(trajectory, theta), path)
    numbers = [repr(float(v)) for v in theta]
    subprocess.run([sys.executable, "-c", _RELOAD, str(path), theta.dtype.name, *numbers], check=True)
    result = path.with_name(path.name + ".npy")
    try:
        return np.load(result)
    finally:
        result.unlink()


def compare_targets(theta: np.ndarray, model_path: pathlib.Path) -> list[Comparison]:
    """Run the trajectory of `theta` [6] (float64) on XLA, MLX and the reloaded TorchScript file at `model_path`."""
    theta32 = theta.astype(np.float32)
    reference = np.asarray(jax.jit(trajectory)(theta))
    rows = [Comparison("XLA", 0.0, _worst(jax.jit(trajectory)(theta32), reference))]
    single = model_path.with_name("float32-" + model_path.name)

    def torch32(t: np.ndarray) -> np.ndarray:
        try:
            return _on_torch(t, single)
        finally:
            single.unlink(missing_ok=True)

    targets: list[tuple[str, str, Callable, Callable]] = [
        ("MLX", "mlx", _on_mlx, _on_mlx),
        (
            "TorchScript, saved and loaded by another process",
            "torch",
            lambda t: _on_torch(t, model_path),
            torch32,
        ),
    ]
    for name, package, double, single_precision in targets:
        if not _installed(package):
            rows.append(Comparison(name, reason=f"{package} is not installed (pip install 'quabla-jax[{package}]')"))
            continue
        rows.append(Comparison(name, _worst(double(theta), reference), _worst(single_precision(theta32), reference)))
    return rows
