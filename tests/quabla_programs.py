"""The example programs, each loaded against the real quabla or against quabla_jax: only the import differs."""

from __future__ import annotations

import pathlib
import types

FOLDER = pathlib.Path(__file__).parent / "data" / "programs"
NAMES = sorted(path.stem for path in FOLDER.glob("*.py"))
IMPORT = "import quabla as qb\n"


def load(name: str, package: str) -> types.ModuleType:
    """A program with `package` in the place of quabla."""
    source = (FOLDER / f"{name}.py").read_text()
    assert source.count(IMPORT) == 1
    module = types.ModuleType(f"{name}_on_{package}")
    exec(compile(source.replace(IMPORT, f"import {package} as qb\n"), f"{name}.py", "exec"), module.__dict__)
    return module
