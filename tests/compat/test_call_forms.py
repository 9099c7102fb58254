"""Every way to write a loop of jax.lax: the drop-in gives what jax.lax gives, or raises what it raises."""

import collections
import functools
import operator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from alike import ENGINE, REVERSIBLE, XS, Pair, Point, Stateful, assert_alike

from quabla_jax.compat import lax

add = lambda c, x: (c + x, c * 2)
CARRIES = {
    "python int": 0,
    "python float": 1.5,
    "python complex": 1j,
    "bool": True,
    "numpy scalar": np.float32(2),
    "numpy array": np.arange(3.0),
    "none": None,
    "empty tuple": (),
    "empty dict": {},
    "nested": {"a": (1.0, None), "b": [jnp.ones(2), ()]},
    "namedtuple": Pair(1.0, jnp.arange(2)),
    "ordered": collections.OrderedDict(z=1.0, a=2),
    "dataclass": Point(1.0, jnp.ones(2)),
    "key": jax.random.key(3),
    "zero sized": jnp.zeros((0, 3)),
    "half": jnp.ones(2, jnp.bfloat16),
}


@pytest.mark.parametrize("name", CARRIES)
def test_carries_of_every_kind(name):
    carry = CARRIES[name]
    assert_alike(lambda L: L.scan(lambda c, x: (c, x), carry, XS))
    assert_alike(lambda L: L.scan(lambda c, x: (c, c), carry, None, length=3))
    assert_alike(lambda L: L.fori_loop(0, 3, lambda i, c: c, carry))
    assert_alike(lambda L: L.while_loop(lambda c: False, lambda c: c, carry))
    assert_alike(lambda L: L.cond(True, lambda c: c, lambda c: c, carry))
    assert_alike(lambda L: L.switch(1, [lambda c: c, lambda c: c, lambda c: c], carry))
    assert_alike(lambda L: L.switch(5, [lambda c: c], carry))
    assert_alike(lambda L: jax.jit(lambda c: L.scan(lambda c, x: (c, (x, c)), c, XS))(carry))


XS_TREES = {
    "array": XS,
    "numpy": np.arange(4.0),
    "with none": (XS, None),
    "only none": (None, {"a": None}),
    "dict": {"a": XS, "b": None, "c": ()},
    "empty": (),
    "list": [XS, XS * 2],
    "namedtuple": Pair(XS, None),
    "keys": jax.random.split(jax.random.key(0), 4),
    "bools": np.array([True, False, True]),
    "matrix": jnp.ones((3, 2)),
    "zero width": jnp.ones((3, 0)),
    "float16": np.ones(3, np.float16),
    "scalars": [1, 2],
    "scalar": 3.0,
    "string": "abc",
    "ragged": (XS, XS[:2]),
}


@pytest.mark.parametrize("name", XS_TREES)
@pytest.mark.parametrize("length", [None, 3, 4, 7])
def test_scanned_trees_of_every_kind(name, length):
    xs = XS_TREES[name]
    assert_alike(lambda L: L.scan(lambda c, x: (c + 1, x), 0, xs, length))
    if length is None:
        assert_alike(lambda L: L.map(lambda x: x, xs))


SCANS = {
    "all positional": lambda L: L.scan(add, 0.0, XS, 7, True, 2),
    "all positional and the hint": lambda L: L.scan(add, 0.0, XS, 7, True, 2, True),
    "all by name": lambda L: L.scan(f=add, init=0.0, xs=XS, length=7, reverse=True, unroll=2, _split_transpose=True),
    "init by name": lambda L: L.scan(add, xs=XS, init=0.0),
    "numpy length": lambda L: L.scan(lambda c, _: (c, c), 0.0, None, np.int64(3)),
    "array length": lambda L: L.scan(lambda c, _: (c, c), 0.0, None, jnp.int32(3)),
    "float length": lambda L: L.scan(lambda c, _: (c, c), 0.0, None, 3.0),
    "string length": lambda L: L.scan(lambda c, _: (c, c), 0.0, None, "3"),
    "negative length": lambda L: L.scan(lambda c, _: (c, c), 0.0, None, -3),
    "length zero": lambda L: L.scan(lambda c, _: (c + 1, c), 0.0, None, 0),
    "length one": lambda L: L.scan(lambda c, _: (c + 1, c), 0.0, None, 1),
    "truthy reverse": lambda L: L.scan(add, 0.0, XS, reverse=1),
    "unroll zero": lambda L: L.scan(add, 0.0, XS, unroll=0),
    "unroll all": lambda L: L.scan(add, 0.0, XS, unroll=True),
    "unroll none of it": lambda L: L.scan(add, 0.0, XS, unroll=False),
    "unroll more than there is": lambda L: L.scan(add, 0.0, XS, unroll=50),
    "unroll with a rest": lambda L: L.scan(add, 0.0, XS, unroll=3),
    "unroll numpy": lambda L: L.scan(add, 0.0, XS, unroll=np.int32(2)),
    "unroll float": lambda L: L.scan(add, 0.0, XS, unroll=2.0),
    "unroll none": lambda L: L.scan(add, 0.0, XS, unroll=None),
    "pair as a list": lambda L: L.scan(lambda c, x: [c + x, x], 0.0, XS),
    "pair as a namedtuple": lambda L: L.scan(lambda c, x: Pair(c + x, x), 0.0, XS),
    "three outputs": lambda L: L.scan(lambda c, x: (c, x, x), 0.0, XS),
    "one output": lambda L: L.scan(lambda c, x: (c,), 0.0, XS),
    "no output": lambda L: L.scan(lambda c, x: None, 0.0, XS),
    "string output": lambda L: L.scan(lambda c, x: (c, "y"), 0.0, XS),
    "constant outputs": lambda L: L.scan(lambda c, x: (c, (1, 2.5, True, np.float32(3), None)), 0.0, XS),
    "constant carry": lambda L: L.scan(lambda c, x: (2.0, c), 1.0, XS),
    "constant carry of numpy": lambda L: L.scan(lambda c, x: (np.zeros(2), c), np.ones(2), XS),
    "int carry to float": lambda L: L.scan(lambda c, x: (c + x, None), 0, XS),
    "bool carry to int": lambda L: L.scan(lambda c, x: (c + 1, None), True, XS),
    "bool carry to float": lambda L: L.scan(lambda c, x: (c + x, None), np.bool_(True), XS),
    "int array carry to float": lambda L: L.scan(lambda c, x: (c + x, None), jnp.arange(2), XS),
    "two carries, one drifts": lambda L: L.scan(lambda c, x: ((c[1], c[0] + x), None), (0, jnp.int32(1)), XS),
    "carry drifts by one step": lambda L: L.scan(lambda c, x: ((c[0] + x, c[0]), None), (0, 0), XS.astype("f4")),
    "other static part": lambda L: L.scan(lambda c, x: (Point(c.x, c.y, "q"), x), Point(1.0, 2.0), XS),
    "method": lambda L: L.scan(Stateful(0.3).step, 0.1, XS),
    "callable object": lambda L: L.scan(Stateful(0.3), 0.1, XS),
    "class method": lambda L: L.scan(Stateful.made, 0.1, XS),
    "static method": lambda L: L.scan(Stateful.free, 0.1, XS),
    "partial": lambda L: L.scan(functools.partial(lambda w, c, x: (c * w + x, c), 0.5), 0.1, XS),
    "partial of a method": lambda L: L.scan(functools.partial(Stateful.step, Stateful(0.3)), 0.1, XS),
    "tree partial": lambda L: L.scan(jax.tree_util.Partial(lambda w, c, x: (c * w, x), XS[0]), 0.1, XS),
    "jitted body": lambda L: L.scan(jax.jit(add), 0.1, XS),
    "checkpointed body": lambda L: L.scan(jax.checkpoint(add), 0.1, XS),
    "vmapped body": lambda L: L.scan(jax.vmap(add), XS[:2], jnp.ones((3, 2))),
    "default arguments": lambda L: L.scan(lambda c, x, w=0.5: (c * w + x, c), 0.1, XS),
    "star arguments": lambda L: L.scan(lambda *a: a, 0.1, XS),
    "builtin": lambda L: L.scan(divmod, 7.0, XS),
    "closure over numpy": lambda L: (lambda w: L.scan(lambda c, x: (w @ c, x), np.ones(2), XS))(np.eye(2) * 0.5),
    "carry is scanned out": lambda L: L.scan(lambda c, x: (x, c), 0.0, XS),
    "both are passed on": lambda L: L.scan(lambda c, x: (c, x), XS, XS),
    "same array twice": lambda L: L.scan(lambda c, x: ((c[0] + x, c[1] * x), c), (XS[0], XS[0]), XS),
    "gradient inside": lambda L: L.scan(lambda c, x: (jax.grad(lambda v: jnp.sin(v) * x)(c), c), 0.3, XS),
    "jacobian inside": lambda L: L.scan(lambda c, x: (jax.jacfwd(jnp.sin)(c).sum(0) * x, c), XS, XS),
    "python if on a tracer": lambda L: L.scan(lambda c, x: (c if x > 0 else -c, x), 0.3, XS),
    "body raises": lambda L: L.scan(lambda c, x: 1 // 0, 0.3, XS),
    "wrong arity": lambda L: L.scan(lambda c: (c, c), 0.3, XS),
    "shape grows": lambda L: L.scan(lambda c, x: (jnp.append(c, x), x), jnp.ones(1), XS),
    "complex": lambda L: L.scan(lambda c, x: (c * jnp.exp(1j * x), c.real), 1 + 0j, XS),
    "unsigned": lambda L: L.scan(lambda c, x: (c + x, c), np.uint8(250), np.arange(9, dtype=np.uint8)),
    "bool carry": lambda L: L.scan(lambda c, x: (c ^ (x > 0.7), c), False, XS),
    "string init": lambda L: L.scan(add, "a", XS),
    "object init": lambda L: L.scan(add, object(), XS),
}


@pytest.mark.parametrize("name", SCANS)
def test_scan(name):
    assert_alike(SCANS[name])
    assert_alike(lambda L: jax.jit(lambda: SCANS[name](L))())


BOUNDS = [
    (0, 5), (2, 5), (5, 2), (-3, 2), (True, 4), (np.int16(1), 4), (1, np.int8(4)), (np.int16(1), np.int16(4)),
    (np.uint8(1), np.uint8(4)), (np.uint8(1), 4), (jnp.int32(1), 4), (jnp.int32(1), jnp.int64(4)), (0.0, 3.0),
    (0, 3.0), (jnp.zeros(()), jnp.ones(()) * 3), (np.zeros(1, int), 3), (jnp.arange(2), 3), ("0", 3), (None, 3),
    (0, 2**40), (-(2**70), 3),
]  # fmt: skip


@pytest.mark.parametrize("bounds", BOUNDS, ids=str)
def test_fori_loop_bounds(bounds):
    lower, upper = bounds
    if upper == 2**40:  # as many steps nobody waits for: only the type of the program
        run = lambda L: jax.eval_shape(lambda: L.fori_loop(lower, upper, lambda i, c: (c[0] + i, i), (0, 0)))
        assert str(run(ENGINE)) == str(run(jax.lax))
        return
    assert_alike(lambda L: L.fori_loop(lower, upper, lambda i, c: (c[0] + 1, i), (0, 0)))
    assert_alike(lambda L: L.fori_loop(lower, upper, lambda i, c: c + i, 0))
    assert_alike(lambda L: L.fori_loop(lower, upper, lambda i, c: c + 0.5, 0.0, unroll=True))
    traced = lambda L: jax.jit(lambda n: L.fori_loop(lower, n, lambda i, c: (c[0] + 1, i), (0, 0)))
    assert_alike(lambda L: traced(L)(upper))


FORIS = {
    "by name": lambda L: L.fori_loop(lower=0, upper=4, body_fun=lambda i, c: c + i, init_val=1.0, unroll=2),
    "unroll positional": lambda L: L.fori_loop(0, 4, lambda i, c: c, 1.0, 2),
    "unroll zero": lambda L: L.fori_loop(0, 4, lambda i, c: c + i, 1.0, unroll=0),
    "unroll negative": lambda L: L.fori_loop(0, 4, lambda i, c: c + i, 1.0, unroll=-2),
    "unroll beyond": lambda L: L.fori_loop(0, 4, lambda i, c: c + i, 1.0, unroll=9),
    "method": lambda L: L.fori_loop(0, 4, Stateful(0.5).body, 1.0),
    "partial": lambda L: L.fori_loop(0, 4, functools.partial(lambda w, i, c: c * w + i, 2), 1.0),
    "jitted body": lambda L: L.fori_loop(0, 4, jax.jit(lambda i, c: c + i), 1.0),
    "jnp function": lambda L: L.fori_loop(0, 4, jnp.maximum, 2),
    "operator": lambda L: L.fori_loop(0, 4, operator.add, 1.0),
    "indexing by the counter": lambda L: L.fori_loop(0, 4, lambda i, c: c + XS[i], 0.0),
    "range of the counter": lambda L: L.fori_loop(0, 4, lambda i, c: c + len(range(i)), 0.0),
    "returns a python number": lambda L: L.fori_loop(0, 4, lambda i, c: 3, 0),
    "returns none": lambda L: L.fori_loop(0, 4, lambda i, c: None, 0),
    "update in place": lambda L: L.fori_loop(0, 4, lambda i, c: c.at[i].set(i * 2), jnp.zeros(5)),
    "tuple grows": lambda L: L.fori_loop(0, 4, lambda i, c: (*c, i), (1.0,)),
    "float carry from int": lambda L: L.fori_loop(0, 4, lambda i, c: c * 0.5, 1),
    "wrong arity": lambda L: L.fori_loop(0, 4, lambda c: c, 1),
    "nested": lambda L: L.fori_loop(0, 4, lambda i, c: L.fori_loop(0, 3, lambda j, d: d + i * j, c), 0),
    "nested, traced inside": lambda L: L.fori_loop(0, 4, lambda i, c: L.fori_loop(0, i, lambda j, d: d + j, c), 0),
}


@pytest.mark.parametrize("name", FORIS)
def test_fori_loop(name):
    assert_alike(FORIS[name])
    assert_alike(lambda L: jax.jit(lambda: FORIS[name](L))())


WHILES = {
    "by name": lambda L: L.while_loop(cond_fun=lambda c: c < 9, body_fun=lambda c: c * 2, init_val=1.5),
    "never": lambda L: L.while_loop(lambda c: False, lambda c: c, (1, 2.5, None)),
    "numpy false": lambda L: L.while_loop(lambda c: np.bool_(False), lambda c: c, 1),
    "int condition": lambda L: L.while_loop(lambda c: c - 9, lambda c: c + 1, 1),
    "vector condition": lambda L: L.while_loop(lambda c: c < 3, lambda c: c + 1, XS),
    "none condition": lambda L: L.while_loop(lambda c: None, lambda c: c + 1, 1),
    "any": lambda L: L.while_loop(lambda c: jnp.any(c < 3), lambda c: c + 1, XS),
    "int to float": lambda L: L.while_loop(lambda c: c < 9, lambda c: c * 2.5, 1),
    "weak to strong": lambda L: L.while_loop(lambda c: c < 9, lambda c: c * jnp.float32(2), 1.0),
    "strong to wider": lambda L: L.while_loop(lambda c: c < 9, lambda c: c * jnp.float64(2), np.float32(1)),
    "drifting structure": lambda L: L.while_loop(lambda c: c[0] < 9, lambda c: [c[0] + 1, c[1]], (1, 2)),
    "dataclass": lambda L: L.while_loop(lambda p: p.x < 9, lambda p: Point(p.x * 2, p.y + 1), Point(1.5, 0)),
    "methods": lambda L: L.while_loop(Stateful(0.3).__eq__, lambda c: c, 1.5),
    "partials": lambda L: L.while_loop(
        functools.partial(operator.gt, 9), functools.partial(operator.mul, 2), jnp.float32(1)
    ),
    "closures": lambda L: (lambda n, w: L.while_loop(lambda c: c < n, lambda c: c + w, 0.0))(XS[5] * 9, XS[2]),
    "keys": lambda L: L.while_loop(
        lambda c: c[1] < 3, lambda c: (jax.random.split(c[0])[0], c[1] + 1), (jax.random.key(0), 0)
    ),
    "condition raises": lambda L: L.while_loop(lambda c: 1 // 0, lambda c: c, 0),
    "empty": lambda L: L.while_loop(lambda _: False, lambda _: (), ()),
    "string": lambda L: L.while_loop(lambda _: False, lambda c: c, "a"),
}


@pytest.mark.parametrize("name", WHILES)
def test_while_loop(name):
    assert_alike(WHILES[name], (lax, REVERSIBLE))
    assert_alike(lambda L: jax.jit(lambda: WHILES[name](L))(), (lax, REVERSIBLE))


MAPS = {
    "by name": lambda L: L.map(f=jnp.sin, xs=XS),
    "batches": lambda L: L.map(jnp.sin, XS, batch_size=3),
    "one batch": lambda L: L.map(jnp.sin, XS, batch_size=7),
    "batch beyond": lambda L: L.map(jnp.sin, XS, batch_size=70),
    "batch zero": lambda L: L.map(jnp.sin, XS, batch_size=0),
    "batch negative": lambda L: L.map(jnp.sin, XS, batch_size=-1),
    "batch positional": lambda L: L.map(jnp.sin, XS, 3),
    "nothing": lambda L: L.map(jnp.sin, XS[:0]),
    "nothing in batches": lambda L: L.map(jnp.sin, XS[:0], batch_size=2),
    "tree": lambda L: L.map(lambda d: {"s": d["a"] + d["b"][0], "n": None}, {"a": XS, "b": (XS, None)}),
    "tree in batches": lambda L: L.map(lambda d: d["a"] + d["b"][0], {"a": XS, "b": (XS, None)}, batch_size=2),
    "constants": lambda L: L.map(lambda x: (1, 2.5, True), XS),
    "none out": lambda L: L.map(lambda x: None, XS),
    "keys": lambda L: L.map(lambda k: jax.random.normal(k), jax.random.split(jax.random.key(0), 5)),
    "keys in batches": lambda L: L.map(jax.random.normal, jax.random.split(jax.random.key(0), 5), batch_size=2),
    "matrix rows": lambda L: L.map(jnp.sum, jnp.ones((4, 3)), batch_size=4),
    "not callable": lambda L: L.map(3, XS),
    "partial": lambda L: L.map(functools.partial(jnp.add, 1), XS, batch_size=4),
    "int": lambda L: L.map(lambda n: n * 2, np.arange(5, dtype=np.int8), batch_size=2),
}


@pytest.mark.parametrize("name", MAPS)
def test_map(name):
    assert_alike(MAPS[name])
    assert_alike(lambda L: jax.jit(lambda: MAPS[name](L))())


ALL = {**SCANS, **FORIS, **WHILES, **MAPS}


@pytest.mark.parametrize("name", ALL)
def test_without_jit(name):
    def call(L):
        with jax.disable_jit():
            return ALL[name](L)

    assert_alike(call)


@pytest.mark.parametrize("name", ["carry drifts by one step", "int carry to float", "constant outputs", "nested"])
def test_in_single_precision(name):
    """jax_enable_x64 off, which is how most programs run."""

    def call(L):
        with jax.enable_x64(False):
            return ALL[name](L)

    assert_alike(call)


@pytest.mark.parametrize("bounds", [(0, 5), (np.int16(1), 4), (0, 2**31 - 1), (0, 2**33), (jnp.int32(1), 4)], ids=str)
def test_bounds_in_single_precision(bounds):
    def call(L):
        with jax.enable_x64(False):
            out = jax.eval_shape(lambda: L.fori_loop(*bounds, lambda i, c: (c[0] + 1.0, i), (0, 0)))
            return [str(v) for v in jax.tree.leaves(out)]

    assert_alike(call)


def test_a_method_body_is_traced_as_often_as_jax_traces_it():
    for L in (ENGINE, lax, jax.lax):
        model = Stateful(0.5)
        for _ in range(3):
            L.scan(model.step, 0.1, XS)
        assert model.calls <= 3
    counts = []
    for L in (lax, jax.lax):
        model = Stateful(0.5)
        for _ in range(3):
            L.scan(model.step, jnp.zeros(()), XS)
        counts.append(model.calls)
    assert counts[0] == counts[1]


def test_a_leaked_carry_is_reported_as_by_jax():
    def leak(L):
        kept = []

        def step(c, x):
            kept.append(c)
            return c + x, c

        L.scan(step, 0.0, XS)
        return kept[0] + 1

    for L in (ENGINE, lax, jax.lax):
        with pytest.raises(jax.errors.UnexpectedTracerError):
            leak(L)


@pytest.mark.parametrize("where", ["scan", "fori_loop", "while_loop", "cond"])
def test_nans_are_found_inside(where):
    """jax.debug_nans: the FloatingPointError comes from the loop, as in JAX."""
    programs = {
        "scan": lambda L: L.scan(lambda c, x: (c + jnp.log(x - 0.5), None), 0.0, XS)[0],
        "fori_loop": lambda L: L.fori_loop(0, 3, lambda i, c: c + jnp.sqrt(-1.0 - c * c), 0.0),
        "while_loop": lambda L: L.while_loop(lambda c: c < 3, lambda c: jnp.log(c), 1.5),
        "cond": lambda L: L.cond(True, lambda x: jnp.log(-x), jnp.sin, 2.0),
    }
    with jax.debug_nans(True):
        for L in (ENGINE, lax, jax.lax):
            with pytest.raises(FloatingPointError):
                jax.block_until_ready(programs[where](L))
            with pytest.raises(FloatingPointError):
                jax.block_until_ready(jax.jit(lambda L=L: programs[where](L))())


def test_checks_and_leak_detection_stay_silent_on_sound_programs():
    f = lambda L: jax.grad(lambda a: L.scan(lambda c, x: (jnp.sin(c) * x, c), a, XS)[0])(0.3)
    want = f(jax.lax)
    with jax.enable_checks(True):
        np.testing.assert_allclose(f(ENGINE), want, rtol=1e-13)
    with jax.checking_leaks():
        np.testing.assert_allclose(f(ENGINE), want, rtol=1e-13)


def test_numpy_rank_promotion_and_dtype_promotion_settings_reach_the_body():
    rank = lambda L: L.scan(lambda c, x: (c + jnp.ones((2, 3)), None), jnp.ones(3), XS)
    strict = lambda L: L.scan(lambda c, x: (c + x, None), jnp.float32(1), XS)

    def with_settings(call):
        def run(L):
            with jax.numpy_rank_promotion("raise"), jax.numpy_dtype_promotion("strict"):
                return call(L)

        return run

    assert_alike(with_settings(rank))
    assert_alike(with_settings(strict))
