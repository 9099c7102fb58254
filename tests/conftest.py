"""Shared by every tier: float64 on, threads held down, so that a test is the same alone and in a crowd."""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")

import jax

jax.config.update("jax_enable_x64", True)

import faulthandler  # noqa: E402
import itertools  # noqa: E402
import pathlib  # noqa: E402
import signal  # noqa: E402
import sys  # noqa: E402
import threading  # noqa: E402

import pytest  # noqa: E402

SECONDS_A_TEST, SECONDS_A_SLOW_TEST = 600, 1800
STDERR = pytest.StashKey[int]()
MAPPINGS = 30_000
finished = itertools.count(1)


def pytest_configure(config):
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's background job: interrupts would never arrive
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.stash[STDERR] = os.dup(sys.__stderr__.fileno())  # capturing has not begun


@pytest.fixture(autouse=True)
def deadline(request):
    """No test may hold up the rest. A Python loop that never ends is stopped and fails; what hangs in native code,
    where no handler runs, ends its process with every thread's traceback, and xdist names the test and goes on."""
    seconds = SECONDS_A_SLOW_TEST if request.node.get_closest_marker("slow") else SECONDS_A_TEST
    if own := request.node.get_closest_marker("seconds"):
        seconds = own.args[0]
    faulthandler.dump_traceback_later(seconds + 30, exit=True, file=request.config.stash[STDERR])
    if not hasattr(signal, "SIGALRM") or threading.current_thread() is not threading.main_thread():
        yield
        faulthandler.cancel_dump_traceback_later()
        return

    def late(*_):
        raise TimeoutError(f"the test ran for more than {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture(autouse=True)
def room_for_programs():
    """XLA on CPU maps memory for every program that it compiles and JAX keeps; where a process has as many mappings as Linux
    allows by default, 65,530, LLVM ends it."""
    yield
    if next(finished) % 25 == 0 and sys.platform.startswith("linux"):
        if pathlib.Path("/proc/self/maps").read_bytes().count(b"\n") > MAPPINGS:
            jax.clear_caches()
