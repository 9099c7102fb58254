"""Rosenbrock's valley in six dimensions, by L-BFGS with a strong Wolfe search."""

import quabla as qb

SCALE = 1


def loss(x):
    return qb.sum(100.0 * qb.square(x[1:] - qb.square(x[:-1])) + qb.square(1.0 - x[:-1]))


def start():
    return qb.tile(qb.array([-1.2, 1.0]), 3 * SCALE)


def main():
    x, info = qb.optim.LBFGS(history=6).minimize(loss, start())
    return {"x": x, "reason": info["reason"], "iterations": info["iterations"], "evaluations": info["evaluations"]}
