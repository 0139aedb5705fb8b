"""Long loops over ranges whose passes are pieces, as in test_passes.py, on NumPy's arrays."""
import functools

import numpy as np
import pytest

import framejit
import passes

compile = functools.partial(framejit.compile, retire=True)  # which the other tests are without


def mix(h, x):
    """No region: np.sort and cumsum are not among its functions. Differences in last bits do not grow."""
    return np.sort(np.cos(h + x)) * 0.3 - h.mean() * 0.2 + np.cumsum(h) * 0.01


def check(fn, *arguments, piece=True):
    compiled = compile(fn)
    for _ in range(3):
        copies = [[a.copy() if isinstance(a, np.ndarray) else a for a in arguments] for _ in range(2)]
        expected, found = fn(*copies[0]), compiled(*copies[1])
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
        for a, b in zip(*copies):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
    if piece:
        passes.expect_pieces(compiled)


X = np.random.default_rng(0).random((300, 5))


@pytest.mark.parametrize("bounds", passes.RANGES, ids=str)
def test_ranges(bounds):
    check(passes.over_range(mix, np.zeros_like, *bounds), X)


@pytest.mark.parametrize("at", passes.PASSES)
def test_a_loop_that_ends_at_some_pass(at):
    check(passes.that_ends_at_some_pass(mix), X, at, piece=False)


def test_loops_in_loops_and_lists():
    def loop(x, n):
        h, seen = x[0], []
        for i in range(3):
            for t in range(n):
                h = mix(h, x[t])
                seen.append(h.sum())
            h = h + i
        return h, np.array(seen), i, t

    check(loop, X, 300)
    check(loop, X, 20, piece=False)


def test_warnings_of_some_pass():
    def loop(x):
        h = x[0]
        for t in range(300):
            h = mix(h, x[t]) + (1 / (x[t] - x[150])).clip(-1, 1) * 0.001
        return (h,)

    with np.errstate(divide="ignore"):
        check(loop, X)
    with np.errstate(divide="raise"):
        with pytest.raises(FloatingPointError, match="divide by zero"):
            loop(X)
        with pytest.raises(FloatingPointError, match="divide by zero"):
            compile(loop)(X)


def test_passes_that_know_their_number():
    scales = [float(i % 7) for i in range(300)]

    def loop(x):
        h = x[0]
        for t in range(300):
            h = mix(h, x[t]) * (0.5 if t % 2 else 1.0) + scales[t] * 0.01
        return (h,)

    check(loop, X, piece=False)
