"""t_(), transpose_(), squeeze_() and unsqueeze_(): a tensor made here gets other sizes; of any other torch does it."""
import pytest

import framejit
from harness import needs_torch, torch

pytestmark = needs_torch


def seen(y):
    return (y.tolist(), y.shape, y.stride(), y._version, y._base is None, y.is_leaf, y.storage_offset(), y.untyped_storage().nbytes())


def turned(x):
    y = x * 2
    y.t_()
    return y


def back_and_forth(x):
    y = x * 2
    y.unsqueeze_(0)
    y += 1
    y.squeeze_()
    for _ in range(3):
        y.transpose_(0, 1)
    return y + 1, y, y.contiguous()


def two_names(x):
    y = z = x * 2
    y.swapaxes_(0, 1).add_(1)
    return z + 1, z


def a_view_of_it_afterwards(x):
    y = x * 2
    y.t_()
    v = y[0]
    v += 5
    return y, v


def sizes_of_one(x):
    y = torch.zeros(1, 3) + x[0]
    y.squeeze_(0)
    y.t_()
    return y, y.unsqueeze_(-1)


def a_view_of_it_before(x):
    y = x * 2
    v = y[0]
    y.t_()
    v += 1
    return y, v


def a_view(x):
    y = (x * 2)[1:]
    y.t_()
    return y


def an_argument(x):
    return x.t_()


def numpys_memory(x):
    y = x.detach() * 2
    n = y.numpy()
    y.t_()
    n += 1
    return y


def out_of_range(x):
    y = x * 2
    y.unsqueeze_(5)
    return y


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("function", [turned, back_and_forth, two_names, a_view_of_it_afterwards, sizes_of_one, a_view_of_it_before, a_view, an_argument,
                                      numpys_memory, out_of_range])
def test_a_tensor_that_changes_its_sizes(function, grad):
    framejit.reset()
    compiled = framejit.compile(function)
    for _ in range(2):
        outcomes = []
        for run in (compiled, function):
            x = torch.arange(6.0).reshape(2, 3)
            x.requires_grad_(grad)
            try:
                results = run(x)
            except (RuntimeError, IndexError) as error:
                outcomes.append((type(error), str(error)))
                continue
            results = results if isinstance(results, tuple) else (results,)
            outcomes.append([seen(y) for y in (*results, x)])
            if grad:
                outcomes[-1] += [torch.autograd.grad(y.sum(), x, retain_graph=True)[0].tolist() for y in results if y.requires_grad and y is not x]
        assert outcomes[0] == outcomes[1]
    info = framejit.cache_info()
    assert info["internal_errors"] == 0
    if not grad and function in (turned, back_and_forth, two_names, a_view_of_it_afterwards, sizes_of_one):
        assert info["graphs"] == 1 and info["breaks"] == 0


@needs_torch
@pytest.mark.parametrize("call", ["(x + 1).t_(1)", "(x + 1).t_(dim=1)", "(x + 1).swapaxes_(dim0=0, dim1=1)", "torch.as_tensor([1.0], requires_grad=True)", "torch.add(x, 1, requires_grad=False)"])
def test_an_argument_that_torch_does_not_take_is_its_error(call):
    space = {"torch": torch}
    exec(f"def f(x):\n    return {call}", space)
    errors = []
    for function in (space["f"], framejit.compile(space["f"])):
        with pytest.raises(TypeError) as raised:
            function(torch.ones(2, 3))
        errors.append(str(raised.value))
    assert errors[0] == errors[1]
