"""The same work on many arrays is one launch, whatever their sizes: updates of parameters as a training loop written by hand has them."""
import copy

import numpy as np
import pytest

import framejit
from harness import needs_torch, torch

SIZES = [(64,), (7,), (3, 5), (1,), (100, 20), (2, 3, 4), (33,)] * 7


def drawn(seed):
    generator = np.random.default_rng(seed)
    return [generator.standard_normal(size).astype(np.float32) for size in SIZES]


def adam(parameters, gradients, means, squares):
    for p, g, m, v in zip(parameters, gradients, means, squares):
        m *= 0.9
        m += 0.1 * g
        v *= 0.999
        v += 0.001 * g * g
        p -= 0.001 * m / (v + 1e-8)


def states():
    return drawn(0), drawn(1), drawn(2), [v * v + 1 for v in drawn(3)]


def test_numpy_parameters_are_updated_in_two_launches_of_each_kind():
    expected, actual = states(), states()
    step = framejit.compile(adam)
    for _ in range(3):
        adam(*expected)
        step(*actual)
        for eager, ours in zip(expected, actual):
            for a, b in zip(eager, ours):
                np.testing.assert_array_equal(a, b)
    # New values beside the old ones (a condition may have to be reported), then copies: of arrays, of single elements.
    report = framejit.explain(step)(*actual)
    assert report.breaks == [] and report.kernel_count <= 4


def test_a_condition_in_one_update_leaves_all_arrays_to_numpy():
    expected, actual = states(), states()
    for state in (expected, actual):
        state[0][4][3, 3] = np.float32(3e38)
        state[1][4][3, 3] = np.float32(-3e38)

    def grow(parameters, gradients):
        for p, g in zip(parameters, gradients):
            p -= g * 2

    with np.errstate(over="raise"):
        for function, state in ((grow, expected), (framejit.compile(grow), actual)):
            with pytest.raises(FloatingPointError, match="overflow"):
                function(state[0], state[1])
    for a, b in zip(expected[0], actual[0]):
        np.testing.assert_array_equal(a, b)


@needs_torch
def test_torch_parameters_are_updated_in_one_launch_of_each_kind():
    expected, actual = ([[torch.from_numpy(a) for a in arrays] for arrays in states()] for _ in range(2))
    step = framejit.compile(adam)
    for _ in range(3):
        adam(*expected)
        step(*actual)
        for eager, ours in zip(expected, actual):
            for a, b in zip(eager, ours):
                assert torch.equal(a, b) and a._version == b._version
    report = framejit.explain(step)(*actual)
    assert report.breaks == [] and report.kernel_count <= 2


@needs_torch
def test_results_of_many_small_computations_are_ordinary_tensors():
    def f(arrays):
        return [torch.relu(a) + 1 for a in arrays]

    arrays = [torch.from_numpy(a) for a in drawn(5)]
    report = framejit.explain(framejit.compile(f))(arrays)
    assert report.kernel_count <= 2
    for ours, eager in zip(report.result, f(arrays)):
        assert torch.equal(ours, eager) and ours.stride() == eager.stride() and ours._base is None
    assert len({r.untyped_storage().data_ptr() for r in report.result if r.numel()}) == sum(r.numel() > 0 for r in report.result)
    copy.deepcopy(report.result)


@pytest.mark.parametrize("count", [1, 2, 300])
def test_any_number_of_them(count):
    def f(arrays, k):
        for a in arrays:
            a += k
        return arrays[0].sum()

    ours = [np.full(3, i, np.int32) for i in range(count)]
    assert framejit.compile(f)(ours, 4) == 12
    for i, a in enumerate(ours):
        np.testing.assert_array_equal(a, np.full(3, i + 4, np.int32))
