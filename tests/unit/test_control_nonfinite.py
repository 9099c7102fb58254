"""The branch not taken puts nothing non-finite into values, tangents or gradients, whatever the order of transforms.

At every point the branch not taken computes log(0), sqrt(0), 1/0 or worse, with JAX's own functions (Quabla's sqrt has
slope 0 at 0, which would hide the danger). The oracle is the taken branch alone, one example at a time.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import quabla_jax as qb

SAFE = lambda x: x * x * x + 2.0 * x
DANGERS = {
    "log": lambda x: jnp.log(x),
    "sqrt": lambda x: jnp.sqrt(x),
    "reciprocal": lambda x: 1.0 / x,
    "0 * inf": lambda x: x * jnp.exp(1e6 * (1.0 + x)),
    "norm": lambda x: jnp.sqrt(x * x),
    "power": lambda x: x**0.25,
}


def by_cond(danger):
    return lambda x: qb.cond(x > 0.5, danger, SAFE, x)


def by_switch(danger):
    return lambda x: qb.switch((x > 0.5).astype(jnp.int32), [SAFE, danger], (x,))


def in_a_loop(danger):
    return lambda x: qb.fori_loop(0, 2, lambda i, c: qb.cond(c > 0.5, danger, lambda c: 0.5 * c, c), x)


def in_a_scan(danger):
    def step(c, i):
        return c, qb.switch((c > 0.5).astype(jnp.int32), [SAFE, danger], (c,))

    return lambda x: jnp.sum(qb.scan(step, x, length=2)[1])


def nested(danger):
    inner = lambda x: qb.cond(x > -1.0, SAFE, danger, x)
    return lambda x: qb.cond(x > 0.5, danger, inner, x)


FORMS = {
    "cond": (by_cond, SAFE),
    "switch": (by_switch, SAFE),
    "cond in fori_loop": (in_a_loop, lambda c: 0.25 * c),
    "switch in scan": (in_a_scan, lambda x: 2.0 * SAFE(x)),
    "cond in cond": (nested, SAFE),
}

ones = jnp.ones_like
ORDERS = {
    "vmap": lambda f: jax.vmap(f),
    "vmap(grad)": lambda f: jax.vmap(jax.grad(f)),
    "grad(vmap)": lambda f: jax.grad(lambda x: jnp.sum(jax.vmap(f)(x))),
    "jvp(vmap)": lambda f: lambda x: jax.jvp(jax.vmap(f), (x,), (ones(x),))[1],
    "vmap(jvp)": lambda f: jax.vmap(lambda x: jax.jvp(f, (x,), (1.0,))[1]),
    "vmap(hessian)": lambda f: jax.vmap(jax.hessian(f)),
    "hessian(vmap)": lambda f: lambda x: jnp.diag(jax.hessian(lambda y: jnp.sum(jax.vmap(f)(y)))(x)),
    "grad(grad(vmap))": lambda f: jax.grad(lambda x: jnp.sum(jax.grad(lambda y: jnp.sum(jax.vmap(f)(y)))(x))),
    "vjp(jvp(vmap))": lambda f: jax.grad(lambda x: jnp.sum(jax.jvp(jax.vmap(f), (x,), (ones(x),))[1])),
    "vmap(third)": lambda f: jax.vmap(jax.grad(jax.grad(jax.grad(f)))),
}
DERIVATIVE = {
    "vmap": 0,
    "vmap(third)": 3,
    **{name: 2 for name in ("vmap(hessian)", "hessian(vmap)", "grad(grad(vmap))", "vjp(jvp(vmap))")},
}

POINTS = jnp.asarray([0.0, -0.5, 0.0])


def oracle(safe, name):
    order = DERIVATIVE.get(name, 1)
    for _ in range(order):
        safe = jax.grad(safe)
    return jnp.stack([jnp.asarray(safe(x)) for x in POINTS])


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("form", ["cond", "switch"])
def test_every_danger_at_once(form, order):
    build, safe = FORMS[form]
    functions = [build(danger) for danger in DANGERS.values()]
    together = lambda x: sum(f(x) for f in functions)
    got = jax.jit(ORDERS[order](together))(POINTS)
    np.testing.assert_allclose(got, len(functions) * oracle(safe, order), rtol=1e-13)


@pytest.mark.parametrize("order", ["vmap(grad)", "grad(vmap)", "jvp(vmap)", "vmap(hessian)", "hessian(vmap)"])
@pytest.mark.parametrize("form", ["cond in fori_loop", "switch in scan", "cond in cond"])
def test_inside_other_control_flow(form, order):
    build, safe = FORMS[form]
    got = jax.jit(ORDERS[order](build(DANGERS["log"])))(POINTS)
    np.testing.assert_allclose(got, oracle(safe, order), rtol=1e-13, atol=1e-300)


@pytest.mark.parametrize("form", ["cond", "switch"])
@pytest.mark.parametrize("danger", DANGERS)
def test_the_quabla_transforms(form, danger):
    f = FORMS[form][0](DANGERS[danger])
    for gradient in (
        qb.vmap(qb.grad(f))(POINTS),
        qb.grad(lambda x: qb.sum(qb.vmap(f)(x)))(POINTS),
        qb.jvp(qb.vmap(f), (POINTS,), (ones(POINTS),))[1],
    ):
        np.testing.assert_allclose(gradient, oracle(SAFE, "vmap(grad)"), rtol=1e-13)
    np.testing.assert_allclose(
        qb.hessian(lambda x: qb.sum(qb.vmap(f)(x)))(POINTS), np.diag(oracle(SAFE, "hessian(vmap)"))
    )


def test_the_gradient_of_an_operand_that_only_the_other_branch_reads():
    def f(x, scale):
        return qb.cond(x > 0.5, lambda x, s: jnp.log(x) * s, lambda x, s: x, x, scale)

    gradient = jax.grad(lambda s: jnp.sum(jax.vmap(f, (0, None))(POINTS, s)))(2.0)
    assert gradient == 0.0


def test_where_lets_it_through_so_the_points_are_dangerous():
    """The control: the same functions under `where` do give NaN, so the tests above can fail."""
    leaked = [
        not np.isfinite(jax.vmap(jax.grad(lambda x, d=danger: jnp.where(x > 0.5, d(x), SAFE(x))))(POINTS)).all()
        for danger in DANGERS.values()
    ]
    assert all(leaked)


def test_a_mapped_predicate_that_is_not_finite_makes_that_example_nan():
    f = lambda p, x: qb.cond(p, lambda x: x * x, lambda x: -x, x)
    got = qb.vmap(f)(qb.array([1.0, np.nan, np.inf, 0.0]), qb.array([2.0, 3.0, 4.0, 5.0]))
    np.testing.assert_array_equal(got, [4.0, np.nan, np.nan, -5.0])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    "form",
    [
        lambda f: qb.jit(f),
        lambda f: qb.grad(f, argnums=1),
        lambda f: qb.jit(qb.grad(f, argnums=1)),
        lambda f: qb.hessian(f, argnums=1),
        lambda f: lambda p, x: qb.jvp(f, (p, x), (1.0, 1.0)),
        lambda f: lambda p, x: qb.vjp(f, p, x),
        lambda f: qb.vmap(f, in_axes=(None, 0)),
        lambda f: f,
    ],
    ids=["jit", "grad", "jit(grad)", "hessian", "jvp", "vjp", "vmap", "eager"],
)
def test_an_unmapped_predicate_that_is_not_finite_raises_when_the_program_runs(form, bad):
    f = form(lambda p, x: qb.cond(p, lambda x: x * x, lambda x: -x, x))
    x = qb.array([2.0]) if hasattr(f, "in_axes") else qb.array(2.0)
    f(qb.array(1.0), x)
    with pytest.raises(ValueError, match="conditional predicate must be finite"):
        f(qb.array(bad), x)
