"""jax.lax with its control flow through the engine: `from quabla_jax.compat import lax`.

Every public name of the installed jax.lax is here. cond, switch, scan, fori_loop, while_loop and map are the
engine's, with jax.lax's own signatures (read from the installed JAX) and one keyword more for the loops,
`checkpoint=`; all the rest is jax.lax's own object. What changes is memory in reverse mode, and reverse mode through
while_loop where `checkpoint=` asks for it.
"""

from __future__ import annotations

import inspect
from typing import Any

import jax.lax as _jax

from .. import loops as _loops
from .._cycles import refusing_cycles as _refusing_cycles
from ..lowering import jax_api as _jax_api

_jax_api.hide_frames(__file__)

_UNSET: Any = object()
CONTROL_FLOW = ("cond", "switch", "scan", "fori_loop", "while_loop", "map")
"""The names of jax.lax that go through the engine."""

# A hint on how XLA should lay out the transposed loop; the result does not depend on it and JAX itself ignores it.
_HINTS = frozenset({"_split_transpose"})


class _Call:
    """The signature of one of jax.lax's functions, as installed."""

    def __init__(self, function, *engine_names: str):
        self.function = function
        self.signature = inspect.signature(function)
        self.engine_names = frozenset(engine_names)

    def bind(self, args, kwargs) -> dict[str, Any] | None:
        """Arguments by name, defaults filled in; None where only JAX itself can serve the call.

        That is a call that JAX refuses (so that the refusal is JAX's), and one that uses a keyword which the engine
        does not know, from a JAX newer than this file.
        """
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError:
            return None
        bound.apply_defaults()
        for name, value in bound.arguments.items():
            known = name in self.engine_names or name in _HINTS
            if not known and value is not self.signature.parameters[name].default:
                return None
        return bound.arguments


_COND = _Call(_jax.cond, "pred", "true_fun", "false_fun", "operands", "operand")
_SWITCH = _Call(_jax.switch, "index", "branches", "operands", "operand")
_SCAN = _Call(_jax.scan, "f", "init", "xs", "length", "reverse", "unroll")
_FORI_LOOP = _Call(_jax.fori_loop, "lower", "upper", "body_fun", "init_val", "unroll")
_WHILE_LOOP = _Call(_jax.while_loop, "cond_fun", "body_fun", "init_val")


def _stands_in_for(call: _Call, note: str, checkpoint: Any = _UNSET):
    """Give a function the name, signature and documentation of the jax.lax function that it stands in for."""

    def decorate(function):
        signature = call.signature
        if checkpoint is not _UNSET:
            keyword = inspect.Parameter("checkpoint", inspect.Parameter.KEYWORD_ONLY, default=checkpoint)
            signature = signature.replace(parameters=[*signature.parameters.values(), keyword])
        function = _jax_api.api_boundary(function)
        function.__signature__ = signature
        function.__doc__ = f"{note}\n\nWhat follows is jax.lax's own documentation.\n\n{inspect.getdoc(call.function)}"
        return function

    return decorate


def _plan(checkpoint) -> dict[str, Any]:
    """The engine's own default stays in force where the caller said nothing."""
    return {} if checkpoint is _UNSET else {"checkpoint": checkpoint}


@_stands_in_for(_COND, "jax.lax.cond through the engine: same branches, same derivatives, same guard under vmap.")
def cond(*args, **kwargs):
    arguments = _COND.bind(args, kwargs)
    if arguments is None:
        return _jax.cond(*args, **kwargs)
    pred, true_fun, false_fun, operands = (arguments[n] for n in ("pred", "true_fun", "false_fun", "operands"))
    keyword_operand = arguments["operand"] is not _COND.signature.parameters["operand"].default
    if keyword_operand and not operands:
        operands = (arguments["operand"],)
    elif keyword_operand:
        return _jax.cond(*args, **kwargs)
    if not callable(true_fun) and callable(false_fun) and len(operands) == 2 and callable(operands[1]):
        # The form of old: cond(pred, true_operand, true_fun, false_operand, false_fun).
        true_operand, on_true, false_operand, on_false = true_fun, false_fun, *operands
        operands = (true_operand, false_operand)
        true_fun, false_fun = (lambda x, _: on_true(x)), (lambda _, x: on_false(x))
    if not (callable(true_fun) and callable(false_fun)):
        return _jax.cond(*args, **kwargs)
    return _loops.cond(pred, true_fun, false_fun, *operands)


@_stands_in_for(_SWITCH, "jax.lax.switch through the engine: index clamped, differentiable, guarded under vmap.")
def switch(*args, **kwargs):
    arguments = _SWITCH.bind(args, kwargs)
    if arguments is None:
        return _jax.switch(*args, **kwargs)
    operands = arguments["operands"]
    if arguments["operand"] is not _SWITCH.signature.parameters["operand"].default:
        if operands:
            return _jax.switch(*args, **kwargs)
        operands = (arguments["operand"],)
    return _loops.switch(arguments["index"], arguments["branches"], *operands)


@_stands_in_for(
    _SCAN,
    "jax.lax.scan through the engine; `checkpoint=` (see quabla_jax.scan) says which carries reverse mode keeps.",
    checkpoint="auto",
)
def scan(*args, checkpoint=_UNSET, **kwargs):
    arguments = _SCAN.bind(args, kwargs)
    if arguments is None:
        return _jax.scan(*args, **kwargs)
    f, init, xs, length = (arguments[n] for n in ("f", "init", "xs", "length"))
    return _loops.scan(
        f, init, xs, length, reverse=arguments["reverse"], unroll=arguments["unroll"], **_plan(checkpoint)
    )


@_stands_in_for(
    _FORI_LOOP,
    "jax.lax.fori_loop through the engine; `checkpoint=` (see quabla_jax.fori_loop) says which carries reverse mode "
    "keeps. As in jax.lax, reverse mode wants bounds that are known while tracing.",
    checkpoint="auto",
)
def fori_loop(*args, checkpoint=_UNSET, **kwargs):
    arguments = _FORI_LOOP.bind(args, kwargs)
    if arguments is None:
        return _jax.fori_loop(*args, **kwargs)
    lower, upper, body_fun, init_val = (arguments[n] for n in ("lower", "upper", "body_fun", "init_val"))
    return _loops.fori_loop(lower, upper, body_fun, init_val, unroll=arguments["unroll"], **_plan(checkpoint))


@_stands_in_for(
    _WHILE_LOOP,
    'jax.lax.while_loop through the engine; `checkpoint="auto"` or a number of slots makes it reverse-differentiable, '
    "in memory fixed beforehand. Without it reverse mode raises what jax.lax raises.",
    checkpoint=None,
)
def while_loop(*args, checkpoint=_UNSET, **kwargs):
    arguments = _WHILE_LOOP.bind(args, kwargs)
    if arguments is None:
        return _jax.while_loop(*args, **kwargs)
    cond_fun, body_fun, init_val = (arguments[n] for n in ("cond_fun", "body_fun", "init_val"))
    return _loops.while_loop(cond_fun, body_fun, init_val, **_plan(checkpoint))


# jax.lax.map is Python code over jax.lax.scan (batches, remainders, explicit shardings); it stays JAX's own code, run
# with the engine's scan in the place of JAX's, so that its keywords and errors are the installed version's.
_map_over_scan = _jax_api.with_globals(_jax.map, scan=scan)


@_stands_in_for(_Call(_jax.map), "jax.lax.map over the engine's scan; `checkpoint=` as for scan.", checkpoint="auto")
@_refusing_cycles
def map(*args, checkpoint=_UNSET, **kwargs):  # noqa: A001
    if checkpoint is _UNSET:
        return _map_over_scan(*args, **kwargs)

    def planned_scan(*scan_args, **scan_kwargs):
        return scan(*scan_args, checkpoint=checkpoint, **scan_kwargs)

    return _jax_api.with_globals(_jax.map, scan=planned_scan)(*args, **kwargs)


for _name in CONTROL_FLOW:
    globals()[_name].__name__ = globals()[_name].__qualname__ = _name
del _name


def __getattr__(name: str) -> Any:
    return getattr(_jax, name)


__all__ = [_n for _n in {*dir(_jax), *CONTROL_FLOW} if not _n.startswith("_")]  # pyright: ignore[reportUnsupportedDunderAll]


def __dir__() -> list[str]:
    return sorted({*dir(_jax), *CONTROL_FLOW, "CONTROL_FLOW"})
