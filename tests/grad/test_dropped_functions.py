"""Results that live longer than the compiled function they are from."""
import gc

import pytest

import framejit

torch = pytest.importorskip("torch", reason="torch is not installed")


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = torch.nn.Conv2d(2, 3, 3)

    def forward(self, x):
        return self.convolution(x).relu().sum()


@pytest.mark.parametrize("calls", [1, 3])
def test_a_derivative_outlives_a_function_that_was_in_a_cycle(calls):
    """The model refers to the compiled function and the function to the model. The collector sees what the function holds alone:
    a library call's object belongs to the grad_fn of a result as well."""
    def result(compiled, x):
        torch.manual_seed(0)
        model = Model()
        model.compiled = framejit.compile(model.forward) if compiled else model.forward
        for _ in range(calls):
            y = model.compiled(x)
        return y

    given = [torch.linspace(-1, 1, 128).reshape(1, 2, 8, 8).requires_grad_() for _ in range(2)]
    results = [result(compiled, x) for compiled, x in zip((True, False), given)]
    gc.collect()
    for y in results:
        y.backward()
    torch.testing.assert_close(given[0].grad, given[1].grad)
