"""PRNG keys as uint32 words, and the bit generators, bit for bit."""

from __future__ import annotations

import jax
import numpy as np

from .. import jax_api
from ..emitter import Emitter
from ..program import Value
from . import Inline, register

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def _retraced(fun, inputs):
    from ..trace import retrace

    structs = [jax.ShapeDtypeStruct(v.shape, v.dtype) for v in inputs]
    return Inline(retrace(fun, structs), tuple(inputs))


def _map(fun, times: int, in_axes=0):
    for _ in range(times):
        fun = jax.vmap(fun, in_axes)
    return fun


def _random_seed(e: Emitter, eqn, seeds: Value):
    return _retraced(_map(eqn.params["impl"].seed, seeds.ndim), [seeds])


def _random_split(e: Emitter, eqn, keys: Value):
    aval = eqn.invars[0].aval
    impl, shape = jax_api.key_impl(aval.dtype), tuple(eqn.params["shape"])
    return _retraced(_map(lambda k: impl.split(k, shape), aval.ndim), [keys])


def _random_bits(e: Emitter, eqn, keys: Value):
    aval = eqn.invars[0].aval
    impl, p = jax_api.key_impl(aval.dtype), eqn.params
    return _retraced(_map(lambda k: impl.random_bits(k, p["bit_width"], tuple(p["shape"])), aval.ndim), [keys])


def _random_fold_in(e: Emitter, eqn, keys: Value, data: Value):
    key_aval, out_shape = eqn.invars[0].aval, eqn.outvars[0].aval.shape
    impl = jax_api.key_impl(key_aval.dtype)
    words = keys.shape[key_aval.ndim :]
    keys = e.broadcast(
        e.reshape(keys, (1,) * (len(out_shape) - key_aval.ndim) + keys.shape),
        (*out_shape, *words),
        range(len(out_shape) + len(words)),
    )
    return _retraced(_map(impl.fold_in, len(out_shape)), [keys, e.broadcast_to(data, out_shape)])


def _identity(e: Emitter, eqn, x: Value):
    return x


def threefry2x32(e: Emitter, key0: Value, key1: Value, x0: Value, x1: Value) -> list[Value]:
    """Twenty rounds of Threefry-2x32 (Salmon et al., SC 2011) on uint32 words of one shape."""
    schedule = [key0, key1, e.xor(e.xor(key0, key1), np.uint32(0x1BD11BDA))]
    x0, x1 = e.add(x0, schedule[0]), e.add(x1, schedule[1])
    for group in range(5):
        for distance in _ROTATIONS[group % 2]:
            x0 = e.add(x0, x1)
            turned = e.or_(e.shift_left(x1, distance), e.shift_right_logical(x1, 32 - distance))
            x1 = e.xor(x0, turned)
        x0 = e.add(x0, schedule[(group + 1) % 3])
        x1 = e.add(e.add(x1, schedule[(group + 2) % 3]), group + 1)
    return [x0, x1]


def _threefry2x32(e: Emitter, eqn, *words: Value):
    shape = eqn.outvars[0].aval.shape
    return threefry2x32(e, *(e.broadcast_to(w, shape) for w in words))


def _iota_2x32(e: Emitter, eqn):
    shape = tuple(eqn.params["shape"])
    total = int(np.prod(shape, dtype=np.int64))
    if total <= 1 << 32:
        low = e.reshape(e.iota(np.uint32, (total,), 0), shape)
        return [e.full(shape, 0, np.uint32), low]
    count = e.iota(np.uint64, (total,), 0)
    high = e.cast(e.shift_right_logical(count, 32), np.uint32)
    return [e.reshape(high, shape), e.reshape(e.cast(count, np.uint32), shape)]


register("random_seed_p", "expanded", _random_seed, keys=True)
register("random_split_p", "expanded", _random_split, keys=True)
register("random_bits_p", "expanded", _random_bits, keys=True)
register("random_fold_in_p", "expanded", _random_fold_in, keys=True)
register("random_wrap_p random_unwrap_p random_clone_p to_edtype_p from_edtype_p", "inlined", _identity, keys=True)
register("threefry2x32", "composed", _threefry2x32)
register("iota_2x32_shape_p", "composed", _iota_2x32)
