"""A physics-informed network for u'' = -pi^2 sin(pi x) with u(0) = u(1) = 0, refined with L-BFGS."""

import math

import quabla as qb

SCALE = 1
WIDTH = 4 + 2 * SCALE
POINTS = qb.linspace(0.0, 1.0, 12 * SCALE**2)


def network(theta, x):
    hidden = qb.tanh(theta[:WIDTH] * x + theta[WIDTH : 2 * WIDTH])
    return qb.sum(theta[2 * WIDTH : 3 * WIDTH] * hidden) * x * (1.0 - x)


def residual(theta, x):
    second = qb.grad(lambda x, theta: qb.grad(lambda x, theta: network(theta, x))(x, theta))(x, theta)
    return second + math.pi**2 * qb.sin(math.pi * x)


def loss(theta):
    return qb.mean(qb.square(qb.vmap(residual, in_axes=(None, 0))(theta, POINTS)))


def start():
    return qb.random.normal(qb.random.key(0), (3 * WIDTH,))


def main():
    theta, info = qb.optim.LBFGS(max_iterations=3).minimize(loss, start())
    return {"loss": info["loss"], "theta": theta, "u": network(theta, qb.array(0.5))}
