"""fun, args -> Program: walks the traced jaxpr and lets each equation's rule emit core ops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from ..errors import UnsupportedOperationError
from . import jax_api, rules
from .emitter import Emitter, Session
from .program import Program, Region, Value, walk
from .trace import retrace, trace

__all__ = ["check", "lower", "lower_region"]


def lower(
    fun: Callable[..., Any],
    *args: Any,
    static_argnums: int | Sequence[int] = (),
    builder: Any = None,
    name: str | None = None,
) -> Program:
    """Lower a JAX function to core ops.

    Args:
        fun: any function that JAX can trace; derivatives and batching inside it are taken by JAX.
        args: example arguments (pytrees of arrays, scalars or jax.ShapeDtypeStruct); only shapes and dtypes count.
        static_argnums: positions passed to `fun` as they are.
        builder: the target. Core ops that it does not support are composed from others where a composition is known.
        name: the program's name; by default the function's.

    Returns: a Program whose inputs are the flat array leaves of `args` (PRNG keys as uint32 words) and whose outputs
        are the flat leaves of the result. JAX's float0 (tangents of integers) is bool zeros.

    Raises:
        UnsupportedOperationError: a primitive has no rule, or the target refuses an op; names the user's line.

    Cost: linear in the number of equations, nested ones included; nothing is run but constant folding.
    """
    traced = trace(fun, args, static_argnums)
    session = Session(builder)
    inputs = [_placeholder(var.aval) for var in traced.jaxpr.invars]
    emitter = Emitter(session)
    outputs = run_jaxpr(emitter, traced.jaxpr, traced.consts, inputs)
    region = emitter.finish(inputs, outputs)
    return Program(
        region.inputs,
        region.nodes,
        region.outputs,
        in_tree=traced.in_tree,
        out_tree=traced.out_tree,
        name=name or getattr(fun, "__name__", "main"),
    )


def check(program: Region, builder: Any) -> None:
    """Raise UnsupportedOperationError if the target refuses any op of the program, nested regions included."""
    for node in walk(program):
        refusal = builder.supports(node) if hasattr(node, "name") else None
        if refusal is not None:
            name, line = node.name, node.source  # type: ignore[union-attr]
            raise UnsupportedOperationError(
                f"{name} cannot run on {builder.target}: {refusal}{line and f' (from {line})'}",
                op=name,
                device=builder.target,
            )


def _placeholder(aval: Any) -> Value:
    shape, dtype = jax_api.physical_aval(aval)
    return Value(shape, np.dtype(dtype))


class _Frame:
    """One jaxpr being walked: where it is, what its variables are, and who waits for its results."""

    __slots__ = ("equations", "position", "env", "outvars", "targets")

    def __init__(
        self,
        emitter: Emitter,
        jaxpr: Any,
        consts: Sequence[Any],
        inputs: Sequence[Value],
        targets: Sequence[Any],
    ):
        self.equations = jaxpr.eqns
        self.position = 0
        self.env: dict[Any, Value] = dict(zip(jaxpr.constvars, (constant(emitter, c) for c in consts), strict=True))
        self.env.update(zip(jaxpr.invars, inputs, strict=True))
        self.outvars = jaxpr.outvars
        self.targets = targets


def run_jaxpr(emitter: Emitter, jaxpr: Any, consts: Sequence[Any], inputs: Sequence[Value]) -> list[Value]:
    """Emit a jaxpr's equations; calls are inlined with an explicit stack, so that nesting has no limit."""
    stack = [_Frame(emitter, jaxpr, consts, inputs, ())]
    result: list[Value] = []
    while stack:
        frame = stack[-1]
        env = frame.env
        if frame.position == len(frame.equations):
            result = [_read(emitter, env, v) for v in frame.outvars]
            stack.pop()
            if stack:
                stack[-1].env.update(zip(frame.targets, result, strict=True))
            continue
        eqn = frame.equations[frame.position]
        frame.position += 1
        made = apply_rule(emitter, eqn, [_read(emitter, env, v) for v in eqn.invars])
        if isinstance(made, rules.Inline):
            inner, inner_consts = jax_api.open_jaxpr(made.jaxpr)
            stack.append(_Frame(emitter, inner, inner_consts, made.inputs, eqn.outvars))
        elif isinstance(made, Value):
            env[eqn.outvars[0]] = made
        else:
            env.update(zip(eqn.outvars, made, strict=True))
    return result


def _read(emitter: Emitter, env: dict[Any, Value], atom: Any) -> Value:
    if isinstance(atom, jax_api.Literal):
        aval: Any = atom.aval
        if aval.dtype == jax.dtypes.float0:
            return emitter.const(False)
        return emitter.const(atom.val, aval.dtype)
    return env[atom]


def constant(emitter: Emitter, value: Any) -> Value:
    """A jaxpr's constant as a Const; keys become their words."""
    if hasattr(value, "dtype") and jax_api.is_key_dtype(value.dtype):
        value = jax.random.key_data(value)
    array = np.asarray(value)
    return emitter.const(np.zeros(array.shape, bool) if array.dtype == jax.dtypes.float0 else array)


def lower_region(emitter: Emitter, jaxpr: Any, inputs: Sequence[Value]) -> Region:
    """A jaxpr (closed, or with its own constants) as a closed region."""
    opened, consts = jax_api.open_jaxpr(jaxpr)
    return emitter.region(inputs, lambda inner, args: run_jaxpr(inner, opened, consts, args))


def apply_rule(emitter: Emitter, eqn: Any, inputs: list[Value]) -> Any:
    """What the equation's rule makes of it: a Value, Values, or an Inline."""
    emitter.source = jax_api.source_line(eqn.source_info) or emitter.source  # inside a library: the call that led there
    primitive = eqn.primitive
    rule = rules.RULES.get(primitive)
    if rule is None:
        return expand(emitter, eqn, inputs)
    if rule.function is None:
        raise unsupported(emitter, eqn, rule.reason)
    if not rule.keys and any(map(_is_key, (*eqn.invars, *eqn.outvars))):
        return _over_key_words(emitter, eqn, inputs)
    return rule.function(emitter, eqn, *inputs)


def _is_key(atom: Any) -> bool:
    dtype = getattr(atom.aval, "dtype", None)
    return dtype is not None and jax_api.is_key_dtype(dtype)


def unsupported(emitter: Emitter, eqn: Any, reason: str) -> UnsupportedOperationError:
    """The error that names a primitive, the target, the reason and the user's line."""
    target = emitter.session.target
    line = emitter.source
    return UnsupportedOperationError(
        f"{eqn.primitive.name} cannot run on {target or 'a lowered target'}: {reason}{line and f' (from {line})'}",
        op=eqn.primitive.name,
        device=target,
    )


_retraced: dict[Any, Any] = {}


def expand(emitter: Emitter, eqn: Any, inputs: list[Value]) -> rules.Inline:
    """Lower a primitive without a rule through the Python function that defines it: an engine loop's, or JAX's own."""
    fun = jax_api.engine_impl(eqn.primitive)
    if fun is None:
        fun = (jax_api.python_lowering(eqn.primitive) or (None,))[0]
    if fun is None:
        raise unsupported(
            emitter,
            eqn,
            "it has no rule and JAX has no Python definition of it; register one in quabla_jax.lowering.rules",
        )
    return rules.Inline(expansion(eqn, fun), tuple(inputs))


def expansion(eqn: Any, fun: Callable[..., Any]) -> Any:
    """fun(*inputs, **params) traced on an equation's input types; kept for equations alike."""
    avals = [v.aval for v in eqn.invars]
    structs = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in avals]
    key: Any = (
        eqn.primitive,
        fun,
        jax_api.expansion_settings(),
        tuple((a.shape, a.dtype) for a in avals),
        tuple(eqn.params.items()),
    )
    try:
        found = _retraced.get(key)
    except TypeError:  # a parameter that cannot be hashed: trace again
        key, found = None, None
    if found is None:
        found = retrace(lambda *xs: fun(*xs, **eqn.params), structs)
        if key is not None:
            _retraced[key] = found
    return found


def _over_key_words(emitter: Emitter, eqn: Any, inputs: list[Value]) -> rules.Inline:
    """An equation that moves keys about, done on each word of the keys: the same equation mapped over the last axis."""
    in_axes = [-1 if _is_key(v) else None for v in eqn.invars]
    structs = [jax.ShapeDtypeStruct(v.shape, v.dtype) for v in inputs]
    compares = eqn.primitive.name in ("eq", "ne")

    def on_words(*xs):
        out = jax.vmap(lambda *ys: eqn.primitive.bind(*ys, **eqn.params), tuple(in_axes), -1)(*xs)
        if compares:
            return out.all(-1) if eqn.primitive.name == "eq" else out.any(-1)
        return out

    return rules.Inline(retrace(on_words, structs), tuple(inputs))


rules.load()
