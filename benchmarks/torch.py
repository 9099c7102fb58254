"""What a translated function costs in PyTorch: python benchmarks/torch.py [--quick] [--json FILE]

Prints a table of ratios, each beside the bar it is held to; exit status 1 where one is missed. Times are the least of
interleaved rounds on one thread, since machines are shared.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
import tempfile
import time
import warnings

# This file is called torch.py: its own folder must not shadow PyTorch.
sys.path[:] = [p for p in sys.path if pathlib.Path(p or ".").resolve() != pathlib.Path(__file__).resolve().parent]

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
from jax import lax  # noqa: E402

from quabla_jax import torch_bridge  # noqa: E402

TRIPS = 1000


def loop_jax(x):
    return lax.fori_loop(0, TRIPS, lambda i, c: jnp.sin(c) * 0.9 + i * 0.001, x)


def loop_torch(x: torch.Tensor) -> torch.Tensor:
    for i in range(1000):
        x = torch.sin(x) * 0.9 + i * 0.001
    return x


class LstmTorch(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = torch.nn.LSTM(32, 64)

    def forward(self, xs: torch.Tensor) -> torch.Tensor:
        return self.lstm(xs)[0]


def lstm_jax(params, xs):
    """torch.nn.LSTM's equations: gates in the order i, f, g, o."""
    w_ih, w_hh, b_ih, b_hh = params
    size = w_hh.shape[1]

    def step(state, x):
        h, c = state
        gates = w_ih @ x + b_ih + w_hh @ h + b_hh
        i, f, g, o = (gates[k * size : (k + 1) * size] for k in range(4))
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zero = jnp.zeros(size, xs.dtype)
    return lax.scan(step, (zero, zero), xs)[1]


def chain(equations):
    def fun(x):
        for k in range(equations // 2):
            x = lax.sin(x) * np.float32(1.0 + k * 1e-4)
        return x

    return fun


def interleaved(candidates, rounds, seconds=0.1):
    """Least seconds a call of each candidate, measured in turns on the processor's clock: what others do only adds."""
    repeats = {}
    for name, call in candidates.items():
        for _ in range(4):
            call()
        start = time.perf_counter()
        call()
        repeats[name] = max(1, int(seconds / len(candidates) / max(time.perf_counter() - start, 1e-6)))
    times = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, call in candidates.items():
            start = time.process_time()
            for _ in range(repeats[name]):
                call()
            times[name].append((time.process_time() - start) / repeats[name])
    return {name: min(values) for name, values in times.items()}


def aot(fun, x, folder):
    """The exported program compiled by AOTInductor, as a callable; None where no compiler is found."""
    import shutil

    if shutil.which("g++") is None or not hasattr(torch_bridge, "to_exported_program"):
        return None
    program = torch_bridge.to_exported_program(fun, x)
    package = torch._inductor.aoti_compile_and_package(program, package_path=str(folder / "loop.pt2"))
    return torch._inductor.aoti_load_package(package)


def measure_loop(rounds, with_aot, folder):
    x = np.linspace(0, 1, 16).astype(np.float32)
    tensor = torch.from_numpy(x)
    ours, script = torch_bridge.to_torchscript(loop_jax, x), torch.jit.script(loop_torch)
    reference = loop_torch(tensor)
    candidates = {
        "ours": lambda: ours(tensor),
        "script": lambda: script(tensor),
        "eager": lambda: loop_torch(tensor),
    }
    compiled = aot(loop_jax, x, folder) if with_aot else None
    if compiled is not None:
        candidates["aot"] = lambda: compiled(tensor)
    for call in candidates.values():
        out = call()
        torch.testing.assert_close(out[0] if isinstance(out, (tuple, list)) else out, reference, rtol=1e-5, atol=1e-5)
    times = interleaved(candidates, rounds)
    yield "loop of 1,000 trips, against torch.jit.script by hand", times["ours"] / times["script"], 1.1
    yield "loop of 1,000 trips, against eager torch", times["ours"] / times["eager"], 0.6
    if compiled is not None:
        yield "the same by AOTInductor, against eager torch", times["aot"] / times["eager"], 0.2


def measure_lstm(rounds):
    reference = LstmTorch()
    xs = torch.randn(256, 1, 32)
    params = tuple(p.detach().numpy() for p in reference.parameters())
    ours = torch_bridge.to_torchscript(lstm_jax, xs[:, 0].numpy(), params=params)
    script = torch.jit.script(reference)
    flat = xs[:, 0].contiguous()
    torch.testing.assert_close(ours(flat), reference(xs)[:, 0], rtol=1e-4, atol=1e-5)
    times = interleaved({"ours": lambda: ours(flat), "script": lambda: script(xs)}, rounds)
    yield "LSTM over 256 steps, against torch.nn.LSTM scripted", times["ours"] / times["script"], None


def measure_size(rounds, folder):
    fun, x = chain(5000), np.ones(16, np.float32)
    torch_bridge.to_torchscript(chain(2), x)
    spent = []
    for _ in range(max(3, rounds // 3)):
        jax.clear_caches()
        start = time.process_time()  # one thread, no waiting: the processor's time is what it takes where it is alone
        module = torch_bridge.to_torchscript(fun, x)
        torch_bridge.save(module, folder / "chain.pt")
        torch.jit.load(str(folder / "chain.pt"))
        spent.append(time.process_time() - start)
    yield "5,000 equations built, saved and loaded (seconds)", min(spent), 1.0


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds and no AOTInductor build")
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rounds = 5 if args.quick else 15
    rows, missed = [], 0
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        folder = pathlib.Path(folder)
        for source in (
            measure_loop(rounds, not args.quick, folder),
            measure_lstm(rounds),
            measure_size(rounds, folder),
        ):
            for what, value, bar in source:
                good = bar is None or value <= bar
                missed += not good
                rows.append({"what": what, "value": value, "bar": bar})
                print(
                    f"{what:56s}{value:8.2f}  {'stated' if bar is None else f'at most {bar}'}{'' if good else '  MISSED'}",
                    flush=True,
                )
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
