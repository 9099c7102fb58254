"""JAX's public array functions on small inputs: what every lowering target is held to, function by function.

`cases()` gives name -> (function, arguments), built under the current x64 mode. What a factorisation leaves open (signs
and phases of vectors) is taken out by the case: it returns what is determined.
"""

import fnmatch

import jax
import jax.numpy as jnp
import jax_functions_arrays
import jax_functions_math
import numpy as np

_R = np.random.RandomState(7)
_DRAWS = {
    "x": _R.randn(3, 4), "y": _R.randn(3, 4), "v": _R.randn(5), "w": _R.randn(5), "p": _R.rand(3, 4) + 0.3,
    "q": _R.rand(3, 4) + 0.5, "u": 0.9 * (2 * _R.rand(3, 4) - 1), "o": _R.rand(3, 4) * 0.8 + 0.1, "g": 1.1 + _R.rand(3, 4),
    "m": _R.randn(2, 4, 4), "t": _R.randn(2, 5, 3), "e": _R.randn(2, 4, 4), "img": _R.randn(2, 3, 8, 8),
    "ker": _R.randn(4, 3, 3, 3), "sig": _R.randn(2, 16),
}  # fmt: skip
_INTS = {"i": _R.randint(-9, 9, (3, 4)), "j": _R.randint(1, 7, (3, 4)), "k": _R.randint(0, 5, (12,))}


class _Inputs:
    """Arrays by name, in JAX's default precision: floats x y (any) p q (positive) u (-1, 1) o (0, 1) g (above 1),
    vectors v w, matrices m e, a symmetric one s, a positive definite one d, ints i j k, bools b c, complex z zm."""

    def __init__(self):
        for name, value in {**_DRAWS, **_INTS}.items():
            setattr(self, name, jnp.asarray(value))
        self.b, self.c = self.x > 0, self.y > 0.2
        self.s = self.m + self.m.mT
        self.d = self.m @ self.m.mT + 2 * jnp.eye(4)
        self.z = self.x + 1j * self.y
        self.zm = self.m + 1j * self.e
        self.zv = self.v + 1j * self.w
        self.h = self.zm + self.zm.conj().mT
        self.zd = self.zm @ self.zm.conj().mT + 2 * jnp.eye(4)
        self.nan = self.x.at[0, 1].set(jnp.nan).at[2, 2].set(jnp.inf)
        self.half, self.brain = self.x.astype(jnp.float16), self.x.astype(jnp.bfloat16)
        self.short, self.byte = self.i.astype(jnp.int8), self.j.astype(jnp.uint8)
        self.words = self.j.astype(jnp.uint32) * jnp.uint32(2654435761)
        self.key = jax.random.key(3)


FAMILIES = {family.__name__: family for family in (*jax_functions_arrays.FAMILIES, *jax_functions_math.FAMILIES)}


def cases(*families):
    """name -> (function, arguments) of all or some families under the current x64 mode; made anew at each call."""
    inputs = _Inputs()
    found = {}
    for family in families or FAMILIES:
        for name, function, args in FAMILIES[family](inputs):
            assert name not in found, name
            found[name] = (function, args)
    return found


def leaves_of(result):
    """Flat NumPy arrays of a result, keys as their words."""
    out = []
    for leaf in jax.tree.leaves(result):
        if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            leaf = jax.random.key_data(leaf)
        out.append(np.asarray(leaf))
    return out


def difference(got, expected):
    """None, or how two flat results differ: exact for integers, 1e-9 in float64, 3e-4 in float32 and a few bits of halves."""
    if len(got) != len(expected):
        return f"{len(got)} results, expected {len(expected)}"
    for n, (g, e) in enumerate(zip(got, expected)):
        if (g.shape, g.dtype) != (e.shape, e.dtype):
            return f"result {n}: {g.dtype}{g.shape}, expected {e.dtype}{e.shape}"
        if e.dtype.kind in "biu":
            if not np.array_equal(g, e):
                return f"result {n}: {int(np.sum(g != e))} of {e.size} integers differ"
            continue
        eps = {2: 4e-2 if e.dtype.name == "bfloat16" else 4e-3, 4: 3e-4, 8: 1e-9 if e.dtype.kind == "f" else 3e-4}.get(
            e.dtype.itemsize, 1e-9
        )
        wide = np.complex128 if e.dtype.kind == "c" else np.float64
        g, e = g.astype(wide), e.astype(wide)
        if not np.array_equal(np.isnan(g), np.isnan(e)):
            return f"result {n}: NaN pattern differs"
        scale = np.max(np.abs(e[np.isfinite(e)]), initial=0.0)
        if not np.allclose(g, e, rtol=eps, atol=eps * min(max(scale, 1e-3), 1e3), equal_nan=True):
            with np.errstate(all="ignore"):
                return f"result {n}: off by {np.nanmax(np.abs(g - e)):.3g} at scale {scale:.3g}"
    return None


def gradient_of(function, args):
    """The gradient of a fixed mix of the function's real results in its floating arguments, or None where it has none."""
    moving = [n for n, x in enumerate(args) if jnp.issubdtype(x.dtype, jnp.floating)]
    if not moving:
        return None

    def mixed(*xs):
        full = list(args)
        for n, x in zip(moving, xs):
            full[n] = x
        total = 0.0
        for leaf in jax.tree.leaves(function(*full)):
            if jnp.issubdtype(leaf.dtype, jnp.inexact):
                weights = jnp.cos(jnp.arange(leaf.size) + 0.5).reshape(leaf.shape)
                total += jnp.sum((leaf.real + leaf.imag if jnp.iscomplexobj(leaf) else leaf) * weights)
        return total

    return jax.grad(mixed, tuple(range(len(moving)))), [args[n] for n in moving]


def disagreements(run, families, gradients=False, loose=()):
    """(number of comparisons, lines that say what went wrong) of run(function, args) -> flat arrays against jax.jit.

    A case that JAX itself refuses is not compared; `loose` names globs of cases that are only run. A refusal of the
    target is a line too: it begins with the case's name and ends with the error's text.
    """
    compared, lines = 0, []
    for name, (function, args) in cases(*families).items():
        try:
            if gradients:
                function, args = gradient_of(function, args) or (None, None)
            if function is None:
                continue
            expected = leaves_of(jax.jit(lambda *xs, f=function: f(*xs))(*args))
        except (TypeError, ValueError, AttributeError, NotImplementedError):
            continue
        compared += 1
        try:
            why = difference(run(function, args), expected)
        except NotImplementedError as error:
            why = str(error)
        if why and not any(fnmatch.fnmatch(name, glob) for glob in loose):
            lines.append(f"{name}: {why}")
    return compared, lines
