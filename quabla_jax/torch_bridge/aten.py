"""What the rows of ops_*.py are written against: arrays of a torch graph that is being built, and their arithmetic.

A target (TorchScript's graph, torch.export's) supplies `call`, `constant` and the few hooks below; everything else is
shared. Three requirements hold everywhere:
- functional operators only: nothing is written in place;
- uint16, uint32 and uint64 travel as the bits of int16, int32 and int64, since torch has next to no operators on them;
- a value may be held smaller than its shape (`stored`), or as one number (`scalar`), until something needs it whole.
"""

from __future__ import annotations

import abc
import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

__all__ = ["CARRIER", "Array", "Aten", "carrier", "signed_view", "torch_dtype"]

TORCH: dict[str, torch.dtype] = {
    name: getattr(torch, name)
    for name in (
        "bool uint8 int8 int16 int32 int64 uint16 uint32 uint64 float16 bfloat16 float32 float64 complex64 complex128"
    ).split()
}
CARRIER: dict[str, np.dtype] = {f"uint{n}": np.dtype(f"int{n}") for n in (16, 32, 64)}


@functools.cache  # a NumPy dtype takes longer to say its name than torch to add two numbers
def torch_dtype(dtype: np.dtype) -> torch.dtype | None:
    """The torch dtype of the same name, None where torch has none."""
    return TORCH.get(dtype.name)


@functools.cache
def signed_view(dtype: np.dtype) -> np.dtype:
    """The NumPy dtype that carries `dtype`'s bits on torch."""
    return CARRIER.get(dtype.name, dtype)


@functools.cache
def carrier(dtype: np.dtype) -> torch.dtype:
    """The torch dtype that carries `dtype`."""
    return TORCH[signed_view(dtype).name]


def joined(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The shape that the shapes broadcast to."""
    out = shapes[0]
    for shape in shapes[1:]:
        if shape != out and shape:
            out = np.broadcast_shapes(out, shape) if out else shape
    return out


class Array:
    """A value of the program on the target.

    `ref` is the target's value; its shape is `stored`, which broadcasts to `shape`. `scalar` is set instead where every
    element is one number: a Python number, or a number of the target (a loop's index). `make` gives the ref of a value
    that is only built where something needs it; `truth` is the bool Array that an integer came from; `span` is the
    least and the greatest value that a target's integer can have; `source` is what the value is a reshaping of.
    """

    __slots__ = ("dtype", "make", "ref", "scalar", "shape", "source", "span", "stored", "truth", "whole")

    def __init__(
        self, shape: tuple[int, ...], dtype: np.dtype, ref: Any = None, stored: Any = None, scalar: Any = None
    ):
        self.shape, self.dtype, self.ref, self.scalar = shape, dtype, ref, scalar
        self.stored: tuple[int, ...] = stored if stored is not None else () if scalar is not None else shape
        self.whole: Any = None  # the expanded ref, once made
        self.make: Any = None
        self.truth: Array | None = None
        self.span: tuple[int, int] | None = None
        self.source: Array | None = None

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def kind(self) -> str:
        """'b' bool, 'i' signed, 'u' unsigned, 'f' float, 'c' complex."""
        return "f" if self.dtype.kind == "V" else self.dtype.kind

    @property
    def number(self) -> Any:
        """The Python number that every element is, or None."""
        return self.scalar if isinstance(self.scalar, (bool, int, float, complex)) else None

    @property
    def bounds(self) -> tuple[int, int] | None:
        """The range of a signed integer held as a number, None where it is not known."""
        if self.kind != "i" or self.scalar is None:
            return None
        return (self.scalar, self.scalar) if isinstance(self.scalar, int) else self.span


class Aten(abc.ABC):
    """Arithmetic on Arrays through a target's operators."""

    name: str

    # what a target supplies

    @abc.abstractmethod
    def call(self, op: str, *args: Any, **kwargs: Any) -> Any:
        """Insert an operator; arguments are target values or Python constants."""

    @abc.abstractmethod
    def constant(self, array: np.ndarray) -> Any:
        """A constant tensor in its carrier dtype."""

    @abc.abstractmethod
    def narrow(self, x: Any, axis: int, start: Array, size: int, extent: int) -> Any:
        """`size` elements of `x` along an axis of length `extent` from a 0-d integer start, clamped to fit."""

    @abc.abstractmethod
    def replace(self, x: Any, update: Any, axis: int, start: Array, size: int, extent: int) -> Any:
        """`x` with those elements replaced by `update`."""

    def visible(self, ref: Any) -> bool:
        """Whether a value made before can be used here: one made inside a branch cannot outside."""
        return True

    # reading arrays

    def full(self, x: Array) -> Any:
        """The target value of exactly x.shape."""
        if x.whole is None or not self.visible(x.whole):
            ref = self.loose(x)
            x.whole = ref if x.stored == x.shape else self.call("aten::expand", ref, list(x.shape))
        return x.whole

    def loose(self, x: Array) -> Any:
        """A target value that broadcasts to x.shape."""
        if x.ref is None or not self.visible(x.ref):
            x.ref = x.make() if x.make is not None else self.tensor_of(x.scalar, x.dtype)
        return x.ref

    def tensor_of(self, scalar: Any, dtype: np.dtype) -> Any:
        """A 0-d tensor of a number."""
        if isinstance(scalar, (bool, int, float, complex)):
            return self.constant(np.asarray(scalar, signed_view(dtype)))
        return self.call("aten::scalar_tensor", scalar, carrier(dtype), None, None, None)

    def wrap(self, like: Array, ref: Any, shape: Any = None, dtype: Any = None) -> Array:
        """An Array around a target value that is held whole."""
        return Array(like.shape if shape is None else tuple(shape), like.dtype if dtype is None else dtype, ref)

    def number(self, x: Array, value: Any) -> Array:
        """An Array of x's shape and dtype whose every element is `value`, given in the carrier's range."""
        return Array(x.shape, x.dtype, scalar=value)

    @staticmethod
    def as_number(x: Array) -> bool:
        """Whether a Scalar overload takes it; torch's Scalar does not include bool."""
        return x.scalar is not None and not isinstance(x.scalar, bool)

    # elementwise operators

    def operand(self, x: Array, op: str, stored: tuple[int, ...]) -> Any:
        """How a number goes into an operator that has a Scalar overload: as it is, or as a tensor that broadcasts.
        `stored` is the shape of the operator's result."""
        return x.scalar

    def pointwise(
        self, op: str, *xs: Array | int | float | bool | str | None, dtype: Any = None, numbers: int = 0
    ) -> Array:
        """An elementwise operator. `numbers`: how many of the last Arrays may be passed as numbers (Scalar overloads)."""
        arrays = [x for x in xs if isinstance(x, Array)]
        shape = max((a.shape for a in arrays), key=len)
        stored = joined([a.stored for a in arrays])
        args: list[Any] = []
        for position, x in enumerate(xs):
            if not isinstance(x, Array):
                args.append(x)
            elif self.as_number(x) and position and position >= len(arrays) - numbers:
                args.append(self.operand(x, op, stored))
            else:
                args.append(self.loose(x))
        return Array(shape, arrays[0].dtype if dtype is None else np.dtype(dtype), self.call(op, *args), stored)

    def commuting(self, op: str, x: Array, y: Array, dtype: Any = None) -> Array:
        """A commutative operator with a Scalar overload for its second operand."""
        if x.scalar is not None and y.scalar is None:
            x, y = y, x
        return self.pointwise(op, x, y, dtype=dtype, numbers=1)

    def where(self, mask: Array, on_true: Array, on_false: Array) -> Array:
        """Selection; the mask may be 0-d. At most one side stays a number."""
        if on_true.scalar is not None and on_false.scalar is not None:
            self.loose(on_true)
        shape = on_true.shape if len(on_true.shape) >= len(mask.shape) else mask.shape
        stored = joined([mask.stored, on_true.stored, on_false.stored])
        args: list[Any] = [self.loose(mask)]
        for x in (on_true, on_false):
            number = x.ref is None and self.as_number(x)
            args.append(self.operand(x, "aten::where", stored) if number else self.loose(x))
        return Array(shape, on_true.dtype, self.call("aten::where", *args), stored)

    def is_number(self, x: Array, value: float) -> Array:
        return self.pointwise("aten::eq", x, self.number(x, value), dtype=bool, numbers=1)

    def to(self, x: Array, dtype: Any) -> Array:
        """C-style conversion between carriers, no care taken."""
        dtype = np.dtype(dtype)
        ref = self.call("aten::to", self.loose(x), carrier(dtype), False, False, None)
        return Array(x.shape, dtype, ref, x.stored)

    def ordered(self, x: Array) -> Array:
        """x with bits changed so that the carrier's signed order is x's own order (its own inverse)."""
        if x.dtype.name not in CARRIER:
            return x
        least = int(np.iinfo(signed_view(x.dtype)).min)
        if x.number is not None:
            return self.number(x, x.number ^ least)
        return self.pointwise("aten::bitwise_xor", x, self.number(x, least), numbers=1)

    # shapes

    def reshape(self, x: Array, shape: Sequence[int]) -> Array:
        """x in another shape; made only where it is read, from what x itself is a reshaping of."""
        shape = tuple(int(n) for n in shape)
        if x.scalar is not None and x.ref is None:
            return self.spread(x, shape)
        chain = [x]
        while chain[-1].source is not None:
            chain.append(chain[-1].source)
        for same in chain:
            if same.shape == shape:
                return same
        out = Array(shape, x.dtype)
        out.source = x

        def make() -> Any:
            made = (y for y in chain if y.ref is not None and self.visible(y.ref))
            return self.call("aten::reshape", self.full(next(made, chain[-1])), list(shape))

        out.make = make
        return out

    @staticmethod
    def spread(x: Array, shape: tuple[int, ...]) -> Array:
        """The number x in another shape."""
        out = Array(shape, x.dtype, scalar=x.scalar)
        out.span = x.span
        return out

    def axis_slice(self, ref: Any, axis: int, start: int, stop: int, step: int = 1) -> Any:
        return self.call("aten::slice", ref, axis, start, stop, step)

    def wrap_bits(self, x: Array, dtype: np.dtype) -> Array:
        """The same bits as another dtype of the same width."""
        if x.number is not None:
            bits = np.asarray(x.number, signed_view(x.dtype)).view(signed_view(dtype))
            if dtype.kind == "V":
                return Array(x.shape, dtype, self.constant(bits), ())
            return Array(x.shape, dtype, scalar=bits.item())
        if signed_view(x.dtype) == signed_view(dtype):
            return Array(x.shape, dtype, self.loose(x), x.stored)
        return Array(x.shape, dtype, self.call("aten::view_copy", self.loose(x), carrier(dtype)), x.stored)
