"""The same small programs under the real quabla package and here, in one process: values, kinds, dtypes, error classes.

Each program is an expression after optional statements, over the names that `NAMES` sets up. The file holds the odd
corners of control flow, transforms and custom rules: what is accepted, what is refused, what comes back.
"""

import collections
import functools
import pathlib
import warnings

import numpy as np
import pytest

import quabla_jax

PROGRAMS = (pathlib.Path(__file__).parents[1] / "data" / "quabla_programs.txt").read_text().strip("\n").split("\n---\n")


def names(qb):
    return {
        "qb": qb,
        "np": np,
        "collections": collections,
        "functools": functools,
        "s": qb.array(1.5),
        "a": qb.array(0.7),
        "v": qb.array([1.0, 2.0]),
        "r": qb.array([1.0, 2.0], dtype=qb.float32),
        "rs": qb.array(1.5, dtype=qb.float32),
        "m": qb.array([True, False]),
    }


def run(qb, program):
    """(result, exception, names of the warnings)."""
    scope = names(qb)
    statements, _, expression = program.rpartition("\n")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            exec(statements, scope)
            result, error = eval(expression, scope), None
        except Exception as raised:
            result, error = None, raised
    return result, error, [w.category.__name__ for w in caught]


def same(ours, theirs):
    """Whether two results are the same tree of arrays and constants."""
    if isinstance(theirs, dict):
        return isinstance(ours, dict) and ours.keys() == theirs.keys() and all(same(ours[k], theirs[k]) for k in theirs)
    if isinstance(theirs, (tuple, list)):
        alike = type(ours).__name__ == type(theirs).__name__ and len(ours) == len(theirs)
        return alike and all(map(same, ours, theirs))
    if hasattr(theirs, "dtype") and hasattr(theirs, "tolist"):
        if ours.dtype.name != theirs.dtype.name.rstrip("_") or list(ours.shape) != list(theirs.shape):
            return False
        rtol = 1e-5 if ours.dtype == np.float32 else 1e-9
        return np.allclose(
            np.asarray(ours.tolist(), float), np.asarray(theirs.tolist(), float), rtol, 1e-12, equal_nan=True
        )
    return type(ours).__name__ == type(theirs).__name__ and (ours == theirs or type(theirs).__module__ == "quabla")


@pytest.mark.parametrize("program", PROGRAMS, ids=[str(k) for k in range(len(PROGRAMS))])
def test_a_program_does_what_it_does_under_quabla(program):
    quabla = pytest.importorskip("quabla", reason="compares with the real quabla package")
    wanted, wanted_error, wanted_warnings = run(quabla, program)
    got, error, warned = run(quabla_jax, program)
    assert warned == wanted_warnings
    if wanted_error is not None:
        classes = {cls.__name__ for cls in type(error).__mro__}
        assert error is not None and type(wanted_error).__name__ in classes, (error, wanted_error)
    else:
        assert error is None and same(got, wanted), (got, error, wanted)


def test_the_comparison_can_fail():
    quabla = pytest.importorskip("quabla", reason="compares with the real quabla package")
    x = quabla.array([1.0, 2.0])
    ours = quabla_jax.array([1.0, 2.0])
    assert same(ours, x) and not same(ours + 1.0, x) and not same(ours[:1], x)
    assert not same(quabla_jax.array([1.0, 2.0], dtype=quabla_jax.float32), x)
    assert not same((ours, 1), (x, 2)) and not same({"a": 1}, {"b": 1}) and not same(1, 1.0) and not same(None, 0)
