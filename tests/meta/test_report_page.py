"""The HTML report in a real browser: loaded from disk, filtered, opened, in light and dark, at a desk's and a phone's width.

REPORT_SCREENSHOTS names a folder to keep the screenshots in.
"""

import json
import os
import pathlib

import pytest
from chromium import Browser, executable

from conformance import report
from conformance.html import page

PATH = executable()
pytestmark = pytest.mark.skipif(PATH is None, reason="no Chromium on this machine (Debian: apt-get install chromium)")

HOSTILE = "got </script><img src=x onerror=\"document.title='broken'\"> <b>1 < 2</b> & \u2028 more"


def _records():
    """Three backends by four families: all pass but for one of every other outcome, with a message that would break a careless page."""
    made = []
    for backend in ("compat", "mlx", "torchscript"):
        for family, cases in (("cond", 6), ("fori", 12), ("scan", 9), ("special", 20)):
            for k in range(cases):
                for transform, dtype in (("jit", "float32"), ("vmap_grad", "float64")):
                    made.append(
                        {"case": f"{family}/case-{k}", "backend": backend, "transform": transform, "dtype": dtype,
                         "outcome": "pass", "ulp": k / 4, "bar": 64.0, "input": f"float32[2] [0.5,{k}]", "message": "", "seconds": 0.01}
                    )  # fmt: skip
    worse = {
        "fail": HOSTILE,
        "crash": "TypeError: of a kind",
        "unsupported": "no such op",
        "xfail": "known",
        "xpass": "stale",
    }
    for k, (outcome, message) in enumerate(worse.items()):
        made[100 + k] |= {"outcome": outcome, "message": message, "ulp": float("inf") if outcome == "fail" else None}
    return made


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """The page as `-o report.html` writes it: from the JSON alone, with a previous report to differ from."""
    records = _records()
    earlier = [dict(r, outcome="fail") if k == 3 else r for k, r in enumerate(records)]
    now, before = (
        json.loads(report.dump(report.data_of(r, {"quabla": "not installed"}, []))) for r in (records, earlier)
    )
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(page(now, before), "utf-8")
    return path.as_uri()


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    with Browser(PATH, tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture
def browser(chromium, address):
    chromium.problems.clear()
    chromium.requests.clear()
    chromium.window(1200, 900)
    chromium.open(address)
    yield chromium
    chromium.run("new Promise(requestAnimationFrame)")
    assert chromium.problems == [], "errors in the console"
    assert chromium.requests == [address], "the page asks for something beside itself"
    assert chromium.run("document.title") == "Conformance", "a message was taken for markup"


def _keep(browser, tmp_path, name):
    folder = pathlib.Path(os.environ.get("REPORT_SCREENSHOTS") or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)
    browser.screenshot(folder / f"{name}.png")
    return (folder / f"{name}.png").read_bytes()


def _count(browser):
    return browser.run("document.getElementById('count').textContent")


def _choose(browser, box, value):
    script = "(b => {b.value = %s; b.dispatchEvent(new Event('input', {bubbles: true}))})(document.getElementById(%s))"
    browser.run(script % (json.dumps(value), json.dumps(box)))


def _rows(browser):
    return browser.run(
        "[...document.querySelectorAll('#detail tr')].slice(1).map(r => [...r.children].map(c => c.textContent))"
    )


def test_matrix_of_families_and_backends(browser):
    head = browser.run(
        "[...document.querySelectorAll('#matrix tr')].map(r => [...r.children].map(c => c.textContent.trim()))"
    )
    assert head[0] == ["family", "compat", "mlx", "torchscript"]
    assert [row[0] for row in head[1:]] == ["cond", "fori", "scan", "special"]
    assert [row[1:] for row in head[1:]] == [["12", "7 / 12", "12"], ["24"] * 3, ["18"] * 3, ["40"] * 3]
    assert _count(browser) == "282 of 282 cells, 4 failing"


def test_filters(browser):
    _choose(browser, "transform", "vmap_grad")
    assert _count(browser).startswith("141 of 282")
    _choose(browser, "dtype", "float32")
    assert _count(browser) == "0 of 282 cells, 0 failing"
    _choose(browser, "dtype", "")
    _choose(browser, "transform", "")
    _choose(browser, "outcome", "crash")
    assert _count(browser) == "1 of 282 cells, 1 failing"
    _choose(browser, "outcome", "")
    browser.click("#search")
    for letter in "OF A KIND":
        browser.press(letter, "", 0, letter.lower())
    assert _count(browser) == "1 of 282 cells, 1 failing"


def test_a_cell_opens_and_closes(browser):
    failing = "button.cell.fail"
    browser.click(failing)
    rows = _rows(browser)
    assert len(rows) == int(browser.run(f"document.querySelector('{failing}').textContent.split('/')[1]"))
    worst = rows[0]
    assert worst[3:] == ["fail", "Infinity", "64", "float32[2] [0.5,3]", HOSTILE]
    assert [r[3] for r in rows].index("pass") > [r[3] for r in rows].index("xfail"), "the worst stands first"
    assert browser.run(f"document.querySelector('{failing}').ariaExpanded") == "true"
    browser.click(failing)
    assert _rows(browser) == []
    # With the keyboard: the button kept the focus.
    browser.press("Enter", "Enter", 13, "\r")
    assert len(_rows(browser)) == len(rows)


def test_filters_reach_an_open_cell(browser):
    browser.click("button.cell.fail")
    _choose(browser, "outcome", "fail")
    assert [r[3] for r in _rows(browser)] == ["fail"]


def test_environment_and_lists(browser):
    text = browser.run("document.body.innerText")
    assert "jax " in text and "quabla: not installed" in text
    assert "Changed since the previous report" in text and "fail -> pass" in text


CONTRAST = """
(() => {
  const light = c => {const v = c.match(/[\\d.]+/g).slice(0, 3).map(x => (x /= 255) <= .03928 ? x / 12.92 : ((x + .055) / 1.055) ** 2.4);
    return .2126 * v[0] + .7152 * v[1] + .0722 * v[2]};
  const ground = light(getComputedStyle(document.body).backgroundColor);
  return Math.min(...[...document.querySelectorAll('h1, h2, p, th, td, button, span, code, li')].filter(e => e.innerText).map(e => {
    const ink = light(getComputedStyle(e).color); return (Math.max(ink, ground) + .05) / (Math.min(ink, ground) + .05)}));
})()
"""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("phone", [False, True], ids=["desk", "phone"])
def test_readable(browser, tmp_path, phone, dark):
    browser.window(*((360, 740) if phone else (1200, 900)), phone=phone, dark=dark)
    browser.click("button.cell.fail")
    background = browser.run("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(255, 255, 255)") != dark
    assert browser.run(CONTRAST) >= 4.5, "text too faint"
    # Tables scroll in boxes of their own; the page does not scroll sideways, and nothing in it is too small for a finger.
    assert browser.run("document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0
    clipped = (
        "[...document.querySelectorAll('#detail td')].filter(e => e.getBoundingClientRect().right > innerWidth).length"
    )
    assert browser.run(clipped) == 0, "a cell's details stick out"
    assert browser.run("Math.min(...[...document.querySelectorAll('button.cell')].map(b => b.offsetHeight))") >= 24
    assert browser.run("parseFloat(getComputedStyle(document.body).fontSize)") >= 14
    picture = _keep(browser, tmp_path, f"report-{'phone' if phone else 'desk'}-{'dark' if dark else 'light'}")
    assert len(picture) > 10_000, "an empty page"
