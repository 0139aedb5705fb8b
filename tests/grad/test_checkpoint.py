"""framejit.checkpoint, and torch.utils.checkpoint in compiled code: what eager gives, and fewer bytes kept between forward and backward."""
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
import torch.nn.functional as F  # noqa: E402
from torch.utils.checkpoint import checkpoint as of_torch  # noqa: E402
from torch.utils.checkpoint import checkpoint_sequential  # noqa: E402

import framejit  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


class Block(torch.nn.Module):
    def __init__(self, width, dropout):
        super().__init__()
        self.inner, self.outer, self.dropout = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width), torch.nn.Dropout(dropout)

    def forward(self, x):
        return x + self.dropout(self.outer(F.gelu(self.inner(x))))


class Stack(torch.nn.Module):
    """Six layers, each called by `call`."""

    def __init__(self, call, make=lambda: Block(16, 0.0), count=6):
        super().__init__()
        torch.manual_seed(3)
        self.blocks, self.call = torch.nn.ModuleList(make() for _ in range(count)), call

    def forward(self, x):
        for block in self.blocks:
            x = self.call(block, x)
        return x.square().mean()


def plain(function, *args):
    return function(*args)


def ours(function, *args):
    return framejit.checkpoint(function)(*args)


def theirs(function, *args):
    return of_torch(function, *args, use_reentrant=False)


def reentrant(function, *args):
    return of_torch(function, *args, use_reentrant=True, preserve_rng_state=True)


CALLS = [ours, theirs, reentrant]


def breaks(compiled):
    return framejit.explain(compiled).so_far().breaks


def nodes_of(result):
    nodes, open_nodes = set(), [result.grad_fn]
    while open_nodes:
        node = open_nodes.pop()
        if node is not None and node not in nodes:
            nodes.add(node)
            open_nodes.extend(following for following, _ in node.next_functions)
    return nodes


def bytes_saved(result, given):
    """What the graph of the result holds besides tensors that are there anyway."""
    there = {tensor.untyped_storage().data_ptr() for tensor in given}
    saved = {}
    for node in nodes_of(result):
        for tensor in getattr(node, "saved_tensors", ()):
            saved[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
    return sum(size for place, size in saved.items() if place not in there)


def trained(model, x, compiled=None):
    """The loss, and the gradients of the argument and the parameters."""
    torch.manual_seed(7)
    x = x.clone().requires_grad_()
    loss = (compiled or model)(x)
    loss.backward()
    found = [loss.detach(), x.grad] + [parameter.grad for parameter in model.parameters()]
    model.zero_grad()
    return found


def same(found, expected):
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("dropout", [0.0, 0.25])
def test_a_stack_of_layers_has_eager_s_gradients(call, dropout):
    x = torch.randn(8, 16, generator=torch.Generator().manual_seed(1))
    model, eager = Stack(call, lambda: Block(16, dropout)), Stack(call, lambda: Block(16, dropout))
    compiled = framejit.compile(model)
    for _ in range(2):
        same(trained(model, x, compiled), trained(eager, x))
    assert not breaks(compiled)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("dropout", [0.0, 0.25])
def test_fewer_bytes_are_saved(call, dropout):
    x = torch.randn(64, 16, requires_grad=True)

    def saved(call):
        model = Stack(call, lambda: Block(16, dropout))
        return bytes_saved(framejit.compile(model)(x), [x, *model.parameters()])

    drawn = 6 * 64 * 16 * 4 if dropout else 0
    # x of each block but the first, and the last result; without a checkpoint what gelu is computed from as well.
    assert saved(call) <= 6 * 64 * 16 * 4 + drawn + 64
    assert saved(call) <= saved(plain) / 2


@pytest.mark.parametrize("call", CALLS)
def test_what_a_library_call_gives_stays_saved(call):
    def make():
        return torch.nn.Sequential(torch.nn.Conv2d(3, 3, 3, padding=1), torch.nn.GELU(), torch.nn.Linear(8, 8), torch.nn.Tanh())

    x = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    model = Stack(call, make)
    compiled = framejit.compile(model)
    same(trained(model, x, compiled), trained(Stack(call, make), x))
    assert not breaks(compiled)
    there = [x, *model.parameters()]
    assert bytes_saved(compiled(x), there) < bytes_saved(framejit.compile(Stack(plain, make))(x), there)


@pytest.mark.parametrize("call", [ours, theirs])
def test_second_derivatives(call):
    def f(x, w):
        return call(lambda x: torch.tanh(x @ w).sin() @ w, x).square().sum()

    def seconds(f):
        x = torch.linspace(-1, 1, 12, dtype=torch.float64).reshape(3, 4).requires_grad_()
        w = torch.eye(4, dtype=torch.float64).add(0.1).requires_grad_()
        first = torch.autograd.grad(f(x, w), (x, w), create_graph=True)
        return [*first, *torch.autograd.grad(sum(part.square().sum() for part in first), (x, w))]

    compiled = framejit.compile(f)
    same(seconds(compiled), seconds(f))
    assert not breaks(compiled)


def test_checkpoints_stand_in_each_other():
    def pair(x, first, second):
        return ours(second, ours(first, x)) * 2

    class Pairs(torch.nn.Module):
        def __init__(self, call):
            super().__init__()
            torch.manual_seed(3)
            self.blocks, self.call = torch.nn.ModuleList(Block(16, 0.1) for _ in range(6)), call

        def forward(self, x):
            for i in range(0, 6, 2):
                x = self.call(pair, x, self.blocks[i], self.blocks[i + 1])
            return x.square().mean()

    x = torch.randn(32, 16, generator=torch.Generator().manual_seed(1))
    model = Pairs(ours)
    compiled = framejit.compile(model)
    same(trained(model, x, compiled), trained(Pairs(plain), x))
    assert not breaks(compiled)
    of_pairs, of_each = (bytes_saved(framejit.compile(Pairs(call))(x.requires_grad_()), [x]) for call in (ours, plain))
    assert of_pairs < of_each


@pytest.mark.parametrize("call", CALLS)
def test_a_function_that_writes_is_called_by_torch(call):
    def make():
        return torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.BatchNorm1d(16))  # its statistics are written twice

    x = torch.randn(8, 16, generator=torch.Generator().manual_seed(1))
    model, eager = Stack(call, make), Stack(call, make)
    same(trained(model, x, framejit.compile(model)), trained(eager, x))
    same(list(model.buffers()), list(eager.buffers()))


@pytest.mark.parametrize("options", [
    {"use_reentrant": False, "preserve_rng_state": False}, {"use_reentrant": False, "debug": True}, {"use_reentrant": False, "determinism_check": "none"}, {},
    {"use_reentrant": False, "early_stop": False}, {"use_reentrant": False, "context_fn": lambda: (warnings.catch_warnings(), warnings.catch_warnings())}])
def test_options(options):
    def call(function, x):
        return of_torch(function, x, **options)

    x = torch.randn(8, 16, generator=torch.Generator().manual_seed(1))
    model = Stack(call, count=2)
    same(trained(model, x, framejit.compile(model)), trained(Stack(call, count=2), x))


def test_a_reentrant_checkpoint_of_parameters_alone_has_no_gradient():
    def f(x):
        return reentrant(lambda x: x @ w, x)

    w = torch.ones(3, 3, requires_grad=True)
    assert f(torch.ones(3)).requires_grad is framejit.compile(f)(torch.ones(3)).requires_grad is False


def test_checkpoint_sequential():
    layers = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh()) for _ in range(6)])

    def f(x):
        # A list: once torch.compile has been used in the process, torch watches modules, and memos of them (children()) break.
        return checkpoint_sequential(list(layers), 3, x, use_reentrant=False).sum()

    compiled, x = framejit.compile(f), torch.randn(4, 8)
    same(trained(layers, x, compiled), trained(layers, x, f))
    assert not breaks(compiled)


def test_keywords_structures_and_views():
    @framejit.checkpoint
    def f(pair, *, scale):
        """What it does."""
        h = torch.tanh(pair["a"] @ pair["b"]) * scale
        return {"h": h, "view": h.mT[1:], "number": 3}

    def g(a, b):
        found = f({"a": a, "b": b}, scale=2)
        return (found["view"].sin().sum() + found["h"].sum()) * found["number"], found["h"]

    def gradients(g):
        a, b = torch.linspace(-1, 1, 12).reshape(3, 4).requires_grad_(), torch.linspace(0, 1, 12).reshape(4, 3).requires_grad_()
        loss, h = g(a, b)
        (loss + h.square().sum()).backward()
        return [loss, h, a.grad, b.grad]

    assert f.__name__ == "f" and f.__doc__ == "What it does."
    same(gradients(framejit.compile(g)), gradients(g))


def test_a_break_inside_leaves_the_call_to_torch():
    def block(x):
        framejit.graph_break()
        return torch.tanh(x) * x

    for call in CALLS:
        model, eager = Stack(call, lambda: torch.nn.Linear(16, 16), 1), Stack(call, lambda: torch.nn.Linear(16, 16), 1)

        def f(x, model=model, call=call):
            return call(block, model(x) * x).sum()

        def g(x, eager=eager, call=call):
            return call(block, eager(x) * x).sum()

        x = torch.randn(8, 16, generator=torch.Generator().manual_seed(1))
        same(trained(model, x, framejit.compile(f)), trained(eager, x, g))


def test_an_exception_inside_is_the_function_s():
    def block(x):
        raise KeyError("mine")

    for call in CALLS:
        with pytest.raises(KeyError, match="mine"):
            framejit.compile(lambda x, call=call: call(block, x))(torch.ones(3, requires_grad=True))


def test_a_step_in_compiled_code():
    def step(model, x):
        loss = model(x)
        loss.backward()
        return loss

    x = torch.randn(8, 16, generator=torch.Generator().manual_seed(1))
    for call in (ours, theirs):
        model, eager = Stack(call), Stack(call)
        losses = [framejit.compile(step)(model, x), step(eager, x)]
        same([losses[0], *[p.grad for p in model.parameters()]], [losses[1], *[p.grad for p in eager.parameters()]])


# ---- NumPy


def layer(x, w):
    return np.tanh(np.tanh(x @ w) @ w) * np.exp(-x * x)


def deep(call):
    def f(x, w):
        for _ in range(4):
            x = call(layer, x, w)
        return np.sum(x * x)
    return f


X, W = np.linspace(-1, 1, 12).reshape(4, 3), np.linspace(-0.5, 0.7, 9).reshape(3, 3)


def test_derivatives_of_numpy_code():
    f, g = deep(ours), deep(plain)
    assert f(X, W) == g(X, W) and framejit.compile(f)(X, W) == pytest.approx(g(X, W))
    for derive in (framejit.grad, framejit.value_and_grad, framejit.jacobian, framejit.hessian):
        for a, b in zip(derive(f, (0, 1))(X, W), derive(g, (0, 1))(X, W), strict=True):
            for part, expected in zip(*((a, b) if isinstance(a, tuple) else ((a,), (b,))), strict=True):
                np.testing.assert_allclose(part, expected, rtol=1e-9, atol=1e-12)
    for a, b in zip(framejit.jvp(f, (X, W), (X, W)), framejit.jvp(g, (X, W), (X, W)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9)
    np.testing.assert_allclose(framejit.vmap(framejit.grad(f), (0, None))(X, W), framejit.vmap(framejit.grad(g), (0, None))(X, W), rtol=1e-9)
    np.testing.assert_allclose(framejit.grad(framejit.checkpoint(g))(X, W), framejit.grad(g)(X, W), rtol=1e-9)


def test_a_pullback_computes_again():
    pullbacks = [framejit.vjp(deep(call), X, W)[1] for call in (ours, plain)]
    for a, b in zip(*[pullback(1.0) for pullback in pullbacks], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9)
    sizes = [sum(array.nbytes for array in dict(zip(p.__code__.co_freevars, [c.cell_contents for c in p.__closure__]))["saved"]) for p in pullbacks]
    assert sizes[0] < sizes[1]


@pytest.mark.parametrize("wrong", [3, None, np.ones(2)])
def test_what_is_no_function_is_an_error(wrong):
    with pytest.raises(TypeError, match="framejit.checkpoint takes a callable"):
        framejit.checkpoint(wrong)


@pytest.mark.parametrize("write", [lambda h: h.add_(1), lambda h: h.relu_(), lambda h: h.mul_(2)], ids=["add", "relu", "mul"])
@pytest.mark.parametrize("reentrant", [False, True, None])
def test_a_result_that_is_written(write, reentrant):
    inner = lambda t: torch.relu(t @ t).exp()  # noqa: E731

    def f(x):
        h = framejit.checkpoint(inner)(x * 1) if reentrant is None else of_torch(inner, x * 1, use_reentrant=reentrant)
        write(h)
        return h.sum()

    x = torch.randn(4, 4, dtype=torch.float64, requires_grad=True) * 0.3
    for call in (framejit.compile(f),) * 2:
        expected, = torch.autograd.grad(f(x), x) if not reentrant else (gradient_by_backward(f, x),)
        found, = torch.autograd.grad(call(x), x) if not reentrant else (gradient_by_backward(call, x),)
        torch.testing.assert_close(found, expected)


def gradient_by_backward(function, x):
    leaf = x.detach().clone().requires_grad_()
    function(leaf).backward()
    return leaf.grad


def test_a_reentrant_checkpoint_of_a_structure():
    def f(x):
        return of_torch(lambda t: {"a": t * 2}, x, use_reentrant=True)["a"]

    x = torch.randn(3, requires_grad=True)
    assert framejit.compile(f)(x).requires_grad == f(x).requires_grad
