"""Write the notebook form of every example: python tools/notebooks.py [--check]

A notebook is cut from its program: the docstring is the text on top, every top-level definition is a cell, and main runs
in the last ones, where `quick` chooses the tiny form; its picture is shown. `--check` writes nothing and fails where a
notebook is not what its program gives.
"""

import ast
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROGRAMS = ROOT / "examples"
NOTEBOOKS = PROGRAMS / "notebooks"
# long_rnn.py is run through the drop-in's command line; common.py is what the others share.
LEFT_OUT = {"long_rnn", "common"}


def programs():
    """The examples that have a notebook."""
    return sorted(f for f in PROGRAMS.glob("*.py") if f.stem not in LEFT_OUT)


def pieces(source):
    """The top-level statements of a module as text, comments above them included, grouped: imports and constants
    together, each definition alone; without the docstring and the `__main__` block."""
    lines, body = source.splitlines(), ast.parse(source).body
    cells, end = [], body[0].end_lineno
    for node in body[1:]:
        if isinstance(node, ast.If) and "__main__" in ast.unparse(node.test):
            break
        text, end = "\n".join(lines[end : node.end_lineno]), node.end_lineno
        gap, text = "\n\n" if text.startswith("\n") else "\n", text.strip("\n")
        alone = isinstance(node, (ast.FunctionDef, ast.ClassDef))
        if cells and not alone and not cells[-1][1]:
            cells[-1] = (cells[-1][0] + gap + text, False)
        else:
            cells.append((text, alone))
    return [text for text, _ in cells]


def top(source, name):
    """The module's docstring as Markdown: its first line as the title, without the usage."""
    title, _, rest = ast.get_docstring(ast.parse(source)).partition("\n")
    text = "\n".join(line for line in rest.splitlines() if not line.startswith("    python"))
    return f"# {title.rstrip('.')}\n\n{text.strip()}\n\nThis notebook is cut from `examples/{name}.py`."


def cell(kind, text, number):
    extra = {"execution_count": None, "outputs": []} if kind == "code" else {}
    lines = text.splitlines(keepends=True)
    return {"cell_type": kind, "id": f"cell-{number}", "metadata": {}, "source": lines, **extra}


def notebook(program):
    """The notebook of one program, as a JSON text."""
    source, name = program.read_text("utf-8"), program.stem
    code = pieces(source)
    # What a program finds beside itself, a notebook finds one folder up.
    code = [piece.replace("pathlib.Path(__file__).resolve().parent", 'pathlib.Path("..").resolve()') for piece in code]
    code.insert(0, 'import sys\n\nsys.path.insert(0, "..")')
    cells = [cell("markdown", top(source, name), 0)]
    cells += [cell("code", text, n) for n, text in enumerate(code, 1)]
    run = "quick = False  # True: the tiny form, in seconds"
    cells.append(cell("code", run, len(cells)))
    cells.append(cell("code", 'result = main([*(["--tiny"] if quick else []), "--output", "pictures"])', len(cells)))
    show = f'from IPython.display import Image\n\nImage(filename="pictures/{name}.png")'
    cells.append(cell("code", show, len(cells)))
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return json.dumps({"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}, indent=1) + "\n"


def main():
    check, stale = "--check" in sys.argv[1:], []
    NOTEBOOKS.mkdir(exist_ok=True)
    for program in programs():
        path, text = NOTEBOOKS / f"{program.stem}.ipynb", notebook(program)
        if path.exists() and path.read_text("utf-8") == text:
            continue
        stale.append(path.name)
        if not check:
            path.write_text(text, "utf-8")
    if check and stale:
        sys.exit(f"stale: {', '.join(stale)}; run python tools/notebooks.py")
    print(f"{len(stale)} of {len(programs())} written" if not check else "every notebook is current")


if __name__ == "__main__":
    main()
