"""The NumPy front end against NumPy: values, dtypes, strides, ownership and aliasing, for memory layouts and dtypes.

Each case must compile without a break, so a row of numpy.def that stops working shows here, not as a slower program.
"""
import warnings

import numpy as np
import numpy_cases as cases
import pytest
import framejit
from harness import same_as_eager

ALL = {**cases.SHAPES, **cases.REDUCTIONS, **cases.INDEXING, **cases.WRITES, **cases.CREATION}

UNARY = ["negative", "absolute", "sign", "square", "sqrt", "exp", "exp2", "expm1", "log1p", "sin", "cos", "tan", "arctan",
         "sinh", "cosh", "tanh", "arcsinh", "floor", "ceil", "trunc", "rint", "isnan", "isfinite", "signbit", "logical_not",
         "deg2rad", "degrees", "positive"]
BINARY = ["add", "subtract", "multiply", "divide", "maximum", "minimum", "fmax", "fmin", "equal", "less", "greater_equal",
          "logical_and", "logical_xor", "arctan2", "hypot", "copysign", "logaddexp"]


def layouts(dtype="float32"):
    """2x3x4 arrays, equal in value, that lie differently in memory."""
    x = (np.arange(24).reshape(2, 3, 4) % 7 - 2).astype(dtype)
    wide = np.zeros((4, 6, 8), dtype)
    wide[::2, ::2, ::2] = x
    return {"c": x, "fortran": np.asfortranarray(x), "transposed": x.transpose(1, 0, 2).copy().transpose(1, 0, 2),
            "strided": wide[::2, ::2, ::2], "reversed": x[::-1, ::-1, ::-1].copy()[::-1, ::-1, ::-1]}


@pytest.mark.parametrize("layout", ["c", "fortran", "transposed"])
@pytest.mark.parametrize("name", ALL)
def test_function_gives_what_numpy_gives(name, layout):
    def f(x):
        # Views alone need no kernel: the sum is one.
        return ALL[name](x), np.sum(x)

    same_as_eager(f, layouts()[layout], breaks=())


@pytest.mark.parametrize("name", ALL)
def test_function_of_integers_gives_what_numpy_gives(name):
    def f(x):
        return ALL[name](x), np.sum(x)

    same_as_eager(f, layouts("int32")["c"])


@pytest.mark.parametrize("name", [*cases.SHAPES, *cases.REDUCTIONS, *cases.INDEXING])
def test_function_with_sizes_as_symbols(name):
    def f(x):
        return ALL[name](x), np.sum(x)

    same_as_eager(f, layouts()["c"], dynamic=True)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "uint16", "int64", "bool"])
@pytest.mark.parametrize("name", UNARY)
def test_unary_ufunc(name, dtype):
    ufunc = getattr(np, name)
    x = layouts(dtype)["c"]
    if x.dtype.kind == "b" and name in ("negative", "sign", "positive"):
        pytest.skip("NumPy has no such loop")
    with np.errstate(all="ignore"):
        # Some are copies for some dtypes, which are not worth a graph: the comparison is.
        same_as_eager(lambda x: (ufunc(x), x == x), x, breaks=())


@pytest.mark.parametrize("dtypes", [("float32", "float32"), ("float32", "int32"), ("int8", "uint8"), ("bool", "float16"),
                                    ("int64", "float32")])
@pytest.mark.parametrize("name", BINARY)
def test_binary_ufunc_promotes_and_broadcasts(name, dtypes):
    ufunc = getattr(np, name)
    x, y = layouts(dtypes[0])["fortran"], layouts(dtypes[1])["c"][0]
    with np.errstate(all="ignore"):
        same_as_eager(lambda x, y: ufunc(x, y), x, y, breaks=())


@pytest.mark.parametrize("number", [2, 2.5, True])
@pytest.mark.parametrize("dtype", ["float16", "float32", "int8", "int64", "bool"])
def test_python_numbers_promote_weakly(dtype, number):
    same_as_eager(lambda x: x * number + number, layouts(dtype)["c"], breaks=())


def test_out_is_written_and_returned():
    def f(x, y, out):
        r = np.multiply(x, y, out=out)
        return r, r is out

    x = layouts()["c"]
    same_as_eager(f, x, x[0].copy(), np.empty((2, 3, 4), np.float64), breaks=())


def test_full_reduction_is_a_scalar_object():
    same_as_eager(lambda x: (x.sum(), x.sum() * 2, x.max() + x), layouts()["c"], breaks=())


def test_a_size_that_depends_on_data_and_decides_breaks_and_goes_on():
    def f(x):
        chosen = (x * 2)[x > 0] + 1
        return chosen * 2 if len(chosen) > 3 else x

    run = same_as_eager(f, layouts()["c"])
    assert run.breaks == ["DataDependentShape"]


def test_an_operation_that_is_its_operand_gives_a_copy():
    def f(x):
        y = np.positive(x)
        print("between")
        y[0] = 5
        return y, np.maximum(x, x), x.copy()

    same_as_eager(f, layouts("int32")["c"])


@pytest.mark.parametrize("x", [np.zeros(0), np.zeros((0, 2)), np.zeros((3, 0)), np.broadcast_to(np.ones(2), (3, 2)), np.broadcast_to(np.ones((2, 1)), (2, 3))],
                         ids=["empty", "no rows", "empty rows", "repeated rows", "repeated columns"])
def test_an_index_out_of_range_is_found_whatever_the_strides(x):
    for function in (lambda x: x[[0, 7]] * 1, lambda x: x[..., [0, -7]] * 1, lambda x: np.take(x, [0, 7], axis=-1)):
        same_as_eager(function, x, compiles=False)
        same_as_eager(function, x, compiles=False, dynamic=True)
    if x.size:
        same_as_eager(lambda x: (x[[0, -1]] * 1, x[..., [1, 0]] * 1, np.take(x, [0, 1], axis=-1)), x, breaks=())


def test_rounding_integers_without_dimensions_gives_a_scalar():
    same_as_eager(lambda x: (np.round(x, 2), x.round(1), x + 1), np.array(3, np.int32), breaks=())


@pytest.mark.parametrize("function", [lambda x: x.sum(1), lambda x: np.cumsum(x, axis=1) + x, lambda x: (x + x[::-1]).sum(1)])
def test_what_does_not_depend_on_an_empty_loop_is_not_loaded(function):
    far = np.lib.stride_tricks.as_strided(np.empty(0), (10**6, 0), (-10**6, 0))  # a copy of it would lie elsewhere
    for dynamic in (None, True):
        np.testing.assert_array_equal(framejit.compile(function, dynamic=dynamic, fullgraph=True)(far), function(far))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_logaddexp_of_a_nan_is_an_invalid_operation(dtype):
    x, y = np.array([1, 2, np.inf, -np.inf], dtype), np.array([np.nan, 2, np.inf, 1], dtype)
    same_as_eager(np.logaddexp, x, y, breaks=(), fallback=True)
    same_as_eager(np.logaddexp, y, x, breaks=(), fallback=True)
    same_as_eager(np.logaddexp, x[1:], y[1:], breaks=(), fallback=True)


STRIDES = {
    "sum over rows": lambda x: x.sum(0, keepdims=True),
    "sum over columns": lambda x: x.sum(1, keepdims=True),
    "greatest": lambda x: x.max(0, keepdims=True),
    "mean over both": lambda x: np.mean(x, (0, 1), keepdims=True),
    "broadcast": lambda x: np.broadcast_to(x[:1, :1] + 1, (3, 4, 1)),
}


@pytest.mark.parametrize("name", STRIDES)
@pytest.mark.parametrize("layout", ["C", "F"])
def test_strides_of_axes_of_one(name, layout):
    x = np.arange(12.0).reshape(3, 4).copy(layout)
    assert framejit.compile(STRIDES[name])(x).strides == STRIDES[name](x).strides


@pytest.mark.parametrize("name", ["rad2deg", "deg2rad", "degrees", "radians"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_angles_are_scaled_in_their_own_precision(name, dtype):
    x = np.random.default_rng(0).standard_normal(1000).astype(dtype)
    same_as_eager(lambda x: getattr(np, name)(x), x, exact=True)


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_near_the_multiples_of_a_right_angle(name):
    """Where the result is small or large, and what is left of the argument are its last bits."""
    function = getattr(np, name)
    x = (np.arange(-5200, 5201) * (np.pi / 2)).astype(np.float32)
    x = np.concatenate([x, np.nextafter(x, np.float32(0)), np.nextafter(x, np.float32(np.inf))])
    exact = function(x.astype(np.float64))
    found = framejit.compile(lambda x: function(x))(x)
    error = np.abs(found - exact) / np.spacing(np.abs(exact.astype(np.float32)))
    assert error.max() <= (2 if framejit_has_fma() else 500)


def framejit_has_fma():
    with open("/proc/cpuinfo") as file:
        text = file.read()
    return "fma" in text or "aarch64" in text or "asimd" in text


@pytest.mark.parametrize("bounds", [lambda x: (np.prod(x.shape),), lambda x: (np.max([3, 1]),), lambda x: (0, np.sum((4, 3)), np.int64(2)), lambda x: (np.int32(4),),
                                    lambda x: (np.prod(np.array([3, 2])),), lambda x: (np.float64(3),), lambda x: (np.mean([3, 5]),), lambda x: (x.sum(dtype=int),),
                                    lambda x: (1, np.uint8(4)), lambda x: (len(x), np.float32(7)), lambda x: (np.prod([2.0, 3]),), lambda x: (True, 4)])
def test_arange_has_the_dtype_of_its_bounds(bounds):
    for shape in ((3, 2), (4, 1), (5, 3)):
        same_as_eager(lambda x: (np.arange(*bounds(x)), np.arange(*bounds(x), dtype=np.float64), x + 1), np.ones(shape), fallback=True)


def test_arange_of_less_than_a_step():
    for bounds in ((0, 5, np.inf), (-0.0, 1.0, 1.0), (0.0, -1.0, -np.inf), (0.0, -1.0, np.inf), (1.0, 1.0, np.inf), (2.0, 2 + 1e-320, 1e300), (0, 1e-300, 1e300), (3.0, 3.5, 2.0)):
        same_as_eager(lambda x: (np.arange(*bounds), x + 1), np.ones(2))


def test_astype_copies_nothing_that_lies_as_it_is_asked_to():
    x = np.arange(6, dtype="f4").reshape(2, 3)
    for order in "CFAK":
        def f(x, y):
            first, second = x.astype("f4", order=order, copy=False), y.astype("f4", order=order, copy=False)
            first[0, 0], second[0, 0] = 7, 8
            return first, second, x, y, first is x, second is y

        for given in (x.copy(), x.T.copy().T, x[:, ::2].copy(), x[:, :1], x[:1]):
            same_as_eager(f, given, x[:, ::2], fallback=True)
        same_as_eager(lambda x: (x + 1).astype("f4", order=order, copy=False), x)


def test_the_metadata_of_a_dtype_stays():
    marked = np.dtype("f4", metadata={"unit": "m"})

    def f(x):
        return np.asarray(x, dtype=marked), x.astype(marked), x[1:], x * 2

    for x in (np.ones(3, "f4"), np.ones(3, marked)):
        told = [[(array.dtype.metadata, array.tolist(), array.base is x) for array in call(x)] for call in (f, framejit.compile(f))]
        assert told[0] == told[1]


@pytest.mark.parametrize("make", [lambda: np.add.outer(np.ones((1,) * 33), np.ones((1,) * 33)), lambda: np.empty(2 ** 62, np.uint8), lambda: np.zeros((2 ** 40, 2 ** 20)),
                                  lambda: np.ones((1,) * 64)[None], lambda: np.ones((1,) * 64).flat, lambda: np.repeat(np.ones(3), 2 ** 60),
                                  lambda: np.broadcast_to(np.ones(3), (2 ** 40, 2 ** 40, 3)), lambda: np.arange(10.0 ** 25)])
def test_an_array_that_cannot_be_raises_though_nobody_uses_it(make):
    def f(x):
        make()
        return x + 1

    for _ in range(2):
        same_as_eager(f, np.ones(3), fallback=True, compiles=False)


@pytest.mark.parametrize("parts", [[np.float32(1), 1.0], [np.ones(3, "i1"), 5], [np.ones(3, "i1"), 300], [np.ones((2, 2), "f4"), 1e300], [np.ones(2, "f4"), 2**70], [np.ones(2, "f4"), 1j],
                                   [1, 2.0], [np.ones(3, "i1"), True], [np.ones(2, "f4"), np.float64(1)], [np.ones(2, "f4"), [1.0]], [np.ones(3, "u1"), -1], [np.ones(3, "i1"), 1.5]])
def test_numbers_adapt_to_the_arrays_they_are_joined_with(parts):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # 1e300 as a float32
        same_as_eager(lambda parts: np.concatenate(parts, axis=None), parts, fallback=True, compiles=False)


def test_numbers_that_change_adapt():
    compiled = framejit.compile(lambda x, a, b: np.concatenate((x, a, b), axis=None))
    for a in (1.0, 2.0, 3.0):
        found = compiled(np.ones((2, 2), "f4"), a, int(a))
        assert found.dtype == np.float32 and found.tolist() == [1.0] * 4 + [a, a]
