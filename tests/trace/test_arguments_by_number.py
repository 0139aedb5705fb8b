"""NumPy and torch take sequences by their numbers: iterators, sets and views of dicts are their errors, or single objects, compiled too."""
import collections

import numpy as np
import pytest

from harness import same_as_eager, torch

CALLS = [
    lambda x: np.vstack(x for _ in range(2)), lambda x: np.hstack(iter([x, x])), lambda x: np.stack({1: x}.values()), lambda x: np.concatenate(map(np.sin, [x])),
    lambda x: np.column_stack({1.0, 2.0}), lambda x: np.zeros({2: 0}.keys()), lambda x: np.roll(x, (n for n in (1, 1)), (0, 1)), lambda x: np.add({2.0: 1}.keys(), 1),
    lambda x: np.stack(collections.deque([x, x])), lambda x: np.zeros(range(2, 4)),
]
TORCH_CALLS = [
    lambda x: torch.stack(x for _ in range(2)), lambda x: torch.cat(iter([x, x])), lambda x: torch.vstack({1: x}.values()), lambda x: torch.hstack(map(torch.sin, [x])),
    lambda x: torch.ones({2: 0}.keys()), lambda x: torch.tensor({2.0: 1}.keys()), lambda x: torch.stack(collections.deque([x, x])), lambda x: torch.stack([x, x]),
]


@pytest.mark.parametrize("function", CALLS)
def test_numpy_takes_what_has_numbered_items(function):
    same_as_eager(function, np.arange(6.0).reshape(2, 3), compiles=False)


@pytest.mark.skipif(torch is None, reason="torch is not installed in this environment")
@pytest.mark.parametrize("function", TORCH_CALLS)
def test_torch_takes_tuples_and_lists(function):
    same_as_eager(function, torch.arange(6.0).reshape(2, 3), compiles=False)
