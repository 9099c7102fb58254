"""The equilibrium of a nonlinear system by Newton's method, and how it moves with its parameters."""

import quabla as qb


def balance(x, p):
    return qb.stack([x[0] + p[0] * qb.exp(x[1]) - p[1], x[1] + qb.tanh(x[0] * p[2]) - 0.5])


def loss(p):
    x = qb.newton(balance, qb.array([0.5, 0.5]), args=(p,))
    return x[0] * x[0] + 2.0 * x[1]


def start():
    return qb.array([0.3, 1.0, 0.7])


def main():
    p = start()
    x, info = qb.newton(balance, qb.array([0.5, 0.5]), args=(p,), info=True)
    return {"x": x, "iterations": info["iterations"], "success": info["success"], "gradient": qb.grad(loss)(p)}
