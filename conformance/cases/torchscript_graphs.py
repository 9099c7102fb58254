"""Hand-built TorchScript graphs: the layout rules of prim::If and prim::Loop, kept and broken.

`ts` is quabla_jax.torch_bridge. A kept rule is saved, loaded and run against the same program in JAX; a broken one is
refused where the node is built.
"""

import os
import tempfile

import jax.numpy as jnp
from jax import lax

from ..case import Case, Exact, case, register

G = {"dialect": "graph", "transforms": ("eager",), "tags": ("only:graph",)}
MAX = 2**63 - 1


def _run(ts, builder, *inputs):
    """Through a file, so that what is checked is what another process would load."""
    import torch

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "graph.pt")
        ts.save(builder.module(), path)
        return torch.jit.load(path)(*inputs)


def _article(added):
    def reference(ns, x):
        def body(s):
            status, value, n, go = s
            scaled = value * (n + 1) * 0.05
            fine = jnp.all(scaled > 0.01)
            return (
                jnp.where(fine, 1, status),
                jnp.where(fine, scaled + added, scaled),
                n + 1,
                fine & (n + 1 < 20),
            )

        zero = jnp.int64(0)
        status, value, *_ = lax.while_loop(lambda s: s[3], body, (zero, x * 2, zero, jnp.bool_(True)))
        return status, value

    def program(ts, x):
        gb = ts.GraphBuilder("ConditionalLoopModule")
        value = gb.call("aten::mul", gb.input("input_val"), 2)
        with gb.loop(MAX, True, 0, value, 0) as loop:
            status, value, counter = loop.carried
            following = gb.call("aten::add", counter, 1)
            scaled = gb.call("aten::mul", gb.call("aten::mul", value, following), 0.05)
            branch = gb.if_(gb.call("aten::Bool", gb.call("aten::all", gb.call("aten::gt", scaled, 0.01))))
            with branch.true() as taken:
                taken.end(True, 1, gb.call("aten::add", scaled, added))
            with branch.false() as taken:
                taken.end(False, status, scaled)
            going, status, value = branch.outputs
            loop.end(gb.call("aten::__and__", gb.call("aten::lt", following, 20), going), status, value, following)
        gb.output(gb.tuple_(*loop.outputs[:2]))
        return _run(ts, gb, x)

    return program, reference


for name, added, value in (
    ("runs-all-20", 10.0, [[5.0, 5.0], [5.0, 5.0]]),
    ("breaks-at-the-first", 10.0, [[5.0, -150.0], [3.0, 1.0]]),
    ("breaks-in-the-middle", 0.0, [[90.0, 7.0], [900.0, 8.0]]),
):
    program, reference = _article(added)
    covers = (
        "torchscript-article-module",
        "torchscript-break",
        "torchscript-tuple-types",
        "torchscript-loop-condition",
    )
    register(Case(f"graph/article-{name}", program, (Exact(value),), reference=reference, covers=covers, **G))


@case(
    "graph/loop-layout",
    Exact([1.0, 2.0]),
    Exact([0.5, -1.0]),
    reference=lambda ns, x, y: lax.fori_loop(0, 5, lambda i, s: (s[1] + i, s[0]), (x, y)),
    covers=("torchscript-loop-inputs", "torchscript-loop-index", "torchscript-loop-outputs"),
    **G,
)
def _(ts, x, y):
    """Carries that trade places, and the iteration index."""
    gb = ts.GraphBuilder("Swap")
    a, b = gb.input("a"), gb.input("b")
    with gb.loop(5, True, a, b) as loop:
        a, b = loop.carried
        loop.end(True, gb.call("aten::add", b, loop.index), a)
    gb.output(gb.tuple_(*loop.outputs))
    return _run(ts, gb, x, y)


@case(
    "graph/if-layout",
    Exact([1.0, -2.0]),
    reference=lambda ns, x: (jnp.cos(x), x * 2.0, jnp.int64(2)),
    covers=(
        "torchscript-if-no-inputs",
        "torchscript-if-phi",
        "torchscript-if-symmetric",
        "torchscript-stray-outputs",
    ),
    **G,
)
def _(ts, x):
    gb = ts.GraphBuilder("Phi")
    value = gb.input("x")
    branch = gb.if_(gb.call("aten::Bool", gb.call("aten::all", gb.call("aten::gt", value, 0.0))))
    with branch.true() as taken:
        taken.end(gb.call("aten::sin", value), value, 1)
    with branch.false() as taken:
        taken.end(gb.call("aten::cos", value), gb.call("aten::mul", value, 2.0), 2)
    gb.output(gb.tuple_(*branch.outputs))
    return _run(ts, gb, x)


@case(
    "graph/overloads",
    Exact([1.5, -2.0]),
    reference=lambda ns, x: (x + x * 3, x + 2, jnp.int64(5)),
    covers=("torchscript-overloads",),
    **G,
)
def _(ts, x):
    """Three overloads of one operator: with alpha, tensor and scalar, scalar and scalar."""
    gb = ts.GraphBuilder("Overloads")
    value = gb.input("x")
    gb.output(
        gb.tuple_(
            gb.call("aten::add", value, value, alpha=3),
            gb.call("aten::add", value, 2),
            gb.call("aten::add", 2, 3),
        )
    )
    return _run(ts, gb, x)


def _end_loop(*ends):
    def breach(gb, x):
        with gb.loop(10, True, x, 0) as loop:
            loop.end(*[loop.carried[0] if e == "x" else e for e in ends])

    return breach


def _branches(true, false):
    def breach(gb, x):
        branch = gb.if_(True)
        with branch.true() as taken:
            taken.end(*[x if e == "x" else e for e in true])
        with branch.false() as taken:
            taken.end(*[x if e == "x" else e for e in false])

    return breach


BREACHES = {
    "trip-count-is-a-tensor": (lambda gb, x: gb.loop(x, True, x), "torchscript-loop-inputs"),
    "condition-is-an-int": (lambda gb, x: gb.loop(10, 1, x), "torchscript-loop-inputs"),
    "trip-count-missing": (lambda gb, x: gb.loop(True, x), "torchscript-loop-inputs"),
    "condition-not-first": (_end_loop("x", True, 0), "torchscript-loop-condition"),
    "too-few-carried": (_end_loop(True, "x"), "torchscript-loop-outputs"),
    "carried-type": (_end_loop(True, "x", 1.0), "torchscript-loop-outputs"),
    "branches-in-number": (_branches(("x",), ("x", 1)), "torchscript-if-symmetric"),
    "branches-in-type": (_branches(("x", 1), ("x", 1.0)), "torchscript-if-symmetric"),
    "if-on-a-tensor": (lambda gb, x: gb.if_(x), "torchscript-if-no-inputs"),
    "alpha-on-scalars": (lambda gb, x: gb.call("aten::add", 1, 2, 1), "torchscript-overloads"),
    "unknown-operator": (lambda gb, x: gb.call("aten::no_such_operator", x), "torchscript-overloads"),
}

for name, (breach, rule) in BREACHES.items():

    def _program(ts, x, breach=breach):
        gb = ts.GraphBuilder("Breach")
        breach(gb, gb.input("x"))

    register(
        Case(
            f"graph/refused-{name}",
            _program,
            (Exact([1.0]),),
            covers=(rule,),
            raises=("GraphError", ""),
            dtypes=("float64",),
            **G,
        )
    )
