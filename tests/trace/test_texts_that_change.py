"""Texts that change between calls: as keys of dicts that the function makes, formatted, taken apart, matched; what caches of functions hold;
and the whole part of a number that is rounded."""
import functools
import math
import re
import weakref

import numpy as np
import pytest

import framejit
from harness import assert_same, counted, needs_torch, torch

X = np.linspace(-1, 1, 12).reshape(3, 4)
NAMES = ["alpha", "beta", "gamma", "delta", "eps", "zeta"]
LAYERS = [f"layer{i}.weight" for i in range(3, 9)]


def pieces(function, calls):
    info = counted(function, calls)
    assert info["eager_replays"] == 0
    return info["graphs"], info["breaks"]


def key_of_a_new_dict(x, name):
    d = {"loss": x, name: x * 2}
    return d[name] + 1, d["loss"]


def dict_that_is_returned(x, name):
    return {"n": 3, name: x * 2}


def keys_made_of_it(x, name):
    out = {}
    for i in range(3):
        out[f"{name}_{i}"] = x * i
    return out, f"{name}_1" in out, out.pop(name + "_0")


def dict_methods(x, name):
    d = dict.fromkeys([name, "other"], 1)
    d.update({name: 5})
    d.setdefault(name, 7)
    e = dict(d)
    del d[name]
    return x * e[name], d.get(name), list(e), sorted(e), [(k, v) for k, v in e.items()], e == d, str(e)


def percent(x, name):
    return x + 1, "run %s of %d" % (name, 3), "<%s>" % name, "%(n)s" % {"n": name}


def braces(x, name):
    return x + 1, "{} {:>8}".format(name, 1), "{n!r:<9}|{{}}".format(n=name), "/".join([name, "a"])


def prefix(x, name):
    if name.startswith(("layer", "block")):
        x = x * 2
    if "bias" in name or name.endswith("gamma"):
        x = x * 0
    return x, name[:5], name[-1], name[5:]


def parts(x, name):
    head, tail = name.split(".")
    return x * int(head[5:]), tail, name.partition("."), name.rsplit(".", 1)


def matched(x, name):
    m = re.match(r"layer(\d+)\.(\w+)", name)
    if m is None:
        return x
    return x * int(m.group(1)), m[2], m.groups(), m.span(1)


PATTERN = re.compile(r"(?P<number>\d+)")


def searched(x, name):
    m = PATTERN.search(name)
    return (x * int(m["number"]), m.groupdict()) if m else x


TEXTS = [(key_of_a_new_dict, NAMES), (dict_that_is_returned, NAMES), (keys_made_of_it, NAMES), (percent, NAMES), (braces, NAMES), (prefix, LAYERS), (parts, LAYERS)]


@pytest.mark.parametrize("function, texts", TEXTS, ids=lambda value: getattr(value, "__name__", ""))
def test_a_text_that_is_not_asked_for_needs_no_graph_of_its_own(function, texts):
    assert pieces(function, [(X + i, text) for i, text in enumerate(texts)]) == (2, 0)


@pytest.mark.parametrize("function", [matched, searched], ids=lambda function: function.__name__)
def test_what_a_match_holds_is_made_anew(function):
    function(X, LAYERS[0])  # re keeps the pattern
    graphs, breaks = pieces(function, [(X + i, text) for i, text in enumerate(LAYERS)])
    assert breaks == 0 and graphs <= 3
    assert pieces(function, [(X, text) for text in (*LAYERS[:3], "nothing", "layer9.w")])[1] == 0


def test_every_way_through_a_dict_sees_the_key():
    assert pieces(dict_methods, [(X + i, text) for i, text in enumerate(NAMES)])[1] == 0


def test_a_key_that_meets_another_one_is_that_one():
    def f(x, a, b):
        d = {"loss": x}
        d[a] = x * 2
        d[b] = x * 3
        return d, len(d)

    calls = [(X, "u", "v"), (X, "w", "z"), (X, "q", "p"), (X, "same", "same"), (X, "loss", "v"), (X, "v", "loss"), (X, "q", "p")]
    assert pieces(f, calls)[1] == 0


def test_a_dict_from_outside_gets_the_key():
    def f(x, history, name):
        history[name] = history.get(name, 0) + 1
        return x * history[name]

    framejit.reset()
    compiled = framejit.compile(f)
    ours, eager = {"begin": 1}, {"begin": 1}
    for i, name in enumerate(["a", "b", "a", "c", "begin", "d", "a"]):
        assert_same(compiled(X + i, ours, name), f(X + i, eager, name))
        assert_same(ours, eager)


def test_a_pattern_s_results_are_plain():
    def f(x):
        return x * int(re.findall(r"\d+", "a1b22")[1]), re.sub("a", "b", "banana"), re.split(",", "a,b"), re.fullmatch("a+", "ab")

    f(X)
    assert pieces(f, [(X + i,) for i in range(3)]) == (1, 0)


def test_a_match_is_another_object_at_each_call():
    def f(x, name):
        m, n = PATTERN.search(name), PATTERN.search(name)
        return x + 1, m, m is n

    compiled = framejit.compile(f)
    found = [compiled(X, name) for name in ("a1", "b22", "a1", "c3")]
    assert [m.group() for _, m, _ in found] == ["1", "22", "1", "3"] and not any(same for *_, same in found)
    assert found[0][1] is not found[2][1]


@functools.lru_cache(maxsize=None)
def cached_list(n):
    return [n, n + 1]


@functools.lru_cache(maxsize=4)
def cached_array(n):
    return np.arange(n, dtype=float)


class Settings:
    def __init__(self, n):
        self.n = n


@functools.cache
def cached_object(n):
    return Settings(n)


@functools.lru_cache
def cached_dict(n):
    return {"a": n, "b": [n]}


@pytest.mark.parametrize("function", [
    lambda x, n: x * cached_list(n)[1],
    lambda x, n: x[:, 0] * cached_array(3) + n,
    lambda x, n: (x * cached_object(n).n, cached_object(n) is cached_object(n)),
    lambda x, n: x * cached_dict(n)["a"] + cached_dict(n)["b"][0],
])
def test_what_a_cache_holds_is_a_value_from_outside(function):
    for cached in (cached_list, cached_array, cached_object, cached_dict):
        cached.cache_clear()
    framejit.reset()
    compiled = framejit.compile(function)
    caches = [cached_list, cached_array, cached_object, cached_dict]

    def run(callee):
        for cached in caches:
            cached.cache_clear()
        results = [callee(X + i, i % 3) for i in range(6)]
        return results, [cached.cache_info() for cached in caches]

    first, second = run(compiled), run(compiled)
    eager = run(function)
    assert_same(first, eager)
    assert_same(second, eager)
    # Once it is held the call is whole.
    before = framejit.cache_info()["breaks"]
    for i in range(6):
        assert_same(compiled(X + i, i % 3), function(X + i, i % 3))
    assert framejit.cache_info()["breaks"] == before


def test_what_a_cache_holds_may_be_changed():
    @functools.cache
    def log(name):
        return []

    def f(x):
        log("a").append(float(x[0, 0]))
        return x + len(log("a"))

    compiled = framejit.compile(f)
    for i in range(4):
        assert_same(compiled(X + i), X + i + i + 1)
    assert log("a") == [float(X[0, 0] + i) for i in range(4)] and log.cache_info()[:2] == (8, 1)


def test_elements_are_read_when_their_turn_comes():
    def f(x):
        y, total = x.copy(), 0.0
        for v in y:
            y[1:] = y[1:] + v
            total = total + v
        return total, y

    assert pieces(f, [(np.arange(5.0) + i,) for i in range(3)]) == (1, 0)


def test_flat_is_assigned_whole():
    def f(x):
        y = np.empty_like(x)
        y.flat = x.ravel() * 2
        y.flat[1] = 3
        return y

    assert pieces(f, [(X + i,) for i in range(3)]) == (1, 0)
    assert pieces(f, [(np.asfortranarray(X) + i,) for i in range(2)])[0] > 0


@pytest.mark.parametrize("count", [3, 6, 9, 21, 33])
def test_the_whole_part_of_a_sum_is_the_library_s(count):
    def f(x):
        return int((x / 3).sum()), int(np.sum(x / 3)), int(np.add.reduce(x / 3)), round(float((x / 3).mean() * 3), 2)

    pieces(f, [(np.ones(count),), (np.full(count, 5.0),), (np.arange(count) % 3 + 1.0,)])


@needs_torch
@pytest.mark.parametrize("count", [3, 6, 9, 21, 33])
def test_the_whole_part_of_a_sum_is_torch_s(count):
    def f(x):
        return int((x / 3).sum()), int((x / 3).sum().item()), int(torch.exp(x / 3).mean() * 100)

    pieces(f, [(torch.ones(count),), (torch.full((count,), 5.0),), (torch.arange(count) % 3 + 1.0,)])


def test_a_sum_that_is_not_converted_stays_a_loop():
    def f(x):
        return (x * 2).sum(), (x / 3).sum()

    compiled = framejit.compile(f)
    assert_same(compiled(X), f(X))
    assert [node.op for graph in framejit.explain(compiled).so_far().graphs for node in graph.nodes].count("reduce_sum") == 2


def test_an_index_is_a_range():
    def f(x, n):
        return x[range(len(x))], x[(0, 1), :], x[np.arange(3), range(1, 4)], x[[n % 2, 1]]

    assert pieces(f, [(np.arange(20.0 + 5 * (i % 2)).reshape(5, -1), i) for i in range(4)])[1] == 0


@needs_torch
def test_an_index_is_a_range_of_the_batch():
    def f(x, lengths):
        return x[range(len(lengths)), lengths - 1, :] * 2, x[lengths - 1, range(len(lengths)), :]

    calls = [(torch.randn(n, n, 3, generator=torch.Generator().manual_seed(n)), torch.arange(n) % 2 + 1) for n in (3, 4, 5, 3)]
    graphs, breaks = pieces(f, calls)
    assert breaks == 0 and graphs == 2


@needs_torch
def test_a_schedule_s_reference_to_its_optimiser_is_known():
    def make():
        torch.manual_seed(0)
        layer = torch.nn.Linear(4, 2)
        optimiser = torch.optim.SGD(layer.parameters(), 0.1)
        schedule = torch.optim.lr_scheduler.StepLR(optimiser, 2)

        def step(x):
            optimiser.zero_grad()
            loss = layer(x).pow(2).mean()
            loss.backward()
            optimiser.step()
            schedule.step()
            return loss.detach(), schedule.get_last_lr()
        return step, layer

    (f, ours), (g, eager) = make(), make()
    framejit.reset()
    compiled = framejit.compile(f)
    for i in range(6):
        x = torch.randn(3, 4, generator=torch.Generator().manual_seed(i))
        assert_same(compiled(x), g(x))
    assert_same(list(ours.parameters()), list(eager.parameters()))
    assert framejit.cache_info()["breaks"] == 0


def test_an_object_that_is_let_go_in_the_call_is_gone():
    class Part:
        value = 3.0

    class Whole:
        def __init__(self):
            self.part = Part()
            self.reference = weakref.ref(self.part)

    def make():
        whole = Whole()

        def f(x, replaced):
            y = x * whole.part.value
            if replaced:
                whole.part = Part()
            return y, whole.reference() is None
        return f

    f, g = make(), make()
    compiled = framejit.compile(f)
    for i in range(5):
        assert_same(compiled(X + i, i == 2), g(X + i, i == 2))


def test_numbers_are_chosen_from_a_list():
    def f(x, n):
        steps = np.random.choice([-1, 1], size=n)
        return x[:n] + np.cumsum(steps), np.random.choice((0.5, 2.0), n, p=[0.25, 0.75])

    compiled = framejit.compile(f)
    framejit.reset()
    for i in range(4):
        outcomes = []
        for run in (compiled, f):
            np.random.seed(i)
            outcomes.append((run(np.arange(9.0), 3 + i), np.random.get_state()[1].tolist()))
        assert_same(*outcomes)
    assert framejit.cache_info()["breaks"] == 0


@pytest.mark.parametrize("function", [math.floor, math.ceil, math.trunc])
@pytest.mark.parametrize("values", [np.full(21, 1 / 3), np.full(30, 0.1), np.full(9, 1 / 9)])
def test_floor_and_ceil_of_a_sum_are_the_library_s(function, values):
    pieces(lambda x: (function(x.sum()), x + 1), [(values,)] * 3)


def test_a_match_is_no_key_that_a_guard_could_know():
    pattern = re.compile(r"([a-z]+)\d")

    def f(x, n):
        m = pattern.search(n)
        return x + 1, {m: 1}[m], len({m, pattern.search(n)})

    pieces(f, [(X, "a1"), (X, "bc2"), (X, "a1")])


def test_texts_that_no_codec_takes():
    def f(x, n):
        return x + 1, "\ud800{:{}}".format(n, 5), "\ud800%*d" % (n, n)

    pieces(f, [(X, n) for n in range(4)])
    pieces(lambda x, n: (x * 2, dict(**{"\ud800": n})), [(X, n) for n in range(4)])


class Count(int):
    pass


def test_a_number_of_a_derived_class_is_a_key():
    table = {(1, Count(0)): 2.0}
    none = Count(0)
    assert pieces(lambda x: (x * table[1, none], re.sub("a", "b", "banana", count=none)), [(X + i,) for i in range(3)]) == (1, 0)
