"""The workloads, as a user of each library writes them. A case: functions by library, and its NumPy arguments."""
import numpy as np


def chain_numpy(x):
    y = (x + 1) * 2
    y = np.maximum(y, 0)
    y = y - 0.5
    return 1 / (1 + np.exp(-y))


def chain_torch(x):
    y = (x + 1) * 2
    return (y.relu() - 0.5).sigmoid()


def chain_jax(x):
    import jax

    y = (x + 1) * 2
    return jax.nn.sigmoid(jax.nn.relu(y) - 0.5)


def add_numpy(x):
    return x + 1


def softmax_numpy(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def softmax_torch(x):
    import torch

    return torch.softmax(x, -1)


def softmax_jax(x):
    import jax

    return jax.nn.softmax(x, -1)


def _normal(*shape):
    return (np.random.default_rng(0).standard_normal(shape, dtype=np.float32),)


CHAIN = {"numpy": chain_numpy, "torch": chain_torch, "jax": chain_jax}
ADD = {"numpy": add_numpy, "torch": add_numpy, "jax": add_numpy}
SOFTMAX = {"numpy": softmax_numpy, "torch": softmax_torch, "jax": softmax_jax}

CASES = {
    "chain_ops 64x64": (CHAIN, _normal(64, 64)),
    "chain_ops 2048x2048": (CHAIN, _normal(2048, 2048)),
    "chain_ops 4096x4096": (CHAIN, _normal(4096, 4096)),
    "softmax 4096x1024": (SOFTMAX, _normal(4096, 1024)),
    "x + 1 on 4 elements": (ADD, _normal(4)),
    "chain_ops on 4 elements": (CHAIN, _normal(4)),
}
