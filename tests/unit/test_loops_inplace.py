"""Bodies that write one row a step into a big carry: no copy of the carry at every step, and right."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from quabla_jax import loops
from quabla_jax.loops.inplace import has_hazard, reads_first
from quabla_jax.lowering import jax_api as api

pytestmark = pytest.mark.skipif(jax.default_backend() != "cpu", reason="the rewrite is for XLA's CPU backend")


def rows(scan, T, write):
    def f(p):
        def body(c, _):
            i, x, out = c
            x = x * 0.9 + 0.1 * jnp.sin(p * x)
            return (i + 1, x, write(out, x, i)), None

        return jnp.sum(scan(body, (jnp.int32(0), jnp.ones(8) * p, jnp.zeros((T, 8))), None, T)[0][2] ** 2)

    return f


WRITES = {
    "at set": lambda out, x, i: out.at[i].set(x),
    "at add": lambda out, x, i: out.at[i].add(x),
    "dynamic_update_slice": lambda out, x, i: lax.dynamic_update_slice(out, x[None], (i, jnp.int32(0))),
}


def engine(f, init, xs, T):
    return loops.scan(f, init, xs, T)


def copies_in_loops(program, shape):
    """Copies of arrays of this shape outside the entry computation."""
    before_entry = program.as_text().split("ENTRY")[0]
    return len(re.findall(rf"= {re.escape(shape)}\S* copy\(", before_entry))


@pytest.mark.parametrize("write", list(WRITES))
def test_no_step_copies_the_whole_carry(write):
    program = jax.jit(jax.grad(rows(engine, 1024, WRITES[write]))).lower(1.3).compile()
    assert copies_in_loops(program, "f64[1024,8]") == 0
    if write == "at set":
        plain = jax.jit(jax.grad(rows(lax.scan, 1024, WRITES[write]))).lower(1.3).compile()
        assert copies_in_loops(plain, "f64[1024,8]") > 0, "XLA no longer copies: the rewrite can go"


@pytest.mark.parametrize("write", list(WRITES))
def test_written_rows_have_the_derivatives_of_lax(write):
    ours, plain = rows(engine, 64, WRITES[write]), rows(lax.scan, 64, WRITES[write])
    for mode in (jax.grad, lambda f: jax.grad(jax.grad(f)), lambda f: lambda p: jax.vmap(jax.grad(f))(p * jnp.ones(2))):
        np.testing.assert_allclose(jax.jit(mode(ours))(1.3), jax.jit(mode(plain))(1.3), rtol=1e-12)


def test_reads_first_evaluates_as_written():
    def f(buffer, i):
        head = lax.dynamic_slice(buffer, (i, 0), (1, 4))
        cleared = lax.dynamic_update_slice(buffer, jnp.zeros((1, 4)), (i, 0))
        late = lax.dynamic_slice(buffer, (i + 1, 0), (2, 4))  # of the array before the write
        return [head * 2, cleared, late, lax.dynamic_slice(cleared, (i, 0), (1, 4))]

    buffer = jnp.arange(24.0).reshape(6, 4).at[2, 0].set(jnp.nan)
    jaxpr, consts = api.trace_flat(f, [jax.typeof(buffer), jax.typeof(jnp.int64(0))])
    assert has_hazard(jaxpr)
    for got, want in zip(reads_first(jaxpr, [*consts, buffer, jnp.int64(2)]), f(buffer, jnp.int64(2)), strict=True):
        np.testing.assert_array_equal(got, want)
