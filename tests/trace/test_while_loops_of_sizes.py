"""`while` loops that go on until nothing is left: the size of each pass is asked for, and not assumed pass after pass."""
import numpy as np
import pytest

import framejit

torch = pytest.importorskip("torch", reason="torch is not installed")


def remove_the_first(x):
    out = []
    while x.numel():
        out.append(x[0])
        x = x[x != x[0]]
    return torch.stack(out)


def greedy_suppression(x):
    order, keep = (-x).argsort(), []
    while len(order) > 0:
        first, rest = order[0], order[1:]
        keep.append(first)
        order = rest[(x[rest] - x[first]).abs() > 0.2]
    return torch.stack(keep)


def breadth_first(x):
    edges = (x[:, None] - x[None]).abs() < 0.1
    seen = torch.zeros(len(x), dtype=torch.bool)
    seen[0] = True
    front, depth = torch.zeros(1, dtype=torch.long), 0
    while not front.shape[0] == 0:
        found = edges[front].any(0) & ~seen
        seen = seen | found
        front = found.nonzero()[:, 0]
        depth += 1
    return seen, depth


def left_from_inside(x):
    total = x.new_zeros(())
    while True:
        x = x[x > 0.1]
        if not x.numel():
            break
        total = total + x.amax()
        x = x / 2
    return total


def in_a_function_of_its_own(x):
    return remove_the_first(x * 2).flip(0) + 1


def in_another_loop(x):
    parts = []
    for scale in (1, 2, 3):
        rest = x * scale
        while rest.shape[0] > 1:
            rest = rest[rest > rest.mean()]
        parts.append(rest)
    return torch.cat(parts)


def of_numpy(x):
    x, count = x.numpy(), 0
    while x.size:
        x = x[x < x.max()]
        count += 1
    return count, x


@pytest.mark.parametrize("f", [remove_the_first, greedy_suppression, breadth_first, left_from_inside, in_a_function_of_its_own, in_another_loop, of_numpy],
                         ids=lambda f: f.__name__)
def test_a_loop_until_nothing_is_left(f):
    compiled, draw = framejit.compile(f), torch.Generator().manual_seed(0)
    for size in (30, 30, 7, 1, 2, 30, 41):
        x = torch.rand(size, generator=draw)
        got, want = compiled(x), f(x)
        for a, b in zip(got, want) if isinstance(want, tuple) else ((got, want),):
            assert type(a) is type(b)
            np.testing.assert_allclose(a, b, rtol=1e-6)
    report = framejit.explain(compiled).so_far()
    assert sum(len(graph) for graph in report.graphs) < 300  # a pass has at most 15 operations
