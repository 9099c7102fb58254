"""A forward rule of one's own, transposed for reverse mode: waves fitted to samples."""

import quabla as qb

SCALE = 1
X = qb.linspace(-1.0, 1.0, 16 * SCALE)
Y = qb.exp(-qb.square(2.0 * X))


@qb.custom_jvp
def wave(x):
    return qb.sin(3.0 * x) / 3.0


@wave.defjvp
def wave_rule(primals, tangents):
    (x,), (t,) = primals, tangents
    return wave(x), qb.cos(3.0 * x) * t


def loss(a):
    return qb.mean(qb.square(a[0] * wave(a[1] * X + a[2]) + a[3] * wave(2.0 * X) - Y))


def start():
    return qb.array([1.0, 0.5, 0.4, -0.2])


def main():
    a = start()
    return {"loss": loss(a), "gradient": qb.grad(loss)(a), "hessian": qb.hessian(loss)(a)}
