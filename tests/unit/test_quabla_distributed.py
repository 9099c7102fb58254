"""Data-parallel gradients on forced host devices, in one process and in two."""

import importlib.util
import os
import pathlib
import socket
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import quabla_jax as qb

WORKER = pathlib.Path(__file__).parents[1] / "data" / "distributed" / "worker.py"


def worker():
    """The worker's module, with this process's own flags kept."""
    flags = dict(os.environ)
    spec = importlib.util.spec_from_file_location("quabla_distributed_worker", WORKER)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    os.environ.clear()
    os.environ.update(flags)
    return module


def assert_close(got, want):
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-13, atol=1e-15)


def small_loss(p, x):
    return qb.mean(qb.square(qb.matmul(x, p["w"]) + p["b"]))


PARAMETERS = {"w": jnp.arange(3.0), "b": jnp.asarray(0.5)}
BATCH = jnp.asarray(np.random.default_rng(0).normal(size=(8, 3)))


@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_any_number_of_devices_gives_the_single_device_gradient(count):
    if len(jax.devices()) < count:
        pytest.skip(f"needs {count} devices")
    step = qb.distributed.value_and_grad(small_loss, devices=jax.devices()[:count], shard_argnums=1)
    assert_close(step(PARAMETERS, BATCH), jax.value_and_grad(small_loss)(PARAMETERS, BATCH))


def test_sum_adds_the_losses_of_the_shards():
    step = qb.distributed.value_and_grad(small_loss, devices=["cpu:0", "cpu:1"], shard_argnums=1, reduction="sum")
    halves = [jax.value_and_grad(small_loss)(PARAMETERS, half) for half in (BATCH[:4], BATCH[4:])]
    assert_close(step(PARAMETERS, BATCH), jax.tree.map(lambda a, b: a + b, *halves))


def test_argnums_pick_the_gradients_and_static_values_pass():
    def loss(x, a, n, b):
        return qb.mean(x) * a * n + b["k"]

    step = qb.distributed.value_and_grad(loss, shard_argnums=0, argnums=(1, 3))
    value, (in_a, in_b) = step(BATCH, jnp.asarray(2.0), 3, {"k": jnp.asarray(1.0)})
    assert_close((value, in_a, in_b), (6 * BATCH.mean() + 1, 3 * BATCH.mean(), {"k": 1.0}))


def test_checkpointed_loops_inside_one_process():
    module = worker()
    problem = module.problem()
    step = qb.distributed.value_and_grad(module.loss, shard_argnums=(1, 2))
    assert_close(step(*problem), jax.jit(jax.value_and_grad(module.loss))(*problem))


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_two_processes_give_the_single_device_gradient(tmp_path):
    address = f"127.0.0.1:{_free_port()}"
    paths = [tmp_path / f"{number}.quabla" for number in range(2)]
    environment = {k: v for k, v in os.environ.items() if k not in ("XLA_FLAGS", "JAX_PLATFORMS")}
    environment["PYTHONPATH"] = os.pathsep.join([str(WORKER.parents[3]), environment.get("PYTHONPATH", "")])
    started = [
        subprocess.Popen(
            [sys.executable, str(WORKER), address, str(number), str(path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
        )
        for number, path in enumerate(paths)
    ]
    try:
        outputs = [process.communicate(timeout=240)[0] for process in started]
    finally:
        for process in started:
            process.kill()
    assert [process.returncode for process in started] == [0, 0], "\n".join(outputs)
    module = worker()
    value, gradients = jax.jit(jax.value_and_grad(module.loss))(*module.problem())
    for path in paths:
        found = qb.load(path)
        assert_close((found["value"], found["gradients"]), (value, gradients))


@pytest.mark.parametrize(
    "options, error, text",
    [
        ({"devices": "cpu"}, TypeError, "must be a sequence"),
        ({"devices": []}, ValueError, "at least one device"),
        ({"devices": ["cpu:0", "cpu:0"]}, ValueError, "duplicate"),
        ({"devices": ["cuda:0", "cuda:1"]}, qb.UnsupportedOperationError, "not available"),
        ({"reduction": "max"}, ValueError, "'sum' or 'mean'"),
    ],
)
def test_wrong_options_raise(options, error, text):
    with pytest.raises(error, match=text):
        qb.distributed.value_and_grad(small_loss, shard_argnums=1, **options)


@pytest.mark.parametrize(
    "args, error, text",
    [
        ((PARAMETERS, BATCH[:7]), ValueError, "divisible into equal device shards"),
        ((PARAMETERS, {"a": BATCH, "b": BATCH[:4]}), ValueError, "same axis-zero batch size"),
        ((PARAMETERS, jnp.asarray(1.0)), ValueError, "rank at least one"),
        ((PARAMETERS, "text"), TypeError, "must be an array"),
        ((PARAMETERS,), ValueError, "out of range"),
    ],
)
def test_wrong_arguments_raise(args, error, text):
    with pytest.raises(error, match=text):
        qb.distributed.value_and_grad(small_loss, shard_argnums=1)(*args)


def test_it_refuses_to_run_inside_another_transform():
    step = qb.distributed.value_and_grad(small_loss, shard_argnums=1)
    with pytest.raises(qb.UnsupportedOperationError, match="inside another transform"):
        jax.jit(step)(PARAMETERS, BATCH)


def test_a_batch_cannot_be_differentiated():
    with pytest.raises(ValueError, match="must be replicated"):
        qb.distributed.value_and_grad(small_loss, shard_argnums=1, argnums=(0, 1))(PARAMETERS, BATCH)
