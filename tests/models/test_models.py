"""Whole modules and programs as people write them, against eager."""
import numpy as np
import pytest

import framejit
from harness import Outcome, compare, needs_torch, same_as_eager, torch

if torch is not None:
    from torch import nn
    from torch.nn import functional as F
else:
    pytest.skip("torch is not installed in this environment", allow_module_level=True)


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 8), nn.Tanh())

    def forward(self, x):
        return self.layers(x)


class Attention(nn.Module):
    def __init__(self, width=32, heads=4):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.register_buffer("mask", torch.tril(torch.ones(12, 12)).bool())

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        q, k, v = (part.view(b, t, self.heads, c // self.heads).transpose(1, 2) for part in (q, k, v))
        scores = q @ k.transpose(-2, -1) / (c // self.heads) ** 0.5
        scores = scores.masked_fill(~self.mask[:t, :t], float("-inf"))
        y = torch.softmax(scores, -1) @ v
        return self.out(y.transpose(1, 2).contiguous().view(b, t, c))


class Block(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1))

    def forward(self, x):
        x = x + self.attention(self.first(x))
        return x + self.mlp(self.second(x))


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.pool = nn.MaxPool2d(2)
        self.head = nn.Linear(8 * 4 * 4, 10)

    def forward(self, x):
        x = self.pool(F.relu(self.norm(self.conv(x))))
        return F.log_softmax(self.head(x.flatten(1)), dim=1)


class Embedded(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 8)
        self.position = nn.Parameter(torch.randn(10, 8))

    def forward(self, tokens):
        return (self.embedding(tokens) + self.position[: tokens.shape[1]]).mean(dim=1)


MODELS = [(MLP, lambda: torch.randn(5, 16)), (Attention, lambda: torch.randn(2, 12, 32)), (Block, lambda: torch.randn(2, 7, 32)),
          (ConvNet, lambda: torch.randn(2, 3, 8, 8)), (Embedded, lambda: torch.randint(0, 20, (3, 6)))]


@pytest.mark.parametrize("make, sample", MODELS, ids=[m.__name__ for m, _ in MODELS])
def test_model_in_evaluation_is_one_graph(make, sample):
    torch.manual_seed(0)
    module = make().eval()
    x = sample()
    with torch.no_grad():
        compiled = framejit.compile(module)
        for _ in range(3):
            ours, eager = compiled(x), module(x)
            torch.testing.assert_close(ours, eager, rtol=1e-5, atol=1e-6)
            assert ours.stride() == eager.stride()
    report = framejit.explain(compiled).so_far()
    assert not report.breaks and len(report.graphs) == 1, report
    assert framejit.cache_info()["internal_errors"] == 0 and framejit.cache_info()["eager_replays"] == 0


def test_a_wrapped_module_is_still_the_module():
    module = MLP()
    compiled = framejit.compile(module)
    assert isinstance(compiled, MLP)
    assert list(compiled.state_dict()) == list(module.state_dict())
    assert compiled.layers is module.layers
    compiled.eval()
    assert not module.training
    module.layers[0].weight.data.mul_(2)
    with torch.no_grad():
        x = torch.randn(3, 16)
        torch.testing.assert_close(compiled(x), module(x))


def test_parameters_replaced_between_calls_are_seen():
    module = nn.Linear(4, 4)
    compiled = framejit.compile(module)
    x = torch.randn(2, 4)
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(compiled(x), F.linear(x, module.weight, module.bias))
            module.weight = nn.Parameter(torch.randn(4, 4))


def test_training_gives_eager_s_gradients():
    torch.manual_seed(0)
    module = MLP()
    x = torch.randn(5, 16)
    module(x).square().mean().backward()
    expected = [p.grad.clone() for p in module.parameters()]
    module.zero_grad()
    compiled = framejit.compile(module)
    compiled(x).square().mean().backward()
    for parameter, gradient in zip(module.parameters(), expected):
        torch.testing.assert_close(parameter.grad, gradient)
    report = framejit.explain(compiled).so_far()
    assert len(report.graphs) == 1 and not report.breaks and not report.fallbacks


def jacobi(grid, steps):
    for _ in range(steps):
        grid = grid.copy()
        grid[1:-1, 1:-1] = 0.25 * (grid[:-2, 1:-1] + grid[2:, 1:-1] + grid[1:-1, :-2] + grid[1:-1, 2:])
    return grid


def black_scholes(price, strike, time, rate, volatility):
    d1 = (np.log(price / strike) + (rate + volatility**2 / 2) * time) / (volatility * np.sqrt(time))
    return price * (1 / (1 + np.exp(-1.702 * d1))) - strike * np.exp(-rate * time)


def normalise(x, gain, bias):
    mean = x.mean(axis=-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(axis=-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + 1e-5) * gain + bias


@pytest.mark.parametrize("function, arguments", [
    (jacobi, (np.random.default_rng(0).random((20, 30)), 4)),
    (black_scholes, (np.full(100, 30.0), np.linspace(20, 40, 100), 1.5, 0.02, 0.3)),
    (normalise, (np.random.default_rng(0).standard_normal((6, 40), np.float32), np.ones(40, np.float32), np.zeros(40, np.float32))),
], ids=["jacobi", "black_scholes", "normalise"])
def test_numpy_program_is_one_graph(function, arguments):
    run = same_as_eager(function, *arguments, breaks=())
    assert len(run.graphs) == 1
