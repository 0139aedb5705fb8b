"""The back end "eager": the captured graph, replayed through the array library."""
import numpy as np
import pytest

import framejit
from framejit import _core
from framejit._support.replay import operations
from harness import both_libraries, needs_torch, same_as_eager, torch


def test_every_operation_has_a_row():
    assert set(operations) == set(_core.operation_names())


@both_libraries
@pytest.mark.parametrize("name", ["pointwise", "casts", "shapes", "reductions", "indices", "updates", "integers", "products", "scans"])
def test_replay_agrees_with_the_library(lib, name):
    def pointwise(x, y):
        return lib.where(x > y, lib.tanh(x) / (lib.abs(y) + 1), lib.maximum(x, -y)) ** 2

    def casts(x, y):
        if lib.name == "numpy":
            return x.astype(np.float64) + 1, (x > 0).astype(np.int32), x.astype(np.int64) * 2
        return x.double() + 1, (x > 0).int(), x.long() * 2

    def shapes(x, y):
        return x.T.reshape(2, 6) * 1, x[::2, 1:] + 1, lib.concatenate([x, y]) * 2, x[None, :, 0] + y[:, None, 1]

    def reductions(x, y):
        return x.sum(), x.sum(0), x.mean(1), x.argmax(1), (x > 0).any(0), x.prod(1)

    def indices(x, y):
        rows = lib.array(np.array([2, 0, -1]))
        return x[rows] * 2, x[rows, rows] + 1

    def updates(x, y):
        x[1:] = y[1:] * 2
        y += x
        x[0], y[0] = y[0] * 1, x[0] * 1
        return x.sum() + y.sum()

    def integers(x, y):
        a, b = (x * 10), (y * 3)
        return a // 2, a % 3, lib.abs(b) // 1

    def products(x, y):
        return x @ y.T, (x @ y.T) @ x

    def scans(x, y):
        return x.cumsum(0), y.cumsum(1)

    same_as_eager(locals()[name], lib.sample((3, 4)), lib.sample((3, 4), seed=1), backend="eager", calls=3)


def test_arrays_whose_sizes_change():
    def f(x, k):
        return (x.reshape(-1, 2) * k).sum(0) / x.shape[0] + x.shape[0] // 3

    compiled = framejit.compile(f, backend="eager")
    for n in (4, 6, 12, 2):
        x = np.arange(n, dtype=np.float64)
        np.testing.assert_allclose(compiled(x, n + 1), f(x, n + 1))
    assert framejit.cache_info()["eager_replays"] == 0


def test_conditions_numpy_reports_are_reported_once():
    same_as_eager(lambda x: 1 / x + 1, np.array([0.0, 1.0]), backend="eager", fallback=True)


@needs_torch
def test_library_calls_and_both_libraries():
    def f(x, w):
        y = torch.nn.functional.conv1d(x, w).relu()
        return y, torch.from_numpy(y.numpy() * 2)

    same_as_eager(f, torch.ones(1, 2, 5), torch.ones(3, 2, 2), backend="eager")


def test_the_name_is_taken():
    with pytest.raises(ValueError, match="built in"):
        framejit.register_backend("eager", print)
