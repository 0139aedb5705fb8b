"""Every reason of breaks.def, provoked by its smallest program: same result as eager, the right number and line."""
import abc
import inspect
import pathlib
import random
import re
import sys
import threading
import warnings

import numpy as np
import pytest

import framejit
from harness import needs_torch, same_as_eager, torch

X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2.5


def unknown_call(x):
    y = x * 2
    sys.getswitchinterval()
    return y + 1


def prints(x):
    y = x * 2
    print("here")
    return y + 1


def scalar_from_array(x):
    y = x * 2
    s = int(y[0, 0] * 3)
    return y + s


def branch_on_data(x):
    y = x * 2
    if y.sum() > 0:
        y = y - 1
    return y + 1


def unsupported_array(x):
    y = x * 2
    names = np.array(["a", "b"], dtype=object)
    names = names + names
    return y + len(names)


def unsupported_operation(x):
    y = x * 2
    z = np.apply_along_axis(np.sort, 1, y)
    return z + y.sum()


def unsupported_bytecode(x):
    y = x * 2

    class Local(abc.ABC):
        value = 3

    return y + Local.value


def unsupported_object(x):
    y = x * 2
    d = {x.shape: 1, frozenset([1]): 2}
    z = memoryview(b"ab")[0]
    return y + z + len(d)


def loop_too_long(x):
    for i in range(20000):
        x = x * 0.5 + i
    return x


def error_while_tracing(x):
    y = x * 2
    try:
        y = y + np.ones(7, np.float32)
    except ValueError:
        y = y - 1
    return y


def _numbers(n):
    for i in range(n):
        yield i


def generator(x):
    y = x * 2
    for i in _numbers(3):
        y = y + i
    return y


def user_request(x):
    y = x * 2
    framejit.graph_break()
    return y + 1


def random_order(x):
    y = x * 2
    order = [0, 1, 2]
    random.shuffle(order)
    return y + len(order)


def raises(x):
    y = x * 2
    if y.shape[0] == 2:
        raise ValueError("two rows")
    return y


class _Manager:
    def __enter__(self):
        return 3

    def __exit__(self, *error):
        return False


def context_manager(x):
    y = x * 2
    with _Manager() as value:
        y = y + value
    return y * 2


def data_dependent_shape(x):
    y = x * 2
    z = y[y > 0]
    return z + 1 if len(z) > 3 else y


def random_state(x):
    y = x * 2
    r = np.random.default_rng(3).standard_normal(3).astype(np.float32)
    return y + r


def recursion_limit(x):
    def down(n, x):
        return x + 1 if n == 0 else down(n - 1, x * 0.5)

    return down(300, x)


@framejit.disable
def _disabled(x):
    return x + 1


def disabled(x):
    y = x * 2
    y = _disabled(y)
    return y * 3


def warning_given(x):
    y = x * 2
    warnings.warn("careful")
    return y + 1


_lock = threading.Lock()


def lock_taken(x):
    y = x * 2
    with _lock:
        y = y + 1
    return y * 2


#   function, expected reasons (None: may be captured today, only the result counts)
CASES = [
    (unknown_call, "UnknownCall"), (prints, "Print"), (scalar_from_array, "ScalarFromArray"), (branch_on_data, "BranchOnData"),
    (unsupported_array, None), (unsupported_operation, "UnsupportedOperation"), (unsupported_bytecode, "UnsupportedBytecode"),
    (unsupported_object, None), (loop_too_long, None), (error_while_tracing, "ErrorWhileTracing"), (generator, None),
    (user_request, "UserRequest"), (random_order, "RandomState"), (raises, "Raise"), (context_manager, None), (data_dependent_shape, "DataDependentShape"),
    (random_state, None), (recursion_limit, None), (disabled, "Disabled"),
    (warning_given, "Warning"), (lock_taken, "Lock"),
]


def complex_numbers_on_the_way(x):
    return framejit.grad(lambda v: torch.fft.fft(v).abs().sum())(torch.from_numpy(x))


def branch_of_each_example(x):
    return framejit.vmap(lambda row: row if row.sum() > 0 else -row)(x)


# What a transformation of framejit can't do is an error, not a break: there is no eager to go on with.
REFUSED = [
    (complex_numbers_on_the_way, "NoDerivativeRule"), (branch_of_each_example, "OneExample"),
]


@pytest.mark.parametrize("function, reason", REFUSED)
def test_what_a_transformation_refuses_is_named(function, reason):
    if torch is None and "torch" in function.__code__.co_names:
        pytest.skip("torch is not installed in this environment")
    numbers = dict(re.findall(r"FJ_BREAK\( *(\d+), (\w+),", (pathlib.Path(__file__).parents[2] / "segment/breaks.def").read_text()))
    number = next(number for number, name in numbers.items() if name == reason)
    with pytest.raises(framejit.GraphBreakError) as caught:
        function(X)
    line = inspect.getsource(function).splitlines()[1].strip()
    assert f"FJ{number}" in str(caught.value) and line in str(caught.value), caught.value


@pytest.mark.parametrize("function, reason", CASES, ids=[f.__name__ for f, _ in CASES])
def test_break_is_named_and_changes_nothing(function, reason):
    run = same_as_eager(function, X, compiles=reason is not None)
    if reason is not None:
        assert run.breaks and set(run.breaks) == {reason}, run.report
        broken = run.report.breaks[0]
        source = pathlib.Path(broken.file).read_text().splitlines()[broken.line - 1].strip()
        assert source and source in run.report.text()
        assert re.fullmatch(r"FJ\d{3}", broken.number)


def test_fullgraph_turns_a_break_into_an_error_that_explains_itself():
    with pytest.raises(framejit.GraphBreakError, match=r"FJ102(.|\n)*print"):
        framejit.compile(prints, fullgraph=True)(X)


@needs_torch
def test_a_derivative_that_is_torch_s_breaks_there_and_says_so():
    weight = torch.ones(3, requires_grad=True)

    def loss(x):
        y = (x * weight).relu() + 0.5
        y = y // 2  # torch has no derivative of it, and says so when it is asked
        return (y ** 2).sum()

    compiled = framejit.compile(loss)
    x = torch.from_numpy(X.copy())
    for function in (loss, compiled):
        with pytest.raises(RuntimeError, match="derivative for aten::floor_divide is not implemented"):
            function(x).backward()
    report = framejit.explain(compiled).so_far()
    assert [b.name for b in report.breaks] == ["Gradient"] and len(report.graphs) == 2
    assert "floor" in report.breaks[0].text and "FJ123" in report.breaks[0].text
