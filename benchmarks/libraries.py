"""The libraries the workloads are written for; those that are not installed are None."""
import importlib

import numpy as np  # noqa: F401


def _optional(name):
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


torch = _optional("torch")
numba = _optional("numba")
numexpr = _optional("numexpr")
prange = numba.prange if numba else range
F = torch.nn.functional if torch else None


def jax_modules():
    """(jax, jax.numpy), imported when first asked for: it takes its time."""
    return importlib.import_module("jax"), importlib.import_module("jax.numpy")


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def uniform(*shape, low=0.0, high=1.0, seed=0):
    return (low + (high - low) * np.random.default_rng(seed).random(shape, dtype=np.float32)).astype(np.float32)
