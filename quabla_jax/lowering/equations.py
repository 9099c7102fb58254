"""Control-flow equations, decoded once into frozen records; every JAX version's parameters are settled here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from . import jax_api
from .program import Const, Op, Region

__all__ = [
    "CondEqn",
    "Counter",
    "ScanEqn",
    "WhileEqn",
    "counter_of",
    "decode_cond",
    "decode_scan",
    "decode_while",
]


@dataclass(frozen=True, eq=False)
class ScanEqn:
    """lax.scan: `jaxpr` takes n_consts constants, n_carry carries and one slice of every xs."""

    jaxpr: Any
    length: int
    n_consts: int
    n_carry: int
    reverse: bool


@dataclass(frozen=True, eq=False)
class WhileEqn:
    """lax.while_loop: operands are cond_consts, body_consts, carries."""

    cond: Any
    body: Any
    n_cond_consts: int
    n_body_consts: int


@dataclass(frozen=True, eq=False)
class CondEqn:
    """lax.cond and lax.switch: operands are the index (int32 or bool) and the branches' operands."""

    branches: tuple[Any, ...]


def decode_scan(eqn: Any) -> ScanEqn:
    n_consts, n_carry = jax_api.scan_counts(eqn)
    return ScanEqn(eqn.params["jaxpr"], eqn.params["length"], n_consts, n_carry, eqn.params["reverse"])


def decode_while(eqn: Any) -> WhileEqn:
    p = eqn.params
    return WhileEqn(p["cond_jaxpr"], p["body_jaxpr"], p["cond_nconsts"], p["body_nconsts"])


def decode_cond(eqn: Any) -> CondEqn:
    return CondEqn(tuple(eqn.params["branches"]))


@dataclass(frozen=True)
class Counter:
    """A while loop's counter: carry number `index` goes up by one a trip and the loop ends at `limit` at the latest.

    limit: a Const, or the number of a region input that no trip changes. exact: nothing else ends the loop.
    """

    index: int
    limit: Const | int
    exact: bool


def counter_of(cond: Region, body: Region, n_consts: int) -> Counter | None:
    """The counter of a lowered while loop, or None. Both regions take (consts, carries); looked for on core ops,

    where inlining and sharing have already made `i < n`, `i + 1` plain.
    """
    producer = {v: node for node in cond.nodes for v in node.outputs}
    terms, exact = [cond.outputs[0]], True
    while terms:
        node = producer.get(terms.pop())
        if not isinstance(node, Op):
            continue
        if node.name == "and" and node.outputs[0].dtype == bool:
            exact = False
            terms += node.inputs
        elif node.name in ("lt", "gt"):
            small, large = node.inputs if node.name == "lt" else node.inputs[::-1]
            found = _counter(small, large, cond, body, n_consts, exact)
            if found is not None:
                return found
    return None


def _counter(small: Any, large: Any, cond: Region, body: Region, n_consts: int, exact: bool) -> Counter | None:
    if small not in cond.inputs or small.dtype.kind not in "iu" or small.shape:
        return None
    position = cond.inputs.index(small)
    if position < n_consts or not _adds_one(body, position, n_consts):
        return None
    if isinstance(large, Const):
        return Counter(position - n_consts, large, exact)
    if large not in cond.inputs:
        return None
    limit = cond.inputs.index(large)
    unchanged = limit < n_consts or body.outputs[limit - n_consts] is body.inputs[limit]
    return Counter(position - n_consts, limit, exact) if unchanged else None


def _adds_one(body: Region, position: int, n_consts: int) -> bool:
    made = body.outputs[position - n_consts]
    node = next((n for n in body.nodes if made in n.outputs), None)
    if not isinstance(node, Op) or node.name != "add" or body.inputs[position] not in node.inputs:
        return False
    return any(isinstance(v, Const) and np.all(v.array == 1) for v in node.inputs)
