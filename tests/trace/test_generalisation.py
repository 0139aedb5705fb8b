"""A recompile only where the code looked, and a second miss of a leaf generalises it."""
import numpy as np
import pytest

import framejit
from harness import Outcome, compare, needs_torch, torch  # noqa: F401

X = np.linspace(1.0, 2.0, 5)


def graphs_for(function, argument_lists):
    """Calls with every list of arguments, compared with the function; the counts afterwards."""
    framejit.reset()
    compiled = framejit.compile(function)
    for arguments in argument_lists:
        compare(Outcome(compiled, arguments, {}), Outcome(function, arguments, {}))
    info = framejit.cache_info()
    assert info["internal_errors"] == 0
    return info


class Counted:
    """A class that counts its calls, with what it counts not looked at by what is compiled."""

    calls, factor = 0, 3.0

    def scale(self, x):
        return x * self.factor


def test_a_class_attribute_nobody_looked_at_may_change():
    framejit.reset()
    compiled = framejit.compile(Counted().scale)
    for _ in range(20):
        Counted.calls += 1
        assert (compiled(X) == X * 3).all()
    info = framejit.cache_info()
    assert info["segments"] == 1 and info["recompiles"] == 0


@pytest.mark.parametrize("change", ["Base.factor = 5.0", "Derived.factor = 7.0", "Derived.__getattribute__ = Odd.__getattribute__",
                                    "Derived.factor = property(lambda self: 9.0)", "Derived.__bases__ = (Other,)",
                                    "thing.factor = 11.0", "Base.apply = lambda self, x: x - 1", "Kind.__set__ = Kind.put"])
def test_a_class_attribute_that_was_looked_at_is_seen(change):
    space = {"X": X}
    exec("""
class Kind:
    def __get__(self, thing, type): return 2.0
    def put(self, thing, value): pass
class Odd:
    def __getattribute__(self, name): return object.__getattribute__(self, name) if name != "factor" else 13.0
class Root: pass
class Base(Root):
    factor, kind = 3.0, Kind()
    def apply(self, x): return x * self.factor + self.kind
class Other(Root):
    factor, kind = 4.0, Kind()
    def apply(self, x): return x / self.factor + self.kind
class Derived(Base):
    def apply(self, x): return super().apply(x) + isinstance(self, Base)
thing = Derived()
thing.__dict__["kind"] = 6.0
def f(x): return thing.apply(x)
""", space)
    framejit.reset()
    compiled = framejit.compile(space["f"])
    for step in ("pass", change, "Root.calls = 1", "Derived.unrelated = 1"):
        exec(step, space)
        for _ in range(3):
            compare(Outcome(compiled, (X,), {}), Outcome(space["f"], (X,), {}))
    info = framejit.cache_info()
    assert info["internal_errors"] == 0 and info["recompiles"] <= 1


class Thing:
    def __init__(self, k):
        self.k, self.name = k, "n" * k


SIZES = (5, 6, 7, 1, 0, 8)
LEAVES = {
    "int": (lambda x, k: x * k, [(X, k) for k in range(20)]),
    "int_attribute": (lambda x, a: x * a.k, [(X, Thing(k)) for k in range(20)]),
    "item_of_dict": (lambda x, d: x * d["k"], [(X, {"k": k}) for k in range(20)]),
    "item_of_tuple": (lambda x, t: x * t[0] + t[1], [(X, (k, k + 1)) for k in range(20)]),
    "index": (lambda x, i: x[i] * 2, [(X, k % 5) for k in range(20)]),
    "end_of_slice": (lambda x, i: x[:i] * 2, [(X, k % 5) for k in range(20)]),
    "size": (lambda x: x * 2 + 1, [(np.ones(n),) for n in SIZES]),
    "size_reduced": (lambda x: (x * 2).sum(), [(np.ones(n),) for n in SIZES]),
    "size_of_two": (lambda x, y: x + y.sum(), [(np.ones(n), np.ones((3, n))) for n in SIZES]),
    "size_used_as_number": (lambda x: x * x.shape[0] + x.size, [(np.ones(n),) for n in SIZES]),
    "string_unused": (lambda x, s: x * 2, [(X, str(k)) for k in range(20)]),
}


@pytest.mark.parametrize("name", LEAVES)
def test_a_second_miss_of_a_leaf_generalises_it(name):
    function, argument_lists = LEAVES[name]
    info = graphs_for(function, argument_lists)
    assert info["graphs"] <= 2 and info["recompiles"] <= 1 and info["eager_replays"] == 0


def test_a_first_call_without_array_work_decides_for_such_calls_only():
    def f(x, k):
        return None if k is None else x * k

    info = graphs_for(f, [(X, None)] * 3 + [(X, 3.0)] * 3 + [(X, None)] * 3)
    assert info["graphs"] == 1 and info["segments"] == 2 and info["hits"] == 7
