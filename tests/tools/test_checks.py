"""The back ends "verify" and "check_nan"."""
import math
import os

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


PARENT = os.getpid()


def is_parent():
    return os.getpid() == PARENT


@pytest.mark.parametrize("function, told", [
    (lambda x: x * 2 + is_parent(), r"result\[0\]: 3.0, in Python 2.0"),
    (lambda x: {"a": [x * 2, x.astype("f4") if is_parent() else x]}, r"result.a\[1\]: dtype float32, in Python float64"),
    (lambda x: x[::2] if is_parent() else x[:2] * 1, r"result: strides \[16\], in Python \[8\]"),
    (lambda x: x.__imul__(2.0 - is_parent()), r"result\[0\]: 1.0, in Python 2.0"),
    (lambda x: STATE.update(n=is_parent()) or x + 1, "globals.STATE.n: True, in Python False"),
    (lambda x: 1 / (not is_parent()) + x, "compiled raises ZeroDivisionError: .*, and in Python it returns"),
], ids=["value", "dtype", "strides", "write", "global", "exception"])
def test_a_call_that_differs_from_python_is_told(function, told):
    """As if something had been lost while the function was captured: the child that computes it in Python is another process."""
    STATE.clear()
    with pytest.raises(framejit.CheckError, match=told):
        framejit.compile(function, backend="verify")(np.ones(4))


STATE = {}


def test_calls_beside_python_have_effects_once(capfd):
    def f(x, log):
        log.append(np.random.random())
        print("effect")
        x += 1
        if x[0] > 100:
            raise ValueError("large")
        return x.sum(), log

    compiled, log, x = framejit.compile(f, backend="verify"), [], np.ones(3)
    np.random.seed(0)
    for n in range(3):
        assert compiled(x, log)[0] == 3 * (n + 2)
    np.random.seed(0)
    assert log == [np.random.random() for _ in range(3)] and x.tolist() == [4.0] * 3
    with pytest.raises(ValueError, match="large"):
        compiled(x * 100, log)
    assert capfd.readouterr().out == "effect\n" * 4


def test_a_break_under_fullgraph_is_raised_as_it_is():
    def f(x):
        return x + 1 if x.sum() > 0 else x

    with pytest.raises(framejit.GraphBreakError):
        framejit.compile(f, backend="verify", fullgraph=True)(np.ones(3))


@pytest.mark.parametrize("backend", ["verify", "check_nan"])
def test_a_block_of_options_checks_all_programs(backend):
    with framejit.options(backend=backend):
        assert framejit.compile(lambda x: np.sqrt(x) + 1)(np.ones(3)).tolist() == [2.0] * 3
        with pytest.raises(framejit.CheckError):
            framejit.compile(lambda x: np.log(x - 2) + is_parent())(np.ones(3) * (3 if backend == "verify" else 1))


def test_numbers_of_rounded_arrays_and_interrupts_are_no_differences():
    x = np.random.default_rng(0).standard_normal(5000).astype(np.float32)
    assert isinstance(framejit.compile(lambda x: (x * 1.1).sum().item(), backend="verify")(x), float)

    def interrupted(x):
        if is_parent():
            raise KeyboardInterrupt
        return x + 1

    with pytest.raises(KeyboardInterrupt):
        framejit.compile(interrupted, backend="verify")(x)
