"""The quabla-jax command. Each command loads what it needs when it runs, so that --help is quick."""

from __future__ import annotations

import pathlib
import sys
from typing import TYPE_CHECKING, Annotated

from ._interrupts import interruptible

if TYPE_CHECKING:
    import typer
else:
    try:
        import typer
    except ImportError:  # the core library does without
        typer = None

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

    @app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []})
    def conformance(context: typer.Context) -> None:
        """Hold every backend against JAX (arguments as of python -m conformance)."""
        from conformance.cli import main as run

        raise typer.Exit(run(context.args))

    @app.command()
    def devices() -> None:
        """The devices that programs can run on here, and what is missing for the others."""
        from ._devices import report

        report()

    @app.command()
    def export(
        function: Annotated[str, typer.Argument(metavar="MODULE:FUNCTION", help="What to export.")],
        arg: Annotated[
            list[str] | None,
            typer.Option("--arg", metavar="f32[8,3]", help="Type of an argument; repeatable, in order."),
        ] = None,
        to: Annotated[
            str, typer.Option("--to", help="torchscript, pt2 or mlx (a listing of the MLX program).")
        ] = "torchscript",
        output: Annotated[pathlib.Path, typer.Option("--output", "-o", help="File to write.")] = pathlib.Path(
            "exported"
        ),
        params: Annotated[
            pathlib.Path | None,
            typer.Option(help="An .npz of parameters; FUNCTION is called as f(params, *args)."),
        ] = None,
    ) -> None:
        """Write a JAX function for another target. Files appear whole or not at all."""
        from ._arguments import check_call, function_at, parameters_in, refusing_exit, shape_of
        from ._files import target_of

        if to not in ("torchscript", "pt2", "mlx"):
            raise typer.BadParameter(f"{to!r}: expected torchscript, pt2 or mlx")
        fun = function_at(function)
        args = [shape_of(text) for text in arg or []]
        tree = parameters_in(params) if params else None
        check_call(fun, [*([tree] if params else []), *args])
        path = output
        if not output.suffix and output.name and not output.exists():  # a folder or a device is named as it is
            path = output.with_suffix({"torchscript": ".pt", "pt2": ".pt2", "mlx": ".txt"}[to])
        target_of("--output", path)  # said before the work, not after it
        with refusing_exit(function):
            if to == "mlx":
                from . import mlx_backend
                from ._files import write_text

                write_text(path, mlx_backend.lower(fun, *([tree] if params else []), *args).as_text() + "\n")
            else:
                from . import torch_bridge

                make = torch_bridge.to_torchscript if to == "torchscript" else torch_bridge.to_exported_program
                torch_bridge.save(make(fun, *args, params=tree), path)
        typer.echo(f"wrote {path} ({path.stat().st_size:,} bytes)")

    @app.command()
    def draw(
        function: Annotated[str, typer.Argument(metavar="MODULE:FUNCTION")],
        arg: Annotated[
            list[str] | None,
            typer.Option("--arg", metavar="f32[8,3]", help="Type of an argument; repeatable."),
        ] = None,
        grad: Annotated[bool, typer.Option("--grad", help="Draw the gradient instead.")] = False,
        params: Annotated[
            pathlib.Path | None,
            typer.Option(help="An .npz of parameters; FUNCTION is called as f(params, *args)."),
        ] = None,
        output: Annotated[
            pathlib.Path | None, typer.Option("--output", "-o", help="A .txt, .svg or .html file.")
        ] = None,
    ) -> None:
        """Show the regions of a program as nested boxes: loops, branches, carries, captures, bytes, flops."""
        import jax

        from ._arguments import check_call, function_at, parameters_in, refusing_exit, shape_of
        from ._draw import draw as drawn

        fun = function_at(function)
        args = [*([parameters_in(params)] if params else []), *(shape_of(text) for text in arg or [])]
        check_call(fun, args)
        with refusing_exit(function):
            picture = drawn(jax.grad(fun) if grad else fun, *args)
        if grad:
            picture.root.title = f"gradient of {picture.root.title}"
        if output is None:
            typer.echo(str(picture))
        else:
            picture.save(output)
            typer.echo(f"wrote {output}")

    @app.command()
    def plan(
        length: Annotated[str, typer.Option(metavar="N", help="Trip count, such as 10000 or 1e4.")],
        carry: Annotated[str, typer.Option(help="Bytes of one carry, such as 40000 or 40kB.")],
        residual: Annotated[
            str | None, typer.Option(help="Bytes that one step's derivative needs; default: the carry's.")
        ] = None,
        budget: Annotated[str | None, typer.Option(help="A limit such as 200MB; its plan is shown too.")] = None,
        plot: Annotated[
            pathlib.Path | None, typer.Option(help="Write memory against recomputation as PNG or SVG.")
        ] = None,
    ) -> None:
        """Compare what a loop's gradient would store and run again under each plan."""
        from ._arguments import count_of
        from ._plans import plot_plans, table

        rows = table(count_of(length), carry, residual, budget)
        from rich.console import Console
        from rich.table import Table

        shown = Table("checkpoint", "levels", "slots", "stored", "extra forward steps")
        for row in rows:
            shown.add_row(*row.cells())
        Console().print(shown)
        if plot is not None:
            plot_plans(rows, plot)
            typer.echo(f"wrote {plot}")

    @app.command()
    def bench(
        name: Annotated[
            str | None, typer.Argument(help="loops, while_loops, mlx, torch, quabla, overhead or accuracy.")
        ] = None,
    ) -> None:
        """Run a benchmark of the repository (a clone is needed), or list them."""
        import runpy

        folder = pathlib.Path(__file__).resolve().parents[1] / "benchmarks"
        if not folder.is_dir():
            raise typer.BadParameter("the benchmarks lie in the repository: run this from a clone")
        names = sorted(f.stem for f in folder.glob("*.py") if not f.stem.startswith("_"))
        if name is None:
            typer.echo("\n".join(names))
            return
        if name not in names:
            raise typer.BadParameter(f"no benchmark {name!r}: there are {', '.join(names)}")
        sys.path.insert(0, str(folder))
        sys.argv = [str(folder / f"{name}.py")]
        runpy.run_path(sys.argv[0], run_name="__main__")


# What JAX's own messages leave out.
_CURES = {"TracerBoolConversionError": "branch with lax.cond or jax.numpy.where instead of Python's if and while"}
_CURES_BY_TEXT = {
    "Reverse-mode differentiation does not work for lax.while_loop": "Or take while_loop from quabla_jax.compat.lax, with "
    'checkpoint="auto".'
}


def _message(error: Exception) -> str:
    """One line about an error, with its cure; a longer message gives its first line."""
    usage = getattr(error, "format_message", None)  # of a wrong command line; the message is typer's
    lines = [line.strip() for line in (usage() if usage else str(error)).splitlines() if line.strip()] or ["no message"]
    if usage is not None:
        return f"{' '.join(lines)} (--help lists the options)"
    cure = _CURES.get(type(error).__name__) or next(
        (c for t, c in _CURES_BY_TEXT.items() if lines[0].startswith(t)), None
    )
    more = "all of it" if len(lines) > 1 else "where"
    return f"{type(error).__name__}: {lines[0]}{f' {cure}' if cure else ''} (--debug shows {more})"


def main() -> None:
    """Entry point; errors are one line with the cure, --debug gives the traceback."""
    if typer is None:
        sys.exit("quabla-jax: the command line needs its extra: pip install 'quabla-jax[cli]'")
    try:
        with interruptible():
            code = app(standalone_mode=False)
    except typer.Abort:
        print("quabla-jax: interrupted", file=sys.stderr)
        sys.exit(130)
    except Exception as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # its message is the help
            error.show()  # type: ignore[attr-defined]
            sys.exit(2)
        if _state["debug"]:
            raise
        print(f"quabla-jax: {_message(error)}", file=sys.stderr)
        sys.exit(getattr(error, "exit_code", 1))
    sys.exit(code if isinstance(code, int) else 0)
