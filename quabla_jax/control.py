"""Control flow in the Quabla dialect: cond, switch, fori_loop, scan, while_loop.

Outside every transform (more exactly: where no tracer is among the values handed in) all of them run in Python. With
a tracer among the values they become one region each, traced once under the operand rule and handed to the engine in
`loops`, which knows nothing of these rules.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from . import loops
from ._regions import DetachedPredicateError, check_region, closure_message, ignores_arguments, region
from ._staging import (
    Staged,
    abstract,
    is_array,
    is_floating,
    is_tracer,
    quabla_errors,
    reads_input,
    runtime_check,
    shape_text,
    stage,
    strong,
)
from ._switch import switch
from .arrays import asarray
from .dtypes import short
from .errors import TracerError
from .loops import plan, whiles
from .lowering import jax_api

__all__ = ["check_region", "cond", "fori_loop", "scan", "switch", "while_loop"]

_PYTREE = "control-flow carry must be a single array, not a pytree"
_PRESERVE = "control-flow body must preserve the carry shape and dtype"


# ---- arguments ---------------------------------------------------------------------------------------------


def _bound(value: Any, name: str) -> int:
    """A loop bound as a Python int."""
    if isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be a static integer, got {value!r}")
    if is_tracer(value):
        raise TracerError(
            f"an integer index needs a concrete value, but {name} is a TraceTensor, which is symbolic inside a traced "
            "function; loop bounds are static, so pass a Python int, or use while_loop for a trip count that is computed"
        )
    if is_array(value):
        raise TypeError(f"{name}: 'Tensor' object cannot be interpreted as an integer; loop bounds are Python integers")
    try:
        number = operator.index(value)
    except TypeError as error:
        raise TypeError(f"{name} must be a static integer, got {value!r}: {error}") from None
    if number < 0:
        raise ValueError(f"{name} must be non-negative, got {number}")
    if number >= 2**63:
        raise OverflowError(f"{name} must be less than 2**63, got {number}")
    return number


def _callable(fun: Any, name: str) -> None:
    if not callable(fun):
        raise TypeError(f"{name} must be callable: '{type(fun).__name__}' object is not callable")


def _carry(value: Any) -> jax.Array:
    """The initial carry as one strongly typed array."""
    if isinstance(value, (tuple, list, dict)):
        raise TypeError(f"{_PYTREE}; pack the parts into one array with quabla_jax.concat or stack")
    return strong(asarray(value))


def _operands(values: Iterable[Any]) -> tuple[jax.Array, ...]:
    if not isinstance(values, Iterable):
        raise TypeError(f"operands must be a tuple or list of arrays, got {type(values).__name__}; write (x,) for one")
    return tuple(strong(value if is_array(value) else asarray(value)) for value in values)


def _next_carry(result: Any, like: Any) -> jax.Array:
    """A body's result as the next carry."""
    if isinstance(result, (tuple, list, dict)):
        raise TypeError(f"{_PYTREE}; the body returned a {type(result).__name__}")
    array = asarray(result)
    if array.shape != like.shape or array.dtype != like.dtype:
        raise ValueError(
            f"{_PRESERVE}: the carry is {short(like.dtype)}{shape_text(like)}, the body returned "
            f"{short(array.dtype)}{shape_text(array)}"
        )
    return strong(array)


def _carry_and_output(result: Any, like: Any) -> tuple[jax.Array, jax.Array]:
    """A scan body's result as (next carry, output)."""
    if not isinstance(result, tuple) or len(result) != 2:
        kind = f"a tuple of {len(result)}" if isinstance(result, tuple) else f"a {type(result).__name__}"
        raise TypeError(f"scan body must return a (carry, output) tuple, got {kind}")
    carry = _next_carry(result[0], like)
    if isinstance(result[1], (tuple, list, dict)):
        raise TypeError(f"{_PYTREE}; the same holds for a scan's output, which is a {type(result[1]).__name__} here")
    return carry, strong(asarray(result[1]))


_FLOATS_ONLY = "loop regions accept only floating values, so convert masks explicitly with astype"


def _refuse_mask_carry(carry: jax.Array, loop: str) -> None:
    if not is_floating(carry):
        raise ValueError(f"{loop} input carry has dtype {short(carry.dtype)}; {_FLOATS_ONLY}")


def _refuse_mask_operands(staged: Staged, operands: Sequence[jax.Array], loop: str) -> None:
    """A region may not read a bool operand; an integer one rides along (Quabla has no integers)."""
    first = len(staged.jaxpr.invars) - len(operands)
    for position, operand in enumerate(operands):
        if operand.dtype == np.bool_ and reads_input(staged, first + position):
            raise ValueError(f"{loop} input operand {position} has dtype {short(operand.dtype)}; {_FLOATS_ONLY}")


def _traced(*values: Any) -> bool:
    return any(is_tracer(v) for v in values)


def _call(fun: Callable[..., Any], *args: Any) -> Any:
    """Runs a user's function in Python; what it computes from concrete values is computed at once."""
    with quabla_errors(), jax.ensure_compile_time_eval():
        return fun(*args)


def _of_trace(result: jax.Array) -> jax.Array:
    """A traced loop's result: computed from its operands, also where they do not enter it and it is known."""
    return result if is_tracer(result) else jax_api.staged_constant(result)


def _index_aval(carry: jax.Array) -> Any:
    return jax.ShapeDtypeStruct((), carry.dtype)


# ---- cond --------------------------------------------------------------------------------------------------


def _decide(pred: Any) -> bool:
    """The value of a predicate that is known now."""
    if not is_array(pred):
        if not isinstance(pred, np.ndarray):
            return bool(pred)
        pred = asarray(pred)
    if pred.size != 1 or pred.ndim > 1:
        raise ValueError(f"cond predicate must be scalar, got shape {shape_text(pred)}")
    value = np.asarray(pred).reshape(())
    if value.dtype != np.bool_ and not np.isfinite(value):
        raise ValueError(f"conditional predicate must be finite, got {value}")
    return bool(value != 0)


def _branch_result(result: Any) -> jax.Array:
    array = strong(asarray(result))
    if not is_floating(array):
        raise ValueError(
            f"conditional branches must return a floating dtype, got {short(array.dtype)}; convert {short(array.dtype)} "
            "results explicitly with astype"
        )
    return array


def cond(pred: Any, true_fun: Callable[..., Any], false_fun: Callable[..., Any], *operands: Any) -> Any:
    """Runs one of two branches: `true_fun(*operands)` where `pred` holds, else `false_fun(*operands)`.

    Arguments:
        pred: a scalar, bool or floating (true where it is not 0), or any Python object (its truth).
        true_fun, false_fun: functions of the operands. With a traced predicate both are traced once, must return one
            floating array of the same shape and dtype, and may not close over traced values.
        *operands: arrays, numbers or lists of numbers; anything at all where the predicate is concrete.

    Returns:
        The taken branch's result; with a concrete predicate untouched, else one array.

    Raises:
        ValueError: a predicate that is not scalar or (concrete) not finite; branches that disagree in shape or dtype.
        TypeError: operands or results that are no arrays.
        TracerError: a branch that closes over a traced value.

    Differentiation: both modes, any order; only the taken branch is differentiated. Under vmap with a mapped predicate
    both branches run and the one not taken can put no NaN or inf into values, tangents or cotangents.
    A traced float predicate that is NaN or infinite makes the result NaN, and the program that qb.jit, qb.grad or
    another transform compiled raises when it has run, unless the predicate is mapped or inside another region.
    Cost: one branch; both under vmap with a mapped predicate.
    """
    if not is_tracer(pred):
        holds = _decide(pred)
        _callable(true_fun if holds else false_fun, "true_fun" if holds else "false_fun")
        return _call(true_fun if holds else false_fun, *operands)
    _callable(true_fun, "true_fun")
    _callable(false_fun, "false_fun")
    if pred.ndim:
        raise ValueError(f"tensor_cond predicate must be scalar, got shape {shape_text(pred)}")
    inputs = _operands(operands)
    avals = [abstract(x) for x in inputs]
    on_true = region(true_fun, avals, "the true branch of cond", _branch_result)
    on_false = region(false_fun, avals, "the false branch of cond", _branch_result)
    first, second = (_single_aval(branch) for branch in (on_true, on_false))
    if first.shape != second.shape:
        raise ValueError(
            f"conditional branch output shapes differ: {shape_text(first)} versus {shape_text(second)}; branches do not "
            "broadcast, so return arrays of one shape"
        )
    if first.dtype != second.dtype:
        raise ValueError(
            f"conditional branch output dtypes differ: {short(first.dtype)} versus {short(second.dtype)}; a Python number "
            "is float64 here, so use zeros_like or astype"
        )
    taken = pred if pred.dtype == np.bool_ else pred != 0
    out = loops.cond(taken, _one(on_true), _one(on_false), *inputs)
    if is_floating(pred):
        finite = jnp.isfinite(pred)
        out = lax.select(lax.broadcast(finite, out.shape), out, lax.full_like(out, jnp.nan))
        runtime_check(jnp.logical_not(finite), lambda: ValueError("conditional predicate must be finite"))
    return out


def _single_aval(staged: Any) -> Any:
    """The abstract value of a region whose result is one array, traced or constant."""
    return staged.out_avals[0] if staged.out_avals else staged.leaves[0]


def _one(staged: Any) -> Callable[..., jax.Array]:
    """A region of one result as a function of arrays."""
    return lambda *arrays: staged.result(staged(*arrays))


# ---- fori_loop ---------------------------------------------------------------------------------------------


def fori_loop(
    lower: int,
    upper: int,
    body_fun: Callable[..., Any],
    init_val: Any,
    *,
    operands: Iterable[Any] = (),
    unroll: bool = False,
    checkpoint: Any = "auto",
) -> jax.Array:
    """Repeats `carry = body_fun(i, carry, *operands)` for i in range(lower, upper).

    Arguments:
        lower, upper: static non-negative integers, lower <= upper.
        body_fun: returns the next carry, of the same shape and dtype; may not close over traced values.
        init_val: the first carry: one floating array, or a number (float64).
        operands: arrays (or numbers) that the body reads.
        unroll: inline every iteration with a Python int as index; the body is then traced once an iteration.
        checkpoint: which carries reverse mode keeps: "auto", "full", "sqrt", a number of carries, or a `Budget`.

    Returns:
        The last carry. The index is a Python int where the loop runs in Python, else a 0-d array of the carry's dtype.

    Raises:
        TypeError: bounds that are no integers; a carry that is a pytree.
        ValueError: negative bounds or upper < lower; a body that changes shape or dtype; masks in a traced loop.
        TracerError: a traced bound; a body that closes over a traced value.

    Differentiation: both modes, any order. Cost: carries kept as the checkpoint plan says, about 2*sqrt(T) for "sqrt".
    """
    start, stop = _bound(lower, "lower"), _bound(upper, "upper")
    if stop < start:
        raise ValueError(f"fori_loop requires upper >= lower, got lower={start} and upper={stop}")
    _callable(body_fun, "body_fun")
    plan.check_request(checkpoint)
    carry, inputs = _carry(init_val), _operands(operands)
    traced = _traced(carry, *inputs)
    if unroll or not traced:
        for i in range(start, stop):
            carry = _next_carry(_call(body_fun, i, carry, *inputs), carry)
        return _of_trace(carry) if traced else carry
    _refuse_mask_carry(carry, "fori loop")
    avals = [_index_aval(carry), abstract(carry), *map(abstract, inputs)]
    staged = region(body_fun, avals, "the body of fori_loop", lambda result: _next_carry(result, carry))
    _refuse_mask_operands(staged, inputs, "fori loop")
    body = _one(staged)
    if start == stop:
        return _of_trace(carry)
    dtype = carry.dtype

    def step(i, c):
        return body(lax.convert_element_type(i, dtype), c, *inputs)

    return _of_trace(loops.fori_loop(start, stop, step, carry, checkpoint=checkpoint))


# ---- scan --------------------------------------------------------------------------------------------------


def scan(
    f: Callable[..., Any],
    init: Any,
    *,
    length: int,
    operands: Iterable[Any] = (),
    unroll: bool = False,
    checkpoint: Any = "auto",
) -> tuple[jax.Array, jax.Array]:
    """Repeats `carry, y = f(carry, i, *operands)` `length` times and stacks the y on a new leading axis.

    Arguments:
        f: returns a (carry, output) tuple: the carry as in `fori_loop`, the output one floating array of fixed shape.
        init: the first carry: one floating array, or a number (float64).
        length: a static positive integer.
        operands, unroll, checkpoint: as in `fori_loop`.

    Returns:
        (carry, ys), ys of shape [length, *output.shape].

    Raises:
        TypeError, ValueError, TracerError: as `fori_loop`; also for a body that returns no pair.

    Differentiation: both modes, any order. Cost: as `fori_loop`, and the outputs.
    """
    count = _bound(length, "length")
    if count == 0:
        raise ValueError("scan length must be positive, got 0")
    _callable(f, "f")
    plan.check_request(checkpoint)
    carry, inputs = _carry(init), _operands(operands)
    traced = _traced(carry, *inputs)
    if unroll or not traced:
        last, ys = _scan_in_python(f, carry, count, inputs, traced)
        return (_of_trace(last), _of_trace(ys)) if traced else (last, ys)
    _refuse_mask_carry(carry, "scan")

    def finish(result):
        after, output = _carry_and_output(result, carry)
        if not is_floating(output):
            raise ValueError(
                f"scan outputs must have a floating dtype, got {short(output.dtype)}; convert {short(output.dtype)} values "
                "explicitly with astype"
            )
        return after, output

    avals = [abstract(carry), _index_aval(carry), *map(abstract, inputs)]
    staged = region(f, avals, "the body of scan", finish)
    _refuse_mask_operands(staged, inputs, "scan")
    body = _one(staged)
    dtype = carry.dtype

    def step(state, _):
        i, c = state
        c, y = body(c, lax.convert_element_type(i, dtype), *inputs)
        return (i + 1, c), y

    first = jnp.zeros((), np.int32)  # exact up to 2^31 - 1 trips, beyond what any stacked output could hold
    (_, last), ys = loops.scan(step, (first, carry), None, length=count, checkpoint=checkpoint)
    return _of_trace(last), _of_trace(ys)


def _scan_in_python(f: Callable[..., Any], carry: jax.Array, count: int, inputs: tuple, traced: bool):
    outputs: list[jax.Array] = []
    for i in range(count):
        carry, y = _carry_and_output(_call(f, carry, i, *inputs), carry)
        if outputs and (y.shape != outputs[0].shape or y.dtype != outputs[0].dtype):
            if traced:
                what = "shape" if y.shape != outputs[0].shape else "dtype"
                old, new = (shape_text(o) if what == "shape" else short(o.dtype) for o in (outputs[0], y))
                raise ValueError(f"scan body changed output {what} from {old} to {new}")
            raise ValueError(
                "scan body must preserve the output shape and dtype: the first output is "
                f"{short(outputs[0].dtype)}{shape_text(outputs[0])}, output {i} is {short(y.dtype)}{shape_text(y)}"
            )
        outputs.append(y)
    with jax.ensure_compile_time_eval():
        return carry, jnp.stack(outputs)


# ---- while_loop --------------------------------------------------------------------------------------------


def while_loop(
    cond_fun: Callable[..., Any],
    body_fun: Callable[..., Any],
    init_val: Any,
    *,
    operands: Iterable[Any] = (),
    checkpoint: Any = None,
) -> jax.Array:
    """Repeats `carry = body_fun(carry, *operands)` while `cond_fun(carry, *operands)` holds.

    Arguments:
        cond_fun: returns a scalar bool; may not close over traced values.
        body_fun: returns the next carry, of the same shape and dtype; may not close over traced values.
        init_val: the first carry: one floating array, or a number (float64).
        operands: arrays (or numbers) that both functions read.
        checkpoint: None: forward mode only, as in Quabla. "auto" or a number of carries: reverse mode of any order
            through the unknown trip count, in memory fixed beforehand.

    Returns:
        The first carry for which the predicate fails.

    Raises:
        TypeError: a predicate that is no scalar bool; a carry that is a pytree; functions that cannot be called.
        ValueError: a body that changes shape or dtype; masks in a traced loop; reverse mode with checkpoint=None.
        TracerError: functions that close over a traced value.

    Differentiation: forward mode always; reverse mode with checkpoint=.
    Under vmap the loop runs while any example does; finished examples keep carry and derivatives bit for bit.
    """
    if not callable(cond_fun) or not callable(body_fun):
        kinds = f"{type(cond_fun).__name__} and {type(body_fun).__name__}"
        raise TypeError(f"while_loop requires callable cond_fun and body_fun, got {kinds}")
    carry, inputs = _carry(init_val), _operands(operands)
    if checkpoint is not None:
        whiles.pool_for(checkpoint, carry.size * carry.dtype.itemsize)
    if not _traced(carry, *inputs):
        return _while_in_python(cond_fun, body_fun, carry, inputs)
    _refuse_mask_carry(carry, "while loop")
    avals = [abstract(carry), *map(abstract, inputs)]
    predicate = _predicate_region(cond_fun, avals)
    _refuse_mask_operands(predicate, inputs, "while loop predicate")
    staged = region(body_fun, avals, "the body of while_loop", lambda result: _next_carry(result, carry))
    _refuse_mask_operands(staged, inputs, "while loop")
    holds, body = _one(predicate), _one(staged)
    out = loops.while_loop(lambda c: holds(c, *inputs), lambda c: body(c, *inputs), carry, checkpoint=checkpoint)
    return _of_trace(jax_api.forward_only_p.bind(out) if checkpoint is None else out)


def _predicate(result: Any) -> jax.Array:
    array = asarray(result)
    if array.shape != () or array.dtype != np.bool_:
        raise TypeError(
            f"while_loop cond_fun must return a scalar bool, got shape {shape_text(array)} and dtype {short(array.dtype)}"
        )
    return array


def _predicate_region(cond_fun: Callable[..., Any], avals: Sequence[Any]) -> Staged:
    staged = stage(lambda *arrays: _predicate(cond_fun(*arrays)), avals)
    if staged.captured:
        kind = DetachedPredicateError if ignores_arguments(staged) else TracerError
        raise kind(closure_message(cond_fun, staged, "the predicate of while_loop"))
    return staged


def _while_in_python(cond_fun: Callable[..., Any], body_fun: Callable[..., Any], carry: jax.Array, inputs: tuple):
    while True:
        holds = asarray(_call(cond_fun, carry, *inputs))
        if holds.shape != ():
            raise TypeError(f"while_loop cond_fun must return a scalar bool, got shape {shape_text(holds)}")
        if is_tracer(holds):
            raise TracerError(
                "TraceTensor cannot drive Python control flow: no traced value is among the carry and operands of this "
                "while_loop, so it runs in Python, but its predicate reads one; pass it using operands="
            )
        # Quabla: a predicate that is no bool is true whatever its value; here its value counts, so loops end.
        if not bool(holds):
            return carry
        carry = _next_carry(_call(body_fun, carry, *inputs), carry)
