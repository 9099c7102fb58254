"""What type checkers see of quabla_jax: __init__.pyi has the names of __init__.py, and user code is judged rightly."""

import ast
import importlib
import importlib.util
import json
import pathlib
import subprocess
import sys

import pytest

import quabla_jax as qb

ROOT = pathlib.Path(qb.__file__).parent
SAMPLES = pathlib.Path(__file__).parents[1] / "data" / "typing"


def stub_names():
    """name -> module of every re-export in the stub."""
    found = {}
    for node in ast.parse((ROOT / "__init__.pyi").read_text("utf-8")).body:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                assert alias.asname == alias.name, "without `as` a stub's import is private"
                found[alias.name] = node.module or ""
    return found


def test_the_stub_has_the_names_of_the_package():
    assert stub_names() == {**qb._OWNER, **dict.fromkeys(qb._SUBMODULES, "")}


@pytest.mark.parametrize("name", sorted(qb._OWNER))
def test_a_stub_name_is_that_module_attribute(name):
    assert getattr(qb, name) is getattr(importlib.import_module(f"quabla_jax.{stub_names()[name]}"), name)


def test_the_package_says_that_it_is_typed():
    assert (ROOT / "py.typed").is_file()


@pytest.fixture(scope="module")
def findings():
    """Lines with an error, file by file, and the messages."""
    if importlib.util.find_spec("pyright") is None:
        pytest.skip("pyright is not installed")
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson", str(SAMPLES)]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=ROOT.parent, timeout=500)
    assert ran.stdout.startswith("{"), ran.stdout + ran.stderr
    report = json.loads(ran.stdout)
    assert report["summary"]["filesAnalyzed"] == len(list(SAMPLES.glob("*.py")))
    found: dict[str, dict[int, str]] = {}
    for item in report["generalDiagnostics"]:
        if item["severity"] == "error":
            line = item["range"]["start"]["line"] + 1
            found.setdefault(pathlib.Path(item["file"]).name, {})[line] = item["message"]
    return found


@pytest.mark.parametrize("sample", ["loops.py", "engine.py"])
def test_right_code_is_clean(findings, sample):
    assert not findings.get(sample)


def test_mistakes_are_found_where_they_are(findings):
    lines = (SAMPLES / "mistakes.py").read_text("utf-8").splitlines()
    wrong = {n for n, line in enumerate(lines, 1) if line.endswith("# wrong")}
    assert set(findings.get("mistakes.py", {})) == wrong
