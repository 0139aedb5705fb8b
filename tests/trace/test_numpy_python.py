"""NumPy's functions that are Python code are traced as any Python code, and what that code asks on its way is answered while tracing."""
import operator
import platform
import warnings

import numpy as np
import pytest

import framejit
from harness import same_as_eager

A = np.random.default_rng(0).normal(size=(4, 5))
B = np.random.default_rng(1).normal(size=(4, 5))

WHOLE = [
    lambda a, b: np.tensordot(a, b.T, 1), lambda a, b: np.tensordot(a, b, ([0, 1], [0, 1])),
    lambda a, b: np.polyval([1, 2, 3], a), lambda a, b: np.polyval(a[0], b),
    lambda a, b: np.trapezoid(a, dx=0.1, axis=0), lambda a, b: np.trapezoid(a[0]),
    lambda a, b: np.nan_to_num(a * np.nan), lambda a, b: np.nan_to_num(np.array([np.inf, 1.0]) * a[0, 0], posinf=3.0),
    lambda a, b: np.average(a, axis=1), lambda a, b: np.gradient(a[0]), lambda a, b: np.gradient(a, axis=0), lambda a, b: np.gradient(a[1], 0.5),
    lambda a, b: np.sinc(a), lambda a, b: np.resize(a, (2, 3)), lambda a, b: np.array(a[0], ndmin=3),
    lambda a, b: np.array(3.5, ndmin=1) + a[0], lambda a, b: np.array([1, 2], ndmin=2) + a[:2, :2],
]


def test_an_argument_that_stands_for_none_is_none():
    """NumPy's Python code hands keepdims=np._NoValue on."""
    def f(x, n):
        return np.nanargmax(n), np.nanargmin(n[None], axis=0), x * 2

    same_as_eager(f, A, np.array([1, 2]))
    for name in ("sum", "prod", "max", "min", "amax", "mean", "std", "var", "any", "all", "argmax", "argmin", "ptp"):
        same_as_eager(lambda x: getattr(np, name)(x, axis=0, keepdims=np._NoValue), A)


@pytest.mark.parametrize("x", [A.T, A[::2], A[:0], np.zeros((0, 3)), A])
def test_new_axes_of_array_have_numpys_strides(x):
    same_as_eager(lambda x: (np.array(x, ndmin=3).strides, np.array(x, ndmin=4, copy=True)), x, compiles=False)


@pytest.mark.parametrize("function", WHOLE)
def test_such_a_function_is_one_graph(function):
    def f(a, b):
        doubled = a * 2
        return doubled, function(a, b), doubled + 1

    run = same_as_eager(f, A, B, breaks=())
    assert len(run.graphs) == 1


def test_where_numpys_code_breaks_the_break_is_the_call():
    def f(a):
        b = a * 2
        return np.apply_along_axis(np.sort, 0, a), b

    run = same_as_eager(f, A, breaks=["UnsupportedOperation"])
    assert "apply_along_axis()" in run.report.text() and "test_numpy_python.py" in run.report.breaks[0].file


def test_a_class_that_takes_numpys_functions_over_is_asked():
    class Taken:
        def __array_function__(self, function, types, arguments, keywords):
            return function.__name__

    def f(a, taken):
        return np.polyval(taken, a), np.polyval([taken, 1], a), a + 1

    same_as_eager(f, A, Taken(), compiles=False, breaks=["UnsupportedOperation"])


def test_an_error_in_numpys_code_is_numpys():
    def f(a, caught):
        b = a + 1
        if not caught:
            return np.tensordot(a, a, 1), b
        try:
            return np.gradient(a, axis=7), b
        except ValueError as error:
            return str(error), b

    same_as_eager(f, A, False)
    same_as_eager(f, A, True)


@pytest.mark.parametrize("where", [lambda a, b: b > 0, lambda a, b: b[0] > 0, lambda a, b: True, lambda a, b: False, lambda a, b: b[:, :1] > 0])
@pytest.mark.parametrize("source", [lambda a, b: b, lambda a, b: b[0], lambda a, b: 3, lambda a, b: 0.5, lambda a, b: b.astype(np.float32)])
def test_copyto_writes_where_the_mask_holds(source, where):
    def f(a, b):
        view = a[1:]
        kept = a + 1
        np.copyto(a, source(a, b), where=where(a, b))
        return kept, view

    same_as_eager(f, A, B)


def test_copyto_refuses_what_numpy_refuses():
    def f(a, value, casting):
        b = a + 1
        np.copyto(a, value, casting=casting)
        return b

    integers = np.arange(5)
    for value in (2.5, A[0], A[0].astype(np.float32), 7, True, np.arange(5, dtype=np.int8), 1j, np.arange(3), A):
        for casting in ("same_kind", "unsafe", "safe", "no"):
            same_as_eager(f, integers, value, casting, compiles=False)
    same_as_eager(f, np.array([True, False]), 1, "same_kind", compiles=False)


def test_array_without_copy_is_the_array_given():
    def f(a, b):
        same = np.array(a, copy=None)
        same += 1
        other = np.array(b, dtype=np.float32, copy=None)
        other += 1
        rows = np.array(a[0], copy=None, ndmin=2)
        rows *= 3
        return same is a, same, other, rows, np.array(2.5, copy=None) + b, np.array(np.float64(2.5), copy=None)

    same_as_eager(f, A, B, breaks=())


def test_questions_about_dtypes():
    def f(a, n, small):
        total = small.sum().item()
        return (a * 2, np.result_type(a, n), np.result_type(small, n, 2.5), np.result_type(small, np.int16), np.result_type(total, small), np.promote_types(np.int8, a.dtype),
                np.can_cast(small, np.int16), np.can_cast(a, small.dtype), np.dtype("float32"), np.dtype(a.dtype), np.issubdtype(a.dtype, np.floating),
                np.issubdtype(small.dtype, np.inexact))

    for n in (3, 4, 5):
        same_as_eager(f, A, n, np.arange(3, dtype=np.int8), breaks=())


def test_what_is_no_class_and_what_is_no_iterable():
    def f(a, n):
        seen = []
        for action in (lambda: issubclass(a.dtype, int), lambda: issubclass(3, (int, str)), lambda: iter(n), lambda: iter(2.5), lambda: iter(None), lambda: iter(a.mean().item())):
            try:
                action()
            except TypeError as error:
                seen.append(str(error))
        return a + 1, seen

    for n in (3, 4, 5):
        same_as_eager(f, A, n, breaks=())


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint32", "int64", "uint64", "float32", "bool"])
@pytest.mark.parametrize("scalars", ["int8", "uint8", "int64", "uint64", "float16", "float64", "bool"])
def test_a_scalar_stored_as_an_element_has_to_have_a_place_in_the_dtype(dtype, scalars):
    """NumPy makes a Python number of it, where it casts the elements of arrays."""
    stores = [lambda y, s: y.__setitem__(0, s), lambda y, s: y.__setitem__(slice(1, 3), s), lambda y, s: y.__setitem__(Ellipsis, s), lambda y, s: y.fill(s),
              lambda y, s: y.__setitem__([0, 2], s), lambda y, s: y.__setitem__(y == 0, s), lambda y, s: np.array([s, s], y.dtype), lambda y, s: np.array(s, y.dtype),
              lambda y, s: np.asarray([[1], [s]], y.dtype), lambda y, s: np.full_like(y, s), lambda y, s: np.copyto(y, s, casting="unsafe")]
    if scalars == "bool":
        values = [False, True]
    elif scalars.startswith("float"):
        values = [0, 2.75, -128.5, 127.5, 128, 200, -1, -0.5, 6e4, np.inf, np.nan, *([-2.0**63, 2.0**63, 1e300, 2.0**31 - 0.5] if scalars == "float64" else [])]
        if dtype == "uint32":  # what NumPy casts the others to depends on how many there are
            values = [value for value in values if abs(value) < 2**31]
        if platform.machine() == "aarch64" and np.issubdtype(dtype, np.integer):  # likewise, for all dtypes (docs/numerics.md)
            values = [value for value in values if np.iinfo(dtype).min <= value <= np.iinfo(dtype).max]
    else:
        values = [0, 100, np.iinfo(scalars).max, np.iinfo(scalars).min, np.iinfo(scalars).max // 2 + 1]
    for store in stores:
        compiled = framejit.compile(store)
        for value in values:
            source, outcomes = np.array([value], scalars), []
            for run in (store, compiled):
                y = np.zeros(4, dtype)
                try:
                    with np.errstate(all="ignore"):
                        outcomes.append((run(y, source.max()), y))
                except (OverflowError, ValueError) as error:
                    outcomes.append((type(error), str(error), y))
            for eager, ours in zip(*outcomes):
                assert type(eager) is type(ours) and getattr(eager, "dtype", None) == getattr(ours, "dtype", None), (store, value)
                np.testing.assert_array_equal(eager, ours, strict=isinstance(eager, np.ndarray))


def test_a_scalar_s_comparison_warns_where_it_stands_and_once():
    def f(p, q):
        a = p == np.float16()
        b = np.float32(1) < q
        return a, b, np.float16(2) > 1.5

    compiled, seen = framejit.compile(f), []
    for function in (compiled, compiled, f):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = function(-(2**63), 1e308)
        seen.append((result, [(str(w.message), w.filename, w.lineno) for w in caught]))
    assert seen[0] == seen[1] == seen[2] and len(seen[2][1]) == 2


@pytest.mark.parametrize("scalar", [np.int64(3), np.int32(-5), np.uint8(7), np.int8(-128), np.bool_(True), np.float32(-2.5)], ids=repr)
def test_operators_and_ranges_of_a_scalar_that_is_given(scalar):
    def f(x, n):
        y = x * abs(n)
        for i in range(n):
            y = y + i
        return y, abs(n), np.roll(x, n), np.roll(x, -1, axis=np.int64(0))

    for value in (scalar, scalar, type(scalar)(2), type(scalar)(4)):
        same_as_eager(f, np.arange(6.0).reshape(2, 3), value, compiles=False)
    if scalar == 3:
        same_as_eager(f, np.arange(6.0).reshape(2, 3), scalar, breaks=())


@pytest.mark.parametrize("k", [np.array([3, 5, 2]), np.array([-128, 100, 0], np.int8), np.array([0, 255, 200], np.uint8), np.array([1, -1, 0], np.int32),
                               np.array([-2**63, 2**63 - 1, -1])], ids=lambda k: f"{k.dtype}_{k[0]}")
def test_operators_of_elements_report_what_numpy_reports(k):
    for function in (lambda k: (k * 1, -k[0]), lambda k: (k * 1, abs(k[0])), lambda k: (k * 1, k[1] << k[2], k[0] >> 1), lambda k: (k * 1, k[0] // k[2]),
                     lambda k: (k * 1, k[0] % k[1]), lambda k: (k * 1, k[1] ** 2), lambda k: (k * 1, k[1] ** 0, ~k[1]), lambda k: (k * 1, k[0] % 3)):
        with warnings.catch_warnings():
            same_as_eager(function, k, compiles=False, fallback=True)


def test_sizes_counted_by_numpy_are_known():
    def f(x):
        n = np.prod(x.shape)
        for i in range(n // 4):
            x = x + i
        return x, np.zeros(n - 9) + n % 5

    same_as_eager(f, np.ones((3, 4)), breaks=())


def test_a_number_with_named_parts_keeps_them():
    parts = np.dtype(("i4", [("low", "<i2"), ("high", "<i2")]))
    array = np.arange(4, dtype="i4").view(parts)
    for function in (lambda x: x + 1, lambda x: np.zeros(3, parts), lambda x: x.copy(), lambda x: np.arange(4).astype(parts), lambda x: x.view(parts)["low"]):
        eager, ours = function(array), framejit.compile(function)(array)
        assert repr(ours) == repr(eager)


def test_a_derived_array_on_the_left_takes_an_object_with_a_reflected_operator():
    class Derived(np.ndarray):
        pass

    class Other:
        def __radd__(self, element):
            return "result"

    def f(x):
        result = x + Other()
        return result.shape, result.tolist()

    x = np.arange(3).view(Derived)
    assert framejit.compile(f)(x) == f(x) == ((3,), ["result"] * 3)


def test_an_array_that_is_written_may_be_given_by_its_name():
    def f(x):
        np.copyto(dst=x, src=x * 2)
        np.putmask(a=x, mask=x > 2, values=x)  # takes it by its place only

    same_as_eager(f, np.arange(3.0), compiles=False)


@pytest.mark.parametrize("base", [float, int, complex])
@pytest.mark.parametrize("method, operation", [("__radd__", operator.add), ("__rsub__", operator.sub), ("__rpow__", operator.pow), ("__mul__", operator.mul),
                                               ("__eq__", operator.eq), ("__gt__", operator.lt)])
def test_numpy_asks_no_method_of_a_class_of_numbers_that_the_function_makes(base, method, operation):
    def f(x):
        Number = type("Number", (base,), {method: lambda self, other: method})
        results = []
        for a, b in ((x, Number(1)), (Number(1), x)):
            try:
                results.append(operation(a, b))
            except TypeError:  # complex numbers have no order
                results.append("refused")
        return [(type(result).__name__, str(result)) for result in results]

    for x in (np.float16(2), np.float64(2), np.int8(3), np.ones(2)):
        assert framejit.compile(f)(x) == f(x)


def test_a_quotient_of_constants_overflows_aloud():
    for f in (lambda a, b: np.floor_divide(a, b), lambda a, b: np.divmod(a, b)[0], lambda a, b: a // b):
        for dtype in (np.int8, np.int16, np.int64):
            with pytest.warns(RuntimeWarning, match="overflow"):
                assert framejit.compile(f)(np.iinfo(dtype).min, dtype(-1)) == np.iinfo(dtype).min
            with pytest.warns(RuntimeWarning, match="overflow"):
                assert framejit.compile(f)(dtype(np.iinfo(dtype).min), dtype(-1)) == np.iinfo(dtype).min
