"""What JAX's own control-flow tests look at, looked at here: forwarding, linearity, batching, caches, effects, references."""

import functools
import gc
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from quabla_jax.compat import lax

ENGINE = types.SimpleNamespace(
    scan=functools.partial(lax.scan, checkpoint="sqrt"),
    fori_loop=functools.partial(lax.fori_loop, checkpoint="sqrt"),
    while_loop=lax.while_loop,
    cond=lax.cond,
    switch=lax.switch,
)
BOTH = (ENGINE, jax.lax)
XS = jnp.linspace(0.2, 1.4, 7)


def same(got, want, rtol=1e-11):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-12), got, want)


def scan_by_hand(f, c, xs, reverse=False):
    n, ys = len(jax.tree.leaves(xs)[0]), []
    for i in reversed(range(n)) if reverse else range(n):
        c, y = f(c, jax.tree.map(lambda x: x[i], xs))
        ys.append(y)
    return c, jax.tree.map(lambda *y: jnp.stack(y), *(ys[::-1] if reverse else ys))


def shuffled_body(rng):
    """A body some of whose carries, constants and slices move on untouched, in a random order."""
    nc, nx = rng.integers(1, 4), rng.integers(1, 4)
    order, source = rng.permutation(nc), rng.integers(0, 3, nc)
    y_source = rng.integers(0, 4, nx + 1)
    consts = [jnp.asarray(rng.normal(size=2)) for _ in range(2)]

    def body(c, x):
        fresh = [jnp.sin(v) * jnp.sum(consts[0]) + jnp.sum(x[0]) for v in c]
        new = [(c[i], fresh[i], c[(i + 1) % nc])[source[i]] for i in order]
        ys = [(x[k % nx], c[k % nc], jnp.cos(x[k % nx]) * consts[1].sum(), 0.5)[y_source[k]] for k in range(nx + 1)]
        return new, ys

    return body, list(rng.normal(size=nc)), [jnp.asarray(rng.normal(size=4)) for _ in range(nx)]


@pytest.mark.parametrize("seed", range(12))
def test_operands_that_pass_through_in_any_order(seed):
    body, init, xs = shuffled_body(np.random.default_rng(seed))
    reverse = bool(seed % 2)
    by_hand = functools.partial(scan_by_hand, reverse=reverse)
    engine = functools.partial(ENGINE.scan, reverse=reverse)
    same(engine(body, init, xs), by_hand(body, init, xs))

    def pulled(loop):
        out, pull = jax.vjp(functools.partial(loop, body), init, xs)
        return pull(jax.tree.map(jnp.cos, out))

    same(jax.jit(lambda: pulled(engine))(), pulled(by_hand))


@pytest.mark.parametrize("seed", range(6))
def test_switch_whose_branches_pass_operands_on(seed):
    rng = np.random.default_rng(seed)
    kinds = rng.integers(0, 3, (3, 3))

    def branch(row, xs):
        return [(xs[k], jnp.sin(xs[k]) * (k + 1), xs[(k + 1) % 3])[kind] for k, kind in enumerate(row)]

    branches = [functools.partial(branch, row) for row in kinds]
    args = [jnp.asarray(v) for v in rng.normal(size=3)]
    for i in (-1, 0, 1, 2, 3):
        chosen = branches[min(max(i, 0), 2)]
        for f in (
            lambda xs: lax.switch(i, branches, xs),
            lambda xs: jax.jit(lax.switch, static_argnums=1)(i, tuple(branches), xs),
        ):
            same(f(args), chosen(args))
        same(jax.jacrev(lambda xs: lax.switch(i, branches, xs))(args), jax.jacrev(chosen)(args))


def linear_in(L):
    return {
        "scan": lambda v: L.scan(lambda c, x: (0.5 * c + x, 2.0 * c), v[0], v)[1],
        "fori_loop": lambda v: L.fori_loop(0, 5, lambda i, c: c * 0.9 + v, v),
        "cond": lambda v: L.cond(True, lambda v: v * 2.0, lambda v: -v, v),
        "switch": lambda v: L.switch(1, [lambda v: v, lambda v: v[::-1]], v),
    }


@pytest.mark.parametrize("name", linear_in(ENGINE))
def test_linear_programs_transpose(name):
    got, want = (jax.linear_transpose(linear_in(L)[name], XS)(jnp.cos(XS)) for L in BOTH)
    same(got, want)
    got, want = (jax.jit(lambda c, L=L: jax.linear_transpose(linear_in(L)[name], XS)(c))(jnp.sin(XS)) for L in BOTH)
    same(got, want)


def test_linearize_once_push_often():
    def f(L):
        return lambda a: L.scan(lambda c, x: (jnp.sin(c) * x, L.cond(c > 0.3, jnp.cos, jnp.tanh, c)), a, XS)

    (out, push), (want, want_push) = (jax.linearize(f(L), 0.4) for L in BOTH)
    same(out, want)
    for t in (0.0, 1.0, -2.5):
        same(push(t), want_push(t))
    same(jax.vmap(push)(XS), jax.vmap(want_push)(XS))


def test_symbolic_zeros_reach_custom_rules_in_bodies():
    def program(L):
        seen = []

        @jax.custom_jvp
        def f(x, y):
            return x * jnp.sin(y)

        @functools.partial(f.defjvp, symbolic_zeros=True)
        def rule(primals, tangents):
            seen.append([type(t).__name__ for t in tangents])
            x, y = primals
            dx, dy = (0.0 if "Zero" in type(t).__name__ else t for t in tangents)
            return f(x, y), dx * jnp.sin(y) + x * jnp.cos(y) * dy

        value = jax.grad(lambda a: L.scan(lambda c, x: (f(c, x), None), a, XS)[0])(0.7)
        return value, seen[-1]

    (got, zeros), (want, want_zeros) = program(ENGINE), program(jax.lax)
    same(got, want)
    assert zeros == want_zeros


def test_a_tangent_rule_that_switches_transposes():
    """The rule's own switch is linear in the tangent and is transposed inside the loop."""

    def program(L):
        @jax.custom_jvp
        def f(x):
            return L.switch((x > 0.5).astype(int), [jnp.sin, jnp.cos], x)

        f.defjvp(lambda p, t: (f(*p), L.switch((p[0] > 0.5).astype(int), [lambda t: 2 * t, lambda t: -t], *t)))
        return jax.grad(lambda a: L.scan(lambda c, x: (f(c) * x, c), a, XS)[1].sum())(0.3)

    same(program(ENGINE), program(jax.lax))


def test_switch_whose_branches_differ_in_weak_type_has_a_gradient():
    branches = [lambda x: x, lambda x: x + jnp.float64(1)]
    for x in (0.0, 1.0):
        f = lambda L: jax.grad(lambda x: L.switch(x.astype(int), branches, x))(x)
        assert f(lax) == f(jax.lax) == 1.0


@pytest.mark.parametrize("order", ["vmap of grad", "grad of vmap"])
def test_a_guarded_square_root_has_no_nan(order):
    safe = lambda x: lax.cond(x < 1e-3, lambda: 1e-3, lambda: jnp.sqrt(x))
    if order == "vmap of grad":
        got = jax.vmap(jax.grad(safe))(jnp.asarray([0.0, 4.0]))
    else:
        got = jax.grad(lambda x: jax.vmap(safe)(x).sum())(jnp.asarray([0.0, 4.0]))
    np.testing.assert_allclose(got, [0.0, 0.25])


# ---- batching: what stays unbatched


def test_unmapped_results_stay_unmapped():
    x, y = jnp.arange(3), jnp.asarray(3.0)

    def through_cond(x, y):
        return lax.cond(x < 3, lambda x, y: (x * 2, y), lambda x, y: (x * 3, y), x, y)

    _, same_y = jax.vmap(through_cond, in_axes=(0, None), out_axes=(0, None))(x, y)
    assert same_y is y

    def through_while(w, x, n):
        _, x, w = lax.while_loop(lambda v: v[0] < n, lambda v: (v[0] + 1, v[1] @ v[2], v[2]), (0, x, w))
        return w, x

    w = jnp.ones((2, 2))
    got, _ = jax.vmap(through_while, in_axes=(None, 0, 0), out_axes=(None, 0))(w, jnp.ones((4, 2)), jnp.arange(4))
    np.testing.assert_array_equal(got, w)

    def through_scan(x, y):
        hold = lambda _, y: ENGINE.scan(lambda y, _: (y, None), y, None, length=3)[0]
        return lax.cond(x < 0, hold, hold, x, y)

    assert jax.vmap(through_scan, (0, None), None)(jnp.arange(3.0), 3.0) == 3.0


@pytest.mark.parametrize("in_axes", [(None, 0), (0, None), (1, None), (None, 1), (1, 2), (0, 1)], ids=str)
@pytest.mark.parametrize("way", ["plain", "unroll", "checkpoint", "jit"])
def test_vmap_of_scan_along_every_axis(in_axes, way):
    if way != "plain" and in_axes not in ((1, 2), (None, 0)):
        pytest.skip("one pattern with all axes and one with few is enough for the wrapped loops")
    rng = np.random.default_rng(1)
    place = lambda shape, axis: shape if axis is None else (*shape[:axis], 5, *shape[axis:])
    c, xs = (jnp.asarray(rng.normal(size=place(s, a))) for s, a in zip([(4,), (6, 3)], in_axes))

    def f(c, x):
        b = jnp.cos(jnp.sum(jnp.sin(x)) + jnp.sum(jnp.cos(c)))
        return jnp.sin(c * b), b

    scan = {
        "plain": ENGINE.scan,
        "unroll": functools.partial(ENGINE.scan, unroll=4),
        "checkpoint": lambda f, c, xs: jax.checkpoint(functools.partial(ENGINE.scan, f))(c, xs),
        "jit": lambda f, c, xs: jax.jit(ENGINE.scan, static_argnums=0)(f, c, xs),
    }[way]
    run = lambda loop: jax.vmap(functools.partial(loop, f), in_axes)(c, xs)
    same(run(scan), run(scan_by_hand))
    loss = lambda loop: lambda c, xs: jnp.sum(jax.vmap(functools.partial(loop, f), in_axes)(c, xs)[1] ** 2)
    same(jax.grad(loss(scan), (0, 1))(c, xs), jax.grad(loss(jax.lax.scan), (0, 1))(c, xs))


def test_spmd_axis_name_and_nested_vmap():
    f = lambda L: lambda x, n: L.fori_loop(0, n, lambda _, x: x + 1, x)
    x, n = jnp.arange(3), jnp.arange(4)
    run = lambda L: jax.vmap(jax.vmap(f(L), (None, 0)), (0, None))(x, n)
    np.testing.assert_array_equal(run(ENGINE), run(jax.lax))
    mesh = jax.make_mesh((1,), ("data",))
    with jax.set_mesh(mesh):
        step = lambda L: jax.jit(jax.vmap(lambda x: L.scan(lambda c, t: (c + t, c * t), x, XS), spmd_axis_name="data"))(
            jnp.ones(2)
        )
        same(step(ENGINE), step(jax.lax))


# ---- caches, compilations, memory


def test_eager_cond_compiles_as_rarely_as_jax():
    from jax._src import test_util  # noqa: TID251  the counter of JAX's own tests

    f, g = lambda x: x + 1, lambda x: x + 2
    for run in (lambda k: lax.cond(k, f, g, k), lambda k: lax.switch(k, [f, g], k)):
        with test_util.count_jit_and_pmap_lowerings() as count:
            for k in range(8):
                run(k)
        assert count() < 5


def test_eager_loops_compile_once():
    from jax._src import test_util  # noqa: TID251

    step = lambda c, x: (jnp.sin(c) * x, c)
    for run in (lambda: ENGINE.scan(step, 0.5, XS), lambda: jax.grad(lambda a: ENGINE.scan(step, a, XS)[0])(0.5)):
        run()
        with test_util.count_jit_and_pmap_lowerings() as count:
            run(), run()
        assert count() == 0


def test_conditionals_leave_no_arrays_behind():
    def run():
        data = jax.device_put(np.ones(512, np.float32))
        program = jax.jit(lambda: lax.cond(True, jax.jit(lambda: data[0]), lambda: data[1]))
        program().block_until_ready()
        program.clear_cache()

    run()
    gc.collect()
    before = len(jax.live_arrays())
    run(), run()
    gc.collect()
    assert len(jax.live_arrays()) <= before


def test_static_arguments_and_donation():
    step = lambda c, x: (c * x, c)
    run = jax.jit(ENGINE.scan, static_argnums=(0,), donate_argnums=(1,))
    same(run(step, jnp.ones(3), XS), jax.lax.scan(step, jnp.ones(3), XS))


# ---- effects and references


@pytest.mark.parametrize("ordered", [False, True])
def test_io_callbacks_fire_once_a_step(ordered):
    from jax.experimental import io_callback

    def program(L):
        seen = []

        def step(c, x):
            got = io_callback(lambda v: (seen.append(float(v)), np.float64(v) * 2)[1], XS[0], c, ordered=ordered)
            return c * x, got

        out = jax.jit(lambda: L.scan(step, 0.5, XS))()
        jax.block_until_ready(out)
        L.fori_loop(0, 3, lambda i, c: (io_callback(seen.append, None, i * 1.0, ordered=ordered), c)[1], 0)
        L.cond(True, lambda: io_callback(seen.append, None, 9.0, ordered=ordered), lambda: None)
        jax.effects_barrier()
        return out, [float(v) for v in seen]

    (out, seen), (want, want_seen) = program(ENGINE), program(jax.lax)
    same(out, want)
    assert (seen if ordered else sorted(seen)) == (want_seen if ordered else sorted(want_seen)) and len(seen) == 11


def ref_programs(L):
    def by_index(x):
        ref = jax.new_ref(jnp.zeros(5))
        L.scan(lambda c, i: (ref.__setitem__(i, c), (c * x, None))[1], x, jnp.arange(5))
        return ref[...]

    def accumulated(x):
        ref = jax.new_ref(jnp.zeros(()))
        L.fori_loop(0, 5, lambda i, _: ref.__setitem__(..., ref[...] + x * i), None)
        return ref[...]

    def in_a_branch(x):
        ref = jax.new_ref(x)
        L.switch(1, [lambda: None, lambda: ref.__setitem__(..., ref[...] * 3)])
        L.while_loop(lambda i: i < 3, lambda i: (ref.__setitem__(..., ref[...] + 1), i + 1)[1], 0)
        return ref[...]

    def made_inside(x):
        def step(c, t):
            ref = jax.new_ref(c)
            ref[...] = ref[...] * t
            return ref[...], c

        return L.scan(step, x, XS)

    return {f.__name__: f for f in (by_index, accumulated, in_a_branch, made_inside)}


@pytest.mark.parametrize("name", ref_programs(ENGINE))
def test_references(name):
    f, g = (ref_programs(L)[name] for L in BOTH)
    same(f(jnp.asarray(0.7)), g(jnp.asarray(0.7)))
    same(jax.jit(f)(0.7), jax.jit(g)(0.7))
    if name in ("made_inside", "by_index"):
        same(jax.jvp(f, (0.7,), (1.0,)), jax.jvp(g, (0.7,), (1.0,)))
        same(jax.jacrev(f)(0.7), jax.jacrev(g)(0.7))


def test_without_jit_mutable_carries_are_not_shared():
    def body(c):
        x, y = c
        x += 1
        return x, y + x

    def run(L):
        start = np.array(1.0)
        return L.while_loop(lambda c: c[0] < 10, body, (start, start))[1]

    with jax.disable_jit():
        assert run(lax) == run(jax.lax)
        vmapped = jax.vmap(lambda y: lax.while_loop(lambda x: x < 10.0, lambda x: x + 1.0, y))(jnp.asarray([3.0, 4.5]))
        np.testing.assert_array_equal(vmapped, [10.0, 10.5])
        jax.vmap(lambda t: lax.cond(t > 0, lambda: 0, lambda: 1))(jnp.asarray([1]))


def test_platform_dependent_loops_take_the_branch_of_this_platform():
    dot = lambda x: jnp.dot(x, x)
    loop = lambda x: ENGINE.scan(lambda c, t: (c + t * t, None), 0.0, x)[0]
    f = lambda x: jnp.sin(jax.lax.platform_dependent(x, cpu=loop, default=dot))
    same(jax.grad(f)(XS), jax.grad(lambda x: jnp.sin(dot(x)))(XS))
    in_cond = lambda x: lax.cond(x[0] > 0, f, dot, x)
    same(jax.jit(jax.vmap(in_cond))(jnp.stack([XS, -XS])), jnp.stack([jnp.sin(dot(XS)), dot(XS)]))


def test_pytrees_whose_two_flattenings_differ_in_their_static_part():
    class Node:
        def __init__(self, x, y):
            self.x, self.y = x, y

    jax.tree_util.register_pytree_with_keys(
        Node,
        lambda o: ((("x", o.x), ("y", o.y)), "with keys"),
        lambda _, xy: Node(*xy),
        lambda o: ((o.x, o.y), "without keys"),
    )
    step = lambda c, x: (Node(c.x * x, c.y + 1), c.x)
    same(jax.tree.leaves(ENGINE.scan(step, Node(1.0, 0), XS)), jax.tree.leaves(jax.lax.scan(step, Node(1.0, 0), XS)))
    out = lax.while_loop(lambda o: o.x > 0.0, lambda c: Node(0.0, 0.0), Node(1.0, 1.0), checkpoint="auto")
    assert out.x == 0.0 and isinstance(out, Node)


@pytest.mark.parametrize("checkpoint", ["auto", 3])
def test_while_carries_that_never_change_come_back_as_arrays(checkpoint):
    def count(namespace, limit, **more):
        step = lambda c: (c[0], c[1] + 1)
        return namespace.while_loop(lambda c: c[1] < c[0], step, (limit, 0), **more)

    for limit in (3, np.array(3), np.float32(3), 2.5):
        got, want = count(lax, limit, checkpoint=checkpoint), count(jax.lax, limit)
        for a, b in zip(got, want, strict=True):
            assert isinstance(a, jax.Array) and (a.dtype, a.weak_type, a) == (b.dtype, b.weak_type, b)


def test_while_without_jit():
    loop = lambda x: lax.while_loop(lambda x: x < 10.0, lambda x: x + 1.0, x, checkpoint="auto")
    with jax.disable_jit():
        assert loop(np.array(3.5)) == 10.5
        np.testing.assert_array_equal(jax.vmap(loop)(jnp.array([3.0, 4.5])), [10.0, 10.5])


@pytest.mark.parametrize("checkpoint", ["auto", 3])
def test_axis_index_in_a_loop_whose_operands_are_not_mapped(checkpoint):
    index = lambda: jax.lax.axis_index("lanes")
    to_index = lambda n, x, **more: n.while_loop(lambda c: c < index(), lambda c: c + 2, x, **more)
    grow = lambda n, x, **more: n.scan(lambda c, _: (c + index(), c), x, None, length=40, **more)
    beside = lambda n, x, y, **more: n.scan(lambda c, _: ((c[0] + index(), c[1] + y), None), (x, y), None, 40, **more)
    lanes = jnp.arange(4.0)
    for f in (to_index, grow):
        got, want = (
            jax.vmap(lambda _, x: f(n, x, **more), (0, None), axis_name="lanes")(lanes, 0)  # noqa: B023
            for n, more in ((lax, {"checkpoint": checkpoint}), (jax.lax, {}))
        )
        jax.tree.map(np.testing.assert_array_equal, got, want)
    got, want = (
        jax.vmap(lambda y, x: beside(n, x, y, **more), (0, None), axis_name="lanes")(lanes, 0)  # noqa: B023
        for n, more in ((lax, {"checkpoint": checkpoint}), (jax.lax, {}))
    )
    jax.tree.map(np.testing.assert_array_equal, got, want)


AXIS_PROGRAMS = {
    "stacked alone": lambda n, y, **more: n.scan(
        lambda c, _: (c + y, jax.lax.axis_index("lanes") + 0.0), y, None, 40, **more
    ),
    "carried": lambda n, y, **more: n.scan(
        lambda c, _: ((jnp.sin(c[0]) + jax.lax.axis_index("lanes"), c[1] * 0.5 * y + c[0]), c[0]),
        (0.0, y),
        None,
        40,
        **more,
    ),
    "summed": lambda n, y, **more: n.scan(lambda c, _: (c + jax.lax.psum(y, "lanes"), c * y), 0.0, None, 40, **more),
}


@pytest.mark.parametrize("transform", ["value", "grad", "hessian", "outer"])
@pytest.mark.parametrize("name", AXIS_PROGRAMS)
def test_collectives_over_the_mapped_axis(name, transform):
    """What differs between lanes is found as JAX finds it: the index does, a sum over the lanes does not."""

    def run(n, **more):
        f = lambda y: AXIS_PROGRAMS[name](n, y, **more)
        loss = lambda y: sum(jnp.sum(jnp.sin(out)) for out in jax.tree.leaves(f(y)))
        over_lanes = lambda g: jax.vmap(g, axis_name="lanes")(jnp.linspace(0.1, 1.0, 4))
        if transform == "outer":
            return jax.grad(lambda y: jnp.sum(jax.vmap(loss, axis_name="lanes")(y)))(jnp.linspace(0.1, 1.0, 4))
        return over_lanes({"value": f, "grad": jax.grad(loss), "hessian": jax.hessian(loss)}[transform])

    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-11), run(lax, checkpoint=3), run(jax.lax))


def test_a_sum_over_the_mapped_axis_is_one_for_all_lanes():
    out = jax.vmap(
        lambda y: lax.scan(lambda c, _: (c + jax.lax.psum(y, "lanes"), None), 0.0, None, 40, checkpoint=3)[0],
        axis_name="lanes",
        out_axes=None,
    )
    assert float(out(jnp.arange(4.0))) == 240.0
