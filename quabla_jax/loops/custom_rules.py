"""custom_vjp functions inside loop bodies, at every order and under vmap.

The derivatives of a loop are loops of its body's jvp. The jvp of a custom_vjp function is an operation of which only
the transpose is known, and JAX's own stand-in for it (custom_lin) has neither a derivative nor a vmap. `opaque` puts two
primitives in its place that are closed under both:

  Call(x)          -> f(x), by JAX's own custom_vjp
  Opaque[T](p; d)  -> linear in d, known through its transpose T(p; u) alone

The jvp of Call along dx is Opaque[T](x; dx), where T(x; u) is f's own backward rule. Opaque is linear in d. Its derivative
in p along dp is again known through its transpose alone: <u, (d/dp Opaque) dp> is the derivative of <T(p; u), d>, so that
transpose is the gradient of <T(p; u), d> in p, which JAX takes of the rule. Evaluated forward, as reverse over reverse
needs it, Opaque is the transpose of T in u. Forward mode through such a loop is refused, as JAX refuses it.

To first order any rule is used as it stands, clipped or scaled ones too. From the second order on a rule must be what it
stands for, the vjp of its function: linear in the cotangent, and consistent with f, because higher orders rest on the
symmetry of second derivatives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ..lowering import jax_api as api
from ._lists import merge, omit, pick, split

__all__ = ["opaque", "refuse_forward_mode"]


class _Function:
    """A function of flat arrays, hashed by identity; derived ones are remembered on it."""

    def __init__(self, fun: Callable[..., list[Any]], out_avals: Sequence[Any]):
        self.fun, self.out_avals = fun, tuple(out_avals)
        self._memo: dict[Any, _Function] = {}

    def _once(self, key: Any, make: Callable[[], _Function]) -> Any:
        if key not in self._memo:
            self._memo[key] = make()
        return self._memo[key]

    def batched(self, mapped: Sequence[bool], axis: Any) -> Any:
        """vmap; every output is mapped."""
        key = ("batched", tuple(mapped), axis.size, axis.name, axis.spmd_name)
        run = jax.vmap(
            lambda *a: list(self.fun(*a)),
            in_axes=tuple(0 if m else None for m in mapped),
            axis_size=axis.size,
            axis_name=axis.name,
            spmd_axis_name=axis.spmd_name,
        )
        avals = [api.stacked_aval(axis.size, a) for a in self.out_avals]
        return self._once(key, lambda: type(self)(run, avals))

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
        self._memo: dict[Any, _Map] = {}

    def derivative(self, mask: tuple[bool, ...], p_avals: Sequence[Any]) -> _Map:
        """The derivative in the p of `mask`: a map of their tangents, whose p are p and d."""
        if mask not in self._memo:
            num_d = len(self.d_avals)

            def back(*args):
                p, d, u = split(args, len(mask), num_d, len(self.out_avals))
                along = lambda *moving: self.back.fun(*merge(mask, moving, omit(mask, p)), *u)
                return list(jax.vjp(along, *pick(mask, p))[1](d))

            self._memo[mask] = _Map(_Function(back, [a.to_tangent_aval() for a in pick(mask, p_avals)]), self.out_avals)
        return self._memo[mask]

    def batched(self, p_mapped: Sequence[bool], axis: Any) -> _Map:
        """vmap; d and the outputs are all mapped."""
        key = ("batched", tuple(p_mapped), axis.size, axis.name, axis.spmd_name)
        if key not in self._memo:
            back = self.back.batched([*p_mapped, *[True] * len(self.out_avals)], axis)
            self._memo[key] = _Map(back, [api.stacked_aval(axis.size, a) for a in self.out_avals])
        return self._memo[key]


def _forward(*args, t):
    """The map itself: the transpose of its transpose, in u. Higher reverse modes need it; the rule must be linear in u."""
    p, d = split(args, len(args) - len(t.d_avals), len(t.d_avals))
    out = jax.linear_transpose(lambda *u: list(t.back.fun(*p, *u)), *t.out_avals)(list(d))
    return list(out)


def refuse_forward_mode(jaxpr: Any) -> None:
    """Raise what JAX raises where a loop whose body is a jvp of a custom_vjp function would be run forward."""
    if api.contains_primitive(jaxpr, opaque_p):
        raise TypeError(
            "can't apply forward-mode autodiff (jvp) to a custom_vjp function: the body of this loop calls one, and only "
            "its backward rule is known"
        )


call_p = api.define_primitive("qb_custom_vjp", lambda *x, f: list(f.fun(*x)), lambda *_, f: list(f.out_avals))
opaque_p = api.define_primitive("qb_opaque_linear", _forward, lambda *_, t: list(t.out_avals))


def _inexact(aval: Any) -> bool:
    return jnp.issubdtype(aval.dtype, jnp.inexact)


def _call_jvp(primals, tangents, *, f):
    out = call_p.bind(*primals, f=f)
    avals = list(map(jax.typeof, primals))
    mask = tuple(not api.is_zero(t) and _inexact(a) for t, a in zip(tangents, avals, strict=True))
    outs = tuple(map(_inexact, f.out_avals))
    zeros = [api.Zero(a.to_tangent_aval()) for a in f.out_avals]
    if not any(mask) or not any(outs):
        return out, zeros
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
        moving = list(map(api.instantiate, pick(mask, dp)))
        terms.append(opaque_p.bind(*p, *d, *moving, t=t.derivative(mask, avals)))
    if not terms:
        return out, [api.Zero(a.to_tangent_aval()) for a in t.out_avals]
    return out, terms[0] if len(terms) == 1 else list(map(jnp.add, *terms))


def _opaque_transpose(cts, *args, t):
    p, d = split(args, len(args) - len(t.d_avals), len(t.d_avals))
    ct = t.back.fun(*p, *map(api.instantiate, cts))
    return [None] * len(p) + [c if api.is_undefined_primal(v) else None for c, v in zip(ct, d, strict=True)]


def _front(args, dims, want, size):
    out = []
    for a, d, w in zip(args, dims, want, strict=True):
        out.append(jnp.moveaxis(a, d, 0) if d is not None else jnp.broadcast_to(a, (size, *jnp.shape(a))) if w else a)
    return out


def _call_batch(axis, args, dims, *, f):
    mapped = [d is not None for d in dims]
    out = call_p.bind(*_front(args, dims, mapped, axis.size), f=f.batched(mapped, axis))
    return out, [0] * len(out)


def _opaque_batch(axis, args, dims, *, t):
    num_p = len(args) - len(t.d_avals)
    mapped = [d is not None for d in dims[:num_p]]
    args = _front(args, dims, [*mapped, *[True] * len(t.d_avals)], axis.size)
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
