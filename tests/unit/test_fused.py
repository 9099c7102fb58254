"""Elementwise loops as one kernel: interpreted against jax.lax, and lowered for CUDA, where no GPU is needed for either."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from quabla_jax.compat import lax
from quabla_jax.loops import fused

RNG = np.random.default_rng(0)


def array(*shape):
    return jnp.asarray(RNG.normal(size=shape))


def pendulums(scan, reverse=False, **kw):
    """Array and scalar carries, a counter, a captured array, a captured scalar, slices of both kinds, two outputs."""

    def f(x, p, s, k):
        gains = jnp.linspace(0.5, 1.0, len(s))

        def body(c, slices):
            (x, z, i), (si, gain) = c, slices
            x = x + 0.1 * jnp.sin(x * p + si) * k * gain
            return (x, z * p + 0.01, i + 1), (jnp.where(i % 2 == 0, x * z, -x), z)

        (x, z, i), (y, zs) = scan(body, (x, p * 1.5, 0), (s, gains), reverse=reverse, **kw)
        return jnp.sum(x**2) * z + jnp.sum(y**3) + i + jnp.sum(jnp.sin(zs))

    return f


def close(ours, theirs, args):
    with fused.interpreted():
        got = jax.jit(ours)(*args)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(jax.jit(theirs)(*args)), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12 * float(np.max(np.abs(np.asarray(b)))))


def kernels(f, *args):
    """How many kernels and how many loops a program has on CUDA."""
    device = jax.sharding.AbstractDevice(device_kind="NVIDIA H100 80GB HBM3", num_cores=None, platform="gpu")
    with jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), (), abstract_device=device)):
        text = jax.jit(f).trace(*args).lower(lowering_platforms=("cuda",)).as_text()
    return text.count("xla.gpu.triton"), text.count("stablehlo.while")


@pytest.fixture
def args():
    with jax.enable_x64(True):
        yield array(2, 70), jnp.asarray(0.9), array(23, 2, 70), array(2, 70)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("order", ["value and grad", "grad of grad", "hvp"])
def test_a_kernel_computes_what_the_loop_does(args, reverse, order):
    def through(f):
        g = jax.grad(f, (0, 1, 2, 3))
        return {
            "value and grad": lambda *a: (f(*a), g(*a)),
            "grad of grad": jax.grad(lambda *a: sum(jnp.sum(v**2) for v in g(*a)), (0, 1, 2, 3)),
            "hvp": lambda *a: jax.jvp(g, a, a),
        }[order]

    close(through(pendulums(lax.scan, reverse, checkpoint="sqrt")), through(pendulums(jax.lax.scan, reverse)), args)


def test_a_vmapped_kernel(args):
    batch = lambda f: lambda x, *rest: jax.vmap(lambda x: jax.grad(f, (0, 1))(x, *rest))(jnp.stack([x, -x, 2 * x]))
    close(batch(pendulums(lax.scan, checkpoint=5)), batch(pendulums(jax.lax.scan)), args)


def test_scalar_loops_and_short_ones(args):
    def newton(fori, x):
        return fori(0, 9, lambda i, x: x - (x * x - 2.0) / (2 * x) + 0 * i, x)

    x = jnp.asarray([1.5])
    close(jax.grad(lambda x: newton(lax.fori_loop, x)[0]), jax.grad(lambda x: newton(jax.lax.fori_loop, x)[0]), (x,))
    close(lambda x: newton(lax.fori_loop, x), lambda x: newton(jax.lax.fori_loop, x), (x[0],))


def test_booleans_and_integers(args):
    def f(scan, x):
        def body(c, n):
            alive, x, bits = c
            x = jnp.where(alive, x * 1.5, x)
            return (alive & (x < 20), x, bits ^ (bits << n)), alive

        return scan(body, (x > 0, x, jnp.arange(x.size, dtype=jnp.uint8)), jnp.arange(40, dtype=jnp.uint8))

    close(lambda x: f(lax.scan, x), lambda x: f(jax.lax.scan, x), (array(200),))


def test_on_cuda_each_pass_is_one_kernel(args):
    f = pendulums(lax.scan, checkpoint="sqrt")
    assert kernels(f, *args) == (1, 0)
    assert kernels(jax.grad(f, (0, 1, 2, 3)), *args) == (2, 0)
    short = lambda x: lax.fori_loop(0, 5, lambda i, x: jnp.tanh(x), x)
    assert kernels(short, args[0])[0] == 0, "the default device decides whether a loop this short is the engine's"


def test_what_is_not_elementwise_stays_a_loop(args):
    square = array(70, 70)
    assert kernels(lambda x: lax.fori_loop(0, 50, lambda i, x: jnp.tanh(x @ square), x), args[0])[0] == 0
    assert kernels(lambda x: lax.fori_loop(0, 50, lambda i, x: x - jnp.mean(x), x), args[0])[0] == 0
    assert kernels(lambda x: lax.fori_loop(0, 50, lambda i, x: x[::-1] * 0.5, x), args[0])[0] == 0
    assert kernels(lambda x, t: lax.fori_loop(0, 50, lambda i, x: x + t[i], x), args[0], array(50))[0] == 0
    deep = lambda x: jnp.sum(lax.fori_loop(0, 50, lambda i, x: jnp.sin(x), x, checkpoint=lax_budget(x)))
    assert kernels(jax.grad(deep), args[0])[0] == 1, "a schedule of several levels sweeps as before"


def lax_budget(x):
    from quabla_jax import Budget

    return Budget(8 * x.size * x.dtype.itemsize)


def test_off_by_environment(args, monkeypatch):
    monkeypatch.setenv("QUABLA_JAX_FUSED_LOOPS", "0")
    assert kernels(pendulums(lax.scan, checkpoint="sqrt"), *args)[0] == 0


OPERANDS = {
    "one": "abs acos acosh asin asinh atan atanh cbrt ceil cos cosh erf_inv exp exp2 expm1 floor log log1p logistic neg "
    "rsqrt sign sin sinh sqrt square tan tanh".split(),
    "two": "add atan2 div max min mul nextafter pow rem sub".split(),
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_every_operation_lowers(args, dtype):
    """To a kernel, in float32 and float64; half precision may keep its loop where Triton has no such function."""
    x = jnp.full(130, 0.4, dtype)
    loops = 0
    for kind, names in OPERANDS.items():
        for name in names:
            op = getattr(jax.lax, name)
            step = lambda _, x, op=op, kind=kind: (op(x) if kind == "one" else op(x, x)) * x
            loops += kernels(lambda x, step=step: lax.fori_loop(0, 40, step, x), x)[1]
    assert not loops or dtype in ("float16", "bfloat16")


@pytest.mark.parametrize("checked", [False, True])
def test_under_shard_map(args, checked):
    mesh = jax.make_mesh((1,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    f = lambda x: lax.fori_loop(0, 50, lambda i, x: jnp.sin(x), x)
    mapped = jax.shard_map(f, mesh=mesh, in_specs=P("d"), out_specs=P("d"), check_vma=checked)
    x = array(2, 70)
    with fused.interpreted():
        np.testing.assert_allclose(jax.jit(mapped)(x), jax.jit(f)(x), rtol=1e-12)


def test_a_program_that_xla_divides_keeps_its_loop():
    """A kernel cannot be divided; jit over two devices lowers the loop, which can."""
    mesh = jax.make_mesh((2,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    f = lambda x: lax.fori_loop(0, 50, lambda i, x: jnp.sin(x), x)
    mapped = jax.shard_map(f, mesh=mesh, in_specs=P("d"), out_specs=P("d"), check_vma=False)
    x = jax.device_put(jnp.ones((2, 70)), jax.sharding.NamedSharding(mesh, P("d")))
    with fused.interpreted():
        divided, inside = jax.jit(f).lower(x).as_text(), jax.jit(mapped).lower(x).as_text()
        np.testing.assert_allclose(jax.jit(f)(x), jax.jit(mapped)(x), rtol=1e-6)
    assert "dynamic_slice" not in divided
    assert "dynamic_slice" in inside, "an interpreted kernel slices its operands; a loop does not"


@pytest.mark.skipif(jax.default_backend() != "gpu", reason="needs a CUDA device")
def test_on_a_gpu(args):
    for order in (lambda f: f, lambda f: jax.grad(f, (0, 1, 2, 3))):
        got, want = (
            jax.jit(order(f))(*args) for f in (pendulums(lax.scan, checkpoint="sqrt"), pendulums(jax.lax.scan))
        )
        for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9 * float(np.max(np.abs(np.asarray(b)))))
