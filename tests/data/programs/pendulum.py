"""A damped pendulum with error control and states at given times."""

import quabla as qb

TIMES = qb.linspace(0.5, 3.0, 6)


def rates(y, t, p):
    return qb.stack([y[1], -p[0] * qb.sin(y[0]) - p[1] * y[1]])


def path(p):
    return qb.ode.odeint(
        rates, qb.array([1.0, 0.0]), (0.0, 3.0), method="dopri5", saveat=TIMES, args=(p,), max_steps=48
    )


def loss(p):
    return qb.sum(qb.square(path(p)[:, 0] - 0.5))


def start():
    return qb.array([2.0, 0.3])


def main():
    return {"path": path(start()), "slope": qb.grad(loss)(start())}
