"""A lowered program as text."""

from __future__ import annotations

from typing import Any

from .program import Branch, Const, Loop, Op, Region, Value

__all__ = ["as_text"]


def as_text(region: Region, name: str = "") -> str:
    """One line a node, regions indented, the user's source line at the end; values are numbered in order."""
    lines: list[str] = []
    names: dict[Value, str] = {}

    def show(value: Value) -> str:
        if isinstance(value, Const):
            if value.size == 1:
                return f"{value.array.reshape(())[()]}:{_type(value)}"
            names.setdefault(value, f"c{sum(isinstance(v, Const) for v in names)}")
        return names.setdefault(value, f"v{len(names)}")

    def define(value: Value) -> str:
        return f"{show(value)}:{_type(value)}"

    def write(inner: Region, title: str, depth: int) -> None:
        pad = "  " * depth
        lines.append(f"{pad}{title}({', '.join(define(v) for v in inner.inputs)}):")
        for node in inner.nodes:
            out = ", ".join(define(v) for v in node.outputs)
            made = f"{out} = " if out else ""
            args = ", ".join(show(v) for v in node.inputs)
            source = f"   # {node.source}" if node.source else ""
            if isinstance(node, Op):
                params = "".join(f" {k}={_param(v)}" for k, v in node.params.items())
                lines.append(f"{pad}  {made}{node.name}({args}){params}{source}")
            elif isinstance(node, Loop):
                lines.append(f"{pad}  {made}loop {_loop_kind(node, show)}({args}){source}")
                if node.cond is not None:
                    write(node.cond, "while", depth + 2)
                write(node.body, "body", depth + 2)
            else:
                assert isinstance(node, Branch)
                lines.append(f"{pad}  {made}branch[{show(node.index)}]({args}){source}")
                for i, branch in enumerate(node.branches):
                    write(branch, f"case {i}", depth + 2)
        lines.append(f"{pad}  return {', '.join(show(v) for v in inner.outputs)}")

    write(region, name or getattr(region, "name", "region"), 0)
    return "\n".join(lines)


def _loop_kind(node: Loop, show: Any) -> str:
    if node.kind == "while":
        return "while" if node.bound is None else f"while (at most {node.bound})"
    count = node.length if node.trip is None else show(node.trip)
    return f"{count} times{' backwards' if node.reverse else ''}"


def _param(value: Any) -> str:
    return str(value).replace(" ", "")


def _type(value: Value) -> str:
    return f"{value.dtype}[{','.join(map(str, value.shape))}]"
