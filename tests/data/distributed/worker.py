"""One of two processes with four CPU devices each: a data-parallel gradient with checkpointed loops inside.

Arguments: the coordinator's address, this process's number, the file for its result.
"""

import os
import sys

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax

jax.config.update("jax_enable_x64", True)


def loss(p, x, y):
    """The mean squared error of a loop of 12 cells that keeps 3 carries, and of a scan with square-root checkpoints."""
    import quabla_jax as qb

    def cell(i, h, w):
        return qb.tanh(qb.matmul(h, w) + 0.1 * h)

    def scanned(h, i, w):
        h = qb.sin(qb.matmul(h, w))
        return h, qb.mean(h)

    h = qb.fori_loop(0, 12, cell, qb.matmul(x, p["in"]), operands=(p["w"],), checkpoint=3)
    h, trace = qb.scan(scanned, h, length=9, operands=(p["w"],), checkpoint="sqrt")
    return qb.mean(qb.square(qb.matmul(h, p["out"]) - y)) + 0.01 * qb.sum(trace)


def problem():
    """Parameters and a batch of 16, the same in every process."""
    import quabla_jax as qb

    keys = qb.random.split(qb.random.key(0), 5)
    shapes = {"in": (3, 4), "w": (4, 4), "out": (4, 2)}
    p = {name: 0.5 * qb.random.normal(key, shape) for key, (name, shape) in zip(keys, shapes.items())}
    return p, qb.random.normal(keys[3], (16, 3)), qb.random.normal(keys[4], (16, 2))


def main(address, number, path):
    import quabla_jax as qb

    jax.distributed.initialize(address, num_processes=2, process_id=int(number))
    assert jax.process_count() == 2 and len(jax.devices()) == 8 and len(jax.local_devices()) == 4
    step = qb.distributed.value_and_grad(loss, shard_argnums=(1, 2))
    value, gradients = step(*problem())
    qb.save(path, {"value": value, "gradients": gradients})
    jax.distributed.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
