"""python -m quabla_jax.compat [-c CHECKPOINT] [-w CHECKPOINT] (script.py | -m MODULE) ARGS…: run an unedited program on the engine."""

from __future__ import annotations

import argparse
import os
import runpy
import sys
import zipfile
from typing import Any


def parse_checkpoint(text: str) -> Any:
    """'auto', 'full' and 'sqrt' as they are; digits: that many carries; a size such as 512MB: a Budget of that size."""
    if text in ("auto", "full", "sqrt"):
        return text
    if text.isdigit():
        return int(text)
    from ..loops import Budget

    try:
        return Budget(text)
    except (TypeError, ValueError) as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither auto, full, sqrt, a number of carries, nor a size such as 512MB ({error})"
        ) from None


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m quabla_jax.compat",
        description="Run a Python program with jax.lax's control flow going through the engine.",
        usage="%(prog)s [-h] [-c CHECKPOINT] [-w CHECKPOINT] (script.py | -m MODULE) [ARGS ...]",
    )
    made.add_argument(
        "-c", "--checkpoint", type=parse_checkpoint, default="auto",
        help="plan for scan, fori_loop and map: auto (default), full, sqrt, a number of carries, or a size such as 512MB",
    )  # fmt: skip
    made.add_argument(
        "-w", "--while-checkpoint", type=parse_checkpoint, default=None, metavar="CHECKPOINT",
        help="make while_loop reverse-differentiable by this plan (default: as in jax.lax, not at all)",
    )  # fmt: skip
    made.add_argument("-m", dest="module", action="store_true", help="run a library module, as python -m does")
    made.add_argument("program", metavar="script.py")
    made.add_argument("args", nargs=argparse.REMAINDER, metavar="ARGS")
    return made


def main(argv: list[str] | None = None) -> None:
    """Run the program named on the command line as __main__, with install() in force; its exit status is its own.

    The process ends with the program, so nothing is taken back: threads that outlive the last line and functions
    registered with atexit are served as well.
    """
    options = parser().parse_args(argv)
    if not options.module and not os.path.exists(options.program):
        parser().error(f"can't open {options.program!r}: no such file")
    from .patch import install

    install(options.checkpoint, while_checkpoint=options.while_checkpoint)
    sys.argv = [options.program, *options.args]
    # `python -m quabla_jax.compat` has put the current folder first on the path (not so under -P); `python script.py`
    # has the script's own there, and runpy itself adds a folder or an archive that it runs.
    own_entry = not getattr(sys.flags, "safe_path", False)
    if options.module:
        runpy.run_module(options.program, run_name="__main__", alter_sys=True)
        return
    if own_entry:
        del sys.path[0]
        if os.path.isfile(options.program) and not zipfile.is_zipfile(options.program):
            sys.path.insert(0, os.path.dirname(os.path.realpath(options.program)))
    runpy.run_path(options.program, run_name="__main__")


if __name__ == "__main__":
    main()
