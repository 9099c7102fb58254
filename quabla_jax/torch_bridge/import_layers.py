"""Reductions, sorting, products, layers and linear algebra."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ..errors import UnsupportedOperationError
from .import_pointwise import scaled
from .import_values import (
    axes_of,
    jax_dtype,
    listed,
    summable,
    table,
    together,
)

__all__ = ["OPERATORS"]

op, OPERATORS = table()

# ---- reductions


def _reduced(fun: Callable, x, dims=None, keepdim=False, dtype=None, **extra):
    if dtype is not None:  # stated to fun too: jax.numpy sums narrow integers in wide ones
        x = x.astype(jax_dtype(dtype))
        extra["dtype"] = x.dtype
    return fun(x, axis=axes_of(dims, x.ndim), keepdims=bool(keepdim), **extra)


def _dims_or_dtype(rest) -> tuple[Any, bool, Any]:
    """(dims, keepdim, dtype) of sum(x, dtype) and sum(x, dims, keepdim, dtype)."""
    if len(rest) <= 1:
        return None, False, rest[0] if rest else None
    return rest[0], rest[1], rest[2] if len(rest) > 2 else None


for _name, _fun in (("sum", jnp.sum), ("mean", jnp.mean)):

    @op(_name)
    def _sum(x, *rest, fun=_fun):
        dims, keepdim, dtype = _dims_or_dtype(rest)
        return _reduced(fun, summable(x, dtype) if fun is jnp.sum else x, dims, keepdim, dtype)


@op("prod")
def _prod(x, *rest):
    dims, keepdim, dtype = _dims_or_dtype(rest)
    return _reduced(jnp.prod, summable(x, dtype), dims, keepdim, dtype)


OPERATORS["aten::amax"] = lambda x, dims=(), keepdim=False: _reduced(jnp.max, x, dims, keepdim)
OPERATORS["aten::amin"] = lambda x, dims=(), keepdim=False: _reduced(jnp.min, x, dims, keepdim)
OPERATORS["aten::logsumexp"] = lambda x, dims, keepdim=False: jax.nn.logsumexp(
    x, axes_of(dims, x.ndim), keepdims=keepdim
)
OPERATORS["aten::count_nonzero"] = lambda x, dims=None: jnp.count_nonzero(x, axes_of(dims, x.ndim))

for _name, _fun in (("all", jnp.all), ("any", jnp.any)):
    OPERATORS[f"aten::{_name}"] = lambda x, dims=None, keepdim=False, fun=_fun: (
        fun(x, axis=axes_of(dims, x.ndim), keepdims=keepdim)
        if hasattr(x, "dtype")
        else {jnp.all: all, jnp.any: any}[fun](x)
    )

for _name, _fun, _arg in (("max", jnp.max, jnp.argmax), ("min", jnp.min, jnp.argmin)):

    @op(_name)
    def _extreme(x, dim=None, keepdim=False, fun=_fun, arg=_arg):
        """max(x), max(x, y) and max(x, dim, keepdim) -> values, indices."""
        if dim is None:
            return fun(x)
        if hasattr(dim, "dtype"):
            return together(jnp.maximum if fun is jnp.max else jnp.minimum, x, dim)
        return fun(x, axis=dim, keepdims=keepdim), arg(x, axis=dim, keepdims=keepdim).astype(jnp.int64)


for _name, _fun in (("argmax", jnp.argmax), ("argmin", jnp.argmin)):
    OPERATORS[f"aten::{_name}"] = lambda x, dim=None, keepdim=False, fun=_fun: fun(
        x, axis=dim, keepdims=keepdim
    ).astype(jnp.int64)

for _name, _fun in (("var", jnp.var), ("std", jnp.std)):

    @op(_name)
    def _spread(x, *rest, fun=_fun):
        if len(rest) <= 1 and not isinstance(rest[0] if rest else True, (list, tuple)):
            return fun(x, ddof=int(rest[0]) if rest else 1)
        dims, unbiased, keepdim = (*rest, *(True, False)[len(rest) - 1 :])[:3]
        return fun(
            x,
            axis=axes_of(dims, x.ndim),
            ddof=1 if unbiased is None else int(unbiased),
            keepdims=bool(keepdim),
        )


@op("norm", "linalg_vector_norm")
def _norm(x, p=2, dims=None, keepdim=False, dtype=None):
    if isinstance(dims, int):  # aten::norm.ScalarOpt_dtype; axes come as a list
        dims, dtype = None, dims
    if dtype is not None:
        x = x.astype(jax_dtype(dtype))
    axes = axes_of(dims, x.ndim) or tuple(range(x.ndim))
    kept = [size for axis, size in enumerate(x.shape) if axis not in axes]
    vectors = jnp.moveaxis(x, axes, range(len(axes))).reshape(-1, *kept)
    out = jnp.linalg.norm(vectors, 2 if p is None else p, 0)
    return jnp.expand_dims(out, axes) if keepdim else out


for _name, _fun in (("cumsum", jnp.cumsum), ("cumprod", jnp.cumprod)):

    @op(_name)
    def _running(x, dim, dtype=None, fun=_fun):
        x = summable(x, dtype) if dtype is None else x.astype(jax_dtype(dtype))
        return fun(x, axis=dim, dtype=x.dtype)


def _cumulative_extreme(fun: Callable, at_least: Callable) -> Callable:
    def run(x, dim):
        best = fun(x, axis=dim % max(x.ndim, 1))
        line = lax.broadcasted_iota(jnp.int64, x.shape, dim % max(x.ndim, 1))
        return best, lax.cummax(jnp.where(at_least(x, best), line, 0), axis=dim % max(x.ndim, 1))

    return run


OPERATORS["aten::cummax"] = _cumulative_extreme(lax.cummax, lambda x, best: x >= best)
OPERATORS["aten::cummin"] = _cumulative_extreme(lax.cummin, lambda x, best: x <= best)


@op("sort")
def _sort(x, *rest):
    stable, dim, descending = rest if len(rest) == 3 else (True, *(rest or (-1, False)))
    order = jnp.argsort(x, axis=dim, stable=True, descending=bool(descending))
    return jnp.take_along_axis(x, order, dim), order.astype(jnp.int64)


@op("argsort")
def _argsort(x, *rest):
    """argsort(x, dim, descending) and argsort.stable(x, stable, dim, descending)."""
    dim, descending = rest[-2:] if rest else (-1, False)
    return jnp.argsort(x, axis=dim, stable=True, descending=bool(descending)).astype(jnp.int64)


@op("topk")
def _topk(x, k, dim=-1, largest=True, sorted_=True):
    moved = jnp.moveaxis(x if largest else -x, dim, -1)
    values, order = lax.top_k(moved, k)
    return jnp.moveaxis(values if largest else -values, -1, dim), jnp.moveaxis(order, -1, dim).astype(jnp.int64)


# ---- products and layers


OPERATORS["aten::mm"] = OPERATORS["aten::bmm"] = lambda x, y: x @ y
OPERATORS["aten::matmul"] = lambda x, y: x @ y
OPERATORS["aten::mv"] = OPERATORS["aten::dot"] = lambda x, y: x @ y
OPERATORS["aten::outer"] = lambda x, y: jnp.outer(x, y)
OPERATORS["aten::einsum"] = lambda equation, operands, *_: jnp.einsum(equation, *listed(operands))
OPERATORS["aten::linear"] = lambda x, w, b=None: x @ w.T if b is None else x @ w.T + b
OPERATORS["aten::embedding"] = lambda w, index, *_: w[index]
OPERATORS["aten::addmm"] = lambda b, x, y, beta=1, alpha=1: scaled(b, beta) + scaled(x @ y, alpha)
OPERATORS["aten::baddbmm"] = OPERATORS["aten::addmm"]


@op("softmax", "_softmax")
def _softmax(x, dim, dtype=None):
    return jax.nn.softmax(x if type(dtype) is not int else x.astype(jax_dtype(dtype)), axis=dim)


@op("log_softmax", "_log_softmax")
def _log_softmax(x, dim, dtype=None):
    return jax.nn.log_softmax(x if type(dtype) is not int else x.astype(jax_dtype(dtype)), axis=dim)


@op("layer_norm")
def _layer_norm(x, shape, weight=None, bias=None, eps=1e-5, *_):
    axes = tuple(range(x.ndim - len(shape), x.ndim))
    mean = x.mean(axes, keepdims=True)
    y = (x - mean) * lax.rsqrt(jnp.square(x - mean).mean(axes, keepdims=True) + eps)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


@op("batch_norm")
def _batch_norm(x, weight, bias, mean, var, training, momentum, eps, *_):
    if training:
        raise UnsupportedOperationError(
            "batch_norm in training mode updates its statistics in place", op="aten::batch_norm"
        )
    wide = lambda v: v.reshape((1, -1) + (1,) * (x.ndim - 2))
    y = (x - wide(mean)) * lax.rsqrt(wide(var) + eps)
    y = y if weight is None else y * wide(weight)
    return y if bias is None else y + wide(bias)


def _convolution(x, w, b, stride, padding, dilation, groups):
    space = w.ndim - 2
    spread = lambda v: tuple(v) * space if len(v) == 1 else tuple(v)
    pads = padding.upper() if isinstance(padding, str) else [(p, p) for p in spread(padding)]
    batched = x if x.ndim == w.ndim else x[None]
    letters = "DHW"[3 - space :]
    y = lax.conv_general_dilated(
        batched, w, spread(stride), pads, rhs_dilation=spread(dilation), feature_group_count=groups,
        dimension_numbers=(f"NC{letters}", f"OI{letters}", f"NC{letters}"),
    )  # fmt: skip
    y = y if b is None else y + b.reshape((1, -1) + (1,) * space)
    return y if x.ndim == w.ndim else y[0]


for _name in ("conv1d", "conv2d", "conv3d"):
    OPERATORS[f"aten::{_name}"] = lambda x, w, b=None, stride=(1,), padding=(0,), dilation=(1,), groups=1: _convolution(
        x, w, b, stride, padding, dilation, groups
    )


@op("_convolution", "convolution")
def _convolution_general(x, w, b, stride, padding, dilation, transposed, output_padding, groups, *_):
    if transposed:
        raise UnsupportedOperationError("transposed convolution", op="aten::_convolution")
    return _convolution(x, w, b, stride, padding, dilation, groups)


def _windowed(x, size, stride, padding, init, combine):
    space = len(size)
    lead = x.ndim - space
    full = lambda v, one: (one,) * lead + tuple(v)
    return lax.reduce_window(
        x, init, combine, full(size, 1), full(stride or size, 1), full([(p, p) for p in padding], (0, 0))
    )


def _pooled(x, size, stride, padding, space, mean):
    wide = lambda v: tuple(v) * space if len(v) == 1 else tuple(v)
    size, padding = wide(size), wide(padding)
    stride = wide(stride) if stride else size
    if mean:
        return _windowed(x, size, stride, padding, 0.0, lax.add) / math.prod(size)
    return _windowed(x, size, stride, padding, -jnp.inf, lax.max)


for _space in (1, 2, 3):
    OPERATORS[f"aten::max_pool{_space}d"] = (
        lambda x, size, stride=(), padding=(0,), dilation=(1,), ceil=False, n=_space: _pooled(
            x, size, stride, padding, n, False
        )
    )
    OPERATORS[f"aten::avg_pool{_space}d"] = lambda x, size, stride=(), padding=(0,), *_, n=_space: _pooled(
        x, size, stride, padding, n, True
    )


@op("adaptive_avg_pool2d")
def _adaptive(x, size):
    if tuple(size) != (1, 1):
        raise UnsupportedOperationError(f"adaptive_avg_pool2d to {size}", op="aten::adaptive_avg_pool2d")
    return x.mean((-2, -1), keepdims=True)


@op("scaled_dot_product_attention")
def _attention(q, k, v, mask=None, dropout=0.0, causal=False, scale=None, *_):
    scores = (q @ jnp.swapaxes(k, -1, -2)) * (scale if scale is not None else 1 / math.sqrt(q.shape[-1]))
    if causal:
        scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -jnp.inf)
    if mask is not None:
        scores = jnp.where(mask, scores, -jnp.inf) if mask.dtype == bool else scores + mask
    return jax.nn.softmax(scores, -1) @ v


@op("mse_loss")
def _mse(x, y, reduction=1):
    d = jnp.square(x - y)
    return d if reduction == 0 else d.mean() if reduction == 1 else d.sum()


# ---- linear algebra


OPERATORS["aten::linalg_cholesky_ex"] = lambda x, upper=False, check=False: (
    jnp.linalg.cholesky(x, upper=upper),
    jnp.zeros(x.shape[:-2], jnp.int32),
)
OPERATORS["aten::linalg_cholesky"] = OPERATORS["aten::cholesky"] = lambda x, upper=False: jnp.linalg.cholesky(
    x, upper=upper
)
OPERATORS["aten::linalg_eigh"] = lambda x, uplo="L": tuple(jnp.linalg.eigh(x, UPLO=uplo))
OPERATORS["aten::linalg_qr"] = lambda x, mode="reduced": tuple(jnp.linalg.qr(x, mode))
OPERATORS["aten::linalg_svd"] = lambda x, full=True, driver=None: tuple(jnp.linalg.svd(x, full_matrices=full))
OPERATORS["aten::linalg_svdvals"] = lambda x, driver=None: jnp.linalg.svd(x, compute_uv=False)
OPERATORS["aten::linalg_inv"] = OPERATORS["aten::inverse"] = lambda x: jnp.linalg.inv(x)
OPERATORS["aten::linalg_solve"] = lambda a, b, left=True: jnp.linalg.solve(a, b)
OPERATORS["aten::linalg_det"] = OPERATORS["aten::det"] = lambda x: jnp.linalg.det(x)
OPERATORS["aten::linalg_eig"] = lambda x: tuple(jnp.linalg.eig(x))
OPERATORS["aten::linalg_lu_factor_ex"] = lambda x, pivot=True, check=False: _lu(x)
OPERATORS["aten::lu_unpack"] = lambda lu, pivots, data=True, piv=True: _lu_unpack(lu, pivots)


def _lu(x):
    packed, pivots, _ = lax.linalg.lu(x)
    return packed, (pivots + 1).astype(jnp.int32), jnp.zeros(x.shape[:-2], jnp.int32)


def _lu_unpack(lu, pivots):
    n = lu.shape[-2]
    order = lax.linalg.lu_pivots_to_permutation(pivots - 1, n)
    swaps = jnp.swapaxes(jax.nn.one_hot(order, n, dtype=lu.dtype), -1, -2)
    return swaps, jnp.tril(lu, -1) + jnp.eye(n, lu.shape[-1], dtype=lu.dtype), jnp.triu(lu)


@op("linalg_solve_triangular")
def _solve_triangular(a, b, upper, left=True, unit=False):
    return lax.linalg.triangular_solve(a, b, left_side=left, lower=not upper, unit_diagonal=unit)
