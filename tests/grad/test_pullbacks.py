"""vjp and jvp called from Python: what they read is what was, what they keep goes with the function; trees as JAX takes them."""
import collections
import dataclasses
import functools
import gc
import weakref

import numpy as np
import pytest

import framejit

X = np.array([0.5, 2.0, 3.0])


def test_the_function_runs_once_and_the_pullback_is_of_that_run():
    generator, calls, weight = np.random.default_rng(0), [], np.ones(3)

    def f(x):
        calls.append(1)
        return x * generator.random(3) * weight

    value, pullback = framejit.vjp(f, X)
    weight[:] = 5
    for scale in (1.0, 2.0):
        assert np.array_equal(pullback(np.full(3, scale))[0], scale * (value / X))
    assert len(calls) == 1


def test_what_was_saved_is_not_what_the_user_holds():
    def f(x):
        power = np.exp(x)
        return power, power * x

    x = X.copy()
    (power, other), pullback = framejit.vjp(f, x)
    expected = np.exp(X) * (2 + X)
    power[:], other[:], x[:] = 0, 0, 0
    assert np.allclose(pullback((np.ones(3), np.ones(3)))[0], expected)


def test_a_pullback_is_a_function_like_others():
    value, pullback = framejit.vjp(lambda x: x * x, X)
    assert np.allclose(framejit.grad(lambda c: (pullback(c)[0] ** 2).sum())(np.ones(3)), 8 * X ** 2)
    assert np.allclose(framejit.vmap(lambda c: pullback(c)[0])(np.eye(3)), np.diag(2 * X))
    assert np.allclose(framejit.jvp(lambda c: pullback(c)[0], (np.ones(3),), (X,))[1], 2 * X * X)
    inside = framejit.compile(lambda pullback, c: pullback(c)[0] * 2, dynamic=True)
    for n in (3, 4, 5, 3):
        x = np.arange(1.0, n + 1)
        pullback = framejit.vjp(lambda x: x * x, x)[1]
        assert np.array_equal(inside(pullback, np.ones(n)), 4 * x) and np.array_equal(pullback(np.ones(n))[0], 2 * x)
    with pytest.raises(ValueError, match=r"float64 \(3,\), not float64 \(7,\)"):
        pullback(np.ones(7))


def test_library_calls_are_pulled_back_to_any_order():
    torch = pytest.importorskip("torch", reason="torch functions are derived with torch installed")
    ones = torch.ones(3, dtype=torch.float64)

    def f(x):
        return torch.special.i0(x) * torch.conv1d(x[None, None], x[None, None, :2])[0, 0].sum()

    found = []
    for vjp in (framejit.vjp, torch.func.vjp):
        x = torch.tensor(X, requires_grad=True)
        value, pullback = vjp(f, x)
        gradient, = pullback(ones)
        (value.sum() + gradient.sin().sum()).backward()
        found.append((value.detach(), gradient.detach(), x.grad))
    torch.testing.assert_close(*found)


def test_what_is_compiled_for_a_function_goes_with_it():
    class Scaled:
        def __init__(self, k):
            self.k = k

        def f(self, x):
            return x * self.k

    def use(function):
        framejit.vjp(function, X)[1](X)
        framejit.jvp(function, (X,), (X,))

    weight = np.ones(3)
    function, scaled = (lambda x: x * x * weight), Scaled(5.0)
    use(function), use(scaled.f)
    gone = weakref.ref(function), weakref.ref(scaled)
    del function, scaled
    gc.collect()
    assert [reference() for reference in gone] == [None, None]
    for k in (2.0, 3.0):
        assert np.array_equal(framejit.vjp(Scaled(k).f, X)[1](np.ones(3))[0], np.full(3, k))


def test_what_hangs_on_a_function_is_not_its_wrappers():
    def twice(x):
        return x * 2

    framejit.vjp(twice, X)

    @functools.wraps(twice)
    def thrice(x):
        return x * 3

    assert np.array_equal(framejit.vjp(thrice, X)[1](np.ones(3))[0], np.full(3, 3.0))


def test_trees_are_jaxs():
    Pair = collections.namedtuple("Pair", "a b")
    assert np.array_equal(framejit.vmap(lambda p: p.a * p.b, in_axes=(Pair(0, None),))(Pair(X, 2.0)), 2 * X)
    mapped, whole = framejit.vmap(lambda x: (x, np.ones(2)), out_axes=(0, None))(X)
    assert np.array_equal(mapped, X) and np.array_equal(whole, np.ones(2))
    with pytest.raises(framejit.GraphBreakError, match="FJ125.*out_axes is None"):
        framejit.vmap(lambda x: x, out_axes=None)(X)
    pullback = framejit.vjp(lambda x: {"a": x, "b": x * x}, X)[1]
    assert np.array_equal(pullback({"b": np.ones(3), "a": np.zeros(3)})[0], 2 * X)
    with pytest.raises(TypeError, match="structure"):
        pullback({"b": np.ones(3)})
    value, tangent = framejit.jvp(lambda d: d["x"] * d["y"], ({"x": X, "y": 2.0},), ({"y": 1.0, "x": np.zeros(3)},))
    assert np.array_equal(tangent, X)
    gradient = framejit.grad(lambda d: np.sum(d["a"] ** 2))(collections.defaultdict(list, a=X))
    assert type(gradient) is collections.defaultdict and gradient.default_factory is list and np.array_equal(gradient["a"], 2 * X)
    with pytest.raises(TypeError, match="only floats have derivatives.*int64"):
        framejit.jvp(lambda x: (x, np.argmax(x)), (X,), (X,))


def test_a_run_that_fails_says_why_it_can_not_be_derived():
    with pytest.raises(framejit.Error, match="an integer is divided by zero"), np.errstate(divide="ignore"):
        framejit.grad(lambda x, n: np.sum(x * (6 // n)))(X, np.array([0, 1, 2]))
    assert np.array_equal(framejit.grad(lambda x, n: np.sum(x * (6 // n)))(X, np.array([1, 2, 3])), [6, 3, 2])


@dataclasses.dataclass
class Layer:
    w: np.ndarray
    b: object
    name: object = None


def test_dataclasses_are_trees():
    def f(layer):
        return Layer(layer.w * layer.b[0], [layer.w.sum()])

    layer = Layer(X, [2.0])
    gradient = framejit.grad(lambda layer: f(layer).w.sum())(layer)
    assert type(gradient) is Layer and np.array_equal(gradient.w, np.full(3, 2.0)) and gradient.b == [X.sum()] and gradient.name is None
    value, pullback = framejit.vjp(f, layer)
    cotangent, = pullback(Layer(np.ones(3), [0.0]))
    assert np.array_equal(value.w, 2 * X) and np.array_equal(cotangent.w, np.full(3, 2.0)) and cotangent.b == [X.sum()]
    assert np.array_equal(framejit.jvp(f, (layer,), (Layer(np.zeros(3), [1.0]),))[1].w, X)
    assert np.array_equal(framejit.vmap(lambda layer: Layer(layer.w * layer.b, None))(Layer(X, X)).w, X * X)
    assert np.array_equal(framejit.stop_gradient(layer).w, X)
    with pytest.raises(TypeError, match="structure"):
        pullback([np.ones(3), 0.0])
