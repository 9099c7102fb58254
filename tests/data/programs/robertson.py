"""Stiff chemistry by Rosenbrock steps, and its sensitivity to a rate."""

import quabla as qb


def rates(y, t, k):
    a, b = -k[0] * y[0] + k[2] * y[1] * y[2], k[1] * y[1] * y[1]
    return qb.stack([a, -a - b, b])


def loss(k):
    y = qb.ode.odeint(
        rates,
        qb.array([1.0, 0.0, 0.0]),
        (0.0, 1.0),
        method="rosenbrock23",
        args=(k,),
        rtol=1e-3,
        atol=1e-6,
        max_steps=48,
    )
    return y[0] + 1e4 * y[1]


def start():
    return qb.array([0.04, 3e3, 1e2])


def main():
    y, info = qb.ode.odeint(
        rates,
        qb.array([1.0, 0.0, 0.0]),
        (0.0, 1.0),
        method="rosenbrock23",
        args=(start(),),
        rtol=1e-3,
        atol=1e-6,
        info=True,
    )
    return {"y": y, "accepted": info["accepted_steps"], "value": loss(start()), "slope": qb.grad(loss)(start())}
