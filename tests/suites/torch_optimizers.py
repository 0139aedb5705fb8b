"""torch's database of optimizers: three steps, loss and derivative included, with each set of arguments; parameters and states are compared."""
import copy
import warnings

import framejit
import torch

import calls

DTYPES = (torch.float32, torch.float64)
WAYS = {"one by one": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}, "as given": {}}
STEPS = 3


def database():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_optimizers import optim_db
    return {info.optim_cls.__name__: info for info in optim_db}


def names():
    return list(database())


def check(name, run):
    info = database()[name]
    for dtype in DTYPES:
        for way, keywords in WAYS.items():
            if all(key in info.supported_impls for key in keywords) and run.start(f"{way} {str(dtype).split('.')[-1]}"):
                differ(run, info, dtype, keywords)


def differ(run, info, dtype, extra):
    for number, given in enumerate(info.optim_inputs_func(device="cpu", dtype=dtype)):
        found, expected = (steps(info, given, dtype, extra, compiled) for compiled in (True, False))
        run.called(STEPS)
        for turn, (ours, eager) in enumerate(zip(found, expected, strict=True)):
            for kind, text in calls.differences(ours, eager):
                run.differs(kind, f"arguments {number} {given.desc} {given.kwargs}, step {turn}: {text}")


def steps(info, given, dtype, extra, compiled):
    calls.seed()
    weights = [torch.nn.Parameter(torch.randn(shape, dtype=dtype)) for shape in ((4, 3), (3, 2) if info.optim_cls.__name__ == "Muon" else (3,))]
    x, y = torch.randn(5, 4, dtype=dtype), torch.randn(5, dtype=dtype)
    outcomes = []
    try:
        optimizer = info.optim_cls(weights, **{**copy.deepcopy(given.kwargs), **extra})
    except Exception as error:
        outcome = calls.Called()
        outcome.error = error
        return [outcome]

    def step(x, y):
        def closure():
            optimizer.zero_grad()
            out = x
            for weight in weights:
                out = out @ weight
            loss = ((out.reshape(5, -1).mean(1) - y) ** 2).mean()
            loss.backward()
            return loss
        return optimizer.step(closure)

    function = framejit.compile(step) if compiled else step
    for _ in range(STEPS):
        outcome = calls.call(function, (x, y), {})
        states = [(f"state {i} {key}", value.detach().clone()) for i, weight in enumerate(weights) for key, value in optimizer.state[weight].items() if isinstance(value, torch.Tensor)]
        outcome.arguments += [(f"weight {i}", weight.detach().clone()) for i, weight in enumerate(weights)] + states
        outcomes.append(outcome)
    return outcomes
