"""framejit.capture: what the graph shows, what it assumes, and that calling it gives what the function gives."""
import functools

import numpy as np
import pytest

import framejit
from harness import assert_same, both_libraries, needs_torch, torch

SCALE = 3


def scaled(x, y, n, flag=True):
    z = x * n + y
    if flag:
        z = abs(z)
    return {"z": z, "sums": [z.sum(0)[1:] * SCALE, n]}


LINE = scaled.__code__.co_firstlineno + 1


@both_libraries
def test_a_function(lib):
    x, y = lib.sample((4, 3)), lib.sample((3,), seed=1)
    graph = framejit.capture(scaled, x, y, 5)
    assert [node.name for node in graph.inputs] == ["x", "y"]
    assert [str(node.type) for node in graph.inputs] == ["f32[4, 3]", "f32[3]"]
    assert [node.op for node in graph] == ["constant", "broadcast", "mul", "broadcast", "add", "abs", "reduce_sum", "slice", "constant",
                                           "broadcast", "mul"]
    found, expected = graph(x, y, n=5), scaled(x, y, 5)
    assert_same(found["z"], expected["z"])
    assert_same(found["sums"][0], expected["sums"][0])
    assert found["sums"][1] == 5


def test_assumptions_are_listed_and_checked():
    x, y = np.ones((4, 3), np.float32), np.ones(3, np.float32)
    graph = framejit.capture(scaled, x, y, 5)
    listed = [text.partition("  (")[0] for text in graph.assumptions]
    for wanted in ("x: f32[4, 3]", "y: f32[3]", "n == 5", "flag == True", "SCALE == 3"):
        assert wanted in listed
    assert any(text.startswith("n == 5  (") and f"test_capture.py:{LINE})" in text for text in graph.assumptions)
    with pytest.raises(framejit.GraphError, match=r"it assumes n == 5 .*test_capture.py:\d+\)\n  found       n == 6"):
        graph(x, y, 6)
    with pytest.raises(framejit.GraphError, match=r"it assumes x: f32\[4, 3\]\n  found       x: f32\[5, 3\]"):
        graph(np.ones((5, 3), np.float32), y, 5)
    with pytest.raises(framejit.GraphError, match=r"it assumes x: f32\[4, 3\]\n  found       x: f64\[4, 3\]"):
        graph(x.astype(float), y, 5)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'n'"):
        graph(x, y)
    np.testing.assert_array_equal(graph(x, y, 5)["z"], scaled(x, y, 5)["z"])


def test_a_global_that_changes(monkeypatch):
    x, y = np.ones((4, 3), np.float32), np.ones(3, np.float32)
    graph = framejit.capture(scaled, x, y, 5)
    monkeypatch.setitem(globals(), "SCALE", 4)
    with pytest.raises(framejit.GraphError, match="it assumes SCALE == 3"):
        graph(x, y, 5)


@both_libraries
def test_sizes_that_change(lib):
    def f(x, y):
        return (x * y).sum(0) / x.shape[0]

    graph = framejit.capture(f, lib.sample((4, 3)), lib.sample((4, 3), seed=1), dynamic_shapes={"x": {0: "batch"}, "y": {0: "batch"}})
    assert graph.inputs[0].shape == ("s0", 3) == graph.inputs[1].shape
    for n in (4, 1, 9):
        x, y = lib.sample((n, 3), seed=n), lib.sample((n, 3), seed=n + 1)
        assert_same(graph(x, y), f(x, y))
    with pytest.raises(framejit.GraphError):
        graph(lib.sample((4, 2)), lib.sample((4, 2)))
    every = framejit.capture(f, lib.sample((4, 3)), lib.sample((4, 3), seed=1), dynamic_shapes=True)
    x, y = lib.sample((2, 5)), lib.sample((2, 5), seed=2)
    assert_same(every(x, y), f(x, y))


def test_a_size_that_the_code_decides():
    def f(x):
        return x * 2 if x.shape[0] == 4 else x

    with pytest.raises(framejit.GraphError, match="axis 0 of x should be dynamic, and the code needs it to be 4"):
        framejit.capture(f, np.ones((4, 3)), dynamic_shapes={"x": [0]})


@pytest.mark.parametrize("shapes, text", [({"z": [0]}, "names 'z', and f is given x"), ({"n": [0]}, "no array but 3")])
def test_wrong_dynamic_shapes(shapes, text):
    def f(x, n=3):
        return x * n

    with pytest.raises(framejit.GraphError, match=text):
        framejit.capture(f, np.ones(3), **({"n": 3} if "n" in shapes else {}), dynamic_shapes=shapes)


def test_nothing_runs():
    def f(x):
        x += 1
        return x.sum()

    x = np.zeros(3)
    graph = framejit.capture(f, x)
    np.testing.assert_array_equal(x, np.zeros(3))
    assert graph(x) == 3
    np.testing.assert_array_equal(x, np.ones(3))
    assert [(target.name, value.op) for target, value in graph.writes] == [("x", "add")]


def test_what_can_not_be_captured():
    def f(x):
        found = []
        while x.sum() < 100:
            x = x * 2
            found.append(x)
        return x

    with pytest.raises(framejit.GraphBreakError, match="FJ104"):
        framejit.capture(f, np.ones(3))
    with pytest.raises(framejit.GraphError, match="computes no array"):
        framejit.capture(lambda x: 3, np.ones(3))
    with pytest.raises(TypeError, match="framejit.capture takes a function"):
        framejit.capture(3)
    with pytest.raises(TypeError):
        framejit.capture(f)


def test_keywords_defaults_and_stars():
    def f(x, /, y, *more, scale=2, **rest):
        return x * scale + y + sum(more) + rest["b"]

    x, y, z, b = (np.full(3, float(i)) for i in range(4))
    graph = framejit.capture(f, x, y, z, scale=3, b=b)
    np.testing.assert_array_equal(graph(x, y, z, scale=3, b=b), f(x, y, z, scale=3, b=b))


def test_a_method_and_a_callable_object():
    class Affine:
        def __init__(self):
            self.weight = np.arange(3.0)

        def __call__(self, x):
            return x * self.weight

        def twice(self, x):
            return self(self(x))

    affine = Affine()
    x = np.ones((2, 3))
    graph = framejit.capture(affine, x)
    assert {node.name for node in graph.inputs} == {"x", "weight"}
    np.testing.assert_array_equal(graph(x), affine(x))
    np.testing.assert_array_equal(framejit.capture(affine.twice, x)(x), affine.twice(x))
    affine.weight = np.ones(3)  # state is read at each call
    np.testing.assert_array_equal(graph(x), affine(x))


def test_where_nothing_is_compiled_the_function_runs_and_its_edits_do_not():
    graph = framejit.capture(lambda x: x * 2, np.ones(3))
    np.testing.assert_array_equal(framejit.disable(graph.compile())(np.ones(3)), np.full(3, 2.0))
    graph.find(op="mul")[0].op = "add"
    with pytest.raises(framejit.GraphError, match="can't be run here"):
        framejit.disable(graph.compile())(np.ones(3))


def test_conditions_numpy_reports():
    graph = framejit.capture(lambda x: 1 / x + 1, np.ones(3))
    with pytest.warns(RuntimeWarning, match="divide by zero"):
        np.testing.assert_array_equal(graph(np.zeros(3)), np.full(3, np.inf))
    with np.errstate(divide="ignore"):
        ignoring = framejit.capture(lambda x: 1 / x + 1, np.ones(3))
        np.testing.assert_array_equal(ignoring(np.zeros(3)), np.full(3, np.inf))


def test_constants_of_library_calls_are_checked():
    graph = framejit.capture(lambda x, q: np.percentile(x, q) * 2, np.random.randn(5), 50)
    assert graph(np.arange(5.0), 50) == 4
    with pytest.raises(framejit.GraphError, match="it assumes q == 50"):
        graph(np.arange(5.0), 25)


@needs_torch
def test_a_module_in_training():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.ReLU())
    twin = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.ReLU())
    twin.load_state_dict(net.state_dict())
    x = torch.randn(5, 3)
    graph = framejit.capture(net, x)
    assert net[1].num_batches_tracked == 0
    assert {node.module for node in graph} == {"0", "1", "2"}
    assert [node.op for node in graph.find(module="0")] == ["transpose", "matmul", "broadcast", "add"]
    assert {"0.weight", "0.bias", "1.weight", "1.bias", "1.running_mean"} < {node.name for node in graph.inputs}
    for _ in range(2):
        found, expected = graph(x), twin(x)
        torch.testing.assert_close(found, expected)
        found.square().sum().backward()
        expected.square().sum().backward()
    for one, other in zip(net.parameters(), twin.parameters()):
        torch.testing.assert_close(one.grad, other.grad, atol=1e-4, rtol=1e-4)
    for one, other in zip(net.buffers(), twin.buffers()):
        torch.testing.assert_close(one, other)
    net.eval()
    with pytest.raises(framejit.GraphError, match="captured for other arguments"):
        graph(x)


@needs_torch
def test_arguments_out_of_range_are_named():
    graph = framejit.capture(torch.nn.Linear(3, 4), torch.ones(8, 3), dynamic_shapes={"input": {0: framejit.Dim("batch", min=2, max=512)}})
    for rows, text in ((600, "it assumes s0 <= 512\n  found       s0 == 600\n  try"), (1, "it assumes s0 >= 2\n  found       s0 == 1\n  try")):
        with pytest.raises(framejit.GraphError, match=text):
            graph(torch.ones(rows, 3))


@needs_torch
def test_a_compiled_function_is_captured_as_written():
    compiled = framejit.compile(lambda x: x.relu() * 2)
    x = torch.randn(4)
    torch.testing.assert_close(framejit.capture(compiled, x)(x), compiled(x))
    module = framejit.compile(torch.nn.Linear(4, 2))
    torch.testing.assert_close(framejit.capture(module, x)(x), module(x))


def test_ufuncs():
    np.testing.assert_allclose(framejit.capture(np.sin, np.ones(3))(np.ones(3)), np.sin(np.ones(3)))
    np.testing.assert_allclose(framejit.capture(np.add, np.ones(3), np.ones(1))(np.ones(3), np.ones(1)), np.full(3, 2.0))


def test_arguments_given_by_name_are_passed_on_by_name():
    """A decorator that puts defaults among its keywords sees the keywords that the caller wrote."""
    def with_defaults(function):
        @functools.wraps(function)
        def wrapper(x, *args, **kwargs):
            kwargs["rate"] = kwargs.get("rate") or 2.0
            return function(x, *args, **kwargs)
        return wrapper

    @with_defaults
    def f(x, y=None, rate=None, **more):
        return x * rate + y

    x = np.ones(3)
    for given, named in (((x,), {"y": x}), ((x, x), {}), ((), {"x": x, "y": x}), ((x,), {"y": x, "rate": 3.0})):
        graph = framejit.capture(f, *given, **named)
        np.testing.assert_array_equal(graph(*given, **named), f(*given, **named))


@both_libraries
def test_arguments_that_the_library_refuses_are_named(lib):
    graph = framejit.capture(lambda x, w: x @ w, lib.sample((4, 3)), lib.sample((3, 2)), dynamic_shapes={"x": {0: "rows"}})
    with pytest.raises(framejit.GraphError, match=r"given another argument: x\n  expected  f32\[s0, 3\], s0 from 0\n  found     f32\[4, 2\]"):
        graph(lib.sample((4, 2)), lib.sample((3, 2)))
    with pytest.raises(framejit.GraphError, match=r"(?s)found +(x: )?f64\[(s0|4), 3\]"):
        graph(lib.sample((4, 3), dtype="float64"), lib.sample((3, 2)))
