"""The engine's front doors: pytrees and closures in, jax.lax semantics out (dialect-free).

Signatures are fixed; the implementation below is the plain jax.lax one until the engine replaces it.
"""

from jax import lax as _lax


class Budget:
    def __init__(self, size):
        self.size = size


def scan(f, init, xs=None, length=None, *, reverse=False, unroll=1, checkpoint="auto"):
    return _lax.scan(f, init, xs, length, reverse=reverse, unroll=unroll)


def fori_loop(lower, upper, body_fun, init_val, *, unroll=None, checkpoint="auto"):
    return _lax.fori_loop(lower, upper, body_fun, init_val, unroll=unroll)


def while_loop(cond_fun, body_fun, init_val, *, checkpoint=None):
    return _lax.while_loop(cond_fun, body_fun, init_val)


def cond(pred, true_fun, false_fun, *operands):
    return _lax.cond(pred, true_fun, false_fun, *operands)


def switch(index, branches, *operands):
    return _lax.switch(index, branches, *operands)
