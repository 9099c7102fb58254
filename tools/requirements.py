"""Print the requirements behind `.[extra,...]` and `-r FILE` arguments, so that a venv needs no install of the clone."""

import pathlib
import re
import sys
import tomllib


def main(arguments: list[str]) -> None:
    project = tomllib.loads(pathlib.Path("pyproject.toml").read_text("utf-8"))["project"]
    words = iter(arguments)
    for word in words:
        if word == "-r":
            print(pathlib.Path(next(words)).read_text("utf-8"))
            continue
        extras = re.fullmatch(r"\.\[([\w,]*)\]", word)
        if extras is None:
            raise SystemExit(f"expected .[extra,...] or -r FILE, got {word!r}")
        print("\n".join(project["dependencies"]))
        for extra in filter(None, extras[1].split(",")):
            print("\n".join(project["optional-dependencies"][extra]))


main(sys.argv[1:])
