"""Regions whose loops call functions that store: where one leaves the region CPython goes on within it, and nothing is done twice."""
import sys
import threading
import time
import traceback
import warnings

import numpy as np
import pytest

import framejit
from test_regions import FLOATS, check, compile, same

LISTS = [float(x) for x in FLOATS]


def swap(a, i, j):
    a[i], a[j] = a[j], a[i]


def sift_down(a, start, end):
    root = start
    while 2 * root + 1 < end:
        child = 2 * root + 1
        if child + 1 < end and a[child] < a[child + 1]:
            child += 1
        if a[root] >= a[child]:
            return
        swap(a, root, child)
        root = child


def heap_sort(a):
    n = len(a)
    for start in range(n // 2 - 1, -1, -1):
        sift_down(a, start, n)
    for end in range(n - 1, 0, -1):
        swap(a, 0, end)
        sift_down(a, 0, end)
    return a


def entered(compiled, *arguments):
    """How often one call enters a region: the most of some calls, of which CPython runs one or the other to compare."""
    counts = []
    for _ in range(6):
        before = framejit.cache_info()["regions_entered"]
        compiled(*(x.copy() for x in arguments))
        counts.append(framejit.cache_info()["regions_entered"] - before)
    return max(counts)


def test_helpers_that_store_are_part_of_the_region():
    compiled = check(heap_sort, (FLOATS,), (LISTS,), (np.arange(50)[::-1],), (FLOATS[::2],), regions=2)
    assert entered(compiled, FLOATS) == 2
    assert same(heap_sort(FLOATS.copy()), np.sort(FLOATS))


def test_results_and_keywords_and_defaults():
    def put(a, i, x=0.25, *, by=2):
        a[i] = x * by
        return a[i]

    def bump(a, i, by=1):
        a[i] += by
        return a[i]

    def f(a, b):
        s = 0.0
        for i in range(len(a)):
            s += bump(a, i) - bump(by=b[i], a=a, i=0) + bump(b, -1, 0.5)
            if s > 3:
                bump(b, i)
        return s, bump(a, 0)

    def left(a):
        s = 0.0
        for i in range(len(a)):
            s += put(a, i, by=i)
        return s

    assert entered(check(f, (FLOATS, FLOATS + 1), (LISTS, LISTS[::-1])), FLOATS, FLOATS) == 1
    check(f, (LISTS, FLOATS), (FLOATS, LISTS))  # scalars of NumPy's come into lists
    check(left, (FLOATS,), regions=0)  # names alone are CPython's


def fails_between(a, i, n):
    a[i] += 1
    if i == n:
        a[n + 1000] = 5
    a[0] += a[i]
    return a[0]


def through(a, i, n):
    a[1] -= 1
    x = fails_between(a, i, n)
    a[2] = x
    return x


def test_an_error_in_a_helper_is_raised_there_with_what_came_before_done():
    def f(a, n):
        s = 0.0
        for i in range(len(a)):
            s += through(a, i, n)
        return s

    def catches(a, n):
        s, seen = 0.0, []
        for i in range(len(a)):
            try:
                s += through(a, i, n)
            except IndexError as error:
                seen.append([(line.name, line.lineno) for line in traceback.extract_tb(error.__traceback__)][1:])
                s -= 1
        return s, a, seen

    check(f, (FLOATS, 70), (FLOATS, 500), (LISTS, 70), (FLOATS, 0))
    compiled = compile(catches)
    for a in (FLOATS, LISTS):
        assert same(compiled(a.copy(), 60), catches(a.copy(), 60))
        found = catches(a.copy(), 60)[2][0]
        assert [name for name, _ in found] == ["through", "fails_between"]


def test_what_cpython_runs_within_a_helper_sees_its_frame_and_its_callers():
    seen = []

    def looks(a, i):
        a[i] = a[i - 1] + 1
        for k in range(3):
            a[k] += 1
            if i % 40 == 39 and k == 1:
                here = sys._getframe()
                seen.append((here.f_code.co_name, here.f_lineno, dict(here.f_locals, a=None), here.f_back.f_code.co_name, here.f_back.f_locals["s"], list(a[:3])))
        return a[i]

    def f(a):
        s = 0.0
        for i in range(len(a)):
            s += looks(a, i)
        return s

    compiled = compile(f)
    for a in (FLOATS, FLOATS, LISTS):
        ours, theirs = a.copy(), a.copy()
        results = []
        for function, given in ((compiled, ours), (f, theirs)):
            seen.clear()
            results.append((function(given), given, [(name, line, {k: v for k, v in names.items() if k not in ("here", "seen")}, *more) for name, line, names, *more in seen]))
        assert same(*[result[:2] for result in results]) and repr(results[0][2]) == repr(results[1][2])
    assert framejit.cache_info()["regions"] >= 1


def test_ints_that_grow_and_types_that_change_within_a_helper():
    def grows(a, i, n):
        a[i] = n % 7
        n = n * n + i
        a[0] += 1
        return n

    def changes(a, i):
        a[i] = i
        x = 0
        for k in range(2):
            x = x + a[k] if a[i] < 50 else None
            if x is None:
                return -1
        return x

    def f(a):
        s, n = 0, 3
        for i in range(len(a)):
            n = grows(a, i, n) % 2**70
            s += changes(a, i)
        return s, n

    check(f, (FLOATS,), (np.arange(90),), (LISTS,), regions=0)


def test_warnings_within_a_helper_come_once():
    def divides(a, i):
        a[0] += 1
        x = a[i] / a[1]
        a[2] += 1
        return x

    def f(a):
        a[1] = 0
        s = 0
        for i in range(3, len(a)):
            s = divides(a, i)
        return s, a

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(f, (FLOATS,), (FLOATS.astype("float32"),))


class Sampler:
    def __init__(self, seed):
        self.state, self.drawn = seed, 0

    def draw(self, out, i):
        self.state = (self.state * 1103515245 + 12345) % 2147483648
        out[i] = self.state / 2147483648
        self.drawn += 1
        if self.drawn % 30 == 29:
            print("drawn", self.drawn, self.state)
        self.drawn += 1
        return out[i]


def test_methods_that_store_in_arrays_and_attributes(capsys):
    def f(sampler, out):
        s = 0.0
        for i in range(len(out)):
            s += sampler.draw(out, i)
        return s, sampler.state, sampler.drawn

    compiled = compile(f)
    for _ in range(3):
        ours, theirs = np.zeros(200), np.zeros(200)
        assert compiled(Sampler(7), ours) == f(Sampler(7), theirs) and same(ours, theirs)
    text = capsys.readouterr().out.splitlines()
    assert len(text) % 2 == 0 and len(text) > 6


def test_a_helper_that_calls_itself():
    def quicksort(a, low, high):
        if low >= high:
            return 0
        pivot, i = a[high], low
        for j in range(low, high):
            if a[j] < pivot:
                swap(a, i, j)
                i += 1
        swap(a, i, high)
        return 1 + quicksort(a, low, i - 1) + quicksort(a, i + 1, high)

    def f(rows):
        n = 0
        for k in range(len(rows)):
            n += quicksort(rows[k], 0, len(rows[k]) - 1)
        return n

    check(f, (np.random.default_rng(3).random((40, 30)),), ([LISTS[k:k + 20] for k in range(40)],), regions=0)


@pytest.mark.parametrize("tier", ["auto", "optimised"])
def test_what_a_helper_stores_in_both_ways_of_a_branch(tier):
    def step(x, i, u):
        if u > 0.5:
            x[i + 1] = x[i] + 1
        else:
            x[i + 1] = x[i] - 1

    def f(u, x):
        for i in range(len(u)):
            step(x, i, u[i])
        return x.sum()

    def sieve(n):
        flags = np.ones(n, dtype=bool)
        for i in range(2, n):
            if flags[i]:
                for j in range(i * i, n, i):
                    flags[j] = False
        return flags.nonzero()[0]

    def down(a, by):
        s = 0.0
        for i in range(6):
            for j in range(len(a) - 1, -1, by - i if by < 0 else -1):
                s += a[j] * i
            for j in range(0, len(a), abs(by) + i):
                a[j] += s
        return s

    many = np.random.default_rng(1).random(3000)
    poisoned = many.copy()
    poisoned[2000] = np.nan
    compiled = framejit.compile(f, retire=True, tier=tier)
    for u in (many, poisoned, many[:5], many[::3]):
        for start in (0.0, 1e308, np.inf):
            ours, theirs = np.full(3001, start), np.full(3001, start)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                assert same(compiled(u, ours), f(u, theirs)) and same(ours, theirs)
    with pytest.raises(IndexError):
        compiled(many, np.zeros(2999))
    compiled = framejit.compile(sieve, retire=True, tier=tier)
    for n in (10, 3, 20000, 5000):
        assert same(compiled(n), sieve(n))
    check(down, (FLOATS, -1), (FLOATS, -3), (FLOATS, 2), (FLOATS, 7))


def test_a_helper_that_is_replaced_while_it_runs_ends_as_it_began():
    def counts(a, i, n=3_000_000):
        a[0] += 1
        for k in range(n):
            a[1] += 1
        a[2] += 1
        return a[2]

    def other(a, i, n=None, q=7.0):
        first, second, third, fourth, fifth = 1, 2, 3, 4, 5
        a[0] += first
        a[3] += second * third + fourth + fifth + q
        a[2] += 1
        return a[2]

    def f(a, m):
        s = 0.0
        for i in range(m):
            s = counts(a, i)
        return s

    code, defaults = counts.__code__, counts.__defaults__
    compiled = compile(f)
    for _ in range(4):
        compiled(np.zeros(4), 3)
    for pause in (0.001, 0.003, 0.01, 0.02):
        def replace():
            time.sleep(pause)
            counts.__code__, counts.__defaults__ = other.__code__, other.__defaults__

        thread, a = threading.Thread(target=replace), np.zeros(4)
        thread.start()
        assert compiled(a, 12) == 12
        thread.join()
        assert a[0] == a[2] == 12 and a[1] % 3_000_000 == 0
        counts.__code__, counts.__defaults__ = code, defaults


def test_what_a_helper_was_given_is_held_no_longer_than_it_runs():
    seen = []

    def put(t, i):
        t[0] = i
        if i == 60:
            seen.append(i)

    def f(n):
        t = np.zeros(5)
        for i in range(n):
            put(t, i)
            if i == 60:
                t.resize(8)
        return t

    compiled = compile(f)
    for _ in range(4):
        assert same(compiled(100), f(100))


def test_helpers_at_the_end_of_the_stack_raise_at_their_call():
    def inner(a, i):
        a[i] += 1
        return a[i]

    def outer(a, i):
        a[0] += 1
        return inner(a, i) + 1

    def f(a):
        s = 0.0
        for i in range(1, len(a)):
            s += outer(a, i)
        return s

    compiled = compile(f)
    for _ in range(4):
        compiled(np.zeros(300))

    def deep(function, a, calls):
        return deep(function, a, calls - 1) if calls else function(a)

    limit = sys.getrecursionlimit()
    depth = len(traceback.extract_stack())
    for spare in range(12):
        found = []
        for function in (compiled, f):
            a = np.zeros(300)
            try:
                sys.setrecursionlimit(depth + 80)
                deep(function, a, 80 - spare)
            except RecursionError:
                pass
            finally:
                sys.setrecursionlimit(limit)
            found.append((a[0] > 1, a[2:].any()))
        assert found[0][0] == found[0][1], spare  # all passes or none but the first
