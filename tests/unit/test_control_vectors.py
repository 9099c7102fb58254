"""Control flow against recorded outputs of quabla 1.0.2: every value, every error class and text."""

import pytest
import quabla_vectors

import quabla_jax as qb

CASES = quabla_vectors.cases("cf-")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_control_flow_does_what_quabla_does(case):
    assert quabla_vectors.verdict(case, qb) == ""


def test_the_recorded_cases_are_all_there():
    values = [case for case in CASES if "expected" in case]
    assert len(CASES) == 273 and len(values) == 194


@pytest.mark.parametrize("wrong", [1.0, (1.0, 2.0), None, "text"])
def test_a_wrong_result_is_noticed(wrong):
    case = {**CASES[0], "program": f"def f(qb):\n    return {wrong!r}\n"}
    assert quabla_vectors.verdict(case, qb)


def test_a_missing_error_is_noticed():
    case = next(c for c in CASES if "expected_error" in c and "alternative_expected" not in c)
    assert quabla_vectors.verdict({**case, "program": "def f(qb):\n    return 0.0\n"}, qb).startswith("no error")
