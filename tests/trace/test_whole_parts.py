"""Where the whole part of a computed number is asked for, the number is the library's own (tracer/values/numbers/whole_parts.cpp)."""
import math

import numpy as np
import pytest

import framejit
from harness import assert_same, needs_torch, torch

VALUES = [np.full(21, 1 / 3), np.full(30, 0.1), np.full(9, 1 / 9), np.arange(21) % 3 / 3]


def stored(z, x):
    z[0] = x.sum()
    return z


def filled(x):
    z = np.zeros(3, int)
    z.fill(x.sum())
    return z


ASKED = {
    "int": lambda x: int(x.sum()), "__int__": lambda x: x.sum().__int__(), "__floor__": lambda x: math.floor(x.sum()), "__round__": lambda x: x.sum().__round__(1),
    "is_integer": lambda x: x.sum().is_integer(), "arange": lambda x: np.arange(x.sum()), "arange of a float": lambda x: np.arange(float(x.sum())),
    "int64": lambda x: np.int64(x.sum()), "int8": lambda x: np.int8(x.sum()), "astype": lambda x: x.sum().astype(int), "an element": lambda x: stored(np.zeros(3, np.int32), x),
    "an array": lambda x: np.array([x.sum(), 2.5], int), "fill": filled, "full": lambda x: np.full(2, x.sum(), int), "floor": lambda x: np.floor(x.sum()),
    "ceil": lambda x: np.ceil(x.mean() * 30), "round": lambda x: np.round(x.sum()), "rounded to": lambda x: np.round(x.sum(), 2), "trunc": lambda x: np.trunc(x.sum()),
    "//": lambda x: x.sum() // 1, "%": lambda x: x.sum() % 1, "divmod": lambda x: divmod(x.sum(), 1), "// of a number": lambda x: float(x.sum()) // 1,
    "a root": lambda x: np.floor(np.exp(np.log(x.sum())) * 3),
}


def graph_ops(compiled):
    return [node.op for graph in framejit.explain(compiled).so_far().graphs for node in graph.nodes]


@pytest.mark.parametrize("values", VALUES, ids=len)
@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
def test_the_whole_part_of_a_sum_is_numpy_s(asked, values):
    framejit.reset()
    compiled = framejit.compile(lambda x: (asked(x), x + 1))
    for _ in range(2):
        np.testing.assert_array_equal(compiled(values)[0], asked(values))
    ops = graph_ops(compiled)
    assert "reduce_sum" not in ops and "exp" not in ops and "log" not in ops, ops
    assert framejit.cache_info()["internal_errors"] == 0


@needs_torch
@pytest.mark.parametrize("values", VALUES, ids=len)
@pytest.mark.parametrize("asked", [
    lambda x: x.sum().long(), lambda x: x.sum().to(torch.int32), lambda x: x.sum().floor(), lambda x: torch.round(x.sum()), lambda x: x.sum() // 1, lambda x: x.sum() % 1,
    lambda x: torch.arange(x.sum()), lambda x: torch.arange(x.sum().item()), lambda x: stored(torch.zeros(3, dtype=torch.int64), x), lambda x: int(x.sum()), lambda x: x.sum().item() // 1])
def test_the_whole_part_of_a_sum_is_torch_s(asked, values):
    framejit.reset()
    compiled = framejit.compile(lambda x: (asked(x), x + 1))
    for _ in range(2):
        assert_same(compiled(torch.from_numpy(values))[0], asked(torch.from_numpy(values)), exact=True)
    ops = graph_ops(compiled)
    assert "reduce_sum" not in ops, ops
    assert framejit.cache_info()["internal_errors"] == 0


def test_what_is_not_asked_for_its_whole_part_stays_a_loop_wherever_it_stands():
    def f(x):
        a = np.mean(x, 0)
        n = np.floor(np.sum(x) / 3)
        return a, n, np.mean(x, 1), np.exp(x), [np.sum(x * i) for i in range(2)]

    framejit.reset()
    x = np.arange(12.0).reshape(3, 4)
    compiled = framejit.compile(f)
    assert_same(compiled(x), f(x))
    ops = graph_ops(compiled)
    assert ops.count("reduce_sum") == 4 and ops.count("exp") == 1 and ops.count("extern_call") == 1, ops
    assert framejit.cache_info()["breaks"] == 0


def test_rounding_an_array_stays_a_loop():
    def f(x):
        return x.sum(1).astype(int), np.floor(x.sum(0)), np.floor(x[0, 0]), np.int64(x[1, 1])

    framejit.reset()
    x = np.arange(12.0).reshape(3, 4)
    compiled = framejit.compile(f)
    assert_same(compiled(x), f(x))
    ops = graph_ops(compiled)
    assert ops.count("reduce_sum") == 2 and "extern_call" not in ops, ops


@pytest.mark.parametrize("name", ["__int__", "__float__", "__bool__", "__trunc__", "__complex__", "__abs__", "__neg__", "__round__", "is_integer", "item", "tolist", "hex"])
@pytest.mark.parametrize("x", [np.array([1.25, 2.5]), np.array([1, 2]), np.array([0.5, -0.5])], ids=["float", "int", "zero"])
def test_a_method_of_a_scalar_gives_what_it_says(name, x):
    def f(x):
        try:
            return getattr(x.sum(), name)()
        except AttributeError as error:
            return str(error)

    framejit.reset()
    actual, expected = framejit.compile(f)(x), f(x)
    assert type(actual) is type(expected) and actual == expected
