"""The condition of a while loop: a closed jaxpr of its own constants and of the carries that it reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax

from ..lowering import jax_api as api
from ._lists import omit, pick
from .body import Body, Mask

__all__ = ["Predicate", "Test"]


class Test:
    """What a predicate computes, hashed by identity: (constants, the carries it reads) -> bool with the lane axes."""

    __test__ = False  # not a test case

    def __init__(self, jaxpr: Any, consts: Sequence[Any], num_consts: int):
        """`jaxpr` is constant-free; its first inputs are `consts` (concrete), then the constants, then the carries."""
        self.jaxpr, self.bound, self.num_consts = jaxpr, tuple(consts), num_consts
        self.avals = tuple(api.strong_aval(v.aval) for v in jaxpr.invars[len(self.bound) :])
        self.aval = api.strong_aval(jaxpr.outvars[0].aval)
        self._memo: dict[Any, Test] = {}

    def __call__(self, args: Sequence[Any]) -> Any:
        return api.eval_jaxpr(self.jaxpr, (), *self.bound, *args)[0]

    def _derived(self, key: Any, fun: Any, avals: Sequence[Any], num_consts: int) -> Test:
        if key not in self._memo:
            jaxpr, consts = api.trace_flat(fun, avals)
            self._memo[key] = Test(jaxpr, consts, num_consts)
        return self._memo[key]

    def batched(self, mask: Mask, axis: Any) -> Test:
        """vmap over `axis` of the inputs in `mask`; the result's new lane axis leads."""
        mask = tuple(mask)
        vmapped = jax.vmap(
            lambda *a: self(a),
            in_axes=tuple(0 if m else None for m in mask),
            axis_size=axis.size,
            axis_name=axis.name,
            spmd_axis_name=axis.spmd_name,
        )
        avals = [api.mapped_aval(axis, a) if m else a for a, m in zip(self.avals, mask, strict=True)]
        return self._derived((mask, *api.axis_key(axis)), lambda *a: [vmapped(*a)], avals, self.num_consts)

    def guarded(self) -> Test:
        """The test that fails unless a new first constant, a bool, is true."""
        flag = api.scalar_aval(bool, self.aval, api.varying_axes(self.aval))
        fun = lambda active, *a: [active & self(a)]
        return self._derived("guarded", fun, [flag, *self.avals], self.num_consts + 1)


@dataclass(frozen=True)
class Predicate:
    """A test and which of the loop's carries it reads."""

    test: Test
    reads: tuple[bool, ...]

    @property
    def num_consts(self) -> int:
        return self.test.num_consts

    def __call__(self, consts: Sequence[Any], carry: Sequence[Any]) -> Any:
        return self.test([*consts, *pick(self.reads, carry)])

    def dual(self, g: Body, mask: Mask) -> Predicate:
        """The same test for g.dual(mask): tangents are not read."""
        return Predicate(self.test, (*self.reads, *[False] * sum(g.carry(mask))))

    def omit(self, mask: Mask) -> Predicate:
        """The same test for the carries outside `mask`, none of which it may read."""
        return Predicate(self.test, tuple(omit(mask, self.reads)))

    def batched(self, consts: Mask, axis: Any) -> Predicate:
        """vmap: `consts` says which constants are mapped; every carry is."""
        return Predicate(self.test.batched([*consts, *[True] * sum(self.reads)], axis), self.reads)

    def guarded(self) -> Predicate:
        return Predicate(self.test.guarded(), self.reads)
