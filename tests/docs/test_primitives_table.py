"""docs/primitives.md says what the rules say."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_the_table_of_primitives_is_current():
    pytest.importorskip("mlx.core", reason="one column of the table is MLX's")
    pytest.importorskip("torch", reason="one column of the table is PyTorch's")
    spec = importlib.util.spec_from_file_location("primitives_table", ROOT / "benchmarks" / "primitives_table.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    written = (ROOT / "docs" / "primitives.md").read_text("utf-8")
    assert written == module.text(), f"stale: run {module.COMMAND}"
