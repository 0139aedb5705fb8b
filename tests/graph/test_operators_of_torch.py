"""framejit.library_function of tensors, and custom operators of torch.library: functions that are one operation of a graph."""
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
import framejit  # noqa: E402

def tanh_of_product():
    @framejit.library_function
    def made(x, w):
        return torch.from_numpy(np.tanh(x.detach().numpy() @ w.detach().numpy()))

    made.result(lambda x, w: x.new_empty(x.shape[0], w.shape[1]))
    return made


def test_tensors():
    made = tanh_of_product()

    def f(x, w):
        return (made(x * 2, w) ** 2).sum()

    x, w = torch.randn(4, 5), torch.randn(5, 3)
    torch.testing.assert_close(framejit.compile(f, fullgraph=True)(x, w), f(x, w))
    torch.testing.assert_close(framejit.vmap(lambda row: made(row[None], w)[0])(x), made(x, w))


def test_tensors_that_require_gradients():
    made = tanh_of_product()

    def f(x, w):
        return (made(x * 2, w) ** 2).sum()

    x, w = torch.randn(4, 5, requires_grad=True), torch.randn(5, 3, requires_grad=True)
    report = framejit.explain(f)(x, w)
    assert any("neither a vjp nor a jvp" in found.text for found in report.breaks)

    @made.vjp
    def vjp(x, w):
        y = made(x, w)

        def back(cotangent):
            slope = cotangent * (1 - y * y)
            return slope @ w.T, x.T @ slope

        return y, back

    expected = torch.autograd.grad((torch.tanh(x * 2 @ w) ** 2).sum(), (x, w))
    for function in (f, framejit.compile(f, fullgraph=True)):
        for new, old in zip(torch.autograd.grad(function(x, w), (x, w)), expected):
            torch.testing.assert_close(new, old)


def test_a_number_among_the_arguments_of_a_derivative():
    @framejit.library_function
    def scaled(x, factor):
        return x.detach() * factor

    scaled.result(lambda x, factor: x)
    scaled.vjp(lambda x, factor: (scaled(x, factor), lambda cotangent: (cotangent * factor, (cotangent * x).sum())))
    x = torch.randn(4, requires_grad=True)
    for function in (lambda x: scaled(x, 3.0), framejit.compile(lambda x: scaled(x, 3.0))):
        gradient, = torch.autograd.grad(function(x).sum(), x)
        torch.testing.assert_close(gradient, torch.full((4,), 3.0))


# ---- custom operators of torch

def sine():
    @torch.library.custom_op("framejit_tests::sine", mutates_args=())
    def sine(x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(np.sin(x.numpy()))

    sine.register_fake(torch.empty_like)
    sine.register_autograd(lambda ctx, cotangent: cotangent * ctx.saved_tensors[0].cos(),
                           setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]))
    return sine


def two():
    @torch.library.custom_op("framejit_tests::two", mutates_args=())
    def two(x: torch.Tensor, y: torch.Tensor, factor: float = 2.0) -> tuple[torch.Tensor, torch.Tensor]:
        return x * y * factor, x + y

    two.register_fake(lambda x, y, factor=2.0: (torch.empty_like(x), torch.empty_like(x)))

    def setup(ctx, inputs, output):
        ctx.save_for_backward(*inputs[:2])
        ctx.factor = inputs[2]

    def backward(ctx, of_product, of_sum):
        x, y = ctx.saved_tensors
        return of_product * y * ctx.factor + torch.tanh(of_sum), of_product * x * ctx.factor + of_sum, None

    two.register_autograd(backward, setup_context=setup)
    return two


def cube():
    """Registered without custom_op: its derivative is known to torch alone."""
    library = torch.library.Library("framejit_tests_2", "FRAGMENT")
    library.define("cube(Tensor x) -> Tensor")
    library.impl("cube", lambda x: x * x * x, "CPU")
    torch.library.register_fake("framejit_tests_2::cube", torch.empty_like, lib=library)
    torch.library.register_autograd("framejit_tests_2::cube", lambda ctx, cotangent: cotangent * 3 * ctx.saved_tensors[0] ** 2,
                                    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]), lib=library)
    return library


OPERATORS = [sine(), two(), cube()]
OF_OPERATORS = {
    "sine": lambda x, w: OPERATORS[0](x @ w).sum(),
    "by its name": lambda x, w: torch.ops.framejit_tests.sine(x @ w).sum(),
    "by its overload": lambda x, w: torch.ops.framejit_tests.sine.default(x @ w).sum(),
    "two results": lambda x, w: sum(part.pow(2).sum() for part in OPERATORS[1](x, w)),
    "by keyword": lambda x, w: sum(part.pow(2).sum() for part in OPERATORS[1](x, y=w, factor=0.5)),
    "torch's own derivative": lambda x, w: torch.ops.framejit_tests_2.cube(x @ w).tanh().sum(),
}


@pytest.mark.parametrize("name", OF_OPERATORS)
def test_custom_operators_are_derived(name):
    function = OF_OPERATORS[name]
    torch.manual_seed(0)
    x, w = torch.randn(6, 6, dtype=torch.float64, requires_grad=True), torch.randn(6, 6, dtype=torch.float64, requires_grad=True)
    compiled = framejit.compile(function, fullgraph=True)
    for call in (compiled, compiled):
        total = call(x, w)
        torch.testing.assert_close(total, function(x, w))
        expected = torch.autograd.grad(function(x, w), (x, w), create_graph=True)
        found = torch.autograd.grad(total, (x, w), create_graph=True)
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(torch.autograd.grad(sum(part.pow(2).sum() for part in found), (x, w)),
                                   torch.autograd.grad(sum(part.pow(2).sum() for part in expected), (x, w)))


def test_an_operator_without_a_derivative():
    @torch.library.custom_op("framejit_tests::underived", mutates_args=())
    def underived(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    underived.register_fake(torch.empty_like)
    x = torch.randn(3, requires_grad=True)
    texts = []
    for call in (underived, framejit.compile(lambda x: underived(x))):
        result = call(x)
        assert result.requires_grad
        with pytest.raises(RuntimeError) as raised:
            result.sum().backward()
        texts.append(str(raised.value))
    assert texts[0] == texts[1]


def test_an_operator_whose_derivative_is_another_operator():
    """As that of a product of experts is, whose loop over them is hidden in two operators."""
    calls = []

    @torch.library.custom_op("framejit_tests::scaled", mutates_args=())
    def scaled(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.stack([row * factor for row, factor in zip(x, w.tolist())])

    @torch.library.custom_op("framejit_tests::scaled_backward", mutates_args=())
    def scaled_backward(x: torch.Tensor, w: torch.Tensor, cotangent: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        calls.append(len(x))
        return cotangent * w[:, None], (cotangent * x).sum(1)

    scaled.register_fake(lambda x, w: torch.empty_like(x))
    scaled_backward.register_fake(lambda x, w, cotangent: (torch.empty_like(x), torch.empty_like(w)))

    def backward(ctx, cotangent):
        return torch.ops.framejit_tests.scaled_backward(*ctx.saved_tensors, cotangent)

    scaled.register_autograd(backward, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs))

    def f(x, w):
        return scaled(x * 2, w).tanh()

    compiled = framejit.compile(f, fullgraph=True)
    for size, needs in ((4, (True, True)), (4, (False, True)), (5, (True, False))):
        x, w = (torch.linspace(-1, 2, size * 3).reshape(size, 3).requires_grad_(needs[0]), torch.linspace(0, 1, size).requires_grad_(needs[1]))
        wanted = [array for array, needed in zip((x, w), needs) if needed]
        for call in (compiled, compiled):
            del calls[:]
            result, expected = call(x, w), f(x, w)
            torch.testing.assert_close(result, expected)
            assert calls == []  # no backward was asked for
            ours, eager = torch.autograd.grad(result.sum(), wanted), torch.autograd.grad(expected.sum(), wanted)
            torch.testing.assert_close(ours, eager)
            assert calls == [size, size]
    x, w = torch.ones(2, 3, requires_grad=True), torch.ones(2, requires_grad=True)
    for call in (f, compiled):  # the other operator has no derivative
        gradient, = torch.autograd.grad(call(x, w).sum(), x, create_graph=True)
        with pytest.raises(RuntimeError, match="no autograd formula was registered|does not require grad"):
            torch.autograd.grad(gradient.sum(), w)


def test_an_operator_that_a_derivative_calls_for_its_effect_alone():
    calls = []

    @torch.library.custom_op("framejit_tests::noted", mutates_args=())
    def noted(x: torch.Tensor) -> torch.Tensor:
        calls.append(len(x))
        return x * 2

    noted.register_fake(torch.empty_like)

    def backward(ctx, cotangent):
        torch.ops.framejit_tests.noted(cotangent)
        return cotangent * 2

    noted.register_autograd(backward)
    x = torch.ones(3, requires_grad=True)
    compiled = framejit.compile(lambda x: noted(x + 1).tanh())
    for _ in range(2):
        del calls[:]
        compiled(x).sum().backward()
        assert calls == [3, 3]


def test_an_operator_that_is_declared_random():
    @torch.library.custom_op("framejit_tests::drawn", mutates_args=(), tags=(torch.Tag.nondeterministic_seeded,))
    def drawn(x: torch.Tensor) -> torch.Tensor:
        return x * torch.rand_like(x)

    drawn.register_fake(torch.empty_like)
    drawn.register_autograd(lambda ctx, cotangent: cotangent * ctx.saved_tensors[0] / ctx.saved_tensors[1],
                            setup_context=lambda ctx, inputs, output: ctx.save_for_backward(output, inputs[0]))
    x = torch.rand(8, requires_grad=True)
    compiled = framejit.compile(lambda x: drawn(x * 2) + drawn(x * 2))
    results = []
    for call in (lambda x: drawn(x * 2) + drawn(x * 2), compiled, compiled):
        torch.manual_seed(3)
        total = call(x)
        results.append((total.detach(), *torch.autograd.grad(total.sum(), x)))
    torch.testing.assert_close(results[1], results[0])
    torch.testing.assert_close(results[2], results[0])
