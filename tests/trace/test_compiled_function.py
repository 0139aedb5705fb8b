"""The wrapper object: it is called, bound, pickled, inspected and collected as the function it stands for."""
import copy
import functools
import gc
import inspect
import pickle
import threading
import weakref

import numpy as np
import pytest

import framejit


def twice_plus_one(graph, example_inputs):
    return lambda x: [x * 2 + 1]


def double(x, k=2):
    """Doubles."""
    return x * 2 + 1


@framejit.compile
def at_module_level(n):
    return n + 1


class Thing:
    base = 3

    @framejit.compile
    def method(self, k):
        return self.base + k

    @staticmethod
    @framejit.compile
    def static(k):
        return k + 1

    @classmethod
    @framejit.compile
    def of_class(cls, k):
        return cls.__name__, k


def test_methods_class_methods_and_static_methods():
    thing = Thing()
    assert [thing.method(1), Thing.method(thing, k=2), Thing.static(1), thing.static(1)] == [4, 5, 2, 2]
    assert Thing.of_class(2) == thing.of_class(2) == ("Thing", 2)
    bound = framejit.compile(Thing().method)
    assert bound(1) == 4 and bound.__self__.base == 3


def test_it_looks_like_the_function():
    compiled = framejit.compile(double)
    assert (compiled.__name__, compiled.__doc__, compiled.__module__) == ("double", "Doubles.", __name__)
    assert inspect.signature(compiled) == inspect.signature(double) and compiled.__wrapped__ is double
    assert compiled.__defaults__ == (2,) and compiled.__code__ is double.__code__
    compiled.tag = 5
    assert double.tag == 5 and callable(compiled) and "double" in repr(compiled)
    del compiled.tag
    assert functools.wraps(compiled)(lambda: None).__name__ == "double"


def test_pickling_and_copying():
    assert pickle.loads(pickle.dumps(at_module_level)) is at_module_level
    compiled = framejit.compile(double, fullgraph=True)
    again = pickle.loads(pickle.dumps(compiled))
    assert isinstance(again, framejit.CompiledFunction) and again.__wrapped__ is double
    assert copy.deepcopy(compiled) is compiled and copy.copy(compiled) is compiled


def test_a_call_that_repeats_makes_no_frame_and_a_changed_size_one_recompile():
    compiled = framejit.compile(double, backend=twice_plus_one)
    for n in (3, 3, 4, 5, 6):
        np.testing.assert_array_equal(compiled(np.ones(n, np.float32)), np.full(n, 3, np.float32))
    info = framejit.cache_info()
    assert (info["segments"], info["recompiles"], info["internal_errors"]) == (2, 1, 0)


def test_arguments_are_bound_as_python_does():
    def f(a, /, b, c=3, *rest, d, e=5, **more):
        return a, b, c, rest, d, e, more

    compiled = framejit.compile(f)
    for args, kwargs in [((1, 2), {"d": 4}), ((1,), {"b": 2, "d": 4}), ((1, 2, 3, 4, 5), {"d": 6, "z": 7}), ((1, 2), {"d": 4, "a": 9}),
                         ((1, 2), {}), ((), {}), ((1, 2), {"b": 3, "d": 4})]:
        for _ in range(2):
            try:
                expected = f(*args, **kwargs)
            except TypeError as error:
                with pytest.raises(TypeError) as raised:
                    compiled(*args, **kwargs)
                assert str(raised.value) == str(error)
            else:
                assert compiled(*args, **kwargs) == expected


def test_replaced_code_and_defaults_take_effect():
    def f(x, k=1):
        return x + k

    compiled = framejit.compile(f)
    assert compiled(1) == 2
    f.__defaults__ = (10,)
    assert compiled(1) == 11
    f.__code__ = (lambda x, k: x * k).__code__
    assert compiled(2) == 20


def test_exceptions_go_to_the_function_s_own_handlers_with_its_lines():
    def f(xs):
        out = []
        for x in xs:
            try:
                out.append(10 // x)
            except ZeroDivisionError as error:
                out.append(str(error))
            finally:
                out.append("f")
        return out[0] // xs[-1]

    compiled = framejit.compile(f)
    assert compiled([1, 0, 2]) == f([1, 0, 2])
    with pytest.raises(ZeroDivisionError) as raised:
        compiled([1, 0])
    assert raised.traceback[-1].lineno == f.__code__.co_firstlineno + 8


def test_generators_are_left_alone():
    @framejit.compile
    def count(n):
        yield from range(n)

    assert list(count(3)) == [0, 1, 2]


def test_recursion_and_its_limit():
    @framejit.compile
    def down(n):
        return 0 if n == 0 else 1 + down(n - 1)

    assert down(20) == 20
    with pytest.raises(RecursionError):
        down(10**6)


def test_one_function_on_several_threads():
    def f(xs):
        total = 0
        for x in xs:
            total += max(x, 1)
        return total

    compiled, results = framejit.compile(f), []
    threads = [threading.Thread(target=lambda: results.extend(compiled([1, 0, k]) for k in range(40))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == sorted([f([1, 0, k]) for k in range(40)] * 6)


def test_nothing_is_kept_alive():
    def make():
        def f(x):
            return x * 2 + 1

        return framejit.compile(f, backend=twice_plus_one)

    dead = []
    for _ in range(20):
        compiled = make()
        compiled(np.ones(3))
        dead.append(weakref.ref(compiled))
    del compiled
    gc.collect()
    assert not any(reference() for reference in dead)


def test_callable_objects_keep_their_class():
    class Adder:
        def __init__(self, by):
            self.by = by

        def __call__(self, x):
            return x + self.by

    adder = Adder(5)
    compiled = framejit.compile(adder)
    assert compiled(1) == 6 and isinstance(compiled, Adder) and compiled.by == 5
    adder.by = 7
    assert compiled(1) == 8 and type(copy.deepcopy(compiled)) is Adder


def test_using_compiles_once_per_call_site_s_options():
    compiled = framejit.compile(double)
    assert compiled.using(backend=twice_plus_one) is compiled.using(backend=twice_plus_one) is not compiled
    assert compiled.using(backend=twice_plus_one)(np.ones(2))[0] == 3


def test_disabled_callees_run_as_written():
    calls = []

    @framejit.disable
    def plain(x):
        calls.append(framejit.is_compiling())
        return x

    @framejit.compile
    def f(x):
        return plain(x)

    assert f(1) == 1 and f(2) == 2 and calls == [False, False]


def test_an_option_of_a_block_wins_inside_it():
    compiled = framejit.compile(double, backend=twice_plus_one)
    with framejit.options(disable=True):
        compiled(np.ones(2))
    assert framejit.cache_info()["segments"] == 0


def test_using_of_objects_and_modules():
    class Scaled:
        def __call__(self, x):
            return x * 2

    compiled = framejit.compile(Scaled())
    eager = compiled.using(backend="eager")
    assert eager is compiled.using(backend="eager") and eager is not compiled
    assert np.array_equal(eager(np.ones(3)), compiled(np.ones(3)))
    torch = pytest.importorskip("torch", reason="torch is not installed")

    class Own(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.using = torch.nn.Linear(2, 2)

        def forward(self, x):
            return self.using(x)

    linear, own = torch.nn.Linear(2, 2), Own()
    x = torch.ones(1, 2)
    report = framejit.explain(framejit.compile(linear, dynamic=False).using(dynamic=True))(x)
    assert torch.equal(report.result, linear(x)) and "s0" in str(report.graphs[0])
    assert framejit.compile(own).using is own.using  # a module's own name comes first
    assert torch.equal(framejit.compile(own)(x), own(x))
