"""The worked examples of Quabla's control-flow chapter, to every digit that it prints, in every form that it shows."""

import numpy as np
import pytest

import quabla_jax as qb


def prints(value, *digits):
    """Whether an array rounds to the printed digits (eight places, as the chapter prints)."""
    value = np.asarray(value)
    assert value.dtype == np.float64
    np.testing.assert_array_equal(np.round(value, 8), np.asarray(digits).reshape(value.shape))


H = 0.01


def relaxation(start, rate):
    def step(i, y, rate):
        return y - H * rate * y

    return qb.fori_loop(0, 100, step, start, operands=(rate,))


@pytest.fixture
def start():
    return qb.array([1.0, 2.0])


@pytest.fixture
def rate():
    return qb.array(0.5)


def test_fori_loop_eager(start, rate):
    prints(relaxation(start, rate), 0.60577044, 1.21154087)


def test_fori_loop_compiled(start, rate):
    prints(qb.jit(relaxation)(start, rate), 0.60577044, 1.21154087)


def test_fori_loop_gradient(start, rate):
    prints(qb.grad(lambda rate: qb.sum(relaxation(start, rate)))(rate), -1.82644353)


def test_fori_loop_hessian(start, rate):
    hessian = qb.hessian(lambda y: qb.sum(relaxation(y, rate) ** 2))(start)
    prints(hessian, [[0.73391564, 0.0], [0.0, 0.73391564]])


def test_fori_loop_unrolled(start, rate):
    unrolled = qb.jit(lambda y, r: qb.fori_loop(0, 100, lambda i, y, r: y - H * r * y, y, operands=(r,), unroll=True))
    prints(unrolled(start, rate), 0.60577044, 1.21154087)


def test_a_forgotten_operand_raises_the_printed_error(start, rate):
    def forgetful(y, rate):
        return qb.fori_loop(0, 10, lambda i, y: y * rate, y)

    with pytest.raises(qb.TracerError) as caught:
        qb.jit(forgetful)(start, rate)
    assert str(caught.value).startswith(
        "control-flow regions cannot close over an outer tracer; pass it explicitly using operands= (cond takes "
        "positional operands)"
    )


def guarded_log(x):
    return qb.cond(x > 0.0, lambda x: qb.log(x), lambda x: qb.zeros_like(x), x)


def test_cond_eager():
    prints(guarded_log(qb.array(2.0)), 0.69314718)


def test_cond_compiled():
    prints(qb.jit(guarded_log)(qb.array(-1.0)), 0.0)


def test_cond_gradient():
    prints(qb.grad(guarded_log)(qb.array(2.0)), 0.5)


def test_cond_mapped():
    prints(qb.vmap(guarded_log)(qb.array([2.0, -1.0])), 0.69314718, 0.0)


def test_cond_mapped_gradient():
    prints(qb.vmap(qb.grad(guarded_log))(qb.array([2.0, -1.0])), 0.5, 0.0)


def rollout(first, gain):
    def advance(c, i, gain):
        c = qb.tanh(c * gain + 0.1)
        return c, c * 2.0

    return qb.scan(advance, first, length=4, operands=(gain,))


@pytest.mark.parametrize("form", [lambda f: f, qb.jit], ids=["eager", "jit"])
def test_scan(form):
    carry, outputs = form(rollout)(qb.array([0.5, 1.0]), qb.array(0.8))
    prints(carry, 0.41178338, 0.47153359)
    assert outputs.shape == (4, 2)
    np.testing.assert_array_equal(outputs[-1], 2.0 * carry)


def newton_root(a):
    return qb.while_loop(
        lambda x, a: qb.abs(x * x - a) > 1e-12, lambda x, a: 0.5 * (x + a / x), qb.ones_like(a), operands=(a,)
    )


@pytest.mark.parametrize("form", [lambda f: f, qb.jit], ids=["eager", "jit"])
def test_while_loop(form):
    prints(form(newton_root)(qb.array(2.0)), 1.41421356)


def test_while_loop_forward_mode():
    value, tangent = qb.jvp(newton_root, (qb.array(2.0),), (qb.array(1.0),))
    prints(value, 1.41421356)
    prints(tangent, 0.35355339)


def test_while_loop_mapped():
    prints(qb.vmap(newton_root)(qb.array([2.0, 9.0, 1e6])), 1.41421356, 3.0, 1000.0)


def test_while_loop_reverse_mode_raises_the_printed_error():
    with pytest.raises(ValueError) as caught:
        qb.grad(newton_root)(qb.array(2.0))
    assert str(caught.value).startswith(
        "reverse-mode differentiation through while_loop is not supported because its trip count is data dependent; use "
        "forward mode (jvp) or rewrite it as a bounded fori_loop whose body masks finished iterations"
    )


def bounded_root(a):
    def body(i, x, a):
        return qb.where(qb.abs(x * x - a) <= 1e-12, x, 0.5 * (x + a / x))

    return qb.fori_loop(0, 30, body, qb.ones_like(a), operands=(a,))


def test_the_bounded_rewrite_has_a_gradient():
    prints(qb.grad(bounded_root)(qb.array(2.0)), 0.35355339)


def test_the_index_is_what_the_table_says():
    kinds = []

    def body(i, c):
        kinds.append(i if isinstance(i, int) else (i.shape, i.dtype))
        return c * 1.0

    x = qb.array([1.0, 2.0], dtype=qb.float32)
    qb.fori_loop(0, 2, body, x)
    qb.jit(lambda x: qb.fori_loop(0, 2, body, x))(x)
    qb.jit(lambda x: qb.fori_loop(0, 2, body, x, unroll=True))(x)
    assert kinds == [0, 1, ((), np.float32), 0, 1]
