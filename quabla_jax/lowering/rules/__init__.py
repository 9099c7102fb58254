"""jax primitive -> core ops. One module a family; each ends with its registrations."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .. import jax_api

__all__ = ["Inline", "RULES", "Rule", "find", "refuse", "register"]

KINDS = ("direct", "composed", "expanded", "inlined", "control", "refused")


@dataclass(frozen=True)
class Rule:
    """How one primitive is lowered.

    kind: "direct" (one core op, up to reshapes and casts), "composed" (several core ops), "expanded" (JAX's own Python
        definition, traced again), "inlined" (a call whose body takes its place), "control" (Loop or Branch),
        "refused" (no target can run it; `reason` says why).
    function: (emitter, equation, *inputs) -> a Value, a sequence of Values, or an Inline.
    keys: the rule takes PRNG-key operands as raw uint32 words itself.
    """

    primitive: Any
    kind: str
    function: Callable[..., Any] | None
    where: str
    reason: str = ""
    keys: bool = False


@dataclass(frozen=True)
class Registration:
    """One register() call, for the docs: names whether or not the installed JAX has them."""

    names: tuple[str, ...]
    kind: str
    module: str
    reason: str


@dataclass(frozen=True)
class Inline:
    """A rule's answer "lower this jaxpr on these values in my place"."""

    jaxpr: Any
    inputs: tuple[Any, ...]


RULES: dict[Any, Rule] = {}
REGISTERED: list[Registration] = []
ABSENT: list[str] = []
"""Names of primitives that have a rule here and do not exist in the installed JAX."""

_PRIMITIVES = jax_api.all_primitives()


def find(name: str) -> Any:
    """The primitive object that JAX defines as attribute `name` (or whose own name is `name`), or None."""
    return _PRIMITIVES.get(name, _PRIMITIVES.get("=" + name))


def register(
    names: str,
    kind: str,
    function: Callable[..., Any] | None = None,
    *,
    reason: str = "",
    keys: bool = False,
    _depth: int = 1,
) -> None:
    """Give each named primitive (an attribute such as `add_p`, blank-separated) its rule.

    A primitive that the installed JAX does not have is noted in ABSENT. A second rule for one primitive raises
    ValueError naming both places.
    """
    assert kind in KINDS, kind
    frame = sys._getframe(_depth)
    where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
    found = {name: find(name) for name in names.split()}
    ABSENT.extend(name for name, primitive in found.items() if primitive is None)
    # two names in one call may stand for one primitive: releases rename, and keep the old name as an alias
    for primitive, name in {primitive: name for name, primitive in found.items() if primitive is not None}.items():
        if primitive in RULES:
            raise ValueError(f"{name} has two rules: {RULES[primitive].where} and {where}")
        RULES[primitive] = Rule(primitive, kind, function, where, reason, keys)
    REGISTERED.append(Registration(tuple(found), kind, frame.f_globals["__name__"].rsplit(".", 1)[-1], reason))


def refuse(names: str, reason: str) -> None:
    """Name primitives that no target can run, and why."""
    register(names, "refused", reason=reason, _depth=2)


def load() -> None:
    """Import every family, once; afterwards RULES is whole."""
    from . import (  # noqa: F401
        calls,
        collectives,
        compositions,
        control,
        convolution,
        definitions,
        dot,
        elementwise,
        fourier,
        host,
        indexing,
        keys,
        linalg,
        python,
        reductions,
        refusals,
        shape,
        sorting,
        special,
        windows,
    )
