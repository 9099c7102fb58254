"""`make audit`: what is pinned, against known vulnerabilities. Exit status 1 where a pin is affected or a check cannot be made.

Three checks: every line of every constraints file is an exact pin; every requirement of pyproject.toml is pinned inside its own
range; no pin lies in a range of tools/advisories.txt. Where pip-audit is installed and reaches its database, it is asked as
well; that it could not is said, and does not count as a pass of it.
"""

import pathlib
import re
import subprocess
import sys
import tomllib

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = pathlib.Path(__file__).resolve().parents[1]
ADVISORIES = ROOT / "tools" / "advisories.txt"


def lines(path: pathlib.Path) -> list[str]:
    """The lines of a file that are no comments."""
    return [line for line in path.read_text("utf-8").splitlines() if line and not line.startswith("#")]


def pins(path: pathlib.Path) -> tuple[dict[str, Version], list[str]]:
    """(version by package, the lines that pin nothing exactly)."""
    found, loose = {}, []
    for line in lines(path):
        match = re.fullmatch(r"([\w.-]+)==([\w.+!]+)", line)
        if match is None:
            loose.append(line)
        else:
            found[canonicalize_name(match[1])] = Version(match[2])
    return found, loose


def advisories(path: pathlib.Path = ADVISORIES) -> list[tuple[str, SpecifierSet, str, str]]:
    """(package, affected versions, identifier, what it is) of each line."""
    rows = [[cell.strip() for cell in line.split("|")] for line in lines(path)]
    return [(canonicalize_name(name), SpecifierSet(affected), ident, what) for name, affected, ident, what in rows]


def affected(pinned: dict[str, Version], known: list) -> list[str]:
    """One text a pin that an advisory names."""
    return [
        f"{name} {pinned[name]} is affected by {ident} ({what}); affected: {versions}"
        for name, versions, ident, what in known
        if name in pinned and versions.contains(pinned[name], prereleases=True)
    ]


def outside(pinned: dict[str, Version], requirements: list[str]) -> list[str]:
    """The requirements that the pins do not meet."""
    wrong = []
    for text in requirements:
        wanted = Requirement(text)
        if wanted.marker is not None and not wanted.marker.evaluate():
            continue
        have = pinned.get(canonicalize_name(wanted.name))
        if have is None or not wanted.specifier.contains(have, prereleases=True):
            wrong.append(f"{text} is pinned at {have}")
    return wrong


def requirements() -> list[str]:
    """Everything that pyproject.toml asks for, extras included."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return [*project["dependencies"], *(r for extra in project["optional-dependencies"].values() for r in extra)]


def asked_online(path: pathlib.Path) -> str:
    """What pip-audit says of a constraints file, in a line."""
    command = [
        sys.executable,
        "-m",
        "pip_audit",
        "-r",
        str(path),
        "--no-deps",
        "--disable-pip",
        "--progress-spinner",
        "off",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    skipped = done.stdout.count("could not be audited")
    if "No module named pip_audit" in done.stderr:
        return "pip-audit is not installed: not asked"
    if done.returncode == 0 and not skipped:
        return "pip-audit: no known vulnerabilities"
    if skipped == len(pins(path)[0]) or "ConnectionError" in done.stderr:
        return "pip-audit does not reach its database from here: not asked"
    return f"pip-audit (status {done.returncode}):\n{done.stdout}{done.stderr[-2000:]}"


def main() -> None:
    """Runs the checks over every constraints file."""
    known, wrong = advisories(), []
    for path in sorted(ROOT.glob("constraints*.txt")):
        pinned, loose = pins(path)
        found = [f"not an exact pin: {line}" for line in loose] + affected(pinned, known)
        if path.name == "constraints.txt":
            found += outside(pinned, requirements())
        print(f"{path.name}: {len(pinned)} pins, {len(found)} findings; {asked_online(path)}")
        wrong += [f"{path.name}: {text}" for text in found]
    if wrong:
        raise SystemExit("\n".join(wrong))


if __name__ == "__main__":
    main()
