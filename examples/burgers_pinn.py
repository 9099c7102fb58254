"""Burgers' equation by a physics-informed network whose loss has third derivatives, through a loop over layers.

u_t + u u_x = nu u_xx on [-1, 1], u(0, x) = -sin(pi x), u = 0 at the walls: the wave steepens to a front at x = 0. The
network's answer fulfils start and walls by its form; it is trained on the residual r of the equation and on r_x, which
holds u_xxx (gradient-enhanced training). The layers of equal size are one scan, so derivatives of order three in x and
one in the parameters go through one loop. The exact solution (Cole and Hopf) is only compared with.

    python examples/burgers_pinn.py [--tiny] [--output FOLDER]
"""

import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
from common import figure, options

import quabla_jax as qb
from quabla_jax.compat import lax

NU, WIDTH, LAYERS = 0.1 / np.pi, 24, 4


def parameters(key):
    first, hidden, last = jax.random.split(key, 3)
    return {
        "first": jax.random.normal(first, (2, WIDTH)),
        "hidden": jax.random.normal(hidden, (LAYERS, WIDTH, WIDTH)) / WIDTH**0.5,
        "bias": jnp.zeros((LAYERS, WIDTH)),
        "last": jax.random.normal(last, (WIDTH,)) / WIDTH,
    }


def solution(p, t, x):
    """u at points t, x of one shape [n]."""
    layer = lambda h, wb: (jnp.tanh(h @ wb[0] + wb[1]), None)
    h = jnp.tanh(jnp.stack([2 * t - 1, x], 1) @ p["first"])
    h, _ = lax.scan(layer, h, (p["hidden"], p["bias"]))
    return -jnp.sin(np.pi * x) + t * (1 - x * x) * (h @ p["last"])


def along(fun, at):
    """(fun(at), its derivative): fun maps points to values one by one."""
    return jax.jvp(fun, (at,), (jnp.ones_like(at),))


def residual(p, t, x):
    """r = u_t + u u_x - nu u_xx and r_x."""

    def r(x):
        (u, slope), (_, bend) = along(lambda x: along(lambda x: solution(p, t, x), x), x)
        return along(lambda t: solution(p, t, x), t)[1] + u * slope - NU * bend

    return along(r, x)


def loss(p, t, x):
    r, r_x = residual(p, t, x)
    return jnp.mean(r**2) + 1e-3 * jnp.mean(r_x**2)


def exact(t, x):
    """Cole and Hopf's solution by Gauss-Hermite quadrature, t > 0; arrays of one shape."""
    z, w = np.polynomial.hermite.hermgauss(200)
    y = x[..., None] - np.sqrt(4 * NU * t[..., None]) * z
    weight = w * np.exp(-(np.cos(np.pi * y) - np.cos(np.pi * x[..., None])) / (2 * np.pi * NU))
    return -np.sum(weight * np.sin(np.pi * y), -1) / np.sum(weight, -1)


def train(p, steps, points, chunk=100, report=print):
    """Adam on fresh points at every step; `chunk` steps are one compiled loop."""
    method = optax.adam(optax.cosine_decay_schedule(5e-3, steps))

    def step(i, carry):
        p, state, key, _ = carry
        key, for_t, for_x = jax.random.split(key, 3)
        x = jax.random.uniform(for_x, (points,), minval=-1.0)
        x = jnp.where(jnp.arange(points) % 2 == 0, x, x**3)  # half of them crowd where the front will stand
        value, slope = jax.value_and_grad(loss)(p, jax.random.uniform(for_t, (points,)), x)
        update, state = method.update(slope, state)
        return optax.apply_updates(p, update), state, key, value

    def many(carry):
        # Four layers are too few for a plan of their own under "auto"; this asks for one.
        with qb.checkpointing("sqrt"):
            return lax.fori_loop(0, chunk, step, carry)

    run = jax.jit(many)
    carry, history = (p, method.init(p), jax.random.key(1), jnp.zeros(())), []
    for done in range(chunk, steps + 1, chunk):
        carry = run(carry)
        history.append((done, float(carry[3])))
        report(f"{done:5d}  loss {history[-1][1]:.2e}")
    return carry[0], np.asarray(history)


def picture(path, history, t, x, ours, truth):
    with figure(path, 13, 3.8) as drawn:
        field, slices, training = drawn.subplots(1, 3)
        values = field.imshow(ours.T, origin="lower", extent=(0, 1, -1, 1), aspect="auto", cmap="RdBu", vmin=-1, vmax=1)
        field.set(title="u of the network", xlabel="time t", ylabel="place x")
        drawn.colorbar(values, ax=field, label="u")
        for n in np.linspace(0, len(t) - 1, 4).astype(int):
            slices.plot(x, ours[n], label=f"t = {t[n]:.2f}")
            slices.plot(x[::6], truth[n, ::6], "k.", markersize=4)
        slices.set(title="network (lines) and exact solution (dots)", xlabel="place x", ylabel="u")
        slices.legend()
        training.semilogy(*history.T)
        training.set(title="training", xlabel="step", ylabel="loss")


def main(argv=None):
    args = options(__doc__, "few steps on few points", argv)
    began = time.perf_counter()
    steps, points, chunk = (40, 32, 20) if args.tiny else (3000, 256, 100)
    p, history = train(parameters(jax.random.key(0)), steps, points, chunk)
    t, x = np.linspace(0.02, 1, 50), np.linspace(-1, 1, 201)
    grid = np.stack(np.meshgrid(t, x, indexing="ij"))
    truth = exact(*grid)
    ours = np.asarray(solution(p, *(jnp.asarray(g.ravel(), jnp.float32) for g in grid))).reshape(truth.shape)
    error = float(np.sqrt(np.mean((ours - truth) ** 2) / np.mean(truth**2)))
    print(f"relative error {error:.2e}, {time.perf_counter() - began:.0f} s")
    picture(args.output / "burgers_pinn.png", history, t, x, ours, truth)
    return error


if __name__ == "__main__":
    main()
