"""while_loop keeps nothing for reverse mode unless asked to: the error, everywhere it must come and nowhere else."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import quabla_jax as qb

TEXT = "reverse-mode differentiation through while_loop is not supported because its trip count is data dependent; use forward mode"


def doubling(x):
    return qb.while_loop(lambda c: c < 5.0, lambda c: c * 2.0, x)


NESTINGS = {
    "plain": doubling,
    "in fori_loop": lambda x: qb.fori_loop(0, 2, lambda i, c: doubling(c * 0.3), x),
    "in scan": lambda x: qb.sum(qb.scan(lambda c, i: (doubling(c * 0.3), c), x, length=2)[1]),
    "in cond": lambda x: qb.cond(x > 0, doubling, lambda x: x, x),
    "in switch": lambda x: qb.switch(jnp.int32(x * 0), [doubling, lambda x: x], (x,)),
    "around fori_loop": lambda x: qb.while_loop(
        lambda c: c < 5.0, lambda c: qb.fori_loop(0, 2, lambda i, d: d * 1.5, c), x
    ),
    "in while_loop": lambda x: qb.while_loop(lambda c: c < 9.4, lambda c: doubling(c) + 1.0, x),
    "in jit": lambda x: qb.jit(doubling)(x),
    "in checkpoint": lambda x: qb.checkpoint(doubling)(x),
    "in vmap": lambda x: qb.sum(qb.vmap(doubling)(qb.stack([x, x]))),
    "under jvp": lambda x: qb.jvp(lambda y: qb.while_loop(lambda c: c < 5.0, lambda c: c * c, y), (x,), (1.0,))[1],
    "in an unrolled loop": lambda x: qb.fori_loop(0, 2, lambda i, c: doubling(c * 0.3), x, unroll=True),
}
REVERSE = {
    "grad": lambda f: qb.grad(f),
    "value_and_grad": lambda f: qb.value_and_grad(f),
    "vjp": lambda f: lambda x: qb.vjp(f, x),
    "hessian": lambda f: qb.hessian(f),
    "jit(grad)": lambda f: qb.jit(qb.grad(f)),
    "vmap(grad)": lambda f: lambda x: qb.vmap(qb.grad(f))(qb.stack([x, x])),
    "jax.grad": lambda f: jax.grad(f),
    "jax.jit(jax.grad)": lambda f: jax.jit(jax.grad(f)),
}


@pytest.mark.parametrize("nesting", NESTINGS)
@pytest.mark.parametrize("mode", REVERSE)
def test_reverse_mode_raises(mode, nesting):
    with pytest.raises(ValueError) as info:
        REVERSE[mode](NESTINGS[nesting])(qb.array(1.5))
    assert str(info.value).startswith(TEXT)


def test_the_message_names_the_cure():
    with pytest.raises(ValueError, match='checkpoint="auto"'):
        qb.grad(doubling)(qb.array(1.5))


def test_a_jacobian_in_reverse_raises_and_one_in_forward_does_not():
    f = lambda x: qb.while_loop(lambda c: qb.sum(c) < 5.0, lambda c: c * 2.0, x)
    x = qb.array([1.0, 0.5])
    np.testing.assert_array_equal(qb.jacobian(f)(x), 4.0 * np.eye(2))
    with pytest.raises(ValueError, match="while_loop is not supported"):
        qb.jacobian(lambda x: qb.sum(f(x)))(x)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: qb.stop_gradient(doubling(x)) * x,
        lambda x: qb.where(doubling(x) > 5.5, 6.0 * x, x),
        lambda x: qb.floor(doubling(x)) * x,
        lambda x: doubling(qb.array(1.5)) * x,
    ],
    ids=["stop_gradient", "comparison", "floor", "eager"],
)
def test_a_result_without_derivative_does_not_raise(f):
    assert qb.grad(f)(qb.array(1.5)) == 6.0


@pytest.mark.parametrize("nesting", NESTINGS)
def test_forward_mode_works_everywhere(nesting):
    f = NESTINGS[nesting]
    x, h = 1.5, 1e-6
    difference = (f(qb.array(x + h)) - f(qb.array(x - h))) / (2 * h)
    value, tangent = qb.jvp(f, (qb.array(x),), (1.0,))
    np.testing.assert_allclose(value, f(qb.array(x)), rtol=1e-14)
    np.testing.assert_allclose(tangent, difference, rtol=1e-7)


def test_forward_mode_of_any_order():
    f = lambda x: qb.while_loop(lambda c: c < 20.0, lambda c: c * c, x)
    derivative = lambda g: lambda x: qb.jvp(g, (x,), (1.0,))[1]
    got, wanted = f, [1.5**8, 8 * 1.5**7, 56 * 1.5**6, 336 * 1.5**5, 1680 * 1.5**4]
    for value in wanted:
        np.testing.assert_allclose(got(qb.array(1.5)), value, rtol=1e-13)
        got = derivative(got)


def test_finished_examples_keep_carry_and_tangent_bit_for_bit():
    f = lambda x: qb.while_loop(lambda c: c > 1.0, lambda c: qb.log(c), x)
    points = np.array([1.5, 100.0, 1e10, 0.3])
    values, tangents = qb.jvp(qb.vmap(f), (qb.array(points),), (qb.array(np.ones(4)),))
    for k, x in enumerate(points):
        value, tangent = qb.jit(lambda x: qb.jvp(f, (x,), (1.0,)))(qb.array(x))
        assert values[k] == value and tangents[k] == tangent
    assert np.isfinite(tangents).all()


def test_a_predicate_must_be_a_scalar_bool():
    x = qb.array([1.0, 2.0])
    for predicate in (
        lambda c: c < 3.0,
        lambda c: qb.sum(c),
        lambda c: qb.reshape(qb.sum(c) < 3.0, (1,)),
        lambda c: None,
    ):
        with pytest.raises(TypeError):
            qb.jit(lambda x: qb.while_loop(predicate, lambda c: c, x))(x)


def test_an_eager_predicate_that_is_a_number_counts_by_its_value():
    """Quabla takes every eager number for true and never ends; here the loop ends at zero."""
    assert qb.while_loop(lambda c: c, lambda c: c - 1.0, qb.array(3.0)) == 0.0
