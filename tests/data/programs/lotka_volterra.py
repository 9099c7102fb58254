"""Fits the four rates of a predator-prey system to observed states."""

import quabla as qb

SCALE = 1
TRUTH = qb.array([1.1, 0.4, 0.1, 0.4])
Y0 = qb.array([4.0, 2.0])
STEPS = 60 * SCALE


def rates(y, t, p):
    prey, predator = y[0], y[1]
    return qb.stack([p[0] * prey - p[1] * prey * predator, p[2] * prey * predator - p[3] * predator])


def states(p):
    return qb.ode.odeint(rates, Y0, (0.0, 6.0), steps=STEPS, args=(p,), save=True)


OBSERVED = states(TRUTH)[:: 10 * SCALE]


def loss(p):
    return qb.mean(qb.square(states(p)[:: 10 * SCALE] - OBSERVED))


def start():
    return qb.array([1.0, 0.35, 0.12, 0.45])


def main():
    p, info = qb.optim.LBFGS(max_iterations=5).minimize(loss, start())
    return {"p": p, "loss": info["loss"], "iterations": info["iterations"], "reason": info["reason"]}
