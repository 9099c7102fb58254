"""Transforms with what else a JAX program holds: registered classes, keys, named axes, debug prints, threads."""

import dataclasses
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import quabla_jax as qb


@qb.tree.register_dataclass
@dataclasses.dataclass
class Pair:
    a: object
    b: object


def test_registered_classes_are_arguments_results_and_axis_prefixes():
    p = Pair(qb.array(2.0), qb.array(3.0))
    gradient = qb.grad(lambda p: p.a * p.b)(p)
    assert isinstance(gradient, Pair) and (gradient.a, gradient.b) == (3.0, 2.0)
    jacobian = qb.jacobian(lambda p: Pair(p.a * p.b, p.a))(p)
    assert (jacobian.a.a, jacobian.a.b, jacobian.b.a, jacobian.b.b) == (3.0, 2.0, 1.0, 0.0)
    mapped = qb.vmap(lambda p: Pair(p.a * p.b, p.b), in_axes=(Pair(0, None),), out_axes=Pair(0, None))
    out = mapped(Pair(qb.array([2.0, 4.0]), qb.array(3.0)))
    np.testing.assert_array_equal(out.a, [6.0, 12.0])
    assert out.b == 3.0
    with pytest.raises(ValueError, match="out of range for the argument leaf 'p.a' of shape"):
        qb.vmap(lambda p: p.a, in_axes=(Pair(0, 0),))(p)


@dataclasses.dataclass
class Unregistered:
    a: object


@pytest.mark.parametrize("transform", [qb.jit, qb.grad, qb.vmap, qb.jacobian])
def test_unregistered_dataclasses_and_other_leaves_are_refused(transform):
    x = qb.array([1.0, 2.0])
    with pytest.raises(TypeError, match="dataclass Unregistered is not a pytree node"):
        transform(lambda p: p.a)(Unregistered(x))
    for leaf in ("text", object(), 1j, print):
        with pytest.raises(TypeError, match=f"unsupported argument leaf of type {type(leaf).__name__}"):
            transform(lambda x, y: x)(x, leaf)
    with pytest.raises(TypeError, match="a quabla.random key cannot be a traced argument"):
        transform(lambda x, k: x)(x, qb.random.key(0))


def test_jax_keys_are_arguments_and_operands():
    """An extension: Quabla's keys are host values."""
    key = jax.random.key(7)
    draw = jax.random.normal(key, (2,))
    np.testing.assert_array_equal(qb.jit(lambda k: jax.random.normal(k, (2,)))(key), draw)
    gradient, none = qb.grad(lambda x, k: qb.sum(x * jax.random.normal(k, (2,))), argnums=(0, 1))(
        qb.array([1.0, 2.0]), key
    )
    np.testing.assert_array_equal(gradient, draw)
    assert none is None

    def body(i, c, k):
        return c + jax.random.normal(jax.random.fold_in(k, jnp.int32(i)), ())

    got = qb.jit(lambda k, x: qb.fori_loop(0, 3, body, x, operands=(k,)))(key, qb.array(0.0))
    wanted = sum(jax.random.normal(jax.random.fold_in(key, i), ()) for i in range(3))
    np.testing.assert_allclose(got, wanted, rtol=1e-14)


def test_named_axes_reach_into_bodies_and_transforms():
    x = jnp.arange(3.0)
    loop = lambda x: qb.fori_loop(0, 2, lambda i, c: c + jax.lax.psum(c, "i"), x)
    np.testing.assert_array_equal(jax.vmap(loop, axis_name="i")(x), [15.0, 16.0, 17.0])
    np.testing.assert_array_equal(
        jax.vmap(qb.jit(lambda x: x + jax.lax.psum(x, "i")), axis_name="i")(x), [3.0, 4.0, 5.0]
    )


def test_debug_prints_in_a_body_fire_once_an_iteration(capfd):
    def body(i, c):
        jax.debug.print("at {}", i)
        return c * 2.0

    qb.jit(lambda x: qb.fori_loop(0, 3, body, x))(qb.array(1.0)).block_until_ready()
    jax.effects_barrier()
    assert capfd.readouterr().out.split("\n") == ["at 0.0", "at 1.0", "at 2.0", ""]


def test_one_transform_object_serves_many_threads():
    g = qb.grad(lambda x, k: qb.sum(qb.fori_loop(0, 3, lambda i, c: c * c * k, x)))
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda n: g(qb.array([1.1] * (n % 3 + 1)), 1.0), range(12)))
    for n, result in enumerate(results):
        np.testing.assert_allclose(result, np.full(n % 3 + 1, 8 * 1.1**7), rtol=1e-14)


def test_custom_rules_take_masks_integers_and_constants():
    scaled = qb.custom_vjp(lambda x, m, k, n: qb.where(m, x * k, 0.0) + x[n])
    scaled.defvjp(
        lambda x, m, k, n: (qb.where(m, x * k, 0.0) + x[n], (m, k)),
        lambda kept, g: (qb.where(kept[0], g * kept[1] * 10.0, 0.0), None, None, None),
    )
    x, m, n = qb.array([1.0, 2.0]), qb.array([True, False]), jnp.int32(1)
    gradient = qb.grad(lambda x, m: qb.sum(scaled(x, m, 3, n)), argnums=(0, 1))(x, m)
    np.testing.assert_array_equal(gradient[0], [30.0, 0.0])
    assert gradient[1] is None
    tangent = qb.custom_jvp(lambda x, m, n: qb.where(m, x, 0.0) * x[n])
    tangent.defjvp(lambda p, t: (p[0], qb.where(p[1], t[0], 0.0) * 7.0))
    np.testing.assert_array_equal(qb.grad(lambda x: qb.sum(tangent(x, m, n)))(x), [7.0, 0.0])
    np.testing.assert_array_equal(qb.jvp(lambda x: tangent(x, m, n), (x,), (x,))[1], [7.0, 0.0])


@pytest.mark.parametrize(
    "reverse",
    [qb.grad, lambda f: qb.jit(qb.grad(f)), lambda f: lambda x: qb.vjp(f, x)[1](qb.array(1.0)), qb.hessian],
    ids=["grad", "jit", "vjp", "hessian"],
)
def test_a_rule_that_is_not_linear_in_its_tangents(reverse):
    f = qb.custom_jvp(qb.sin)
    f.defjvp(lambda primals, tangents: (primals[0], tangents[0] * tangents[0]))
    with pytest.raises(TypeError, match="JVP rule of a custom_jvp function must give a tangent that is linear"):
        reverse(f)(qb.array(2.5))
    assert float(qb.jvp(f, (qb.array(2.5),), (qb.array(3.0),))[1]) == 9.0  # forward mode takes it as it is


def test_an_assertion_of_the_user_stays_one():
    def f(x):
        assert x.shape == (2,), "mine"
        return qb.sum(x)

    with pytest.raises(AssertionError, match="mine"):
        qb.grad(f)(qb.array([1.0]))
