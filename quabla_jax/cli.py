"""The quabla-jax command. Each command loads what it needs when it runs, so that --help is quick."""

from __future__ import annotations

import pathlib
import sys
from typing import Annotated

try:
    import typer
except ImportError:  # the core library does without
    typer = None  # type: ignore[assignment]

__all__ = ["main"]

if typer is not None:
    app = typer.Typer(
        name="quabla-jax",
        help="Structured control flow for array programs: on XLA, MLX and PyTorch.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        add_completion=False,
    )
    _state = {"debug": False}

    @app.callback()
    def options(
        debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    ) -> None:
        _state["debug"] = debug

    @app.command()
    def demo(
        output: Annotated[
            pathlib.Path, typer.Option("--output", "-o", help="Folder for the files it writes.")
        ] = pathlib.Path("demo-output"),
        steps: Annotated[int, typer.Option(min=1, max=100_000, help="Steps of gradient descent.")] = 150,
    ) -> None:
        """Fit the lynx-hare record through 20,000 integration steps and run the model on every target."""
        from .demo import run

        run(output, steps)

    @app.command(
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
    )
    def conformance(context: typer.Context) -> None:
        """Hold every backend against JAX (arguments as of python -m conformance)."""
        from conformance.cli import main as run

        raise typer.Exit(run(context.args))

    @app.command()
    def devices() -> None:
        """The devices that programs can run on here, and what is missing for the others."""
        from ._devices import report

        report()


def main() -> None:
    """Entry point; errors are one line with the cure, --debug gives the traceback."""
    if typer is None:
        sys.exit("quabla-jax: the command line needs its extra: pip install 'quabla-jax[cli]'")
    try:
        app()
    except Exception as error:
        if _state["debug"]:
            raise
        sys.exit(
            f"quabla-jax: {type(error).__name__}: {str(error).strip() or 'no message'} (--debug shows where)"
        )
