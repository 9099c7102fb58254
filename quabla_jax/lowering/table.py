"""The docs table of primitives, made from the rules; and one sample node for every core op, for targets to be asked about."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import ml_dtypes
import numpy as np

from . import rules
from .core_ops import CORE_OPS
from .emitter import COMPOSITIONS
from .infer import infer
from .program import Op, Value

__all__ = ["SAMPLE_DTYPES", "markdown", "sample_nodes"]

Supports = Callable[[Op], "str | None"]

SAMPLE_DTYPES = tuple(
    np.dtype(t)
    for t in (
        bool, np.int8, np.int32, np.int64, np.uint8, np.uint32, np.uint64,
        ml_dtypes.bfloat16, np.float16, np.float32, np.float64, np.complex64, np.complex128,
    )
)  # fmt: skip

_FLOAT, _COMPLEX, _INTEGER = "fV", "c", "iu"
_REAL_ONLY = (
    "floor ceil round_even cbrt erf erfc erf_inv lgamma digamma is_finite rem atan2 nextafter complex lt le gt ge max min "
    "reduce_max reduce_min argmax argmin cummax cummin argsort"
).split()  # fmt: skip
_BITS = "and or xor not reduce_and reduce_or reduce_xor".split()
_INTEGERS = "population_count clz shift_left shift_right_logical shift_right_arithmetic".split()
_FLOATS_TOO = (
    "exp expm1 log log1p sqrt rsqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh logistic pow cholesky "
    "triangular_solve lu qr eigh svd eig"
).split()  # fmt: skip
_FLOATS = "floor ceil round_even cbrt erf erfc erf_inv lgamma digamma is_finite atan2 nextafter complex".split()
_INPUTS: dict[str, tuple[tuple[int, ...], ...]] = {
    "iota": (), "concat": ((2, 3), (2, 3)), "matmul": ((2, 3, 4), (2, 4, 5)), "conv": ((2, 4, 6), (6, 2, 3)),
    "fft": ((3, 8),), "dynamic_update_slice": ((2, 3), (1, 2)), "triangular_solve": ((3, 3), (3, 2)),
    "gather_flat": ((6,),), "scatter_flat": ((6,),), "scatter_rows": ((6, 2),), "pad": ((2, 3), ()), "lu": ((4, 3),),
    "qr": ((4, 3),), "svd": ((4, 3),), "cholesky": ((3, 3),), "eigh": ((3, 3),), "eig": ((3, 3),),
}  # fmt: skip
_EXTRA: dict[str, tuple[tuple[tuple[int, ...], str], ...]] = {
    "dynamic_slice": (((), "i4"), ((), "i4")), "dynamic_update_slice": (((), "i4"), ((), "i4")), "take": (((4,), "i4"),),
    "gather_flat": (((2, 2), "i4"),), "scatter_flat": (((4,), "i4"), ((4,), "")), "scatter_rows": (((4,), "i4"), ((4, 2), "")),
    "take_along_axis": (((2, 3), "i4"),),
}  # fmt: skip
_I32 = np.dtype(np.int32)
_PARAMS: dict[str, dict] = {
    "reshape": {"shape": (3, 2)}, "transpose": {"perm": (1, 0)}, "broadcast": {"shape": (4, 2, 3), "dims": (1, 2)},
    "slice": {"start": (0, 1), "limit": (2, 3), "stride": (1, 2)}, "concat": {"axis": 1}, "rev": {"axes": (1,)},
    "pad": {"low": (1, 0), "high": (0, -1), "interior": (0, 1)}, "dynamic_slice": {"sizes": (1, 2)}, "take": {"axis": 1},
    "scatter_flat": {"kind": "add", "unique": False}, "scatter_rows": {"kind": "add", "unique": False},
    "take_along_axis": {"axis": 1}, "argmax": {"axis": 1, "dtype": _I32}, "argmin": {"axis": 1, "dtype": _I32},
    "argsort": {"axis": 1, "dtype": _I32}, "windows": {"sizes": (1, 2), "strides": (1, 1), "dilation": (1, 1)},
    "conv": {"strides": (1,), "padding": ((1, 1),), "lhs_dilation": (1,), "rhs_dilation": (1,), "groups": 2},
    "fft": {"kind": "fft", "lengths": (8,)}, "qr": {"full_matrices": False}, "eig": {"left": False, "right": True},
    "triangular_solve": {"lower": True, "transpose": False, "unit_diagonal": False, "conjugate": False},
    "svd": {"full_matrices": False, "compute_uv": True},
}  # fmt: skip


def _takes(name: str, dtype: np.dtype) -> bool:
    """Whether a core op is defined on a dtype."""
    kind = dtype.kind
    if name in _INTEGERS:
        return kind in _INTEGER
    if name in _BITS:
        return kind in _INTEGER or kind == "b"
    if name in _FLOATS:
        return kind in _FLOAT and (name != "complex" or dtype.itemsize >= 4)
    if name in _FLOATS_TOO:
        return kind in (_FLOAT + _COMPLEX) and (
            CORE_OPS[name].family != "linalg" or dtype.itemsize >= 4 and kind != "V"
        )
    if name in ("real", "imag", "conj", "fft"):
        return kind in _COMPLEX
    if name in _REAL_ONLY:
        return kind not in _COMPLEX and not (kind == "b" and name in ("lt", "le", "gt", "ge", "rem"))
    if name in (
        "neg",
        "abs",
        "sign",
        "sub",
        "mul",
        "div",
        "cumsum",
        "cumprod",
        "conv",
        "add",
        "reduce_prod",
        "reduce_sum",
    ):
        return kind != "b"
    return True


def sample_nodes(name: str) -> dict[np.dtype, Op]:
    """For every dtype that the core op is defined on, one small node."""
    nodes = {}
    for dtype in SAMPLE_DTYPES:
        if not _takes(name, dtype) or name == "host_call":
            continue
        default: tuple[tuple[int, ...], ...] = ((2, 3),) * (2 if CORE_OPS[name].family == "binary" else 1)
        inputs = [Value(shape, dtype) for shape in _INPUTS.get(name, default)]
        inputs += [Value(shape, np.dtype(code) if code else dtype) for shape, code in _EXTRA.get(name, ())]
        params = dict(_PARAMS.get(name, {}))
        if name == "select":
            inputs = [Value((2, 3), np.dtype(bool)), *inputs, *inputs]
        elif name == "iota":
            params = {"dtype": dtype, "shape": (2, 3), "axis": 1}
        elif name == "matmul":
            params = {"dtype": dtype}
        elif name == "cast":
            params = {"dtype": _I32 if dtype.kind != "c" else np.dtype(np.complex64)}
        elif name == "bitcast":
            params = {"dtype": np.dtype(f"u{dtype.itemsize}") if dtype.kind not in "bc" else dtype}
        elif name.startswith("reduce_"):
            params = {"axes": (1,)}
        elif name.startswith("cum"):
            params = {"axis": 1, "reverse": False}
        specs = infer(name, [v.shape for v in inputs], [v.dtype for v in inputs], params)
        nodes[dtype] = Op(name, tuple(inputs), params, tuple(Value(s, d) for s, d in specs))
    return nodes


def _cell(name: str, supports: Supports) -> str:
    """What one target does with one core op: native, composed, or refused, with the dtypes that differ."""
    if name == "host_call":
        value = Value((), np.dtype(np.float32))
        node = Op(name, (value,), {"callback": None, "results": (((), np.dtype(np.float32)),)}, (value,))
        return "native" if supports(node) is None else "refused"
    answers = {dtype: supports(node) for dtype, node in sample_nodes(name).items()}
    refused = [d.name for d, reason in answers.items() if reason is not None]
    if not refused:
        return "native"
    word = "composed" if name in COMPOSITIONS else "refused"
    return word if len(refused) == len(answers) else f"native; {word}: {', '.join(refused)}"


def markdown(targets: Mapping[str, Supports], command: str) -> str:
    """docs/primitives.md: every primitive with its rule, then every core op with what each target does."""
    registered = sorted(
        ((name.removesuffix("_p").lstrip("_"), r) for r in rules.REGISTERED for name in r.names),
        key=lambda p: p[0],
    )
    counts = {kind: sum(r.kind == kind for _, r in registered) for kind in rules.KINDS}
    lines = [
        "# JAX primitives and core ops",
        "",
        f"Made by `{command}`; a test fails when this page is stale.",
        "",
        "Every JAX primitive of a traced program becomes core ops by one rule. **direct**: one core op, up to reshapes and "
        "casts. **composed**: several core ops. **expanded**: a Python definition, traced again and lowered in its place. "
        "**inlined**: a call whose body takes its place, or the identity. **control**: a Loop or a Branch. **refused**: "
        "`UnsupportedOperationError` names the primitive and the line before anything runs.",
        "",
        "A primitive of another library without a rule here (equinox's `select_if_vmap`, `unvmap_any`, `maybe_set`, "
        "`nonbatchable`; lineax's `linear_solve`; the loops of quabla_jax itself) is expanded through the Python function "
        "that it registered with JAX for its lowering.",
        "",
        "`pure_callback`, `io_callback`, `debug_callback` and `debug_print` run on targets that stay in Python (MLX) and are refused by the others, with one exception: the "
        "callback of equinox's `error_if` only ever raises, and where nothing can raise its results become NaN (equinox's own "
        '`on_error="nan"`), least integers and False. Tangents of integers (float0) are bool zeros. Max pooling\'s gradient '
        "of a window with a NaN goes to its first NaN.",
        "",
        ", ".join(f"{count} {kind}" for kind, count in counts.items()) + ".",
        "",
        "| primitive | rule | in | why refused |",
        "|---|---|---|---|",
    ]
    lines += [f"| {name} | {r.kind} | {r.module} | {r.reason} |" for name, r in registered]
    lines += [
        "",
        "## Core ops, target by target",
        "",
        "**native**: the target's own operations. **composed**: the target lacks it, so lowering writes it with other core "
        "ops. Dtypes that differ from the rest are named.",
        "",
        "| core op | meaning | " + " | ".join(targets) + " |",
        "|---|---|" + "---|" * len(targets),
    ]
    for name, row in CORE_OPS.items():
        meaning = row.meaning.replace("|", "\\|")
        lines.append(f"| {name} | {meaning} | " + " | ".join(_cell(name, s) for s in targets.values()) + " |")
    return "\n".join(lines) + "\n"


def names() -> Sequence[str]:
    """Every primitive name that has a rule."""
    return [name for r in rules.REGISTERED for name in r.names]
