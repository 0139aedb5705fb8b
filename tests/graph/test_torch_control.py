"""torch.cond and torch.while_loop: branches and loops of the graph, as those that are written in plain Python."""
import warnings

import pytest

import framejit
from harness import needs_torch, torch
import test_branches
import test_loops_on_data
from test_branches import branches, given, same, same_from_files
from test_loops_on_data import loops

pytestmark = needs_torch


def cond(x, y):
    return torch.cond(x.sum() > 0, lambda a, b: a * 2 + b, lambda a, b: a - b.exp(), (x, y))


def cond_of_a_tree(x, y):
    made = torch.cond((x > 1).any(), lambda a, b: {"z": a * 2, "w": b + 1}, lambda a, b: {"z": a + 1, "w": b * 2},
                      (x, y))
    return made["z"] * made["w"]


def cond_in_cond(x, y):
    def inner(a, b):
        return torch.cond(a.max() > 2, lambda a, b: a - b, lambda a, b: a * b, (a, b))
    return torch.cond(x.sum() > 0, inner, lambda a, b: b * 3, (x, y))


def while_loop(x, y):
    return torch.while_loop(lambda i, a: i < x.max().abs() * 2, lambda i, a: (i + 1, a * 0.5 + y), (torch.tensor(0), x))


def while_on_data(x, y):
    z, = torch.while_loop(lambda a: a.abs().max() > 1, lambda a: (a * 0.5,), (x,))
    return z + y


def swapped(x, y):
    return torch.while_loop(lambda a, b: a.abs().sum() + b.abs().sum() > 3, lambda a, b: (b * 0.7, a * 0.6), (x, y))


def while_of_a_tree(x, y):
    state = torch.while_loop(lambda s: s["n"] < y.max() * 2, lambda s: ({"n": s["n"] + 1, "a": s["a"] + y},),
                             ({"n": torch.tensor(0), "a": x},))
    return state[0]["a"]


def cond_in_while(x, y):
    def body(i, a):
        return i + 1, torch.cond(a.sum() > 0, lambda a: a - y.abs(), lambda a: a * 0.5 + 1, (a,))
    return torch.while_loop(lambda i, a: i < 6, body, (torch.tensor(0), x))[1]


def pairs():
    for seed in range(12):
        generator = torch.Generator().manual_seed(seed)
        yield tuple(torch.randn(5, generator=generator) * (.2 + seed % 4) + (seed % 3 - 1) for _ in range(2))


CONDS = [cond, cond_of_a_tree, cond_in_cond]
WHILES = [while_loop, while_on_data, swapped, while_of_a_tree, cond_in_while]


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own calls compile, and tell of it
        yield


@pytest.mark.parametrize("f", CONDS + WHILES, ids=lambda f: f.__name__)
def test_the_graph_has_it(f):
    graph = framejit.capture(f, *next(pairs()))
    assert (branches(graph) if f in CONDS else loops(graph)) >= 1
    compiled = framejit.compile(f, retire=False)
    for x, y in pairs():
        same(graph(x, y), f(x, y))
        same(compiled(x, y), f(x, y))
    assert framejit.cache_info()["internal_errors"] == 0


@pytest.mark.parametrize("f", [cond_in_cond, while_on_data, cond_in_while], ids=lambda f: f.__name__)
def test_a_file_has_it(f, tmp_path):
    lib = type("Torch", (), {"name": "torch"})
    same_from_files(lib, f, tmp_path, lambda graph: branches(graph) + loops(graph))


def test_a_compiled_loop_of_torchs_becomes_one_piece():
    compiled, (x, y) = framejit.compile(while_on_data, retire=False, join_branches=True), next(pairs())
    compiled(x, y)
    before = framejit.cache_info()["hits"]
    same(compiled(x * 7, y), while_on_data(x * 7, y))
    assert framejit.cache_info()["hits"] == before + 1


def test_gradients_of_cond_are_torchs():
    w = torch.ones(5, requires_grad=True)

    def f(x):
        return torch.cond(x.sum() > 0, lambda a: a * w, lambda a: a - w * w, (x,)).sum()

    compiled, (x, _) = framejit.compile(f, retire=False, join_branches=True), next(pairs())
    for given in [x, x, -x, x * 2]:
        found = []
        for function in (f, compiled):
            w.grad = None
            function(given).backward()
            found.append(w.grad.clone())
        torch.testing.assert_close(*found)


@pytest.mark.parametrize("f", [
    lambda x: torch.while_loop(lambda a: a.sum() < 100, lambda a: (a.reshape(5, 1) * 2,), (x,)),
    lambda x: torch.while_loop(lambda a: a.sum() < 100, lambda a: (a.double() * 2,), (x,)),
    lambda x: torch.while_loop(lambda a, b: a.sum() < 100, lambda a, b: (a * 2, a), (x, x + 0)),
    lambda x: torch.while_loop(lambda a, b: a.sum() < 100, lambda a, b: (a * 2, b), (x, x + 0)),
    lambda x: torch.while_loop(lambda a: 100 - a.sum().clamp(max=100), lambda a: (a * 2,), (x,)),
    lambda x: torch.cond(x.sum() > 0, lambda a: a, lambda a: a * 2, (x,)),
    lambda x: torch.while_loop(lambda a: a.sum() < 100, lambda a: [a * 2], [x]),
    lambda x: torch.while_loop(lambda a: a.sum() < 100, lambda a: (a.add_(1) * 2,), (x,)),
    lambda x: torch.while_loop(lambda i, a: i < 5, lambda i, a: (i + 1, a * 2), (0, x)),
])
def test_what_torch_refuses_or_takes_otherwise_is_torchs(f):
    """Other shapes, dtypes, tensors that share memory, ints: torch's own call says what it is."""
    x, outcomes = torch.ones(5), []
    for function in (f, framejit.compile(f, retire=False, join_branches=True)):
        for _ in range(2):
            try:
                result = function(x)
                outcomes.append((type(result), *result))
            except Exception as error:
                outcomes.append(type(error))
    for one in outcomes[1:]:
        assert str(one) == str(outcomes[0])


FX = CONDS + WHILES + [f for f in test_branches.PROGRAMS if f is not test_branches.number] + [
    test_loops_on_data.while_loop, test_loops_on_data.swapped, test_loops_on_data.early_return,
    test_loops_on_data.behind_a_branch]


@pytest.mark.parametrize("f", FX, ids=lambda f: f.__name__)
def test_torch_fx_has_it(f):
    """As torch.cond and torch.while_loop, of any number of operands, inside of each other."""
    graph = framejit.capture(f, *next(pairs()))
    module = graph.to_fx()
    assert {str(node.target) for node in module.graph.nodes} & {"cond", "while_loop"}
    back = framejit.from_fx(module, *given(graph, *next(pairs())))
    for x, y in pairs():
        same(module(*given(graph, x, y)), f(x, y))
        same(back(*given(graph, x, y)), f(x, y))


def test_torch_fx_has_sizes_inside_of_branches_and_loops():
    def f(x):
        while x.sum() < 100:
            x = x + x.shape[0]
        return x * x.shape[0] if x.max() > 30 else x + 1

    module = framejit.capture(f, torch.ones(4), dynamic_shapes=True).to_fx()
    found = {str(node.target) for part in module.modules() for node in part.graph.nodes}
    assert found >= {"cond", "while_loop"}
    for size in (2, 4, 7, 60):
        same(module(torch.ones(size)), f(torch.ones(size)))


@pytest.mark.parametrize("f", [test_branches.number, test_loops_on_data.counted])
def test_torch_fx_has_no_ranges_of_numbers(f):
    with pytest.raises(framejit.GraphError, match="the range of a Python number"):
        framejit.capture(f, *next(pairs())).to_fx()
