"""functools.lru_cache: what its cache counts, and when a piece may rely on what it holds. Strides of what lists pick beside new axes."""
import functools

import numpy as np
import pytest

import framejit
from harness import assert_same, needs_torch, torch

X = np.linspace(-1, 1, 12).reshape(3, 4)


def both(make, calls):
    """Results and what the cache counted, of each call; (graphs, breaks)."""
    framejit.reset()
    (f, cached), (g, other) = make(), make()
    compiled = framejit.compile(f)
    for given in calls:
        outcomes = []
        for run, cache in ((compiled, cached), (g, other)):
            try:
                result = run(*given)
            except Exception as error:
                result = type(error), str(error)
            outcomes.append((result, tuple(cache.cache_info())))
        assert_same(*outcomes)
    info = framejit.cache_info()
    assert info["internal_errors"] == 0
    return info["graphs"], info["breaks"], info["eager_replays"]


def test_a_cached_function_that_raises_has_missed():
    def make():
        @functools.lru_cache
        def checked(n):
            if n > 2:
                raise ValueError(f"{n} is too large")
            return n + 1

        def f(x, n):
            try:
                return x * checked(n)
            except ValueError as error:
                return x, str(error)
        return f, checked

    assert both(make, [(X, n) for n in (1, 3, 3, 2, 5, 1)])[2] == 0


def test_arguments_that_put_each_other_out_of_the_cache_are_counted_once():
    def make():
        @functools.lru_cache(maxsize=1)
        def table(n):
            return np.arange(n)

        def f(x):
            return x[:, :3] + table(3), x + table(4)
        return f, table

    assert both(make, [(X + i,) for i in range(5)])[2] == 0


def test_a_small_cache_of_numbers_and_objects():
    def make():
        @functools.lru_cache(maxsize=2)
        def part(n):
            return n * 2 if n < 3 else [n]

        def f(x):
            return x + part(1) + part(2), part(3)[0], x * part(1)
        return f, part

    assert both(make, [(X + i,) for i in range(6)])[2] == 0


def test_a_cache_that_was_cleared_has_counted_nothing_that_did_not_happen():
    def make():
        @functools.lru_cache
        def table(n):
            return [n]

        @functools.lru_cache
        def scale(n):
            return n * 0.5

        def f(x, clear):
            if clear:
                table.cache_clear()
            return x * scale(3) + table(2)[0]
        return f, scale

    both(make, [(X, False), (X, False), (X, False), (X, True), (X, False), (X, True)])


SHAPES = [np.arange(24.0).reshape(3, 8), np.asfortranarray(np.arange(24.0).reshape(3, 8)), np.arange(48.0).reshape(3, 2, 8), np.arange(48.0).reshape(8, 2, 3).T,
          np.arange(3.0).reshape(3, 1), np.arange(24.0).reshape(3, 8)[::-1]]


@pytest.mark.parametrize("x", SHAPES, ids=lambda x: f"{x.shape}{x.strides}")
def test_what_lists_pick_beside_new_axes_has_numpy_s_strides(x):
    def f(x):
        return [x[[0, 1], None], x[range(2), None], x[None, [0, 1]], x[[0, 1], :, None], x[None, [0, 1], None], x[np.array([0, 1]), None], x[..., None, [0, 0]],
                x[None, :, [0, 0]], x[[0, 1], None, 0], x[[0, 1], ..., None], x[np.array([[0], [1]]), None], x[[0, 1], 0:1], x[[0, 1], None, :1, None], x[x[..., 0] > 1, None]]

    framejit.reset()
    compiled = framejit.compile(f)
    actual, expected = compiled(x), f(x)
    assert [part.strides for part in actual] == [part.strides for part in expected]
    assert_same(actual, expected)
    assert framejit.cache_info()["breaks"] == 0


@needs_torch
def test_a_cache_keyed_by_dtypes_and_devices():
    calls = []

    @functools.lru_cache(maxsize=None)
    def mask(n, dtype, device, shape=(1, 2)):
        calls.append(n)
        return torch.tril(torch.ones(n, n, dtype=dtype, device=device))

    def f(x):
        return x * mask(x.shape[0], x.dtype, x.device, (2, 3)) + 1

    x = torch.ones(4, 4)
    compiled = framejit.compile(f)
    for _ in range(3):
        assert_same(compiled(x), f(x))
    assert calls == [4] and len(framejit.explain(compiled).so_far().graphs[-1].nodes) > 1
    assert_same(compiled(x.double()), f(x.double()))
    mask(4, torch.float32, x.device, (2, 3)).mul_(5)  # what the cache holds is what is computed with
    assert_same(compiled(x), f(x))
    mask.cache_clear()
    assert_same(compiled(x), x * torch.tril(x) + 1)
    assert calls == [4, 4, 4]
