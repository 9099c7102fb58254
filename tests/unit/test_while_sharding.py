"""Loops and branches over several devices: sharded arrays under jit, and shard_map with its checks.

The devices are virtual ones of the host. References are loops of a fixed length with masks, whose reverse mode is JAX's own.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from while_references import masked as masked_loop
from while_references import ours

from quabla_jax import loops

pytestmark = pytest.mark.skipif(len(jax.devices()) < 4, reason="needs four (virtual) devices")

W = jnp.sin(jnp.arange(9.0).reshape(3, 3))
X = jnp.arange(12.0).reshape(4, 3) / 10
P0 = jnp.float64(1.3)
masked = masked_loop(9)
varying = lambda x: lax.pcast(x, "d", to="varying")


def conditional(loop):
    return (loops.cond, loops.switch) if loop is ours else (lax.cond, lax.switch)


def mesh(kind):
    return jax.make_mesh((4,), ("d",), axis_types=(kind,), devices=jax.devices()[:4])


# ---- inside shard_map: each function sees one device's row x of X, and a parameter p that all devices share


def own_ends(loop, p, x):
    """Every device stops on its own; the matrix is shared."""
    body = lambda s: (s[0] + 0.1 * jnp.tanh(W * p @ s[0]), s[1] + 1)
    return loop(lambda s: s[1] < 2 + lax.axis_index("d"), body, (x, varying(jnp.int32(0))))[0]


def own_residuals(loop, p, x):
    """Newton's iteration for the roots of p + x, to a residual of each device's own."""
    body = lambda y: 0.5 * (y + (p + x) / y)
    return loop(lambda y: jnp.max(jnp.abs(y * y - p - x)) > 1e-3, body, x + 3.0)


def own_ends_meet(loop, p, x):
    """A device that has stopped still takes part in the others' sums."""
    body = lambda s: (s[0] + 0.1 * jnp.sin(p * s[0]) + 0.05 * varying(lax.psum(s[0] * p, "d")), s[1] + 1)
    return loop(lambda s: s[1] < 1 + 2 * lax.axis_index("d"), body, (x, varying(jnp.int32(0))))[0]


def collective_body(loop, p, x):
    body = lambda s: (s[0] + 0.1 * jnp.tanh(W * p @ s[0]) + 0.01 * lax.psum(s[0], "d"), s[1] + 1)
    return loop(lambda s: s[1] < 6, body, (x, jnp.int32(0)))[0]


def collective_condition(loop, p, x):
    norm = lambda x: lax.psum(jnp.sum(x**2), "d")
    return loop(lambda s: (norm(s[0]) > 0.5) & (s[1] < 6), lambda s: (s[0] * p * 0.8, s[1] + 1), (x, jnp.int32(0)))[0]


def shared_loop(loop, p, x):
    return x * loop(lambda s: s[1] < 5, lambda s: (jnp.sin(s[0]) * p, s[1] + 1), (p, jnp.int32(0)))[0]


def lanes(loop, p, x):
    """Examples of one device that stop on their own, at counts that differ between devices, too."""
    one = lambda y, n: loop(lambda s: s[1] < n, lambda s: (s[0] + 0.1 * jnp.sin(p * s[0]), s[1] + 1.0), (y, 0.0 * n))[0]
    return jax.vmap(one)(x, jnp.array([1.0, 3.0, 5.0]) + lax.axis_index("d"))


def shared_lanes(loop, p, x):
    one = lambda y, n: loop(lambda s: s[1] < n, lambda s: (s[0] + 0.1 * jnp.sin(p * s[0]), s[1] + 1.0), (y, 0.0 * n))[0]
    return jax.vmap(one)(x, jnp.array([1.0, 3.0, 5.0]))


def steps(loop, p, n=3):
    return lambda y: loop(lambda s: s[1] < n, lambda s: (s[0] + 0.1 * jnp.sin(p * s[0]), s[1] + 1), (y, jnp.int32(0)))[
        0
    ]


def nested(loop, p, x):
    return loop(lambda s: s[1] < 4, lambda s: (steps(loop, p)(s[0]), s[1] + 1), (x, jnp.int32(0)))[0]


def branches(loop, p, x):
    """cond and switch with indices of the devices' own, of examples' own."""
    cond, switch = conditional(loop)
    p = p + 0 * x[0]  # jax.lax's own mapped cond takes no shared operand beside an index that differs
    x = cond(jnp.sum(x) > 0.5, steps(loop, p), lambda y: y * p, x)
    x = jax.vmap(lambda v: cond(v > 0.3, steps(loop, p), lambda y: y * p, v))(x)
    return switch(lax.axis_index("d") % 3, [steps(loop, p), lambda y: y * p, jnp.sin], x)


def counted(loop, p, x):
    """scan with a collective in the body, in blocks."""
    scan = lax.scan if loop is masked else lambda *a, **k: loops.scan(*a, checkpoint="sqrt", **k)

    def body(c, s):
        c = c + 0.1 * jnp.tanh(W * p @ c) + 0.01 * lax.psum(c, "d") + s
        return c, jnp.sum(c)

    c, y = scan(body, x, jnp.linspace(0, 1, 12)[:, None] * jnp.ones(3) * p)
    return c * jnp.sum(y)


LOCAL = [
    own_ends,
    own_residuals,
    own_ends_meet,
    collective_body,
    collective_condition,
    shared_loop,
    lanes,
    shared_lanes,
]
LOCAL += [nested, branches, counted]


def mapped(local, loop):
    def f(p, x):
        run = lambda p, x: jnp.sum(local(loop, p, x[0]) ** 2)[None]
        return jnp.sum(jax.shard_map(run, mesh=mesh(AxisType.Auto), in_specs=(P(), P("d")), out_specs=P("d"))(p, x))

    return f


def inside(local, loop):
    """The gradient taken inside, one a device."""

    def f(p, x):
        one = lambda p, x: jnp.sum(local(loop, p, x[0]) ** 2)
        run = lambda p, x: jax.grad(one)(varying(p), x)[None]
        return jax.shard_map(run, mesh=mesh(AxisType.Auto), in_specs=(P(), P("d")), out_specs=P("d"))(p, x)

    return f


MODES = {
    "value": lambda f: f,
    "grad": lambda f: jax.grad(f, (0, 1)),
    "jvp": lambda f: lambda p, x: jax.jvp(lambda p: f(p, x), (p,), (jnp.ones_like(p),))[1],
    "grad of grad": lambda f: jax.grad(lambda p, x: jax.grad(f)(p, x), (0, 1)),
    "jvp of grad": lambda f: lambda p, x: jax.jvp(lambda p: jax.grad(f)(p, x), (p,), (jnp.ones_like(p),))[1],
    "vmap of grad": lambda f: lambda p, x: jax.vmap(jax.grad(f), (0, None))(jnp.stack([p, 0.5 * p]), x),
}
QUICK = ["grad", "grad of grad"]


def compare(got, want):
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)
        assert jax.typeof(a) == jax.typeof(b)


def check_mapped(local, mode):
    compare(*(jax.jit(MODES[mode](mapped(local, loop)))(P0, X) for loop in (ours, masked)))


@pytest.mark.parametrize("local", [own_ends, own_ends_meet, collective_body, lanes, branches, counted])
def test_shard_map_with_its_checks(local):
    check_mapped(local, "grad of grad")


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("local", LOCAL)
def test_shard_map_in_every_mode(local, mode):
    check_mapped(local, mode)


@pytest.mark.slow
@pytest.mark.parametrize("local", [f for f in LOCAL if f is not own_ends_meet])
def test_gradients_inside_shard_map(local):
    compare(*(jax.jit(inside(local, loop))(P0, X) for loop in (ours, masked)))


def test_a_collective_keeps_the_loop_in_the_engine():
    """A psum in the body is no side effect: reverse mode keeps blocks, not the tape."""
    for local, name in ((counted, "checkpointed_loop_vjp"), (collective_body, "qb_while_vjp")):
        assert name in str(jax.make_jaxpr(jax.grad(mapped(local, ours)))(P0, X))


def test_collectives_over_the_examples_of_a_vmap():
    """An example that has stopped still takes part in what the others compute."""

    def f(loop):
        def one(p, y, n):
            step = lambda y: y + 0.1 * jnp.sin(p * y) + 0.05 * lax.psum(y * p, "i")
            return loop(lambda s: s[1] < n, lambda s: (step(s[0]), s[1] + 1.0), (y, 0.0 * n))[0]

        n = jnp.array([1.0, 3.0, 0.0, 5.0])
        return lambda p, x: jnp.sum(jax.vmap(lambda y, n: one(p, y, n), axis_name="i")(x, n) ** 2)

    for mode in ("grad", "grad of grad"):
        compare(*(jax.jit(MODES[mode](f(loop)))(P0, X) for loop in (ours, masked)))


# ---- sharded arrays under jit


def rows(loop, p, x):
    body = lambda s: (s[0] + 0.1 * jnp.tanh(s[0] @ W * p), s[1] + 1)
    return loop(lambda s: s[1] < 6, body, (x, jnp.int32(0)))[0]


def row_by_row(loop, p, x):
    """vmap over the sharded axis, every row with a trip count of its own."""
    one = lambda y, n: loop(lambda s: s[1] < n, lambda s: (s[0] + 0.1 * jnp.sin(p * s[0]), s[1] + 1.0), (y, 0.0 * n))[0]
    return jax.vmap(one)(x, jnp.arange(4.0) + 0 * x[:, 0])


def chosen_rows(loop, p, x):
    cond, _ = conditional(loop)
    x = cond(p > 0, steps(loop, p), lambda y: y * p, x)
    return jax.vmap(lambda v: cond(v[0] > 0.4, steps(loop, p), lambda y: y * p, v))(x)


def shard_map_in_the_body(loop, p, x):
    here = mesh(AxisType.Auto) if jax.sharding.get_abstract_mesh().empty else None
    local = lambda y: y + 0.1 * jnp.tanh(y * lax.pmean(y, "d"))
    step = jax.shard_map(local, mesh=here, in_specs=P("d"), out_specs=P("d"))
    return loop(lambda s: s[1] < 4, lambda s: (step(s[0]) * p, s[1] + 1), (x, jnp.int32(0)))[0]


def counted_rows(loop, p, x):
    scan = lax.scan if loop is masked else lambda *a, **k: loops.scan(*a, checkpoint="sqrt", **k)
    return scan(lambda c, _: (c + 0.1 * jnp.tanh(c @ W * p), None), x, None, length=12)[0]


def check_sharded(program, kind, mode):
    def run(loop):
        m = mesh(kind)
        f = jax.jit(MODES[mode](lambda p, x: jnp.sum(program(loop, p, x) ** 2)))
        x = jax.device_put(X, NamedSharding(m, P("d")))
        if kind is AxisType.Auto:
            return f(P0, x)
        with jax.set_mesh(m):
            return f(P0, x)

    compare(run(ours), run(masked))


PROGRAMS = [rows, row_by_row, shard_map_in_the_body, counted_rows]


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
@pytest.mark.parametrize("program", [rows, row_by_row])
def test_sharded_arrays(program, kind):
    check_sharded(program, kind, "grad of grad")


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
@pytest.mark.parametrize("program", PROGRAMS)
def test_sharded_arrays_in_every_mode(program, kind, mode):
    check_sharded(program, kind, mode)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_branches_of_sharded_rows(mode):
    """With an automatic mesh; jax.lax itself refuses a mapped cond over an explicitly sharded axis."""
    check_sharded(chosen_rows, AxisType.Auto, mode)


def test_the_result_keeps_its_sharding():
    m = mesh(AxisType.Explicit)
    with jax.set_mesh(m):
        x = jax.device_put(X, NamedSharding(m, P("d")))
        out = jax.jit(jax.grad(lambda x: jnp.sum(rows(ours, 1.3, x) ** 2)))(x)
    assert out.sharding.spec == P("d") or out.sharding.spec == P("d", None)
