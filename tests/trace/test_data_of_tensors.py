"""`Tensor.data`: the same memory, without a gradient and with a count of writes of its own."""
import copy

import numpy as np
import pytest

import framejit
from harness import assert_same, needs_torch, same_as_eager, torch

pytestmark = needs_torch


def sample():
    return torch.from_numpy(np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4))


def test_data_is_read():
    same_as_eager(lambda x: (x.data * 2 + 1, x.data.requires_grad, x.data is x), sample(), breaks=())
    same_as_eager(lambda x: (x * x.data.abs().max(), (x * 2).data + 1), sample().requires_grad_(), breaks=())


def test_data_is_handed_back():
    for x in (sample(), sample().requires_grad_()):
        same_as_eager(lambda x: (x.data, x + 1), x, breaks=())
        same_as_eager(lambda x: (x.data[1:], x.data.T, x * 2), x, breaks=())
        same_as_eager(lambda x: (x * 2).data, x, breaks=())
        same_as_eager(lambda x: (x[1].data, (x + 1)[:2].data.data), x, breaks=())
    compiled = framejit.compile(lambda x: (x * 2).data)
    made = compiled(sample().requires_grad_())
    assert made.is_leaf and made._base is None and made._version == 0


def test_writes_into_data_are_not_counted():
    def f(x):
        x.data.mul_(2)
        y = x + 1
        y.data.add_(1)
        return y, x.data

    same_as_eager(f, sample(), breaks=())

    def g(x):
        d = x.data
        d.add_(1)
        d[0].zero_()
        return d, d[1:], d + x

    same_as_eager(g, sample(), breaks=())


def test_parameters_are_updated_by_their_data():
    def step(parameter, average, gradient):
        parameter.data.add_(gradient, alpha=-0.1)
        parameter.data.clamp_(-1.5, 1.5)
        average.data.mul_(0.9).add_(parameter.data, alpha=0.1)

    for decorate in (lambda f: f, torch.no_grad()):
        function = decorate(step)
        parameter = torch.nn.Parameter(sample())
        same_as_eager(function, parameter, copy.deepcopy(parameter), sample(), breaks=())


def run(function, x, w):
    result = function(x, w)
    result.sum().backward()
    return result, w.grad, x.grad, x, w


def after_saving(x, w):
    y = w * x
    x.data.mul_(2)
    return y + x


def before_saving(x, w):
    x.data.mul_(2)
    return w * x


def of_the_leaf(x, w):
    y = w * w
    w.data.mul_(2)
    return y * x


def of_the_leaf_first(x, w):
    w.data.mul_(2)
    return w * w * x


def test_data_that_gets_a_history_is_torch_s():
    def f(x, w):
        d = x.data
        d.copy_(w)
        return d * 2, x + 1

    same_as_eager(f, sample(), sample().requires_grad_(), compiles=False)


@pytest.mark.parametrize("function", [after_saving, before_saving, of_the_leaf, of_the_leaf_first])
@pytest.mark.parametrize("leaf", [False, True], ids=["plain", "leaf"])
def test_what_backward_makes_of_written_data_is_torch_s(function, leaf):
    compiled = framejit.compile(function)
    for _ in range(3):
        outcomes = [run(f, sample().requires_grad_(leaf), sample().abs().requires_grad_()) for f in (compiled, function)]
        assert_same(*[tuple(part if part is None else part.detach() for part in outcome) for outcome in outcomes])
    assert framejit.cache_info()["internal_errors"] == 0


def test_data_assigned_is_torch_s():
    def f(x):
        x.data = x.data * 2
        return x + 1

    same_as_eager(f, sample(), compiles=False)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 3), (0, 1)])
@pytest.mark.parametrize("text", ["x.numpy() + 1", "np.concatenate([x.numpy(), x.numpy()])", "np.zeros(x.shape)", "x.numpy().copy()", "np.ascontiguousarray(x.numpy().T)"])
def test_strides_of_numpys_arrays_without_elements(text, shape):
    f = eval(f"lambda x: torch.from_numpy({text})", {"np": np, "torch": torch})
    for dynamic in (False, None):
        compiled = framejit.compile(f, dynamic=dynamic)
        for _ in range(2):
            x = torch.zeros(shape)
            assert compiled(x).stride() == f(x).stride() and compiled(x).shape == f(x).shape
