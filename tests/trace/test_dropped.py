"""What belongs to a compiled object goes with it: the pieces' references are seen by Python's garbage collector."""
import gc
import weakref

import numpy as np
import pytest

import framejit
from harness import needs_torch, torch

pytestmark = pytest.mark.filterwarnings("ignore")


class Scaled:
    factor = 2.0

    def __init__(self):
        self.weight = np.ones(4)

    def __call__(self, x):
        return np.tanh(x * self.factor) * self.weight


class Chained(Scaled):
    """Its pieces are of several functions, reached at a break."""

    def __call__(self, x):
        print(end="")
        return sorted([x.sum(), self.deeper(x)])[0] + len(self.__class__.__name__)

    def deeper(self, x):
        return np.exp(x * self.factor).sum()


def stack():
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.BatchNorm1d(4))


class Residual(torch.nn.Module if torch else object):
    def __init__(self):
        super().__init__()
        self.inner = stack()

    def forward(self, x):
        return x + self.inner(x)


def closure_over_itself():
    def f(x, depth=2):
        return np.cos(x) if depth == 0 else compiled(x * holder.factor, depth - 1)

    holder = Scaled()
    holder.user = compiled = framejit.compile(f)
    return compiled


def kept_by_its_class():
    class Local:
        factor = 3.0

        @framejit.compile
        def run(self, x):
            return np.sin(x) * self.factor

        def __call__(self, x):
            return self.run(x)

    return Local()


OF_NUMPY = [Scaled, Chained, closure_over_itself, kept_by_its_class]


def dropped(make, x):
    """What is still there of 20 compiled objects, called and dropped."""
    watched = []
    for _ in range(20):
        made = make()
        compiled = framejit.compile(made) if make not in (closure_over_itself, kept_by_its_class) else made
        for _ in range(2):
            compiled(x)
        watched.append(weakref.ref(compiled))
        if not isinstance(compiled, framejit.CompiledFunction):
            watched.append(weakref.ref(type(compiled)))
        del made, compiled
    gc.collect()
    return [kept() for kept in watched if kept() is not None]


@pytest.mark.parametrize("make", OF_NUMPY)
def test_objects_and_functions_of_numpy_go(make):
    assert dropped(make, np.linspace(0, 1, 4)) == []


@needs_torch
@pytest.mark.parametrize("make", [stack, Residual])
@pytest.mark.parametrize("training", [False, True])
def test_modules_go(make, training):
    def used():
        return make().train(training)

    assert dropped(used, torch.ones(3, 4, requires_grad=training)) == []


@needs_torch
def test_pieces_go_with_their_modules():
    def kept():
        gc.collect()
        return framejit.cache_info()["kept_segments"]

    before = kept()
    for _ in range(10):
        framejit.compile(stack())(torch.ones(3, 4))
    assert kept() == before


@needs_torch
def test_namespaces_go():
    """Calls of the library are made by functions with the user's globals."""
    watched = []
    for _ in range(10):
        namespace = {"torch": torch, "framejit": framejit, "scaled": Scaled()}
        exec("@framejit.compile\ndef f(x):\n    return torch.cov(x) * scaled.factor\n", namespace)
        namespace["f"](torch.ones(3, 4))
        watched.append(weakref.ref(namespace["scaled"]))
        del namespace
    gc.collect()
    assert [kept() for kept in watched if kept() is not None] == []


def test_code_goes_with_its_function():
    watched = []
    for k in range(20):
        namespace = {"np": np}
        exec(f"def f(x):\n    y = np.tanh(x * {k}.5)\n    print(end='')\n    return y + {k}\n", namespace)
        watched.append(weakref.ref(namespace["f"].__code__))
        compiled = framejit.compile(namespace["f"])
        for _ in range(3):
            compiled(np.ones(4))
        watched.append(weakref.ref(compiled))
        del namespace, compiled
    gc.collect()
    assert [kept() for kept in watched if kept() is not None] == []
