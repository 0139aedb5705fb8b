"""framejit.compile(fn, passes=[f]) and back ends: both are given framejit.Graph."""
import numpy as np
import pytest

import framejit
from harness import assert_same, both_libraries, needs_torch, torch


def doubled_outputs(graph):
    """Not a pass that anybody wants, but one whose effect shows."""
    made = [graph.add("add", node, node) for node in graph.outputs]
    graph.set_outputs(*made)
    return graph


@both_libraries
def test_a_pass(lib):
    compiled = framejit.compile(lambda x: abs(x) + 1, passes=[doubled_outputs])
    for shape in ((3,), (3,), (5,), (7,)):
        x = lib.sample(shape)
        assert_same(compiled(x), (abs(x) + 1) * 2)


def test_passes_run_once_for_each_graph_and_in_order():
    seen = []

    def first(graph):
        seen.append(("first", len(graph), [node.name for node in graph.inputs]))
        graph.add("neg", graph.outputs[0])
        return graph

    def second(graph):
        seen.append(("second", len(graph), [node.name for node in graph.inputs]))
        return graph

    compiled = framejit.compile(lambda x: x * x, passes=[first, second], dynamic=False)
    for n in (3, 3, 3, 4, 4):
        np.testing.assert_array_equal(compiled(np.full(n, 3.0)), np.full(n, 9.0))
    assert seen == [("first", 1, ["x"]), ("second", 2, ["x"])] * 2


def test_pieces_between_breaks():
    names = []

    def noted(graph):
        names.append(graph.name)
        return graph

    @framejit.compile(passes=noted)
    def f(x):
        y = x * 2
        print(end="")
        return y + 1

    np.testing.assert_array_equal(f(np.ones(3)), np.full(3, 3.0))
    assert len(names) == 2


def broken(graph):
    raise KeyError("weight")


def forgetful(graph):
    graph.add("neg", graph.outputs[0])


def other_type(graph):
    graph.set_outputs(*(graph.add("cast", node, to="f32") for node in graph.outputs))
    return graph


def fewer(graph):
    graph.set_outputs()
    return graph


def foreign(graph):
    return framejit.capture(lambda x: x * 3, np.ones(3))


def cyclic(graph):
    mul = graph.find(op="mul")[0]
    mul.operands = (mul, mul)
    return graph


@pytest.mark.parametrize("edit, error, text", [
    (broken, framejit.BackendError, "the pass broken, given the graph of .*f, raised KeyError: 'weight'"),
    (forgetful, framejit.GraphError, "the pass forgetful returned NoneType; expected the graph it was given"),
    (other_type, framejit.GraphError, r"the edited graph of .*f returns f32\[3\] as output 0 in place of f64\[3\]"),
    (fewer, framejit.GraphError, "the edited graph of .*f returns 0 arrays in place of 1"),
    (foreign, framejit.GraphError, "the pass foreign returned another graph than it was given"),
    (cyclic, framejit.GraphError, "comes before its operand"),
])
def test_passes_that_are_wrong(edit, error, text):
    def f(x):
        return x * 2

    compiled = framejit.compile(f, passes=[edit])
    for _ in range(2):
        with pytest.raises(error, match=text):
            compiled(np.ones(3))
    with pytest.raises(TypeError, match="a pass is a function of a graph, not 3"):
        framejit.compile(f, passes=[3])


@needs_torch
def test_gradients_go_through_passes():
    def gelus(graph):
        graph.replace_pattern(torch.relu, torch.nn.functional.gelu)
        return graph

    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU())
    compiled = framejit.compile(net, passes=[gelus])
    x = torch.randn(5, 3)
    found = compiled(x)
    expected = torch.nn.functional.gelu(net[0](x))
    torch.testing.assert_close(found, expected)
    for one, other in zip(torch.autograd.grad(found.sum(), list(net.parameters())),
                          torch.autograd.grad(expected.sum(), list(net.parameters()))):
        torch.testing.assert_close(one, other)


def test_no_edited_graph_falls_back_to_eager():
    def divided(graph):
        graph.find(op="add")[0].op = "floor_div"
        return graph

    compiled = framejit.compile(lambda x, y: x + y, passes=[divided])
    np.testing.assert_array_equal(compiled(np.array([7, 8]), np.array([2, 3])), [3, 2])
    with pytest.raises(framejit.Error, match="the edited graph of .* could not be run"):
        compiled(np.array([7, 8]), np.array([0, 3]))


def test_a_back_end_of_a_few_lines():
    """As examples/back_end.py: each operation is a function, what is missing is left to the graph's own `run`."""
    import operator

    table = {"add": operator.add, "mul": operator.mul, "neg": operator.neg, "tanh": np.tanh}
    used = []

    def mine(graph, examples):
        if any(node.op not in table for node in graph):
            used.append("run")
            return graph.run

        def run(*arrays):
            values = dict(zip(graph.inputs, arrays))
            for node in graph:
                values[node] = table[node.op](*(values[x] for x in node.operands))
            return [values[x] for x in graph.outputs]

        used.append("table")
        return run

    x, y = np.random.randn(3), np.random.randn(3)
    np.testing.assert_allclose(framejit.compile(lambda x, y: np.tanh(x * y) + x, backend=mine)(x, y), np.tanh(x * y) + x)
    np.testing.assert_allclose(framejit.compile(lambda x, y: np.cos(x) + y, backend=mine)(x, y), np.cos(x) + y)
    assert used == ["table", "run"]
    graph = framejit.capture(lambda x, y: np.tanh(x * y) + x, x, y)
    np.testing.assert_allclose(graph.compile(backend=mine)(x, y), np.tanh(x * y) + x)
    assert used == ["table", "run", "table"]


def test_using_and_pickles_keep_passes():
    compiled = framejit.compile(lambda x: x + 1, passes=[doubled_outputs])
    np.testing.assert_array_equal(compiled.using(threads=1)(np.ones(3)), np.full(3, 4.0))


def test_edits_are_not_lost_when_a_function_is_compiled_again():
    def added(graph):
        for node in graph.find(op="mul"):
            node.op = "add"
        return graph

    graph = added(framejit.capture(lambda x: x * 5, np.ones(3), dynamic_shapes=True))
    for function in (framejit.compile(lambda x: x * 5, passes=[added]), graph.compile()):
        for again in (function, framejit.compile(function, backend="eager"), function.using(backend="eager")):
            for n in (3, 4):
                np.testing.assert_array_equal(again(np.ones(n)), np.full(n, 6.0))
        with pytest.raises(framejit.GraphError, match="is compiled with passes or edits of its graph"):
            framejit.capture(function, np.ones(3))


@both_libraries
def test_edits_are_kept_inside_of_other_compiled_functions(lib):
    edited = framejit.capture(lambda x: abs(x) * 2, lib.sample((3,)))
    edited.find(op="mul")[0].op = "add"
    by_passes = framejit.compile(lambda x: abs(x) + 1, passes=[doubled_outputs])
    x, run = lib.sample((3,)), edited.compile()
    for function, expected in ((run, abs(x) + 2), (by_passes, (abs(x) + 1) * 2)):
        outer = framejit.compile(lambda x: function(x) + 1)
        for _ in range(3):
            assert_same(outer(x), expected + 1)
        with pytest.raises(framejit.GraphBreakError, match="edited by passes of its own"):
            framejit.compile(lambda x: function(x) + 1, fullgraph=True)(x)
        with pytest.raises(framejit.GraphBreakError, match="edited by passes of its own"):
            framejit.capture(lambda x: function(x) + 1, x)
