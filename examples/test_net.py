"""A module whose forward branches on its data: a small graph per piece, a break per branch.

No array kernel runs while the pieces are traced; each `if` costs one instruction that Python runs.
"""
import torch
from torch import nn


class TestNet(nn.Module):
    def __init__(self, features=16):
        super().__init__()
        self.linear = nn.Linear(features, 4)

    def forward(self, x):
        x = x * 2
        if x.sum() > 0:
            x = torch.sin(x)
        if x.mean() > 0:
            x = torch.cos(x)
        return self.linear(x)


def arguments():
    """Inputs that take each path: no branch, the first, the second, both."""
    x = torch.rand(8, 16, generator=torch.Generator().manual_seed(0)) * 0.2 + 0.1
    return {
        "neither": -x,                      # x*2 sums to less than 0 and its mean is negative
        "first": torch.full_like(x, 2.0),   # the sum is positive, sin(4) is negative
        "both": x,                          # the sum is positive, so is the mean of sin(x*2)
    }
