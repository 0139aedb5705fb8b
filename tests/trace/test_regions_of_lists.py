"""Loops over Python's lists as machine code: what they read, change, append and take, and what others see of it."""
import gc
import os
import resource
import sys
import threading
import weakref

import numpy as np
import pytest

import framejit
from test_regions import check, compile, same

FLOATS = [k * 0.5 - 7 for k in range(60)]
INTS = [(k * 7) % 23 - 5 for k in range(60)]


def prefix(a):
    s = 0
    for i in range(len(a)):
        s += a[i]
        a[i] = s
    return s


def test_items_are_read_and_stored():
    check(prefix, (FLOATS,), (INTS,), ([True, False] * 20,), (FLOATS[:5],), ([],), (np.array(FLOATS),))


def test_lists_of_several_types_of_numbers():
    check(prefix, ([k if k % 3 else k * 0.5 for k in range(50)],), ([k % 2 == 0 if k % 3 else k for k in range(50)],), (FLOATS + INTS,))
    check(prefix, ([0.5, 1, True] * 15,), ([1, 2.5, False, None] * 10,), (FLOATS + ["x"],), ([np.float64(2), 0.5] * 20,))


@pytest.mark.parametrize("number", [2**29, 2**30 - 1, 2**30, 2**31, 2**59, 2**60 - 1, 2**60, 2**62, 2**63 - 1, 2**63, 2**70])
def test_ints_of_any_size(number):
    check(prefix, ([number, -number, 0, 1, -1] * 8,), ([number] * 30,))


def test_zeros_infinities_and_nans_keep_their_bits():
    def f(a, b):
        for i in range(len(a)):
            b[i] = a[-i] if a[i] > 0 or a[i] != a[i] else -a[i]
        return b

    check(f, ([0.0, -0.0, float("inf"), -float("inf"), float("nan"), 5e-324, 1e308] * 6, [0] * 42))


def bubbles(a):
    for i in range(len(a)):
        for j in range(len(a) - 1 - i):
            if a[j] > a[j + 1]:
                a[j], a[j + 1] = a[j + 1], a[j]
    return a


def test_items_change_places():
    check(bubbles, (INTS,), (FLOATS[::-1],), ([3, 2.5, True, 0.25, 7] * 8,), ([5],), ([],))


def test_one_list_by_two_names():
    def f(a, b):
        for i in range(1, len(a)):
            a[i] = b[i - 1] + 1
            b[0] += 0.5
        return a is b

    both = list(FLOATS)
    check(f, (FLOATS, INTS), (FLOATS, FLOATS[::-1]))
    ours, theirs = list(both), list(both)
    assert compile(f)(ours, ours) is True and f(theirs, theirs) is True and same(ours, theirs)


def test_lists_in_lists():
    def product(a, b, c):
        for i in range(len(a)):
            for j in range(len(b[0])):
                s = 0.0
                for k in range(len(b)):
                    s += a[i][k] * b[k][j]
                c[i][j] = s
        return c

    rows = [[i * 0.5 - j for j in range(7)] for i in range(7)]
    ints = [[(i * 3 + j) % 5 for j in range(7)] for i in range(7)]
    check(product, (rows, ints, [[0] * 7 for _ in range(7)]), (ints, ints, [[0.0] * 7 for _ in range(7)]))
    check(product, (rows, rows, [[0] * 7] * 7), (rows, ints, rows), (rows, [*ints[:3], None, *ints[4:]], rows), (rows, [*ints[:6], (0.5,) * 7], rows))
    check(product, (rows, ints, [[0] * i for i in range(1, 8)]))

    def rotated(g):
        for k in range(40):
            row, other = g[k % len(g)], g[-1]
            row[0], other[1] = other[1], row[0]
            if row is other:
                row[2] += 1
        return row, other

    compiled = check(rotated, (rows,), ([rows[0], rows[1]],))
    given = [list(row) for row in rows]
    row, other = compiled(given)
    assert row is given[39 % 7] and other is given[-1]


def test_lists_grow_and_shrink():
    def grown(a, k):
        out, value = [], a[0]
        for x in a:
            value += k * (x - value)
            out.append(value)
        return out

    def stacked(a, n):
        stack, seen = [n], 0
        while stack:
            top = stack.pop()
            seen += top
            if top > 1:
                stack.append(top // 2)
                stack.append(top - 2)
        return seen, stack

    check(grown, (FLOATS, 0.25), (INTS, 1), ([2**70, 1, 2] * 9, 2), ([0.5], 0.5), ([], 1))
    check(stacked, ([], 30), ([], 1))

    def collected(n):
        flags, count = [], 0
        for i in range(n):
            flags.append(i % 3 == 0)
            if flags[-1]:
                count += 1
        return flags, count

    check(collected, (50,), (3,))


def test_a_list_is_taken_from_until_it_is_empty():
    def f(a):
        s = 0
        for _ in range(100):
            s += a.pop()
        return s

    check(f, (FLOATS,), (INTS * 2,), ([],), ([None, 1, 2.5] * 9,))


def test_iterators_over_lists():
    def f(a, b):
        s = t = 0
        for x in a:
            s += x
        for i, y in enumerate(b):
            t -= y * i
        for x, y in zip(a, b):
            s += x * y
        for x in a:
            if x > 20:
                print("past", x)
                break
            a[0] = x
        return s, t, a

    check(f, (FLOATS, INTS), (INTS, FLOATS), (FLOATS[:30] + INTS, INTS), ([True] * 40, FLOATS), (FLOATS, [None] * 30), (FLOATS, []))

    def growing(a):
        for x in a:
            if len(a) < 90:
                a.append(x + 1)
        return a

    check(growing, (FLOATS,), (INTS[:12],))


def test_indices_are_counted_from_both_ends_and_looked_at():
    def f(a, k):
        s = 0.0
        for i in range(-len(a), len(a) + k):
            s += a[i]
        return s

    def stored(a, k):
        for i in range(len(a) + k):
            a[-i] = a[i % 3 == 0]
        return a

    check(f, (FLOATS, 0), (FLOATS, 1), (INTS, -3))
    check(stored, (FLOATS, 0), (FLOATS, 1), (FLOATS, 2), ([], 1))


def test_what_is_no_number_ends_where_the_program_ends_it():
    class Seen:
        def __del__(self):
            ended.append(len(a))

    def f(a):
        for i in range(len(a)):
            a[i] = i * 0.5
            if ended:
                a.append(-1.0)
        return a

    results = []
    for function in (compile(f), f):
        ended, a = [], [Seen() if k == 30 else k for k in range(40)]
        results.append((list(function(a)), ended))
    assert results[0] == results[1]


def test_objects_that_are_stored_are_held_once():
    text, number = object(), 123456789
    before = sys.getrefcount(text), sys.getrefcount(number)

    def f(a, number):
        for i in range(len(a) - 1):
            a[i] = number
        return a[0]

    compiled = compile(f)
    for _ in range(20):
        a = [0.5] * 40 + [text]
        compiled(a, number)
        del a
    assert (sys.getrefcount(text), sys.getrefcount(number)) == before
    shared = 0.125 * 3
    kept = [shared] * 3
    assert compile(prefix)([shared] * 40) == shared * 40 and kept == [0.375] * 3


def test_a_list_in_a_variable_that_gets_another_one():
    def f(g, n):
        row = g[0]
        for i in range(n):
            row = g[i % len(g)]
            row[0] += row[1]
            if i % 20 == 19:
                print("at", i, row)
        return row

    check(f, ([[1.0, 0.5], [2.0, 0.25], [3.0, 1.5]], 70))

    class Held(list):
        pass

    def swapped(a, b, n):
        for i in range(n):
            a, b = b, a
            a[i % 5] = b[(i + 1) % 5] + 1
        return a, b

    check(swapped, (FLOATS[:9], INTS[:9], 41), (Held(FLOATS[:9]), INTS[:9], 41))


def test_an_iterator_stays_where_it_is_when_its_list_shrinks():
    def f(a):
        seen, k = [], 0
        for x in a:
            seen.append(x)
            k += 1
            if k == 40:
                for _ in range(30):
                    a.pop()
                print("left")
                for j in range(60):
                    a.append(1000 + j)
            if k > 90:
                break
        return seen

    check(f, (list(range(50)),), (FLOATS[:50],))


def test_a_nan_stays_the_same_object():
    nan = float("nan")

    def f(a, b, n):
        for k in range(n):
            i, j = k % len(a), (k * 7 + 1) % len(a)
            a[i], a[j] = a[j], a[i]
            b[i] = nan if k % 3 else 0.5
            x = a[i]
        return nan in a, a.count(nan), nan in b, x is a[i]

    compiled = compile(f)
    for _ in range(3):
        assert compiled([nan, 1.0, nan, 2.0, nan] * 4, [0.0] * 20, 60) == f([nan, 1.0, nan, 2.0, nan] * 4, [0.0] * 20, 60)


def test_objects_of_other_classes_are_not_looked_into():
    def f(a):
        s = 0
        for i in range(len(a)):
            s += a[i]
        return s

    others = [object() for _ in range(1000)]
    check(f, ([3] * 40,), ([3] * 40 + [object],), ([0.5, 1, True] * 20,))
    compiled = compile(f)
    for number in (3, 0.5, True):
        for other in others:
            with pytest.raises(TypeError, match="object"):
                compiled([number] * 40 + [other])


def test_the_collector_may_run_where_a_region_is_left():
    tables = []

    def emptied(phase, info):
        countdown[0] -= 1
        if countdown[0] == 0 and tables:
            tables[-1].clear()

    def f(a, g, n):
        s = 0
        for k, z in enumerate(a):
            for x in g[k % len(g)]:
                s += x + z
                if k % n == n - 1:
                    print(end="")
        return s

    countdown, compiled = [0], compile(f)
    threshold = gc.get_threshold()
    def table():
        return [[1000.0 + k, 2.5, k] for k in range(5)]

    expected = f([0.5] * 600, table(), 50)
    for _ in range(3):
        assert compiled([0.5] * 600, table(), 50) == expected
    gc.callbacks.append(emptied)
    try:
        gc.set_threshold(1)
        for count in range(1, 60):
            tables.append(table())
            countdown[0] = count
            try:
                assert compiled([0.5] * 600, tables[-1], 50) == expected or not tables[-1]
            except ZeroDivisionError:
                assert not tables[-1]
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(emptied)


def test_lists_of_attributes_and_globals():
    class Holder:
        def __init__(self):
            self.values, self.sum = list(FLOATS), 0

        def work(self):
            for i in range(len(self.values)):
                self.sum += self.values[i] * TABLE[i % 5]
                self.values[i] = self.sum
            return self.sum, self.values

    def f():
        return Holder().work(), list(TABLE)

    check(f, ())
    TABLE.append(TABLE.pop() + 1)
    check(f, ())


TABLE = [0.5, 1.5, 2.5, 3, 4]


def test_lists_and_arrays_in_one_loop():
    def f(a, v, order):
        for i in range(len(order)):
            v[order[i]] += a[i]
            a[i] = float(v[i])
            v[1:] *= 0.5
        return v, a

    check(f, (FLOATS[:12], np.arange(12.0), [k * 5 % 12 for k in range(12)]), (INTS[:12], np.arange(12), [0, 11] * 6))


def test_a_function_that_changes_a_list_is_called():
    def push(a, x):
        a.append(x)
        return len(a)

    def at(a, i):
        return a[i] if i < len(a) else 0

    def f(a):
        s = 0
        for i in range(50):
            s += at(a, i)
            if i % 10 == 3:
                s += push(a, i)
        return s, a

    check(f, (FLOATS[:20],), (INTS[:30],))


def test_other_threads_run_and_their_changes_are_seen():
    def f(a, stop):
        n = 0
        while stop[0] == 0:
            n += 1
            a[0] += 1
        return n

    compiled = compile(f)
    for _ in range(3):
        stop, a = [0], [0]
        timer = threading.Timer(0.1, stop.__setitem__, (0, 1))
        timer.start()
        n = compiled(a, stop)
        timer.join()
        assert a[0] == n > 1000
    assert framejit.cache_info()["regions_entered"] > 0


def test_nothing_is_kept_of_a_list():
    class Other(list):
        pass

    def f(g, n):
        s = 0.0
        for i in range(n):
            s += g[0][i % 3]
        return s

    compiled, row = compile(f), Other([1.0, 2.0, 3.0])
    assert compiled([row], 40) == f([row], 40)
    assert compiled([list(row)], 40) == f([row], 40)
    gone = weakref.ref(row)
    del row
    gc.collect()
    assert gone() is None


def test_lists_that_passes_make():
    def rows(n, m):
        made = []
        for i in range(n):
            row = [0] * m
            for j in range(m):
                row[j] = i * j * 0.5 if j % 2 else i
            row.append(True)
            made.append(row)
        return made, made[-1] is row

    def windows(a, k):
        out = []
        for i in range(len(a) - k):
            part = a[i : i + k]
            part[0] = part[-1]
            s = 0
            for x in part + [i, 0.5]:
                s += x
            out.append(s)
        return out, part, a

    check(rows, (30, 4), (2, 3), (40, 0), (0, 4))
    check(windows, (FLOATS, 5), (INTS, 1), (FLOATS, 59))

    def pascal(n):
        row = [1]
        for _ in range(n):
            following = [1, 1]
            following[1:1] = []
            made = [1] * (len(row) + 1)
            for i in range(1, len(row)):
                made[i] = row[i - 1] + row[i]
            row = made
        return row, following

    check(pascal, (20,), (70,), (1,))


def test_lists_within_lists_come_and_go():
    def f(g, n):
        kept = []
        for i in range(n):
            row = g[i % len(g)]
            g[i % len(g)] = [i * 0.5, row[0]]
            g[0], g[-1] = g[-1], g[0]
            row[0] += 1
            if i % 4 == 0:
                last = g.pop()
                g.append(last[:])
                kept.append(last)
            if row is g[0]:
                kept.append([i, 0.5, True])
        return g, row, kept

    compiled = check(f, ([[k * 0.5, k] for k in range(6)], 60), ([[1, 2]], 50), ([[k, k * 0.5] for k in range(3)] * 2, 40))
    row = [1.0, 2.0]
    ours = [row, row, [0.5, 1]]
    theirs = [[1.0, 2.0]] * 2 + [[0.5, 1]]
    first = theirs[0]
    assert same(compiled(ours, 30), f(theirs, 30)) and same(row, first)


@pytest.mark.skipif("libasan" in os.environ.get("LD_PRELOAD", ""), reason="the sanitizer keeps freed memory for a while")
@pytest.mark.parametrize("passes, size", [(100_000, 100), (2_000, 50_000)])
def test_lists_that_nobody_has_any_more_are_no_memory(passes, size):
    def f(n, size):
        seen, before = 0, []
        for i in range(n):
            part = [i] * size
            part[i % size] += len(before)
            seen += part[i % size]
            before = part[1:]
        return seen, part

    compiled = check(f, (300, 10))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert compiled(passes, size) == f(passes, size)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 60_000  # KiB


def test_lists_have_the_room_that_cpythons_have():
    def f(n):
        made = []
        for i in range(n):
            row = [i, i * 0.5]
            made.append(row)
            made.append([1, 2, 3])
            made.append([i] * 3 + [i])
            made.append(row[1:])
        return made

    compiled = check(f, (60,))
    for ours, theirs in zip(compiled(60), f(60)):
        assert sys.getsizeof(ours) == sys.getsizeof(theirs), theirs


def test_the_garbage_collector_is_as_it_was():
    def f(n):
        made = []
        for i in range(n):
            made.append([i])
        return made

    compiled = compile(f)
    for enabled in (True, False):
        (gc.enable if enabled else gc.disable)()
        try:
            assert compiled(60) == f(60) and gc.isenabled() is enabled
        finally:
            gc.enable()


def test_comprehensions_within_passes():
    def f(a, n):
        made, s, x = [], 0, "outside"
        for i in range(n):
            row = [x * i + 1 for x in a]
            row[0] = s
            s += row[-1]
            made.append([y for y in row if y > i])
        return made, s, x

    check(f, (FLOATS[:5], 30), (INTS[:5], 30), ([], 0), ([1, 0.5, True], 40), regions=0)


def test_a_float_that_the_list_alone_holds_changes_in_place():
    def f(a, n):
        for k in range(n):
            i = k % len(a)
            a[i] = a[i] * 0.5 + k
        return a

    compiled = check(f, ([k + 0.5 for k in range(7)], 60), ([1, 2.5, True], 50))
    ours, theirs = [k + 0.25 for k in range(5)], [k + 0.25 for k in range(5)]
    kept = ours[2], theirs[2]
    assert compiled(ours, 50) == f(theirs, 50) and kept[0] == kept[1] == 2.25
    flags = [True, False] * 20

    def turned(a):
        for i in range(len(a)):
            a[i] = i % 3 == 0
        return a

    compiled = compile(turned)
    assert compiled(flags) == [i % 3 == 0 for i in range(40)]
    before = sys.getrefcount(True)
    for _ in range(100):
        compiled(flags)
        flags[::2] = [False, True] * 10
    assert abs(sys.getrefcount(True) - before) < 200


def test_items_that_change_places_are_the_same_objects():
    def f(a, b, n):
        for k in range(n):
            i, j = k % len(a), (k * 7 + 1) % len(a)
            a[i], a[j] = a[j], a[i]
            x = a[i]
            b.append(x)
            b[k % len(b)] = a[j]
            last = b.pop()
            row = [last, x]
        return x, row

    floats, large = [k + 0.125 for k in range(9)], [10**9 + k for k in range(9)]
    for items in (floats, large):
        outcomes = []
        for function in (compile(f), f):
            a, b = list(items), [items[0]]
            x, row = function(a, b, 50)
            outcomes.append([[id(item) for item in found] for found in (a, b, row)] + [x])
        assert outcomes[0] == outcomes[1]


def test_items_read_before_others_change_keep_their_values():
    def f(a, b, n):
        for k in range(n):
            i, j = k % len(a), (k * 5 + 2) % len(a)
            x, y = a[i], a[j]
            a[i] = x * 0.5 + k
            a[j] = y - 1.5
            b[i] = x
            b[j] = y
            z = b[i]
            a[i] = z
            a[i] += 0.25
            b[j] = z
            if k % 9 == 8:
                print("at", x, y, z)
        return a, b, x, y, z

    def given():
        return [k + 0.5 for k in range(7)], [k * 3.25 for k in range(7)]  # floats that nobody else holds: they change in place

    compiled = check(f, (*given(), 60))
    for _ in range(3):
        ours, theirs = given(), given()
        assert same(compiled(*ours, 60), f(*theirs, 60)) and same(ours, theirs)


@pytest.mark.parametrize("others", [3, 62, 66])
def test_items_read_before_many_others_change(others):
    names = {}
    lines = ["x, y = a[0], a[1]", *(f"a[{i}] = {i} + k{' + 0.5' if i % 2 else ' * 1000'}" for i in range(others)), "b[k % 5], b[1] = x, y"]
    exec("def f(a, b, n):\n    for k in range(n):\n" + "\n".join("        " + line for line in lines) + "\n    return a, b", names)
    check(names["f"], ([k * 1000 + 7 for k in range(70)], [0] * 70, 12), ([k * 1000 + 0.5 for k in range(70)], [0.25] * 70, 12))


@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "i2", "u1", "u8", "?"])
def test_scalars_of_numpys_come_into_lists(dtype):
    def f(a, b, n):
        made, s = [], 0.0
        for i in range(n):
            x = a[i % len(a)]
            made.append(x)
            b[i % len(b)] = x
            made.append([x, i])
            b[0] = 0.5
            b[0] = x
            s += float(b[1])
        return made, b, type(made[0]), s

    values = (np.arange(20) % 7).astype(dtype)
    check(f, (values, [0.25] * 5, 50), (values, [1, None, True] * 3, 40), (FLOATS, [0.5] * 4, 30))
    if dtype == "f8":
        values[3] = np.nan
        check(f, (values, [0.25] * 5, 50))
        nan = values.copy()

        def kept(a):
            made = []
            for i in range(len(a)):
                x = a[i]
                made.append(x)
                if x != x:
                    seen = x in made
            return seen

        assert compile(kept)(nan) == kept(nan) is True
