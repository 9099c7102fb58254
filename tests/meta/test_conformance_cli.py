"""The command: exit statuses, choosing cells, workers, the bar, JUnit XML, resuming after Ctrl-C, reports from JSON alone."""

import json
import os
import pathlib
import pty
import signal
import subprocess
import sys
import time
from xml.etree import ElementTree

import pytest

from conformance import limitations, runner
from conformance.cli import main

ROOT = pathlib.Path(__file__).resolve().parents[2]
FEW = ["--backend", "numpy", "--case", "fori/trips-[0-3]", "--transforms", "jit,grad", "--jobs", "1"]
COUNT = 16  # cells of FEW: four cases, two transforms, two dtypes


class Wrong:
    """numpy, with every result doubled."""

    name = "wrong"

    def available(self):
        return None

    def prepare(self, closed):
        from conformance.backends.targets import NumpyOracle

        run = NumpyOracle().prepare(closed)
        return lambda *xs: [y + y for y in run(*xs)]


class Absent(Wrong):
    name = "absent"

    def available(self):
        return "not on this machine"


def _command(*arguments, **options):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", "TERM": "xterm", "COLUMNS": "100"}
    return subprocess.Popen(
        [sys.executable, "-m", "conformance", *arguments], cwd=options.pop("cwd"), env=environment, text=True, **options
    )


# ---- exit statuses


def test_status_0_where_all_pass(capsys):
    assert main(FEW) == 0
    assert f"{COUNT} passed, 0 failed, 0 known" in capsys.readouterr().out


def test_status_1_where_a_cell_fails(capsys):
    assert main(["--backend", f"{__name__}:Wrong", *FEW[2:]]) == 1
    out = capsys.readouterr().out
    assert "fail        fori/trips-1" in out and "ulp (bar" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--backend", "nonesuch"], "no backend 'nonesuch'"),
        (["--backend", "json:nonesuch"], "cannot load the backend 'json:nonesuch'"),
        (["--backend", "nonesuch_module:X"], "cannot load"),
        (["--backend", "json:JSONDecoder"], "is no backend"),
        (["--transforms", "jit,integrate"], "no transform integrate: there are eager, jit"),
        (["--case", "nonesuch/*"], "no cell matches"),
        (["--diff", "nonesuch.json"], "nonesuch.json"),
        (["--from", "nonesuch.json"], "nonesuch.json"),
        (["-o", "nonesuch/report.html"], "there is no folder"),
        (["--state", "nonesuch/state.jsonl"], "there is no folder"),
    ],
)
def test_status_2_for_unusable_arguments(arguments, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    base = [] if arguments[0] in ("--backend", "--case") else FEW
    assert main([*base, *arguments]) == 2
    assert said in capsys.readouterr().err


def test_a_report_that_is_none_is_refused(tmp_path, capsys):
    path = tmp_path / "other.json"
    path.write_text('{"cells": 3}')
    assert main([*FEW, "--diff", str(path)]) == 2
    assert "is not a conformance report" in capsys.readouterr().err


def test_what_is_not_there_is_said(capsys):
    assert main(["--backend", f"{__name__}:Absent", *FEW]) == 0
    assert f"unavailable: {__name__}:Absent: not on this machine" in capsys.readouterr().out


# ---- limitations


def _rows(monkeypatch, *rows):
    monkeypatch.setattr(limitations, "LIMITATIONS", list(rows))


def test_a_limitation_that_nothing_can_match_is_stale(monkeypatch, capsys):
    _rows(monkeypatch, limitations.Limitation("fori/gone-*", "numpy", "was once so"))
    assert main(FEW) == 1
    assert "stale limitation: fori/gone-* on numpy: was once so" in capsys.readouterr().out


def test_a_limitation_whose_cells_pass_is_stale(monkeypatch, capsys):
    _rows(monkeypatch, limitations.Limitation("fori/trips-2", "numpy", "was once so", transforms=("grad",)))
    assert main(FEW) == 1
    assert "xpass" in (out := capsys.readouterr().out) and "was once so" in out


def test_a_limitation_excuses_only_what_it_says(monkeypatch):
    row = limitations.Limitation("fori/*", "*Wrong", "twice as much", "differs", says="ulp (bar")
    cell = runner.Cell("fori/trips-2", f"{__name__}:Wrong", "jit", "float64")
    _rows(monkeypatch, row)
    assert runner.run_cell(cell).outcome == "xfail"
    for other in (dict(kind="raises"), dict(kind="unsupported"), dict(says="no such op")):
        _rows(monkeypatch, limitations.Limitation(**{**vars(row), **other}))
        record = runner.run_cell(cell)
        assert record.outcome == "fail" and "not in the way of its limitation" in record.message


def test_every_limitation_has_its_reason():
    for row in limitations.LIMITATIONS:
        assert len(row.reason) > 20 and row.kind in limitations.OUTCOME_OF and row.backend != "*", row


# ---- choosing cells


def _listed(capsys, *arguments):
    assert main([*arguments, "--list"]) == 0
    return [line.split("|") for line in capsys.readouterr().out.split()]


def test_globs_choose_cases(capsys):
    rows = _listed(
        capsys, "--backend", "xla", "--case", "cond/true*", "--case", "fori/trips-1?", "--tier", "exhaustive"
    )
    names = {r[0] for r in rows}
    assert names >= {"cond/true", "cond/true-captures", "fori/trips-16", "fori/trips-17"}
    assert all(n.startswith("cond/true") or n in ("fori/trips-16", "fori/trips-17") for n in names)


def test_transforms_choose_transforms_in_every_tier(capsys):
    for tier in ("quick", "full", "exhaustive"):
        rows = _listed(capsys, "--backend", "xla", "--case", "fori/trips-*", "--transforms", "hvp,jvp", "--tier", tier)
        assert {r[2] for r in rows} == {"hvp", "jvp"}


def test_tiers_grow(capsys):
    sizes = [len(_listed(capsys, "--tier", tier)) for tier in ("quick", "full", "exhaustive")]
    assert sizes == sorted(sizes) and sizes[0] * 4 < sizes[1] and sizes[1] * 3 < sizes[2]


# ---- workers, bar, JUnit


def test_two_workers_give_what_one_gives(tmp_path):
    reports = []
    for jobs in ("1", "2"):
        path = tmp_path / f"{jobs}.json"
        assert main([*FEW[:-1], jobs, "-o", str(path)]) == 0
        reports.append([{**c, "seconds": 0} for c in json.loads(path.read_text())["cells"]])
    assert reports[0] == reports[1] and len(reports[0]) == COUNT


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="no pseudo-terminals")
def test_a_bar_on_a_terminal_and_nowhere_else(tmp_path):
    pytest.importorskip("rich", reason="the bar is drawn with rich")
    ours, theirs = pty.openpty()
    process = _command(*FEW, cwd=tmp_path, stdout=subprocess.PIPE, stderr=theirs)
    os.close(theirs)
    shown = b""
    while True:
        try:
            part = os.read(ours, 4096)
        except OSError:  # how Linux says that the other end is closed
            break
        if not part:
            break
        shown += part
    out, _ = process.communicate()
    os.close(ours)
    assert process.returncode == 0 and "conformance" in shown.decode("utf-8", "replace")
    assert "━" in shown.decode("utf-8", "replace") and "━" not in out
    silent = _command(*FEW, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert "━" not in "".join(silent.communicate())


def test_junit_counts_what_the_run_counted(tmp_path):
    path = tmp_path / "junit.xml"
    main(["--backend", f"{__name__}:Wrong", *FEW, "--junit", str(path)])
    suites = {s.get("name"): s for s in ElementTree.parse(path).getroot()}
    assert suites["numpy"].get("failures") == "0" and suites["numpy"].get("tests") == str(COUNT)
    wrong = suites[f"{__name__}:Wrong"]
    assert int(wrong.get("failures")) == len(wrong.findall("testcase/failure")) > 0
    assert wrong.find("testcase/failure").get("message").startswith("fail: output 0")
    assert {t.get("name") for t in suites["numpy"]} >= {"fori/trips-2[grad-float64]", "fori/trips-2[jit-float32]"}


# ---- resuming


@pytest.mark.parametrize(("jobs", "cases"), [("1", 3), ("2", 3), ("2", 0)])
def test_an_interrupted_run_goes_on(tmp_path, jobs, cases):
    """Ctrl-C, to the whole process group as a terminal sends it, at the third case or while workers start; the second run does
    the rest only."""
    state, out = tmp_path / "state.jsonl", tmp_path / "report.json"
    arguments = [
        "--backend",
        "numpy",
        "--case",
        "integer/*-int32",
        "--case",
        "integer/*-uint8",
        "--jobs",
        jobs,
        "--state",
        str(state),
    ]
    process = _command(*arguments, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    until = time.monotonic() + 240
    while not (state.exists() and len(state.read_text().splitlines()) >= cases):
        assert time.monotonic() < until and process.poll() is None
        time.sleep(0.01)
    time.sleep(0 if cases else 0.5)  # less than workers take to import what they need
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert "interrupted; the same command goes on from" in err and "Traceback" not in err
    *done, time_taken = [json.loads(line) for line in state.read_text().splitlines()]
    marked = [{**r, "message": "noted before"} for r in done] + [{"ran": 1000.0}]
    state.write_text("".join(json.dumps(r) + "\n" for r in marked) + '{"case": "cut o')  # as a kill may leave it
    assert main([*arguments, "-o", str(out)]) == 0
    report = json.loads(out.read_text())
    assert time_taken["ran"] >= 0 and report["run"]["seconds"] > 1000 and report["run"]["resumed"] == len(done)
    cells = report["cells"]
    assert len(cells) > len(done) and sum(c["message"] == "noted before" for c in cells) == len(done)
    assert len({(c["case"], c["transform"], c["dtype"]) for c in cells}) == len(cells)
    lines = [line for line in state.read_text().splitlines() if not line.startswith(('{"case": "cut o', '{"ran"'))]
    assert sorted(json.loads(line)["case"] for line in lines) == sorted(c["case"] for c in cells)


# ---- reports from the JSON alone


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.json"
    assert main([*FEW, "-o", str(path)]) == 0
    return path


def _never(*_):
    raise AssertionError("a cell was run")


@pytest.mark.parametrize("ending", ["html", "md", "json", "xml"])
def test_everything_is_drawn_from_json(saved, tmp_path, monkeypatch, ending, capsys):
    monkeypatch.setattr(runner, "run_case", _never)
    monkeypatch.setattr(runner, "cells", _never)
    path = tmp_path / f"again.{ending}"
    assert main(["--from", str(saved), "--junit" if ending == "xml" else "-o", str(path)]) == 0
    text = path.read_text("utf-8")
    wanted = {"html": "fori/trips-3", "md": f"| fori | {COUNT} |", "xml": "<testcase", "json": '"case": "fori/trips-3"'}
    assert wanted[ending] in text
    if ending == "json":
        assert json.loads(text) == json.loads(saved.read_text())
    assert f"{COUNT} passed" in capsys.readouterr().out


def test_one_record_a_line(saved):
    lines = saved.read_text().splitlines()
    assert sum(line.startswith('{"case": ') for line in lines) == COUNT
    record = json.loads(saved.read_text())["cells"][0]
    assert set(record) >= {
        "case",
        "backend",
        "transform",
        "dtype",
        "outcome",
        "ulp",
        "bar",
        "input",
        "message",
        "seconds",
    }
    assert record["input"].startswith("float32[2] [")


def test_differences_from_a_previous_report(saved, tmp_path, capsys):
    data = json.loads(saved.read_text())
    data["cells"][0]["outcome"] = "fail"
    gone = data["cells"].pop(5)
    old = tmp_path / "old.json"
    old.write_text(json.dumps(data))
    assert main(["--from", str(saved), "--diff", str(old)]) == 0
    out = capsys.readouterr().out
    first = data["cells"][0]
    assert f"{first['case']}|numpy|{first['transform']}|{first['dtype']}: fail -> pass" in out
    assert f"{gone['case']}|numpy|{gone['transform']}|{gone['dtype']}: absent -> pass" in out
    assert main(["--from", str(old), "--diff", str(saved)]) == 1
    worse = [line for line in capsys.readouterr().out.splitlines() if line.startswith("worse ")]
    assert worse == [f"worse {first['case']}|numpy|{first['transform']}|{first['dtype']}: pass -> fail"]
    assert main(["--from", str(saved), "--diff", str(saved)]) == 0
    assert "no change since the previous report" in capsys.readouterr().out
