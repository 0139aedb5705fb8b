"""Python that programs around arrays use: traced without a break, with eager's meaning.

Each function is a case of its own. Breaks that are meant to stay are in test_breaks.py.
"""
import collections
import dataclasses
import enum
import functools
import operator
import typing

import numpy as np
import pytest

import framejit
from harness import NumpyLibrary, both_libraries, needs_torch, same_as_eager, torch

X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)
CASES = []


def case(function):
    CASES.append(function)
    return function


@dataclasses.dataclass
class Point:
    a: int
    b: float = 2.0
    c: list = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Frozen:
    a: int
    b: float = 2.0


class Color(enum.Enum):
    RED = 1
    BLUE = 2


Pair = collections.namedtuple("Pair", "x y")


class Typed(typing.NamedTuple):
    x: object
    y: int = 3

    def total(self):
        return self.x + self.y


class Box:
    pass


class Slots:
    __slots__ = ("a", "b")

    def __init__(self, a):
        self.a = a
        self.b = 2


class Lazy:
    @functools.cached_property
    def value(self):
        return 4


class CustomError(ValueError):
    def __init__(self, text, code=5):
        super().__init__(text)
        self.code = code


class Countdown:
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return self

    def __next__(self):
        if self.n == 0:
            raise StopIteration
        self.n -= 1
        return self.n


class Missing:
    def __getattr__(self, name):
        raise AttributeError(name)


POINT, BOX, SLOTS = Point(4), Box(), Slots(3)


@case
def dataclasses_made_and_from_outside(x):
    p = Point(3)
    p.c.append(1)
    return x * p.a + p.b + len(p.c) + POINT.a * Frozen(3).b


@case
def enum_members(x, c=Color.RED):
    table = {Color.RED: 1, Color.BLUE: 2}
    y = x + table[c]
    return (y if c is Color.RED else y - 1) + (c == Color.BLUE) + Color.BLUE.value


@case
def named_tuples(x):
    n, t = Pair(x, y=2), Typed(x)
    return n.x * n.y, t.total(), t


@case
def deleted_attributes(x):
    b = Box()
    b.v = x
    BOX.v = 3
    y = b.v * BOX.v
    del b.v
    del BOX.v
    return y + hasattr(b, "v") + hasattr(BOX, "v") + getattr(BOX, "v", 1)


@case
def slots(x):
    s = Slots(x)
    SLOTS.b = 4
    return s.a * s.b + SLOTS.a + SLOTS.b


@case
def cached_properties(x):
    lazy = Lazy()
    return x * lazy.value + lazy.value


@case
def raised_and_caught(x):
    try:
        raise ValueError("a")
    except ValueError as error:
        x = x * 2 + len(error.args)
    return x


@case
def raised_in_a_callee(x):
    def g(k):
        if k > 2:
            raise KeyError(k)
        return x * k

    try:
        a = g(1)
        b = g(3)
    except KeyError as error:
        b = x * error.args[0]
    return a, b


@case
def own_exceptions(x):
    try:
        raise CustomError("text", code=7)
    except (TypeError, CustomError) as error:
        return x * error.code + len(error.args[0])


@case
def finally_around_a_raise(x):
    out = []

    def g():
        try:
            raise ValueError("v")
        finally:
            out.append(1)

    try:
        g()
    except Exception:
        out.append(2)
    return x * len(out)


@case
def raised_again(x):
    def g():
        try:
            raise ValueError
        except ValueError:
            raise

    try:
        g()
    except ValueError:
        return x * 2


@case
def missing_keys_items_and_attributes(x):
    total = 0
    try:
        total += {"a": 1}["b"]
    except KeyError as error:
        total += len(error.args[0])
    try:
        total += [1][3]
    except IndexError:
        total += 10
    try:
        total += BOX.nothing
    except AttributeError:
        total += 100
    return x * total


@case
def getattr_of_a_class_that_raises(x):
    return x * getattr(Missing(), "k", 3) + hasattr(Missing(), "k")


@case
def iterator_classes(x):
    return x * sum(Countdown(4)), [x + i for i in Countdown(2)]


@case
def match_sequences_and_values(x, k=2):
    match [k, 2, 3]:
        case [1, *_]:
            return x
        case [2 | 5 as a, *rest]:
            return x * a + len(rest)


@case
def match_mappings(x):
    match {"a": 1, "b": 2}:
        case {"z": z}:
            return x * z
        case {"a": a, **rest}:
            return x * a + len(rest)


@case
def match_classes(x):
    match Frozen(3):
        case Point():
            return x
        case Frozen(1):
            return x * 5
        case Frozen(a, b=2.0):
            return x * a
    return None


@case
def match_builtins(x):
    match x.shape[0]:
        case str(text):
            return x
        case int(n) if n > 2:
            return x * n


@case
def sets(x):
    a, b = {i % 3 for i in range(5)}, set()
    b.add(1)
    b.update([2, 3])
    b.discard(7)
    b.remove(2)
    c = frozenset(b)
    return x * len(a & b) + len(a | b) - len(a - b) + len(a ^ b), a.issubset(b), c <= b, sorted(a), a, 3 in b, a.union([9]) == {0, 1, 2, 9}


@case
def lists(x):
    values = [3, 1, 2]
    values.sort()
    values.remove(2)
    values += [5]
    values *= 2
    pairs = [(1, "b"), (0, "a")]
    pairs.sort(key=lambda pair: pair[0], reverse=True)
    return x * values[0] + values.index(3) + values.count(5), values[::-1], pairs


@case
def dicts(x):
    d = dict(a=1)
    d.setdefault("b", 2)
    d.pop("a")
    d.update(c=3)
    key, value = d.popitem()
    return x * value, key, dict.fromkeys(["p", "q"], 1), list(d), {**d, 5: x}, {k: v for k, v in d.items() if v}


@case
def generators_consumed_inside(x):
    def g(n):
        for i in range(n):
            yield x * i

    return sum(g(3)), list(g(2)), [a + 1 for a in g(2)], max(i for i in (3, 1, 2)) * x


@case
def partials_made_inside(x):
    add, total = functools.partial(operator.add, x), functools.partial(np.sum, axis=0)
    return add(1), total(x), add.func(2, 3), functools.partial(scale, k=3)


def scale(x, k):
    return x * k


@case
def formatted_dtypes(x):
    return x + 1, f"{x.dtype} {x.ndim}", str(x.shape)


@pytest.mark.parametrize("function", CASES, ids=[f.__name__ for f in CASES])
def test_no_break(function):
    if function is partials_made_inside:
        def compared(x):
            *rest, made = partials_made_inside(x)
            return *rest, made.func is scale, made.keywords, made(x)
    else:
        compared = function
    run = same_as_eager(compared, X, breaks=(), calls=3)
    assert len(run.graphs) == 1, run.report


def test_errstate_within_the_trace():
    def f(x):
        with np.errstate(divide="ignore", invalid="ignore"):
            return x / (x - x)

    same_as_eager(f, np.array([0.0, 1.0, 2.0]), breaks=())


def test_errstate_around_part_of_the_trace_keeps_other_warnings():
    def f(x):
        with np.errstate(divide="ignore"):
            y = 1 / x
        return y, np.log(x)

    same_as_eager(f, np.array([0.0, 1.0]), breaks=(), fallback=True)


@pytest.mark.parametrize("after", ["r[~np.isfinite(r)] = 0", "r = np.where(np.isnan(r), 0, np.abs(r)).max(axis=0)", "r = r * 2 + np.exp(-x)", "r = r.astype(np.float32).sum()"])
def test_what_does_not_divide_runs_behind_a_division_that_is_not_reported(after):
    space = {"np": np}
    exec(f"def f(x):\n    with np.errstate(divide='ignore'):\n        r = (x + 1) / x\n    {after}\n    return r", space)
    same_as_eager(space["f"], np.array([0.0, 1.0, 2.0]), breaks=(), calls=3)


@pytest.mark.parametrize("after", ["1 / x", "np.log(x)", "np.log2(x)", "np.log10(x) * 2", "x ** -1.0", "np.power(x, -1)", "np.reciprocal(x)", "np.arctanh(1 - x)", "2 / np.abs(x)", "np.where(x > 0, 1 / x, 0)"])
def test_what_divides_behind_a_division_that_is_not_reported_is_reported(after):
    space = {"np": np}
    exec(f"def f(x):\n    with np.errstate(divide='ignore'):\n        r = (x + 1) / x\n    return r, {after}", space)
    same_as_eager(space["f"], np.array([0.0, 1.0, 0.5]), breaks=(), calls=3, fallback=True)


def test_a_break_inside_errstate():
    def f(x):
        with np.errstate(divide="ignore"):
            y = 1 / x
            print("inside")
            z = y / x
        return z

    same_as_eager(f, np.array([0.0, 1.0]))


@needs_torch
def test_grad_modes_of_every_form():
    @torch.no_grad()
    def decorated(t):
        return t * 2 + torch.is_grad_enabled()

    def f(t):
        y = decorated(t) + torch.is_grad_enabled()
        with torch.no_grad():
            y = y * 2
        with torch.set_grad_enabled(False):
            y = y + torch.is_grad_enabled()
        return y

    same_as_eager(f, torch.ones(3), breaks=())


@needs_torch
def test_a_grad_mode_left_changed_is_left_so():
    def f(t):
        torch.set_grad_enabled(False)
        return t * 2

    compiled = framejit.compile(f)
    for _ in range(3):
        torch.set_grad_enabled(True)
        compiled(torch.ones(3))
        left = torch.is_grad_enabled()
        torch.set_grad_enabled(True)
        assert not left


@both_libraries
def test_dead_locals_are_no_outputs_at_a_print(lib):
    def f(x):
        dead = x * 2
        y = dead + 1
        print("here")
        return y * 3

    run = same_as_eager(f, lib.sample((3, 4)), breaks=["Print"])
    assert [str(graph).count("return %") for graph in run.graphs] == [1, 1]
    assert len(str(run.graphs[0]).split("return ")[1].split("%")) == 2, run.graphs[0]


@both_libraries
def test_locals_a_handler_or_a_later_line_reads_are_kept(lib):
    def f(x):
        kept, other = x * 2, x + 5
        try:
            print("here")
            raise_later(x)
        except KeyError:
            return kept + 1
        return other

    same_as_eager(f, lib.sample((3, 4)))


@framejit.disable
def raise_later(x):
    raise KeyError("later")


def test_code_that_looks_at_its_own_locals_keeps_them_all():
    def f(x):
        dead = x * 2
        print("here")
        return sorted(locals()), x + 1

    same_as_eager(f, X)


def _traceback_is_there(x):
    try:
        raise ValueError("t")
    except ValueError as error:
        kept = error
    return x + 1, repr(kept), kept.__traceback__ is not None


def _context_is_there(x):
    try:
        try:
            raise ValueError("inner")
        except ValueError:
            raise KeyError("outer")
    except KeyError as error:
        return x * 2, repr(error.__context__)


def _finally_writes_before_leaving(x):
    try:
        y = x * 2
        raise ValueError("top")
    finally:
        x[0] = 5


def _caught_in_a_loop_with_prints(x):
    out = []
    for i in range(4):
        try:
            if i % 2:
                raise IndexError(i)
            out.append(x * i)
        except IndexError as error:
            print("caught", error.args)
            continue
        finally:
            out.append(i)
    return out


def _raised_in_a_generator(x):
    def numbers():
        try:
            yield x
            raise KeyError("k")
        except KeyError:
            yield x * 2

    return [v + 1 for v in numbers()]


@pytest.mark.parametrize("function", [_traceback_is_there, _context_is_there, _finally_writes_before_leaving,
                                      _caught_in_a_loop_with_prints, _raised_in_a_generator], ids=lambda f: f.__name__)
def test_exceptions_seen_from_outside_are_python_s_own(function):
    same_as_eager(function, X)
