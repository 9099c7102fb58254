"""Cases of tests/jax_functions.py: elementwise functions, reductions, windows, transforms, shapes, indices, sorting."""

# fmt: off
import jax
import jax.numpy as jnp
import jax.scipy as jsp
import numpy as np
from jax import lax


def elementwise(a):
    jn, sp = jnp, jsp.special
    groups = [
        (jn, "abs sin cos tan exp expm1 exp2 tanh sinh cosh arctan arcsinh cbrt ceil floor rint round trunc fix sign signbit square sinc negative positive reciprocal isnan isinf isfinite isposinf isneginf degrees radians deg2rad rad2deg nan_to_num real imag conj angle i0 fabs spacing isreal iscomplex logical_not frexp modf unwrap diff ediff1d cumsum cumprod", [a.x]),
        (jn, "log log2 log10 log1p sqrt", [a.p]),
        (jn, "arcsin arccos arctanh", [a.u]),
        (jn, "arccosh", [a.g]),
        (jn, "abs sin cos tan exp expm1 log log1p log2 log10 sqrt tanh sinh cosh arctan arcsin arccos arcsinh arccosh arctanh sign square reciprocal conj real imag angle isnan isfinite rint round exp2 sinc negative nan_to_num iscomplex sort_complex cumsum cumprod", [a.z]),
        (jn, "abs sign square negative bitwise_not invert bitwise_count isnan sqrt exp logical_not cumsum cumprod diff rint floor signbit", [a.i]),
        (jn, "add subtract multiply divide arctan2 hypot maximum minimum fmax fmin fmod remainder mod floor_divide divmod copysign nextafter logaddexp logaddexp2 heaviside greater greater_equal less less_equal equal not_equal isclose logical_and logical_or logical_xor ", [a.x, a.y]),
        (jn, "power float_power true_divide", [a.p, a.y]),
        (jn, "add subtract multiply divide power equal not_equal maximum minimum greater less isclose", [a.z, a.z[::-1]]),
        (jn, "add subtract multiply divide floor_divide remainder mod fmod divmod bitwise_and bitwise_or bitwise_xor left_shift right_shift gcd lcm maximum minimum greater less power float_power arctan2 hypot logical_and", [a.i, a.j]),
        (sp, "gammaln gamma loggamma digamma erf erfc expit log_ndtr ndtr i0 i0e i1 i1e dawsn gammasgn erfcx", [a.x]),
        (sp, "entr exp1 expi spence fresnel sici factorial", [a.p]),
        (sp, "logit ndtri", [a.o]),
        (sp, "erfinv", [a.u]),
        (sp, "xlogy xlog1py beta betaln gammainc gammaincc kl_div rel_entr poch", [a.p, a.q]),
        (sp, "owens_t boxcox boxcox1p", [a.p, a.u]),
        (jax.nn, "celu elu gelu glu hard_sigmoid hard_silu hard_tanh leaky_relu log_sigmoid log_softmax logsumexp mish relu relu6 selu sigmoid silu soft_sign softmax softplus sparse_plus sparse_sigmoid squareplus standardize identity logmeanexp", [a.x]),
        (jax.nn, "log1mexp", [a.p]),
        (lax, "acos asin atanh", [a.u]), (lax, "acosh", [a.g]),
        (lax, "abs asinh atan bessel_i0e bessel_i1e cbrt ceil cos cosh digamma erf erfc exp exp2 expm1 floor is_finite lgamma logistic neg round sign sin sinh square tan tanh", [a.x]),
        (lax, "log log1p rsqrt sqrt reciprocal", [a.p]), (lax, "erf_inv", [a.u]),
        (lax, "igamma igammac igamma_grad_a random_gamma_grad", [a.p, a.q]),
        (lax, "add atan2 complex div eq ge gt le lt max min mul ne nextafter rem sub", [a.x, a.y]),
        (lax, "bitwise_not clz population_count neg sign abs", [a.i]),
        (lax, "bitwise_and bitwise_or bitwise_xor shift_left shift_right_arithmetic shift_right_logical div rem mulhi max", [a.i, a.j]),
        (lax, "clz population_count bitwise_not", [a.words]),
        (lax, "shift_left shift_right_arithmetic shift_right_logical mulhi div rem", [a.words, a.words[::-1] % 31 + 1]),
        (lax, "log1p exp sin tanh sqrt rsqrt abs sign conj real imag neg square", [a.z]),
    ]  # fmt: skip
    for module, names, args in groups:
        for name in names.split():
            if hasattr(module, name):
                kind = args[0].dtype.name
                yield f"{module.__name__}.{name}[{kind}]", getattr(module, name), args
    for name in "sin exp tanh log1p sqrt".split():
        yield f"jax.numpy.{name}[float16]", getattr(jn, name), [jnp.abs(a.half)]
        yield f"jax.numpy.{name}[bfloat16]", getattr(jn, name), [jnp.abs(a.brain)]
    for name in "add subtract multiply floor_divide remainder left_shift right_shift power maximum".split():
        yield f"jax.numpy.{name}[int8]", getattr(jn, name), [a.short, a.short[::-1] | 1] if name != "power" else [a.short, a.byte]
        yield f"jax.numpy.{name}[uint8]", getattr(jn, name), [a.byte * 37, a.byte[::-1]]
    yield "jnp aliases", lambda x, z: (jnp.absolute(z), jnp.amax(x, 0), jnp.amin(x), jnp.conjugate(z)), [a.x, a.z]
    yield "jnp bit aliases", lambda i, j: (jnp.bitwise_invert(i), jnp.bitwise_left_shift(i, j), jnp.bitwise_right_shift(i, j)), [a.i, a.j]
    yield "jnp.frompyfunc", lambda x: jnp.frompyfunc(lambda p, q: p * 0.5 + q, nin=2, nout=1).reduce(x, axis=1), [a.x]
    yield "nn.swish", lambda x: (jax.nn.swish(x), jax.nn.hard_swish(x)), [a.x]
    yield "special.betainc", sp.betainc, [a.p, a.q, a.o]
    yield "lax.betainc", lax.betainc, [a.p, a.q, a.o]
    yield "special.zeta", sp.zeta, [a.g, a.p]
    yield "special.polygamma", lambda x: [sp.polygamma(n, x) for n in (0, 1, 3)], [a.p]
    yield "lax.polygamma", lambda x: lax.polygamma(jnp.full_like(x, 2.0), x), [a.p]
    yield "lax.zeta", lax.zeta, [a.g, a.q]
    yield "special.multigammaln", lambda x: sp.multigammaln(x + 2, 2), [a.p]
    yield "special.bernoulli", lambda: sp.bernoulli(6), []
    yield "special.bessel_jn", lambda z: sp.bessel_jn(z, v=3), [jnp.linspace(0.1, 6, 5)]
    yield "special.comb", lambda n, k: sp.comb(n + 4.0, k), [a.j, a.j[::-1] % 4]
    yield "special.expn", lambda x: sp.expn(2, x), [a.p]
    yield "special.hyp1f1", lambda x: sp.hyp1f1(1.2, 2.3, x), [a.u]
    yield "special.hyp2f1", lambda x: sp.hyp2f1(0.5, 1.5, 2.5, x), [a.u]
    yield "special.sph_harm_y", lambda t, f: sp.sph_harm_y(jnp.array([2, 3]), jnp.array([1, 2]), t, f, n_max=3), [a.p[0, :2], a.q[0, :2]]
    yield "special.wofz", sp.wofz if hasattr(sp, "wofz") else jnp.sin, [a.z]
    yield "special.logsumexp", lambda x, b: sp.logsumexp(x, axis=0, b=b, return_sign=True), [a.x, a.y]
    yield "special.softmax", lambda x: (sp.softmax(x, axis=0), sp.log_softmax(x)), [a.x]
    yield "lax.integer_pow", lambda x: [lax.integer_pow(x, n) for n in (-3, 0, 2, 7)], [a.x]
    yield "lax.pow", lambda x, y, i: (lax.pow(x, y), lax.pow(x, i)), [a.p, a.y, a.j]
    yield "lax.clamp", lambda x, i: (lax.clamp(-0.5, x, 0.5), lax.clamp(jnp.full_like(x, -0.1), x, jnp.abs(x)), lax.clamp(-3, i, 2)), [a.x, a.i]
    yield "lax.reduce_precision", lambda x: [lax.reduce_precision(x, e, m) for e, m in ((5, 10), (8, 7), (4, 3))], [a.x * 100]
    yield "lax.bitcast_convert_type", lambda x, w: (lax.bitcast_convert_type(x, jnp.int32), lax.bitcast_convert_type(w, jnp.float32), lax.bitcast_convert_type(w, jnp.uint8), lax.bitcast_convert_type(w.reshape(6, 2), jnp.uint16)), [a.x.astype(jnp.float32), a.words]
    yield "lax.round", lambda x: [lax.round(x, r) for r in lax.RoundingMethod], [a.x * 4]
    yield "lax.select", lambda b, x, y: lax.select(b, x, y), [a.b, a.x, a.y]
    yield "lax.select_n", lambda i, x, y: lax.select_n(i % 3, x, y, x + y), [a.j, a.x, a.y]
    yield "lax.select_n[scalar]", lambda i, x, y: lax.select_n(i % 3, x, y, x + y), [a.j[0, 0], a.x, a.y]
    yield "jnp.round[decimals]", lambda x: (jnp.round(x, 2), jnp.around(x * 100, -1)), [a.x]
    yield "jnp.clip", lambda x, i: (jnp.clip(x, -0.3, 0.4), jnp.clip(i, None, 3)), [a.x, a.i]
    yield "jnp.ldexp", lambda x, i: jnp.ldexp(x, i), [a.x, a.i]
    yield "jnp.where", lambda b, x, y: (jnp.where(b, x, y), jnp.where(b, 1, y)), [a.b, a.x, a.y]
    yield "jnp.select", lambda x, y: jnp.select([x > 1, x > 0], [x, y], -1.0), [a.x, a.y]
    yield "jnp.piecewise", lambda x: jnp.piecewise(x, [x < -0.5, x > 0.5], [jnp.sin, jnp.cos, 3.0]), [a.x]
    yield "jnp.choose", lambda i, x, y: jnp.choose(i % 2, [x, y], mode="wrap"), [a.j, a.x, a.y]
    yield "jnp.astype", lambda x, i: [x.astype(d) for d in (jnp.int8, jnp.uint8, jnp.int32, jnp.uint32, bool, jnp.float16, jnp.bfloat16)] + [i.astype(d) for d in (jnp.int8, jnp.uint16, jnp.float32, bool, jnp.complex64)], [a.nan * 90, a.i * 40]
    yield "jnp.unpackbits", lambda u: (jnp.unpackbits(u), jnp.packbits(u > 3), jnp.unpackbits(u, axis=1, count=5, bitorder="little")), [a.byte]
    yield "jnp.vectorize", jnp.vectorize(lambda x, y: x @ y, signature="(n),(n)->()"), [a.x, a.y]
    yield "nn.one_hot", lambda k: (jax.nn.one_hot(k, 4), jax.nn.one_hot(k - 1, 5, axis=0, dtype=jnp.int32)), [a.k]


def reductions(a):
    for name in "sum prod mean std var max min ptp median nansum nanmean nanmax nanmin nanstd nanvar nanprod nanmedian argmax argmin nanargmax nanargmin".split():
        f = getattr(jnp, name)
        yield f"jnp.{name}", lambda x, f=f: (f(x), f(x, axis=0), f(x, axis=-1)), [a.nan.at[2, 2].set(2.0) if name.startswith("nan") else a.x]
    for name in "sum prod max min any all count_nonzero mean std argmax argmin".split():
        f = getattr(jnp, name)
        yield f"jnp.{name}[int]", lambda x, f=f: (f(x), f(x, axis=1, keepdims=True)), [a.i]
        yield f"jnp.{name}[bool]", lambda x, f=f: (f(x), f(x, axis=0)), [a.b]
        yield f"jnp.{name}[nan]", lambda x, f=f: (f(x), f(x, axis=0)), [a.nan]
    for name in "sum prod mean var any".split():
        yield f"jnp.{name}[complex]", lambda x, f=getattr(jnp, name): (f(x), f(x, axis=0)), [a.z]
    for name in "sum mean max std".split():
        yield f"jnp.{name}[half]", lambda x, y, f=getattr(jnp, name): (f(x, axis=0), f(y, axis=1)), [a.half, a.brain]
    yield "jnp.sum[where]", lambda x, b: (jnp.sum(x, where=b), jnp.max(x, where=b, initial=-3.0), jnp.mean(x, axis=0, where=b | True)), [a.x, a.b]
    yield "jnp.sum[int8]", lambda x: (jnp.sum(x), jnp.sum(x, dtype=jnp.int8), jnp.prod(x, axis=0)), [a.short]
    yield "jnp.sum[empty]", lambda x: (jnp.sum(x[:0], 0), jnp.prod(x[:0], 0), jnp.all(x[:0] > 0), jnp.mean(x[:, :2], axis=())), [a.x]
    for name in "quantile percentile nanquantile nanpercentile".split():
        scale = 100 if "percent" in name else 1
        for method in ("linear", "lower", "higher", "midpoint", "nearest"):
            yield f"jnp.{name}[{method}]", lambda x, f=getattr(jnp, name), s=scale, m=method: f(x, jnp.array([0.1, 0.5, 0.93]) * s, axis=1, method=m), [a.x if "nan" not in name else a.x.at[0, 1].set(jnp.nan)]
    yield "jnp.average", lambda x, p: jnp.average(x, axis=0, weights=p, returned=True), [a.x, a.p]
    yield "jnp.cov", lambda x, y: (jnp.cov(x), jnp.corrcoef(x), jnp.cov(x, y, bias=True)), [a.x, a.y]
    yield "jnp.nancumsum", lambda x: (jnp.nancumsum(x), jnp.nancumprod(x, axis=0)), [a.nan]
    yield "jnp.cumulative_sum", lambda x: (jnp.cumulative_sum(x, axis=1, include_initial=True), jnp.cumulative_prod(x, axis=0)), [a.x]
    yield "jnp.histogram", lambda v: (*jnp.histogram(v, bins=5, range=(-2, 2)), *jnp.histogram(v, bins=4, density=True)), [a.v]
    yield "jnp.histogram2d", lambda x, y: jnp.histogram2d(x.ravel(), y.ravel(), bins=3), [a.x, a.y]
    yield "jnp.histogramdd", lambda x: jnp.histogramdd(x[:, :2], bins=[2, 3])[0], [a.x]
    yield "jnp.histogram_bin_edges", lambda v: jnp.histogram_bin_edges(v, 4), [a.v]
    yield "jnp.bincount", lambda k: (jnp.bincount(k, length=6), jnp.bincount(k, weights=k * 0.5, length=4)), [a.k]
    yield "jnp.digitize", lambda v: (jnp.digitize(v, jnp.array([-1.0, 0, 1])), jnp.digitize(v, jnp.array([1.0, 0, -1]), right=True)), [a.v]
    yield "jnp.trapezoid", lambda x, v: (jnp.trapezoid(x), jnp.trapezoid(v, jnp.arange(5.0) ** 2), jsp.integrate.trapezoid(x, dx=0.1, axis=0)), [a.x, a.v]
    yield "jnp.apply_along_axis", lambda x: jnp.apply_along_axis(lambda r: r[1:] - r[0], 1, x), [a.x]
    yield "jnp.apply_over_axes", lambda t: jnp.apply_over_axes(jnp.sum, t, [0, 2]), [a.t]
    yield "jnp.gradient", lambda x, v: (jnp.gradient(x), jnp.gradient(v, 0.5), jnp.gradient(v, jnp.arange(5.0) ** 1.5)), [a.x, a.v]
    yield "jnp.allclose", lambda x, y: (jnp.allclose(x, y), jnp.array_equal(x, x), jnp.array_equiv(x, x[0])), [a.x, a.y]
    for name in "reduce_sum reduce_max reduce_min reduce_prod".split():
        yield f"lax.{name}", lambda t, f=getattr(lax, name): f(t, (0, 2)), [a.t]
    for name in "reduce_and reduce_or reduce_xor".split():
        yield f"lax.{name}", lambda b, i, f=getattr(lax, name): (f(b, (0,)), f(i, (1,))), [a.b, a.i]
    yield "lax.reduce", lambda x: lax.reduce(x, 1.5, lambda p, q: p * q + 0 * p, (1,)), [a.x]
    yield "lax.reduce[two]", lambda x, i: lax.reduce((x, i), (jnp.asarray(-jnp.inf, x.dtype), jnp.asarray(0, i.dtype)), lambda p, q: (jnp.maximum(p[0], q[0]), jnp.where(p[0] > q[0], p[1], q[1])), (1,)), [a.x, lax.broadcasted_iota("int32", (3, 4), 1)]
    yield "lax.argmax", lambda x: (lax.argmax(x, 1, jnp.int32), lax.argmin(x, 0, jnp.uint8)), [a.nan]
    for name in "cumsum cumprod cummax cummin cumlogsumexp".split():
        f = getattr(lax, name)
        yield f"lax.{name}", lambda x, f=f: (f(x, 0), f(x, 1, reverse=True)), [a.x]
        if name != "cumlogsumexp":
            yield f"lax.{name}[int]", lambda x, f=f: (f(x, 1), f(x, 0, reverse=True)), [a.i]
            yield f"lax.{name}[nan]", lambda x, f=f: f(x, 1), [a.nan]
    yield "lax.associative_scan", lambda x: (lax.associative_scan(jnp.multiply, x), lax.associative_scan(lambda p, q: (p[0] * q[0], q[0] * p[1] + q[1]), (x, x * 2), axis=1, reverse=True)), [a.x]
    for name in "segment_sum segment_prod segment_max segment_min".split():
        f = getattr(jax.ops, name)
        yield f"ops.{name}", lambda v, k, f=f: (f(v, k[:5], 6), f(v, jnp.sort(k[:5]), 4, indices_are_sorted=True)), [a.v, a.k]


def windows(a):
    sizes = dict(window_dimensions=(1, 1, 3, 2), window_strides=(1, 1, 2, 1))
    for name, init, f in (("add", 0.0, lax.add), ("max", -jnp.inf, lax.max), ("min", jnp.inf, lax.min), ("mul", 1.0, lax.mul)):
        yield f"lax.reduce_window[{name}]", lambda x, f=f, i=init: (lax.reduce_window(x, i, f, padding="SAME", **sizes), lax.reduce_window(x, i, f, (1, 1, 2, 2), (1, 1, 1, 2), ((0, 0), (0, 0), (1, 2), (0, 1)), window_dilation=(1, 1, 2, 3))), [a.img]
        yield f"lax.reduce_window[{name}, base]", lambda x, f=f, i=init: lax.reduce_window(x, i, f, (1, 1, 2, 2), (1, 1, 1, 2), "VALID", base_dilation=(1, 1, 2, 1)), [a.img]
    yield "lax.reduce_window[max int]", lambda i: lax.reduce_window(i, -100, lax.max, (2, 2), (1, 2), "SAME"), [a.i]
    yield "lax.reduce_window[general]", lambda x: lax.reduce_window(x, 0.5, lambda p, q: p + q * q * 0 + q, (1, 2), (1, 1), "VALID"), [a.x]
    conv = lax.conv_general_dilated
    yield "lax.conv", lambda x, k: (lax.conv(x, k, (1, 2), "SAME"), lax.conv_with_general_padding(x, k, (1, 1), ((1, 0), (2, 1)), (1, 2), (2, 1))), [a.img, a.ker]
    yield "lax.conv_general_dilated[nhwc]", lambda x, k: conv(jnp.moveaxis(x, 1, 3), k.transpose(2, 3, 1, 0), (2, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"), rhs_dilation=(2, 1)), [a.img, a.ker]
    yield "lax.conv_general_dilated[groups]", lambda x, k: (conv(x, k[:3, :1], (1, 1), "SAME", feature_group_count=3), conv(x, k[:, :3], (1, 1), "SAME", batch_group_count=2)), [a.img, a.ker]
    yield "lax.conv_general_dilated[1d]", lambda x, k: conv(x[:, :, 0], k[:, :, 0], (1,), ((3, -1),), lhs_dilation=(2,)), [a.img, a.ker]
    yield "lax.conv_general_dilated[3d]", lambda x, k: conv(x[:, None], k[:, None, :2, :2, :2], (1, 2, 2), "VALID"), [a.img, a.ker]
    yield "lax.conv_general_dilated[0d]", lambda x, k: conv(x[:, :, 0, 0], k[:, :, 0, 0], (), ()), [a.img, a.ker]
    yield "lax.conv_general_dilated[half]", lambda x, k: (conv(x.astype(jnp.bfloat16), k.astype(jnp.bfloat16), (1, 1), "SAME"), conv(x.astype(jnp.float16), k.astype(jnp.float16), (1, 1), "SAME", preferred_element_type=jnp.float32)), [a.img[:, :, :4, :4], a.ker]
    yield "lax.conv_general_dilated[int]", lambda i, k: conv(i[None, None], k[None, None], (1, 1), "SAME"), [a.i, a.j[:2, :2]]
    yield "lax.conv_general_dilated[complex]", lambda x, k: conv(x * (1 + 2j), k * (2 - 1j), (1, 1), "VALID"), [a.img, a.ker]
    yield "lax.conv_transpose", lambda x, k: lax.conv_transpose(jnp.moveaxis(x, 1, 3), k.transpose(2, 3, 1, 0), (2, 2), "SAME"), [a.img, a.ker]
    yield "lax.conv_general_dilated_patches", lambda x: lax.conv_general_dilated_patches(x, (2, 2), (1, 2), "VALID"), [a.img]
    yield "lax.conv_general_dilated_local", lambda x: lax.conv_general_dilated_local(x[:, :1, :3, :3], jnp.arange(32.0).reshape(2, 4, 2, 2), (1, 1), "VALID", (2, 2)), [a.img]
    yield "jnp.convolve", lambda v, w: [jnp.convolve(v, w[:3], mode=m) for m in ("full", "same", "valid")] + [jnp.correlate(v, w, mode="full")], [a.v, a.w]
    yield "jnp.convolve[complex]", lambda z: (jnp.convolve(z, z), jnp.correlate(z, z, "same")), [a.zv]
    yield "signal.convolve", lambda x, y: [jsp.signal.convolve(x, y[:2, :2], mode=m) for m in ("full", "same")] + [jsp.signal.convolve2d(x, y[:2, :3]), jsp.signal.correlate2d(x, y[:2, :3], mode="valid"), jsp.signal.correlate(x[0], y[0]), jsp.signal.convolve(x[0], y[0], method="fft")], [a.x, a.y]
    yield "nn.avg_pool", lambda x: lax.reduce_window(x, 0.0, lax.add, (1, 1, 2, 2), (1, 1, 2, 2), "VALID") / 4, [a.img]


def fourier(a):
    f = jnp.fft
    if jax.config.jax_enable_x64:
        cast, z = (lambda x: x.astype(jnp.float32)), a.z.astype(jnp.complex64)
    else:
        cast, z = (lambda x: x), a.z
    sig, x = cast(a.sig), cast(a.x)
    for name in "fft ifft hfft".split():
        yield f"fft.{name}", lambda s, g=getattr(f, name): (g(s), g(s, 5), g(s, axis=0, norm="ortho")), [z]
    for name in "fft ifft rfft ihfft".split():
        yield f"fft.{name}[real]", lambda s, g=getattr(f, name): (g(s), g(s, 11), g(s, 20, norm="forward")), [sig]
    yield "fft.irfft", lambda s: (f.irfft(f.rfft(s)), f.irfft(f.rfft(s), 13), f.irfft(s + 1j * s[::-1], axis=0)), [sig]
    for name in "fft2 ifft2 fftn ifftn rfft2 rfftn".split():
        yield f"fft.{name}", lambda s, g=getattr(f, name): (g(s), g(s, s=(4, 3))), [x]
    yield "fft.irfftn", lambda s: (f.irfftn(f.rfftn(s)), f.irfft2(f.rfft2(s), s=(3, 4))), [x]
    yield "scipy.fft.dctn", lambda s: (jsp.fft.dctn(s), jsp.fft.idctn(s, norm="ortho")), [x]
    yield "fft.shift", lambda s: (f.fftshift(s), f.ifftshift(s, axes=1), f.fftfreq(7), f.rfftfreq(6, 0.5)), [x]
    for name in "dct idct".split():
        yield f"scipy.fft.{name}", lambda s, g=getattr(jsp.fft, name): (g(s), g(s, norm="ortho")), [sig]
    s = jsp.signal
    yield "signal.fftconvolve", lambda x: s.fftconvolve(x, x[:2, :2]), [x]
    yield "signal.detrend", lambda v: (s.detrend(v), s.detrend(v, type="constant")), [sig]
    yield "signal.stft", lambda v: s.stft(v, nperseg=8)[2], [sig]
    yield "signal.istft", lambda v: s.istft(s.stft(v, nperseg=8)[2], nperseg=8)[1], [sig]
    yield "signal.welch", lambda v: s.welch(v, nperseg=8), [sig]
    yield "signal.csd", lambda v: s.csd(v, v[::-1], nperseg=8)[1], [sig]


def shapes(a):
    f = jnp
    yield "jnp.reshape", lambda x: (x.reshape(2, 6), x.T.reshape(-1), f.ravel(x, order="F"), f.reshape(x, (4, 3), order="F")), [a.x]
    yield "jnp.concatenate", lambda x, y: (f.concatenate([x, y]), f.concatenate([x, y], 1), f.concat([x, y], axis=None), f.append(x, y), f.append(x, y, 0), f.block([[x, y], [y, x]])), [a.x, a.y]
    yield "jnp.stack", lambda x, y: (f.stack([x, y]), f.stack([x, y], -1), f.hstack([x, y]), f.vstack([x, y]), f.dstack([x, y]), f.column_stack([x, y]), f.unstack(x, axis=1)), [a.x, a.y]
    yield "jnp.split", lambda x, v: (f.split(x, 2, 1), f.array_split(v, 3), f.hsplit(x, 2), f.vsplit(x, 3), lax.split(v, (2, 3)), f.split(v, [1, 3])), [a.x, a.v]
    yield "jnp.dsplit", lambda t: f.dsplit(t, 3), [a.t]
    yield "jnp.flip", lambda x: (f.flip(x), f.fliplr(x), f.flipud(x), f.rot90(x), f.rot90(x, 3), f.roll(x, 2), f.roll(x, (1, -2), (0, 1)), lax.rev(x, (1,))), [a.x]
    yield "jnp.roll[traced]", lambda x, k: f.roll(x, k, axis=1), [a.x, f.int32(-3)]
    yield "jnp.transpose", lambda t: (f.transpose(t), f.moveaxis(t, 0, -1), f.swapaxes(t, 0, 2), f.rollaxis(t, 2), f.permute_dims(t, (1, 2, 0)), f.matrix_transpose(t)), [a.t]
    yield "jnp.expand_dims", lambda x: (f.expand_dims(x, (0, 2)), f.squeeze(x[None]), f.atleast_3d(x), f.atleast_1d(x[0, 0]), f.atleast_2d(x[0])), [a.x]
    yield "jnp.tile", lambda x, v: (f.tile(x, (2, 3)), f.repeat(v, 3), f.repeat(x, f.array([1, 0, 2]), axis=0, total_repeat_length=3), f.broadcast_to(v, (2, 5)), f.resize(x, (2, 3)), f.broadcast_arrays(v, x[:, :1]), lax.tile(v, (2,))), [a.x, a.v]
    for mode in "constant edge reflect symmetric wrap linear_ramp maximum mean median minimum".split():
        yield f"jnp.pad[{mode}]", lambda x, m=mode: (f.pad(x, 1, mode=m), f.pad(x, ((2, 0), (1, 3)), mode=m)), [a.x]
    yield "jnp.pad[odd]", lambda x: (f.pad(x, 2, "reflect", reflect_type="odd"), f.pad(x, 1, constant_values=3.0), lax.pad(x, 0.5, ((1, -1, 2), (-1, 0, 1)))), [a.x]
    yield "jnp.diag", lambda x, v: (f.diag(x), f.diag(v, 1), f.diagonal(x, -1), f.diagflat(v), f.trace(x, 1), f.fill_diagonal(x[:, :3], 5.0, inplace=False), f.eye(3, 4, 1), f.identity(3), f.tri(3, 4)), [a.x, a.v]
    yield "jnp.tril", lambda x: (f.tril(x), f.triu(x, 1), x[f.tril_indices(3)], x[f.triu_indices_from(x[:, :3])], x[f.diag_indices(3)]), [a.x]
    yield "jnp.vander", lambda v: (f.vander(v), f.vander(v, 3, increasing=True)), [a.v]
    yield "jnp.meshgrid", lambda v, w: (f.meshgrid(v, w), f.meshgrid(v, w, indexing="ij", sparse=True), f.ix_(f.arange(2), f.arange(3)), f.indices((2, 3))), [a.v, a.w]
    yield "jnp.arange", lambda: (f.arange(5), f.arange(2.0, 7, 0.7), f.linspace(0, 1, 7), f.logspace(0, 2, 5), f.geomspace(1, 100, 4), f.linspace(f.zeros(2), f.ones(2), 3, endpoint=False), f.full((2,), 3), f.ones(3), f.zeros(2, bool)), []
    yield "jnp.linspace[traced]", lambda p: (f.linspace(p[0, 0], p[0, 1], 9), f.logspace(p[0, 0], p[0, 1], 5), f.geomspace(p[0, 0], p[0, 1], 5)), [a.p]
    for name in "bartlett blackman hamming hanning".split():
        yield f"jnp.{name}", lambda g=getattr(f, name): g(7), []
    yield "jnp.kaiser", lambda: f.kaiser(7, 3.0), []
    yield "jnp.kron", lambda x, y: (f.kron(x, y[:2, :2]), f.outer(x[0], y[0]), f.cross(x[:, :3], y[:, :3])), [a.x, a.y]
    yield "jnp.insert", lambda v: (f.insert(v, 2, 9.0), f.delete(v, 1), f.insert(v, f.array([1, 3]), 7.0), f.delete(v, f.array([0, 2]), assume_unique_indices=True)), [a.v]
    yield "lax.broadcast", lambda x: (lax.broadcast(x, (2,)), lax.broadcast_in_dim(x, (3, 2, 4), (0, 2)), lax.broadcasted_iota(jnp.float32, (2, 3), 1), lax.iota(jnp.uint8, 5), lax.collapse(x, 0), lax.expand_dims(x, (1,)), lax.squeeze(x[None], (0,)), lax.full_like(x, 2.0)), [a.x]
    yield "jnp.unravel_index", lambda k: (f.unravel_index(k, (3, 4)), f.ravel_multi_index((k % 3, k % 4), (3, 4), mode="wrap"), f.ravel_multi_index((k, k), (3, 4), mode="clip")), [a.k]
    yield "image.resize", lambda x: [jax.image.resize(x, (5, 9), m) for m in ("nearest", "linear", "cubic", "lanczos3", "lanczos5")] + [jax.image.resize(x, (2, 3), "linear", antialias=False)], [a.x]
    yield "image.scale_and_translate", lambda x: jax.image.scale_and_translate(x, (5, 6), (0, 1), jnp.array([1.3, 0.8]), jnp.array([0.1, -0.4]), "linear"), [a.x]
    yield "ndimage.map_coordinates", lambda x, u: [jsp.ndimage.map_coordinates(x, [u[0] * 3, u[1] * 4], o, m) for o in (0, 1) for m in ("constant", "nearest", "wrap", "mirror", "reflect")], [a.x, a.u]
    yield "jnp.trim_zeros", lambda x: f.trim_zeros(np.array([0.0, 1, 0])) * x, [a.x]
    yield "lax.slice", lambda x, i: (lax.slice(x, (1, 0), (3, 4), (1, 2)), lax.slice_in_dim(x, -2, None, axis=1), lax.index_in_dim(x, -1, 0), lax.broadcast_like(x[0], x) if hasattr(lax, "broadcast_like") else x), [a.x, a.i]
    yield "jnp.more indices", lambda x: (x[f.diag_indices_from(x[:, :3])], x[f.tril_indices_from(x)], x[f.triu_indices(3)], f.empty_like(x) * 0, f.zeros_like(x), f.copy(x), f.fromfunction(lambda p, q: p + q, (2, 3))), [a.x]
    yield "lax.stop_gradient", lambda x: (lax.stop_gradient(x), lax.optimization_barrier(x), lax.convert_element_type(x, jnp.float16)), [a.x]


def indexing(a):
    f = jnp
    yield "getitem", lambda x, k: (x[1], x[:, ::-2], x[k % 3], x[k % 3, k % 4], x[..., None, 1], x[-1, -2], x[f.array([0, -1])]), [a.x, a.k]
    yield "getitem[traced]", lambda x, i: (x[i], x[:, i], lax.dynamic_index_in_dim(x, i, 1), x[i, i + 1], x[i - 7], x[i + 99]), [a.x, f.int32(1)]
    yield "dynamic_slice", lambda x, i: [lax.dynamic_slice(x, (i - s, s - i), (2, 3)) for s in (0, 2, 9, -9)] + [lax.dynamic_slice_in_dim(x, i - 2, 2, 1), lax.dynamic_slice(x, (i.astype("uint8"), i.astype("uint8") * 250), (1, 1))], [a.x, f.int32(1)]
    yield "dynamic_slice[uint]", lambda x, i: lax.dynamic_slice(x, (i, i + 3), (2, 3)), [a.x, f.uint32(2**32 - 1)]
    yield "dynamic_update_slice", lambda x, y, i: [lax.dynamic_update_slice(x, y[:2, :2], (i - s, s - i)) for s in (0, 2, 9)] + [lax.dynamic_update_slice_in_dim(x, y[:, :1], i, 1), lax.dynamic_update_index_in_dim(x, y[0], i, 0)], [a.x, a.y, f.int32(1)]
    for mode in ("clip", "fill", "wrap"):
        yield f"take[{mode}]", lambda x, k, m=mode: (f.take(x, k - 2, axis=0, mode=m), f.take(x, k % 3, mode=m)), [a.x, a.k]
    for mode in ("clip", "fill", "promise_in_bounds"):
        yield f"at.get[{mode}]", lambda x, k, m=mode: x.at[k % 3 if m == "promise_in_bounds" else k - 2, 1:3].get(mode=m), [a.x, a.k]
    for op in "set add multiply divide power min max".split():
        yield f"at.{op}", lambda x, k, v, o=op: (getattr(x.at[k[:3] % 3], o)(v[:3, None] * 0 + 2), getattr(x.at[1], o)(2.0), getattr(x.at[:, ::2], o)(0.5), getattr(x.at[k[:5], k[:5]], o)(v), getattr(x.at[-1, f.array([0, 7])], o)(3.0)) if o != "set" else (x.at[f.array([0, 2])].set(v[:2, None]), x.at[1:, 1].set(v[:2]), x.at[k[0]].set(1.0), x.at[f.array([9, 1])].set(5.0), x.at[f.array([-1, 9])].set(5.0, mode="clip")), [a.p, a.k, a.v]
    yield "at.apply", lambda x, k: (x.at[k % 3].apply(f.sin), x.at[1].apply(lambda t: t * 2)), [a.x, a.k]
    yield "at.add[int]", lambda i, k: (i.at[k % 3].add(k[:, None]), i.at[k % 3, k % 4].multiply(2), i.at[k % 3].min(k[:, None]), i.at[k % 3].max(0)), [a.i, a.k]
    yield "at.add[modes]", lambda x, k, v: [x.at[k[:5] - 2, 1].add(v, mode=m) for m in ("drop", "clip")], [a.x, a.k, a.v]
    yield "at.add[complex]", lambda z, k: (z.at[k % 3].add(1j), z.at[k % 3].multiply(2j), z.at[0, k % 4].set(3 + 1j)), [a.z, a.k]
    yield "at.add[half]", lambda x, y, k: (x.at[k % 3].add(0.5), y.at[k % 3].max(0.1), y.at[:, k % 4].add(1)), [a.half, a.brain, a.k]
    yield "at.set[bool]", lambda b, k: (b.at[k % 3].set(True), b.at[0].set(False)), [a.b, a.k]
    yield "lax.gather", lambda t: lax.gather(t, f.array([[0, 1], [1, 9], [-3, 2]]), lax.GatherDimensionNumbers((1, 2), (0,), (0, 1)), (1, 2, 3), mode="clip"), [a.t]
    yield "lax.gather[batch]", lambda t: lax.gather(t, f.array([[[1], [0]], [[3], [4]]]), lax.GatherDimensionNumbers((2,), (1,), (1,), (0,), (0,)), (1, 1, 3)), [a.t]
    numbers = lax.ScatterDimensionNumbers((1,), (0,), (0,))
    for name in "scatter scatter_add scatter_mul scatter_min scatter_max scatter_sub scatter_apply".split():
        if name == "scatter_apply":
            yield f"lax.{name}", lambda x: lax.scatter_apply(x, f.array([[0], [2]]), f.cos, numbers, update_shape=(2, 4)), [a.x]
        elif hasattr(lax, name):
            yield f"lax.{name}", lambda x, y, g=getattr(lax, name): (g(x, f.array([[2], [0], [9]]), y, numbers), g(x, f.array([[2], [0], [9]]), y, numbers, mode="clip", unique_indices=True)), [a.x, a.y]
    yield "lax.index_take", lambda x, k: lax.index_take(x, (k % 3,), (0,)), [a.x, a.k]
    yield "take_along_axis", lambda x, k: (f.take_along_axis(x, k.reshape(3, 4) % 4, 1), f.put_along_axis(x, k[:3, None] % 4, 9.0, 1, inplace=False), f.take_along_axis(x, k[None, :4] - 3, 0)), [a.x, a.k]
    yield "put", lambda x, k: (f.put(x, k, 3.0, inplace=False), f.put(x, k + 9, 3.0, mode="wrap", inplace=False)), [a.x, a.k]
    yield "place", lambda x: f.place(x, x > 0, f.array([1.0, 2.0]), inplace=False), [a.x]
    yield "argwhere", lambda x: (f.argwhere(x > 0, size=6), f.nonzero(x > 0, size=5, fill_value=-1), f.flatnonzero(x > 0.5, size=4), f.where(x > 0, size=3)), [a.x]
    yield "compress", lambda x: (f.compress(f.array([True, False, True]), x, axis=0, size=2, fill_value=0), f.extract(x > 0, x, size=4, fill_value=0), f.compress(x[0] > 0, x, axis=1, size=2, fill_value=0)), [a.x]
    yield "searchsorted", lambda v, w: [f.searchsorted(f.sort(v), w, side=s, method=m) for s in ("left", "right") for m in ("scan", "scan_unrolled", "sort", "compare_all")], [a.v, a.w]
    yield "interp", lambda v, w: (f.interp(w, f.sort(v), w), f.interp(w, f.sort(v), w, left=-1.0, right=2.0), f.interp(w, f.sort(v), w, period=2.0)), [a.v, a.w]
    yield "interpolate.grid", lambda x, u: jsp.interpolate.RegularGridInterpolator((f.arange(3.0), f.arange(4.0)), x, bounds_error=False)(f.abs(u[:, :2])), [a.x, a.u]


def sorting(a):
    f = jnp
    yield "sort", lambda x, i, z: (f.sort(x), f.sort(x, 0, descending=True), f.sort(x, None), f.sort(i), f.sort(z), f.argsort(x), f.argsort(i, 0, descending=True), f.argsort(z)), [a.nan, a.i, a.z]
    yield "sort[bool, half]", lambda b, h, u: (f.sort(b), f.argsort(b, 0), f.sort(h), f.sort(u), f.argsort(u, descending=True)), [a.b, a.half, a.byte]
    yield "lexsort", lambda x, i: (f.lexsort((x[0], i[0] % 2)), f.lexsort((i, i % 2, i % 3), axis=1)), [a.x, a.i]
    yield "lax.sort[keys]", lambda x, i: (lax.sort((i % 3, x, i), num_keys=2), lax.sort((i % 2, x), dimension=0, is_stable=True), lax.sort_key_val(x, i)), [a.x, a.i]
    yield "lax.top_k", lambda x, i: (lax.top_k(x, 2), lax.top_k(i, 3), lax.top_k(x, 4), lax.top_k(x.astype(jnp.bfloat16), 2)), [a.nan, a.i]
    yield "lax.approx_max_k", lambda x: (lax.approx_max_k(x, 2), lax.approx_min_k(x, 2, reduction_dimension=0)), [a.x]
    yield "partition", lambda x: (f.sort(f.partition(x, 2)[:, :2]), f.partition(x, 2)[:, 2], f.take_along_axis(x, f.argpartition(x, 1), 1)[:, 1]), [a.x]
    yield "unique", lambda k: (f.unique(k, size=6), f.unique(k, return_index=True, return_inverse=True, return_counts=True, size=6, fill_value=-1), f.unique(k.reshape(6, 2), axis=0, size=4)), [a.k]
    yield "unique_all", lambda k: (f.unique_counts(k, size=5), f.unique_inverse(k, size=5), f.unique_values(k, size=5), f.unique_all(k, size=5)), [a.k]
    yield "sets", lambda k: (f.union1d(k, k + 3, size=9), f.intersect1d(k, k + 3, size=4), f.setdiff1d(k, f.array([1, 2]), size=4), f.setxor1d(k, k + 2, size=6), f.isin(k, f.array([1, 3])), f.isin(k, f.array([1, 3]), invert=True)), [a.k]
    yield "stats.rankdata", lambda k: [jsp.stats.rankdata(k, m) for m in ("average", "min", "max", "dense", "ordinal")], [a.k]
    yield "stats.mode", lambda k: (jsp.stats.mode(k), jsp.stats.mode(k.reshape(3, 4), axis=1, keepdims=True)), [a.k]
    yield "stats.sem", lambda x: (jsp.stats.sem(x), jsp.stats.sem(x, axis=None)), [a.x]
    yield "vq", lambda x: jsp.cluster.vq.vq(x, x[:2] + 0.1), [a.x]


FAMILIES = (elementwise, reductions, windows, fourier, shapes, indexing, sorting)
