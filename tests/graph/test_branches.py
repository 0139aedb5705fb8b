"""Branches on data in captured graphs: both ways in one graph, in every form that a graph has, and what can't be one."""
import ctypes
import shutil

import numpy as np
import pytest

import framejit
from framejit import Dim, Graph, GraphBreakError, GraphError
from harness import both_libraries, torch

needs_torch = pytest.mark.skipif(torch is None, reason="torch is not installed")


def plain(x, y):
    a = x * 2
    if a.sum() > 0:
        b = a + y
    else:
        b = a - y
    return b * 3


def nested(x, y):
    if x.sum() > 0:
        if x.max() > 2:
            z = x * y
        elif x.min() < -1:
            z = x * 3
        else:
            z = x + 1
    else:
        z = -x
    if (z > 3).any() and (z < 100).all():
        z = z * z
    else:
        z = z - 1
    return z, y * 2


def early(x, y):
    if x.sum() > 0:
        return x * 2
    return y - 1


def expression(x, y):
    return (x * 2 if x.mean() > 0 else y * 3) + 1


def joined(x, y):
    return x * 2 if (x > 1).any() or y.sum() < -3 else x * 3


def negated(x, y):
    if not (x > 1).any():
        return x * 2
    return y * 3


def number(x, y):
    total = x.sum().item()
    if total > 0:
        return x * total
    return y - total


def in_a_loop(x, y):
    t = x * 1
    for i in range(3):
        if t.sum() > i:
            t = t - y
        else:
            t = t + 2
    return t * 1


def constants(x, y):
    k = 2 if x.sum() > 0 else 3
    return x * k + y


def in_place(x, y):
    z = x * 1
    if x.sum() > 0:
        z += y
        z[0] = 7
    else:
        z *= y
    return z + 0


def returns_its_argument(x, y):
    if x.sum() > 0:
        x = x * 2
    return x


def returns_numbers(x, y):
    k = 2 if x.sum() > 0 else 3
    return x * k, y * (k + 0.5)


PROGRAMS = [plain, nested, early, expression, joined, negated, number, in_a_loop, constants, in_place, returns_its_argument, returns_numbers]


def arrays(lib, count=40, size=5):
    """Of all signs and magnitudes, so that each way is gone."""
    for seed in range(count):
        generator = np.random.default_rng(seed)
        x, y = ((generator.standard_normal(size) * (.2 + seed % 4) + (seed % 3 - 1)).astype(np.float32) for _ in range(2))
        yield tuple(map(torch.from_numpy, (x, y))) if lib.name == "torch" else (x, y)


def same(ours, eager):
    ours, eager = (r if isinstance(r, (tuple, list)) else (r,) for r in (ours, eager))
    assert len(ours) == len(eager)
    for o, e in zip(ours, eager):
        assert type(o) is type(e) and o.dtype == e.dtype and o.shape == e.shape
        np.testing.assert_allclose(np.asarray(o), np.asarray(e), rtol=1e-5, atol=1e-5)


def given(graph, x, y):
    """Those of its inputs that it has."""
    return [{"x": x, "y": y}[node.name] for node in graph.inputs]


def branches(graph):
    found = graph.find(op="cond")
    return len(found) + sum(branches(body) for node in found for body in node.bodies)


def same_from_files(lib, f, tmp_path, count):
    """In a graph's file and a program's, parsed, run and as machine code; count: of what has to be in their graphs."""
    first = next(arrays(lib))
    framejit.capture(f, *first).save(tmp_path / "f.graph")
    loaded = Graph.load(tmp_path / "f.graph")
    rows = Dim("rows", min=1)
    program = framejit.export(f, first, dynamic_shapes={"x": {0: rows}, "y": {0: rows}})
    program.save(tmp_path / "f.program", cpu="native")
    programs = [program, framejit.ExportedProgram.load(tmp_path / "f.program"), framejit.ExportedProgram.load(tmp_path / "f.program", run_code=True)]
    assert count(loaded) == count(program.graph) >= 1
    for size in (5, 1, 33):
        for x, y in arrays(lib, 12, size):
            if size == 5:
                same(loaded(x, y), f(x, y))
            for each in programs:
                same(each(x, y), f(x, y))


def same_from_c(f, tmp_path):
    x, y = next(arrays(both := type("lib", (), {"name": "numpy"})))
    rows = Dim("rows", min=1)
    built = framejit.export(f, (x, y), dynamic_shapes={"x": {0: rows}, "y": {0: rows}}).build(tmp_path, name="f")
    library = ctypes.CDLL(str(built.library))
    for size in (1, 5, 300):
        for x, y in arrays(both, 12, size):
            expected = f(x, y)
            expected = expected if isinstance(expected, tuple) else (expected,)
            results = [np.empty_like(e) for e in expected]
            assert library.f(ctypes.c_int64(size), *(ctypes.c_void_p(a.ctypes.data) for a in (x, y, *results))) == 0
            same(results, list(expected))


def same_from_onnx(f, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    numpy = type("lib", (), {"name": "numpy"})
    first = next(arrays(numpy))
    rows = Dim("rows", min=1)
    framejit.capture(f, *first, dynamic_shapes={"x": {0: rows}, "y": {0: rows}}).to_onnx(tmp_path / "f.onnx")
    session = runtime.InferenceSession(str(tmp_path / "f.onnx"), providers=["CPUExecutionProvider"])
    for size in (5, 9):
        for x, y in arrays(numpy, 20, size):
            expected = f(x, y)
            same(session.run(None, {i.name: {"x": x, "y": y}[i.name] for i in session.get_inputs()}), list(expected) if isinstance(expected, tuple) else [expected])


@both_libraries
@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_both_ways_are_in_the_graph(lib, f):
    first = next(arrays(lib))
    graph = framejit.capture(f, *first)
    assert branches(graph) >= 1 and framejit.cache_info()["internal_errors"] == 0
    text = Graph.parse(str(graph))
    assert str(text) == str(graph)
    run = graph.function(lib.name)
    for x, y in arrays(lib):
        same(graph(x, y), f(x, y))
        expected = f(x, y)
        results = run(*given(graph, x, y))
        same(results, list(expected) if isinstance(expected, tuple) else [expected])
        same(text.run(*given(graph, x, y)), results)


@both_libraries
@pytest.mark.parametrize("f", [plain, nested, early, in_a_loop], ids=lambda f: f.__name__)
def test_a_file_has_both_ways(lib, f, tmp_path):
    same_from_files(lib, f, tmp_path, branches)


@pytest.mark.skipif(not shutil.which("ld"), reason="there is no linker")
@pytest.mark.parametrize("f", [plain, nested, in_a_loop], ids=lambda f: f.__name__)
def test_a_c_library_has_both_ways(f, tmp_path):
    same_from_c(f, tmp_path)


@pytest.mark.parametrize("f", [plain, nested, early, expression, in_a_loop], ids=lambda f: f.__name__)
def test_onnx_has_both_ways(f, tmp_path):
    same_from_onnx(f, tmp_path)


def test_onnx_has_results_of_full_shape(tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")

    def f(x, y):
        a = np.arange(x.shape[0]) * x
        if x.sum() > 0:
            b, c = a.reshape(1, -1) * 2, np.zeros(2)
        else:
            b, c = np.broadcast_to(y, (1, x.shape[0])) * 1.0, np.ones(2)
        return b + np.arange(x.shape[0]) * y, c, np.broadcast_to(x[:1], (2, 3)) * 2 if y.sum() > 0 else np.broadcast_to(y, (2, 3)) * 1

    x, y = np.ones(3), np.arange(3.0)
    framejit.capture(f, x, y).to_onnx(tmp_path / "f.onnx")
    session = runtime.InferenceSession(str(tmp_path / "f.onnx"), providers=["CPUExecutionProvider"])
    for x in (x, -x):
        for y in (y, -y):
            same(session.run(None, {"x": x, "y": y}), list(f(x, y)))


@needs_torch
def test_a_module_whose_layers_are_on_one_way_only():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = torch.nn.Linear(4, 8), torch.nn.Linear(8, 3), torch.nn.Linear(8, 3)

        def forward(self, x):
            h = torch.relu(self.a(x))
            if h.mean() > 0.4:
                return self.b(h)
            return self.c(h).tanh()

    torch.manual_seed(0)
    net = Net()
    with torch.no_grad():
        graph = framejit.capture(net, torch.randn(5, 4))
        program = framejit.export(net, (torch.randn(5, 4),))
        for scale in (0.1, 1.0, 3.0):
            for _ in range(5):
                x = torch.randn(5, 4) * scale
                torch.testing.assert_close(graph(x), net(x))
                torch.testing.assert_close(program(x), net(x))
        net.c.weight.mul_(2)
        torch.testing.assert_close(graph(x * 0.01), net(x * 0.01))
    # A gradient of zeros is not None, which eager gives the layer that is not on the way: that call is eager.
    for scale in (0.01, 5.0):
        net.zero_grad()
        graph(torch.ones(5, 4) * scale).sum().backward()
        ours = [p.grad for p in net.parameters()]
        net.zero_grad()
        net(torch.ones(5, 4) * scale).sum().backward()
        for o, p in zip(ours, net.parameters()):
            assert (o is None) == (p.grad is None)
            if o is not None:
                torch.testing.assert_close(o, p.grad)


@needs_torch
@pytest.mark.parametrize("f", [plain, nested, in_a_loop], ids=lambda f: f.__name__)
def test_gradients_go_both_ways(f):
    lib = type("lib", (), {"name": "torch"})

    def g(x, y, w):
        h = x * w
        result = f(h, y + w)
        return result[0] * y if isinstance(result, tuple) else result * y

    first = (*next(arrays(lib)), torch.ones(5, requires_grad=True))
    graph = framejit.capture(g, *first)
    assert branches(graph) >= 1
    for x, y in arrays(lib):
        gradients = []
        for function in (graph, g):
            w = torch.linspace(0.5, 2, 5, requires_grad=True)
            (function(x, y, w) ** 2).sum().backward()
            gradients.append(w.grad)
        torch.testing.assert_close(*gradients)


def without_gradients(x, w):
    with torch.no_grad():
        if x.sum() > 0:
            return w * 2
        return w * 3


def of_one_result(x, w):
    if x.sum() > 0:
        return x * 2, x * w
    return x * 3, x * w * 2


def of_another_result_each_way(x, w):
    if x.sum() > 0:
        return x * w, x * 2
    return x * w.detach(), w * 2


def of_two_arrays(x, w, v):
    if x.sum() > 0:
        return w * 2, v * x
    return w * x, v * 3


def of_two_arrays_in_turn(x, w, v):
    if x.sum() > 0:
        return w * 2, v * x
    return v * x, w * 3


def detached(x, w):
    return (w * 2).detach() if x.sum() > 0 else (w * x).detach()


def backward_inside(x, w):
    h = w * x
    h = h * 2 if h.sum() > 0 else h * 3
    h.sum().backward()
    return x * 2


@needs_torch
@pytest.mark.parametrize("f", [without_gradients, of_one_result, of_another_result_each_way, of_two_arrays, of_two_arrays_in_turn, detached, backward_inside],
                         ids=lambda f: f.__name__)
def test_what_requires_a_gradient_is_what_eager_gives_one(f):
    def leaves():
        return [torch.full((3,), 2.0 + i, requires_grad=True) for i in range(f.__code__.co_argcount - 1)]

    graph = framejit.capture(f, torch.ones(3), *leaves())
    for x in (torch.ones(3), -torch.ones(3)):
        told = []
        for function in (graph, f):
            given = leaves()
            results = function(x, *given)
            results = results if isinstance(results, tuple) else (results,)
            told.append([[r.requires_grad for r in results], [w.grad for w in given]])
            for chosen in range(len(results)):
                given = leaves()
                results = function(x, *given)
                result = results[chosen] if isinstance(results, tuple) else results
                if result.requires_grad:
                    result.sum().backward()
                told[-1].append([w.grad for w in given])
        assert repr(told[0]) == repr(told[1])


@needs_torch
def test_what_no_derivative_reads_may_be_written_before_backward():
    def f(x, w):
        if x.sum() > 0:
            return w * 3
        return w + x

    w, x = torch.ones(3, requires_grad=True), torch.ones(3)
    result = framejit.capture(f, x, w)(x, w)
    x.mul_(3)
    result.sum().backward()
    torch.testing.assert_close(w.grad, torch.full((3,), 3.0))


@needs_torch
def test_derivatives_of_derivatives_go_both_ways():
    def f(x, w):
        return (w ** 3 * x if x.sum() > 0 else torch.exp(w) * x) * 2

    w = torch.tensor([0.5, 2.0, 1.0], requires_grad=True)
    graph = framejit.capture(f, torch.ones(3), w)
    for x in (torch.ones(3), -torch.ones(3)):
        found = []
        for function in (graph, f):
            first, = torch.autograd.grad(function(x, w).sum(), w, create_graph=True)
            found.append((first.detach(), torch.autograd.grad((first * first).sum(), w)[0]))
        torch.testing.assert_close(found[0], found[1])


def test_derivatives_of_relus_are_kept_in_a_branch():
    """At 0, where the derivative of the operations one by one would be another one."""
    if torch is None:
        pytest.skip("torch is not installed")

    def f(x, w):
        h = torch.relu(x * w)
        return (torch.relu(h - 1) if h.sum() > 1 else torch.nn.functional.hardtanh(h)) * 2

    w = torch.ones(4, requires_grad=True)
    graph = framejit.capture(f, torch.ones(4), w)
    for x in (torch.tensor([0.0, 1.0, 2.0, -1.0]), torch.tensor([0.0, 0.5, 0.25, -1.0]), torch.zeros(4)):
        gradients = [torch.autograd.grad(function(x, w).sum(), w)[0] for function in (graph, f)]
        torch.testing.assert_close(*gradients)


def test_edits_go_around_a_branch():
    x, y = np.ones(4, np.float32), np.full(4, 2, np.float32)
    graph = framejit.capture(plain, x, y)
    cond, = graph.find(op="cond")
    first = next(x for x in cond.operands if x.op == "mul")
    first.replace_uses(graph.add("mul", first, first, after=first), where=lambda user: user is cond)
    graph.lint()
    np.testing.assert_allclose(graph(x, y), ((x * 2) ** 2 + y) * 3)
    np.testing.assert_allclose(graph.copy()(x * -1, y), ((x * 2) ** 2 - y) * 3)
    with pytest.raises(GraphError, match="branch"):
        cond.op = "add"
    with pytest.raises(GraphError, match="is a branch, for operands of other types"):
        cond.operands = (cond.operands[0],) * 3
    then, other = cond.bodies
    assert [node.op for node in then][0] == "add" and [node.op for node in other][0] == "sub"


def prints(x, y):
    if x.sum() > 0:
        print("here")
    return x * 2


def changes_outside(x, y):
    if x.sum() > 0:
        y += 1
    return x * 2


def other_sizes(x, y):
    return x[1:] * 2 if x.sum() > 0 else y * 1


@pytest.mark.parametrize("f, why", [
    (prints, "one way ends where"), (changes_outside, "is written"), (other_sizes, r"the ways return")])
def test_what_can_not_be_one_graph_says_why(f, why):
    with pytest.raises(GraphBreakError, match=f"FJ104.*(?s:.*)both ways are not in one graph: .*{why}"):
        framejit.capture(f, np.ones(4), np.ones(4))


def test_numbers_of_the_ways_are_numbers():
    def f(x):
        return (x * 2, 3, 0.5, True) if x.sum() > 0 else (x * 3, 4, -0.0, False)

    graph = framejit.capture(f, np.ones(3))
    for x in (np.ones(3), -np.ones(3)):
        ours, eager = graph(x), f(x)
        np.testing.assert_array_equal(ours[0], eager[0])
        assert repr(ours[1:]) == repr(eager[1:]) and [*map(type, ours[1:])] == [int, float, bool]


def test_a_division_by_zero_counts_on_the_way_that_runs_only():
    def f(x, n):
        return x // n if (n > 0).all() else x * 2

    graph = framejit.capture(f, np.arange(4), np.arange(4) + 1)
    for n in (np.array([1, 2, 3, 4]), np.array([0, 1, 2, 3])):
        np.testing.assert_array_equal(graph(np.arange(4), n), f(np.arange(4), n))


def test_floating_point_warnings_are_those_of_the_way():
    def f(x, y):
        return np.log(x) if x.min() >= 0 else np.sqrt(y)

    graph = framejit.capture(f, np.ones(3), np.ones(3))
    for x, y in ((np.zeros(3), np.ones(3)), (-np.ones(3), -np.ones(3)), (-np.ones(3), np.ones(3)), (np.ones(3), -np.ones(3))):
        told = []
        for function in (graph, f):
            with pytest.warns() if (x.min() == 0 or (x.min() < 0 and y.min() < 0)) else np.errstate(all="raise") as caught:
                result = function(x, y)
            told.append(([str(w.message) for w in caught] if caught else [], result))
        assert told[0][0] == told[1][0]
        np.testing.assert_array_equal(told[0][1], told[1][1])


# Outside of pytest's hands, which writes other code for an assert.
exec("def asserts(x, y):\n    assert x.sum() > -3, 'too low'\n    return x * y\n")


def raises_on_one_way(x, y):
    if x.sum() > 3:
        raise ValueError("too high", 3)
    return x + y


def raises_deep_inside(x, y):
    if x.sum() > 0:
        if x.max() > 2:
            raise KeyError("large")
        z = x * 2
    else:
        if y.sum() > 2:
            raise ArithmeticError
        z = y * 3
    return z - 1


def raises_in_a_call(x, y):
    def checked(z):
        if (z > 3).any():
            raise IndexError("too far")
        return z

    return checked(x * 2) + checked(y)


def raises_either_way(x, y):
    if x.sum() > 2:
        if y.sum() > 0:
            raise ValueError("both")
        raise KeyError("one")
    return x - y


def catches(x, y):
    try:
        if x.sum() > 0:
            raise ValueError("here")
        return x * 2
    except ValueError:
        return y * 3


@both_libraries
@pytest.mark.parametrize("f", [globals()["asserts"], raises_on_one_way, raises_deep_inside, raises_in_a_call, raises_either_way, catches], ids=lambda f: f.__name__)
def test_a_way_that_raises(lib, f, tmp_path):
    first = next((x, y) for x, y in arrays(lib) if not isinstance(outcome(f, x, y), Exception))
    graph = framejit.capture(f, *first)
    graph.save(tmp_path / "f.graph")
    loaded, program = Graph.load(tmp_path / "f.graph"), framejit.export(f, first)
    raised = 0
    for x, y in arrays(lib):
        expected, ours = outcome(f, x, y), outcome(graph, x, y)
        raised += isinstance(expected, Exception)
        if not isinstance(expected, Exception):
            for found in (ours, outcome(loaded, x, y), outcome(program, x, y)):
                same(found, expected)
            continue
        assert type(ours) is type(expected) and ours.args == expected.args
        for found in (outcome(loaded, x, y), outcome(program, x, y)):
            assert isinstance(found, (GraphError, ArithmeticError, IndexError)), found
    assert (f is not catches) == bool(raised) and framejit.cache_info()["internal_errors"] == 0


def test_a_check_has_no_form_in_onnx_or_fx(tmp_path):
    graph = framejit.capture(raises_on_one_way, np.zeros(3), np.ones(3))
    pytest.importorskip("onnx")
    with pytest.raises(GraphError, match="is a check"):
        graph.to_onnx(tmp_path / "f.onnx")
    if torch is not None:
        with pytest.raises(GraphError, match="is a check"):
            framejit.capture(raises_on_one_way, torch.zeros(3), torch.ones(3)).to_fx()


def outcome(f, *args):
    try:
        return f(*args)
    except Exception as error:
        return error
