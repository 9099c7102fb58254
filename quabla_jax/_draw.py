"""qb.draw: a program's regions as nested boxes, in text, SVG and HTML."""

from __future__ import annotations

import html
import os
import pathlib
import unicodedata
from collections.abc import Callable
from typing import Any

from ._boxes import Box, regions
from ._cycles import refusing_cycles
from ._files import checked_path, write_text

__all__ = ["Drawing", "draw"]

_COLOURS = {
    "function": "#6a737d", "scan": "#1f6f8b", "while": "#7a4fa3", "cond": "#b5651d", "branch": "#c9a227", "call": "#6a737d",
    "devices": "#1f6f8b", "checkpoint": "#2e7d4f", "custom rule": "#a13d63", "derivative": "#2e7d4f",
}  # fmt: skip


def _text(box: Box, width: int) -> list[str]:
    """The box as lines of exactly `width` characters."""
    inner = width - 4
    head, *facts = box.lines()
    lines = [f"┌─ {_fitted(_cut(head, inner - 1) + ' ', width - 4, '─')}┐"]
    lines += [f"│ {_fitted(_cut(fact, inner), inner)} │" for fact in facts]
    for child in box.children:
        lines += [f"│ {line} │" for line in _text(child, inner)]
    lines.append("└" + "─" * (width - 2) + "┘")
    return lines


def _columns(text: str) -> int:
    """How many columns of a terminal the text takes: wide characters two, marks that combine none."""
    return sum(0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in "WF") for c in text)


def _fitted(text: str, width: int, fill: str = " ") -> str:
    return text + fill * (width - _columns(text))


def _cut(text: str, width: int) -> str:
    if _columns(text) <= width:
        return text
    while _columns(text) > width - 1:
        text = text[:-1]
    return text + "…"


def _depth(box: Box) -> int:
    return 1 + max((_depth(c) for c in box.children), default=0)


_LINE, _PAD = 17, 10


def _measure(box: Box) -> tuple[float, float]:
    """Width and height of a box in SVG units; branches stand side by side, everything else below one another."""
    lines = box.lines()
    width = max(7.25 * _columns(line) for line in lines) + 2 * _PAD
    height = _LINE * len(lines) + 2 * _PAD
    sizes = [_measure(c) for c in box.children]
    if box.kind == "cond":
        width = max(width, sum(w for w, _ in sizes) + _PAD * (len(sizes) + 1))
        height += max((h for _, h in sizes), default=0) + _PAD
    else:
        width = max([width, *(w + 2 * _PAD for w, _ in sizes)])
        height += sum(h + _PAD for _, h in sizes)
    return width, height


def _svg(box: Box, x: float, y: float, width: float, height: float, out: list[str]) -> None:
    colour = _COLOURS[box.kind]
    out.append(
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="5" fill="{colour}" fill-opacity="0.07" '
        f'stroke="{colour}"/>'
    )
    below = y + _PAD
    for number, line in enumerate(box.lines()):
        below += _LINE
        weight = ' font-weight="600"' if number == 0 else ' opacity="0.8"'
        out.append(f'<text x="{x + _PAD:.1f}" y="{below - 4:.1f}"{weight}>{html.escape(line)}</text>')
    below += _PAD
    across = x + _PAD
    for child in box.children:
        w, h = _measure(child)
        if box.kind == "cond":
            _svg(child, across, below, w, h, out)
            across += w + _PAD
        else:
            _svg(child, x + _PAD, below, width - 2 * _PAD, h, out)
            below += h + _PAD


class Drawing:
    """A drawn program: print it for text, show it in a notebook for boxes, save() it as .txt, .svg or .html."""

    def __init__(self, root: Box):
        self.root = root

    def __str__(self) -> str:
        return "\n".join(_text(self.root, max(60, min(100, 52 + 4 * _depth(self.root)))))

    __repr__ = __str__

    def svg(self) -> str:
        """The boxes as one SVG element that takes its colours for text from the page it stands in."""
        width, height = _measure(self.root)
        parts: list[str] = []
        _svg(self.root, 1, 1, width, height, parts)
        size = f'width="{width + 2:.0f}" height="{height + 2:.0f}" viewBox="0 0 {width + 2:.0f} {height + 2:.0f}"'
        style = 'font-family="ui-monospace, monospace" font-size="12" fill="currentColor"'
        return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>{"".join(parts)}</svg>'

    def _repr_html_(self) -> str:
        return f'<div style="overflow-x:auto">{self.svg()}</div>'

    def html(self) -> str:
        """A self-contained page."""
        title = html.escape(self.root.title)
        return (
            '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
            f"<title>{title}</title><style>:root{{color-scheme:light dark}}body{{margin:1rem;font-family:system-ui}}</style></head>"
            f"<body>{self._repr_html_()}</body></html>"
        )

    def save(self, path: str | os.PathLike) -> None:
        """Write .txt, .svg or .html, by the ending; the file appears whole or not at all."""
        kinds = {".txt": lambda: str(self) + "\n", ".svg": self.svg, ".html": self.html}
        suffix = pathlib.Path(checked_path("Drawing.save", path)).suffix
        if suffix not in kinds:
            raise ValueError(f"Drawing.save: cannot draw to {str(path)!r}: the name must end in {', '.join(kinds)}")
        write_text(path, kinds[suffix](), "Drawing.save")


@refusing_cycles
def draw(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Drawing:
    """Draw the regions of fun(*args): loops with trip counts and carries, branches, captures, checkpoints, bytes, flops.

    Arguments:
        fun: any function that JAX can trace; its derivatives too (draw(jax.grad(f), x)).
        args, kwargs: arrays, or jax.ShapeDtypeStruct for shapes alone.

    Returns:
        A Drawing: prints as nested boxes, shows as SVG in a notebook, save()s as .txt, .svg or .html.

    Cost: one trace; nothing is compiled or run.
    """
    return Drawing(regions(fun, *args, **kwargs))
