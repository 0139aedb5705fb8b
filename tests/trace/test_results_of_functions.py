"""What pure functions make of numbers and texts that change between calls: one graph where nothing asks for the value."""
import math
import random
import warnings

import numpy as np
import pytest

import framejit
from harness import assert_same, counted

X = np.linspace(-1, 1, 12).reshape(3, 4)
SCALES = {f"k{i}": i / 4 for i in range(30)}
ARRAYS = {f"layer{i}.weight": np.full(4, float(i)) for i in range(30)}
LEVELS = [i / 8 for i in range(21)]
BY_NUMBER = {i: np.full(4, i / 2) for i in range(30)}


def equal(function, calls):
    return counted(function, calls, exact=True)


def warmed(x, step):
    return x * min(1.0, (step + 1) / 10)


def annealed(x, step):
    return x * (0.5 * (1 + math.cos(math.pi * step / 20)))


def decayed(x, step):
    lr = 0.5 * 0.9**step
    if lr < 0.1:
        lr = 0.1
    return x * lr


def thresholded(x, p):
    return x * p if p < 0.5 else x + p


def truthful(x, p):
    return x * p if p - 0.5 else x


# (function, further arguments of 20 calls, graphs: one for the first value, one for each way it goes from then on)
NUMBERS = {
    "warm-up": (warmed, [(i,) for i in range(20)], 3),
    "cosine": (annealed, [(i,) for i in range(20)], 2),
    "decay with a floor": (decayed, [(i,) for i in range(20)], 3),
    "threshold": (thresholded, [(i / 20,) for i in range(20)], 3),
    "truth of a float": (truthful, [(i / 20,) for i in range(20)], 3),
    "rounding": (lambda x, p: x * round(p, 1) + math.floor(p * 9) + int(p * 5) + divmod(p, 0.3)[0], [(i / 20,) for i in range(20)], 2),
    "text handed back": (lambda x, n: (x + 1, f"epoch {n}: {n / 7:.3f}", str(n), repr(n / 3)), [(n,) for n in range(20)], 2),
    "methods of a text": (lambda x, s: (x + 1, s.upper(), s.split("_")[0] + "!"), [(f"a_{i}",) for i in range(3)], 2),
    "a name found in a dict": (lambda x, s: x * SCALES[s], [(f"k{i}",) for i in range(20)], 2),
    "a place in a list": (lambda x, i: x * LEVELS[i] + (2, 3, 5)[i % 3], [(i,) for i in range(20)], 2),
    "a place counted from the end": (lambda x, i: x * LEVELS[-i - 1] + LEVELS[i - 21], [(i,) for i in range(20)], 2),
    "a name made of a number": (lambda x, i: x * ARRAYS[f"layer{i}.weight"], [(i,) for i in range(20)], 2),
    "a number found in a dict": (lambda x, i: x * BY_NUMBER[i], [(i,) for i in range(20)], 2),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_what_changes_is_asked_only_what_the_code_asks(name):
    function, changed, graphs = NUMBERS[name]
    info = equal(function, [(X, *given) for given in changed])
    assert info["graphs"] == graphs and info["breaks"] == 0 and info["eager_replays"] == 0


def test_a_ramp_of_a_number_of_steps_that_changes():
    info = equal(lambda x, n: (np.linspace(0, 1, n) * x.size, np.linspace(-2.5, 7, num=n, endpoint=False), np.linspace(3, 3, n)),
                 [(X, n) for n in range(2, 30)])
    assert info["graphs"] == 2 and info["breaks"] == 0
    equal(lambda x, n: (np.linspace(0, 1, n) + 1, np.linspace(0, 5e-324, n), x * 2), [(X, n) for n in (5, 6, 7, 1, 0, 2, -1, 3)])


SIZES = {
    "a share": lambda x: (x[: int(x.shape[0] * 0.8)].sum(), x[int(len(x) * 0.8):] * 2),
    "batches": lambda x: x[: math.ceil(x.shape[0] / 4)] * 2,
    "at least one": lambda x: x[: max(1, round(x.shape[0] * 0.3))] + 1,
    "a root": lambda x: x * int(math.sqrt(x.shape[0])),
    "bits": lambda x: x * (x.shape[0] & 6) + (x.shape[0] ^ 1),
}


@pytest.mark.parametrize("name", SIZES)
def test_an_int_made_of_a_size_by_way_of_a_float_is_a_symbol(name):
    # At most one graph more where the size asks something of itself.
    info = equal(SIZES[name], [(np.arange(3.0 * n).reshape(n, 3),) for n in range(5, 25)])
    assert info["graphs"] <= 3 and info["breaks"] == 0 and info["eager_replays"] == 0


def test_a_branch_prints_as_the_user_wrote_it():
    f = framejit.compile(thresholded)
    for p in (0.1, 0.2, 0.3):
        f(X, p)
    assert "L.p < 0.5 == True" in framejit.explain(f).so_far().guards


def test_values_of_other_kinds_come_back():
    calls = [(X, 0.25), (X, 0.75), (X, 1), (X, True), (X, np.float64(0.3)), (X, 0.1), (X, 2**70), (X, -1.0), (X, math.nan)]
    equal(thresholded, calls)
    equal(thresholded, calls[::-1])
    equal(lambda x, n: (x * 1, 10 / n), [(X, n) for n in (4, 5, 6, 0, 7, 0.0, 8)])
    equal(lambda x, n: (x * 1, int(n / 3)), [(X, n) for n in (4, 5, 6, math.inf, 2.0**40, 7, 9.5)])


def test_classes_derived_from_numbers_answer_for_themselves():
    class Odd(float):
        def __lt__(self, other):
            return True

    equal(thresholded, [(X, 0.6), (X, 0.7), (X, 0.8), (X, Odd(0.9)), (X, 0.9)])


def test_a_key_that_is_missing_is_python_s_error():
    equal(lambda x, s: x * SCALES[s], [(X, s) for s in ("k1", "k2", "k3", "no", "k4", "k5")])
    equal(lambda x, s: x * SCALES.get(s, 2.0), [(X, s) for s in ("k1", "k2", "k3", "no", "k4")])


def test_what_a_dict_holds_may_change_between_the_calls():
    def f(x, d, s):
        return x * d[s]

    framejit.reset()
    compiled = framejit.compile(f)
    d = {"a": 1.0, "b": X, "c": 3, "d": X[0], "e": 2.5, "f": 0.5}
    for s in "abcdefabcdef":
        np.testing.assert_array_equal(compiled(X, d, s), f(X, d, s))
        d[s] = d[s] * 2 if s != "c" else X[1]


def test_a_dict_that_was_written_is_asked_by_the_key_of_this_call():
    def f(x, d, s):
        d["a"] = x
        return d[s] * 2

    equal(f, [(X, {"a": X + 1, "b": X + 2, "c": X + 3, "d": X}, s) for s in ("b", "c", "d", "a", "b", "a")])

    def g(x, d, s, t):
        y = d[s]
        d[t] = x
        return y * 2 + d[s]

    equal(g, [(X, {"a": X + 1, "b": X + 2, "c": X + 3, "d": X}, s, t) for s, t in ("bc", "cd", "da", "aa", "bb", "ab", "cc")])


def test_a_place_that_is_not_there_is_python_s_error():
    equal(lambda x, d, i: x * d[i], [(X, [1.0, 2.0, 3.0, 4.0], i) for i in (0, 1, 2, 7, 3, -1, -4, -5, 2**40)])
    equal(lambda x, d, i: x * d[i], [(X, d, i) for d, i in (([1.0, 2.0, 3], 0), ([1.0, 2.0, 3], 1), ([1.0, 2.0, 3], 2), ([X, 2.0, 3], 0), ((1.5, 2.5, 3), 1))])

    def f(x, d, i):
        d[0] = d[0] + 1.0
        return x * d[i]

    equal(f, [(X, [1.0, 2.0, 3.0, 4.0], i) for i in (1, 2, 3, 0, 1)])


def test_two_keys_may_meet_on_a_later_call():
    def f(d, s, t):
        d[s].append(len(d[t]))
        d[t].append(len(d[s]))
        return X * len(d[s]), d[s] is d[t]

    def fresh():
        return {k: [0] * i for i, k in enumerate("abcde")}

    framejit.reset()
    compiled = framejit.compile(f)
    for s, t in ("ab", "bc", "cd", "dd", "ae", "bb", "eb"):
        ours, eager = fresh(), fresh()
        results = compiled(ours, s, t), f(eager, s, t)
        np.testing.assert_array_equal(results[0][0], results[1][0])
        assert results[0][1] is results[1][1] and ours == eager

    def write(d, s, t):
        d[s] += 1
        d[t] *= 2
        return d[s] + d[t]

    framejit.reset()
    compiled = framejit.compile(write)
    for s, t in ("ab", "bc", "cd", "dd", "ae", "bb", "eb"):
        ours, eager = ({k: X + i for i, k in enumerate("abcde")} for _ in range(2))
        np.testing.assert_array_equal(compiled(ours, s, t), write(eager, s, t))
        for k in ours:
            np.testing.assert_array_equal(ours[k], eager[k])


def test_a_value_changed_in_the_trace_is_known_by_what_it_was():
    class Counter:
        def __init__(self, n):
            self.n = n

    def f(x, c):
        before = f"{c.n / 2:.1f}"
        c.n += 1
        return x * (c.n / 4), before, f"{c.n / 2:.1f}", c.n / 4 < 2

    framejit.reset()
    compiled = framejit.compile(f)
    ours, eager = Counter(1), Counter(1)
    for _ in range(12):
        assert_same(compiled(X, ours), f(X, eager), exact=True)
        assert ours.n == eager.n
    assert framejit.cache_info()["graphs"] <= 4


def test_a_long_chain_of_floats_is_computed():
    def f(x, v):
        total = 0.0
        for _ in range(1200):
            v = v * 0.999
            total = total + v
        return x * v if total < 900 else x + v

    equal(f, [(X, v) for v in (1.0, 1.1, 1.2, 1.3, 2.0)])


def test_what_another_path_would_make_huge_is_not_made():
    def f(x, n):
        if n < 30:
            return x * (math.factorial(n) % 7), "ab".ljust(n), f"{n:>{n}}", 2**n, "-" * n, bytes(n)
        return x + n

    equal(f, [(X, n) for n in (3, 4, 5, 6, 2**30, 7, 2**31 - 5, 8)])


def test_the_length_of_a_text_that_is_reached_by_steps_is_bound_before_it_is_compared():
    class Named:
        def __init__(self, name):
            self.name = name

    equal(lambda x, c: x[: max(1, len(c.name))] * 2, [(X, Named("a" * n)) for n in (0, 3, 1, 2, 0, 3, 2, 1, 0, 2)])
    equal(lambda x, s: x[: max(1, len(s.strip()))] * 2, [(X, "a" * n) for n in (0, 3, 1, 2, 0, 3, 2, 1, 0, 2)])


def test_static_options_make_nothing_of_it():
    f = framejit.compile(warmed, dynamic=False)
    for step in range(4):
        np.testing.assert_array_equal(f(X, step), warmed(X, step))
    assert "L.step == 3" in framejit.explain(f).so_far().guards


def test_the_larger_of_two_computed_floats_is_in_the_graph():
    info = equal(lambda x: (x * max(float(x[2, 3]), 1.0), min(max(float(x[0, 0]), -0.5), 0.5), max(float(x[0, 1]), float(x[1, 1]), 0.25)),
                   [(X + i / 8,) for i in range(-9, 9)] + [(X * math.nan,)])
    assert info["graphs"] == 1 and info["breaks"] == 0
    equal(lambda x: (x, max(float(x.sum()), 1), min(0, float(x.sum()))), [(X + i,) for i in (-1, 0, 1)])


@pytest.mark.parametrize("function", [
    lambda x, k: int(x.sum()) + (k == 2), lambda x, k: int(x[0, 0]) * True, lambda x, k: int(x[0, 0] > 0) + True, lambda x, k: (k > 3) - int(x[1, 1]),
    lambda x, k: random.randint(1, 1) + (k > 3), lambda x, k: int(x.sum()) ** True, lambda x, k: float(x[0, 0]) + (k == 2), lambda x, k: bool(x[0, 0] > 0) * 2,
])
def test_a_bool_is_an_int_to_a_computed_int(function):
    equal(function, [(X * 3 + i, i) for i in range(5)])


def test_a_function_of_many_operands_is_asked_by_a_guard():
    info = equal(lambda x, n: x * math.gcd(n, 12, 24, 36, 48), [(X, n) for n in (6, 8, 9, 12, 30, 7)])
    assert info["graphs"] <= 3
    equal(lambda x, p: x * math.hypot(p, 1, 2, 3, 4), [(X, p / 4) for p in range(6)])


class Loud(str):
    def __add__(self, other):
        return "ADD" + str(other)

    def __radd__(self, other):
        return "RADD"


class SaysLoud:
    def __format__(self, specification):
        return Loud("sub")


def test_parts_of_an_f_string_are_joined_as_they_are():
    equal(lambda x, n, o: (x * 2, f"{n}-{o}-{n}", f"{o}{n}"), [(X, n, SaysLoud()) for n in range(5)])


def test_results_of_results_are_fetched_once():
    def f(x, v):
        for _ in range(40):
            v = round(v * 0.5 + v * 0.25, 9)
        return x + random.uniform(0, v)

    random.seed(3)
    expected = [f(X, v) for v in (8.0, 16.0, 24.0, 32.0)]
    compiled = framejit.compile(f)
    random.seed(3)
    for v, eager in zip((8.0, 16.0, 24.0, 32.0), expected):
        np.testing.assert_array_equal(compiled(X, v), eager)


def test_a_text_that_grows_on_another_path_is_not_made_by_a_guard():
    def f(x, s):
        if not s:
            for _ in range(60):
                s = s + s
            return x * 3, s
        return x * 2, s

    equal(f, [(X, s) for s in ("", "abc", "", "abcd" * 20, "", "c")])


def test_a_codec_of_the_user_runs_as_often_as_in_eager():
    import codecs

    seen = []

    def handler(error):
        seen.append(1)
        return "?" * (error.end - error.start), error.end

    codecs.register_error("framejit-test", handler)

    def f(x, s):
        return x * len(s.encode("ascii", "framejit-test"))

    compiled = framejit.compile(f)
    for s in ("é", "éé", "aé", "ü"):
        np.testing.assert_array_equal(compiled(X, s), X * len(s))
    assert len(seen) == 4


# ---- NumPy's integer scalars

def test_counts_are_calculated_with():
    def f(p, t):
        hit, miss = ((p == 1) & (t == 1)).sum(), ((p == 1) != (t == 1)).sum()
        return 2 * hit / (2 * hit + miss), hit - miss, hit + miss * 3, (hit & 3) | miss, p.trace() / p.size

    rng = random.Random(3)
    calls = [tuple(np.array([[rng.randrange(2) for _ in range(4)] for _ in range(4)]) for _ in "pt") for _ in range(8)]
    info = equal(f, calls)
    assert info["graphs"] == 1 and info["breaks"] == 0 and info["eager_replays"] == 0


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "uint32", "int64", "uint64"])
def test_where_integers_overflow_numpy_says_so(dtype):
    limits = np.iinfo(dtype)

    def f(a, b):
        return a.max() + b.max(), a.max() - b.max(), a.max() * b.max(), a.max() / b.max()

    values = [limits.min, limits.max, 1, 3, limits.max // 2]
    framejit.reset()
    compiled = framejit.compile(f)
    for a in values:
        for b in values:
            x, y = np.array([a], dtype), np.array([b], dtype)
            outcomes, said = [], []
            for run in (compiled, f):
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    outcomes.append(run(x, y))
                said.append([str(warning.message) for warning in caught])
            assert_same(*outcomes, exact=True)
            assert said[0] == said[1], (a, b)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "uint32", "int64", "uint64"])
def test_abs_of_the_lowest_integer_warns(dtype):
    def f(a):
        return abs(a.min()), abs(a)

    framejit.reset()
    compiled = framejit.compile(f)
    for value in (np.iinfo(dtype).min, np.iinfo(dtype).max, 3):
        x, outcomes, said = np.array([value, 1], dtype), [], []
        for run in (compiled, f):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                outcomes.append(run(x))
            said.append([str(warning.message) for warning in caught])
        assert_same(*outcomes, exact=True)
        assert said[0] == said[1], value
    assert framejit.cache_info()["graphs"] == 1
