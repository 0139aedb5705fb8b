"""Loops over elements run as regions: the results, arguments, warnings and errors are CPython's, wherever a region is left."""
import copy
import functools
import gc
import itertools
import math
import subprocess
import sys
import textwrap
import threading
import traceback
import warnings
import weakref

import numpy as np
import pytest

import framejit

compile = functools.partial(framejit.compile, retire=True)  # which the other tests are without


def outcome(function, arguments):
    arguments = copy.deepcopy(arguments)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = function(*arguments)
            where = None
        except Exception as error:
            result = (type(error), str(error))
            where = traceback.extract_tb(error.__traceback__)[-1].lineno
    return result, where, arguments, [(w.category, str(w.message), w.lineno) for w in caught]


def same(ours, theirs):
    if type(ours) is not type(theirs):
        return False
    if isinstance(ours, (tuple, list)):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    if isinstance(ours, np.ndarray):
        if ours.dtype.kind == "f" and ours.dtype == theirs.dtype:  # all NaNs are one
            ours, theirs = (np.where(np.isnan(x), np.nan, x) for x in (ours, theirs))
        return ours.dtype == theirs.dtype and ours.shape == theirs.shape and ours.tobytes() == theirs.tobytes()
    if isinstance(ours, float) and ours != ours:
        return theirs != theirs
    if isinstance(ours, (float, np.floating)):
        return ours == theirs and math.copysign(1, ours) == math.copysign(1, theirs) or ours != ours and theirs != theirs
    return ours == theirs


def check(function, *calls, regions=1):
    """Each call three times, compiled and not. `regions`: how many have to be made at least."""
    framejit.reset()
    compiled = compile(function)
    for arguments in calls:
        for _ in range(3):
            ours, theirs = outcome(compiled, arguments), outcome(function, arguments)
            for name, a, b in zip(("result", "line of the error", "arguments", "warnings"), ours, theirs):
                assert same(a, b), f"{name}: {a}, CPython gives {b}"
    info = framejit.cache_info()
    assert info["internal_errors"] == 0
    assert info["regions"] >= regions, framejit.explain(compiled).so_far().loops
    return compiled


NUMBERS = np.random.default_rng(5)
FLOATS = NUMBERS.random(100)


def total(a):
    s = 0
    for i in range(len(a)):
        s += a[i]
    return s, i


def over_elements(a):
    s, n = 0.0, 0
    for x in a:
        if x > 0.5:
            s += x
            n += 1
    return s, n, x


def pairs(a, b):
    s = 0.0
    for i, (x, y) in enumerate(zip(a, b)):
        if x > 0.3:
            s += x * y * i
    return s, i


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64",
                                   "complex64", "longdouble"])
def test_sums_of_every_type(dtype):
    a = NUMBERS.integers(0, 2, 60).astype(dtype)
    check(total, (a,), (a[::-2],), (np.stack([a, a]).T[:, 1],), regions=0 if dtype in ("float16", "complex64", "longdouble") else 1)


def test_types_may_change_between_calls():
    check(total, (FLOATS,), (np.arange(70),), (FLOATS.astype(np.float32),), (list(range(50)),), (FLOATS,))


def test_iterators_over_arrays():
    check(over_elements, (FLOATS,), (FLOATS[::3],))
    check(pairs, (FLOATS, FLOATS[::-1]), (FLOATS, FLOATS[:40]), (FLOATS[:40], FLOATS))


def test_an_iterator_that_somebody_else_holds_is_moved_on():
    def f(a):
        it = iter(a)
        s = 0.0
        for x in it:
            if x > 2:
                break
            s += x
        return s, list(it)

    check(f, (np.concatenate([FLOATS, [3.0], FLOATS[:5]]),), regions=0)


def test_iterators_in_variables_are_moved_on():
    def f(a):
        s = 0.0
        for k in range(30):
            e = enumerate(a)
            for i, x in e:
                if i == 5 + k % 3:
                    break
                s += x
            for i, x in e:
                s -= x * i
            r = reversed(range(k))
            for j in r:
                if j < 9:
                    break
            s += len(list(r))
        return s

    check(f, (FLOATS[:20],), regions=0)


def test_an_iterator_in_a_cell_or_taken_twice():
    def in_a_cell(a, out):
        it = iter(range(1000))

        def following():
            return next(it)

        for i in range(len(a)):
            for x in it:
                out[i] += x
                if x % 3 == 2:
                    break
        return following()

    def twice(a, out):
        for i in range(len(a)):
            it = reversed(range(6))
            for x, y in zip(it, it):
                out[i] += x * 10 + y

    check(in_a_cell, (FLOATS, np.zeros(100)), regions=0)
    check(twice, (FLOATS, np.zeros(100)), regions=0)


def test_names_that_another_thread_changes_are_looked_at_again():
    program = """
        import threading, time
        import numpy as np, framejit

        stop = False

        @framejit.compile(retire=True)
        def spin(a):
            n = 0
            while not stop and n < 10**12:
                a[0] += 1
                n += 1
            return n

        def end():
            global stop
            until = time.monotonic() + 60
            while not framejit.cache_info()["regions"] and time.monotonic() < until:
                time.sleep(0.05)
            time.sleep(0.2)
            stop = True

        threading.Timer(0.3, end).start()
        print(spin(np.zeros(1)) < 10**12, framejit.cache_info()["regions"] > 0)
    """
    result = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True)
    assert result.stdout == "True True\n", result.stdout + result.stderr


def test_values_in_tuples_arguments_of_builtins_and_replaced_functions(monkeypatch):
    def inside(a):
        n = 0
        for i in range(len(a)):
            v = float(a[i])
            if v in (v, 1.0):
                n += 1
        return n

    def wrong(a):
        for i in range(len(a)):
            a[i] += 1
            if i > 50:
                for j, x in enumerate(range(3), None):
                    a[i] += j

    def exponential(a):
        s = 0.0
        for i in range(len(a)):
            s += math.exp(a[i])
        return s

    def roots(a, flag):
        s = np.float64(0)
        for i in range(len(a)):
            s += np.sqrt(flag) + a[i]
        return s

    def indexed(b, a):
        for i in range(len(a)):
            a[i] += b[i,]

    check(inside, (np.where(FLOATS > 0.5, np.nan, FLOATS),))
    check(wrong, (FLOATS,))
    check(roots, (FLOATS, True), (FLOATS, 2))
    check(indexed, (bytes(200), FLOATS), regions=0)
    check(exponential, (FLOATS,))
    monkeypatch.setattr(math, "exp", math.expm1)
    check(exponential, (FLOATS,), regions=0)


def test_a_name_that_is_bound_in_some_calls_only():
    def g(x, y):
        return x + 1

    def f(a, flag):
        if flag:
            settings = []
        s = 0.0
        for i in range(len(a)):
            s += g(a[i], settings) if i > 20 else a[i]
        return s

    check(f, (FLOATS, True), (FLOATS, False), (FLOATS, True))


def test_writes_that_numpy_warns_of():
    def f(b, a):
        for i in range(len(a)):
            b[i] = a[i]

    framejit.reset()
    compiled = compile(f)
    for run in (f, compiled, compiled):
        b = np.broadcast_arrays(np.zeros(1), np.zeros(100))[0]
        with pytest.warns(DeprecationWarning):
            run(b, FLOATS)


def test_rows_are_unpacked():
    def f(points, k):
        s = 0.0
        for i in range(len(points)):
            x, y, z = points[i]
            s += x * y - z
            if i == k:
                x, y = points[i]
        return s

    check(f, (NUMBERS.random((30, 3)), -1), (NUMBERS.random((30, 3)), 20))


def test_integers_that_overflow_leave():
    def f(a, n):
        x = 1
        for i in range(n):
            x = x * 3 + a[0].item() if i < 0 else x * 3
            a[i % 4] = i
        return x

    def narrow(a):
        s = a[0]
        for i in range(1, len(a)):
            s = s + a[i]
        return s

    check(f, (np.zeros(4, dtype=np.int64), 80))
    for dtype in (np.int8, np.uint8, np.int16, np.int64, np.uint64):
        check(narrow, (np.full(60, np.iinfo(dtype).max // 40, dtype=dtype),), (np.full(60, np.iinfo(dtype).max, dtype=dtype),))


def test_what_numpy_warns_of():
    def f(a, b):
        s = 0.0
        for i in range(len(a)):
            s += a[i] / b[i]
        return s

    a, b = FLOATS.copy(), FLOATS.copy()
    a[20], b[40], b[60], a[60] = np.inf, 0.0, 0.0, 0.0
    check(f, (a, b), (a * 1e300, b * 1e-300 + 1e-300), (np.full(50, np.nan), b[:50]))
    for mode in ("raise", "ignore"):
        with np.errstate(all=mode):
            check(f, (a, b), regions=mode == "ignore")


def test_divisions_by_zero_and_their_signs():
    def f(a, n, d):
        total = 0
        for i in range(1, n):
            a[i % len(a)] = i
            total += (i - 40) // (i % d - d // 2) + (i - 40) % (i % d - d // 2 - 1)
        return total

    def g(a, d):
        r = []
        x = y = 0.0
        for i in range(len(a)):
            x = (a[i].item() if i < 0 else float(a[i])) // d
            y = float(a[i]) % d
            a[i] = x + y
        return x, y

    check(f, (np.zeros(5), 90, 7), (np.zeros(5), 90, 2), (np.zeros(5), 90, 1))
    for d in (0.7, -0.7, 3, -3, 0.0, 0, math.inf, -math.inf, math.nan):
        check(g, (FLOATS * 20 - 10, d))


def test_an_index_out_of_range_is_an_error_at_its_pass():
    def f(a, n):
        for i in range(n):
            a[i] = a[i - 1] + 1
        return a

    def caught(a, n):
        found = -1
        try:
            for i in range(n):
                a[i] = a[i - 1] + 1
        except IndexError:
            found = i
        return found, i

    check(f, (np.zeros(50), 50), (np.zeros(50), 60), (np.zeros(0), 30))
    check(caught, (np.zeros(50), 50), (np.zeros(50), 60))


def test_loops_within_loops():
    def f(a):
        n, m = a.shape
        last = None
        for i in range(n):
            if a[i, 0] < 0:
                continue
            for j in range(m - 1, 0, -1):
                if a[i, j] > 0.9:
                    break
                a[i][j] += a[i, j - 1]
            else:
                last = i
            k = 0
            while k < m and a[i, k] < 2:
                a[i, k] *= 1.5
                k += 1
        return last, i, j, k

    check(f, (NUMBERS.random((20, 10)),), (NUMBERS.random((20, 10)) - 0.5,), (np.asfortranarray(NUMBERS.random((20, 10))),))


def test_memory_that_two_arrays_share():
    def f(a, b):
        for i in range(len(a)):
            a[i] = b[i] * 2 + 1

    x = NUMBERS.random(60)
    check(lambda x: (f(x[1:], x[:-1]), x), (x,), regions=0)
    compiled = compile(f)
    for shift in (1, 2, -1):
        ours, theirs = x.copy(), x.copy()
        compiled(ours[5 + shift:45 + shift], ours[5:45])
        f(theirs[5 + shift:45 + shift], theirs[5:45])
        assert (ours == theirs).all()


def test_what_is_left_to_cpython_within_a_pass(capsys):
    def f(a):
        seen = []
        s = 0.0
        for i in range(len(a)):
            s += a[i]
            if i % 25 == 7:
                print(i, s)
            if a[i] > 0.97:
                seen.append(i)
        return s, seen

    check(f, (FLOATS,))


def test_a_variable_that_is_deleted_or_not_bound():
    def f(a, k):
        for i in range(len(a)):
            if i == 0:
                x = a[0]
            if i == k:
                del x
            a[i] += x
        return x

    check(f, (FLOATS, 200), (FLOATS, 50), (FLOATS, 1))


SCALE = 3


def cube(x, by=2.0):
    if x < 0:
        return -cube(-x)
    return x * x * x / by


def test_functions_that_are_called():
    def f(a):
        s = 0.0
        for i in range(len(a)):
            s += cube(a[i] - 0.5, 1.5) + cube(float(a[i])) * SCALE + cube(by=3.0, x=a[i]) - cube(a[i], by=i + 1)
        return s

    global SCALE, cube
    compiled = check(f, (FLOATS,))
    SCALE = 4
    assert compiled(FLOATS) == f(FLOATS)
    before = cube.__code__
    cube.__code__ = (lambda x, by=2.0: x + by).__code__
    try:
        assert compiled(FLOATS) == f(FLOATS)
    finally:
        cube.__code__ = before


def test_functions_of_math_and_builtins():
    def f(a):
        s = 0.0
        for i in range(1, len(a)):
            x = a[i]
            s += math.sin(x) + math.sqrt(x) * math.exp(-x) + math.log(i) + math.floor(x * 10) + math.atan2(x, i) + abs(-x)
            s += max(x, 0.5) + min(i, 3) + int(x * 9) + round(float(x) * 7) + float(i) + divmod(i, 7)[0] + pow(i, 2) + (i in (3, 5, 9))
            s -= math.ceil(x) if math.isfinite(x) else 0
        return s

    check(f, (FLOATS,), (FLOATS.astype(np.float32),))


@pytest.mark.parametrize("operation", ["z + r", "r + z", "z - r", "r - z", "z * r", "r * z", "z * w", "w + z", "z - w", "z ** 2", "z ** 3"])
def test_complex_numbers_beside_real_ones_keep_signs_infinities_and_nans(operation):
    """From CPython 3.14 on a real number has no imaginary part, before it has one that is 0."""
    space = {"np": np}
    exec(f"def f(a, b, c, r, n):\n    parts = np.zeros((n, 2))\n    for i in range(n):\n        z, w = complex(a, b), complex(c, a)\n"
         f"        u = {operation}\n        parts[i, 0], parts[i, 1] = u.real, u.imag\n    return parts\n", space)
    values = [0.0, -0.0, 1.5, -2.0, math.inf, -math.inf, math.nan]
    check(space["f"], *itertools.product(values, values, [2.0, math.inf], [0.0, -0.0, -3.0, math.inf, math.nan], [40]))


def test_complex_numbers():
    def f(side, limit):
        times = np.zeros((side, side), dtype=np.int32)
        z = 0j
        for row in range(side):
            for column in range(side):
                c = complex(-2.0 + 2.6 * column / side, -1.3 + 2.6 * row / side)
                z = 0j
                for step in range(limit):
                    z = z ** 2 + c if row % 2 else z * z + c - 0 * 2
                    if abs(z) > 2 or z.real * z.imag > 9:
                        times[row, column] = step + 1
                        break
        return times, z, -z

    check(f, (12, 30))


def test_bytes_and_steps_that_are_not_known():
    def f(data, step):
        s = 0
        counts = np.zeros(256, dtype=np.int64)
        for b in data:
            counts[b] += 1
        for i in range(0, len(data), step):
            s ^= data[i] << (i % 5)
        return s, counts

    check(f, (bytes(range(200)), 3), (bytes(range(200)), 1), (b"", 2), (bytes(50), 0))
    check(lambda a, step: [a.__setitem__(i, i) for i in range(60, 0, step)] and a, (np.zeros(70), -7), regions=0)


LONG = tuple(range(20_000))


def test_long_tuples_are_cpythons():
    def f(a):
        s = 0.0
        for i in range(len(a)):
            s += a[i] + LONG[3]
            if i in LONG and i % 50 == 0:
                for x in LONG:
                    s += x
        return s

    check(f, (FLOATS,), regions=0)


def test_lists_and_objects_are_cpythons():
    def f(a, names):
        out = []
        for i in range(len(a)):
            out.append(names[i % 3] * int(a[i] * 3))
        return out

    check(f, (FLOATS, ["a", "bc", ""]), regions=0)


def test_explain_names_the_loop():
    compiled = check(total, (FLOATS,))
    text = framejit.explain(compiled).so_far().loops[0]
    assert text.startswith("framejit: loop at line ") and "of total: one region, " in text


def test_regions_hold_nothing_that_lives_too_long():
    def make():
        names = {}
        exec("import numpy as np\ndef f(a):\n    s = 0.0\n    for i in range(len(a)):\n        s += a[i]\n    return s\n", names)
        compiled = names["compiled"] = compile(names["f"])
        for _ in range(3):
            compiled(FLOATS)
        return weakref.ref(names["f"])

    framejit.reset()
    reference = make()
    assert framejit.cache_info()["regions"] >= 1
    gc.collect()
    assert reference() is None


def test_threads_run_regions_at_once():
    def f(a):
        s = 0.0
        for _ in range(50):
            for i in range(len(a)):
                s += a[i] * 0.5
        return s

    compiled, expected, found = check(f, (FLOATS,)), f(FLOATS), []
    threads = [threading.Thread(target=lambda: found.extend(compiled(FLOATS) for _ in range(50))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 200


def test_an_interrupt_reaches_a_region():
    program = """
        import os, signal, threading, time
        import numpy as np, framejit

        @framejit.compile(retire=True)
        def spin(a, n):
            s = 0
            for i in range(n):
                a[0] += 1
                s += 1
            return s

        spin(np.zeros(1), 100), spin(np.zeros(1), 100)
        before = framejit.cache_info()["regions_entered"]
        sent = []
        threading.Timer(0.3, lambda: (sent.append(time.monotonic()), os.kill(os.getpid(), signal.SIGINT))).start()
        try:
            spin(np.zeros(1), 10**13)
        except KeyboardInterrupt:
            late = time.monotonic() - sent[0]
            print("interrupted", late < 5, framejit.cache_info()["regions_entered"] > before)
    """
    result = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True)
    assert result.stdout == "interrupted True True\n", result.stdout + result.stderr


# ---- loops in chunks of passes


def sum_above(a, b):
    total = 0
    for i in range(len(a)):
        if a[i] > b[i]:
            total += 3
    return total


def moved(a, b):
    for i in range(len(a) - 1, 0, -1):
        a[i] = a[i - 1] + b[i]
    return a


def table(a, b):
    m = np.zeros((len(a) + 1, 60))
    for i in range(len(a)):
        for j in range(59):
            m[i + 1, j + 1] = m[i, j] + a[i] if a[i] == b[j] else max(m[i, j + 1], m[i + 1, j])
    return m


def out_of_range(a, b):
    found = 0
    try:
        for i in range(len(a) + 5):
            found = i
            b[i] = a[i]
    except IndexError as error:
        return found, str(error), b
    return found


def from_the_end(a, b):
    for i in range(len(a)):
        b[i - 3] += a[i]
    return b


def beyond_64_bits(a, b):
    n = 2 ** 63 - 3000
    for i in range(len(a)):
        if a[i] > 0:
            n += 1
    return n


@pytest.mark.parametrize("tier", ["auto", "optimised", "quick"])
@pytest.mark.parametrize("function", [sum_above, moved, table, out_of_range, from_the_end, beyond_64_bits])
def test_a_loop_whose_checks_are_made_before_is_the_same(function, tier):
    framejit.reset()
    compiled = compile(function, tier=tier)
    rng = np.random.default_rng(0)
    for call in range(24):
        n = (5000, 5, 1030, 60)[call % 4]
        a, b = rng.integers(-4, 5, n) / 4, rng.integers(-4, 5, max(n, 60)) / 4
        ours, theirs = (a.copy(), b.copy()), (a.copy(), b.copy())
        assert same(compiled(*ours), function(*theirs))
        assert same(ours, theirs)
        if call == 4:
            framejit._core.finish_compiling()
    assert framejit.cache_info()["regions"] >= 1 and framejit.cache_info()["internal_errors"] == 0


def test_questions_about_numbers():
    def f(a, p):
        odd, seen = 0, 0.0
        for i in range(len(a)):
            x = a[i]
            if np.isnan(x) or np.isinf(x):
                x, odd = 0.5, odd + 1
            if i % 11 in {1, 3, 5.0, 7} and i not in (3, 4):
                seen += x
            last = np.isfinite(p)
        return odd, seen, last, np.isnan(i), np.isinf(p)

    odd = FLOATS.copy()
    odd[::7], odd[1::9] = np.nan, np.inf
    check(f, (odd, 0.5), (odd.astype(np.float32), 3), (FLOATS, np.float32(np.inf)))


def over_range(n):
    total, text = 0, ""
    for i in range(11, n, 3):
        if i == 23:
            text = f"{i}"
        total += i
    return total, text


def over_falling_range(n):
    total, text = 0, ""
    for i in range(n, -n, -7):
        if i == n - 21:
            text = f"{i}"
        total = (total * 3 + i) & 0xFFFF
    return total, text


def over_items(items):
    total, text = 0, ""
    for x in items:
        if x == 5:
            text = f"{x}"
        total += int(x)
    return total, text


def enumerated(items):
    total, text = 0, ""
    for i, x in enumerate(items, 7):
        if i == 10:
            text = f"{i}"
        total += int(x) * i
    return total, text


def zipped(items, n):
    total, text = 0, ""
    for i, (x, y) in enumerate(zip(items, range(5, n, 2))):
        if i == 4:
            text = f"{i}"
        total += int(x) * i + y
    return total, text


@pytest.mark.parametrize("function, arguments", [
    (over_range, (9000,)), (over_falling_range, (9000,)), (over_items, (list(range(40)),)), (over_items, (np.arange(40),)),
    (over_items, (bytes(range(40)),)), (enumerated, (list(range(40)),)), (enumerated, (np.arange(40),)), (zipped, (list(range(40)), 300)),
    (zipped, (np.arange(40), 70)),
], ids=lambda value: getattr(value, "__name__", ""))
def test_a_region_goes_on_where_an_iterator_stands(function, arguments):
    compiled, before = compile(function), framejit.cache_info()["regions_entered"]
    for _ in range(3):
        assert same(compiled(*arguments), function(*arguments))
    # Each call leaves it for the text and comes back; the garbage collector may ask for a look besides.
    assert framejit.cache_info()["regions_entered"] >= before + 6


def blurred(a, w, out):
    for i in range(1, a.shape[0] - 1):
        for j in range(1, a.shape[1] - 1):
            s = 0.0
            for di in range(-1, 2):
                for dj in range(-1, 2):
                    s += a[i + di, j + dj] * w[di + 1, dj + 1]
            out[i, j] = s
    return out, di, dj


def next_generation(g, w, out):
    n, m = g.shape
    for i in range(n):
        for j in range(m):
            c = 0
            for di in range(1, -2, -1):
                for dj in range(-1, 2):
                    if di != 0 or dj != 0:
                        c += int(g[(i + di) % n, (j + dj) % m] > 0)
            out[i, j] = 1 if c == 3 or (c == 2 and g[i, j] > 0) else 0
    return out, c, dj


def first_large(a, w, out):
    found = 0
    for i in range(len(a)):
        for k in range(0, 6, 2):
            if a[i, k] > 9.5:
                found += k
                break
            out[i, k] = a[i, k] + found
        else:
            out[i, 0] = -1.0
        for k in range(3):
            out[i, 4] -= a[i, k] * w[0, k]
    return found, k, out


def out_of_range(a, w, out):
    for i in range(len(a)):
        for j in range(a.shape[1]):
            for k in range(4):
                out[i, j] += a[i, j + k]
    return out


@pytest.mark.parametrize("tier", ["auto", "optimised"])
@pytest.mark.parametrize("function", [blurred, next_generation, first_large, out_of_range], ids=lambda f: f.__name__)
def test_short_loops_of_constant_numbers_of_passes(function, tier):
    def outcome(call, arguments):
        try:
            return call(*arguments)
        except IndexError as error:
            return str(error)

    compiled = compile(function, tier=tier)
    for seed, rare in [(0, 2.0), (1, 2.0), (2, 1e308), (3, np.nan), (4, 2.0), (5, np.inf)]:
        def arguments():
            random = np.random.default_rng(seed)
            a = random.integers(-40, 40, (37, 9)) / 4
            a[20, 5] = rare
            return a, random.integers(-8, 8, (3, 3)) / 4, np.zeros((37, 9))

        ours, theirs = arguments(), arguments()
        with np.errstate(all="ignore"):
            assert same(outcome(compiled, ours), outcome(function, theirs))
        np.testing.assert_array_equal(ours[2], theirs[2])
