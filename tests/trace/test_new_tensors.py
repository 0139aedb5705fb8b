"""Tensors made of numbers, of tensors of no axes, and beside another tensor: torch.tensor, Tensor.new_tensor, Tensor.new."""
import numpy as np
import pytest

import framejit
from harness import assert_same, needs_torch, same_as_eager, torch

pytestmark = needs_torch


def sample(dtype="float32"):
    return torch.from_numpy(np.linspace(-2, 2, 12).reshape(3, 4)).to(getattr(torch, dtype))


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int32", "bool"])
def test_new_tensor_has_the_dtype_of_the_tensor(dtype):
    def f(x):
        y = x.new_tensor([[1, 0], [x.shape[0], 1]]) if x.dtype != torch.int32 else x.new_tensor((1, 2))
        return y, x.new_tensor(True), x.new_tensor(1, dtype=torch.int64), x.new_tensor([]), x.new_tensor([1.5, 2], dtype=torch.float64) + 1

    same_as_eager(f, sample(dtype), breaks=())


def test_new_tensor_of_numbers_needs_no_gradient():
    def f(x):
        scale = x.new_tensor(3.0)
        return x * scale, scale.requires_grad, scale

    same_as_eager(f, sample().requires_grad_(), breaks=())
    same_as_eager(lambda x, a: (x.new_tensor(a) + x, x.new_tensor(a)), sample(), np.arange(4.0), breaks=())


def test_new_gives_memory_of_sizes_and_what_is_in_lists():
    def f(x):
        a, b, c = x.new(2, 3).fill_(1), x.new(x.size()).zero_(), torch.Tensor.new(x, 5).fill_(2)
        return a, b, c, x.new(torch.Size([2, 2])).fill_(3), x.new([1.0, 2.0]), x.new((2, 3)), x.new(), x.new([[1], [2]]) + 1

    same_as_eager(f, sample(), breaks=())
    same_as_eager(f, sample("float64").requires_grad_(), breaks=())


def test_new_tensors_that_torch_refuses_or_warns_of():
    same_as_eager(lambda x: (x + 1, x.new("a")), sample(), compiles=False)
    same_as_eager(lambda x: (x + 1, x.new(-1)), sample(), compiles=False)
    same_as_eager(lambda x: (x + 1, x.new_tensor([[1], [2, 3]])), sample(), compiles=False)
    same_as_eager(lambda x: (x + 1, x.new_tensor(x[0])), sample(), compiles=False)
    same_as_eager(lambda x: (x + 1, x.new(x)), sample(), compiles=False)
    same_as_eager(lambda x: (x + 1, x.new_tensor([1.0], requires_grad=True) * 2), sample(), compiles=False)


def test_tensor_of_tensors_of_no_axes():
    def f(x, i):
        a = torch.tensor([x[0, 0], x[1, 1]])
        b = torch.tensor([[x[0, 1], 2], [i, 0.5]])
        return a, b * 2, torch.tensor((i, i + 1)), torch.tensor([i > 1, True]), torch.as_tensor([x[2, 3]]), torch.tensor([i > 1, 3])

    for dtype in ("float32", "float64", "float16", "bfloat16"):
        same_as_eager(f, sample(dtype), torch.tensor(2), breaks=())
    same_as_eager(lambda x: torch.tensor([x[0, 0], 1e300, x[1, 0]], dtype=torch.float64) + 1, sample(), breaks=())
    same_as_eager(lambda x: x.new_tensor([x[0, 0].double(), x[1, 0] > 0]), sample(), breaks=())


def test_integers_of_tensors_become_floats_by_way_of_python_s():
    large = torch.tensor([2**24 + 1, 2**53 + 1, 2**62 + 2**38 + 1])
    same_as_eager(lambda i: torch.tensor([i[0], i[1], i[2]], dtype=torch.float32), large, exact=True, breaks=())
    small = torch.tensor([200, 255], dtype=torch.uint8)
    same_as_eager(lambda i: (torch.tensor([i[0], i[1]]), torch.tensor([i[0], i[1].to(torch.int8)]) + 1), small, breaks=())


def test_a_copy_of_numbers_is_a_copy():
    def f(x):
        total = torch.tensor([x[0, 0], x[0, 1]])
        x.mul_(2)
        total += 1
        return total

    same_as_eager(f, sample(), breaks=())


def test_tensors_whose_numbers_torch_refuses_or_warns_of():
    for f in (
        lambda x: torch.tensor([x, 1.0]),
        lambda x: torch.tensor([x[0, 0], [1.0]]),
        lambda x: torch.tensor([x[0, 0], x[0, 1]], dtype=torch.int64),
        lambda x: torch.tensor([x[0, 0] > 5, (x[0, 0] * 1000).long()], dtype=torch.int8),
        lambda x: torch.tensor([x[:1, 0]]),
    ):
        same_as_eager(lambda x: (x * 2, f(x)), sample(), compiles=False)


def test_numbers_of_what_requires_a_gradient_are_torch_s():
    def f(x):
        return torch.tensor([x.sum(), x[0, 0]]) * 2 + x.sum()

    compiled = framejit.compile(f)
    for _ in range(3):
        outcomes = []
        for function in (compiled, f):
            x = sample().requires_grad_()
            result = function(x)
            result.sum().backward()
            outcomes.append((result.detach(), x.grad))
        assert_same(*outcomes)
