"""Wrong backends, one fault each. The suite must fail every one of them.

Namespace mutants are jax.lax with one thing wrong; core-op mutants are the NumPy oracle with one row of its table wrong;
call mutants are wrong in how the compiled program is called.
"""

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from conformance.backends.namespace import jax_space

# ---- jax.lax with one fault


class Mutant:
    """jax.lax but for one overridden function."""

    traced_with = None

    def __init__(self, name, cases, **overrides):
        self.name, self.cases, self._overrides = name, cases, overrides

    def available(self):
        return None

    def space(self, dialect):
        return jax_space(_Patched(self._overrides)) if dialect == "jax" else None


class _Patched:
    def __init__(self, overrides):
        self.__dict__.update(overrides)

    def __getattr__(self, name):
        return getattr(lax, name)


def _index_off_by_one(lower, upper, body, init, **kw):
    return lax.fori_loop(lower, upper, lambda i, x: body(i + 1, x), init, **kw)


def _one_trip_more(lower, upper, body, init, **kw):
    return lax.fori_loop(lower, upper + 1, body, init, **kw)


def _one_trip_fewer(lower, upper, body, init, **kw):
    return lax.fori_loop(lower, upper - 1, body, init, **kw)


def _starts_at_zero(lower, upper, body, init, **kw):
    return lax.fori_loop(0, upper - lower, body, init, **kw)


def _never_empty(lower, upper, body, init, **kw):
    return lax.fori_loop(
        lower,
        jnp.maximum(upper, lower + 1) if not isinstance(upper, int) else max(upper, lower + 1),
        body,
        init,
        **kw,
    )


def _through_float16(lower, upper, body, init, **kw):
    def rounded(i, x):
        narrow = lambda v: v.astype(jnp.float16).astype(v.dtype) if v.dtype.kind == "f" else v
        return jax.tree.map(narrow, body(i, x))

    return lax.fori_loop(lower, upper, rounded, init, **kw)


def _integers_through_float32(lower, upper, body, init, **kw):
    def rounded(i, x):
        narrow = lambda v: v.astype(jnp.float32).astype(v.dtype) if v.dtype.kind in "iu" else v
        return jax.tree.map(narrow, body(i, x))

    return lax.fori_loop(lower, upper, rounded, init, **kw)


def _forgets_initial_gradient(lower, upper, body, init, **kw):
    return lax.fori_loop(lower, upper, body, jax.tree.map(lax.stop_gradient, init), **kw)


def _in_place(lower, upper, body, init, **kw):
    """Carries written one after the other instead of all at once."""

    def step(i, x):
        leaves, tree = jax.tree.flatten(x)
        for k in range(len(leaves)):
            leaves[k] = jax.tree.leaves(body(i, jax.tree.unflatten(tree, leaves)))[k]
        return jax.tree.unflatten(tree, leaves)

    return lax.fori_loop(lower, upper, step, init, **kw)


def _scan(change):
    def scan(f, init, xs=None, length=None, reverse=False, **kw):
        return change(f, init, xs, length, reverse, kw)

    return scan


def _dropped_capture(f, init, xs, length, reverse, kw):
    closed, captured = (
        jax.closure_convert(f, init, jax.tree.map(lambda x: x[0], xs))
        if xs is not None and jax.tree.leaves(xs)[0].shape[0]
        else (None, ())
    )
    if closed is None:
        return lax.scan(f, init, xs, length, reverse=reverse, **kw)
    held = [lax.stop_gradient(c) for c in captured]
    return lax.scan(lambda c, x: closed(c, x, *held), init, xs, length, reverse=reverse, **kw)


def _wrong_direction(f, init, xs, length, reverse, kw):
    return lax.scan(f, init, xs, length, reverse=not reverse, **kw)


def _ys_not_reversed(f, init, xs, length, reverse, kw):
    carry, ys = lax.scan(f, init, xs, length, reverse=reverse, **kw)
    return carry, jax.tree.map(lambda y: y[::-1], ys) if reverse else ys


def _last_y_lost(f, init, xs, length, reverse, kw):
    carry, ys = lax.scan(f, init, xs, length, reverse=reverse, **kw)
    return carry, jax.tree.map(lambda y: jnp.concatenate([y[:-1], jnp.zeros_like(y[-1:])]), ys)


def _ys_shifted(f, init, xs, length, reverse, kw):
    carry, ys = lax.scan(f, init, xs, length, reverse=reverse, **kw)
    return carry, jax.tree.map(lambda y: jnp.roll(y, 1, 0), ys)


def _no_gradient_to_xs(f, init, xs, length, reverse, kw):
    return lax.scan(f, init, jax.tree.map(lax.stop_gradient, xs), length, reverse=reverse, **kw)


def _same_key_each_trip(f, init, xs, length, reverse, kw):
    """Random bits used again: a key in the carry never moves on."""

    def step(c, x):
        new, y = f(c, x)
        stays = lambda old, n: old if jax.dtypes.issubdtype(getattr(n, "dtype", float), jax.dtypes.prng_key) else n
        return jax.tree.map(stays, c, new), y

    return lax.scan(step, init, xs, length, reverse=reverse, **kw)


def _both_branches(pred, true_fun, false_fun, *operands, **kw):
    return jax.tree.map(lambda a, b: jnp.where(pred, a, b), true_fun(*operands), false_fun(*operands))


def _inverted(pred, true_fun, false_fun, *operands, **kw):
    return lax.cond(jnp.logical_not(pred), true_fun, false_fun, *operands)


def _swapped_outputs(pred, true_fun, false_fun, *operands, **kw):
    """The If's outputs of equal type in the wrong order."""
    leaves, tree = jax.tree.flatten(lax.cond(pred, true_fun, false_fun, *operands))
    kinds = [(v.shape, v.dtype) for v in leaves]
    for a in range(len(leaves)):
        for b in range(a):
            if kinds[a] == kinds[b]:
                leaves[a], leaves[b] = leaves[b], leaves[a]
                return jax.tree.unflatten(tree, leaves)
    if len(leaves) == 3:  # of different shapes: the values at least
        leaves[2] = leaves[2] + 1
    return jax.tree.unflatten(tree, leaves)


def _always_true(pred, true_fun, false_fun, *operands, **kw):
    return true_fun(*operands)


def _unclamped(index, branches, *operands, **kw):
    return lax.switch(jnp.mod(index, len(branches)), branches, *operands)


def _clamped_above_only(index, branches, *operands, **kw):
    return lax.switch(jnp.where(index < 0, len(branches) - 1, index), branches, *operands)


def _off_by_one_switch(index, branches, *operands, **kw):
    return lax.switch(index + 1, branches, *operands)


def _do_while(cond, body, init, **kw):
    return lax.while_loop(cond, body, body(init))


def _stops_early(cond, body, init, **kw):
    return lax.while_loop(lambda s: cond(s) & cond(body(s)), body, init)


def _lanes_go_on(cond, body, init, **kw):
    """Under vmap finished examples run on with the rest: a fixed number of trips for all."""
    return lax.fori_loop(0, 12, lambda i, s: body(s), init)


NAMESPACE = [
    Mutant("fori: index off by one", ["fori/trips-*"], fori_loop=_index_off_by_one),
    Mutant("fori: one trip more", ["fori/trips-*"], fori_loop=_one_trip_more),
    Mutant("fori: one trip fewer", ["fori/trips-*"], fori_loop=_one_trip_fewer),
    Mutant("fori: starts at zero", ["fori/bounds-*"], fori_loop=_starts_at_zero),
    Mutant("fori: never empty", ["fori/trips-0", "fori/bounds-7-to-2"], fori_loop=_never_empty),
    Mutant("fori: carry through float16", ["fori/trips-5"], fori_loop=_through_float16),
    Mutant("fori: integers through float32", ["fori/*wraps"], fori_loop=_integers_through_float32),
    Mutant("fori: no gradient to the initial carry", ["fori/trips-5"], fori_loop=_forgets_initial_gradient),
    Mutant("fori: carries updated in place", ["fori/swapped*"], fori_loop=_in_place),
    Mutant("scan: captured gradient dropped", ["scan/captured-gradient"], scan=_scan(_dropped_capture)),
    Mutant("scan: wrong direction", ["scan/length-5*"], scan=_scan(_wrong_direction)),
    Mutant("scan: reversed ys in the wrong order", ["scan/reverse-order*"], scan=_scan(_ys_not_reversed)),
    Mutant("scan: last y lost", ["scan/length-5"], scan=_scan(_last_y_lost)),
    Mutant("scan: ys shifted", ["scan/length-5"], scan=_scan(_ys_shifted)),
    Mutant("scan: no gradient to xs", ["scan/length-5"], scan=_scan(_no_gradient_to_xs)),
    Mutant("scan: random bits used again", ["random/bits"], scan=_scan(_same_key_each_trip)),
    Mutant("cond: runs both branches", ["guard/cond-one*"], cond=_both_branches),
    Mutant("cond: inverted", ["cond/mapped"], cond=_inverted),
    Mutant("cond: outputs swapped", ["cond/true-several*"], cond=_swapped_outputs),
    Mutant("cond: always the first branch", ["cond/mapped"], cond=_always_true),
    Mutant("switch: unclamped", ["switch/index-*"], switch=_unclamped),
    Mutant("switch: negative goes to the end", ["switch/index-*"], switch=_clamped_above_only),
    Mutant("switch: off by one", ["switch/index-*"], switch=_off_by_one_switch),
    Mutant("while: body before the predicate", ["while/no-trip"], while_loop=_do_while),
    Mutant("while: stops one trip early", ["while/collatz"], while_loop=_stops_early),
    Mutant("while: finished lanes go on", ["while/own-trip*"], while_loop=_lanes_go_on),
]

# ---- the oracle with one row of its table wrong


class RowMutant:
    """The NumPy oracle with core op `row` replaced by change(right)(inputs..., **params)."""

    def __init__(self, name, cases, row, change):
        self.name, self.cases, self._row, self._change = name, cases, row, change

    def available(self):
        return None

    @contextlib.contextmanager
    def _patched(self):
        from quabla_jax.lowering import numpy_builder, numpy_ops

        assert numpy_builder  # it completes the table
        right = numpy_ops.TABLE[self._row]
        numpy_ops.TABLE[self._row] = self._change(right)
        try:
            yield
        finally:
            numpy_ops.TABLE[self._row] = right

    def prepare(self, closed):
        from conformance.backends.targets import NumpyOracle

        run = NumpyOracle().prepare(closed)

        def wrong(*xs):
            with self._patched():
                return run(*xs)

        return wrong


def _result(f):
    """A change of the result alone."""
    return lambda right: lambda *a, **k: f(right(*a, **k))


ROWS = [
    RowMutant(
        "floor division for truncation",
        ["integer/div-int32"],
        "div",
        lambda right: lambda x, y: np.floor_divide(x, np.where(y == 0, 1, y)) if x.dtype.kind == "i" else right(x, y),
    ),
    RowMutant(
        "remainder with the divisor's sign",
        ["integer/rem-int32"],
        "rem",
        lambda right: lambda x, y: np.mod(x, np.where(y == 0, 1, y)).astype(x.dtype),
    ),
    RowMutant(
        "shift taken modulo the width",
        ["integer/shift-left-int32"],
        "shift_left",
        lambda right: lambda x, y: np.left_shift(x, y & 31),
    ),
    RowMutant(
        "cast that wraps where it should saturate",
        ["cast/float-to-int32"],
        "cast",
        lambda right: (
            lambda x, dtype: (
                right(right(np.nan_to_num(x, posinf=0, neginf=0), np.dtype("int64")), dtype)
                if x.dtype.kind == "f"
                else right(x, dtype)
            )
        ),
    ),
    RowMutant(
        "maximum that ignores NaN",
        ["special/max"],
        "max",
        lambda right: lambda x, y: np.fmax(x, y) if x.dtype.kind == "f" else right(x, y),
    ),
    RowMutant(
        "last of equal maxima",
        ["reduce/argmax-ties"],
        "argmax",
        lambda right: lambda x, axis, dtype: (x.shape[axis] - 1 - np.argmax(np.flip(x, axis), axis)).astype(dtype),
    ),
    RowMutant(
        "dynamic slice that wraps",
        ["index/dynamic-slice*"],
        "dynamic_slice",
        lambda right: lambda x, *s, sizes: right(x, *(np.asarray(v % n) for v, n in zip(s, x.shape)), sizes=sizes),
    ),
    RowMutant(
        "sine in single precision",
        ["elementwise/sin"],
        "sin",
        _result(lambda y: y.astype(np.float32).astype(y.dtype)),
    ),
    RowMutant("minus zero lost", ["special/neg"], "neg", _result(lambda y: y + np.zeros((), y.dtype))),
    RowMutant("exclusive or for or", ["random/bits"], "or", lambda right: lambda x, y: np.bitwise_and(x, y)),
    RowMutant(
        "sum in half precision",
        ["reduce/sum"],
        "reduce_sum",
        _result(lambda y: y.astype(np.float16).astype(y.dtype) if y.dtype.kind == "f" else y),
    ),
    RowMutant(
        "unstable order",
        ["sort/special*"],
        "argsort",
        lambda right: lambda x, axis, dtype: np.flip(right(np.flip(x, axis), axis, dtype), axis),
    ),
]

# ---- wrong in how it is called


class Stale:
    """Answers every call with the first call's result."""

    name, cases = "stale second call", ["fori/trips-5"]

    def available(self):
        return None

    def prepare(self, closed):
        from conformance.backends.targets import NumpyOracle

        run, first = NumpyOracle().prepare(closed), []

        def call(*xs):
            if not first:
                first.append(run(*xs))
            return first[0]

        return call


class Reordered(Stale):
    """Hands its outputs out in the reverse order."""

    name, cases = "outputs reversed", ["scan/length-5"]

    def prepare(self, closed):
        from conformance.backends.targets import NumpyOracle

        run = NumpyOracle().prepare(closed)
        return lambda *xs: run(*xs)[::-1]


class Widened(Stale):
    """Gives float64 for everything."""

    name, cases = "outputs widened", ["dtype/carried-int32"]

    def prepare(self, closed):
        from conformance.backends.targets import NumpyOracle

        run = NumpyOracle().prepare(closed)
        return lambda *xs: [np.asarray(y, np.float64) for y in run(*xs)]


MUTANTS = [*NAMESPACE, *ROWS, Stale(), Reordered(), Widened()]
BY_NAME = {m.name: m for m in MUTANTS}
