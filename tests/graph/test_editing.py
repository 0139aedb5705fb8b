"""Graphs that are read and edited: each edit gives what the edited program gives, or an error that names node and rule."""
import copy

import numpy as np
import pytest

import framejit
from framejit import Graph, GraphError
from harness import assert_same, both_libraries, needs_torch, torch


def captured(f=lambda x, y: np.tanh(x * 2 + y), *arrays):
    return framejit.capture(f, *(arrays or (np.ones((2, 3)), np.ones((2, 3)))))


def test_reading():
    graph = captured()
    x, y = graph.inputs
    assert (x.name, x.op, x.is_input, x.dtype, x.shape, str(x.type)) == ("x", "input", True, "f64", (2, 3), "f64[2, 3]")
    mul, add, tanh = graph.find(where=lambda node: node.op in ("mul", "add", "tanh"))
    assert mul.operands == (x, graph["%4"]) and mul.users == (add,) and add.operands == (mul, y)
    assert graph.outputs == (tanh,) and tanh.users == () and tanh.name == "2"
    assert graph.find(op="constant")[0].attrs == {"value": 2.0, "to": "f64"}
    assert mul.file == __file__ and mul.line == captured.__code__.co_firstlineno
    assert repr(mul) == f"<framejit node %0 = mul(%x, 2.0) (test_editing.py:{mul.line})>"
    assert len(graph) == 5 and repr(graph) == "<framejit graph f of 5 operations>"
    with pytest.raises(KeyError):
        graph["%77"]


def test_tables_and_pictures():
    graph = captured()
    table = graph.tabular().splitlines()
    assert table[0].split() == ["value", "type", "operation", "operands", "attributes", "users", "line"]
    assert table[6].split()[:7] == ["%0", "f64[2,", "3]", "mul", "%x,", "%4", "%1"]
    assert table[-1] == "return %2"
    dot = graph.dot()
    assert dot.startswith('digraph "f" {') and 'label="tanh\\nf64[2, 3]"' in dot and dot.count(" -> ") == 7


def test_a_picture_needs_graphviz(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "graphviz", None)
    with pytest.raises(framejit.Error, match="needs the package graphviz: pip install graphviz; Graph.dot"):
        captured().svg()


def test_insert_and_replace():
    graph = captured()
    (tanh,) = graph.find(op="tanh")
    bound = graph.constant(0.5, "f64", (2, 3), before=tanh)
    capped = graph.add("minimum", tanh, bound, after=tanh)
    tanh.replace_uses(capped, where=lambda user: True)
    assert graph.outputs == (tanh,) and capped.operands == (tanh, bound)
    tanh.replace_uses(capped)
    assert graph.outputs == (capped,) and capped.operands == (tanh, bound)
    graph.lint()
    x, y = np.random.randn(2, 3), np.random.randn(2, 3)
    np.testing.assert_allclose(graph(x, y), np.minimum(np.tanh(x * 2 + y), 0.5))
    assert capped.line == tanh.line


def test_operands_attributes_and_operations_change():
    def f(x, y):
        return (x - y).sum(0)

    graph = captured(f)
    (sub,), (total,) = graph.find(op="sub"), graph.find(op="reduce_sum")
    sub.operands = sub.operands[::-1]
    total.op = "reduce_max"
    x, y = np.random.randn(2, 3), np.random.randn(2, 3)
    np.testing.assert_array_equal(graph(x, y), (y - x).max(0))
    with pytest.raises(GraphError, match=r"the edited graph of f returns f64\[2\] as output 0 in place of f64\[3\]"):
        total.attrs["axes"] = [1]
        graph(x, y)
    total.attrs["axes"] = [0]
    np.testing.assert_array_equal(graph(x, y), (y - x).max(0))


def test_the_types_that_follow_are_inferred():
    graph = Graph("g")
    x = graph.add_input("x", "f32", (2, 3))
    doubled = graph.add("add", x, x)
    total = graph.add("reduce_sum", doubled, axes=[0])
    graph.set_outputs(total)
    assert str(total.type) == "f32[3]"
    total.attrs["axes"] = [1]
    assert str(total.type) == "f32[2]"
    wide = graph.add("cast", x, to="f64", before=doubled)
    doubled.operands = (wide, wide)
    assert str(total.type) == "f64[2]"
    np.testing.assert_array_equal(graph(np.ones((2, 3), np.float32))[0], np.full(2, 6.0))


@pytest.mark.parametrize("edit, text", [
    (lambda g, x, y: g.add("add", x), r"add\(%x\): takes 2 operands, has 1"),
    (lambda g, x, y: g.add("add", x, g.add("reduce_sum", y, axes=[0])), r"operand 1 has shape \[3\], expected \[2, 3\]"),
    (lambda g, x, y: g.add("tnah", x), "no operation is called `tnah`"),
    (lambda g, x, y: g.add("reduce_sum", x), "attribute axes is missing"),
    (lambda g, x, y: g.add("reduce_sum", x, axes=[5]), "below the rank 2"),
    (lambda g, x, y: g.add("reduce_sum", x, axes="zero"), "axes can't be 'zero'"),
    (lambda g, x, y: g.add("tanh", x, axes=[0]), "has no attribute `axes`"),
    (lambda g, x, y: g.add("bit_not", x), "f64"),
    (lambda g, x, y: g.add("add", x, 3), "has nodes, and 3 is none"),
    (lambda g, x, y: g.add("add", x, captured()["x"]), "%x is not of the graph of"),
    (lambda g, x, y: g["0"].attrs.update(to="f32"), "%0 = mul.*has no attribute `to`"),
    (lambda g, x, y: g["3"].attrs.update(to="f32"), "%0 = mul.*operand 1 is f32, expected f64"),
    (lambda g, x, y: g["0"].erase(), "can't be erased: %1 = add.* reads it"),
    (lambda g, x, y: g["2"].erase(), "can't be erased: the graph returns or writes it"),
    (lambda g, x, y: x.erase(), "the input %x can't be erased"),
    (lambda g, x, y: setattr(x, "operands", (y,)), "an input has no operands"),
    (lambda g, x, y: setattr(x, "name", "17"), "'17' is no name"),
    (lambda g, x, y: setattr(x, "name", "y"), "has a value %y already"),
    (lambda g, x, y: g.add_input("z", "f64", ()), "was captured"),
    (lambda g, x, y: g["0"].replace_uses(g.add("cast", x, to="f32", before=g["0"])), "add.*operand 1 is f64, expected f32"),
])
def test_nonsense_changes_nothing(edit, text):
    graph = captured()
    before = str(graph)
    with pytest.raises(GraphError, match=text):
        edit(graph, *graph.inputs)
    graph.eliminate_dead_code()
    assert str(graph) == before
    graph.lint()


def test_what_a_value_is_computed_from_is_not_replaced():
    graph = captured(lambda x, y: (x + y) * x)
    x, add = graph.inputs[0], graph.find(op="add")[0]
    made = graph.call(lambda a: np.sin(a) + np.cos(a) * a, x, before=add)
    x.replace_uses(made)
    add.replace_uses(graph.call(lambda a: a * np.exp(a), add, after=add))
    graph.lint()
    x, y = np.random.randn(2, 3), np.random.randn(2, 3)
    z = np.sin(x) + np.cos(x) * x
    np.testing.assert_allclose(graph(x, y), (z + y) * np.exp(z + y) * z)


def test_a_type_that_depends_on_itself():
    graph = Graph("g")
    x = graph.add_input("x", "f32", (2,))
    both = graph.add("concat", x, x, axis=0)
    graph.set_outputs(both)
    both.operands = (both, x)
    with pytest.raises(GraphError, match="comes before its operand"):
        graph.lint()
    with pytest.raises(GraphError, match="depends on itself"):
        both.operands = (x, both)
    assert both.operands == (both, x)


def test_order_and_cycles_are_found():
    graph = captured()
    mul, add = graph.find(op="mul")[0], graph.find(op="add")[0]
    mul.move_after(add)
    with pytest.raises(GraphError, match=r"%1 = add.* comes before its operand %0 = mul"):
        graph.lint()
    with pytest.raises(GraphError):
        graph(np.ones((2, 3)), np.ones((2, 3)))
    mul.move_before(add)
    graph.lint()
    mul.operands = (add, mul.operands[1])
    with pytest.raises(GraphError, match="comes before its operand"):
        graph.lint()


def test_names():
    graph = captured()
    graph["0"].name = "scaled"
    graph.inputs[0].name = "left"
    assert "%scaled = mul %left, 2.0" in str(graph) and graph["scaled"].op == "mul"
    assert str(Graph.parse(str(graph))) == str(graph)
    np.testing.assert_allclose(graph(np.ones((2, 3)), np.ones((2, 3))), np.full((2, 3), np.tanh(3)))


def test_texts_are_exact():
    graph = captured()
    again = Graph.parse(str(graph))
    assert str(again) == str(graph)
    x, y = np.random.randn(2, 3), np.random.randn(2, 3)
    np.testing.assert_array_equal(again(x, y)[0], graph(x, y))
    np.testing.assert_array_equal(again.run(x, y)[0], np.tanh(x * 2 + y))
    with pytest.raises(GraphError, match=r"takes f64\[2, 3\] as %x, not float32\[2, 3\]"):
        again(x.astype(np.float32), y)
    with pytest.raises(GraphError, match=r"takes f64\[2, 3\] as %x, not float64\[3, 3\]"):
        again(np.ones((3, 3)), y)


@pytest.mark.parametrize("text, problem", [
    ("graph @f(%x: f32[4]) {\n  %0 = tnah %x : f32[4]\n  return %0\n}", "line 2: no operation is called `tnah`"),
    ("graph @f(%x: f32[4]) {\n  %0 = tanh %x : f32[5]\n  return %0\n}", r"result has type f32\[5\], expected f32\[4\]"),
    ("", "line 1: expected `graph`, found the end of the text"),
])
def test_texts_that_are_none(text, problem):
    with pytest.raises(GraphError, match=problem):
        Graph.parse(text)


def test_a_size_that_is_divided_by_0_is_refused():
    graph = Graph.parse("graph @f(%x: f64[s0, 3]) where s0 >= 0, s1 = 6 // s0 >= 0 {\n  %0 = neg %x : f64[s0, 3]\n  return %0\n}\n")
    np.testing.assert_array_equal(graph.run(np.ones((1, 3)))[0], -np.ones((1, 3)))
    with pytest.raises(GraphError, match="s1 of the graph is divided by s0, which is 0"):
        graph.run(np.ones((0, 3)))


def test_sources():
    source = captured().source()
    space = {"numpy": np}
    exec(source, space)
    x, y = np.random.randn(2, 3), np.random.randn(2, 3)
    np.testing.assert_array_equal(space["f"](x, y)[0], np.tanh(x * 2 + y))


@both_libraries
def test_functions_are_put_in(lib):
    def f(x, y):
        return x * y + 1

    def g(a, b):
        return abs(a) / (abs(b) + 1)

    x, y = lib.sample((2, 3)), lib.sample((2, 3), seed=1)
    graph = framejit.capture(f, x, y)
    (mul,) = graph.find(op="mul")
    made = graph.call(g, mul, graph.inputs[1], after=mul)
    mul.replace_uses(made)
    assert_same(graph(x, y), g(x * y, y) + 1)
    with pytest.raises(GraphError, match="branches, or loops, on data"):
        graph.call(lambda a: a if a.sum() > 0 else -a, mul)


@both_libraries
def test_functions_for_every_size(lib):
    graph = framejit.capture(lambda x: abs(x) + 1, lib.sample((4, 3)), dynamic_shapes=True)
    (absolute,) = graph.find(op="abs")
    made = graph.call(lambda a: a / a.sum(1)[:, None] * a.shape[0], absolute, after=absolute)
    absolute.replace_uses(made, where=lambda user: user.op == "add")
    for shape in ((4, 3), (2, 6)):
        x = lib.sample(shape)
        assert_same(graph(x), abs(x) / abs(x).sum(1)[:, None] * shape[0] + 1)
    with pytest.raises(GraphError, match="the code needs it to be 4"):
        graph.call(lambda a: a * 2 if a.shape[0] == 4 else a, absolute)


def test_patterns():
    def f(x, y):
        return np.exp(x) / np.exp(x).sum() + np.exp(y) / np.exp(y).sum()

    graph = captured(f)
    assert graph.replace_pattern(lambda a: np.exp(a), lambda a: np.expm1(a) + 1) == 4
    assert not graph.find(op="exp") and len(graph.find(op="expm1")) == 4
    x, y = np.random.randn(2, 3), np.random.randn(2, 3)
    np.testing.assert_allclose(graph(x, y), f(x, y))
    assert graph.replace_pattern(lambda a, b: a / b, lambda a, b: a * (1 / b)) == 2
    np.testing.assert_allclose(graph(x, y), f(x, y))
    assert graph.replace_pattern(lambda a: np.sqrt(a), lambda a: a) == 0
    with pytest.raises(GraphError, match=r"the replacement gives f64\[3\] in the place of"):
        graph.replace_pattern(lambda a, b: a + b, lambda a, b: a.sum(0))


def test_patterns_of_reductions():
    def f(x, y):
        return x.sum(0) * 2 + y.mean(0)

    graph = captured(f)
    given = [graph.inputs[0].type]
    assert graph.replace_pattern(lambda a: a.sum(0), lambda a: a.max(0), examples=given) == 2
    x, y = np.random.randn(2, 3), np.random.randn(2, 3)
    np.testing.assert_allclose(graph(x, y), x.max(0) * 2 + y.max(0) / 2)  # a mean is a sum too


@needs_torch
@pytest.mark.parametrize("dynamic", [None, {"input": {0: "batch"}}])
def test_every_relu_becomes_gelu(dynamic):
    def net(activation):
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8), activation(), torch.nn.Linear(8, 4), activation())

    first, by_hand = net(torch.nn.ReLU), net(torch.nn.GELU)
    x = torch.randn(5, 6)
    graph = framejit.capture(first, x, dynamic_shapes=dynamic)
    assert graph.replace_pattern(torch.relu, torch.nn.functional.gelu) == 2
    graph.lint()
    assert {node.module for node in graph.find(op="erf")} == {"2", "4"}
    for n in (5, 9) if dynamic else (5, 5):
        x = torch.randn(n, 6, requires_grad=True)
        other = x.detach().clone().requires_grad_()
        found, expected = graph(x), by_hand(other)
        torch.testing.assert_close(found, expected)
        found.square().sum().backward()
        expected.square().sum().backward()
        torch.testing.assert_close(x.grad, other.grad)
    for one, other in zip(first.parameters(), by_hand.parameters()):
        torch.testing.assert_close(one.grad, other.grad)
    for one, other in zip(first.buffers(), by_hand.buffers()):
        torch.testing.assert_close(one, other)


@needs_torch
def test_calls_of_the_library_are_derived_at_what_they_read_now():
    """A convolution's derivative reads its operand, which was a relu and is a gelu."""
    def net(activation):
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), activation(), torch.nn.Conv2d(4, 5, 3), activation(), torch.nn.Flatten(),
                                   torch.nn.Linear(80, 3))

    first, by_hand, x = net(torch.nn.ReLU), net(torch.nn.GELU), torch.randn(2, 3, 8, 8)
    graph = framejit.capture(first, x)
    assert graph.replace_pattern(torch.relu, torch.nn.functional.gelu) == 2
    found, expected = graph(x), by_hand(x)
    torch.testing.assert_close(found, expected)
    found.square().sum().backward()
    expected.square().sum().backward()
    for one, other in zip(first.parameters(), by_hand.parameters()):
        torch.testing.assert_close(one.grad, other.grad, atol=1e-4, rtol=1e-4)


@needs_torch
def test_functions_with_a_derivative_of_their_own_keep_it():
    """The derivative of a norm at 0 is 0, by the function's rule; node by node it is NaN."""
    def f(x):
        return torch.linalg.vector_norm(x * 2) + torch.relu(x).sum()

    graph = framejit.capture(f, torch.zeros(3, requires_grad=True))
    assert graph.replace_pattern(torch.relu, torch.nn.functional.gelu) == 1
    x = torch.zeros(3, requires_grad=True)
    graph(x).backward()
    torch.testing.assert_close(x.grad, torch.full((3,), 0.5))
    (doubled,) = [node for node in graph.find(op="mul") if node.operands[0].is_input and node.operands[1].op == "broadcast"][:1]
    doubled.replace_uses(graph.call(torch.sin, doubled, after=doubled))


def test_copies_are_apart():
    import copy
    import pickle

    graph = captured()
    other = copy.deepcopy(graph)
    with pytest.raises(TypeError, match="not pickled: Graph.save"):
        pickle.dumps(graph)
    other.find(op="tanh")[0].op = "sin"
    x, y = np.random.randn(2, 3), np.random.randn(2, 3)
    np.testing.assert_allclose(graph(x, y), np.tanh(x * 2 + y))
    np.testing.assert_allclose(other(x, y), np.sin(x * 2 + y))


@needs_torch
def test_what_has_no_derivative_keeps_none_in_an_edited_graph():
    """`detach` and `no_grad` are values without a derivative: an edit elsewhere leaves them so."""
    def f(x):
        with torch.no_grad():
            y = x * 2
        return torch.tanh(y * x + x.detach())

    graph = framejit.capture(f, torch.ones(3, requires_grad=True))
    for edited in (graph, graph.copy()):
        edited.find(op="tanh")[0].op = "sin"
        x = torch.rand(3, requires_grad=True)
        edited(x).sum().backward()
        torch.testing.assert_close(x.grad, torch.cos(2 * x * x + x).detach() * 2 * x.detach())


def test_moving_a_node_to_where_it_is():
    graph = captured()
    before = str(graph)
    nodes = graph.nodes
    for one, other in zip(nodes, nodes[1:]):
        other.move_after(one)
        one.move_before(other)
    assert graph.nodes == nodes and str(graph) == before


def test_erased_nodes_say_so():
    graph = captured()
    node = graph.find(op="tanh")[0]
    graph.set_outputs(node.operands[0])
    node.erase()
    for use in (node.erase, lambda: node.replace_uses(graph.inputs[0]), lambda: setattr(node, "op", "sin"), lambda: setattr(node, "name", "a"),
                lambda: node.move_after(graph.find()[0])):
        with pytest.raises(GraphError, match="the erased tanh is of no graph any more"):
            use()
    assert node.name == "?"
    with pytest.raises(GraphError, match="the input %x needs a name"):
        graph.inputs[0].name = None


def test_the_module_copy_copies_graphs():
    graph = captured()
    x, y = np.ones((2, 3)), np.zeros((2, 3))
    for other in (copy.copy(graph), copy.deepcopy(graph)):
        other.find(op="tanh")[0].op = "sin"
        np.testing.assert_allclose(other(x, y), np.sin(x * 2 + y))
    np.testing.assert_allclose(graph(x, y), np.tanh(x * 2 + y))


def test_another_output_of_another_shape():
    graph = Graph.parse(str(captured()))
    graph.set_outputs(graph.add("reduce_sum", graph.outputs[0], axes=[0]))
    x = np.ones((2, 3))
    np.testing.assert_allclose(graph(x, x)[0], np.tanh(x * 3).sum(0))


@needs_torch
def test_functions_that_stop_gradients_are_not_put_in():
    graph = framejit.capture(lambda x: torch.sin(x) * 2, torch.randn(3, requires_grad=True))
    (sin,) = graph.find(op="sin")
    with pytest.raises(GraphError, match="stops gradients"):
        graph.call(lambda a: a.detach() * a, sin)
    with pytest.raises(GraphError, match="stops gradients"):
        graph.insert(framejit.capture(lambda a: a.detach() * a, torch.randn(3, requires_grad=True)), [sin])


def test_patterns_tell_zeros_apart():
    graph = captured(lambda x, y: (x + -0.0) * y)
    assert graph.replace_pattern(lambda a: a + 0.0, lambda a: a) == 0
    assert graph.replace_pattern(lambda a: a + -0.0, lambda a: a * 1.0) == 1
