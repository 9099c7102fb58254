"""Core ops on MLX against the NumPy meaning of each: every dtype, corners of every dtype."""

import numpy as np
import pytest

pytest.importorskip("mlx.core", reason="MLX is not installed")

import mlx.core as mx
from mlx_helpers import ALL, BF16, BOOL, C64, CPU, FLOATS, IDS, INTS, assert_same, draw, run_op, tame

from quabla_jax.lowering import Op, Value, numpy_linalg, numpy_ops
from quabla_jax.mlx_backend import ops
from quabla_jax.mlx_backend.target import Context, OpRow

assert numpy_linalg  # its rows are part of the oracle
every_dtype = pytest.mark.parametrize("dtype", ALL, ids=IDS)


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def check(name, *arrays, tolerance=0.0, **params):
    with np.errstate(all="ignore"):
        expected = numpy_ops.evaluate(name, list(arrays), params)
    for got, wanted in zip(run_op(name, *arrays, **params), expected, strict=True):
        assert_same(got, wanted, tolerance, f"{name} {params}")


def loose(dtype):
    return 2e-2 if dtype in (BF16, np.float16) else 1e-5


@every_dtype
def test_arithmetic_and_comparisons(dtype, rng):
    x, y = draw(rng, dtype, (400,)), draw(rng, dtype, (400,))
    for name in ("add", "mul"):
        check(name, x, y, tolerance=1e-6 if dtype == C64 else 0)
    for name in ("eq", "ne"):
        check(name, x, y)
    if dtype not in (C64, BOOL):
        for name in ("sub", "div", "rem", "max", "min", "lt", "le", "gt", "ge"):
            check(name, x, y)
        for name in ("neg", "abs", "sign"):
            check(name, x)
    if dtype == BOOL:
        for name in ("max", "min", "and", "or", "xor"):
            check(name, x, y)
        check("not", x)
    check("select", draw(rng, BOOL, (400,)), x, y)
    check("select", np.array(True), x, y)


@pytest.mark.parametrize("dtype", INTS, ids=lambda d: d.name)
def test_bits(dtype, rng):
    x = draw(rng, dtype, (400,))
    for y in (draw(rng, dtype, (400,)), rng.integers(0, 8 * dtype.itemsize + 2, 400).astype(dtype)):
        for name in ("shift_left", "shift_right_logical", "shift_right_arithmetic", "and", "or", "xor"):
            check(name, x, y)
    for name in ("population_count", "clz", "not"):
        check(name, x)


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
def test_float_steps_and_rounding(dtype, rng):
    x, y = draw(rng, dtype, (400,)), draw(rng, dtype, (400,))
    check("nextafter", x, y, tolerance=1e-30 if dtype == np.float16 else 0)  # NumPy's float16 keeps the sign of zero x
    for name in ("is_finite", "floor", "ceil", "round_even"):
        check(name, x)


@every_dtype
def test_casts_saturate_wrap_and_truncate(dtype, rng):
    x = draw(rng, dtype, (400,))
    for wanted in ALL:
        if wanted != dtype:
            check("cast", x, dtype=wanted)
        if wanted != dtype and wanted.itemsize == dtype.itemsize and not {BOOL, C64} & {dtype, wanted}:
            check("bitcast", tame(x), dtype=wanted)


@every_dtype
def test_reductions(dtype, rng):
    z, empty = draw(rng, dtype, (3, 4, 5)), np.zeros((0, 3), dtype)
    kinds = [
        "sum",
        "prod",
        *(() if dtype == C64 else ("max", "min")),
        *(("and", "or", "xor") if dtype.kind in "iub" else ()),
    ]
    for kind in kinds:
        smooth = kind in ("sum", "prod")
        for axes in ((0,), (0, 2), (0, 1, 2), (1, 2)):
            check(
                "reduce_" + kind,
                tame(z) if smooth else z,
                axes=axes,
                tolerance=10 * loose(dtype) if smooth else 0,
            )
        for axes in ((0,), (1,), (0, 1)):
            check("reduce_" + kind, empty, axes=axes)


def test_long_sums_keep_their_digits(rng):
    x = rng.random(300_001).astype(np.float32)
    (total,) = run_op("reduce_sum", x, axes=(0,))
    assert abs(float(total) / np.sum(x, dtype=np.float64) - 1) < 3e-6
    (columns,) = run_op("reduce_sum", np.full((5000, 3), 0.1, np.float32), axes=(0,))
    np.testing.assert_allclose(columns, 500, rtol=2e-6)
    (product,) = run_op("matmul", x[None, None], x[None, :, None], dtype=x.dtype)
    np.testing.assert_allclose(product[0, 0, 0], x.astype(np.float64) @ x, rtol=3e-6)
    for reverse in (False, True):
        (running,) = run_op("cumsum", np.stack([x, 1 - x], 1), axis=0, reverse=reverse)
        order = slice(None, None, -1) if reverse else slice(None)
        exact = np.cumsum(x.astype(np.float64)[order])[order]
        np.testing.assert_allclose(running[:, 0], exact, rtol=3e-6)


@every_dtype
def test_order_and_cumulation(dtype, rng):
    z = draw(rng, dtype, (3, 4, 5))
    if dtype != C64:
        for name in ("argmax", "argmin"):
            check(name, z, axis=1, dtype=np.dtype(np.int32))
            check(name, z, axis=2, dtype=np.dtype(np.int64))
        check("argsort", z, axis=1, dtype=np.dtype(np.int32))
    if dtype == BOOL:
        return
    for name in ("cumsum", "cumprod", *(() if dtype == C64 else ("cummax", "cummin"))):
        smooth = name in ("cumsum", "cumprod")
        for axis, reverse in ((1, False), (2, True)):
            check(
                name,
                tame(z) if smooth else z,
                axis=axis,
                reverse=reverse,
                tolerance=10 * loose(dtype) if smooth else 0,
            )


@every_dtype
def test_shapes(dtype, rng):
    z = draw(rng, dtype, (3, 4, 5))
    value = z[0, 0, 0].reshape(())
    check("reshape", z, shape=(5, 12))
    check("transpose", z, perm=(2, 0, 1))
    check("broadcast", z[:, :1], shape=(3, 7, 6, 5), dims=(0, 2, 3))
    check("slice", z, start=(0, 1, 0), limit=(3, 4, 5), stride=(2, 1, 3))
    check("rev", z, axes=(0, 2))
    check("concat", z, z, axis=1)
    if dtype != BOOL:
        check("iota", dtype=dtype, shape=(3, 4), axis=1)
    pads = (
        ((1, 0, 2), (0, 3, 1), (0, 0, 0)),
        ((1, -1, 2), (0, 3, -2), (1, 0, 0)),
        ((-2, -3, 0), (-1, 0, 0), (0, 1, 0)),
        ((0, 0, 0), (0, 0, 0), (2, 1, 1)),
        ((-5, 0, 0), (7, 0, 0), (0, 0, 0)),
    )
    for low, high, interior in pads:
        check("pad", z, value, low=low, high=high, interior=interior)
    check("windows", z, sizes=(1, 2, 2), strides=(1, 1, 2), dilation=(1, 2, 1))
    check("windows", z, sizes=(1, 5, 1), strides=(1, 1, 1), dilation=(1, 1, 1))


@every_dtype
def test_indexing_clamps_and_scatters(dtype, rng):
    z = draw(rng, dtype, (3, 4, 5))
    update = z[:2, :, :3][::-1].copy()
    for starts in ((0, 0, 0), (1, 2, 3), (-5, 9, 2), (100, -100, 4)):
        for kind in (np.int32, np.int64, np.int8):
            at = [np.array(s, kind) for s in starts]
            check("dynamic_slice", z, *at, sizes=(2, 4, 3))
            check("dynamic_update_slice", z, update, *at)
    check("dynamic_slice", z, *[np.array(200, np.uint8)] * 3, sizes=(2, 1, 3))
    check("take", z, np.array([0, 3, 3, 1], np.int64), axis=1)
    check("gather_flat", z.reshape(-1), rng.integers(0, 60, (2, 5)).astype(np.int64))
    check("take_along_axis", z, rng.integers(0, 4, (3, 2, 5)).astype(np.int32), axis=1)
    target, at, new = (
        tame(z).reshape(-1),
        rng.integers(0, 60, 30).astype(np.int32),
        tame(draw(rng, dtype, (30,))),
    )
    rows = tame(draw(rng, dtype, (30, 5)))
    for kind in ("set", "add", "mul", *(() if dtype == C64 else ("max", "min"))):
        check("scatter_flat", target, at, new, kind=kind, unique=False, tolerance=10 * loose(dtype))
        check(
            "scatter_rows",
            target.reshape(12, 5),
            at % 12,
            rows,
            kind=kind,
            unique=False,
            tolerance=10 * loose(dtype),
        )
    if dtype in FLOATS:  # a NaN that meets a number wins
        for kind in ("max", "min"):
            check(
                "scatter_flat",
                z.reshape(-1),
                at,
                draw(rng, dtype, (30,)),
                kind=kind,
                unique=False,
                tolerance=1e-30,
            )


@every_dtype
def test_products(dtype, rng):
    for batch in (1, 2):
        a, b = tame(draw(rng, dtype, (batch, 3, 4))), tame(draw(rng, dtype, (batch, 4, 5)))
        check("matmul", a, b, dtype=dtype, tolerance=loose(dtype))
    if dtype == BOOL:
        return
    layouts = (
        ((2, 4, 9), (6, 2, 3), (2,), ((1, 2),), (1,), (2,), 2),
        ((2, 4, 9, 8), (6, 2, 3, 2), (2, 1), ((-1, 2), (0, 1)), (1, 2), (2, 1), 2),
        ((2, 4, 5, 4), (6, 4, 3, 2), (1, 2), ((1, 1), (0, 1)), (2, 2), (1, 1), 1),
    )
    for x, w, strides, padding, lhs, rhs, groups in layouts:
        check(
            "conv", tame(draw(rng, dtype, x)), tame(draw(rng, dtype, w)), strides=strides, padding=padding,
            lhs_dilation=lhs, rhs_dilation=rhs, groups=groups, tolerance=10 * loose(dtype),
        )  # fmt: skip


def test_fft(rng):
    c = lambda *s: draw(rng, C64, s)
    check("fft", c(3, 8), kind="fft", lengths=(8,), tolerance=1e-5)
    check("fft", c(3, 4, 6), kind="ifft", lengths=(4, 6), tolerance=1e-5)
    check("fft", rng.normal(size=(3, 7)).astype(np.float32), kind="rfft", lengths=(7,), tolerance=1e-5)
    for n in (8, 9):
        check("fft", c(3, 5), kind="irfft", lengths=(n,), tolerance=1e-5)


def test_an_op_knows_its_own_node_while_others_run(monkeypatch):
    """A region's context is shared by the threads that run it."""
    context, seen = Context(CPU), []
    x = Value((2,), np.dtype(np.float32))
    first, second = (Op(name, (x,), {}, (Value((2,), x.dtype),)) for name in ("neg", "abs"))

    def interrupted(c, a):
        ops.run_op(context, second, [a])
        seen.append(c.node)
        return a

    monkeypatch.setitem(ops.OPS, "neg", OpRow(interrupted))
    ops.run_op(context, first, [mx.zeros(2)])
    assert seen == [first]
