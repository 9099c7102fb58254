"""Overload resolution, strict: which schema of an operator fits the given values, and how constants are passed.

TorchScript's own `graph.insert` converts silently (a tensor to an int, a missing list to a broadcast) and its
`graph.create` checks nothing. Here every argument matches its formal type exactly, or is a Python constant that the
formal type can hold without loss.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import QuablaError
from ._torch_api import operator_schemas
from .jit_types import literal_type, match, substitute, text

__all__ = ["GraphError", "Plan", "resolve"]


class GraphError(QuablaError, TypeError):
    """A TorchScript graph was asked to hold a node that breaks the rules of its IR. Raised as the node is built."""


@dataclass(frozen=True, eq=False)
class Plan:
    """A chosen overload: for every formal argument where its value comes from, and the types of the results."""

    schema: Any
    schema_text: str
    sources: tuple[int | str | None, ...]  # position, keyword, or None for the schema's default
    formals: tuple[Any, ...]
    returns: tuple[Any, ...]


def _accepts(formal, given: Any, env: dict[str, Any], widen: bool) -> bool:
    """`given` is a built value (it has .type), a Python constant, or a list that may hold both."""
    if hasattr(given, "region"):
        return match(formal, given.type, env)
    if formal.kind() == "OptionalType":
        return given is None or _accepts(formal.getElementType(), given, env, widen)
    if isinstance(given, (list, tuple)) and formal.kind() == "ListType":
        return all(_accepts(formal.getElementType(), g, env, widen) for g in given)
    if isinstance(given, (list, tuple)) and any(hasattr(g, "region") for g in given):
        return False
    if widen and formal.kind() == "FloatType" and type(given) is int:
        return float(given) == given
    try:
        own = literal_type(given)
    except (TypeError, OverflowError) as error:
        raise GraphError(str(error)) from None
    return own is not None and match(formal, own, env)


def _bind(schema, args: Sequence[Any], kwargs: Mapping[str, Any], widen: bool) -> Plan | str:
    """The plan for one schema, or why it does not fit. Arguments are positional in the order of the node's inputs."""
    formals = schema.arguments
    if len(args) > len(formals):
        return f"takes {len(formals)} arguments, {len(args)} given"
    names = [f.name for f in formals]
    unknown = [k for k in kwargs if k not in names[len(args) :]]
    if unknown:
        return f"argument {unknown[0]!r} is unknown or given twice"
    env: dict[str, Any] = {}
    sources: list[int | str | None] = []
    for position, formal in enumerate(formals):
        if position < len(args):
            source: int | str | None = position
            given = args[position]
        elif formal.name in kwargs:
            source, given = formal.name, kwargs[formal.name]
        elif formal.has_default_value():
            sources.append(None)
            continue
        else:
            return f"argument {position} ({formal.name}: {text(formal.type)}) is missing"
        if not _accepts(formal.type, given, env, widen):
            return f"argument {position} ({formal.name}): expected {text(formal.type)}, got {describe(given)}"
        if formal.is_write and formal.type.kind() == "TensorType":
            return f"argument {position} ({formal.name}) would be written to: only functional operators are allowed"
        sources.append(source)
    if any(r.type.kind() == "AnyType" for r in schema.returns) or any(f.type.kind() == "AnyType" for f in formals):
        return "takes or returns Any: use the builder's own method for this node"
    try:
        returns = tuple(substitute(r.type, env) for r in schema.returns)
    except KeyError as error:
        return f"cannot tell the type {error.args[0]} of the result from an empty list: use list_(..., element=)"
    return Plan(schema, str(schema), tuple(sources), tuple(f.type for f in formals), returns)


def describe(given: Any) -> str:
    if hasattr(given, "region"):
        if given.raw.node().kind() == "prim::Constant":
            return f"{text(given.type)} (the constant {given.raw.toIValue()!r})"
        return f"{text(given.type)} (%{given.name})"
    if isinstance(given, (list, tuple)):
        return f"[{', '.join(describe(g) for g in given)}]"
    return f"the constant {given!r} ({type(given).__name__})"


def _key(given: Any) -> Any:
    if hasattr(given, "region"):
        return given.type_text
    if isinstance(given, (list, tuple)):
        return (type(given), *(_key(g) for g in given))
    if type(given) is int:  # an int is taken for a float where it is one exactly
        return (int, -(2**53) <= given <= 2**53)
    return type(given)


_PLANS: dict[Any, Plan] = {}


def resolve(op: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Plan:
    """The overload of `op` ("aten::add", or "aten::add.Tensor" to pin it) that fits. Raises GraphError."""
    key = (op, *(_key(a) for a in args), *((k, _key(v)) for k, v in kwargs.items()))
    plan = _PLANS.get(key)
    if plan is None:
        plan = _PLANS[key] = _search(op, args, kwargs)
    return plan


def _search(op: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Plan:
    namespace, _, rest = op.partition("::")
    name, pinned, overload = rest.partition(".")
    kind = f"{namespace}::{name}"
    if kind in ("prim::If", "prim::Loop"):
        raise GraphError(f"{kind}: build it with if_() or loop(), which keep its layout rules")
    schemas = operator_schemas(kind)
    if not schemas:
        raise GraphError(f"{kind}: no such operator in this build of PyTorch")
    fitting = [s for s in schemas if not pinned or s.overload_name == overload]
    if not fitting:
        raise GraphError(f"{op}: no such overload; there are {sorted(s.overload_name for s in schemas)}")
    refusals: list[tuple[bool, str]] = []
    for widen in (False, True):  # exact types first, then ints for floats
        for schema in fitting:
            try:
                plan = _bind(schema, args, kwargs, widen)
            except GraphError as error:  # no constant of any type
                raise GraphError(f"{op}: {error}") from None
            if isinstance(plan, Plan):
                return plan
            if widen and (pinned or not schema.overload_name.endswith("out")):
                refusals.append((plan.startswith("takes"), f"  {schema}\n    {plan}"))
    given = ", ".join([describe(a) for a in args] + [f"{k}={describe(v)}" for k, v in kwargs.items()])
    refusals.sort(key=lambda pair: pair[0])  # a wrong type is likelier the user's mistake than a wrong count
    shown = [line for _, line in refusals[:6]] + ([f"  and {len(refusals) - 6} more"] if len(refusals) > 6 else [])
    raise GraphError(f"{op}: no overload takes ({given}). Tried:\n" + "\n".join(shown))
