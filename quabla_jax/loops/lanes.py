"""Loops whose examples stop at different steps: which axes of each value count the examples, and masks along them.

A vmap with a mapped predicate gives the loop a lane axis: the predicate and the trip count get one more leading axis, and
so does every carry. A value's lane axes need not lead it, because a later vmap that leaves the predicate unmapped puts
its own axis in front; so each value says where its lane axes are. A constant may lack some or all of them: it is shared.

Devices of a shard_map that stop at different steps are lanes too, one a device: `axes` names them. All of them go through
the steps of the longest, so that a collective in the body's vjp (the sum of a shared constant's cotangents) meets its
partners.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ..lowering import jax_api as api
from ._lists import merge, omit, pick
from .body import Body, Mask

__all__ = ["Lanes"]

Places = tuple[int | None, ...]


@dataclass(frozen=True)
class Lanes:
    """Lane axes of a loop's inputs.

    Attributes:
        ndim: how many lane axes the predicate and the trip count have.
        at: for every input of the body (constants, then carry), the position of each lane axis, None where it has not
            got it. Carries have all of them. Positions grow from left to right.
        axes: the manual axes whose devices stop on their own.
        mixed: whether a collective in the body runs across lanes, so that one that has stopped still takes part.
    """

    ndim: int
    at: tuple[Places, ...]
    axes: frozenset[Any] = frozenset()
    mixed: bool = False

    @classmethod
    def none(cls, inputs: int, axes: frozenset[Any] = frozenset(), mixed: bool = False) -> Lanes:
        return cls(0, ((),) * inputs, axes, mixed)

    def carry(self, g: Body) -> list[Places]:
        return list(g.carry(self.at))

    def pick(self, mask: Mask) -> Lanes:
        """Lanes of the body of the inputs in `mask`."""
        return replace(self, at=tuple(pick(mask, self.at)))

    def omit(self, mask: Mask) -> Lanes:
        """Lanes of the body of the inputs outside `mask`."""
        return replace(self, at=tuple(omit(mask, self.at)))

    def dual(self, g: Body, mask: Mask) -> Lanes:
        """Lanes of g.dual(mask): a tangent's axes are its primal's."""
        return replace(self, at=tuple(g.weave(self.at, pick(mask, self.at), mask)))

    def shifted(self, mask: Mask) -> Lanes:
        """After a vmap that leaves the predicate alone: the inputs in `mask` have a new leading axis."""
        move = lambda places: tuple(None if q is None else q + 1 for q in places)
        return replace(self, at=tuple(merge(mask, map(move, pick(mask, self.at)), omit(mask, self.at))))

    def grown(self, mask: Mask, mixed: bool) -> Lanes:
        """After a vmap that maps the predicate: one more lane axis, which leads the inputs in `mask`."""
        moved = self.shifted(mask).at
        at = tuple((0 if m else None, *places) for m, places in zip(mask, moved))
        return replace(self, ndim=self.ndim + 1, at=at, mixed=self.mixed or mixed)

    def any(self, mask: Any) -> Any:
        """Whether any lane is in the mask, on any device."""
        return _on_devices(lax.pmax, jnp.any(mask), self.axes)

    def longest(self, trips: Any) -> Any:
        """The largest trip count of all lanes, on all devices."""
        return _on_devices(lax.pmax, jnp.max(trips), self.axes)


def _on_devices(reduce: Any, value: Any, axes: frozenset[Any]) -> Any:
    axes = axes & api.varying_axes(value)
    return reduce(value, tuple(sorted(axes, key=str))) if axes else value


def level(mask: Any, like: Any) -> Any:
    """The mask that is true on every device if on any, but for the manual axes over which `like` (a value or type) differs."""
    return _on_devices(lax.pmax, mask, api.varying_axes(mask) - api.varying_axes(like))


def spread(mask: Any, places: Places, like: Any) -> Any:
    """A lane mask at the shape of a value; lane axes, and devices, that the value lacks are reduced by `any`."""
    missing = tuple(k for k, q in enumerate(places) if q is None)
    have = tuple(q for q in places if q is not None)
    mask = level(jnp.any(mask, axis=missing) if missing else mask, like)
    return lax.broadcast_in_dim(mask, jnp.shape(like), have)


def choose(mask: Any, places: Sequence[Places], yes: Sequence[Any], no: Sequence[Any]) -> list[Any]:
    """Value by value `yes` in the lanes of the mask and `no` outside; the value `yes` itself where it has no lane axis."""
    return [
        lax.select(spread(mask, q, a), a, b) if any(k is not None for k in q) else a
        for q, a, b in zip(places, yes, no, strict=True)
    ]


def sources(good: Any) -> Any:
    """For every lane a good lane's flat index, its own where it is good itself.

    Later lane axes are searched first, so a lane borrows from the lanes with which it shares most constants.
    """
    source = lax.broadcasted_iota(jnp.int32, (good.size,), 0).reshape(good.shape)
    for axis in reversed(range(good.ndim)):
        first = jnp.argmax(good, axis=axis, keepdims=True)
        source = jnp.where(good, source, jnp.take_along_axis(source, first, axis=axis))
        good = jnp.broadcast_to(jnp.any(good, axis=axis, keepdims=True), good.shape)
    return source


def borrow(good: Any, places: Sequence[Places], values: Sequence[Any]) -> list[Any]:
    """The values with the lanes that are not good replaced by good ones (left as they are where no lane is good)."""

    def one(q: Places, a: Any) -> Any:
        have = [k for k in q if k is not None]
        if not have:
            return a
        missing = tuple(k for k, p in enumerate(q) if p is None)
        mine = level(jnp.any(good, axis=missing) if missing else good, a)

        def take(mine: Any, a: Any) -> Any:
            front = jnp.moveaxis(a, have, range(len(have)))
            flat = front.reshape(mine.size, *front.shape[len(have) :])
            return jnp.moveaxis(flat[sources(mine).reshape(-1)].reshape(front.shape), range(len(have)), have)

        if api.is_split(a):  # lanes on several devices: XLA finds the way
            return jax.sharding.auto_axes(take, out_sharding=jax.typeof(a).sharding)(mine, a)  # type: ignore[call-arg]
        return take(mine, a)

    return [one(q, a) for q, a in zip(places, values, strict=True)]
