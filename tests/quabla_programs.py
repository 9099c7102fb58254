"""The example programs, each loaded against the real quabla or against quabla_jax: only the import differs."""

from __future__ import annotations

import pathlib
import types

FOLDER = pathlib.Path(__file__).parent / "data" / "programs"
NAMES = sorted(path.stem for path in FOLDER.glob("*.py"))
IMPORT = "import quabla as qb\n"
SIZE = "SCALE = 1\n"


def load(name: str, package: str, scale: int = 1) -> types.ModuleType:
    """A program with `package` in the place of quabla, and a size of its own for benchmarks."""
    source = (FOLDER / f"{name}.py").read_text()
    assert source.count(IMPORT) == 1
    module = types.ModuleType(f"{name}_on_{package}")
    assert scale == 1 or source.count(SIZE) == 1
    source = source.replace(IMPORT, f"import {package} as qb\n").replace(SIZE, f"SCALE = {scale}\n")
    exec(compile(source, f"{name}.py", "exec"), module.__dict__)
    return module
