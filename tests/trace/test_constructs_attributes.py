"""Attributes by every protocol: __getattr__ and its like, slots, properties and other descriptors, vars, dir."""
import functools

import pytest

from constructs import run_construct, table
from points import Derived, Point

construct, PROGRAMS = table()
ATTRIBUTES = "attributes"


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


@pytest.mark.parametrize("program", PROGRAMS, ids=repr)
def test_construct(program):
    run_construct(program)
