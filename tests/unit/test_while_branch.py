"""cond and switch with while loops in their branches, under a mapped predicate (jax-ml/jax#2947), in every mode."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from quabla_jax import loops
from quabla_jax.loops import branch

TOLERANCE = dict(rtol=1e-12, atol=1e-14)
Y = jnp.array([5.0, -3.0, 0.7, -0.2, 0.0])


def halve(y, checkpoint):
    """Ends for y >= 0 only."""
    return loops.while_loop(lambda y: (y > 1.0) | (y < 0.0), lambda y: y / 2, y, checkpoint=checkpoint)


def two_way(y, checkpoint="auto", scale=1.0):
    return branch.cond(y > 0, lambda y: halve(y, checkpoint) ** 2 * scale, lambda y: scale * y**3, y)


def three_way(y, checkpoint="auto", scale=1.0):
    return branch.switch(
        jnp.where(y > 0, 0, jnp.where(y < 0, 2, 7)),
        [
            lambda y: jnp.sqrt(halve(y, checkpoint)) * scale,
            lambda y: y,
            lambda y: jnp.log(halve(-y, checkpoint)) * scale,
        ],
        y,
    ) + branch.cond(y == 0, lambda y: y * 2, lambda y: jnp.sqrt(jnp.abs(y)), y)


def alone(f, y):
    """One example, its predicate not mapped: jax.lax's conditional."""
    f = jax.jit(f)
    return np.stack([f(v) for v in y])


@pytest.mark.parametrize("f", [two_way, three_way])
def test_values_and_forward_mode(f):
    y = Y[:4]
    for checkpoint in (None, "auto"):
        g = lambda v: f(v, checkpoint)
        np.testing.assert_allclose(jax.jit(jax.vmap(g))(y), alone(g, y), **TOLERANCE)
        d = lambda v: jax.jvp(g, (v,), (1.0,))[1]
        np.testing.assert_allclose(jax.jit(jax.vmap(d))(y), alone(d, y), **TOLERANCE)


@pytest.mark.parametrize("f", [two_way, three_way])
def test_reverse_mode(f):
    y = Y[:4]
    want = alone(jax.grad(f), y)
    np.testing.assert_allclose(jax.jit(jax.vmap(jax.grad(f)))(y), want, **TOLERANCE)
    np.testing.assert_allclose(jax.jit(jax.grad(lambda y: jnp.sum(jax.vmap(f)(y))))(y), want, **TOLERANCE)


@pytest.mark.slow
@pytest.mark.parametrize("f", [two_way, three_way])
def test_second_order(f):
    y = Y[:4]
    total = lambda y: jnp.sum(jax.vmap(f)(y))
    second = jax.grad(jax.grad(f))
    want = alone(second, y)
    np.testing.assert_allclose(jax.jit(jax.vmap(second))(y), want, **TOLERANCE)
    np.testing.assert_allclose(jax.jit(jax.grad(lambda y: jnp.sum(jax.grad(total)(y))))(y), want, **TOLERANCE)


def test_a_shared_operand_gets_only_what_the_taken_branches_give():
    f = lambda scale: jnp.sum(jax.vmap(lambda y: two_way(y, scale=scale))(Y[:4]))
    g = lambda scale: sum(two_way(y, scale=scale) for y in Y[:4])
    np.testing.assert_allclose(jax.grad(f)(1.5), jax.grad(g)(1.5), **TOLERANCE)


def test_an_unmapped_predicate_stays_a_branch():
    f = lambda p, y: branch.cond(p, lambda y: halve(y, "auto"), lambda y: y, y)
    text = str(jax.make_jaxpr(jax.vmap(f, (None, 0)))(True, Y))
    assert "qb_cond" in text and "select_n" not in text


def test_without_a_while_it_is_the_equation_of_jax():
    f = lambda c: lambda y: c(y > 0, jnp.sin, jnp.cos, y)
    assert str(jax.make_jaxpr(f(branch.cond))(1.0)) == str(jax.make_jaxpr(f(lax.cond))(1.0))


def test_structures_closures_checkpoint_and_loops_around():
    def f(y):
        w = y * 2
        one = lambda d: {"a": halve(d["a"], "auto") * w, "k": d["k"] + 1}
        two = lambda d: {"a": d["a"] * w, "k": d["k"] - 1}
        out = branch.cond(w > 0, one, two, {"a": y, "k": jnp.int32(3)})
        return jnp.where(out["k"] > 3, 1.0, 2.0) * out["a"]

    y = Y[:4]
    want = alone(jax.grad(f), y)
    np.testing.assert_allclose(jax.jit(jax.vmap(jax.grad(jax.checkpoint(f))))(y), want, **TOLERANCE)
    looped = lambda y: lax.scan(lambda c, _: (c + f(y), None), 0.0, None, length=3)[0]
    np.testing.assert_allclose(jax.jit(jax.vmap(jax.grad(looped)))(y), 3 * want, **TOLERANCE)
    counted = lambda y: loops.scan(lambda c, _: (c + f(y), None), 0.0, None, length=5, checkpoint="sqrt")[0]
    np.testing.assert_allclose(jax.jit(jax.vmap(jax.grad(counted)))(y), 5 * want, **TOLERANCE)
    np.testing.assert_allclose(jax.jit(jax.grad(lambda y: jax.vmap(counted)(y).sum()))(y), 5 * want, **TOLERANCE)


@pytest.mark.parametrize("spread", [lambda f: f, jax.grad, lambda f: jax.grad(jax.grad(f))])
def test_nothing_non_finite_from_the_branch_not_taken(spread):
    """switch and nested conditionals hold what jax.lax.cond holds, at every order."""
    f = lambda y: branch.switch(
        (y > 0).astype(int) + (y > 2), [lambda y: y * y, lambda y: jnp.log(y), lambda y: jnp.sqrt(y - 2) / (y - 2)], y
    )
    y = jnp.array([-1.0, 0.0, 1.5, 2.0, 3.0])
    got = jax.vmap(spread(f))(y)
    assert np.isfinite(np.asarray(got)).all()
    np.testing.assert_allclose(got, alone(spread(f), y), **TOLERANCE)


@pytest.mark.parametrize("loop", [lax.while_loop, loops.while_loop], ids=["jax", "ours"])
def test_a_branch_whose_loop_was_mapped_before(loop):
    """The loop has a condition for each lane already; the fuzz's seed 3171 met a TypeError here."""

    def f(flag, v):
        each = jax.vmap(lambda y: loop(lambda s: s[0] < 4, lambda s: (s[0] * 2, s[1] + 1), (y, 0))[1])
        return branch.cond(flag, each, lambda v: jnp.zeros(3, int), v)

    flags = jnp.array([True, False, True])
    v = jnp.array([[1.0, 3.0, 7.0], [-1.0, 0.0, 2.0], [0.1, 5.0, 2.0]])  # the second row's loops do not end
    want = [[2, 1, 0], [0, 0, 0], [6, 0, 1]]
    np.testing.assert_array_equal(jax.jit(jax.vmap(f))(flags, v), want)
    again = jax.jit(jax.vmap(jax.vmap(f, (None, 0)), (0, None)))(flags[:2], v[::2])
    np.testing.assert_array_equal(again, [[want[0], want[2]], np.zeros((2, 3))])
