"""A small convolutional net with batch norm learns scikit-learn's digits. Convolutions are the library's; what is around them is fused.

    python examples/training.py digits_convolution
"""
import torch
from torch import nn
from torch.nn import functional as F

import digits
import training

TITLE = "convolutional net (16, 32 channels, batch norm) on scikit-learn's digits, batches of 128"
STEPS = 60
# float32: batch statistics and sums are taken in another order, and Adam makes full steps of small gradients too. Measured: 5e-8.
TOLERANCE = 1e-4


def network():
    torch.manual_seed(0)

    def block(inputs, outputs):
        # No bias before the norm, which would take it out again.
        return nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2)

    return nn.Sequential(*block(1, 16), *block(16, 32), nn.Flatten(), nn.Linear(32 * 4, 10))


def loss_of(model, x, y):
    return F.cross_entropy(model(x), y)


def jax_loss(parameters, x, y):
    import jax
    import jax.numpy as jnp

    for convolution, norm in ((0, 1), (4, 5)):
        x = jax.lax.conv_general_dilated(x, parameters[f"{convolution}.weight"], (1, 1), "SAME", dimension_numbers=("NCHW", "OIHW", "NCHW"))
        x = (x - x.mean((0, 2, 3), keepdims=True)) / jnp.sqrt(x.var((0, 2, 3), keepdims=True) + 1e-5)
        x = jax.nn.relu(x * parameters[f"{norm}.weight"][:, None, None] + parameters[f"{norm}.bias"][:, None, None])
        x = x.reshape(x.shape[0], x.shape[1], x.shape[2] // 2, 2, x.shape[3] // 2, 2).max((3, 5))
    x = x.reshape(len(x), -1) @ parameters["9.weight"].T + parameters["9.bias"]
    return -jnp.take_along_axis(jax.nn.log_softmax(x), y[:, None], 1).mean()


def systems():
    return training.torch_systems(network(), digits.batches((1, 8, 8)), loss_of, 3e-3, jax_loss)
