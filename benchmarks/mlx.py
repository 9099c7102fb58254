"""The MLX backend against hand-written MLX: `python benchmarks/mlx.py --help`. The rows are in _mlx_rows.py.

This file has the name of a package. Scripts have their own folder first on the path, so they may find it in the
package's place: then it steps aside.
"""

import importlib
import os
import runpy
import sys

HERE = os.path.dirname(os.path.realpath(__file__))
path = list(sys.path)
sys.path[:] = [p for p in path if os.path.realpath(p or ".") != HERE]

if __name__ == "mlx":
    del sys.modules["mlx"]
    sys.modules["mlx"] = importlib.import_module("mlx")
    sys.path[:] = path
else:
    runpy.run_path(os.path.join(HERE, "_mlx_rows.py"), run_name="__main__")
