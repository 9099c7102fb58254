"""Damaged and hostile files: qb.load and from_torchscript give a clear error (or a value) in bounded time and memory.

FILE_DRAWS sets how many mutated inputs each reader gets, FILE_SEED where the generator begins; each test prints how many
inputs it has read and what became of them (pytest -s). torch's reader is C++ and runs in processes of its own.
"""

import io
import json
import os
import random
import resource
import struct
import subprocess
import sys
import textwrap
import time
import zipfile

import jax.numpy as jnp
import numpy as np
import pytest

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
    slowest, before = 0.0, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
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
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
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


BATCH = 200
"""Mutants a process reads: modules that torch has read stay in it (about 2.5 MB each)."""

READER = textwrap.dedent("""
    import os, random, resource, sys, time
    sys.path.insert(0, sys.argv[1])
    import test_files_fuzz as fuzz
    from quabla_jax.torch_bridge import from_torchscript
    from quabla_jax import UnsupportedOperationError
    import jax.numpy as jnp

    folder, first, last = sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    seeds = [open(os.path.join(folder, name), "rb").read() for name in sorted(os.listdir(folder)) if name.endswith(".pt")]
    path = os.path.join(folder, f"mutant-{os.getpid()}")
    for k in range(first, last):
        rng = random.Random(k)
        data = fuzz.mutated_archive(rng, seeds)
        open(path, "wb").write(data)
        start, outcome = time.perf_counter(), "read"
        try:
            f = from_torchscript(path)
        except ValueError as error:
            assert str(error).startswith("from_torchscript: "), error
            outcome = "refused"
        took = time.perf_counter() - start
        print(k, outcome if took < fuzz.SECONDS else f"slow: {took}", flush=True)
    print("peak", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
""")


def mutated_archive(rng, seeds):
    """Half of the mutants damage the archive, half one of its entries in an archive that is sound."""
    data = rng.choice(seeds)
    if rng.random() < 0.5:
        return rng.choice(MUTATIONS)(rng, data)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        entries = {e.filename: archive.read(e) for e in archive.infolist()}
    name = rng.choice([n for n in entries if entries[n]])
    entries[name] = rng.choice(MUTATIONS)(rng, entries[name])
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
    pytest.importorskip("torch.jit", reason="needs PyTorch")
    from quabla_jax.torch_bridge import save, to_torchscript

    folder = tmp_path_factory.mktemp("scripts")
    save(to_torchscript(lambda x: jnp.sin(x) + 1.0, jnp.ones(2, jnp.float32)), folder / "plain.pt")
    parameters = {"w": jnp.ones((2, 2), jnp.float32)}
    save(to_torchscript(lambda p, x: p["w"] @ x, jnp.ones(2, jnp.float32), params=parameters), folder / "weights.pt")
    return folder


def test_from_torchscript_reads_or_refuses_every_mutated_file(scripts):
    """A process reads a run of mutants; where torch's reader ends it, the next process begins behind the culprit."""
    draws = max(40, DRAWS // 20)
    done, outcomes, crashes = SEED, {}, []
    while done < SEED + draws:
        command = [
            sys.executable,
            "-c",
            READER,
            os.path.dirname(__file__),
            str(scripts),
            str(done),
            str(min(done + BATCH, SEED + draws)),
        ]
        run = subprocess.run(command, capture_output=True, text=True, timeout=120 + draws)
        for line in run.stdout.splitlines():
            if line.startswith("peak"):
                assert int(line.split()[1]) < 2_000_000, line
                continue
            done, outcome = int(line.split()[0]) + 1, line.split(maxsplit=1)[1]
            outcomes[outcome] = outcomes.get(outcome, 0) + 1
        if run.returncode:
            assert run.returncode < 0, run.stderr[-2000:]  # a signal: torch's reader, not an exception of ours
            crashes.append((done, run.returncode))
            done += 1
    print(
        f"\nfrom_torchscript: {draws} mutated files from seed {SEED}, {outcomes}, processes ended by the reader: {crashes}"
    )
    assert set(outcomes) <= {"read", "refused"}
    assert not crashes


def hostile_archives(sound):
    """{what: bytes}: archives that torch's reader is not to see."""
    with zipfile.ZipFile(io.BytesIO(sound)) as archive:
        entries = {e.filename: archive.read(e) for e in archive.infolist()}
    folder = next(iter(entries)).split("/")[0]
    return {
        "a zip bomb": archive_of({**entries, f"{folder}/data/0": bytes(200 * 2**20)}, zipfile.ZIP_DEFLATED),
        "a name above the folder": archive_of({**entries, f"{folder}/../../escape": b"x"}),
        "an absolute name": archive_of({**entries, "/tmp/escape": b"x"}),
        "no archive": b"\x93QUABLA\n" + bytes(64),
        "an archive in an archive": archive_of({"inner.pt": sound}),
        "an empty archive": archive_of({}),
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
