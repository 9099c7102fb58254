"""The equilibrium of a chain of nonlinear springs by Newton's method, and how it moves with its parameters."""

import quabla as qb

SCALE = 1
N = 4 * SCALE


def balance(x, p):
    padded = qb.pad(x, 1)
    stretch = padded[1:] - padded[:-1]
    force = p[0] * stretch + p[1] * stretch * stretch * stretch
    return force[1:] - force[:-1] + p[2] * qb.exp(-x)


def loss(p):
    return qb.sum(qb.square(qb.newton(balance, qb.zeros(N), args=(p,))))


def start():
    return qb.array([1.0, 0.3, 0.2])


def main():
    p = start()
    x, info = qb.newton(balance, qb.zeros(N), args=(p,), info=True)
    return {"x": x, "iterations": info["iterations"], "success": info["success"], "gradient": qb.grad(loss)(p)}
