"""ConditionalLoopModule, built node by node: a loop with a status, a value and a counter, and an If that breaks it."""

from quabla_jax.torch_bridge import GraphBuilder

MAX_TRIPS = 2**63 - 1


def conditional_loop_module(added: float = 10.0):
    """Scale by (i + 1) / 20, then add, until an element is too small or 20 trips ran; gives (status, value).

    With ten added, every value that passes the test once passes it always: a break comes at the first trip or never.
    With nothing added, it comes in the middle.
    """
    gb = GraphBuilder("ConditionalLoopModule")
    x = gb.input("input_val")
    value = gb.call("aten::mul", x, 2)
    with gb.loop(MAX_TRIPS, True, 0, value, 0) as loop:
        status, value, counter = loop.carried
        following = gb.call("aten::add", counter, 1)
        scaled = gb.call("aten::mul", gb.call("aten::mul", value, following), 0.05)
        large = gb.call("aten::Bool", gb.call("aten::all", gb.call("aten::gt", scaled, 0.01)))
        branch = gb.if_(large)
        with branch.true() as taken:
            taken.end(True, 1, gb.call("aten::add", scaled, added))
        with branch.false() as taken:
            taken.end(False, status, scaled)
        going, status, value = branch.outputs
        keep = gb.call("aten::__and__", gb.call("aten::lt", following, 20), going)
        loop.end(keep, status, value, following)
    status, value, _ = loop.outputs
    gb.output(gb.tuple_(status, value))
    return gb.module()
