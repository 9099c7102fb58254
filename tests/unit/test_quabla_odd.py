"""Odd arguments beside the real quabla: kinks, extremes, NaN, wrong kinds; the same values, or the same kind of error."""

import collections
import dataclasses

import numpy as np
import pytest
import quabla_parity

import quabla_jax

X = np.array([-2.5, -1.0, -0.0, 0.0, 0.5, 1.0, 2.0, np.inf, -np.inf, np.nan])
S = np.array([[4.0, 1.0, 0.5], [1.0, 3.0, 0.0], [0.5, 0.0, 2.0]])
MATRIX = np.array([[1.0, -2.0, 0.0], [3.0, 0.0, 3.0]])
NAN, INF = float("nan"), float("inf")


def total(qb, fun):
    return lambda *xs: qb.sum(fun(*xs))


def cases():
    """name -> program of (qb, array maker)."""
    found = {}
    for huge in ([1e308, 1e308], [1e308, -3e307], [3e-308, 4e-308], [3e200, 4e200], [INF, 1.0], [0.0, 0.0]):
        found[f"norm {huge}"] = lambda qb, a, v=huge: qb.norm(a(v))
        found[f"norm slope {huge}"] = lambda qb, a, v=huge: qb.grad(qb.norm)(a(v))
        found[f"hypot {huge}"] = lambda qb, a, v=huge: qb.hypot(a(v[0]), a(v[1]))
        for p in (1, 3, 0.5, -2):
            found[f"norm {p} {huge}"] = lambda qb, a, v=huge, p=p: qb.linalg.norm(a(v), p)
    for exponent in (0, 1, 2, -1, 0.5, -0.5, 3.0, NAN, INF, -INF):
        found[f"power {exponent}"] = lambda qb, a, e=exponent: qb.power(a(X), e)
        found[f"power slope {exponent}"] = lambda qb, a, e=exponent: qb.grad(total(qb, lambda x: qb.power(x, e)))(a(X))
        found[f"power base {exponent}"] = lambda qb, a, e=exponent: qb.grad(total(qb, lambda x: qb.power(e, x)))(a(X))
    for axis in (0, -1, (0, 1), (1, 0), [0], (), None, 2, (0, 0), (0, -2), 1.0, "a", -3):
        for name in ("sum", "max", "norm", "logsumexp", "std", "prod"):
            found[f"{name} over {axis}"] = lambda qb, a, n=name, k=axis: getattr(qb, n)(a(MATRIX), k, True)
        found[f"softmax over {axis}"] = lambda qb, a, k=axis: qb.softmax(a(MATRIX), k)
    for reverse in (True, False, 1, 0, None):
        found[f"cumsum {reverse}"] = lambda qb, a, r=reverse: qb.cumsum(a(MATRIX), 1, r)
    for shape in (0, 2, -1, (2, 3), (0,), (2, -1), 2.5, "a", None):
        for name in ("zeros", "eye"):
            found[f"{name} {shape}"] = lambda qb, a, n=name, s=shape: getattr(qb, n)(s)
        found[f"broadcast {shape}"] = lambda qb, a, s=shape: qb.broadcast_to(a(1.0), s)
    for arguments in ((0, 1, 0), (0, 1, -1), (0, INF, 3), (1, 0, 3), ("a", 1, 2)):
        found[f"linspace {arguments}"] = lambda qb, a, k=arguments: qb.linspace(*k)
        found[f"arange {arguments}"] = lambda qb, a, k=arguments: qb.arange(*k)
    for trans in (0, 1, "N", "T", "C", "X", 3, None, True, False):
        found[f"triangular {trans}"] = lambda qb, a, t=trans: qb.linalg.solve_triangular(a(S), a([1.0, 2, 3]), t)
    for axes in (
        0,
        2,
        True,
        np.int64(1),
        "a",
        1.0,
        None,
        (0, 1, 2),
        ((0, 0), (0, 0)),
        (0, 0),
        [[0], [1]],
        np.array([[1], [1]]),
    ):
        found[f"tensordot {axes}"] = lambda qb, a, k=axes: qb.tensordot(a(MATRIX), a(MATRIX), k)
    for equation in ("ij,jk->ik", "...ij,...jk->...ik", "ij , jk -> ik", "ij->ji", "", None):
        for count in range(4):
            found[f"einsum {equation} {count}"] = lambda qb, a, e=equation, n=count: qb.einsum(e, [a(S)] * n)
        found[f"einsum {equation} unpacked"] = lambda qb, a, e=equation: qb.einsum(e, a(S))
    for at in (
        1,
        3,
        2,
        True,
        [1],
        (1, 2),
        range(1, 3),
        np.array([1, 2]),
        np.array(3),
        np.array([1.0]),
        [2, 1],
        "ab",
        None,
    ):
        found[f"split at {at}"] = lambda qb, a, at=at: qb.split(a(S), at, 1)
    for width in (1, (1, 2), ((1, 2), (0, 1)), -1, 1.5, "a", None, ((1, 2, 3),), np.array([1, 2]), range(1, 3)):
        for mode in ("constant", "edge", "reflect", "wrap", "odd"):
            found[f"pad {width} {mode}"] = lambda qb, a, w=width, m=mode: qb.pad(a(MATRIX), w, m)
    found |= {
        "an empty buffer": lambda qb, a: qb.array(np.zeros((0, 2))),
        "concat of an array": lambda qb, a: qb.concat(a(MATRIX), 0),
        "concat of a generator": lambda qb, a: qb.concat((a(MATRIX) for _ in range(2)), 0),
        "stack of an array": lambda qb, a: qb.stack(a(MATRIX)),
        "hypot of a mask": lambda qb, a: qb.hypot(qb.array([True]), a([2.0])),
        "lstsq of zeros": lambda qb, a: qb.linalg.lstsq(a(S * 0), a([1.0, 2.0, 3.0])),
        "ties of max": lambda qb, a: qb.grad(qb.max)(a([3.0, 3.0, 1.0, 3.0])),
        "grad of a bool": lambda qb, a: qb.grad(lambda x: x * x)(True),
        "grad of an int": lambda qb, a: qb.grad(lambda x: x * x)(3),
        "value and grad of a bool": lambda qb, a: qb.value_and_grad(lambda x: x * 2.0)(False),
        "jvp of a bool": lambda qb, a: qb.jvp(lambda x: x * x, (True,), (1.0,)),
    }
    found |= wrong_kinds()
    found |= rules_and_constants()
    return found


USES = {
    "eager": lambda qb, c, x: c(x),
    "jit": lambda qb, c, x: qb.jit(c)(x),
    "vmap": lambda qb, c, x: qb.vmap(c)(x),
    "grad": lambda qb, c, x: qb.grad(lambda y: qb.sum(c(y)))(x),
    "a loop": lambda qb, c, x: qb.jit(lambda y: qb.fori_loop(0, 2, lambda i, k: c(k), y))(x),
}


def rules_and_constants():
    """Custom rules that do not fit are refused wherever they are traced; what constants are to transforms."""
    found = {}
    pairs = {
        "fitting": lambda qb: (lambda x: (qb.sin(x), x), lambda r, g: (g,)),
        "no pair": lambda qb: (lambda x: qb.sin(x), lambda r, g: (g,)),
        "no tuple": lambda qb: (lambda x: (qb.sin(x), x), lambda r, g: g),
        "raising": lambda qb: (lambda x: (qb.sin(x), x), lambda r, g: 1 / 0),
        "float32": lambda qb: (lambda x: (qb.astype(x, qb.float32), x), lambda r, g: (g,)),
    }
    tangents = {
        "fitting": lambda qb: lambda p, t: (qb.sin(p[0]), t[0]),
        "no pair": lambda qb: lambda p, t: qb.sin(p[0]),
        "nothing": lambda qb: lambda p, t: (None, t[0]),
        "nested": lambda qb: lambda p, t: ((p[0],), t[0]),
        "a number": lambda qb: lambda p, t: (p[0], 1.0),
        "raising": lambda qb: lambda p, t: 1 / 0,
    }

    def ruled(qb, kind, rule):
        call = getattr(qb, kind)(qb.sin)
        call.defvjp(*rule(qb)) if kind == "custom_vjp" else call.defjvp(rule(qb))
        return call

    for kind, rules in (("custom_vjp", pairs), ("custom_jvp", tangents)):
        for what, rule in rules.items():
            for where, use in USES.items():
                found[f"{kind} {what} under {where}"] = lambda qb, a, k=kind, r=rule, u=use: u(
                    qb, ruled(qb, k, r), a([1.0, 2.0])
                )

    def in_itself(qb, a):
        call = qb.custom_vjp(qb.sin)
        call.defvjp(lambda x: (call(x), x), lambda r, g: (g * 2.0,))
        return qb.jit(call)(a([1.0, 2.0])), qb.grad(lambda x: qb.sum(call(x)))(a([1.0, 2.0]))

    found["a fwd that calls its function"] = in_itself
    for dtype in ("float32", "float64"):
        found[f"jacobian of a number in {dtype}"] = lambda qb, a, d=dtype: qb.jacobian(
            lambda x, y: (qb.sum(x), 3, True), (0, 1)
        )(qb.array([1.0, 2.0], dtype=getattr(qb, d)), a(1.0))
    for value in ("s", b"b", len, 1j, None, (1.0,), {}, 2):
        found[f"grad of the constant {value!r}"] = lambda qb, a, v=value: qb.grad(lambda x: v)(a([1.0]))
    found["a loop of constants with an operand"] = lambda qb, a: qb.grad(
        lambda x: qb.fori_loop(0, 3, lambda i, c, x: c * 0.5, 2.5, operands=(x,))
    )(a([1.0, 2.0]))
    found["a scan of constants with an operand"] = lambda qb, a: qb.grad(
        lambda x: qb.scan(lambda c, i, x: (c * 0.5, c), 2.5, length=3, operands=(x,))[0]
    )(a([1.0, 2.0]))
    found["unrolled loops of constants with an operand"] = lambda qb, a: qb.grad(
        lambda x: (
            qb.fori_loop(0, 2, lambda i, c, x: c * 0.5, 2.5, operands=(x,), unroll=True)
            + qb.sum(qb.scan(lambda c, i, x: (c, 1.0), 2.0, length=2, operands=(x,), unroll=True)[1])
        )
    )(a([1.0, 2.0]))
    found["out_axes before in_axes"] = lambda qb, a: qb.vmap(lambda x, y: x, out_axes="a")(a([1.0]), a([1.0, 2.0]))
    return found


def containers(qb):
    """Named tuples, dataclasses with and without static fields, classes with and without a constant, beside the builtins."""
    pair = collections.namedtuple("pair", "u v")
    fields = ["w", ("n", int, 3)]
    static, whole = (dataclasses.make_dataclass(name, fields) for name in ("static", "whole"))
    qb.tree.register_dataclass(static, meta_fields=("n",))
    qb.tree.register_dataclass(whole)
    box, marked = type("box", (list,), {}), type("marked", (list,), {})
    qb.tree.register(box, lambda v: (tuple(v), None), lambda aux, children: box(children))
    qb.tree.register(marked, lambda v: (tuple(v), "m"), lambda aux, children: marked(children))
    return [
        pair(1, {"x": 2}), static(1), whole(1, (2,)), box([1, [2]]), box(), marked([1]), marked(),
        None, 1, (), [], {}, (1,), {"b": 1, "a": None}, {1: 2},
    ]  # fmt: skip


def wrong_kinds():
    """Arguments of a kind that only looks right, and floats of the other width in places that are easily forgotten."""
    f32 = lambda qb, v: qb.array(v, dtype=qb.float32)
    mask = lambda qb: qb.array([[True, False], [True, True]])
    branch = lambda x: x if x > 0.0 else -x
    found = {
        "maximum of numbers": lambda qb, a: [qb.maximum(True, True), qb.minimum(1, False), qb.exp2(True)],
        "tril of a mask": lambda qb, a: qb.tril(mask(qb)),
        "triu of a mask": lambda qb, a: qb.triu(mask(qb)),
        "nan_to_num of float32": lambda qb, a: qb.nan_to_num(f32(qb, [NAN, 1.0]), nan=a(1.0)),
        "nan_to_num beyond int64": lambda qb, a: qb.nan_to_num(a([NAN, 1.0]), nan=2**70),
        "interp float32 right": lambda qb, a: qb.interp(a([9.0]), a([0.0, 1.0]), a([1.0, 2.0]), right=f32(qb, 1.0)),
        "interp list right": lambda qb, a: qb.interp(a([9.0]), a([0.0, 1.0]), a([1.0, 2.0]), right=[1.0]),
        "pinv float32 rtol": lambda qb, a: qb.linalg.pinv(a(S), f32(qb, 0.1)),
        "pinv rtol that does not fit": lambda qb, a: qb.linalg.pinv(a(S), a([0.1, 0.2])),
        "pad with a dtype": lambda qb, a: qb.pad(a([1.0]), 1, constant_values=qb.float64),
        "pad beyond int64": lambda qb, a: qb.pad(a([1.0]), 1, constant_values=2**70),
        "cumsum with NumPy's True": lambda qb, a: qb.cumsum(a([1.0, 2.0]), 0, np.True_),
        "uniform over all floats": lambda qb, a: qb.random.uniform(qb.random.key(0), (2,), minval=-1e308, maxval=1e308),
        "norm keepdims 1": lambda qb, a: qb.linalg.norm(a(MATRIX), keepdims=1),
        "logical_and of a float and a number": lambda qb, a: qb.logical_and(a(1.0), True),
        "a Compiler's input given twice": lambda qb, a: qb.Compiler().trace(lambda x, y: x, [("x", [2]), ("x", [2])]),
        "a Compiler's empty input": lambda qb, a: qb.Compiler().trace(lambda x: x, [("x", [0])]) and 1,
        "static_argnums twice": lambda qb, a: qb.jit(lambda x, k: x * k, static_argnums=(1, -1))(a(1.0), 2),
        "lower of a tracer": lambda qb, a: qb.jit(lambda x: qb.jit(lambda y: y).lower(x) and x)(a(1.0)),
        "a ShapeDtype changed": lambda qb, a: setattr(qb.ShapeDtype((2,)), "shape", (3,)),
        "a span from NaN": lambda qb, a: qb.ode.odeint(
            lambda y, t: -y, a([1.0]), (NAN, 1.0), method="dopri5", max_steps=3
        ),
        "dopri5 over a closed-over tracer": lambda qb, a: qb.jit(
            lambda k: qb.ode.odeint(lambda y, t: -k * y, a([1.0]), (0.0, 1.0), method="dopri5")
        )(a(0.5)),
        "a number too many": lambda qb, a: qb.sin(a(1.0), 2),
        "if of a traced vector": lambda qb, a: qb.jit(branch)(a([1.0, 2.0])),
        "if of a vector in a loop": lambda qb, a: qb.jit(lambda x: qb.fori_loop(0, 2, lambda i, c: branch(c), x))(
            a([1.0, 2.0])
        ),
    }
    for fill in ((2.0,), [1.0, 2.0], 1j, "a", None, 2**70):
        found[f"full_like {fill}"] = lambda qb, a, v=fill: qb.full_like(a([0.0, 0.0]), v)
    for place in ([1.0], [1.0, 2.0], 1.0):
        found[f"linspace from {place}"] = lambda qb, a, v=place: qb.linspace(a(v), 2, 3)
        found[f"arange to {place}"] = lambda qb, a, v=place: qb.arange(a(v))
    for start in (1j, 2**70, [1.0]):
        found[f"linspace from {start}"] = lambda qb, a, v=start: qb.linspace(v, 2**71, 2)
    for name in ("sum", "max", "norm", "std", "mean"):
        for keep in (1, None, "a", np.True_):
            found[f"{name} keepdims {keep!r}"] = lambda qb, a, n=name, k=keep: getattr(qb, n)(a(MATRIX), 0, k)
    for name, call in {
        "linspace": lambda qb, k: qb.linspace(k, 2.0, 3),
        "arange": lambda qb, k: qb.arange(k),
        "sum": lambda qb, k: qb.sum(qb.ones((2, 2)), k),
        "expand_dims": lambda qb, k: qb.expand_dims(qb.ones(2), k),
        "split": lambda qb, k: qb.split(qb.ones(2), 2, k),
        "transpose": lambda qb, k: qb.transpose(qb.ones((2, 2)), k),
        "squeeze": lambda qb, k: qb.squeeze(qb.ones((1, 2)), k),
    }.items():
        found[f"{name} of a tracer"] = lambda qb, a, f=call: qb.jit(lambda k: f(qb, k))(a([1.0, 0.0]))
    found["structures in words"] = lambda qb, a: [repr(qb.tree.structure(tree)) for tree in containers(qb)]
    slopes = {
        "a number": lambda qb: lambda y, t: 1.0,
        "an entry": lambda qb: lambda y, t: qb.sum(y),
        "a row": lambda qb: lambda y, t: qb.array([[1.0, 2.0, 3.0]]),
        "float32": lambda qb: lambda y, t: qb.astype(y, qb.float32),
        "a mask": lambda qb: lambda y, t: y > 0.0,
    }
    for what, slope in slopes.items():
        for method in ("rk4", "dopri5"):
            steps = {"steps": 2} if method == "rk4" else {}
            if (what, method) != ("a row", "dopri5"):  # Quabla reshapes it
                found[f"{method} with {what} for a slope"] = lambda qb, a, f=slope, m=method, k=steps: qb.ode.odeint(
                    f(qb), a([1.0, 0.5]), (0.0, 1.0), method=m, **k
                )
    return found


CASES = cases()


def outcome(qb, program):
    """("value", plain result) or ("error", exception)."""
    try:
        return "value", quabla_parity.plain(program(qb, lambda v: quabla_parity.to(qb, v, "float64")))
    except Exception as error:
        return "error", error


@pytest.mark.parametrize("name", CASES)
def test_it_agrees_with_quabla(name):
    want, expected = outcome(quabla_parity.reference(), CASES[name])
    got, found = outcome(quabla_jax, CASES[name])
    assert got == want, f"{found!r}, quabla {expected!r}"
    if want == "value":
        quabla_parity.assert_same(found, expected, 1e-9)
    else:
        classes = {cls.__name__ for cls in type(found).__mro__}
        assert type(expected).__name__ in classes, f"{found!r}, quabla {expected!r}"
