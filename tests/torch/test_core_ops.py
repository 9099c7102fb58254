"""Every core op in aten against the NumPy oracle, edge values included; also after a file, and inside a loop's body."""

import itertools

import numpy as np
import pytest

pytest.importorskip("torch.jit", reason="needs PyTorch")

import ml_dtypes
import torch

from quabla_jax.lowering import CORE_OPS, run_on_numpy
from quabla_jax.lowering.infer import infer
from quabla_jax.lowering.program import Op, Program, Value
from quabla_jax.torch_bridge import GraphBuilder, ops
from quabla_jax.torch_bridge.script import build, tensor_of

BF16 = np.dtype(ml_dtypes.bfloat16)
FLOATS = [np.dtype(d) for d in ("float16", "float32", "float64")] + [BF16]
SIGNED = [np.dtype(f"int{n}") for n in (8, 16, 32, 64)]
UNSIGNED = [np.dtype(f"uint{n}") for n in (8, 16, 32, 64)]
INTS = SIGNED + UNSIGNED
COMPLEX = [np.dtype("complex64"), np.dtype("complex128")]
BOOL = [np.dtype(bool)]
F32 = [np.dtype("float32"), np.dtype("float64")]


def program_of(name, inputs, params):
    specs = infer(name, [x.shape for x in inputs], [x.dtype for x in inputs], params)
    values = tuple(Value(x.shape, x.dtype) for x in inputs)
    outputs = tuple(Value(s, np.dtype(d)) for s, d in specs)
    return Program(values, (Op(name, values, params, outputs),), outputs)


def evaluate(name, inputs, params):
    return run_on_numpy(program_of(name, inputs, params), *inputs)


def run(name, inputs, params):
    """One core op as a whole TorchScript function; returns NumPy arrays, or None where torch has no rule."""
    program = program_of(name, inputs, params)
    if ops.supports(program.nodes[0]) is not None:
        return None
    gb = GraphBuilder("One")
    refs = [gb.input(f"x{k}") for k in range(len(inputs))]
    build(program, gb, refs, {})
    function = gb.module()
    tensors = [tensor_of(x) for x in inputs]
    out = function(*tensors)
    return [to_numpy(o) for o in (out if isinstance(out, tuple) else (out,))]


def to_numpy(tensor):
    if tensor.dtype == torch.bfloat16:
        return tensor.contiguous().view(torch.int16).numpy().view(BF16)
    return tensor.resolve_conj().numpy()


def ulps(got, want):
    """The largest difference in units in the last place of the dtype, zeros and infinities by value."""
    if got.dtype.kind == "c":
        return max(ulps(got.real, want.real), ulps(got.imag, want.imag))
    bits = np.dtype(f"int{8 * got.dtype.itemsize}")
    if got.size == 0:
        return 0
    a, b = (np.ascontiguousarray(v).view(bits).astype(np.float64) for v in (got, want))
    least = float(np.iinfo(bits).min)
    a, b = (np.where(v < 0, least - v, v) for v in (a, b))
    both_nan = np.isnan(got.astype(np.float64)) & np.isnan(want.astype(np.float64))
    return float(np.max(np.where(both_nan, 0, np.abs(a - b)), initial=0))


def check(name, inputs, params=None, ulp=None, signs=True):
    params = params or {}
    got = run(name, inputs, params)
    if got is None:
        return False
    want = [np.asarray(w) for w in evaluate(name, inputs, params)]
    for g, w in zip(got, want, strict=True):
        assert g.shape == w.shape and g.dtype == w.dtype, (name, g.dtype, w.dtype, g.shape, w.shape)
        if w.dtype.kind in "biu":
            assert np.array_equal(g, w), (name, w.dtype, inputs, g, w)
        else:
            bar = CORE_OPS[name].ulp if ulp is None else ulp
            assert ulps(g, w) <= bar, (name, w.dtype, ulps(g, w), inputs, g, w)
            if bar == 0 and signs and w.dtype.kind == "f":
                assert np.array_equal(np.signbit(g[~np.isnan(g)]), np.signbit(w[~np.isnan(w)])), (
                    name,
                    inputs,
                    g,
                    w,
                )
    return True


def edges(dtype):
    """Values at which backends differ."""
    if dtype.kind == "b":
        return np.array([False, True])
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        picks = {info.min, info.max, info.max - 1, 0, 1, 2, 3, 7, 8, 31, 63, info.max // 2}
        picks |= {-1, -2, -7, info.min + 1} if dtype.kind == "i" else {info.max // 2 + 1}
        return np.array(sorted(p for p in picks if info.min <= p <= info.max), dtype)
    if dtype.kind == "c":
        parts = [0.0, -0.0, 1.0, -2.5, 0.3]
        return np.array([complex(a, b) for a in parts for b in parts], dtype)
    tiny = float(ml_dtypes.finfo(dtype).tiny)
    greatest = float(ml_dtypes.finfo(dtype).max)
    return np.array(
        [
            0.0,
            -0.0,
            1.0,
            -1.0,
            0.5,
            2.5,
            -2.5,
            3.5,
            1.5,
            -0.3,
            7.0,
            tiny,
            -tiny,
            greatest,
            -greatest,
            np.inf,
            -np.inf,
            np.nan,
        ],
    ).astype(dtype)


def pairs(dtype):
    a, b = zip(*itertools.product(edges(dtype), repeat=2))
    return np.array(a, dtype), np.array(b, dtype)


UNARY = {
    "neg": FLOATS + INTS + COMPLEX, "abs": FLOATS + INTS, "sign": FLOATS + INTS, "floor": FLOATS, "ceil": FLOATS,
    "round_even": FLOATS, "is_finite": FLOATS, "not": INTS + BOOL, "real": COMPLEX, "imag": COMPLEX, "conj": COMPLEX,
    "sqrt": FLOATS, "rsqrt": FLOATS, "exp": FLOATS, "expm1": FLOATS, "log": FLOATS, "log1p": FLOATS, "sin": F32, "cos": F32,
    "tan": F32, "asin": FLOATS, "acos": FLOATS, "atan": FLOATS, "sinh": F32, "cosh": F32, "tanh": FLOATS, "asinh": F32,
    "acosh": F32, "atanh": F32, "logistic": FLOATS, "erf": F32, "erfc": F32, "erf_inv": F32,
}  # fmt: skip


@pytest.mark.parametrize("name", UNARY)
def test_unary(name):
    for dtype in UNARY[name]:
        x = edges(dtype)
        if name in ("erf_inv", "erfc", "erf"):
            x = np.array([0.1, 0.5, -0.3, 0.9, 0.0]).astype(dtype)
        assert check(name, [x], ulp=8 if name in ("erf_inv", "tan", "logistic") else None)


BINARY = {
    "add": FLOATS + INTS + COMPLEX + BOOL, "sub": FLOATS + INTS + COMPLEX, "mul": FLOATS + INTS + BOOL, "div": FLOATS + INTS,
    "rem": F32 + INTS, "max": FLOATS + INTS + BOOL, "min": FLOATS + INTS + BOOL, "and": INTS + BOOL, "or": INTS + BOOL,
    "xor": INTS + BOOL, "shift_left": INTS, "shift_right_logical": INTS, "shift_right_arithmetic": INTS,
    "eq": FLOATS + INTS + BOOL + COMPLEX, "ne": FLOATS + INTS + BOOL + COMPLEX, "lt": FLOATS + INTS + BOOL,
    "le": FLOATS + INTS + BOOL, "gt": FLOATS + INTS + BOOL, "ge": FLOATS + INTS + BOOL, "nextafter": F32,
    "atan2": F32, "complex": F32,
}  # fmt: skip


@pytest.mark.parametrize("name", BINARY)
def test_binary(name):
    for dtype in BINARY[name]:
        assert check(name, list(pairs(dtype)))


def test_pow():
    x, y = np.array(
        [[a, b] for a in (0.0, 1.0, 2.0, 0.5, np.inf, -2.0, -0.0) for b in (0.0, 1.0, -1.0, 0.5, 2.0, 3.0, np.inf)]
    ).T
    for dtype in F32:
        assert check("pow", [x.astype(dtype), y.astype(dtype)])


@pytest.mark.parametrize("source", FLOATS + INTS + BOOL + COMPLEX, ids=str)
def test_cast(source):
    for target in FLOATS + INTS + BOOL + COMPLEX:
        if target == source or (
            source.kind == "c" and target.kind not in "cb" and target != np.empty(0, source).real.dtype
        ):
            continue
        x = edges(source)
        if target in (np.dtype("float16"), BF16) and source in (np.dtype("float64"), *INTS):
            x = x[np.abs(x.astype(np.float64)) < 200] if source.kind != "b" else x
        assert check("cast", [x], {"dtype": target}), (source, target)


def test_casts_at_the_edges_of_the_range():
    for source, target in itertools.product(FLOATS, INTS):
        info = np.iinfo(target)
        near = np.array(
            [float(info.max) * s for s in (0.999, 1, 1.001, 2)] + [float(info.min) * s - 0.5 for s in (0.999, 1, 2)]
        )
        with np.errstate(over="ignore"):
            assert check("cast", [near.astype(source)], {"dtype": target})


def test_bitcast():
    for a, b in [
        ("int32", "float32"),
        ("uint32", "float32"),
        ("int64", "float64"),
        ("uint16", "float16"),
        ("uint64", "int64"),
        ("int8", "uint8"),
    ]:
        x = np.array([0, 1, 5, 100], a)
        assert check("bitcast", [x], {"dtype": np.dtype(b)})
        assert check("bitcast", [x.view(b)], {"dtype": np.dtype(a)})


def test_select():
    for dtype in FLOATS + INTS + COMPLEX + BOOL:
        x = edges(dtype)
        assert check("select", [np.arange(x.size) % 2 == 0, x, x[::-1].copy()])
        assert check("select", [np.array(True), x, x[::-1].copy()])


X = np.arange(24.0, dtype=np.float32).reshape(2, 3, 4)
I0 = lambda *v: [np.array(n, np.int32) for n in v]


@pytest.mark.parametrize(
    ("name", "inputs", "params"),
    [
        ("reshape", [X], {"shape": (4, 6)}),
        ("reshape", [X[:, :0]], {"shape": (0, 8)}),
        ("transpose", [X], {"perm": (2, 0, 1)}),
        ("broadcast", [X[0, 0]], {"shape": (2, 4, 3), "dims": (1,)}),
        ("broadcast", [X[:, :1, :1]], {"shape": (2, 5, 4), "dims": (0, 1, 2)}),
        ("slice", [X], {"start": (0, 1, 1), "limit": (2, 3, 4), "stride": (1, 1, 2)}),
        ("slice", [X], {"start": (1, 2, 0), "limit": (1, 3, 4), "stride": (1, 1, 1)}),
        ("pad", [X, np.float32(9)], {"low": (1, 0, 2), "high": (0, 2, 1), "interior": (0, 0, 0)}),
        ("pad", [X, np.float32(-0.0)], {"low": (-1, 1, 0), "high": (0, -2, 0), "interior": (2, 1, 3)}),
        ("pad", [X, np.float32(np.nan)], {"low": (-3, 0, 0), "high": (5, 0, 0), "interior": (0, 0, 0)}),
        ("pad", [X > 3, np.array(True)], {"low": (1, 0, 0), "high": (0, 0, 1), "interior": (0, 1, 0)}),
        ("pad", [X.astype(np.uint32), np.uint32(2**32 - 1)], {"low": (1, 0, 0), "high": (0, 0, 0), "interior": (0, 0, 0)}),
        ("pad", [X[:0], np.float32(1)], {"low": (1, 0, 0), "high": (1, 0, 0), "interior": (1, 0, 0)}),
        ("concat", [X, X[:, :1]], {"axis": 1}),
        ("rev", [X], {"axes": (0, 2)}),
        ("iota", [], {"dtype": np.dtype("int32"), "shape": (2, 5), "axis": 1}),
        ("iota", [], {"dtype": np.dtype("uint8"), "shape": (300,), "axis": 0}),
        ("iota", [], {"dtype": np.dtype("float32"), "shape": (5000, 2), "axis": 0}),
        ("dynamic_slice", [X, *I0(-5, 1, 9)], {"sizes": (1, 2, 2)}),
        ("dynamic_slice", [X, np.uint32(2**32 - 1), np.uint64(2**64 - 1), np.int8(-1)], {"sizes": (1, 2, 2)}),
        ("dynamic_slice", [X, *I0(0, 0, 0)], {"sizes": (0, 3, 4)}),
        ("dynamic_update_slice", [X, -X[:1, :2, :3], *I0(5, -2, 1)], {}),
        ("dynamic_update_slice", [X, -X, *I0(1, 1, 1)], {}),
        ("dynamic_update_slice", [X, X[:0], *I0(1, 1, 1)], {}),
        ("take", [X, np.array([2, 0, 2], np.int32)], {"axis": 1}),
        ("gather_flat", [X.ravel(), np.array([[3, 0], [23, 3]], np.int64)], {}),
        ("take_along_axis", [X, np.argsort(-X, -1)[:, :, :2].astype(np.int32)], {"axis": 2}),
        ("windows", [X], {"sizes": (1, 2, 2), "strides": (1, 1, 2), "dilation": (1, 1, 2)}),
        ("windows", [X], {"sizes": (3, 1, 1), "strides": (1, 1, 1), "dilation": (1, 1, 1)}),
        ("argmax", [np.array([[1, 3, 3, 0], [np.nan, 9, np.nan, 1]], np.float32)], {"axis": 1, "dtype": np.dtype("int32")}),
        ("argmin", [np.array([[1, 0, 3, 0], [2, 9, np.nan, 1]], np.float32)], {"axis": 1, "dtype": np.dtype("int64")}),
        ("argmax", [np.array([1, 2**32 - 1, 5], np.uint32)], {"axis": 0, "dtype": np.dtype("uint8")}),
        ("argmax", [np.array([False, True, True])], {"axis": 0, "dtype": np.dtype("int32")}),
        ("argsort", [np.array([0.0, np.nan, -0.0, -1, np.inf, -np.nan, -1], np.float32)], {"axis": 0, "dtype": np.dtype("int32")}),
        ("argsort", [np.array([[3, 2**63, 1], [2**64 - 1, 0, 5]], np.uint64)], {"axis": 1, "dtype": np.dtype("int32")}),
        ("argsort", [np.array([True, False, True])], {"axis": 0, "dtype": np.dtype("int32")}),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)  # fmt: skip
def test_shapes_and_indices(name, inputs, params):
    assert check(name, [np.asarray(x) for x in inputs], params)


@pytest.mark.parametrize("kind", ["set", "add", "mul", "min", "max"])
@pytest.mark.parametrize("dtype", ["float32", "int32", "uint32", "bool", "complex64", "uint8"])
def test_scatter(kind, dtype):
    if dtype == "complex64" and kind in ("min", "max"):
        pytest.skip("complex numbers have no order")
    rng = np.random.default_rng(0)
    x, u = (rng.integers(0, 5, n).astype(dtype) for n in (6, 9))
    if dtype == "uint32":
        x, u = x + np.uint32(2**31 - 2), u + np.uint32(2**31 - 2)
    indices = rng.integers(0, 6, 9).astype(np.int32)
    assert check("scatter_flat", [x, indices, u], {"kind": kind, "unique": False})
    assert check("scatter_flat", [x, indices[:0], u[:0]], {"kind": kind, "unique": True})
    rows, updates = x.reshape(3, 2), np.stack([u[:4], u[4:8]], 1)
    assert check("scatter_rows", [rows, (indices[:4] % 3).astype(np.int64), updates], {"kind": kind, "unique": False})
    assert check("scatter_rows", [rows, np.array([2, 0]), updates[:2]], {"kind": kind, "unique": True})


def test_set_with_repeated_indices_is_ordered_at_any_size():
    rng = np.random.default_rng(1)
    indices = rng.integers(0, 50, 60_000)
    updates = np.arange(60_000, dtype=np.float32)
    assert check("scatter_flat", [np.zeros(50, np.float32), indices, updates], {"kind": "set", "unique": False})


REDUCTIONS = [
    "reduce_sum",
    "reduce_prod",
    "reduce_max",
    "reduce_min",
    "reduce_and",
    "reduce_or",
    "reduce_xor",
]


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name):
    dtypes = INTS + BOOL + ([] if name in REDUCTIONS[4:] else [*F32, BF16])
    for dtype in dtypes:
        for shape, axes in [
            ((2, 3, 5), (0, 2)),
            ((7,), (0,)),
            ((0, 3), (0,)),
            ((3, 0), (1,)),
            ((2, 1), (1,)),
        ]:
            x = np.resize(edges(dtype)[:9] if dtype.kind in "iub" else np.array([1.5, -2, 0.5, 3], dtype), shape)
            assert check(name, [x], {"axes": axes}, ulp=4 if dtype.kind in "fV" else None)
    if name in ("reduce_max", "reduce_min"):
        assert check(name, [np.array([1, np.nan, 3], np.float32)], {"axes": (0,)})


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "cummax", "cummin"])
@pytest.mark.parametrize("reverse", [False, True])
def test_running_totals(name, reverse):
    for dtype in [*F32, *INTS, *BOOL]:
        x = np.resize(edges(dtype)[:10] if dtype.kind in "iub" else np.array([1.5, -2, 0.5, 3, -1], dtype), (2, 5))
        assert check(name, [x], {"axis": 1, "reverse": reverse}, ulp=4)
    x = np.array([1, np.nan, 3, 0], np.float32)
    assert check(name, [x], {"axis": 0, "reverse": reverse})
    assert check(name, [x[:0]], {"axis": 0, "reverse": reverse})


def test_matmul():
    rng = np.random.default_rng(0)
    for dtype in ["float32", "float64", "complex64", "float16", "int8", "int32", "uint32", "uint8", "bool"]:
        for b, m, k, n in [(1, 2, 3, 4), (3, 2, 4, 2), (2, 2, 0, 3)]:
            x, y = (rng.integers(-3, 4, s).astype(dtype) for s in ((b, m, k), (b, k, n)))
            assert check("matmul", [x, y], {"dtype": np.dtype(dtype)}, ulp=4)
    x = rng.integers(-100, 100, (1, 2, 3)).astype(np.int8)
    assert check("matmul", [x, x.transpose(0, 2, 1).copy()], {"dtype": np.dtype("int32")})


def test_conv():
    rng = np.random.default_rng(0)
    base = {
        "strides": (1, 1),
        "padding": ((0, 0), (0, 0)),
        "lhs_dilation": (1, 1),
        "rhs_dilation": (1, 1),
        "groups": 1,
    }
    for change in [
        {}, {"strides": (2, 1), "padding": ((1, 2), (0, 1))}, {"lhs_dilation": (2, 1), "padding": ((1, 1), (-1, 0))},
        {"rhs_dilation": (2, 1)}, {"groups": 2},
    ]:  # fmt: skip
        for dtype in ("float32", "complex64", "int8", "float16"):
            x = rng.integers(-3, 4, (2, 4, 6, 5)).astype(dtype)
            w = rng.integers(-3, 4, (2, 4 // change.get("groups", 1), 3, 2)).astype(dtype)
            assert check("conv", [x, w], base | change, ulp=4)
    flat = {"strides": (), "padding": (), "lhs_dilation": (), "rhs_dilation": (), "groups": 1}
    assert check("conv", [np.ones((2, 3), np.float32), np.ones((4, 3), np.float32)], flat)


def test_fft():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 4, 6))
    z = x + 1j * rng.normal(size=x.shape)
    for kind, value in [("fft", z), ("ifft", z), ("rfft", x), ("irfft", np.fft.rfftn(x, axes=(1, 2)))]:
        params = {"kind": kind, "lengths": (4, 6)}
        (got,) = run("fft", [value], params)
        np.testing.assert_allclose(got, evaluate("fft", [value], params)[0], rtol=1e-12, atol=1e-13)


def test_factorisations():
    rng = np.random.default_rng(0)
    a = rng.normal(size=(2, 4, 4))
    spd = a @ a.transpose(0, 2, 1) + 4 * np.eye(4)
    rect = rng.normal(size=(5, 3))
    cases = [
        ("cholesky", [np.tril(spd)], {}), ("cholesky", [np.stack([spd[0], -spd[1]])], {}), ("cholesky", [spd[:, :0, :0]], {}),
        ("lu", [a], {}), ("lu", [rect], {}), ("lu", [np.zeros((3, 3))], {}),
        ("eigh", [np.tril(spd)], {}), ("eigh", [np.full((2, 2), np.nan)], {}),
        ("svd", [rect], {"full_matrices": False, "compute_uv": False}),
    ]  # fmt: skip
    for lower, transpose, unit, conjugate in itertools.product([False, True], repeat=4):
        params = {"lower": lower, "transpose": transpose, "unit_diagonal": unit, "conjugate": conjugate}
        cases.append(("triangular_solve", [a + 3 * np.eye(4) + 1j * a[::-1], a[:, :, :2] + 0j], params))
    for name, inputs, params in cases:
        got, want = run(name, inputs, params), evaluate(name, inputs, params)
        for g, w in zip(got, want, strict=True):
            if name == "eigh" and g.ndim == w.ndim and g.shape == inputs[0].shape:
                g, w = np.abs(g), np.abs(w)  # eigenvectors up to sign
            np.testing.assert_allclose(g, w, rtol=1e-9, atol=1e-9, err_msg=name)
    for full in (False, True):
        q, r = run("qr", [rect], {"full_matrices": full})
        np.testing.assert_allclose(q @ r, rect, atol=1e-12)
        np.testing.assert_allclose(np.abs(r), np.abs(evaluate("qr", [rect], {"full_matrices": full})[1]), atol=1e-12)
        s, u, vh = run("svd", [rect], {"full_matrices": full, "compute_uv": True})
        np.testing.assert_allclose(u[:, :3] * s @ vh, rect, atol=1e-12)
    w, left, right = run("eig", [a[0]], {"left": True, "right": True})
    np.testing.assert_allclose(a[0] @ right, right * w, atol=1e-10)
    np.testing.assert_allclose(left.conj().T @ a[0], w[:, None] * left.conj().T, atol=1e-10)


def test_every_row_is_tested_or_composed():
    """What torch lacks is said by supports(), so that the lowering composes it."""
    missing = {name for name in CORE_OPS if name not in ops.ROWS}
    assert missing == {"cbrt", "population_count", "clz", "host_call", "lgamma", "digamma"}, missing
    for name in ("cbrt", "clz"):
        value = Value((2,), np.dtype("float32" if name == "cbrt" else "int32"))
        assert ops.supports(Op(name, (value,), {}, (value,))) == f"PyTorch has no operator for {name}"


def test_driver_emits_through_the_same_rows():
    value = Value((3,), np.dtype("float32"))
    out = Value((3,), np.dtype("float32"))
    gb = GraphBuilder("Driver")
    build(Program((value,), (Op("neg", (value,), {}, (out,)),), (out,)), gb, [gb.input("x")], {})
    assert torch.equal(gb.function()(torch.tensor([1.0, -2.0, 0.0])), torch.tensor([-1.0, 2.0, -0.0]))
