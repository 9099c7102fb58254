"""quabla_jax.compat.torch_ops against torch's own operators on the same inputs, and torch's restrictions as errors."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from quabla_jax.compat import torch_ops

X = np.linspace(-1.0, 2.0, 6).reshape(2, 3)


def load_torch(minimum):
    torch = pytest.importorskip("torch", reason="the comparison needs torch itself")
    if not hasattr(torch, "__version__"):  # the folder of tests of that name, found where torch is not installed
        pytest.skip("the comparison needs torch itself")
    if tuple(int(p) for p in torch.__version__.split("+")[0].split(".")[:2]) < minimum:
        pytest.skip(f"needs torch {minimum}")
    return torch


def on_torch(torch, operator, make_args):
    """Run torch's operator on a copy of the arguments; float64 stays float64, pytrees stay."""
    tensors = jax.tree.map(lambda x: torch.tensor(x) if isinstance(x, np.ndarray) else x, make_args(torch))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own deprecations while it compiles
        out = operator(*tensors)
    return jax.tree.map(lambda t: t.detach().numpy() if isinstance(t, torch.Tensor) else t, out)


def on_jax(operator, make_args, **keywords):
    arrays = jax.tree.map(lambda x: jnp.asarray(x) if isinstance(x, np.ndarray) else x, make_args(jnp))
    return operator(*arrays, **keywords)


def assert_same(got, want):
    got_leaves, got_tree = jax.tree.flatten(got)
    want_leaves, want_tree = jax.tree.flatten(want)
    assert got_tree == want_tree
    for a, b in zip(got_leaves, want_leaves):
        assert np.asarray(a).dtype == np.asarray(b).dtype
        np.testing.assert_allclose(a, b, rtol=1e-14, atol=1e-14)


COND_CASES = {
    "true": lambda m: (np.array(True), lambda x: m.sin(x), lambda x: m.cos(x), (X,)),
    "false": lambda m: (np.array(False), lambda x: m.sin(x), lambda x: m.cos(x), (X,)),
    "one-element-vector": lambda m: (np.array([True]), lambda x: x + 1, lambda x: x - 1, (X,)),
    "python-bool": lambda m: (X.shape[0] > 4, lambda x: m.sin(x), lambda x: m.cos(x), (X,)),
    "nested": lambda m: (
        np.array(False),
        lambda d, t: {"s": d["a"] + t[0], "p": (t[1] * 2,)},
        lambda d, t: {"s": d["a"] - t[0], "p": (t[1] * 3,)},
        ({"a": X}, (X + 1, np.arange(3))),
    ),
    "inner-cond": lambda m: (
        np.array(True),
        lambda x: (torch_ops.cond if m is jnp else m.cond)(m.sum(x) > 0, lambda x: x * 2, lambda x: x * 3, (x,)),
        lambda x: x - 1,
        (X,),
    ),
    "closure": lambda m: (np.array(True), lambda x: x * 2 + 1, lambda x: x + X.shape[0], (X,)),
}


@pytest.mark.parametrize("case", COND_CASES)
def test_cond_is_torchs(case):
    torch = load_torch((2, 13))
    assert_same(on_jax(torch_ops.cond, COND_CASES[case]), on_torch(torch, torch.cond, COND_CASES[case]))


WHILE_CASES = {
    "tensor-counter": lambda m: (lambda i, x: m.sum(i) < 5, lambda i, x: (i + 1, m.sin(x)), (np.zeros(1), X)),
    "no-trips": lambda m: (lambda i, x: m.sum(i) > 5, lambda i, x: (i + 1, m.sin(x)), (np.zeros(1), X)),
    "nested": lambda m: (
        lambda s, d: m.sum(d["x"]) < 100,
        lambda s, d: (s + 1, {"x": d["x"] * 1.5}),
        (np.zeros((), np.int64), {"x": X + 2}),
    ),
    "collatz": lambda m: (
        lambda n, c: m.sum(n) > 1,
        lambda n, c: (m.where(n % 2 == 0, n // 2, 3 * n + 1), c + 1),
        (np.array(27), np.array(0)),
    ),
}


@pytest.mark.parametrize("case", WHILE_CASES)
def test_while_loop_is_torchs(case):
    torch = load_torch((2, 13))
    from torch._higher_order_ops.while_loop import while_loop

    assert_same(on_jax(torch_ops.while_loop, WHILE_CASES[case]), on_torch(torch, while_loop, WHILE_CASES[case]))


def test_while_loop_carries_an_int_like_torch():
    torch = load_torch((2, 13))
    from torch._higher_order_ops.while_loop import while_loop

    case = lambda m: (lambda i, x: 2 * i < x.shape[1], lambda i, x: (i + 1, x + i), (0, X))
    want_i, want_x = on_torch(torch, while_loop, case)
    got_i, got_x = on_jax(torch_ops.while_loop, case)
    assert int(got_i) == int(want_i) == 2 and got_i.dtype == jnp.int64
    assert_same(got_x, want_x)


def _clone(m, x):
    return x.clone() if m is not jnp else x


SCAN_CASES = {
    "cumulative-sum": (lambda m: (lambda c, x: (c + x, _clone(m, c + x)), np.zeros(3), X), {}),
    "dim-1": (lambda m: (lambda c, x: (c * 0.5 + x, c - x), np.zeros(2), X), {"dim": 1}),
    "dim-minus-1": (lambda m: (lambda c, x: (c * 0.5 + x, c - x), np.zeros(2), X), {"dim": -1}),
    "reverse": (lambda m: (lambda c, x: (c * 0.5 + x, c - x), np.zeros(3), X), {"reverse": True}),
    "dim-1-reverse": (
        lambda m: (lambda c, x: (c * 0.5 + x, c - x), np.zeros(2), X),
        {"dim": 1, "reverse": True},
    ),
    "small-y-stays-in-front": (lambda m: (lambda c, x: (c + x, m.sum(c * x)), np.zeros(2), X), {"dim": 1}),
    "nested": (
        lambda m: (
            lambda c, x: ({"a": c["a"] + x[0], "n": c["n"] + 1}, (c["a"] * x[1], {"k": c["n"] * 2})),
            {"a": np.zeros(3), "n": np.array(0)},
            (X, X * 2),
        ),
        {},
    ),
    "one-step": (lambda m: (lambda c, x: (c + x, c * x), np.ones(3), X[:1]), {}),
    "no-xs": (lambda m: (lambda c, x: (c, c), np.ones(3), ()), {}),
}


@pytest.mark.parametrize("case", SCAN_CASES)
def test_scan_is_torchs(case):
    torch = load_torch((2, 13))
    from torch._higher_order_ops.scan import scan

    make, keywords = SCAN_CASES[case]
    want = on_torch(torch, lambda *args: scan(*args, **keywords), make)
    assert_same(on_jax(torch_ops.scan, make, **keywords), want)


SWITCH_BRANCHES = lambda m: [lambda x: m.sin(x), lambda x: m.cos(x), lambda x: x * x]
SWITCH_CASES = {
    **{f"index{i}": (lambda m, i=i: (np.array(i), SWITCH_BRANCHES(m), (X,))) for i in (-3, 0, 1, 2, 7)},
    "one-element-vector": lambda m: (np.array([1], np.int32), SWITCH_BRANCHES(m), (X,)),
    "python-int": lambda m: (9, SWITCH_BRANCHES(m), (X,)),
    "one-branch": lambda m: (np.array(5), SWITCH_BRANCHES(m)[:1], (X,)),
    "nested": lambda m: (
        np.array(1),
        [lambda d: {"p": (d["a"] + k, d["a"] * k)} for k in (1, 2, 3)],
        ({"a": X},),
    ),
    "none-leaf": lambda m: (np.array(1), [lambda x: (x + 1, None), lambda x: (x + 2, None)], (X,)),
    "int-leaf-alike": lambda m: (np.array(1), [lambda x: (x + 1, 4), lambda x: (x + 2, 4)], (X,)),
}


@pytest.mark.torch214
@pytest.mark.parametrize("case", SWITCH_CASES)
def test_switch_is_torchs(case):
    torch = load_torch((2, 14))
    from torch._higher_order_ops.switch import switch

    assert_same(on_jax(torch_ops.switch, SWITCH_CASES[case]), on_torch(torch, switch, SWITCH_CASES[case]))


@pytest.mark.parametrize("index", [-3, 0, 1, 2, 7])
def test_switch_clamps(index):
    branches = [lambda x: x + 1, lambda x: x * 2, lambda x: -x]
    want = branches[min(max(index, 0), 2)](X)
    for form in (index, jnp.asarray(index), jnp.asarray([index], jnp.int8), np.int64(index)):
        np.testing.assert_array_equal(torch_ops.switch(form, branches, (jnp.asarray(X),)), want)
    assert jax.jit(torch_ops.switch, static_argnums=1)(index, tuple(branches), (X,)).shape == X.shape


@pytest.mark.parametrize("index, want", [(2**32, 3.0), (2**32 + 1, 3.0), (-(2**33), 1.0)])
def test_switch_clamps_before_it_narrows_the_index(index, want):
    branches = [lambda k=k: jnp.float64(k) for k in (1, 2, 3)]
    assert torch_ops.switch(jnp.asarray(index, jnp.int64), branches) == want


def test_switch_of_more_branches_than_the_index_dtype_counts():
    branches = [lambda k=k: jnp.asarray(k) for k in range(130)]
    assert torch_ops.switch(jnp.asarray(127, jnp.int8), branches) == 127
    assert torch_ops.switch(jnp.asarray(129, jnp.uint8), branches) == 129


def test_switch_merges_ints_that_differ_and_keeps_those_that_agree():
    branches = [lambda x: (x, 3, None, 8), lambda x: (x * 2, 3, None, 9)]
    x, alike, nothing, differing = torch_ops.switch(jnp.asarray(1), branches, (jnp.asarray(2.0),))
    assert (x, alike, nothing, differing) == (4.0, 3, None, 9)
    assert isinstance(alike, int) and isinstance(differing, jax.Array)


@pytest.mark.parametrize("index", [0, 1, 2, -4, 9])
def test_switch_differentiates(index):
    branches = [jnp.sin, jnp.exp, lambda x: x**3]
    f = lambda x: torch_ops.switch(jnp.asarray(index), branches, (x,))
    plain = branches[min(max(index, 0), 2)]
    for d in (jax.grad, jax.jacfwd, jax.hessian):
        np.testing.assert_allclose(d(f)(0.7), d(plain)(0.7), rtol=1e-12)


def test_mapped_predicate_keeps_the_other_branchs_nan_out():
    f = lambda p, x: torch_ops.cond(p, jnp.log, jnp.zeros_like, (x,))
    p, x = jnp.asarray([True, False]), jnp.asarray([2.0, -1.0])
    np.testing.assert_array_equal(jax.vmap(jax.grad(f, 1))(p, x), [0.5, 0.0])
    np.testing.assert_array_equal(jax.grad(lambda x: jax.vmap(f)(p, x).sum())(x), [0.5, 0.0])


def test_scan_differentiates_like_lax():
    xs = jnp.asarray(X)
    step = lambda c, x: (jnp.sin(c) + x, c * x)
    ours = lambda xs: sum(jnp.sum(r) for r in torch_ops.scan(step, jnp.ones(2), xs, dim=1, reverse=True))
    lax = lambda xs: sum(jnp.sum(r) for r in jax.lax.scan(step, jnp.ones(2), xs.T, reverse=True))
    np.testing.assert_allclose(jax.grad(ours)(xs), jax.grad(lax)(xs), rtol=1e-13)
    np.testing.assert_allclose(jax.hessian(ours)(xs), jax.hessian(lax)(xs), rtol=1e-12, atol=1e-14)


def test_while_loop_is_reverse_differentiable_when_asked():
    f = lambda x, **k: torch_ops.while_loop(lambda i, x: i < 4, lambda i, x: (i + 1, jnp.sin(x)), (0, x), **k)[1]
    want = jax.jacfwd(f)(0.3)
    np.testing.assert_allclose(jax.grad(lambda x: f(x, checkpoint="auto"))(0.3), want, rtol=1e-14)
    with pytest.raises(ValueError, match="[Rr]everse-mode"):
        jax.grad(f)(0.3)


A = jnp.ones(3)
REFUSED = {
    "pred-shape": (lambda: torch_ops.cond(jnp.ones(2, bool), jnp.sin, jnp.cos, (A,)), "one element"),
    "pred-dtype": (
        lambda: torch_ops.cond(jnp.asarray(1.0), jnp.sin, jnp.cos, (A,)),
        "dtype bool, got float64",
    ),
    "pred-kind": (lambda: torch_ops.cond("yes", jnp.sin, jnp.cos, (A,)), "pred must be a bool"),
    "branch": (lambda: torch_ops.cond(jnp.asarray(True), jnp.sin, None, (A,)), "false_fn must be callable"),
    "operands-kind": (lambda: torch_ops.cond(jnp.asarray(True), jnp.sin, jnp.cos, A), r"write \(x,\)"),
    "operand-leaf": (
        lambda: torch_ops.cond(jnp.asarray(True), jnp.sin, jnp.cos, ((A, [2.0]),)),
        r"at \[0\]\[1\]\[0\]",
    ),
    "shapes": (
        lambda: torch_ops.cond(jnp.asarray(True), jnp.sin, jnp.sum, (A,)),
        r"leaf 0.*float64\[3\].*float64\[\]",
    ),
    "dtypes": (
        lambda: torch_ops.cond(jnp.asarray(True), jnp.sin, lambda x: x.astype(jnp.float32), (A,)),
        r"true_fn is float64\[3\] and of the output of false_fn is float32\[3\]",
    ),
    "structure": (
        lambda: torch_ops.cond(jnp.asarray(True), lambda x: (x, x), lambda x: x, (A,)),
        "structure",
    ),
    "float-output": (
        lambda: torch_ops.cond(jnp.asarray(True), lambda x: 1.5, lambda x: 2.5, (A,)),
        "got 1.5 of type",
    ),
    "index-float": (lambda: torch_ops.switch(jnp.asarray(1.0), [jnp.sin, jnp.cos], (A,)), "integer dtype"),
    "index-size": (lambda: torch_ops.switch(jnp.arange(2), [jnp.sin, jnp.cos], (A,)), "one element"),
    "index-kind": (lambda: torch_ops.switch(1.5, [jnp.sin, jnp.cos], (A,)), "index must be an int"),
    "no-branches": (lambda: torch_ops.switch(0, [], (A,)), "at least one"),
    "branches-kind": (lambda: torch_ops.switch(0, {0: jnp.sin}, (A,)), "tuple or list"),
    "branches-callable": (lambda: torch_ops.switch(0, [jnp.sin, 3], (A,)), "branch 1 must be callable"),
    "none-position": (
        lambda: torch_ops.switch(jnp.asarray(0), [lambda x: (x, None), lambda x: (None, x)], (A,)),
        "same places",
    ),
    "while-kind": (lambda: torch_ops.while_loop(lambda x: True, lambda x: (x,), A), "tuple or list"),
    "while-leaf": (
        lambda: torch_ops.while_loop(lambda x: True, lambda x: (x,), (1.5,)),
        r"got 1.5 of type float at \[0\]",
    ),
    "while-cond-shape": (
        lambda: torch_ops.while_loop(lambda x: x > 0, lambda x: (x,), (A,)),
        r"got bool\[3\]",
    ),
    "while-cond-dtype": (lambda: torch_ops.while_loop(jnp.sum, lambda x: (x,), (A,)), r"got float64\[\]"),
    "while-body": (
        lambda: torch_ops.while_loop(lambda x: x.sum() > 9, lambda x: x, (A,)),
        r"write \(x,\) for one",
    ),
    "while-structure": (
        lambda: torch_ops.while_loop(lambda x: x.sum() > 9, lambda x: (x, x), (A,)),
        "structure",
    ),
    "while-dtype": (
        lambda: torch_ops.while_loop(lambda x: x.sum() > 9, lambda x: (x.astype(jnp.float32),), (A,)),
        r"at \[0\].*float64\[3\].*float32\[3\]",
    ),
    "while-int-drift": (
        lambda: torch_ops.while_loop(lambda i: i < 3, lambda i: (i + 0.5,), (0,)),
        r"int64\[\].*float64\[\]",
    ),
    "while-callable": (lambda: torch_ops.while_loop(3, lambda x: (x,), (A,)), "cond_fn must be callable"),
    "scan-callable": (lambda: torch_ops.scan(3, A, A), "combine_fn must be callable"),
    "scan-dim": (lambda: torch_ops.scan(lambda c, x: (c, x), A, A, dim="0"), "dim must be an int"),
    "scan-reverse": (lambda: torch_ops.scan(lambda c, x: (c, x), A, A, reverse=1), "reverse must be a bool"),
    "scan-init": (lambda: torch_ops.scan(lambda c, x: (c, x), (), A), "init must hold"),
    "scan-init-leaf": (
        lambda: torch_ops.scan(lambda c, x: (c, x), {"a": 0.0}, A),
        r"leaf of init.*at \['a'\]",
    ),
    "scan-xs-leaf": (lambda: torch_ops.scan(lambda c, x: (c, x), A, [A, 3]), r"leaf of xs.*at \[1\]"),
    "scan-small": (lambda: torch_ops.scan(lambda c, x: (c, x), A, [jnp.ones((2, 2)), A], dim=1), "an axis 1"),
    "scan-empty": (lambda: torch_ops.scan(lambda c, x: (c, x), A, jnp.ones((0, 3))), "positive length"),
    "scan-lengths": (
        lambda: torch_ops.scan(lambda c, x: (c, c), A, [jnp.ones(2), jnp.ones(3)]),
        "differ in length",
    ),
    "scan-pair": (lambda: torch_ops.scan(lambda c, x: c, A, A), "must return a pair"),
    "scan-carry": (
        lambda: torch_ops.scan(lambda c, x: (c.astype(jnp.float32), x), A, A),
        r"init is float64\[3\] and the next carry is float32\[3\]",
    ),
    "scan-carry-structure": (lambda: torch_ops.scan(lambda c, x: ((c,), x), A, A), "structure"),
    "scan-y-leaf": (lambda: torch_ops.scan(lambda c, x: (c, 1.0), A, A), "must return arrays, got 1.0"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_restrictions_are_errors(case):
    call, message = REFUSED[case]
    with pytest.raises(RuntimeError, match=message):
        call()


def test_scan_refuses_a_dimension_out_of_range():
    with pytest.raises(IndexError, match=r"dim must lie in \[-2, 1\] for xs of rank 2, got 2"):
        torch_ops.scan(lambda c, x: (c, x), A, jnp.ones((2, 2)), dim=2)


def test_python_predicates_look_at_one_branch_only():
    def never(*args):
        raise AssertionError("the branch not taken was run")

    assert torch_ops.cond(True, lambda: 3, never) == 3
    assert torch_ops.switch(-1, [lambda: 4, never]) == 4


def test_nested_branches_are_traced_once_each():
    traced = []

    def nested(depth, x):
        traced.append(depth)
        if depth == 0:
            return x
        inner = lambda x: nested(depth - 1, x)
        return torch_ops.cond(x.sum() > 0, inner, lambda x: x, (x,))

    np.testing.assert_array_equal(jax.jit(lambda x: nested(8, x))(A), A)
    assert traced == list(range(8, -1, -1))


def test_branches_are_checked_where_jit_is_disabled():
    with jax.disable_jit():
        assert torch_ops.cond(jnp.asarray(False), lambda x: (x, 1), lambda x: (x * 2, 1), (A,))[1] == 1
        assert torch_ops.switch(jnp.asarray(1), [lambda x: (x, None), lambda x: (-x, None)], (A,))[1] is None
