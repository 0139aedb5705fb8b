"""Families of models, small and with random weights: equal to eager and as many pieces as the table says, in evaluation and in training."""
import gc
import inspect

import pytest

import framejit
from families import FAMILIES, EagerFails, run_family, torch


@pytest.fixture(autouse=True)
def untagged_modules(monkeypatch):
    """torch.compile, once it ran in a process, notes each module that is made in dictionaries of weak references: breaks of its own."""
    for name in ("__init__", "__setstate__"):
        patched = getattr(torch.nn.Module, name)
        original = inspect.getclosurevars(patched).nonlocals.get(name.strip("_"))
        if original:
            monkeypatch.setattr(torch.nn.Module, name, original)


@pytest.mark.parametrize("training", [False, True], ids=["evaluation", "training"])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.filterwarnings("ignore")
def test_family(family, training):
    try:
        run_family(family, training)
    except EagerFails as why:
        pytest.skip(str(why))


@pytest.mark.filterwarnings("ignore")
def test_a_module_made_in_forward_that_torch_compile_notes_goes_where_eager_lets_it_go(monkeypatch):
    """Its weak reference has a callback in Python: two breaks, one where it is made and one where it goes."""
    from torch._dynamo.mutation_guard import GenerationTracker, install_generation_tagging_init

    class Slices(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList(torch.nn.Linear(3, 3) for _ in range(3))

        def forward(self, x, noted):
            for layer in self.layers[:2]:
                x = layer(x)
                noted.append(noted_modules())
            layers = self.layers[1:]
            noted.append(noted_modules())
            x = x + 1
            del layers
            noted.append(noted_modules())
            return x * 2

    def noted_modules():
        return len(GenerationTracker.generation_values.refs)

    module, x = Slices(), torch.ones(2, 3)
    compiled = framejit.compile(module)
    monkeypatch.setattr(torch.nn.Module, "___needs_generation_tag_patch", True, raising=False)
    for name in ("__init__", "__setstate__"):
        monkeypatch.setattr(torch.nn.Module, name, getattr(torch.nn.Module, name))
    install_generation_tagging_init()
    gc.collect()
    with torch.no_grad():
        for _ in range(3):
            before = noted_modules()
            expected, ours = [], []
            torch.testing.assert_close(compiled(x, ours), module(x, expected))
            assert ours == expected == [before, before, before + 1, before]
    assert framejit.cache_info()["internal_errors"] == 0 and len(framejit.explain(compiled).so_far().breaks) <= 6
