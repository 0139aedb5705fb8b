"""A compiled module or callable object follows its class, as the original does, before and after its first call."""
import copy

import pytest

import framejit
from harness import torch

if torch is None:
    pytest.skip("torch is not installed in this environment", allow_module_level=True)

from torch import nn  # noqa: E402
from torch.nn.utils import parametrizations, parametrize, weight_norm  # noqa: E402

X = torch.linspace(-1, 1, 6).reshape(2, 3)
after = pytest.mark.parametrize("calls", [0, 2], ids=["before a call", "after calls"])
through = pytest.mark.parametrize("through", ["original", "wrapper"])


class Tripled(nn.Linear):
    def forward(self, x):
        return super().forward(x) * 3


def set_class(module):
    module.__class__ = Tripled


def normalised_and_back(module):
    parametrizations.weight_norm(module)
    parametrize.remove_parametrizations(module, "weight")


CHANGES = {"class": set_class, "parametrization": parametrizations.orthogonal,
           "removed parametrization": normalised_and_back, "hook that computes the weight": weight_norm}


@after
@through
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_module_s_class_changes(change, through, calls):
    torch.manual_seed(0)
    expected = nn.Linear(3, 3)
    module = copy.deepcopy(expected)
    compiled = framejit.compile(module)
    with torch.no_grad():
        for _ in range(calls):
            compiled(X)
        torch.manual_seed(1)
        change(expected)
        torch.manual_seed(1)
        change(module if through == "original" else compiled)
        for _ in range(2):
            torch.testing.assert_close(compiled(X), expected(X))
            torch.testing.assert_close(module(X), expected(X))
    assert compiled.__class__ is type(module) and isinstance(compiled, type(module))


def test_a_lazy_module_becomes_what_it_stands_for():
    compiled = framejit.compile(nn.LazyLinear(2))
    shape = compiled(X).shape
    assert shape == (2, 2) and compiled.__class__ is nn.Linear and type(copy.deepcopy(compiled)) is nn.Linear
    torch.testing.assert_close(compiled(X), X @ compiled.weight.T + compiled.bias)


def replaced(self, x):
    return x * 100


def called(self, x):
    return self.forward(x) + 7


@after
@pytest.mark.parametrize("method, function", [("forward", replaced), ("__call__", called)])
@pytest.mark.parametrize("kind", ["own", "inherited", "reached by super"])
def test_a_module_s_class_gets_another_method(kind, method, function, calls):
    class Base(nn.Module):
        def forward(self, x):
            return x + 1

    class Derived(Base):
        pass

    class Overriding(Base):
        def forward(self, x):
            return super().forward(x) * 3

    module = {"own": Base, "inherited": Derived, "reached by super": Overriding}[kind]()
    compiled = framejit.compile(module)
    for _ in range(calls):
        compiled(X)
    for patched in (True, False):
        if patched:
            before = vars(Base).get(method)
            setattr(Base, method, function)
        elif before is None:
            delattr(Base, method)
        else:
            setattr(Base, method, before)
        for _ in range(2):
            torch.testing.assert_close(compiled.forward(X), module.forward(X))
            torch.testing.assert_close(compiled(X), module(X))
    assert framejit.cache_info()["internal_errors"] == 0


@after
def test_a_callable_object_s_class_changes(calls):
    class Plus:
        def __call__(self, x):
            return x + 1

    class Twice(Plus):
        def __call__(self, x):
            return super().__call__(x) * 2

    original = Plus()
    compiled = framejit.compile(original)
    caller = framejit.compile(lambda x: compiled(x) - 1)
    for _ in range(calls):
        assert compiled(3) == 4 and caller(3) == 3
    original.__class__ = Twice
    assert compiled(3) == 8 and caller(3) == 7
    Plus.__call__ = lambda self, x: x + 5
    assert compiled(3) == 16 and caller(3) == 15
    compiled.__class__ = Plus
    assert type(original) is Plus and compiled(3) == original(3) == 8


def test_what_its_class_makes_has_no_original():
    compiled = framejit.compile(nn.Linear(3, 2))
    replica = type(compiled).__new__(type(compiled))  # as DataParallel does
    replica.__dict__ = compiled.__dict__.copy()
    torch.testing.assert_close(replica(X), compiled(X))
    assert replica.__class__ is nn.Linear


def test_compiled_twice_is_compiled_once_with_the_last_options():
    module = nn.Linear(3, 2)
    once = framejit.compile(module, dynamic=True)
    twice = framejit.compile(once, dynamic=False)
    assert twice.__class__ is nn.Linear and type(twice).__bases__ == (nn.Linear,)
    assert framejit._core.options_of(twice.forward.__func__)["dynamic"] == "false"
    torch.testing.assert_close(twice(X), module(X))
