"""Known exceptions, as data. A row that matches no cell, or whose cells all pass, fails the run: nothing goes stale."""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass

__all__ = ["LIMITATIONS", "Limitation", "find"]


@dataclass(frozen=True)
class Limitation:
    """kind "unsupported": the backend refuses; "differs": it answers otherwise, and that is known; "raises": it raises."""

    case: str
    backend: str
    reason: str
    kind: str = "unsupported"
    transforms: tuple[str, ...] = ("*",)
    dtypes: tuple[str, ...] = ("*",)
    link: str = ""

    def matches(self, case: str, backend: str, transform: str, dtype: str) -> bool:
        return (
            fnmatch.fnmatch(backend, self.backend)
            and fnmatch.fnmatch(case, self.case)
            and any(fnmatch.fnmatch(transform, t) for t in self.transforms)
            and any(fnmatch.fnmatch(dtype, d) for d in self.dtypes)
        )


LIMITATIONS: list[Limitation] = []


def find(case: str, backend: str, transform: str, dtype: str) -> Limitation | None:
    return next((row for row in LIMITATIONS if row.matches(case, backend, transform, dtype)), None)
