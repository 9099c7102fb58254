"""custom_vjp functions inside loop bodies, at every order and under vmap.

The derivatives of a loop are loops of its body's jvp. The jvp of a custom_vjp function is an operation of which only
the transpose is known, and JAX's own stand-in for it (custom_lin) has neither a derivative nor a vmap. `opaque` puts two
primitives in its place that are closed under both:

  Call(x)          -> f(x), by JAX's own custom_vjp
  Opaque[T](p; d)  -> linear in d, known through its transpose T(p; u) alone

The jvp of Call along dx is the code of f's forward rule, which JAX differentiates from then on, and Opaque[T](x; dx), where
T(x; u) is f's backward rule with the forward rule before it. So higher orders are those of JAX, which differentiates the
program that first order left: a rule that is not the derivative of its function counts once, at the order that calls it.

Where T is linear in u, Opaque is the transpose of T in u, an ordinary program: its own derivatives are that program's.
T is *rough* where it cannot be transposed (a rule that clips its cotangent, or solves for it with a while loop), or is
affine. Then <T(p; u), d> = <u, Opaque(p; d)> fails, and the derivative of Vjp is not a Vjp: a counted loop is differentiated as
it was run, with every carry kept (taped.py), a while loop by a sweep over pairs (while_rough.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ..lowering import jax_api as api
from . import affine
from ._lists import merge, omit, pick, split

__all__ = ["has_rules", "is_rough", "opaque", "refuse_forward_mode"]


class _Function:
    """A function of flat arrays, hashed by identity; derived ones are remembered on it."""

    def __init__(self, fun: Callable[..., list[Any]], out_avals: Sequence[Any]):
        self.fun, self.out_avals = fun, tuple(out_avals)
        self._memo: dict[Any, Any] = {}

    def _once(self, key: Any, make: Callable[[], Any]) -> Any:
        if key not in self._memo:
            self._memo[key] = make()
        return self._memo[key]

    def batched(self, mapped: Sequence[bool], axis: Any) -> Any:
        """vmap; every output is mapped."""
        key = ("batched", tuple(mapped), *api.axis_key(axis))
        avals = [api.mapped_aval(axis, a) for a in self.out_avals]
        return self._once(key, lambda: type(self)(_vmap(self.fun, mapped, axis), avals))

    def transpose(self, mask: tuple[bool, ...], outs: tuple[bool, ...], avals: Sequence[Any]) -> Any:
        """The map (x, u) -> cotangents of the inputs in `mask`, u for the outputs in `outs`."""

        def backward(*args):
            x, u = split(args, len(mask), sum(outs))
            part = lambda *moving: pick(outs, self.fun(*merge(mask, moving, omit(mask, x))))
            return list(jax.vjp(part, *pick(mask, x))[1](u))

        return self._once(("transpose", mask, outs), lambda: _Function(backward, pick(mask, avals)))


class _Map:
    """A linear map known through its transpose.

    Attributes:
        back: (p, u) -> cotangents of d.
        d_avals, out_avals: types of d and of the map's outputs.
    """

    def __init__(self, back: _Function, out_avals: Sequence[Any]):
        self.back, self.d_avals, self.out_avals = back, back.out_avals, tuple(out_avals)
        self._memo: dict[Any, Any] = {}

    def forward(self, p: Sequence[Any], d: Sequence[Any]) -> list[Any]:
        """The map itself: the transpose of its transpose, in u."""
        return list(jax.linear_transpose(lambda *u: list(self.back.fun(*p, *u)), *self.out_avals)(list(d)))

    def rough(self, p_avals: Sequence[Any]) -> bool:
        """Whether `back` is not a linear program in u that can be transposed."""
        if "rough" not in self._memo:
            try:
                api.trace_flat(
                    lambda *a: self.forward(*split(a, len(p_avals), len(self.d_avals))), [*p_avals, *self.d_avals]
                )
                jaxpr, consts = api.trace_flat(lambda *a: list(self.back.fun(*a)), [*p_avals, *self.out_avals])
                fixed = len(consts) + len(p_avals)
                marks = affine.marks(jaxpr, consts, [*[affine.FREE] * fixed, *[affine.LINEAR] * len(self.out_avals)])
                self._memo["rough"] = any(m in (affine.FREE, affine.MIXED) for m in marks)
            except Exception:  # JAX's rules refuse in many ways
                self._memo["rough"] = True
        return self._memo["rough"]

    def batched(self, p_mapped: Sequence[bool], axis: Any) -> _Map:
        """vmap; d and the outputs are all mapped."""
        key = ("batched", tuple(p_mapped), *api.axis_key(axis))
        if key not in self._memo:
            self._memo[key] = _BatchedMap(self, tuple(p_mapped), axis)
        return self._memo[key]


class _BatchedMap(_Map):
    def __init__(self, below: _Map, p_mapped: tuple[bool, ...], axis: Any):
        back = below.back.batched([*p_mapped, *[True] * len(below.out_avals)], axis)
        super().__init__(back, [api.mapped_aval(axis, a) for a in below.out_avals])
        self.below, self.p_mapped, self.axis = below, p_mapped, axis

    def forward(self, p, d):
        """Transposed for one example, then mapped, like the bodies (body.py)."""
        run = _vmap(
            lambda *a: self.below.forward(*split(a, len(p), len(d))), [*self.p_mapped, *[True] * len(d)], self.axis
        )
        return list(run(*p, *d))

    def rough(self, p_avals):
        one = [api.example_aval(a) if m else a for a, m in zip(p_avals, self.p_mapped, strict=True)]
        with api.inside(self.axis):
            return self.below.rough(one)


def _vmap(fun: Callable, mapped: Sequence[bool], axis: Any) -> Callable:
    return jax.vmap(
        lambda *a: list(fun(*a)),
        in_axes=tuple(0 if m else None for m in mapped),
        axis_size=axis.size,
        axis_name=axis.name,
        spmd_axis_name=axis.spmd_name,
    )


def _forward(*args, t):
    """Reverse over reverse evaluates the map itself; the rule must be linear in u."""
    return t.forward(*split(args, len(args) - len(t.d_avals), len(t.d_avals)))


FORWARD_MODE = (
    "can't apply forward-mode autodiff (jvp) to a custom_vjp function: the body of this loop calls one, and only its "
    "backward rule is known"
)


def refuse_forward_mode(jaxpr: Any) -> None:
    """Raise what JAX raises where a loop whose body is a jvp of a custom_vjp function would be run forward."""
    if api.contains_primitive(jaxpr, opaque_p):
        raise TypeError(FORWARD_MODE)


def has_rules(jaxpr: Any) -> bool:
    """Whether a body calls a function with a derivative rule of its own, so that being differentiated changes its values."""
    kinds = (call_p, api.custom_jvp_call_p)
    return api.any_equation(jaxpr, lambda eqn: eqn.primitive in kinds)


def is_rough(jaxpr: Any) -> bool:
    """Whether a body holds an Opaque whose transpose is not a linear program."""
    rough = lambda eqn: eqn.params["t"].rough(
        [v.aval for v in eqn.invars[: len(eqn.invars) - len(eqn.params["t"].d_avals)]]
    )
    return api.any_equation(jaxpr, lambda eqn: eqn.primitive is opaque_p and rough(eqn))


call_p = api.define_primitive("qb_custom_vjp", lambda *x, f: list(f.fun(*x)), lambda *_, f: list(f.out_avals))
opaque_p = api.define_primitive("qb_opaque_linear", _forward, lambda *_, t: list(t.out_avals))


def _inexact(aval: Any) -> bool:
    return jnp.issubdtype(aval.dtype, jnp.inexact)


def _call_jvp(primals, tangents, *, f):
    avals = list(map(jax.typeof, primals))
    mask = tuple(not api.is_zero(t) and _inexact(a) for t, a in zip(tangents, avals, strict=True))
    outs = tuple(map(_inexact, f.out_avals))
    zeros = [api.Zero(a.to_tangent_aval()) for a in f.out_avals]
    if not any(mask) or not any(outs):
        return call_p.bind(*primals, f=f), zeros
    part = lambda *moving: list(f.fun(*merge(mask, moving, omit(mask, primals))))
    out, _ = jax.vjp(part, *pick(mask, primals))  # JAX runs the forward rule
    back = f.transpose(mask, outs, [a.to_tangent_aval() for a in avals])
    maps = f._once(("map", mask), lambda: _Map(back, pick(outs, [a.to_tangent_aval() for a in f.out_avals])))
    dots = opaque_p.bind(*primals, *map(api.instantiate, pick(mask, tangents)), t=maps)
    return out, merge(outs, dots, omit(outs, zeros))


def _opaque_jvp(primals, tangents, *, t):
    num_d = len(t.d_avals)
    p, d = split(primals, len(primals) - num_d, num_d)
    dp, dd = split(tangents, len(p), num_d)
    avals = list(map(jax.typeof, p))
    out = opaque_p.bind(*primals, t=t)
    mask = tuple(not api.is_zero(v) and _inexact(a) for v, a in zip(dp, avals, strict=True))
    terms = []
    if not all(map(api.is_zero, dd)):
        terms.append(opaque_p.bind(*p, *map(api.instantiate, dd), t=t))
    if any(mask):
        if t.rough(avals):
            raise TypeError(FORWARD_MODE)
        along = lambda *moving: t.forward(merge(mask, moving, omit(mask, p)), d)
        terms.append(jax.jvp(along, tuple(pick(mask, p)), tuple(map(api.instantiate, pick(mask, dp))))[1])
    if not terms:
        return out, [api.Zero(a.to_tangent_aval()) for a in t.out_avals]
    return out, terms[0] if len(terms) == 1 else list(map(jnp.add, *terms))


def _opaque_transpose(cts, *args, t):
    p, d = split(args, len(args) - len(t.d_avals), len(t.d_avals))
    ct = t.back.fun(*p, *map(api.instantiate, cts))
    return [None] * len(p) + [c if api.is_undefined_primal(v) else None for c, v in zip(ct, d, strict=True)]


def _front(args, dims, want, axis):
    out = []
    for a, d, w in zip(args, dims, want, strict=True):
        out.append(jnp.moveaxis(a, d, 0) if d is not None else api.broadcast_mapped(axis, a, 0) if w else a)
    return out


def _call_batch(axis, args, dims, *, f):
    mapped = [d is not None for d in dims]
    out = call_p.bind(*_front(args, dims, mapped, axis), f=f.batched(mapped, axis))
    return out, [0] * len(out)


def _opaque_batch(axis, args, dims, *, t):
    num_p = len(args) - len(t.d_avals)
    mapped = [d is not None for d in dims[:num_p]]
    args = _front(args, dims, [*mapped, *[True] * len(t.d_avals)], axis)
    out = opaque_p.bind(*args, t=t.batched(mapped, axis))
    return out, [0] * len(out)


api.define_jvp(call_p, _call_jvp)
api.define_batching(call_p, _call_batch)
api.define_jvp(opaque_p, _opaque_jvp)
api.define_transpose(opaque_p, _opaque_transpose)
api.define_batching(opaque_p, _opaque_batch)


def opaque(jaxpr: Any, consts: Sequence[Any]) -> tuple[Any, list[Any]]:
    """The jaxpr (constant-free, its first inputs `consts`) with its custom_vjp calls as Call; itself where it has none."""
    if not api.contains_primitive(jaxpr, api.custom_vjp_call_p):
        return jaxpr, list(consts)
    avals = [v.aval for v in jaxpr.invars[len(consts) :]]
    return api.trace_flat(lambda *args: _evaluate(jaxpr, [*consts, *args]), avals)


def _evaluate(jaxpr: Any, args: Sequence[Any]) -> list[Any]:
    def handle(eqn, inputs):
        if eqn.primitive is api.custom_vjp_call_p:
            f = _Function(lambda *x: api.rebind(eqn, x), [v.aval for v in eqn.outvars])
            return call_p.bind(*inputs, f=f)
        if any(api.contains_primitive(inner, api.custom_vjp_call_p) for inner in api.inner_jaxprs(eqn)):
            inner = lambda flat, consts: lambda *a: _evaluate(flat, [*consts, *a])
            return api.rebind(api.with_inner_jaxprs(eqn, inner), inputs)
        return None

    return api.eval_with(jaxpr, args, handle)
