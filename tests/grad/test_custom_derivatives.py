"""Derivatives that the user gives: stop_gradient, and custom_derivative with its two kinds of rules, checked by finite differences and closed forms."""
import pickle

import numpy as np
import pytest

import framejit
from harness import both_libraries, needs_torch

X = np.array([0.5, -1.0, 2.0])


@framejit.custom_derivative
def cube(x):
    return x * x * x


@cube.vjp
def cube_vjp(x):
    return cube(x), lambda cotangent: (10 * cotangent * x * x,)      # 10 for 3: a rule that can be seen


@framejit.custom_derivative
def cube_forward(x):
    return x * x * x


@cube_forward.jvp
def cube_jvp(primals, tangents):
    return cube_forward(primals[0]), 10 * tangents[0] * primals[0] ** 2


both_rules = pytest.mark.parametrize("f", [cube, cube_forward], ids=["vjp", "jvp"])


def close(ours, expected):
    np.testing.assert_allclose(np.asarray(ours), expected, rtol=1e-12, atol=1e-12)


# ---- stop_gradient


@both_libraries
def test_what_is_stopped_is_a_constant_for_all_derivatives(lib):
    x, stop = lib.array(X), framejit.stop_gradient

    def f(x):
        return lib.sum(stop(x) * x * x)

    close(framejit.grad(f)(x), 2 * X ** 2)
    close(framejit.hessian(f)(x), np.diag(2 * X))
    close(framejit.jvp(f, (x,), (x,))[1], np.sum(2 * X ** 3))
    close(framejit.vjp(f, x)[1](1.0)[0], 2 * X ** 2)
    close(framejit.jacobian(lambda x: stop(x) * x)(x), np.diag(X))
    close(framejit.vmap(framejit.grad(lambda x: stop(x) * x))(x), X)
    close(framejit.grad(lambda x: lib.sum(framejit.vmap(lambda a: stop(a) * a)(x)))(x), X)
    close(framejit.compile(lambda x: framejit.grad(f)(x), fullgraph=True)(x), 2 * X ** 2)
    close(framejit.compile(lambda x: stop(x) + 1, fullgraph=True)(x), X + 1)


def test_stopping_takes_trees():
    tree = {"a": X, "b": [2.0, None, (np.float32(3), 4, "text")]}
    stopped = framejit.stop_gradient(tree)
    assert stopped["a"] is not X and np.array_equal(stopped["a"], X) and stopped["b"] == tree["b"]
    gradient = framejit.grad(lambda d: framejit.stop_gradient(d)["a"].sum() * d["b"] + d["a"].sum())({"a": X, "b": 2.0})
    assert np.array_equal(gradient["a"], np.ones(3)) and gradient["b"] == X.sum()


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_stopping_keeps_every_float(dtype):
    bits = np.dtype(f"u{np.dtype(dtype).itemsize}")
    with np.errstate(over="ignore"):
        edges = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 5e-324, 2.5e-310, 2.0 ** -500, 2.0 ** 52 - 0.5, 2.0 ** 52 + 1, -1.7e308]).astype(dtype)
    x = np.concatenate([edges, np.random.default_rng(0).integers(0, 2 ** (8 * bits.itemsize) - 1, 5000, dtype=bits).view(dtype)])
    value, pullback = framejit.vjp(framejit.stop_gradient, x)
    assert value.dtype == dtype and np.array_equal(value, x, equal_nan=True)
    assert np.array_equal(np.signbit(value[~np.isnan(x)]), np.signbit(x[~np.isnan(x)]))
    assert not pullback(np.ones_like(x))[0].any()
    mapped = framejit.vmap(lambda a: framejit.vjp(framejit.stop_gradient, a)[0])(x)
    assert mapped.dtype == dtype and np.array_equal(mapped, x, equal_nan=True)
    assert np.array_equal(np.signbit(mapped[~np.isnan(x)]), np.signbit(x[~np.isnan(x)]))


def test_an_infinite_derivative_is_stopped_too():
    f = lambda x: x + framejit.stop_gradient(np.sqrt(x))  # noqa: E731
    assert framejit.grad(f)(0.0) == 1 and np.array_equal(framejit.vmap(framejit.grad(f))(np.zeros(2)), [1, 1])


@needs_torch
def test_stopping_detaches_tensors():
    import torch

    x = torch.tensor(X, requires_grad=True)
    for function in (lambda x: framejit.stop_gradient(x) * x, framejit.compile(lambda x: framejit.stop_gradient(x) * x)):
        close(torch.autograd.grad(function(x).sum(), x)[0], X)


# ---- rules


@both_rules
@both_libraries
def test_the_rule_is_asked_wherever_a_derivative_is_taken(f, lib):
    x = lib.array(X)

    def total(x):
        return lib.sum(f(x * 2))

    close(f(x), X ** 3)
    close(framejit.compile(f)(x), X ** 3)
    close(framejit.vmap(f)(x), X ** 3)
    close(framejit.grad(total)(x), 80 * X ** 2)
    close(framejit.value_and_grad(total)(x)[0], np.sum(8 * X ** 3))
    close(framejit.vjp(f, x)[1](x)[0], 10 * X ** 3)
    close(framejit.jvp(f, (x,), (x,))[1], 10 * X ** 3)
    close(framejit.jacobian(f)(x), np.diag(10 * X ** 2))
    close(framejit.vmap(framejit.grad(f))(x), 10 * X ** 2)
    close(framejit.grad(lambda x: f(f(x)))(x[2]), 100 * 2.0 ** 8)
    close(framejit.compile(lambda x: framejit.grad(total)(x), fullgraph=True)(x), 80 * X ** 2)


@both_rules
@both_libraries
def test_higher_derivatives_derive_the_rule(f, lib):
    x = lib.array(X)
    close(framejit.hessian(lambda x: lib.sum(f(x)))(x), np.diag(20 * X))
    close(framejit.grad(lambda x: lib.sum(framejit.grad(lambda x: lib.sum(f(x)))(x)))(x), 20 * X)
    close(framejit.jvp(framejit.grad(lambda x: lib.sum(f(x))), (x,), (x,))[1], 20 * X ** 2)
    close(framejit.vjp(framejit.grad(lambda x: lib.sum(f(x))), x)[1](x)[0], 20 * X ** 2)
    close(framejit.grad(framejit.grad(framejit.grad(f)))(x[0]), 20.0)


@both_rules
def test_sizes_and_dtypes_may_change_between_calls(f):
    gradient = framejit.grad(lambda x: f(x).sum())
    for n in (3, 5, 4):
        for dtype in (np.float64, np.float32):
            x = np.arange(1, n + 1, dtype=dtype)
            assert gradient(x).dtype == dtype and np.array_equal(gradient(x), 10 * x ** 2)
    assert framejit.grad(f)(2.0) == 40 and framejit.grad(f)(np.float32(2)).dtype == np.float32


def test_with_both_rules_each_has_its_direction():
    @framejit.custom_derivative
    def f(x):
        return x * 1.0

    @f.vjp
    def f_vjp(x):
        return f(x), lambda cotangent: (2 * cotangent,)

    @f.jvp
    def f_jvp(primals, tangents):
        return f(*primals), 3 * tangents[0]

    assert framejit.grad(f)(1.0) == 2 and framejit.jvp(f, (1.0,), (1.0,)) == (1.0, 3.0)


def test_a_derivative_where_the_code_has_none():
    @framejit.custom_derivative
    def softplus(x):
        return np.log(1 + np.exp(x))

    @softplus.jvp
    def softplus_jvp(primals, tangents):
        x, = primals
        return softplus(x), tangents[0] * (1 - 1 / (1 + np.exp(x)))

    sigmoid = 1 / (1 + np.exp(-0.3))
    close(framejit.grad(softplus)(0.3), sigmoid)
    close(framejit.grad(framejit.grad(softplus))(0.3), sigmoid * (1 - sigmoid))
    assert framejit.grad(softplus)(1000.0) == 1.0


def test_a_gradient_that_is_clipped():
    @framejit.custom_derivative
    def clipped(x, low, high):
        return x

    @clipped.vjp
    def clipped_vjp(x, low, high):
        return x, lambda cotangent: (np.clip(cotangent, low, high), None, None)

    def f(x):
        return np.sum(clipped(x, low=-0.5, high=0.75) ** 2)

    gradient = framejit.grad(f)(X)
    assert np.array_equal(gradient, np.clip(2 * X, -0.5, 0.75))


def test_the_implicit_derivative_of_a_fixed_point():
    @framejit.custom_derivative
    def square_root(a, guess):
        x = guess
        for _ in range(40):
            x = 0.5 * (x + a / x)
        return x

    @square_root.vjp
    def square_root_vjp(a, guess):
        root = square_root(a, guess)

        def pullback(cotangent):
            # x = g(a, x): dx = (dg/da) / (1 - dg/dx) da
            by_a, by_x = framejit.vjp(lambda a, x: 0.5 * (x + a / x), a, root)[1](cotangent)
            inverse = framejit.vjp(lambda x: 0.5 * (x + a / x), root)[1](np.ones_like(root))[0]
            return by_a / (1 - inverse), np.zeros_like(guess)

        return root, pullback

    a = np.array([2.0, 9.0, 0.3])
    f = lambda a: np.sum(square_root(a, np.ones(3)))  # noqa: E731
    close(framejit.grad(f)(a), 0.5 * a ** -0.5)
    np.testing.assert_allclose(framejit.hessian(f)(a), np.diag(-0.25 * a ** -1.5), atol=1e-12)


def test_the_implicit_derivative_of_a_minimum():
    def energy(x, p):
        return np.sum(np.cosh(x - p) + 0.1 * x ** 2)

    @framejit.custom_derivative
    def minimum(p):
        x = p
        for _ in range(12):
            x = x - np.linalg.solve(framejit.hessian(energy)(x, p), framejit.grad(energy)(x, p))
        return x

    @minimum.vjp
    def minimum_vjp(p):
        x = minimum(p)

        def pullback(cotangent):
            u = np.linalg.solve(framejit.hessian(energy)(x, p), cotangent)
            return tuple(-c for c in framejit.vjp(lambda p: framejit.grad(energy)(x, p), p)[1](u))

        return x, pullback

    p = np.array([0.4, -1.1])
    step = 1e-6
    numeric = np.array([(minimum(p + step * e) - minimum(p - step * e)) / (2 * step) for e in np.eye(2)]).T
    np.testing.assert_allclose(framejit.jacobian(minimum)(p), numeric, atol=1e-8)


def test_arguments_and_results_are_trees():
    @framejit.custom_derivative
    def f(parts, n, name="a"):
        return {"product": parts["a"] * parts["b"][0] * n, "count": n, "none": None}

    @f.vjp
    def f_vjp(parts, n, name):
        assert name == "a"

        def pullback(cotangent):
            assert cotangent["count"] is None
            c = cotangent["product"] * n
            return {"a": 2 * c * parts["b"][0], "b": [3 * c * parts["a"]]}, None, None

        return f(parts, n), pullback

    gradient = framejit.grad(lambda parts: f(parts, 2)["product"].sum())({"a": X, "b": [X + 1]})
    close(gradient["a"], 4 * (X + 1))
    close(gradient["b"][0], 6 * X)


def test_a_method_has_a_derivative():
    class Scaled:
        def __init__(self, k):
            self.k = k

        @framejit.custom_derivative
        def f(self, x):
            return x * self.k

        @f.vjp
        def f_vjp(self, x):
            return x * self.k, lambda cotangent: (None, 7 * cotangent)

    assert Scaled(2.0).f(3.0) == 6 and framejit.grad(Scaled(2.0).f)(3.0) == 7


def test_it_is_the_function_elsewhere():
    assert cube.__name__ == "cube" and pickle.loads(pickle.dumps(cube)) is cube
    assert "test_custom_derivatives.py" in repr(cube)
    compiled = framejit.compile(lambda x: cube(x) + 1, fullgraph=True)
    framejit.reset()
    close(compiled(X), X ** 3 + 1)
    close(framejit.grad(lambda x: compiled(x).sum())(X), 10 * X ** 2)
    close(compiled(X), X ** 3 + 1)
    assert framejit.cache_info()["internal_errors"] == 0


@both_rules
@needs_torch
def test_backward_of_torch_asks_the_rule_once(f):
    import torch

    for function in (f, lambda x: f(x * 1.0), framejit.compile(lambda x: f(x) * 1.0)):
        x = torch.tensor(X, requires_grad=True)
        value = function(x)
        close(torch.autograd.grad(value.sum(), x, retain_graph=True)[0], 10 * X ** 2)
        close(value.detach(), X ** 3)
        assert not torch.autograd.grad(value.sum(), x, create_graph=True)[0].requires_grad


@needs_torch
def test_results_with_a_rule_have_no_history_of_torch():
    import torch

    w = torch.tensor(X, requires_grad=True)
    for result in (framejit.grad(lambda x: (cube(x) * w).sum() + w.sum())(torch.tensor(X)), framejit.vjp(lambda x: cube(x) * w, torch.tensor(X))[0]):
        assert not result.requires_grad


# ---- what is wrong is said


def test_a_derivative_without_a_rule_is_refused():
    @framejit.custom_derivative
    def bare(x):
        return x * 1.0

    assert bare(2.0) == 2
    for derive in (lambda: framejit.grad(bare)(2.0), lambda: framejit.jvp(bare, (2.0,), (1.0,)), lambda: framejit.vjp(bare, 2.0)):
        with pytest.raises(TypeError, match=r"bare \(.*test_custom_derivatives.py:\d+\) is taken, and it has no rule"):
            derive()


@pytest.mark.parametrize("cotangents, error, text", [
    (lambda x: (x, x), TypeError, "a tuple of 1 cotangents, one for each argument, not 2"),
    (lambda x: x, TypeError, "a tuple of 1 cotangents, one for each argument, not no tuple"),
    (lambda x: (x.sum(),), ValueError, r"has shape \(\), and what it belongs to \(3,\)"),
    (lambda x: (x.astype(np.float32),), ValueError, "has dtype float32, and what it belongs to float64"),
    (lambda x: ((x,),), TypeError, "another structure"),
], ids=["count", "no tuple", "shape", "dtype", "structure"])
def test_wrong_cotangents_are_refused(cotangents, error, text):
    @framejit.custom_derivative
    def f(x):
        return x * 1.0

    @f.vjp
    def wrong(x):
        return f(x), lambda cotangent: cotangents(cotangent)

    for derive in (framejit.grad(lambda x: f(x).sum()), lambda x: framejit.jvp(f, (x,), (x,)), framejit.compile(lambda x: framejit.grad(lambda x: f(x).sum())(x))):
        with pytest.raises(error, match=text) as caught:
            derive(X)
        assert "wrong" in str(caught.value) and "test_custom_derivatives.py:" in str(caught.value)


def test_a_rule_returns_a_pair():
    @framejit.custom_derivative
    def f(x):
        return x * 1.0

    @f.vjp
    def f_vjp(x):
        return x

    with pytest.raises(TypeError, match=r"f_vjp \(.*:\d+\) returns a pair \(value, pullback\)"):
        framejit.grad(f)(2.0)


def test_what_cannot_have_a_derivative_is_refused_where_it_is_made():
    with pytest.raises(TypeError, match="takes a callable, not 3"):
        framejit.custom_derivative(3)
    with pytest.raises(TypeError, match="keyword parameter 'k'"):
        framejit.custom_derivative(lambda x, *, k: x)
    with pytest.raises(TypeError, match="a rule is a callable"):
        framejit.custom_derivative(lambda x: x).vjp(3)


def test_arguments_are_given_by_position():
    with pytest.raises(TypeError, match="keyword argument 'y'"):
        framejit.grad(lambda x: cube(x, y=1))(2.0)


@both_rules
def test_mapping_it_inside_of_a_derivative_is_refused(f):
    with pytest.raises(TypeError, match=r"a function that vmap maps calls a function with a derivative of its own.*vmap\(grad\(f\)\)"):
        framejit.grad(lambda x: framejit.vmap(f)(x).sum())(X)
