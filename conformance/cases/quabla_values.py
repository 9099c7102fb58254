"""The Quabla dialect: what control flow computes. Every program runs under the real quabla package too."""

from ..case import FORWARD, SMOOTH, VALUES, Exact, Rand, case

AHEAD = (*FORWARD, "vmap_jvp", "jvp_jvp")
Q = {"dialect": "quabla"}


@case(
    "chapter/decay",
    Rand((2,), 0.5, 2.0),
    Rand((), 0.1, 0.9),
    covers=("quabla-4.1-operands", "quabla-4.3-values-and-gradients", "quabla-4.3-second-order"),
    transforms=SMOOTH,
    **Q,
)
def _(qb, x, a):
    h = 0.01
    return qb.fori_loop(0, 100, lambda i, x, a: x - h * a * x, x, operands=(a,))


@case(
    "chapter/decay-any-order",
    Rand((2,), 0.5, 2.0),
    Rand((), 0.1, 0.9),
    transforms=("jvp_jvp", "third"),
    **Q,
)
def _(qb, x, a):
    return qb.fori_loop(0, 20, lambda i, x, a: x - 0.05 * a * x * x, x, operands=(a,))


@case(
    "chapter/safe-log",
    Exact(2.0, batch=[2.0, -1.0, 0.5]),
    covers=("quabla-4.2-lazy", "quabla-4.6-mapped-predicate"),
    **Q,
)
def _(qb, x):
    return qb.cond(x > 0.0, lambda x: qb.log(x), lambda x: qb.zeros_like(x), x)


@case(
    "chapter/rollout",
    Rand((2,), 0.3, 1.0),
    Rand((), 0.5, 0.9),
    covers=("quabla-4.4-stacks", "quabla-4.4-argument-order", "quabla-4.6-scan-batch-first"),
    transforms=SMOOTH,
    **Q,
)
def _(qb, x, w):
    def step(c, i, w):
        c = qb.tanh(c * w + 0.1)
        return c, c * 2.0

    return qb.scan(step, x, length=4, operands=(w,))


@case(
    "chapter/newton-sqrt",
    Rand((), 1.5, 9.0),
    covers=("quabla-4.5-data-dependent", "quabla-4.5-forward-mode", "quabla-4.5-scalar-bool-predicate"),
    transforms=AHEAD,
    ulp=64,
    **Q,
)
def _(qb, a):
    return qb.while_loop(
        lambda x, a: qb.abs(x * x - a) > 1e-4, lambda x, a: 0.5 * (x + a / x), qb.ones_like(a), operands=(a,)
    )


@case(
    "chapter/sqrt-bounded",
    Rand((), 1.5, 4.0),
    covers=("quabla-4.5-bounded-rewrite",),
    transforms=("eager", "jit", "vmap", "grad", "vmap_grad", "hessian"),
    dtypes=("float64",),
    ulp=64,
    **Q,
)
def _(qb, a):
    def body(i, x, a):
        done = qb.abs(x * x - a) <= 1e-12
        return qb.where(done, x, 0.5 * (x + a / x))

    return qb.fori_loop(0, 30, body, qb.ones_like(a), operands=(a,))


@case(
    "chapter/index-arithmetic",
    Rand((2,), 0.2, 0.8),
    covers=("quabla-4.3-index-type",),
    transforms=SMOOTH,
    **Q,
)
def _(qb, x):
    return qb.fori_loop(2, 7, lambda i, x: qb.sin(x * (i + 1.0) * 0.3) + 0.1 * i, x)


@case("chapter/index-selects", Rand((4,), 0.2, 0.8), Rand((), 0.1, 0.5), transforms=SMOOTH, **Q)
def _(qb, xs, x):
    """The chapter's one-hot way of reading a sequence."""

    def body(i, x, xs):
        hot = qb.where(qb.equal(qb.cumsum(qb.ones_like(xs)) - 1.0, i), xs, 0.0 * xs)
        return qb.sin(x + qb.sum(hot))

    return qb.fori_loop(0, 4, body, x, operands=(xs,))


@case("chapter/unrolled", Rand((2,), 0.2, 0.8), covers=("quabla-4.3-unroll",), **Q)
def _(qb, x):
    return qb.fori_loop(0, 4, lambda i, x: qb.sin(x) + 0.1 * i, x, unroll=True)


@case("chapter/unrolled-scan-slices", Rand((3, 2), 0.2, 0.8), **Q)
def _(qb, xs):
    """Unrolled, the index is a Python int and may slice."""
    return qb.scan(
        lambda c, i, xs: (qb.sin(c) + xs[i], c * xs[i]),
        qb.zeros_like(xs[0]),
        length=3,
        operands=(xs,),
        unroll=True,
    )


@case(
    "chapter/closes-over-constants",
    Rand((2,), 0.2, 0.8),
    covers=("quabla-4.1-closure-of-constants",),
    transforms=SMOOTH,
    dtypes=("float64",),
    **Q,
)
def _(qb, x):
    table, h = qb.array([0.3, 0.7]), 0.5
    return qb.fori_loop(0, 5, lambda i, x: qb.sin(x) * table + h, x)


for plan in ("full", "sqrt", 3):

    @case(
        f"chapter/checkpoint-{plan}",
        Rand((2,), 0.2, 0.8),
        Rand((), 0.3, 0.9),
        covers=("quabla-4.3-checkpointed",),
        transforms=("grad", "jit_grad", "hessian", "vmap_grad", "grad_grad"),
        **Q,
    )
    def _(qb, x, a, plan=plan):
        return qb.fori_loop(0, 30, lambda i, x, a: qb.sin(x * a) + 0.4, x, operands=(a,), checkpoint=plan)


@case(
    "quabla/float-predicate",
    Exact(0.5, batch=[0.5, 0.0, -0.0]),
    Rand((2,), 0.2, 0.9),
    covers=("quabla-4.2-bool-or-float-predicate",),
    transforms=("jit", "vmap", "grad", "vmap_grad"),
    **Q,
)
def _(qb, p, x):
    return qb.cond(p, lambda x: qb.sin(x), lambda x: x * 2.0, x)


@case(
    "quabla/constant-branch",
    Rand((2,), 0.2, 0.9),
    covers=("quabla-4.2-constant-branch", "quabla-4.2-same-shape"),
    **Q,
)
def _(qb, x):
    return qb.cond(qb.sum(x) > 0.1, lambda x: x * x, lambda x: qb.ones_like(x), x)


@case(
    "quabla/unmapped-predicate",
    Exact(1.0),
    Rand((2,), 0.2, 0.9),
    covers=("quabla-4.6-unmapped-predicate",),
    transforms=("jit", "vmap", "vmap_grad", "grad_vmap"),
    **Q,
)
def _(qb, p, x):
    return qb.cond(p > 0.0, lambda x: qb.sin(x), lambda x: qb.log(x * 0.0), x)


@case(
    "quabla/mapped-operands-only",
    Rand((3,), 0.2, 0.8, mapped=False),
    Rand((), 0.3, 0.9),
    covers=("quabla-4.6-loops-map-operands",),
    transforms=("vmap", "vmap_jvp", "vmap_grad", "grad_vmap"),
    **Q,
)
def _(qb, x, a):
    return qb.fori_loop(0, 5, lambda i, x, a: qb.sin(x * a), x, operands=(a,))


@case(
    "quabla/while-lanes",
    Exact(2.0, batch=[2.0, 0.25, 9.0]),
    covers=("quabla-4.6-while-finished-lanes",),
    transforms=("jit", "vmap", "vmap_jvp"),
    **Q,
)
def _(qb, x):
    """The body would take the logarithm of a negative number in finished lanes."""
    return qb.while_loop(lambda x: x > 0.1, lambda x: qb.log(x + 1.0) * 0.5, x)


@case("quabla/scan-index-output", Rand((2,), 0.2, 0.8), transforms=("jit", "grad"), dtypes=("float64",), **Q)
def _(qb, x):
    """The index as an output has the carry's dtype."""
    return qb.scan(lambda c, i: (qb.sin(c), i + 0.0 * qb.sum(c)), x, length=4)


@case("quabla/fori-in-scan", Rand((2,), 0.2, 0.8), Rand((), 0.3, 0.9), transforms=SMOOTH, **Q)
def _(qb, x, a):
    def step(c, i, a):
        c = qb.fori_loop(0, 3, lambda j, c, a, i: qb.sin(c * a) + 0.1 * i, c, operands=(a, i))
        return c, c * a

    return qb.scan(step, x, length=3, operands=(a,))


@case("quabla/scan-in-cond", Exact(0.6, batch=[0.6, -0.3, 0.2]), transforms=SMOOTH, **Q)
def _(qb, x):
    def roll(x):
        return qb.scan(lambda c, i: (qb.tanh(c) + 0.1, c), x, length=3)[0]

    return qb.cond(x > 0.0, roll, lambda x: x * x, x)


@case("quabla/while-in-fori", Rand((), 0.5, 0.9), transforms=AHEAD, **Q)
def _(qb, x):
    return qb.fori_loop(0, 3, lambda i, x: qb.while_loop(lambda y: y > 0.4, lambda y: y * 0.7, x + 0.3), x)


@case("quabla/zero-trips", Rand((2,)), Rand(()), transforms=SMOOTH, **Q)
def _(qb, x, a):
    """Identity for the carry, zero for the operand."""
    return qb.fori_loop(3, 3, lambda i, x, a: x * a, x, operands=(a,))


@case(
    "quabla/mixed-dtype-operands",
    Rand((2,), 0.2, 0.8),
    Rand((), 0.3, 0.9, dtype="float64"),
    transforms=("jit",),
    dtypes=("float32",),
    same_dtype=True,
    ulp=64,
    **Q,
)
def _(qb, x, a):
    """A float64 operand in a float32 loop, converted in the body; each gradient keeps its own dtype."""
    return qb.fori_loop(0, 4, lambda i, x, a: qb.sin(x) * qb.astype(a, qb.float32), x, operands=(a,))


@case(
    "quabla/custom-vjp-in-loop",
    Rand((2,), -0.9, 0.9),
    covers=("quabla-4.7-custom-rules-in-bodies",),
    transforms=("jit", "vmap", "grad", "vmap_grad"),
    ulp=64,
    **Q,
)
def _(qb, x):
    @qb.custom_vjp
    def scaled(x):
        return qb.sin(x)

    scaled.defvjp(lambda x: (qb.sin(x), x), lambda x, ct: (ct * qb.cos(x) * 3.0,))
    return qb.fori_loop(0, 3, lambda i, x: scaled(x) * 1.2 + 0.1, x)


@case("quabla/custom-jvp-in-scan", Rand((2,), -0.9, 0.9), transforms=("jit", "jvp", "grad", "vmap_grad"), **Q)
def _(qb, x):
    @qb.custom_jvp
    def f(x):
        return qb.sin(x)

    f.defjvp(lambda primals, tangents: (qb.sin(primals[0]), tangents[0] * 2.0))
    return qb.scan(lambda c, i: (f(c) * 1.2, f(c)), x, length=3)


@case("quabla/checkpoint-in-loop", Rand((2,), -0.9, 0.9), transforms=SMOOTH, **Q)
def _(qb, x):
    inner = qb.checkpoint(lambda x: qb.sin(qb.sin(x)) * 1.1)
    return qb.fori_loop(0, 3, lambda i, x: inner(x), x)


# ---- switch: Quabla 1.0 has none (limitations.py says so); the reference is jax.lax.switch

for index in (-5, -1, 0, 1, 2, 3, 9):

    @case(
        f"qb-switch/array-{index}",
        Exact([index], dtype="int32"),
        Rand((2,), 0.2, 0.9),
        covers=("switch-clamped", "switch-single-element", "switch-differentiable"),
        transforms=("eager", "jit", "jvp", "grad"),
        dtypes=("float64",),
        **Q,
    )
    def _(qb, i, x):
        return qb.switch(i, (lambda x: qb.sin(x), lambda x: qb.cos(x), lambda x: x * x), (x,))

    @case(
        f"qb-switch/static-{index}",
        Rand((2,), 0.2, 0.9),
        covers=("switch-static-index",),
        transforms=("eager", "jit", "grad"),
        dtypes=("float64",),
        **Q,
    )
    def _(qb, x, index=index):
        return qb.switch(index, (lambda x: qb.sin(x), lambda x: qb.cos(x), lambda x: x * x), (x,))


@case(
    "qb-switch/mapped",
    Exact(1, dtype="int32", batch=[0, 2, 7]),
    Rand((2,), 0.2, 0.9),
    transforms=("vmap", "vmap_jvp", "vmap_grad", "grad_vmap", "vmap_hvp"),
    **Q,
)
def _(qb, i, x):
    return qb.switch(i, (lambda x: qb.sin(x), lambda x: qb.cos(x), lambda x: x * x), (x,))


@case(
    "qb-switch/nested",
    Exact(1, dtype="int32", batch=[0, 1, 2]),
    Rand((2,), 0.2, 0.9),
    covers=("switch-nested",),
    transforms=("jit", "vmap", "grad", "vmap_grad"),
    **Q,
)
def _(qb, i, x):
    def inner(i, x):
        return qb.switch(i, (lambda x: x * 2.0, lambda x: qb.exp(x)), (x,))

    return qb.switch(i, (lambda i, x: qb.sin(x), inner, inner), (i, x))


@case(
    "qb-switch/no-operands",
    Exact(1, dtype="int32", batch=[0, 1, 2]),
    covers=("switch-default-operands",),
    transforms=VALUES,
    dtypes=("float64",),
    **Q,
)
def _(qb, i):
    return qb.switch(i, (lambda: qb.array(1.5), lambda: qb.array(-2.0)))


@case(
    "qb-switch/one-branch",
    Exact(4, dtype="int32"),
    Rand((2,)),
    covers=("switch-non-empty",),
    transforms=("jit", "grad"),
    **Q,
)
def _(qb, i, x):
    return qb.switch(i, (lambda x: qb.sin(x),), (x,))


@case(
    "qb-switch/structures",
    Exact(1, dtype="int32", batch=[0, 1, 2]),
    Rand((2,), 0.2, 0.9),
    covers=("switch-same-structure",),
    transforms=("jit", "vmap", "grad"),
    **Q,
)
def _(qb, i, x):
    out = qb.switch(i, (lambda x: {"a": x, "b": (x * 2.0,)}, lambda x: {"a": x * x, "b": (x,)}), (x,))
    return out["a"], out["b"][0]


def _lax_ints(lax, i):
    import jax.numpy as jnp

    return jnp.asarray([3, 4, 5])[jnp.clip(i, 0, 2)] * 1.0


@case(
    "qb-switch/ints-and-none",
    Exact(1, dtype="int32", batch=[0, 1, 2]),
    covers=("switch-none-by-position", "switch-ints-merge"),
    transforms=("jit", "vmap"),
    reference=_lax_ints,
    dtypes=("float64",),
    **Q,
)
def _(qb, i):
    """Ints that differ merge into an array; None stands where it stands in every branch."""
    out = qb.switch(i, (lambda: (None, 3), lambda: (None, 4), lambda: (None, 5)))
    assert out[0] is None
    return out[1] * 1.0
