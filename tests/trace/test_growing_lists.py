"""Lists from outside that only grow: a history, what a loop collects. None of their items is asked for."""
import copy

import numpy as np
import pytest

import framejit
from harness import assert_same, needs_torch, torch

X = np.linspace(-1, 1, 6)


def counted(make, calls):
    """Of a function and what else it changes, made anew for both: (graphs, breaks, eager replays)."""
    framejit.reset()
    (ours, our_state), (eager, eager_state) = make(), make()
    compiled = framejit.compile(ours)
    for given in calls:
        outcomes = []
        for run in (compiled, eager):
            try:
                outcomes.append(run(*copy.deepcopy(given)))
            except Exception as error:
                outcomes.append((type(error), str(error)))
        assert_same(*outcomes)
        assert_same(our_state, eager_state)
    info = framejit.cache_info()
    report = framejit.explain(compiled).so_far().text()
    assert info["internal_errors"] == 0 and "ran eagerly" not in report, report
    return info["graphs"], info["breaks"], info["eager_replays"]


def test_a_history_is_one_graph_however_long_it_is():
    def make():
        history = []

        def f(x):
            history.append(x.mean())
            history.append(float(x[0]))
            return x * 2
        return f, history

    assert counted(make, [(X + i,) for i in range(20)]) == (1, 0, 0)


def test_a_history_of_an_object_and_of_a_dict():
    class Log:
        def __init__(self):
            self.losses, self.by_name = [], {"a": [], "b": []}

    def make():
        log = Log()

        def f(x, name):
            log.losses.append(x.sum())
            log.by_name[name].append(x)
            return x + 1
        return f, log

    assert counted(make, [(X + i, "ab"[i % 2]) for i in range(16)])[0] <= 2


def test_its_length_alone_is_a_symbol():
    def make():
        history = []

        def f(x):
            history.append(x)
            return x * len(history), len(history) - 1
        return f, history

    assert counted(make, [(X + i,) for i in range(12)]) == (2, 0, 0)


def test_what_a_loop_with_a_break_collects_is_one_graph_an_iteration():
    def make():
        def f(x, n):
            out = []
            for i in range(n):
                out.append((x * i).sum())
                print(end="")
            return out, len(out)
        return f, None

    graphs, breaks, replays = counted(make, [(X, n) for n in (3, 4, 5, 12, 20, 1, 0)])
    assert graphs <= 6 and replays == 0


def test_the_last_of_what_was_appended_is_known():
    def make():
        history = []

        def f(x):
            history.append(x.sum())
            history.append(x.mean())
            return history[-1] + history[-2] * 2
        return f, history

    assert counted(make, [(X + i,) for i in range(12)]) == (1, 0, 0)


def test_a_comprehension_that_breaks_is_one_graph_an_iteration():
    def make():
        def part(x, i):
            print(end="")
            return x * i

        def f(x, n):
            return [part(x, i) + 1 for i in range(n)]
        return f, None

    assert counted(make, [(X, n) for n in (3, 4, 12, 20)])[0] <= 6


APPENDED = {
    "then read": lambda h, x: (h.append(x), h[-1], h[0]),
    "then counted": lambda h, x: (len(h), h.append(x), len(h), h.append(x), len(h)),
    "then iterated": lambda h, x: (h.append(x * 2), [v + 1 for v in h]),
    "then popped": lambda h, x: (h.append(x), h.append(3), h.pop(), h.pop(0)),
    "then cleared": lambda h, x: (h.append(x), h.clear(), h.append(x + 1)),
    "then sorted": lambda h, x: (h.append(float(len(h))), h.sort(key=lambda v: -np.size(v)), len(h)),
    "then extended": lambda h, x: (h.append(x), h.extend([1, x]), h.insert(0, 5)),
    "twice the same": lambda h, x: (h.append(x), h.append(x), h[-1] is h[-2]),
    "itself": lambda h, x: (h.append(h), h[-1] is h, h.pop() is h),
    "and compared": lambda h, x: (h.append(1), h == [1], 1 in h, bool(h)),
    "and copied": lambda h, x: (h.append(x), list(h), h[:], h + [2], tuple(h)),
    "and added to": lambda h, x: (h.append(x), h.__iadd__([x + 1]), h.index(h[0]) if len(h) == 1 else None),
    "and written": lambda h, x: (h.append(x), h.__setitem__(0, x * 3), h[0]),
    "of itself": lambda h, x: (h.append(list.append(h, x)), len(h)),
    "an array that is written": lambda h, x: (h.append(x), np.multiply(x, 2, out=x), h[-1] + 1),
}


@pytest.mark.parametrize("use", APPENDED.values(), ids=APPENDED)
@pytest.mark.parametrize("start", [[], [np.arange(3.0)], [np.arange(3.0), 2.5, None]], ids=["empty", "one", "three"])
def test_a_list_that_is_looked_at_after_it_has_grown(use, start):
    def make():
        history = copy.deepcopy(start)

        def f(x):
            return use(history, x)[1:], x + 1
        return f, history

    framejit.reset()
    (ours, held), (eager, other) = make(), make()
    compiled = framejit.compile(ours)
    for i in range(3):
        outcomes = []
        for run, x in ((compiled, X + i), (eager, X + i)):
            try:
                outcomes.append((run(x), x))
            except Exception as error:
                outcomes.append((type(error), str(error), x))
        assert repr(outcomes[0]) == repr(outcomes[1])
        assert repr(held) == repr(other)
    assert framejit.cache_info()["internal_errors"] == 0


def test_two_names_of_one_list():
    def make():
        a = []
        names = {"a": a, "b": a}

        def f(x):
            names["a"].append(x)
            names["b"].append(x + 1)
            return len(names["a"]), names["a"] is names["b"], names["b"][-1]
        return f, names

    counted(make, [(X + i,) for i in range(4)])


def test_lists_that_become_one_between_two_calls():
    def f(a, b, x):
        a.append(x)
        return len(b), x * 2

    framejit.reset()
    compiled = framejit.compile(f)
    for make in (lambda: ([], []), lambda: ([1], [2]), lambda: ([shared := [3]][0:1] * 2), lambda: ([1], [2, 3])):
        outcomes = []
        for run in (compiled, f):
            a, b = make()
            outcomes.append((run(a, b, X), a, b))
        assert_same(*outcomes)


@needs_torch
@pytest.mark.parametrize("loss", ["mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy_with_logits", "kl_div", "poisson_nll_loss", "soft_margin_loss"])
def test_a_training_step_whose_batches_change_keeps_its_history(loss):
    def make():
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
        optimiser = torch.optim.SGD(model.parameters(), 0.01)
        history = []

        def step(x, y):
            optimiser.zero_grad()
            value = getattr(torch.nn.functional, loss)(model(x).squeeze(-1), y)
            value.backward()
            optimiser.step()
            history.append(value.item())
            return value.detach()
        return step, history

    sizes = (5, 6, 5, 7, 9)
    generator = torch.Generator().manual_seed(0)
    graphs, _, replays = counted(make, [(torch.rand(n, 4, generator=generator), torch.rand(n, generator=generator)) for n in sizes])
    assert graphs <= 6 and replays == 0


def test_a_few_elements_become_numbers_of_the_graph():
    def make():
        def f(x):
            values = x[:4].tolist()
            return [v / 2 for v in values], max(values), min(values) + 1, x * values[0], x[:4].reshape(2, 2).tolist(), (x > 0)[:3].tolist(), np.arange(3).tolist()
        return f, None

    assert counted(make, [(X,), (X[::-1],), (X * 3,)]) == (1, 0, 0)
    assert counted(make, [(np.arange(n) - 3.0,) for n in (6, 8, 7, 9)])[2] == 0


@needs_torch
def test_a_few_elements_of_a_tensor_become_numbers_of_the_graph():
    def make():
        def f(x):
            values = x[:4].tolist()
            return [v / 2 for v in values], max(values), x * values[0], x.long()[:2].tolist(), x[0].tolist()
        return f, None

    assert counted(make, [(torch.from_numpy(X).float() + i,) for i in range(3)]) == (1, 0, 0)


def test_the_sum_of_computed_numbers_is_python_s():
    def make():
        def f(x):
            return sum(x.tolist()), sum([float(x[0]), 1.0, float(x[2])]), x + 1
        return f, None

    framejit.reset()
    f, _ = make()
    compiled = framejit.compile(f)
    for x in (np.array([1e100, 1.0, -1e100, 1.0]), np.array([0.1, 0.2, 0.3, -0.6]), np.full(4, 0.1)):
        assert compiled(x)[:2] == f(x)[:2]
    assert framejit.cache_info()["internal_errors"] == 0


def test_an_attribute_of_a_function_is_an_attribute():
    def make():
        def helper(x):
            helper.last = x
            return x

        def f(x):
            f.calls += 1
            f.seen = [f.calls]
            return helper(x) * f.calls, helper.last is x
        f.calls = 0
        return f, (lambda: (f.calls, f.seen))

    framejit.reset()
    (ours, state), (eager, other) = make(), make()
    compiled = framejit.compile(ours)
    for i in range(5):
        assert_same(compiled(X + i), eager(X + i))
        assert state() == other()
    info = framejit.cache_info()
    assert info["breaks"] == 0 and info["graphs"] <= 2 and info["internal_errors"] == 0


def test_a_number_made_of_a_list_s_length():
    def make():
        history = [0] * 21

        def f(x, n):
            for _ in range(3):
                history.append(n >> (len(history) & 7))
                x = x + (len(history) // 5)
            return x
        return f, history

    counted(make, [(X, 28)] * 12)
