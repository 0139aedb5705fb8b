"""Functions for test_executor: every construct at which a graph can break, one per function, with arguments.

`note(...)` records what a callee sees of the frames above it: lines, locals, and what it was called with.
"""
import contextlib
import sys
import types
import warnings

seen = []


def note(*values):
    frame = sys._getframe(1)
    seen.append((frame.f_code.co_name, frame.f_lineno, sorted(k for k in frame.f_locals), repr(values),
                 frame.f_back.f_code.co_name != frame.f_code.co_name))
    return values[0] if values else None


class Point:
    __slots__ = ("x", "y", "__dict__")
    scale = 3

    def __init__(self, x=1, y=2):
        self.x, self.y = x, y

    def length(self, *more, unit=1):
        note(self.x, more, unit)
        return (self.x + self.y + sum(more)) * unit * self.scale

    @property
    def area(self):
        return note(self.x * self.y)

    @classmethod
    def origin(cls):
        return cls(0, 0)

    def __eq__(self, other):
        return note(isinstance(other, Point) and (self.x, self.y) == (other.x, other.y))

    __hash__ = None

    def __repr__(self):
        return f"{type(self).__name__}({self.x}, {self.y})"

    def __bool__(self):
        return note(bool(self.x))

    def __getitem__(self, key):
        return note(key)

    def __setitem__(self, key, value):
        note("set", key, value)

    def __delitem__(self, key):
        note("del", key)

    def __contains__(self, key):
        return note(key == self.x)

    def __iter__(self):
        yield self.x
        yield self.y

    def __add__(self, other):
        return Point(self.x + other, self.y)

    def __iadd__(self, other):
        self.x += other
        return self

    def __neg__(self):
        return Point(-self.x, -self.y)


class Child(Point):
    def length(self, *more, unit=1):
        return super().length(*more, unit=unit) + super(Child, self).scale


class Manager:
    def __init__(self, swallow=False):
        self.swallow = swallow

    def __enter__(self):
        note("enter")
        return self

    def __exit__(self, kind, value, traceback):
        note("exit", kind, str(value), traceback is not None)
        return self.swallow


def straight(a, b):
    c = a + b * 2 - (a // 3) % 5
    c **= 2
    d = -c, +c, ~int(c), not c
    return c, d, a < b, a <= b, a == b, a is b, a is not b, a in (b, c), a not in [b]


def calls(a, b=5, *args, k=1, **kwargs):
    x = note(a, b)
    y = max(a, b, *args)
    z = sorted([a, b, *args], key=lambda v: -v, reverse=bool(k))
    return x, y, z, dict(kwargs, k=k), note(*args, **{}), "{} {q}".format(a, q=b)


def loops(n):
    total = []
    for i in range(n):
        if i == 2:
            continue
        for j in "ab":
            if i == 4:
                break
            total.append((i, j))
        else:
            total.append(note(i))
    while n > 0:
        n -= 1
        if n == 1:
            break
    return total, n


def strings(a, b):
    return f"{a!r:>10}|{b:{a}}|{a!s}{b!a}" + "x" "y", b"%d" % a, "%s" % b


def containers(a, *rest):
    xs = [a, *rest, a]
    d = {"a": a, **{"b": 1}, a: 2}
    s = {a, *rest}
    t = (*xs, *s)
    xs[0] = 5
    xs[1:2] = [7, 8]
    del xs[-1], d["b"]
    first, *middle, last = t
    (p, q), r = (a, first), [1]
    return xs, d, s, t, middle, last, p, q, r, xs[1:], xs[:1], xs[::2], xs[-1]


def comprehensions(n):
    k = 2
    xs = [i * k for i in range(n) if i % 2]
    d = {i: [j for j in range(i)] for i in range(n)}
    s = {i % k for i in xs}
    g = sum(i * k for i in range(n))
    return xs, d, s, g


def closures(n):
    total = 0

    def add(x, y=n, *, z: int = 3) -> int:
        nonlocal total
        total += x + y + z + n
        return total

    def deeper():
        return lambda: (total, n)

    add(1)
    return add(2, z=5), deeper()(), add.__defaults__, add.__kwdefaults__, add.__annotations__


def attributes(p):
    p.z = p.x + p.area
    p.x += 1
    q = Child(4, 5)
    del p.z
    p += 3
    return p.x, hasattr(p, "z"), q.length(1, 2, unit=2), Point.origin().length(), (p + 1).x, (-p).y, p.scale


def protocols(p):
    p["k"] = p[1]
    p[1:2]
    del p["k"]
    x, y = p
    return p == Point(1, 2), 1 in p, 9 not in p, (1 if p else 2), p and 3, p or 4, not p, x, y


def with_statement(swallow):
    with Manager(swallow) as m, Manager():
        x = note("body")
    with contextlib.suppress(KeyError):
        raise KeyError("gone")
    return m.swallow, x


def with_raises(swallow):
    result = []
    with Manager(swallow):
        result.append(1)
        result.append(1 / 0)
    return result


def handlers(kind):
    log = []
    try:
        try:
            if kind == 0:
                raise ValueError("a") from KeyError("c")
            if kind == 1:
                [][3]
            if kind == 2:
                raise KeyError
            if kind == 3:
                {}["x"]
            log.append("no error")
        except ValueError as e:
            log.append((str(e), repr(e.__cause__), sys.exc_info()[0].__name__))
            note("handler")
        except (KeyError, TypeError):
            log.append("key")
            raise
        else:
            log.append("else")
        finally:
            log.append("finally")
            note(log)
    except LookupError as e:
        log.append(type(e).__name__)
        if kind == 3:
            raise RuntimeError("again") from e
    return log, sys.exc_info()


def return_in_finally(n):
    for i in range(n):
        try:
            if i == 1:
                return note(i)
        finally:
            note("cleanup", i)
            if i == 5:
                continue
    return "end"


def reraise_bare():
    try:
        raise ValueError("v")
    except ValueError:
        try:
            raise KeyError("k")
        except KeyError:
            pass
        raise


def unbound(flag):
    if flag:
        x = 1
    return x


def deleted(a):
    del a
    return a


def cell_unbound():
    def inner():
        return value
    if not note(1):
        value = 2
    return inner()


def missing_global():
    return this_name_is_not_defined


def missing_attribute(p):
    return p.nothing_here


def not_callable(a):
    return a(1)


def bad_unpack(a):
    x, y = a
    return x, y


def bad_star(a):
    return note(*a)


def bad_keywords(a):
    return note(**{"k": 1}, **{"k": a})


def bad_operands(a):
    b = 1
    return [a, b][a] + "x"


def raises_in_callee(a):
    def inner(x):
        return 10 // x

    return [inner(i) for i in a]


def raise_class_and_cause(a):
    if a:
        raise ValueError from None
    raise 3


def frames(a):
    b = a
    here = locals()
    return sorted(here), eval("a + b"), sorted(dir()), sys._getframe().f_lineno, "seen" in globals()


def warn(a):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.warn("careful")
    return [(w.lineno, str(w.message)) for w in caught], a


def imports():
    import math
    import os.path as path
    from collections import OrderedDict, deque as d
    return math.sqrt(4), path.basename("a/b"), OrderedDict.__name__, d.__name__


def import_fails():
    from math import nothing_of_this_name
    return nothing_of_this_name


def make_class(base):
    class Made(base):
        attribute = 3

        def method(self):
            return __class__.__name__, super().__init__()

    return Made().method(), Made.attribute


def generators(n):
    def count():
        for i in range(n):
            got = yield i
            if got:
                return

    return list(count()), sum(count()), [*zip(count(), "abc")]


def matching(value):
    match value:
        case [x, y]:
            return "two", x, y
        case {"k": v}:
            return "mapping", v
        case int() | str():
            return "scalar"
        case _:
            return "other"


def chained(a, b):
    return (a < b < 10 and b) or (a if a > b else None), a == b == 3, None is not a


def asserts(a):
    assert a > 1, f"{a} is small"
    return a


def star_calls(a, b):
    args, kwargs = (a, b), {"sep": "-", "end": "!"}
    return "{0}{1}".format(*args), dict(**kwargs), max(*args, key=lambda v: v), note(*args, *args)


def global_store(a):
    global stored
    stored = a
    stored += 1
    result = stored
    del stored
    return result


def _generated(name, source):
    """A function too long to write out: wide arguments need EXTENDED_ARG."""
    namespace = {}
    exec(compile(source, __file__, "exec"), globals(), namespace)
    return namespace[name]


many_locals = _generated("many_locals", "def many_locals(a):\n" + "".join(f"    v{i} = a + {i}\n" for i in range(300)) + "    return note(v0, v299)\n")
long_jump = _generated("long_jump", "def long_jump(n):\n    x = 0\n    while x < n:\n        if x % 2:\n"
                       + "            n = n + 0\n" * 200 + "        x += 1\n    return note(x)\n")


def recursive(n):
    return 1 if n <= 1 else n * recursive(n - 1)


def destructors():
    log = []

    class Loud:
        def __del__(self):
            log.append(sys._getframe(1).f_lineno)

    x = Loud()
    x = 1
    y = Loud()
    del y
    Loud()
    return log, x


def exception_groups():
    try:
        raise ExceptionGroup("g", [ValueError(1), KeyError(2)])
    except* ValueError as group:
        first = len(group.exceptions)
    except* KeyError:
        first = 0
    return first


def walrus(xs):
    return [y for x in xs if (y := x * 2) > 2], y


def nested_unpack(pairs):
    out = []
    for i, (a, *b) in enumerate(pairs):
        out.append((i, a, b))
    return out


def _closure():
    n, gone = 2, 3
    del gone

    def closure(a):
        nonlocal gone
        gone = note(a + n)
        del gone
        return note(n)

    return closure


closure = _closure()


class ThreeItems:
    """A new iterator for each call."""

    def __init__(self):
        self.items = iter(range(3))

    def __iter__(self):
        return self

    def __next__(self):
        return next(self.items)


def _comprehension_code():
    """The comprehensions as functions of their iterator, where they are code of their own."""
    def both(xs):
        return {note(x): x for x in xs}, {note(x) for x in xs}, [note(x) for x in xs]

    inner = [code for code in both.__code__.co_consts if isinstance(code, types.CodeType)]
    return [types.FunctionType(code, globals()) for code in inner]


def slicing(i, j):
    a = list(range(9))
    a[i:j] = [j]
    return a, a[i:j], a[j:i:-i], a[:j]


try:
    exec("def template(a, b):\n    text = t'{a!r:>{b}} and {b} {a!s}'\n    return repr(text), repr(t''), t'{b:x}'.values\n")
except SyntaxError:
    template = None

CASES = [
    (straight, (7, 2)), (straight, (2.5, 4)), (calls, (1,)), (calls, (3, 1, 7)), (loops, (6,)),
    (strings, (9, "b")), (containers, (1, 2, 3)), (comprehensions, (5,)), (closures, (4,)), (attributes, (Point,)),
    (protocols, (Point,)), (with_statement, (True,)), (with_raises, (True,)), (with_raises, (False,)),
    (handlers, (0,)), (handlers, (1,)), (handlers, (2,)), (handlers, (3,)), (handlers, (4,)), (return_in_finally, (3,)),
    (return_in_finally, (1,)), (reraise_bare, ()), (unbound, (True,)), (unbound, (False,)), (deleted, (1,)), (cell_unbound, ()),
    (missing_global, ()), (missing_attribute, (Point,)), (not_callable, (3,)), (bad_unpack, ([1],)), (bad_unpack, ([1, 2, 3],)),
    (bad_unpack, (5,)), (bad_unpack, (range(3),)), (bad_unpack, (range(2),)), (bad_unpack, ("a",)), (bad_star, (5,)), (bad_star, ("ab",)),
    (bad_keywords, (2,)), (bad_operands, (0,)), (raises_in_callee, ([1, 0],)), (raise_class_and_cause, (1,)), (raise_class_and_cause, (0,)),
    (frames, (1,)), (warn, (1,)), (imports, ()), (import_fails, ()), (make_class, (Point,)), (generators, (3,)),
    (matching, ([1, 2],)), (matching, ({"k": 1},)), (matching, (3,)), (matching, (2.5,)), (chained, (1, 3)), (chained, (3, 3)),
    (asserts, (2,)), (asserts, (1,)), (star_calls, (1, 2)), (global_store, (4,)), (many_locals, (1,)), (long_jump, (4,)),
    (recursive, (5,)), (destructors, ()), (exception_groups, ()), (walrus, ([1, 2, 3],)), (nested_unpack, (["abc", [1, 2]],)),
    (slicing, (1, 4)), *([(template, ("k", 3))] if template else []),
    (closure, (1,)), *((function, (ThreeItems,)) for function in _comprehension_code()),
]
