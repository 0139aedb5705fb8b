"""examples/graphs.py does what docs/captured-graphs.md says."""
import pathlib

import numpy as np
import pytest

import framejit
from harness import needs_torch, torch

import graphs

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "captured-graphs.md"


def test_the_page_shows_what_is_printed(capsys):
    graph = graphs.printed()
    text = capsys.readouterr().out
    assert str(graph) in text and str(graph) in PAGE.read_text() and "\n".join(graph.assumptions) in PAGE.read_text()
    x, mass = np.random.randn(7, 3), np.random.randn(3)
    np.testing.assert_allclose(graph(x, mass), graphs.energy(x, mass))
    with pytest.raises(framejit.GraphError) as raised:
        graph(x, mass, rate=1.0)
    shown = str(raised.value).split("\n  try")[0]
    assert shown in PAGE.read_text()
    with pytest.raises(framejit.GraphError) as raised:
        graph.find(op="mul")[0].operands = graph.inputs
    assert str(raised.value) in PAGE.read_text()


def test_the_graph_is_edited_and_saved(tmp_path):
    loaded = graphs.saved(tmp_path / "energy.graph")
    x, mass = np.random.randn(7, 3), np.random.randn(3)
    expected = np.minimum(np.tanh(x * mass * 0.5), 0.25).sum(0)
    np.testing.assert_allclose(graphs.edited()(x, mass), expected)
    np.testing.assert_allclose(loaded(x, mass), expected)


def test_the_pass_and_the_back_end():
    x, y = np.random.randn(5), np.random.randn(5)
    np.testing.assert_allclose(graphs.thirds(x), x / 3 + x)
    assert "div" not in framejit.explain(graphs.thirds)(x).text()
    np.testing.assert_allclose(graphs.oscillation(x, y), np.tanh(x * y) - x)


@needs_torch
def test_the_page_shows_library_calls():
    net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.LayerNorm(16))
    graph = framejit.capture(net, torch.randn(32, 8), level="library")
    shown = "\n".join(f"{node.name} {node.type} {node.attrs['callee']} {node.module}" for node in graph)
    assert f"```\n{shown}\n```" in PAGE.read_text()


@needs_torch
def test_relus_become_gelus():
    net, graph = graphs.gelus_for_relus()
    x = torch.randn(9, 8)
    first = torch.nn.functional.gelu(torch.nn.functional.batch_norm(net[0](x), None, None, net[1].weight, net[1].bias, True))
    torch.testing.assert_close(graph(x), torch.nn.functional.gelu(net[3](first)))
