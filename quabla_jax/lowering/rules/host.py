"""pure_callback: Python on the host, for targets that stay in Python between their pieces."""

from __future__ import annotations

import numpy as np

from ...errors import UnsupportedOperationError
from ..emitter import Emitter
from ..program import Op, Value
from . import register

REASON = "it calls Python on the host while the program runs, and a lowered program holds no Python"


def _pure_callback(e: Emitter, eqn, *inputs: Value):
    """One host_call, where the target says that it supports it; refused by the primitive's name elsewhere."""
    results = tuple((tuple(a.shape), np.dtype(a.dtype)) for a in eqn.params["result_avals"])
    params = {"callback": eqn.params["callback"], "results": results}
    builder = e.session.builder
    if builder is not None:
        probe = Op("host_call", inputs, params, tuple(Value(s, d) for s, d in results), e.source)
        if builder.supports(probe) is not None:
            raise UnsupportedOperationError(
                f"pure_callback cannot run on {builder.target}: {REASON}{e.source and f' (from {e.source})'}",
                op="pure_callback",
                device=builder.target,
            )
    return e.ops("host_call", *inputs, **params)


register("pure_callback_p", "direct", _pure_callback)
