"""Classes around arrays: made and changed inside, inheritance, metaclasses, generics, classes built on C's."""
import abc
import collections.abc
import sys
import typing

import numpy as np
import pytest

import framejit
from constructs import run_construct, table
from points import Derived, Point

construct, PROGRAMS = table()
CLASSES = "classes"


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
def class_body_with_annotations(x):
    class Scaled:
        by: float = 3.0
        offset: int
        if sys.version_info < (3, 14):  # from then on there is none before somebody asks
            __annotations__["late"] = str

        def apply(self, y):
            return y * self.by

    return Scaled().apply(x)


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


@construct(CLASSES, state=True)
def class_counter():
    class Counter:
        n = 0

        def __init__(self):
            type(self).n += 1

    seen = []

    def f(x):
        Counter()
        seen.append(Counter.n)
        return x + Counter.n

    return f, seen


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


@pytest.mark.parametrize("program", PROGRAMS, ids=repr)
def test_construct(program):
    run_construct(program)


@pytest.mark.parametrize("look", [
    lambda made: made.__annotations__, lambda made: getattr(made, "__annotations__"),
    lambda made: made.__mro__[0].__annotations__,
    lambda made: typing.get_type_hints(made),
] + ([lambda made: made.__annotate__(1)] if sys.version_info >= (3, 14) else [
    lambda made: made().__annotations__, lambda made: type("Derived", (made,), {})().__annotations__,
    lambda made: made.__dict__["__annotations__"], lambda made: vars(made)["__annotations__"],
]))
def test_annotations_of_a_class_made_inside_are_new_ones_at_each_call(look):
    @framejit.compile
    def f(x):
        class Scaled:
            by: float = 3.0

        annotations = look(Scaled)
        annotations["n"] = len(annotations)
        return x * Scaled.by, annotations

    kept = [f(np.ones(3)) for _ in range(3)]
    assert [annotations for _, annotations in kept] == [{"by": float, "n": 1}] * 3
    assert len({id(annotations) for _, annotations in kept}) == 3


def test_annotations_that_a_class_has_not_are_made_at_each_call():
    @framejit.compile
    def f(x):
        class Plain:
            by = 3.0

        Plain.__annotations__["n"] = len(Plain.__annotations__)
        return x * Plain.by, Plain.__annotations__

    kept = [f(np.ones(3))[1] for _ in range(3)]
    assert kept == [{"n": 0}] * 3 and len({id(annotations) for annotations in kept}) == 3
