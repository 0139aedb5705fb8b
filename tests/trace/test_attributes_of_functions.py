"""Attributes of functions that are written and read in one call: counters, caches, marks of decorators."""
import functools

import numpy as np
import pytest

import framejit
from harness import same_as_eager


def helper(x):
    helper.calls += 1
    return x * 2


def other(x):
    return x - 1


def counted(function):
    @functools.wraps(function)
    def wrapper(*args):
        wrapper.n += 1
        return function(*args)

    wrapper.n = 0
    return wrapper


@counted
def step(x):
    return x + 1


class Holder:
    def method(self, x):
        Holder.method.calls = getattr(Holder.method, "calls", 0) + 1
        return x + self.method.calls


def a_counter(x):
    helper.calls = 0
    y = helper(helper(x))
    return y, helper.calls


def a_counter_of_a_decorator(x):
    step.n = 5
    return step(step(x)), step.n


def twice(x):
    helper.calls += 1
    helper.calls += 1
    return x + helper.calls


def a_branch(x):
    helper.best = 5.0
    return x + 100 if helper.best > 3 else x


def asked_for(x):
    before = hasattr(helper, "memo")
    helper.memo = x
    return before, hasattr(helper, "memo"), getattr(helper, "memo", None) is x, x + 1


def a_list(x):
    helper.rows = [x]
    helper.rows.append(x * 2)
    helper.rows[0] = helper.rows[0] + 1
    return helper.rows[0], len(helper.rows)


def a_loop(x):
    helper.calls = 0
    while helper.calls < 3:
        x = x - helper(x)
    return x


def by_name(x):
    setattr(helper, "calls", 7)
    return x + getattr(helper, "calls"), vars(helper)["calls"], helper.__dict__["calls"]


def through_its_dict(x):
    helper.__dict__["calls"] = 3
    helper.calls += 1
    return x + helper.calls, helper.__dict__["calls"]


def of_another_name(x):
    alias = [helper, other]
    alias[0].calls = 2
    alias[1].calls = 20
    return x + helper.calls, other.calls, alias[0].calls


def of_a_method(x):
    holder = Holder()
    return holder.method(x), holder.method(x), Holder.method.calls, Holder.__dict__["method"].calls


def deleted(x):
    helper.calls = 4
    y = x + helper.calls
    del helper.calls
    return y, hasattr(helper, "calls")


def of_text(x):
    helper.__doc__ = "new"
    helper.mark = helper.__doc__ + "er"
    return x + 1, helper.__doc__, helper.mark


def around_a_break(x):
    helper.calls = 1
    y = x + helper.calls
    print(end="")
    helper.calls += 1
    return y * helper.calls, helper.calls


PROGRAMS = [a_counter, a_counter_of_a_decorator, twice, a_branch, asked_for, a_list, a_loop, by_name, through_its_dict, of_another_name,
            of_a_method, deleted, of_text, around_a_break]


def cleared():
    for function in (helper, other, Holder.method):
        function.__dict__.clear()
    helper.calls, step.n, helper.__doc__ = 0, 0, None


def attributes():
    return [{name: value for name, value in function.__dict__.items() if name != "__wrapped__"}
            for function in (helper, other, step, Holder.method)]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_what_is_written_is_read(program):
    told = []
    for function in (program, framejit.compile(program)):
        cleared()
        told.append([(repr(function(np.arange(3.0))), repr(attributes())) for _ in range(3)])
    assert told[0] == told[1]


def test_a_function_that_is_given_is_the_one_that_is_written():
    def f(x, g, h):
        g.calls = 3
        y = x + getattr(h, "calls", 1)
        h.calls = 10
        return y, g.calls

    compiled = framejit.compile(f)
    for g, h in ((helper, other), (helper, helper), (other, other), (other, helper)):
        told = []
        for function in (f, compiled):
            cleared()
            told.append((repr(function(np.arange(3.0), g, h)), repr(attributes())))
        assert told[0] == told[1]


def keyword_only(x, *, k=2):
    return x * k


def by_default(x, k=2):
    return x * k


def test_defaults_that_are_written_are_taken():
    def of_keywords(x):
        keyword_only.__kwdefaults__["k"] = 5
        return keyword_only(x)

    def other_keywords(x):
        keyword_only.__kwdefaults__ = {"k": 7}
        return keyword_only(x), keyword_only.__kwdefaults__["k"]

    def of_places(x):
        by_default.__defaults__ = (9,)
        return by_default(x), by_default.__defaults__

    for f in (of_keywords, other_keywords, of_places):
        told = []
        for function in (f, framejit.compile(f)):
            keyword_only.__kwdefaults__, by_default.__defaults__ = {"k": 2}, (2,)
            told.append([repr(function(np.arange(3.0))) for _ in range(3)])
        assert told[0] == told[1]


def test_a_function_made_in_the_call():
    def f(x):
        def made(y):
            made.calls += 1
            return y + made.calls

        made.calls = 0
        return made(made(x)), made.calls

    same_as_eager(f, np.arange(3.0))
