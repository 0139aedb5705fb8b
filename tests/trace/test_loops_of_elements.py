"""Loops whose passes have too little array work for a piece of their own are CPython's, those that have enough are not."""
import functools
import math
import signal

import numpy as np
import pytest

import framejit
from harness import needs_torch, torch

# As outside of the tests, where conftest.py turns it off.
compile = functools.partial(framejit.compile, retire=True)


@pytest.fixture(autouse=True)
def fresh():
    framejit.reset()
    yield
    framejit.reset()


def counts(names=("segments", "kernels_launched", "retired")):
    info = framejit.cache_info()
    return {name: info[name] for name in names}


def smoothed(x, weight):
    y = np.empty_like(x)
    last = x[0]
    for i in range(len(x)):
        last = weight * x[i] + (1 - weight) * last
        y[i] = last
    return y


def run_lengths(values):
    lengths, before, count = [], None, 0
    for value in values:
        if value != before:
            if count:
                lengths.append(count)
            before, count = value, 0
        count += 1
    return lengths + [count]


def table(a, b):
    best = np.zeros((len(a) + 1, len(b) + 1), dtype=np.int64)
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            if a[i - 1] == b[j - 1]:
                best[i, j] = best[i - 1, j - 1] + 1
            else:
                best[i, j] = max(best[i - 1, j], best[i, j - 1])
    return best


def collatz(n):
    lengths = np.zeros(n, dtype=np.int64)
    for start in range(1, n):
        value, steps = start, 0
        while value != 1:
            value = value // 2 if value % 2 == 0 else 3 * value + 1
            steps += 1
        lengths[start] = steps
    return lengths


NUMBERS = np.random.default_rng(0)
ELEMENTS = [
    (smoothed, lambda n: (NUMBERS.random(n), 0.25)),
    (run_lengths, lambda n: (NUMBERS.integers(0, 3, n),)),
    (table, lambda n: (NUMBERS.integers(0, 4, n // 8 + 3), NUMBERS.integers(0, 4, n // 8 + 3))),
    (collatz, lambda n: (n,)),
]


@pytest.mark.parametrize("function, arguments", ELEMENTS, ids=[function.__name__ for function, _ in ELEMENTS])
@pytest.mark.parametrize("size", [2, 10, 300])
def test_results_are_the_function_s(function, arguments, size):
    compiled = compile(function)
    for _ in range(4):
        given = arguments(size)
        expected = function(*given)
        found = compiled(*given)
        assert type(found) is type(expected)
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("function, arguments", ELEMENTS, ids=[function.__name__ for function, _ in ELEMENTS])
def test_from_the_second_call_on_no_pass_is_a_piece(function, arguments):
    compiled = compile(function)
    for _ in range(2):
        compiled(*arguments(400))
    before = counts()
    compiled(*arguments(400))
    after = counts()
    assert after["segments"] == before["segments"]
    assert after["kernels_launched"] - before["kernels_launched"] <= 16  # what comes before the loop, and its first passes at the most


def test_passes_with_array_work_stay_pieces():
    def relaxed(u, limit):
        steps = 0
        while steps < 400:
            change = 0.25 * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2]) - u[1:-1, 1:-1]
            u[1:-1, 1:-1] += np.clip(change, -1, 1)  # of which no region knows
            steps += 1
            if np.abs(change).max() < limit:
                break
        return u, steps

    compiled = compile(relaxed)
    for _ in range(3):
        grid = NUMBERS.random((120, 120))
        launched = counts()["kernels_launched"]
        (found, steps), (expected, expected_steps) = compiled(grid.copy(), 5e-3), relaxed(grid.copy(), 5e-3)
        np.testing.assert_array_equal(found, expected)
        assert steps == expected_steps
        assert counts()["kernels_launched"] - launched >= steps > 20
    assert counts()["retired"] == 0


def test_a_loop_of_elements_in_a_loop_of_arrays_leaves_the_arrays_compiled():
    def rounds(x, picks):
        total = 0
        for _ in range(40):
            x = np.sqrt(np.abs(x * 1.5 - 0.25)) + x * 0.125
            for pick in picks:
                total += pick if pick % 3 else 1
            print(end="")
        return x, total

    compiled = compile(rounds)
    x, picks = NUMBERS.random(50_000), [int(pick) for pick in NUMBERS.integers(0, 100, 500)]
    for _ in range(3):
        launched = counts()["kernels_launched"]
        found, expected = compiled(x, picks), rounds(x, picks)
        np.testing.assert_array_equal(found[0], expected[0])
        assert found[1] == expected[1]
        assert counts()["kernels_launched"] - launched >= 39


@pytest.mark.parametrize("library", [np, pytest.param(torch, marks=needs_torch)])
def test_a_function_that_is_given_much_more_is_judged_anew(library):
    def decayed(x):
        for _ in range(300):
            x = x * 0.5 + 0.25
            print(end="")
        return x

    compiled = compile(decayed)
    for _ in range(3):
        np.testing.assert_array_equal(compiled(library.ones(4)), decayed(library.ones(4)))
    assert counts()["retired"] == 1
    launched = counts()["kernels_launched"]
    np.testing.assert_array_equal(compiled(library.ones(100_000)), decayed(library.ones(100_000)))
    assert counts()["kernels_launched"] - launched >= 299


@needs_torch
def test_modules_with_loops_are_called_once_each():
    """What the loop's function is given is measured before anything is known about it, tensors at any place in memory too."""
    x = torch.ones(3, 6)
    for _ in range(40):
        model = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.ReLU(), torch.nn.Linear(6, 1))
        torch.testing.assert_close(compile(model)(x * 1), model(x))


def test_an_exception_in_a_pass_is_the_program_s():
    def inverted(values):
        found = []
        for value in values:
            found.append(1 / value)
        return found

    compiled = compile(inverted)
    values = [float(number) for number in range(1, 400)]
    for _ in range(3):
        assert compiled(values) == inverted(values)
        with pytest.raises(ZeroDivisionError) as raised:
            compiled(values[:200] + [0.0])
        assert raised.traceback[-1].lineno == inverted.__code__.co_firstlineno + 2


def test_a_variable_that_is_deleted_in_each_pass_is_missed_in_the_second():
    def f(b):
        kept = True
        for _ in b:
            del kept
            b *= b
        return 1

    for retire in (True, False):
        compiled = framejit.compile(f, retire=retire)
        for _ in range(2):
            with pytest.raises(UnboundLocalError):
                compiled(np.ones(5))


def test_a_loop_of_pieces_without_end_is_interrupted():
    def forever(b, n):
        t, c = 0, 0
        while c < 21 and math.sqrt(abs(t)) <= b[-1]:
            while n:
                if c > 4:
                    break
                t = math.log(abs(b[c * 3 % len(b)]) + 1) - (t + b[(c - 2) % len(b)])
                break
        return t

    def interrupt(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for retire in (False, True):
            with pytest.raises(KeyboardInterrupt):
                signal.setitimer(signal.ITIMER_REAL, 1)
                framejit.compile(forever, retire=retire)(np.arange(47, dtype=np.float16), 28)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
