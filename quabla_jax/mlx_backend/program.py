"""Functions on MLX: signatures, traces, and programs that hold their kernels."""

from __future__ import annotations

import functools
import inspect
import threading
import types
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import mlx.core as mx
import numpy as np

from .. import lowering
from .._cycles import refuse_cycles
from ..errors import TracerError, UnsupportedOperationError
from ..lowering import jax_api
from ..lowering.narrow import CARRIERS
from ..lowering.program import Op, Program, Value
from ..lowering.trace import no_array_of_jax
from . import convert
from .kernels import Emitter
from .ops import no_dtype, supports
from .passes import simplified
from .progress import watched
from .runtime import Plan
from .target import Target

__all__ = ["MlxProgram", "jit", "lower", "target_of"]

CONFIGURATION = ("jax_enable_x64", "jax_default_prng_impl", "jax_threefry_partitionable")
"""JAX settings that change what a function computes here."""

_NUMBERS = (bool, int, float, complex)

_warned = threading.Event()


def target_of(device: str) -> Target:
    """The MLX device that a name picks: "mlx" (MLX's own default), "mlx:cpu", "mlx:gpu"."""
    if device == "mlx":
        return Target(mx.default_device())
    kinds = {"mlx:cpu": mx.cpu, "mlx:gpu": mx.gpu}
    if device not in kinds:
        raise ValueError(f'device must be "mlx", "mlx:cpu" or "mlx:gpu", got {device!r}')
    if device == "mlx:gpu" and not mx.is_available(mx.gpu):
        raise UnsupportedOperationError(
            'device "mlx:gpu": this MLX has no GPU; use "mlx" or "mlx:cpu"', device="mlx:gpu"
        )
    return Target(mx.Device(kinds[device], 0), device)


class _Refusals:
    """What lowering asks about a target: its name, and why an op cannot run there."""

    def __init__(self, target: Target):
        self.device = target
        self.target = "mlx"

    def supports(self, node: Op) -> str | None:
        return supports(node, self.device)


def _is_key(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and not isinstance(leaf, mx.array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _kind_of_result(leaf: Any) -> Any:
    """What an mx array does not tell: a key's implementation, float0 (the tangent of an integer), True for a weak type."""
    if _is_key(leaf):
        return jax.random.key_impl(leaf)
    if getattr(leaf, "dtype", None) == jax.dtypes.float0:
        return jax.dtypes.float0
    return getattr(leaf, "weak_type", not hasattr(leaf, "dtype")) or None


def _abstract(leaf: Any) -> Any:
    """What stands for a leaf when a function is traced."""
    if isinstance(leaf, mx.array):
        return jax.ShapeDtypeStruct(tuple(leaf.shape), convert.np_dtype(leaf.dtype))
    return leaf


def _signature(leaf: Any) -> Any:
    if isinstance(leaf, mx.array):
        return (tuple(leaf.shape), convert.np_dtype(leaf.dtype), False)
    if isinstance(leaf, _NUMBERS) and not isinstance(leaf, np.generic):
        return type(leaf)
    if isinstance(leaf, jax_api.Tracer):
        raise _CalledOnTracer
    if not hasattr(leaf, "dtype"):
        raise TypeError(
            f"an argument of a function on MLX must be a jax, NumPy or mx array or a number, got {type(leaf).__name__}; "
            "pass it by static_argnums or close over it"
        )
    reason = no_array_of_jax(leaf)
    if reason is not None:
        raise TypeError(f"an argument of a function on MLX must be a jax, NumPy or mx array or a number, got {reason}")
    return (tuple(leaf.shape), leaf.dtype, getattr(leaf, "weak_type", False))


class _CalledOnTracer(Exception):
    """A function on MLX was given a value that JAX is tracing."""


class _Tracing(threading.local):
    """Whether this thread is tracing a function for MLX: other functions on MLX that it calls are part of it."""

    depth = 0


_tracing = _Tracing()


def _misfit(leaf: Any, value: Value, double: bool) -> str | None:
    """What was given where a program was lowered for `value`, or None where it can stand for it with nothing lost."""
    if isinstance(leaf, _NUMBERS) and not isinstance(leaf, np.generic):
        kinds = "biufc"
        kind = {bool: "b", int: "i", float: "f", complex: "c"}[next(t for t in _NUMBERS if isinstance(leaf, t))]
        wanted = value.dtype.kind if value.dtype.kind in kinds else "f"
        if value.shape or kinds.index(kind) > kinds.index(wanted):
            return f"the number {leaf!r}"
        if wanted in "iu" and not np.iinfo(value.dtype).min <= leaf <= np.iinfo(value.dtype).max:  # type: ignore[operator]
            return f"the number {leaf!r}"
        return None
    if not hasattr(leaf, "dtype"):
        return f"a {type(leaf).__name__}"
    if isinstance(leaf, mx.array):
        given = convert.np_dtype(leaf.dtype)
        fits = given == CARRIERS.get(value.dtype, value.dtype)
    else:
        reason = no_array_of_jax(leaf)
        if reason is not None:
            return reason
        given, fits = np.dtype(leaf.dtype), False
        if given == jax.dtypes.float0:
            fits = value.dtype == np.bool_
    fits = fits or given == value.dtype or jax.dtypes.canonicalize_dtype(given) == value.dtype
    fits = fits or (not double and (given, value.dtype) == (np.float32, np.float64))
    return None if fits and tuple(leaf.shape) == value.shape else f"{given}{list(leaf.shape)}"


class MlxProgram:
    """A function lowered to MLX for one signature of arguments.

    Call `.compile()` for a callable, `.as_text()` for the program as lines. Holds its constants and kernels itself:
    when it is dropped, they are.
    """

    def __init__(self, program: Program, target: Target, kinds: Sequence[Any], keywords: bool = False):
        self.program = program
        self.target = target
        self._keywords = keywords  # lowered from a call: the tree is that of (list of arguments, keyword arguments)
        self._kinds = list(kinds)
        self._plan: Plan | None = None
        self._lock = threading.Lock()
        if not target.double and any(v.dtype == np.float64 for n in lowering.walk(program) for v in n.outputs):
            _warn_double()

    def as_text(self) -> str:
        """The lowered program, one core op a line, with the user's source lines."""
        return lowering.as_text(self.program)

    @property
    def plan(self) -> Plan:
        """The program cut into kernels, loops and branches; made at first use."""
        if self._plan is None:
            with self._lock:
                if self._plan is None:
                    self._plan = Plan(simplified(watched(self.program)), Emitter(self.target))
        return self._plan

    def compile(self) -> Callable[..., Any]:
        """A callable that takes arguments of the same structure, shapes and dtypes as those lowered for; static ones are

        left out. Gives mx arrays where any argument is one, else jax arrays.
        """
        self.plan  # noqa: B018

        def run(*args: Any, **keywords: Any) -> Any:
            if keywords and not self._keywords:
                raise TypeError(f"this program takes no keyword arguments, got {', '.join(keywords)}")
            leaves, tree = jax.tree.flatten((list(args), keywords) if self._keywords else args)
            if tree != self.program.in_tree:
                raise TypeError(f"this program takes arguments of the structure {self.program.in_tree}, got {tree}")
            leaves = [jax.random.key_data(x) if _is_key(x) else x for x in leaves]  # pyright: ignore[reportArgumentType]
            for n, (leaf, value) in enumerate(zip(leaves, self.program.inputs)):
                given = _misfit(leaf, value, self.target.double)
                if given is not None:
                    raise TypeError(
                        f"argument {self._place(n)}: this program was lowered for {value.dtype} of shape {value.shape}, got "
                        f"{given}; cast it, or lower the function for such arguments"
                    )
            return self.call(leaves)

        return run

    def _place(self, n: int) -> str:
        """Where leaf `n` of the arguments is, as JAX writes paths."""
        tree = self.program.in_tree
        paths = jax.tree_util.tree_flatten_with_path(jax.tree.unflatten(tree, range(tree.num_leaves)))[0]
        return jax.tree_util.keystr(paths[n][0])

    def call(self, leaves: Sequence[Any]) -> Any:
        """Run on the flat leaves of the arguments; the result in the function's own structure."""
        program = self.program
        inputs = []
        native = False
        leaf: Any
        for leaf, value in zip(leaves, program.inputs, strict=True):
            native = native or isinstance(leaf, mx.array)
            if _is_key(leaf):
                leaf = jax.random.key_data(leaf)  # pyright: ignore[reportArgumentType]
            inputs.append(convert.to_mx(leaf, value.dtype, self.target.double))
        if self.target.device == mx.default_device():
            outputs = self.plan.run(inputs)
        else:
            with mx.stream(self.target.device):
                outputs = self.plan.run(inputs)
        del inputs
        results: list[Any]
        if native:
            # handles of their own: assigning to a result may not reach an argument, a constant or another result
            results = [x[...] for x in outputs]
        else:
            mx.eval(outputs)
            results = [self._to_jax(o, v.dtype, impl) for o, v, impl in zip(outputs, program.outputs, self._kinds)]
        return jax.tree.unflatten(program.out_tree, results)

    def direct(self, leaves: Sequence[Any]) -> Callable[..., Any] | None:
        """A shorter way from flat mx arrays to the result, where the program takes just these and is one kernel."""
        if any(
            type(x) is not mx.array or x.dtype != self.target.dtype(v.dtype)
            for x, v in zip(leaves, self.program.inputs)
        ):
            return None
        kernel = self.plan.kernel()
        if kernel is None or self.target.device != mx.default_device():
            return None
        tree = self.program.out_tree
        if jax.tree_util.treedef_is_leaf(tree):
            return kernel.quickest_of_one()
        run = kernel.quickest()
        if run is kernel:
            return lambda *arrays: jax.tree.unflatten(tree, [x[...] for x in kernel(*arrays)])
        return None if run is None else lambda *arrays: jax.tree.unflatten(tree, run(*arrays))

    def _to_jax(self, array: mx.array, dtype: np.dtype, impl: Any) -> Any:
        if impl is jax.dtypes.float0:
            return np.zeros(array.shape, jax.dtypes.float0)
        out = convert.from_mx(array, dtype)
        if impl is True:
            return jax_api.with_weak_type(out, True)
        return out if impl is None else jax.random.wrap_key_data(out, impl=impl)


def _warn_double() -> None:
    if not _warned.is_set():
        _warned.set()
        warnings.warn(
            "MLX's GPU has no float64: float64 values are computed in float32 there",
            UserWarning,
            stacklevel=4,
        )


def _lower(fun: Callable[..., Any], args: Sequence[Any], target: Target, keywords: bool = False) -> MlxProgram:
    impls: list[Any] = []

    @functools.wraps(fun, updated=())
    def noting_keys(*inner: Any) -> Any:
        out = fun(*inner)
        refuse_cycles("the result of a function on MLX", out)
        impls[:] = map(_kind_of_result, jax.tree.leaves(out))
        return out

    refuse_cycles("a function on MLX", args)
    for leaf in jax.tree.leaves(tuple(args)):
        if not all(isinstance(n, int) for n in getattr(leaf, "shape", ())):
            raise TypeError(f"a program for MLX has fixed shapes, got {leaf.shape}: give numbers")
    builder = _Refusals(target)
    _tracing.depth += 1
    try:
        program = lowering.lower(noting_keys, *jax.tree.map(_abstract, tuple(args)), builder=builder)
    finally:
        _tracing.depth -= 1
    lowering.check(program, builder)
    for what, values in (("an argument", program.inputs), ("a result", program.outputs)):
        reason = next(filter(None, map(no_dtype, values)), None)
        if reason is not None:
            raise UnsupportedOperationError(f"{what} of {program.name} cannot be on mlx: {reason}", device="mlx")
    return MlxProgram(program, target, impls, keywords)


def lower(fun: Callable[..., Any], *args: Any, device: str = "mlx") -> MlxProgram:
    """Lower `fun` for arguments like `args` to MLX.

    Args:
        fun: any function that JAX can trace; gradients, batching and control flow in it are taken by JAX first.
        args: pytrees of jax, NumPy or mx arrays, numbers or jax.ShapeDtypeStruct.
        device: "mlx" (MLX's default device), "mlx:cpu" or "mlx:gpu".

    Raises:
        UnsupportedOperationError: something in `fun` cannot run on MLX; names the primitive and the source line.
    """
    if not callable(fun):
        raise TypeError(f"mlx_backend.lower expects a callable, got {type(fun).__name__}")
    return _lower(fun, args, target_of(device))


def _array_key(args: tuple[Any, ...]) -> Any:
    """The signature of a call with mx arrays alone, or None: cheaper to make than the general one."""
    array = mx.array
    config: Any = jax.config
    key: list[Any] = [
        config.jax_enable_x64,
        config.jax_default_prng_impl,
        config.jax_threefry_partitionable,
        mx.default_device().type,
    ]
    for a in args:
        if type(a) is not array:
            return None
        key.append(a.shape)
        key.append(a.dtype)
    return tuple(key)


class _Jit:
    """A function that runs on MLX, one program a signature."""

    def __init__(
        self,
        fun: Callable[..., Any],
        static_argnums: Sequence[int],
        static_argnames: Sequence[str],
        device: str,
    ):
        functools.update_wrapper(self, fun)
        self._fun = fun
        self._static = static_argnums
        self._static_names = frozenset(static_argnames)
        self._device = device
        target_of(device)
        self._programs: dict[Any, MlxProgram] = {}
        self._direct: dict[Any, Callable[..., Any]] = {}
        self._lock = threading.RLock()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        key = None if kwargs or self._static else _array_key(args)
        if key is not None:
            direct = self._direct.get(key)
            if direct is not None:
                return direct(*args)
        try:
            program, leaves = self._program(args, kwargs)
        except _CalledOnTracer:
            if _tracing.depth:
                return self._fun(*args, **kwargs)
            raise TracerError(
                "a function on MLX was called on a value that JAX is tracing (by jit, grad, vmap or control flow), and JAX "
                "cannot see into it: transform first, then put it on MLX, as in mlx_backend.jit(jax.grad(f))"
            ) from None
        if any(isinstance(x, jax.ShapeDtypeStruct) for x in leaves):
            raise TypeError("a function on MLX was called on a ShapeDtypeStruct: use .lower(...) for shapes alone")
        result = program.call(leaves)
        if key is not None:
            direct = program.direct(leaves)
            if direct is not None:
                self._direct[key] = direct
        return result

    def __deepcopy__(self, memo: dict[int, Any]) -> _Jit:
        return self

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def lower(self, *args: Any, **kwargs: Any) -> MlxProgram:
        """The program for arguments like these."""
        return self._program(args, kwargs)[0]

    def clear_cache(self) -> None:
        """Drop every program, with its constants and kernels."""
        with self._lock:
            self._programs.clear()
            self._direct.clear()

    def _program(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[MlxProgram, list[Any]]:
        target = target_of(self._device)
        static = {i % len(args) for i in self._static if -len(args) <= i < len(args)}
        names = self._static_names & kwargs.keys()
        dynamic = [a for i, a in enumerate(args) if i not in static]
        moving = {k: v for k, v in kwargs.items() if k not in names}
        refuse_cycles("a function on MLX", dynamic, moving)
        leaves, tree = jax.tree.flatten((dynamic, moving))
        values = [(i, args[i]) for i in sorted(static)] + [(k, kwargs[k]) for k in sorted(names)]
        fixed = tuple((where, type(value), value) for where, value in values)  # 1 == True == 1.0
        settings = tuple(getattr(jax.config, name, None) for name in CONFIGURATION)
        key = (tree, tuple(map(_signature, leaves)), fixed, target.device.type, len(args), settings)
        try:
            program = self._programs.get(key)
        except TypeError as error:
            raise TypeError(f"static arguments must be hashable: {error}") from None
        if program is None:
            with self._lock:
                program = self._programs.get(key)
                if program is None:
                    program = self._programs[key] = self._trace(
                        args, static, moving, {k: kwargs[k] for k in names}, target
                    )
        return program, leaves

    def _trace(
        self,
        args: tuple[Any, ...],
        static: set[int],
        moving: dict[str, Any],
        fixed: dict[str, Any],
        target: Target,
    ) -> MlxProgram:
        fun = self._fun

        @functools.wraps(fun, updated=())
        def on_dynamic(dynamic: list[Any], moving: dict[str, Any]) -> Any:
            rest = iter(dynamic)
            return fun(*(a if i in static else next(rest) for i, a in enumerate(args)), **moving, **fixed)

        return _lower(on_dynamic, ([a for i, a in enumerate(args) if i not in static], moving), target, keywords=True)


def jit(
    fun: Callable[..., Any] | None = None,
    *,
    static_argnums: int | Sequence[int] | None = (),
    static_argnames: str | Sequence[str] | None = (),
    device: str = "mlx",
) -> Any:
    """`fun` on MLX: traced by JAX once a signature, lowered, and run by MLX.

    Args:
        fun: any function that JAX can trace; without it, a decorator.
        static_argnums, static_argnames: arguments that are not arrays; hashable, part of the signature.
        device: "mlx" (MLX's default device), "mlx:cpu" or "mlx:gpu".

    Returns: a callable on pytrees of jax, NumPy or mx arrays and numbers. It gives mx arrays where any input was one
        (those are neither copied nor donated), else jax arrays. `.lower(*args)` gives the MlxProgram.

    Raises:
        UnsupportedOperationError: at the first call, before anything runs, naming primitive and source line.

    Differentiation: by JAX, inside `fun` (jax.grad and its like); the result is not itself differentiable.
    Cost: a trace and a lowering a signature. Pieces between control flow are compiled once they are hot.
    """
    if fun is None:
        return functools.partial(jit, static_argnums=static_argnums, static_argnames=static_argnames, device=device)
    if not callable(fun):
        raise TypeError(f"mlx_backend.jit expects a callable, got {type(fun).__name__}")
    numbers = _entries("static_argnums", static_argnums, int)
    names = _entries("static_argnames", static_argnames, str)
    return _Jit(fun, *_static_parameters(fun, numbers, names), device)


def _entries(what: str, given: Any, kind: type) -> tuple[Any, ...]:
    if given is None or isinstance(given, kind):
        return () if given is None else (given,)
    if not isinstance(given, (tuple, list, set, frozenset, range)) or not all(isinstance(x, kind) for x in given):
        raise TypeError(f"{what} must be {_A[kind]} or a sequence of {kind.__name__}s, got {given!r}")
    return tuple(given)


_A = {int: "an int", str: "a str"}


def _static_parameters(
    fun: Callable[..., Any], numbers: tuple[int, ...], names: tuple[str, ...]
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Positions and names of the static parameters. Where only one of the two is given, the other follows from the
    signature, as in jax.jit; what the function has no parameter for is refused."""
    try:
        parameters = inspect.signature(fun).parameters.values()
    except (TypeError, ValueError):
        return numbers, names
    kinds = {p.kind for p in parameters}
    positional = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    count = len(positional)
    beyond = [n for n in numbers if not -count <= n < count]
    if beyond and inspect.Parameter.VAR_POSITIONAL not in kinds:
        raise ValueError(
            f"static_argnums {tuple(beyond)} out of range: the function takes {count} positional arguments"
        )
    unknown = set(names) - {p.name for p in parameters}
    if unknown and inspect.Parameter.VAR_KEYWORD not in kinds:
        raise ValueError(f"static_argnames {tuple(sorted(unknown))} are not parameters of the function")
    if inspect.Parameter.VAR_POSITIONAL not in kinds:
        numbers = tuple(n % count for n in numbers)
    if numbers and names:
        return numbers, names
    either = {p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD}
    implied = {positional[n] for n in numbers if -count <= n < count} & either
    at = (n for n, name in enumerate(positional) if name in names and name in either)
    return (*numbers, *at), (*names, *sorted(implied))
