"""functools.lru_cache: what its cache counts, and when a piece may rely on what it holds. Strides of what lists pick beside new axes."""
import collections.abc
import functools
import gc
import logging
import sys
import types
import typing
import weakref

import numpy as np
import pytest

import framejit
from harness import assert_same, needs_torch, same_as_eager, torch

X = np.linspace(-1, 1, 12).reshape(3, 4)


def both(make, calls):
    """Results and what the cache counted, of each call; (graphs, breaks)."""
    framejit.reset()
    (f, cached), (g, other) = make(), make()
    compiled = framejit.compile(f)
    for given in calls:
        outcomes = []
        for run, cache in ((compiled, cached), (g, other)):
            try:
                result = run(*given)
            except Exception as error:
                result = type(error), str(error)
            outcomes.append((result, tuple(cache.cache_info())))
        assert_same(*outcomes)
    info = framejit.cache_info()
    assert info["internal_errors"] == 0
    return info["graphs"], info["breaks"], info["eager_replays"]


def test_a_cached_function_that_raises_has_missed():
    def make():
        @functools.lru_cache
        def checked(n):
            if n > 2:
                raise ValueError(f"{n} is too large")
            return n + 1

        def f(x, n):
            try:
                return x * checked(n)
            except ValueError as error:
                return x, str(error)
        return f, checked

    assert both(make, [(X, n) for n in (1, 3, 3, 2, 5, 1)])[2] == 0


def test_arguments_that_put_each_other_out_of_the_cache_are_counted_once():
    def make():
        @functools.lru_cache(maxsize=1)
        def table(n):
            return np.arange(n)

        def f(x):
            return x[:, :3] + table(3), x + table(4)
        return f, table

    assert both(make, [(X + i,) for i in range(5)])[2] == 0


def test_a_small_cache_of_numbers_and_objects():
    def make():
        @functools.lru_cache(maxsize=2)
        def part(n):
            return n * 2 if n < 3 else [n]

        def f(x):
            return x + part(1) + part(2), part(3)[0], x * part(1)
        return f, part

    assert both(make, [(X + i,) for i in range(6)])[2] == 0


def test_a_cache_that_was_cleared_has_counted_nothing_that_did_not_happen():
    def make():
        @functools.lru_cache
        def table(n):
            return [n]

        @functools.lru_cache
        def scale(n):
            return n * 0.5

        def f(x, clear):
            if clear:
                table.cache_clear()
            return x * scale(3) + table(2)[0]
        return f, scale

    both(make, [(X, False), (X, False), (X, False), (X, True), (X, False), (X, True)])


SHAPES = [np.arange(24.0).reshape(3, 8), np.asfortranarray(np.arange(24.0).reshape(3, 8)), np.arange(48.0).reshape(3, 2, 8), np.arange(48.0).reshape(8, 2, 3).T,
          np.arange(3.0).reshape(3, 1), np.arange(24.0).reshape(3, 8)[::-1]]


@pytest.mark.parametrize("x", SHAPES, ids=lambda x: f"{x.shape}{x.strides}")
def test_what_lists_pick_beside_new_axes_has_numpy_s_strides(x):
    def f(x):
        return [x[[0, 1], None], x[range(2), None], x[None, [0, 1]], x[[0, 1], :, None], x[None, [0, 1], None], x[np.array([0, 1]), None], x[..., None, [0, 0]],
                x[None, :, [0, 0]], x[[0, 1], None, 0], x[[0, 1], ..., None], x[np.array([[0], [1]]), None], x[[0, 1], 0:1], x[[0, 1], None, :1, None], x[x[..., 0] > 1, None]]

    framejit.reset()
    compiled = framejit.compile(f)
    actual, expected = compiled(x), f(x)
    assert [part.strides for part in actual] == [part.strides for part in expected]
    assert_same(actual, expected)
    assert framejit.cache_info()["breaks"] == 0


@needs_torch
def test_a_cache_keyed_by_dtypes_and_devices():
    calls = []

    @functools.lru_cache(maxsize=None)
    def mask(n, dtype, device, shape=(1, 2)):
        calls.append(n)
        return torch.tril(torch.ones(n, n, dtype=dtype, device=device))

    def f(x):
        return x * mask(x.shape[0], x.dtype, x.device, (2, 3)) + 1

    x = torch.ones(4, 4)
    compiled = framejit.compile(f)
    for _ in range(3):
        assert_same(compiled(x), f(x))
    assert calls == [4] and len(framejit.explain(compiled).so_far().graphs[-1].nodes) > 1
    assert_same(compiled(x.double()), f(x.double()))
    mask(4, torch.float32, x.device, (2, 3)).mul_(5)  # what the cache holds is what is computed with
    assert_same(compiled(x), f(x))
    mask.cache_clear()
    assert_same(compiled(x), x * torch.tril(x) + 1)
    assert calls == [4, 4, 4]


class Logger(logging.Logger):
    @functools.lru_cache(None)
    def warning_once(self, *arguments, **keywords):
        self.warning(*arguments, **keywords)


LOGGER = Logger("framejit.tests.once")


def test_a_message_that_is_logged_once():
    messages = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())
    LOGGER.addHandler(handler)

    def f(x):
        y = x * 2
        LOGGER.warning_once("be careful")
        return y + 1

    Logger.warning_once.cache_clear()
    compiled = framejit.compile(f)
    for calls in range(4):
        assert_same(compiled(X), f(X))
        assert messages == ["be careful"]
    report = framejit.explain(compiled).so_far()
    assert {"mul", "add"} <= {node.op for node in report.graphs[-1].nodes}  # one graph: the message is in the cache
    Logger.warning_once.cache_clear()
    for calls in range(3):
        assert_same(compiled(X), f(X))
        assert messages == ["be careful"] * 2
    LOGGER.removeHandler(handler)


def test_a_message_that_is_in_the_cache_when_the_function_is_compiled():
    def f(x):
        y = x * 2
        LOGGER.warning_once("known")
        return y + 1

    LOGGER.warning_once("known")
    same_as_eager(f, X, breaks=())


OTHER_MODULE = """
import functools, logging

class Logger(logging.Logger):
    @functools.lru_cache(None)
    def warning_once(self, *arguments):
        self.warning(*arguments)

LOGGER = Logger("framejit.tests.elsewhere")

class State:
    written = None

STATE = State()

def scaled(x, log):
    STATE.written = len(log)
    LOGGER.warning_once(f"scale of {len(x.shape)} axes")
    return x * 2
"""


@pytest.fixture
def elsewhere(monkeypatch):
    """A module of its own, as that of a model's base class is, and what it logs, with what was written by then."""
    module = types.ModuleType("framejit_tests_elsewhere")
    exec(compile(OTHER_MODULE, __file__, "exec"), module.__dict__)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    module.messages = []
    handler = logging.Handler()
    handler.emit = lambda record: module.messages.append((record.getMessage(), module.STATE.written, record.funcName))
    module.LOGGER.addHandler(handler)
    return module


def test_a_function_of_another_module_logs_once_after_what_it_wrote(elsewhere):
    scaled = elsewhere.scaled

    def f(x, log):
        log.append(1)
        return scaled(x + 1, log) + len(log)

    compiled, log = framejit.compile(f), []
    for calls in range(1, 5):
        assert_same(compiled(X, log), (X + 1) * 2 + calls)
        assert elsewhere.messages == [("scale of 2 axes", 1, "warning_once")] and elsewhere.STATE.written == calls
    report = framejit.explain(compiled).so_far()
    assert {"mul", "add"} <= {node.op for node in report.graphs[-1].nodes}
    assert {b.name for b in report.breaks} <= {"UnknownCall", "Lock"}


@needs_torch
def test_code_that_logs_once_is_told_of_a_compiler_all_the_same(elsewhere):
    scaled = elsewhere.scaled

    class Part(torch.nn.Module):
        def forward(self, x):
            if not torch.compiler.is_compiling() and (x == 5).any():
                return x - 1
            return x + 1

    part = Part()

    def f(x, log):
        return scaled(part(x), log) + 1

    compiled, x = framejit.compile(f), torch.arange(4.0)
    for _ in range(4):
        assert_same(compiled(x, []), (x + 1) * 2 + 1)
    assert len(elsewhere.messages) == 1
    report = framejit.explain(compiled).so_far()
    assert {b.name for b in report.breaks} <= {"UnknownCall", "Lock"}, report
    assert {"mul", "add"} <= {node.op for node in report.graphs[-1].nodes}  # the last trace is whole


@pytest.mark.parametrize("text", [
    "typing.Optional[int]", "typing.Union[int, str]", "typing.List[int]", "list[int]", "typing.Dict[str, int]", "dict[str, int]",
    "typing.Tuple[int, ...]", "tuple[int, ...]", "int | None", "typing.Sequence[np.ndarray]", "abc.Sized | None", "abc.Sized | abc.Iterable | int",
    "list[int] | None", "dict[str, list[int]]", "dict[str, list[int | None] | None] | int", "ALIAS | None", "dict[str, ALIAS]", "None | ALIAS | int"])
def test_types_with_parameters(text):
    space = {"typing": typing, "np": np, "abc": collections.abc, "ALIAS": list[int]}
    exec(f"def f(x):\n    y = np.tanh(x)\n    kind = {text}\n    return y + 1, kind is not None, str(kind), kind\n", space)
    f = space["f"]
    f(X)  # typing keeps what it has made
    compiled = framejit.compile(f)
    for _ in range(3):
        ours, eager = compiled(X), f(X)
        assert_same(ours[:3], eager[:3])
        assert ours[3] == eager[3]
    assert framejit.cache_info()["internal_errors"] == 0
    annotated = {"typing": typing, "np": np, "abc": collections.abc, "ALIAS": list[int]}
    exec(f"def f(x):\n    y = np.tanh(x)\n    def g(v: {text}): return v + 1\n    return g(y)\n", annotated)
    same_as_eager(annotated["f"], X, breaks=())


def test_a_class_that_joins_classes_itself():
    class Joins(type):
        def __or__(cls, other):
            return f"{cls.__name__} or {other.__name__}"

    class A(metaclass=Joins):
        pass

    def f(x):
        return np.tanh(x) + len(A | int)

    same_as_eager(f, X)


def test_a_cache_keyed_by_an_object_that_goes():
    class Thing:
        pass

    @functools.lru_cache(maxsize=4)
    def made(thing, n):
        return n * 2

    def f(x, thing):
        return x * made(thing, 3) + 1

    compiled = framejit.compile(f)
    thing = Thing()
    gone = weakref.ref(thing)
    for _ in range(3):
        assert_same(compiled(X, thing), f(X, thing))
    made.cache_clear()
    del thing
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("function", [
    lambda x: x * 2 + 1, lambda x: x.sum(axis=0), lambda x: x.T, lambda x: x.reshape(-1), lambda x: x[::-1], lambda x: np.sort(x), lambda x: x[None],
], ids=["pointwise", "sum", "transpose", "reshape", "reversed", "library", "axis"])
def test_an_axis_of_one_element_has_a_stride_of_any_number_of_bytes(function):
    framejit.reset()
    numbers, compiled = np.arange(8.0), framejit.compile(function)
    for stride in (8, 3, -5, 10**9, 2**62, 32):
        x = np.lib.stride_tricks.as_strided(numbers, (1, 4), (stride, 8))
        found, expected = compiled(x), function(x)
        assert found.tolist() == expected.tolist() and found.strides == expected.strides
    assert framejit.cache_info()["internal_errors"] == 0
