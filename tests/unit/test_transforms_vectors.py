"""jit, grad, vjp, jvp, jacobian, hessian, vmap and custom rules against recorded outputs of quabla 1.0.2."""

import pytest
import quabla_vectors

import quabla_jax as qb


@pytest.mark.parametrize("case", quabla_vectors.cases("tr-"), ids=lambda case: case["id"])
def test_transforms_do_what_quabla_does(case):
    assert quabla_vectors.verdict(case, qb) == ""
