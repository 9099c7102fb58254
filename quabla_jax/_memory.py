"""qb.memory_report: what the reverse pass of a function stores, loop by loop, beside the compiler's own account."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from ._boxes import bytes_text
from ._cycles import refusing_cycles
from ._files import atomic_path, picture_kind
from .loops.body import Body
from .loops.cost import step_cost
from .loops.plan import checkpointing, choose
from .loops.schedule import Trips
from .lowering import jax_api
from .lowering.equations import decode_scan

__all__ = ["LoopMemory", "MemoryReport", "memory_report"]


@dataclass(frozen=True)
class LoopMemory:
    """One loop of a program.

    Attributes:
        depth: loops around it.
        trips: trip count; None where it is known at run time only.
        carry_bytes: one carry, of the part that derivatives depend on.
        residual_bytes: what one step's derivative needs of the forward pass.
        full_bytes: what the full tape stores: trips times residual_bytes; None where the trip count is unknown.
        stored_bytes: what this loop's plan stores.
        plan: the plan in words.
        stacked_bytes: the outputs that a scan stacks, which every plan leaves whole; their cotangents are as large again.
    """

    depth: int
    trips: int | None
    carry_bytes: int
    residual_bytes: int
    full_bytes: int | None
    stored_bytes: int | None
    plan: str
    stacked_bytes: int = 0


@dataclass(frozen=True)
class MemoryReport:
    """Loops, and the compiled gradient's temporary bytes: as the program is, with every tape full, and with "sqrt" plans.

    Prints as a table; plot(path) draws it; shows as HTML in a notebook.
    """

    loops: tuple[LoopMemory, ...]
    compiled: dict[str, int]

    def rows(self) -> list[tuple[str, ...]]:
        """The table, header first."""
        out = [("loop", "trips", "carry", "residuals a step", "full tape", "stored", "stacks", "plan")]
        for number, m in enumerate(self.loops):
            known = "?" if m.trips is None else str(m.trips)
            full = "?" if m.full_bytes is None else bytes_text(m.full_bytes)
            stored = "?" if m.stored_bytes is None else bytes_text(m.stored_bytes)
            name = "  " * m.depth + str(number)
            sizes = bytes_text(m.carry_bytes), bytes_text(m.residual_bytes), full, stored, bytes_text(m.stacked_bytes)
            out.append((name, known, *sizes, m.plan))
        return out

    def __str__(self) -> str:
        rows = self.rows()
        widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
        lines = ["  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in rows]
        if self.compiled:
            lines.append("compiled gradient, temporary memory:")
            lines += [f"  {name:<22}{bytes_text(size)}" for name, size in self.compiled.items()]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        import html

        head, *rest = self.rows()
        cells = lambda tag, row: "".join(f"<{tag}>{html.escape(c)}</{tag}>" for c in row)
        table = f"<tr>{cells('th', head)}</tr>" + "".join(f"<tr>{cells('td', r)}</tr>" for r in rest)
        sizes = "".join(f"<li>{html.escape(n)}: {bytes_text(b)}</li>" for n, b in self.compiled.items())
        return f"<table>{table}</table><p>Compiled gradient, temporary memory</p><ul>{sizes}</ul>"

    def plot(self, path: str | os.PathLike) -> None:
        """Write bars of the compiled sizes and of each loop's full tape and plan as PNG or SVG (needs matplotlib)."""
        kind = picture_kind("MemoryReport.plot", path)
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt

        figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
        left.barh(list(self.compiled), list(self.compiled.values()), color="#1f6f8b")
        left.set(xscale="log", xlabel="bytes", title="compiled gradient, temporary memory")
        known = [(k, m) for k, m in enumerate(self.loops) if m.full_bytes and m.stored_bytes]
        names = [f"loop {k}, {m.trips} trips" for k, m in known]
        right.barh(names, [m.full_bytes for _, m in known], color="#d1603d", label="full tape")
        right.barh(names, [m.stored_bytes for _, m in known], color="#1f6f8b", height=0.4, label="this plan")
        right.set(xscale="log", xlabel="bytes", title="what each loop stores")
        if known:
            right.legend(frameon=False)
        with atomic_path(path, "MemoryReport.plot") as temporary:
            figure.savefig(temporary, dpi=130, format=kind)
        plt.close(figure)


def _differentiable(aval: Any) -> bool:
    return jnp.issubdtype(jnp.result_type(aval), jnp.inexact)


def _counted(g: Body, trips: Trips, depth: int) -> LoopMemory | None:
    """The record of a counted loop, all its floating inputs differentiated; None where nothing is."""
    mask, y_mask = g.perturbed([_differentiable(a) for a in g.avals])
    if not any(mask):
        return None
    dual = g.dual(mask, y_mask)
    lin = g.weave([False] * len(mask), [True] * sum(mask), mask)
    y_lin = (*[False] * g.num_ys, *[True] * sum(y_mask))
    cost = step_cost(dual, lin, y_lin)
    full = trips.length * cost.residual_bytes
    if trips.length == 0:
        return LoopMemory(depth, 0, cost.carry_bytes, cost.residual_bytes, 0, 0, "no trip")
    choice = choose(trips, cost, trips.request)
    blocks = choice.schedule
    plan = "full tape" if blocks is None else f"blocks of {', '.join(map(str, blocks.blocks))}, {blocks.inner} inside"
    stacked = trips.length * sum(map(jax_api.aval_bytes, g.y_avals))
    return LoopMemory(depth, trips.length, cost.carry_bytes, cost.residual_bytes, full, choice.stored, plan, stacked)


def _while(params: dict[str, Any], depth: int) -> LoopMemory:
    g, pool = params["g"], params["pool"]
    carry = sum(jax_api.aval_bytes(a) for a in g.x_avals if _differentiable(a))
    slots = getattr(pool, "slots", None)
    stored = None if slots is None else slots * sum(jax_api.aval_bytes(a) for a in g.x_avals)
    return LoopMemory(depth, None, carry, carry, None, stored, f"a pool of {slots} carries")


def _collect(jaxpr: Any, depth: int, out: list[LoopMemory]) -> None:
    inner = getattr(jaxpr, "jaxpr", jaxpr)
    for eqn in inner.eqns:
        name, below, made = eqn.primitive.name, depth, None
        if name == "checkpointed_loop":
            made = _counted(eqn.params["g"], eqn.params["plan"], depth)
        elif name == "scan":
            e = decode_scan(eqn)
            open_jaxpr, consts = jax_api.open_jaxpr(e.jaxpr)
            sizes = (e.n_consts, e.n_carry, len(eqn.invars) - e.n_consts - e.n_carry)
            made = _counted(Body(open_jaxpr, consts, sizes), Trips(e.length, e.reverse, request="full"), depth)
        elif name == "qb_while":
            made = _while(eqn.params, depth)
        if made is not None:
            out.append(made)
            below = depth + 1
        for sub in _inside(eqn):
            if name == "shard_map":
                _on_mesh(eqn, functools.partial(_collect, sub, below, out))
            else:
                _collect(sub, below, out)


def _on_mesh(eqn: Any, visit: Callable[[], None]) -> None:
    """Runs `visit` while a shard_map over the mesh of `eqn` is traced, where the names of its axes mean something."""

    def traced() -> jax.Array:
        visit()
        return jnp.zeros(())

    p, nothing = eqn.params, jax.sharding.PartitionSpec()
    names = set(p.get("newly_manual_axes", p["mesh"].axis_names))
    jax.eval_shape(
        jax.shard_map(
            traced, mesh=p["mesh"], in_specs=(), out_specs=nothing, axis_names=names, check_vma=p.get("check_vma", True)
        )
    )


def _inside(eqn: Any) -> list[Any]:
    g = eqn.params.get("g")
    return [g.jaxpr] if isinstance(g, Body) else jax_api.inner_jaxprs(eqn)


@refusing_cycles
def memory_report(fun: Callable[..., Any], *args: Any, compiled: bool = True) -> MemoryReport:
    """What the reverse pass of fun(*args) stores, loop by loop, and what the compiler says of the whole gradient.

    Arguments:
        fun: a function of arrays; its floating outputs are summed and differentiated in all floating arguments.
        args: arrays, or jax.ShapeDtypeStruct for shapes alone.
        compiled: also compile the gradient as it is, with checkpoint="full" and with "sqrt" for loops whose request is
            "auto", and report each program's temporary bytes.

    Returns:
        A MemoryReport. Raises ValueError where no argument is floating. Loops differentiated in all their floating inputs; an inner loop's figures are those of one run.

    Cost: one trace, and up to three compilations. Nothing is run.
    """
    if not callable(fun):
        raise TypeError(f"memory_report: fun must be callable, got {type(fun).__name__}")
    found: list[LoopMemory] = []
    # A function that JAX has not seen: it would answer with the trace of an earlier call, under other requests.
    _collect(jax.make_jaxpr(functools.partial(fun))(*args), 0, found)
    if not any(map(_differentiable, jax.tree.leaves(args))):
        raise ValueError("memory_report: no argument is a float array, so that there is no gradient to report on")
    sizes: dict[str, int] = {}
    if compiled:
        floats = tuple(n for n, a in enumerate(args) if all(map(_differentiable, jax.tree.leaves(a))))

        def total(*inputs: Any) -> Any:
            return sum(jnp.sum(y) for y in jax.tree.leaves(fun(*inputs)) if _differentiable(y))

        for label, request in (
            ("as written", None),
            ('checkpoint="full"', "full"),
            ('checkpoint="sqrt"', "sqrt"),
        ):

            def gradient(*inputs: Any) -> Any:
                return jax.grad(total, floats)(*inputs)

            if request is None:
                analysis = jax.jit(gradient).lower(*args).compile().memory_analysis()
            else:
                with checkpointing(request):
                    analysis = jax.jit(gradient).lower(*args).compile().memory_analysis()
            if analysis is not None:  # a platform without one
                sizes[label] = analysis.temp_size_in_bytes
    return MemoryReport(tuple(found), sizes)
