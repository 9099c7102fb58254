"""Regions: bodies and branches traced once, under the operand rule.

A region may use its parameters, Python numbers and concrete arrays. A tracer of an enclosing function that it
touches turns up among the constants of its jaxpr; the error then says which variable that is and which line reads it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from ._staging import Staged, is_tracer, reads_input, stage
from .dtypes import short
from .errors import TracerError
from .lowering import jax_api

RULE = "control-flow regions cannot close over an outer tracer; pass it explicitly using operands= (cond takes positional operands)"


class DetachedPredicateError(TracerError, ValueError):
    """A while_loop predicate reads an outer tracer and none of its own arguments.

    Quabla reports this breach of the operand rule as a ValueError, every other one as a TracerError: this is both.
    """


def _search(value: Any, wanted: Any, depth: int) -> str | None:
    """The name by which a function, partial object or method reaches the object `wanted`, or None."""
    if isinstance(value, functools.partial):
        pairs = [(f"argument {k} of functools.partial", v) for k, v in enumerate(value.args)]
        pairs += list(value.keywords.items())
        inner = [value.func]
    else:
        code = getattr(value, "__code__", None)
        if code is None:
            return None
        cells = getattr(value, "__closure__", None) or ()
        pairs = []
        for name, cell in zip(code.co_freevars, cells):
            try:
                pairs.append((name, cell.cell_contents))
            except ValueError:  # a cell that is not filled yet
                continue
        names = getattr(value, "__globals__", {})
        pairs += [(name, names[name]) for name in code.co_names if name in names]
        pairs += list((getattr(value, "__kwdefaults__", None) or {}).items())
        defaults = getattr(value, "__defaults__", None) or ()
        pairs += list(zip(code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount], defaults))
        owner = getattr(value, "__self__", None)
        pairs += [(f"self.{name}", v) for name, v in getattr(owner, "__dict__", {}).items()]
        inner = []
    for name, held in pairs:
        if held is wanted:
            return name
        found = _inside(name, held, wanted)
        if found:
            return found
    if depth:
        for held in [*inner, *(v for _, v in pairs if callable(v) and not is_tracer(v))]:
            found = _search(held, wanted, depth - 1)
            if found:
                return found
    return None


def _inside(name: str, held: Any, wanted: Any) -> str | None:
    """The path of `wanted` inside a small container."""
    if isinstance(held, dict):
        return next((f"{name}[{key!r}]" for key, item in held.items() if item is wanted), None)
    if isinstance(held, (list, tuple)):
        return next((f"{name}[{k}]" for k, item in enumerate(held) if item is wanted), None)
    return None


def _where(fun: Any) -> str:
    code = getattr(fun, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else ""


def closure_message(fun: Any, staged: Staged, what: str) -> str:
    """The operand rule's message for a staged region: the rule, the variable, its type, the line and the cure."""
    index = next(k for k, c in enumerate(staged.consts) if is_tracer(c))
    captured = staged.consts[index]
    name = _search(fun, captured, 2)
    line = jax_api.first_use_line(staged.jaxpr, index)
    kind = f"{short(captured.dtype)}{list(captured.shape)}"
    called = f"the variable {name!r} ({kind})" if name else f"a traced value of type {kind}"
    place = f", at {line}" if line else f", defined at {_where(fun)}" if _where(fun) else ""
    plain = bool(name) and str(name).isidentifier()
    parameter = name if plain else "its value"
    cure = f"pass {parameter} as an operand and give the function one more parameter for it"
    return f"{RULE}. Here {what} closes over {called}{place}; {cure}."


def region(
    fun: Callable[..., Any], avals: Sequence[Any], what: str, finish: Callable[[Any], Any] = lambda x: x
) -> Staged:
    """Traces `finish(fun(*arrays))` once, on abstract arrays, under the operand rule.

    Arguments:
        fun: the user's body, predicate or branch.
        avals: abstract values of its parameters.
        what: how the error calls it, for instance "the body of fori_loop".
        finish: checks and converts the result while tracing.

    Raises:
        TracerError: `fun` closes over a traced value.
    """
    staged = stage(lambda *arrays: finish(fun(*arrays)), avals)
    if staged.captured:
        raise TracerError(closure_message(fun, staged, what))
    return staged


def check_region(fun: Callable[..., Any], *avals: Any, what: str = "the function") -> Staged:
    """`region` for other modules: solvers and integrators hold their functions to the same rule."""
    return region(fun, avals, what)


def ignores_arguments(staged: Staged) -> bool:
    """Whether no equation and no output of a staged function reads one of its parameters."""
    return not any(reads_input(staged, k) for k in range(len(staged.jaxpr.invars)))
