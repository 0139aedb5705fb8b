"""Layers that are made inside of compiled code: their parameters are drawn and used in one graph, as long as nobody else gets to see them."""
import math

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import framejit  # noqa: E402
from torch import nn  # noqa: E402

KEPT = []


def linear(x):
    return torch.relu(nn.Linear(4, 3)(x))


def several(x):
    for width in (5, 4, 4):
        x = torch.tanh(nn.Linear(x.shape[-1], width, bias=width == 4)(x)) + 1
    return x


def convolution(x):
    return nn.Conv1d(1, 2, 3, padding=1)(x[:, None]).flatten(1)


def norm(x):
    return nn.LayerNorm(4)(x) * nn.Parameter(torch.full((4,), 2.0))


def embedding(x):
    return nn.Embedding(6, 4)(torch.tensor([1, 2, 5])) * x


def filled(x):
    weight = nn.Parameter(torch.empty(4, 4))
    nn.init.xavier_uniform_(weight)
    with torch.no_grad():
        weight.mul_(2)
        weight.clamp_(-1, 1)
    return x @ weight, weight.requires_grad, isinstance(weight, nn.Parameter), type(weight) is nn.Parameter


def without_gradient(x):
    weight = nn.Parameter(torch.ones(4), requires_grad=False)
    return x * weight, weight.requires_grad, weight.is_leaf


def by_grad(x):
    weight = nn.Parameter(torch.arange(4.0))
    return torch.autograd.grad((x * weight).sin().sum(), weight)[0]


def sequential(x):
    return nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2))(x)


def counted(x):
    layer = nn.Linear(4, 2)
    return layer(x), sum(parameter.numel() for parameter in layer.parameters()), [name for name, _ in layer.named_parameters()]


WHOLE = [linear, several, convolution, norm, embedding, filled, without_gradient, by_grad, sequential, counted]


def kept(x):
    layer = nn.Linear(4, 2)
    KEPT.append(layer)
    return layer(x)


def returned(x):
    layer = nn.Linear(4, 2)
    return layer(x), layer.weight, layer


def the_tensor_it_was_made_of(x):
    data = torch.ones(4)
    weight = nn.Parameter(data)
    with torch.no_grad():
        weight.add_(1)
    return x * weight, data + 0


def the_tensor_written(x):
    data = torch.ones(4)
    weight = nn.Parameter(data)
    data.add_(1)
    return x * weight


def the_tensor_returned(x):
    data = torch.ones(4)
    return x * nn.Parameter(data), data


def of_an_argument(x):
    return nn.Parameter(x.detach()) * x


def of_a_view(x):
    base = torch.zeros(2, 4)
    weight = nn.Parameter(base[1])
    base += 1
    return x * weight


def written_after_use(x):
    weight = nn.Parameter(torch.ones(4))
    y = x * weight
    with torch.no_grad():
        weight.add_(1)
    return y + x * weight


def written_with_history(x):
    weight = nn.Parameter(torch.ones(4))
    weight.add_(x.sum())
    return weight


def by_backward(x):
    layer = nn.Linear(4, 2)
    layer(x).sum().backward()
    return layer.weight.grad, layer.bias.grad


def of_itself_alone(x):
    return nn.Parameter(torch.ones(4)) * 3


def hooked(x):
    weight = nn.Parameter(torch.ones(4))
    seen = []
    weight.register_hook(seen.append)
    y = x * weight
    KEPT.append(seen)
    return y


CUT = [kept, returned, the_tensor_it_was_made_of, the_tensor_written, the_tensor_returned, of_an_argument, of_a_view, written_after_use,
       written_with_history, by_backward, of_itself_alone, hooked]


def flat(value):
    if isinstance(value, (tuple, list)):
        return [item for part in value for item in flat(part)]
    return flat([*value.parameters()]) if isinstance(value, nn.Module) else [value]


def seen(run, requires_grad, recording):
    torch.manual_seed(5)
    KEPT.clear()
    x = torch.linspace(-2, 2, 12).reshape(3, 4).requires_grad_(requires_grad)
    try:
        with torch.set_grad_enabled(recording):
            parts = flat(run(x))
        loss = sum(part.sin().sum() for part in parts if isinstance(part, torch.Tensor) and part.requires_grad)
        if isinstance(loss, torch.Tensor):
            loss.backward()
    except RuntimeError as error:
        return str(error)
    parts += flat([item for item in KEPT if isinstance(item, nn.Module)]) + [item for items in KEPT if isinstance(items, list) for item in items]
    found = [x.grad, torch.get_rng_state()]
    for part in parts:
        if isinstance(part, torch.Tensor):
            found += [part.detach(), part.grad if part.is_leaf else None, part.requires_grad, part.is_leaf, part._version, type(part), part.stride()]
        else:
            found.append(part)
    return found


def check(f, requires_grad, recording):
    framejit.reset()
    compiled = framejit.compile(f)
    expected = seen(f, requires_grad, recording)
    for _ in range(3):
        ours = seen(compiled, requires_grad, recording)
        if isinstance(expected, str):
            assert ours == expected
            continue
        assert len(ours) == len(expected)
        for one, other in zip(ours, expected):
            assert type(one) is type(other)
            if isinstance(one, torch.Tensor):
                torch.testing.assert_close(one, other)
            else:
                assert one == other
    assert framejit.cache_info()["internal_errors"] == 0
    return framejit.explain(compiled).so_far()


@pytest.mark.parametrize("requires_grad, recording", [(True, True), (False, True), (True, False)])
@pytest.mark.parametrize("f", WHOLE)
def test_layers_made_in_forward(f, requires_grad, recording):
    report = check(f, requires_grad, recording)
    raises = f is by_grad and not recording
    of_parameters_alone = recording and not requires_grad and f not in (without_gradient, by_grad)  # the result's history
    if not raises and not of_parameters_alone:
        assert report.breaks == [] and len(report.graphs) == 1, report


@pytest.mark.parametrize("requires_grad, recording", [(True, True), (False, True), (True, False)])
@pytest.mark.parametrize("f", CUT)
def test_parameters_that_others_see_are_torchs_to_make(f, requires_grad, recording):
    check(f, requires_grad, recording)


def test_a_layer_keeps_its_draws_apart_from_others():
    """Two layers of one size draw twice."""
    def f(x):
        return nn.Linear(4, 4)(x) - nn.Linear(4, 4)(x)

    framejit.reset()
    compiled, x = framejit.compile(f), torch.ones(2, 4)
    with torch.no_grad():
        for seed in range(3):
            torch.manual_seed(seed)
            expected = f(x)
            torch.manual_seed(seed)
            torch.testing.assert_close(compiled(x), expected)
            assert float(expected.abs().sum()) > math.ulp(1.0)
