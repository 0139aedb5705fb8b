"""Attributes of classes that compiled code assigns and reads: counters, registers, caches."""
import numpy as np
import pytest

import framejit
from harness import Outcome, compare, needs_torch, torch

X = np.arange(6.0).reshape(2, 3)


def check(make, calls=4, breaks=(), graphs=None):
    """`make()` returns (function, what can be seen of its classes): one pair for eager, one compiled."""
    framejit.reset()
    (eager, theirs), (function, ours) = make(), make()
    compiled = framejit.compile(function)
    for _ in range(calls):
        compare(Outcome(compiled, [X.copy()], {}), Outcome(eager, [X.copy()], {}))
        compare(Outcome(ours, [], {}), Outcome(theirs, [], {}))
    report = framejit.explain(compiled).so_far()
    assert framejit.cache_info()["internal_errors"] == 0
    assert breaks is None or [b.name for b in report.breaks] == list(breaks), report
    if graphs is not None:
        assert len(report.graphs) <= graphs, report


def test_a_counter_becomes_a_symbol():
    def make():
        class Counter:
            n = 0

        def f(x):
            Counter.n += 1
            return x * Counter.n

        return f, lambda: Counter.n

    check(make, calls=6, graphs=2)


def test_a_counter_that_is_not_read_for_arrays_is_traced_twice():
    def make():
        class Counter:
            n = 0

            def __call__(self, x):
                type(self).n += 1
                return x * 2

        counter = Counter()
        return (lambda x: counter(x)), lambda: Counter.n

    check(make, calls=6, graphs=2)


def test_instances_number_themselves():
    def make():
        class Node:
            made = 0

            def __init__(self):
                Node.made += 1
                self.id = Node.made

        def f(x):
            a, b = Node(), Node()
            return x * a.id + b.id, a.made

        return f, lambda: Node.made

    check(make)


def test_a_derived_class_reads_its_base_and_writes_its_own():
    def make():
        class Base:
            n = 1

        class Left(Base):
            pass

        class Right(Base):
            n = 10

        class Both(Left, Right):
            pass

        def f(x):
            before = Both.n, Left.n, Both().n
            Base.n += 1
            middle = Both.n, Left.n, Right.n, Left().n
            Left.n += 5
            after = Both.n, Left.n, Base.n, Both().n, super(Left, Left()).n if x.shape[0] == 9 else 0
            return x * Both.n, before, middle, after

        return f, lambda: (Base.n, vars(Left).get("n"), Right.n)

    check(make)


def test_one_class_reached_in_several_ways():
    def make():
        class Counter:
            n = 0

        one = Counter()

        def f(x):
            Counter.n = 1
            type(one).n = 2
            first = Counter.n
            Counter.n += 3
            second = one.n, type(one).n
            type(one).n += 1
            Counter.n *= 2
            one.__class__.n -= 1
            return x * Counter.n, first, second

        return f, lambda: Counter.n

    check(make)


def test_an_attribute_of_the_instance_comes_first():
    def make():
        class Counter:
            n = 0

        one = Counter()
        one.n = 7
        two = Counter()

        def f(x):
            Counter.n += 1
            three = Counter()
            three.n = 9
            return x + one.n, two.n, three.n, Counter().n, getattr(one, "n"), hasattr(two, "n")

        return f, lambda: (Counter.n, vars(one), vars(two))

    check(make)


def test_new_names_lists_and_arrays():
    def make():
        class Cache:
            pass

        def f(x):
            first = not hasattr(Cache, "last")
            previous = 0 if first else Cache.last
            Cache.last = x * 2 + previous
            Cache.sizes = [x.shape, len(x)]
            Cache.sizes.append(3)
            return Cache.last + 1, first, Cache.sizes

        return f, lambda: (Cache.last, Cache.sizes)

    check(make)


SUBCLASS, OWN = "class A: n = 0\nclass B(A): pass\na = B()", "class A: n = 0\nclass B(A): n = 50\na = B()"
READS_DERIVED, READS_INSTANCE = "A.n += 1; return x * B.n", "A.n += 1; return x * a.n"


@pytest.mark.parametrize("classes, body, changes", [
    (SUBCLASS, READS_DERIVED, {3: "B.n = 100", 5: "del B.n"}),
    (SUBCLASS, READS_INSTANCE, {3: "B.n = 100", 5: "del B.n"}),
    (SUBCLASS, READS_INSTANCE, {2: "a.n = 99", 4: "del a.n", 5: "B.n = 7"}),
    (SUBCLASS, READS_INSTANCE, {1: "a.n = 10", 2: "a.n = 11", 3: "a.n = 12", 4: "del a.n"}),
    (SUBCLASS, "A.n += 1; a.n = a.n + 1; return x * a.n", {3: "del a.n", 5: "del a.n"}),
    (SUBCLASS, "A.m = A.n; A.n += 1; return x * A.n, hasattr(B, 'm'), getattr(B, 'm', 5), B.m", {3: "B.m = 77", 5: "del B.m"}),
    (OWN, READS_DERIVED, {1: "B.n = 51", 2: "B.n = 52", 4: "del B.n"}),
    (OWN, "B.n += 1; return x * B.n, hasattr(A, 'n')", {3: "del B.n", 5: "del B.n"}),
    (OWN, "B.n += 1; return x * a.n", {3: "del B.n", 4: "A.n = 9", 5: "del B.n"}),
    (SUBCLASS + "\nclass C(B): pass", "B.n = C.n + 1; A.n = C.n + 1; C.n = A.n + B.n; return x * C.n", {3: "del C.n", 4: "del B.n"}),
    (SUBCLASS + "\nclass C(A): n = 3\nclass D(B, C): pass", "B.n = D.n + 1; A.n = D.n + 1; return x * D.n", {3: "del C.n", 4: "C.n = 90; del B.n", 5: "D.n = 2"}),
    (SUBCLASS + "\nclass A2: n = 7", READS_DERIVED, {3: "B.__bases__ = (A2,)"}),
    ("class A: n = 0\nclass B(A): pass\na = A()", READS_INSTANCE, {3: "a = B()", 4: "B.n = 55"}),
])
def test_whose_an_attribute_is_may_change_outside(classes, body, changes):
    def make():
        space, calls = {}, []
        exec(f"{classes}\ndef f(x):\n    {body}", space)

        def look():
            calls.append(1)
            exec(changes.get(len(calls), ""), space)
            return [vars(space[name]).get("n", "none") for name in "ABa"]

        return space["f"], look

    check(make, calls=7)


def test_an_assignment_is_undone_by_nothing_when_the_call_raises():
    def make():
        class Counter:
            n = 0

        def f(x):
            Counter.n += 1
            if Counter.n == 3:
                raise ValueError(Counter.n)
            return x * Counter.n

        return f, lambda: Counter.n

    check(make, calls=5, breaks=("Raise",))


def test_a_property_that_comes_later_is_one():
    def make():
        class Meta(type):
            pass

        class Counter(metaclass=Meta):
            n = 0

            @property
            def twice(self):
                return 2 * self.n

        def f(x):
            Counter.n += 1
            return x * Counter().twice, Counter().n

        calls = []

        def change():
            calls.append(1)
            if len(calls) == 3:
                Counter.n = 100
            if len(calls) == 4:
                Counter.n = 1.5
            return Counter.n

        return f, change

    check(make, calls=7)


def test_a_class_that_looks_at_assignments_is_left_to_python():
    def make():
        seen = []

        class Meta(type):
            def __setattr__(cls, name, value):
                seen.append(name)
                super().__setattr__(name, value)

        class Counter(metaclass=Meta):
            n = 0

        def f(x):
            y = x * 2
            Counter.n += 1
            return y + Counter.n

        return f, lambda: (Counter.n, seen)

    check(make, breaks=None)


@pytest.mark.parametrize("look", ["vars(C)['n']", "C.__dict__['n']", "'{0.n}'.format(C)", "sorted(vars(C))", "dir(C)[-1]"])
def test_what_looks_at_the_whole_class_sees_the_assignment(look):
    def make():
        space = {"C": type("C", (), {"n": 0, "__module__": "m"})}
        exec(f"def f(x):\n    C.n += 1\n    C.zz = C.n\n    y = x * C.n\n    return y, {look}\n", space)
        return space["f"], lambda: space["C"].n

    check(make, breaks=None)


@needs_torch
def test_a_module_counts_its_calls():
    class Layer(torch.nn.Module):
        calls = 0

        def forward(self, x):
            Layer.calls += 1
            return x * 2 + Layer.calls

    layer = framejit.compile(Layer())
    for i in range(4):
        assert layer(torch.ones(2)).tolist() == [2 + i + 1] * 2
    assert Layer.calls == 4
    assert not framejit.explain(layer).so_far().breaks
