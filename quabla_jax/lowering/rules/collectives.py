"""shard_map over a mesh of one device, and collectives where an axis has size one or is an array's own (vmap's)."""

from __future__ import annotations

import numpy as np

from ..emitter import Emitter
from ..program import Value
from . import Inline, register

REASON = "it speaks to other devices, and a lowered program runs on one"


def _shard_map(e: Emitter, eqn, *inputs: Value):
    from ..interpreter import unsupported

    p = eqn.params
    sizes = dict(p["mesh"].shape)
    if any(n != 1 for n in sizes.values()):
        raise unsupported(e, eqn, f"its mesh has {' x '.join(map(str, sizes.values()))} devices: {REASON}")
    return Inline(p["jaxpr"], inputs)


def _reduce(kind: str):
    """Numbered axes are the array's own, where vmap put a named one; named ones have size one here."""

    def rule(e: Emitter, eqn, *inputs: Value):
        axes = [a for a in eqn.params["axes"] if isinstance(a, int)]
        if eqn.params.get("axis_index_groups") is not None and axes:
            from ..interpreter import unsupported

            raise unsupported(e, eqn, "groups of an axis are not reduced apart")
        return [_shaped(e, e.reduce(kind, x, axes), v) for x, v in zip(inputs, eqn.outvars)]

    return rule


def _shaped(e: Emitter, x: Value, variable) -> Value:
    return e.reshape(x, variable.aval.shape)


def _alone(e: Emitter, eqn, *inputs: Value):
    """What a collective leaves of an array when nobody else takes part: axes of size one come and go."""
    return [_shaped(e, x, v) for x, v in zip(inputs, eqn.outvars)]


def _ppermute(e: Emitter, eqn, x: Value):
    return x if len(eqn.params["perm"]) else e.like(x, 0)


def _axis_index(e: Emitter, eqn):
    return e.const(0, np.dtype(np.int32))


register("shard_map_p", "inlined", _shard_map)
for _kind, _names in (("sum", "psum_p psum_invariant_p"), ("max", "pmax_p"), ("min", "pmin_p")):
    register(_names, "direct", _reduce(_kind))
register("all_gather_p all_gather_invariant_p reduce_scatter_p all_to_all_p", "direct", _alone)
register("ppermute_p", "direct", _ppermute)
register("axis_index_p", "direct", _axis_index)
