"""jit: signatures, the bounded trace cache and its warning, static arguments, devices, lowering."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import quabla_jax as qb


def counting(f):
    calls = []

    def counted(*args, **keywords):
        calls.append(args)
        return f(*args, **keywords)

    return counted, calls


def test_arrays_share_a_trace_and_scalars_are_part_of_the_signature():
    f, calls = counting(lambda x, k: x * k)
    j = qb.jit(f)
    x = qb.array([1.0, 2.0])
    traces = []
    for k in (1, 1.0, True, 0.0, -0.0, float("nan"), float("nan"), 1):
        j(x, k)
        traces.append(len(calls))
    assert traces == [1, 2, 3, 4, 5, 6, 6, 6]
    j(x, qb.array(1.0)), j(x, qb.array(9.0)), j(x + 1.0, qb.array(5.0))
    assert len(calls) == 7


def test_constants_come_back_as_the_same_python_objects():
    marker = object()
    out = qb.jit(lambda x: (1, 2.0, True, "s", None, x, marker))(qb.array(3.0))
    assert out[:5] == (1, 2.0, True, "s", None) and type(out[2]) is bool and out[6] is marker and out[5] == 3.0


def test_the_cache_drops_the_least_recently_used_trace_and_names_both_signatures():
    f, calls = counting(lambda x, k: x * k)
    j = qb.jit(f, max_traces=2)
    x, y = qb.array([1.0, 2.0]), {"a": (qb.array(1.0), -0.0)}
    j(x, 1), j(x, 2), j(x, 1)
    with pytest.warns(qb.RetraceWarning) as warned:
        j(x, 3)
    text = str(warned[0].message)
    assert "jit(counted) exceeded max_traces=2" in text
    assert "(float64[2], 2)" in text and "new signature:\n  (float64[2], 3)" in text
    assert warned[0].filename == __file__
    count = len(calls)
    j(x, 1), j(x, 3)
    assert len(calls) == count
    with pytest.warns(qb.RetraceWarning, match=r"\(float64\[2\], 1\)"):
        j(x, 2)
    g = qb.jit(lambda p: p["a"][0], max_traces=1)
    g(y)
    with pytest.warns(qb.RetraceWarning) as warned:
        g({"a": (qb.array(1.0), 0.0)})
    assert "({'a': (float64[], -0.0)},)" in str(warned[0].message)


def test_grad_and_vmap_share_the_rule():
    g = qb.grad(lambda x, k: x * k)
    for k in range(8):
        g(qb.array(1.0), float(k))
    with pytest.warns(qb.RetraceWarning, match="max_traces=8"):
        g(qb.array(1.0), 8.0)


def test_making_the_transform_anew_finds_the_old_trace():
    f, calls = counting(lambda x: x * x)
    x = qb.array(3.0)
    assert qb.grad(f)(x) == 6.0 and qb.grad(f)(x + 1.0) == 8.0 and len(calls) == 1
    assert qb.jit(qb.grad(f))(x) == 6.0 and qb.jit(qb.grad(f))(x) == 6.0 and len(calls) == 2
    assert qb.grad(f, argnums=(0,))(x) == (6.0,) and len(calls) == 3


def test_the_cache_does_not_keep_the_function_alive():
    import gc
    import weakref

    def f(x):
        return x * 2.0

    qb.jit(f)(qb.array(1.0))
    qb.grad(f)(qb.array(1.0))
    ref = weakref.ref(f)
    del f
    gc.collect()
    assert ref() is None


@pytest.mark.parametrize("bad", [0, -1, True, 2.0, "3"])
def test_max_traces_is_a_positive_int(bad):
    with pytest.raises(ValueError, match="max_traces must be a positive int"):
        qb.jit(lambda x: x, max_traces=bad)


def test_static_arguments():
    def power(x, n=2, *, scale=1.0):
        return x**n * scale

    x = qb.array(3.0)
    assert qb.jit(power, static_argnums=1)(x, 3) == 27.0
    assert qb.jit(power, static_argnums=-1)(x, 3) == 27.0
    assert qb.jit(power, static_argnames="n")(x, n=3) == 27.0
    assert qb.jit(power, static_argnames=("n", "scale"))(x, n=3, scale=2.0) == 54.0
    assert qb.jit(static_argnames="n")(power)(x, 3) == 27.0
    kept = object()
    assert qb.jit(lambda x, o: (x, o is kept), static_argnums=1)(x, kept)[1]
    with pytest.raises(TypeError, match="static argument 1 must be hashable, got list"):
        qb.jit(power, static_argnums=1)(x, [3])
    with pytest.raises(TypeError, match="static keyword argument 'scale' must be hashable, got list"):
        qb.jit(power, static_argnames="scale")(x, scale=[3])
    with pytest.raises(ValueError, match="out of range for a call with 1 positional"):
        qb.jit(power, static_argnums=1)(x)
    with pytest.raises(ValueError, match="are not parameters of"):
        qb.jit(power, static_argnames="m")
    with pytest.raises(TypeError, match="'scale', which is not static"):
        qb.jit(power)(x, scale=2.0)
    with pytest.raises(TypeError, match="multiple values for argument 'x'"):
        qb.jit(power)(x, x=2.0)
    with pytest.raises(TypeError, match="cannot pass static keyword arguments"):
        qb.jit(qb.grad(power), static_argnames="scale")(x, scale=2.0)


def test_a_keyword_that_names_the_next_parameter_shares_the_trace():
    f, calls = counting(lambda x, y: x - y)

    def g(x, y):
        return f(x, y)

    j = qb.jit(g)
    x, y = qb.array(3.0), qb.array(1.0)
    assert j(x, y) == j(x, y=y) == j(y=y, x=x) == 2.0 and len(calls) == 1


def test_devices():
    f = lambda x: x * 2.0
    x = qb.array([1.0, 2.0])
    on_cpu = qb.jit(f, device="cpu")(x)
    np.testing.assert_array_equal(on_cpu, [2.0, 4.0])
    assert on_cpu.devices() == {jax.devices("cpu")[0]}
    for bad in ("gpu", "cuda:", "cuda:x", "cpu:1", 3, "", "tpu:0"):
        with pytest.raises(ValueError, match="device must be None, 'cpu', 'cuda', 'cuda:N', or 'mlx'"):
            qb.jit(f, device=bad)
    platforms = {d.platform for d in jax.devices()}
    for name, platform in (("cuda", "gpu"), ("cuda:7", "gpu"), ("tpu", "tpu")):
        if platform not in platforms:
            with pytest.raises(qb.UnsupportedOperationError) as info:
                qb.jit(f, device=name)
            assert info.value.device == name.partition(":")[0] and repr(name) in str(info.value)


def test_precision():
    f = lambda x: x * 2.0
    assert qb.jit(f, precision="float64")(qb.array(1.0)) == 2.0
    with pytest.raises(ValueError, match="precision must be None or \"float64\", got 'float32'"):
        qb.jit(f, precision="float32")
    with pytest.raises(qb.UnsupportedOperationError):
        qb.jit(f, device="mlx", precision="float64")


def test_lower_as_text_and_compile():
    j = qb.jit(lambda p, k: {"y": qb.sin(p["x"]) * k, "k": k})
    lowered = j.lower({"x": qb.ShapeDtype((2,))}, 3)
    assert "sine" in lowered.as_text() and "tensor<2xf64>" in lowered.as_text()
    assert "sin" in str(lowered.program)
    compiled = lowered.compile()
    x = qb.array([1.0, 2.0])
    out = compiled({"x": x}, 3)
    np.testing.assert_allclose(out["y"], 3 * np.sin([1.0, 2.0]), rtol=1e-15)
    assert out["k"] == 3
    for wrong in (
        ({"x": x}, 4),
        ({"x": qb.array(1.0)}, 3),
        ({"z": x}, 3),
        ({"x": qb.array([1.0, 2.0], dtype=qb.float32)}, 3),
    ):
        with pytest.raises(ValueError, match="must match its input structure, shapes, dtypes and statics"):
            compiled(*wrong)
    assert not hasattr(qb.grad(lambda x: x), "lower")


def test_repr_names_the_chain():
    def f(x):
        return x

    assert repr(qb.jit(qb.grad(f))) == "jit(grad(f))"
    assert repr(qb.vmap(qb.value_and_grad(f))) == "vmap(value_and_grad(f))"
    assert repr(qb.hessian(f)) == "hessian(grad(f))"


def test_inside_jax_transforms_and_around_jax_functions():
    f = qb.jit(lambda x: jnp.sin(x) * x)
    x = jnp.asarray(0.5)
    wanted = np.cos(0.5) * 0.5 + np.sin(0.5)
    np.testing.assert_allclose(jax.grad(f)(x), wanted, rtol=1e-15)
    np.testing.assert_allclose(jax.jit(jax.grad(f))(x), wanted, rtol=1e-15)
    np.testing.assert_allclose(qb.grad(jax.jit(lambda x: jnp.sin(x) * x))(x), wanted, rtol=1e-15)
    np.testing.assert_allclose(jax.vmap(qb.grad(f))(jnp.stack([x, x])), [wanted, wanted], rtol=1e-15)


def test_no_warning_below_the_limit():
    j = qb.jit(lambda x, k: x * k)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for k in range(8):
            j(qb.array(1.0), k)


@pytest.mark.parametrize("f", [qb.floor, qb.stop_gradient, lambda x: 3.0 * x], ids=["floor", "stop_gradient", "linear"])
def test_derivatives_that_do_not_depend_on_the_input_can_be_differentiated(f):
    second = {
        "grad of grad": lambda x: qb.grad(qb.grad(f))(x),
        "hessian": lambda x: qb.hessian(f)(x),
        "jvp of grad": lambda x: qb.jvp(qb.grad(f), (x,), (1.0,))[1],
        "grad of jvp": lambda x: qb.grad(lambda x: qb.jvp(f, (x,), (1.0,))[1])(x),
        "grad of vjp": lambda x: qb.grad(lambda x: qb.vjp(f, x)[1](1.0)[0])(x),
        "grad of jacobian": lambda x: qb.grad(qb.jacobian(f))(x),
    }
    assert {name: float(run(qb.array(2.5))) for name, run in second.items()} == dict.fromkeys(second, 0.0)


def test_calls_that_were_seen_give_what_the_first_one_gave():
    """Python scalars and NumPy arrays take the short way too: by type and exact value, and by what the array holds now."""
    traces = []

    @qb.jit
    def f(x, options):
        traces.append(1)
        return x * options["scale"], options["scale"]

    buffer = np.array([1.0, -2.0])
    for scale in (2, 2.0, True, -0.0, 0.0, float("nan"), float("nan")):
        before = len(traces)
        for _ in range(3):
            out, same = f(buffer, {"scale": scale})
            np.testing.assert_array_equal(np.asarray(out), buffer * scale)
            assert type(same) is type(scale) and repr(same) == repr(scale)
            buffer[0] += 1.0
        assert len(traces) - before == (0 if scale != scale and before == 6 else 1)
    f(buffer.astype(np.float32), {"scale": 2})
    f(buffer.astype(">f8"), {"scale": 2})
    assert len(traces) == 7
    slope = qb.jit(qb.grad(lambda x, y: qb.sum(x * y)))
    for x in (2.0, 3.0):
        for _ in range(2):
            assert float(slope(x, buffer)) == buffer.sum()
            assert float(qb.grad(lambda x: x * x)(x)) == 2 * x
