"""Every array function beside the real quabla on random inputs: values, gradients, jvp, vmap, both float dtypes."""

import json
import pathlib

import numpy as np
import pytest
from quabla_parity import Case, check

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(2, 3)), RNG.normal(size=(2, 3))
POSITIVE, UNIT = RNG.uniform(0.5, 2.0, (2, 3)), RNG.uniform(-0.9, 0.9, (2, 3))
V, W, SQUARE = RNG.normal(size=3), RNG.normal(size=3), RNG.normal(size=(3, 3))
MASK, MASK2 = (
    np.array([[True, False, True], [False, False, True]]),
    np.array([[True, True, False], [False, True, True]]),
)
VALUE = ("value", "vmap")


def calls(names, *inputs, **options):
    """One case a name: the function of that name on `inputs`."""
    return [Case(name, lambda qb, *xs, name=name: getattr(qb, name)(*xs), inputs, **options) for name in names.split()]


def each(name, functions, *inputs, **options):
    """Several ways to call one function."""
    return [Case(f"{name}-{k}", fun, inputs, **options) for k, fun in enumerate(functions)]


ELEMENTWISE = [
    *calls(
        "abs sign square cbrt exp expm1 exp2 sin cos tan arctan sinh cosh tanh arcsinh erf erfc floor ceil round", X
    ),
    *calls("relu sigmoid softplus silu stop_gradient nan_to_num", X),
    *calls("sqrt log log1p log2 log10 reciprocal", POSITIVE),
    *calls("arccosh", POSITIVE + 1.5),
    *calls("arcsin arccos arctanh", UNIT),
    *calls("atan2 fmod mod remainder maximum minimum hypot logaddexp", X, Y),
    *calls("power", POSITIVE, Y),
    *calls("isnan isfinite isinf", X, modes=VALUE),
    *calls("equal not_equal greater greater_equal less less_equal", X, Y, modes=VALUE),
    *calls("logical_and logical_or", MASK, MASK2, modes=VALUE),
    *calls("logical_not", MASK, modes=VALUE),
    *each("gelu", [lambda qb, x: qb.gelu(x), lambda qb, x: qb.gelu(x, approximate=False)], X),
    *each("power", [lambda qb, x: qb.power(x, 3), lambda qb, x: qb.power(2.5, x), lambda qb, x: qb.power(x, -2)], X),
    *each("clip", [lambda qb, x: qb.clip(x, -0.5, 0.5), lambda qb, x: qb.clip(x, hi=0.3), lambda qb, x: qb.clip(x)], X),
    *each("where", [lambda qb, m, x, y: qb.where(m, x, y), lambda qb, m, x, y: qb.where(m, x, 1.0) * y], MASK, X, Y),
    *each("weak", [lambda qb, x: qb.maximum(1, x) + qb.where(x > 0.0, 1.0, 2.0) * x], X),
]

REDUCTIONS = [
    case
    for name in ("sum", "mean", "prod", "max", "min", "norm", "logsumexp", "var", "std")
    for case in each(
        name,
        [
            lambda qb, x, name=name: getattr(qb, name)(x),
            lambda qb, x, name=name: getattr(qb, name)(x, axis=1, keepdims=True),
            lambda qb, x, name=name: getattr(qb, name)(x, (0, -1)),
        ],
        X,
    )
]
REDUCTIONS += [
    *each("any", [lambda qb, m: qb.any(m), lambda qb, m: qb.any(m, axis=0)], MASK, modes=VALUE),
    *each("all", [lambda qb, m: qb.all(m), lambda qb, m: qb.all(m, axis=1, keepdims=True)], MASK, modes=VALUE),
    *each("cumsum", [lambda qb, x: qb.cumsum(x), lambda qb, x: qb.cumsum(x, 1, True)], X),
    *each("softmax", [lambda qb, x: qb.softmax(x), lambda qb, x: qb.softmax(x, axis=0)], X),
    *each("log_softmax", [lambda qb, x: qb.log_softmax(x), lambda qb, x: qb.log_softmax(x, axis=(0, 1))], X),
    *each("ddof", [lambda qb, x: qb.var(x, 1, ddof=1), lambda qb, x: qb.std(x, 0, True, 1)], X),
]

LINEAR = ("value", "grad", "vmap")
SHAPES = [
    *each("reshape", [lambda qb, x: qb.reshape(x, (3, -1)), lambda qb, x: qb.reshape(x, 6)], X, modes=LINEAR),
    *each("ravel", [lambda qb, x: qb.ravel(x)], X, modes=LINEAR),
    *each("transpose", [lambda qb, x: qb.transpose(x), lambda qb, x: qb.transpose(x, (1, 0))], X, modes=LINEAR),
    *each("moveaxis", [lambda qb, x: qb.moveaxis(x, 0, -1), lambda qb, x: qb.swapaxes(x, 0, 1)], X, modes=LINEAR),
    *each(
        "squeeze",
        [lambda qb, x: qb.squeeze(qb.expand_dims(x, (0, -1)), 0), lambda qb, x: qb.squeeze(x)],
        X,
        modes=LINEAR,
    ),
    *each("broadcast_to", [lambda qb, x: qb.broadcast_to(x, (2, 2, 3))], X, modes=LINEAR),
    *each("concat", [lambda qb, x, y: qb.concat([x, y], 1), lambda qb, x, y: qb.stack([x, y], -1)], X, Y, modes=LINEAR),
    *each("split", [lambda qb, x: qb.split(x, 3, axis=1), lambda qb, x: qb.split(x, [1], axis=1)], X, modes=LINEAR),
    *each("tile", [lambda qb, x: qb.tile(x, (2, 1, 2)), lambda qb, x: qb.repeat(x, 2, axis=0)], X, modes=LINEAR),
    *each("repeat", [lambda qb, x: qb.repeat(x, [0, 2, 1], axis=1), lambda qb, x: qb.repeat(x, 3)], X, modes=LINEAR),
    *each("flip", [lambda qb, x: qb.flip(x), lambda qb, x: qb.flip(x, 1)], X, modes=LINEAR),
    *each(
        "roll",
        [lambda qb, x: qb.roll(x, 4), lambda qb, x: qb.roll(x, (1, -1), (0, 1)), lambda qb, x: qb.roll(x, 1, (0, 1))],
        X,
        modes=LINEAR,
    ),
    *each(
        "pad",
        [
            lambda qb, x, mode=mode: qb.pad(x, ((1, 2), (0, 4)), mode)
            for mode in ("edge", "reflect", "symmetric", "wrap")
        ],
        X,
        modes=LINEAR,
    ),
    *each(
        "pad-constant", [lambda qb, x: qb.pad(x, ((1, 0), (2, 1)), constant_values=((3, 4), (5, 6)))], X, modes=LINEAR
    ),
    *each("diag", [lambda qb, x: qb.diag(x, 1), lambda qb, x: qb.diag(x)], V, modes=LINEAR),
    *each(
        "diagonal",
        [lambda qb, x: qb.diagonal(x, -1), lambda qb, x: qb.trace(x), lambda qb, x: qb.diag(x)],
        SQUARE,
        modes=LINEAR,
    ),
    *each("tril", [lambda qb, x: qb.tril(x), lambda qb, x: qb.triu(x)], SQUARE, modes=LINEAR),
    *each(
        "meshgrid",
        [lambda qb, x, y: qb.meshgrid(x, y), lambda qb, x, y: qb.meshgrid(x, y, indexing="ij")],
        V,
        W[:2],
        modes=LINEAR,
    ),
    *each(
        "astype",
        [lambda qb, x: qb.astype(x, qb.float32), lambda qb, x: qb.astype(x > 0.0, qb.float64)],
        X,
        modes=("value",),
    ),
    *each("like", [lambda qb, x: [qb.zeros_like(x), qb.ones_like(x), qb.full_like(x, 2.0)]], X, modes=("value",)),
]

PRODUCTS = [
    *each(
        "matmul",
        [lambda qb, a, b: qb.matmul(a, b), lambda qb, a, b: qb.matmul(a, qb.transpose(b))],
        SQUARE,
        SQUARE.T + 1,
    ),
    *each(
        "vectors",
        [
            lambda qb, v, w: qb.matmul(v, w),
            lambda qb, v, w: qb.outer(v, w),
            lambda qb, v, w: qb.dot(v, w),
            lambda qb, v, w: qb.kron(v, w),
            lambda qb, v, w: qb.cross(v, w),
        ],
        V,
        W,
    ),
    *each(
        "mixed",
        [lambda qb, a, v: qb.matmul(a, v), lambda qb, a, v: qb.dot(v, a), lambda qb, a, v: qb.tensordot(a, v, 1)],
        SQUARE,
        V,
    ),
    *each(
        "tensordot",
        [lambda qb, a, b: qb.tensordot(a, b, ((0,), (1,))), lambda qb, a, b: qb.kron(a, b)],
        SQUARE,
        SQUARE + 1,
    ),
    *each("einsum", [lambda qb, a, b: qb.einsum("ij,jk->ik", [a, b])], SQUARE, SQUARE + 1),
    *each(
        "diff", [lambda qb, x: qb.diff(x), lambda qb, x: qb.diff(x, 1, 0, prepend=1.0), lambda qb, x: qb.diff(x, 2)], X
    ),
    *each("trapezoid", [lambda qb, x: qb.trapezoid(x), lambda qb, x: qb.trapezoid(x, dx=0.5, axis=0)], X),
    *each("trapezoid-x", [lambda qb, y, x: qb.trapezoid(y, x)], X, np.sort(V)),
    *each(
        "interp",
        [lambda qb, x, p, f: qb.interp(x, p, f), lambda qb, x, p, f: qb.interp(x, p, f, left=-1.0, right=2.0)],
        X,
        np.array([-1.0, 0.2, 1.0]),
        V,
        modes=("value", "grad", "jvp"),
    ),
    *each("polyval", [lambda qb, p, x: qb.polyval(p, x), lambda qb, p, x: qb.polyval([1, 2, 3], x) * p[0]], V, V + 1),
]

CREATION = each(
    "creation",
    [
        lambda qb: [
            qb.zeros(3),
            qb.ones((2, 1)),
            qb.full(2, 3),
            qb.eye(2, 3),
            qb.array([[1, 2], [3, 4]]),
            qb.asarray(True),
        ],
        lambda qb: [
            qb.arange(5),
            qb.arange(0.0, 1.0, 0.1),
            qb.arange(2.0, -1.0, -0.7),
            qb.arange(1, 4, dtype=qb.float32),
        ],
        lambda qb: [qb.linspace(0, 1, 7), qb.linspace(-1.0, 3.0, 1), qb.linspace(1, 0, 4, dtype=qb.float32)],
    ],
    modes=("value",),
)

CASES = [*ELEMENTWISE, *REDUCTIONS, *SHAPES, *PRODUCTS, *CREATION]
SLOW = [pytest.mark.slow]
RUNS = [
    pytest.param(case, mode, "float64", marks=SLOW if mode == "vmap" else []) for case in CASES for mode in case.modes
] + [
    pytest.param(case, mode, "float32", marks=SLOW if mode == "grad" else [])
    for case in CASES
    for mode in case.modes
    if mode in ("value", "grad") and case.inputs
]
SECOND = [
    case
    for case in CASES
    if case.name
    in {
        "sin",
        "sqrt",
        "abs",
        "norm-0",
        "logsumexp-0",
        "prod-0",
        "max-0",
        "power",
        "std-1",
        "hypot",
        "matmul-0",
        "softmax-0",
    }
]


@pytest.mark.parametrize("case, mode, dtype", RUNS, ids=lambda v: getattr(v, "name", v))
def test_it_agrees_with_quabla(case, mode, dtype):
    check(case, mode, dtype)


@pytest.mark.parametrize("case", SECOND, ids=lambda case: case.name)
def test_second_derivatives_agree_with_quabla(case):
    check(case, "hessian", "float64")


class Recorder:
    """A namespace that notes which names are used."""

    def __init__(self, qb, used):
        self._qb, self._used = qb, used

    def __getattr__(self, name):
        self._used.add(name)
        return getattr(self._qb, name)


def test_every_array_function_is_compared():
    import quabla_parity

    import quabla_jax

    used = set()
    for case in CASES:
        quabla_parity.run(Recorder(quabla_jax, used), case, "value", "float64")
    recorded = json.loads((pathlib.Path(__file__).parents[1] / "data" / "quabla_names.json").read_text())
    elsewhere = set(
        "cholesky solve newton save load devices jit grad value_and_grad vjp jvp jacobian hessian vmap cond".split()
    )
    elsewhere |= set("fori_loop scan while_loop custom_vjp custom_jvp checkpoint remat ShapeDtype".split())
    functions = {n for n in recorded["top"] + recorded["shadowing"] if n[0].islower() and n not in recorded}
    assert functions - elsewhere - used <= {
        "dtype",
        "bool_",
        "float32",
        "float64",
        "random",
        "tree",
        "distributed",
        "linalg",
        "ode",
        "optim",
    }


SPECIAL = np.array([-np.inf, -2.5, -2.0, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 1.5, 2.0, np.inf, np.nan])
UNARY = "abs sign square reciprocal sqrt cbrt exp expm1 exp2 log log1p log2 log10 sin cos tan arcsin arccos arctan sinh cosh tanh arcsinh arccosh arctanh erf erfc floor ceil round nan_to_num relu silu sigmoid softplus gelu".split()


@pytest.mark.parametrize("name", UNARY)
def test_special_points_agree_with_quabla(name):
    case = Case(name, lambda qb, x: getattr(qb, name)(x), (SPECIAL,))
    check(case, "value", "float64")
    import quabla_parity

    import quabla_jax

    slopes = [
        quabla_parity.plain(qb.grad(lambda x: qb.sum(getattr(qb, name)(x)))(qb.array(SPECIAL.tolist())))
        for qb in (quabla_jax, quabla_parity.reference())
    ]
    quabla_parity.assert_same(*slopes, 1e-10)


GRID = np.array([-np.inf, -2.5, -2.0, -0.0, 0.0, 0.5, 1.0, 3.0, np.inf, np.nan])
FIRST, OTHER = (axis.ravel() for axis in np.meshgrid(GRID, GRID, indexing="ij"))


@pytest.mark.parametrize("name", ["power", "atan2", "fmod", "maximum", "minimum", "hypot", "logaddexp", "mod"])
def test_special_pairs_agree_with_quabla(name):
    import quabla_parity

    import quabla_jax

    found = []
    for qb in (quabla_jax, quabla_parity.reference()):
        pair, fun = [qb.array(z.tolist()) for z in (FIRST, OTHER)], getattr(qb, name)
        slopes = qb.grad(lambda a, b: qb.sum(fun(a, b)), argnums=(0, 1))(*pair)
        found.append(quabla_parity.plain([fun(*pair), *slopes]))
    if name == "mod":  # docs/differences.md: where the result is NaN, Quabla's reverse mode gives NaN
        valid = ~np.isnan(found[1][0])
        found = [[row[valid] if k else row for k, row in enumerate(rows)] for rows in found]
    quabla_parity.assert_same(*found, 1e-10)
