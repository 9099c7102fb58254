"""Shared by every tier: float64 on, threads held down, so that a test is the same alone and in a crowd."""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")

import jax

jax.config.update("jax_enable_x64", True)

import signal  # noqa: E402
import threading  # noqa: E402

import pytest  # noqa: E402

SECONDS_A_TEST = 600


@pytest.fixture(autouse=True)
def deadline():
    """No test may hold up the rest: a Python loop that never ends is stopped and fails."""
    if not hasattr(signal, "SIGALRM") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def late(*_):
        raise TimeoutError(f"the test ran for more than {SECONDS_A_TEST} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS_A_TEST)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
