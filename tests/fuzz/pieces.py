"""What the functions of random programs find in their module: every program starts with PRELUDE and a few of PIECES."""

PRELUDE = '''\
import collections
import contextlib
import copy
import dataclasses
import functools
import itertools
import math
import operator
import random
import sys
import warnings

import framejit

LOG, TABLE, SCALE = [], {}, 2


class State:
    shared = 1

    def __init__(self):
        self.count, self.items, self.last = 0, [], None


STATE = State()


class Mine(ValueError):
    pass


def boom(a):
    a += 1
    LOG.append("boom")
    raise Mine("from boom")
'''

# Pieces of the module before f: (source, statements, expressions) to choose from.
PIECES = [
    ('''\
def tally(a, k=2, *, scale=1):
    tally.n += 1
    tally.last = a
    return a * k * scale + tally.n


def counted(function):
    @functools.wraps(function)
    def wrapper(*args):
        wrapper.n += 1
        wrapper.items.append(len(args))
        return function(*args)
    wrapper.n, wrapper.items = 0, []
    return wrapper


@counted
def plus(a, b=1):
    return a + b


class Counting:
    def method(self, a):
        Counting.method.n += 1
        return a + self.method.n

    method.n = 0


tally.n, tally.last, tally.items = 0, None, []
''', ["tally.n += 1", "tally.n = {i}", "{fresh} = tally({e})", "tally.last = {v}", "setattr(tally, 'more', {v})", "tally.items.append({v})", "tally.items = [{v}]",
       "del tally.last", "LOG.append(hasattr(tally, 'last'))", "LOG.append(getattr(tally, 'more', {n}))", "LOG.append(sorted(vars(tally)))", "vars(tally)['n'] = {i}",
       "tally.__kwdefaults__['scale'] = {i}", "tally.__defaults__ = ({i},)", "tally.__doc__ = 'new'", "{fresh} = tally", "{fresh} = (tally if {c} else plus).n",
       "Counting.method.n = {i}", "{fresh} = Counting().method", "plus.n = {r}", "while tally.n < 3: tally({e})", "for {fresh} in range(tally.n % 4): tally.n += 1",
       "if tally.n > 1: tally.n = 0", "tally.matrix = {e}; tally.matrix[{ix}] = {n}"],
     ["tally({e})", "tally({e}, {i}) + tally.n", "plus({e}) * plus.n", "tally.n + {e}", "Counting().method({e})", "Counting.method.n * {e}", "plus({e}, {e})",
      "tally({e}, scale=2)", "len(plus.items) + {e}", "{e} * getattr(tally, 'n')"]),
    ('''\
def helper(a, k=1, *rest, flag=False, **more):
    LOG.append((k, len(rest), sorted(more)))
    if flag:
        print("helper", k)
        return a * 2
    for r in rest:
        a = a + r
    return a + k * SCALE
''', ["helper({a})", "helper({a}, {i}, flag={c})"],
     ["helper({e}, {i})", "helper({e}, 1, {e}, {n})", "helper({a}, flag=True)", "helper({a}, *{t})", "helper({a}, q={v}, **{d})"]),
    ('''\
def touch(a, out):
    a += 1
    out.append(a)
    out.append(len(out))
    return a
''', ["touch({a}, {l})", "touch({a}, LOG)", "touch({a}[{ix}], LOG)"], ["touch({e}, {l})"]),
    ('''\
class Box:
    made = 0

    def __init__(self, a, k=0):
        self.a, self.k, self.seen = a, k, []
        Box.made += 1

    def grow(self, by):
        self.k += by
        self.a = self.a * 2
        return self

    @property
    def twice(self):
        return self.a + self.a

    def __len__(self):
        return abs(self.k)

    def __add__(self, other):
        return Box(self.a + getattr(other, "a", other), self.k)

    def __getitem__(self, i):
        self.seen.append(i)
        return self.a[i]

    def __call__(self, x):
        return x * SCALE + self.k

    def __eq__(self, other):
        return isinstance(other, Box) and self.k == other.k

    __hash__ = None
''', ["{fresh} = Box({e}, {i})", "{fresh} = Box({e})", "Box({a}).grow(2)", "{o}.grow({i})", "{fresh} = {o} + {o}", "{fresh} = {o} + {e}"],
     ["Box({e}, {i}).twice", "{o}.twice", "{o}[0]", "{o}({e})", "len({o}) + {e}", "Box({e}).grow({i}).a", "{o} == {o}", "({o} + {n}).a"]),
    ('''\
class Base:
    def __init__(self, a):
        self.a, self.k, self.seen = a, 1, []

    def run(self, x):
        return x + self.k


class Derived(Base):
    __slots__ = ("slot",)

    def __init__(self, a, slot=3):
        super().__init__(a)
        self.slot = slot

    def run(self, x):
        self.k += 1
        return super().run(x) * self.slot

    @classmethod
    def build(cls, a):
        return cls(a, slot=2)

    @staticmethod
    def plain(x):
        return x - 1

    def __getattr__(self, name):
        if name.startswith("dyn"):
            return len(name)
        raise AttributeError(name)
''', ["{fresh} = Derived({e})", "{fresh} = Derived.build({a})", "Derived({a}).run({a})", "{fresh} = Base({e})"],
     ["Derived({e}).run({e})", "{o}.run({e})", "Derived.plain({e})", "Derived({a}).dynamic + {e}", "Derived({a}).build({a}).slot"]),
    ('''\
@dataclasses.dataclass
class Point:
    a: object
    k: int = 2
    seen: list = dataclasses.field(default_factory=list)


Pair = collections.namedtuple("Pair", "left right")
''', ["{fresh} = Point({e})", "{fresh} = Point({a}, {i})", "{fresh} = Pair({v}, {v})"],
     ["Point({e}).a", "Pair({e}, {e}).left", "Pair({a}, 1)._replace(right={e}).right", "dataclasses.replace(Point({a}), k={i}).k"]),
    ('''\
def numbers(n, a=None):
    for i in range(n):
        LOG.append(i)
        got = yield i if a is None else a + i
        if got is not None:
            yield got
    return n


def outer(n):
    result = yield from numbers(n)
    yield result
''', ["for {fresh} in numbers({i} % 4): LOG.append({a} is None)", "{fresh} = numbers(3, {a})", "{fresh} = list(numbers({i} % 4, {a}))", "{fresh} = list(outer(2))",
      "gen = numbers(3); next(gen); LOG.append(gen.send({v}))"],
     ["sum(numbers(3, {a}))", "next(numbers(2, {e}))", "list(outer(2))", "[{a} * j for j in numbers(2)][-1]", "max(numbers(3))"]),
    ('''\
class Manager:
    def __init__(self, swallow=False):
        self.swallow = swallow

    def __enter__(self):
        LOG.append("enter")
        return self

    def __exit__(self, kind, error, traceback):
        LOG.append(("exit", kind and kind.__name__))
        return self.swallow


@contextlib.contextmanager
def managed(tag):
    LOG.append(("in", tag))
    try:
        yield tag
    finally:
        LOG.append(("out", tag))
''', ["with Manager(True): LOG.append({a}[99])"], []),
    ('''\
def counter(start):
    total = start

    def add(a):
        nonlocal total
        total = total + a
        return total

    def reset(to=0):
        nonlocal total
        total = to

    return add, reset


ADD, RESET = counter(1)
''', ["ADD({i})", "RESET()", "{fresh}, {fresh} = counter({v})", "{fresh} = counter({i})[0]"], ["ADD({i}) + {e}", "counter({i})[0]({e})"]),
    ('''\
def recursive(n, a):
    if n <= 0:
        return a
    return recursive(n - 1, a + n) * 1


def late(a, *, k=3, swap=False):
    try:
        if swap:
            return a * k
        a = a + 1
        return a[99]
    except IndexError:
        LOG.append("late")
        return a
    finally:
        STATE.count += 1
''', ["late({a})"], ["recursive({i} % 4, {e})", "late({e})", "late({e}, swap=True)", "late({a}, k={n}, swap={c})"]),
    ('''\
def decorate(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        LOG.append(function.__name__)
        return function(*args, **kwargs) * 2
    return wrapper


@decorate
def decorated(a, b=1):
    return a - b


@functools.lru_cache(None)
def cached(n):
    LOG.append(("computed", n))
    return n * 2


@framejit.disable
def disabled(a):
    print("disabled")
    return a + 1
''', ["decorated({a})", "cached({i})"], ["decorated({e}, {e})", "cached({i}) + {e}", "disabled({e})", "decorated(b={n}, a={e})"]),
    ('''\
class Meter:
    def __get__(self, owner, kind=None):
        if owner is None:
            return self
        owner.reads = getattr(owner, "reads", 0) + 1
        return owner.a * 2

    def __set__(self, owner, value):
        owner.a = value


class Metered:
    double = Meter()

    def __init__(self, a):
        self.a, self.k, self.seen = a, 0, []

    @functools.cached_property
    def once(self):
        LOG.append("once")
        return self.a + 1

    def __iter__(self):
        return iter([self.a, self.k])

    def __contains__(self, item):
        return item is self.a

    def __bool__(self):
        return self.k > 0

    def __setattr__(self, name, value):
        if name == "loud":
            print("loud", type(value).__name__)
        super().__setattr__(name, value)
''', ["{fresh} = Metered({e})", "m1 = Metered({e}); m1.double = {e}; m1.loud = {v}; {fresh} = m1"],
     ["Metered({e}).double", "Metered({e}).once", "list(Metered({e}))[0]", "Metered({a}).double + Metered({a}).once", "{a} in Metered({a})"]),
    ('''\
import enum


class Mode(enum.Enum):
    ADD = 1
    MUL = 2


def by_mode(mode, a):
    match mode:
        case Mode.ADD:
            return a + 1
        case [first, *others]:
            return a + len(others)
        case {"a": value, **kept}:
            return a - len(kept)
        case int(n) if n > 2:
            return a * n
        case State(count=c):
            return a + c
        case _:
            return a
''', [], ["by_mode(Mode.ADD, {e})", "by_mode(Mode.MUL, {e})", "by_mode({v}, {e})", "by_mode({t}, {a})", "by_mode({d}, {a})", "by_mode({i}, {a})", "by_mode(STATE, {a})"]),
]

WITHS = {"b": ["Manager()", "Manager(True)", 'managed("t")', "contextlib.suppress(IndexError, ValueError)", "contextlib.nullcontext(3)", "warnings.catch_warnings()"],
         "n": ['np.errstate(all="ignore")', 'np.errstate(divide="raise")', 'np.errstate(invalid="raise", over="raise")'],
         "t": ["lib.no_grad()", "lib.enable_grad()", "lib.inference_mode(False)"]}

# Between calls: changes of what a function may have looked at.
CHANGES = ["SCALE = {i}", "LOG.clear()", "TABLE.clear()", "STATE = State()", "State.shared = {i}", "STATE.count = {i}", 'TABLE["n"] = {i}', "LOG.append({i})", "SCALE = 1.5",
           "boom = lambda a: a", "STATE.items = [1]", "STATE.last = 3"]
PIECE_CHANGES = {"def helper": ["helper.__defaults__ = ({i},)", "helper.__kwdefaults__ = dict(flag=True)", "def helper(a, *r, **k): return a"],
                 "class Box": ["Box.made = {i}", "Box.grow = lambda self, by: self", "Box.twice = property(lambda self: self.a)", "Box.__call__ = lambda self, x: x"],
                 "class Base": ["Base.run = lambda self, x: x - 1", "Derived.run = Base.run"],
                 "def counter": ["RESET({i})", "ADD, RESET = counter({i})"],
                 "def recursive": ["late.__kwdefaults__ = dict(k={i}, swap=True)"],
                 "def decorate": ["cached.cache_clear()"],
                 "class Meter": ["Metered.double = property(lambda self: self.a)"]}
