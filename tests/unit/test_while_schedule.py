"""The pool of a while loop: its strides, and its reversal against the optimum found by brute force."""

from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from quabla_jax.loops.multilevel import MAX_STEPS, Pool, longest

NEVER = 10**9


@lru_cache(None)
def fewest_steps(length, free):
    """The fewest steps advanced to reverse a stretch whose first carry is stored, every carry in use taking a slot."""
    if length <= 1:
        return 0
    if free == 0:
        return NEVER
    return min(d + fewest_steps(length - d, free - 1) + fewest_steps(d, free) for d in range(1, length))


def advances(lengths, frees):
    grid = np.meshgrid(lengths, frees, indexing="ij")
    run = jax.jit(jax.vmap(Pool(8).advance))
    return np.asarray(run(*(jnp.asarray(a.ravel(), jnp.int32) for a in grid))).reshape(grid[0].shape)


def steps_of(table, length, free):
    """Steps that the schedule advances."""
    if length <= 1:
        return 0
    d = int(table[length - 1, free])
    if d == 0:
        assert length <= free + 1
        return length - 1
    assert 1 <= d < length and free >= 1
    return d + steps_of(table, length - d, free - 1) + steps_of(table, d, free)


def test_reversal_is_optimal():
    lengths, frees = np.arange(1, 80), np.arange(0, 8)
    table = advances(lengths, frees)
    for length in lengths:
        for free in frees[1:]:
            assert steps_of(table, int(length), int(free)) == fewest_steps(int(length), int(free)), (length, free)


@pytest.mark.parametrize("free", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("runs", [1, 2, 3, 4])
def test_longest_stretch_is_the_binomial(free, runs):
    """No step of the longest stretch is advanced over more than `runs` times; one step more would need another run."""

    @lru_cache(None)
    def most_runs(length, free):
        if length <= 1:
            return 0
        if free == 0:
            return NEVER
        return min(max(most_runs(length - d, free - 1), 1 + most_runs(d, free)) for d in range(1, length))

    best = longest(free, runs)
    if best <= 130:
        assert most_runs(best, free) == runs
        assert most_runs(best + 1, free) == runs + 1


@pytest.mark.parametrize("slots", [4, 5, 6, 7, 8, 9, 16, 63, 64, 256, 1000])
def test_online_strides_leave_room(slots):
    pool = Pool(slots)
    caps = pool.capacities
    assert all(2 <= c <= slots and c % 2 == 0 for c in caps)
    assert all(c < slots for c in caps[1:]), "a stride above one leaves a slot free"
    assert all(b > -(-a // 2) for a, b in zip(caps, caps[1:])), "a halved pool has room at the next stride"
    assert list(pool.limits) == sorted(pool.limits) and pool.limits[-1] == MAX_STEPS


def online_stride(pool, steps):
    """The forward pass, in Python."""
    k = stored = position = 0
    while position < steps:
        if stored == pool.capacities[k]:
            stored, k = stored // 2, k + 1
        assert position % 2**k == 0 and stored == position >> k
        stored, position = stored + 1, min(position + 2**k, steps)
    return k, stored


@pytest.mark.parametrize("slots", [4, 7, 16, 64])
def test_stride_follows_from_the_trip_count(slots):
    pool = Pool(slots)
    for steps in [*range(0, 70), 127, 128, 129, 1000, 4097, 65536]:
        k, stored = online_stride(pool, steps)
        assert stored == -(-steps >> k) and stored <= pool.capacities[k]
        assert int(pool.stride_exponent(jnp.int32(steps))) == k


def test_levels_cover_their_capacity():
    """64 slots on 4 levels: 64^4 steps are reversed with no step run more than 4 times before its vjp."""
    pool = Pool.of_levels(64, 4)
    assert pool.slots == 256
    k = int(pool.stride_exponent(jnp.int32(64**4)))
    free = pool.slots - pool.capacities[k]
    assert longest(free, 3) >= 2**k


def test_capacity_is_checked():
    with pytest.raises(ValueError, match="at least one slot, got 0"):
        Pool(0)
