"""A failure that shows only when the program runs, at each position of a program, beside each kind of effect.

A program is one effect, repeated, around one operation that may fail, repeated: at the top, in a callee, in a loop. Which of
the places fails is data, so the same compiled pieces meet calls that succeed, calls that fail at each place, and calls that
succeed after. After every call the whole state (arguments, globals, memory, versions, generators, stdout, traceback with its lines, what
unfinished iterators still give) is compared with eager's.
"""
import random
import sys

import numpy as np
import pytest

from case import Case, check
from harness import torch

PRELUDE = '''
import collections, random

class State:
    pass

class Slots:
    __slots__ = ("value", "count")

class Settable:
    def __init__(self):
        self.log = []

    @property
    def value(self):
        return self.log[-1]

    @value.setter
    def value(self, value):
        self.log.append(value)

class Manager:
    def __init__(self, swallow=False):
        self.swallow = swallow

    def __enter__(self):
        LOG.append("enter")
        return self

    def __exit__(self, kind, error, trace):
        LOG.append(("exit", None if kind is None else kind.__name__, trace and trace.tb_lineno))
        return self.swallow

def note(k, y):
    LOG.append(k)
    return y + deeper(y)

def deeper(y):
    LOG.append("deeper")
    return y * 2

def numbers(log):
    k = 0
    try:
        while True:
            log.append(("yields", k))
            yield k
            k += 1
    finally:
        log.append("closed")

def user(flag):
    LOG.append("user")
    if flag[0] > 0:
        raise ValueError("the user's")
    return 1

def cells():
    count, last = 0, None

    def change(k, y):
        nonlocal count, last
        count += k
        last = y

    def read():
        return count, last

    return change, read

def fresh(library):
    global LOG, ITEMS, TABLE, SEEN, QUEUE, STATE, SLOTS, SETTABLE, TOTAL, LAST, CHANGE, READ, ITERATOR, GENERATOR, COUNTS, OUT, VIEW, MODULE
    LOG, ITEMS, TABLE, SEEN, QUEUE = [], [0, 1, 2], {"a": 1}, {1, 2}, collections.deque([1, 2, 3], 4)
    STATE, SLOTS, SETTABLE, TOTAL, LAST = State(), Slots(), Settable(), 0, None
    STATE.count, SLOTS.count, State.shared = 0, 0, 0
    CHANGE, READ = cells()
    ITERATOR, GENERATOR = iter(list(range(40))), numbers(LOG)
    COUNTS = collections.Counter()
    OUT = make((4,), seed=3)
    VIEW = OUT[1:]
    if library == "torch":
        MODULE = Running()
'''
TORCH_PRELUDE = '''
import torch
class Running(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))
        self.calls = 0
'''

# What an operation that may fail looks like. {i} is the place's number, which of them fails is in BAD; a place that fails reads 1 there.
FAILURES = {
    "index": "y = y + x[bad[{i}:{i}+1] * 99]",
    "list index": "y = y + [0.5, 1.5][int(bad[{i}]) * 2]",
    "list index now": "y = y + ITEMS[int(bad[{i}]) * 99] * 0",
    "python division": "y = y + 1 // (1 - int(bad[{i}]))",
    "extern": "y = y + lib.linalg.inv(lib.eye(4) * (1.0 - bad[{i}:{i}+1]))[0]",
    "user": "y = y + user(bad[{i}:{i}+1])",
    "memory": "kept = lib.ones(sizes[{i}])\nLOG.append(kept)",
}
NUMPY_FAILURES = {
    "division": "y = y / (1 - bad[{i}:{i}+1])",
}
TORCH_FAILURES = {
    "division": "y = y + ints // (1 - bad[{i}:{i}+1])",
}

# Lines that change something. FAIL stands where the operation that may fail is; an effect that does not say gets one before, between and
# after. {k} is a number that tells one effect from another.
EFFECTS = {
    "list": "ITEMS.append({k})\nITEMS[1] = y",
    "list slice": "ITEMS[1:2] = [{k}, y]\nITEMS.reverse()",
    "dict": "TABLE[{k}] = y\nTABLE.pop('a', None)",
    "set": "SEEN.add({k})\nSEEN.discard(1)",
    "deque": "QUEUE.append({k})\nQUEUE.rotate(1)",
    "counter": "COUNTS[{k} % 2] += 1",
    "attribute": "STATE.count += {k}\nSTATE.last = y",
    "class attribute": "State.shared += {k}",
    "slot": "SLOTS.count += {k}\nSLOTS.value = y",
    "property": "SETTABLE.value = {k}",
    "global": "TOTAL += {k}\nLAST = y",
    "cell": "CHANGE({k}, y)",
    "write": "x[{k} % 4] = {k}\nx += 1",
    "write through a view": "VIEW[1:] *= 2\nOUT[0] = {k}",
    "write of an intermediate": "y[1] = {k}\nLAST = y[1:]",
    "random": "y = y + RANDOM\nrandom.random()",
    "generator kept outside": "next(GENERATOR)",
    "generator made inside": "made = numbers(LOG)\nnext(made)\nLAST = made",
    "iterator": "y = y + next(ITERATOR)",
    "print": "print('now', {k})",
    "callee": "y = note({k}, y)",
    "with": "with Manager():\n    LOG.append({k})\n    FAIL\n    x += 1",
    "with that swallows": "with Manager(True):\n    LOG.append({k})\n    FAIL\n    x += 1",
    "with a return value": "with Manager() as manager, Manager(True):\n    manager.value = y\n    FAIL\nLAST = manager",
    "finally": "try:\n    x += 1\n    FAIL\nfinally:\n    LOG.append({k})\n    x[0] = {k}",
    "handler": "try:\n    x += 1\n    FAIL\n    LOG.append({k})\nexcept ArithmeticError as error:\n    LOG.append(str(error))\nexcept Exception as error:\n"
               "    LOG.append((type(error), str(error), error.__traceback__.tb_lineno))\nelse:\n    LOG.append('else')",
    "handler that raises": "try:\n    x += 1\n    FAIL\nexcept Exception as error:\n    LOG.append({k})\n    raise RuntimeError('mine') from error",
    "handler in finally": "try:\n    try:\n        FAIL\n    finally:\n        x += 1\nexcept Exception:\n    LOG.append({k})",
}
TORCH_EFFECTS = {
    "write in place": "x.add_({k})\nx[1:].mul_(2)",
    "write of data": "x.data[0] = {k}",
    "module buffer": "MODULE.mean.mul_(0.5).add_(x)\nMODULE.calls += 1",
    "module buffer replaced": "MODULE.mean = MODULE.mean * 0.5 + x",
    "grad mode": "with torch.no_grad():\n    x += 1\n    FAIL\n    LOG.append(torch.is_grad_enabled())",
}
NUMPY_EFFECTS = {
    "out=": "np.add(x, {k}, out=x)\nnp.multiply(OUT, 2, OUT)",
    "errstate": "with np.errstate(over='ignore'):\n    x += 1\n    FAIL\n    LOG.append(np.geterr()['over'])",
}
RANDOM = {"numpy": "np.random.rand(4)", "torch": "torch.rand(4)"}
FUNCTION = '''
def callee(x, y, bad, sizes, ints):
    global TOTAL, LAST
    {callee}
    return y

def f(x, bad, sizes, ints):
    global TOTAL, LAST
    y = x * 2
    {top}
    y = callee(x, y, bad, sizes, ints) + y
    for k in range(4):
        {loop}
    return y, x
'''
TABLES = {"numpy": ({**EFFECTS, **NUMPY_EFFECTS}, {**FAILURES, **NUMPY_FAILURES}), "torch": ({**EFFECTS, **TORCH_EFFECTS}, {**FAILURES, **TORCH_FAILURES})}


class Program:
    """A program's source, from lines of effects with FAIL in them, and the calls that make one of its places fail."""

    def __init__(self, library, top, callee, loop, failure):
        """failure(): the lines of the operation at the next place."""
        self.library, self.places, self.failure = library, 0, failure
        body = FUNCTION.format(top=self.planted(top, 4), callee=self.planted(callee, 4), loop=self.planted(loop, 8, "k"))
        self.source = (TORCH_PRELUDE if library == "torch" else "") + PRELUDE + body

    def planted(self, lines, depth, k=None):
        text = []
        for line in lines.replace("RANDOM", RANDOM[self.library]).splitlines():
            if line.strip() == "FAIL":
                blank = line[:len(line) - 4]
                # In the loop, one place for each time through it.
                here = str(self.places) if k is None else f"({self.places} + k)"
                self.places += 1 if k is None else 4
                text += [blank + part for part in self.failure().replace("{i}", here).splitlines()]
            else:
                text.append(line.replace("{k}", k or str(self.places)))
        return ("\n" + " " * depth).join(text)

    def call(self, place):
        """The text that makes the state anew and the arguments with which that place fails (None: none does)."""
        array = "np.array" if self.library == "numpy" else "torch.tensor"
        bad = [int(i == place) for i in range(self.places)]
        sizes = [1 << 50 if i == place else 3 for i in range(self.places)]
        return f"fresh({self.library!r})\nARGS = [make((4,)), {array}({bad}), {sizes}, {array}([3, 4, 5, 6])]"

    def check(self):
        """Compiled by a call that succeeds, then by one that fails in the middle."""
        every = range(self.places)
        with np.errstate(divide="raise"):
            for order in ([None, *every, None], [self.places // 2, None, 0, self.places - 1, None]):
                info = check(Case(self.library, self.source, [self.call(place) for place in order]))
                assert info["segments"] > 0 and info["hits"] > 0
        return info


def around(effect):
    """Before, between and after, unless the effect says where."""
    return effect if "FAIL" in effect else f"FAIL\n{effect}\nFAIL\n{effect}\nFAIL"


def of_one_kind(library, effect, failure):
    effects, failures = TABLES[library]
    lines = effects[effect]
    return Program(library, around(lines), around(lines), lines if "FAIL" in lines else f"{lines}\nFAIL", lambda: failures[failure])


def mixed(library, seed):
    """Effects and operations of all kinds, drawn."""
    drawn = random.Random(seed)
    effects, failures = TABLES[library]

    def lines(count):
        chosen = [drawn.choice(list(effects.values())) for _ in range(count)]
        return "\n".join(text for effect in chosen for text in ((effect,) if "FAIL" in effect else (effect, "FAIL")))

    return Program(library, lines(3), lines(3), lines(2), lambda: failures[drawn.choice(list(failures))])


LIBRARIES = ["numpy"] if torch is None else ["numpy", "torch"]
PAIRS = [(library, effect, failure) for library in LIBRARIES for effect in TABLES[library][0] for failure in TABLES[library][1]]
# Every effect with two kinds of failure, every kind of failure with many effects; this file as a script takes all, and more drawn ones.
CHOSEN = [pair for i, pair in enumerate(PAIRS) if i % 7 == 0]


@pytest.mark.parametrize("library, effect, failure", CHOSEN, ids=["-".join(pair).replace(" ", "_") for pair in CHOSEN])
def test_a_failure_found_while_running_leaves_what_eager_leaves(library, effect, failure):
    of_one_kind(library, effect, failure).check()


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("library", LIBRARIES)
def test_a_failure_between_effects_of_all_kinds(library, seed):
    mixed(library, seed).check()


if __name__ == "__main__":
    for pair in PAIRS:
        of_one_kind(*pair).check()
    first, count = map(int, sys.argv[1:] or (0, 300))
    for seed in range(first, first + count):
        for library in LIBRARIES:
            program = mixed(library, seed)
            try:
                program.check()
            except AssertionError as error:
                print(library, seed, error, flush=True)
