"""A reverse rule of one's own: a softplus whose backward pass is the sigmoid, in a robust regression."""

import quabla as qb

SCALE = 1
X = qb.reshape(qb.sin(qb.arange(40.0 * SCALE)), (10 * SCALE, 4))
Y = qb.cos(qb.arange(10.0 * SCALE))


def plain(x):
    return qb.log1p(qb.exp(x))


smooth = qb.custom_vjp(plain)


def forward(x):
    return plain(x), x


def backward(x, ct):
    return (ct * qb.sigmoid(x),)


smooth.defvjp(forward, backward)


def loss(w):
    return qb.mean(smooth(qb.matmul(X, w) - Y)) + 0.01 * qb.sum(qb.square(w))


def start():
    return qb.array([0.1, -0.2, 0.3, 0.4])


def main():
    w, state = start(), None
    optimizer = qb.optim.SGD(0.5)
    state = optimizer.init(w)
    for _ in range(5):
        w, state = optimizer.update(w, qb.grad(loss)(w), state)
    return {"w": w, "loss": loss(w), "far": qb.grad(lambda x: smooth(x))(qb.array(30.0))}
