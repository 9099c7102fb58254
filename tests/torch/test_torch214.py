"""Files cross between PyTorch 2.13 and 2.14, and everything here works on 2.14.

tests/data/torchscript holds files that either version wrote: `python tests/torch/test_torch214.py` writes the ones of
the version that runs it.
"""

import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

pytest.importorskip("torch.jit", reason="needs PyTorch")

import torch
from torch_helpers import example, load, quiet

from quabla_jax import torch_bridge
from quabla_jax.torch_bridge._torch_api import TORCH_VERSION

DATA = pathlib.Path(__file__).resolve().parents[1] / "data" / "torchscript"
X = np.linspace(0.2, 1.1, 4)
on_214 = [
    pytest.mark.torch214,
    pytest.mark.skipif(
        TORCH_VERSION < (2, 14),
        reason=f"this environment has PyTorch {torch.__version__}; the torch214 leg has 2.14",
    ),
]


def program(params, x, n):
    """Counted, unbounded and branching control flow, integers, unsigned bits, parameters, a constant table."""

    def body(c, t):
        c = lax.while_loop(lambda v: jnp.abs(v).sum() < 6.0, lambda v: v * 1.5 + params["w"] * jnp.sign(v), c)
        picked = lax.switch(n + t, [jnp.sin, jnp.cos, lambda v: -v], c)
        return lax.cond(picked.sum() > 0, lambda v: v * 0.5, lambda v: v + 1, picked), c.sum()

    carry, ys = lax.scan(body, x, jnp.arange(5, dtype=jnp.int32))
    bits = lax.shift_right_logical(lax.bitcast_convert_type(carry.astype(jnp.float32), jnp.uint32), jnp.uint32(3))
    zeros = jnp.stack([jnp.copysign(0.0, carry[0] - 99), 0.0 * ys[0]])
    return {"carry": carry, "ys": ys, "bits": bits, "zeros": zeros}


PARAMS = {"w": np.full(4, 0.25)}
GRADIENT = jax.grad(lambda x: lax.fori_loop(0, 4, lambda i, c: jnp.sin(c) * x, x).sum())


def write(version):
    DATA.mkdir(parents=True, exist_ok=True)
    module = torch_bridge.to_torchscript(program, X, np.int32(-1), params=PARAMS)
    torch_bridge.save(module, DATA / f"program_{version}.pt")
    torch_bridge.save(torch_bridge.to_torchscript(GRADIENT, X), DATA / f"gradient_{version}.pt")
    conditional = example("libtorch/conditional_loop.py").conditional_loop_module
    torch_bridge.save(conditional(added=0.0), DATA / f"conditional_{version}.pt")


def check(version):
    """The files of a version give JAX's numbers here, frozen and made ready for inference too."""
    module = load(DATA / f"program_{version}.pt")
    assert list(module.state_dict()) == ["w"]
    with quiet():
        frozen = torch.jit.freeze(load(DATA / f"program_{version}.pt").eval())
        ready = torch.jit.optimize_for_inference(load(DATA / f"program_{version}.pt").eval())
    for n in (-5, -1, 0, 7):
        want = jax.tree.leaves(jax.jit(program)(PARAMS, X, np.int32(n)))
        for runs in (module, frozen, ready):
            for _ in range(3):
                got = runs(torch.from_numpy(X), torch.tensor(n, dtype=torch.int32))
                for g, w in zip(got, want, strict=True):
                    if w.dtype.kind == "u":
                        assert g.dtype == torch.uint32 and np.array_equal(g.detach().numpy(), w)
                    else:
                        np.testing.assert_allclose(g.detach().numpy(), w, rtol=1e-12)
                        assert np.array_equal(np.signbit(g.detach().numpy()), np.signbit(w))
    np.testing.assert_allclose(load(DATA / f"gradient_{version}.pt")(torch.from_numpy(X)), GRADIENT(X), rtol=1e-12)
    status, value = load(DATA / f"conditional_{version}.pt")(torch.full((2, 2), 5.0))
    assert status == 1 and torch.allclose(value, torch.full((2, 2), 0.0075))


VERSIONS = ["2.13", "2.14"]


@pytest.mark.parametrize("version", VERSIONS)
def test_files_of_both_versions_load_here(version):
    check(version)


@pytest.mark.parametrize("version", [pytest.param(v, marks=on_214) for v in VERSIONS])
def test_files_of_both_versions_load_in_214(version):
    check(version)


@pytest.mark.parametrize("fresh", [pytest.param("fresh", marks=on_214)])
def test_files_written_now_by_214_are_right(fresh, tmp_path, monkeypatch):
    monkeypatch.setattr(f"{__name__}.DATA", tmp_path)
    write(fresh)
    check(fresh)


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    write(".".join(map(str, TORCH_VERSION[:2])))
