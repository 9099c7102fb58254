"""mlx_backend.jit and lower: what goes in and comes out, signatures, errors, threads, memory."""

import gc
import subprocess
import sys
import threading
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

pytest.importorskip("mlx.core", reason="MLX is not installed")

import mlx.core as mx

import quabla_jax
from quabla_jax import mlx_backend
from quabla_jax.mlx_backend import program
from quabla_jax.mlx_backend.target import Target

F32 = jnp.float32


def test_importing_the_package_does_not_import_mlx():
    code = "import sys, quabla_jax.mlx_backend as m; assert 'mlx' not in sys.modules; print(m.is_available())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "True", done.stderr


@pytest.mark.parametrize(
    "dtype",
    ["bool", "int8", "uint16", "int32", "uint64", "float16", "bfloat16", "float32", "float64", "complex64"],
)
def test_every_dtype_goes_in_and_out(dtype):
    x = jnp.asarray([0, 1, 1, 3]).astype(dtype)
    identity = mlx_backend.jit(lambda x: jnp.stack([x, x]))
    out = identity(x)
    assert isinstance(out, jax.Array) and out.dtype == x.dtype and (out == jnp.stack([x, x])).all()
    assert (identity(np.asarray(x)) == out).all()
    native = identity(mx.array([0, 1, 1, 3]).astype(getattr(mx, dtype if dtype != "bool" else "bool_")))
    assert isinstance(native, mx.array)
    if dtype == "bfloat16":
        native, out = native.astype(mx.float32), out.astype(F32)
    assert np.asarray(native).tolist() == np.asarray(out).tolist()


def test_mx_arrays_pass_without_a_copy():
    x = mx.zeros((4,))
    out = mlx_backend.jit(lambda x, y: (x, y + 1))(x, jnp.ones(2, F32))
    assert out[0] is x or np.shares_memory(np.asarray(out[0]), np.asarray(x))
    assert isinstance(out[1], mx.array)


def test_inputs_are_never_written_to():
    x = mx.zeros((4, 4))
    step = mlx_backend.jit(lambda x: lax.fori_loop(0, 100, lambda i, c: c.at[i % 4].add(1.0), x))
    for _ in range(3):
        out = step(x)
        mx.eval(out)
    assert float(mx.sum(x)) == 0 and float(mx.sum(out)) == 400


def test_results_do_not_alias_buffers_that_mlx_reuses():
    ours = mlx_backend.jit(lambda x: x + 1)
    kept = [ours(jnp.full(1000, i, F32)) for i in range(20)]
    assert all((k == i + 1).all() for i, k in enumerate(kept))


def test_pytrees_and_numbers():
    fun = lambda p, k: {"a": p["w"] * k, "b": (p["v"][0], None, [p["v"][1] + 1])}
    p = {"w": jnp.ones(3, F32), "v": (jnp.float32(2), jnp.int32(4))}
    out = mlx_backend.jit(fun)(p, 2.0)
    expected = fun(p, 2.0)
    assert jax.tree.structure(out) == jax.tree.structure(expected)
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(np.asarray(a), np.asarray(b)), out, expected)
    assert out["a"].dtype == F32


def test_keywords_and_static_arguments():
    traces = []

    def fun(x, n, *, mode, scale=1.0):
        traces.append((n, mode))
        return x * n * scale if mode == "mul" else x + n

    ours = mlx_backend.jit(fun, static_argnums=1, static_argnames="mode")
    x = jnp.ones(2, F32)
    assert ours(x, 3, mode="mul").tolist() == [3, 3]
    assert ours(x, 3, mode="add").tolist() == [4, 4]
    assert ours(x, 3, mode="mul", scale=2.0).tolist() == [6, 6]
    assert ours(x + 1, 3, mode="mul").tolist() == [6, 6]
    assert traces == [(3, "mul"), (3, "add"), (3, "mul")]
    with pytest.raises(TypeError, match="hashable"):
        ours(x, [3], mode="mul")
    with pytest.raises(TypeError, match="static_argnums"):
        ours("text", 3, mode="mul")


def test_one_program_a_signature():
    traces = []
    ours = mlx_backend.jit(lambda x: traces.append(x.aval) or x * 2)
    for x in (
        jnp.ones(2, F32),
        jnp.zeros(2, F32),
        mx.ones((2,)),
        np.ones(2, np.float32),
        jnp.ones(3, F32),
        jnp.ones(2, jnp.int32),
    ):
        ours(x)
    assert [(a.shape, a.dtype) for a in traces] == [((2,), F32), ((3,), F32), ((2,), jnp.int32)]
    ours.clear_cache()
    ours(jnp.ones(2, F32))
    assert len(traces) == 4


def test_as_a_decorator():
    @mlx_backend.jit(static_argnames=("n",))
    def power(x, n):
        """Raise x."""
        return x**n

    assert power(jnp.float32(3), n=2) == 9 and power.__name__ == "power" and power.__doc__ == "Raise x."


def test_lower_shows_and_compiles():
    def fun(x):
        return lax.fori_loop(0, 3, lambda i, c: jnp.sin(c), x)

    program = mlx_backend.lower(fun, jax.ShapeDtypeStruct((2,), F32))
    text = program.as_text()
    assert "sin" in text and "3 times" in text and "test_mlx_jit.py" in text
    run = program.compile()
    np.testing.assert_allclose(np.asarray(run(jnp.ones(2, F32))), np.asarray(fun(jnp.ones(2, F32))), rtol=1e-6)
    with pytest.raises(TypeError, match="structure"):
        run((jnp.ones(2, F32),))
    with pytest.raises(TypeError, match="shape"):
        run(jnp.ones(3, F32))


def test_devices():
    x = jnp.ones(2, F32)
    for name in ("mlx", "mlx:cpu"):
        assert mlx_backend.jit(lambda x: x + 1, device=name)(x).tolist() == [2, 2]
    with pytest.raises(ValueError, match='"mlx:cpu"'):
        mlx_backend.jit(lambda x: x, device="cuda")


@pytest.mark.parametrize("door", [mlx_backend.jit, quabla_jax.jit], ids=["mlx_backend.jit", "qb.jit"])
@pytest.mark.parametrize("name", ["mlx", "mlx:cpu", "mlx:gpu"])
def test_each_device_by_its_name(door, name):
    """Control flow and all; a device that is not there is refused by name before anything is traced."""
    fun = lambda x: lax.fori_loop(0, 3, lambda i, c: c * 2, x)
    if name == "mlx:gpu" and not mx.is_available(mx.gpu):
        with pytest.raises(quabla_jax.UnsupportedOperationError, match='"mlx:gpu": this MLX has no GPU') as error:
            door(fun, device=name)
        assert error.value.device == "mlx:gpu"
        return
    ours = door(fun, device=name)
    assert ours(jnp.ones(2, F32)).tolist() == [8, 8]
    assert ours.lower(jnp.ones(2, F32)).compile()(jnp.ones(2, F32)).tolist() == [8, 8]
    assert isinstance(ours(mx.ones(2)), mx.array)


def test_a_lowered_call_takes_what_the_call_took():
    ours = mlx_backend.jit(lambda x, n, *, scale, add: x * scale + n + add, static_argnums=1, static_argnames="add")
    x = jnp.ones(2, F32)
    run = ours.lower(x, 3, scale=F32(2), add=1).compile()
    assert run(x, scale=F32(5)).tolist() == [9, 9]
    with pytest.raises(TypeError, match="structure"):
        run(x)
    with pytest.raises(TypeError, match="no keyword arguments, got y"):
        mlx_backend.lower(lambda x, y: x + y, x, x).compile()(x, y=x)


def test_gradients_of_integers_are_float0():
    fun = jax.grad(lambda x, n: jnp.sum(x**2) * n, argnums=(0, 1), allow_int=True)
    x, n = mlx_backend.jit(fun)(jnp.ones(2, F32), 3)
    assert x.tolist() == [6, 6] and n.dtype == jax.dtypes.float0 and n.shape == ()


def test_the_default_device_is_mlxs_own():
    assert program.target_of("mlx").device == mx.default_device()
    before = mx.default_device()
    mx.set_default_device(mx.Device(mx.cpu, 0))
    try:
        assert program.target_of("mlx").cpu
    finally:
        mx.set_default_device(before)


def test_float64_on_the_gpu_is_float32_with_one_warning(monkeypatch):
    """Run on the CPU device by a target that says it has no float64, as the GPU's does."""

    class NoDouble(Target):
        double = property(lambda self: False)

    monkeypatch.setattr(program, "target_of", lambda device: NoDouble(mx.Device(mx.cpu, 0)))
    monkeypatch.setattr(program, "_warned", threading.Event())
    ours = mlx_backend.jit(lambda x: lax.fori_loop(0, 3, lambda i, c: jnp.sin(c) + i, x))
    x = jnp.linspace(0, 1, 4)
    assert x.dtype == jnp.float64
    with pytest.warns(UserWarning, match="no float64") as found:
        out = ours(x)
        again = mlx_backend.jit(lambda x: x + 1)(x)
    assert len(found) == 1 and out.dtype == again.dtype == jnp.float64
    np.testing.assert_allclose(
        out, jax.jit(lambda x: lax.fori_loop(0, 3, lambda i, c: jnp.sin(c) + i, x))(x), rtol=1e-6
    )
    assert ours(mx.array(np.linspace(0, 1, 4, dtype=np.float32))).dtype == mx.float32


@pytest.mark.parametrize(
    "fun, op",
    [
        (lambda x: lax.linalg.schur(x[None] * x[:, None])[0], "schur"),
        (lambda x: x.astype(jnp.complex128) * 2, None),
        (lambda x: jnp.linalg.eigvals(x[None] * x[:, None].astype(jnp.float64)), None),
        (lambda x: jnp.fft.rfft(x.astype(jnp.float64)), None),
    ],
)
def test_what_cannot_run_is_refused_before_anything_runs(fun, op):
    ran = []

    def noisy(x):
        return fun(jax.pure_callback(lambda a: ran.append(1) or a, jax.ShapeDtypeStruct(x.shape, x.dtype), x))

    with pytest.raises(quabla_jax.errors.UnsupportedOperationError) as error:
        mlx_backend.jit(noisy)(jnp.ones(2, F32))
    assert error.value.device == "mlx" and "test_mlx_jit.py" in str(error.value) and not ran
    assert op is None or error.value.op == op
    assert isinstance(error.value, NotImplementedError)


def test_several_threads_at_once():
    fun = lambda x, n: lax.fori_loop(0, 60, lambda i, c: jnp.tanh(c) + n, x)
    ours = mlx_backend.jit(fun)
    expected = {n: np.asarray(fun(jnp.ones(3, F32), F32(n))) for n in range(4)}
    wrong = []

    def work(n):
        try:
            for k in range(6):
                x = jnp.ones(3, F32) if k % 2 else mx.ones((3,))
                got = np.asarray(ours(x, F32(n)))
                if not np.allclose(got, expected[n], rtol=1e-5):
                    wrong.append((n, got))
        except BaseException as error:  # noqa: BLE001 a thread's error must reach the test
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_a_dropped_program_gives_its_memory_back():
    big = np.random.default_rng(0).normal(size=(1 << 20,)).astype(np.float32)
    gc.collect()
    before = mx.get_active_memory()
    ours = mlx_backend.jit(lambda x: x * big + big)
    for _ in range(4):
        out = ours(mx.ones((1 << 20,)))
        mx.eval(out)
    program = weakref.ref(ours.lower(mx.ones((1 << 20,))))
    del out
    assert mx.get_active_memory() - before >= big.nbytes
    del ours
    gc.collect()
    jax.clear_caches()
    assert program() is None
    assert mx.get_active_memory() - before < big.nbytes // 4


def test_reading_a_jax_array_does_not_detour_results():
    """With float64 on, float64 stays float64 on the CPU device."""
    x = jnp.linspace(0, 1, 5)
    assert x.dtype == jnp.float64
    out = mlx_backend.jit(lambda x: jnp.exp(jnp.sin(x)) / 3)(x)
    np.testing.assert_allclose(np.asarray(out), np.exp(np.sin(np.asarray(x))) / 3, rtol=1e-15)


@pytest.mark.parametrize(
    "value, said",
    [
        (np.array([None, 1], object), "dtype object"),
        (np.array(["a"]), "dtype <U1"),
        (np.array(["2026-01-01"], "datetime64[D]"), "datetime64"),
        (np.zeros(2, [("a", "f4")]), "fixed width"),
        (np.arange(3, dtype=np.dtype("f4").newbyteorder("S")), "byte order"),
        (np.arange(3, dtype=np.longdouble), "dtype float128|dtype longdouble"),
        (memoryview(b"abc"), "memoryview"),
        ("text", "str"),
    ],
)
def test_what_is_no_array_is_refused_by_name(value, said):
    traces = []
    ours = mlx_backend.jit(lambda x, y: traces.append(1) or x)
    with pytest.raises(TypeError, match=said):
        ours(value, jnp.ones(2, F32))
    with pytest.raises(TypeError, match=said):
        mlx_backend.lower(lambda x: x, {"a": value})
    assert not traces


def test_foreign_tensors_are_refused_by_name():
    pytest.importorskip("torch.nn", reason="needs PyTorch")  # a folder of tests is named torch, too
    import torch

    tensor = torch.ones(3)
    with pytest.raises(TypeError, match="got a torch Tensor; give NumPy's view"):
        mlx_backend.jit(lambda x: x)(tensor)
    with pytest.raises(TypeError, match="must return arrays that JAX has, got a mlx array"):
        mlx_backend.jit(lambda x: (x, mx.ones(2)))(jnp.ones(2, F32))


def test_weak_types_of_results_are_jaxs():
    fun = lambda x, y: (x * 2, y, 3, x + y, jnp.asarray(1.0))
    ours, expected = mlx_backend.jit(fun)(3.0, jnp.ones(2, F32)), jax.jit(fun)(3.0, jnp.ones(2, F32))
    assert [o.weak_type for o in ours] == [e.weak_type for e in expected] == [True, False, True, False, True]
    assert (ours[0] * jnp.ones(2, jnp.float16)).dtype == jnp.float16


def test_a_lowered_program_refuses_what_would_lose_something():
    run = mlx_backend.lower(lambda x, d: x @ d["w"], jnp.ones((2, 3), F32), {"w": jnp.ones((3, 2), F32)}).compile()
    w = {"w": jnp.ones((3, 2), F32)}
    for x in (jnp.ones((2, 3), int), jnp.ones((2, 3), jnp.complex64), mx.ones((2, 3), dtype=mx.complex64), 3.0, "a"):
        with pytest.raises(TypeError, match=r"argument \[0\]: this program was lowered for float32 of shape \(2, 3\)"):
            run(x, w)
    with pytest.raises(TypeError, match=r"argument \[1\]\['w'\].*bool\[3, 2\]"):
        run(mx.ones((2, 3)), {"w": np.ones((3, 2), bool)})
    with jax.enable_x64(False):
        assert run(np.ones((2, 3)), w).tolist() == [[3, 3], [3, 3]]  # float64 is float32 here, as for JAX
        number = mlx_backend.lower(lambda x: x + 1, 3).compile()
        assert number(4) == 5 and number(True) == 2
        for x in (2.7, 1j, 2**40, jnp.float32(1)):
            with pytest.raises(TypeError, match="lowered for int32"):
                number(x)
        draw = mlx_backend.lower(lambda k: jax.random.bits(k), jax.random.key(0)).compile()
        assert draw(jax.random.key(1)) == draw(jax.random.PRNGKey(1)) == jax.random.bits(jax.random.key(1))
        with pytest.raises(TypeError, match="lowered for uint32"):
            draw(jnp.ones(2))


def test_static_arguments_follow_the_signature_as_in_jax():
    fun = lambda x, n: x * jnp.ones(n)
    x = jnp.ones(1, F32)
    for options in ({"static_argnums": 1}, {"static_argnums": -1}, {"static_argnames": "n"}):
        ours = mlx_backend.jit(fun, **options)
        assert ours(x, 3).shape == ours(x, n=3).shape == (3,)
    assert mlx_backend.jit(lambda x: x, static_argnums=None, static_argnames=None)(x) == 1
    for options, said in (({"static_argnums": 5}, "out of range"), ({"static_argnames": "zz"}, "'zz'")):
        with pytest.raises(ValueError, match=said):
            mlx_backend.jit(fun, **options)
    with pytest.raises(TypeError, match="static_argnames must be a str"):
        mlx_backend.jit(fun, static_argnames=3)
    kind = mlx_backend.jit(lambda x, n: x * {bool: 2, int: 3, float: 4}[type(n)], static_argnums=1)
    assert [float(kind(x, n)[0]) for n in (1, True, 1.0)] == [3, 2, 4]


def test_a_call_within_a_trace():
    """One function on MLX may call another; what JAX itself traces cannot."""
    double = mlx_backend.jit(lambda x: 2 * x)
    x = jnp.ones(3, F32)
    assert mlx_backend.jit(lambda x: jax.grad(lambda y: double(y).sum())(x) + double(x))(x).tolist() == [4, 4, 4]
    for transform in (jax.jit, jax.vmap, lambda f: jax.grad(lambda x: f(x).sum())):
        with pytest.raises(quabla_jax.TracerError, match=r"mlx_backend.jit\(jax.grad\(f\)\)"):
            transform(double)(x)


def test_as_a_method():
    class Model:
        @mlx_backend.jit(static_argnums=0)
        def apply(self, x):
            return x + 1

    assert Model().apply(jnp.ones(2, F32)).tolist() == [2, 2]


@pytest.mark.parametrize("calls", [1, 4])
def test_assigning_to_a_result_reaches_nothing_else(calls):
    """Not an argument, not a constant of the program, not another result."""
    table = jnp.arange(300.0, dtype=F32)
    for fun in (lambda x: (x, x, table), lambda x: (x, x + 0, table), lambda x: x):
        ours = mlx_backend.jit(fun)
        for _ in range(calls):
            x = mx.zeros(3)
            out = jax.tree.leaves(ours(x))
            for k, leaf in enumerate(out):
                leaf[1] = 7 + k
            assert x.tolist() == [0, 0, 0] and [float(leaf[1]) for leaf in out] == [7 + k for k in range(len(out))]


def test_dtypes_that_mlx_lacks_are_refused_without_any_op_too():
    with jax.enable_x64(True):
        for fun in (lambda x: x, lambda x: x + 1):
            with pytest.raises(quabla_jax.UnsupportedOperationError, match="complex128; cast to complex64"):
                mlx_backend.jit(fun)(np.ones(2, complex))
    with pytest.raises(quabla_jax.UnsupportedOperationError, match="an argument of .* no dtype float4_e2m1fn"):
        mlx_backend.jit(lambda x: x)(jnp.ones(2, jnp.float4_e2m1fn))


@pytest.mark.parametrize("x64, small, big", [(False, 3, 2**40), (True, 3, 2**63)])
def test_python_ints_that_do_not_fit_are_refused_at_every_call(x64, small, big):
    with jax.enable_x64(x64):
        ours = mlx_backend.jit(lambda x: x + 1)
        assert ours(small) == small + 1
        with pytest.raises(OverflowError):
            ours(big)
        with pytest.raises(OverflowError):
            mlx_backend.jit(lambda x: x + 1)(big)


def test_symbolic_shapes_are_refused():
    (n,) = jax.export.symbolic_shape("n")
    with pytest.raises(TypeError, match="fixed shapes"):
        mlx_backend.lower(lambda x: x + 1, jax.ShapeDtypeStruct((n,), F32))
