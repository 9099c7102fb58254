"""Damaged and hostile files: qb.load and from_torchscript give a clear error (or a value) in bounded time and memory.

FILE_DRAWS sets how many mutated inputs each reader gets, FILE_SEED where the generator begins; each test prints how many
inputs it has read and what became of them (pytest -s). torch's reader is C++ and runs in processes of its own.
"""

import ast
import collections
import io
import json
import os
import pathlib
import random
import re
import resource
import signal
import struct
import subprocess
import sys
import textwrap
import time
import warnings
import zipfile

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import quabla_jax as qb

DRAWS = int(os.environ.get("FILE_DRAWS", "2000"))
SEED = int(os.environ.get("FILE_SEED", "0"))
SECONDS = 5.0
"""No single small file may take longer to read than this (typical: 50 microseconds)."""

TREES = [
    {"w": np.arange(6.0).reshape(2, 3), "n": 3, "deep": [None, True, 2.5, "text", (np.asarray([True, False]),)]},
    [np.float32(1.5) * np.ones((3, 1), np.float32)],
    {},
    {1: {2: {3: [[], (), {"a": -0.0}]}}},
    np.zeros((2, 2, 2)),
]


def peak():
    """The most kB that this program held. Linux's ru_maxrss also counts the process that started it."""
    if sys.platform.startswith("linux"):
        return int(re.search(r"VmHWM:\s+(\d+)", pathlib.Path("/proc/self/status").read_text())[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024  # bytes on macOS


def file_of(tree):
    stream = io.BytesIO()
    qb.save(stream, tree)
    return stream.getvalue()


def truncated(rng, data):
    return data[: rng.randrange(len(data))]


def flipped(rng, data):
    out = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 8])):
        out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
    return bytes(out)


def spliced(rng, data):
    a, b = sorted(rng.randrange(len(data)) for _ in range(2))
    return data[:a] + data[b:] + data[a:b] * rng.choice([0, 1, 3])


def stretched(rng, data):
    at = rng.randrange(len(data))
    return data[:at] + rng.randbytes(rng.choice([1, 4, 64])) + data[at:]


def digits(rng, data):
    """A number of the text replaced by an awkward one."""
    places = [i for i, c in enumerate(data) if 48 <= c <= 57]
    if not places:
        return data[::-1]
    at = rng.choice(places)
    new = rng.choice(
        [b"-1", b"0", b"1e999", b"9" * 30, b"18446744073709551616", b"null", b"NaN", b'"x"', b"[]", b"true"]
    )
    return data[:at] + new + data[at + 1 :]


MUTATIONS = [truncated, flipped, spliced, stretched, digits]


def header_kept(data, change):
    """The file with its header changed and its length put right, so that the decoder behind sees the damage."""
    if len(data) < 16:
        return data
    (size,) = struct.unpack("<Q", data[8:16])
    header = change(data[16 : 16 + size]) if size else b""
    return data[:8] + struct.pack("<Q", len(header)) + header + data[16 + size :]


def mutated(rng, seeds):
    data = rng.choice(seeds)
    mutation = rng.choice(MUTATIONS)
    if rng.random() < 0.5:
        return header_kept(data, lambda header: mutation(rng, header) if header else header)
    return mutation(rng, data)


def test_load_reads_or_refuses_every_mutated_file():
    rng, seeds = random.Random(SEED), [file_of(tree) for tree in TREES]
    counts = {"read": 0, "refused": 0}
    slowest, before = 0.0, peak()
    for _ in range(DRAWS):
        data = mutated(rng, seeds)
        start = time.perf_counter()
        try:
            qb.load(io.BytesIO(data))
            counts["read"] += 1
        except ValueError as error:
            assert "quabla save file" in str(error), error
            counts["refused"] += 1
        slowest = max(slowest, time.perf_counter() - start)
    grown = peak() - before
    print(
        f"\nqb.load: {DRAWS} mutated files from seed {SEED}, {counts}, slowest {slowest:.3f} s, {grown} kB more memory"
    )
    assert counts["refused"] > DRAWS // 2
    assert slowest < SECONDS and grown < 500_000


HOSTILE = {
    "empty": b"",
    "another magic": b"PK\x03\x04" + bytes(100),
    "a header of 2**63 bytes": b"\x93QUABLA\n" + struct.pack("<Q", 2**63) + b"{}",
    "an endless list": b"[" * 10**6,
    "a nest of dicts": b'{"tree":' * 10**5 + b"1" + b"}" * 10**5,
    "an integer of a million digits": b'{"format":"quabla","version":1,"tree":{"type":"int","value":'
    + b"9" * 10**6
    + b"}}",
    "an array of 2**62 bytes": json.dumps(
        {
            "format": "quabla",
            "version": 1,
            "tree": {"type": "array", "dtype": "float64", "shape": [2**59], "offset": 0, "nbytes": 2**62},
        }
    ).encode(),
    "an empty array of huge extents": json.dumps(
        {
            "format": "quabla",
            "version": 1,
            "tree": {"type": "array", "dtype": "float64", "shape": [2**70, 0], "offset": 0, "nbytes": 0},
        }
    ).encode(),
    "code instead of a header": b"__import__('os').system('true')",
    "a pickle": b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R.",
}


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_files_are_refused(what):
    body = HOSTILE[what]
    data = (
        body
        if what in ("empty", "another magic", "a header of 2**63 bytes")
        else b"\x93QUABLA\n" + struct.pack("<Q", len(body)) + body
    )
    start = time.perf_counter()
    with pytest.raises(ValueError, match="quabla save file"):
        qb.load(io.BytesIO(data))
    assert time.perf_counter() - start < SECONDS


def test_what_save_refuses_leaves_nothing(tmp_path):
    nest: list = []
    for _ in range(300):
        nest = [nest]
    for tree in (nest, {"a": object()}, {(1,): 2}):
        with pytest.raises((ValueError, TypeError), match=r"quabla\.save"):
            qb.save(tmp_path / "file", tree)
    assert os.listdir(tmp_path) == []


def test_names_in_a_tree_are_no_paths(tmp_path):
    tree = {"../../escape": jnp.ones(2), "/etc/passwd": jnp.ones(1)}
    qb.save(tmp_path / "file", tree)
    assert list(qb.load(tmp_path / "file")) == list(tree)
    assert os.listdir(tmp_path) == ["file"]


BATCH = 5000
"""Mutants a process reads. Starting one costs what reading some 1,500 mutants does."""

READERS = 2
"""Processes at a time."""

READER = textwrap.dedent("""
    import collections, os, random, resource, signal, sys, time
    sys.path.insert(0, sys.argv[1])
    import test_files_fuzz as fuzz
    from quabla_jax.torch_bridge import from_torchscript

    folder, first, last = sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # a mutant that hangs in C++ ends the process, and so is seen
    seeds = [open(os.path.join(folder, name), "rb").read() for name in sorted(os.listdir(folder)) if name.endswith(".pt")]
    path = os.path.join(folder, f"mutant-{os.getpid()}")
    counts, slowest = collections.Counter(), 0.0
    before = None
    for k in range(first, last):
        os.write(1, f"at {k}\\n".encode())
        rng = random.Random(k)
        data = fuzz.mutated_archive(rng, seeds)
        open(path, "wb").write(data)
        signal.setitimer(signal.ITIMER_REAL, fuzz.HANGS)
        start, outcome = time.process_time(), "read"
        try:
            from_torchscript(path)
        except ValueError as error:
            assert str(error).startswith("from_torchscript: "), error
            outcome = "refused by torch" if type(error.__cause__).__name__ == "RuntimeError" else "refused"
        slowest = max(slowest, time.process_time() - start)
        counts[outcome] += 1
        before = before or fuzz.peak()
    signal.setitimer(signal.ITIMER_REAL, 0)
    os.unlink(path)
    print("done", dict(counts), slowest, fuzz.peak() - before)
""")
HANGS = 120
"""Seconds, on a busy machine, after which one small file counts as a hang."""


def numbered(rng, data):
    """A small integer of a pickle replaced by another one."""
    places = [i for i, c in enumerate(data[:-1]) if c in b"KJMh"]
    if not places:
        return data[::-1]
    out = bytearray(data)
    out[rng.choice(places) + 1] = rng.choice([0, 1, 2, 3, 127, 255])
    return bytes(out)


def reworded(rng, data):
    """A word of the source, or a name in a pickle, replaced by another one of the same file, or left out."""
    words = list(re.finditer(rb"\w+|[^\w\s]", data))
    if len(words) < 2:
        return data[:-1]
    here, there = rng.choice(words), rng.choice(words)
    return data[: here.start()] + rng.choice([b"", there[0], here[0] * 2]) + data[here.end() :]


def mutated_archive(rng, seeds):
    """A third of the mutants damage the archive, the others its entries in an archive that is sound."""
    data = rng.choice(seeds)
    if rng.random() < 1 / 3:
        return rng.choice(MUTATIONS)(rng, data)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        entries = {e.filename: archive.read(e) for e in archive.infolist()}
    name = rng.choice([n for n in entries if entries[n]])
    what = rng.random()
    if what < 0.05:
        entries[name] = entries[rng.choice(list(entries))]
    elif what < 0.1:
        del entries[name]
    else:
        for _ in range(rng.choice([1, 1, 1, 3])):
            entries[name] = rng.choice([*MUTATIONS, numbered, reworded])(rng, entries[name]) if entries[name] else b""
    return archive_of(entries)


def archive_of(entries, compression=zipfile.ZIP_STORED):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as archive:
        for name, body in entries.items():
            archive.writestr(name, body)
    return stream.getvalue()


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    """A folder with small TorchScript files."""
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    from quabla_jax.torch_bridge import save, to_torchscript

    folder = tmp_path_factory.mktemp("scripts")
    x = jnp.ones(2, jnp.float32)
    halving = lambda x: lax.while_loop(lambda c: c[0].sum() > 0.1, lambda c: (c[0] * 0.5, c[1] + 1), (x, 0))[0]
    choosing = lambda x: lax.cond(x[0] > 0, lambda y: y + 1, lambda y: y * 2, x)
    parameters = {"w": jnp.ones((2, 2), jnp.float32)}
    for name, fun in {"plain": lambda x: jnp.sin(x) + 1.0, "loop": halving, "branch": choosing}.items():
        save(to_torchscript(fun, x), folder / f"{name}.pt")
    save(to_torchscript(lambda p, x: p["w"] @ x, x, params=parameters), folder / "weights.pt")
    layers = torch.nn.Sequential(torch.nn.Conv1d(1, 2, 3), torch.nn.BatchNorm1d(2), torch.nn.ReLU())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of torch.jit itself
        for name, module in {"layers": layers, "lstm": torch.nn.LSTM(2, 3)}.items():
            torch.jit.save(torch.jit.script(module), str(folder / f"{name}.pt"))
        torch.jit.save(torch.jit.freeze(torch.jit.script(layers.eval())), str(folder / "frozen.pt"))
    return folder


def read_mutants(folder, draws):
    """(outcomes, slowest file in s of processor time, most memory in kB, culprits) of mutants through from_torchscript.

    A process reads a run of mutants; where torch's reader ends it, the next process begins behind the culprit.
    """
    share = -(-draws // -(-draws // BATCH)) if draws else 0
    waiting = [(first, min(first + share, SEED + draws)) for first in range(SEED, SEED + draws, share)]
    running, outcomes, slowest, grown, crashes = {}, collections.Counter(), 0.0, 0, []
    while waiting or running:
        while waiting and len(running) < READERS:
            first, last = waiting.pop(0)
            command = [sys.executable, "-c", READER, os.path.dirname(__file__), str(folder), str(first), str(last)]
            log = folder / f"log-{first}"
            with open(log, "w") as output:
                running[subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)] = (last, log)
        process = next((p for p in running if p.poll() is not None), None)
        if process is None:
            time.sleep(0.2)
            continue
        last, log = running.pop(process)
        lines = log.read_text().splitlines()
        if process.returncode == 0:
            counts, seconds, kilobytes = re.fullmatch(r"done ({.*}) (\S+) (\S+)", lines[-1]).groups()
            outcomes.update(ast.literal_eval(counts))
            slowest, grown = max(slowest, float(seconds)), max(grown, int(kilobytes))
            continue
        assert process.returncode < 0, lines[-30:]  # a signal, not an exception of ours
        culprit = int(next(line for line in reversed(lines) if line.startswith("at ")).split()[1])
        crashes.append((culprit, signal.Signals(-process.returncode).name))
        waiting.append((culprit + 1, last))
    return outcomes, slowest, grown, crashes


def check_mutants(folder, draws):
    start = time.monotonic()
    outcomes, slowest, grown, crashes = read_mutants(folder, draws)
    print(
        f"\nfrom_torchscript: {draws} mutated files from seed {SEED}, {dict(outcomes)}, slowest {slowest:.2f} s, at most {grown} kB "
        f"more memory a process, processes ended: {crashes}, {time.monotonic() - start:.0f} s"
    )
    assert not crashes
    assert sum(outcomes.values()) == draws and set(outcomes) <= {"read", "refused", "refused by torch"}
    assert slowest < SECONDS and grown < 1_000_000


def test_from_torchscript_reads_or_refuses_every_mutated_file(scripts):
    check_mutants(scripts, max(40, DRAWS // 10))


@pytest.mark.slow
def test_from_torchscript_reads_or_refuses_fifty_thousand(scripts):
    check_mutants(scripts, int(os.environ.get("FILE_SCRIPTS", "50000")))


def tensor_pickle(elements, offset, size, stride):
    """The pickle of a module's attribute: a float tensor over the storage "0"."""
    numbers = lambda values: b"(" + b"".join(b"\x8a\x08" + struct.pack("<q", v) for v in values) + b"t"
    storage = b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpu"
    return (
        b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(" + storage + numbers([elements])[1:] + b"Q" + numbers([offset])[1:-1]
        + numbers(size) + numbers(stride) + b"\x89ccollections\nOrderedDict\n)RtR."
    )  # fmt: skip


TOO_LONG = tensor_pickle(10**6, 0, [10**6], [1])
BEYOND = tensor_pickle(2, 1, [2], [1])
EXPANDED = tensor_pickle(2, 0, [2**60], [0])
DEEP = 10**5
DEEP_SOURCES = {
    "brackets": "(" * DEEP + "x" + ")" * DEEP,
    "calls": "torch.neg(" * DEEP + "x" + ")" * DEEP,
    "signs": "- " * DEEP + "x",
    "attributes": "x" + ".a" * DEEP,
    "indices": "x" + "[0]" * DEEP,
    "choices": "x if True else " * DEEP + "x",
    "an index of nothing": "class A(Module):\n  def forward(self: __torch__.A, x: Tensor) -> Tensor:\n    return x[]\n",
    "an assignment to an index of nothing": "class A(Module):\n  def forward(self: __torch__.A, x: Tensor) -> Tensor:\n    x[] = x\n    return x\n",
    "blocks": "\n".join(" " * 2 * k + "if True:" for k in range(1000)),
}


def doubled(sound):
    with zipfile.ZipFile(io.BytesIO(sound)) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # zipfile's own, of the second entry
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w") as twice:
            for entry in [*archive.infolist(), archive.infolist()[0]]:
                twice.writestr(entry.filename, archive.read(entry))
    return stream.getvalue()


def hostile_archives(sound):
    """{what: bytes}: archives that torch's reader is not to see."""
    with zipfile.ZipFile(io.BytesIO(sound)) as archive:
        entries = {e.filename: archive.read(e) for e in archive.infolist()}
    folder = next(iter(entries)).split("/")[0]
    code = next(name for name in entries if name.endswith(".py"))
    return {
        "a zip bomb": archive_of({**entries, f"{folder}/data/0": bytes(200 * 2**20)}, zipfile.ZIP_DEFLATED),
        "a name above the folder": archive_of({**entries, f"{folder}/../../escape": b"x"}),
        "an absolute name": archive_of({**entries, "/tmp/escape": b"x"}),
        "no archive": b"\x93QUABLA\n" + bytes(64),
        "an archive in an archive": archive_of({"inner.pt": sound}),
        "an empty archive": archive_of({}),
        "an archive behind other bytes": b"#!/bin/sh\n" + sound,
        "two entries of one name": doubled(sound),
        "a storage longer than its record": archive_of({**entries, f"{folder}/data.pkl": TOO_LONG}),
        "a tensor beyond its storage": archive_of(
            {**entries, f"{folder}/data.pkl": BEYOND, f"{folder}/data/0": bytes(8)}
        ),
        "a tensor of 2**60 equal elements": archive_of(
            {**entries, f"{folder}/data.pkl": EXPANDED, f"{folder}/data/0": bytes(8)}
        ),
        "a call of os.system": archive_of(
            {**entries, f"{folder}/data.pkl": b"\x80\x02cposix\nsystem\nX\x04\x00\x00\x00true\x85R."}
        ),
        "a nest of tuples": archive_of({**entries, f"{folder}/data.pkl": b"\x80\x02)" + b"\x85" * 10**5 + b"."}),
        "a pickle without an end": archive_of({**entries, f"{folder}/data.pkl": b"\x80\x02)"}),
        **{f"source: {what}": archive_of({**entries, code: body.encode()}) for what, body in DEEP_SOURCES.items()},
    }


def test_hostile_archives_are_refused(scripts, tmp_path):
    from quabla_jax.torch_bridge import from_torchscript

    for what, data in hostile_archives((scripts / "plain.pt").read_bytes()).items():
        path = tmp_path / "file.pt"
        path.write_bytes(data)
        with pytest.raises(ValueError, match="is not a TorchScript file"):
            from_torchscript(path)
            pytest.fail(what)
    assert os.listdir(tmp_path) == ["file.pt"]
