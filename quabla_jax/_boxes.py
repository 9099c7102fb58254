"""A program's regions as a tree of boxes: loops with trip counts and carries, branches, captures, checkpoints, bytes, flops.

Read off the jaxpr of a function by its equations' names and public parameters; the engine's own loops and jax.lax's show alike.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import jax

from .lowering import jax_api
from .lowering.equations import decode_cond, decode_scan, decode_while

__all__ = ["Box", "bytes_text", "regions"]

# Equations that only move or name data.
_FREE = frozenset(
    "broadcast_in_dim reshape squeeze expand_dims convert_element_type bitcast_convert_type copy copy_p stop_gradient slice "
    "transpose dynamic_slice dynamic_update_slice gather scatter concatenate split pad rev iota device_put pvary "
    "optimization_barrier sharding_constraint random_seed random_wrap random_unwrap pure_callback io_callback debug_callback "
    "debug_print create_token empty".split()
)
# Equations whose jaxprs say how two numbers are combined, and are no regions of the program.
_COMBINERS = ("reduce", "scatter", "select_and", "sort", "argm", "cum")


@dataclass
class Box:
    """One region.

    Attributes:
        kind: "function", "scan", "while", "cond", "branch", "call", "devices", "checkpoint", "custom rule" or "derivative".
        title: what a reader calls it: "scan, 4096 trips", "branch 0", a function's name.
        carries, captures: shapes and dtypes of what goes round and of what is captured, as text.
        carry_bytes: bytes of the carries.
        stacked_bytes: bytes of the stacked outputs.
        operations: equations of its own, those of inner regions apart.
        flops: arithmetic operations of one run, inner regions included; moving data is free, a loop without a known trip
            count counts one trip, a derivative sweep the body that it goes through.
        trips_known: whether it runs a number of times that is known.
        notes: the request for its reverse mode, and the like.
    """

    kind: str
    title: str
    carries: list[str] = field(default_factory=list)
    captures: list[str] = field(default_factory=list)
    carry_bytes: int = 0
    stacked_bytes: int = 0
    operations: int = 0
    flops: float = 0.0
    trips_known: bool = True
    notes: list[str] = field(default_factory=list)
    children: list[Box] = field(default_factory=list)

    def lines(self) -> list[str]:
        """The facts of this box as short lines, title first."""
        out = [self.title]
        if self.carries:
            out.append(f"carries {_grouped(self.carries)} ({bytes_text(self.carry_bytes)})")
        if self.captures:
            what = "arguments" if self.kind == "function" else "operands" if self.kind == "cond" else "captures"
            out.append(f"{what} {_grouped(self.captures)}")
        if self.stacked_bytes:
            out.append(f"stacks {bytes_text(self.stacked_bytes)}")
        out += self.notes
        work = f"{self.operations} operation{'s' * (self.operations != 1)}"
        trip = "" if self.trips_known else " a trip"
        out.append(
            f"{work}, {_count_text(self.flops)} flops{trip}{' (the body alone)' if self.kind == 'derivative' else ''}"
        )
        return out

    def walk(self) -> Iterator[Box]:
        yield self
        for child in self.children:
            yield from child.walk()


def _grouped(types: list[str]) -> str:
    """ "f64[3], 12 x f64[]": equal neighbours counted."""
    runs: list[list] = []
    for text in types:
        if runs and runs[-1][0] == text:
            runs[-1][1] += 1
        else:
            runs.append([text, 1])
    return ", ".join(text if n == 1 else f"{n} x {text}" for text, n in runs)


def bytes_text(n: float) -> str:
    """12 B, 3.4 kB, 5.6 MB, ..."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n >= size:
            return f"{n / size:.3g} {unit}"
    return f"{int(n)} B"


def _count_text(n: float) -> str:
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if n >= size:
            return f"{n / size:.3g}{unit}"
    return f"{int(n)}"


_SHORT = {"float": "f", "int": "i", "uint": "u", "bfloat": "bf", "complex": "c"}


def _type_text(aval: Any) -> str:
    name = str(aval.dtype)
    base = name.rstrip("0123456789")
    short = _SHORT.get(base, base) + name[len(base) :]
    return f"{short}[{','.join(map(str, aval.shape))}]"


def _avals(atoms: Any) -> list[Any]:
    return [a.aval for a in atoms]


def _size(aval: Any) -> int:
    return math.prod(getattr(aval, "shape", ()))


def _total_bytes(avals: list[Any]) -> int:
    return sum(jax_api.aval_bytes(a) for a in avals)


def _equation_flops(eqn: Any) -> float:
    name = eqn.primitive.name
    if name in _FREE:
        return 0.0
    out = sum(_size(v.aval) for v in eqn.outvars)
    if name == "dot_general":
        (contract, _), _ = eqn.params["dimension_numbers"]
        shape = eqn.invars[0].aval.shape
        return 2.0 * out * math.prod(shape[i] for i in contract)
    if name == "conv_general_dilated":
        kernel = eqn.invars[1].aval
        return 2.0 * out * _size(kernel) / max(1, kernel.shape[eqn.params["dimension_numbers"].rhs_spec[0]])
    if name == "sort":
        along = eqn.invars[0].aval.shape[eqn.params["dimension"]]
        return _size(eqn.invars[0].aval) * math.log2(max(2, along))
    if name == "fft":
        points = math.prod(eqn.params["fft_lengths"])
        return 5.0 * max(out, _size(eqn.invars[0].aval)) * math.log2(max(2, points))
    if name.startswith("reduce_window"):
        return float(out) * math.prod(eqn.params["window_dimensions"])
    if name == "reduce":
        each = len(getattr(eqn.params["jaxpr"], "jaxpr", eqn.params["jaxpr"]).eqns)
        return float(sum(_size(v.aval) for v in eqn.invars)) * each
    if name.startswith(_COMBINERS):
        updates = eqn.invars[2:] if name.startswith("scatter") else eqn.invars
        return float(sum(_size(v.aval) for v in updates))
    if name in _FACTORS:
        *batch, rows, columns = eqn.invars[0].aval.shape
        return math.prod(batch) * _FACTORS[name](rows, columns)
    if name == "triangular_solve":
        return float(out) * eqn.invars[0].aval.shape[-1]
    return float(out)


# Leading terms of the usual algorithms (Golub & Van Loan, Matrix Computations), of an m x n matrix.
_FACTORS: dict[str, Callable[[int, int], float]] = {
    "cholesky": lambda m, n: n**3 / 3,
    "lu": lambda m, n: (m * n - min(m, n) / 3) * min(m, n),
    "geqrf": lambda m, n: 2 * (m - n / 3) * n**2,
    "householder_product": lambda m, n: 2 * (m - n / 3) * n**2,
    "eigh": lambda m, n: 9.0 * n**3,
    "eig": lambda m, n: 25.0 * n**3,
    "svd": lambda m, n: 4 * max(m, n) ** 2 * min(m, n) + 22 * min(m, n) ** 3,
}


def _fill(box: Box, jaxpr: Any) -> Box:
    """Put the equations of an open or closed jaxpr into a box."""
    inner = getattr(jaxpr, "jaxpr", jaxpr)
    for eqn in inner.eqns:
        made = _box(eqn)
        if made is None:
            box.operations += 1
            box.flops += _equation_flops(eqn)
        elif made.kind == "call" and not any(c.children or c.kind != "call" for c in made.children):
            # A call without regions inside is only a way to write straight-line code.
            box.operations += made.operations
            box.flops += made.flops
        else:
            box.children.append(made)
            box.flops += made.flops
    return box


def _box(eqn: Any) -> Box | None:
    name = eqn.primitive.name
    if name == "scan":
        return _scan_box(eqn)
    if name == "while":
        return _while_box(eqn)
    if name == "cond":
        return _cond_box(eqn)
    if name.startswith("checkpointed_loop") or name.startswith("qb_while"):
        return _engine_box(eqn)
    if jax_api.inner_jaxprs(eqn) and not name.startswith(_COMBINERS) or name == "custom_linear_solve":
        return _call_box(eqn)
    return None


def _loop(
    title: str,
    kind: str,
    body: Any,
    carries: list[Any],
    captures: list[Any],
    stacked: list[Any],
    trips: float,
) -> Box:
    box = Box(kind, title, [_type_text(a) for a in carries], [_type_text(a) for a in captures])
    box.carry_bytes, box.stacked_bytes = _total_bytes(carries), _total_bytes(stacked)
    _fill(box, body)
    box.flops *= trips
    return box


def _scan_box(eqn: Any) -> Box:
    e = decode_scan(eqn)
    avals = _avals(eqn.invars)
    direction = ", reverse" if e.reverse else ""
    return _loop(
        f"scan, {e.length} trip{'s' * (e.length != 1)}{direction}", "scan", e.jaxpr, avals[e.n_consts : e.n_consts + e.n_carry],
        avals[: e.n_consts], _avals(eqn.outvars)[e.n_carry :], e.length,
    )  # fmt: skip


def _while_box(eqn: Any) -> Box:
    e = decode_while(eqn)
    avals = _avals(eqn.invars)
    consts = e.n_cond_consts + e.n_body_consts
    box = _loop("while, trip count known at run time", "while", e.body, avals[consts:], avals[:consts], [], 1)
    box.trips_known = False
    box.children.insert(0, _fill(Box("branch", "predicate"), e.cond))
    return box


def _cond_box(eqn: Any) -> Box:
    branches = decode_cond(eqn).branches
    labels = ("false", "true") if len(branches) == 2 else tuple(f"branch {k}" for k in range(len(branches)))
    box = Box("cond", "cond" if len(branches) == 2 else f"switch, {len(branches)} branches")
    box.captures = [_type_text(a) for a in _avals(eqn.invars)[1:]]
    box.children = [_fill(Box("branch", label), b) for label, b in zip(labels, branches, strict=True)]
    box.flops = max((c.flops for c in box.children), default=0.0)
    return box


_DERIVATIVES = {"lin": "tangent sweep", "vjp": "reverse sweep", "vtan": "derivative of the reverse sweep"}


def _engine_box(eqn: Any) -> Box:
    """A loop of the engine: the body as the user wrote it, whatever the sweep."""
    p, name = eqn.params, eqn.primitive.name
    g, plan = p["g"], p.get("plan")
    length = getattr(plan, "length", None)
    what = _DERIVATIVES.get(name.rsplit("_", 1)[-1])
    trips = f"{length} trip{'s' * (length != 1)}" if length is not None else "trip count known at run time"
    kind = "derivative" if what else "while" if length is None else "scan"
    title = f"{what or ('while' if length is None else 'scan')}, {trips}"
    _, stacked_carries, _ = g.groups(g.avals)
    consts = g.groups(g.avals)[0]
    box = _loop(title, kind, g.jaxpr, stacked_carries, consts, [], length or 1)
    box.trips_known = length is not None
    test = getattr(p.get("cond"), "test", None)
    if test is not None:
        box.children.insert(0, _fill(Box("branch", "predicate"), test.jaxpr))
    pool = p.get("pool")
    if pool is not None and what is None:
        box.notes.append(f"checkpoint={pool.slots} (carries that its gradient keeps)")
    request = getattr(plan, "request", None)
    if request is not None:
        box.notes.append(f"checkpoint={request!r}")
    blocks = getattr(plan, "blocks", None)
    if blocks:
        box.notes.append(f"blocks of {', '.join(map(str, blocks))}")
    return box


def _call_box(eqn: Any) -> Box:
    primitive, p = eqn.primitive.name, eqn.params
    inner = [p["jaxprs"].solve] if primitive == "custom_linear_solve" else jax_api.inner_jaxprs(eqn)
    name = str(p.get("name", primitive))
    kind, devices = "call", 1
    if primitive.startswith(("remat", "checkpoint")):
        kind = name = "checkpoint"
    elif primitive in ("custom_jvp_call", "custom_vjp_call"):
        called = getattr(getattr(inner[0], "jaxpr", inner[0]), "debug_info", None)
        kind, name = (
            "custom rule",
            f"custom rule {getattr(called, 'func_name', None) or primitive.removesuffix('_call')}",
        )
    elif primitive == "custom_linear_solve":
        kind, name = "custom rule", "linear solve with a rule of its own"
    elif primitive in ("shard_map", "xla_pmap"):
        kind, devices = "devices", p["mesh"].size if primitive == "shard_map" else p["global_axis_size"]
        name = f"{name}, {devices} device{'s' * (devices != 1)}"
    elif primitive == "pallas_call":
        devices = math.prod(n for n in p["grid_mapping"].grid if isinstance(n, int))
    box = _fill(Box(kind, name), inner[0])
    box.flops *= devices
    return box


def regions(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Box:
    """The tree of boxes of fun(*args); args may be jax.ShapeDtypeStruct. Nothing is compiled or run."""
    if not callable(fun):
        raise TypeError(f"draw: fun must be callable, got {type(fun).__name__}")
    # A function that JAX has not seen: it would answer with the trace of an earlier call, under other requests.
    closed = jax.make_jaxpr(functools.partial(fun))(*args, **kwargs)
    name = str(getattr(fun, "__name__", type(fun).__name__))
    box = Box("function", "".join(c if c.isprintable() else "?" for c in name))
    box.captures = [_type_text(a) for a in closed.in_avals]
    filled = _fill(box, closed)
    # A jit around the whole function is no region of its own.
    while filled.operations == 0 and len(filled.children) == 1 and filled.children[0].kind == "call":
        only = filled.children[0]
        filled.children, filled.operations = only.children, only.operations
    return filled
