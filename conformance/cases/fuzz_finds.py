"""Programs that the fuzz found something with, as it printed them; what was wrong is said beside each."""

from ..case import register
from ..fuzz import case_of

# Under vmap the inner while loop's predicate is mapped, and finished examples must keep their counter. Found in the fuzz's own
# oracle, which let them count on; every backend was right.
register(
    case_of(
        (("index", (("unary", "sin", "a"), ("hash", 3), ("count", 5), ("reduce", 1), ("scan", 2, True, (("reduce", 1), ("rows", (("binary", "mul", "a"),)))))),),
        "fuzz/seed-106", mapped=0, transforms=("vmap", "vmap_grad", "vmap_hvp"),
    )
)  # fmt: skip
register(
    case_of(
        (("switch", 1, ((("row", 0), ("index", (("index", (("single", 1),)),)), ("scan", 2, False, (("scan", 2, True, (("unary", "square", "b"),)), ("hash", 3)))), (("binary", "max", "m"),))),),
        "fuzz/seed-142", mapped=3, transforms=("vmap", "vmap_grad", "vmap_hvp"),
    )
)  # fmt: skip
# Seed 3171 of the nightly 10,000: an index loop's conditional with a mapped predicate, around a while loop that an inner vmap had been
# over. The engine's guard took the loop's condition, one for each lane, for a scalar: TypeError on every backend.
register(
    case_of(
        (("rows", (("index", (("index", (("while", 1, (("hash", 4), ("count", 0))),)),)),)),),
        "fuzz/seed-3171", mapped=0, transforms=("vmap", "vmap_jvp", "vmap_hvp"),
    )
)  # fmt: skip
