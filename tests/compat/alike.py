"""Calls made of the engine and of jax.lax, and everything that a caller can see of what came back compared."""

import collections
import dataclasses
import functools
import re
import types

import jax
import jax.numpy as jnp
import numpy as np

from quabla_jax.compat import lax

ENGINE = types.SimpleNamespace(
    scan=functools.partial(lax.scan, checkpoint="sqrt"),
    fori_loop=functools.partial(lax.fori_loop, checkpoint="sqrt"),
    map=functools.partial(lax.map, checkpoint="sqrt"),
    **{name: getattr(lax, name) for name in ("cond", "switch", "while_loop", "associative_scan")},
)
REVERSIBLE = types.SimpleNamespace(while_loop=functools.partial(lax.while_loop, checkpoint="auto"))
XS = jnp.linspace(0.2, 1.4, 7)
Pair = collections.namedtuple("Pair", "first second")


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Point:
    x: object
    y: object
    tag: str = dataclasses.field(default="p", metadata=dict(static=True))


class Stateful:
    """A model whose method is the body."""

    def __init__(self, w):
        self.w, self.calls = w, 0

    def step(self, c, x):
        self.calls += 1
        return jnp.tanh(c * self.w + x), c

    def body(self, i, c):
        return c * self.w + i

    def __call__(self, c, x):
        return self.step(c, x)

    @classmethod
    def made(cls, c, x):
        return c + x, c

    @staticmethod
    def free(c, x):
        return c * x, c


def describe(leaf):
    """What a caller can see of a leaf, apart from its value."""
    if isinstance(leaf, jax.Array | np.ndarray | np.generic):
        return type(leaf), leaf.shape, leaf.dtype, getattr(leaf, "weak_type", None)
    return type(leaf), leaf if isinstance(leaf, str) else None


def outcome(call, L):
    """The tree, the leaves and their types; or the class and text of what was raised."""
    try:
        out = call(L)
    except Exception as error:  # noqa: BLE001
        return "raised", type(error), re.sub(r"0x[0-9a-f]+|line \d+|\.py:\d+|0x\w+", "", str(error))
    leaves, tree = jax.tree.flatten(out)
    return "returned", tree, [describe(v) for v in leaves], leaves


def assert_alike(call, sides=(ENGINE, lax)):
    want = outcome(call, jax.lax)
    for side in sides:
        got = outcome(call, side)
        assert got[:3] == want[:3]
        if want[0] == "raised":
            continue
        for g, w in zip(got[3], want[3]):
            if isinstance(w, str):
                continue
            if jnp.issubdtype(jax.typeof(w).dtype, jax.dtypes.prng_key):
                g, w = jax.random.key_data(g), jax.random.key_data(w)
            np.testing.assert_allclose(np.asarray(g), np.asarray(w), rtol=1e-12, atol=1e-13)
