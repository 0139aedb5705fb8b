"""copy.deepcopy of a tensor."""
import copy

import numpy as np
import pytest

import framejit
from harness import assert_same, needs_torch, same_as_eager, torch

pytestmark = needs_torch


def sample():
    return torch.from_numpy(np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4).copy()).clone()


def test_a_deep_copy_is_a_tensor_of_its_own():
    def f(x):
        before = copy.deepcopy(x)
        x.mul_(2)
        after = copy.deepcopy(x)
        before += 1
        return before, after, copy.deepcopy(x * 3), after[1:] + before[1:], before is x

    same_as_eager(f, sample(), breaks=())
    same_as_eager(f, sample().t().contiguous().t(), breaks=())
    same_as_eager(f, torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last), breaks=())
    same_as_eager(lambda x: copy.deepcopy(x > 0) | (x > 1), sample(), breaks=())


def test_what_torch_says_of_a_deep_copy():
    def f(x):
        return copy.deepcopy(x), copy.deepcopy(x + 1).mul_(2), x * 2

    compiled, given = framejit.compile(f), sample()
    for _ in range(3):
        for ours, eager in zip(compiled(given), f(given)):
            for tensor in (ours, eager):
                assert tensor._base is None and tensor.is_leaf and tensor.storage_offset() == 0
            assert ours._version == eager._version
            assert ours.untyped_storage().nbytes() == eager.untyped_storage().nbytes()
    assert framejit.cache_info()["breaks"] == 0


@pytest.mark.parametrize("make", [
    lambda: sample()[1:], lambda: sample()[:2], lambda: sample()[:, 1:], lambda: sample()[:1].expand(3, 4),
    lambda: sample().requires_grad_(), lambda: torch.nn.Parameter(sample()), lambda: torch.complex(sample(), sample())])
def test_what_is_more_than_its_elements_is_torch_s(make):
    def f(x):
        return copy.deepcopy(x) * 2, x + 1

    def places(x):
        found = copy.deepcopy(x)
        return found, x * 2

    same_as_eager(f, make(), compiles=False)
    compiled, given = framejit.compile(places), make()
    framejit.compile(places)(sample())
    for x in (sample(), given, sample(), given):
        ours, eager = compiled(x)[0], places(x)[0]
        assert_same(ours.detach(), eager.detach())
        assert ours.storage_offset() == eager.storage_offset() and ours.requires_grad == eager.requires_grad
        assert type(ours) is type(eager)
        assert ours.untyped_storage().nbytes() == eager.untyped_storage().nbytes()


def test_attributes_and_gradients_go_along():
    def f(x):
        return copy.deepcopy(x), x * 2

    compiled = framejit.compile(f)
    plain, named, derived = sample(), sample(), sample().requires_grad_()
    named.label = "weights"
    (derived * 2).sum().backward()
    derived.requires_grad_(False)
    for x in (plain, named, derived, plain):
        ours, eager = compiled(x)[0], f(x)[0]
        assert ours.__dict__ == eager.__dict__ and (ours.grad is None) == (eager.grad is None)
        assert_same(ours, eager)


def test_aliases_in_one_deep_copy_stay_aliases():
    def f(x):
        a, b = copy.deepcopy([x, x.view(-1)])
        a.add_(1)
        return a, b, copy.deepcopy((x + 1, x))

    same_as_eager(f, sample(), compiles=False)


def test_copies_of_what_requires_a_gradient():
    def f(x):
        y = x * 2
        try:
            return copy.deepcopy(y)
        except RuntimeError as error:
            return y, str(error)[:40]

    same_as_eager(f, sample().requires_grad_(), compiles=False)
