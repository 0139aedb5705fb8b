"""Functions that torch runs inside a compiled program keep torch's derivative: no break, eager's gradients."""
import copy
import gc

import numpy
import pytest

torch = pytest.importorskip("torch", reason="derivatives of torch's functions need torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import framejit  # noqa: E402

GENERATOR = torch.Generator().manual_seed(3)


def sample(*shape):
    return torch.randn(*shape, generator=GENERATOR)


class Recurrent(nn.Module):
    def __init__(self, cell):
        super().__init__()
        self.cell = cell(5, 7, batch_first=True)

    def forward(self, x):
        out, state = self.cell(x)
        state = state[0] if isinstance(state, tuple) else state
        return out.sum(dim=1) + state.tanh()[0]


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.projection = nn.Linear(8, 24)

    def forward(self, x):
        q, k, v = self.projection(x).chunk(3, dim=-1)
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


class Bags(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.bag = nn.Embedding(11, 6, padding_idx=0), nn.EmbeddingBag(11, 6)

    def forward(self, x):
        return self.words(x).mean(dim=1) * self.bag(x)


MODELS = {
    "conv_net": (lambda: nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 6, 3, stride=2),
                                       nn.GELU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 3)), lambda: sample(5, 1, 12, 12)),
    "conv_same": (lambda: nn.Sequential(nn.Conv1d(3, 4, 3, padding="same", dilation=2), nn.AvgPool1d(2), nn.Tanh()), lambda: sample(2, 3, 16)),
    "conv_grouped": (lambda: nn.Conv2d(4, 8, 3, groups=2, bias=False), lambda: sample(2, 4, 6, 6)),
    "conv_transposed": (lambda: nn.ConvTranspose2d(3, 2, 2, stride=2), lambda: sample(2, 3, 4, 4)),
    "group_norm": (lambda: nn.Sequential(nn.GroupNorm(2, 4), nn.InstanceNorm1d(4, affine=True)), lambda: sample(3, 4, 9)),
    "lstm": (lambda: Recurrent(nn.LSTM), lambda: sample(3, 4, 5)),
    "gru": (lambda: Recurrent(nn.GRU), lambda: sample(3, 4, 5)),
    "attention": (Attention, lambda: sample(2, 6, 8)),
    "embeddings": (Bags, lambda: torch.randint(0, 11, (4, 5), generator=GENERATOR)),
    "upsampled": (lambda: nn.Sequential(nn.Upsample(scale_factor=2, mode="bilinear"), nn.PixelShuffle(2)), lambda: sample(1, 4, 3, 3)),
    "local_response": (lambda: nn.LocalResponseNorm(2), lambda: sample(2, 4, 3, 3)),
    "pairwise": (lambda: nn.Bilinear(3, 3, 2), lambda: (sample(4, 3), sample(4, 3))),
}


def gradients(model, arguments):
    arguments = [a.detach().clone().requires_grad_(a.is_floating_point()) for a in arguments]
    model.zero_grad()
    result = model(*arguments)
    (result * torch.arange(result.numel()).reshape(result.shape).sin()).sum().backward()
    return [result.detach(), *(a.grad for a in arguments if a.requires_grad), *(p.grad for p in model.parameters())]


@pytest.mark.parametrize("name", MODELS)
def test_a_model_with_library_calls_trains_in_one_graph(name):
    make, data = MODELS[name]
    torch.manual_seed(0)
    eager = make()
    model = copy.deepcopy(eager)
    compiled = framejit.compile(model)
    for _ in range(3):
        arguments = data()
        arguments = arguments if isinstance(arguments, tuple) else (arguments,)
        for ours, theirs in zip(gradients(compiled, arguments), gradients(eager, arguments), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    for ours, theirs in zip(model.buffers(), eager.buffers(), strict=True):
        torch.testing.assert_close(ours, theirs)
    report = framejit.explain(compiled).so_far()
    assert not report.breaks and not report.fallbacks and len(report.graphs) == 1, report


def test_the_derivative_has_a_derivative():
    model = nn.Sequential(nn.Conv1d(2, 3, 3), nn.Tanh()).double()
    x = torch.randn(2, 2, 6, dtype=torch.float64, requires_grad=True)

    def penalty(model):
        gradient, = torch.autograd.grad(model(x).square().sum(), x, create_graph=True)
        return torch.autograd.grad(gradient.square().sum(), [x, *model.parameters()])

    for ours, theirs in zip(penalty(framejit.compile(model)), penalty(model), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_other_sizes_and_frozen_weights_are_not_in_the_way():
    eager = nn.Sequential(nn.Conv1d(2, 3, 3), nn.ReLU(), nn.Conv1d(3, 1, 1))
    model = copy.deepcopy(eager)
    compiled = framejit.compile(model)
    for round, size in enumerate((8, 9, 11, 14)):
        for each in (eager, model):
            each[0].weight.requires_grad_(round % 2 == 0)
        arguments = (sample(3, 2, size),)
        for ours, theirs in zip(gradients(compiled, arguments), gradients(eager, arguments), strict=True):
            assert (ours is None) == (theirs is None)
            if ours is not None:
                torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_the_mode_of_autocast_holds_when_it_is_derived():
    eager = nn.Sequential(nn.Conv1d(2, 3, 3), nn.AvgPool1d(2))
    model = copy.deepcopy(eager)
    compiled = framejit.compile(model)
    x = sample(2, 2, 8)
    results = []
    for each in (compiled, eager):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = each(x)
        out.float().square().sum().backward()
        results.append([out, each[0].weight.grad, each[0].bias.grad])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("function", [lambda x, y: torch.einsum("ij,kj->ik", x, y), lambda x, y: torch.einsum("...i,...i->...", x, y)])
def test_a_result_that_is_a_view_of_torch_s_own_may_be_written(function):
    def train(f):
        x, y = (torch.arange(12.0).reshape(3, 4).requires_grad_() for _ in range(2))
        result = f(x, y)
        result.mul_(2)
        result.sum().backward()
        return result._is_view(), result._base.requires_grad, x.grad.tolist(), y.grad.tolist()

    assert train(framejit.compile(function)) == train(function)


SAME_TWICE = {
    "xlogy": lambda x: torch.xlogy(x.abs(), x.abs()),
    "xlogy_views": lambda x: torch.xlogy(x[2], x[2]),
    "xlogy_one_array": lambda x: torch.xlogy(x.abs(), x.abs()) + (lambda y: torch.xlogy(y, y))(x.abs()),
    "logaddexp2": lambda x: torch.logaddexp2(x.exp(), x.exp()),
    "attention": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None]),
    "bilinear": lambda x: F.bilinear(x.abs(), x.abs(), torch.ones(2, 3, 3, dtype=x.dtype)),
    "convolution": lambda x: F.conv1d(x.abs()[None], x.abs()[None]),
    "addr": lambda x: torch.addr(x, x[0], x[1]),
    "addr_same": lambda x: torch.addr(x.exp(), x[0].exp(), x[0].exp()),
}


@pytest.mark.parametrize("name", SAME_TWICE)
def test_operands_that_become_one_array_keep_their_own_gradients(name):
    function = SAME_TWICE[name]
    found = []
    for each in (framejit.compile(function), function):
        x = torch.linspace(-1.0, 1.5, 9, dtype=torch.float64).reshape(3, 3).requires_grad_()
        gradient, = torch.autograd.grad(each(x).sin().sum(), x, create_graph=True)
        found.append((gradient.detach(), *torch.autograd.grad(gradient.pow(2).sum(), x)))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs)
    x = torch.linspace(0.2, 1.5, 9, dtype=torch.float64).reshape(3, 3)
    scalar = lambda x: function(x).sin().sum()  # noqa: E731
    torch.testing.assert_close(framejit.grad(scalar)(x), torch.func.grad(scalar)(x))


def test_batch_norm_in_training_and_pooling_are_loops_of_ours():
    eager = nn.Sequential(nn.BatchNorm2d(3), nn.ReLU(), nn.MaxPool2d(2)).double()
    model = copy.deepcopy(eager)
    compiled = framejit.compile(model)
    x = torch.randn(4, 3, 6, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for _ in range(3):
        compiled(x).square().sum().backward()
        eager(x).square().sum().backward()
    graph, = framejit.explain(compiled).so_far().graphs
    assert "reduce_sum" in str(graph) and "extern_call" not in str(graph)
    for ours, wanted in zip(model.state_dict().values(), eager.state_dict().values()):
        torch.testing.assert_close(ours, wanted)
    for ours, wanted in zip(model.parameters(), eager.parameters()):
        torch.testing.assert_close(ours.grad, wanted.grad)
    info = framejit.cache_info()
    assert (info["graphs"], info["breaks"], info["eager_replays"], info["internal_errors"]) == (1, 0, 0, 0)


LOSSES = ["l1_loss", "smooth_l1_loss", "huber_loss", "mse_loss"]


@pytest.mark.parametrize("needs", [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("name", LOSSES)
def test_a_derivative_that_reads_what_was_made_of_two_operands_has_both(name, needs):
    """torch saves their difference alone: the derivative here is of the function called again, with both."""
    loss = getattr(torch._C._nn, name)
    x, y = torch.tensor([0.5, 0.0, -2.0, 0.01]), torch.tensor([-0.4, 0.1, 0.1, 0.0])
    gradients = []
    for f in (lambda x, y: loss(x, y, 1), framejit.compile(lambda x, y: loss(x, y, 1))):
        given = [tensor.clone().requires_grad_(needed) for tensor, needed in zip((x, y), needs)]
        f(*given).backward()
        gradients.append([tensor.grad for tensor in given])
    for ours, eager in zip(*reversed(gradients)):
        assert (ours is None) == (eager is None) and (eager is None or torch.equal(ours, eager))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_zeros_of_a_squared_difference_have_eager_s_sign(reduction):
    def f(x, y):
        return F.mse_loss(x, y, reduction=reduction).sum()

    values = torch.tensor([0.5, 0.0, -2.0, 3.0])
    gradients = []
    for run in (f, framejit.compile(f)):
        given = [values.clone().requires_grad_(), (values * torch.tensor([1.0, 1.0, 1.0, 2.0])).requires_grad_()]
        gradients.append(torch.autograd.grad(run(*given), given))
    for ours, eager in zip(*reversed(gradients)):
        assert torch.equal(ours, eager) and torch.equal(ours.signbit(), eager.signbit())


def test_an_error_of_a_derivative_is_the_library_s_own():
    def f(x, y):
        return F.huber_loss(x, y)

    errors = []
    for function in (f, framejit.compile(f)):
        x = torch.zeros(3, requires_grad=True)
        loss = function(x, torch.zeros(3, dtype=torch.float16))
        with pytest.raises(RuntimeError) as raised:
            loss.backward()
        errors.append(str(raised.value))
    assert errors[0] == errors[1] == "Found dtype Half but expected Float"


def test_an_argument_may_be_named_self():
    """torch.pow of a number: the parameter's name."""
    x = sample(3).requires_grad_()
    y = framejit.compile(lambda x: torch.pow(self=2.0, exponent=x))(x)
    torch.testing.assert_close(torch.autograd.grad(y.sum(), x), torch.autograd.grad(torch.pow(2.0, x).sum(), x))


@pytest.mark.parametrize("returned", ["the result", "the result and the statistics"])
def test_the_derivative_of_a_call_that_writes_writes_nothing_of_the_user_s(returned):
    """Backward makes the call again, which moves running statistics again: of a copy."""
    def normalised(x):
        mean, var = torch.zeros(3), torch.ones(3)
        y = F.instance_norm(x, mean, var, use_input_stats=True)
        return (y, mean, var) if returned != "the result" else (y,)

    def normalised_in_place(x, mean, var):
        return (F.instance_norm(x, mean, var, use_input_stats=True) * 2,)

    for function, statistics in ((normalised, 0), (normalised_in_place, 2)):
        compiled = framejit.compile(function)
        x = sample(2, 3, 4)
        for _ in range(2):
            found = []
            for call in (function, compiled):
                leaf, given = x.clone().requires_grad_(), [torch.ones(3) for _ in range(statistics)]
                out = call(leaf, *given)
                (out[0] ** 2).sum().backward()
                found.append([leaf.grad, *out[1:], *given])
            for eager, ours in zip(*found):
                torch.testing.assert_close(ours, eager, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("writes", [False, True])
def test_what_a_derivative_reads_of_an_array_of_numpy_is_torch_s_to_save(writes):
    def scaled(x, a):
        if writes:
            a += 1
        return x * torch.from_numpy(a)

    compiled = framejit.compile(scaled)
    for _ in range(2):
        found = []
        for call in (scaled, compiled):
            leaf, array = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True), numpy.array([3.0, 4.0])
            y = call(leaf, array)
            array *= 10  # torch does not know: eager's derivative reads what is there now
            y.sum().backward()
            found.append((y, leaf.grad, array))
        for eager, ours in zip(*found):
            assert eager.tolist() == ours.tolist()


RECORDED = {
    "cdist": (lambda x, y: torch.cdist(x, y).sin(), [(5, 3), (4, 3)]),
    "sdpa": (lambda x, y: F.scaled_dot_product_attention(x, y * 2, y + 1) * 3, [(1, 2, 5, 8), (1, 2, 6, 8)]),
    "of a temporary": (lambda x, y: (torch.cdist(x * 2, y) + 1) * torch.cdist(x * 2, y - 1), [(5, 3), (4, 3)]),
    "several results": (lambda x, y: sum(part.sin().sum() for part in torch.linalg.qr(x @ y)), [(4, 4), (4, 4)]),
    "with numbers": (lambda x, y: torch.renorm(x, 2, 0, 1.0) * torch.cummax(y, 0)[0], [(4, 3), (4, 3)]),
    "one operand twice": (lambda x, y: torch.cdist(x, x + 1) @ y, [(4, 3), (4, 3)]),
    "pooled": (lambda x, y: F.adaptive_avg_pool2d(F.max_pool2d(x, 2), 2) * y, [(2, 3, 8, 8), (2, 3, 2, 2)]),
}


@pytest.mark.parametrize("name", RECORDED)
def test_backward_calls_no_function_again(name, monkeypatch):
    function, shapes = RECORDED[name]
    compiled, leaves = framejit.compile(function), [sample(*shape).double().requires_grad_() for shape in shapes]

    def gradients(call):
        result = call(*leaves)
        return result, torch.autograd.grad((result ** 2).sum(), leaves)

    from framejit._support import autograd

    gradients(compiled)
    monkeypatch.setattr(autograd.Vjp, "_recorded", None)
    for _ in range(2):
        (expected, of_eager), (found, ours) = gradients(function), gradients(compiled)
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(ours, of_eager)
    assert framejit.explain(compiled).so_far().breaks == []


def records():
    return sum(type(item) is torch.Tensor and hasattr(item, "record") for item in gc.get_objects())


def test_a_record_is_gone_with_the_graph():
    compiled, x, y = framejit.compile(lambda x, y: torch.cdist(x, y).sin()), sample(5, 3).requires_grad_(), sample(4, 3)
    for retain in (False, True):
        result = compiled(x, y)
        assert records() == 1
        result.sum().backward(retain_graph=retain)
        assert records() == (1 if retain else 0)
        if retain:
            first, x.grad = x.grad.clone(), None
            result.sum().backward()
            torch.testing.assert_close(x.grad * 2, first)  # the first of both backwards was added
        del result
    assert records() == 0


@pytest.mark.parametrize("changed", [lambda tensor: tensor.clone(), lambda tensor: tensor.numpy().copy()])
def test_hooks_that_keep_something_else_than_the_record(changed):
    def function(x, y):
        return torch.cdist(x * 2, y).sin()

    compiled, x, y = framejit.compile(function), sample(5, 3).requires_grad_(), sample(4, 3).requires_grad_()
    found = []
    for call in (function, compiled):
        with torch.autograd.graph.saved_tensors_hooks(lambda tensor: changed(tensor.detach()), torch.as_tensor):
            result = call(x, y)
        found.append(torch.autograd.grad(result.sum(), (x, y)))
    torch.testing.assert_close(*found)


def test_what_a_record_holds_is_not_written():
    """The function's operand and result are arrays of the program's own, which reads and makes others afterwards."""
    def function(x, y):
        hidden = torch.tanh(x) * 2
        found = F.scaled_dot_product_attention(hidden, y, y)
        later = (hidden + 1) * 3
        return (found * 2 + 1).relu() @ torch.linalg.qr(later)[0].mT + (found - 3).sum() + later.mean()

    compiled, x, y = framejit.compile(function), sample(6, 3).double().requires_grad_(), sample(4, 3).double().requires_grad_()
    for _ in range(3):
        expected, found = (torch.autograd.grad((call(x, y) ** 2).sum(), (x, y), create_graph=True) for call in (function, compiled))
        torch.testing.assert_close(found, expected)
        of_eager, ours = (torch.autograd.grad(sum((part ** 2).sum() for part in first), (x, y)) for first in (expected, found))
        torch.testing.assert_close(ours, of_eager)


COPIES = {
    "clone": lambda x, w: torch.cdist(x.clone(), w),
    "part": lambda x, w: torch.cdist(x[:, :64].clone(), w),
    "other shape": lambda x, w: torch.cdist(x.clone().view(64, 64), w),
    "times one": lambda x, w: torch.cdist(x * 1, w),
    "attention": lambda x, w: F.scaled_dot_product_attention(x.clone()[None, None], w[None, None], w[None, None]),
    "itself": torch.cdist,
}


@pytest.mark.parametrize("size", [8, 64])  # small operands are copied for a library call, large ones are views
@pytest.mark.parametrize("name", COPIES)
def test_a_record_is_of_a_copy_where_eager_makes_one(name, size):
    function = COPIES[name] if size == 64 else {"other shape": lambda x, w: torch.cdist(x.clone().view(8, 8), w)}.get(name, COPIES[name])
    compiled = framejit.compile(function)
    w = sample(size, size).double()
    for untold in (False, True):
        found = []
        for call in (function, compiled, compiled):
            x = torch.ones(size, size, dtype=torch.float64) + torch.arange(size) / 7
            x.requires_grad_()
            result = call(x, w)
            if untold:
                x.detach().numpy()[...] *= 3  # torch does not know
            else:
                with torch.no_grad():
                    x.mul_(3)
            try:
                found.append(torch.autograd.grad(result.sum(), x)[0])
            except RuntimeError as error:
                found.append(str(error).split(":")[0])
        for ours in found[1:]:
            assert (found[0] == ours) if isinstance(found[0], str) else torch.allclose(found[0], ours), (untold, found)


@pytest.mark.parametrize("given_back", [lambda x, w: ((h := x * 2), torch.cdist(h.clone(), w)),
                                        lambda x, w: ((y := torch.cdist(x * 2, w)).clone(), y * 3)])
def test_what_is_returned_may_be_written_where_a_record_is_of_a_copy_of_it(given_back):
    compiled, w = framejit.compile(given_back), sample(64, 64).double()
    found = []
    for call in (given_back, compiled, compiled):
        x = (torch.ones(64, 64, dtype=torch.float64) + torch.arange(64) / 7).requires_grad_()
        first, second = call(x, w)
        with torch.no_grad():
            first.mul_(3)
        found.append(torch.autograd.grad(second.sum(), x)[0])
    for ours in found[1:]:
        torch.testing.assert_close(ours, found[0])


SEVERAL = {
    "qr": lambda x: torch.linalg.qr(x.tanh()),
    "svd": lambda x: torch.linalg.svd(x.tanh(), full_matrices=False),
    "eigh": lambda x: torch.linalg.eigh(x.tanh() + x.tanh().mT),
    "a part of two": lambda x: (torch.linalg.qr(x)[1], x.sin()),
    "one from the other": lambda x: (lambda q, r: (q @ r.sin(), r, r.sum()))(*torch.linalg.qr(x)),
    "returned and read": lambda x: (lambda q, r: (q, r, (q * r).sum(), r.exp()))(*torch.linalg.qr(x)),
}


@pytest.mark.parametrize("chosen", [slice(None), slice(0, 1), slice(1, 2), slice(1, None)], ids=str)
@pytest.mark.parametrize("name", SEVERAL)
def test_several_results_of_one_call_are_derived_together(name, chosen):
    """By any of them, also one after another and for second derivatives."""
    run = SEVERAL[name]
    framejit.reset()
    compiled, seen = framejit.compile(run), []
    for function in (run, compiled, compiled):
        x = torch.randn(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(4)).requires_grad_()
        parts = [part for part in function(x) if part.requires_grad][chosen]
        if not parts:
            pytest.skip("this result requires no gradient")
        loss = sum((part * weight).sin().sum() for weight, part in enumerate(parts, 1))
        first, = torch.autograd.grad(loss, x, create_graph=True)
        second, = torch.autograd.grad(first.sin().sum(), x, retain_graph=True)
        each = [torch.autograd.grad(part.sum(), x, retain_graph=True)[0] for part in parts]
        loss.backward()
        with pytest.raises(RuntimeError, match="second time"):
            parts[0].sum().backward()
        # The derivative of qr writes into what it gives.
        seen.append([first.detach(), second, *each, x.grad, torch.tensor(x.grad._version if name in ("svd", "eigh") else 0)])
    assert framejit.cache_info()["internal_errors"] == 0
    for found in seen[1:]:
        for ours, eager in zip(found, seen[0], strict=True):
            torch.testing.assert_close(ours, eager)


@pytest.mark.parametrize("inside", [False, True])
def test_layers_call_torchs_derivative_once(inside, monkeypatch):
    """Of an encoder that hands on its steps and its last state."""
    from framejit._support import autograd
    calls, vjp = [], autograd.Vjp.__call__
    monkeypatch.setattr(autograd.Vjp, "__call__", lambda self, *given, **named: calls.append(self.results) or vjp(self, *given, **named))
    torch.manual_seed(0)
    layers = torch.nn.LSTM(3, 4, batch_first=True)

    def loss(parts):
        out, (h, c) = parts
        return out.sin().sum() + (h * c).sum()

    def step(x):
        return loss(layers(x)) if inside else layers(x)

    framejit.reset()
    compiled, seen = framejit.compile(step), []
    for function in (step, compiled):
        calls.clear()
        layers.zero_grad()
        x = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(1)).requires_grad_()
        (function(x) if inside else loss(function(x))).backward()
        seen.append([x.grad, *(parameter.grad for parameter in layers.parameters())])
    torch.testing.assert_close(seen[1], seen[0])
    assert calls == [(0, 1, 2)]


def test_a_result_that_is_derived_beside_another_alone_is_torchs():
    """native_group_norm's statistics have a derivative where two of its results have a cotangent."""
    def f(x):
        return torch.native_group_norm(x, None, None, 2, 6, 3, 2, 1e-5)

    x, cotangents = sample(2, 6, 3).requires_grad_(), (sample(2, 6, 3), sample(2, 2), sample(2, 2))
    compiled = framejit.compile(f)
    for chosen in ([0], [1], [0, 1], [1, 2], [0, 1, 2]):
        told = []
        for call in (f, compiled):
            results = call(x)
            told.append(torch.autograd.grad([results[i] for i in chosen], x, [cotangents[i] for i in chosen], allow_unused=True)[0])
        assert (told[0] is None) == (told[1] is None)
        if told[0] is not None:
            torch.testing.assert_close(told[1], told[0])


@pytest.mark.parametrize("numbers", [(1, 0, 3, 2, -1), (0, 1, 2, 4), (2, 3, 0, 1), (-1, -2, 2, 1, 0)], ids=str)
@pytest.mark.parametrize("function", [torch.linalg.matrix_power, lambda x, n: torch.dist(x, x.detach() * 2, n), lambda x, n: torch.vander(x[0], n),
                                      lambda x, n: F.pairwise_distance(x, x.detach() * 2, p=n)], ids=["matrix_power", "dist", "vander", "pairwise_distance"])
def test_an_int_that_decides_how_torch_derives_is_guarded(function, numbers):
    """A power of 1 is a copy and a distance of order 0 has no derivative: what they read was taken to be so of other numbers too."""
    compiled = framejit.compile(lambda x, n: function(x, n))
    for n in numbers:
        outcomes = []
        for run in (function, compiled):
            x = torch.tensor([[2., 1], [.5, 3]], dtype=torch.float64, requires_grad=True)
            try:
                y = run(x, n)
                outcomes.append((y.detach(), y.requires_grad and torch.autograd.grad(y.sum(), x, allow_unused=True)[0]))
            except RuntimeError as error:  # vander has no derivative of some
                outcomes.append(type(error))
        eager, ours = outcomes
        assert type(ours) is type(eager)
        if isinstance(eager, tuple):
            torch.testing.assert_close(ours[0], eager[0])
            if isinstance(eager[1], torch.Tensor):
                torch.testing.assert_close(ours[1], eager[1])
            else:
                assert ours[1] is eager[1]  # False or None


def test_a_size_of_nothing_says_nothing_of_the_derivative_of_others():
    def f(a, tau, b):
        return torch.ormqr(a, tau, b)

    compiled = framejit.compile(f)
    for reflectors in (2, 0, 3):
        gradients = []
        for run in (f, compiled):
            torch.manual_seed(reflectors)
            leaves = [torch.randn(4, reflectors, requires_grad=True), torch.randn(reflectors, requires_grad=True), torch.randn(4, 4, requires_grad=True)]
            gradients.append(torch.autograd.grad(run(*leaves).sum(), leaves, allow_unused=True))
        for eager, ours in zip(*gradients, strict=True):
            assert (ours is None) == (eager is None), reflectors
            if eager is not None:
                torch.testing.assert_close(ours, eager)


def test_results_without_a_derivative_of_a_call_that_writes_have_none():
    def f(x, mean, variance):
        return torch.native_batch_norm(x, None, None, mean, variance, True, 0.5, 0.1)

    for run in (f, framejit.compile(f)):
        x = torch.arange(12., requires_grad=True).reshape(2, 2, 3)
        assert [result.requires_grad for result in run(x, torch.zeros(2), torch.ones(2))] == [True, False, False]
