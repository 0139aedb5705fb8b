"""Values of many parts, as in test_many_parts.py, of NumPy's arrays."""
import numpy as np
import pytest

import framejit


def check(fn, *arrays):
    compiled = framejit.compile(fn, fullgraph=True)
    for _ in range(2):
        expected_arguments, given = [a.copy() for a in arrays], [a.copy() for a in arrays]
        expected, found = fn(*expected_arguments), compiled(*given)
        assert found.dtype == expected.dtype and found.strides == expected.strides
        np.testing.assert_array_equal(found, expected)
        for a, b in zip(given, expected_arguments):
            np.testing.assert_array_equal(a, b)


def test_numpy_arrays():
    check(lambda a: np.concatenate([a[i : i + 2] * i for i in range(12)]), np.arange(600.0).reshape(20, 30))
    check(lambda a: np.stack([a[:, i] for i in range(12)], 1), np.arange(480).reshape(40, 12))
    check(lambda a: np.hstack([a[:, i : i + 2] for i in range(12)]), np.arange(60.0).reshape(4, 15))


def test_columns_that_are_written():
    def written(x):
        out, h = np.empty_like(x), np.zeros(len(x))
        for t in range(x.shape[1]):
            h = 0.5 * h + x[:, t]
            out[:, t] = h
        return out

    check(written, np.random.default_rng(0).random((40, 12)))


def test_numpy_reports_what_is_computed_for_the_parts():
    def divided(a):
        return np.concatenate([a / (a - i) for i in range(12)])

    with pytest.warns(RuntimeWarning, match="divide by zero"):
        expected = divided(np.arange(1.0, 50.0))
    with pytest.warns(RuntimeWarning, match="divide by zero"):
        found = framejit.compile(divided)(np.arange(1.0, 50.0))
    np.testing.assert_array_equal(found, expected)
