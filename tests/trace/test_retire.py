"""Entries that are compared with CPython: which are, when one is retired, and that nobody else can tell. Times are given, none is measured."""
import functools
import re

import numpy as np
import pytest

import framejit
from framejit import _core
from harness import needs_torch, torch

UNTIMED, TIMED = 16, 8   # as in segment/eager_race.h
EACH = 2 * TIMED         # calls of each side: before each timed one is one that is not
compiled_only = functools.partial(framejit.compile, retire=True, tier="optimised")


class Clock:
    """Timed calls run compiled and eagerly in turn, as C E E C E C C E; each takes what is said here, in nanoseconds."""

    def __init__(self, compiled, eager):
        self.took, self.timed, self.now = (compiled, eager), 0, 0

    def __call__(self, where):
        if where == "ended":
            took = self.took[self.timed.bit_count() % 2]
            self.now += took[self.timed // 2 % len(took)] if isinstance(took, list) else took
            self.timed += 1
        return self.now


@pytest.fixture
def clock():
    def give(compiled, eager):
        made = Clock(compiled, eager)
        _core.set_comparison_clock(made)
        return made

    yield give
    _core.set_comparison_clock(None)


def calls(function, count, *arguments):
    """How many of them ran compiled, and the results."""
    before = framejit.cache_info()["kernels_launched"]
    first = [function(*arguments)]
    _core.finish_compiling()  # nothing is timed while there is something to compile
    results = first + [function(*arguments) for _ in range(count - 1)]
    return framejit.cache_info()["kernels_launched"] - before, results


def plus_one(x):
    return x + 1


X = np.arange(6, dtype=np.float32)


def test_an_entry_that_is_slower_runs_eagerly_from_then_on(clock):
    compiled, timed, logged = compiled_only(plus_one), clock(5000, 1200), []
    framejit.set_logs("fallbacks", sink=lambda artifact, text: logged.append((artifact, text)))
    try:
        assert calls(compiled, UNTIMED, X)[0] == UNTIMED and timed.timed == 0
        assert calls(compiled, 2 * EACH, X)[0] == EACH and timed.timed == 2 * TIMED
    finally:
        framejit.set_logs("", sink=None)
    reason = ("from now on, because it is faster so: compiled 5 µs, eagerly 1.2 µs (the least of 8 calls each); "
              "the option `retire` keeps it compiled if it is off")
    assert logged == [("fallbacks", "framejit: ran eagerly: plus_one\n  " + reason)]
    ran, results = calls(compiled, 5, X)
    assert ran == 0 and all(np.array_equal(result, X + 1) for result in results)
    info = framejit.cache_info()
    assert (info["retired"], info["eager_replays"], info["internal_errors"], info["segments"]) == (1, 0, 0, 1)
    assert timed.timed == 2 * TIMED, "a retired entry is not timed"
    assert framejit.explain(compiled).so_far().fallbacks == [logged[0][1]]
    # Other arguments have an entry of their own.
    assert calls(compiled, 3, X.astype(np.float64))[0] == 3
    framejit.reset()
    assert framejit.cache_info()["retired"] == 0 and calls(compiled, 3, X)[0] == 3


def test_other_arguments_and_globals_are_found_behind_a_retired_entry(clock):
    clock(5000, 1000)
    class Owner:
        scale = 2

        def scaled(self, x):
            return x * self.scale

    owner = Owner()
    compiled = compiled_only(Owner.scaled)
    assert calls(compiled, 120, owner, X)[0] < 60 and calls(compiled, 32, owner, X)[0] == 0
    for other in (X.astype(np.float64), X[None], X > 1):
        ran, results = calls(compiled, 3, owner, other)
        assert ran == 3 and np.array_equal(results[0], other * 2)
        assert calls(compiled, 32, owner, X)[0] == 0
    # A size; what does not show in the arguments is asked for now and then.
    assert calls(compiled, 3, owner, np.arange(7, dtype=np.float32))[0] == 3
    owner.scale = 3
    ran, results = calls(compiled, 40, owner, X)
    assert ran > 0 and all(np.array_equal(result, X * 3) for result in results)


@pytest.mark.parametrize("compiled_time, eager_time, eager_calls",
                         [(1000, 1200, EACH), (1000, 1000, 2 * EACH), (1000, 1001, 2 * EACH), (1000, 1301, 6), (1000, 3001, 4), (1000, 15_000, 4), (1000, 100_000, 2),
                          (200_000, 270_000, 5)])
def test_an_entry_that_is_not_slower_stays(clock, compiled_time, eager_time, eager_calls):
    compiled = compiled_only(plus_one)
    clock(compiled_time, eager_time)
    assert calls(compiled, 100, X)[0] == 100 - eager_calls
    assert framejit.cache_info()["retired"] == 0
    assert framejit.explain(compiled).so_far().fallbacks == []


def test_the_least_time_of_each_side_decides(clock):
    clock([9000] * 7 + [1000], [9000, 1100])
    assert calls(compiled_only(plus_one), 60, X)[0] == 60 - EACH
    clock([9000] * 7 + [1200], [9000, 1000])
    assert calls(compiled_only(plus_one), 60, X)[0] == UNTIMED + EACH


def test_a_race_that_is_close_is_run_anew(clock):
    clock([1000] * 8 + [1300] * 8, [1050] * 8 + [1200] * 8)
    assert calls(compiled_only(plus_one), 100, X)[0] == UNTIMED + 2 * EACH and framejit.cache_info()["retired"] == 1


@pytest.mark.parametrize("looking, retired", [(0, 0), (300, 1)])
def test_looking_for_the_segment_is_time_of_the_compiled_side(clock, looking, retired):
    timed = clock(1000, 1200)

    def slow_to_enter(where):
        now = timed(where)
        timed.now += looking * (where == "entered")
        return now

    _core.set_comparison_clock(slow_to_enter)
    assert calls(compiled_only(plus_one), UNTIMED + 2 * EACH + 5, X)[0] == UNTIMED + EACH + (0 if retired else 5)
    assert framejit.cache_info()["retired"] == retired


def test_the_option_turns_it_off(clock):
    timed = clock(5000, 10)
    with framejit.options(retire=True):
        assert calls(framejit.compile(plus_one, tier="optimised"), 60, X)[0] == UNTIMED + EACH
    assert calls(framejit.compile(plus_one, retire=False), 60, X)[0] == 60
    assert timed.timed == 2 * TIMED


def test_effects_happen_once(clock):
    clock(5000, 1000)
    array = np.zeros(3)

    def program(x):
        x += 1
        return x * 2

    results = calls(compiled_only(program), 60, array)[1]
    assert array.tolist() == [60] * 3
    assert [r[0] for r in results] == [2 * (i + 1) for i in range(60)]
    assert framejit.cache_info()["retired"] == 1


def test_what_raises_is_not_counted():
    asked = []
    _core.set_comparison_clock(lambda where: asked.append(where) or 1000 * len(asked))

    def program(x, d):
        return x[d]

    compiled, good, bad = compiled_only(program), np.array([1, 2]), np.array([1, 9])
    compiled(X, good)
    _core.finish_compiling()
    for index in [good] * (UNTIMED - 1) + [good, bad] * 4 + [good] * 2 * EACH:
        if index is bad:
            with pytest.raises(IndexError):
                compiled(X, index)
        else:
            np.testing.assert_array_equal(compiled(X, index), X[index])
    compiled(X, good)
    _core.set_comparison_clock(None)
    # Of the first four pairs the second calls began to be timed only.
    assert framejit.cache_info()["retired"] == 0 and asked.count("ended") == TIMED + TIMED


def asks(x):
    return x + 1 if framejit.is_compiling() else x + 1


def asks_after_a_break(x):
    print(end="")
    return asks(x)


def asks_out_of_sight(x):
    results = []
    re.sub("x", lambda found: results.append(asks(x)) or "", "x")
    return results[0] * 2


def many_bytes(x):
    return (x[:, None] + x[None, :])[::1000, ::1000] * 2


def many_bytes_after_a_break(x):
    print(end="")
    return many_bytes(x)


@pytest.mark.parametrize("program, argument", [(asks, X), (asks_after_a_break, X), (asks_out_of_sight, X), (many_bytes, np.ones(5000)), (many_bytes_after_a_break, np.ones(5000))],
                         ids=lambda a: getattr(a, "__name__", ""))
def test_what_can_t_be_compared(clock, program, argument):
    timed = clock(5000, 10)
    compiled = compiled_only(program)
    ran = calls(compiled, 50, argument)[0]
    assert timed.timed == 0 and ran >= 50


def is_retired(program, *arguments):
    compiled, before = compiled_only(program), framejit.cache_info()["retired"]
    expected = program(*arguments)
    for result in calls(compiled, UNTIMED + 2 * EACH, *arguments)[1]:
        np.testing.assert_allclose(result, expected, rtol=1e-6)
    return framejit.cache_info()["retired"] - before == 1 and calls(compiled, 3, *arguments)[0] == 0


def chain(x):
    for _ in range(40):
        x = x * 2 - 1
    return x


@pytest.mark.parametrize("program", [chain, lambda x: x.sum(), np.exp, lambda x: np.linalg.norm(x - 1), lambda x: np.median(x), lambda x: np.unique(x)])
def test_results_that_differ_in_the_last_bits_do_not_matter(clock, program):
    clock(5000, 1000)
    assert is_retired(lambda x: program(x), X)


def test_a_verdict_is_of_one_class_of_sizes(clock):
    compiled, times = compiled_only(plus_one), {}
    for n in (5, 6, 7):   # sizes are symbolic from here on
        compiled(np.zeros(n))
    _core.finish_compiling()
    for n, compiled_time in ((5, 5000), (100, 500), (100_000, 5000)):
        clock(compiled_time, 1000)
        before = framejit.cache_info()["kernels_launched"]
        for i in range(60):
            assert (compiled(np.zeros(n)) == 1).all()
        times[n] = framejit.cache_info()["kernels_launched"] - before
    clock(1, 1)
    later = {n: calls(compiled, 4, np.zeros(n))[0] for n in (4, 7, 100, 127, 100_000, 120_000)}
    assert later == {4: 0, 7: 0, 100: 4, 127: 4, 100_000: 0, 120_000: 0} and framejit.cache_info()["retired"] == 2
    assert times[100] == 60 - 6 and times[5] < 60 and times[100_000] < 60


def test_a_function_with_breaks_is_timed_as_a_whole(clock):
    clock(5000, 1000)
    seen, array = [], np.zeros(3)

    def program(x):
        x += 1
        seen.append(float(x[0]))
        print(end="")
        return np.exp(x - x) * 2

    compiled = compiled_only(program)
    ran, results = calls(compiled, 60, array)
    assert seen == list(range(1, 61)) and array.tolist() == [60] * 3
    assert all(r.tolist() == [2, 2, 2] for r in results)
    assert framejit.cache_info()["retired"] == 1 and calls(compiled, 3, array)[0] == 0
    # A size of another class is a question of its own.
    assert calls(compiled, 3, np.zeros(100))[0] > 0


def test_a_function_with_breaks_that_is_faster_compiled_stays(clock):
    clock(1000, 5000)

    def program(x):
        y = x + 1
        print(end="")
        return y * 2

    compiled = compiled_only(program)
    assert calls(compiled, 60, X)[0] == 2 * (60 - 4) and framejit.cache_info()["retired"] == 0


def test_work_that_differs_from_call_to_call_retires_nothing_by_its_easiest_one(clock):
    clock([9000] * 3 + [5000] + [9000] * 12, [9500, 9500, 1000, 9500, 9500, 9500, 9500, 9500])
    assert calls(compiled_only(plus_one), 60, X)[0] == 60 - EACH and framejit.cache_info()["retired"] == 0


def test_a_function_called_at_a_break_is_compared(clock):
    clock(5000, 1000)
    inner_seen = []

    def inner(x):
        inner_seen.append(1)
        return x + 1

    def outer(x):
        return list(map(inner, sorted([x], key=lambda a: print(end=""))))[0]

    compiled = compiled_only(outer)
    for i in range(60):
        np.testing.assert_array_equal(compiled(X), X + 1)
        assert len(inner_seen) == i + 1


def test_a_function_called_at_a_break_stays_compiled_while_it_is_compared():
    """Calls that CPython runs in its turn are none without array work. Its side takes some 50 times as long: no time is given."""

    def inner(a):
        for i in range(len(a)):
            a[i] += i

    def outer(a):
        b = a * 2
        inner(b)
        return b

    compiled, a = compiled_only(outer), np.arange(20000.0)
    for _ in range(80):
        np.testing.assert_array_equal(compiled(a), outer(a))
    before = framejit.cache_info()["regions_entered"]
    for _ in range(20):
        np.testing.assert_array_equal(compiled(a), outer(a))
    assert framejit.cache_info()["regions_entered"] == before + 20


def test_fullgraph_and_recursion(clock):
    clock(5000, 1000)
    compiled = compiled_only(plus_one, fullgraph=True)
    assert all(np.array_equal(r, X + 1) for r in calls(compiled, 60, X)[1])
    assert framejit.cache_info()["retired"] == 1
    clock(5000, 1000)

    def fold(x, n):
        return x if n == 0 else again(x + 1, n - 1)

    again = compiled_only(fold)
    for _ in range(60):
        _core.finish_compiling()
        np.testing.assert_array_equal(again(X, 3), X + 3)
    assert framejit.cache_info()["internal_errors"] == 0


def test_numpy_reports_its_conditions(clock):
    clock(5000, 1000)
    compiled = compiled_only(lambda x: 1 / x)
    for _ in range(60):
        _core.finish_compiling()
        assert compiled(np.ones(3)).tolist() == [1, 1, 1]
    assert framejit.cache_info()["retired"] == 1
    with pytest.warns(RuntimeWarning, match="divide by zero"):
        compiled(np.zeros(3))


@pytest.mark.parametrize("slower", [False, True])
def test_random_draws_are_those_of_eager(clock, slower):
    clock(5000 if slower else 1000, 1000)
    program = lambda generator: generator.standard_normal(3) * 2  # noqa: E731
    eager, ours = np.random.default_rng(1), np.random.default_rng(1)
    compiled = compiled_only(program)
    for _ in range(60):
        _core.finish_compiling()
        np.testing.assert_array_equal(compiled(ours), program(eager))
    assert ours.random() == eager.random() and framejit.cache_info()["retired"] == slower


@needs_torch
def test_what_has_a_derivative_is_not_compared(clock):
    timed = clock(5000, 1000)
    compiled, x = compiled_only(lambda x: x * x), torch.ones(3, requires_grad=True)
    for _ in range(40):
        _core.finish_compiling()
        compiled(x).sum().backward()
    assert x.grad.tolist() == [80] * 3 and timed.timed == 0
    assert [result.tolist() for result in calls(compiled, 60, x.detach())[1]] == [[1, 1, 1]] * 60
    assert framejit.cache_info()["retired"] == 1


@needs_torch
def test_torch_random_draws_and_writes(clock):
    clock(5000, 1000)

    def program(x):
        x.add_(1)
        return torch.rand(3) + x

    compiled, mine, theirs = compiled_only(program), torch.zeros(3), torch.zeros(3)
    torch.manual_seed(3)
    expected = [program(theirs).clone() for _ in range(60)]
    torch.manual_seed(3)
    for result in expected:
        _core.finish_compiling()
        assert torch.equal(compiled(mine), result)
    assert torch.equal(mine, theirs)
    assert mine._version == theirs._version and framejit.cache_info()["retired"] == 1


def test_an_entry_that_always_gives_up_is_retired(clock):
    clock(1, 1)
    compiled = compiled_only(lambda x: 1 / x)
    zeros = np.zeros(3)
    with np.errstate(all="ignore"):
        compiled(zeros)
    framejit.reset()
    with pytest.warns(RuntimeWarning, match="divide by zero"):
        results = [(compiled(zeros), _core.finish_compiling())[0] for _ in range(60)]
    info = framejit.cache_info()
    assert info["retired"] == 1 and info["eager_replays"] < 60 and all(np.array_equal(r, [np.inf] * 3) for r in results)
    assert "gave up and ran eagerly" in framejit.explain(compiled).so_far().text()


def test_a_sink_that_raises_stops_nothing(clock, monkeypatch):
    import sys

    clock(5000, 1200)
    compiled, ignored = compiled_only(plus_one), []
    monkeypatch.setattr(sys, "unraisablehook", lambda what: ignored.append(what.exc_type))

    def sink(artifact, text):
        raise ValueError("no")

    framejit.set_logs("fallbacks", sink=sink)
    try:
        _, results = calls(compiled, UNTIMED + 2 * EACH + 4, X)
    finally:
        framejit.set_logs("", sink=None)
    assert ignored and set(ignored) == {ValueError} and all(np.array_equal(r, X + 1) for r in results)


def test_memory_that_is_needed_at_once_decides_whether_an_entry_is_compared(clock):
    """Of a chain of large values eager has two at a time."""
    def chain(x):
        for _ in range(40):
            x = x * 1.5 + 1
        return x

    def wide(x):
        parts = [x * float(i) for i in range(1, 40)]
        return sum(parts[::-1])

    x = np.ones(2**19)  # 4 MiB
    for f, retired in ((chain, 1), (wide, 0)):
        framejit.reset()
        clock(5000, 1200)
        calls(compiled_only(f), UNTIMED + 2 * EACH + 2, x)
        assert framejit.cache_info()["retired"] == retired, f.__name__
