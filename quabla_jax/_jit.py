"""jit in Quabla's contract: one compiled program a signature, on XLA or another target."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, Protocol, TypeVar, overload

import jax

from . import dtypes
from ._programs import DEFAULT_MAX_TRACES, Arguments, Program, Transform, decorator
from ._staging import Staged, is_tracer, stage
from .errors import UnsupportedOperationError

__all__ = ["Lowered", "jit"]


# ---- targets -----------------------------------------------------------------------------------------------


MLX_DEVICES = ("mlx", "mlx:cpu", "mlx:gpu")


def _resolve_device(device: Any) -> Any:
    """None, one of MLX_DEVICES, or the jax.Device that a device name stands for."""
    if device is None:
        return device
    if isinstance(device, str) and device in MLX_DEVICES:
        return _checked_mlx(device)
    platform, _, ordinal = device.partition(":") if isinstance(device, str) else ("", "", "")
    known = platform in ("cpu", "cuda", "tpu") and (not ordinal or (platform == "cuda" and ordinal.isdigit()))
    if not known or (isinstance(device, str) and device.endswith(":")):
        raise ValueError(
            f"device must be None, 'cpu', 'cuda', 'cuda:N', or 'mlx' (or 'tpu', where jax has one), got {device!r}"
        )
    try:
        found = jax.devices(platform)
    except RuntimeError as error:
        raise UnsupportedOperationError(
            f"device must be None, 'cpu', 'cuda', 'cuda:N', or 'mlx' where this machine has it, got {device!r}: the "
            f"{platform} target is unavailable here (jax sees {sorted({d.platform for d in jax.devices()})})",
            device=platform,
        ) from error
    number = int(ordinal or 0)
    if number >= len(found):
        raise UnsupportedOperationError(
            f"device {device!r}: jax sees {len(found)} {platform} device(s)", device=platform
        )
    return found[number]


def _on_device(fun: Callable[..., Any], device: Any) -> Callable[..., Any]:
    compiled = jax.jit(fun)

    def run(*arrays):
        with jax.default_device(device):
            return compiled(*jax.device_put(arrays, device))

    return run


def _checked_mlx(device: str) -> str:
    """The name, where this machine has the device. "mlx" asks nothing, so that MLX is loaded at the first call."""
    if device != "mlx":
        from . import mlx_backend  # loaded late: mlx is optional

        mlx_backend.jit(abs, device=device)  # pyright: ignore[reportAttributeAccessIssue]
    return device


def _on_mlx(fun: Callable[..., Any], device: str) -> Callable[..., Any]:
    from . import mlx_backend

    return mlx_backend.jit(fun, device=device)  # pyright: ignore[reportAttributeAccessIssue]


def _mlx_stand_in(leaf: Any) -> Any:
    """The abstract value of an mlx array."""
    if type(leaf).__module__.partition(".")[0] != "mlx":
        return None
    return jax.ShapeDtypeStruct(tuple(leaf.shape), str(leaf.dtype).rpartition(".")[2].replace("bool_", "bool"))


# ---- lowering ----------------------------------------------------------------------------------------------


def _shape_stand_in(leaf: Any) -> Any:
    if isinstance(leaf, dtypes.ShapeDtype):
        return jax.ShapeDtypeStruct(leaf.shape, dtypes.resolve(leaf.dtype))
    return _mlx_stand_in(leaf)


class Lowered:
    """What `jit(f).lower(*args)` returns: a program for one signature, lowered and not yet compiled.

    Attributes:
        program: the traced program (a jaxpr); its str() is readable.
    """

    def __init__(self, transform: Jit, arguments: Arguments, extra: tuple, staged: Staged):
        self._transform, self._key, self._extra = transform, arguments.key, extra
        self._staged = staged
        self.program = staged.jaxpr
        avals = arguments.avals
        if transform.on_mlx:
            from . import mlx_backend

            self._lowered = mlx_backend.lower(staged, *avals, device=transform.target)  # pyright: ignore[reportAttributeAccessIssue]
        else:
            self._lowered = jax.jit(staged).lower(*avals)

    def as_text(self) -> str:
        """The lowered program as text: StableHLO for XLA, mlx calls for MLX."""
        return self._lowered.as_text()

    def compile(self) -> Callable[..., Any]:
        """A function of the arguments that were lowered.

        Raises (when called):
            ValueError: arguments of another structure, shape, dtype or static value.
        """
        compiled = self._lowered.compile()

        def execute(*args: Any, **keywords: Any) -> Any:
            arguments, extra, _ = self._transform.bind(args, keywords)
            if (arguments.key, extra) != (self._key, self._extra):
                raise ValueError(
                    "compiled lower() call must match its input structure, shapes, dtypes and statics: lowered for another "
                    f"signature than {arguments.text}"
                )
            return self._staged.result(compiled(*arguments.arrays))

        return execute


# ---- the transform -----------------------------------------------------------------------------------------


class Jit(Transform):
    """`jit(fun)`: see `jit`."""

    name = "jit"

    def __init__(
        self,
        fun: Callable[..., Any],
        device: Any = None,
        static_argnums: Any = (),
        max_traces: int = DEFAULT_MAX_TRACES,
        static_argnames: Any = (),
        precision: Any = None,
    ):
        super().__init__(fun)
        if isinstance(max_traces, bool) or not isinstance(max_traces, int) or max_traces < 1:
            raise ValueError(f"max_traces must be a positive int, got {max_traces!r}")
        if precision not in (None, "float64"):
            raise ValueError(f'precision must be None or "float64", got {precision!r}')
        self.target = _resolve_device(device)
        self.on_mlx = self.target in MLX_DEVICES
        if precision is not None and self.on_mlx:
            raise UnsupportedOperationError('precision="float64" is not supported on mlx', device="mlx")
        self.max_traces = max_traces
        self.names = _positional_names(fun)
        self.static_argnums = _as_ints(static_argnums)
        self.static_names = self._checked_names(static_argnames)
        self.shortcut = not self.static_argnums and not self.static_names
        self.options = (device, self.static_argnums, max_traces, self.static_names, precision)

    def _checked_names(self, static_argnames: Any) -> tuple[str, ...]:
        """The static names, those of the static positions included."""
        names = (static_argnames,) if isinstance(static_argnames, str) else static_argnames
        if not isinstance(names, (tuple, list, set, frozenset)) or not all(isinstance(n, str) for n in names):
            raise TypeError(f"static_argnames must be a str or a tuple of str, got {static_argnames!r}")
        names = tuple(names)
        try:
            parameters = inspect.signature(self.fun).parameters
        except (TypeError, ValueError):
            return names
        if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()) and any(n not in parameters for n in names):
            raise ValueError(f"static_argnames {names!r} are not parameters of {self.fun!r}")
        count = len(self.names)
        implied = tuple(self.names[n] for n in self.static_argnums if -count <= n < count)
        return tuple(dict.fromkeys(names + implied))

    def bind(
        self, args: Sequence[Any], keywords: dict, stand_in: Callable[[Any], Any] | None = None
    ) -> tuple[Arguments, tuple, dict]:
        """(arguments taken apart, the rest of the signature, static keywords) of a call."""
        positional, remaining = list(args), dict(keywords)
        while remaining and len(positional) < len(self.names) and self.names[len(positional)] in remaining:
            positional.append(remaining.pop(self.names[len(positional)]))
        for name, value in remaining.items():
            if name in self.names[: len(positional)]:
                raise TypeError(f"{self!r} got multiple values for argument {name!r}")
            if name not in self.static_names:
                raise TypeError(
                    f"{self!r} got the keyword argument {name!r}, which is not static: pass array arguments positionally (or by "
                    "keyword in parameter order), or list it in static_argnames"
                )
            try:
                hash(value)
            except TypeError:
                raise TypeError(
                    f"static keyword argument {name!r} must be hashable, got {type(value).__name__}"
                ) from None
        if remaining and isinstance(self.fun, Transform):
            raise TypeError(
                f"{self!r} cannot pass static keyword arguments {tuple(remaining)} to a transformed function; pass them "
                "positionally"
            )
        count = len(positional)
        static = set()
        for n in self.static_argnums:
            if not -count <= n < count:
                raise ValueError(
                    f"static_argnums={self.static_argnums} is out of range for a call with {count} positional arguments"
                )
            if n % count in static:
                raise ValueError(f"static_argnums={self.static_argnums} contains a duplicate position")
            static.add(n % count)
        static |= {k for k, name in enumerate(self.names[:count]) if name in self.static_names}
        arguments = Arguments(positional, static=tuple(static), stand_in=stand_in)
        extra = tuple((name, type(value), value) for name, value in sorted(remaining.items()))
        return arguments, extra, remaining

    def call(self, *args: Any, **keywords: Any) -> Any:
        arguments, extra, static = self.bind(args, keywords, _mlx_stand_in if self.on_mlx else None)
        compile = None
        if self.on_mlx:
            compile = lambda fun: _on_mlx(fun, self.target)
        elif self.target is not None:
            compile = lambda fun: _on_device(fun, self.target)
        return self.execute(arguments, lambda: self._program(arguments.layout(), static), compile, extra)

    def _stage(self, arguments: Arguments, static: dict) -> Staged:
        return stage(lambda *arrays: self.fun(*arguments.rebuild(arrays), **static), arguments.avals)

    def _program(self, arguments: Arguments, static: dict) -> Program:
        staged = self._stage(arguments, static)
        return Program(staged, staged.result, staged.captured)

    def lower(self, *args: Any, **keywords: Any) -> Lowered:
        """The program for these arguments: arrays, or `ShapeDtype` leaves in their place.

        Returns:
            A `Lowered`, with `as_text()`, `compile()` and `program`.
        """
        arguments, extra, static = self.bind(args, keywords, _shape_stand_in)
        if any(map(is_tracer, arguments.arrays)):
            raise TypeError(
                "lower() requires arrays or ShapeDtype, not enclosing tracers; lower the function outside the transform"
            )
        return Lowered(self, arguments, extra, self._stage(arguments, static))


def _positional_names(fun: Any) -> tuple[str, ...]:
    try:
        parameters = inspect.signature(fun).parameters.values()
    except (TypeError, ValueError):
        return ()
    return tuple(p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD)


def _as_ints(numbers: Any) -> tuple[int, ...]:
    entries = (numbers,) if isinstance(numbers, int) else tuple(numbers)
    if any(isinstance(n, bool) or not isinstance(n, int) for n in entries):
        raise TypeError(f"static_argnums must be an int or a tuple of ints, got {numbers!r}")
    return entries


P = ParamSpec("P")
R = TypeVar("R", covariant=True)


class Jitted(Protocol[P, R]):
    """What `jit` returns, to type checkers: the function's own signature, and `lower`."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...

    def lower(self, *args: Any, **kwargs: Any) -> Any: ...


@overload
def jit(
    fun: Callable[P, R],
    device: Any = None,
    static_argnums: Any = (),
    max_traces: int = DEFAULT_MAX_TRACES,
    static_argnames: Any = (),
    precision: Any = None,
) -> Jitted[P, R]: ...
@overload
def jit(
    fun: None = None,
    device: Any = None,
    static_argnums: Any = (),
    max_traces: int = DEFAULT_MAX_TRACES,
    static_argnames: Any = (),
    precision: Any = None,
) -> Callable[[Callable[P, R]], Jitted[P, R]]: ...
def jit(
    fun: Any = None,
    device: Any = None,
    static_argnums: Any = (),
    max_traces: int = DEFAULT_MAX_TRACES,
    static_argnames: Any = (),
    precision: Any = None,
) -> Any:
    """Compiles `fun`, once a signature.

    A signature is the structure of the arguments, shape and dtype of every array, and value and type of every Python
    scalar, which is static. At most `max_traces` programs are kept; beyond that the least recently used one is dropped
    with a `RetraceWarning`.

    Arguments:
        fun: a function of pytrees. Left out: a decorator is returned.
        device: None (jax's default device), "cpu", "cuda", "cuda:N", "tpu", "mlx" (MLX's own default device),
            "mlx:cpu" or "mlx:gpu".
        static_argnums, static_argnames: arguments that are hashed into the signature and passed on as they are.
        max_traces: a positive int.
        precision: None or "float64" (what every target but mlx does anyway).

    Returns:
        A callable with `lower(*args)`. A keyword that names the next positional parameter is bound to it; any other must
        be static. Constants come back as the same Python objects.

    Raises:
        ValueError: an unknown device or precision, max_traces below 1, unknown static names.
        UnsupportedOperationError: a device that this machine lacks.
        TypeError (when called): unhashable static arguments; keywords that are not static.
    """
    return decorator(
        Jit,
        fun,
        device=device,
        static_argnums=static_argnums,
        max_traces=max_traces,
        static_argnames=static_argnames,
        precision=precision,
    )
