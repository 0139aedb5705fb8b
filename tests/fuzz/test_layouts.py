"""One compiled function is called with arrays that lie in memory in ever other ways: values and all strides are eager's.

Sequences of arrays are drawn from a seed: permuted, expanded, sliding, flipped, with gaps, with axes of one element and of none. Sizes and strides
become symbols on the way, so that a layout decided for one of the arrays is soon asked for another one.
"""
import random

import numpy as np
import pytest

import framejit
from harness import NumpyLibrary, TorchLibrary, assert_same, needs_torch, torch

LIBRARIES = {"numpy": NumpyLibrary, "torch": TorchLibrary}
SIZES = [0, 1, 1, 2, 3, 5]


def laid_out(lib, draw, rank):
    """An array of `rank` axes that lies in memory in one of many ways."""
    numpy = lib is NumpyLibrary
    shape = [draw.choice(SIZES if draw.random() < 0.2 else SIZES[1:]) for _ in range(rank)]
    gaps = [draw.choice([0, 0, 0, 1, 2]) for _ in range(rank)]
    whole = np.arange(np.prod([n + gap for n, gap in zip(shape, gaps)], dtype=int), dtype="float32").reshape([n + gap for n, gap in zip(shape, gaps)])
    x = lib.array(whole)[tuple(slice(n) for n in shape)]
    for _ in range(draw.choice([0, 1, 1, 2])):
        axis, other = draw.randrange(rank), draw.randrange(rank)
        match draw.randrange(6):
            case 0 if numpy:
                x = np.flip(x, axis)
            case 1:
                x = x[(slice(None),) * axis + (slice(None, None, 2),)]
            case 2 if numpy:
                x = np.broadcast_to(x[(slice(None),) * axis + (slice(0, 1),)], x.shape[:axis] + (3,) + x.shape[axis + 1:]) if x.shape[axis] else x
            case 2 if x.shape[axis]:
                x = x.narrow(axis, 0, 1).expand(x.shape[:axis] + (3,) + x.shape[axis + 1:])
            case 3:
                rows = x.sum(axis)
                if rows.ndim and rows.shape[0] > 2:  # a sliding window over what one axis fewer has
                    x = np.moveaxis(np.lib.stride_tricks.sliding_window_view(rows, 2, 0), -1, axis) if numpy else rows.unfold(0, 2, 1).movedim(-1, axis)
            case _:
                x = np.swapaxes(x, axis, other) if numpy else x.transpose(axis, other)
    return x


BOTH = {
    "a sum with a number": lambda lib, x: x + 1,
    "a product with itself": lambda lib, x: x * x,
    "of one operand": lambda lib, x: lib.exp(-x),
    "a comparison": lambda lib, x: (x > 3, x == x),
    "beside a row": lambda lib, x: x + x[:1],
    "beside a column": lambda lib, x: x[..., :1] * x,
    "turned": lambda lib, x: x + 1 if x.ndim < 2 else (x + 1).swapaxes(0, 1) + x.swapaxes(0, 1),
    "views": lambda lib, x: ((x + 1).T if x.ndim == 2 else (x + 1)[None], x[::2], x[..., None]),
    "a choice": lambda lib, x: lib.where(x > 2, x, x + 1),
    "a copy": lambda lib, x: x.copy() if isinstance(x, np.ndarray) else x.clone(),
    "a chain": lambda lib, x: (x * 2 + 1 - x) * (x > 0),
    "joined": lambda lib, x: lib.concatenate([x, x]),
    "flat": lambda lib, x: (x.reshape(-1), (x + 1).reshape(-1)),
    "strides": lambda lib, x: (x + 1, x.strides if isinstance(x, np.ndarray) else x.stride()),
    "a part": lambda lib, x: (x + 1)[..., :2] + x[..., :2],
}
NUMPY = {
    "sums": lambda lib, x: (x.sum(0), x.sum(-1, keepdims=True), x.max(initial=0)),
    "alike": lambda lib, x: (np.zeros_like(x), np.copy(x, order="K"), x.astype("f8")),
    "in the order of columns": lambda lib, x: np.asfortranarray(x) + 1,
}
TORCH = {
    "sums": lambda lib, x: (x.sum(0), x.sum(-1, keepdim=True)),
    "alike": lambda lib, x: (torch.zeros_like(x), x.double(), x.contiguous()),
    "with numbers": lambda lib, x: (x.clamp(0, 2), x.pow(2), x.clamp_min(1), torch.lerp(x, x, 0.5), x.addcmul(x, x, value=2)),
    "activations": lambda lib, x: (x.relu(), torch.sigmoid(x), torch.nn.functional.leaky_relu(x, 0.1), torch.nn.functional.gelu(x)),
    "read through memory": lambda lib, x: (x * 2).as_strided((1,), (1,)) if x.numel() else x,
    "rows of a softmax": lambda lib, x: (torch.softmax(x, -1), torch.log_softmax(x, 0)),
    "written in place": lambda lib, x: x.clone().mul_(2).add_(x),
}
PROGRAMS = [pytest.param(LIBRARIES[name], function, id=f"{name}-{what}", marks=needs_torch if name == "torch" else ())
            for name, more in (("numpy", NUMPY), ("torch", TORCH)) for what, function in {**BOTH, **more}.items()]


@pytest.mark.parametrize("lib, function", PROGRAMS)
@pytest.mark.parametrize("rank", [1, 2, 3, 4])
def test_layouts_in_turn(lib, function, rank):
    for seed in range(6):
        draw = random.Random(seed)
        compiled = framejit.compile(lambda x: function(lib, x))
        for _ in range(10):
            x = laid_out(lib, draw, rank)
            strides = x.strides if isinstance(x, np.ndarray) else x.stride()
            try:
                expected = function(lib, x)
            except Exception as error:
                with pytest.raises(type(error)):
                    compiled(x)
                continue
            assert_same(compiled(x), expected, f"seed {seed}, {tuple(x.shape)} strides {strides}")
    assert framejit.cache_info()["internal_errors"] == 0
