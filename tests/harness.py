"""`same_as_eager`: runs a function compiled and as written, and compares everything a user could see.

Values (exactly, or within the dtype's tolerance), dtype, shape, strides, aliasing of results with arguments and
with each other, arguments after the call, stdout, warnings and exceptions. A run that only looks compiled fails:
no internal error, no silent eager replay and, unless the test says so, no break; kernels must have been launched.
"""
import collections
import contextlib
import copy
import dataclasses
import functools
import io
import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import types
import warnings

import numpy as np
import pytest

import framejit

try:
    import torch
except ImportError:
    torch = None

TOLERANCE = {"float16": (2e-3, 2e-3), "bfloat16": (2e-2, 2e-2), "float32": (2e-6, 2e-6), "float64": (2e-14, 2e-14),
             "complex64": (2e-6, 2e-6), "complex128": (2e-14, 2e-14)}


class NumpyLibrary:
    """What tests need of NumPy under names both libraries share."""

    name = "numpy"
    sqrt, exp, sin, tanh, where, abs = np.sqrt, np.exp, np.sin, np.tanh, np.where, np.abs
    maximum, minimum, sum, mean = np.maximum, np.minimum, np.sum, np.mean
    concatenate = staticmethod(np.concatenate)

    @staticmethod
    def array(value):
        return np.asarray(value)

    @classmethod
    def sample(cls, shape, domain="real", dtype="float32", seed=0):
        return cls.array(_sample(shape, domain, dtype, seed))


class TorchLibrary:
    name = "torch"
    if torch is not None:
        sqrt, exp, sin, tanh, where, abs = torch.sqrt, torch.exp, torch.sin, torch.tanh, torch.where, torch.abs
        maximum, minimum, sum, mean = torch.maximum, torch.minimum, torch.sum, torch.mean
        concatenate = torch.cat

    @staticmethod
    def array(value):
        return torch.from_numpy(np.ascontiguousarray(value))

    @classmethod
    def sample(cls, shape, domain="real", dtype="float32", seed=0):
        return cls.array(_sample(shape, domain, dtype, seed))


def _sample(shape, domain, dtype, seed):
    generator = np.random.default_rng(seed)
    dtype = np.dtype(dtype)
    if dtype == bool:
        return generator.random(shape) < 0.5
    if dtype.kind in "iu":
        return generator.integers(0 if dtype.kind == "u" or domain == "positive" else -20, 20, shape).astype(dtype)
    x = generator.standard_normal(shape)
    if domain == "positive":
        x = np.abs(x) + 0.1
    elif domain == "unit":
        x = np.tanh(x) * 0.9
    return x.astype(dtype)


needs_torch = pytest.mark.skipif(torch is None, reason="torch is not installed in this environment")


def run_program(program, **environment):
    """The finished process that has run it, without an error."""
    path = os.pathsep.join(p for p in sys.path if p)
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "program.py")  # a file: messages quote its lines
        file.write_text(textwrap.dedent(program))
        done = subprocess.run([sys.executable, "-P", str(file)], capture_output=True, text=True, timeout=300,
                              env={**os.environ, "PYTHONPATH": path, **environment})
    assert done.returncode == 0, done.stderr
    return done


def both_libraries(test):
    """Runs the test with `lib` being NumPy and torch."""
    return pytest.mark.parametrize("lib", [pytest.param(NumpyLibrary, id="numpy"),
                                           pytest.param(TorchLibrary, id="torch", marks=needs_torch)])(test)


def is_array(value):
    return isinstance(value, np.ndarray) or (torch is not None and isinstance(value, torch.Tensor))


def leaves(value, path="result"):
    """(path, leaf) of nested tuples, lists and dicts."""
    if isinstance(value, (tuple, list)):
        for i, item in enumerate(value):
            yield from leaves(item, f"{path}[{i}]")
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, f"{path}[{key!r}]")
    else:
        yield path, value


def extent(array):
    """(first, last) byte of an array's memory, or None if it has no elements."""
    if isinstance(array, np.ndarray):
        return None if array.size == 0 else np.lib.array_utils.byte_bounds(array)
    if array.numel() == 0:
        return None
    low = high = array.data_ptr()
    for size, stride in zip(array.shape, array.stride()):
        high += (size - 1) * stride * array.element_size()
    return low, high + array.element_size()


def overlap(a, b):
    x, y = extent(a), extent(b)
    return x is not None and y is not None and x[0] < y[1] and y[0] < x[1]


def strides_of(array):
    """Element strides of all dimensions, those of size 1 too: torch's choice of a memory format reads them. Left out: views of no elements, whose
    strides differ with the way to them, and NumPy's arrays of no elements, which NumPy gives zeros or row-major strides by no rule for users."""
    if isinstance(array, np.ndarray):
        return None if array.size == 0 else [stride // array.itemsize for stride in array.strides]
    return None if array.numel() == 0 and array._is_view() else list(array.stride())


def attributes(instance):
    """What an object holds in its __dict__ and its slots."""
    held = {name: getattr(instance, name) for kind in type(instance).__mro__ for name in getattr(kind, "__slots__", ()) if hasattr(instance, name)}
    return {**held, **getattr(instance, "__dict__", {})}


def assert_same(actual, expected, path="result", exact=False):
    # Classes made by the program itself are another one in each run.
    same = type(actual) is type(expected) or ("<locals>" in type(expected).__qualname__ and type(actual).__qualname__ == type(expected).__qualname__)
    assert same, f"{path}: type {type(actual)}, eager gives {type(expected)}"
    if isinstance(expected, (tuple, list)):
        assert len(actual) == len(expected), f"{path}: length {len(actual)}, eager gives {len(expected)}"
        for i, (a, e) in enumerate(zip(actual, expected)):
            assert_same(a, e, f"{path}[{i}]", exact)
    elif isinstance(expected, dict):
        assert list(actual) == list(expected), f"{path}: keys {list(actual)}, eager gives {list(expected)}"
        for key in expected:
            assert_same(actual[key], expected[key], f"{path}[{key!r}]", exact)
    elif is_array(expected) or isinstance(expected, np.generic):
        assert actual.dtype == expected.dtype, f"{path}: dtype {actual.dtype}, eager gives {expected.dtype}"
        assert tuple(actual.shape) == tuple(expected.shape), f"{path}: shape {tuple(actual.shape)}, eager gives {tuple(expected.shape)}"
        if is_array(expected):
            assert strides_of(actual) == strides_of(expected), f"{path}: strides {strides_of(actual)}, eager gives {strides_of(expected)}"
        if torch is not None and isinstance(expected, torch.Tensor):
            assert actual.device == expected.device, f"{path}: device {actual.device}, eager gives {expected.device}"
            assert actual.requires_grad == expected.requires_grad, f"{path}: requires_grad"
            assert actual.is_leaf == expected.is_leaf, f"{path}: is_leaf"
            assert actual.is_inference() == expected.is_inference(), f"{path}: is_inference"
            if not expected.is_inference():  # those have no version
                assert actual._version == expected._version, f"{path}: _version {actual._version}, eager gives {expected._version}"
            assert (actual._base is None) == (expected._base is None), f"{path}: _base"
            a, e = actual.detach().cpu(), expected.detach().cpu()
            if e.dtype in (torch.bfloat16,):
                a, e = a.float(), e.float()
            a, e, name = a.resolve_conj().resolve_neg().numpy(), e.resolve_conj().resolve_neg().numpy(), str(expected.dtype).split(".")[-1]
        else:
            if isinstance(expected, np.ndarray):
                assert actual.flags.owndata == expected.flags.owndata, f"{path}: OWNDATA"
                assert actual.flags.writeable == expected.flags.writeable, f"{path}: writeable"
            a, e, name = np.asarray(actual), np.asarray(expected), expected.dtype.name
        if exact or name not in TOLERANCE:
            np.testing.assert_array_equal(a, e, err_msg=path)
        else:
            relative, absolute = TOLERANCE[name]
            scale = np.max(np.abs(e[np.isfinite(e)]), initial=1.0)
            np.testing.assert_allclose(a, e, rtol=relative * 10, atol=absolute * float(scale), err_msg=path)
            if e.dtype.kind == "f":
                zero = (a == 0) & (e == 0)
                np.testing.assert_array_equal(np.signbit(a[zero]), np.signbit(e[zero]), err_msg=path + ": sign of zero")
    elif isinstance(expected, float):
        assert actual == pytest.approx(expected, rel=0 if exact else 1e-5, abs=0 if exact else None, nan_ok=True), path
    elif isinstance(expected, collections.deque):
        assert actual.maxlen == expected.maxlen, f"{path}: maxlen {actual.maxlen}, eager gives {expected.maxlen}"
        assert_same(list(actual), list(expected), path, exact)
    elif isinstance(expected, (set, frozenset)):
        assert list(actual) == list(expected), f"{path}: {actual!r}, eager gives {expected!r}"
    elif isinstance(expected, type(dict().values())):
        assert_same(list(actual), list(expected), path, exact)
    elif (hasattr(expected, "__dict__") or hasattr(type(expected), "__slots__")) and (
            type(expected).__eq__ is object.__eq__ or dataclasses.is_dataclass(expected)) and not isinstance(expected, (type, types.FunctionType, types.BuiltinFunctionType, types.MethodType)):
        assert_same(attributes(actual), attributes(expected), path, exact)
    else:
        assert actual == expected, f"{path}: {actual!r}, eager gives {expected!r}"


class Outcome:
    """What one call did."""

    def __init__(self, function, arguments, keywords):
        self.arguments, self.keywords = arguments, keywords
        self.result = self.error = None
        stdout = io.StringIO()
        with contextlib.redirect_stdout(stdout), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                self.result = function(*arguments, **keywords)
            except Exception as error:  # compared with eager's
                self.error = error
        self.stdout = stdout.getvalue()
        self.warnings = [(w.category, str(w.message)) for w in caught]

    def aliases(self):
        """Pairs of leaves of arguments and result that share memory or are one object."""
        everything = [(p, v) for p, v in leaves((self.arguments, self.keywords), "args") if is_array(v)]
        everything += [(p, v) for p, v in leaves(self.result) if is_array(v)]
        return [(p, q, a is b) for i, (p, a) in enumerate(everything) for q, b in everything[i + 1:] if overlap(a, b)]


class Run:
    """What the compiled function did, over all calls of one `same_as_eager`."""

    def __init__(self, compiled, report, info):
        self.compiled, self.report, self.info = compiled, report, info

    @property
    def breaks(self):
        return [b.name for b in self.report.breaks]

    @property
    def guards(self):
        return self.report.guards.all

    @property
    def graphs(self):
        return self.report.graphs

    @property
    def graph_ops(self):
        return [node.op for graph in self.report.graphs for node in graph.nodes]

    @property
    def kernels(self):
        return self.report.kernel_count


def same_as_eager(function, *arguments, calls=2, breaks=None, compiles=True, exact=False, backend=None, dynamic=None,
                  fallback=False, **keywords):
    """Calls `function` `calls` times eagerly and compiled on equal, separate copies of the arguments and compares.

    breaks: names of breaks.def expected, in order; None: whatever happens; () none. compiles=False: nothing need
    be compiled (but the result must be equal). fallback=True: eager replays are expected.
    """
    framejit.reset()
    options = {} if backend is None else {"backend": backend}
    if dynamic is not None:
        options["dynamic"] = dynamic
    compiled = framejit.compile(function, **options)
    for _ in range(calls):
        # One deepcopy of everything keeps aliasing between arguments.
        eager = Outcome(function, *copy.deepcopy((arguments, keywords)))
        ours = Outcome(compiled, *copy.deepcopy((arguments, keywords)))
        compare(ours, eager, exact)
    info = framejit.cache_info()
    report = framejit.explain(compiled).so_far()
    run = Run(compiled, report, info)
    assert info["internal_errors"] == 0 and info["kernels_failed"] == 0, report
    if compiles:
        assert info["graphs"] > 0, f"nothing was captured:\n{report}"
        if not fallback:
            assert info["eager_replays"] == 0, f"a compiled piece was replayed eagerly:\n{report}"
        if not fallback and (backend or os.environ.get("FRAMEJIT_BACKEND", "auto")) in ("auto", "llvm", "cuda"):
            assert info["kernels_launched"] > 0, f"no kernel ran:\n{report}"
    if breaks is not None:
        assert run.breaks == list(breaks), f"{run.breaks}\n{report}"
    return run


def counted(function, calls, exact=False):
    """What is counted after calls with each tuple of arguments; every result is eager's, or its error is."""
    framejit.reset()
    compiled = framejit.compile(function)
    for given in calls:
        outcomes = []
        for run in (compiled, function):
            try:
                outcomes.append(run(*copy.deepcopy(given)))
            except Exception as error:
                outcomes.append((type(error), str(error)))
        try:
            assert_same(*outcomes, exact=exact)
        except AssertionError:
            raise AssertionError((given, outcomes, framejit.explain(compiled).so_far()))
    info = framejit.cache_info()
    assert info["internal_errors"] == 0, framejit.explain(compiled).so_far()
    return info


def compare(ours, eager, exact=False):
    if eager.error is not None or ours.error is not None:
        assert type(ours.error) is type(eager.error), f"compiled raised {ours.error!r}, eager {eager.error!r}"
        assert str(ours.error) == str(eager.error)
    assert_same(ours.result, eager.result, exact=exact)
    assert_same(ours.arguments, eager.arguments, "args", exact)
    assert_same(ours.keywords, eager.keywords, "kwargs", exact)
    assert ours.aliases() == eager.aliases()
    assert ours.stdout == eager.stdout
    assert ours.warnings == eager.warnings
