"""What users of jax.lax run into, each once: the drop-in gets it right."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from quabla_jax.compat import lax


def test_drifting_carries_are_named_by_path_with_what_came_and_what_would_be_right():
    def fibonacci_like(c, x):
        a, b, d = c["state"]
        return {"state": (a + x, b + a, d + b)}, None

    xs = jnp.ones(3, jnp.float16)
    with pytest.raises(TypeError) as caught:
        lax.scan(fibonacci_like, {"state": (0.0, 0.0, 0.0)}, xs, checkpoint="sqrt")
    message = str(caught.value)
    # JAX promotes the first carry to float16 before the others can follow; the error names each leaf that drifted.
    assert re.search(r"c\['state'\]\[\d\] has type float\d+\[\].*output carry component has type float16\[\]", message)
    assert "so the dtypes do not match" in message
    with pytest.raises(TypeError) as theirs:
        jax.lax.scan(fibonacci_like, {"state": (0.0, 0.0, 0.0)}, xs)
    assert message == str(theirs.value)


def test_drifting_shape_is_named():
    with pytest.raises(
        TypeError,
        match=r"loop_carry\[1\]\[1\] has type float64\[2\].*has type float64\[1,2\].*shapes do not match",
    ):
        lax.fori_loop(0, 4, lambda i, c: (c[0], c[1][None]), (1.0, jnp.ones(2)), checkpoint="sqrt")


@pytest.mark.parametrize("steps", [5, 40])
def test_int_carry_beside_a_float_carry(steps):
    def loss(L, **k):
        def step(c, _):
            n, x = c
            return (n + 1, jnp.sin(x) * (n % 3 + 1)), n

        return lambda x: L.scan(step, (0, x), None, length=steps, **k)[0][1]

    got = jax.value_and_grad(loss(lax, checkpoint="sqrt"))(0.4)
    np.testing.assert_allclose(got, jax.value_and_grad(loss(jax.lax))(0.4), rtol=1e-12)
    np.testing.assert_allclose(
        jax.hessian(loss(lax, checkpoint="sqrt"))(0.4), jax.hessian(loss(jax.lax))(0.4), rtol=1e-11
    )


def test_float0_cotangents_and_tangents():
    def f(n, x):
        return lax.scan(lambda c, _: ((c[0] + n, c[1] * x), None), (0, x), None, length=40, checkpoint="sqrt")[0]

    (out_n, out_x), pull = jax.vjp(f, 2, 0.9)
    assert out_n == 80
    zero = np.zeros((), jax.dtypes.float0)
    ct_n, ct_x = pull((zero, 1.0))
    assert ct_n.dtype == jax.dtypes.float0
    np.testing.assert_allclose(ct_x, 41 * 0.9**40, rtol=1e-12)
    primal, tangent = jax.jvp(f, (2, 0.9), (zero, 1.0))
    assert tangent[0].dtype == jax.dtypes.float0 and primal[0] == 80
    np.testing.assert_allclose(tangent[1], 41 * 0.9**40, rtol=1e-12)
    grads = jax.grad(lambda n, x: f(n, x)[1], argnums=(0, 1), allow_int=True)(2, 0.9)
    assert grads[0].dtype == jax.dtypes.float0


@pytest.mark.parametrize("index", [-5, 0, 1, 2, 99])
def test_gradient_of_switch_with_the_index_out_of_range(index):
    branches = [lambda x: x**2, jnp.sin, lambda x: x * 5]
    want = jax.grad(branches[min(max(index, 0), 2)])(0.6)
    f = lambda x, i: lax.switch(i, branches, x)
    np.testing.assert_allclose(jax.grad(f)(0.6, index), want, rtol=1e-14)
    np.testing.assert_allclose(jax.jit(jax.grad(f))(0.6, index), want, rtol=1e-14)
    batched = jax.vmap(jax.grad(f), (None, 0))(0.6, jnp.asarray([index, 1]))
    np.testing.assert_allclose(batched, [want, np.cos(0.6)], rtol=1e-14)


def test_gradient_through_a_sum_that_stores_each_term():
    n = 50

    def loss(x):
        def step(c, k):
            term = x**k / (k + 1)
            return c + term, term

        total, terms = lax.scan(step, 0.0, jnp.arange(float(n)), checkpoint="sqrt")
        return total + jnp.sum(terms * terms)

    k = np.arange(n)
    x = 0.8
    d_term = np.where(k > 0, k * x ** (k - 1.0) / (k + 1), 0.0)
    want = np.sum(d_term) + np.sum(2 * (x**k / (k + 1)) * d_term)
    np.testing.assert_allclose(jax.grad(loss)(x), want, rtol=1e-12)


def test_table_filled_row_by_row_from_the_row_before():
    """Binomial coefficients with a weight: row i from row i-1, the whole table the carry."""
    rows = 9

    def table(w, L, **k):
        def fill(i, t):
            row = jnp.roll(t[i - 1], 1).at[0].set(0.0) * w + t[i - 1]
            return t.at[i].set(row)

        return L.fori_loop(1, rows, fill, jnp.zeros((rows, rows)).at[0, 0].set(1.0), **k)

    from math import comb

    np.testing.assert_array_equal(
        table(1.0, lax, checkpoint="sqrt"), [[comb(i, j) for j in range(rows)] for i in range(rows)]
    )
    # Row i holds comb(i, j) * w**j, so the derivative of its sum is i * (1 + w)**(i - 1).
    got = jax.jacrev(lambda w: table(w, lax, checkpoint="sqrt").sum(1))(0.3)
    np.testing.assert_allclose(got, [i * 1.3 ** (i - 1.0) for i in range(rows)], rtol=1e-12, atol=1e-14)


def test_pure_callbacks_in_a_nine_step_scan_under_grad():
    def run(L, **k):
        calls = []

        @jax.custom_jvp
        def f(x):
            return jax.pure_callback(lambda v: (calls.append(float(v)), np.sin(v))[1], jax.typeof(x).update(), x)

        @f.defjvp
        def _(primals, tangents):
            return f(*primals), jnp.cos(primals[0]) * tangents[0]

        loss = lambda a: L.scan(lambda c, x: (f(c) * x, None), a, jnp.linspace(0.5, 1.0, 9), **k)[0]
        value, grad = jax.jit(jax.value_and_grad(loss))(0.4)
        jax.block_until_ready(grad)
        return value, grad, calls

    value, grad, calls = run(lax)
    want_value, want_grad, want_calls = run(jax.lax)
    np.testing.assert_allclose((value, grad), (want_value, want_grad), rtol=1e-13)
    assert calls == want_calls and len(calls) == 9


def test_third_derivative_of_a_decay_in_its_rate():
    """y' = -z y by explicit Euler: y_n = (1 - h z)^n, thrice differentiated in z."""
    n, h = 64, 1 / 64

    def final(z):
        return lax.fori_loop(0, n, lambda _, y: y - h * z * y, 1.0, checkpoint="sqrt")

    d = final
    for order in range(1, 4):
        d = jax.grad(d)
        factor = np.prod([n - i for i in range(order)]) * (-h) ** order
        np.testing.assert_allclose(jax.jit(d)(1.3), factor * (1 - h * 1.3) ** (n - order), rtol=1e-9)


@pytest.mark.parametrize("L", [lax, jax.lax], ids=["engine", "jax"])
def test_conds_nested_eight_deep_are_traced_once_each(L):
    traced = []

    def nested(depth, x):
        if depth == 0:
            return x * 2

        def deeper(x):
            traced.append(depth)
            return nested(depth - 1, x)

        return L.cond(x > 0, deeper, lambda x: -x, x)

    f = lambda x: nested(8, x)
    assert jax.jit(f)(1.5) == 3.0 and sorted(traced) == list(range(1, 9))
    traced.clear()
    assert jax.grad(f)(1.5) == 2.0 and len(traced) == 8
    traced.clear()
    jax.hessian(f)(1.5)
    assert len(traced) == 8


def halvings(x):
    """Steps until x <= 1, by halving; on inf it would not end."""
    return jax.lax.while_loop(lambda c: c[0] > 1.0, lambda c: (c[0] * 0.5, c[1] + 1.0), (x, 0.0))[1]


def doublings(x):
    """Steps until x >= 1, by doubling; on 0 it would not end."""
    return jax.lax.while_loop(lambda c: c[0] < 1.0, lambda c: (c[0] * 2.0, c[1] + 1.0), (x, 0.0))[1]


@pytest.mark.parametrize("jit", [False, True])
def test_vmap_of_a_cond_whose_branches_hold_loops_that_would_not_end_on_the_others_input(jit):
    """jax#2947: under a mapped predicate both branches run; each loop must rest on the other branch's examples."""
    f = lambda x: lax.cond(x > 1.0, halvings, doublings, x)
    xs = jnp.asarray([8.0, 0.25, 1024.0, 1e-3])
    batched = jax.vmap(f)
    got = (jax.jit(batched) if jit else batched)(xs)
    np.testing.assert_array_equal(got, [3.0, 2.0, 10.0, 10.0])


def test_switch_too_ends_on_every_mapped_index():
    def forever_unless(k):
        # Ends only where x equals k: on every other example this loop would run for good.
        return lambda x: jax.lax.while_loop(lambda c: c != k, lambda c: c, x) + 10.0 * k

    branches = [forever_unless(k) for k in (0.0, 1.0, 2.0)]
    xs = jnp.asarray([2.0, 0.0, 1.0])
    got = jax.jit(jax.vmap(lambda x: lax.switch(x.astype(int), branches, x)))(xs)
    np.testing.assert_array_equal(got, [22.0, 0.0, 11.0])


def test_gradient_of_a_batched_gated_cell_is_right_where_jax_itself_errs():
    """jnp.split inside vmap(scan): jax 0.10.2's gradient of the bias is off by order one; a Python loop is the judge."""
    units, batch, steps = 5, 4, 9
    draw = lambda k, *shape: jax.random.normal(jax.random.key(k), shape) * 0.4
    xs, w, bias = draw(1, batch, steps, 2), draw(2, 3 * units, 2), draw(4, 3 * units)

    def loss(bias, loop):
        def cell(h, x):
            reset, _, new = jnp.split(w @ x + bias, 3)
            return jnp.tanh(new + jax.nn.sigmoid(reset + h) * h), None

        return jnp.sum(jax.vmap(lambda xs: loop(cell, jnp.zeros(units), xs)[0].sum())(xs))

    def python_loop(f, c, xs):
        for x in xs:
            c, _ = f(c, x)
        return c, None

    engine = functools.partial(lax.scan, checkpoint="sqrt")
    got, want = (jax.jit(jax.grad(functools.partial(loss, loop=loop)))(bias) for loop in (engine, python_loop))
    np.testing.assert_allclose(got, want, rtol=1e-11, atol=1e-13)
