"""Known exceptions, as data. A row that matches no cell, or whose cells all pass, fails the run: nothing goes stale.

A row says how its cells fail and, where that is an error, a piece of its text: a cell that fails in another way is a failure.
"""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass

__all__ = ["LIMITATIONS", "Limitation", "find"]

OUTCOME_OF = {"unsupported": "unsupported", "differs": "fail", "raises": "crash"}


@dataclass(frozen=True)
class Limitation:
    """kind "unsupported": the backend refuses; "differs": it answers otherwise, and that is known; "raises": it raises.

    case, backend, transforms and dtypes are globs; `says`: text that the cell's message must hold.
    """

    case: str
    backend: str
    reason: str
    kind: str = "unsupported"
    transforms: tuple[str, ...] = ("*",)
    dtypes: tuple[str, ...] = ("*",)
    says: str = ""
    link: str = ""

    def matches(self, case: str, backend: str, transform: str, dtype: str) -> bool:
        return (
            fnmatch.fnmatch(backend, self.backend)
            and fnmatch.fnmatch(case, self.case)
            and any(fnmatch.fnmatch(transform, t) for t in self.transforms)
            and any(fnmatch.fnmatch(dtype, d) for d in self.dtypes)
        )

    def explains(self, outcome: str, message: str) -> bool:
        """Whether a cell that ended so failed in the way that this row says."""
        return outcome == OUTCOME_OF[self.kind] and self.says in message


def _quabla(
    reason: str, says: str, *cases: str, kind: str = "raises", transforms: tuple[str, ...] = ("*",)
) -> list[Limitation]:
    link = "docs/differences.md"
    return [Limitation(c, "quabla", reason, kind, transforms, says=says, link=link) for c in cases]


FORI = [
    f"chapter/{c}" for c in ("decay", "decay-any-order", "index-arithmetic", "index-selects", "closes-over-constants")
]
FORI += [f"quabla/{c}" for c in ("fori-in-scan", "zero-trips", "checkpoint-in-loop")]
SCAN = ["chapter/rollout", "quabla/scan-in-cond"]

LIMITATIONS: list[Limitation] = [
    Limitation("fori/complex-carry", "mlx", "MLX has no dtype complex128", dtypes=("float64",), says="complex128"),
    *_quabla("Quabla 1.0 differentiates a loop at most twice", "is not implemented", *FORI, *SCAN, transforms=("third",)),
    *_quabla(
        "Quabla 1.0 has no forward mode over the forward mode of fori_loop", "symbolic JVP through a Fori JVP", *FORI,
        "quabla/while-in-fori", transforms=("jvp_jvp",),
    ),
    *_quabla("Quabla 1.0 has no switch", "'switch'", "qb-switch/static-*"),
    *_quabla("Quabla 1.0 has no integer arrays, and no switch", "no int32 arrays", "qb-switch/*", "difference/integer-operand"),
    *_quabla("Quabla 1.0 has no switch", "has no", "refused/switch-*", kind="differs"),
    Limitation(
        "quabla/fori-in-scan", "quabla", "an eager loop's index is a Python number, which becomes float64 as an operand", "raises",
        ("eager",), ("float32",), "mismatched dtypes",
    ),
    *_quabla(
        "Quabla 1.0 has no reverse mode through while_loop, needed or not", "reverse-mode differentiation through while_loop",
        "difference/while-*",
    ),
    *_quabla(
        "an operand of a region must be a tracer of Quabla's innermost transform", "cannot close over an outer tracer",
        "difference/outer-operand", "difference/inner-transform-closes",
    ),
    *_quabla(
        "Quabla 1.0's Hessian of a loop is forward mode over its body, which a custom_vjp has not", "forward-mode differentiation",
        "difference/hessian-of-a-custom-rule",
    ),
    *_quabla(
        "Quabla 1.0's tangent of sigmoid at infinity is NaN", "nan", "difference/sigmoid-at-infinity", kind="differs",
    ),
    *_quabla("no array of Quabla 1.0 has an extent of 0", "empty slices", "difference/empty-carry"),
]  # fmt: skip


def find(case: str, backend: str, transform: str, dtype: str) -> Limitation | None:
    return next((row for row in LIMITATIONS if row.matches(case, backend, transform, dtype)), None)
