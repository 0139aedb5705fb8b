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
