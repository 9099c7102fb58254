"""Implicit heat steps: conjugate gradients inside a counted loop, differentiated by the implicit function theorem."""

import quabla as qb

SCALE = 1
N = 10 * SCALE


def apply(u, k):
    padded = qb.pad(u, 1)
    flux = k * (padded[1:] - padded[:-1])
    return u - (flux[1:] - flux[:-1])


def loss(k):
    def step(i, u, k):
        return qb.linalg.cg(apply, u, args=(k,), tol=1e-12)

    u = qb.fori_loop(0, 4, step, qb.sin(qb.linspace(0.1, 3.0, N)) + 0.0 * k[:-1], operands=(k,))
    return qb.sum(qb.square(u))


def start():
    return qb.linspace(0.2, 0.6, N + 1)


def main():
    k = start()
    return {"loss": loss(k), "gradient": qb.grad(loss)(k), "along": qb.jvp(loss, (k,), (qb.ones_like(k),))}
