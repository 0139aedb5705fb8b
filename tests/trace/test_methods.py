"""Bound methods of compiled functions behave as CPython's, and `using` keeps the object."""
import copy
import functools
import inspect
import pickle
import types
import weakref

import numpy as np

import framejit

X = np.arange(6, dtype=np.float32)


class Model:
    def __init__(self, k):
        self.k = k

    @framejit.compile
    def step(self, x, *, shift=1):
        """Steps."""
        return x * self.k + shift

    def plain(self, x):
        return x - self.k


def test_using_on_a_bound_method_keeps_the_object():
    model = Model(3)
    other = model.step.using(backend="reference")
    np.testing.assert_array_equal(other(X), X * 3 + 1)
    np.testing.assert_array_equal(other(X, shift=2), X * 3 + 2)
    np.testing.assert_array_equal(framejit.compile(model.plain).using(backend="eager")(X), X - 3)
    assert other.__self__ is model


def test_a_bound_method_looks_like_one():
    model = Model(3)
    method = model.step
    assert isinstance(method, types.MethodType) and inspect.ismethod(method)
    assert method == model.step and hash(method) == hash(model.step) and method != Model(3).step
    assert method.__self__ is model and method.__func__ is Model.step and method.__name__ == "step" and method.__doc__ == "Steps."
    assert list(inspect.signature(method).parameters) == ["x", "shift"]
    assert weakref.ref(method)() is method
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(method))(X), X * 3 + 1)
    np.testing.assert_array_equal(copy.copy(method)(X), X * 3 + 1)
    np.testing.assert_array_equal(list(map(method, [X]))[0], X * 3 + 1)
    np.testing.assert_array_equal(method(*[X], **{"shift": 5}), X * 3 + 5)


def test_a_compiled_method_kept_in_an_object_is_traced_through():
    model = Model(3)

    class Holder:
        def __init__(self):
            self.step = model.step

    def f(holder, x):
        return holder.step(x) * 2

    compiled = framejit.compile(f, fullgraph=True)
    for _ in range(2):
        np.testing.assert_array_equal(compiled(Holder(), X), (X * 3 + 1) * 2)
    assert framejit.cache_info()["graphs"] == 1


def test_compiled_special_methods_are_called_by_what_is_traced():
    class Box:
        @framejit.compile
        def __init__(self, k=None):
            self.k = 5 if k is None else k

        @framejit.compile
        def __len__(self):
            return self.k

        @framejit.compile
        def __bool__(self):
            return self.k > 5

        @framejit.compile
        def __add__(self, other):
            return other * self.k

    Box.__neg__ = functools.partialmethod(Box.__add__, 3)

    def f(x):
        box, large = Box(), Box(6)
        return box + x, len(box), bool(box), bool(large), -large

    compiled = framejit.compile(f)
    for _ in range(2):
        array, *others = compiled(np.ones(3))
        np.testing.assert_array_equal(array, np.full(3, 5.0))
        assert others == [5, False, True, 18]
