"""A forward rule of one's own, transposed for reverse mode."""

import quabla as qb


@qb.custom_jvp
def wave(x):
    return qb.sin(3.0 * x) / 3.0


@wave.defjvp
def wave_rule(primals, tangents):
    (x,), (t,) = primals, tangents
    return wave(x), qb.cos(3.0 * x) * t


def loss(x):
    return qb.sum(qb.square(wave(x))) + qb.sum(wave(x[:-1]) * wave(x[1:]))


def start():
    return qb.linspace(-1.0, 1.0, 8)


def main():
    x = start()
    return {"loss": loss(x), "gradient": qb.grad(loss)(x), "hessian": qb.hessian(loss)(x)}
