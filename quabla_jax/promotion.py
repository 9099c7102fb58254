"""Quabla's promotion rules for the operands of one function.

Two strong float dtypes never mix, Python numbers and weakly typed arrays take the dtype beside them, a bool array
next to a float one counts as 0 and 1, and arithmetic on bools alone is refused.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from . import dtypes
from .arrays import asarray, cast, common_shape, is_number, kind_name, weak_float
from .lowering.jax_api import with_weak_type

__all__ = ["align", "as_operand", "keeps_weak", "numeric", "operands", "refuse_bool"]

Function = TypeVar("Function", bound=Callable[..., Any])


def as_operand(x: Any) -> jax.Array:
    """`x` as an operand: an array stays itself (what mask * 2 gives becomes a weak float), else `asarray(x)`."""
    return weak_float(x) if isinstance(x, jax.Array) else asarray(x)


def refuse_bool(op: str, *xs: jax.Array) -> None:
    """ValueError where an operand of the arithmetic function `op` is a mask."""
    for x in xs:
        if x.dtype == np.bool_:
            raise ValueError(
                f"{op} is not defined for bool tensors; use logical_and/logical_or/logical_not (& | ~) or convert "
                "explicitly with astype"
            )


def numeric(op: str, x: Any) -> jax.Array:
    """`x` as an operand that is not bool; integer arrays become the default float."""
    x = as_operand(x)
    refuse_bool(op, x)
    return floating(x)


def floating(x: jax.Array) -> jax.Array:
    """An integer array as the default float, a weak one as a weak float; others unchanged."""
    x = weak_float(x)
    return cast(x, dtypes.default_float()) if jnp.issubdtype(x.dtype, jnp.integer) else x


def _is_weak(x: Any) -> bool:
    return bool(getattr(x, "weak_type", False))


def align(op: str, *xs: jax.Array) -> list[jax.Array]:
    """Arrays brought to one dtype by Quabla's rules. ValueError: two strong dtypes that differ."""
    xs_f = [floating(x) for x in xs]
    strong = {x.dtype for x in xs_f if x.dtype != np.bool_ and not _is_weak(x)}
    if len(strong) > 1:
        first, second = [x.dtype for x in xs_f if x.dtype in strong and not _is_weak(x)][:1], None
        second = next(d for d in (x.dtype for x in xs_f) if d in strong and d != first[0])
        raise ValueError(
            f"{op} operands have mismatched dtypes {dtypes.short(first[0])} and {dtypes.short(second)}; convert one of "
            "them explicitly with astype"
        )
    if strong:
        target = strong.pop()
        return [x if x.dtype == target and not _is_weak(x) else cast(x, target) for x in xs_f]
    weak = [x for x in xs_f if x.dtype != np.bool_]
    if not weak:
        return xs_f
    # Only weak floats and masks: the masks become weak floats as well.
    return [x * 1.0 if x.dtype == np.bool_ else x for x in xs_f]


def keeps_weak(fun: Function) -> Function:
    """Makes the floats that `fun` returns weak where its operands are, whatever JAX's functions inside make of them."""

    @functools.wraps(fun)
    def call(*args, **kwargs):
        out = fun(*args, **kwargs)
        given = [*args, *kwargs.values()] if kwargs else args
        if not any(map(_is_weak, given)) or any(map(_is_strong, given)):
            return out
        return jax.tree.map(lambda x: with_weak_type(x, jnp.issubdtype(x.dtype, jnp.floating)), out)

    return call  # type: ignore[return-value]  # wraps keeps the signature


def _is_strong(x: Any) -> bool:
    return isinstance(x, jax.Array) and x.dtype != np.bool_ and not _is_weak(x)


def _pair(x1: Any, x2: Any) -> tuple[jax.Array, jax.Array]:
    """Two operands as arrays; a Python number becomes a weak 0-d array next to an array."""
    first_number, second_number = is_number(x1), is_number(x2)
    if first_number and second_number:
        return asarray(x1), asarray(x2)
    if first_number:
        return weak_scalar(x1), as_operand(x2)
    if second_number:
        return as_operand(x1), weak_scalar(x2)
    return as_operand(x1), as_operand(x2)


def weak_scalar(value: Any) -> jax.Array:
    """A Python number as a weakly typed float array, a constant of the trace."""
    with jax.ensure_compile_time_eval():
        return jnp.asarray(float(value))


def operands(
    op: str, x1: Any, x2: Any, *, bools: bool = True, compared: str | None = None
) -> tuple[jax.Array, jax.Array]:
    """The two operands of the elementwise function `op`, of one dtype and of shapes that broadcast.

    With `bools` a mask next to floats counts as 0 and 1; two masks, or any mask without it, raise ValueError. `compared`
    names the operation in a message about dtypes, where Quabla meets them in another one first.
    """
    a, b = _pair(x1, x2)
    if not bools:
        refuse_bool(op, a, b)
    elif a.dtype == np.bool_ and b.dtype == np.bool_:
        refuse_bool(op, a)
    common_shape(a.shape, b.shape)
    a, b = align(compared or op, a, b)
    return a, b


def beside(op: str, x: jax.Array, value: Any) -> jax.Array:
    """`value`, a number or an array, in the dtype of the floats `x` that it stands in for. ValueError: another float."""
    if is_number(value):
        return weak_scalar(value)
    arrays_only(op, value)
    return align(op, as_operand(value), x)[0]


def arrays_only(op: str, *xs: Any) -> None:
    """TypeError unless every operand is an array."""
    for x in xs:
        if not isinstance(x, jax.Array):
            raise TypeError(f"{op} expects only Tensor or TraceTensor operands, got {kind_name(x)}")
