"""A gated recurrent unit that reads handwritten digits row by row (scikit-learn's 1,797 images of 8 x 8).

Two loops: the network is a scan over the eight rows of an image, and an epoch is a scan over minibatches whose body
takes the gradient of the first. Afterwards the trained network is written as TorchScript, where PyTorch is installed,
and its answers there are compared.

    python examples/digits_gru.py [--tiny] [--output FOLDER]
"""

import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
from common import figure, options
from sklearn.datasets import load_digits

from quabla_jax.compat import lax

UNITS, BATCH = 48, 100


def parameters(key, units=UNITS):
    gates, candidate, read = jax.random.split(key, 3)
    fan = 8 + units
    return {
        "gates": jax.random.normal(gates, (fan, 2 * units)) / fan**0.5,
        "candidate": jax.random.normal(candidate, (fan, units)) / fan**0.5,
        "read": jax.random.normal(read, (units, 10)) / units**0.5,
        "bias": jnp.zeros(10),
    }


def states(p, images):
    """The state after each row: [rows, batch, units] of images [batch, rows, columns]."""

    def row(h, x):
        update, reset = jnp.split(jax.nn.sigmoid(jnp.concatenate([x, h], 1) @ p["gates"]), 2, axis=1)
        new = jnp.tanh(jnp.concatenate([x, reset * h], 1) @ p["candidate"])
        h = update * h + (1 - update) * new
        return h, h

    start = jnp.zeros((images.shape[0], p["read"].shape[0]), images.dtype)
    return lax.scan(row, start, jnp.swapaxes(images, 0, 1))[1]


def logits(p, images):
    return states(p, images)[-1] @ p["read"] + p["bias"]


def loss(p, images, labels):
    return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits(p, images), labels))


def data():
    """((images, labels) to train on, the same to test on); pixels from 0 to 1."""
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    images = jnp.asarray(digits.images[order] / 16.0, jnp.float32)
    labels = jnp.asarray(digits.target[order], jnp.int32)
    return (images[:1500], labels[:1500]), (images[1500:], labels[1500:])


def train(p, images, labels, epochs, report):
    method = optax.adam(1e-2)

    @jax.jit
    def epoch(p, state, key):
        order = jax.random.permutation(key, len(labels)).reshape(-1, BATCH)

        def batch(carry, chosen):
            p, state = carry
            value, slope = jax.value_and_grad(loss)(p, images[chosen], labels[chosen])
            update, state = method.update(slope, state)
            return (optax.apply_updates(p, update), state), value

        return lax.scan(batch, (p, state), order)

    state = method.init(p)
    for number in range(epochs):
        (p, state), values = epoch(p, state, jax.random.key(number))
        report(number, p, float(jnp.mean(values)))
    return p


def picture(path, p, images, labels, history):
    shown = [int(jnp.argmax(labels == digit)) for digit in (0, 3, 4, 7, 9)]
    belief = jax.nn.softmax(states(p, images[jnp.asarray(shown)]) @ p["read"] + p["bias"])
    epochs = np.arange(1, len(history) + 1)
    with figure(path, 12, 5.4) as drawn:
        top, bottom = drawn.subfigures(2, 1, height_ratios=(1.5, 1))
        axis = top.subplots()
        axis.semilogy(epochs, [h[1] for h in history], color="tab:blue", label="loss in training")
        axis.set(xlabel="epoch", ylabel="loss")
        share = axis.twinx()
        share.plot(epochs, [100 * h[0] for h in history], color="tab:orange", label="unseen images read rightly")
        share.set(ylim=(0, 101), ylabel="read rightly, %")
        axis.legend(handles=[*axis.lines, *share.lines], loc="center right")
        # Square pixels and widths like the columns: the rows of an image and of its table stand side by side.
        axes = bottom.subplots(1, 2 * len(shown), width_ratios=[8, 10] * len(shown))
        for column, (axis, at) in enumerate(zip(axes.reshape(-1, 2), shown)):
            axis[0].imshow(images[at], cmap="gray_r")
            axis[0].set(title=f"a {int(labels[at])}", xticks=[], yticks=[])
            table = axis[1].imshow(belief[:, column], cmap="Blues", vmin=0, vmax=1)
            axis[1].set(title="said to be", xticks=range(0, 10, 3), yticks=[])
        bottom.colorbar(table, ax=axes, label="probability")
        bottom.supxlabel(
            "left: an image, read from the top; right: the probability of each digit (across) after each row",
            fontsize=10,
        )


def exported(path, p, images):
    """Writes the trained network as TorchScript; the largest difference of its answers, or None without PyTorch."""
    try:
        import torch
    except ImportError:
        return None
    from quabla_jax import torch_bridge

    torch_bridge.save(torch_bridge.to_torchscript(logits, images, params=p), path)
    theirs = torch.jit.load(path)(torch.from_numpy(np.array(images)))
    return float(np.max(np.abs(np.asarray(logits(p, images)) - theirs.detach().numpy())))


def main(argv=None):
    args = options(__doc__, "three epochs", argv)
    began, history = time.perf_counter(), []
    (images, labels), (unseen, truth) = data()
    right = jax.jit(lambda p: jnp.mean(jnp.argmax(logits(p, unseen), 1) == truth))

    def report(number, p, value):
        history.append((float(right(p)), value))
        if number % 5 == 4 or args.tiny:
            print(f"epoch {number + 1:3d}  loss {value:.4f}  right {100 * history[-1][0]:.1f} %")

    p = train(parameters(jax.random.key(0)), images, labels, 3 if args.tiny else 40, report)
    print(
        f"{100 * history[-1][0]:.1f} % of {len(truth)} unseen images read rightly, {time.perf_counter() - began:.0f} s"
    )
    off = exported(args.output / "digits_gru.pt", p, unseen[:16])
    if off is not None:
        print(f"TorchScript answers differ by at most {off:.1e}")
    picture(args.output / "digits_gru.png", p, unseen, truth, history)
    return history[-1][0], off


if __name__ == "__main__":
    main()
