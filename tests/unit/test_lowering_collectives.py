"""shard_map over one device, pmap of one, and collectives over vmap's own axes; more devices are refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import Mesh, PartitionSpec

from quabla_jax import lowering
from quabla_jax.errors import UnsupportedOperationError

X = np.linspace(-1, 2, 12).reshape(3, 4)


def mapped(fun, count=1, out=None, check_vma=True):
    spec = PartitionSpec("i")
    mesh = Mesh(np.array(jax.devices()[:count]), "i")
    return jax.shard_map(fun, mesh=mesh, in_specs=spec, out_specs=spec if out is None else out, check_vma=check_vma)


def all_of_them(t):
    return (
        lax.psum(t, "i"), lax.pmean(t, "i"), lax.pmax(t, "i"), lax.pmin(t, "i"), lax.axis_index("i"), lax.all_gather(t, "i"),
        lax.all_gather(t, "i", axis=1, tiled=True), lax.psum_scatter(t, "i", tiled=True), lax.psum_scatter(t[None], "i"),
        lax.all_to_all(t, "i", 0, 1, tiled=True), lax.ppermute(t, "i", [(0, 0)]), lax.ppermute(t, "i", []),
    )  # fmt: skip


CASES = {
    "shard_map": mapped(lambda t: jnp.sin(t) * 2),
    "collectives": mapped(all_of_them, out=PartitionSpec(), check_vma=False),
    "gradient": jax.grad(lambda x: jnp.sum(mapped(lambda t: lax.pmean(jnp.sin(t), "i") * t)(x))),
    "inside a loop": lambda x: lax.fori_loop(0, 3, lambda i, c: mapped(lambda t: t + lax.psum(t, "i") * i)(c), x),
    "vmap's axis": jax.vmap(lambda t: (t - lax.pmean(t, "i"), lax.pmax(t, "i"), lax.psum(1, "i"), lax.axis_index("i")), axis_name="i"),
    "vmap's axis gathered": jax.vmap(lambda t: (lax.all_gather(t, "i"), lax.ppermute(t, "i", [(0, 2), (2, 1), (1, 0)])), axis_name="i"),
    "vmap's axes": jax.vmap(jax.vmap(lambda t: lax.psum(t, ("i", "j")) + lax.pmin(t, "j"), axis_name="j"), axis_name="i"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_one_device(name):
    got = lowering.run_on_numpy(lowering.lower(CASES[name], X), X)
    for g, e in zip(got, jax.tree.leaves(jax.jit(CASES[name])(X)), strict=True):
        assert (g.shape, g.dtype) == (e.shape, e.dtype)
        np.testing.assert_allclose(g, np.asarray(e), rtol=1e-12, atol=1e-15)


def test_pmap_of_one_device():
    fun = jax.pmap(lambda t: t - lax.pmean(t, "i"), axis_name="i", devices=jax.devices()[:1])
    np.testing.assert_array_equal(lowering.run_on_numpy(lowering.lower(fun, X[None]), X[None])[0], 0 * X[None])


def test_more_devices_are_refused():
    with pytest.raises(UnsupportedOperationError, match="its mesh has 2 devices: it speaks to other devices") as error:
        lowering.lower(mapped(lambda t: lax.psum(t, "i"), count=2, out=PartitionSpec()), X[:2])
    assert error.value.op == "shard_map"
