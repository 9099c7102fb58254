"""Linear algebra, iterative solvers, odeint and optimizers beside the real quabla, and what it leaves open."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quabla_parity import Case, assert_same, check, plain, reference

import quabla_jax as qb

RNG = np.random.default_rng(3)
A, B = RNG.normal(size=(3, 3)) + 3 * np.eye(3), RNG.normal(size=(3, 2))
S = A @ A.T
TALL, V = RNG.normal(size=(4, 2)), RNG.normal(size=3)


def linear(x, a):
    return a @ x


DENSE = [
    Case("solve", lambda qb, a, b: qb.linalg.solve(a, b), (A, B)),
    Case("solve-vector", lambda qb, a, b: qb.solve(a, b), (A, V)),
    Case("solve-batch", lambda qb, a, b: qb.solve(a, b), (np.stack([A, A + 1]), V), ("value", "grad", "jvp")),
    Case("triangular", lambda qb, a, b: qb.linalg.solve_triangular(a, b, "T", True), (A, B)),
    Case("cholesky", lambda qb, a: qb.linalg.cholesky(qb.matmul(a, qb.transpose(a))), (A,), ("grad", "jvp")),
    Case("cho_solve", lambda qb, a, b: qb.linalg.cho_solve(a, b, lower=False), (A, B)),
    Case("det", lambda qb, a: [qb.linalg.det(a), qb.linalg.inv(a)], (A,)),
    Case("slogdet", lambda qb, a: list(qb.linalg.slogdet(a)), (A,)),
    Case("eigh", lambda qb, a: list(qb.linalg.eigh(a)), (S,), loose=100),
    Case("qr", lambda qb, a: list(qb.linalg.qr(a)), (TALL,)),
    Case("qr-wide", lambda qb, a: list(qb.linalg.qr(a)), (TALL.T,)),
    Case("qr-complete", lambda qb, a: qb.linalg.qr(a, "complete").R, (TALL,), ("value",)),
    Case("svd", lambda qb, a: list(qb.linalg.svd(a)), (TALL,), loose=100),
    Case("svd-wide", lambda qb, a: list(qb.linalg.svd(a)), (TALL.T,), loose=100),
    Case("lstsq", lambda qb, a, b: list(qb.linalg.lstsq(a, b, True)), (TALL, RNG.normal(size=(4, 2)))),
    Case("lstsq-wide", lambda qb, a, b: qb.linalg.lstsq(a, b), (TALL.T, RNG.normal(size=2))),
    Case("pinv", lambda qb, a: qb.linalg.pinv(a), (TALL,), loose=100),
    Case("matrix_power", lambda qb, a: [qb.linalg.matrix_power(a, 5), qb.linalg.matrix_power(a, -2)], (A,), loose=100),
    *[
        Case(f"norm-{order}", lambda qb, a, order=order: qb.linalg.norm(a, order), (A,), ("value", "grad"))
        for order in ("fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf)
    ],
    *[
        Case(f"vector-norm-{order}", lambda qb, v, order=order: qb.linalg.norm(v, order), (V,), ("value", "grad"))
        for order in (None, 0, 1, 2, 3, -1, 0.5, np.inf, -np.inf)
    ],
]
RUNS = [(case, mode) for case in DENSE for mode in case.modes if mode != "vmap"]


@pytest.mark.parametrize("case, mode", RUNS, ids=lambda v: getattr(v, "name", v))
def test_dense_linear_algebra_agrees_with_quabla(case, mode):
    check(case, mode, "float64")


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case in DENSE if "vmap" in case.modes], ids=lambda case: case.name)
def test_batched_linear_algebra_agrees_with_quabla(case):
    check(case, "vmap", "float64")


MATVEC = {
    "cg": lambda qb: lambda x, a: qb.matmul(qb.matmul(a, qb.transpose(a)), x),
    "gmres": lambda qb: lambda x, a: qb.matmul(a, x),
}
ITERATIVE = [
    Case(
        name,
        lambda qb, a, b, name=name: getattr(qb.linalg, name)(MATVEC[name](qb), b, args=(a,), tol=1e-12),
        (A, V),
        loose=100,
    )
    for name in ("cg", "gmres")
]
ITERATIVE.append(
    Case(
        "newton",
        lambda qb, a, b: qb.newton(lambda x, a, b: qb.matmul(a, x) + 0.1 * x * x * x - b, b, args=(a, b)),
        (A, V),
        loose=100,
    )
)


@pytest.mark.parametrize("mode", ["value", "grad", "jvp", "vmap", pytest.param("hessian", marks=pytest.mark.slow)])
@pytest.mark.parametrize("case", ITERATIVE, ids=lambda case: case.name)
def test_implicit_derivatives_agree_with_quabla(case, mode):
    check(case, mode, "float64")


def test_solver_reports_agree_with_quabla():
    found = []
    for lib in (qb, reference()):
        a, b = lib.array(S.tolist()), lib.array(V.tolist())
        apply = lambda x, a: lib.matmul(a, x)  # noqa: E731
        reports = [lib.linalg.cg(apply, b, args=(a,), info=True, maxiter=n)[1] for n in (1, 2, 10)]
        reports += [lib.linalg.gmres(apply, b, args=(a,), info=True, restart=n, maxiter=3)[1] for n in (1, 2, 5)]
        reports.append(lib.newton(lambda x: lib.exp(x) - 2.0, lib.array(5.0), info=True)[1])
        found.append(plain([[r["iterations"], r["success"]] for r in reports]))
    assert_same(*found, 0.0)


@pytest.mark.parametrize("solver", [qb.linalg.cg, pytest.param(qb.linalg.gmres, marks=pytest.mark.slow)])
def test_third_derivatives_match_the_direct_solution(solver):
    def curved(solve):
        return lambda s: jnp.sum(solve(S * s) ** 2)

    iterative = curved(lambda a: solver(linear, jnp.asarray(V), args=(a,), tol=1e-13))
    direct = curved(lambda a: jnp.linalg.solve(a, jnp.asarray(V)))
    third = [jax.jacfwd(jax.grad(jax.jacfwd(f)))(1.3) for f in (iterative, direct)]
    np.testing.assert_allclose(*third, rtol=1e-8)


def test_the_start_has_no_gradient_but_saves_iterations():
    def solve(x0):
        return qb.linalg.cg(linear, jnp.asarray(V), args=(jnp.asarray(S),), x0=x0, tol=1e-10, info=True)

    answer = jnp.linalg.solve(S, V)
    assert solve(answer)[1]["iterations"] == 0
    assert not jax.grad(lambda x0: jnp.sum(solve(x0)[0]))(answer + 0.1).any()


def test_a_preconditioned_gmres_transposes_its_preconditioner():
    def loss(b):
        return jnp.sum(
            qb.linalg.gmres(linear, b, args=(jnp.asarray(A),), M=lambda r, a: jnp.tril(a) @ r / 9, tol=1e-12) ** 2
        )

    want = jax.grad(lambda b: jnp.sum(jnp.linalg.solve(A, b) ** 2))(jnp.asarray(V))
    np.testing.assert_allclose(jax.grad(loss)(jnp.asarray(V)), want, rtol=1e-8)


@pytest.mark.parametrize(
    "call, error, text",
    [
        (lambda: qb.linalg.cg(3, V), TypeError, "callable matvec"),
        (
            lambda: qb.linalg.cg(lambda x: x, jnp.ones(2), x0=jnp.ones(3)),
            ValueError,
            "x0 of the right-hand side's shape",
        ),
        (lambda: qb.linalg.cg(lambda x: x[:1], jnp.ones(2)), ValueError, "matvec must return an array"),
        (lambda: qb.linalg.cg(lambda x: x.astype("float32"), jnp.ones(2)), TypeError, "dtype f64, got f32"),
        (lambda: qb.linalg.cg(lambda x: x, jnp.ones(2), tol=-1.0), ValueError, "non-negative number, got -1.0"),
        (lambda: qb.linalg.cg(lambda x: x, jnp.ones(2), maxiter=True), TypeError, "maxiter must be a positive integer"),
        (
            lambda: qb.linalg.cg(lambda x: x, jnp.ones(2, bool)),
            TypeError,
            "float32 or float64 right-hand side, got bool",
        ),
        (
            lambda: qb.linalg.gmres(lambda x: x, jnp.ones(2), restart=0),
            ValueError,
            "restart must be a positive integer",
        ),
        (lambda: qb.newton(lambda x: x * x + 1.0, 1.0), RuntimeError, "newton did not converge"),
        (lambda: qb.newton(lambda x: x, 1.0, args=[2.0]), TypeError, "args must be a tuple, got list"),
        (lambda: qb.linalg.svd(jnp.ones(3)), ValueError, "stack of matrices"),
        (lambda: qb.linalg.solve(jnp.zeros((2, 2)), jnp.ones(2)), ValueError, "non-singular"),
        (lambda: qb.linalg.solve_triangular(jnp.zeros((2, 2)), jnp.ones(2)), ValueError, "non-singular"),
        (lambda: qb.jit(qb.linalg.inv)(jnp.ones((2, 2))), ValueError, "non-singular"),
    ],
)
def test_wrong_calls_raise(call, error, text):
    with pytest.raises(error, match=text):
        call()


def decay(qb):
    return lambda y, t, k: -k * y * qb.cos(t)


ODES = [
    *[
        Case(
            f"ode-{method}",
            lambda qb, y, k, method=method: qb.ode.odeint(decay(qb), y, (0.0, 1.0), steps=5, method=method, args=(k,)),
            (V, V),
        )
        for method in ("euler", "heun", "rk4")
    ],
    Case(
        "ode-save",
        lambda qb, y, k: qb.ode.odeint(decay(qb), y, (1.0, 0.0), steps=4, args=(k,), save=True),
        (V, V),
        ("value", "grad"),
    ),
    Case(
        "ode-saveat",
        lambda qb, y, k: qb.ode.odeint(decay(qb), y, (0.0, 1.0), steps=4, args=(k,), saveat=[0.0, 0.3, 1.0]),
        (V, V),
        ("value", "grad"),
    ),
    *[
        Case(
            f"ode-{method}",
            lambda qb, y, k, method=method: qb.ode.odeint(
                decay(qb),
                y,
                (0.0, 1.0),
                method=method,
                args=(k,),
                saveat=[0.1, 0.9],
                rtol=1e-4,
                atol=1e-6,
                max_steps=32,
            ),
            (V, V),
            loose=10,
        )
        for method in ("dopri5", "rosenbrock23")
    ],
]


@pytest.mark.parametrize(
    "case, mode", [(c, m) for c in ODES for m in c.modes if m in ("value", "grad")], ids=lambda v: getattr(v, "name", v)
)
def test_odeint_agrees_with_quabla(case, mode):
    check(case, mode, "float64")


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["jvp", "vmap", "hessian"])
@pytest.mark.parametrize("case", [c for c in ODES if "vmap" in c.modes], ids=lambda case: case.name)
def test_more_of_odeint_agrees_with_quabla(case, mode):
    check(case, mode, "float64")


def test_float32_solves_stay_float32():
    y = qb.ode.odeint(lambda y, t: -y, qb.array([1.0], dtype=qb.float32), (0.0, 1.0), method="dopri5")
    x = qb.newton(lambda x: x * x - 2.0, qb.array(1.0, dtype=qb.float32))
    assert y.dtype == x.dtype == np.float32


OPTIMIZERS = {
    "adam": lambda o: o.Adam(0.1, b1=0.8),
    "adam-clipped": lambda o: o.Adam(o.exponential_decay(0.1, 2, 0.5, staircase=True), clip_norm=0.5),
    "adamw": lambda o: o.AdamW(0.05, weight_decay=0.1),
    "sgd": lambda o: o.SGD(0.1, clip_norm=1.0),
    "sgd-scheduled": lambda o: o.SGD(o.warmup_cosine_decay(0.0, 0.3, 2, 6)),
    "sgd-pieces": lambda o: o.SGD(o.piecewise_constant([1, 3], [0.3, 0.2, 0.1])),
}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_optimizer_steps_agree_with_quabla(name, dtype):
    found = []
    for lib in (qb, reference()):
        p = {"w": lib.array(B.tolist(), dtype=getattr(lib, dtype)), "b": lib.array(1.5, dtype=getattr(lib, dtype))}
        optimizer = OPTIMIZERS[name](lib.optim)
        state = optimizer.init(p)
        for _ in range(4):
            p, state = optimizer.update(p, lib.grad(lambda p: lib.sum(lib.square(p["w"])) * p["b"])(p), state)
        found.append(plain([p, state]))
    assert_same(*found, 1e-12 if dtype == "float64" else 2e-6)


def test_clipping_agrees_with_quabla():
    found = []
    for lib in (qb, reference()):
        cases = [[3.0, 4.0], [3e200, 4e200], [0.1, 0.0], [float("nan"), 1.0], [float("inf"), 1.0]]
        found.append([plain(lib.optim.clip_by_global_norm({"a": lib.array(c)}, 1.0)) for c in cases])
    assert_same(*found, 1e-14)


@pytest.mark.parametrize(
    "options", [{"max_iterations": 2}, {"max_evaluations": 4}, {"tolerance_grad": 1e3}, {"history": 1}]
)
def test_lbfgs_reports_agree_with_quabla(options):
    found = []
    for lib in (qb, reference()):
        fun = lambda p: lib.sum(lib.square(p * p - 2.0)) + lib.square(p[0] * p[1])  # noqa: E731
        p, report = lib.optim.LBFGS(**options).minimize(fun, lib.array([0.5, -1.0, 2.0]))
        found.append(plain([p, report["reason"], report["iterations"], report["evaluations"]]))
    assert_same(*found, 1e-6)


def test_arguments_of_solvers_may_be_any_pytree_under_a_transform():
    def residual(x, p):
        return x * p["a"]["k"] - p["b"][0]

    def root(p):
        return qb.newton(residual, qb.array(1.0), args=(p,))

    gradient = qb.jit(qb.grad(root))({"a": {"k": qb.array(2.0)}, "b": [qb.array(3.0)]})
    assert_same(plain(gradient), plain({"a": {"k": qb.array(-0.75)}, "b": [qb.array(0.5)]}), 1e-12)


def test_an_integer_array_counts_as_the_default_float():
    counts = jnp.arange(1, 4)
    assert qb.sin(counts).dtype == qb.sum(counts).dtype == qb.maximum(counts, 2).dtype == np.float64


def test_the_facade_compiles_named_programs():
    program = qb.Compiler().trace(lambda x, y: qb.sin(x) * y, [("x", [2]), ("y", [2])])
    inputs = {"x": jnp.asarray([1.0, 2.0]), "y": jnp.asarray([3.0, 4.0])}
    run = program.compile("cpu")
    np.testing.assert_allclose(run(inputs), np.sin(inputs["x"]) * inputs["y"])
    in_x = program.vjp("ct")["x"].compile("cpu")({**inputs, "ct": jnp.ones(2)})
    np.testing.assert_allclose(in_x, np.cos(inputs["x"]) * inputs["y"])
    np.testing.assert_allclose(program.jvp("y").compile("cpu")(inputs), np.sin(inputs["x"]))
    assert program.output_shapes == [[2]] and "sine" in program.stablehlo_text() and qb.devices()[0] == "cpu"
    with pytest.raises(ValueError, match='missing input "y"'):
        run({"x": inputs["x"]})


@pytest.mark.parametrize("info", [False, True])
@pytest.mark.parametrize(
    "how", [lambda f: f, qb.jit, lambda f: qb.grad(lambda b: qb.sum(f(b)))], ids=["eager", "jit", "grad"]
)
def test_gmres_refuses_an_operator_that_shows_itself_singular(how, info):
    """As Quabla does, with info too: the least-squares problem of the cycle has a zero on its diagonal."""

    def solve(b):
        out = qb.linalg.gmres(lambda v: v * 0.0, b, info=info)
        return out[0] if info else out

    with pytest.raises(ValueError, match="requires a non-singular coefficient matrix"):
        how(solve)(qb.array([1.0, 2.0]))
    np.testing.assert_array_equal(solve(qb.array([0.0, 0.0])), [0.0, 0.0])
