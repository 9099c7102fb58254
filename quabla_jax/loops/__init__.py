"""The engine's front doors: pytrees and closures in, jax.lax semantics out (dialect-free).

scan and fori_loop (region.py) bind the counted loop (counted.py), while_loop the unbounded one (whiles.py); both are
families of primitives closed under jvp, vjp and vmap, so that reverse mode keeps the memory of its plan (plan.py) at
every order of differentiation. cond and switch (branch.py) are jax.lax's, guarded under a mapped predicate.
docs/engine.md and docs/while_gradients.md have the mathematics.
"""

from .branch import cond, switch
from .plan import Budget, LoopPlan, checkpointing, plan_loop
from .region import fori_loop, scan
from .whiles import while_loop

__all__ = [
    "Budget",
    "LoopPlan",
    "checkpointing",
    "cond",
    "fori_loop",
    "plan_loop",
    "scan",
    "switch",
    "while_loop",
]
