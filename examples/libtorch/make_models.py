"""Write what main.cpp loads: python make_models.py FOLDER [--steps N]

model.pt         the demo's Lotka-Volterra trajectory (quabla_jax.demo), 20 N Runge-Kutta steps in two nested loops
conditional.pt   ConditionalLoopModule, built by hand; conditional_decay.pt: the same with nothing added, so that it
                 breaks in the middle
theta.txt        the model's argument; expected.txt: what XLA gives for it, one line a year
"""

import argparse
import functools
import pathlib

import jax
import numpy as np
from conditional_loop import conditional_loop_module

from quabla_jax import torch_bridge
from quabla_jax.demo.model import START, trajectory


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=1000, help="Runge-Kutta steps a year")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    jax.config.update("jax_enable_x64", True)
    theta = np.asarray(START, np.float64)
    model = functools.partial(trajectory, steps=args.steps)
    functools.update_wrapper(model, trajectory)
    torch_bridge.save(torch_bridge.to_torchscript(model, theta), args.folder / "model.pt")
    torch_bridge.save(conditional_loop_module(), args.folder / "conditional.pt")
    torch_bridge.save(conditional_loop_module(added=0.0), args.folder / "conditional_decay.pt")
    np.savetxt(args.folder / "theta.txt", theta, fmt="%.17g")
    np.savetxt(args.folder / "expected.txt", np.asarray(jax.jit(model)(theta)), fmt="%.17g")


if __name__ == "__main__":
    main()
