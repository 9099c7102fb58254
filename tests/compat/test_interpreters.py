"""Interpreters of JAX's that know scan, while and cond by name find the same in the engine's loops: checkify's automatic
checks, jax.experimental.sparse.sparsify, and the check for PRNG keys that are used twice."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import checkify, sparse

from quabla_jax.compat import patched

N = 11


def log_of_a_switch(i, x):
    """A branch that holds a while loop goes through the engine's conditional."""
    climb = lambda x: jax.lax.while_loop(lambda c: c < 3, lambda c: c + jnp.log(c), x)
    return jax.lax.switch(i, [climb, lambda x: x], x)


def reads(x):
    return jax.lax.scan(lambda c, i: (c + x[i], None), 0.0, jnp.arange(N))[0]


def logs(x):
    return jax.lax.scan(lambda c, i: (c + i, jnp.log(c)), x, jnp.arange(float(N)))[1].sum()


def divides(x):
    return jax.lax.fori_loop(0, N, lambda i, c: c / (i - 5.0), x)


def log_of_a_while(x):
    return jax.lax.while_loop(lambda s: s[0] < 5, lambda s: (s[0] + 1, jnp.log(s[1])), (0, x))[1]


CHECKS = {
    "index": (reads, checkify.index_checks, (jnp.ones(5),)),
    "index_in_range": (reads, checkify.index_checks, (jnp.ones(N),)),
    "index_in_the_gradient": (jax.grad(reads), checkify.index_checks, (jnp.ones(5),)),
    "nan": (logs, checkify.float_checks, (-0.5,)),
    "nan_in_the_hessian": (jax.hessian(logs), checkify.float_checks, (-0.5,)),
    "division": (divides, checkify.div_checks, (1.0,)),
    "division_in_a_batch": (jax.vmap(divides), checkify.div_checks, (jnp.ones(3),)),
    "while": (log_of_a_while, checkify.float_checks, (2.0,)),
    "branch": (log_of_a_switch, checkify.float_checks, (0, -1.0)),
    "branch_not_taken": (log_of_a_switch, checkify.float_checks, (1, -1.0)),
}


def both(run):
    """What `run` gives or raises under jax.lax, and under the engine."""

    def outcome():
        try:
            return jax.tree.map(np.asarray, run())
        except Exception as error:  # noqa: BLE001
            return type(error).__name__, str(error)[:120]

    plain = outcome()
    with patched("sqrt", while_checkpoint="auto"):
        return plain, outcome()


@pytest.mark.parametrize("name", CHECKS)
def test_automatic_checks_look_into_the_loops(name):
    f, errors, args = CHECKS[name]

    def run():
        error, out = checkify.checkify(f, errors=errors)(*args)
        message = error.get()
        return message and message.splitlines()[0], out

    (want, want_out), (got, got_out) = both(run)
    assert got == want
    assert (want == np.asarray(None)) == ("range" in name or "not_taken" in name)
    np.testing.assert_allclose(got_out, want_out, rtol=1e-12)


def test_the_gradient_of_a_checked_loop():
    error_and_value = checkify.checkify(divides, errors=checkify.div_checks)
    want, got = both(lambda: jax.grad(lambda x: error_and_value(x)[1])(0.5))
    np.testing.assert_array_equal(got, want)


SPARSE = {
    "scan": lambda a, x: jax.lax.scan(lambda c, _: (jnp.tanh(a @ c), None), x, None, length=N)[0],
    "scan_over_arrays": lambda a, x: jax.lax.scan(lambda c, t: (jnp.tanh(a @ c) + t, None), x, jnp.ones(N))[0],
    "fori_loop": lambda a, x: jax.lax.fori_loop(0, N, lambda i, c: jnp.tanh(a @ c), x),
    "while_loop": lambda a, x: jax.lax.while_loop(lambda s: s[0] < 4, lambda s: (s[0] + 1, a @ s[1]), (0, x))[1],
    "carry": lambda a, x: jax.lax.fori_loop(0, N, lambda i, c: c * 2.0, a) @ x,
}


@pytest.mark.parametrize("name", SPARSE)
def test_sparse_operands_reach_the_bodies(name):
    """JAX has no rule for a scan with xs; then its own refusal comes."""
    a = sparse.BCOO.fromdense(jnp.array([[0.5, 0.0, 0.1], [0.0, -0.3, 0.0], [0.2, 0.0, 0.4]]))
    want, got = both(lambda: sparse.sparsify(SPARSE[name])(a, jnp.ones(3)))
    if name == "scan_over_arrays":
        assert got == want and want[0] == "NotImplementedError"
    else:
        np.testing.assert_allclose(got, want, rtol=1e-12)


def splits(k):
    def step(k, _):
        k, mine = jax.random.split(k)
        return k, jax.random.uniform(mine)

    k, ys = jax.lax.scan(step, k, None, length=N)
    return jax.random.uniform(k), ys


def repeats(k):
    def step(k, _):
        return k, jax.random.uniform(k)

    return jax.lax.scan(step, k, None, length=N)[1]


def repeats_what_it_captured(k):
    return jax.lax.scan(lambda c, _: (c + jax.random.uniform(k), None), 0.0, None, length=N)[0]


def folds(k):
    return jax.grad(
        lambda x: jax.lax.scan(
            lambda c, t: (c * x + jax.random.uniform(jax.random.fold_in(k, t)), None), 0.0, jnp.arange(N)
        )[0]
    )(0.5)


def splits_in_a_while(k):
    return jax.lax.while_loop(lambda s: s[1] < 3, lambda s: (jax.random.split(s[0])[0], s[1] + 1), (k, 0))[1]


@pytest.mark.parametrize("jit", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize("f", [splits, repeats, repeats_what_it_captured, folds, splits_in_a_while])
def test_keys_used_twice_are_found(f, jit):
    with jax.debug_key_reuse(True):
        want, got = both(lambda: (jax.jit(f) if jit else f)(jax.random.key(0)))
    if f in (repeats, repeats_what_it_captured):
        assert got == want and want[0] == "KeyReuseError"
    else:
        jax.tree.map(lambda g, w: np.testing.assert_allclose(g, w, rtol=1e-12), got, want)
