"""Structured control flow for array programs, on XLA, MLX and PyTorch.

`import quabla_jax as qb` gives Quabla 1.0's names on jax.Array. Every name below is loaded on first use, so the
import itself costs next to nothing and pulls in no optional library.
"""

from importlib import import_module as _import_module

__version__ = "0.1.0"

# module -> the public names that it gives to this namespace
_EXPORTS = {
    "_draw": "draw",
    "_memory": "memory_report",
    "_newton": "newton",
    "_progress": "progress",
    "arrays": "arange array asarray astype eye full full_like linspace ones ones_like zeros zeros_like",
    "compiler": "Compiler Executable Program TensorCudaAdamOptimizer TensorMlxAdamOptimizer devices",
    "control": "cond fori_loop scan switch while_loop",
    "custom": "checkpoint custom_jvp custom_vjp remat stop_gradient",
    "dtypes": "ShapeDtype bool_ dtype float32 float64",
    "errors": "QuablaError RetraceLimitError RetraceWarning TracerError UnsupportedOperationError",
    "io": "load save",
    "linalg": "solve",
    "loops": "Budget LoopPlan checkpointing plan_loop",
    "math": "abs arccos arccosh arcsin arcsinh arctan arctanh atan2 cbrt ceil clip cos cosh equal erf erfc exp exp2 expm1 "
    "floor fmod gelu greater greater_equal hypot isfinite isinf isnan less less_equal log log10 log1p log2 logaddexp "
    "logical_and logical_not logical_or maximum minimum mod nan_to_num not_equal power reciprocal relu remainder round "
    "sigmoid sign silu sin sinh softplus sqrt square tan tanh where",
    "products": "cholesky cross diff dot einsum interp kron matmul outer polyval tensordot trapezoid",
    "reductions": "all any cumsum log_softmax logsumexp max mean min norm prod softmax std sum var",
    "shapes": "broadcast_to concat diag diagonal expand_dims flip meshgrid moveaxis pad ravel repeat reshape roll split "
    "squeeze stack swapaxes tile trace transpose tril triu",
    "transforms": "Array Tensor TensorView TraceTensor grad hessian jacobian jit jvp value_and_grad vjp vmap",
}
_SUBMODULES = ("distributed", "linalg", "ode", "optim", "random", "tree")

_OWNER = {name: module for module, names in _EXPORTS.items() for name in names.split()}
_SHADOWS_BUILTIN = frozenset("abs all any max min round sum".split())

__all__ = sorted(name for name in _OWNER if name not in _SHADOWS_BUILTIN)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str):
    if name in _OWNER:
        value = getattr(_import_module(f"{__name__}.{_OWNER[name]}"), name)
    elif name in _SUBMODULES:
        value = _import_module(f"{__name__}.{name}")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__():
    return sorted({*globals(), *_OWNER, *_SUBMODULES})
