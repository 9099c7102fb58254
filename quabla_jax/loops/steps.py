"""A body cut for a reverse sweep over residuals: what a forward step stores, what is computed again, what is transposed.

Of a body g that is linear in some inputs, the rest is the known part; what the linear part reads of it are the residuals.
A residual need not be stored where it follows by cheap arithmetic from others, from the step's slices or from the
constants: 1 - tanh(y) from tanh(y), a broadcast from what was broadcast, a mask from what it compares. What depends on the
constants alone is computed once, before the loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..lowering import jax_api as api
from ._lists import split
from .body import Body
from .rates import equation_seconds, machine, nbytes

CHEAP = frozenset(
    "add add_any sub mul div neg max min abs sign square integer_pow select_n and or xor not eq ne lt le gt ge clamp "
    "convert_element_type broadcast_in_dim reshape squeeze expand_dims slice concatenate pad rev iota copy copy_p "
    "stop_gradient real imag complex conj is_finite dynamic_slice".split()
)
"""Primitives that XLA fuses into the uses of their outputs, and that are worth computing again."""


class Parts:
    """The static half of a residual sweep over one body.

    Attributes:
        known, consts: the nonlinear part, and the concrete values that lead its inputs.
        carry: its outputs that are the next nonlinear carry.
        residuals: its values that the linear part reads.
        linear: the linear part, (residuals, linear inputs) -> linear outputs.
        invariant: values of the known part that depend on constants alone and are read by what does not.
        stored: the residuals that a sweep keeps of every step; the others follow from these.
    """

    def __init__(self, g: Body, lin: Sequence[bool], y_lin: Sequence[bool]):
        jaxpr, more = api.inline_calls(g.jaxpr)
        lead = [False] * (len(more) + len(g.consts))
        outputs = [*g.carry(lin), *y_lin]
        self.known, consts, self.linear, count = api.linear_split(jaxpr, [*lead, *lin], outputs)
        self.consts = (*consts, *more, *g.consts)
        self.num_linear_constants = sum(g.groups(lin)[0])
        self.num_inputs = tuple(len(m) - sum(m) for m in g.groups(lin))
        outs = list(self.known.outvars)
        self.carry = outs[: self.num_inputs[1]]
        self.residuals = outs[len(outs) - count :]
        _, c, x, s = split(self.known.invars, len(self.consts), *self.num_inputs)
        self.c, self.x, self.s = c, x, s
        self._varies = self._dependent([*x, *s])
        self.stored = self._choose()
        self.invariant = self._borders()

    @classmethod
    def of(cls, g: Body, lin: Sequence[bool], y_lin: Sequence[bool]) -> Parts:
        lin, y_lin = tuple(lin), tuple(y_lin)
        return g.once(("parts", lin, y_lin), lambda: cls(g, lin, y_lin))

    def stored_bytes(self) -> int:
        return sum(nbytes(v.aval) for v in self.stored)

    def again_seconds(self) -> float:
        """Expected seconds of computing what is not stored, and needed, again in one step."""
        return sum(map(equation_seconds, self._between({*self.stored, *self.s})))

    def linear_constants(self) -> list[Any]:
        """The linear part's inputs that are constants of the loop."""
        first = len(self.residuals)
        return list(self.linear.invars[first : first + self.num_linear_constants])

    def _dependent(self, inputs: Sequence[Any]) -> set[Any]:
        out = set(inputs)
        for eqn in self.known.eqns:
            if any(api.is_var(v) and v in out for v in eqn.invars):
                out.update(eqn.outvars)
        return out

    def _between(self, have: set[Any]) -> list[Any]:
        """The equations that a step runs to get from `have` and the invariant values to the residuals."""
        wanted = {v for v in self.residuals if api.is_var(v) and v in self._varies and v not in have}
        out = []
        for eqn in reversed(self.known.eqns):
            if any(v in wanted for v in eqn.outvars):
                out.append(eqn)
                wanted.update(v for v in eqn.invars if api.is_var(v) and v in self._varies and v not in have)
        return out

    def _choose(self) -> tuple[Any, ...]:
        """Of the residuals, what to store: from the last computed to the first, one is left out where it costs less time
        to compute it from what stays than to write and read it."""
        m = machine()
        producer = {v: e for e in self.known.eqns for v in e.outvars}
        place = {v: k for k, e in enumerate(self.known.eqns) for v in e.outvars}
        stored = {v for v in self.residuals if api.is_var(v) and v in self._varies and v not in self.s}
        again: set[int] = set()
        for r in sorted(stored & producer.keys(), key=lambda v: place[v], reverse=True):
            limit = 2 * nbytes(r.aval) / m.near + m.launch
            new, wanted, have = {}, [r], {*stored, *self.s} - {r}
            while wanted and limit >= 0:
                eqn = producer.get(wanted.pop())
                if eqn is None or eqn.primitive.name not in CHEAP or api.inner_jaxprs(eqn):
                    limit = -1.0  # a carry that is not stored, or something that is not cheap
                elif id(eqn) not in again and id(eqn) not in new:
                    new[id(eqn)] = eqn
                    limit -= equation_seconds(eqn)
                    wanted += [v for v in eqn.invars if api.is_var(v) and v in self._varies and v not in have]
            if limit >= 0:
                stored.discard(r)
                again |= new.keys()
        return tuple(dict.fromkeys(v for v in self.residuals if api.is_var(v) and v in stored))

    def _borders(self) -> tuple[Any, ...]:
        """The computed invariant values that varying equations or the linear part read."""
        fixed = {v for e in self.known.eqns for v in e.outvars} - self._varies
        readers = [v for e in self.known.eqns if any(o in self._varies for o in e.outvars) for v in e.invars]
        return tuple(dict.fromkeys(v for v in [*readers, *self.residuals] if api.is_var(v) and v in fixed))


class ResidualStep:
    """One step of the sweep at given constants."""

    def __init__(self, g: Body, lin: Sequence[bool], y_lin: Sequence[bool], c: Sequence[Any]):
        self.parts = p = Parts.of(g, lin, y_lin)
        self.env = dict(zip(p.known.invars, [*p.consts, *c], strict=False))
        values = api.eval_for(p.known, self.env, p.invariant)
        self.env.update(zip(p.invariant, values, strict=True))

    def forward(self, x: Sequence[Any], s: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """(next carry, what is stored of the step)."""
        p = self.parts
        env = {**self.env, **dict(zip(p.x, x, strict=True)), **dict(zip(p.s, s, strict=True))}
        out = api.eval_for(p.known, env, [*p.carry, *p.stored])
        return out[: len(p.carry)], out[len(p.carry) :]

    def linear(self, stored: Sequence[Any], s: Sequence[Any], d: Sequence[Any]) -> list[Any]:
        """The step's linear outputs, from what was stored and the linear inputs."""
        p = self.parts
        env = {**self.env, **dict(zip(p.s, s, strict=True)), **dict(zip(p.stored, stored, strict=True))}
        return api.eval_jaxpr(p.linear, (), *api.eval_for(p.known, env, p.residuals), *d)


__all__ = ["Parts", "ResidualStep"]
