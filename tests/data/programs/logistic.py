"""Logistic regression by Newton steps with the Hessian."""

import quabla as qb

SCALE = 1
X = qb.reshape(qb.sin(1.7 * qb.arange(120.0 * SCALE)), (30 * SCALE, 4))
Y = qb.astype(qb.matmul(X, qb.array([1.0, -2.0, 0.5, 0.0])) > 0.1, qb.float64)


def loss(w):
    z = qb.matmul(X, w)
    return qb.mean(qb.softplus(z) - Y * z) + 0.05 * qb.sum(qb.square(w))


def start():
    return qb.zeros(4)


def main():
    w = start()
    for _ in range(4):
        w = w - qb.solve(qb.hessian(loss)(w), qb.grad(loss)(w))
    return {"w": w, "loss": loss(w)}
