"""Many threads at once, and interruption: right results, settings that stay in their thread, caches usable afterwards.

THREAD_SECONDS sets how long the sixteen threads go on (3 by default).
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import quabla_jax as qb
from quabla_jax import compat
from quabla_jax._interrupts import interruptible
from quabla_jax.compat import lax

SECONDS = float(os.environ.get("THREAD_SECONDS", "3"))
THREADS = 16


def scale(k):
    """Another for every k, and small enough that the loop forgets rounding."""
    return 1.0 + (k % 997) / 1000


def program(k):
    """A loop whose body, length and carry differ with k."""

    def f(x):
        return qb.fori_loop(0, 3 + k % 5, lambda i, c: qb.sin(c) * scale(k) + i, x).sum()

    return f


def expected(k, x):
    value, slope = x, np.ones_like(x)
    for i in range(3 + k % 5):
        value, slope = np.sin(value) * scale(k) + i, slope * np.cos(value) * scale(k)
    return value.sum(), slope


def on_xla(k, x):
    value, slope = qb.jit(qb.value_and_grad(program(k)))(jnp.asarray(x))
    return value, slope


def on_mlx(k, x):
    from quabla_jax import mlx_backend

    value, slope = mlx_backend.jit(jax.value_and_grad(program(k)))(jnp.asarray(x))
    return value, slope


def on_torch(k, x):
    import torch

    from quabla_jax.torch_bridge import to_torchscript

    module = to_torchscript(jax.value_and_grad(program(k)), jnp.asarray(x))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [part.numpy() for part in module(torch.from_numpy(x))]


def in_threads(work):
    """work(thread number) in sixteen threads; the first exception is raised here."""
    failures = []

    def guarded(k):
        try:
            work(k)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(k,)) for k in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS + 300)
        assert not thread.is_alive(), "a thread hangs"
    if failures:
        raise failures[0]


@pytest.mark.parametrize(
    "target, library", [(on_xla, "jax"), (on_mlx, "mlx.core"), (on_torch, "torch.jit")], ids=["xla", "mlx", "torch"]
)
def test_sixteen_threads_trace_compile_and_run(target, library):
    pytest.importorskip(library, reason=f"runs on {library}")
    done, stop = [0] * THREADS, time.monotonic() + SECONDS

    def work(thread):
        while time.monotonic() < stop or not done[thread]:
            k = thread + THREADS * done[thread]
            x = np.linspace(0.1, 1.0, 2 + k % 3)
            value, slope = target(k, x)
            want, want_slope = expected(k, x)
            np.testing.assert_allclose(value, want, rtol=1e-9)
            np.testing.assert_allclose(slope, want_slope, rtol=1e-9)
            done[thread] += 1

    in_threads(work)
    print(f"\n{target.__name__}: {sum(done)} programs in {THREADS} threads, {SECONDS} s")


def test_modules_are_scripted_one_at_a_time(monkeypatch):
    """PyTorch parses source there, and CPython 3.11 cannot parse in two threads at once."""
    torch = pytest.importorskip("torch", reason="runs on PyTorch")
    from quabla_jax.torch_bridge import _torch_api

    inside, most = [], [0]

    def create(*_, **__):
        inside.append(1)
        most[0] = max(most[0], len(inside))
        time.sleep(0.005)
        inside.pop()

    monkeypatch.setattr(torch.jit._recursive, "create_script_module", create)
    in_threads(lambda _: _torch_api.script_module(torch.nn.Module()))
    assert most == [1]


def test_all_targets_at_once():
    for library in ("mlx.core", "torch.jit"):
        pytest.importorskip(library, reason=f"runs on {library}")

    def work(k):
        x = np.linspace(0.1, 1.0, 2 + k % 3)
        value, slope = (on_xla, on_mlx, on_torch)[k % 3](k, x)
        want, want_slope = expected(k, x)
        np.testing.assert_allclose(value, want, rtol=1e-9)
        np.testing.assert_allclose(slope, want_slope, rtol=1e-9)

    in_threads(work)


def test_one_jitted_function_in_every_thread():
    """One trace a signature, and one result, when sixteen threads call one function at the same moment."""
    traces, gate = [], threading.Barrier(THREADS)
    f = qb.jit(lambda x: traces.append(1) or program(2)(x))
    x = np.linspace(0.1, 1.0, 4)

    def work(k):
        gate.wait(60)
        for _ in range(20):
            np.testing.assert_allclose(f(jnp.asarray(x)), expected(2, x)[0], rtol=1e-9)

    in_threads(work)
    assert 1 <= len(traces) <= THREADS


def test_patched_stays_in_its_thread():
    gate = threading.Barrier(THREADS)

    def work(k):
        with compat.patched(checkpoint=k + 1) if k % 2 else contextlib.nullcontext():
            gate.wait(60)
            for _ in range(50):
                settings = compat.active()
                assert (settings.checkpoint if settings else None) == (k + 1 if k % 2 else None)
            gate.wait(60)
            text = str(jax.make_jaxpr(jax.grad(lambda x: jax.lax.fori_loop(0, 50, lambda i, c: jnp.sin(c), x)))(1.0))
            assert ("checkpointed_loop" in text) == bool(k % 2), text
        assert compat.active() is None

    in_threads(work)
    assert compat.active() is None


def test_checkpointing_stays_in_its_thread():
    from quabla_jax.loops.plan import current_default

    gate = threading.Barrier(THREADS)

    def work(k):
        with qb.checkpointing(k + 1):
            gate.wait(60)
            assert current_default() == k + 1
        assert current_default() == "auto"

    in_threads(work)


@contextlib.contextmanager
def interrupted_after(seconds):
    """SIGINT to this process after `seconds`, as Ctrl-C sends it."""
    timer = threading.Timer(seconds, signal.raise_signal, [signal.SIGINT])
    timer.start()
    try:
        with interruptible():
            yield
    finally:
        timer.cancel()
        timer.join()


class Finalised:
    """Deleted, it is interrupted in its finaliser, where the exception cannot be raised."""

    def __del__(self):
        signal.raise_signal(signal.SIGINT)
        time.sleep(0.05)  # past the time at which the interrupt is sent again


class Failing:
    def __del__(self):
        raise OSError("not an interrupt")


def test_an_interrupt_that_a_finaliser_swallows_is_sent_again(capsys, monkeypatch):
    reported = []
    monkeypatch.setattr(sys, "unraisablehook", reported.append)
    with pytest.raises(KeyboardInterrupt), interruptible():
        Failing()
        Finalised()
        until = time.monotonic() + 60
        while time.monotonic() < until:
            time.sleep(0.001)
    assert [r.exc_type for r in reported] == [OSError] and capsys.readouterr().err == ""
    with interruptible():
        Failing()
    assert reported[-1].exc_type is OSError and sys.unraisablehook == reported.append


def test_interruption_of_a_python_loop():
    with pytest.raises(KeyboardInterrupt), interrupted_after(0.2):
        qb.while_loop(lambda c: c >= 0.0, lambda c: c + 1.0, 0.0)
    assert float(qb.fori_loop(0, 3, lambda i, c: c + 1.0, 0.0)) == 3.0


def test_interruption_while_tracing_leaves_the_cache_usable():
    calls = []

    def f(x):
        calls.append(1)
        if len(calls) == 1:
            signal.raise_signal(signal.SIGINT)
        return qb.fori_loop(0, 3, lambda i, c: c * 2.0, x)

    for transform in (qb.jit, jax.jit):
        calls.clear()
        g = transform(f)
        with pytest.raises(KeyboardInterrupt):
            g(jnp.ones(2))
        np.testing.assert_array_equal(g(jnp.ones(2)), [8.0, 8.0])


def test_interruption_inside_a_loop_body_while_differentiating():
    calls = []

    def body(i, c):
        calls.append(1)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return jnp.sin(c)

    f = jax.grad(lambda x: lax.fori_loop(0, 50, body, x, checkpoint="sqrt"))
    with pytest.raises(KeyboardInterrupt):
        f(1.0)
    want = jax.grad(lambda x: jax.lax.fori_loop(0, 50, lambda i, c: jnp.sin(c), x))(1.0)
    np.testing.assert_allclose(f(1.0), want, rtol=1e-12)


def test_interruption_inside_patched_and_checkpointing():
    with pytest.raises(KeyboardInterrupt):
        with compat.patched(), qb.checkpointing("sqrt"):
            raise KeyboardInterrupt
    assert compat.active() is None


@pytest.mark.parametrize("step", ["replace", "fsync", "chmod"])
def test_interruption_of_a_save_leaves_the_old_file(tmp_path, monkeypatch, step):
    path = tmp_path / "model"
    qb.save(path, {"a": 1.0})

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, step, interrupt)
        with pytest.raises(KeyboardInterrupt):
            qb.save(path, {"a": 2.0})
    assert qb.load(path) == {"a": 1.0} and os.listdir(tmp_path) == ["model"]
    qb.save(path, {"a": 3.0})
    assert qb.load(path) == {"a": 3.0}


COMPILING = """
import signal, threading, warnings
import jax, jax.numpy as jnp, numpy as np
import quabla_jax as qb

from jax._src import compiler

f = lambda x: qb.fori_loop(0, 3, lambda i, c: c * 2.0, x)
whole = compiler.backend_compile_and_load
armed = [True]

def interrupted(*args, **keywords):
    result = whole(*args, **keywords)
    if armed[0]:
        armed[0] = False
        signal.raise_signal(signal.SIGINT)  # XLA is done and the result is not stored yet
    return result

compiler.backend_compile_and_load = interrupted
for transform in (qb.jit, lambda f: qb.jit(qb.grad(lambda x: f(x).sum())), jax.jit):
    g, armed[0] = transform(f), True
    try:
        g(jnp.ones(2))
    except KeyboardInterrupt:
        assert not armed[0]
    else:
        raise SystemExit("not interrupted")
    np.testing.assert_array_equal(g(jnp.ones(2)), [8.0, 8.0])

deep = lambda x: [x := jnp.sin(x) @ x for _ in range(400)][-1]
timer = threading.Timer(0.5, signal.raise_signal, [signal.SIGINT])
g = qb.jit(deep)
timer.start()
try:
    g(jnp.eye(3) * 0.1)  # wherever half a second leads: into tracing or into XLA
except KeyboardInterrupt:
    print("interrupted at work")
timer.join()
np.testing.assert_allclose(g(jnp.eye(3) * 0.1), jax.jit(deep)(jnp.eye(3) * 0.1))
np.testing.assert_array_equal(qb.jit(f)(jnp.ones(2)), [8.0, 8.0])
print("usable")
"""


def test_interruption_of_a_compilation_leaves_the_caches_usable():
    """In a process of its own: an interrupt that came late would end the test run."""
    run = subprocess.run([sys.executable, "-c", COMPILING], capture_output=True, text=True, timeout=300)
    assert run.returncode == 0 and run.stdout.endswith("usable\n"), run.stdout + run.stderr[-3000:]


FORKING = """
import os, sys, warnings
import quabla_jax as qb
import numpy as np

started = sys.argv[1] == "started"
if started:
    qb.jit(lambda x: qb.sin(x) * 2.0)(np.ones(3))
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    child = os.fork()
    if child == 0:
        out = 1
        try:
            if not started:
                grad = qb.grad(lambda x: qb.fori_loop(0, 40, lambda i, c: qb.sin(c), x).sum())(np.ones(3))
                out = 0 if np.isfinite(np.asarray(grad)).all() else 2
            else:
                out = 0
        finally:
            os._exit(out)
print("warned", any("fork" in str(w.message) for w in seen))
print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
if started:
    np.testing.assert_allclose(qb.jit(lambda x: qb.sin(x) * 2.0)(np.ones(3)), 2 * np.sin(1.0) * np.ones(3))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize("started", ["imported", "started"])
def test_fork_after_import(started):
    """A child of a process that has only imported the library computes; once XLA's threads run, fork warns plainly."""
    run = subprocess.run([sys.executable, "-c", FORKING, started], capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr[-3000:]
    assert "child 0" in run.stdout
    assert "warned True" in run.stdout or started == "imported"
