"""What runs when an object goes (a __del__, a weakref's callback, the finally of a generator) runs where eager runs it."""
import collections
import gc
import weakref

import numpy as np
import pytest

import framejit
from harness import needs_torch, torch

X = np.arange(3.0)


class Watched:
    """Says when it goes, and what `state` was then."""

    def __init__(self, log, state=None):
        self.log, self.state = log, state

    def __del__(self):
        self.log.append(("gone", None if self.state is None else (self.state.held, self.state.count)))


class Plain:
    pass


PROGRAMS = {
    "a variable is deleted": """
    a = Watched(log)
    y = x + 1
    del a
    log.append("after")
    z = y * 2""",
    "a variable is assigned": """
    a = Watched(log)
    y = x + 1
    a = None
    log.append("after")
    z = y * 2""",
    "a temporary": """
    y = x + 1
    Watched(log).log.append("method")
    log.append("after")
    z = y * 2""",
    "in a list": """
    a = [1, [Watched(log)]]
    y = x + 1
    a = y
    log.append("after")
    z = y * 2""",
    "in a list of the caller": """
    box.items.append(Watched(log))
    y = x + 1
    box.items.pop()
    log.append("after")
    z = y * 2""",
    "in a list that is cleared": """
    box.items.append(Watched(log))
    y = x + 1
    box.items.clear()
    log.append("after")
    z = y * 2""",
    "in a dict": """
    box.table["k"] = Watched(log)
    y = x + 1
    box.table["k"] = 5
    log.append("after")
    del box.table["k"]
    z = y * 2""",
    "in a deque": """
    box.queue.append(Watched(log))
    y = x + 1
    box.queue.extend([1, 2, 3])
    log.append("after")
    z = y * 2""",
    "a key of a dict": """
    box.table[Watched(log)] = 1
    y = x + 1
    del box.table[list(box.table)[-1]]
    log.append("after")
    z = y * 2""",
    "a key that is asked for": """
    a = Watched(log)
    box.table[a] = 1
    y = x + box.table[a]
    del box.table[a], a
    log.append("after")
    z = y * 2""",
    "a key that is popped": """
    box.table[Watched(log)] = 1
    y = x + 1
    box.table.popitem()
    log.append("after")
    z = y * 2""",
    "in a dict that is cleared": """
    box.table["k"] = box.table[Watched(log)] = Watched(log)
    y = x + 1
    box.table.clear()
    log.append("after")
    z = y * 2""",
    "in an ordered dict": """
    box.ordered["k"] = Watched(log)
    y = x + 1
    del box.ordered["k"]
    log.append("after")
    z = y * 2""",
    "in a set": """
    box.set.add(Watched(log))
    y = x + 1
    box.set &= {3}
    log.append("after")
    z = y * 2""",
    "an item of a deque": """
    box.queue.extend([Watched(log), Watched(log), 3])
    y = x + 1
    box.queue[0] = y
    log.append("between")
    del box.queue[1]
    log.append("after")
    z = y * 2""",
    "a deque that is cleared": """
    box.queue.append(Watched(log))
    y = x + 1
    box.queue.clear()
    log.append("after")
    z = y * 2""",
    "a deque's other end": """
    box.queue.extend([Watched(log), 1, 2])
    y = x + 1
    box.queue.append(3)
    log.append("after")
    z = y * 2""",
    "an attribute of a class": """
    Holder.held = Watched(log)
    y = x + 1
    Holder.held = None
    log.append("after")
    z = y * 2""",
    "a nonlocal of a callee": """
    a = Watched(log)
    def change():
        nonlocal a
        a = 3
    y = x + 1
    change()
    log.append("after")
    z = y * 2""",
    "an attribute in a callee": """
    box.held = Watched(log)
    def change(to):
        to.held = None
        log.append("in the callee")
    y = x + 1
    change(box)
    log.append("after")
    z = y * 2""",
    "an array's callback": """
    a = np.ones(3)
    r = weakref.ref(a, lambda gone: log.append("callback"))
    y = x + 1
    a = a + 1
    log.append("after")
    z = y * 2""",
    "an array's callback in an attribute": """
    box.held = np.ones(3)
    r = weakref.ref(box.held, lambda gone: log.append("callback"))
    y = x + 1
    box.held = y
    log.append("after")
    z = y * 2""",
    "what a view shows": """
    class Memory(bytearray):
        def __del__(self):
            log.append("freed")
    a = np.frombuffer(Memory(24))[1:]
    y = x + 1
    a = None
    log.append("after")
    z = y * 2""",
    "an element of an array": """
    a = np.array([Watched(log), 1], dtype=object)
    y = x + 1
    a = None
    log.append("after")
    z = y * 2""",
    "an attribute": """
    box.held = Watched(log, box)
    y = x + 1
    box.count = 1
    box.held = None
    box.count = 2
    log.append("after")
    z = y * 2""",
    "a slot": """
    box.slotted.value = Watched(log)
    y = x + 1
    box.slotted.value = y
    log.append("after")
    z = y * 2""",
    "a cell": """
    a = Watched(log)
    def read(): return a
    y = x + 1
    a = 3
    log.append("after")
    z = y * 2""",
    "a global": """
    global held
    held = Watched(log)
    y = x + 1
    held = 3
    log.append("after")
    z = y * 2""",
    "two names": """
    a = b = Watched(log)
    y = x + 1
    del a
    log.append("between")
    del b
    log.append("after")
    z = y * 2""",
    "in a loop": """
    y = x
    for k in range(4):
        a = Watched(log)
        y = y + 1
        log.append(k)
    a = None
    log.append("after")
    z = y * 2""",
    "a weakref's callback": """
    a = Plain()
    r = weakref.ref(a, lambda gone: log.append("callback"))
    y = x + 1
    a = None
    log.append("after")
    z = y * 2""",
    "a weak set": """
    a = Plain()
    s = weakref.WeakSet([a])
    y = x + 1
    a = None
    log.append(len(s))
    z = y * 2""",
    "finalize": """
    a = Plain()
    weakref.finalize(a, log.append, "finalized")
    y = x + 1
    a = None
    log.append("after")
    z = y * 2""",
    "a generator half-run": """
    a = numbers(log)
    next(a)
    y = x + 1
    a = None
    log.append("after")
    z = y * 2""",
    "an exception's": """
    try:
        raise ValueError(Watched(log))
    except ValueError as error:
        y = x + 1
        log.append("handled")
    log.append("after")
    z = y * 2""",
    "a file": """
    import io
    class File(io.StringIO):
        def close(self):
            log.append("closed")
            super().close()
    a = File()
    y = x + 1
    a = None
    log.append("after")
    z = y * 2""",
}


def numbers(log):
    try:
        yield 1
        yield 2
    finally:
        log.append("closed")


class Slotted:
    __slots__ = ("value", "__weakref__")


class Holder:
    pass


class Box:
    def __init__(self):
        self.ordered, self.set = collections.OrderedDict(a=1), {3}
        self.items, self.table, self.slotted, self.queue, self.held, self.count = [0], {"a": 1}, Slotted(), collections.deque(maxlen=3), None, 0
        self.slotted.value = None


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_runs_where_eager_runs_it(name):
    source = f"def f(x, log, box):{PROGRAMS[name]}\n    return z\n"
    seen = []
    for wrap in (lambda function: function, framejit.compile):
        namespace = {"Watched": Watched, "Plain": Plain, "numbers": numbers, "weakref": weakref, "np": np, "Holder": Holder}
        exec(source, namespace)
        function = wrap(namespace["f"])
        for _ in range(3):
            log, box = [], Box()
            result = function(X, log, box)
            log.append("returned")
            del box
            gc.collect()
            seen.append((repr(result), repr(log).replace(str(id(log)), "")))
    assert seen[3:] == seen[:3], source
    assert framejit.cache_info()["internal_errors"] == 0


def test_a_later_call_drops_what_the_first_did_not():
    def f(x, box, log):
        y = x + 1
        box.held = y
        log.append("after")
        return y * 2

    compiled = framejit.compile(f)
    seen = []
    for function in (f, compiled):
        log, box = [], Box()
        for held in (None, 3, Watched(log), [Watched(log)], np.ones(2)):
            box.held = held
            del held
            function(X, box, log)
        seen.append(repr(log))
    assert seen[0] == seen[1]


def test_ordinary_objects_cost_no_break():
    class Ordinary:
        def __init__(self):
            self.value, self.items = 1, []

    def f(x, box, thing):
        y = x + 1
        thing = None
        box.held = thing
        box.items = [y]
        y = y * 2
        return y

    compiled = framejit.compile(f)
    report = framejit.explain(compiled)(X, Box(), Ordinary())
    assert report.breaks == []
    assert (compiled(X, Box(), Ordinary()) == f(X, Box(), Ordinary())).all()


@needs_torch
def test_what_a_tensor_holds_goes_where_the_tensor_goes():
    def f(x, box, log):
        y = x + 1
        box.held = None
        log.append("after")
        return y * 2

    compiled = framejit.compile(f)
    for kind in (torch.ones, lambda n: torch.nn.Parameter(torch.ones(n)), lambda n: torch.ones(n, requires_grad=True) * 2):
        seen = []
        for function in (f, compiled, compiled):
            log, box = [], Box()
            box.held = kind(2)
            box.held.tag = Watched(log)
            function(X, box, log)
            seen.append(repr(log))
        assert seen[1] == seen[2] == seen[0]


DROPPED = {
    "popped": lambda h, log: [h.pop() + 1, log.append("after")],
    "replaced by what is computed of it": lambda h, log: [h.__setitem__(0, h[0] * 2), log.append("after")],
    "cleared": lambda h, log: [h[0] + 1, h.clear(), log.append("after")],
}


@pytest.mark.parametrize("name", DROPPED)
def test_what_is_read_and_dropped_goes_where_eager_drops_it(name):
    def f(t, h, log):
        DROPPED[name](h, log)
        return t * 2

    logs = []
    for function in (f, framejit.compile(f)):
        log = []
        for _ in range(3):
            x = np.arange(3.0)
            held = [x]
            watch = weakref.ref(x, lambda _: log.append("gone"))
            del x
            function(X, held, log)
            assert (watch() is None) == ("gone" in log)
            log.append(len(held))
        logs.append(log)
    assert logs[0] == logs[1]
