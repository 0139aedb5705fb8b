"""Programs that change course while they run: packed sequences, flags, layers made in forward, recursion, convergence loops.

Compiled and equal to eager, with the same numbers drawn from the library's generator.
"""
import copy

import numpy as np
import pytest

import framejit
from harness import Outcome, compare, torch

if torch is None:
    pytest.skip("torch is not installed in this environment", allow_module_level=True)

from changing_course import (AsDeepAsItsInput, ConditionalModel, DynamicModel, TreeNetwork, VariableLengthRNN,  # noqa: E402
                             square_root_numpy, square_root_torch)


def agree(module, calls, grad=False):
    """Each call gives eager's result, draws and generator; a report of what was compiled."""
    framejit.reset()
    eager = copy.deepcopy(module)
    compiled = framejit.compile(module)
    for seed, arguments in enumerate(calls):
        outcomes, states = [], []
        for run in (eager, compiled):
            torch.manual_seed(seed)
            with torch.set_grad_enabled(grad):
                outcomes.append(Outcome(run, copy.deepcopy(arguments), {}))
            states.append(torch.get_rng_state())
        compare(outcomes[1], outcomes[0])
        assert torch.equal(*states), "the generator was left in another state"
    info, report = framejit.cache_info(), framejit.explain(compiled).so_far()
    assert info["internal_errors"] == 0, report
    return report


def test_variable_length_rnn():
    torch.manual_seed(0)
    calls = [(torch.randn(len(lengths), max(lengths), 10), torch.tensor(lengths)) for lengths in
             ([3, 2, 4], [3, 2, 4], [4, 4, 1], [1, 5, 2], [2, 2], [6, 1, 1, 3])]
    report = agree(VariableLengthRNN(10, 20, 5), calls)
    assert report.graphs, report


def test_conditional_model():
    torch.manual_seed(0)
    calls = [(torch.randn(2, 3, 18, 18), True), (torch.randn(2, 3, 10, 10), False)] * 2
    report = agree(ConditionalModel(), calls)
    assert not report.breaks and len(report.graphs) == 2, report


def test_gradients_flow_where_eager_lets_them():
    torch.manual_seed(0)
    eager = ConditionalModel()
    module = copy.deepcopy(eager)
    compiled = framejit.compile(module)
    for x, flag in [(torch.randn(2, 3, 18, 18), True), (torch.randn(2, 3, 10, 10), False)]:
        for run, owner in ((eager, eager), (compiled, module)):
            owner.zero_grad()
            run(x, flag).square().mean().backward()
        for ours, expected in zip(module.parameters(), eager.parameters()):
            assert (ours.grad is None) == (expected.grad is None)
            if ours.grad is not None:
                torch.testing.assert_close(ours.grad, expected.grad)
    # The pooling without gradients cuts the first convolution off.
    assert module.conv1.weight.grad is not None


def test_layers_made_in_forward_start_from_eager_s_random_values():
    torch.manual_seed(0)
    report = agree(DynamicModel(), [(torch.randn(3, 10), layers) for layers in (2, 3, 1, 4, 0)])
    assert report.graphs, report


def test_tree_network():
    torch.manual_seed(0)
    leaf = lambda: torch.randn(2, 4)  # noqa: E731
    trees = [(leaf(), leaf()), ((leaf(), leaf()), leaf()), ((leaf(), (leaf(), leaf())), (leaf(), leaf())), leaf()]
    report = agree(TreeNetwork(), [(tree,) for tree in trees + trees])
    assert not report.breaks and len(report.graphs) == len(trees), report


def test_number_of_layers_depends_on_the_input_s_mean():
    torch.manual_seed(0)
    report = agree(AsDeepAsItsInput(), [(torch.rand(3, 6) * scale,) for scale in (0.2, 1.0, 0.5, 0.0)])
    assert {b.name for b in report.breaks} == {"ScalarFromArray"}, report


@pytest.mark.parametrize("function, array", [(square_root_torch, torch.tensor), (square_root_numpy, np.array)], ids=["torch", "numpy"])
def test_iteration_until_it_converges_reuses_one_compiled_body(function, array):
    framejit.reset()
    compiled = framejit.compile(function)
    for values, tolerance in (([2.0, 9.0, 100.0], 1e-6), ([1e4, 3.0, 5.0], 1e-6), ([1.0, 1.0, 1.0], 1e-6)):
        compare(Outcome(compiled, (array(values), tolerance), {}), Outcome(function, (array(values), tolerance), {}))
    report = framejit.explain(compiled).so_far()
    # What precedes the loop and its body, the latter once more where the number of steps became a symbol.
    assert len(report.graphs) <= 4 and {b.name for b in report.breaks} == {"BranchOnData"}, report
    assert framejit.cache_info()["internal_errors"] == 0
