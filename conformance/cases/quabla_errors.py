"""The Quabla dialect: what is refused, with which class and which words. The real quabla is held to the same rows."""

from ..case import Case, Rand, register

X = Rand((2,), 0.2, 0.8)
A = Rand((), 0.2, 0.8)
CARRY = ("ValueError", "must preserve the carry shape and dtype")
PYTREE = ("TypeError", "carry must be a single array, not a pytree")
CLOSURE = ("TracerError", "operands=")


def _fori(body, lower=0, upper=3):
    return lambda qb, x, *rest: qb.fori_loop(lower, upper, lambda i, c: body(qb, i, c, *rest), x)


def _closes(kind):
    def program(qb, x, a):
        if kind == "fori":
            return qb.fori_loop(0, 3, lambda i, x: x * a, x)
        if kind == "scan":
            return qb.scan(lambda c, i: (c * a, c), x, length=3)[0]
        if kind == "scan-output":
            return qb.scan(lambda c, i: (c, c * a), x, length=3)[1]
        if kind == "while-body":
            return qb.while_loop(lambda x: qb.sum(x) > 0.1, lambda x: x * a, x)
        if kind == "while-predicate":
            return qb.while_loop(lambda x: qb.sum(x * a) > 0.1, lambda x: x * 0.5, x)
        if kind == "cond":
            return qb.cond(qb.sum(x) > 0.0, lambda x: x * a, lambda x: x, x)
        if kind == "switch":
            return qb.switch(qb.astype(x[0], x.dtype) > 0.5, (lambda x: x * a, lambda x: x), (x,))
        if kind == "zero-trips":
            return qb.fori_loop(2, 2, lambda i, x: x * a, x)
        return qb.fori_loop(0, 2, lambda i, x: qb.fori_loop(0, 2, lambda j, y: y * x, x), x)

    return program


ROWS = [
    # name, program, inputs, transforms, expected error, rules, more fields
    *(
        (f"closure-{kind}", _closes(kind), (X, A), ("jit", "jvp"), CLOSURE, ("quabla-4.1-closure-error",))
        for kind in ("fori", "scan", "scan-output", "while-body", "while-predicate", "cond", "zero-trips", "inner-region")
    ),
    ("carry-shape", _fori(lambda qb, i, c: qb.sum(c)), (X,), ("eager", "jit", "grad"), CARRY, ("quabla-4.1-carry-preserved",)),
    ("carry-broadcast", _fori(lambda qb, i, c: qb.stack([c, c])), (X,), ("eager", "jit"), CARRY, ("quabla-4.1-carry-preserved",)),
    ("carry-bool", _fori(lambda qb, i, c: c > 0.0), (X,), ("eager", "jit"), CARRY, ("quabla-4.1-carry-preserved",)),
    ("carry-dtype", _fori(lambda qb, i, c: qb.astype(c, qb.float32)), (X,), ("eager", "jit"), CARRY, ("quabla-4.1-carry-preserved",)),
    ("body-returns-tuple", _fori(lambda qb, i, c: (c, c)), (X,), ("eager", "jit"), PYTREE, ("quabla-4.1-single-array-carry",)),
    ("body-returns-list", _fori(lambda qb, i, c: [c]), (X,), ("eager", "jit"), PYTREE, ("quabla-4.1-single-array-carry",)),
    ("body-returns-dict", _fori(lambda qb, i, c: {"c": c}), (X,), ("eager", "jit"), PYTREE, ("quabla-4.1-single-array-carry",)),
    ("init-tuple", lambda qb, x: qb.fori_loop(0, 2, lambda i, c: c, (x, x)), (X,), ("eager", "jit"), PYTREE, ("quabla-4.1-single-array-carry",)),
    ("init-dict", lambda qb, x: qb.scan(lambda c, i: (c, c), {"x": x}, length=2), (X,), ("eager", "jit"), PYTREE, ("quabla-4.1-single-array-carry",)),
    ("negative-lower", _fori(lambda qb, i, c: c, -1, 3), (X,), ("eager", "jit"), ("ValueError", "lower must be non-negative"), ("quabla-4.1-static-bounds",)),
    ("negative-upper", _fori(lambda qb, i, c: c, 0, -3), (X,), ("eager", "jit"), ("ValueError", "upper must be non-negative"), ("quabla-4.1-static-bounds",)),
    ("upper-below-lower", _fori(lambda qb, i, c: c, 3, 1), (X,), ("eager", "jit"), ("ValueError", "upper >= lower"), ("quabla-4.1-static-bounds",)),
    ("float-bound", _fori(lambda qb, i, c: c, 0, 3.0), (X,), ("eager", "jit"), ("TypeError", "cannot be interpreted as an integer"), ("quabla-4.1-static-bounds",)),
    ("bool-bound", _fori(lambda qb, i, c: c, 0, True), (X,), ("eager", "jit"), ("TypeError", "must be a static integer"), ("quabla-4.1-static-bounds",)),
    ("traced-bound", lambda qb, x, a: qb.fori_loop(0, a, lambda i, c: c, x), (X, A), ("jit",), ("TracerError", "concrete"), ("quabla-4.1-static-bounds",)),
    ("zero-length", lambda qb, x: qb.scan(lambda c, i: (c, c), x, length=0), (X,), ("eager", "jit"), ("ValueError", "length must be positive"), ("quabla-4.4-positive-length",)),
    ("negative-length", lambda qb, x: qb.scan(lambda c, i: (c, c), x, length=-2), (X,), ("eager", "jit"), ("ValueError", "length must be non-negative"), ("quabla-4.4-positive-length",)),
    ("scan-returns-array", lambda qb, x: qb.scan(lambda c, i: c, x, length=2), (X,), ("eager", "jit"), ("TypeError", "must return a (carry, output) tuple"), ()),
    ("scan-returns-triple", lambda qb, x: qb.scan(lambda c, i: (c, c, c), x, length=2), (X,), ("eager", "jit"), ("TypeError", "must return a (carry, output) tuple"), ()),
    ("scan-bool-output", lambda qb, x: qb.scan(lambda c, i: (c, c > 0.0), x, length=2), (X,), ("jit",), ("ValueError", "must have a floating dtype"), ("quabla-4.1-floating-carries",)),
    ("bool-carry", lambda qb, x: qb.fori_loop(0, 2, lambda i, c: c, x > 0.0), (X,), ("jit",), ("ValueError", "has dtype bool"), ("quabla-4.1-floating-carries",)),
    ("bool-operand", lambda qb, x: qb.fori_loop(0, 2, lambda i, c, m: qb.where(m, c, 0.5 * c), x, operands=(x > 0.0,)), (X,), ("jit",), ("ValueError", "has dtype bool"), ("quabla-4.1-floating-carries",)),
    ("cond-bool-result", lambda qb, x: qb.cond(qb.sum(x) > 0.0, lambda x: x > 0.0, lambda x: x > 1.0, x), (X,), ("jit",), ("ValueError", "must return a floating dtype"), ("quabla-4.1-floating-carries",)),
    ("cond-shapes-differ", lambda qb, x: qb.cond(qb.sum(x) > 0.0, lambda x: x, lambda x: qb.sum(x), x), (X,), ("jit", "grad"), ("ValueError", "conditional branch output shapes differ"), ("quabla-4.2-same-shape",)),
    ("cond-dtypes-differ", lambda qb, x: qb.cond(qb.sum(x) > 0.0, lambda x: x, lambda x: qb.astype(x, qb.float32), x), (X,), ("jit",), ("ValueError", "conditional branch output dtypes differ"), ()),
    ("cond-vector-predicate", lambda qb, x: qb.cond(x > 0.0, lambda x: x, lambda x: x, x), (X,), ("eager", "jit"), ("ValueError", "predicate must be scalar"), ("quabla-4.2-bool-or-float-predicate",)),
    ("while-float-predicate", lambda qb, x: qb.while_loop(lambda x: qb.sum(x), lambda x: x, x), (X,), ("jit",), ("TypeError", "cond_fun must return a scalar bool"), ("quabla-4.5-scalar-bool-predicate",)),
    ("while-vector-predicate", lambda qb, x: qb.while_loop(lambda x: x > 0.0, lambda x: x, x), (X,), ("eager", "jit"), ("TypeError", "cond_fun must return a scalar bool"), ("quabla-4.5-scalar-bool-predicate",)),
    ("while-not-callable", lambda qb, x: qb.while_loop(None, lambda x: x, x), (X,), ("eager", "jit"), ("TypeError", "requires callable"), ()),
    ("while-carry-shape", lambda qb, x: qb.while_loop(lambda x: qb.sum(x) > 0.0, lambda x: qb.sum(x), x), (X,), ("jit",), CARRY, ("quabla-4.1-carry-preserved",)),
    *(
        (f"while-{t}", lambda qb, x: qb.while_loop(lambda x: qb.sum(x) > 0.1, lambda x: x * 0.5, x), (X,), (t,),
         ("ValueError", "reverse-mode differentiation through while_loop is not supported"), ("quabla-4.5-reverse-rejected",))
        for t in ("grad", "jit_grad", "hessian", "vmap_grad", "grad_grad")
    ),
    ("while-nested-grad", lambda qb, x: qb.fori_loop(0, 2, lambda i, x: qb.while_loop(lambda x: qb.sum(x) > 0.1, lambda x: x * 0.5, x), x), (X,), ("grad",), ("ValueError", "reverse-mode differentiation through while_loop"), ("quabla-4.5-reverse-rejected",)),
    ("none-carry", lambda qb, x: qb.fori_loop(0, 2, lambda i, c: c, None), (X,), ("eager",), ("TypeError", "cannot convert NoneType"), ()),
    ("index-slices-operand", lambda qb, x: qb.fori_loop(0, 2, lambda i, c, x: c + x[i], x, operands=(x,)), (X,), ("jit",), ("TypeError", ""), ("quabla-4.3-index-type",)),
]  # fmt: skip

for name, program, inputs, transforms, error, covers in ROWS:
    register(
        Case(
            f"refused/{name}", program, inputs, dialect="quabla", transforms=transforms, dtypes=("float64",), raises=error,
            covers=covers, tags=("only:xla", "only:quabla"),
        )
    )  # fmt: skip

SWITCH = [
    ("no-branches", lambda qb, x: qb.switch(0, (), (x,)), "ValueError", "switch-non-empty"),
    ("vector-index", lambda qb, x: qb.switch(qb.astype(x, qb.float64) > 0.0, (lambda x: x,), (x,)), "TypeError", "switch-single-element"),
    ("float-index", lambda qb, x: qb.switch(qb.sum(x), (lambda x: x, lambda x: x), (x,)), "TypeError", "switch-single-element"),
    ("not-callable", lambda qb, x: qb.switch(0, (3,), (x,)), "TypeError", "switch-same-structure"),
]  # fmt: skip

for name, program, error, rule in SWITCH:
    register(
        Case(
            f"refused/switch-{name}", program, (X,), dialect="quabla", transforms=("jit",), dtypes=("float64",),
            raises=(error, ""), covers=(rule,), tags=("only:xla", "only:quabla"),
        )
    )  # fmt: skip


def _switch_on(branches):
    def program(qb, i, x):
        return qb.switch(i, branches(qb, x), (x,))

    return program


for name, branches, error, rule in (
    (
        "structures-differ",
        lambda qb, y: (lambda x: x, lambda x: (x, x)),
        ("ValueError", ""),
        "switch-same-structure",
    ),
    (
        "shapes-differ",
        lambda qb, y: (lambda x: x, lambda x: qb.sum(x)),
        ("ValueError", ""),
        "switch-same-structure",
    ),
    (
        "none-in-one",
        lambda qb, y: (lambda x: (x, None), lambda x: (x, x)),
        ("ValueError", "None"),
        "switch-none-by-position",
    ),
    (
        "closure",
        lambda qb, y: (lambda x: x * y, lambda x: x),
        ("TracerError", "operands"),
        "switch-no-closures",
    ),
):
    register(
        Case(
            f"refused/switch-{name}", _switch_on(branches), (Rand((), 0, 2, dtype="int32"), X), dialect="quabla",
            transforms=("jit",), dtypes=("float64",), raises=error, covers=(rule,), tags=("only:xla", "only:quabla"),
        )
    )  # fmt: skip
