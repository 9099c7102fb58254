"""Types of the TorchScript IR: from Python types, from Python constants, and matched against operator schemas."""

from __future__ import annotations

import types
import typing
from typing import Any

import torch

from ._torch_api import named_tuple_type

__all__ = [
    "BOOL",
    "COMPLEX",
    "FLOAT",
    "INT",
    "NONE",
    "STR",
    "TENSOR",
    "as_type",
    "literal_type",
    "match",
    "substitute",
    "text",
]

_C = torch._C
BOOL, INT, FLOAT, COMPLEX = _C.BoolType.get(), _C.IntType.get(), _C.FloatType.get(), _C.ComplexType.get()
STR, NONE, TENSOR, DEVICE = (
    _C.StringType.get(),
    _C.NoneType.get(),
    _C.TensorType.get(),
    _C.DeviceObjType.get(),
)

PYTHON_TYPES: dict[Any, Any] = {
    bool: BOOL,
    int: INT,
    float: FLOAT,
    complex: COMPLEX,
    str: STR,
    None: NONE,
    type(None): NONE,
    torch.Tensor: TENSOR,
    torch.device: DEVICE,
    torch.dtype: INT,
    torch.layout: INT,
    torch.memory_format: INT,
}

INT64 = range(-(2**63), 2**63)


SINGLE = (BOOL, INT, FLOAT, COMPLEX, STR, NONE, TENSOR)
_TEXTS = {id(jit_type): jit_type.annotation_str for jit_type in SINGLE}  # writing a type takes longer than a node


def text(jit_type) -> str:
    """The type as TorchScript's Python printer writes it: also its identity."""
    return _TEXTS.get(id(jit_type)) or jit_type.annotation_str


def as_type(spec):
    """The IR type of a Python type or annotation.

    Takes int, float, bool, complex, str, None, torch.Tensor, torch.device, torch.dtype, list[T], tuple[T, ...],
    dict[K, V], T | None, a typing.NamedTuple class (registered with TorchScript's type database, so that a saved file
    can name it) and torch._C types themselves. Raises TypeError for anything else.
    """
    if isinstance(spec, _C.Type):
        return spec
    if spec in PYTHON_TYPES:
        return PYTHON_TYPES[spec]
    origin, args = typing.get_origin(spec), typing.get_args(spec)
    if origin is list and len(args) == 1:
        return _C.ListType(as_type(args[0]))
    if origin is tuple and args:
        return _C.TupleType([as_type(a) for a in args])
    if origin is dict and len(args) == 2:
        return _C.DictType(as_type(args[0]), as_type(args[1]))
    if origin in (typing.Union, types.UnionType) and len(args) == 2 and type(None) in args:
        return _C.OptionalType(as_type(args[0] if args[1] is type(None) else args[1]))
    if isinstance(spec, type) and issubclass(spec, tuple) and hasattr(spec, "_fields"):
        return named_tuple_type(spec)
    raise TypeError(
        f"no TorchScript type for {spec!r}: use int, float, bool, complex, str, None, torch.Tensor, list[T], "
        "tuple[T, ...], dict[K, V], T | None or a typing.NamedTuple class"
    )


def literal_type(value: Any):
    """The IR type of a Python constant; None where it has none of its own (an empty list)."""
    if isinstance(value, (list, tuple)):
        kinds = [literal_type(v) for v in value]
        if isinstance(value, tuple):
            return _C.TupleType(kinds) if all(k is not None for k in kinds) else None
        if not kinds or any(k is None for k in kinds):
            return None
        if any(k != kinds[0] for k in kinds):
            raise TypeError(f"a constant list needs elements of one type, got {[text(k) for k in kinds]}")
        return _C.ListType(kinds[0])
    jit = PYTHON_TYPES.get(type(value))
    if jit is None:
        jit = next((j for python, j in PYTHON_TYPES.items() if python is not None and isinstance(value, python)), None)
    if jit is None:
        raise TypeError(f"no TorchScript constant for {value!r} of type {type(value).__name__}")
    if jit is INT and isinstance(value, int) and value not in INT64:
        raise OverflowError(f"the constant {value} does not fit TorchScript's int (64 bits, signed)")
    return jit


def match(formal, given, env: dict[str, Any]) -> bool:
    """Whether a value of type `given` may be passed where a schema says `formal`. Binds type variables in `env`.

    Strict: no conversion of tensors to numbers or of ints to floats, which TorchScript's own insertion makes silently.
    """
    kind = formal.kind()
    if kind == "VarType":
        name = str(formal)
        return env.setdefault(name, given) == given
    if kind == "ListType" and given.kind() == "ListType":
        return match(formal.getElementType(), given.getElementType(), env)
    if kind == "OptionalType":
        if given.kind() == "NoneType":
            return True
        inner = given.getElementType() if given.kind() == "OptionalType" else given
        return match(formal.getElementType(), inner, env)
    if kind == "DictType" and given.kind() == "DictType":
        return match(formal.getKeyType(), given.getKeyType(), env) and match(
            formal.getValueType(), given.getValueType(), env
        )
    return given.isSubtypeOf(formal)


def substitute(formal, env: dict[str, Any]):
    """A schema's return type with its type variables replaced."""
    kind = formal.kind()
    if kind == "VarType":
        return env[str(formal)]
    if kind == "ListType":
        return _C.ListType(substitute(formal.getElementType(), env))
    if kind == "OptionalType":
        return _C.OptionalType(substitute(formal.getElementType(), env))
    if kind == "TupleType":
        return _C.TupleType([substitute(e, env) for e in formal.elements()])
    if kind == "DictType":
        return _C.DictType(substitute(formal.getKeyType(), env), substitute(formal.getValueType(), env))
    return TENSOR if kind == "TensorType" else formal
