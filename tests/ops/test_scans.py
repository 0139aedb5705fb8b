"""Running sums and products: where eager's intermediate results overflow, cancel or round, ours do."""
import numpy as np
import pytest

from harness import needs_torch, same_as_eager, torch

HUGE = {"float32": 3e38, "float64": 1e308}
PATTERNS = [(-1, 1, 1, -1), (1, 1, -1, 0), (1, -1, -1, 1)]


def exactly(function, *arguments):
    run = same_as_eager(function, *arguments, exact=True, breaks=())
    assert len(run.graphs) == 1


@pytest.mark.parametrize("dtype", HUGE)
@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
def test_numpy_s_partial_sums_overflow_where_eager_s_do(dtype, pattern):
    def f(x):
        with np.errstate(over="ignore", invalid="ignore"):
            return np.cumsum(x), np.cumsum(x[::-1]), np.cumsum(x.reshape(4, 8), axis=0), np.cumsum(x.reshape(4, 8), axis=1)

    exactly(f, np.array(pattern * 8, dtype) * np.array(HUGE[dtype], dtype))


@pytest.mark.parametrize("dtype", HUGE)
def test_numpy_rounds_every_step(dtype):
    def f(x, y):
        return np.cumsum(x), np.cumsum(y), np.cumsum(x.reshape(2, -1), axis=1), np.cumprod(1 + x * 1e-3), np.cumsum(x, dtype=np.float64)

    big = 1e16 if dtype == "float64" else 1e8
    exactly(f, np.full(4000, 0.1, dtype), np.array([1, big, -big, 1] * 8, dtype))


@needs_torch
@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
def test_torch_s_partial_sums_of_float64_overflow_where_eager_s_do(pattern):
    x = torch.tensor(pattern * 8, dtype=torch.float64) * 1e308
    exactly(lambda x: (torch.cumsum(x, 0), x.flip(0).cumsum(0), x.reshape(4, 8).cumsum(0), x.reshape(4, 8).cumsum(1)), x)
    exactly(lambda x: torch.cumsum(x, 0), torch.tensor([1, 1e16, -1e16, 1] * 8, dtype=torch.float64))


@needs_torch
@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
def test_torch_s_scans_of_float32_overflow_only_when_they_are_stored(pattern):
    exactly(lambda x: (torch.cumsum(x, 0), x.reshape(4, 8).cumsum(1) * 2), torch.tensor(pattern * 8, dtype=torch.float32) * 3e38)
    exactly(lambda x: (torch.cumprod(x, 0), x.cumprod(0)[1:]), torch.tensor([1e30, 1e30, 1e-30, 1e-25, 1e30] * 4, dtype=torch.float32))
