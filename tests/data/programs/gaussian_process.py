"""The marginal likelihood of a Gaussian process and its prediction, through a Cholesky factor."""

import math

import quabla as qb

SCALE = 1
X = qb.linspace(0.0, 4.0, 9 * SCALE)
Y = qb.sin(X) + 0.1 * qb.cos(7.0 * X)


def kernel(a, b, p):
    gap = qb.expand_dims(a, 1) - qb.expand_dims(b, 0)
    return qb.exp(p[0]) * qb.exp(-0.5 * qb.square(gap) * qb.exp(-2.0 * p[1]))


def loss(p):
    factor = qb.cholesky(kernel(X, X, p) + qb.exp(p[2]) * qb.eye(9 * SCALE))
    weights = qb.linalg.cho_solve(factor, Y)
    return 0.5 * qb.dot(Y, weights) + qb.sum(qb.log(qb.diag(factor))) + 4.5 * SCALE * math.log(2.0 * math.pi)


def start():
    return qb.array([0.1, -0.2, -2.0])


def main():
    p = start()
    return {
        "loss": loss(p),
        "gradient": qb.jit(qb.grad(loss))(p),
        "values": qb.linalg.eigh(kernel(X, X, p)).eigenvalues,
    }
