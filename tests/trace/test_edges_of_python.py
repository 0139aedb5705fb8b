"""Rules of Python that programs seldom meet: special cases of classes, descriptors, containers and numbers.

CPython's own tests found these (tests/cpython); each is here as a small program of its own kind.
"""
import abc
import copy
import decimal
import functools
import inspect
import sys
import types
import typing
import weakref

import pytest

import framejit
from cpython.run_module import decorated

CASES = []


def case(function):
    CASES.append(function)
    return function


def outcome(function, *args):
    try:
        return repr(function(*args))
    except Exception as error:
        return type(error), str(error)


def errors(*functions):
    """What each gives, or its error."""
    results = []
    for function in functions:
        try:
            results.append(function())
        except (TypeError, ValueError) as error:
            results.append(str(error))
    return results


@case
def a_new_that_makes_an_object_of_a_derived_class_runs_its_init():
    class C:
        def __new__(cls, a):
            return object.__new__(D) if a else object.__new__(cls)

    class D(C):
        def __init__(self, a):
            self.a = a

    return C(1).a, type(C(1)).__name__, D(0).a, hasattr(C(0), "a")


@case
def super_of_an_object_of_another_class_is_an_error():
    class A:
        pass

    class D(A):
        pass

    return errors(lambda: super(D, 42), lambda: super(D, A()), lambda: super(D, A), lambda: super(D, D()).__thisclass__.__name__)


@case
def a_descriptor_without_get_comes_behind_the_objects_own_attribute():
    class Only:
        def __set__(self, owner, value):
            owner.__dict__["a"] = value

    class Meta(type):
        pass

    class X(metaclass=Meta):
        a = Only()
        b = 42

    Meta.b = Only()
    x = X()
    before = type(x.a).__name__
    x.a = 7
    return before, x.a, X.b


@case
def a_special_method_of_another_class_is_an_error_where_it_is_used():
    class A(int):
        __eq__ = str.__eq__
        __add__ = str.__add__
        __hash__ = int.__hash__
        upper = str.upper

    a = A()
    return errors(lambda: a == a, lambda: a + a, lambda: a.upper(), lambda: a * 2)


@case
def a_class_method_of_a_descriptor():
    class Method:
        def __init__(self, function):
            self.function = function

        def __get__(self, instance, owner=None):
            return types.MethodType(self.function, owner or type(instance))

    class X:
        @classmethod
        @Method
        def a(cls):
            return cls.__name__

    return outcome(lambda: X.a()), outcome(lambda: X().a())


@case
def an_abstract_class_may_deny_a_class_that_derives_from_it():
    class A(abc.ABC):
        @classmethod
        def __subclasshook__(cls, other):
            return "foo" in other.__dict__ if cls is A else NotImplemented

    class B(A):
        foo = 1

    class C(A):
        pass

    return issubclass(A, A), issubclass(B, (A,)), issubclass(C, (int, A)), isinstance(B(), A), isinstance(C(), A)


@case
def a_protocol_with_data_refuses_to_be_asked_of_a_class_that_derives_from_it():
    @typing.runtime_checkable
    class P(typing.Protocol):
        x = 1

    class D(P):
        pass

    return errors(lambda: issubclass(D, P), lambda: isinstance(D(), P))


@case
def type_refuses_what_is_no_tuple_and_a_name_that_ends_in_the_middle():
    return errors(lambda: type("A", [], {}), lambda: type("A\0B", (), {}), lambda: type("A", (), {}).__name__)


@case
def a_name_with_a_character_0():
    def take(**given):
        return sorted(given.items())

    class C:
        pass

    c = C()
    setattr(c, "a\0b", 5)
    return take(**{"a\0b": 1, "a": 2}), hasattr(c, "a"), getattr(c, "a\0b"), vars(c)


@case
def ascii_says_what_it_was_given():
    return ascii([]), ascii([1]), ascii(()), ascii({}), errors(lambda: chr([1]))


@case
def a_long_range():
    return len(range(0, sys.maxsize, sys.maxsize - 1)), len(range(-sys.maxsize, sys.maxsize, 2)), len(range(9, -9, -4)), len(range(0, 1, 5))


@case
def keywords_of_a_partial_that_are_no_strings():
    partial = functools.partial(lambda **given: given)
    partial.keywords[1234] = 1
    return errors(partial)


@case
def an_attribute_whose_name_is_no_string():
    class C:
        attr = 1

    c = C()
    c.__dict__[3] = 4
    return c.attr, len(vars(c))


@case
def keys_that_change_the_class_when_they_are_compared():
    class Evil:
        def __hash__(self):
            return hash("attr")

        def __eq__(self, other):
            if hasattr(C, "attr"):
                del C.attr
            return False

    class Descriptor:
        def __get__(self, instance, owner=None):
            return 1

    class C:
        attr = Descriptor()

    c = C()
    c.__dict__[Evil()] = 0
    return c.attr, hasattr(C, "attr")


@case
def slots_that_a_class_claims_to_have():
    class A:
        __slotnames__ = ["spam"]

        def __getattr__(self, name):
            if name == "spam":
                return 42
            raise AttributeError(name)

    class B:
        __slots__ = ("a", "b")

    b = B()
    b.a = 1
    return A().__reduce_ex__(2)[2], copy.copy(b).a, copy.copy(b).a


@case
def literals_of_many_items():
    many = 3000
    return (len([1, *(str(i) for i in range(many)), 5]), len((1, *(str(i) for i in range(many)), 5)),
            len({1, *(str(i) for i in range(many)), 5}), len({1: 2, **{str(i): i for i in range(many)}, 5: 6}))


@case
def the_class_is_assigned_while_it_is_made():
    class Meta(type):
        def __new__(meta, name, bases, space):
            meta.made = 0
            return super().__new__(meta, name, bases, space)

        def mro(cls):
            cls.made += 1
            return type.mro(cls)

    class G(metaclass=Meta):
        pass

    return G.made, [base.__name__ for base in G.__mro__]


def each_compiled(program):
    """The program with each function in it compiled where it is written."""
    names = {**globals(), "case": lambda function: function, "__framejit_compile__": framejit.compile,
             "__framejit_staticmethod__": staticmethod, "__framejit_classmethod__": classmethod}
    exec(decorated(inspect.getsource(program), __file__, "exec"), names)
    return names[program.__name__]


@pytest.mark.parametrize("compiled", [framejit.compile, each_compiled])
@pytest.mark.parametrize("program", CASES, ids=lambda program: program.__name__)
def test_the_same_compiled(program, compiled):
    expected = outcome(program)
    before = framejit.cache_info()["internal_errors"]
    compiled = compiled(program)
    assert [outcome(compiled) for _ in range(3)] == [expected] * 3
    assert framejit.cache_info()["internal_errors"] == before


def test_class_methods_of_c_through_super():
    class Counted(dict):
        @classmethod
        @framejit.compile
        def fromkeys(cls, keys):
            made = super().fromkeys(keys, 0)
            made.counted = True
            return made

    class Meta(type):
        @classmethod
        @framejit.compile
        def __prepare__(meta, name, bases):
            return super().__prepare__(name, bases)

    class Base(metaclass=Meta):
        names = []

        @classmethod
        @framejit.compile
        def __init_subclass__(cls):
            super().__init_subclass__()
            Base.names.append(cls.__name__)

    class Derived(Base):
        pass

    class Second(Derived):
        pass

    assert Base.names == ["Derived", "Second"]
    assert Counted.fromkeys("ab") == {"a": 0, "b": 0} and Counted.fromkeys("ab").counted


@pytest.mark.parametrize("kind", [list, tuple, dict])
def test_an_item_that_the_class_changes_when_it_is_asked(kind):
    class Shifted(kind):
        @framejit.compile
        def __getitem__(self, key):
            return kind.__getitem__(self, key) + 100

    items = Shifted({0: 1, 1: 2, 2: 5} if kind is dict else [1, 2, 5])
    assert [items[key] for key in (0, 1, 2, 0)] == [101, 102, 105, 101]


def test_methods_of_numbers_with_numbers_that_change():
    def compare(z, n):
        return complex.__eq__(z, n), complex.__ne__(z, n), float.__lt__(1.5, n), n.__add__(2), float.__eq__(1.5, "a")

    compiled = framejit.compile(compare)
    for n in range(6):
        assert compiled(complex(3), n) == compare(complex(3), n)


def test_annotations_stay_those_of_the_function_when_the_class_of_compiled_functions_is_asked():
    @typing.runtime_checkable
    class Named(typing.Protocol):
        def name(self): ...

    @framejit.compile
    def annotated(x: int) -> str:
        return str(x)

    class Thing:
        method = annotated

    assert not isinstance(annotated, Named) and not isinstance(Thing().method, Named)
    type.__getattribute__(type(annotated), "__annotations__")
    assert typing.get_type_hints(annotated) == {"x": int, "return": str}
    assert Thing().method.__annotations__ == {"x": int, "return": str}


def test_a_class_that_is_registered_later_is_dispatched_anew():
    class Abstract(abc.ABC):
        pass

    class Thing:
        pass

    @functools.singledispatch
    def kind(x):
        return "any"

    kind.register(Abstract, lambda x: "abstract")
    compiled = framejit.compile(lambda x: kind(x))
    assert compiled(Thing()) == "any"
    Abstract.register(Thing)
    assert compiled(Thing()) == "abstract"


def test_a_cache_of_singledispatch_that_can_be_looked_at(monkeypatch):
    cache = {}
    monkeypatch.setattr(weakref, "WeakKeyDictionary", lambda: cache)

    @functools.singledispatch
    def kind(x):
        return "any"

    assert framejit.compile(lambda: (len(cache), kind(1), len(cache)))() == (0, "any", 1)


def test_the_cause_of_an_exception_that_is_none():
    class Nothing(BaseException):
        def __new__(cls):
            made.append(cls)

    def chained():
        try:
            raise IndexError("a") from Nothing
        except (IndexError, TypeError) as error:
            return type(error), error.__cause__

    made = []
    expected = chained()
    assert framejit.compile(chained)() == expected and len(made) == 2


def test_the_line_of_a_frame_that_an_exception_has_left():
    class Nothing:
        def __enter__(self):
            return self

        def __exit__(self, *error):
            return False

    def in_finally():
        try:
            1 / 0
        finally:
            pass

    def in_with():
        with Nothing():
            1 / 0

    def in_except():
        try:
            try:
                1 / 0
            except TypeError:
                pass
        except ValueError:
            pass

    def lines(function):
        found = []
        with pytest.raises(ZeroDivisionError) as raised:
            function()
        traceback = raised.value.__traceback__.tb_next
        while traceback:
            found.append((traceback.tb_lineno, traceback.tb_frame.f_lineno, traceback.tb_frame.f_code.co_name))
            traceback = traceback.tb_next
        return found

    for function in (in_finally, in_with, in_except):
        assert lines(framejit.compile(function)) == lines(function)


def test_a_call_within_the_arguments_of_another_on_the_same_object():
    """Of `x.a(x.b(y))` CPython 3.13 has x.a, no self, x.b, no self on its stack: no self and x.b are no pair."""
    class Pair(decimal.Decimal):
        def __truediv__(self, other):
            return self.__class__(super().__truediv__(other))

        def sum(self, other):
            return self.compare(self.__add__(self.max(other)))

    for name in ("__truediv__", "sum"):
        function = vars(Pair)[name]
        compiled = framejit.compile(function)
        for _ in range(3):
            given = Pair(-15), Pair(16)
            found, expected = compiled(*given), function(*given)
            assert found == expected and type(found) is type(expected)
