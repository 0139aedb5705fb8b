"""Every row of the front ends' tables can be in a generated program: some pattern of arguments works on the values that programs have."""
import contextlib
import io
import random
import re
import warnings

import numpy as np
import pytest
import tables
from grow import Grower
from harness import torch

LIBRARIES = ["numpy"] + ["torch"] * (torch is not None)

# Why a row is in no generated program. Other tests have all of them.
WEIGHTS = "takes weights of sizes that fit each other"
TRANSFORM = "takes a function"
GRADIENT = "is a statement of its own (parts.STATEMENTS)"
ASKED = "is called by Python or by the library, not by name"
LEFT_OUT = {
    "numpy.lib.array_utils.normalize_axis_index": ASKED, "numpy.ndarray.__bool__": ASKED, "numpy.ndarray.__float__": ASKED, "numpy.ndarray.__int__": ASKED,
    "torch.Tensor.bmm": WEIGHTS, "torch.Tensor.dot": WEIGHTS, "torch._transformer_encoder_layer_fwd": WEIGHTS, "torch._native_multi_head_attention": WEIGHTS, "torch._C._len_torch_dispatch_stack": ASKED, "torch._higher_order_ops.associative_scan": TRANSFORM,
    "torch.lstm": WEIGHTS, "torch.gru": WEIGHTS, "torch.rnn_tanh": WEIGHTS, "torch.rnn_relu": WEIGHTS, "torch._pack_padded_sequence": WEIGHTS,
    "torch._pad_packed_sequence": WEIGHTS, "torch.lstm_cell": WEIGHTS, "torch.gru_cell": WEIGHTS, "torch.rnn_tanh_cell": WEIGHTS, "torch.rnn_relu_cell": WEIGHTS,
    "torch._C._log_api_usage_once": ASKED, "torch.Tensor.cuda": "needs a device", "torch.Tensor.backward": GRADIENT, "torch.autograd.backward": GRADIENT,
    "torch.autograd.grad": GRADIENT, "torch._C._group_tensors_by_device_and_dtype": ASKED,
}


def grower(lib, seed):
    made = Grower(seed, lib)
    made.random = random.Random(seed)
    with contextlib.redirect_stdout(io.StringIO()):
        made.case()
    return made


@pytest.mark.parametrize("lib", LIBRARIES)
def test_each_row_can_be_written(lib):
    growers = []

    def works(path, pattern, made):
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                exec(made.fill("{fresh} = " + tables.text_of(path, pattern)), dict(made.space))
                return True
            except Exception:
                return False

    # Values are drawn: what no call of a row works on in some programs, one does in others.
    missing = [path for path in tables.callables(lib) if path not in LEFT_OUT]
    while missing and len(growers) < 40:
        growers.append(grower(lib, len(growers)))
        missing = [path for path in missing if not any(works(path, pattern, growers[-1]) for pattern in tables.PATTERNS)]
    assert missing == [], "no pattern of tables.PATTERNS gives a call of these rows that works"


@pytest.mark.parametrize("lib", LIBRARIES)
def test_programs_have_calls_of_the_tables_and_numbers_in_several_roles(lib):
    """Enough of them that a fault where two roles meet is found in some thousand programs."""
    roles = dict.fromkeys(["a number read", "a call of a table", "an attribute of a function", "an index by it", "arithmetic with it"], 0)
    for seed in range(150):
        made = Grower(seed, lib)
        with contextlib.redirect_stdout(io.StringIO()):
            source = made.case().source
        roles["a number read"] += bool(made.numbers)
        roles["a call of a table"] += any(f".{path.rpartition('.')[2]}(" in source.partition("def f(")[2] for path in made.callables)
        roles["an attribute of a function"] += "tally.n" in source.partition("def f(")[2]
        roles["an index by it"] += any(re.search(rf"\[{name}\b", source) for name in made.numbers)
        roles["arithmetic with it"] += any(re.search(rf"[*+-] {name}\b", source) for name in made.numbers)
    assert min(roles.values()) >= 5, roles
