"""scan and fori_loop as jax.lax has them: types, errors, effects, traces, sharding."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from quabla_jax import loops
from quabla_jax.loops.plan import Forced
from quabla_jax.lowering import jax_api as api

xs40 = jnp.arange(40.0)


def ours(f, init, xs=None, length=None, **kw):
    return loops.scan(f, init, xs, length, checkpoint="sqrt", **kw)


@pytest.mark.parametrize("init", [1, 1.0, jnp.float32(1), np.float64(2), True and jnp.int8(3)])
def test_types_are_those_of_lax(init):
    body = lambda c, x: (c + (x * 0).astype(c.dtype), (c, x))
    got, want = ours(body, init, xs40), lax.scan(body, init, xs40)
    assert jax.tree.map(jax.typeof, got) == jax.tree.map(jax.typeof, want)


def test_fori_loop_keeps_weak_types():
    f = lambda i, x: x * 2
    got, want = loops.fori_loop(0, 40, f, 1.0, checkpoint="sqrt"), lax.fori_loop(0, 40, f, 1.0)
    assert got == want and got.weak_type == want.weak_type


@pytest.mark.parametrize(
    "f,init,xs",
    [
        (lambda c, x: ((c, c), x), 1.0, xs40),
        (lambda c, x: (c.astype(int), x), 1.0, xs40),
        (lambda c, x: (c, x), 1.0, None),
        (lambda c, x: (c, x), "a", xs40),
        (lambda c, x: c, 1.0, xs40),
        (lambda c, x: (c, x), 1.0, (xs40, xs40[:3])),
        (lambda c, x: ({"a": c["a"], "b": c["b"][None]}, x), {"a": 1.0, "b": xs40}, xs40),
    ],
)
def test_errors_are_those_of_lax(f, init, xs):
    with pytest.raises(Exception) as want:
        lax.scan(f, init, xs)
    with pytest.raises(type(want.value)) as got:
        ours(f, init, xs)
    assert str(got.value) == str(want.value)


def test_no_steps():
    carry, y = ours(lambda c, x: (c + x, c), 1.0, jnp.zeros((0,)))
    assert carry == 1.0 and y.shape == (0,)
    assert jax.grad(lambda p: loops.fori_loop(3, 3, lambda i, x: x * p, p, checkpoint="sqrt"))(2.0) == 1.0


def test_body_is_traced_as_often_as_under_lax():
    def traces(scan):
        count = []

        def body(c, x):
            count.append(1)
            return jnp.sin(c) * x, c

        jax.jit(jax.grad(lambda p: scan(body, p, xs40)[0]))(1.0)
        return len(count)

    assert traces(ours) == traces(lax.scan)


def test_callbacks_fire_as_under_lax():
    def run(scan):
        log = []

        def body(c, x):
            jax.debug.callback(lambda v: log.append(float(v)), c, ordered=True)
            return c * 1.1 + x, c

        jax.jit(jax.grad(lambda p: jnp.sum(scan(body, p, xs40)[1])))(1.0)
        jax.effects_barrier()
        return log

    got, want = run(ours), run(lax.scan)
    assert got == want and len(got) == 40


def test_disable_jit_runs_in_python():
    with jax.disable_jit():
        seen = []
        ours(lambda c, x: (seen.append(float(c)) or c + x, None), 1.0, xs40[:4])
    assert seen == [1.0, 1.0, 2.0, 4.0]


def test_unroll_changes_nothing():
    body = lambda c, x: (jnp.sin(c) * x + 0.5, c * x)
    f = lambda scan, **kw: jax.grad(lambda p: sum(map(jnp.sum, scan(body, p, xs40, **kw))))(0.3)
    want = f(lax.scan)
    for unroll in (2, 7, True):
        np.testing.assert_allclose(f(ours, unroll=unroll), want, rtol=1e-12)


def test_rules_of_custom_functions_are_used():
    @jax.custom_vjp
    def seven(x):
        return jnp.sin(x)

    seven.defvjp(lambda x: (jnp.sin(x), x), lambda x, g: (g * 7.0,))

    @jax.custom_jvp
    def five(x):
        return jnp.cos(x)

    five.defjvp(lambda p, t: (five(*p), t[0] * 0.5))
    f = lambda scan: lambda p: scan(lambda c, x: (five(seven(c) * 0.1) * p, None), p, xs40)[0]
    np.testing.assert_allclose(jax.grad(f(ours))(1.2), jax.grad(f(lax.scan))(1.2), rtol=1e-12)
    for scan in (ours, lax.scan):
        with pytest.raises(TypeError, match="can't apply forward-mode autodiff"):
            jax.jvp(f(scan), (1.2,), (1.0,))


def test_dynamic_bounds():
    f = lambda checkpoint: lambda p, n: loops.fori_loop(0, n, lambda i, x: jnp.sin(x) * p, p, checkpoint=checkpoint)
    want = jax.grad(lambda p: lax.fori_loop(0, 20, lambda i, x: jnp.sin(x) * p, p))(1.2)
    np.testing.assert_allclose(jax.jit(jax.grad(f(8)))(1.2, 20), want, rtol=1e-12)
    with pytest.raises(ValueError, match="Reverse-mode differentiation does not work"):
        jax.jit(jax.grad(f("auto")))(1.2, 20)


def test_equal_bodies_share_one_compiled_program():
    def f(p):
        return loops.scan(lambda c, x: (jnp.sin(c) * p + x, None), p, xs40, checkpoint="sqrt")[0]

    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, *_, **__: compiled.append(event) if "backend_compile" in event else None
    )
    jax.grad(f)(1.0)
    first = len(compiled)
    jax.grad(f)(1.0)
    assert first > 0 and len(compiled) == first


def test_carries_that_the_derivative_does_not_need_are_not_kept():
    def f(p):
        def body(c, _):
            x, dead = c
            return (jnp.sin(x) * p, dead * 1.01 + 1), None

        return ours(body, (p, jnp.zeros(100_000)), None, 1024)[0][0]

    program = jax.jit(jax.grad(f)).lower(1.0).compile()
    assert program.memory_analysis().temp_size_in_bytes < 100_000


def mesh(kind):
    return jax.make_mesh((4,), ("d",), axis_types=(kind,), devices=jax.devices()[:4])


@pytest.mark.skipif(len(jax.devices()) < 4, reason="needs four (virtual) devices")
@pytest.mark.parametrize("inner", ["carry", "residuals"])
def test_shard_map_with_its_checks(inner):
    W = jnp.sin(jnp.arange(9.0).reshape(3, 3))

    def loss(scan):
        def local(p, x):
            def body(c, s):
                c = c + 0.1 * jnp.tanh(W * p @ c) + 0.01 * lax.psum(c, "d") + s
                return c, jnp.sum(c)

            c, y = scan(body, x[0], jnp.ones((7, 3)) * p)
            return (jnp.sum(c**2) + jnp.sum(y))[None]

        mapped = jax.shard_map(local, mesh=mesh(jax.sharding.AxisType.Auto), in_specs=(P(), P("d")), out_specs=P("d"))
        return lambda p, x: jnp.sum(mapped(p, x))

    scan = lambda f, init, xs: loops.scan(f, init, xs, checkpoint=Forced((3,), inner))
    x = jnp.arange(12.0).reshape(4, 3) / 10
    for mode in (lambda f: jax.grad(f, (0, 1)), lambda f: jax.grad(jax.grad(f))):
        got, want = (jax.tree.leaves(jax.jit(mode(loss(s)))(1.3, x)) for s in (scan, lax.scan))
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12)


@pytest.mark.skipif(len(jax.devices()) < 4, reason="needs four (virtual) devices")
def test_sharded_carries_stay_sharded():
    m = mesh(jax.sharding.AxisType.Explicit)
    f = lambda scan: lambda x: jnp.sum(scan(lambda c, _: (c + 0.1 * jnp.tanh(c), None), x, None, 40)[0] ** 2)
    with jax.set_mesh(m):
        x = jax.device_put(jnp.arange(32.0).reshape(4, 8) / 10, NamedSharding(m, P("d")))
        got, want = (jax.jit(jax.grad(f(s)))(x) for s in (ours, lax.scan))
    np.testing.assert_allclose(got, want, rtol=1e-12)
    assert jax.typeof(got) == jax.typeof(want)


@pytest.mark.skipif(len(jax.devices()) < 4, reason="needs four (virtual) devices")
@pytest.mark.parametrize("order", [1, 2])
def test_a_mapped_cond_over_an_explicitly_sharded_axis(order):
    m = mesh(jax.sharding.AxisType.Explicit)

    def f(scan, x):
        step = lambda c, _: (lax.cond(jnp.sum(c) > 0.5, jnp.sin, lambda v: v * v, c), None)
        return jnp.sum(scan(step, x, None, 5)[0])

    def derivative(scan):
        g = jax.grad(lambda x: f(scan, x))
        return jax.jit(jax.vmap(g if order == 1 else jax.grad(lambda x: jnp.sum(jnp.cos(g(x))))))

    with jax.set_mesh(m):
        x = jax.device_put(jnp.linspace(0.1, 1, 8).reshape(4, 2), NamedSharding(m, P("d")))
        got, want = (derivative(s)(x) for s in (lambda *a: loops.scan(*a, checkpoint=Forced((2,))), lax.scan))
    np.testing.assert_allclose(got, want, rtol=1e-12)
    assert jax.typeof(got) == jax.typeof(want)


def test_a_while_loop_in_the_body_keeps_forward_mode():
    def f(scan):
        def body(c, x):
            c = lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, jnp.sin(s[1]) + x), (0, c))[1]
            return c, c * 2

        return lambda p: jnp.sum(scan(body, p, xs40 / 40)[1])

    for mode in (lambda f: jax.linearize(f, 0.7)[1](1.0), lambda f: jax.jvp(f, (0.7,), (1.0,))[1]):
        np.testing.assert_allclose(mode(f(ours)), mode(f(lax.scan)), rtol=1e-12)
    with pytest.raises(ValueError, match="Reverse-mode differentiation does not work"):
        jax.grad(f(ours))(0.7)


def test_a_carry_handed_through_is_what_it_was():
    got, want = ours(lambda c, x: (c, x * 2), 1.5, xs40)[0], lax.scan(lambda c, x: (c, x * 2), 1.5, xs40)[0]
    assert type(got) is type(want) and got == want


def test_a_weak_carry_that_a_key_rides_beside():
    """JAX's cotangent is strongly typed here, and weakly typed without the key; ours is weak in both (docs/dropin.md)."""

    def step(c, x):
        key, sub = jax.random.split(c[0])
        return (key, c[1] + x * jax.random.normal(sub, (), "float64")), c[1]

    f = lambda scan: lambda a: scan(step, (jax.random.key(1), a), xs40)[0][1]
    got, want = jax.grad(f(ours))(0.7), jax.grad(f(lax.scan))(0.7)
    assert got.dtype == want.dtype and got.weak_type and not want.weak_type
    np.testing.assert_allclose(got, want, rtol=1e-14)


def test_dynamic_bounds_cannot_be_unrolled():
    with pytest.raises(ValueError, match="Can only use `unroll`"):
        jax.jit(lambda n: loops.fori_loop(0, n, lambda i, x: x * 2, 1.0, unroll=3, checkpoint="sqrt"))(20)


def loops_in(jaxpr):
    """Names of the engine's primitives in a jaxpr and in the jaxprs that it holds."""
    found = []
    for eqn in jaxpr.eqns:
        found += [eqn.primitive.name] if eqn.primitive.name.startswith("checkpointed_loop") else []
        found += [name for inner in api.inner_jaxprs(eqn) for name in loops_in(api.open_jaxpr(inner)[0])]
    return found


@pytest.mark.parametrize(
    ("wrap", "passes"), [(lambda f: f, 1), (jax.jit, 1), (jax.checkpoint, 2)], ids=["eager", "jit", "checkpoint"]
)
@pytest.mark.parametrize("plan", ["sqrt", Forced((7,)), Forced((5, 2))], ids=["sqrt", "rest", "levels"])
def test_forward_over_reverse_runs_the_first_pass_once(plan, wrap, passes):
    """The tangents at the blocks' starts come out of the pass that the value takes (under jax.checkpoint, the repeated one)."""

    def f(scan):
        return wrap(lambda p, x: jnp.sum(jnp.sin(scan(lambda c, s: (c + 0.1 * jnp.sin(p * c + s), c), x, xs40)[1])))

    def hvp(scan):
        return lambda p, x: jax.jvp(jax.grad(f(scan), (0, 1)), (p, x), (1.0, jnp.ones(3)))

    args = (0.3, jnp.array([0.1, 0.5, 0.7]))
    mine = hvp(lambda *a: loops.scan(*a, checkpoint=plan))
    jaxpr = jax.make_jaxpr(mine)(*args)
    assert sorted(loops_in(jaxpr.jaxpr)) == [*["checkpointed_loop"] * passes, "checkpointed_loop_vtan"]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12), mine(*args), hvp(lax.scan)(*args))
    both = lambda scan: jax.jacfwd(jax.grad(lambda p: f(scan)(p, args[1])))(jnp.array([0.3, 0.4, 0.5]))
    np.testing.assert_allclose(both(lambda *a: loops.scan(*a, checkpoint=plan)), both(lax.scan), rtol=1e-12)


@pytest.mark.parametrize("blocks", [(3,), (6,), (4, 2)], ids=["even", "rest", "levels"])
def test_the_value_of_a_split_product_starts_from_what_is_kept(blocks):
    """Reverse through a Hessian-vector product in its vector alone: one pass for the gradient, one for the pulled-back product."""

    def pulled(scan):
        def f(p, x):
            return jnp.sum(scan(lambda c, s: (c + 0.1 * jnp.sin(p * c + s), c), x, xs40[:9])[0] ** 2)

        def g(p, x, v):
            product = lambda v: jax.jvp(lambda x: jax.grad(f, 1)(p, x), (x,), (v,))
            out, pull = jax.vjp(product, v)
            return out, pull((out[0], out[0]))

        return g

    args = (0.3, jnp.array([0.1, 0.5]), jnp.array([1.0, 2.0]))
    mine = pulled(lambda *a: loops.scan(*a, checkpoint=Forced(blocks)))
    assert loops_in(jax.make_jaxpr(mine)(*args).jaxpr).count("checkpointed_loop") == 2
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12), mine(*args), pulled(lax.scan)(*args))


@pytest.mark.parametrize("blocks", [(3,), (6,), (4, 2)], ids=["even", "rest", "levels"])
def test_a_loop_in_a_scan_runs_forward_once(blocks):
    """JAX's scan takes what depends on constants alone out of its body; the carries that the loop keeps depend on more."""

    def f(scan):
        def outer(p, x):
            step = lambda c, _: (scan(lambda c, s: (c + 0.1 * jnp.sin(p * c + s), None), c, xs40[:9])[0], None)
            return jnp.sum(lax.scan(step, x, None, length=3)[0])

        return jax.grad(outer, (0, 1))

    args = (0.3, jnp.array([0.1, 0.5, 0.7]))
    mine = f(lambda *a: loops.scan(*a, checkpoint=Forced(blocks)))
    names = loops_in(jax.make_jaxpr(jax.jit(mine))(*args).jaxpr)
    assert sorted(names) == ["checkpointed_loop", "checkpointed_loop_vjp"]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12), mine(*args), f(lax.scan)(*args))


def test_a_kept_carry_that_shares_a_place_with_another_branch_s_residual():
    """Linearized before it is joined, differentiated after: JAX fills in a zero where a kept carry has no tangent."""

    def f(scan):
        loop = lambda p, x: scan(lambda c, s: (c + 0.1 * jnp.sin(p * c + s), None), x, xs40[:6])[0]
        other = lambda p, x: jnp.sin(jnp.sin(jnp.sin(x[:, None] * x * p))).sum(0)

        def g(p, x):
            y, pull = jax.vjp(lambda p, x: lax.cond(x[0] < 3, loop, other, p, x), p, x)
            return jnp.sum(jax.checkpoint(lambda ct: pull(ct))(jnp.cos(y))[1])

        return lambda p, x: jax.linearize(g, p, x)[1](1.0, jnp.ones(2))

    args = (0.3, jnp.array([0.1, 0.5]))
    mine = f(lambda *a: loops.scan(*a, checkpoint=Forced((3,))))(*args)
    np.testing.assert_allclose(mine, f(lax.scan)(*args), rtol=1e-12)


@pytest.mark.parametrize("nonlinear", [False, True], ids=["jacrev", "grad"])
def test_reverse_over_a_mapped_reverse(nonlinear):
    """The mapped sweep's primals are unmapped: their cotangents are sums over the lanes."""

    def f(scan):
        loop = lambda p, x: jnp.sin(scan(lambda c, s: (c + 0.1 * jnp.sin(p * c + s), c), x, xs40[:7])[1][3])
        first = jax.jacrev(loop, (0, 1))
        if nonlinear:
            return jax.grad(lambda p, x: sum(jnp.sum(jnp.sin(t)) for t in first(p, x)), (0, 1))
        return jax.jacrev(first, (0, 1))

    args = (0.3, jnp.array([0.1, 0.5, 0.7]))
    mine = f(lambda *a: loops.scan(*a, checkpoint=Forced((3,))))(*args)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12), mine, f(lax.scan)(*args))
