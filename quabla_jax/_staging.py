"""From a Python function and its arguments to a jaxpr, and back: what transforms, control flow and custom rules share.

A function is staged with every array argument as a fresh tracer, as Quabla stages it. While it runs, operations that
touch no tracer are evaluated at once (`jax.ensure_compile_time_eval`), so Quabla's eager values stay eager inside a
trace. What the function captured from an enclosing trace ends up among the constants of the jaxpr, and that is how
the operand rule finds it.
"""

from __future__ import annotations

import collections
import dataclasses
import os
import sys
import threading
import traceback
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeGuard

import jax
import jax.numpy as jnp
import numpy as np
from jax import tree_util

from ._cycles import refuse_cycles, refuse_unsortable
from .arrays import asarray
from .errors import TracerError
from .lowering import jax_api

Tracer = jax_api.Tracer


def is_tracer(x: Any) -> bool:
    """Whether `x` is a symbolic value of a transform that is tracing."""
    return isinstance(x, Tracer)


def is_array(x: Any) -> TypeGuard[jax.Array]:
    """Whether `x` is a jax.Array, concrete or traced."""
    return isinstance(x, jax.Array)


def is_floating(x: Any) -> bool:
    """Whether an array or an abstract value has a real floating dtype."""
    return jnp.issubdtype(x.dtype, jnp.floating)


def shape_text(x: Any) -> str:
    """A shape as Quabla prints it: [2, 3]."""
    return str(list(x.shape))


def dtype_text(dt: Any) -> str:
    """A dtype as Quabla's transform errors print it."""
    return f"quabla.{'bool_' if dt == np.bool_ else np.dtype(dt).name}"


def abstract(x: jax.Array) -> jax.ShapeDtypeStruct:
    """Shape, dtype and weak type of an array."""
    return jax.ShapeDtypeStruct(x.shape, x.dtype, weak_type=bool(getattr(x, "weak_type", False)))


def copy_value(value: Any, dtype: Any = None) -> jax.Array:
    """A concrete array of a Python or NumPy value, also while a transform is tracing."""
    with jax.ensure_compile_time_eval():
        return jnp.asarray(value, dtype=dtype)


def strong(x: jax.Array) -> jax.Array:
    """`x` without weak type (a loop carry or a branch result has a dtype of its own)."""
    if not getattr(x, "weak_type", False):
        return x
    with jax.ensure_compile_time_eval():
        return jax.lax.convert_element_type(x, x.dtype)


def zeros_of(x: Any) -> jax.Array:
    """Concrete zeros of the shape and dtype of `x`."""
    with jax.ensure_compile_time_eval():
        return jnp.zeros(x.shape, x.dtype)


_CONCRETE = "needs a concrete value, but a TraceTensor is symbolic inside a traced function; return it from the function and convert the result, or keep computing with quabla operations"

_UNDRIVEN = (
    "TraceTensor cannot drive Python control flow; use quabla_jax.where for elementwise selection or an explicit "
    "control-flow primitive"
)


@contextmanager
def quabla_errors() -> Iterator[None]:
    """Turns JAX's complaints about a tracer used as a value into `TracerError`, keeping JAX's note of the place."""
    try:
        yield
    except jax.errors.TracerBoolConversionError as error:
        raise TracerError(f"{_UNDRIVEN}\n{error}") from error
    except jax.errors.TracerIntegerConversionError as error:
        raise TracerError(f"an integer index {_CONCRETE}\n{error}") from error
    except jax.errors.TracerArrayConversionError as error:
        raise TracerError(f"numpy() {_CONCRETE}\n{error}") from error
    except jax.errors.ConcretizationTypeError as error:
        raise TracerError(f"float() {_CONCRETE}\n{error}") from error
    except jax.errors.UnexpectedTracerError as error:
        raise TracerError(
            "a TraceTensor of another trace was combined with this trace: it escaped the function that created it "
            f"(through a global, a container, or an attribute) and is used after its trace ended\n{error}"
        ) from error
    except TypeError as error:
        if "can be converted to a scalar index" not in str(error):
            raise
        raise TracerError(f"an integer index {_CONCRETE}\n{error}") from error
    except ValueError as error:
        # Of an array of several entries JAX says this before it looks whether the array is a tracer.
        if not (str(error).startswith("The truth value of an array") and _met_a_tracer(error)):
            raise
        raise TracerError(f"{_UNDRIVEN}\n{error}") from error


def _frames_of(error: Exception) -> list[types.FrameType]:
    """The frames that `error` came through, the one that raised it last."""
    return [frame for frame, _ in traceback.walk_tb(error.__traceback__)]


def _met_a_tracer(error: Exception) -> bool:
    """Whether the function that raised `error` held a tracer."""
    return any(is_tracer(value) for frame in _frames_of(error)[-1:] for value in frame.f_locals.values())


@contextmanager
def linear_rules() -> Iterator[None]:
    """TypeError where JAX's pass backward ends in one of its assertions: they say that something is not linear.

    Inside the function that JAX compiles: outside of it JAX has taken its own frames from the traceback.
    """
    try:
        yield
    except AssertionError as error:
        frames = _frames_of(error)
        backward = any(frame.f_code.co_name.startswith("backward_pass") for frame in frames)
        if not (backward and frames[-1].f_code.co_filename.startswith(os.path.dirname(jax.__file__))):
            raise
        raise TypeError(
            "reverse mode met an operation that is not linear in the tangents: the JVP rule of a custom_jvp function must give "
            "a tangent that is linear in its tangents (sums, and products with what depends on primals alone)"
        ) from error


# ---- checks that only the running program can decide ------------------------------------------------------


class _Frame:
    """The checks reported while one function is traced."""

    def __init__(self, trace: Any):
        self.trace = trace
        self.flags: list[tuple[Any, Callable[[], Exception]]] = []


_frames = threading.local()


@contextmanager
def collecting_checks() -> Iterator[list]:
    """The (flag, error) pairs that `runtime_check` reports for the trace that is current now."""
    stack = _frames.__dict__.setdefault("stack", [])
    frame = _Frame(jax_api.current_trace())
    stack.append(frame)
    try:
        yield frame.flags
    finally:
        stack.pop()


def runtime_check(bad: Any, error: Callable[[], Exception]) -> None:
    """Raises `error()` where the scalar bool `bad` holds: now if it is known, else when the program has run.

    A flag travels out as one more output of the program that `jit`, `grad` and the other transforms compile. Inside a
    loop body or branch, under vmap with a mapped flag, and under plain jax.jit it cannot, and the check is dropped;
    callers must give a result that shows the fault as well (NaN).
    """
    if not is_tracer(bad):
        if bool(bad):
            raise error()
        return
    stack = getattr(_frames, "stack", None)
    if stack and jax_api.trace_of(bad) is stack[-1].trace:
        stack[-1].flags.append((bad, error))


class Output:
    """Marks the place of the `index`-th array output in a staged function's result tree."""

    __slots__ = ("index",)

    def __init__(self, index: int):
        self.index = index


@dataclasses.dataclass(frozen=True, eq=False)
class Staged:
    """A function on flat arrays, traced once.

    Attributes:
        jaxpr, consts: the open jaxpr and the values of its constants.
        leaves: the leaves of the result: `Output(k)` for a traced array, else the constant itself.
        tree: the structure of the result.
        checks: the errors of the runtime checks, whose flags are the last outputs of the jaxpr.
    """

    jaxpr: Any
    consts: tuple
    leaves: tuple
    tree: Any
    checks: tuple = ()

    def __call__(self, *arrays: Any) -> list:
        """The array outputs for flat array inputs; runtime checks are reported to the enclosing trace."""
        outputs = jax_api.eval_jaxpr(self.jaxpr, self.consts, *arrays)
        count = len(outputs) - len(self.checks)
        for flag, error in zip(outputs[count:], self.checks):
            runtime_check(flag, error)
        return outputs[:count]

    @property
    def out_avals(self) -> list:
        """The abstract values of the array outputs."""
        outvars = self.jaxpr.outvars
        return [v.aval for v in outvars[: len(outvars) - len(self.checks)]]

    @property
    def captured(self) -> list:
        """The tracers of enclosing traces that the function closed over."""
        return [c for c in self.consts if is_tracer(c)]

    def result(self, arrays: Sequence[Any]) -> Any:
        """The result tree around array outputs."""
        leaves = [arrays[leaf.index] if isinstance(leaf, Output) else leaf for leaf in self.leaves]
        return tree_util.tree_unflatten(self.tree, leaves)


def reads_input(staged: Staged, index: int) -> bool:
    """Whether an equation or an output of a staged function reads its `index`-th array."""
    var = staged.jaxpr.invars[index]
    return any(v is var for eqn in staged.jaxpr.eqns for v in eqn.invars) or any(v is var for v in staged.jaxpr.outvars)


def stage(fun: Callable[..., Any], avals: Sequence[Any]) -> Staged:
    """Traces `fun(*arrays)` once on abstract arrays.

    Raises:
        TracerError: where `fun` uses a tracer as a Python value. Other exceptions of `fun` pass unchanged.
    """
    seen: list = []

    def flat(*tracers):
        with jax.ensure_compile_time_eval(), collecting_checks() as flags:
            result = fun(*tracers)
        refuse_cycles("the result of a transformed function", result)
        leaves, tree = tree_util.tree_flatten(result)
        arrays, marked = [], []
        for leaf in leaves:
            if is_tracer(leaf):
                marked.append(Output(len(arrays)))
                arrays.append(leaf)
            else:
                marked.append(leaf)
        seen.append((tuple(marked), tree, tuple(error for _, error in flags)))
        return [*arrays, *(flag for flag, _ in flags)]

    with quabla_errors():
        closed = jax.make_jaxpr(flat)(*avals)
    jaxpr, consts = jax_api.open_jaxpr(closed)
    return Staged(jaxpr, tuple(consts), *seen[-1])


# ---- arguments of transformed functions -----------------------------------------------------------------


def _container_error(leaf: Any) -> TypeError | None:
    if isinstance(leaf, (collections.OrderedDict, collections.defaultdict)):
        return TypeError(
            f"{type(leaf).__name__} is not a pytree container: dict, list, tuple, None, NamedTuple, and classes registered "
            "with quabla_jax.tree.register are; register other container subclasses explicitly"
        )
    if dataclasses.is_dataclass(leaf) and not isinstance(leaf, type):
        return TypeError(
            f"dataclass {type(leaf).__name__} is not a pytree node; register it with quabla_jax.tree.register_dataclass"
        )
    return None


def _is_key(leaf: Any) -> bool:
    module = sys.modules.get("quabla_jax.random")
    return module is not None and isinstance(leaf, module.Key)


def as_leaf(leaf: Any) -> Any:
    """An argument leaf as a jax.Array, or unchanged if it is a Python scalar.

    Raises:
        TypeError: for anything else.
    """
    if isinstance(leaf, (jax.Array, bool, int, float)) and not isinstance(leaf, np.generic):
        return leaf
    if isinstance(leaf, (np.ndarray, np.generic, bytearray, memoryview)) or hasattr(type(leaf), "__array__"):
        return asarray(leaf)
    if _is_key(leaf):
        raise TypeError(
            "a quabla.random key cannot be a traced argument: keys are host values, so sample outside the transformed "
            "function and pass the arrays, or make the key static with static_argnums/static_argnames (one trace per key)"
        )
    raise _container_error(leaf) or TypeError(
        f"unsupported argument leaf of type {type(leaf).__name__}: transformed functions take pytrees of arrays and "
        "Python scalars"
    )


def _stops(node: Any) -> bool:
    return isinstance(node, (collections.OrderedDict, collections.defaultdict))


def tree_leaves(tree: Any) -> tuple[list, Any]:
    """Leaves, of any kind, and structure under Quabla's container rules. ValueError for a container in itself."""
    refuse_cycles("an argument or a result", tree)
    try:
        return tree_util.tree_flatten(tree, is_leaf=_stops)
    except ValueError as error:
        refuse_unsortable("an argument or a result", error, TypeError, tree)
        raise


def flatten(tree: Any) -> tuple[list, Any]:
    """Leaves (arrays and Python scalars) and structure of an argument or result under Quabla's container rules."""
    leaves, treedef = tree_leaves(tree)
    return [as_leaf(leaf) for leaf in leaves], treedef


def scalar_key(value: Any) -> tuple:
    """The part of a signature that a Python scalar is: its type and exact value (NaN equals NaN, -0.0 is not 0.0)."""
    return (type(value), repr(value))
