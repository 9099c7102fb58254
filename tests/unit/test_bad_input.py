"""Wrong calls: each raises its documented class with a text that names what is wrong, in bounded time."""

import functools
import importlib
import signal
import threading
import warnings

import bad_input_rows
import jax.numpy as jnp
import pytest

import quabla_jax as qb
from quabla_jax import compat
from quabla_jax.loops.plan import current_default

SECONDS = 60
"""A row that takes longer hangs; the slowest takes about three seconds, of which nearly all is importing torch."""

LIBRARIES = {"torch_bridge": "torch.jit", "mlx_backend": "mlx.core", "conformance": "rich"}

NO_ROW = {
    "Array": "jax.Array itself",
    "Tensor": "jax.Array itself",
    "TensorView": "jax.Array itself",
    "TraceTensor": "JAX's tracer class",
    "Executable": "made by Program.compile alone",
    "LoopPlan": "made by plan_loop alone",
    "QuablaError": "an error class",
    "RetraceLimitError": "an error class",
    "RetraceWarning": "a warning class",
    "TracerError": "an error class",
    "UnsupportedOperationError": "an error class",
    "bool_": "a value",
    "float32": "a value",
    "float64": "a value",
    "devices": "takes no argument",
    "compat.active": "takes no argument",
    "compat.lax": "a module",
    "compat.torch_ops": "a module",
    "mlx_backend.is_available": "takes no argument",
    "mlx_backend.MlxProgram": "made by lower alone",
    "torch_bridge.GraphError": "an error class",
    **{f"linalg.{name}Result": "a named tuple of results" for name in ("Eigh", "Lstsq", "QR", "SVD", "Slogdet")},
    "optim.constant": "a schedule of one number",
    "optim.cosine_decay": "covered in tests/unit/test_quabla_solvers.py",
    "optim.exponential_decay": "covered in tests/unit/test_quabla_solvers.py",
    "optim.piecewise_constant": "covered in tests/unit/test_quabla_solvers.py",
    "optim.warmup_cosine_decay": "covered in tests/unit/test_quabla_solvers.py",
    "tree.TreeDef": "made by structure alone",
    "tree.flatten": "takes every object: what is no container is a leaf",
    "tree.flatten_with_path": "takes every object",
    "tree.leaves": "takes every object",
    "tree.structure": "takes every object",
}


def has(library):
    try:
        importlib.import_module(library)
    except ImportError:
        return False
    return True


def names():
    """Every public function's name as the rows write it."""
    found = set(qb._OWNER)
    for module in ("distributed", "linalg", "ode", "optim", "random", "tree"):
        found |= {f"{module}.{name}" for name in importlib.import_module(f"quabla_jax.{module}").__all__}
    found |= {f"compat.{name}" for name in compat.__all__}
    found |= {f"compat.torch_ops.{name}" for name in compat.torch_ops.__all__}
    found |= {f"compat.lax.{name}" for name in ("cond", "switch", "scan", "fori_loop", "while_loop", "map")}
    for module, library in LIBRARIES.items():
        if module != "conformance" and has(library):
            found |= {f"{module}.{name}" for name in importlib.import_module(f"quabla_jax.{module}").__all__}
    return found


class Hanging(BaseException):
    pass


@pytest.fixture
def limited():
    """Raises in a row that hangs."""

    def stop(*_):
        raise Hanging(f"no answer in {SECONDS} s")

    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "SIGALRM"):
        yield
        return
    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def row_id(row):
    return f"{bad_input_rows.ROWS.index(row)}-{row[0]}"


@pytest.mark.parametrize("row", bad_input_rows.ROWS, ids=row_id)
def test_a_wrong_call_says_what_is_wrong(row, limited):
    name, call, kind, text = row
    library = LIBRARIES.get(name.split(".")[0])
    if library:
        pytest.importorskip(library, reason=f"{name} needs {library}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(BaseException) as caught:
            call()
    if isinstance(caught.value, ModuleNotFoundError):
        pytest.skip(f"{name}: {caught.value}")
    assert kind in [c.__name__ for c in type(caught.value).__mro__], repr(caught.value)
    assert text in str(caught.value)


def test_there_are_rows_enough():
    specific = [
        row for row in bad_input_rows.ROWS if row[0] not in f"{bad_input_rows.UNARY} {bad_input_rows.BINARY}".split()
    ]
    assert len(specific) >= 150
    assert all(len(text) >= 12 for *_, text in specific), "a text this short names nothing"


def test_every_public_name_has_a_row_or_a_reason():
    seen = {row[0] for row in bad_input_rows.ROWS}
    assert names() - seen - NO_ROW.keys() == set()
    assert NO_ROW.keys() & seen == set(), "a reason beside a row"


def test_the_refused_calls_left_nothing_behind():
    assert compat.active() is None
    assert current_default() == "auto"


def test_refusing_a_container_in_itself_leaves_the_threads_stack_whole():
    """jaxlib flattens a dict in itself, and a list under is_leaf, in a way that leaves the thread at its recursion limit."""

    def room(depth=0):
        try:
            return room(depth + 1)
        except RecursionError:
            return depth

    before = room()
    for tree in (bad_input_rows.in_itself(), bad_input_rows.in_itself(dict), bad_input_rows.in_a_tuple_in_itself()):
        for call in (qb.tree.leaves, qb.jit(bad_input_rows.total), functools.partial(compat.lax.scan, None)):
            with pytest.raises(ValueError, match="holds itself"):
                call(tree)
    assert room() == before


def test_deep_trees_and_shared_containers_are_no_cycles():
    shared = [jnp.ones(())]
    tree = {"a": shared, "b": (shared, {"c": shared})}
    for _ in range(100):
        tree = [tree, shared]
    assert len(qb.tree.leaves(tree)) == 103
    doubled = {"leaf": 1.0}
    for _ in range(16):
        doubled = {"left": doubled, "right": doubled}
    assert len(qb.tree.leaves(doubled)) == 2**16


def test_plans_of_many_slots_are_found_at_once():
    """Whole blocks and remainders meet again at every level: counted each time, these never came to an end."""
    plan = qb.plan_loop(10**12, 8, checkpoint=10**9)
    assert sum(plan.slots) <= 10**9


def test_a_memory_report_takes_python_numbers():
    assert qb.memory_report(lambda x: x * 2.0, 1.5, compiled=True).compiled
