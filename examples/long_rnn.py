"""The gradient of a long recurrent network in bounded memory, from a program that knows nothing of quabla_jax.

An unedited JAX gradient step: an independently recurrent network (each unit feeds back on itself alone) of 2,048 units
over 32,768 steps of eight sequences, looped by jax.lax.scan. Each step's state is 64 KiB, so what jax.grad keeps of
all steps is 2 GiB a stored array, and it dies where memory is limited. Run through the engine, the same program keeps
about two square roots of the steps:

    bash -c 'ulimit -v 6000000; python examples/long_rnn.py'                                # out of memory
    bash -c 'ulimit -v 6000000; python -m quabla_jax.compat -c sqrt examples/long_rnn.py'   # fits

    python -m quabla_jax.compat [-c CHECKPOINT] examples/long_rnn.py [--steps N] [--units N] [--batch N]

CHECKPOINT: auto (the default; decides by the memory of the machine, not by ulimit), sqrt, a number of carries, or a
size such as 512MB.
"""

import argparse
import re
import resource
import sys
import time

import jax
import jax.numpy as jnp
from jax.lax import scan


def parameters(key, units):
    recurrent, drive, read = jax.random.split(key, 3)
    return {
        "recurrent": jax.random.uniform(recurrent, (units,), minval=-0.99, maxval=0.99),
        "drive": jax.random.normal(drive, (units,)) * 0.5,
        "read": jax.random.normal(read, (units,)) / units,
    }


def loss(p, inputs, targets):
    """Mean squared error of the prediction after each step; inputs and targets are [steps, batch]."""

    def step(carry, at):
        state, total = carry
        x, y = at
        state = jnp.tanh(state * p["recurrent"] + x[:, None] * p["drive"])
        return (state, total + jnp.sum((state @ p["read"] - y) ** 2)), None

    start = jnp.zeros((inputs.shape[1], p["drive"].shape[0])), jnp.zeros(())
    (_, total), _ = scan(step, start, (inputs, targets))
    return total / inputs.size


def peak_mebibytes():
    """The most memory this program held. Linux's ru_maxrss also counts the process that started it, so not that one."""
    if sys.platform.startswith("linux"):
        with open("/proc/self/status") as status:
            return int(re.search(r"VmHWM:\s+(\d+)", status.read())[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # bytes on macOS


def main(argv=None):
    options = argparse.ArgumentParser(description="One gradient of a long RNN.")
    options.add_argument("--steps", type=int, default=32768)
    options.add_argument("--units", type=int, default=2048)
    options.add_argument("--batch", type=int, default=8)
    args = options.parse_args(argv)
    inputs = jax.random.normal(jax.random.key(1), (args.steps, args.batch))
    targets = jnp.roll(inputs, 3, axis=0)
    began = time.perf_counter()
    value, grads = jax.jit(jax.value_and_grad(loss))(parameters(jax.random.key(0), args.units), inputs, targets)
    norm = jnp.sqrt(sum(jnp.sum(g**2) for g in jax.tree.leaves(grads)))
    print(f"loss {float(value):.6f}  gradient norm {float(norm):.6f}")
    print(f"{args.steps} steps in {time.perf_counter() - began:.1f} s, peak memory {peak_mebibytes():,.0f} MiB")


if __name__ == "__main__":
    main()
