"""The rows of docs/differences.md that no recorded case shows: each is as the page says, so that a row cannot go stale."""

import copy
import pathlib
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import quabla_jax as qb

PAGE = (pathlib.Path(__file__).parents[2] / "docs" / "differences.md").read_text("utf-8")
X = jnp.array([1.0, 2.0, 3.0])
MASK = jnp.array([True, False, True])


def raises(kind, call):
    try:
        call()
    except kind:
        return True
    return False


# The beginning of a row's first column, and what holds here.
ROWS = {
    "Methods of arrays": lambda: not hasattr(X, "log") and float(X[0]) == 1.0,
    "`x.shape` is a list": lambda: X.shape == (3,),
    "`Tensor([1., 2.], dtype=float64)` when printed": lambda: repr(X[:2]) == "Array([1., 2.], dtype=float64)",
    "`x == y`, `x != y` compare identity": lambda: (X == X).tolist() == [True] * 3,
    "Arrays hash by identity": lambda: (
        raises(TypeError, lambda: hash(X)) and float(qb.jit(lambda x, s: x + s, static_argnums=1)(X[0], X[1])) == 3.0
    ),
    "Operators on masks": lambda: (MASK + MASK).tolist() == [True, False, True],
    "A shape error of an operator": lambda: (
        raises(TypeError, lambda: X + X[:2]) and raises(ValueError, lambda: qb.maximum(X, X[:2]))
    ),
    "`x ** y` has Quabla's slopes": lambda: (
        not np.isfinite(jax.grad(lambda x: x**0.5)(0.0)) and float(qb.grad(lambda x: qb.power(x, 0.5))(0.0)) == 0.0
    ),
    "`abs(x)`, `round(x)`, `len(x)`": lambda: (
        len(X) == 3 and float(abs(-X)[0]) == 1.0 and float((X % 2)[0]) == 1.0 and float((X // 2)[2]) == 1.0
    ),
    "`x[5]` out of range": lambda: float(jax.jit(lambda x: x[5])(X)) == 3.0 and X[3:].shape == (0,),
    "`x[mask]`, `x[[0, 2]]`": lambda: (
        X[MASK].tolist() == [1.0, 3.0] and float(qb.jit(lambda x, i: x[i])(X, jnp.array(1))) == 2.0
    ),
    "A float array is always true": lambda: not jnp.array(0.0) and raises(ValueError, lambda: bool(X)),
    "Arrays cannot be pickled or copied": lambda: (
        pickle.loads(pickle.dumps(X)).tolist() == copy.deepcopy(X).tolist() == X.tolist()
    ),
    "float64, float32 and bool only": lambda: (
        qb.sum(jnp.arange(3)).dtype == np.float64 and qb.zeros(2, np.float32).dtype == np.float32
    ),
    "No array has an extent of 0": lambda: raises(ValueError, lambda: qb.zeros(0)) and float(qb.sum(X[3:])) == 0.0,
    "Derivative orders of loops": lambda: (
        float(jax.grad(jax.grad(jax.grad(lambda x: qb.fori_loop(0, 3, lambda i, c, a: c * a, x, operands=(x,)))))(2.0))
        == 48.0
    ),
    "There is no `switch`": lambda: float(qb.switch(5, [jnp.sin, jnp.cos], (X[0],))) == float(jnp.cos(1.0)),
    "An eager `while_loop` predicate": lambda: (
        float(qb.while_loop(lambda c: jnp.where(c < 3.0, 1.0, 0.0), lambda c: c + 1.0, qb.array(0.0))) == 3.0
    ),
    "`device=\"tpu\"` is unknown": lambda: raises(
        qb.UnsupportedOperationError, lambda: qb.jit(lambda x: x, device="tpu")
    ) or bool(jax.devices("tpu")),
    "Forward mode of `sigmoid`": lambda: (
        float(qb.jvp(qb.sigmoid, (jnp.inf,), (1.0,))[1]) == 0.0 and float(qb.jvp(qb.softplus, (jnp.inf,), (1.0,))[1]) == 1.0
    ),
    "`det` at a singular matrix": lambda: not np.isfinite(qb.grad(qb.linalg.det)(qb.ones((2, 2)))).all(),
    "Operands of regions are floats": lambda: (
        float(qb.jit(lambda x, k: qb.fori_loop(0, 2, lambda i, c, k: c + X[k], x, operands=(k,)))(X[0], jnp.array(2))) == 7.0
    ),
    "`Program.stablehlo_text()`": lambda: "stablehlo" in qb.Compiler().trace(lambda x: qb.sin(x), [("x", [2])]).stablehlo_text(),
}  # fmt: skip


@pytest.mark.parametrize("row", ROWS)
def test_the_row_holds_and_is_on_the_page(row):
    assert f"| {row}" in PAGE, "no such row on the page"
    assert ROWS[row]()
