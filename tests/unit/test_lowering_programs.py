"""Whole programs through lowering: control flow, keys, structure, errors, speed."""

import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from quabla_jax import lowering
from quabla_jax.errors import UnsupportedOperationError
from quabla_jax.lowering import interpreter, jax_api, numpy_ops, rules, table
from quabla_jax.lowering.numpy_builder import NumpyBuilder
from quabla_jax.lowering.program import Branch, Loop, Op

X = np.linspace(0.1, 1.3, 6).reshape(2, 3)


def agree(fun, *args, rtol=1e-12):
    """Lower, run on the oracle, compare with jax.jit; returns the Program."""
    leaves = [
        jax.random.key_data(a) if jax_api.is_key_dtype(jnp.asarray(a).dtype) else a for a in jax.tree.leaves(args)
    ]
    program = lowering.lower(fun, *args)
    got = lowering.run_on_numpy(program, *leaves)
    expected = jax.tree.leaves(jax.jit(fun)(*args))
    for g, e in zip(got, expected, strict=True):
        e = np.asarray(jax.random.key_data(e) if jax_api.is_key_dtype(e.dtype) else e)
        if e.dtype == jax.dtypes.float0:
            e = np.zeros(e.shape, bool)
        assert (g.shape, g.dtype) == (e.shape, e.dtype)
        if e.dtype.kind in "biu":
            np.testing.assert_array_equal(g, e)
        else:
            np.testing.assert_allclose(g, e, rtol=rtol, atol=rtol)
    return program


def kinds(program):
    return [type(n).__name__ if not isinstance(n, Op) else n.name for n in program.nodes]


def newton(x):
    return lax.while_loop(lambda c: jnp.abs(c[0] ** 2 - x) > 1e-9, lambda c: ((c[0] + x / c[0]) / 2, c[1] + 1), (x, 0))


CONTROL = {
    "scan": lambda x: lax.scan(lambda c, t: (c * jnp.cos(t.sum()), c), 1.0, x),
    "scan reverse": lambda x: lax.scan(lambda c, t: (c + t, c * t), x[0], x, reverse=True),
    "scan no xs": lambda x: lax.scan(lambda c, _: (c * 1.1, None), x, None, length=4),
    "scan empty": lambda x: lax.scan(lambda c, t: (c + t, c), x[0], x[:0]),
    "scan int and bool": lambda x: lax.scan(lambda c, t: ((c[0] + 1, ~c[1]), (c[0], t > 0.5)), (0, True), x),
    "scan keys": lambda x: lax.scan(
        lambda k, t: (jax.random.split(k)[0], t + jax.random.uniform(k)), jax.random.key(1), x[0]
    )[1],
    "scan gradient": jax.grad(lambda x: lax.scan(lambda c, t: (jnp.sin(c * t).sum(), c), 1.0, x)[0]),
    "scan hessian": jax.hessian(lambda x: lax.scan(lambda c, t: (jnp.sin(c * t).sum(), c), 1.0, x)[0]),
    "scan vmap": jax.vmap(lambda r: lax.scan(lambda c, t: (c * t, c), 1.0, r), 1),
    "fori": lambda x: lax.fori_loop(2, 7, lambda i, c: c * 1.1 + i, x),
    "fori none": lambda x: lax.fori_loop(5, 2, lambda i, c: c * 1.1 + i, x),
    "while": lambda x: newton(x[0, 1]),
    "while vmap": lambda x: jax.vmap(newton)(x[0]),
    "while jvp": lambda x: jax.jvp(newton, (x[0, 1],), (1.0,)),
    "while closes over": lambda x: lax.while_loop(lambda c: c < x.sum() * 9, lambda c: c * (1 + x[0, 0]), 1.0),
    "cond": lambda x: lax.cond(x[0, 1] > 0, jnp.sin, jnp.cos, x),
    "cond vmap": lambda x: jax.vmap(lambda v: lax.cond(v > 0.5, jnp.sin, lambda u: u * 2, v))(x[0]),
    "cond grad": jax.grad(lambda x: lax.cond(x[0, 1] > 3, lambda u: u.sum(), lambda u: (u**2).sum(), x)),
    "switch": lambda x: [lax.switch(i, [jnp.sin, jnp.cos, jnp.tan], x) for i in (-4, 1, 9)],
    "switch traced": lambda x: lax.switch((x[0, 1] * 5).astype(int), [jnp.sin, jnp.cos, jnp.tan], x),
    "nested": lambda x: lax.fori_loop(
        0, 3, lambda i, c: lax.cond(c.sum() > 2, lambda u: lax.scan(lambda a, t: (a + t, a), u[0], u)[1], jnp.sqrt, c), x
    ),
    "remat": jax.grad(lambda x: jax.checkpoint(lambda u: jnp.sin(jnp.exp(u)).sum())(x)),
    "custom_jvp": lambda x: jax.nn.relu(x - 0.5) + jax.nn.gelu(x),
    "linear solve": lambda x: jax.scipy.sparse.linalg.cg(lambda v: 3 * v, x[0])[0],
}  # fmt: skip


@pytest.mark.parametrize("name", CONTROL)
def test_control_flow(name):
    agree(CONTROL[name], X)


KEYS = {
    "bits": lambda k: [jax.random.bits(k, (3,), d) for d in (np.uint8, np.uint16, np.uint32, np.uint64)],
    "split": lambda k: jax.random.split(k, (2, 3)),
    "fold_in": lambda k: jax.vmap(lambda i: jax.random.fold_in(k, i))(jnp.arange(3)),
    "choice": lambda k: jax.random.permutation(k, 9),
    "randint": lambda k: jax.random.randint(k, (5,), -3, 1000),
    "categorical": lambda k: jax.random.categorical(k, jnp.log(jnp.arange(1.0, 5)), shape=(6,)),
    "gather keys": lambda k: jax.random.split(k, 4)[jnp.array([2, 0, 9])],
    "select keys": lambda k: jnp.where(jnp.array([True, False]), jax.random.split(k), k),
    "reshape keys": lambda k: jax.random.split(k, 6).reshape(2, 3).T[1:, ::-1],
    "compare keys": lambda k: jax.random.split(k, 3) == jax.random.split(k, 3)[1],
    "seed": lambda k: jax.random.key_data(jax.random.key(jax.random.bits(k))),
    "clone": lambda k: jax.random.clone(k),
    "cond on keys": lambda k: lax.cond(jax.random.bits(k) > 7, lambda q: jax.random.split(q)[0], lambda q: q, k),
}


@pytest.mark.parametrize("name", KEYS)
def test_keys_bit_for_bit(name):
    agree(KEYS[name], jax.random.key(42))


def test_normal_draws():
    agree(lambda k: jax.random.normal(k, (5,)), jax.random.key(0))
    agree(lambda k: jax.random.gamma(k, 2.5, (3,)), jax.random.key(0), rtol=1e-9)


_M = np.random.RandomState(0).randn(2, 4, 4)
_S = _M @ _M.swapaxes(1, 2) + 4 * np.eye(4)
_Z = _M + 1j * _M[::-1]
LINALG = {
    "cholesky": (jnp.linalg.cholesky, _S),
    "cholesky of an indefinite matrix": (jnp.linalg.cholesky, -_S),
    "cholesky complex": (jnp.linalg.cholesky, _Z @ _Z.conj().swapaxes(1, 2) + 4 * np.eye(4)),
    "solve": (lambda m: jnp.linalg.solve(m, m[..., :2]), _M),
    "solve singular": (lambda m: jnp.isfinite(jnp.linalg.solve(m * 0, m)).any(), _M),
    "det": (jax.grad(lambda m: jnp.linalg.slogdet(m)[1].sum()), _M),
    "lu": (lambda m: jax.scipy.linalg.lu(m), _M[0, :, :3]),
    "lu wide": (lambda m: lax.linalg.lu(m), _M[:, :2]),
    "qr": (lambda m: [jnp.abs(a) for a in jnp.linalg.qr(m)], _M[:, :, :3]),
    "qr complete": (lambda m: (lambda q, r: q @ r)(*jnp.linalg.qr(m, "complete")), _M[:, :, :3]),
    "qr raw": (lambda m: jnp.linalg.qr(m, "raw"), _M[:, :3]),
    "householder": (lambda m: lax.linalg.householder_product(m, m[:, 0, :3]), _M[:, :, :3]),
    "eigh": (lambda m: jnp.linalg.eigh(m)[0], _S),
    "eigh vectors": (
        lambda m: (lambda w, v: (v * w[..., None, :]) @ v.swapaxes(-1, -2))(*jnp.linalg.eigh(m)),
        _S,
    ),
    "svd": (lambda m: jnp.linalg.svd(m, compute_uv=False), _M[:, :3]),
    "svd parts": (
        lambda m: (lambda u, s, v: (u * s[..., None, :]) @ v)(*jnp.linalg.svd(m, full_matrices=False)),
        _M[:, :3],
    ),
    "eig": (lambda m: jnp.sort(jnp.linalg.eigvals(m)), _M),
    "expm": (jax.scipy.linalg.expm, _M[0]),
    "tridiagonal": (lambda m: lax.linalg.tridiagonal_solve(m[0], m[0] + 5, m[0], m[:, :2]), _M[0]),
}


@pytest.mark.parametrize("name", LINALG)
def test_linalg(name):
    agree(*LINALG[name], rtol=1e-9)


@pytest.mark.parametrize(
    "flags", [(a, b, c, d, e) for a in (0, 1) for b in (0, 1) for c in (0, 1) for d in (0, 1) for e in (0, 1)]
)
def test_triangular_solve_on_every_side(flags):
    left, lower, transpose, unit, conjugate = map(bool, flags)
    agree(
        lambda a, b: lax.linalg.triangular_solve(
            a, b, left_side=left, lower=lower, transpose_a=transpose, unit_diagonal=unit, conjugate_a=conjugate
        ),
        _Z[0] + 3 * np.eye(4), _Z[0][:, :4] + 1, rtol=1e-8,
    )  # fmt: skip


SPECIAL = {
    "igamma": lambda x: jax.scipy.special.gammainc(x + 1, x * 3),
    "igammac": lambda x: jax.scipy.special.gammaincc(x + 1, x * 3),
    "igamma_grad_a": lambda x: lax.igamma_grad_a(x + 1, x * 3),
    "betainc": lambda x: jax.scipy.special.betainc(x, x + 1, x / 2),
    "polygamma": lambda x: jax.scipy.special.polygamma(2, x),
    "zeta": lambda x: jax.scipy.special.zeta(x + 1.5, x),
    "zeta, q <= 0": lambda x: [
        lax.zeta(k + 0 * x, -jnp.floor(3 * x) - s) for k in (1.0, 2.0, 2.5, 3.0) for s in (0, 0.25)
    ],
    "zeta, x < 1": lambda x: [
        lax.zeta(k + 0 * x, q - jnp.floor(x)) for k in (0.0, 0.5, -1.0, -2.0) for q in (-1.5, -1.0, 0.0)
    ],
    "windows with an initial value": lambda x: [
        lax.reduce_window(x, 2.0, lax.add, (2, 2), (1, 1), "SAME"),
        lax.reduce_window(x, 3.0, lax.mul, (3, 2), (1, 1), ((2, 1), (-1, 4)), (2, 1), (1, 2)),
    ],
    "trigamma of less than 0": lambda x: jax.scipy.special.polygamma(1, -x - 0.25),
    "fft": lambda x: [jnp.fft.fft2(x), jnp.fft.irfft(jnp.fft.rfft(x, n=5)), jnp.fft.ifft(x, axis=0)],
    "ragged_dot": lambda x: lax.ragged_dot(x, x.T[None] * jnp.ones((2, 1, 1)), jnp.array([1, 1])),
    "sort gradient": jax.grad(lambda x: (jnp.sort(x.ravel()) * jnp.arange(6)).sum()),
    "quantile": lambda x: jnp.quantile(x, 0.3, axis=1),
    "median": lambda x: jnp.median(x),
    "searchsorted": lambda x: jnp.searchsorted(x[0], x[1]),
    "packbits": lambda x: jnp.packbits(x > 0.5),
    "convolve": lambda x: jnp.convolve(x[0], x[1]),
    "einsum": lambda x: jnp.einsum("ij,kj,kl->il", x, x, x),
    "optimization_barrier": lambda x: lax.optimization_barrier((x, x + 1)),
    "scatter gradient": jax.grad(
        lambda x: (x.at[0, jnp.array([0, 1, 2])].multiply(x[1], unique_indices=True) ** 2).sum()
    ),
}


@pytest.mark.parametrize("name", SPECIAL)
def test_library_functions(name):
    agree(SPECIAL[name], X, rtol=1e-9)


def test_loops_are_classified():
    def loop_of(fun, *args):
        return next(n for n in agree(fun, *args).nodes if isinstance(n, Loop))

    static = loop_of(lambda x: lax.while_loop(lambda c: c[0] < 9, lambda c: (c[0] + 1, c[1] * 2), (4, x))[1], 1.0)
    assert (static.kind, static.length, static.trip, static.cond) == ("counted", 5, None, None)
    dynamic = loop_of(lambda x, n: lax.fori_loop(1, n, lambda i, c: c * 2, x), 1.0, 4)
    assert dynamic.kind == "counted" and dynamic.length is None and dynamic.trip is not None
    flipped = loop_of(lambda x: lax.while_loop(lambda c: 9 > c[0], lambda c: (1 + c[0], c[1] * 2), (4, x))[1], 1.0)
    assert flipped.length == 5
    bounded = loop_of(
        lambda x: lax.while_loop(lambda c: (c[1] < 50) & (c[0] < 9), lambda c: (c[0] + 1, c[1] * 2), (0, x))[1],
        1.0,
    )
    assert (bounded.kind, bounded.bound) == ("while", 9)
    free = loop_of(lambda x: lax.while_loop(lambda c: c < 50, lambda c: c * 2, x), 1.0)
    assert (free.kind, free.bound, free.total) == ("while", None, True)
    step_two = loop_of(lambda x: lax.while_loop(lambda c: c[0] < 9, lambda c: (c[0] + 2, c[1] * 2), (0, x))[1], 1.0)
    assert step_two.kind == "while" and step_two.bound is None
    moving = loop_of(
        lambda x: lax.while_loop(lambda c: c[0] < c[2], lambda c: (c[0] + 1, c[1] * 2, c[2] - 1), (0, x, 9))[1],
        1.0,
    )
    assert moving.kind == "while"


def test_counted_loop_at_the_ends_of_the_integers():
    low, high = np.iinfo(np.int32).min, np.iinfo(np.int32).max
    for a, b in ((high - 2, high), (low, low + 3), (high, low), (3, 3)):
        agree(lambda a, b: lax.fori_loop(a, b, lambda i, c: c + 1, 0), np.int32(a), np.int32(b))
    agree(lambda a, b: lax.fori_loop(a, b, lambda i, c: c + 1, 0), np.int64(2**62), np.int64(-(2**62)))


def test_total_tells_loops_that_may_be_run_past_their_end():
    inner = lambda x: lax.while_loop(lambda c: c < 50, lambda c: c * 2, x)
    loop = next(
        n
        for n in lowering.lower(lambda x: lax.fori_loop(0, 3, lambda i, c: inner(c) - 40, x), 1.0).nodes
        if isinstance(n, Loop)
    )
    assert not loop.total
    loop = next(
        n for n in lowering.lower(lambda x: lax.fori_loop(0, 3, lambda i, c: jnp.linalg.inv(c), x), np.eye(2)).nodes
        if isinstance(n, Loop)
    )  # fmt: skip
    assert not loop.total


def test_cond_on_a_known_predicate_leaves_one_branch():
    program = agree(lambda x: lax.platform_dependent(x, cpu=jnp.sin, default=jnp.cos), X)
    assert kinds(program) == ["sin"]


def test_branch_keeps_its_predicate():
    program = lowering.lower(lambda x: lax.cond(x.sum() > 0, jnp.sin, jnp.cos, x), X)
    branch = next(n for n in program.nodes if isinstance(n, Branch))
    assert branch.predicate is not None and branch.predicate.dtype == bool
    assert branch.index.dtype == np.int32


def test_shared_dead_and_constant_code_is_gone():
    def fun(x):
        dead = jnp.exp(x) + jax.pure_callback(np.sin, x, x)
        del dead
        return jnp.sin(x) + jnp.sin(x) * (2.0 + 3.0) + jnp.zeros(2) + jnp.arange(3)[1]

    program = agree(fun, np.ones(2))
    assert kinds(program).count("sin") == 1
    assert "exp" not in kinds(program) and "host_call" not in kinds(program)
    assert "iota" not in kinds(program) or kinds(program).count("gather_flat") == 0


def test_regions_are_closed():
    program = lowering.lower(CONTROL["nested"], X)

    def close(region):
        known = set(region.inputs)
        for node in region.nodes:
            reads = [*node.inputs]
            if isinstance(node, Loop):
                reads += [node.trip] if node.trip is not None else []
                for inner in (node.body, *([node.cond] if node.cond else [])):
                    close(inner)
            elif isinstance(node, Branch):
                reads += [node.index]
                for inner in node.branches:
                    close(inner)
            assert all(v in known or isinstance(v, lowering.Const) for v in reads)
            known.update(node.outputs)
        assert all(v in known or isinstance(v, lowering.Const) for v in region.outputs)

    close(program)


def test_trees_static_arguments_and_abstract_inputs():
    spec = jax.ShapeDtypeStruct((2,), np.float32)
    program = lowering.lower(
        lambda p, n: {"y": p["a"] * n, "z": (p["b"],)}, {"a": spec, "b": spec}, 3, static_argnums=1
    )
    assert [v.dtype for v in program.inputs] == [np.float32] * 2
    out = jax.tree.unflatten(program.out_tree, lowering.run_on_numpy(program, [1, 2], [3, 4]))
    np.testing.assert_array_equal(out["y"], [3, 6])
    np.testing.assert_array_equal(out["z"][0], [3, 4])
    assert jax.tree.unflatten(program.in_tree, [0, 1]) == ({"a": 0, "b": 1},)


class NoSine(NumpyBuilder):
    target = "sineless"

    def supports(self, node):
        return "it has no waves" if node.name in ("sin", "host_call") else None


def test_refusals_name_the_op_the_target_and_the_line():
    with pytest.raises(UnsupportedOperationError, match=r"sin .*sineless.*test_lowering_programs\.py:\d+") as caught:
        lowering.lower(lambda x: lax.scan(lambda c, t: (c + jnp.sin(t), None), 0.0, x)[0], np.ones(3), builder=NoSine())
    assert (caught.value.op, caught.value.device) == ("sin", "sineless")
    program = lowering.lower(jnp.sin, 1.0)
    with pytest.raises(UnsupportedOperationError, match="no waves"):
        lowering.check(program, NoSine())
    lowering.check(program, NumpyBuilder())


@pytest.mark.parametrize(
    ("name", "fun"),
    {
        "pure_callback": lambda x: jax.pure_callback(np.sin, x, x),
        "io_callback": lambda x: jax.experimental.io_callback(np.sin, x, x),
        "debug_print": lambda x: jax.debug.print("{}", x) or x,
        "schur": lambda x: jax.scipy.linalg.schur(jnp.ones((2, 2)) * x)[0],
        "rng_bit_generator": lambda x: x + jax.random.uniform(jax.random.key(0, impl="rbg")),
    }.items(),
)
def test_what_cannot_run_is_refused_by_its_primitive(name, fun):
    with pytest.raises(UnsupportedOperationError, match=name) as caught:
        lowering.lower(fun, 1.0, builder=NoSine())
    assert caught.value.op.startswith(name) and caught.value.device == "sineless"


def test_error_checks_of_equinox_become_nan_without_callbacks():
    eqx = pytest.importorskip("equinox", reason="its error_if is what is lowered")
    program = lowering.lower(lambda x: eqx.error_if(x, x < 0, "negative"), 1.0, builder=NoSine())
    assert lowering.run_on_numpy(program, 2.0) == [2.0]
    assert np.isnan(lowering.run_on_numpy(program, -2.0)[0])


def test_a_second_rule_names_both_places():
    with pytest.raises(ValueError, match=r"elementwise\.py:\d+ and .*test_lowering_programs\.py:\d+"):
        rules.register("sin_p", "direct", lambda e, eqn, x: x)


def test_engine_loops_expand():
    from quabla_jax import loops

    fun = lambda x: loops.fori_loop(0, 6, lambda i, c: jnp.sin(c) * 1.5 + i, x)
    for f in (fun, jax.grad(lambda x: fun(x).sum()), jax.vmap(fun), jax.jit(fun)):
        agree(f, X[0])


def test_text_shows_regions_types_and_lines():
    text = lowering.as_text(lowering.lower(CONTROL["nested"], X))
    assert (
        "loop 3 times" in text and "case 1" in text and "float64[2,3]" in text and "test_lowering_programs.py" in text
    )


def test_deep_nesting_and_long_programs():
    def deep(x):
        for _ in range(300):
            x = jax.jit(lambda v, x=x: v + 1)(x)
        return x

    agree(deep, 0.0)
    nested = lambda x: x
    for _ in range(60):
        nested = jax.jit(lambda x, f=nested: f(x) + 1.0)
    agree(nested, 0.0)


def chain(n):
    def fun(x):
        for i in range(n):
            x = lax.sin(x) if i % 2 else lax.mul(x, 1.5)
        return x

    return fun


def test_five_thousand_equations_lower_within_a_second():
    closed = jax.make_jaxpr(chain(5000))(1.0)
    times = []
    for _ in range(3):
        start = time.process_time()
        program = lowering.lower(jax_api.jaxpr_as_fun(closed), 1.0)
        times.append(time.process_time() - start)
    assert len(program.nodes) == 5000
    assert min(times) < 1.0


@pytest.mark.slow
def test_fifty_thousand_equations_need_no_recursion():
    limit = sys.getrecursionlimit()
    program = lowering.lower(chain(50_000), 1.0)
    assert len(program.nodes) == 50_000 and sys.getrecursionlimit() == limit
    np.testing.assert_allclose(lowering.run_on_numpy(program, 0.3)[0], jax.jit(chain(100))(0.3), atol=2)


def test_every_core_op_has_an_oracle_row_and_a_sample():
    assert interpreter
    for name in lowering.CORE_OPS:
        assert name in numpy_ops.TABLE
        assert name == "host_call" or table.sample_nodes(name)


def test_every_registered_primitive_is_lowered_or_refused_with_a_reason():
    for registration in rules.REGISTERED:
        assert registration.kind in rules.KINDS
        assert (registration.kind == "refused") == bool(registration.reason)


def test_a_widened_half_precision_product_is_not_rounded():
    a = np.random.RandomState(0).randn(4, 6).astype(jnp.bfloat16)
    agree(lambda a: (a @ a.T).astype(np.float32), a, rtol=1e-6)
    agree(jax.vmap(lambda a: jnp.outer(a, a).T.astype(np.float32)), a, rtol=1e-6)
    agree(lambda a: jnp.einsum("ij,kj->ki", a, a).astype(np.float32), a, rtol=1e-6)


@pytest.mark.parametrize("name", "abs exp log sqrt sin cos sinh cosh square arcsin arccos arcsinh arccosh".split())
def test_complex_functions_where_c_and_xla_part(name):
    """At infinities and NaN, and with a negative zero beside a branch cut."""
    parts = [0.0, -0.0, 1.0, -2.0, np.inf, -np.inf, np.nan]
    z = np.array([complex(a, b) for a in parts for b in parts])
    with np.errstate(all="ignore"):
        agree(getattr(jnp, name), z[np.isfinite(z)] if name.startswith("arc") else z, rtol=1e-7)
