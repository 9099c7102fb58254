"""The program fuzz is worth its speed: the oracle is XLA's equal, planted faults are found and made small, finds can be pasted."""

import itertools
import json
import signal
import time

import jax
import numpy as np
import pytest
from mutants import NAMESPACE

from conformance import backends, runner
from conformance.backends.namespace import jax_space
from conformance.case import CASES
from conformance.fuzz import case_of, check, cli, generate, oracle, programs
from conformance.fuzz.shrink import shrink, smaller
from conformance.transforms import TRANSFORMS


def _kinds(steps):
    for step in steps:
        yield step[0]
        for body in programs.bodies(step):
            yield from _kinds(body)


def _depth(steps):
    return 1 + max((_depth(b) for step in steps for b in programs.bodies(step)), default=0)


# ---- drawing


def test_programs_are_the_same_everywhere():
    assert generate(7) == generate(7) != generate(8)
    assert generate(1) == (("scan", 2, True, (("single", 5), ("if", (("unary", "square", "b"),)))),)


def test_programs_reach_every_step_depth_and_setting():
    drawn = [generate(seed) for seed in range(600)]
    assert {k for p in drawn for k in _kinds(p)} == {*programs.SIMPLE, *programs.NESTED}
    assert {_depth(p) for p in drawn} >= {1, 2, 3, 4, 5}
    assert 4 < np.mean([programs.size_of(p) for p in drawn]) and max(map(programs.size_of, drawn)) > 10
    nests = {(s[0], k) for p in drawn for s in p for b in programs.bodies(s) for k in _kinds(b)}
    assert len(nests) > 120, "too few kinds of steps inside kinds of regions"
    names = list(programs.TRANSFORMS)
    assert {cli.setting(seed, names) for seed in range(96)} == set(
        itertools.product(names, range(len(programs.MAPPED)), ("compat", "xla"))
    )


def test_the_costly_backends_get_their_share_under_every_transform():
    every, turns = check.EVERY, range(2000)
    for name in check.BACKENDS:
        mine = [s for s in turns if name in check.due(s, check.BACKENDS, every)]
        assert len(mine) >= len(turns) // every[name] - 1
        assert len({s % len(programs.TRANSFORMS) for s in mine}) == len(programs.TRANSFORMS), name
    settings = {
        cli.setting(s, list(programs.TRANSFORMS)) for s in range(10000) if "export" in check.due(s, ("export",), every)
    }
    assert len(settings) == 96, "every transform, mapping and front door"


# ---- the oracle


@pytest.mark.parametrize("transform", ["vmap", "jvp", "vmap_grad"])
def test_the_oracle_is_xlas_equal(transform):
    """Programs with every kind of step, run op by op and compiled whole."""
    chosen = TRANSFORMS[transform]
    loop = ("while", 3, (("hash", 2), ("cond", "b", 0.0, (("row", 1),), (("single", 0),))))
    steps = (("fori", 2, "auto", (loop, ("flag", 1))), ("scan", 2, True, (("switch", 2, ((("reduce", 0),), (("count", 3),))),)),
             ("rows", (("if", (("binary", "max", "b"),)),)), ("index", (("unary", "sin", "m"),)))  # fmt: skip
    case = case_of(steps, "fuzz/test")
    arrays = runner.arrays_of(case, chosen, "float64")
    fun = runner.built(case, backends.REFERENCE.space("jax"), chosen, arrays, case.reference)
    closed = jax.make_jaxpr(lambda *xs: jax.tree.leaves(fun(*xs)))(*arrays)
    compiled = jax.jit(fun).lower(*arrays).compile(compiler_options=check.CHEAP)
    want = [np.asarray(y) for y in jax.tree.leaves(compiled(*arrays))]
    worst, message = runner.difference(
        oracle.evaluate(closed, *arrays), want, [w.dtype for w in want], case.ulp * chosen.slack
    )
    assert not message and worst is not None


# ---- planted faults


class _Planted:
    """compat, with one function of a mutant."""

    name = "compat"

    def __init__(self, mutant):
        self._mutant = mutant

    def available(self):
        return None

    def space(self, dialect):
        ns = self._mutant.space(dialect).ns
        return jax_space(_Keywords(ns))


class _Keywords:
    """A namespace that takes the engine's checkpoint= and forgets it."""

    def __init__(self, ns):
        self._ns = ns

    def __getattr__(self, name):
        function = getattr(self._ns, name)

        def call(*args, checkpoint=None, **keywords):
            return function(*args, **keywords)

        return call


# Not among the planted: what a program of the fuzz never does (negative bounds, bare keys) and what changes no value.
PLANTED = [
    m for m in NAMESPACE
    if m.name not in {
        "fori: starts at zero", "fori: integers through float32", "scan: random bits used again", "cond: runs both branches",
        "fori: carries updated in place", "cond: outputs swapped", "fori: no gradient to the initial carry",
        "scan: captured gradient dropped", "scan: no gradient to xs", "while: finished lanes go on", "while: stops one trip early",
    }
]  # fmt: skip


@pytest.mark.parametrize("mutant", PLANTED, ids=lambda m: m.name)
def test_planted_faults_are_found(mutant, monkeypatch):
    monkeypatch.setitem(backends.BUILT_IN, "compat", _Planted(mutant))
    fails = lambda steps: any(f.outcome == "fail" for f in check.check(steps, "jit", ["numpy"]))
    found = next((seed for seed in range(150) if fails(generate(seed))), None)
    assert found is not None, "150 programs, and none shows the fault"
    small = shrink(generate(found), fails, tries=60)
    assert programs.size_of(small) <= min(4, programs.size_of(generate(found))) and fails(small)


def test_a_crash_and_a_refusal_are_findings(monkeypatch):
    class Broken:
        def available(self):
            return None

        def prepare(self, closed):
            raise KeyError("of a kind")

    monkeypatch.setitem(backends.BUILT_IN, "torchscript", Broken())
    (finding,) = check.check(generate(0), "jit", ["numpy", "torchscript"])
    assert (finding.backend, finding.outcome) == ("torchscript", "crash") and "of a kind" in finding.message


def test_shrinking_only_takes_away():
    steps = generate(11)
    for less in smaller(steps):
        assert programs.size_of(less) <= programs.size_of(steps) and less != steps


# ---- the command


@pytest.fixture
def off_by_one(monkeypatch):
    (mutant,) = [m for m in NAMESPACE if m.name == "fori: one trip more"]
    monkeypatch.setitem(backends.BUILT_IN, "compat", _Planted(mutant))
    yield
    for name in [n for n in CASES if n.startswith("fuzz/seed-")]:
        del CASES[name]


def _first_with_a_loop():
    return next(s for s in range(200) if generate(s)[0][0] == "fori" and s % 12 == 0)


def test_the_command_prints_a_case_to_paste(off_by_one, capsys, tmp_path):
    seed, state = _first_with_a_loop(), tmp_path / "state.jsonl"
    arguments = ["--programs", "1", "--seed", str(seed), "--backend", "numpy", "--state", str(state)]
    assert cli.main(arguments) == 1
    out = capsys.readouterr().out
    assert "fail on numpy: draw 0: output" in out and "1 programs under 1 orders" in out and "1 finds" in out
    (line,) = [text for text in out.splitlines() if "register(case_of(" in text]
    registered = []
    exec(line.strip(), {"register": registered.append, "case_of": case_of})
    (case,) = registered
    CASES[case.name] = case
    record = runner.run_cell(runner.Cell(case.name, "numpy", "jit", "float64"))
    assert record.outcome == "fail"
    # The state file holds it: the same command says the same again, and runs nothing.
    assert json.loads(state.read_text())["finds"][0]["case"] == line.strip()
    assert cli.main(arguments) == 1 and line in capsys.readouterr().out


def test_the_command_passes_where_nothing_is_wrong(capsys):
    assert cli.main(["--programs", "2", "--backend", "numpy", "--transforms", "jit,grad"]) == 0
    assert "2 programs under 2 orders of transforms: 2 on numpy; 0 finds" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        cli.main(["--transforms", "integrate"])


# ---- the deadline


def test_a_program_that_works_too_long_is_ended():
    began = time.process_time()
    with pytest.raises(TimeoutError, match=r"over 0.2 s"), runner.deadline(0.2, clock=1000):
        while time.process_time() < began + 20:
            pass
    assert time.process_time() < began + 10


def test_a_program_that_waits_is_ended_later():
    began = time.monotonic()
    with pytest.raises(TimeoutError), runner.deadline(0.2, clock=3):
        time.sleep(30)
    assert 0.5 < time.monotonic() - began < 20
    with runner.deadline(5):
        assert signal.getitimer(signal.ITIMER_PROF)[0] > 0
    assert signal.getitimer(signal.ITIMER_PROF)[0] == signal.getitimer(signal.ITIMER_REAL)[0] == 0


def test_an_interrupted_fuzz_says_what_ran_and_goes_on(monkeypatch, capsys, tmp_path):
    state, asked = str(tmp_path / "state.jsonl"), []

    def interrupted(seed, *_):
        asked.append(seed)
        if asked == [0, 1]:
            raise KeyboardInterrupt
        return {"seed": seed, "transform": "none", "mapped": 0, "source": "jax", "backends": ["numpy"], "finds": []}

    monkeypatch.setattr(cli, "run_one", interrupted)
    arguments = ["--programs", "3", "--backend", "numpy", "--state", state]
    assert cli.main(arguments) == 130 and "1 programs" in (said := capsys.readouterr().out) and "interrupted" in said
    assert cli.main(arguments) == 0 and "3 programs" in capsys.readouterr().out and asked == [0, 1, 1, 2]
