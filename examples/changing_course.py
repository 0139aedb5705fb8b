"""Programs that change course while they run: packed sequences, flags, layers made in forward, recursion, loops until convergence.

What depends on Python values is decided while tracing; what depends on data costs one instruction that Python runs. Layers
made in forward start from the same random numbers as eagerly.
"""
import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class VariableLengthRNN(nn.Module):
    """One graph for all lengths: packing and padding are compiled, the recurrent network is a call of the library."""

    def __init__(self, inputs=10, hidden=20, outputs=5):
        super().__init__()
        self.rnn = nn.RNN(inputs, hidden, batch_first=True)
        self.fc = nn.Linear(hidden, outputs)

    def forward(self, x, lengths):
        packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        output, _ = self.rnn(packed)
        output, _ = pad_packed_sequence(output)
        last = output[lengths - 1, torch.arange(x.shape[0]), :]
        return self.fc(last)


class ConditionalModel(nn.Module):
    """One graph per value of the flag."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3)
        self.conv2 = nn.Conv2d(16, 32, 3)
        self.fc = nn.Linear(32 * 6 * 6, 10)

    def forward(self, x, flag):
        x = torch.relu(self.conv1(x))
        if flag:
            with torch.no_grad():
                x = torch.max_pool2d(x, 2)
        x = torch.relu(self.conv2(x))
        return self.fc(torch.flatten(x, 1))


class DynamicModel(nn.Module):
    """Layers made in forward: they are part of the graph, as long as nobody keeps them."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(10, 20)

    def forward(self, x, num_layers):
        x = torch.relu(self.first(x))
        for _ in range(num_layers):
            x = torch.relu(nn.Linear(20, 20)(x))
        return x


class TreeNetwork(nn.Module):
    """A network as deep as the tuple it is given: one graph per shape of the tree."""

    def __init__(self):
        super().__init__()
        self.leaf, self.pair = nn.Linear(4, 8), nn.Linear(16, 8)

    def forward(self, tree):
        if isinstance(tree, tuple):
            return torch.tanh(self.pair(torch.cat([self.forward(branch) for branch in tree], dim=-1)))
        return torch.tanh(self.leaf(tree))


class AsDeepAsItsInput(nn.Module):
    """A number of layers that is read from the data."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x):
        for _ in range(int(x.mean().item() * 10)):
            x = torch.relu(self.layer(x)) + x
        return x


def square_root_torch(x, tolerance):
    """The body of the loop is one compiled piece, run once per step."""
    guess = torch.ones_like(x)
    error = (guess * guess - x).abs().max()
    steps = 0
    while error > tolerance:
        guess = 0.5 * (guess + x / guess)
        error = (guess * guess - x).abs().max()
        steps += 1
    return guess, steps


def square_root_numpy(x, tolerance):
    guess = np.ones_like(x)
    error = np.abs(guess * guess - x).max()
    steps = 0
    while error > tolerance:
        guess = 0.5 * (guess + x / guess)
        error = np.abs(guess * guess - x).max()
        steps += 1
    return guess, steps


def examples():
    """(title, function or module, arguments)"""
    torch.manual_seed(0)
    yield "RNN over packed sequences", VariableLengthRNN(), (torch.randn(3, 4, 10), torch.tensor([3, 2, 4]))
    for flag, size in ((True, 18), (False, 10)):
        yield f"conditional, flag={flag}", ConditionalModel(), (torch.randn(2, 3, size, size), flag)
    yield "layers made in forward", DynamicModel(), (torch.randn(3, 10), 3)
    leaf = torch.randn(2, 4)
    yield "tree network", TreeNetwork(), ((leaf, ((leaf, leaf), leaf)),)
    yield "layers counted by the data", AsDeepAsItsInput(), (torch.rand(3, 6),)
    yield "root by iteration, torch", square_root_torch, (torch.rand(100_000) * 100, 1e-3)
    yield "root by iteration, numpy", square_root_numpy, (np.random.default_rng(0).random(100_000) * 100, 1e-3)
