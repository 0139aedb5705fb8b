"""What test_pickling.py sends to other processes: found by name in this module, or not."""
import functools
import os

import numpy as np

import framejit


@framejit.compile
def decorated(x):
    return np.maximum((x + 1) * 2, 0) / np.sqrt(x * x + 1)


def plain(x):
    return np.exp(-x * x) + x


@framejit.compile(dynamic=False)
def halved(x):
    return x / 2


@framejit.grad
def slope(x):
    return np.sum(x ** 3)


def cubes(x):
    return np.sum(x ** 3)


def negated(graph, example_inputs):
    """A back end: what is computed, with the sign changed."""
    from framejit._support.graph_code import replay

    run = replay(graph, example_inputs)
    return lambda *arguments: [-result for result in run(*arguments)]


class Scaled:
    def __init__(self, by, parent=None):
        self.by, self.parent = by, parent

    def __call__(self, x):
        return x * self.by + 1

    def shifted(self, x):
        return x + self.by

    @framejit.compile
    def step(self, x):
        return x * self.by - 1

    @staticmethod
    @framejit.compile
    def still(x):
        return x * 5


class WithArguments:
    """A class whose pickles are made by calling __new__ with arguments."""

    def __new__(cls, by):
        made = super().__new__(cls)
        made.by = by
        return made

    def __getnewargs__(self):
        return (self.by,)

    def __call__(self, x):
        return x - self.by


compiled = framejit.compile(plain, fullgraph=True)
FUNCTIONS = {
    "decorated": (decorated, decorated.__wrapped__),
    "compiled": (compiled, plain),
    "using": (halved.using(backend="reference"), halved.__wrapped__),
    "grad": (framejit.grad(cubes), lambda x: 3 * x ** 2),
    "decorated by grad": (slope, lambda x: 3 * x ** 2),
    "value_and_grad with options": (framejit.value_and_grad(cubes).using(backend="reference"), lambda x: (np.sum(x ** 3), 3 * x ** 2)),
    "vmap": (framejit.vmap(plain), plain),
    "partial": (framejit.compile(functools.partial(np.add, 2)), lambda x: x + 2),
    "ufunc": (framejit.compile(np.arctan), np.arctan),
    "bound": (Scaled(3).step, lambda x: x * 3 - 1),
    "bound and compiled": (framejit.compile(Scaled(3).shifted), lambda x: x + 3),
    "static": (Scaled.still, lambda x: x * 5),
    "object": (framejit.compile(Scaled(4)), lambda x: x * 4 + 1),
    "object with arguments": (framejit.compile(WithArguments(2)), lambda x: x - 2),
}


def work(name_and_function, x):
    """In a worker: (name, result, process, what was compiled there)."""
    name, function = name_and_function
    result = function(x)
    info = framejit.cache_info()
    return name, result, os.getpid(), (info["graphs"], info["internal_errors"])
