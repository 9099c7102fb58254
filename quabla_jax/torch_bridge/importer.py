"""from_torchscript: a TorchScript graph read back as a JAX function.

The graph is interpreted while JAX traces: straight-line operators by the table in import_ops.py, prim::If by the engine's
cond, prim::Loop by its scan, fori_loop and while_loop. No Python of the file is run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from .. import loops
from .._files import checked_path, saying_where
from ..errors import UnsupportedOperationError
from ._torch_api import inline, quiet
from .archives import check_archive
from .import_ops import OPERATORS
from .import_values import Items, Num, as_array, concretization_error, is_number, is_traced, number

__all__ = ["TorchFunction", "from_torchscript"]

FOREVER = 2**63 - 1
STATIC_ERRORS = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerIntegerConversionError,
    jax.errors.TracerBoolConversionError,
)


class _Undefined:
    """prim::Uninitialized: the value of a variable on a path that never reads it."""


UNDEFINED = _Undefined()


class TorchFunction:
    """A TorchScript method as a function of JAX arrays.

    Attributes:
        params: {path: array} of the module's parameters and buffers.

    Calling it uses the stored params; `apply(params, *args)` takes others, so that they can be differentiated, mapped and
    trained. Works under every JAX transform.
    """

    def __init__(self, graph: Any, params: dict[str, jax.Array], name: str, module: Any = None):
        self._graph, self.params, self.__name__, self._module = graph, params, name, module
        self.num_inputs = len(list(graph.inputs())) - (1 if _has_self(graph) else 0)

    def __call__(self, *args: Any) -> Any:
        return self.apply(self.params, *args)

    def apply(self, params: dict[str, Any], *args: Any) -> Any:
        """The method's result on arrays (or numbers, for int, float and bool arguments), with these params."""
        if len(args) != self.num_inputs:
            raise TypeError(f"{self.__name__} takes {self.num_inputs} arguments, {len(args)} given")
        given = [a if isinstance(a, (bool, int, float, complex, type(None))) else _received(a) for a in args]
        with quiet():
            out = _Interpreter(params, self._module).run(
                self._graph, ([_Module("")] if _has_self(self._graph) else []) + given
            )
        return _given_back(out[0])

    def __repr__(self) -> str:
        return f"<TorchFunction {self.__name__} of {self.num_inputs} arguments, {len(self.params)} parameters>"


class _Module:
    """A submodule, by its path."""

    def __init__(self, path: str):
        self.path = path

    def child(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name


def _has_self(graph: Any) -> bool:
    first = next(iter(graph.inputs()), None)
    return first is not None and first.type().kind() == "ClassType"


def _received(a: Any) -> Any:
    if isinstance(a, (list, tuple)):
        return Items.of([_received(v) for v in a])
    return jnp.asarray(a)


def _given_back(value: Any) -> Any:
    if isinstance(value, Num):
        return value.array
    if isinstance(value, Items):
        return [_given_back(v) for v in value.values()]
    if isinstance(value, tuple):
        return tuple(_given_back(v) for v in value)
    return [_given_back(v) for v in value] if isinstance(value, list) else value


class _Interpreter:
    """Runs a graph's nodes on JAX values. Values are keyed by their name, which is unique in a graph."""

    def __init__(self, params: dict[str, Any], module: Any):
        self.params, self.module = params, module

    def run(self, block: Any, inputs: Sequence[Any], outer: dict[str, Any] | None = None) -> list[Any]:
        env = dict(outer or {})
        env.update((v.debugName(), x) for v, x in zip(block.inputs(), inputs, strict=True))
        for node in block.nodes():
            for v, x in zip(node.outputs(), self._node(node, env), strict=True):
                env[v.debugName()] = x
        return [env[v.debugName()] for v in block.outputs()]

    def _node(self, node: Any, env: dict[str, Any]) -> Sequence[Any]:
        kind = node.kind()
        if kind == "prim::Constant":
            return [_constant(node)]
        args = [env[v.debugName()] for v in node.inputs()]
        if kind == "prim::If":
            return self._if(node, args[0], env)
        if kind == "prim::Loop":
            return self._loop(node, args, env)
        if kind == "prim::GetAttr":
            return [self._attribute(args[0], node)]
        if kind == "prim::Uninitialized":
            return [UNDEFINED]
        if kind in ("prim::ListUnpack", "prim::TupleUnpack"):
            return args[0].values() if isinstance(args[0], Items) else list(args[0])
        if kind == "prim::ListConstruct":
            tensors = node.output().type().getElementType().kind() == "TensorType"
            return [Items.of(args) if tensors else args]
        rule = OPERATORS.get(kind)
        if rule is None:
            raise UnsupportedOperationError(
                f"from_torchscript: no rule for {kind}, schema {node.schema()!s:.200} (from {_source(node)})",
                op=kind, device="torchscript",
            )  # fmt: skip
        try:
            out = rule(*args)
        except UnsupportedOperationError as error:
            raise UnsupportedOperationError(f"{error} (from {_source(node)})", op=kind, device="torchscript") from None
        return out if node.outputsSize() != 1 else [out]

    def _attribute(self, owner: _Module, node: Any) -> Any:
        path = owner.child(node.s("name"))
        if node.output().type().kind() == "ClassType":
            return _Module(path)
        if path in self.params:
            return self.params[path]
        value = self.module
        for name in path.split("."):
            value = getattr(value, name, UNDEFINED)
        if isinstance(value, torch.Tensor):
            return as_array(_array_of(value))
        if not isinstance(value, (bool, int, float, str, type(None), list, tuple)):
            raise UnsupportedOperationError(
                f"from_torchscript: the attribute {path!r} is no parameter, buffer or constant number (from {_source(node)})",
                op="prim::GetAttr", device="torchscript",
            )  # fmt: skip
        return _frozen(value)

    # ---- branches

    def _if(self, node: Any, condition: Any, env: dict[str, Any]) -> Sequence[Any]:
        on_true, on_false = node.blocks()
        if not is_traced(condition):
            return self.run(on_true if condition else on_false, [], env)
        # Each side is traced once for what it gives; where a variable is set on one side alone, the other lends its type.
        kinds = [_outline(self.run_abstract(b, env)) for b in (on_true, on_false)]
        merged = [_merge_kinds(a, b, node) for a, b in zip(*kinds, strict=True)]

        def aligned(block: Any) -> Callable[[], Any]:
            return lambda: [_as_kind(v, k) for v, k in zip(self.run(block, [], env), merged, strict=True)]

        out = loops.cond(as_array(condition), aligned(on_true), aligned(on_false))
        return [_unpack(v, k) for v, k in zip(out, merged, strict=True)]

    def run_abstract(self, block: Any, env: dict[str, Any]) -> list[Any]:
        """The block's outputs as abstract values, with Python numbers as they are."""
        box: list[list[Any]] = []

        def go() -> list[Any]:
            box.append(self.run(block, [], env))
            return [as_array(v) for v in box[0] if isinstance(v, (Num, jax.Array))]

        jax.eval_shape(go)
        return box[0]

    # ---- loops

    def _loop(self, node: Any, args: Sequence[Any], env: dict[str, Any]) -> Sequence[Any]:
        trip, going, *init = args
        (body,) = node.blocks()
        always = _is_true(next(iter(body.outputs())))
        if not is_traced(trip) and not is_traced(going) and (not going or trip <= 0):
            return init
        if always and not is_traced(trip) and not is_traced(going) and trip < FOREVER:
            return self._counted(body, int(trip), init, env)
        try:
            return self._while(body, trip, going, init, env)
        except STATIC_ERRORS:
            if is_traced(trip) or is_traced(going):
                raise
            return self._unrolled(body, trip, going, init, env)

    def _unrolled(self, body: Any, trip: int, going: Any, init: Sequence[Any], env: dict[str, Any]) -> Sequence[Any]:
        """Trip by trip in Python, where what the loop computes decides shapes or indices of Python lists."""
        state, i = list(init), 0
        while i < trip and going:
            going, *state = self.run(body, [i, *state], env)
            if is_traced(going):
                raise concretization_error(
                    as_array(going), "a loop needs its condition to be known before the program runs"
                )
            i += 1
        return state

    def _counted(self, body: Any, trip: int, init: Sequence[Any], env: dict[str, Any]) -> Sequence[Any]:
        lists = _appended_to(body, env)
        before = [list(found.parts) for found in lists]
        try:
            kinds = self._carry_kinds(body, init, env)

            def step(carry: Any, i: Any) -> tuple[Any, Any]:
                marks = [len(found.parts) for found in lists]
                state = [_unpack(v, k) for v, k in zip(carry, kinds, strict=True)]
                _, *out = self.run(body, [Num(i), *state], env)
                added = [[as_array(v) for _, v in found.parts[m:]] for found, m in zip(lists, marks, strict=True)]
                for found, m in zip(lists, marks, strict=True):
                    del found.parts[m:]
                return [_as_kind(v, k) for v, k in zip(out, kinds, strict=True)], added

            start = [_as_kind(v, k) for v, k in zip(init, kinds, strict=True)]
            final, stacks = loops.scan(step, start, jnp.arange(trip))
        except STATIC_ERRORS:
            for found, parts in zip(lists, before, strict=True):
                found.parts[:] = parts
            return self._unrolled(body, trip, True, init, env)
        for found, per_trip in zip(lists, stacks, strict=True):
            if len(per_trip) == 1:
                found.parts.append(("many", per_trip[0]))
            elif per_trip:  # several appends a trip stand one after the other
                mixed = jnp.stack(per_trip, 1)
                found.parts.append(("many", mixed.reshape(-1, *mixed.shape[2:])))
        return [_unpack(v, k) for v, k in zip(final, kinds, strict=True)]

    def _while(self, body: Any, trip: Any, going: Any, init: Sequence[Any], env: dict[str, Any]) -> Sequence[Any]:
        if _appended_to(body, env):
            raise jax.errors.ConcretizationTypeError(
                jnp.int32(0), "from_torchscript: a list grows in a loop of unknown length"
            )  # type: ignore[arg-type]
        kinds = self._carry_kinds(body, init, env)
        count = jax.dtypes.canonicalize_dtype(jnp.int64)
        limit = as_array(trip).astype(count) if is_traced(trip) else jnp.asarray(min(trip, jnp.iinfo(count).max), count)

        def step(state: Any) -> Any:
            i, _, carry = state
            again, *out = self.run(body, [Num(i), *[_unpack(v, k) for v, k in zip(carry, kinds, strict=True)]], env)
            return i + 1, as_array(again), [_as_kind(v, k) for v, k in zip(out, kinds, strict=True)]

        start = (
            jnp.zeros((), count),
            as_array(going),
            [_as_kind(v, k) for v, k in zip(init, kinds, strict=True)],
        )
        _, _, final = loops.while_loop(lambda s: s[1] & (s[0] < limit), step, start, checkpoint="auto")
        return [_unpack(v, k) for v, k in zip(final, kinds, strict=True)]

    def _carry_kinds(self, body: Any, init: Sequence[Any], env: dict[str, Any]) -> list[Any]:
        """What each carried value is: fixed by its first value, and by the first trip where that is undefined."""
        kinds = _outline(init)
        index = Num(jnp.zeros((), jax.dtypes.canonicalize_dtype(jnp.int64)))
        box: list[list[Any]] = []
        lists = _appended_to(body, env)
        marks = [len(found.parts) for found in lists]

        def go(i: Any) -> Any:
            state = [
                v if k is None or k[0] == "static" and not is_number(v) else _unpack(_as_kind(v, k), k)
                for v, k in zip(init, kinds, strict=True)
            ]
            _, *out = self.run(body, [Num(i), *state], env)
            box.append(out)
            return 0

        jax.eval_shape(go, index.array)
        for found, m in zip(lists, marks, strict=True):
            del found.parts[m:]
        after = _outline(box[0])
        return [_merge_kinds(a, b, None) for a, b in zip(kinds, after, strict=True)]


# ---- what a value is, and its passage through JAX's control flow
# ("array", dtype), ("int"|"float"|"bool",), ("tuple", kinds), ("static", value), None for undefined


def _outline(values: Sequence[Any]) -> list[Any]:
    return [_kind_of(v) for v in values]


def _kind_of(v: Any) -> Any:
    if isinstance(v, _Undefined):
        return None
    if isinstance(v, Num):
        return {"b": ("bool",), "i": ("int",), "f": ("float",)}[v.kind]
    if isinstance(v, bool):
        return ("bool",)
    if isinstance(v, int):
        return ("int",)
    if isinstance(v, float):
        return ("float",)
    if isinstance(v, jax.Array):
        return ("array", v.shape, v.dtype)
    if isinstance(v, tuple):
        return ("tuple", tuple(_outline(v)))
    return ("static", v)


def _merge_kinds(a: Any, b: Any, node: Any) -> Any:
    if a is None or b is None:
        return b if a is None else a
    if a[0] == b[0] == "tuple":
        return ("tuple", tuple(_merge_kinds(x, y, node) for x, y in zip(a[1], b[1], strict=True)))
    if a[0] == b[0] == "static":
        if a[1] is b[1] or a[1] == b[1]:
            return a
    elif a == b:
        return a
    where = f" (from {_source(node)})" if node is not None else ""
    raise UnsupportedOperationError(
        f"from_torchscript: a value is {_say(a)} on one path and {_say(b)} on another; JAX needs one type{where}",
        op="prim::If" if node is not None else "prim::Loop", device="torchscript",
    )  # fmt: skip


def _say(kind: Any) -> str:
    return f"{kind[2]}{list(kind[1])}" if kind[0] == "array" else kind[0] if kind[0] != "static" else repr(kind[1])


def _as_kind(v: Any, kind: Any) -> Any:
    """A value in the form in which it passes through cond, scan and while_loop."""
    if kind is None or kind[0] == "static":
        return ()
    if kind[0] == "tuple":
        parts = [UNDEFINED] * len(kind[1]) if isinstance(v, _Undefined) else v
        return tuple(_as_kind(x, k) for x, k in zip(parts, kind[1], strict=True))
    if kind[0] == "array":
        return jnp.zeros(kind[1], kind[2]) if isinstance(v, _Undefined) else v
    dtype = jax.dtypes.canonicalize_dtype({"bool": jnp.bool_, "int": jnp.int64, "float": jnp.float64}[kind[0]])
    return jnp.zeros((), dtype) if isinstance(v, _Undefined) else as_array(v).astype(dtype)


def _unpack(v: Any, kind: Any) -> Any:
    if kind is None:
        return UNDEFINED
    if kind[0] == "static":
        return kind[1]
    if kind[0] == "tuple":
        return tuple(_unpack(x, k) for x, k in zip(v, kind[1], strict=True))
    return v if kind[0] == "array" else number(v, {"bool": bool, "int": int, "float": float}[kind[0]])


# ---- reading graphs


def _constant(node: Any) -> Any:
    value = node.output().toIValue()
    return as_array(_array_of(value)) if isinstance(value, torch.Tensor) else _frozen(value)


def _frozen(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return as_array(_array_of(value))
    if isinstance(value, (list, tuple)):
        return type(value)(_frozen(v) for v in value)
    return value


def _array_of(tensor: torch.Tensor) -> np.ndarray:
    tensor = tensor.detach().cpu()
    if tensor.dtype == torch.bfloat16:
        return tensor.contiguous().view(torch.int16).numpy().view(jnp.bfloat16).copy()
    return tensor.resolve_conj().resolve_neg().numpy().copy()


def _is_true(value: Any) -> bool:
    node = value.node()
    return node.kind() == "prim::Constant" and value.toIValue() is True


def _appended_to(block: Any, env: dict[str, Any]) -> list[Items]:
    """Lists from outside a block that it appends to, in order."""
    found: dict[int, Items] = {}
    for node in block.nodes():
        if node.kind() == "aten::append":
            target = env.get(next(iter(node.inputs())).debugName())
            if isinstance(target, Items):
                found[id(target)] = target
        for inner in node.blocks():
            found.update((id(x), x) for x in _appended_to(inner, env))
    return list(found.values())


def _source(node: Any) -> str:
    text = node.sourceRange()
    place = [line.strip() for line in str(text).splitlines() if line.strip()]
    return (place[0][:160] if place else "") or "a graph without source ranges"


def _collect(module: torch.jit.ScriptModule) -> dict[str, Any]:
    """Parameters and buffers of a module by path."""
    tensors = [*module.named_parameters(), *module.named_buffers()]
    return {path: as_array(_array_of(tensor)) for path, tensor in tensors}


def _first_line(error: Exception) -> str:
    return next((line.strip()[:200] for line in str(error).splitlines() if line.strip()), type(error).__name__)


def from_torchscript(module_or_path: Any, method: str = "forward") -> TorchFunction:
    """Read a TorchScript module, function or .pt file as a function of JAX arrays.

    Args:
        module_or_path: a torch.jit.ScriptModule or ScriptFunction (scripted, traced, or made by to_torchscript), or the path
            of a saved one. torch.jit.load reads the file: load only files whose origin you trust (SECURITY.md).
        method: which method of a module.

    Returns:
        A TorchFunction: f(*args) on arrays and numbers, f.params, f.apply(params, *args).

    Raises:
        UnsupportedOperationError: when called, for an operator without a rule, by name and source range; for operators that
            write in place, and for values of different types on two paths.
        ValueError: the file cannot be read as TorchScript; the path holds a null byte.
        TypeError: neither a script nor a path.
        FileNotFoundError: there is no such file.

    Differentiation: every JAX mode. prim::If becomes cond, counted loops scans with the engine's checkpoints, other loops
    while_loop(checkpoint="auto"), so reverse mode works through all of them. A loop whose values decide shapes is unrolled.
    Dtypes: without JAX's x64 mode, int64 and float64 inside the module are 32 bits wide. A module that holds an integer of more
    bits raises ValueError (among to_torchscript's own: division and conversion of uint32): enable x64 for it.
    """
    module = module_or_path
    if isinstance(module_or_path, (str, bytes, os.PathLike)):
        path = checked_path("from_torchscript", module_or_path, "module_or_path")
        if not os.path.isfile(path):
            raise FileNotFoundError(f"from_torchscript: no file {path!r}; give the path of what torch.jit.save wrote")
        with saying_where("from_torchscript"):
            check_archive(path)
        try:
            with quiet():
                module = torch.jit.load(path, map_location="cpu")
        except Exception as error:
            raise ValueError(
                f"from_torchscript: {path!r} is not a TorchScript file: {_first_line(error)}; save it anew with torch.jit.save"
            ) from error
    if isinstance(module, torch.jit.ScriptFunction):
        graph, params = module.graph.copy(), {}
    elif isinstance(module, torch.jit.ScriptModule):
        if not hasattr(module, method):
            raise ValueError(f"from_torchscript: the module has no method {method!r}")
        graph, params = getattr(module, method).graph.copy(), _collect(module)
    else:
        raise TypeError(
            f"from_torchscript: module_or_path must be a ScriptModule, a ScriptFunction or the path of a saved one, got "
            f"{type(module).__name__}; script a module first with torch.jit.script"
        )
    inline(graph)
    return TorchFunction(
        graph, params, getattr(module, "original_name", None) or getattr(module, "name", "function"), module
    )
