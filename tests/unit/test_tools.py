"""The tools behind `make matrix`, `make audit` and `make test-cuda`: what they find, and what they say where they cannot."""

import importlib.util
import pathlib
import re
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
if not (ROOT / "tools").is_dir():
    pytest.skip("the tools lie in the repository", allow_module_level=True)


def tool(name):
    spec = importlib.util.spec_from_file_location(f"tools_{name}", ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_every_target_of_the_makefile_has_a_rule_and_a_file():
    text = (ROOT / "Makefile").read_text("utf-8")
    rules = {name for line in re.findall(r"^([\w -]+):", text, re.M) for name in line.split()}
    phony = re.search(r"^\.PHONY: (.*)$", text, re.M)[1].split()
    assert sorted(set(phony) - rules) == []
    for path in re.findall(r"\btools/\w+\.\w+", text):
        assert (ROOT / path).exists(), path


def test_what_is_pinned_has_no_known_vulnerability():
    audit = tool("audit")
    for path in sorted(ROOT.glob("constraints*.txt")):
        pinned, loose = audit.pins(path)
        assert loose == [] and audit.affected(pinned, audit.advisories()) == []
    assert audit.outside(audit.pins(ROOT / "constraints.txt")[0], audit.requirements()) == []


def test_the_audit_finds_what_is_wrong(tmp_path):
    audit = tool("audit")
    path = tmp_path / "constraints.txt"
    path.write_text("# a comment\nJinja2==3.1.5\nprotobuf==6.30.2\nurllib3>=2\ntorch==2.5.1\n")
    pinned, loose = audit.pins(path)
    assert loose == ["urllib3>=2"]
    found = audit.affected(pinned, audit.advisories())
    assert len(found) >= 4 and all(any(name in text for text in found) for name in ("jinja2", "protobuf", "torch"))
    assert audit.outside(pinned, ["torch>=2.13", "jinja2"]) == ["torch>=2.13 is pinned at 2.5.1"]


def test_the_matrix_keeps_rows_and_says_what_was_not_run(tmp_path):
    matrix = tool("matrix")
    done = {"leg": matrix.LEGS[0].name, "python": "3.11.7", "jax": "0.10.2", "passed": 7, "failed": 0, "skipped": 1}
    page = matrix.page({matrix.LEGS[0].name: done})
    assert "| 3.11.7 | 0.10.2 |" in page and page.count("not run yet") == len(matrix.LEGS) - 1
    missing = matrix.run(matrix.Leg("x", "3.99", "constraints.txt", ".[dev]"), tmp_path)
    assert missing["note"] == "not run: this machine has no Python 3.99"
    text = matrix.constraints(matrix.LEGS[-1], tmp_path).read_text("utf-8").splitlines()
    assert f"mlx=={matrix.OLD}" in text and len([line for line in text if line.startswith("mlx==")]) == 1
    for leg in matrix.LEGS:
        assert all((ROOT / test).exists() for test in leg.tests)


def test_a_machine_without_a_gpu_skips_with_a_reason(capsys, monkeypatch):
    cuda = tool("test_cuda")
    monkeypatch.setattr(cuda, "PROBE", "raise RuntimeError('no device here')")
    cuda.main()
    assert capsys.readouterr().out.startswith("skipped: JAX sees no CUDA device here (RuntimeError: no device here)")


def test_a_machine_with_a_gpu_runs_every_step_and_fails_with_one(capsys, monkeypatch):
    cuda = tool("test_cuda")
    monkeypatch.setattr(cuda, "PROBE", "print(1, 'a device')")
    monkeypatch.setattr(cuda, "STEPS", {"bad": ["-c", "raise SystemExit(3)"], "good": ["-c", "pass"]})
    with pytest.raises(SystemExit, match="failed: bad"):
        cuda.main()
    out = capsys.readouterr().out
    assert "CUDA: 1 a device" in out and "== bad: failed with 3" in out and "== good: passed" in out
    monkeypatch.setenv("CUDA_STEPS", "good")
    cuda.main()
    monkeypatch.setenv("CUDA_STEPS", "other")
    with pytest.raises(SystemExit, match="no step 'other'"):
        cuda.main()
