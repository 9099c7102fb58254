"""The rules of the Quabla dialect that recorded outputs alone cannot hold: what messages name, what is called when."""

import functools
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import quabla_jax as qb

RULE = "control-flow regions cannot close over an outer tracer; pass it explicitly using operands="


def line_of(marker):
    """The number of the line of this file that ends in the comment `# marker`."""
    source = inspect.getsource(inspect.getmodule(line_of)).splitlines()
    return 1 + next(k for k, text in enumerate(source) if text.endswith(f"# {marker}"))


def caught(f, *args):
    with pytest.raises(qb.TracerError) as info:
        qb.jit(f)(*args)
    assert str(info.value).startswith(RULE)
    return str(info.value)


def test_the_message_names_variable_type_line_and_cure():
    def f(x, gain):
        def body(i, c):
            c = c + 1.0
            return c * gain  # the-line

        return qb.fori_loop(0, 3, body, x)

    text = caught(f, qb.array([1.5, 2.5]), qb.array([2.0, 3.0]))
    assert "the body of fori_loop closes over the variable 'gain' (f64[2])" in text
    assert f"test_control_rules.py:{line_of('the-line')}" in text
    assert "pass gain as an operand" in text


@pytest.mark.parametrize(
    "what, f",
    [
        ("the true branch of cond", lambda x, a: qb.cond(x > 0, lambda x: x * a, lambda x: x, x)),
        ("the false branch of cond", lambda x, a: qb.cond(x > 0, lambda x: x, lambda x: x * a, x)),
        ("the body of scan", lambda x, a: qb.scan(lambda c, i: (c, c * a), x, length=2)),
        ("the body of fori_loop", lambda x, a: qb.fori_loop(1, 1, lambda i, c: c * a, x)),
        ("the predicate of while_loop", lambda x, a: qb.while_loop(lambda c: c < a, lambda c: c + 1.0, x)),
        ("the body of while_loop", lambda x, a: qb.while_loop(lambda c: c < 3.0, lambda c: c + a, x)),
        ("branch 0 of switch", lambda x, a: qb.switch(jnp.int32(x), [lambda x: x * a, lambda x: x], (x,))),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.parametrize("transform", ["jit", "grad", "vmap", "jvp", "jax.jit", "jit(jax.grad)"])
def test_every_region_is_held_to_the_rule_under_every_transform(what, f, transform):
    g = lambda x, a: jnp.sum(jnp.asarray(jax.tree.leaves(f(x, a))[-1]))
    x, a = qb.array(0.5), qb.array(2.0)
    runs = {
        "jit": lambda: qb.jit(g)(x, a),
        "grad": lambda: qb.grad(g, argnums=0)(x, a),
        "vmap": lambda: qb.vmap(g, in_axes=(0, None))(qb.array([0.5, 1.0]), a),
        "jvp": lambda: qb.jvp(g, (x, a), (1.0, 1.0)),
        "jax.jit": lambda: jax.jit(g)(x, a),
        "jit(jax.grad)": lambda: jax.jit(jax.grad(g, (0, 1)))(x, a),
    }
    with pytest.raises(qb.TracerError) as info:
        runs[transform]()
    assert f"{what} closes over the variable 'a'" in str(info.value)


class Model:
    def __init__(self, gain):
        self.gain = gain

    def body(self, i, c):
        return c * self.gain

    def __call__(self, x):
        return qb.fori_loop(0, 2, self.body, x)


def test_the_variable_is_found_in_methods_partials_containers_and_inner_functions():
    assert "'self.gain'" in caught(lambda x, a: Model(a)(x), qb.array(1.0), qb.array(2.0))

    def by_partial(x, a):
        return qb.fori_loop(0, 2, functools.partial(lambda i, c, k: c * k, k=a), x)

    assert "'k'" in caught(by_partial, qb.array(1.0), qb.array(2.0))

    def by_dict(x, a):
        weights = {"w": a}
        return qb.fori_loop(0, 2, lambda i, c: c * weights["w"], x)

    text = caught(by_dict, qb.array(1.0), qb.array(2.0))
    assert "weights['w']" in text

    def by_helper(x, a):
        def helper(c):
            return c * a

        return qb.fori_loop(0, 2, lambda i, c: helper(c), x)

    assert "'a'" in caught(by_helper, qb.array(1.0), qb.array(2.0))


def test_inner_regions_are_held_to_the_rule_too():
    def f(x):
        return qb.fori_loop(0, 2, lambda i, c: qb.fori_loop(0, 2, lambda j, d: d + i, c), x)

    assert "'i'" in caught(f, qb.array(1.0))


def test_the_operand_of_any_enclosing_trace_is_accepted():
    """Quabla takes only tracers of the innermost transform; every other one is an extension that gives the value."""
    loop = lambda x, a: qb.fori_loop(0, 3, lambda i, c, a: c * a, x, operands=(a,))
    got = qb.jit(lambda a: qb.grad(lambda x: loop(x, a))(qb.array(2.0)))(qb.array(1.5))
    np.testing.assert_allclose(got, 1.5**3)
    got = qb.jit(lambda a: qb.vmap(lambda x: loop(x, a))(qb.array([1.0, 2.0])))(qb.array(1.5))
    np.testing.assert_allclose(got, [1.5**3, 2 * 1.5**3])


def test_unrolled_loops_and_concrete_predicates_may_close_over_tracers():
    f = lambda x, a: qb.fori_loop(0, 3, lambda i, c: c * a, x, unroll=True)
    np.testing.assert_allclose(qb.jit(f)(qb.array(1.0), qb.array(2.0)), 8.0)
    g = lambda x, a: qb.cond(qb.array(1.0), lambda: x * a, lambda: "never called")
    np.testing.assert_allclose(qb.jit(g)(qb.array(1.0), qb.array(2.0)), 2.0)
    h = lambda x, a: qb.fori_loop(0, 3, lambda i, c: c * a, 1.0) * x
    np.testing.assert_allclose(qb.jit(h)(qb.array(1.0), qb.array(2.0)), 8.0)


def test_values_computed_from_concrete_arrays_stay_concrete_inside_a_trace():
    def f(x):
        scale = qb.array(2.0) * 3.0 + qb.exp(qb.array(0.0))
        assert float(scale) == 7.0 and bool(scale > 1.0)
        return qb.fori_loop(0, 2, lambda i, c: c * scale, x)

    for transformed in (qb.jit(f), qb.grad(lambda x: f(x) / 49.0 * 49.0)):
        np.testing.assert_allclose(transformed(qb.array(1.0)), 49.0)
    np.testing.assert_allclose(qb.vmap(f)(qb.array([1.0, 2.0])), [49.0, 98.0])


def test_each_user_function_is_traced_once():
    calls = []

    def body(i, c, a):
        calls.append("body")
        return c * a

    f = lambda x, a: qb.fori_loop(0, 4, body, x, operands=(a,))
    x, a = qb.array(1.5), qb.array(0.5)
    for run in (qb.jit(f), qb.grad(f), qb.hessian(f), qb.vmap(f, in_axes=(0, None))):
        calls.clear()
        run(qb.array([1.0, 2.0]) if run.name == "vmap" else x, a)
        assert calls == ["body"]


def test_a_python_loop_calls_its_body_once_an_iteration_with_python_ints():
    seen = []
    qb.fori_loop(2, 5, lambda i, c: (seen.append(i), c)[1], qb.array(1.0))
    qb.scan(lambda c, i: (seen.append(i), (c, c))[1], qb.array(1.0), length=2)
    assert seen == [2, 3, 4, 0, 1] and all(type(i) is int for i in seen)
    init = qb.array(1.0)
    assert qb.fori_loop(3, 3, lambda i, c: 1 / 0, init) is init


def test_an_exception_of_the_body_passes_unchanged():
    class Mine(Exception):
        pass

    def body(i, c):
        raise Mine("text")

    for run in (
        lambda: qb.fori_loop(0, 2, body, 1.0),
        lambda: qb.jit(lambda x: qb.fori_loop(0, 2, body, x))(qb.array(1.0)),
    ):
        with pytest.raises(Mine, match="text"):
            run()


@pytest.mark.parametrize("dtype", [qb.float32, qb.float64])
def test_the_index_has_the_dtype_of_the_carry(dtype):
    x = qb.array([1.0, 2.0], dtype=dtype)
    carry, indices = qb.jit(lambda x: qb.scan(lambda c, i: (c, i), x, length=3))(x)
    assert indices.dtype == dtype and indices.tolist() == [0.0, 1.0, 2.0] and carry.dtype == dtype


def test_the_index_counts_from_lower_and_is_not_mapped():
    f = lambda x: qb.fori_loop(3, 6, lambda i, c: c * 10.0 + i, x)
    np.testing.assert_array_equal(qb.jit(f)(qb.array(0.0)), 345.0)
    np.testing.assert_array_equal(qb.vmap(f)(qb.array([0.0, 1.0])), [345.0, 1345.0])


@pytest.mark.parametrize(
    "bad, error", [(True, TypeError), (1.0, TypeError), ("2", TypeError), (None, TypeError), (-1, ValueError)]
)
@pytest.mark.parametrize("name", ["lower", "upper", "length"])
def test_bounds_are_static_non_negative_integers(name, bad, error):
    runs = {
        "lower": lambda: qb.fori_loop(bad, 3, lambda i, c: c, 1.0),
        "upper": lambda: qb.fori_loop(0, bad, lambda i, c: c, 1.0),
        "length": lambda: qb.scan(lambda c, i: (c, c), 1.0, length=bad),
    }
    with pytest.raises(error):
        runs[name]()


def test_a_traced_bound_names_the_argument():
    with pytest.raises(qb.TracerError, match="upper is a TraceTensor.*while_loop"):
        qb.jit(lambda n, x: qb.fori_loop(0, n, lambda i, c: c, x))(qb.array(3.0), qb.array(1.0))


def test_integer_operands_ride_along():
    """An extension: Quabla has no integer arrays."""
    table = jnp.asarray([2, 3])
    f = lambda x, t: qb.fori_loop(0, 2, lambda i, c, t: c * t[0] + t[1], x, operands=(t,))
    np.testing.assert_array_equal(qb.jit(f)(qb.array(1.0), table), 13.0)
    gradient, none = qb.grad(f, argnums=(0, 1))(qb.array(1.0), table)
    assert gradient == 4.0 and none is None


def test_a_predicate_that_reads_no_argument_of_its_own_is_both_errors():
    f = lambda x, a: qb.while_loop(lambda c: a > 0.0, lambda c: c * 2.0, x)
    for kind in (qb.TracerError, ValueError):
        with pytest.raises(kind, match="predicate of while_loop"):
            qb.jit(f)(qb.array(1.0), qb.array(1.0))


def test_using_a_tracer_as_a_python_value_is_a_tracer_error():
    x = qb.array(1.0)
    uses = [
        lambda x: 1.0 if x > 0 else 2.0,
        lambda x: float(x),
        lambda x: [0.0] * int(x),
        lambda x: np.asarray(x),
        lambda x: list(range(x)),
    ]
    for use in uses:
        for run in (qb.jit, qb.grad, qb.vmap):
            with pytest.raises(qb.TracerError):
                run(lambda x: x * 1.0 if use(x) is None else x)(qb.array([1.0]) if run is qb.vmap else x)
        with pytest.raises(qb.TracerError):
            qb.jit(lambda x: qb.fori_loop(0, 2, lambda i, c: c if use(c) is None else c, x))(x)


def test_a_leaked_tracer_is_a_tracer_error():
    kept = []
    qb.jit(lambda x: (kept.append(x), x)[1])(qb.array(1.0))
    with pytest.raises(qb.TracerError, match="another trace"):
        qb.jit(lambda y: y * kept[0])(qb.array(1.0))


def test_no_trips_over_a_constant_still_count_as_computed_from_the_operands():
    f = lambda x: qb.fori_loop(0, 0, lambda i, c, x: c * x, qb.array(2.0), operands=(x,))
    assert qb.grad(f)(qb.array(1.5)) == 0.0 and qb.jit(f)(qb.array(1.5)) == 2.0
    g = lambda x: qb.fori_loop(3, 3, lambda i, c: c * c, x)
    assert qb.grad(g)(qb.array(1.5)) == 1.0 and qb.hessian(g)(qb.array(1.5)) == 0.0
