"""Pytrees under Quabla's rules, on JAX's registry.

Containers are dict (in sorted key order), list, tuple, None, named tuples and registered classes; everything else,
OrderedDict and the other dict subclasses too, is a leaf. A class registered here is a pytree for JAX as well, and a
class registered with JAX is a container here.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from jax import tree_util

from ._cycles import refuse_cycles, refuse_unsortable

__all__ = [
    "TreeDef", "flatten", "flatten_with_path", "leaves", "map", "register", "register_dataclass", "structure", "unflatten",
]  # fmt: skip

_BUILTIN = (dict, list, tuple, type(None))
_REGISTERED: set[type] = set()
_FIELDS: weakref.WeakKeyDictionary[type, tuple[str, ...]] = weakref.WeakKeyDictionary()
"""Of registered dataclasses, the fields that are children."""


def structure_text(treedef: Any, leaves: Iterable[str] | None = None) -> str:
    """A structure of JAX's as Quabla prints it, with `*` or the given texts for leaves."""
    if treedef is None:
        return "None"
    return _node_text(treedef, itertools.repeat("*") if leaves is None else iter(leaves))


def _node_text(node: Any, leaves: Iterator[str]) -> str:
    data = node.node_data()
    if data is None:
        return next(leaves)
    kind, aux = data
    parts = [_node_text(child, leaves) for child in node.children()]
    if kind is type(None):
        return "None"
    if kind is dict:
        return "{" + ", ".join(f"{key!r}: {part}" for key, part in zip(aux, parts)) + "}"
    if kind is list:
        return f"[{', '.join(parts)}]"
    if kind is tuple:
        return f"({', '.join(parts)}{',' * (len(parts) == 1)})"
    fields = getattr(kind, "_fields", ()) if issubclass(kind, tuple) else _FIELDS.get(kind, ())
    if len(fields) == len(parts):
        parts = [f"{name}={part}" for name, part in zip(fields, parts)]
    if aux is not None and not (kind in _FIELDS and aux == ()):
        parts.append(f"aux={aux!r}")
    return f"{kind.__qualname__}({', '.join(parts)})"


def _is_plain_leaf(node: Any) -> bool:
    # Containers for JAX, leaves for Quabla.
    return isinstance(node, (collections.OrderedDict, collections.defaultdict, collections.deque))


class TreeDef:
    """The structure of a pytree: compares and hashes by value; a list is not a tuple.

    Attributes:
        num_leaves: how many leaves it has.
    """

    __slots__ = ("_treedef",)

    def __init__(self, treedef: Any):
        self._treedef = treedef

    @property
    def num_leaves(self) -> int:
        """How many leaves the structure has."""
        return self._treedef.num_leaves

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        """The pytree of this structure around `leaves`."""
        return unflatten(self, leaves)

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, TreeDef) and self._treedef == other._treedef

    def __hash__(self) -> int:
        return hash(self._treedef)

    def __repr__(self) -> str:
        return f"TreeDef({structure_text(self._treedef)})"


def _checked(call: Callable[[], Any], tree: Any) -> Any:
    refuse_cycles("quabla_jax.tree", tree)
    try:
        return call()
    except ValueError as error:
        refuse_unsortable("quabla_jax.tree", error, TypeError, tree)
        raise


def flatten(tree: Any) -> tuple[list[Any], TreeDef]:
    """The leaves of `tree` in traversal order, and its structure. TypeError where dict keys cannot be sorted."""
    found, treedef = _checked(lambda: tree_util.tree_flatten(tree, is_leaf=_is_plain_leaf), tree)
    return found, TreeDef(treedef)


def leaves(tree: Any) -> list[Any]:
    """The leaves of `tree` in traversal order."""
    return flatten(tree)[0]


def structure(tree: Any) -> TreeDef:
    """The structure of `tree`."""
    return flatten(tree)[1]


def unflatten(treedef: TreeDef, leaves: Iterable[Any]) -> Any:
    """The pytree of structure `treedef` around `leaves`. ValueError where their number differs."""
    if not isinstance(treedef, TreeDef):
        raise TypeError(
            f"unflatten expects a TreeDef (from tree.structure or tree.flatten), got {type(treedef).__name__}"
        )
    values = list(leaves)
    if len(values) != treedef.num_leaves:
        raise ValueError(f"{treedef!r} has {treedef.num_leaves} leaves, got {len(values)} values")
    return tree_util.tree_unflatten(treedef._treedef, values)


def map(f: Callable[..., Any], tree: Any, *rest: Any) -> Any:
    """`f` of the leaves of `tree` and, in the same places, of `rest`. ValueError where structures differ."""
    if not callable(f):
        raise TypeError(f"tree.map expects a callable f: '{type(f).__name__}' object is not callable")
    first, treedef = flatten(tree)
    columns = [first]
    for other in rest:
        found, other_def = flatten(other)
        if other_def != treedef:
            raise ValueError(f"pytree structures differ: {treedef!r} and {other_def!r}")
        columns.append(found)
    return unflatten(treedef, [f(*values) for values in zip(*columns)])


def _key(entry: Any) -> Any:
    """A JAX path entry as Quabla's: a dict key, a field name or a position."""
    for attribute in ("key", "idx", "name"):
        if hasattr(entry, attribute):
            return getattr(entry, attribute)
    return entry


def flatten_with_path(tree: Any) -> tuple[list[tuple[tuple[Any, ...], Any]], TreeDef]:
    """[(path, leaf), ...] and the structure; a path is a tuple of dict keys, field names and positions."""
    found, treedef = _checked(lambda: tree_util.tree_flatten_with_path(tree, is_leaf=_is_plain_leaf), tree)
    return [(tuple(_key(entry) for entry in path), leaf) for path, leaf in found], TreeDef(treedef)


def _check_new(cls: Any) -> None:
    if not isinstance(cls, type):
        raise TypeError(f"only classes can be registered as pytree nodes, got {cls!r}")
    if cls in _BUILTIN:
        raise ValueError(f"{cls.__name__} is a built-in pytree node and cannot be registered")
    if cls in _REGISTERED:
        raise ValueError(f"{cls.__qualname__} is already registered as a pytree node")


def _enter(cls: type, flatten_with_keys: Callable, unflatten_fn: Callable, flatten_fn: Callable) -> None:
    try:
        tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten_fn, flatten_fn)
    except ValueError:
        raise ValueError(f"{cls.__qualname__} is already registered as a pytree node") from None
    _REGISTERED.add(cls)


def register(cls: type, flatten_fn: Callable[[Any], tuple], unflatten_fn: Callable[[Any, tuple], Any]) -> type:
    """Makes exact instances of `cls` pytree nodes, here and in JAX; returns `cls`.

    Arguments:
        flatten_fn: value -> (children, aux); aux must be hashable, it is part of the trace key.
        unflatten_fn: (aux, children) -> value; called with arrays, tracers and placeholders alike.
    Raises:
        TypeError: no class, no callables, or (when flattened) an aux that cannot be hashed.
        ValueError: a builtin container, or a class registered before.
    """
    _check_new(cls)
    if not (callable(flatten_fn) and callable(unflatten_fn)):
        raise TypeError("register requires callable flatten_fn and unflatten_fn")

    def split(value: Any) -> tuple[tuple, Any]:
        children, aux = flatten_fn(value)
        try:
            hash(aux)
        except TypeError:
            raise TypeError(
                f"the pytree aux data of {cls.__qualname__} must be hashable, got {aux!r}; it is part of the trace cache key"
            ) from None
        return tuple(children), aux

    def split_with_keys(value: Any) -> tuple[tuple, Any]:
        children, aux = split(value)
        return tuple((tree_util.SequenceKey(k), child) for k, child in enumerate(children)), aux

    _enter(cls, split_with_keys, lambda aux, children: unflatten_fn(aux, tuple(children)), split)
    return cls


def register_dataclass(cls: Any = None, data_fields: Any = None, meta_fields: Iterable[str] = ()) -> Any:
    """Makes a dataclass a pytree node, rebuilt by calling it; a decorator with or without arguments.

    Arguments:
        data_fields: the fields that are children, in that order; None: every __init__ field that is not in meta_fields.
        meta_fields: static fields, hashable, part of the trace key.
    Raises:
        ValueError: the fields do not cover those of __init__ exactly once. TypeError: no dataclass.
    """
    if cls is None:
        return lambda decorated: register_dataclass(decorated, data_fields, meta_fields)
    if not (isinstance(cls, type) and dataclasses.is_dataclass(cls)):
        raise TypeError(f"register_dataclass requires a dataclass type, got {cls!r}")
    _check_new(cls)
    init = tuple(field.name for field in dataclasses.fields(cls) if field.init)
    meta = tuple(meta_fields)
    data = tuple(name for name in init if name not in meta) if data_fields is None else tuple(data_fields)
    if sorted(data + meta) != sorted(init):
        raise ValueError(
            f"data_fields {data!r} and meta_fields {meta!r} of {cls.__name__} must name each __init__ field {init!r} exactly "
            "once"
        )

    def split(value: Any) -> tuple[tuple, tuple]:
        return tuple(getattr(value, n) for n in data), tuple(getattr(value, n) for n in meta)

    def split_with_keys(value: Any) -> tuple[tuple, tuple]:
        children, aux = split(value)
        return tuple((tree_util.GetAttrKey(n), child) for n, child in zip(data, children)), aux

    def rebuild(aux: tuple, children: Iterable[Any]) -> Any:
        return cls(**dict(zip(data, children)), **dict(zip(meta, aux)))

    _enter(cls, split_with_keys, rebuild, split)
    _FIELDS[cls] = data
    return cls
