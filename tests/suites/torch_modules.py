"""torch's database of modules: each with its own arguments, in training and in evaluation; parameters, buffers and gradients are compared."""
import warnings

import framejit
import torch

import calls

INPUTS = 12  # of a module, dtype and mode: more are thinned evenly
DTYPES = (torch.float32, torch.float64, torch.complex64)


def database():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_modules import module_db
    return {info.formatted_name.replace("_", "."): info for info in module_db}


def names():
    return list(database())


def check(name, run):
    info = database()[name]
    for dtype in DTYPES:
        if dtype not in info.dtypes:
            continue
        for training in (True, False):
            if run.start(("training " if training else "evaluation ") + str(dtype).split(".")[-1]):
                differ(run, info, dtype, training)


def inputs(info, dtype, training):
    calls.seed()
    given = info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=True, training=training)
    return calls.thinned([one for one in given if one.forward_input is not None], INPUTS)


def made(info, one, dtype, training):
    calls.seed()
    arguments, keywords = one.constructor_input.args, one.constructor_input.kwargs
    module = info.module_cls(*arguments, **keywords).to(dtype)
    return module.train(training)


def differ(run, info, dtype, training):
    for number, (mine, theirs) in enumerate(zip(inputs(info, dtype, training), inputs(info, dtype, training), strict=True)):
        found, expected = (made(info, one, dtype, training) for one in (mine, theirs))
        compiled = framejit.compile(found)
        for turn in range(2):
            outcomes = []
            for module, function, one in ((found, compiled, mine), (expected, expected, theirs)):
                given = one.forward_input
                outcome = calls.call(function, given.args, given.kwargs, leaves=leaves(module, given))
                outcome.arguments += [(f".{name}", tensor.detach()) for name, tensor in module.state_dict(keep_vars=True).items()]
                outcomes.append(outcome)
            run.called()
            for kind, text in calls.differences(*outcomes):
                run.differs(kind, f"input {number} {one.desc}, call {turn}: {text}")


def leaves(module, given):
    """What gradients are asked of: parameters and arguments. None that was made by an operation in between is."""
    parameters = [p for p in module.parameters() if not isinstance(p, torch.nn.UninitializedParameter)]
    return [t for t in [*parameters, *(t for _, t in calls.tensors((given.args, given.kwargs)))] if t.requires_grad]
