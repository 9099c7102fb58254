"""GraphBuilder: what it builds runs, saves and prints cleanly; every breach of the layout rules is refused."""

import re
from typing import NamedTuple

import numpy as np
import pytest

pytest.importorskip("torch.jit", reason="needs PyTorch")

import torch
from torch_helpers import example, in_new_process, quiet, save_load, write

from quabla_jax.torch_bridge import GraphBuilder, GraphError
from quabla_jax.torch_bridge.graph_check import check_graph

C = torch._C
conditional_loop_module = example("libtorch/conditional_loop.py").conditional_loop_module


def simulate(x, added=10.0, trips=20):
    status, value, ran = 0, x.clone() * 2, 0
    for i in range(trips):
        ran = i + 1
        scaled = value * (i + 1) * 0.05
        if not bool((scaled > 0.01).all()):
            return status, scaled, ran
        status, value = 1, scaled + added
    return status, value, ran


CASES = {  # input, what is added, trips begun
    "all-20": (torch.full((2, 2), 5.0), 10.0, 20),
    "first": (torch.zeros(2, 2), 10.0, 1),
    "first-by-one-element": (torch.tensor([[5.0, -150.0], [3.0, 1.0]], dtype=torch.float64), 10.0, 1),
    "middle": (torch.full((2, 2), 5.0), 0.0, 3),
    "middle-by-one-element": (torch.tensor([90.0, 7.0, 900.0], dtype=torch.float64), 0.0, 4),
}


@pytest.mark.parametrize("case", CASES)
def test_conditional_loop_module_equals_the_simulation(case):
    x, added, trips = CASES[case]
    module = conditional_loop_module(added)
    want_status, want_value, ran = simulate(x, added)
    assert ran == trips
    for _ in range(5):
        status, value = module(x)
        assert status == want_status and torch.equal(value, want_value)


def test_conditional_loop_module_in_another_process(tmp_path):
    data = tmp_path / "data.pt"
    paths = {added: str(tmp_path / f"conditional{added}.pt") for _, added, _ in CASES.values()}
    for added, path in paths.items():
        write(conditional_loop_module(added), path)
    torch.save([(paths[added], x, *simulate(x, added)[:2]) for x, added, _ in CASES.values()], data)
    out = in_new_process(
        """
        for path, x, status, value in torch.load(sys.argv[1]):
            module = torch.jit.load(path)
            for _ in range(3):
                got = module(x)
                assert got[0] == status and torch.equal(got[1], value), (x, got)
        assert "quabla_jax" not in sys.modules
        print(module.original_name)
        """,
        data,
    )
    assert out.strip() == "ConditionalLoopModule"


def test_printed_code_has_no_ghost_variables(tmp_path):
    module = save_load(conditional_loop_module(), tmp_path / "m.pt")
    code = module.code
    assigned = re.findall(r"_\d+", " ".join(re.findall(r"^\s*((?:_\d+(?:, )?)+) = ", code, re.M)))
    for name in assigned:
        assert len(re.findall(rf"\b{name}\b", code)) > 1, f"{name} is assigned and never read:\n{code}"
    kinds = [n.kind() for n in module.graph.findAllNodes("prim::Loop")]
    assert kinds == ["prim::Loop"]
    (branch,) = module.graph.findAllNodes("prim::If")
    assert branch.outputsSize() == len(list(next(branch.blocks()).outputs()))


# what can be built


def run(gb, *args, path=None):
    function = gb.function()
    once = function(*args)
    if path is not None:
        again = save_load(function, path)(*args)
        assert str(again) == str(once)
    return once


def test_constants_of_every_kind_survive_a_file(tmp_path):
    values = [
        3, -(2**63), 2**63 - 1, True, False, 0.1, -0.0, float("inf"), float("-inf"), 5e-324, 1e22, "a\"b\n", None, 1 + 2j,
        complex(0.0, -0.0), [1, 2], [1.5], (1, 2.5, None), torch.device("cpu"),
    ]  # fmt: skip
    gb = GraphBuilder("Constants")
    gb.input("x")
    gb.output(gb.tuple_(*values))
    got = save_load(gb.function(), tmp_path / "c.pt")(torch.ones(1))
    assert [repr(v) for v in got] == [repr(v) for v in values]
    gb = GraphBuilder("Nan")
    gb.input("x")
    gb.output(gb.const(float("nan")))
    assert str(save_load(gb.function(), tmp_path / "n.pt")(torch.ones(1))) == "nan"


@pytest.mark.parametrize(
    "dtype",
    [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32, torch.uint64,
     torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128],
)  # fmt: skip
def test_tensor_constants_of_every_dtype(tmp_path, dtype):
    constant = torch.tensor([0, 1, 1], dtype=dtype)
    gb = GraphBuilder("Dtype")
    x = gb.input("x")
    with gb.loop(2, True, x) as loop:
        branch = gb.if_(gb.call("aten::eq", loop.index, 1))
        with branch.true() as taken:
            taken.end(gb.const(constant))
        with branch.false() as taken:
            taken.end(loop.carried[0])
        loop.end(True, branch.outputs[0])
    gb.output(loop.outputs[0])
    got = run(gb, torch.zeros(3, dtype=dtype), path=tmp_path / "d.pt")
    assert got.dtype == dtype and torch.equal(got, constant)


def test_nested_loops_with_swapped_carries(tmp_path):
    gb = GraphBuilder("Swap")
    x, y, n = gb.input("x"), gb.input("y"), gb.input("n", int)
    with gb.loop(n, True, x, y) as outer:
        with gb.loop(outer.index, True, *outer.carried) as inner:
            a, b = inner.carried
            inner.end(True, gb.call("aten::add", b, 1.0), a)
        outer.end(True, inner.outputs[1], inner.outputs[0])
    gb.output(gb.tuple_(*outer.outputs))
    a, b = torch.tensor(1.0), torch.tensor(2.0)
    got = run(gb, a, b, 5, path=tmp_path / "s.pt")
    for i in range(5):
        for _ in range(i):
            a, b = b + 1.0, a
        a, b = b, a
    assert got == (a, b)


def test_tuples_lists_and_none_are_carried(tmp_path):
    gb = GraphBuilder("Carry")
    x = gb.input("x")
    pair = gb.tuple_(x, 1)
    best = gb.cast(None, torch.Tensor | None)
    with gb.loop(4, True, pair, gb.list_(element=int), best, None) as loop:
        pair, seen, best, nothing = loop.carried
        tensor, number = gb.unpack(pair)
        seen = gb.call("aten::add", seen, gb.list_(number))
        branch = gb.if_(gb.call("aten::gt", loop.index, 1), outputs=[torch.Tensor | None])
        with branch.true() as taken:
            taken.end(gb.cast(tensor, torch.Tensor | None))
        with branch.false() as taken:
            taken.end(best)
        grown = gb.tuple_(gb.call("aten::mul", tensor, 2.0), gb.call("aten::mul", number, 3))
        loop.end(True, grown, seen, branch.outputs[0], nothing)
    gb.output(gb.tuple_(*loop.outputs))
    got = run(gb, torch.ones(2), path=tmp_path / "t.pt")
    assert torch.equal(got[0][0], torch.full((2,), 16.0)) and got[0][1] == 81
    assert got[1] == [1, 3, 9, 27] and torch.equal(got[2], torch.full((2,), 8.0)) and got[3] is None


def test_zeros_of_both_signs_stay_apart(tmp_path):
    """TorchScript pools constants that compare equal, 0.0 and -0.0 among them."""
    gb = GraphBuilder("Zeros")
    gb.input("x")
    values = [0.0, -0.0, [0.0, 0.0], [-0.0, 0.0], 0j, complex(-0.0, -0.0)]
    tensors = [
        torch.tensor([0.0, 1.0]),
        torch.tensor([-0.0, 1.0]),
        torch.tensor([0j]),
        torch.tensor([complex(0.0, -0.0)]),
    ]
    gb.output(gb.tuple_(*values, *[gb.call("aten::neg", gb.call("aten::neg", gb.const(t))) for t in tensors]))
    module = save_load(gb.module().eval(), tmp_path / "z.pt")
    want = [repr(v) for v in values]
    with quiet():
        variants = [module, torch.jit.freeze(module), torch.jit.optimize_for_inference(module)]
    for variant in variants:
        for _ in range(5):
            got = variant(torch.tensor(1.0))
            assert [repr(v) for v in got[: len(values)]] == want
            for have, tensor in zip(got[len(values) :], tensors):
                for part in ("real", "imag") if tensor.is_complex() else ("real",):
                    assert torch.equal(torch.signbit(getattr(have, part)), torch.signbit(getattr(tensor, part)))


class Reading(NamedTuple):
    status: int
    value: torch.Tensor


def test_named_tuple_types_are_registered(tmp_path):
    gb = GraphBuilder("Named")
    x = gb.input("x")
    gb.output(gb.tuple_(7, x, type=Reading))
    got = save_load(gb.module(), tmp_path / "n.pt")(torch.ones(2))
    assert got.status == 7 and torch.equal(got.value, torch.ones(2))


def test_a_hundred_nested_branches(tmp_path):
    gb = GraphBuilder("Deep")
    x = gb.input("x")

    def nest(depth, value):
        if depth == 0:
            return gb.call("aten::mul", value, 2.0)
        branch = gb.if_(gb.call("aten::Bool", gb.call("aten::gt", value, float(-depth))))
        with branch.true() as taken:
            taken.end(nest(depth - 1, value))
        with branch.false() as taken:
            taken.end(value)
        return branch.outputs[0]

    gb.output(nest(100, x))
    function = save_load(gb.function(), tmp_path / "deep.pt")
    assert function(torch.tensor(1.0)) == 2.0 and function(torch.tensor(-500.0)) == -500.0


def test_parameters_and_buffers_by_path(tmp_path):
    gb = GraphBuilder("Affine")
    w = gb.parameter("layers.0.w", torch.full((2,), 3.0))
    x = gb.input("x")
    b = gb.buffer("layers.0.shift", torch.ones(2))
    gb.output(gb.call("aten::add", gb.call("aten::mul", x, w), b))
    module = save_load(gb.module(), tmp_path / "a.pt")
    assert [n for n, _ in module.named_parameters()] == ["layers.0.w"]
    assert [n for n, _ in module.named_buffers()] == ["layers.0.shift"]
    module(torch.tensor([1.0, 2.0])).sum().backward()
    assert torch.equal(next(module.parameters()).grad, torch.tensor([1.0, 2.0]))


def test_overloads_are_told_apart():
    gb = GraphBuilder("Overloads")
    x = gb.input("x")
    schema = lambda value: value.raw.node().schema().partition("(")[0]
    assert schema(gb.call("aten::add", x, x)) == "aten::add.Tensor"
    assert schema(gb.call("aten::add", x, 1)) == "aten::add.Scalar"
    assert schema(gb.call("aten::add", 1, 1)) == "aten::add.int"
    assert schema(gb.call("aten::add", 1.0, 1)) == "aten::add.float_int"
    assert schema(gb.call("aten::add.Tensor", x, x, alpha=2)) == "aten::add.Tensor"
    assert gb.call("aten::add", 1, 1).type_text == "int"
    assert gb.call("aten::__getitem__", gb.call("aten::unbind", x), 0).type_text == "Tensor"


# what is refused, each where it is written


def breach_graph_name(gb, x):
    GraphBuilder("two words")


def breach_input_name_is_a_keyword(gb, x):
    gb.input("for")


def breach_input_name_is_self(gb, x):
    gb.input("self")


def breach_input_name_taken(gb, x):
    gb.input("x")


def breach_input_type(gb, x):
    gb.input("y", np.ndarray)


def breach_attribute_inside_a_tensor(gb, x):
    gb.parameter("a", torch.ones(1))
    gb.parameter("a.b", torch.ones(1))


def breach_attribute_that_modules_have(gb, x):
    gb.buffer("layers.forward", torch.ones(1))


def breach_attribute_taken(gb, x):
    gb.parameter("a", torch.ones(1))
    gb.parameter("a", torch.zeros(1))


def breach_attribute_taken_by_another_kind(gb, x):
    tensor = torch.ones(1)
    gb.parameter("a", tensor)
    gb.buffer("a", tensor)


def breach_operator_is_no_name(gb, x):
    gb.call(torch.add, x, x)


def breach_argument_of_no_type(gb, x):
    gb.call("aten::add", x, np.ones(2))


def breach_branch_entered_elsewhere(gb, x):
    branch = gb.if_(True)
    with gb.loop(3, True, x), branch.true():
        pass


def breach_branch_inside_the_other(gb, x):
    branch = gb.if_(True)
    with branch.true(), branch.false():
        pass


def breach_loop_entered_elsewhere(gb, x):
    loop = gb.loop(3, True, x)
    with gb.if_(True).true(), loop:
        pass


def breach_value_of_the_other_branch(gb, x):
    branch = gb.if_(True)
    with branch.true() as taken:
        inner = gb.call("aten::neg", x)
        taken.end(inner)
    with branch.false() as taken:
        taken.end(inner)


def breach_loop_ended_outside(gb, x):
    gb.loop(3, True, x).end(True, x)


def breach_branch_ended_outside(gb, x):
    gb.if_(True).true().end(x)


def breach_loop_ended_in_a_branch(gb, x):
    with gb.loop(3, True, x) as loop, gb.if_(True).true():
        loop.end(True, x)


def breach_index_before_the_body(gb, x):
    gb.call("aten::neg", gb.loop(3, True, x).index)


def breach_carried_before_the_body(gb, x):
    gb.call("aten::neg", gb.loop(3, True, x).carried[0])


def breach_trip_count_is_a_tensor(gb, x):
    gb.loop(x, True, x)


def breach_trip_count_missing(gb, x):
    gb.loop(True, x)


def breach_condition_is_an_int(gb, x):
    gb.loop(10, 1, x)


def breach_block_input_0_is_not_the_index(gb, x):
    gb.loop(10, True, x, block_inputs=[torch.Tensor, int])


def breach_block_input_type(gb, x):
    gb.loop(10, True, x, 1, block_inputs=[int, torch.Tensor, float])


def breach_block_input_number(gb, x):
    gb.loop(10, True, x, block_inputs=[torch.Tensor])


def breach_block_output_0_is_not_the_condition(gb, x):
    with gb.loop(10, True, x) as loop:
        loop.end(loop.carried[0], True)


def breach_block_output_number(gb, x):
    with gb.loop(10, True, x, 0) as loop:
        loop.end(True, x)


def breach_block_output_type(gb, x):
    with gb.loop(10, True, x, 0) as loop:
        loop.end(True, x, 1.0)


def breach_node_output_number(gb, x):
    gb.loop(10, True, x, 0, outputs=[int, torch.Tensor, int])


def breach_node_output_type(gb, x):
    gb.loop(10, True, x, 0, outputs=[torch.Tensor, float])


def breach_loop_without_end(gb, x):
    with gb.loop(10, True, x):
        gb.call("aten::neg", x)


def breach_loop_ended_twice(gb, x):
    with gb.loop(10, True, x) as loop:
        loop.end(True, x)
        loop.end(True, x)


def breach_loop_read_while_open(gb, x):
    with gb.loop(10, True, x) as loop:
        gb.call("aten::neg", loop.outputs[0])


def breach_if_condition_is_a_tensor(gb, x):
    gb.if_(gb.call("aten::gt", x, 0))


def _if(gb, true, false, **kwargs):
    branch = gb.if_(True, **kwargs)
    with branch.true() as taken:
        taken.end(*true)
    with branch.false() as taken:
        taken.end(*false)


def breach_branches_differ_in_number(gb, x):
    _if(gb, (x, 1), (x,))


def breach_branches_differ_in_type(gb, x):
    _if(gb, (x, 1), (x, 1.0))


def breach_none_beside_a_tensor(gb, x):
    _if(gb, (x,), (None,))


def breach_declared_if_output(gb, x):
    _if(gb, (x,), (x,), outputs=[int])


def breach_branch_without_end(gb, x):
    with gb.if_(True).true():
        gb.call("aten::neg", x)


def breach_branch_built_twice(gb, x):
    branch = gb.if_(True)
    for _ in range(2):
        with branch.true() as taken:
            taken.end(x)


def breach_branch_missing(gb, x):
    with gb.if_(True).true() as taken:
        taken.end(x)
    gb.output(x)


def breach_branch_missing_in_a_body(gb, x):
    with gb.loop(3, True, x) as loop:
        with gb.if_(True).false() as taken:
            taken.end(x)
        loop.end(True, x)


def breach_outputs_before_both_branches(gb, x):
    gb.output(gb.if_(True).outputs[0])


def breach_value_out_of_its_block(gb, x):
    with gb.loop(3, True, x) as loop:
        inner = gb.call("aten::neg", loop.carried[0])
        loop.end(True, inner)
    gb.call("aten::neg", inner)


def breach_value_of_another_graph(gb, x):
    gb.call("aten::neg", GraphBuilder("Other").input("y"))


def breach_scalar_add_with_alpha(gb, x):
    gb.call("aten::add", 1, 1, 1)


def breach_tensor_overload_on_scalars(gb, x):
    gb.call("aten::add.Tensor", x, 1)


def breach_tensor_where_a_bool_is_due(gb, x):
    gb.call("aten::__and__", True, x)


def breach_silent_conversion(gb, x):
    gb.call("aten::select", x, 0, x)


def breach_in_place_operator(gb, x):
    gb.call("aten::add_", x, x)


def breach_unknown_operator(gb, x):
    gb.call("aten::addd", x, x)


def breach_unknown_overload(gb, x):
    gb.call("aten::add.Matrix", x, x)


def breach_unknown_keyword(gb, x):
    gb.call("aten::add", x, x, beta=1)


def breach_loop_through_call(gb, x):
    gb.call("prim::Loop", 10, True, x)


def breach_tuple_field(gb, x):
    gb.tuple_(x, x, type=tuple[torch.Tensor, int])


def breach_tuple_length(gb, x):
    gb.tuple_(x, type=Reading)


def breach_list_element(gb, x):
    gb.list_(x, 1)


def breach_empty_list(gb, x):
    gb.list_()


def breach_narrowing_cast(gb, x):
    gb.cast(x, int | None)


def breach_unpack_of_a_tensor(gb, x):
    gb.unpack(x)


def breach_constant_too_large(gb, x):
    gb.const(2**63)


def breach_constant_of_no_type(gb, x):
    gb.const(object())


def breach_output_twice(gb, x):
    gb.output(x)
    gb.output(x)


def breach_output_inside_a_body(gb, x):
    with gb.loop(3, True, x) as loop:
        gb.output(x)
        loop.end(True, x)


def breach_node_after_the_output(gb, x):
    gb.output(x)
    gb.call("aten::neg", x)


def breach_function_without_output(gb, x):
    gb.function()


BREACHES = {
    breach_graph_name: r"graph name 'two words': expected a Python identifier",
    breach_input_name_is_a_keyword: r"input name 'for': expected a Python identifier",
    breach_input_name_is_self: r"input name 'self': expected a Python identifier other than self",
    breach_input_name_taken: r"input name 'x': there is an input of this name already",
    breach_input_type: r"input 'y': no TorchScript type for <class 'numpy.ndarray'>",
    breach_attribute_inside_a_tensor: r"attribute path 'a.b': one of 'a.b' and 'a' would lie inside a tensor",
    breach_attribute_that_modules_have: r"'layers.forward': torch.nn.Module uses the name 'forward' itself",
    breach_attribute_taken: r"attribute 'a': there is another parameter at this path",
    breach_attribute_taken_by_another_kind: r"attribute 'a': there is another parameter at this path",
    breach_operator_is_no_name: r"call: expected an operator's name such as 'aten::add', got <built-in",
    breach_argument_of_no_type: r"aten::add: no TorchScript constant for array.* of type ndarray",
    breach_branch_entered_elsewhere: r"prim::If: started in the graph, entered in the body of prim::Loop",
    breach_branch_inside_the_other: r"prim::If: started in the graph, entered in the true branch of prim::If",
    breach_loop_entered_elsewhere: r"prim::Loop: started in the graph, entered in the true branch of prim::If",
    breach_value_of_the_other_branch: r"the false branch of prim::If: %\d+ was made in the true branch of prim::If, which",
    breach_loop_ended_outside: r"prim::Loop: end\(\) is called inside the loop's with block",
    breach_branch_ended_outside: r"prim::If, true branch: end\(\) is called inside the branch's with block",
    breach_loop_ended_in_a_branch: r"prim::Loop: end\(\) is called inside the loop's with block",
    breach_index_before_the_body: r"prim::Loop: read index inside the loop's with block",
    breach_carried_before_the_body: r"prim::Loop: read carried inside the loop's with block",
    breach_trip_count_is_a_tensor: r"prim::Loop, input 0 \(max trip count\): expected int, got Tensor \(%x",
    breach_trip_count_missing: r"prim::Loop, input 0 \(max trip count\): expected int, got bool \(the constant True",
    breach_condition_is_an_int: r"prim::Loop, input 1 \(initial condition\): expected bool, got int \(the constant 1",
    breach_block_input_0_is_not_the_index: r"block inputs, position 0: expected int \(the index first.*got Tensor",
    breach_block_input_type: r"prim::Loop, block inputs, position 2: expected int .*got float",
    breach_block_input_number: r"prim::Loop, block inputs: expected 2 .*got 1",
    breach_block_output_0_is_not_the_condition: r"block output 0 \(condition\): expected bool, got Tensor",
    breach_block_output_number: r"block outputs: expected the condition and 2 carried values, got the condition and 1",
    breach_block_output_type: r"block output 2 \(carried value 1\): expected int.*got float \(the constant 1.0",
    breach_node_output_number: r"prim::Loop, node outputs: expected 2 .*got 3",
    breach_node_output_type: r"prim::Loop, node outputs, position 1: expected int .*got float",
    breach_loop_without_end: r"prim::Loop: the body has no end\(condition, \*carried\)",
    breach_loop_ended_twice: r"the body of prim::Loop: end\(\) was called already",
    breach_loop_read_while_open: r"prim::Loop: read outputs after the body is closed",
    breach_if_condition_is_a_tensor: r"prim::If, input 0 \(condition\): expected bool, got Tensor.*aten::Bool",
    breach_branches_differ_in_number: r"prim::If, false branch: the other branch has 2 outputs, this has 1",
    breach_branches_differ_in_type: r"prim::If, false branch, output 1: expected int as in the other branch, got float",
    breach_none_beside_a_tensor: r"output 0: expected Tensor as in the other branch, got NoneType.*cast\(value, T",
    breach_declared_if_output: r"prim::If, true branch, output 0: expected int as in the declared outputs, got Tensor",
    breach_branch_without_end: r"prim::If: the true branch has no end",
    breach_branch_built_twice: r"prim::If: the true branch is built already",
    breach_branch_missing: r"prim::If: branch never built: false",
    breach_branch_missing_in_a_body: r"prim::If inside the body of prim::Loop: branch never built: true",
    breach_outputs_before_both_branches: r"prim::If: read outputs after both branches are built; missing: true and false",
    breach_value_out_of_its_block: r"aten::neg: %\d+ was made in the body of prim::Loop, which is closed",
    breach_value_of_another_graph: r"aten::neg: %y belongs to another graph",
    breach_scalar_add_with_alpha: r"aten::add: no overload takes .*takes 2 arguments, 3 given",
    breach_tensor_overload_on_scalars: r"argument 1 \(other\): expected Tensor, got the constant 1 \(int\)",
    breach_tensor_where_a_bool_is_due: r"aten::__and__: no overload takes .*expected bool, got Tensor",
    breach_silent_conversion: r"argument 2 \(index\): expected int, got Tensor",
    breach_in_place_operator: r"argument 0 \(self\) would be written to: only functional operators",
    breach_unknown_operator: r"aten::addd: no such operator",
    breach_unknown_overload: r"aten::add.Matrix: no such overload; there are .*'Scalar'",
    breach_unknown_keyword: r"argument 'beta' is unknown or given twice",
    breach_loop_through_call: r"prim::Loop: build it with if_\(\) or loop\(\)",
    breach_tuple_field: r"prim::TupleConstruct, field 1: expected int, got Tensor",
    breach_tuple_length: r"prim::TupleConstruct: .*Reading has 2 fields, got 1",
    breach_list_element: r"prim::ListConstruct, element 1: expected Tensor, got int",
    breach_empty_list: r"prim::ListConstruct: an empty list needs element=",
    breach_narrowing_cast: r"prim::unchecked_cast: Tensor \(%x\) is no Optional\[int\]",
    breach_unpack_of_a_tensor: r"prim::TupleUnpack: expected a tuple, got Tensor",
    breach_constant_too_large: r"prim::Constant: the constant 9223372036854775808 does not fit",
    breach_constant_of_no_type: r"prim::Constant: no TorchScript constant for",
    breach_output_twice: r"output: the graph has its output already",
    breach_output_inside_a_body: r"output: the body of prim::Loop is still open",
    breach_node_after_the_output: r"aten::neg: the graph has its output already",
    breach_function_without_output: r"function: the graph has no output",
}


@pytest.mark.parametrize("breach", BREACHES, ids=lambda f: f.__name__.removeprefix("breach_"))
def test_breach_is_refused(breach):
    gb = GraphBuilder("Breach")
    x = gb.input("x")
    with pytest.raises(GraphError, match="(?s)" + BREACHES[breach]):
        breach(gb, x)


def test_every_breach_has_a_row():
    assert {f for n, f in globals().items() if n.startswith("breach_")} == set(BREACHES)


# graphs made elsewhere


def raw_loop(spoil):
    graph = C.Graph()
    x = graph.addInput("x")
    x.setType(C.TensorType.get())
    trip, go = graph.insertConstant(3), graph.insertConstant(True)
    node = graph.create("prim::Loop", [trip, go, x], 0)
    graph.insertNode(node)
    block = node.addBlock()
    index, carried = block.addInputToBlock(), block.addInputToBlock()
    index.setType(C.IntType.get())
    graph.setInsertPoint(block)
    spoil(graph, node, block, carried, go)
    graph.setInsertPoint(graph.block())
    graph.registerOutput(node.outputsAt(0))
    return graph


def good(graph, node, block, carried, go):
    block.registerOutput(go)
    block.registerOutput(carried)
    node.addOutput()


def no_condition(graph, node, block, carried, go):
    block.registerOutput(carried)
    node.addOutput()


def ghost_output(graph, node, block, carried, go):
    good(graph, node, block, carried, go)
    node.addOutput()


def untyped_int(graph, node, block, carried, go):
    block.registerOutput(carried)
    block.registerOutput(go)
    node.addOutput()


def wrong_arity(graph, node, block, carried, go):
    one = graph.insertConstant(1)
    graph.insertNode(graph.create("aten::add", [one, one, one]))
    good(graph, node, block, carried, go)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (no_condition, "prim::Loop: expected 2 block output .* got 1"),
        (ghost_output, "prim::Loop: expected 2 carried input .* got 1"),
        (untyped_int, "prim::Loop, block output 0: expected bool .* got Tensor"),
        (wrong_arity, "aten::add in the body of prim::Loop: no overload takes"),
    ],
)
def test_check_graph_finds_breaches_in_foreign_graphs(spoil, message):
    check_graph(raw_loop(good))
    with pytest.raises(GraphError, match=message):
        check_graph(raw_loop(spoil))
