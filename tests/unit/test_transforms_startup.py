"""What a fresh process does: the import's cost and reach, and the dtype rules where JAX's x64 mode is off."""

import json
import os
import subprocess
import sys

import pytest


def python(source, **environment):
    """Runs a program in a fresh interpreter and returns what it prints as JSON."""
    clean = {k: v for k, v in os.environ.items() if k not in ("JAX_ENABLE_X64", "XLA_FLAGS")}
    done = subprocess.run(
        [sys.executable, "-c", source], env={**clean, **environment}, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_import_loads_no_optional_library_and_changes_no_jax_configuration():
    found = python(
        "import sys, json, jax\n"
        "before = {k: v for k, v in jax.config.values.items()}\n"
        "import quabla_jax as qb\n"
        "qb.jit(lambda x: qb.fori_loop(0, 2, lambda i, c: c * 2.0, x))(qb.array(1.0, dtype=qb.float32))\n"
        "after = {k: v for k, v in jax.config.values.items()}\n"
        "loaded = [m for m in ('mlx', 'torch', 'optax', 'diffrax', 'quabla') if m in sys.modules]\n"
        "print(json.dumps([loaded, [k for k in after if after[k] != before[k]]]))"
    )
    assert found == [[], []]


def test_the_import_costs_next_to_nothing_beside_jax():
    """The namespace is lazy: at most a tenth of what importing jax costs, measured in one process."""
    ratios = []
    for _ in range(3):
        ratios.append(
            python(
                "import time, json\n"
                "t0 = time.perf_counter(); import jax; t1 = time.perf_counter()\n"
                "import quabla_jax; t2 = time.perf_counter()\n"
                "print(json.dumps((t2 - t1) / (t1 - t0)))"
            )
        )
    assert min(ratios) < 0.1, ratios


WITHOUT_X64 = """
import json, warnings
import numpy as np, jax
import quabla_jax as qb
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    x = qb.array([1.0, 2.0])
    y = qb.fori_loop(0, 2, lambda i, c: c * 2.0, 1.0)
    z = qb.grad(lambda x: x * x)(3)
    w = qb.jit(lambda x: qb.fori_loop(0, 3, lambda i, c: c + i, x))(x)
    small = qb.array(1.0, dtype=qb.float32)
errors = []
for ask in (lambda: qb.zeros((2,), qb.float64), lambda: qb.array(1.0, dtype=qb.float64), lambda: qb.astype(x, qb.float64)):
    try:
        ask(); errors.append("none")
    except ValueError as error:
        errors.append("jax_enable_x64" in str(error))
texts = [str(c.message) for c in caught if issubclass(c.category, UserWarning)]
print(json.dumps([[str(a.dtype) for a in (x, y, z, w, small)], len(texts), "jax_enable_x64" in texts[0], errors, float(z)]))
"""


def test_without_x64_numbers_are_float32_with_one_warning_and_float64_is_refused():
    kinds, warned, names_the_switch, errors, gradient = python(WITHOUT_X64)
    assert kinds == ["float32"] * 5 and warned == 1 and names_the_switch
    assert errors == [True, True, True] and gradient == 6.0


def test_with_x64_the_default_is_float64_and_nothing_warns():
    found = python(
        "import json, warnings\n"
        "warnings.simplefilter('error')\n"
        "import quabla_jax as qb\n"
        "x = qb.array(1)\n"
        "print(json.dumps([str(x.dtype), str(qb.jit(lambda x: x * 2)(x).dtype), str(qb.float64), repr(qb.float64)]))",
        JAX_ENABLE_X64="1",
    )
    assert found == ["float64", "float64", "f64", "quabla_jax.float64"]


@pytest.mark.parametrize("optional", ["mlx", "torch", "optax"])
def test_the_names_work_where_an_optional_library_cannot_be_imported(optional):
    found = python(
        f"import sys, json\nsys.modules[{optional!r}] = None\n"
        "import quabla_jax as qb\n"
        "print(json.dumps(float(qb.grad(lambda x: qb.cond(x > 0.0, qb.log, qb.zeros_like, x))(2.0))))",
        JAX_ENABLE_X64="1",
    )
    assert found == 0.5
