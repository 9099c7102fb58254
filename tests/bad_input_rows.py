"""Wrong calls over the public surface: what is called, the class of its error, and what the text must say.

A row is (public names it stands for, call, class, fragment of the text). Rows whose library is missing are skipped by
`needs`. tests/unit/test_bad_input.py runs them.
"""

import contextlib
import functools
import importlib
import io
import pathlib
import tempfile

import jax
import jax.numpy as jnp
import numpy as np

import quabla_jax as qb
from quabla_jax import compat
from quabla_jax.compat import lax, torch_ops

X = jnp.arange(3.0)
M = jnp.ones((3, 3))
N = jnp.arange(3)
NAN = float("nan")
KEY = qb.random.key(0)
add = lambda i, c: c + 1.0
FOLDER = pathlib.Path(tempfile.gettempdir())
MISSING = FOLDER / "no such folder" / "file"


@functools.cache
def module(name):
    return importlib.import_module(f"quabla_jax.{name}")


def torch():
    return importlib.import_module("torch")


def leaked():
    """A tracer whose trace is over."""
    kept = []
    jax.jit(lambda x: kept.append(x) or x)(1.0)
    return kept[0]


def total(*trees):
    return jnp.sum(X)


def generator():
    yield 1.0


def traced(f, *args):
    return qb.jit(f)(*(args or (X,)))


def quiet_vjp(f, *args):
    return qb.vjp(f, *args)[1]


@qb.custom_vjp
def no_rule(x):
    return x


@qb.custom_jvp
def no_jvp_rule(x):
    return x


def vjp_of_wrong_count():
    @qb.custom_vjp
    def f(x):
        return x * 2.0

    f.defvjp(lambda x: (f(x), x), lambda r, g: (g, g))
    return f


def builder():
    return module("torch_bridge").GraphBuilder("M")


def scripted():
    return module("torch_bridge").to_torchscript(lambda x: x + 1.0, jnp.ones(2, jnp.float32))


def state_of(optimizer):
    return optimizer.init({"w": X})


def budget_of(text):
    return lambda: qb.Budget(text)


def cli(*args):
    """The conformance command's exit code and text, as an exception."""
    from conformance.cli import main

    text = io.StringIO()
    with contextlib.redirect_stderr(text):
        try:
            code = main(list(args))
        except SystemExit as stop:
            code = stop.code
    raise SystemExit(f"exit code {code}: {text.getvalue().strip()}")


class Opaque:
    pass


def in_itself(kind=list):
    """A container that holds an array and itself."""
    tree = kind()
    if kind is list:
        tree.extend([X, tree])
    else:
        tree.update(x=X, itself=tree)
    return tree


def in_a_tuple_in_itself():
    inner = [X]
    outer = ({"a": inner},)
    inner.append(outer)
    return outer


def too_deep():
    tree = X
    for _ in range(2000):
        tree = [tree]
    return tree


def looping_link():
    """The path of a symbolic link to itself."""
    path = pathlib.Path(tempfile.mkdtemp()) / "link"
    path.symlink_to(path)
    return path


# fmt: off
ROWS = [
    # control flow, Quabla's dialect
    ("cond", lambda: qb.cond(X, jnp.sin, jnp.cos, X), "ValueError", "cond predicate must be scalar, got shape [3]"),
    ("cond", lambda: qb.cond(NAN * jnp.ones(()), jnp.sin, jnp.cos, X), "ValueError", "conditional predicate must be finite, got nan"),
    ("cond", lambda: traced(lambda x: qb.cond(x, jnp.sin, jnp.cos, x)), "ValueError", "tensor_cond predicate must be scalar, got shape [3]"),
    ("cond", lambda: traced(lambda x: qb.cond(x[0], jnp.sin, lambda y: y[0], x)), "ValueError", "conditional branch output shapes differ: [3] versus [];"),
    ("cond", lambda: traced(lambda x: qb.cond(x[0], jnp.sin, lambda y: y.astype("float32"), x)), "ValueError", "conditional branch output dtypes differ: f64 versus f32; a"),
    ("cond", lambda: traced(lambda x: qb.cond(x[0], lambda y: x, jnp.cos, x)), "TracerError", "closes over the variable 'x'"),
    ("cond", lambda: traced(lambda x: qb.cond(x[0], 3, jnp.cos, x)), "TypeError", "true_fun must be callable: 'int' object is not callable"),
    ("cond", lambda: qb.cond(True, 3, jnp.cos, X), "TypeError", "true_fun must be callable: 'int' object is not callable"),
    ("cond", lambda: traced(lambda x: qb.cond(x[0] > 0, lambda y: y > 0, lambda y: y > 1, x)), "ValueError", "conditional branches must return a floating dtype, got bool;"),
    ("cond", lambda: traced(lambda x: qb.cond(x[0] > 0, lambda y: None, jnp.sin, x)), "TypeError", "cannot convert NoneType to a quabla Tensor"),
    ("cond", lambda: traced(lambda x: qb.cond(x[0] > 0, jnp.sin, jnp.cos, Opaque())), "TypeError", "cannot convert Opaque to a quabla Tensor"),
    ("cond", lambda: qb.cond(leaked(), jnp.sin, jnp.cos, X), "UnexpectedTracerError", "Encountered an unexpected tracer. A function transformed by JAX"),
    ('switch', lambda: qb.switch(1.5, [jnp.sin, jnp.cos], (X,)), 'TypeError', 'switch index must be an int or a single-element integer array,'),
    ("switch", lambda: qb.switch(0, [], (X,)), "ValueError", "switch needs at least one branch, got none"),
    ('switch', lambda: qb.switch(0, jnp.sin, (X,)), 'TypeError', 'switch branches must be a tuple or list of functions, got'),
    ("switch", lambda: qb.switch(0, [jnp.sin, 3], (X,)), "TypeError", "switch branch 1 must be callable, got int"),
    ('switch', lambda: qb.switch(N, [jnp.sin, jnp.cos], (X,)), 'ValueError', 'switch index must have a single element, got shape [3]'),
    ('switch', lambda: qb.switch('1', [jnp.sin, jnp.cos], (X,)), 'TypeError', 'switch index must be an int or a single-element integer array,'),
    ("switch", lambda: qb.switch(0, [jnp.sin, jnp.cos], X), "TypeError", "switch operands must be a tuple or list, got ArrayImpl"),
    ('switch', lambda: traced(lambda x: qb.switch(x[0], [jnp.sin, jnp.cos], (x,))), 'TypeError', 'switch index must have an integer dtype, got f64; convert it'),
    ("switch", lambda: traced(lambda n: qb.switch(n[0], [lambda: 1.0, lambda: None]), N), "TypeError", "switch branches return arrays, ints and None, got a leaf of"),
    ("fori_loop", lambda: qb.fori_loop(0, 2.5, add, 0.0), "TypeError", "upper must be a static integer, got 2.5: 'float' object cannot"),
    ("fori_loop", lambda: qb.fori_loop(0, NAN, add, 0.0), "TypeError", "upper must be a static integer, got nan: 'float' object cannot"),
    ("fori_loop", lambda: qb.fori_loop(-1, 3, add, 0.0), "ValueError", "lower must be non-negative, got -1"),
    ("fori_loop", lambda: qb.fori_loop(3, 1, add, 0.0), "ValueError", "fori_loop requires upper >= lower, got lower=3 and upper=1"),
    ("fori_loop", lambda: qb.fori_loop(0, True, add, 0.0), "TypeError", "upper must be a static integer, got True"),
    ("fori_loop", lambda: qb.fori_loop(0, jnp.asarray(3), add, 0.0), "TypeError", "upper: 'Tensor' object cannot be interpreted as an integer;"),
    ("fori_loop", lambda: traced(lambda n: qb.fori_loop(0, n[0], add, 0.0), N), "TracerError", "an integer index needs a concrete value, but upper is a"),
    ("fori_loop", lambda: qb.fori_loop(0, 3, add, (1.0, 2.0)), "TypeError", "control-flow carry must be a single array, not a pytree; pack"),
    ("fori_loop", lambda: qb.fori_loop(0, 3, add, {"a": 1.0}), "TypeError", "control-flow carry must be a single array, not a pytree; pack"),
    ("fori_loop", lambda: qb.fori_loop(0, 3, add, Opaque()), "TypeError", "cannot convert Opaque to a quabla Tensor"),
    ("fori_loop", lambda: qb.fori_loop(0, 3, add, generator()), "TypeError", "cannot convert generator to a quabla Tensor"),
    ("fori_loop", lambda: qb.fori_loop(0, 3, add, "text"), "TypeError", "cannot convert str to a quabla Tensor"),
    ("fori_loop", lambda: qb.fori_loop(0, 3, add, None), "TypeError", "cannot convert NoneType to a quabla Tensor"),
    ("fori_loop", lambda: qb.fori_loop(0, 3, 7, 0.0), "TypeError", "body_fun must be callable: 'int' object is not callable"),
    ("fori_loop", lambda: traced(lambda x: qb.fori_loop(0, 3, 7, x)), "TypeError", "body_fun must be callable: 'int' object is not callable"),
    ("fori_loop", lambda: traced(lambda x: qb.fori_loop(0, 3, lambda i, c: c + x, x)), "TracerError", "closes over the variable 'x'"),
    ("fori_loop", lambda: traced(lambda x: qb.fori_loop(0, 3, lambda i, c: c[:2], x)), "ValueError", "control-flow body must preserve the carry shape and dtype: the"),
    ("fori_loop", lambda: traced(lambda x: qb.fori_loop(0, 3, lambda i, c: (c, c), x)), "TypeError", "control-flow carry must be a single array, not a pytree; the"),
    ("fori_loop", lambda: traced(lambda x: qb.fori_loop(0, 3, lambda i, c: None, x)), "TypeError", "cannot convert NoneType to a quabla Tensor"),
    ("fori_loop", lambda: traced(lambda x: qb.fori_loop(0, 3, add, x > 0)), "ValueError", "fori loop input carry has dtype bool; loop regions accept only"),
    ("fori_loop", lambda: traced(lambda x: qb.fori_loop(0, 3, lambda i: i, x)), "TypeError", "<lambda>.<locals>.<lambda>.<locals>.<lambda>() takes 1"),
    ("fori_loop", lambda: traced(lambda x: qb.fori_loop(0, 3, add, x, checkpoint="half")), "ValueError", 'checkpoint= takes "auto", "full", "sqrt", a number of stored'),
    ("fori_loop", lambda: traced(lambda x: qb.fori_loop(0, 3, add, x, checkpoint=-2)), "ValueError", "checkpoint=-2: a number of stored carries must be at least 1"),
    ("fori_loop", lambda: traced(lambda x: qb.fori_loop(0, 3, add, x, checkpoint=0)), "ValueError", "checkpoint=0: a number of stored carries must be at least 1"),
    ("fori_loop", lambda: traced(lambda x: qb.fori_loop(0, 3, add, x, checkpoint=2.5)), "TypeError", 'checkpoint= takes "auto", "full", "sqrt", a number of stored'),
    ('fori_loop', lambda: traced(lambda x: qb.fori_loop(0, 3, add, x, operands=3)), 'TypeError', 'operands must be a tuple or list of arrays, got int; write (x,)'),
    ("fori_loop", lambda: qb.fori_loop(0, 3, add, KEY), "TypeError", "cannot convert Key to a quabla Tensor"),
    ("fori_loop", lambda: qb.fori_loop(0, 3, add, leaked()), "UnexpectedTracerError", "Encountered an unexpected tracer. A function transformed by JAX"),
    ("fori_loop", lambda: traced(lambda x: qb.fori_loop(0, 10**30, add, x)), "OverflowError", "upper must be less than 2**63, got"),
    ("fori_loop", lambda: qb.grad(lambda x: qb.fori_loop(0, 10**6, lambda i, c: qb.sin(c) * c, x, checkpoint=qb.Budget(1)).sum())(X), "ValueError", "checkpoint=Budget(1 bytes): no plan for this loop of 1000000"),
    ("scan", lambda: qb.scan(lambda c, i: (c, c), 0.0, length=0), "ValueError", "scan length must be positive, got 0"),
    ("scan", lambda: qb.scan(lambda c, i: (c, c), 0.0, length=-3), "ValueError", "length must be non-negative, got -3"),
    ("scan", lambda: qb.scan(lambda c, i: (c, c), 0.0, length=2.0), "TypeError", "length must be a static integer, got 2.0: 'float' object cannot"),
    ("scan", lambda: qb.scan(lambda c, i: c, 0.0, length=3), "TypeError", "scan body must return a (carry, output) tuple, got a ArrayImpl"),
    ("scan", lambda: qb.scan(lambda c, i: (c, c, c), 0.0, length=3), "TypeError", "scan body must return a (carry, output) tuple, got a tuple of 3"),
    ("scan", lambda: traced(lambda x: qb.scan(lambda c, i: (c, (c, c)), x, length=3)[1]), "TypeError", "control-flow carry must be a single array, not a pytree; the"),
    ("scan", lambda: traced(lambda x: qb.scan(lambda c, i: (c, c > 0), x, length=3)[1]), "ValueError", "scan outputs must have a floating dtype, got bool; convert bool"),
    ("scan", lambda: traced(lambda x: qb.scan(lambda c, i: (c, c + x), x, length=3)[1]), "TracerError", "closes over the variable 'x'"),
    ("scan", lambda: traced(lambda x: qb.scan(lambda c, i: (c.sum(), c), x, length=3)[1]), "ValueError", "control-flow body must preserve the carry shape and dtype: the"),
    ("scan", lambda: qb.scan(3, 0.0, length=3), "TypeError", "f must be callable: 'int' object is not callable"),
    ("scan", lambda: qb.scan(lambda c, i: (c, c), [1.0, 2.0], length=3), "TypeError", "control-flow carry must be a single array, not a pytree; pack"),
    ("scan", lambda: qb.scan(lambda c, i: (c, c), 0.0, length=3, checkpoint="none"), "ValueError", 'checkpoint= takes "auto", "full", "sqrt", a number of stored'),
    ("while_loop", lambda: qb.while_loop(lambda c: X > 0, lambda c: c, X), "TypeError", "while_loop cond_fun must return a scalar bool, got shape [3]"),
    ("while_loop", lambda: qb.while_loop(3, lambda c: c, X), "TypeError", "while_loop requires callable cond_fun and body_fun, got int and"),
    ("while_loop", lambda: qb.while_loop(lambda c: c < 3, 3, 0.0), "TypeError", "while_loop requires callable cond_fun and body_fun, got"),
    ("while_loop", lambda: traced(lambda x: qb.while_loop(lambda c: c > 0, lambda c: c, x)), "TypeError", "while_loop cond_fun must return a scalar bool, got shape [3]"),
    ("while_loop", lambda: traced(lambda x: qb.while_loop(lambda c: c[0] < 3, lambda c: c[:1], x)), "ValueError", "control-flow body must preserve the carry shape and dtype: the"),
    ("while_loop", lambda: traced(lambda x: qb.while_loop(lambda c: c[0] < x[0], lambda c: c + 1.0, x)), "TracerError", "closes over the variable 'x'"),
    ("while_loop", lambda: traced(lambda x: qb.while_loop(lambda c: None, lambda c: c + 1.0, x)), "TypeError", "cannot convert NoneType to a quabla Tensor"),
    ("while_loop", lambda: traced(lambda x: qb.while_loop(lambda c: c[0] < 3, lambda c: c + 1.0, x, checkpoint=0)), "ValueError", "checkpoint: expected at least one slot, got 0"),
    ("while_loop", lambda: qb.grad(lambda x: qb.while_loop(lambda c: c < 3.0, lambda c: c * 2.0, x))(1.0), "ValueError", "reverse-mode differentiation through while_loop is not"),
    ("while_loop", lambda: qb.while_loop(lambda c: c[0] < 3, lambda c: c, (0.0, 1.0)), "TypeError", "control-flow carry must be a single array, not a pytree; pack"),
    # plans and budgets
    ("plan_loop", lambda: qb.plan_loop(-1, 8), "ValueError", "plan_loop: expected a length of at least 1 and sizes of at"),
    ("plan_loop", lambda: qb.plan_loop(100, -8), "ValueError", "plan_loop: expected a length of at least 1 and sizes of at"),
    ("plan_loop", lambda: qb.plan_loop(NAN, 8), "TypeError", "plan_loop: length must be an int, got nan"),
    ("plan_loop", lambda: qb.plan_loop(100, NAN), "TypeError", "plan_loop: carry_bytes must be an int, got nan"),
    ("plan_loop", lambda: qb.plan_loop("100", 8), "TypeError", "plan_loop: length must be an int, got '100'"),
    ("plan_loop", lambda: qb.plan_loop(100, 8, -1), "ValueError", "plan_loop: expected a length of at least 1 and sizes of at"),
    ("plan_loop", lambda: qb.plan_loop(100, 8, checkpoint="quarter"), "ValueError", 'checkpoint= takes "auto", "full", "sqrt", a number of stored'),
    ("plan_loop", lambda: qb.plan_loop(100, 8, checkpoint=-1), "ValueError", "checkpoint=-1: a number of stored carries must be at least 1"),
    ("plan_loop", lambda: qb.plan_loop(10**6, 8, checkpoint=qb.Budget(1)), "ValueError", "checkpoint=Budget(1 bytes): no plan for this loop of 1000000"),
    ("Budget", budget_of("lots"), "ValueError", "Budget('lots'): expected a number of bytes or a text such as"),
    ("Budget", budget_of("-3MB"), "ValueError", "Budget('-3MB'): expected a number of bytes or a text such as"),
    ("Budget", budget_of(0), "ValueError", "Budget(0): expected a positive number of bytes"),
    ("Budget", budget_of(NAN), "ValueError", "Budget(nan): expected a positive number of bytes"),
    ("Budget", budget_of(float("inf")), "ValueError", "Budget(inf): expected a positive number of bytes"),
    ("Budget", budget_of(None), "ValueError", "Budget(None): expected a positive number of bytes"),
    ("Budget", budget_of("12 parsecs"), "ValueError", "Budget('12 parsecs'): expected a number of bytes or a text such"),
    ("checkpointing", lambda: qb.checkpointing("half").__enter__(), "ValueError", 'checkpoint= takes "auto", "full", "sqrt", a number of stored'),
    ("checkpointing", lambda: qb.checkpointing(-1).__enter__(), "ValueError", "checkpoint=-1: a number of stored carries must be at least 1"),
    ("checkpointing", lambda: qb.checkpointing(1.5).__enter__(), "TypeError", 'checkpoint= takes "auto", "full", "sqrt", a number of stored'),
    # transforms
    ("jit", lambda: qb.jit(3), "TypeError", "expected a callable, got int"),
    ("jit", lambda: qb.jit(jnp.sin, device="abacus"), "ValueError", "device must be None, 'cpu', 'cuda', 'cuda:N', or 'mlx' (or"),
    ("jit", lambda: qb.jit(jnp.sin, device="cuda:99")(X), "UnsupportedOperationError", "device must be None, 'cpu', 'cuda', 'cuda:N', or 'mlx' where"),
    ("jit", lambda: qb.jit(jnp.sin, device="cuda:x"), "ValueError", "device must be None, 'cpu', 'cuda', 'cuda:N', or 'mlx' (or"),
    ("jit", lambda: qb.jit(jnp.sin, device=3), "ValueError", "device must be None, 'cpu', 'cuda', 'cuda:N', or 'mlx' (or"),
    ("jit", lambda: qb.jit(jnp.sin, max_traces=0), "ValueError", "max_traces must be a positive int, got 0"),
    ("jit", lambda: qb.jit(jnp.sin, max_traces="many"), "ValueError", "max_traces must be a positive int, got 'many'"),
    ("jit", lambda: qb.jit(jnp.sin, precision="exact"), "ValueError", "precision must be None or \"float64\", got 'exact'"),
    ('jit', lambda: qb.jit(jnp.sin, static_argnums=(5,))(X), 'ValueError', 'static_argnums=(5,) is out of range for a call with 1'),
    ("jit", lambda: qb.jit(jnp.sin, static_argnums="x"), "TypeError", "static_argnums must be an int or a tuple of ints, got 'x'"),
    ("jit", lambda: qb.jit(jnp.sin, static_argnames=3), "TypeError", "static_argnames must be a str or a tuple of str, got 3"),
    ("jit", lambda: qb.jit(lambda x, n: x, static_argnums=1)(X, [1]), "TypeError", "static argument 1 must be hashable, got list"),
    ("jit", lambda: qb.jit(jnp.sin)("text"), "TypeError", "unsupported argument leaf of type str: transformed functions"),
    ("jit", lambda: qb.jit(jnp.sin)(Opaque()), "TypeError", "unsupported argument leaf of type Opaque: transformed functions"),
    ("jit", lambda: qb.jit(jnp.sin)(leaked()), "TracerError", "a TraceTensor of another trace was combined with this trace: it"),
    ("jit", lambda: traced(lambda x: x if x[0] > 0 else -x), "TracerError", "TraceTensor cannot drive Python control flow; use"),
    ("jit", lambda: traced(lambda x: float(x[0])), "TracerError", "float() needs a concrete value, but a TraceTensor is symbolic"),
    ("jit", lambda: traced(lambda x: np.asarray(x)), "TracerError", "numpy() needs a concrete value, but a TraceTensor is symbolic"),
    ("grad", lambda: qb.grad(3), "TypeError", "expected a callable, got int"),
    ("grad", lambda: qb.grad(jnp.sin)(X), "ValueError", "grad requires a scalar output, got shape [3]; use jacobian or"),
    ("grad", lambda: qb.grad(jnp.sin, argnums=2)(1.0), "ValueError", "argnums=2 is out of range for a call with 1 positional arguments"),
    ("grad", lambda: qb.grad(jnp.sin, argnums=1.5)(1.0), "TypeError", "argnums must be an int or a tuple of ints, got 1.5"),
    ("grad", lambda: qb.grad(jnp.sin, argnums=())(1.0), "ValueError", "grad requires the value to be computed from the arguments, got"),
    ("grad", lambda: qb.grad(lambda x: x.sum())(N), "ValueError", "cannot differentiate a int64 output; convert it explicitly with"),
    ("grad", lambda: qb.grad(lambda x: x, has_aux=True)(1.0), "TypeError", "grad with has_aux=True requires fun to return a (value, aux)"),
    ("grad", lambda: qb.grad(lambda x: "text")(1.0), "ValueError", "grad requires the value to be computed from the arguments, got a constant str"),
    ("value_and_grad", lambda: qb.value_and_grad(lambda x: (x,))(1.0), "TypeError", "value_and_grad requires fun to return a single scalar array as its value,"),
    ("grad", lambda: qb.grad(lambda k: qb.random.normal(k, ()))(KEY), "TypeError", "a quabla.random key cannot be a traced argument: keys are host"),
    ("value_and_grad", lambda: qb.value_and_grad(3), "TypeError", "expected a callable, got int"),
    ("value_and_grad", lambda: qb.value_and_grad(jnp.sin)(X), "ValueError", "grad requires a scalar output, got shape [3]; use jacobian or"),
    ("vjp", lambda: qb.vjp(3, X), "TypeError", "expected a callable, got int"),
    ("vjp", lambda: quiet_vjp(jnp.sin, X)(jnp.ones(4)), "TypeError", "a vjp cotangent must have shape [3] and dtype quabla.float64 to"),
    ("vjp", lambda: quiet_vjp(jnp.sin, X)("text"), "TypeError", "unsupported argument leaf of type str: transformed functions"),
    ('jvp', lambda: qb.jvp(jnp.sin, (X,), (jnp.ones(4),)), 'TypeError', 'a jvp tangent must have shape [3] and dtype quabla.float64 to'),
    ("jvp", lambda: qb.jvp(jnp.sin, (X,), ()), "ValueError", "jvp got 1 primals and 0 tangents; they must match"),
    ("jvp", lambda: qb.jvp(jnp.sin, X, X), "TypeError", "jvp takes primals and tangents as tuples or lists"),
    ("jvp", lambda: qb.jvp(3, (X,), (X,)), "TypeError", "expected a callable, got int"),
    ("jacobian", lambda: qb.jacobian(3), "TypeError", "expected a callable, got int"),
    ("jacobian", lambda: qb.jacobian(jnp.sin, argnums=4)(X), "ValueError", "argnums=4 is out of range for a call with 1 positional arguments"),
    ("hessian", lambda: qb.hessian(jnp.sin)(X), "ValueError", "grad requires a scalar output, got shape [3]; use jacobian or"),
    ("hessian", lambda: qb.hessian(None)(X), "TypeError", "expected a callable, got NoneType"),
    ("vmap", lambda: qb.vmap(3), "TypeError", "expected a callable, got int"),
    ("vmap", lambda: qb.vmap(jnp.add)(jnp.ones(3), jnp.ones(4)), "ValueError", "vmap got inconsistent sizes for the mapped axes: 'arg1' has 4"),
    ("vmap", lambda: qb.vmap(jnp.sin)(1.0), "ValueError", "vmap cannot map the static argument leaf 'x' (1.0) along axis"),
    ("vmap", lambda: qb.vmap(jnp.sin, in_axes=3)(X), "ValueError", "vmap in_axes 3 is out of range for the argument leaf 'x' of"),
    ('vmap', lambda: qb.vmap(jnp.sin, in_axes=(0, 0))(X), 'ValueError', 'vmap in_axes (0, 0) does not match the structure (*,) of the'),
    ("vmap", lambda: qb.vmap(jnp.sin, in_axes=None)(X), "ValueError", "vmap needs at least one mapped array argument, but in_axes maps"),
    ("vmap", lambda: qb.vmap(jnp.sin, in_axes="x")(X), "TypeError", "vmap in_axes must be an int, None, or a pytree of them, got 'x'"),
    ("vmap", lambda: qb.vmap(jnp.sin, out_axes=5)(X), "ValueError", "vmap out_axes 5 is out of range for an output of rank 1 (batch"),
    ("vmap", lambda: qb.vmap(jnp.sin, in_axes=0.5)(X), "TypeError", "vmap in_axes must be an int, None, or a pytree of them, got 0.5"),
    ("custom_vjp", lambda: qb.custom_vjp(3), "TypeError", "custom_vjp expects a callable, got int"),
    ("custom_vjp", lambda: qb.grad(no_rule)(1.0), "AttributeError", "no VJP is defined for custom_vjp function no_rule; call defvjp"),
    ("custom_vjp", lambda: no_rule.defvjp(3, 4), "TypeError", "defvjp expects callable fwd and bwd, got int and int"),
    ("custom_vjp", lambda: qb.grad(vjp_of_wrong_count())(1.0), "TypeError", "the bwd of custom_vjp(f) must return a tuple with one cotangent"),
    ("custom_jvp", lambda: qb.custom_jvp(3), "TypeError", "custom_jvp expects a callable, got int"),
    ('custom_jvp', lambda: qb.jvp(no_jvp_rule, (1.0,), (1.0,)), 'AttributeError', 'no JVP is defined for custom_jvp function no_jvp_rule; call'),
    ("custom_jvp", lambda: no_jvp_rule.defjvp(3), "TypeError", "defjvp expects a callable rule, got int"),
    ("checkpoint", lambda: qb.checkpoint(3), "TypeError", "checkpoint expects a callable, got int"),
    ("checkpoint", lambda: qb.checkpoint(lambda x: x, static_argnums="a")(X), "TypeError", "static_argnums must be an int or a tuple of ints, got 'a'"),
    ("remat", lambda: qb.remat(None), "TypeError", "checkpoint expects a callable, got NoneType"),
    ("stop_gradient", lambda: qb.stop_gradient(Opaque()), "TypeError", "cannot convert Opaque to a quabla Tensor"),
    # solvers
    ("newton", lambda: qb.newton(3, 1.0), "TypeError", "newton requires a callable f(x, *args)"),
    ("newton", lambda: qb.newton(lambda x: x, "text"), "TypeError", "cannot convert str to a quabla Tensor"),
    ("newton", lambda: qb.newton(lambda x: x[:2], X), "ValueError", "newton requires f(x, *args) to return an array of x's shape"),
    ("newton", lambda: qb.newton(lambda x: x, X, tol=-1.0), "ValueError", "tol must be a non-negative number, got -1.0"),
    ("newton", lambda: qb.newton(lambda x: x, X, maxiter=0), "ValueError", "maxiter must be a positive integer, got 0"),
    ("newton", lambda: qb.newton(lambda x: x, X, args=3), "TypeError", "args must be a tuple, got int"),
    ("newton", lambda: qb.newton(lambda x: x, X, tol=NAN), "ValueError", "tol must be a non-negative number, got nan"),
    ("ode.odeint", lambda: qb.ode.odeint(3, X, (0.0, 1.0), steps=3), "TypeError", "odeint requires a callable f(y, t, *args)"),
    ('ode.odeint', lambda: qb.ode.odeint(lambda y, t: y, X, (0.0,), steps=3), 'TypeError', 't_span must be a pair (t0, t1)'),
    ("ode.odeint", lambda: qb.ode.odeint(lambda y, t: y, X, (0.0, 1.0), steps=0), "ValueError", "steps must be a positive integer"),
    ("ode.odeint", lambda: qb.ode.odeint(lambda y, t: y, X, (0.0, 1.0), steps=3, method="magic"), "ValueError", "method must be one of ['dopri5', 'euler', 'heun', 'rk4',"),
    ("ode.odeint", lambda: qb.ode.odeint(lambda y, t: y[:2], X, (0.0, 1.0), steps=3), "ValueError", "odeint requires f(y, t, *args) to return the state's shape [3],"),
    ("ode.odeint", lambda: qb.ode.odeint(lambda y, t: y, X, (0.0, 1.0), method="dopri5", rtol=-1.0), "ValueError", "rtol and atol must be non-negative and not both zero"),
    ("ode.odeint", lambda: qb.ode.odeint(lambda y, t: y, X, (0.0, 1.0), method="dopri5", max_steps=0), "ValueError", "max_steps must be a positive integer"),
    ("ode.odeint", lambda: qb.ode.odeint(lambda y, t: y, X, (0.0, 1.0), method="dopri5", saveat=[1.0, 0.5]), "ValueError", "saveat must be ordered in the direction of integration from t0"),
    # files
    ("save", lambda: qb.save(MISSING, X), "FileNotFoundError", "there is no folder"),
    ("save", lambda: qb.save(FOLDER, X), "IsADirectoryError", "cannot write a file to "),
    ("save", lambda: qb.save(io.BytesIO(), {1, 2}), "TypeError", "quabla.save cannot save a set: leaves must be float64, float32"),
    ("save", lambda: qb.save(io.BytesIO(), N), "TypeError", "quabla.save cannot save a ArrayImpl of dtype int64: leaves must"),
    ("save", lambda: qb.save(io.BytesIO(), KEY), "TypeError", "quabla.save cannot save a Key: leaves must be float64, float32"),
    ("save", lambda: qb.save(io.BytesIO(), {(1, 2): X}), "TypeError", "quabla.save supports dict keys of type str or int, got (1, 2)"),
    ("save", lambda: qb.save(3.5, X), "TypeError", "quabla.save: file must be a path (str, bytes or os.PathLike) or a binary file object with a write method"),
    ("save", lambda: qb.save({"w": X}, FOLDER / "file"), "TypeError", "(the file comes first: save(file, tree)), got a dict; give a file's name"),
    ("save", lambda: qb.save(None, X), "TypeError", "(the file comes first: save(file, tree)), got NoneType; give a file's name"),
    ("save", lambda: qb.save(io.BytesIO, X), "TypeError", "(the file comes first: save(file, tree)), got type; give a file's name"),
    ("save", lambda: qb.save("a\0b", X), "ValueError", "quabla.save: file must be a path without null bytes, got 'a\\x00b'; remove the null byte"),
    ("save", lambda: qb.save(b"a\0b", X), "ValueError", "quabla.save: file must be a path without null bytes, got"),
    ("save", lambda: qb.save("", X), "ValueError", "quabla.save: file must name a file, got an empty path"),
    ("save", lambda: qb.save("\ud800", X), "ValueError", "quabla.save: file must be a path in the file system's encoding (utf-8), got"),
    ("save", lambda: qb.save(io.StringIO(), X), "TypeError", "quabla.save: file must be a binary file object, got a StringIO of text; open it with 'wb'"),
    ("save", lambda: qb.save(looping_link(), X), "OSError", "quabla.save: Too many levels of symbolic links"),
    ("save", lambda: qb.save(FOLDER / ("x" * 300), X), "OSError", "quabla.save: File name too long"),
    ("save", lambda: traced(lambda x: qb.save(io.BytesIO(), x)), "TypeError", "quabla.save cannot save a traced value; call it outside a"),
    ("save", lambda: qb.save(io.BytesIO(), recursive()), "ValueError", "quabla.save cannot save a tree nested more than 200 deep (load"),
    ("load", lambda: qb.load(MISSING), "FileNotFoundError", "[Errno 2] quabla.load: No such file or directory: "),
    ("load", lambda: qb.load(FOLDER), "IsADirectoryError", "[Errno 21] quabla.load: Is a directory: "),
    ("load", lambda: qb.load(3.5), "TypeError", "quabla.load: file must be a path (str, bytes or os.PathLike) or a binary file object with a read method, got a float; give a file's name"),
    ("load", lambda: qb.load(None), "TypeError", "quabla.load: file must be a path (str, bytes or os.PathLike) or a binary file object with a read method, got NoneType; give a file's name"),
    ("load", lambda: qb.load(io.BytesIO), "TypeError", "with a read method, got type; give a file's name"),
    ("load", lambda: qb.load("a\0b"), "ValueError", "quabla.load: file must be a path without null bytes, got 'a\\x00b'; remove the null byte"),
    ("load", lambda: qb.load(""), "ValueError", "quabla.load: file must name a file, got an empty path; give a file's name"),
    ("load", lambda: qb.load("\ud800"), "ValueError", "quabla.load: file must be a path in the file system's encoding (utf-8), got"),
    ("load", lambda: qb.load(looping_link()), "OSError", "quabla.load: Too many levels of symbolic links"),
    ("load", lambda: qb.load(io.BytesIO(b"PK\x03\x04")), "ValueError", "not a quabla save file (bad magic bytes)"),
    ("load", lambda: qb.load(io.StringIO("text")), "TypeError", "quabla.load: file must be a binary file object, got a StringIO of text; open it with 'rb'"),
    # random keys
    ("random.key", lambda: qb.random.key(1.5), "TypeError", "'float' object cannot be interpreted as an integer"),
    ("random.key", lambda: qb.random.key("seed"), "TypeError", "'str' object cannot be interpreted as an integer"),
    ("random.Key", lambda: qb.random.Key("x"), "TypeError", "'str' object cannot be interpreted as an integer"),
    ("random.split", lambda: qb.random.split(X), "TypeError", "key must be a quabla.random.Key (from quabla.random.key(seed)),"),
    ("random.split", lambda: qb.random.split(KEY, 0), "ValueError", "split requires num >= 1, got 0"),
    ("random.split", lambda: qb.random.split(KEY, 2.5), "TypeError", "'float' object cannot be interpreted as an integer"),
    ("random.fold_in", lambda: qb.random.fold_in(KEY, 1.5), "TypeError", "'float' object cannot be interpreted as an integer"),
    ("random.fold_in", lambda: qb.random.fold_in(3.5, 1), "TypeError", "key must be a quabla.random.Key (from quabla.random.key(seed)),"),
    ('random.uniform', lambda: qb.random.uniform(3, (2,)), 'TypeError', 'key must be a quabla.random.Key (from quabla.random.key(seed)),'),
    ('random.uniform', lambda: qb.random.uniform(KEY, (-2,)), 'OverflowError', 'tensor extents must be positive, got [-2]'),
    ('random.uniform', lambda: qb.random.uniform(KEY, (2,), minval=1.0, maxval=0.0), 'ValueError', 'random_uniform requires finite minval < maxval, got [1, 0)'),
    ("random.normal", lambda: qb.random.normal(KEY, "x"), "TypeError", "'str' object cannot be interpreted as an integer"),
    ('random.normal', lambda: qb.random.normal(KEY, (2,), dtype='int32'), 'TypeError', "normal requires dtype float32 or float64, got 'int32'"),
    ('random.normal', lambda: qb.random.normal(KEY, (2.5,)), 'TypeError', "'float' object cannot be interpreted as an integer"),
    ("random.bernoulli", lambda: qb.random.bernoulli(KEY, 1.5), "ValueError", "bernoulli requires 0 <= p <= 1, got 1.5"),
    ("random.bernoulli", lambda: qb.random.bernoulli(KEY, NAN), "ValueError", "bernoulli requires 0 <= p <= 1, got nan"),
    ('random.glorot_normal', lambda: qb.random.glorot_normal(KEY, (3,)), 'ValueError', 'glorot_normal requires a weight shape of rank >= 2, got [3]'),
    ("random.glorot_uniform", lambda: qb.random.glorot_uniform(KEY, ()), "ValueError", "glorot_uniform requires a weight shape of rank >= 2, got []"),
    ('random.he_normal', lambda: qb.random.he_normal(KEY, (3,), 'bool'), 'ValueError', 'he_normal requires a weight shape of rank >= 2, got [3]'),
    ("random.normal", lambda: KEY + 1.0, "TypeError", "unsupported operand type(s) for +: 'Key' and 'float'"),
    ("random.normal", lambda: jnp.sin(KEY), "TypeError", "The problematic value is of type <class 'quabla_jax.random.Key'>"),
    # containers in themselves: jaxlib would leave the thread without stack, or end the process
    ("jit", lambda: qb.jit(total)(in_itself()), "ValueError", "jit(total): expected a pytree of finite depth, got a list that holds itself; pass a copy"),
    ("jit", lambda: qb.jit(total)(in_itself(dict)), "ValueError", "jit(total): expected a pytree of finite depth, got a dict that holds itself; pass a copy"),
    ("grad", lambda: qb.grad(total)(in_itself()), "ValueError", "grad(total): expected a pytree of finite depth, got a list that holds itself; pass a copy"),
    ("grad", lambda: qb.grad(total)(in_itself(dict)), "ValueError", "grad(total): expected a pytree of finite depth, got a dict that holds itself; pass a copy"),
    ("value_and_grad", lambda: qb.value_and_grad(total)(in_itself()), "ValueError", "value_and_grad(total): expected a pytree of finite depth, got a list that holds itself; pass a copy"),
    ("value_and_grad", lambda: qb.value_and_grad(total)(in_itself(dict)), "ValueError", "value_and_grad(total): expected a pytree of finite depth, got a dict that holds itself; pass a copy"),
    ("vmap", lambda: qb.vmap(total)(in_itself()), "ValueError", "vmap(total): expected a pytree of finite depth, got a list that holds itself; pass a copy"),
    ("vmap", lambda: qb.vmap(total)(in_itself(dict)), "ValueError", "vmap(total): expected a pytree of finite depth, got a dict that holds itself; pass a copy"),
    ("jacobian", lambda: qb.jacobian(total)(in_itself()), "ValueError", "jacobian(total): expected a pytree of finite depth, got a list that holds itself; pass a copy"),
    ("jacobian", lambda: qb.jacobian(total)(in_itself(dict)), "ValueError", "jacobian(total): expected a pytree of finite depth, got a dict that holds itself; pass a copy"),
    ("hessian", lambda: qb.hessian(total)(in_itself()), "ValueError", "hessian(grad(total)): expected a pytree of finite depth, got a list that holds itself; pass a copy"),
    ("hessian", lambda: qb.hessian(total)(in_itself(dict)), "ValueError", "hessian(grad(total)): expected a pytree of finite depth, got a dict that holds itself; pass a copy"),
    ("checkpoint", lambda: qb.checkpoint(total)(in_itself()), "ValueError", "checkpoint(total): expected a pytree of finite depth, got a list that holds itself; pass a copy"),
    ("checkpoint", lambda: qb.checkpoint(total)(in_itself(dict)), "ValueError", "checkpoint(total): expected a pytree of finite depth, got a dict that holds itself; pass a copy"),
    ("vjp", lambda: qb.vjp(total, in_itself()), "ValueError", "vjp: expected a pytree of finite depth, got a list that holds itself; pass a copy"),
    ("vjp", lambda: qb.vjp(total, in_itself(dict)), "ValueError", "vjp: expected a pytree of finite depth, got a dict that holds itself; pass a copy"),
    ("jvp", lambda: qb.jvp(total, (in_itself(),), (in_itself(),)), "ValueError", "jvp: expected a pytree of finite depth, got a list that holds itself; pass a copy"),
    ("jvp", lambda: qb.jvp(total, (in_itself(dict),), (in_itself(dict),)), "ValueError", "jvp: expected a pytree of finite depth, got a dict that holds itself; pass a copy"),
    ("memory_report", lambda: qb.memory_report(total, in_itself()), "ValueError", "memory_report: expected a pytree of finite depth, got a list that holds itself; pass a copy"),
    ("memory_report", lambda: qb.memory_report(total, in_itself(dict)), "ValueError", "memory_report: expected a pytree of finite depth, got a dict that holds itself; pass a copy"),
    ("draw", lambda: qb.draw(total, in_itself()), "ValueError", "draw: expected a pytree of finite depth, got a list that holds itself; pass a copy"),
    ("draw", lambda: qb.draw(total, in_itself(dict)), "ValueError", "draw: expected a pytree of finite depth, got a dict that holds itself; pass a copy"),
    ("compat.lax.cond", lambda: lax.cond(True, total, total, in_itself()), "ValueError", "cond: expected a pytree of finite depth, got a list that holds itself; pass a copy"),
    ("compat.lax.cond", lambda: lax.cond(True, total, total, in_itself(dict)), "ValueError", "cond: expected a pytree of finite depth, got a dict that holds itself; pass a copy"),
    ("compat.lax.switch", lambda: lax.switch(0, [total, total], in_itself()), "ValueError", "switch: expected a pytree of finite depth, got a list that holds itself; pass a copy"),
    ("compat.lax.switch", lambda: lax.switch(0, [total, total], in_itself(dict)), "ValueError", "switch: expected a pytree of finite depth, got a dict that holds itself; pass a copy"),
    ("compat.lax.scan", lambda: lax.scan(lambda c, x: (c, x), in_itself(), length=3), "ValueError", "scan: expected a pytree of finite depth, got a list that holds itself; pass a copy"),
    ("compat.lax.scan", lambda: lax.scan(lambda c, x: (c, x), in_itself(dict), length=3), "ValueError", "scan: expected a pytree of finite depth, got a dict that holds itself; pass a copy"),
    ("compat.lax.scan", lambda: lax.scan(lambda c, x: (c, x), X, in_itself()), "ValueError", "scan: expected a pytree of finite depth, got a list that holds itself; pass a copy"),
    ("compat.lax.scan", lambda: lax.scan(lambda c, x: (c, x), X, in_itself(dict)), "ValueError", "scan: expected a pytree of finite depth, got a dict that holds itself; pass a copy"),
    ("compat.lax.fori_loop", lambda: lax.fori_loop(0, 3, lambda i, c: c, in_itself()), "ValueError", "fori_loop: expected a pytree of finite depth, got a list that holds itself; pass a copy"),
    ("compat.lax.fori_loop", lambda: lax.fori_loop(0, 3, lambda i, c: c, in_itself(dict)), "ValueError", "fori_loop: expected a pytree of finite depth, got a dict that holds itself; pass a copy"),
    ("compat.lax.while_loop", lambda: lax.while_loop(lambda c: False, lambda c: c, in_itself()), "ValueError", "while_loop: expected a pytree of finite depth, got a list that holds itself; pass a copy"),
    ("compat.lax.while_loop", lambda: lax.while_loop(lambda c: False, lambda c: c, in_itself(dict)), "ValueError", "while_loop: expected a pytree of finite depth, got a dict that holds itself; pass a copy"),
    ("compat.lax.map", lambda: lax.map(lambda x: x, in_itself()), "ValueError", "map: expected a pytree of finite depth, got a list that holds itself; pass a copy"),
    ("compat.lax.map", lambda: lax.map(lambda x: x, in_itself(dict)), "ValueError", "map: expected a pytree of finite depth, got a dict that holds itself; pass a copy"),
    ("switch", lambda: qb.switch(0, [total], (in_itself(),)), "ValueError", "switch: expected a pytree of finite depth, got a list that holds itself; pass a copy"),
    ("switch", lambda: qb.switch(0, [total], (in_itself(dict),)), "ValueError", "switch: expected a pytree of finite depth, got a dict that holds itself; pass a copy"),
    ("ode.odeint", lambda: qb.ode.odeint(lambda t, y, a: y, X, (0.0, 1.0), args=(in_itself(),)), "ValueError", "odeint: expected a pytree of finite depth, got a list that holds itself; pass a copy"),
    ("ode.odeint", lambda: qb.ode.odeint(lambda t, y, a: y, X, (0.0, 1.0), args=(in_itself(dict),)), "ValueError", "odeint: expected a pytree of finite depth, got a dict that holds itself; pass a copy"),
    ("newton", lambda: qb.newton(lambda x, a: x, X, args=(in_itself(),)), "ValueError", "newton: expected a pytree of finite depth, got a list that holds itself; pass a copy"),
    ("newton", lambda: qb.newton(lambda x, a: x, X, args=(in_itself(dict),)), "ValueError", "newton: expected a pytree of finite depth, got a dict that holds itself; pass a copy"),
    ("torch_bridge.to_torchscript", lambda: module("torch_bridge").to_torchscript(total, in_itself()), "ValueError", "to_torchscript: expected a pytree of finite depth, got a list that holds itself; pass a copy"),
    ("torch_bridge.to_torchscript", lambda: module("torch_bridge").to_torchscript(total, in_itself(dict)), "ValueError", "to_torchscript: expected a pytree of finite depth, got a dict that holds itself; pass a copy"),
    ("torch_bridge.to_exported_program", lambda: module("torch_bridge").to_exported_program(total, in_itself()), "ValueError", "to_exported_program: expected a pytree of finite depth, got a list that holds itself; pass a copy"),
    ("torch_bridge.to_exported_program", lambda: module("torch_bridge").to_exported_program(total, in_itself(dict)), "ValueError", "to_exported_program: expected a pytree of finite depth, got a dict that holds itself; pass a copy"),
    ("compat.torch_ops.cond", lambda: torch_ops.cond(True, total, total, (in_itself(),)), "ValueError", "cond: expected a pytree of finite depth, got a list that holds itself; pass a copy"),
    ("compat.torch_ops.cond", lambda: torch_ops.cond(True, total, total, (in_itself(dict),)), "ValueError", "cond: expected a pytree of finite depth, got a dict that holds itself; pass a copy"),
    ("compat.torch_ops.while_loop", lambda: torch_ops.while_loop(lambda c: False, lambda c: c, (in_itself(),)), "ValueError", "while_loop: expected a pytree of finite depth, got a list that holds itself; pass a copy"),
    ("compat.torch_ops.while_loop", lambda: torch_ops.while_loop(lambda c: False, lambda c: c, (in_itself(dict),)), "ValueError", "while_loop: expected a pytree of finite depth, got a dict that holds itself; pass a copy"),
    ("compat.torch_ops.scan", lambda: torch_ops.scan(lambda c, x: (c, x), in_itself(), X), "ValueError", "scan: expected a pytree of finite depth, got a list that holds itself; pass a copy"),
    ("compat.torch_ops.scan", lambda: torch_ops.scan(lambda c, x: (c, x), in_itself(dict), X), "ValueError", "scan: expected a pytree of finite depth, got a dict that holds itself; pass a copy"),
    ("tree.map", lambda: qb.tree.map(total, in_itself()), "ValueError", "quabla_jax.tree: expected a pytree of finite depth, got a list that holds itself; pass a copy"),
    ("tree.map", lambda: qb.tree.map(total, in_a_tuple_in_itself()), "ValueError", "quabla_jax.tree: expected a pytree of finite depth, got a "),
    ("tree.map", lambda: qb.tree.map(total, too_deep()), "ValueError", "quabla_jax.tree: expected a pytree nested at most 900 deep, got a deeper one; flatten it"),
    ("jit", lambda: qb.jit(total)(too_deep()), "ValueError", "jit(total): expected a pytree nested at most 900 deep, got a deeper one; flatten it"),
    ("jit", lambda: qb.jit(lambda x: in_itself())(X), "ValueError", "the result of a transformed function: expected a pytree of finite depth, got a list that holds itself; pass a copy"),
    ("jit", lambda: qb.jit(lambda x: in_itself(dict))(X), "ValueError", "the result of a transformed function: expected a pytree of finite depth, got a dict that holds itself; pass a copy"),
    ("vmap", lambda: qb.vmap(lambda x: in_itself(dict))(X), "ValueError", "the result of a transformed function: expected a pytree of finite depth, got a dict that holds itself; pass a copy"),
    ("mlx_backend.jit", lambda: module("mlx_backend").jit(total)(in_itself()), "ValueError", "a function on MLX: expected a pytree of finite depth, got a list that holds itself; pass a copy"),
    ("mlx_backend.lower", lambda: module("mlx_backend").lower(total, in_itself(dict)), "ValueError", "a function on MLX: expected a pytree of finite depth, got a dict that holds itself; pass a copy"),
    ("optim.Adam", lambda: qb.optim.Adam(0.1).init(in_itself()), "ValueError", "quabla_jax.tree: expected a pytree of finite depth, got a list that holds itself; pass a copy"),
    # dict keys without an order
    ("jit", lambda: qb.jit(total)({1: X, "a": X}), "TypeError", "jit(total): pytree dict keys must be mutually sortable (all strings or all numbers, for example), got"),
    ("vmap", lambda: qb.vmap(total)({1: X, "a": X}), "TypeError", "vmap(total): pytree dict keys must be mutually sortable (all strings or all numbers, for example), got"),
    ("vjp", lambda: qb.vjp(total, {1: X, "a": X}), "TypeError", "an argument or a result: pytree dict keys must be mutually sortable (all strings or all numbers, for example), got"),
    ("memory_report", lambda: qb.memory_report(total, {1: X, "a": X}), "ValueError", "memory_report: pytree dict keys must be mutually sortable (all strings or all numbers, for example), got"),
    ("compat.lax.scan", lambda: lax.scan(lambda c, x: (c, x), {1: X, "a": X}, X), "ValueError", "scan: pytree dict keys must be mutually sortable (all strings or all numbers, for example), got"),
    ("compat.lax.cond", lambda: lax.cond(True, total, total, {1: X, "a": X}), "ValueError", "cond: pytree dict keys must be mutually sortable (all strings or all numbers, for example), got"),
    ("compat.torch_ops.while_loop", lambda: torch_ops.while_loop(lambda c: False, lambda c: c, ({1: X, "a": X},)), "ValueError", "while_loop: pytree dict keys must be mutually sortable (all strings or all numbers, for example), got"),
    # trees
    ("tree.map", lambda: qb.tree.map(3, {"a": 1.0}), "TypeError", "tree.map expects a callable f: 'int' object is not callable"),
    ("tree.map", lambda: qb.tree.map(lambda a, b: a, {"a": 1.0}, {"b": 1.0}), "ValueError", "pytree structures differ: TreeDef({'a': *}) and TreeDef({'b':"),
    ("tree.unflatten", lambda: qb.tree.unflatten(3, [1.0]), "TypeError", "unflatten expects a TreeDef (from tree.structure or"),
    ("tree.unflatten", lambda: qb.tree.unflatten(qb.tree.structure([1, 2]), [1.0]), "ValueError", "TreeDef([*, *]) has 2 leaves, got 1 values"),
    ("tree.register", lambda: qb.tree.register(3, lambda x: x, lambda x: x), "TypeError", "only classes can be registered as pytree nodes, got 3"),
    ("tree.register", lambda: qb.tree.register(type("A", (), {}), 3, 4), "TypeError", "register requires callable flatten_fn and unflatten_fn"),
    ("tree.register_dataclass", lambda: qb.tree.register_dataclass(type("B", (), {})), "TypeError", "register_dataclass requires a dataclass type, got <class"),
    ("tree.register_dataclass", lambda: qb.tree.register_dataclass(3), "TypeError", "register_dataclass requires a dataclass type, got 3"),
    # optimizers
    ("optim.Adam", lambda: qb.optim.Adam(-1.0), "ValueError", "learning_rate must be positive and finite, got -1.0"),
    ("optim.Adam", lambda: qb.optim.Adam(NAN), "ValueError", "learning_rate must be positive and finite, got nan"),
    ("optim.Adam", lambda: qb.optim.Adam(b1=1.5), "ValueError", "Adam betas must be in [0, 1), got 1.5 and 0.999"),
    ("optim.Adam", lambda: qb.optim.Adam(clip_norm=-1.0), "ValueError", "clip_norm must be positive and finite, got -1.0"),
    ("optim.Adam", lambda: qb.optim.Adam().update({"w": X}, {"v": X}, state_of(qb.optim.Adam())), "ValueError", "gradient pytree structure must match parameters: TreeDef({'w':"),
    ("optim.AdamW", lambda: qb.optim.AdamW(weight_decay=-1.0), "ValueError", "weight_decay must be finite and nonnegative, got -1.0"),
    ("optim.SGD", lambda: qb.optim.SGD("fast"), "ValueError", "learning_rate must be a number: could not convert string to"),
    ('optim.SGD', lambda: qb.optim.SGD().update({'w': X}, {'w': jnp.ones(4)}, state_of(qb.optim.SGD())), 'ValueError', 'gradient shape must match parameter shape (3,), got (4,)'),
    ("optim.LBFGS", lambda: qb.optim.LBFGS(history=0), "ValueError", "history and max_iterations must be positive, got 0 and 500"),
    ("optim.LBFGS", lambda: qb.optim.LBFGS(line_search="luck"), "ValueError", "line_search must be \"strong_wolfe\", got 'luck'"),
    ("optim.LBFGS", lambda: qb.optim.LBFGS().minimize(3, X), "TypeError", "fun must be callable"),
    ("optim.Trainer", lambda: qb.optim.Trainer(3, {"w": X}, qb.optim.SGD()), "TypeError", "loss must be callable, got int"),
    ("optim.Trainer", lambda: qb.optim.Trainer(lambda p: p["w"].sum(), {"w": X}, "sgd"), "TypeError", "optimizer must be Adam, AdamW, or SGD, got str"),
    ("optim.clip_by_global_norm", lambda: qb.optim.clip_by_global_norm({"w": X}, -1.0), "ValueError", "max_norm must be positive and finite, got -1.0"),
    ("optim.clip_by_global_norm", lambda: qb.optim.clip_by_global_norm({"w": "text"}, 1.0), "TypeError", "gradient leaves must be floating-point Tensors"),
    ("distributed.value_and_grad", lambda: qb.distributed.value_and_grad(3, shard_argnums=0), "TypeError", "distributed.value_and_grad requires a callable, got int"),
    ("distributed.value_and_grad", lambda: qb.distributed.value_and_grad(jnp.sum, devices=[], shard_argnums=0), "ValueError", "distributed.value_and_grad requires at least one device"),
    ("distributed.value_and_grad", lambda: qb.distributed.value_and_grad(jnp.sum, shard_argnums=0, reduction="median"), "ValueError", "reduction must be 'sum' or 'mean', got 'median'"),
    # looking at programs
    ("draw", lambda: qb.draw(3), "TypeError", "draw: fun must be callable, got int"),
    ("draw", lambda: qb.draw(jnp.sin, "text"), "TypeError", "The problematic value is of type <class 'str'>"),
    ("draw", lambda: qb.draw(jnp.sin, X).save(MISSING), "ValueError", "the name must end in .txt, .svg, .html"),
    ("draw", lambda: qb.draw(jnp.sin, X).save(FOLDER / "picture.docx"), "ValueError", "the name must end in .txt, .svg, .html"),
    ("memory_report", lambda: qb.memory_report(3, X), "TypeError", "memory_report: fun must be callable, got int"),
    ("memory_report", lambda: qb.memory_report(total, N), "ValueError", "memory_report: no argument is a float array"),
    ("memory_report", lambda: qb.memory_report(jnp.sin, "text"), "TypeError", "The problematic value is of type <class 'str'>"),
    ("memory_report", lambda: qb.memory_report(lambda x: x, X, compiled=False).plot(MISSING), "FileNotFoundError", "there is no folder"),
    ("progress", lambda: qb.progress(3).__enter__(), "TypeError", "progress: label must be a str, got 3"),
    ("progress", lambda: qb.progress("x", display=3).__enter__(), "TypeError", "progress: display must have the methods started and advanced,"),
    # dtypes, devices and compilers
    ("dtype", lambda: qb.dtype("float7"), "TypeError", "data type 'float7' not understood"),
    ('ShapeDtype', lambda: qb.ShapeDtype((-1,), qb.float64), 'ValueError', 'shape extents must be non-negative integers, got (-1,)'),
    ("ShapeDtype", lambda: qb.ShapeDtype("x"), "ValueError", "shape extents must be non-negative integers, got ('x',)"),
    ("Compiler", lambda: qb.Compiler().capability("abacus"), "ValueError", "target must be one of 'cpu', 'cuda', or 'mlx'"),
    ("Compiler", lambda: qb.Compiler().trace(3, []), "TypeError", "a Program is made of a callable: 'int' object is not callable"),
    ("Program", lambda: qb.Program(3, {}), "TypeError", "a Program is made of a callable: 'int' object is not callable"),
    # compat: jax.lax's own errors, and the checkpoint argument
    ('compat.lax.cond', lambda: lax.cond(X, jnp.sin, jnp.cos, X), 'TypeError', 'Pred must be a scalar, got [0. 1. 2.] of shape (3,).'),
    ("compat.lax.cond", lambda: lax.cond(True, jnp.sin, lambda x: x[0], X), "TypeError", "cond branches must have equal output types but they differ."),
    ("compat.lax.cond", lambda: lax.cond(True, 3, jnp.sin, X), "TypeError", "lax.cond: true_fun and false_fun arguments should be callable."),
    ("compat.lax.switch", lambda: lax.switch(0, [], X), "ValueError", "Empty branch sequence"),
    ("compat.lax.switch", lambda: lax.switch(1.5, [jnp.sin, jnp.cos], X), "TypeError", "Index type must be an integer, got 1.5 as float64"),
    ("compat.lax.fori_loop", lambda: lax.fori_loop(0, 3, lambda i, c: c[:1], X), "TypeError", "scan body function carry input and carry output must have equal"),
    ("compat.lax.fori_loop", lambda: lax.fori_loop(0, 3, add, X, checkpoint="half"), "ValueError", 'checkpoint= takes "auto", "full", "sqrt", a number of stored'),
    ("compat.lax.fori_loop", lambda: lax.fori_loop(0, 3.5, add, X), "TypeError", "lower and upper arguments to fori_loop must have equal types,"),
    ("compat.lax.fori_loop", lambda: lax.fori_loop(0, 3, add, Opaque()), "TypeError", "is not a valid JAX type"),
    ("compat.lax.scan", lambda: lax.scan(lambda c, x: (c, x), 0.0, X, length=7), "ValueError", "scan got `length` argument of 7 which disagrees with leading"),
    ("compat.lax.scan", lambda: lax.scan(lambda c, x: (c, x), 0.0, (X, jnp.ones(4))), "ValueError", "scan got values with different leading axis sizes: 3, 4."),
    ("compat.lax.scan", lambda: lax.scan(lambda c, x: c, 0.0, X), "TypeError", "scan body output must be a pair, got ~float64[]."),
    ("compat.lax.scan", lambda: lax.scan(lambda c, x: (c, x), 0.0, X, checkpoint=-1), "ValueError", "checkpoint=-1: a number of stored carries must be at least 1"),
    ("compat.lax.scan", lambda: lax.scan(lambda c, x: (c, x), 0.0, None), "ValueError", "scan got no values to scan over and `length` not provided."),
    ("compat.lax.scan", lambda: lax.scan(lambda c, x: ((c, c), x), 0.0, X), "TypeError", "scan body function carry input and carry output must have the"),
    ("compat.lax.while_loop", lambda: lax.while_loop(lambda c: X > 0, lambda c: c, X), "TypeError", "cond_fun must return a boolean scalar, but got output type(s)"),
    ("compat.lax.while_loop", lambda: lax.while_loop(lambda c: c[0] < 1, lambda c: c, X, checkpoint="half"), "TypeError", 'checkpoint of while_loop: expected None, "auto", a number of'),
    ("compat.lax.while_loop", lambda: jax.grad(lambda x: lax.while_loop(lambda c: c < 3.0, lambda c: c * 2.0, x))(1.0), "ValueError", "Reverse-mode differentiation does not work for lax.while_loop"),
    ("compat.lax.map", lambda: lax.map(jnp.sin, X, batch_size=-1), "TypeError", "reshape new_sizes must all be positive, got (-3, -1)."),
    ("compat.lax.map", lambda: lax.map(3, X), "TypeError", "'int' object is not callable"),
    ("compat.patched", lambda: compat.patched(checkpoint="half").__enter__(), "ValueError", 'checkpoint= takes "auto", "full", "sqrt", a number of stored'),
    ("compat.patched", lambda: compat.patched(while_checkpoint="half").__enter__(), "TypeError", 'checkpoint of while_loop: expected None, "auto", a number of'),
    ("compat.install", lambda: compat.install(checkpoint=-1), "ValueError", "checkpoint=-1: a number of stored carries must be at least 1"),
    ("compat.uninstall", lambda: compat.uninstall(3), "TypeError", "uninstall() takes 0 positional arguments but 1 was given"),
    ('compat.torch_ops.cond', lambda: torch_ops.cond(X, jnp.sin, jnp.cos, (X,)), 'RuntimeError', 'cond: pred must be a bool or an array of one element, got one'),
    ('compat.torch_ops.cond', lambda: torch_ops.cond('yes', jnp.sin, jnp.cos, (X,)), 'RuntimeError', "cond: pred must be a bool or an array of one element, got 'yes'"),
    ('compat.torch_ops.cond', lambda: torch_ops.cond(X[0], jnp.sin, jnp.cos, (X,)), 'RuntimeError', 'cond: an array pred must have dtype bool, got float64[];'),
    ("compat.torch_ops.cond", lambda: torch_ops.cond(X[0] > 0, jnp.sin, jnp.cos, X), "RuntimeError", "cond: operands must be a tuple or list of (possibly nested)"),
    ('compat.torch_ops.cond', lambda: torch_ops.cond(X[0] > 0, jnp.sin, 3, (X,)), 'RuntimeError', 'cond: false_fn must be callable, got 3'),
    ('compat.torch_ops.cond', lambda: torch_ops.cond(X[0] > 0, jnp.sin, lambda x: x[0], (X,)), 'RuntimeError', 'cond: the branches must return the same shapes and dtypes, but'),
    ('compat.torch_ops.cond', lambda: torch_ops.cond(True, 3, jnp.sin, (X,)), 'RuntimeError', 'cond: true_fn must be callable, got 3'),
    ('compat.torch_ops.switch', lambda: torch_ops.switch(1.5, [jnp.sin], (X,)), 'RuntimeError', 'switch: index must be an int or an integer array of one'),
    ('compat.torch_ops.switch', lambda: torch_ops.switch(N[0], [], (X,)), 'RuntimeError', 'switch: branches must be a tuple or list of at least one'),
    ('compat.torch_ops.switch', lambda: torch_ops.switch(N[0], [jnp.sin, lambda x: None], (X,)), 'RuntimeError', 'switch: leaf 0 is float64[3] in the output of branch 0 and None'),
    ('compat.torch_ops.while_loop', lambda: torch_ops.while_loop(3, lambda x: (x,), (X,)), 'RuntimeError', 'while_loop: cond_fn must be callable, got 3'),
    ('compat.torch_ops.while_loop', lambda: torch_ops.while_loop(lambda x: x, lambda x: (x,), (X,)), 'RuntimeError', 'while_loop: cond_fn must return a boolean scalar array or a'),
    ('compat.torch_ops.while_loop', lambda: torch_ops.while_loop(lambda x: x[0] < 1, lambda x: x, (X,)), 'RuntimeError', 'while_loop: body_fn must return a tuple, got'),
    ('compat.torch_ops.while_loop', lambda: torch_ops.while_loop(lambda x: x[0] < 1, lambda x: (x,), X), 'RuntimeError', 'while_loop: carried_inputs must be a tuple or list, got'),
    ('compat.torch_ops.while_loop', lambda: torch_ops.while_loop(lambda x: x[0] < 1, lambda x: (x[:1],), (X,)), 'RuntimeError', "while_loop: body_fn's result must have the shapes and dtypes of"),
    ("compat.torch_ops.scan", lambda: torch_ops.scan(3, X, M), "RuntimeError", "scan: combine_fn must be callable, got 3"),
    ("compat.torch_ops.scan", lambda: torch_ops.scan(lambda c, x: (c, x), X, M, dim=4), "IndexError", "scan: dim must lie in [-2, 1] for xs of rank 2, got 4"),
    ("compat.torch_ops.scan", lambda: torch_ops.scan(lambda c, x: c, X, M), "RuntimeError", "scan: combine_fn must return a pair (next carry, y), got"),
    ("compat.torch_ops.scan", lambda: torch_ops.scan(lambda c, x: (c, x), X, M, dim="x"), "RuntimeError", "scan: dim must be an int, got str"),
    ("compat.torch_ops.scan", lambda: torch_ops.scan(lambda c, x: (c[:1], x), X, M), "RuntimeError", "scan: the next carry must have the shapes and dtypes of init,"),
    # MLX
    ("mlx_backend.jit", lambda: module("mlx_backend").jit(3), "TypeError", "mlx_backend.jit expects a callable, got int"),
    ("mlx_backend.jit", lambda: module("mlx_backend").jit(jnp.sin)("text"), "TypeError", "an argument of a function on MLX must be a jax, NumPy or mx"),
    ("mlx_backend.jit", lambda: module("mlx_backend").jit(jnp.sin)(KEY), "TypeError", "an argument of a function on MLX must be a jax, NumPy or mx"),
    ("mlx_backend.jit", lambda: module("mlx_backend").jit(jnp.sin, static_argnums="x"), "TypeError", "static_argnums must be an int or a sequence of ints, got 'x'"),
    ("mlx_backend.jit", lambda: module("mlx_backend").jit(jnp.sin, device="abacus")(X), "ValueError", 'device must be "mlx", "mlx:cpu" or "mlx:gpu", got \'abacus\''),
    ("mlx_backend.lower", lambda: module("mlx_backend").lower(3, X), "TypeError", "mlx_backend.lower expects a callable, got int"),
    ("mlx_backend.lower", lambda: module("mlx_backend").lower(jnp.sin, Opaque()), "TypeError", "an argument must hold arrays (or numbers) in pytrees, got a"),
    ('mlx_backend.lower', lambda: module('mlx_backend').lower(jnp.sin, X).compile()(jnp.ones(4)), 'TypeError', 'this program was lowered for float64 of shape (3,), got float64[4]'),
    ('mlx_backend.lower', lambda: module('mlx_backend').lower(jnp.sin, X).compile()(), 'TypeError', 'this program takes arguments of the structure PyTreeDef((*,)),'),
    # PyTorch
    ("torch_bridge.to_torchscript", lambda: module("torch_bridge").to_torchscript(3, X), "TypeError", "expected a callable of arrays, got int"),
    ("torch_bridge.to_torchscript", lambda: module("torch_bridge").to_torchscript(jnp.sin, "text"), "TypeError", "an argument must hold arrays (or numbers) in pytrees, got a str"),
    ("torch_bridge.to_torchscript", lambda: module("torch_bridge").to_torchscript(lambda x: "text", X), "TypeError", "<lambda> must return arrays (or numbers) in pytrees, got a str"),
    ("torch_bridge.to_torchscript", lambda: module("torch_bridge").to_torchscript(jnp.sin, X, methods={"1x": jnp.cos}), "ValueError", "method name '1x': expected an identifier that torch.nn.Module"),
    ("torch_bridge.to_torchscript", lambda: module("torch_bridge").to_torchscript(jnp.sin, X, methods={"forward": jnp.cos}), "ValueError", "method name 'forward': expected an identifier that"),
    ("torch_bridge.to_torchscript", lambda: module("torch_bridge").to_torchscript(jnp.sin, X, methods=[jnp.cos]), "TypeError", "methods must be a dict of names to functions, got"),
    ("torch_bridge.to_torchscript", lambda: scripted()(torch().ones(2), torch().ones(2)), "RuntimeError", "forward() expected at most 2 argument(s) but received 3"),
    ("torch_bridge.to_exported_program", lambda: module("torch_bridge").to_exported_program(3, X), "TypeError", "expected a callable of arrays, got int"),
    ("torch_bridge.to_exported_program", lambda: module("torch_bridge").to_exported_program(jnp.sin, "text"), "TypeError", "an argument must hold arrays (or numbers) in pytrees, got a str"),
    ("torch_bridge.to_exported_program", lambda: module("torch_bridge").to_exported_program(jnp.sin, X, dynamic_shapes="all"), "ValueError", "dynamic_shapes: expected one entry for each of the 1 arguments,"),
    ('torch_bridge.to_exported_program', lambda: module('torch_bridge').to_exported_program(jnp.sin, X, dynamic_shapes=({5: 'n'},)), 'ValueError', 'dynamic_shapes: array 0 of shape (3,) has no axis 5'),
    ("torch_bridge.save", lambda: module("torch_bridge").save(3, FOLDER / "x.pt"), "TypeError", "save: expected a ScriptModule, a ScriptFunction or an"),
    ("torch_bridge.save", lambda: module("torch_bridge").save(scripted(), MISSING), "FileNotFoundError", "there is no folder"),
    ("torch_bridge.save", lambda: module("torch_bridge").save(scripted(), FOLDER), "IsADirectoryError", "cannot write a file to "),
    ("torch_bridge.save", lambda: module("torch_bridge").save(scripted(), 3.5), "TypeError", "(the program comes first: save(program, path)), got a float; give a file's name"),
    ("torch_bridge.from_torchscript", lambda: module("torch_bridge").from_torchscript(3), "TypeError", "from_torchscript: module_or_path must be a ScriptModule, a ScriptFunction or the path of a saved one, got int"),
    ("torch_bridge.from_torchscript", lambda: module("torch_bridge").from_torchscript(MISSING), "FileNotFoundError", "from_torchscript: no file "),
    ("torch_bridge.from_torchscript", lambda: module("torch_bridge").from_torchscript(FOLDER), "FileNotFoundError", "from_torchscript: no file "),
    ("torch_bridge.from_torchscript", lambda: module("torch_bridge").from_torchscript(scripted(), method="backward"), "ValueError", "from_torchscript: the module has no method 'backward'"),
    ("torch_bridge.from_torchscript", lambda: module("torch_bridge").from_torchscript(scripted())(), "TypeError", "Lambda takes 1 arguments, 0 given"),
    ("torch_bridge.from_torchscript", lambda: module("torch_bridge").from_torchscript(scripted())("text"), "TypeError", "Value 'text' with dtype <U4 is not a valid JAX array type. Only"),
    ("torch_bridge.from_torchscript", lambda: module("torch_bridge").from_torchscript(pathlib.Path(__file__)), "ValueError", "is not a TorchScript file: File is not a zip file"),
    ("torch_bridge.from_torchscript", lambda: module("torch_bridge").from_torchscript(None), "TypeError", "from_torchscript: module_or_path must be a ScriptModule, a ScriptFunction or the path of a saved one, got NoneType; script a module"),
    ("torch_bridge.from_torchscript", lambda: module("torch_bridge").from_torchscript("a\0b.pt"), "ValueError", "from_torchscript: module_or_path must be a path without null bytes, got 'a\\x00b.pt'; remove the null byte"),
    ("torch_bridge.from_torchscript", lambda: module("torch_bridge").from_torchscript(""), "ValueError", "from_torchscript: module_or_path must name a file, got an empty path"),
    ("torch_bridge.from_torchscript", lambda: module("torch_bridge").from_torchscript(looping_link()), "FileNotFoundError", "from_torchscript: no file "),
    ("torch_bridge.save", lambda: module("torch_bridge").save(scripted(), None), "TypeError", "torch_bridge.save: path must be a path (str, bytes or os.PathLike) (the program comes first: save(program, path)), got NoneType"),
    ("torch_bridge.save", lambda: module("torch_bridge").save(scripted(), "a\0b.pt"), "ValueError", "torch_bridge.save: path must be a path without null bytes, got 'a\\x00b.pt'; remove"),
    ("torch_bridge.save", lambda: module("torch_bridge").save(scripted(), FOLDER), "IsADirectoryError", "torch_bridge.save: cannot write a file to "),
    ("torch_bridge.save", lambda: module("torch_bridge").save(FOLDER / "a.pt", scripted()), "TypeError", "(the program comes first: save(program, path)), got a RecursiveScriptModule; give"),
    ("torch_bridge.GraphBuilder", lambda: builder().call("aten::nothing", 3), "GraphError", "aten::nothing: no such operator in this build of PyTorch"),
    ("torch_bridge.GraphBuilder", lambda: builder().call("no such op", 3), "GraphError", "no such op::: no such operator in this build of PyTorch"),
    ("torch_bridge.GraphBuilder", lambda: builder().const(Opaque()), "GraphError", "prim::Constant: no TorchScript constant for"),
    ("torch_bridge.GraphBuilder", lambda: builder().input("not a name"), "GraphError", "input name 'not a name': expected a Python identifier"),
    ("torch_bridge.GraphBuilder", lambda: builder().parameter("w", "text"), "GraphError", "attribute 'w': expected a torch.Tensor, got str"),
    ("torch_bridge.GraphBuilder", lambda: builder().loop("many", True), "GraphError", "prim::Loop, input 0 (max trip count): expected int, got str"),
    ("torch_bridge.GraphBuilder", lambda: builder().if_("text"), "GraphError", "prim::If, input 0 (condition): expected bool, got str (the"),
    ("torch_bridge.GraphBuilder", lambda: builder().module(), "GraphError", "function: the graph has no output"),
    # conformance command
    ("conformance", lambda: cli("--backend", "abacus"), "SystemExit", "exit code 2: conformance: no backend 'abacus': give one of lax,"),
    ("conformance", lambda: cli("--backend", "no_module:thing"), "SystemExit", "exit code 2: conformance: cannot load the backend"),
    ("conformance", lambda: cli("--case", "no such case*"), "SystemExit", "exit code 2: conformance: no cell matches"),
    ("conformance", lambda: cli("--format", "xml"), "SystemExit", "invalid choice: 'xml'"),
    ("conformance", lambda: cli("--backend", "xla", "--case", "nothing", "-o", str(MISSING)), "SystemExit", "exit code 2: conformance: --output: cannot write"),
    ("conformance", lambda: cli("--backend", "xla", "-o", str(FOLDER)), "SystemExit", "exit code 2: conformance: --output: cannot write a file to"),
    ("conformance", lambda: cli("--backend", "xla", "-o", ""), "SystemExit", "exit code 2: conformance: --output: path must name a file, got an empty path"),
    ("conformance", lambda: cli("--backend", "xla", "-o", "a\0b"), "SystemExit", "exit code 2: conformance: --output: path must be a path without null bytes"),
    ("conformance", lambda: cli("--backend", "xla", "--junit", str(FOLDER)), "SystemExit", "exit code 2: conformance: --junit: cannot write a file to"),
    ("conformance", lambda: cli("--backend", "xla", "--state", str(MISSING)), "SystemExit", "exit code 2: conformance: --state: cannot write"),
    ("conformance", lambda: cli("--backend", "xla", "--diff", "a\0b"), "SystemExit", "exit code 2: conformance: a conformance report: path must be a path without null bytes"),
    ("conformance", lambda: cli("--from", str(FOLDER)), "SystemExit", "exit code 2: conformance: [Errno 21] Is a directory"),
    ("conformance", lambda: cli("--from", __file__), "SystemExit", "is not a conformance report: Extra data"),
    # sizes that no memory holds: an error, where XLA itself would end the process
    ("zeros", lambda: qb.zeros((10**12, 10**12)), "OverflowError", "an array of shape [1000000000000, 1000000000000] has more"),
    ("ones", lambda: qb.ones(10**30), "OverflowError", "an array of shape [1000000000000000000000000000000] has more"),
    ("full", lambda: qb.full((10**12, 10**12), 1.0), "OverflowError", "an array of shape [1000000000000, 1000000000000] has more"),
    ("eye", lambda: qb.eye(10**12), "OverflowError", "an array of shape [1000000000000, 1000000000000] has more"),
    ("diag", lambda: qb.diag(X, 10**10), "OverflowError", "an array of shape [10000000003, 10000000003] has more elements"),
    ("tile", lambda: qb.tile(X, 10**30), "OverflowError", "an array of shape [3, 1000000000000000000000000000000] has more"),
    ("repeat", lambda: qb.repeat(X, 10**19), "OverflowError", "an array of shape [3, 10000000000000000000] has more elements"),
    ("sin", lambda: qb.sin(X, 2), "TypeError", "sin() takes 1 positional argument but 2 were given"),
    ("linspace", lambda: qb.linspace(0.0, 1.0, 10**19), "OverflowError", "an array of shape [10000000000000000000] has more elements than"),
    ("broadcast_to", lambda: qb.broadcast_to(1.0, (10**12, 10**12)), "OverflowError", "an array of shape [1000000000000, 1000000000000] has more"),
    ("random.uniform", lambda: qb.random.uniform(KEY, (10**12, 10**12)), "OverflowError", "an array of shape [1000000000000, 1000000000000] has more"),
    ("scan", lambda: traced(lambda x: qb.scan(lambda c, i: (c, c), x, length=10**30)[1]), "OverflowError", "length must be less than 2**63, got"),
    # arrays: every function, one wrong call each at least
    ("TensorCudaAdamOptimizer", lambda: qb.TensorCudaAdamOptimizer(), "TypeError", "cannot create 'TensorCudaAdamOptimizer' instances; use"),
    ("TensorMlxAdamOptimizer", lambda: qb.TensorMlxAdamOptimizer(), "TypeError", "cannot create 'TensorMlxAdamOptimizer' instances; use"),
    ("array", lambda: qb.array([[1.0], [1.0, 2.0]]), "ValueError", "nested sequence is ragged: every sub-sequence of one level must"),
    ("array", lambda: qb.array(Opaque()), "TypeError", "cannot convert Opaque to a quabla Tensor"),
    ("asarray", lambda: qb.asarray("text"), "TypeError", "cannot convert str to a quabla Tensor"),
    ("asarray", lambda: qb.asarray(generator()), "TypeError", "cannot convert generator to a quabla Tensor"),
    ("astype", lambda: qb.astype(X, "float7"), "TypeError", "'str' object is not an instance of 'dtype'; pass"),
    ("arange", lambda: qb.arange(0.0, 3.0, 0.0), "ValueError", "arange start, stop, and step do not define a non-empty range"),
    ("arange", lambda: qb.arange(0.0, NAN), "ValueError", "arange start, stop, and step do not define a non-empty range"),
    ("eye", lambda: qb.eye(-1), "OverflowError", "tensor extents must be positive, got [-1, -1]"),
    ("full", lambda: qb.full((2,), "text"), "TypeError", "cannot convert str to a quabla Tensor"),
    ("full_like", lambda: qb.full_like(X, Opaque()), "TypeError", "cannot convert Opaque to a quabla Tensor; expected a number, nested"),
    ("linspace", lambda: qb.linspace(0.0, 1.0, -1), "OverflowError", "tensor extents must be positive, got [-1]"),
    ("ones", lambda: qb.ones((2.5,)), "TypeError", "a shape is an int or a list or tuple of ints, got (2.5,):"),
    ("zeros", lambda: qb.zeros(-1), "OverflowError", "tensor extents must be positive, got [-1]"),
    ("zeros", lambda: qb.zeros((2,), "object"), "TypeError", "'str' object is not an instance of 'dtype'; pass"),
    ("ones_like", lambda: qb.ones_like("text"), "TypeError", "cannot convert str to a quabla Tensor"),
    ("zeros_like", lambda: qb.zeros_like(None), "TypeError", "cannot convert NoneType to a quabla Tensor"),
    ("atan2", lambda: qb.atan2(X, jnp.ones(4)), "ValueError", "cannot broadcast tensor shapes [3] and [4]"),
    ("clip", lambda: qb.clip(X, "low", 1.0), "TypeError", "cannot convert str to a quabla Tensor"),
    ("where", lambda: qb.where(X > 0, X, jnp.ones(4)), "ValueError", "cannot broadcast tensor shapes [3] and [3] and [4]"),
    ("maximum", lambda: qb.maximum(X, jnp.ones(4)), "ValueError", "cannot broadcast tensor shapes [3] and [4]"),
    ("minimum", lambda: qb.minimum(X, None), "TypeError", "cannot convert NoneType to a quabla Tensor"),
    ("power", lambda: qb.power(X, "two"), "TypeError", "cannot convert str to a quabla Tensor"),
    ("mod", lambda: qb.mod(X, jnp.ones(4)), "ValueError", "cannot broadcast tensor shapes [3] and [4]"),
    ("matmul", lambda: qb.matmul(M, jnp.ones((4, 4))), "ValueError", "matmul inner extents must agree, got shapes [3, 3] and [4, 4]"),
    ("matmul", lambda: qb.matmul(M, 2.0), "ValueError", "matmul requires operands of rank one or more, got shapes [3, 3]"),
    ("dot", lambda: qb.dot(X, jnp.ones(4)), "ValueError", "matmul inner extents must agree, got shapes [3] and [4]"),
    ("outer", lambda: qb.outer(X, "text"), "TypeError", "cannot convert str to a quabla Tensor"),
    ("kron", lambda: qb.kron(X, None), "TypeError", "cannot convert NoneType to a quabla Tensor"),
    ("tensordot", lambda: qb.tensordot(M, M, 5), "ValueError", "axes=5 is out of range for operands of rank 2 and 2"),
    ("tensordot", lambda: qb.tensordot(M, jnp.ones((4, 4)), 1), "ValueError", "shape mismatch for sum: axis 1 of a has extent 3, axis 0 of b"),
    ("einsum", lambda: qb.einsum("ij,jk->iz", (M, M)), "ValueError", "einsum currently supports only ij,jk->ik and"),
    ("einsum", lambda: qb.einsum(3, (M, M)), "TypeError", "equation must be a str, got int"),
    ("einsum", lambda: qb.einsum("ij,jk->ik", (M,)), "TypeError", "takes exactly two operands, got 1"),
    ("cross", lambda: qb.cross(jnp.ones(4), jnp.ones(4)), "ValueError", "incompatible dimensions for cross product (dimension must be 2"),
    ("cholesky", lambda: qb.cholesky(X), "ValueError", "cholesky requires a stack of square matrices [..., n, n], got"),
    ("diff", lambda: qb.diff(X, n=-1), "ValueError", "order must be non-negative, got -1"),
    ("trapezoid", lambda: qb.trapezoid(X, jnp.ones(4)), "ValueError", "cannot broadcast tensor shapes [3] and [2]"),
    ("interp", lambda: qb.interp(X, X, jnp.ones(4)), "ValueError", "xp and fp must be 1-D of the same length, got [3] and [4]"),
    ("polyval", lambda: qb.polyval(M, X), "ValueError", "p must be 1-D, got shape [3, 3]"),
    ("solve", lambda: qb.solve(M, jnp.ones(4)), "ValueError", "solve requires matrix shape [3, 3] and right-hand side shape"),
    ("solve", lambda: qb.solve(X, X), "ValueError", "solve requires a stack of square matrices [..., n, n], got [3]"),
    ("linalg.cholesky", lambda: qb.linalg.cholesky(jnp.ones((2, 3))), "ValueError", "cholesky requires a stack of square matrices [..., n, n], got"),
    ("linalg.cho_solve", lambda: qb.linalg.cho_solve(M, jnp.ones(4)), "ValueError", "solve_triangular requires matrix shape [3, 3] and right-hand"),
    ("linalg.det", lambda: qb.linalg.det(X), "ValueError", "slogdet requires a stack of square matrices [..., n, n], got [3]"),
    ("linalg.slogdet", lambda: qb.linalg.slogdet(jnp.ones((2, 3))), "ValueError", "slogdet requires a stack of square matrices [..., n, n], got"),
    ("linalg.inv", lambda: qb.linalg.inv(jnp.ones((2, 3))), "ValueError", "inv requires a stack of square matrices [..., n, n], got [2, 3]"),
    ("linalg.eigh", lambda: qb.linalg.eigh(X), "ValueError", "eigh requires a stack of square matrices [..., n, n], got [3]"),
    ("linalg.qr", lambda: qb.linalg.qr(M, mode="best"), "ValueError", 'mode must be "reduced", "complete", or "r", got \'best\''),
    ("linalg.svd", lambda: qb.linalg.svd(X), "ValueError", "svd requires a stack of matrices [..., m, n], got [3]"),
    ("linalg.lstsq", lambda: qb.linalg.lstsq(M, jnp.ones(4)), "ValueError", "lstsq requires matrix shape [3, 3] and right-hand side shape"),
    ("linalg.norm", lambda: qb.linalg.norm(M, ord="max"), "ValueError", "invalid norm order 'max' for matrices"),
    ("linalg.matrix_power", lambda: qb.linalg.matrix_power(M, 1.5), "TypeError", "exponent must be an integer, got float"),
    ("linalg.pinv", lambda: qb.linalg.pinv(X), "ValueError", "pinv requires a stack of matrices [..., m, n], got [3]"),
    ("linalg.solve_triangular", lambda: qb.linalg.solve_triangular(M, X, trans=7), "ValueError", "trans must be 0, 1, 'N', 'T', or 'C', got 7"),
    ("linalg.solve", lambda: qb.linalg.solve(M, "text"), "TypeError", "cannot convert str to a quabla Tensor"),
    ("sum", lambda: qb.sum(X, axis=4), "ValueError", "axis 4 is out of bounds for rank 1"),
    ("mean", lambda: qb.mean(X, axis="x"), "TypeError", "axis must be None, an integer, or a sequence of integers, got"),
    ("prod", lambda: qb.prod(X, axis=(0, 0)), "ValueError", "reduction axes must be unique, got (0, 0)"),
    ('max', lambda: qb.max(jnp.ones((0,))), 'ValueError', 'zero-size array to reduction operation max which has no identity'),
    ("min", lambda: qb.min("text"), "TypeError", "cannot convert str to a quabla Tensor"),
    ("norm", lambda: qb.norm(X, axis=3), "ValueError", "axis 3 is out of bounds for rank 1"),
    ("any", lambda: qb.any(X, axis=3), "ValueError", "any requires bool operands, got dtype f64; build a mask with a"),
    ("all", lambda: qb.all("text"), "TypeError", "cannot convert str to a quabla Tensor"),
    ("cumsum", lambda: qb.cumsum(X, axis=2), "ValueError", "axis 2 is out of bounds for rank 1"),
    ("var", lambda: qb.var(X, ddof="x"), "TypeError", "ddof must be a number, got 'x'"),
    ("std", lambda: qb.std(X, axis=1.5), "TypeError", "axis must be None, an integer, or a sequence of integers, got"),
    ("softmax", lambda: qb.softmax(X, axis=5), "ValueError", "axis 5 is out of bounds for rank 1"),
    ("log_softmax", lambda: qb.log_softmax("text"), "TypeError", "cannot convert str to a quabla Tensor"),
    ("logsumexp", lambda: qb.logsumexp(X, axis=5), "ValueError", "axis 5 is out of bounds for rank 1"),
    ("broadcast_to", lambda: qb.broadcast_to(X, (2, 2)), "ValueError", "cannot broadcast tensor shapes [3] and [2, 2]"),
    ("concat", lambda: qb.concat([X, M], 0), "ValueError", "concat shapes must match except along axis 0, got [3] and [3, 3]"),
    ("concat", lambda: qb.concat([], 0), "ValueError", "concat requires at least one tensor"),
    ("stack", lambda: qb.stack([X, jnp.ones(4)]), "ValueError", "stack requires equal shapes, got [3] and [4]"),
    ("diag", lambda: qb.diag(jnp.ones((2, 2, 2))), "ValueError", "diag requires a 1-D or 2-D input, got shape [2, 2, 2]"),
    ("diagonal", lambda: qb.diagonal(X), "ValueError", "diagonal requires an array of rank 2 or more, got shape [3]"),
    ("expand_dims", lambda: qb.expand_dims(X, 7), "ValueError", "axis 7 is out of bounds for rank 2"),
    ("flip", lambda: qb.flip(X, axis=3), "ValueError", "axis 3 is out of bounds for rank 1"),
    ("meshgrid", lambda: qb.meshgrid(X, X, indexing="zz"), "ValueError", 'indexing must be "xy" or "ij", got \'zz\''),
    ("moveaxis", lambda: qb.moveaxis(M, 0, 5), "ValueError", "destination: axis 5 is out of bounds for rank 2"),
    ("pad", lambda: qb.pad(X, (-1, 2)), "ValueError", "pad_width must be non-negative, got (-1, 2)"),
    ("pad", lambda: qb.pad(X, (1, 2), mode="mirror"), "ValueError", "mode must be one of ('constant', 'edge', 'reflect',"),
    ("ravel", lambda: qb.ravel("text"), "TypeError", "cannot convert str to a quabla Tensor"),
    ("repeat", lambda: qb.repeat(X, -1), "ValueError", "repeats must be positive (empty arrays are not supported), got"),
    ("reshape", lambda: qb.reshape(X, (2, 2)), "ValueError", "cannot reshape tensor with 3 elements to shape [2, 2]"),
    ("reshape", lambda: qb.reshape(X, (-1, -1)), "ValueError", "reshape can only infer one dimension (-1)"),
    ("roll", lambda: qb.roll(X, 1.5), "TypeError", "shift must be an int, got float"),
    ("split", lambda: qb.split(X, 2), "ValueError", "cannot split axis 0 of extent 3 into 2 equal pieces"),
    ("split", lambda: qb.split(X, 0), "ValueError", "cannot split axis 0 of extent 3 into 0 equal pieces"),
    ("squeeze", lambda: qb.squeeze(X, axis=0), "ValueError", "cannot squeeze axis 0 of shape [3]: its extent is not 1"),
    ("swapaxes", lambda: qb.swapaxes(M, 0, 2), "ValueError", "axis 2 is out of bounds for rank 2"),
    ("tile", lambda: qb.tile(X, -1), "ValueError", "reps must be positive (empty arrays are not supported), got -1"),
    ("trace", lambda: qb.trace(X), "ValueError", "diagonal requires an array of rank 2 or more, got shape [3]"),
    ("transpose", lambda: qb.transpose(M, (0, 0)), "ValueError", "transpose axes: reduction axes must be unique, got (0, 0)"),
    ("tril", lambda: qb.tril(X), "ValueError", "triangular projection requires at least rank two, got [3]"),
    ("triu", lambda: qb.triu("text"), "TypeError", "cannot convert str to a quabla Tensor"),
    ("linalg.cg", lambda: qb.linalg.cg(3, X), "TypeError", "cg requires a callable matvec(x, *args)"),
    ("linalg.cg", lambda: qb.linalg.cg(lambda x: x, X, maxiter=-1), "ValueError", "maxiter must be a positive integer, got -1"),
    ("linalg.gmres", lambda: qb.linalg.gmres(lambda x: x[:2], X), "ValueError", "right-hand side's shape [3], got [2]"),
]
# fmt: on


def recursive():
    tree = []
    tree.append(tree)
    return tree


UNARY = (
    "abs arccos arccosh arcsin arcsinh arctan arctanh cbrt ceil cos cosh erf erfc exp exp2 expm1 floor gelu isfinite isinf isnan log "
    "log10 log1p log2 logical_not nan_to_num reciprocal relu round sigmoid sign silu sin sinh softplus sqrt square tan tanh"
)
BINARY = "equal fmod greater greater_equal hypot less less_equal logaddexp logical_and logical_or not_equal remainder"
EXPECTS = {
    "isfinite": "isfinite expects a Tensor",
    "isnan": "isnan expects a Tensor",
    "logical_not": "logical_not expects a Tensor",
}
ROWS += [
    (
        name,
        lambda name=name: getattr(qb, name)("text"),
        "TypeError",
        EXPECTS.get(name, "cannot convert str to a quabla Tensor"),
    )
    for name in UNARY.split()
]
ROWS += [
    (
        name,
        lambda name=name: getattr(qb, name)(X, jnp.ones(4)),
        "ValueError",
        "requires bool operands, got dtype f64" if "logical" in name else "[3] and [4]",
    )
    for name in BINARY.split()
]
