"""A Python float that changes between calls, beside tensors that require gradients: one program, and eager's gradients."""
import numpy as np
import pytest

import framejit

torch = pytest.importorskip("torch", reason="torch is not installed")


def times(w, b):
    return (w.sin().exp() + 1).log().sum() * b


def power(w, b):
    return (w.sin().exp() ** b).sum()


def power_of_float(w, b):
    return (b**w).sum()


def weighted(w, b):
    return (w.sigmoid() * b + (1 - b) * w.tanh()).pow(2).mean()


def twice(w, b):
    return ((w * b).exp() / b).sum() * b


def leaky(w, b):
    return torch.where(w > 0, w * b, w * b * b).sum()


def blended(w, b):
    return torch.lerp(w, w * w, b).sum()


def added(w, b):
    return torch.add(w, w * w, alpha=b).sum()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("f", [times, power, power_of_float, weighted, twice, leaky, blended, added])
def test_one_program_for_all_floats(f, dtype):
    compiled = framejit.compile(f)
    for b in (0.5, 0.25, 0.75, 1.5, 1.5, 2.5):
        one, other = (torch.linspace(-1, 1, 9, dtype=dtype).requires_grad_() for _ in range(2))
        expected, found = f(one, b), compiled(other, b)
        expected.backward()
        found.backward()
        close = dict(rtol=1e-5, atol=1e-6) if dtype != torch.bfloat16 else dict(rtol=2e-2, atol=2e-2)
        assert torch.allclose(found, expected, **close)
        assert torch.allclose(other.grad, one.grad, **close)
    info = framejit.cache_info()
    assert info["eager_replays"] == 0 and info["internal_errors"] == 0


@pytest.mark.parametrize("f", [times, power, weighted, twice])
def test_second_derivatives(f):
    compiled = framejit.compile(f)
    for b in (0.5, 0.25, 1.5):
        seconds = []
        for g in (f, compiled):
            w = torch.linspace(-1, 1, 9, dtype=torch.float64).requires_grad_()
            (first,) = torch.autograd.grad(g(w, b), w, create_graph=True)
            seconds.append(torch.autograd.grad(first.pow(2).sum(), w)[0])
        assert torch.allclose(seconds[0], seconds[1])


def test_the_float_of_a_call_is_that_of_its_backward():
    compiled = framejit.compile(lambda w, b: (w * b).sum())
    w = torch.ones(3, requires_grad=True)
    losses = [compiled(w, b) for b in (0.1, 0.2, 0.3, 0.4)]
    for loss, b in reversed(list(zip(losses, (0.1, 0.2, 0.3, 0.4)))):
        w.grad = None
        loss.backward()
        assert torch.allclose(w.grad, torch.full((3,), b))


def test_numpy_scalars_and_attributes():
    class Loss:
        beta = 0.1

        def __call__(self, w):
            return w.exp().sum() * self.beta

    loss, compiled = Loss(), framejit.compile(lambda w, beta: w.exp().sum() * beta)
    for beta in (0.1, 0.2, 0.3, 0.4):
        loss.beta = beta
        one, other, third = (torch.ones(3, dtype=torch.float64, requires_grad=True) for _ in range(3))
        loss(one).backward()
        framejit.compile(loss)(other).backward()
        compiled(third, np.float64(beta)).backward()
        assert torch.allclose(other.grad, one.grad) and torch.allclose(third.grad, one.grad)
    assert framejit.cache_info()["eager_replays"] == 0
