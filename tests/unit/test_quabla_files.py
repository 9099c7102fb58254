"""save and load, random numbers and pytrees: Quabla's bytes, and clear errors for everything damaged."""

import collections
import dataclasses
import io
import json
import os
import pickle
import struct

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quabla_parity import plain, reference

import quabla_jax as qb
import quabla_jax.io as files

TREE = {
    "w": jnp.arange(6.0).reshape(2, 3),
    "n": 3,
    "deep": [None, True, 2.5, "text", (jnp.asarray([True, False]),)],
    7: jnp.asarray(1.5, "float32"),
}


def saved(tree=TREE):
    stream = io.BytesIO()
    qb.save(stream, tree)
    return stream.getvalue()


def loaded(data):
    return qb.load(io.BytesIO(data))


def with_header(change):
    """The saved file with its header changed."""
    data = saved()
    (size,) = struct.unpack("<Q", data[8:16])
    header = json.loads(data[16 : 16 + size])
    header = change(header) or header
    encoded = header if isinstance(header, bytes) else json.dumps(header).encode()
    return data[:8] + struct.pack("<Q", len(encoded)) + encoded + data[16 + size :]


def array_node(header):
    return header["tree"]["values"][0]


def test_a_file_comes_back_as_it_was(tmp_path):
    path = tmp_path / "model.quabla"
    qb.save(path, TREE)
    found = qb.load(path)
    assert list(found) == list(TREE)
    assert jax.tree.structure(found["deep"]) == jax.tree.structure(TREE["deep"])
    assert found["w"].dtype == np.float64 and found[7].dtype == np.float32
    np.testing.assert_array_equal(found["w"], TREE["w"])


def test_quabla_reads_our_files_and_we_read_quablas():
    quabla = reference()
    assert plain(quabla.load(io.BytesIO(saved()))) is not None
    stream = io.BytesIO()
    quabla.save(stream, {"w": quabla.array([[1.0, 2.0]]), "m": quabla.array([True]), "x": [1, None]})
    assert stream.getvalue() == saved({"w": jnp.asarray([[1.0, 2.0]]), "m": jnp.asarray([True]), "x": [1, None]})


def test_a_save_that_fails_leaves_the_old_file(tmp_path):
    path = tmp_path / "model.quabla"
    qb.save(path, {"a": 1})
    with pytest.raises(TypeError, match="cannot save a set"):
        qb.save(path, {"a": {1}})
    assert qb.load(path) == {"a": 1} and os.listdir(tmp_path) == ["model.quabla"]


def test_a_crash_while_writing_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "model.quabla"
    qb.save(path, {"a": 1})

    def crash(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", crash)
    with pytest.raises(OSError, match="disk full"):
        qb.save(path, {"a": 2})
    assert qb.load(path) == {"a": 1} and os.listdir(tmp_path) == ["model.quabla"]


@pytest.mark.parametrize("length", range(0, len(saved()), 7))
def test_every_truncation_is_noticed(length):
    with pytest.raises(ValueError, match="truncated|bad magic"):
        loaded(saved()[:length])


def test_random_damage_never_does_worse_than_a_value_error():
    data, rng = saved(), np.random.default_rng(0)
    for _ in range(300):
        damaged = bytearray(data)
        for place in rng.integers(0, len(data), 3):
            damaged[place] = rng.integers(0, 256)
        try:
            loaded(bytes(damaged))
        except ValueError:
            continue


@pytest.mark.parametrize(
    "change, text",
    [
        (lambda h: h.update(version=2), "unsupported quabla save file version 2"),
        (lambda h: h.update(format="other"), "not a quabla header"),
        (lambda h: [1], "not a quabla header"),
        (lambda h: b"{nonsense", "malformed quabla save file header"),
        (lambda h: b'{"format":"quabla","version":1,"tree":NaN}', "not valid JSON"),
        (lambda h: b"[" * 100_000, "malformed quabla save file header"),
        (lambda h: array_node(h).update(offset=-8), "bad array node"),
        (lambda h: array_node(h).update(offset=10**18), "truncated"),
        (lambda h: array_node(h).update(shape=[10**9, 10**9]), "do not hold"),
        (lambda h: array_node(h).update(dtype="object"), "bad array node"),
        (lambda h: array_node(h).update(type="pickle"), "unknown tree node"),
        (lambda h: h["tree"].update(keys=["a"]), "bad dict node"),
        (lambda h: h.update(tree={"type": "int", "value": "3"}), "bad int node"),
        (lambda h: h.update(tree={"type": "float", "value": "x"}), "bad float node"),
        (lambda h: h.update(tree={"type": "list"}), "bad list node"),
    ],
)
def test_a_damaged_header_is_named(change, text):
    with pytest.raises(ValueError, match=text):
        loaded(with_header(change))


def test_deep_nesting_is_refused():
    node = {"type": "none"}
    for _ in range(files.DEPTH_LIMIT + 2):
        node = {"type": "list", "items": [node]}
    with pytest.raises(ValueError, match="nested too deeply"):
        loaded(with_header(lambda h: h.update(tree=node)))


def test_an_absurd_header_size_is_refused_without_reading_it():
    with pytest.raises(ValueError, match="truncated"):
        loaded(saved()[:8] + struct.pack("<Q", 2**62) + b"{}")


def test_a_pickle_is_not_opened():
    with pytest.raises(ValueError, match="bad magic"):
        loaded(pickle.dumps({"a": 1}))


@pytest.mark.parametrize("leaf", [1j, b"bytes", jnp.asarray([1, 2]), collections.OrderedDict(), qb.random.key(0)])
def test_other_leaves_are_refused(leaf):
    with pytest.raises(TypeError, match="cannot save a"):
        saved({"x": leaf})


@pytest.mark.parametrize("seed", [0, 7, -1, 2**63 + 5])
def test_random_numbers_are_quablas_bit_for_bit(seed):
    ours, theirs = qb.random, reference().random
    a, b = ours.key(seed), theirs.key(seed)
    assert [k.value for k in ours.split(a, 5)] == [k.value for k in theirs.split(b, 5)]
    assert ours.fold_in(a, -3).value == theirs.fold_in(b, -3).value and repr(a) == repr(b)
    draws = [
        lambda r, k, q: r.normal(k, (100,)),
        lambda r, k, q: r.normal(k, (3, 2), q.float32),
        lambda r, k, q: r.uniform(k, (40,), q.float32, -1.5, 2.5),
        lambda r, k, q: r.uniform(k, (2, 20), minval=-3.0),
        lambda r, k, q: r.bernoulli(k, 0.3, (50,)),
        lambda r, k, q: [r.glorot_normal(k, (4, 3)), r.glorot_uniform(k, (2, 4, 3)), r.he_normal(k, (4, 3))],
    ]
    for draw in draws:
        found, wanted = plain(draw(ours, a, qb)), plain(draw(theirs, b, reference()))
        for x, y in zip(*(z if isinstance(z, list) else [z] for z in (found, wanted)), strict=True):
            assert x.dtype == y.dtype and np.array_equal(x, y)


def test_normal_draws_have_the_moments_of_a_normal():
    draws = np.asarray(qb.random.normal(qb.random.key(11), (20_000,)))
    assert abs(draws.mean()) < 0.03 and abs(draws.std() - 1) < 0.02 and abs((draws**3).mean()) < 0.1


def test_a_key_is_an_immutable_host_value():
    key = qb.random.key(3)
    with pytest.raises(AttributeError, match="immutable"):
        key.value = 4
    assert {key: 1}[qb.random.key(3)] == 1 and pickle.loads(pickle.dumps(key)) == key


@pytest.mark.parametrize(
    "call, error, text",
    [
        (lambda r: r.uniform(r.key(0), (2,), minval=1.0, maxval=0.0), ValueError, "finite minval < maxval"),
        (lambda r: r.bernoulli(r.key(0), 2.0), ValueError, "0 <= p <= 1, got 2.0"),
        (lambda r: r.uniform(r.key(0), (2,), qb.bool_), TypeError, "requires dtype float32 or float64"),
        (lambda r: r.normal(r.key(0), (0,)), ValueError, "greater than zero"),
        (lambda r: jax.jit(lambda p: r.bernoulli(r.key(0), p))(0.5), TypeError, "p is a tracer"),
    ],
)
def test_wrong_draws_raise(call, error, text):
    with pytest.raises(error, match=text):
        call(qb.random)


Point = collections.namedtuple("Point", "x y")


def test_trees_agree_with_quabla():
    def describe(tree):
        sample = {"b": [1, (2, None)], "a": Point(3, {"z": 4, "y": 5})}
        leaves, structure = tree.flatten(sample)
        return leaves, repr(structure), structure.num_leaves, tree.flatten_with_path(sample)[0]

    ours, theirs = describe(qb.tree), describe(reference().tree)
    assert ours[0] == theirs[0] and ours[2:] == theirs[2:]
    ordered = collections.OrderedDict(a=1)
    assert qb.tree.leaves(ordered) == [ordered]


def test_registered_dataclasses_are_trees_for_jax_too():
    @qb.tree.register_dataclass
    @dataclasses.dataclass
    class Layer:
        w: object
        b: object

    layer = Layer(jnp.ones(2), jnp.zeros(2))
    assert isinstance(jax.grad(lambda m: jnp.sum(m.w * 2 + m.b))(layer), Layer)
    assert [path for path, _ in qb.tree.flatten_with_path({"m": layer})[0]] == [("m", "w"), ("m", "b")]


@pytest.mark.parametrize(
    "call, error, text",
    [
        (lambda t: t.unflatten(t.structure([1]), [1, 2]), ValueError, "has 1 leaves, got 2 values"),
        (lambda t: t.leaves([{"a": {1: 0, "b": 0}}]), TypeError, "mutually sortable"),
        (lambda t: t.register(3, None, None), TypeError, "only classes"),
        (lambda t: t.register(type("T", (), {}), 3, 4), TypeError, "callable flatten_fn"),
        (lambda t: t.register_dataclass(int), TypeError, "requires a dataclass type"),
    ],
)
def test_wrong_tree_calls_raise(call, error, text):
    with pytest.raises(error, match=text):
        call(qb.tree)


def test_aux_data_must_be_hashable():
    class Box:
        pass

    qb.tree.register(Box, lambda box: ((), [1]), lambda aux, children: Box())
    with pytest.raises(TypeError, match="must be hashable"):
        qb.tree.flatten(Box())
