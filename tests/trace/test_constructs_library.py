"""The standard library, text and numbers around arrays: functools, operator, copy, math, strings, formatting, int and float methods."""
import cmath
import collections
import copy
import functools
import logging
import math
import operator
import random
import sys
import threading
import typing
import warnings

import numpy as np
import pytest

import framejit
from constructs import run_construct, table

construct, PROGRAMS = table()
FUNCTOOLS, OPERATOR, COPY, TEXT, NUMBERS, BUILTINS = "functools", "operator", "copy", "text and formatting", "numbers", "builtins"


# ---- functools

def scale(x, k=2, *, add=0):
    return x * k + add


@construct(FUNCTOOLS)
def partial(x):
    f = functools.partial(scale, k=3)
    g = functools.partial(f, add=1)
    return f(x) + g(x, add=2), g.keywords, f.func is scale


@construct(FUNCTOOLS)
def reduce(x):
    return functools.reduce(operator.add, [x, x * 2, 3]) + functools.reduce(lambda a, b: a * b, [1, 2, 3], 4)


def doubled(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs) * 2
    return wrapper


@doubled
def decorated(x):
    """doc"""
    return x + 1


@construct(FUNCTOOLS)
def wraps(x):
    return decorated(x), decorated.__name__, decorated.__doc__, decorated.__wrapped__(x)


@construct(FUNCTOOLS)
def wraps_inside(x):
    @doubled
    def inner(x):
        return x + 3

    return inner(x), inner.__name__


@functools.lru_cache(maxsize=None)
def cached(n):
    return n * n + 1


@functools.lru_cache
def cached_text(name, k=2):
    return name * k


@functools.cache
def fibonacci(n):
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


@construct(FUNCTOOLS)
def lru_cache(x):
    return x * cached(3) + cached(3), cached_text("ab", k=3)


@construct(FUNCTOOLS)
def lru_cache_recursive(x):
    return x * fibonacci(10)


@functools.singledispatch
def kind(value):
    return 0


@kind.register
def _(value: int):
    return 1


@kind.register(list)
def _(value):
    return 2 + len(value)


@kind.register
def _(value: np.ndarray):
    return value.sum()


@construct(FUNCTOOLS)
def singledispatch(x):
    return x * kind(3) + kind([1]) + kind("s") + kind(x)


class Partial:
    def power(self, x, n):
        return x ** n

    square = functools.partialmethod(power, n=2)


@construct(FUNCTOOLS, breaks=None)
def partialmethod(x):
    return Partial().square(x)


class Cell:
    @functools.singledispatchmethod
    def kind(self, value):
        return 1

    @kind.register
    def _(self, value: int):
        return 5


@construct(FUNCTOOLS, breaks=() if sys.version_info < (3, 13) else None)  # 3.13 keeps the methods in a weak dict
def singledispatchmethod(x):
    return x * Cell().kind(3) + Cell().kind("s")


@construct(FUNCTOOLS, breaks=None)
def cmp_to_key(x):
    return x, sorted([3, 1, 2], key=functools.cmp_to_key(lambda a, b: b - a))


# ---- operator

class Node:
    def __init__(self, x):
        self.x = x
        self.inner = self
        self.items = [x, x + 1]

    def scaled(self, k, add=0):
        return self.x * k + add


@construct(OPERATOR)
def attrgetter(x):
    n = Node(x)
    return operator.attrgetter("x")(n) + operator.attrgetter("inner.x")(n), operator.attrgetter("x", "inner.x")(n)[0]


@construct(OPERATOR)
def itemgetter(x):
    get = operator.itemgetter(1)
    return get([x, x * 2]) + operator.itemgetter("a", "b")({"a": 1, "b": x})[1], sorted([(1, 2), (0, 3)], key=operator.itemgetter(0))


@construct(OPERATOR)
def methodcaller(x):
    return operator.methodcaller("scaled", 3, add=1)(Node(x)) + operator.methodcaller("sum")(x)


@construct(OPERATOR)
def functions(x):
    return (operator.add(x, 1), operator.mul(x, 2), operator.neg(x), operator.truediv(x, 2), operator.eq(3, 3), operator.lt(1, 2),
            operator.getitem([1, x], 1), operator.contains([1], 1), operator.truth([1]), operator.not_(0), operator.concat([1], [2]),
            operator.abs(x), operator.iadd(1, 2), operator.index(3), operator.xor(True, False), operator.countOf([1, 1], 1), operator.length_hint([1]))


@construct(OPERATOR)
def set_and_delete_items(x):
    d = {"a": 1}
    operator.setitem(d, "b", x * 2)
    operator.delitem(d, "a")
    return d


# ---- copy

@construct(COPY)
def shallow(x):
    n = Node(x)
    m = copy.copy(n)
    m.x = x * 3
    return n.x + m.x, m.inner is n, copy.copy([1, x])[0], copy.copy({"a": 1}), copy.copy((1,)), copy.copy({1, 2}), copy.copy(3)


@construct(COPY)
def deep(x):
    a = {"k": [1, [2, 3]], "t": (1, [2]), "x": x}
    b = copy.deepcopy(a)
    b["k"][1].append(4)
    b["x"][0, 0] = 5
    return a["x"] + b["x"], a["k"], b["k"], b["t"]


@construct(COPY)
def deep_of_an_instance(x):
    n = Node(x)
    m = copy.deepcopy(n)
    m.items[0][0, 0] = 3
    return n.x + m.items[0], m.inner is m, m.items[0] is m.x


@construct(COPY)
def own_copy_methods(x):
    return copy.copy(Copied(x)).x + copy.deepcopy(Copied(x)).x


class Copied:
    def __init__(self, x):
        self.x = x

    def __copy__(self):
        return Copied(self.x + 1)

    def __deepcopy__(self, memo):
        return Copied(self.x * 2)


@construct(COPY)
def array_copies(x):
    y = copy.copy(x)
    z = copy.deepcopy(x)
    y[0, 0] = 1
    z[0, 1] = 2
    return x + y + z


# ---- text

@construct(TEXT)
def string_methods(x):
    s = "Hello, World"
    return (x + len(s.upper()), s.lower(), s.split(", "), s.replace("l", "L"), s.find("W"), s.startswith("He"), s.endswith(("d", "x")),
            "-".join(["a", "b"]), s.strip("H"), s.partition(","), s.title(), s.zfill(15), s.center(20, "*"), s.count("o"), s[::-1], s[1:4],
            "a,b".rsplit(",", 1), s.isalpha(), "7".isdigit(), "x" in s, s.index("W"), s.encode(), "abc".translate({97: "z"}), s.removeprefix("He"))


@construct(TEXT)
def percent_formatting(x):
    return x + 1, "%d %s %.2f %5d %x" % (3, "a", 2.5, 42, 255), "%s" % 3, "%(a)s-%(b)03d" % {"a": 1, "b": 7}, "%s" % [1, 2], "%r" % ("q",)


@construct(TEXT)
def format_method(x):
    return x + 1, "{} {1}".replace("{1}", "{}").format(1, "b"), "{0:>5}|{name!r:10}|{1:.3f}".format("a", 1.5, name="n"), "{a[0]} {b[k]}".format(a=[1], b={"k": 2})


@construct(TEXT)
def f_strings(x):
    k, v, w = 3, 2.71828, 8
    return x + 1, f"{k:03d} {v:.2f} {v!r} {k=} {'s':>{w}} {k + 1:,} {True} {None} {[1, 2]} {(1, 'a')} {{}} {k:b} {v:e}"


@construct(TEXT)
def f_strings_of_shapes(x):
    return x + 1, f"{x.shape} {x.ndim:>3} {x.shape[0] * 2} {x.dtype} {len(x)}"


@construct(TEXT)
def str_and_repr_of_containers(x):
    return x + 1, str([1, "a", None]), repr({"k": (1, 2.5)}), str({3}), repr(range(3)), str(slice(1, 2)), str(int), repr(len), str(b"x"), repr("q'")


@construct(TEXT)
def bytes_and_bytearray(x):
    b = b"abc"
    return x + b[0], b + b"d", b.hex(), bytes([1, 2]), b.decode(), list(b), b[1:], int.from_bytes(b, "big"), (5).to_bytes(2, "little"), len(bytes(3))


@construct(TEXT)
def ord_chr_ascii_format(x):
    return x + ord("a"), chr(98), ascii("é"), format(3.14159, ".2f"), format(7, "04b"), hex(255), bin(5), oct(8)


@construct(TEXT)
def string_iteration_and_comparison(x):
    return x + ("a" < "b") + ("abc" == "ab" + "c"), [c for c in "xyz"], "ab" * 2, max("hello"), sorted("cab"), list(enumerate("ab")), "".join(reversed("abc"))


@construct(TEXT)
def names_built_at_run_time(x):
    weights = {f"w{i}": i for i in range(3)}
    return x * weights["w" + str(2)] + len("".join(weights))


@construct(TEXT)
def text_of_new_instances(x):
    return x + 1, str(Texted()), repr(Texted()), f"{Texted():>3}", str([Texted()]), "%s" % Texted(), "{!r}".format(Texted())


class Texted:
    def __repr__(self):
        return "T()"

    def __str__(self):
        return "t"

    def __format__(self, spec):
        return "f" + spec


@construct(TEXT)
def string_templates_and_split_lines(x):
    return x + 1, "a\nb".splitlines(), "a b  c".split(), "{:>10s}".format("r"), "x".ljust(3, "."), "%%"


@construct(TEXT)
def value_error_of_int(x):
    try:
        int("zz")
    except ValueError as error:
        return x + 1, str(error)


# ---- numbers

@construct(NUMBERS)
def integer_arithmetic(x):
    a, b = 17, 5
    return x * (a // b) + a % b + a ** 2 + (a << 1) + (a >> 1) + (a & b) + (a | b) + (a ^ b) + ~a + -a + abs(-3), a / b, divmod(a, b), pow(a, b, 7), 2 ** 70, -7 // 2


@construct(NUMBERS)
def integer_methods(x):
    return x + (10).bit_length() + (7).bit_count() + (3).real + (3).numerator, (5).as_integer_ratio(), int("12"), int("ff", 16), int(3.7), int(True), (5).__add__(2), int.__mul__(2, 3)


@construct(NUMBERS)
def float_methods(x):
    return x * (2.0).is_integer(), (0.5).as_integer_ratio(), (2.5).hex(), float("1e3"), float("inf") > 1, round(2.5), round(2.675, 2), round(7, -1), float(3), (1.5).conjugate()


@construct(NUMBERS)
def complex_numbers(x):
    z = 3 + 4j
    return x * abs(z) + z.real + z.imag, z.conjugate(), z * 2, complex(1, 2), z == 3 + 4j, cmath.sqrt(-1)


@construct(NUMBERS)
def math_functions(x):
    return (x * math.sqrt(2) + math.pi + math.floor(2.7) + math.ceil(2.1) + math.prod([1, 2, 3]) + math.gcd(12, 18) + math.hypot(3, 4),
            math.isclose(1.0, 1.0 + 1e-12), math.log2(8), math.fsum([0.1] * 10), math.factorial(5), math.inf, math.isnan(math.nan), math.comb(5, 2),
            math.copysign(1, -0.0), math.trunc(2.9), math.isqrt(17), math.exp(1), math.dist((0, 0), (3, 4)))


@construct(NUMBERS)
def math_of_sizes(x):
    return x / math.sqrt(x.shape[-1]) + math.prod(x.shape) + math.log(x.size)


@construct(NUMBERS, breaks=("Warning",) if sys.version_info >= (3, 14) else ())  # from then on `~True` is no constant
def bools(x):
    return x * True + False + (True and 3) + (0 or 4) + (not 0) + bool([]) + (True == 1) + sum([True, False, True]), True & False, True | 1, ~True


@construct(NUMBERS)
def chained_comparison_and_walrus(x):
    if 1 < (n := len(x)) <= 10 != 11:
        return x * n
    return x


@construct(NUMBERS)
def conversions_and_comparisons(x):
    return x + int("3") + float("2.5") + (3 == 3.0) + (1 < 2.5) + (hash(1) == hash(1.0)), 1 == "1", None is None, 3 != None, 0.1 + 0.2 == 0.3


@construct(NUMBERS)
def zero_division_caught(x):
    try:
        1 / 0
    except ZeroDivisionError as error:
        return x + 1, str(error)


# From 3.14 on the error of a list as a key says what it was to be: Python gives it.
@construct(NUMBERS, breaks=("ErrorWhileTracing",) if sys.version_info >= (3, 14) else ())
def overflow_and_type_errors_caught(x):
    n = 0
    for action in (lambda: math.exp(10000), lambda: "a" + 1, lambda: math.sqrt(-1), lambda: [] < 1, lambda: len(3), lambda: None + 1, lambda: {}[[]], lambda: -"a"):
        try:
            action()
        except (OverflowError, TypeError, ValueError) as error:
            n += len(str(error))
    return x + n


@construct(NUMBERS)
def fractions_and_decimals(x):
    import fractions
    f = fractions.Fraction(1, 3) + fractions.Fraction(1, 6)
    return x * float(f)


@construct(NUMBERS, state=True, breaks=None)
def random_state():
    generator = random.Random(3)

    def f(x):
        return x * generator.random() + generator.randint(1, 5)

    return f, None


@construct(NUMBERS)
def enumerated_powers_of_sizes(x):
    n = x.shape[0]
    return x * (n ** 2) + n * 1.5 + n // 2 + (n if n % 2 else -n) + min(n, 3) + max(n, 2) + abs(-n) + divmod(n, 2)[1]


# ---- builtins

@construct(BUILTINS)
def getattr_hasattr_with_defaults(x):
    n = Node(x)
    return getattr(n, "x") + getattr(n, "zz", 3) + hasattr(n, "inner") + hasattr(x, "shape") + hasattr(x, "nothing") + getattr(x, "ndim")


@construct(BUILTINS)
def callable_and_type_questions(x):
    return x + callable(len) + callable(3) + callable(Node) + callable(lambda: 1) + isinstance(Node(x), Node) + callable(Node(x))


@construct(BUILTINS)
def identity(x):
    a, b = [1], [1]
    n = None
    y = x
    return x + (a is b) + (a is a) * 2 + (n is None) * 4 + (y is x) * 8 + (x * 1 is x) * 16 + (Node is Node) * 32


@construct(BUILTINS)
def id_of_objects(x):
    a = [1]
    b = a
    return x + (id(a) == id(b)) + (id(a) != id([2])) * 2


@construct(BUILTINS)
def hash_of_constants(x):
    return x + (hash("a") == hash("a")) + (hash((1, 2)) == hash((1, 2))) + hash(7) + (hash(1.5) == hash(1.5))


@construct(BUILTINS)
def iter_with_sentinel_and_next_default(x):
    values = [1, 2, 0, 3]
    it = iter(lambda: values.pop(0), 0)
    return x * sum(it), next(iter([]), 5), values


@construct(BUILTINS)
def range_operations(x):
    r = range(2, 20, 3)
    return x * len(r) + r[1] + r[-1] + (5 in r) + (6 in r) + sum(r), list(r[1:3]), r.index(8), r == range(2, 18, 3), r.start, r.stop, r.step, list(reversed(range(3))), r.count(5)


@construct(BUILTINS)
def slice_objects(x):
    s = slice(0, 2)
    return x[s] + x[slice(None, 2)], s.stop, s.indices(1), s == slice(0, 2)


@construct(BUILTINS)
def globals_and_locals_read(x):
    return x * len(globals()["__name__"][:1])


@construct(BUILTINS)
def eval_free_lambda_defaults(x):
    functions = [lambda v, i=i: v * i for i in range(3)]
    return functions[2](x) + functions[1](x)


@construct(BUILTINS)
def ellipsis_and_notimplemented(x):
    return x[..., 0] + (... is Ellipsis) + (NotImplemented is NotImplemented)


@construct(BUILTINS)
def object_sentinels(x):
    missing = object()

    def g(v=missing):
        return 1 if v is missing else 2

    return x + g() + g(3), missing is missing


@construct(BUILTINS, breaks=None)
def memoryviews_and_weakrefs(x):
    import weakref
    n = Node(x)
    r = weakref.ref(n)
    return r().x + 1


@construct(BUILTINS, breaks=None)
def typing_helpers(x):
    return typing.cast(object, x) + (typing.Optional[int] == typing.Optional[int])


@construct(BUILTINS)
def sum_with_start_and_generator(x):
    return sum((x * i for i in range(3)), x), sum([1, 2], 10), sum([0.1] * 3)


@construct(BUILTINS)
def min_max_of_generators_and_keys(x):
    return x * max((i for i in range(4)), key=lambda i: -i), min("bca"), max({"a": 3, "b": 1}.items(), key=lambda kv: kv[1]) if False else x


@construct(BUILTINS)
def string_of_types_and_modules(x):
    return x + 1, math.__name__, np.__name__, type(3).__name__, type(x).__name__, Node.__module__ == __name__


@construct(BUILTINS)
def setattr_by_loop_and_vars(x):
    n = Node(x)
    for k, v in {"p": 1, "q": 2}.items():
        setattr(n, k, v)
    return x * n.p + n.q + sum(v for k, v in vars(n).items() if k in "pq")


WARNINGS = "warnings, locks and loggers"


@construct(WARNINGS)
def filters_in_a_block(x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        y = x * 2
    return y + 1


@construct(WARNINGS)
def ignored_warning(x):
    with warnings.catch_warnings(action="ignore"):
        warnings.warn("old")
        y = x * 2
    return y + 1


@construct(WARNINGS, breaks=["Warning"])
def warning_given(x):
    y = x * 2
    warnings.warn("careful")
    return y + 1


_LOCK = threading.Lock()


@construct(WARNINGS, breaks=["Lock"])
def lock_held(x):
    with _LOCK:
        y = x * 2
    return y + 1


_LOGGER = logging.getLogger("framejit.constructs")
_LOGGER.setLevel(logging.WARNING)
_LOGGER.isEnabledFor(logging.DEBUG)


@construct(WARNINGS)
def logger_below_its_level(x):
    y = x * 2
    _LOGGER.debug("shape %s", y.shape)
    return y + 1


@pytest.mark.parametrize("program", PROGRAMS, ids=repr)
def test_construct(program):
    run_construct(program)


def test_a_cached_function_that_logs_what_was_logged_before_runs_once():
    log = []

    @functools.lru_cache
    def cached(n):
        log.append("computed")
        return n * 2

    def f(x, k):
        log.append("f")
        return x + cached(k)

    compiled = framejit.compile(f)
    for k, length in ((1, 2), (1, 3), (2, 5), (1, 6)):
        np.testing.assert_array_equal(compiled(np.ones(2), k), np.full(2, 1.0 + 2 * k))
        assert len(log) == length
