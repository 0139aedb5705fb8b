"""Tensors that become leaves in compiled code: requires_grad_() on a new tensor, and factories with requires_grad=True.

A derivative by such a leaf is in the graph, and the leaf itself may leave it. What is computed from it has a history that begins there, so
where that is handed out the graph ends before the leaf is made, and torch makes it.
"""
import pytest

import framejit
from harness import needs_torch, torch

pytestmark = needs_torch


def seen(value):
    """What can be seen of a result."""
    if isinstance(value, (tuple, list)):
        return [seen(item) for item in value]
    if not isinstance(value, torch.Tensor):
        return value
    return (value.tolist(), value.dtype, value.requires_grad, value.is_leaf, value.grad_fn is None, value._version,
            None if not value.is_leaf or value.grad is None else seen(value.grad))


def run(function, *arguments):
    try:
        return seen(function(*arguments))
    except Exception as error:
        return type(error), str(error)


def by_backward(x):
    y = (x * 2).requires_grad_()
    (y ** 2).sum().backward()
    return y.grad * 2, y.is_leaf, y.requires_grad


def by_grad(x):
    y = torch.zeros(4, requires_grad=True)
    z = torch.zeros_like(x, requires_grad=True)
    return torch.autograd.grad(((y - x) * (z + 2)).sum(), [y, z])


def by_grad_of_numbers(x):
    y = torch.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    g, = torch.autograd.grad((y * x).sum(), y)
    return g + y.detach()


def attack(x):
    """The fast gradient sign method."""
    moved = x.detach().clone().requires_grad_(True)
    loss = (moved * moved * 3).sum()
    gradient, = torch.autograd.grad(loss, moved)
    return x + 0.1 * gradient.sign(), loss.item()


def the_leaf_itself(x):
    y = torch.ones(4, requires_grad=True)
    (y * x).sum().backward()
    return y, [y], y.grad


def a_leaf_by_assignment(x):
    y = x + 1
    y.requires_grad = True
    return y, torch.autograd.grad((y * y).sum(), y)[0]


def gradients_added_up(x):
    y = torch.zeros(4, requires_grad=True)
    (y * x).sum().backward()
    (y * 2).sum().backward()
    y.grad.zero_()
    (y.view(2, 2) * 5).sum().backward()
    return y.grad


def nothing_recorded(x):
    with torch.no_grad():
        y = torch.zeros(4, requires_grad=True)
        z = y * 2 + x
    return y, z, z.requires_grad


def detached(x):
    y = torch.zeros(4, requires_grad=True)
    loss = (y * x + y.detach()).sum()
    gradient, = torch.autograd.grad(loss, y)
    return gradient, loss.detach(), y.detach()


def asked_twice(x):
    y = x.clone().requires_grad_().requires_grad_()
    return torch.autograd.grad((y * x).sum(), y)[0], (x * 1).requires_grad_(False)


def random_leaf(x):
    y = torch.rand(4, requires_grad=True)
    return torch.autograd.grad((y * x).sum(), y)[0], y


@pytest.mark.parametrize("function", [by_backward, by_grad, by_grad_of_numbers, attack, the_leaf_itself, a_leaf_by_assignment, gradients_added_up,
                                      nothing_recorded, detached, asked_twice, random_leaf])
@pytest.mark.parametrize("outside", [True, False])
def test_a_leaf_made_in_the_trace(function, outside):
    framejit.reset()
    compiled = framejit.compile(function)
    for i in range(3):
        x = torch.linspace(-1, 2, 4) + i
        with torch.set_grad_enabled(outside):
            torch.manual_seed(i)
            expected = run(function, x)
            torch.manual_seed(i)
            assert run(compiled, x) == expected
    info = framejit.cache_info()
    raises = isinstance(expected, tuple) and isinstance(expected[0], type)
    if not raises and function is not random_leaf:
        assert info["graphs"] == 1 and info["breaks"] == 0, framejit.explain(compiled).so_far()


def handed_out(x):
    y = torch.ones(4, requires_grad=True)
    return y * x


def a_view_handed_out(x):
    y = torch.ones(4, requires_grad=True)
    return y[1:]


def written_into(x):
    x = x.clone()
    x[0] = (torch.ones(4, requires_grad=True) * 2).sum()
    return x


def leaf_written(x):
    y = torch.ones(4, requires_grad=True)
    y += x
    return y


def leaf_view_written(x):
    y = torch.ones(4, requires_grad=True)
    y[0] = 2
    return y


def written_where_nothing_is_recorded(x):
    y = torch.ones(4, requires_grad=True)
    for _ in range(2):
        gradient, = torch.autograd.grad(((y - x) ** 2).sum(), y)
        with torch.no_grad():
            y -= 0.1 * gradient
    return y


def seen_before(x):
    y = torch.zeros(4)
    part = y[1:]
    y.requires_grad_()
    return part.requires_grad, y, torch.autograd.grad((y * x).sum(), y)[0]


def of_ints(x):
    return torch.zeros(4, dtype=torch.long, requires_grad=True)


def no_leaf(x):
    y = torch.ones(4, requires_grad=True)
    return (y * 2).requires_grad_(False)


def a_method(x):
    y = x.new_zeros(4, requires_grad=True)
    return torch.autograd.grad((y * x).sum(), y)[0]


def second_derivative(x):
    y = x.clone().requires_grad_()
    g, = torch.autograd.grad((y ** 3).sum(), y, create_graph=True)
    return torch.autograd.grad(g.sum(), y)[0]


def a_second_backward(x):
    y = torch.ones(4, requires_grad=True)
    loss = (y ** 2).sum()
    loss.backward()
    loss.backward()


def across_a_break(x):
    y = torch.ones(4, requires_grad=True)
    z = y * x
    print(end="")
    return torch.autograd.grad(z.sum(), y)[0]


@pytest.mark.parametrize("function", [handed_out, a_view_handed_out, written_into, leaf_written, leaf_view_written, written_where_nothing_is_recorded,
                                      seen_before, of_ints, no_leaf, a_method, second_derivative, a_second_backward, across_a_break])
def test_where_its_history_leaves_the_trace_torch_makes_it(function):
    framejit.reset()
    compiled = framejit.compile(function)
    for i in range(3):
        x = torch.linspace(-1, 2, 4) + i
        assert run(compiled, x) == run(function, x)
    info = framejit.cache_info()
    assert info["internal_errors"] == 0 and info["segments"] <= 8


def test_a_leaf_and_a_parameter():
    weight = torch.ones(4, requires_grad=True)

    def penalty(x):
        y = x.clone().requires_grad_()
        loss = (weight * y).exp().sum()
        gradient, = torch.autograd.grad(loss, y, retain_graph=True)
        return loss + 0.0, gradient

    def step(x):
        y = x.clone().requires_grad_()
        (weight * y).exp().sum().backward()
        return y.grad

    for function in (penalty, step):
        for x in (torch.ones(4), torch.zeros(4)):
            weight.grad = None
            expected = run(function, x), seen(weight.grad) if weight.grad is not None else None
            weight.grad = None
            compiled = framejit.compile(function)
            assert (run(compiled, x), seen(weight.grad) if weight.grad is not None else None) == expected


def test_what_torch_records_behind_a_leaf_that_was_handed_out():
    compiled = framejit.compile(the_leaf_itself)
    x = torch.linspace(-1, 2, 4)
    y = compiled(x)[0]
    (y * 3).sum().backward()
    torch.testing.assert_close(y.grad, x + 3)
