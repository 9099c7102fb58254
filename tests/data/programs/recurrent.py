"""A recurrent cell over a sequence by scan, fitted to a sine."""

import quabla as qb

SCALE = 1
T, H = 24 * SCALE, 3
TARGET = qb.sin(0.3 * qb.arange(float(T)))


def loss(theta):
    def cell(h, i, theta):
        w = qb.reshape(theta[: H * H], (H, H))
        h = qb.tanh(qb.matmul(w, h) + theta[H * H : H * H + H] + 0.1 * qb.sin(i))
        return h, qb.dot(theta[H * H + H :], h)

    _, outputs = qb.scan(cell, qb.zeros(H) + 0.0 * theta[:H], length=T, operands=(theta,))
    return qb.mean(qb.square(outputs - TARGET))


def start():
    return 0.4 * qb.random.normal(qb.random.key(3), (H * H + 2 * H,))


def main():
    theta = start()
    optimizer = qb.optim.AdamW(0.05, clip_norm=1.0)
    state = optimizer.init(theta)
    for _ in range(5):
        theta, state = optimizer.update(theta, qb.grad(loss)(theta), state)
    return {"theta": theta, "loss": loss(theta), "step": state["step"]}
