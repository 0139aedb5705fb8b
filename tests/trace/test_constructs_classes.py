"""Classes around arrays: made and changed inside, operators, attributes by every protocol, inheritance, enums, dataclasses."""
import abc
import collections.abc
import copy
import dataclasses
import enum
import functools
import sys
import typing

import numpy as np
import pytest

from constructs import run_construct, table

construct, PROGRAMS = table()
CLASSES, OPERATORS, ATTRIBUTES, DATACLASSES, ENUMS = "classes", "dunder operators", "attributes", "dataclasses", "enums"


class Point:
    scale = 2.0

    def __init__(self, a, b=1):
        self.a = a
        self.b = b

    def total(self):
        return self.a + self.b

    @property
    def double(self):
        return self.a * 2

    @double.setter
    def double(self, value):
        self.a = value / 2

    @double.deleter
    def double(self):
        self.a = 0

    @staticmethod
    def twice(x):
        return x * 2

    @classmethod
    def make(cls, a):
        return cls(a, 3)


class Derived(Point):
    def __init__(self, a):
        super().__init__(a, 5)
        self.c = 7

    def total(self):
        return super().total() * self.c

    @classmethod
    def make(cls, a):
        return super().make(a) if cls is Point else cls(a)

    @property
    def double(self):
        return super().double + 1


class Base:
    def f(self, x):
        return x + 1


class Left(Base):
    def f(self, x):
        return super().f(x) * 2


class Right(Base):
    def f(self, x):
        return super(Right, self).f(x) - 3


class Diamond(Left, Right):
    def f(self, x):
        return super(Diamond, self).f(x) / 2


# ---- classes

@construct(CLASSES)
def instance_made_and_used(x):
    p = Point(x)
    p.b = 3
    return p.total() * p.scale


@construct(CLASSES)
def instance_returned(x):
    return Point(x * 2, b=4)


@construct(CLASSES)
def method_kept_and_called(x):
    f = Point(x).total
    return f() + f()


@construct(CLASSES)
def unbound_method(x):
    return Point.total(Point(x, 2))


@construct(CLASSES)
def static_and_class_methods(x):
    return Point.twice(x) + Point.make(x).b + Point(x).twice(x) + Derived(x).make(x).c


@construct(CLASSES)
def property_with_setter(x):
    p = Point(x)
    p.double = x * 8
    return p.a + p.double


@construct(CLASSES)
def property_deleter(x):
    p = Point(x)
    del p.double
    return x + p.a


@construct(CLASSES)
def inheritance_and_super(x):
    d = Derived(x)
    return d.total() + d.double + d.b


@construct(CLASSES)
def super_with_arguments_in_a_diamond(x):
    return Diamond().f(x)


@construct(CLASSES)
def super_in_nested_function_and_comprehension(x):
    class_ = SuperNested
    return class_().f(x)


class SuperNested(Base):
    def f(self, x):
        def inner():
            return super(SuperNested, self).f(x)
        return inner() + sum(super(SuperNested, self).f(x * i) for i in range(2))


class WithNew:
    def __new__(cls, x, k=2):
        self = super().__new__(cls)
        self.made = k
        return self

    def __init__(self, x, k=2):
        self.x = x * self.made


@construct(CLASSES)
def class_with_new(x):
    return WithNew(x, 3).x + WithNew(x).made


class NewOther:
    def __new__(cls, x):
        return x * 3


@construct(CLASSES)
def new_that_returns_something_else(x):
    return NewOther(x) + 1


class Meta(type):
    registry = 5

    def helper(cls, x):
        return x * cls.factor

    @property
    def doubled(cls):
        return cls.factor * 2

    def __getitem__(cls, k):
        return cls.factor + k

    def __len__(cls):
        return 3

    def __contains__(cls, k):
        return k == 4

    def __iter__(cls):
        return iter([1, 2])


class WithMeta(metaclass=Meta):
    factor = 4

    def __init__(self, x):
        self.x = x


@construct(CLASSES)
def metaclass_attributes(x):
    return WithMeta.helper(x) + WithMeta.doubled + WithMeta.registry + WithMeta[2] + len(WithMeta) + (4 in WithMeta) + sum(WithMeta)


class CallingMeta(type):
    def __call__(cls, x):
        made = super().__call__(x)
        made.extra = 2
        return made


class MadeByMeta(metaclass=CallingMeta):
    def __init__(self, x):
        self.x = x


@construct(CLASSES)
def instance_of_a_metaclass(x):
    m = WithMeta(x)
    return m.x * m.factor


@construct(CLASSES)
def metaclass_call(x):
    m = MadeByMeta(x)
    return m.x * m.extra


class Abstract(abc.ABC):
    @abc.abstractmethod
    def f(self, x):
        ...

    def g(self, x):
        return self.f(x) * 2


class Concrete(Abstract):
    def f(self, x):
        return x + 1


@construct(CLASSES)
def abstract_base_classes(x):
    c = Concrete()
    return c.g(x) + isinstance(c, Abstract) + issubclass(Concrete, Abstract)


@construct(CLASSES)
def isinstance_of_an_abc_it_is_not(x):
    return x + isinstance(Point(x), Abstract) + isinstance(Point(x), collections.abc.Mapping) + isinstance([1], collections.abc.Sequence)


@construct(CLASSES)
def isinstance_of_unions(x):
    return x + isinstance(3, int | str) + isinstance("s", (int, (str, float))) + isinstance(x, np.ndarray) + isinstance(None, int | None)


@construct(CLASSES)
def issubclass_and_type(x):
    p = Derived(x)
    return x + issubclass(type(p), Point) + (type(p) is Derived) + (type(p).__name__ == "Derived") + (p.__class__ is Derived)


@construct(CLASSES)
def type_of_x_called(x):
    p = type(Point(x))(x * 2)
    return p.a + type(3)("4") + len(type([1])((1, 2)))


@construct(CLASSES)
def class_body_inside(x):
    class Local:
        k = 3

        def f(self):
            return x * self.k

    return Local().f()


@construct(CLASSES)
def class_body_inside_with_base_and_super(x):
    class Local(Point):
        def total(self):
            return super().total() * 2

    return Local(x, 3).total()


@construct(CLASSES)
def type_with_three_arguments(x):
    made = type("Made", (Point,), {"extra": 3})
    return made(x).total() * made.extra


T = typing.TypeVar("T")


class Generic(typing.Generic[T]):
    def __init__(self, x):
        self.x = x


@construct(CLASSES)
def generic_class(x):
    return Generic(x).x + Generic[int](x).x


@construct(CLASSES)
def typing_cast_and_annotations(x):
    y: int = typing.cast(int, 3)
    z: np.ndarray = typing.cast("np.ndarray", x)
    return z * y


class Protocol(typing.Protocol):
    def total(self):
        ...


class Counted:
    count = 0

    def __init__(self):
        type(self).count += 1


@construct(CLASSES, state=True, breaks=["UnsupportedObject"])
def class_attribute_written():
    class Counter:
        n = 0

    def f(x):
        Counter.n += 1
        return x + Counter.n, vars(Counter)["n"]

    return f


@construct(CLASSES)
def list_subclass(x):
    values = Stack([1, 2])
    values.push(3)
    return x * values.top() + len(values), sum(values), values[0]


class Stack(list):
    def push(self, item):
        self.append(item)

    def top(self):
        return self[-1]


class Registry(dict):
    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name)

    def __setattr__(self, name, value):
        self[name] = value


@construct(CLASSES)
def dict_subclass_with_attributes(x):
    r = Registry(a=1)
    r.b = x
    return r.a * r.b + r["a"] + hasattr(r, "zzz") + len(r)


class Meters(float):
    def half(self):
        return self / 2


class Index(int):
    def __new__(cls, value):
        return super().__new__(cls, value + 1)


@construct(CLASSES)
def number_subclasses(x):
    return x * Meters(3.0).half() + Index(2) + x[Index(0)]


class Tagged(tuple):
    def first(self):
        return self[0]


@construct(CLASSES)
def tuple_subclass(x):
    t = Tagged((x, 2))
    return t.first() * t[1] + len(t)


class Name(str):
    def shout(self):
        return self.upper() + "!"


@construct(CLASSES)
def str_subclass(x):
    return x * len(Name("abc").shout()), Name("q") == "q"


@construct(CLASSES)
def callable_instances(x):
    return Adder(3)(x) + sum(map(Adder(1), [1, 2]))


class Adder:
    def __init__(self, n):
        self.n = n

    def __call__(self, x, *rest, **named):
        return x + self.n + len(rest) + len(named)


@construct(CLASSES, state=True)
def instances_from_outside_changed():
    p = Point(3)

    def f(x):
        p.a = p.a + 1
        p.fresh = x * 2
        setattr(p, "named", 5)
        return x * p.a

    return f, p


@construct(CLASSES, state=True)
def instance_stored_in_an_outside_list():
    out = []

    def f(x):
        p = Point(x)
        out.append(p)
        p.b = 9
        return x + out[-1].b

    return f, out


@construct(CLASSES)
def method_resolution_with_mixins(x):
    return x * Mixed(x).area() + Mixed(x).name


class Shape:
    name = 3

    def area(self):
        return self.size() * 2


class Sized:
    def size(self):
        return self.x.shape[0]


class Mixed(Sized, Shape):
    def __init__(self, x):
        self.x = x


class Hooked:
    seen = []

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        cls.tag = len(cls.__name__)


class HookedChild(Hooked):
    pass


@construct(CLASSES, breaks=["UnsupportedObject"])  # list[int] has rules of its own for attributes
def init_subclass_and_class_getitem(x):
    return x * HookedChild.tag + len(list[int].__args__)


# ---- operators

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


# ---- attributes

class Dynamic:
    def __init__(self):
        self.known = 1

    def __getattr__(self, name):
        if name.startswith("k"):
            return len(name)
        raise AttributeError(name)


class Intercepting:
    def __init__(self, x):
        self.x = x

    def __getattribute__(self, name):
        if name == "magic":
            return 4
        return super().__getattribute__(name)


class Recording:
    def __init__(self):
        object.__setattr__(self, "names", [])

    def __setattr__(self, name, value):
        self.names.append(name)
        super().__setattr__(name, value)

    def __delattr__(self, name):
        self.names.append("-" + name)
        object.__delattr__(self, name)


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self, a):
        self.a = a


class SlottedChild(Slotted):
    __slots__ = ("c",)


class SlottedDict(Slotted):
    pass


class Positive:
    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, instance, owner):
        if instance is None:
            return self
        return getattr(instance, self.name) + 1

    def __set__(self, instance, value):
        setattr(instance, self.name, value * 2)

    def __delete__(self, instance):
        delattr(instance, self.name)


class NonData:
    def __get__(self, instance, owner):
        return 11


class Described:
    value = Positive()
    plain = NonData()

    def __init__(self, x):
        self.value = x


class Cached:
    calls = 0

    def __init__(self, x):
        self.x = x

    @functools.cached_property
    def value(self):
        return self.x * 2


@construct(ATTRIBUTES)
def getattr_method(x):
    d = Dynamic()
    return x * d.known + d.kkk + hasattr(d, "other") + getattr(d, "other", 5)


@construct(ATTRIBUTES)
def getattribute_method(x):
    i = Intercepting(x)
    return i.x * i.magic + hasattr(i, "none")


@construct(ATTRIBUTES)
def setattr_and_delattr_methods(x):
    r = Recording()
    r.a = x
    r.b = 2
    del r.b
    return r.a * len(r.names), r.names, hasattr(r, "b")


@construct(ATTRIBUTES)
def slots(x):
    s, c, d = Slotted(x), SlottedChild(x * 2), SlottedDict(x)
    s.b = 3
    c.c = 4
    d.free = 5
    return s.a * s.b + c.a * c.c + d.free + hasattr(c, "b")


@construct(ATTRIBUTES)
def slots_instance_returned(x):
    s = SlottedDict(x * 2)
    s.free = 2
    return s


@construct(ATTRIBUTES)
def descriptors(x):
    d = Described(x)
    y = d.value
    d.value = 4
    z = d.value
    d.__dict__["plain"] = 12
    return y + z + d.plain + isinstance(Described.value, Positive)


@construct(ATTRIBUTES)
def descriptor_delete(x):
    d = Described(x)
    del d.value
    return x + hasattr(d, "value")


@construct(ATTRIBUTES)
def cached_property_inside(x):
    c = Cached(x)
    return c.value + c.value + ("value" in c.__dict__)


@construct(ATTRIBUTES, state=True)
def cached_property_of_an_outside_object():
    c = Cached(3)

    def f(x):
        return x * c.value + c.value

    return f, c


@construct(ATTRIBUTES)
def vars_of_a_new_object(x):
    p = Point(x)
    vars(p)["b"] = 5
    p.__dict__["c"] = 6
    p.__dict__.update(d=7)
    return p.b + p.c + p.d + p.a, sorted(vars(p)), len(vars(p)), list(p.__dict__.items())[1]


@construct(ATTRIBUTES, breaks=None)
def vars_replaced(x):
    p = Point(x)
    p.__dict__ = {"z": 4}
    return x * p.z + hasattr(p, "a")


@construct(ATTRIBUTES, state=True)
def vars_of_an_outside_object():
    p = Point(3)

    def f(x):
        p.k = 5
        names = sorted(vars(p))
        vars(p)["m"] = 7
        return x * p.k + p.m, names, [v for v in p.__dict__.values()]

    return f, p


@construct(ATTRIBUTES)
def kwargs_into_attributes(x):
    n = Namespace(a=1, b=x)
    return n.a + n.b, sorted(n.__dict__)


class Namespace:
    def __init__(self, **names):
        self.__dict__.update(names)


@construct(ATTRIBUTES)
def types_simple_namespace(x):
    import types
    n = types.SimpleNamespace(a=x, b=2)
    n.c = 3
    return n.a * n.b + n.c


@construct(ATTRIBUTES)
def dynamic_names(x):
    p = Point(x)
    for i in range(3):
        setattr(p, f"w{i}", i + 1)
    delattr(p, "w0")
    return sum(getattr(p, f"w{i}", 10) for i in range(4)) * x


@construct(ATTRIBUTES)
def deleted_and_set_again(x):
    p = Point(x)
    del p.b
    first = hasattr(p, "b")
    p.b = 4
    return x * p.b + first, list(vars(p))


@construct(ATTRIBUTES)
def function_attributes(x):
    return x * helper.factor + len(helper.__name__) + helper.__defaults__[0]


def helper(a=3):
    return a


helper.factor = 2


@construct(ATTRIBUTES)
def attribute_error_of_a_new_object(x):
    p = Point(x)
    try:
        p.nothing
    except AttributeError as error:
        return x * 2, str(error), error.name
    return x


@construct(ATTRIBUTES)
def setting_a_read_only_property(x):
    try:
        ReadOnly().value = 3
    except AttributeError:
        return x + 1
    return x


class ReadOnly:
    @property
    def value(self):
        return 1


@construct(ATTRIBUTES)
def setting_an_unknown_slot(x):
    try:
        Slotted(x).zzz = 3
    except AttributeError:
        return x + 1
    return x


@construct(ATTRIBUTES)
def dunder_class_and_doc(x):
    p = Point(x)
    return x + len(p.__class__.__name__) + len(Point.__mro__) + len(Derived.__bases__) + (Point.__doc__ is None), Point.__qualname__, p.__module__ == __name__


@construct(ATTRIBUTES)
def property_on_an_outside_object(x, p=Point(4)):
    return x * p.double + p.total()


@construct(ATTRIBUTES)
def dir_of_an_object(x):
    return x * ("a" in dir(Point(x))), dir(Point(x))


# ---- dataclasses

@dataclasses.dataclass
class Data:
    a: int
    b: float = 2.0
    c: list = dataclasses.field(default_factory=list)
    d: int = dataclasses.field(default=4, compare=False, repr=False)

    def total(self):
        return self.a * self.b


@dataclasses.dataclass(frozen=True)
class Frozen:
    a: int
    b: float = 2.0


@dataclasses.dataclass(order=True)
class Ranked:
    k: int
    name: str = "x"


@dataclasses.dataclass(slots=True)
class DataSlots:
    a: object
    b: int = 3


@dataclasses.dataclass
class PostInit:
    a: object
    scale: dataclasses.InitVar[int] = 2
    b: object = dataclasses.field(init=False)

    def __post_init__(self, scale):
        self.b = self.a * scale


@dataclasses.dataclass(kw_only=True)
class KeywordOnly:
    a: object
    b: int = 2


@dataclasses.dataclass
class DataChild(Data):
    e: int = 9


@dataclasses.dataclass(eq=True, frozen=True)
class FrozenKey:
    a: int
    b: str


@dataclasses.dataclass
class Outer:
    inner: Frozen
    items: list


@construct(DATACLASSES)
def made_and_changed(x):
    d = Data(3)
    d.c.append(x)
    d.b = x
    return d.total() + len(d.c) + d.d


@construct(DATACLASSES)
def returned(x):
    return Data(1, c=[x]), DataSlots(x * 2)


@construct(DATACLASSES)
def equality(x):
    return x + (Data(1) == Data(1)) + (Data(1) != Data(2)) * 2 + (Frozen(1) == Frozen(1, 3.0)) * 4 + (Data(1) == 1) * 8


@construct(DATACLASSES)
def order(x):
    return x + (Ranked(1) < Ranked(2)) + sorted([Ranked(3), Ranked(1)])[0].k + max(Ranked(1, "a"), Ranked(1, "b")).k


@construct(DATACLASSES)
def representation(x):
    return x + len(repr(Data(1))), f"{Frozen(2)}"


@construct(DATACLASSES)
def hash_as_a_key(x):
    table = {FrozenKey(1, "a"): 3, FrozenKey(2, "b"): 4}
    return x * table[FrozenKey(1, "a")] + (FrozenKey(2, "b") in table)


@construct(DATACLASSES)
def replace(x):
    d = dataclasses.replace(Data(3, c=[1]), b=5.0)
    f = dataclasses.replace(Frozen(1), a=7)
    return x * d.b + d.a + f.a


@construct(DATACLASSES, breaks=() if sys.version_info < (3, 12) else None)  # 3.12 asks a frozenset of types
def asdict_and_astuple(x):
    d = dataclasses.asdict(Outer(Frozen(1), [Frozen(2), 3]))
    return x + d["inner"]["a"] + d["items"][0]["a"], d, dataclasses.astuple(Frozen(5))


@construct(DATACLASSES)
def fields(x):
    return x + sum(getattr(Frozen(3), f.name) for f in dataclasses.fields(Frozen)), [f.name for f in dataclasses.fields(Data(1))]


@construct(DATACLASSES)
def is_dataclass(x):
    return x + dataclasses.is_dataclass(Data) + dataclasses.is_dataclass(Point)


@construct(DATACLASSES)
def post_init_and_initvar(x):
    p = PostInit(x, scale=3)
    return p.b + p.a


@construct(DATACLASSES)
def keyword_only_and_inherited(x):
    k, c = KeywordOnly(a=x), DataChild(1, e=2)
    return k.a * k.b + c.e + c.b


@construct(DATACLASSES)
def slots_dataclass(x):
    s = DataSlots(x)
    s.b = 4
    return s.a * s.b


@construct(DATACLASSES)
def frozen_write_refused(x):
    f = Frozen(1)
    try:
        f.a = 3
    except dataclasses.FrozenInstanceError:
        return x * 2
    return x


@construct(DATACLASSES, state=True)
def outside_dataclass_changed():
    d = Data(1)

    def f(x):
        d.a += 1
        d.c.append(d.a)
        return x * d.a + len(d.c)

    return f, d


# ---- enums

class Color(enum.Enum):
    RED = 1
    BLUE = 2

    @property
    def pretty(self):
        return self.name.lower()

    def next(self):
        return Color.BLUE if self is Color.RED else Color.RED

    @classmethod
    def default(cls):
        return cls.RED


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 5


class Mode(enum.Flag):
    READ = 1
    WRITE = 2
    BOTH = 3


class IntMode(enum.IntFlag):
    A = 1
    B = 2


class Kind(str, enum.Enum):
    SUM = "sum"
    MEAN = "mean"


class Auto(enum.Enum):
    A = enum.auto()
    B = enum.auto()


OPERATIONS = {Color.RED: lambda x: x + 1, Color.BLUE: lambda x: x * 2}


@construct(ENUMS)
def members_names_and_values(x):
    return x * Color.BLUE.value + len(Color.RED.name) + (Color.RED is Color.RED) + (Color.RED == Color.BLUE) + Auto.B.value


@construct(ENUMS)
def member_properties_and_methods(x):
    return x + len(Color.RED.pretty) + Color.RED.next().value + Color.default().value


@construct(ENUMS)
def lookup_by_value_and_name(x):
    return x * Color(2).value + Color["RED"].value


@construct(ENUMS)
def iterating_and_len(x):
    return x * sum(c.value for c in Color) + len(Color) + (Color.RED in Color), [c.name for c in Color], list(Color.__members__)


@construct(ENUMS)
def as_keys(x):
    return OPERATIONS[Color.BLUE](x) + {Color.RED: 4}[Color.RED]


@construct(ENUMS)
def int_enum_arithmetic(x):
    return x * Level.HIGH + Level.LOW + (Level.HIGH > Level.LOW) + (Level.HIGH + 1) + x[Level.LOW] + max(Level.LOW, Level.HIGH)


@construct(ENUMS)
def int_enum_from_value(x):
    return x * Level(5) + int(Level.LOW) + (Level.LOW == 1)


@construct(ENUMS)
def flags(x):
    m = Mode.READ | Mode.WRITE
    return x * m.value + bool(m & Mode.READ) + (Mode.READ in m) + (m is Mode.BOTH) + (~Mode.READ == Mode.WRITE) + bool(m ^ m)


@construct(ENUMS)
def int_flags(x):
    return x * (IntMode.A | IntMode.B) + (IntMode.A & 1)


@construct(ENUMS)
def str_enum(x):
    return x * (Kind.SUM == "sum") + len(Kind.MEAN) + (Kind("sum") is Kind.SUM), Kind.SUM.upper()


@construct(ENUMS)
def match_on_members(x, c=Color.BLUE):
    match c:
        case Color.RED:
            return x
        case Color.BLUE:
            return x * 2


@construct(ENUMS)
def text_of_members(x):
    return x + 1, str(Color.RED), repr(Color.BLUE), f"{Level.HIGH}", f"{Color.RED!r}"


@construct(ENUMS)
def isinstance_of_an_enum(x, c=Color.BLUE):
    return x + isinstance(c, Color) + isinstance(Level.LOW, int) + issubclass(Level, int)


@construct(ENUMS)
def unknown_value_is_refused(x):
    try:
        Color(7)
    except ValueError:
        return x * 2
    return x


@pytest.mark.parametrize("program", PROGRAMS, ids=repr)
def test_construct(program):
    run_construct(program)
