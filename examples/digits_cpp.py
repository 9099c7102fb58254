"""A network trained in JAX, run by a C++ program that has never heard of JAX.

The recurrent network of digits_gru.py is trained and written as TorchScript, its loop over the rows a loop of the file.
libtorch/classify.cpp, 40 lines against PyTorch's C++ library, is compiled, loads the file and reads 297 unseen images;
what it prints is compared with XLA's answers. Needs PyTorch, CMake and a C++17 compiler.

    python examples/digits_cpp.py [--tiny] [--output FOLDER]
"""

import pathlib
import shutil
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
from common import figure, options
from digits_gru import data, logits, parameters, train

from quabla_jax import torch_bridge


def build(sources, folder):
    """The path of the compiled program."""
    import torch

    missing = [tool for tool in ("cmake", "c++") if shutil.which(tool) is None]
    if missing:
        sys.exit(f"this example compiles a C++ program: install {' and '.join(missing)}")
    prefix = f"-DCMAKE_PREFIX_PATH={torch.utils.cmake_prefix_path}"
    for command in (
        ["cmake", "-S", sources, "-B", folder, prefix],
        ["cmake", "--build", folder, "--target", "classify"],
    ):
        done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return folder / "classify"


def export(p, images, path):
    """Writes the network for a batch like `images`; its parameters keep their names."""
    torch_bridge.save(torch_bridge.to_torchscript(logits, images, params=p), path)


def answers(program, model, images):
    """(classes [n], logits [n, 10]) that the C++ program prints."""
    pixels = model.with_suffix(".f32")
    pixels.write_bytes(np.ascontiguousarray(images, np.float32).tobytes())
    command = [program, model, pixels, *images.shape]
    printed = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=True).stdout
    table = np.array([line.split() for line in printed.splitlines()], np.float64)
    return table[:, 0].astype(int), table[:, 1:]


def picture(path, images, truth, classes, found, exact):
    wrong_first = np.argsort(classes == truth, kind="stable")[:40]
    with figure(path, 12, 4.4) as drawn:
        left, right = drawn.subfigures(1, 2, width_ratios=(1.6, 1))
        for axis, n in zip(left.subplots(4, 10).ravel(), wrong_first):
            right_one = classes[n] == truth[n]
            axis.imshow(images[n], cmap="gray_r")
            axis.set(xticks=[], yticks=[])
            title = str(classes[n]) if right_one else f"{classes[n]}, not {truth[n]}"
            axis.set_title(title, color="black" if right_one else "red", fontsize=9, pad=2)
        left.suptitle("what the C++ program reads (red: its errors, shown first)")
        axis = right.subplots()
        axis.scatter(exact.ravel(), 1e6 * (found - exact).ravel(), s=4, alpha=0.4)
        axis.set(title="every logit of every image", xlabel="logit by XLA", ylabel="C++ program minus XLA, $10^{-6}$")


def main(argv=None):
    args = options(__doc__, "few epochs", argv)
    began = time.perf_counter()
    (images, labels), (unseen, truth) = data()
    p = train(parameters(jax.random.key(0)), images, labels, 2 if args.tiny else 15, lambda *_: None)
    work = args.output / "digits_cpp"
    work.mkdir(parents=True, exist_ok=True)
    export(p, unseen, work / "digits.pt")
    program = build(pathlib.Path(__file__).resolve().parent / "libtorch", work / "build")
    classes, found = answers(program, work / "digits.pt", np.asarray(unseen))
    exact = np.asarray(jax.jit(logits)(p, unseen))
    off = float(np.max(np.abs(found - exact)))
    right = float(np.mean(classes == np.asarray(truth)))
    same = int(np.sum(classes == np.asarray(jnp.argmax(exact, 1))))
    print(
        f"the C++ program reads {100 * right:.1f} % of {len(truth)} unseen images rightly, {same} of them as XLA does; "
        f"logits differ by at most {off:.1e}; {time.perf_counter() - began:.0f} s"
    )
    picture(args.output / "digits_cpp.png", np.asarray(unseen), np.asarray(truth), classes, found, exact)
    return right, off, same


if __name__ == "__main__":
    main()
