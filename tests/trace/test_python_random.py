"""Python's `random` inside one graph: what eager draws, in eager's order, and the generators left as eager leaves them."""
import random

import numpy as np
import pytest

import framejit

X = np.linspace(-1, 1, 12).reshape(3, 4)


def drawn(function, arguments):
    """Results or errors of four calls, and the states of all generators afterwards."""
    random.seed(5)
    seen = []
    for call in range(4):
        given = arguments(call)
        try:
            result = function(X.copy(), *given)
        except Exception as error:
            result = type(error), str(error)
        seen.append((result, [generator.getstate() for generator in given if isinstance(generator, random.Random)]))
    return seen, random.getstate()


def same(ours, eager):
    if isinstance(eager, (tuple, list)):
        return len(ours) == len(eager) and all(map(same, ours, eager))
    if isinstance(eager, np.ndarray):
        return ours.dtype == eager.dtype and ours.shape == eager.shape and np.allclose(ours, eager, rtol=1e-12)
    return type(ours) is type(eager) and ours == eager


def draws_as_eager(function, arguments=lambda call: (), breaks=(), graphs=1):
    framejit.reset()
    compiled = framejit.compile(function)
    eager, ours = drawn(function, arguments), drawn(compiled, arguments)
    report = framejit.explain(compiled).so_far()
    assert same(ours, eager), report
    assert [b.name for b in report.breaks] == list(breaks) and len(report.graphs) == graphs, report
    assert framejit.cache_info()["internal_errors"] == 0
    return report


def one_generator(*others):
    """Arguments of all calls of one run: the same generator, and what else there is for each call."""
    kept = []

    def arguments(call):
        if call == 0:
            kept[:] = [random.Random(2)]
        return (kept[0], *(other[call] for other in others))

    return arguments


NUMBERS = {
    "random": lambda r: r.random(),
    "uniform": lambda r: r.uniform(-1, 2.5),
    "triangular": lambda r: r.triangular(0, 3, mode=1),
    "gauss": lambda r: r.gauss(0, 1) + r.gauss(mu=2.0, sigma=0.5) + r.gauss(),
    "normalvariate": lambda r: r.normalvariate(0.0, 1.0),
    "lognormvariate": lambda r: r.lognormvariate(0, 1),
    "expovariate": lambda r: r.expovariate(2.0),
    "betavariate": lambda r: r.betavariate(0.4, 0.4),
    "gammavariate": lambda r: r.gammavariate(2, 1),
    "paretovariate": lambda r: r.paretovariate(3),
    "weibullvariate": lambda r: r.weibullvariate(1, 1.5),
    "vonmisesvariate": lambda r: r.vonmisesvariate(0, 4),
    "randint": lambda r: r.randint(1, 6),
    "randrange": lambda r: r.randrange(0, 100, 7),
    "getrandbits": lambda r: r.getrandbits(40),
    "choice of ints": lambda r: r.choice([3, 5, 8]) * 1.0 + r.choice(range(10)),
    "choice of floats": lambda r: r.choice((0.5, 1.5)),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_drawn_is_part_of_the_graph(name):
    draw = NUMBERS[name]
    draws_as_eager(lambda x: (x * draw(random) + draw(random), draw(random)))
    draws_as_eager(lambda x, r: (x * draw(r) + draw(r), draw(r)), lambda call: (random.Random(call),))


def test_a_generator_that_is_drawn_from_again_goes_on():
    draws_as_eager(lambda x, r: x * r.random() + r.gauss(0, 1), one_generator())


def test_a_method_that_is_bound_before_the_call_is_known_by_its_generator():
    draws_as_eager(lambda x, draw: x * draw(), lambda call: (random.Random(call).random,))
    draws_as_eager(lambda x, draw: x * draw(1, 2), lambda call: (random.Random(call).uniform,))


def test_what_it_draws_with_may_change():
    draws_as_eager(lambda x, a, n: x * random.uniform(0, a) + random.randint(0, n), lambda call: (call + 0.5, call + 3), graphs=2)
    draws_as_eager(lambda x, n: x * random.uniform(0, n / 3), lambda call: (call + 1,), graphs=2)


def test_a_failure_after_a_draw_puts_the_generator_back():
    def f(x, k):
        y = x * random.random() + random.gauss(0, 1)
        return y[np.array([k])]

    draws_as_eager(f, lambda call: (7 if call in (1, 2) else call,), graphs=2)


def test_a_failure_puts_back_what_gauss_keeps_for_the_next_call():
    def f(x, r, k):
        y = x + r.gauss(0, 1)
        return y[np.array([k])]

    draws_as_eager(f, one_generator([0, 9, 1, 9]), graphs=2)


def test_a_branch_on_a_number_and_other_kinds_of_draws_are_breaks():
    def flip(x):
        if random.random() < 0.5:
            x = x[:, ::-1]
        return x * 2

    draws_as_eager(flip, breaks=["BranchOnData"], graphs=2)

    def shuffled(x):
        order = list(range(3))
        random.shuffle(order)
        return x * order[0]

    draws_as_eager(shuffled, breaks=["RandomState"], graphs=2)
    draws_as_eager(lambda x: x * random.sample([1.0, 2.0, 3.0], 2)[0], breaks=["RandomState"], graphs=2)
    draws_as_eager(lambda x: x * {"a": 2}[random.choice("aaa")], breaks=["RandomState"])


def test_arguments_python_refuses_are_python_s_errors():
    draws_as_eager(lambda x: x * random.randint(3, 1), graphs=1)
    draws_as_eager(lambda x: x * random.uniform("a", 1), breaks=["RandomState"], graphs=0)


def test_a_random_function_that_somebody_replaces_is_called(monkeypatch):
    f = framejit.compile(lambda x: x * random.random() + random.uniform(1, 2))
    f(X)
    f(X)
    monkeypatch.setattr(random, "random", lambda: 3.0)
    monkeypatch.setattr(random, "uniform", lambda a, b: a - b)
    np.testing.assert_array_equal(f(X), X * 3.0 - 1)


def test_methods_that_a_generator_calls_may_be_replaced(monkeypatch):
    r = random.Random(1)
    f = framejit.compile(lambda x, r: x * r.uniform(0, 1))
    f(X, r)
    r.random = lambda: 0.25
    np.testing.assert_array_equal(f(X, r), X * 0.25)
    del r.random
    monkeypatch.setattr(random.Random, "random", lambda self: 0.5)
    np.testing.assert_array_equal(f(X, r), X * 0.5)


def test_a_derived_generator_draws_in_its_own_way():
    class Steps(random.Random):
        def random(self):
            return 0.75

    def f(x, r):
        return x * r.uniform(1, 3) + r.random()

    np.testing.assert_array_equal(framejit.compile(f)(X, Steps()), f(X, Steps()))


def test_a_seed_set_between_the_calls_counts():
    f = framejit.compile(lambda x: x * random.random())
    for seed in (1, 2, 1):
        random.seed(seed)
        ours = f(X)
        random.seed(seed)
        np.testing.assert_array_equal(ours, X * random.random())


def test_a_replaced_helper_of_a_draw_runs_as_often_as_in_eager():
    called = []

    def helper(mean, deviation):
        called.append(1)
        return 0.5

    def f(x, r, i):
        return (x.ravel() * r.lognormvariate(0, 1))[np.array([i])]

    r = random.Random(1)
    r.normalvariate = helper
    compiled = framejit.compile(f)
    compiled(X, r, 1), compiled(X, r, 2)
    with pytest.raises(IndexError):
        compiled(X, r, 99)
    assert len(called) == 3
