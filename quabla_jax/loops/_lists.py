"""Lists picked apart and put together by boolean masks: the bookkeeping of every rule in this folder."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


def pick(mask: Iterable[bool], xs: Iterable[T]) -> list[T]:
    """The entries whose mask is true."""
    return [x for m, x in zip(mask, xs, strict=True) if m]


def omit(mask: Iterable[bool], xs: Iterable[T]) -> list[T]:
    """The entries whose mask is false."""
    return [x for m, x in zip(mask, xs, strict=True) if not m]


def merge(mask: Iterable[bool], yes: Iterable[Any], no: Iterable[Any]) -> list[Any]:
    """One list in the mask's order, from `yes` where it is true and from `no` where it is false."""
    yes, no = iter(yes), iter(no)
    out = [next(yes) if m else next(no) for m in mask]
    assert next(yes, out) is out and next(no, out) is out, "merge: values left over"
    return out


def fill(mask: Iterable[bool], yes: Iterable[Any], value: Any = None) -> list[Any]:
    """One list in the mask's order, from `yes` where it is true and `value` where it is false."""
    yes = iter(yes)
    out = [next(yes) if m else value for m in mask]
    assert next(yes, out) is out, "fill: values left over"
    return out


def split(xs: Sequence[T], *sizes: int) -> list[list[T]]:
    """Consecutive pieces of the given sizes, which must use up the list."""
    out, k = [], 0
    for n in sizes:
        out.append(list(xs[k : k + n]))
        k += n
    assert k == len(xs), f"split: pieces of {sizes} from {len(xs)} values"
    return out
