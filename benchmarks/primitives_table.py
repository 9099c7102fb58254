"""Writes docs/primitives.md from the lowering rules and from what each target says it supports.

python benchmarks/primitives_table.py [-o docs/primitives.md]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:] = [p for p in sys.path if Path(p).resolve() != HERE]  # its neighbours are named like libraries

from quabla_jax.lowering import interpreter, table  # noqa: E402

COMMAND = "python benchmarks/primitives_table.py"


def targets() -> dict[str, table.Supports]:
    """Every target's supports(), MLX on the CPU as it runs everywhere."""
    import mlx.core as mx

    from quabla_jax.mlx_backend.ops import supports as mlx_supports
    from quabla_jax.mlx_backend.target import Target
    from quabla_jax.torch_bridge.ops import supports as torch_supports

    device = Target(mx.Device(mx.cpu, 0))
    return {"MLX (CPU)": lambda node: mlx_supports(node, device), "PyTorch": torch_supports}


def text() -> str:
    assert interpreter  # loads the rules
    return table.markdown(targets(), COMMAND)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", default=Path(__file__).parents[1] / "docs" / "primitives.md", type=Path)
    parser.parse_args().o.write_text(text())


if __name__ == "__main__":
    main()
