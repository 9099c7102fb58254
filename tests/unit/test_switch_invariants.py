"""switch keeps the invariants of PyTorch's operator, and has the derivatives that it lacks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import quabla_jax as qb

BRANCHES = [lambda x: qb.cos(x), lambda x: qb.sin(x), lambda x: x * x * x]
X = np.array([0.5, 1.5])
WANTED = [np.cos(X), np.sin(X), X**3]


@pytest.mark.parametrize("index, branch", [(0, 0), (1, 1), (2, 2), (7, 2), (-1, 0), (-9, 0)])
def test_a_python_int_picks_one_branch_at_trace_time(index, branch):
    called = []
    branches = [lambda x, k=k: (called.append(k), BRANCHES[k](x))[1] for k in range(3)]
    got = qb.jit(lambda x: qb.switch(index, branches, (x,)))(qb.array(X))
    np.testing.assert_allclose(got, WANTED[branch], rtol=1e-15)
    assert called == [branch]


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64])
@pytest.mark.parametrize("traced", [False, True])
def test_any_single_element_integer_array_is_an_index(shape, dtype, traced):
    f = lambda i, x: qb.switch(i, BRANCHES, (x,))
    f = jax.jit(f) if traced else f
    for k, wanted in enumerate(WANTED):
        np.testing.assert_allclose(f(jnp.full(shape, k, dtype), jnp.asarray(X)), wanted, rtol=1e-15)


@pytest.mark.parametrize("traced", [False, True])
def test_indices_are_clamped_at_both_ends(traced):
    f = lambda i: qb.switch(i, BRANCHES, (jnp.asarray(X),))
    f = jax.jit(f) if traced else f
    for index, branch in ((-5, 0), (-1, 0), (3, 2), (100, 2), (np.iinfo(np.int32).min, 0), (np.iinfo(np.int32).max, 2)):
        np.testing.assert_allclose(f(jnp.asarray(index, jnp.int32)), WANTED[branch], rtol=1e-15)


def test_more_branches_than_the_index_dtype_counts():
    branches = [lambda x, k=k: x + k for k in range(130)]
    got = jax.jit(lambda i: qb.switch(i, branches, (1.0,)))(jnp.asarray(127, jnp.int8))
    assert got == 128.0


@pytest.mark.parametrize(
    "index, error",
    [
        (1.0, TypeError),
        (True, TypeError),
        ("1", TypeError),
        (None, TypeError),
        (jnp.asarray(1.0), TypeError),
        (jnp.asarray(True), TypeError),
        (jnp.asarray([0, 1]), ValueError),
    ],
)
def test_other_indices_are_refused(index, error):
    with pytest.raises(error, match="switch index"):
        qb.switch(index, BRANCHES, (1.0,))


def test_a_traced_index_of_two_elements_is_refused():
    with pytest.raises(ValueError, match=r"single element, got shape \[2\]"):
        jax.jit(lambda i: qb.switch(i, BRANCHES, (1.0,)))(jnp.asarray([0, 1]))


def test_branches_must_be_a_filled_sequence_of_functions():
    with pytest.raises(ValueError, match="at least one branch"):
        qb.switch(0, [], ())
    with pytest.raises(TypeError, match="branch 1 must be callable"):
        qb.switch(0, [lambda: 1, 2], ())
    with pytest.raises(TypeError, match="tuple or list of functions"):
        qb.switch(0, {0: lambda: 1}, ())


def traced_switch(*branches, operands=(1.0,)):
    return jax.jit(lambda i: qb.switch(i, list(branches), operands))(jnp.asarray(1))


def test_structures_must_be_equal():
    with pytest.raises(ValueError, match="one structure: branch 0 .* branch 1"):
        traced_switch(lambda x: (x, x), lambda x: [x, x])
    with pytest.raises(ValueError, match="one structure"):
        traced_switch(lambda x: {"a": x}, lambda x: {"b": x})


def test_shapes_and_dtypes_must_be_equal_and_the_leaf_is_named():
    with pytest.raises(ValueError, match=r"\['a'\]\[1\].*f64\[\].*f64\[2\]"):
        traced_switch(lambda x: {"a": (x, x)}, lambda x: {"a": (x, jnp.stack([x, x]))})
    with pytest.raises(ValueError, match="f64.*f32"):
        traced_switch(lambda x: x, lambda x: x.astype(jnp.float32))


def test_none_matches_position_by_position():
    got = traced_switch(lambda x: (None, x, {"k": None}), lambda x: (None, 2.0 * x, {"k": None}))
    assert got[0] is None and got[1] == 2.0 and got[2] == {"k": None}
    with pytest.raises(ValueError, match="None must stand at the same positions"):
        traced_switch(lambda x: (None, x), lambda x: (x, None))


def test_equal_ints_stay_python_ints_and_differing_ints_become_an_array():
    kinds = {}

    def f(i, x):
        same, other, y = qb.switch(i, [lambda x: (7, 1, x), lambda x: (7, 2, -x)], (x,))
        kinds["same"], kinds["other"] = type(same), other
        assert same == 7
        return other, y

    for index, (number, sign) in enumerate([(1, 1.0), (2, -1.0)]):
        other, y = jax.jit(f)(jnp.asarray(index), jnp.asarray(3.0))
        assert other == number and jnp.issubdtype(other.dtype, jnp.integer) and y == sign * 3.0
    assert kinds["same"] is int and isinstance(kinds["other"], jax.core.Tracer) and not kinds["other"].weak_type


def test_an_int_beside_an_array_is_refused():
    with pytest.raises(ValueError, match="an int in one of branch 0 and branch 1"):
        traced_switch(lambda x: 1, lambda x: x)


@pytest.mark.parametrize("leaf", [1.5, "text", True, object()])
def test_other_leaves_are_refused(leaf):
    with pytest.raises(TypeError, match="arrays, ints and None"):
        traced_switch(lambda x: leaf, lambda x: leaf)


def test_operands_are_pytrees():
    operands = ({"a": jnp.asarray(2.0)}, [jnp.asarray([1.0, 2.0]), jnp.asarray(3)])
    branches = [lambda d, l: d["a"] * l[0], lambda d, l: l[0] * l[1]]
    for k, wanted in enumerate([[2.0, 4.0], [3.0, 6.0]]):
        np.testing.assert_array_equal(jax.jit(lambda i: qb.switch(i, branches, operands))(k), wanted)


def test_a_nested_switch():
    def inner(j, x):
        return qb.switch(j, BRANCHES, (x,))

    outer = jax.jit(lambda i, j, x: qb.switch(i, [inner, lambda j, x: -inner(j, x)], (j, x)))
    for i in range(2):
        for j in range(3):
            np.testing.assert_allclose(outer(i, j, jnp.asarray(X)), (1 - 2 * i) * WANTED[j], rtol=1e-15)


def test_closing_over_a_traced_value_names_the_variable():
    def f(i, x, gain):
        return qb.switch(i, [lambda x: x, lambda x: x * gain], (x,))

    with pytest.raises(qb.TracerError, match="branch 1 of switch closes over the variable 'gain'"):
        jax.jit(f)(0, 1.0, 2.0)


def test_concrete_arrays_and_numbers_may_be_closed_over():
    table = jnp.asarray([10.0, 20.0])
    assert jax.jit(lambda i: qb.switch(i, [lambda x: x * table[0], lambda x: x * 3.0], (1.0,)))(0) == 10.0


def polynomial(i, x):
    return jnp.sum(qb.switch(i, BRANCHES, (x,)))


DERIVATIVES = [(-np.sin(X), -np.cos(X)), (np.cos(X), -np.sin(X)), (3 * X**2, 6 * X)]


@pytest.mark.parametrize("k", range(3))
def test_both_derivative_modes(k):
    first, second = DERIVATIVES[k]
    x, index = jnp.asarray(X), jnp.asarray(k)
    np.testing.assert_allclose(jax.jit(jax.grad(polynomial, 1))(index, x), first, rtol=1e-14)
    value, tangent = jax.jit(lambda i, x: jax.jvp(lambda x: polynomial(i, x), (x,), (jnp.ones(2),)))(index, x)
    np.testing.assert_allclose(tangent, first.sum(), rtol=1e-14)
    np.testing.assert_allclose(jax.jit(jax.hessian(polynomial, 1))(index, x), np.diag(second), rtol=1e-14)


def test_vmap_with_a_mapped_index_and_its_gradient():
    x = jnp.stack([jnp.asarray(X)] * 4)
    index = jnp.asarray([0, 1, 2, 9])
    wanted = np.stack([*WANTED, WANTED[2]])
    np.testing.assert_allclose(jax.vmap(lambda i, x: qb.switch(i, BRANCHES, (x,)))(index, x), wanted, rtol=1e-14)
    first = np.stack([d[0] for d in DERIVATIVES] + [DERIVATIVES[2][0]])
    np.testing.assert_allclose(jax.vmap(jax.grad(polynomial, 1))(index, x), first, rtol=1e-14)


def test_the_quabla_transforms_take_it_too():
    gradient = qb.grad(lambda x: qb.switch(jnp.asarray(2), BRANCHES, (x,)))(2.0)
    assert gradient == 12.0
    mapped = qb.vmap(lambda i, x: qb.switch(i, BRANCHES, (x,)))(jnp.asarray([2, 1]), jnp.asarray([2.0, 0.0]))
    np.testing.assert_array_equal(mapped, [8.0, 0.0])
