"""Callbacks: Python on the host, for targets that stay in Python between their pieces."""

from __future__ import annotations

import functools

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
    params = {"callback": eqn.params["callback"], "results": results, "effect": False}
    if not _calls(e, inputs, params):
        if not _only_raises(eqn.params["callback"]):
            raise unsupported(e, eqn, REASON)
        return [e.full(shape, _poison(dtype), dtype) for shape, dtype in results]
    return e.ops("host_call", *inputs, **params)


def _calls(e: Emitter, inputs, params) -> bool:
    """Whether the target can call the host."""
    builder = e.session.builder
    outputs = tuple(Value(shape, dtype) for shape, dtype in params["results"])
    return builder is None or builder.supports(Op("host_call", inputs, params, outputs, e.source)) is None


def _effect(e: Emitter, eqn, *inputs: Value):
    """io_callback, debug_callback and debug_print: called in the program's order as often as it comes by."""
    from ..interpreter import unsupported

    results = tuple((tuple(v.aval.shape), np.dtype(v.aval.dtype)) for v in eqn.outvars)
    callback = eqn.params.get("callback") if results else functools.partial(eqn.primitive.impl, **eqn.params)
    params = {"callback": lambda *arrays: callback(*arrays), "results": results, "effect": True}
    if not _calls(e, inputs, params):
        raise unsupported(e, eqn, REASON)
    return e.ops("host_call", *inputs, **params)


def _only_raises(callback) -> bool:
    function = getattr(callback, "callback_func", callback)
    return getattr(getattr(function, "func", function), "__module__", "") == "equinox._errors"


def _poison(dtype: np.dtype):
    if is_float(dtype) or is_complex(dtype):
        return np.nan
    return False if dtype.kind == "b" else np.iinfo(dtype).min


register("pure_callback_p", "composed", _pure_callback)
register("io_callback_p debug_callback_p debug_print_p", "composed", _effect)
