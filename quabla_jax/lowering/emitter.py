"""Emits core ops into a region: shapes inferred, equal subexpressions shared, constants folded, dead nodes dropped.

Rules are written against this class. `e.add(x, y)` and its like take Values or Python scalars (which take the other
operand's dtype); scalars and 0-d Values are broadcast, everything else must already have one shape.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..errors import UnsupportedOperationError
from . import numpy_linalg, numpy_ops, numpy_special
from .core_ops import CORE_OPS
from .infer import infer
from .program import Branch, Const, Loop, Node, Op, Region, Value, has_effect

assert numpy_linalg and numpy_special  # imported for the rows that they add

__all__ = ["Emitter", "Session", "Scalar"]

Scalar = Value | int | float | bool | complex | np.generic

FOLD_LIMIT = 256  # elements: larger constants are computed by the target, where they cost no program size

_ELEMENTWISE = ("unary", "binary", "select")
_NEUTRAL = {"mul": 1, "div": 1, "add": 0, "sub": 0, "or": 0}

COMPOSITIONS: dict[str, Callable[..., Any]] = {}
"""core op -> composition over other core ops, used where the target does not have the op itself. Filled by rules/."""


class Session:
    """What the regions of one program share: the constant pool and the target."""

    def __init__(self, builder: Any = None):
        self.builder = builder
        self.target: str | None = None if builder is None else builder.target
        self._pool: dict[Any, Const] = {}
        self._large: list[Any] = []  # keeps pooled arrays alive, so that an id is never reused

    def const(self, array: np.ndarray) -> Const:
        if array.size <= FOLD_LIMIT:
            key: Any = (array.shape, array.dtype, array.tobytes())
        else:
            key = id(array)
            self._large.append(array)
        found = self._pool.get(key)
        if found is None:
            frozen = array.view()
            frozen.flags.writeable = False
            found = self._pool[key] = Const(tuple(array.shape), array.dtype, frozen)
        return found


class Emitter:
    """Builds one region."""

    def __init__(self, session: Session):
        self.session = session
        self.nodes: list[Node] = []
        self.source = ""
        self.producer: dict[Value, Node] = {}
        self._shared: dict[Any, tuple[Value, ...]] = {}

    # constants and inputs

    def const(self, value: Any, dtype: Any = None) -> Value:
        """A constant from an array or Python scalar."""
        return self.session.const(np.asarray(value, dtype=dtype))

    def full(self, shape: Sequence[int], value: Any, dtype: Any) -> Value:
        return self.broadcast_to(self.const(value, dtype), tuple(shape))

    def like(self, x: Value, value: Any) -> Value:
        return self.full(x.shape, value, x.dtype)

    def iota(self, dtype: Any, shape: Sequence[int], axis: int) -> Value:
        return self.op("iota", dtype=np.dtype(dtype), shape=tuple(shape), axis=axis)

    # the one way a node is made

    def ops(self, name: str, *inputs: Value, **params: Any) -> tuple[Value, ...]:
        """Emit a core op; returns all its results."""
        trivial = self._neutral(name, inputs) if name in _NEUTRAL else _simplify(name, inputs, params)
        if trivial is not None:
            return (trivial,)
        key = (name, inputs, tuple(params.items()))
        found = self._shared.get(key)
        if found is not None:
            return found
        specs = infer(name, [v.shape for v in inputs], [v.dtype for v in inputs], params)
        outputs = self._fold(name, inputs, params, specs)
        if outputs is None:
            outputs = tuple([Value(shape, dtype) for shape, dtype in specs])
            node = Op(name, inputs, params, outputs, self.source)
            builder = self.session.builder
            refusal = None if builder is None else builder.supports(node)
            if refusal is None:
                self.nodes.append(node)
                for value in outputs:
                    self.producer[value] = node
            elif name in COMPOSITIONS:
                made = COMPOSITIONS[name](self, *inputs, **params)
                outputs = made if isinstance(made, tuple) else (made,)
            else:
                raise UnsupportedOperationError(
                    f"{name} on {', '.join(f'{v.dtype}{list(v.shape)}' for v in inputs)} cannot run on "
                    f"{self.session.target}: {refusal}{self.source and f' (from {self.source})'}",
                    op=name,
                    device=self.session.target,
                )
        self._shared[key] = outputs
        return outputs

    def op(self, name: str, *inputs: Value, **params: Any) -> Value:
        return self.ops(name, *inputs, **params)[0]

    def _fold(self, name, inputs, params, specs) -> tuple[Value, ...] | None:
        """Constant results, where every input is constant and small; None otherwise."""
        family = CORE_OPS[name].family
        if not inputs or family in ("linalg", "matmul", "host"):
            return None
        splats = [self.splat(v) for v in inputs]
        scalars = [s for s in splats if s is not None]
        if family in _ELEMENTWISE and len(scalars) == len(splats):
            arrays = numpy_ops.evaluate(name, scalars, params)
            return tuple([self.full(shape, a, dtype) for a, (shape, dtype) in zip(arrays, specs)])
        if name == "broadcast" and splats[0] is not None:
            return None  # stays a broadcast: a target does better with a scalar
        arrays = []
        for v, scalar in zip(inputs, splats):
            if v.size > FOLD_LIMIT:
                return None
            if isinstance(v, Const):
                arrays.append(v.array)
            elif scalar is not None:
                arrays.append(np.broadcast_to(scalar, v.shape))
            else:
                return None
        if sum(math.prod(shape) for shape, _ in specs) > FOLD_LIMIT:
            return None
        results = numpy_ops.evaluate(name, arrays, params)
        return tuple([self.session.const(np.asarray(a, dtype=d).reshape(s)) for a, (s, d) in zip(results, specs)])

    def splat(self, value: Value) -> np.ndarray | None:
        """The 0-d array that a constant of equal elements holds, where that is plain to see."""
        if isinstance(value, Const):
            return value.array if not value.shape else None
        node = self.producer.get(value)
        if (
            isinstance(node, Op)
            and node.name == "broadcast"
            and isinstance(node.inputs[0], Const)
            and not node.inputs[0].shape
        ):
            return node.inputs[0].array
        return None

    def _neutral(self, name: str, inputs: tuple[Value, ...]) -> Value | None:
        """x for x * 1, x / 1 and, on integers, x + 0, x - 0, x | 0."""
        x, y = inputs
        scalar = self.splat(y)
        unit = _NEUTRAL[name]
        if scalar is not None and scalar == unit and (unit == 1 or x.dtype.kind in "iub"):
            return x
        if name in ("mul", "add", "or"):
            scalar = self.splat(x)
            if scalar is not None and scalar == unit and (unit == 1 or x.dtype.kind in "iub"):
                return y
        return None

    # readable names for rules

    def __getattr__(self, name: str) -> Callable[..., Value]:
        row = CORE_OPS.get(name.rstrip("_"))
        if row is None or row.family not in ("unary", "binary"):
            raise AttributeError(name)
        return lambda *operands: self.op(row.name, *self.match(*operands))

    def match(self, *operands: Scalar) -> list[Value]:
        """The operands as Values of one shape; Python scalars take the first Value's dtype."""
        dtype = next(v.dtype for v in operands if isinstance(v, Value))
        values = [v if isinstance(v, Value) else self.const(v, dtype) for v in operands]
        if len(values) == 1 or all(v.shape == values[0].shape for v in values):
            return values
        shape = max((v.shape for v in values), key=len)
        return [self.broadcast_to(v, shape) for v in values]

    def cast(self, x: Value, dtype: Any) -> Value:
        return self.op("cast", x, dtype=np.dtype(dtype))

    def bitcast(self, x: Value, dtype: Any) -> Value:
        return self.op("bitcast", x, dtype=np.dtype(dtype))

    def reshape(self, x: Value, shape: Sequence[int]) -> Value:
        return self.op("reshape", x, shape=tuple(int(n) for n in shape))

    def transpose(self, x: Value, perm: Sequence[int]) -> Value:
        return self.op("transpose", x, perm=tuple(int(p) for p in perm))

    def broadcast(self, x: Value, shape: Sequence[int], dims: Sequence[int]) -> Value:
        return self.op("broadcast", x, shape=tuple(int(n) for n in shape), dims=tuple(int(d) for d in dims))

    def broadcast_to(self, x: Value, shape: Sequence[int]) -> Value:
        """NumPy's broadcasting: trailing axes meet."""
        return self.broadcast(x, shape, range(len(shape) - x.ndim, len(shape)))

    def select(self, mask: Value, on_true: Scalar, on_false: Scalar) -> Value:
        if not isinstance(on_true, Value) and not isinstance(on_false, Value):
            raise TypeError("select needs an array on one side, to know the dtype")
        on_true, on_false = self.match(on_true, on_false)
        if on_true.shape != mask.shape and mask.ndim:
            on_true, on_false = (self.broadcast_to(v, mask.shape) for v in (on_true, on_false))
        return self.op("select", mask, on_true, on_false)

    def slice(self, x: Value, start: Sequence[int], limit: Sequence[int], stride: Sequence[int] | None = None) -> Value:
        stride = (1,) * x.ndim if stride is None else tuple(stride)
        return self.op("slice", x, start=tuple(start), limit=tuple(limit), stride=stride)

    def slice_axis(self, x: Value, axis: int, start: int, limit: int, stride: int = 1) -> Value:
        lows, highs, steps = [0] * x.ndim, list(x.shape), [1] * x.ndim
        lows[axis], highs[axis], steps[axis] = start, limit, stride
        return self.slice(x, lows, highs, steps)

    def pad(
        self,
        x: Value,
        value: Scalar,
        low: Sequence[int],
        high: Sequence[int],
        interior: Sequence[int] | None = None,
    ) -> Value:
        value = value if isinstance(value, Value) else self.const(value, x.dtype)
        interior = (0,) * x.ndim if interior is None else tuple(interior)
        return self.op("pad", x, value, low=tuple(low), high=tuple(high), interior=interior)

    def concat(self, xs: Sequence[Value], axis: int) -> Value:
        return self.op("concat", *xs, axis=axis)

    def reduce(self, kind: str, x: Value, axes: Sequence[int]) -> Value:
        return self.op("reduce_" + kind, x, axes=tuple(sorted(int(a) for a in axes)))

    # control flow

    def region(self, inputs: Sequence[Value], build: Callable[[Emitter, list[Value]], Sequence[Value]]) -> Region:
        """A closed region with inputs of the given shapes and dtypes, filled by build(emitter, inputs) -> outputs."""
        inner = Emitter(self.session)
        inner.source = self.source
        params = [Value(v.shape, v.dtype) for v in inputs]
        return inner.finish(params, build(inner, list(params)))

    def loop(
        self,
        kind: str,
        consts: Sequence[Value],
        init: Sequence[Value],
        body: Region,
        *,
        xs: Sequence[Value] = (),
        **fields: Any,
    ) -> list[Value]:
        length = fields.get("length")
        n_carry = len(init)
        outputs = [Value(v.shape, v.dtype) for v in body.outputs[:n_carry]]
        outputs += [Value((length or 0, *v.shape), v.dtype) for v in body.outputs[n_carry:]]
        total = _total(body) and (fields.get("cond") is None or _total(fields["cond"]))
        node = Loop(
            kind, (*consts, *init, *xs), len(consts), n_carry, body, tuple(outputs), source=self.source, total=total, **fields
        )  # fmt: skip
        self._append(node)
        return outputs

    def branch(
        self,
        index: Value,
        operands: Sequence[Value],
        branches: Sequence[Region],
        predicate: Value | None = None,
    ) -> list[Value]:
        outputs = tuple(Value(v.shape, v.dtype) for v in branches[0].outputs)
        self._append(Branch(index, tuple(operands), tuple(branches), outputs, predicate, self.source))
        return list(outputs)

    def _append(self, node: Loop | Branch) -> None:
        self.nodes.append(node)
        for value in node.outputs:
            self.producer[value] = node

    def finish(self, inputs: Sequence[Value], outputs: Sequence[Value]) -> Region:
        return Region(tuple(inputs), tuple(_live(self.nodes, outputs)), tuple(outputs))


def _total(region: Region) -> bool:
    """Whether a region may be run on any values: it ends, has no effect, and no library call in it can fail."""
    for node in region.nodes:
        if isinstance(node, Loop):
            if not node.total or node.kind == "while" or node.trip is not None:
                return False
        elif isinstance(node, Branch):
            if not all(map(_total, node.branches)):
                return False
        elif CORE_OPS[node.name].family in ("linalg", "host"):
            return False
    return True


def _live(nodes: list[Node], outputs: Sequence[Value]) -> list[Node]:
    """The nodes that the outputs need, in order."""
    needed = set(outputs)
    kept = []
    for node in reversed(nodes):
        if any(v in needed for v in node.outputs) or has_effect(node):
            needed.update(node.inputs)
            if isinstance(node, Loop) and node.trip is not None:
                needed.add(node.trip)
            elif isinstance(node, Branch):
                needed.add(node.index)
                if node.predicate is not None:
                    needed.add(node.predicate)
            kept.append(node)
    kept.reverse()
    return kept


def _simplify(name: str, inputs: tuple[Value, ...], params: dict[str, Any]) -> Value | None:
    """The input that an op only repeats, or None."""
    if name in ("reshape", "broadcast"):
        return inputs[0] if params["shape"] == inputs[0].shape else None
    if name in ("cast", "bitcast"):
        return inputs[0] if params["dtype"] == inputs[0].dtype else None
    if name == "transpose":
        return inputs[0] if params["perm"] == tuple(range(len(params["perm"]))) else None
    if name == "slice":
        same = params["limit"] == inputs[0].shape and not any(params["start"]) and all(s == 1 for s in params["stride"])
        return inputs[0] if same else None
    if name == "concat":
        return inputs[0] if len(inputs) == 1 else None
    if name == "pad":
        return None if any(params["low"]) or any(params["high"]) or any(params["interior"]) else inputs[0]
    if name in ("rev",) or (name.startswith("reduce_") and "axes" in params):
        return None if params["axes"] else inputs[0]
    if name == "select":
        mask, on_true, on_false = inputs
        if on_true is on_false:
            return on_true
        if isinstance(mask, Const) and mask.ndim == 0:
            return on_true if mask.array else on_false
    return None
