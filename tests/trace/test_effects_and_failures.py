"""Side effects and failures: what a call leaves behind, in which order, also when it ends by an exception.

A run-time failure is planted at each position of a program: at the top, in a callee, in a loop, in `with` and `try`, after
writes into inputs, attributes, lists and globals. Compiled and eager must agree on the exception, every line of its
traceback, the memory of all arrays, and everything else that was changed.
"""
import copy
import linecache
import traceback

import numpy as np
import pytest

import framejit
from harness import assert_same, needs_torch, torch

BODY = '''
def make():
    log, table, state = [], {}, State()

    def callee(y, i):
        log.append("callee")
        y[0] += 1
        {c0}
        z = y[i] * 2
        {c1}
        log.append("left")
        return z

    def f(x, i):
        y = x * 2
        {p0}
        log.append(1)
        x[1] = 5
        {p1}
        state.count += 1
        state.last = y
        z = callee(x, 0) + y[0]
        {p2}
        table["k"] = z
        for k in range(2):
            x[k] *= 2
            {p3}
            log.append(k)
        try:
            log.append("try")
            {p4}
            x += 1
        finally:
            log.append("finally")
            x[2] = 7
        with Manager(log):
            y -= 1
            {p5}
            table["m"] = 3
        state.done = True
        {p6}
        return z, y, x

    return f, (log, table, state)
'''
PLACES = ["c0", "c1", "p0", "p1", "p2", "p3", "p4", "p5", "p6"]
FAILURES = {
    "index": "x_or_y[i + 100]",
    "attribute": "state.nothing",
    "key": "table['none']",
    "raise": "raise ValueError(i)",
    "division": "1 // (i - i)",
    "shape": "x_or_y[:2] + x_or_y[:3]",
    "unbound": "del i; i",
    "array_index": "x_or_y[np.array([0, 99])]",
}


class State:
    def __init__(self):
        self.count = 0


class Manager:
    def __init__(self, log):
        self.log = log

    def __enter__(self):
        self.log.append("enter")

    def __exit__(self, kind, error, trace):
        self.log.append(None if kind is None else kind.__name__)


def program(place, failure):
    array = "y" if place.startswith("c") else "x"
    lines = dict.fromkeys(PLACES, "pass")
    lines[place] = FAILURES[failure].replace("x_or_y", array)
    source = BODY
    for key, line in lines.items():
        source = source.replace("{%s}" % key, line)
    name = f"<effects {place} {failure}>"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    namespace = {"State": State, "Manager": Manager, "np": np}
    exec(compile(source, name, "exec"), namespace)
    return namespace["make"], name


def run(function, x, i, name):
    """(result, exception, lines of the traceback that are the program's)"""
    try:
        return function(x, i), None, None
    except Exception as error:
        frames = [(f.name, f.lineno) for f in traceback.extract_tb(error.__traceback__) if f.filename == name]
        return None, error, frames


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("place", PLACES)
def test_a_failure_leaves_what_eager_leaves(place, failure):
    make, name = program(place, failure)
    (eager, eager_state), (ours, our_state) = make(), make()
    compiled = framejit.compile(ours)
    for _ in range(3):
        left, right = np.arange(6.0), np.arange(6.0)
        expected, eager_error, eager_frames = run(eager, left, 0, name)
        actual, our_error, our_frames = run(compiled, right, 0, name)
        assert type(our_error) is type(eager_error) and str(our_error) == str(eager_error)
        assert our_frames == eager_frames
        assert_same(right, left, "memory")
        assert_same(actual, expected)
        assert_same(our_state, eager_state, "state")
    assert framejit.cache_info()["internal_errors"] == 0


@pytest.mark.parametrize("position", range(6))
def test_data_that_fails_at_one_position_only(position):
    """An index that comes from an array: whether it fails is known when the program runs."""
    def make():
        log = []

        def pick(x, i):
            log.append(len(log))
            return x[i]

        def f(x, indices):
            x += 1
            total = x[0] * 0
            for k in range(6):
                log.append("k")
                total = total + pick(x, indices[k:k + 1])
                x[k] = 9
            return total

        return f, log

    (eager, eager_log), (ours, our_log) = make(), make()
    compiled = framejit.compile(ours)
    for bad in (None, position, None):
        indices = np.arange(6)
        if bad is not None:
            indices[bad] = 77
        left, right = np.arange(6.0), np.arange(6.0)
        outcomes = []
        for function, x in ((eager, left), (compiled, right)):
            try:
                outcomes.append(function(x, indices.copy()))
            except IndexError as error:
                outcomes.append([(f.name, f.lineno) for f in traceback.extract_tb(error.__traceback__) if f.filename == __file__][1:] + [str(error)])
        assert_same(outcomes[1], outcomes[0])
        assert_same(right, left, "memory")
        assert our_log == eager_log


# ---- identity: who else holds what was changed

def test_an_object_held_by_the_caller_a_global_and_a_closure_stays_one():
    shared = {"list": [1], "array": np.ones(3)}
    holder = [shared["list"], shared["array"]]

    @framejit.compile
    def f(x, mine, again):
        shared["list"].append(2)
        mine.append(3)
        shared["array"] += 1
        again[0].append(4)
        return mine is shared["list"], again[0] is mine, shared["array"] is again[1], x * len(mine)

    for n in range(1, 4):
        same = f(np.ones(2), holder[0], holder)
        assert same[:3] == (True, True, True)
        assert shared["list"] == [1] + [2, 3, 4] * n and holder[0] is shared["list"]
        np.testing.assert_array_equal(holder[1], np.full(3, 1.0 + n))
        np.testing.assert_array_equal(same[3], np.full(2, 1 + 3.0 * n))


def test_two_lists_that_become_one_later():
    @framejit.compile
    def f(x, a, b):
        a.append(1)
        b.append(2)
        return x * len(a), len(b)

    a, b = [], []
    f(np.ones(2), a, b)
    f(np.ones(2), a, b)
    assert (a, b) == ([1, 1], [2, 2])
    both = []
    result = f(np.ones(2), both, both)
    assert both == [1, 2] and result[1] == 2 and result[0][0] == 2


def test_two_dicts_and_two_sets_that_become_one_later():
    @framejit.compile
    def f(x, a, b, s, t):
        a["n"] = 1
        b["n"] = 2
        s.add(1)
        t.discard(1)
        return x * a["n"], len(s)

    for _ in range(2):
        f(np.ones(2), {}, {}, set(), set())
    d, u = {}, set()
    result = f(np.ones(2), d, d, u, u)
    assert d == {"n": 2} and u == set() and result[0][0] == 2 and result[1] == 0


def test_instances_that_become_one_later():
    class Box:
        def __init__(self):
            self.v = 0

    @framejit.compile
    def f(x, a, b):
        a.v += 1
        b.v += 10
        return x * a.v

    a, b = Box(), Box()
    f(np.ones(1), a, b)
    assert (a.v, b.v) == (1, 10)
    a, b = Box(), Box()
    f(np.ones(1), a, b)
    one = Box()
    result = f(np.ones(1), one, one)
    assert one.v == 11 and result[0] == 11


def test_new_objects_that_refer_to_each_other_come_out_so():
    class Node:
        def __init__(self, x):
            self.x, self.me, self.items = x, self, [self]

    @framejit.compile
    def f(x):
        a, b = Node(x * 2), Node(x)
        a.other, b.other = b, a
        return a, [a.items, a.items], {"b": b}

    for _ in range(2):
        a, lists, table = f(np.ones(2))
        assert a.me is a and a.items[0] is a and a.other is table["b"] and table["b"].other is a
        assert lists[0] is lists[1] is a.items
    assert framejit.explain(f).so_far().breaks == []


def test_a_list_in_itself_comes_out_in_itself():
    @framejit.compile
    def f(x):
        a = [x * 2]
        a.append(a)
        d = {"a": a}
        d["d"] = d
        return a, d

    for _ in range(2):
        a, d = f(np.ones(2))
        assert a[1] is a and d["d"] is d and d["a"] is a


def test_effects_happen_in_order_around_a_break():
    seen = []

    class Watched:
        def __repr__(self):
            seen.append(list(log))
            return "w"

    log = []

    @framejit.compile
    def f(x, w):
        log.append("a")
        y = x * 2
        print(w)
        log.append("b")
        print(w)
        return y + len(log)

    for n in range(2):
        log.clear()
        f(np.ones(2), Watched())
        assert log == ["a", "b"]
    assert seen == [["a"], ["a", "b"]] * 2


def test_finalizers_see_the_state_eager_shows_them():
    def seen(wrap):
        state = {"n": 0}
        seen = []

        class Dies:
            def __del__(self):
                seen.append(dict(state))

        holder = [Dies(), Dies()]

        def f(x):
            state["n"] += 1
            holder[0] = None
            state["n"] += 1
            holder.pop()
            state["n"] += 1
            return x * state["n"]

        return wrap(f)(np.ones(1)).tolist(), seen

    assert seen(framejit.compile) == seen(lambda f: f) == ([3.0], [{"n": 1}, {"n": 2}])


def test_default_arguments_that_are_changed():
    def make():
        def f(x, seen=[], table={}):
            seen.append(len(seen))
            table.setdefault("k", []).append(1)
            return x * len(seen), list(seen), table

        return f

    eager, compiled = make(), framejit.compile(make())
    for _ in range(4):
        assert_same(compiled(np.ones(2)), eager(np.ones(2)))


def test_nonlocal_cells_seen_by_other_functions():
    def make():
        count, kept = 0, None

        def f(x):
            nonlocal count, kept
            count += 1
            kept = x * count
            return kept

        def read():
            return count, kept

        return f, read

    (eager, eager_read), (ours, our_read) = make(), make()
    compiled = framejit.compile(ours)
    for _ in range(4):
        assert_same(compiled(np.ones(2)), eager(np.ones(2)))
        assert_same(our_read(), eager_read())
    result = compiled(np.ones(2))
    assert our_read()[1] is result


def test_module_globals_changed_by_a_callee():
    namespace = {"np": np}
    exec("TOTAL = 0\nHISTORY = []\ndef g(x):\n    global TOTAL\n    TOTAL = TOTAL + 1\n    HISTORY.append(x)\n    return x * TOTAL\n"
         "def f(x):\n    return g(x) + g(x * 2)\n", namespace)
    compiled = framejit.compile(namespace["f"])
    for n in range(1, 4):
        result = compiled(np.ones(2))
        assert namespace["TOTAL"] == 2 * n and len(namespace["HISTORY"]) == 2 * n
        np.testing.assert_array_equal(result, np.full(2, (2 * n - 1) + 2 * (2 * n)))


@needs_torch
def test_buffers_and_attributes_of_a_module():
    class Running(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", torch.zeros(3))
            self.calls = 0
            self.history = []

        def forward(self, x):
            self.calls += 1
            self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
            self.history.append(self.calls)
            return x - self.mean

    eager = Running()
    ours = copy.deepcopy(eager)
    compiled = framejit.compile(ours)
    with torch.no_grad():
        for i in range(4):
            x = torch.arange(6.0).reshape(2, 3) + i
            assert_same(compiled(x.clone()), eager(x.clone()))
            assert ours.calls == eager.calls and ours.history == eager.history
            torch.testing.assert_close(ours.mean, eager.mean)


def test_a_list_that_the_assigned_items_change_is_left_to_python():
    def f(x):
        items = [x, x, x]

        def fresh():
            items.clear()
            yield x * 2

        items[1:] = fresh()
        return items

    compiled = framejit.compile(f)
    for _ in range(2):
        assert len(compiled(np.ones(2))) == len(f(np.ones(2)))


def test_containers_nested_deep_are_handed_back():
    def f(x):
        nested = [x + 1]
        for _ in range(900):
            nested = [nested]
        return nested

    found = framejit.compile(f)(np.ones(2))
    for _ in range(900):
        found = found[0]
    np.testing.assert_array_equal(found[0], [2.0, 2.0])


WINDOWS = {
    "sliding": lambda: np.lib.stride_tricks.sliding_window_view(np.arange(6.0), 4, writeable=True),
    "two apart": lambda: np.lib.stride_tricks.as_strided(np.arange(20.0), (4, 3), (16, 8)),
    "beside each other": lambda: np.lib.stride_tricks.as_strided(np.arange(20.0), (4, 2), (16, 8)),
    "backwards": lambda: np.arange(12.0).reshape(3, 4)[::-1, ::-2],
}


@pytest.mark.parametrize("first", WINDOWS)
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_a_write_into_elements_that_are_shown_again_is_seen_there(library, first):
    if library == "torch":
        torch = pytest.importorskip("torch", reason="torch is not installed")

    def f(x):
        x[0] = 7.0
        x[1] *= 2
        return x[1] * 1

    def made(name):
        array = WINDOWS[name]()
        if library == "numpy":
            return array
        if name == "backwards":
            return torch.arange(12.0).view(3, 4)[:, ::2]
        return torch.arange(20.0, dtype=torch.float64).as_strided(array.shape, [stride // 8 for stride in array.strides])

    compiled = framejit.compile(f)
    for name in (first, *WINDOWS, first):
        outcomes = []
        for function in (f, compiled):
            x = made(name)
            outcomes.append((function(x).tolist(), x.tolist()))
        assert outcomes[0] == outcomes[1], name
