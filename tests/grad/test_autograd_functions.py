"""torch.autograd.Function: forward and backward are traced, and the results have the derivative that the class gives."""
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
from torch.autograd import Function  # noqa: E402
from torch.autograd.function import once_differentiable  # noqa: E402

import framejit  # noqa: E402

DONE = []


class Square(Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.save_for_backward(x)
        ctx.factor = factor
        return x * x * factor

    @staticmethod
    def backward(ctx, cotangent):
        x, = ctx.saved_tensors
        return 2 * ctx.factor * x * cotangent, None


class Exponential(Function):
    """The derivative reads the result, which is saved."""

    @staticmethod
    def forward(ctx, x):
        result = x.exp()
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, cotangent):
        return cotangent * ctx.saved_tensors[0]


class ExponentialOfAttribute(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.result = x.exp()
        return ctx.result

    @staticmethod
    def backward(ctx, cotangent):
        return cotangent * ctx.result


class Swish(Function):
    """A value made on the way is saved: a constant for the second derivative."""

    @staticmethod
    def forward(ctx, x):
        gate = torch.sigmoid(x)
        ctx.save_for_backward(gate, x)
        return gate * x

    @staticmethod
    def backward(ctx, cotangent):
        gate, x = ctx.saved_tensors
        return cotangent * (gate + x * gate * (1 - gate))


class Reversed(Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx, cotangent):
        return cotangent.neg() * ctx.factor, None


class ReversedItself(Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, cotangent):
        return -cotangent


class StraightThrough(Function):
    """Not linear in the cotangent."""

    @staticmethod
    def forward(ctx, x):
        return x.sign()

    @staticmethod
    def backward(ctx, cotangent):
        return cotangent.clamp(-0.5, 0.5)


class Two(Function):
    """Two results whose cotangents meet."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y, (x + y).sum(0)

    @staticmethod
    def backward(ctx, of_product, of_sum):
        x, y = ctx.saved_tensors
        return of_product * y + torch.tanh(of_sum), of_product * x * torch.sigmoid(of_sum)


class Linear(Function):
    @staticmethod
    def forward(x, weight, scale=2.0):
        return x @ weight * scale

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, weight, ctx.scale = inputs
        ctx.save_for_backward(x, weight)

    @staticmethod
    def backward(ctx, cotangent):
        x, weight = ctx.saved_tensors
        of_x = cotangent @ weight.t() * ctx.scale if ctx.needs_input_grad[0] else None
        of_weight = x.t() @ cotangent * ctx.scale if ctx.needs_input_grad[1] else None
        return of_x, of_weight, None


class Sorted(Function):
    @staticmethod
    def forward(ctx, x):
        values, order = x.sort()
        ctx.mark_non_differentiable(order)
        ctx.save_for_backward(x, order)
        return values, order

    @staticmethod
    def backward(ctx, cotangent, of_order):
        x, order = ctx.saved_tensors
        return torch.zeros_like(x).scatter(-1, order, cotangent)


class Turned(Function):
    @staticmethod
    def forward(ctx, x):
        return (x * 2).t()

    @staticmethod
    def backward(ctx, cotangent):
        return cotangent.t() * 2


class Sine(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    @once_differentiable
    def backward(ctx, cotangent):
        return cotangent * ctx.saved_tensors[0].cos()


class Dropped(Function):
    @staticmethod
    def forward(ctx, x):
        mask = (torch.rand_like(x) > 0.5).to(x.dtype)
        ctx.save_for_backward(mask)
        return x * mask

    @staticmethod
    def backward(ctx, cotangent):
        return cotangent * ctx.saved_tensors[0]


class Partial(Function):
    """No gradient for one that requires one; the result is read by what follows."""

    @staticmethod
    def forward(ctx, x, y):
        return x * 2 + y

    @staticmethod
    def backward(ctx, cotangent):
        return cotangent * 2, None


class Convolved(Function):
    @staticmethod
    def forward(ctx, x, kernel):
        ctx.save_for_backward(kernel)
        return torch.conv1d(x[None, None], kernel)[0, 0]

    @staticmethod
    def backward(ctx, cotangent):
        return torch.conv_transpose1d(cotangent[None, None], ctx.saved_tensors[0])[0, 0], None


class WithGradientOf(Function):
    """The value of one with the gradient of another, which forward does not read."""

    @staticmethod
    def forward(ctx, value, other):
        return value * 1

    @staticmethod
    def backward(ctx, cotangent):
        return None, cotangent


class InBackward(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, cotangent):
        x, = ctx.saved_tensors
        return WithGradientOf.apply(cotangent * 2, cotangent * x.exp()) + ReversedItself.apply(cotangent * x[:])


def of_pair(pair):
    return (pair[0] * pair[0]).sum() + (pair[1] * 3).sum()


WHOLE = {
    "square": lambda x, w: Square.apply(x * 1.5, 3.0).sum(),
    "exponential": lambda x, w: Exponential.apply(x * 0.1).pow(2).sum(),
    "exponential of an attribute": lambda x, w: ExponentialOfAttribute.apply(x * 0.1).pow(2).sum(),
    "swish": lambda x, w: Swish.apply(x @ w).pow(2).sum(),
    "reversed": lambda x, w: (Reversed.apply(x * 2, 0.3) * x).sum(),
    "reversed itself": lambda x, w: (ReversedItself.apply(x @ w) * 3).tanh().sum(),
    "reversed leaf": lambda x, w: (ReversedItself.apply(x) * x).sum(),
    "straight through": lambda x, w: (StraightThrough.apply(x @ w) * w).sum(),
    "two": lambda x, w: of_pair(Two.apply(x, w)),
    "one of two": lambda x, w: Two.apply(x, w)[0].pow(2).sum(),
    "two of one": lambda x, w: of_pair(Two.apply(x, x)),
    "returned": lambda x, w: Square.apply(x, 2.0),
    "both returned": lambda x, w: Two.apply(x, w),
    "linear": lambda x, w: Linear.apply(x, w).tanh().sum(),
    "linear of a constant": lambda x, w: Linear.apply(x.detach(), w, 0.5).tanh().sum(),
    "sorted": lambda x, w: of_pair(Sorted.apply(x)),
    "turned": lambda x, w: (Turned.apply(x) @ w).tanh().sum(),
    "sine": lambda x, w: Sine.apply(x @ w).sum(),
    "dropped": lambda x, w: (Dropped.apply(x) * w).sum(),
    "partial": lambda x, w: Partial.apply(x, w).tanh().sum(),
    "convolved": lambda x, w: (Convolved.apply(x[0] * 2, w[:1, :3].detach()[None]) * 2).tanh().sum(),
    "of constants": lambda x, w: (Square.apply(x.detach(), 2.0) * x).sum(),
    "in a backward": lambda x, w: InBackward.apply(x * 2).sum(),
    "in one another": lambda x, w: Square.apply(Swish.apply(x @ w), 0.5).sum(),
}


class Branching(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, cotangent):
        return cotangent if cotangent.sum() > 0 else -cotangent


class Writing(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 3

    @staticmethod
    def backward(ctx, cotangent):
        DONE.append(1)
        return cotangent * 3


class InPlace(Function):
    @staticmethod
    def forward(ctx, x):
        x.mul_(2)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, cotangent):
        return cotangent * 2


class OtherShape(Function):
    @staticmethod
    def forward(ctx, x):
        return x.sum()

    @staticmethod
    def backward(ctx, cotangent):
        return cotangent


class Drawing(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, cotangent):
        return cotangent * torch.rand_like(cotangent)


class TooMany(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, cotangent):
        return cotangent, cotangent


class Shared(Function):
    @staticmethod
    def forward(ctx, x):
        result = x * 2
        return result, result[0]

    @staticmethod
    def backward(ctx, of_all, of_first):
        return of_all * 2


class Asking(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, cotangent):
        return cotangent * 3 if torch.is_grad_enabled() else cotangent * 2


def written_behind(x, w):
    all_rows, first = Shared.apply(x * 2)
    with torch.no_grad():
        all_rows.zero_()
    return (first * w[0]).sum()


def write_into_a_view(x, w):
    turned = Turned.apply(x)
    turned.mul_(2)
    return (turned * w).sum()


def under_autocast(x, w):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return Linear.apply(x.float(), w.float()).float().sum()


BROKEN = {
    "asks for the mode": lambda x, w: Asking.apply(x).sum(),
    "autocast": under_autocast,
    "a turned result that is returned": lambda x, w: Turned.apply(x),
    "branches": lambda x, w: (Branching.apply(x) * w).sum(),
    "writes": lambda x, w: (Writing.apply(x) * w).sum(),
    "in place": lambda x, w: InPlace.apply(x * 1).tanh().sum(),
    "other shape": lambda x, w: OtherShape.apply(x) * 2,
    "draws": lambda x, w: (Drawing.apply(x) * w).sum(),
    "too many": lambda x, w: TooMany.apply(x).sum(),
    "a view that is returned": lambda x, w: Reversed.apply(x * 2, 0.3),
}


def arguments():
    torch.manual_seed(0)
    return [torch.randn(6, 6, dtype=torch.float64, requires_grad=True) for _ in range(2)]


def results_of(function, order):
    """The results, what torch says of them, and the derivatives of their sum; the error in the place of what it prevents."""
    x, w = arguments()
    DONE.clear()
    found = []
    try:
        results = function(x, w)
        results = results if isinstance(results, tuple) else (results,)
        found += [result.detach().clone() for result in results]
        found += [(result.requires_grad, result.stride(), result.is_leaf) for result in results]
        total = sum(result.sum() for result in results)
        if order == 1:
            total.backward()
            found += [x.grad, w.grad]
        else:
            first = torch.autograd.grad(total, (x, w), create_graph=True, allow_unused=True)
            found += [gradient if gradient is None else gradient.detach().clone() for gradient in first]
            found += [gradient is not None and gradient.requires_grad for gradient in first]
            again = sum((gradient * gradient).sum() for gradient in first if gradient is not None)
            found += torch.autograd.grad(again, (x, w), allow_unused=True)
    except RuntimeError as error:
        found.append(str(error))
    return found + [len(DONE)]


def check(function, order):
    expected = results_of(function, order)
    compiled = framejit.compile(function)
    for _ in range(2):
        found = results_of(compiled, order)
        assert len(found) == len(expected)
        for new, old in zip(found, expected):
            if isinstance(old, torch.Tensor):
                np.testing.assert_allclose(new.detach(), old.detach(), rtol=1e-10, atol=1e-12, err_msg=str(new.dtype))
            else:
                assert new == old


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("name", WHOLE)
def test_a_function_with_a_derivative_is_part_of_the_graph(name, order):
    check(WHOLE[name], order)
    report = framejit.explain(WHOLE[name])(*arguments())
    assert len(report.breaks) == 0 and len(report.graphs) == 1


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("name", BROKEN)
def test_what_a_derivative_does_beside_computing_is_left_to_torch(name, order):
    check(BROKEN[name], order)
    assert len(framejit.explain(BROKEN[name])(*arguments()).breaks) > 0


@pytest.mark.parametrize("function", [written_behind, write_into_a_view])
def test_what_torch_refuses_is_refused(function):
    assert "view" in results_of(function, 1)[-2]
    check(function, 1)


def test_a_write_into_what_is_shown():
    def f(x, w):
        h = x * 2
        y = ReversedItself.apply(h)
        h.add_(1)
        return (y * w).sum()

    check(f, 1)


def test_no_gradient_is_recorded():
    @framejit.compile
    def f(x):
        with torch.no_grad():
            return Square.apply(x, 2.0)

    x, _ = arguments()
    result = f(x)
    assert not result.requires_grad
    np.testing.assert_array_equal(result, Square.apply(x, 2.0).detach())


def test_sizes_that_vary():
    compiled = framejit.compile(lambda x, w: Swish.apply(x @ w).sum())
    for rows in (2, 5, 9, 33):
        x, w = torch.randn(rows, 6, requires_grad=True), torch.randn(6, 6)
        compiled(x, w).backward()
        found, x.grad = x.grad, None
        Swish.apply(x @ w).sum().backward()
        torch.testing.assert_close(found, x.grad)


def test_a_module_trains_as_torch_trains_it():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = torch.nn.Linear(6, 16), torch.nn.Linear(16, 3)

        def forward(self, x):
            return self.second(Reversed.apply(Swish.apply(self.first(x)), -1.0))

    torch.manual_seed(1)
    model, data = Model(), torch.randn(20, 6)
    other = Model()
    other.load_state_dict(model.state_dict())
    compiled = framejit.compile(model)
    for net, call in ((model, compiled), (other, other)):
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        for _ in range(5):
            optimizer.zero_grad()
            call(data).pow(2).mean().backward()
            optimizer.step()
    for new, old in zip(model.parameters(), other.parameters()):
        torch.testing.assert_close(new, old)
