"""A log barrier by cond for many constraints at once: the branch not taken leaves no NaN."""

import quabla as qb

SCALE = 1
A = qb.reshape(qb.cos(1.3 * qb.arange(48.0 * SCALE)), (12 * SCALE, 4))


def barrier(s):
    return qb.cond(s > 0.1, lambda s: -qb.log(s), lambda s: 2.302585092994046 + 1.0 - 10.0 * s, s)


def loss(x):
    slack = 0.8 - qb.matmul(A, x)
    return qb.sum(qb.square(x - 1.0)) + 0.1 * qb.mean(qb.vmap(barrier)(slack))


def start():
    return qb.array([0.6, -0.2, 0.4, 0.1])


def main():
    x = start()
    return {"loss": loss(x), "gradient": qb.grad(loss)(x), "hessian": qb.hessian(loss)(x)}
