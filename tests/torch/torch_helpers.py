"""Shared by the torch tests: load a file in this process or in a new one, with torch.jit's deprecation kept quiet."""

import importlib.util
import pathlib
import subprocess
import sys
import textwrap

import torch

from quabla_jax.torch_bridge._torch_api import quiet


def load(path):
    with quiet():
        return torch.jit.load(str(path))


def write(module, path):
    with quiet():
        torch.jit.save(module, str(path))


def save_load(module, path):
    write(module, path)
    return load(path)


def in_new_process(source, *args, python=sys.executable):
    """Run a script that imports torch alone (never quabla_jax) in a new interpreter; returns what it prints."""
    code = "import sys, warnings\nwarnings.simplefilter('ignore')\nimport torch\n" + textwrap.dedent(source)
    done = subprocess.run(
        [python, "-c", code, *map(str, args)], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def example(path):
    """A module of examples/, loaded from its file."""
    file = pathlib.Path(__file__).resolve().parents[2] / "examples" / path
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
