"""Regions in programs with a structure: loops in helpers and methods, attributes that are read and stored, and global arrays."""
import traceback

import numpy as np

import framejit
from test_regions import FLOATS, check, compile, same


def decayed(a, start):
    for i in range(start, len(a)):
        a[i] = a[i - 1] * 0.5 + 1 / (i - 3)


def both(a):
    decayed(a, 7)
    if a[9] > 1e9:
        decayed(a, 1)
    return a.max()


def test_a_loop_of_a_function_that_is_called_is_one_region_however_long_it_is():
    def f(a, k):
        b = a + 1
        decayed(b, k)
        return b * 2, both(a)

    large = FLOATS.copy()
    large[8] = 1e12
    compiled = check(f, (FLOATS, 4), (FLOATS, 1), (large, 4), (FLOATS[:20], 10), (FLOATS[:2], 10))
    framejit.reset()
    compiled(np.zeros(20000), 4)
    info = framejit.cache_info()
    assert info["kernels_launched"] < 20 and info["regions_entered"] <= 4 and info["breaks"] == 1  # at the branch of `both`


def test_a_loop_around_calls_of_functions_with_regions_stays_compiled():
    def step(u, v, *, scale=0.5):  # keyword-only parameters: a call that is no part of a region
        for i in range(1, len(u) - 1):
            v[i] = (u[i - 1] + u[i + 1]) * scale

    def f(u):
        v = u.copy()
        for _ in range(20):
            step(u, v)
            u, v = v, u
        return u

    compiled = check(f, (FLOATS,))
    for _ in range(8):
        before = framejit.cache_info()["regions_entered"]
        compiled(FLOATS.copy())
        assert framejit.cache_info()["regions_entered"] == before + 20


TABLE = np.arange(50.0)


class Grid:
    step = 0.25

    def __init__(self, u, scale):
        self.u, self.scale = u, scale

    def at(self, i, by=1):
        return self.u[i % len(self.u)] * by

    @property
    def first(self):
        return self.u[0]


def relaxed(grid, n):
    s = 0.0
    for i in range(n):
        grid.u[i % len(grid.u)] += grid.scale * TABLE[i % 50]
        s += grid.at(i, by=2) - grid.at(3)
    return s, TABLE[1], i


def grids(change=lambda grid: None, u=FLOATS[:60], scale=0.5):
    """One for us and one for CPython, changed alike."""
    both = [Grid(u.copy(), scale) for _ in range(2)]
    for grid in both:
        change(grid)
    return both


def check_grids(compiled, *both, n=300):
    """The same results, or errors at the same line."""
    results = []
    for function, grid in zip((compiled, relaxed), both):
        try:
            results.append(function(grid, n))
        except Exception as error:
            results.append((type(error), str(error), traceback.extract_tb(error.__traceback__)[-1].lineno))
    assert same(*results) and same(*(grid.u for grid in both)), results


def test_attributes_methods_and_global_arrays(monkeypatch):
    compiled = compile(relaxed)
    for _ in range(2):
        check_grids(compiled, *grids())
    before = framejit.cache_info()["regions_entered"]
    check_grids(compiled, *grids())
    assert framejit.cache_info()["regions_entered"] == before + 1
    # What is held may be of another kind in each call, and be replaced between calls.
    check_grids(compiled, *grids(scale=3))
    check_grids(compiled, *grids(scale=np.float32(0.1)))
    check_grids(compiled, *grids(u=np.arange(70)[::2]))
    check_grids(compiled, *grids(u=[1.0, 2.0, 3.0] and np.float32(FLOATS[:7])))
    monkeypatch.setitem(globals(), "TABLE", np.arange(50)[::-1])
    check_grids(compiled, *grids())
    monkeypatch.setitem(globals(), "TABLE", list(range(50)))
    check_grids(compiled, *grids())
    monkeypatch.setitem(globals(), "TABLE", np.arange(3.0))
    check_grids(compiled, *grids())  # IndexError
    monkeypatch.delitem(globals(), "TABLE")
    check_grids(compiled, *grids())  # NameError
    monkeypatch.setitem(globals(), "TABLE", np.arange(50.0))
    check_grids(compiled, *grids(lambda grid: delattr(grid, "scale")))  # AttributeError
    # A method of the object's own, of another object and of another class.
    check_grids(compiled, *grids(lambda grid: setattr(grid, "at", Grid(np.arange(3.0), 1).at)))
    check_grids(compiled, *grids(lambda grid: setattr(grid, "at", grid.at)))
    check_grids(compiled, *grids(lambda grid: setattr(grid, "at", lambda i, by=1: i + by)))
    check_grids(compiled, *grids(lambda grid: setattr(grid, "__class__", type("Other", (Grid,), {"at": lambda self, i, by=3: i - by}))))
    for names in ({"scale": property(lambda self: 4.0, lambda self, value: None)}, {"__getattr__": lambda self, name: 2.5},
                  {"__getattribute__": lambda self, name: object.__getattribute__(self, name)}, {"at": lambda self, i, by=1: i}):
        check_grids(compiled, *grids(lambda grid: setattr(grid, "__class__", type("Other", (Grid,), names))))
    with monkeypatch.context() as patch:
        patch.setattr(Grid, "at", lambda self, i, by=1: self.u[0] * by)
        check_grids(compiled, *grids())
    with monkeypatch.context() as patch:
        patch.setattr(Grid, "scale", property(lambda self: 2.0, lambda self, value: None), raising=False)
        check_grids(compiled, *grids())
    check_grids(compiled, *grids())


def test_attributes_that_change_within_the_loop():
    def f(grid, other, n):
        s = []
        for i in range(n):
            if i % 40 == 13:
                grid.scale = grid.scale * 2 if i < 200 else i
            if i == 90:
                grid.u, other.u = other.u, grid.u
            grid.u[i % 10] = grid.scale + grid.step
            if i % 50 == 0:
                s.append(grid.scale)
                s.append(grid.u is other.u)
        return s, grid.first

    compiled = compile(f)
    for _ in range(3):
        ours, theirs = [Grid(FLOATS.copy(), 0.5), Grid(np.arange(20.0), 1)], [Grid(FLOATS.copy(), 0.5), Grid(np.arange(20.0), 1)]
        assert same(compiled(*ours, 300), f(*theirs, 300))
        assert all(same(a.u, b.u) and same(a.scale, b.scale) for a, b in zip(ours, theirs))


class Draws:
    def __init__(self, state=42):
        self.state, self.count, self.last = state, 0, None

    def next(self):
        self.state = (self.state * 1664525 + 1013904223) & 0xFFFFFFFF
        self.count += 1
        return self.state / 4294967296.0


class Counted(Draws):
    """Each store is seen."""
    log = []

    def __setattr__(self, name, value):
        self.log.append(name)
        object.__setattr__(self, name, value)


def drawn(a, b, n):
    inside = 0
    for i in range(n):
        x, y = a.next(), b.next()
        if x * x + y * y < 1:
            inside += 1
            a.last = x
        if i == 270:
            b.last = "a text"
        if inside == 400:
            return 1 // (a.count - b.count)
    return inside


def test_attributes_that_are_stored():
    compiled = compile(drawn)
    def two(kind=Draws, one=False, n=500, change=lambda a: None):
        outcomes = []
        for function in (compiled, drawn):
            a = kind()
            b = a if one else kind(7)
            change(a)
            Counted.log.clear()
            try:
                result = function(a, b, n)
            except Exception as error:
                result = (type(error), str(error), traceback.extract_tb(error.__traceback__)[-1].lineno)
            outcomes.append((result, sorted(vars(a).items()), sorted(vars(b).items()), list(Counted.log)))
        assert outcomes[0] == outcomes[1]

    for _ in range(2):
        two()
        two(n=2000)  # ends by an error
    before = framejit.cache_info()["regions_entered"]
    two(n=250)
    assert framejit.cache_info()["regions_entered"] == before + 1
    two(one=True)  # each store of one is seen by the other
    two(one=True, n=2000)
    two(change=lambda a: setattr(a, "last", [1]))
    two(change=lambda a: delattr(a, "last"))
    two(change=lambda a: delattr(a, "state"))
    two(change=lambda a: setattr(a, "state", 1.5))
    two(change=lambda a: setattr(a, "state", 2**70))
    two(change=lambda a: setattr(a, "count", np.int8(100)))
    two(change=lambda a: setattr(a, "next", float))
    two(kind=Counted)
    for _ in range(3):
        shared = []
        for function in (compiled, drawn):
            a, b = Draws(), Draws(7)
            b.__dict__ = a.__dict__  # what one has stored, the other has
            shared.append((function(a, b, 500), sorted(vars(a).items())))
        assert shared[0] == shared[1]
    two(kind=type("Slots", (), {"__slots__": ("state", "count", "last", "__dict__"), "__init__": Draws.__init__, "next": Draws.next}))
    two()


def test_an_object_that_the_function_makes():
    def f(n, seed):
        a, inside = Draws(seed), 0
        for i in range(n):
            if a.next() < 0.5:
                inside += 1
        b = Grid(np.zeros(5), a)
        for i in range(n):
            b.u[i % 5] += b.scale.next()
        return inside, a.state, a.count, b.u, b.scale is a

    compiled = check(f, (1000, 42))
    before = framejit.cache_info()["regions_entered"]
    assert same(compiled(1000, 42), f(1000, 42)) and framejit.cache_info()["regions_entered"] == before + 2


def test_a_helper_whose_loop_is_no_region_is_compiled_by_pieces_of_passes():
    """However many passes it has: 300 of them took 7 seconds when they were one piece of the caller."""
    def work(u, n, log):
        s = 0.0
        for i in range(n):
            s = (s + u.sum()) % 1000
            log[0] = s
        return s

    def f(u, n):
        log = [0.0]
        return work(u, n, log), log

    framejit.reset()
    report = framejit.explain(compile(f))(np.arange(8.0), 2000)
    assert same(compile(f)(np.arange(8.0), 2000), f(np.arange(8.0), 2000))
    assert all(len(graph.nodes) <= 100 for graph in report.graphs)


def test_what_is_stored_in_a_called_function_that_is_left_is_stored_once():
    class Account:
        def __init__(self):
            self.total, self.steps = 0, 0

        def add(self, i):
            self.steps += 1
            self.total += i
            if i % 60 == 59:
                print("at", self.steps, self.total)  # CPython's
            self.total -= 1
            return self.total

    def f(account, n):
        seen = 0
        for i in range(n):
            seen += account.add(i)
            account.steps += 1
        return seen, account.total, account.steps

    compiled = compile(f)
    for n in (300, 300, 500):
        assert compiled(Account(), n) == f(Account(), n)


def test_a_replaced_attribute_is_let_go_of_where_it_was():
    """What is no number may do something when it ends."""
    class Noisy:
        def __init__(self, log):
            self.log = log

        def __del__(self):
            self.log.append("ends")

    def f(holder, log, n):
        for i in range(n):
            if i == 40:
                holder.u = i
            if i == 41:
                log.append(holder.u)
            holder.scale += 1.0
        return log, holder.u, holder.scale

    compiled = compile(f)
    for _ in range(3):
        logs = [], []
        results = [function(Grid(Noisy(log), 0.5), log, 300) for function, log in zip((compiled, f), logs)]
        assert same(*results) and logs[0] == ["ends", 40]


def test_arrays_that_are_reached_are_the_objects_themselves():
    def f(grid, n):
        x = y = None
        for i in range(n):
            x, y = grid.u, TABLE
            x[i % 5] += grid.scale
        return x is grid.u, y is TABLE

    compiled = compile(f)
    for _ in range(3):
        assert compiled(Grid(FLOATS.copy(), 0.1), 300) == (True, True)


def test_loops_over_numbers_alone_are_regions_at_once():
    def zeta(n):
        s = 0.0
        for i in range(1, n):
            s += 1.0 / (i * i)
        return s

    def steps(limit, mark):
        most = 0
        for i in range(1, limit):
            k, count = i, 0
            while k != 1:
                k = k // 2 if k % 2 == 0 else 3 * k + 1
                count += 1
            most = count if count > most else most
        return most, mark

    for function, arguments in ((zeta, (3000,)), (steps, (60, "a text"))):
        compiled = check(function, arguments)
        before = framejit.cache_info()["regions_entered"]
        assert same(compiled(*arguments), function(*arguments)) and framejit.cache_info()["regions_entered"] > before
    # For arrays behind it, what a loop computes is a constant.
    framejit.reset()
    scaled = compile(lambda x, n: x * zeta(n))
    assert same(scaled(FLOATS, 1000), FLOATS * zeta(1000)) and framejit.cache_info()["regions"] == 0
