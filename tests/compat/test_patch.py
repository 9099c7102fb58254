"""patched(), install(), uninstall() and the command line: who is served, when, and that nothing is left behind."""

import functools
import os
import subprocess
import sys
import threading
import zipfile

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.lax import fori_loop, scan

from quabla_jax import compat, loops
from quabla_jax.compat import install, patched, uninstall
from quabla_jax.compat.lax import CONTROL_FLOW
from quabla_jax.lowering import jax_api

XS = jnp.arange(4.0)
held_scan = functools.partial(scan, lambda c, x: (c + x, c))


class Holder:
    scan = staticmethod(scan)


def with_default(scan=scan):
    return scan(lambda c, x: (c + x, c), 0.0, XS)


def sums(scan=None):
    return (scan or jax.lax.scan)(lambda c, x: (c + x, c), 0.0, XS)


CELLS = [jax_api.inner_function_cell(getattr(jax.lax, name)) for name in CONTROL_FLOW]


def contents():
    return [cell.cell_contents for cell in CELLS]


def test_nothing_is_changed_outside(engine_calls):
    sums()
    assert not engine_calls and compat.active() is None


def test_every_reference_is_served(engine_calls):
    callers = {
        "attribute": lambda: sums(jax.lax.scan),
        "imported name": lambda: sums(scan),
        "partial": lambda: held_scan(0.0, XS),
        "class attribute": lambda: sums(Holder.scan),
        "default argument": with_default,
        "through vmap": lambda: jax.vmap(held_scan)(jnp.zeros(2), jnp.ones((2, 3))),
        "through jit": lambda: jax.jit(held_scan)(0.0, XS),
        "through checkpoint": lambda: jax.checkpoint(held_scan)(0.0, XS),
        "map": lambda: jax.lax.map(jnp.sin, XS),
    }
    for name, call in callers.items():
        before = engine_calls["scan"]
        want = call()
        assert engine_calls["scan"] == before
        with patched():
            got = call()
        assert engine_calls["scan"] == before + 1, name
        jax.tree.map(np.testing.assert_array_equal, got, want)


def test_all_functions_are_served(engine_calls):
    with patched():
        jax.lax.cond(True, jnp.sin, jnp.cos, 1.0)
        jax.lax.switch(1, [jnp.sin, jnp.cos], 1.0)
        jax.lax.while_loop(lambda c: c < 3, lambda c: c + 1, 0)
        fori_loop(0, 3, lambda i, c: c + i, 0)
    assert engine_calls == {"cond": 1, "switch": 1, "while_loop": 1, "fori_loop": 1}


def test_the_objects_stay_the_same():
    before = [getattr(jax.lax, name) for name in CONTROL_FLOW]
    with patched():
        assert [getattr(jax.lax, name) for name in CONTROL_FLOW] == before
        assert jax.lax.scan is scan


def test_restored_exactly_also_after_exceptions():
    before = contents()
    with patched():
        assert all(a is not b for a, b in zip(before, contents()))
        with pytest.raises(ZeroDivisionError):
            with patched(3):
                raise ZeroDivisionError
        assert compat.active() == compat.active().__class__()
    assert all(a is b for a, b in zip(before, contents()))
    with pytest.raises(TypeError):
        with patched():
            jax.lax.scan(lambda c, x: (c.astype(jnp.int32), x), 0.0, XS)
    assert all(a is b for a, b in zip(before, contents())) and compat.active() is None


def test_nested_contexts_count_from_inside(monkeypatch):
    seen = []
    real = loops.scan
    monkeypatch.setattr(loops, "scan", lambda *a, **k: (seen.append(k.get("checkpoint")), real(*a, **k))[1])
    with patched("full"):
        sums()
        with patched("sqrt"):
            sums()
            with patched():
                sums()
        sums()
        jax.lax.scan(lambda c, x: (c, x), 0.0, XS, checkpoint="sqrt")
    assert seen == ["full", "sqrt", None, "full", "sqrt"]


def test_one_context_object_can_be_entered_again_and_nested(engine_calls):
    context = patched()
    for _ in range(2):
        with context, context:
            sums()
        assert compat.active() is None
    assert engine_calls["scan"] == 2


def test_decorator(engine_calls):
    @patched("full")
    def program():
        return sums()

    program()
    assert engine_calls["scan"] == 1 and compat.active() is None


def test_does_not_leak_into_other_threads(engine_calls):
    seen, inside, done = {}, threading.Event(), threading.Event()

    def other():
        inside.wait(10)
        seen["active"] = compat.active()
        sums()
        seen["calls"] = dict(engine_calls)
        done.set()

    thread = threading.Thread(target=other)
    thread.start()
    with patched():
        inside.set()
        assert done.wait(60)
    thread.join()
    assert seen == {"active": None, "calls": {}}


def test_many_threads_at_once(engine_calls):
    def work(checkpoint, failures):
        try:
            for _ in range(20):
                with patched(checkpoint):
                    assert compat.active().checkpoint == checkpoint
                assert compat.active() is None
        except AssertionError as error:
            failures.append(error)

    failures: list = []
    before = contents()
    threads = [threading.Thread(target=work, args=(n, failures)) for n in (2, 3, 4, 5)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures and all(a is b for a, b in zip(before, contents()))


def test_install_reaches_every_thread_and_uninstall_ends_it(engine_calls):
    def in_thread():
        thread = threading.Thread(target=sums)
        thread.start()
        thread.join()

    install("sqrt")
    try:
        install("full")
        in_thread()
        assert engine_calls["scan"] == 1 and compat.active().checkpoint == "full"
        uninstall()
        assert compat.active().checkpoint == "sqrt"
        with patched("full"):
            assert compat.active().checkpoint == "full"
    finally:
        uninstall()
    in_thread()
    assert engine_calls["scan"] == 1 and compat.active() is None
    with pytest.raises(RuntimeError, match="nothing is installed"):
        uninstall()


def test_jitted_functions_are_traced_anew_inside_and_keep_their_outside_program(engine_calls):
    traces = []

    @jax.jit
    def f(x):
        traces.append(compat.active())
        return jax.lax.scan(lambda c, y: (c * y, c), 1.0, x)[0]

    f(XS), f(XS)
    with patched():
        f(XS), f(XS)
    f(XS)
    with patched("full"):
        f(XS)
    assert [t and t.checkpoint for t in traces] == [None, "auto", "full"]
    assert engine_calls["scan"] == 2


def test_jax_library_code_keeps_jax(engine_calls):
    with patched():
        jax.random.gamma(jax.random.key(0), 1.5, (2,))
        jnp.polyval(jnp.ones(3), XS)
    assert not engine_calls


def test_while_loops_differentiate_when_asked():
    def power(x):
        return jax.lax.while_loop(lambda c: c[0] < 5, lambda c: (c[0] + 1, c[1] * x), (0, x))[1]

    def by_counting(x, n):
        return jax.lax.fori_loop(0, n, lambda _, c: c * x, x)

    for checkpoint in ("auto", "sqrt"):
        with (
            patched(checkpoint),
            pytest.raises(ValueError, match="Reverse-mode differentiation does not work"),
        ):
            jax.jit(jax.grad(by_counting))(1.1, 5)
    with patched():
        with pytest.raises(ValueError, match="Reverse-mode differentiation does not work for lax.while_loop"):
            jax.grad(power)(1.1)
    with patched(while_checkpoint="auto"):
        np.testing.assert_allclose(jax.grad(power)(1.1), 6 * 1.1**5, rtol=1e-14)
        np.testing.assert_allclose(jax.jit(jax.grad(by_counting))(1.1, 5), 6 * 1.1**5, rtol=1e-14)


def test_settings_must_be_hashable():
    with pytest.raises(TypeError, match="checkpoint="):
        patched([3])


def test_gradients_are_those_of_jax():
    def loss(x):
        return jnp.sum(jax.lax.scan(lambda c, y: (jnp.sin(c) * y, c * y), x, jnp.linspace(0.5, 1.5, 40))[1])

    want = jax.grad(loss)(0.7), jax.hessian(loss)(0.7)
    with patched("sqrt"):
        np.testing.assert_allclose(jax.grad(loss)(0.7), want[0], rtol=1e-13)
        np.testing.assert_allclose(jax.hessian(loss)(0.7), want[1], rtol=1e-12)


SCRIPT = """
import atexit, pickle, sys, threading
from jax.lax import scan
from quabla_jax import compat
import helper

class Local:
    pass

def later():
    threading.main_thread().join()
    print("thread", compat.active().checkpoint)

assert sys.modules["__main__"].Local is Local and pickle.loads(pickle.dumps(Local())).__class__ is Local
assert __file__.endswith("script.py")
print(__name__, sys.argv, compat.active().checkpoint, compat.active().while_checkpoint, helper.VALUE, sys.path[0])
threading.Thread(target=later).start()
atexit.register(lambda: print("atexit", compat.active().checkpoint))
if "--fail" in sys.argv:
    sys.exit(7)
if "--say" in sys.argv:
    sys.exit("said")
if "--raise" in sys.argv:
    raise ZeroDivisionError("raised")
"""


def run_module(folder, *arguments, interpreter=()):
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    return subprocess.run(
        [sys.executable, *interpreter, "-m", "quabla_jax.compat", *arguments],
        capture_output=True, text=True, cwd=folder, env={**os.environ, "PYTHONPATH": root}, timeout=300,
    )  # fmt: skip


@pytest.fixture
def program(tmp_path):
    sub = tmp_path / "sub"
    sub.mkdir()
    (sub / "script.py").write_text(SCRIPT)
    (sub / "helper.py").write_text("VALUE = 3\n")
    return tmp_path


@pytest.mark.parametrize("ending, status, says", [("--fail", 7, ""), ("--say", 1, "said"), ("--raise", 1, "raised")])
def test_command_line_runs_a_script(program, ending, status, says):
    done = run_module(program, "-c", "12", "-w", "auto", "sub/script.py", "-c", "x", "--", ending)
    first, *rest = done.stdout.strip().splitlines()
    arguments = ["sub/script.py", "-c", "x", "--", ending]
    assert first == f"__main__ {arguments} 12 auto 3 {program / 'sub'}", done.stderr
    assert sorted(rest) == ["atexit 12", "thread 12"]
    assert done.returncode == status and says in done.stderr


def test_command_line_runs_modules_packages_folders_and_archives(program):
    package = program / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    text = "import sys\nfrom quabla_jax import compat\nprint(__name__, __package__, sys.argv[1:], compat.active().checkpoint)\n"
    (package / "__main__.py").write_text(text)
    (package / "part.py").write_text(text + "from . import __name__ as parent\n")
    with zipfile.ZipFile(program / "all.zip", "w") as archive:
        archive.writestr("__main__.py", text.replace(", __package__", ", ''"))
    runs = {
        ("-m", "package", "-v"): "__main__ package ['-v'] auto",
        ("-m", "package.part", "a", "-m"): "__main__ package ['a', '-m'] auto",
        ("package",): "__main__  [] auto",
        ("all.zip", "-x"): "__main__  ['-x'] auto",
    }
    for arguments, want in runs.items():
        done = run_module(program, *arguments)
        assert done.stdout.strip() == want and done.returncode == 0, done.stderr


def test_command_line_leaves_the_path_alone_where_python_did(program):
    """python -P puts no folder of its own on the path, so none is taken off."""
    done = run_module(program, "sub/script.py", interpreter=["-P"])
    assert done.returncode == 1 and "No module named 'helper'" in done.stderr


@pytest.mark.parametrize(
    "arguments, message",
    [(["-c", "lots", "x.py"], "neither auto, full, sqrt"), (["missing.py"], "can't open 'missing.py'")],
)
def test_command_line_says_what_is_wrong(arguments, message, capsys):
    from quabla_jax.compat.__main__ import main

    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2 and message in capsys.readouterr().err


def test_command_line_parses_every_kind_of_checkpoint():
    from quabla_jax.compat.__main__ import parse_checkpoint

    assert [parse_checkpoint(t) for t in ("auto", "full", "sqrt", "12")] == ["auto", "full", "sqrt", 12]
    assert parse_checkpoint("512MB") == loops.Budget("512MB")
