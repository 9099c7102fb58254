"""The documentation site builds without a warning and asks no other server for anything."""

import importlib.util
import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_the_site_builds_strictly(tmp_path):
    for package in ("mkdocs", "material", "mkdocstrings"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed: pip install 'quabla-jax[docs]'")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(tmp_path)]
    built = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=400, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    )
    assert built.returncode == 0, "\n".join(l for l in built.stderr.splitlines() if not l.startswith("INFO"))
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) >= len(list((ROOT / "docs").glob("*.md")))
    fetched = re.compile(
        r"<(?:script|img|iframe)[^>]+src=\"(https?:[^\"]+)|<link[^>]+stylesheet[^>]+href=\"(https?:[^\"]+)"
    )
    assert {
        page.name: fetched.findall(page.read_text("utf-8")) for page in pages if fetched.search(page.read_text("utf-8"))
    } == {}
    api = (tmp_path / "api" / "index.html").read_text("utf-8")
    for name in ("fori_loop", "scan", "while_loop", "memory_report"):
        assert f'id="quabla_jax.{name}"' in api or re.search(rf'id="quabla_jax\.[\w.]*{name}"', api), name


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda p: p.name)
def test_no_formula_reads_as_a_link(page):
    """`Loop[g](c, x)` outside code is a link to Markdown: the brackets need a backslash."""
    text = re.sub(r"^```.*?^```\s*$|`[^`\n]*`", "", page.read_text("utf-8"), flags=re.M | re.S)
    assert re.findall(r"\w\[[^\]\n]*\]\([^)\n]*\)", text) == []
