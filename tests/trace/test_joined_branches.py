"""Compiled functions whose first graph keeps ending at a branch or loop on data: one graph of all ways replaces it."""
import sys
import warnings

import numpy as np
import pytest

import framejit
from harness import assert_same, needs_torch, torch

LIBRARIES = [np, pytest.param(torch, marks=needs_torch)]


def branches(x):
    y = x * 2 + 1
    if y.sum() > 0:
        return y * x - 3
    return x - y / 2


def returns_early(x):
    if x.max() > 10:
        return x * 0
    for k in range(3):
        x = x + k
        if x.min() > 4:
            break
    else:
        x = x * 2
    return x + 1


def iterates(x):
    y = x * 0.5 + 0.5
    while abs(y * y - x).max() > 1e-9:
        y = 0.5 * (y + x / y)
    return y


def counts(x):
    if (x > 0).all():
        return x * 2, 1
    return x - 1, 0


def decides_numbers(x):
    return (x + 1, True) if x.sum() > 8 and x.max() < 100 else (x - 1, False)


def raises(x):
    if x.sum() > 100:
        raise ValueError("too much")
    return x * 3


JOINED = [branches, returns_early, iterates, counts, decides_numbers, raises]
VALUES = [[0.5, 1.5, 2.5], [1.0, 1.0, 1.0], [11.0, 4.0, 5.0], [2.0, 6.0, 9.0], [0.25, 0.5, 4.0], [200.0, 1.0, 2.0]]


def outcome(f, *given):
    try:
        return f(*given)
    except ValueError as error:
        return str(error)


def pieces(compiled, x):
    """How many one call runs."""
    before = framejit.cache_info()["hits"]
    outcome(compiled, x)
    return framejit.cache_info()["hits"] - before


def used(f, x, calls=3, join_branches=True):
    """Compiled, and called so often."""
    framejit.reset()
    compiled = framejit.compile(f, retire=False, join_branches=join_branches)
    for _ in range(calls):
        outcome(compiled, x)
    return compiled


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("f", JOINED)
def test_all_ways_are_one_piece_and_give_what_eager_gives(f, library):
    """The ways that no call has taken before too."""
    given = [library.asarray(value, dtype=library.float64) for value in VALUES]
    for first in given[:5]:
        compiled = used(f, first)
        assert pieces(compiled, first) == 1
        for x in given:
            assert_same(outcome(compiled, x), outcome(f, x))
        assert framejit.cache_info()["internal_errors"] == 0


def test_breaks_are_to_cost_what_compiling_does_first():
    x = np.asarray(VALUES[0])
    assert pieces(used(branches, x, 100, None), x) == 2
    assert pieces(used(branches, x, 3000, None), x) == 1
    assert pieces(used(branches, x, 1, True), x) == 1
    assert pieces(used(branches, x, 3000, False), x) == 2
    # A pass of a loop is a break.
    assert pieces(used(iterates, x, 20, None), x) > 3
    assert pieces(used(iterates, x, 600, None), x) == 1


@pytest.mark.parametrize("library", LIBRARIES)
def test_what_can_not_be_one_graph_stays_two(library):
    seen = []

    def notes(x):
        y = x * 2
        if y.sum() > 3:
            seen.append(1)
            return y + 1
        return y

    def returns_what_it_is_given(x):
        if x.sum() > 3:
            return x
        return x * 2

    def writes(x):
        if x.sum() > 3:
            x += 1
        return x * 2

    for f, count in (notes, 2), (returns_what_it_is_given, 1), (writes, 2):  # what only returns runs in CPython
        x = library.ones(4, dtype=library.float64)
        compiled = used(f, x * 1)
        assert pieces(compiled, x * 1) == count
        for value in (1, -1):
            given = x * value, x * value
            assert_same(compiled(given[0]), f(given[1]))
            assert_same(*given)
    assert len(seen) == 3 + 1 + 2  # used() and pieces(), and the loop with 1, compiled and as it is
    kept = library.ones(4, dtype=library.float64)
    compiled = used(returns_what_it_is_given, kept)
    assert compiled(kept) is kept


def test_why_not_is_in_the_log(caplog):
    def f(x):
        if x.sum() > 3:
            print(end="")
        return x * 2

    framejit.set_logs("graph_breaks")
    try:
        with caplog.at_level("INFO", logger="framejit"):
            used(f, np.ones(4))
    finally:
        framejit.set_logs("")
    assert any("both ways are not in one graph" in record.getMessage() for record in caplog.records)


def test_fullgraph_takes_branches_and_says_why_not():
    x = np.asarray(VALUES[0])
    for f in JOINED[:5]:
        assert_same(framejit.compile(f, fullgraph=True)(x), f(x))
    with pytest.raises(framejit.GraphBreakError, match="branch"):
        framejit.compile(branches, fullgraph=True, join_branches=False)(x)

    def changes(x):
        if x.sum() > 3:
            x[0] = 1
        return x

    with pytest.raises(framejit.GraphBreakError, match="both ways are not in one graph"):
        framejit.compile(changes, fullgraph=True)(x)


def branch_in_a_loop(x):
    y = x * 0.5
    for i in range(3):
        if y.max() > 1.5:
            y = y * 0.5 + i
    return y


def loop_in_a_loop(x):
    y = x * 0.5
    for _ in range(2):
        y = y + 1
        while y.max() > 0.5:
            y = y * 0.5
    return y


REFUSED = pytest.mark.skipif(sys.version_info >= (3, 14), reason="a while in a for is refused there: its condition stands at its header alone")


@pytest.mark.parametrize("f", [branch_in_a_loop, pytest.param(loop_in_a_loop, marks=REFUSED)])
def test_a_loop_whose_passes_branch_is_in_one_graph(f):
    compiled = framejit.compile(f, fullgraph=True)
    for values in VALUES:
        assert_same(compiled(np.asarray(values)), f(np.asarray(values)))


def test_the_code_of_branches_is_logged():
    said = []
    framejit.set_logs("code", sink=lambda artifact, text: said.append(text))
    try:
        framejit.compile(branches, fullgraph=True)(np.asarray(VALUES[0]))
    finally:
        framejit.set_logs("")
    assert any(": control over [" in text for text in said)


def test_warm_up_joins_and_later_calls_compile_nothing():
    compiled = framejit.compile(branches, retire=False)
    x = np.asarray(VALUES[0])
    framejit.warm_up(compiled, x)
    assert pieces(compiled, x) == 1
    with framejit.options(on_recompile="error"):
        for _ in range(20):
            compiled(-x)
    compiled = used(branches, x, 4, None)
    with framejit.options(on_recompile="error"):
        for _ in range(3000):
            compiled(x)
        assert pieces(compiled, x) == 2
    compiled(x)
    assert pieces(compiled, x) == 1


def fails_on_one_way(x):
    if x.sum() > 5:
        return None
    if x.sum() < 0:
        raise ValueError("negative")
    return None


def asserts_on_one_way(x):
    if x.sum() > 5:
        return 1
    if not x.sum() > 0:
        raise ValueError("not positive")
    return 1


def fails_deep_inside(x):
    if x.sum() > 5:
        if x.sum() > 50:
            raise ValueError("too much")
        y = x + 1
    else:
        y = x - 1
    return y.shape


def fails_in_a_loop(x):
    n = 0
    while n < x.sum():
        n += 1
        if n > 5:
            raise ValueError(n)


def warns_on_one_way(x):
    if x.sum() > 5:
        x / 0
    else:
        np.log(x - 1)


GIVE_NOTHING = [fails_on_one_way, asserts_on_one_way, fails_deep_inside, fails_in_a_loop, warns_on_one_way]


@pytest.mark.parametrize("f", GIVE_NOTHING)
def test_ways_that_give_no_array_fail_and_warn_as_eager(f):
    compiled = used(f, np.array([2.0]))
    for value in (2.0, 9.0, -1.0, 20.0, 70.0):
        found = []
        for function in (f, compiled):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                found.append((outcome(function, np.array([value])), [str(warning.message) for warning in caught]))
        assert found[1] == found[0]
    with pytest.raises(framejit.GraphBreakError):
        framejit.capture(f, np.array([2.0]))


@needs_torch
@pytest.mark.parametrize("change", [lambda y: y.add_(1), lambda y: y.mul(2).add_(1)])
def test_writes_in_a_loop_are_counted(change):
    def f(x):
        y = x * 2
        while y.sum() < 20:
            y = change(y)
        return y

    compiled = used(f, torch.arange(3.0))
    for x in (torch.arange(3.0), torch.arange(3.0) * 2, torch.arange(3.0) * 10):
        assert_same(compiled(x), f(x))


@needs_torch
def test_backward_rests_on_what_the_way_taken_has_saved():
    def f(x, w):
        if x.sum() > 0:
            return x * w
        return x + w

    compiled = framejit.compile(f, retire=False, join_branches=True)
    for value in (2.0, -2.0):
        w, x = torch.ones(2, requires_grad=True), torch.tensor([value, 1.0])
        result = compiled(x, w)
        x.mul_(2)
        if value > 0:
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                result.sum().backward()
        else:
            result.sum().backward()
            assert torch.equal(w.grad, torch.ones(2))


@needs_torch
def test_pieces_are_derived():
    layer = torch.nn.Linear(3, 3, dtype=torch.float64)

    def f(x):
        y = layer(x)
        if y.sum() > 0:
            y = torch.tanh(y) * 2
        else:
            y = y * y
        return y.sum()

    x = torch.tensor([0.5, 1.5, 2.5], dtype=torch.float64)
    compiled = used(f, x)
    assert pieces(compiled, x) == 2
    for given in (x, -x, x * 3, -x * 3):
        found = []
        for function in (f, compiled):
            layer.zero_grad()
            function(given).backward()
            found.append([p.grad.clone() for p in layer.parameters()])
        assert_same(found[1], found[0])


@needs_torch
def test_a_loop_that_torch_derives_stays_pieces():
    weight = torch.tensor([0.5, 0.25, 0.125], dtype=torch.float64, requires_grad=True)

    def f(x):
        while x.sum() < 10:
            x = x * (1 + weight) + 1
        return x.sum()

    x = torch.ones(3, dtype=torch.float64)
    compiled = used(f, x)
    found = []
    for function in (f, compiled):
        weight.grad = None
        function(x).backward()
        found.append(weight.grad.clone())
    assert_same(found[1], found[0])
    with torch.no_grad():
        for _ in range(12):
            assert_same(compiled(x), f(x))
