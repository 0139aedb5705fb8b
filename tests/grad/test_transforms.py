"""grad, vjp, jvp, jacobian, hessian and vmap of functions as written: conventions, control flow, errors, torch code."""
import collections
import functools
import gc
import os
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest

import framejit

X = np.array([0.3, -1.2, 0.8])


def test_the_gradient_has_the_structure_of_the_argument():
    Pair = collections.namedtuple("Pair", "a b")

    def f(p):
        return np.sum(p["w"] @ p["w"].T) + p["pair"].a * p["pair"].b[1] + p["list"][0]

    w = np.arange(6.0).reshape(2, 3)
    gradient = framejit.grad(f)({"w": w, "pair": Pair(2.0, np.array([3.0, 4.0])), "list": [1.5, None]})
    assert list(gradient) == ["w", "pair", "list"]
    assert np.array_equal(gradient["w"], 2 * np.ones((2, 1)) * w.sum(axis=0))
    assert isinstance(gradient["pair"], Pair) and gradient["pair"].a == 4.0 and np.array_equal(gradient["pair"].b, [0.0, 2.0])
    assert gradient["list"] == [1.0, None]


def test_argnums_and_aux_follow_jax():
    def f(x, y, scale=1.0):
        return np.sum(x * y) * scale, {"sum": x.sum()}

    gradient, aux = framejit.grad(f, argnums=1, has_aux=True)(X, 2 * X, scale=3.0)
    assert np.allclose(gradient, 3 * X) and aux == {"sum": X.sum()}
    (value, aux), (gx, gy) = framejit.value_and_grad(f, argnums=(0, -1), has_aux=True)(X, 2 * X)
    assert np.allclose(value, 2 * X @ X) and np.allclose(gx, 2 * X) and np.allclose(gy, X)


def test_scalars_stay_scalars_of_their_dtype():
    for scalar in (0.5, np.float64(0.5), np.float32(0.5), np.array(0.5)):
        gradient = framejit.grad(np.tanh)(scalar)
        assert type(gradient) is (np.float64 if isinstance(scalar, float) else type(scalar))
        assert getattr(gradient, "dtype", None) == np.asarray(scalar).dtype
        assert np.allclose(gradient, 1 - np.tanh(0.5) ** 2)


def test_a_scalar_that_varies_is_not_compiled_for():
    slope = framejit.grad(lambda x: x ** 3)
    framejit.reset()
    for x in np.linspace(0.0, 1.0, 20):
        assert np.allclose(slope(x), 3 * x ** 2) and np.allclose(slope(float(x)), 3 * x ** 2)
    assert framejit.cache_info()["segments"] <= 2


def test_the_argument_is_given_as_a_copy():
    def f(x):
        x[0] = x[1] * 2      # in place
        x *= x
        return x.sum()

    x = X.copy()
    value, gradient = framejit.value_and_grad(f)(x)
    assert np.array_equal(x, X)
    assert np.allclose(value, 5 * X[1] ** 2 + X[2] ** 2) and np.allclose(gradient, [0, 10 * X[1], 2 * X[2]])


def test_in_place_updates_through_views_and_loops_are_derived():
    def f(x):
        grid = np.zeros((3, 3))
        for i in range(3):
            row = grid[i]
            row[:] = x * (i + 1)
            grid[i, i] += x[i] ** 2
        grid[:, 1] *= grid[:, 0]
        return np.sum(grid)

    step = 1e-6
    numeric = [(f(X + step * e) - f(X - step * e)) / (2 * step) for e in np.eye(3)]
    assert np.allclose(framejit.grad(f)(X), numeric, atol=1e-8)


def test_branches_on_data_are_followed_in_each_call():
    def newton(a):
        x = a
        while abs(x * x - a) > 1e-12:
            x = 0.5 * (x + a / x)
        return x if x > 1 else 10 * x

    slope = framejit.grad(newton)
    for a in (2.0, 9.0, 0.25, 100.0, 2.0, 0.25, 3.0):
        x = a ** 0.5
        assert np.allclose(slope(a), 0.5 / x if x > 1 else 5 / x), a


def test_a_path_that_was_seen_is_not_traced_again():
    def f(x):
        if x.sum() > 0:
            return np.sum(x * 2)
        return np.sum(x * 3)

    gradient = framejit.grad(f)
    gradient(X), gradient(X + 9)
    before = framejit.cache_info()["segments"]
    for shift in (9, 0, -9, 20, 0):
        assert np.array_equal(gradient(X + shift), np.full(3, 2.0 if (X + shift).sum() > 0 else 3.0))
    assert framejit.cache_info()["segments"] == before


def test_a_nan_takes_the_branch_it_takes_in_python():
    def f(x):
        return x * 2 if x > 0 else x * 3

    gradient = framejit.grad(f)
    assert gradient(1.0) == 2 and gradient(float("nan")) == 3 and gradient(-1.0) == 3


def test_derivatives_nest_in_any_order():
    def f(x):
        return np.sum(np.sin(x) * x ** 2)

    hessian = framejit.hessian(f)(X)
    assert np.allclose(hessian, framejit.jacobian(framejit.jacobian(f))(X))
    assert np.allclose(hessian @ X, framejit.jvp(framejit.grad(f), (X,), (X,))[1])
    assert np.allclose(hessian @ X, framejit.grad(lambda x: framejit.grad(f)(x) @ X)(X))
    assert np.allclose(hessian @ X, framejit.vjp(framejit.grad(f), X)[1](X)[0])
    third = framejit.grad(framejit.grad(framejit.grad(lambda x: np.exp(2 * x))))(0.3)
    assert np.allclose(third, 8 * np.exp(0.6))


def test_products_have_derivatives_where_factors_are_zero():
    x = np.array([0.0, 2.0, 0.0, 3.0])
    assert np.array_equal(framejit.grad(np.prod)(np.array([0.0, 2.0, 3.0])), [6, 0, 0])
    hessian = framejit.hessian(np.prod)(x)
    assert hessian[0, 2] == 6 and hessian[2, 0] == 6 and np.count_nonzero(hessian) == 2
    assert np.array_equal(framejit.jacobian(np.cumprod)(x), [[1, 0, 0, 0], [2, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]])
    assert framejit.jacobian(framejit.jacobian(np.cumprod))(x)[3, 0, 2] == 6


def test_sizes_may_change_between_calls():
    jacobian = framejit.jacobian(lambda x: np.cumsum(x) * x)
    product = framejit.grad(lambda x: np.prod(x) + np.sum(np.cumprod(x)))
    for n in (3, 5, 4, 7):
        x = np.linspace(0.5, 1.5, n)
        assert np.allclose(jacobian(x), np.tril(np.ones((n, n))) * x[:, None] + np.diag(np.cumsum(x)))
        step = 1e-6
        numeric = [sum(s * (np.prod(x + s * step * e) + np.sum(np.cumprod(x + s * step * e))) for s in (1, -1)) / (2 * step) for e in np.eye(n)]
        assert np.allclose(product(x), numeric, atol=1e-7)


def test_a_pullback_may_be_kept_and_the_primals_changed():
    x = X.copy()
    value, pullback = framejit.vjp(lambda x, y: {"out": np.sin(x) * y}, x, 2.0)
    x[:] = 9
    gx, gy = pullback({"out": np.ones(3)})
    assert np.allclose(value["out"], 2 * np.sin(X)) and np.allclose(gx, 2 * np.cos(X)) and np.allclose(gy, np.sin(X).sum())
    with pytest.raises(TypeError, match="structure"):
        pullback(np.ones(3))
    with pytest.raises(ValueError, match="dtype and shape"):
        pullback({"out": np.ones(4)})


def test_vmap_takes_axes_as_jax_does():
    rows = np.arange(12.0).reshape(3, 4)
    assert np.allclose(framejit.vmap(np.dot, in_axes=(0, None))(rows, np.ones(4)), rows.sum(axis=1))
    assert np.allclose(framejit.vmap(np.dot, in_axes=(1, 1))(rows, rows), (rows * rows).sum(axis=0))
    outer = framejit.vmap(framejit.vmap(lambda a, b: a * b, (None, 0)), (0, None))
    assert np.array_equal(outer(np.arange(3.0), np.arange(4.0)), np.outer(np.arange(3.0), np.arange(4.0)))
    both = framejit.vmap(lambda p, scale: {"y": p["x"] * scale, "c": 1.0}, in_axes=({"x": 1}, None), out_axes={"y": 1, "c": 0})
    out = both({"x": rows}, 2.0)
    assert np.array_equal(out["y"], rows * 2) and np.array_equal(out["c"], np.ones(4))
    indices = np.array([[2, 1], [0, 0], [-1, 3]])
    assert np.array_equal(framejit.vmap(np.take)(rows, indices), np.take_along_axis(rows, indices, 1))
    with pytest.raises(IndexError):
        framejit.vmap(np.take)(rows, np.array([[0], [4], [1]]))


def test_vmap_refuses_what_belongs_to_one_example():
    seen = []

    def keeps(x):
        seen.append(x * 2)
        return x

    outer = np.zeros(2)

    def writes(x):
        outer[:] = x
        return x

    rows = np.ones((3, 2))
    with pytest.raises(framejit.GraphBreakError, match="FJ125.*branches on each example"):
        framejit.vmap(lambda x: x if x.sum() > 0 else -x)(rows)
    with pytest.raises(framejit.GraphBreakError, match="FJ125.*`outer"):
        framejit.vmap(writes)(rows)
    with pytest.raises(framejit.GraphBreakError, match=r"test_transforms.py:\d+ in .*batched\n.*FJ125.*is kept after the function"):
        framejit.vmap(keeps)(rows)
    assert not seen and not outer.any()


def test_errors_name_the_line_and_are_the_functions_own():
    def fractal(x):
        return np.sum(np.fft.fft(x).real)  # no rule

    with pytest.raises(framejit.GraphBreakError, match=r"test_transforms.py:\d+ in a function that is derived\n.*without a derivative.*no rule"):
        framejit.grad(fractal)(X)
    with pytest.raises(framejit.GraphBreakError, match="FJ103"):
        framejit.grad(lambda x: float(x[0]) * x[1])(X)
    with pytest.raises(framejit.GraphBreakError, match="FJ103"):
        framejit.jvp(lambda x: np.sqrt(x[0].item()) * x[1], (X,), (X,))
    with pytest.raises(IndexError, match="index 10 is out of bounds"):
        framejit.grad(lambda x: x[10])(X)
    with pytest.raises(IndexError, match="out of bounds"):
        framejit.grad(lambda x, i: np.take(x, i))(X, np.array([7]))
    with pytest.raises(TypeError, match="with respect to floats, not int64"):
        framejit.grad(np.sum)(np.arange(3))
    with pytest.raises(TypeError, match=r"shape returned is \(3,\)"):
        framejit.grad(np.sin)(X)
    with pytest.raises(TypeError, match="returned int64"):
        framejit.grad(np.argmax)(X)
    with pytest.raises(ValueError, match="argnums"):
        framejit.grad(np.sin, argnums=3)(1.0)
    with pytest.raises(TypeError, match="takes a callable"):
        framejit.grad(3)
    with pytest.raises(ZeroDivisionError):
        framejit.grad(lambda x: x * (1 // 0))(1.0)


def test_a_function_that_does_not_depend_on_its_argument_has_a_zero_gradient():
    assert np.array_equal(framejit.grad(lambda x: 1.0)(X), np.zeros(3))
    assert np.array_equal(framejit.grad(lambda x: np.sum(np.floor(x)))(X), np.zeros(3))
    assert np.array_equal(framejit.jvp(lambda x: np.ones(2), (X,), (X,))[1], np.zeros(2))


def test_a_transformation_inside_compiled_code_is_part_of_its_graph():
    @framejit.compile(fullgraph=True)
    def descend(x):
        for _ in range(3):
            x = x - 0.1 * framejit.grad(lambda x: np.sum(x ** 2))(x)
        return x

    assert np.allclose(descend(X), X * 0.8 ** 3)


def test_many_threads_may_ask_at_once():
    gradient, results = framejit.grad(lambda x: np.sum(x ** 2)), []
    threads = [threading.Thread(target=lambda: results.append(gradient(X))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 8 and all(np.allclose(result, 2 * X) for result in results)


def test_a_disabled_framejit_says_so():
    code = "import numpy as np, framejit; framejit.grad(lambda x: x * x)(1.0)"
    done = subprocess.run([sys.executable, "-P", "-c", code], env={**os.environ, "FRAMEJIT_DISABLE": "1"}, capture_output=True, text=True)
    assert "framejit.Error: a derivative can't be computed here: framejit is disabled" in done.stderr


def test_torch_code_is_derived_too():
    torch = pytest.importorskip("torch", reason="torch functions are derived with torch installed")
    x = torch.tensor(X)

    def f(x):
        return torch.nn.functional.softplus(torch.sin(x)).sum() + torch.relu(x).max()

    assert torch.allclose(framejit.grad(f)(x), torch.func.grad(f)(x))
    assert torch.allclose(framejit.hessian(f)(x), torch.func.hessian(f)(x))
    assert torch.allclose(framejit.jacobian(lambda x: torch.softmax(x, 0))(x), torch.func.jacrev(lambda x: torch.softmax(x, 0))(x))
    many = torch.randn(4, 3, dtype=torch.float64)
    assert torch.allclose(framejit.vmap(framejit.grad(f))(many), torch.func.vmap(torch.func.grad(f))(many))
    convolution = torch.nn.Conv1d(1, 2, 3, dtype=torch.float64).requires_grad_(False)
    loss = lambda x: convolution(x[None, None]).square().sum()
    assert torch.allclose(framejit.grad(loss)(x), torch.func.grad(loss)(x))
    assert torch.allclose(framejit.grad(lambda x: framejit.grad(loss)(x).sum())(x),
                          torch.func.hessian(loss)(x).sum(dim=0))


def test_torch_tensors_that_require_gradients_get_theirs():
    torch = pytest.importorskip("torch", reason="torch functions are derived with torch installed")
    x = torch.tensor(X, requires_grad=True)
    framejit.grad(lambda x: (x ** 3).sum())(x).sum().backward()
    assert torch.allclose(x.grad, 6 * x.detach())


def test_what_a_transform_made_of_a_function_is_made_once():
    def f(x, y):
        return (x * x * y).sum()

    x = np.arange(3.0)
    made = [framejit.grad(f), framejit.grad(f, argnums=1), framejit.grad(f, argnums=(0,)), framejit.value_and_grad(f), framejit.vmap(f), framejit.hessian(f)]
    assert [framejit.grad(f), framejit.grad(f, argnums=1), framejit.grad(f, argnums=(0,)), framejit.value_and_grad(f), framejit.vmap(f), framejit.hessian(f)] == made
    assert len(set(map(id, made))) == 6 and framejit.grad(f, argnums=[0]) is not made[2]
    np.testing.assert_array_equal(framejit.grad(f)(x, x), 2 * x * x)
    np.testing.assert_array_equal(framejit.grad(f, argnums=1)(x, x), x * x)

    @functools.wraps(f)
    def g(x, y):
        return -f(x, y)

    np.testing.assert_array_equal(framejit.grad(g)(x, x), -2 * x * x)
    alive = weakref.ref(f)
    del f, g, made
    framejit.reset()
    gc.collect()
    assert alive() is None
