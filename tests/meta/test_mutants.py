"""The suite is only worth its failures: every wrong backend must fail, and the right ones it is derived from must pass."""

import pytest
from mutants import BY_NAME, MUTANTS

import conformance.cases  # noqa: F401 - registers the cases
from conformance import backends, runner
from conformance.case import CASES
from conformance.rules import RULES

WANTED = ("jit", "vmap", "grad", "vmap_grad", "grad_vmap", "jvp")


def outcomes(backend, cases, monkeypatch):
    monkeypatch.setitem(backends.BUILT_IN, "subject", backend)
    monkeypatch.setattr(backend, "name", "subject", raising=False)
    cells = [
        c
        for c in runner.cells(["subject"], cases)
        if c.transform in WANTED and (c.dtype != "float32" or CASES[c.case].dtypes == ("float32",))
    ]
    assert cells, f"no cell for {cases}"
    for cell in cells:
        record = runner.run_cell(cell)
        yield record
        if record.outcome != "pass":
            return


@pytest.mark.parametrize("name", BY_NAME)
@pytest.mark.filterwarnings("ignore")
def test_wrong_backend_fails(name, monkeypatch):
    records = list(outcomes(BY_NAME[name], BY_NAME[name].cases, monkeypatch))
    assert records[-1].outcome == "fail", f"{name} passed {len(records)} cells"


@pytest.mark.parametrize("name", ["lax", "numpy"])
def test_the_unchanged_backend_passes(name):
    globs = sorted({g for m in MUTANTS for g in m.cases if (name == "numpy") == hasattr(m, "prepare")})
    cells = [c for c in runner.cells([name], globs) if c.transform in ("jit", "grad")][:40]
    failed = [r for r in map(runner.run_cell, cells) if r.outcome != "pass"]
    assert not failed, failed


def test_at_least_twenty_five_mutants():
    assert len(MUTANTS) >= 25 and len(BY_NAME) == len(MUTANTS)


def test_every_rule_has_a_case():
    covered = {rule for case in CASES.values() for rule in case.covers}
    assert covered <= RULES.keys(), f"unknown rules: {covered - RULES.keys()}"
    assert covered >= RULES.keys(), f"rules without a case: {RULES.keys() - covered}"


def test_the_promised_size():
    names = [n for n in backends.BUILT_IN]
    assert len(CASES) >= 400
    available = [n for n in names if backends.load(n).available() is None]
    if len(available) == len(names):
        assert len(runner.cells(names, ["*"], tier="full")) >= 6000
