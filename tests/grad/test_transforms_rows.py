"""Each NumPy function that has a derivative: gradient, Jacobian, Hessian, jvp and vmap against finite differences and JAX."""
import numpy as np
import pytest

import framejit

# m is the module: numpy, or jax.numpy for the comparison. x: f64[4, 3], away from kinks.
EXPRESSIONS = {
    "add": lambda m, x: x + x[0],
    "subtract": lambda m, x: 1.5 - x,
    "multiply": lambda m, x: x * x[:, :1],
    "divide": lambda m, x: x / (2 + x[1]),
    "negative": lambda m, x: -x,
    "power_number": lambda m, x: x ** 3 + m.abs(x) ** 0.5,
    "power": lambda m, x: m.power(m.abs(x), x),
    "square": lambda m, x: m.square(x),
    "sqrt": lambda m, x: m.sqrt(m.abs(x)),
    "cbrt_by_power": lambda m, x: m.power(m.abs(x), 1 / 3),
    "exp": lambda m, x: m.exp(x),
    "exp2": lambda m, x: m.exp2(x),
    "expm1": lambda m, x: m.expm1(x),
    "log": lambda m, x: m.log(m.abs(x)),
    "log2": lambda m, x: m.log2(m.abs(x)),
    "log10": lambda m, x: m.log10(m.abs(x)),
    "log1p": lambda m, x: m.log1p(m.abs(x)),
    "sin": lambda m, x: m.sin(x),
    "cos": lambda m, x: m.cos(x),
    "tan": lambda m, x: m.tan(x * 0.4),
    "arcsin": lambda m, x: m.arcsin(x * 0.3),
    "arccos": lambda m, x: m.arccos(x * 0.3),
    "arctan": lambda m, x: m.arctan(x),
    "arctan2": lambda m, x: m.arctan2(x, x[0] + 3),
    "hypot": lambda m, x: m.hypot(x, x[::-1]),
    "sinh": lambda m, x: m.sinh(x),
    "cosh": lambda m, x: m.cosh(x),
    "tanh": lambda m, x: m.tanh(x),
    "arcsinh": lambda m, x: m.arcsinh(x),
    "arccosh": lambda m, x: m.arccosh(1.5 + x * x),
    "arctanh": lambda m, x: m.arctanh(x * 0.3),
    "absolute": lambda m, x: m.abs(x) + m.fabs(x),
    "maximum": lambda m, x: m.maximum(x, x[::-1]) + m.minimum(x, 0.1),
    "fmax": lambda m, x: m.fmax(x, 0.3) + m.fmin(x, x[0]),
    "clip": lambda m, x: m.clip(x, -0.7, 0.9),
    "logaddexp": lambda m, x: m.logaddexp(x, x[0]),
    "copysign": lambda m, x: m.copysign(x, x[::-1]),
    "mod": lambda m, x: m.mod(x, 0.7) + m.fmod(x, 0.9),
    "floor": lambda m, x: x * m.floor(3 * x) + m.sign(x) * x,
    "deg2rad": lambda m, x: m.deg2rad(x) + m.rad2deg(x),
    "reciprocal": lambda m, x: m.reciprocal(x),
    "sum": lambda m, x: m.sum(x * x, axis=0),
    "sum_method": lambda m, x: (x * x).sum(),
    "prod": lambda m, x: m.prod(x, axis=1),
    "prod_all": lambda m, x: x.prod(),
    "max": lambda m, x: m.max(x, axis=0) * x.min(),
    "ptp": lambda m, x: m.ptp(x, axis=1),
    "mean": lambda m, x: m.mean(x * x, axis=1, keepdims=True),
    "var": lambda m, x: m.var(x, axis=0) + x.var(),
    "std": lambda m, x: m.std(x, axis=0, ddof=1),
    "cumsum": lambda m, x: m.cumsum(x * x, axis=1),
    "cumprod": lambda m, x: m.cumprod(x, axis=0),
    "matmul": lambda m, x: x @ x.T,
    "dot": lambda m, x: m.dot(x, x[0]),
    "inner": lambda m, x: m.inner(x, x),
    "outer": lambda m, x: m.outer(x[0], x[:, 1]),
    "reshape": lambda m, x: (x * x).reshape(3, 4),
    "ravel": lambda m, x: m.ravel(x) ** 2,
    "transpose": lambda m, x: m.transpose(x) * 2,
    "moveaxis": lambda m, x: m.moveaxis(x[None], 0, 2) ** 2,
    "squeeze": lambda m, x: m.squeeze(x[:, None]) ** 2,
    "broadcast_to": lambda m, x: m.broadcast_to(x[0] ** 2, (5, 3)),
    "concatenate": lambda m, x: m.concatenate([x, x[:2] ** 2]),
    "stack": lambda m, x: m.stack([x, x * x], axis=1),
    "hstack": lambda m, x: m.hstack([x, x * x]) + m.vstack([x, x])[:4, :1],
    "split": lambda m, x: m.split(x, 2)[0] * m.split(x, 2)[1],
    "tile": lambda m, x: m.tile(x ** 2, (2, 1)),
    "repeat": lambda m, x: m.repeat(x ** 2, 2, axis=1),
    "flip": lambda m, x: m.flip(x, 0) * x,
    "roll": lambda m, x: m.roll(x, 1, axis=0) * x,
    "pad": lambda m, x: m.pad(x * x, ((1, 0), (0, 2))),
    "diff": lambda m, x: m.diff(x * x, axis=0),
    "triu": lambda m, x: m.triu(x * x) - m.tril(x),
    "where": lambda m, x: m.where(x > 0, x * x, m.exp(x)),
    "take": lambda m, x: m.take(x * x, m.array([0, 2, 2]), axis=0),
    "fancy_index": lambda m, x: (x * x)[m.array([0, 2, 2, -1])],
    "slices": lambda m, x: x[1:, ::-1] * x[:-1, :],
    "astype": lambda m, x: x.astype(m.float64) * x,
    "full_like": lambda m, x: m.full_like(x, 2.0) * x + m.ones_like(x) * m.zeros((4, 3)),
    "linspace": lambda m, x: m.linspace(0.0, 1.0, 3) * x + m.arange(3) * x,
    "softmax": lambda m, x: m.exp(x - x.max(axis=1, keepdims=True)) / m.exp(x - x.max(axis=1, keepdims=True)).sum(axis=1, keepdims=True),
    "norm_by_hand": lambda m, x: m.sqrt((x * x).sum(axis=1)),
    "argmax": lambda m, x: x * x.argmax(axis=0),
}
POINT = np.array([[0.31, -1.2, 0.83], [1.42, 0.52, -0.64], [-0.91, 1.13, 0.22], [0.75, -0.43, -1.61]])


def numeric_jacobian(function, x, step=1e-6):
    columns = []
    for i in range(x.size):
        moved = np.zeros(x.size)
        moved[i] = step
        moved = moved.reshape(x.shape)
        columns.append((np.asarray(function(x + moved)) - np.asarray(function(x - moved))) / (2 * step))
    return np.stack(columns, axis=-1).reshape(np.shape(function(x)) + x.shape)


def close(actual, expected, tolerance):
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.shape == expected.shape
    assert np.allclose(actual, expected, rtol=tolerance, atol=tolerance * max(1.0, np.abs(expected).max(initial=0.0))), \
        f"{np.abs(actual - expected).max()}\n{actual}\n{expected}"


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_a_function_has_numpys_value_and_its_derivatives(name):
    expression = EXPRESSIONS[name]

    def function(x):
        return expression(np, x)

    def scalar(x):
        return np.sum(np.sin(expression(np, x)))

    expected = numeric_jacobian(function, POINT)
    close(framejit.jacobian(function)(POINT), expected, 1e-7)
    value, gradient = framejit.value_and_grad(scalar)(POINT)
    assert np.allclose(value, scalar(POINT), rtol=1e-14)
    close(gradient, numeric_jacobian(scalar, POINT), 1e-7)
    direction = np.cos(POINT * 3)
    value, tangent = framejit.jvp(function, (POINT,), (direction,))
    close(value, function(POINT), 1e-14)
    close(tangent, np.tensordot(expected, direction, 2), 1e-7)
    close(framejit.hessian(scalar)(POINT), numeric_jacobian(framejit.grad(scalar), POINT), 1e-6)


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_a_function_of_all_examples_is_that_of_each(name):
    expression = EXPRESSIONS[name]

    def function(x):
        return expression(np, x)

    examples = np.stack([POINT, POINT[::-1] * 0.9, POINT * 0.7 + 0.05], axis=1)
    mapped = framejit.vmap(function, in_axes=1)(examples)
    close(mapped, np.stack([function(examples[:, i]) for i in range(3)]), 1e-13)
    gradient = framejit.grad(lambda x: np.sum(np.sin(expression(np, x))))
    close(framejit.vmap(gradient, 1, 1)(examples), np.stack([gradient(examples[:, i]) for i in range(3)], axis=1), 1e-12)
    close(framejit.grad(lambda xs: np.sum(np.sin(framejit.vmap(function, 1)(xs))))(examples),
          np.stack([gradient(examples[:, i]) for i in range(3)], axis=1), 1e-12)


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_gradients_are_those_of_jax(name):
    jax = pytest.importorskip("jax", reason="JAX is what the gradients are compared with")
    expression = EXPRESSIONS[name]
    with jax.enable_x64(True):
        expected = np.asarray(jax.grad(lambda x: jax.numpy.sum(jax.numpy.sin(expression(jax.numpy, x))))(POINT))
    close(framejit.grad(lambda x: np.sum(np.sin(expression(np, x))))(POINT), expected, 1e-12)
