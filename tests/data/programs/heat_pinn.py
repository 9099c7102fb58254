"""A physics-informed network for the heat equation u_t = u_xx, trained with Adam on a cosine schedule."""

import quabla as qb

SCALE = 1
WIDTH = 3 + 2 * SCALE
POINTS = qb.stack([qb.linspace(0.1, 0.9, 8 * SCALE**2), qb.linspace(0.9, 0.1, 8 * SCALE**2)], 1)


def network(theta, tx):
    w = qb.reshape(theta[: 2 * WIDTH], (WIDTH, 2))
    hidden = qb.tanh(qb.matmul(w, tx) + theta[2 * WIDTH : 3 * WIDTH])
    return qb.dot(theta[3 * WIDTH : 4 * WIDTH], hidden)


def residual(tx, theta):
    first = qb.grad(lambda tx, theta: network(theta, tx))(tx, theta)
    second = qb.hessian(lambda tx, theta: network(theta, tx))(tx, theta)
    return first[0] - second[1, 1]


def loss(theta):
    inside = qb.vmap(residual, in_axes=(0, None))(POINTS, theta)
    initial = qb.vmap(lambda x, theta: network(theta, qb.stack([0.0 * x, x])), in_axes=(0, None))(POINTS[:, 1], theta)
    return qb.mean(qb.square(inside)) + qb.mean(qb.square(initial - qb.sin(3.0 * POINTS[:, 1])))


def start():
    return 0.5 * qb.random.normal(qb.random.key(1), (4 * WIDTH,))


def main():
    trainer = qb.optim.Trainer(loss, start(), qb.optim.Adam(qb.optim.cosine_decay(0.05, 20)))
    for _ in range(10):
        trainer.step()
    return {"loss": trainer.loss(), "theta": trainer.params}
