"""What a derivative's derivative is: None, zeros or numbers, as in eager, and what it looks like."""
import math

import pytest

import framejit

torch = pytest.importorskip("torch", reason="torch is not installed")
from torch.nn import functional as F  # noqa: E402

FUNCTIONS = {
    "sort": lambda x: x.sort()[0],
    "median": lambda x: x.median(),
    "median along": lambda x: x.median(0)[0],
    "kthvalue": lambda x: x.kthvalue(2)[0],
    "topk": lambda x: x.topk(2)[0],
    "nan_to_num": torch.nan_to_num,
    "margin_ranking_loss": lambda x: F.margin_ranking_loss(x, x * 0.5, torch.ones(4)),
    "cumsum": lambda x: x.cumsum(0),
    "leaky_relu": lambda x: F.leaky_relu(x - 1, 0.2),
    "relu6": lambda x: F.relu6(x),
    "hardtanh": lambda x: F.hardtanh(x, -2.0, 2.5) * 1.5,
    "abs": torch.abs,
    "relu": torch.relu,
    "clamp": lambda x: x.clamp(0.5, 2.5),
    "max": lambda x: x.max(),
    "exp": torch.exp,
    "a number": lambda x: x * 2,
    "softmax": lambda x: x.softmax(0),
    **{f"power {n}": lambda x, n=n: x ** n for n in (0, 1, 1.0, 2, 3, -1, 0.5)},
}


def looks_of(answers):
    return [None if answer is None else (answer.stride(), answer._version, answer._is_view(), answer.requires_grad) for answer in answers]


def same(ours, theirs):
    assert type(ours) is type(theirs), (ours, theirs)
    if isinstance(ours, str):
        assert ours == theirs
        return
    assert looks_of(ours) == looks_of(theirs)
    for a, b in zip(ours, theirs):
        if a is not None:
            torch.testing.assert_close(a.detach().clone(), b.detach().clone())


@pytest.mark.parametrize("allow_unused", [False, True])
@pytest.mark.parametrize("order", [2, 3])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_derivative_of_a_derivative_is_none_where_eagers_is(name, order, allow_unused):
    def derive(function):
        x = torch.tensor([1.0, 3.0, 2.0, 0.25], requires_grad=True)
        try:
            given = function(x).sum()
            for _ in range(order - 1):
                given, = torch.autograd.grad(given, x, create_graph=True)
                given = given.sum()
                if not given.requires_grad:
                    return "a constant"
            return torch.autograd.grad(given, x, allow_unused=allow_unused)
        except RuntimeError as error:
            return str(error).splitlines()[0]

    compiled = framejit.compile(FUNCTIONS[name])
    for _ in range(2):
        same(derive(compiled), derive(FUNCTIONS[name]))


@pytest.mark.parametrize("inside", [False, True])
def test_a_gradient_that_repeats_what_repeats_has_no_strides(inside):
    def f(x):
        loss = x.sum(0).sum() / 5
        return torch.autograd.grad(loss, x)[0] if inside else loss

    def gradient(function):
        x = torch.ones(3, 2, requires_grad=True)
        made = function(x)
        return [made if inside else torch.autograd.grad(made, x)[0]]

    ours = gradient(framejit.compile(f))
    assert ours[0].stride() == (0, 0) and ours[0]._is_view()
    same(ours, gradient(f))


def test_a_gradient_of_zeros_is_no_view():
    x = torch.tensor([1.0, -2.0], requires_grad=True)
    slope, = torch.autograd.grad(framejit.compile(torch.Tensor.sign)(x).sum(), x)
    assert slope.stride() == (1,) and not slope._is_view() and slope.tolist() == [0, 0]


@pytest.mark.parametrize("bend", [lambda x: F.leaky_relu(x, 0.2), lambda x: F.hardtanh(x), lambda x: F.relu6(x)], ids=["leaky_relu", "hardtanh", "relu6"])
def test_a_penalty_of_a_gradient_gives_every_parameter_one(bend):
    def loss(x, w, b, v):
        return bend(x @ w + b) @ v

    def gradients(function):
        generator = torch.Generator().manual_seed(0)
        tensors = [torch.randn(*shape, generator=generator).requires_grad_() for shape in ((3, 4), (4, 5), (5,), (5,))]
        gradient, = torch.autograd.grad(function(*tensors).sum(), tensors[0], create_graph=True)
        ((gradient.norm(dim=1) - 1) ** 2).mean().backward()
        return [t.grad for t in tensors]

    for expected, found in zip(gradients(loss), gradients(framejit.compile(loss))):
        torch.testing.assert_close(found, expected)


def test_a_gradient_that_depends_on_nothing_requires_one_where_eagers_does():
    """A convolution's has its input as an operand still; no number comes back (here zeros, in eager none)."""
    def loss(x):
        return F.conv1d(x[None], torch.ones(1, 2, 2)).sum()

    compiled = framejit.compile(loss)
    for _ in range(2):
        x = torch.ones(2, 3, requires_grad=True)
        gradient, = torch.autograd.grad(compiled(x), x, create_graph=True)
        ((gradient - 1) ** 2).sum().backward()
        assert gradient.requires_grad and (x.grad is None or not x.grad.any())


ROUNDED = {
    "quotient": lambda a, b: torch.div(a, b, rounding_mode="trunc"), "quotient by a number": lambda a, b: torch.div(a, 2.0, rounding_mode="trunc") + b,
    "fmod": torch.fmod, "remainder": torch.remainder,
}


@pytest.mark.parametrize("function", ROUNDED.values(), ids=ROUNDED)
def test_a_quotient_that_is_rounded_has_a_derivative_of_zeros_also_by_zero(function):
    def derivatives(f):
        a, b = (torch.tensor(values, requires_grad=True) for values in ([5.0, -7.0, 0.0, math.inf], [3.0, 0.0, 0.0, 2.0]))
        made = torch.autograd.grad(f(a, b).sum(), (a, b), create_graph=True)
        twice = [g for first in made if first.requires_grad for g in torch.autograd.grad(first.sum(), (a, b), create_graph=True, allow_unused=True)]
        return [g if g is None else (g.nan_to_num(9.0).tolist(), g.requires_grad) for g in (*made, *twice)]

    framejit.reset()
    expected = derivatives(function)
    compiled = framejit.compile(function, fullgraph=True)
    assert [derivatives(compiled) for _ in range(2)] == [expected] * 2
