"""A failing program made small by taking parts away while it still fails."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

from .programs import bodies

__all__ = ["shrink", "smaller"]


def smaller(steps: tuple) -> Iterator[tuple]:
    """Programs with something taken away, the largest cuts first."""
    for k in range(len(steps)):
        if len(steps) > 1:
            yield steps[:k] + steps[k + 1 :]
    for k, step in enumerate(steps):
        before, after = steps[:k], steps[k + 1 :]
        for inner in bodies(step):
            yield (*before, *inner, *after)
        for less in _reduced(step):
            yield (*before, less, *after)


def _reduced(step: tuple) -> Iterator[tuple]:
    if step[0] in ("fori", "scan", "while") and step[1] > 1:
        yield (step[0], step[1] - 1, *step[2:])
    if step[0] == "switch":
        branches = step[2]
        for k, branch in enumerate(branches):
            if len(branches) > 1:
                yield ("switch", step[1], branches[:k] + branches[k + 1 :])
            for body in smaller(branch):
                yield ("switch", step[1], (*branches[:k], body, *branches[k + 1 :]))
        return
    for at, part in enumerate(step):
        if isinstance(part, tuple):
            for body in smaller(part):
                yield (*step[:at], body, *step[at + 1 :])


def shrink(steps: tuple, fails: Callable[[tuple], bool], tries: int = 200) -> tuple:
    """The smallest program found that still fails, after at most `tries` programs."""
    left, again = tries, True
    while again and left > 0:
        again = False
        for candidate in itertools.islice(smaller(steps), left):
            left -= 1
            if fails(candidate):
                steps, again = candidate, True
                break
    return steps
