"""Compositions that stand in for core ops that a target lacks, against the oracle's own rows."""

import numpy as np
import pytest

from quabla_jax.lowering import interpreter, numpy_builder, table
from quabla_jax.lowering.builder import emit
from quabla_jax.lowering.emitter import COMPOSITIONS, Emitter, Session
from quabla_jax.lowering.program import Program, Value

assert interpreter  # loads the rules


class Without(numpy_builder.NumpyBuilder):
    """The oracle, but for one core op."""

    def __init__(self, missing):
        self.missing = missing

    def supports(self, node):
        return "left out on purpose" if node.name == self.missing else None


def compose(name, node, inputs):
    """The op's results by its composition."""
    emitter = Emitter(Session(Without(name)))
    values = [Value(v.shape, v.dtype) for v in node.inputs]
    outputs = emitter.ops(name, *values, **node.params)
    region = emitter.finish(values, outputs)
    assert all(getattr(n, "name", "") != name for n in region.nodes)
    return emit(Program(region.inputs, region.nodes, region.outputs), Without(name), inputs)


def inputs_of(name, node, rng):
    arrays = []
    for value in node.inputs:
        if value.dtype.kind in "iu":
            info = np.iinfo(value.dtype)
            high = 4 if name.startswith("scatter") else info.max
            a = rng.integers(
                0 if name.startswith("scatter") else info.min, high, value.shape, value.dtype, endpoint=True
            )
        else:
            a = rng.normal(size=value.shape) * 2
            if value.dtype.kind == "c":
                a = a + 1j * rng.normal(size=value.shape)
        arrays.append(np.asarray(a).astype(value.dtype))
    if name == "cholesky":
        a = arrays[0]
        arrays[0] = (a @ a.conj().T + np.eye(len(a))).astype(a.dtype)
    if name == "erf_inv":
        arrays[0] = np.tanh(arrays[0]).astype(arrays[0].dtype)
    return arrays


CASES = [(name, dtype) for name in sorted(COMPOSITIONS) for dtype in table.sample_nodes(name)]


@pytest.mark.parametrize(("name", "dtype"), CASES, ids=[f"{n}-{d}" for n, d in CASES])
def test_composition_equals_the_op(name, dtype):
    node = table.sample_nodes(name)[dtype]
    arrays = inputs_of(name, node, np.random.default_rng(0))
    got = compose(name, node, arrays)
    expected = numpy_builder.NumpyBuilder().op(node, arrays)
    for g, e in zip(got, expected, strict=True):
        assert (g.shape, g.dtype) == (e.shape, e.dtype)
        if e.dtype.kind in "biu":
            np.testing.assert_array_equal(g, e)
        else:
            eps = 2.0**-7 if e.dtype.kind == "V" else np.finfo(e.dtype).eps
            kind = np.complex128 if e.dtype.kind == "c" else np.float64
            np.testing.assert_allclose(g.astype(kind), e.astype(kind), rtol=64 * eps, atol=16 * eps)
