"""The front doors of counted loops: pytrees and closures in, jax.lax semantics out.

jax.lax's own function does the tracing: it checks the carry, settles weak types, raises its own errors and calls the body
as often as it always does. The scan equation it leaves is then bound again as the engine's loop.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import jax
from jax import lax

from .._cycles import refusing_cycles
from ..lowering import jax_api as api
from . import counted_batching, counted_rules, counted_vjp_rules, fused, progress  # noqa: F401  (the first three register rules)
from .body import Body
from .counted import loop_p
from .plan import SHORT_LOOP, request_of
from .schedule import Trips
from .whiles import dynamic_fori

__all__ = ["fori_loop", "scan"]

_BODIES: OrderedDict[Any, Body] = OrderedDict()
_MAX_BODIES = 512
_LOCK = threading.Lock()


@refusing_cycles
def scan(
    f: Callable,
    init: Any,
    xs: Any = None,
    length: int | None = None,
    *,
    reverse: bool = False,
    unroll: int | bool = 1,
    checkpoint: Any = "auto",
) -> tuple[Any, Any]:
    """jax.lax.scan, its reverse mode in the memory that `checkpoint` asks for, at every order of differentiation.

    Args:
        f: (carry, x) -> (carry, y); may close over arrays and tracers.
        init: first carry, a pytree of arrays (integers, booleans and PRNG keys ride along undifferentiated).
        xs: pytree of arrays scanned along their leading axis, or None.
        length, reverse, unroll: as for jax.lax.scan.
        checkpoint: "auto", "full", "sqrt", a number of stored carries, or a `Budget`.

    Returns:
        (last carry, the y of all steps stacked).

    Raises:
        What jax.lax.scan raises. ValueError, when the loop is differentiated, where nothing fits the checkpoint.

    Differentiation: every mode and order, under jit, vmap, jax.checkpoint, shard_map and other loops. A body with side
    effects runs in jax.lax's own loop, as do loops of no more than 32 steps under "auto".
    Cost: "sqrt" stores about 2 sqrt(length) carries and runs the body once more; docs/engine.md has the others.
    """
    meter = progress.current()
    if meter is not None:
        again = lambda f, init: scan(f, init, xs, length, reverse=reverse, unroll=unroll, checkpoint=checkpoint)
        lengths = [len(x) for x in jax.tree.leaves(xs)]
        return progress.count_scan(meter, again, f, init, lengths[0] if lengths else length)
    request = request_of(checkpoint)
    plain = lambda: lax.scan(f, init, xs, length, reverse=reverse, unroll=unroll)
    return plain() if request == "full" or api.jit_disabled() else _through_lax(plain, request)


@refusing_cycles
def fori_loop(
    lower: Any,
    upper: Any,
    body_fun: Callable,
    init_val: Any,
    *,
    unroll: int | bool | None = None,
    checkpoint: Any = "auto",
) -> Any:
    """jax.lax.fori_loop, its reverse mode in the memory that `checkpoint` asks for, at every order of differentiation.

    Args:
        lower, upper: integers. Where one is traced, the loop is jax.lax's while loop, which has no reverse mode under
            "auto" and "full"; another checkpoint (a number of stored carries, a `Budget`, "sqrt") gives it one.
        body_fun: (index, carry) -> carry.
        init_val: first carry, a pytree of arrays.
        unroll, checkpoint: as for `scan`.

    Returns:
        The last carry.

    Raises:
        What jax.lax.fori_loop raises. ValueError, when the loop is differentiated, where nothing fits the checkpoint.

    Differentiation and cost: as for `scan`.
    """
    meter = progress.current()
    if meter is not None:
        again = lambda body, init: fori_loop(lower, upper, body, init, unroll=unroll, checkpoint=checkpoint)
        known = api.is_concrete(lower) and api.is_concrete(upper)
        return progress.count_fori(meter, again, body_fun, init_val, max(0, int(upper) - int(lower)) if known else None)
    request = request_of(checkpoint)
    plain = lambda: lax.fori_loop(lower, upper, body_fun, init_val, unroll=unroll)
    if request == "full" or api.jit_disabled():
        return plain()
    if not (api.is_concrete(lower) and api.is_concrete(upper)):
        if request == "auto" or unroll not in (None, False, 1):  # jax.lax refuses to unroll these
            return plain()
        # "sqrt" of an unknown number of steps: the pool that "auto" takes for a while loop
        return dynamic_fori(lower, upper, body_fun, init_val, checkpoint="auto" if request == "sqrt" else request)
    return _through_lax(plain, request)


_COMPUTED = object()


def _through_lax(plain: Callable[[], Any], request: Any) -> Any:
    """Trace jax.lax's loop, then evaluate what it traced to with the engine's loop in the scan equation's place."""
    whole = []

    def flat() -> list[Any]:
        out, tree = jax.tree.flatten(plain())
        whole.append(([_COMPUTED if isinstance(v, api.Tracer) else v for v in out], tree))
        return [v for v in out if isinstance(v, api.Tracer)]

    jaxpr, consts = api.trace_flat(flat, ())

    def handle(eqn: Any, inputs: list[Any]) -> list[Any] | None:
        return _bind(eqn, inputs, request) if eqn.primitive is api.scan_p else None

    computed = iter(api.eval_with(jaxpr, consts, handle))
    out, tree = whole[0]
    # A carry that no step touches is handed on as the object that it was: a Python number, a NumPy array.
    return tree.unflatten([next(computed) if v is _COMPUTED else v for v in out])


def _bind(eqn: Any, inputs: list[Any], request: Any) -> list[Any] | None:
    """The engine's loop for a scan equation; None where it stays jax.lax's.

    It does for bodies with effects, which blocks would replay, and for loops too short to cut.
    """
    loop = api.scan_equation(eqn)
    length = loop["length"]
    short = request == "auto" and length <= SHORT_LOOP
    if length < 2 or (short and not fused.wanted()) or api.has_effects(loop["jaxpr"]):
        return None
    g = body_of(loop["jaxpr"], loop["sizes"])
    if short and fused.elements(g) is None:
        return None
    trips = Trips(length, loop["reverse"], loop["unroll"], request)
    # Converted here, where differentiation sees it: the cotangent of a weakly typed operand is weakly typed, as in JAX.
    args = list(map(api.settle, inputs, g.avals))
    out = loop_p.bind(*args, g=g, plan=trips, keep=None)
    return [api.with_weak_type(v, getattr(w.aval, "weak_type", False)) for v, w in zip(out, eqn.outvars, strict=True)]


def body_of(jaxpr: Any, sizes: tuple[int, int, int]) -> Body:
    """The Body of a scan's jaxpr; the same object for the same program, so that derived and compiled code is reused.

    A function defined anew at every call is traced anew at every call, as jax.lax would; what comes after is not.
    """
    try:
        key = (api.jaxpr_key(jaxpr), tuple(sizes))
    except TypeError:  # a parameter that cannot be compared
        return _make_body(jaxpr, sizes)
    with _LOCK:
        if key in _BODIES:
            _BODIES.move_to_end(key)
            return _BODIES[key]
    g = _make_body(jaxpr, sizes)
    with _LOCK:
        g = _BODIES.setdefault(key, g)
        while len(_BODIES) > _MAX_BODIES:
            _BODIES.popitem(last=False)
    return g


def forget_bodies() -> None:
    """Drop the bodies that equal programs would share, and all that was derived from them; for measurements."""
    with _LOCK:
        _BODIES.clear()


def _make_body(jaxpr: Any, sizes: tuple[int, int, int]) -> Body:
    flat, consts = api.detach_consts(jaxpr)
    atoms = [*flat.invars, *flat.outvars]
    if not any(getattr(v.aval, "weak_type", False) for v in atoms):
        return Body(flat, consts, sizes)
    avals = [v.aval for v in flat.invars[len(consts) :]]
    types = [api.strong_aval(v.aval) for v in flat.outvars]

    def strong(*args):
        out = api.eval_jaxpr(flat, (), *consts, *args)
        return [api.settle(v, t) for v, t in zip(out, types, strict=True)]

    return Body.trace(strong, avals, sizes)
