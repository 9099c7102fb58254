"""What qb.draw says of a program: every region that runs is there, with the trips and the work that it has."""

import math
import unicodedata
import xml.etree.ElementTree

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import quabla_jax as qb

X = jnp.ones(3)


def loop(x):
    return lax.fori_loop(0, 7, lambda i, c: jnp.sin(c), x)


def sharded(x):
    mesh, spec = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("i",)), jax.sharding.PartitionSpec("i")
    return jax.shard_map(loop, mesh=mesh, in_specs=spec, out_specs=spec)(x)


ruled = jax.custom_jvp(loop)
ruled.defjvp(lambda primals, tangents: (loop(*primals), tangents[0]))


def boxes(fun, *args):
    return list(qb.draw(fun, *args).root.walk())


@pytest.mark.parametrize(
    ("fun", "kind"),
    [
        (jax.checkpoint(loop), "checkpoint"),
        (qb.checkpoint(lambda x: qb.fori_loop(0, 7, lambda i, c: qb.sin(c), x)), "checkpoint"),
        (sharded, "devices"),
        (lambda b: lax.custom_linear_solve(lambda v: 2 * v, b, lambda mv, b: loop(b), symmetric=True), "custom rule"),
        (ruled, "custom rule"),
    ],
    ids=["jax.checkpoint", "qb.checkpoint", "shard_map", "custom_linear_solve", "custom_jvp"],
)
def test_a_loop_inside_another_region_is_drawn(fun, kind):
    found = boxes(fun, X)
    assert kind in [b.kind for b in found]
    assert "scan, 7 trips" in [b.title for b in found]
    assert found[0].flops >= 7 * 3


def test_a_rule_has_the_name_of_its_function():
    rule = jax.custom_vjp(loop)
    rule.defvjp(lambda x: (loop(x), x), lambda r, g: (g,))
    assert "custom rule loop" in [b.title for b in boxes(lambda x: rule(x) + 1, X)]


def test_a_while_loop_shows_its_predicate_and_counts_one_trip():
    fun = lambda x: qb.sum(qb.while_loop(lambda c: qb.sum(c) < 9.0, lambda c: c * 2.0, x, checkpoint="auto"))
    found = boxes(jax.grad(fun), X)
    titles = [b.title for b in found]
    assert "predicate" in titles
    for box in found:
        if box.title.endswith("trip count known at run time"):
            assert " a trip" in box.lines()[-1]


@pytest.mark.parametrize(
    ("fun", "flops"),
    [
        (lambda x: jnp.concatenate([x, x[::-1]]), 0),
        (lambda x: lax.dynamic_slice(x, (0,), (32,)), 0),
        (lambda x: x.reshape(8, 8).T, 0),
        (jnp.argmax, 64),
        (jnp.sort, 64 * 6),
        (jnp.cumsum, 64),
        (lambda x: lax.reduce_window(x, 0.0, lax.add, (4,), (4,), "VALID"), 64),
        (lambda x: x.reshape(8, 8) @ x.reshape(8, 8), 2 * 8**3),
        (lambda x: lax.linalg.cholesky(x.reshape(8, 8), symmetrize_input=False), 8**3 / 3),
        (lambda x: lax.fft(x, "RFFT", (64,)), 5 * 64 * 6),
    ],
)
def test_flops_are_arithmetic_and_not_data_that_moves(fun, flops):
    # The triangle that is kept of a factor, and an index that is made to fit, cost an operation an entry.
    assert flops <= qb.draw(fun, jnp.ones(64)).root.flops <= flops + 3 * 64


@pytest.mark.parametrize("name", ["模型" * 40, "a" * 300, "<b>&\"'", "line\nbreak\x00", "e\u0301"])
def test_any_name_makes_a_sound_picture(name, tmp_path):
    fun = lambda x: loop(x)
    fun.__name__ = name
    drawing = qb.draw(fun, X)
    xml.etree.ElementTree.fromstring(drawing.svg())
    drawing.save(tmp_path / "picture.html")
    width = lambda c: 0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in "WF")
    lines = str(drawing).splitlines()
    assert len({math.fsum(map(width, line)) for line in lines}) == 1 and "\x00" not in drawing.svg()


def test_memory_report_looks_into_shard_map():
    report = qb.memory_report(lambda x: jnp.sum(sharded(x)), X, compiled=False)
    assert [m.trips for m in report.loops] == [7]
