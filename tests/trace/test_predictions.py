"""What calls of the library return is known before they run (framejit/_support/meta.py): a function is traced once, and as eager lays it out."""
import itertools

import pytest

import framejit
from harness import torch

if torch is None:
    pytest.skip("torch is not installed in this environment", allow_module_level=True)

from framejit._support import meta  # noqa: E402


def on_meta(value):
    if isinstance(value, torch.Tensor):
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
    return [on_meta(item) for item in value] if isinstance(value, (list, tuple)) else value


def layouts(tensors):
    return [(tensor.dtype, tensor.shape, tensor.stride()) for tensor in tensors]


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("transposed", [False, True])
def test_the_rule_for_convolutions_gives_the_layout_of_the_cpu(axes, transposed):
    name = f"conv_transpose{axes}d" if transposed else f"conv{axes}d"
    cases = itertools.product([torch.float32, torch.float64], [False, True], [1, 8], [False, True], [1, (2,) * axes], [0, 1], [1, 3], [1, 2])
    for dtype, last, groups, bias, stride, padding, kernel, dilation in cases:
        x, weight = torch.ones(2, 8, *(9,) * axes, dtype=dtype), torch.ones(8, 8 // groups, *(kernel,) * axes, dtype=dtype)
        if last:
            x = x.movedim(1, -1).contiguous().movedim(-1, 1)
        given = (x, weight, torch.ones(8, dtype=dtype) if bias else None, stride, padding)
        named = dict(groups=groups, dilation=dilation)
        assert layouts([meta.rules[name](*on_meta(given), **named)]) == layouts([getattr(torch, name)(*given, **named)]), (given, named)


@pytest.mark.parametrize("shape, weight, named", [
    ((2, 8, 4), (8, 8, 9), {}), ((8, 4), (8, 8, 3), {}), ((2, 8, 4), (8, 7, 3), {}), ((2, 8, 4), (8, 8, 3), dict(padding="same"))])
def test_the_rule_for_convolutions_leaves_others_to_torch(shape, weight, named):
    try:
        assert meta.rules["conv1d"](torch.empty(shape, device="meta"), torch.empty(weight, device="meta"), **named) is NotImplemented
    except RuntimeError:
        pass  # as torch refuses it


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize("name", ["RNN", "GRU", "LSTM"])
def test_the_rule_for_recurrent_layers_gives_the_layout_of_the_cpu(name):
    for layers, bias, first, both, projected in itertools.product([1, 2], [False, True], [False, True], [False, True], [0, 3]):
        if projected and name != "LSTM":
            continue
        module = getattr(torch.nn, name)(
            4, 7, layers, bias=bias, batch_first=first, bidirectional=both, **dict(proj_size=projected) if projected else {})
        state = torch.zeros(layers * (1 + both), 2, projected or 7)
        given = (torch.ones((2, 5, 4) if first else (5, 2, 4)), [state, torch.zeros(*state.shape[:2], 7)] if name == "LSTM" else state,
                 module._flat_weights, bias, layers, 0.0, False, both, first)
        function = {"RNN": "rnn_tanh"}.get(name, name.lower())
        with torch.no_grad():
            assert layouts(meta.rules[function](*on_meta(given))) == layouts(getattr(torch, function)(*given))
            assert meta.rules[function](*on_meta((given[0][..., :3], *given[1:]))) is NotImplemented


def test_convolutions_of_several_sizes_are_traced_once():
    """Depthwise, over images whose channels come last: torch's meta call gives them other strides than the CPU's kernel does."""
    traced = []
    layers = torch.nn.ModuleList(torch.nn.Conv2d(width, width, 3, padding=1, groups=width) for width in (4, 8, 12, 16))

    @framejit.compile
    def f(images):
        return [layer(image.permute(0, 3, 1, 2)).permute(0, 2, 3, 1) * 2 for layer, image in zip(layers, images)]

    images = [torch.ones(1, 8, 8, width) for width in (4, 8, 12, 16)]
    framejit.set_logs("timings", sink=lambda artifact, text: traced.append(text))
    try:
        with torch.no_grad():
            found = f(images)
    finally:
        framejit.set_logs("")
    assert layouts(found) == layouts(layer(image.permute(0, 3, 1, 2)).permute(0, 2, 3, 1) * 2 for layer, image in zip(layers, images))
    assert len(traced) == 1, traced
