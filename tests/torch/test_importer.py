"""from_torchscript: scripts, traces and our own files as JAX functions, with their derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

pytest.importorskip("torch.jit", reason="needs PyTorch")

import script_functions
import torch
from torch_helpers import quiet, save_load, write

from quabla_jax import UnsupportedOperationError
from quabla_jax.torch_bridge import from_torchscript, save, to_torchscript
from quabla_jax.torch_bridge.importer import TorchFunction

CALLS = [(f, args) for f, lists in script_functions.CASES.items() for args in lists]


def script(f):
    with quiet():
        return torch.jit.script(f)


def arrays(args):
    return [jnp.asarray(a.numpy()) if isinstance(a, torch.Tensor) else a for a in args]


def assert_equal(got, want):
    if isinstance(want, (tuple, list)):
        assert len(got) == len(want)
        for g, w in zip(got, want, strict=True):
            assert_equal(g, w)
    elif isinstance(want, torch.Tensor):
        assert str(want.dtype) == f"torch.{got.dtype}" and tuple(want.shape) == got.shape, (got, want)
        np.testing.assert_allclose(
            got, want.detach().numpy(), rtol=1e-12 if got.dtype != jnp.float32 else 1e-6, atol=1e-12
        )
    else:
        assert np.asarray(got) == want


def test_there_are_at_least_twenty_scripts():
    assert len(script_functions.CASES) >= 20


@pytest.mark.parametrize("call", range(len(CALLS)), ids=lambda k: f"{CALLS[k][0].__name__}-{k}")
@pytest.mark.parametrize("jit", [False, True], ids=["eager", "jit"])
def test_scripts_written_by_hand(call, jit):
    function, args = CALLS[call]
    scripted = script(function)
    imported = from_torchscript(scripted)
    want = scripted(*args)
    if not jit:
        assert_equal(imported(*arrays(args)), want)
        return
    fixed = [k for k, a in enumerate(args) if not isinstance(a, torch.Tensor)]
    assert_equal(jax.jit(imported, static_argnums=fixed)(*arrays(args)), want)


DIFFERENTIABLE = [
    script_functions.counted, script_functions.while_on_data, script_functions.breaks, script_functions.branch_on_data,
    script_functions.nested_branches, script_functions.loop_in_loop, script_functions.collects, script_functions.newton,
    script_functions.early_return, script_functions.damped,
]  # fmt: skip


@pytest.mark.parametrize("function", DIFFERENTIABLE, ids=lambda f: f.__name__)
def test_gradients_are_torchs(function):
    """Reverse mode, through while loops too."""
    args = script_functions.CASES[function][0]
    scripted = script(function)
    x = args[0].clone().requires_grad_()
    (want,) = torch.autograd.grad(scripted(x, *args[1:]).sum(), x)
    imported = from_torchscript(scripted)
    got = jax.jit(jax.grad(lambda x: imported(x, *args[1:]).sum()))(jnp.asarray(args[0].numpy()))
    np.testing.assert_allclose(got, want.numpy(), rtol=1e-10, atol=1e-12)


def test_vmap_of_a_while_loop():
    imported = from_torchscript(script(script_functions.while_on_data))
    rows = jnp.asarray([[0.1, 0.2], [3.0, -4.0], [0.9, 0.0]])
    np.testing.assert_array_equal(jax.vmap(imported)(rows), jnp.stack([imported(r) for r in rows]))


# ---- there and back


X = jnp.linspace(0.1, 0.9, 4)
XS = jnp.linspace(-1.0, 1.0, 24).reshape(6, 4)
ROUND_TRIPS = {
    "fori": (lambda x: lax.fori_loop(0, 5, lambda i, x: jnp.sin(x) + i, x), (X,)),
    "while": (lambda x: lax.while_loop(lambda x: x.sum() > 1, lambda x: x * 0.5, x), (X,)),
    "cond": (lambda x: lax.cond(x[0] > 0, jnp.sin, lambda x: x * 2, x), (X,)),
    "switch": (lambda i, x: lax.switch(i, [jnp.sin, jnp.cos, jnp.exp, lambda x: x * 3], x), (jnp.int32(2), X)),
    "scan": (lambda x, xs: lax.scan(lambda c, v: (jnp.sin(c) * v, c + v), x, xs), (X, XS)),
    "scan-reverse": (lambda x, xs: lax.scan(lambda c, v: (jnp.sin(c) * v, c), x, xs, reverse=True), (X, XS)),
    "nested": (
        lambda x, xs: lax.scan(
            lambda c, v: (lax.cond(v[0] > 0, lambda c: lax.fori_loop(0, 3, lambda i, c: c * v, c), jnp.sin, c), c), x, xs
        ),
        (X, XS),
    ),
    "gradient": (jax.grad(lambda x, xs: lax.scan(lambda c, v: (jnp.sin(c) * v, None), x, xs)[0].sum()), (X, XS)),
    "rows": (lambda x, xs: lax.fori_loop(0, 5, lambda i, t: t.at[i + 1].set(t[i] * x), xs), (X, XS)),
    "integers": (lambda a: (lax.fori_loop(0, 9, lambda i, a: a * 1103515245 + i, a), a // 3, a >> 2), (jnp.arange(-3, 5, dtype=jnp.int32),)),
    "unsigned": (lambda a: lax.fori_loop(0, 4, lambda i, a: (a << 3) ^ (a >> 5) ^ jnp.uint32(99), a), (jnp.arange(5, dtype=jnp.uint32),)),
    "bits": (lambda s: jax.random.bits(jax.random.key(s), (5,)), (jnp.uint32(3),)),
    "zeros": (lambda x: (lax.fori_loop(0, 3, lambda i, c: jnp.where(c > 9, c, -0.0) * x[0], x), jnp.arange(3) * -0.0), (X,)),
    "constants": (lambda x: (jnp.float32(2.5), lax.scan(lambda c, t: (c + t, t), x[0], jnp.arange(3.0)), True), (X,)),
    "narrow": (lambda a: (a.sum(dtype=jnp.uint8), jnp.cumsum(a), jnp.prod(a, dtype=jnp.int16)), (jnp.arange(1, 9, dtype=jnp.int8),)),
    "bfloat16": (lambda x: lax.fori_loop(0, 3, lambda i, c: c * jnp.bfloat16(1.5) + jnp.arange(4, dtype=jnp.bfloat16), x), (X.astype(jnp.bfloat16),)),
    "mapped": (jax.vmap(lambda v: lax.while_loop(lambda v: v.sum() > 1, lambda v: v * 0.5, v)), (XS + 2,)),
}  # fmt: skip


@pytest.mark.parametrize("name", ROUND_TRIPS)
def test_there_and_back_is_bit_equal(name, tmp_path):
    fun, args = ROUND_TRIPS[name]
    save(to_torchscript(fun, *args), tmp_path / "m.pt")
    back = from_torchscript(tmp_path / "m.pt")
    want = jax.tree.leaves(jax.jit(fun)(*args))
    got = jax.tree.leaves(jax.jit(back)(*args))
    for g, w in zip(got, want, strict=True):
        assert g.dtype == w.dtype and g.shape == w.shape
        np.testing.assert_array_equal(g, w)
        assert g.dtype.kind != "f" or np.array_equal(np.signbit(g), np.signbit(w))


def test_parameters_are_a_pytree_that_trains():
    params = {"w": 0.3 * jnp.eye(4), "b": jnp.zeros(4)}
    fun = lambda p, x: lax.fori_loop(0, 3, lambda i, x: jnp.tanh(p["w"] @ x + p["b"]), x)
    back = from_torchscript(to_torchscript(fun, X, params=params))
    assert sorted(back.params) == ["b", "w"]
    loss = lambda p: back.apply(p, X).sum()
    want = jax.grad(lambda p: fun(p, X).sum())(params)
    got = jax.grad(loss)(back.params)
    for key in params:
        np.testing.assert_allclose(got[key], want[key], rtol=1e-12)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(2, 3, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(3)
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(12, 8), torch.nn.GELU(), torch.nn.LayerNorm(8), torch.nn.Linear(8, 2)
        )

    def forward(self, x):
        x = torch.nn.functional.max_pool2d(torch.relu(self.norm(self.conv(x))), 2)
        return torch.log_softmax(self.layers(x.flatten(1)), dim=-1)


@pytest.mark.parametrize("how", ["script", "trace"])
@pytest.mark.filterwarnings("ignore")
def test_a_network(how):
    torch.manual_seed(0)
    net = Net().double().eval()
    x = torch.randn(5, 2, 4, 4, dtype=torch.float64)
    with quiet():
        module = torch.jit.script(net) if how == "script" else torch.jit.trace(net, x)
    back = from_torchscript(module)
    np.testing.assert_allclose(jax.jit(back)(jnp.asarray(x.numpy())), net(x).detach().numpy(), rtol=1e-10, atol=1e-12)
    assert "layers.0.weight" in back.params


# ---- refusals


def test_an_unknown_operator_is_named_with_its_line():
    def exotic(x: torch.Tensor):
        return torch.special.airy_ai(x)

    with pytest.raises(UnsupportedOperationError, match=r"aten::special_airy_ai.*test_importer\.py") as caught:
        from_torchscript(script(exotic))(X)
    assert caught.value.op == "aten::special_airy_ai"


def test_random_numbers_are_refused():
    def draws(x: torch.Tensor):
        return x + torch.rand(4)

    with pytest.raises(UnsupportedOperationError, match=r"aten::rand draws random numbers.*test_importer\.py"):
        from_torchscript(script(draws))(X)


def test_writing_in_place_is_refused():
    def writes(x: torch.Tensor):
        y = x.clone()
        y[0] = 5.0
        return y

    with pytest.raises(UnsupportedOperationError, match="copy_|fill_"):
        from_torchscript(script(writes))(X)


def test_wrong_files_and_arguments(tmp_path):
    with pytest.raises(FileNotFoundError, match="no file"):
        from_torchscript(tmp_path / "missing.pt")
    (tmp_path / "broken.pt").write_bytes(b"PK\x03\x04 no archive")
    with pytest.raises(ValueError, match="not a TorchScript file"):
        from_torchscript(tmp_path / "broken.pt")
    with pytest.raises(TypeError, match="must be a ScriptModule"):
        from_torchscript(torch.nn.Linear(2, 2))
    back = from_torchscript(script(script_functions.counted))
    assert isinstance(back, TorchFunction)
    with pytest.raises(TypeError, match="takes 1 arguments, 2 given"):
        back(X, X)
    module = to_torchscript(jnp.sin, X)
    write(module, tmp_path / "m.pt")
    with pytest.raises(ValueError, match="no method 'slope'"):
        from_torchscript(save_load(module, tmp_path / "n.pt"), method="slope")


@pytest.mark.parametrize(
    "fun", [lambda u: u // jnp.uint32(3), lambda u: u.astype("float32"), lambda u: u % jnp.uint32(7)]
)
def test_integers_of_more_bits_than_jax_has_are_refused(fun):
    """Unsigned 32-bit numbers are 64-bit ones inside a module: without x64 mode they came back wrong."""
    with jax.enable_x64(False):
        u = jnp.array([2**31, 7], "uint32")
        module = to_torchscript(fun, u)
        with pytest.raises(ValueError, match="jax_enable_x64"):
            from_torchscript(module)(u)
    with jax.enable_x64(True):
        np.testing.assert_array_equal(from_torchscript(module)(u), fun(u))
