"""Random bodies, sizes, trip counts, plans and orders of modes, against jax.lax.scan in float64."""

import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from quabla_jax import loops
from quabla_jax.loops.plan import Forced

hypothesis = pytest.importorskip("hypothesis", reason="property tests draw with hypothesis")
st = hypothesis.strategies

DRAWS = int(os.environ.get("QUABLA_JAX_DRAWS", "2000"))

UNARY = [jnp.sin, jnp.tanh, lambda x: x * 0.9, lambda x: 0.1 * x**2, jax.nn.softplus, jnp.cos, jax.nn.relu]
BINARY = [jnp.add, jnp.multiply, jnp.subtract, lambda a, b: jnp.where(a > 0, a, b), jnp.minimum]
REDUCE = [jnp.mean, jnp.max, jnp.sum]

term = st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, len(UNARY) - 1), st.integers(0, len(BINARY) - 1))
step = st.fixed_dictionaries(
    dict(
        carry=st.lists(term, min_size=1, max_size=3),
        ys=st.lists(term, max_size=2),
        counter=st.booleans(),
        reduce=st.integers(0, len(REDUCE) - 1),
        slices=st.booleans(),
        write=st.booleans(),
        cond=st.booleans(),
    )
)
plans = st.one_of(
    st.sampled_from(["auto", "sqrt", "full"]),
    st.integers(1, 12),
    st.builds(
        lambda b, i: Forced(tuple(b), i),
        st.lists(st.integers(1, 9), min_size=1, max_size=3).map(lambda b: sorted(set(b), reverse=True)),
        st.sampled_from(["carry", "residuals", "rerun"]),
    ),
)
modes = st.lists(st.sampled_from(["jvp", "grad", "jit", "vmap", "checkpoint", "linearize"]), max_size=4)


def program(scan, spec, size, length, reverse):
    """f(p), p a vector of 3: a loss of everything that the loop returns."""

    def f(p):
        xs = jnp.linspace(-1, 1, length * size).reshape(length, size) * p[2] if spec["slices"] else None
        init = [jnp.linspace(0.1, 0.5, size) * p[k % 3] for k in range(len(spec["carry"]))]

        def body(c, s):
            k, table, *x = c
            values = [*x, p[0] * jnp.ones(size), p[1] * jnp.linspace(0, 1, size), s if s is not None else p[2] * x[0]]
            if spec["counter"]:
                values.append(x[0] * (k % 3) * 0.1)

            def apply(t):
                a, b, u, w = t
                return 0.7 * BINARY[w](UNARY[u](values[a % len(values)]), values[b % len(values)])

            new = [apply(t) for t in spec["carry"]]
            if spec["cond"]:
                new[0] = lax.cond(jnp.sum(new[0]) > 0.2, jnp.sin, lambda v: v * 0.5, new[0])
            new[-1] = new[-1] + 0.1 * REDUCE[spec["reduce"]](x[-1])
            if spec["write"]:
                table = table.at[k].set(new[0] * p[1])
            return [k + 1, table, *new], [apply(t) for t in spec["ys"]]

        out, ys = scan(body, [jnp.int32(0), jnp.zeros((max(length, 1), size)), *init], xs, length, reverse=reverse)
        leaves = [v for v in jax.tree.leaves((out[1:], ys)) if v.size]
        return sum(jnp.mean(jnp.cos(v)) for v in leaves) + out[0] * p[0]

    return f


def apply_modes(f, names):
    """Scalar programs of p from scalar programs of p, the first name innermost."""
    direction = jnp.array([0.3, -0.2, 0.5])
    for name in names:
        f = (
            lambda f: {
                "jvp": lambda p: jax.jvp(f, (p,), (direction,))[1],
                "grad": lambda p: jnp.vdot(jnp.array([0.4, 0.1, -0.3]), jax.grad(f)(p)),
                "jit": jax.jit(f),
                "vmap": lambda p: jnp.sum(jax.vmap(f)(jnp.stack([p, p * 0.9]))),
                "checkpoint": jax.checkpoint(f),
                "linearize": lambda p: jax.linearize(f, p)[1](direction),
            }[name]
        )(f)
    return f


def check(spec, size, length, reverse, plan, names):
    def ours(f, init, xs, length, reverse):
        return loops.scan(f, init, xs, length, reverse=reverse, checkpoint=plan)

    p = jnp.array([0.7, -0.4, 0.9])
    got = jax.jit(apply_modes(program(ours, spec, size, length, reverse), names))(p)
    want = jax.jit(apply_modes(program(lax.scan, spec, size, length, reverse), names))(p)
    np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-11)


@pytest.fixture
def quick_compiler():
    """XLA without its expensive passes: the draws are about derivatives, and take half the time."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


drawn = dict(
    spec=step, size=st.integers(1, 3), length=st.integers(0, 40), reverse=st.booleans(), plan=plans, names=modes
)


@hypothesis.settings(max_examples=6, deadline=None, database=None, derandomize=True)
@hypothesis.given(**drawn)
def test_random_loops_match_lax(spec, size, length, reverse, plan, names):
    check(spec, size, length, reverse, plan, names)


@pytest.mark.slow
@pytest.mark.seconds(4 * DRAWS + 60)
@pytest.mark.usefixtures("quick_compiler")
@hypothesis.settings(max_examples=DRAWS, deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
@hypothesis.given(**drawn)
def test_many_random_loops_match_lax(spec, size, length, reverse, plan, names):
    check(spec, size, length, reverse, plan, names)
