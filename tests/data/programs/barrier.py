"""A log barrier by cond, evaluated for many points at once: the branch not taken leaves no NaN."""

import quabla as qb


def barrier(s):
    return qb.cond(s > 0.0, lambda s: -qb.log(s), lambda s: 10.0 - 10.0 * s, s)


def loss(x):
    slack = qb.concat([1.0 - x, x + 0.5], 0)
    return qb.sum(qb.square(x)) + 0.1 * qb.sum(qb.vmap(barrier)(slack))


def start():
    return qb.linspace(-0.8, 1.4, 10)


def main():
    x = start()
    return {"loss": loss(x), "gradient": qb.grad(loss)(x), "hessian": qb.hessian(loss)(x)}
