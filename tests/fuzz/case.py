"""A case: the source of a program with a function `f`, and texts that set ARGS before each call of it.

`check(case)` runs the source twice, in two namespaces, calls `f` eagerly in one and compiled in the other, and compares what
`observe` sees after each call. A text may also change globals, classes or the arguments of the call before.
"""
import collections
import contextlib
import dataclasses
import io
import linecache
import random
import sys
import types
import warnings

import numpy as np

import control
import framejit
from harness import torch
from observe import difference, observe

Case = collections.namedtuple("Case", "lib source calls")
DEVICE = "cpu"  # where torch's arrays are made; `./run fuzz --device cuda` sets it


class Difference(AssertionError):
    """Compiled and eager differ. kind: where; eager_error: the name of the exception eager raised in that call, if any."""

    def __init__(self, kind, text, eager_error=None):
        super().__init__(text)
        self.kind, self.eager_error = kind, eager_error


def make(lib, shape, dtype="float32", seed=0, layout="c", values="plain"):
    """An array: multiples of 1/4, so that sums are exact in any order; layouts and special values by name."""
    generator = np.random.default_rng(seed)
    kind = np.dtype(dtype).kind if dtype != "bfloat16" else "f"
    x = generator.integers(0 if kind == "u" else -16, 16, shape)
    with np.errstate(all="ignore"):
        if kind == "b":
            x = x > 0
        elif values == "large" and kind in "iu":
            x = x.astype(np.int64) * (np.iinfo(dtype).max // 16)
        elif values == "special" and kind in "fc":
            x = generator.choice([np.nan, np.inf, -np.inf, -0.0, 0.0, 1.5, -2.0, 1e30], shape)
        elif kind in "fc":
            x = x / 4
        x = np.asarray(x).astype("float32" if dtype == "bfloat16" else dtype)
    if lib == "torch":
        t = torch.from_numpy(np.array(x)).to(DEVICE)
        t = t.to(torch.bfloat16) if dtype == "bfloat16" else t
        if layout == "f" and t.ndim > 1:
            return t.t().contiguous().t() if t.ndim == 2 else t.transpose(0, -1).contiguous().transpose(0, -1)
        if layout == "strided" and t.ndim:
            return torch.stack([t, t], -1)[..., 0]
        # What eager writes by a mask where several elements have one place is decided by a race on a device.
        if layout == "expanded" and t.ndim and t.shape[0] and DEVICE == "cpu":
            return t[:1].expand(t.shape)
        if layout == "padded" and t.ndim:
            return torch.cat([t, t], -1)[..., t.shape[-1]:]
        if layout == "leaf" and t.is_floating_point():
            return t.requires_grad_()
        return t
    if layout == "f":
        return np.asfortranarray(x)
    if layout == "padded" and x.ndim:
        return np.concatenate([x, x], -1)[..., x.shape[-1]:]
    if layout == "strided" and x.ndim:
        return np.stack([x, x], -1)[..., 0]
    if layout == "reversed" and x.ndim:
        return np.array(x[::-1])[::-1]
    if layout == "expanded" and x.ndim and x.shape[0]:
        return np.broadcast_to(x[:1], x.shape)
    if layout == "readonly":
        x.flags.writeable = False
    return x


def namespace_of(case, filename):
    """The program's module. Its lines can be shown in tracebacks and breaks."""
    linecache.cache[filename] = (len(case.source), None, case.source.splitlines(True), filename)
    module = types.ModuleType("program")
    # Decorators such as dataclass look classes' modules up by name.
    sys.modules["program"] = module
    namespace = vars(module)
    namespace.update(lib=np if case.lib == "numpy" else torch, np=np, make=lambda *a, **k: make(case.lib, *a, **k))
    namespace["make"].__module__ = "case"
    exec(compile(case.source, filename, "exec", dont_inherit=True), namespace)
    return namespace


@dataclasses.dataclass
class Called:
    result: object
    error: object
    stdout: str
    warnings: list


def call_observed(function, arguments):
    random.seed(5)
    np.random.seed(5)
    if torch is not None:
        torch.manual_seed(5)
    stdout = io.StringIO()
    result = error = None
    with contextlib.redirect_stdout(stdout), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = function(*arguments)
        except Exception as raised:
            error = raised
    # torch gives the warnings of its C++ part once in a process: whoever runs first has them; and that of a torch.cond whose way is known
    # when it compiles what is around that, which eager does for each torch.cond.
    unseen = "Triggered internally", "Pred is a Python constant"
    shown = [(w.category.__name__, str(w.message), w.lineno) for w in caught if not any(text in str(w.message) for text in unseen)]
    return Called(result, error, stdout.getvalue(), shown)


def backward(value, tensors):
    """Collects the tensors of a result that have a gradient function."""
    if torch is not None and isinstance(value, torch.Tensor):
        if value.grad_fn is not None:
            tensors.append(value)
    elif isinstance(value, (list, tuple)):
        for item in value:
            backward(item, tensors)
    return tensors


def seen(function, namespace):
    """What a call left behind, and the name of the error it raised. torch refuses to tell of some views whose base was written."""
    try:
        return _seen(function, namespace)
    except RuntimeError as error:
        return [("unreadable", (str(error),))], None


def _seen(function, namespace):
    called = call_observed(function, namespace["ARGS"])
    tensors = backward(called.result, [])
    if tensors:
        # Each result with another weight; what it gives is seen in the leaves' .grad.
        try:
            sum(t.real.float().sum() * n for n, t in enumerate(tensors, 1)).backward()
        except RuntimeError as error:
            namespace["BACKWARD_FAILED"] = type(error).__name__
    records = observe(called.result, called.error, namespace["ARGS"], namespace, called.stdout, called.warnings)
    # Exceptions hold frames, which hold arrays: what the next call sees must not depend on it.
    return records, type(called.error).__name__ if called.error is not None else None


def check(case, filename="<program>", **options):
    """Raises Difference if a compiled call differs from the eager one; else the counts of `framejit.cache_info()`."""
    framejit.reset()
    control.forget()
    eager, ours = namespace_of(case, filename), namespace_of(case, filename)
    plain = ours["f"]
    compiled = framejit.compile(plain, **options)
    for number, text in enumerate(case.calls):
        setup = compile(text, f"<call {number}>", "exec", dont_inherit=True)
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for namespace in (eager, ours):
                exec(setup, namespace)
        if ours["f"] is not plain:
            plain = ours["f"]
            compiled = framejit.compile(plain, **options)
        expected, error = seen(eager["f"], eager)
        try:
            actual, _ = seen(compiled, ours)
        except Exception as raised:
            raise Difference("observation", f"call {number}: {raised!r} while looking at the result", error) from raised
        if "BACKWARD_FAILED" in eager:
            # Backward reads what was written since: what it had accumulated when it found out is an accident.
            expected, actual = ([record for record in records if not record[0].endswith(".grad")] for records in (expected, actual))
        found = difference(actual, expected)
        if found is not None:
            raise Difference(found[0].split("[")[0].split(".")[0], f"call {number}: {found[1]}", error)
    info = framejit.cache_info()
    if info["internal_errors"]:
        raise Difference("internal error", f"{info['internal_errors']} internal errors:\n{framejit.explain(compiled).so_far()}")
    return info


def as_test(case, name):
    """The case as the text of a test for test_found.py."""
    calls = "".join(f"        {text!r},\n" for text in case.calls)
    source = case.source.rstrip().replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    return f'def test_{name}():\n    check(Case("{case.lib}", """\\\n{source}\n""", [\n{calls}    ]))\n'
