"""Rules of builtin types and classes that a program meets rarely: the same result or the same error as eager, whatever is traced.

Most were found by running CPython's own tests compiled. Each function is compiled and called twice.
"""
import collections
import copy
import functools
import itertools
import operator
import re
import threading
import types
import unittest
import weakref

import numpy as np
import pytest

import framejit

T = unittest.TestCase()
X = np.ones(2)


class D:
    pass


def a_read_only_field_of_c_code(x):
    y = x + 1
    r = range(3)
    with T.assertRaises(AttributeError):
        r.start = 0
    with T.assertRaises(AttributeError):
        r.start = 0
    return 1


def operators_of_text_by_name(x):
    y = x + 1
    return "hello".__getitem__(slice(4)), "hello".__getitem__(1), [1,2].__getitem__(slice(1)), b"abc".__add__(b"d"), "a".__mul__(2), (1,2).__getitem__(0)


def super_of_something_else(x):
    y = x + 1
    return super(D, 42)


def a_method_of_another_class(x):
    y = x + 1
    return [].__class__.append({}, 1)


def an_operator_of_another_class(x):
    y = x + 1
    return list.__add__((1,), [2])


def operators_of_numbers_by_name(x):
    y = x + 1
    return complex(1).__eq__(1), (1+0j).__eq__(1.0), (1).__eq__(1.0), (1).__add__(1.0), "a".__add__("b"), (1).__lt__(2)


class N:
    def __new__(cls): return N2()


class N2:
    def __init__(self): self.foo = 1


def a_new_that_gives_another_object(x):
    y = x + 1
    return N().foo


def methods_are_equal_and_bound(x):
    y = x + 1
    class C:
        def foo(self): return 1
    c = C()
    m = c.foo
    class D(C): boo = C.foo; goo = C().foo
    d = D()
    return m == c.foo, C.foo, type(C.foo), d.foo, d.boo, d.goo().__class__, c.foo.__func__ is C.foo, D.boo is C.foo


def a_descriptor_that_only_sets(x):
    y = x + 1
    class Descr:
        def __init__(self, name): self.name = name
        def __set__(self, obj, value): obj.__dict__[self.name] = value
    d = Descr("a")
    class X: a = d
    x = X()
    r = x.a is d
    x.a = 42
    return r, x.a


def list_asks_how_long(x):
    y = x + 1
    seen = []
    class X:
        def __length_hint__(self): seen.append(1); return 3
        def __iter__(self): return iter((1,2))
    list(X())
    return seen


def equality_of_a_derived_float(x):
    y = x + 1
    class F(float):
        def __eq__(self, o): return True
    return F(1) == 2, F(1) != 2


def text_of_a_derived_str(x):
    y = x + 1
    class S(str):
        def __str__(self): return "over"
    return format(S("xxx")), f"{S('xxx')}", "%s" % S("xxx"), str(S("x")), "{}".format(S("y"))


def a_partial_is_set(x):
    y = x + 1
    p = functools.partial(int)
    try: p.__setstate__(((), {}, {1: 2}, {}))
    except Exception as e: return str(e)


def complex_of_objects(x):
    y = x + 1
    class C:
        def __complex__(self): return 2j
    class D(complex):
        def __complex__(self): return 2j
    return complex(C()), complex(D(1j))


def an_int_is_its_own_index(x):
    y = x + 1
    class M(int):
        def __index__(self): return 7
    return operator.index(M(8)), [0]*3


def ascii_of_a_list_in_itself(x):
    y = x + 1
    x=[]; x.append(x)
    return ascii(x), ascii(()), ascii({1:2}), ascii([1])


def indices_of_large_slices(x):
    y = x + 1
    return slice(None, None, -1).indices(3), slice(-2**70, 2**70, -2**100).indices(5)


def large_ranges(x):
    y = x + 1
    r = range(10); it = iter(r); 
    return list(range(2**70, 2**70+3)), len(range(2**40)), it.__reduce__()[2] if len(it.__reduce__())>2 else 0, range(3)[1], range(10**20)[5]


def copies_of_sets(x):
    y = x + 1
    return {1,2}.copy(), frozenset([1]).copy(), {(1,2)}.copy() is None, copy.copy({1}), set("abc") == {"a","b","c"}


def a_derived_set(x):
    y = x + 1
    class S(set): pass
    a = S("abc"); b = a.copy(); return type(b), type(copy.copy(a)), type(frozenset(a)), S("abcd") == set("abcd"), len(S("simsalabim"))


def a_set_is_filled_again(x):
    y = x + 1
    s = set("simsalabim"); s.__init__("abcd"); return sorted(s), s.__init__([1]), sorted(s)


def a_derived_frozenset(x):
    y = x + 1
    class F(frozenset): pass
    a = F("ab"); return a.copy() is a, type(a.copy())


def keys_are_not_hashed_again(x):
    y = x + 1
    class H(int):
        n = 0
        def __hash__(self): H.n += 1; return int.__hash__(self)
    d = dict.fromkeys(map(H, range(4))); n0 = H.n
    s = set(d); n1 = H.n; f = set(d).difference(d); n2 = H.n; dict.fromkeys(set(d)); return n0, n1, n2, H.n


def a_set_grows_while_it_is_iterated_over(x):
    y = x + 1
    s = {1,2,3}
    try:
        for i in s: s.update([4])
    except RuntimeError as e: return str(e)


def operators_of_views(x):
    y = x + 1
    return {1:2}.keys() & {1}, type({1:2}.keys() & {1}), type({1:2}.keys() - [1]), type({1:2}.keys() | frozenset()), type({1:2}.items() ^ set()), type(frozenset() | {1:2}.keys())


def copies_of_a_derived_ordered_dict(x):
    y = x + 1
    class OD(collections.OrderedDict): pass
    a = OD(x=1); return type(a.copy()), type(a | {}), type({} | a), type(copy.copy(a)), type(a), type(copy.deepcopy(a))


def a_method_of_dict_on_an_ordered_dict(x):
    y = x + 1
    o = collections.OrderedDict(a=1)
    dict.__delitem__(o, "a")
    r = []
    for f in (lambda: o.pop("a"), lambda: o.popitem(), lambda: o.__delitem__("a"), lambda: list(o)):
        try: r.append(f())
        except Exception as e: r.append((type(e).__name__, str(e)))
    return r


def a_derived_deque(x):
    y = x + 1
    class D(collections.deque): pass
    d = D(range(5)); d.__init__(range(3)); d.extend("ab"); 
    d2 = d + D([1]); d3 = d * 2
    return list(d), type(d2), type(d3), type(d.copy()), type(copy.copy(d)), D("abc", 2).maxlen


def a_deque_that_changes_before_its_iterator_starts(x):
    y = x + 1
    d = collections.deque(); it = iter(d); d.append(1)
    try: return next(it)
    except RuntimeError as e: return str(e)


def a_deque_into_itself(x):
    y = x + 1
    d = collections.deque([1,2]); d += d; d.extend(d); d.extendleft(d); return list(d), d == collections.deque(d), d < d


def places_in_a_deque(x):
    y = x + 1
    d = collections.deque(range(30)); d[5:7] if False else None
    d.rotate(-7); del d[3]; d.insert(200, 5); d.insert(-100, 6); return list(d), d.index(5), d.count(3)


def singledispatch_that_grows(x):
    y = x + 1
    @functools.singledispatch
    def g(a): return "base"
    @g.register(int)
    def _(a): return "int"
    class A: pass
    r = g(A()), g(1), g(True); g.register(A, lambda a: "A"); return r, g(A())


def partials(x):
    y = x + 1
    p = functools.partial(int, base=2)
    return p("101"), functools.partial(dict, a=1)(b=2), repr(p)


def cached_property_twice(x):
    y = x + 1
    class A:
        def f(self): return 1
        c = functools.cached_property(f)
        d = functools.cached_property(f)
    return A().c


def cached_property_without_a_name(x):
    y = x + 1
    def f(self): return 3
    cp = functools.cached_property(f)
    class F: pass
    F.cp = cp
    return F().cp


def wraps(x):
    y = x + 1
    def w(): 'doc'
    @functools.wraps(w)
    def g(): pass
    return g.__wrapped__ is w, g.__doc__, g.__name__


def a_pattern_of_missing_attributes(x):
    y = x + 1
    class P: x: int
    match P():
        case P(x=1, y=2): return 1
        case _: return 2


def match_args_that_are_no_names(x):
    y = x + 1
    class P: __match_args__ = (None,)
    try:
        match P():
            case P(1): return 1
    except TypeError as e: return str(e)


def the_same_attribute_twice_in_a_pattern(x):
    y = x + 1
    class P: 
        __match_args__ = ("a", "a"); a = 1
    try:
        match P():
            case P(1, 1): return 1
    except TypeError as e: return str(e)


def the_same_key_twice_in_a_pattern(x):
    y = x + 1
    class K: a = "x"; b = "x"
    try:
        match {"x": 1}:
            case {K.a: y, K.b: z}: return 1
    except ValueError as e: return str(e)


def int_that_is_of_a_derived_class(x):
    y = x + 1
    class I(int): pass
    class J:
        def __int__(self): return I(3)
    import warnings
    with warnings.catch_warnings(record=True) as w:
        warnings.simplefilter("always")
        r = int(J())
    return r, type(r), [str(x.message) for x in w]


def classes_of_derived_text(x):
    y = x + 1
    class S(str): pass
    class T:
        def __str__(self): return S("x")
    return type(str(T())), type(str(S("a"))), type("".join([S("a")])), type(S("a") + ""), type(S("a").upper())


def bytes_of_a_derived_str(x):
    y = x + 1
    class S(str):
        def __new__(cls, *a, **k):
            self = str.__new__(cls, *a); self.value = k.get("value"); return self
        def __bytes__(self): return self.value
    return bytes(S("abc", value=b"xyz"))


def a_proxy_of_a_derived_dict(x):
    y = x + 1
    class C(dict):
        def __getitem__(self, k): return "custom"
        def __missing__(self, k): return "missing"
    m = types.MappingProxyType(C(a=1)); return m["a"], m["zz"], "a" in m, m.get("a")


def a_proxy_of_a_dict_with_missing(x):
    y = x + 1
    class C(dict):
        def __missing__(self, k): return "missing"
    m = types.MappingProxyType(C(a=1)); return m["a"], m["zz"]


def a_derived_defaultdict(x):
    y = x + 1
    class sub(collections.defaultdict):
        def __init__(self): self.default_factory = self._factory
        def _factory(self): return []
    return repr(sub())[:30], sub()["x"]


def arguments_of_type(x):
    y = x + 1
    r = []
    for a in [(), ("A",), ("A", ()), ("A", (), {}, 1), (1, (), {}), ("A", 1, {})]:
        try: r.append(type(type(*a)).__name__)
        except TypeError as e: r.append(str(e))
    return r


def the_module_of_a_class(x):
    y = x + 1
    C = type("C", (), {}); C2 = type("D", (), {"a": 1}); return C.__module__, C.__qualname__, C2.a, C.__dict__.get("__module__")


def in_place_operators(x):
    y = x + 1
    class X:
        def __init__(self, v): self.v = v
        def __add__(self, o): return X(self.v + o)
        __radd__ = __add__
        def __iadd__(self, o): return X(("i", self.v))
    x = X(1); x += 1; return x.v, (1 + X(2)).v


def an_in_place_operator_that_refuses(x):
    y = x + 1
    class X:
        def __iadd__(self, o): return NotImplemented
    x = X()
    try: x += 1
    except TypeError as e: return str(e)


def arguments_nobody_takes(x):
    y = x + 1
    class C: pass
    r = []
    for f in (lambda: C(42), lambda: C(a=1), lambda: C.__new__(C, 42), lambda: object.__new__(C, 1), lambda: C().__init__(1), lambda: object.__init__(C(), 1)):
        try: r.append(str(type(f()).__name__))
        except TypeError as e: r.append(str(e))
    return r


def exception_groups_split(x):
    y = x + 1
    e = ExceptionGroup("a", [ValueError(1), TypeError(2)])
    return [str(x) for x in e.split(lambda x: isinstance(x, (ValueError, ExceptionGroup)) and x is not e)], e.subgroup(ValueError).exceptions


def reduce_by_protocol(x):
    y = x + 1
    class C: __slots__ = ("a",); 
    c = C(); c.a = 1
    class B: pass
    b = B(); b.x = 1
    r = []
    for o in (c, b):
        for p in (0, 1, 2):
            try: r.append(str(o.__reduce_ex__(p))[:60])
            except TypeError as e: r.append(str(e))
    return r


def getattr_of_missing_names(x):
    y = x + 1
    class E:
        def __getattr__(self, n): 
            if n.startswith("__"): raise AttributeError(n)
            return n
    e = E(); return e.foo, getattr(e, "bar"), hasattr(e, "__zz__"), getattr(e, "__yy__", 3)


def a_derived_module_that_watches(x):
    y = x + 1
    class M(type(collections)):
        def __getattribute__(self, n): log.append(("getattr", n)); return super().__getattribute__(n)
        def __setattr__(self, n, v): log.append(("setattr", n, v)); super().__setattr__(n, v)
        def __delattr__(self, n): log.append(("delattr", n)); super().__delattr__(n)
    log = []; a = M("a"); log.clear(); a.foo = 12; x = a.foo; del a.foo; return log


def setattr_that_is_setitem(x):
    y = x + 1
    class X(dict):
        __setattr__ = dict.__setitem__
    x = X(); x.y = 42; return x["y"], x


def a_weakref_of_a_local(x):
    y = x + 1
    class C: pass
    c = C(); r = weakref.ref(c); a = r() is c; del c; return a, r() is None


def property_set_and_deleted(x):
    y = x + 1
    class P:
        def __init__(s): s._x = 0
        def getx(s): return s._x
        def setx(s, v): s._x = v
        def delx(s): del s._x
        x = property(getx, setx, delx, doc="hi")
    p = P(); p.x = 5; r = p.x; del p.x
    return r, hasattr(p, "_x"), P.x.__doc__, P.x.fget is P.getx


def order_builtins(x):
    y = x + 1
    return sorted({3,1,2}), sorted("bca", reverse=True), list(reversed([1,2])), max([1,3,2], key=lambda v: -v), min("b","a"), sum([[1],[2]], []), list(zip([1,2],"ab")), list(enumerate("ab", 5))


def itertools_of_text(x):
    y = x + 1
    return list(itertools.chain("ab", [1])), list(itertools.islice(itertools.count(3), 4)), list(itertools.groupby("aab"))[0][0], list(itertools.accumulate([1,2,3])), list(itertools.product("ab", repeat=2))[-1], list(itertools.tee([1,2])[1])


def the_hash_a_class_gives(x):
    y = x + 1
    class A:
        def __init__(self, number): self.number = number
        def __hash__(self): return self.number
    return [hash(A(n)) for n in (0, -1, 2**61 - 1, 2**61, 2**63 - 1, 2**63, -2**63, 2**70)], hash((A(5740354900026072187),)) == hash((5740354900026072187,))


def methods_that_are_compiled(x):
    y = x + 1
    class A(int):
        @framejit.compile
        def __str__(self): return "text"
        @framejit.compile
        def __hash__(self): return 7
        @framejit.compile
        def __bool__(self): return True
        @framejit.compile
        def __eq__(self, other): return True
        @framejit.compile
        def __new__(cls, n): return int.__new__(cls, n + 1)
    a = A(-1)
    return str(a), f"{a}", hash(a), bool(a), a == 5, {a: 1} == {7: 1}, int(a)


def a_lock(x):
    y = x + 1
    lock = threading.RLock()
    with lock:
        return lock.acquire(), lock.release()


def a_bool_that_is_none(x):
    y = x + 1
    class A:
        def __bool__(self): return self
    class B:
        def __bool__(self): return 1
    result = []
    for made in (A(), B()):
        try:
            if made: result.append("true")
        except TypeError as error:
            result.append(str(error))
    return result


def lists_in_themselves(x):
    y = x + 1
    a, b = [], []
    a.append(b)
    b.append(a)
    try:
        return a == b
    except RecursionError:
        return "recursion"


def membership_of_an_iterator(x):
    y = x + 1
    a, b = iter([1, 2, 3]), (k for k in range(5))
    return 2 in a, list(a), 3 in b, list(b)


def a_list_grows_by_a_generator(x):
    y = x + 1
    items = [0]
    items += (len(items) for _ in range(3))
    items[1:1] = (len(items) for _ in range(2))
    try:
        items.extend(1 // (2 - k) for k in range(4))
    except ZeroDivisionError:
        items.append("end")
    return items


def arguments_of_new(x):
    y = x + 1
    class A:
        def __new__(cls, *arguments): return super().__new__(cls, *arguments)
    class B:
        def __init__(self, n): self.n = n
    result = [type(A()).__name__, B(3).n]
    for make in (lambda: A(1), lambda: object.__new__(int), lambda: int.__new__(B), lambda: object.__new__(B, 5).__class__.__name__):
        try:
            result.append(make())
        except TypeError as error:
            result.append(str(error))
    return result


PROGRAMS = [made for made in list(globals().values()) if isinstance(made, types.FunctionType) and made.__module__ == __name__]


def outcome(function):
    try:
        text = repr(function(X))
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
    return re.sub("compiled |0x[0-9a-f]+", "", text)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_rule(program):
    expected, compiled = outcome(program), framejit.compile(program)
    assert outcome(compiled) == expected
    assert outcome(compiled) == expected
    assert framejit.cache_info()["internal_errors"] == 0
