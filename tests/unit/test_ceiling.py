"""Gradients of long loops under a memory ceiling set from the plan's own promise plus 30 %.

Each run is a process of its own: it warms up, compiles, measures what it holds, allows itself the promise and 30 % of
it on top (RLIMIT_DATA, which counts heap and private mappings; RLIMIT_AS would count the address space that XLA reserves
and never touches), and computes the gradient. Under the same ceiling the full tape dies, so the ceiling means something.
"""

import os
import subprocess
import sys
import textwrap

import pytest

if sys.platform != "linux":
    pytest.skip("RLIMIT_DATA covers mappings on Linux alone", allow_module_level=True)

SCRIPT = textwrap.dedent("""
    import resource, sys
    import jax, jax.numpy as jnp
    import quabla_jax as qb
    from quabla_jax.compat import lax

    kind, length, request, promised_by = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
    read = lambda text: int(text) if text.isdigit() else qb.Budget(text) if text[0].isdigit() else text
    N = 500_000
    CARRIES = {
        "array": (lambda x: x, lambda c: jnp.sin(c) * 1.01),
        "pair": (lambda x: (x[: N // 2], x[N // 2 :]), lambda c: (c[0] + 0.1 * jnp.sin(c[1]), c[1] - 0.1 * jnp.sin(c[0]))),
        "dict": (lambda x: {"m": x.reshape(500, -1)}, lambda c: {"m": c["m"] + 0.1 * jnp.sin(c["m"][::-1])}),
    }
    start, step = CARRIES[kind]

    def loss(x, length, request):
        out = lax.fori_loop(0, length, lambda i, c: step(c), start(x), checkpoint=request)
        return sum(jnp.sum(leaf) for leaf in jax.tree.leaves(out))

    def gradient(length, request):
        return jax.jit(jax.grad(lambda x: loss(x, length, request))).lower(x).compile()

    x = jnp.ones(N, jnp.float32)
    gradient(3, "full")(x).block_until_ready()
    compiled = gradient(length, read(request))
    promise = qb.plan_loop(length, 4 * N, 4 * N, checkpoint=read(promised_by)).stored_bytes
    held = next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmData"))
    ceiling = held + int(1.3 * promise)
    resource.setrlimit(resource.RLIMIT_DATA, (ceiling, ceiling))
    try:
        total = float(compiled(x).sum())
    except jax.errors.JaxRuntimeError as error:
        print("died: out of memory" if "Out of memory" in str(error) else error)
    else:
        print("lived:", total == total, promise)
""")


def run(kind, length, request, promised_by=None):
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""}
    command = [sys.executable, "-c", SCRIPT, kind, str(length), request, promised_by or request]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()


def test_a_plan_keeps_its_promise_and_the_full_tape_dies():
    assert run("array", 300, "sqrt").startswith("lived: True")
    assert run("array", 300, "full", "sqrt").startswith("died: out of memory")


PLANS = [
    (300, "sqrt"), (500, "sqrt"), (900, "sqrt"), (300, "20"), (300, "30"), (500, "25"), (300, "60MB"), (500, "100MB"),
    (400, "80MB"), (900, "200MB"),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["array", "pair", "dict"])
@pytest.mark.parametrize("length, request_", PLANS, ids=lambda v: str(v))
def test_ten_plans_and_three_carries(kind, length, request_):
    assert run(kind, length, request_).startswith("lived: True")
    assert run(kind, length, "full", request_).startswith("died: out of memory")
