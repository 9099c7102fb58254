"""The documentation site builds without a warning, its links lead somewhere, and it asks no other server for anything."""

import html.parser
import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import urllib.parse

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the built site."""
    for package in ("mkdocs", "material", "mkdocstrings"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed: pip install 'quabla-jax[docs]'")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(folder)]
    built = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=400, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    )
    assert built.returncode == 0, "\n".join(l for l in built.stderr.splitlines() if not l.startswith("INFO"))
    return folder


def test_the_site_asks_no_other_server(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) >= len(list((ROOT / "docs").glob("*.md")))
    fetched = re.compile(
        r"<(?:script|img|iframe)[^>]+src=\"(https?:[^\"]+)|<link[^>]+stylesheet[^>]+href=\"(https?:[^\"]+)"
    )
    assert {
        page.name: fetched.findall(page.read_text("utf-8")) for page in pages if fetched.search(page.read_text("utf-8"))
    } == {}


class Page(html.parser.HTMLParser):
    """The addresses that a page leads to and the places in it that an address can name."""

    def __init__(self, file):
        super().__init__()
        self.links, self.places = set(), set()
        self.feed(file.read_text("utf-8"))

    def handle_starttag(self, tag, attrs):
        named = dict(attrs)
        self.places |= {named[key] for key in ("id", "name") if named.get(key)}
        self.links |= {named[key] for key in ("href", "src") if named.get(key)}


def dead_links(folder):
    """(page, address) of each link inside a built site that leads to no file, or to no place in its page."""
    pages = {file: Page(file) for file in folder.rglob("*.html") if file.name != "404.html"}  # its links are absolute
    dead = []
    for file, page in pages.items():
        for address in page.links:
            parts = urllib.parse.urlsplit(address)
            if parts.scheme or parts.netloc:
                continue
            target = file if not parts.path else (file.parent / urllib.parse.unquote(parts.path)).resolve()
            target = target / "index.html" if target.is_dir() else target
            place = urllib.parse.unquote(parts.fragment)
            known = target in pages and (not place or place in pages[target].places)
            if not (known or (target.is_file() and target not in pages)):
                dead.append((file.relative_to(folder).as_posix(), address))
    return sorted(dead)


def test_every_link_of_the_site_leads_somewhere(site):
    assert dead_links(site.resolve()) == []


def test_dead_links_are_seen(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "index.html").write_text('<h1 id="top">b</h1><a href="../#gone">x</a>')
    (tmp_path / "index.html").write_text(
        '<a href="b/#top">a</a><a href="b/">a</a><a href="b/#nowhere">a</a><img src="c.png"><a href="https://a.b/c">a</a>'
    )
    assert dead_links(tmp_path.resolve()) == [
        ("b/index.html", "../#gone"), ("index.html", "b/#nowhere"), ("index.html", "c.png"),
    ]  # fmt: skip


def test_the_reference_has_every_public_name(site):
    import quabla_jax as qb

    text = "".join((site / page / "index.html").read_text("utf-8") for page in ("api", "api_arrays"))
    entries = set(re.findall(r'id="quabla_jax\.[\w.]*?(\w+)"', text))
    mentioned = set(re.findall(r"<code>(\w+)</code>", text))
    public = [*qb._OWNER, *qb._SUBMODULES]  # dir() also has the rooms that were imported
    assert [name for name in public if name not in entries | mentioned] == []
    assert entries >= {
        "fori_loop",
        "scan",
        "while_loop",
        "memory_report",
        "draw",
        "to_torchscript",
        "odeint",
        "patched",
    }


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda p: p.name)
def test_no_formula_reads_as_a_link(page):
    """`Loop[g](c, x)` outside code is a link to Markdown: the brackets need a backslash."""
    text = re.sub(r"^```.*?^```\s*$|`[^`\n]*`", "", page.read_text("utf-8"), flags=re.M | re.S)
    assert re.findall(r"\w\[[^\]\n]*\]\([^)\n]*\)", text) == []
