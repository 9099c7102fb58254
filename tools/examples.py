"""Run the examples at full size, one after the other: python tools/examples.py [--docs] [NAME ...]

Prints how many seconds each took from start to end, and fails where one takes longer than three minutes or leaves no
picture. `--docs` puts the seconds and the pictures into the documentation.
"""

import argparse
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "examples.md"
LIMIT = 180  # seconds
ROW = "| `{}.py` | {} |"


def names():
    """The examples that end with a picture."""
    return sorted(f.stem for f in (ROOT / "examples" / "notebooks").glob("*.ipynb"))


def run(name, folder):
    """Seconds that an example took; sys.exit with what it printed where it fails."""
    command = [sys.executable, str(ROOT / "examples" / f"{name}.py"), "--output", str(folder)]
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, timeout=2 * LIMIT)
    seconds = time.perf_counter() - began
    if done.returncode or not (folder / f"{name}.png").exists():
        sys.exit(f"{name}: ended with status {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    print(f"{name:<16}{seconds:6.0f} s   {done.stdout.strip().splitlines()[-1]}", flush=True)
    return seconds


def into_docs(seconds, folder):
    """The new seconds into the page's table, the pictures beside it."""
    text = PAGE.read_text("utf-8")
    for name, value in seconds.items():
        text, found = re.subn(rf"^\| `{name}\.py` \|.*$", ROW.format(name, round(value)), text, flags=re.M)
        assert found == 1, f"{PAGE.name} has no row for {name}.py"
        shutil.copy(folder / f"{name}.png", ROOT / "docs" / "images" / f"example_{name}.png")
    PAGE.write_text(text, "utf-8")


def main():
    options = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    options.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(names())}; all by default")
    options.add_argument("--docs", action="store_true", help="write the seconds and the pictures into docs/")
    args = options.parse_args()
    if unknown := set(args.names) - set(names()):
        options.error(f"no example {', '.join(sorted(unknown))}: there are {', '.join(names())}")
    print(f"{os.cpu_count()} cores, {platform.machine()}, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        seconds = {name: run(name, folder) for name in args.names or names()}
        if args.docs:
            into_docs(seconds, folder)
    slow = [name for name, value in seconds.items() if value > LIMIT]
    if slow:
        sys.exit(f"longer than {LIMIT} s: {', '.join(slow)}")


if __name__ == "__main__":
    main()
