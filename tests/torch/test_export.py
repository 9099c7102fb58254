"""to_exported_program: control flow stays control flow, values survive a file, sizes may be dynamic."""

import io
import logging

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

torch = pytest.importorskip("torch", reason="needs PyTorch")

from quabla_jax import UnsupportedOperationError  # noqa: E402
from quabla_jax.torch_bridge import save, to_exported_program  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
logging.getLogger("torch._export").setLevel(logging.ERROR)

X = jnp.linspace(0.1, 0.9, 4)
XS = jnp.linspace(-1.0, 1.0, 24).reshape(6, 4)
BATCH = torch.export.Dim("batch")


def reloaded(program, path=None):
    if path is not None:
        save(program, path)
        return torch.export.load(path).module()
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    return torch.export.load(file).module()


def tensors(args):
    return [torch.from_numpy(np.array(x)) for x in jax.tree.leaves(args)]


def assert_same(module, fun, args):
    out = module(*tensors(args))
    out = out if isinstance(out, (tuple, list)) else (out,)
    want = jax.tree.leaves(jax.jit(fun)(*args))
    assert len(out) == len(want)
    for got, expected in zip(out, want, strict=True):
        assert got.shape == expected.shape and str(got.dtype) == f"torch.{expected.dtype}"
        np.testing.assert_allclose(got.detach().numpy(), np.asarray(expected), rtol=1e-12, atol=1e-12)


def operators(program):
    """Names of the higher-order operators, those inside regions too."""
    return {
        str(n.target)
        for m in program.graph_module.modules()
        if hasattr(m, "graph")
        for n in m.graph.nodes
        if n.op == "call_function" and isinstance(n.target, torch._ops.HigherOrderOperator)
    }


PROGRAMS = {
    "cond": (lambda x: lax.cond(x[0] > 0, jnp.sin, lambda x: x * 2, x), (X,), "cond"),
    "switch": (lambda i, x: lax.switch(i, [jnp.sin, jnp.cos, jnp.tan], x), (jnp.int32(1), X), "cond"),
    "fori": (lambda x: lax.fori_loop(0, 5, lambda i, x: jnp.sin(x) + i, x), (X,), "while_loop"),
    "while": (lambda x: lax.while_loop(lambda x: x.sum() > 1, lambda x: x * 0.5, x), (X,), "while_loop"),
    "scan": (lambda x, xs: lax.scan(lambda c, v: (jnp.sin(c) * v, c + v), x, xs), (X, XS), "scan"),
    "scan-reverse": (lambda x, xs: lax.scan(lambda c, v: (jnp.sin(c) * v, c), x, xs, reverse=True), (X, XS), "scan"),
    "scan-without-xs": (lambda x: lax.scan(lambda c, _: (jnp.sin(c), c), x, None, 3), (X,), "scan"),
    "scan-of-length-0": (lambda x: lax.scan(lambda c, v: (c, v), x, jnp.zeros((0, 4))), (X,), None),
    "scan-same-output-twice": (lambda x, xs: lax.scan(lambda c, v: (v, (v, v)), x, xs), (X, XS), "scan"),
    "gradient": (jax.grad(lambda x, xs: lax.scan(lambda c, v: (jnp.sin(c) * v, None), x, xs)[0].sum()), (X, XS), "scan"),
    "loop-in-branch-in-scan": (
        lambda x, xs: lax.scan(
            lambda c, v: (lax.cond(v[0] > 0, lambda c: lax.fori_loop(0, 3, lambda i, c: c * v, c), jnp.sin, c), c), x, xs
        ),
        (X, XS),
        "scan",
    ),
    "scalar-carried-and-captured": (
        jax.grad(lambda b: (lambda s: s[0] + 2 * s[1])(lax.fori_loop(0, 2, lambda i, s: (s[0] * b, s[1] + s[0]), (b, b)))),
        (jnp.float64(0.6),),
        "scan",
    ),
    "random": (lambda seed: jax.random.bits(jax.random.key(seed), (5,)), (jnp.uint32(3),), None),
    "rows": (lambda x, xs: lax.fori_loop(0, 5, lambda i, t: t.at[i + 1].set(t[i] * x), xs), (X, XS), "while_loop"),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_survive_a_file(name):
    fun, args, operator = PROGRAMS[name]
    program = to_exported_program(fun, *args)
    assert operator is None or any(operator in found for found in operators(program)), operators(program)
    assert_same(reloaded(program), fun, args)


@pytest.mark.parametrize("index", range(-5, 10))
def test_switch_clamps(index, _memo={}):  # noqa: B006 - one export for all indices
    fun = lambda i, x: lax.switch(i, [jnp.sin, jnp.cos, jnp.exp, jnp.tanh, lambda x: x * 3], x)
    if "module" not in _memo:
        _memo["module"] = reloaded(to_exported_program(fun, jnp.int32(0), X))
    assert_same(_memo["module"], fun, (jnp.int32(index), X))


def test_integers_as_xla_has_them():
    a = jnp.array([7, -7, 2**31 - 1, -(2**31), 5], jnp.int32)
    b = jnp.array([2, 0, -1, -1, 40], jnp.int32)
    fun = lambda a, b: (
        lax.div(a, b),
        lax.rem(a, b),
        a * b,
        lax.shift_left(a, b),
        a.astype(jnp.uint8),
        a.astype(jnp.uint32),
    )
    assert_same(reloaded(to_exported_program(fun, a, b)), fun, (a, b))


def test_parameters_are_named_by_path(tmp_path):
    params = {"layers": [{"w": jnp.ones((4, 3)), "b": jnp.zeros(3)}]}
    fun = lambda p, x: jnp.tanh(x @ p["layers"][0]["w"] + p["layers"][0]["b"])
    program = to_exported_program(fun, XS, params=params)
    assert sorted(program.state_dict) == ["layers.0.b", "layers.0.w"]
    assert_same(reloaded(program, tmp_path / "m.pt2"), lambda x: fun(params, x), (XS,))


def test_parameters_named_like_what_the_program_holds_itself(tmp_path):
    table = np.linspace(0.0, 1.0, 4)
    params = {"constant_0": 2.0 * X, "while_body_1": 3.0 * X, "constant_1": {"w": X}}

    def fun(p, x):
        x = x * jnp.asarray(table) * p["constant_0"] + jnp.asarray(table[::-1]) * p["constant_1"]["w"]
        return lax.fori_loop(0, 3, lambda i, c: c * p["while_body_1"], x)

    program = to_exported_program(fun, X, params=params)
    assert_same(reloaded(program, tmp_path / "m.pt2"), lambda x: fun(params, x), (X,))


DYNAMIC = {
    "matmul": (lambda x, w: jnp.tanh(x @ w).sum(1), lambda n: (_rows(n, 3), _rows(3, 2)), ({0: BATCH}, None)),
    "loop": (
        lambda x, w: lax.fori_loop(0, 5, lambda i, x: jnp.tanh(x @ w) + jnp.ones_like(x) * i, x),
        lambda n: (_rows(n, 3), _rows(3, 3)),
        ({0: BATCH}, None),
    ),
    "scan": (
        lambda x, xs: lax.scan(lambda c, v: (jnp.sin(c) + v.reshape(-1, 3) * c.mean(0), jnp.concatenate([c, c])), x, xs),
        lambda n: (_rows(n, 3), _rows(5, n, 3)),
        ({0: BATCH}, {1: BATCH}),
    ),
    "branch": (
        jax.vmap(lambda v: lax.cond(v[0] > 0, jnp.sin, lambda v: v * 2, v)),
        lambda n: (_rows(n, 3),),
        ({0: torch.export.Dim.DYNAMIC},),
    ),
    "gradient": (
        jax.vmap(jax.grad(lambda x: lax.scan(lambda c, _: (jnp.sin(c) * c, None), x, None, 4)[0].sum())),
        lambda n: (_rows(n, 3),),
        ({0: BATCH},),
    ),
}  # fmt: skip


def _rows(*shape):
    return jnp.asarray(np.random.default_rng(0).normal(size=shape))


@pytest.mark.parametrize("name", DYNAMIC)
def test_one_program_for_every_size(name):
    fun, make, spec = DYNAMIC[name]
    module = reloaded(to_exported_program(fun, *make(4), dynamic_shapes=spec))
    for size in (2, 4, 9):
        assert_same(module, fun, make(size))


def test_a_program_that_changes_with_the_size_is_refused():
    fun = lambda x: sum(x[k] for k in range(x.shape[0]))
    with pytest.raises(ValueError, match="not the same for every size"):
        to_exported_program(fun, _rows(4, 3), dynamic_shapes=({0: BATCH},))


def test_dynamic_shapes_are_checked():
    with pytest.raises(ValueError, match="one entry for each of the 1 arguments"):
        to_exported_program(jnp.sin, X, dynamic_shapes=({0: BATCH}, None))
    with pytest.raises(ValueError, match="has no axis 2"):
        to_exported_program(jnp.sin, X, dynamic_shapes=({2: BATCH},))


def test_what_torch_lacks_is_refused_by_name():
    def fun(x):
        return jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    with pytest.raises(UnsupportedOperationError, match="pure_callback") as caught:
        to_exported_program(fun, X)
    assert caught.value.op == "pure_callback" and caught.value.device == "export"


def test_results_may_be_written_to():
    """No result is a constant or an argument of the program, nor a view of one."""

    def fun(x):
        start = jnp.arange(4.0)
        never = lax.while_loop(lambda c: c[0] > x[0], lambda c: c * 2, start)
        y = x * 2
        return (
            jnp.float64(2.5),
            start,
            start[1:3],
            start.reshape(2, 2),
            never,
            x,
            x[:2],
            y,
            y,
            lax.cond(x[0] > 0, lambda v: v, jnp.sin, start),
        )

    module = reloaded(to_exported_program(fun, X))
    want = [np.asarray(o) for o in jax.tree.leaves(fun(X))]
    x = tensors((X,))[0]
    for _ in range(2):
        outs = module(x)
        for out, reference in zip(outs, want, strict=True):
            np.testing.assert_allclose(out.numpy(), reference, rtol=1e-15)
            out.add_(1)
    np.testing.assert_array_equal(x.numpy(), X)


def test_constants_without_elements_are_saved():
    def fun(x):
        empty = jnp.zeros((0, 3))
        carry, rows = lax.scan(lambda c, t: (c + t.sum(), t * c[0]), x, empty)
        return (
            carry,
            rows,
            lax.fori_loop(0, 2, lambda i, e: e + 1, empty),
            lax.cond(x[0] > 0, lambda e: e * 2, jnp.sin, empty),
        )

    for f in (fun, jax.vmap(fun)):
        x = X if f is fun else XS
        assert_same(reloaded(to_exported_program(f, x)), f, (x,))


def test_parameters_without_elements(tmp_path):
    params = {"w": 2.0 * X, "extra": jnp.zeros((0, 4)), "index": jnp.zeros(0, jnp.uint32)}
    fun = lambda p, x: (jnp.concatenate([p["w"] * x, p["extra"].sum(0)]), p["index"])
    program = to_exported_program(fun, X, params=params)
    assert list(program.state_dict) == ["w"]
    assert_same(reloaded(program, tmp_path / "m.pt2"), lambda x: fun(params, x), (X,))


def test_complex_constants_that_code_cannot_write():
    fun = lambda x: (
        jnp.where(x > 0.5, x, complex(np.nan, np.nan)),
        x * complex(-0.0, np.inf),
        jnp.where(x > 0.5, x, -1j),
    )
    assert_same(reloaded(to_exported_program(fun, X)), fun, (X,))


def test_compiled_by_torch():
    fun, args, _ = PROGRAMS["while"]
    module = to_exported_program(fun, *args).module()
    compiled = torch.compile(module, backend="eager", fullgraph=True)
    assert_same(compiled, fun, args)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["while", "loop-in-branch-in-scan"])
def test_compiled_by_inductor(name, tmp_path):
    fun, args, _ = PROGRAMS[name]
    compiled = torch.compile(reloaded(to_exported_program(fun, *args), tmp_path / "m.pt2"), fullgraph=True)
    for _ in range(3):
        assert_same(compiled, fun, args)


@pytest.mark.slow
def test_ahead_of_time_package(tmp_path):
    fun, args, _ = PROGRAMS["fori"]
    path = torch._inductor.aoti_compile_and_package(
        to_exported_program(fun, *args), package_path=str(tmp_path / "m.pt2")
    )
    assert_same(torch._inductor.aoti_load_package(path), fun, args)


@pytest.mark.torch214
def test_torch_still_cannot_save_switch():
    """When this fails, torch has mended it, and export.py may use torch's own switch."""
    try:
        from torch._higher_order_ops.switch import switch
    except ImportError:
        pytest.skip("torch.switch comes with torch 2.14")

    class Module(torch.nn.Module):
        def forward(self, i, x):
            return switch(i, [lambda x: x.sin(), lambda x: x.cos()], (x,))

    program = torch.export.export(Module(), (torch.tensor(1), torch.ones(3)))
    with pytest.raises(Exception, match="[Ss]erializ"):
        torch.export.save(program, io.BytesIO())


@pytest.mark.torch214
@pytest.mark.parametrize("index", range(-5, 10))
def test_switch_against_torchs_own(index):
    try:
        from torch._higher_order_ops.switch import switch
    except ImportError:
        pytest.skip("torch.switch comes with torch 2.14")
    fun = lambda i, x: lax.switch(i, [jnp.sin, jnp.cos, lambda x: x * 3], x)
    module = reloaded(to_exported_program(fun, jnp.int32(0), X))
    i, x = tensors((jnp.int32(index), X))
    want = switch(i, [torch.sin, torch.cos, lambda x: x * 3], (x,))
    torch.testing.assert_close(module(i, x), want)


@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("shapes", [False, True], ids=["fixed", "dynamic"])
def test_examples_have_the_dtypes_of_the_trace(x64, shapes):
    """Keys, Python numbers and arrays wider than JAX's mode, as arguments and as parameters."""
    with jax.enable_x64(x64):
        params = {"k": jax.random.key(3), "s": 2.0, "w": np.eye(3) * 0.5}
        fun = lambda p, x, k, n: x @ p["w"] * n * p["s"] + jax.random.normal(p["k"]) + jax.random.normal(k)
        key, rows = jax.random.key(1), np.arange(6.0).reshape(2, 3)
        want = np.asarray(fun(params, rows, key, 3))
        dynamic = ({0: torch.export.Dim("n")}, None, None) if shapes else None
        program = to_exported_program(fun, rows, key, 3, params=params, dynamic_shapes=dynamic)
        given = [jnp.asarray(rows), jax.random.key_data(key), jnp.asarray(3)]
        got = program.module()(*[torch.from_numpy(np.array(a)) for a in given])
        np.testing.assert_allclose(got.detach().numpy(), want, rtol=1e-6)
