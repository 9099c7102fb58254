"""Counted loops under every transform, against jax.lax.scan in float64."""

import jax
import numpy as np
import pytest
from jax import lax
from loop_programs import PROGRAMS, TRANSFORMS, forced, ours

T = 7
REFERENCE: dict = {}


def plain(f, init, xs=None, length=None, reverse=False):
    return lax.scan(f, init, xs, length, reverse)


def reference(program, transform, reverse=False, length=T):
    key = (program, transform, reverse, length)
    if key not in REFERENCE:
        REFERENCE[key] = np.asarray(TRANSFORMS[transform](PROGRAMS[program](plain, length, reverse)))
    return REFERENCE[key]


def check(scan, program, transform, reverse=False, length=T):
    got = np.asarray(TRANSFORMS[transform](PROGRAMS[program](scan, length, reverse)))
    np.testing.assert_allclose(got, reference(program, transform, reverse, length), rtol=1e-12, atol=1e-13)


QUICK = ["grad", "jvp of grad", "grad of grad", "vmap grad", "checkpoint", "hessian in scan"]


@pytest.mark.parametrize("transform", QUICK)
@pytest.mark.parametrize("program", ["slices", "rows"])
def test_modes_match_lax(program, transform):
    check(forced(2), program, transform)


@pytest.mark.parametrize("program", ["inside", "keys", "weak"])
@pytest.mark.parametrize("transform", ["grad", "vmap grad of grad"])
def test_bodies_match_lax(program, transform):
    check(forced(3, inner="residuals"), program, transform)


@pytest.mark.parametrize("inner", ["carry", "residuals", "rerun"])
@pytest.mark.parametrize("reverse", [False, True])
def test_sweeps_match_lax(inner, reverse):
    check(forced(5, 2, inner=inner), "slices", "jit grad", reverse, 13)


@pytest.mark.parametrize("request_", ["auto", "full", "sqrt", 1, 2, 5, 7, 40])
def test_requests_match_lax(request_):
    check(ours(request_), "slices", "jit grad", length=40)


@pytest.fixture
def quick_compiler():
    """XLA without its expensive passes, which would be most of what the slow tier spends here."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.mark.slow
@pytest.mark.usefixtures("quick_compiler")
@pytest.mark.parametrize("transform", list(TRANSFORMS))
@pytest.mark.parametrize("program", list(PROGRAMS))
@pytest.mark.parametrize(
    "scan", [forced(2), forced(3, inner="residuals"), forced(4, 2, inner="rerun")], ids=["carry", "residuals", "rerun"]
)
def test_every_mode_matches_lax(program, transform, scan):
    check(scan, program, transform, reverse=program in ("slices", "inside"))


def test_derivatives_of_a_loop_in_a_loop_ten_deep():
    def deep(scan, p):
        f = lambda x: x + 0.1 * jax.numpy.sin(p * x)
        for _ in range(10):
            f = (lambda f: lambda x: scan(lambda x, _: (f(x), None), x, None, 2)[0])(f)
        return f(p)

    ref = jax.jit(jax.grad(lambda p: deep(plain, p)))(0.3)
    np.testing.assert_allclose(jax.jit(jax.grad(lambda p: deep(forced(1), p)))(0.3), ref, rtol=1e-12)
