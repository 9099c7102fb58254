"""Odd arguments beside the real quabla: kinks, extremes, NaN, wrong kinds; the same values, or the same kind of error."""

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
