"""What a `with` (or a decorator) changes for the thread: entered and left inside one graph, and nothing of it left outside."""
import abc
import collections.abc
import contextlib
import contextvars
import functools
import gc
import sys

import numpy as np
import pytest

import framejit
from harness import same_as_eager, needs_torch, torch

X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)


def traits(value):
    if torch is not None and isinstance(value, torch.Tensor):
        version = None if value.is_inference() else value._version
        return value.is_inference(), value.requires_grad, version, value._is_view(), value.dtype, value.tolist()
    return [traits(item) for item in value] if isinstance(value, (tuple, list)) else value


def outcome(function, x):
    try:
        return traits(function(x)), traits(x)
    except RuntimeError as error:
        return str(error).split("\n")[0], traits(x)


def agrees(function, make, outer=contextlib.nullcontext, breaks=0):
    """The function compiled and as written, called twice on fresh arguments under `outer`."""
    framejit.reset()
    compiled = framejit.compile(function)
    results = []
    for run in (function, compiled):
        with outer():
            results.append([outcome(run, make()) for _ in range(2)])
    report, info = framejit.explain(compiled).so_far(), framejit.cache_info()
    assert results[1] == results[0], report
    assert len(report.breaks) <= breaks and info["internal_errors"] == 0 and info["eager_replays"] == 0, report
    return report


# ---- torch's inference mode

def computed_inside_and_outside(x):
    with torch.inference_mode():
        y = x * 2
    return y, y + 1


def written_inside(x):
    with torch.inference_mode():
        y = x * 2
        y.add_(1)
        v = y[0]
    return y, v


def input_written_inside(x):
    with torch.inference_mode():
        x.mul_(3)
    return x + 1


def library_call_inside(x):
    with torch.inference_mode():
        return torch.nn.functional.avg_pool1d(x, 2), x * 2, torch.is_inference_mode_enabled(), torch.is_grad_enabled()


def off_inside(x):
    with torch.inference_mode(False):
        return x * 2, torch.is_inference_mode_enabled()


def drawn_inside(x):
    y = x + 1
    y.bernoulli_(0.5)
    return y.shape


def with_gradients_inside(x):
    weight = x.clone()
    with torch.inference_mode(), torch.enable_grad():
        y, recorded = x * 2, torch.is_grad_enabled()
        parts = torch.cat([x, weight]), x.clone(), torch.nn.functional.linear(x, weight), x.norm(), y.view(-1).requires_grad
    with torch.inference_mode(), torch.set_grad_enabled(True):
        z = x.sum(0)
    return y, parts, z, recorded


INFERENCE = [computed_inside_and_outside, written_inside, input_written_inside, library_call_inside, off_inside, drawn_inside]


@needs_torch
@pytest.mark.parametrize("function", INFERENCE, ids=lambda f: f.__name__)
def test_inference_mode_is_captured(function):
    report = agrees(function, lambda: torch.arange(6.0).reshape(2, 3))
    assert len(report.graphs) == 1
    agrees(function, lambda: torch.arange(6.0).reshape(2, 3), torch.inference_mode, breaks=2 if function is off_inside else 0)


@contextlib.contextmanager
def both_modes():
    with torch.inference_mode(), torch.enable_grad():
        yield


@needs_torch
@pytest.mark.parametrize("outer", [contextlib.nullcontext, both_modes])
@pytest.mark.parametrize("function", [with_gradients_inside, written_inside, library_call_inside], ids=lambda f: f.__name__)
def test_nothing_is_recorded_in_inference_mode_though_gradients_are_on(function, outer):
    agrees(function, lambda: torch.arange(6.0).reshape(2, 3).requires_grad_(), outer)


@needs_torch
@pytest.mark.parametrize("function", INFERENCE, ids=lambda f: f.__name__)
def test_tensors_of_inference_mode_come_in(function):
    def made_inside():
        with torch.inference_mode():
            return torch.arange(6.0).reshape(2, 3)

    agrees(function, made_inside, breaks=2)
    agrees(function, made_inside, torch.inference_mode, breaks=2 if function is off_inside else 0)


@needs_torch
def test_decorated_by_inference_mode():
    @torch.inference_mode()
    def double(x):
        return x * 2

    assert len(agrees(lambda x: double(x) + 1, lambda: torch.arange(6.0)).graphs) == 1


@needs_torch
def test_a_view_made_in_inference_mode_is_python_s_and_a_write_outside_is_refused():
    def view(x):
        with torch.inference_mode():
            v = x[0]
        return v

    def write(x):
        with torch.inference_mode():
            y = x * 2
        return y.add_(1)

    agrees(view, lambda: torch.arange(6.0).reshape(2, 3), breaks=2)
    agrees(write, lambda: torch.arange(6.0), breaks=1)


@needs_torch
def test_gradients_meet_inference_tensors_as_in_eager():
    weight = torch.arange(3.0, requires_grad=True)

    def f(x):
        with torch.inference_mode():
            y = x * 2
        return y * weight

    agrees(f, lambda: torch.arange(3.0), breaks=2)


@needs_torch
def test_requires_grad_of_what_it_is_anyway_is_nothing():
    def f(x):
        y = (x * 2).requires_grad_(False)
        return y.detach().requires_grad_(False) + 1

    def leaf(x):
        return (x * 2).requires_grad_() * 3

    assert len(agrees(f, lambda: torch.arange(3.0)).graphs) == 1
    agrees(leaf, lambda: torch.arange(3.0), breaks=1)
    agrees(leaf, lambda: torch.arange(3.0, requires_grad=True))


# ---- autocast

@needs_torch
def test_autocast_is_captured_and_put_back():
    weight = torch.linspace(-1, 1, 9).reshape(3, 3)

    def products(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ weight + 1
        return y, x @ weight

    def nested(x):
        with torch.autocast("cpu"):
            y, dtype = torch.nn.functional.linear(x, weight), torch.get_autocast_dtype("cpu")
            with torch.autocast("cpu", enabled=False):
                z = x @ weight
            u = x @ weight
        return y, z, u, dtype, torch.is_autocast_enabled("cpu")

    @torch.autocast("cpu", dtype=torch.float16)
    def decorated(x):
        return x @ weight, torch.is_autocast_enabled("cpu")

    for function in (products, nested, decorated):
        for outer in (contextlib.nullcontext, torch.no_grad, functools.partial(torch.autocast, "cpu", dtype=torch.float16)):
            assert len(agrees(function, lambda: torch.arange(6.0).reshape(2, 3), outer).graphs) == 1
            assert not torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") is torch.bfloat16
            assert torch.is_autocast_cache_enabled() and torch.autocast_increment_nesting() == 1
            torch.autocast_decrement_nesting()


@needs_torch
def test_a_break_inside_of_autocast_leaves_it_to_python(capsys):
    def f(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x
            print("between")
            return y @ y

    agrees(f, lambda: torch.arange(4.0).reshape(2, 2), breaks=3)
    assert capsys.readouterr().out == "between\n" * 4


# ---- exit stacks, error states, context variables

class Resource:
    def __init__(self, log):
        self.log = log

    def __enter__(self):
        self.log.append("in")
        return 3

    def __exit__(self, kind, error, traceback):
        self.log.append(kind)
        return kind is KeyError


def stack_of_managers(x):
    log = []
    with contextlib.ExitStack() as stack:
        scale = stack.enter_context(Resource(log))
        stack.callback(log.append, "called")
        stack.push(lambda *details: log.append(details))
        x = x * scale
    return x, log


def stack_that_swallows(x):
    log = []
    with contextlib.ExitStack() as stack:
        stack.enter_context(Resource(log))
        x = x + 1
        raise KeyError("k")
    return x, log


def stack_closed_by_hand(x):
    log = []
    stack = contextlib.ExitStack()
    stack.callback(log.append, 1)
    stack.close()
    return x + len(log)


@pytest.mark.parametrize("function", [stack_of_managers, stack_that_swallows, stack_closed_by_hand], ids=lambda f: f.__name__)
def test_exit_stack_is_captured(function):
    # 3.13's ExitStack asks for the traceback of what it swallows.
    swallows = function is stack_that_swallows and sys.version_info >= (3, 13)
    assert len(same_as_eager(function, X, breaks=("CannotRebuild", "Raise") if swallows else ()).graphs) == 1


@needs_torch
def test_exit_stack_of_grad_modes():
    def f(x):
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.no_grad())
            y = x * 2
        return y, torch.is_grad_enabled()

    agrees(f, lambda: torch.arange(3.0))


def test_exception_handled_by_the_caller_is_not_lost():
    def f(x):
        return x + (1 if sys.exc_info()[0] is None else 2)

    compiled = framejit.compile(f)
    assert (compiled(X) == f(X)).all()
    try:
        raise ValueError
    except ValueError:
        assert (compiled(X) == f(X)).all() and (f(X) == X + 2).all()
    assert (compiled(X) == f(X)).all()


@np.errstate(divide="ignore", invalid="ignore")
def quiet_ratio(x):
    return x / (x - x)


def test_errstate_as_decorator_is_captured():
    same_as_eager(lambda x: quiet_ratio(x), X, breaks=())


def test_errstate_that_raises_or_warns_is_captured():
    def raises(x):
        with np.errstate(over="raise"):
            return np.exp(x) + 1

    def warns_in_ignored(x):
        with np.errstate(all="ignore"):
            with np.errstate(over="warn"):
                y = np.exp(x)
            return np.log(x) + y

    same_as_eager(raises, X, breaks=())
    compiled = framejit.compile(raises)
    with pytest.raises(FloatingPointError, match="overflow"):
        compiled(X + 1000)
    np.testing.assert_allclose(compiled(X), raises(X), rtol=1e-6)
    same_as_eager(warns_in_ignored, np.abs(X), breaks=())


LEVEL = contextvars.ContextVar("LEVEL", default=1)


def test_context_variable_set_and_reset_is_captured():
    def f(x):
        outside = LEVEL.get()
        token = LEVEL.set(outside + 2)
        try:
            return x * LEVEL.get(), outside
        finally:
            LEVEL.reset(token)

    def g(x):
        LEVEL.set(5)
        return x * LEVEL.get()

    run = contextvars.copy_context().run
    assert len(run(same_as_eager, f, X, breaks=()).graphs) == 1
    compiled = framejit.compile(f)
    for level in (4, 7, 4):
        def call():
            LEVEL.set(level)
            return compiled(X), f(X)
        ours, eager = contextvars.copy_context().run(call)
        assert ours[1] == eager[1] == level and (ours[0] == eager[0]).all()
    compiled = framejit.compile(g)

    def set_for_good():
        return compiled(X), LEVEL.get()

    result, level = contextvars.copy_context().run(set_for_good)
    assert level == 5 and (result == X * 5).all() and LEVEL.get() == 1


# ---- questions about the process

def test_answers_of_the_process_are_asked_again():
    def f(x):
        return x * sys.getrecursionlimit(), gc.isenabled()

    compiled, limit = framejit.compile(f), sys.getrecursionlimit()
    try:
        for more in (0, 1, 2):
            sys.setrecursionlimit(limit + more)
            (gc.disable if more == 1 else gc.enable)()
            ours, eager = compiled(X), f(X)
            assert (ours[0] == eager[0]).all() and ours[1] == eager[1]
    finally:
        sys.setrecursionlimit(limit)
        gc.enable()
    assert not framejit.explain(compiled).so_far().breaks


def test_a_question_that_raises_is_an_exception_of_the_program():
    def f(x, device):
        try:
            return x * 2, torch.get_autocast_dtype(device)
        except RuntimeError as error:
            return x * 3, error.args

    torch = pytest.importorskip("torch", reason="torch is not installed")
    compiled = framejit.compile(f)
    for device in ("cpu", "nowhere", "nowhere", "cpu"):
        ours, eager = compiled(X, device), f(X, device)
        assert (ours[0] == eager[0]).all() and ours[1] == eager[1]
    report = framejit.explain(compiled).so_far()
    assert not report.breaks and len(report.graphs) == 2


def test_a_class_registered_later_is_seen():
    class Shape(abc.ABC):
        pass

    class Square:
        pass

    def f(x, thing):
        return x * (2 if isinstance(thing, Shape) else 3 if isinstance(thing, collections.abc.Sized) else 5)

    compiled, square, seen = framejit.compile(f), Square(), []
    for change in (lambda: None, lambda: setattr(Square, "__len__", len), lambda: Shape.register(Square), lambda: None):
        change()
        ours = compiled(X, square)
        assert (ours == f(X, square)).all()
        seen.append(float(ours[0, 0] / X[0, 0]))
    assert seen == [5, 5, 2, 2]  # an abstract class remembers its answers until one is registered
    assert not framejit.explain(compiled).so_far().breaks


def test_dir_follows_the_object_and_its_class():
    class Box:
        pass

    def f(x, box):
        names = dir(box)
        return x * len([name for name in names if name[0] != "_"]), names

    compiled, box = framejit.compile(f), Box()
    for change in (lambda: None, lambda: setattr(box, "b", 1), lambda: setattr(Box, "a", 1), lambda: delattr(box, "b")):
        change()
        ours, eager = compiled(X, box), f(X, box)
        assert ours[1] == eager[1] and (ours[0] == eager[0]).all()
    assert not framejit.explain(compiled).so_far().breaks


def test_answer_of_a_cached_function_is_taken_from_its_cache():
    asked = []

    @functools.lru_cache
    def known(name):
        asked.append(name)
        return len(open(__file__).read()) * 0 + len(name)

    def f(x):
        return x * known("four")

    known("four")
    compiled = framejit.compile(f)
    assert (compiled(X) == X * 4).all() and (compiled(X) == X * 4).all()
    assert known.cache_info().hits == 2 and asked == ["four"]
    assert not framejit.explain(compiled).so_far().breaks
    known.cache_clear()
    assert (compiled(X) == X * 4).all() and asked == ["four", "four"]


# ---- torch.ops

@needs_torch
def test_operators_of_torch_ops_are_nodes():
    def f(x):
        y = torch.ops.aten.slice(x, 0, 0, 2) + 1
        torch.ops.aten.add_(y, 1)
        return torch.ops.aten.mul.Tensor(x, x) + 1, y

    assert len(agrees(f, lambda: torch.arange(6.0).reshape(3, 2)).graphs) == 1


@needs_torch
def test_registered_operators_are_nodes_unless_they_write():
    calls = []

    @torch.library.custom_op("framejit_tests::doubled", mutates_args=())
    def doubled(x: torch.Tensor) -> torch.Tensor:
        calls.append(x.shape)
        return x * 2

    doubled.register_fake(lambda x: torch.empty_like(x))

    @torch.library.custom_op("framejit_tests::filled", mutates_args=("x",))
    def filled(x: torch.Tensor) -> None:
        x.fill_(2)

    def pure(x):
        return torch.ops.framejit_tests.doubled(x + 1) - 1

    def writes(x):
        torch.ops.framejit_tests.filled(x)
        return x + 1

    assert len(agrees(pure, lambda: torch.arange(4.0)).graphs) == 1
    assert len(calls) == 4
    agrees(writes, lambda: torch.arange(4.0), breaks=2)
