"""NumPy's random functions inside one graph: what eager draws, in eager's order, and the generators left as eager leaves them."""
import random
import warnings

import numpy as np
import pytest

import framejit

X = np.linspace(-1, 1, 12).reshape(3, 4)
SHARED = np.random.default_rng(3)


def state_of(generator):
    return generator.get_state(legacy=False) if isinstance(generator, np.random.RandomState) else generator.bit_generator.state


def drawn(function, arguments):
    """Results, errors and the states of all generators afterwards, of three calls."""
    np.random.seed(5)
    SHARED.bit_generator.state = np.random.default_rng(3).bit_generator.state
    seen = []
    for call in range(3):
        given = arguments(call)
        try:
            result = function(X.copy(), *given)
        except Exception as error:
            result = type(error), str(error)
        seen.append((result, [state_of(generator) for generator in given if hasattr(generator, "normal")]))
    return seen, np.random.get_state(legacy=False), SHARED.bit_generator.state


def same(ours, eager):
    if isinstance(eager, (tuple, list)):
        return len(ours) == len(eager) and all(map(same, ours, eager))
    if isinstance(eager, dict):
        return list(ours) == list(eager) and all(same(ours[key], eager[key]) for key in eager)
    if isinstance(eager, (np.ndarray, np.generic)):
        close = np.allclose(ours, eager, rtol=1e-12) if eager.dtype.kind == "f" else (ours == eager).all()
        return type(ours) is type(eager) and ours.dtype == eager.dtype and ours.shape == eager.shape and close
    return ours == eager


def draws_as_eager(function, arguments=lambda call: (), breaks=0, graphs=1):
    framejit.reset()
    compiled = framejit.compile(function)
    eager, ours = drawn(function, arguments), drawn(compiled, arguments)
    report = framejit.explain(compiled).so_far()
    assert same(ours, eager), report
    assert len(report.breaks) == breaks and len(report.graphs) == graphs, report
    assert framejit.cache_info()["internal_errors"] == 0
    return report


def legacy_functions(x):
    noise = np.random.rand(3, 4) + np.random.randint(0, 9, (3, 1))
    return x + noise, np.random.randn(*x.shape) * x, np.random.choice(10, 3), np.random.random_sample((2,)), np.random.normal(1.0, size=4)


def generator_of_the_module(x):
    return x * SHARED.standard_normal((3, 4)) + SHARED.integers(0, 5, size=(3, 4)), SHARED.exponential(2.0, 3), SHARED.random(2, dtype=np.float32)


@pytest.mark.parametrize("function", [legacy_functions, generator_of_the_module], ids=lambda f: f.__name__)
def test_draws_are_nodes_in_order(function):
    draws_as_eager(function)


@pytest.mark.parametrize("make", [np.random.default_rng, np.random.RandomState, lambda seed: np.random.Generator(np.random.MT19937(seed))],
                         ids=["default", "legacy", "mersenne"])
def test_generator_that_is_an_argument_is_another_one_at_each_call(make):
    def f(x, generator):
        return x + generator.uniform(-1, 1, size=x.shape), generator.normal(0.0, 2.0, (2, 2)) * 2

    draws_as_eager(f, lambda call: (make(call),))


def test_sizes_that_change_become_symbols():
    def f(x, n):
        return np.random.standard_normal(n) * 2

    draws_as_eager(f, lambda call: (call + 2,), graphs=2)


def test_a_failure_after_a_draw_puts_the_generators_back():
    def f(x, k):
        y = x + np.random.rand(3, 4) + SHARED.random((3, 4))
        return y[np.array([k])]

    draws_as_eager(f, lambda call: (7 if call == 1 else call,), graphs=2)


@pytest.mark.parametrize("dtype", ["float32", "int16", "uint8", "bool", None])
def test_the_dtype_is_the_one_that_is_asked_for(dtype):
    def f(x, generator):
        if dtype == "float32":
            return generator.standard_normal((2,), dtype), generator.random(3, np.float32), generator.standard_gamma(2.0, dtype=np.float32, size=2)
        given = {} if dtype is None else {"dtype": dtype}
        return generator.integers(0, 2, size=3, **given), np.random.randint(0, 2, (2,), **given), generator.poisson(3.0, 2), generator.choice((1.5, 2), 3), np.random.choice(5, 2)

    draws_as_eager(f, lambda call: (np.random.default_rng(call),))


def test_a_deprecated_function_warns_once_a_call():
    def f(n):
        return np.random.random_integers(1, 1, size=n)

    for run in (f, framejit.compile(f)):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            run(4)
        assert len(seen) == 1


def test_generator_made_inside_is_made_by_python():
    def f(x):
        return x + np.random.default_rng(0).normal(size=(3, 4))

    draws_as_eager(f, breaks=1)


def test_arguments_that_are_arrays_are_python_s():
    draws_as_eager(lambda x: x + np.random.normal(x), breaks=1)
    draws_as_eager(lambda x: x + np.random.rand(-1), breaks=1, graphs=0)


def test_python_s_random_draws_what_eager_draws():
    def f(x):
        return x * random.random() + random.randint(1, 4)

    states = []
    for run in (f, framejit.compile(f)):
        random.seed(1)
        states.append(([run(X).tolist() for _ in range(3)], random.getstate()))
    assert states[0] == states[1]
