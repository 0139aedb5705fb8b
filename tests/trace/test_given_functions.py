"""Functions that are given to compiled code and made anew for each call: what counts is their code and what it reads.

`SAME` lists ways to hand one over: one graph serves them all. `DIFFERENT` lists what makes the next function another one although its
code is the same: the result is eager's, call by call.
"""
import collections
import contextlib
import functools
import operator
import types

import numpy as np
import pytest

import framejit
from harness import Outcome, compare

X = np.array([[1.0, -2.0, 3.0], [0.5, 4.0, -1.0]])


def scale(i):
    return np.array(i + 0.5)


def scaled(i):
    k = scale(i)
    return lambda v: v * k


def nested(i):
    inner = scaled(i)
    return lambda v: inner(v) + 1


def with_default(i):
    return lambda v, k=scale(i): v * k


def with_keyword_default(i):
    return lambda v, *, k=scale(i): v * k


def with_default_function(i):
    return lambda v, inner=scaled(i): inner(v)


def decorated(i):
    function = scaled(i)

    @functools.wraps(function)
    def wrapper(*arguments, **keywords):
        return function(*arguments, **keywords) + 1
    return wrapper


def recursive(i):
    k = scale(i)

    def walk(v, n=3):
        return v * k if n == 0 else walk(v, n - 1) + 1
    return walk


def generating(i):
    k = scale(i)

    def parts(v):
        for n in range(3):
            yield v * k + n
    return parts


def counting(i):
    count = 0

    def step(v):
        nonlocal count
        count += 1
        return v * count
    return step


def managed(i):
    k = scale(i)

    @contextlib.contextmanager
    def manager():
        yield k
    return manager


class Scaling:
    def __init__(self, k):
        self.k = k

    def __call__(self, v):
        return v * self.k

    def method(self, v):
        return v * self.k + 2


class Holder:
    __slots__ = ("function", "__dict__")


def held(i, name="function"):
    holder = Holder()
    setattr(holder, name, scaled(i))
    return holder


def with_attribute(i):
    function = scaled(i)
    function.offset = scale(i + 1)
    return function


def other(v):
    return v


def called(x, g):
    return g(x) + 1


def used_with_a_context(x, manager):
    with manager() as k:
        return x * k


def chained(f, g):
    return lambda v: f(g(v))


SAME = {
    "closure": (called, scaled),
    "closure of a closure": (called, nested),
    "default": (called, with_default),
    "keyword default": (called, with_keyword_default),
    "default that is a function": (called, with_default_function),
    "decorated": (called, decorated),
    "what a decorator wraps": (lambda x, g: g.__wrapped__(x), decorated),
    "partial": (called, lambda i: functools.partial(lambda v, k: v * k, k=scale(i))),
    "partial of the first argument": (called, lambda i: functools.partial(lambda k, v: v * k, scale(i))),
    "callable instance": (called, lambda i: Scaling(scale(i))),
    "bound method": (called, lambda i: Scaling(scale(i)).method),
    "closure as a method": (called, lambda i: types.MethodType(lambda self, v: v * self, scale(i))),
    "list": (lambda x, gs: sum(g(x) for g in gs), lambda i: [scaled(i), scaled(i + 1)]),
    "dict": (lambda x, gs: {name: g(x) for name, g in gs.items()}, lambda i: {"a": scaled(i), "b": nested(i)}),
    "deque": (lambda x, gs: gs[0](x), lambda i: collections.deque([scaled(i)])),
    "attribute": (lambda x, h: h.other(x), lambda i: held(i, "other")),
    "slot": (lambda x, h: h.function(x), held),
    "recursive": (called, recursive),
    "generator function": (lambda x, g: sum(g(x)), generating),
    "context manager": (used_with_a_context, managed),
    "nonlocal written": (lambda x, g: g(x) + g(x), counting),
    "attribute of the function": (lambda x, g: g(x) * g.offset, with_attribute),
    "no such attribute": (lambda x, g: g(x) * getattr(g, "offset", 2.0), scaled),
    "not None": (lambda x, g: g(x) if g is not None and callable(g) and not isinstance(g, int) else x, scaled),
    "not another one": (lambda x, g: g(x) if g is not other and g != other and g not in (other, called) else x, scaled),
    "one twice": (lambda x, gs: gs[0](x) if gs[0] is gs[1] else x, lambda i: [scaled(i)] * 2),
    "map, filter, reduce, sorted": (lambda x, g: (sum(map(g, [x, x])), sorted([3, 1, 2], key=g), list(filter(g, [0, 1])), functools.reduce(g, [1, 2])),
                                    lambda i: lambda v, w=1: v * w),
    "composed in the trace": (lambda x, g: chained(g, functools.partial(g))(x), scaled),
    "getters": (lambda x, gs: [g(x) for g in gs], lambda i: [operator.itemgetter(1), operator.attrgetter("T"), operator.methodcaller("sum", 0)]),
}


def compare_calls(compiled, function, make, i):
    compare(*(Outcome(lambda i: run(X, make(i)), (i,), {}) for run in (compiled, function)))


@pytest.mark.parametrize("name", SAME)
def test_a_function_made_anew_needs_no_graph_of_its_own(name):
    function, make = SAME[name]
    compiled = framejit.compile(function)
    for i in range(6):
        compare_calls(compiled, function, make, i)
    info = framejit.cache_info()
    assert info["graphs"] == 1 and info["breaks"] == 0


def test_a_function_that_is_given_back_is_that_very_one():
    compiled = framejit.compile(lambda x, g: (g(x), [g, g], {"g": g}))
    for i in range(4):
        given = scaled(i)
        value, both, named = compiled(X, given)
        np.testing.assert_array_equal(value, given(X))
        assert both[0] is given and both[1] is given and named["g"] is given
    assert framejit.cache_info()["graphs"] == 1


def test_what_a_function_writes_to_its_own_variables_is_there_afterwards():
    compiled = framejit.compile(lambda x, g: g(x) + g(x))
    for i in range(3):
        given = counting(i)
        np.testing.assert_array_equal(compiled(X, given), X * 3)
        np.testing.assert_array_equal(given(X), X * 3)
    assert framejit.cache_info()["graphs"] == 1


def test_a_compiled_function_in_another_is_the_code_it_wraps():
    compiled = framejit.compile(called)
    for i in range(4):
        np.testing.assert_array_equal(compiled(X, framejit.compile(scaled(i))), X * scale(i) + 1)
    assert framejit.cache_info()["graphs"] == 1


def rebound(i):
    k = scale(i)

    def function(v):
        return v * k

    def rebind(value):
        nonlocal k
        k = value
    rebind([2.0, scale(7), np.ones((2, 3)), 3][i])
    return function


def of_module(i):
    namespace = {"__name__": f"module_{i}", "offset": float(i), "np": np}
    if i == 2:
        del namespace["offset"]
        namespace["__builtins__"] = {"offset": 9.0, "abs": lambda v: v}
    return types.FunctionType(reads_a_global.__code__, namespace)


def reads_a_global(v):
    return abs(v) + offset  # noqa: F821


def of_own_module(i):
    return reads_a_number if i % 2 else types.FunctionType(reads_a_number.__code__, {"number": scale(i)})


number = 5.0


def reads_a_number(v):
    return v + number


def code_replaced(i):
    def function(v):
        return v + 1
    if i % 2:
        function.__code__ = (lambda v: v - 1).__code__
    return function


def defaults_replaced(i):
    def function(v, a=1.0, b=2.0):
        return v * a + b
    function.__defaults__ = [(1.0, 2.0), (3.0, 4.0), (0.0, 5.0, 6.0), (7.0, np.ones(3))][i]
    return function


def keyword_defaults_replaced(i):
    def function(v, *, a=1.0, b=2.0):
        return v * a + b
    function.__kwdefaults__ = [{"a": 1.0, "b": 2.0}, {"b": 1.0, "a": 3.0}, {"a": 2.0, "b": 2.0, "c": 3.0}, {"a": np.ones(3), "b": 1}][i]
    return function


def empty_cell(i):
    def function(v):
        return v * k
    k = 3.0
    if i % 2:
        del k
    return function


def sharing(i):
    """Two functions over one variable, or over two."""
    def pair():
        count = 1

        def add(v):
            nonlocal count
            count += 1
            return v * count

        def read(v):
            return v + count
        return add, read
    first = pair()
    return first if i % 2 else (first[0], pair()[1])


def marked(i):
    def function(v):
        return v + 1
    return framejit.disable(function) if i % 2 else function


DIFFERENT = {
    "cells": (called, rebound),
    "globals and builtins": (called, of_module),
    "globals of the compiled function, or others": (called, of_own_module),
    "code": (called, code_replaced),
    "defaults": (called, defaults_replaced),
    "keyword defaults": (called, keyword_defaults_replaced),
    "empty cells": (called, empty_cell),
    "cells that are one": (lambda x, gs: (gs[0](x), gs[1](x)), sharing),
    "disabled": (called, marked),
    "a partial or what it is of": (called, lambda i: functools.partial(scaled(i)) if i % 2 else scaled(i)),
    "attributes": (lambda x, g: g(x) * getattr(g, "offset", 2.0), lambda i: with_attribute(i) if i % 2 else scaled(i)),
    "the same one twice, or two": (lambda x, gs: gs[0](x) if gs[0] is gs[1] else gs[1](x) * 2, lambda i: [scaled(i)] * 2 if i % 2 else [scaled(i), scaled(i)]),
    "another one": (lambda x, g: g(x) if g is not other else x - 1, lambda i: other if i % 2 else scaled(i)),
    "by ==": (lambda x, g: g(x) if g != other else x - 1, lambda i: other if i % 2 else scaled(i)),
    "in a tuple": (lambda x, g: x if g in (other, called) else g(x), lambda i: other if i % 2 else scaled(i)),
    "keys of a dict": (lambda x, g: {g: x, other: x + 1}[other], lambda i: other if i % 2 else scaled(i)),
    "names": (lambda x, g: (g(x), g.__name__), lambda i: renamed(scaled(i), f"n{i // 2}")),
    "getters of other parts": (called, lambda i: [operator.itemgetter(0), operator.itemgetter(1), operator.attrgetter("T"), operator.methodcaller("sum", axis=0)][i]),
    "getters of slices": (called, lambda i: operator.itemgetter((0, slice(0, i)))),
}


def renamed(function, name):
    function.__name__ = name
    return function


@pytest.mark.parametrize("name", DIFFERENT)
def test_what_makes_a_function_another_one_is_seen(name):
    function, make = DIFFERENT[name]
    compiled = framejit.compile(function)
    for i in [0, 0, 1, 1, 2, 3, 2, 1, 0, 3]:
        compare_calls(compiled, function, make, i)
    assert framejit.cache_info()["internal_errors"] == 0


def test_a_function_that_is_changed_between_calls_is_looked_at_again():
    k = 2.0

    def g(v, a=1.0, *, b=1.0):
        return v * k + a + b

    compiled = framejit.compile(called)

    def both():
        np.testing.assert_array_equal(compiled(X, g), called(X, g))
    both()
    both()
    k = 3.0
    both()
    g.__defaults__ = (5.0,)
    both()
    g.__kwdefaults__["b"] = 7.0
    both()
    g.__kwdefaults__ = {"b": 8.0}
    both()
    g.__code__ = (lambda v, a, *, b: v - k - a - b).__code__
    both()
    del k
    with pytest.raises(NameError):
        compiled(X, g)
