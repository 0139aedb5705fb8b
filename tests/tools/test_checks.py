"""The back ends "verify" and "check_nan"."""
import math

import numpy as np
import pytest

import framejit


def logs(x):
    y = x - 1
    z = np.log(y)
    return z.sum() + 1


def test_the_first_operation_that_makes_a_nan_is_named():
    checked = framejit.compile(logs, backend="check_nan")
    x = np.linspace(1.5, 3, 5)
    assert checked(x) == logs(x)
    x[3] = 0.25
    with pytest.raises(framejit.CheckError) as caught:
        checked(x)
    text = str(caught.value)
    assert "makes a NaN" in text and "= log(" in text and f"{__file__}:{logs.__code__.co_firstlineno + 2}" in text
    assert "[3] is nan" in text and "there -0.75" in text
    x[0] = math.nan
    assert math.isnan(checked(x))  # it was given one


def test_right_programs_are_verified():
    functions = [lambda x: np.exp(x) * np.tanh(x).sum(0) + x.argmax(), lambda x: x @ x.T, lambda x: np.sort(x, 0)[::-1] * 2,
                 lambda x: np.where(x > 0.5, x, -x).mean(), lambda x: np.cumsum(x, 1).astype(np.float32)]
    for function in functions:
        for shape in ((5, 4), (3, 7)):
            x = np.random.default_rng(0).random(shape)
            np.testing.assert_allclose(framejit.compile(function, backend="verify")(x), function(x), rtol=1e-6)


def test_writes_and_infinities_are_verified():
    def update(x, y):
        x += y / 0
        return x * 0

    x, expected = np.array([1.0, -2.0]), np.array([1.0, -2.0])
    with np.errstate(all="ignore"):
        compiled = framejit.compile(update, backend="verify")
        result = compiled(x, np.array([1.0, -1.0]))
        expected_result = update(expected, np.array([1.0, -1.0]))
    np.testing.assert_array_equal(result, expected_result)
    np.testing.assert_array_equal(x, expected)


def test_a_wrong_program_is_told_with_its_first_wrong_operation(monkeypatch):
    from framejit import _checks

    def broken(graph, backend=None, library=None):
        run = compiled(graph, backend=backend, library=library)
        at = [i for i, node in enumerate(graph.outputs) if node.op in ("exp", "mul")]

        def wrong(*arrays):
            found = run(*arrays)
            for i in at:
                found[i] = np.where(np.arange(found[i].size).reshape(found[i].shape) == 2, found[i] * 1.001, found[i])
            return found
        return wrong

    compiled = _checks.compiled
    monkeypatch.setattr(_checks, "compiled", broken)
    checked = framejit.compile(lambda x: np.exp(x + 1) * 2, backend="verify")
    with pytest.raises(framejit.CheckError) as caught:
        checked(np.zeros(4))
    text = str(caught.value)
    assert "differs from its operations, first in" in text and "= exp(" in text and f"at {__file__}:" in text
    assert "[2] is 2.721" in text and "; by the library 2.71828" in text and "there 1.0" in text


def test_modules_and_their_gradients():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.LayerNorm(16), torch.nn.GELU(), torch.nn.Dropout(0.5), torch.nn.Linear(16, 4))
    x = torch.randn(6, 8)
    for name in ("verify", "check_nan"):
        net.zero_grad()
        framejit.compile(net, backend=name)(x).sum().backward()
        assert net[0].weight.grad.abs().sum() > 0
    net.eval()
    torch.testing.assert_close(framejit.compile(net, backend="verify")(x), net(x))
    with torch.no_grad():
        net[1].weight[3] = math.nan
    framejit.compile(net, backend="check_nan")(x)  # a parameter has one
    with torch.no_grad():
        net[1].weight[3] = 1
    with pytest.raises(framejit.CheckError, match="= log"):
        framejit.compile(lambda x: torch.log(net(x) - 100).half(), backend="check_nan")(x)


def test_the_names_are_taken():
    for name in ("verify", "check_nan"):
        with pytest.raises(ValueError, match="built in"):
            framejit.register_backend(name, lambda graph, arrays: graph.run)
    with pytest.raises(ValueError, match="verify"):
        framejit.compile(logs, backend="verfy")
