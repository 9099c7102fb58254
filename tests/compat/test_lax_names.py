"""quabla_jax.compat.lax has every name of the installed jax.lax, with its signatures."""

import inspect
import pickle

import jax
import jax.numpy as jnp
import pytest

from quabla_jax.compat import lax


def test_every_public_name_is_there():
    missing = {name for name in dir(jax.lax) if not name.startswith("__")} - set(dir(lax))
    assert not missing
    for name in dir(jax.lax):
        if name.startswith("__"):
            continue
        same = getattr(lax, name) is getattr(jax.lax, name)
        assert same == (name not in lax.CONTROL_FLOW), name


def test_a_name_that_jax_lacks_raises_what_jax_raises():
    for module in (lax, jax.lax):
        with pytest.raises(AttributeError, match="no attribute 'scam'"):
            module.scam  # noqa: B018


@pytest.mark.parametrize("name", lax.CONTROL_FLOW)
def test_signatures_are_the_installed_ones(name):
    theirs = inspect.signature(getattr(jax.lax, name))
    ours = inspect.signature(getattr(lax, name))
    extra = [p for p in ours.parameters if p not in theirs.parameters]
    assert extra == ([] if name in ("cond", "switch") else ["checkpoint"])
    assert ours.replace(parameters=[ours.parameters[p] for p in theirs.parameters]) == theirs
    assert getattr(lax, name).__name__ == name
    assert inspect.getdoc(getattr(jax.lax, name)) in getattr(lax, name).__doc__
    assert pickle.loads(pickle.dumps(getattr(lax, name))) is getattr(lax, name)


@pytest.mark.parametrize(
    "call",
    [
        lambda m: m.scan(),
        lambda m: m.scan(lambda c, x: (c, x), 0, jnp.arange(3), bogus=1),
        lambda m: m.fori_loop(0, 3, lambda i, c: c, 0, 1),
        lambda m: m.while_loop(lambda c: True),
        lambda m: m.cond(True),
        lambda m: m.switch(),
        lambda m: m.map(jnp.sin),
        lambda m: m.cond(True, jnp.sin, jnp.cos, 1.0, operand=2.0),
        lambda m: m.switch(0, [jnp.sin, jnp.cos], 1.0, operand=2.0),
    ],
)
def test_calls_that_jax_refuses_are_refused_in_its_words(call):
    with pytest.raises(TypeError) as theirs:
        call(jax.lax)
    with pytest.raises(TypeError) as ours:
        call(lax)
    assert str(ours.value) == str(theirs.value)


def test_a_keyword_of_a_newer_jax_goes_to_jax(monkeypatch):
    """A keyword that the engine has no idea of keeps working: the call is JAX's."""
    seen = []

    def newer_scan(f, init, xs=None, length=None, reverse=False, unroll=1, brand_new=False):
        seen.append(brand_new)
        return jax.lax.scan(f, init, xs, length, reverse, unroll)

    from quabla_jax.compat import lax as module

    monkeypatch.setattr(module, "_SCAN", module._Call(newer_scan, "f", "init", "xs", "length", "reverse", "unroll"))
    monkeypatch.setattr(module, "_jax", type("newer", (), {"scan": staticmethod(newer_scan)}))
    step = lambda c, x: (c + x, c)
    assert module.scan(step, 0, jnp.arange(4), brand_new=True)[0] == 6 and seen == [True]
    assert module.scan(step, 0, jnp.arange(4))[0] == 6 and seen == [True]


def test_star_import_and_submodules():
    namespace: dict = {}
    exec("from quabla_jax.compat.lax import *\nfrom quabla_jax.compat.lax import linalg, psum", namespace)
    assert namespace["scan"] is lax.scan and namespace["linalg"] is jax.lax.linalg
    assert namespace["add"] is jax.lax.add
