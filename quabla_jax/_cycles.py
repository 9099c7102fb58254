"""Containers that hold themselves are refused before JAX flattens them.

jaxlib flattens by recursion in C++. On a list in itself it raises a SystemError; on a dict in itself, and wherever the caller gave
`is_leaf`, CPython's count of the stack is not put back, so that every later call of the thread fails, and the process may end.
"""

from __future__ import annotations

import collections
import functools
import gc
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar

__all__ = ["refuse_cycles", "refuse_unsortable", "refusing_cycles"]

P = ParamSpec("P")
R = TypeVar("R")

_BUILTIN = frozenset((list, tuple, dict, collections.OrderedDict, collections.defaultdict, collections.deque))
_QUICK = 30
"""Levels that are unfolded without looking for a cycle; ordinary trees are below."""
_DEEPEST = 900
"""Levels that jaxlib flattens under Python 3.11's limit of 1,000 calls."""


def _containers(values: Iterable[Any]) -> list[Any]:
    """The containers among `values`; each once, where they are many."""
    found = [x for x in values if type(x) in _BUILTIN or isinstance(x, tuple)]
    return found if len(found) < 256 else list({id(x): x for x in found}.values())


def _inside(containers: Iterable[Any]) -> list[Any]:
    return _containers(gc.get_referents(*containers))


def refuse_cycles(where: Any, *trees: Any) -> None:
    """ValueError where a list, tuple, dict or deque among `trees` holds itself, or is nested too deeply to be flattened.

    Attributes of registered classes are not followed. Cost: that of flattening once more, by the same order of microseconds.
    """
    level = _containers(trees)
    depth = 0
    while level:
        depth += 1
        if depth == _QUICK:
            cyclic = _one_in_itself(level)
            if cyclic is not None:
                kind = type(cyclic).__name__
                raise ValueError(
                    f"{where}: expected a pytree of finite depth, got a {kind} that holds itself; "
                    f"pass a copy in which the inner {kind} is replaced by what it should hold"
                )
        if depth > _DEEPEST:
            raise ValueError(
                f"{where}: expected a pytree nested at most {_DEEPEST} deep, got a deeper one; flatten it, for instance into one list"
            )
        level = _inside(level)


def _one_in_itself(roots: Iterable[Any]) -> Any:
    """A container that can be reached from itself, or None: depth first, with the path in hand."""
    done: set[int] = set()
    for root in roots:
        path, stack = {id(root)}, [(root, iter(_inside([root])))]
        while stack:
            node, inner = stack[-1]
            child = next(inner, None)
            if child is None:
                stack.pop()
                path.discard(id(node))
                done.add(id(node))
            elif id(child) in path:
                return child
            elif id(child) not in done:
                path.add(id(child))
                stack.append((child, iter(_inside([child]))))
    return None


def refuse_unsortable(where: str, error: ValueError, kind: type[Exception], *trees: Any) -> None:
    """Raises what jaxlib's "Comparator raised exception" leaves out: the dict whose keys have no order."""
    level = _containers(trees) if "Comparator" in str(error) else []
    while level:
        for node in level:
            try:
                sorted(node if isinstance(node, dict) else ())
            except TypeError:
                raise kind(
                    f"{where}: pytree dict keys must be mutually sortable (all strings or all numbers, for example), got "
                    f"{list(node)!r:.200}"
                ) from None
        level = _inside(level)


def refusing_cycles(fun: Callable[P, R]) -> Callable[P, R]:
    """A function of pytrees that refuses arguments which hold themselves, and functions among them that return such."""

    @functools.wraps(fun)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        refuse_cycles(fun.__name__, args, kwargs)
        try:
            return fun(*args, **kwargs)
        except ValueError as error:
            refuse_unsortable(fun.__name__, error, ValueError, args, kwargs)
            raise
        except SystemError as error:
            if not isinstance(error.__cause__ or error.__context__, RecursionError):
                raise
            raise ValueError(
                f"{fun.__name__}: expected functions that return pytrees of finite depth, got a container that holds itself or is "
                "nested over a thousand deep; return its parts"
            ) from None

    return checked
