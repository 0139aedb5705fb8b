"""Indices, starts and lengths that the program computes; views of parts that functions of torch split off, with a gradient."""
import numpy as np
import pytest

import framejit
from harness import both_libraries, needs_torch, same_as_eager, torch

X = np.arange(20.0).reshape(4, 5)


@both_libraries
def test_an_element_or_row_at_a_computed_index(lib):
    def f(x, n):
        k = n.item()
        return x[k] * 2, x[1, k] + 1, x[k, k - 1:], x[..., k], x[None, k, ::2], x[-k - 1], int(n) + 1

    x, one = lib.array(X), lib.array(X[:1, :1])
    for n in (0, 3, 1, 2):
        run = same_as_eager(f, x, lib.array(np.array(n)), breaks=())
    assert len(run.graphs) == 1
    same_as_eager(lambda x, n: (x + 1, x[n.item()], x[0, n.item()]), one, lib.array(np.array(0)), breaks=())
    same_as_eager(lambda x, n: (x + 1, x[n.item()]), x, lib.array(np.array(-1)), breaks=())


@both_libraries
def test_a_view_at_a_computed_index_is_written_through(lib):
    def f(x, n):
        k = int(n)
        row = x[k]
        row += 1
        x[k, 0] = 7
        return row, x[:, k]

    for n in (0, 3, -2):
        same_as_eager(f, lib.array(X.copy()), lib.array(np.array(n)), breaks=())


@both_libraries
@pytest.mark.parametrize("n", [4, -5, 2 ** 62, -2 ** 63])
def test_an_index_out_of_range_raises_as_it_does(lib, n):
    def f(x, n, log):
        log.append(1)
        return x + 1, x[n.item()]

    n = lib.array(np.array(n))
    for _ in range(2):
        log = []
        with pytest.raises(IndexError):
            framejit.compile(f)(lib.array(X), n, log)
        assert log == [1]
    with pytest.raises(IndexError):
        framejit.compile(f)(lib.array(X[:0]), lib.array(np.array(0)), [])


@needs_torch
def test_narrow_and_select_by_computed_ints():
    def f(x, n, m):
        a, b = n.item(), m.item()
        return x.narrow(0, 0, a) * 2, x.narrow(1, a, 1) + 1, x.narrow(1, b, a) + 1, torch.narrow(x, 1, -2, b), x.select(1, a), x.select(0, b) * 2

    x = torch.tensor(X)
    for n, m in ((1, 2), (3, 1), (0, 0), (2, 2)):
        for needs in (False, True):
            run = same_as_eager(f, x.clone().requires_grad_(needs), torch.tensor(n), torch.tensor(m), breaks=())
    assert len(run.graphs) == 1
    for n, m in ((5, 0), (-1, 1), (3, 3), (2 ** 62, 2)):
        outcomes = []
        for call in (f, framejit.compile(f), framejit.compile(f)):
            with pytest.raises((RuntimeError, IndexError)) as raised:
                call(x, torch.tensor(n), torch.tensor(m))
            outcomes.append(str(raised.value).splitlines()[0])
        assert len(set(outcomes)) == 1


SPLITS = {
    "into parts": lambda x: torch.tensor_split(x, 3), "into more parts than rows": lambda x: x.tensor_split(6, 0),
    "along an axis": lambda x: x.tensor_split(3, dim=-1), "at indices": lambda x: torch.tensor_split(x, (1, 3, 2, 9, -1)),
    "at no index": lambda x: torch.tensor_split(x, []), "vsplit": lambda x: torch.vsplit(x, 2) + x.vsplit([1]),
    "hsplit": lambda x: torch.hsplit(x, 5) + x.hsplit([2, 4]), "hsplit of a row": lambda x: torch.hsplit(x[0], [1]),
    "dsplit": lambda x: torch.dsplit(x[None], [1, 2]), "adjoint": lambda x: (x.adjoint(), torch.adjoint(x[None])),
}


@needs_torch
@pytest.mark.parametrize("name", SPLITS)
def test_parts_that_are_views(name):
    split = SPLITS[name]

    def f(x):
        return [part * 2 for part in split(x * 3)], split(x)

    for needs in (False, True):
        x = torch.tensor(X).requires_grad_(needs)
        same_as_eager(f, x, breaks=())
        if needs:
            gradients = []
            for call in (f, framejit.compile(f)):
                x.grad = None
                sum((part * torch.arange(1.0, part.numel() + 1).reshape(part.shape)).sum() for group in call(x) for part in group).backward()
                gradients.append(x.grad)
            torch.testing.assert_close(*gradients)

    def g(x):
        x = x * 2
        split(x)[0].mul_(5)
        return x

    same_as_eager(g, torch.tensor(X), breaks=())


@needs_torch
@pytest.mark.parametrize("split", [
    lambda x: torch.vsplit(x, 3), lambda x: torch.hsplit(x, 2), lambda x: torch.dsplit(x, 1), lambda x: torch.tensor_split(x, 0),
    lambda x: torch.tensor_split(x, 2, 5), lambda x: torch.vsplit(x[0], 1), lambda x: x[0].adjoint()])
def test_parts_that_torch_refuses(split):
    def f(x):
        return split(x * 2)

    outcomes = []
    for call in (f, framejit.compile(f), framejit.compile(f)):
        with pytest.raises((RuntimeError, IndexError)) as raised:
            call(torch.tensor(X))
        outcomes.append(str(raised.value))
    assert len(set(outcomes)) == 1
