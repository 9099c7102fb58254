"""Load: many signatures through one cache, many nested and chained regions, long loops.

LOAD_SIGNATURES sets how many signatures go through qb.jit (1,000 by default; slow tier).
"""

import gc
import math
import os
import time
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import quabla_jax as qb
from quabla_jax import _programs
from quabla_jax.compat import lax
from quabla_jax.lowering import jax_api, lower
from quabla_jax.lowering.program import Branch

SIGNATURES = int(os.environ.get("LOAD_SIGNATURES", "1000"))


def resident():
    """Bytes of memory that this process holds now."""
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


linux = pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="reads /proc/self/statm")


def signatures(f, count, first=0):
    """Calls f with `count` shapes that it has not seen."""
    for k in range(first, first + count):
        shape = (1 + k % 40, 1 + k // 40)
        out = f(np.ones(shape))
        assert out.shape == shape


def through_jit(f, count):
    """(bytes held after a tenth of `count` signatures, bytes held after all)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        signatures(f, count // 10)
        before = resident()
        signatures(f, count - count // 10, count // 10)
    return before, resident()


@linux
@pytest.mark.slow
@pytest.mark.seconds(7200)  # ten thousand compilations
def test_signatures_through_jit_keep_memory_flat():
    """A transform that forgets old programs: memory after all of them is that after the first tenth, 20 % and 64 MB more."""
    before, after = through_jit(qb.jit(lambda x: qb.sin(x) * 2.0, max_traces=8), SIGNATURES)
    print(f"\n{SIGNATURES} signatures: {before / 1e6:.0f} MB after a tenth, {after / 1e6:.0f} MB after all")
    assert after < 1.2 * before + 64e6


def alive(client):
    """How many programs a device holds."""
    gc.collect()
    return len(client.live_executables())


def test_what_was_compiled_for_evicted_signatures_is_freed():
    """A Hessian evaluates a dozen operations of its own at every shape; neither they nor the programs stay."""
    client = jax.devices("cpu")[0].client
    f = qb.jit(qb.hessian(lambda x: (qb.sin(x) ** 2).sum()), max_traces=1)
    mine = jax.jit(lambda x: jnp.sin(x) * 3.0)
    mine(jnp.ones(3))
    kept = mine._cache_size()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        f(np.ones(3)), f(np.ones(4))  # the first eviction starts the count of programs
        jax_api.forget_shapes()
        before = alive(client)
        for k in range(5, 9):
            f(np.ones(k))
        made = alive(client) - before
        jax_api.forget_shapes()
    assert made >= 20 and alive(client) <= before
    assert mine._cache_size() == kept


def test_evictions_have_jax_forget_after_so_many_programs(monkeypatch):
    swept = []
    monkeypatch.setattr(_programs._Forgetting, "EVERY", 3)
    monkeypatch.setattr(jax_api, "forget_shapes", lambda: swept.append(1))
    f = qb.jit(lambda x: qb.sin(x) * 2.0, max_traces=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for k in range(1, 9):
            f(np.ones(k))
    assert 1 <= len(swept) <= 3
    count = len(swept)
    for _ in range(10):
        f(np.ones(8))
    assert len(swept) == count


def test_arrays_are_made_without_a_program():
    """Of a shape seen for the first time too: JAX would keep the program that copies it."""
    client = jax.devices("cpu")[0].client
    before, arrays = alive(client), []
    for k in range(3, 7):
        data = np.full((k, 19), 2.0)
        arrays += [qb.asarray(data), qb.array([[1.0] * k] * 23)]
        data[:] = 5.0
    assert alive(client) <= before
    assert all(float(x.min()) == float(x.max()) in (1.0, 2.0) for x in arrays)
    assert not any(x.committed or x.weak_type for x in arrays)


def test_the_cache_of_jit_holds_to_max_traces():
    traces = []

    def f(x):
        traces.append(x.shape)
        return x * 2.0

    g = qb.jit(f, max_traces=4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            for k in range(1, 9):
                g(np.ones(k))
        except qb.RetraceLimitError as error:
            assert "max_traces" in str(error)
    assert len(traces) >= 4


def nested(depth, x):
    """A cond in a cond in a cond."""
    if depth == 0:
        return jnp.sin(x)
    return lax.cond(x[0] > depth, lambda y: nested(depth - 1, y) + 1.0, jnp.cos, x)


def chained(count, x):
    for k in range(count):
        x = lax.cond(x[0] > k, jnp.sin, jnp.cos, x)
    return x


def scan_of(count, x):
    for _ in range(count):
        x = lax.fori_loop(0, 3, lambda i, c: c * 1.5, x)
    return x


def exponent(build, small, large):
    """The power of the size with which tracing time grows, between two sizes; the best of three each, interleaved."""
    best = {small: math.inf, large: math.inf}
    for _ in range(3):
        for size in best:
            start = time.process_time()
            jax.make_jaxpr(lambda x: build(size, x))(jnp.ones(2))
            best[size] = min(best[size], time.process_time() - start)
    return math.log(best[large] / best[small]) / math.log(large / small)


@pytest.mark.slow
@pytest.mark.parametrize("build, small, large", [(chained, 125, 1000), (scan_of, 125, 1000)], ids=["conds", "loops"])
def test_a_thousand_chained_regions_trace_in_linear_time(build, small, large):
    power = exponent(build, small, large)
    print(f"\n{build.__name__}: time grows with the size to the power {power:.2f}")
    assert power < 1.2


@pytest.mark.slow
def test_nested_conds_trace_in_linear_time():
    """As deep as Python's stack lets JAX trace them."""
    power = exponent(nested, 4, 24)
    print(f"\nnested: time grows with the depth to the power {power:.2f}")
    assert power < 1.2


def test_chained_conds_lower():
    """A chain is lowered without recursion along it, and gives what JAX gives."""
    x = jnp.asarray([3.5, 0.25])
    program = lower(lambda x: chained(60, x), x)
    assert sum(isinstance(node, Branch) for node in program.nodes) == 60
    np.testing.assert_allclose(jax.jit(lambda x: chained(60, x))(x), chained(60, x), rtol=1e-14)


@pytest.mark.slow
def test_ten_million_steps():
    steps = 10**7
    out = jax.jit(lambda x: lax.fori_loop(0, steps, lambda i, c: c + 1.0, x))(0.0)
    assert float(out) == steps
    traced = qb.jit(lambda x: qb.fori_loop(0, steps, lambda i, c: c + 1.0, x))(jnp.zeros(()))
    assert float(traced) == steps


@pytest.mark.slow
def test_fifty_thousand_equations_lower():
    def f(x):
        for _ in range(25_000):
            x = jnp.sin(x) * 1.01
        return x

    assert lower(f, jnp.ones(2)) is not None
