"""The only file that touches jax._src, jax.extend, jax.interpreters or hijax.

Every difference between the supported JAX versions (0.10.2 to 0.12) is settled here, under one name each. A JAX
release that moves a private name breaks this file alone.
"""

from __future__ import annotations

import jax

JAX_VERSION: tuple[int, ...] = tuple(int(p) for p in jax.__version__.split(".")[:3] if p.isdigit())
SUPPORTED = "0.10.2 to 0.12"
