"""Random while loops, pools, trip counts and chains of transforms, against the same loop unrolled in Python.

WHILE_DRAWS sets how many programs each test draws.
"""

import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest

hypothesis = pytest.importorskip("hypothesis", reason="draws the programs")
from hypothesis import HealthCheck, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from quabla_jax.loops import while_loop  # noqa: E402

DRAWS = settings(
    max_examples=int(os.environ.get("WHILE_DRAWS", "40")), deadline=None, suppress_health_check=list(HealthCheck)
)

STEPS = {
    "tanh": lambda p, x, z: (x + 0.1 * jnp.tanh(p * x + z), z * 0.9),
    "coupled": lambda p, x, z: (x + 0.1 * z * p, z - 0.1 * jnp.sin(x)),
    "one way": lambda p, x, z: (x * p, z + jnp.sum(x) * 0.1),
    "reciprocal": lambda p, x, z: (x / (1 + x * x) + p, z),
    "power": lambda p, x, z: (jnp.sqrt(1 + x * x) * 0.5, z * p + x),
    "linear": lambda p, x, z: (0.5 * x + p * z, 0.3 * z - x),
}
CHAINS = st.lists(st.sampled_from(["grad", "jvp"]), min_size=1, max_size=3)


def program(step, size, slots, loop):
    def f(p, n):
        start = (p * jnp.linspace(0.5, 1.5, size), jnp.cos(p) * jnp.ones(size), 0)
        x, z, _ = loop(step, p, start, n, slots)
        return jnp.sum(jnp.sin(x)) + jnp.sum(z * z)

    return f


def ours(step, p, start, n, slots):
    return while_loop(lambda s: s[2] < n, lambda s: (*step(p, s[0], s[1]), s[2] + 1), start, checkpoint=slots)


def unrolled(step, p, start, n, slots):
    x, z, _ = start
    for _ in range(n):
        x, z = step(p, x, z)
    return x, z, n


def chained(f, chain):
    for mode in chain:
        f = jax.grad(f) if mode == "grad" else (lambda p, n, f=f: jax.jvp(lambda p: f(p, n), (p,), (1.0,))[1])
    return f


@pytest.mark.slow
@given(
    name=st.sampled_from(sorted(STEPS)),
    size=st.integers(1, 3),
    slots=st.sampled_from([1, 2, 3, 4, 5, 8]),
    trips=st.lists(st.integers(0, 12), min_size=2, max_size=3),
    chain=CHAINS,
    jit=st.booleans(),
)
@DRAWS
def test_one_example(name, size, slots, trips, chain, jit):
    f = chained(program(STEPS[name], size, slots, ours), chain)
    f = jax.jit(f) if jit else f
    want = chained(program(STEPS[name], size, slots, unrolled), chain)
    for n in trips:
        np.testing.assert_allclose(f(0.7, n), want(0.7, n), rtol=1e-12, atol=1e-12)


@pytest.mark.slow
@given(
    name=st.sampled_from(sorted(STEPS)),
    slots=st.sampled_from([1, 3, 4, 8]),
    trips=st.lists(st.integers(0, 9), min_size=2, max_size=4),
    chain=CHAINS,
    inside=st.booleans(),
)
@DRAWS
def test_lanes(name, slots, trips, chain, inside):
    """vmap inside or outside the chain, every lane with a trip count of its own."""
    lanes = jnp.arange(len(trips))
    counts = jnp.array(trips)
    f = program(STEPS[name], 2, slots, ours)
    want = program(STEPS[name], 2, slots, unrolled)
    if inside:
        total = lambda p, _: jnp.sum(jax.vmap(lambda k, n: f(p * (1 + 0.1 * k), n))(lanes, counts))
        alone = lambda p, _: sum(want(p * (1 + 0.1 * k), n) for k, n in enumerate(trips))
        np.testing.assert_allclose(
            jax.jit(chained(total, chain))(0.7, 0), chained(alone, chain)(0.7, 0), rtol=1e-12, atol=1e-12
        )
    else:
        got = jax.jit(jax.vmap(chained(f, chain)))(0.5 + 0.1 * lanes, counts)
        np.testing.assert_allclose(
            got, [chained(want, chain)(0.5 + 0.1 * k, n) for k, n in enumerate(trips)], rtol=1e-12, atol=1e-12
        )
