"""Every elementwise float function keeps to 4 ulp, or JAX's own error, as lowering composes it and as the oracle has it."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("mpmath", reason="it is the reference")

_PATH = Path(__file__).parents[2] / "benchmarks" / "accuracy.py"
_SPEC = importlib.util.spec_from_file_location("accuracy", _PATH)
assert _SPEC is not None and _SPEC.loader is not None
accuracy = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(accuracy)


def on_oracle(fun, x):
    from quabla_jax import lowering

    return lowering.run_on_numpy(lowering.lower(fun, x), x)[0]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", accuracy.DTYPES, ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize("name", accuracy.FUNCTIONS)
def test_within_the_bar(name, dtype):
    targets = {"JAX": accuracy.on_jax, "compositions": accuracy.on_compositions, "oracle": on_oracle}
    found = accuracy.measure(name, 60, targets, dtype)
    bar = max(accuracy.BAR, found["JAX"])
    assert found["compositions"] <= bar and found["oracle"] <= bar, found
