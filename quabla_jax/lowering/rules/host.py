"""pure_callback: Python on the host, for targets that stay in Python between their pieces."""

from __future__ import annotations

import numpy as np

from ..emitter import Emitter
from ..program import Op, Value
from . import register
from .elementwise import is_complex, is_float

REASON = "it calls Python on the host while the program runs, and a lowered program holds no Python"


def _pure_callback(e: Emitter, eqn, *inputs: Value):
    """One host_call, where the target supports it; elsewhere refused by the primitive's name, but for equinox's error_if.

    The callback of error_if does nothing but raise. A target without Python cannot raise either: there its results
    become NaN (as with equinox's own on_error="nan"), least integers and False.
    """
    from ..interpreter import unsupported

    results = tuple((tuple(a.shape), np.dtype(a.dtype)) for a in eqn.params["result_avals"])
    params = {"callback": eqn.params["callback"], "results": results}
    builder = e.session.builder
    probe = Op("host_call", inputs, params, tuple(Value(s, d) for s, d in results), e.source)
    if builder is not None and builder.supports(probe) is not None:
        if not _only_raises(eqn.params["callback"]):
            raise unsupported(e, eqn, REASON)
        return [e.full(shape, _poison(dtype), dtype) for shape, dtype in results]
    return e.ops("host_call", *inputs, **params)


def _only_raises(callback) -> bool:
    function = getattr(callback, "callback_func", callback)
    return getattr(getattr(function, "func", function), "__module__", "") == "equinox._errors"


def _poison(dtype: np.dtype):
    if is_float(dtype) or is_complex(dtype):
        return np.nan
    return False if dtype.kind == "b" else np.iinfo(dtype).min


register("pure_callback_p", "composed", _pure_callback)
