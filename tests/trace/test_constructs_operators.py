"""Operators that classes define: arithmetic, comparison, hashing, containers, calls, conversions."""
import functools

import pytest

from constructs import run_construct, table
from points import Point

construct, PROGRAMS = table()
OPERATORS = "dunder operators"


class Vector:
    def __init__(self, v):
        self.v = v

    def __add__(self, other):
        return Vector(self.v + (other.v if isinstance(other, Vector) else other))

    def __radd__(self, other):
        return Vector(other + self.v)

    def __sub__(self, other):
        return NotImplemented

    def __rsub__(self, other):
        return Vector(other - self.v)

    def __mul__(self, other):
        return Vector(self.v * other)

    __rmul__ = __mul__

    def __matmul__(self, other):
        return (self.v * other.v).sum()

    def __neg__(self):
        return Vector(-self.v)

    def __pos__(self):
        return self

    def __invert__(self):
        return Vector(self.v + 100)

    def __abs__(self):
        return Vector(abs(self.v))

    def __iadd__(self, other):
        self.v = self.v + other
        return self

    def __pow__(self, k):
        return Vector(self.v ** k)

    def __floordiv__(self, k):
        return Vector(self.v // k)

    def __truediv__(self, k):
        return Vector(self.v / k)

    def __mod__(self, k):
        return Vector(self.v % k)

    def __divmod__(self, k):
        return self // k, self % k

    def __lshift__(self, k):
        return Vector(self.v + k)

    def __and__(self, k):
        return Vector(self.v - k)

    def __or__(self, k):
        return Vector(self.v * 2 + k)

    def __xor__(self, k):
        return Vector(self.v * 3 + k)

    def __round__(self, n=None):
        return 5 if n is None else n

    def __len__(self):
        return self.v.shape[0]

    def __getitem__(self, k):
        return self.v[k]

    def __setitem__(self, k, value):
        self.v[k] = value

    def __delitem__(self, k):
        self.v = self.v[1:]

    def __contains__(self, k):
        return k == 3

    def __bool__(self):
        return False

    def __iter__(self):
        yield self.v
        yield self.v * 2

    def __reversed__(self):
        return iter([1, 2])

    def __index__(self):
        return 1

    def __int__(self):
        return 7

    def __float__(self):
        return 2.5

    def __complex__(self):
        return 1j

    def __str__(self):
        return "vector"

    def __repr__(self):
        return "Vector()"

    def __format__(self, spec):
        return "<" + spec + ">"


@construct(OPERATORS)
def arithmetic(x):
    a, b = Vector(x), Vector(x * 2)
    c = (a + b) * 2 + 1
    c += 3
    return c.v, (-a).v, (+a).v, (~a).v, abs(a).v


@construct(OPERATORS)
def reflected(x):
    a = Vector(x)
    return (3 + a).v, (2 * a).v, (5 - a).v


@construct(OPERATORS)
def not_implemented_on_the_left(x):
    return Minuend() - Subtrahend(x * 3), 2 * Subtrahend(x)


class Minuend:
    def __sub__(self, other):
        return NotImplemented

    def __mul__(self, other):
        return NotImplemented


class Subtrahend:
    def __init__(self, x):
        self.x = x

    def __rsub__(self, other):
        return self.x + 3

    def __rmul__(self, other):
        return self.x * other


@construct(OPERATORS)
def reflected_of_one_class_is_not_asked(x):
    try:
        Subtrahend(x) - Subtrahend(x)
    except TypeError:
        return x + (Minuend() - Subtrahend(x))


@construct(OPERATORS)
def reflected_of_a_subclass_first(x):
    return Early(x) + 1, Late(x).__class__ is Late, Early(x) + Late(x)


class Early:
    def __init__(self, x):
        self.x = x

    def __add__(self, other):
        return self.x + 1

    def __radd__(self, other):
        return self.x + 2


class Late(Early):
    def __radd__(self, other):
        return self.x * 5


@construct(OPERATORS)
def powers_divisions_shifts_bits(x):
    a = Vector(x)
    q, r = divmod(a, 2)
    return (a ** 2).v, (a // 2).v, (a / 2).v, (a % 2).v, (a << 1).v, (a & 1).v, (a | 1).v, (a ^ 1).v, q.v, r.v, pow(a, 2).v


@construct(OPERATORS)
def matmul(x):
    return Vector(x) @ Vector(x + 1)


@construct(OPERATORS)
def len_bool_contains(x):
    v = Vector(x)
    return x + len(v) + (3 in v) + (4 in v) + (1 if v else 2) + (not v) + bool(v)


@construct(OPERATORS)
def get_set_and_delete_items(x):
    v = Vector(x * 1)
    v[0] = 5
    y = v[1] + v[0]
    del v[0]
    return y, v.v


@construct(OPERATORS)
def iteration(x):
    a, b = Vector(x)
    return a + b, [i + 1 for i in Vector(x)], list(reversed(Vector(x)))


@construct(OPERATORS)
def getitem_iteration_without_iter(x):
    return sum(OldStyle(), 0) * x, list(OldStyle()), 4 in OldStyle()


class OldStyle:
    def __getitem__(self, i):
        if i > 2:
            raise IndexError
        return i * 2


@construct(OPERATORS)
def index_and_conversions(x):
    v = Vector(x)
    return x[v] + int(v) + float(v), [1, 2, 3][v], range(10)[v], round(v), round(v, 3), complex(v)


@construct(OPERATORS)
def text(x):
    v = Vector(x)
    return x + 1, str(v), repr(v), f"{v}", f"{v:abc}", "%s %r" % (v, v), "{} {!r} {:q}".format(v, v, v), [v].__len__()


class Key:
    def __init__(self, k):
        self.k = k

    def __eq__(self, other):
        return isinstance(other, Key) and self.k == other.k

    def __hash__(self):
        return hash(self.k)


@construct(OPERATORS)
def equality_and_hash_in_dict_keys(x):
    table = {Key(1): 2, Key(2): 3}
    table[Key(1)] = 5
    return x * table[Key(1)] + len(table) + (Key(2) in table) + (Key(3) in table), list(table.values())


@construct(OPERATORS)
def instances_in_sets(x):
    s = {Key(1), Key(1), Key(2)}
    s.add(Key(3))
    return x + len(s) + (Key(3) in s)


@construct(OPERATORS)
def instances_hashed_by_identity(x):
    a, b = Point(x), Point(x)
    table = {a: 1, b: 2}
    return x * table[a] + table[b] + len({a, b, a})


HASHED = []


class Noted:
    def __init__(self):
        self.k = 1

    def __hash__(self):
        HASHED.append(self.k)
        return 3

    def __eq__(self, other):
        return isinstance(other, Noted)

    def __repr__(self):
        return "Noted()"


@construct(OPERATORS, breaks=None)
def dict_with_such_keys_returned(x):
    HASHED.clear()
    table = {Noted(): x * 2}
    return list(table.values()), table, list(HASHED)


@construct(OPERATORS)
def comparisons(x):
    a, b = Ordered(1), Ordered(2)
    return x + (a < b) + (a <= b) * 2 + (a > b) * 4 + (a == b) * 8 + (a != b) * 16, [o.k for o in sorted([b, a])], max(a, b).k


@functools.total_ordering
class Ordered:
    def __init__(self, k):
        self.k = k

    def __eq__(self, other):
        return self.k == other.k

    def __lt__(self, other):
        return self.k < other.k


@construct(OPERATORS)
def comparison_that_returns_an_array(x):
    return (Compared(x) == 1) + 0, (Compared(x) < 0) * 1.0


class Compared:
    __hash__ = None

    def __init__(self, x):
        self.x = x

    def __eq__(self, other):
        return self.x == other

    def __lt__(self, other):
        return self.x < other


@construct(OPERATORS)
def instances_with_default_equality(x):
    a, b = Point(x), Point(x)
    return x + (a == a) + (a == b) * 2 + (a != b) * 4 + (a is b) * 8 + (a in [b, a]) * 16 + [b, a].index(a)


@construct(OPERATORS)
def context_manager_methods(x):
    with Managed(x) as m:
        y = m.x * 2
    return y + m.left


class Managed:
    def __init__(self, x):
        self.x = x
        self.left = 0

    def __enter__(self):
        return self

    def __exit__(self, *details):
        self.left = 1


@construct(OPERATORS)
def array_on_the_left_of_an_object(x):
    return (3.0 + Vector(x)).v


@construct(OPERATORS)
def missing_of_a_dict_subclass(x):
    d = Defaulting()
    return x * d["abc"] + len(d)


class Defaulting(dict):
    def __missing__(self, key):
        return len(key)


@construct(OPERATORS)
def operator_of_bool_result(x):
    return x + (Truthy(0) or 5) + (3 and 4) if not Truthy(0) else x


class Truthy:
    def __init__(self, n):
        self.n = n

    def __bool__(self):
        return self.n > 0

    def __radd__(self, other):
        return other


@pytest.mark.parametrize("program", PROGRAMS, ids=repr)
def test_construct(program):
    run_construct(program)
