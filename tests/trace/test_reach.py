"""Functions that run while a graph break runs get segments too, to any depth, on that thread; everything else is left alone."""
import functools
import json
import sys
import threading

import numpy as np
import pytest

import framejit
from harness import both_libraries, needs_torch, same_as_eager, torch

X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)


def printing(x):
    y = x * 2 + 1
    print("here")
    return y * 3 - 1


def nested(x, depth):
    if depth == 0:
        return printing(x)
    return nested(x + 1, depth - 1) * 0.5


@pytest.mark.parametrize("depth", [1, 5, 20])
@both_libraries
def test_a_print_many_calls_deep_leaves_everything_around_it_compiled(lib, depth):
    def f(x):
        return nested(x - 1, depth) + 5

    run = same_as_eager(f, lib.sample((3, 4)), calls=3, breaks=["Print"])
    assert {g.name for g in run.graphs} == {"f", "nested", "printing"}
    # Before and after the print: once each in f, in printing and in every level between (a level may share its code's pieces).
    before = framejit.cache_info()["kernels_launched"]
    run.compiled(lib.sample((3, 4)))
    assert framejit.cache_info()["kernels_launched"] - before >= 2 * depth + 4


def test_the_second_call_traces_nothing():
    def f(x):
        return nested(x - 1, 6) + 5

    compiled = framejit.compile(f)
    compiled(X)
    before = framejit.cache_info()["segments"]
    np.testing.assert_array_equal(compiled(X), f(X))
    np.testing.assert_array_equal(compiled(X + 1), f(X + 1))
    assert framejit.cache_info()["segments"] == before


class Layer:
    def __init__(self, k):
        self.k = k

    @property
    def scaled(self):
        y = X * self.k
        print("property")
        return y + 1

    def __call__(self, x):
        y = x * self.k
        print("call")
        return y + 1

    def __add__(self, other):
        y = other * self.k
        print("add")
        return y + 1

    def __getitem__(self, i):
        y = X[i] * self.k
        print("item")
        return y + 1

    def __enter__(self):
        y = X * self.k
        print("enter")
        return y + 1

    def __exit__(self, *exc):
        print("exit")

    def __next__(self):
        self.k += 1
        if self.k > 4:
            raise StopIteration
        y = X * self.k
        print("next")
        return y + 1

    def __iter__(self):
        return self


def decorated(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        result = function(*args, **kwargs)
        return result * 2
    return wrapper


@decorated
def behind_a_decorator(x):
    y = x * 2
    print("decorated")
    return y + 1


def key_of(x):
    y = (x * 2 + 1).sum()
    print("key")
    return float(y)


REACHED = {
    "a call of an object": lambda x: Layer(2)(x) - 1,
    "a property": lambda x: Layer(2).scaled - x,
    "an operator": lambda x: (Layer(2) + x) - 1,
    "an item": lambda x: Layer(2)[1] - x,
    "a decorator": lambda x: behind_a_decorator(x) - 1,
    "map": lambda x: sum(map(printing, [x, x + 1])) - 1,
    "a sort key": lambda x: sorted([x + 2, x, x + 1], key=key_of)[0] - 1,
    "a partial": lambda x: functools.partial(printing, x + 1)() - 1,
    "a method": lambda x: Layer(2).__call__(x) - 1,
}


@pytest.mark.parametrize("function", REACHED.values(), ids=REACHED.keys())
def test_functions_reached_through_c_are_compiled(function):
    run = same_as_eager(function, X, calls=3)
    assert len(run.graphs) >= 3  # before and after the print, and after the call


def test_a_context_manager_and_an_iterator_of_the_users():
    def f(x):
        with Layer(3) as y:
            x = x + y
        for y in Layer(1):
            x = x * 0.5 + y
        return x

    run = same_as_eager(f, X, calls=3)
    assert len(run.graphs) >= 5


@needs_torch
def test_a_print_in_a_layer_of_a_deep_model():
    class Block(torch.nn.Module):
        def __init__(self, depth):
            super().__init__()
            self.inner = Block(depth - 1) if depth else None
            self.linear = torch.nn.Linear(4, 4)

        def forward(self, x):
            y = torch.relu(self.linear(x) * 2)
            if self.inner is None:
                print("bottom")
                return torch.tanh(y + 1)
            return self.inner(y) * 0.5 + y

    model = Block(20)
    with torch.no_grad():
        compiled = framejit.compile(model)
        x = torch.randn(3, 4)
        for _ in range(3):
            assert torch.allclose(compiled(x), model(x), rtol=1e-5, atol=1e-6)
    report = framejit.explain(compiled).so_far()
    assert [b.name for b in report.breaks] == ["Print"]
    before = framejit.cache_info()["kernels_launched"]
    with torch.no_grad():
        compiled(x)
    assert framejit.cache_info()["kernels_launched"] - before >= 42  # two per block
    assert framejit.cache_info()["internal_errors"] == 0


def plain(n):
    return sum(i * i for i in range(n)) + helper(n)


def helper(n):
    return len(str(n))


def test_functions_without_arrays_are_left_to_cpython(capsys):
    logged = []
    framejit.set_logs("fallbacks", sink=lambda artifact, text: logged.append(text))
    try:
        def f(x):
            y = x * 2
            print(plain(5))
            return y + 1

        compiled = framejit.compile(f)
        for _ in range(6):
            np.testing.assert_array_equal(compiled(X), X * 2 + 1)
    finally:
        framejit.set_logs()
    assert framejit.cache_info()["eager_replays"] == 0
    assert capsys.readouterr().out == "31\n" * 6
    assert len([text for text in logged if "left to CPython: plain" in text]) <= 1


def refuse(n):
    sys.getswitchinterval()
    raise ValueError(f"{n} elements")


@pytest.mark.parametrize("call, error", [(refuse, "ValueError: 12 elements"), (lambda n: json.loads("[" * n), "JSONDecodeError: Expecting value: "
                                         "line 1 column 13 (char 12)")])
def test_a_function_that_raises_when_it_is_left_to_cpython_still_raises(call, error):
    def f(x):
        y = x * 2
        call(x.size)
        return y

    logged = []
    framejit.set_logs("fallbacks", sink=lambda artifact, text: logged.append(text))
    try:
        compiled = framejit.compile(f)
        for _ in range(6):
            with pytest.raises(ValueError) as raised:
                compiled(X)
            assert f"{type(raised.value).__name__}: {raised.value}" == error
    finally:
        framejit.set_logs()
    assert [text for text in logged if "left to CPython" in text] != []


def test_the_hook_is_gone_when_the_call_is_over():
    def f(x):
        y = x * 2
        nested(x, 3)
        return y + 1

    compiled = framejit.compile(f)
    before = framejit._core.evaluator()  # torch's own, where a test has used torch.compile
    for _ in range(3):
        compiled(X)
        assert framejit._core.evaluator() == before


def test_an_exception_out_of_a_reached_function_has_its_traceback():
    def bottom(x):
        y = x * 2
        print("bottom")
        raise ValueError(str(float(y.sum())))

    def middle(x):
        try:
            return bottom(x + 1)
        finally:
            print("finally")

    def f(x):
        try:
            return middle(x * 2)
        except ValueError as error:
            lines = []
            tb = error.__traceback__
            while tb is not None:
                lines.append((tb.tb_frame.f_code.co_name, tb.tb_lineno))
                tb = tb.tb_next
            return x + 1, str(error), lines

    same_as_eager(f, X, calls=4)


def test_what_a_reached_function_sees_of_the_stack_is_true():
    def who():
        frame, names = sys._getframe(1), []
        while frame is not None and len(names) < 4:
            names.append((frame.f_code.co_name, frame.f_lineno, sorted(frame.f_locals)))
            frame = frame.f_back
        return names[:3]

    def inner(x):
        y = x + 1
        seen = who()
        return y * 2, seen

    def f(x):
        z = x * 3
        result, seen = inner(z)
        return result - z, seen

    same_as_eager(f, X, calls=4)


def test_recursion_is_bounded_by_pythons_limit_and_by_nothing_less():
    def down(x, n):
        if n == 0:
            print("end")
            return x
        return down(x + 1, n - 1) * 1.0

    def f(x, n):
        return down(x, n) * 2

    same_as_eager(f, X, 300, calls=2)

    def endless(x):
        print(end="")
        return endless(x + 1)

    compiled = framejit.compile(lambda x: endless(x * 2))
    with pytest.raises(RecursionError):
        compiled(X)
    same_as_eager(lambda x: printing(x), X)


def test_generators_coroutines_and_class_bodies_are_left_to_cpython():
    def numbers(x):
        for i in range(3):
            y = x * i
            print("yield", i)
            yield y + 1

    async def later(x):
        y = x + 1
        print("later")
        return y * 2

    def run(coroutine):
        try:
            coroutine.send(None)
        except StopIteration as stop:
            return stop.value

    def f(x):
        total = x * 2
        for y in numbers(x + 1):
            total = total + y

        class Local:
            print("body")
            k = 3

        return total * Local.k + run(later(x))

    same_as_eager(f, X, calls=4)


def test_other_threads_are_not_looked_at():
    seen = []

    def other():
        for _ in range(200):
            seen.append(nested(X, 2).sum())

    def wait(thread):
        thread.start()
        thread.join()
        return 1

    def f(x):
        y = x * 2
        wait(threading.Thread(target=other))
        return y + 1

    import contextlib
    import io

    compiled = framejit.compile(f)
    with contextlib.redirect_stdout(io.StringIO()):
        for _ in range(3):
            np.testing.assert_array_equal(compiled(X), X * 2 + 1)
        expected = nested(X, 2).sum()
    assert set(seen) == {expected}
    assert not any(g.name == "nested" for g in framejit.explain(compiled).so_far().graphs)


def test_several_threads_reach_at_once():
    def f(x, n):
        y = x * n
        return functools.partial(quiet, y)() + 1

    def quiet(x):
        y = x * 2 + 1
        len(threading.enumerate())
        return y * 3

    compiled = framejit.compile(f)
    errors, before = [], framejit._core.evaluator()

    def work(n):
        for _ in range(50):
            if not np.array_equal(compiled(X, n), f(X, n)):
                errors.append(n)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert errors == [] and framejit._core.evaluator() == before


def test_disabled_functions_stay_eager_inside():
    @framejit.disable
    def eager(x):
        return printing(x)

    def f(x):
        return eager(x * 2) + 1

    run = same_as_eager(f, X, calls=3)
    assert not any(g.name == "printing" for g in run.graphs)


def test_a_reset_while_reached_functions_run():
    def inner(x):
        y = x * 2
        framejit.reset()
        return y + 1

    def f(x):
        return inner(x + 1) * 3

    compiled = framejit.compile(f)
    for _ in range(3):
        np.testing.assert_array_equal(compiled(X), ((X + 1) * 2 + 1) * 3)


def test_a_helper_called_with_numbers_first_and_arrays_later():
    def helper(a, b):
        print("helper")
        return a * b + a

    def f(x):
        return helper(2, 3) + helper(x, 3) * 2

    run = same_as_eager(f, X, calls=4)
    assert any(g.name == "helper" for g in run.graphs)


@needs_torch
def test_a_torch_compiled_function_inside_and_the_evaluator_it_installs():
    def body(x):
        y = torch.sin(x)
        print("inside")
        return y * 2

    inner = torch.compile(body, backend="eager")

    def f(x):
        return inner(x * 2) + 1

    compiled = framejit.compile(f)
    x = torch.randn(4)
    before = framejit._core.evaluator()
    with torch.no_grad():
        for _ in range(3):
            assert torch.allclose(compiled(x), torch.sin(x * 2) * 2 + 1, atol=1e-6)
            assert framejit._core.evaluator() == before
            assert torch.equal(inner(x), torch.sin(x) * 2)


def test_no_reference_is_leaked():
    import gc

    class Point:
        pass

    def inner(x, point):
        y = x * 2
        point.seen = callers()
        if point.fails:
            raise ValueError(point)
        return y + 1

    def callers():
        frame = sys._getframe(1)
        return frame.f_code.co_name, len(frame.f_locals)

    def f(x, point):
        try:
            return inner(x + 1, point) * 3
        except ValueError as error:
            return error.args[0].seen

    compiled = framejit.compile(f)
    point = Point()

    def run(repeats):
        for i in range(repeats):
            point.fails = i % 2
            compiled(X, point)

    def growth():
        gc.collect()
        before = sys.getallocatedblocks()
        run(200)
        gc.collect()
        return sys.getallocatedblocks() - before

    run(100)
    counts = sys.getrefcount(point), sys.getrefcount(X)
    assert min(growth(), growth()) < 60
    assert (sys.getrefcount(point), sys.getrefcount(X)) == counts


def test_a_dropped_function_takes_what_it_reached_with_it():
    import gc
    import weakref

    class Big:
        pass

    big = Big()
    gone = weakref.ref(big)

    def make(big):
        def inner(x):
            y = x * 2
            len(dir(big))
            return y + 1

        def f(x):
            return inner(x) * 2

        return framejit.compile(f)

    compiled = make(big)
    for _ in range(3):
        compiled(X)
    del compiled, big
    gc.collect()
    assert gone() is None


def test_a_super_object_in_a_reached_function_follows_its_own_rules():
    class Loud:
        def __setattr__(self, name, value):
            if name == "loud":
                print("loud")
            super().__setattr__(name, value)

    def f(x):
        loud = Loud()
        loud.loud = 2
        return x + loud.loud

    compiled = framejit.compile(f)
    for _ in range(4):
        np.testing.assert_array_equal(compiled(np.ones(3)), np.full(3, 3.0))


def test_a_weak_proxy_follows_its_own_rules():
    import weakref

    class Owner:
        k = 2

    owner = Owner()
    proxy = weakref.proxy(owner)

    def f(x):
        proxy.k = proxy.k + 1
        return x * proxy.k, proxy.__class__ is Owner

    compiled = framejit.compile(f)
    assert compiled(np.ones(2))[0][0] == 3 and compiled(np.ones(2))[0][0] == 4 and compiled(np.ones(2))[1] is True and owner.k == 5


@needs_torch
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("grad", [False, True])
def test_packed_sequences_of_changing_sizes(kind, grad):
    """Packing, the layers and unpacking have sizes that depend on the lengths, beside sizes that change between calls."""
    from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.layers, self.out = torch.nn.Linear(4, 5), getattr(torch.nn, kind)(5, 6, 2, batch_first=True, bidirectional=True), torch.nn.Linear(12, 2)

        def forward(self, x, lengths):
            packed = pack_padded_sequence(self.embed(x).tanh() * 2, lengths.cpu(), batch_first=True, enforce_sorted=False)
            padded, lengths = pad_packed_sequence(self.layers(packed)[0], batch_first=True)
            return self.out(padded).relu().sum((1, 2)) * 2, lengths

    torch.manual_seed(0)
    model = Model()
    compiled = framejit.compile(model)
    for lengths in [[3, 7, 1], [3, 7, 1], [5, 2, 7], [1, 1, 6], [2, 4], [1], [9, 9, 9, 9]]:
        x = torch.randn(len(lengths), max(lengths), 4)
        with torch.set_grad_enabled(grad):
            results = [run(x, torch.tensor(lengths)) for run in (compiled, model)]
        torch.testing.assert_close(*results)
        if grad:
            torch.testing.assert_close(*([*torch.autograd.grad(result[0].sum(), model.parameters())] for result in results))
    for run in (compiled, model):
        with pytest.raises(RuntimeError, match="greater than 0"):
            run(x, torch.tensor([2, 0, 1, 3]))
    info = framejit.cache_info()
    # For sizes that are constants, for symbols, and for a batch of one, which lies otherwise; [2, 0, 1, 3] is torch's to refuse.
    assert info["graphs"] <= 4 and info["eager_replays"] == 1 and info["internal_errors"] == 0, info
    assert framejit.explain(compiled).so_far().breaks == []
