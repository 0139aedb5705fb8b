"""Captured graphs as functions of the array library, which the back end "eager" runs."""
import re

import numpy as np
import pytest

import framejit
from framejit import _core
from framejit._support import graph_code
from framejit._support.graph_code import operations
from harness import both_libraries, needs_torch, same_as_eager, torch


def test_every_operation_has_a_row():
    assert set(operations) == set(_core.operation_names())


@both_libraries
@pytest.mark.parametrize("name", ["pointwise", "casts", "shapes", "reductions", "indices", "updates", "integers", "products", "scans",
                                  "rounding"])
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

    def rounding(x, y):
        whole = (x * 10).astype(np.int32) if lib.name == "numpy" else (x * 10).int()
        library = np if lib.name == "numpy" else torch
        return library.floor(y), library.ceil(whole) * 1, library.trunc(y * 7), library.round(y * 9), y ** x.shape[0], 2.0 ** y

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


def captured(function, *arguments, **options):
    """The graphs of a call, with the arrays that each was given first."""
    found = []

    def keep(graph, examples):
        found.append((graph, examples))
        return graph_code.replay(graph, examples)

    framejit.compile(function, backend=keep, **options)(*arguments)
    return found


def without_places(graph):
    """Operations with their attributes and types, in no order."""
    return sorted(re.sub(r"%\S+| *;.*| +", " ", line).rstrip() for line in graph.exact_text.splitlines() if " = " in line)


@both_libraries
@pytest.mark.parametrize("name", ["arithmetic", "parts", "reductions", "picked", "several"])
def test_the_graph_of_a_graph_s_code_is_the_graph(lib, name):
    def arithmetic(x, y):
        return lib.where(x > y, lib.tanh(x) / (lib.abs(y) + 1), -y) * 2.5

    def parts(x, y):
        return lib.concatenate([x[1:, ::2], y[:2, :2]]), x.T.reshape(2, 6)[:, 1:5:3] + 1

    def reductions(x, y):
        return x.sum(0), (x * y).max() if lib.name == "numpy" else (x * y).amax(), x.argmax(1), (x > y).all(1)

    def picked(x, y):
        return x[lib.array(np.array([2, 0, -1]))] * 2

    def several(x, y):
        return x @ y.T, x.sum(), (x + y) // 2

    x, y = lib.sample((3, 4)), lib.sample((3, 4), seed=1)
    [(graph, examples)] = captured(locals()[name], x, y)
    again = captured(graph.function(lib.name), *examples)
    assert len(again) == 1 and without_places(again[0][0]) == without_places(graph)


def test_the_source_can_be_read():
    def f(values, scale):
        values[1:3] *= scale
        return np.pad(values, 1)[::-1].sum(axis=1) + len(values)

    [(graph, _)] = captured(f, np.ones((4, 3)), 2.0)
    line = f.__code__.co_firstlineno
    assert graph.source("numpy") == f"""\
def f(values):
    v0 = values[1:3, :]  # test_graph_code.py:{line + 1}
    v1 = numpy.array(2.0).astype(numpy.float64)  # test_graph_code.py:{line + 1}
    v2 = numpy.broadcast_to(v1, (2, 3))  # test_graph_code.py:{line + 1}
    v3 = v0 * v2  # test_graph_code.py:{line + 1}
    updated4 = values.copy()
    updated4[1:3, :] = v3
    v4 = updated4  # test_graph_code.py:{line + 1}
    updated5 = v4.copy()
    updated5[1:3, :] = v3
    v5 = updated5  # test_graph_code.py:{line + 1}
    v6 = numpy.array(0.0).astype(numpy.float64)  # test_graph_code.py:{line + 2}
    padded7 = numpy.broadcast_to(v6, (6, 5)).copy()
    padded7[1:5, 1:4] = v5[0:4, 0:3]
    v7 = padded7  # test_graph_code.py:{line + 2}
    v8 = numpy.flip(v7[0:6, :], (0,))  # test_graph_code.py:{line + 2}
    v9 = numpy.sum(v8, axis=(1,), dtype=numpy.float64)  # test_graph_code.py:{line + 2}
    v10 = numpy.array(4.0).astype(numpy.float64)  # test_graph_code.py:{line + 2}
    v11 = numpy.broadcast_to(v10, (6,))  # test_graph_code.py:{line + 2}
    v12 = v9 + v11  # test_graph_code.py:{line + 2}
    return [v12, v5]
"""


def test_sizes_that_are_computed():
    def f(x):
        return x.reshape(-1, 2)[::-1].sum(0), x[: len(x) // 2][::-2] * 2

    [(graph, _)] = captured(f, np.arange(-3.0, 5.0), dynamic=True)
    run = graph.function("numpy")
    for n in (8, 2, 14, 30):
        x = np.linspace(-1, 2, n)
        for a, b in zip(run(x), f(x), strict=True):
            np.testing.assert_array_equal(a, b)


@both_libraries
def test_names_that_python_has(lib):
    def f(numpy, v0, s0):
        return numpy * v0 + s0

    def sum(len, max, updated2):
        len[1:, 1:] = max[1:, 1:] * 2
        return (max > updated2) & (len < max)

    arrays = [lib.sample((3, 4), seed=i) for i in range(3)]
    given = [a + 0 for a in arrays]
    [(graph, examples)] = captured(sum, *given)
    run = graph.function(lib.name)
    again = [arrays[i] if x is given[i] else None for x in examples for i in range(3) if x is given[i]]
    np.testing.assert_array_equal(np.asarray(run(*again)[0]), np.asarray(sum(*[a + 0 for a in arrays])))
    [(graph, examples)] = captured(f, *arrays)
    run = graph.function(lib.name)
    np.testing.assert_array_equal(np.asarray(run(*examples)[0]), np.asarray(f(*arrays)))
    source = captured(lambda x: x * 2, arrays[0])[0][0]
    assert source.source(lib.name).startswith("def lambda_(x):")
