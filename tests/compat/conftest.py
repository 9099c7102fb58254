"""Fixtures of the compat tier."""

import collections

import pytest

from quabla_jax import loops


@pytest.fixture
def engine_calls(monkeypatch):
    """Counts calls of the engine's front doors by name, so that a test can show that its program went through them."""
    calls = collections.Counter()

    def counted(name, function):
        def call(*args, **kwargs):
            calls[name] += 1
            return function(*args, **kwargs)

        return call

    for name in ("cond", "switch", "scan", "fori_loop", "while_loop"):
        monkeypatch.setattr(loops, name, counted(name, getattr(loops, name)))
    return calls
