"""Small parts of large arrays: what is written costs time, not the array."""
import numpy as np
import pytest

import framejit
from harness import both_libraries, needs_torch, same_as_eager, torch


def elements(x, y):
    x[5] = 1.0
    x[7] = 2.0
    x[9] = x[5] + x[7]
    x[-1] = y[0]


def slices(x, y):
    for k in range(6):
        x[k * 50:k * 50 + 5] = y[k:k + 5]
    x[100:110] += x[105:115]
    x[102:112] = x[100:110] * 2


def rows_and_columns(x, y):
    m = x.reshape(40, 25)
    m[3] = y[:25]
    m[:, 7] = m[:, 8] + 1
    m[5:7, 2:20:3] += y[:6]
    m[3, 7] = 9


def turned(x, y):
    m = x.reshape(20, 50).T
    m[4] = y[:20]
    m[10:12, 3] = 1.0
    m.reshape(50, 20)[40] = 2.0


def exchanged(x, y):
    old = x[10:20] + 0
    x[10:20] = y[:10]
    y[:10] = old
    return x[5:15] + 1


def returned(x, y):
    x[3:6] = y[:3]
    return x[::2] + 1, x[4]


PROGRAMS = [elements, slices, rows_and_columns, exchanged, returned]


@both_libraries
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_parts_are_written(lib, program):
    same_as_eager(program, lib.sample(1000), lib.sample(60, seed=1), exact=True)


def test_parts_of_what_is_turned():
    same_as_eager(turned, np.random.default_rng(0).random(1000), np.random.default_rng(1).random(60), exact=True)


@both_libraries
def test_parts_of_arrays_with_gaps(lib):
    def gaps(x, y):
        x[3] = y[0]
        x[5:9] = y[:4] + x[4:8]

    same_as_eager(gaps, lib.sample((1000, 3))[::2, 1], lib.sample(60, seed=1), exact=True)


def transposed(x, y):
    m = x.reshape(25, 40)[:, :25]
    m[:] = m.T + 0
    m[0, 0] = 5.


def turned_itself(x, y):
    x[:] = x.T
    x[0, 0] = 5.


def turned_and_cut(x, y):
    x[:] = x.T.reshape(x.shape)
    x[1, 2:4] = y[:2]


def axes_exchanged(x, y):
    x[:] = x.swapaxes(0, 1)
    x[0, 1, 2] = 5.
    x[3, 3] = y[0]


def turned_twice(x, y):
    x[:] = x.T
    x[0, 1] = 5.
    x[:] = x.T


@pytest.mark.parametrize("shape, program", [((1000,), transposed), ((20, 20), turned_itself), ((6, 4), turned_and_cut), ((1, 9), turned_and_cut),
                                            ((8, 8, 8), axes_exchanged), ((20, 20), turned_twice)], ids=lambda value: getattr(value, "__name__", ""))
def test_parts_of_what_has_been_turned_within_itself(shape, program):
    """What is not written after it was turned lies elsewhere too."""
    same_as_eager(program, np.random.default_rng(0).random(shape), np.random.default_rng(1).random(60), exact=True)


@needs_torch
def test_parts_of_a_tensor_that_has_been_turned_within_itself():
    def program(x):
        x.copy_(x.t().clone())
        x[0, 1] = 5.

    same_as_eager(program, torch.arange(400.).reshape(20, 20), exact=True)


def test_what_additions_into_an_input_report_is_reported():
    def add(x, i, y):
        np.add.at(x, i, y)

    x = np.zeros(1000)
    x[0] = 1e308
    same_as_eager(add, x, np.array([0, 0, 5]), np.array([1e308, 1e308, 1.]), exact=True, fallback=True)
    with np.errstate(over="raise"):
        same_as_eager(add, x, np.array([0, 0, 5]), np.array([1e308, 1e308, 1.]), exact=True, fallback=True)


@both_libraries
def test_several_scatters(lib):
    index = lib.array(np.array([3, 900, 3, -1, 20]))

    def scatters(x, y):
        x[index] = y[:5]
        x[index + 1 - (index == -1) * 2] = y[5:10] * 2
        return y + 1

    same_as_eager(scatters, lib.sample(1000), lib.sample(60, seed=1), exact=True)


@both_libraries
def test_a_scatter_that_fails_has_written_nothing_before(lib):
    def scatters(x, y, index):
        x[index] = y
        x[index + 1] = y
        return y + 1

    compiled = framejit.compile(scatters)
    good, bad = lib.array(np.array([3, 5, 990])), lib.array(np.array([3, 5, 999]))
    for index in (good, bad, good):
        ours, theirs, y = lib.sample(1000), lib.sample(1000), lib.sample(3, seed=1)
        outcomes = []
        for function, x in ((compiled, ours), (scatters, theirs)):
            try:
                outcomes.append(function(x, y, index))
            except IndexError as error:
                outcomes.append(str(error))
        assert type(outcomes[0]) is type(outcomes[1])
        np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))


def a_program(seed):
    """Six statements that write elements, slices, rows and picked elements of `x` (600 elements) and `m`, which shows it."""
    random = np.random.default_rng(seed)

    def a_slice(size, count, step=None):
        step = step or int(random.choice([1, 2, 3]))
        start = int(random.integers(0, size - count * step))
        return f"{start}:{start + count * step}:{step}"

    def a_place():
        kind = random.integers(5)
        if kind == 0: return f"x[{random.integers(-600, 600)}]"
        if kind == 1: return f"x[{a_slice(600, 8)}]"
        if kind == 2: return f"m[{random.integers(20)}, {a_slice(30, 8)}]"
        if kind == 3: return f"m[{a_slice(20, 1, 1)}, {a_slice(30, 8)}]"
        return "x[i]" if random.integers(3) else "x[i + 1]"

    lines = []
    for _ in range(6):
        place = a_place()
        scalar = place.startswith("x[") and ":" not in place and "i" not in place
        value = "y[3]" if scalar else random.choice(["y", "1.5", "x[40:48] + 0", "m[4, 5:13] * y", "y + m[:8, 3]"])
        lines.append(f"    {place} {random.choice(['=', '=', '+=', '*='])} {value}")
    text = "def program(x, y, i):\n    m = x.reshape(20, 30)\n" + "\n".join(lines) + "\n    return x[:50] * 2\n"
    names = {}
    exec(text, names)  # noqa: S102
    return text, names["program"]


@both_libraries
@pytest.mark.parametrize("seed", range(40))
def test_random_writes(lib, seed):
    text, program = a_program(seed)
    index = lib.array(np.random.default_rng(seed).permutation(500)[:8])
    try:
        same_as_eager(program, lib.sample(600), lib.sample(8, seed=1), index, exact=True, compiles=False)
    except AssertionError as error:
        raise AssertionError(text) from error
