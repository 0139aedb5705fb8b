"""bool(), `not` and `in`, where arrays decide: bools that the program computes."""
import operator

import numpy as np
import pytest

import framejit
from harness import both_libraries, needs_torch, same_as_eager, torch

X = np.arange(6).reshape(2, 3)


def whole(f, *arguments):
    run = same_as_eager(f, *arguments, breaks=())
    assert len(run.graphs) == 1
    return run


@both_libraries
def test_a_number_in_an_array(lib):
    def f(x):
        return x + 1, 3 in x, 30 in x, 30 not in x, 2.5 in x, True in x, x[0, 0] in x, x[0] in x, operator.contains(x, 4)

    for dtype in ("int64", "float32", "float64", "int8", "bool"):
        whole(f, lib.array(X.astype(dtype)))
    whole(f, lib.array(X)[:, ::-1] if lib.name == "numpy" else lib.array(X).T.contiguous().T)
    whole(lambda x: (x + 1, 3 in x, x in x), lib.array(X[:0]))
    whole(lambda x: (x + 1, float("nan") in x, x[0, 0] in x), lib.array(X * np.nan))
    whole(lambda x: (x + 1, 1 in x[0, :1]), lib.array(X))


@both_libraries
def test_an_element_in_a_list(lib):
    def f(x):
        a, b = x[0, 1], x[0, 2]
        return x + 1, a in [5, 1], a not in (1.0, 2), b in (a, 4), 3 in [x[0, 0], x[1, 0]], x in [x, 1], x[:1, :1] in [4, 0], a in []

    whole(f, lib.array(X))
    whole(f, lib.array(X * 1.0))


@both_libraries
def test_identity_comes_before_equality(lib):
    def f(x):
        y = x[0, 0] / 0
        return x + 1, y in [y], y in [y + 1, y], y in (x[0, 0] / 0,)

    with np.errstate(all="ignore"):
        same_as_eager(f, lib.array(X * 1.0))


@both_libraries
def test_the_truth_of_one_element(lib):
    def f(x):
        large = x > 3
        return (x * 2, bool(x[0, 0]), not x[0, 0], bool(x[1:, :1]), not large.any(), bool(large.all()), operator.not_(x.sum()),
                bool(x.sum().item()))

    for dtype in ("int64", "float64", "bool"):
        whole(f, lib.array(X.astype(dtype)))
    whole(lambda x: (x + 1, bool(x.sum()), not x.sum()), lib.array(X * np.nan))


@both_libraries
def test_a_branch_on_such_a_bool(lib):
    def f(x):
        if 3 in x:
            return x + 1
        return x - 1

    same_as_eager(f, lib.array(X), breaks=["BranchOnData"])
    same_as_eager(f, lib.array(X * 5), breaks=["BranchOnData"])

    def g(x, n):
        steps = 0
        while n not in x and steps < 9:
            x = x + 1
            steps += 1
        return x, steps

    same_as_eager(g, lib.array(X), 8)


def test_ints_that_the_program_computes_are_compared_as_ints():
    def f(x):
        a, b = x[0, 1].item(), x[0, 2].item()
        return x + 1, a == b, a < b, a in [5, 1], a >= x.shape[1], b != True, (x[0, 0] > 1).item() == False  # noqa: E712

    for values in (X, X + 2 ** 62, X + np.iinfo(np.int64).min):
        whole(f, values)
    same_as_eager(lambda x: (x + 1, x[0, 1].item() < 2 ** 70, x[0, 1].item() < 1.5), X)
    same_as_eager(lambda x: (x + 1, x[0, 1].item() < 1.5), X + 2 ** 62, fallback=True)


@both_libraries
def test_what_has_no_truth_raises_as_it_does(lib):
    def f(x):
        return x + 1, x in [x + 1, x]

    def g(x):
        return x + 1, bool(x)

    for function in (f, g, lambda x: (x + 1, not x)):
        for _ in range(2):
            with pytest.raises((RuntimeError, ValueError), match="ambiguous"):
                framejit.compile(function)(lib.array(X))


def test_code_of_the_user_s_is_asked_only_where_no_element_before_is_equal():
    class Asked:
        count = 0

        def __eq__(self, other):
            Asked.count += 1
            return NotImplemented

    def f(x, asked):
        return x + 1, x[0] in [2, asked]

    for values, count in (([2, 0], 0), ([1, 0], 1)):
        Asked.count = 0
        x = np.array(values)
        eager = f(x, Asked())[1]
        once, Asked.count = Asked.count, 0
        assert framejit.compile(f)(x, Asked())[1] == eager and Asked.count == once and bool(once) == bool(count)


@needs_torch
def test_what_torch_does_not_look_for():
    for item in ("a", None, [1], np.ones(3)):
        def f(x):
            return x + 1, item in x

        for _ in range(2):
            with pytest.raises(RuntimeError, match="only supports Tensor or scalar"):
                framejit.compile(f)(torch.tensor(X))


@needs_torch
def test_of_a_tensor_with_a_gradient():
    def f(x):
        return x * 2, 1.0 in x, bool(x.sum()), not x[0, 0], x[0, 1] in [1, 2]

    x = torch.tensor(X * 1.0, requires_grad=True)
    whole(f, x)
