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
    def f(a, passes, every):
        s = 0.0
        for k in range(passes):
            s += a[k % len(a)]
            if k % every == 0 or k % every == 1:
                a.sort()  # CPython's
        return s

    a = np.arange(10.0)
    compiled = compile(f)
    assert compiled(a, 300, 3) == f(a, 300, 3)
    assert any("too often" in line for line in framejit.explain(compiled).so_far().loops)
    assert entered(compiled, a, 300, 3) == 0
    assert entered(compiled, a, 300, 5000) > 0
    for every in (3, 5000, 7):
        assert compiled(a, 300, every) == f(a, 300, every)
