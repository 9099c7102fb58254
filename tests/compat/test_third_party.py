"""Programs over other people's libraries, run as they are and under patched(): same values, same gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from quabla_jax.compat import patched

# Deprecations of the libraries' own making say nothing about this project.
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]


def both(make, checkpoint="sqrt", while_checkpoint=None):
    """The program's result without and within patched(); `make` builds and jits anew each time."""
    plain = make()
    with patched(checkpoint, while_checkpoint=while_checkpoint):
        engine = make()
    return plain, engine


def assert_close(plain, engine, rtol=1e-11, atol=1e-12):
    a, b = jax.tree.leaves(plain), jax.tree.leaves(engine)
    assert len(a) == len(b) > 0
    for x, y in zip(a, b):
        x, y = np.asarray(x), np.asarray(y)
        assert x.dtype == y.dtype and np.isfinite(x).all()
        np.testing.assert_allclose(y, x, rtol=rtol, atol=atol)


def python_loop(f, carry, xs):
    for x in xs:
        carry, _ = f(carry, x)
    return carry, None


def test_equinox_rnn_training(engine_calls):
    """Judged by a Python loop: jax 0.10.2's own gradient of vmap(scan) over a GRU cell is wrong (test_known_pains.py)."""
    eqx = pytest.importorskip("equinox", reason="trains an equinox model")
    optax = pytest.importorskip("optax", reason="trains with optax")

    loop = python_loop

    class RNN(eqx.Module):
        cell: eqx.nn.GRUCell
        head: eqx.nn.Linear

        def __init__(self, key):
            first, second = jax.random.split(key)
            self.cell, self.head = eqx.nn.GRUCell(2, 5, key=first), eqx.nn.Linear(5, 1, key=second)

        def __call__(self, xs):
            last, _ = loop(lambda h, x: (self.cell(x, h), None), jnp.zeros(5), xs)
            return self.head(last)[0]

    def train():
        model = RNN(jax.random.key(0))
        xs = jax.random.normal(jax.random.key(1), (4, 17, 2))
        ys = xs[..., 0].sum(-1)
        optimiser = optax.adam(1e-2)
        state = optimiser.init(eqx.filter(model, eqx.is_array))

        @eqx.filter_jit
        def step(model, state):
            loss, grads = eqx.filter_value_and_grad(lambda m: jnp.mean((jax.vmap(m)(xs) - ys) ** 2))(model)
            updates, state = optimiser.update(grads, state)
            return eqx.apply_updates(model, updates), state, loss

        losses = []
        for _ in range(3):
            model, state, loss = step(model, state)
            losses.append(loss)
        return losses, eqx.filter(model, eqx.is_array)

    judge = train()
    loop = jax.lax.scan
    with patched("sqrt"):
        assert_close(judge, train(), rtol=1e-9)
    assert engine_calls["scan"] >= 1


def test_flax_rnn_training(engine_calls):
    nn = pytest.importorskip("flax.linen", reason="trains a flax model")
    optax = pytest.importorskip("optax", reason="trains with optax")

    def train():
        model = nn.RNN(nn.LSTMCell(4))
        xs = jax.random.normal(jax.random.key(1), (3, 13, 2), jnp.float32)  # flax cells are float32
        parameters = model.init(jax.random.key(0), xs)
        optimiser = optax.sgd(1e-2)
        state = optimiser.init(parameters)

        @jax.jit
        def step(parameters, state):
            loss, grads = jax.value_and_grad(lambda p: jnp.mean((model.apply(p, xs) - 0.5) ** 2))(parameters)
            updates, state = optimiser.update(grads, state)
            return optax.apply_updates(parameters, updates), state, loss

        for _ in range(3):
            parameters, state, loss = step(parameters, state)
        return loss, parameters

    assert_close(*both(train), rtol=1e-5, atol=1e-7)
    assert engine_calls["scan"] >= 1


def test_optax_lbfgs_fit(engine_calls):
    optax = pytest.importorskip("optax", reason="fits with optax's L-BFGS")

    def fit():
        t = jnp.linspace(0.0, 1.0, 8)
        target = jnp.exp(-1.3 * t)

        def loss(rate):
            step = lambda y, _: (y - rate * y * (1 / 64), y)
            ys = jax.lax.scan(step, 1.0, None, length=64)[1]
            return jnp.sum((ys[::8] - target) ** 2)

        optimiser = optax.lbfgs()
        value_and_grad = optax.value_and_grad_from_state(loss)

        @jax.jit
        def run(rate):
            def body(carry):
                rate, state = carry
                value, grad = value_and_grad(rate, state=state)
                updates, state = optimiser.update(grad, state, rate, value=value, grad=grad, value_fn=loss)
                return optax.apply_updates(rate, updates), state

            rate = jnp.asarray(rate)
            return jax.lax.fori_loop(0, 6, lambda _, c: body(c), (rate, optimiser.init(rate)))[0]

        return run(0.2)

    plain, engine = both(fit)
    assert_close(plain, engine, rtol=1e-8)
    assert engine_calls["scan"] >= 1 and engine_calls["while_loop"] >= 1


@pytest.mark.parametrize("adjoint", ["RecursiveCheckpointAdjoint", "DirectAdjoint"])
def test_diffrax_adjoints(adjoint, engine_calls):
    diffrax = pytest.importorskip("diffrax", reason="solves with diffrax")

    def solve():
        @jax.jit
        def loss(args):
            solution = diffrax.diffeqsolve(
                diffrax.ODETerm(lambda t, y, a: jnp.stack([y[1], -a[0] * jnp.sin(y[0]) - a[1] * y[1]])),
                diffrax.Tsit5(),
                0.0,
                1.0,
                0.1,
                jnp.asarray([1.0, 0.0]),
                args,
                saveat=diffrax.SaveAt(ts=jnp.linspace(0.2, 1.0, 4)),
                stepsize_controller=diffrax.PIDController(rtol=1e-6, atol=1e-8),
                adjoint=getattr(diffrax, adjoint)(),
                max_steps=256,
            )
            return jnp.sum(solution.ys**2)

        value = jax.value_and_grad(loss)(jnp.asarray([2.0, 0.3]))
        if adjoint == "DirectAdjoint":
            return value, jax.jvp(loss, (jnp.asarray([2.0, 0.3]),), (jnp.ones(2),))
        return value

    assert_close(*both(solve), rtol=1e-10)
    assert sum(engine_calls.values()) >= 1


def test_blackjax_nuts_draws_are_bit_identical(engine_calls):
    blackjax = pytest.importorskip("blackjax", reason="samples with blackjax")

    def sample():
        nuts = blackjax.nuts(
            lambda q: -0.5 * jnp.sum(q**2) - 0.1 * jnp.sum(q**4),
            step_size=0.3,
            inverse_mass_matrix=jnp.ones(2),
        )
        step = jax.jit(nuts.step)

        def one(state, key):
            state, info = step(key, state)
            return state, (state.position, info.num_integration_steps)

        return jax.lax.scan(one, nuts.init(jnp.asarray([0.5, -1.0])), jax.random.split(jax.random.key(3), 12))[1]

    plain, engine = both(sample)
    for a, b in zip(jax.tree.leaves(plain), jax.tree.leaves(engine)):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
    assert engine_calls["while_loop"] >= 1 and engine_calls["scan"] >= 1


def test_numpyro_svi_steps(engine_calls):
    numpyro = pytest.importorskip("numpyro", reason="a numpyro model")
    from numpyro.infer import SVI, Trace_ELBO
    from numpyro.infer.autoguide import AutoNormal

    def run():
        def model(ys):
            a = numpyro.sample("a", numpyro.distributions.Normal(0.5, 0.5))
            step = lambda z, y: (a * z + y, a * z)
            _, mean = jax.lax.scan(step, 0.0, ys)
            numpyro.sample("ys", numpyro.distributions.Normal(mean, 1.0), obs=ys)

        ys = jnp.sin(jnp.arange(11.0))
        svi = SVI(model, AutoNormal(model), numpyro.optim.Adam(1e-2), Trace_ELBO())
        state = svi.init(jax.random.PRNGKey(0), ys)
        update = jax.jit(svi.update)
        for _ in range(2):
            state, loss = update(state, ys)
        return loss, svi.get_params(state)

    assert_close(*both(run), rtol=1e-9)
    assert engine_calls["scan"] >= 1


def test_optimistix_root_finding(engine_calls):
    optimistix = pytest.importorskip("optimistix", reason="finds roots with optimistix")

    def solve():
        def root(a):
            fn = lambda y, a: jnp.tanh(y) * a + y - jnp.asarray([1.0, -0.5])
            return optimistix.root_find(fn, optimistix.Newton(rtol=1e-10, atol=1e-10), jnp.zeros(2), args=a).value

        return jax.jit(root)(0.7), jax.jit(jax.jacrev(root))(0.7)

    assert_close(*both(solve), rtol=1e-9)
    assert engine_calls["while_loop"] >= 1


def test_jaxopt_root_finding(engine_calls):
    jaxopt = pytest.importorskip("jaxopt", reason="finds roots with jaxopt")

    def solve():
        def root(a):
            solver = jaxopt.Bisection(lambda x, a: x**3 - x - a, 1.0, 3.0, maxiter=60, tol=1e-12)
            return solver.run(a=a).params

        return root(2.0), jax.grad(root)(2.0)

    assert_close(*both(solve), rtol=1e-9)
    assert engine_calls["while_loop"] >= 1
