"""Weak types beside the real quabla: what is made of masks and numbers alone takes the dtype of the array it meets."""

import json
import pathlib

import jax
import numpy as np
import pytest
import quabla_parity

import quabla_jax

NAMES = json.loads((pathlib.Path(__file__).parents[1] / "data" / "quabla_names.json").read_text())
UNARY = (
    "abs square reciprocal sqrt cbrt exp expm1 exp2 log log1p log2 log10 sin cos tan arctan sinh cosh tanh arcsinh "
    "erf erfc floor ceil round nan_to_num relu sigmoid softplus silu gelu softmax log_softmax logsumexp stop_gradient "
    "sum mean prod max min norm cumsum var std ravel transpose squeeze flip diff trapezoid asarray"
).split()
PROGRAMS = {name: lambda qb, w, name=name: getattr(qb, name)(w) for name in UNARY} | {
    "arcsin": lambda qb, w: qb.arcsin(w * 0.1) + qb.arccos(w * 0.1) + qb.arctanh(w * 0.1) + qb.arccosh(w + 2.0),
    "clip": lambda qb, w: qb.clip(w, 0, 1),
    "power": lambda qb, w: qb.power(w, 2) + qb.power(2.0, w) + qb.power(w, 0.5),
    "maximum": lambda qb, w: qb.maximum(w, 1.0) + qb.minimum(w, w) + qb.atan2(w, 1.0) + qb.hypot(w, w),
    "remainder": lambda qb, w: qb.remainder(w, w + 1.0) + qb.fmod(w, 2.0),
    "where": lambda qb, w: qb.where(w > 1.0, w, 1.0) + qb.where(w, 1.0, 2.0),
    "shapes": lambda qb, w: qb.broadcast_to(qb.expand_dims(qb.reshape(w, (2,)), 0), (2, 2)),
    "join": lambda qb, w: qb.stack([w, w]) + qb.tile(w, (2, 1)) + qb.split(qb.concat([w, w], 0), 2)[0],
    "roll": lambda qb, w: qb.roll(w, 1) + qb.repeat(w[:1], 2) + qb.meshgrid(w, w)[0],
    "matrices": lambda qb, w: qb.tril(qb.diag(w)) + qb.trace(qb.diag(w)) + qb.diagonal(qb.diag(w)),
    "products": lambda qb, w: qb.dot(w, w) + qb.outer(w, w) + qb.tensordot(w, w, 1) + qb.cross(w, w),
    "einsum": lambda qb, w: qb.einsum("ij,jk->ik", [qb.diag(w), qb.diag(w)]) + qb.kron(w, w)[:2],
    "trapezoid": lambda qb, w: qb.trapezoid(w, w) + qb.trapezoid(w, dx=0.5) + qb.polyval([1, 2], w) + qb.polyval(w, w),
    "interp": lambda qb, w: qb.interp(w, qb.cumsum(w * 0.0 + 1.0), w),
    "linalg": lambda qb, w: qb.solve(qb.diag(w), w) + qb.cholesky(qb.diag(w)) + qb.linalg.det(qb.diag(w)),
    "factors": lambda qb, w: qb.linalg.qr(qb.diag(w))[1] + qb.linalg.svd(qb.diag(w))[1] + qb.linalg.eigh(qb.diag(w))[0],
    "least": lambda qb, w: qb.linalg.lstsq(qb.diag(w), w) + qb.linalg.norm(w, 1) + qb.linalg.pinv(qb.diag(w)),
}


def beside_single(qb, fun, kind):
    """`fun` of a weak vector, combined with a float32 one by a function (which refuses what is strong float64)."""
    mask, single = qb.array([True, False]), qb.array([1.0, 2.0], dtype=qb.float32)
    weak = {"where": lambda: qb.where(mask, 1.5, 2.0), "product": lambda: mask * 2 + 1, "sum": lambda: mask + 1.5}[
        kind
    ]()
    return quabla_parity.plain(qb.maximum(fun(qb, weak), single))


@pytest.mark.parametrize("kind", ["where", "product", "sum"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_it_takes_the_dtype_beside_it_as_in_quabla(name, kind):
    want = beside_single(quabla_parity.reference(), PROGRAMS[name], kind)
    got = beside_single(quabla_jax, PROGRAMS[name], kind)
    quabla_parity.assert_same(got, want, 2e-5)
    assert want.dtype == np.float32


@pytest.mark.parametrize("make", [lambda m: m * 2, lambda m: 3 + m, lambda m: 4 - m])
def test_what_mask_arithmetic_gives_is_a_float_in_loops_and_branches(make):
    mask = quabla_jax.array([True, False])
    keep = lambda *xs: xs[-1] + 0.5
    looped = quabla_jax.fori_loop(0, 3, keep, make(mask))
    assert looped.dtype == np.float64
    np.testing.assert_array_equal(looped, make(np.array([1.0, 0.0])) + 1.5)
    branch = quabla_jax.jit(lambda p, m: quabla_jax.cond(p, lambda m: make(m), lambda m: make(m) * 2.0, m))
    assert branch(quabla_jax.array(True), mask).dtype == np.float64


def test_an_integer_operand_stays_an_index():
    k, table = jax.numpy.asarray(1), quabla_jax.array([1.0, 2.0])
    out = quabla_jax.jit(lambda x: quabla_jax.fori_loop(0, 2, lambda i, c, k: c + table[k], x, operands=(k,)))
    assert out(quabla_jax.array(0.0)) == 4.0


def test_no_setting_of_jax_makes_a_float_of_mask_times_two():
    """The reason for the one recorded value that differs: operators belong to jax.Array, masks are jax.Arrays."""
    mask = quabla_jax.array([True, False])
    assert type(mask) is type(jax.numpy.arange(3))  # so an operator of its own would be one of every array
    with pytest.raises(TypeError, match="not an acceptable base type"):
        type("Mask", (type(mask),), {})
    for promotion in ("standard", "strict"):
        with jax.numpy_dtype_promotion(promotion):
            try:
                assert (mask * 2).dtype == np.int64
            except ValueError as refused:
                assert promotion == "strict" and "implicit dtype promotion" in str(refused)
