"""Every way to write a conditional of jax.lax: the drop-in gives what jax.lax gives, or raises what it raises."""

import functools
import operator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from alike import XS, Point, Stateful, assert_alike

from quabla_jax.compat import lax

ONE, TWO = lambda *a: jax.tree.map(lambda v: v + 1, a), lambda *a: jax.tree.map(lambda v: v * 2, a)
CONDS = {
    "no operands": lambda L: L.cond(True, lambda: 1, lambda: 2),
    "pairs": lambda L: L.cond(False, ONE, TWO, 1.0, (2, XS)),
    "by name": lambda L: L.cond(pred=True, true_fun=lambda: 1.0, false_fun=lambda: 2.0),
    "functions by name": lambda L: L.cond(True, true_fun=lambda x: x, false_fun=lambda x: -x, operand=1.5),
    "operand none": lambda L: L.cond(True, lambda x: x is None, lambda x: False, operand=None),
    "operand none, positional": lambda L: L.cond(True, lambda x: x is None, lambda x: False, None),
    "operand empty": lambda L: L.cond(False, lambda x: len(x), lambda x: len(x) - 1, operand=()),
    "operand tuple": lambda L: L.cond(False, lambda x: x[0], lambda x: x[1], operand=(1.0, 2)),
    "operand pair": lambda L: L.cond(False, lambda x: x[0], lambda x: x[1], operand=(1.0, 2.0)),
    "both": lambda L: L.cond(True, ONE, TWO, 1.0, operand=1.0),
    "old": lambda L: L.cond(True, 1.0, lambda x: x + 1, (2.0, XS), lambda x: x[0] * 2),
    "old, false": lambda L: L.cond(False, 1.0, lambda x: x + 1, (2.0, XS), lambda x: x[0] * 2),
    "old, none": lambda L: L.cond(True, None, lambda _: 1, None, lambda _: 2),
    "old, empty": lambda L: L.cond(False, (), lambda _: 1, (), lambda _: 2),
    "old by name": lambda L: L.cond(
        True, true_operand=1.0, true_fun=lambda x: x, false_operand=2.0, false_fun=lambda x: x
    ),
    "linear=": lambda L: L.cond(True, ONE, TWO, 1.0, linear=(True,)),
    "one function only": lambda L: L.cond(True, ONE),
    "branch not callable": lambda L: L.cond(True, ONE, 3, 1.0),
    "list as pred": lambda L: L.cond([True], ONE, TWO, 1.0),
    "array of one": lambda L: L.cond(jnp.ones(1), ONE, TWO, 1.0),
    "numpy bool": lambda L: L.cond(np.bool_(False), ONE, TWO, 1.0),
    "zero": lambda L: L.cond(0, ONE, TWO, 1.0),
    "minus one": lambda L: L.cond(-1, ONE, TWO, 1.0),
    "nan": lambda L: L.cond(float("nan"), ONE, TWO, 1.0),
    "half": lambda L: L.cond(jnp.bfloat16(0.5), ONE, TWO, 1.0),
    "complex": lambda L: L.cond(1j, ONE, TWO, 1.0),
    "key": lambda L: L.cond(jax.random.key(0), ONE, TWO, 1.0),
    "string": lambda L: L.cond("yes", ONE, TWO, 1.0),
    "object": lambda L: L.cond(object(), ONE, TWO, 1.0),
    "jnp functions": lambda L: L.cond(True, jnp.sin, jnp.cos, 1.0),
    "ufuncs": lambda L: L.cond(True, jnp.add, jnp.multiply, 1.0, 2),
    "operators": lambda L: L.cond(False, operator.neg, operator.pos, XS),
    "methods": lambda L: L.cond(True, Stateful(0.5).step, Stateful(0.25).step, 1.0, 2.0),
    "partials": lambda L: L.cond(True, functools.partial(jnp.add, 1), functools.partial(jnp.add, 2), 1.0),
    "jitted": lambda L: L.cond(True, jax.jit(jnp.sin), jax.jit(jnp.cos), 1.0),
    "same function": lambda L: L.cond(True, jnp.sin, jnp.sin, 1.0),
    "identity": lambda L: L.cond(True, lambda x: x, lambda x: x, {"a": 1, "b": XS, "c": 2.5}),
    "identity of closures": lambda L: (lambda v: L.cond(True, lambda: v, lambda: v))(XS),
    "constants": lambda L: L.cond(True, lambda: (1, 2.0, True, None), lambda: (3, 4.0, False, None)),
    "constants of numpy": lambda L: L.cond(True, lambda: np.ones(2), lambda: np.zeros(2)),
    "int or float": lambda L: L.cond(True, lambda: 1, lambda: 2.0),
    "weak or strong": lambda L: L.cond(True, lambda x: x, lambda x: x + jnp.float64(1), 1.0),
    "strong or weak": lambda L: L.cond(True, lambda x: x + jnp.float64(1), lambda x: 2.0, 1.0),
    "float32 or float64": lambda L: L.cond(True, lambda: jnp.float32(1), lambda: jnp.float64(1)),
    "weak float or float32": lambda L: L.cond(True, lambda: 1.0, lambda: jnp.float32(1)),
    "bool or int": lambda L: L.cond(True, lambda: True, lambda: 1),
    "none or array": lambda L: L.cond(True, lambda: None, lambda: 1.0),
    "tuple or list": lambda L: L.cond(True, lambda: (1.0,), lambda: [1.0]),
    "dicts of other keys": lambda L: L.cond(True, lambda: {"a": 1}, lambda: {"b": 1}),
    "strings": lambda L: L.cond(True, lambda: "a", lambda: "b"),
    "branch raises": lambda L: L.cond(True, lambda: 1 // 0, lambda: 1),
    "untaken branch raises": lambda L: L.cond(True, lambda: 1, lambda: 1 // 0),
    "wrong arity": lambda L: L.cond(True, lambda: 1, lambda: 1, 5),
    "keys out": lambda L: L.cond(True, lambda: jax.random.key(1), lambda: jax.random.key(2)),
    "dataclass": lambda L: L.cond(True, lambda p: Point(p.y, p.x), lambda p: p, Point(1.0, 2.0)),
    "zero sized": lambda L: L.cond(True, lambda x: x, lambda x: x * 2, jnp.zeros((0, 2))),
    "python if inside": lambda L: L.cond(True, lambda x: 1.0 if x > 0 else 2.0, lambda x: x, 1.0),
    "with while": lambda L: L.cond(
        True, lambda x: jax.lax.while_loop(lambda c: c < 9, lambda c: c * 2, x), lambda x: x, 1.5
    ),
    "with while, weak": lambda L: L.cond(
        False, lambda x: jax.lax.while_loop(lambda c: c < 9, lambda c: c + 2, x), lambda x: 4, 1
    ),
}


@pytest.mark.parametrize("name", CONDS)
def test_cond(name):
    assert_alike(CONDS[name], (lax,))
    assert_alike(lambda L: jax.jit(lambda: CONDS[name](L))(), (lax,))


THREE = [lambda x: x, lambda x: x * 2, lambda x: -x]
SWITCHES = {
    "by name": lambda L: L.switch(index=1, branches=THREE, operand=2.0),
    "tuple": lambda L: L.switch(1, tuple(THREE), 2.0),
    "generator": lambda L: L.switch(1, (f for f in THREE), 2.0),
    "dict of functions": lambda L: L.switch(1, dict(enumerate(THREE)), 2.0),
    "numpy array of functions": lambda L: L.switch(1, np.array(THREE), 2.0),
    "single function": lambda L: L.switch(1, jnp.sin, 2.0),
    "below": lambda L: L.switch(-7, THREE, 2.0),
    "above": lambda L: L.switch(7, THREE, 2.0),
    "bool index": lambda L: L.switch(True, THREE, 2.0),
    "numpy index": lambda L: L.switch(np.int8(2), THREE, 2.0),
    "uint index": lambda L: L.switch(jnp.uint8(200), THREE, 2.0),
    "huge index": lambda L: L.switch(np.int64(2**40), THREE, 2.0),
    "huge python index": lambda L: L.switch(2**70, THREE, 2.0),
    "float index": lambda L: L.switch(1.0, THREE, 2.0),
    "none index": lambda L: L.switch(None, THREE, 2.0),
    "vector index": lambda L: L.switch(jnp.arange(2), THREE, 2.0),
    "operand none": lambda L: L.switch(1, [lambda x: x is None, lambda x: True], operand=None),
    "operand and operands": lambda L: L.switch(1, THREE, 1.0, operand=2.0),
    "no operands": lambda L: L.switch(1, [lambda: 1, lambda: 2]),
    "one branch": lambda L: L.switch(9, [lambda x: x], 2.5),
    "one branch, constant": lambda L: L.switch(0, [lambda: 2]),
    "one branch, none": lambda L: L.switch(0, [lambda: None]),
    "one branch, string": lambda L: L.switch(0, [lambda: "s"]),
    "one branch, numpy": lambda L: L.switch(0, [lambda: np.ones(2)]),
    "one branch, python if": lambda L: L.switch(0, [lambda x: 1 if jnp.sin(x) > 0 else 2], XS[0]),
    "one branch, float index": lambda L: L.switch(0.5, [lambda x: x], 2.5),
    "constants": lambda L: L.switch(1, [lambda: (1, 2.5), lambda: (2, 3.5)]),
    "weak and strong": lambda L: L.switch(0, [lambda x: 1.0, lambda x: x, lambda x: x * 2], jnp.float32(3)),
    "mixed dtypes": lambda L: L.switch(0, [lambda: jnp.float32(1), lambda: jnp.float64(1)]),
    "partials": lambda L: L.switch(1, [functools.partial(jnp.add, k) for k in range(3)], 2.0),
    "lambdas of a loop variable": lambda L: L.switch(1, [lambda x, k=k: x + k for k in range(3)], 2.0),
    "methods": lambda L: L.switch(1, [Stateful(k).step for k in (0.1, 0.2)], 2.0, 3.0),
    "nested": lambda L: L.switch(1, [lambda x: x, lambda x: L.switch(2, THREE, x)], 2.0),
}


@pytest.mark.parametrize("name", SWITCHES)
def test_switch(name):
    assert_alike(SWITCHES[name], (lax,))
    if "python if" not in name:
        assert_alike(lambda L: jax.jit(lambda: SWITCHES[name](L))(), (lax,))


ALL = {**CONDS, **SWITCHES}


@pytest.mark.parametrize("name", ALL)
def test_without_jit(name):
    def call(L):
        with jax.disable_jit():
            return ALL[name](L)

    assert_alike(call, (lax,))
