"""torch.compile(model, backend=framejit._dynamo.backend): torch captures, framejit compiles, and everything is as eager has it."""
import copy
import functools
import importlib
import os
import pathlib
import subprocess
import sys
import tomllib

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import framejit  # noqa: E402
from framejit._dynamo import backend  # noqa: E402

ROOT = pathlib.Path(__file__).parent.parent.parent
close = functools.partial(torch.testing.assert_close, rtol=1e-4, atol=1e-5)


@pytest.fixture(autouse=True)
def fresh_graphs():
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


class Perceptron(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(12, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 4))

    def forward(self, x):
        return self.layers(x)


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 6, 3, padding=1), nn.Conv2d(6, 8, 3, stride=2)
        self.norm = nn.GroupNorm(2, 8)
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        x = F.max_pool2d(F.gelu(self.first(x)), 2)
        return F.log_softmax(self.head(F.silu(self.norm(self.second(x))).mean((2, 3))), dim=1)


class Recurrent(nn.Module):
    """A GRU by hand."""

    def __init__(self):
        super().__init__()
        self.of_input, self.of_state = nn.Linear(12, 24), nn.Linear(8, 24)

    def forward(self, x):
        state = x.new_zeros(x.shape[0], 8)
        for step in x.unbind(1):
            reset, update, new = self.of_input(step).chunk(3, 1)
            reset_by, update_by, new_by = self.of_state(state).chunk(3, 1)
            update = torch.sigmoid(update + update_by)
            state = (1 - update) * torch.tanh(new + torch.sigmoid(reset + reset_by) * new_by) + update * state
        return state


class Branching(nn.Module):
    """A branch on data: torch's graph ends there, and another begins."""

    def __init__(self):
        super().__init__()
        self.first, self.high, self.low = nn.Linear(12, 12), nn.Linear(12, 4), nn.Linear(12, 4)

    def forward(self, x):
        x = torch.tanh(self.first(x)) * 2
        if x.sum() > 0:
            return self.high(x.exp()) + 1
        return self.low(x.cos()) - 1


def encoder():
    return nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True)


MODELS = {"perceptron": (Perceptron, (12,)), "convolutions": (ConvNet, (3, 9, 9)), "recurrent": (Recurrent, (5, 12)),
          "encoder": (encoder, (6, 16)), "branching": (Branching, (12,))}
models = pytest.mark.parametrize("name", MODELS)


def made(name, batch=6):
    """The model, the same model for eager, and inputs."""
    make, shape = MODELS[name]
    module = make()
    return module, copy.deepcopy(module), torch.randn(batch, *shape)


def compiled_by_us():
    info = framejit.cache_info()
    assert info["graphs"] > 0 and info["calls"] > 0, info
    assert info["internal_errors"] == info["eager_replays"] == 0, info
    return info


def same_tensors(ours, eager):
    """Parameters and buffers."""
    close(ours.state_dict(), eager.state_dict())


@models
def test_forward_is_eager_s(name):
    module, eager, x = made(name)
    module.eval(), eager.eval()
    compiled = torch.compile(module, backend=backend)
    with torch.no_grad():
        for _ in range(3):
            ours, expected = compiled(x), eager(x)
            close(ours, expected)
            assert ours.stride() == expected.stride() and not ours.requires_grad
    assert compiled_by_us()["breaks"] == 0


@models
def test_gradients_are_eager_s(name):
    module, eager, x = made(name)
    compiled = torch.compile(module, backend=backend)
    for _ in range(2):
        found, wanted = x.clone().requires_grad_(), x.clone().requires_grad_()
        ours, expected = compiled(found), eager(wanted)
        close(ours, expected)
        ours.square().mean().backward()
        expected.square().mean().backward()
        close(found.grad, wanted.grad)
        close([p.grad for p in module.parameters() if p.grad is not None], [p.grad for p in eager.parameters() if p.grad is not None])
    assert [p.grad is None for p in module.parameters()] == [p.grad is None for p in eager.parameters()]
    same_tensors(module, eager)  # running statistics
    assert compiled_by_us()["breaks"] == 0


@models
def test_training_steps_are_eager_s(name):
    module, eager, x = made(name)
    compiled = torch.compile(module, backend=backend)
    ours, expected = (torch.optim.SGD(m.parameters(), lr=0.05, momentum=0.9) for m in (module, eager))
    for _ in range(4):
        for model, optimizer in ((compiled, ours), (eager, expected)):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
    same_tensors(module, eager)
    compiled_by_us()


def test_a_whole_training_step_may_be_compiled():
    """The backward runs where torch captures: our helpers of it are left alone."""
    module, eager, x = made("convolutions")

    def step(model, optimizer):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    compiled = torch.compile(step, backend=backend)
    ours, expected = (torch.optim.SGD(m.parameters(), lr=0.05) for m in (module, eager))
    for _ in range(3):
        close(compiled(module, ours), step(eager, expected))
    same_tensors(module, eager)
    compiled_by_us()


@models
def test_dynamic_sizes_are_one_graph(name):
    module, eager, x = made(name, batch=11)
    compiled = torch.compile(module, backend=backend, dynamic=True)
    for batch in (7, 11, 4):  # not the length of a sequence: sizes that are the same in the first call are one symbol to torch
        close(compiled(x[:batch].clone()), eager(x[:batch]))
    info = compiled_by_us()
    assert name == "branching" or (info["graphs"] == 1 and info["recompiles"] == 0), info


def test_a_size_that_changes_becomes_a_symbol():
    module, eager, x = made("perceptron", batch=11)
    compiled = torch.compile(module, backend=backend)
    for batch in (6, 11, 4, 9):
        close(compiled(x[:batch].clone()), eager(x[:batch]))
    assert compiled_by_us()["graphs"] == 2


def test_numbers_and_sizes_are_arguments():
    def f(x, factor, rows):
        return (x.view(rows, -1) * factor).sin() * x.shape[0] + torch.arange(x.numel() // rows, device=x.device)

    compiled = torch.compile(f, backend=backend, dynamic=True)
    for rows, factor in ((2, 1.5), (3, -2.5), (5, 0.25)):
        x = torch.randn(rows * 4)
        close(compiled(x, factor, rows), f(x, factor, rows))
    assert compiled_by_us()["breaks"] == 0


def test_inputs_are_written():
    def f(x, counts):
        x.mul_(2).add_(1)
        counts[0] += 1
        x[1:] = x[:-1] * 0.5
        return x.sin() + counts

    compiled = torch.compile(f, backend=backend)
    ours, expected = [(torch.ones(4), torch.zeros(4)) for _ in range(2)]
    for _ in range(3):
        close(compiled(*ours), f(*expected))
        close(ours, expected)
    compiled_by_us()


def test_results_that_are_inputs_and_views_are_these():
    def f(x):
        return x, x[1:], x * 2

    x = torch.randn(4)
    same, view, _ = torch.compile(f, backend=backend)(x)
    assert same is x and view._base is x and view.data_ptr() == x[1:].data_ptr()
    compiled_by_us()


@pytest.mark.parametrize("inside", [False, True], ids=["outside", "inside"])
def test_autocast_is_on_where_it_was(inside):
    linear = nn.Linear(8, 8)

    def plain(x):
        return (linear(x) * 2).relu()

    def f(x):
        if not inside:
            return plain(x)
        with torch.autocast("cpu", torch.bfloat16):
            return plain(x)

    compiled = torch.compile(f, backend=backend)
    x = torch.randn(4, 8)
    for enabled in (True, False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            ours, expected = compiled(x), f(x)
        assert ours.dtype == expected.dtype == (torch.bfloat16 if inside or enabled else torch.float32)
        torch.testing.assert_close(ours, expected, rtol=2e-2, atol=2e-2)
        found = torch.autograd.grad(ours.float().sum(), linear.weight)
        torch.testing.assert_close(found, torch.autograd.grad(expected.float().sum(), linear.weight), rtol=2e-2, atol=2e-2)
        assert not torch.is_autocast_enabled("cpu")
    assert compiled_by_us()["breaks"] == 0


def test_gradients_are_off_where_they_were():
    def f(x):
        with torch.no_grad():
            scale = (x * 2).exp()
        return x.sin() * scale, scale

    compiled = torch.compile(f, backend=backend)
    for _ in range(2):
        x = torch.randn(5, requires_grad=True)
        ours, expected = compiled(x), f(x)
        close(ours, expected)
        assert [y.requires_grad for y in ours] == [y.requires_grad for y in expected] == [True, False]
        close(torch.autograd.grad(ours[0].sum(), x), torch.autograd.grad(expected[0].sum(), x))
    info = compiled_by_us()
    assert info["graphs"] == 1 and info["breaks"] == 0


def test_a_graph_that_leaves_gradients_off_leaves_them_off():
    def f(x):
        torch.set_grad_enabled(False)
        return x * 2 + 1

    x = torch.randn(3, requires_grad=True)
    compiled = torch.compile(f, backend=backend)
    for _ in range(2):
        with torch.enable_grad():
            assert not compiled(x).requires_grad and not torch.is_grad_enabled()
    compiled_by_us()


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin() * 2

    @staticmethod
    def backward(ctx, cotangent):
        return cotangent * ctx.saved_tensors[0].cos() * 2


OPERATORS = {
    "checkpoint": lambda x: torch.utils.checkpoint.checkpoint(lambda y: y.sin().cos(), x.exp(), use_reentrant=False).tanh(),
    "cond": lambda x: torch.cond(x.sum() > 0, lambda y: y.sin(), lambda y: y.cos(), (x.exp(),)) * 2,
    "autograd function": lambda x: Doubled.apply(x.exp()) * 3,
}


@pytest.mark.parametrize("operator", OPERATORS)
def test_operators_that_take_functions_are_torch_s(operator):
    f = OPERATORS[operator]
    compiled = torch.compile(f, backend=backend)
    for _ in range(2):
        x = torch.randn(4, 4, requires_grad=operator != "cond")
        ours, expected = compiled(x), f(x)
        close(ours, expected)
        if x.requires_grad:
            close(torch.autograd.grad(ours.sum(), x), torch.autograd.grad(expected.sum(), x))
    assert compiled_by_us()["graphs"] == 2  # what is before it and what follows


def test_inside_of_transforms_nothing_is_compiled():
    def f(x):
        return torch.func.vmap(lambda row: row.sin() * row.sum())(x) + torch.func.grad(lambda y: y.square().sum())(x)

    x = torch.randn(3, 4)
    close(torch.compile(f, backend=backend)(x), f(x))
    assert framejit.cache_info()["internal_errors"] == 0


def test_where_torch_captures_backwards_the_graph_is_torch_s():
    module, eager, x = made("perceptron")
    with torch._dynamo.config.patch(compiled_autograd=True):
        compiled = torch.compile(module, backend=backend)

        @torch.compile(backend=backend)
        def step():
            compiled(x).square().mean().backward()

        step()
    eager(x).square().mean().backward()
    close([p.grad for p in module.parameters()], [p.grad for p in eager.parameters()])


def test_inputs_that_share_memory_are_written():
    def f(x, y):
        x.mul_(2)
        return y + x.sum()

    compiled = torch.compile(f, backend=backend)
    for start in range(3):
        ours, expected = torch.arange(6.0) + start, torch.arange(6.0) + start
        close(compiled(ours, ours[1:]), f(expected, expected[1:]))
        close(ours, expected)
    assert framejit.cache_info()["graphs"] > 0


def test_errors_are_eager_s():
    def f(x, indices):
        return x[indices] * 2

    compiled, x = torch.compile(f, backend=backend), torch.arange(5.0)
    close(compiled(x, torch.tensor([0, 4])), f(x, torch.tensor([0, 4])))
    for call in (compiled, f):
        with pytest.raises(IndexError, match="index 7 is out of bounds for dimension 0 with size 5"):
            call(x, torch.tensor([0, 7]))
    assert framejit.cache_info()["graphs"] == 1


def test_random_numbers_are_eager_s():
    dropout = nn.Dropout(0.5)
    compiled = torch.compile(lambda x: dropout(x * 2) + torch.rand_like(x), backend=backend)
    x = torch.randn(50)
    for seed in range(3):
        torch.manual_seed(seed)
        ours, after = compiled(x), torch.rand(1)
        torch.manual_seed(seed)
        close(ours, dropout(x * 2) + torch.rand_like(x))
        assert after == torch.rand(1)
    compiled_by_us()


def test_options_are_those_of_compile():
    seen = []

    def record(graph, example_inputs):
        seen.append(graph)
        return framejit._backends.resolve("eager")(graph, example_inputs)

    f, x = lambda x: x.sin() * 2 + 1, torch.randn(5)  # noqa: E731
    for given in ({"threads": 1, "tier": "auto"}, {"backend": record}, {"backend": "eager"}):
        torch._dynamo.reset()
        close(torch.compile(f, backend=backend, options=given)(x), f(x))
    assert len(seen) == 1
    for mode in ("reduce-overhead", "default"):
        torch._dynamo.reset()
        close(torch.compile(f, backend=backend, mode=mode)(x), f(x))
    gm = torch.fx.symbolic_trace(f)
    for wrong in ({"options": {"fast": True}}, {"fast": True}):
        with pytest.raises(TypeError, match="framejit has no option 'fast'"):
            backend(gm, [x], **wrong)
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="TypeError: framejit has no option 'fast'"):
        torch.compile(f, backend=backend, options={"fast": True})(x)


def test_fullgraph_may_be_asked_of_either_graph():
    f, x = OPERATORS["cond"], torch.randn(4, 4)
    close(torch.compile(f, backend=backend, fullgraph=True)(x), f(x))
    torch._dynamo.reset()
    with pytest.raises(framejit.GraphBreakError, match="FJ121"):
        torch.compile(f, backend=backend, options={"fullgraph": True})(x)


def test_the_graph_that_torch_made_stays_as_it_is():
    graphs = []

    def keep(gm, example_inputs):
        graphs.append((gm, str(gm.graph)))
        return backend(gm, example_inputs)

    def f(x):
        with torch.no_grad():
            return torch.cond(x.sum() > 0, lambda y: y.sin(), lambda y: y.cos(), (x,)) * 2

    x = torch.randn(4)
    close(torch.compile(f, backend=keep)(x), f(x))
    for gm, text in graphs:
        assert str(gm.graph) == text
        close(gm(x)[0], f(x))


def test_framejit_s_functions_and_torch_s_compiler_share_a_process():
    def f(x):
        return (x.sin() * 2).sum(0)

    ours, captured = framejit.compile(f), torch.compile(f, backend=backend)
    mixed = torch.compile(lambda x: ours(x.exp()) + 1, backend=backend)
    outer = framejit.compile(lambda x: captured(x.exp()) + 1)
    x = torch.randn(4, 5)
    for _ in range(3):
        close(ours(x), f(x))
        close(captured(x), f(x))
        close(mixed(x), f(x.exp()) + 1)
        close(outer(x), f(x.exp()) + 1)
    compiled_by_us()


def test_the_entry_point_names_the_backend():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    module, _, function = project["entry-points"]["torch_dynamo_backends"]["framejit"].partition(":")
    assert getattr(importlib.import_module(module), function) is backend


def test_torch_finds_the_backend_by_its_name(tmp_path):
    """As an installed framejit has it: by the entry point in its metadata."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    metadata = tmp_path / "named-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: named\nVersion: 1.0\n")
    rows = (f"{name} = {target}\n" for name, target in project["entry-points"]["torch_dynamo_backends"].items())
    (metadata / "entry_points.txt").write_text("[torch_dynamo_backends]\n" + "".join(rows))
    program = """
import sys
import torch
assert "framejit" not in sys.modules and "framejit" in torch._dynamo.list_backends()
x = torch.randn(5)
torch.testing.assert_close(torch.compile(lambda x: x.sin() * 2 + 1, backend="framejit", options={"threads": 1})(x), x.sin() * 2 + 1)
import framejit
assert framejit.cache_info()["graphs"] == 1
"""
    path = os.pathsep.join([str(tmp_path), *(p for p in sys.path if p)])
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path})
    assert done.returncode == 0, done.stderr


def test_importing_framejit_imports_no_torch():
    program = "import framejit, sys\nassert 'torch' not in sys.modules"
    path = os.pathsep.join(p for p in sys.path if p)
    subprocess.run([sys.executable, "-P", "-c", program], check=True, env={**os.environ, "PYTHONPATH": path})
