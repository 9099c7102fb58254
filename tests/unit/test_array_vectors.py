"""Array functions, linalg, ode, optim, tree, random and io against recorded outputs of quabla 1.0.2.

Where the result differs, docs/differences.md must say so: its tables are read here.
"""

import pathlib
import re

import pytest
import quabla_vectors

import quabla_jax as qb

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "differences.md"
GROUPS = ("np-", "la-", "ode-", "opt-", "misc-")
CASES = [case for prefix in GROUPS for case in quabla_vectors.cases(prefix)]


def listed(kind):
    """The case ids that docs/differences.md lists as "extended" or "other"."""
    return set(re.findall(rf"\b([a-z]+-\d+) {kind}\b", PAGE.read_text()))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_it_does_what_quabla_does_or_the_difference_is_documented(case):
    why = quabla_vectors.verdict(case, qb)
    if case["id"] in listed("extended"):
        assert why.startswith("no error"), "no longer a difference: take it out of docs/differences.md"
    elif case["id"] in listed("other"):
        assert why and "expected" in case, "no longer a difference: take it out of docs/differences.md"
    else:
        assert why == ""


def test_every_documented_case_exists():
    known = {case["id"] for case in quabla_vectors.cases()}
    assert listed("extended") | listed("other") <= known


def test_only_one_value_differs():
    assert listed("other") == {"np-026"}


def test_the_recorded_cases_are_all_there():
    values = [case for case in CASES if "expected" in case]
    assert len(CASES) == 196 and len(values) == 118
