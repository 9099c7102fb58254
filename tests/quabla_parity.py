"""Runs one program on the real quabla package and on quabla_jax in the same process, and compares.

A case is data: a function of (namespace, *arrays) and its inputs. It is compared as a value, as a gradient, as a
directional derivative and under vmap.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

TOLERANCE = {"float64": 1e-10, "float32": 2e-5}


def reference() -> Any:
    """The real package; the test is skipped where it is not installed."""
    return pytest.importorskip("quabla", reason="compares with the real quabla package, which is not installed")


@dataclasses.dataclass(frozen=True)
class Case:
    """A function to compare.

    Attributes:
        name: as pytest shows it. fun: (qb, *arrays) -> array or pytree. inputs: NumPy arrays.
        modes: of "value", "grad", "jvp", "vmap", "hessian". loose: a factor on the tolerance.
    """

    name: str
    fun: Callable[..., Any]
    inputs: tuple
    modes: tuple = ("value", "grad", "jvp", "vmap")
    loose: float = 1.0


def to(qb: Any, x: Any, dtype: str) -> Any:
    """A NumPy array for a namespace; masks stay masks."""
    x = np.asarray(x)
    return qb.array(x.tolist(), dtype=qb.bool_ if x.dtype == bool else getattr(qb, dtype))


def plain(tree: Any) -> Any:
    """A result with NumPy arrays in place of either library's."""
    if isinstance(tree, dict):
        return {k: plain(v) for k, v in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [plain(v) for v in tree]
    if hasattr(tree, "tolist") and hasattr(tree, "dtype"):
        name = str(getattr(tree.dtype, "name", tree.dtype)).rstrip("_")
        return np.array(tree.tolist(), dtype=name)
    return tree


def assert_same(got: Any, want: Any, tolerance: float, where: str = "") -> None:
    """Equal structure, dtypes and shapes, and values within `tolerance`, relative and, a hundredth of it, absolute."""
    if isinstance(want, dict):
        assert sorted(got) == sorted(want), where
        for key in want:
            assert_same(got[key], want[key], tolerance, f"{where}[{key!r}]")
    elif isinstance(want, list):
        assert isinstance(got, list) and len(got) == len(want), where
        for k, (a, b) in enumerate(zip(got, want)):
            assert_same(a, b, tolerance, f"{where}[{k}]")
    elif isinstance(want, np.ndarray):
        assert got.dtype == want.dtype, f"{where}: dtype {got.dtype}, quabla {want.dtype}"
        assert got.shape == want.shape, f"{where}: shape {got.shape}, quabla {want.shape}"
        scale = np.max(np.abs(want[np.isfinite(want)]), initial=0.0) if want.dtype != bool else 0.0
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * max(scale, 1e-2), err_msg=where)
    elif isinstance(want, float):
        assert got == pytest.approx(want, rel=tolerance, abs=tolerance, nan_ok=True), where
    else:
        assert got == want and type(got) is type(want), f"{where}: {got!r}, quabla {want!r}"


def leaves(tree: Any) -> list:
    """The arrays of a result."""
    if isinstance(tree, dict):
        return [leaf for key in sorted(tree) for leaf in leaves(tree[key])]
    if isinstance(tree, (list, tuple)):
        return [leaf for item in tree for leaf in leaves(item)]
    return [tree]


def is_mask(qb: Any, x: Any) -> bool:
    return x.dtype == qb.bool_


def scalar(qb: Any, case: Case) -> Callable[..., Any]:
    """The sum of the sines of all results, so that every entry has a cotangent of its own."""

    def total(*arrays):
        parts = [qb.sum(qb.sin(leaf)) for leaf in leaves(case.fun(qb, *arrays)) if not is_mask(qb, leaf)]
        return qb.sum(qb.stack(parts))

    return total


def run(qb: Any, case: Case, mode: str, dtype: str) -> Any:
    """The plain result of a case in one mode."""
    arrays = [to(qb, x, dtype) for x in case.inputs]
    floats = tuple(k for k, x in enumerate(case.inputs) if np.asarray(x).dtype != bool)
    if mode == "value":
        return plain(case.fun(qb, *arrays))
    if mode == "grad":
        return plain(qb.grad(scalar(qb, case), argnums=floats)(*arrays))
    if mode == "hessian":
        return plain(qb.hessian(scalar(qb, case), argnums=floats[0])(*arrays))
    rng = np.random.default_rng(7)
    if mode == "jvp":

        def partial(*values):
            filled = list(arrays)
            for k, value in zip(floats, values):
                filled[k] = value
            return leaves(case.fun(qb, *filled))

        tangents = tuple(to(qb, rng.normal(size=np.shape(case.inputs[k])), dtype) for k in floats)
        return plain(list(qb.jvp(partial, tuple(arrays[k] for k in floats), tangents)))
    batch = [to(qb, np.stack([x, x[::-1].copy() if np.ndim(x) else x]), dtype) for x in map(np.asarray, case.inputs)]
    return plain(qb.vmap(lambda *values: leaves(case.fun(qb, *values)))(*batch))


def check(case: Case, mode: str, dtype: str) -> None:
    """Runs a case on both and compares."""
    import quabla_jax

    want = run(reference(), case, mode, dtype)
    got = run(quabla_jax, case, mode, dtype)
    assert_same(got, want, TOLERANCE[dtype] * case.loose * (100 if mode == "hessian" else 1))
