"""Counted loops with an elementwise body as one kernel: what runs on CUDA in place of one launch a step.

A body is elementwise when every array that it touches is a scalar or has one common number n of elements, and every
equation works on each element for itself. One program of the kernel then takes LANES elements through all steps: the
forward pass, which also stores the carries that a schedule keeps, and the whole first reverse sweep (from the last block to
the first: run the block again from its kept carry, keeping every step's; then transpose step by step). The derivatives of
such a body are elementwise as well, so loops of higher order are such kernels too.

Scalars stay scalars, computed alike by every program. A cotangent of a scalar is n partial sums, added up outside the
kernel; where a scalar is an output, its cotangent enters in the first lane alone.

Kept to the loops as they are: bodies with another shape, a reduction, an index or an unusual dtype; schedules of more than
one level; a loop over devices that XLA is left to divide. Written with jax.experimental.pallas (its Triton backend), which
also interprets the kernels on any machine: that is how they are tested where there is no GPU.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..lowering import jax_api as api
from ._lists import merge, omit, pick, split
from .body import Batched, Body
from .counted import lin_p, loop_p, vjp_p
from .schedule import Schedule, Trips

LANES = 128
LARGEST = 2**31 - 1  # elements of one operand: the kernels count with 32-bit integers

OPERATIONS = frozenset(
    "abs acos acosh add add_any and asin asinh atan atan2 atanh cbrt ceil clamp clz convert_element_type cos cosh div eq "
    "erf_inv exp exp2 expm1 floor ge gt integer_pow is_finite le log log1p logistic lt max min mul ne neg nextafter not or "
    "population_count pow rem rsqrt select_n shift_left shift_right_arithmetic shift_right_logical sign sin sinh sqrt "
    "square sub tan tanh xor".split()
)
"""Elementwise primitives that Pallas lowers to Triton on every supported JAX version."""
RENAMED = frozenset(("broadcast_in_dim", "reshape", "squeeze", "expand_dims", "copy", "copy_p", "stop_gradient"))
"""Primitives that keep each element, or give the one element there is to all."""
CALLS = frozenset(("jit", "pjit", "closed_call", "remat2", "checkpoint", "custom_jvp_call", "eval_jaxpr"))
DTYPES = frozenset("bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64".split())

_interpreted = False


def enabled() -> bool:
    """Whether loops may become kernels; QUABLA_JAX_FUSED_LOOPS=0 in the environment says no."""
    return os.environ.get("QUABLA_JAX_FUSED_LOOPS", "1") != "0"


@contextlib.contextmanager
def interpreted() -> Iterator[None]:
    """For tests: loops traced and lowered inside run as these kernels on every platform, in Pallas's interpreter."""
    global _interpreted
    for p, choose in KERNELS.items():
        api.define_kernel_lowering(p, lambda choose=choose, **params: choose(**params) if _interpreted else None, "cpu")
    jax.clear_caches()
    before, _interpreted = _interpreted, True
    try:
        yield
    finally:
        _interpreted = before
        jax.clear_caches()


def wanted() -> bool:
    """Whether a loop on the default device may become a kernel."""
    return enabled() and (_interpreted or jax.default_backend() == "gpu")


# ---- which bodies


def elements(g: Body) -> int | None:
    """The common number of elements of an elementwise body's arrays; None for any other body."""
    return g.once("elements", lambda: _elements(g))


def _elements(g: Body) -> int | None:
    if isinstance(g, Batched) and g.linear and elements(g.below) is None:
        return None
    sizes = {a.size for a in (*g.avals, *g.y_avals)} - {1}
    n = sizes.pop() if sizes else 1
    good = not sizes and n > 0 and g.x_avals and _is_elementwise(g.jaxpr, n)
    return n if good else None


def _is_elementwise(jaxpr: Any, n: int) -> bool:
    atoms = [*jaxpr.invars, *jaxpr.outvars, *[v for e in jaxpr.eqns for v in (*e.invars, *e.outvars)]]
    avals = [v.aval for v in atoms]
    if any(str(getattr(a, "dtype", None)) not in DTYPES or a.size not in (1, n) for a in avals):
        return False
    return all(_is_simple(e, n) for e in jaxpr.eqns)


def _is_simple(eqn: Any, n: int) -> bool:
    name = eqn.primitive.name
    if name in CALLS:
        return all(_is_elementwise(api.open_jaxpr(j)[0], n) for j in api.inner_jaxprs(eqn))
    if name == "reshape" and eqn.params.get("dimensions") is not None:
        return False
    if name in RENAMED:
        return eqn.invars[0].aval.size in (1, eqn.outvars[0].aval.size)
    return name in OPERATIONS


def _evaluate(jaxpr: Any, args: Sequence[Any]) -> list[Any]:
    """A constant-free elementwise jaxpr on values that are scalars or LANES wide, whatever the shapes it was traced for."""
    env: dict[Any, Any] = dict(zip(jaxpr.invars, args, strict=True))
    read = lambda v: env[v] if api.is_var(v) else np.asarray(v.val).astype(v.aval.dtype).reshape(())[()]
    for eqn in jaxpr.eqns:
        vals, name = list(map(read, eqn.invars)), eqn.primitive.name
        if name in RENAMED:
            out = vals[:1]
        elif name in CALLS:
            inner, consts = api.open_jaxpr(api.inner_jaxprs(eqn)[0])
            out = _evaluate(inner, [*consts, *vals] if len(inner.invars) != len(vals) else vals)
        else:
            if any(np.ndim(v) for v in vals):
                vals = list(map(_wide, vals))
            out = api.rebind(eqn, vals)
        env.update(zip(eqn.outvars, out, strict=True))
    return list(map(read, jaxpr.outvars))


def _wide(v: Any) -> Any:
    return v if np.ndim(v) else lax.broadcast_in_dim(v, (LANES,), ())


class _View:
    """An elementwise body as the kernels see it: its constants are inputs like the others."""

    def __init__(self, g: Body, n: int):
        self.n, self.jaxpr, self.consts = n, g.jaxpr, list(g.consts)
        self.sizes = (len(self.consts) + g.sizes[0], *g.sizes[1:])
        self.avals = [*[api.strong_aval(v.aval) for v in g.jaxpr.invars[: len(self.consts)]], *g.avals]
        self.x_avals, self.y_avals = list(g.x_avals), list(g.y_avals)

    def groups(self, per_input: Sequence[Any]) -> list[list[Any]]:
        return split(per_input, *self.sizes)

    def step(self, args: Sequence[Any], wide: Sequence[bool] | None = None) -> tuple[list[Any], list[Any]]:
        """One step: (x', y), lanes where the array has n elements or the carry's entry in `wide` says so."""
        wide = wide or [False] * len(self.x_avals)
        x, y = split(_evaluate(self.jaxpr, args), len(self.x_avals), len(self.y_avals))
        x = [_wide(v) if w or self.is_wide(a) else v for v, a, w in zip(x, self.x_avals, wide, strict=True)]
        return x, [_wide(v) if self.is_wide(a) else v for v, a in zip(y, self.y_avals, strict=True)]

    def is_wide(self, aval: Any) -> bool:
        return aval.size == self.n > 1


# ---- the kernels' view of arrays


class _Lanes:
    """Which elements this program works on, and how it reads and writes them."""

    def __init__(self, n: int):
        pallas = api.pallas()
        self.program = pallas.program_id(0)
        start = self.program * LANES
        self.slice = pallas.ds(start, LANES)
        self.index = start + lax.iota(np.int32, LANES)
        self.inside = self.index < n

    def read(self, ref: Any, aval: Any, row: Any = None) -> Any:
        """The elements of a row; the scalar, where a row is one."""
        if ref.shape[-1] == 1:
            v = ref[np.int32(0)] if row is None else ref[row, np.int32(0)]
        else:
            at = ref.at[self.slice] if row is None else ref.at[row, self.slice]
            v = api.triton().load(at, mask=self.inside, other=np.zeros((), ref.dtype)[()])
        return v.astype(aval.dtype) if v.dtype != aval.dtype else v

    def write(self, ref: Any, v: Any, row: Any = None) -> None:
        v = v.astype(ref.dtype) if v.dtype != ref.dtype else v
        if ref.shape[-1] == 1 and not np.ndim(v):
            ref[np.int32(0) if row is None else (row, np.int32(0))] = v
        else:
            at = ref.at[self.slice] if row is None else ref.at[row, self.slice]
            api.triton().store(at, v, mask=self.inside)

    def cotangent(self, v: Any) -> Any:
        """A scalar's cotangent in the first lane; lanes as they are."""
        return v if np.ndim(v) else jnp.where(self.index == 0, v, jnp.zeros((), v.dtype))


def _unflat(v: Any, aval: Any) -> Any:
    return v.astype(aval.dtype).reshape(aval.shape)


def _stored(aval: Any, n: int, rows: int | None = None) -> jax.ShapeDtypeStruct:
    dtype = np.dtype(np.int8) if aval.dtype == np.dtype(bool) else aval.dtype
    return jax.ShapeDtypeStruct((n,) if rows is None else (rows, n), dtype)


def _flat(a: Any, rows: int | None = None) -> Any:
    a = jnp.asarray(a)
    a = a.astype(np.int8) if a.dtype == np.dtype(bool) else a
    return a.reshape((-1,) if rows is None else (rows, -1))


def _call(kernel: Callable, n: int, outs: Sequence[jax.ShapeDtypeStruct], inputs: Sequence[Any]) -> list[Any]:
    largest = max(int(np.prod(a.shape)) for a in (*inputs, *outs))
    if largest > LARGEST:
        raise NotImplementedError(f"an operand of {largest} elements")
    return list(api.pallas_kernel(kernel, -(-n // LANES), list(outs), _interpreted)(*inputs))


def _repeat(start: Any, stop: Any, step: Callable, state: Any) -> Any:
    return lax.fori_loop(start, stop, lambda k, state: step(k.astype(np.int32), state), state)


def _read_all(lanes: _Lanes, refs: Sequence[Any], avals: Sequence[Any], row: Any = None) -> list[Any]:
    return [lanes.read(r, a, row) for r, a in zip(refs, avals, strict=True)]


def _write_all(lanes: _Lanes, refs: Sequence[Any], values: Sequence[Any], row: Any = None) -> None:
    for r, v in zip(refs, values, strict=True):
        lanes.write(r, v, row)


# ---- Loop


def loop(g: Body, plan: Any, keep: Sequence[bool] | None) -> Callable | None:
    """What the primitive `counted.loop_p` computes, as one kernel; None where it cannot be one."""
    trips = plan.trips if isinstance(plan, Schedule) else plan
    n = elements(g) if enabled() and trips.length else None
    if n is None:
        return None
    return lambda *args: _loop(_View(g, n), [*g.consts, *args], trips, None if keep is None else plan, keep or ())


def _loop(v: _View, args: Sequence[Any], trips: Trips, plan: Schedule | None, keep: Sequence[bool]) -> list[Any]:
    length = trips.length
    place = lambda t: length - 1 - t if trips.reverse else t
    kept_avals = [] if plan is None else pick(keep, v.x_avals)
    c_avals, x_avals, s_avals = v.groups(v.avals)
    groups = [(x_avals, None), (v.y_avals, length)]
    if plan is not None:
        groups += [(kept_avals, plan.count)] + ([(kept_avals, None)] if plan.rest else [])
    outs = [_stored(a, a.size, rows) for avals, rows in groups for a in avals]

    def kernel(*refs):
        lanes = _Lanes(v.n)
        c_refs, x_refs, s_refs, *out = split(refs, *v.sizes, *[len(avals) for avals, _ in groups])
        c = _read_all(lanes, c_refs, c_avals)

        def one(t, x):
            x, y = v.step([*c, *x, *_read_all(lanes, s_refs, s_avals, place(t))])
            _write_all(lanes, out[1], y, place(t))
            return x

        def block(plan, r, x):
            _write_all(lanes, out[2], pick(keep, x), plan.count - 1 - r if plan.reverse else r)
            return _repeat(0, plan.block, lambda j, x: one(r * plan.block + j, x), x)

        x = _read_all(lanes, x_refs, x_avals)
        if plan is None:
            x = _repeat(0, length, one, x)
        else:
            x = _repeat(0, plan.count, functools.partial(block, plan), x)
            if plan.rest:
                _write_all(lanes, out[3], pick(keep, x))
                x = _repeat(plan.count * plan.block, length, one, x)
        _write_all(lanes, out[0], x)

    c, x, s = v.groups(args)
    found = _call(kernel, v.n, outs, [*map(_flat, [*c, *x]), *[_flat(a, length) for a in s]])
    shapes = [a if rows is None else api.stacked_aval(rows, a) for avals, rows in groups for a in avals]
    return [_unflat(a, aval) for a, aval in zip(found, shapes, strict=True)]


# ---- Vjp


def vjp(g: Body, lin: Sequence[bool], y_lin: Sequence[bool], plan: Schedule) -> Callable | None:
    """What the primitive `counted.vjp_p` computes, as one kernel; None where it cannot be one."""
    n = elements(g) if enabled() and len(plan.blocks) == 1 and plan.inner != "rerun" else None
    if n is None:
        return None
    step = g.once(("fused", tuple(lin), tuple(y_lin)), lambda: _Transposed(g, n, lin, y_lin))
    return (lambda *args: _vjp(step, plan, args)) if step.elementwise else None


class _Transposed:
    """One step's transpose in the inputs `lin`, and its part that needs none of them, on scalars and lanes.

    Attributes:
        c_avals, x_avals, s_avals: types of the inputs that are not linear (constants of the body first).
        dc_avals, dx_avals, ds_avals, uy_avals: types of the linear inputs, and of the outputs with a cotangent.
        elementwise: whether the transpose is elementwise; nothing else is set where it is not.
    """

    def __init__(self, g: Body, n: int, lin: Sequence[bool], y_lin: Sequence[bool]):
        view = self.view = _View(g, n)
        mask = [False] * len(g.consts) + list(lin)
        x_lin = view.groups(mask)[1]
        self.primal = _View(g.known(lin, [False] * g.num_ys), n)
        linear = [pick(m, a) for m, a in zip(view.groups(mask), view.groups(view.avals), strict=True)]
        known = [omit(m, a) for m, a in zip(view.groups(mask), view.groups(view.avals), strict=True)]
        self.dc_avals, self.dx_avals, self.ds_avals = linear
        self.c_avals, self.x_avals, self.s_avals = known
        self.uy_avals = pick(y_lin, view.y_avals)
        self.elementwise = _is_elementwise(self.primal.jaxpr, n) and (n == 1 or all(map(view.is_wide, self.ds_avals)))
        if not self.elementwise:  # a scalar slice would have n partial sums at every step
            return
        wide = lambda a: jax.ShapeDtypeStruct((LANES,), a.dtype)
        seen = lambda a: wide(a) if view.is_wide(a) else jax.ShapeDtypeStruct((), a.dtype)
        p_avals = [seen(a) for part in known for a in part]

        def back(*args):
            p, u, uy = split(args, len(p_avals), len(self.dx_avals), len(self.uy_avals))

            def f(*d):
                x, y = view.step(merge(mask, d, p), x_lin)
                return pick(x_lin, x), list(map(_wide, pick(y_lin, y)))

            return list(jax.linear_transpose(f, *[wide(a) for part in linear for a in part])((u, uy)))

        cotangents = [wide(a) for a in (*self.dx_avals, *self.uy_avals)]
        self.jaxpr, consts = api.open_jaxpr(jax.make_jaxpr(back)(*p_avals, *cotangents))
        self.elementwise = not consts and _is_elementwise(self.jaxpr, LANES)

    def step(self, *args: Any) -> list[list[Any]]:
        """(c, x, s, u, uy), flat, to the cotangents of the linear constants, carries, slices."""
        out = list(map(_wide, _evaluate(self.jaxpr, args)))
        return split(out, len(self.dc_avals), len(self.dx_avals), len(self.ds_avals))


class _Tape:
    """Every step's carry of one piece, in an output of the kernel that nobody reads afterwards.

    Programs are at different steps at a time, so each has its own column for a scalar.
    """

    def __init__(self, lanes: _Lanes, refs: Sequence[Any], is_wide: Sequence[bool], avals: Sequence[Any]):
        self.lanes, self.refs, self.is_wide, self.avals = lanes, refs, is_wide, avals

    def write(self, j: Any, x: Sequence[Any]) -> None:
        for ref, v, wide in zip(self.refs, x, self.is_wide, strict=True):
            if wide:
                self.lanes.write(ref, v, j)
            else:
                ref[j, self.lanes.program] = v.astype(ref.dtype)

    def read(self, j: Any) -> list[Any]:
        rows = zip(self.refs, self.avals, self.is_wide, strict=True)
        return [self.lanes.read(r, a, j) if w else r[j, self.lanes.program].astype(a.dtype) for r, a, w in rows]


def _vjp(t: _Transposed, plan: Schedule, args: Sequence[Any]) -> list[Any]:
    n, length, num_x = t.view.n, plan.length, len(t.x_avals)
    place = lambda k: length - 1 - k if plan.reverse else k
    is_wide = list(map(t.view.is_wide, t.x_avals))
    tape_columns = [n if w else -(-n // LANES) for w in is_wide]
    longest = max(plan.block, plan.rest)
    own = len(t.view.consts)
    sizes = (
        *(len(t.c_avals), len(t.primal.consts), len(t.s_avals)),
        *(num_x, num_x if plan.rest else 0, len(t.dx_avals), len(t.uy_avals)),
    )
    results = [*t.dc_avals, *t.dx_avals]
    outs = [
        *[jax.ShapeDtypeStruct((n,), a.dtype) for a in results],
        *[jax.ShapeDtypeStruct((length, n), a.dtype) for a in t.ds_avals],
        *[_stored(a, m, longest) for a, m in zip(t.x_avals, tape_columns, strict=True)],
    ]

    def kernel(*refs):
        lanes = _Lanes(n)
        ins, out = split(refs, sum(sizes), len(outs))
        c_refs, k_refs, s_refs, kept, at_rest, u_refs, uy_refs = split(ins, *sizes)
        gc_refs, u_out, us_refs, tape_refs = split(out, len(t.dc_avals), len(t.dx_avals), len(t.ds_avals), num_x)
        tape = _Tape(lanes, tape_refs, is_wide, t.x_avals)
        c = _read_all(lanes, c_refs, t.c_avals)
        k = _read_all(lanes, k_refs, t.primal.avals[: len(k_refs)])

        def piece(first, steps, x, state):
            """Sweep `steps` steps, which start at the carry x; `first` of the loop's steps lie before."""

            def forward(_, state):
                j, x = state
                tape.write(j, x)
                s = _read_all(lanes, s_refs, t.s_avals, place(first + j))
                return j + 1, t.primal.step([*k, *c[own:], *x, *s])[0]

            def back(i, state):
                (gc, u), j = state, steps - 1 - i
                at = place(first + j)
                s = _read_all(lanes, s_refs, t.s_avals, at)
                uy = [lanes.cotangent(v) for v in _read_all(lanes, uy_refs, t.uy_avals, at)]
                gc2, u, us = t.step(*c, *tape.read(j), *s, *u, *uy)
                _write_all(lanes, us_refs, us, at)
                return [lax.add(a, b) for a, b in zip(gc, gc2, strict=True)], u

            if num_x:
                tape.write(*_repeat(0, steps - 1, forward, (np.int32(0), x)))
                _barrier()
            state = _repeat(0, steps, back, state)
            if num_x:
                _barrier()
            return state

        def block(i, state):
            r = plan.count - 1 - i
            x = _read_all(lanes, kept, t.x_avals, plan.count - 1 - r if plan.reverse else r)
            return piece(r * plan.block, plan.block, x, state)

        gc = [lax.full((LANES,), 0, a.dtype) for a in t.dc_avals]
        state = gc, [lanes.cotangent(v) for v in _read_all(lanes, u_refs, t.dx_avals)]
        if plan.rest:
            state = piece(plan.count * plan.block, plan.rest, _read_all(lanes, at_rest, t.x_avals), state)
        gc, u = _repeat(0, plan.count, block, state)
        _write_all(lanes, gc_refs, gc)
        _write_all(lanes, u_out, u)

    p = [len(t.c_avals) - own, num_x, len(t.s_avals)]
    c, _, s, kept, at_rest, u, uy = split(args, *p, *sizes[3:])
    inputs = [*map(_flat, [*t.view.consts, *c, *t.primal.consts]), *[_flat(a, length) for a in s]]
    inputs += [*[_flat(a, plan.count) for a in kept], *map(_flat, [*at_rest, *u]), *[_flat(a, length) for a in uy]]
    found = _call(kernel, n, outs, inputs)[: len(results) + len(t.ds_avals)]
    whole, slices = split(found, len(results), len(t.ds_avals))
    total = lambda v, a: v.reshape(a.shape) if a.size == n else jnp.sum(v).reshape(a.shape)
    return [
        *[total(v, a) for v, a in zip(whole, results, strict=True)],
        *[v.reshape(length, *a.shape) for v, a in zip(slices, t.ds_avals, strict=True)],
    ]


def linear(g: Body, mask: Sequence[bool], y_lin: Sequence[bool], plan: Schedule) -> Callable | None:
    """What the primitive `counted.lin_p` computes, as one kernel; None where it cannot be one."""
    whole = loop(g, plan, None)

    def kernel(*args):
        p, d = args[: len(mask) - sum(mask)], args[len(args) - sum(mask) :]
        x, y = split(whole(*merge(mask, d, p)), g.sizes[1], g.num_ys)  # type: ignore[misc]
        return [*pick(g.carry(mask), x), *pick(y_lin, y)]

    return None if whole is None else kernel


def _barrier() -> None:
    """What a program's threads have written is there for all of them."""
    if not _interpreted:
        api.triton().debug_barrier()


KERNELS = {
    loop_p: lambda *, g, plan, keep: loop(g, plan, keep),
    lin_p: lambda *, g, lin, y_lin, plan, keep, **_: linear(g, lin, y_lin, plan),
    vjp_p: lambda *, g, lin, y_lin, plan, keep: vjp(g, lin, y_lin, plan),
}
for _p, _choose in KERNELS.items():
    api.define_kernel_lowering(_p, _choose, "cuda")
