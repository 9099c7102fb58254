"""Forward mode refuses functions that define only a reverse-mode rule, before anything is compiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

from ._staging import Staged
from .lowering import jax_api


def uses_custom_vjp(staged: Staged) -> bool:
    """Whether a staged function calls a function with a reverse-mode rule only."""
    return any(name.startswith("custom_vjp_call") for name in jax_api.primitive_names(staged.jaxpr))


def refuse_custom_vjp(staged: Staged, apply: Callable[..., Any], avals: Sequence[Any]) -> None:
    """Raises where the forward pass `apply` meets a custom_vjp function that no reverse pass has consumed.

    JAX itself says so only when the program is lowered; here it is a ValueError at trace time, as in Quabla.
    """
    names = jax_api.primitive_names(jax_api.open_jaxpr(jax.make_jaxpr(apply)(*avals))[0])
    if "custom_lin" in names:
        called = jax_api.custom_vjp_name(staged.jaxpr)
        raise ValueError(
            f"forward-mode differentiation (jvp, or jacobian in forward mode) of custom_vjp({called}) is not supported: it "
            "defines only a reverse-mode rule; use quabla_jax.custom_jvp, or a reverse-mode transform"
        )
