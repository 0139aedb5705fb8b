"""docs/coming-from.md: what it says of framejit beyond its snippets, and that the names in its tables are there.

The snippets run in test_snippets.py. What it says of loops, guards, side effects, derivatives and debuggers is tested where these are.
"""
import re

import numpy as np
import pytest

import framejit
from test_snippets import ROOT
from harness import torch

TEXT = (ROOT / "docs" / "coming-from.md").read_text()
needs_torch = pytest.mark.skipif(torch is None, reason="torch is not installed in this environment")


def test_names_of_framejit_are_there():
    names = set(re.findall(r"\bframejit\.([A-Za-z]\w*(?:\.\w+)?)", TEXT))
    assert {"compile", "capture", "Graph.load"} <= names
    for name in names:
        found = framejit
        for part in name.split("."):
            found = getattr(found, part)


def test_methods_of_graphs_and_nodes_are_there():
    for name in set(re.findall(r"`graph\.(\w+)", TEXT)) - {"inserting_before", "call_function", "erase_node"}:
        assert hasattr(framejit.Graph, name), name
    for name in ("op", "attrs", "operands", "users", "type", "replace_uses", "erase"):
        assert f"`node.{name}" in TEXT and hasattr(framejit.Node, name), name


def test_variables_are_options():
    options = (ROOT / "docs" / "options.md").read_text()
    for variable in re.findall(r"FRAMEJIT_[A-Z_]+", TEXT):
        assert f"`{variable}`" in options, variable


@pytest.mark.parametrize("width", [3, 1])
def test_sizes_of_0_and_1_need_no_graph_of_their_own(width):
    add = framejit.compile(lambda x, y: x + y)
    for rows in (5, 6):
        add(np.ones((rows, 3)), np.ones((1, width)))
    before = framejit.cache_info()["graphs"]
    for rows in (1, 0, 2):
        assert add(np.ones((rows, 3)), np.ones((1, width))).shape == (rows, 3)
    assert framejit.cache_info()["graphs"] == before


def test_a_size_from_data_is_compiled_and_not_captured():
    def positive(x):
        return x[x > 0] * 2

    x = np.array([1.0, -1.0, 2.0])
    assert np.array_equal(framejit.compile(positive, fullgraph=True)(x), positive(x))
    with pytest.raises(framejit.GraphBreakError, match="FJ116"):
        framejit.capture(positive, x)


def test_what_prints_is_not_captured():
    def shown(x):
        print("shown")
        return x * 2

    with pytest.raises(framejit.GraphBreakError, match="FJ102"):
        framejit.capture(shown, np.ones(3))


def test_a_size_that_the_code_decides_is_named():
    def decided(x):
        return x * 2 if x.shape[0] == 3 else x * 3

    with pytest.raises(framejit.GraphError, match="axis 0 of x should be dynamic, and the code needs it to be 3"):
        framejit.capture(decided, np.ones(3), dynamic_shapes={"x": {0: framejit.Dim("n")}})


def test_a_print_in_a_derivative_is_an_error_that_names_the_line():
    def shown(x):
        print("shown")
        return np.sum(x)

    with pytest.raises(framejit.GraphBreakError, match=r"test_coming_from\.py:\d+.*\n.*FJ102"):
        framejit.grad(shown)(np.ones(3))


def test_the_option_disable_runs_the_call_as_written():
    asked = []

    @framejit.compile
    def double(x):
        asked.append(framejit.is_compiling())
        return x * 2

    with framejit.options(disable=True):
        double(np.ones(3))
    double(np.ones(3))
    assert asked == [False, True]


@needs_torch
def test_marks_of_torch_compile_say_nothing():
    @torch.compiler.disable
    def marked(x):
        return x + 1

    @framejit.compile
    def double(x):
        torch._dynamo.graph_break()
        return marked(x * 2) * 3

    x = torch.ones(4)
    torch._dynamo.mark_dynamic(x, 0)
    report = framejit.explain(double)(x)
    assert report.breaks == [] and report.graphs[0].inputs[0].shape == (4,)
    assert torch.equal(report.result, torch.full((4,), 9.0))


@needs_torch
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_call_of_what_is_scripted_is_a_break():
    scripted = torch.jit.script(torch.nn.ReLU())

    def around(x):
        return scripted(x - 1) * 2

    assert framejit.compile(scripted) is scripted
    report = framejit.explain(around)(torch.arange(3.0))
    assert [found.number for found in report.breaks] == ["FJ108"]
    assert torch.equal(report.result, torch.tensor([0.0, 0.0, 2.0]))
