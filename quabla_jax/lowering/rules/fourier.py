"""fft"""

from __future__ import annotations

from ..emitter import Emitter
from ..program import Value
from . import register


def _fft(e: Emitter, eqn, x: Value):
    kind = eqn.params["fft_type"]
    name = getattr(kind, "name", str(kind)).lower().rsplit(".", 1)[-1]
    out = eqn.outvars[0].aval
    if 0 in out.shape or 0 in x.shape:
        return e.full(out.shape, 0, out.dtype)
    return e.op("fft", x, kind=name, lengths=tuple(eqn.params["fft_lengths"]))


register("fft_p", "direct", _fft)
