"""Transform objects, their signatures, and the cache of compiled programs.

Quabla stages a transformed function once a signature and runs the compiled plan after that. The cache belongs to the
root function (weakly) and the chain of transforms around it, so making `qb.grad(f)` anew finds the old traces. It is
least-recently-used and bounded; evicting a trace warns, naming both signatures.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import inspect
import itertools
import threading
import types
import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax import tree_util

from . import dtypes
from ._cycles import refuse_cycles, refuse_unsortable
from ._staging import (
    abstract,
    as_leaf,
    collecting_checks,
    copy_value,
    is_array,
    is_floating,
    is_tracer,
    linear_rules,
    quabla_errors,
    scalar_key,
    tree_leaves,
)
from .errors import RetraceWarning
from .loops import plan
from .lowering import jax_api
from .tree import structure_text

DEFAULT_MAX_TRACES = 8


class Arguments:
    """Positional arguments taken apart: arrays to trace, Python scalars to keep.

    Arguments:
        args: the call's positional arguments.
        to_array: positions whose Python scalars become float64 arrays (differentiated or seeded positions).
        static: positions passed on as they are, hashed into the signature.
        stand_in: gives the abstract value that stands for a leaf of another kind (ShapeDtype, another library's array),
            or None for leaves of the usual kinds.

    Attributes:
        leaves: all leaves, in order; `owner[k]` is the position of the argument that leaf k belongs to.
        dynamic: indices of the leaves that are arrays.
        arrays: those leaves, as they were given.
        source: the arguments themselves.
    """

    def __init__(
        self,
        args: Sequence[Any],
        to_array: Sequence[int] = (),
        static: Sequence[int] = (),
        stand_in: Callable[[Any], Any] | None = None,
    ):
        given: dict[int, Any] = {}
        self.source = args
        self.leaves: list[Any] = []
        self.owner: list[int] = []
        self.trees: list[Any] = []
        for position, arg in enumerate(args):
            if position in static:
                self.trees.append(_Static(position, arg))
                continue
            raw, tree = tree_leaves(arg)
            leaves = []
            for leaf in raw:
                aval = None if stand_in is None else stand_in(leaf)
                if aval is not None:
                    given[len(self.leaves) + len(leaves)] = leaf
                leaf = as_leaf(leaf) if aval is None else aval
                if position in to_array and not _is_traceable(leaf):
                    leaf = copy_value(leaf, np.dtype(bool) if isinstance(leaf, bool) else dtypes.default_float())
                leaves.append(leaf)
            self.leaves += leaves
            self.owner += [position] * len(leaves)
            self.trees.append(tree)
        self.dynamic = [k for k, leaf in enumerate(self.leaves) if _is_traceable(leaf)]
        self.arrays = [given.get(k, self.leaves[k]) for k in self.dynamic]

    def layout(self) -> Arguments:
        """The same without the arrays: what a cached program may keep."""
        copy = object.__new__(Arguments)
        copy.owner, copy.trees, copy.dynamic = self.owner, self.trees, self.dynamic
        copy.leaves, copy.arrays, copy.source = list(self.leaves), [], ()
        for k in self.dynamic:
            copy.leaves[k] = abstract(self.leaves[k])
        return copy

    @property
    def avals(self) -> list:
        """The abstract values of the array leaves."""
        return [abstract(self.leaves[k]) for k in self.dynamic]

    @property
    def key(self) -> tuple:
        """What decides whether two calls share a trace."""
        parts: list[Any] = []
        for leaf in self.leaves:
            if _is_traceable(leaf):
                parts.append((leaf.shape, leaf.dtype, bool(getattr(leaf, "weak_type", False))))
            else:
                parts.append(scalar_key(leaf))
        return (tuple(self.trees), tuple(parts), _settings())

    def rebuild(self, arrays: Sequence[Any]) -> tuple:
        """The argument tuple around other arrays."""
        leaves = list(self.leaves)
        for k, array in zip(self.dynamic, arrays):
            leaves[k] = array
        return tuple(self._assemble(leaves))

    def _assemble(self, leaves: Sequence[Any]) -> list:
        out, start = [], 0
        for tree in self.trees:
            if isinstance(tree, _Static):
                out.append(tree.value)
                continue
            out.append(tree_util.tree_unflatten(tree, leaves[start : start + tree.num_leaves]))
            start += tree.num_leaves
        return out

    @property
    def text(self) -> str:
        """The signature as RetraceWarning prints it: (float64[2], -0.0)."""
        remaining = iter(self.leaves)
        parts = []
        for tree in self.trees:
            if isinstance(tree, _Static):
                parts.append(repr(tree.value))
            else:
                parts.append(structure_text(tree, map(_leaf_text, itertools.islice(remaining, tree.num_leaves))))
        return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"

    def selected(self, positions: Sequence[int]) -> list[int]:
        """Indices into `arrays` of the floating leaves of the arguments at `positions`."""
        return [n for n, k in enumerate(self.dynamic) if self.owner[k] in positions and is_floating(self.leaves[k])]

    def tree_of(self, position: int, values: dict[int, Any], other: Any = None) -> Any:
        """The tree of one argument with `values[n]` at array n, `other` at every other leaf."""
        number = {k: n for n, k in enumerate(self.dynamic)}
        leaves = [values.get(number.get(k, -1), other) for k, owner in enumerate(self.owner) if owner == position]
        return tree_util.tree_unflatten(self.trees[position], leaves)


class _Static:
    """A static argument's place among the argument structures."""

    __slots__ = ("position", "value")

    def __init__(self, position: int, value: Any):
        try:
            hash(value)
        except TypeError:
            if not is_array(value) or is_tracer(value):
                raise TypeError(f"static argument {position} must be hashable, got {type(value).__name__}") from None
        self.position, self.value = position, value

    def _key(self):
        if is_array(self.value):
            return (self.position, id(self.value))
        return (self.position, type(self.value), self.value)

    def __eq__(self, other):
        return isinstance(other, _Static) and self._key() == other._key()

    def __hash__(self):
        return hash(self._key())


def _is_traceable(leaf: Any) -> bool:
    return isinstance(leaf, (jax.Array, jax.ShapeDtypeStruct))


def _leaf_text(leaf: Any) -> str:
    return f"{leaf.dtype}[{','.join(map(str, leaf.shape))}]" if _is_traceable(leaf) else repr(leaf)


def _settings() -> tuple:
    """Modes of JAX, and the default of checkpoint=, that a trace depends on."""
    default = plan.current_default()
    return (*jax_api.trace_settings(), default if isinstance(default, (str, int)) else repr(default))


@dataclasses.dataclass(frozen=True, eq=False)
class Program:
    """A transformed function, traced for one signature.

    Attributes:
        apply: array inputs to array outputs; traceable by JAX.
        finish: the call's result around the outputs. Neither may hold the user's function or the call's arrays: the
            cache keeps programs as long as the function lives, and must not be what keeps it alive.
        captured: the tracers of enclosing traces that the function closed over.
    """

    apply: Callable[..., list]
    finish: Callable[[Sequence[Any]], Any]
    captured: Sequence[Any] = ()


class _Traces(collections.OrderedDict):
    """One function's compiled programs, least recently used first."""

    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()

    def find(self, key: Any) -> Any:
        with self.lock:
            entry = self.get(key)
            if entry is not None:
                self.move_to_end(key)
            return entry

    def add(self, key: Any, entry: Any, limit: int) -> Any:
        """Stores an entry; returns the one that had to go, if any."""
        with self.lock:
            evicted = self.popitem(last=False)[1] if len(self) >= limit else None
            self[key] = entry
            return evicted


@dataclasses.dataclass(frozen=True, eq=False)
class _Entry:
    key: Any
    program: Program
    run: Callable[..., list]
    text: str

    def __call__(self, arrays: Sequence[Any]) -> Any:
        """The call's result. Inside a trace, a program of concrete arrays is run at once."""
        if jax_api.no_trace_active():
            outputs = self.run(*arrays)
        else:
            with jax.ensure_compile_time_eval():
                outputs = self.run(*arrays)
        return self.program.finish(outputs)


_BY_ROOT: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


class _Forgetting:
    """Has JAX forget shapes that have gone by, once for every `EVERY` programs compiled while programs are being evicted.

    JAX keeps the trace of each of its own functions at each shape, and the programs of operations that were evaluated
    while tracing. A process that goes through signatures without end would grow by them (0.05 to 15 MB a signature).
    """

    EVERY = 128
    """Large enough that what is traced and compiled again costs a few per cent, small enough for some 200 MB."""

    def __init__(self):
        self.compiled, self.listening, self.lock = 0, False, threading.Lock()

    def _heard(self, event: str, *_: Any, **__: Any) -> None:
        if event == jax_api.BACKEND_COMPILE_EVENT:
            self.compiled += 1

    def evicted(self) -> None:
        """To be called after each eviction."""
        with self.lock:
            if not self.listening:
                self.listening = True
                jax.monitoring.register_event_duration_secs_listener(self._heard)
            if self.compiled < self.EVERY:
                return
            self.compiled = 0
        jax_api.forget_shapes()


_forgetting = _Forgetting()


_SCALARS = frozenset((bool, int, float))
_ATOMS = _SCALARS | {np.ndarray, jax_api.ConcreteArray}


class Transform:
    """A transformed function. Calling it stages, compiles and runs; under another transform it is staged inline.

    Subclasses give `options` (what of their parameters shapes the program) and `call`. A call of arrays and
    Python scalars whose signature this object has seen skips `call`: `_seen` leads from the signature to the entry of the cache.
    """

    name = "transform"
    shortcut = True
    max_traces = DEFAULT_MAX_TRACES
    options: tuple = ()

    def __init__(self, fun: Callable[..., Any]):
        if not callable(fun):
            raise TypeError(f"expected a callable, got {type(fun).__name__}")
        self.fun = fun
        self._own: dict = {}
        self._seen: dict = {}
        functools.update_wrapper(self, fun, updated=())  # pyright: ignore[reportArgumentType]

    def __repr__(self) -> str:
        return f"{self.name}({function_name(self.fun)})"

    def call(self, *args: Any, **keywords: Any) -> Any:
        """The transform's own rules for a call; ends in `execute`."""
        raise NotImplementedError

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        if keywords or not self.shortcut:
            return self.call(*args, **keywords)
        found = self._signature(args)
        if found is not None:
            signature, arrays = found
            seen = self._seen.get(signature)
            if seen is not None:
                traces, entry = seen
                if traces.find(entry.key) is entry:
                    return entry([as_leaf(x) if type(x) is np.ndarray else x for x in arrays])
                del self._seen[signature]
        return self.call(*args)

    def _signature(self, args: tuple) -> tuple[Any, list] | None:
        """(key of `_seen`, the arrays) of arguments of concrete arrays, NumPy arrays and Python scalars; or None."""
        if not all(type(arg) in _ATOMS for arg in args):
            refuse_cycles(self, args)
        try:
            leaves, tree = tree_util.tree_flatten(args)
        except ValueError as error:
            refuse_unsortable(repr(self), error, TypeError, args)
            raise
        arrays, parts = [], []
        for leaf in leaves:
            kind = type(leaf)
            if kind is jax_api.ConcreteArray:
                parts.append(leaf.aval)
            elif kind is np.ndarray:
                parts.append((leaf.shape, leaf.dtype))
            elif kind in _SCALARS:
                parts.append(scalar_key(leaf))
                continue
            else:
                return None
            arrays.append(leaf)
        return (tree, tuple(parts), _settings()), arrays

    def _remember(self, arguments: Arguments, traces: _Traces, entry: _Entry) -> None:
        found = self._signature(tuple(arguments.source))
        # Where a scalar has become an array (a differentiated position), the way through `call` makes it one each time.
        if found is not None and len(found[1]) == len(arguments.arrays):
            if len(self._seen) >= self.max_traces:  # forget what the cache has dropped
                self._seen = {k: seen for k, seen in self._seen.items() if seen[0].get(seen[1].key) is seen[1]}
            self._seen[found[0]] = (traces, entry)

    @property
    def root(self) -> Callable[..., Any]:
        """The innermost function of the chain of transforms."""
        return self.fun.root if isinstance(self.fun, Transform) else self.fun

    @property
    def chain(self) -> tuple:
        """The transforms around the root, outermost first."""
        own = ((self.name, self.options),)
        return own + self.fun.chain if isinstance(self.fun, Transform) else own

    def _traces(self) -> _Traces:
        root = self.root
        store = self._own
        if not isinstance(root, types.MethodType):
            try:
                store = _BY_ROOT.setdefault(root, {})
            except TypeError:  # not hashable or not weakly referable: the traces live as long as this object
                store = self._own
        return store.setdefault(self.chain, _Traces())

    def execute(
        self, arguments: Arguments, build: Callable[[], Program], compile: Callable | None = None, extra: tuple = ()
    ):
        """Runs the program of `arguments`, from the cache or newly built.

        With a tracer among the arguments, or captured by the function, the program is staged into the enclosing trace.
        `compile` makes the callable that runs a traceable function of arrays (default: jax.jit).
        """
        arrays = arguments.arrays
        if any(map(is_tracer, arrays)):
            return _inline(build(), arrays)
        traces = self._traces()
        key = (arguments.key, extra)
        entry = traces.find(key)
        if entry is None:
            program = build()
            if program.captured:
                return _inline(program, arrays)
            entry = _Entry(key, program, checked(program.apply, compile or jax.jit), arguments.text)
            evicted = traces.add(key, entry, self.max_traces)
            if evicted is not None:
                self._warn(evicted.text, entry.text)
                _forgetting.evicted()
        if self.shortcut:
            self._remember(arguments, traces, entry)
        return entry(arrays)

    def _warn(self, old: str, new: str) -> None:
        warnings.warn(
            f"{self!r} exceeded max_traces={self.max_traces} and evicted its least recently used trace:\n  {old}\n"
            f"new signature:\n  {new}\nEach new signature is traced and compiled again. Python scalar arguments are static "
            "and part of the signature: pass quabla_jax.array(value, dtype=...) to vary one without retracing, or raise "
            "max_traces with quabla_jax.jit",
            RetraceWarning,
            stacklevel=5,
        )


def _inline(program: Program, arrays: Sequence[Any]) -> Any:
    """Stages a program into the trace that is current."""
    with quabla_errors(), linear_rules():
        outputs = program.apply(*arrays)
        return program.finish(staged_results(outputs) if any(map(is_tracer, arrays)) else outputs)


def staged_results(outputs: Sequence[Any]) -> list:
    """Outputs of a function of traced values, as values of the trace, also where they happen to be constant.

    The derivative of floor is a concrete zero to JAX; to the transform around it, it is computed from its arguments.
    """
    return [
        jax_api.staged_constant(x) if is_array(x) and not is_tracer(x) else staged_results(x) if type(x) is list else x
        for x in outputs
    ]


def checked(
    apply: Callable[..., list], compile: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> Callable[..., list]:
    """`apply`, compiled, raising what its runtime checks find when it has run."""
    errors: list[Callable[[], Exception]] = []

    def with_flags(*arrays):
        with collecting_checks() as flags, linear_rules():
            outputs = apply(*arrays)
        errors[:] = [error for _, error in flags]
        return outputs, [flag for flag, _ in flags]

    run = compile(with_flags)

    def call(*arrays):
        outputs, flags = run(*arrays)
        for flag, error in zip(flags, errors):
            if bool(flag):
                raise error()
        return outputs

    return call


def no_keywords(transform: Transform, keywords: dict) -> None:
    """Transforms take positional arguments only."""
    if keywords:
        name = next(iter(keywords))
        raise TypeError(
            f"{transform!r} got an unexpected keyword argument {name!r}; transforms take positional arguments"
        )


def function_name(fun: Any) -> str:
    """How errors and repr call a function."""
    if isinstance(fun, Transform):
        return repr(fun)
    return getattr(fun, "__name__", None) or type(fun).__name__


def parameter_names(fun: Any, count: int) -> list[str]:
    """Names of the first `count` positional parameters, arg0, arg1, ... where they are unknown."""
    names: list[str] = []
    try:
        for parameter in inspect.signature(fun).parameters.values():
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
                names.append(parameter.name)
    except (TypeError, ValueError):
        pass
    return (names + [f"arg{k}" for k in range(len(names), count)])[:count]


def normalize_argnums(argnums: Any, count: int) -> tuple[tuple[int, ...], bool]:
    """(positions, whether one tree rather than a tuple of trees is asked for) of an `argnums` argument."""
    single = isinstance(argnums, int)
    if not isinstance(argnums, (int, tuple, list)):
        raise TypeError(f"argnums must be an int or a tuple of ints, got {argnums!r}")
    entries: tuple = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    if any(isinstance(n, bool) or not isinstance(n, int) for n in entries):
        raise TypeError(f"argnums must be an int or a tuple of ints, got {argnums!r}")
    positions = []
    for n in entries:
        if not -count <= n < count:
            raise ValueError(f"argnums={argnums} is out of range for a call with {count} positional arguments")
        positions.append(n % count)
    if len(set(positions)) != len(positions):
        raise ValueError(f"argnums={argnums} contains a duplicate position")
    return tuple(positions), single


def decorator(make: Callable[..., Any], fun: Any, **options: Any) -> Any:
    """`make(fun, **options)`, or the decorator that does so where `fun` is not given."""
    return make(fun, **options) if fun is not None else functools.partial(make, **options)


def split(staged_arrays: Sequence[Any], chosen: Sequence[int], values: Sequence[Any]) -> list:
    """A copy of `staged_arrays` with `values` at the indices `chosen`."""
    merged = list(staged_arrays)
    for n, value in zip(chosen, values):
        merged[n] = value
    return merged
