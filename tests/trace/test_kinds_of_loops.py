"""A loop is judged for each kind of what the function is given: one that is CPython's for some is a region for others."""
from fractions import Fraction

import numpy as np

import framejit
from test_regions import FLOATS, compile, same

STRANGE = [Fraction(k, 3) for k in range(40)]


def mean_change(a):
    s = 0
    for i in range(1, len(a)):
        s += a[i] - a[i - 1]
    return s / len(a)


def entered(compiled, *arguments, calls=12):
    before = framejit.cache_info()["regions_entered"]
    for _ in range(calls):
        compiled(*arguments)
    return framejit.cache_info()["regions_entered"] - before


def test_objects_that_no_region_is_made_for_leave_arrays_theirs():
    for first in (STRANGE, FLOATS):
        framejit.reset()
        compiled = compile(mean_change)
        for a in (first, STRANGE, FLOATS, FLOATS.astype("float16"), [1.5, 2.5] * 30, STRANGE) * 3:
            for _ in range(4):
                assert same(compiled(a), mean_change(a))
        assert entered(compiled, STRANGE) == 0
        assert entered(compiled, FLOATS) > 0 and entered(compiled, [0.5] * 100) > 0
        assert entered(compiled, STRANGE) == 0 and entered(compiled, FLOATS) > 0


def test_a_region_that_was_left_too_often_is_asked_again_where_there_is_more():
    def f(a, passes):
        s = 0.0
        for k in range(passes):
            for i in range(len(a)):
                s += a[i]
            if k % 2 == 0:
                a.sort()  # CPython's
        return s

    compiled = compile(f)
    short, long = np.arange(2.0), np.arange(20000.0)
    assert compiled(short, 200) == f(short, 200)
    assert entered(compiled, short, 200, calls=3) < 600
    assert entered(compiled, long, 6, calls=4) > 0
    for a in (short, long):
        assert compiled(a, 8) == f(a, 8)
