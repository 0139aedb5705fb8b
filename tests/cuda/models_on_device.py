"""Models of the `transformers` package on a CUDA device, against eager torch: outputs, and the parameters after training steps.

For a true device only (`./run test --gpu`): on the fake one a model takes minutes.
"""
import copy
import pathlib
import sys

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
sys.path.append(str(pathlib.Path(__file__).parent.parent / "models"))

import framejit  # noqa: E402
from families import FAMILIES, EagerFails, in_eager, tensors  # noqa: E402
from test_families import untagged_modules  # noqa: E402, F401

# Steps of the two others enlarge rounding by powers of ten: eager's losses part as far where its parameters are changed by a millionth.
TRAINED = [family for family in FAMILIES if family not in ("clip", "mobilenet_v2")]
pytestmark = [pytest.mark.skipif(not torch.cuda.is_available(), reason="torch has no CUDA device here"), pytest.mark.filterwarnings("ignore")]


@pytest.fixture(autouse=True)
def exact_products():
    """Without TF32, whose ten bits of mantissa would hide what differs."""
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    yield
    torch.backends.cudnn.allow_tf32 = before


def on_device(family):
    torch.manual_seed(0)
    module, inputs = FAMILIES[family]()
    try:
        in_eager(family, copy.deepcopy(module), inputs)
    except EagerFails as why:
        pytest.skip(str(why))
    return module.cuda(), {name: value.cuda() if isinstance(value, torch.Tensor) else value for name, value in inputs.items()}


def assert_no_failures():
    info = framejit.cache_info()
    assert info["internal_errors"] == 0 and info["eager_replays"] == 0, info


@pytest.mark.parametrize("family", FAMILIES)
def test_outputs(family):
    module, inputs = on_device(family)
    module.eval()
    compiled = framejit.compile(copy.deepcopy(module))
    with torch.no_grad():
        for _ in range(3):
            expected, ours = list(tensors(module(**inputs))), list(tensors(compiled(**inputs)))
            assert [path for path, _ in ours] == [path for path, _ in expected]
            for (path, e), (_, o) in zip(expected, ours):
                assert o.is_cuda and o.stride() == e.stride(), path
                torch.testing.assert_close(o, e, rtol=1e-4, atol=1e-4, msg=lambda m: f"{path}: {m}")
    assert_no_failures()
    assert framejit.explain(compiled).so_far().graphs


@pytest.mark.parametrize("family", TRAINED)
def test_training(family):
    """Few steps: what rounding leaves grows with each. Nothing is dropped: a model that asks `torch.compiler.is_compiling()` may make a mask that
    eager leaves out, and attention with a mask draws other numbers (BERT's, in some versions of the package)."""
    module, inputs = on_device(family)
    module.train()
    for part in module.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0
    copied = copy.deepcopy(module)
    losses = []
    for model, run in ((module, module), (copied, framejit.compile(copied))):
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
        history = []
        for step in range(10):
            torch.manual_seed(step)
            optimizer.zero_grad()
            loss = sum((value ** 2).mean() for _, value in tensors(run(**inputs)) if value.is_floating_point())
            loss.backward()
            optimizer.step()
            history.append(loss.item())
        losses.append(history)
    torch.testing.assert_close(losses[1], losses[0], rtol=2e-3, atol=1e-4)
    for (name, e), (_, o) in zip(module.named_parameters(), copied.named_parameters()):
        torch.testing.assert_close(o, e, rtol=5e-3, atol=1e-3, msg=lambda m: f"{name}: {m}")
    assert_no_failures()
