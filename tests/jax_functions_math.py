"""Cases of tests/jax_functions.py: products, linear algebra, control flow, draws and distributions."""

# fmt: off
import jax
import jax.numpy as jnp
import jax.scipy as jsp
import jax.scipy.spatial.transform  # noqa: F401
from jax import lax


def _squares(x):
    """What is left of vectors whose phase is free."""
    return jnp.abs(x)


def products(a):
    f = jnp
    yield "matmul", lambda m, e, x: (m @ e, m[0] @ x.T, m @ x.T, x[0] @ m, m @ x[0], x[0] @ x[1], f.dot(m, e), f.inner(x, x), f.vdot(x, x), f.vecdot(x, x), f.matvec(m, x[0]), f.vecmat(x[0], m)), [a.m, a.e, a.x]
    yield "matmul[complex]", lambda z: (z @ z.mT, f.vdot(z, z), f.tensordot(z, z.conj(), 2)), [a.z]
    yield "matmul[int]", lambda i, j, b, u: (i @ j.T, f.dot(i[0], j[0]), b @ b.T, u @ u.T, f.einsum("ij,kj->ik", i, j)), [a.i, a.j, a.b, a.byte]
    yield "matmul[half]", lambda h, b: (h @ h.T, b @ b.T, f.matmul(h, h.T, preferred_element_type=jnp.float32), lax.dot(b, b.T, preferred_element_type=jnp.float32)), [a.half, a.brain]
    yield "tensordot", lambda t: (f.tensordot(t, t, ([1, 2], [1, 2])), f.einsum("bij,bkj->bik", t, t), f.einsum("bij->ji", t), f.einsum("bij,bij->", t, t), f.einsum("...ij,jk->...ik", t, t[0].T), f.einsum("ii->i", t[0, :3]), f.einsum("bij,cj,ck->bik", t, t[0], t[1])), [a.t]
    yield "lax.dot_general", lambda t, m: (lax.dot_general(t, t, (((1,), (1,)), ((0,), (0,)))), lax.dot_general(t, t, (((), ()), ((0, 1), (0, 1)))), lax.batch_matmul(m, m), lax.dot(m[0], m[1], precision="highest")), [a.t, a.m]
    yield "lax.ragged_dot", lambda x, m: lax.ragged_dot(x, m, jnp.array([1, 2])), [a.x, a.m]
    yield "multi_dot", lambda x, m: (f.linalg.multi_dot([x, m[0], x.T]), f.linalg.matrix_power(m, 3), f.linalg.matrix_power(m, -2), f.linalg.outer(x[0], x[1]), f.linalg.cross(x[0, :3], x[1, :3])), [a.x, a.m]
    yield "nn.dot_product_attention", lambda t: (jax.nn.dot_product_attention(t[:, :, None], t[:, :, None], t[:, :, None]), jax.nn.dot_product_attention(t[:, :, None], t[:, :, None], t[:, :, None], is_causal=True), jax.nn.dot_product_attention(t[:, :, None], t[:, :, None], t[:, :, None], key_value_seq_lengths=jnp.array([2, 5], jnp.int32), query_seq_lengths=jnp.array([5, 3], jnp.int32), local_window_size=(1, 2))), [a.t.astype(jnp.float32)]
    yield "poly", lambda v, w: (f.polyval(v, w), f.polyadd(v, w[:3]), f.polysub(v, w), f.polymul(v, w), f.polyder(v, 2), f.polyint(v, 2, k=f.array([1.0, 2])), f.polydiv(v, w[:2]), f.poly(v)), [a.v, a.w]
    yield "polyfit", lambda v, w: f.polyfit(v, w, 2), [a.v, a.w]
    yield "roots", lambda v: f.sort(f.abs(f.roots(v, strip_zeros=False))), [a.v.astype(jnp.float32)]


def linalg(a):
    l, s, ll = jnp.linalg, jsp.linalg, lax.linalg
    yield "linalg.cholesky", lambda d: (l.cholesky(d), l.cholesky(d, upper=True), s.cholesky(d), s.cho_factor(d[0], lower=True)[0], s.cho_solve((s.cholesky(d[0], lower=True), True), d[1]), l.cholesky(-d)), [a.d]
    yield "linalg.cholesky[complex]", lambda d: (l.cholesky(d), l.cholesky(-d), s.cho_solve((s.cholesky(d[0]), False), d[1])), [a.zd]
    yield "lax.cholesky_update", lambda d, v: ll.cholesky_update(jnp.linalg.cholesky(d[0]).T, v), [a.d, a.v[:4]]
    yield "linalg.det", lambda m: (l.det(m), *l.slogdet(m), s.det(m), l.det(m[:, :3, :3]), l.det(m[:, :2, :2])), [a.m]
    yield "linalg.det[complex]", lambda m: (l.det(m), *l.slogdet(m)), [a.zm]
    yield "linalg.det[singular]", lambda m: (l.det(m * 0), l.slogdet(m * 0), jnp.isfinite(l.inv(m * 0)), jnp.isfinite(l.solve(m * 0, m))), [a.m]
    yield "linalg.inv", lambda m: (l.inv(m), s.inv(m), l.tensorinv(m[0].reshape(4, 2, 2), 1)), [a.m]
    yield "linalg.inv[complex]", lambda m: (l.inv(m), l.solve(m, m[:, :, :2].conj())), [a.zm]
    yield "linalg.solve", lambda m, x: (l.solve(m, m[:, :, :2]), l.solve(m[0], x.T), s.solve(m, m[:, :, :1]), s.solve(m @ m.mT + jnp.eye(4), x.T, assume_a="pos"), l.tensorsolve(m[0].reshape(2, 2, 4), x[0].reshape(2, 2))), [a.m, a.x]
    yield "linalg.triangular", lambda m, x: [s.solve_triangular(m[0] + 3 * jnp.eye(4), x.T, trans=t, lower=lo, unit_diagonal=u) for t in (0, 1, 2) for lo in (False, True) for u in (False, True)], [a.m, a.x]
    yield "linalg.triangular[complex]", lambda m, z: [ll.triangular_solve(m + 3 * jnp.eye(4), m[:, :2], left_side=False, lower=lo, transpose_a=t, conjugate_a=c) for lo in (False, True) for t in (False, True) for c in (False, True)], [a.zm, a.z]
    yield "linalg.triangular[singular]", lambda m: s.solve_triangular(m.at[:, 2, 2].set(0), m[:, :, 0:1]), [a.m]
    yield "linalg.lu", lambda m: (s.lu(m[0]), s.lu(m[0], permute_l=True), ll.lu(m), s.lu_factor(m), s.lu_solve(s.lu_factor(m[0]), m[1]), ll.lu(m[:, :, :3]), ll.lu(m[:, :2])), [a.m]
    yield "linalg.lu[complex]", lambda m: (s.lu(m[0]), ll.lu(m), ll.lu(m[:, :, :3]), ll.lu(m[:, :2]), ll.lu(m * 0)), [a.zm]
    yield "linalg.lu[singular]", lambda m: (ll.lu(m * 0), ll.lu(m.at[:, :, 1].set(0))), [a.m]
    yield "linalg.qr", lambda m: (l.qr(m), l.qr(m, mode="r"), l.qr(m[:, :, :2]), l.qr(m[:, :, :2], mode="complete"), l.qr(m[:, :2]), s.qr(m), ll.householder_product(*_geqrf(m))), [a.m]
    yield "linalg.qr[complex]", lambda m: (l.qr(m), l.qr(m[:, :, :2]), l.qr(m[:, :, :2], mode="complete"), l.qr(m[:, :2]), l.qr(m * 0)), [a.zm]
    yield "linalg.qr[rank deficient]", lambda m: (l.qr(m * 0), l.qr(m.at[:, :, 1].set(0))[1]), [a.m]
    yield "lax.ormqr", lambda m: [ll.ormqr(*_geqrf(m), m, left=w, transpose=t) for w in (True, False) for t in (True, False)] if hasattr(ll, "ormqr") else m, [a.m]
    yield "scipy.qr_multiply", lambda m: s.qr_multiply(m[0], m[1]) if hasattr(s, "qr_multiply") else m, [a.m]
    yield "linalg.eigh", lambda h: (l.eigvalsh(h), l.eigh(h)[0], _squares(l.eigh(h)[1]), l.eigvalsh(h, UPLO="U"), s.eigh(h, eigvals_only=True)), [a.s]
    yield "linalg.eigh[complex]", lambda h: (l.eigvalsh(h), l.eigh(h)[0], _squares(l.eigh(h)[1])), [a.h]
    yield "linalg.eigh[reconstructed]", lambda h: (lambda w, v: (v * w[..., None, :]) @ v.conj().mT)(*l.eigh(h)), [a.h]
    yield "scipy.eigh_tridiagonal", lambda v, w: s.eigh_tridiagonal(v, w[:4], eigvals_only=True), [a.v, a.w]
    yield "linalg.svd", lambda m: (l.svdvals(m), l.svd(m)[1], _squares(l.svd(m)[0]), _squares(l.svd(m[:, :, :2], full_matrices=False)[2]), l.svd(m[:, :2], compute_uv=False), s.svd(m)[1], l.cond(m), l.matrix_rank(m), l.norm(m, 2, axis=(1, 2)), l.norm(m, "nuc", axis=(1, 2))), [a.m]
    yield "linalg.svd[complex]", lambda m: (l.svdvals(m), _squares(l.svd(m)[0]), _squares(l.svd(m[:, :, :2], full_matrices=False)[2]), l.svd(m[:, :2])[1]), [a.zm]
    yield "linalg.svd[reconstructed]", lambda m: [(lambda u, w, v: (u[..., : w.shape[-1]] * w[..., None, :]) @ v[..., : w.shape[-1], :])(*l.svd(x, full_matrices=b)) for x in (m, m[:, :2], m[:, :, :3]) for b in (False, True)], [a.zm]
    yield "linalg.svd[unitary]", lambda m: [u.conj().mT @ u for x in (m[:, :2], m[:, :, :3], m * 0) for u in l.svd(x, full_matrices=True)[::2]], [a.zm]
    single = (lambda x: x.astype(jnp.complex64 if jnp.iscomplexobj(x) else jnp.float32))
    for kind, m in (("", single(a.m)), ("[complex]", single(a.zm))):
        yield f"linalg.eig{kind}", lambda m: (_ordered(l.eigvals(m)), _ordered(l.eig(m)[0]), _eig_residual(m, *l.eig(m))), [m]
        yield f"lax.eig{kind}", lambda m: _both_sides(m), [m]
    yield "linalg.norm", lambda x, v, m: [l.norm(x), l.norm(x, axis=1), l.norm(x, 1), l.norm(x, jnp.inf), l.norm(v, 3), l.norm(v, 0), l.norm(v, -jnp.inf), l.norm(x, "fro"), l.vector_norm(x, ord=1, axis=0), l.matrix_norm(m)], [a.x, a.v, a.m]
    yield "linalg.norm[complex]", lambda z: (l.norm(z), l.norm(z, axis=0), l.norm(z, 1)), [a.z]
    yield "linalg.pinv", lambda m, s_: (l.pinv(m[:, :, :3]), l.pinv(m[:, :2]), l.pinv(s_, hermitian=True)), [a.m, a.s]
    yield "linalg.pinv[complex]", lambda m: l.pinv(m[:, :, :3]), [a.zm]
    yield "linalg.lstsq", lambda m, x: l.lstsq(m[0, :, :3], x.T), [a.m, a.x]
    yield "scipy.expm", lambda m: (s.expm(m[0]), s.expm(m, upper_triangular=True), s.expm(8 * m)), [a.m]
    yield "scipy.expm[complex]", lambda m: s.expm(m), [a.zm]
    yield "scipy.expm_frechet", lambda m: s.expm_frechet(m[0], m[1]), [a.m]
    yield "scipy.polar", lambda m: (s.polar(m[0]), s.polar(m[1], side="left")), [a.m]
    yield "scipy.matrices", lambda v, w: (s.block_diag(v[None], w[:, None]), s.toeplitz(v, w), s.hilbert(3), s.dft(4).real, s.circulant(v), s.companion(v), s.hankel(v, w), s.leslie(v, w[:4]), s.hadamard(4), s.helmert(4), s.invhilbert(3), s.pascal(4), s.invpascal(3), s.fiedler(v), s.fiedler_companion(v), s.convolution_matrix(v, 3, "full")), [a.v, a.w]
    yield "lax.tridiagonal_solve", lambda x: ll.tridiagonal_solve(x, x + 4, jnp.roll(x, 1), x[:, :, None]), [a.x]
    yield "lax.qdwh", lambda m: ll.qdwh(m[0])[:2], [a.m]
    yield "lax.symmetric_product", lambda x: ll.symmetric_product(x, jnp.eye(3), symmetrize_output=True), [a.x]
    yield "lax.lu_pivots_to_permutation", lambda k: ll.lu_pivots_to_permutation(jnp.array([2, 3, 2, 3], jnp.int32) + 0 * k[0].astype(jnp.int32), 5), [a.k]
    yield "sparse.linalg", lambda d, v: [g(d[0], v[:4])[0] for g in (jsp.sparse.linalg.cg, jsp.sparse.linalg.gmres, jsp.sparse.linalg.bicgstab)], [a.d, a.v]
    yield "optimize.minimize", lambda v: jsp.optimize.minimize(lambda x: jnp.sum((x - 1) ** 2 + 0.1 * x**4), v[:2], method="BFGS", options=dict(maxiter=4)).x, [a.v]
    yield "lax.custom_linear_solve", lambda d, v: lax.custom_linear_solve(lambda x: d[0] @ x, v[:4], lambda mv, b: jnp.linalg.solve(d[0], b), symmetric=True), [a.d, a.v]
    yield "lax.custom_root", lambda p: lax.custom_root(lambda x: x**3 - p, p, lambda f, x: lax.fori_loop(0, 30, lambda i, c: c - (c**3 - p) / (3 * c**2), x), lambda g, y: y / g(jnp.ones_like(y))), [a.p]
    yield "Rotation", lambda v: jsp.spatial.transform.Rotation.from_quat(v[:4]).apply(v[:3]), [a.v]


def _geqrf(m):
    q, r = jnp.linalg.qr(m, mode="raw")
    return q.mT, r


def _ordered(values):
    """Eigenvalues in an order of their own: by their distance from a point in general position."""
    order = jnp.argsort(jnp.abs(values - (3.7 + 2.3j)), axis=-1)
    return jnp.take_along_axis(values, order, -1)


def _eig_residual(m, values, vectors):
    return jnp.abs(m @ vectors - vectors * values[..., None, :]) < 1e-3, jnp.linalg.norm(vectors, axis=-2)


def _both_sides(m):
    values, left, right = lax.linalg.eig(m)
    return (
        _eig_residual(m, values, right),
        jnp.abs(left.conj().mT @ m - values[..., :, None] * left.conj().mT) < 1e-3,
        jnp.linalg.norm(left, axis=-2),
        _ordered(lax.linalg.eig(m, compute_right_eigenvectors=False)[0]),
    )


def control(a):
    yield "lax.cond", lambda b, x: (lax.cond(b[0, 0], jnp.sin, jnp.cos, x), jax.vmap(lambda p, t: lax.cond(p, jnp.sin, jnp.cos, t))(b[0], x.T)), [a.b, a.x]
    yield "lax.switch", lambda i, x: (lax.switch(i[0, 0], [jnp.sin, jnp.cos, jnp.tan], x), jax.vmap(lambda k, t: lax.switch(k, [jnp.sin, jnp.cos, jnp.tan], t))(i[0], x.T)), [a.i, a.x]
    yield "lax.scan", lambda x: lax.scan(lambda c, t: (c * 0.5 + t, (c, t.sum())), x[0], x, reverse=True, unroll=2), [a.x]
    yield "lax.while_loop", lambda x: jax.vmap(lambda t: lax.while_loop(lambda c: jnp.sum(c[0]) < 30, lambda c: (c[0] * 1.5 + 1, c[1] + 1), (t, 0)))(x), [a.x]
    yield "lax.fori_loop", lambda x, n: (lax.fori_loop(0, n, lambda i, c: c * 1.1 + i, x), lax.fori_loop(-2, 3, lambda i, c: c.at[i].add(i), x)), [a.x, jnp.int32(7)]
    yield "lax.map", lambda x: (lax.map(lambda t: t.sum() * t, x), lax.map(lambda t: t * 2, x, batch_size=2)), [a.x]
    yield "jax.checkpoint", lambda x: jax.grad(lambda t: jax.checkpoint(lambda u: jnp.sin(jnp.sin(u)))(t).sum())(x), [a.x]
    @jax.custom_vjp
    def clipped(x):
        return jnp.sin(x)
    clipped.defvjp(lambda x: (jnp.sin(x), x), lambda x, g: (jnp.clip(g * x, -0.3, 0.3),))
    yield "jax.custom_vjp", lambda x: jax.grad(lambda t: clipped(t * 2).sum())(x), [a.x]
    yield "jax.hessian", lambda v: (jax.hessian(lambda t: jnp.sum(jnp.tanh(t) ** 3) * t[0])(v), jax.jacfwd(jnp.cumprod)(v), jax.jacrev(lambda t: jnp.sort(t) ** 2)(v)), [a.v]
    yield "jax.jvp", lambda x, y: jax.jvp(lambda t: jnp.linalg.norm(t, axis=0), (x,), (y,)), [a.x, a.y]
    yield "lax.composite", lambda x: lax.composite(lambda t: jnp.sin(t) * 2, name="mine.twice_sine")(x), [a.x]
    yield "lax.platform_dependent", lambda x: lax.platform_dependent(x, default=jnp.sin, cpu=jnp.sin), [a.x]
    yield "jax.pmap-free shard_map", lambda x: jax.shard_map(lambda t: t * 2, mesh=jax.sharding.Mesh(jax.devices()[:1], "i"), in_specs=jax.sharding.PartitionSpec("i"), out_specs=jax.sharding.PartitionSpec("i"))(x), [a.x]
    yield "shard_map psum", lambda x: jax.shard_map(lambda t: (jax.lax.psum(t, "i"), jax.lax.axis_index("i"), lax.pmean(t, "i"), lax.all_gather(t, "i"), lax.all_gather(t, "i", tiled=True), lax.psum_scatter(t, "i", tiled=True), lax.all_to_all(t, "i", 0, 1, tiled=True), lax.pmax(t, "i"), lax.ppermute(t, "i", []), lax.ppermute(t, "i", [(0, 0)])), mesh=jax.sharding.Mesh(jax.devices()[:1], "i"), in_specs=jax.sharding.PartitionSpec("i"), out_specs=jax.sharding.PartitionSpec(), check_vma=False)(x), [a.x]
    yield "jax.pmap", lambda x: jax.pmap(lambda t: t - lax.pmean(t, "i"), axis_name="i", devices=jax.devices()[:1])(x[:1]), [a.x]
    yield "shard_map gradient", lambda x: jax.grad(lambda u: jnp.sum(jax.shard_map(lambda t: lax.pmean(jnp.sin(t), "i") * t, mesh=jax.sharding.Mesh(jax.devices()[:1], "i"), in_specs=jax.sharding.PartitionSpec("i"), out_specs=jax.sharding.PartitionSpec("i"))(u)))(x), [a.x]
    yield "vmap collectives", lambda x: (jax.vmap(lambda t: t - lax.pmean(t, "i") + lax.axis_index("i"), axis_name="i")(x), jax.vmap(lambda t: (lax.all_gather(t, "i"), lax.ppermute(t, "i", [(0, 1), (1, 2), (2, 0)]), lax.pmax(t, "i")), axis_name="i")(x)), [a.x]
    yield "nn.initializers", lambda key: [getattr(jax.nn.initializers, n)()(key, (4, 3), jnp.float32) for n in "glorot_normal glorot_uniform he_normal he_uniform kaiming_normal kaiming_uniform xavier_normal xavier_uniform lecun_normal lecun_uniform normal uniform truncated_normal orthogonal".split()], [a.key]
    yield "nn.initializers.delta_orthogonal", lambda key: jax.nn.initializers.delta_orthogonal()(key, (3, 2, 2), jnp.float32), [a.key]


def random(a):
    r, k = jax.random, a.key
    draws = {
        "ball": lambda q: r.ball(q, 3, shape=(4,)), "bernoulli": lambda q: r.bernoulli(q, 0.3, (9,)), "beta": lambda q: r.beta(q, 2.0, 3.0, (4,)),
        "binomial": lambda q: r.binomial(q, 10, 0.3, (5,)), "bits": lambda q: [r.bits(q, (5,), d) for d in ("uint8", "uint16", "uint32")],
        "categorical": lambda q: r.categorical(q, jnp.array([0.1, 2.0, 0.3]), shape=(9,)), "cauchy": lambda q: r.cauchy(q, (5,)),
        "categorical no replacement": lambda q: r.categorical(q, jnp.array([0.1, 2.0, 0.3, 1.0]), shape=(3,), replace=False),
        "chisquare": lambda q: r.chisquare(q, 3.0, shape=(4,)), "choice": lambda q: (r.choice(q, 9, (4,), replace=False), r.choice(q, jnp.arange(5.0), (3,), p=jnp.array([0.1, 0.2, 0.3, 0.2, 0.2])), r.choice(q, 5, (2,), replace=False, p=jnp.array([0.1, 0.2, 0.3, 0.2, 0.2]))),
        "dirichlet": lambda q: r.dirichlet(q, jnp.array([1.0, 2.0, 0.5]), (3,)), "double_sided_maxwell": lambda q: r.double_sided_maxwell(q, 0.5, 2.0, (4,)),
        "exponential": lambda q: r.exponential(q, (5,)), "f": lambda q: r.f(q, 3.0, 5.0, shape=(3,)), "fold_in": lambda q: r.key_data(r.fold_in(q, 5)),
        "gamma": lambda q: r.gamma(q, jnp.array([0.3, 1.0, 4.0])), "generalized_normal": lambda q: r.generalized_normal(q, 1.5, (4,)),
        "geometric": lambda q: r.geometric(q, 0.3, (6,)), "gumbel": lambda q: (r.gumbel(q, (5,)), r.gumbel(q, (4,), mode="high")), "laplace": lambda q: r.laplace(q, (5,)),
        "loggamma": lambda q: r.loggamma(q, jnp.array([0.3, 2.0])), "logistic": lambda q: r.logistic(q, (5,)), "lognormal": lambda q: r.lognormal(q, 0.5, (5,)),
        "maxwell": lambda q: r.maxwell(q, (5,)), "multinomial": lambda q: r.multinomial(q, 20.0, jnp.array([0.2, 0.5, 0.3])),
        "multivariate_normal": lambda q: [r.multivariate_normal(q, jnp.zeros(2), jnp.array([[2.0, 0.5], [0.5, 1.0]]), (3,), method=m) for m in ("cholesky",)],
        "normal": lambda q: (r.normal(q, (7,)), r.normal(q, (3,), jnp.complex64), r.normal(q, (3,), jnp.bfloat16)), "orthogonal": lambda q: r.orthogonal(q, 4),
        "pareto": lambda q: r.pareto(q, 2.0, (5,)), "permutation": lambda q: (r.permutation(q, 10), r.permutation(q, jnp.arange(12).reshape(4, 3), independent=True)),
        "poisson": lambda q: r.poisson(q, jnp.array([0.5, 4.0, 30.0])), "rademacher": lambda q: r.rademacher(q, (9,)), "randint": lambda q: (r.randint(q, (9,), -5, 100), r.randint(q, (5,), 0, 200, "uint8")),
        "rayleigh": lambda q: r.rayleigh(q, 1.5, (5,)), "split": lambda q: r.key_data(r.split(q, 3)), "t": lambda q: r.t(q, 4.0, (5,)), "triangular": lambda q: r.triangular(q, 0.0, 0.3, 1.0, (5,)),
        "truncated_normal": lambda q: r.truncated_normal(q, -1.0, 2.0, (5,)), "uniform": lambda q: (r.uniform(q, (7,), minval=-2, maxval=3), r.uniform(q, (3,), jnp.float16)), "wald": lambda q: r.wald(q, 1.5, (5,)), "weibull_min": lambda q: r.weibull_min(q, 1.5, 2.0, (5,)),
        "keys": lambda q: (r.key_data(r.wrap_key_data(r.key_data(q))), r.key_data(r.clone(q)), r.key_data(r.key(3)), r.PRNGKey(4)),
        "rbg": lambda q: r.key_data(r.key(1, impl="rbg")),
    }  # fmt: skip
    for name, f in draws.items():
        yield f"random.{name}", f, [k]


def distributions(a):
    st = jsp.stats
    x, p, o, i = a.x, a.p, a.o, a.j
    laws = {
        "norm": (x, "cdf isf:o logcdf logpdf logsf pdf ppf:o sf", (0.3, 1.2)), "cauchy": (x, "cdf isf:o logcdf logpdf logsf pdf ppf:o sf", (0.3, 1.2)),
        "beta": (o, "cdf logcdf logpdf logsf pdf sf", (1.5, 2.5)), "chi2": (p, "cdf logcdf logpdf logsf pdf sf", (3.0,)), "expon": (p, "cdf logcdf logpdf logsf pdf ppf:o sf", ()),
        "gamma": (p, "cdf logcdf logpdf logsf pdf sf", (1.5,)), "gennorm": (x, "cdf logpdf pdf", (1.5,)), "gumbel_l": (x, "cdf logcdf logpdf logsf pdf ppf:o sf", ()), "gumbel_r": (x, "cdf logcdf logpdf logsf pdf ppf:o sf", ()),
        "laplace": (x, "cdf logpdf pdf", ()), "logistic": (x, "cdf isf:o logpdf pdf ppf:o sf", ()), "pareto": (a.g, "cdf logcdf logpdf logsf pdf ppf:o sf", (2.0,)), "t": (x, "logpdf pdf", (3.0,)),
        "truncnorm": (a.u, "cdf logcdf logpdf logsf pdf sf", (-1.0, 1.5)), "uniform": (o, "cdf logpdf pdf ppf", ()), "vonmises": (x, "logpdf pdf", (1.5,)), "wrapcauchy": (p, "logpdf pdf", (0.4,)),
        "bernoulli": (i % 2, "cdf logpmf pmf ppf:o", (0.3,)), "binom": (i, "logpmf pmf", (9, 0.3)), "betabinom": (i, "logpmf pmf", (9, 1.5, 2.5)), "geom": (i, "logpmf pmf", (0.3,)), "nbinom": (i, "logpmf pmf", (5, 0.3)), "poisson": (i, "cdf logpmf pmf", (2.5,)),
    }  # fmt: skip
    for law, (points, names, parameters) in laws.items():
        module = getattr(st, law, None)
        for entry in names.split():
            name, _, where = entry.partition(":")
            f = getattr(module, name, None)
            if f is not None:
                yield f"stats.{law}.{name}", lambda t, f=f, q=parameters: f(t, *q), [o if where else points]
    yield "stats.poisson.entropy", lambda p: st.poisson.entropy(p * 3), [a.p]
    yield "stats.dirichlet", lambda: (st.dirichlet.logpdf(jnp.array([0.2, 0.3, 0.5]), jnp.array([1.0, 2.0, 3.0])), st.dirichlet.pdf(jnp.array([0.2, 0.3, 0.5]), jnp.array([1.0, 2.0, 3.0]))), []
    yield "stats.multinomial", lambda: (st.multinomial.logpmf(jnp.array([1, 2, 3]), 6, jnp.array([0.2, 0.3, 0.5])), st.multinomial.pmf(jnp.array([1, 2, 3]), 6, jnp.array([0.2, 0.3, 0.5]))), []
    yield "stats.multivariate_normal", lambda x, d: (st.multivariate_normal.logpdf(x, jnp.zeros(4), d[0]), st.multivariate_normal.pdf(x, 0.0, 1.0)), [a.x, a.d]
    yield "stats.gaussian_kde", lambda x, v: (st.gaussian_kde(x[:2])(x[:2, :3]), st.gaussian_kde(v).logpdf(v), st.gaussian_kde(v).integrate_box_1d(-1.0, 1.0)), [a.x, a.v]


FAMILIES = (products, linalg, control, random, distributions)
