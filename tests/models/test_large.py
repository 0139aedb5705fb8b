"""Large functions: much work is few kernels, the same work is one kernel compiled once."""
import math

import pytest

import framejit
from harness import torch

if torch is None:
    pytest.skip("torch is not installed in this environment", allow_module_level=True)


def test_a_thousand_additions_in_a_loop_are_few_kernels():
    def chain(x, y):
        for _ in range(1000):
            x = x + y
        return x

    x, y = torch.arange(20.0), torch.full((20,), 0.25)
    assert torch.equal(framejit.compile(chain)(x, y), chain(x, y))
    info = framejit.cache_info()
    assert info["graphs"] == 1 and info["breaks"] == 0 and 0 < info["kernels_launched"] < 10


class Layer(torch.nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (torch.nn.Linear(width, width) for _ in range(4))
        self.wide, self.narrow = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)
        self.first, self.second = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)

    def forward(self, x):
        batch, length, width = x.shape

        def split(part):
            return part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)

        query, key, value = split(self.query(x)), split(self.key(x)), split(self.value(x))
        weights = torch.softmax(query @ key.transpose(-2, -1) / math.sqrt(width // self.heads), dim=-1)
        x = self.first(x + self.out((weights @ value).transpose(1, 2).reshape(batch, length, width)))
        return self.second(x + self.narrow(torch.nn.functional.gelu(self.wide(x))))


class Encoder(torch.nn.Module):
    def __init__(self, layers, width, heads):
        super().__init__()
        self.layers = torch.nn.ModuleList(Layer(width, heads) for _ in range(layers))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def test_the_layers_of_an_encoder_share_their_kernels():
    def compiled_kernels(layers):
        torch.manual_seed(0)
        model = Encoder(layers, 32, 4).eval()
        x = torch.randn(2, 8, 32)
        framejit.reset()
        with torch.no_grad(), framejit.options(cache_bytes=0):
            result = framejit.compile(model)(x)
            torch.testing.assert_close(result, model(x), rtol=1e-4, atol=1e-5)
        info = framejit.cache_info()
        assert info["graphs"] == 1 and info["breaks"] == 0 and info["internal_errors"] == 0
        # Equal work on independent arrays is one launch.
        assert info["kernels_compiled"] + info["kernels_shared"] >= info["kernels_launched"]
        return info["kernels_compiled"], info["kernels_launched"]

    # The first layer reads the input and the last writes the result; every further one between them adds nothing.
    few, many = compiled_kernels(3), compiled_kernels(12)
    assert many[0] == few[0] and many[1] > 3 * few[1]
