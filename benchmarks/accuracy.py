"""Measures every elementwise float function on every target against mpmath, in ulp, and writes docs/accuracy.md.

    python benchmarks/accuracy.py [-o docs/accuracy.md] [--points 400] [--only NAME]

The bar: 4 ulp or JAX's own error, whichever is larger. Points are spread over each function's domain, evenly and
logarithmically, with the places where it is hard (zeros, poles, large arguments). Results that are subnormal or
overflow are left out. Exit status 1 where a target misses the bar.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:] = [p for p in sys.path if Path(p).resolve() != HERE]  # its neighbours are named like libraries

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import mpmath  # noqa: E402
import numpy as np  # noqa: E402
from jax import lax  # noqa: E402

jax.config.update("jax_enable_x64", True)
COMMAND = "python benchmarks/accuracy.py"
DTYPES = (np.float32, np.float64)
BAR = 4.0

_both = [(-30, 30), (-1, 1)]
_tiny = (1e-30, 1)
FUNCTIONS: dict[str, tuple[Callable, Callable, list[tuple[float, float]]]] = {
    "exp": (lax.exp, mpmath.exp, [(-80, 80), (-1, 1)]),
    "exp2": (lax.exp2, lambda x: mpmath.power(2, x), [(-100, 100), (-1, 1)]),
    "expm1": (lax.expm1, mpmath.expm1, [(-30, 80), (-1, 1), (-1e-6, 1e-6)]),
    "log": (lax.log, mpmath.log, [(1e-30, 1e30), (0.5, 2)]),
    "log1p": (lax.log1p, mpmath.log1p, [(-0.99, 1), (1e-6, 1e6), (-1e-6, 1e-6)]),
    "sqrt": (lax.sqrt, mpmath.sqrt, [(1e-30, 1e30)]),
    "rsqrt": (lax.rsqrt, lambda x: 1 / mpmath.sqrt(x), [(1e-30, 1e30)]),
    "cbrt": (lax.cbrt, lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x)), [(-1e30, 1e30), (-2, 2)]),
    "sin": (lax.sin, mpmath.sin, [*_both, (-1e5, 1e5)]),
    "cos": (lax.cos, mpmath.cos, [*_both, (-1e5, 1e5)]),
    "tan": (lax.tan, mpmath.tan, [*_both, (-1e5, 1e5)]),
    "asin": (lax.asin, mpmath.asin, [(-1, 1)]),
    "acos": (lax.acos, mpmath.acos, [(-1, 1)]),
    "atan": (lax.atan, mpmath.atan, [*_both, (-1e10, 1e10)]),
    "sinh": (lax.sinh, mpmath.sinh, [(-80, 80), (-1, 1), (-1e-4, 1e-4)]),
    "cosh": (lax.cosh, mpmath.cosh, [(-80, 80), (-1, 1)]),
    "tanh": (lax.tanh, mpmath.tanh, [*_both, (-1e-4, 1e-4)]),
    "asinh": (lax.asinh, mpmath.asinh, [*_both, (-1e10, 1e10), (-1e-4, 1e-4)]),
    "acosh": (lax.acosh, mpmath.acosh, [(1, 3), (1, 1e10)]),
    "atanh": (lax.atanh, mpmath.atanh, [(-0.999, 0.999), (-1e-4, 1e-4)]),
    "logistic": (lax.logistic, lambda x: 1 / (1 + mpmath.exp(-x)), [(-80, 80), (-1, 1)]),
    "erf": (lax.erf, mpmath.erf, [(-5, 5), (-1e-4, 1e-4)]),
    "erfc": (lax.erfc, mpmath.erfc, [(-5, 9), (-1e-4, 1e-4)]),
    "erf_inv": (lax.erf_inv, mpmath.erfinv, [(-0.9999, 0.9999), (-1e-4, 1e-4)]),
    "lgamma": (lax.lgamma, lambda x: mpmath.re(mpmath.loggamma(x)), [(0.01, 30), (1e-6, 1e6), (0.9, 2.1), (-9.7, -0.01)]),
    "digamma": (lax.digamma, mpmath.digamma, [(0.01, 30), (1e-3, 1e6), (1.2, 1.8), (-9.7, -0.01)]),
    "bessel_i0e": (lax.bessel_i0e, lambda x: mpmath.besseli(0, x) * mpmath.exp(-abs(x)), [(-40, 40)]),
    "bessel_i1e": (lax.bessel_i1e, lambda x: mpmath.besseli(1, x) * mpmath.exp(-abs(x)), [(-40, 40)]),
    "pow": (lambda x: lax.pow(jnp.abs(x) + 0.5, x), lambda x: mpmath.power(abs(x) + 0.5, x), [(-20, 20)]),
    "atan2": (lambda x: lax.atan2(x, x * x - 2), lambda x: mpmath.atan2(x, x * x - 2), [(-1e3, 1e3), (0.5, 1)]),
}  # fmt: skip
_EXACT_INNER = {"pow", "atan2"}
"""Functions of several steps, whose inner arithmetic is done at inputs where it is exact."""


def points(spans: list[tuple[float, float]], count: int, dtype, coarse: bool) -> np.ndarray:
    rng = np.random.default_rng(0)
    parts = []
    for low, high in spans:
        parts.append(rng.uniform(low, high, count))
        size = np.exp(rng.uniform(math.log(max(abs(low), abs(high)) * 1e-6), math.log(max(abs(low), abs(high))), count))
        parts.append(size if low >= 0 else size * rng.choice([-1, 1], count))
    x = np.concatenate(parts)
    x = x[(x >= spans[0][0]) | (len(spans) > 1)]
    inside = np.zeros(len(x), bool)
    for low, high in spans:
        inside |= (x >= low) & (x <= high)
    x = x[inside]
    return np.unique(np.round(x * 64) / 64 if coarse else x).astype(dtype)


def ulps(got: np.ndarray, exact: list, dtype) -> float:
    """The greatest distance from the exact values in units of their last place; inf where a value is missing."""
    info, worst = np.finfo(dtype), 0.0
    for g, e in zip(got, exact, strict=True):
        size = abs(e)
        if not mpmath.isfinite(e) or size < float(info.tiny) or size > float(info.max):
            continue
        if not np.isfinite(g):
            return math.inf
        unit = mpmath.ldexp(1, int(mpmath.floor(mpmath.log(size, 2))) - info.nmant)
        worst = max(worst, float(abs(mpmath.mpf(float(g)) - e) / unit))
    return worst


def on_jax(fun, x):
    return np.asarray(jax.jit(fun)(x))


def on_compositions(fun, x):
    """The oracle, with every float function that lowering can compose left out but for those that compositions use."""
    from quabla_jax import lowering
    from quabla_jax.lowering.emitter import COMPOSITIONS
    from quabla_jax.lowering.numpy_builder import NumpyBuilder

    left_out = set(COMPOSITIONS) - {"expm1", "log1p", "tan", "erf", "erfc", "sinh", "cosh", "tanh"}

    class Bare(NumpyBuilder):
        def supports(self, node):
            return "left out" if node.name in left_out else None

    return lowering.run_on_numpy(lowering.lower(fun, x, builder=Bare()), x)[0]


def on_mlx(fun, x):
    from quabla_jax import mlx_backend

    return (
        np.asarray(mlx_backend.jit(fun, device="mlx:cpu")(x))
        if _mlx_takes_device()
        else np.asarray(mlx_backend.jit(fun)(x))
    )


def _mlx_takes_device() -> bool:
    import inspect

    from quabla_jax import mlx_backend

    return "device" in inspect.signature(mlx_backend.jit).parameters


def on_torch(fun, x):
    import torch

    from quabla_jax import torch_bridge

    return torch_bridge.to_torchscript(fun, x)(torch.from_numpy(x)).numpy()


TARGETS: dict[str, Callable] = {
    "JAX": on_jax,
    "compositions": on_compositions,
    "MLX (CPU)": on_mlx,
    "TorchScript": on_torch,
}


def available() -> dict[str, Callable]:
    import importlib.util

    needs = {"MLX (CPU)": "mlx", "TorchScript": "torch"}
    return {k: f for k, f in TARGETS.items() if k not in needs or importlib.util.find_spec(needs[k])}


def measure(name: str, count: int, targets: dict[str, Callable], dtype) -> dict[str, float]:
    fun, exact, spans = FUNCTIONS[name]
    x = points(spans, count, dtype, name in _EXACT_INNER)
    with mpmath.workdps(40):
        reference = [mpmath.mpf(exact(mpmath.mpf(float(v)))) for v in x]
        return {target: ulps(run(fun, x), reference, dtype) for target, run in targets.items()}


def _show(value: float) -> str:
    return "inf" if math.isinf(value) else f"{value:.1f}" if value < 1e4 else f"{value:.1e}"


def report(count: int, only: str | None = None) -> tuple[str, list[str]]:
    targets, missed = available(), []
    lines = [
        "# Accuracy of elementwise functions",
        "",
        f"Made by `{COMMAND}`: the greatest error in ulp against mpmath over {count} points a span, spread evenly and "
        "logarithmically. The bar is 4 ulp or JAX's own error, whichever is larger; **bold** misses it. *compositions*: "
        "what lowering writes for a target that lacks the function, run in NumPy.",
        "",
    ]
    for dtype in DTYPES:
        lines += [
            f"## {np.dtype(dtype).name}",
            "",
            "| function | " + " | ".join(targets) + " |",
            "|---|" + "---|" * len(targets),
        ]
        for name in FUNCTIONS:
            if only not in (None, name):
                continue
            found = measure(name, count, targets, dtype)
            bar = max(BAR, found["JAX"])
            cells = []
            for target, error in found.items():
                over = error > bar
                cells.append(f"**{_show(error)}**" if over else _show(error))
                if over:
                    missed.append(f"{name} {np.dtype(dtype).name} on {target}: {_show(error)} ulp, bar {_show(bar)}")
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
            print(lines[-1], flush=True)
        lines.append("")
    return "\n".join(lines), missed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", type=Path, default=Path(__file__).parents[1] / "docs" / "accuracy.md")
    parser.add_argument("--points", type=int, default=400)
    parser.add_argument("--only")
    args = parser.parse_args()
    text, missed = report(args.points, args.only)
    if args.only is None:
        args.o.write_text(text)
    print("\n".join(missed))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
