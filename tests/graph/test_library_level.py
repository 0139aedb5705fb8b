"""framejit.capture(..., level="library"): the calls as the user wrote them, which run, are edited, saved and lowered."""
import re

import numpy as np
import pytest

import framejit
from framejit import Graph, GraphError
from harness import needs_torch, torch


def callees(graph):
    return [node.attrs["callee"] for node in graph.find(op="extern_call")]


def arrays(a, b):
    c = np.maximum(a @ b, 0)
    s = np.sum(np.exp(c), axis=1, keepdims=True)
    a.sort(axis=0)
    u, v = np.linalg.eigh(c @ c.T)
    return np.concatenate([c / s, c[:1]]).mean(0), u, np.where(c > 1, c, -1).clip(0, 2)


def test_calls_of_numpy():
    a, b = np.random.randn(4, 3), np.random.randn(3, 5)
    graph = framejit.capture(arrays, a, b, level="library")
    assert callees(graph) == [
        "numpy.maximum(x0, 0)", "numpy.exp(x0)", "numpy.sum(x0, axis=1, keepdims=True)", "_ = numpy.ndarray.sort(x0, axis=0) writes x0",
        "r0, r1 = numpy.linalg.eigh(x0)", "numpy.concatenate([x0, x1])", "numpy.ndarray.mean(x0, 0)", "numpy.where(x0, x1, -1)",
        "numpy.ndarray.clip(x0, 0, 2)"]
    assert all(node.line > 0 and node.file == __file__ for node in graph)
    other = a.copy()
    for one, two in zip(graph(a, b), arrays(other, b)):
        np.testing.assert_allclose(one, two)
    np.testing.assert_array_equal(a, other)
    assert str(Graph.parse(str(graph))) == str(graph)


def test_numbers_of_arguments_are_checked():
    graph = framejit.capture(lambda x, n: np.full((2,), n) + x, np.ones(2), 3, level="library")
    np.testing.assert_array_equal(graph(np.ones(2), 3), [4, 4])
    assert "n == 3" in [text.partition("  (")[0] for text in graph.assumptions]
    with pytest.raises(GraphError, match="captured with n == 3, not 4"):
        graph(np.ones(2), 4)
    with pytest.raises(TypeError, match='level is "primitive" or "library"'):
        framejit.capture(np.sin, np.ones(2), level="torch")


def test_sizes_that_change():
    def f(x):
        return np.sum(x.reshape(x.shape[0], -1), axis=1) / x.shape[0]

    graph = framejit.capture(f, np.ones((4, 3, 2)), dynamic_shapes={"x": [0]}, level="library")
    assert "numpy.ndarray.reshape(x0, s0, -1)" in callees(graph)
    for n in (4, 7):
        x = np.random.randn(n, 3, 2)
        np.testing.assert_allclose(graph(x), f(x))


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
                               torch.nn.Flatten(), torch.nn.Linear(36, 5), torch.nn.LayerNorm(5))


@needs_torch
def test_modules_are_their_calls(tmp_path):
    net, twin, x = network(), network(), torch.randn(2, 3, 8, 8)
    graph = framejit.capture(net, x, level="library")
    assert [re.sub(r".*torch\.([\w.]*)\(.*", r"\1", text) for text in callees(graph)] == [
        "conv2d", "Tensor.add_", "nn.functional.batch_norm", "nn.functional.relu", "nn.functional.max_pool2d", "Tensor.flatten",
        "nn.functional.linear", "nn.functional.layer_norm"]
    assert [node.module for node in graph.find(op="extern_call")] == ["0", "1", "1", "2", "3", "4", "5", "6"]
    assert str(graph.find(module="5")[0].type) == "f32[2, 5]"
    for _ in range(2):
        found, expected = graph(x), twin(x)
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
        found.square().sum().backward()
        expected.square().sum().backward()
    for one, other in zip(net.parameters(), twin.parameters()):
        torch.testing.assert_close(one.grad, other.grad, atol=1e-3, rtol=1e-3)
    for one, other in zip(net.buffers(), twin.buffers()):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)
    graph.save(tmp_path / "net.graph")
    loaded = Graph.load(tmp_path / "net.graph")
    assert str(loaded) == str(graph)
    torch.testing.assert_close(loaded(x), twin(x), atol=1e-5, rtol=1e-4)


@needs_torch
def test_calls_are_edited():
    net, x = network(), torch.randn(2, 3, 8, 8)
    graph = framejit.capture(net, x, level="library")
    (relu,) = graph.find(module="2")
    relu.attrs["callee"] = "torch.nn.functional.gelu(x0)"
    by_hand = network()
    by_hand[2] = torch.nn.GELU()
    torch.testing.assert_close(graph(x), by_hand(x), atol=1e-5, rtol=1e-4)
    relu.attrs["callee"] = "torch.load(x0)"
    with pytest.raises(GraphError, match="is no function of arrays"):
        graph(x)


@needs_torch
def test_lowering_gives_the_primitive_graph():
    net, x = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.ReLU(), torch.nn.LayerNorm(4)), torch.randn(5, 6)
    graph, primitive = framejit.capture(net, x, level="library"), framejit.capture(net, x)
    lowered = graph.lower()
    assert [node.op for node in lowered] == [node.op for node in primitive]
    given = {"input": x, **dict(net.named_parameters())}
    torch.testing.assert_close(lowered(*(given[node.name] for node in graph.inputs))[0], net(x))


@needs_torch
def test_a_function_of_the_library_that_calls_others_is_one_call():
    layer, x = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0), torch.randn(2, 5, 16)
    graph = framejit.capture(layer, x, level="library")
    names = [re.sub(r".*torch\.([\w.]*)\(.*", r"\1", text) for text in callees(graph)]
    assert names.count("nn.functional.multi_head_attention_forward") == 1 and "nn.functional.scaled_dot_product_attention" not in names
    torch.testing.assert_close(graph(x), layer(x))


@needs_torch
def test_what_has_no_derivative_has_none_here():
    def f(x, w):
        with torch.no_grad():
            s = torch.relu(x * w)
        return torch.sin(x) * s * w.detach()

    x, w = torch.randn(6, requires_grad=True), torch.randn(6, requires_grad=True)
    graph = framejit.capture(f, x, w, level="library")
    expected = torch.autograd.grad(f(x, w).sum(), (x, w), allow_unused=True)
    found = torch.autograd.grad(graph(x, w).sum(), (x, w), allow_unused=True)
    assert expected[1] is None and found[1] is None
    torch.testing.assert_close(found[0], expected[0])
