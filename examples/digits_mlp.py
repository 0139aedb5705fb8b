"""A perceptron with two hidden layers learns scikit-learn's digits; the module is compiled, the loop is the user's.

    python examples/training.py digits_mlp
"""
import torch
from torch import nn
from torch.nn import functional as F

import digits
import training

TITLE = "MLP 64-256-128-10 on scikit-learn's digits, batches of 128"
STEPS = 200
# float32: sums are taken in another order, and Adam makes full steps of small gradients too. Measured: 2e-7 after 200 steps.
TOLERANCE = 1e-4


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10))


def loss_of(model, x, y):
    return F.cross_entropy(model(x), y)


def jax_loss(parameters, x, y):
    import jax
    import jax.numpy as jnp

    for layer in (0, 2, 4):
        x = x @ parameters[f"{layer}.weight"].T + parameters[f"{layer}.bias"]
        x = jax.nn.relu(x) if layer != 4 else x
    return -jnp.take_along_axis(jax.nn.log_softmax(x), y[:, None], 1).mean()


def systems():
    return training.torch_systems(network(), digits.batches((64,)), loss_of, 1e-3, jax_loss)
