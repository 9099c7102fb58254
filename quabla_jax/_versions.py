"""The sentence for a JAX that has moved what lowering/jax_api.py uses."""

import jax

SUPPORTED = "0.10.2 to 0.12"


def unsupported(what: object) -> str:
    """Says which versions of JAX are supported, which one is installed, and what is missing."""
    return (
        f"quabla_jax works with jax {SUPPORTED} and uses private parts of it in quabla_jax/lowering/jax_api.py alone; jax "
        f"{jax.__version__}, which is installed, lacks one of them: {what}. Install a supported version: "
        "pip install 'jax>=0.10.2,<0.13'"
    )
