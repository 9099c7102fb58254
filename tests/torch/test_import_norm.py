"""aten::norm and linalg_vector_norm of imported TorchScript, every overload: axes, kept axes, orders and dtypes."""

import jax
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="imports TorchScript")

from quabla_jax.torch_bridge import from_torchscript  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.:DeprecationWarning")


class Norm(torch.nn.Module):
    def forward(self, x):
        y = x * 1
        return (
            y.norm(),
            y.norm(3),
            y.norm(2, dim=[0, 2]),
            y.norm(1, dim=[1], keepdim=True),
            torch.linalg.vector_norm(y, 2.0),
            torch.linalg.vector_norm(y, 3.0, [0, 1], True),
            torch.linalg.vector_norm(y, 2.0, None, True),
            torch.linalg.vector_norm(y, 2.0, [1], False, dtype=torch.float64),
        )


def test_norms_are_those_of_torch():
    x = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0))
    module = torch.jit.script(Norm())
    want = module(x)
    got = jax.tree.leaves(from_torchscript(module)(x.numpy()))
    assert len(got) == len(want)
    for number, (ours, theirs) in enumerate(zip(got, want)):
        assert ours.shape == tuple(theirs.shape), number
        assert str(ours.dtype) == str(theirs.dtype).removeprefix("torch."), number
        np.testing.assert_allclose(ours, theirs.numpy(), rtol=2e-6, err_msg=str(number))
