"""Wrong options, wrong arguments, arrays framejit does not compile: a clear error or eager's behaviour, never a crash."""
import numpy as np
import pytest

import framejit
from harness import Outcome, compare, needs_torch, same_as_eager, torch


def double(x):
    return x * 2 + 1


def test_compile_wants_a_callable():
    with pytest.raises(TypeError, match="callable"):
        framejit.compile(3)


def test_unknown_options_and_back_ends_are_named():
    with pytest.raises(TypeError, match="speed"):
        framejit.compile(double, speed=11)
    with pytest.raises(ValueError, match="no_such_backend"):
        framejit.compile(double, backend="no_such_backend")
    with pytest.raises((TypeError, ValueError), match="fullgraph"):
        framejit.compile(double, fullgraph="yes")


@pytest.mark.parametrize("array", [
    np.array(["a", "b"]), np.array([1, "x", None], dtype=object), np.array([(1, 2.0)], dtype=[("a", int), ("b", float)]),
    np.array([1, 2], dtype=">f4"), np.array([1, 2], dtype=np.longdouble), np.array(["2020-01-01"], dtype="datetime64[D]"),
    np.ma.masked_array([1.0, 2.0], [True, False]), np.matrix([[1.0, 2.0]]),
], ids=["string", "object", "structured", "big-endian", "longdouble", "datetime", "masked", "matrix"])
def test_arrays_framejit_does_not_compile_behave_as_in_eager(array):
    compiled = framejit.compile(double)
    for _ in range(2):
        ours, eager = Outcome(compiled, (array,), {}), Outcome(double, (array,), {})
        assert type(ours.error) is type(eager.error) and str(ours.error) == str(eager.error)
        if eager.error is None:
            assert type(ours.result) is type(eager.result) and ours.result.dtype == eager.result.dtype
            np.testing.assert_array_equal(np.asarray(ours.result), np.asarray(eager.result))
    assert framejit.cache_info()["internal_errors"] == 0


def test_wrong_arguments_raise_the_function_s_own_errors():
    for arguments, keywords in [((), {}), ((1, 2), {}), ((), {"y": 1})]:
        compare(Outcome(framejit.compile(double), arguments, keywords), Outcome(double, arguments, keywords))


def test_shape_mismatch_raises_eager_s_error_with_the_user_s_line():
    def add(x, y):
        z = x * 2
        return z + y

    import traceback

    x, y = np.ones((2, 3), np.float32), np.ones(4, np.float32)
    ours, eager = Outcome(framejit.compile(add), (x, y), {}), Outcome(add, (x, y), {})
    compare(ours, eager)
    lines = [(f.name, f.lineno) for f in traceback.extract_tb(ours.error.__traceback__) if f.name == "add"]
    assert lines == [(f.name, f.lineno) for f in traceback.extract_tb(eager.error.__traceback__) if f.name == "add"]


def test_index_errors_are_eager_s():
    def pick(x, i):
        return (x * 2)[i] + 1

    x = np.ones((3, 4), np.float32)
    for i in (0, 2, 3, -3, -4, 100):
        compare(Outcome(framejit.compile(pick), (x, i), {}), Outcome(pick, (x, i), {}))


def test_an_index_out_of_range_in_an_array_leaves_everything_as_eager_does():
    def take(x, i):
        x += 1
        return x[i] * 2

    compiled = framejit.compile(take)
    for index in ([0, 2], [0, 3], [-3, 1], [-4, 0]):
        ours, eager = (Outcome(f, (np.ones((3, 2), np.float32), np.array(index)), {}) for f in (compiled, take))
        compare(ours, eager)


@pytest.mark.parametrize("mode", ["warn", "ignore", "raise"])
def test_numpy_reports_floating_point_conditions_as_eager(mode):
    def f(x, y):
        with np.errstate(all=mode):
            return np.log(x) / y + np.exp(x * 1000)

    def g(x, y):
        return np.sqrt(x) / y

    x, y = np.array([1, -1, 0, 2], np.float64), np.array([1, 0, 0, 3], np.float64)
    for function in (f, g):
        compiled = framejit.compile(function)
        for _ in range(3):
            compare(Outcome(compiled, (x, y), {}), Outcome(function, (x, y), {}))
    with np.errstate(all=mode):
        for _ in range(3):
            compare(Outcome(compiled, (x, y), {}), Outcome(g, (x, y), {}))


def test_integer_division_by_zero_warns_as_eager():
    def f(x, y):
        return x // y + x % y

    x, y = np.array([7, -7, 5], np.int32), np.array([2, 2, 0], np.int32)
    run = same_as_eager(f, x, y, fallback=True)
    assert run.report.fallbacks


@needs_torch
def test_integer_division_by_zero_raises_torch_s_error():
    def f(x, y):
        return x * 2 // y

    x, y = torch.tensor([7, -7, 5]), torch.tensor([2, 2, 0])
    compare(Outcome(framejit.compile(f), (x, y), {}), Outcome(f, (x, y), {}))


@needs_torch
def test_an_unused_division_by_zero_raises_all_the_same():
    def f(x, y):
        x // y
        return x * 2

    for y in (torch.tensor([2, 1, 3]), torch.tensor([2, 1, 0])):
        x = torch.tensor([7, -7, 5])
        compare(Outcome(framejit.compile(f), (x, y), {}), Outcome(f, (x, y), {}))


@needs_torch
@pytest.mark.parametrize("make", [
    lambda: torch.ones(3).to_sparse(), lambda: torch.ones(3, device="meta"), lambda: torch.complex(torch.ones(2), torch.ones(2)).conj(),
    lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8),
], ids=["sparse", "meta", "conj", "quantised"])
def test_torch_tensors_framejit_does_not_compile_run_eagerly(make):
    tensor = make()
    ours, eager = Outcome(framejit.compile(double), (tensor,), {}), Outcome(double, (tensor,), {})
    assert type(ours.error) is type(eager.error) and str(ours.error) == str(eager.error)
    if eager.error is None and tensor.device.type != "meta":
        assert ours.result.layout == eager.result.layout
        assert torch.equal(ours.result.to_dense() if tensor.is_sparse else ours.result, eager.result.to_dense() if tensor.is_sparse else eager.result)


def test_a_wrong_rewrite_is_found_by_the_harness():
    """A back end that computes something else must not pass `same_as_eager`."""

    def wrong(graph, example_inputs):
        return lambda *inputs: [np.zeros((2, 3), np.float32)]

    framejit.register_backend("wrong_rewrite", wrong)
    with pytest.raises(AssertionError):
        same_as_eager(double, np.ones((2, 3), np.float32), backend="wrong_rewrite")


def test_a_failing_back_end_is_reported_by_name():
    def broken(graph, example_inputs):
        raise RuntimeError("no such instruction")

    with pytest.raises(framejit.BackendError, match="no such instruction"):
        framejit.compile(double, backend=broken)(np.ones(3))


REFUSED = ["x.sum(0, 0)", "torch.prod(x, 1, 1)", "x.argmax(0, (0, 1))", "torch.all(x, 0, 0)", "torch.amax(x, -1, (-1,))", "x.max(1, 0)", "torch.std(x, -1, -1)",
           "torch.unique(x, 0)", "x.unique_consecutive(1)", "x.clone().copy_(x, x)", "x.to(x, x)", "torch.nn.functional.threshold(x, 1)", "torch.rms_norm(x, 3)"]


@needs_torch
@pytest.mark.parametrize("text", REFUSED)
def test_arguments_that_torch_refuses_are_refused(text):
    f = eval(f"lambda x: {text}", {"torch": torch})
    x = torch.arange(6.0).reshape(2, 3)
    for call in (f, framejit.compile(f)):
        with pytest.raises(TypeError):
            call(x)


@needs_torch
def test_bools_have_no_derivative_as_exponents():
    f = lambda x: torch.pow(x, x > 1)
    errors = []
    for call in (f, framejit.compile(f)):
        with pytest.raises(RuntimeError) as raised:
            call(torch.arange(3.0, requires_grad=True)).sum().backward()
        errors.append(str(raised.value))
    assert errors[0] == errors[1]
