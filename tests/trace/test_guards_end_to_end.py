"""Every assumption a trace may make, broken between two calls.

Each test calls a compiled function until it has settled, changes exactly one thing, and calls again: without the guard
the old program would run and give the old answer.
"""
import builtins
import collections
import copy
import enum
import math

import numpy as np
import pytest

import framejit
from harness import Outcome, compare, needs_torch, torch

if torch is not None:
    from torch import nn
    from torch.nn import functional as F

    class TensorSubclass(torch.Tensor):
        pass
else:
    TensorSubclass = None


def array(*values, dtype="float64"):
    return np.array(values, dtype)


X = array(1, -2, 3, -4)


abs_of_python = abs


class Watched:
    """A compiled function that is compared with the function itself at every call."""

    def __init__(self, function):
        framejit.reset()
        self.function, self.compiled = function, framejit.compile(function)

    def __call__(self, *arguments, **keywords):
        # One deepcopy of both keeps aliasing between arguments, and gives each call arguments of its own.
        eager = Outcome(self.function, *copy.deepcopy((arguments, keywords)))
        ours = Outcome(self.compiled, *copy.deepcopy((arguments, keywords)))
        compare(ours, eager)
        return ours.result

    def settle(self, *arguments, **keywords):
        for _ in range(3):
            self(*arguments, **keywords)


def change_of_arguments(function, *argument_lists):
    watched = Watched(function)
    for arguments in argument_lists:
        watched.settle(*arguments)
    # Both ways: what was compiled for the later ones must not answer for the first.
    for arguments in reversed(argument_lists):
        watched(*arguments)
    assert framejit.cache_info()["internal_errors"] == 0


def number_kinds(x, k):
    return x * k, type(k).__name__, k


def sign_of_zero(x, k):
    return x + math.copysign(1.0, k), x * k


def by_kind(x, k):
    if k is None:
        return x + 1
    if isinstance(k, bool):
        return x - 1
    if isinstance(k, (int, float)):
        return x * 3
    if isinstance(k, str):
        return x * len(k)
    if isinstance(k, np.ndarray):
        return x + k
    return x


class Meta(enum.Enum):
    SUM, MEAN = "sum", "mean"


Point = collections.namedtuple("Point", "a b")
Other = collections.namedtuple("Other", "b a")


class Subclass(np.ndarray):
    def __add__(self, other):
        return np.asarray(self) * 100


def subclass(values):
    return np.asarray(values).view(Subclass)


def read_only(values):
    result = np.array(values)
    result.flags.writeable = False
    return result


def write_first(x):
    x[0] = 7
    return x.sum()


def alias_write(x, y):
    x += 1
    return y * 2


def is_same(x, y):
    return (x + 1) if x is y else (x - 1)


def is_first(xs, y):
    return y + 1 if xs[0] is y else y - 1


ARGUMENTS = {
    "dtype": (lambda x: x / 2, [(array(1, 2, dtype=d),) for d in ("float32", "float64", "int32", "int64", "bool", "float16", "uint8")]),
    "complex": (lambda x: x * 2, [(array(1, 2),), (array(1, 2j, dtype="complex128"),)]),
    "byte_order": (lambda x: x * 2, [(array(1, 2),), (array(1, 2).astype(">f8"),)]),
    "object_dtype": (lambda x: x * 2, [(array(1, 2),), (np.array([1, 2], object),)]),
    "size": (lambda x: x[:-1] + x[1:], [(np.arange(n, dtype=float),) for n in (4, 5, 1, 2, 3, 0, 100)]),
    "rank": (lambda x: x.sum(axis=-1), [(np.ones(4),), (np.ones((4, 4)),), (np.ones((2, 4, 1)),)]),
    "size_one": (lambda x, y: x + y, [(np.ones((3, 4)), np.ones((3, 4))), (np.ones((3, 4)), np.ones((1, 4))), (np.ones((3, 1)), np.ones((3, 4))),
                                      (np.ones((1, 4)), np.ones((3, 1))), (np.ones((1, 1)), np.ones((1, 1)))]),
    "strides": (lambda x: (x * 2, x.ravel(), x.T), [(np.arange(12.0).reshape(3, 4),), (np.arange(12.0).reshape(4, 3).T,),
                                                     (np.arange(24.0).reshape(3, 8)[:, ::2],), (np.arange(12.0).reshape(3, 4)[::-1],)]),
    "broadcast_strides": (lambda x: x + 1, [(np.ones((3, 4)),), (np.broadcast_to(np.ones(4), (3, 4)),)]),
    "unaligned": (lambda x: x + 1, [(np.arange(3.0),), (np.frombuffer(b"\0" + np.arange(3.0).tobytes(), np.uint8)[1:].view(np.float64),)]),
    "read_only_read": (lambda x: x + 1, [(np.arange(3.0),), (read_only([1.0, 2, 3]),)]),
    "read_only_written": (write_first, [(np.arange(3.0),), (read_only([1.0, 2, 3]),)]),
    "read_only_view": (lambda x: (x[1:], x.sum()), [(np.arange(3.0),), (read_only([1.0, 2, 3]),)]),
    "subclass": (lambda x: x + 1, [(np.arange(3.0),), (subclass([1.0, 2, 3]),)]),
    "matrix": (lambda x: x * x, [(np.ones((2, 2)),), (np.matrix([[1.0, 2], [3, 4]]),)]),
    "masked": (lambda x: x + 1, [(np.ones(2),), (np.ma.array([1.0, 2], mask=[0, 1]),)]),
    "numpy_scalar": (lambda x, k: x * k, [(np.ones(2, "float32"), 2.5), (np.ones(2, "float32"), np.float64(2.5)),
                                          (np.ones(2, "float32"), np.float32(2.5)), (np.ones(2, "float32"), np.array(2.5))]),
    "int_bool_float": (number_kinds, [(X, 1), (X, True), (X, 1.0), (X, 0), (X, False), (X, 0.0), (X, -0.0), (X, 1 + 0j)]),
    "int_bool_float_of_ints": (number_kinds, [(X.astype(int), 1), (X.astype(int), True), (X.astype(int), 1.0)]),
    "bool_first": (number_kinds, [(X, True), (X, 1), (X, 1.0)]),
    "float_first": (number_kinds, [(X, 1.0), (X, 1), (X, True)]),
    "negative_zero": (sign_of_zero, [(X, 0.0), (X, -0.0)]),
    "nan": (lambda x, k: x + 1 if k != k else x - 1, [(X, 1.0), (X, math.nan), (X, math.inf), (X, -math.nan)]),
    "nan_branches": (lambda x, k: x + 1 if k < 2 else x - 1, [(X, math.nan), (X, 1.0), (X, 5.0)]),
    "big_ints": (lambda x, k: x + float(k % 7), [(X, 3), (X, 2**31), (X, 2**63 - 1), (X, 2**63), (X, 2**64 + 3), (X, -(2**63)), (X, 10**40)]),
    "big_int_operand": (lambda x, k: x.astype(np.int64) + k, [(X, 3), (X, 4), (X, 5), (X, 2**31), (X, 2**62), (X, 2**64)]),
    "int_products": (lambda x, k: x + (k * k * k) % 1000003, [(X, 3), (X, 4), (X, 2**21), (X, 2**30), (X, -(2**30))]),
    "int_division": (lambda x, k: x + k // 3 + k % 3, [(X, 7), (X, 8), (X, -7), (X, -8), (X, 0)]),
    "int_divisor": (lambda x, k: x + 17 // k, [(X, 3), (X, 4), (X, -3), (X, 0), (X, 20)]),
    "int_shift": (lambda x, k: x + (1 << k), [(X, 3), (X, 4), (X, 40), (X, -1)]),
    "int_power": (lambda x, k: x + 2**k, [(X, 3), (X, 4), (X, -1), (X, 60)]),
    "int_exponent": (lambda x, k: x**k, [(X, 2), (X, 3), (X, 1), (X, 0), (X, -1), (X, 2.0), (X, 0.5)]),
    "int_index": (lambda x, k: x[k] + x, [(X, 0), (X, 1), (X, 3), (X, -1), (X, -4), (X, 4), (X, -5)]),
    "int_slice": (lambda x, k: x[k:] * 2, [(X, 0), (X, 1), (X, 2), (X, 5), (X, -1), (X, -9), (X, None)]),
    "int_slice_written": (lambda x, k: (x.__setitem__(slice(k), 9), x.sum()), [(X, 0), (X, 1), (X, 2), (X, 5), (X, -1)]),
    "int_step": (lambda x, k: x[::k] * 2, [(X, 1), (X, 2), (X, 3), (X, -1), (X, -2), (X, 0)]),
    "int_reshape": (lambda x, k: x.reshape(k, -1) * 2, [(X, 1), (X, 2), (X, 4), (X, 3), (X, -1), (X, 0)]),
    "int_axis": (lambda x, k: x.sum(axis=k), [(np.ones((2, 3)), 0), (np.ones((2, 3)), 1), (np.ones((2, 3)), -1), (np.ones((2, 3)), None), (np.ones((2, 3)), 2)]),
    "int_repeat": (lambda x, k: [x * i for i in range(k)], [(X, 0), (X, 1), (X, 3), (X, 2)]),
    "int_comparison": (lambda x, k: x + 1 if k > 3 else x - 1, [(X, 3), (X, 4), (X, 5), (X, 2), (X, -100)]),
    "int_truth": (lambda x, k: x + 1 if k else x - 1, [(X, 3), (X, 4), (X, 5), (X, 0)]),
    "int_identity": (lambda x, k: x + 1 if k is True else x - 1, [(X, True), (X, 1), (X, False)]),
    "int_format": (lambda x, k: (x + 1, f"{k:03d}", str(k)), [(X, 3), (X, 4), (X, 5)]),
    "float_format": (lambda x, k: (x + 1, f"{k}"), [(X, 3.0), (X, 4.0), (X, -0.0), (X, 0.0)]),
    "str": (lambda x, k: x + 1 if k == "a" else x - len(k), [(X, "a"), (X, "b"), (X, "bb"), (X, "")]),
    "str_axis": (lambda x, k: getattr(x, k)(), [(X, "sum"), (X, "mean"), (X, "max")]),
    "str_is_bytes": (lambda x, k: x + 1 if k == "a" else x - 1, [(X, "a"), (X, b"a")]),
    "dtype_argument": (lambda x, d: x.astype(d) / 3, [(X, "float32"), (X, "float64"), (X, np.float32), (X, np.dtype("int32")), (X, int)]),
    "none_and_array": (by_kind, [(X, None), (X, X), (X, 1), (X, True), (X, 1.0), (X, "abc"), (X, "ab"), (X, ())]),
    "tuple_length": (lambda x, t: sum(t, x), [(X, (1, 2)), (X, (1, 2, 3)), (X, ()), (X, (1,))]),
    "tuple_items": (lambda x, t: x * t[0] + t[1], [(X, (1, 2)), (X, (2, 2)), (X, (1.0, 2)), (X, (True, 2)), (X, (X, 2))]),
    "tuple_kind": (lambda x, t: (x + t[0], type(t).__name__), [(X, (1, 2)), (X, [1, 2]), (X, Point(1, 2)), (X, Other(1, 2)), (X, {0: 1})]),
    "namedtuple_field": (lambda x, t: x + t.a, [(X, Point(1, 2)), (X, Other(1, 2))]),
    "nested_tuple": (lambda x, t: x + t[0][1][0], [(X, ((0, (1,)),)), (X, ((0, (2,)),))]),
    "tuple_compared": (lambda x, t: x + 1 if t == (1, 2) else x - 1, [(X, (1, 2)), (X, (1, 3)), (X, (1.0, 2.0)), (X, (True, 2))]),
    "list_length": (lambda x, t: sum(t, x), [(X, [1, 2]), (X, [1, 2, 3]), (X, [])]),
    "list_items": (lambda x, t: x * t[0], [(X, [1, 2]), (X, [2, 1]), (X, [X]), (X, [1.0, 2])]),
    "list_last": (lambda x, t: x * t[-1], [(X, [1, 2]), (X, [1, 2, 3]), (X, [2])]),
    "list_contains": (lambda x, t: x + 1 if 2 in t else x - 1, [(X, [1, 2]), (X, [1, 3]), (X, [2.0]), (X, [])]),
    "list_appended": (lambda x, t: (t.append(x.sum()), x * len(t)), [(X, []), (X, [1]), (X, [1, 2])]),
    "dict_values": (lambda x, d: x * d["a"], [(X, {"a": 1}), (X, {"a": 2}), (X, {"a": 1.0}), (X, {"a": X}), (X, {"b": 1})]),
    "dict_missing": (lambda x, d: x * d.get("b", 5), [(X, {"a": 1}), (X, {"a": 1, "b": 2}), (X, {})]),
    "dict_order": (lambda x, d: [x * v for v in d.values()], [(X, {"a": 1, "b": 2}), (X, {"b": 2, "a": 1}), (X, {"a": 1})]),
    "dict_length": (lambda x, d: x * len(d), [(X, {"a": 1}), (X, {"a": 1, "b": 2}), (X, {})]),
    "dict_contains": (lambda x, d: x + 1 if "a" in d else x - 1, [(X, {"a": 1}), (X, {"b": 1}), (X, {})]),
    "dict_of_numbers": (lambda x, d: x * d[1], [(X, {1: 2}), (X, {1: 3}), (X, {True: 4}), (X, {1.0: 5})]),
    "defaultdict": (lambda x, d: x * d["a"], [(X, {"a": 3}), (X, collections.defaultdict(lambda: 4))]),
    "ordered_dict": (lambda x, d: [x * v for v in d.values()], [(X, collections.OrderedDict(a=1, b=2)), (X, collections.OrderedDict(b=1, a=2))]),
    "dict_keywords": (lambda x, **d: [x * v for v in d.values()], [(X,)]),
    "set_contains": (lambda x, s: x + 1 if 1 in s else x - 1, [(X, {1, 2}), (X, {2}), (X, frozenset((1,)))]),
    "slice_argument": (lambda x, s: x[s] * 2, [(X, slice(1, 3)), (X, slice(0, 3)), (X, slice(None, None, 2)), (X, 1), (X, Ellipsis), (X, None)]),
    "index_array": (lambda x, i: x[i] * 2, [(X, np.array([0, 1])), (X, np.array([1, 1, 2])), (X, np.array([True, False, True, True])), (X, [0, 2]), (X, np.array([9]))]),
    "range_argument": (lambda x, r: [x * i for i in r], [(X, range(2)), (X, range(3)), (X, range(3, 0, -1))]),
    "enum": (lambda x, m: x.sum() if m is Meta.SUM else x.mean(), [(X, Meta.SUM), (X, Meta.MEAN)]),
    "function": (lambda x, f: f(x), [(X, np.sin), (X, np.cos), (X, abs), (X, lambda x: x + 1), (X, lambda x: x + 2), (X, len)]),
    "class": (lambda x, c: x + 1 if c is int else x - 1, [(X, int), (X, float)]),
    "type_argument": (lambda x, c: x + 1 if isinstance(x, c) else x - 1, [(X, np.ndarray), (X, int), (X, (int, np.ndarray))]),
    "array_given_twice": (alias_write, [(X, X + 1), (lambda a: (a, a))(X + 0)]),
    "array_given_twice_read": (lambda x, y: (x + y, x, y), [(X, X + 1), (lambda a: (a, a))(X + 0)]),
    "views_of_one_array": (alias_write, [(X, X + 1), (lambda a: (a[1:], a[:-1]))(np.arange(4.0)), (lambda a: (a[2:], a[:2]))(np.arange(4.0)),
                                        (lambda a: (a, a[::-1]))(np.arange(4.0))]),
    "interleaved_views": (alias_write, [(X, X + 1), (lambda a: (a[::2], a[1::2]))(np.arange(8.0)), (lambda a: (a[::2], a[::2]))(np.arange(8.0))]),
    "identity": (is_same, [(X, X + 1), (lambda a: (a, a))(X + 0), (X, X + 1)]),
    "identity_in_a_list": (is_first, [([X], X + 1), (lambda a: ([a], a))(X + 0)]),
    "list_given_twice": (lambda a, b: (a.append(X * 2), len(b), X + len(b)), [([], []), (lambda a: (a, a))([])]),
    "dict_given_twice": (lambda a, b: (a.__setitem__("k", X * 2), X + len(b)), [({}, {}), (lambda a: (a, a))({})]),
    "writes_through_overlapping_array": (lambda x: x.__iadd__(1).sum(), [(np.arange(4.0),),
                                         (np.lib.stride_tricks.as_strided(np.arange(4.0), (3, 2), (8, 8)),)]),
    "out_argument": (lambda x, out: np.add(x, 1, out=out), [(X, np.empty(4)), (X, np.empty(4, "complex128")), (X, np.empty((2, 4))), (X, None), (X, np.empty(4, int))]),
    "keywords": (lambda x, a=1, *, b=2: x * a + b, [(X,), (X, 2), (X, 2.0), (X, X)]),
    "varargs": (lambda x, *rest: sum(rest, x), [(X,), (X, 1), (X, 1, 2), (X, X), (X, 1.0)]),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_change_of_an_argument_is_seen(name):
    function, argument_lists = ARGUMENTS[name]
    change_of_arguments(function, *argument_lists)


@pytest.mark.parametrize("name", ARGUMENTS)
def test_change_of_an_argument_is_seen_in_the_other_order(name):
    function, argument_lists = ARGUMENTS[name]
    change_of_arguments(function, *reversed(argument_lists))


# ---- state outside the arguments: (source of a module, statements run one after another between calls of f)

STATE = {
    "global_number": ("k = 2\ndef f(x): return x * k", ["k = 3", "k = 3.0", "k = True", "k = x0", "del k", "k = 2"]),
    "global_array": ("k = np.arange(4.0)\ndef f(x): return x * k", ["k = np.arange(4.0) + 1", "k += 1", "k = k.astype('float32')", "k = k.reshape(2, 2)[:1, :1]", "k = 5"]),
    "global_list": ("k = [1, 2]\ndef f(x): return [x * i for i in k]", ["k.append(3)", "k[0] = 9", "k.reverse()", "k.clear()", "k = (4,)"]),
    "global_dict": ("k = {'a': 1}\ndef f(x): return x * k['a'] + len(k)", ["k['a'] = 2", "k['b'] = 2", "del k['a']", "k = {'a': 7}"]),
    "global_nested": ("k = {'a': [1, {'b': 2}]}\ndef f(x): return x * k['a'][1]['b']", ["k['a'][1]['b'] = 3", "k['a'][1] = {'b': 4}", "k['a'] = [0, {'b': 5}]"]),
    "global_function": ("def g(x): return x + 1\ndef f(x): return g(x)", ["def g(x): return x + 2", "g = np.sin", "g = 3"]),
    "code_of_global_function": ("def g(x): return x + 1\ndef h(x): return x + 2\ndef f(x): return g(x)", ["g.__code__ = h.__code__"]),
    "defaults_of_global_function": ("def g(x, k=1): return x + k\ndef f(x): return g(x)", ["g.__defaults__ = (5,)", "g.__defaults__ = (x0,)", "g.__defaults__ = None"]),
    "keyword_defaults_of_global_function": ("def g(x, *, k=1): return x + k\ndef f(x): return g(x)", ["g.__kwdefaults__ = {'k': 5}", "g.__kwdefaults__['k'] = 6", "g.__kwdefaults__ = None"]),
    "mutable_default": ("def f(x, seen=[]):\n    seen.append(1)\n    return x * len(seen)", ["f.__defaults__[0].clear()"]),
    "own_defaults": ("def f(x, k=1): return x + k", ["f.__defaults__ = (5,)", "f.__defaults__ = (5.0,)", "f.__defaults__ = (x0,)"]),
    "own_code": ("def f(x): return x + 1\ndef h(x): return x + 2", ["f.__code__ = h.__code__"]),
    "function_attribute": ("def f(x): return x + f.k\nf.k = 1", ["f.k = 2", "f.k = 2.0", "del f.k"]),
    "builtin_shadowed": ("def f(x): return x * len(x)", ["def len(x): return 100", "del len"]),
    "builtin_replaced": ("import builtins\nold = builtins.abs\ndef f(x): return abs(x)", ["# for the process\nbuiltins.abs = lambda x: x + 5", "builtins.abs = old"]),
    "closure": ("def make():\n    k = 1\n    def f(x): return x + k\n    def put(v):\n        nonlocal k\n        k = v\n    return f, put\nf, put = make()",
                ["put(2)", "put(2.0)", "put(x0)", "put('a')"]),
    "closure_of_a_callee": ("def make():\n    k = 1\n    def g(x): return x + k\n    def put(v):\n        nonlocal k\n        k = v\n    return g, put\ng, put = make()\ndef f(x): return g(x)",
                            ["put(2)", "put(2.0)", "put(x0)"]),
    "closure_counter": ("def make():\n    k = 0\n    def f(x):\n        nonlocal k\n        k += 1\n        return x + k\n    return f\nf = make()", ["pass", "pass"]),
    "global_counter": ("k = 0\ndef f(x):\n    global k\n    k += 1\n    return x + k", ["k = 10", "k = 0.5"]),
    "instance_attribute": ("class A: pass\na = A(); a.k = 1\ndef f(x): return x + a.k", ["a.k = 2", "a.k = 2.0", "a.k = x0", "del a.k", "A.k = 7", "a.k = 8"]),
    "instance_dict_replaced": ("class A: pass\na = A(); a.k = 1\ndef f(x): return x + a.k", ["a.__dict__ = {'k': 5}", "a.__dict__['k'] = 6", "a.__dict__.clear()"]),
    "instance_class": ("class A:\n    def m(self, x): return x + 1\nclass B:\n    def m(self, x): return x + 2\na = A()\ndef f(x): return a.m(x)", ["a.__class__ = B", "a.__class__ = A", "a = B()"]),
    "instance_method": ("class A:\n    def m(self, x): return x + 1\na = A()\ndef f(x): return a.m(x)", ["a.m = lambda x: x + 2", "del a.m", "A.m = lambda self, x: x + 3"]),
    "class_attribute": ("class A: k = 1\na = A()\ndef f(x): return x + a.k + A.k", ["A.k = 2", "A.k = 2.0", "A.k = x0", "a.k = 5", "del A.k"]),
    "base_class_attribute": ("class B: k = 1\nclass A(B): pass\na = A()\ndef f(x): return x + a.k", ["B.k = 2", "A.k = 3", "del A.k", "A.__bases__ = (type('C', (), {'k': 9}),)"]),
    "property": ("class A:\n    @property\n    def k(self): return self.v\na = A(); a.v = 1\ndef f(x): return x + a.k", ["a.v = 2", "A.k = property(lambda self: 5)", "A.k = 6"]),
    "descriptor": ("class D:\n    def __get__(self, o, t): return self.v\nclass A: k = D()\nA.__dict__['k'].v = 1\na = A()\ndef f(x): return x + a.k",
                   ["A.__dict__['k'].v = 2", "a.__dict__['k'] = 3", "D.__set__ = lambda *a: None", "D.__get__ = lambda *a: 8"]),
    "slots": ("class A: __slots__ = ('k',)\na = A(); a.k = 1\ndef f(x): return x + a.k", ["a.k = 2", "a.k = x0", "del a.k"]),
    "getattr": ("class A:\n    v = 1\n    def __getattr__(self, name): return self.v\na = A()\ndef f(x): return x + a.k", ["a.v = 2", "a.k = 3", "del a.k", "A.__getattr__ = lambda s, n: 9", "A.k = 11"]),
    "getattribute": ("class A: k = 1\na = A()\ndef f(x): return x + a.k", ["A.__getattribute__ = lambda s, n: 9", "del A.__getattribute__"]),
    "static_and_class_method": ("class A:\n    @staticmethod\n    def s(x): return x + 1\n    @classmethod\n    def c(cls, x): return x * cls.k\n    k = 2\ndef f(x): return A.s(x), A.c(x), A().s(x)",
                                ["A.s = staticmethod(lambda x: x + 5)", "A.k = 3", "A.c = classmethod(lambda cls, x: x - 1)"]),
    "operator_method": ("class A:\n    def __add__(self, x): return x + 1\na = A()\ndef f(x): return a + x.sum()", ["A.__add__ = lambda s, x: x + 2", "del A.__add__"]),
    "call_method": ("class A:\n    def __call__(self, x): return x + 1\na = A()\ndef f(x): return a(x)", ["A.__call__ = lambda s, x: x + 2", "a.__call__ = lambda x: x + 3", "del A.__call__"]),
    "truth_method": ("class A: pass\na = A()\ndef f(x): return x + 1 if a else x - 1", ["A.__bool__ = lambda s: False", "A.__len__ = lambda s: 1", "del A.__bool__", "A.__len__ = lambda s: 0"]),
    "equality_method": ("class A: pass\na, b = A(), A()\ndef f(x): return x + 1 if a == b else x - 1", ["A.__eq__ = lambda s, o: True", "b = a", "del A.__eq__"]),
    "isinstance_target": ("class A: pass\nclass B(A): pass\na = B()\ndef f(x): return x + 1 if isinstance(a, A) else x - 1",
                          ["a = 3", "a = B()", "B.__bases__ = (type('C', (), {}),)", "A = B", "A = (int, float)"]),
    "abstract_class": ("import collections.abc\nclass A: pass\na = A()\ndef f(x): return x + 1 if isinstance(a, collections.abc.Sized) else x - 1",
                       ["collections.abc.Sized.register(A)"]),
    "unused_attribute": ("class A: pass\na = A(); a.k = 1\ndef f(x):\n    a.k\n    return x + 1", ["a.k = 2", "del a.k"]),
    "unused_item": ("a = {'k': 1}\ndef f(x):\n    a['k']\n    return x + 1", ["a['k'] = 2", "del a['k']"]),
    "unused_global": ("k = 1\ndef f(x):\n    k\n    return x + 1", ["k = 2", "del k"]),
    "module_hasattr": ("import types\nm = types.ModuleType('m'); m.k = 1\ndef f(x): return x + 1 if hasattr(m, 'k') else x - 1", ["del m.k", "m.k = 2", "del m.k"]),
    "isinstance_hook": ("class M(type):\n    k = True\n    def __instancecheck__(cls, o): return cls.k\nclass A(metaclass=M): pass\ndef f(x): return x + 1 if isinstance(x, A) else x - 1", ["M.k = False", "A.k = 1"]),
    "hasattr": ("class A: pass\na = A()\ndef f(x): return x + 1 if hasattr(a, 'k') else x - 1", ["a.k = 1", "del a.k", "A.k = 1"]),
    "getattr_default": ("class A: pass\na = A()\ndef f(x): return x + getattr(a, 'k', 5)", ["a.k = 1", "del a.k", "A.k = 2"]),
    "super_method": ("class B:\n    def m(self, x): return x + 1\nclass A(B):\n    def m(self, x): return super().m(x) * 2\na = A()\ndef f(x): return a.m(x)",
                     ["B.m = lambda s, x: x + 5", "A.__bases__ = (type('C', (), {'m': lambda s, x: x - 1}),)"]),
    "module_attribute": ("import types\nm = types.ModuleType('m'); m.k = 1\ndef f(x): return x + m.k", ["m.k = 2", "m.k = x0", "del m.k", "m.__getattr__ = lambda n: 6"]),
    "module_function": ("import types\nm = types.ModuleType('m'); m.g = lambda x: x + 1\ndef f(x): return m.g(x)", ["m.g = lambda x: x + 2", "m.g = np.cos", "m = types.SimpleNamespace(g=np.sin)"]),
    "numpy_function_replaced": ("old = np.tanh\ndef f(x): return np.tanh(x)", ["# for the process\nnp.tanh = lambda x: x + 5", "np.tanh = np.sin", "np.tanh = old"]),
    "alias_of_numpy": ("from numpy import tanh\ndef f(x): return tanh(x)", ["tanh = np.sin", "tanh = lambda x: x"]),
    "module_replaced": ("import types\ndef f(x): return np.add(x, 1)", ["real = np; np = types.SimpleNamespace(add=lambda x, y: x - y)", "np = real"]),
    "numpy_function_argument": ("op = np.add\ndef f(x): return op(x, 2)", ["op = np.subtract", "op = np.maximum", "op = max"]),
    "errstate": ("def f(x): return np.log(x - 1)", ["np.seterr(all='ignore')", "np.seterr(all='raise')", "np.seterr(all='warn')"]),
    "errstate_inside": ("def f(x):\n    with np.errstate(all=mode):\n        return np.log(x - 1)\nmode = 'warn'", ["mode = 'ignore'", "mode = 'raise'"]),
    "partial": ("import functools\ndef g(a, x): return x * a\np = functools.partial(g, 2)\ndef f(x): return p(x)", ["p = functools.partial(g, 3)", "p = functools.partial(g, x0)", "p.__setstate__((g, (4,), {}, {}))"]),
    "bound_method_global": ("class A:\n    def m(self, x): return x + self.k\na = A(); a.k = 1\nm = a.m\ndef f(x): return m(x)", ["a.k = 2", "b = A(); b.k = 7; m = b.m"]),
    "dataclass": ("import dataclasses\n@dataclasses.dataclass\nclass A:\n    k: float = 1\na = A()\ndef f(x): return x + a.k, A(2).k", ["a.k = 2", "a = A(5)", "A.__init__ = lambda s, k: setattr(s, 'k', k * 2)"]),
    "new_method": ("class A:\n    def __init__(self, k): self.k = k\ndef f(x): return x + A(2).k", ["A.__init__ = lambda s, k: setattr(s, 'k', 9)", "def new(cls, k):\n    o = object.__new__(cls)\n    return o\nA.__new__ = new"]),
    "iteration_method": ("class A:\n    def __iter__(self): return iter([1, 2])\na = A()\ndef f(x): return [x * i for i in a]", ["A.__iter__ = lambda s: iter([3])"]),
    "length_method": ("class A:\n    def __len__(self): return 2\na = A()\ndef f(x): return x * len(a)", ["A.__len__ = lambda s: 5"]),
    "item_method": ("class A:\n    def __getitem__(self, i): return i + 1\na = A()\ndef f(x): return x * a[1]", ["A.__getitem__ = lambda s, i: 10"]),
    "deque": ("import collections\nk = collections.deque([1, 2])\ndef f(x): return x * k[0] + len(k)", ["k.append(1)", "k.appendleft(9)"]),
    "object_written": ("class A: pass\na = A(); a.n = 0\ndef f(x):\n    a.n += 1\n    a.last = x * a.n\n    return a.last", ["a.n = 5", "a.n = 0.5"]),
    "written_instance_becomes_slotted": ("class A: pass\nclass B:\n    def __setattr__(self, k, v): object.__setattr__(self, k, 99)\na = A(); a.n = 0\ndef f(x):\n    a.n = 1\n    return x + a.n", ["a = B()", "A.__setattr__ = B.__setattr__"]),
    "context_manager": ("class A:\n    k = 1\n    def __enter__(self): return self.k\n    def __exit__(self, *e): return True\na = A()\ndef f(x):\n    with a as k:\n        return x + k", ["A.k = 2", "A.__enter__ = lambda s: 9"]),
    "doc_and_name": ("def f(x): return x + len(f.__name__)", ["f.__name__ = 'longer'"]),
    "global_from_exec": ("def f(x): return x + k", ["k = 1", "k = 2", "globals().pop('k')"]),
}


def check_state(source, changes, call):
    """Runs the module twice: one copy stays as it is written, f of the other is compiled; both see the same changes."""
    framejit.reset()
    spaces = []
    for _ in range(2):
        space = {"np": np, "torch": torch, "Subclass": TensorSubclass, "__name__": "state", "x0": array(5, 6, 7, 8)}
        if torch is not None:
            space.update(nn=nn, F=F)
            torch.manual_seed(0)
        exec(compile(source, "<state>", "exec"), space)
        spaces.append(space)
    eager, ours = spaces
    ours["compiled"] = framejit.compile(ours["f"])
    old = np.geterr()

    def both():
        # The outcome of each before the other sees anything.
        a = Outcome(eager["f"], (call(),), {})
        b = Outcome(ours["compiled"], (call(),), {})
        compare(b, a)

    try:
        for change in ["pass", *changes]:
            for space in spaces[:1] if change.startswith("# for the process") else spaces:
                exec(change, space)
            for _ in range(3):
                both()
    finally:
        np.seterr(**old)
    assert framejit.cache_info()["internal_errors"] == 0


@pytest.mark.parametrize("name", STATE)
def test_change_of_state_is_seen(name):
    source, changes = STATE[name]
    saved = {k: getattr(np, k) for k in ("tanh", "sin", "add")}
    try:
        check_state(source, changes, X.copy)
    finally:
        builtins.abs = abs_of_python
        for key, value in saved.items():
            setattr(np, key, value)


# ---- torch

TORCH_STATE = {
    "requires_grad_of_parameter": ("w = torch.ones(4)\ndef f(x): return x * w", ["w.requires_grad_()", "w = w.detach()"]),
    "grad_mode": ("w = torch.ones(4, requires_grad=True)\ndef f(x): return x * w", ["# for the process\ntorch.set_grad_enabled(False)", "# for the process\ntorch.set_grad_enabled(True)"]),
    "default_dtype": ("def f(x): return torch.zeros(4) + x.sum()", ["# for the process\ntorch.set_default_dtype(torch.float64)", "# for the process\ntorch.set_default_dtype(torch.float32)"]),
    "function_replaced": ("old = torch.relu\ndef f(x): return torch.relu(x)", ["# for the process\ntorch.relu = lambda x: x + 5", "torch.relu = old"]),
    "functional_replaced": ("old = F.relu\ndef f(x): return F.relu(x)", ["# for the process\nF.relu = lambda x: x + 5", "F.relu = old"]),
    "method_replaced": ("old = torch.Tensor.relu\ndef f(x): return x.relu()", ["# for the process\ntorch.Tensor.relu = lambda x: x + 5", "# for the process\ndel torch.Tensor.relu"]),
    "operator_replaced": ("def f(x): return x + 1", ["# for the process\ntorch.Tensor.__add__ = lambda x, y: x - y", "# for the process\ndel torch.Tensor.__add__"]),
    "parameter_half": ("m = nn.Linear(4, 3)\ndef f(x):\n    with torch.no_grad(): return m(x.to(m.weight.dtype))", ["m.half()", "m.double()", "m.float()"]),
    "parameter_data": ("m = nn.Linear(4, 3)\ndef f(x):\n    with torch.no_grad(): return m(x)", ["m.weight.data = torch.ones(3, 4)", "m.weight.data = torch.ones(2, 4); m.bias.data = torch.ones(2)", "m.weight.data.mul_(3)"]),
    "parameter_replaced": ("m = nn.Linear(4, 3)\ndef f(x):\n    with torch.no_grad(): return m(x)", ["m.weight = nn.Parameter(torch.ones(3, 4))", "m.bias = None", "m.weight = nn.Parameter(torch.ones(5, 4))", "del m.weight; m.weight = torch.ones(3, 4)"]),
    "parameter_set": ("m = nn.Linear(4, 3)\ndef f(x):\n    with torch.no_grad(): return m(x)", ["m.weight.data.set_(torch.ones(4, 3).T)", "m.load_state_dict({'weight': torch.ones(3, 4) * 2, 'bias': torch.zeros(3)})"]),
    "train_and_eval": ("m = nn.BatchNorm1d(4)\ndef f(x):\n    with torch.no_grad(): return m(x.expand(3, 4) + torch.arange(3.0)[:, None])", ["m.eval()", "m.train()", "m.eval()", "m.track_running_stats = False"]),
    "dropout_mode": ("m = nn.Dropout(0.0).eval()\ndef f(x): return m(x)", ["m.train()", "m.p = 1.0", "m.eval()"]),
    "buffer": ("m = nn.Module(); m.register_buffer('b', torch.ones(4))\ndef f(x): return x + m.b", ["m.b = torch.zeros(4)", "m.b += 1", "m.b = torch.ones(1)", "m.b = None", "del m.b; m.b = 4"]),
    "forward_hook": ("m = nn.ReLU()\ndef f(x): return m(x)", ["h = m.register_forward_hook(lambda m, i, o: o + 1)", "h.remove()", "h = m.register_forward_pre_hook(lambda m, i: (i[0] * 2,))", "h.remove()"]),
    "global_hook": ("m = nn.ReLU()\ndef f(x): return m(x)", ["# for the process\nh = nn.modules.module.register_module_forward_hook(lambda m, i, o: o + 1)", "h.remove() if 'h' in globals() else None"]),
    "submodule_replaced": ("m = nn.Sequential(nn.ReLU(), nn.Tanh())\ndef f(x): return m(x)", ["m[0] = nn.Sigmoid()", "m.append(nn.ReLU())", "del m[0]", "m[0] = m[1]"]),
    "module_list": ("m = nn.ModuleList([nn.ReLU(), nn.Tanh()])\ndef f(x):\n    for l in m: x = l(x) + 1\n    return x", ["m.append(nn.Sigmoid())", "m[1] = nn.ReLU()", "del m[0]"]),
    "module_dict": ("m = nn.ModuleDict({'a': nn.ReLU()})\ndef f(x):\n    for n, l in m.items(): x = l(x) + len(n)\n    return x", ["m['bbb'] = nn.Tanh()", "del m['a']"]),
    "forward_replaced": ("m = nn.ReLU()\ndef f(x): return m(x)", ["m.forward = lambda x: x + 1", "del m.forward", "m.__class__ = nn.Tanh"]),
    "attribute_of_module": ("m = nn.LeakyReLU(0.1)\ndef f(x): return m(x)", ["m.negative_slope = 0.5", "m.negative_slope = 1"]),
    "tensor_attribute_of_instance": ("class A: pass\na = A(); a.w = torch.ones(4)\ndef f(x): return x * a.w", ["a.w = a.w.double()", "a.w = nn.Parameter(a.w)", "a.w = 2", "a.w = torch.ones(4)[:1]", "a.w.resize_(4).fill_(3)"]),
    "inplace_on_global": ("w = torch.zeros(4)\ndef f(x):\n    w.add_(x)\n    return w * 2", ["w = torch.ones(4)", "w = torch.ones(4, dtype=torch.float64)", "w = torch.ones(2, 4)"]),
    "inference_mode": ("m = torch.inference_mode(False); m.__enter__()\ndef f(x): return (x * 2).sum()", ["m.__exit__(None, None, None)"]),
    "tensor_hook": ("w = torch.ones(4, requires_grad=True)\ndef f(x): return x * w", ["w.register_hook(lambda g: g * 2)"]),
    "sparse": ("w = torch.eye(4)\ndef f(x): return w @ x", ["w = torch.eye(4).to_sparse()", "w = torch.eye(4)"]),
    "conj_bit": ("w = torch.tensor([1 + 2j] * 4)\ndef f(x): return w * x", ["w = w.conj()", "w = w.resolve_conj()"]),
    "neg_bit": ("w = torch.tensor([1 + 2j] * 4)\ndef f(x): return w.imag * x", ["w = w.conj()"]),
    "subclass_of_tensor": ("w = torch.ones(4)\ndef f(x): return x * w", ["w = w.as_subclass(Subclass)"]),
    "meta_device": ("w = torch.ones(4)\ndef f(x): return x + 1, (w + 1).shape", ["w = torch.ones(4, device='meta')", "w = torch.ones(4)"]),
    "expanded": ("w = torch.ones(4)\ndef f(x): return x * w, w.contiguous()", ["w = torch.ones(1).expand(4)", "w = torch.ones(8)[::2]"]),
    "storage_offset": ("w = torch.arange(8.0)[:4]\ndef f(x): return x * w", ["w = torch.arange(8.0)[4:]"]),
}


@needs_torch
@pytest.mark.parametrize("name", TORCH_STATE)
def test_change_of_state_around_torch_is_seen(name):
    source, changes = TORCH_STATE[name]
    relu, functional = torch.relu, F.relu
    try:
        check_state(source, changes, lambda: torch.tensor([1.0, -2, 3, -4]))
    finally:
        torch.relu, F.relu = relu, functional
        for name in ("relu", "__add__"):
            if "lambda" in getattr(getattr(torch.Tensor, name), "__qualname__", ""):
                delattr(torch.Tensor, name)
        torch.set_grad_enabled(True)
        torch.set_default_dtype(torch.float32)


def tensor(*values, **options):
    return torch.tensor(values, **options)


def torch_arguments():
    t = tensor(1.0, -2, 3, -4)
    leaf = tensor(1.0, 2, 3, 4, requires_grad=True)
    return {
        "requires_grad": (lambda x: x * 2, [(t,), (leaf,)]),
        "detached": (lambda x: (x.detach(), x.detach()[1:], (x * 2)[1:].detach().view(3, 1), x[1:].detach()), [(t,), (t.double(),), (torch.ones(5),)]),
        "parameter": (lambda x: (x * 2).detach(), [(t,), (nn.Parameter(t.clone()),)]),
        "dtype": (lambda x: x / 2, [(t.to(d),) for d in (torch.float32, torch.float64, torch.int32, torch.float16, torch.bfloat16, torch.bool)]),
        "numpy_or_torch": (lambda x: x * 2, [(t,), (np.ones(4),), (2,), (2.0,)]),
        "zero_dim": (lambda x, y: x * y, [(t, tensor(1.0)[0]), (t, torch.tensor(2.0, dtype=torch.float64)), (t.int(), torch.tensor(2.5)), (t.int(), 2.5), (t.int(), 2)]),
        "int_bool_float": (lambda x, k: x * k, [(t.int(), 1), (t.int(), True), (t.int(), 1.0)]),
        "strides": (lambda x: (x * 2, x.reshape(-1)), [(torch.arange(12.0).reshape(3, 4),), (torch.arange(12.0).reshape(4, 3).T,), (torch.arange(24.0).reshape(3, 8)[:, ::2],)]),
        "sizes": (lambda x: x.view(-1, 2).sum(1), [(torch.ones(4),), (torch.ones(6),), (torch.ones(2),), (torch.ones(0),), (torch.ones(5),)]),
        "alias": (lambda x, y: (x.add_(1), y * 2), [(t, t + 1), (lambda a: (a, a))(t.clone()), (lambda a: (a[1:], a[:-1]))(t.clone())]),
        "identity": (lambda x, y: x + 1 if x is y else x - 1, [(t, t + 1), (lambda a: (a, a))(t.clone())]),
        "inplace_dtype": (lambda x, y: x.add_(y), [(t, t), (t, t.double()), (t.int(), t.int()), (t.int(), t), (t, t.int())]),
        "size_one": (lambda x, y: x + y, [(torch.ones(3, 4), torch.ones(4)), (torch.ones(3, 4), torch.ones(1)), (torch.ones(1, 4), torch.ones(3, 1)), (torch.ones(2), torch.ones(3))]),
        "size_attribute": (lambda x: x * x.shape[0] + x.size(0), [(torch.ones(n),) for n in (3, 4, 5, 1, 0)]),
        "size_branch": (lambda x: x + 1 if x.shape[0] > 3 else x - 1, [(torch.ones(n),) for n in (3, 4, 5, 1, 2)]),
        "is_contiguous": (lambda x: x + 1 if x.is_contiguous() else x - 1, [(torch.ones(3, 4),), (torch.ones(4, 3).T,)]),
        "attributes": (lambda x: (x + 1, x.dtype, x.device, x.ndim, x.requires_grad, x.is_leaf), [(t,), (t.double(),), (t[None],), (leaf,)]),
        "is_floating_point": (lambda x: x + 1 if x.is_floating_point() else x - 1, [(t,), (t.int(),)]),
        "data_branch": (lambda x: x + 1 if x.sum() > 0 else x - 1, [(t,), (t + 5,), (t - 5,)]),
        "item": (lambda x: x * x[0].item(), [(t,), (t + 5,)]),
        "dtype_argument": (lambda x, d: x.to(d) * 2, [(t, torch.float64), (t, torch.int32), (t, torch.float32), (t, "cpu")]),
        "mask": (lambda x, m: x.masked_fill(m, 0), [(t, t > 0), (t, t < 0), (t, torch.tensor(True))]),
        "views_of_outputs": (lambda x: (x[1:], x.view(2, 2), x.sum()), [(t,), (t.double(),), (torch.arange(8.0)[::2].clone(),)]),
    }


@needs_torch
@pytest.mark.parametrize("name", torch_arguments() if torch is not None else [])
def test_change_of_a_torch_argument_is_seen(name):
    function, argument_lists = torch_arguments()[name]
    change_of_arguments(function, *argument_lists)
    change_of_arguments(function, *reversed(argument_lists))


# ---- an error midway leaves everything as eager leaves it

def index_error_after_write(x, i):
    x += 1
    y = x * 2
    return y[i], x[0]


def index_array_error_after_write(x, i):
    x[1:] = 5
    y = x[i]
    x[0] = 9
    return y


def division_after_write(x, y):
    x += 1
    z = x // y
    x *= 2
    return z


def error_after_list_change(x, t):
    t.append(x * 2)
    x[0] = 3
    t.append(x[10])


def error_caught(x, i):
    x += 1
    try:
        x[i] = 5
        x += 1
    except IndexError:
        x *= 3
    return x + 1


def error_in_callee(x, i):
    def g(y):
        y *= 2
        return y[i]

    x += 1
    return g(x) + g(x[:2])


def error_of_shapes(x, y):
    x += 1
    z = x + y
    x += z
    return z


def warning_then_error(x, i):
    x -= 1
    y = np.log(x)
    x[i] = 4
    return y


def finally_runs(x, t):
    try:
        x += 1
        return x[9]
    finally:
        t.append(x.sum())
        x *= 2


FAILURES = {
    "index_error_after_write": (index_error_after_write, [(X, 0), (X, 9), (X, -9), (X, 3)]),
    "index_array_error_after_write": (index_array_error_after_write, [(X, np.array([0, 1])), (X, np.array([0, 9])), (X, np.array([-9]))]),
    "division_after_write": (division_after_write, [(np.arange(4), np.arange(1, 5)), (np.arange(4), np.arange(4)), (np.arange(4.0), np.arange(4.0))]),
    "error_after_list_change": (error_after_list_change, [(X, []), (np.arange(20.0), [])]),
    "error_caught": (error_caught, [(X, 0), (X, 9)]),
    "error_in_callee": (error_in_callee, [(X, 0), (X, 3), (X, 9)]),
    "error_of_shapes": (error_of_shapes, [(X, X), (X, np.ones(3)), (np.ones((2, 3)), np.ones((3, 2)))]),
    "warning_then_error": (warning_then_error, [(X, 0), (X, 9)]),
    "finally_runs": (finally_runs, [(X, []), (np.arange(20.0), [])]),
}


@pytest.mark.parametrize("name", FAILURES)
def test_an_error_midway_leaves_what_eager_leaves(name):
    function, argument_lists = FAILURES[name]
    change_of_arguments(function, *argument_lists)
    change_of_arguments(function, *reversed(argument_lists))


@needs_torch
@pytest.mark.parametrize("good, bad", [(lambda: torch.tensor([0, 1]), lambda: torch.tensor([0, 9]))])
def test_an_index_out_of_range_leaves_tensors_as_eager(good, bad):
    def f(x, i, t):
        x.add_(1)
        t.append(x * 2)
        y = x[i]
        x.mul_(3)
        return y

    change_of_arguments(f, (torch.ones(4), good(), []), (torch.ones(4), bad(), []), (torch.ones(4), good(), []))


@pytest.mark.parametrize("changes", ["value", "type", "key", "length", "none"])
def test_arguments_that_are_new_containers_in_each_call(changes):
    """What is reached from one is looked at in every call, however often it was right."""
    def f(scale, **options):
        return scale * options["items"][0] + options["more"]["offset"] * (2 if "extra" in options else 1) + len(options["items"])

    def arguments():
        return {"items": [np.arange(3.0), 1], "more": {"offset": 2.5, "unused": [1]}}

    def changed():
        given = arguments()
        if changes == "value":
            given["more"]["offset"] = 7.5
        elif changes == "type":
            given["items"][0] = np.arange(3)
        elif changes == "key":
            given["extra"] = 0
        elif changes == "length":
            given["items"].append(np.ones(2))
        else:
            given["items"][0] = None
        return given

    compiled = framejit.compile(f)
    held = []  # so that each call's dicts lie elsewhere
    for turn in range(60):
        given = changed() if turn % 20 == 19 else arguments()
        held.append(given)
        compare(Outcome(compiled, (turn % 2 + 1,), dict(given)), Outcome(f, (turn % 2 + 1,), dict(given)))


def items_nobody_reads(items, keys, log):
    for key in keys:
        items[key]
        log.append(key)
    return len(log)


def items_stored_for_nobody(items, keys, log):
    for key in keys:
        found = [items[key]]
        log.append(key)
    return len(log)


@pytest.mark.parametrize("function", [items_nobody_reads, items_stored_for_nobody])
@pytest.mark.parametrize("items", [["x"] * 4, [None] * 4, ["x", 1, None, 0.5], ("a", "b", None, 2), [[1]] * 4, {0: "x", 1: None, 2: [1], 3: np.ones(2)},
                                   {"a": 1, "b": "x", "c": None}], ids=str)
def test_an_item_that_is_not_there_raises_whether_or_not_it_is_read(function, items):
    compiled = framejit.compile(function)
    keys = list(items) if isinstance(items, dict) else list(range(4))
    negative = [-1 - key for key in keys] if not isinstance(items, dict) else keys
    for asked in (keys, keys[:2], negative, [*keys, keys[0], "zz" if isinstance(items, dict) else 4], [*keys, 7], [*negative, -5], keys[::-1]):
        outcomes = []
        for run in (function, compiled):
            log = []
            try:
                outcomes.append((run(items, asked, log), log))
            except LookupError as error:
                outcomes.append((type(error), str(error), log))
        assert outcomes[0] == outcomes[1]


def test_one_key_that_is_not_there_any_more_raises():
    def f(d, key, x):
        found = d[key]
        return x + 1

    compiled = framejit.compile(f)
    for key in ("a", "b", "c", "gone", "a"):
        d = {"a": 1, "b": "x", "c": np.ones(2)}
        if key in d:
            assert (compiled(d, key, np.ones(3)) == 2).all()
        else:
            with pytest.raises(KeyError, match="gone"):
                compiled(d, key, np.ones(3))
