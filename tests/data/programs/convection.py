"""Steady convection and diffusion by restarted GMRES with a diagonal preconditioner."""

import quabla as qb

SCALE = 1
N = 12 * SCALE
SOURCE = qb.sin(qb.linspace(0.2, 3.0, N))


def apply(u, v):
    padded = qb.pad(u, 1)
    return 2.5 * u - padded[:-2] - padded[2:] + v * (padded[2:] - padded[:-2])


def loss(v):
    u = qb.linalg.gmres(apply, SOURCE, args=(v,), tol=1e-12, restart=6, M=lambda r, v: r / 2.5)
    return qb.sum(qb.square(u))


def start():
    return qb.linspace(0.1, 0.5, N)


def main():
    v = start()
    u, info = qb.linalg.gmres(apply, SOURCE, args=(v,), restart=6, info=True)
    return {"u": u, "iterations": info["iterations"], "gradient": qb.grad(loss)(v)}
