"""Sums are as exact as the library's: at most 2 units in the last place further from the exact sum."""
import itertools

import numpy as np
import pytest

import framejit
from harness import needs_torch, torch

LIBRARIES = ["numpy", pytest.param("torch", marks=needs_torch)]
DTYPES = ["float32", "float64"]
SIZES = [1 << 10, 1 << 13, (1 << 16) + 77, 1 << 20]

NUMBERS = {
    "equal": lambda n, rng: np.full(n, 0.1),
    "equal_odd": lambda n, rng: np.full(n, 1.9371),
    "uniform": lambda n, rng: rng.random(n),
    "signs": lambda n, rng: rng.random(n) * np.where(np.arange(n) % 2, -1, 1),
    "sorted": lambda n, rng: np.sort(rng.random(n)),
}


def numbers(kind, n, dtype):
    return NUMBERS[kind](n, np.random.default_rng(n)).astype(dtype)


def given(library, x):
    return x if library == "numpy" else torch.from_numpy(x)


def exact_sum(x, axis=None):
    x = x.astype(np.clongdouble if x.dtype.kind == "c" else np.longdouble)
    # NumPy adds pairwise along memory only.
    return x.sum() if axis is None else np.ascontiguousarray(np.moveaxis(x, axis, -1)).sum(-1)


def errors(result, exact, magnitude, count, dtype):
    """In units in the last place of the exact sum, or of what so many terms of random signs come to if that is more."""
    ulp = np.spacing(np.maximum(np.abs(exact), magnitude / np.sqrt(count)).astype(dtype)).astype(np.longdouble)
    wide = np.clongdouble if np.iscomplexobj(np.asarray(result)) else np.longdouble
    return float(np.max(np.abs(np.asarray(result).astype(wide) - exact) / ulp))


def errors_of_both(function, library, x, axis=None, of=None, dtype=None):
    argument = given(library, x)
    terms = x if of is None else of(x)
    dtype, count = dtype or x.dtype, terms.size if axis is None else terms.shape[axis]
    exact, magnitude = exact_sum(terms, axis), exact_sum(np.abs(terms), axis)
    results = function(argument), framejit.compile(function)(argument)
    return [errors(result, exact, magnitude, count, dtype) for result in results]


def as_exact(function, library, x, axis=None, of=None, dtype=None):
    """`of`: what the function adds up, in float64 or wider; x itself if not given."""
    eager, compiled = errors_of_both(function, library, x, axis, of, dtype)
    assert compiled <= eager + 2, (eager, compiled)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", NUMBERS)
def test_whole_sums(library, dtype, kind):
    for n in SIZES:
        # The order of additions is the machine's: one sum of few numbers is exact by chance, in the library or here.
        seeds = range(n, n + (20 if n < 1 << 16 else 1))
        draws = [NUMBERS[kind](n, np.random.default_rng(seed)).astype(dtype) for seed in seeds]
        eager, compiled = zip(*(errors_of_both(lambda x: x.sum(), library, x) for x in draws))
        assert max(compiled) <= max(eager) + 2, (eager, compiled)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", NUMBERS)
def test_sums_along_rows_and_columns(library, dtype, kind):
    for n in SIZES[1:]:
        x = numbers(kind, n, dtype)
        for short in (3, 40, 1100):
            long = n // short
            as_exact(lambda x: x.sum(1), library, x[: long * short].reshape(short, long), 1)
            as_exact(lambda x: x.sum(0), library, x[: long * short].reshape(long, short), 0)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(64, 5, 700), (700, 64, 3), (3, 70000, 2)], ids=str)
def test_sums_over_several_axes(library, dtype, shape):
    for kind in ("equal", "uniform"):
        x = numbers(kind, int(np.prod(shape)), dtype).reshape(shape)
        as_exact(lambda x: x.sum((0, 2)), library, x, 0, lambda x: np.moveaxis(x, 1, -1).reshape(-1, shape[1]))


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", NUMBERS)
def test_means_and_sums_behind_elementwise_work(library, dtype, kind):
    n = 1 << 18
    x = numbers(kind, n, dtype)
    as_exact(lambda x: x.mean() * n, library, x)
    as_exact(lambda x: (x * x).sum(), library, x, of=lambda x: x * x)
    as_exact(lambda x: (abs(x) * 2 + x).sum(), library, x, of=lambda x: abs(x) * 2 + x)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["equal_odd", "uniform", "sorted"])
def test_variances(library, dtype, kind):
    x = numbers(kind, 1 << 18, dtype) + np.arange(1 << 18, dtype=dtype) % 2
    wide = x.astype(np.longdouble)
    exact = np.mean((wide - wide.mean()) ** 2)
    options = {} if library == "numpy" else {"correction": 0}
    for function, goal in ((lambda x: x.var(**options), exact), (lambda x: x.std(**options), np.sqrt(exact))):
        runs = function, framejit.compile(function)
        eager, compiled = (np.longdouble(run(given(library, x)).item()) for run in runs)
        ulp = np.spacing(np.dtype(dtype).type(goal))
        assert abs(compiled - goal) / ulp <= abs(eager - goal) / ulp + 2


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex_sums(library, dtype):
    real = "float32" if dtype == "complex64" else "float64"
    for kind in ("equal", "uniform", "sorted"):
        for n in SIZES:
            x = (numbers(kind, n, real) + 1j * numbers(kind, n, real)[::-1]).astype(dtype)
            as_exact(lambda x: x.sum(), library, x, dtype=real)
            as_exact(lambda x: x.sum(0), library, x[: n // 8 * 8].reshape(-1, 8), axis=0, dtype=real)


@needs_torch
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("kind", ["equal", "uniform", "sorted"])
def test_sums_of_half_types_in_float32(dtype, kind):
    x = torch.from_numpy(numbers(kind, 1 << 20, "float32")).to(getattr(torch, dtype))
    exact = exact_sum(x.double().numpy())
    function = lambda x: x.sum(dtype=torch.float32)
    runs = function, framejit.compile(function)
    eager, compiled = (errors(run(x).numpy(), exact, exact, x.numel(), "float32") for run in runs)
    assert compiled <= eager + 2


@pytest.mark.parametrize("dtype", DTYPES)
def test_infinities_in_long_sums_raise_no_condition_of_ours(dtype):
    x = np.full(100_000, 0.1, dtype)
    x[12345] = np.inf
    with np.errstate(all="raise"):
        assert framejit.compile(lambda x: x.sum())(x) == np.inf
        assert np.allclose(framejit.compile(lambda x: x.sum(0))(x.reshape(-1, 2)), [5000, np.inf])


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("size", [64, 264, 528, 1000, 4104, 20000])
def test_what_is_no_number_reaches_the_sum_from_each_place(library, size):
    """A NaN in the last block of a sum was taken for a rounding error that an infinity had made."""
    whole = [lambda x: x.sum(), lambda x: x.reshape(8, -1).sum(1), lambda x: x.reshape(-1, 8).sum(0), lambda x: x.mean()]
    for function in whole:
        compiled = framejit.compile(function, dynamic=False)
        for dtype, place, value in itertools.product(["float32", "float64"], [0, 5, size // 2, size - 1], [np.nan, np.inf, -np.inf]):
            x = (np.arange(size) % 3).astype(dtype)
            x[place] = value
            x = given(library, x)
            found, expected = np.asarray(compiled(x)), np.asarray(function(x))
            assert np.array_equal(np.isnan(found), np.isnan(expected)) and np.array_equal(np.isinf(found), np.isinf(expected)), (dtype, place, value)
