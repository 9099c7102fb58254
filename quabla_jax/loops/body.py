"""Loop bodies: a closed, constant-free-of-tracers jaxpr, and the bodies derived from it.

A body is a map g(*c, *x, *s) -> (*x', *y): constants c, carry x, one step's slices s of the scanned arrays, and one
step's outputs y. A loop's index, where it has one, is an integer carry like any other. Derived bodies (the jvp, a part,
the vmap) are made once and remembered on the body they come from, so that equal derivations are one object: primitives
compare their parameters, and JAX its caches, by identity.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax

from ..lowering import jax_api as api
from ._lists import fill, merge, omit, pick, split
from .custom_rules import has_rules, is_rough, opaque

Mask = Sequence[bool]


class Body:
    """A loop body without effects; hashed by identity.

    Attributes:
        sizes: how many constants, carries and slices it takes.
        avals: types of all inputs, weak types settled.
        x_avals, y_avals: types of the carry and of one step's outputs.
        tangents: which inputs are tangents of others, in a body that a jvp made.
    """

    def __init__(self, jaxpr: Any, consts: Sequence[Any], sizes: Sequence[int]):
        """`jaxpr` is constant-free; its first inputs are `consts` (concrete values), then c, x and s."""
        jaxpr, consts = opaque(jaxpr, consts)
        self.jaxpr, self.consts = jaxpr, tuple(consts)
        self.sizes = tuple(sizes)
        self.avals = tuple(api.strong_aval(v.aval) for v in jaxpr.invars[len(self.consts) :])
        outs = [api.strong_aval(v.aval) for v in jaxpr.outvars]
        assert len(self.avals) == sum(self.sizes), (len(self.avals), self.sizes)
        self.x_avals = tuple(self.carry(self.avals))
        self.y_avals = tuple(outs[self.sizes[1] :])
        for a, b in zip(self.x_avals, outs[: self.sizes[1]], strict=True):
            assert a.shape == b.shape and a.dtype == b.dtype, f"carry of type {a} becomes {b}"
        self.tangents = (False,) * len(self.avals)
        self._memo: dict[Any, Any] = {}
        self._primal: tuple[Body, tuple[bool, ...], int] | None = (
            None  # what this is the dual of, and where its inputs are
        )

    @classmethod
    def trace(cls, fun: Callable, avals: Sequence[Any], sizes: Sequence[int]) -> Body:
        """The body of a Python function over flat arrays: fun(*c, *x, *s) -> [*x', *y]."""
        jaxpr, consts = api.trace_flat(fun, [api.strong_aval(a) for a in avals])
        return cls(jaxpr, consts, sizes)

    def __call__(self, args: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """One step: (x', y)."""
        out = api.eval_jaxpr(self.jaxpr, (), *self.consts, *args)
        x, y = split(out, self.sizes[1], self.num_ys)
        return x, y

    @functools.cached_property
    def closed(self) -> Any:
        """The body as one ClosedJaxpr, the same object every time: JAX's caches go by identity."""
        return api.close_over(self.jaxpr, self.consts)

    @property
    def num_ys(self) -> int:
        return len(self.y_avals)

    def carry(self, per_input: Sequence[Any]) -> Any:
        """The carry's part of a list with one entry for each input."""
        return per_input[self.sizes[0] : self.sizes[0] + self.sizes[1]]

    def groups(self, per_input: Sequence[Any]) -> list[list[Any]]:
        """A list with one entry for each input, cut into constants, carry and slices."""
        return split(per_input, *self.sizes)

    def once(self, key: Any, make: Callable[[], Any]) -> Any:
        """make(), the first time; the same object after that."""
        if key not in self._memo:
            self._memo[key] = make()
        return self._memo[key]

    def _fixed_point(self, mask: Mask, outputs: Callable[[list[bool]], list[bool]]) -> tuple[tuple, tuple]:
        """Smallest superset of `mask` closed under the carry, and the y marks, given the marks of one step's outputs."""
        m = list(mask)
        nc, nx = self.sizes[:2]
        while True:
            out = outputs(m)
            grown = [a or b for a, b in zip(self.carry(m), out[:nx], strict=True)]
            if grown == list(self.carry(m)):
                return tuple(m), tuple(out[nx:])
            m[nc : nc + nx] = grown

    def depends(self, mask: Mask) -> tuple[tuple[bool, ...], tuple[bool, ...]]:
        """Which inputs (carries grow) and which y depend on the inputs in `mask`, by data flow."""
        lead = [False] * len(self.consts)
        return self.once(
            ("depends", tuple(mask)),
            lambda: self._fixed_point(mask, lambda m: api.unknown_outputs(self.jaxpr, [*lead, *m])),
        )

    def mapped(self, mask: Mask, axis: Any) -> tuple[tuple[bool, ...], tuple[bool, ...]]:
        """Which inputs (carries grow) and which y differ between the lanes of `axis` when the inputs in `mask` do."""
        if axis.name not in api.collective_axes(self.jaxpr):
            return self.depends(mask)
        lead = [False] * len(self.consts)
        return self._fixed_point(mask, lambda m: api.mapped_outputs(self.jaxpr, axis, [*lead, *m]))

    def perturbed(self, mask: Mask) -> tuple[tuple[bool, ...], tuple[bool, ...]]:
        """Which inputs (carries grow) and which y have a tangent when the inputs in `mask` have one."""

        def outputs(m: list[bool]) -> list[bool]:
            keep = [*self.carry(m), *[False] * self.num_ys]
            return self._jvp(m, keep)[2]

        mask = tuple(bool(m) and _differentiable(a) for m, a in zip(mask, self.avals, strict=True))
        return self.once(("perturbed", mask), lambda: self._fixed_point(mask, outputs))

    def _jvp(self, mask: Mask, instantiate: Mask):
        lead = [False] * len(self.consts)
        return api.jvp_jaxpr(self.jaxpr, [*lead, *mask], instantiate)

    def live(self, x_used: Mask, y_used: Mask) -> tuple[bool, ...]:
        """Which inputs the outputs in use need; a carry is in use if its output is, or if a later step reads it."""

        def make():
            used_x = list(x_used)
            while True:
                _, used = api.prune_jaxpr(self.jaxpr, [*used_x, *y_used], [False] * len(self.jaxpr.invars))
                used = used[len(self.consts) :]
                grown = [a or b for a, b in zip(used_x, self.carry(used), strict=True)]
                if grown == used_x:
                    c, _, s = self.groups(used)
                    return (*c, *used_x, *s)
                used_x = grown

        return self.once(("live", tuple(x_used), tuple(y_used)), make)

    def only(self, mask: Mask, y_mask: Mask) -> Body:
        """The body of the inputs in `mask` and the outputs in `y_mask`, which must not need any other input."""
        mask, y_mask = tuple(mask), tuple(y_mask)

        def make():
            lead = [False] * len(self.consts)
            used_outputs = [*self.carry(mask), *y_mask]
            jaxpr, used = api.prune_jaxpr(self.jaxpr, used_outputs, [*lead, *mask])
            left = used[len(self.consts) :]
            if self._primal is not None and mask == self._primal[1] and not any(y_mask[self._primal[2] :]):
                g = self._primal[0]
                # A jaxpr cannot always be cut there: a jvp ties a while loop's primals to its tangents. Where it can, a
                # rule in the body gives values of its own, and those are differentiated further.
                if not g.has_rules or list(left) != list(mask):
                    return g.only([True] * len(g.avals), y_mask[: self._primal[2]])
            if list(left) != list(mask) and api.contains_while(self.jaxpr):
                raise ValueError(
                    "Reverse-mode differentiation does not work for lax.while_loop or lax.fori_loop with dynamic start/stop "
                    "values, such as the loop inside this loop's body. Give the inner loop a checkpoint."
                )
            assert list(left) == list(mask), f"a part of a loop body needs inputs outside it: {left} against {mask}"
            consts = pick(used[: len(self.consts)], self.consts)
            return self._with_tangents(Body(jaxpr, consts, [sum(g) for g in self.groups(mask)]), mask)

        return self if all(mask) and all(y_mask) else self.once(("only", mask, y_mask), make)

    def _with_tangents(self, part: Body, mask: Mask) -> Body:
        """The part of the inputs in `mask`, told which of them are tangents."""
        part.tangents = tuple(pick(mask, self.tangents))
        return part

    @functools.cached_property
    def has_rules(self) -> bool:
        """Whether the body calls functions with derivative rules of their own."""
        return has_rules(self.jaxpr)

    @functools.cached_property
    def rough(self) -> bool:
        """Whether a step's transpose is not linear in the cotangents (custom_rules.py)."""
        return is_rough(self.jaxpr)

    def under_rules(self, mask: Mask, y_mask: Mask) -> Body:
        """The body as JAX runs it where the inputs in `mask` have tangents: custom rules compute their functions' values."""
        if not self.has_rules or not any(mask):
            return self
        primals = self.weave([True] * len(self.avals), [False] * sum(mask), mask)
        return self.dual(mask, y_mask).only(primals, [*[True] * self.num_ys, *[False] * sum(y_mask)])

    def known(self, unknown: Mask, y_mask: Mask) -> Body:
        """The body of the inputs that `unknown` leaves out: the carries that do not depend on it, and the y in `y_mask`.

        Mostly `only`. An equation that computes primals and tangents together, as the jvp of a while loop does, needs
        JAX's partial evaluation to be taken apart.
        """
        mask, y_mask = tuple(not u for u in unknown), tuple(y_mask)

        def make():
            lead = [False] * len(self.consts)
            wanted = [*self.carry(mask), *y_mask]
            _, used = api.prune_jaxpr(self.jaxpr, wanted, [*lead, *mask])
            if list(used[len(lead) :]) == list(mask):
                return self.only(mask, y_mask)
            jaxpr, consts, known_outs = api.known_jaxpr(self.jaxpr, [*lead, *unknown])
            f = lambda *a: pick(
                pick(known_outs, wanted), api.eval_jaxpr(jaxpr, (), *consts, *self.consts, *a)[: sum(known_outs)]
            )
            part = Body.trace(f, pick(mask, self.avals), [sum(g) for g in self.groups(mask)])
            return self._with_tangents(part, mask)

        return self if all(mask) and all(y_mask) else self.once(("known", mask, y_mask), make)

    def dual(self, mask: Mask, y_mask: Mask) -> Body:
        """The jvp in the inputs of `mask` (closed under the carry); y in `y_mask` get a tangent.

        Every group of inputs and outputs holds the primals first, then the tangents: see `weave`.
        """
        mask, y_mask = tuple(mask), tuple(y_mask)

        def make():
            jaxpr, consts, nonzero = self._jvp(mask, [*self.carry(mask), *y_mask])
            nx, ny = self.sizes[1], self.num_ys

            def f(*args):
                p, t = self.unweave(mask, args)
                out = api.eval_jaxpr(jaxpr, (), *consts, *self.consts, *p, *t)
                x, y, tangents = split(out, nx, ny, sum(nonzero))
                t = fill(nonzero, tangents)
                dx, dy = pick(self.carry(mask), t[:nx]), pick(y_mask, t[nx:])
                return [*x, *dx, *y, *dy]

            tangents = [api.strong_aval(a.to_tangent_aval()) for a in pick(mask, self.avals)]
            sizes = [n + sum(m) for n, m in zip(self.sizes, self.groups(mask), strict=True)]
            dual = Body.trace(f, self.weave(self.avals, tangents, mask), sizes)
            primals = self.weave([True] * len(self.avals), [False] * sum(mask), mask)
            dual._primal = (self, tuple(primals), ny)
            dual.tangents = tuple(self.weave(self.tangents, [True] * sum(mask), mask))
            return dual

        return self.once(("dual", mask, y_mask), make)

    def weave(self, primals: Sequence[Any], tangents: Sequence[Any], mask: Mask) -> list[Any]:
        """One entry for each input of `dual(mask)`, from one for each input here and one for each input in `mask`."""
        ts = split(tangents, *[sum(m) for m in self.groups(mask)])
        return [v for a, b in zip(self.groups(primals), ts, strict=True) for v in (*a, *b)]

    def unweave(self, mask: Mask, woven: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """The inverse of `weave`: (primals, tangents)."""
        sizes = [v for n, m in zip(self.sizes, self.groups(mask), strict=True) for v in (n, sum(m))]
        g = split(woven, *sizes)
        return [*g[0], *g[2], *g[4]], [*g[1], *g[3], *g[5]]

    def batched(self, mask: Mask, y_mask: Mask, axis: Any, linear: bool = False) -> Body:
        """vmap over `axis` (JAX's axis data) with the inputs in `mask` and the y in `y_mask` mapped along axis 0."""
        key = ("batched", tuple(mask), tuple(y_mask), *api.axis_key(axis), linear)
        return self.once(key, lambda: Batched(self, tuple(mask), tuple(y_mask), axis, linear))


class Batched(Body):
    """The vmap of a body.

    With `linear`, transposition and further derivatives are taken of the body below and mapped afterwards, as JAX itself
    would have it: a mapped cond puts stop_gradient around its operands, and a tangent under stop_gradient has no
    transpose.
    """

    def __init__(self, below: Body, mask: tuple[bool, ...], y_mask: tuple[bool, ...], axis: Any, linear: bool):
        self.below, self.mask, self.y_mask, self.axis, self.linear = below, mask, y_mask, axis, linear
        axes = [0 if m else None for m in mask]
        out_axes = [0 if m else None for m in (*below.carry(mask), *y_mask)]
        f = self.vmap(lambda *a: [*(xy := below(a))[0], *xy[1]], axes, out_axes)
        avals = [api.mapped_aval(axis, a) if m else a for a, m in zip(below.avals, mask, strict=True)]
        jaxpr, consts = api.trace_flat(f, avals)
        super().__init__(jaxpr, consts, below.sizes)
        self.tangents = below.tangents

    def vmap(self, fun: Callable, in_axes: Sequence[Any], out_axes: Sequence[Any]) -> Callable:
        """`fun` (flat arrays to a list) mapped along this body's axis."""
        axis = self.axis
        if not any(a is not None for a in in_axes):
            return fun
        return lambda *args: jax.vmap(
            lambda *a: list(fun(*a)),
            in_axes=tuple(in_axes),
            out_axes=list(out_axes),
            axis_size=axis.size,
            axis_name=axis.name,
            spmd_axis_name=axis.spmd_name,
        )(*args)

    def map_transpose(
        self, fun: Callable, axes: Sequence[Any], lin: Mask, y_lin: Mask, places: Sequence[int]
    ) -> Callable:
        """One lane's fun(*fixed, *u, *uy) -> cotangents of the inputs in `lin`, for all lanes.

        `axes` maps what is fixed, `places` says where a lane axis stands in each input. An input in `lin` that is not mapped
        is one for all lanes: its cotangent is their sum. An output that is not mapped is that of any lane: its cotangent
        goes to the first.
        """
        mapped, y_mapped = pick(lin, self.mask), pick(y_lin, self.y_mask)
        of_x = pick(self.carry(lin), self.carry(self.mask))
        in_axes = [*axes, *[0] * len(of_x), *[1] * len(y_mapped)]
        at = pick(lin, places)
        lanes = self.vmap(fun, in_axes, at)

        def first(v, axis):
            v = api.broadcast_mapped(self.axis, v, axis)
            lane = jax.lax.broadcasted_iota("int32", v.shape, axis)
            return jax.numpy.where(lane == 0, v, jax.numpy.zeros_like(v))

        def run(*args):
            fixed, u, uy = split(args, len(axes), len(of_x), len(y_mapped))
            u = [v if m else first(v, 0) for v, m in zip(u, of_x, strict=True)]
            uy = [v if m else first(v, 1) for v, m in zip(uy, y_mapped, strict=True)]
            out = lanes(*fixed, *u, *uy)
            return [c if m else c.sum(k) for c, m, k in zip(out, mapped, at, strict=True)]

        return run

    def depends(self, mask: Mask):
        if not self.linear:
            return super().depends(mask)
        with api.inside(self.axis):
            return self.below.depends(mask)

    def perturbed(self, mask: Mask):
        if not self.linear:
            return super().perturbed(mask)
        with api.inside(self.axis):
            return self.below.perturbed(mask)

    def live(self, x_used: Mask, y_used: Mask):
        return self.below.live(x_used, y_used) if self.linear else super().live(x_used, y_used)

    def only(self, mask: Mask, y_mask: Mask) -> Body:
        if not self.linear or (all(mask) and all(y_mask)):
            return super().only(mask, y_mask)
        part = self.below.only(mask, y_mask)
        return part.batched(pick(mask, self.mask), pick(y_mask, self.y_mask), self.axis, True)

    def known(self, unknown: Mask, y_mask: Mask) -> Body:
        if not self.linear or not (any(unknown) or not all(y_mask)):
            return super().known(unknown, y_mask)
        mask = [not u for u in unknown]
        with api.inside(self.axis):
            part = self.below.known(unknown, y_mask)
        return part.batched(pick(mask, self.mask), pick(y_mask, self.y_mask), self.axis, True)

    def dual(self, mask: Mask, y_mask: Mask) -> Body:
        if not self.linear:
            return super().dual(mask, y_mask)
        with api.inside(self.axis):
            below = self.below.dual(mask, y_mask)
        woven = self.below.weave(self.mask, pick(mask, self.mask), mask)
        return below.batched(woven, [*self.y_mask, *pick(y_mask, self.y_mask)], self.axis, True)


def _differentiable(aval: Any) -> bool:
    return jax.numpy.issubdtype(aval.dtype, jax.numpy.inexact)


__all__ = ["Batched", "Body", "Mask", "fill", "merge", "omit", "pick", "split"]
