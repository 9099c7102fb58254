"""Whole programs written for Quabla give the same results here, with only the import changed."""

import os
import pathlib
import subprocess
import sys

import pytest
import quabla_programs
from quabla_parity import assert_same, plain, reference

# The stopping rules of an optimizer amplify rounding.
LOOSE = {"poisson_pinn": 1e-6, "lotka_volterra": 1e-6, "rosenbrock_lbfgs": 1e-5, "robertson": 1e-6}


@pytest.mark.parametrize("name", quabla_programs.NAMES)
def test_the_program_gives_quablas_results(name):
    reference()
    ours, theirs = (quabla_programs.load(name, package) for package in ("quabla_jax", "quabla"))
    assert_same(plain(ours.main()), plain(theirs.main()), LOOSE.get(name, 1e-9))


@pytest.mark.slow
@pytest.mark.parametrize("name", quabla_programs.NAMES)
def test_gradient_and_hessian_agree(name):
    reference()
    found = []
    for package in ("quabla_jax", "quabla"):
        module = quabla_programs.load(name, package)
        x = module.start()
        found.append([plain(module.qb.grad(module.loss)(x)), plain(module.qb.hessian(module.loss)(x))])
    assert_same(*found, 1e-6)


def test_there_are_at_least_twelve():
    assert len(quabla_programs.NAMES) >= 12


@pytest.mark.slow
def test_the_benchmark_prints_a_ratio_for_every_kind():
    reference()
    script = pathlib.Path(__file__).parents[2] / "benchmarks" / "quabla.py"
    environment = {**os.environ, "PYTHONPATH": str(script.parents[1])}
    command = [sys.executable, str(script), "--only", "softplus", "--rounds", "1", "--seconds", "0.01"]
    printed = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=True).stdout
    assert printed.count("softplus_rule") == 3 and "geometric mean of all" in printed
