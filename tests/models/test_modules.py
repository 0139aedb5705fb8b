"""Modules of torch.nn as people use them: containers, hooks, parametrisations, shared parameters, recurrent networks, training mode.

Each is run compiled and eagerly on equal copies with the same seed; results, state_dict and the generator must agree.
"""
import copy

import pytest

import framejit
from harness import Outcome, assert_same, compare, torch

if torch is None:
    pytest.skip("torch is not installed in this environment", allow_module_level=True)

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402


def agree(module, *arguments, calls=2, breaks=(), graphs=1):
    """Report of `module`'s calls without gradients; breaks: names expected, None: any."""
    framejit.reset()
    module, ours = copy.deepcopy(module), copy.deepcopy(module)
    compiled = framejit.compile(ours)
    with torch.no_grad():
        for seed in range(calls):
            outcomes, states = [], []
            for run in (module, compiled):
                torch.manual_seed(seed)
                outcomes.append(Outcome(run, copy.deepcopy(arguments), {}))
                states.append(torch.get_rng_state())
            compare(outcomes[1], outcomes[0])
            assert torch.equal(*states), "the generator was left in another state"
    assert_same(dict(ours.state_dict()), dict(module.state_dict()), "state_dict")
    info, report = framejit.cache_info(), framejit.explain(compiled).so_far()
    assert info["internal_errors"] == 0 and info["eager_replays"] == 0, report
    if breaks is not None:
        assert [b.name for b in report.breaks] == list(breaks), report
    if graphs is not None:
        assert len(report.graphs) == graphs, report
    return report


X = torch.linspace(-2, 2, 2 * 4).reshape(2, 4)
IMAGE = torch.linspace(-1, 1, 2 * 3 * 8 * 8).reshape(2, 3, 8, 8)
SEQUENCE = torch.linspace(-1, 1, 2 * 5 * 8).reshape(2, 5, 8)


class Transposed(nn.Module):
    def forward(self, x):
        return x.T * 2


class Counting(nn.Module):
    """Buffers that forward assigns."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("last", None, persistent=False)

    def forward(self, x):
        self.calls += 1
        self.mean = self.mean * 0.9 + x.detach().mean(0) * 0.1
        self.last = self.mean.clone()
        return x * self.calls + self.mean + len(self._buffers)


class Attention(nn.Module):
    def forward(self, x):
        mask = torch.ones(5, 5, dtype=torch.bool).tril()
        y = F.scaled_dot_product_attention(x, x, x, dropout_p=0.3, is_causal=True)
        return y + F.scaled_dot_product_attention(x, y, x, attn_mask=mask, dropout_p=0.2) + F.scaled_dot_product_attention(y, x, y, dropout_p=0.2, scale=0.5)


MODULES = {
    "batch_norm": (lambda: nn.BatchNorm2d(3), IMAGE),
    "instance_norm": (lambda: nn.InstanceNorm2d(3, affine=True, track_running_stats=True), IMAGE),
    "group_norm": (lambda: nn.GroupNorm(1, 3), IMAGE),
    "dropout": (lambda: nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.3)), X),
    "dropout_of_a_transposed": (lambda: nn.Sequential(Transposed(), nn.Dropout(0.3)), X),
    "dropout_of_everything": (lambda: nn.Sequential(nn.Linear(4, 4), nn.Dropout(1.0)), X),
    "dropout2d": (lambda: nn.Sequential(nn.Conv2d(3, 4, 1), nn.Dropout2d(0.5)), IMAGE),
    "dropout1d": (lambda: nn.Dropout1d(0.5), SEQUENCE),
    "alpha_dropout": (lambda: nn.Sequential(nn.Linear(4, 4), nn.AlphaDropout(0.5)), X),
    "feature_alpha_dropout": (lambda: nn.FeatureAlphaDropout(0.5), IMAGE),
    "spectral_norm": (lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4)), X),
    "counting": (lambda: Counting(), X),
    "attention_dropout_causal": (lambda: Attention(), SEQUENCE),
    "rrelu": (lambda: nn.RReLU(), X),
    "embedding_renorm": (lambda: nn.Embedding(9, 4, padding_idx=0, max_norm=1.0), torch.tensor([1, 3, 0])),
    "conv_transpose": (lambda: nn.ConvTranspose2d(3, 4, 3, stride=2), IMAGE),
    "pixel_shuffle": (lambda: nn.Sequential(nn.Conv2d(3, 4, 1), nn.PixelShuffle(2)), IMAGE),
    "adaptive_max_pool": (lambda: nn.AdaptiveMaxPool2d(2), IMAGE),
    "upsample": (lambda: nn.Upsample(scale_factor=2, mode="bilinear"), IMAGE),
    "reflection_pad": (lambda: nn.ReflectionPad2d(1), IMAGE),
    "unfold": (lambda: nn.Unfold(2), IMAGE),
    "weight_norm": (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)), X),
    "orthogonal": (lambda: nn.utils.parametrizations.orthogonal(nn.Linear(4, 4)), X),
    "attention": (lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), SEQUENCE),
    "attention_dropout": (lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), SEQUENCE),
}


@pytest.mark.parametrize("name", MODULES)
def test_module_in_training_mode_is_one_graph(name):
    torch.manual_seed(0)
    make, x = MODULES[name]
    agree(make().train(), x)


# Without `rrelu`, which breaks: torch keeps its noise.
@pytest.mark.parametrize("name", [name for name in MODULES if name not in ("rrelu", "embedding_renorm")])
def test_training_step_of_a_module_is_one_graph(name):
    """With gradients: of the parameters, and of the argument."""
    framejit.reset()
    torch.manual_seed(0)
    make, x = MODULES[name]
    eager = make().train()
    ours = copy.deepcopy(eager)
    compiled = framejit.compile(ours)
    for seed in range(2):
        seen = []
        for run, module in ((eager, eager), (compiled, ours)):
            torch.manual_seed(seed)
            argument = x.clone().requires_grad_(x.is_floating_point())
            result = run(argument)
            (result * torch.linspace(1, 2, result.numel()).reshape(result.shape)).sum().backward()
            gradients = {name: parameter.grad for name, parameter in module.named_parameters()}
            seen.append((result.detach(), result.stride(), result._version, argument.grad, gradients, dict(module.state_dict()), torch.get_rng_state()))
        torch.testing.assert_close(seen[1], seen[0], rtol=1e-4, atol=1e-5)
    info, report = framejit.cache_info(), framejit.explain(compiled).so_far()
    assert info["internal_errors"] == 0 and info["eager_replays"] == 0, report
    assert report.breaks == [] and len(report.graphs) == 1, report


class Containers(nn.Module):
    def __init__(self):
        super().__init__()
        self.named = nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.Linear(4, 4)})
        self.scales = nn.ParameterList([nn.Parameter(torch.randn(4)) for _ in range(2)])
        self.shared = nn.ModuleList([nn.Linear(4, 4)] * 2)

    def forward(self, x):
        for layer in self.named.values():
            x = layer(x)
        for scale in self.scales:
            x = x * scale
        for layer in self.shared:
            x = torch.relu(layer(x))
        return x


def test_containers_and_shared_parameters():
    torch.manual_seed(0)
    agree(Containers(), X)


class TiedWeights(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 4)
        self.head = nn.Linear(4, 11, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        return self.head(self.embedding(tokens) * 2)


def test_one_parameter_in_two_modules():
    torch.manual_seed(0)
    agree(TiedWeights(), torch.tensor([[1, 4], [10, 0]]))


class Hooked(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.first.register_forward_hook(lambda module, inputs, output: output * 2)
        self.second.register_forward_pre_hook(lambda module, inputs: (inputs[0] + 1,))

    def forward(self, x):
        return self.second(self.first(x))


def test_forward_hooks():
    torch.manual_seed(0)
    agree(Hooked(), X, breaks=None, graphs=None)


def test_a_hook_added_or_removed_between_calls_is_seen():
    torch.manual_seed(0)
    module = nn.Linear(4, 4)
    compiled = framejit.compile(module)
    with torch.no_grad():
        plain = module(X)
        torch.testing.assert_close(compiled(X), plain)
        hook = compiled.register_forward_hook(lambda module, inputs, output: output + 10)
        torch.testing.assert_close(compiled(X), plain + 10)
        hook.remove()
        torch.testing.assert_close(compiled(X), plain)


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
@pytest.mark.parametrize("training", [False, True], ids=["evaluation", "training"])
def test_recurrent_network(kind, training):
    torch.manual_seed(0)

    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.network = getattr(nn, kind)(8, 6, num_layers=2, batch_first=True, dropout=0.2, bidirectional=True)
            self.head = nn.Linear(12, 3)

        def forward(self, x):
            output, state = self.network(x * 2)
            return torch.relu(self.head(output)), state

    agree(Recurrent().train(training), SEQUENCE, breaks=None, graphs=None)


def test_train_and_eval_are_two_graphs():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
    compiled, eager = framejit.compile(module), copy.deepcopy(module)
    with torch.no_grad():
        for training in (True, False, True, False):
            outputs = []
            for run in (compiled, eager):
                run.train(training)
                torch.manual_seed(3)
                outputs.append(run(X))
            torch.testing.assert_close(*outputs)
    report = framejit.explain(compiled).so_far()
    assert not report.breaks and len(report.graphs) == 2, report


class Stages(nn.Module):
    def __init__(self, channels=8):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels), nn.ReLU(inplace=True))
        self.one = nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.SiLU(),
                                 nn.Conv2d(channels, channels, 3, padding=1, groups=channels), nn.BatchNorm2d(channels))
        self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, channels, 1), nn.Sigmoid())
        self.head = nn.Linear(channels, 5)

    def forward(self, x):
        x = F.max_pool2d(self.stem(x), 2)
        x = F.relu(x + self.one(x) * self.gate(x))
        return self.head(F.dropout(x.mean((2, 3)), 0.1, self.training))


@pytest.mark.parametrize("training", [False, True], ids=["evaluation", "training"])
@pytest.mark.parametrize("layout", ["contiguous_format", "channels_last"])
def test_convolution_network(training, layout):
    torch.manual_seed(0)
    layout = getattr(torch, layout)
    agree(Stages().train(training).to(memory_format=layout), IMAGE.to(memory_format=layout), graphs=None)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_module_of_another_dtype(dtype):
    torch.manual_seed(0)
    agree(nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 4)).to(dtype), X.to(dtype))


@pytest.mark.parametrize("make, x", [
    (lambda: nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 4), nn.Softmax(-1)), X),
    (lambda: Stages().eval(), IMAGE),
    (lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).train(), SEQUENCE),
], ids=["layers", "convolutions", "attention"])
def test_under_autocast(make, x):
    torch.manual_seed(0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        agree(make(), x, graphs=None)


def test_autocast_switched_inside_and_between_calls():
    layer = nn.Linear(4, 4)

    def f(x):
        y = layer(x) * 2
        with torch.autocast("cpu", dtype=torch.bfloat16):
            z = layer(y) + 1
        return y, z, layer(x)

    compiled = framejit.compile(f)
    with torch.no_grad():
        for enabled in (False, True, False):
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
                assert_same(compiled(X), f(X))
    assert framejit.cache_info()["internal_errors"] == 0


@pytest.mark.parametrize("function", [
    lambda x: torch.fft.fft(x) * 2,
    lambda x: torch.fft.rfft(x).abs() + 1,
    lambda x: torch.fft.irfft(torch.fft.rfft(x) * 2),
    lambda x: torch.view_as_real(torch.complex(x, x + 1) * 2),
    lambda x: torch.polar(x.abs(), x).sum(),
    lambda x: (torch.complex(x, x) @ torch.complex(x, -x).T).real + 1,
    lambda x: torch.complex(x, x).mH.clone(),
    lambda x: (x + 1j) * 2,
    lambda x: torch.exp(1j * x).imag + x,
], ids=range(9))
def test_complex_numbers(function):
    framejit.reset()
    compiled = framejit.compile(function)
    for _ in range(2):
        compare(Outcome(compiled, (X.clone(),), {}), Outcome(function, (X.clone(),), {}))
    assert framejit.cache_info()["internal_errors"] == 0


@pytest.mark.parametrize("weights", ["none", "averaged", "of each head"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_multi_head_attention_in_eval_is_its_operations(weights, dtype):
    """Eager has one function for it (torch._native_multi_head_attention)."""
    attention = nn.MultiheadAttention(16, 4, batch_first=True, dtype=dtype).eval()

    def f(query, key, value):
        return attention(query, key, value, need_weights=weights != "none", average_attn_weights=weights != "of each head")

    compiled = framejit.compile(f, fullgraph=True)
    with torch.no_grad():
        for batch, rows, columns in ((2, 5, 5), (1, 1, 1), (3, 9, 4), (4, 3, 17)):
            x, y, z = torch.randn(batch, rows, 16, dtype=dtype), torch.randn(batch, columns, 16, dtype=dtype), torch.randn(batch, columns, 16, dtype=dtype)
            for arguments in ((x, x, x), (x, y, y), (x, y, z)):
                (found, of), (expected, weights_of) = compiled(*arguments), f(*arguments)
                torch.testing.assert_close(found, expected)
                assert (of is None) == (weights_of is None) == (weights == "none") and found.stride() == expected.stride() and not found.requires_grad
                if of is not None:
                    torch.testing.assert_close(of, weights_of)
        padding = torch.tensor([[False, False, True]])
        ones = torch.ones(1, 3, 16, dtype=dtype)
        masked = framejit.compile(attention)
        torch.testing.assert_close(masked(ones, ones, ones, key_padding_mask=padding), attention(ones, ones, ones, key_padding_mask=padding))
        if weights == "none":
            model = nn.Transformer(16, 2, 1, 1, 32, batch_first=True, dtype=dtype).eval()
            torch.testing.assert_close(framejit.export(model, (x, y))(x, y), model(x, y))


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_encoder_layer_in_eval_is_its_operations(norm_first, activation, dtype):
    """Eager has one function for it (torch._transformer_encoder_layer_fwd)."""
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, norm_first=norm_first, activation=activation, dtype=dtype).eval()
    compiled = framejit.compile(layer, fullgraph=True)
    with torch.no_grad():
        for batch, length in ((2, 5), (1, 1), (3, 9), (4, 17)):
            x = torch.randn(batch, length, 16, dtype=dtype)
            result = compiled(x)
            torch.testing.assert_close(result, layer(x))
            assert not result.requires_grad
        for x in (torch.randn(5, 2, 16, dtype=dtype).transpose(0, 1), torch.randn(2, 16, 5, dtype=dtype).mT):
            torch.testing.assert_close(compiled(x), layer(x))
            assert compiled(x).stride() == layer(x).stride()
        padding = torch.tensor([[False, False, True]])
        torch.testing.assert_close(compiled(torch.ones(1, 3, 16, dtype=dtype), src_key_padding_mask=padding),
                                   layer(torch.ones(1, 3, 16, dtype=dtype), src_key_padding_mask=padding))
        graph, = framejit.explain(layer)(torch.randn(2, 5, 16, dtype=dtype)).graphs
    assert "_transformer_encoder_layer_fwd" not in str(graph)
