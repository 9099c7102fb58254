"""Holds an implementation of Quabla's names against recorded outputs of the real package.

A case is a program (the source of one function `f(qb)`), and either its result, written as a tree of tagged nodes, or
the exception that it raises. `verdict` runs one and returns "" or what is wrong.
"""

from __future__ import annotations

import functools
import json
import math
import pathlib
import warnings
from typing import Any

PATH = pathlib.Path(__file__).parent / "data" / "quabla_vectors.json"


@functools.cache
def _all() -> list[dict]:
    return json.loads(PATH.read_text())["cases"]


def cases(prefix: str = "", errors: bool | None = None) -> list[dict]:
    """The cases whose id starts with `prefix`: all, those that raise, or those that give a value."""
    return [
        case
        for case in _all()
        if case["id"].startswith(prefix) and (errors is None or ("expected_error" in case) == errors)
    ]


def run(case: dict, qb: Any) -> tuple[Any, BaseException | None, list[str]]:
    """(result, exception, names of the warnings) of a case's program."""
    scope: dict[str, Any] = {}
    exec(compile(case["program"], case["id"], "exec"), scope)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result, error = scope["f"](qb), None
        except Exception as raised:
            result, error = None, raised
    return result, error, [type(w.message).__name__ for w in caught]


def _same_number(got: Any, want: Any, rtol: float, atol: float) -> bool:
    if isinstance(want, str):  # "nan", "inf", "-inf"
        return str(float(got)) == want
    if isinstance(want, bool):
        return bool(got) == want
    if not math.isfinite(got):
        return False
    return abs(got - want) <= atol + rtol * abs(want)


def _same_nested(got: Any, want: Any, rtol: float, atol: float) -> bool:
    if isinstance(want, list):
        return (
            isinstance(got, list)
            and len(got) == len(want)
            and all(_same_nested(g, w, rtol, atol) for g, w in zip(got, want))
        )
    return _same_number(got, want, rtol, atol)


def difference(got: Any, want: dict, compare: dict) -> str:
    """How a result differs from a recorded tree, or ""."""
    kind = want["kind"]
    if kind == "array":
        return _array_difference(got, want, compare)
    if kind == "none":
        return "" if got is None else f"{got!r} is not None"
    if kind == "python":
        if type(got).__name__ != want["type"]:
            return f"a {type(got).__name__} instead of a {want['type']}"
        same = _same_number(got, want["value"], compare["rtol"], compare["atol"])
        return "" if same else f"{got} instead of {want['value']}"
    if kind == "str":
        return "" if got == want["value"] else f"{got!r} instead of {want['value']!r}"
    if kind == "bytes":
        return "" if isinstance(got, bytes) and got.hex() == want["hex"] else "other bytes"
    if kind == "dict":
        pairs = sorted(((str(k), v) for k, v in got.items()), key=lambda p: p[0]) if isinstance(got, dict) else None
        if pairs is None or [k for k, _ in pairs] != [k for k, _ in want["items"]]:
            return f"keys of {got!r}"
        parts = [(k, v, w) for (k, v), (_, w) in zip(pairs, want["items"])]
    else:
        family = tuple if kind == "tuple" else list
        if not isinstance(got, family) or len(got) != len(want["items"]):
            return f"{type(got).__name__} instead of a {kind} of {len(want['items'])}"
        parts = list(zip(range(len(got)), got, want["items"]))
    for key, value, expected in parts:
        why = difference(value, expected, compare)
        if why:
            return f"[{key}] {why}"
    return ""


def _array_difference(got: Any, want: dict, compare: dict) -> str:
    if not hasattr(got, "dtype"):
        return f"{got!r} is no array"
    dtype = getattr(got.dtype, "name", str(got.dtype))
    if dtype.rstrip("_") != want["dtype"].rstrip("_"):
        return f"dtype {dtype} instead of {want['dtype']}"
    if list(got.shape) != want["shape"]:
        return f"shape {list(got.shape)} instead of {want['shape']}"
    rtol, atol = compare["rtol"], compare["atol"]
    if want["dtype"] == "float32" and rtol:
        rtol, atol = max(rtol, 1e-5), max(atol, 1e-6)
    return "" if _same_nested(got.tolist(), want["data"], rtol, atol) else f"{got.tolist()} instead of {want['data']}"


def verdict(case: dict, qb: Any) -> str:
    """ "" where `qb` does what the case records, else a short reason. "no error" starts the reason for a missing one."""
    result, error, warned = run(case, qb)
    missing = [name for name in case.get("expected_warnings") or () if name not in warned]
    if missing:
        return f"no {missing[0]}"
    wanted = case.get("expected_error")
    if wanted is None:
        return difference(result, case["expected"], case["compare"]) if error is None else f"raised {error!r}"
    if error is None:
        if "alternative_expected" in case:
            return difference(result, case["alternative_expected"], case["compare"])
        return f"no error, wanted {wanted['class']}"
    if wanted["class"] not in {cls.__name__ for cls in type(error).__mro__}:
        return f"raised {error!r} instead of {wanted['class']}"
    return (
        ""
        if wanted["message_contains"] in str(error)
        else f"the message {str(error)!r} lacks {wanted['message_contains']!r}"
    )
