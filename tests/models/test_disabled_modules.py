"""framejit.disable of a torch module is a module, which runs as written."""
import copy

import framejit
from harness import needs_torch


@needs_torch
def test_a_disabled_module_is_a_module():
    import torch

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(3, 3)

        def forward(self, x):
            return torch.tanh(self.inner(x))

    class Around(torch.nn.Module):
        def __init__(self, net):
            super().__init__()
            self.net = net

        def forward(self, x):
            return self.net(x * 2).relu() + 1

    net, x = Net(), torch.rand(4, 3)
    disabled = framejit.disable(net)
    assert isinstance(disabled, Net) and [id(p) for p in disabled.parameters()] == [id(p) for p in net.parameters()]
    for module in (disabled, framejit.disable(framejit.compile(net)), copy.deepcopy(disabled)):
        graphs = framejit.cache_info()["graphs"]
        assert torch.equal(module(x), net(x)) and framejit.cache_info()["graphs"] == graphs
    around = Around(disabled)
    compiled = framejit.compile(around)
    for _ in range(3):
        assert torch.allclose(compiled(x), around(x), atol=1e-6)
    report = framejit.explain(compiled)(x)
    assert [found.number for found in report.breaks] == ["FJ121"]
    assert len(list(compiled.state_dict())) == 2
    calls = []
    disabled.register_forward_hook(lambda *_: calls.append(1))
    disabled(x)
    assert calls == [1]
