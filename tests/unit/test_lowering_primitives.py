"""One primitive at a time: the lowered program on the NumPy oracle against jax.jit."""

import importlib
import pathlib

import jax
import ml_dtypes
import numpy as np
import pytest
from lowering_cases import CLOSE, EXACT

from quabla_jax import lowering
from quabla_jax.lowering import interpreter, jax_api, rules


def run_both(fun, arrays):
    expected = jax.tree.leaves(jax.jit(fun)(*arrays))
    got = lowering.run_on_numpy(lowering.lower(fun, *arrays), *arrays)
    for g, e in zip(got, expected, strict=True):
        e = np.asarray(e)
        assert (g.shape, g.dtype) == (e.shape, e.dtype)
        yield g, e


def flushed(x, tiny):
    """Subnormal numbers as zeros of their sign: XLA's CPU code may flush them, from one fusion to the next."""
    wide = x.astype(np.float64)
    return np.where(np.abs(wide) < tiny, np.copysign(0.0, wide), wide)


@pytest.mark.parametrize("name", EXACT)
def test_exact(name):
    for got, expected in run_both(*EXACT[name]):
        if got.dtype.kind in "fV":
            tiny = float(ml_dtypes.finfo(got.dtype).tiny)
            got, expected = flushed(got, tiny), flushed(expected, tiny)
            np.testing.assert_array_equal(np.signbit(got) & ~np.isnan(got), np.signbit(expected) & ~np.isnan(expected))
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("name", CLOSE)
def test_close(name):
    for got, expected in run_both(*CLOSE[name]):
        eps = np.finfo(got.dtype).eps if got.dtype.kind in "fc" else 2**-7
        kind = np.complex128 if got.dtype.kind == "c" else np.float64
        got, expected = got.astype(kind), expected.astype(kind)
        np.testing.assert_allclose(got, expected, rtol=200 * eps, atol=20 * eps)


SEEN = (pathlib.Path(__file__).parents[1] / "data" / "primitives_seen.txt").read_text("utf-8").split()
"""Primitives that 440 programs of many fields trace to."""

OF_LIBRARIES = {
    "equinox": "nonbatchable select_if_vmap unvmap_any unvmap_max maybe_set nondifferentiable_backward".split(),
    "lineax": ["linear_solve"],
}
LEFT_OUT = {"schur"}


def test_every_primitive_of_real_programs_has_a_rule_or_a_reason():
    assert len(SEEN) == 164
    assert interpreter  # loads the rules
    by_name = {p.name: rule for p, rule in rules.RULES.items()}
    refused = []
    for name in SEEN:
        if any(name in names for names in OF_LIBRARIES.values()):
            continue
        rule = by_name.get(name)
        if rule is None:  # of another release of JAX
            assert {name, name + "_p"} & set(rules.ABSENT), name
        elif rule.function is None:
            assert rule.reason
            refused.append(name)
    assert set(refused) <= LEFT_OUT


@pytest.mark.parametrize(("library", "name"), [(lib, n) for lib, names in OF_LIBRARIES.items() for n in names])
def test_a_primitive_of_a_library_is_expanded_by_its_own_definition(library, name):
    pytest.importorskip(library, reason=f"{library} is not installed")
    primitive = getattr(importlib.import_module(f"{library}.internal"), name + "_p")
    assert primitive.name == name and primitive not in rules.RULES
    assert jax_api.python_lowering(primitive) is not None
