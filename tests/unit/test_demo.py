"""The demo end to end, short: what it writes, how close the targets are, and what it says when one is missing."""

import io

import numpy as np
import pytest

pytest.importorskip("rich", reason="needs the cli extra")
pytest.importorskip("optax", reason="needs optax")
pytest.importorskip("matplotlib", reason="needs matplotlib")

from rich.console import Console

from quabla_jax import demo
from quabla_jax.demo import model, targets

pytestmark = pytest.mark.filterwarnings("ignore")


def test_the_record_is_the_published_one():
    years, pelts = model.load_record()
    assert years[0] == 1900 and years[-1] == 1920 and pelts.shape == (21, 2)
    np.testing.assert_array_equal(pelts[[0, 3, 4, 20]], [[30, 4], [77.4, 35.2], [36.3, 59.4], [24.7, 8.6]])


def test_the_gradient_is_right():
    """Against central differences in float64."""
    import jax

    pelts = model.load_record()[1]
    slope = jax.jit(jax.grad(model.loss), static_argnums=2)(model.START, pelts, "sqrt")
    value = jax.jit(model.loss)
    for k in range(6):
        step = np.zeros(6)
        step[k] = 1e-6
        numeric = (value(model.START + step, pelts) - value(model.START - step, pelts)) / 2e-6
        np.testing.assert_allclose(slope[k], numeric, rtol=2e-5, atol=1e-8)


def test_checkpoints_need_less_memory():
    pelts = model.load_record()[1]
    full, root = (model.gradient_memory(model.START, pelts, c) for c in ("full", "sqrt"))
    assert root < full / 100


def test_end_to_end(tmp_path):
    out = io.StringIO()
    rows = demo.run(tmp_path, steps=2, console=Console(file=out, width=120))
    present = {"fit.png", "index.html"} | ({"model.pt"} if len([r for r in rows if not r.reason]) == 3 else set())
    assert present <= {p.name for p in tmp_path.iterdir()}
    assert (tmp_path / "fit.png").read_bytes()[:4] == b"\x89PNG"
    for row in rows:
        assert row.reason or (row.float64 <= 1e-9 and row.float32 <= 1e-3), row
    assert "loss 0.41504" in out.getvalue()


def test_what_is_not_installed_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(targets, "_installed", lambda name: False)
    rows = targets.compare_targets(model.START, tmp_path / "model.pt")
    assert [r.target for r in rows if not r.reason] == ["XLA"]
    assert all("is not installed (pip install" in r.reason for r in rows[1:])
