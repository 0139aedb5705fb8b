"""framejit.prange: passes that several threads run, with the results of one."""
import re
import signal
import threading
import time

import numpy as np
import pytest

import framejit
from framejit import prange
from harness import needs_torch

NUMBERS = np.random.default_rng(11)
ROWS = 5000  # several stretches of short passes
TABLE = NUMBERS.integers(-20, 21, (ROWS, 7)) / 4
ROW = NUMBERS.integers(-20, 21, 7) / 4


def compiled_for_threads(function, **options):
    """Several threads run passes however few they are; conftest.py turns `retire` off, and regions with it."""
    return framejit.compile(function, tier="optimised", retire=True, **options)


def copies(arguments):
    return [value.copy() if isinstance(value, np.ndarray) else value for value in arguments]


def on_threads(function, *arguments, calls=3, several=True, text=None, **options):
    """Each call is CPython's, to the bit, what it stores too. `several`: threads have to run passes, or may not; `text` says why."""
    framejit.reset()
    compiled = framejit.compile(function, retire=True, **{"tier": "optimised", **options})
    for _ in range(calls):
        ours, theirs = copies(arguments), copies(arguments)
        found, expected = compiled(*ours), function(*theirs)
        assert repr(found) == repr(expected) and type(found) is type(expected)
        for mine, own in zip(ours, theirs):
            np.testing.assert_array_equal(mine, own)
    info = framejit.cache_info()
    assert info["internal_errors"] == 0
    assert (info["regions_on_threads"] > 0) == several, framejit.explain(compiled).so_far().loops
    if text is not None:
        assert any(re.search(text, line) for line in framejit.explain(compiled).so_far().loops), framejit.explain(compiled).so_far().loops
    return compiled


def own_rows(a, b):
    for i in prange(len(a)):
        t = 0.0
        for j in range(a.shape[1]):
            t += a[i, j] * b[j]
        a[i, 0] += t
        a[i, 1:] *= 2


def sums(a, s, n):
    c = 1
    for i in framejit.prange(1, len(a), 2):
        x = a[i, 0] + a[i, 3]
        s += x * 0.5
        n -= i
        if x > 1:
            c *= -1
    return s, n, c, i, x


def extremes(a, most, least):
    for i in prange(len(a)):
        x = a[i, 2] - i % 5
        most = max(most, x)
        least = min(least, x)
    return most, least


def extremes_by_branches(a, most, least):
    for i in prange(len(a)):
        x = a[i, 2] - i % 5
        if x > most:
            most = x
        if a[i, 3] < least:
            least = a[i, 3]
    return most, least


def columns(a, b):
    for j in prange(a.shape[1]):
        a[:, j] -= a[:, j].mean()
        b[j] = a[0, j]


def scattered(a, places, out):
    for i in prange(len(places)):
        out[places[i]] = a[i, 1] * 2


def helped(row, t):
    row[0] = t
    return row[1]


def helpers(a, out):
    s = 0.0
    for i in prange(len(a)):
        s += helped(out[i], a[i, 2])
    return s


def made_arrays(a, out):
    for i in prange(len(a)):
        x = np.zeros(4)
        for k in range(4):
            x[k] = a[i, k] + k
        y = x * 2
        out[i, :4] = y
    return y, x


@pytest.mark.parametrize("function, arguments", [
    (own_rows, (TABLE, ROW)), (sums, (TABLE, 0, 0)), (sums, (TABLE, 0.5, 7)), (sums, (TABLE, np.float64(1), 2)), (extremes, (TABLE, TABLE[0, 0], TABLE[0, 1])),
    (extremes_by_branches, (TABLE, TABLE[0, 0], TABLE[0, 1])), (columns, (TABLE.T, TABLE[:, 0])), (scattered, (TABLE, NUMBERS.permutation(ROWS), np.zeros(ROWS))), (helpers, (TABLE, TABLE * 2)),
    (made_arrays, (TABLE, np.zeros((ROWS, 5))))], ids=lambda value: getattr(value, "__name__", ""))
@pytest.mark.parametrize("tier", ["optimised", "auto"])
def test_passes_on_threads_give_what_one_gives(function, arguments, tier):
    on_threads(function, *arguments, tier=tier, text="on several threads")


def test_it_is_a_range_elsewhere():
    assert prange(4) == range(4) and prange(2, 9, 3) == range(2, 9, 3) and prange(np.int64(3)) == range(3)
    for wrong in ((), (1.5,), (1, 2, 0), (1, 2, 3, 4), ("4",)):
        with pytest.raises((TypeError, ValueError)):
            prange(*wrong)

    @framejit.compile
    def f(x):
        return [x * i for i in prange(3)], sum(prange(5)), list(framejit.prange(1, 4))

    products, total, numbers = f(ROW)
    np.testing.assert_array_equal(products, [ROW * 0, ROW, ROW * 2])
    assert (total, numbers) == (10, [1, 2, 3])


def previous(a):
    for i in prange(1, len(a)):
        a[i, 0] = a[i - 1, 0] + 1


def running(a):
    s = 0.0
    for i in prange(len(a)):
        s += a[i, 0]
        a[i, 0] = s


def faded(a):
    s = 0.0
    for i in prange(len(a)):
        s = s * 0.5 + a[i, 0]
    return s


def last_found(a):
    found = -1
    for i in prange(len(a)):
        if a[i, 0] > 1:
            found = i
    return found


def two_in_turn(a):
    first, x = None, 0.0
    for i in prange(len(a)):
        if first is None:
            x += a[i, 0]
        else:
            x += a[i, 1]
        first = i
    return x


def one_place(a):
    for i in prange(len(a)):
        a[0, 1] = i


def lists(a, items=[1.0, 2.0, 3.0] * 40):
    for i in prange(len(items)):
        items[i] = i * 0.5


class Counter:
    count = 0

    def __init__(self):
        self.total = 0.0


def attributes(a, counter=Counter()):
    for i in prange(len(a)):
        counter.total += 0.25


def neighbours(a):
    for i in prange(len(a)):
        a[i, 0] = a[i - 1, 0]


def kept_sum(a):
    s, before = 0.0, 0.0
    for i in prange(len(a)):
        before = s
        s += a[i, 0]
    return s, before


def place_of_the_largest(a):
    most, place = a[0, 0], 0
    for i in prange(len(a)):
        if a[i, 0] > most:
            most, place = a[i, 0], i
    return most, place


def counted_records(a):
    most, n = a[0, 0], 0
    for i in prange(len(a)):
        if a[i, 0] > most:
            most = a[i, 0]
            n += 1
    return most, n


def larger_than_an_older_one(a):
    most = a[0, 0]
    for i in prange(len(a)):
        old = most
        most = max(most, a[i, 0])
        if a[i, 1] > old:
            most = a[i, 1]
    return most


def stored_records(a, out):
    most = a[0, 0]
    for i in prange(len(a)):
        if a[i, 0] > most:
            most = a[i, 0]
            out[i] = 1.0
    return most


@pytest.mark.parametrize("function, why", [
    (place_of_the_largest, "each pass takes `most`|`place` is read"), (counted_records, "each pass takes `most`"), (larger_than_an_older_one, "each pass takes `most`"),
    (previous, "a pass may read what another one stores in `a`"), (running, "each pass takes `s` from the one before"), (faded, "each pass takes `s`"),
    (last_found, "`found` is read behind it, and not every pass sets it"), (two_in_turn, "each pass takes `first`"), (one_place, "each pass stores the same elements in `a`"),
    (lists, "it works on lists"), (attributes, "it stores attributes"), (neighbours, "a pass may read"), (kept_sum, "each pass takes `s`")], ids=lambda value: getattr(value, "__name__", ""))
def test_passes_that_depend_on_others_run_in_order(function, why):
    on_threads(function, TABLE, several=False, text=f"on one thread: {why}")


def test_what_is_stored_may_not_depend_on_the_largest():
    on_threads(stored_records, TABLE, np.zeros(ROWS), several=False, text="each pass takes `most`")


def ended_by_break(a, out):
    for i in prange(len(a)):
        if a[i, 0] > 4:
            break
        out[i] = 1.0
    return i


def ended_by_return(a, out):
    for i in prange(len(a)):
        out[i] = 1.0
        if a[i, 0] > 4:
            return i
    return -1


@pytest.mark.parametrize("function", [ended_by_break, ended_by_return])
def test_passes_that_may_end_the_loop_run_in_order(function):
    on_threads(function, TABLE, np.zeros(ROWS), several=False, text="on one thread: a pass may end it")


def test_sums_that_leave_the_range_of_numbers_are_made_in_order():
    def total(a):
        s = 0.0
        for i in prange(len(a)):
            s += float(a[i])
        return s

    def product(a):
        p = 1.0
        for i in prange(len(a)):
            p *= float(a[i])
        return p

    large, factors, small = np.zeros(6400), np.ones(3000), np.ones(3000)
    large[0], large[2500:2502] = -1e308, 1e308
    factors[0], factors[2500:2502] = 1e-300, 1e200
    small[0], small[2500:2502] = 1e300, 1e-200
    for function, numbers in ((total, large), (total, np.full(ROWS, np.inf)), (total, np.append(np.ones(ROWS), np.nan)), (product, factors), (product, small),
                              (product, np.zeros(ROWS))):
        framejit.reset()
        compiled = compiled_for_threads(function)
        for _ in range(4):
            assert repr(compiled(numbers)) == repr(function(numbers))


class Stop(Exception):
    pass


@pytest.mark.parametrize("arrays", [False, True], ids=["numbers", "arrays"])
def test_variables_are_those_of_the_last_pass_when_a_signal_ends_it(arrays):
    def f(out):
        x, n = -1.0, 0
        try:
            for i in prange(len(out)):
                t = 0.0
                for k in range(300_000):
                    t += k * 0.25
                out[i] = 1.0
                n += 1
                x = i
        except Stop:
            return i, x, n, out.sum()
        return None

    def with_arrays(out):
        x, n = np.zeros(1), 0
        try:
            for i in prange(len(out)):
                t = 0.0
                for k in range(300_000):
                    t += k * 0.25
                out[i] = 1.0
                n += 1
                x = np.zeros(3)
                x[0] = i
        except Stop:
            return i, x[0], n, out.sum()
        return None

    def stop(*_):
        raise Stop

    compiled = compiled_for_threads(with_arrays if arrays else f)
    compiled(np.zeros(70))
    before = signal.signal(signal.SIGALRM, stop)
    try:
        for seconds in (0.05, 0.11, 0.2):
            signal.setitimer(signal.ITIMER_REAL, seconds)
            i, x, n, stored = compiled(np.zeros(20000))
            assert 0 < n < 20000 and x in (i - 1, i) and n == x + 1 and stored in (n, n + 1)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def range_or_prange(a, places, in_order):
    for i in (range(len(places)) if in_order else prange(len(places))):
        a[places[i], 0] = i


def test_a_loop_that_may_be_over_another_range_runs_in_order():
    places = np.zeros(ROWS, int)
    framejit.reset()
    compiled = compiled_for_threads(range_or_prange)
    for _ in range(3):
        table = TABLE.copy()
        compiled(table, places, True)
        assert table[0, 0] == ROWS - 1
    info = framejit.cache_info()
    assert info["regions_entered"] > 0 and info["regions_on_threads"] == 0


def test_what_a_handler_reads_is_read_behind_the_loop():
    def f(a, places):
        found = -1
        try:
            for i in prange(len(places)):
                if places[i] > 2:
                    found = i
                a[i, 0] = places[i]
        except IndexError:
            return found
        return 0

    on_threads(f, TABLE, NUMBERS.integers(0, 5, 400), several=False, text="`found` is read behind it")


def test_memory_that_is_shared_runs_in_order():
    def f(a, b):
        for i in prange(len(a) - 1):
            a[i] = b[i + 1] * 2

    for make in (lambda: (x := np.arange(ROWS * 1.0), x), lambda: (x := np.arange(ROWS * 1.0), x[::-1]), lambda: (np.zeros(ROWS), np.arange(ROWS * 1.0))):
        framejit.reset()
        compiled = compiled_for_threads(f)
        ours, theirs = make(), make()
        compiled(*ours)
        f(*theirs)
        np.testing.assert_array_equal(ours[0], theirs[0])
    assert framejit.cache_info()["regions_on_threads"] == 1

    def windows(a):
        for i in prange(len(a)):
            a[i, 0] += 1
            a[i, 2] *= 2

    make = lambda: np.lib.stride_tricks.as_strided(np.arange(ROWS + 20.0), (ROWS, 3), (8, 8))
    framejit.reset()
    ours, theirs = make(), make()
    compiled_for_threads(windows)(ours)
    windows(theirs)
    np.testing.assert_array_equal(ours, theirs)
    assert framejit.cache_info()["regions_on_threads"] == 0


def test_a_pass_that_fails_fails_as_on_one_thread():
    def f(a, places):
        n = 0
        for i in prange(len(places)):
            a[i, 0] += a[places[i], 1]
            n += 1
        return n

    def g(a, places):
        n = 0
        for i in prange(len(a)):
            a[i, 0] += 1.0
            n += places[i]
        return n

    places = np.zeros(ROWS, int)
    places[1700] = 9999
    for _ in range(4):
        ours, theirs = TABLE.copy(), TABLE.copy()
        for function, table in ((compiled_for_threads(f), ours), (f, theirs)):
            with pytest.raises(IndexError, match="index 9999 is out of bounds"):
                function(table, places)
        np.testing.assert_array_equal(ours, theirs)
    huge = np.full(ROWS, 2**62)
    compiled = compiled_for_threads(g)
    for _ in range(4):  # the sum of the first passes is no int of 64 bits: NumPy's, which warns
        ours, theirs = TABLE.copy(), TABLE.copy()
        with pytest.warns(RuntimeWarning, match="overflow"):
            found = compiled(ours, huge)
        with pytest.warns(RuntimeWarning, match="overflow"):
            assert found == g(theirs, huge)
        np.testing.assert_array_equal(ours, theirs)


def test_a_python_int_that_outgrows_64_bits_is_pythons():
    def f(n):
        s, p = 0, 1
        for i in prange(n):
            s += 2**61 - i
            p *= 3
        return s, p

    framejit.reset()
    compiled = compiled_for_threads(f)
    for _ in range(3):
        for n in (3, 300, 1000):
            assert compiled(n) == f(n)


def test_the_number_of_threads_is_an_option_and_changes_no_sum():
    def f(a):
        s = 0.0
        for i in prange(len(a)):
            s += a[i] * a[i]
        return s

    rough = NUMBERS.random(5000)
    found = set()
    for threads in (2, 3, 7):
        framejit.reset()
        compiled = compiled_for_threads(f, threads=threads)
        found |= {compiled(rough) for _ in range(3)}
    assert len(found) == 1
    sums = found.pop()
    assert sums != f(rough) and np.isclose(sums, f(rough), rtol=1e-13)
    framejit.reset()
    assert compiled_for_threads(f, threads=1)(rough) == sums
    assert framejit.cache_info()["regions_on_threads"] == 0


def test_loops_within_loops():
    def steps(a, b, n):
        for _ in range(n):
            for i in prange(1, len(a) - 1):
                b[i] = (a[i - 1] + a[i + 1]) * 0.5
            a, b = b, a
        return a

    def nested(a):
        for i in prange(len(a)):
            for j in prange(a.shape[1]):
                a[i, j] += i * j

    compiled = on_threads(steps, np.arange(ROWS * 1.0), np.zeros(ROWS), 6)
    assert any("no region; a loop in it is for several threads" in line for line in framejit.explain(compiled).so_far().loops)
    on_threads(nested, TABLE)


def test_other_threads_of_python_run_such_loops_at_once():
    compiled = compiled_for_threads(own_rows)
    expected = TABLE.copy()
    own_rows(expected, ROW)
    wrong = []

    def work():
        for _ in range(40):
            a = TABLE.copy()
            compiled(a, ROW)
            if not np.array_equal(a, expected):
                wrong.append(a)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_signal_ends_it():
    class Stop(Exception):
        pass

    def stop(*_):
        raise Stop

    def f(out):
        for i in prange(len(out)):
            x = 0.0
            for k in range(3_000_000):
                x += k * 1e-9
            out[i] = x

    compiled = compiled_for_threads(f)
    compiled(np.zeros(2))
    before = signal.signal(signal.SIGALRM, stop)
    out = np.zeros(20000)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        began = time.monotonic()
        with pytest.raises(Stop):
            compiled(out)
            time.sleep(60)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert time.monotonic() - began < 30
    assert (out != 0).sum() < len(out)


def test_derivatives_and_graphs_take_it_for_a_range():
    def f(x):
        s = 0.0
        for i in prange(4):
            s += x[i] ** 2
        return s

    np.testing.assert_array_equal(framejit.grad(f)(np.arange(4.0)), np.arange(4.0) * 2)

    def g(x):
        for i in prange(3):
            x = x * 2 + i
        return x

    graph = framejit.capture(g, np.ones(5))
    np.testing.assert_array_equal(graph(np.ones(5)), g(np.ones(5)))


@needs_torch
def test_tensors_take_it_for_a_range():
    import torch

    def f(x):
        for i in prange(3):
            x = x * 2 + i
        return x

    compiled = compiled_for_threads(f)
    for _ in range(3):
        assert torch.equal(compiled(torch.ones(5)), f(torch.ones(5)))
