"""Every public name of Quabla 1.0.2, with its signature, from a list recorded from the package."""

import importlib
import inspect
import json
import pathlib

import pytest

import quabla_jax as qb

RECORDED = json.loads((pathlib.Path(__file__).parents[1] / "data" / "quabla_names.json").read_text())
SUBMODULES = ("linalg", "ode", "optim", "random", "tree", "distributed")
# Options that this library adds: keyword-only, or with a default behind Quabla's own.
ADDED = {"checkpoint"}
# distributed.value_and_grad: every device where Quabla asks for a list.
LOOSER = {("distributed.value_and_grad", "devices"), ("random.uniform", "dtype"), ("random.normal", "dtype")}
# A keyword-only call of these returns a decorator; Quabla's overloads do not show it.
LOOSER |= {("grad", "fun"), ("jit", "fun")}
LOOSER |= {(f"random.{name}", "dtype") for name in ("glorot_normal", "glorot_uniform", "he_normal")}


def owner_of(path):
    module, _, name = path.rpartition(".")
    return (importlib.import_module(f"quabla_jax.{module}") if module else qb), name


@pytest.mark.parametrize("name", RECORDED["top"] + RECORDED["shadowing"])
def test_the_package_has_every_name(name):
    assert getattr(qb, name) is not None


@pytest.mark.parametrize("module", SUBMODULES)
def test_submodules_have_every_name(module):
    assert set(RECORDED[module]) <= set(getattr(qb, module).__all__)


def test_star_import_leaves_builtins_alone():
    scope = {}
    exec("from quabla_jax import *", scope)
    assert "sin" in scope and not {"abs", "all", "any", "max", "min", "round", "sum"} & set(scope)


def test_the_names_are_listed():
    assert set(RECORDED["top"]) <= set(qb.__all__) | set(SUBMODULES)
    assert set(RECORDED["top"]) <= set(dir(qb))


@pytest.mark.parametrize("path", sorted(RECORDED["signatures"]))
def test_signatures_agree(path):
    owner, name = owner_of(path)
    ours = inspect.signature(getattr(owner, name)).parameters
    wanted = RECORDED["signatures"][path]
    assert [p for p in ours if p not in ADDED] == [p[0] for p in wanted]
    for parameter, kind, default in wanted:
        found = ours[parameter]
        assert found.kind.name == kind, parameter
        if (path, parameter) in LOOSER:
            continue
        shown = None if found.default is inspect.Parameter.empty else repr(found.default).replace("quabla_jax.", "")
        assert shown == default, parameter
    for parameter in set(ours) & ADDED:
        assert ours[parameter].kind is inspect.Parameter.KEYWORD_ONLY


@pytest.mark.parametrize("name", sorted(RECORDED["methods"]))
def test_optimizer_classes_have_every_method(name):
    assert set(RECORDED["methods"][name]) <= set(dir(getattr(qb.optim, name)))


@pytest.mark.parametrize("name", ["TensorCudaAdamOptimizer", "TensorMlxAdamOptimizer"])
def test_the_deprecated_optimizers_say_what_to_use(name):
    with pytest.warns(DeprecationWarning, match="Trainer"), pytest.raises(TypeError, match="cannot create"):
        getattr(qb, name)()


def test_the_error_classes_have_quablas_bases():
    assert issubclass(qb.TracerError, (qb.QuablaError, TypeError)) and issubclass(qb.TracerError, TypeError)
    assert issubclass(qb.UnsupportedOperationError, ValueError) and issubclass(
        qb.UnsupportedOperationError, NotImplementedError
    )
    assert issubclass(qb.RetraceLimitError, ValueError) and issubclass(qb.RetraceWarning, UserWarning)
