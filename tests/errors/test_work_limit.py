"""What would take too many steps to compile is cut into smaller pieces, or left to CPython: never a call that does not come back."""
import numpy as np
import pytest

import framejit
from harness import needs_torch, torch


LINES = {"wheres": "x = lib.where(x > {k}, x - 1, x + 1) * 0.5", "rolls": "x = x + 0.25 * (lib.roll(x, 1) - x)"}


def straight(name):
    """Sixty lines of one kind."""
    namespace = {}
    exec("def steps(lib, x):\n" + "".join(f"    {LINES[name].format(k=k)}\n" for k in range(60)) + "    return x + x.sum()\n", namespace)
    return namespace["steps"]


def looped(lib, x):
    for k in range(60):
        x = lib.where(x > k, x - 1, x + 1) * 0.5
    return x + x.sum()


both = pytest.mark.parametrize("library", [np, pytest.param(torch, marks=needs_torch)])


@both
@pytest.mark.parametrize("name", LINES)
@pytest.mark.parametrize("limit", [1000, 2500])
def test_pieces_are_cut_until_they_can_be_compiled(library, name, limit):
    function, x = straight(name), library.linspace(-30, 30, 40)
    compiled = framejit.compile(function, work_limit=limit)
    np.testing.assert_allclose(compiled(library, x), function(library, x), rtol=1e-5)
    report = framejit.explain(compiled).so_far()
    assert len(report.graphs) > 1 and {b.name for b in report.breaks} == {"TooMuchWork"} and not report.fallbacks
    assert "FJ129" in report.breaks[0].text and "work_limit" in report.breaks[0].text


@both
def test_a_loop_is_left_a_loop(library):
    compiled, x = framejit.compile(looped, work_limit=600), library.linspace(-30, 30, 40)
    for _ in range(2):
        np.testing.assert_allclose(compiled(library, x), looped(library, x), rtol=1e-5)
    assert framejit.explain(compiled).so_far().graphs


def test_what_can_t_be_cut_is_cpython_s_and_said():
    compiled = framejit.compile(looped, work_limit=1)
    x = np.ones(5)
    for _ in range(3):
        np.testing.assert_array_equal(compiled(np, x), looped(np, x))
    report = framejit.explain(compiled).so_far()
    assert not report.graphs and "more than 1 steps (the option work_limit)" in report.text()


def test_fullgraph_says_that_it_is_too_much():
    with pytest.raises(framejit.GraphBreakError, match="FJ129(.|\n)*work_limit"):
        framejit.compile(straight("wheres"), fullgraph=True, work_limit=1000)(np, np.ones(5))


@needs_torch
def test_a_model_in_pieces_still_trains():
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.Tanh()) for _ in range(12)])
    x = torch.randn(4, 6)
    losses = []
    for call in (model, framejit.compile(model, work_limit=600)):
        model.zero_grad()
        call(x).square().sum().backward()
        losses.append([parameter.grad.clone() for parameter in model.parameters()])
    for eager, found in zip(*losses):
        torch.testing.assert_close(found, eager)
