"""while_loop with checkpoint=: every order and mode against a loop of fixed length with masks, in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from quabla_jax.loops.whiles import while_loop

TOLERANCE = dict(rtol=1e-12, atol=1e-13)
MOST = 14  # steps of the reference loop


def reference(cond, body, init, checkpoint=None):
    """Runs MOST steps and keeps the carry once the condition has failed."""

    def step(carry, _):
        run = cond(carry)
        return jax.tree.map(lambda a, b: jnp.where(run, a, b), body(carry), carry), None

    return lax.scan(step, init, None, length=MOST)[0]


def growth(loop, slots, limit):
    """A captured matrix, a float counter that depends on the parameter by zero, and a carry that only later steps read."""

    def f(p):
        w = jnp.sin(jnp.arange(9.0).reshape(3, 3)) * p

        def body(s):
            x, t, z = s["x"], s["t"], s["z"]
            return {"x": x + 0.1 * jnp.tanh(w @ x + 0.1 * z), "t": t + 0.3 + 0.0 * p, "z": z * 1.01 + x[0]}

        init = {"x": jnp.ones(3) * p, "t": 0.0 * p, "z": jnp.float64(0.5)}
        out = loop(lambda s: s["t"] < limit, body, init, checkpoint=slots)
        return jnp.sum(out["x"] ** 2) + out["z"]

    return f


def derivative(f):
    return lambda p: jax.jvp(f, (p,), (1.0,))[1]


MODES = {
    "value": lambda f: f(1.3),
    "jvp": lambda f: derivative(f)(1.3),
    "linearize": lambda f: jax.linearize(f, 1.3)[1](1.0),
    "grad": lambda f: jax.grad(f)(1.3),
    "jit grad": lambda f: jax.jit(jax.grad(f))(1.3),
    "transpose of linearize": lambda f: jax.linear_transpose(jax.linearize(f, 1.3)[1], 1.3)(1.0)[0],
    "jvp of grad": lambda f: derivative(jax.grad(f))(1.3),
    "grad of jvp": lambda f: jax.grad(derivative(f))(1.3),
    "grad of grad": lambda f: jax.grad(jax.grad(f))(1.3),
    "hessian": lambda f: jax.hessian(f)(1.3),
    "grad of checkpoint": lambda f: jax.grad(jax.checkpoint(f))(1.3),
    "grad through scan": lambda f: jax.grad(
        lambda p: lax.scan(lambda c, _: (c + 0.1 * f(c), None), p, None, length=2)[0]
    )(0.9),
    "grad through cond": lambda f: jax.grad(lambda p: lax.cond(p > 0, f, lambda p: p, p))(1.3),
    "vmap of grad": lambda f: jax.vmap(jax.grad(f))(jnp.array([1.3, 0.7])),
    "grad of vmap": lambda f: jax.grad(lambda q: jax.vmap(f)(q).sum())(jnp.array([1.3, 0.7])),
    "third order": lambda f: jax.jit(jax.grad(jax.grad(jax.grad(f))))(1.3),
}
SLOW_MODES = {
    "jvp of grad of jvp": lambda f: derivative(jax.grad(derivative(f)))(1.3),
    "grad of grad of checkpoint": lambda f: jax.grad(jax.grad(jax.checkpoint(f)))(1.3),
    "vmap of hessian": lambda f: jax.vmap(jax.hessian(f))(jnp.array([1.3, 0.7])),
    "fourth order": lambda f: jax.jit(jax.grad(jax.grad(jax.grad(jax.grad(f)))))(1.3),
    "fourth order, mixed": lambda f: derivative(jax.grad(derivative(jax.grad(f))))(1.3),
    "hessian through scan": lambda f: jax.hessian(
        lambda p: lax.scan(lambda c, _: (c + 0.01 * f(c), None), p, None, length=2)[0]
    )(0.9),
    "vmap of third order": lambda f: jax.vmap(jax.grad(jax.grad(jax.grad(f))))(jnp.array([1.3, 0.7])),
    "hessian of vmap": lambda f: jax.hessian(lambda q: jax.vmap(f)(q).sum())(jnp.array([1.3, 0.7])),
    "vmap of cond": lambda f: jax.grad(lambda q: jax.vmap(lambda p: lax.cond(p > 1, f, lambda p: p, p))(q).sum())(
        jnp.array([1.3, 0.7])
    ),
}


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_agrees_with_a_masked_loop(mode):
    run = MODES[mode]
    np.testing.assert_allclose(run(growth(while_loop, 5, 3.8)), run(growth(reference, 5, 3.8)), **TOLERANCE)


@pytest.mark.slow
@pytest.mark.parametrize("limit", [0.0, 0.5, 3.8])
@pytest.mark.parametrize("slots", [1, 2, 3, 4, 8, "auto"])
@pytest.mark.parametrize("mode", [*MODES, *SLOW_MODES])
def test_every_mode_at_every_pool(mode, slots, limit):
    run = (MODES | SLOW_MODES)[mode]
    np.testing.assert_allclose(run(growth(while_loop, slots, limit)), run(growth(reference, slots, limit)), **TOLERANCE)


@pytest.mark.parametrize("slots", [1, 3, 6])
def test_trip_counts_from_none_to_far_past_the_pool(slots):
    """One executable for all trip counts; steps that a pool of this size reverses in several levels, and quadratically."""

    def f(loop, p, limit):
        return loop(lambda s: s[1] < limit, lambda s: (jnp.sin(s[0] * p) + s[0], s[1] + 1), (p, 0), checkpoint=slots)[0]

    ours = jax.jit(jax.grad(lambda p, n: f(while_loop, p, n)))

    def fixed(p, n):
        x = p
        for _ in range(n):
            x = jnp.sin(x * p) + x
        return x

    for n in (0, 1, 2, 3, 5, 6, 7, 12, 13, 40):
        np.testing.assert_allclose(ours(0.3, n), jax.grad(fixed)(0.3, n), **TOLERANCE)


def test_integers_keys_and_bools_ride_along():
    def f(loop, p):
        def body(s):
            key, x, k, flag = s
            key, sub = jax.random.split(key)
            return key, x + 0.1 * jax.random.normal(sub, (3,)) * jnp.cos(x) * jnp.where(flag, 1.0, k), k + 1, ~flag

        init = (jax.random.key(0), jnp.ones(3) * p, jnp.int32(0), jnp.bool_(True))
        out = loop(lambda s: s[2] < 7, body, init)
        return jnp.sum(out[1] ** 2), (jax.random.key_data(out[0]), out[2], out[3])

    fixed = lambda cond, body, init: lax.scan(lambda s, _: (body(s), None), init, None, length=7)[0]
    ours = lambda p: f(lambda *a: while_loop(*a, checkpoint=4), p)
    theirs = lambda p: f(fixed, p)
    for got, want in zip(ours(1.1)[1], theirs(1.1)[1]):
        np.testing.assert_array_equal(got, want)
    np.testing.assert_allclose(
        jax.grad(ours, has_aux=True)(1.1)[0], jax.grad(theirs, has_aux=True)(1.1)[0], **TOLERANCE
    )
    second = lambda f: jax.grad(lambda p: jax.grad(f, has_aux=True)(p)[0])(1.1)
    np.testing.assert_allclose(second(ours), second(theirs), **TOLERANCE)


def test_weak_types_promote_as_in_jax():
    body = lambda s: (s[0] * 1.5, s[1] + 1)
    ours = while_loop(lambda s: s[1] < 4, body, (1.0, 0), checkpoint=4)
    theirs = lax.while_loop(lambda s: s[1] < 4, body, (1.0, 0))
    for a, b in zip(ours, theirs):
        assert a.dtype == b.dtype and a.weak_type == b.weak_type
        np.testing.assert_array_equal(a, b)
    weak = lambda p: while_loop(lambda s: s[1] < 4, lambda s: (s[0] * p + 0.0 * p, s[1] + 1), (1.0, 0), checkpoint=4)[0]
    np.testing.assert_allclose(jax.grad(jax.checkpoint(weak))(1.3), 4 * 1.3**3, rtol=1e-12)


def test_without_checkpoint_it_is_jax():
    f = lambda p: while_loop(lambda x: x < 9.0, lambda x: x * p, p)
    assert str(jax.make_jaxpr(f)(2.0)) == str(
        jax.make_jaxpr(lambda p: lax.while_loop(lambda x: x < 9.0, lambda x: x * p, p))(2.0)
    )
    with pytest.raises(ValueError, match="Reverse-mode differentiation does not work"):
        jax.grad(f)(2.0)


def test_forward_mode_is_one_loop():
    """The jvp of a loop is a single while of the dual body, as in jax.lax."""
    f = lambda p: while_loop(lambda s: s[1] < 9.0, lambda s: (jnp.sin(s[0] * p), s[1] + 1.0), (p, 0.0), checkpoint=4)[0]
    text = jax.jit(lambda p: jax.jvp(f, (p,), (1.0,))).lower(0.5).as_text()
    assert text.count("stablehlo.while") == 1


def test_errors_are_those_of_jax():
    with pytest.raises(TypeError, match="body_fun|carry"):
        while_loop(
            lambda x: x[0] < 3, lambda x: (x[0] + 1, x[1].astype(jnp.float32)), (0, jnp.float64(1)), checkpoint="auto"
        )
    with pytest.raises(TypeError, match="boolean scalar"):
        while_loop(lambda x: jnp.ones(2) > x, lambda x: x + 1, 0.0, checkpoint="auto")
    with pytest.raises(TypeError, match='expected None, "auto", a number of carries'):
        while_loop(lambda x: x < 3, lambda x: x + 1, 0.0, checkpoint="full")
    with pytest.raises(TypeError, match="got True"):
        while_loop(lambda x: x < 3, lambda x: x + 1, 0.0, checkpoint=True)
    with pytest.raises(ValueError, match="at least one slot"):
        while_loop(lambda x: x < 3, lambda x: x + 1, 0.0, checkpoint=0)


def test_effects_fire_as_in_jax():
    seen = []

    def body(x):
        jax.debug.callback(lambda v: seen.append(float(v)), x, ordered=True)
        return x + 1.0

    jax.block_until_ready(while_loop(lambda x: x < 3.0, body, 0.0, checkpoint="auto"))
    jax.effects_barrier()
    assert seen == [0.0, 1.0, 2.0]
    with pytest.raises(ValueError, match="Reverse-mode differentiation does not work"):
        jax.grad(lambda x: while_loop(lambda x: x < 3.0, body, x, checkpoint="auto"))(0.0)


def test_nested_loops():
    """A while in a while in a while, each with a trip count of its own."""

    def f(loop, p):
        inner = lambda x: loop(
            lambda s: s[1] < 2.0 + 0.0 * x, lambda s: (s[0] + 0.1 * jnp.sin(p * s[0]), s[1] + 1.0), (x, 0.0)
        )[0]
        middle = lambda x: loop(lambda s: s[1] < 3, lambda s: (inner(s[0]) * 0.9, s[1] + 1), (x, 0))[0]
        return loop(lambda s: s[1] < 2, lambda s: (middle(s[0]) + 0.1 * p, s[1] + 1), (p, 0))[0]

    ours = lambda p: f(lambda *a: while_loop(*a, checkpoint=4), p)

    def theirs(p):
        x = p
        for _ in range(2):
            for _ in range(3):
                for _ in range(2):
                    x = x + 0.1 * jnp.sin(p * x)
                x = x * 0.9
            x = x + 0.1 * p
        return x

    for order in (jax.grad, lambda f: jax.grad(jax.grad(f)), lambda f: jax.jvp(jax.grad(f), (1.2,), (1.0,))[1]):
        got, want = (o(1.2) if callable(o) else o for o in (order(ours), order(theirs)))
        np.testing.assert_allclose(got, want, **TOLERANCE)


def test_a_plain_while_inside_differentiates_as_in_jax():
    """Forward mode goes through jax.lax's own loop in the body; reverse mode is refused in JAX's words."""

    def f(loop, p):
        inner = lambda x: lax.while_loop(lambda y: y < 3.0, lambda y: y * 1.5, jnp.abs(x) + 0.1)
        return loop(lambda s: s[1] < 3, lambda s: (jnp.sin(inner(s[0] * p)), s[1] + 1), (p, 0))[0]

    ours = lambda p: f(lambda *a: while_loop(*a, checkpoint=4), p)
    theirs = lambda p: f(lambda cond, body, init: lax.fori_loop(0, 3, lambda _, s: body(s), init), p)
    np.testing.assert_allclose(derivative(ours)(1.1), derivative(theirs)(1.1), **TOLERANCE)
    np.testing.assert_allclose(jax.linearize(ours, 1.1)[1](1.0), derivative(theirs)(1.1), **TOLERANCE)
    with pytest.raises(ValueError, match="Reverse-mode differentiation does not work"):
        jax.grad(ours)(1.1)


def test_bounds_known_at_run_time():
    """fori_loop between traced bounds, with a body that reads its index."""
    from quabla_jax.loops.whiles import dynamic_fori

    w = jnp.linspace(0.1, 2.0, 12)
    ours = lambda p, n: dynamic_fori(2, n, lambda i, x: jnp.sin(x * w[i]) + p, p, checkpoint=4)

    def unrolled(p, n):
        x = p
        for i in range(2, n):
            x = jnp.sin(x * w[i]) + p
        return x

    for n in (0, 2, 3, 12):
        for order in (jax.grad, lambda f: jax.grad(jax.grad(f))):
            np.testing.assert_allclose(jax.jit(order(ours))(0.3, n), order(unrolled)(0.3, n), **TOLERANCE)


def test_memory_does_not_depend_on_the_trip_count():
    """The pool is the size of the request at first and second order, whatever the limit is."""
    n, slots = 1000, 32

    def temp(order, limit):
        def f(x):
            body = lambda s: (s[0] - 0.01 * jnp.tanh(s[0]), s[1] + 1)
            return jnp.sum(while_loop(lambda s: s[1] < limit, body, (x, 0), checkpoint=slots)[0] ** 2)

        g = f
        for _ in range(order):
            g = jax.grad(lambda x, g=g: jnp.sum(g(x)))
        return jax.jit(g).lower(jnp.ones(n)).compile().memory_analysis().temp_size_in_bytes / (8 * n)

    assert temp(1, 100) == temp(1, 10**6) <= slots + 8
    assert temp(2, 100) == temp(2, 10**6) <= 5 * slots
