"""Containers that hold themselves, and such as are nested without end in sight: Python says what becomes of them."""
import copy

import numpy as np
import pytest

import framejit
from harness import needs_torch, torch

X = np.arange(3.0)


def in_itself():
    made = [1]
    made.append(made)
    return made


def in_a_field():
    made = []
    made.append(("f", made))
    return made


def in_a_tuple():
    made = []
    made.append((made, 2))
    return made[0]


def nested(levels=3000):
    made = [1.0]
    for _ in range(levels):
        made = (made,)
    return made


def outcome(function, *args):
    try:
        return repr(function(*args))
    except Exception as error:  # CPython's own bound differs by who asks
        return type(error).__name__


def compared(use, make):
    def made_here(x):
        return use(x, make())

    compiled_here, compiled_given = framejit.compile(made_here), framejit.compile(use)
    for _ in range(3):
        assert outcome(compiled_here, X) == outcome(made_here, X)
        assert outcome(compiled_given, X, make()) == outcome(use, X, make())
    assert framejit.cache_info()["internal_errors"] == 0


@pytest.mark.parametrize("make", [in_itself, in_a_field, in_a_tuple, nested])
@pytest.mark.parametrize("use", [
    lambda x, c: np.array(c), lambda x, c: np.dtype(c), lambda x, c: np.stack(c), lambda x, c: x + c, lambda x, c: x[c], lambda x, c: x.reshape(c),
    lambda x, c: np.full(2, c), lambda x, c: isinstance(x, c), lambda x, c: (x + 1, c == c), lambda x, c: (x + 1, c == copy.copy(c)),
    lambda x, c: (x + 1, len(str(c))), lambda x, c: (x + 1, {c: 1}), lambda x, c: np.einsum("i->i", c), lambda x, c: x.astype(c),
], ids=["array", "dtype", "stack", "add", "index", "reshape", "full", "isinstance", "eq", "eq-copy", "str", "key", "einsum", "astype"])
def test_a_container_in_itself_does_what_python_does(use, make):
    framejit.reset()
    compared(use, make)


@needs_torch
@pytest.mark.parametrize("make", [in_itself, in_a_tuple])
@pytest.mark.parametrize("name", ["tensor", "stack", "full", "permute", "sum"])
def test_a_container_in_itself_given_to_torch(name, make):
    framejit.reset()
    compared({"tensor": lambda x, c: torch.tensor(c), "stack": lambda x, c: torch.stack(c), "full": lambda x, c: torch.full((2,), c),
              "permute": lambda x, c: torch.from_numpy(x).permute(c), "sum": lambda x, c: torch.from_numpy(x).sum(c)}[name], make)


def test_a_compiled_function_returns_a_list_that_holds_itself():
    def f(x):
        made = [x * 2]
        made.append(made)
        return made

    result = framejit.compile(f)(X)
    assert result[1] is result and result[0].tolist() == [0, 2, 4]
