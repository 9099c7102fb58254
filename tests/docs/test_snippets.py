"""Every Python block of the README and docs/ runs, page by page, top to bottom; a ```text block after one is its output.

A page's comments steer it: <!-- needs: torch, mlx --> names optional packages; <!-- not run: reason --> before a block
leaves that block out (shell transcripts and programs that are run by another test); <!-- output varies --> before a
text block keeps it from being compared.
"""

import contextlib
import importlib.util
import io
import os
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"(?P<note><!--(?:(?!-->).)*-->\s*\n)?^```(?P<kind>\w+)[^\n]*\n(?P<body>.*?)^```\s*$", re.M | re.S)


def blocks(text):
    for match in BLOCK.finditer(text):
        line = text.count("\n", 0, match.start("body")) + 1
        yield match["kind"], match["body"], (match["note"] or ""), line


def runnable(page):
    return any(kind == "python" and "not run:" not in note for kind, _, note, _ in blocks(page.read_text("utf-8")))


@pytest.mark.parametrize(
    "page", [p for p in PAGES if p.exists() and runnable(p)], ids=lambda p: p.relative_to(ROOT).as_posix()
)
@pytest.mark.filterwarnings("ignore")
def test_page_runs(page, tmp_path, monkeypatch):
    text = page.read_text("utf-8")
    for package in re.findall(r"<!-- needs: ([\w, .]+) -->", text):
        for name in package.split(","):
            if importlib.util.find_spec(name.strip()) is None:
                pytest.skip(f"the page needs {name.strip()}, which is not installed")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(os.fspath(tmp_path))
    space, printed, ran = {"__name__": "__docs__"}, None, 0
    for kind, body, note, line in blocks(text):
        if kind == "python" and "not run:" not in note:
            # Line numbers of the page, so that a traceback points into it.
            code = compile("\n" * (line - 1) + body, os.fspath(page), "exec")
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(code, space)
            printed, ran = out.getvalue(), ran + 1
        elif kind == "text" and printed is not None and "output varies" not in note:
            assert printed.rstrip() == body.rstrip(), f"{page.name}:{line}: the output has changed"
            printed = None
        else:
            printed = None
    assert ran


LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")


@pytest.mark.parametrize("page", [p for p in PAGES if p.exists()], ids=lambda p: p.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page):
    broken = []
    for target in LINK.findall(page.read_text("utf-8")):
        path, _, anchor = target.partition("#")
        if re.match(r"\w+:", target) or (not path and not anchor):
            continue
        file = page if not path else (page.parent / path)
        if not file.exists():
            broken.append(target)
        elif anchor and file.suffix == ".md":
            heads = re.findall(r"^#+\s+(.*)$", file.read_text("utf-8"), re.M)
            slugs = {re.sub(r"[^\w\- ]", "", h.lower()).strip().replace(" ", "-") for h in heads}
            if anchor not in slugs:
                broken.append(target)
    assert not broken, broken
