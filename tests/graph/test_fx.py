"""Graphs as torch.fx modules and back, and back ends of torch.compile: values, gradients, writes and sizes are eager's."""
import copy
import linecache
import math
import shutil

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import framejit  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

nn = torch.nn
leaves = torch.utils._pytree.tree_leaves


class Recurrent(nn.Module):
    """A GRU by hand."""

    def __init__(self, inner=4):
        super().__init__()
        self.of_input, self.of_state, self.inner = nn.Linear(3, 3 * inner), nn.Linear(inner, 3 * inner), inner

    def forward(self, x):
        state, states = torch.zeros(x.shape[0], self.inner), []
        for step in range(x.shape[1]):
            r, z, n = self.of_input(x[:, step]).chunk(3, -1)
            from_r, from_z, from_n = self.of_state(state).chunk(3, -1)
            z = torch.sigmoid(z + from_z)
            state = (1 - z) * torch.tanh(n + torch.sigmoid(r + from_r) * from_n) + z * state
            states.append(state)
        return torch.stack(states, 1), state


def attention(x, key, value):
    return torch.softmax(x @ key.transpose(-2, -1) / math.sqrt(x.shape[-1]), -1) @ value


class Encoder(nn.Module):
    def __init__(self, width=8, heads=2):
        super().__init__()
        self.heads, self.norm1, self.norm2 = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.mixed, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.inner = nn.Sequential(nn.Linear(width, 16), nn.GELU(), nn.Linear(16, width))

    def forward(self, x):
        parts = self.mixed(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = self.norm1(x + self.out(attention(parts[0], parts[1], parts[2]).transpose(1, 2).flatten(2)))
        return self.norm2(x + self.inner(x))


def perceptron():
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4))


def convolutions():
    return nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 5))


MODELS = {"perceptron": (perceptron, [(5, 6)]), "convolutions": (convolutions, [(2, 3, 8, 8)]), "recurrent": (Recurrent, [(2, 4, 3)]),
          "encoder": (Encoder, [(2, 5, 8)]), "attention": (lambda: attention, [(2, 3, 5, 4)] * 3)}
all_models = pytest.mark.parametrize("name", MODELS)


def made(name):
    torch.manual_seed(0)
    make, shapes = MODELS[name]
    model = make()
    return model, copy.deepcopy(model), [torch.randn(shape) for shape in shapes]


def batch_of(arrays, count):
    torch.manual_seed(count)
    return [torch.randn(count, *x.shape[1:]) for x in arrays]


def parameters(model):
    return {**dict(model.named_parameters()), **dict(model.named_buffers())} if isinstance(model, nn.Module) else {}


def assert_trained_alike(run, model, twin, arrays):
    """Values, gradients of arguments and parameters, buffers."""
    mine, theirs = ([x.detach().clone().requires_grad_() for x in arrays] for _ in range(2))
    found, expected = leaves(run(*mine)), leaves(twin(*theirs))
    for one, two in zip(found, expected, strict=True):
        torch.testing.assert_close(one, two, atol=1e-5, rtol=1e-4)
    sum(x.square().sum() for x in found).backward()
    sum(x.square().sum() for x in expected).backward()
    for one, two in zip([*mine, *getattr(model, "parameters", list)()], [*theirs, *getattr(twin, "parameters", list)()], strict=True):
        torch.testing.assert_close(one.grad, two.grad, atol=1e-4, rtol=1e-3)
        one.grad = two.grad = None
    for one, two in zip(getattr(model, "buffers", list)(), getattr(twin, "buffers", list)(), strict=True):
        torch.testing.assert_close(one, two)


# ---- out

@all_models
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_graph_becomes_a_module(name, dynamic):
    model, twin, arrays = made(name)
    first = "input" if isinstance(model, nn.Sequential) else None
    names = [first] if first else ["x", "key", "value"][:len(arrays)]
    graph = framejit.capture(model, *arrays, dynamic_shapes={x: {0: "batch"} for x in names} if dynamic else None)
    module = graph.to_fx()
    assert isinstance(module, torch.fx.GraphModule)
    assert all(node.target.namespace in ("aten", "prims") for node in module.graph.nodes
               if node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload))
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
    assert [tuple(node.meta["val"].shape)[1:] for node in placeholders] == [tuple(node.shape)[1:] for node in graph.inputs]
    with torch.no_grad():
        for count in (arrays[0].shape[0], 3, 7) if dynamic else (arrays[0].shape[0],):
            batch = batch_of(arrays, count)
            given = dict(zip(names, batch))
            found = module(*(given.get(node.name, parameters(model).get(node.name)) for node in graph.inputs))
            torch.testing.assert_close(list(found), leaves(twin(*batch)), atol=1e-5, rtol=1e-4)
            for one, two in zip(getattr(model, "buffers", list)(), getattr(twin, "buffers", list)(), strict=True):
                torch.testing.assert_close(one, two)


def test_writes_are_copies_or_results():
    def f(x, y):
        x += y
        return x * 2

    x, y = torch.randn(3), torch.randn(3)
    graph = framejit.capture(f, x, y)
    module, pure = graph.to_fx(), graph.to_fx(functional=True)
    old = x.clone()
    doubled, written = pure(x, y)
    torch.testing.assert_close((doubled, written, x), ((old + y) * 2, old + y, old))
    (doubled,) = module(x, y)
    torch.testing.assert_close((doubled, x), ((old + y) * 2, old + y))


@pytest.mark.parametrize("f", [lambda x: ((x * 2).ravel(), x + 1), lambda x: (x * 2).T, lambda x: (x.exp().T * 2)[2], lambda x: (x * 2)[1:].detach()])
def test_a_view_of_what_is_computed_is_no_output(f):
    """The module gave all of what the view is of, without a word."""
    x = torch.arange(12.0).reshape(3, 4)
    graph = framejit.capture(f, x)
    with pytest.raises(framejit.GraphError, match="is a view of what is computed"):
        graph.to_fx()
    assert [value.numel() for value in graph.to_fx(functional=True)(x)] == [12] * len(graph.outputs)
    copied = framejit.capture(lambda x: (x * 2).T.clone(), x).to_fx()
    assert torch.equal(copied(x)[0], (x * 2).T)
    same = framejit.capture(lambda x: ((x * 2).view(3, 4), x.T), x).to_fx()
    assert torch.equal(same(x)[0], x * 2)


def test_swapped_arrays_are_swapped():
    def f(x, y):
        z = x.clone()
        x.copy_(y)
        y.copy_(z)
        return z

    x, y = torch.randn(3), torch.randn(3)
    old = x.clone(), y.clone()
    (z,) = framejit.capture(f, x, y).to_fx()(x, y)
    torch.testing.assert_close((x, y, z), (old[1], old[0], old[0]))


def test_nodes_say_where_they_come_from():
    module = framejit.capture(Encoder(), torch.randn(2, 5, 8)).to_fx()
    (erf,) = [node for node in module.graph.nodes if "erf" in str(node.target)]
    assert "activation.py" in erf.stack_trace and list(erf.meta["nn_module_stack"]) == ["inner.1"]
    assert any(f'File "{__file__}"' in (node.stack_trace or "") for node in module.graph.nodes)


def test_places_that_a_text_names_are_not_opened(tmp_path, monkeypatch):
    path, opened = tmp_path / "private.txt", []
    path.write_text("a line that nobody asked for\n" * 3)
    update = linecache.updatecache
    monkeypatch.setattr(linecache, "updatecache", lambda name, *more: opened.append(name) or update(name, *more))
    graph = framejit.Graph.parse(f"graph @f(%x: f32[3]) {{\n  %0 = mul %x, %x : f32[3] ; {path}:2\n  return %0\n}}\n")
    module = graph.to_fx()
    [multiplied] = [node for node in module.graph.nodes if "mul" in str(node.target)]
    assert f'File "{path}", line 2' in multiplied.stack_trace and "nobody" not in multiplied.stack_trace
    assert str(path) not in opened


def test_functions_of_the_library_are_operators():
    def attention(x):
        return nn.functional.scaled_dot_product_attention(x, x, x) + x  # of three axes: a call

    x = torch.randn(2, 5, 8)
    graph = framejit.capture(attention, x)
    assert graph.find(op="extern_call")
    torch.testing.assert_close(graph.to_fx()(x)[0], attention(x))


def test_what_has_no_form_names_its_node():
    graph = framejit.Graph.parse("graph @f(%x: bool[4]) where s0 >= 0 {\n  %0 = nonzero %x {count = s0, excluded = []} : i64[s0]\n  return %0\n}")
    with pytest.raises(framejit.GraphError, match="the graph of f: nonzero gives a size"):
        graph.to_fx()


# ---- in

def by_dynamo(model, arrays):
    """(module, its arguments)"""
    found = []

    def backend(module, examples):
        def run(*given):
            found.append((module, given))
            return module.forward(*given)

        return run

    torch._dynamo.reset()
    torch.compile(model, backend=backend, fullgraph=True, dynamic=False)(*arrays)
    return found[0]


@all_models
@pytest.mark.parametrize("way", ["make_fx", "export", "dynamo", "round trip"])
def test_a_module_becomes_a_graph(name, way):
    model, twin, arrays = made(name)
    state = copy.deepcopy(model.state_dict()) if isinstance(model, nn.Module) else None
    arrays = [x.requires_grad_() for x in arrays]  # as in the calls
    order = None
    if way == "make_fx":
        module = make_fx(model, tracing_mode="fake", _allow_non_fake_inputs=True)(*arrays)
    elif way == "export":
        if state is None:
            pytest.skip("torch.export takes modules")
        module = torch.export.export(model, tuple(arrays)).module()
        model = module  # has copies of the parameters
    elif way == "dynamo":
        module, order = by_dynamo(model, arrays)
    else:
        first = framejit.capture(model, *arrays)
        module = first.to_fx()
        names = ["input"] if isinstance(model, nn.Sequential) else ["x", "key", "value"]
        given = dict(zip(names, arrays))
        order = [given[node.name] if node.name in given else parameters(model)[node.name] for node in first.inputs]
    if state is not None:
        model.load_state_dict(state)
    graph = framejit.from_fx(module, *(arrays if order is None else order))

    def run(*mine):
        if order is None:
            return graph(*mine)
        return graph(*(next((new for new, old in zip(mine, arrays) if old is x), x) for x in order))

    for _ in range(2):
        assert_trained_alike(run, model, twin, arrays)


def test_examples_and_dynamic_sizes_come_from_the_placeholders():
    def f(x, y):
        return (x * y).sum(1) / x.shape[0]

    module = framejit.capture(f, torch.randn(4, 3), torch.randn(4, 3), dynamic_shapes={"x": {0: "n"}, "y": {0: "n"}}).to_fx()
    graph = framejit.from_fx(module)
    assert graph.inputs[0].shape == ("s0", 3) == graph.inputs[1].shape
    for count in (2, 6):
        x, y = torch.randn(count, 3), torch.randn(count, 3)
        torch.testing.assert_close(graph(x, y)[0], f(x, y))
    assert any(node.file == __file__ for node in graph)


def test_operators_in_no_table_are_called_as_they_are():
    module = make_fx(lambda x: torch.ops.aten.kthvalue(x, 2)[0] + 1)(torch.randn(5))
    x = torch.randn(5)
    torch.testing.assert_close(framejit.from_fx(module, x)(x), x.kthvalue(2)[0] + 1)


def test_a_node_that_breaks_graphs_is_named():
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    graph.output(graph.call_function(print, (x,)))
    with pytest.raises(framejit.GraphError, match="the node print_1, which calls <built-in function print>"):
        framejit.from_fx(torch.fx.GraphModule(nn.Module(), graph), torch.randn(3))
    with pytest.raises(TypeError, match="takes a torch.fx.GraphModule"):
        framejit.from_fx(lambda x: x)


# ---- back ends of torch.compile

class Counting:
    def __init__(self):
        self.modules = []

    def __call__(self, module, example_inputs):
        assert isinstance(module, torch.fx.GraphModule) and all(not x.requires_grad for x in example_inputs if isinstance(x, torch.Tensor))
        self.modules.append(module)
        return module.forward


def inductor_or_skip():
    if shutil.which("g++") is None and shutil.which("clang++") is None:
        pytest.skip("inductor compiles C++, and there is no C++ compiler")
    try:
        torch._dynamo.reset()
        torch.compile(lambda x: x + 1)(torch.zeros(3))
    except Exception as error:
        pytest.skip(f"torch's inductor compiles nothing here: {type(error).__name__}: {str(error)[:200]}")


@all_models
@pytest.mark.parametrize("compiler", ["counting", "aot_eager", "inductor"])
def test_back_ends_of_torch_compile(name, compiler):
    if compiler == "inductor":
        inductor_or_skip()
    model, twin, arrays = made(name)
    counting = Counting()
    compiled = framejit.compile(model, backend=framejit.fx_backend(counting if compiler == "counting" else compiler), fullgraph=True)
    for count in (arrays[0].shape[0], arrays[0].shape[0], 3, 7):
        assert_trained_alike(compiled, model, twin, batch_of(arrays, count))
    if compiler == "counting":
        assert 1 < len(counting.modules) <= 4  # a graph of fixed sizes, one of any, and versions


def test_sizes_that_torch_excludes_get_modules_of_their_own():
    counting = Counting()
    compiled = framejit.compile(lambda x: (x * 2).sum(1) + x.shape[0], backend=framejit.fx_backend(counting), dynamic=True)
    for count in (4, 1, 0, 9, 1):
        x = torch.randn(count, 3)
        torch.testing.assert_close(compiled(x), (x * 2).sum(1) + count)
    assert len(counting.modules) <= 4


def test_arrays_of_numpy():
    counting = Counting()
    compiled = framejit.compile(lambda x, y: np.tanh(x * 2 + y).sum(0), backend=framejit.fx_backend(counting))
    for x in (np.random.randn(4, 3), np.random.randn(6, 3), np.random.randn(6, 3)[::-1]):
        found = compiled(x, np.ones(3))
        assert isinstance(found, np.ndarray)
        np.testing.assert_allclose(found, np.tanh(x * 2 + 1).sum(0))
    assert counting.modules


@pytest.mark.parametrize("compiler", ["aot_eager", "inductor"])
def test_random_numbers_are_eager_s(compiler):
    if compiler == "inductor":
        inductor_or_skip()

    def f(x):
        return torch.nn.functional.dropout(x * 2, 0.5) + torch.rand(3)

    compiled, x = framejit.compile(f, backend=framejit.fx_backend(compiler)), torch.ones(5, 3)
    for _ in range(2):
        torch.manual_seed(1)
        found = compiled(x)
        torch.manual_seed(1)
        torch.testing.assert_close(found, f(x))


def test_wrong_back_ends():
    with pytest.raises(TypeError, match="takes the name of a back end"):
        framejit.fx_backend(3)
    with pytest.raises(framejit.BackendError, match="ZeroDivisionError"):
        framejit.compile(lambda x: x * 2, backend=framejit.fx_backend(lambda module, examples: 1 / 0))(torch.randn(3))
