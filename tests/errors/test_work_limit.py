"""What would take too many steps to compile is cut into smaller pieces, or left to CPython: never a call that does not come back."""
import numpy as np
import pytest

import framejit
from harness import needs_torch, torch


def steps(lib, x):
    for k in range(60):
        x = lib.where(x > k, x - 1, x + 1) * 0.5
    return x + x.sum()


def rolls(lib, x):
    for _ in range(60):
        x = x + 0.25 * (lib.roll(x, 1) - x)
    return x


@pytest.mark.parametrize("library", [np, pytest.param(torch, marks=needs_torch)])
@pytest.mark.parametrize("function", [steps, rolls])
@pytest.mark.parametrize("limit", [400, 1500])
def test_pieces_are_cut_until_they_can_be_compiled(library, function, limit):
    x = library.linspace(-30, 30, 40)
    compiled = framejit.compile(lambda x: function(library, x), work_limit=limit)
    np.testing.assert_allclose(compiled(x), function(library, x), rtol=1e-6)
    report = framejit.explain(compiled).so_far()
    assert len(report.graphs) > 1 and {b.name for b in report.breaks} == {"TooMuchWork"} and not report.fallbacks
    assert "FJ129" in report.breaks[0].text and "work_limit" in report.breaks[0].text


def test_what_can_t_be_cut_is_cpython_s_and_said():
    compiled = framejit.compile(lambda x: steps(np, x), work_limit=1)
    x = np.ones(5)
    for _ in range(3):
        np.testing.assert_array_equal(compiled(x), steps(np, x))
    report = framejit.explain(compiled).so_far()
    assert not report.graphs and "more than 1 steps (the option work_limit)" in str(report)


def test_fullgraph_says_that_it_is_too_much():
    with pytest.raises(framejit.GraphBreakError, match="FJ129(.|\n)*work_limit"):
        framejit.compile(lambda x: steps(np, x), fullgraph=True, work_limit=400)(np.ones(5))


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
