"""to_torchscript: control flow stays control flow, results are JAX's, in this process, another one, and after freezing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

pytest.importorskip("torch.jit", reason="needs PyTorch")

import torch
from torch_helpers import in_new_process, load, quiet

from quabla_jax import UnsupportedOperationError, torch_bridge
from quabla_jax.torch_bridge.script import tensor_of


def arrays(out):
    return [o.detach().numpy() for o in (out if isinstance(out, tuple) else (out,))]


def agree(fun, *args, calls=3, tmp_path=None, rtol=1e-12):
    """The translated function gives JAX's results on every call, from a file where tmp_path is given."""
    module = torch_bridge.to_torchscript(fun, *args)
    if tmp_path is not None:
        torch_bridge.save(module, tmp_path / "m.pt")
        module = load(tmp_path / "m.pt")
    want = [np.asarray(o) for o in jax.tree.leaves(jax.jit(fun)(*args))]
    inputs = [tensor_of(np.asarray(leaf)) for leaf in jax.tree.leaves(args)]
    for _ in range(calls):
        for got, reference in zip(arrays(module(*inputs)), want, strict=True):
            assert got.shape == reference.shape and got.dtype == reference.dtype
            np.testing.assert_allclose(got, reference, rtol=rtol, atol=rtol)
    return module


def count(module, kind):
    return len(list(module.graph.findAllNodes(kind)))


X = np.linspace(0.2, 1.1, 4)


def fori(x):
    return lax.fori_loop(0, 7, lambda i, c: jnp.sin(c) * 1.1 + i, x)


def fori_dynamic(x, n=np.int32(4)):
    return lax.fori_loop(0, n, lambda i, c: c * 1.5 + i, x)


def scan_forward(x):
    return lax.scan(lambda c, t: (c * 0.9 + t, (c * t, c.sum())), x, jnp.outer(jnp.arange(3.0), x))


def scan_reverse(x):
    return lax.scan(lambda c, t: (c * 0.9 + t, c * t), x, jnp.outer(jnp.arange(5.0), x), reverse=True)


def scan_without_xs(x):
    return lax.scan(lambda c, _: (c + 1, c), x, None, length=3)


def scan_of_nothing(x):
    return lax.scan(lambda c, t: (c + t, c * t), x, jnp.zeros((0, 4)))


def scan_of_nothing_made_here(x):
    c, ys = lax.scan(lambda c, t: (c + 1, (c > 0, c.astype(jnp.int32))), x, None, length=0)
    return c, ys


def while_loop(x):
    return lax.while_loop(lambda s: s[0].sum() < 50, lambda s: (s[0] * 1.7, s[1] + 1), (x, 0))


def while_never(x):
    return lax.while_loop(lambda s: s.sum() < -1, lambda s: s * 2, x)


def cond_both(x):
    f = lambda v: lax.cond(v.sum() > 2, lambda a: (a * 2, 1), lambda a: (-a, 2), v)
    return f(x), f(x - 10)


def nested(x):
    def outer(i, c):
        inner = lax.while_loop(lambda v: v[0] < 3.0 + i, lambda v: lax.cond(v[1] > 0, jnp.sin, jnp.cos, v) + v + 1, c)
        c, ys = lax.scan(lambda a, t: (lax.switch(t % 3, [jnp.sin, jnp.cos, jnp.tanh], a), a), inner, jnp.arange(4))
        return c + ys.sum(0)

    return lax.fori_loop(0, 3, outer, x)


def nested_differentiable(x):
    def outer(c, t):
        inner, ys = lax.scan(lambda a, s: (lax.switch(s % 3, [jnp.sin, jnp.cos, jnp.tanh], a) * t, a), c, jnp.arange(4))
        return lax.cond(t > 1.5, lambda v: v * 1.5, jnp.tanh, inner), ys.sum(0)

    return lax.scan(outer, x, jnp.arange(1.0, 4.0))


def swapped(x):
    return lax.fori_loop(0, 5, lambda i, c: (c[1], c[0] + c[1]), (x, 2 * x))


def rotated(x):
    return lax.fori_loop(0, 4, lambda i, c: (c[2], c[0], c[1] * 2, c[3]), (x, x + 1, x + 2, x[0]))


def same_result_twice(x):
    y = x * 2
    return y, y, x


def constant_result(x):
    return jnp.ones(3), jnp.float64(2.5), jnp.arange(3)


def masked_grad(x):
    return jax.vmap(jax.grad(lambda v: lax.cond(v > 0.5, jnp.log, lambda a: a * 0, v)))(x - 0.4)


def scan_gradient(x):
    return jax.grad(lambda v: lax.scan(lambda c, t: (jnp.sin(c) * t, c**2), v, jnp.arange(1.0, 6.0))[1].sum())(x)


def hessian(x):
    return jax.hessian(lambda v: lax.fori_loop(0, 4, lambda i, c: jnp.sin(c) * v, v).sum())(x)


PROGRAMS = [
    fori, fori_dynamic, scan_forward, scan_reverse, scan_without_xs, scan_of_nothing, scan_of_nothing_made_here, while_loop,
    while_never, cond_both, nested, nested_differentiable, swapped, rotated, same_result_twice, constant_result, masked_grad, scan_gradient, hessian,
]  # fmt: skip


@pytest.mark.parametrize("fun", PROGRAMS, ids=lambda f: f.__name__)
def test_results_are_those_of_jax(fun, tmp_path):
    agree(fun, X, tmp_path=tmp_path, calls=5)


def test_control_flow_stays_control_flow():
    module = torch_bridge.to_torchscript(nested, X)
    loops, ifs = count(module, "prim::Loop"), count(module, "prim::If")
    assert (loops, ifs) == (3, 3), module.graph  # one cond, and two for a switch of three


def test_nothing_is_written_in_place():
    """Only lists of results grow: in-place operators go wrong in rotated carries."""
    graphs = [torch_bridge.to_torchscript(fun, X).graph for fun in PROGRAMS[2:12]]
    kinds = {
        line.split(" = ")[1].split("(")[0].split("[")[0]
        for g in graphs
        for line in str(g).splitlines()
        if " = " in line
    }
    assert {k for k in kinds if k.endswith("_") and not k.endswith("__")} == set()
    assert "aten::append" in kinds


def owned_constants(params, x):
    start = jnp.arange(6.0)
    never = lax.while_loop(lambda c: c[0] > x[0], lambda c: c * 2, start)
    swaps = lax.fori_loop(0, jnp.int32(x[0] * 0), lambda i, c: (c[1], c[0]), (start + 1, params["w"]))
    rows = lax.scan(lambda c, t: (c, t), x[0], start.reshape(3, 2))[1]
    return (
        jnp.float64(2.5),
        start,
        start.reshape(2, 3)[1],
        never,
        swaps,
        rows,
        lax.cond(x[0] > 0, jnp.sin, lambda v: v, params["w"]),
    )


def owned_arguments(params, x):
    y = x * 2
    return x, x[:2], y, y, y.reshape(2, 2), params["w"], params["w"][::2], lax.cond(x[0] > 0, lambda v: v, jnp.sin, x)


@pytest.mark.parametrize("fun", [owned_constants, owned_arguments])
def test_results_may_be_written_to(fun):
    """No result is a constant, parameter or argument of the module, nor a view of one or of another result."""
    params = {"w": np.linspace(0.0, 1.0, 6)}
    module = torch_bridge.to_torchscript(fun, X, params=params)
    want = [np.asarray(o) for o in jax.tree.leaves(fun(params, X))]
    x = torch.from_numpy(X.copy())
    for _ in range(3):
        outs = [out.detach() for out in module(x)]
        for out, reference in zip(outs, want, strict=True):
            np.testing.assert_allclose(out.numpy(), reference, rtol=1e-15)
            out.add_(1)
    for out, reference in zip(outs, want, strict=True):
        np.testing.assert_allclose(out.numpy(), reference + 1, rtol=1e-15)
    assert np.array_equal(x.numpy(), X)


@pytest.mark.parametrize("branches", [2, 3, 8, 13])
def test_switch_is_a_balanced_tree(branches):
    funs = [lambda a, k=k: a * k + k for k in range(branches)]
    fun = lambda i, x: lax.switch(i, funs, x)
    module = torch_bridge.to_torchscript(fun, np.int32(0), X)

    def depth(node):
        inner = [depth(n) for b in node.blocks() for n in b.nodes()]
        return max(inner, default=0) + (node.kind() == "prim::If")

    assert max(depth(n) for n in module.graph.nodes()) == int(np.ceil(np.log2(branches)))
    for index in range(-5, branches + 5):
        got = module(torch.tensor(index, dtype=torch.int32), torch.from_numpy(X))
        np.testing.assert_allclose(got.numpy(), fun(np.int32(index), X), rtol=1e-15)


@pytest.mark.parametrize("trips", [-3, 0, 1, 6])
def test_trip_counts_known_only_at_run_time(trips):
    module = torch_bridge.to_torchscript(fori_dynamic, X, np.int32(4))
    got = module(torch.from_numpy(X), torch.tensor(trips, dtype=torch.int32))
    np.testing.assert_allclose(got.numpy(), fori_dynamic(X, np.int32(trips)), rtol=1e-14)


def test_frozen_and_optimised_modules_give_the_same(tmp_path):
    module = agree(nested, X, tmp_path=tmp_path)
    x = torch.from_numpy(X)
    want = module(x)
    with quiet():
        variants = [torch.jit.freeze(module.eval()), torch.jit.optimize_for_inference(module.eval())]
    for variant in variants:
        for _ in range(5):
            np.testing.assert_allclose(variant(x).numpy(), want.numpy(), rtol=1e-14)


def test_another_process_runs_the_file_without_jax(tmp_path):
    torch_bridge.save(torch_bridge.to_torchscript(nested, X), tmp_path / "m.pt")
    out = in_new_process(
        """
        module = torch.jit.load(sys.argv[1])
        x = torch.linspace(0.2, 1.1, 4, dtype=torch.float64)
        for _ in range(5):
            y = module(x)
        assert "jax" not in sys.modules and "quabla_jax" not in sys.modules
        print(" ".join(repr(v) for v in y.tolist()))
        """,
        tmp_path / "m.pt",
    )
    np.testing.assert_allclose([float(v) for v in out.split()], nested(np.linspace(0.2, 1.1, 4)), rtol=1e-13)


@pytest.mark.parametrize(
    "fun",
    [fori, scan_forward, scan_reverse, cond_both, nested_differentiable, swapped],
    ids=lambda f: f.__name__,
)
def test_torch_differentiates_twice(fun, tmp_path):
    """Backward and double backward through a loaded module, against JAX's."""
    torch_bridge.save(torch_bridge.to_torchscript(fun, X), tmp_path / "m.pt")
    module = load(tmp_path / "m.pt")
    total = lambda out: sum((jnp.sin(o) if o.dtype.kind == "f" else 0 * o).sum() for o in jax.tree.leaves(out))
    f = lambda v: total(fun(v))
    want = jax.grad(f)(X)
    want2 = jax.grad(lambda v: (jax.grad(f)(v) ** 2).sum())(X)
    for _ in range(3):
        x = torch.from_numpy(X).clone().requires_grad_()
        out = module(x)
        loss = sum(torch.sin(o).sum() for o in (out if isinstance(out, tuple) else (out,)) if o.is_floating_point())
        (g,) = torch.autograd.grad(loss, x, create_graph=True)
        np.testing.assert_allclose(g.detach().numpy(), want, rtol=1e-9, atol=1e-12)
        (g2,) = torch.autograd.grad((g**2).sum(), x)
        np.testing.assert_allclose(g2.numpy(), want2, rtol=1e-8, atol=1e-10)


# parameters, methods, structures


def network(params, x):
    for layer in params["layers"]:
        x = jnp.tanh(x @ layer["w"] + layer["b"])
    return (x * params["scale"]).sum(-1)


def weights():
    rng = np.random.default_rng(0)
    layers = [{"w": rng.normal(size=(3, 3)), "b": rng.normal(size=3)} for _ in range(2)]
    return {"layers": layers, "scale": np.float64(0.5)}


BATCH = np.random.default_rng(1).normal(size=(5, 3))


def test_parameters_are_named_by_path(tmp_path):
    params = weights()
    torch_bridge.save(torch_bridge.to_torchscript(network, BATCH, params=params), tmp_path / "m.pt")
    module = load(tmp_path / "m.pt")
    assert sorted(module.state_dict()) == ["layers.0.b", "layers.0.w", "layers.1.b", "layers.1.w", "scale"]
    assert len(list(module.parameters())) == 5 and all(p.requires_grad for p in module.parameters())
    np.testing.assert_allclose(module(torch.from_numpy(BATCH)).detach(), network(params, BATCH), rtol=1e-13)


def test_a_loaded_module_trains(tmp_path):
    params = weights()
    target = np.sin(BATCH.sum(-1))
    torch_bridge.save(torch_bridge.to_torchscript(network, BATCH, params=params), tmp_path / "m.pt")
    module = load(tmp_path / "m.pt")
    optimiser = torch.optim.SGD(module.parameters(), lr=0.05)
    loss_of = jax.value_and_grad(lambda p: ((network(p, BATCH) - target) ** 2).mean())
    losses = []
    for _ in range(8):
        want, grads = loss_of(params)
        optimiser.zero_grad()
        loss = ((module(torch.from_numpy(BATCH)) - torch.from_numpy(target)) ** 2).mean()
        loss.backward()
        optimiser.step()
        params = jax.tree.map(lambda p, g: p - 0.05 * g, params, grads)
        losses.append(loss.item())
        assert abs(loss.item() - float(want)) < 1e-10
    assert losses[-1] < 0.7 * losses[0]
    state = module.state_dict()
    for k, layer in enumerate(params["layers"]):
        for name, want in layer.items():
            np.testing.assert_allclose(state[f"layers.{k}.{name}"].numpy(), want, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(state["scale"].numpy(), params["scale"], rtol=1e-9)


def test_awkward_parameter_names(tmp_path):
    params = {
        "a.b": 1.0,
        "a": {"b": 2.0},
        "training": 3.0,
        "my key": [4.0, (5.0,)],
        "forward": 6.0,
        "": 7.0,
        "self": 8.0,
    }
    params = jax.tree.map(np.float64, params)
    fun = lambda p, x: x * sum(k * v for k, v in enumerate(jax.tree.leaves(p), start=1))
    torch_bridge.save(torch_bridge.to_torchscript(fun, np.float64(1), params=params), tmp_path / "m.pt")
    module = load(tmp_path / "m.pt")
    assert len(list(module.parameters())) == 8
    assert module(torch.tensor(1.0, dtype=torch.float64)).item() == float(fun(params, 1.0))
    alone = torch_bridge.to_torchscript(lambda w, x: w * x, np.float64(2), params=np.float64(3))
    assert list(alone.state_dict()) == ["params"]


def test_methods_share_the_parameters(tmp_path):
    params = weights()
    loss = lambda p, x: (network(p, x) ** 2).mean()
    methods = {"gradient": jax.grad(loss), "input_gradient": jax.grad(loss, argnums=1)}
    module = torch_bridge.to_torchscript(loss, BATCH, params=params, methods=methods)
    assert jax.tree.structure(params) == module.out_trees["gradient"]
    torch_bridge.save(module, tmp_path / "m.pt")
    module = load(tmp_path / "m.pt")
    x = torch.from_numpy(BATCH)
    for got, want in zip(module.gradient(x), jax.tree.leaves(jax.grad(loss)(params, BATCH)), strict=True):
        np.testing.assert_allclose(got.detach(), want, rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(
        module.input_gradient(x).detach(), jax.grad(loss, argnums=1)(params, BATCH), rtol=1e-10, atol=1e-13
    )
    assert len(list(module.parameters())) == 5
    with pytest.raises(ValueError, match="method name 'train'"):
        torch_bridge.to_torchscript(loss, BATCH, params=params, methods={"train": loss})


def test_structures_of_arguments_and_results():
    fun = lambda a, b: {"z": a["x"] + b[0], "y": (b[1],)}
    args = ({"x": np.ones(2)}, [np.zeros(2), np.int32(3)])
    module = torch_bridge.to_torchscript(fun, *args)
    assert module.in_tree == jax.tree.structure(args)
    out = module(*[tensor_of(np.asarray(leaf)) for leaf in jax.tree.leaves(args)])
    tree = jax.tree.unflatten(module.out_tree, out)
    assert int(tree["y"][0]) == 3 and tree["z"].tolist() == [1.0, 1.0]


def test_large_constants_become_buffers(tmp_path):
    table = np.random.default_rng(0).normal(size=(100, 20))
    fun = lambda i: jnp.asarray(table)[i] @ jnp.asarray(table).T
    module = agree(fun, np.int32(7), tmp_path=tmp_path, rtol=1e-11)
    assert [tuple(b.shape) for b in module.buffers()] == [(100, 20)]
    assert list(module.parameters()) == []


def test_parameters_named_like_the_buffers_of_constants(tmp_path):
    tables = np.random.default_rng(0).normal(size=(2, 600))
    params = {"constant_0": np.full(600, 2.0), "constant_1": {"w": np.full(600, 3.0)}}
    fun = lambda p, x: p["constant_0"] * jnp.asarray(tables[0]) * x + p["constant_1"]["w"] * jnp.asarray(tables[1])
    module = torch_bridge.to_torchscript(
        fun, np.float64(1), params=params, methods={"twice": lambda p, x: 2 * fun(p, x)}
    )
    torch_bridge.save(module, tmp_path / "m.pt")
    module, x = load(tmp_path / "m.pt"), torch.tensor(1.5, dtype=torch.float64)
    np.testing.assert_allclose(module(x).detach(), fun(params, 1.5), rtol=1e-14)
    np.testing.assert_allclose(module.twice(x).detach(), 2 * fun(params, 1.5), rtol=1e-14)
    assert len(list(module.parameters())) == 2 and len(list(module.buffers())) == 2


@pytest.mark.parametrize(
    "dtype",
    ["uint8", "uint16", "uint32", "uint64", "int8", "int16", "bool", "float16", "bfloat16", "complex64"],
)
def test_every_dtype_passes_the_boundary(dtype):
    dtype = jnp.dtype(dtype)
    x = np.array([0, 1, 250], np.float64).astype(dtype)
    fun = lambda v: (
        v,
        lax.fori_loop(0, 3, lambda i, c: c ^ v if dtype.kind == "b" else c + v, v),
        lax.rev(v, (0,)),
    )
    module = torch_bridge.to_torchscript(fun, x)
    got, want = module(tensor_of(x)), fun(x)
    for g, w in zip(got, want, strict=True):
        assert str(g.dtype).removeprefix("torch.") == dtype.name
        assert g.tolist() == np.asarray(w).astype(complex if dtype.kind == "c" else float).tolist()


@pytest.mark.parametrize(
    "dtype", "bool uint8 uint16 uint32 uint64 int8 int64 float16 bfloat16 float64 complex64".split()
)
def test_constant_results_of_every_dtype(dtype):
    constants = [jnp.asarray(v).astype(dtype) for v in (np.arange(3), np.array(1), np.zeros((0, 2)))]
    module = torch_bridge.to_torchscript(lambda x: constants, X)
    for _ in range(3):
        for got, want in zip(module(torch.from_numpy(X)), constants, strict=True):
            assert str(got.dtype) == f"torch.{dtype}" and tuple(got.shape) == want.shape
            assert got.tolist() == np.asarray(want).astype(complex if dtype == "complex64" else float).tolist()
            got.zero_()


def test_random_numbers_are_jaxs_own_bits():
    fun = lambda key: jax.random.normal(key, (4,), np.float32)
    module = torch_bridge.to_torchscript(fun, jax.random.key(3))
    words = tensor_of(np.asarray(jax.random.key_data(jax.random.key(3))))
    np.testing.assert_allclose(module(words).numpy(), fun(jax.random.key(3)), rtol=2e-6)


def test_what_torch_cannot_run_is_refused_with_its_line():
    def calls_back(x):
        return jax.pure_callback(np.sin, jax.ShapeDtypeStruct((), np.float64), x)

    with pytest.raises(
        UnsupportedOperationError, match="(?s)pure_callback.*torchscript.*test_to_torchscript.py"
    ) as caught:
        torch_bridge.to_torchscript(calls_back, 1.0)
    assert caught.value.device == "torchscript"


def test_engine_loops_translate_with_their_checkpointed_gradients():
    qb = pytest.importorskip("quabla_jax")
    fun = lambda x: qb.fori_loop(0, 50, lambda i, c, v: qb.tanh(c) + v, x, operands=(x,), checkpoint="sqrt").sum()
    agree(jax.grad(fun), X, rtol=1e-11)


def test_deep_nesting():
    def wrap(f):
        return lambda x: lax.fori_loop(0, 1, lambda i, c: f(c) + 1, x)

    fun = lambda x: x * 2
    for _ in range(12):
        fun = wrap(fun)
    agree(fun, X)


def test_complex_numbers_have_an_order():
    z = np.array([[1 + 2j, 1 - 2j, 0.5 + 9j], [-3j, 2j, 0j]])
    fun = lambda z, w: (lax.max(z, w), lax.min(z, w), jnp.max(z), z.min(1), jnp.maximum(z, 1.0), jnp.logaddexp(z, w))
    agree(fun, z, z[::-1].copy())


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_special_functions_of_short_floats(dtype):
    x = np.array([0.5, 1.25, 3.0], jnp.dtype(dtype))
    for fun in (jnp.i0, jax.scipy.special.i1e, lambda v: jax.scipy.special.zeta(v + 1, v)):
        got = torch_bridge.to_torchscript(fun, x)(tensor_of(x)).double().numpy()
        np.testing.assert_allclose(got, np.asarray(jax.jit(fun)(x)).astype(float), rtol=8e-3)


# loop indices are numbers, not tensors


def indexed(x):
    rows = jnp.outer(jnp.arange(6.0), x)

    def body(i, c):
        return (
            c * 0.5
            + rows[i]
            + rows[5 - i] * i
            + jnp.where(i % 2 == 0, 1.0, -1.0)
            + lax.dynamic_slice(c, (i,), (2,)).sum()
        )

    return lax.fori_loop(0, 6, body, x)


def float_index(x):
    return lax.fori_loop(0, 5, lambda i, c: c + i * 0.1 + (i + 2).astype(jnp.float32) * 0.3, x.astype(jnp.float32))


def two_counters(x):
    def body(s):
        i, j, c, k = s
        return i + 1, j - 3, c + j * i, k

    return lax.fori_loop(3, 9, lambda _, s: body(s), (0, 10, x, 7))


def counter_that_wraps(x):
    start = np.int32(2**31 - 3)
    return lax.fori_loop(0, 6, lambda i, s: (s[0] + np.int32(1), s[1] + s[0]), (jnp.int32(start), x))


def unused_index_kept_after(x):
    return lax.while_loop(lambda s: s[0] < 5, lambda s: (s[0] + 1, jnp.sin(s[1])), (0, x))


@pytest.mark.parametrize(
    "fun",
    [indexed, float_index, two_counters, counter_that_wraps, unused_index_kept_after],
    ids=lambda f: f.__name__,
)
def test_indices(fun, tmp_path):
    agree(fun, X, tmp_path=tmp_path, rtol=1e-6 if fun is float_index else 1e-12)


def test_a_counter_is_not_carried():
    fun = lambda x: lax.fori_loop(0, 9, lambda i, c: jnp.sin(c) * 0.5 + i * 0.25, x)
    module = torch_bridge.to_torchscript(fun, X)
    (loop,) = module.graph.findAllNodes("prim::Loop")
    assert len(list(loop.outputs())) == 1
    (body,) = loop.blocks()
    kinds = [node.kind() for node in body.nodes()]
    assert kinds.count("aten::mul") == 2 and "aten::to" not in kinds and kinds.count("aten::scalar_tensor") == 1, kinds


def test_numbers_in_loops_are_tensors_made_once():
    """A tensor times a number takes PyTorch more than twice as long as times a tensor of one element."""

    def fun(x):
        step = lambda c: jnp.where(c > 0.25, jnp.sin(c) * 0.5 + 2.0, 1.5 - c / 3.0)
        return lax.while_loop(
            lambda c: c.sum() < 7, lambda c: step(c) * 1.25, lax.fori_loop(0, 9, lambda i, c: step(c), x)
        )

    module = agree(fun, X, calls=5)
    bodies = [block for loop in module.graph.findAllNodes("prim::Loop") for block in loop.blocks()]
    numbers = {"FloatType", "IntType"}
    for node in (node for body in bodies for node in body.nodes()):
        if node.kind() in ("aten::mul", "aten::div", "aten::gt", "aten::where"):
            assert [v.type().kind() for v in node.inputs() if v.type().kind() in numbers] == [], node
    many = torch_bridge.to_torchscript(lambda x: sum(x * (k + 0.5) for k in range(400)), X)
    tensors = [n for n in many.graph.findAllNodes("prim::Constant") if n.output().type().kind() == "TensorType"]
    assert len(tensors) == 128  # every one is an entry of the file
    np.testing.assert_allclose(many(torch.from_numpy(X)), X * 80000.0, rtol=1e-12)


def test_dynamic_trip_count_gives_the_counter_after_the_loop():
    fun = lambda n, x: lax.fori_loop(0, n, lambda i, s: (s[0] + 1, s[1] * 1.5), (0, x))
    module = torch_bridge.to_torchscript(fun, np.int32(3), X)
    for n in (0, 1, 4, -2):
        got = module(torch.tensor(n, dtype=torch.int32), torch.from_numpy(X))
        want = fun(np.int32(n), X)
        assert int(got[0]) == int(want[0])
        np.testing.assert_allclose(got[1].numpy(), want[1], rtol=1e-15)


def test_what_a_loop_captures_is_made_before_it():
    def fun(x):
        table = x.reshape(2, 2)
        return lax.fori_loop(0, 3, lambda i, c: c @ table + table, jnp.ones((2, 2)))

    module = agree(fun, X)
    (loop,) = module.graph.findAllNodes("prim::Loop")
    assert "aten::reshape" not in [node.kind() for block in loop.blocks() for node in block.nodes()]


def test_a_reshape_read_first_inside_a_branch_and_then_outside():
    def fun(x):
        y = x.reshape(2, 2)
        z = lax.cond(x[0] > 0, lambda v: v @ v, lambda v: v * 2, y)
        return z + y, y.reshape(4, 1), y.reshape(4)

    agree(fun, X)


def test_an_error_at_run_time_is_an_exception():
    """Its text is found through the graph alone: the function that the graph came from is gone by then (ended the process)."""
    module = torch_bridge.to_torchscript(lambda x: x.reshape(1, 3) @ jnp.ones((3, 2)), jnp.zeros(3))
    with pytest.raises(RuntimeError, match="size 4") as caught:
        module(torch.ones(4, dtype=torch.float64))
    assert "_graph_of_method" not in str(caught.value)


@pytest.mark.parametrize("x64", [False, True])
def test_parameters_have_the_dtypes_of_the_trace(x64):
    """Also where they were wider; keys are their words."""
    with jax.enable_x64(x64):
        params = {"i": np.arange(2), "k": jax.random.key(3), "s": 2.0, "w": np.eye(3) * 0.5}
        fun = lambda p, x: (p["w"] @ x)[p["i"]] * p["s"] + jax.random.normal(p["k"], (2,))
        x = jnp.arange(3.0)
        module, want = torch_bridge.to_torchscript(fun, x, params=params), np.asarray(fun(params, x))
        wide = torch.float64 if x64 else torch.float32
        assert dict(module.named_parameters())["w"].dtype == wide
        got = module(torch.arange(3, dtype=wide))
        np.testing.assert_allclose(got.detach().numpy(), want, rtol=1e-6)
