"""Branches under a mapped predicate: a while loop in the branch that an example did not take must end."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from quabla_jax import loops
from quabla_jax.loops.guard import guarded
from quabla_jax.loops.whiles import while_loop


def select(pred, true_fun, false_fun, *operands):
    """What a mapped cond becomes: both branches, each guarded by its own examples."""
    outs = []
    for active, fun in ((pred, true_fun), (~pred, false_fun)):
        operands_ = [jnp.where(active, x, lax.stop_gradient(x)) for x in operands]
        outs.append(guarded(jax.make_jaxpr(fun)(*operands))(active, *operands_)[0])
    return jnp.where(pred, *outs)


def halve(loop):
    """Ends for y >= 0 only."""
    return lambda y: loop(lambda y: (y > 1.0) | (y < 0.0), lambda y: y / 2, y)


def jitted(loop):
    return jax.jit(halve(loop))


def in_scan(loop):
    return lambda y: lax.scan(lambda y, _: (halve(loop)(y) * 1.5, None), y, None, length=2)[0]


def in_counted(loop):
    return lambda y: loops.scan(lambda y, _: (halve(loop)(y) * 1.5, None), y, None, length=3, checkpoint="sqrt")[0]


def in_cond(loop):
    return lambda y: lax.cond(jnp.abs(y) > 0.1, halve(loop), lambda y: y * 3, y)


def in_while(loop):
    return lambda y: loop(lambda s: s[1] < 2, lambda s: (halve(loop)(s[0]) * 1.5, s[1] + 1), (y, 0))[0]


def in_checkpoint(loop):
    return jax.checkpoint(halve(loop))


def plain(cond, body, init):
    return lax.while_loop(cond, body, init)


def ours(cond, body, init):
    return while_loop(cond, body, init, checkpoint=4)


Y = jnp.array([5.0, -3.0, 0.7, -0.2])
SHAPES = [halve, jitted, in_scan, in_counted, in_cond, in_while, in_checkpoint]


@pytest.mark.parametrize("loop", [plain, ours])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_branch_not_taken_ends(shape, loop):
    f = lambda y: select(y > 0, shape(loop), lambda y: y * 2, y)
    want = [shape(plain)(y) if y > 0 else y * 2 for y in Y]
    np.testing.assert_allclose(jax.jit(jax.vmap(f))(Y), want, rtol=1e-12)


@pytest.mark.parametrize("shape", [halve, in_counted, in_while])
def test_its_derivatives_end_too(shape):
    f = lambda y: select(y > 0, lambda y: shape(ours)(y) ** 2, lambda y: y**3, y)
    alone = lambda y: shape(ours)(y) ** 2 if y > 0 else y**3
    np.testing.assert_allclose(jax.jit(jax.vmap(jax.grad(f)))(Y), [jax.grad(alone)(y) for y in Y], rtol=1e-12)
    np.testing.assert_allclose(
        jax.jit(jax.grad(lambda y: jnp.sum(jax.vmap(f)(y))))(Y), [jax.grad(alone)(y) for y in Y], rtol=1e-12
    )


def test_a_branch_without_a_loop_is_left_alone():
    branch = jax.make_jaxpr(lambda y: jnp.sin(y) * 2)(1.0)
    text = str(jax.make_jaxpr(guarded(branch))(True, 1.0))
    assert "select" not in text and text.count("mul") == 1
