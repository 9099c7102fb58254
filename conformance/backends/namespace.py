"""Backends that run the program themselves: plain jax.lax, quabla_jax, quabla_jax.compat, and the real quabla."""

from __future__ import annotations

import functools
import importlib
import importlib.util
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..namespaces import LaxQuabla
from ..transforms import Space

__all__ = ["Compat", "PlainLax", "QuablaJax", "RealQuabla", "jax_space"]


def _jnp_array(value: Any, dtype: Any = None) -> jax.Array:
    return jnp.asarray(value, dtype)


def jax_space(ns: Any) -> Space:
    """A Space with JAX's own transforms around any namespace."""
    return Space(ns, jax.grad, jax.jvp, jax.vmap, jax.jit, jax.hessian, _jnp_array, jnp.sum)


class PlainLax:
    """The reference: jax.lax's own control flow on the CPU."""

    name = "lax"

    def available(self) -> str | None:
        return None

    def space(self, dialect: str) -> Space:
        return jax_space(lax if dialect == "jax" else LaxQuabla())


class QuablaJax:
    """quabla_jax on XLA: the Quabla dialect, and the engine's front doors for programs in the JAX dialect."""

    name = "xla"

    def available(self) -> str | None:
        return None

    def space(self, dialect: str) -> Space | None:
        if dialect == "jax":
            return jax_space(_EngineLax())
        if dialect != "quabla":
            return None
        import quabla_jax as qb

        return Space(qb, qb.grad, qb.jvp, qb.vmap, qb.jit, qb.hessian, qb.array, qb.sum)


class _EngineLax:
    """jax.lax with the engine's loops, each told to keep about the square root of the carries."""

    def __init__(self, checkpoint: Any = "sqrt"):
        from quabla_jax import loops

        self.scan = functools.partial(loops.scan, checkpoint=checkpoint)
        self.fori_loop = functools.partial(loops.fori_loop, checkpoint=checkpoint)
        self.while_loop = loops.while_loop
        self.cond, self.switch = loops.cond, loops.switch

    def __getattr__(self, name: str) -> Any:
        return getattr(lax, name)


class Compat:
    """quabla_jax.compat.lax, the drop-in, with its defaults."""

    name = "compat"

    def available(self) -> str | None:
        return None

    def space(self, dialect: str) -> Space | None:
        if dialect != "jax":
            return None
        from quabla_jax.compat import lax as compat_lax

        return jax_space(compat_lax)


class RealQuabla:
    """The quabla package itself, where it is installed. Its own Python, its own compiler: a true second opinion."""

    name = "quabla"

    def available(self) -> str | None:
        return None if importlib.util.find_spec("quabla") else "the quabla package is not installed"

    def space(self, dialect: str) -> Space | None:
        if dialect != "quabla":
            return None
        q = importlib.import_module("quabla")
        dtypes = {"float64": q.float64, "float32": q.float32, "bool": q.bool_}

        def array(value: Any, dtype: Any = None) -> Any:
            if dtype is None:
                return q.array(np.asarray(value))
            name = getattr(dtype, "name", str(dtype))
            if name not in dtypes:
                raise TypeError(f"quabla has no {name} arrays")
            return q.array(np.asarray(value), dtypes[name])

        return Space(_Tolerant(q), q.grad, q.jvp, q.vmap, q.jit, q.hessian, array, q.sum)


class _Tolerant:
    """quabla without the keywords that only quabla_jax has (checkpoint=), which change no value."""

    def __init__(self, module: Any):
        self._module = module

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._module, name)
        if name not in ("fori_loop", "scan", "while_loop"):
            return function

        def call(*args: Any, checkpoint: Any = None, **keywords: Any) -> Any:
            return function(*args, **keywords)

        return call
