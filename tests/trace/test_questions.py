"""Questions that programs ask of torch, of classes, of code and of tensors while they are traced: answered without a break, and guarded."""
import types
import weakref

import numpy as np
import pytest

import framejit
from harness import assert_same, needs_torch, same_as_eager, torch

X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)


@needs_torch
def test_whether_autocast_is_on_is_asked_of_each_device():
    def f(x):
        return x * 2 if torch.is_autocast_enabled("cpu") else x + 1

    def other(x):
        return x * 2 if torch.is_autocast_enabled("cuda") else x + 1

    x = torch.ones(3)
    compiled, compiled_other = framejit.compile(f), framejit.compile(other)
    for _ in range(2):
        assert_same(compiled(x), f(x))
        assert_same(compiled_other(x), other(x))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert_same(compiled(x), f(x))
            assert_same(compiled_other(x), other(x))
        torch.set_autocast_enabled("cuda", True)
        try:
            assert_same(compiled(x), f(x))
            assert_same(compiled_other(x), other(x))
        finally:
            torch.set_autocast_enabled("cuda", False)


@needs_torch
def test_limits_of_dtypes():
    def f(x):
        return x.clamp(min=torch.finfo(x.dtype).min / 2) * torch.finfo(torch.float16).eps + torch.iinfo(torch.int8).max

    same_as_eager(f, torch.from_numpy(X), breaks=())


@needs_torch
def test_an_attribute_that_a_tensor_lacks():
    def f(x):
        y = x + 1
        if hasattr(x, "mark"):
            y = y * x.mark
        return y, hasattr(y, "mark"), getattr(y, "other", 5)

    same_as_eager(f, torch.from_numpy(X), breaks=())
    x, compiled = torch.from_numpy(X), framejit.compile(f)
    assert_same(compiled(x), f(x))
    x.mark = 3.0
    assert_same(compiled(x), f(x))
    del x.mark
    assert_same(compiled(x), f(x))


@needs_torch
def test_a_size_joined_to_a_tuple():
    def f(x):
        shape = (1,) + x.size()[1:] + (x.size(0),)  # (1, 4, 3)
        return (x + 1).reshape(shape), type(shape)

    same_as_eager(f, torch.from_numpy(X), breaks=())

    def refused(x):
        return x + 1, ("a",) + x.size()

    same_as_eager(refused, torch.from_numpy(X), compiles=False)


def test_attributes_of_code_follow_the_function():
    def one(a, b):
        return a

    def two(b, c, a):
        return b

    def f(x, function):
        code = function.__code__
        names = code.co_varnames
        return x * names.index("a") + code.co_argcount, names, code.co_name

    same_as_eager(f, X, one, breaks=())
    compiled = framejit.compile(f)
    for function in (one, two, one):
        assert_same(compiled(X, function), f(X, function))


class Loud(type):
    def __repr__(cls):
        return f"loud {cls.__name__}"


class Quiet(type):
    pass


@pytest.mark.parametrize("made", [Loud("A", (), {}), Quiet("B", (), {}), int], ids=["own_repr", "quiet", "builtin"])
def test_text_of_a_class(made):
    def f(x, cls):
        return x + 1, str(cls), repr(cls), f"{cls}"

    same_as_eager(f, X, made, compiles=False)


@needs_torch
def test_text_of_a_tensor_s_class():
    def f(x):
        return x * 2 if str(type(x)).startswith("<class 'torch.") else x

    same_as_eager(f, torch.from_numpy(X), breaks=())


class Forwarding(types.ModuleType):
    def __init__(self, inner):
        super().__init__("forwarding")
        self.inner = inner

    def __getattr__(self, name):
        return getattr(self.inner, name)


def test_a_module_whose_class_forwards_attributes():
    module = Forwarding(types.SimpleNamespace(scale=3.0))

    def f(x):
        return x * module.scale, hasattr(module, "scale"), hasattr(module, "missing")

    same_as_eager(f, X, breaks=())


class Held:
    def __init__(self, factor):
        self.factor = factor


def test_a_weakref_whose_object_a_variable_holds():
    def f(x, held, reference):
        return x * held.factor + (1 if reference() is held else 2)

    compiled = framejit.compile(f)
    first, second = Held(2.0), Held(2.0)
    for held, other in ((first, first), (first, second), (second, second)):
        reference = weakref.ref(other)
        assert_same(compiled(X, held, reference), f(X, held, reference))
    report = framejit.explain(compiled).so_far()
    assert report.graphs, report


def test_a_weakref_whose_object_dies_meanwhile():
    def f(x, box, reference):
        y = x + 1
        box.clear()
        return y * 2 if reference() is None else y

    compiled = framejit.compile(f)
    for _ in range(3):
        results = []
        for run in (compiled, f):
            box = [Held(1.0)]
            results.append(run(X, box, weakref.ref(box[0])))
        assert_same(*results)


def test_an_abstract_class_is_asked_again_after_any_registration():
    import abc

    class A(abc.ABC):
        pass

    kinds = [type(f"Kind{i}", (), {}) for i in range(5)]

    class Subject:
        pass

    def f(x, s):
        return x + (1 if isinstance(s, A) else 2)

    compiled = framejit.compile(f)
    for kind in (*kinds, Subject, None):
        assert_same(compiled(X, Subject()), f(X, Subject()))
        if kind:
            A.register(kind)
