"""What the examples share: their command line, and a figure that ends as a file."""

import argparse
import contextlib
import pathlib


def options(doc, tiny, argv=None):
    """The command line of an example: .tiny and .output, a folder that exists. `tiny` says what --tiny leaves out."""
    parser = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
    parser.add_argument("--tiny", action="store_true", help=tiny)
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("."), help="folder for what it writes")
    args = parser.parse_args(argv)
    args.output.mkdir(parents=True, exist_ok=True)
    return args


@contextlib.contextmanager
def figure(path, width, height):
    """A new figure of so many inches, written to `path` at the end. No window is opened."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    drawn = pyplot.figure(figsize=(width, height), layout="constrained")
    try:
        yield drawn
        drawn.savefig(path, dpi=110)
    finally:
        pyplot.close(drawn)
