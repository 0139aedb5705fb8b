"""A number that is read from an array, used for arithmetic and for a place, a size or a start, in either order: one number in both roles."""
import itertools

import numpy as np
import pytest

from harness import both_libraries, needs_torch, same_as_eager, torch


def module(lib):
    return np if lib.name == "numpy" else torch


OPERAND = {  # of the array y
    "times": lambda lib, y, j: y * j,
    "minus from": lambda lib, y, j: j - y,
    "divided by": lambda lib, y, j: y / j,
    "compared": lambda lib, y, j: y >= j,
    "power": lambda lib, y, j: y ** j,
    "own arithmetic": lambda lib, y, j: y + (j * 2 - 1),
    "full": lambda lib, y, j: module(lib).full((3,), j),
    "where": lambda lib, y, j: module(lib).where(y > j, y, y + j),
    "clip": lambda lib, y, j: module(lib).clip(y, 0, j),
    "in place": lambda lib, y, j: in_place(y + 0, j),
    "element": lambda lib, y, j: element(y + 0, j),
    "reduced": lambda lib, y, j: (y * j).sum(),
    "float": lambda lib, y, j: y * float(j),
    "given back": lambda lib, y, j: j,
}
PLACE = {  # of the array t
    "index": lambda lib, t, j: t[j] * 1,
    "row": lambda lib, t, j: t.reshape(10, 5)[j] + 1,
    "start": lambda lib, t, j: t[j:] + 1,
    "end": lambda lib, t, j: t[:j] + 1,
    "part": lambda lib, t, j: t[j - 2:j] + 1,
    "step": lambda lib, t, j: t[::j] + 1,
    "arange": lambda lib, t, j: module(lib).arange(j) * 2,
    "size": lambda lib, t, j: module(lib).zeros(j) + 1,
    "repeat": lambda lib, t, j: t[:2].repeat(j),
    "roll": lambda lib, t, j: module(lib).roll(t, j),
    "reshape": lambda lib, t, j: t[:4 * 8].reshape(j, -1).sum(0),
    "branch": lambda lib, t, j: t + 1 if j > 3 else t - 1,
    "key": lambda lib, t, j: t * {8: 2.0, 4: 3.0}.get(j, 1.0),
    "stored": lambda lib, t, j: stored(t + 0, j),
}


def in_place(y, j):
    y += j
    return y


def element(y, j):
    y[0] = j
    return y


def stored(t, j):
    t[j] = -1
    return t


READ = {
    "item": lambda a: a[1].item(),
    "int": lambda a: int(a[1]),
    "tolist": lambda a: a.tolist()[1],
    "sum": lambda a: a[:2].sum().item() - 1,
}


@both_libraries
@pytest.mark.parametrize("operand", OPERAND)
def test_arithmetic_and_places_see_one_number(lib, operand):
    y, t = lib.array(np.array([1.0, 9.0, 3.0], np.float32)), lib.array(np.arange(50, dtype=np.float32))
    reads = itertools.cycle(READ.values())
    for place in PLACE:
        read = next(reads)

        def arithmetic_first(a, y, t):
            j = read(a)
            first = OPERAND[operand](lib, y, j)
            return first, PLACE[place](lib, t, j)

        def place_first(a, y, t):
            j = read(a)
            first = PLACE[place](lib, t, j)
            return first, OPERAND[operand](lib, y, j)

        for f in (arithmetic_first, place_first):
            for number in (8, 4):
                same_as_eager(f, lib.array(np.array([1, number])), y, t, fallback=True)


@needs_torch
def test_a_library_call_is_given_a_number_that_is_a_place_later():
    def f(a, y, t):
        i, j = a.tolist()
        scaled = torch.addcmul(y, y, y, value=j)
        return scaled, torch.add(y, y, alpha=i), torch.topk(t, j).values, t[i:j], torch.nn.functional.pad(y, (i, j))

    y, t = torch.tensor([1.0, 2.0, 3.0]), torch.arange(50.0)
    for pair in ([1, 8], [2, 4], [0, 7]):
        same_as_eager(f, torch.tensor(pair), y, t, fallback=True)


@needs_torch
def test_a_number_in_two_roles_with_a_gradient():
    def f(a, y, t):
        j = a[1].item()
        scaled = torch.roll(y * j, j)
        return (scaled * t[j:j + 3]).sum() + torch.addcmul(y, y, y, value=j).sum()

    for number in (8, 4):
        y = torch.tensor([1.0, 9.0, 3.0], requires_grad=True)
        same_as_eager(f, torch.tensor([1, number]), y, torch.arange(50.0), fallback=True)
