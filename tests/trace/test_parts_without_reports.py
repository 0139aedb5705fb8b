"""What is computed for a part of an array is reported for that part: lanes beside it, which the code computes too, report nothing."""
import warnings

import numpy as np
import pytest

import framejit
from test_regions import same


def divided(a, b):
    x = np.zeros(a.shape, a.dtype)
    x[1:] = a[1:] / b[1:]
    return x


def last(a, b):
    n = len(a)
    x = np.empty(n, a.dtype)
    x[:] = 1
    x[n - 1] = a[n - 1] / b[n - 1]
    return x


def slopes(a, b):
    x = a + 1
    x[:-1] = (a[1:] - a[:-1]) / (b[1:] - b[:-1])
    return x


def logarithms(a, b):
    return np.concatenate([np.log(a[2:] - 0.5), b, np.sqrt(b[1:] - 1), np.arctanh(a[3:] * 0.1)])


def in_place(a, b):
    a = a * 2
    a[2:5] //= b[2:5]
    a[5:8] %= b[5:8]
    a[8:] **= -b[8:]
    return a


def padded(a, b):
    return np.pad(a / b, 3), np.pad(np.arccosh(a), (1, 2)), np.roll(b / a, 2)


FUNCTIONS = [divided, last, slopes, logarithms, in_place, padded]


@pytest.mark.parametrize("dtype", ["float64", "float32", "complex128"])
@pytest.mark.parametrize("f", FUNCTIONS)
def test_nothing_is_reported_of_other_elements(f, dtype):
    if dtype == "complex128" and f is in_place:
        pytest.skip("complex numbers have no remainder")
    for n in (10, 101, 3000):
        framejit.reset()
        compiled = framejit.compile(f, retire=False)
        a, b = (np.linspace(1, 2, n) + 0.1).astype(dtype), (np.linspace(3, 9, n) + 1).astype(dtype)
        for _ in range(3):
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                found, expected = compiled(a, b), f(a, b)
            for ours, theirs in zip(found, expected) if isinstance(found, tuple) else [(found, expected)]:
                assert np.allclose(ours, theirs, rtol=1e-5) and ours.dtype == theirs.dtype
        assert framejit.cache_info()["eager_replays"] == 0


@pytest.mark.parametrize("f", FUNCTIONS)
@pytest.mark.parametrize("place", [0, 1, 4, 5, 50, 99])
def test_what_is_reported_of_an_element_is_reported(f, place):
    compiled = framejit.compile(f, retire=False)
    for zero in ("a", "b"):
        a, b = np.linspace(1, 2, 100) + 0.1, np.linspace(3, 9, 100) + 1
        (a if zero == "a" else b)[place] = 0
        seen, results = [], []
        for function in (f, compiled, compiled):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                result = function(a, b)
            results.append(result if isinstance(result, tuple) else (result,))
            seen.append(sorted({str(w.message) for w in caught}))
            assert all(np.allclose(x, y, equal_nan=True) for x, y in zip(results[-1], results[0]))
        assert seen[0] == seen[1] == seen[2]


def test_parts_of_a_part():
    def f(a, b, k):
        x = np.zeros(len(a))
        x[k:] = a[k:] / b[k:]
        x[k:-k] = 1 / (x[k:-k] + np.log(b[k:-k] - 0.5))
        return x[::2]

    compiled = framejit.compile(f, retire=False)
    a, b = np.linspace(1, 2, 100), np.linspace(3, 9, 100)
    for k in (1, 2, 3, 9):
        assert np.allclose(compiled(a, b, k), f(a, b, k)) and same(compiled(a, b, k).shape, f(a, b, k).shape)
    assert framejit.cache_info()["eager_replays"] == 0
