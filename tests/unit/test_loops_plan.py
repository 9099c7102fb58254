"""Plans: against brute force, the literature's closed formulas, and a step-by-step simulation of the schedule."""

import functools
import math

import jax
import jax.numpy as jnp
import pytest

from quabla_jax import loops
from quabla_jax.loops.plan import (
    Budget,
    Forced,
    blocks_for,
    checkpointing,
    extra_forward,
    held,
    least_slots,
    plan_loop,
    slots_of,
)


@functools.cache
def optimum(length, levels):
    """Fewest carries of any chain of block sizes, by trying all of them."""
    if levels == 0:
        return length
    return min(-(-length // b) + optimum(b, levels - 1) for b in range(1, length + 1))


@functools.cache
def revolve(length, slots):
    """Fewest forward steps of any schedule with `slots` carries besides the first (Griewank and Walther 2000, by search)."""
    if length == 1:
        return 0
    if slots == 0:
        return length * (length - 1) // 2
    return min(j + revolve(length - j, slots - 1) + revolve(j, slots) for j in range(1, length))


def revolve_formula(length, slots):
    """The same in closed form: r T - C(s + r + 1, r - 1), with r the least number such that T <= C(s + r + 1, r)."""
    s = slots + 1  # the first carry counts as one of the paper's checkpoints
    r = next(r for r in range(length) if math.comb(s + r, r) >= length)
    return r * length - math.comb(s + r, r - 1) if r else 0


class Walk:
    """Runs a schedule on integers: the carry is the step's number."""

    def __init__(self, length, blocks, inner):
        self.forward = self.live = self.peak = 0
        self.seen, self.inner = [], inner
        self.length = length
        if blocks:
            kept, _ = self.run(0, length, blocks[0])
            self.first, self.forward = self.forward, 0
            self.over(kept, 0, length, blocks)

    def hold(self, n):
        self.live += n
        self.peak = max(self.peak, self.live)

    def run(self, start, n, block):
        kept = list(range(start, start + n, block))
        self.hold(len(kept))
        self.forward += n
        return kept, start + n

    def over(self, kept, start, n, blocks):
        ends = [*kept[1:], start + n]
        for a, b in zip(reversed(kept), reversed(ends), strict=True):
            self.piece(a, b - a, [c for c in blocks[1:] if c < b - a])
        self.live -= len(kept)

    def piece(self, start, n, below):
        if below:
            kept, _ = self.run(start, n, below[0])
            return self.over(kept, start, n, below)
        if self.inner == "rerun":
            self.forward += n * (n - 1) // 2
        else:
            self.forward += n
            self.hold(n)
            self.live -= n
        self.seen += range(start + n - 1, start - 1, -1)


@pytest.mark.parametrize("levels", [1, 2, 3])
def test_blocks_are_near_the_brute_force_optimum(levels):
    for length in [*range(2, 80), 97, 128, 150]:
        got = sum(slots_of(length, blocks_for(length, levels)))
        assert got <= max(1.12 * optimum(length, levels), optimum(length, levels) + 2), (length, levels)


@pytest.mark.parametrize("levels", [1, 2, 3, 4])
def test_blocks_meet_the_geometric_bound(levels):
    """A product of levels + 1 counts that reaches T sums to at least (levels + 1) T^(1 / (levels + 1))."""
    for length in (10**3, 4096, 65536, 99991, 10**6):
        bound = (levels + 1) * length ** (1 / (levels + 1))
        got = sum(slots_of(length, blocks_for(length, levels)))
        assert bound <= got + 1e-6 and got <= 1.15 * bound + levels, (length, levels, got, bound)


def test_sqrt_holds_at_most_two_and_a_bit_roots():
    for length in [*range(33, 700, 7), 4096, 4099, 65536, 65537, 10**6, 10**6 + 3]:
        assert sum(plan_loop(length, 1, checkpoint="sqrt").slots) <= 2.3 * math.sqrt(length), length


@pytest.mark.parametrize("inner", ["carry", "rerun"])
@pytest.mark.parametrize(
    "length,blocks", [(1, (1,)), (11, (3,)), (12, (4, 2)), (100, (30, 7)), (101, (25, 5, 2)), (9, (9,))]
)
def test_the_schedule_does_what_its_formulas_say(length, blocks, inner):
    walk = Walk(length, blocks, inner)
    assert walk.seen == list(range(length - 1, -1, -1))
    assert walk.first == length
    assert walk.forward == extra_forward(length, blocks, inner)
    assert walk.peak <= held(slots_of(length, blocks), inner)


def test_revolve_by_search_is_its_closed_formula():
    for length in range(1, 30):
        for slots in range(0, 6):
            assert revolve(length, slots) == revolve_formula(length, slots), (length, slots)


def test_one_level_runs_within_one_block_of_the_optimum():
    """2T steps forward, against 2T - s - 2 for the best schedule with the same s carries."""
    for length in (64, 256, 1024, 4096, 65536):
        plan = plan_loop(length, 1, checkpoint="sqrt")
        best = revolve_formula(length, sum(plan.slots) - 1)
        assert best <= length + plan.extra_forward <= best + sum(plan.slots) + 2


def test_a_number_of_carries_is_kept_to_whatever_the_trip_count():
    for length in (1, 2, 11, 40, 999, 10**5):
        last = None
        for n in (1, 2, 3, 5, 8, 20, 100, 10**6):
            plan = plan_loop(length, 1, checkpoint=n)
            assert plan.stored_bytes <= n, (length, n)
            assert last is None or plan.extra_forward <= last
            last = plan.extra_forward


def test_budget_takes_the_fastest_that_fits_and_refuses_with_the_least():
    assert plan_loop(1000, 8, 8, Budget(10**6)).stored_bytes <= 10**6
    assert plan_loop(10**6, 40_000, checkpoint=Budget("200MB")).levels == 1
    assert plan_loop(10**6, 40_000, checkpoint=Budget("20MB")).levels == 2
    assert plan_loop(10**6, 40_000, checkpoint=Budget("100kB")).stored_bytes <= 100_000
    with pytest.raises(ValueError, match=r"least that would do is Budget\(40000 bytes\)"):
        plan_loop(100, 40_000, checkpoint=Budget("10kB"))


def test_budget_refuses_when_the_loop_is_differentiated():
    f = lambda x: loops.fori_loop(0, 50, lambda i, x: jnp.sin(x), x, checkpoint=Budget(100)).sum()
    x = jnp.ones(1000)
    f(x)
    with pytest.raises(ValueError, match="least that would do is Budget"):
        jax.grad(f)(x)


@pytest.mark.parametrize(
    "text,size", [("512MB", 512 * 10**6), ("2GiB", 2 << 30), ("1.5 kB", 1500), (77, 77), ("10", 10)]
)
def test_budget_reads_sizes(text, size):
    assert Budget(text).bytes == size


@pytest.mark.parametrize("bad", ["12 parsecs", "", -1, 0, True])
def test_budget_rejects_what_is_no_size(bad):
    with pytest.raises(ValueError, match="Budget"):
        Budget(bad)


@pytest.mark.parametrize(
    "bad,error", [("fast", ValueError), (0, ValueError), (-3, ValueError), (1.5, TypeError), (None, TypeError)]
)
def test_checkpoint_rejects_what_is_no_plan(bad, error):
    with pytest.raises(error, match="checkpoint="):
        loops.scan(lambda c, x: (c, x), 1.0, jnp.arange(40.0), checkpoint=bad)


def test_plan_prints_as_a_table():
    text = str(plan_loop(4096, 4000, checkpoint="sqrt"))
    assert "64 + 64" in text and "512 kB" in text and "4096 (1.00 a step)" in text
    assert "full tape" in str(plan_loop(10, 4000))


def test_least_slots_grow_with_the_logarithm():
    assert sum(slots_of(10**6, least_slots(10**6))) <= 3 * math.log(10**6, 2)


def test_checkpointing_sets_the_default_inside_and_only_there():
    def temporary():
        f = lambda x: loops.fori_loop(0, 4096, lambda i, x: x * jnp.cos(x), x).sum()
        return jax.jit(jax.grad(f)).lower(jnp.ones(100)).compile().memory_analysis().temp_size_in_bytes

    with checkpointing("full"):
        full = temporary()
    with checkpointing("sqrt"):
        small = temporary()
    assert small < full / 8


@pytest.mark.parametrize("order", [1, 2, 3])
def test_temporary_memory_grows_with_the_root_at_every_order(order):
    def size(T):
        def f(p):
            x0 = jnp.linspace(0.0, 1.0, 500) * p
            return jnp.mean(loops.fori_loop(0, T, lambda i, x: x - 0.01 * jnp.tanh(p * x), x0, checkpoint="sqrt") ** 2)

        for _ in range(order):
            f = jax.grad(f)
        return jax.jit(f).lower(jnp.float64(1.3)).compile().memory_analysis().temp_size_in_bytes

    small, large = size(256), size(65536)
    assert math.log(large / small) / math.log(256) <= 0.52
    if order == 1:
        assert large <= (2.3 * 256 + 4) * 500 * 8


@pytest.mark.parametrize(
    ("step", "factor"),
    [(lambda p, x: x - 0.01 * jnp.tanh(x @ p), 1.5), (lambda p, x: jnp.sin(jnp.tanh(jnp.cos(x @ p)) @ p), 1.0)],
    ids=["two carries a step", "four"],
)
def test_forward_over_reverse_stores_a_piece_where_that_is_little(step, factor):
    """Under "sqrt" a sweep over pairs stores its steps' values where they are at most twice the carry, and only there."""

    def size(T, plan):
        loss = lambda p, x: jnp.sum(loops.fori_loop(0, T, lambda i, x: step(p, x), x, checkpoint=plan))
        hvp = jax.jit(lambda p, x: jax.jvp(jax.grad(loss), (p, x), (p, x))[1])
        args = jnp.eye(20), jnp.ones((30, 20))
        return hvp.lower(*args).compile().memory_analysis().temp_size_in_bytes

    carry = size(4096, Forced((64,), "carry"))
    assert 0.9 * factor * carry <= size(4096, "sqrt") <= 1.05 * factor * carry
    assert math.log(size(65536, "sqrt") / size(256, "sqrt")) / math.log(256) <= 0.52
    assert size(4096, 128) <= 1.05 * carry  # a number of carries, and a budget, are kept to the letter
