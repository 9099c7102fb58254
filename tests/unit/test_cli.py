"""The command line: what it writes, and errors of one line."""

import numpy as np
import pytest

pytest.importorskip("typer", reason="needs the cli extra")

from quabla_jax.cli import main

MODULE = """
import jax, jax.numpy as jnp
def model(x): return jax.lax.scan(lambda c, v: (jnp.sin(c) + v, c), x[0], x)[0].sum()
def affine(params, x): return x @ params["layer"]["w"] + params["layer"]["b"]
number = 3
def branching(x): return x if x > 0 else -x
def until(x): return jax.lax.while_loop(lambda c: c < 9, lambda c: c * 2, x)
def long_error(x): raise RuntimeError("first\\nsecond")
def leaving(x): raise SystemExit(0)
def nothing(x): pass
"""


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    (tmp_path / "user_code.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    def go(*words):
        monkeypatch.setattr("sys.argv", ["quabla-jax", *words])
        code = 0
        try:
            main()
        except SystemExit as stop:
            code = stop.code
        return code, capsys.readouterr()

    return go


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_export_and_load(run, tmp_path):
    torch = pytest.importorskip("torch.jit", reason="needs PyTorch") and pytest.importorskip("torch")
    code, out = run("export", "user_code:model", "--arg", "f64[5,3]", "-o", "model.pt")
    assert code == 0 and "wrote model.pt" in out.out
    module = torch.jit.load(str(tmp_path / "model.pt"))
    assert module(torch.ones(5, 3, dtype=torch.float64)).shape == ()


def test_export_with_parameters(run, tmp_path):
    torch = pytest.importorskip("torch.jit", reason="needs PyTorch") and pytest.importorskip("torch")
    np.savez(tmp_path / "p.npz", **{"layer.w": np.eye(3, dtype=np.float32), "layer.b": np.ones(3, np.float32)})
    code, out = run(
        "export", "user_code:affine", "--arg", "f32[2,3]", "--params", "p.npz", "--to", "pt2", "-o", "m.pt2"
    )
    assert code == 0, out
    program = torch.export.load(str(tmp_path / "m.pt2"))
    assert sorted(program.state_dict) == ["layer.b", "layer.w"]


def test_draw(run, tmp_path):
    code, out = run("draw", "user_code:model", "--arg", "f32[5,3]")
    assert code == 0 and "scan, 5 trips" in out.out
    assert run("draw", "user_code:model", "--arg", "f32[5,3]", "--grad", "-o", "g.html")[0] == 0
    assert "<svg" in (tmp_path / "g.html").read_text()


def test_draw_with_parameters(run, tmp_path):
    np.savez(tmp_path / "p.npz", **{"layer.w": np.eye(3, dtype=np.float32), "layer.b": np.ones(3, np.float32)})
    code, out = run("draw", "user_code:affine", "--arg", "f32[2,3]", "--params", "p.npz")
    assert code == 0 and "f32[3,3]" in out.out and "f32[2,3]" in out.out


def test_plan_takes_long_counts_as_people_write_them(run):
    tables = {run("plan", "--length", text, "--carry", "4kB")[1].out for text in ("1000000", "1_000_000", "1e6")}
    assert len(tables) == 1


def test_plans_that_coincide_share_a_point(tmp_path):
    from quabla_jax._plans import plot_plans, table

    rows = table(1_000_000, "40kB", None, None)
    sqrt = next(row.plan for row in rows if row.name == "sqrt")
    assert [row.name for row in rows if row.plan == sqrt] == ["auto", "sqrt"]
    plot_plans(rows, tmp_path / "p.svg")
    text = (tmp_path / "p.svg").read_text()
    assert "auto, sqrt" in text and "plans of a loop of 1,000,000 steps" in text
    plot_plans(table(10, "0", None, None), tmp_path / "q.svg")
    assert "0 B" in (tmp_path / "q.svg").read_text()


def test_plan(run, tmp_path):
    code, out = run("plan", "--length", "10000", "--carry", "4kB", "--budget", "1MB", "--plot", "p.png")
    assert code == 0 and "sqrt" in out.out and "Budget(1MB)" in out.out
    assert (tmp_path / "p.png").stat().st_size > 1000


def test_devices(run):
    code, out = run("devices")
    assert code == 0 and "XLA" in out.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["export", "user_code", "--arg", "f32[2]"], "no MODULE:FUNCTION"),
        (["export", "no_such_module:f"], "cannot import 'no_such_module'"),
        (["export", "user_code:missing"], "has no 'missing'"),
        (["export", "user_code:number"], "not a function"),
        (["draw", "user_code:model", "--arg", "f12[3]"], "no array type"),
        (["export", "user_code:affine", "--params", "missing.npz"], "no .npz file"),
        (["export", "user_code:model", "--arg", "f32[5,3]", "-o", "missing/m.pt"], "missing"),
        (["plan", "--length", "10", "--carry", "4 parsecs"], "4 parsecs"),
        (["draw", "user_code:model", "--arg", "f32[5,3]", "-o", "picture.bmp"], "must end in"),
        (["draw", "user_code:model"], "give one --arg for each argument"),
        (["export", "user_code:model", "--arg", "f32[5,3]", "--arg", "f32[]"], "give one --arg for each argument"),
        (["draw", "user_code:model", "--arg", "f32[5 3]"], "no array type"),
        (["draw", "user_code:model", "--arg", "f32[,5]"], "no array type"),
        (["export", "user_code:model", "--arg", "f32[10000000000,10000000000]"], "more elements than any memory"),
        (["draw", "./user_code:model"], "no MODULE:FUNCTION"),
        (["draw", ".user_code:model"], "no MODULE:FUNCTION"),
        (["draw", "user_code:leaving", "--arg", "f32[]"], "user_code:leaving ended the program (SystemExit: 0)"),
        (["draw", "leaving_script:f"], "importing 'leaving_script' ended the program"),
        (["export", "user_code:model", "--arg", "f32[5,3]", "-o", ".."], "it is a folder"),
        (["export", "user_code:affine", "--arg", "f32[2]", "--params", "user_code.py"], "neither a zip archive nor"),
        (["export", "user_code:affine", "--arg", "f32[2]", "--params", "words.npz"], "'w' holds <U1, no numbers"),
        (["plan", "--length", "inf", "--carry", "4kB"], "no trip count; write for instance"),
        (["demo", "-o", "user_code.py"], "is a file; give a folder"),
        (["draw", "user_code:branching", "--arg", "f32[]"], "branch with lax.cond"),
        (["draw", "user_code:long_error", "--arg", "f32[]"], "first (--debug shows all of it)"),
        (["draw"], "Missing argument"),
        (["plan", "--length", "10"], "'--carry'"),
        (["plan", "--length", "0", "--carry", "4kB"], "no trip count; write for instance"),
        (["plan", "--length", "1.5e0", "--carry", "4kB"], "no trip count; write for instance"),
        (["plan", "--length", "many", "--carry", "4kB"], "no trip count; write for instance"),
        (["draw", "user_code.py:model"], "named without its ending: user_code:model"),
        (["draw", "user_code:modle"], "is it 'model'?"),
        (["draw", "user_code:until", "--arg", "f32[]", "--grad"], "while_loop from quabla_jax.compat.lax"),
        (["plan", "--length", "10", "--carry", "4kB", "--plot", "p.xyz"], "xyz"),
        (["export", "user_code:model", "--arg", "f32[5,3]", "--to", "onnx"], "torchscript, pt2 or mlx"),
        (["bench", "nothing"], "there are accuracy"),
        (["no-such-command"], "no-such-command"),
        (["conformance", "--tier", "none"], "--tier"),
        (["conformance", "--backend", "none"], "give one of"),
    ],
)
def test_errors_are_one_line_with_the_cure(run, words, said, tmp_path):
    (tmp_path / "leaving_script.py").write_text("import sys\nsys.exit(0)\n")
    np.savez(tmp_path / "words.npz", w=np.array(["a"]))
    code, out = run(*words)
    text = str(code) if isinstance(code, str) else out.err
    assert code not in (0, None) and said in text and "Traceback" not in text + out.err
    assert len(text.strip().splitlines()) == 1


def test_debug_gives_the_traceback(run):
    with pytest.raises(ValueError, match="no MODULE:FUNCTION"):
        run("--debug", "export", "user_code")


def test_no_command_shows_the_help(run):
    code, out = run()
    assert code in (0, 2) and "conformance" in out.out + out.err


def test_a_program_without_results_is_refused_as_pt2(run):
    pytest.importorskip("torch")
    code, out = run("export", "user_code:nothing", "--arg", "f32[5,3]", "--to", "pt2", "-o", "m")
    assert code == 1 and "a program without results; return an array" in out.err


def test_the_drawing_of_a_gradient_says_so(run):
    code, out = run("draw", "user_code:model", "--arg", "f32[5,3]", "--grad")
    assert code == 0 and "gradient of model" in out.out.splitlines()[0]


def test_an_mlx_listing(run, tmp_path):
    pytest.importorskip("mlx.core")
    code, out = run("export", "user_code:model", "--arg", "f32[5,3]", "--to", "mlx", "-o", "model")
    assert code == 0 and "wrote model.txt" in out.out and "loop 5 times" in (tmp_path / "model.txt").read_text()


def test_bench_lists_what_it_can_run(run):
    code, out = run("bench")
    assert code == 0 and {"quabla", "loops", "mlx"} <= set(out.out.split())
