"""A program as a torch.nn.Module: its state is moved, saved, trained."""
import copy
import pickle
import types

import numpy as np
import pytest

import framejit
from framejit import Dim, ExportedProgram, GraphError

torch = pytest.importorskip("torch", reason="torch is not installed")


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Tanh())
        self.scale = torch.nn.Parameter(torch.full((4,), 2.0))
        self.register_buffer("shift", torch.ones(4))

    def forward(self, x):
        return self.layers(x) * self.scale + self.shift


def exported(net, n=4):
    return framejit.export(net, (torch.ones(n, 3),), dynamic_shapes={"x": {0: Dim("rows", min=2, max=64)}})


@pytest.fixture
def net():
    torch.manual_seed(0)
    return Block()


def test_the_state_has_the_names_of_the_module(net):
    module = exported(net).module()
    assert {name for name, _ in module.named_parameters()} == {name for name, _ in net.named_parameters()}
    assert module.state_dict().keys() == net.state_dict().keys()
    assert {name for name, _ in module.named_buffers()} == {name for name, _ in net.named_buffers()}
    assert module.get_parameter("layers.0.weight") is net.layers[0].weight


def test_training_is_that_of_the_module(net):
    theirs = copy.deepcopy(net)
    module = exported(net).module()
    optimizers = [torch.optim.SGD(x.parameters(), lr=0.05, momentum=0.9) for x in (module, theirs)]
    generator = torch.Generator().manual_seed(1)
    for step in range(6):
        x = torch.randn(4 + step, 3, generator=generator)
        losses = []
        for model, optimizer in zip((module, theirs), optimizers):
            optimizer.zero_grad()
            losses.append((model(x) - x.sum(1, keepdim=True)).square().mean())
            losses[-1].backward()
            optimizer.step()
        torch.testing.assert_close(*losses, rtol=1e-4, atol=1e-5)
    for name, value in theirs.state_dict().items():
        torch.testing.assert_close(module.state_dict()[name], value, rtol=1e-3, atol=1e-4)


def test_a_loaded_program_is_trained_and_saved(net, tmp_path):
    pytest.importorskip("safetensors", reason="safetensors is not installed")
    exported(net).save(tmp_path / "net.program")
    program = ExportedProgram.load(tmp_path / "net.program")
    module, x = program.module(), torch.randn(5, 3)
    before = module(x)
    module(x).sum().backward()
    torch.optim.SGD(module.parameters(), lr=0.1).step()
    assert not torch.equal(module(x), before)
    program.save(tmp_path / "trained.program")  # the program's state is the module's
    torch.testing.assert_close(ExportedProgram.load(tmp_path / "trained.program")(x), module(x))


def test_states_are_loaded_copied_and_converted(net):
    program = exported(net)
    module, x = program.module(), torch.randn(5, 3)
    other = copy.deepcopy(module)
    other.load_state_dict({name: torch.zeros_like(value) for name, value in other.state_dict().items()})
    assert float(other(x).detach().abs().sum()) == 0 and float(module(x).detach().abs().sum()) > 0
    other.load_state_dict(module.state_dict())
    torch.testing.assert_close(other(x), module(x))
    other.scale = torch.nn.Parameter(torch.zeros(4))  # an assignment is seen
    torch.testing.assert_close(other(x), other.shift.expand(5, 4))
    with pytest.raises(GraphError, match=r"takes f32\[.*torch.float64"):
        other.to(torch.float64)(x)
    assert module.to("cpu") is module
    with pytest.raises(GraphError, match="another argument: x"):
        module(torch.randn(5, 4))
    with pytest.raises(TypeError, match="is not pickled: save the program, or the module's state_dict"):
        pickle.dumps(module)


def test_what_is_no_module():
    with pytest.raises(GraphError, match="is of NumPy's arrays, and a torch.nn.Module has tensors"):
        framejit.export(lambda x: x * 2, (np.ones(3),)).module()
    owner = types.SimpleNamespace(forward=torch.ones(3))
    with pytest.raises(GraphError, match=r"its array closure0.forward has no place \(there is an attribute 'forward'\)"):
        framejit.export(lambda x: x * owner.forward, (torch.ones(3),)).module()


def test_modules_that_share_a_parameter():
    net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
    net[1].weight = net[0].weight
    module = framejit.export(net, (torch.ones(2, 3),)).module()
    x = torch.randn(2, 3)
    torch.testing.assert_close(module(x), net(x))
    assert len(list(module.parameters())) == len(list(net.parameters()))
