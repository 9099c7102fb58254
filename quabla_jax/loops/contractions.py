"""Cotangents of constants that are products, gathered over many steps instead of added up at each.

A weight used in every step has a cotangent at every step: the outer product of a cotangent and an activation, as large
as the weight and added to a running sum. The sum over steps of dot_general(a_t, b_t) is one dot_general that contracts over
steps too, so a sweep may keep a_t and b_t for a while and multiply once: less memory traffic, and a product that is
long enough to be fast. What the sum passes through afterwards (a transpose, a sum of two such products) is linear, and
is done once as well. It is another loop's worth of code to compile, so it is done for whole pieces alone, and where one run
of the loop saves as much time (`worth`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from jax import lax

from ..lowering import jax_api as api
from .rates import nbytes, sum_seconds

THIN = 32
"""A product that contracts over more than this is fast as it is, and the rearrangement of its operands would not pay."""
COMPILATION = 0.1
"""Expected seconds that the code of gathered products takes to compile."""
LINEAR = frozenset("transpose add_any neg reshape squeeze expand_dims copy copy_p".split())


class Gathered:
    """Which outputs of a transposed step wait, and what is kept for them.

    Args:
        jaxpr: the transposed step; constant-free.
        num_fixed: how many of its first inputs are the same at every step.
        num_sums: how many of its first outputs are added up over all steps.
        stacks: inputs that exist for all steps anyway, as scanned arrays.

    Attributes:
        waits: one mark for each of the first `num_sums` outputs.
        dots: the products that wait.
        kept: operands to keep of every step.
        step_bytes: bytes of `kept`, and of all operands once more: a product over rows rearranges them.
    """

    def __init__(self, jaxpr: Any, num_fixed: int, num_sums: int, stacks: Sequence[Any]):
        self.jaxpr = jaxpr
        self.producer = {v: e for e in jaxpr.eqns for v in e.outvars}
        self.varies = set(jaxpr.invars[num_fixed:])
        reads: dict[Any, int] = {}
        for eqn in jaxpr.eqns:
            if any(api.is_var(v) and v in self.varies for v in eqn.invars):
                self.varies.update(eqn.outvars)
        for v in [v for e in jaxpr.eqns for v in e.invars] + list(jaxpr.outvars):
            if api.is_var(v):
                reads[v] = reads.get(v, 0) + 1
        self._reads = reads
        self.sums = jaxpr.outvars[:num_sums]
        self.stacks = stacks
        found = [self._dots(v) for v in self.sums]
        self.waits = [self._pays(v, dots) for v, dots in zip(self.sums, found, strict=True)]
        self.dots = [e for w, dots in zip(self.waits, found, strict=True) if w for e in dots or ()]
        self.kept = self._operands(self.dots)
        operands = [v for e in self.dots for v in e.invars]
        self.step_bytes = sum(nbytes(v.aval) for v in [*self.kept, *operands])

    def _operands(self, dots: Sequence[Any]) -> list[Any]:
        return [v for v in dict.fromkeys(v for e in dots for v in e.invars) if v not in self.stacks]

    def _dots(self, v: Any) -> list[Any] | None:
        """The products that `v` is a linear function of, where it is one of nothing else."""
        found, wanted = [], [v]
        while wanted:
            v = wanted.pop()
            eqn = self.producer.get(v) if api.is_var(v) else None
            if eqn is None or self._reads[v] != 1:
                return None
            if eqn.primitive.name == "dot_general" and self._thin(eqn):
                found.append(eqn)
            elif eqn.primitive.name in LINEAR:
                wanted += eqn.invars
            else:
                return None
        return found

    def _thin(self, dot: Any) -> bool:
        a, b = dot.invars
        contracted = math.prod(a.aval.shape[i] for i in dot.params["dimension_numbers"][0][0])
        return contracted <= THIN and all(api.is_var(v) and v in self.varies for v in (a, b))

    def _pays(self, v: Any, dots: list[Any] | None) -> bool:
        return bool(dots) and nbytes(v.aval) >= sum(nbytes(a.aval) for a in self._operands(dots))

    def outputs(self) -> list[Any]:
        """What a step computes: sums that do not wait, operands that are kept, and all other outputs."""
        now = [v for v, w in zip(self.sums, self.waits, strict=True) if not w]
        return [*now, *self.kept, *self.jaxpr.outvars[len(self.sums) :]]

    def multiply(self, fixed: dict[Any, Any], rows: dict[Any, Any]) -> list[Any]:
        """The sums that wait, over the steps whose operands `rows` holds, stacked."""
        env = dict(fixed)
        for eqn in self.dots:
            a, b = (rows[v] for v in eqn.invars)
            env[eqn.outvars[0]] = _dot_over_rows(a, b, eqn.params)
        return api.eval_for(self.jaxpr, env, [v for v, w in zip(self.sums, self.waits, strict=True) if w])


def _dot_over_rows(a: Any, b: Any, params: dict[str, Any]) -> Any:
    (ca, cb), (ba, bb) = params["dimension_numbers"]
    later = lambda dims: [d + 1 for d in dims]
    numbers = (([0, *later(ca)], [0, *later(cb)]), (later(ba), later(bb)))
    return lax.dot_general(a, b, numbers, **{k: v for k, v in params.items() if k != "dimension_numbers"})


def gatherable(linear: Any, constant: Any) -> bool:
    """Whether the cotangent of a constant, an input of the linear part of a step, is likely to be gathered."""
    readers = [e for e in linear.eqns if any(v is constant for v in e.invars)]

    def thin(dot: Any) -> bool:
        if dot.primitive.name != "dot_general" or dot.invars[0] is dot.invars[1]:
            return False
        at = int(dot.invars[0] is constant)  # of the other operand
        contracted, batch = dot.params["dimension_numbers"]
        shape = dot.invars[at].aval.shape
        free = math.prod(n for i, n in enumerate(shape) if i not in (*contracted[at], *batch[at]))
        return free <= THIN and nbytes(constant.aval) >= nbytes(dot.outvars[0].aval)

    return bool(readers) and all(map(thin, readers))


def worth(length: int, nbytes: int) -> bool:
    """Whether a loop of `length` steps had better gather cotangents of so many bytes than add them up at every step."""
    return nbytes > 0 and length * sum_seconds(nbytes) >= COMPILATION


__all__ = ["Gathered", "gatherable", "worth"]
