"""Steps that read a few rows of a big array and then overwrite them, kept free of copies of the whole array.

The transpose of `buffer.at[i].set(row)` reads row i of the buffer's cotangent and then clears it there. Inside a loop the
buffer can be updated in place only if XLA can prove that every read comes first. It fuses reads into whatever uses them,
and then copies the buffer at every step: a loop that writes one row a step takes O(T^2) time in its reverse mode. Here such
reads go behind a branch, which no fusion crosses, and the write's index is made to depend on what was read. On XLA's CPU
backend only: a branch costs an accelerator a round trip to its host.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ..lowering import jax_api as api

READS = frozenset(("gather", "dynamic_slice"))
SCATTERS = frozenset(("scatter", "scatter-add", "scatter_add", "scatter_sub", "scatter_mul"))
WRITES = SCATTERS | {"dynamic_update_slice"}


def applies(jaxpr: Any) -> bool:
    """Whether the transpose of this body may read and overwrite one array, on the backend where that matters."""
    return jax.default_backend() == "cpu" and bool(overwritten(jaxpr))


def overwritten(jaxpr: Any) -> list[Any]:
    """The inputs that the jaxpr updates in part, at its top level."""
    inputs = {id(v) for v in jaxpr.invars}
    return [e.invars[0] for e in jaxpr.eqns if _writes(e) and id(e.invars[0]) in inputs]


def _writes(eqn: Any) -> bool:
    return eqn.primitive.name in WRITES and api.is_var(eqn.invars[0])


def has_hazard(jaxpr: Any) -> bool:
    """Whether some array is both read in part and overwritten in part."""
    written = {id(e.invars[0]) for e in jaxpr.eqns if _writes(e)}
    return any(e.primitive.name in READS and id(e.invars[0]) in written for e in jaxpr.eqns)


def reads_first(jaxpr: Any, args: Sequence[Any]) -> list[Any]:
    """Evaluate a constant-free jaxpr with partial reads of an array ordered before partial writes to it."""
    env: dict[Any, Any] = dict(zip(jaxpr.invars, args, strict=True))
    read = lambda v: env[v] if api.is_var(v) else v.val
    true = lax.optimization_barrier(jnp.bool_(True))
    written = {e.invars[0] for e in jaxpr.eqns if _writes(e)}
    early: dict[Any, list[Any]] = {v: [] for v in written}
    for eqn in jaxpr.eqns:
        if eqn.primitive.name in READS and api.is_var(eqn.invars[0]) and eqn.invars[0] in written:
            early[eqn.invars[0]].append(eqn)

    def isolated(eqn: Any) -> None:
        if eqn.outvars[0] in env or any(api.is_var(v) and v not in env for v in eqn.invars):
            return
        inputs = list(map(read, eqn.invars))
        aval = eqn.outvars[0].aval
        nothing = lambda *_: jnp.zeros(aval.shape, aval.dtype)
        env[eqn.outvars[0]] = lax.cond(true, lambda *a: api.rebind(eqn, a)[0], nothing, *inputs)

    for eqn in jaxpr.eqns:
        if all(v in env for v in eqn.outvars):
            continue
        hazards = early.get(eqn.invars[0], ()) if _writes(eqn) else ()
        for reader in hazards:
            isolated(reader)
        done = [env[e.outvars[0]] for e in hazards if e.outvars[0] in env and e.outvars[0].aval.size]
        inputs = list(map(read, eqn.invars))
        if done:
            k = 1 if eqn.primitive.name in SCATTERS else 2
            seen = sum(jnp.where(true, 0, r.ravel()[0].real.astype(inputs[k].dtype)) for r in done)
            inputs[k] = inputs[k] + seen
        env.update(zip(eqn.outvars, api.rebind(eqn, inputs), strict=True))
    return [read(v) for v in jaxpr.outvars]
