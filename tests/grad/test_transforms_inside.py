"""Transformations made and used inside compiled code: whatever ends a piece there, results are those of the code as written."""

import numpy as np
import pytest

import framejit

X = np.array([0.5, 2.0, 3.0])


def branching(y):
    return y.sum() * 2 if y.sum() > 0 else y.sum() * 3


def reads_between(x):
    value, pullback = framejit.vjp(lambda y: y * y, x)
    first = float(value[0])
    return first, pullback(np.ones(3))


def branches_between(x):
    value, pullback = framejit.vjp(lambda y: y * y, x)
    if value.sum() > 0:
        value = value + 1
    return value, pullback(np.ones(3))


def prints_between(x):
    value, pullback = framejit.vjp(lambda y: y * y, x)
    print(value)
    return pullback(np.ones(3))


def writes_between(x):
    value, pullback = framejit.vjp(lambda y: y * y, x)
    value *= 10
    return value, pullback(np.ones(3))


def changes_the_tree_between(x):
    value, pullback = framejit.vjp(lambda y: [y * y], x)
    value.clear()
    return pullback([np.ones(3)])


def calls_through_a_helper(x):
    def helper():
        return framejit.vjp(lambda y: y * y, x)

    value, pullback = helper()
    return [pullback(np.ones(3)) for _ in range(2) if value[0] > 0]


def loops(x):
    for _ in range(3):
        value, pullback = framejit.vjp(lambda y: (y * y).sum(), x)
        if value < 0.1:
            break
        x = x - 0.1 * pullback(1.0)[0]
    return x


def makes_a_gradient_of_what_branches(x):
    return framejit.grad(branching)(x)


def keeps_a_gradient_of_what_branches(x):
    gradient = framejit.grad(branching)
    return gradient(x), gradient(-x)


def makes_a_jacobian_of_what_branches(x):
    return framejit.jacobian(lambda y: y * 2 if y.sum() > 0 else y * 3)(x)


def pushes_through_what_branches(x):
    return framejit.jvp(lambda y: y * 2 if y.sum() > 0 else y * 3, (x,), (x,))


def differentiates_a_pullback_after_a_branch(x):
    value, pullback = framejit.vjp(lambda y: y ** 3, x)
    if value.sum() > 0:
        x = x + 1
    return framejit.grad(lambda c: (pullback(c)[0] * x).sum())(np.ones(3))


@pytest.mark.parametrize("function", [reads_between, branches_between, prints_between, writes_between, changes_the_tree_between,
                                      calls_through_a_helper, loops, makes_a_gradient_of_what_branches, keeps_a_gradient_of_what_branches,
                                      makes_a_jacobian_of_what_branches, pushes_through_what_branches, differentiates_a_pullback_after_a_branch],
                         ids=lambda function: function.__name__)
def test_a_piece_that_ends_between_has_the_values_of_the_code_as_written(function):
    compiled = framejit.compile(function)
    for x in (X, -X, 2 * X):
        for ours, theirs in zip(leaves(compiled(x.copy())), leaves(function(x.copy())), strict=True):
            assert np.allclose(ours, theirs), (ours, theirs)


def leaves(tree):
    if isinstance(tree, (tuple, list)):
        return [leaf for item in tree for leaf in leaves(item)]
    return [tree]


def test_a_pullback_may_leave_compiled_code():
    value, pullback = framejit.compile(lambda x: framejit.vjp(np.sin, x))(X)
    assert np.allclose(pullback(np.ones(3))[0], np.cos(X))
    assert np.allclose(framejit.compile(lambda: pullback(2 * np.ones(3)))()[0], 2 * np.cos(X))
    gradient = framejit.compile(lambda f: framejit.grad(f))(np.sin)
    assert np.isclose(gradient(1.0), np.cos(1.0)) and gradient.__name__ == "grad(sin)"


def test_what_eager_refuses_is_refused_in_compiled_code():
    rows = np.arange(6.0).reshape(3, 2) - 2
    mapped = lambda x: framejit.vmap(lambda a: a if a.sum() > 0 else -a)(x)  # noqa: E731
    for each in (mapped, framejit.compile(mapped)):
        with pytest.raises(framejit.GraphBreakError, match="FJ125.*branches on each example"):
            each(rows)


def test_a_transformation_that_raises_leaves_nothing_behind():
    def bad(a):
        raise KeyError(a.shape)

    def tries(x):
        try:
            framejit.vmap(bad)(x)
        except KeyError:
            pass
        return x.sum()

    rows = np.arange(6.0).reshape(2, 3)
    assert np.array_equal(framejit.vmap(tries)(rows), [3, 12])
    assert np.array_equal(framejit.vmap(lambda row: framejit.vmap(lambda a: a * tries(rows))(row))(rows), rows * 15)

    @framejit.compile(fullgraph=True)
    def writes(x):
        out = np.zeros(())
        tries(x)
        out += x.sum()
        return out

    assert writes(rows) == 15
    with pytest.raises(KeyError):
        framejit.vmap(bad)(rows)


def test_paths_that_send_a_call_to_each_other_end():
    # Within each graph the sum is another one in its last bits, or the same: whichever way is taken, one is.
    z = np.random.default_rng(9).normal(size=(7, 37))
    bound = (z @ z.T).sum()

    for limit in (bound, np.nextafter(bound, 0), np.nextafter(bound, 999), 285.6616675616708):
        def f(x, z):
            if (z @ z.T).sum() > limit:
                return x * 1.0, 0.0
            return x * 2.0, z.T.copy()

        gradient = framejit.grad(f, has_aux=True)
        for _ in range(3):
            assert gradient(1.0, z)[0] in (1.0, 2.0)


def test_a_function_that_is_mapped_may_not_draw_or_write_outside():
    from numpy.random import rand

    total = np.zeros(1)

    def counts(a):
        total[0] += 1
        return a

    for function in (lambda a: a + rand(1), counts):
        with pytest.raises(framejit.GraphBreakError, match="FJ125"):
            framejit.vmap(function)(np.zeros(3))
        with pytest.raises(framejit.GraphBreakError, match="FJ125"):
            framejit.compile(lambda x: framejit.vmap(function)(x))(np.zeros(3))
    assert total[0] == 0


def test_the_pullback_of_tensors_that_require_gradients_is_part_of_their_graph():
    torch = pytest.importorskip("torch", reason="torch functions are derived with torch installed")
    found = []
    for vjp in (framejit.vjp, torch.func.vjp):
        x = torch.tensor(X, requires_grad=True)
        value, pullback = vjp(lambda y: y ** 3, x)
        (value.sum() + pullback(torch.ones(3, dtype=torch.float64))[0].sum()).backward()
        found.append(x.grad)
    assert torch.allclose(*found)


@pytest.mark.parametrize("function, calls", [
    (lambda x: x.sum() * (7 // (len(x[x > 0]) - 2)) if len(x[x > 0]) > 2 else x.sum(), [[1, 2, 3], [1, 2, -3], [4, 5, 6], [1, -2, -3]]),
    (lambda x: x[np.array([0, 3])].sum() * 2 if len(x[x > 0]) > 3 else x[x > 0].sum(), [[1, 2, 3, 4], [1, 2, -3], [1, 2, 3, 4]]),
    (lambda x: (x * (6 // (x > 1).astype(int))).sum() if (x > 1).all() else x.sum(), [[2, 2, 3], [1.5, 0.5, 0], [2, 2, 2]]),
], ids=["division", "index", "element"])
def test_a_path_that_fails_is_not_the_path_of_this_call(function, calls):
    """The piece of another path divides by zero, or reads past the end, before it knows which way the branches go."""
    derivative = framejit.grad(function)
    for call in calls:
        x = np.array(call, dtype=float)
        step = 1e-6 * np.eye(len(x))
        np.testing.assert_allclose(derivative(x), [(function(x + h) - function(x - h)) / 2e-6 for h in step], atol=1e-6)
