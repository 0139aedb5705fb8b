"""framejit.library_function: functions of NumPy arrays that are one operation of a graph."""
import numpy as np
import pytest

import framejit

CALLS = []


def moving(x, width, *, scale=1.0):
    """The mean of neighbours."""
    CALLS.append((x.shape, type(x), type(width), type(scale)))
    return np.convolve(x, np.ones(width) / width, "same") * scale


def moving_function(function=moving):
    """`moving` with rules, of its own for each test."""
    made = framejit.library_function(function)

    @made.result
    def result(x, width, *, scale=1.0):
        return np.empty(x.shape, np.result_type(x.dtype, float))

    return made


def whole(function, *arguments):
    """The results of a function that has to be one graph, twice."""
    compiled = framejit.compile(function, fullgraph=True)
    CALLS.clear()
    first = compiled(*arguments)
    assert len(CALLS) == 1
    np.testing.assert_array_equal(compiled(*arguments), first)
    return first


def test_a_function_is_one_operation_of_the_graph():
    smooth = moving_function()

    def f(x):
        return np.sum(smooth(np.sin(x), 3) ** 2)

    x = np.linspace(0, 1, 9)
    assert whole(f, x) == f(x)
    report = framejit.explain(f)(x)
    assert len(report.graphs) == 1 and report.kernel_count == 2
    node, = [node for node in framejit.capture(f, x) if node.op == "extern_call"]
    assert node.attrs["callee"].endswith(".moving") and node.file == __file__


def test_outside_of_compiled_code_it_is_the_function():
    smooth = moving_function()
    x = np.linspace(0, 1, 9)
    np.testing.assert_array_equal(smooth(x, 3, scale=2.0), moving(x, 3, scale=2.0))
    assert smooth.__name__ == "moving" and smooth.__doc__ == moving.__doc__ and "moving" in repr(smooth)


@pytest.mark.parametrize("size", [1, 2, 10, 1000, 100_000])
def test_sizes_that_vary(size):
    smooth = moving_function()
    compiled = framejit.compile(lambda x: smooth(x * 2, 3) + 1, dynamic=True)
    for length in (7, 8, size):
        x = np.random.default_rng(0).standard_normal(length)
        np.testing.assert_array_equal(compiled(x), moving(x * 2, 3) + 1)


def test_no_elements():
    smooth = moving_function(lambda x, width, *, scale=1.0: x * scale)
    np.testing.assert_array_equal(framejit.compile(lambda x: smooth(x, 3) + 1)(np.ones((0, 3))), np.ones((0, 3)))


def test_numbers_are_given_as_numbers():
    smooth = moving_function()

    def f(x, scale):
        return smooth(x, int(2 + 1), scale=scale) + smooth(x, 3, scale=float(x.sum()))

    compiled = framejit.compile(f, fullgraph=True)
    x = np.linspace(0, 1, 9)
    for scale in (1.0, 2.5, 3.5, -1.0):
        CALLS.clear()
        np.testing.assert_array_equal(compiled(x, scale), f(x, scale))
        assert {call[1:] for call in CALLS} == {(np.ndarray, int, float)}


def test_scalars_and_several_results():
    @framejit.library_function
    def parts(x, total):
        assert type(total) is np.float64
        return [x * 2, x.astype(np.int32)], (total, float(total), None)

    @parts.result
    def result(x, total):
        return [x, np.empty(x.shape, np.int32)], (total, 1.0, None)

    def f(x):
        (double, rounded), (total, number, nothing) = parts(x, x.sum())
        assert nothing is None
        return double + rounded + total + number

    x = np.linspace(0, 5, 7)
    np.testing.assert_array_equal(framejit.compile(f, fullgraph=True)(x), f(x))


@pytest.mark.filterwarnings("ignore:divide by zero")
def test_conditions_are_reported_inside_as_eager_reports_them():
    @framejit.library_function
    def careful(x):
        try:
            return np.log(x)
        except FloatingPointError:
            return x * 0 - 7

    careful.result(lambda x: x)

    def f(x):
        return careful(x) + 1

    x, compiled = np.array([0.0, 1.0, 2.0]), framejit.compile(f)
    np.testing.assert_array_equal(compiled(x), [-np.inf, 1, 1 + np.log(2)])
    with np.errstate(divide="raise"):
        np.testing.assert_array_equal(compiled(x), [-6, -6, -6])


def test_what_raises():
    @framejit.library_function
    def strict(x):
        raise ArithmeticError("no such value")

    strict.result(lambda x: x)
    with pytest.raises(ArithmeticError, match="no such value"):
        framejit.compile(lambda x: strict(x) + 1)(np.ones(3))


def breaks_of(function, *arguments):
    report = framejit.explain(function)(*arguments)
    assert len(report.breaks) > 0
    np.testing.assert_array_equal(framejit.compile(function)(*arguments), function(*arguments))
    return report.breaks[0].text


def test_no_rule_for_the_result():
    plain = framejit.library_function(lambda x: x[::-1] * 2)
    text = breaks_of(lambda x: plain(x) + 1, np.arange(4.0))
    assert "has no rule for its result" in text and __file__.rpartition("/")[2] in text


@pytest.mark.parametrize("function", [lambda x: np.stack([x, x]), lambda x: x.astype(np.float32), lambda x: x[1:], lambda x: x, lambda x: list(x)],
                         ids=["rank", "dtype", "view", "argument", "list"])
def test_what_the_rule_does_not_say_is_left_to_python(function):
    made = framejit.library_function(function)
    made.result(lambda x: x)

    def f(x):
        found = made(x)
        if isinstance(found, np.ndarray) and np.shares_memory(found, x):
            found += 1                                       # and x with it
        return np.asarray(found) * 2 + x[:1]

    for _ in range(2):
        x, y = np.arange(4.0), np.arange(4.0)
        np.testing.assert_array_equal(framejit.compile(f)(x), f(y))
        np.testing.assert_array_equal(x, y)


def test_a_rule_that_is_given_later():
    made = framejit.library_function(lambda x: x * 2)
    framejit.compile(lambda x: made(x) + 1)(np.ones(3))
    made.result(lambda x: x)
    assert whole_breaks(lambda x: made(x) + 1, np.ones(3)) == 0


def whole_breaks(function, *arguments):
    return len(framejit.explain(function)(*arguments).breaks)


def test_an_argument_that_is_no_constant():
    class Box:
        pass

    made = framejit.library_function(lambda x, box: x * box.factor)
    made.result(lambda x, box: x)
    box = Box()
    box.factor = 3.0
    compiled = framejit.compile(lambda x, box: made(x, box) + 1)
    np.testing.assert_array_equal(compiled(np.ones(3), box), np.full(3, 4.0))
    box.factor = 5.0
    np.testing.assert_array_equal(compiled(np.ones(3), box), np.full(3, 6.0))


# ---- derivatives and batches

def derived():
    smooth = moving_function()

    @smooth.vjp
    def vjp(x, width, scale=1.0):
        return smooth(x, width), lambda cotangent: (smooth(cotangent, width), None)

    return smooth


def test_a_derivative():
    smooth = derived()

    def f(x):
        return np.sum(smooth(np.sin(x), 3) ** 2)

    x, step = np.linspace(0, 1, 9), 1e-6
    numeric = [(f(x + step * row) - f(x - step * row)) / (2 * step) for row in np.eye(9)]
    np.testing.assert_allclose(framejit.grad(f)(x), numeric, rtol=1e-6)
    with pytest.raises(TypeError, match="moving .*has no rule"):
        framejit.grad(lambda x: np.sum(moving_function()(x, 3)))(x)


def test_a_batch_is_each_example():
    smooth = derived()

    def f(x, y):
        return np.sum(smooth(np.sin(x), 3) * y)

    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((4, 9)), rng.standard_normal(9)
    CALLS.clear()
    np.testing.assert_allclose(framejit.vmap(f, (0, None))(x, y), [f(row, y) for row in x])
    assert {call[0] for call in CALLS} == {(9,)}
    np.testing.assert_allclose(framejit.vmap(framejit.grad(f), (0, None))(x, y), [framejit.grad(f)(row, y) for row in x])
    np.testing.assert_allclose(framejit.vmap(framejit.vmap(f, (0, None)), (0, None))(np.stack([x, x + 1]), y),
                               [[f(row, y) for row in part] for part in (x, x + 1)])


def test_a_rule_for_batches():
    smooth = moving_function()
    shapes = []

    @smooth.batched
    def batched(x, width, *, scale=1.0):
        shapes.append(x.shape)
        return np.stack([moving(row, width, scale=scale) for row in x])

    x = np.random.default_rng(1).standard_normal((4, 9))
    np.testing.assert_allclose(framejit.vmap(lambda row: smooth(row, 3) + 1)(x), [moving(row, 3) + 1 for row in x])
    assert shapes == [(4, 9)]


def test_what_is_no_function():
    for wrong in (3, "f", None):
        with pytest.raises(TypeError, match="library_function takes a callable"):
            framejit.library_function(wrong)
    made = framejit.library_function(np.sort)
    for rule in (made.result, made.batched, made.vjp):
        with pytest.raises(TypeError, match="a rule is a callable"):
            rule(3)
