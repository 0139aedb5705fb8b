"""Questions that programs ask of torch, of classes, of code and of tensors while they are traced: answered without a break, and guarded."""
import gc
import inspect
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


RECORD = np.dtype([("a", "f8"), ("b", "i4", (2,))])


@pytest.mark.parametrize("question", [
    lambda dtype: sorted(dtype.fields), lambda dtype: dtype.fields["b"][1], lambda dtype: dtype.descr, lambda dtype: dtype["b"].subdtype,
    lambda dtype: dtype["b"].shape, lambda dtype: dtype.names, lambda dtype: dtype.metadata,
], ids=["fields", "field", "descr", "subdtype", "shape", "names", "metadata"])
def test_an_attribute_that_is_made_for_each_question(question):
    def f(x, dtype):
        y = x + 1
        return y, question(dtype)

    same_as_eager(f, X, RECORD, calls=3)
    compiled = framejit.compile(f)
    for dtype in (RECORD, np.dtype([("b", "i4", 3)]), np.dtype([("b", "f4", (2,))], metadata={"m": 1}), RECORD):
        assert_same(compiled(X, dtype), f(X, dtype))


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


def device_of(x, name):
    device = torch.device(name)
    y = torch.ones(3, 4, device=device) + x.to(device)
    return y * 2, device, str(device), f"{device}", repr(device), device.type, x.device == device


@needs_torch
@pytest.mark.parametrize("name", ["cpu", "cpu:0"])
def test_a_device_is_made_and_named(name):
    same_as_eager(device_of, torch.from_numpy(X), name, compiles=name == "cpu", breaks=() if name == "cpu" else None)
    same_as_eager(lambda x: (x * 2, torch.device("cuda", 1).index, torch.device(x.device), torch.device("meta").type), torch.from_numpy(X), breaks=())


@needs_torch
@pytest.mark.parametrize("given", ["nonsense", None, 2.5, "cuda:x"], ids=str)
def test_what_is_no_device_torch_refuses(given):
    same_as_eager(lambda x: (x * 2, torch.device(given)), torch.from_numpy(X), compiles=False)


@needs_torch
def test_buffers_kept_by_the_name_of_a_device():
    class Scaled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.steps = {}

        def forward(self, x):
            if str(x.device) not in self.steps:
                self.steps[str(x.device)] = torch.arange(4, device=x.device)
            return x * 2 + self.steps[str(x.device)]

    same_as_eager(lambda x, module: module(module(x)), torch.from_numpy(X), Scaled(), breaks=())


@needs_torch
def test_a_size_is_made_of_ints():
    def f(x):
        size = torch.Size([x.shape[0], 2, 2])
        other = torch.Size((1,)) + x.shape[:1] + torch.Size(2 * n for n in x.shape)
        return (x + 1).reshape(size), size, size.numel(), other, size == (3, 2, 2), torch.Size(), x.new_zeros(torch.Size([2]))

    same_as_eager(f, torch.from_numpy(X), breaks=())
    for n in (3, 4, 5):
        same_as_eager(f, torch.ones(n, 4), breaks=())
    for given in (["a"], 3, [2.5], [True, 2], [np.int64(2)], {1: 2}):
        same_as_eager(lambda x, given=given: (x * 2, torch.Size(given)), torch.from_numpy(X), compiles=False)


@needs_torch
def test_whether_a_tensor_lies_in_some_memory_format():
    def f(x):
        y = x + 1
        last = y.is_contiguous(memory_format=torch.channels_last), torch.relu(x).is_contiguous(memory_format=torch.channels_last_3d)
        return y * 2, last, x.is_contiguous(memory_format=torch.contiguous_format)

    for shape in ((2, 3, 4, 5), (2, 1, 4, 5), (2, 3, 1, 1), (1, 3, 2, 2), (0, 3, 2, 2), (3, 4), (2, 3, 2, 2, 2)):
        x = torch.ones(shape)
        same_as_eager(f, x, breaks=(), compiles=x.numel() > 0)
        if len(shape) == 4:
            same_as_eager(f, x.contiguous(memory_format=torch.channels_last), breaks=(), compiles=x.numel() > 0)
        if len(shape) == 5:
            same_as_eager(f, x.contiguous(memory_format=torch.channels_last_3d), breaks=())
    same_as_eager(lambda x: (x * 2, x.is_contiguous(memory_format=torch.preserve_format)), torch.ones(2, 3, 4, 5), compiles=False)


@needs_torch
def test_whether_a_tensor_was_made_in_inference_mode():
    def f(x):
        y = x + 1
        with torch.inference_mode():
            z = y * 2
        return y * 3, x.is_inference(), y.is_inference(), z.is_inference(), torch.is_inference(x)

    same_as_eager(f, torch.from_numpy(X), breaks=())
    with torch.inference_mode():
        x = torch.ones(3)
    compiled = framejit.compile(lambda x: x.is_inference())
    assert compiled(x) is True and compiled(torch.ones(3)) is False


class Kind(type):
    def __eq__(cls, other):
        return True

    def __hash__(cls):
        return 1


FUNCTIONS = {np.sin, len, same_as_eager, Quiet}
DTYPES = frozenset({np.dtype("float32"), np.dtype("int8")})
ODD = {Kind("Odd", (), {})}


def test_a_set_of_classes_functions_and_dtypes_is_looked_into():
    def f(x, kind, function):
        y = x + 1 if kind in FUNCTIONS else x - 1
        return y * 2 if x.dtype in DTYPES else y * 3, function in FUNCTIONS, kind not in FUNCTIONS, len(FUNCTIONS)

    same_as_eager(f, X, Quiet, len, breaks=())
    compiled = framejit.compile(f)
    for kind, function in ((Quiet, len), (Loud, np.sin), (int, max), (Quiet, same_as_eager)):
        assert_same(compiled(X, kind, function), f(X, kind, function))
    FUNCTIONS.discard(Quiet)
    try:
        assert_same(compiled(X, Quiet, len), f(X, Quiet, len))
    finally:
        FUNCTIONS.add(Quiet)
    assert_same(compiled(X, Quiet, len), f(X, Quiet, len))


def test_classes_that_say_themselves_what_they_are_equal_to_are_asked_by_python():
    same_as_eager(lambda x, kind: x * 2 if kind in ODD else x, X, Quiet, compiles=False)


def test_a_set_of_classes_changed_in_the_trace():
    def f(x, seen):
        seen.add(int)
        for kind in seen | {str}:
            x = x * len(kind.__name__)
        return x, seen

    for _ in range(2):
        seen = {float, Quiet}
        assert_same(framejit.compile(f)(X, set(seen)), f(X, set(seen)))


def test_an_object_in_a_set_is_let_go_as_eagerly():
    class Thing:
        pass

    def made(kind):
        def closure():
            return kind

        class Local:
            pass

        return {"instance": Thing(), "closure": closure, "class": Local}[kind]

    for kind in ("instance", "closure", "class"):
        compiled = framejit.compile(lambda x, held: x + len(held))
        thing = made(kind)
        gone = weakref.ref(thing)
        for _ in range(2):
            assert_same(compiled(X, {thing}), X + 1)
        del thing
        gc.collect()  # a class is in a cycle with itself
        assert gone() is None, kind


class ByTag(type):
    def __instancecheck__(cls, instance):
        return getattr(instance, "tag", None) == cls.__name__

    def __subclasscheck__(cls, other):
        return other.__name__.startswith(cls.__name__)


class Tagged(metaclass=ByTag):
    pass


class TaggedToo(Tagged):
    pass


class Other:
    tag = "Tagged"


class Shaped(metaclass=type("ByShape", (type,), {"__instancecheck__": lambda cls, instance: hasattr(instance, "shape")})):
    pass


def test_a_metaclass_says_what_its_instances_are():
    def f(x, a, b, c):
        y = x * 2
        for value in (a, b, c, x, 3):
            y = y * 3 + isinstance(value, Tagged) + 5 * isinstance(value, (int, TaggedToo)) + 7 * isinstance(value, Shaped)
        return y

    same_as_eager(f, X, Other(), Tagged(), TaggedToo(), breaks=())  # an instance of a derived class without the tag is none
    same_as_eager(lambda x: x + 1 if isinstance(x, Shaped) else x, X, breaks=())


def test_a_metaclass_says_what_its_subclasses_are():
    def f(x):
        y = x * (1 + issubclass(TaggedToo, Tagged) + 2 * issubclass(Tagged, TaggedToo))
        return y + 4 * issubclass(Other, (Tagged, Shaped)) + 8 * issubclass(Tagged, Tagged)

    same_as_eager(f, X, breaks=())


def test_what_a_metaclass_says_is_followed():
    def f(x, a):
        return x + 1 if isinstance(a, Tagged) else x - 1

    compiled, other = framejit.compile(f), Other()
    for tag in ("Tagged", "Untagged", "Tagged", None):
        other.tag = tag
        assert_same(compiled(X, other), f(X, other))

    def failing(x, a):
        try:
            return x + isinstance(a, Raising)
        except KeyError as error:
            return x * 2, str(error)

    same_as_eager(failing, X, 3, breaks=())


class Raising(metaclass=type("Raises", (type,), {"__instancecheck__": lambda cls, instance: {}[instance]})):
    pass


class Base:
    scale = 1


class Double(Base):
    scale = 2


class Triple(Base):
    scale = 3


def test_classes_that_are_derived_from_one():
    def f(x):
        for derived in Base.__subclasses__():
            x = x * derived.scale
        known = {derived.__name__: derived for derived in Base.__subclasses__()}
        return x + known["Triple"].scale, len(Double.__subclasses__()), Base.__subclasses__()

    same_as_eager(f, X, breaks=())


def test_a_class_that_is_derived_later():
    def f(x):
        y = x + 1
        return y * len(Base.__subclasses__()), [derived.__name__ for derived in Base.__subclasses__()]

    compiled = framejit.compile(f)
    assert_same(compiled(X), f(X))

    class Later(Base):
        pass

    assert_same(compiled(X), f(X))
    assert_same(compiled(X), f(X))
    del Later
    gc.collect()
    assert f(X)[1] == ["Double", "Triple"]
    assert_same(compiled(X), f(X))


def test_getattr_static_asks_the_class_of_each_call():
    class A:
        k = 1.0

    class B(A):
        k = 2.0

        @property
        def p(self):
            return 3.0

    def of_a_class(x, cls):
        return x * inspect.getattr_static(cls, "k")

    def with_a_default(x, cls):
        return x * (2.0 if inspect.getattr_static(cls, "p", None) is None else 5.0)

    def of_an_object(x, o):
        return x * inspect.getattr_static(type(o), "k"), isinstance(inspect.getattr_static(type(o), "p", 1), property)

    def without(x, cls):
        try:
            return x * inspect.getattr_static(cls, "nothing")
        except AttributeError as error:
            return x + 1, str(error)

    x = np.ones(3)
    for f, first, second in ((of_a_class, A, B), (with_a_default, A, B), (with_a_default, B, A), (of_an_object, A(), B()), (without, A, B)):
        compiled = framejit.compile(f)
        for given in (first, second, first, second):
            assert_same(compiled(x, given), f(x, given))
    compiled = framejit.compile(of_a_class)
    assert_same(compiled(x, A), of_a_class(x, A))
    A.k = 7.0
    assert_same(compiled(x, A), of_a_class(x, A))
