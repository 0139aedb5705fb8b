"""Programs that once differed from eager, as `./run fuzz` made them small, or tidied up after it."""
import numpy as np
import pytest

from case import Case, check
from harness import both_libraries, same_as_eager, torch


def numpy_case(body, *arguments):
    """f(x, y) of two arrays, from the lines of its body."""
    source = "def f(x, y):\n" + "".join(f"    {line}\n" for line in body.splitlines())
    check(Case("numpy", source, [f"ARGS = [{', '.join(arguments)}]"] * 2))


@pytest.mark.parametrize("body", ["return np.broadcast_to(x, (2,) + x.shape)", "v = np.broadcast_to(x, x.shape)\nv += 1", "v = np.broadcast_to(2, 2)\nprint(v)\nreturn v",
                                  "return np.broadcast_to(x, x.shape)[1:]"])
def test_broadcast_to_gives_a_read_only_view(body):
    numpy_case(body, "make((3, 4))", "None")


@pytest.mark.parametrize("body", ["return y.real, x + 1", "return y.squeeze(), x + 1", "return np.squeeze(y, axis=()), x + 1"])
def test_an_operation_that_changes_nothing_gives_the_array_itself(body):
    numpy_case(body, "make((3, 4))", "make((3, 2))")


@pytest.mark.parametrize("body", ["y[0, 0] = x[0, :1]", "y[0, 0] = x[0, 0]", "y[0, 0] = x[0, 0:1] * 2", "y[0] = x[0]"])
def test_an_element_is_assigned_as_numpy_allows(body):
    numpy_case(body, "make((3, 4))", "make((3, 4))")


@pytest.mark.parametrize("body", ["y[...] = x", "return np.asarray(x, dtype=np.uint8)", "np.copyto(y, x, casting='unsafe')", "return x.astype(np.float32)", "np.asarray(x, dtype=np.int16)"])
def test_casting_complex_to_real_warns(body):
    numpy_case(body, 'make((3,), "complex64")', 'make((3,), "int64")')


def test_positional_out_of_maximum_warns_where_it_is_deprecated():
    numpy_case("np.maximum(x, y, x)\nnp.minimum(x, y, y)\nreturn np.add(x, y, x)", "make((3,))", "make((3,), seed=1)")


@both_libraries
@pytest.mark.parametrize("name", ["sin", "cos", "tanh", "exp", "sqrt", "abs", "floor"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_special_values_keep_their_sign(lib, name, dtype):
    values = np.array([-0.0, 0.0, np.nan, np.inf, -np.inf, 1e30, -1e30, 1.5, 1e-40], dtype)
    module = torch if lib.name == "torch" else np

    def f(x):
        return getattr(module, name)(x)

    with np.errstate(all="ignore"):
        same_as_eager(f, lib.array(np.resize(values, 40)))


@pytest.mark.parametrize("shape, axis", [((), None), ((1,), None), ((3,), None), ((2, 1), -1), ((3, 4), 0), ((3, 4), ()), ((40, 33), 1), ((0,), None)])
def test_the_sum_of_negative_zeros_has_numpys_sign(shape, axis):
    def f(x):
        return x.sum(axis), x.prod(axis), x.mean(axis) if axis != () and x.size else 0

    same_as_eager(f, np.full(shape, -0.0, np.float32))
