"""torch's database of operators: each with its own samples, as a function, as a method and in place, and with the calls it refuses."""
import warnings

import framejit
import torch

import calls

SAMPLES = 60  # of an operator and dtype: more are thinned evenly
DTYPES = (torch.float32, torch.float64, torch.int64, torch.bool, torch.complex64)
VARIANTS = {"function": lambda op: op.op, "method": lambda op: op.get_method(), "in place": lambda op: op.get_inplace()}


def database():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db
    return {op.name + ("." + op.variant_test_name if op.variant_test_name else ""): op for op in op_db}


def names():
    return list(database())


def check(name, run):
    op = database()[name]
    for dtype in DTYPES:
        if dtype not in op.dtypes:
            continue
        for variant, of in VARIANTS.items():
            place = f"{variant} {str(dtype).split('.')[-1]}"
            if (variant == "function" or of(op) is not None) and run.start(place):
                differ(run, of(op), lambda: samples(op, dtype, variant))
    if op.error_inputs_func is not None and run.start("refused"):
        differ(run, op.op, lambda: refused(op))


def fresh(function):
    """A function of its own: what is compiled for one operator is not met by the next."""
    def called(*arguments, **keywords):
        return function(*arguments, **keywords)
    return called


def samples(op, dtype, variant):
    """Made twice, they are alike."""
    calls.seed()
    derivative = variant != "in place" and op.supports_autograd and (dtype.is_floating_point or dtype.is_complex)
    made = [(sample.input, *sample.args, sample.kwargs) for sample in op.sample_inputs("cpu", dtype, requires_grad=derivative)]
    return calls.thinned(made, SAMPLES)


def refused(op):
    calls.seed()
    return [(e.sample_input.input, *e.sample_input.args, e.sample_input.kwargs) for e in op.error_inputs("cpu")]


def differ(run, function, make):
    eager = fresh(function)
    compiled = framejit.compile(fresh(function))
    for number, (mine, theirs) in enumerate(zip(make(), make(), strict=True)):
        calls.fill_alike(mine, theirs)
        expected = calls.call(eager, theirs[:-1], theirs[-1])
        found = calls.call(compiled, mine[:-1], mine[-1])
        run.called()
        for kind, text in calls.differences(found, expected):
            run.differs(kind, f"sample {number} {shown(theirs)}: {text}")


def shown(sample):
    """The shapes of a call."""
    def one(value):
        if isinstance(value, torch.Tensor):
            return f"{str(value.dtype)[6:]}{list(value.shape)}" + ("" if value.layout != torch.strided or value.is_contiguous() else f"/{list(value.stride())}")
        if isinstance(value, (tuple, list)):
            return "[" + ", ".join(map(one, value)) + "]"
        if isinstance(value, dict):
            return "{" + ", ".join(f"{key}={one(item)}" for key, item in value.items()) + "}"
        return repr(value)[:60]
    return ", ".join(map(one, sample[:-1])) + (" " + one(sample[-1]) if sample[-1] else "")
