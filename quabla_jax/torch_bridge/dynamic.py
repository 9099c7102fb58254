"""Dynamic sizes: translate at several sizes, and let what differs be an affine function of them.

The program is built at the example's sizes, then once more for every dynamic dimension at two other sizes. The graphs must
agree node by node; an integer that moves with a size becomes offset + sum(slope * size), read off an input at run time.
The second size of each dimension checks the first: a number that is not affine is refused, never guessed.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import torch
import torch.fx

__all__ = ["unified"]

STEPS = (1, 3)  # how far the two further sizes of a dimension are from the first


@dataclass(frozen=True)
class _Dimension:
    """One dynamic size: its name, where it appears (leaf of the arguments, axis), and the size of the example."""

    name: str
    places: tuple[tuple[int, int], ...]
    size: int


class _Affine(tuple):
    """(offset, slope of every dimension)"""


class _AffineFloat(_Affine):
    """The same as a float: the divisor of a mean."""


def _axis_spec(leaf_spec: Any) -> dict[int, Any]:
    if leaf_spec is None:
        return {}
    if isinstance(leaf_spec, dict):
        return {axis: dim for axis, dim in leaf_spec.items() if dim is not None and dim != torch.export.Dim.STATIC}
    if isinstance(leaf_spec, (tuple, list)):
        return _axis_spec(dict(enumerate(leaf_spec)))
    raise TypeError(f"dynamic_shapes: expected None, a dict or a sequence of dims for one array, got {leaf_spec!r}")


def _is_leaf_spec(spec: Any) -> bool:
    return spec is None or (isinstance(spec, dict) and all(isinstance(k, int) for k in spec))


def _leaf_specs(args: Sequence[Any], dynamic_shapes: Any) -> list[dict[int, Any]]:
    """For every array leaf of args in tree order its dynamic axes."""
    if isinstance(dynamic_shapes, dict) and not _is_leaf_spec(dynamic_shapes):
        dynamic_shapes = tuple(dynamic_shapes.values())
    if not isinstance(dynamic_shapes, (tuple, list)) or len(dynamic_shapes) != len(args):
        raise ValueError(
            f"dynamic_shapes: expected one entry for each of the {len(args)} arguments, got {dynamic_shapes!r}"
        )
    out: list[dict[int, Any]] = []
    for argument, spec in zip(args, dynamic_shapes, strict=True):
        count = len(jax.tree.leaves(argument))
        if _is_leaf_spec(spec) or jax.tree.structure(argument) == jax.tree.structure(0):
            out += [_axis_spec(spec)] * count
            continue
        given = jax.tree.leaves(spec, is_leaf=_is_leaf_spec)
        if len(given) != count:
            raise ValueError(f"dynamic_shapes: an argument has {count} arrays, its entry {len(given)}")
        out += map(_axis_spec, given)
    return out


def _dimensions(leaves: Sequence[Any], specs: Sequence[dict[int, Any]]) -> list[_Dimension]:
    """Named dims shared by name; torch.export.Dim.AUTO and DYNAMIC are one dimension a size of the example."""
    places: dict[str, list[tuple[int, int]]] = {}
    for number, (leaf, spec) in enumerate(zip(leaves, specs, strict=True)):
        for axis, dim in spec.items():
            if not -np.ndim(leaf) <= axis < np.ndim(leaf):
                raise ValueError(f"dynamic_shapes: array {number} of shape {np.shape(leaf)} has no axis {axis}")
            axis %= len(leaf.shape)
            name = getattr(dim, "__name__", None) or f"size {leaf.shape[axis]}"
            places.setdefault(name, []).append((number, axis))
    out = []
    for name, where in places.items():
        sizes = {leaves[n].shape[a] for n, a in where}
        if len(sizes) > 1:
            raise ValueError(f"dynamic_shapes: {name} is {sorted(sizes)} in different places of the example")
        out.append(_Dimension(name, tuple(where), sizes.pop()))
    return out


def _resized(called: Sequence[Any], skip: int, dimensions: Sequence[_Dimension], sizes: Sequence[int]) -> list[Any]:
    """The arguments as shapes alone, the dynamic axes at `sizes`; the first `skip` leaves (parameters) stay as they are."""
    leaves, tree = jax.tree.flatten(tuple(called))
    shapes = [list(np.shape(leaf)) for leaf in leaves]
    for dimension, size in zip(dimensions, sizes, strict=True):
        for number, axis in dimension.places:
            shapes[skip + number][axis] = size
    made = [
        leaf if n < skip or not hasattr(leaf, "dtype") else jax.ShapeDtypeStruct(tuple(shape), leaf.dtype)
        for n, (leaf, shape) in enumerate(zip(leaves, shapes, strict=True))
    ]
    return list(jax.tree.unflatten(tree, made))


def _fit(values: Sequence[Any], sizes: Sequence[Sequence[int]], where: str) -> Any:
    """An integer's values at the sizes tried -> itself where it never moves, else an _Affine."""
    first, base = values[0], sizes[0]
    if all(v == first for v in values):
        return first
    slopes = []
    for d in range(len(base)):
        near, far = 1 + 2 * d, 2 + 2 * d
        slope, rest = divmod(values[near] - first, sizes[near][d] - base[d])
        if rest or values[far] - first != slope * (sizes[far][d] - base[d]):
            raise ValueError(f"dynamic_shapes: {where} depends on a size in a way that is not affine: {list(values)}")
        slopes.append(slope)
    return _Affine((first - sum(s * b for s, b in zip(slopes, base, strict=True)), *slopes))


def _merge(values: Sequence[Any], sizes: Sequence[Sequence[int]], where: str) -> Any:
    """Arguments of one node at all sizes, merged; nodes are named, so that equal graphs have equal names."""
    first = values[0]
    if isinstance(first, torch.fx.Node):
        if any(not isinstance(v, torch.fx.Node) or v.name != first.name for v in values):
            raise _differs(where)
        return first
    if isinstance(first, (tuple, list)):
        if any(type(v) is not type(first) or len(v) != len(first) for v in values):
            raise _differs(where)
        return type(first)(_merge(parts, sizes, where) for parts in zip(*values, strict=True))
    if isinstance(first, dict):
        if any(v.keys() != first.keys() for v in values):
            raise _differs(where)
        return {k: _merge([v[k] for v in values], sizes, where) for k in first}
    if type(first) is int and all(type(v) is int for v in values):
        return _fit(values, sizes, where)
    if all(type(v) is float and v.is_integer() for v in values) and any(v != first for v in values):
        return _AffineFloat(_fit([int(v) for v in values], sizes, where))
    if any(v != first for v in values):
        raise _differs(where)
    return first


def _differs(where: str) -> ValueError:
    return ValueError(
        f"dynamic_shapes: the program is not the same for every size ({where}); export it once for each size, or keep sizes "
        "out of what decides the structure (reductions that halve, constants as long as the axis)"
    )


def _moving(value: Any) -> bool:
    if isinstance(value, _Affine):
        return True
    if isinstance(value, (tuple, list)):
        return any(map(_moving, value))
    return isinstance(value, dict) and any(map(_moving, value.values()))


class _Frame:
    """One graph of the program that is kept: the root's, or a region's. Knows where to read each size."""

    def __init__(self, module: torch.fx.GraphModule, parent: _Frame | None = None, user: torch.fx.Node | None = None):
        self.module, self.parent, self.user = module, parent, user
        self.sources: dict[int, tuple[torch.fx.Node, int]] = {}
        self.siblings: list[_Frame] = [self]

    def source(self, d: int) -> tuple[torch.fx.Node, int]:
        """An input of this graph that has size d, and the axis. A region gets one as a further operand of its operator."""
        if d not in self.sources:
            assert self.parent is not None and self.user is not None, "the root reads sizes off its own inputs"
            node, axis = self.parent.source(d)
            *others, operands = self.user.args
            self.user.args = (*others, (*operands, node))  # type: ignore[misc]
            for frame in self.siblings:  # all regions of one operator take the same operands
                frame.sources[d] = (frame._input(f"size_{d}"), axis)
        return self.sources[d]

    def _input(self, name: str) -> torch.fx.Node:
        graph = self.module.graph
        last = [n for n in graph.nodes if n.op == "placeholder"]
        with graph.inserting_after(last[-1] if last else None):
            return graph.placeholder(name)

    def size(self, affine: _Affine, before: torch.fx.Node) -> Any:
        """Nodes in front of `before` that compute an affine function of the sizes."""
        offset, *slopes = affine
        graph, total = self.module.graph, None
        for d, slope in enumerate(slopes):
            if slope == 0:
                continue
            node, axis = self.source(d)
            with graph.inserting_before(before):
                term = graph.call_function(torch.ops.aten.sym_size.int, (node, axis))
                if slope != 1:
                    term = graph.call_function(operator.mul, (term, slope))
                total = term if total is None else graph.call_function(operator.add, (total, term))
        with graph.inserting_before(before):
            if offset:
                total = graph.call_function(operator.add, (total, offset))
            return graph.call_function(torch.sym_float, (total,)) if isinstance(affine, _AffineFloat) else total

    def put(self, value: Any, before: torch.fx.Node) -> Any:
        if isinstance(value, _Affine):
            return self.size(value, before)
        if isinstance(value, (tuple, list)):
            return type(value)(self.put(v, before) for v in value)
        if isinstance(value, dict):
            return {k: self.put(v, before) for k, v in value.items()}
        return value


_Fix = tuple[_Frame, torch.fx.Node, Any, Any]


def _compare(graphs: Sequence[torch.fx.GraphModule], sizes: Sequence[Sequence[int]], frame: _Frame) -> list[_Fix]:
    """What moves with a size, in the first of the graphs and its regions; raises where they differ otherwise."""
    columns = [list(g.graph.nodes) for g in graphs]
    if any(len(c) != len(columns[0]) for c in columns):
        raise _differs("the number of operations changes")
    _same_tensors(graphs)
    fixes: list[_Fix] = []
    by_user: dict[torch.fx.Node, list[_Frame]] = {}
    for nodes in zip(*columns, strict=True):
        first = nodes[0]
        where = f"{first.op} {first.target}"
        if any(n.op != first.op or n.target != first.target for n in nodes):
            raise _differs(where)
        if first.op == "get_attr":
            inner = [_attribute(g, str(first.target)) for g in graphs]
            if isinstance(inner[0], torch.fx.GraphModule):
                (user,) = first.users
                child = _Frame(inner[0], frame, user)
                by_user.setdefault(user, []).append(child)
                child.siblings = by_user[user]
                fixes += _compare(inner, sizes, child)
            continue
        args = _merge([n.args for n in nodes], sizes, where)
        kwargs = _merge([dict(n.kwargs) for n in nodes], sizes, where)
        if _moving(args) or _moving(kwargs):
            fixes.append((frame, first, args, kwargs))
    return fixes


def _attribute(module: Any, path: str) -> Any:
    for name in path.split("."):
        module = getattr(module, name)
    return module


def _same_tensors(graphs: Sequence[torch.fx.GraphModule]) -> None:
    for name, tensor in graphs[0].named_buffers(recurse=False):
        for other in graphs[1:]:
            twin = getattr(other, name)
            if twin.shape != tensor.shape or not torch.equal(twin, tensor):
                raise _differs(f"the constant {name} changes")


def unified(
    made: Callable[[Sequence[Any]], torch.fx.GraphModule],
    called: Sequence[Any],
    args: Sequence[Any],
    dynamic_shapes: Any,
) -> tuple[torch.fx.GraphModule, Any]:
    """The program for every size, and torch.export's specification for its flat inputs."""
    leaves = jax.tree.leaves(tuple(args))
    specs = _leaf_specs(args, dynamic_shapes)
    dimensions = _dimensions(leaves, specs)
    skip = len(jax.tree.leaves(tuple(called))) - len(leaves)
    base = [max(d.size, 2) for d in dimensions]
    tried = [base]
    for d in range(len(base)):
        tried += [[n + step if k == d else n for k, n in enumerate(base)] for step in STEPS]
    graphs = [made(_resized(called, skip, dimensions, sizes)) for sizes in tried]
    placeholders = [n for n in graphs[0].graph.nodes if n.op == "placeholder"]
    root = _Frame(graphs[0])
    root.sources = {d: (placeholders[dim.places[0][0]], dim.places[0][1]) for d, dim in enumerate(dimensions)}
    fixes = _compare(graphs, tried, root)
    for frame, node, moving, named in fixes:
        node.args, node.kwargs = frame.put(moving, node), frame.put(named, node)
    for module in graphs[0].modules():
        if isinstance(module, torch.fx.GraphModule):
            module.recompile()
    return graphs[0], tuple(spec or None for spec in specs)
