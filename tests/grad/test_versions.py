"""What of a gradient's way shows: how often torch wrote into it in place (`_version`), which views it lets nobody write into, what it leaves to be derived."""
import functools

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import framejit  # noqa: E402
from torch.nn import functional as F  # noqa: E402

LOSSES = {
    "square": lambda x, w: (x * x).sum(),
    "cube": lambda x, w: (x * x * x).sum(),
    "twice the same": lambda x, w: (x + x).sum(),
    "two ways": lambda x, w: (x.exp() * x + w).sum(),
    "three ways": lambda x, w: (x * x * x + x.exp() + w * w).sum(),
    "a repeated gradient": lambda x, w: x.sum() + w.mean(),
    "a gradient of two": lambda x, w: ((x + w) * 3).sum(),
    "a repeated gradient of two": lambda x, w: (x + w + x).sum(),
    "passed on": lambda x, w: ((x + 1) * 2 + w * x).sum(),
    "a product": lambda x, w: (F.linear(x, w) + x).sum(),
    "itself": lambda x, w: (x.reshape(-1) * w.reshape(-1)).sum() + x.t().exp().sum(),
    "views": lambda x, w: (x.reshape(-1) * 2).sum() + (x.reshape(-1) * 3).sum() + (w.t() * w.t()).sum(),
    "products": lambda x, w: (torch.ones(2, 3, 4) @ x).sum() + (torch.ones(2, 3, 4) @ x).sum() + F.linear(x, w).sum(),
    "softmax": lambda x, w: (F.softmax(x * w, -1) * x).sum(),
    "vectors": lambda x, w: x.view(-1) @ w.view(-1) + x.view(-1) @ x.view(-1),
    "a part of a sum": lambda x, w: x.sum() / 4 + w.sum(0).sum() * 2,
    "functions of several operations": lambda x, w: F.leaky_relu(x).sum() + w.square().sum() + F.rms_norm(x, (4,)).sum(),
    "means": lambda x, w: x.mean() + x.mean() + w.mean(1, keepdim=True).sum() + (w.mean(0) ** 2).mean(),
}
# of one leaf, a vector
PRODUCTS = {
    "of itself": lambda x, w: x @ x,
    "dot": lambda x, w: torch.mv(w, x).sum() + torch.dot(x, x),
    "matrix by vector": lambda x, w: (w @ x).sum() + (w @ x).exp().sum(),
    "vector by matrix": lambda x, w: (x @ w).sum() + (x @ w).exp().sum(),
    "matrices by vector": lambda x, w: (w[None] @ x).sum() + (w[None] @ x).sin().sum(),
    "vector by matrices": lambda x, w: (x @ w[None]).sum() + (x @ w[None]).sin().sum(),
    "column": lambda x, w: (w @ x.view(-1, 1)).sum() + (w @ x.view(-1, 1)).sin().sum(),
    "row": lambda x, w: (x.view(1, -1) @ w).sum() + (x.view(1, -1) @ w).sin().sum(),
}


def leaves():
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(4, 4, generator=generator).requires_grad_() for _ in range(2)]


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
@pytest.mark.parametrize("times", [1, 2])
def test_a_gradient_has_the_version_that_eagers_has(loss, times):
    def step(x, w):
        for _ in range(times):
            loss(x, w).backward()
        return [None if t.grad is None else t.grad._version for t in (x, w)]

    framejit.reset()
    compiled = framejit.compile(step)
    expected = step(*leaves())
    assert [compiled(*leaves()) for _ in range(3)] == [expected] * 3


@pytest.mark.parametrize("loss", [loss for name, loss in LOSSES.items() if name != "a gradient of two"])  # a leaf copies what the next has too
def test_a_gradient_of_torchs_backward_has_the_version_that_eagers_has(loss):
    def versions(function):
        x, w = leaves()
        gradients = torch.autograd.grad(function(x, w), (x, w), allow_unused=True, retain_graph=True)
        function(x, w).backward()
        return [None if g is None else g._version for g in (*gradients, x.grad, w.grad)]

    framejit.reset()
    compiled = framejit.compile(loss)
    assert [versions(compiled) for _ in range(3)] == [versions(loss)] * 3


@pytest.mark.parametrize("product", PRODUCTS.values(), ids=PRODUCTS)
def test_a_gradient_of_a_vector_in_a_product_is_new_memory(product):
    """But where torch makes a matrix of the vector."""
    def grad(x, w):
        return torch.autograd.grad(product(x, w), x)[0]

    def backward(x, w):
        product(x, w).backward()
        return x.grad

    matrix = leaves()[0].detach()
    for function in (grad, backward):
        compiled = framejit.compile(function)
        for _ in range(2):
            expected, found = (call(torch.arange(4.0).requires_grad_(), matrix) for call in (function, compiled))
            torch.testing.assert_close(found, expected)
            assert found._version == expected._version


VIEWS = {
    "sum": lambda x: x.sum(), "a part of a sum": lambda x: x.sum() / 4, "a multiple": lambda x: x.sum() * 3, "rows": lambda x: (x.sum(1) ** 2).sum(),
    "mean": lambda x: x.mean(), "rows' means": lambda x: x.mean(1).sum(), "kept": lambda x: x.mean(0, keepdim=True).sum(), "a mean's part": lambda x: x.mean() / 3,
}


@pytest.mark.parametrize("loss", VIEWS.values(), ids=VIEWS)
def test_a_gradient_is_a_view_where_torchs_is(loss):
    """Of one number, repeated; that of a mean is divided into memory of its own."""
    def grad(x):
        return torch.autograd.grad(loss(x), x)[0]

    def backward(x):
        loss(x).backward()
        return x.grad

    compiled_loss = framejit.compile(loss)
    for function, compiled in ((grad, framejit.compile(grad)), (backward, framejit.compile(backward)),
                               (grad, lambda x: torch.autograd.grad(compiled_loss(x), x)[0])):
        for _ in range(2):
            expected, found = (call(torch.arange(12.0).view(3, 4).requires_grad_()) for call in (function, compiled))
            torch.testing.assert_close(found, expected)
            assert (found._version, found.stride(), found._is_view()) == (expected._version, expected.stride(), expected._is_view())


PASSED_ON = {
    "a sum": lambda x, y: x + 1, "of two": lambda x, y: x + y, "a difference": lambda x, y: x - y, "twice": lambda x, y: 2 - y + x + 1,
    "a sum and a product": lambda x, y: x + y * 2, "of rows": lambda x, y: x + y[0], "a product": lambda x, y: x * 1, "halves": lambda x, y: (x + y).half(),
    "twice the same": lambda x, y: x + x, "a turned one": lambda x, y: (x + y).t(), "rolled by nothing": lambda x, y: x.roll(0, 1) + y, "rolled": lambda x, y: x.roll((1, -1), (1, 0)),
    "a clone": lambda x, y: x.clone() + y, "a clone alone": lambda x, y: (x + y).clone(), "a contiguous clone": lambda x, y: x.clone(memory_format=torch.contiguous_format) - y,
    "a remainder": lambda x, y: torch.fmod(x, 2) + torch.remainder(y, 3), "a fraction": lambda x, y: torch.frac(x - y),
    "several results": lambda x, y: torch.stack([x + y, x * y])[0],
}


@pytest.mark.parametrize("function", PASSED_ON.values(), ids=PASSED_ON)
@pytest.mark.parametrize("create_graph", [False, True])
def test_a_gradient_that_a_sum_hands_on_is_the_tensor_that_arrived(function, create_graph):
    compiled = framejit.compile(function)

    def told(gradient, cotangent):
        # What is computed from a cotangent that isn't contiguous has strides of its own: docs/gradients.md.
        strides = gradient.stride() if gradient is cotangent or cotangent.is_contiguous() else None
        return gradient.tolist(), strides, gradient._version, gradient._is_view(), gradient is cotangent, gradient.requires_grad

    def run(call, cotangent):
        x, y = (torch.arange(12.0).view(3, 4) / n for n in (3, 5))
        x.requires_grad_(), y.requires_grad_()
        result = call(x, y)
        cotangent = cotangent(result)
        first = torch.autograd.grad(result, (x, y), cotangent, create_graph=create_graph, retain_graph=True, allow_unused=True)
        found = [None if gradient is None else told(gradient, cotangent) for gradient in first]
        if not create_graph:
            torch.autograd.backward(result, cotangent)
            told_of_leaves = [None if leaf.grad is None else told(leaf.grad, cotangent) for leaf in (x, y)]
            found += [None if leaf is None else (*leaf[:2], *leaf[3:]) for leaf in told_of_leaves]
        return found

    for cotangent in (torch.ones_like, lambda r: torch.ones_like(r).requires_grad_(), lambda r: torch.ones(r.shape[::-1], dtype=r.dtype).t()):
        for _ in range(2):
            assert run(compiled, cotangent) == run(function, cotangent)


@pytest.mark.parametrize("roll", ["x.roll(1, 0)", "x.roll((1, 2), (0, 1))", "x.roll(-1, 1) * x", "x.roll((1, 1), (1, 1))"])
def test_a_roll_is_derived_as_one_function(roll):
    function = eval(f"lambda x: {roll}")
    compiled = framejit.compile(function)
    weights = torch.arange(12.0).view(3, 4)

    def run(call):
        x = (torch.arange(12.0) / 7).view(3, 4).requires_grad_()
        first, = torch.autograd.grad((call(x) * weights).sum(), x)
        (call(x) * weights).sum().backward()
        made, = torch.autograd.grad((call(x) ** 2 * weights).sum(), x, create_graph=True)
        second, = torch.autograd.grad((made * weights).sum(), x)
        return [(g.tolist(), g.stride(), g._version) for g in (first, x.grad, made, second)]

    for _ in range(2):
        found, expected = run(compiled), run(function)
        torch.testing.assert_close([torch.tensor(g[0]) for g in found], [torch.tensor(g[0]) for g in expected])
        assert [g[1:] for g in found[:3]] == [g[1:] for g in expected[:3]]


def test_what_a_library_call_gives_has_its_version_also_when_it_was_written():
    def f(x):
        whole = F.linear(x[0], x)  # of ints: a call of torch, which squeezes its result in place
        written = F.linear(x[1], x)
        written += 1
        return whole, written

    framejit.reset()
    compiled = framejit.compile(f)
    x = torch.arange(12, dtype=torch.int8).reshape(3, 4)
    expected = f(x)
    for _ in range(3):
        assert [t._version for t in compiled(x)] == [t._version for t in expected] == [1, 2]


def of_a_split(x, w):
    a, b = x.split(2)
    print(end="")
    a.mul_(w)
    return x


def of_a_new_tensor(x, w):
    a, b = (x + 1).unbind(0)[:2]
    print(end="")
    b.mul_(w[0])
    return a


def made_under_no_grad(x, w):
    with torch.no_grad():
        a = x[1:3]
    print(end="")
    a.mul_(w)
    return x


def views_of_views(x, w):
    a = x.chunk(2)[1].t()
    print(end="")
    a.mul_(w.t())
    return x


def returned(x, w):
    return x.split(2)[0]


@pytest.mark.parametrize("function", [of_a_split, of_a_new_tensor, made_under_no_grad, views_of_views, returned])
def test_torch_refuses_writes_into_views_where_nothing_needed_a_gradient(function):
    framejit.reset()
    compiled = framejit.compile(function)

    def error(f):
        with pytest.raises(RuntimeError) as raised:
            f(torch.ones(4, 3), torch.ones(2, 3, requires_grad=True)).mul_(torch.ones(2, 3, requires_grad=True))
        return str(raised.value)

    assert [error(compiled) for _ in range(3)] == [error(function)] * 3


def test_views_that_one_call_returns_are_views_of_what_was_given():
    compiled = framejit.compile(lambda x: x.unbind(0))
    x = torch.arange(40.0).reshape(10, 4).clone()
    for _ in range(3):
        made = compiled(x)
    assert [t.tolist() for t in made] == x.tolist() and all(t._base is x for t in made)
    made[3][0] = 100
    assert x[3, 0] == 100


@pytest.mark.parametrize("name", ["cummax", "cummin"])
def test_a_running_maximum_of_no_elements_has_a_derivative(name):
    framejit.reset()
    compiled = framejit.compile(lambda x: getattr(x, name)(0)[0])
    for _ in range(2):
        x = torch.empty(0, requires_grad=True)
        compiled(x).sum().backward()
        assert x.grad.shape == (0,) and not x.grad.requires_grad and x.grad is not x


@pytest.mark.parametrize("inside", [False, True])
def test_a_gradient_that_repeats_elements_is_a_view_of_the_smaller_one(inside):
    def gradients(function, x, w):
        made = torch.autograd.grad(function(x, w), (x, w))
        return [(g.tolist(), g.stride(), g._version, g._is_view(), g._base is None) for g in made]

    def loss(x, w):
        return (x.sum(0) * 2).sum() + w.sum(1, keepdim=True).exp().sum()

    framejit.reset()
    expected = gradients(loss, *leaves())
    compiled = framejit.compile(loss)
    if inside:
        def derived(x, w):
            return torch.autograd.grad(loss(x, w), (x, w))

        framejit.reset()
        compiled = framejit.compile(derived)
        for _ in range(3):
            made = compiled(*leaves())
            assert [g.stride() for g in made] == [stride for _, stride, *_ in expected]
            for gradient, (values, *_) in zip(made, expected):
                torch.testing.assert_close(gradient, torch.tensor(values))
        return
    for _ in range(3):
        for ours, eagers in zip(gradients(compiled, *leaves()), expected):
            torch.testing.assert_close(torch.tensor(ours[0]), torch.tensor(eagers[0]))
            assert ours[1:] == eagers[1:]


@pytest.mark.parametrize("activation", [F.relu, lambda x: F.threshold(x, 0.1, 0.0), lambda x: torch.relu(1 - x)])
def test_a_second_derivative_reaches_what_an_activation_was_cut_off_by(activation):
    """By zeros: a penalty on gradients gives every bias a gradient, which decays and counts as one in optimisers."""

    def observe(function):
        x, w = leaves()
        gradient, = torch.autograd.grad(function(x @ w + w[0]).sum(), x, create_graph=True)
        gradient.square().sum().backward()
        return [x.grad, w.grad, *torch.autograd.grad(function(x).sum(), x, create_graph=True)[0].requires_grad * [torch.ones(())]]

    framejit.reset()
    compiled = framejit.compile(activation)
    expected = observe(activation)
    assert expected[0].tolist() == torch.zeros(4, 4).tolist() and len(expected) == 3
    for _ in range(3):
        torch.testing.assert_close(observe(compiled), expected)


@pytest.mark.parametrize("write", ["y[...] = y", "y[0] = y[0]", "y[:, 1:] = y[:, 1:]"])
@pytest.mark.parametrize("function", ["relu", "exp", "tanh", "neg"])
def test_a_write_of_a_tensor_into_itself_is_a_write(function, write):
    """torch refuses the derivative of a function that has saved its result, though what it reads is what was there."""
    namespace = {"torch": torch}
    exec(f"def f(x):\n    y = torch.{function}(x)\n    {write}\n    return y", namespace)
    framejit.reset()
    seen = []
    for run in (namespace["f"], framejit.compile(namespace["f"])):
        x = torch.linspace(-1, 1, 12).reshape(3, 4).requires_grad_()
        y = run(x)
        try:
            y.sum().backward()
            seen.append((y._version, x.grad.tolist()))
        except RuntimeError as error:
            seen.append((y._version, "modified by an inplace operation" in str(error)))
    assert seen[0] == seen[1]


@pytest.mark.parametrize("f", [lambda y: (y[1:2].cumsum(0) * -1.0)[:, :2], lambda y: (y.cumsum(0) * -1.0)[:, :2], lambda y: (y[:, 2:3].cumsum(-1) * -1.0)[:2]])
def test_the_sums_of_one_element_hand_on_the_sign_of_a_zero(f):
    seen = []
    for run in (f, framejit.compile(f)):
        y = torch.linspace(-1, 1, 12).reshape(3, 4).requires_grad_()
        run(y).sum().backward()
        seen.append(torch.signbit(y.grad))
    assert torch.equal(*seen)


def test_several_gradients_are_one_tensor_where_torchs_are():
    """Who writes into one of them writes into the others."""
    def inside(x, y):
        first, second = torch.autograd.grad((x + y).exp().sum(), (x, y))
        first.mul_(2)
        return first, second

    def of_the_cotangent(x, y):
        (gradient,) = torch.autograd.grad(x.clone(), x, y.detach())
        gradient.add_(1)
        return gradient, y

    sums = framejit.compile(lambda x, y: (x + y).exp())

    def outside(x, y, function=sums):
        first, second = torch.autograd.grad(function(x, y), (x, y), torch.ones_like(x))
        return first, first is second

    eager_outside = functools.partial(outside, function=sums.__wrapped__)
    for function, compiled in ((inside, framejit.compile(inside)), (of_the_cotangent, framejit.compile(of_the_cotangent)),
                               (eager_outside, outside)):
        for _ in range(2):
            told = [call(*(torch.arange(6.0).view(2, 3).requires_grad_() for _ in range(2))) for call in (function, compiled)]
            torch.testing.assert_close(told[1], told[0])
