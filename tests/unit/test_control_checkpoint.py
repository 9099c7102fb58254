"""checkpoint= of the Quabla loops: the same derivatives whatever is kept, and reverse mode through while_loop."""

import functools

import jax
import numpy as np
import pytest

import quabla_jax as qb

X, A = qb.array([0.4, 1.2]), qb.array(0.9)
REQUESTS = ["auto", "full", "sqrt", 1, 3, 100, qb.Budget("1MB")]


def fori(x, a, checkpoint, unroll=False):
    body = lambda i, c, a: qb.sin(c * a) + 0.1 * i * c
    return qb.sum(qb.fori_loop(2, 13, body, x, operands=(a,), checkpoint=checkpoint, unroll=unroll))


def scan(x, a, checkpoint, unroll=False):
    body = lambda c, i, a: (qb.sin(c * a) + 0.1 * i * c, c * c * a)
    carry, outputs = qb.scan(body, x, length=11, operands=(a,), checkpoint=checkpoint, unroll=unroll)
    return qb.sum(carry) + qb.sum(qb.square(outputs))


@functools.cache
def unrolled_gradient(loop):
    return qb.grad(lambda x, a: loop(x, a, "auto", unroll=True), argnums=(0, 1))(X, A)


@pytest.mark.parametrize("request_", REQUESTS, ids=str)
@pytest.mark.parametrize("loop", [fori, scan])
def test_gradients_do_not_depend_on_what_is_kept(loop, request_):
    wanted = unrolled_gradient(loop)
    got = qb.grad(lambda x, a: loop(x, a, request_), argnums=(0, 1))(X, A)
    for g, w in zip(got, wanted):
        np.testing.assert_allclose(g, w, rtol=1e-12)


@pytest.mark.parametrize("loop", [fori, scan])
def test_hessians_do_not_depend_on_what_is_kept(loop):
    wanted = qb.hessian(lambda x: loop(x, A, "auto", unroll=True))(X)
    for request_ in ("full", 2):
        np.testing.assert_allclose(qb.hessian(lambda x: loop(x, A, request_))(X), wanted, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("bad", ["all", 0, -1, True, 2.5, None])
def test_other_requests_are_refused_also_eagerly(bad):
    with pytest.raises((TypeError, ValueError), match="checkpoint"):
        qb.fori_loop(0, 2, lambda i, c: c, 1.0, checkpoint=bad)
    with pytest.raises((TypeError, ValueError), match="checkpoint"):
        qb.scan(lambda c, i: (c, c), 1.0, length=2, checkpoint=bad)
    if bad is not None:
        with pytest.raises((TypeError, ValueError), match="checkpoint"):
            qb.while_loop(lambda c: c < 0.0, lambda c: c, 1.0, checkpoint=bad)


def test_checkpointing_sets_the_default_and_retraces():
    f = lambda x: fori(x, A, "auto")
    g = qb.grad(f)
    with qb.checkpointing(1):
        few = g(X)
    with pytest.raises((TypeError, ValueError)), qb.checkpointing("everything"):
        pass
    np.testing.assert_allclose(few, g(X), rtol=1e-12)


def root(a, checkpoint):
    return qb.while_loop(
        lambda x, a: qb.abs(x * x - a) > 1e-13,
        lambda x, a: 0.5 * (x + a / x),
        qb.ones_like(a),
        operands=(a,),
        checkpoint=checkpoint,
    )


@pytest.mark.parametrize("request_", ["auto", 2, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 50))], ids=str)
def test_while_loop_in_reverse(request_):
    f = lambda a: root(a, request_)
    a = 2.0
    np.testing.assert_allclose(qb.grad(f)(qb.array(a)), 0.5 * a**-0.5, rtol=1e-12)
    np.testing.assert_allclose(jax.jit(jax.grad(f))(a), 0.5 * a**-0.5, rtol=1e-12)
    values, grads = qb.vmap(qb.value_and_grad(f))(qb.array([2.0, 9.0, 1e6]))
    np.testing.assert_allclose(values, [2.0**0.5, 3.0, 1000.0], rtol=1e-14)
    np.testing.assert_allclose(grads, 0.5 / np.sqrt([2.0, 9.0, 1e6]), rtol=1e-9)


def test_while_loop_in_reverse_at_second_order_and_inside_other_loops():
    power = lambda x: qb.while_loop(lambda c: c < 20.0, lambda c: c * c, x, checkpoint="auto")
    x = 1.5
    np.testing.assert_allclose(qb.hessian(power)(qb.array(x)), 56 * x**6, rtol=1e-12)
    np.testing.assert_allclose(qb.grad(qb.grad(power))(qb.array(x)), 56 * x**6, rtol=1e-12)
    inside = lambda x: qb.fori_loop(0, 2, lambda i, c: power(c) * 0.05, x)
    h = 1e-6
    difference = (inside(qb.array(x + h)) - inside(qb.array(x - h))) / (2 * h)
    np.testing.assert_allclose(qb.grad(inside)(qb.array(x)), difference, rtol=1e-7)


def test_the_plan_of_a_loop_can_be_read():
    plan = qb.plan_loop(1000, carry_bytes=8, checkpoint="sqrt")
    assert isinstance(plan, qb.LoopPlan) and plan.stored_bytes < 1000 * 8
    assert isinstance(str(plan), str)


@pytest.mark.parametrize("loop", ["fori_loop", "scan"])
def test_the_memory_of_a_gradient_follows_the_request(loop):
    """Temporary bytes of the compiled gradient, from XLA's own analysis: 4096 carries of 1 KiB, or about 2 * 64 of them."""

    def loss(x, checkpoint):
        step = lambda c: qb.sin(c) * 0.9
        if loop == "fori_loop":
            return qb.sum(qb.fori_loop(0, 4096, lambda i, c: step(c), x, checkpoint=checkpoint))
        return qb.sum(qb.scan(lambda c, i: (step(c), qb.sum(c)), x, length=4096, checkpoint=checkpoint)[0])

    x = np.linspace(0.0, 1.0, 128)
    temp = {}
    for checkpoint in ("full", "sqrt", 20):
        compiled = jax.jit(jax.grad(loss), static_argnums=1).lower(x, checkpoint).compile()
        temp[checkpoint] = compiled.memory_analysis().temp_size_in_bytes / x.nbytes
    assert temp["full"] > 3500 and temp["sqrt"] < 200 and temp[20] < 60, temp
