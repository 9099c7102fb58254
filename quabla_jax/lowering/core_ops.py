"""The core ops: the whole vocabulary between JAX and a target.

Each row: name, parameters, meaning. What a row says is exact (XLA's semantics for integers, bits, casts, NaN and
empty axes); a target implements every row it can and lists the rest as unsupported. Inputs of elementwise rows have
equal shapes and dtypes already: broadcasting and promotion are done by the rules.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CORE_OPS", "CoreOp"]


@dataclass(frozen=True)
class CoreOp:
    name: str
    params: tuple[str, ...]
    meaning: str
    family: str
    ulp: int = 0  # bar for float results, in units in the last place of the output dtype; 0: exact


def _table() -> dict[str, CoreOp]:
    rows: list[CoreOp] = []

    def family(name, *entries):
        for entry in entries:
            op, params, meaning, *ulp = entry
            rows.append(CoreOp(op, tuple(params.split()), meaning, name, *ulp))

    family(
        "unary",
        ("neg", "", "-x; unsigned and INT_MIN wrap"),
        ("abs", "", "|x|; INT_MIN stays; complex gives the modulus, in the real dtype"),
        ("sign", "", "-1, 0, 1 of x's dtype; NaN stays NaN, -0.0 stays -0.0; complex x/|x|"),
        ("floor", "", "toward -inf"),
        ("ceil", "", "toward +inf"),
        ("round_even", "", "nearest, ties to even"),
        ("exp", "", "e**x", 4),
        ("expm1", "", "e**x - 1", 4),
        ("log", "", "natural logarithm; negative gives NaN", 4),
        ("log1p", "", "log(1 + x)", 4),
        ("sqrt", "", "square root", 4),
        ("rsqrt", "", "1/sqrt(x)", 4),
        ("cbrt", "", "cube root, negative allowed", 4),
        ("sin", "", "sine, whole range", 4),
        ("cos", "", "cosine, whole range", 4),
        ("tan", "", "tangent, whole range", 4),
        ("asin", "", "arc sine", 4),
        ("acos", "", "arc cosine", 4),
        ("atan", "", "arc tangent", 4),
        ("sinh", "", "", 4),
        ("cosh", "", "", 4),
        ("tanh", "", "", 4),
        ("asinh", "", "", 4),
        ("acosh", "", "", 4),
        ("atanh", "", "", 4),
        ("logistic", "", "1/(1 + exp(-x))", 4),
        ("erf", "", "", 4),
        ("erfc", "", "", 4),
        ("erf_inv", "", "", 4),
        ("lgamma", "", "log |gamma(x)|", 4),
        ("digamma", "", "", 4),
        ("is_finite", "", "bool"),
        ("not", "", "bool: logical; integers: bitwise"),
        ("population_count", "", "number of one bits, in x's dtype"),
        ("clz", "", "number of leading zero bits, in x's dtype"),
        ("real", "", "complex -> real"),
        ("imag", "", "complex -> real"),
        ("conj", "", "complex conjugate"),
    )
    family(
        "binary",
        ("add", "", "integers wrap; bool: or"),
        ("sub", "", "integers wrap"),
        ("mul", "", "integers wrap; bool: and"),
        ("div", "", "floats IEEE; integers toward zero, x/0 = -1 (unsigned: all ones), INT_MIN/-1 = INT_MIN"),
        ("rem", "", "sign of the dividend; integers x%0 = x, INT_MIN%-1 = 0"),
        ("pow", "", "floats and complex", 4),
        ("atan2", "", "", 4),
        ("max", "", "NaN if either is NaN; max(-0.0, 0.0) = 0.0; bool: or"),
        ("min", "", "NaN if either is NaN; min(-0.0, 0.0) = -0.0; bool: and"),
        ("and", "", "bool and integers"),
        ("or", "", "bool and integers"),
        ("xor", "", "bool and integers"),
        ("shift_left", "", "a shift by the width or more (as unsigned) gives 0"),
        ("shift_right_logical", "", "a shift by the width or more (as unsigned) gives 0"),
        ("shift_right_arithmetic", "", "a shift by the width or more gives the sign fill"),
        ("nextafter", "", ""),
        ("complex", "", "two reals -> complex"),
        ("eq", "", "bool; NaN equals nothing"),
        ("ne", "", "bool"),
        ("lt", "", "bool; reals only"),
        ("le", "", "bool; reals only"),
        ("gt", "", "bool; reals only"),
        ("ge", "", "bool; reals only"),
    )
    family(
        "select",
        (
            "select",
            "",
            "(mask, on_true, on_false), all of one shape, or mask 0-d; what is not taken never shows",
        ),
        (
            "cast",
            "dtype",
            "float->int truncates, saturates, NaN -> 0; int->int wraps; to bool: x != 0; complex->real drops imag",
        ),
        ("bitcast", "dtype", "same bits, same width"),
    )
    family(
        "shape",
        ("reshape", "shape", "row-major"),
        ("transpose", "perm", "output axis i is input axis perm[i]"),
        ("broadcast", "shape dims", "input axis i goes to output axis dims[i]; size 1 stretches"),
        ("slice", "start limit stride", "static, in range, stride >= 1, one entry an axis"),
        ("pad", "low high interior", "(operand, 0-d value); low and high may be negative (crop)"),
        ("concat", "axis", "one or more operands"),
        ("rev", "axes", "reversed along axes"),
        ("iota", "dtype shape axis", "no operand; 0, 1, 2 ... along axis"),
        ("dynamic_slice", "sizes", "(operand, *0-d integer starts); starts clamped so that the slice fits"),
        (
            "dynamic_update_slice",
            "",
            "(operand, update, *0-d integer starts); starts clamped so that the update fits",
        ),
        (
            "take",
            "axis",
            "(operand, 1-d int32/int64 indices, all in range) -> operand with `axis` replaced by the indices",
        ),
        (
            "gather_flat",
            "",
            "(1-d operand, int32/int64 indices of any shape, all in range) -> operand[indices]",
        ),
        (
            "scatter_flat",
            "kind unique",
            "(1-d operand, 1-d indices all in range, 1-d updates); kind set|add|mul|min|max; set: last wins",
        ),
        (
            "scatter_rows",
            "kind unique",
            "scatter_flat over rows: (operand [P, R], 1-d indices all in range, updates [n, R])",
        ),
        (
            "take_along_axis",
            "axis",
            "(operand, int32/int64 indices in range, same rank) as numpy.take_along_axis",
        ),
    )
    family(
        "reduce",
        ("reduce_sum", "axes", "dtype kept (integers wrap); empty: 0. axes are removed"),
        ("reduce_prod", "axes", "empty: 1"),
        ("reduce_max", "axes", "NaN wins; empty: -inf, least integer, False"),
        ("reduce_min", "axes", "NaN wins; empty: +inf, greatest integer, True"),
        ("reduce_and", "axes", "bool and integers"),
        ("reduce_or", "axes", "bool and integers"),
        ("reduce_xor", "axes", "bool and integers"),
        ("argmax", "axis dtype", "first of the greatest; NaN counts as greatest"),
        ("argmin", "axis dtype", "first of the least; NaN counts as least"),
        ("cumsum", "axis reverse", ""),
        ("cumprod", "axis reverse", ""),
        ("cummax", "axis reverse", "NaN from the first NaN on"),
        ("cummin", "axis reverse", "NaN from the first NaN on"),
        (
            "argsort",
            "axis dtype",
            "stable, ascending; -0.0 before 0.0 are equal, NaN last (reals, integers, bool)",
        ),
        (
            "windows",
            "sizes strides dilation",
            "no padding: output shape = (number of windows per axis..., *sizes)",
        ),
    )
    family(
        "matmul",
        (
            "matmul",
            "dtype",
            "[B, m, k] @ [B, k, n] -> [B, m, n] of `dtype`; half precisions accumulate in float32; integers wrap",
        ),
        (
            "conv",
            "strides padding lhs_dilation rhs_dilation groups",
            "[N, C, *S] with [O, C/groups, *K], cross-correlation; padding ((lo, hi), ...) may be negative",
        ),
        ("fft", "kind lengths", "fft|ifft|rfft|irfft over the last len(lengths) axes"),
    )
    family(
        "linalg",
        (
            "cholesky",
            "",
            "[*, n, n] lower factor, upper triangle 0; reads the lower triangle; not positive definite: NaN",
        ),
        (
            "triangular_solve",
            "lower transpose unit_diagonal conjugate",
            "(a [*, n, n], b [*, n, m]) -> x with op(a) x = b, left side",
        ),
        ("lu", "", "[*, m, n] -> packed LU, int32 pivots [*, k], int32 permutation [*, m]"),
        ("qr", "full_matrices", "[*, m, n] -> Q, R (LAPACK's signs)"),
        ("eigh", "", "[*, n, n] symmetric (lower triangle read) -> eigenvectors, eigenvalues ascending"),
        ("svd", "full_matrices compute_uv", "-> s, U, Vh (s alone where not compute_uv)"),
        (
            "eig",
            "left right",
            "general: eigenvalues, then left, then right eigenvectors where asked; complex",
        ),
    )
    family(
        "host",
        (
            "host_call",
            "callback results effect",
            "callback(*inputs) on the host, results ((shape, dtype), ...); a target may refuse it. effect: it is called "
            "whenever the program comes by, in the program's order, read or not",
        ),
    )
    return {row.name: row for row in rows}


CORE_OPS: dict[str, CoreOp] = _table()
